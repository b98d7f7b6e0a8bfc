"""What the tasks of a reduction run: the sums of blocks, of a region read by read, and their merges."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from dask.array.dispatch import concatenate_lookup

from xspline.execution.cuts import Cuts, edges_every
from xspline.execution.dask_api import EmbeddedBlocks, Key
from xspline.execution.device.gpu import loader, settle
from xspline.execution.limits import Limits
from xspline.execution.source import Slices, Source, cut, read_noted, split_by_holder
from xspline.kernels import Block, accumulate
from xspline.spaces import Frame, Space
from xspline.sums import HolderSums, Sums

Total = TypeVar("Total", Sums, HolderSums)
"""Both add alike: the Sums of one holder, or of each holder that has observations."""


@dataclass(frozen=True, eq=False)
class Recipe:
    """What every task of one source needs; it travels once to each worker.

    Attributes
    ----------
    source : values are None or a reader; auxiliary arrays that come block by block are None.
    space : where it is fitted.
    cuts : blocks, groups of them or regions over the data: a task each.
    read : shape of what is summed at once within a region or a group.
    blocks : of a Dask array; the regions of a store.
    device : where blocks are processed.
    limits : of what waits to be merged, and of repeated reads.
    """

    source: Source
    space: Space
    cuts: Cuts
    read: tuple[int, ...]
    blocks: Cuts
    device: str | None
    limits: Limits


def sum_in_memory(source: Source, space: Space, device: str | None) -> Sums | HolderSums:
    """Return the Sums of a source that is in memory, in one go."""
    box = tuple(slice(0, n) for n in source.shape)
    auxiliary = [cut(array, axes, box) for axes, array in source.auxiliary]
    return _accumulated(source, source.values, auxiliary, box, space, device)


def zero(source: Source, space: Space) -> Sums | HolderSums:
    """Return the Sums of no data."""
    nothing = Sums.zero(space.frame, tuple(source.shape[a] for a in source.layout.batch_axes))
    if source.holders is None:
        return nothing
    return HolderSums(dict.fromkeys(range(source.holders.count), nothing))


def sum_blocks(
    recipe: Recipe, index: tuple[int, ...], blocks: EmbeddedBlocks, *arrays: Any
) -> Sums | HolderSums:
    """Return the Sums of one Dask block, or of a group of them, step by step.

    `arrays` are the large auxiliary arrays, then what the blocks' values are computed from.
    """
    n = sum(array is None for _, array in recipe.source.auxiliary)
    given = dict(zip(blocks.names, arrays[n:], strict=True))
    if len(blocks.blocks) > 1:
        return _BlocksSum(recipe, index, arrays[:n], blocks, given).sums()
    (start,), box = blocks.blocks, recipe.cuts.box(index)
    with read_noted(recipe.source.label, box):
        values = blocks.compute(start, given)
    return _sum_box(recipe, values, box, arrays[:n], box)


def sum_region(recipe: Recipe, index: tuple[int, ...], *arrays: Any) -> Sums | HolderSums:
    """Return the Sums of one region, read by read in constant memory; `arrays` are its large auxiliary arrays."""
    return _RegionSum(recipe, index, arrays).sums()


@dataclass(frozen=True, eq=False)
class _StepwiseSum(ABC):
    """The sums of one box of the data, taken step by step.

    Attributes
    ----------
    recipe, index : which box.
    arrays : the large auxiliary arrays, over all of it.
    """

    recipe: Recipe
    index: tuple[int, ...]
    arrays: Sequence[Any]

    @abstractmethod
    def bounds(self, axis: int, along: slice) -> Sequence[int]:
        """Return the bounds of the steps along one axis."""

    @abstractmethod
    def values(self, box: Slices) -> Any:
        """Return the values of one step."""

    @cached_property
    def region(self) -> Slices:
        return self.recipe.cuts.box(self.index)

    def sums(self) -> Sums | HolderSums:
        source, device = self.recipe.source, self.recipe.device
        order = (*source.layout.batch_axes, *source.consumed)
        if device is None:
            return self._sum_along(order, self.region, self.values)
        load, boxes = loader(device), self._boxes(order, self.region)
        with ThreadPoolExecutor(1) as reader:  # reads and moves the next step while the GPU sums this one

            def submitted() -> Any:
                return [
                    reader.submit(lambda box: load(self.values(box)), b) for b in itertools.islice(boxes, 1)
                ]

            waiting = submitted()

            def ahead(_: Slices) -> Any:
                """Return the values of the boxes in turn, each read while the one before is in use."""
                values = waiting.pop().result()
                waiting.extend(submitted())
                return values

            return self._sum_along(order, self.region, ahead)

    def _boxes(self, axes: Sequence[int], box: Slices) -> Iterator[Slices]:
        """Yield the boxes in the order in which they are summed."""
        if not axes:
            yield box
            return
        for lo, hi in itertools.pairwise(self.bounds(axes[0], box[axes[0]])):
            yield from self._boxes(axes[1:], (*box[: axes[0]], slice(lo, hi), *box[axes[0] + 1 :]))

    def _sum_along(
        self, axes: Sequence[int], box: Slices, values: Callable[[Slices], Any]
    ) -> Sums | HolderSums:
        """Return the Sums of `box`, taken along the first of `axes`, each step along the others.

        Boxes are merged axis by axis, so that factors of separable masks meet again as products. What waits to be
        merged is little, or less than the sum: memory is bounded, and so is copying.
        """
        if not axes:
            return _sum_box(self.recipe, values(box), box, self.arrays, self.region)
        axis, *rest = axes
        batch, frame, limits = (
            self.recipe.source.layout.batch_axes,
            self.recipe.space.frame,
            self.recipe.limits,
        )
        parts: list[Any] = []
        for lo, hi in itertools.pairwise(self.bounds(axis, box[axis])):
            parts.append(self._sum_along(rest, (*box[:axis], slice(lo, hi), *box[axis + 1 :]), values))
            if axis in batch:
                continue
            total, *waiting = (part.nbytes for part in parts)
            if len(waiting) >= limits.fan_in or sum(waiting) > max(limits.waiting_bytes, total):
                parts = [_merged(parts, frame)]
        return side_by_side(parts, batch.index(axis), frame) if axis in batch else _merged(parts, frame)


class _RegionSum(_StepwiseSum):
    """The sums of a region of a store."""

    def bounds(self, axis: int, along: slice) -> Sequence[int]:
        return edges_every(self.recipe.read[axis], along.start, along.stop)

    def values(self, box: Slices) -> Any:
        source = self.recipe.source
        with read_noted(source.label, box):
            return cut(source.values, tuple(range(len(box))), box, self.recipe.limits.retry_pauses)


@dataclass(frozen=True, eq=False)
class _BlocksSum(_StepwiseSum):
    """The sums of a group of Dask blocks, several at a time where they are small.

    Attributes
    ----------
    blocks : how each is computed.
    given : values that they depend on, by name.
    """

    blocks: EmbeddedBlocks
    given: Mapping[Key, Any]

    def bounds(self, axis: int, along: slice) -> Sequence[int]:
        edges = self._edges(axis, along)
        step = max(1, self.recipe.read[axis] // self.recipe.blocks.largest[axis])
        return (*edges[:-1:step], edges[-1])

    def _edges(self, axis: int, along: slice) -> Sequence[int]:
        edges = self.recipe.blocks.edges[axis]
        return edges[bisect_left(edges, along.start) : bisect_right(edges, along.stop)]

    def values(self, box: Slices) -> Any:
        edges = [self._edges(axis, along) for axis, along in enumerate(box)]

        def nested(place: Slices) -> Any:
            """Return the block at a place, or nested lists of those along all further axes."""
            axis = len(place)
            if axis < len(edges):
                return [nested((*place, slice(*ends))) for ends in itertools.pairwise(edges[axis])]
            with read_noted(self.recipe.source.label, place):
                return self.blocks.compute(tuple(s.start for s in place), self.given)

        return _concatenated(nested(()))


def _concatenated(nested: Any, axis: int = 0) -> Any:
    """Return nested lists of blocks as one array, whatever the arrays are; a lone block as it is."""
    if not isinstance(nested, list):
        return nested
    parts = [_concatenated(part, axis + 1) for part in nested]
    kind = type(max(parts, key=lambda part: getattr(part, "__array_priority__", 0)))
    return parts[0] if len(parts) == 1 else concatenate_lookup.dispatch(kind)(parts, axis=axis)


def _sum_box(
    recipe: Recipe, values: Any, box: Slices, arrays: Sequence[Any], origin: Slices
) -> Sums | HolderSums:
    """Return the Sums of the data in `box`; `arrays` are the large auxiliary ones, over the box `origin` around it."""
    relative = tuple(slice(b.start - o.start, b.stop - o.start) for b, o in zip(box, origin, strict=True))
    large, pauses = iter(arrays), recipe.limits.retry_pauses
    auxiliary = [
        cut(next(large), axes, relative) if array is None else cut(array, axes, box, pauses)
        for axes, array in recipe.source.auxiliary
    ]
    return _accumulated(recipe.source, values, auxiliary, box, recipe.space, recipe.device)


def _accumulated(
    source: Source, values: Any, auxiliary: Sequence[Any], box: Slices, space: Space, device: str | None
) -> Sums | HolderSums:
    """Return the Sums of values that lie in `box`, or those of each holder that has some of them."""
    block, holders = source.block(values, auxiliary, box), source.holders
    if holders is None:
        return _sums_of(block, source, space, device)
    own = split_by_holder(block, source.layout, holders.axis, np.asarray(auxiliary[-1]))
    return HolderSums({h.code: h.located(_sums_of(h.block, source, space, device)) for h in own})


def _sums_of(block: Block, source: Source, space: Space, device: str | None) -> Sums:
    """Return the Sums of one block, moved to the device with as many of its coordinates as it has values."""
    shape = tuple(block.values.shape)
    if 0 in shape:
        return Sums.zero(space.frame, tuple(shape[a] for a in source.layout.batch_axes))
    load, count = loader(device), math.prod(shape)
    moved = replace(
        block,
        values=load(block.values),
        coordinates=tuple(
            load(x) if x.size == count else x for x in block.coordinates
        ),  # fewer: used on the host
        weights=tuple((axes, load(w)) for axes, w in block.weights),
    )
    sums = accumulate(moved, source.layout, space)
    settle(device)  # before the arrays are let go
    return sums


def _merged(parts: Sequence[Total], frame: Frame) -> Total:
    return parts[0] if len(parts) == 1 else type(parts[0]).merge(parts, frame)


def merge(recipe: Recipe, *parts: Total) -> Total:
    """Return the sum of neighbours."""
    return _merged(parts, recipe.space.frame)


def assemble(frame: Frame, counts: tuple[int, ...], *parts: Total) -> Total:
    """Return blocks of batch members, a grid of `counts` in C order, side by side along every batch axis."""
    row = list(parts)
    for axis in reversed(range(len(counts))):
        n = counts[axis]
        row = [side_by_side(row[i : i + n], axis, frame) for i in range(0, len(row), n)]
    return row[0]


def side_by_side(parts: Sequence[Total], axis: int, frame: Frame) -> Total:
    """Return sums concatenated along one batch axis."""
    return parts[0] if len(parts) == 1 else type(parts[0]).concatenate(parts, axis, frame)
