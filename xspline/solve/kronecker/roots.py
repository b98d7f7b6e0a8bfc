"""Square roots of G by the Lanczos process, which give random right-hand sides of covariance G."""

from __future__ import annotations

import math

import numpy as np
from scipy import linalg

from xspline.solve.direct.cholesky import Array, unit_scale
from xspline.solve.kronecker.pcg import apply_kronecker
from xspline.solve.kronecker.product import dense_of
from xspline.solve.krylov import AT_ONCE, LinearMap, square_root
from xspline.spaces import Space
from xspline.sums.integrals import integral


def data_root(matvec: LinearMap, diagonal: Array, space: Space) -> LinearMap:
    """z ↦ W z with W Wᵀ = G up to the tolerance of `square_root`, for vectors [m, K..].

    W = D C S^½ with D the roots of the diagonal of G, C a Cholesky factor of the mass matrix, both of a unit diagonal,
    and S = C⁻¹D⁻¹GD⁻¹C⁻ᵀ, near the identity where observations are dense. Coefficients without observations get 0.
    `matvec` multiplies by G, whose diagonal is `diagonal`, [K..].
    """
    scale = np.sqrt(diagonal)
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    lower = []
    for j in range(len(space.names)):
        mass = dense_of((integral(space, j, 0),), (j,), space.frame)
        unit = unit_scale(np.diagonal(mass))
        lower.append(np.asarray(np.linalg.cholesky(mass / unit / unit[:, None])))
    inverses = [linalg.solve_triangular(factor, np.eye(len(factor)), lower=True) for factor in lower]
    transposed = [np.ascontiguousarray(factor.T) for factor in inverses]

    def scaled(v: Array) -> Array:
        return apply_kronecker(inverses, inverse * matvec(inverse * apply_kronecker(transposed, v)))

    def root(z: Array) -> Array:
        step = max(1, AT_ONCE // math.prod(space.shape))
        parts = [square_root(scaled, z[i : i + step]) for i in range(0, len(z), step)]
        return scale * apply_kronecker(lower, np.concatenate(parts))

    return root
