"""The walk over a block: slabs of float64 values and weights, one axis per group, and the rows of each group.

Nothing here is as large as the block: a slab is read, cast, used and forgotten.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import array_api_compat
import numpy as np

from xspline.kernels.block import (
    SLAB_ENTRIES,
    Array,
    Block,
    Floats,
    Layout,
    Scratch,
    count_true,
    first_true,
    native,
    to_host,
    to_namespace,
)
from xspline.kernels.engines import Engine
from xspline.kernels.points.cells import Cells, fits, labelled
from xspline.kernels.points.tiles import Tiles
from xspline.kernels.rows import CoefficientRange, Rows, build_rows, locate
from xspline.spaces import Space
from xspline.sums import Tally

VALUES = Scratch()


def flat_labels(x: Array) -> Floats:
    """Labels in one dimension, as float64; the ends of cells stay complex numbers."""
    flat = np.asarray(x).reshape(-1)
    return flat if flat.dtype.kind == "c" else flat.astype(np.float64, copy=False)


Component: TypeAlias = frozenset[int]
"""Groups of a layout, by their numbers; all batch dimensions together have the number after the last group's."""


@dataclass(frozen=True)
class SlabAxis:
    """One axis of a slab: the dimensions of a group, raveled, or one batch dimension."""

    axes: tuple[int, ...]
    group: int  # the group's number, in stored order; of batch dimensions the number after the last
    coefficient_axes: tuple[int, ...]
    is_batch: bool = False

    def length(self, shape: Sequence[int]) -> int:
        """Number of rows for values of this shape."""
        return math.prod(shape[axis] for axis in self.axes)


def slab_axes_of(layout: Layout) -> tuple[SlabAxis, ...]:
    """The axes of slabs in the order of their first data axes, scalar groups first."""
    axes = [SlabAxis(group.data_axes, i, group.coefficient_axes) for i, group in enumerate(layout.groups)]
    axes += [SlabAxis((axis,), len(layout.groups), (), is_batch=True) for axis in layout.batch_axes]
    return tuple(sorted(axes, key=lambda axis: min(axis.axes, default=-1)))


