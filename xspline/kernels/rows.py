"""The rows of one group inside a slab: which coefficients each row touches, and with what values.

A row touches, per coefficient axis, consecutive coefficients: its *support*. All rows of a slab together touch a
*box* of coefficients, a range per axis. Periodic axes are unrolled: positions run on past the last coefficient, and
the overhang is added to the front (or read from it) once. So are those of bases with functions active everywhere
(`spaces.features.Support`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from xspline.kernels.block import Array, Bools, Floats, Integers, Scratch
from xspline.spaces.bspline import LocalSpline
from xspline.spaces.features import Features, Support, pair_products
from xspline.sums.window import union


def locate(
    features: Features, x: Floats, compiled: bool, extrapolate: bool = False, memory: Scratch | None = None
) -> tuple[Integers, Floats]:
    """Cell [n] and local coordinate [n] of positions x [n]: `Features.locate`, or its compiled twin.

    What the twin returns lies in `memory`, if it is given, and is used before that is taken again.
    """
    if extrapolate:
        return features.locate_anywhere(x)
    if not (compiled and isinstance(features, LocalSpline)):
        return features.locate(x if x.dtype.kind == "c" else x.astype(np.float64, copy=False))
    # Numba takes 0.3 s to import: not before it is needed.
    from xspline.kernels.compiled import by_cell as loops

    own, z, cells = np.empty((3, x.size)) if memory is None else memory.take((3, x.size))
    own[:], cell = x, cells.view(np.int64)
    ends, step = np.nextafter(features.ends, (-np.inf, np.inf)), float(features.lengths[0])
    edges = np.array(features.edges)  # writable, as every argument is: one specialisation
    loops.locate(own, edges, step, ends, features.uniform, features.periodic, cell, z)
    return cell, z


def function_values(features: Features, cell: Integers, z: Floats, order: int, compiled: bool) -> Floats:
    """Values [n, q] of the active functions, or of their derivatives: `Features.features`, or its compiled twin."""
    if not (compiled and isinstance(features, LocalSpline)):
        return features.features(cell, z, order)
    from xspline.kernels.compiled import by_cell as loops

    out = np.empty((cell.size, features.width))
    loops.series(cell, z, np.array(features.derivative_table(order), order="C"), out)
    return out


@dataclass(frozen=True)
class CoefficientRange:
    """The coefficients of one axis that a block touches, unrolled."""

    start: int  # where its window begins
    length: int  # how long its window is
    extent: int  # the length plus the overhang of a full circle

    @staticmethod
    def of(features: Features, touched: Bools) -> CoefficientRange:
        """Smallest range that holds the coefficients of the cells that are `touched`: bool [m]."""
        if features.support.everywhere:
            return CoefficientRange.whole(features)
        windows = [((int(first), features.width),) for first in np.unique(features.first[touched])]
        ((start, length),) = union(windows, (features.size,), (features.periodic,))
        overhang = features.width - 1 if features.periodic and length == features.size else 0
        return CoefficientRange(start, length, length + overhang)

    @staticmethod
    def whole(features: Features) -> CoefficientRange:
        """All coefficients; those of functions active everywhere wait at the others."""
        overhang = features.width - 1 if features.periodic else -features.support.everywhere
        return CoefficientRange(0, features.size, features.size + overhang)

    def bases(self, features: Features) -> Integers:
        """First coefficient of each cell, counted from the start of the range: [m]."""
        base = features.first - self.start
        return base % features.size if features.periodic else base


GROUP = np.iinfo(np.uint8).bits  # rows of one cell whose validity is kept in one byte


class SortedRows(NamedTuple):
    """Rows of one coefficient axis sorted by cell, as compiled loops take them."""

    order: Integers  # [n], rows sorted by where their supports start
    ends: Integers  # [cells], number of sorted rows up to the end of each cell
    start: Integers  # [n], where supports start, in this order
    places: Integers  # [width], where values go, from the start of a support on
    values: Floats  # [n, width], values of the supports

    @property
    def groups(self) -> int:
        """Number of groups of rows, each of one cell."""
        return int(np.sum(-(-np.diff(self.ends, prepend=0) // GROUP)))


class LineSums(NamedTuple):
    """What a sweep takes from lines of values along one axis."""

    sums: Array  # [before, after, R], contractions of the lines with the rows
    power: Array = None  # [before, after] of a moment, Σ e²; None of pairs
    count: Array = None  # likewise how many rows are known
    # [before, m, after], which rows are: on the host m groups of them in bits, else one digest, the sum of their words
    known: Array = None


def row_words(count: int) -> Integers:
    """One word for each of some rows: sums of two different sets of them are equal with a chance of 2⁻⁶⁴."""
    return np.random.default_rng(count).integers(-(2**63), 2**63, count, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Rows:
    """Features of the rows of one group."""

    count: int  # number of rows, n
    # [n], per coefficient axis of the group: where the support of each row begins, counted from `low`
    base: tuple[Integers, ...]
    table: Floats  # [n, sum of functions], values of the active functions, the axes side by side
    supports: tuple[Support, ...]  # per axis, the active functions
    # per axis, number of coefficients that these rows touch: the lengths of their box
    extents: tuple[int, ...]
    low: tuple[int, ...]  # per axis, where the box begins in the block's range of coefficients
    inside: Bools  # [n], rows inside the domains of all axes
    # whether the values of a row are the products of two functions (a, a + o), a-major, for G
    pairs: bool = False

    def paired(self) -> Rows:
        """The same rows, for pairs."""
        return replace(self, pairs=True)

    def folded(self) -> Rows:
        """The same rows, of an axis of one cell, for pairs side by side, without places for those that none has."""
        support = Support(1, self.supports[0].width - 1)
        return replace(self, pairs=True, supports=(support,), extents=(1,))

    @property
    def functions(self) -> tuple[int, ...]:
        """Per axis, number of active functions."""
        return tuple(s.width for s in self.supports)

    @property
    def width(self) -> int:
        """Values per row: the product of those of the axes."""
        return math.prod(q * (q + 1) // 2 if self.pairs else q for q in self.functions)

    @property
    def extent(self) -> int:
        """Entries of the box, all axes raveled."""
        return math.prod(k * o for k, o in self.box)

    @property
    def support(self) -> tuple[tuple[int, int], ...]:
        """Per axis, (functions, offsets) of what one row touches, unrolled."""
        return tuple((s.near, s.depth(self.pairs)) for s in self.supports)

    @property
    def box(self) -> tuple[tuple[int, int], ...]:
        """Per axis, (coefficients, offsets) of what all rows touch."""
        return tuple((n, o) for n, (_, o) in zip(self.extents, self.support, strict=True))

    @property
    def spans(self) -> list[slice]:
        """Per axis, the coefficients and the offsets of the box as slices of the block's."""
        spans = zip(self.low, self.box, strict=True)
        return [span for low, (k, o) in spans for span in (slice(low, low + k), slice(0, o))]

    @cached_property
    def values(self) -> tuple[Floats, ...]:
        """Per axis, [n, values]."""
        borders = np.cumsum((0, *self.functions))
        tables = [self.table[:, i:j] for i, j in itertools.pairwise(borders)]
        return tuple(map(pair_products, tables)) if self.pairs else tuple(tables)

    @cached_property
    def sorted(self) -> SortedRows:
        """Rows of one coefficient axis sorted by cell."""
        start = self.start()
        order = np.argsort(start, kind="stable")
        start = start[order]
        ends = np.flatnonzero(np.diff(start, append=-1)) + 1
        values = np.ascontiguousarray(self.values[0][order])
        return SortedRows(order, ends, start, self.places(), values)

    def start(self) -> Integers:
        """Where the support of each row begins in the raveled box: [n]."""
        out = np.zeros(self.count, dtype=np.int64)
        for base, (extent, offsets) in zip(self.base, self.box, strict=True):
            out = (out * extent + base) * offsets
        return out

    def places(self) -> Integers:
        """Where the values of a row go, relative to its start in the raveled box: [width]."""
        return _places(self.supports, self.box, self.pairs)

    def places_in_support(self) -> Integers:
        """Where the values of a row go in its raveled support: [width]."""
        return _places(self.supports, self.support, self.pairs)


