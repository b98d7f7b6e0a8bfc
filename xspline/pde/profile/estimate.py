"""Constants of equations from statistics: start, search, and what tells whether their errors can be believed."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.special import fdtrc, stdtrit

from xspline.pde.equation import Equation, Power
from xspline.pde.pointwise import LEVEL
from xspline.pde.profile.axes import Array, Coordinate
from xspline.pde.profile.constraint import Constraints
from xspline.pde.profile.information import reaches, unsettled
from xspline.pde.profile.search import (
    CONTINUATION,
    NEAR,
    RIDGE,
    ROUNDING,
    STEPS,
    STEPS_OF_CONTINUATION,
    STRENGTH,
    Data,
    Result,
    Search,
    State,
)
from xspline.pde.profile.system import Order, solve_information
from xspline.pde.profile.weak import WeakEstimate, weak_estimate
from xspline.solve import Penalty, Resources, SingularSystemError, TooLargeError, choose, solve
from xspline.solve.multigrid.spaces import AxisLevel, coarser, prolongation
from xspline.spaces import BSpline, Space
from xspline.sums import Sums

IMPROBABLE = 1e-3  # probability of an F ratio from which an equation is not adequate
NEGLIGIBLE = 1e-5  # of the standard deviation of the data: a misfit that only data without noise show,
SLIGHT = 10.0  # with F ratios up to this, which leave constants within what the knots leave of an error
UNRESOLVED = 0.3  # of a constant: a change by halving the knots that no rate of convergence explains,
SIGNIFICANT = 5.0  # where it is also so many standard errors
GAIN = 2.0  # times the misfit, with half the knots: then knots are what lacks
DEAR = 1e10  # operations of a factorisation, from which a search starts in a nested space,
RESOLVING = 1.2  # unless that leaves so many times the residual sum of squares of the fit
RATE_OF_WEAK = 3.0  # by how much half the knots make a weak form worse at least: as of second order
BANDS = 2.5  # bands that a search holds: 1.1 to 2.2 by `python -m benchmarks constants --tables cost`
LARGEST_BAND = 1.5e9  # bytes, beyond which a step takes minutes


@dataclass(frozen=True, eq=False)
class Problem:
    """All that constants are estimated from.

    Parameters
    ----------
    space : Space
    sums : mapping of str to Sums
        Of each variable that the equations hold, without batch axes, centred.
    coefficients : mapping of str to ndarray, [K..]
        Of a fit: where the search starts.
    sigma : mapping of str to float
        Standard deviation of an observation of weight 1 in that fit.
    penalties : mapping of str to Penalty
    parts : sequence of mappings of str to Sums
        The sums of each holder, about the same references; empty where there is one only.
    apply_inverse : callable
        (G + Λ)⁻¹ of a variable times coefficients [K..].
    equations : tuple of Equation
    known_at : callable
        From a space and its coordinates to what is known at their nodes, by name.
    ridge : float, optional
        Of the search; None: found out, by a factorisation.
    """

    space: Space
    sums: Mapping[str, Sums]
    coefficients: Mapping[str, Array]
    sigma: Mapping[str, float]
    penalties: Mapping[str, Penalty]
    parts: Sequence[Mapping[str, Sums]]
    apply_inverse: Callable[[str, Array], Array]
    equations: tuple[Equation, ...]
    known_at: Callable[[Space, Sequence[Coordinate]], Mapping[str, Any]]
    ridge: float | None = None

    @cached_property
    def constraints(self) -> Constraints:
        """The equations on this space."""
        return Constraints.of(self.space, self.equations, self.known_at)

    @property
    def parameters(self) -> tuple[Power, ...]:
        """How each constant enters."""
        return self.constraints.parameters

    def weak(self, combinations: int = 0) -> WeakEstimate:
        """Return the weak form on the fit."""

        def apply_covariance(name: str, image: Array) -> Array:
            return self.sigma[name] ** 2 * self.apply_inverse(name, image)

        return weak_estimate(self.constraints, self.coefficients, apply_covariance, combinations)

    def weak_resolution(self, weak: WeakEstimate) -> Array:
        """Return what the knots leave of an error of the weak form, from fits with every second one."""
        total = np.zeros(len(weak.value))
        for name in self.space.names:
            smaller = self.coarsened([name], self.coefficients)
            if smaller is None:
                continue
            fits = {
                v: solve(s, smaller.space, self.penalties[v]).coefficients for v, s in smaller.sums.items()
            }
            other = weak_estimate(smaller.constraints, fits, lambda _, image: 0.0 * image)
            total += np.abs(other.value - weak.value) / RATE_OF_WEAK
        return total

    @cached_property
    def search(self) -> Search:
        """The search, with a vanishing ridge where data alone do not determine the field.

        Raises
        ------
        TooLargeError
            A band is larger than what a machine holds or a step of some minutes takes.
        """
        order = order_of(self.constraints, ", or method='weak', which needs no band")
        several = len(self.sums) > 1
        precision = {n: 1 / self.sigma[n] ** 2 if several and self.sigma[n] > 0 else 1.0 for n in self.sums}
        data, ridge = Data.of(order, self.sums, precision), self.ridge
        if ridge is None:
            ridge = 0.0 if data.free is not None else RIDGE
        return Search(data, self.constraints, ridge)

    def coarsened(self, names: Collection[str], coefficients: Mapping[str, Array]) -> Problem | None:
        """Return the same with every second knot of some coordinates, to start near given coefficients."""
        projected = {v: coarser(s, self.space, names) for v, s in self.sums.items()}
        if any(both is None for both in projected.values()):
            return None
        by_variable = {v: both for v, both in projected.items() if both is not None}
        space = next(iter(by_variable.values()))[1]
        refining = _refining(space, self.space).items()
        nearby = {axis: Coordinate.of(self.space, axis).nearest(matrix) for axis, matrix in refining}
        nearest = {v: _along_axes(nearby, c) for v, c in coefficients.items()}
        sums = {v: both[0] for v, both in by_variable.items()}
        return replace(self, space=space, sums=sums, coefficients=nearest)


def _refining(coarse: Space, fine: Space) -> dict[int, Array]:
    """Return the matrices by which coefficients of a space become those of a finer one, by coordinate."""
    levels = [
        tuple(AxisLevel.of(f) for f in both) for both in zip(fine.features, coarse.features, strict=True)
    ]
    return {
        axis: prolongation(*both).toarray()
        for axis, both in enumerate(levels)
        if both[0].size != both[1].size
    }


def _refined(coefficients: Mapping[str, Array], coarse: Space, fine: Space) -> dict[str, Array]:
    """Return coefficients in a finer space."""
    matrices = _refining(coarse, fine)
    return {v: _along_axes(matrices, c) for v, c in coefficients.items()}


def _along_axes(matrices: Mapping[int, Array], array: Array) -> Array:
    for axis, matrix in matrices.items():
        array = np.moveaxis(np.tensordot(matrix, array, axes=(1, axis)), 0, axis)
    return array


@dataclass(frozen=True, eq=False)
class Profile:
    """Constants, as the powers in which they enter, and what tells whether their errors can be believed.

    Parameters
    ----------
    value, resolution : ndarray, [k]
        Estimates, and what the knots leave of an error.
    covariance : ndarray, [k, k]
        NaN where errors are withheld.
    lower, upper : ndarray, [k]
        Ends of the 95 % intervals.
    sigma : float
        Standard deviation of an observation of weight 1 about the constrained field.
    adequacy, probability : float
        F ratio of the constrained fit against the free one, and how probable a larger one is; NaN where data do not
        determine the free one.
    converged : bool
    by_holders : ndarray, [k, k]
        Covariance from the scores of holders, for errors that are correlated within one; NaN where it is not known.
    weak : WeakEstimate
    steps, freedom : int
        Factorisations; directions that initial and boundary values and the constants take.
    result : Result
    unresolved : ndarray, [P, d]
        What the knots of each coordinate leave of an error of the field's coefficients.
    remarks : tuple of str
        Sentences without a full stop.
    """

    value: Array
    covariance: Array
    lower: Array
    upper: Array
    resolution: Array
    sigma: float
    adequacy: float
    probability: float
    converged: bool
    by_holders: Array
    weak: WeakEstimate
    steps: int
    freedom: int
    result: Result
    unresolved: Array
    remarks: tuple[str, ...]


def profile(problem: Problem) -> Profile:
    """Return the constants for which a field that obeys the equations exactly is nearest to the data.

    Raises
    ------
    TooLargeError
        The normal equations do not fit in memory.
    """
    weak, search = problem.weak(), problem.search
    nested = _nested(problem, weak.value)
    near = Nested(problem.space, problem.coefficients, weak.value, math.nan) if nested is None else nested
    result = found_from(search, _refined(near.coefficients, near.space, problem.space), near.tau)
    if search.data.free is None:
        result = _from_likely(problem, search, result)
    change, resolution, coarse_rss, unresolved = _halved(problem, search, result, nested)
    adequacy, probability = adequacy_of(search, result.rss)
    covariance = search.covariance(result.step, result.rss)
    vague = [*unsettled(search, result)]
    doubts = [
        *vague,
        *inadequate(search, result.rss, adequacy, probability, coarse_rss),
        *([] if vague else _unresolved(problem, search, result, change, np.sqrt(np.diag(covariance)))),
    ]
    remarks = [] if doubts else _coarse(problem, resolution, np.sqrt(np.diag(covariance)))
    remarks += [] if doubts else _not_halved(problem.space)
    if doubts:
        covariance = np.full(covariance.shape, np.nan)
        remarks = [f"errors are withheld: {doubt}" for doubt in doubts]
    left = search.data.count - search.freedom
    below, above, hidden = reaches(search, result, covariance)
    remarks += hidden
    factor = float(stdtrit(max(left, 1), (1 + LEVEL) / 2))
    errors, tau = np.sqrt(np.diag(covariance)), result.state.tau
    ratio = (below + above) / (2 * factor)  # of a half interval over what is read off at the estimate
    covariance = covariance * np.outer(ratio, ratio)
    return Profile(
        tau,
        covariance + np.diag(resolution**2),
        tau - np.hypot(below * errors, factor * resolution),
        tau + np.hypot(above * errors, factor * resolution),
        resolution,
        math.sqrt(max(result.rss, 0.0) / left) if left > 0 else math.nan,
        adequacy,
        probability,
        result.converged,
        _by_holders(problem, result)
        + np.diag(resolution**2)
        + 0 * covariance,  # NaN where errors are withheld
        weak,
        result.steps,
        search.freedom,
        result,
        unresolved,
        tuple(remarks),
    )


class Nested(NamedTuple):
    """What is found with every second knot of all coordinates."""

    space: Space
    coefficients: Mapping[str, Array]
    tau: Array
    rss: float


def _nested(problem: Problem, tau: Array) -> Nested | None:
    """Return where a search starts if a factorisation is dear: one of a nested space takes a fiftieth of it.

    None if it has none, or one that leaves more of the data than their noise, as the search could end elsewhere then.
    """
    data = problem.search.data
    if data.order.work < DEAR:
        return None
    smaller = problem.coarsened(problem.space.names, problem.coefficients)
    if smaller is None:
        return None
    search = replace(smaller, ridge=problem.search.ridge).search
    result = found_from(search, smaller.coefficients, tau)
    if not result.converged or result.rss > RESOLVING * data.rss(data.centred(problem.coefficients)):
        return None
    return Nested(smaller.space, search.data.with_reference(result.state.row), result.state.tau, result.rss)


def _from_likely(problem: Problem, search: Search, result: Result) -> Result:
    """Return the better of a search and one from the field that the likelihood finds, where data leave gaps.

    There a field of any other penalty may be far from all that obey the equation, and a search from it ends elsewhere.
    """
    try:
        likely = {
            v: solve(s, problem.space, choose(s, problem.space, "reml").penalty).coefficients
            for v, s in problem.sums.items()
        }
    except (SingularSystemError, ValueError):  # too few data for it
        return result
    weak = weak_estimate(problem.constraints, likely, lambda _, image: 0.0 * image)
    other = found_from(search, likely, weak.value)
    better = other.converged and (not result.converged or other.rss < result.rss)
    return replace(other if better else result, steps=result.steps + other.steps)


def found_from(search: Search, coefficients: Mapping[str, Array], tau: Array, least: int = 2) -> Result:
    """Search from some coefficients and constants; by strengths that grow where that does not converge.

    `least` is 1 where the start is near and errors are not asked for.
    """
    multipliers = tuple(np.zeros(constraint.shape) for constraint in search.constraints.each)
    start = State(search.data.centred(coefficients), tau, multipliers)
    result = search.run(start, STRENGTH, STEPS, hard=True, least=least)
    if result.converged:
        return result
    state, steps = start, result.steps
    for strength in CONTINUATION:
        softer = search.run(state, strength, STEPS_OF_CONTINUATION, hard=False)
        steps += softer.steps
        if not np.isfinite(softer.state.tau).all():
            return replace(result, steps=steps)
        state = softer.state
    again = search.run(state, STRENGTH, STEPS, hard=True)
    steps += again.steps
    return replace(again if again.converged or again.rss < result.rss else result, steps=steps)


# --- can the errors be believed?


def _by_holders(problem: Problem, result: Result) -> Array:
    """Return the covariance of the constants from the scores of holders, which errors within one may correlate.

    A holder moves the constants by S⁻¹Yᵀ(h_j − G_j c), up to its sign; the sum over holders is zero.
    """
    count, data = len(problem.parts), problem.search.data
    if count < 2:
        return np.full(result.step.information.shape, np.nan)
    scores = [
        replace(data, sums=part).gradient(result.state.row) @ result.step.response for part in problem.parts
    ]
    moves = solve_information(result.step.information, (np.array(scores) - np.mean(scores, axis=0)).T)
    return np.asarray(moves @ moves.T * count / (count - 1))


def order_of(constraints: Constraints, otherwise: str = "", bands: float = BANDS) -> Order:
    """Return the order in which the band is narrowest; TooLargeError where so many do not fit, with what else to do."""
    order = Order.of(constraints)
    if order.nbytes > min(LARGEST_BAND * BANDS, Resources.here().memory) / bands:
        raise TooLargeError(
            f"the normal equations of {order.size} coefficients are a band of {order.nbytes / 1e9:.1f} GB; use fewer "
            f"functions along some coordinate{otherwise}"
        )
    return order


def adequacy_of(search: Search, rss: float) -> tuple[float, float]:
    """Return the F ratio of the constrained fit against the free one, and the probability of a larger one."""
    free, data = search.data.free, search.data
    constraints = search.constraints
    more, left = constraints.count - len(constraints.parameters), data.count - constraints.size
    if free is None or left <= 0 or more <= 0:
        return math.nan, math.nan
    floor = ROUNDING * data.power
    ratio = (max(rss - free, 0.0) / more) / (max(free, floor) / left)
    return ratio, float(fdtrc(more, left, ratio))


def _halved(
    problem: Problem, search: Search, result: Result, nested: Nested | None
) -> tuple[Array, Array, float, Array]:
    """Return how much every second knot changes the constants, what that leaves of an error, and the largest rss.

    And what it leaves of an error of the field's coefficients, [P, coordinates].
    """
    change, left, worst = np.zeros(len(result.state.tau)), np.zeros(len(result.state.tau)), 0.0
    field = np.zeros((search.data.order.size, len(problem.space.names)))
    if not result.converged:
        return change, left, worst, field
    coefficients, orders = search.data.with_reference(result.state.row), problem.constraints.orders
    for axis, name in enumerate(problem.space.names):
        tau, rss, other = _with_half(problem, name, coefficients, result.state.tau, nested)
        own = np.abs(tau - result.state.tau)
        rate = 2.0 ** (problem.space.features[axis].offsets - orders[name]) - 1
        change, left, worst = change + own, left + own / rate, max(worst, rss)
        field[:, axis] = search.data.order.flatten(
            {v: (coefficients[v] - c) / (rate * search.data.scale[v]) for v, c in other.items()}
        )
    return change, left, worst, field


def _with_half(
    problem: Problem, name: str, coefficients: Mapping[str, Array], tau: Array, nested: Nested | None
) -> tuple[Array, float, Mapping[str, Array]]:
    """Return constants, rss and coefficients with every second knot of a coordinate; its factor goes with this call.

    Where a step is dear, what changes is asked for to a third of an error; from what is found in a `nested` space one
    step may be enough.
    """
    smaller = problem.coarsened([name], coefficients)
    if smaller is None:
        return tau, 0.0, coefficients
    if nested is not None and nested.space.shape == smaller.space.shape:
        return nested.tau, nested.rss, _refined(nested.coefficients, nested.space, problem.space)
    search, start, least = replace(smaller, ridge=problem.search.ridge).search, smaller.coefficients, 1
    if problem.search.data.order.work >= DEAR:
        search, least = replace(search, close=NEAR), 2
    if nested is not None:
        start, least = _refined(nested.coefficients, nested.space, smaller.space), 1
    other = found_from(search, start, tau, least)
    own = search.data.with_reference(other.state.row)
    return other.state.tau, other.rss, _refined(own, smaller.space, problem.space)


def inadequate(
    search: Search, rss: float, adequacy: float, probability: float, coarse_rss: float
) -> Iterator[str]:
    """Yield that the constrained field misses the data by more than noise, and what may be the reason."""
    free, power = search.data.free, search.data.power
    if free is None or not probability < IMPROBABLE:
        return
    if adequacy < SLIGHT and rss - free < NEGLIGIBLE**2 * power:
        return
    text = (
        f"a field that obeys the equation misses the data by more than their noise (F = {adequacy:.3g}, probability "
        f"{probability:.1g}); "
    )
    if coarse_rss - free > GAIN * (rss - free):
        yield (
            text
            + "knots still make a difference, so use more, or a higher degree, where the field changes fast"
        )
    else:
        yield text + "more knots would not help: a term or a source is missing, or a known is wrong"


def _unresolved(
    problem: Problem, search: Search, result: Result, change: Array, stderr: Array
) -> Iterator[str]:
    """Yield the constants that half the knots change by more than any rate of convergence explains.

    Against the largest of them, each in units of what the data tell, as one of them may be zero.
    """
    units = np.sqrt(np.maximum(np.diag(result.step.information), 0.0))
    largest = float(np.max(np.abs(result.state.tau) * units, initial=0.0))
    for power, own, error, unit in zip(problem.parameters, change, stderr, units, strict=True):
        seen = own * unit > NEGLIGIBLE * math.sqrt(search.data.power)
        if seen and own * unit > UNRESOLVED * largest and own > SIGNIFICANT * error:
            yield (
                f"half the knots change {power} by {own:.2g}, so these do not resolve the field yet; use more knots, "
                "or a higher degree, where it changes fast"
            )


def _not_halved(space: Space) -> list[str]:
    """Return of which coordinates nothing is known of what the knots leave."""
    splines = [
        (n, f)
        for n, f in zip(space.names, space.features, strict=True)
        if isinstance(space.basis(n), BSpline)
    ]
    names = ", ".join(repr(name) for name, features in splines if AxisLevel.of(features).coarse is None)
    if not names:
        return []
    return [
        f"what the knots of {names} leave of an error was not checked and is no part of stderr, as they are too few to "
        "leave out every second one; compare a space of more"
    ]


def _coarse(problem: Problem, resolution: Array, stderr: Array) -> list[str]:
    """Return which errors are those of the space more than those of the noise."""
    names = [str(p) for p, d, e in zip(problem.parameters, resolution, stderr, strict=True) if d > e]
    if not names:
        return []
    return [
        f"what the knots leave of an error of {', '.join(names)} is larger than that of the noise; more knots help"
    ]
