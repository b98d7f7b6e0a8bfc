"""The rows of one group inside a slab: which coefficients each row touches, and with what values.

A row touches, per coefficient axis, a patch of consecutive coefficients. Periodic axes are unrolled:
positions run on past the last coefficient, and the overhang is added to the front (or read from it) once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Protocol

import numpy as np

from xspline.sums.window import union

from .layout import Bools, Floats, Integers

if TYPE_CHECKING:
    from xspline.spaces.features import Features


class Positions(Protocol):
    """How positions become values of functions: `Features` itself, or a compiled twin of it."""

    def locate(self, features: Features, x: Floats) -> tuple[Integers, Floats]:
        """Cell [n] and local coordinate [n] of positions x [n]."""
        ...

    def values(self, features: Features, cell: Integers, z: Floats, order: int) -> Floats:
        """Values [n, q] of the active functions, or of their derivatives."""
        ...


@dataclass(frozen=True)
class Reach:
    """The stretch of one coefficient axis that a block touches, unrolled.

    `start` and `length` are its window; `extent` is the length plus the overhang of a full circle.
    """

    start: int
    length: int
    extent: int

    @staticmethod
    def of(features: Features, touched: Bools) -> Reach:
        """Smallest reach of the cells that are `touched`: bool [m]."""
        firsts = np.unique(features.first[touched])
        windows = [((int(first), features.width),) for first in firsts]
        ((start, length),) = union(windows, (features.size,), (features.periodic,))
        return Reach(start, length, length + _overhang(features, length))

    @staticmethod
    def whole(features: Features) -> Reach:
        """All coefficients."""
        return Reach(0, features.size, features.size + _overhang(features, features.size))


def _overhang(features: Features, length: int) -> int:
    return features.width - 1 if features.periodic and length == features.size else 0


def base_of_cells(features: Features, reach: Reach) -> Integers:
    """Where the patch of each cell begins, counted from the start of the reach: [m]."""
    base = features.first - reach.start
    return base % features.size if features.periodic else base


def touched_cells(features: Features, x: Floats, engine: Positions, tile: int = 1 << 15) -> Bools:
    """Cells [m] that hold a position x [n]; located tile by tile."""
    touched = np.zeros(features.cells, dtype=bool)
    for first in range(0, x.size, tile):
        cell, _ = engine.locate(features, x[first : first + tile])
        touched[cell[cell >= 0]] = True
    return touched


@dataclass(frozen=True, eq=False)
class Rows:
    """Features of the rows of one group.

    Attributes
    ----------
    count : int
        Number of rows, n.
    base : tuple of ndarray, int64 [n]
        Per coefficient axis of the group: where the patch of each row begins, counted from `low`.
    table : ndarray, float64 [n, sum of functions]
        Values of the active functions, the axes side by side.
    functions : tuple of int
        Per axis, number of active functions.
    extents : tuple of int
        Per axis, length of the stretch that these rows touch.
    low : tuple of int
        Per axis, where that stretch begins in the block's reach.
    inside : ndarray, bool [n]
        Rows inside the domains of all axes.
    pairs : bool
        Whether the values of a row are the products of two functions (a, a + o), a-major, for G.
    """

    count: int
    base: tuple[Integers, ...]
    table: Floats
    functions: tuple[int, ...]
    extents: tuple[int, ...]
    low: tuple[int, ...]
    inside: Bools
    pairs: bool = False

    def paired(self) -> Rows:
        """The same rows, for pairs."""
        return replace(self, pairs=True)

    @property
    def width(self) -> int:
        """Values per row: the product of those of the axes."""
        return math.prod(q * (q + 1) // 2 if self.pairs else q for q in self.functions)

    @property
    def extent(self) -> int:
        """Entries of the stretch, all axes raveled."""
        return math.prod(k * o for k, o in self.shape)

    @property
    def patch(self) -> tuple[tuple[int, int], ...]:
        """Per axis, (functions, offsets) of what one row touches; offsets are 1 unless pairs."""
        return tuple((q, q if self.pairs else 1) for q in self.functions)

    @property
    def shape(self) -> tuple[tuple[int, int], ...]:
        """Per axis, (length, offsets) of the stretch."""
        return tuple((n, o) for n, (_, o) in zip(self.extents, self.patch, strict=True))

    @cached_property
    def values(self) -> tuple[Floats, ...]:
        """Per axis, [n, values]."""
        borders = np.cumsum((0, *self.functions))
        tables = [self.table[:, i:j] for i, j in itertools.pairwise(borders)]
        return tuple(_products(table) for table in tables) if self.pairs else tuple(tables)

    def start(self) -> Integers:
        """Where the patch of each row begins in the raveled stretch: [n]."""
        out = np.zeros(self.count, dtype=np.int64)
        for base, (extent, offsets) in zip(self.base, self.shape, strict=True):
            out = (out * extent + base) * offsets
        return out

    def places(self) -> Integers:
        """Where the values of a row go, relative to its start in the raveled stretch: [width]."""
        return _places(self.functions, self.shape, self.pairs)

    def places_in_patch(self) -> Integers:
        """Where the values of a row go in the raveled patch: [width]."""
        return _places(self.functions, self.patch, self.pairs)


@lru_cache(maxsize=1024)
def _places(functions: tuple[int, ...], shape: tuple[tuple[int, int], ...], pairs: bool) -> Integers:
    out = np.zeros(1, dtype=np.int64)
    for q, (extent, offsets) in zip(functions, shape, strict=True):
        a, b = np.triu_indices(q)
        column = a * offsets + b - a if pairs else np.arange(q)
        out = (out[:, None] * (extent * offsets) + column).ravel()
    return out


def _products(table: Floats) -> Floats:
    """Products of the functions a and a + o, a-major: [n, q] to [n, q (q + 1) / 2]."""
    out = np.empty((table.shape[0], table.shape[1] * (table.shape[1] + 1) // 2))
    for column, (a, b) in enumerate(zip(*np.triu_indices(table.shape[1]), strict=True)):
        np.multiply(table[:, a], table[:, b], out=out[:, column])
    return out


def build_rows(
    features: Sequence[Features],
    coordinates: Sequence[Floats],
    reaches: Sequence[Reach],
    orders: Sequence[int],
    engine: Positions,
    *,
    count: int,
    outside: float = 0.0,
) -> Rows:
    """Rows of one group.

    Parameters
    ----------
    features, reaches, orders : sequence
        One per coefficient axis of the group; an order is that of a derivative.
    coordinates : sequence of ndarray, [n]
        One per axis.
    engine : Positions
        What computes them.
    count : int
        Number of rows, n (pooled groups have no coordinates).
    outside : float
        What the values of rows outside the domain are.
    """
    functions = tuple(f.width for f in features)
    table, inside = np.empty((count, sum(functions))), np.ones(count, dtype=bool)
    places: list[tuple[Integers, int, int]] = []
    last = 0
    for f, x, reach, order in zip(features, coordinates, reaches, orders, strict=True):
        cell, z = engine.locate(f, x)
        values, last = engine.values(f, cell, z, order), last + f.width
        table[:, last - f.width : last] = values
        table[cell < 0, last - f.width : last] = outside
        inside &= cell >= 0
        places.append(_place(f, cell, reach))
    base, extents, low = zip(*places, strict=True) if places else ((), (), ())
    return Rows(count, base, table, functions, extents, low, inside)


def _place(features: Features, cell: Integers, reach: Reach) -> tuple[Integers, int, int]:
    """Where patches begin in their stretch, how long that is, and where it begins in the reach."""
    inside = cell >= 0
    base = base_of_cells(features, reach)[np.maximum(cell, 0)]
    low, high = (int(base[inside].min()), int(base[inside].max())) if inside.any() else (0, 0)
    return np.where(inside, base - low, 0), high - low + features.width, low
