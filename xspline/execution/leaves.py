"""What the tasks of a reduction run: the sums of a block, of a region read by read, their merges."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from xspline.execution.cuts import FAN_IN, MERGE, Cuts, runs
from xspline.execution.device import to_device
from xspline.execution.faults import reading
from xspline.execution.graph import Held
from xspline.execution.source import Slices, Source, as_block, cut, whole
from xspline.execution.split import apart
from xspline.kernels import Block, accumulate
from xspline.spaces import Frame, Space
from xspline.sums import Shares, Sums

Total = TypeVar("Total", Sums, Shares)
"""Both add alike: the Sums of one holder, or of each that has a share."""


@dataclass(frozen=True, eq=False)
class Recipe:
    """What every task of one source needs; it travels once to each worker.

    Attributes
    ----------
    source : values are None or a reader; parts that come block by block are None.
    space : where it is fitted.
    cuts : blocks or regions over the data.
    read : shape of one read within a region.
    device : where blocks are processed.
    """

    source: Source
    space: Space
    cuts: Cuts
    read: tuple[int, ...]
    device: str | None


def sum_in_memory(source: Source, space: Space, device: str | None) -> Sums | Shares:
    """Return the Sums of a source that is in memory, in one go."""
    box = whole(source.shape)
    arrays = [cut(array, axes, box) for axes, array in source.parts]
    return _accumulated(source, source.values, arrays, box, space, device)


def sum_held(held: Held, space: Space, device: str | None) -> Sums | Shares:
    """Return the same of a source that came inside a task."""
    return sum_in_memory(held(), space, device)


def zero(source: Source, space: Space) -> Sums | Shares:
    """Return the Sums of no data."""
    nothing = Sums.zero(space.frame, tuple(source.shape[a] for a in source.layout.batch_axes))
    return nothing if source.owners is None else Shares(dict.fromkeys(range(source.owners.count), nothing))


def sum_block(recipe: Recipe, index: tuple[int, ...], held: Held | None, *arrays: Any) -> Sums | Shares:
    """Return the Sums of one Dask block; `arrays` are its large parts, then what its values come from."""
    n = sum(array is None for _, array in recipe.source.parts)
    box = recipe.cuts.box(index)
    with reading(recipe.source.label, box):
        values = arrays[n] if held is None else held(arrays[n:])
    return _sum_box(recipe, values, box, arrays[:n], box)


def sum_region(recipe: Recipe, index: tuple[int, ...], *arrays: Any) -> Sums | Shares:
    """Return the Sums of one region, read by read in constant memory; `arrays` are its large parts."""
    region = recipe.cuts.box(index)
    order = (*recipe.source.layout.batch_axes, *recipe.source.consumed)
    return _fold(recipe, order, region, arrays, region)


def _fold(
    recipe: Recipe, axes: Sequence[int], box: Slices, arrays: Sequence[Any], region: Slices
) -> Sums | Shares:
    """Return the Sums of `box`, walked along the first of `axes`, each step along the others.

    Boxes are merged axis by axis, so that factors of separable masks meet again as products.
    """
    if not axes:
        with reading(recipe.source.label, box):
            values = cut(recipe.source.values, tuple(range(len(box))), box)
        return _sum_box(recipe, values, box, arrays, region)
    axis, *rest = axes
    joined = _SideBySide(recipe, axis) if axis in recipe.source.layout.batch_axes else _Merged(recipe)
    bounds = runs(box[axis].start, box[axis].stop, recipe.read[axis])
    for lo, hi in itertools.pairwise(bounds):
        step = (*box[:axis], slice(lo, hi), *box[axis + 1 :])
        joined.add(_fold(recipe, rest, step, arrays, region))
    return joined.result()


class _Merged:
    """A running sum, merged whenever enough partial sums or bytes have come together."""

    def __init__(self, recipe: Recipe) -> None:
        self.frame = recipe.space.frame
        self.parts: list[Any] = []

    def add(self, part: Sums | Shares) -> None:
        self.parts.append(part)
        if len(self.parts) > FAN_IN or sum(p.nbytes for p in self.parts) > MERGE:
            self.parts = [self.result()]

    def result(self) -> Sums | Shares:
        return self.parts[0] if len(self.parts) == 1 else _sum(self.parts, self.frame)


class _SideBySide:
    """Sums of blocks of batch members along one batch axis."""

    def __init__(self, recipe: Recipe, axis: int) -> None:
        self.frame = recipe.space.frame
        self.axis = recipe.source.layout.batch_axes.index(axis)
        self.parts: list[Any] = []

    def add(self, part: Sums | Shares) -> None:
        self.parts.append(part)

    def result(self) -> Sums | Shares:
        return side_by_side(self.parts, self.axis, self.frame)


def _sum_box(
    recipe: Recipe, values: Any, box: Slices, arrays: Sequence[Any], origin: Slices
) -> Sums | Shares:
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
) -> Sums | Shares:
    """Return the Sums of values that lie in `box`, or those of each holder that has a share in them."""
    block, owners = as_block(source, values, arrays, box), source.owners
    if owners is None:
        return _sums_of(block, source, space, device)
    shares = apart(block, source.layout, owners.axis, np.asarray(arrays[-1]))
    return Shares({s.code: s.placed(_sums_of(s.block, source, space, device)) for s in shares})


def _sums_of(block: Block, source: Source, space: Space, device: str | None) -> Sums:
    shape = tuple(block.values.shape)
    if 0 in shape:
        return Sums.zero(space.frame, tuple(shape[a] for a in source.layout.batch_axes))
    weights = tuple((axes, to_device(w, device)) for axes, w in block.weights)
    block = replace(block, values=to_device(block.values, device), weights=weights)
    return accumulate(block, source.layout, space)


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
