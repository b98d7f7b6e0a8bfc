"""Compiled loops over positions of B-splines, and over rows that are sorted by cell: see `points.cells`.

Imported at the first call that needs it; `xspline.spaces.jit` says which rules such modules keep.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xspline.kernels.block import Floats, Integers
from xspline.kernels.compiled.lanes import LANES, add_product, get, load, product, put, spread, store
from xspline.spaces.jit import compiled, internal

TILE_ROWS = 64  # rows whose columns are alive at a time

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
        near = 0
        for i in range(x.size):
            part = z[i] - cell[i]
            near += 0 if 1e-6 < part < 1.0 - 1e-6 else 1
        for i in range(x.size if near else 0):
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
def ravel_cells(cell: Integers, low: int, count: int, keys: NDArray[np.int32]) -> None:
    """Append one axis to the numbers of cells, -1 outside: keys = keys * count + cell - low."""
    for i in range(cell.size):
        outside = cell[i] < 0 or keys[i] < 0
        keys[i] = -1 if outside else keys[i] * count + cell[i] - low


@compiled
def sort_rows(keys: NDArray[np.int32], first: int, ends: Integers, order: NDArray[np.int32]) -> int:
    """Rows, counted from `first`, with keys >= 0 in the order of their keys; returns how many.

    `ends` [keys] becomes where each ends.
    """
    ends[:] = 0
    for i in range(keys.size):
        if keys[i] >= 0:
            ends[keys[i]] += 1
    total = 0
    for k in range(ends.size):
        count = ends[k]
        ends[k] = total
        total += count
    for i in range(keys.size):
        k = keys[i]
        if k >= 0:
            order[ends[k]] = first + i
            ends[k] += 1
    return total


@compiled
def take_rows(array: NDArray[Any], rows: NDArray[np.int32], out: Floats) -> float:
    """Entries of an array [n] of float32 or float64 as it is stored; returns a number that means nothing.

    Rows that are near each other are read once in their order before, which memory answers in half the time.
    """
    low, high, touched = rows[0], rows[0], 0.0
    for i in range(rows.size):
        low, high = min(low, rows[i]), max(high, rows[i])
    for i in range(low, high if high - low < 2 * rows.size else low, 8):  # once a line of the cache
        touched += array[i]
    for i in range(rows.size):
        out[i] = array[rows[i]]
    return touched


class ColumnPlan(NamedTuple):
    """What rows give along each axis: columns, see `points.cells.Columns`; arrays over the axes."""

    size: Integers  # number of columns
    padded: Integers  # the same, the last axis with padding
    functions: Integers  # of them, columns that functions need, with padding: of the first two axes at most
    first: Integers  # first line in the table of rows
    given: NDArray[np.bool_]  # whether the table holds columns as they are, else positions
    # [cells of all axes, 3] (origin, length, number): z = 2 (x - origin) / length - 2 number - 1
    spans: Floats
    span: Integers  # where those of each axis start
    circle: Floats  # [axes, 2] both ends of a circle, else infinities


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
    """Cells that hold rows, and runs of sorted rows of one cell."""

    ends: Integers  # [runs] number of sorted rows up to the end of each
    cell: Integers  # [runs] which of the cells
    bases: Integers  # [cells, axes] first coefficient of each along each axis
    numbers: Integers  # [cells, axes] number of each along each axis
    near: int  # coefficients that the functions of a cell take along the first axis, unrolled
    longest: int  # cells along the first axis whose sums wait for each other
    steps: Integers  # [axes] entries between neighbouring coefficients


# Numbers of a tile lie in one array, `work`, and functions are told where: each view of an array costs 5 ns.


@internal
def _copy(source: Floats, begin: int, count: int, work: Floats, out: int) -> None:
    for t in range(count):
        put(work, out + t, get(source, begin + t))


@internal
def _columns(
    table: Floats,
    begin: int,
    rows: int,
    count: int,
    size: int,
    given: bool,
    span: tuple[float, ...],
    work: Floats,
    out: int,
) -> None:
    """Columns [L, TILE_ROWS] of one axis for the rows of a tile: as given, or P_l of the local coordinate.

    The table, of so many `rows`, is read from `begin` on.
    """
    if given:
        for k in range(size):
            _copy(table, begin + k * rows, count, work, out + k * TILE_ROWS)
        return
    origin, length, number, low, high = span
    z = out + TILE_ROWS
    for t in range(TILE_ROWS):
        put(work, out + t, 1.0)
    _copy(table, begin, count if size > 1 else 0, work, z)
    for t in range(count if size > 1 and low > -np.inf else 0):
        put(work, z + t, _wrapped(get(work, z + t), low, high))
    for t in range(count if size > 1 else 0):
        x = 2.0 * ((get(work, z + t) - origin) / length - number) - 1.0
        put(work, z + t, min(max(x, -1.0), 1.0))
    for k in range(2, size):
        a, b, place = spread((2 * k - 1) / k), spread((1 - k) / k), out + k * TILE_ROWS
        for t in range(0, count, LANES):
            p, q = load(work, place - TILE_ROWS + t), load(work, place - 2 * TILE_ROWS + t)
            store(work, place + t, add_product(product(a, product(load(work, z + t), p)), b, q))


@internal
def _multiply(work: Floats, a: int, b: int, count: int, out: int) -> None:
    """Products of two columns for the rows of a tile; what is behind the last of them may be anything."""
    for t in range(0, count, LANES):
        store(work, out + t, product(load(work, a + t), load(work, b + t)))


@internal
def _tile(
    table: Floats,
    s: int,
    rows: int,
    count: int,
    plan: ColumnPlan,
    cell: Integers,
    work: Floats,
    middle: int,
    last: int,
) -> int:
    """Columns of the axes of one tile: of the first, then products of those of the middle ones, then rows of the last.

    They are [L, TILE_ROWS], [products, TILE_ROWS], and from `last` on [TILE_ROWS, L]. Returns where the middle ones
    are: from `middle` on, but where they are those of one axis.
    """
    sizes, givens, firsts = plan.size, plan.given, plan.first
    starts, spans, circles = plan.span, plan.spans, plan.circle
    axes, after, size, width = sizes.size, 0, sizes[-1], plan.padded[-1]
    for axis in range(axes):
        i, begin = starts[axis] + cell[axis], firsts[axis] * rows + s
        span = spans[i, 0], spans[i, 1], spans[i, 2], circles[axis, 0], circles[axis, 1]
        _columns(table, begin, rows, count, sizes[axis], givens[axis], span, work, after)
        after += sizes[axis] * TILE_ROWS
    after -= size * TILE_ROWS
    for k in range(size):
        for t in range(count):
            put(work, last + t * width + k, get(work, after + k * TILE_ROWS + t))
    if axes == 3:
        return int(after - sizes[1] * TILE_ROWS)
    filled = 1
    for t in range(TILE_ROWS):
        put(work, middle + t, 1.0)
    for axis in range(axes - 2, 0, -1):
        after -= plan.size[axis] * TILE_ROWS
        for k in range(plan.size[axis] - 1, -1, -1):  # backwards: a line is read before it is overwritten
            for j in range(filled):
                out = middle + (k * filled + j) * TILE_ROWS
                _multiply(work, after + k * TILE_ROWS, middle + j * TILE_ROWS, count, out)
        filled *= plan.size[axis]
    return middle


@internal
def _add_four(
    work: Floats, f: int, m: int, v: int, width: int, count: int, total: Floats, place: int, step: int
) -> None:
    """Four lines of `_add_tile`, in sums that stay in registers."""
    p1, p2, p3 = place + step, place + 2 * step, place + 3 * step
    s0, s1, s2, s3 = load(total, place), load(total, p1), load(total, p2), load(total, p3)
    for t in range(count):
        x, g = product(spread(get(work, m + t)), load(work, v + t * width)), f + t
        s0 = add_product(s0, spread(get(work, g)), x)
        s1 = add_product(s1, spread(get(work, g + TILE_ROWS)), x)
        s2 = add_product(s2, spread(get(work, g + 2 * TILE_ROWS)), x)
        s3 = add_product(s3, spread(get(work, g + 3 * TILE_ROWS)), x)
    store(total, place, s0)
    store(total, p1, s1)
    store(total, p2, s2)
    store(total, p3, s3)


@internal
def _add_tile(
    work: Floats,
    first: int,
    lines: int,
    middle: int,
    last: int,
    width: int,
    count: int,
    total: Floats,
    begin: int,
    step: int,
) -> None:
    """total[k, j, :] += sum over t of first[k, t] middle[j, t] last[t, :]; lines of the total are `step` apart."""
    for other in range(0, step, LANES):
        place, m, v = begin + other, middle + other // width * TILE_ROWS, last + other % width
        for k in range(0, lines, 4):
            _add_four(work, first + k * TILE_ROWS, m, v, width, count, total, place + k * step, step)


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
def _same_run(new: Integers, old: Integers, start: int, width: int, longest: int) -> bool:
    """Whether a cell continues a run along the first axis: same others, near the last, run not too long."""
    for axis in range(1, new.size):
        if new[axis] != old[axis]:
            return False
    step, length = int(new[0] - old[0]), int(new[0] - start)  # on a circle the first cells may come last
    return 0 < step <= width and length < longest


@compiled
def sum_rows(
    first: int,
    begin: int,
    table: Floats,
    weights: Floats,
    errors: Floats,
    cells: CellPlan,
    columns: ColumnPlan,
    each: bool,
    moments: Floats,
    pairs: Floats,
) -> tuple[int, int, int]:
    """Add rows that are sorted by cell to sums of products of columns of their cells.

    On a cell, products of two functions lie in the span of few columns (`points.cells.Columns`): their sums are
    collected row by row, and `fold_cells` turns them into functions and pairs.

    `first` is the number of the first row among the sorted ones, and `table` [numbers per row, rows], read from
    `begin` on, holds positions, or columns as they are. `weights` and `errors`, [members, rows], are w for the pairs
    and w (y - r) for the moment; each may have no members. The first axis of the plans is the one along which sorted
    cells are neighbours. `pairs` and `moments`, [cells, members, columns of the first axis, of the others], are added
    to; where they do not hold `each` cell, they hold those of the runs from here on. Returns the row where room or rows
    end, and the runs from the first up to there.
    """
    rows, count, many, width = table.shape[1], 0, 1, columns.padded[-1]
    for axis in range(columns.size.size):
        count += columns.size[axis]
    for axis in range(1, columns.size.size - 1):
        many *= columns.size[axis]
    scaled = count * TILE_ROWS
    middle = scaled + (columns.size[0] + 3) * TILE_ROWS  # there may be three lines more, of no meaning
    line = middle + many * TILE_ROWS
    last = line + TILE_ROWS
    work = np.zeros(last + TILE_ROWS * width)
    flat, all_weights, all_errors = table.reshape(-1), weights.reshape(-1), errors.reshape(-1)
    all_pairs, all_moments = pairs.reshape(-1), moments.reshape(-1)
    run, stop, functions = 0, cells.ends.size, columns.functions[0]
    while run < stop:  # the first run that ends behind the first row
        mid = (run + stop) // 2
        run, stop = (mid + 1, stop) if cells.ends[mid] <= first + begin else (run, mid)
    start, room = run, len(pairs) if weights.shape[0] else len(moments)
    while begin < rows and (each or run - start < room):
        cell, end = cells.cell[run], min(cells.ends[run] - first, rows)
        place = cell if each else run - start
        for s in range(begin, end, TILE_ROWS):
            count = min(TILE_ROWS, end - s)
            rest = _tile(flat, s, rows, count, columns, cells.numbers[cell], work, middle, last)
            for r in range(weights.shape[0]):
                _copy(all_weights, r * rows + s, count, work, line)
                for k in range(columns.size[0]):
                    _multiply(work, k * TILE_ROWS, line, count, scaled + k * TILE_ROWS)
                at = (place * weights.shape[0] + r) * pairs.shape[2] * pairs.shape[3]
                _add_tile(
                    work, scaled, columns.size[0], rest, last, width, count, all_pairs, at, pairs.shape[3]
                )
            for r in range(errors.shape[0]):
                _copy(all_errors, r * rows + s, count, work, line)
                for k in range(functions):
                    _multiply(work, k * TILE_ROWS, line, count, scaled + k * TILE_ROWS)
                at = (place * errors.shape[0] + r) * moments.shape[2] * moments.shape[3]
                _add_tile(
                    work, scaled, functions, rest, last, width, count, all_moments, at, moments.shape[3]
                )
        begin = end
        run += 1
    return begin, start, run


@compiled
def fold_cells(
    first: int,
    each: bool,
    cells: CellPlan,
    moment_fold: FoldPlan,
    pair_fold: FoldPlan,
    moment_sums: Floats,
    pair_sums: Floats,
    moment: Floats,
    pairs: Floats,
) -> None:
    """Turn sums of `each` cell, or of the runs from the `first` on, into moments and pairs; the sums become zero.

    Each cell turns its first axis into functions and pairs; the others wait for the end of a run of cells along the
    first axis, whose functions they share. `moment` and `pairs`, [members, coefficients, depth], are added to.
    """
    axes, longest, count = cells.steps.size, cells.longest + cells.near, max(len(moment_sums), len(pair_sums))
    room = longest * pair_fold.entries
    for axis in range(1, axes):
        room *= max(pair_fold.used[axis], pair_fold.stored[axis], pair_fold.wanted[axis])
    spare, other, row = np.zeros(room), np.zeros(room), np.zeros(room)
    pair_run = np.zeros((pair_sums.shape[1], longest * pair_fold.entries, pair_sums.shape[3]))
    moment_run = np.zeros((moment_sums.shape[1], longest * moment_fold.entries, moment_sums.shape[3]))
    start = cells.bases[0 if each else cells.cell[first], 0]
    for place in range(count):
        cell = place if each else cells.cell[first + place]
        base, number = cells.bases[cell], cells.numbers[cell]
        away = base[0] - start
        for r in range(moment_run.shape[0]):
            _fold_first(moment_sums[place, r], moment_fold, number[0], away, moment_run[r])
        for r in range(pair_run.shape[0]):
            _fold_first(pair_sums[place, r], pair_fold, number[0], away, pair_run[r])
        following = base
        if place + 1 < count:
            following = cells.bases[cell + 1 if each else cells.cell[first + place + 1]]
            if _same_run(following, base, start, cells.near, cells.longest):
                continue
        at, length = start * cells.steps[0], away + cells.near
        for axis in range(1, axes):
            at += base[axis] * cells.steps[axis]
        for r in range(moment_run.shape[0]):
            sums, out = moment_run[r, : length * moment_fold.entries], moment[r, at:].reshape(-1)
            _fold_others(sums, moment_fold, number, spare, other, row, out)
        for r in range(pair_run.shape[0]):
            sums, out = pair_run[r, : length * pair_fold.entries], pairs[r, at:].reshape(-1)
            _fold_others(sums, pair_fold, number, spare, other, row, out)
        start = following[0]
    pair_sums[:] = 0.0
    moment_sums[:] = 0.0
