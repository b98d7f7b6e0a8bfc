"""How many coefficients a block touches, from its coordinates alone, and the bytes of its sums."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from xspline.execution.cuts import Cuts
from xspline.execution.source import Source, in_memory, nbytes
from xspline.kernels import Group
from xspline.spaces import Features, Space

FLOAT = 8
SAMPLE = 256
COUNTED = 2**20
"""Bytes of labels in which holders are counted; of more, there are at most as many as rows or holders."""


@dataclass(frozen=True, eq=False)
class Extent:
    """Ranges of one group's coordinates over its grid of blocks.

    Attributes
    ----------
    group : the group.
    features : of its coefficient axes.
    ranges : per coefficient axis the lowest and highest label of each block, [blocks along the group's data
        axes..]; None where the coordinate is chunked, so that its range would have to be computed.
    """

    group: Group
    features: tuple[Features, ...]
    ranges: tuple[tuple[np.ndarray, np.ndarray] | None, ...]

    def windows(self, factors: Sequence[int], blocks: Sequence[int]) -> tuple[np.ndarray, ...]:
        """Return the lengths of all windows, per coefficient axis, of sums of `factors` blocks per data axis.

        Parameters
        ----------
        factors : per data axis.
        blocks : that there are along each data axis before they are summed.

        Returns
        -------
        tuple of ndarray of int, [sums along the group's data axes..]
        """
        step = tuple(factors[a] for a in self.group.data_axes)
        counts = tuple(-(-blocks[a] // factors[a]) for a in self.group.data_axes)
        pairs = zip(self.features, self.ranges, strict=True)
        return tuple(
            np.full(counts, f.size) if r is None else _lengths(f, *_coarser(r, step)) for f, r in pairs
        )


def extents(source: Source, space: Space, cuts: Cuts) -> tuple[Extent, ...]:
    """Return the Extent of each group of `source`, whose data axes are cut at `cuts`."""
    return tuple(
        _extent(group, source, space, cuts) for group in source.layout.groups if group.coefficient_axes
    )


def _extent(group: Group, source: Source, space: Space, cuts: Cuts) -> Extent:
    edges = [cuts.edges[a] for a in group.data_axes]
    found = (source.coordinates[k] for k in group.coefficient_axes)
    ranges = tuple(_ranges(np.asarray(x), edges) if in_memory(x) else None for x in found)
    return Extent(group, tuple(space.features[k] for k in group.coefficient_axes), ranges)


def _ranges(x: np.ndarray, edges: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray] | None:
    """Return (lowest, highest) label of each block; NaN where it has none."""
    if x.size == 0:
        return None
    starts = [[min(e, n - 1) for e in axis[:-1]] for axis, n in zip(edges, x.shape, strict=True)]
    return _reduced(np.fmin, x, starts), _reduced(np.fmax, x, starts)


def _reduced(ufunc: np.ufunc, x: np.ndarray, starts: Sequence[Sequence[int]]) -> np.ndarray:
    for axis, at in enumerate(starts):
        x = ufunc.reduceat(x, at, axis=axis)
    return x


def _coarser(ranges: tuple[np.ndarray, np.ndarray], step: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    starts = [list(range(0, n, f)) for n, f in zip(ranges[0].shape, step, strict=True)]
    return _reduced(np.fmin, ranges[0], starts), _reduced(np.fmax, ranges[1], starts)


def _lengths(features: Features, lo: np.ndarray, hi: np.ndarray) -> np.ndarray:
    """Return how many functions labels between each pair of `lo` and `hi` can touch; 0 where there are none."""
    known = np.isfinite(lo) & np.isfinite(hi)
    if not features.local:
        return np.where(known, features.size, 0)
    if features.domain is None:
        return _arcs(features, lo, hi)
    inside = known & (hi >= features.domain[0]) & (lo <= features.domain[1])
    first, last = (features.locate(np.clip(x[inside], *features.domain))[0] for x in (lo, hi))
    found = np.zeros(lo.shape, dtype=np.int64)
    found[inside] = features.first[last] - features.first[first] + features.width
    return found


def _arcs(features: Features, lo: np.ndarray, hi: np.ndarray) -> np.ndarray:
    """Return the same on a circle; of many ranges, that of the widest for all of them."""
    pairs = np.stack([lo.ravel(), hi.ravel()], axis=1)
    if len(pairs) <= SAMPLE:
        return np.array([features.window(*pair)[1] for pair in pairs.tolist()], int).reshape(lo.shape)
    widest = np.argsort(pairs[:, 0] - pairs[:, 1], kind="stable")[:SAMPLE]
    # A narrower range may straddle one more knot.
    longest = 1 + max(features.window(*pair)[1] for pair in pairs[widest].tolist())
    return np.full(lo.shape, min(features.size, longest))


def batch_extent(source: Source, cuts: Cuts) -> int:
    """Return the largest number of batch members in one block."""
    return math.prod(cuts.largest[a] for a in source.layout.batch_axes)


def most_holders(source: Source, cuts: Cuts, factors: Sequence[int]) -> int:
    """Return how many holders a sum of `factors` blocks per data axis has at most; at least 1."""
    if source.owners is None:
        return 1
    edges, step = cuts.edges[source.owners.axis], factors[source.owners.axis]
    bounds, codes = [*edges[:-1:step], edges[-1]], source.owners.codes
    if not in_memory(codes) or nbytes(codes) > COUNTED:
        return max(1, min(source.owners.count, max(b - a for a, b in itertools.pairwise(bounds))))
    return max(1, *(len(np.unique(codes[a:b])) for a, b in itertools.pairwise(bounds)))


def window_lengths(found: Sequence[Extent], factors: Sequence[int], blocks: Sequence[int]) -> dict[int, int]:
    """Return, per coefficient axis, the longest window of a sum of `factors` blocks per data axis."""
    return {
        k: int(np.max(lengths, initial=0))
        for extent in found
        for k, lengths in zip(extent.group.coefficient_axes, extent.windows(factors, blocks), strict=True)
    }


Component = tuple[tuple[int, ...], bool]
"""Coefficient axes of one factor of G, and whether it differs within the batch."""


def gram_bytes(lengths: Mapping[int, int], space: Space, components: Sequence[Component], batch: int) -> int:
    """Return the bytes of a product of factors on windows of these lengths, all offsets counted."""
    sizes = (
        math.prod(lengths[k] * space.offsets[k] for k in axes) * (batch if varies else 1)
        for axes, varies in components
    )
    return FLOAT * sum(sizes)


def sums_bytes(lengths: Mapping[int, int], space: Space, components: Sequence[Component], batch: int) -> int:
    """Return the bytes of Sums: G, the moment and five scalars for each batch member."""
    rest = batch * (math.prod(lengths.values()) + 5)
    return gram_bytes(lengths, space, components, batch) + FLOAT * rest


@dataclass(frozen=True, eq=False)
class Sizes:
    """Sums of blocks over a whole source: how large all of them are together.

    Attributes
    ----------
    source, space, cuts : what is summed, where, in which blocks.
    found : Extent of each group with coefficients.
    """

    source: Source
    space: Space
    cuts: Cuts
    found: tuple[Extent, ...]

    @classmethod
    def of(cls, source: Source, space: Space, cuts: Cuts) -> Sizes:
        return cls(source, space, cuts, extents(source, space, cuts))

    def largest(self, factors: Sequence[int], components: Sequence[Component]) -> int:
        """Return the bytes of the largest sum of `factors` blocks per data axis, of all holders in it."""
        lengths = window_lengths(self.found, factors, self.cuts.blocks)
        one = sums_bytes(lengths, self.space, components, batch_extent(self.source, self.cuts))
        return one * most_holders(self.source, self.cuts, factors)

    def total(self, factors: Sequence[int], components: Sequence[Component]) -> int:
        """Return the bytes of all sums of `factors` blocks per data axis."""
        layout, blocks = self.source.layout, self.cuts.blocks
        members = math.prod(self.source.shape[a] for a in layout.batch_axes)
        sets = math.prod(blocks[a] for a in layout.batch_axes)
        windows = [extent.windows(factors, blocks) for extent in self.found]
        every = tuple(range(len(self.space.shape)))
        # G, then the moment, then five scalars: all of the last two vary within the batch.
        terms = [
            *((axes, varies, self._pairs(axes)) for axes, varies in components),
            (every, True, 1),
            ((), True, 5),
        ]
        numbers = sum(
            per * self._product(windows, factors, axes) * (members if varies else sets)
            for axes, varies, per in terms
        )
        return FLOAT * numbers * most_holders(self.source, self.cuts, factors)

    def _pairs(self, axes: Sequence[int]) -> int:
        return math.prod(self.space.offsets[k] for k in axes)

    def _product(
        self, windows: Sequence[tuple[np.ndarray, ...]], factors: Sequence[int], axes: Sequence[int]
    ) -> int:
        """Return the sum over all sums, of one batch block, of the product of their windows along `axes`."""
        total = 1
        for extent, lengths in zip(self.found, windows, strict=True):
            mine = [n for k, n in zip(extent.group.coefficient_axes, lengths, strict=True) if k in axes]
            total *= (
                int(np.sum(math.prod(mine[1:], start=mine[0])))
                if mine
                else self._count(extent.group, factors)
            )
        pooled = (g for g in self.source.layout.groups if not g.coefficient_axes)
        return total * math.prod(self._count(group, factors) for group in pooled)

    def _count(self, group: Group, factors: Sequence[int]) -> int:
        return math.prod(-(-self.cuts.blocks[a] // factors[a]) for a in group.data_axes)


def joined(space: Space) -> list[Component]:
    """Return the one component of a mask that does not separate."""
    return [(tuple(range(len(space.shape))), True)]
