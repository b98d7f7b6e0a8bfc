"""The rows of one group inside a slab: which coefficients each row touches, and with what values.

A row touches, per coefficient axis, a patch of consecutive coefficients. Periodic axes are unrolled:
positions run on past the last coefficient, and the overhang is added to the front (or read from it) once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from xspline.sums.window import union

from .layout import Bools, Floats, Integers

if TYPE_CHECKING:
    from xspline.spaces.features import Features

PAIRS = -1  # in place of a derivative order: products of two functions, for G


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


def touched_cells(features: Features, x: Floats, tile: int = 1 << 16) -> Bools:
    """Cells [m] that hold a position x [n]; located tile by tile."""
    touched = np.zeros(features.cells, dtype=bool)
    for first in range(0, x.size, tile):
        cell, _ = features.locate(x[first : first + tile])
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
    values : tuple of ndarray, float64 [n, Q]
        Per axis, values of the active functions or of their products; zero rows outside the domain.
    columns : tuple of ndarray, int64 [Q]
        Per axis, position a · O + o of each value inside a patch.
    patch, shape : tuple of (int, int)
        Per axis, (functions, offsets) of a patch and of the stretch of this slab; offsets 1 unless pairs.
    low : tuple of int
        Per axis, where the stretch of this slab begins in the block's reach.
    inside : ndarray, bool [n]
        Rows inside the domains of all axes.
    """

    count: int
    base: tuple[Integers, ...]
    values: tuple[Floats, ...]
    columns: tuple[Integers, ...]
    patch: tuple[tuple[int, int], ...]
    shape: tuple[tuple[int, int], ...]
    low: tuple[int, ...]
    inside: Bools

    @property
    def width(self) -> int:
        """Values per row: the product of those of the axes."""
        return math.prod(values.shape[1] for values in self.values)

    @property
    def extent(self) -> int:
        """Entries of the stretch, all axes raveled."""
        return math.prod(k * o for k, o in self.shape)

    def start(self) -> Integers:
        """Where the patch of each row begins in the raveled stretch: [n]."""
        out = np.zeros(self.count, dtype=np.int64)
        for base, (extent, offsets) in zip(self.base, self.shape, strict=True):
            out = (out * extent + base) * offsets
        return out

    def places(self) -> Integers:
        """Where the values of a row go, relative to its start in the raveled stretch: [width]."""
        return _places(self.columns, self.shape)

    def places_in_patch(self) -> Integers:
        """Where the values of a row go in the raveled patch: [width]."""
        return _places(self.columns, self.patch)


def _places(columns: Sequence[Integers], shape: Sequence[tuple[int, int]]) -> Integers:
    out = np.zeros(1, dtype=np.int64)
    for column, (extent, offsets) in zip(columns, shape, strict=True):
        out = (out[:, None] * (extent * offsets) + column).ravel()
    return out


def build_rows(
    features: Sequence[Features],
    coordinates: Sequence[Floats],
    reaches: Sequence[Reach],
    orders: Sequence[int],
    *,
    count: int,
    outside: float = 0.0,
) -> Rows:
    """Rows of one group.

    Parameters
    ----------
    features, reaches, orders : sequence
        One per coefficient axis of the group; an order is that of a derivative, or `PAIRS`.
    coordinates : sequence of ndarray, [n]
        One per axis.
    count : int
        Number of rows, n (pooled groups have no coordinates).
    outside : float
        What the values of rows outside the domain are.
    """
    axes = [_axis_rows(*each, outside) for each in zip(features, coordinates, reaches, orders, strict=True)]
    base, values, columns, patch, shape, low, inside = zip(*axes, strict=True) if axes else ((),) * 7
    everywhere = np.logical_and.reduce(inside) if axes else np.ones(count, dtype=bool)
    return Rows(count, base, values, columns, patch, shape, low, everywhere)


def _axis_rows(
    features: Features, x: Floats, reach: Reach, order: int, outside: float
) -> tuple[Integers, Floats, Integers, tuple[int, int], tuple[int, int], int, Bools]:
    """(base, values, columns, patch, shape, low, inside) of one axis."""
    cell, z = features.locate(x)
    inside = cell >= 0
    if order == PAIRS:
        a, o = features.pair_index()
        values, offsets = features.pair_features(cell, z), features.offsets
    else:
        a, o = np.arange(features.width), np.zeros(features.width, dtype=np.int64)
        values, offsets = features.features(cell, z, order), 1
    base = features.first[np.maximum(cell, 0)] - reach.start
    if features.periodic:
        base = base % features.size
    low, high = (int(base[inside].min()), int(base[inside].max())) if inside.any() else (0, 0)
    base = np.where(inside, base - low, 0)
    if outside != 0.0:
        values = np.where(inside[:, None], values, outside)
    patch, shape = (features.width, offsets), (high - low + features.width, offsets)
    return base, np.ascontiguousarray(values), a * offsets + o, patch, shape, low, inside