@lru_cache(maxsize=1024)
def _places(supports: tuple[Support, ...], box: tuple[tuple[int, int], ...], pairs: bool) -> Integers:
    out = np.zeros(1, dtype=np.int64)
    for support, (extent, offsets) in zip(supports, box, strict=True):
        behind, entry = support.index(pairs)
        out = (out[:, None] * (extent * offsets) + behind * offsets + entry).ravel()
    return out


def build_rows(
    features: Sequence[Features],
    coordinates: Sequence[Floats],
    ranges: Sequence[CoefficientRange],
    orders: Sequence[int],
    span: tuple[int, int],
    compiled: bool,
    outside: float = 0.0,
    extrapolate: bool = False,
) -> Rows:
    """A range of the rows of one group.

    `features`, `ranges`, `orders`, those of derivatives, and `coordinates`, of all rows of the group, are one per
    coefficient axis of it. `span` is the first row and the number of them, n (pooled groups have no coordinates).
    `compiled` tells whether compiled loops locate the rows of B-splines, `outside` what the values of rows outside the
    domain are, and `extrapolate` whether the functions at the ends of the domain go on outside.
    """
    supports, (start, count) = tuple(f.support for f in features), span
    table = np.empty((count, sum(s.width for s in supports)))
    inside = np.ones(count, dtype=bool)
    base: list[Integers] = []
    extents: list[int] = []
    lows: list[int] = []
    last = 0
    for f, x, touched, order in zip(features, coordinates, ranges, orders, strict=True):
        cell, z = locate(f, x[start : start + count], compiled, extrapolate)
        known, (first, last) = cell >= 0, (last, last + f.width)
        table[:, first:last] = function_values(f, cell, z, order, compiled)
        table[~known, first:last] = outside
        inside &= known
        begin = touched.bases(f)[np.maximum(cell, 0)]
        low, high = (int(begin[known].min()), int(begin[known].max())) if known.any() else (0, 0)
        base.append(np.where(known, begin - low, 0))
        extents.append(high - low + f.support.near)
        lows.append(low)
    return Rows(count, tuple(base), table, supports, tuple(extents), tuple(lows), inside)


