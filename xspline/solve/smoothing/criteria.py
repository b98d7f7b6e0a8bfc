"""Criteria of smoothing: REML, GCV and the prediction of holders, with gradients and Hessians by ρ = log λ.

All of them are computed from the sums. The gradient of REML is exact; its Hessian, and the gradient of GCV, need u (see
`fit`), which is exact up to some hundred coefficients. The score by holders needs no traces.
"""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from xspline.solve.direct.cholesky import Array
from xspline.solve.errors import SingularSystemError
from xspline.solve.families.determinant import Determinant, products
from xspline.solve.smoothing.fit import ROUNDING, SMALLEST, Model, NearFit, PenalisedFit, diagonal
from xspline.solve.smoothing.newton import Point
from xspline.sums import Sums

Mask = NDArray[np.bool_]
# The variance of a normal prior of log λ, a factor of 24, which bounds λ where the likelihood is flat.
VAGUE = 10.0


class Score(Point):
    """A score at one ρ, in the units of a log-likelihood for the search.

    A batch shares ρ and its scores add. Members that are not determined, or have no more observations than the null
    space of the penalty has dimensions, are left out. `included`, [b..], are the batch members that count.
    """

    model: Model
    rho: Array
    included: Mask

    @property
    def design(self) -> Array:
        """D takes derivatives by the logarithms of the terms' strengths to those by ρ, [T, J]."""
        return self.model.family.design

    @property
    @abstractmethod
    def score(self) -> tuple[float, Array]:
        """The score as it is defined, and its gradient."""

    @property
    def comparable(self) -> float:
        """The score as it compares penalties of different orders; NaN where it is no likelihood."""
        return math.nan

    def covariance(self, free: Mask) -> Array | None:
        """Return that of the logarithms of the terms' strengths given the data, [T, T]; None without a likelihood.

        Those ρ_j that are not free have no share in it.
        """
        return None

    def total(self, x: Array) -> Array:
        """Return the sum over the members that count, [.., b..] to [..]; batch extents of 1 are shared."""
        full = np.broadcast_to(x, (*x.shape[: x.ndim - self.included.ndim], *self.included.shape))
        return np.asarray(full[..., self.included].sum(axis=-1))


class OfFit(Score):
    """A score of one fit.

    ρ is [J], and `included`, [b..], are the batch members that counted elsewhere. It raises SingularSystemError where
    nothing is determined, or a member that counted elsewhere is not.
    """

    fit_type: type[PenalisedFit] = PenalisedFit
    steering = False  # whether `hessian_traces` enter nothing but the Hessian

    def __init__(self, model: Model, rho: Array, included: Mask | None = None) -> None:
        self.model = model
        self.rho = rho
        self.fit = self.fit_type(model, rho, self.steering)
        self.n = np.asarray(model.sums.count, dtype=np.float64) / model.as_one
        batch = np.broadcast_shapes(model.sums.batch, model.sums.gram.batch)
        determined = np.broadcast_to(self.fit.factorisation.determined, batch)
        telling = determined & (self.n > model.family.null)
        # Where all values of a member are one, as over land, nothing is left of them, whatever the strengths.
        varies = np.broadcast_to(self.fit.rss > 2 * self.fit.floor, batch)
        if included is None and (telling & varies).any():
            telling &= varies
        self.included = same_members(telling, included)


def same_members(determined: Mask, included: Mask | None) -> Mask:
    """Return the members that count: those determined here, or those that counted elsewhere if all of them are."""
    if included is None:
        return determined
    if (included & ~determined).any():
        raise SingularSystemError("a member that was determined is not at these strengths")
    return included


