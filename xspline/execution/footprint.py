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

    def lengths(self, factors: Sequence[int]) -> tuple[int, ...]:
        """Return the longest window, per coefficient axis, of a sum of `factors` blocks per data axis."""
        step = [factors[a] for a in self.group.data_axes]
        pairs = zip(self.features, self.ranges, strict=True)
        return tuple(f.size if r is None else _longest(f, *_coarser(r, step)) for f, r in pairs)


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


def _longest(features: Features, lo: np.ndarray, hi: np.ndarray) -> int:
    """Return the longest window that labels between `lo` and `hi` can touch."""
    known = np.isfinite(lo) & np.isfinite(hi)
    lo, hi = lo[known], hi[known]
    if not features.local:
        return features.size
    if features.domain is None:
        return _longest_arc(features, lo, hi)
    inside = (hi >= features.domain[0]) & (lo <= features.domain[1])
    first, last = (features.locate(np.clip(x[inside], *features.domain))[0] for x in (lo, hi))
    return int(np.max(features.first[last] - features.first[first] + features.width, initial=0))


def _longest_arc(features: Features, lo: np.ndarray, hi: np.ndarray) -> int:
    """Return the same on a circle, from the widest of many ranges."""
    widest = np.argsort(lo - hi, kind="stable")[:SAMPLE]
    slack = int(len(lo) > SAMPLE)  # a narrower range may straddle one more knot
    lengths = [features.window(float(lo[i]), float(hi[i]))[1] + slack for i in widest]
    return min(features.size, max(lengths, default=0))


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


def window_lengths(found: Sequence[Extent], factors: Sequence[int]) -> dict[int, int]:
    """Return, per coefficient axis, the longest window of a sum of `factors` blocks per data axis."""
    pairs = (zip(e.group.coefficient_axes, e.lengths(factors), strict=True) for e in found)
    return dict(itertools.chain.from_iterable(pairs))


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


def joined(space: Space) -> list[Component]:
    """Return the one component of a mask that does not separate."""
    return [(tuple(range(len(space.shape))), True)]
