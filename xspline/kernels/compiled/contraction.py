"""Compiled loops of contractions: the twins of `engines.ArrayApiEngine`, for NumPy arrays.

`scatter` and `gather` contract one axis of an array with the rows of one coefficient axis, `scatter_products`,
`gather_products` and `gather_folded` with those of several. `sweep` contracts one axis of values as they are stored.
Imported at the first call that needs it; `xspline.spaces.jit` says which rules such modules keep.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from xspline.kernels.block import Floats, Integers
from xspline.kernels.rows import LineSums, ProductRows, SortedRows
from xspline.spaces.jit import compiled, internal

Values = NDArray[Any]  # float32 or float64, missing: NaN
Four = tuple[Values, Values, Values, Values]

COLUMNS = 256  # values at a time: the sums of a cell, 8 KiB for four functions, stay in the cache

# Sums over rows of one coefficient axis: four rows of a cell at a time, all sums of the cell in the cache


@internal
def _clear(total: Floats, width: int, columns: int) -> None:
    for q in range(width):
        total[q * COLUMNS : q * COLUMNS + columns] = 0.0


@internal
def _add_four(a: Floats, b: Floats, c: Floats, d: Floats, values: Floats, total: Floats) -> None:
    """total[q COLUMNS + r] += values[0, q] a[r] + ... + values[3, q] d[r]: four functions for each load of the rows."""
    q, width = 0, values.shape[1]
    while q + 4 <= width:
        a0, a1, a2, a3 = values[0, q], values[0, q + 1], values[0, q + 2], values[0, q + 3]
        b0, b1, b2, b3 = values[1, q], values[1, q + 1], values[1, q + 2], values[1, q + 3]
        c0, c1, c2, c3 = values[2, q], values[2, q + 1], values[2, q + 2], values[2, q + 3]
        d0, d1, d2, d3 = values[3, q], values[3, q + 1], values[3, q + 2], values[3, q + 3]
        out = total[q * COLUMNS : (q + 4) * COLUMNS]
        for r in range(a.size):
            ar, br, cr, dr = a[r], b[r], c[r], d[r]
            out[r] += a0 * ar + b0 * br + c0 * cr + d0 * dr
            out[COLUMNS + r] += a1 * ar + b1 * br + c1 * cr + d1 * dr
            out[2 * COLUMNS + r] += a2 * ar + b2 * br + c2 * cr + d2 * dr
            out[3 * COLUMNS + r] += a3 * ar + b3 * br + c3 * cr + d3 * dr
        q += 4
    while q < width:
        a0, b0, c0, d0 = values[0, q], values[1, q], values[2, q], values[3, q]
        out = total[q * COLUMNS : (q + 1) * COLUMNS]
        for r in range(a.size):
            out[r] += a0 * a[r] + b0 * b[r] + c0 * c[r] + d0 * d[r]
        q += 1


@internal
def _add_one(a: Floats, values: Floats, total: Floats) -> None:
    """total[q COLUMNS + r] += values[q] a[r]."""
    for q in range(values.size):
        a0, out = values[q], total[q * COLUMNS : (q + 1) * COLUMNS]
        for r in range(a.size):
            out[r] += a0 * a[r]


@compiled
def scatter(array: Floats, start: Integers, places: Integers, values: Floats, out: Floats) -> None:
    """out[p, start[i] + places[q], r] += values[i, q] array[p, i, r]; fastest where rows of a cell are neighbours."""
    before, rows, after = array.shape
    if after == 1:
        lines, sums = array.reshape(before, rows), out.reshape(before, out.shape[1])
        for p in range(before):
            for i in range(rows):
                x = lines[p, i]
                if x != 0.0:
                    for q in range(places.size):
                        sums[p, start[i] + places[q]] += values[i, q] * x
        return
    total = np.empty(places.size * COLUMNS)
    for p in range(before):
        for left in range(0, after, COLUMNS):
            s, i = slice(left, min(left + COLUMNS, after)), 0
            columns = s.stop - left
            while i < rows:
                first = start[i]
                _clear(total, places.size, columns)
                while i + 4 <= rows and start[i + 1] == start[i + 2] == start[i + 3] == first == start[i]:
                    a, b, c, d = array[p, i, s], array[p, i + 1, s], array[p, i + 2, s], array[p, i + 3, s]
                    _add_four(a, b, c, d, values[i:], total)
                    i += 4
                while i < rows and start[i] == first:
                    _add_one(array[p, i, s], values[i], total)
                    i += 1
                for q in range(places.size):
                    line, added = out[p, first + places[q], s], total[q * COLUMNS : q * COLUMNS + columns]
                    for r in range(columns):
                        line[r] += added[r]


# Sums over values as they are stored


@internal
def _errors(
    rows: Four, reference: float, words: Integers, e: Floats, power: Floats, count: Integers, digest: Integers
) -> None:
    """Four rows less the reference, 0 where missing, and what their columns add up to."""
    a, b, c, d = rows
    w0, w1, w2, w3, zero = words[0], words[1], words[2], words[3], np.int64(0)
    for r in range(a.size):  # selections, not branches: vector instructions
        k0, k1, k2, k3 = a[r] == a[r], b[r] == b[r], c[r] == c[r], d[r] == d[r]
        e0 = np.float64(a[r]) - reference if k0 else 0.0
        e1 = np.float64(b[r]) - reference if k1 else 0.0
        e2 = np.float64(c[r]) - reference if k2 else 0.0
        e3 = np.float64(d[r]) - reference if k3 else 0.0
        e[r], e[COLUMNS + r], e[2 * COLUMNS + r], e[3 * COLUMNS + r] = e0, e1, e2, e3
        power[r] += e0 * e0 + e1 * e1 + e2 * e2 + e3 * e3
        count[r] += np.int64(k0) + np.int64(k1) + np.int64(k2) + np.int64(k3)
        digest[r] += (w0 if k0 else zero) + (w1 if k1 else zero) + (w2 if k2 else zero) + (w3 if k3 else zero)


@internal
def _errors_of_one(
    a: Values, reference: float, word: int, e: Floats, power: Floats, count: Integers, digest: Integers
) -> None:
    """`_errors` of one row."""
    zero = np.int64(0)
    for r in range(a.size):
        known = a[r] == a[r]
        e[r] = np.float64(a[r]) - reference if known else 0.0
        power[r] += e[r] * e[r]
        count[r] += np.int64(known)
        digest[r] += word if known else zero


@internal
def _known(rows: Four, e: Floats) -> None:
    """1 where four rows have values, 0 where they are missing."""
    a, b, c, d = rows
    for r in range(a.size):
        e[r] = 1.0 if a[r] == a[r] else 0.0
        e[COLUMNS + r] = 1.0 if b[r] == b[r] else 0.0
        e[2 * COLUMNS + r] = 1.0 if c[r] == c[r] else 0.0
        e[3 * COLUMNS + r] = 1.0 if d[r] == d[r] else 0.0


@compiled
def sweep(x: Values, column: int, rows: SortedRows, reference: float, moment: bool, out: LineSums) -> None:
    """out.sums[p, r, start[i] + places[q]] = sum of values[i, q] e[p, order[i], r].

    Parameters
    ----------
    x : [before, n, at least column + after]
    column : the first to be read.
    moment : e is x - reference, 0 where x is NaN, else 1 and 0 there.
    out : sums; of the moment also Σ e², how many rows are known, sum of their words: zeros that are added to.
    """
    power, count, digest = out.power, out.count, out.digest
    order, start, values, words = rows.order, rows.start, rows.values, rows.words
    (before, after), width = power.shape, rows.places.size
    total, e = np.empty(width * COLUMNS), np.empty(4 * COLUMNS)
    e0, e1, e2, e3 = e[:COLUMNS], e[COLUMNS : 2 * COLUMNS], e[2 * COLUMNS : 3 * COLUMNS], e[3 * COLUMNS :]
    for p in range(before):
        for left in range(0, after, COLUMNS):
            columns = min(COLUMNS, after - left)
            s, i = slice(left, left + columns), 0
            there, sums = slice(column + left, column + left + columns), out.sums[p, s]
            sums[:] = 0.0
            for end in rows.ends:
                first = start[i]
                _clear(total, width, columns)
                while i + 4 <= end:
                    j0, j1, j2, j3 = order[i], order[i + 1], order[i + 2], order[i + 3]
                    four = x[p, j0, there], x[p, j1, there], x[p, j2, there], x[p, j3, there]
                    if moment:
                        _errors(four, reference, words[i:], e, power[p, s], count[p, s], digest[p, s])
                    else:
                        _known(four, e)
                    _add_four(e0[:columns], e1[:columns], e2[:columns], e3[:columns], values[i:], total)
                    i += 4
                while i < end:
                    a, line = x[p, order[i], there], e[:columns]
                    if moment:
                        _errors_of_one(a, reference, words[i], line, power[p, s], count[p, s], digest[p, s])
                    else:
                        for r in range(columns):
                            line[r] = 1.0 if a[r] == a[r] else 0.0
                    _add_one(line, values[i], total)
                    i += 1
                for r in range(columns):
                    line = sums[r]
                    for q in range(width):
                        line[first + rows.places[q]] += total[q * COLUMNS + r]


# Values at rows of one coefficient axis


@internal
def _sum_line(array: Floats, k: int, places: Integers, values: Floats, scratch: Floats, out: Values) -> None:
    """out[r] = sum over q of values[q] array[k + places[q], r]."""
    if places.size == 4:
        f0, f1, f2, f3 = values[0], values[1], values[2], values[3]
        a0, a1 = array[k + places[0]], array[k + places[1]]
        a2, a3 = array[k + places[2]], array[k + places[3]]
        for r in range(out.size):
            out[r] = f0 * a0[r] + f1 * a1[r] + f2 * a2[r] + f3 * a3[r]
        return
    for first in range(0, out.size, scratch.size):
        line = out[first : first + scratch.size]
        total, q = scratch[: line.size], 0
        total[:] = 0.0
        while q + 4 <= places.size:
            f0, f1, f2, f3 = values[q], values[q + 1], values[q + 2], values[q + 3]
            a0, a1 = array[k + places[q], first:], array[k + places[q + 1], first:]
            a2, a3 = array[k + places[q + 2], first:], array[k + places[q + 3], first:]
            for r in range(total.size):
                total[r] += f0 * a0[r] + f1 * a1[r] + f2 * a2[r] + f3 * a3[r]
            q += 4
        while q < places.size:
            f0, a0 = values[q], array[k + places[q], first:]
            for r in range(total.size):
                total[r] += f0 * a0[r]
            q += 1
        for r in range(total.size):
            line[r] = total[r]


@compiled
def gather(array: Floats, start: Integers, places: Integers, values: Floats, out: Values) -> None:
    """out[p, i, r] = sum over q of values[i, q] array[p, start[i] + places[q], r].

    `out` is float32 or float64, sums are float64: the last step of an evaluation writes the result itself, and nothing
    is filled, copied or cast on the way.
    """
    before, rows, after = out.shape
    scratch = np.empty(512)  # values of a line that wait in the cache (4 KiB) for further functions
    if after > 1:
        for p in range(before):
            for i in range(rows):
                _sum_line(array[p], start[i], places, values[i], scratch, out[p, i])
        return
    lines, results = array.reshape(before, -1), out.reshape(before, rows)
    if places.size == 4:
        q0, q1, q2, q3 = places[0], places[1], places[2], places[3]
        for p in range(before):
            for i in range(rows):
                k, v = start[i], values[i]
                x = v[0] * lines[p, k + q0] + v[1] * lines[p, k + q1]
                results[p, i] = x + v[2] * lines[p, k + q2] + v[3] * lines[p, k + q3]
        return
    for p in range(before):
        for i in range(rows):
            total = 0.0
            for q in range(places.size):
                total += values[i, q] * lines[p, start[i] + places[q]]
            results[p, i] = total


# Rows of several coefficient axes: products of the values of the axes


@internal
def _active(table: Floats, row: int, first: int, functions: int, pairs: bool, out: Floats) -> int:
    """Values of one row along one axis: its functions, or their products a-major; returns how many."""
    if not pairs:
        for a in range(functions):
            out[a] = table[row, first + a]
        return functions
    count = 0
    for a in range(functions):
        x = table[row, first + a]
        for b in range(a, functions):
            out[count] = x * table[row, first + b]
            count += 1
    return count


@internal
def _outer(table: Floats, row: int, functions: Integers, pairs: bool, scratch: Floats, out: Floats) -> int:
    """Products of the values of one row along all axes but the last, first axis outermost.

    Returns where the last axis begins in the table.
    """
    out[0] = 1.0
    filled, first = 1, 0
    for axis in range(functions.size - 1):
        count = _active(table, row, first, functions[axis], pairs, scratch)
        for i in range(filled - 1, -1, -1):  # backwards: an entry is read before it is overwritten
            x = out[i]
            for q in range(count):
                out[i * count + q] = x * scratch[q]
        filled *= count
        first += functions[axis]
    return first


@compiled
def scatter_products(array: Floats, order: Integers, known: ProductRows, pairs: bool, out: Floats) -> None:
    """`scatter` for groups of several coefficient axes; `order` sorts the rows by where they start.

    The rows of one cell are summed in a small matrix, which is then added to where its entries belong.
    """
    start, places, table, functions = known
    before, rows, after = array.shape
    most, last = max(functions), functions[-1]
    inner = last * (last + 1) // 2 if pairs else last
    outer = places.size // inner
    f, v, total = np.empty(outer), np.empty(most * (most + 1) // 2), np.empty((inner, outer))
    for p in range(before):
        s = 0
        while s < rows and after == 1:
            k, total[:] = start[order[s]], 0.0
            while s < rows and start[order[s]] == k:
                i = order[s]
                x = array[p, i, 0]
                s += 1
                if x == 0.0:
                    continue
                first = _outer(table, i, functions, pairs, v, f)
                _active(table, i, first, last, pairs, v)
                for c in range(inner):
                    g = v[c] * x
                    for m in range(outer):
                        total[c, m] += g * f[m]
            for m in range(outer):
                for c in range(inner):
                    out[p, k + places[m * inner + c], 0] += total[c, m]
        while s < rows:
            i = order[s]
            s += 1
            first = _outer(table, i, functions, pairs, v, f)
            _active(table, i, first, last, pairs, v)
            for m in range(outer):
                for c in range(inner):
                    g, k = f[m] * v[c], start[i] + places[m * inner + c]
                    for r in range(after):
                        out[p, k, r] += g * array[p, i, r]


@compiled
def gather_products(array: Floats, known: ProductRows, pairs: bool, out: Floats) -> None:
    """out[p, i, r] = sum over R of products[i, R] array[p, R, r], several axes at once."""
    start, places, table, functions = known
    before, rows, after = out.shape
    most, last = max(functions), functions[-1]
    inner = last * (last + 1) // 2 if pairs else last
    outer = places.size // inner
    f, v, products = np.empty(outer), np.empty(most * (most + 1) // 2), np.empty(places.size)
    scratch = np.empty(512)  # values of a line that wait in the cache (4 KiB) for further functions
    lines = array.reshape(before, -1)
    neighbours = inner == 4 and places[3] == places[0] + 3  # of a union those active everywhere lie apart
    for i in range(rows):
        first = _outer(table, i, functions, pairs, v, f)
        _active(table, i, first, last, pairs, v)
        if after > 1:
            for m in range(outer):
                for c in range(inner):
                    products[m * inner + c] = f[m] * v[c]
            for p in range(before):
                _sum_line(array[p], start[i], places, products, scratch, out[p, i])
            continue
        for p in range(before):
            total = 0.0
            for m in range(outer):  # each sum on its own: the next need not wait for it
                k, x = start[i] + places[m * inner], 0.0
                if neighbours:
                    x = v[0] * lines[p, k] + v[1] * lines[p, k + 1]
                    x += v[2] * lines[p, k + 2] + v[3] * lines[p, k + 3]
                else:
                    for c in range(inner):
                        x += v[c] * lines[p, start[i] + places[m * inner + c]]
                total += f[m] * x
            out[p, i, 0] = total


@internal
def _fold(work: Floats, begin: int, values: Floats, count: int, size: int) -> int:
    """Sum over q of values[q] source[q, :], for a source [count, size] that begins in `work`.

    The sum [size] is put behind it; returns where.
    """
    end = begin + count * size
    source, out = work[begin:end], work[end : end + size]
    out[:] = 0.0
    q = 0
    while q + 4 <= count:
        f0, f1, f2, f3 = values[q], values[q + 1], values[q + 2], values[q + 3]
        a = source[q * size : (q + 4) * size]  # its indices are plainly positive: vector instructions
        for j in range(size):
            out[j] += f0 * a[j] + f1 * a[size + j] + f2 * a[2 * size + j] + f3 * a[3 * size + j]
        q += 4
    while q < count:
        f0, a = values[q], source[q * size : (q + 1) * size]
        for j in range(size):
            out[j] += f0 * a[j]
        q += 1
    return end


@compiled
def gather_folded(array: Floats, order: Integers, known: ProductRows, out: Floats) -> None:
    """`gather_products` of pairs where nothing comes after them; row i of the table is row order[i] of `out`.

    The pairs of a cell are many: rows that follow each other in one cell share a copy of them, which is
    folded with the values of a row axis after axis.
    """
    start, places, table, functions = known
    before, rows, _ = out.shape
    width, most, last = places.size, max(functions), functions.size - 1
    work, v = np.empty((functions.size + 1) * width), np.empty(most * (most + 1) // 2)
    for p in range(before):
        line, cell = array[p].reshape(-1), -1
        for i in range(rows):
            if start[i] != cell:
                cell = start[i]
                for q in range(width):
                    work[q] = line[cell + places[q]]
            first, begin, size, total = 0, 0, width, 0.0
            for axis in range(last):
                count = _active(table, i, first, functions[axis], True, v)
                size //= count
                begin = _fold(work, begin, v, count, size)
                first += functions[axis]
            for q in range(_active(table, i, first, functions[last], True, v)):
                total += v[q] * work[begin + q]
            out[p, order[i], 0] = total