class Reml(OfFit):
    """Restricted likelihood with the variance profiled out, as its negative logarithm (Wood 2011).

    With D = rss + cᵀΛc and M the dimension of the null space of Λ,

        V = (n − M)/2 (1 + log(2π D / (n − M))) + ½ log|A| − ½ log|Λ|₊

    up to −½ Σ log w over the observations.
    """

    steering = True

    @cached_property
    def determinant(self) -> Determinant:
        """log|Λ|₊."""
        return self.model.family.log_determinant(self.rho, self.model.resources)

    @cached_property
    def value(self) -> float | None:
        """V, the score."""
        degrees = self._degrees
        profile = degrees * (1 + np.log(2 * np.pi * self._deviance / degrees))
        return float(self.total(profile + self.fit.factorisation.logdet() - self.determinant.value)) / 2

    @property
    def comparable(self) -> float:
        """V as it compares penalties with null spaces of their own, whatever the units of the data.

        A function without roughness has no prior, so that V counts it for nothing and depends on units: here its
        coefficient, of unit mass, has the variance of the data for a prior. NaN where members of a batch that have
        observations are left out: for another penalty these may be others.
        """
        if ((self.n > 0) & ~self.included).any():
            return math.nan
        sums = self.model.sums
        log_null = self.model.family.log_null
        variance = sums.power / np.where(sums.weight > 0, sums.weight, 1.0)
        prior = self.model.family.null * np.log(2 * np.pi * np.maximum(variance, SMALLEST)) + log_null
        return float(self.score[0] + self.total(np.broadcast_to(prior, self.included.shape)) / 2)

    @cached_property
    def gradient(self) -> Array:
        """∂V/∂ρ, which is as exact as the traces of the fit."""
        shrunk = self._degrees / self._deviance * self.fit.q + self.fit.traces
        by_term = self.total(shrunk) - self.included.sum() * self.determinant.gradient
        return np.asarray(self.design.T @ by_term) / 2

    @cached_property
    def hessian(self) -> Array:
        """∂²V/∂ρ², which is exact where u is."""
        fit = self.fit
        share = fit.q / self._deviance
        w = products(fit.penalty_times_c, fit.coefficient_derivatives)
        curved = diagonal(share) - 2 * w / self._deviance - share[:, None] * share
        t, u, _ = fit.hessian_traces
        second = self._degrees * curved + diagonal(t) - u
        by_terms = self.total(second) - self.included.sum() * self.determinant.hessian
        return np.asarray(self.design.T @ by_terms @ self.design) / 2

    def covariance(self, free: Mask) -> Array:
        """Return D (∂²V/∂ρ² + D₁ᵀD₁/VAGUE)⁻¹ Dᵀ, from the normal posterior of ρ (Wood, Pya and Säfken 2016).

        D₁ are the terms of derivatives along one coordinate alone: the prior is one of their log-strengths, so that no
        coordinate is special. Where V curves downwards or is flat the prior alone is left.
        """
        design = self.design[:, free]
        if not free.any():
            return np.zeros((len(design), len(design)))
        hessian = np.nan_to_num(self.hessian[np.ix_(free, free)], posinf=0.0, neginf=0.0)
        own = design[[max(alpha) == sum(alpha) for alpha in self.model.family.alphas]]
        root = np.linalg.inv(np.linalg.cholesky(own.T @ own / VAGUE))
        values, vectors = np.linalg.eigh(root @ hessian @ root.T)
        along = design @ root.T @ vectors
        return np.asarray((along / (np.maximum(values, 0.0) + 1.0)) @ along.T)

    @cached_property
    def noise(self) -> float:
        """The rounding errors of V, which are those of D."""
        return float(self.total(self._degrees * ROUNDING * self.model.sums.power / self._deviance)) / 2

    @property
    def score(self) -> tuple[float, Array]:
        """V, which is NaN where it is not known, and its gradient."""
        return math.nan if self.value is None else self.value, self.gradient

    @cached_property
    def _degrees(self) -> Array:
        """n − M."""
        return np.maximum(self.n - self.model.family.null, 1.0)

    @cached_property
    def _deviance(self) -> Array:
        """D = rss + cᵀΛc."""
        return np.asarray(self.fit.rss + self.fit.q.sum(axis=0))


class NearReml(Reml):
    """REML where G is nearly a product: log|A| and traces are those of the product, see `NearFit`."""

    fit_type = NearFit

    @property
    def score(self) -> tuple[float, Array]:
        """NaN, since V of the product is no likelihood of the data, and the gradient."""
        return math.nan, self.gradient


class Logarithm(Score):
    """A score v > 0, searched as (n/2) log v, which has the units of a log-likelihood: one tolerance serves all."""

    @property
    @abstractmethod
    def derivatives(self) -> tuple[float, Array, Array]:
        """v, ∂v/∂ρ and ∂²v/∂ρ²."""

    @property
    @abstractmethod
    def rounding(self) -> float:
        """Rounding errors of v."""

    @cached_property
    def observations(self) -> float:
        """n of the members that count."""
        return float(self.total(self.model.sums.count.astype(np.float64)))

    @property
    def value(self) -> float:
        return self.observations / 2 * math.log(self.derivatives[0])

    @property
    def noise(self) -> float:
        return self.observations / 2 * self.rounding / self.derivatives[0]

    @property
    def gradient(self) -> Array:
        v, first, _ = self.derivatives
        return np.asarray(self.observations / 2 * first / v)

    @property
    def hessian(self) -> Array:
        v, first, second = self.derivatives
        return np.asarray(self.observations / 2 * (second / v - np.outer(first / v, first / v)))

    @property
    def score(self) -> tuple[float, Array]:
        """v and its gradient."""
        return self.derivatives[:2]


