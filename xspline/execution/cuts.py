"""How an array is cut: blocks, regions, reads, the levels of the tree. Whole numbers in, whole numbers out.

Everything here is a function of shapes, chunks and sizes, never of the workers: the same cuts, so the same sums, bit
for bit.
"""

from __future__ import annotations

import functools
import itertools
import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

MAX_REGIONS = 48
"""Regions of a lazily indexed array up to 48 GB: enough for some dozen workers, few enough for any scheduler."""

REGION = 2**30
"""Bytes of a region of a larger one."""

GROUP = 64 * 2**20
"""Bytes of small Dask blocks that one task takes, where there are more than `MAX_REGIONS` of them."""

MAX_LEAVES = 1024
"""Most regions or groups of blocks, however large the array: what waits in the tree does not grow any more."""

READ = 8 * 2**20
"""Bytes read at once, where storage chunks are smaller than that."""

JOIN = 2 * 2**20
"""Bytes of small Dask blocks that are summed at once."""

GPU = 64 * 2**20
"""Bytes that are read, or blocks joined, for one step of a GPU: its kernels take microseconds to start.

For each task, the GPU holds two of them: what it sums, and what arrives meanwhile. The host holds what it reads.
"""

FAN_IN = 16
"""Most partial sums merged by one task."""

MERGE = 16 * 2**20
"""Bytes of partial sums that one merge may hold: 16 of 1 MB, or fewer of larger ones, at least two."""

WAITING = 4 * 2**20
"""Bytes of partial sums that a task which adds up its reads keeps before it merges them."""

ROOT = 3
"""Sums that together have at most this many times the bytes of their total are merged by one task."""

MOST_AT_ROOT = 4096
"""Most partial sums of that task."""

_SLACK = 1.15  # fewer regions are preferred to perfectly equal ones, within this factor


@dataclass(frozen=True)
class Cuts:
    """A grid of boxes over an array.

    Attributes
    ----------
    edges : for each axis the bounds of its blocks, ascending, from 0 to the length of the axis.
    """

    edges: tuple[tuple[int, ...], ...]

    @classmethod
    def of_chunks(cls, chunks: Sequence[Sequence[int]]) -> Cuts:
        """Cut at the bounds of Dask chunks (lengths per block)."""
        return cls(tuple((0, *itertools.accumulate(lengths)) for lengths in chunks))

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


def runs(lo: int, hi: int, step: int) -> tuple[int, ...]:
    """Return bounds every `step` from `lo` to `hi`."""
    return (*range(lo, hi, step), hi)


