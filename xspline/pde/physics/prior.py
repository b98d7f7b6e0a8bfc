"""Fits under a linear equation and a roughness, as bands: solves, and strengths by restricted likelihood.

The penalty is Λ = R + λ JᵀJ / N, with J the derivative of the equation's residual on its test functions, and N such
that a residual of one everywhere costs λ. JᵀJ is not symmetric axis by axis: see `profile.system`.
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
from xspline.pde.profile.search import SATISFIED, STRENGTH, WEAKER, WEAKEST, Data
from xspline.pde.profile.system import Rows, band_of
from xspline.solve.direct.cholesky import BandCholesky
from xspline.sums import Gram

# Strengths in units of `even`. Beyond a thousand times the data's weight on the diagonal a field obeys the equation but
# for rounding errors of log|Λ|₊, which the score would show: 0.02 there, 0.5 at a hundred times that.
STRONGEST = 1e3
WEAKEST_PRIOR, ROUGHEST, SMOOTHEST = 1e-7, 1e-9, 1e6
RATIO = 1e5  # of the equation over the roughness: at most what log|Λ|₊ is computed at, where rounding changes it by 0.1
START, STARTS = 1e-2, (1e-3, STRONGEST)  # of roughness, and of the equation
STEPS, MEMORY = 40, 4  # of a search, and how many before tell where the next one goes
FARTHEST, CLOSE = 5.0, 0.05  # logarithms of strengths: at a time, and to a bound
SETTLED = 1e-3  # of twice the log-likelihood: what a step gains that ends a search
SHIFT = 1e-10  # of the diagonal of Λ, to find what it leaves free
FREE = 1e-11  # of a matrix Λ of unit diagonal: directions of less are free; rounding leaves them 1e-15
AT_ONCE = 32  # directions that are tried for being free, at first
MULTIPLIERS = 20  # steps at most: each leaves 1e-3 or so of the residual


class Score(NamedTuple):
    """−2 log of a restricted likelihood, and its gradient by the logarithms of strengths as `paid` − `due`.

    `paid` is what each costs in units of σ², `due` the degrees of freedom that it takes of the field.
    """

    value: float
    paid: Array
    due: Array

    @property
    def step(self) -> Array:
        """Of the logarithms."""
        return np.asarray(np.log(np.maximum(self.due, 1e-9)) - np.log(np.maximum(self.paid, 1e-9)))


class Search(NamedTuple):
    """Strengths, half the score, how many were computed, whether they settled, and the bound each is at: −1, 0 or 1."""

    strengths: Array
    score: float
    evaluations: int
    settled: bool
    sides: Any


@dataclass(frozen=True, eq=False)
class Prior:
    """Least squares of data, a quadratic roughness and the squared residual of a linear equation.

    Parameters
    ----------
    data : Data
        Of one variable.
    constraints : Constraints
        One linear equation without unknown constants.
    given : Gram
        Roughness of known strength.
    terms : sequence of Gram
        Roughnesses of strength one, whose strengths are searched for; constants cost nothing.
    """

    data: Data
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
        (values,) = self.constraints.residuals(self.data.with_reference(row), np.zeros(0))
        return values / math.sqrt(self.norm)

    @cached_property
    def observed(self) -> Array:
        """G as a band."""
        return self.data.band()

    @cached_property
    def _linear(self) -> dict[str, Any]:
        """What the names of the equation are at the nodes: of a linear one its derivatives know no field."""
        frame = self.data.order.frame
        return self.equation.environment({name: np.zeros(frame.sizes) for name in self.data.order.variables})

    @cached_property
    def squares(self) -> Array:
        """JᵀJ/N as a band."""
        order = self.data.order
        entries, band = self.equation.by_coefficient(self._linear, np.zeros(0)), np.zeros_like(self.observed)
        Rows(self.equation, order).add_squares(band, entries, 1 / self.norm)
        return band

    def pulled(self, residual: Array) -> Array:
        """Jᵀ/√N times residuals [I..], as a row."""
        back = self.equation.pulled_back(self._linear, np.zeros(0), residual / math.sqrt(self.norm))
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
        return band_of([self.given], self.data.order) if self.given.terms else np.zeros(self.bands[-1].shape)

    @property
    def is_rough(self) -> bool:
        """Whether there is a roughness beside the equation."""
        return bool(self.terms or self.given.terms)

    @cached_property
    def rhs(self) -> Array:
        """h − R e r: what the data say, and what the roughness of known strength says of the reference."""
        order = self.data.order
        (name,), frame = order.variables, order.frame
        reference = self.data.with_reference(np.zeros(order.size))[name]
        rough = self.given.matvec(reference, frame) if self.given.terms else 0.0 * reference
        return self.data.moment - order.flatten({name: rough})

    @cached_property
    def target(self) -> Array:
        """−Jᵀr/N of the reference: what the equation says, of its source too."""
        return -self.pulled(self.residual(np.zeros(self.data.order.size)))

    def matrix(self, strengths: Array) -> Array:
        """Λ as a band."""
        return self._given + sum(x * band for x, band in zip(strengths, self.bands, strict=True))

    def factor(self, strengths: Array) -> BandCholesky:
        """Of G + Λ."""
        return BandCholesky(self.observed + self.matrix(strengths))

    def solve(self, strengths: Array) -> tuple[BandCholesky, Array]:
        """The factor, and centred coefficients."""
        factor = self.factor(strengths)
        return factor, factor.solve((self.rhs + strengths[-1] * self.target)[:, None])[:, 0]

    def obeying(self, strengths: Array) -> tuple[BandCholesky, Array]:
        """The same of the field that obeys the equation, by multipliers; its strength changes their speed alone."""
        weight = STRENGTH
        while True:
            own = np.array([*strengths[:-1], weight * self.even[-1]])
            factor, row = self.solve(own)
            if factor.determined or weight * WEAKER < WEAKEST:
                break
            weight *= WEAKER
        multipliers, floor = np.zeros(()), 1e-14 * self.data.power
        for _ in range(MULTIPLIERS):
            residual = self.residual(row)
            if own[-1] * float(np.sum(residual**2)) < SATISFIED * max(self.data.rss(row), floor):
                break
            multipliers = multipliers + residual
            pull = self.target - self.pulled(multipliers)
            row = factor.solve((self.rhs + own[-1] * pull)[:, None])[:, 0]
        return factor, row

    # --- the likelihood

    def costs(self, row: Array) -> Array:
        """What each searched term and the equation cost at strength one."""
        (name,), frame = self.data.order.variables, self.data.order.frame
        own = self.data.order.unflatten(row)[name]
        rough = [float(np.sum(own * term.matvec(own, frame))) for term in self.terms]
        return np.array([*rough, float(np.sum(self.residual(row) ** 2))])

    def _cost_of_given(self, row: Array) -> float:
        if not self.given.terms:
            return 0.0
        (name,) = self.data.order.variables
        own = self.data.with_reference(row)[name]
        return float(np.sum(own * self.given.matvec(own, self.data.order.frame)))

    @cached_property
    def pins(self) -> Integers:
        """Coefficients that stand for what Λ leaves free, where there is a roughness.

        |Λ|₊ is, up to a factor that knows no strengths, the determinant of Λ without the rows and columns of as many
        coefficients as there are free directions N, if N takes independent values there.
        """
        band = self.matrix(self.even) if not self.given.terms else self.matrix(self._beside_given())
        scale = np.sqrt(band[:, 0])
        scaled = band / scale[:, None]
        for r in range(band.shape[1]):
            scaled[: len(band) - r, r] /= scale[r:]
        shifted = scaled.copy()
        shifted[:, 0] += SHIFT
        factor, count = BandCholesky(shifted), AT_ONCE
        while True:
            some = np.random.default_rng(0).standard_normal((len(band), min(count, len(band))))
            for _ in range(3):
                some = np.linalg.qr(factor.solve(some))[0]
            values, vectors = np.linalg.eigh(some.T @ _times(scaled, some))
            free = values < FREE
            if not free.all() or count >= len(band):
                break
            count *= 4
        directions = (some @ vectors[:, free]) / scale[:, None]
        return np.asarray(qr(directions.T, mode="r", pivoting=True)[1][: directions.shape[1]], np.int64)

    def _beside_given(self) -> Array:
        """Strengths at which each weighs as much as the roughness of known strength, on the diagonal."""
        return float(self._given[:, 0].sum()) * self.even / float(self.observed[:, 0].sum())

    def _log_prior(self, strengths: Array, rough: list[Array]) -> tuple[float, Array, float]:
        """log|Λ|₊ up to a constant, and tr(Λ⁺R) of each roughness and of all.

        Where the equation outweighs the roughness by more than `RATIO`, rounding would decide: tr(Λ⁺R) falls towards
        the directions that the equation leaves free, its excess as 1/λ, and log|Λ|₊ grows by the rest.
        """
        held, size = math.prod(self.equation.shape), self.data.order.size
        weight = sum(float(part[:, 0].sum()) for part in rough) / float(self.observed[:, 0].sum())
        capped = np.append(strengths[:-1], min(strengths[-1], RATIO * weight * self.even[-1]))
        factor = BandCholesky(_pinned(self.matrix(capped), self.pins))
        traces = _traces(factor, [_pinned(part, self.pins, 0.0) for part in rough])
        total, share = float(traces.sum()), capped[-1] / strengths[-1]
        excess = max(total - (size - len(self.pins) - held), 0.0)
        logdet = factor.logdet - held * math.log(share) - excess * (1 - share)
        left = total - excess * (1 - share)
        return logdet, traces * (left / total), left

    @property
    def strongest(self) -> float:
        """The largest strength of the equation that a search looks at."""
        return STRONGEST * float(self.even[-1])

    def score(self, logs: Array) -> Score:
        """−2 log of the restricted likelihood up to a constant, and what makes it fall.

        (n − M) log D + log|G + Λ| − log|Λ|₊, with D the penalised sum of squares and M the dimension of what Λ leaves
        free. Infinite where a system is not determined.
        """
        strengths, size = np.exp(logs), self.data.order.size
        factor, row = self.solve(strengths)
        held = math.prod(self.equation.shape)
        free, log_prior, by_prior = size - held, held * float(logs[-1]), np.array([float(held)])
        costs = strengths * self.costs(row)
        penalised = max(self.data.rss(row), 1e-14 * self.data.power) + self._cost_of_given(row) + costs.sum()
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
        return Score(value if usable else math.inf, left * costs / penalised, by_prior - by_system)

    def search(self, fixed: float | None = None, near: Sequence[Array] = ()) -> Search:
        """Strengths of the largest likelihood; that of the equation is `fixed` where it is given.

        There may be several maxima: one where the field obeys the equation, one where that is worth little. So there
        are several starts, and those that are `near`; and the bound where it obeys is looked at for itself, as a climb
        from there may leave it before the roughness suits it.
        """
        ends = np.log([(ROUGHEST, SMOOTHEST)] * len(self.terms) + [(WEAKEST_PRIOR, STRONGEST)])
        lower, upper = (ends + np.log(self.even)[:, None]).T
        if fixed is not None:
            lower[-1] = upper[-1] = math.log(fixed)
        starts = np.log(self.even) + np.log([(*[START] * len(self.terms), x) for x in STARTS])
        starts = np.unique(np.clip([*starts, *map(np.log, near)], lower, upper), axis=0)
        results = [self._climb(start, lower, upper) for start in starts]
        if fixed is None:
            obeying = np.append(np.log(results[-1].strengths[:-1]), upper[-1])
            results.append(self._climb(obeying, np.append(lower[:-1], upper[-1]), upper))
        best = min(results, key=lambda result: result.score)
        logs = np.log(best.strengths)
        sides = (logs > upper - CLOSE) * 1 - (logs < lower + CLOSE) * 1
        return best._replace(evaluations=sum(result.evaluations for result in results), sides=sides)

    def _climb(self, logs: Array, lower: Array, upper: Array) -> Search:
        """The maximum near a start.

        Each step multiplies strengths by what makes the gradient zero while the traces stand (Wood and Fasiolo 2017):
        it needs no values of the score, which differ by rounding errors where an equation is strong.
        """
        places: list[Array] = []
        steps: list[Array] = []
        for count in range(1, STEPS + 1):
            score = self.score(logs)
            step = np.clip(logs + np.clip(score.step, -FARTHEST, FARTHEST), lower, upper) - logs
            settled = bool(np.sum(np.abs((score.due - score.paid) * step)) < SETTLED)
            if settled or not math.isfinite(score.value):
                break
            if steps and np.linalg.norm(step) > 2 * np.linalg.norm(steps[-1]):
                places, steps = [], []
            places, steps = [*places[-MEMORY:], logs], [*steps[-MEMORY:], step]
            # Anderson's acceleration: the steps so far tell where they would end.
            if len(steps) > 1:
                changes = np.diff(steps, axis=0).T
                share = np.linalg.lstsq(changes, step, rcond=1e-6)[0]
                step = step - (np.diff(places, axis=0).T + changes) @ share
            if count < STEPS:
                logs = np.clip(logs + np.clip(step, -FARTHEST, FARTHEST), lower, upper)
        return Search(np.exp(logs), float(score.value) / 2, count, settled, np.zeros(len(logs), np.int64))


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
        below, size = band[: len(band) - r, r, None], len(band) - r
        out[r:] += below * columns[:size]
        out[:size] += below * columns[r:]
    return np.asarray(out)
