"""Factor: a symmetric matrix over some coefficient axes, stored as the pairs that occur.

For tensor-product features every entry of G = Φᵀ W Φ depends, axis by axis, on an *unordered* pair of
functions {i, j} = {k, k + o}. A factor stores one number per first index k and offset o of each of its axes:
a pair array.

Along an axis whose first functions are active everywhere (`spaces.Arrow`) the second member is not always k + o;
`Frame.pairs_at` says which it is.

A pair array B[k, o] stands for the matrix that has it wherever the pair (k, k + o) or one that differs from it by
exchanging the two members along some axes is row and column. Its adjoint is the *pair form* Z of a symmetric matrix
X: the sum of X over all these places, so that tr(X B) = Σ Z B, and φᵀ X φ = Σ_{k,o} Z[k,o] Π_j φ_{k_j} φ_{k_j + o_j}.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xspline.spaces import Frame
from xspline.sums.window import Array, Window, embed, lengths, whole

KEY_MODULUS = 1 << 128
Place: TypeAlias = tuple[slice | int, ...]
Index: TypeAlias = tuple[NDArray[np.int64], ...]


def digest_key(*parts: bytes | str | NDArray[Any]) -> int:
    """Key of something identified by `parts`: 128 bits of BLAKE2b, as an integer.

    Keys form a ring, modulo 2**128, that follows the algebra of factors: the key of a sum is the sum of keys,
    that of a product over different axes their product, and 1 is the key of ones. So equal keys mean the same
    multiset of contributions, in whatever order they were added. Put the axes among the parts: two factors
    over different axes that consist of the same numbers need different keys.
    """
    digest = blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, bytes | str):
            pieces = [b"text", part.encode()] if isinstance(part, str) else [b"bytes", part]
        else:
            array = np.asarray(part)
            if array.dtype.hasobject:
                raise TypeError(
                    "a key cannot be made from an array of Python objects; pass numbers, text or bytes"
                )
            native = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
            pieces = [b"array", native.dtype.str.encode(), repr(array.shape).encode(), native.tobytes()]
        for piece in pieces:
            digest.update(len(piece).to_bytes(8, "little"))
            digest.update(piece)
    return int.from_bytes(digest.digest(), "little")


@dataclass(frozen=True, eq=False)
class Factor:
    """One factor of a term of G.

    Parameters
    ----------
    axes : coefficient axes, ascending. Empty: a plain multiplicity, over batch dimensions or pooled ones.
    window : ``(start, length)`` per axis. It holds both members of every pair: an entry whose second member lies past
        the end of the window is ignored (and stored as zero).
    pairs : [k.., o.., b..], entry (k, o) is the matrix entry between all multi-indices i, j with {i_a, j_a} = {k_a, k_a
        + o_a} for each axis a, indices modulo the size on a periodic axis. Entries are *contributions*: they are added,
        never assigned. Batch extents are 1 (shared) or n.
    key : digest of what the pairs were computed from, see `digest_key`.
    """

    axes: tuple[int, ...]
    window: Window
    pairs: Array
    key: int

    @property
    def nbytes(self) -> int:
        """Bytes of the pair array."""
        return self.pairs.nbytes

    @property
    def offsets(self) -> tuple[int, ...]:
        """Number of offsets along each axis."""
        return self.pairs.shape[len(self.axes) : 2 * len(self.axes)]

    @property
    def batch(self) -> tuple[int, ...]:
        """Extents of the batch axes, 1 where shared."""
        return self.pairs.shape[2 * len(self.axes) :]

    def sizes(self, frame: Frame) -> tuple[int, ...]:
        """Number of coefficients along each axis of this factor."""
        return tuple(frame.sizes[axis] for axis in self.axes)

    def scaled(self, x: float) -> Factor:
        """The factor times a number; equal factors scaled by equal numbers keep equal keys."""
        # An odd multiplier is invertible modulo 2**128: different keys stay different.
        salt = digest_key("scaled", np.asarray(float(x))) | 1
        return Factor(self.axes, self.window, self.pairs * x, self.key * salt % KEY_MODULUS)

    def batch_slice(self, axis: int, span: slice) -> Factor:
        """The same factor for a slice of one batch axis, as a view; with extent 1 it serves all of them."""
        if self.batch[axis] == 1:
            return self
        pairs = self.pairs[(slice(None),) * (2 * len(self.axes) + axis) + (span,)]
        return Factor(self.axes, self.window, pairs, self.key)

    def with_batch_axes(self, count: int) -> Factor:
        """The same factor with `count` batch axes, of extent 1, where it had none."""
        if len(self.batch) == count:
            return self
        return Factor(self.axes, self.window, self.pairs.reshape(self.pairs.shape + (1,) * count), self.key)

    def padded(self, frame: Frame) -> Factor:
        """The same factor with as many offsets as the frame has: other observations may couple more functions."""
        pairs, count = self.pairs, len(self.axes)
        for i, (axis, own) in enumerate(zip(self.axes, self.offsets, strict=True)):
            if (more := frame.offsets[axis] - own) > 0:  # those of functions active everywhere stay the last
                at = own - frame.everywhere[axis]
                near, last = np.split(pairs, [at], axis=count + i)
                zeros = np.zeros((*near.shape[: count + i], more, *near.shape[count + i + 1 :]))
                pairs = np.concatenate([near, zeros, last], axis=count + i)
        return self if pairs is self.pairs else Factor(self.axes, self.window, pairs, self.key)

    def apply(self, v: Array, frame: Frame, positions: Sequence[int]) -> Array:
        """Product with vectors that already lie on the factor's window, of the same shape.

        Batch extents of 1 broadcast against those of the factor. The axes `positions` of v are those of the factor, on
        its window; its batch axes are the last.
        """
        if (own := self.padded(frame)) is not self:
            return own.apply(v, frame, positions)
        if self._is_one_full_matrix(frame):
            matrix = self.to_dense(frame)
            matrix = matrix.reshape(matrix.shape[:2])
            vectors = v.reshape(math.prod(v.shape[: positions[0]]), len(matrix), -1)
            # Not a product of BLAS, whose last bits depend on its threads.
            return np.asarray(np.einsum("ij,ajb->aib", matrix, vectors)).reshape(v.shape)
        # How far pairs reach around the circle: only on a periodic axis that the window covers.
        geometry = zip(self.axes, self.window, self.offsets, strict=True)
        tails = tuple(
            offsets - 1 if frame.periodic[axis] and length == frame.sizes[axis] else 0
            for axis, (_, length), offsets in geometry
        )
        v = _unrolled(v, positions, tails)
        out = np.zeros(np.broadcast_shapes(v.shape, (1,) * (v.ndim - len(self.batch)) + self.batch))
        extents = lengths(self.window)
        lines = _lines(frame.along(self.axes), extents, tails, tuple(positions), v.ndim)
        for place, shape, entries in lines:
            # Contiguous: with the offsets last a slice of the pair array visits every cache line, and up to
            # 2**axes orientations use it.
            pairs = np.ascontiguousarray(self.pairs[place])
            pairs = pairs.reshape(shape[: v.ndim - len(self.batch)] + self.batch)
            for rows, columns, summed in entries:
                product = pairs * v[columns]
                out[rows] += product.sum(axis=summed, keepdims=True) if summed else product
        for position, tail in zip(positions, tails, strict=True):
            if tail:  # the transpose: add the repeated entries to those that they repeat
                before = (slice(None),) * position
                line = out[(*before, slice(out.shape[position] - tail))]
                line[(*before, slice(tail))] += out[(*before, slice(-tail, None))]
                out = line
        return out

    def _is_one_full_matrix(self, frame: Frame) -> bool:
        """Whether it couples all functions of one axis, the same for the whole batch: of a trend with a cycle, say."""
        shared = all(extent == 1 for extent in self.batch)
        return shared and len(self.axes) == 1 and self.offsets == self.sizes(frame) == lengths(self.window)

    def diagonal(self) -> Array:
        """Entries with i = j, on the window: [k.., b..]."""
        return self.at((0,) * len(self.axes))

    def at(self, offset: tuple[int, ...]) -> Array:
        """Entries of the pairs (k, k + offset), by k on the window: [k.., b..]."""
        return self.pairs[(slice(None),) * len(self.axes) + offset]

    def full(self, frame: Frame) -> Factor:
        """The same factor over all coefficients of its axes."""
        sizes, own = self.sizes(frame), self.padded(frame)
        if self.window == whole(sizes):
            return own
        return Factor(self.axes, whole(sizes), embed(own.pairs, self.window, sizes), self.key)

    def to_dense(self, frame: Frame) -> Array:
        """The matrix, [K.., K.., b..]."""
        sizes = self.sizes(frame)
        pairs = self.full(frame).pairs
        out = np.zeros((*sizes, *sizes, *self.batch))
        for place, rows, columns in matrix_entries(frame.along(self.axes)):
            out[rows + columns] += pairs[place]
        return out


def members_on_line(frame: Frame, axis: int, length: int, around: bool, offset: int) -> tuple[slice, slice]:
    """First and second members of the pairs on a window of this length; one for all where that is active everywhere."""
    if not frame.everywhere[axis]:
        count = length if around else max(length - offset, 0)
        return slice(0, count), slice(offset, offset + count)
    first, second = frame.pairs_at(axis, offset)  # the window of such an axis is all of it
    if not second.size:
        return slice(0, 0), slice(0, 0)
    return first, slice(int(second[0]), int(second[-1]) + 1)


def orientations(offset: Sequence[int]) -> Iterator[tuple[bool, ...]]:
    """Which of the two members of a pair (k, k + offset) is the row, along each axis.

    Along an axis with an offset of 0 the two are one; along every other one either may be the row, so that a pair
    stands for up to 2**axes entries of the matrix. It yields, per axis, whether the second member, k + offset, is the
    row and the first the column. The first tuple is all False.
    """
    return itertools.product(*((False, True) if o else (False,) for o in offset))


def _unrolled(v: Array, positions: Iterable[int], tails: Sequence[int]) -> Array:
    """Return an array whose first entries along some axes are repeated behind the last: a circle reads as a line."""
    for position, tail in zip(positions, tails, strict=True):
        if tail:
            v = np.concatenate([v, v[(slice(None),) * position + (slice(tail),)]], axis=position)
    return v


@functools.lru_cache(maxsize=64)  # a fit asks again and again
def _lines(
    frame: Frame, extents: tuple[int, ...], tails: tuple[int, ...], positions: tuple[int, ...], ndim: int
) -> Sequence[tuple[Place, tuple[int, ...], Sequence[tuple[Place, Place, tuple[int, ...]]]]]:
    """Return, for each offset, where its pairs are, their shape, and the rows and columns of each orientation.

    Beside these are the axes along which all pairs have one function as their row, so that products are summed.
    """
    lines = []
    for offset in np.ndindex(*frame.offsets):
        members = [
            members_on_line(frame, axis, extent, tail > 0, o)
            for axis, (extent, tail, o) in enumerate(zip(extents, tails, offset, strict=True))
        ]
        if not all(first.stop > first.start for first, _ in members):
            continue
        shape = [1] * ndim
        for position, (span, _) in zip(positions, members, strict=True):
            shape[position] = span.stop - span.start
        entries = []
        for flips in orientations(offset):
            rows, columns = [slice(None)] * ndim, [slice(None)] * ndim
            summed: list[int] = []
            for position, ends, flip in zip(positions, members, flips, strict=True):
                rows[position], columns[position] = ends[::-1] if flip else ends
                first, second = ends
                if flip and second.stop - second.start < first.stop - first.start:
                    summed.append(position)
            entries.append((tuple(rows), tuple(columns), tuple(summed)))
        lines.append(((*(first for first, _ in members), *offset), tuple(shape), entries))
    return lines


@functools.lru_cache(maxsize=64)
def matrix_entries(frame: Frame, *, once: bool = False) -> Sequence[tuple[Place, Index, Index]]:
    """Where a pair array has its numbers, and which entries of the matrix these stand for.

    Each item is the place of pairs of one offset in an array [K.., O..], and the rows and columns of their entries in
    one orientation: indices along each axis, which broadcast. With `once` there is only one of an entry and its
    transpose.
    """
    singletons = [(1,) * axis for axis in reversed(range(len(frame.sizes)))]
    entries = []
    for offset in np.ndindex(*frame.offsets):
        both = [frame.pairs_at(axis, o) for axis, o in enumerate(offset)]
        place = (*(span for span, _ in both), *offset)
        pairs = [
            [members.reshape(-1, *trailing) for members in (np.arange(k)[span], second)]
            for k, (span, second), trailing in zip(frame.sizes, both, singletons, strict=True)
        ]
        along = next((axis for axis, o in enumerate(offset) if o), None)
        for flips in orientations(offset):
            if once and along is not None and flips[along]:
                continue
            rows = tuple(pair[flip] for pair, flip in zip(pairs, flips, strict=True))
            columns = tuple(pair[not flip] for pair, flip in zip(pairs, flips, strict=True))
            entries.append((place, rows, columns))
    return entries


def outer(arrays: Sequence[Array], axes: Sequence[Sequence[int]], copies: int = 1) -> Array:
    """Product of arrays over different axes, over all of them in ascending order; batch axes stay last.

    `copies` is the number of times that the axes of an array occur: 1 for vectors, 2 for pairs and matrices.
    """
    target = sorted(axis for group in axes for axis in group)
    parts = []
    for array, group in zip(arrays, axes, strict=True):
        shape: list[int] = []  # with axes of extent 1, so that the arrays broadcast
        for copy in range(copies):
            extent = dict(zip(group, array.shape[copy * len(group) : (copy + 1) * len(group)], strict=True))
            shape += [extent.get(axis, 1) for axis in target]
        parts.append(array.reshape((*shape, *array.shape[copies * len(group) :])))
    return math.prod(parts[1:], start=parts[0])


def multiply_factors(factors: Sequence[Factor]) -> Factor:
    """Product of factors over different axes, as one factor; keys multiply."""
    if len(factors) == 1:
        return factors[0]
    spans = {axis: span for factor in factors for axis, span in zip(factor.axes, factor.window, strict=True)}
    axes = tuple(sorted(spans))
    pairs = outer([factor.pairs for factor in factors], [factor.axes for factor in factors], copies=2)
    key = math.prod(factor.key for factor in factors) % KEY_MODULUS
    return Factor(axes, tuple(spans[axis] for axis in axes), pairs, key)


def outer_pairs(vectors: Array, frame: Frame, signs: Array | None = None) -> Array:
    """Pair form of Σ_m ±x_m x_mᵀ, [K.., O.., b..]. The vectors x_m are [K.., m, b..], and `signs` are [m, b..]."""
    count = len(frame.sizes)
    x = np.ascontiguousarray(np.moveaxis(vectors, count, -1))
    out = np.zeros((*frame.sizes, *frame.offsets, *x.shape[count:-1]))
    around = zip(frame.periodic, frame.offsets, strict=True)
    tails = tuple(offsets - 1 if periodic else 0 for periodic, offsets in around)
    x = _unrolled(x, range(count), tails)
    y = x if signs is None else x * np.moveaxis(signs, 0, -1)
    for place, _, entries in _lines(frame, frame.sizes, tails, tuple(range(count)), x.ndim):
        half = entries[: -(-len(entries) // 2)]  # The others are their transposes.
        for rows, columns, _ in half:
            out[place] += len(entries) / len(half) * np.einsum("...m,...m->...", x[rows], y[columns])
    return out


def masked_pairs(pairs: Array, keep: Array, frame: Frame) -> Array:
    """Pair form of D X D from that of X, for a diagonal D of zeros and ones.

    The pairs are [K.., O.., b..], and `keep`, [K..], is the diagonal of D: a product of one vector per axis.
    """
    both = outer_pairs(keep[..., None], frame) > 0
    return pairs * both.reshape(both.shape + (1,) * (pairs.ndim - both.ndim))
