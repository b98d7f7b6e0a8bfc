"""Cholesky factorisations: of a band, and of many small bands at once; selected inverses of bands.

Every matrix is scaled to a unit diagonal first. Its pivots are then the shares of each diagonal entry that
the earlier coefficients do not explain, whatever the units of the data and of the weights, and a matrix is
taken for singular when one falls to the size of rounding errors. Nothing is added to it in silence.

All classes answer alike: `solve` and `apply_inverse_sqrt` of columns [P, n] and the systems that these belong to,
`inverse_pairs` of all systems; each system has a smallest `pivot`, a `weakest` coefficient and a `logdet`, and is
`determined` or not.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided, sliding_window_view
from numpy.typing import NDArray
from scipy.linalg import lapack

from xspline.solve.direct.band import Ordering, gather
from xspline.solve.direct.lapack import pbtrf

Array = NDArray[np.float64]
Which = NDArray[np.int64]  # number of the system that each column belongs to
# Columns that a selected inverse takes at once: as many as the band is wide, within these limits. From half as many
# right-hand sides as the fewest on these are solved for together: LAPACK takes one after the other.
PANEL = 32, 256


# Of a diagonal: what makes a singular matrix definite, and what is no longer told from zero.
TINY = 1e-10


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


class Cholesky(ABC):
    """A = S L Lᵀ S with S diagonal, of one system: which system a column belongs to need not be said.

    `factor` is L, as the class stores it, and `scale`, [P], S, the square roots of the diagonal of A. The smallest
    relative `pivot` belongs to the coefficient `weakest`. A is `determined` if it is positive definite beyond rounding
    errors; `logdet` is log|A|, NaN where LAPACK found no factor.
    """

    def __init__(self, factor: Any, scale: Array, diagonal: Array, info: int) -> None:
        self.factor, self.scale = factor, scale
        # LAPACK stops at the first pivot that is not positive and reports its number, from 1.
        self.weakest = info - 1 if info > 0 else int(np.argmin(diagonal))
        self.pivot = 0.0 if info > 0 else float(diagonal[self.weakest]) ** 2
        self.determined = self.pivot > tolerance(len(scale))
        self.logdet = math.nan if info > 0 else 2.0 * float(np.sum(np.log(diagonal) + np.log(scale)))

    @property
    def nbytes(self) -> int:
        """Bytes of L."""
        return int(8 * math.prod(self.factor.shape))

    @abstractmethod
    def solve(self, rhs: Array, which: Which | None = None) -> Array:
        """A⁻¹ rhs, [P, n]."""

    @abstractmethod
    def apply_inverse_sqrt(self, z: Array, which: Which | None = None) -> Array:
        """S⁻¹ L⁻ᵀ z, [P, n]: x xᵀ is A⁻¹ on average when z zᵀ is the identity."""

    @abstractmethod
    def inverse_pairs(self, ordering: Ordering) -> Array:
        """Pair form of A⁻¹, [K.., O.., 1], of a system that is determined."""


class BandCholesky(Cholesky):
    """The factorisation of a contiguous band [P, u + 1], which it overwrites; a scale says that it is S⁻¹ A S⁻¹."""

    def __init__(self, band: Array, scale: Array | None = None) -> None:
        if scale is None:
            scale = unit_scale(band[:, 0])
            scale_band(band, scale)
        info = pbtrf(band)
        super().__init__(band, scale, band[:, 0], info)

    @staticmethod
    def of_stripes(stripes: Array, rows: NDArray[np.int64], out: Array) -> BandCholesky:
        """Factorise the rows of a band that are not zeros, the diagonal first, [P, rows]; `out` becomes L."""
        scale = unit_scale(stripes[:, 0])
        padded = np.concatenate([scale, np.ones(out.shape[1])])
        out[:] = 0.0
        for row, stripe in zip(rows.tolist(), stripes.T, strict=True):
            out[:, row] = stripe / scale / padded[row : row + len(scale)]
        return BandCholesky(out, scale)

    def solve(self, rhs: Array, which: Which | None = None) -> Array:
        x = rhs / self.scale[:, None]
        if 2 * x.shape[1] < PANEL[0]:
            x, _ = lapack.dpbtrs(self.factor.T, x, lower=1)
        else:
            _forward(self.factor, x)
            _backward(self.factor, x)
        return np.asarray(x / self.scale[:, None])

    def apply_inverse_sqrt(self, z: Array, which: Which | None = None) -> Array:
        if 2 * z.shape[1] < PANEL[0]:
            x, _ = lapack.dtbtrs(self.factor.T, z, uplo="L", trans="T")
        else:
            x = z.copy()
            _backward(self.factor, x)
        return np.asarray(x / self.scale[:, None])

    def inverse_pairs(self, ordering: Ordering) -> Array:
        return gather(self.inverse(ordering.rows)[..., None], ordering)

    def inverse(self, rows: NDArray[np.int64], limits: tuple[int, int] = PANEL) -> Array:
        """Entries (j + r, j) of A⁻¹ for some rows r ≤ u of the band, [P, rows], from the last columns to the first.

        With L = [[L_pp, 0], [L_bp, L_bb]], p a panel of columns and b the u coefficients below it, and Y = L_bp L_pp⁻¹,
        the inverse has the blocks Z_bp = −Z_bb Y and Z_pp = L_pp⁻ᵀ L_pp⁻¹ − Yᵀ Z_bp (Takahashi, Fagan and Chin 1973).
        Z_bb is kept as a dense window that slides up the diagonal: 2 P u² operations.
        """
        size, width = self.factor.shape
        below = width - 1
        out = np.empty((size, len(rows)))
        scale = np.concatenate([1.0 / self.scale, np.ones(width)])
        panel = min(max(below, limits[0]), limits[1])
        window = np.zeros((2 * below + panel,) * 2)
        end = at = below + panel  # where in the window the coefficient `stop` is
        for stop in range(size, 0, -panel):
            start = max(stop - panel, 0)
            count = stop - start
            if at < count:
                window[end:, end:] = window[at : at + below, at : at + below]
                at = end
            columns = _columns(self.factor[start:stop])
            inverse, _ = lapack.dtrtri(columns[:count], lower=1)
            step = columns[count:] @ inverse
            step *= scale[start:stop] / scale[stop : stop + below, None]
            inverse *= scale[start:stop]
            first = at - count
            here = slice(at - count, at)
            beyond = slice(at, at + below)
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


def _columns(band: Array) -> Array:
    """Columns of a lower triangular matrix, [n + u, n], from a band [n, u + 1] of them."""
    count, width = band.shape
    # Written with rows one longer than read, every column is shifted to where its diagonal entry belongs.
    skewed = np.zeros((count, count + width))
    skewed[:, :width] = band
    return skewed.reshape(-1)[: count * (count + width - 1)].reshape(count, -1).T


class BatchCholesky:
    """A_b = S_b L_b L_bᵀ S_b of many small bands: every step runs over all systems.

    LAPACK, called for one system after another, spends its time in the calls; here a step is one NumPy operation
    whose innermost axis is the batch. A system that its data do not determine goes on with a pivot of 1 and is
    reported. The band, [P, u + 1, systems], is overwritten. For each system there are the smallest relative `pivot`,
    the coefficient it belongs to, `weakest`, whether it is `determined`, and `logdet`, log|A|.
    """

    def __init__(self, band: Array) -> None:
        self.scale = unit_scale(band[:, 0])
        scale_band(band, self.scale)
        size, width = band.shape[:2]
        pivots = np.empty((size, band.shape[2]))
        for j in range(size):
            pivots[j] = band[j, 0]
            band[j, 0] = np.sqrt(np.where(pivots[j] > tolerance(size), pivots[j], 1.0))
            count = min(width, size - j)
            column = band[j, 1:count]
            column /= band[j, 0]
            for a in range(1, count):
                band[j + a, : count - a] -= column[a - 1 :] * column[a - 1]
        self.factor, self.nbytes = band, band.nbytes
        self.weakest = np.argmin(pivots, axis=0)
        self.pivot = np.min(pivots, axis=0)
        self.determined = self.pivot > tolerance(size)
        self.logdet = 2.0 * np.sum(np.log(band[:, 0]) + np.log(self.scale), axis=0)

    def solve(self, rhs: Array, which: Which) -> Array:
        """A⁻¹ rhs, [P, n]; column i with system ``which[i]``."""
        factor, scale = self._of(which)
        x = rhs / scale
        size, width = factor.shape[:2]
        for j in range(size):
            count = min(width, size - j)
            x[j] /= factor[j, 0]
            x[j + 1 : j + count] -= factor[j, 1:count] * x[j]
        self._substitute_back(factor, x)
        x /= scale
        return x

    def apply_inverse_sqrt(self, z: Array, which: Which) -> Array:
        """S⁻¹ L⁻ᵀ z, [P, n]; column i with system ``which[i]``."""
        factor, scale = self._of(which)
        x = z.copy()
        self._substitute_back(factor, x)
        x /= scale
        return x

    def inverse_pairs(self, ordering: Ordering) -> Array:
        """Pair form of A⁻¹ of all systems, [K.., O.., systems]."""
        return gather(self.inverse(ordering.rows), ordering)

    def inverse(self, rows: NDArray[np.int64]) -> Array:
        """Entries (j + r, j) of A⁻¹ for some rows r ≤ u of the band, [P, rows, systems] (Takahashi and others 1973)."""
        factor = self.factor
        size, width = factor.shape[:2]
        out = np.zeros_like(factor)
        step = np.arange(width - 1)
        distance = np.abs(step[:, None] - step)
        nearer = np.minimum(step[:, None], step)
        for j in reversed(range(size)):
            count = min(width, size - j) - 1
            column = factor[j, 1 : count + 1] / factor[j, 0]
            beyond = out[j + 1 + nearer[:count, :count], distance[:count, :count]]
            out[j, 1 : count + 1] = -np.einsum("acb,cb->ab", beyond, column)
            out[j, 0] = factor[j, 0] ** -2.0 - np.einsum("ab,ab->b", column, out[j, 1 : count + 1])
        scale_band(out, self.scale)
        return out[:, rows]

    def _of(self, which: Which) -> tuple[Array, Array]:
        if len(which) == self.scale.shape[1] and np.array_equal(which, np.arange(len(which))):
            return self.factor, self.scale
        return self.factor[..., which], self.scale[:, which]

    @staticmethod
    def _substitute_back(factor: Array, x: Array) -> None:
        """x becomes L⁻ᵀ x, [P, n], in place."""
        size, width = factor.shape[:2]
        for j in reversed(range(size)):
            count = min(width, size - j)
            x[j] -= np.einsum("ub,ub->b", factor[j, 1:count], x[j + 1 : j + count])
            x[j] /= factor[j, 0]
