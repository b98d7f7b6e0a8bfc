"""Fits under a linear equation and a roughness, as bands: solves, and strengths by restricted likelihood.

The penalty is Λ = R + λ JᵀJ / N. J is the derivative of the equation's residual on its test functions, and N is such
that a residual of one everywhere costs λ. JᵀJ is not symmetric axis by axis, so that it is a band and no pair array:
see `profile.normal_equations`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import qr

from xspline.pde.profile.axes import Array, Integers
from xspline.pde.profile.constraint import Constraint, Constraints
from xspline.pde.profile.gauss_newton import STRENGTHS
from xspline.pde.profile.normal_equations import Jacobian, band_of
from xspline.pde.profile.scaled_sums import ScaledSums
from xspline.solve.direct.cholesky import TINY, BandCholesky, scale_band
from xspline.solve.errors import SingularSystemError
from xspline.solve.smoothing.fit import ROUNDING
from xspline.solve.smoothing.newton import STEPS, minimise
from xspline.solve.smoothing.resolution import SEEN
from xspline.sums import Gram

# Strengths are in units of `even`, at which a part of the penalty weighs as much as the data on the diagonal; at TINY
# of it neither roughness nor equation is seen.
# At 1e3 a field obeys the equation but for rounding errors of log|Λ|₊: 0.02 of the score, and 0.5 at 1e5.
STRONGEST = 1e3
# Of roughness and equation: the field hardly knows it, or obeys it.
STARTS = ((1e-2, 1e-3), (1e-2, STRONGEST))
RATIO = 1e5  # weight of the equation over the roughness up to which log|Λ|₊ is computed: rounding changes it by 0.1


@dataclass(frozen=True)
class RestrictedScore:
    """Minus the logarithm of a restricted likelihood, up to a constant, as a function of logarithms of strengths.

    `value` is infinite where the system is not determined; `cost` is what each part of the penalty costs, in units of
    σ², and `freedom` the degrees of freedom that it takes from the field.
    """

    value: float
    cost: Array
    freedom: Array

    @property
    def gradient(self) -> Array:
        """Where it vanishes each part costs what it takes."""
        return (self.cost - self.freedom) / 2

    @property
    def hessian(self) -> Array:
        """The logarithmic mean of both, with which a step of Newton's multiplies each strength by freedom / cost.

        Such a step makes the gradient zero while the traces stand (Wood and Fasiolo 2017).
        """
        cost = np.maximum(self.cost, TINY)
        freedom = np.maximum(self.freedom, TINY)
        apart = np.log(cost / freedom)
        same = np.abs(apart) < 1e-6
        mean = np.where(same, cost, (cost - freedom) / np.where(same, 1.0, apart))
        return np.diag(mean) / 2

    @property
    def noise(self) -> float:
        """Rounding errors of the value where the equation is strongest; elsewhere they are smaller."""
        return 0.02


class ChosenStrengths(NamedTuple):
    """Where a search for strengths ended.

    `strengths` are those of the terms and of the equation, `evaluations` counts the scores that were computed, and
    `sides` tells the bound that each strength is at: −1, 0 or 1.
    """

    strengths: Array
    score: float
    evaluations: int
    settled: bool
    sides: Any


@dataclass(frozen=True, eq=False)
class EquationPrior:
    """Least squares of data, a quadratic roughness and the squared residual of a linear equation.

    The data are those of one variable, `constraints` is one linear equation without unknown constants, and `given` the
    roughness of known strength. `terms` are roughnesses of strength one, whose strengths are searched for; constants
    cost nothing.
    """

    data: ScaledSums
    constraints: Constraints
    given: Gram
    terms: Sequence[Gram]

    @property
    def equation(self) -> Constraint:
        """The constraint of the only equation."""
        return self.constraints.each[0]

    @cached_property
    def norm(self) -> float:
        """N, the sum of squares of a residual of one everywhere."""
        return float(np.sum(self.equation.project(1.0) ** 2))

    def residual(self, row: Array) -> Array:
        """Residuals [I..] over √N, of centred coefficients."""
        return self.equation.residual(self.data.with_reference(row), np.zeros(0)) / math.sqrt(self.norm)

    @cached_property
    def observed(self) -> Array:
        """G as a band."""
        return self.data.band()

    @cached_property
    def _by_value(self) -> dict[str, Any]:
        """The derivatives of the equation by values of the field: those of a linear one know no field."""
        order = self.data.order
        values = self.equation.environment({name: np.zeros(order.frame.sizes) for name in order.variables})
        return self.equation.by_value(values, np.zeros(0))

    @cached_property
    def squares(self) -> Array:
        """JᵀJ/N as a band."""
        entries = self.equation.by_coefficient(self._by_value)
        band = np.zeros_like(self.observed)
        Jacobian(self.equation, self.data.order).add_squares(band, entries, 1 / self.norm)
        return band

    def pulled(self, residual: Array) -> Array:
        """Jᵀ/√N times residuals [I..], as a row."""
        back = self.equation.pulled_back(self._by_value, residual / math.sqrt(self.norm))
        return self.data.order.flatten(back)

    @cached_property
    def even(self) -> Array:
        """Strengths of the terms and of the equation at which each weighs as much as the data, on the diagonal."""
        total = float(self.observed[:, 0].sum())
        return total / np.array([max(float(band[:, 0].sum()), 1e-300) for band in self.bands])

    @cached_property
    def bands(self) -> list[Array]:
        """What is multiplied by the strengths: the terms, and JᵀJ/N."""
        return [*(band_of([term], self.data.order) for term in self.terms), self.squares]

    @cached_property
    def _given(self) -> Array:
        return band_of([self.given], self.data.order)

    @property
    def is_rough(self) -> bool:
        """Whether there is a roughness beside the equation."""
        return bool(self.terms or self.given.terms)

    @cached_property
    def rhs(self) -> Array:
        """h − R e r: what the data say, and what the roughness of known strength says of the reference."""
        order = self.data.order
        (name,) = order.variables
        reference = self.data.with_reference(np.zeros(order.size))[name]
        return self.data.moment - order.flatten({name: self.given.matvec(reference, order.frame)})

    @cached_property
    def target(self) -> Array:
        """−Jᵀr/N of the reference: what the equation says, of its source too."""
        return -self.pulled(self.residual(np.zeros(self.data.order.size)))

    def matrix(self, strengths: Array) -> Array:
        """Λ as a band."""
        return self._given + sum(x * band for x, band in zip(strengths, self.bands, strict=True))

    def solve(self, strengths: Array) -> tuple[BandCholesky, Array]:
        """Return the factor of G + Λ, and centred coefficients."""
        factor = BandCholesky(self.observed + self.matrix(strengths))
        return factor, factor.solve((self.rhs + strengths[-1] * self.target)[:, None])[:, 0]

    def obeying(self, strengths: Array) -> tuple[BandCholesky, Array]:
        """The factor and the field that obeys the equation, by multipliers; its strength changes their speed alone."""
        for weight in STRENGTHS:
            own = weight * float(self.even[-1])
            factor, row = self.solve(np.array([*strengths[:-1], own]))
            if factor.determined:
                break
        multipliers = np.zeros(())
        for _ in range(STEPS):
            residual = self.residual(row)
            left = max(self.data.rss(row), ROUNDING * self.data.power)
            if own * float(np.sum(residual**2)) < SEEN**2 * left:
                break
            multipliers = multipliers + residual
            pull = self.target - self.pulled(multipliers)
            row = factor.solve((self.rhs + own * pull)[:, None])[:, 0]
        return factor, row

    # --- the likelihood

    def costs(self, row: Array) -> Array:
        """What each searched term and the equation cost at strength one."""
        (name,), frame = self.data.order.variables, self.data.order.frame
        own = self.data.order.unflatten(row)[name]
        rough = [float(np.sum(own * term.matvec(own, frame))) for term in self.terms]
        return np.array([*rough, float(np.sum(self.residual(row) ** 2))])

    @cached_property
    def pins(self) -> Integers:
        """Coefficients that stand for what Λ leaves free, where there is a roughness.

        |Λ|₊ is, up to a factor that knows no strengths, the determinant of Λ without the rows and columns of as many
        coefficients as there are free directions N, if N takes independent values there.
        """
        strengths = self.even
        # At which each weighs as much as the roughness of known strength, on the diagonal.
        if self.given.terms:
            strengths = strengths * float(self._given[:, 0].sum()) / float(self.observed[:, 0].sum())
        scaled = self.matrix(strengths)
        scale = np.sqrt(scaled[:, 0])
        scale_band(scaled, scale)
        shifted = scaled.copy()
        shifted[:, 0] += TINY
        factor = BandCholesky(shifted)
        count = 32
        # Inverse iteration of a block of vectors, which is four times as wide each time that all of them are free.
        while True:
            block = np.random.default_rng(0).standard_normal((len(scaled), min(count, len(scaled))))
            for _ in range(3):
                block = np.linalg.qr(factor.solve(block))[0]
            values, vectors = np.linalg.eigh(block.T @ _times(scaled, block))
            free = values < TINY  # rounding leaves 1e-15
            if not free.all() or count >= len(scaled):
                break
            count *= 4
        directions = (block @ vectors[:, free]) / scale[:, None]
        return np.asarray(qr(directions.T, mode="r", pivoting=True)[1][: directions.shape[1]], np.int64)

    def _log_prior(self, strengths: Array, rough: list[Array]) -> tuple[float, Array, float]:
        """log|Λ|₊ up to a constant, and tr(Λ⁺R) of each roughness and of all.

        Where the equation outweighs the roughness by more than `RATIO`, rounding would decide: tr(Λ⁺R) falls towards
        the directions that the equation leaves free, its excess as 1/λ, and log|Λ|₊ grows by the rest.
        """
        held = math.prod(self.equation.shape)
        weight = sum(float(part[:, 0].sum()) for part in rough) / float(self.observed[:, 0].sum())
        capped = np.append(strengths[:-1], min(strengths[-1], RATIO * weight * self.even[-1]))
        factor = BandCholesky(_pinned(self.matrix(capped), self.pins))
        traces = _traces(factor, [_pinned(part, self.pins, 0.0) for part in rough])
        total = float(traces.sum())
        share = capped[-1] / strengths[-1]
        excess = max(total - (self.data.order.size - len(self.pins) - held), 0.0)
        logdet = factor.logdet - held * math.log(share) - excess * (1 - share)
        left = total - excess * (1 - share)
        return logdet, traces * (left / total), left

    @property
    def strongest(self) -> float:
        """The largest strength of the equation that a search looks at."""
        return STRONGEST * float(self.even[-1])

    def score(self, logs: Array) -> RestrictedScore:
        """Half of (n − M) log D + log|G + Λ| − log|Λ|₊, with its gradient.

        D is the penalised sum of squares, and M the dimension of what Λ leaves free.
        """
        strengths = np.exp(logs)
        size = self.data.order.size
        factor, row = self.solve(strengths)
        held = math.prod(self.equation.shape)
        free = size - held
        log_prior = held * float(logs[-1])
        by_prior = np.array([float(held)])
        costs = strengths * self.costs(row)
        (own,) = self.data.with_reference(row).values()
        of_given = float(np.sum(own * self.given.matvec(own, self.data.order.frame)))
        # Ten times what rounding takes: of data without noise a score of less jumps by a hundred.
        penalised = max(self.data.rss(row), 10 * ROUNDING * self.data.power) + of_given + costs.sum()
        parts = [x * band for x, band in zip(strengths, self.bands, strict=True)][:-1]
        given = [self._given] if self.given.terms else []
        by_system = _traces(factor, [*parts, *given, self.observed])
        if self.is_rough:
            free = len(self.pins)
            log_prior, by_rough, total = self._log_prior(strengths, [*parts, *given])
            by_prior = np.append(by_rough[: len(parts)], size - free - total)
        # The traces of all parts add up to the size, which leaves that of the equation: by itself it would be a
        # small difference of large numbers.
        by_system = np.append(by_system[: len(parts)], size - by_system.sum())
        left = self.data.count - free
        value = left * math.log(penalised) + factor.logdet - log_prior
        usable = factor.determined and math.isfinite(value)
        return RestrictedScore(
            value / 2 if usable else math.inf, left * costs / penalised, by_prior - by_system
        )

    def search(self, fixed: float | None = None, near: Sequence[Array] = ()) -> ChosenStrengths:
        """Return the strengths of the largest likelihood; that of the equation is `fixed` where it is given.

        There may be several maxima, one where the field obeys the equation and one where the equation counts little.
        Searches start near both, and from strengths that are passed as `near`.
        """
        # At the largest strength of a roughness a field is a polynomial.
        ends = np.log([(TINY, STRENGTHS[0])] * len(self.terms) + [(TINY, STRONGEST)])
        lower, upper = (ends + np.log(self.even)[:, None]).T
        if fixed is not None:
            lower[-1] = upper[-1] = math.log(fixed)
        starts = np.log(self.even) + np.log([(*[rough] * len(self.terms), own) for rough, own in STARTS])
        starts = np.unique(np.clip([*starts, *map(np.log, near)], lower, upper), axis=0)
        results = [self._search_from(start, lower, upper) for start in starts]
        best = min(results, key=lambda result: result.score)
        return best._replace(evaluations=sum(result.evaluations for result in results))

    def _search_from(self, start: Array, lower: Array, upper: Array) -> ChosenStrengths:
        """Return the maximum near a start; its score is infinite where there is none at the start."""
        evaluations = 0

        def score(logs: Array) -> RestrictedScore:
            nonlocal evaluations
            evaluations += 1
            own = self.score(logs)
            if not math.isfinite(own.value):
                raise SingularSystemError("the system is not determined at these strengths")
            return own

        try:
            state = minimise(score, start, lower, upper, enough=1e-4)
        except SingularSystemError:
            return ChosenStrengths(
                np.exp(start), math.inf, evaluations, False, np.zeros(len(start), np.int64)
            )
        sides = (state.rho >= upper) * 1 - (state.rho <= lower) * 1
        return ChosenStrengths(np.exp(state.rho), state.point.value, evaluations, state.converged, sides)


def _pinned(band: Array, pins: Integers, diagonal: float = 1.0) -> Array:
    """A band without the rows and columns of some coefficients, which have a diagonal only."""
    band = band.copy()
    for pin in pins.tolist():
        back = np.arange(min(band.shape[1], pin + 1))
        band[pin] = 0.0
        band[pin - back, back] = 0.0
        band[pin, 0] = diagonal
    return band


def _traces(factor: BandCholesky, bands: Sequence[Array]) -> Array:
    """tr(A⁻¹S) of matrices S as bands, from the entries of A⁻¹ within the band."""
    inverse = 2 * factor.inverse(np.arange(factor.factor.shape[1]))
    inverse[:, 0] /= 2
    return np.array([float(np.vdot(inverse, band)) for band in bands])


def _times(band: Array, columns: Array) -> Array:
    """A symmetric matrix, of which `band` has the entries (j + r, j), times columns [P, n]."""
    out = band[:, :1] * columns
    for r in range(1, band.shape[1]):
        below = band[: len(band) - r, r, None]
        size = len(band) - r
        out[r:] += below * columns[:size]
        out[:size] += below * columns[r:]
    return np.asarray(out)
