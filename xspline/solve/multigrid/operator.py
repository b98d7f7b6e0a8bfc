"""The product of a symmetric pair array with vectors, about as fast as the pair array can be read."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from xspline.solve.multigrid import compiled as stencil
from xspline.solve.multigrid.spaces import Line
from xspline.solve.parallel import ranges, rounds_of, run

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
SMALL = 1 << 20  # multiplications that are not worth a second thread


class Operator:
    """A symmetric matrix as bands along the last of four axes, each linked to pairs of rows of the others.

    Parameters
    ----------
    pairs : ndarray, [K.., O..]
        Over four axes.
    lines : sequence of Line
        The axes.
    """

    def __init__(self, pairs: Array, lines: Sequence[Line]) -> None:
        self.sizes = tuple(line.size for line in lines)
        self.width, self.wraps = lines[3].offsets, lines[3].periodic
        rows, kinds = _blocks(lines[:3])
        self.target, self.source, self.start = _links(rows, kinds, lines[:3])
        self.bands = np.empty((len(rows), self.width, self.sizes[3] + self.width - 1))
        four = pairs.reshape(math.prod(self.sizes[:3]), self.sizes[3], -1, self.width)

        def piece(a: int, b: int) -> None:
            stencil.pack(four, rows[a:b], kinds[a:b], self.wraps, self.bands[a:b])

        self.split = len(self.target) * self.sizes[3] * self.width > SMALL
        run(piece, [ranges(len(rows))], split=self.split)
        self.rounds = self._rounds(rows, lines[0])

    @property
    def nbytes(self) -> int:
        """Bytes of the bands and their links."""
        return self.bands.nbytes + self.target.nbytes + self.source.nbytes

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
            stencil.multiply(self.bands, self.start, self.target, self.source, padded, out, a, b)

        run(piece, self.rounds, split=self.split)
        return out.reshape(x.shape)

    def scale(self) -> Array:
        """Inverse square roots of the diagonal, [K..]."""
        w = self.width - 1
        alone = np.flatnonzero(np.diff(self.start) == 1)  # blocks of one row with itself
        return 1.0 / np.sqrt(self.bands[alone, 0, w:].reshape(self.sizes))

    def _rounds(self, rows: Integers, line: Line) -> list[list[tuple[int, int]]]:
        """Ranges of blocks: slabs of the first axis, in rounds whose slabs write to different rows."""
        reach = line.offsets - 1
        edges = np.linspace(0, line.size, max(line.size // max(reach, 1), 1) + 1).astype(int)
        bounds = np.searchsorted(rows // math.prod(self.sizes[1:3]), edges)
        slabs = list(itertools.pairwise(edges.tolist()))
        written = [(np.arange(a, b + reach) % line.size).tolist() for a, b in slabs]
        return [[(int(bounds[i]), int(bounds[i + 1])) for i in pieces] for pieces in rounds_of(written)]


def _blocks(lines: Sequence[Line]) -> tuple[Integers, Integers]:
    """Flat first members and offsets of the pairs that exist along three axes, by first member."""
    first = np.indices([line.size for line in lines]).reshape(3, -1, 1)
    offset = np.indices([line.offsets for line in lines]).reshape(3, 1, -1)
    exists = [line.periodic | (k + o < line.size) for line, k, o in zip(lines, first, offset, strict=True)]
    rows, kinds = np.nonzero(np.logical_and.reduce(exists))
    return rows, kinds


def _links(rows: Integers, kinds: Integers, lines: Sequence[Line]) -> tuple[Integers, Integers, Integers]:
    """(target, source) rows of every block, in all orientations of its pair, and where those of a block start."""
    sizes = [line.size for line in lines]
    first = np.unravel_index(rows, sizes)
    offset = np.unravel_index(kinds, [line.offsets for line in lines])
    second = [(k + o) % n for k, o, n in zip(first, offset, sizes, strict=True)]
    targets: list[Integers] = []
    sources: list[Integers] = []
    blocks: list[Integers] = []
    for flips in np.ndindex(2, 2, 2):
        exists = np.logical_and.reduce([(o > 0) | (not flip) for o, flip in zip(offset, flips, strict=True)])
        ends = [(s, k) if flip else (k, s) for k, s, flip in zip(first, second, flips, strict=True)]
        for found, side in zip((targets, sources), zip(*ends, strict=True), strict=True):
            found.append(np.asarray(np.ravel_multi_index(side, sizes))[exists])
        blocks.append(np.flatnonzero(exists))
    block = np.concatenate(blocks)
    order = np.argsort(block, kind="stable")
    start = np.searchsorted(block[order], np.arange(len(rows) + 1))
    return np.concatenate(targets)[order], np.concatenate(sources)[order], start
