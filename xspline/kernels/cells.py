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
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.polynomial import legendre

from .layout import Array, Bools, Floats, Integers
from .rows import Positions, Reach, base_of_cells

if TYPE_CHECKING:
    from xspline.spaces.features import Features

ROWS_PER_CELL = 6  # with fewer, turning the sums of a cell into pairs costs more than rows of products
TILE = 1 << 14  # rows located at a time
WIDEST = 1 << 11  # products of columns in a row of a tile, so that a tile stays in the cache
ENTRIES = 1 << 13  # of a slab of sorted rows
BOX = 4  # cells for each row, empty ones too, that counting may take
FOUR, MULTIPLE = 4, 8  # the columns of the last axis are padded to a multiple of it, for vector instructions


@dataclass(frozen=True, eq=False)
class Columns:
    """What a row gives along one axis, and how sums of it become functions and pairs.

    Attributes
    ----------
    size : int
        L, number of columns; the first q of them span the functions.
    functions : ndarray, [1 or m, q, q]
        Per cell (column, function): function = sum over columns.
    pairs : ndarray, [1 or m, L, Q]
        Per cell (column, pair), in the order of `Features.pair_index`.
    of_position : bool
        Whether the columns are Legendre polynomials of the local coordinate.
    """

    size: int
    functions: Floats
    pairs: Floats
    of_position: bool


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


