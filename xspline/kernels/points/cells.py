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

from xspline.kernels.block import Array, Bools, Floats, Integers
from xspline.kernels.rows import CoefficientRange, locate
from xspline.spaces.bspline import Arrow
from xspline.spaces.features import Features
from xspline.spaces.means.cells import CellMeans

if TYPE_CHECKING:
    from xspline.kernels.compiled.by_cell import FoldPlan


@dataclass(frozen=True)
class CellSizes:
    """When sums go from cell to cell, and how many rows at a time."""

    # On the host; with fewer, turning sums into pairs costs more than rows of products.
    rows_per_cell: int = 6
    cells_per_row: int = 4  # cells, empty ones too, that counting may take for each row
    slab_entries: int = 1 << 13  # numbers in a slab of sorted rows on the host: 64 KiB
    tile_rows: tuple[int, int] = (8, 4096)  # on a device, rows of a tile: at least, at most
    # On a device, products of columns of a slab, sums folded at a time: 512 MiB.
    device_entries: int = 1 << 26


SIZES = CellSizes()


@dataclass(frozen=True, eq=False)
class Columns:
    """What a row gives along one axis, and how sums of it become functions and pairs."""

    size: int  # L columns, of which the first q span the functions
    functions: Floats  # [1 or m, q, q], per cell (column, function): function = sum over columns
    pairs: Floats  # [1 or m, L, Q], per cell (column, pair), in the order of `Features.pair_index`
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
            _projected(features.pair_features, features.cells, 2 * p + 1),
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
    return np.fmin.reduce(x), np.fmax.reduce(x)


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
    order: NDArray[np.int32]
    ends: Integers  # [occupied], number of sorted rows up to the end of each cell that holds rows
    cells: Integers
    sizes: CellSizes

    @staticmethod
    def sort(features: Sequence[Features], coordinates: Sequence[Floats], sizes: CellSizes) -> Cells | None:
        """Cells of a group whose features fit; None where rows are too few to gain from them."""
        from xspline.kernels.compiled import by_cell as loops

        count = coordinates[0].size
        if not 0 < count < 1 << 31:
            return None
        ranges = [cell_range(f, partial(_ends, x)) for f, x in zip(features, coordinates, strict=True)]
        low, box = [a for a, _ in ranges], tuple(b - a + 1 for a, b in ranges)
        if math.prod(box) > sizes.cells_per_row * count:
            return None
        keys, ends = np.empty(count, dtype=np.int32), np.zeros(math.prod(box), dtype=np.int64)
        at_once = 1 << 14  # rows: their cells and coordinates take 256 KiB
        for first in range(0, count, at_once):
            part = np.zeros(min(at_once, count - first), dtype=np.int64)
            for f, x, start, length in zip(features, coordinates, low, box, strict=True):
                cell, _ = locate(f, x[first : first + part.size], compiled=True)
                loops.ravel_cells(cell, start, length, part)
            keys[first : first + part.size] = part
        order = loops.sort_rows(keys, ends)
        occupied = np.flatnonzero(np.diff(ends, prepend=0))
        if order.size < max(1, sizes.rows_per_cell * occupied.size):
            return None
        cells = np.stack(np.unravel_index(occupied, box), axis=1) + np.array(low)
        ends, labels = ends[occupied], tuple(coordinates)
        return Cells(tuple(features), labels, keys, order, ends, cells, sizes)

    def labelled(self, span: tuple[int, int]) -> Bools:
        """Rows of a range all of whose coordinates are numbers."""
        return labelled(self.coordinates, span)

    def slabs(self, members: int) -> Iterator[tuple[int, Integers]]:
        """(number of the first, rows) of consecutive sorted rows, for so many members."""
        rows = max(1, self.sizes.slab_entries // max(1, members))
        for first in range(0, self.order.size, rows):
            yield first, self.order[first : first + rows].astype(np.int64)

    def totals(self, ranges: Sequence[CoefficientRange], moments: int, pairs: int) -> CellTotals:
        """Zeros to be added to, over one range per axis, for so many members each."""
        return CellTotals(self, ranges, moments, pairs)


class CellTotals:
    """Moments and pairs of a group, cell by cell, unrolled.

    Compiled loops begin with the last axis: sorted cells are neighbours along it. `extents` tell per coefficient axis
    how many coefficients there are, unrolled. `moment` and `pairs`, [members, coefficients, depth], are on the host,
    all axes raveled; depths are those of the supports.
    """

    def __init__(self, cells: Cells, ranges: Sequence[CoefficientRange], moments: int, pairs: int) -> None:
        from xspline.kernels.compiled.by_cell import CellPlan, ColumnPlan

        self.cells = cells
        self.extents = tuple(span.extent for span in ranges)
        coefficients = math.prod(self.extents)
        single, double = ([f.support.depth(of_pairs) for f in cells.features] for of_pairs in (False, True))
        self.moment = np.zeros((moments, coefficients, math.prod(single)))
        self.pairs = np.zeros((pairs, coefficients, math.prod(double)))
        bases = [r.bases(f)[n] for f, r, n in zip(cells.features, ranges, cells.cells.T, strict=True)]
        features, columns, steps = cells.features[::-1], cells.columns[::-1], _steps(self.extents)[::-1]
        self._cells = CellPlan(
            ends=cells.ends,
            bases=np.stack(bases[::-1], axis=1),
            numbers=np.ascontiguousarray(cells.cells[:, ::-1]),
            width=features[0].width,
            near=features[0].support.near,
            steps=steps.copy(),
        )
        lines = [c.lines for c in cells.columns]
        size = np.array([c.size for c in columns], dtype=np.int64)
        padded = size.copy()
        padded[-1] += -size[-1] % 8  # to a multiple of 8, for vector instructions
        first = np.cumsum([0, *lines[:-1]])[::-1].copy()
        self._columns = ColumnPlan(size, padded, first, np.array([not c.of_position for c in columns]))
        narrow = padded.copy()  # a row of products begins with those that functions need along the first axes
        narrow[: min(2, len(features) - 1)] = [f.width for f in features[: min(2, len(features) - 1)]]
        self._moment_fold = _fold(features, [c.functions for c in columns], narrow, steps, pairs=False)
        self._pair_fold = _fold(features, [c.pairs for c in columns], padded, steps, pairs=True)
        self._lines = sum(lines)
        self._scratch = np.empty(0)  # memory fresh from the system costs as much as what it holds

    def add(self, first: int, rows: Integers, weights: Floats, errors: Floats) -> None:
        """Add sorted rows from the `first` on: weights and weighted errors are [members, rows]."""
        from xspline.kernels.compiled.by_cell import add_cells

        if self._scratch.size < self._lines * rows.size:
            self._scratch = np.empty(self._lines * rows.size)
        table, last = self._scratch[: self._lines * rows.size].reshape(-1, rows.size), 0
        cells = self.cells
        for f, x, columns in zip(cells.features, cells.coordinates, cells.columns, strict=True):
            cell, z = locate(f, x.take(rows), compiled=True)
            lines, last = table[last : last + columns.lines], last + columns.lines
            if columns.of_position:
                lines[0] = z
            else:
                given_columns(f, cell, z, lines)
        folds = self._moment_fold, self._pair_fold
        add_cells(first, table, weights, errors, self._cells, self._columns, *folds, self.moment, self.pairs)


def _steps(lengths: Sequence[int]) -> Integers:
    """Entries between neighbours along each axis of a raveled array."""
    return np.array([math.prod(lengths[axis + 1 :]) for axis in range(len(lengths))], dtype=np.int64)


def _fold(
    features: Sequence[Features], tables: Sequence[Floats], stored: Integers, steps: Integers, *, pairs: bool
) -> FoldPlan:
    """How sums of columns become functions or pairs; axes in the order of the loops."""
    from xspline.kernels.compiled.by_cell import RUN_CELLS, FoldPlan

    offsets = [f.support.depth(pairs) for f in features]
    many, inner = math.prod(offsets), _steps(offsets[::-1])[::-1]
    index = [f.support.index(pairs) for f in features]
    padded = [np.pad(table, ((0, 0), (0, -table.shape[1] % 4), (0, 0))) for table in tables]
    sizes = [table.size for table in padded]
    run = np.arange(RUN_CELLS + features[0].support.near)[:, None]
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
