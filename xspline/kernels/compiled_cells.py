"""Compiled loops over rows that are sorted by cell; see `cells`.

As in `compiled`, what a compiled function calls is in this file.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xspline.spaces.jit import compiled

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


RUN = 16  # cells whose sums wait for each other: they stay in the cache
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
    count, size, width = weight.size, outer.shape[0], out.shape[1]
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
    for s in range(first, last, TILE):
        stop = min(s + TILE, last)
        products = _tile(table, s, stop, plan, columns, inner, spare)
        for r in range(weights.shape[0]):
            _add_tile(columns[: plan[0, 0]], weights[r, s:stop], products, scaled, pair_sums[r])
        for r in range(errors.shape[0]):
            _add_tile(columns[: plan[5, 0]], errors[r, s:stop], products, scaled, moment_sums[r])


@compiled
def _combine(source: Floats, table: Floats, c: int, out: Floats, i: int) -> None:
    """out[i, :] += sum over k of table[k, c] source[k, :]; the table has a multiple of four rows."""
    for k in range(0, table.shape[0], 4):
        x0, x1, x2, x3 = table[k, c], table[k + 1, c], table[k + 2, c], table[k + 3, c]
        for j in range(source.shape[1]):
            out[i, j] += (
                x0 * source[k, j] + x1 * source[k + 1, j] + x2 * source[k + 2, j] + x3 * source[k + 3, j]
            )  # fmt: skip


@compiled
def _table(tables: Floats, plan: Integers, axis: int, cell: int) -> Floats:
    used, count = plan[0, axis], plan[2, axis]
    start = plan[3, axis] + max(plan[4, axis], 0) * cell
    return tables[start : start + used * count].reshape(used, count)


@compiled
def _fold_first(
    sums: Floats, tables: Floats, plan: Integers, cell: int, places: Integers, offset: int, out: Floats
) -> None:
    """Turn the first axis of the sums of a cell into functions or pairs: rows of `out`, which are added to."""
    table = _table(tables, plan, 0, cell)
    for c in range(plan[2, 0]):
        if plan[4, 0] >= 0:
            _combine(sums, table, c, out, places[c] + offset)
        else:
            for j in range(sums.shape[1]):
                out[places[c] + offset, j] += sums[c, j]


@compiled
def _fold_others(
    sums: Floats,
    spare: Floats,
    other: Floats,
    row: Floats,
    tables: Floats,
    plan: Integers,
    cell: Integers,
    first_places: Integers,
    places: Integers,
    out: Floats,
) -> None:
    """Turn the other axes of a run of cells into functions or pairs, and add them at their places.

    Each step turns the axis that is first and puts it last, so that what is combined are long rows.

    Parameters
    ----------
    sums : [functions or pairs of the first axis, columns of the others]; becomes zero.
    plan : [5, axes] columns that are used, with padding; columns that are stored; functions or pairs; start of
        the tables, step from cell to cell (-1: the columns are what is wanted).
    cell : [axes] its number along each axis.
    first_places : where those of the first axis go.
    places : [all axes but the first and the last, last axis] where those of the others go.
    """
    axes, lines = plan.shape[1], sums.shape[0]
    size = sums.size
    source = spare[:size].reshape(sums.shape[1], lines)
    for i in range(lines):
        for j in range(sums.shape[1]):
            source[j, i] = sums[i, j]
            sums[i, j] = 0.0
    for axis in range(1, axes):
        used, count, after = plan[0, axis], plan[2, axis], size // plan[1, axis]
        table, source = _table(tables, plan, axis, cell[axis]), spare[: used * after].reshape(used, after)
        target, line = other[: after * count].reshape(after, count), row[:after].reshape(1, after)
        for c in range(count):
            if plan[4, axis] >= 0:
                line[:] = 0.0
                _combine(source, table, c, line, 0)
            else:
                line[0] = source[c]
            if axis == axes - 1:
                many = places.shape[0]
                for i in range(lines):
                    for m in range(many):
                        out[first_places[i] + places[m, c]] += line[0, i * many + m]
            else:
                for j in range(after):
                    target[j, c] = line[0, j]
        spare, other = other, spare
        size = after * count


@compiled
def _same_run(new: Integers, old: Integers, start: int, plan: Integers) -> bool:
    """Whether a cell continues a run along the first axis: same others, near the last, run not too long."""
    for axis in range(1, plan.shape[1]):
        if new[axis] != old[axis]:
            return False
    step, length = int(new[0] - old[0]), int(new[0] - start)  # on a circle the first cells may come last
    return 0 < step <= int(plan[5, 0]) and length < RUN


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
    steps: Integers,
    first_rows: tuple[Integers, Integers],
    first_places: tuple[Integers, Integers],
    places: tuple[Integers, Integers],
    moment: Floats,
    pairs: Floats,
) -> None:
    """Add rows that are sorted by cell to the moments and pairs of the functions of their cells.

    On a cell, products of two functions lie in the span of few columns (`cells.Columns`): sums of products of
    columns are collected row by row. Each cell turns its first axis into functions and pairs; the others wait
    for the end of a run of cells along the first axis, whose functions they share.

    Parameters
    ----------
    first : number of the first row among the sorted ones.
    ends : [cells] number of the row after the last of each cell that holds rows.
    bases : [cells, 2 axes] where the patch of each begins along each axis, and its number there.
    table : [numbers per row, rows] local coordinates, or columns as they are.
    weights, errors : [members, rows] w for the pairs, w (y - r) for the moment; each may have no members.
    plan : [6, axes] columns, first row in the table, whether columns are given, columns with padding, offsets,
        functions.
    moment_plan, pair_plan : [5, axes] see `_fold_others`.
    tables : the tables of all axes, raveled.
    steps : [axes] entries of the stretch between neighbours along each axis.
    first_rows : of functions and pairs of the first axis, the row among those of a run.
    first_places, places : where functions and pairs go, see `_fold_others`.
    moment, pairs : [members, stretch] and [members, stretch, offsets].
    """
    axes, rows, longest = plan.shape[1], table.shape[1], RUN + plan[5, 0]
    width, narrow = int(np.prod(pair_plan[1, 1:])), int(np.prod(moment_plan[1, 1:]))
    room = longest * plan[4, 0]
    for axis in range(1, axes):
        room *= max(pair_plan[0, axis], pair_plan[1, axis], pair_plan[2, axis])
    columns, scaled = np.zeros((plan[0].sum(), TILE)), np.zeros((plan[0, 0], TILE))
    inner, extra = _aligned(TILE * width), _aligned(TILE * width)
    spare, other, row = _aligned(room), _aligned(room), _aligned(room)
    pair_sums = _aligned(weights.shape[0] * pair_plan[0, 0] * width)
    pair_sums = pair_sums.reshape(weights.shape[0], pair_plan[0, 0], width)
    moment_sums = _aligned(errors.shape[0] * moment_plan[0, 0] * narrow)
    moment_sums = moment_sums.reshape(errors.shape[0], moment_plan[0, 0], narrow)
    pair_run = np.zeros((weights.shape[0], longest * plan[4, 0], width))
    moment_run = np.zeros((errors.shape[0], longest, narrow))
    s, number = 0, np.searchsorted(ends, first, side="right")
    start = bases[number, 0]
    while s < rows:
        base, stop = bases[number], min(ends[number] - first, rows)
        _add_rows(
            table, weights, errors, s, stop, plan, columns, inner, extra, scaled, pair_sums, moment_sums
        )
        away = base[0] - start
        for r in range(errors.shape[0]):
            _fold_first(moment_sums[r], tables, moment_plan, base[axes], first_rows[0], away, moment_run[r])
        for r in range(weights.shape[0]):
            away_pairs = away * plan[4, 0]
            _fold_first(pair_sums[r], tables, pair_plan, base[axes], first_rows[1], away_pairs, pair_run[r])
        s = stop
        number += 1
        if s < rows and _same_run(bases[number], base, start, plan):
            continue
        at, length = (start - base[0]) * steps[0] + np.sum(base[:axes] * steps), away + plan[5, 0]
        for r in range(errors.shape[0]):
            sums, out = moment_run[r, :length], moment[r, at:]
            _fold_others(
                sums, spare, other, row, tables, moment_plan, base[axes:], first_places[0], places[0], out
            )
        for r in range(weights.shape[0]):
            sums, out = pair_run[r, : length * plan[4, 0]], pairs[r, at:].reshape(-1)
            _fold_others(
                sums, spare, other, row, tables, pair_plan, base[axes:], first_places[1], places[1], out
            )
        if s < rows:
            start = bases[number, 0]
