"""The search for coefficients and constants together: method of multipliers, Gauss-Newton, Schur complement."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from xspline.pde.profile.axes import Array
from xspline.pde.profile.constraint import Constraints
from xspline.pde.profile.system import Order, Rows, add_squares, band_of
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
CLOSE = 0.01  # standard errors: of a full step, the second or a later one, that ends a search
SATISFIED = 1e-3  # λ|r|² over the residual sum of squares
ROUNDING = 1e-14  # of the power of the data: what a residual sum of squares loses
RIDGE = 1e-10  # of the mean diagonal of G, where data leave a direction undetermined
SMALLEST_STEP = 1e-3
WANDERING = 8  # steps in a row of less than full length, after which a search at full strength is given up


@dataclass(frozen=True, eq=False)
class Data:
    """Statistics of some variables.

    Parameters
    ----------
    order : Order
    sums : mapping of str to Sums
        Without batch axes, about a reference near the data.
    precision : mapping of str to float
        1 / σ² of an observation of weight 1, up to a common factor.
    """

    order: Order
    sums: Mapping[str, Sums]
    precision: Mapping[str, float]

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
        grams = [self.sums[name].gram.scaled(self.precision[name]) for name in self.order.variables]
        return band_of(grams, self.order)

    @cached_property
    def moment(self) -> Array:
        """h as a row."""
        frame = self.order.frame
        return self.order.flatten({n: s.full_moment(frame) * self.precision[n] for n, s in self.sums.items()})

    def gradient(self, row: Array) -> Array:
        """h − G z."""
        return self.moment - self.image(row)

    def image(self, row: Array) -> Array:
        """G z."""
        by_variable, frame = self.order.unflatten(row), self.order.frame
        return self.order.flatten(
            {n: s.gram.matvec(by_variable[n], frame) * self.precision[n] for n, s in self.sums.items()}
        )

    def rss(self, row: Array) -> float:
        """Weighted residual sum of squares of centred coefficients."""
        by_variable, frame = self.order.unflatten(row), self.order.frame
        return sum(float(s.rss(by_variable[n], frame)) * self.precision[n] for n, s in self.sums.items())

    def with_reference(self, row: Array) -> dict[str, Array]:
        """Coefficients [K..] of each variable, from centred ones."""
        frame = self.order.frame
        zero = self.order.unflatten(row)
        return {n: 2 * zero[n] - s.centred(zero[n], frame) for n, s in self.sums.items()}

    def centred(self, coefficients: Mapping[str, Array]) -> Array:
        """Inverse of `with_reference`."""
        frame = self.order.frame
        return self.order.flatten({n: s.centred(coefficients[n], frame) for n, s in self.sums.items()})


@dataclass(frozen=True, eq=False)
class State:
    """Unknowns of the search.

    Parameters
    ----------
    row : ndarray, [P]
        Centred coefficients.
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
    response : ndarray, [P, k]
        How coefficients answer to constants, −∂c/∂τ.
    determined : bool
        Whether the system was positive definite.
    """

    row: Array
    tau: Array
    wish: Array
    information: Array
    strengths: tuple[float, ...]
    residuals: tuple[Array, ...]
    factor: BandCholesky
    response: Array
    determined: bool


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
    """

    data: Data
    constraints: Constraints
    ridge: float = 0.0
    held: tuple[int, ...] = ()

    @cached_property
    def _rows(self) -> list[Rows]:
        return [Rows(constraint, self.data.order) for constraint in self.constraints.each]

    @property
    def freedom(self) -> int:
        """Directions that the equations leave to initial and boundary values, and the constants."""
        return self.constraints.size - self.constraints.count + len(self.constraints.parameters)

    @cached_property
    def free(self) -> float | None:
        """Residual sum of squares without the equations; None where the data do not determine all coefficients."""
        if self.data.count <= self.constraints.size:
            return None
        factor = BandCholesky(self.data.band())
        if not factor.determined:
            return None
        return max(self.data.rss(factor.solve(self.data.moment[:, None])[:, 0]), 0.0)

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
            entries = constraint.by_coefficient(values, state.tau)
            by_parameter = constraint.by_parameter(values)
            trace = sum(float(np.sum(x**2)) for x in entries.values())
            factor = strengths[e] if strengths else strength * total / max(trace, 1e-300)
            chosen.append(factor)
            pulled = constraint.residual_of(values, state.tau) + state.multipliers[e]
            residuals.append(pulled)
            right = rows.by_outer(np.concatenate([pulled[None], by_parameter]))
            for i, (first, slab) in enumerate(rows.walk(entries)):
                add_squares(band, first, slab, factor)
                product = factor * (slab.T @ right[i])
                here = slice(first, first + order.width)
                gradient[here] -= product[:, 0]
                coupling[here] += product[:, 1:]
            flat = by_parameter.reshape(count, pulled.size)
            information += factor * (flat @ flat.T)
            pull -= factor * (flat @ pulled.ravel())
        system = BandCholesky(band)
        solved = system.solve(np.column_stack([gradient, coupling]))
        answer, response = solved[:, 0], solved[:, 1:]
        schur = information - coupling.T @ response
        schur = (schur + schur.T) / 2
        score = pull - coupling.T @ answer
        wish, change = _solve(schur, score), np.zeros(count)
        free = np.setdiff1d(np.arange(count), self.held)
        change[free] = _solve(schur[np.ix_(free, free)], score[free])
        row = answer - response @ change
        return Step(
            row, change, wish, schur, tuple(chosen), tuple(residuals), system, response, system.determined
        )

    def run(self, state: State, strength: float, steps: int, *, hard: bool) -> Result:
        """Take steps until the constants stand and, of hard constraints, the equations hold."""
        data, strengths = self.data, None
        rss, step = data.rss(state.row), None
        floor, short = ROUNDING * data.power, 0
        for count in range(1, steps + 1):
            step = None  # its factor goes before the next is made
            step = self.step(state, strength, strengths)
            strengths = step.strengths
            if not (np.isfinite(step.row).all() and np.isfinite(step.tau).all()):
                strength *= WEAKER
                if strength < WEAKEST:
                    return Result(state, step, rss, False, count)
                strengths = tuple(x * WEAKER for x in strengths)
                state = replace(state, multipliers=tuple(d / WEAKER for d in state.multipliers))
                continue
            state, rss, length, residuals = self._along(state, step, rss)
            if hard:
                multipliers = tuple(d + r for d, r in zip(state.multipliers, residuals, strict=True))
                state = replace(state, multipliers=multipliers)
            short = short + 1 if length < 1 else 0
            if hard and short == WANDERING:
                return Result(state, step, rss, False, count)
            stderr = self.stderr(step, rss)
            small = np.abs(length * step.tau) < CLOSE * stderr + 1e-10 * np.abs(state.tau)
            squared = sum(x * float(np.sum(r**2)) for x, r in zip(strengths, residuals, strict=True))
            satisfied = not hard or squared < SATISFIED * max(rss, floor)
            if count > 1 and length == 1 and small.all() and satisfied:
                return Result(state, step, rss, True, count)
        if step is None:
            raise ValueError("a search takes at least one step")
        return Result(state, step, rss, False, steps)

    def hidden(self, result: Result, pairs: int) -> Array:
        """How much noise in the field adds to the information on each constant, over that information, [k].

        From pairs of fields about the constrained one, as far from it as their covariance says.
        """
        data, step = self.data, result.step
        # Where the factor is of: the last step was a full one.
        last = result.state
        state = replace(last, row=last.row - step.row, tau=last.tau - step.tau)
        left, rng = self.data.count - self.freedom, np.random.default_rng(0)
        sigma = math.sqrt(max(result.rss, 0.0) / left) if left > 0 else math.nan
        apart = sigma * step.factor.apply_inverse_sqrt(rng.standard_normal((data.order.size, pairs)))
        # What the equations do not allow is taken out of these, which A alone holds down by its strength.
        images = np.stack([data.image(y) for y in apart.T], axis=1) + self.ridge * apart
        apart = step.factor.solve(images)
        seen = [self._information(state, step, state.row + x) for y in apart.T for x in (y, -y)]
        own = np.diag(self._information(state, step, state.row))
        return np.diag(np.mean(seen, axis=0)) / own - 1.0

    def _information(self, state: State, step: Step, row: Array) -> Array:
        """The Schur complement with the terms of another field, in the directions of this one."""
        there, here = (self.data.with_reference(x) for x in (row, state.row))
        total, coupling = np.zeros((len(state.tau),) * 2), np.zeros((len(row), len(state.tau)))
        for constraint, factor in zip(self.constraints.each, step.strengths, strict=True):
            values = constraint.environment(here)
            terms = constraint.by_parameter(constraint.environment(there))
            for k, term in enumerate(terms):
                pulled = constraint.pulled_back(values, state.tau, factor * term)
                zero = {name: np.zeros(self.data.order.frame.sizes) for name in self.data.order.variables}
                coupling[:, k] += self.data.order.flatten(zero | pulled)
            flat = terms.reshape(len(terms), -1)
            total += factor * (flat @ flat.T)
        return total - coupling.T @ step.factor.solve(coupling)

    def stderr(self, step: Step, rss: float) -> Array:
        """Standard errors of τ from the profile information."""
        return np.sqrt(np.maximum(np.diag(self.covariance(step, rss)), 0.0))

    def covariance(self, step: Step, rss: float) -> Array:
        """σ² over the profile information; NaN where nothing is left to estimate σ from."""
        left = self.data.count - self.freedom
        variance = max(rss, ROUNDING * self.data.power) / left if left > 0 else math.nan
        return variance * _solve(step.information, np.eye(len(step.tau)))

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


def _solve(matrix: Array, right: Array) -> Array:
    """Solve a small symmetric system, scaled to a unit diagonal; NaN where it is not positive definite."""
    diagonal = np.diag(matrix)
    if not (np.isfinite(matrix).all() and (diagonal > 0).all()):
        return np.full(right.shape, np.nan)
    scale = np.sqrt(diagonal)
    scaled = matrix / np.outer(scale, scale)
    try:
        return np.linalg.solve(scaled, (right.T / scale).T) / (scale if right.ndim == 1 else scale[:, None])
    except np.linalg.LinAlgError:
        return np.full(right.shape, np.nan)
