"""The dense definition of an automatic choice of smoothing: scores of rows of Φ, and their minimum by search.

Slow, large and plain, and it shares nothing with the package: least squares on rows (not on G), determinants
of matrices, gradients by differences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Rows:
    """Observations y with weights w at rows of Φ, and the penalty matrices S_j of strength one.

    Parameters
    ----------
    phi : ndarray, [n, P]
    y, w : ndarray, [n]; rows of weight zero do not count
    penalties : sequence of ndarray, [P, P]
    """

    phi: Floats
    y: Floats
    w: Floats
    penalties: Sequence[Floats]


@dataclass(frozen=True, eq=False)
class Fit:
    """A penalised fit at given strengths."""

    coefficients: Floats
    rss: float
    penalised: float  # cᵀΛc
    edf: float
    count: int

    @property
    def sigma(self) -> float:
        return float(np.sqrt(self.rss / (self.count - self.edf)))


def total(rows: Rows, rho: Sequence[float]) -> Floats:
    """Λ = Σ_j exp(ρ_j) S_j."""
    return sum(np.exp(r) * s for r, s in zip(rho, rows.penalties, strict=True))


def root(matrix: Floats) -> Floats:
    """E with EᵀE the positive semidefinite matrix."""
    values, vectors = linalg.eigh(matrix)
    return np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T


def fit(rows: Rows, rho: Sequence[float]) -> Fit:
    """Least squares on the rows √w Φ, with the roots of λ_j S_j beneath."""
    seen = rows.w > 0
    root_weight = np.sqrt(rows.w[seen])
    phi, y = root_weight[:, None] * rows.phi[seen], root_weight * rows.y[seen]
    below = [np.exp(r / 2) * root(s) for r, s in zip(rho, rows.penalties, strict=True)]
    q, triangle = linalg.qr(np.vstack([phi, *below]), mode="economic")
    hat = q[: len(y)]
    c = linalg.solve_triangular(triangle, hat.T @ y)
    rss = float(np.sum((y - phi @ c) ** 2))
    return Fit(c, rss, float(c @ total(rows, rho) @ c), float(np.sum(hat**2)), len(y))


def determined(rows: Rows) -> Floats:
    """Orthonormal basis of the range of Λ, the same at all strengths; [P, P − M]."""
    even = sum(s / linalg.norm(s) for s in rows.penalties)
    values, vectors = linalg.eigh(even)
    return vectors[:, values > 1e-10 * values[-1]]


def reml(rows: Rows, rho: Sequence[float]) -> float:
    """Restricted likelihood with the variance profiled out (Wood 2011), negative log, without terms constant in ρ."""
    fitted, span, smooth = fit(rows, rho), determined(rows), total(rows, rho)
    free = fitted.count - (smooth.shape[0] - span.shape[1])
    deviance = fitted.rss + fitted.penalised
    gram = (rows.phi * rows.w[:, None]).T @ rows.phi
    whole, part = np.linalg.slogdet(gram + smooth)[1], np.linalg.slogdet(span.T @ smooth @ span)[1]
    return free / 2 * (1 + np.log(2 * np.pi * deviance / free)) + whole / 2 - part / 2


def gcv(rows: Rows, rho: Sequence[float]) -> float:
    """n rss / (n − edf)² (Craven and Wahba 1979)."""
    fitted = fit(rows, rho)
    return fitted.count * fitted.rss / (fitted.count - fitted.edf) ** 2


SCORES = {"reml": reml, "gcv": gcv}


def score(systems: Sequence[Rows], rho: Sequence[float], method: str = "reml") -> float:
    """The score of batch members that share strengths: the sum of theirs."""
    return sum(SCORES[method](rows, rho) for rows in systems)
