"""Eigenvalues of one factor, with the size of the errors that rounding leaves in them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .cholesky import Array, tolerance, unit_scale


@dataclass(frozen=True, eq=False)
class Eigen:
    """Simultaneous diagonalisation: Tᵀ F T = diag(μ).

    Parameters
    ----------
    rotation : ndarray, [K, K]
        T. Orthogonal when a ridge needs it; else F is scaled to a unit diagonal first, which makes the
        verdict on a singular factor independent of units, and T Tᵀ is not the identity.
    values, errors : ndarray, [K]
        μ ≥ 0, and bounds of the rounding errors in them. Both are exactly 0 for coefficients without
        observations.
    """

    rotation: Array
    values: Array
    errors: Array


def eigen(matrix: Array, *, scaled: bool) -> Eigen:
    """Diagonalise a symmetric positive semidefinite matrix [K, K]."""
    diagonal = np.diagonal(matrix)
    active = np.flatnonzero(diagonal > 0)
    scale = unit_scale(diagonal) if scaled else np.ones(len(diagonal))
    rotation, values, errors = np.diag(1.0 / scale), np.zeros(len(diagonal)), np.zeros(len(diagonal))
    if len(active):
        square = np.ix_(active, active)
        found, vectors = np.linalg.eigh((matrix / scale / scale[:, None])[square])
        rotation[square] = vectors / scale[active, None]
        values[active] = np.maximum(found, 0.0)
        errors[active] = tolerance(len(active)) * found[-1]
    return Eigen(rotation, values, errors)


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
