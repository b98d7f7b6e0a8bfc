"""Cholesky factorisations of many small banded systems at once: every step runs over all members.

LAPACK, called for one system after another, spends its time in the calls; here a step is one NumPy operation
whose innermost axis is the batch. A member that its data do not determine goes on with a pivot of 1 and is
reported.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xspline.solve.direct.cholesky import Array, scale_band, tolerance, unit_scale


class BatchCholesky:
    """A_b = S_b L_b L_bᵀ S_b.

    Parameters
    ----------
    band : ndarray, [P, u + 1, members]
        Overwritten.

    Attributes
    ----------
    pivot, weakest : ndarray, [members]
        Smallest relative pivot of each member, and the coefficient it belongs to.
    determined : ndarray of bool, [members]
    logdet : ndarray, [members]
        log|A|.
    nbytes : int
    """

    def __init__(self, band: Array) -> None:
        self.scale = unit_scale(band[:, 0])
        scale_band(band, self.scale)
        pivots = _factorise(band, tolerance(len(band)))
        self.factor, self.nbytes = band, band.nbytes
        self.weakest = np.argmin(pivots, axis=0)
        self.pivot = np.min(pivots, axis=0)
        self.determined = self.pivot > tolerance(len(band))
        self.logdet = 2.0 * np.sum(np.log(band[:, 0]) + np.log(self.scale), axis=0)

    def solve(self, rhs: Array, which: NDArray[np.int64]) -> Array:
        """A⁻¹ rhs, [P, n]; column i with the system of member ``which[i]``."""
        factor, scale = self._of(which)
        x = rhs / scale
        _forward(factor, x)
        _backward(factor, x)
        x /= scale
        return x

    def apply_inverse_sqrt(self, z: Array, which: NDArray[np.int64]) -> Array:
        """S⁻¹ L⁻ᵀ z, [P, n]; column i with the system of member ``which[i]``."""
        factor, scale = self._of(which)
        x = z.copy()
        _backward(factor, x)
        x /= scale
        return x

    def inverse(self, rows: NDArray[np.int64]) -> Array:
        """Entries (j + r, j) of A⁻¹ for some rows r ≤ u of the band, [P, rows, members]."""
        out = _selected_inverse(self.factor)
        scale_band(out, self.scale)
        return out[:, rows]

    def _of(self, which: NDArray[np.int64]) -> tuple[Array, Array]:
        """Factors and scales of some members."""
        if len(which) == self.scale.shape[1] and np.array_equal(which, np.arange(len(which))):
            return self.factor, self.scale
        return self.factor[..., which], self.scale[:, which]


def _factorise(band: Array, smallest: float) -> Array:
    """Overwrite a band by its Cholesky factor; the pivots, [P, members]."""
    size, width = band.shape[:2]
    pivots = np.empty((size, band.shape[2]))
    for j in range(size):
        pivots[j] = band[j, 0]
        root = np.sqrt(np.where(pivots[j] > smallest, pivots[j], 1.0))
        reach = min(width, size - j)
        band[j, 0] = root
        column = band[j, 1:reach]
        column /= root
        for a in range(1, reach):
            band[j + a, : reach - a] -= column[a - 1 :] * column[a - 1]
    return pivots


def _forward(factor: Array, x: Array) -> None:
    """Solve L y = x, [P, members], in place."""
    size, width = factor.shape[:2]
    for j in range(size):
        reach = min(width, size - j)
        x[j] /= factor[j, 0]
        x[j + 1 : j + reach] -= factor[j, 1:reach] * x[j]


def _backward(factor: Array, x: Array) -> None:
    """Solve Lᵀ y = x, [P, members], in place."""
    size, width = factor.shape[:2]
    for j in reversed(range(size)):
        reach = min(width, size - j)
        x[j] -= np.einsum("ub,ub->b", factor[j, 1:reach], x[j + 1 : j + reach])
        x[j] /= factor[j, 0]


def _selected_inverse(factor: Array) -> Array:
    """The entries of (L Lᵀ)⁻¹ inside the band (Takahashi, Fagan and Chin 1973)."""
    size, width = factor.shape[:2]
    out = np.zeros_like(factor)
    step = np.arange(width - 1)
    distance = np.abs(step[:, None] - step)
    nearer = np.minimum(step[:, None], step)
    for j in reversed(range(size)):
        reach = min(width, size - j) - 1
        column = factor[j, 1 : reach + 1] / factor[j, 0]
        beyond = out[j + 1 + nearer[:reach, :reach], distance[:reach, :reach]]
        out[j, 1 : reach + 1] = -np.einsum("acb,cb->ab", beyond, column)
        out[j, 0] = factor[j, 0] ** -2.0 - np.einsum("ab,ab->b", column, out[j, 1 : reach + 1])
    return out
