"""Cholesky factorisations of one symmetric positive definite matrix, banded or dense, through LAPACK.

Every matrix is scaled to a unit diagonal first. Its pivots are then the shares of each diagonal entry that
the earlier coefficients do not explain, whatever the units of the data and of the weights, and a matrix is
taken for singular when one falls to the size of rounding errors. Nothing is added to it in silence.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided, sliding_window_view
from numpy.typing import NDArray
from scipy.linalg import lapack

from xspline.solve.direct.lapack import pbtrf

Array = NDArray[np.float64]
# Columns that a selected inverse takes at once: as many as the band is wide, within these limits.
PANEL = 32, 256
FEW = 16  # right-hand sides, from which they are taken together: LAPACK takes one after the other


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
    logdet : float
        log|A|; NaN where LAPACK found no factor.
    """

    def __init__(self, factor: Any, scale: Array, diagonal: Array, info: int) -> None:
        self.factor, self.scale = factor, scale
        self.nbytes: int = 8 * math.prod(factor.shape)
        # LAPACK stops at the first pivot that is not positive and reports its number, from 1.
        self.weakest = info - 1 if info > 0 else int(np.argmin(diagonal))
        self.pivot = 0.0 if info > 0 else float(diagonal[self.weakest]) ** 2
        self.determined = self.pivot > tolerance(len(scale))
        self.logdet = math.nan if info > 0 else 2.0 * float(np.sum(np.log(diagonal) + np.log(scale)))


class BandCholesky(Cholesky):
    """Of a contiguous band [P, u + 1], which is overwritten; with a scale S it is that of S⁻¹ A S⁻¹ already."""

    def __init__(self, band: Array, scale: Array | None = None) -> None:
        if scale is None:
            scale = unit_scale(band[:, 0])
            scale_band(band, scale)
        info = pbtrf(band)
        super().__init__(band, scale, band[:, 0], info)

    @staticmethod
    def of_stripes(stripes: Array, rows: NDArray[np.int64], out: Array) -> BandCholesky:
        """From the rows of a band that are not zeros, the diagonal first: [P, rows]; `out` [P, u + 1] becomes L."""
        scale = unit_scale(stripes[:, 0])
        padded = np.concatenate([scale, np.ones(out.shape[1])])
        out[:] = 0.0
        for row, stripe in zip(rows.tolist(), stripes.T, strict=True):
            out[:, row] = stripe / scale / padded[row : row + len(scale)]
        return BandCholesky(out, scale)

    def solve(self, rhs: Array) -> Array:
        """A⁻¹ rhs, [P, m]."""
        x = rhs / self.scale[:, None]
        if x.shape[1] < FEW:
            x, _ = lapack.dpbtrs(self.factor.T, x, lower=1)
        else:
            _forward(self.factor, x)
            _backward(self.factor, x)
        return np.asarray(x / self.scale[:, None])

    def apply_inverse_sqrt(self, z: Array) -> Array:
        """S⁻¹ L⁻ᵀ z, [P, m]: x xᵀ is A⁻¹ on average when z zᵀ is the identity."""
        if z.shape[1] < FEW:
            x, _ = lapack.dtbtrs(self.factor.T, z, uplo="L", trans="T")
        else:
            x = z.copy()
            _backward(self.factor, x)
        return np.asarray(x / self.scale[:, None])

    def inverse(self, rows: NDArray[np.int64]) -> Array:
        """Entries (j + r, j) of A⁻¹ for some rows r ≤ u of the band, [P, rows]."""
        return _selected_inverse(self.factor, 1.0 / self.scale, rows)


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

    def apply_inverse_sqrt(self, z: Array) -> Array:
        """S⁻¹ L⁻ᵀ z, [P, m]: x xᵀ is A⁻¹ on average when z zᵀ is the identity."""
        x, _ = lapack.dtrtrs(self.factor, z, lower=1, trans=1)
        return np.asarray(x / self.scale[:, None])

    def inverse(self) -> Array:
        """A⁻¹, [P, P]."""
        inverse, _ = lapack.dpotri(self.factor, lower=1)
        lower = np.tril(inverse, -1)
        return np.asarray((lower + lower.T + np.diag(np.diag(inverse))) / self.scale / self.scale[:, None])


