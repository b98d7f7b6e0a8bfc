"""What the tasks of a reduction run: the sums of a block, of a region read by read, their merges."""

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

from xspline.execution.cuts import FAN_IN, WAITING, Cuts, runs
from xspline.execution.device import loader, settle
from xspline.execution.faults import reading
from xspline.execution.graph import Blocks, Held, Key
from xspline.execution.source import Slices, Source, as_block, cut, whole
from xspline.execution.split import apart
from xspline.kernels import Block, accumulate
from xspline.spaces import Frame, Space
from xspline.sums import HolderSums, Sums

Total = TypeVar("Total", Sums, HolderSums)
"""Both add alike: the Sums of one holder, or of each that has a share."""


@dataclass(frozen=True, eq=False)
class Recipe:
    """What every task of one source needs; it travels once to each worker.

    Attributes
    ----------
    source : values are None or a reader; parts that come block by block are None.
    space : where it is fitted.
    cuts : blocks, groups of them or regions over the data: a task each.
    read : shape of what is summed at once within a region or a group.
    blocks : of a Dask array; the regions of a store.
    device : where blocks are processed.
    """

    source: Source
    space: Space
    cuts: Cuts
    read: tuple[int, ...]
    blocks: Cuts
    device: str | None


def sum_in_memory(source: Source, space: Space, device: str | None) -> Sums | HolderSums:
    """Return the Sums of a source that is in memory, in one go."""
    box = whole(source.shape)
    arrays = [cut(array, axes, box) for axes, array in source.parts]
    return _accumulated(source, source.values, arrays, box, space, device)


def sum_held(held: Held, space: Space, device: str | None) -> Sums | HolderSums:
    """Return the same of a source that came inside a task."""
    return sum_in_memory(held(), space, device)


def zero(source: Source, space: Space) -> Sums | HolderSums:
    """Return the Sums of no data."""
    nothing = Sums.zero(space.frame, tuple(source.shape[a] for a in source.layout.batch_axes))
    return (
        nothing if source.owners is None else HolderSums(dict.fromkeys(range(source.owners.count), nothing))
    )


def sum_block(recipe: Recipe, index: tuple[int, ...], held: Held | None, *arrays: Any) -> Sums | HolderSums:
    """Return the Sums of one Dask block; `arrays` are its large parts, then what its values come from."""
    n = sum(array is None for _, array in recipe.source.parts)
    box = recipe.cuts.box(index)
    with reading(recipe.source.label, box):
        values = arrays[n] if held is None else held(arrays[n:])
    return _sum_box(recipe, values, box, arrays[:n], box)


def sum_blocks(recipe: Recipe, index: tuple[int, ...], blocks: Blocks, *values: Any) -> Sums | HolderSums:
    """Return the Sums of one group of Dask blocks, block by block; `values` are what they depend on."""
    given = dict(zip(blocks.names, values, strict=True))
    return _Made(recipe, index, (), blocks, given).sums()


def sum_region(recipe: Recipe, index: tuple[int, ...], *arrays: Any) -> Sums | HolderSums:
    """Return the Sums of one region, read by read in constant memory; `arrays` are its large parts."""
    return _Read(recipe, index, arrays).sums()


