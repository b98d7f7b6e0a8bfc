"""Eigenvalues of one factor, with the size of the errors that rounding leaves in them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import lapack

from xspline.solve.direct.cholesky import Array, tolerance, unit_scale
from xspline.sums import outer_pairs

if TYPE_CHECKING:
    from xspline.spaces import Frame


@dataclass(frozen=True, eq=False)
class Eigen:
    """Simultaneous diagonalisation: Tᵀ F T = diag(μ), and Tᵀ M T = I for the matrix M of a penalty.

    Parameters
    ----------
    rotation : ndarray, [K, K]
        T.
    values, errors : ndarray, [K]
        μ ≥ 0, and bounds of the rounding errors in them. Both are exactly 0 for coefficients without
        observations.
    logdet : float
        log|det T|.
    """

    rotation: Array
    values: Array
    errors: Array
    logdet: float

    def pairs(self, frame: Frame) -> Array:
        """Pair form of t_m t_mᵀ for each column t_m of T, [K.., O.., M]; the frame is that of the factor."""
        return outer_pairs(self.rotation.reshape(*frame.sizes, 1, -1), frame)


def eigen(matrix: Array, mass: Array | None = None) -> Eigen:
    """Diagonalise a symmetric positive semidefinite matrix [K, K] beside a positive definite one.

    Without a mass matrix F is scaled to a unit diagonal, which makes the verdict on a singular factor independent of
    units.
    """
    scale = unit_scale(np.diagonal(matrix if mass is None else mass))
    scaled, back, logdet = matrix / scale / scale[:, None], np.eye(len(scale)), -float(np.sum(np.log(scale)))
    if mass is not None:
        lower = np.linalg.cholesky(mass / scale / scale[:, None])
        back, _ = lapack.dtrtri(lower, lower=1)
        logdet -= float(np.sum(np.log(np.diag(lower))))
    values, errors, vectors = _eigenvalues(back @ scaled @ back.T)
    # An ill-conditioned mass matrix magnifies rounding errors; an eigenvalue that is exactly 0 has none.
    magnified = float(np.finfo(np.float64).eps * np.linalg.norm(scaled, 2) * np.linalg.norm(back, 2) ** 2)
    errors = np.where(errors > 0, errors + magnified, 0.0)
    return Eigen(back.T @ vectors / scale[:, None], values, errors, logdet)


def _eigenvalues(matrix: Array) -> tuple[Array, Array, Array]:
    """Eigenvalues, bounds of their errors, eigenvectors; coefficients with 0 on the diagonal stay by themselves."""
    size = len(matrix)
    active = np.flatnonzero(np.diagonal(matrix) > 0)
    values, errors, vectors = np.zeros(size), np.zeros(size), np.eye(size)
    if len(active):
        square = np.ix_(active, active)
        found, vectors[square] = np.linalg.eigh(matrix[square])
        values[active] = np.maximum(found, 0.0)
        errors[active] = tolerance(len(active)) * found[-1]
    return values, errors, vectors


def outer(parts: Sequence[Eigen]) -> tuple[Array, Array]:
    """Eigenvalues of the product of factors and bounds of their errors, each [K_1, K_2, ..]."""
    values = _outer([e.values for e in parts])
    return values, _outer([e.values + e.errors for e in parts]) - values


def weakest(parts: Sequence[Eigen]) -> tuple[float, list[int]]:
    """How far rounding errors exceed an eigenvalue of the product at most, and where.

    Returns
    -------
    deficit : float
        Negative when every eigenvalue rises above its errors.
    place : list of int
        For each part the coefficient that weighs most in the worst eigenvector.
    """
    values, errors = outer(parts)
    worst = np.unravel_index(np.argmax(errors - values), values.shape)
    vectors = (part.rotation[:, k] for part, k in zip(parts, worst, strict=True))
    return float((errors - values)[worst]), [int(np.argmax(np.abs(v))) for v in vectors]


def rotate(parts: Sequence[Eigen], v: Array, *, back: bool) -> Array:
    """Apply the transposed rotations, or the rotations themselves, to the leading axes of v.

    Leading axes are consumed and come back last: [K_1, .., K_m, rest..] → [rest.., K_1, .., K_m].
    """
    for part in parts:
        v = np.tensordot(v, part.rotation, axes=(0, 1 if back else 0))
    return v


def _outer(vectors: Sequence[Array]) -> Array:
    return math.prod(np.ix_(*vectors), start=np.ones((1,) * len(vectors)))
