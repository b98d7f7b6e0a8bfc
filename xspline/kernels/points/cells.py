"""Rows of a group with several coefficient axes, sorted by cell.

Rows of products of functions are long: (p + 1)^d functions and as many squares of that in pairs. On a cell,
however, a product of two functions of degree p is a polynomial of degree 2p, and 2p + 1 Legendre polynomials
per axis span all products. Rows are therefore sorted by cell, sums of products of these *columns* are
collected, and each cell turns its sums into functions and pairs once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray

from xspline.kernels.block import Array, Bools, Floats, Integers, Scratch, native
from xspline.kernels.rows import CoefficientRange, locate
from xspline.spaces.bspline import Arrow, LocalSpline
from xspline.spaces.features import Features, pair_products
from xspline.spaces.means.cells import CellMeans

if TYPE_CHECKING:
    from xspline.kernels.compiled.by_cell import FoldPlan


@dataclass(frozen=True)
class CellSizes:
    """When sums go from cell to cell, and how many rows at a time."""

    # On the host; with fewer, turning sums into pairs costs more than rows of products.
    rows_per_cell: int = 6
    cells_per_row: int = 4  # cells, empty ones too, that counting may take for each row
    # Numbers in a slab of rows on the host, and rows that are sorted at a time where all sums can wait: 512 KiB.
    slab_entries: int = 1 << 16
    run_cells: int = 16  # whose sums wait for each other along an axis: they stay in the cache
    waiting_entries: int = 1 << 20  # of sums of all cells that wait for further rows: 8 MiB
    tile_rows: tuple[int, int] = (8, 4096)  # on a device, rows of a tile: at least, at most
    # On a device, products of columns of a slab: 2 GiB (`benchmarks gpu`: 512 MiB take 1.9 times as long).
    device_entries: int = 1 << 28


SIZES = CellSizes()
MEMORY = Scratch()


@dataclass(frozen=True, eq=False)
class Columns:
    """What a row gives along one axis, and how sums of it become functions and pairs."""

    size: int  # L columns, of which the first q span the functions
    functions: Floats  # [1 or m, q, q], per cell (column, function): function = sum over columns
    pairs: Floats  # [1 or m, L, Q], per cell (column, pair), in the order of `Support.index`
    of_position: bool  # whether the columns are Legendre polynomials of the local coordinate

    @property
    def lines(self) -> int:
        """Numbers that a row has to bring: its local coordinate, or its columns."""
        return 1 if self.of_position else self.size


def columns_of(features: Features) -> Columns:
    """Legendre polynomials on the cells of a B-spline; functions and products of them for other bases."""
    return _columns_of(features)  # type: ignore[arg-type]  # by identity


@lru_cache(maxsize=256)
def _columns_of(features: Features) -> Columns:
    if features.local:
        p = features.width - 1
        return Columns(
            2 * p + 1,
            _projected(features.features, features.cells, p + 1),
            _projected(lambda cell, z: pair_products(features.features(cell, z)), features.cells, 2 * p + 1),
            True,
        )
    q, count = features.width, features.width * (features.width + 1) // 2
    extra = 0 if _begins_with_one(features) else q
    pairs = np.concatenate([np.zeros((extra, count)), np.eye(count)])
    return Columns(count + extra, np.eye(q)[None], pairs[None], False)


def _projected(values: Callable[[Integers, Floats], Floats], cells: int, size: int) -> Floats:
    """Legendre series [1 or m, size, columns] of polynomials on each cell; one if all cells agree."""
    z, w = legendre.leggauss(size)
    table = values(np.repeat(np.arange(cells), size), np.tile(z, cells)).reshape(cells, size, -1)
    project = legendre.legvander(z, size - 1) * w[:, None] * (np.arange(size) + 0.5)
    out = np.asarray(np.einsum("cnf,nl->clf", table, project, optimize=False))
    return out[:1] if np.array_equal(out, np.broadcast_to(out[:1], out.shape)) else out


def _begins_with_one(features: Features) -> bool:
    """Whether the first function is 1, so that its products with all others are the functions."""
    constant = features.constant()
    return bool(constant[0] == 1.0 and not constant[1:].any())


def given_columns(features: Features, cell: Integers, z: Floats, out: Floats | None = None) -> Floats:
    """Columns [L, n] of a basis other than a B-spline, into `out` if it is given."""
    values = np.ascontiguousarray(features.features(cell, z).T)
    extra = 0 if _begins_with_one(features) else len(values)
    first, second = np.triu_indices(len(values))
    out = np.empty((extra + first.size, z.size)) if out is None else out
    out[:extra] = values[:extra]
    for line, a, b in zip(out[extra:], first, second, strict=True):  # one by one: nothing else is allocated
        np.multiply(values[a], values[b], out=line)
    return out


def fits(features: Sequence[Features]) -> bool:
    """Several axes of points, without a union in cells, and a row of products of columns that a cache holds."""
    if any(isinstance(f, Arrow | CellMeans) for f in features):
        return False
    widths = [columns_of(f).size for f in features]
    return len(widths) > 1 and math.prod(widths[:-1]) <= 1 << 11 and math.prod(widths) <= 1 << 16


def take(array: NDArray[Any], rows: NDArray[np.int32], out: Floats) -> None:
    """Entries of an array [n]: one of float32 or float64 is read as it is stored."""
    if array.dtype in (np.float32, np.float64) and array.dtype.isnative and array.flags.c_contiguous:
        from xspline.kernels.compiled.by_cell import take_rows

        array = array.view()
        array.flags.writeable = False  # one specialisation
        take_rows(array, rows, out)
    else:
        out[:] = native(array[rows], np)


def labelled(coordinates: Sequence[Floats], span: tuple[int, int]) -> Bools:
    """Rows of a range (first, number) all of whose coordinates are numbers."""
    out = np.ones(span[1], dtype=bool)
    for x in coordinates:
        out &= np.isfinite(x[span[0] : span[0] + span[1]])
    return out


def cell_range(features: Features, ends: Callable[[], tuple[float, float]]) -> tuple[int, int]:
    """First and last cell that positions can be in; `ends` gives the least and the greatest, NaN if all are missing."""
    if features.domain is None:  # a circle, or one cell for all
        return 0, features.cells - 1
    low, high = features.locate(np.clip(ends(), *features.domain))[0]
    return max(int(low), 0), max(int(high), 0)  # all missing: -1


def _ends(x: Floats) -> tuple[float, float]:
    return float(np.fmin.reduce(x)), float(np.fmax.reduce(x))


class ByCell:
    """The rows of a group in the order of their cells: `Cells` on the host, `Tiles` on a device."""

    features: tuple[Features, ...]  # one per coefficient axis of the group
    keys: Array  # [n], the number of the cell of each row, -1 outside the domains
    order: Array  # [rows inside], the rows sorted by key
    cells: Integers  # [occupied, axes], the cells that hold rows, along each axis

    def inside(self, span: tuple[int, int]) -> Array:
        """Rows of a range that are inside all domains."""
        return self.keys[span[0] : span[0] + span[1]] >= 0

    def touched(self, axis: int) -> Bools:
        """Cells [m] along an axis that hold rows inside all domains."""
        out = np.zeros(self.features[axis].cells, dtype=bool)
        out[self.cells[:, axis]] = True
        return out

    @cached_property
    def columns(self) -> tuple[Columns, ...]:
        """What rows give, per axis."""
        return tuple(columns_of(f) for f in self.features)


@dataclass(frozen=True, eq=False)
class Cells(ByCell):
    """The rows of a group in the order of their cells, as NumPy arrays; keys and order are int32."""

    features: tuple[Features, ...]
    coordinates: tuple[Floats, ...]  # [n], one per coefficient axis
    keys: NDArray[np.int32]
    order: NDArray[np.int32]  # rows sorted by band, then by key
    ends: Integers  # [runs of one cell], number of sorted rows up to the end of each
    runs: Integers  # [runs], the cell of each, by its number in `cells`
    cells: Integers
    sizes: CellSizes

    @staticmethod
    def sort(features: Sequence[Features], coordinates: Sequence[Floats], sizes: CellSizes) -> Cells | None:
        """Cells of a group whose features fit; None where rows are too few to gain from them."""
        from xspline.kernels.compiled import by_cell as loops

        count = coordinates[0].size
        if not 0 < count < 1 << 31:
            return None
        waiting = sizes.waiting_entries // math.prod(columns_of(f).size for f in features)  # cells
        ranges = [(0, f.cells - 1) for f in features]
        # Of fewer cells it does not matter where they are.
        if math.prod(f.cells for f in features) > min(waiting, count):
            ranges = [cell_range(f, partial(_ends, x)) for f, x in zip(features, coordinates, strict=True)]
        low, box = [a for a, _ in ranges], tuple(b - a + 1 for a, b in ranges)
        if math.prod(box) > min(sizes.cells_per_row * count, (1 << 31) - 1):
            return None
        band = sizes.slab_entries if math.prod(box) <= waiting else count
        keys = np.zeros(count, dtype=np.int32)
        order = np.empty(count, dtype=np.int32)
        total = 0
        ends, numbers, last = [], [], np.empty(math.prod(box), dtype=np.int64)
        for first in range(0, count, sizes.slab_entries):
            part = keys[first : first + sizes.slab_entries]
            for f, x, begin, length in zip(features, coordinates, low, box, strict=True):
                cell, _ = locate(f, x[first : first + part.size], compiled=True, memory=MEMORY)
                loops.ravel_cells(cell, begin, length, part)
        for first in range(0, count, band):
            added = loops.sort_rows(keys[first : first + band], first, last, order[total:])
            numbers.append(np.flatnonzero(np.diff(last, prepend=0)))
            ends.append(last[numbers[-1]] + total)
            total += added
        occupied = np.zeros(last.size, dtype=bool)
        occupied[np.concatenate(numbers)] = True
        runs, filled = (np.cumsum(occupied) - 1)[np.concatenate(numbers)], np.flatnonzero(occupied)
        if total < max(1, sizes.rows_per_cell * filled.size):
            return None
        cells, inside = np.stack(np.unravel_index(filled, box), axis=1) + np.array(low), order[:total]
        labels = tuple(coordinates)
        return Cells(tuple(features), labels, keys, inside, np.concatenate(ends), runs, cells, sizes)

    def labelled(self, span: tuple[int, int]) -> Bools:
        """Rows of a range all of whose coordinates are numbers."""
        return labelled(self.coordinates, span)

    def slabs(self, members: int) -> Iterator[tuple[int, NDArray[np.int32]]]:
        """(number of the first, rows) of consecutive sorted rows, for so many members."""
        rows = max(1, self.sizes.slab_entries // max(1, members))
        for first in range(0, self.order.size, rows):
            yield first, self.order[first : first + rows]

    def totals(self, ranges: Sequence[CoefficientRange], moments: int, pairs: int) -> CellTotals:
        """Zeros to be added to, over one range per axis, for so many members each."""
        return CellTotals(self, ranges, moments, pairs)


class CellTotals:
    """Moments and pairs of a group, cell by cell, unrolled.

    Compiled loops begin with the last axis: sorted cells are neighbours along it. `extents` tell per coefficient axis
    how many coefficients there are, unrolled. Moment and pairs are on the host, all axes raveled; depths are
    those of the supports.
    """

    def __init__(self, cells: Cells, ranges: Sequence[CoefficientRange], moments: int, pairs: int) -> None:
        from xspline.kernels.compiled.by_cell import CellPlan, ColumnPlan
        from xspline.kernels.compiled.lanes import LANES

        self.cells = cells
        self.extents = tuple(span.extent for span in ranges)
        coefficients = math.prod(self.extents)
        single, double = ([f.support.depth(of_pairs) for f in cells.features] for of_pairs in (False, True))
        self._moment = np.zeros((moments, coefficients, math.prod(single)))
        self._pairs = np.zeros((pairs, coefficients, math.prod(double)))
        bases = [r.bases(f)[n] for f, r, n in zip(cells.features, ranges, cells.cells.T, strict=True)]
        features, columns, steps = cells.features[::-1], cells.columns[::-1], _steps(self.extents)[::-1]
        self._cells = CellPlan(
            ends=cells.ends,
            cell=cells.runs,
            bases=np.stack(bases[::-1], axis=1),
            numbers=np.ascontiguousarray(cells.cells[:, ::-1]),
            near=features[0].support.near,
            longest=cells.sizes.run_cells,
            steps=steps.copy(),
        )
        lines = [c.lines for c in cells.columns]
        size = _integers(c.size for c in columns)
        padded, narrow = size.copy(), [f.width for f in features[: min(2, len(features) - 1)]]
        padded[-1] += -size[-1] % LANES
        functions = padded.copy()  # along the first axes those that functions need come first
        functions[: len(narrow)] = narrow
        spans, circles = [_spans(f) for f in features], [_circle(f) for f in features]
        self._columns = ColumnPlan(
            size=size,
            padded=padded,
            functions=functions,
            first=np.cumsum([0, *lines[:-1]])[::-1].copy(),
            given=np.array([not c.of_position for c in columns]),
            spans=np.concatenate(spans),
            span=_integers(sum(map(len, spans[:axis])) for axis in range(len(spans))),
            circle=np.array(circles),
        )
        run = cells.sizes.run_cells
        self._folds = (
            _fold(features, [c.functions for c in columns], functions, steps, run, pairs=False),
            _fold(features, [c.pairs for c in columns], padded, steps, run, pairs=True),
        )
        # Sums of all cells wait for the last row, or those of some until their functions and pairs are added up.
        sizes = [(int(fold.used[0]), math.prod(fold.stored[1:])) for fold in self._folds]
        wanted = moments * math.prod(sizes[0]) + pairs * math.prod(sizes[1])
        self._wait = len(cells.cells) * wanted <= 2 * cells.sizes.waiting_entries
        many = len(cells.cells) if self._wait else max(1, cells.sizes.slab_entries // wanted)
        self._sums = tuple(
            np.zeros((many, n, *size)) for n, size in zip((moments, pairs), sizes, strict=True)
        )
        self._lines = sum(lines)
        self._scratch = Scratch()

    def add(self, first: int, rows: NDArray[np.int32], weights: Floats, errors: Floats) -> None:
        """Add sorted rows from the `first` on: weights and weighted errors are [members, rows]."""
        from xspline.kernels.compiled.by_cell import sum_rows

        table, last = self._scratch.take((self._lines, rows.size)), 0
        cells = self.cells
        for f, x, columns in zip(cells.features, cells.coordinates, cells.columns, strict=True):
            lines, last = table[last : last + columns.lines], last + columns.lines
            if columns.of_position:
                take(x, rows, lines[0])
            else:
                given_columns(f, *locate(f, x.take(rows), compiled=True), lines)
        done = 0
        while done < rows.size:
            done, run, stop = sum_rows(
                first, done, table, weights, errors, self._cells, self._columns, self._wait, *self._sums
            )
            if not self._wait:
                self._fold(run, stop)

    def _fold(self, first: int, stop: int) -> None:
        """Turn the sums of the runs of some cells into functions and pairs."""
        from xspline.kernels.compiled.by_cell import fold_cells

        (h, g), (h_fold, g_fold), many = self._sums, self._folds, stop - first
        args = (self._cells, h_fold, g_fold, h[:many], g[:many], self._moment, self._pairs)
        fold_cells(first, self._wait, *args)

    def finish(self) -> tuple[Floats, Floats]:
        """Moment and pairs, [members, coefficients, depth]."""
        if self._wait:
            self._fold(0, len(self.cells.cells))
        return self._moment, self._pairs


def _circle(features: Features) -> tuple[float, float]:
    """Both ends of a circle, else infinities."""
    if isinstance(features, LocalSpline) and features.periodic:
        return features.ends
    return -math.inf, math.inf


def _spans(features: Features) -> Floats:
    """[m, 3] per cell (origin, length, number): local coordinate = 2 ((x - origin) / length - number) - 1."""
    out = np.zeros((features.cells, 3))
    if isinstance(features, LocalSpline):
        out[:, 0] = features.edges[0] if features.uniform else features.edges[:-1]
        out[:, 1] = features.lengths
        out[:, 2] = np.arange(features.cells) if features.uniform else 0
    return out


def _steps(lengths: Sequence[int]) -> Integers:
    """Entries between neighbours along each axis of a raveled array."""
    return np.array([math.prod(lengths[axis + 1 :]) for axis in range(len(lengths))], dtype=np.int64)


def _fold(
    features: Sequence[Features],
    tables: Sequence[Floats],
    stored: Integers,
    steps: Integers,
    longest: int,
    *,
    pairs: bool,
) -> FoldPlan:
    """How sums of columns become functions or pairs, in runs of so many cells; axes in the order of the loops."""
    from xspline.kernels.compiled.by_cell import FoldPlan

    offsets = [f.support.depth(pairs) for f in features]
    many, inner = math.prod(offsets), _steps(offsets[::-1])[::-1]
    index = [f.support.index(pairs) for f in features]
    padded = [np.pad(table, ((0, 0), (0, -table.shape[1] % 4), (0, 0))) for table in tables]
    sizes = [table.size for table in padded]
    run = np.arange(longest + features[0].support.near)[:, None]
    places = np.zeros(1, dtype=np.int64)
    for (a, o), step, inner_step in zip(index[1:], steps[1:], inner[1:], strict=True):
        places = (places[:, None] + a * (step * many) + o * inner_step).ravel()
    return FoldPlan(
        used=_integers(table.shape[1] for table in padded),
        stored=stored,
        wanted=_integers(table.shape[2] for table in padded),
        plain=np.array([len(t) == 1 and np.array_equal(t[0], np.eye(*t[0].shape)) for t in tables]),
        tables=np.concatenate([table.ravel() for table in padded]),
        start=_integers(sum(sizes[:axis]) for axis in range(len(sizes))),
        step=_integers(table[0].size if len(table) > 1 else 0 for table in padded),
        entries=offsets[0],
        first_rows=index[0][0] * offsets[0] + index[0][1],
        first_places=(run * (steps[0] * many) + np.arange(offsets[0]) * inner[0]).ravel(),
        places=places.reshape(-1, index[-1][0].size),
    )


def _integers(numbers: Any) -> Integers:
    return np.array([*numbers], dtype=np.int64)
