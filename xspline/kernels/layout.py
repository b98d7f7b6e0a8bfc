"""How a block of data is laid out: which dimensions which coordinates span.

Coordinates that share dimensions form a group, and a group is one contraction. A grid is one group per
dimension, scattered observations are one group over one dimension, stations × time is two groups, and a
curvilinear grid is a group over two dimensions beside one over time. Dimensions that no coordinate spans are
batch dimensions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = Any  # an array of any namespace: NumPy, CuPy, array_api_strict
Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True)
class Group:
    """Coordinates that share dimensions.

    Parameters
    ----------
    data_axes : tuple of int
        Axes of the values that the coordinates span; empty for scalar coordinates.
    coefficient_axes : tuple of int
        Axes of the coefficients; empty for pooled dimensions, whose entries are repeated observations.
    """

    data_axes: tuple[int, ...]
    coefficient_axes: tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """Groups and batch axes: every axis of the values belongs to exactly one of them.

    The order of `batch_axes` is that of the batch axes of sums and coefficients.
    """

    groups: tuple[Group, ...]
    batch_axes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        axes = sorted([axis for group in self.groups for axis in group.data_axes] + [*self.batch_axes])
        if axes != list(range(len(axes))):
            raise ValueError(
                f"every axis of the values must be in one group or in batch_axes, once; got the axes {axes}"
            )
        coefficients = sorted(axis for group in self.groups for axis in group.coefficient_axes)
        if coefficients != list(range(len(coefficients))):
            raise ValueError(
                f"every coefficient axis must be in one group, once; got the axes {coefficients}"
            )

    @property
    def ndim(self) -> int:
        """Number of axes of the values."""
        return sum(len(group.data_axes) for group in self.groups) + len(self.batch_axes)

    @property
    def coefficient_ndim(self) -> int:
        """Number of coefficient axes."""
        return sum(len(group.coefficient_axes) for group in self.groups)

    def group_of(self, coefficient_axis: int) -> Group:
        """The group that holds a coefficient axis."""
        return next(group for group in self.groups if coefficient_axis in group.coefficient_axes)


@dataclass(frozen=True, eq=False)
class Block:
    """A piece of data, as stored.

    Parameters
    ----------
    values : array of numbers
        NaN is missing, infinity is tallied.
    coordinates : tuple of array
        Per coefficient axis, float64, on the host or beside the values; each has the lengths of its group's data
        axes as its shape. Labels that repeat are fine, NaN is missing.
    weights : tuple of (axes of the values, array over exactly those axes)
        Relative precisions; their product counts. Zero excludes.
    start : tuple of int
        Index of the first value in the whole data, for messages. Empty: the origin.
    reference : float or None
        Value to subtract; None for the first finite one, rounded to float32.
    """

    values: Array
    coordinates: tuple[Array, ...]
    weights: tuple[tuple[tuple[int, ...], Array], ...] = ()
    start: tuple[int, ...] = ()
    reference: float | None = None

    def check(self, layout: Layout) -> None:
        """Raise ValueError where shapes do not fit the layout."""
        shape = tuple(self.values.shape)
        if len(shape) != layout.ndim:
            raise ValueError(f"the layout has {layout.ndim} axes, the values have shape {shape}")
        if self.start and len(self.start) != len(shape):
            raise ValueError(f"start {self.start} must have one index per axis of values of shape {shape}")
        check_coordinates(self.coordinates, layout, shape)
        for axes, array in self.weights:
            expected = tuple(shape[axis] for axis in axes)
            if tuple(array.shape) != expected:
                raise ValueError(
                    f"weights over the axes {axes} must have shape {expected}, got {tuple(array.shape)}"
                )


def check_coordinates(
    coordinates: Sequence[Floats], layout: Layout, shape: Sequence[int] | None = None
) -> tuple[int, ...]:
    """Lengths of the data axes according to the coordinates, -1 where none of them tells; all must agree.

    Parameters
    ----------
    shape : sequence of int, optional
        Lengths that the coordinates must agree with.
    """
    if len(coordinates) != layout.coefficient_ndim:
        raise ValueError(
            f"the layout has {layout.coefficient_ndim} coefficient axes, but there are "
            f"{len(coordinates)} coordinates"
        )
    found = list(shape) if shape is not None else [-1] * layout.ndim
    for number, coordinate in enumerate(coordinates):
        axes = layout.group_of(number).data_axes
        if coordinate.ndim != len(axes):
            raise ValueError(
                f"coordinate {number} spans the data axes {axes} but has shape {coordinate.shape}"
            )
        for axis, length in zip(axes, coordinate.shape, strict=True):
            if found[axis] not in (-1, length):
                raise ValueError(
                    f"coordinate {number} has length {length} along data axis {axis}, not {found[axis]}"
                )
            found[axis] = length
    return tuple(found)


# A slab, inside the kernels: every group is one axis.


@dataclass(frozen=True)
class Part:
    """One axis of a slab: the dimensions of a group, raveled, or one batch dimension.

    `site` numbers the groups, in stored order; all batch dimensions together are the site after the last.
    """

    axes: tuple[int, ...]
    site: int
    coefficient_axes: tuple[int, ...]
    is_batch: bool = False

    def rows(self, shape: Sequence[int]) -> int:
        """Number of rows for values of this shape."""
        return math.prod(shape[axis] for axis in self.axes)


def parts_of(layout: Layout) -> tuple[Part, ...]:
    """The parts in the order of their first data axes, scalar groups first."""
    parts = [Part(group.data_axes, i, group.coefficient_axes) for i, group in enumerate(layout.groups)]
    parts += [Part((axis,), len(layout.groups), (), is_batch=True) for axis in layout.batch_axes]
    return tuple(sorted(parts, key=lambda part: min(part.axes, default=-1)))


@dataclass(frozen=True)
class Piece:
    """A slab's place: slices of the values, axis by axis, and the rows (first, number) of each part."""

    slices: tuple[slice, ...]
    rows: tuple[tuple[int, int], ...]

    @property
    def spans(self) -> tuple[slice, ...]:
        """The rows as slices of an array with one axis per part."""
        return tuple(slice(first, first + count) for first, count in self.rows)