@dataclass(frozen=True, eq=False)
class _Walk(ABC):
    """One box of the data, step by step.

    Attributes
    ----------
    recipe, index : which box.
    arrays : the large parts, over all of it.
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

    @property
    def order(self) -> tuple[int, ...]:
        return (*self.recipe.source.layout.batch_axes, *self.recipe.source.consumed)

    def sums(self) -> Sums | HolderSums:
        if self.recipe.device is None:
            return self._fold(self.order, self.region, self.values)
        load, steps = loader(self.recipe.device), self._steps(self.order, self.region)
        with ThreadPoolExecutor(1) as reader:  # reads and moves the next step while the GPU sums this one
            ahead = _ahead(reader, lambda box: load(self.values(box)), steps)
            return self._fold(self.order, self.region, ahead)

    def _steps(self, axes: Sequence[int], box: Slices) -> Iterator[Slices]:
        """Yield the boxes in the order in which they are summed."""
        if not axes:
            yield box
            return
        for lo, hi in itertools.pairwise(self.bounds(axes[0], box[axes[0]])):
            yield from self._steps(axes[1:], (*box[: axes[0]], slice(lo, hi), *box[axes[0] + 1 :]))

    def _fold(self, axes: Sequence[int], box: Slices, values: Callable[[Slices], Any]) -> Sums | HolderSums:
        """Return the Sums of `box`, walked along the first of `axes`, each step along the others.

        Boxes are merged axis by axis, so that factors of separable masks meet again as products.
        """
        if not axes:
            return _sum_box(self.recipe, values(box), box, self.arrays, self.region)
        axis, *rest = axes
        batch = axis in self.recipe.source.layout.batch_axes
        joined = _SideBySide(self.recipe, axis) if batch else _Merged(self.recipe)
        for lo, hi in itertools.pairwise(self.bounds(axis, box[axis])):
            joined.add(self._fold(rest, (*box[:axis], slice(lo, hi), *box[axis + 1 :]), values))
        return joined.result()


class _Read(_Walk):
    """A region of a store."""

    def bounds(self, axis: int, along: slice) -> Sequence[int]:
        return runs(along.start, along.stop, self.recipe.read[axis])

    def values(self, box: Slices) -> Any:
        source = self.recipe.source
        with reading(source.label, box):
            return cut(source.values, tuple(range(len(box))), box)


@dataclass(frozen=True, eq=False)
class _Made(_Walk):
    """A group of Dask blocks, several at a time where they are small.

    Attributes
    ----------
    blocks : how each is made.
    given : values that they depend on, by name.
    """

    blocks: Blocks
    given: Mapping[Key, Any]

    def bounds(self, axis: int, along: slice) -> Sequence[int]:
        cuts, edges = self.recipe.blocks, self._edges(axis, along)
        step = max(1, self.recipe.read[axis] // cuts.largest[axis])
        return (*edges[:-1:step], edges[-1])

    def _edges(self, axis: int, along: slice) -> Sequence[int]:
        edges = self.recipe.blocks.edges[axis]
        return edges[bisect_left(edges, along.start) : bisect_right(edges, along.stop)]

    def values(self, box: Slices) -> Any:
        edges = [self._edges(axis, along) for axis, along in enumerate(box)]
        return _joined(self._nested((), edges))

    def _nested(self, place: Slices, edges: Sequence[Sequence[int]]) -> Any:
        """Return the block at a place, or nested lists of those along all `edges`."""
        if not edges:
            with reading(self.recipe.source.label, place):
                return self.blocks.make(tuple(s.start for s in place), self.given)
        return [self._nested((*place, slice(*ends)), edges[1:]) for ends in itertools.pairwise(edges[0])]


def _ahead(
    reader: ThreadPoolExecutor, values: Callable[[Slices], Any], steps: Iterator[Slices]
) -> Callable[[Slices], Any]:
    """Return `values` for the boxes of `steps` in turn, each read while the one before is in use."""
    waiting = [reader.submit(values, box) for box in itertools.islice(steps, 1)]

    def following(box: Slices) -> Any:
        found = waiting.pop().result()
        waiting.extend(reader.submit(values, box) for box in itertools.islice(steps, 1))
        return found

    return following


def _joined(nested: Any, axis: int = 0) -> Any:
    """Return nested lists of blocks as one array, whatever the arrays are; a lone block as it is."""
    if not isinstance(nested, list):
        return nested
    parts = [_joined(part, axis + 1) for part in nested]
    kind = type(max(parts, key=lambda part: getattr(part, "__array_priority__", 0)))
    return parts[0] if len(parts) == 1 else concatenate_lookup.dispatch(kind)(parts, axis=axis)


class _Merged:
    """A running sum. What waits to be merged is little, or less than the sum: memory is bounded, and so is copying."""

    def __init__(self, recipe: Recipe) -> None:
        self.frame = recipe.space.frame
        self.parts: list[Any] = []

    def add(self, part: Sums | HolderSums) -> None:
        self.parts.append(part)
        total, *waiting = (p.nbytes for p in self.parts)
        if len(waiting) >= FAN_IN or sum(waiting) > max(WAITING, total):
            self.parts = [self.result()]

    def result(self) -> Sums | HolderSums:
        return self.parts[0] if len(self.parts) == 1 else _sum(self.parts, self.frame)


class _SideBySide:
    """Sums of blocks of batch members along one batch axis."""

    def __init__(self, recipe: Recipe, axis: int) -> None:
        self.frame = recipe.space.frame
        self.axis = recipe.source.layout.batch_axes.index(axis)
        self.parts: list[Any] = []

    def add(self, part: Sums | HolderSums) -> None:
        self.parts.append(part)

    def result(self) -> Sums | HolderSums:
        return side_by_side(self.parts, self.axis, self.frame)


def _sum_box(
    recipe: Recipe, values: Any, box: Slices, arrays: Sequence[Any], origin: Slices
) -> Sums | HolderSums:
    """Return the Sums of the data in `box`; `arrays` are the large parts, over the box `origin` around it."""
    relative = tuple(slice(b.start - o.start, b.stop - o.start) for b, o in zip(box, origin, strict=True))
    large = iter(arrays)
    parts = [
        cut(next(large), axes, relative) if array is None else cut(array, axes, box)
        for axes, array in recipe.source.parts
    ]
    return _accumulated(recipe.source, values, parts, box, recipe.space, recipe.device)


def _accumulated(
    source: Source, values: Any, arrays: Sequence[Any], box: Slices, space: Space, device: str | None
) -> Sums | HolderSums:
    """Return the Sums of values that lie in `box`, or those of each holder that has a share in them."""
    block, owners = as_block(source, values, arrays, box), source.owners
    if owners is None:
        return _sums_of(block, source, space, device)
    shares = apart(block, source.layout, owners.axis, np.asarray(arrays[-1]))
    return HolderSums({s.code: s.placed(_sums_of(s.block, source, space, device)) for s in shares})


def _sums_of(block: Block, source: Source, space: Space, device: str | None) -> Sums:
    shape = tuple(block.values.shape)
    if 0 in shape:
        return Sums.zero(space.frame, tuple(shape[a] for a in source.layout.batch_axes))
    found = accumulate(_moved(block, device), source.layout, space)
    settle(device)
    return found


def _moved(block: Block, device: str | None) -> Block:
    """Return the block on the device, with coordinates that are as many as its values; fewer are used on the host."""
    load, count = loader(device), math.prod(block.values.shape)
    coordinates = tuple(load(x) if x.size == count else x for x in block.coordinates)
    weights = tuple((axes, load(w)) for axes, w in block.weights)
    return replace(block, values=load(block.values), coordinates=coordinates, weights=weights)


def merge(recipe: Recipe, *parts: Total) -> Total:
    """Return the sum of neighbours."""
    return _sum(parts, recipe.space.frame)


def _sum(parts: Sequence[Total], frame: Frame) -> Total:
    return type(parts[0]).merge(parts, frame)


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
