"""The matrix-vector product of a symmetric pair array, about as fast as the pair array can be read."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from xspline.solve.direct.band import Array, Integers
from xspline.solve.multigrid import compiled
from xspline.solve.multigrid.spaces import AxisLevel
from xspline.solve.parallel import WORTH_THREADS, ranges, rounds_of, run
from xspline.sums import orientations


class Operator:
    """A symmetric matrix as bands along the last of four axes, each linked to pairs of rows of the others.

    `pairs`, [K.., O..], are over four axes.
    """

    def __init__(self, pairs: Array, axes: Sequence[AxisLevel]) -> None:
        self.sizes = tuple(axis.size for axis in axes)
        self.width, self.wraps = axes[3].offsets, axes[3].periodic
        # Flat first members and offsets of the pairs that exist along three axes, by first member.
        first = np.indices(self.sizes[:3]).reshape(3, -1, 1)
        offset = np.indices([axis.offsets for axis in axes[:3]]).reshape(3, 1, -1)
        exists = [axes[j].periodic | (first[j] + offset[j] < axes[j].size) for j in range(3)]
        rows, kinds = np.nonzero(np.logical_and.reduce(exists))
        self.links = _links(rows, kinds, axes[:3])
        self.bands = np.empty((len(rows), self.width, self.sizes[3] + self.width - 1))
        flat = pairs.reshape(math.prod(self.sizes[:3]), self.sizes[3], -1, self.width)

        def piece(a: int, b: int) -> None:
            compiled.pack(flat, rows[a:b], kinds[a:b], self.wraps, self.bands[a:b])

        self.split = len(self.links.target) * self.sizes[3] * self.width > WORTH_THREADS
        run(piece, [ranges(len(rows))], split=self.split)
        # Ranges of blocks: slabs of the first axis, in rounds whose slabs write to different rows.
        size, tail = axes[0].size, axes[0].offsets - 1
        edges = np.linspace(0, size, max(size // max(tail, 1), 1) + 1).astype(int)
        bounds = np.searchsorted(rows // math.prod(self.sizes[1:3]), edges).tolist()
        written = [(np.arange(a, b + tail) % size).tolist() for a, b in itertools.pairwise(edges.tolist())]
        self.rounds = [[(bounds[i], bounds[i + 1]) for i in slabs] for slabs in rounds_of(written)]

    @property
    def nbytes(self) -> int:
        """Bytes of the bands and their links."""
        return self.bands.nbytes + self.links.target.nbytes + self.links.source.nbytes

    def matvec(self, x: Array) -> Array:
        """A x, [m, K..]."""
        w, size = self.width - 1, self.sizes[3]
        flat = x.reshape(len(x), -1, size)
        padded = np.zeros((*flat.shape[:2], size + 2 * w))
        padded[..., w : w + size] = flat
        if self.wraps and w:
            padded[..., :w], padded[..., -w:] = flat[..., -w:], flat[..., :w]
        out = np.zeros_like(flat)

        def piece(a: int, b: int) -> None:
            compiled.multiply(self.bands, self.links, padded, out, a, b)

        run(piece, self.rounds, split=self.split)
        return out.reshape(x.shape)

    def diagonal(self) -> Array:
        """The diagonal, [K..]."""
        alone = np.flatnonzero(np.diff(self.links.start) == 1)  # blocks of one row with itself
        return self.bands[alone, 0, self.width - 1 :].reshape(self.sizes)

    def inverse_root_diagonal(self) -> Array:
        """Inverse square roots of the diagonal, [K..]."""
        return 1.0 / np.sqrt(self.diagonal())


def _links(rows: Integers, kinds: Integers, axes: Sequence[AxisLevel]) -> compiled.Links:
    """Target and source rows of every block, in all orientations of its pair."""
    sizes = [axis.size for axis in axes]
    first = np.unravel_index(rows, sizes)
    offset = np.unravel_index(kinds, [axis.offsets for axis in axes])
    second = [(k + o) % n for k, o, n in zip(first, offset, sizes, strict=True)]
    targets, sources, blocks = [], [], []
    for flips in orientations((1,) * len(axes)):
        exists = np.logical_and.reduce([(o > 0) | (not flip) for o, flip in zip(offset, flips, strict=True)])
        ends = [(s, k) if flip else (k, s) for k, s, flip in zip(first, second, flips, strict=True)]
        target, source = zip(*ends, strict=True)
        targets.append(np.asarray(np.ravel_multi_index(target, sizes))[exists])
        sources.append(np.asarray(np.ravel_multi_index(source, sizes))[exists])
        blocks.append(np.flatnonzero(exists))
    block = np.concatenate(blocks)
    order = np.argsort(block, kind="stable")
    start = np.searchsorted(block[order], np.arange(len(rows) + 1))
    return compiled.Links(start, np.concatenate(targets)[order], np.concatenate(sources)[order])
