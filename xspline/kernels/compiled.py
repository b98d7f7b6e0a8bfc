"""The compiled twins of `contract.Namespace`: the two inner loops, for NumPy arrays.

This is the only module that imports numba, and it is imported at the first kernel call. Functions that are
called inside a compiled function are in this file: numba's cache does not notice when a callee elsewhere
changes. Arguments are C-contiguous and native, so that each kernel has one specialisation.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

from .layout import Floats, Integers

Rows32 = NDArray[np.int32]
F = TypeVar("F", bound=Callable[..., Any])

# Not "fast": NaN must stay NaN. No parallel loops: parallelism belongs to the scheduler.
_njit: Any = numba.njit
OPTIONS = {"nogil": True, "fastmath": {"contract", "nsz", "arcp"}}


class _State:
    warned = False


def compiled(function: F) -> F:
    """Compile on first use, with a cache on disk where there is a place for one."""
    try:
        out: F = _njit(cache=True, **OPTIONS)(function)
        return out
    except RuntimeError as error:  # numba: "cannot cache function ...: no locator available"
        if not _State.warned:
            _State.warned = True
            warnings.warn(
                f"numba cannot cache compiled kernels ({error}); each process compiles them again. "
                "Set NUMBA_CACHE_DIR to a directory that can be written",
                RuntimeWarning,
                stacklevel=2,
            )
        plain: F = _njit(**OPTIONS)(function)
        return plain


@compiled
def scatter(array: Floats, start: Integers, places: Integers, values: Floats, out: Floats) -> None:
    """out[p, start[i] + places[q], r] += values[i, q] array[p, i, r]."""
    before, rows, after = array.shape
    width = places.size
    for p in range(before):
        for i in range(rows):
            if after == 1:
                x = array[p, i, 0]
                if x != 0.0:
                    for q in range(width):
                        out[p, start[i] + places[q], 0] += values[i, q] * x
                continue
            q = 0
            while q + 4 <= width:  # four functions for each load of the data
                f0, f1, f2, f3 = values[i, q], values[i, q + 1], values[i, q + 2], values[i, q + 3]
                k0, k1 = start[i] + places[q], start[i] + places[q + 1]
                k2, k3 = start[i] + places[q + 2], start[i] + places[q + 3]
                for r in range(after):
                    x = array[p, i, r]
                    out[p, k0, r] += f0 * x
                    out[p, k1, r] += f1 * x
                    out[p, k2, r] += f2 * x
                    out[p, k3, r] += f3 * x
                q += 4
            while q < width:
                f0, k0 = values[i, q], start[i] + places[q]
                for r in range(after):
                    out[p, k0, r] += f0 * array[p, i, r]
                q += 1


@compiled
def gather(array: Floats, start: Integers, values: Floats, out: Floats) -> None:
    """out[p, i, r] = sum over q of values[i, q] array[p, start[i] + q, r]."""
    before, rows, after = out.shape
    width = values.shape[1]
    for p in range(before):
        if after == 1 and width == 4:
            for i in range(rows):
                k = start[i]
                out[p, i, 0] = (
                    values[i, 0] * array[p, k, 0]
                    + values[i, 1] * array[p, k + 1, 0]
                    + values[i, 2] * array[p, k + 2, 0]
                    + values[i, 3] * array[p, k + 3, 0]
                )
            continue
        for i in range(rows):
            k = start[i]
            if after == 1:
                x = 0.0
                for q in range(width):
                    x += values[i, q] * array[p, k + q, 0]
                out[p, i, 0] = x
                continue
            q = 0
            while q + 4 <= width:
                f0, f1, f2, f3 = values[i, q], values[i, q + 1], values[i, q + 2], values[i, q + 3]
                for r in range(after):
                    out[p, i, r] += (
                        f0 * array[p, k + q, r]
                        + f1 * array[p, k + q + 1, r]
                        + f2 * array[p, k + q + 2, r]
                        + f3 * array[p, k + q + 3, r]
                    )
                q += 4
            while q < width:
                f0 = values[i, q]
                for r in range(after):
                    out[p, i, r] += f0 * array[p, k + q, r]
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
    array: Floats, start: Integers, places: Integers, table: Floats, functions: Integers, out: Floats
) -> None:
    """`gather` for groups of several coefficient axes."""
    before, rows, after = out.shape
    most, last = max(functions), functions[-1]
    outer = places.size // last
    f, v = np.empty(outer), np.empty(most)
    for p in range(before):
        line = array[p].reshape(-1)
        for i in range(rows):
            first = _outer(table, i, functions, False, v, f)
            if after > 1:
                for m in range(outer):
                    for c in range(last):
                        g, k = table[i, first + c] * f[m], start[i] + places[m * last] + c
                        for r in range(after):
                            out[p, i, r] += g * array[p, k, r]
                continue
            total = 0.0
            for m in range(outer):  # each sum on its own: the next need not wait for it
                k, x = start[i] + places[m * last], 0.0
                if last == 4:
                    x = table[i, first] * line[k] + table[i, first + 1] * line[k + 1]
                    x += table[i, first + 2] * line[k + 2] + table[i, first + 3] * line[k + 3]
                else:
                    for c in range(last):
                        x += table[i, first + c] * line[k + c]
                total += f[m] * x
            out[p, i, 0] = total


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


# Rows sorted by cell


@compiled
def ravel_cells(cell: Integers, low: int, count: int, keys: Integers) -> None:
    """Append one axis to the numbers of cells, -1 outside: keys = keys * count + cell - low."""
    for i in range(cell.size):
        outside = cell[i] < 0 or keys[i] < 0
        keys[i] = -1 if outside else keys[i] * count + cell[i] - low


@compiled
def sort_rows(keys: Rows32, ends: Integers) -> Rows32:
    """Rows with keys >= 0 in the order of their keys, by counting; `ends` [keys] becomes where each ends."""
    ends[:] = 0
    for i in range(keys.size):
        if keys[i] >= 0:
            ends[keys[i]] += 1
    total = 0
    for k in range(ends.size):
        count = ends[k]
        ends[k] = total
        total += count
    order = np.empty(total, np.int32)
    for i in range(keys.size):
        k = keys[i]
        if k >= 0:
            order[ends[k]] = i
            ends[k] += 1
    return order


TILE = 64  # rows whose products of columns are alive at a time; a multiple of four


@compiled
def _columns(table: Floats, s: int, stop: int, given: bool, out: Floats) -> None:
    """Columns [L, TILE] of one axis for the rows of a tile: as given, or P_l of the local coordinate."""
    count = stop - s
    if given:
        for k in range(out.shape[0]):
            out[k, :count] = table[k, s:stop]
        return
    out[0, :] = 1.0
    if out.shape[0] > 1:
        out[1, :count] = table[0, s:stop]
    for k in range(2, out.shape[0]):
        x, y, p, q = (2 * k - 1) / k, (k - 1) / k, out[k - 1], out[k - 2]
        for t in range(count):
            out[k, t] = x * out[1, t] * p[t] - y * q[t]


@compiled
def _transpose(columns: Floats, count: int, out: Floats) -> None:
    """out[t, k] = columns[k, t] for the rows of a tile; the rest is zero."""
    for t in range(count):
        for k in range(columns.shape[0]):
            out[t, k] = columns[k, t]
        for k in range(columns.shape[0], out.shape[1]):
            out[t, k] = 0.0


@compiled
def _aligned(size: int) -> Floats:
    """Zeros at an address that is a multiple of 64: vectors do not straddle lines of the cache."""
    out = np.zeros(size + 8)
    skip = (64 - out.ctypes.data % 64) % 64 // 8
    return out[skip : skip + size]


@compiled
def _expand(inner: Floats, count: int, columns: Floats, out: Floats) -> None:
    """out[t, k, :] = columns[k, t] inner[t, :]: one more axis, before the others."""
    for t in range(count):
        for k in range(columns.shape[0]):
            x = columns[k, t]
            for j in range(inner.shape[1]):
                out[t, k, j] = x * inner[t, j]


@compiled
def _add_tile(outer: Floats, weight: Floats, inner: Floats, scaled: Floats, out: Floats) -> None:
    """out[k, :] += sum over t of outer[k, t] weight[t] inner[t, :], for eight rows of the tile at a time."""
    count, (size, width) = weight.size, out.shape
    stop = (count + 7) // 8 * 8
    for k in range(size):
        for t in range(count):
            scaled[k, t] = outer[k, t] * weight[t]
        scaled[k, count:stop] = 0.0
    for s in range(0, stop, 8):
        for k in range(size):
            a0, a1, a2, a3 = scaled[k, s], scaled[k, s + 1], scaled[k, s + 2], scaled[k, s + 3]
            a4, a5, a6, a7 = scaled[k, s + 4], scaled[k, s + 5], scaled[k, s + 6], scaled[k, s + 7]
            for j in range(width):
                out[k, j] += (
                    a0 * inner[s, j] + a1 * inner[s + 1, j] + a2 * inner[s + 2, j] + a3 * inner[s + 3, j]
                    + a4 * inner[s + 4, j] + a5 * inner[s + 5, j] + a6 * inner[s + 6, j] + a7 * inner[s + 7, j]
                )  # fmt: skip


@compiled
def _tile(
    table: Floats, s: int, stop: int, plan: Integers, columns: Floats, inner: Floats, spare: Floats
) -> Floats:
    """Columns of the axes of one tile, and their products over all axes but the first: [TILE, width]."""
    axes, after, width = plan.shape[1], 0, plan[3, -1]
    for axis in range(axes):
        mine = columns[after : after + plan[0, axis]]
        _columns(table[plan[1, axis] :], s, stop, plan[2, axis] == 1, mine)
        after += plan[0, axis]
    after -= plan[0, -1]
    _transpose(columns[after : after + plan[0, -1]], stop - s, inner[: TILE * width].reshape(TILE, width))
    for axis in range(axes - 2, 0, -1):
        size, source = plan[0, axis], inner[: TILE * width].reshape(TILE, width)
        after -= size
        out = spare[: TILE * size * width].reshape(TILE, size, width)
        _expand(source, stop - s, columns[after : after + size], out)
        inner, spare = spare, inner
        width *= size
    return inner[: TILE * width].reshape(TILE, width)


@compiled
def _add_rows(
    table: Floats,
    weights: Floats,
    errors: Floats,
    first: int,
    last: int,
    plan: Integers,
    columns: Floats,
    inner: Floats,
    spare: Floats,
    scaled: Floats,
    pair_sums: Floats,
    moment_sums: Floats,
) -> None:
    """Sums of products of columns over the rows of one cell, tile by tile."""
    pair_sums[:] = 0.0
    moment_sums[:] = 0.0
    outer = columns[: plan[0, 0]]
    for s in range(first, last, TILE):
        stop = min(s + TILE, last)
        products = _tile(table, s, stop, plan, columns, inner, spare)
        for r in range(weights.shape[0]):
            _add_tile(outer, weights[r, s:stop], products, scaled, pair_sums[r])
        for r in range(errors.shape[0]):
            _add_tile(outer, errors[r, s:stop], products, scaled, moment_sums[r])


@compiled
def _combine(source: Floats, table: Floats, c: int, row: Floats) -> None:
    """row[:] = sum over k of table[k, c] source[k, :]; the table has a multiple of four rows."""
    for k in range(0, table.shape[0], 4):
        x0, x1, x2, x3 = table[k, c], table[k + 1, c], table[k + 2, c], table[k + 3, c]
        if k == 0:
            for j in range(source.shape[1]):
                row[j] = (
                    x0 * source[0, j] + x1 * source[1, j] + x2 * source[2, j] + x3 * source[3, j]
                )  # fmt: skip
        else:
            for j in range(source.shape[1]):
                row[j] += (
                    x0 * source[k, j] + x1 * source[k + 1, j] + x2 * source[k + 2, j] + x3 * source[k + 3, j]
                )  # fmt: skip


@compiled
def _fold(
    sums: Floats,
    spare: Floats,
    other: Floats,
    row: Floats,
    tables: Floats,
    plan: Integers,
    cell: Integers,
    places: Integers,
    out: Floats,
) -> None:
    """Turn sums of products of columns of one cell into functions or pairs, and add them at their places.

    Each step turns the axis that is first, and puts it last: what is combined are long rows.

    Parameters
    ----------
    sums : [columns of the axes.., padded]
    plan : [5, axes] columns that are used, with padding; columns that are stored; functions or pairs; start of
        the tables, step from cell to cell (-1: the columns are what is wanted).
    cell : [axes] its number along each axis.
    places : [all axes but the last, last axis]
    """
    axes, size = plan.shape[1], sums.size
    spare[:size] = sums
    for axis in range(axes):
        used, count, step = plan[0, axis], plan[2, axis], plan[4, axis]
        after, start = size // plan[1, axis], plan[3, axis] + max(step, 0) * cell[axis]
        table = tables[start : start + used * count].reshape(used, count)
        source, target = (
            spare[: used * after].reshape(used, after),
            other[: after * count].reshape(after, count),
        )
        for c in range(count):
            if step >= 0:
                _combine(source, table, c, row)
            else:
                row[:after] = source[c]
            if axis == axes - 1:
                for j in range(after):
                    out[places[j, c]] += row[j]
            else:
                for j in range(after):
                    target[j, c] = row[j]
        spare, other = other, spare
        size = after * count


@compiled
def add_cells(
    first: int,
    ends: Integers,
    bases: Integers,
    table: Floats,
    weights: Floats,
    errors: Floats,
    plan: Integers,
    moment_plan: Integers,
    pair_plan: Integers,
    tables: Floats,
    moment_places: Integers,
    pair_places: Integers,
    moment: Floats,
    pairs: Floats,
) -> None:
    """Add rows that are sorted by cell to the moments and pairs of the functions of their cells.

    On a cell, products of two functions lie in the span of few columns (`cells.Columns`): sums of products of
    columns are collected row by row, and turned into functions and pairs once per cell.

    Parameters
    ----------
    first : number of the first row among the sorted ones.
    ends : [cells] number of the row after the last of each cell that holds rows.
    bases : [cells, 2 axes] where the patch of each begins along each axis, and its number there.
    table : [numbers per row, rows] local coordinates, or columns as they are.
    weights, errors : [members, rows] w for the pairs, w (y - r) for the moment; each may have no members.
    plan : [5, axes] columns, first row in the table, whether columns are given, columns with padding, extent
        of the stretch.
    moment_plan, pair_plan : [5, axes] see `_fold`.
    tables : the tables of all axes, raveled.
    moment_places, pair_places : where functions and pairs go, relative to the first of the cell.
    moment, pairs : [members, stretch] and [members, stretch, offsets].
    """
    axes, rows, room, members = plan.shape[1], table.shape[1], 2, weights.shape[0]
    for axis in range(axes):
        room *= max(pair_plan[0, axis], pair_plan[1, axis], pair_plan[2, axis])
    outer, width, narrow = plan[0, 0], np.prod(pair_plan[1, 1:]), np.prod(moment_plan[1, 1:])
    columns, scaled = np.zeros((plan[0].sum(), TILE)), np.zeros((outer, TILE))
    inner, extra = _aligned(int(TILE * width)), _aligned(int(TILE * width))
    spare, other, row = _aligned(room), _aligned(room), _aligned(room)
    pair_sums = _aligned(int(members * outer * width)).reshape(members, outer, width)
    first_size, members = moment_plan[1, 0], errors.shape[0]
    moment_sums = _aligned(members * first_size * narrow).reshape(members, first_size, narrow)
    s, number = 0, np.searchsorted(ends, first, side="right")
    while s < rows:
        base, stop, at = bases[number], min(ends[number] - first, rows), 0
        for axis in range(axes):
            at = at * plan[4, axis] + base[axis]
        _add_rows(
            table, weights, errors, s, stop, plan, columns, inner, extra, scaled, pair_sums, moment_sums
        )
        for r in range(errors.shape[0]):
            sums, out = moment_sums[r].reshape(-1), moment[r, at:]
            _fold(sums, spare, other, row, tables, moment_plan, base[axes:], moment_places, out)
        for r in range(weights.shape[0]):
            sums, out = pair_sums[r].reshape(-1), pairs[r, at:].reshape(-1)
            _fold(sums, spare, other, row, tables, pair_plan, base[axes:], pair_places, out)
        s = stop
        number += 1
