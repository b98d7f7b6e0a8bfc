"""Eigenvectors of the factors of a product, with the size of the errors that rounding leaves in the eigenvalues."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from xspline.solve.direct.cholesky import Array, tolerance, unit_scale
from xspline.solve.kronecker.product import balanced
from xspline.spaces import Frame
from xspline.sums import outer_pairs


@dataclass(frozen=True, eq=False)
class Eigen:
    """Simultaneous diagonalisation: Tᵀ F T = diag(μ), and Tᵀ M T = I for the matrix M of a penalty, or diag(r)."""

    rotation: Array  # [K, K], T
    values: Array  # [K], μ ≥ 0, exactly 0 for coefficients without observations
    errors: Array  # [K], bounds of the rounding errors in the values, 0 where these are exact
    logdet: float  # log|det T|
    rough: Array | None = None  # [K], r ≥ 0 of a pencil; None stands for 1

    def pairs(self, frame: Frame) -> Array:
        """Pair form of t_m t_mᵀ for each column t_m of T, [K.., O.., M]; the frame is that of the factor."""
        return outer_pairs(self.rotation.reshape(*frame.sizes, 1, -1), frame)


def eigen(matrix: Array, mass: Array | None = None) -> Eigen:
    """Diagonalise a symmetric positive semidefinite matrix [K, K] beside a positive definite one.

    Without a mass matrix F is scaled to a unit diagonal, which makes the verdict on a singular factor independent of
    units. The mass matrix is factorised here and not inside `scipy.linalg.eigh`, because the bound of the errors needs
    the norm of its inverse factor.
    """
    size, eps = len(matrix), float(np.finfo(np.float64).eps)
    scale = unit_scale(np.diagonal(matrix if mass is None else mass))
    scaled, back, logdet = matrix / scale / scale[:, None], np.eye(size), -float(np.sum(np.log(scale)))
    if mass is not None:
        lower = np.linalg.cholesky(mass / scale / scale[:, None])
        back, _ = lapack.dtrtri(lower, lower=1)
        logdet -= float(np.sum(np.log(np.diag(lower))))
    whitened = back @ scaled @ back.T
    values = np.zeros(size)
    errors = np.zeros(size)
    vectors = np.eye(size)
    active = np.flatnonzero(np.diagonal(whitened) > 0)  # other coefficients stay by themselves
    if len(active):
        square = np.ix_(active, active)
        eigenvalues, vectors[square] = np.linalg.eigh(whitened[square])
        values[active] = np.maximum(eigenvalues, 0.0)
        errors[active] = tolerance(len(active)) * eigenvalues[-1]
    # An ill-conditioned mass matrix magnifies rounding errors; an eigenvalue that is exactly 0 has none.
    magnified = float(eps * np.linalg.norm(scaled, 2) * np.linalg.norm(back, 2) ** 2)
    errors = np.where(errors > 0, errors + magnified, 0.0)
    return Eigen(back.T @ vectors / scale[:, None], values, errors, logdet)


def pencil(matrix: Array, other: Array) -> Eigen:
    """Diagonalise two symmetric positive semidefinite matrices F and R [K, K], of which neither has to be definite.

    In the metric of their sum, in which both weigh the same: Tᵀ(xF + R)T = I, and eigenvalues of F from 0 to 1/x.
    """
    scaled, both = balanced(matrix, other)
    own = eigen(scaled, both)
    x = float(np.trace(scaled)) / float(np.trace(matrix))
    # What R has nothing of has exactly 0 of it: such modes are one system.
    shares = np.where(own.values > 1.0 - tolerance(len(matrix)), 1.0, own.values)
    return Eigen(own.rotation, shares / x, own.errors / x, own.logdet, 1.0 - shares)


def eigenvalues(parts: Sequence[Eigen]) -> tuple[Array, float, list[int]]:
    """Eigenvalues of a product, and the one that rises the least above its rounding errors.

    The values are [K_1, K_2, ..]. The second result is how far errors exceed an eigenvalue at most, negative when every
    eigenvalue rises above its errors; the third, for each part, the coefficient that weighs most in the eigenvector of
    that one.
    """
    start = np.ones((1,) * len(parts))
    values = math.prod(np.ix_(*(part.values for part in parts)), start=start)
    bounds = math.prod(np.ix_(*(part.values + part.errors for part in parts)), start=start)
    deficits = bounds - values - values
    worst = np.unravel_index(np.argmax(deficits), values.shape)
    vectors = (part.rotation[:, k] for part, k in zip(parts, worst, strict=True))
    return values, float(deficits[worst]), [int(np.argmax(np.abs(v))) for v in vectors]


def rotate(parts: Sequence[Eigen], v: Array, *, back: bool) -> Array:
    """Apply the transposed rotations, or the rotations themselves, to the leading axes of v.

    Leading axes are consumed and come back last: [K_1, .., K_m, rest..] → [rest.., K_1, .., K_m].
    """
    for part in parts:
        v = np.tensordot(v, part.rotation, axes=(0, 1 if back else 0))
    return v