def _forward(factor: Array, x: Array) -> None:
    """x becomes L⁻¹ x, [P, m], for the band [P, u + 1] of L, a panel of columns at a time."""
    for start, stop in _panels(factor):
        columns = _columns(factor[start:stop])
        here, below = stop - start, x[stop : start + len(columns)]
        x[start:stop], _ = lapack.dtrtrs(columns[:here], x[start:stop], lower=1)
        below -= columns[here : here + len(below)] @ x[start:stop]


def _backward(factor: Array, x: Array) -> None:
    """x becomes L⁻ᵀ x, [P, m]."""
    for start, stop in reversed(_panels(factor)):
        columns = _columns(factor[start:stop])
        here, below = stop - start, x[stop : start + len(columns)]
        rest = x[start:stop] - columns[here : here + len(below)].T @ below
        x[start:stop], _ = lapack.dtrtrs(columns[:here], rest, lower=1, trans=1)


def _panels(factor: Array) -> list[tuple[int, int]]:
    size, width = factor.shape
    panel = min(max(width - 1, PANEL[0]), PANEL[1])
    return [(start, min(start + panel, size)) for start in range(0, size, panel)]


def _selected_inverse(factor: Array, inverse_scale: Array, rows: NDArray[np.int64]) -> Array:
    """Rows of the band of (S L Lᵀ S)⁻¹, [P, rows], from the last columns to the first.

    With L = [[L_pp, 0], [L_bp, L_bb]], p a panel of columns and b the u coefficients below it, and Y = L_bp L_pp⁻¹,
    the inverse has the blocks Z_bp = −Z_bb Y and Z_pp = L_pp⁻ᵀ L_pp⁻¹ − Yᵀ Z_bp (Takahashi, Fagan and Chin 1973).
    Z_bb is kept as a dense window that slides up the diagonal: 2 P u² operations.
    """
    size, width = factor.shape
    below = width - 1
    out = np.empty((size, len(rows)))
    scale = np.concatenate([inverse_scale, np.ones(width)])
    panel = min(max(below, PANEL[0]), PANEL[1])
    window = np.zeros((2 * below + panel,) * 2)
    end = at = below + panel  # where in the window the coefficient `stop` is
    for stop in range(size, 0, -panel):
        start = max(stop - panel, 0)
        count = stop - start
        if at < count:
            window[end:, end:] = window[at : at + below, at : at + below]
            at = end
        columns = _columns(factor[start:stop])
        inverse, _ = lapack.dtrtri(columns[:count], lower=1)
        step = columns[count:] @ inverse
        step *= scale[start:stop] / scale[stop : stop + below, None]
        inverse *= scale[start:stop]
        first, here, beyond = at - count, slice(at - count, at), slice(at, at + below)
        beside = window[beyond, beyond] @ step
        block = inverse.T @ inverse + step.T @ beside
        # Only the symmetric part of a rounding error dies out; the rest would grow from panel to panel.
        window[here, here] = (block + block.T) / 2
        window[beyond, here] = -beside
        window[here, beyond] = window[beyond, here].T
        down, right = window.strides
        band = as_strided(window[first:, first:], (count, width), (down + right, right))
        out[start:stop] = band[:, rows]
        at = first
    return out


def _columns(band: Array) -> Array:
    """Columns of a lower triangular matrix, [n + u, n], from a band [n, u + 1] of them."""
    count, width = band.shape
    # Written with rows one longer than read, every column is shifted to where its diagonal entry belongs.
    skewed = np.zeros((count, count + width))
    skewed[:, :width] = band
    return skewed.reshape(-1)[: count * (count + width - 1)].reshape(count, -1).T
