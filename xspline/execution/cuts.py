"""How data are cut: blocks, regions, reads, and the levels of the tree of merges, from shapes, chunks and labels alone.

Everything here is a function of shapes, chunks, sizes and limits, never of the workers: the same cuts, so the same
sums, bit for bit. The tree follows from how large the sums of blocks are, which coordinates tell before any data move.
"""

from __future__ import annotations

import functools
import itertools
import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np

from xspline.execution.dask_api import InputGraph, check_arrays, new_name
from xspline.execution.limits import LIMITS, Limits
from xspline.execution.source import Opaque, Source, in_memory, is_dask, is_reader, nbytes
from xspline.spaces import Space

# Boxes


@dataclass(frozen=True)
class Cuts:
    """A grid of boxes over an array."""

    # for each axis the bounds of its blocks, ascending, from 0 to the length of the axis
    edges: tuple[tuple[int, ...], ...]

    @classmethod
    def of_chunks(cls, chunks: Sequence[Sequence[int]]) -> Cuts:
        """Cut at the bounds of Dask chunks (lengths per block)."""
        return cls(tuple((0, *itertools.accumulate(lengths)) for lengths in chunks))

    @classmethod
    def in_steps(cls, shape: Sequence[int], step: Sequence[int]) -> Cuts:
        """Cut an array into boxes of the shape `step`, smaller ones at the ends."""
        return cls(tuple(step_edges(k, 0, n) for n, k in zip(shape, step, strict=True)))

    @property
    def blocks(self) -> tuple[int, ...]:
        """Number of blocks along each axis."""
        return tuple(len(edges) - 1 for edges in self.edges)

    @property
    def chunks(self) -> tuple[tuple[int, ...], ...]:
        """Lengths of the blocks along each axis, as Dask writes them."""
        return tuple(tuple(b - a for a, b in itertools.pairwise(edges)) for edges in self.edges)

    @functools.cached_property
    def largest(self) -> tuple[int, ...]:
        """Longest block of each axis; kept, as every read asks for it and there may be a million blocks."""
        return tuple(max(lengths, default=0) for lengths in self.chunks)

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        """Indices of the blocks, in C order."""
        return itertools.product(*(range(n) for n in self.blocks))

    def box(self, index: Sequence[int]) -> tuple[slice, ...]:
        """Return the slices of one block."""
        return tuple(slice(edges[i], edges[i + 1]) for edges, i in zip(self.edges, index, strict=True))

    def containing(self, place: Sequence[int]) -> tuple[int, ...]:
        """Return the index of the block that holds the value at `place`."""
        return tuple(bisect_right(edges, i) - 1 for edges, i in zip(self.edges, place, strict=True))


def step_edges(step: int, lo: int, hi: int) -> tuple[int, ...]:
    """Return bounds every `step` from `lo` to `hi`."""
    return (*range(lo, hi, step), hi)


