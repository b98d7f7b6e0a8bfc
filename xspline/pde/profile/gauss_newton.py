"""Least squares under equations with constants: method of multipliers, Gauss-Newton, Schur complement."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from xspline.pde.profile.axes import Array
from xspline.pde.profile.constraint import Constraint, Constraints
from xspline.pde.profile.normal_equations import Jacobian, belonging, directions, solve_information
from xspline.pde.profile.scaled_sums import ScaledSums
from xspline.pde.text.low_terms import LowTerm
from xspline.solve.direct.cholesky import TINY, BandCholesky
from xspline.solve.smoothing.fit import ROUNDING
from xspline.solve.smoothing.newton import STEPS
from xspline.solve.smoothing.resolution import SEEN

# λ tr JᵀJ over tr G, and what takes its place where rounding leaves no factorisation. Multipliers make the equations
# hold at any strength; at 1e4 errors of constants are 4 % too large with splines of degree 7.
STRENGTHS = (1e6, 1e4, 1e2)


@dataclass(frozen=True, eq=False)
class Unknowns:
    """What a search looks for.

    `row`, [P], has centred coefficients in the units of `ScaledSums`, `tau`, [k], the constants as the powers in which
    they enter, and `multipliers`, [I..], the multipliers d of each equation, over λ.
    """

    row: Array
    tau: Array
    multipliers: tuple[Array, ...]


class LinearisedEquation(NamedTuple):
    """One equation at some unknowns: its derivatives by values of the field at the nodes, r + d, and ∂r/∂τ."""

    constraint: Constraint
    by_value: Mapping[str, Any]
    pulled: Array
    by_parameter: Array


@dataclass(frozen=True, eq=False)
class Linearisation:
    """The normal equations of a search, where its equations were linearised."""

    at: Unknowns  # the unknowns there
    parts: Sequence[LinearisedEquation]  # the equations there
    strengths: tuple[float, ...]  # λ of each equation
    factor: BandCholesky  # of G + λJᵀJ
    coupling: Array  # [P, k], between coefficients and constants
    response: Array  # [P, k], how coefficients answer to constants, −∂c/∂τ
    information: Array  # [k, k], Schur complement: the inverse covariance of τ times σ²


class GaussNewtonStep(NamedTuple):
    """A step of Gauss and Newton.

    `row` and `tau` are the change of the unknowns, `wish`, [k], is the change of τ if no constant were held, and
    `residuals`, [I..], are r + d of each equation before the step.
    """

    row: Array
    tau: Array
    wish: Array
    residuals: tuple[Array, ...]


@dataclass(frozen=True, eq=False)
class SearchResult:
    """Where a search ended.

    `linear` are the normal equations that were factorised last, `wish` is the last step of all constants, and `steps`
    counts factorisations.
    """

    state: Unknowns
    linear: Linearisation
    wish: Array
    rss: float
    converged: bool
    steps: int


class Scores(NamedTuple):
    """What a step says of terms that the equations lack, each by itself beside the constants: all are [terms].

    `constant` is that which a term would have, and `information` its inverse variance times σ², of which the constants
    of the equations leave the part `share` to it. `shift`, [k, terms], is how the other constants would move with it.
    """

    constant: Array
    information: Array
    share: Array
    shift: Array


@dataclass(frozen=True, eq=False)
class ConstrainedLeastSquares:
    """Least squares of data under equations, and the search for its minimum.

    `ridge` is added to the diagonal of G, and the constants in `held` stay where the search starts.
    """

    data: ScaledSums
    constraints: Constraints
    ridge: float = 0.0
    held: tuple[int, ...] = ()

    @cached_property
    def _jacobians(self) -> list[Jacobian]:
        return [Jacobian(constraint, self.data.order) for constraint in self.constraints.each]

    @property
    def freedom(self) -> int:
        """Directions that the equations leave to initial and boundary values, and the constants."""
        return self.constraints.size - self.constraints.count + len(self.constraints.parameters)

    def start(self, coefficients: Mapping[str, Array], tau: Array) -> Unknowns:
        """Return unknowns from coefficients of a fit and constants, without multipliers."""
        multipliers = tuple(np.zeros(constraint.shape) for constraint in self.constraints.each)
        return Unknowns(self.data.centred(coefficients), tau, multipliers)

    # --- one step

    def _parts(self, state: Unknowns) -> list[LinearisedEquation]:
        coefficients = self.data.with_reference(state.row)
        parts = []
        for constraint, multiplier in zip(self.constraints.each, state.multipliers, strict=True):
            values = constraint.environment(coefficients)
            pulled = constraint.residual_of(values, state.tau) + multiplier
            by_value = constraint.by_value(values, state.tau)
            parts.append(LinearisedEquation(constraint, by_value, pulled, constraint.by_parameter(values)))
        return parts

    def _slopes(
        self, parts: Sequence[LinearisedEquation], strengths: Sequence[float], state: Unknowns
    ) -> tuple[Array, Array]:
        """Return minus half the slope of the objective, by coefficients and by constants."""
        by_row = self.data.gradient(state.row) - self.ridge * state.row
        by_tau = np.zeros(len(state.tau))
        for part, strength in zip(parts, strengths, strict=True):
            rows = strength * part.pulled
            by_row -= self._pulled_back(part, rows)
            by_tau -= part.by_parameter.reshape(len(by_tau), rows.size) @ rows.ravel()
        return by_row, by_tau

    def linearised(self, state: Unknowns, strengths: float | tuple[float, ...]) -> Linearisation:
        """Return the normal equations at some unknowns; it takes one factorisation and k right-hand sides.

        `strengths` are λ of each equation, or one number, λ tr JᵀJ over tr G of all of them.
        """
        data = self.data
        count = len(state.tau)
        band = data.band()
        total = float(band[:, 0].sum())
        band[:, 0] += self.ridge
        coupling = np.zeros((data.order.size, count))
        information = np.zeros((count, count))
        chosen = list[float]()
        parts = self._parts(state)
        for e, (jacobian, part) in enumerate(zip(self._jacobians, parts, strict=True)):
            entries = {n: x * data.scale[n] for n, x in part.constraint.by_coefficient(part.by_value).items()}
            trace = sum(float(np.sum(x**2)) for x in entries.values())
            factor = strengths[e] if isinstance(strengths, tuple) else strengths * total / max(trace, 1e-300)
            chosen.append(factor)
            jacobian.add_squares(band, entries, factor)
            told, coupled = self._by_constants(part, part.by_parameter, factor)
            information += told
            coupling += coupled
        system = BandCholesky(band)
        response = system.solve(coupling)
        schur = information - coupling.T @ response
        return Linearisation(state, parts, tuple(chosen), system, coupling, response, (schur + schur.T) / 2)

    def step(self, state: Unknowns, linear: Linearisation) -> GaussNewtonStep:
        """Return a step from the residuals and slopes at some unknowns; it takes one right-hand side."""
        parts = linear.parts if state is linear.at else self._parts(state)
        by_row, by_tau = self._slopes(parts, linear.strengths, state)
        answer = linear.factor.solve(by_row[:, None])[:, 0]
        score = by_tau - linear.coupling.T @ answer
        wish = solve_information(linear.information, score)
        change = wish
        if self.held:
            change = np.zeros(len(score))
            free = np.setdiff1d(np.arange(len(score)), self.held)
            change[free] = solve_information(linear.information[np.ix_(free, free)], score[free])
        row = answer - linear.response @ change
        return GaussNewtonStep(row, change, wish, tuple(part.pulled for part in parts))

    def _by_constants(self, part: LinearisedEquation, terms: Array, strength: float) -> tuple[Array, Array]:
        """Return λ TᵀT and λ JᵀT, with T the derivatives of the residuals by the constants, [k, I..]."""
        flat = terms.reshape(len(terms), part.pulled.size)
        coupling = np.zeros((self.data.order.size, len(terms)))
        for k in (k for k, slope in enumerate(terms) if slope.any()):
            coupling[:, k] = self._pulled_back(part, strength * terms[k])
        return strength * (flat @ flat.T), coupling

    def _pulled_back(self, part: LinearisedEquation, rows: Array) -> Array:
        """Return rows of numbers [I..] times ∂r/∂c, as a row."""
        order = self.data.order
        pulled = part.constraint.pulled_back(part.by_value, rows)
        none = {n: np.zeros(order.frame.sizes) for n in order.variables}
        return order.flatten(none | {n: self.data.scale[n] * x for n, x in pulled.items()})

    # --- the search

    def run(self, state: Unknowns, steps: int = STEPS, *, errors: bool = True) -> SearchResult:
        """Search from some unknowns, with weaker equations where rounding leaves no factorisation.

        It takes at most `steps` factorisations. Where `errors` are of no interest, one may serve for all steps.
        """
        taken = 0
        for strength in STRENGTHS:
            result = self._run(state, steps - taken, strength, errors=errors)
            taken += result.steps
            if result.converged or result.linear.factor.determined or taken == steps:
                break
            state = replace(result.state, multipliers=state.multipliers)
        return replace(result, steps=taken)

    def _run(self, state: Unknowns, steps: int, strength: float, *, errors: bool) -> SearchResult:
        """Search by λ = `strength` tr G / tr JᵀJ, until the end or until rounding shortens a step.

        A factorisation serves as long as what is left of the search halves. For errors there have to be two of them,
        the last one within errors of the end, as they come from it.
        """
        least = 2 if errors else 1
        rss = self.data.rss(state.row)
        linear: Any = None
        strengths: float | tuple[float, ...] = strength
        for count in range(1, steps + 1):
            linear = None  # so that two factors are never held at once
            linear = self.linearised(state, strengths)
            strengths = linear.strengths
            left = math.inf
            while True:
                step = self.step(state, linear)
                if not (np.isfinite(step.row).all() and np.isfinite(step.tau).all()):
                    return SearchResult(state, linear, step.wish, rss, False, count)
                later, own, length, residuals = self._along(state, step, linear.strengths, rss)
                now, near = self._remaining(later.tau, step, linear, own, residuals)
                if left < math.inf and (length < 1 or not now < max(left / 2, 1.0)):
                    break
                # Of a factor at rounding, a step that has to be shortened is rounding.
                if length < 1 and not linear.factor.determined and strength > STRENGTHS[-1]:
                    return SearchResult(state, linear, step.wish, rss, False, count)
                both = zip(later.multipliers, residuals, strict=True)
                state = replace(later, multipliers=tuple(d + r for d, r in both))
                rss = own
                left = now
                if left < 1 and length == 1 and count >= least:
                    return SearchResult(state, linear, step.wish, rss, True, count)
                if count < least or length < 1 or (errors and not near):
                    break
        return SearchResult(state, linear, step.wish, rss, False, steps)

    def _remaining(
        self, tau: Array, step: GaussNewtonStep, linear: Linearisation, rss: float, residuals: list[Array]
    ) -> tuple[float, bool]:
        """Return how far a search is from its end after a step, below 1 it may end; and whether within errors.

        At the end nobody would see the next step of the constants beside their errors. The equations hold as closely:
        √λ|r| over the root of the residual sum of squares.
        """
        errors = self.stderr(linear, rss)
        rounding = 1e-10 * np.abs(tau)
        moved = float(np.max(np.abs(step.tau) / (SEEN * errors + rounding), initial=0.0))
        squared = sum(x * float(np.sum(r**2)) for x, r in zip(linear.strengths, residuals, strict=True))
        missed = math.sqrt(squared / max(rss, ROUNDING * self.data.power)) / SEEN
        return max(moved, missed), bool((np.abs(step.tau) <= errors + rounding).all())

    def _along(
        self, state: Unknowns, step: GaussNewtonStep, strengths: tuple[float, ...], rss: float
    ) -> tuple[Unknowns, float, float, list[Array]]:
        """Halve a step until the objective falls, ten times at most: new unknowns, their rss, length, residuals."""
        data = self.data
        slope = float(step.row @ data.gradient(state.row))
        curve = float(step.row @ data.image(step.row))
        before = self._objective(rss, state.row, step.residuals, strengths)
        for length in 0.5 ** np.arange(11):
            row = state.row + length * step.row
            tau = state.tau + length * step.tau
            here = data.with_reference(row)
            residuals = [constraint.residual(here, tau) for constraint in self.constraints.each]
            # Along a line the sum of squares is a parabola.
            later = rss - 2 * length * slope + length**2 * curve
            pulled = [r + d for r, d in zip(residuals, state.multipliers, strict=True)]
            after = self._objective(later, row, pulled, strengths)
            if after <= before * (1 + 1e-12) + ROUNDING * data.power:
                break
        return replace(state, row=row, tau=tau), max(data.rss(row), 0.0), float(length), residuals

    def _objective(
        self, rss: float, row: Array, residuals: Sequence[Array], strengths: Sequence[float]
    ) -> float:
        """Return the sum of squares of data, ridge and λ|r + d|², with r + d as `residuals`."""
        penalties = (x * float(np.sum(r**2)) for x, r in zip(strengths, residuals, strict=True))
        return rss + self.ridge * float(row @ row) + sum(penalties)

    # --- errors

    def covariance(self, linear: Linearisation, rss: float) -> Array:
        """Return σ² over the profile information.

        It is NaN where no observation is left to estimate σ from, and infinite for constants that data do not tell
        apart.
        """
        left = self.data.count - self.freedom
        variance = max(rss, ROUNDING * self.data.power) / left if left > 0 else math.nan
        covariance = variance * solve_information(linear.information, np.eye(len(linear.at.tau)))
        if np.isfinite(covariance).all():
            values, vectors, _ = directions(linear.information)
            untold = belonging(vectors[:, values <= TINY]).any(axis=1)
            np.fill_diagonal(covariance, np.where(untold, np.inf, np.diag(covariance)))
        return covariance

    def stderr(self, linear: Linearisation, rss: float) -> Array:
        """Return standard errors of τ from the profile information."""
        return np.sqrt(np.maximum(np.diag(self.covariance(linear, rss)), 0.0))

    def sigma(self, rss: float) -> float:
        """Return the standard deviation of an observation of weight 1; NaN where no observation is left for it."""
        left = self.data.count - self.freedom
        return math.sqrt(max(rss, 0.0) / left) if left > 0 else math.nan

    def draws(self, result: SearchResult, count: int) -> Array:
        """Return errors of the field that are as large as its covariance says, [P, draws]."""
        draws = np.random.default_rng(0).standard_normal((self.data.order.size, count))
        return np.asarray(self.sigma(result.rss) * result.linear.factor.apply_inverse_sqrt(draws))

    def information(self, linear: Linearisation, errors: Array, *, alone: bool = False) -> Array:
        """Return what the terms of the field with some errors tell of the constants, where a step was linearised.

        With `alone` it is what the change of the terms by these errors tells.
        """
        tau = linear.at.tau
        there = self.data.with_reference(linear.at.row + errors)
        told = np.zeros((len(tau), len(tau)))
        coupling = np.zeros((self.data.order.size, len(tau)))
        for part, strength in zip(linear.parts, linear.strengths, strict=True):
            terms = part.constraint.by_parameter(part.constraint.environment(there))
            terms = terms - part.by_parameter if alone else terms
            own, coupled = self._by_constants(part, terms, strength)
            told += own
            coupling += coupled
        return told - coupling.T @ linear.factor.solve(coupling)

    def scores(self, linear: Linearisation, terms: Sequence[Sequence[LowTerm]]) -> Scores:
        """Return what the end of a search says of terms that each equation lacks (Rao 1948), from its factorisation.

        A term is a constant more, which is zero so far: its score is the slope of the objective, less what coefficients
        and constants absorb of it.
        """
        parts = linear.parts
        coefficients = self.data.with_reference(linear.at.row)
        by_row, by_tau = self._slopes(parts, linear.strengths, linear.at)
        slopes = list[float]()
        told = list[float]()
        with_tau = list[Array]()
        coupling = list[Array]()
        for part, strength, own in zip(parts, linear.strengths, terms, strict=True):
            for term in own:
                factors = (part.constraint.derivative(coefficients, value) for value in term.factors)
                row = -part.constraint.project(math.prod(factors, start=np.ones(())))
                slopes.append(-strength * float(np.sum(row * part.pulled)))
                told.append(strength * float(np.sum(row**2)))
                with_tau.append(strength * np.tensordot(part.by_parameter, row, row.ndim))
                coupling.append(self._pulled_back(part, strength * row))
        both = np.stack(coupling, axis=1)
        answer = linear.factor.solve(np.column_stack([by_row, both]))
        by_tau -= linear.coupling.T @ answer[:, 0]
        shared = np.stack(with_tau, axis=1) - linear.coupling.T @ answer[:, 1:]
        moves = solve_information(linear.information, np.column_stack([by_tau, shared]))
        alone = np.array(told) - np.sum(both * answer[:, 1:], axis=0)
        information = alone - np.sum(shared * moves[:, 1:], axis=0)
        score = np.array(slopes) - both.T @ answer[:, 0] - shared.T @ moves[:, 0]
        with np.errstate(divide="ignore", invalid="ignore"):
            constant = score / information
            return Scores(constant, information, information / alone, -moves[:, 1:] * constant)
