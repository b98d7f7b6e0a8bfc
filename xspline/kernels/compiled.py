"""The compiled twins of `contract.Namespace`: inner loops, positions and values, for NumPy arrays.

Imported at the first kernel call; see `xspline.spaces.jit` for the rules that such modules keep.
"""

from __future__ import annotations

import numpy as np

from xspline.spaces.jit import compiled

from .layout import Floats, Integers


@compiled
def _weighted(array: Floats, k: int, places: Integers, values: Floats, out: Floats) -> None:
    """out[r] += sum over q of values[q] array[k + places[q], r]."""
    q, after = 0, out.size
    while q + 4 <= places.size:  # four functions for each load and store of the sum
        f0, f1, f2, f3 = values[q], values[q + 1], values[q + 2], values[q + 3]
        k0, k1, k2, k3 = k + places[q], k + places[q + 1], k + places[q + 2], k + places[q + 3]
        for r in range(after):
            out[r] += f0 * array[k0, r] + f1 * array[k1, r] + f2 * array[k2, r] + f3 * array[k3, r]
        q += 4
    while q < places.size:
        f0, k0 = values[q], k + places[q]
        for r in range(after):
            out[r] += f0 * array[k0, r]
        q += 1


@compiled
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


@compiled
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
def scatter_products(
    array: Floats,
    order: Integers,
    start: Integers,
    places: Integers,
    table: Floats,
    functions: Integers,
    pairs: bool,
    out: Floats,
) -> None:
    """`scatter` for groups of several coefficient axes; `order` sorts the rows by where they start.

    The rows of one cell are summed in a small matrix, which is then added to where its entries belong.
    """
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
def gather_products(
    array: Floats,
    start: Integers,
    places: Integers,
    table: Floats,
    functions: Integers,
    pairs: bool,
    out: Floats,
) -> None:
    """out[p, i, r] = sum over R of products[i, R] array[p, R, r], several axes at once; `out` comes as zeros."""
    before, rows, after = out.shape
    most, last = max(functions), functions[-1]
    inner = last * (last + 1) // 2 if pairs else last
    outer = places.size // inner
    f, v, products = np.empty(outer), np.empty(most * (most + 1) // 2), np.empty(places.size)
    lines = array.reshape(before, -1)
    for i in range(rows):
        first = _outer(table, i, functions, pairs, v, f)
        _active(table, i, first, last, pairs, v)
        if after > 1:
            for m in range(outer):
                for c in range(inner):
                    products[m * inner + c] = f[m] * v[c]
            for p in range(before):
                _weighted(array[p], start[i], places, products, out[p, i])
            continue
        for p in range(before):
            total = 0.0
            for m in range(outer):  # each sum on its own: the next need not wait for it
                k, x = start[i] + places[m * inner], 0.0
                if inner == 4:
                    x = v[0] * lines[p, k] + v[1] * lines[p, k + 1]
                    x += v[2] * lines[p, k + 2] + v[3] * lines[p, k + 3]
                else:
                    for c in range(inner):
                        x += v[c] * lines[p, start[i] + places[m * inner + c]]
                total += f[m] * x
            out[p, i, 0] = total


@compiled
def _fold(held: Floats, begin: int, values: Floats, count: int, size: int) -> int:
    """Sum over q of values[q] source[q, :], for a source [count, size] that begins in `held`.

    The sum [size] is put behind it; returns where.
    """
    end = begin + count * size
    source, out = held[begin:end], held[end : end + size]
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
def gather_folded(
    array: Floats,
    order: Integers,
    start: Integers,
    places: Integers,
    table: Floats,
    functions: Integers,
    out: Floats,
) -> None:
    """`gather_products` of pairs where nothing comes after them; row i of the table is row order[i] of `out`.

    A patch of pairs is large: rows that follow each other in one cell share a copy of it, which is folded with
    the values of a row axis after axis.
    """
    before, rows, _ = out.shape
    width, most, last = places.size, max(functions), functions.size - 1
    held, v = np.empty((functions.size + 1) * width), np.empty(most * (most + 1) // 2)
    for p in range(before):
        line, cell = array[p].reshape(-1), -1
        for i in range(rows):
            if start[i] != cell:
                cell = start[i]
                for q in range(width):
                    held[q] = line[cell + places[q]]
            first, begin, size, total = 0, 0, width, 0.0
            for axis in range(last):
                count = _active(table, i, first, functions[axis], True, v)
                size //= count
                begin = _fold(held, begin, v, count, size)
                first += functions[axis]
            for q in range(_active(table, i, first, functions[last], True, v)):
                total += v[q] * held[begin + q]
            out[p, order[i], 0] = total


# Positions and values of B-splines


NEAR = 1e-6  # cells: closer to a knot than this, rounding may have put a position into the wrong cell


@compiled
def _wrapped(y: float, lo: float, hi: float) -> float:
    """A position on a circle; what lies inside stays bit for bit."""
    if lo <= y < hi:
        return y
    y = lo + (y - lo) % (hi - lo)
    return lo if y >= hi else y


@compiled
def locate(
    x: Floats,
    edges: Floats,
    step: float,
    ends: Floats,
    uniform: bool,
    periodic: bool,
    cell: Integers,
    z: Floats,
) -> None:
    """Twin of `LocalSpline.locate`; `ends` are the labels just outside that still count as on an end."""
    lo, hi, last = edges[0], edges[-1], edges.size - 2
    if periodic:
        for i in range(x.size):
            z[i] = _wrapped(x[i], lo, hi) if np.isfinite(x[i]) else np.nan
    else:
        for i in range(x.size):
            y = x[i]
            z[i] = min(max(y, lo), hi) if ends[0] <= y <= ends[1] else np.nan
    if uniform:
        for i in range(x.size):  # without branches: vector instructions
            known = z[i] == z[i]
            turns = ((z[i] if known else lo) - lo) / step
            cell[i] = min(max(int(turns), 0), last) if known else -1
            z[i] = turns
        for i in range(x.size):
            part = z[i] - cell[i]
            if not NEAR < part < 1.0 - NEAR and cell[i] >= 0:  # rounding decides nothing: the knots do
                y = _wrapped(x[i], lo, hi) if periodic else min(max(x[i], lo), hi)
                cell[i] -= y < edges[cell[i]]
                cell[i] += cell[i] < last and y >= edges[cell[i] + 1]
        for i in range(x.size):
            z[i] = min(max(2.0 * (z[i] - cell[i]) - 1.0, -1.0), 1.0) if cell[i] >= 0 else 0.0
        return
    for i in range(x.size):
        if not z[i] == z[i]:
            cell[i], z[i] = -1, 0.0
            continue
        c = min(np.searchsorted(edges, z[i], side="right") - 1, last)
        cell[i] = c
        z[i] = min(max(2.0 * ((z[i] - edges[c]) / (edges[c + 1] - edges[c])) - 1.0, -1.0), 1.0)


@compiled
def series(cell: Integers, z: Floats, tables: Floats, out: Floats) -> None:
    """Twin of `LocalSpline.features`: out[i, a] = sum over k of tables[cell, a, k] P_l(z[i])."""
    one, width, terms = tables.shape[0] == 1, tables.shape[1], tables.shape[2]
    p = np.ones(max(terms, 2))
    for i in range(cell.size):
        if cell[i] < 0:
            for a in range(width):
                out[i, a] = 0.0
            continue
        p[1] = z[i]
        for k in range(2, terms):
            p[k] = ((2 * k - 1) * z[i] * p[k - 1] - (k - 1) * p[k - 2]) / k
        c = 0 if one else cell[i]
        for a in range(width):
            value = tables[c, a, 0]
            for k in range(1, terms):
                value += tables[c, a, k] * p[k]
            out[i, a] = value