class ByCell:
    """What rows that are sorted by cell can tell, on the host or on a device."""

    features: tuple[Features, ...]
    keys: Array
    order: Array
    cells: Integers

    @property
    def all_inside(self) -> bool:
        """Whether no row is outside."""
        return int(self.order.shape[0]) == int(self.keys.shape[0])

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
    """The rows of a group in the order of their cells.

    Attributes
    ----------
    features, coordinates : tuple
        One per coefficient axis of the group; coordinates [n].
    engine : Positions
        What locates.
    keys : ndarray, int32 [n]
        Number of the cell of each row; -1 outside the domains.
    order : ndarray, int32 [rows inside]
        Rows sorted by key.
    ends : ndarray, int64 [occupied]
        Number of sorted rows up to the end of each cell that holds rows.
    cells : ndarray, int64 [occupied, axes]
        These cells, along each axis.
    """

    features: tuple[Features, ...]
    coordinates: tuple[Floats, ...]
    engine: Positions
    keys: np.ndarray[Any, Any]
    order: np.ndarray[Any, Any]
    ends: Integers
    cells: Integers

    @staticmethod
    def sort(features: Sequence[Features], coordinates: Sequence[Floats], engine: Positions) -> Cells | None:
        """Cells of a group whose features fit; None where rows are too few to gain from them."""
        count = coordinates[0].size
        if not 0 < count < 1 << 31:
            return None
        ranges = [cell_range(f, partial(_ends, x)) for f, x in zip(features, coordinates, strict=True)]
        box = tuple(high - low + 1 for low, high in ranges)
        if math.prod(box) > BOX * count:
            return None
        keys, ends = np.empty(count, dtype=np.int32), np.zeros(math.prod(box), dtype=np.int64)
        for first in range(0, count, TILE):
            span = slice(first, first + TILE)
            keys[span] = _keys(features, [x[span] for x in coordinates], ranges, engine)
        order = _kernels().sort_rows(keys, ends)
        occupied = np.flatnonzero(np.diff(ends, prepend=0))
        if order.size < max(1, ROWS_PER_CELL * occupied.size):
            return None
        cells = np.stack(np.unravel_index(occupied, box), axis=1) + np.array([low for low, _ in ranges])
        return Cells(tuple(features), tuple(coordinates), engine, keys, order, ends[occupied], cells)

    def labelled(self, span: tuple[int, int]) -> Bools:
        """Rows of a range all of whose coordinates are numbers."""
        return labelled(self.coordinates, span)

    def slabs(self, members: int) -> Iterator[tuple[int, Integers]]:
        """(number of the first, rows) of consecutive sorted rows, for so many members."""
        rows = max(1, ENTRIES // max(1, members))
        for first in range(0, self.order.size, rows):
            yield first, self.order[first : first + rows].astype(np.int64)

    def sums(self, reaches: Sequence[Reach], moments: int, pairs: int) -> CellSums:
        """Empty sums of so many members each."""
        return CellSums(self, reaches, moments, pairs)

    def table(self, rows: Integers, held: Floats) -> Floats:
        """Local coordinates, or columns, of some rows: [numbers per row, rows], in `held` if they fit."""
        lines = [1 if columns.of_position else columns.size for columns in self.columns]
        size = sum(lines) * rows.size
        out = (held[:size] if size <= held.size else np.empty(size)).reshape(-1, rows.size)
        last = 0
        for f, x, columns, count in zip(self.features, self.coordinates, self.columns, lines, strict=True):
            (cell, z), part = self.engine.locate(f, x.take(rows)), out[last : last + count]
            if columns.of_position:
                part[0] = z
            else:
                given_columns(f, cell, z, part)
            last += count
        return out


class CellSums:
    """Moments and pairs of a group, cell by cell, unrolled: [members, stretch] and [members, stretch, offsets].

    Parameters
    ----------
    cells : Cells
    reaches : sequence of Reach
        One per axis.
    moments, pairs : int
        Members of each; 0 for none.
    """

    def __init__(self, cells: Cells, reaches: Sequence[Reach], moments: int, pairs: int) -> None:
        self.cells = cells
        self.extents = tuple(reach.extent for reach in reaches)
        self.offsets = tuple(f.offsets for f in cells.features)
        bases = [
            base_of_cells(f, reach)[cell]
            for f, reach, cell in zip(cells.features, reaches, cells.cells.T, strict=True)
        ]
        # The loops begin with the axis along which the sorted cells are neighbours, the last.
        self._features, self._columns = cells.features[::-1], cells.columns[::-1]
        self._bases = np.stack([*bases[::-1], *cells.cells.T[::-1]], axis=1)
        stretch = math.prod(self.extents)
        self._held = np.empty(0)  # memory fresh from the system costs as much as what it holds
        self.moment = np.zeros((moments, stretch))
        self.pairs = np.zeros((pairs, stretch, math.prod(self.offsets)))

    def add(self, first: int, rows: Integers, weights: Floats, errors: Floats) -> None:
        """Add sorted rows from the `first` on: weights and weighted errors are [members, rows]."""
        plans, tables = self._tables
        table = self.cells.table(rows, self._held)
        self._held = table.reshape(-1) if table.size > self._held.size else self._held
        _kernels().add_cells(
            first, self.cells.ends, self._bases, table, weights, errors,
            self._plan, *plans, tables, *self._places, self.moment, self.pairs,
        )  # fmt: skip

    @cached_property
    def _plan(self) -> Integers:
        """[6, axes]: columns, first row in the table of rows, whether given, with padding, offsets, functions."""
        lines = [1 if c.of_position else c.size for c in self.cells.columns]
        rows = np.cumsum([0, *lines[:-1]])[::-1]
        sizes, given = zip(*((c.size, int(not c.of_position)) for c in self._columns), strict=True)
        padded = [*sizes[:-1], -(-sizes[-1] // MULTIPLE) * MULTIPLE]
        functions = [f.width for f in self._features]
        return np.array([sizes, rows, given, padded, self.offsets[::-1], functions], dtype=np.int64)

    @cached_property
    def _tables(self) -> tuple[tuple[Integers, Integers], Floats]:
        """Plans [5, axes] of what turns columns into functions and pairs, and all tables raveled."""
        columns, wide = self._columns, self._plan[3]
        narrow = wide.copy()
        for axis in (0, 1) if len(columns) > 2 else (0,):
            narrow[axis] = self._features[axis].width
        plans: list[Integers] = []
        flat: list[Floats] = []
        for strides, tables in ((narrow, [c.functions for c in columns]), (wide, [c.pairs for c in columns])):
            plan = []
            for stride, table in zip(strides, tables, strict=True):
                _, used, count = table.shape
                padded = np.pad(table, ((0, 0), (0, -used % FOUR), (0, 0)))
                step = padded[0].size if len(table) > 1 else -int(_is_identity(table[0]))
                plan.append((padded.shape[1], stride, count, sum(t.size for t in flat), step))
                flat.append(padded.ravel())
            plans.append(np.ascontiguousarray(np.array(plan, dtype=np.int64).T))
        return (plans[0], plans[1]), np.concatenate(flat)

    @cached_property
    def _places(self) -> tuple[Integers, *tuple[tuple[Integers, Integers], ...]]:
        """Steps along the axes, and where functions and pairs go: see `compiled_cells.add_cells`."""
        steps = np.ascontiguousarray(_steps(self.extents)[::-1])
        inner, many = _steps(self.offsets)[::-1], math.prod(self.offsets)
        a, o = self._features[0].pair_index()
        count = self._features[0].offsets
        rows = np.arange(self._features[0].width), a * count + o
        run = np.arange(_kernels().RUN + self._features[0].width)
        lines = run * steps[0], (run[:, None] * (steps[0] * many) + np.arange(count) * inner[0]).ravel()
        functions, pairs = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
        for f, step, step_o in zip(self._features[1:], steps[1:], inner[1:], strict=True):
            a, o = f.pair_index()
            functions = (functions[:, None] + np.arange(f.width) * step).ravel()
            pairs = (pairs[:, None] + a * (step * many) + o * step_o).ravel()
        last = self._features[-1].width
        places = functions.reshape(-1, last), pairs.reshape(-1, last * (last + 1) // 2)
        return steps, rows, lines, places


def _steps(lengths: Sequence[int]) -> Integers:
    """Entries between neighbours along each axis of a raveled array."""
    return np.array([math.prod(lengths[axis + 1 :]) for axis in range(len(lengths))], dtype=np.int64)


def _is_identity(table: Floats) -> bool:
    return np.array_equal(table, np.eye(*table.shape))


def labelled(coordinates: Sequence[Floats], span: tuple[int, int]) -> Bools:
    """Rows of a range all of whose coordinates are numbers."""
    out = np.ones(span[1], dtype=bool)
    for x in coordinates:
        out &= ~np.isnan(x[span[0] : span[0] + span[1]])
    return out


def fits(features: Sequence[Features]) -> bool:
    """Several axes, and a row of products of columns that a cache holds."""
    widths = [columns_of(f).size for f in features]
    return len(widths) > 1 and math.prod(widths[:-1]) <= WIDEST and math.prod(widths) <= 32 * WIDEST


def _ends(x: Floats) -> tuple[float, float]:
    return np.fmin.reduce(x), np.fmax.reduce(x)


def cell_range(features: Features, ends: Callable[[], tuple[float, float]]) -> tuple[int, int]:
    """First and last cell that positions can be in; `ends` gives the least and the greatest, NaN if all are missing."""
    if features.domain is None:  # a circle, or one cell for all
        return 0, features.cells - 1
    low, high = features.locate(np.clip(ends(), *features.domain))[0]
    return max(int(low), 0), max(int(high), 0)  # all missing: -1


def _keys(
    features: Sequence[Features],
    coordinates: Sequence[Floats],
    ranges: Sequence[tuple[int, int]],
    engine: Positions,
) -> Integers:
    keys = np.zeros(coordinates[0].size, dtype=np.int64)
    for f, x, (low, high) in zip(features, coordinates, ranges, strict=True):
        cell, _ = engine.locate(f, x)
        _kernels().ravel_cells(cell, low, high - low + 1, keys)
    return keys


def _kernels() -> ModuleType:
    from . import compiled_cells  # numba takes 0.3 s to import: not before the first kernel call

    return compiled_cells
