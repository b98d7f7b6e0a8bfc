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
from functools import cached_property, lru_cache
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from numpy.polynomial import legendre

from .layout import Floats, Integers
from .rows import Positions, Reach, base_of_cells

if TYPE_CHECKING:
    from xspline.spaces.features import Features

ROWS_PER_CELL = 3  # with fewer, turning the sums of a cell into pairs costs more than rows of products
WIDEST = 1 << 11  # products of columns in a row of a tile, so that a tile stays in the cache
MULTIPLE = 8  # the columns of the last axis are padded to a multiple of it, for vector instructions


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


@lru_cache(maxsize=256)
def columns_of(features: Features) -> Columns:
    """Legendre polynomials on the cells of a B-spline; functions and products of them for other bases."""
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


def given_columns(features: Features, cell: Integers, z: Floats) -> Floats:
    """Columns [L, n] of a basis other than a B-spline."""
    pairs = features.pair_features(cell, z).T
    return pairs if _begins_with_one(features) else np.concatenate([features.features(cell, z).T, pairs])


@dataclass(frozen=True, eq=False)
class Cells:
    """The rows of a group in the order of their cells.

    Attributes
    ----------
    features, coordinates, reaches : tuple
        One per coefficient axis of the group; coordinates [n].
    keys : ndarray, int32 [n]
        Where the patch of each row begins in the raveled stretch of the block; -1 outside the domains.
    order : ndarray, int32
        Rows inside, sorted by key.
    ends : ndarray, int64 [entries of the stretch]
        Number of sorted rows up to and with those of each key.
    """

    features: tuple[Features, ...]
    coordinates: tuple[Floats, ...]
    reaches: tuple[Reach, ...]
    keys: np.ndarray
    order: np.ndarray
    ends: Integers
    engine: Positions

    @staticmethod
    def sort(
        features: Sequence[Features], coordinates: Sequence[Floats], reaches: Sequence[Reach], engine: Positions
    ) -> Cells | None:
        """Cells of a group; None where rows are too few, or too wide, to gain from them."""
        extents = [reach.extent for reach in reaches]
        count, stretch = coordinates[0].size, math.prod(extents)
        if not _fits(features) or count >= 1 << 31 or stretch > max(4 * count, 1 << 12):
            return None
        keys = np.empty(count, dtype=np.int32)
        for first in range(0, count, 1 << 15):
            span = slice(first, first + (1 << 15))
            keys[span] = _keys(features, [x[span] for x in coordinates], reaches, engine)
        ends = np.zeros(stretch, dtype=np.int64)
        order = _kernels().sort_rows(keys, ends)
        occupied = np.count_nonzero(np.diff(ends, prepend=0))
        if order.size < ROWS_PER_CELL * occupied:
            return None
        return Cells(tuple(features), tuple(coordinates), tuple(reaches), keys, order, ends, engine)

    @cached_property
    def columns(self) -> tuple[Columns, ...]:
        """What rows give, per axis."""
        return tuple(columns_of(f) for f in self.features)

    @cached_property
    def extents(self) -> tuple[int, ...]:
        """Extent of the stretch, per axis."""
        return tuple(reach.extent for reach in self.reaches)

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        return tuple(f.offsets for f in self.features)

    @cached_property
    def _tables(self) -> tuple[list[Integers], Floats]:
        """(start, step from one patch to the next) of each axis, for moments and for pairs; all tables."""
        flat, places, end = [], [], 0
        for kind in ("functions", "pairs"):
            found = []
            for f, reach, columns in zip(self.features, self.reaches, self.columns, strict=True):
                table = getattr(columns, kind)
                if len(table) > 1:
                    table = table[_cell_of_base(f, reach)]
                found.append((end, table[0].size if len(table) > 1 else 0))
                flat.append(table.ravel())
                end += table.size
            places += list(np.array(found).T)
        return places, np.concatenate(flat)

    @cached_property
    def plan(self) -> Integers:
        """Numbers of each axis, [12, axes].

        Columns; their stride on the way to pairs and to moments; functions; pairs; first row in the table of
        rows; whether columns are given; extent of the stretch; start of the tables of functions, step from
        patch to patch; the same of the tables of pairs.
        """
        columns = [c.size for c in self.columns]
        functions = [f.width for f in self.features]
        strides = [*columns[:-1], -(-columns[-1] // MULTIPLE) * MULTIPLE]
        narrow = [functions[0], *strides[1:]]
        if len(columns) > 2:
            narrow[1] = functions[1]
        lines = [1 if c.of_position else c.size for c in self.columns]
        pairs = [q * (q + 1) // 2 for q in functions]
        given = [int(not c.of_position) for c in self.columns]
        rows = np.cumsum([0, *lines[:-1]])
        places, _ = self._tables
        plan = [columns, strides, narrow, functions, pairs, rows, given, self.extents, *places]
        return np.ascontiguousarray(plan, dtype=np.int64)

    @cached_property
    def places(self) -> tuple[Integers, Integers]:
        """Where functions and pairs go in the raveled stretch, relative to the first."""
        functions, pairs, offsets = (np.zeros(1, dtype=np.int64) for _ in range(3))
        for f, extent in zip(self.features, self.extents, strict=True):
            a, o = f.pair_index()
            functions = (functions[:, None] * extent + np.arange(f.width)).ravel()
            pairs = (pairs[:, None] * extent + a).ravel()
            offsets = (offsets[:, None] * f.offsets + o).ravel()
        return functions, pairs * math.prod(self.offsets) + offsets

    def slabs(self, rows: int) -> Iterator[tuple[int, Integers]]:
        """(number of the first, rows) of consecutive sorted rows."""
        for first in range(0, self.order.size, rows):
            yield first, self.order[first : first + rows].astype(np.int64)

    def table(self, rows: Integers) -> Floats:
        """Local coordinates, or columns, of some rows: [numbers per row, rows]."""
        out = []
        for f, x, columns in zip(self.features, self.coordinates, self.columns, strict=True):
            cell, z = self.engine.locate(f, x[rows])
            out.append(z[None] if columns.of_position else given_columns(f, cell, z))
        return np.concatenate(out)

    def add(self, first: int, rows: Integers, weights: Floats, errors: Floats, total: CellTotal) -> None:
        """Add sorted rows from the `first` on: weights and weighted errors are [members, rows]."""
        _kernels().add_cells(
            first, self.ends, self.table(rows), weights, errors, self.plan, self._tables[1], *self.places,
            total.moment, total.pairs,
        )  # fmt: skip


class CellTotal:
    """Moments and pairs of the cells of a group, unrolled: [members, stretch] and [members, stretch, offsets].

    Parameters
    ----------
    moments, pairs : int
        Members of each; 0 for none.
    """

    def __init__(self, cells: Cells, moments: int, pairs: int) -> None:
        stretch = cells.ends.size
        self.cells = cells
        self.moment = np.zeros((moments, stretch))
        self.pairs = np.zeros((pairs, stretch, math.prod(cells.offsets)))


def _fits(features: Sequence[Features]) -> bool:
    """Several axes, and a row of products of columns that a cache holds."""
    widths = [columns_of(f).size for f in features] if len(features) > 1 else [WIDEST + 1]
    return math.prod(widths[1:]) <= WIDEST and math.prod(widths) <= 32 * WIDEST


def _keys(
    features: Sequence[Features], coordinates: Sequence[Floats], reaches: Sequence[Reach], engine: Positions
) -> Integers:
    keys = np.zeros(coordinates[0].size, dtype=np.int64)
    for f, x, reach in zip(features, coordinates, reaches, strict=True):
        cell, _ = engine.locate(f, x)
        _kernels().ravel_cells(cell, base_of_cells(f, reach), reach.extent, keys)
    return keys


def _cell_of_base(features: Features, reach: Reach) -> Integers:
    """The cell whose patch begins at each place of a stretch: [extent]; 0 where none does."""
    out, base = np.zeros(reach.extent, dtype=np.int64), base_of_cells(features, reach)
    inside = (base >= 0) & (base < reach.extent)
    out[base[inside]] = np.flatnonzero(inside)
    return out


def _kernels() -> ModuleType:
    from . import compiled  # numba takes 0.3 s to import: not before the first kernel call

    return compiled
