"""Compiled loops over rows that are sorted by cell; see `cells`.

As in `compiled`, what a compiled function calls is in this file.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .compiled import compiled
from .layout import Floats, Integers

Rows32 = NDArray[np.int32]


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