def read_shape(
    shape: Sequence[int], chunk: Sequence[int] | None, itemsize: int, most: int | None = None
) -> tuple[int, ...]:
    """Return the shape of one read: whole storage chunks, several where they are small, innermost axes first.

    A read is one chunk or at most `most` bytes (`READ`), whichever is more. Without known chunks it grows from a value.
    """
    most = READ if most is None else most
    unit = [max(1, min(c, n)) for c, n in zip(chunk or [1] * len(shape), shape, strict=True)]
    for axis in reversed(range(len(unit))):
        fits = max(1, most // (math.prod(unit) * itemsize))
        unit[axis] = min(shape[axis], unit[axis] * fits) if shape[axis] else 1
        if unit[axis] < shape[axis]:
            break
    return tuple(unit)


def regions(shape: Sequence[int], chunk: Sequence[int] | None, itemsize: int, batch: Sequence[int]) -> Cuts:
    """Cut a stored array into some tens of boxes of whole storage chunks, of much the same size.

    Among grids of nearly equal balance the one that cuts the consumed axes least is taken, since regions that
    differ in a batch axis need no merging.
    """
    unit = chunk or read_shape(shape, None, itemsize)
    unit = tuple(max(1, min(c, n)) for c, n in zip(unit, shape, strict=True))
    counts = tuple(-(-n // c) for n, c in zip(shape, unit, strict=True))
    nbytes = math.prod(shape) * itemsize
    most = min(_leaves(nbytes // REGION), max(1, -(-nbytes // READ)))
    chunks = Cuts(tuple(runs(0, n, c) for n, c in zip(shape, unit, strict=True)))
    return _coarser(chunks, _balanced(counts, most, tuple(batch)))


def grouped(blocks: Cuts, itemsize: int, batch: Sequence[int]) -> Cuts:
    """Join neighbouring blocks into boxes of at least `GROUP` bytes, as long as more than `MAX_REGIONS` are left."""
    nbytes = math.prod(edges[-1] for edges in blocks.edges) * itemsize
    most = _leaves(-(-nbytes // GROUP))
    if math.prod(blocks.blocks) <= most:
        return blocks
    return _coarser(blocks, _balanced(blocks.blocks, most, tuple(batch)))


def _leaves(count: int) -> int:
    return max(MAX_REGIONS, min(MAX_LEAVES, count))


def _coarser(cuts: Cuts, grid: Sequence[int]) -> Cuts:
    """Return boxes, `grid` of them along each axis, of whole blocks; they differ by at most one block."""
    pairs = zip(cuts.edges, grid, strict=True)
    return Cuts(tuple(tuple(e[(len(e) - 1) * i // parts] for i in range(parts + 1)) for e, parts in pairs))


@functools.lru_cache(maxsize=256)
def _balanced(counts: tuple[int, ...], most: int, batch: tuple[int, ...]) -> tuple[int, ...]:
    """Return the runs per axis: nearly smallest largest box, then fewest cuts of consumed axes, fewest boxes."""
    grids = list(_grids(counts, most))
    largest = {g: math.prod(-(-n // r) for n, r in zip(counts, g, strict=True)) for g in grids}
    good = [g for g in grids if largest[g] <= _SLACK * min(largest.values())]
    return min(good, key=lambda g: (_merged(g, batch), math.prod(g), largest[g], tuple(-r for r in g)))


def _merged(grid: tuple[int, ...], batch: tuple[int, ...]) -> int:
    return math.prod(r for axis, r in enumerate(grid) if axis not in batch)


def _grids(counts: tuple[int, ...], most: int) -> Iterator[tuple[int, ...]]:
    """Yield every way of cutting the axes into at most `most` boxes."""
    if not counts:
        yield ()
        return
    for first in range(1, min(counts[0], most) + 1):
        for rest in _grids(counts[1:], most // first):
            yield (first, *rest)


def fan_in(nbytes: int) -> int:
    """Return how many partial sums of `nbytes` one task merges: 16 up to 1 MB each, never fewer than 2."""
    return max(2, min(FAN_IN, MERGE // max(1, nbytes)))


def levels(
    blocks: Sequence[int],
    consumed: Sequence[int],
    largest: Callable[[tuple[int, ...]], int],
    total: Callable[[tuple[int, ...]], int],
) -> tuple[tuple[int, ...], ...]:
    """Return the tree over a grid of blocks: for each level, how many neighbours it merges along each axis.

    Parameters
    ----------
    blocks : blocks along each axis.
    consumed : axes to merge; the others keep their grid.
    largest, total : bytes of the largest sum of this many blocks per axis, and of all of them together.

    Notes
    -----
    Every level moves its sums once. Where windows hardly overlap they are as large as their total together, so all
    are merged at the root; where they do, neighbours that share most of their windows are merged first. Neighbours
    in a box are merged, so factors of separable masks merge too.
    """
    left = tuple(n if axis in consumed else 1 for axis, n in enumerate(blocks))
    done, out = (1,) * len(left), []
    while max(left, default=1) > 1:
        if math.prod(left) <= MOST_AT_ROOT and total(done) <= ROOT * total(_times(done, left)):
            step = left
        else:
            step = _share(fan_in(largest(done)), left, lambda step: total(_times(done, step)))  # noqa: B023
        left = tuple(-(-n // f) for n, f in zip(left, step, strict=True))
        done = _times(done, step)
        out.append(step)
    return tuple(out)


def _times(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    return tuple(x * y for x, y in zip(a, b, strict=True))


def _share(fan: int, left: Sequence[int], total: Callable[[tuple[int, ...]], int]) -> tuple[int, ...]:
    """Share a fan-in among axes: that whose doubling leaves fewest bytes, then most blocks, then the last."""
    step = (1,) * len(left)
    while True:
        doubled = [(*step[:a], min(2 * step[a], n), *step[a + 1 :]) for a, n in enumerate(left)]
        fits = [a for a, new in enumerate(doubled) if new != step and math.prod(new) <= fan]
        if not fits:
            return step
        step = doubled[min(fits, key=lambda a: (total(doubled[a]), left[a] // -step[a], -a))]


def groups(
    blocks: Sequence[int], step: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], list[tuple[int, ...]]]]:
    """Yield (index of the group, indices of its members in C order) for one level of the tree."""
    ranges = [[range(i, min(i + f, n)) for i in range(0, n, f)] for n, f in zip(blocks, step, strict=True)]
    for index in itertools.product(*(range(len(r)) for r in ranges)):
        yield index, list(itertools.product(*(r[i] for r, i in zip(ranges, index, strict=True))))