def pieces(
    shape: Sequence[int], parts: Sequence[Part], limit: int, rows_limit: int, kept: Sequence[int] = ()
) -> Iterator[Piece]:
    """Cut values into slabs of at most `limit` entries and, per group, `rows_limit` rows.

    Leading axes are cut first, and an axis only where those before it in its group are down to one index, so
    that the rows of every part stay a range. Groups with more rows than the limit are cut before all others:
    the features of a row are then computed once and serve all slabs that follow. Axes in `kept` are never cut,
    and do not count.
    """
    shape = tuple(shape)
    free = [part for part in parts if not set(part.axes) & set(kept)]
    big = [part for part in free if not part.is_batch and part.rows(shape) > rows_limit]
    order = [axis for part in [*big, *(p for p in free if p not in big)] for axis in part.axes]
    steps = list(shape)
    for part in big:
        _shrink(steps, part.axes, part.axes, rows_limit)
    _shrink(steps, order, order, limit)
    order += kept
    counts = [range(0, shape[axis], max(steps[axis], 1)) for axis in order]
    for starts in itertools.product(*counts):
        slices = [slice(0, 0)] * len(shape)
        for axis, start in zip(order, starts, strict=True):
            slices[axis] = slice(start, min(start + steps[axis], shape[axis]))
        yield Piece(tuple(slices), tuple(_rows(part.axes, slices, shape) for part in parts))


def _shrink(steps: list[int], order: Sequence[int], among: Sequence[int], limit: int) -> None:
    """Shorten steps, axis by axis in `order`, until their product over `among` is within the limit."""
    for axis in order:
        total = math.prod(steps[a] for a in among)
        if total <= limit:
            return
        steps[axis] = max(1, limit * steps[axis] // total)


def _rows(axes: Sequence[int], slices: Sequence[slice], shape: Sequence[int]) -> tuple[int, int]:
    first, count = 0, 1
    for axis in axes:
        first = first * shape[axis] + slices[axis].start
        count *= slices[axis].stop - slices[axis].start
    return first, count
