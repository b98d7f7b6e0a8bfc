"""log|Λ|₊ of Λ = Σ_j λ_j S_j, the product of its eigenvalues that are not 0, for S_j = R_j ⊗ masses of the others.

With T_jᵀ M_j T_j = I and T_jᵀ R_j T_j = diag(r_j) on every axis, T = ⊗T_j diagonalises all S_j at once:

    Λ = T⁻ᵀ diag(d) T⁻¹      d_k = Σ_j λ_j r_j(k_j)

The null space is the same for all λ > 0, so log|Λ|₊ = Σ_{d > 0} log d plus a constant: with N the columns of T where d
is 0, it is log|⊗M_j| + log|NᵀN| (a minor of the inverse is the complementary minor over the determinant).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from xspline.solve.direct.cholesky import Array
from xspline.solve.penalty import integral
from xspline.solve.structure import dense_of
from xspline.spaces import Space


@dataclass(frozen=True, eq=False)
class AxisSpectrum:
    """Eigenvalues of the roughness R of one axis in the metric of its mass M.

    Parameters
    ----------
    vectors : ndarray, [K, K]
        T.
    values : ndarray, [K]
        r, ascending; exactly 0 where a function has no roughness, everywhere on an axis that is not smoothed.
    smooth : ndarray, [K, m]
        N, the functions of no roughness, NᵀMN = I; empty on an axis that is not smoothed.
    projection : ndarray, [m, K]
        NᵀM.
    log_mass, log_null : float
        log|M|, and log|NᵀN| of all functions of no roughness.
    """

    vectors: Array
    values: Array
    smooth: Array
    projection: Array
    log_mass: float
    log_null: float

    @property
    def null(self) -> int:
        """Number of functions of no roughness."""
        return int(np.sum(self.values == 0))

    def wiggly(self, v: Array, axis: int) -> Array:
        """v − N NᵀM v along an axis of v: what is left has the same roughness, without rounding errors of the rest."""
        flat = np.tensordot(self.smooth, np.tensordot(self.projection, v, axes=(1, axis)), axes=(1, 0))
        return v - np.moveaxis(flat, 0, axis)


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues of the S_j in the basis that diagonalises them all.

    Parameters
    ----------
    axes : dict of int to AxisSpectrum
        Of each smoothed axis, one S_j each.
    values : ndarray, [J, R]
        r_j(k_j) at all products of functions of the smoothed axes where not all are 0.
    copies : int
        How often each occurs: the size of the axes that are not smoothed.
    constant : float
        log|Λ|₊ − Σ log d.
    null : int
        M, the dimension of the null space of Λ.
    """

    axes: dict[int, AxisSpectrum]
    values: Array
    copies: int
    constant: float
    null: int

    def at(self, rho: Array) -> tuple[float, Array, Array]:
        """log|Λ|₊, its gradient [J] and its second derivatives [J, J] by ρ = log λ."""
        top = float(np.max(rho))
        shares = np.exp(rho - top)[:, None] * self.values
        total = np.sum(shares, axis=0)
        shares /= total
        value = self.copies * float(np.sum(np.log(total) + top)) + self.constant
        first = self.copies * np.sum(shares, axis=1)
        return value, first, np.diag(first) - self.copies * (shares @ shares.T)


def spectrum(space: Space, names: Sequence[str], order: int) -> Spectrum:
    """Of the roughness of some coordinates of a space, as `Roughness` measures it."""
    axes = [axis_spectrum(space, j, order if n in names else 0) for j, n in enumerate(space.names)]
    smoothed = {j: axis for j, axis in enumerate(axes) if space.names[j] in names}
    grids = np.broadcast_arrays(*np.ix_(*(axis.values for axis in smoothed.values())))
    values = np.array([grid.ravel() for grid in grids])
    null = math.prod(axis.null for axis in axes)
    constant = sum(space.size / len(a.values) * a.log_mass + null / a.null * a.log_null for a in axes)
    copies = space.size // values.shape[1]
    return Spectrum(smoothed, values[:, values.any(axis=0)], copies, float(constant), null)


@functools.lru_cache(maxsize=64)  # needed again at each level, for each variable and holder
def axis_spectrum(space: Space, j: int, order: int) -> AxisSpectrum:
    """Of the derivatives of an order along axis j; order 0 for an axis that is not smoothed."""
    mass, rough = (dense_of((integral(space, j, m),), (j,), space.frame) for m in (0, order))
    log_mass, nothing = float(np.linalg.slogdet(mass)[1]), np.zeros((len(mass), 0))
    if not order:
        weights, vectors = np.linalg.eigh(mass)
        return AxisSpectrum(
            vectors / np.sqrt(weights), np.zeros(len(mass)), nothing, nothing.T, log_mass, -log_mass
        )
    try:
        values, vectors = linalg.eigh(rough, mass)
    except linalg.LinAlgError as error:
        name = space.names[j]
        raise ValueError(
            f"{name}: the functions of {space.basis(name)!r} are too nearly dependent in float64 to choose a "
            "smoothing; use a lower degree (3 to 5 are usual), or pass a strength, as in penalty=xs.Roughness(1e-3)"
        ) from error
    null = _nullity(space, j, order, values)
    values[:null], smooth = 0.0, vectors[:, :null]
    log_null = float(np.linalg.slogdet(smooth.T @ smooth)[1])
    return AxisSpectrum(vectors, values, smooth, smooth.T @ mass, log_mass, log_null)


def _nullity(space: Space, j: int, order: int, values: Array) -> int:
    """How many functions have no roughness.

    On a spline in cells those are a polynomial of degree < order on each, tied at the knots. They are counted: rounding
    errors of the eigenvalues of a fine one exceed the smallest that is not 0. Of other bases, which are small, it is
    the number of eigenvalues at rounding level.
    """
    features = space.features[j]
    if not features.local:
        return int(np.sum(values <= len(values) * np.finfo(np.float64).eps * values[-1]))
    around = [features.first[0] + features.size] if features.periodic else []
    repeats = np.diff(np.append(features.first, around).astype(np.int64))
    ties = np.minimum(order, features.width - repeats)  # the value and its derivatives that agree at a knot
    return max(order * features.cells - int(np.sum(ties)), 1)
