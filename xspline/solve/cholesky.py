"""Cholesky factorisations of one symmetric positive definite matrix, banded or dense, through LAPACK.

Every matrix is scaled to a unit diagonal first. Its pivots are then the shares of each diagonal entry that
the earlier coefficients do not explain, whatever the units of the data and of the weights, and a matrix is
taken for singular when one falls to the size of rounding errors. Nothing is added to it in silence.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy.linalg import lapack

Array = NDArray[np.float64]
MIN_BLOCK = 32  # narrow bands are walked in blocks of this many columns


def tolerance(size: int) -> float:
    """Relative pivot at which a matrix is taken for singular: a small multiple of its rounding errors."""
    return 8.0 * max(size, 32) * float(np.finfo(np.float64).eps)


def unit_scale(diagonal: Array) -> Array:
    """Square roots of a diagonal; 1 where it is not positive, to leave such a pivot to be found."""
    return np.sqrt(np.where(diagonal > 0, diagonal, 1.0))


def scale_band(band: Array, scale: Array) -> None:
    """Divide entry (j + r, j) of a band [P, u + 1, ..] by s_j s_{j + r}, in place; the scale s is [P, ..]."""
    width = band.shape[1]
    padded = np.concatenate([scale, np.ones((width - 1, *scale.shape[1:]))])
    band /= scale[:, None]
    band /= np.moveaxis(sliding_window_view(padded, width, axis=0), -1, 1)


class Cholesky:
    """A = S L Lᵀ S with S diagonal.

    Attributes
    ----------
    scale : ndarray, [P]
        S, the square roots of the diagonal of A.
    pivot, weakest : float, int
        Smallest relative pivot, and the coefficient it belongs to.
    determined : bool
        Whether A is positive definite beyond rounding errors.
    nbytes : int
        Bytes of L.
    """

    def __init__(self, factor: Array, scale: Array, diagonal: Array, info: int) -> None:
        self.factor, self.scale, self.nbytes = factor, scale, factor.nbytes
        # LAPACK stops at the first pivot that is not positive and reports its number, from 1.
        self.weakest = info - 1 if info > 0 else int(np.argmin(diagonal))
        self.pivot = 0.0 if info > 0 else float(diagonal[self.weakest]) ** 2
        self.determined = self.pivot > tolerance(len(scale))


class BandCholesky(Cholesky):
    """Of a band [P, u + 1], which is overwritten."""

    def __init__(self, band: Array) -> None:
        scale = unit_scale(band[:, 0])
        scale_band(band, scale)
        factor, info = lapack.dpbtrf(band.T, lower=1, overwrite_ab=1)
        super().__init__(factor.T, scale, factor[0], info)

    def solve(self, rhs: Array) -> Array:
        """A⁻¹ rhs, [P, m]."""
        x, _ = lapack.dpbtrs(self.factor.T, rhs / self.scale[:, None], lower=1, overwrite_b=1)
        x /= self.scale[:, None]
        return np.asarray(x)

    def trace(self, band: Array) -> float:
        """tr(A⁻¹ B) of a band [P, u + 1], which is overwritten.

        Only the entries of A⁻¹ inside the band are computed, from the last block of columns to the first
        (Takahashi, Fagan and Chin 1973).
        """
        scale_band(band, self.scale)
        block = max(band.shape[1] - 1, MIN_BLOCK)
        total, below = 0.0, np.zeros((block, block))
        pairs = zip(_blocks(self.factor, block, 1.0), _blocks(band, block, 0.0), strict=True)
        for (diagonal, lower), (b_diagonal, b_lower) in pairs:
            inverse, _ = lapack.dtrtri(diagonal, lower=1)
            inverse = np.tril(inverse)
            step = lower @ inverse
            beside = below @ step  # minus the block of A⁻¹ below the diagonal one
            below = inverse.T @ inverse + step.T @ beside
            total += 2.0 * float(np.sum(below * b_diagonal)) - float(np.diag(below) @ np.diag(b_diagonal))
            total -= 2.0 * float(np.sum(beside * b_lower))
        return total


class DenseCholesky(Cholesky):
    """Of a symmetric matrix [P, P]."""

    def __init__(self, matrix: Array) -> None:
        scale = unit_scale(np.diagonal(matrix))
        factor, info = lapack.dpotrf(matrix / scale / scale[:, None], lower=1, clean=0)
        super().__init__(factor, scale, np.diagonal(factor), info)

    def solve(self, rhs: Array) -> Array:
        """A⁻¹ rhs, [P, m]."""
        x, _ = lapack.dpotrs(self.factor, rhs / self.scale[:, None], lower=1)
        return np.asarray(x / self.scale[:, None])

    def trace(self, matrix: Array) -> float:
        """tr(A⁻¹ B) of a symmetric matrix [P, P]."""
        inverse, _ = lapack.dpotri(self.factor, lower=1)
        matrix = matrix / self.scale / self.scale[:, None]
        return 2.0 * float(np.sum(np.tril(inverse) * matrix)) - float(np.diag(inverse) @ np.diag(matrix))


def _blocks(band: Array, block: int, fill: float) -> Iterator[tuple[Array, Array]]:
    """Lower triangles of the diagonal blocks and the blocks below them, last block of columns first.

    Columns past the end are those of `fill` times the identity.
    """
    size, width = band.shape
    for start in reversed(range(0, size, block)):
        columns = band[start : start + block]
        # Written with rows one longer than read, every column is shifted to where its diagonal entry belongs.
        skewed = np.zeros((block, 2 * block + 1))
        skewed[: len(columns), :width] = columns
        skewed[len(columns) :, 0] = fill
        square = skewed.reshape(-1)[: 2 * block * block].reshape(block, 2 * block).T
        yield square[:block], square[block:]