# Unrolled arrays and back


def roll_up(total: Floats, features: Features, length: int, axis: int, entry: int, pairs: bool) -> Floats:
    """Coefficients of one axis, or pairs, from sums over rows, which are unrolled.

    The overhang of a full circle is added to its beginning; what belongs to functions active everywhere is added up. In
    `total`, `axis` has the extent of a `CoefficientRange` of `length` coefficients, and axis `entry` the depth of the
    support. The result has that length along `axis`, and along `entry` that of the offsets, or 1.
    """
    m, near = features.support.everywhere, features.support.near
    moved = np.moveaxis(total, (axis, entry), (0, 1))
    if m:
        out = np.zeros((features.size, features.offsets if pairs else 1, *moved.shape[2:]))
        out[m:] = moved[:, : out.shape[1]]
        first, second = np.triu_indices(m) if pairs else (np.arange(m),) * 2
        # The pair of functions i < j active everywhere is (j, near + i).
        out[second, np.where(first == second, 0, near + first)] = moved[:, out.shape[1] :].sum(axis=0)
    elif len(moved) > length:
        # A circle shorter than its overhang would have to be added more than once around; such bases are global.
        out, tail = moved[:length], moved[length:]
        out[: len(tail)] += tail
    else:
        return total
    return np.moveaxis(out, (0, 1), (axis, entry))


def unrolled(array: Array, features: Features, axis: int, entry: int, pairs: bool, xp: Any) -> Array:
    """The transpose of `roll_up`, over all coefficients: what each cell reads lies at the same places of it."""
    m, near, ndim = features.support.everywhere, features.support.near, array.ndim
    before = (slice(None),) * axis
    if not m:
        tail = CoefficientRange.whole(features).extent - features.size
        return xp.concat([array, array[(*before, slice(0, tail), ...)]], axis=axis) if tail else array
    order = (axis, entry, *(i for i in range(ndim) if i not in (axis, entry)))
    moved = xp.permute_dims(array, order)
    first, second = np.triu_indices(m) if pairs else (np.arange(m),) * 2
    places = zip(second.tolist(), np.where(first == second, 0, near + first).tolist(), strict=True)
    shared = xp.stack([moved[k, o, ...] for k, o in places])[None, ...]
    local = moved[m:, ...]
    shared = xp.broadcast_to(shared, (local.shape[0], *shared.shape[1:]))
    back = tuple(int(i) for i in np.argsort(order))
    return xp.permute_dims(xp.concat([local, shared], axis=1), back)