@dataclass(frozen=True)
class SlabBox:
    """Where a slab lies: slices of the values, axis by axis, and rows (first, number) along each axis of the slab."""

    slices: tuple[slice, ...]
    rows: tuple[tuple[int, int], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the slab's axes."""
        return tuple(count for _, count in self.rows)

    @property
    def spans(self) -> tuple[slice, ...]:
        """The rows as slices of an array with the axes of slabs."""
        return tuple(slice(first, first + count) for first, count in self.rows)


def slab_boxes(
    shape: Sequence[int],
    slab_axes: Sequence[SlabAxis],
    limit: int,
    rows_limit: int = SLAB_ENTRIES // 4,
    whole: Sequence[int] = (),
) -> Iterator[SlabBox]:
    """Cut values into slabs of at most `limit` entries and, per group, `rows_limit` rows.

    Leading axes are cut first, and an axis only where those before it in its group are down to one index, so
    that the rows of every group stay a range. Groups with more rows than the limit are cut before all others:
    the features of a row are then computed once and serve all slabs that follow. Axes in `whole` are never cut,
    and do not count.
    """
    shape = tuple(shape)
    free = [axis for axis in slab_axes if not set(axis.axes) & set(whole)]
    big = [axis for axis in free if not axis.is_batch and axis.length(shape) > rows_limit]
    order = [a for axis in [*big, *(axis for axis in free if axis not in big)] for a in axis.axes]
    steps = list(shape)
    for axis in big:
        _shrink(steps, axis.axes, rows_limit)
    _shrink(steps, order, limit)
    order += whole
    for starts in itertools.product(*(range(0, shape[a], max(steps[a], 1)) for a in order)):
        slices = [slice(0, 0)] * len(shape)
        for a, start in zip(order, starts, strict=True):
            slices[a] = slice(start, min(start + steps[a], shape[a]))
        rows = []
        for axis in slab_axes:
            first, count = 0, 1
            for a in axis.axes:
                first = first * shape[a] + slices[a].start
                count *= slices[a].stop - slices[a].start
            rows.append((first, count))
        yield SlabBox(tuple(slices), tuple(rows))


def _shrink(steps: list[int], axes: Sequence[int], limit: int) -> None:
    """Shorten steps, axis by axis, until their product over the axes is within the limit."""
    for axis in axes:
        total = math.prod(steps[a] for a in axes)
        if total <= limit:
            return
        steps[axis] = max(1, limit * steps[axis] // total)


@dataclass(frozen=True, eq=False)
class Walk:
    """A block, its layout and space, and how its slabs are cut: at most so many entries, and rows of a group."""

    block: Block
    layout: Layout
    space: Space
    engine: Engine
    limit: int
    rows_limit: int = SLAB_ENTRIES // 4  # four functions of each are as much as a slab
    _rows: dict[int, dict[tuple[int, int], Rows]] = field(default_factory=dict)
    _cells: dict[int, Cells | Tiles | None] = field(default_factory=dict)
    _labels: dict[int, Floats] = field(default_factory=dict)

    @cached_property
    def xp(self) -> Any:
        """Array namespace of the values."""
        return array_api_compat.array_namespace(self.block.values)

    @cached_property
    def device(self) -> Any:
        return array_api_compat.device(self.block.values)

    @cached_property
    def on_host(self) -> bool:
        return isinstance(self.block.values, np.ndarray)

    @cached_property
    def slab_axes(self) -> tuple[SlabAxis, ...]:
        return slab_axes_of(self.layout)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Shape of the values."""
        return tuple(self.block.values.shape)

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """Lengths of the slab axes in the whole block."""
        return tuple(axis.length(self.shape) for axis in self.slab_axes)

    @cached_property
    def member_shape(self) -> tuple[int, ...]:
        """Lengths of the batch axes, 1 along all others."""
        pairs = zip(self.slab_axes, self.lengths, strict=True)
        return tuple(n if axis.is_batch else 1 for axis, n in pairs)

    @cached_property
    def pooled(self) -> tuple[int, ...]:
        """Numbers of the slab axes that scalars are summed over: all but the batch."""
        return tuple(i for i, axis in enumerate(self.slab_axes) if not axis.is_batch)

    @cached_property
    def groups(self) -> Component:
        """All groups."""
        return frozenset(axis.group for axis in self.slab_axes)

    @cached_property
    def start(self) -> tuple[int, ...]:
        """Index of the first value in the whole data."""
        return self.block.start or (0,) * len(self.shape)

    # Coefficients

    @cached_property
    def ranges(self) -> tuple[CoefficientRange, ...]:
        """What the coordinates touch, per coefficient axis."""
        out = []
        for a, features in enumerate(self.space.features):
            index = next(i for i, axis in enumerate(self.slab_axes) if a in axis.coefficient_axes)
            cells = self.cells(index)
            # Where no row is outside along another axis either, sorting has found the cells.
            if cells is not None and cells.order.shape == cells.keys.shape:
                touched = cells.touched(self.slab_axes[index].coefficient_axes.index(a))
            else:
                touched, x = np.zeros(features.cells, dtype=bool), self.coordinates_of(a)
                for first in range(0, x.size, SLAB_ENTRIES // 4):  # so many at once, which bounds the memory
                    cell, _ = locate(features, x[first : first + SLAB_ENTRIES // 4], self.engine.compiled)
                    touched[cell[cell >= 0]] = True
            out.append(CoefficientRange.of(features, touched))
        return tuple(out)

    def window(self, axes: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """(first, number) of the coefficients along some coefficient axes."""
        return tuple((self.ranges[axis].start, self.ranges[axis].length) for axis in axes)

    def coefficient_axes(self, component: Component) -> tuple[int, ...]:
        """Coefficient axes of a component, ascending."""
        axes = (axis.coefficient_axes for axis in self.slab_axes if axis.group in component)
        return tuple(sorted(itertools.chain(*axes)))

    # Rows

    def cells(self, index: int) -> Cells | Tiles | None:
        """The rows along a slab axis by cell, where sums go from cell to cell."""
        if index not in self._cells:
            axes = self.slab_axes[index].coefficient_axes
            features, labels = [self.space.features[a] for a in axes], []
            for a in axes if fits(features) else ():  # where the values are
                given = self.block.coordinates[a]
                if isinstance(given, np.ndarray) and self.on_host:
                    labels.append(given.reshape(-1))
                elif isinstance(given, np.ndarray) or self.on_host:
                    labels.append(to_namespace(self.coordinates_of(a), self.xp, self.device))
                else:
                    labels.append(self.xp.astype(self.xp.reshape(given, (-1,)), self.xp.float64, copy=False))
            self._cells[index] = self.engine.sort(features, labels) if labels else None
        return self._cells[index]

    def inside(self, index: int, span: tuple[int, int]) -> Array:
        """Rows of a slab axis that are inside all its domains; on the host or beside the values."""
        cells = self.cells(index)
        return self.rows(index, span).inside if cells is None else cells.inside(span)

    def labelled(self, index: int, span: tuple[int, int]) -> Array:
        """Rows of a slab axis all of whose coordinates are numbers; on the host or beside the values."""
        cells = self.cells(index)
        if cells is not None:
            return cells.labelled(span)
        return labelled([self.coordinates_of(a) for a in self.slab_axes[index].coefficient_axes], span)

    def rows(self, index: int, span: tuple[int, int]) -> Rows:
        """Features of a range of rows of a slab axis; of a long one the last range is remembered, else all."""
        known = self._rows.setdefault(index, {})
        if span not in known:
            if self.lengths[index] > self.rows_limit:
                known.clear()
            axes = self.slab_axes[index].coefficient_axes
            features = [self.space.features[a] for a in axes]
            ranges = [self.ranges[a] for a in axes]
            labels = [self.coordinates_of(a) for a in axes]
            known[span] = build_rows(features, labels, ranges, [0] * len(axes), span, self.engine.compiled)
        return known[span]

    def coordinates_of(self, axis: int) -> Floats:
        """Coordinate of a coefficient axis, one number per row of its group, on the host."""
        if axis not in self._labels:  # kept: it may come from a device
            self._labels[axis] = flat_labels(to_host(self.block.coordinates[axis]))
        return self._labels[axis]

    # Slabs

    @cached_property
    def axis_order(self) -> tuple[int, ...]:
        """Axes of the values in the order of the slab axes: those of a group side by side."""
        return tuple(itertools.chain(*(axis.axes for axis in self.slab_axes)))

    def boxes(self, component: Component | None = None, *, long: bool = False) -> Iterator[SlabBox]:
        """Places of slabs, `long` where no rows are computed; with a component, of extent 1 along all other groups."""
        shape = self.shape if component is None else self._shape_of(component)
        return slab_boxes(shape, self.slab_axes, self.limit, self.limit if long else self.rows_limit)

    def whole_box(self, component: Component) -> SlabBox:
        """The one place of an array that has extent 1 along all groups but a component."""
        shape = self._shape_of(component)
        size = max(1, math.prod(shape))
        (box,) = slab_boxes(shape, self.slab_axes, size, size)
        return box

    def box_at(self, place: Sequence[slice]) -> SlabBox:
        """The box of one row along some slab axes, and all rows of the others: of slices of the length 1 or of all."""
        slices, rows = [slice(0, n) for n in self.shape], []
        for axis, length, own in zip(self.slab_axes, self.lengths, place, strict=True):
            first, last, _ = own.indices(length)
            rows.append((first, last - first))
            if last - first < length:
                index = np.unravel_index(first, [self.shape[a] for a in axis.axes])
                for a, i in zip(axis.axes, index, strict=True):
                    slices[a] = slice(int(i), int(i) + 1)
        return SlabBox(tuple(slices), tuple(rows))

    def _shape_of(self, component: Component) -> tuple[int, ...]:
        inside = {a for axis in self.slab_axes if axis.group in component for a in axis.axes}
        return tuple(length if a in inside else 1 for a, length in enumerate(self.shape))

    @cached_property
    def ordered(self) -> Array:
        """The values, axes in the order of the slab axes."""
        return self.xp.permute_dims(self.block.values, self.axis_order)

    def values(self, box: SlabBox) -> Array:
        """A slab of the values in float64, of which a thread has one at a time."""
        slab = self.ordered[tuple(box.slices[axis] for axis in self.axis_order)]
        return self.xp.reshape(native(slab, self.xp, VALUES), box.shape)

    @cached_property
    def weight_groups(self) -> tuple[Component, ...]:
        """The groups that each weight spans; one without axes belongs to the first."""
        return tuple(
            frozenset(axis.group for axis in self.slab_axes if set(axis.axes) & set(spanned))
            or frozenset((min(self.groups),))
            for spanned, _ in self.block.weights
        )

    @cached_property
    def weights(self) -> tuple[Array, ...]:
        """The weights as they are stored, with the axes of slabs: extent 1 along those that they do not span."""
        out = []
        for axes, stored in self.block.weights:
            order = sorted(range(len(axes)), key=lambda i: self.axis_order.index(axes[i]))
            array = array_api_compat.array_namespace(stored).permute_dims(stored, tuple(order))
            array = to_namespace(array, self.xp, self.device)
            array = self.xp.reshape(array, tuple(self.shape[a] if a in axes else 1 for a in self.axis_order))
            touched = {a for axis in self.slab_axes if set(axis.axes) & set(axes) for a in axis.axes}
            spread = tuple(self.shape[a] if a in touched else 1 for a in self.axis_order)
            merged = tuple(
                n if touched & set(axis.axes) else 1
                for axis, n in zip(self.slab_axes, self.lengths, strict=True)
            )
            out.append(self.xp.reshape(self.xp.broadcast_to(array, spread), merged))
        return tuple(out)

    def weight_of(self, number: int, box: SlabBox) -> Array:
        """One weight on a slab, in float64: extent 1 along axes that it does not span."""
        array = self.weights[number]
        spans = zip(box.spans, array.shape, strict=True)
        return native(array[tuple(span if n > 1 else slice(0, 1) for span, n in spans)], self.xp)


@dataclass(frozen=True, eq=False)
class SlabValues:
    """Values of one slab and where they count; `weight` (None: ones) is zero where they do not."""

    values: Array
    valid: Array
    weight: Array | None
    count: int
    full: bool

    def weights(self, xp: Any) -> Array:
        """Weights as an array of the shape of the values."""
        return xp.astype(self.valid, xp.float64) if self.weight is None else self.weight


def read(walk: Walk, box: SlabBox) -> tuple[SlabValues, Tally]:
    """One slab, and the tally of what is left out of it, with the first places of an infinity and a bad weight."""
    xp = walk.xp
    values = walk.values(box)
    size = math.prod(values.shape)
    known = xp.isfinite(values)
    valid = finite = known
    for i, axis in enumerate(walk.slab_axes):  # known: labels are numbers; valid: inside all domains
        inside = np.ones(0, dtype=bool) if axis.is_batch else walk.inside(i, box.rows[i])
        if bool(array_api_compat.array_namespace(inside).all(inside)):
            continue
        shape = tuple(n if j == i else 1 for j, n in enumerate(box.shape))
        known, valid = (
            xp.logical_and(mask, xp.reshape(to_namespace(rows, xp, walk.device), shape))
            for mask, rows in ((known, walk.labelled(i, box.rows[i])), (valid, inside))
        )
    present = count_true(known, xp)
    count = count_true(valid, xp)
    infinity = None if present == size else _first_place(walk, box, xp.isinf(values))
    outside = present - count
    weight = None
    bad = None
    unlabelled = 0 if known is finite else count_true(finite, xp) - present
    for number in range(len(walk.block.weights)):  # their product, zero where one is bad
        this_weight = walk.weight_of(number, box)
        good = xp.logical_and(xp.isfinite(this_weight), this_weight >= 0)
        if not bool(xp.all(good)):
            place = _first_place(walk, box, xp.logical_and(finite, xp.logical_not(good)))
            bad = place if bad is None or (place is not None and place < bad) else bad
            this_weight = xp.where(good, this_weight, xp.zeros_like(this_weight))
        weight = this_weight if weight is None else weight * this_weight
    if weight is not None:
        valid = xp.logical_and(valid, weight > 0)
        weight = xp.where(valid, weight, xp.zeros_like(values))
        count = count_true(valid, xp)
    tally = Tally(size - present, outside, infinity, bad, unlabelled)
    return SlabValues(values, valid, weight, count, count == size), tally


def _first_place(walk: Walk, box: SlabBox, mask: Array) -> tuple[int, ...] | None:
    """Global index of the first true entry, in C order of the data; the mask has the axes of slabs."""
    xp = walk.xp
    if not bool(xp.any(mask)):
        return None
    lengths = [box.slices[axis].stop - box.slices[axis].start for axis in walk.axis_order]
    mask = xp.reshape(xp.broadcast_to(mask, box.shape), tuple(lengths))
    mask = xp.permute_dims(mask, tuple(int(i) for i in np.argsort(walk.axis_order)))
    places = zip(walk.start, box.slices, first_true(mask, xp), strict=True)
    return tuple(start + span.start + i for start, span, i in places)
