"""Compiled loops of contractions: the twins of `engines.ArrayApiEngine`, for NumPy arrays.

`scatter` and `gather` contract one axis of an array with rows, `sweep` one axis of values as they are stored.
Imported at the first call that needs it; `xspline.spaces.jit` says which rules such modules keep.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from xspline.kernels.block import Floats, Integers
from xspline.kernels.compiled.lanes import COLUMNS
from xspline.kernels.rows import GROUP, SortedRows
from xspline.spaces.jit import compiled, internal

Values = NDArray[Any]  # float32 or float64, missing: NaN
Bytes = NDArray[np.uint8]

# Sums over rows: four rows of a cell at a time, all sums of the cell in the cache


@internal
def _clear(total: Floats, width: int, columns: int) -> None:
    for q in range(width):
        total[q * COLUMNS : q * COLUMNS + columns] = 0.0


@internal
def _add_four(a: Floats, b: Floats, c: Floats, d: Floats, values: Floats, total: Floats) -> None:
    """total[q COLUMNS + r] += values[0, q] a[r] + ... + values[3, q] d[r]."""
    for q in range(values.shape[1]):
        a0, b0, c0, d0 = values[0, q], values[1, q], values[2, q], values[3, q]
        out = total[q * COLUMNS : (q + 1) * COLUMNS]
        for r in range(a.size):
            out[r] += a0 * a[r] + b0 * b[r] + c0 * c[r] + d0 * d[r]


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
def _error(a: Values, reference: float, bit: int, e: Floats, power: Floats, known: Bytes) -> None:
    """A row less the reference, 0 where missing; its squares are added up, and a bit tells what is known."""
    for r in range(a.size):  # selections, not branches: vector instructions
        is_known = a[r] == a[r]
        e[r] = np.float64(a[r]) - reference if is_known else 0.0
        power[r] += e[r] * e[r]
        known[r] |= np.uint8(is_known) << bit


@internal
def _four_errors(
    a: Values,
    b: Values,
    c: Values,
    d: Values,
    reference: float,
    bit: int,
    e: tuple[Floats, Floats, Floats, Floats],
    power: Floats,
    known: Bytes,
) -> None:
    """`_error` for four rows at once: what their columns add up to is loaded once."""
    e0, e1, e2, e3 = e
    for r in range(a.size):
        k0, k1, k2, k3 = a[r] == a[r], b[r] == b[r], c[r] == c[r], d[r] == d[r]
        x0 = np.float64(a[r]) - reference if k0 else 0.0
        x1 = np.float64(b[r]) - reference if k1 else 0.0
        x2 = np.float64(c[r]) - reference if k2 else 0.0
        x3 = np.float64(d[r]) - reference if k3 else 0.0
        e0[r], e1[r], e2[r], e3[r] = x0, x1, x2, x3
        power[r] += (x0 * x0 + x1 * x1) + (x2 * x2 + x3 * x3)
        bits = (np.uint8(k0) | np.uint8(k1) << 1) | (np.uint8(k2) << 2 | np.uint8(k3) << 3)
        known[r] |= np.uint8(bits) << bit


@compiled
def sweep(
    x: Values, column: int, rows: SortedRows, reference: float, out: Floats, power: Floats, known: Bytes
) -> None:
    """out[p, r, start[i] + places[q]] = sum of values[i, q] e[p, order[i], r], and what goes with it.

    `x`, [before, n, at least column + after], is read from `column` on. e is x - reference, 0 where x is NaN. `power`,
    Σ e², and `known`, [before, groups, after], a bit for each row of a group, are zeros that are added to.
    """
    order, start, values = rows.order, rows.start, rows.values
    (before, after), width = power.shape, rows.places.size
    total, e = np.empty(width * COLUMNS), np.empty((4, COLUMNS))
    for p in range(before):
        for left in range(0, after, COLUMNS):
            columns = min(COLUMNS, after - left)
            s, i, group = slice(left, left + columns), 0, -1
            there, sums = slice(column + left, column + left + columns), out[p, s]
            sums[:] = 0.0
            e0, e1, e2, e3 = e[0, :columns], e[1, :columns], e[2, :columns], e[3, :columns]
            for end in rows.ends:
                first, begin = start[i], i
                _clear(total, width, columns)
                while i < end:
                    bit = (i - begin) % GROUP
                    group += bit == 0
                    a, bits = x[p, order[i], there], known[p, group, s]
                    if end - i >= 4 and bit <= GROUP - 4:
                        b, c = x[p, order[i + 1], there], x[p, order[i + 2], there]
                        d = x[p, order[i + 3], there]
                        _four_errors(a, b, c, d, reference, bit, (e0, e1, e2, e3), power[p, s], bits)
                        _add_four(e0, e1, e2, e3, values[i:], total)
                        i += 4
                    else:
                        _error(a, reference, bit, e0, power[p, s], bits)
                        _add_one(e0, values[i], total)
                        i += 1
                for r in range(columns):
                    line = sums[r]
                    for q in range(width):
                        line[first + rows.places[q]] += total[q * COLUMNS + r]


@internal
def _fill_table(values: Floats, count: int, out: Floats) -> None:
    """Sums of the rows of a group over each set of them: out[set, q], bit k of the set for row k."""
    width = values.shape[1]
    out[0, :] = 0.0
    for k in range(count):
        for m in range(1 << k):
            source, target, row = out[m], out[(1 << k) + m], values[k]
            for q in range(width):
                target[q] = source[q] + row[q]


@internal
def _add_tables(known: Bytes, r: int, tables: Floats, count: int, total: Floats) -> None:
    """total[q] = sum over groups of what each has for the rows that are known of line r."""
    total[:] = 0.0
    for g in range(0, count // 4 * 4, 4):
        a, b = tables[g, known[g, r]], tables[g + 1, known[g + 1, r]]
        c, d = tables[g + 2, known[g + 2, r]], tables[g + 3, known[g + 3, r]]
        for q in range(total.size):
            total[q] += (a[q] + b[q]) + (c[q] + d[q])
    for g in range(count // 4 * 4, count):
        a = tables[g, known[g, r]]
        for q in range(total.size):
            total[q] += a[q]


@compiled
def sweep_known(known: Bytes, rows: SortedRows, out: Floats) -> None:
    """out[p, r, start[i] + places[q]] = sum of values[i, q] over the rows i that are known, for G.

    What is known, [before, groups, after], is that of `sweep`: a bit for each row of a group, up to eight rows of one
    cell. The sums of a group are looked up, for all of its rows at once.
    """
    start, values, places = rows.start, rows.values, rows.places
    (before, after, _), width = out.shape, places.size
    padded = (width + 7) // 8 * 8  # whole vectors
    # As many tables at a time as rows in a group: 400 kB for 21 products, which the cache of a core holds.
    tables, total = np.zeros((GROUP, 1 << GROUP, padded)), np.empty(padded)
    out[:] = 0.0
    i, group = 0, 0
    for end in rows.ends:
        while i < end:
            first, count = start[i], 0
            while i < end and count < GROUP:
                size = min(GROUP, end - i)
                _fill_table(values[i:], size, tables[count])
                i, count = i + size, count + 1
            for p in range(before):
                bits = known[p, group:]
                for r in range(after):
                    _add_tables(bits, r, tables, count, total)
                    line = out[p, r]
                    for q in range(width):
                        line[first + places[q]] += total[q]
            group += count


# Values at rows


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
        total = scratch[: line.size]
        total[:] = 0.0
        for q in range(places.size):
            f0, a0 = values[q], array[k + places[q], first:]
            for r in range(total.size):
                total[r] += f0 * a0[r]
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
    for p in range(before):
        for i in range(rows):
            total = 0.0
            for q in range(places.size):
                total += values[i, q] * lines[p, start[i] + places[q]]
            results[p, i] = total


# Values at rows of several coefficient axes: products of the values of the axes


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
def _fold(work: Floats, begin: int, values: Floats, count: int, size: int) -> int:
    """Sum over q of values[q] source[q, :], for a source [count, size] that begins in `work`.

    The sum [size] is put behind it; returns where.
    """
    end = begin + count * size
    source, out = work[begin:end], work[end : end + size]
    out[:] = 0.0
    for q in range(count):
        f0, a = values[q], source[q * size : (q + 1) * size]
        for j in range(size):
            out[j] += f0 * a[j]
    return end


@compiled
def gather_products(
    array: Floats,
    order: Integers,
    start: Integers,
    places: Integers,
    table: Floats,
    functions: Integers,
    pairs: bool,
    out: Floats,
) -> None:
    """out[p, order[i]] = sum over R of products[i, R] array[p, R], for products of several axes.

    Rows that follow each other in one cell share a copy of what it has, which is folded with the values of a row axis
    after axis.
    """
    (before, rows), width, most, last = out.shape, places.size, max(functions), functions.size - 1
    work, v = np.empty((functions.size + 1) * width), np.empty(most * (most + 1) // 2)
    for p in range(before):
        line, cell = array[p], -1
        for i in range(rows):
            if start[i] != cell:
                cell = start[i]
                for q in range(width):
                    work[q] = line[cell + places[q]]
            first, begin, size, total = 0, 0, width, 0.0
            for axis in range(last):
                count = _active(table, i, first, functions[axis], pairs, v)
                size //= count
                begin = _fold(work, begin, v, count, size)
                first += functions[axis]
            for q in range(_active(table, i, first, functions[last], pairs, v)):
                total += v[q] * work[begin + q]
            out[p, order[i]] = total