class Gcv(OfFit, Logarithm):
    """Generalised cross-validation n rss / (n − edf)² (Craven and Wahba 1979)."""

    @property
    def noise(self) -> float:
        """Rounding errors of the value; where gradients come from draws, these may be wrong by 1 over a step."""
        return super().noise + (0.0 if self.fit.exact else 1.0)

    @cached_property
    def value(self) -> float:
        """(n/2) log V, which needs no derivatives."""
        return self.observations / 2 * math.log(self.total(self.n * self.fit.rss / self._left**2))

    @cached_property
    def derivatives(self) -> tuple[float, Array, Array]:
        """V, ∂V/∂ρ and ∂²V/∂ρ²."""
        fit = self.fit
        n = self.n
        left = self._left
        first, second = fit.loss(self.model.sums, -fit.penalty_times_c.sum(axis=1))  # h − Gc = Λc
        # Derivatives of edf, as good as u is.
        t, u, v = fit.hessian_traces
        edf = u.sum(axis=1) - t
        edf2 = 2 * (u - v) + diagonal(edf)
        value = n * fit.rss / left**2
        slope = n * (first + 2 * fit.rss * edf / left) / left**2
        cross = first[:, None] * edf
        curved = second + 2 * (cross + cross.swapaxes(0, 1) + fit.rss * edf2) / left
        curved = n * (curved + 6 * fit.rss * edf[:, None] * edf / left**2) / left**2
        slope = self.total(slope)
        curved = self.total(curved)
        return float(self.total(value)), self.design.T @ slope, self.design.T @ curved @ self.design

    @cached_property
    def rounding(self) -> float:
        """The rounding errors of V, which are those of rss."""
        return float(self.total(self.n * ROUNDING * self.model.sums.power / self._left**2))

    @cached_property
    def _left(self) -> Array:
        """n − edf."""
        left = self.n - (self.model.space.size - self.fit.traces.sum(axis=0))
        if self.total(left <= ROUNDING * self.n) > 0:
            raise SingularSystemError("no degrees of freedom are left at these strengths")
        return np.where(left > 0, left, 1.0)  # zero only of members that do not count


class Holders(Logarithm):
    """Mean squared error of each part, predicted by a fit to the others: Σ_h [s_h − 2h_hᵀc₋ₕ + c₋ₕᵀG_hc₋ₕ] / Σ_h w_h.

    `model` is that of all parts together, and `pairs` are the parts without each, and that part about the same
    reference. ρ is [J], and `included`, [b..], are the batch members that counted elsewhere. It raises
    SingularSystemError where nothing is determined without some part, or a member that counted elsewhere is not.
    """

    def __init__(
        self, model: Model, pairs: Sequence[tuple[Model, Sums]], rho: Array, included: Mask | None = None
    ) -> None:
        self.model = model
        self.rho = rho
        determined = np.zeros((), dtype=np.int64)
        sums = []
        for i, (rest, part) in enumerate(pairs):
            try:
                fit = PenalisedFit(rest, rho)
            except SingularSystemError as error:
                raise SingularSystemError(
                    f"without part {i} the others do not determine the fit: {error}"
                ) from None
            determined = determined + fit.factorisation.determined
            floor = 4 * ROUNDING * part.power + SMALLEST
            squares = np.maximum(part.rss(fit.c, fit.frame), 0.0) + floor
            sums.append((squares, *fit.loss(part), part.power, part.weight))
        totals = [functools.reduce(np.add, x) for x in zip(*sums, strict=True)]
        self.included = same_members(np.broadcast_to(determined == len(pairs), totals[0].shape), included)
        self._totals = [self.total(x) for x in totals]

    @property
    def derivatives(self) -> tuple[float, Array, Array]:
        """The score and its derivatives."""
        value, first, second, _, weight = self._totals
        return (
            float(value / weight),
            self.design.T @ first / weight,
            self.design.T @ second @ self.design / weight,
        )

    @property
    def rounding(self) -> float:
        """The rounding errors of the score, which are those of the squared errors."""
        return ROUNDING * float(self._totals[3] / self._totals[4])