def read_shape(
    shape: Sequence[int], chunk: Sequence[int] | None, itemsize: int, most: int
) -> tuple[int, ...]:
    """Return the shape of one read: whole storage chunks, several where they are small, innermost axes first.

    A read is one chunk or at most `most` bytes, whichever is more. Without known chunks it grows from a value.
    """
    unit = [max(1, min(c, n)) for c, n in zip(chunk or [1] * len(shape), shape, strict=True)]
    for axis in reversed(range(len(unit))):
        fits = max(1, most // (math.prod(unit) * itemsize))
        unit[axis] = min(shape[axis], unit[axis] * fits) if shape[axis] else 1
        if unit[axis] < shape[axis]:
            break
    return tuple(unit)


def regions(
    shape: Sequence[int], chunk: Sequence[int] | None, itemsize: int, batch: Sequence[int], limits: Limits
) -> Cuts:
    """Cut a stored array into some tens of boxes of whole storage chunks, of much the same size.

    Among grids of nearly equal balance the one that cuts the consumed axes least is taken, since regions that
    differ in a batch axis need no merging.
    """
    unit = chunk or read_shape(shape, None, itemsize, limits.read_bytes)
    chunks = Cuts.in_steps(shape, tuple(max(1, min(c, n)) for c, n in zip(unit, shape, strict=True)))
    size = math.prod(shape) * itemsize
    most = min(limits.leaves_for(size // limits.region_bytes), max(1, -(-size // limits.read_bytes)))
    return _coarser(chunks, most, batch, limits)


def grouped(blocks: Cuts, itemsize: int, batch: Sequence[int], limits: Limits) -> Cuts:
    """Join neighbouring blocks into boxes of some `group_bytes`, as long as more than `regions` are left."""
    size = math.prod(edges[-1] for edges in blocks.edges) * itemsize
    most = limits.leaves_for(-(-size // limits.group_bytes))
    return blocks if math.prod(blocks.blocks) <= most else _coarser(blocks, most, batch, limits)


def _coarser(cuts: Cuts, most: int, batch: Sequence[int], limits: Limits) -> Cuts:
    """Return at most `most` boxes of whole blocks; along each axis they differ by at most one block."""
    grid = _balanced(cuts.blocks, most, tuple(batch), limits.balance)
    pairs = zip(cuts.edges, grid, strict=True)
    return Cuts(tuple(tuple(e[(len(e) - 1) * i // n] for i in range(n + 1)) for e, n in pairs))


@functools.lru_cache(maxsize=256)
def _balanced(counts: tuple[int, ...], most: int, batch: tuple[int, ...], balance: float) -> tuple[int, ...]:
    """Return the boxes per axis: nearly smallest largest box, then fewest cuts of consumed axes, fewest boxes."""

    def grids(counts: tuple[int, ...], most: int) -> Iterator[tuple[int, ...]]:
        """Yield every way of cutting the axes into at most `most` boxes."""
        if not counts:
            yield ()
            return
        for first in range(1, min(counts[0], most) + 1):
            for rest in grids(counts[1:], most // first):
                yield (first, *rest)

    largest = {g: math.prod(-(-n // r) for n, r in zip(counts, g, strict=True)) for g in grids(counts, most)}
    good = [g for g, size in largest.items() if size <= balance * min(largest.values())]

    def cost(grid: tuple[int, ...]) -> tuple[Any, ...]:
        merged = math.prod(r for axis, r in enumerate(grid) if axis not in batch)
        return merged, math.prod(grid), largest[grid], tuple(-r for r in grid)

    return min(good, key=cost)


# A source, cut


def prepare(source: Source, limits: Limits) -> Source:
    """Return `source` in the form in which it is summed: all in Dask blocks cut alike, in its store, or in memory.

    Anything chunked makes everything chunked: values and large auxiliary arrays become Dask arrays cut alike. Values
    in a store stay a Reader. The rest stays in memory. Nothing is computed or read. It raises NotImplementedError where
    Dask's arrays are expressions.
    """
    lazy = [(axes, array) for axes, array in source.auxiliary if is_dask(array)]
    if not lazy and not is_dask(source.values):
        return source
    check_arrays()
    values = source.values
    if is_reader(values):
        step = read_shape(source.shape, values.chunks, source.dtype.itemsize, limits.read_bytes)
        values = _from_array(values, Cuts.in_steps(source.shape, step))
    elif not is_dask(values):
        known = {a: c for axes, x in lazy for a, c in zip(axes, x.chunks, strict=True)}
        values = _from_array(values, Cuts.of_chunks([known.get(a, (n,)) for a, n in enumerate(source.shape)]))
    check_chunks(values, source.label)
    return source.with_arrays(
        values,
        [aligned(array, tuple(values.chunks[a] for a in axes), limits) for axes, array in source.auxiliary],
    )


def _from_array(array: Any, cuts: Cuts) -> da.Array:
    lazy = Opaque(array) if is_reader(array) else array
    return da.from_array(lazy, chunks=cuts.chunks, name=new_name("part"), asarray=False, fancy=False)


def aligned(array: Any, chunks: tuple[tuple[int, ...], ...], limits: Limits = LIMITS) -> Any:
    """Return a coordinate or weight cut at `chunks`, or whole where it is small and in memory."""
    if is_dask(array):
        check_chunks(array, "a coordinate or weight")
        return array if array.chunks == chunks else array.rechunk(chunks)
    small = in_memory(array) and nbytes(array) <= limits.whole_bytes
    return array if small else _from_array(array, Cuts.of_chunks(chunks))


def check_chunks(array: da.Array, label: str) -> None:
    """Raise ValueError where the length of a block is unknown."""
    unknown = [axis for axis, n in enumerate(array.shape) if math.isnan(n)]
    if unknown:
        raise ValueError(
            f"{label}: chunk sizes along axis {unknown[0]} are unknown (shape {array.shape}), so its blocks "
            "cannot be matched with coordinates; call .compute_chunk_sizes() on the Dask array first"
        )


def travels_whole(array: Any, limits: Limits) -> bool:
    """Return whether a coordinate or weight goes to each worker as it is, rather than by the block."""
    return is_reader(array) or (in_memory(array) and nbytes(array) <= limits.whole_bytes)


def cuts_of(source: Source, limits: Limits) -> Cuts:
    """Return the boxes of one task each: blocks of a chunked source, or groups of them; regions of a stored one.

    A task computes several blocks, one after another, where each comes from a store or the like by a task of its own:
    then none has to wait, or to travel. The first and the last block are looked at.
    """
    values, batch = source.values, source.layout.batch_axes
    if is_reader(values):
        return regions(source.shape, values.chunks, source.dtype.itemsize, batch, limits)
    if not is_dask(values):
        return Cuts(tuple((0, n) for n in source.shape))
    blocks = Cuts.of_chunks(values.chunks)
    groupable = (
        math.prod(blocks.blocks) > limits.regions
        and all(travels_whole(array, limits) for _, array in source.auxiliary)
        and not any(0 in lengths for lengths in blocks.chunks)
        and InputGraph.of([values.blocks[(i,) * values.ndim] for i in (0, -1)], ()).blocks_are_independent
    )
    return grouped(blocks, source.dtype.itemsize, batch, limits) if groupable else blocks


def read_of(source: Source, cuts: Cuts, device: str | None, limits: Limits) -> tuple[int, ...]:
    """Return the shape of what is summed at once: few and large reads of a store, or small blocks joined."""
    step = limits.read_bytes if device is None else limits.gpu_step_bytes
    itemsize = source.dtype.itemsize
    if not is_dask(source.values):
        return read_shape(cuts.largest, source.values.chunks, itemsize, step)
    blocks = Cuts.of_chunks(source.values.chunks)
    if cuts == blocks:
        return blocks.largest
    return read_shape(cuts.largest, tuple(max(1, n) for n in blocks.largest), itemsize, step)


# Sizes of sums


FactorShape = tuple[tuple[int, ...], bool]
"""Coefficient axes of one factor of G, and whether it differs within the batch."""


def inseparable(space: Space) -> list[FactorShape]:
    """Return the one component of a mask that does not separate."""
    return [(tuple(range(len(space.shape))), True)]


def gram_bytes(
    lengths: Mapping[int, int], space: Space, components: Sequence[FactorShape], batch: int
) -> int:
    """Return the bytes of a product of factors on windows of these lengths, all offsets counted."""
    sizes = (
        math.prod(lengths[k] * space.offsets[k] for k in axes) * (batch if varies else 1)
        for axes, varies in components
    )
    return 8 * sum(sizes)  # of a float64


def sums_bytes(
    lengths: Mapping[int, int], space: Space, components: Sequence[FactorShape], batch: int
) -> int:
    """Return the bytes of Sums: G, the moment and five scalars for each batch member."""
    rest = batch * (math.prod(lengths.values()) + 5)
    return gram_bytes(lengths, space, components, batch) + 8 * rest


@dataclass(frozen=True, eq=False)
class Sizes:
    """Sums of blocks over a whole source: how large the largest is, and all of them together."""

    source: Source  # what is summed
    space: Space  # where it is summed
    cuts: Cuts  # in which blocks
    limits: Limits = LIMITS  # how exactly windows and holders are counted

    @functools.cached_property
    def ranges(self) -> Mapping[int, tuple[np.ndarray, np.ndarray] | None]:
        """Per coefficient axis the lowest and highest label of each block, [blocks along the group's data axes..].

        NaN where a block has none; None where the coordinate is chunked, so that its range would have to be computed.
        """
        source, ranges = self.source, dict[int, tuple[np.ndarray, np.ndarray] | None]()
        for group in source.layout.groups:
            starts = [[min(e, source.shape[a] - 1) for e in self.cuts.edges[a][:-1]] for a in group.data_axes]
            for k in group.coefficient_axes:
                x = source.coordinates[k]
                known = in_memory(x) and math.prod(x.shape) > 0
                ranges[k] = _ranges(np.asarray(x), np.asarray(x), starts) if known else None
        return ranges

    def windows(self, factors: Sequence[int]) -> dict[int, np.ndarray]:
        """Return the lengths of all windows, per coefficient axis, of sums of `factors` blocks per data axis.

        Each is an array over the sums along the group's data axes.
        """
        windows: dict[int, np.ndarray] = {}
        for group in self.source.layout.groups:
            starts = [list(range(0, self.cuts.blocks[a], factors[a])) for a in group.data_axes]
            for k in group.coefficient_axes:
                features, ranges = self.space.features[k], self.ranges[k]
                if ranges is None:
                    windows[k] = np.full([len(at) for at in starts], features.size)
                else:
                    windows[k] = features.count_touched(*_ranges(*ranges, starts))
        return windows

    def most_holders(self, factors: Sequence[int]) -> int:
        """Return how many holders a sum of `factors` blocks per data axis has at most; at least 1."""
        holders = self.source.holders
        if holders is None:
            return 1
        edges, codes = self.cuts.edges[holders.axis], holders.codes
        bounds = list(itertools.pairwise([*edges[: -1 : factors[holders.axis]], edges[-1]]))
        if not in_memory(codes) or nbytes(codes) > self.limits.whole_bytes:
            return max(1, min(holders.count, max(b - a for a, b in bounds)))
        return max(1, *(len(np.unique(codes[a:b])) for a, b in bounds))

    def largest(self, factors: Sequence[int], components: Sequence[FactorShape]) -> int:
        """Return the bytes of the largest sum of `factors` blocks per data axis, of all holders in it."""
        lengths = {k: int(np.max(window, initial=0)) for k, window in self.windows(factors).items()}
        batch = math.prod(self.cuts.largest[a] for a in self.source.layout.batch_axes)
        return sums_bytes(lengths, self.space, components, batch) * self.most_holders(factors)

    def total(self, factors: Sequence[int], components: Sequence[FactorShape]) -> int:
        """Return the bytes of all sums of `factors` blocks per data axis."""
        layout, blocks, windows = self.source.layout, self.cuts.blocks, self.windows(factors)
        members = math.prod(self.source.shape[a] for a in layout.batch_axes)
        sets = math.prod(blocks[a] for a in layout.batch_axes)

        def product(axes: Sequence[int]) -> int:
            """Return the sum over all sums, of one batch block, of the product of their windows along `axes`."""
            total = 1
            for group in layout.groups:
                own = [windows[k] for k in group.coefficient_axes if k in axes]
                total *= (
                    int(np.sum(math.prod(own[1:], start=own[0])))
                    if own
                    else math.prod(-(-blocks[a] // factors[a]) for a in group.data_axes)
                )
            return total

        # G, then the moment, then five scalars: all of the last two vary within the batch.
        terms = [
            *((axes, varies, math.prod(self.space.offsets[k] for k in axes)) for axes, varies in components),
            (tuple(range(len(self.space.shape))), True, 1),
            ((), True, 5),
        ]
        numbers = sum(per * product(axes) * (members if varies else sets) for axes, varies, per in terms)
        return 8 * numbers * self.most_holders(factors)


def _ranges(lo: np.ndarray, hi: np.ndarray, starts: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the least of `lo` and the greatest of `hi` in the boxes that begin at `starts` along each axis."""
    for axis, at in enumerate(starts):
        lo, hi = np.fmin.reduceat(lo, at, axis=axis), np.fmax.reduceat(hi, at, axis=axis)
    return lo, hi


# The tree of merges


def steps_of(source: Source, space: Space, cuts: Cuts, limits: Limits) -> tuple[tuple[int, ...], ...]:
    """Return the levels of the tree of merges, with fan-ins for the largest sums that a mask can leave."""
    sizes, components = Sizes(source, space, cuts, limits), inseparable(space)
    return levels(
        cuts.blocks,
        source.consumed,
        lambda factors: sizes.largest(factors, components),
        lambda factors: sizes.total(factors, components),
        limits,
    )


def fan_in(nbytes: int, limits: Limits) -> int:
    """Return how many partial sums of `nbytes` one task merges: 16 up to 2 MB each, never fewer than 2."""
    return max(2, min(limits.fan_in, limits.merge_bytes // max(1, nbytes)))


def levels(
    blocks: Sequence[int],
    consumed: Sequence[int],
    largest: Callable[[tuple[int, ...]], int],
    total: Callable[[tuple[int, ...]], int],
    limits: Limits = LIMITS,
) -> tuple[tuple[int, ...], ...]:
    """Return the tree over a grid of blocks: for each level, how many neighbours it merges along each axis.

    `blocks` counts those along each axis, `consumed` are the axes to merge, of which the others keep their grid, and
    `limits` are those of one merge. `largest` and `total` return the bytes of the largest sum of this many blocks per
    axis, and of all of them together.

    Every level moves its sums once. Where windows hardly overlap they are as large as their total together, so all
    are merged at the root; where they do, neighbours that share most of their windows are merged first. Neighbours
    in a box are merged, so factors of separable masks merge too.
    """
    left = tuple(n if axis in consumed else 1 for axis, n in enumerate(blocks))
    merged: tuple[int, ...] = (1,) * len(left)
    steps: list[tuple[int, ...]] = []
    while max(left, default=1) > 1:
        at_root = tuple(a * b for a, b in zip(merged, left, strict=True))
        if math.prod(left) <= limits.leaves and total(merged) <= limits.root_ratio * total(at_root):
            step = left
        else:
            # A fan-in is shared among axes: that whose doubling leaves fewest bytes, then most blocks, then the last.
            most, step = fan_in(largest(merged), limits), (1,) * len(left)
            while True:
                doubled = [(*step[:a], min(2 * step[a], n), *step[a + 1 :]) for a, n in enumerate(left)]
                fits = [a for a, new in enumerate(doubled) if new != step and math.prod(new) <= most]
                if not fits:
                    break
                sizes = [total(tuple(m * f for m, f in zip(merged, new, strict=True))) for new in doubled]
                step = doubled[min(fits, key=lambda a: (sizes[a], left[a] // -step[a], -a))]
        left = tuple(-(-n // f) for n, f in zip(left, step, strict=True))
        merged = tuple(a * b for a, b in zip(merged, step, strict=True))
        steps.append(step)
    return tuple(steps)


def groups(
    blocks: Sequence[int], step: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], list[tuple[int, ...]]]]:
    """Yield (index of the group, indices of its members in C order) for one level of the tree."""
    ranges = [[range(i, min(i + f, n)) for i in range(0, n, f)] for n, f in zip(blocks, step, strict=True)]
    for index in itertools.product(*(range(len(r)) for r in ranges)):
        yield index, list(itertools.product(*(r[i] for r, i in zip(ranges, index, strict=True))))
