"""Compiled loops over positions of B-splines, and over rows that are sorted by cell: see `points.cells`.

Imported at the first call that needs it; `xspline.spaces.jit` says which rules such modules keep.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xspline.kernels.block import Floats, Integers
from xspline.spaces.jit import compiled, internal

RUN_CELLS = 16  # cells whose sums wait for each other: they stay in the cache
TILE_ROWS = 64  # rows whose products of columns are alive at a time; a multiple of eight

# Positions and values of B-splines


@internal
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
            # Closer to a knot than 1e-6 of a cell, rounding may have chosen the wrong cell: the knots decide.
            if not 1e-6 < part < 1.0 - 1e-6 and cell[i] >= 0:
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
        c, end = 0, last + 1  # the last cell that begins at or before the position
        while end - c > 1:
            middle = (c + end) // 2
            c, end = (middle, end) if edges[middle] <= z[i] else (c, middle)
        cell[i] = c
        z[i] = min(max(2.0 * ((z[i] - edges[c]) / (edges[c + 1] - edges[c])) - 1.0, -1.0), 1.0)


@compiled
def series(cell: Integers, z: Floats, tables: Floats, out: Floats) -> None:
    """Twin of `LocalSpline.features`: out[i, a] = sum over k of tables[cell, a, k] P_l(z[i])."""
    uniform, width, terms = tables.shape[0] == 1, tables.shape[1], tables.shape[2]
    p = np.ones(max(terms, 2))
    for i in range(cell.size):
        if cell[i] < 0:
            for a in range(width):
                out[i, a] = 0.0
            continue
        p[1] = z[i]
        for k in range(2, terms):
            p[k] = ((2 * k - 1) * z[i] * p[k - 1] - (k - 1) * p[k - 2]) / k
        c = 0 if uniform else cell[i]
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
def sort_rows(keys: NDArray[np.int32], ends: Integers) -> NDArray[np.int32]:
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


class ColumnPlan(NamedTuple):
    """What rows give along each axis: columns, see `points.cells.Columns`; arrays over the axes."""

    size: Integers  # number of columns
    padded: Integers  # the same, the last axis with padding
    first: Integers  # first line in the table of rows
    given: NDArray[np.bool_]  # whether the table holds columns as they are, else local coordinates


class FoldPlan(NamedTuple):
    """How sums of products of columns become functions, or pairs, and where these go; arrays over the axes."""

    used: Integers  # columns that are used, with padding
    stored: Integers  # columns that are stored
    wanted: Integers  # functions or pairs
    plain: NDArray[np.bool_]  # whether the columns are what is wanted
    tables: Floats  # [used, wanted] of all axes and cells, raveled: turns columns into functions or pairs
    start: Integers  # where those of each axis start
    step: Integers  # from cell to cell of an axis; 0 where they are the same in all
    entries: int  # of the sums at one coefficient of the first axis: 1, or its offsets, or more: its depth
    first_rows: Integers  # [functions or pairs of the first axis] the row among those of a run
    first_places: Integers  # where the rows of a run go
    places: Integers  # [axes but the first and the last, last axis] where functions or pairs of the others go


class CellPlan(NamedTuple):
    """Cells that hold rows."""

    ends: Integers  # [cells] number of sorted rows up to the end of each
    bases: Integers  # [cells, axes] first coefficient of each along each axis
    numbers: Integers  # [cells, axes] number of each along each axis
    width: int  # functions of a cell along the first axis
    near: int  # coefficients that they take, unrolled
    steps: Integers  # [axes] entries between neighbouring coefficients


@internal
def _columns(table: Floats, s: int, stop: int, given: bool, out: Floats) -> None:
    """Columns [L, TILE_ROWS] of one axis for the rows of a tile: as given, or P_l of the local coordinate."""
    count = stop - s
    if given:
        for k in range(out.shape[0]):
            for t in range(count):
                out[k, t] = table[k, s + t]
        return
    out[0, :] = 1.0
    if out.shape[0] > 1:
        for t in range(count):
            out[1, t] = table[0, s + t]
    for k in range(2, out.shape[0]):
        x, y, p, q = (2 * k - 1) / k, (k - 1) / k, out[k - 1], out[k - 2]
        for t in range(count):
            out[k, t] = x * out[1, t] * p[t] - y * q[t]


@internal
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


@internal
def _expand(inner: Floats, count: int, columns: Floats, out: Floats) -> None:
    """out[t, k, :] = columns[k, t] inner[t, :]: one more axis, before the others.

    A function of its own with an array of three dimensions: inside `_tile` its loop takes a tenth more of all.
    """
    for t in range(count):
        for k in range(columns.shape[0]):
            x = columns[k, t]
            for j in range(inner.shape[1]):
                out[t, k, j] = x * inner[t, j]


@internal
def _tile(
    table: Floats, s: int, stop: int, plan: ColumnPlan, columns: Floats, inner: Floats, spare: Floats
) -> Floats:
    """Columns of the axes of one tile, and their products over all axes but the first: [TILE_ROWS, width]."""
    axes, after, width = plan.size.size, 0, plan.padded[-1]
    for axis in range(axes):
        mine = columns[after : after + plan.size[axis]]
        _columns(table[plan.first[axis] :], s, stop, plan.given[axis], mine)
        after += plan.size[axis]
    after -= plan.size[-1]
    last, rows = columns[after : after + plan.size[-1]], inner[: TILE_ROWS * width].reshape(TILE_ROWS, width)
    for t in range(stop - s):
        for k in range(last.shape[0]):
            rows[t, k] = last[k, t]
        for k in range(last.shape[0], width):
            rows[t, k] = 0.0
    for axis in range(axes - 2, 0, -1):
        size, source = plan.size[axis], inner[: TILE_ROWS * width].reshape(TILE_ROWS, width)
        after -= size
        expanded = spare[: TILE_ROWS * size * width].reshape(TILE_ROWS, size, width)
        _expand(source, stop - s, columns[after : after + size], expanded)
        inner, spare = spare, inner
        width *= size
    return inner[: TILE_ROWS * width].reshape(TILE_ROWS, width)


@internal
def _combine(source: Floats, table: Floats, c: int, out: Floats) -> None:
    """out[:] += sum over k of table[k, c] source[k, :]; the table has a multiple of four rows."""
    for k in range(0, table.shape[0], 4):
        x0, x1, x2, x3 = table[k, c], table[k + 1, c], table[k + 2, c], table[k + 3, c]
        for j in range(source.shape[1]):
            out[j] += (
                x0 * source[k, j] + x1 * source[k + 1, j] + x2 * source[k + 2, j] + x3 * source[k + 3, j]
            )


@internal
def _table(fold: FoldPlan, axis: int, cell: int) -> Floats:
    used, count = fold.used[axis], fold.wanted[axis]
    start = fold.start[axis] + fold.step[axis] * cell
    return fold.tables[start : start + used * count].reshape(used, count)


@internal
def _fold_first(sums: Floats, fold: FoldPlan, cell: int, away: int, out: Floats) -> None:
    """Turn the first axis of the sums of a cell, `away` from where its run begins, into rows of the run's sums."""
    table = _table(fold, 0, cell)
    for c in range(fold.wanted[0]):
        line = out[fold.first_rows[c] + away * fold.entries]
        if fold.plain[0]:
            for j in range(sums.shape[1]):
                line[j] += sums[c, j]
        else:
            _combine(sums, table, c, line)


