"""Sums of products of small matrices, one for each axis: what a full grid and its penalty are made of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xspline.solve.parallel import ranges, run, single_threaded_blas
from xspline.solve.structure import dense_of
from xspline.sums import Factor

if TYPE_CHECKING:
    from xspline.spaces import Frame

Array = NDArray[np.float64]
Term = tuple[float, tuple[int, ...]]
SMALL = 1e7  # operations that are not worth a second thread
SAME = 1e-14  # relative difference of matrices that are one


@dataclass(frozen=True, eq=False)
class Products:
    """Σ_t c_t F_t1 ⊗ F_t2 ⊗ …, symmetric.

    Parameters
    ----------
    matrices : tuple of tuples of ndarray, [K, K] or [K]
        The different matrices of each axis; one dimension is a diagonal.
    terms : tuple of (float, tuple of int)
        c_t and which matrix of each axis.
    """

    matrices: tuple[tuple[Array, ...], ...]
    terms: tuple[Term, ...]

    @staticmethod
    def of(terms: Iterable[Sequence[Factor]], frame: Frame) -> Products:
        """From terms of single-axis factors without batch axes, matrices that are multiples of each other as one."""
        found: list[list[Array]] = [[] for _ in frame.sizes]
        out = []
        for term in terms:
            scales, indices = [], []
            for own, factor in zip(found, sorted(term, key=lambda f: f.axes), strict=True):
                matrix = dense_of((factor.full(frame),), factor.axes, frame)
                scales.append(float(np.trace(matrix)))
                indices.append(_place(own, matrix / scales[-1]))
            out.append((math.prod(scales), tuple(indices)))
        return Products(tuple(map(tuple, found)), tuple(out))

    def transformed(self, rotations: Sequence[Array], diagonal: Sequence[int]) -> Products:
        """TᵀFT for every matrix F of an axis and its T; those of the given numbers are known to become diagonal."""
        changed = []
        for own, rotation, number in zip(self.matrices, rotations, diagonal, strict=True):
            images = [rotation.T @ matrix @ rotation for matrix in own]
            changed.append(tuple(np.diag(m).copy() if i == number else m for i, m in enumerate(images)))
        return Products(tuple(changed), self.terms)

    def diagonal(self) -> Array:
        """[K..]."""
        sizes = [len(own[0]) for own in self.matrices]
        out = np.zeros(sizes)
        for scale, indices in self.terms:
            picked = (own[i] for own, i in zip(self.matrices, indices, strict=True))
            out += scale * math.prod(np.ix_(*(m if m.ndim == 1 else np.diag(m) for m in picked)))
        return out

    def matvec(self, x: Array) -> Array:
        """Products with vectors x [m, K..]."""
        return self._of(self.terms, 0, x)

    def _of(self, terms: Sequence[Term], axis: int, x: Array) -> Array:
        """The sum over some terms, of their matrices from an axis on: each matrix is applied once to a sum."""
        last = axis == len(self.matrices) - 1
        parts: list[Array] = []
        for number in sorted({indices[axis] for _, indices in terms}):
            some = [term for term in terms if term[1][axis] == number]
            part = along(self.matrices[axis][number], x if last else self._of(some, axis + 1, x), axis + 1)
            if last:
                part *= sum(scale for scale, _ in some)
            # Added up at once: vectors may be large.
            parts = [np.add(parts[0], part, out=parts[0]) if parts else part]
        return parts[0]


def _place(known: list[Array], matrix: Array) -> int:
    """Number of a matrix among the known ones; a new one is added."""
    for i, other in enumerate(known):
        if np.abs(matrix - other).max() <= SAME * np.abs(other).max():
            return i
    known.append(matrix)
    return len(known) - 1


def rotated(rotations: Sequence[Array], x: Array) -> Array:
    """(T_1 ⊗ T_2 ⊗ …) x of vectors x [m, K..]."""
    for axis, rotation in enumerate(rotations):
        x = along(rotation, x, axis + 1)
    return x


def along(matrix: Array, x: Array, axis: int) -> Array:
    """A matrix [K', K], or a diagonal [K], times one axis of x; the same slabs on any number of threads."""
    if matrix.ndim == 1:
        return np.asarray(x * matrix.reshape(-1, *(1,) * (x.ndim - axis - 1)))
    before, after = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    source = x.reshape(before, x.shape[axis], after)
    out = np.empty((before, len(matrix), after))

    def piece(a: int, b: int) -> None:
        if after == 1:
            np.matmul(source[a:b, :, 0], matrix.T, out=out[a:b, :, 0])
        elif before >= after:
            np.matmul(matrix, source[a:b], out=out[a:b])
        else:
            np.matmul(matrix, source[:, :, a:b], out=out[:, :, a:b])

    with single_threaded_blas():
        run(piece, [ranges(max(before, after))], split=2.0 * x.size * len(matrix) > SMALL)
    return out.reshape(*x.shape[:axis], len(matrix), *x.shape[axis + 1 :])
