"""What the tasks of a reduction run: the sums of blocks, of a region read by read, and their merges."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from dask.array.dispatch import concatenate_lookup

from xspline.execution.cuts import Cuts, step_edges
from xspline.execution.dask_api import EmbeddedBlocks
from xspline.execution.device.gpu import loader, settle
from xspline.execution.limits import Limits
from xspline.execution.source import Slices, Source, cut, located, read_noted, split_by_holder
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
    """Return the Sums of one Dask block, or of a group of them, several at a time where they are small.

    `arrays` are the large auxiliary arrays, then what the blocks' values are computed from.
    """
    large = sum(array is None for _, array in recipe.source.auxiliary)
    given = dict(zip(blocks.names, arrays[large:], strict=True))
    region = recipe.cuts.box(index)

    def block(box: Slices) -> Any:
        with read_noted(recipe.source.label, box):
            return blocks.compute(tuple(s.start for s in box), given)

    if len(blocks.blocks) == 1:
        return _sum_box(recipe, block(region), region, arrays[:large], region)

    def edges_in(box: Slices) -> list[Sequence[int]]:
        pairs = zip(recipe.blocks.edges, box, strict=True)
        return [edges[bisect_left(edges, s.start) : bisect_right(edges, s.stop)] for edges, s in pairs]

    def joined(edges: Sequence[Sequence[int]], box: Slices = ()) -> Any:
        """Return the blocks between these edges as one array, whatever the arrays are; a lone one as it is."""
        axis = len(box)
        if axis == len(edges):
            return block(box)
        parts = [joined(edges, (*box, slice(*ends))) for ends in itertools.pairwise(edges[axis])]
        kind = type(max(parts, key=lambda part: getattr(part, "__array_priority__", 0)))
        return parts[0] if len(parts) == 1 else concatenate_lookup.dispatch(kind)(parts, axis=axis)

    steps = [max(1, n // longest) for n, longest in zip(recipe.read, recipe.blocks.largest, strict=True)]
    bounds = [(*edges[:-1:n], edges[-1]) for edges, n in zip(edges_in(region), steps, strict=True)]
    return _sum_stepwise(recipe, region, arrays[:large], bounds, lambda box: joined(edges_in(box)))


def sum_region(recipe: Recipe, index: tuple[int, ...], *arrays: Any) -> Sums | HolderSums:
    """Return the Sums of one region, read by read in constant memory; `arrays` are its large auxiliary arrays."""
    source, region = recipe.source, recipe.cuts.box(index)

    def read(box: Slices) -> Any:
        with read_noted(source.label, box):
            return cut(source.values, tuple(range(len(box))), box, recipe.limits.retry_pauses)

    bounds = [step_edges(n, s.start, s.stop) for n, s in zip(recipe.read, region, strict=True)]
    return _sum_stepwise(recipe, region, arrays, bounds, read)


def _sum_stepwise(
    recipe: Recipe,
    region: Slices,
    arrays: Sequence[Any],
    bounds: Sequence[Sequence[int]],
    values: Callable[[Slices], Any],
) -> Sums | HolderSums:
    """Return the Sums of a region, taken step by step.

    Steps are merged axis by axis, so that factors of separable masks meet again as products. What waits to be merged
    is little, or less than the sum: memory is bounded, and so is copying.

    Parameters
    ----------
    recipe, region : which box of the data.
    arrays : the large auxiliary arrays, over all of it.
    bounds : of the steps along each axis.
    values : of one step.
    """
    batch, frame, limits = recipe.source.layout.batch_axes, recipe.space.frame, recipe.limits
    order = (*batch, *recipe.source.consumed)

    def sums(box: Slices, axes: Sequence[int], values: Callable[[Slices], Any]) -> Any:
        """Return the Sums of `box`, taken along the first of `axes`, each step along the others."""
        if not axes:
            return _sum_box(recipe, values(box), box, arrays, region)
        axis, *rest = axes
        parts: list[Any] = []
        for lo, hi in itertools.pairwise(bounds[axis]):
            parts.append(sums((*box[:axis], slice(lo, hi), *box[axis + 1 :]), rest, values))
            if axis in batch:
                continue
            total, *waiting = (part.nbytes for part in parts)
            if len(waiting) >= limits.fan_in or sum(waiting) > max(limits.waiting_bytes, total):
                parts = [_merged(parts, frame)]
        return side_by_side(parts, batch.index(axis), frame) if axis in batch else _merged(parts, frame)

    if recipe.device is None:
        return sums(region, order, values)
    load = loader(recipe.device)
    steps = itertools.product(*(itertools.pairwise(bounds[axis]) for axis in order))
    boxes = (tuple(slice(*ends) for _, ends in sorted(zip(order, step, strict=True))) for step in steps)

    def moved(box: Slices) -> Any:
        return load(values(box))

    with ThreadPoolExecutor(1) as reader:  # reads and moves the next step while the GPU sums this one
        waiting = [reader.submit(moved, box) for box in itertools.islice(boxes, 1)]

        def ahead(_: Slices) -> Any:
            """Return the values of the boxes in turn, each read while the one before is in use."""
            current = waiting.pop().result()
            waiting.extend(reader.submit(moved, box) for box in itertools.islice(boxes, 1))
            return current

        return sums(region, order, ahead)


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
    axis = holders.axis
    blocks = split_by_holder(block, source.layout, axis, np.asarray(auxiliary[-1]))
    return HolderSums(
        {code: located(_sums_of(own, source, space, device), axis, rows) for code, own, rows in blocks}
    )


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