@internal
def _fold_others(
    sums: Floats, fold: FoldPlan, cell: Integers, spare: Floats, other: Floats, row: Floats, out: Floats
) -> None:
    """Turn the other axes of a run of cells into functions or pairs, and add them at their places.

    Each step turns the axis that is first and puts it last, so that what is combined are long rows. `sums`, [functions
    or pairs of the first axis, columns of the others], become zero. `cell`, [axes], is its number along each axis;
    `spare`, `other` and `row` are scratch.
    """
    axes, lines, many = fold.wanted.size, sums.shape[0], fold.places.shape[0]
    size = sums.size
    source = spare[:size].reshape(sums.shape[1], lines)
    for i in range(lines):
        for j in range(sums.shape[1]):
            source[j, i] = sums[i, j]
            sums[i, j] = 0.0
    for axis in range(1, axes):
        used, count, after = fold.used[axis], fold.wanted[axis], size // fold.stored[axis]
        table, source = _table(fold, axis, cell[axis]), spare[: used * after].reshape(used, after)
        target, line = other[: after * count].reshape(after, count), row[:after]
        for c in range(count):
            if fold.plain[axis]:
                for j in range(after):
                    line[j] = source[c, j]
            else:
                line[:] = 0.0
                _combine(source, table, c, line)
            if axis == axes - 1:
                for i in range(lines):
                    for m in range(many):
                        out[fold.first_places[i] + fold.places[m, c]] += line[i * many + m]
            else:
                for j in range(after):
                    target[j, c] = line[j]
        spare, other = other, spare
        size = after * count


