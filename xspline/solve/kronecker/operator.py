"""The matrix-vector product of a symmetric pair array, about as fast as the pair array can be read."""

from __future__ import annotations

import itertools
import math

import numpy as np

from xspline.solve.costs import COSTS
from xspline.solve.direct.band import Array, Integers
from xspline.spaces import Frame
from xspline.sums.factor import matrix_entries
from xspline.threads import run


class Operator:
    """A symmetric matrix as bands along one axis, each linked to the pairs of rows of the others that have it.

    `pairs`, [K.., O..], are those of a frame. Along the axis of the bands no function is active everywhere.
    """

    def __init__(self, pairs: Array, frame: Frame) -> None:
        from xspline.solve.kronecker.compiled import Links  # imports numba

        axes = range(len(frame.sizes))
        self.sizes = frame.sizes
        self.diagonal = pairs[(slice(None),) * len(axes) + (0,) * len(axes)].copy()
        # An axis of one in front: the bands of a single coordinate have other axes too, and it may hold the bands.
        frame = Frame(
            (1, *frame.sizes), (1, *frame.offsets), (False, *frame.periodic), (), (0, *frame.everywhere)
        )
        pairs = pairs.reshape(*frame.sizes, *frame.offsets)
        self.order = _order(frame)
        *others, last = self.order
        own = frame.along(others)
        self.beside, self.size = own.sizes, frame.sizes[last]
        self.width, self.wraps = frame.offsets[last], frame.periodic[last]
        count = len(frame.sizes)
        moved = pairs.transpose(*others, *(count + j for j in others), count + last, last)
        numbers = np.arange(math.prod((*own.sizes, *own.offsets))).reshape(*own.sizes, *own.offsets)
        blocks: list[Integers] = []
        targets: list[Integers] = []
        sources: list[Integers] = []
        for place, rows, columns in matrix_entries(own):
            shape = numbers[place].shape
            blocks.append(numbers[place].ravel())
            for ends, links in ((rows, targets), (columns, sources)):
                links.append(np.broadcast_to(np.ravel_multi_index(ends, own.sizes), shape).ravel())
        block = np.concatenate(blocks)
        order = np.argsort(block, kind="stable")
        used, start = np.unique(block[order], return_index=True)
        self.links = Links(
            np.append(start, block.size), np.concatenate(targets)[order], np.concatenate(sources)[order]
        )
        self.bands = self._bands(moved.reshape(-1, self.width, self.size)[used])
        self.split = block.size * self.size * self.width > COSTS.slab_numbers
        # Slabs of the first axis, no thinner than pairs are wide: every other one at a time writes to other rows.
        length, coupled = own.sizes[0], own.sizes[0] if own.everywhere[0] else max(own.offsets[0] - 1, 1)
        edges = np.linspace(0, length, max(length // coupled // 2 * 2, 1) + 1).astype(int)
        slabs = list(itertools.pairwise(np.searchsorted(used // (numbers.size // length), edges).tolist()))
        self.rounds = [slabs[0::2], slabs[1::2]]

    def _bands(self, pairs: Array) -> Array:
        """[bands, O, w + K] of pairs [bands, O, K], with w = O − 1 entries in front: the last ones, or zeros."""
        w = self.width - 1
        out = np.zeros((len(pairs), self.width, w + self.size))
        for offset in range(self.width):
            inside = self.size if self.wraps else max(self.size - offset, 0)
            out[:, offset, w : w + inside] = pairs[:, offset, :inside]
        if self.wraps:
            out[..., :w] = out[..., self.size :]
        return out

    @property
    def nbytes(self) -> int:
        """Bytes of the bands and their links."""
        return self.bands.nbytes + self.links.target.nbytes + self.links.source.nbytes

    def matvec(self, x: Array) -> Array:
        """A x, [m, K..]."""
        from xspline.solve.kronecker.compiled import multiply  # imports numba

        w, size = self.width - 1, self.size
        axes = (0, *(j + 1 for j in self.order))
        padded = np.zeros((len(x), *self.beside, size + 2 * w))
        padded[..., w : w + size] = x[:, None].transpose(axes)
        if self.wraps and w:
            padded[..., :w], padded[..., -w:] = padded[..., size : size + w], padded[..., w : 2 * w]
        rows = padded.reshape(len(x), -1, size + 2 * w)
        out = np.zeros((len(x), rows.shape[1], size))

        def piece(a: int, b: int) -> None:
            multiply(self.bands, self.links, rows, out, a, b)

        run(piece, self.rounds, split=self.split)
        return out.reshape(len(x), *self.beside, size).transpose(np.argsort(axes)).reshape(x.shape)


def _order(frame: Frame) -> list[int]:
    """The axes: the longest one with neighbours alone last, the next longest first, so that slabs of it are many."""

    def rank(j: int) -> tuple[bool, bool, int]:
        local = frame.offsets[j] < frame.sizes[j] or frame.periodic[j]
        return not frame.everywhere[j], local, frame.sizes[j]

    *others, last = sorted(range(len(frame.sizes)), key=rank)
    return [*reversed(others), last]
