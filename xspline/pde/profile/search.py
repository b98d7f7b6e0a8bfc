"""The search for coefficients and constants together: method of multipliers, Gauss-Newton, Schur complement."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from xspline.pde.profile.axes import Array
from xspline.pde.profile.constraint import Constraint, Constraints
from xspline.pde.profile.system import (
    UNTOLD,
    Order,
    Rows,
    band_of,
    directions,
    solve_information,
)
from xspline.solve.direct.cholesky import BandCholesky
from xspline.sums import Sums

STRENGTH = (
    1e6  # λ tr JᵀJ over tr G: of influence on speed alone; errors are 4 % too large at 1e4, of degree 7
)
WEAKER, WEAKEST = 1e-2, 1e2  # a factor of λ where rounding leaves no factorisation, and where that ends
CONTINUATION = (
    1e-2,
    1.0,
    1e2,
    1e4,
)  # strengths without multipliers, where the search does not converge otherwise
STEPS, STEPS_OF_CONTINUATION = 40, 5
CLOSE = 0.01  # standard errors, see `Search.close`
NEAR = 0.3  # standard errors: of a full step after which its factorisation serves further ones,
SHRINKING = 0.25  # while each is so much smaller than the one before
FURTHER = 8  # of these at most
SATISFIED = 1e-3  # λ|r|² over the residual sum of squares
ROUNDING = 1e-14  # of the power of the data: what a residual sum of squares loses
PART = 0.03  # of a direction: from which a constant belongs to it
RIDGE = 1e-10  # of the mean diagonal of G, where data leave a direction undetermined
SMALLEST_STEP = 1e-3
WANDERING = 8  # steps in a row of less than full length, after which a search at full strength is given up


@dataclass(frozen=True, eq=False)
class Data:
    """Statistics of some variables, each in units of its own: what data tell of its coefficients is 1 on average.

    Equations are weighed against data by traces, in which one variable would outweigh another of smaller numbers.

    Parameters
    ----------
    order : Order
    sums : mapping of str to Sums
        Without batch axes, about a reference near the data.
    precision : mapping of str to float
        1 / σ² of an observation of weight 1, up to a common factor.
    scale : mapping of str to float
        The unit of each variable's coefficients.
    """

    order: Order
    sums: Mapping[str, Sums]
    precision: Mapping[str, float]
    scale: Mapping[str, float]

    @staticmethod
    def of(order: Order, sums: Mapping[str, Sums], precision: Mapping[str, float]) -> Data:
        """Return statistics in the units in which the diagonal of G is 1 on average."""
        scale = {}
        for name, s in sums.items():
            pairs = s.gram.one_factor(order.frame).pairs.reshape((*order.frame.sizes, -1))
            mean = float(np.mean(pairs[..., 0]))
            scale[name] = 1 / math.sqrt(precision[name] * mean) if precision[name] * mean > 0 else 1.0
        return Data(order, sums, precision, scale)

    @property
    def count(self) -> int:
        """Observations."""
        return sum(int(s.count) for s in self.sums.values())

    @cached_property
    def power(self) -> float:
        """Of the data about their references."""
        return sum(float(s.power) * self.precision[name] for name, s in self.sums.items())

    def band(self) -> Array:
        """G as a band, anew each time: it is as large as the factor, and a thousandth of its work."""
        factors = {n: self.precision[n] * self.scale[n] ** 2 for n in self.order.variables}
        return band_of([self.sums[n].gram.scaled(factor) for n, factor in factors.items()], self.order)

    @cached_property
    def free(self) -> float | None:
        """Residual sum of squares without the equations; None where the data do not determine all coefficients.

        Nothing but the equations ties variables to each other, or functions of the field to those that do not meet.
        """
        frame, total = self.order.frame, 0.0
        if self.count <= self.order.size:
            return None
        for name, s in self.sums.items():
            orders = (Order.along(frame, (name,), axis) for axis in range(len(frame.sizes)))
            order = min(orders, key=lambda own: own.width)
            factor = BandCholesky(band_of([s.gram], order))
            if not factor.determined:
                return None
            row = factor.solve(order.flatten({name: s.full_moment(frame)})[:, None])[:, 0]
            total += float(s.rss(order.unflatten(row)[name], frame)) * self.precision[name]
        return max(total, 0.0)

    @cached_property
    def moment(self) -> Array:
        """h as a row."""
        frame = self.order.frame
        return self.order.flatten(
            {n: s.full_moment(frame) * (self.precision[n] * self.scale[n]) for n, s in self.sums.items()}
        )

    def gradient(self, row: Array) -> Array:
        """h − G z."""
        return self.moment - self.image(row)

    def image(self, row: Array) -> Array:
        """G z."""
        own, frame = self._own(row), self.order.frame
        return self.order.flatten(
            {
                n: s.gram.matvec(own[n], frame) * (self.precision[n] * self.scale[n])
                for n, s in self.sums.items()
            }
        )

    def rss(self, row: Array) -> float:
        """Weighted residual sum of squares of centred coefficients."""
        own, frame = self._own(row), self.order.frame
        return sum(float(s.rss(own[n], frame)) * self.precision[n] for n, s in self.sums.items())

    def with_reference(self, row: Array) -> dict[str, Array]:
        """Coefficients [K..] of each variable, from centred ones."""
        frame, own = self.order.frame, self._own(row)
        return {n: 2 * own[n] - s.centred(own[n], frame) for n, s in self.sums.items()}

    def centred(self, coefficients: Mapping[str, Array]) -> Array:
        """Inverse of `with_reference`."""
        frame = self.order.frame
        return self.order.flatten(
            {n: s.centred(coefficients[n], frame) / self.scale[n] for n, s in self.sums.items()}
        )

    def _own(self, row: Array) -> dict[str, Array]:
        """Centred coefficients in the units of the data."""
        return {n: self.scale[n] * c for n, c in self.order.unflatten(row).items()}


@dataclass(frozen=True, eq=False)
class State:
    """Unknowns of the search.

    Parameters
    ----------
    row : ndarray, [P]
        Centred coefficients, in the units of `Data`.
    tau : ndarray, [k]
        Constants, as the powers in which they enter.
    multipliers : tuple of ndarray, [I..]
        d, over λ.
    """

    row: Array
    tau: Array
    multipliers: tuple[Array, ...]


@dataclass(frozen=True, eq=False)
class Step:
    """What a Gauss-Newton step knows.

    Parameters
    ----------
    row, tau : ndarray
        The change of the unknowns.
    wish : ndarray, [k]
        The change of τ if none of them were held.
    information : ndarray, [k, k]
        Schur complement: the inverse covariance of τ over σ².
    strengths : tuple of float
        λ of each equation.
    residuals : tuple of ndarray, [I..]
        r + d of each equation, before the step.
    factor : BandCholesky
        Of G + λJᵀJ.
    coupling : ndarray, [P, k]
        Between coefficients and constants.
    response : ndarray, [P, k]
        How coefficients answer to constants, −∂c/∂τ.
    determined : bool
        Whether the system was positive definite.
    at : State
        Where the equations were linearised.
    """

    row: Array
    tau: Array
    wish: Array
    information: Array
    strengths: tuple[float, ...]
    residuals: tuple[Array, ...]
    factor: BandCholesky
    coupling: Array
    response: Array
    determined: bool
    at: State


@dataclass(frozen=True, eq=False)
class Result:
    """Where a search ended.

    Parameters
    ----------
    state : State
    step : Step
        The last one.
    rss : float
    converged : bool
    steps : int
        Factorisations.
    """

    state: State
    step: Step
    rss: float
    converged: bool
    steps: int


@dataclass(frozen=True, eq=False)
class Search:
    """Least squares of data under constraints.

    Parameters
    ----------
    data : Data
    constraints : Constraints
    ridge : float
        Added to the diagonal of G.
    held : tuple of int
        Constants that stay where the search starts.
    close : float
        Standard errors: of a full step, the second or a later one, that ends a search. Equations hold as closely.
    """

    data: Data
    constraints: Constraints
    ridge: float = 0.0
    held: tuple[int, ...] = ()
    close: float = CLOSE

    @cached_property
    def _rows(self) -> list[Rows]:
        return [Rows(constraint, self.data.order) for constraint in self.constraints.each]

    @property
    def freedom(self) -> int:
        """Directions that the equations leave to initial and boundary values, and the constants."""
        return self.constraints.size - self.constraints.count + len(self.constraints.parameters)

    def residuals(self, row: Array, tau: Array) -> list[Array]:
        """Residuals of each equation."""
        return self.constraints.residuals(self.data.with_reference(row), tau)

    def objective(
        self, rss: float, row: Array, residuals: Sequence[Array], strengths: tuple[float, ...]
    ) -> float:
        """Data, ridge and λ|r + d|², the latter included in `residuals`."""
        penalties = (x * float(np.sum(r**2)) for x, r in zip(strengths, residuals, strict=True))
        return rss + self.ridge * float(row @ row) + sum(penalties)

    def step(self, state: State, strength: float, strengths: tuple[float, ...] | None) -> Step:
        """One Gauss-Newton step in coefficients and constants: one factorisation, k + 1 right-hand sides."""
        data, order = self.data, self.data.order
        band, count = data.band(), len(state.tau)
        total = float(band[:, 0].sum())
        band[:, 0] += self.ridge
        gradient = data.gradient(state.row) - self.ridge * state.row
        coupling, information, pull = np.zeros((order.size, count)), np.zeros((count, count)), np.zeros(count)
        coefficients, chosen, residuals = data.with_reference(state.row), [], []
        for e, rows in enumerate(self._rows):
            constraint = rows.constraint
            values = constraint.environment(coefficients)
            entries = {n: x * data.scale[n] for n, x in constraint.by_coefficient(values, state.tau).items()}
            by_parameter = constraint.by_parameter(values)
            trace = sum(float(np.sum(x**2)) for x in entries.values())
            factor = strengths[e] if strengths else strength * total / max(trace, 1e-300)
            chosen.append(factor)
            pulled = constraint.residual_of(values, state.tau) + state.multipliers[e]
            residuals.append(pulled)
            rows.add_squares(band, entries, factor)
            gradient -= self._pulled(constraint, values, state.tau, factor * pulled)
            for k in (k for k, slope in enumerate(by_parameter) if slope.any()):
                coupling[:, k] += self._pulled(constraint, values, state.tau, factor * by_parameter[k])
            flat = by_parameter.reshape(count, pulled.size)
            information += factor * (flat @ flat.T)
            pull -= factor * (flat @ pulled.ravel())
        system = BandCholesky(band)
        solved = system.solve(np.column_stack([gradient, coupling]))
        answer, response = solved[:, 0], solved[:, 1:]
        schur = information - coupling.T @ response
        schur = (schur + schur.T) / 2
        wish, change = self._moves(schur, pull - coupling.T @ answer)
        row, residual = answer - response @ change, tuple(residuals)
        return Step(
            row,
            change,
            wish,
            schur,
            tuple(chosen),
            residual,
            system,
            coupling,
            response,
            system.determined,
            state,
        )

    def run(self, state: State, strength: float, steps: int, *, hard: bool, least: int = 2) -> Result:
        """Take steps until the constants stand and, of hard constraints, the equations hold.

        After `least` factorisations the last one serves for steps that are small anyway.
        """
        data, strengths = self.data, None
        rss, step, short = data.rss(state.row), None, 0
        for count in range(1, steps + 1):
            step = None  # so that two factors are never held at once
            step = self.step(state, strength, strengths)
            strengths = step.strengths
            finite = np.isfinite(step.row).all() and np.isfinite(step.tau).all()
            later, own, length, residuals = self._along(state, step, rss) if finite else (state, rss, 0.0, [])
            # A step that has to be shortened, of a factor at rounding, is rounding.
            if not finite or (length < 1 and not step.determined and strength * WEAKER >= WEAKEST):
                strength *= WEAKER
                if strength < WEAKEST:
                    return Result(state, step, rss, False, count)
                strengths = tuple(x * WEAKER for x in strengths)
                state = replace(state, multipliers=tuple(d / WEAKER for d in state.multipliers))
                continue
            state, rss = later, own
            if hard:
                state = _multiplied(state, residuals)
            short = short + 1 if length < 1 else 0
            if hard and short == WANDERING:
                return Result(state, step, rss, False, count)
            left = self._left(state, step, step, rss, residuals, hard=hard)
            if count >= least and length == 1 and left < 1:
                return Result(state, step, rss, True, count)
            near = np.abs(step.tau) <= NEAR * self.stderr(step, rss) + 1e-10 * np.abs(state.tau)
            if hard and count >= least and length == 1 and near.all():
                state, rss, done = self._further(state, step, rss, left)
                if done:
                    return Result(state, step, rss, True, count)
        if step is None:
            raise ValueError("a search takes at least one step")
        return Result(state, step, rss, False, steps)

    def _moves(self, schur: Array, score: Array) -> tuple[Array, Array]:
        """What all constants would move by, and what they do where some are held."""
        wish = solve_information(schur, score)
        if not self.held:
            return wish, wish
        change, free = np.zeros(len(score)), np.setdiff1d(np.arange(len(score)), self.held)
        change[free] = solve_information(schur[np.ix_(free, free)], score[free])
        return wish, change

    def hidden(self, result: Result, pairs: int) -> Array:
        """How much noise in the field adds to the information on each constant, over that information, [k].

        From pairs of fields about the constrained one, as far from it as their covariance says.
        """
        data, step = self.data, result.step
        left, rng = self.data.count - self.freedom, np.random.default_rng(0)
        sigma = math.sqrt(max(result.rss, 0.0) / left) if left > 0 else math.nan
        apart = sigma * step.factor.apply_inverse_sqrt(rng.standard_normal((data.order.size, pairs)))
        # What the equations do not allow is taken out of these, which A alone holds down by its strength.
        images = np.stack([data.image(y) for y in apart.T], axis=1) + self.ridge * apart
        apart = step.factor.solve(images)
        seen = [np.diag(self.information(step, x)) for y in apart.T for x in (y, -y)]
        own = np.diag(self.information(step, np.zeros(data.order.size)))
        return np.asarray(np.mean(seen, axis=0) / own - 1.0)

    def _left(
        self, state: State, step: Step, last: Step, rss: float, residuals: list[Array], *, hard: bool
    ) -> float:
        """What is left to do after a step, below 1 where a search may end; `last` is the last factorised one."""
        scale = CLOSE * self.stderr(last, rss) + 1e-10 * np.abs(state.tau)
        moved = float(np.max(np.abs(step.tau) / scale, initial=0.0))
        squared = sum(x * float(np.sum(r**2)) for x, r in zip(step.strengths, residuals, strict=True))
        missed = math.sqrt(squared / (SATISFIED * max(rss, ROUNDING * self.data.power))) if hard else 0.0
        return max(moved, missed) * CLOSE / self.close

    def _further(self, state: State, step: Step, rss: float, left: float) -> tuple[State, float, bool]:
        """Take steps with a factorisation that is there while they shrink: a solve each, and as exact an end."""
        for _ in range(FURTHER):
            further = self._again(state, step)
            later, own, length, residuals = self._along(state, further, rss)
            now = self._left(later, further, step, own, residuals, hard=True)
            if length < 1 or not now < max(SHRINKING * left, 1.0):
                break
            state, rss, left = _multiplied(later, residuals), own, now
            if left < 1:
                return state, rss, True
        return state, rss, False

    def information(self, step: Step, errors: Array, *, alone: bool = False) -> Array:
        """What the terms of the field and errors of it tell of the constants, where a step was linearised.

        Or the terms of the errors `alone`.
        """
        order, tau, count = self.data.order, step.at.tau, len(step.tau)
        here, there = (self.data.with_reference(row) for row in (step.at.row, step.at.row + errors))
        told, coupling = np.zeros((count, count)), np.zeros((order.size, count))
        for constraint, strength in zip(self.constraints.each, step.strengths, strict=True):
            values = constraint.environment(here)
            terms = constraint.by_parameter(constraint.environment(there))
            terms = terms - constraint.by_parameter(values) if alone else terms
            flat = terms.reshape(count, -1)
            told += strength * (flat @ flat.T)
            for k in range(count):
                coupling[:, k] += self._pulled(constraint, values, tau, strength * terms[k])
        return told - coupling.T @ step.factor.solve(coupling)

    def _pulled(self, constraint: Constraint, values: Mapping[str, Any], tau: Array, rows: Array) -> Array:
        """Rows of numbers [I..] times ∂r/∂c, as a row."""
        order, scale = self.data.order, self.data.scale
        pulled = constraint.pulled_back(values, tau, rows)
        none = {n: np.zeros(order.frame.sizes) for n in order.variables}
        return order.flatten(none | {n: scale[n] * x for n, x in pulled.items()})

    def _again(self, state: State, step: Step) -> Step:
        """Return a step with the matrices of one before, from the residuals and slopes of now."""
        data, coefficients = self.data, self.data.with_reference(state.row)
        gradient = data.gradient(state.row) - self.ridge * state.row
        pull, residuals = np.zeros(len(state.tau)), []
        parts = zip(self.constraints.each, step.strengths, state.multipliers, strict=True)
        for constraint, strength, multiplier in parts:
            values = constraint.environment(coefficients)
            residuals.append(constraint.residual_of(values, state.tau) + multiplier)
            rows = strength * residuals[-1]
            gradient -= self._pulled(constraint, values, state.tau, rows)
            pull -= constraint.by_parameter(values).reshape(len(pull), rows.size) @ rows.ravel()
        answer = step.factor.solve(gradient[:, None])[:, 0]
        wish, change = self._moves(step.information, pull - step.coupling.T @ answer)
        row = answer - step.response @ change
        return replace(step, row=row, tau=change, wish=wish, residuals=tuple(residuals))

    def stderr(self, step: Step, rss: float) -> Array:
        """Standard errors of τ from the profile information."""
        return np.sqrt(np.maximum(np.diag(self.covariance(step, rss)), 0.0))

    def covariance(self, step: Step, rss: float) -> Array:
        """σ² over the profile information; NaN where nothing is left to estimate σ from.

        Infinite for constants that nothing tells apart.
        """
        left = self.data.count - self.freedom
        variance = max(rss, ROUNDING * self.data.power) / left if left > 0 else math.nan
        covariance = variance * solve_information(step.information, np.eye(len(step.tau)))
        if np.isfinite(covariance).all():
            values, vectors, _ = directions(step.information)
            untold = (np.abs(vectors[:, values <= UNTOLD]) > PART).any(axis=1)
            np.fill_diagonal(covariance, np.where(untold, np.inf, np.diag(covariance)))
        return covariance

    def _along(self, state: State, step: Step, rss: float) -> tuple[State, float, float, list[Array]]:
        """Halve the step until the objective falls: new state, its rss, length, residuals."""
        data, image = self.data, self.data.image(step.row)
        slope, curve = float(step.row @ data.gradient(state.row)), float(step.row @ image)
        before = self.objective(rss, state.row, step.residuals, step.strengths)
        length = 1.0
        while True:
            row, tau = state.row + length * step.row, state.tau + length * step.tau
            residuals = self.residuals(row, tau)
            # Along a line the sum of squares is a parabola.
            later = rss - 2 * length * slope + length**2 * curve
            pulled = [r + d for r, d in zip(residuals, state.multipliers, strict=True)]
            after = self.objective(later, row, pulled, step.strengths)
            if after <= before * (1 + 1e-12) + ROUNDING * data.power or length < SMALLEST_STEP:
                break
            length /= 2
        return replace(state, row=row, tau=tau), max(data.rss(row), 0.0), length, residuals


def _multiplied(state: State, residuals: list[Array]) -> State:
    """Return the state with its multipliers brought up to date."""
    both = zip(state.multipliers, residuals, strict=True)
    return replace(state, multipliers=tuple(d + r for d, r in both))