@internal
def _same_run(new: Integers, old: Integers, start: int, width: int) -> bool:
    """Whether a cell continues a run along the first axis: same others, near the last, run not too long."""
    for axis in range(1, new.size):
        if new[axis] != old[axis]:
            return False
    step, length = int(new[0] - old[0]), int(new[0] - start)  # on a circle the first cells may come last
    return 0 < step <= width and length < RUN_CELLS


@compiled
def add_cells(
    first: int,
    table: Floats,
    weights: Floats,
    errors: Floats,
    cells: CellPlan,
    columns: ColumnPlan,
    moment_fold: FoldPlan,
    pair_fold: FoldPlan,
    moment: Floats,
    pairs: Floats,
) -> None:
    """Add rows that are sorted by cell to the moments and pairs of the functions of their cells.

    On a cell, products of two functions lie in the span of few columns (`points.cells.Columns`): sums of products of
    columns are collected row by row. Each cell turns its first axis into functions and pairs; the others wait
    for the end of a run of cells along the first axis, whose functions they share.

    `first` is the number of the first row among the sorted ones, and `table` [numbers per row, rows] holds local
    coordinates, or columns as they are. `weights` and `errors`, [members, rows], are w for the pairs and w (y - r)
    for the moment; each may have no members. The first axis of the cells, columns and folds is the one along which
    the sorted cells are neighbours. `moment` and `pairs`, [members, coefficients, depth], are added to.
    """
    rows, longest = table.shape[1], RUN_CELLS + cells.near
    wide, narrow, count, room = 1, 1, columns.size[0], longest * pair_fold.entries
    for axis in range(1, columns.size.size):
        wide, narrow = wide * pair_fold.stored[axis], narrow * moment_fold.stored[axis]
        count += columns.size[axis]
        room *= max(pair_fold.used[axis], pair_fold.stored[axis], pair_fold.wanted[axis])
    lines, scaled = np.zeros((count, TILE_ROWS)), np.zeros((columns.size[0], TILE_ROWS))
    inner, extra = np.zeros(TILE_ROWS * wide), np.zeros(TILE_ROWS * wide)
    spare, other, row = np.zeros(room), np.zeros(room), np.zeros(room)
    pair_sums = np.zeros(weights.shape[0] * pair_fold.used[0] * wide)
    pair_sums = pair_sums.reshape(weights.shape[0], pair_fold.used[0], wide)
    moment_sums = np.zeros(errors.shape[0] * moment_fold.used[0] * narrow)
    moment_sums = moment_sums.reshape(errors.shape[0], moment_fold.used[0], narrow)
    pair_run = np.zeros((weights.shape[0], longest * pair_fold.entries, wide))
    moment_run = np.zeros((errors.shape[0], longest * moment_fold.entries, narrow))
    begin, cell, last = 0, 0, cells.ends.size
    while cell < last:  # the first cell that ends behind the first row
        middle = (cell + last) // 2
        cell, last = (middle + 1, last) if cells.ends[middle] <= first else (cell, middle)
    start = cells.bases[cell, 0]
    while begin < rows:
        base, number, end = cells.bases[cell], cells.numbers[cell], min(cells.ends[cell] - first, rows)
        pair_sums[:] = 0.0
        moment_sums[:] = 0.0
        for s in range(begin, end, TILE_ROWS):
            stop = min(s + TILE_ROWS, end)
            products = _tile(table, s, stop, columns, lines, inner, extra)
            for r in range(weights.shape[0]):
                _add_tile(lines[: columns.size[0]], weights[r, s:stop], products, scaled, pair_sums[r])
            for r in range(errors.shape[0]):
                _add_tile(lines[: cells.width], errors[r, s:stop], products, scaled, moment_sums[r])
        away = base[0] - start
        for r in range(errors.shape[0]):
            _fold_first(moment_sums[r], moment_fold, number[0], away, moment_run[r])
        for r in range(weights.shape[0]):
            _fold_first(pair_sums[r], pair_fold, number[0], away, pair_run[r])
        begin = end
        cell += 1
        if begin < rows and _same_run(cells.bases[cell], base, start, cells.near):
            continue
        at, length = start * cells.steps[0], away + cells.near
        for axis in range(1, base.size):
            at += base[axis] * cells.steps[axis]
        for r in range(errors.shape[0]):
            sums, out = moment_run[r, : length * moment_fold.entries], moment[r, at:].reshape(-1)
            _fold_others(sums, moment_fold, number, spare, other, row, out)
        for r in range(weights.shape[0]):
            sums, out = pair_run[r, : length * pair_fold.entries], pairs[r, at:].reshape(-1)
            _fold_others(sums, pair_fold, number, spare, other, row, out)
        if begin < rows:
            start = cells.bases[cell, 0]
