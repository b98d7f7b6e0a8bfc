"""Constants of equations from statistics, and what tells whether their errors can be believed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.special import fdtrc, stdtrit

from xspline.pde.profile.axes import Array
from xspline.pde.profile.gauss_newton import ConstrainedLeastSquares, SearchResult, Unknowns
from xspline.pde.profile.information import lacking, reaches, unsettled
from xspline.pde.profile.normal_equations import solve_information
from xspline.pde.profile.problem import EquationProblem, refined
from xspline.pde.profile.weak import weak_estimate
from xspline.pde.results import ENOUGH, LEVEL, ROUGH, highest_orders, low_degrees
from xspline.residuals.assumptions import CHANCE, SURELY
from xspline.solve import SingularSystemError, choose, solve
from xspline.solve.direct.cholesky import TINY
from xspline.solve.multigrid.spaces import AxisLevel
from xspline.solve.smoothing.fit import ROUNDING
from xspline.spaces import BSpline, Space


@dataclass(frozen=True, eq=False)
class Estimates:
    """Constants, as the powers in which they enter, and what tells whether their errors can be believed.

    Parameters
    ----------
    value, covariance : [k] and [k, k]; errors are NaN where they are withheld.
    factor : half the width of an interval in standard errors.
    lower, upper : [k], ends of the 95 % intervals.
    weak, weak_covariance : those of the weak form.
    resolution : [k], what the knots leave of an error.
    by_holders : [k, k], covariance from the scores of holders, for errors that are correlated within one; NaN where it
        is not known.
    sigma : standard deviation of an observation of weight 1 about the constrained field.
    adequacy, probability : F ratio of the constrained fit against the free one, and how probable a larger one is; NaN
        where data do not determine the free one.
    limited_by : the coordinate of which more knots are needed before errors can be believed; empty otherwise.
    misses : whether errors are withheld because data and equation, both as they are, do not go together.
    remarks : sentences without a full stop.
    """

    value: Array
    covariance: Array
    factor: float
    lower: Array
    upper: Array
    weak: Array
    weak_covariance: Array
    resolution: Array
    by_holders: Array
    sigma: float = math.nan
    adequacy: float = math.nan
    probability: float = math.nan
    converged: bool = False
    limited_by: str = ""
    misses: bool = False
    remarks: tuple[str, ...] = ()

    @staticmethod
    def without_errors(value: Array, factor: float = math.nan) -> Estimates:
        """Return constants of which nothing else is known."""
        none = np.full(len(value), np.nan)
        matrix = np.full((len(value), len(value)), np.nan)
        return Estimates(value, matrix, factor, none, none, none, matrix, none, matrix)


@dataclass(frozen=True, eq=False)
class Profile:
    """Constants, the end of the search for them, and what the knots of each coordinate leave of an error of the field.

    `unresolved`, [P, d], is of the field's coefficients.
    """

    estimates: Estimates
    result: SearchResult
    unresolved: Array


def profile(problem: EquationProblem) -> Profile:
    """Return the constants for which a field that obeys the equations exactly is nearest to the data.

    It raises TooLargeError where the normal equations do not fit in memory.
    """
    weak = problem.weak()
    search = problem.search
    result = search.run(_start(problem, weak.value))
    halved = _halved(problem, result)
    adequacy, probability = adequacy_of(search, result.rss)
    covariance = search.covariance(result.linear, result.rss)
    stderr = np.sqrt(np.diag(covariance))
    vague = [*unsettled(search, result, halved.of_field)]
    missing = lacking(search, result, [] if vague else problem.low_terms, halved.resolution)
    misfit = [*inadequate(search, result.rss, adequacy, probability, halved.rss, missing.doubts)]
    doubts, by_knots, misses = _verdict(problem, result, halved, stderr, vague, misfit, missing.doubts)
    if doubts:
        covariance = np.full(covariance.shape, np.nan)
        remarks = [f"errors are withheld: {doubt}" for doubt in doubts]
    else:
        each = zip(problem.parameters, halved.resolution, stderr, strict=True)
        coarse = [str(p) for p, d, e in each if d > e]  # whose errors are those of the space
        remarks = [*_not_halved(problem.space), *missing.remarks]
        if coarse:
            text = f"what the knots leave of an error of {', '.join(coarse)} is larger than that of the noise"
            remarks.insert(0, f"{text}; more knots help")
    below, above, hidden = reaches(search, result, covariance)
    factor = float(stdtrit(max(search.data.count - search.freedom, 1), (1 + LEVEL) / 2))
    errors = np.sqrt(np.diag(covariance))
    tau = result.state.tau
    ratio = (below + above) / (2 * factor)  # half an interval over what is read off at the estimate
    covariance = covariance * np.outer(ratio, ratio)
    unresolved = np.diag(halved.resolution**2)
    withheld = 0 * covariance  # NaN where errors are withheld
    estimates = Estimates(
        tau,
        covariance + unresolved,
        factor,
        tau - missing.below - np.hypot(below * errors, factor * halved.resolution),
        tau + missing.above + np.hypot(above * errors, factor * halved.resolution),
        weak.value,
        weak.covariance,
        halved.resolution,
        _by_holders(problem, result) + unresolved + withheld,
        search.sigma(result.rss),
        adequacy,
        probability,
        result.converged,
        halved.coarsest if by_knots else "",
        misses,
        (*remarks, *hidden),
    )
    return Profile(estimates, result, halved.of_field)


def _verdict(
    problem: EquationProblem,
    result: SearchResult,
    halved: HalvedKnots,
    stderr: Array,
    vague: list[str],
    misfit: list[str],
    missing: Sequence[str],
) -> tuple[list[str], bool, bool]:
    """Return why errors are withheld, whether more knots would help, and whether data and equation disagree.

    Four questions are asked. Can data tell the constants at all (`vague`)? Does the constrained field miss the data by
    more than noise (`misfit`)? Would other knots change constants by more than their errors? Does the equation lack a
    term beyond doubt (`missing`)? Data and equation disagree where neither knots nor vague constants are the cause.
    """
    by_knots = bool(misfit) and _knots_matter(problem.search, result.rss, halved.rss)
    if vague:
        return [*vague, *misfit], by_knots, False
    unresolved = [*_unresolved(problem, result, halved, stderr)]
    by_knots = by_knots or bool(unresolved)
    doubts = [*misfit, *unresolved] or [*missing]
    low = low_degrees(problem.equations, problem.space, ENOUGH) if doubts else []
    if low:  # The degree is the first cause there can be.
        return low, by_knots, False
    return doubts, by_knots, bool(doubts or missing) and not by_knots


def _start(problem: EquationProblem, tau: Array) -> Unknowns:
    """Return where a search starts: at the fit, or, where data leave gaps, at the field that the likelihood finds.

    There a field of any other penalty may be far from all fields that obey the equation, and a search from it ends
    elsewhere.
    """
    search = problem.search
    if search.data.free is not None:
        return search.start(problem.coefficients, tau)
    try:
        likely = {
            v: solve(s, problem.space, choose(s, problem.space, "reml").penalty).coefficients
            for v, s in problem.sums.items()
        }
    except (SingularSystemError, ValueError):  # there are too few data for a likelihood
        return search.start(problem.coefficients, tau)
    return search.start(
        likely, weak_estimate(problem.constraints, likely, lambda _, image: 0.0 * image).value
    )


def _by_holders(problem: EquationProblem, result: SearchResult) -> Array:
    """Return the covariance of the constants from the scores of holders, within which errors may be correlated.

    A holder moves the constants by S⁻¹Yᵀ(h_j − G_j c), up to its sign; the sum over holders is zero.
    """
    count = len(problem.parts)
    data = problem.search.data
    if count < 2:
        return np.full(result.linear.information.shape, np.nan)
    scores = [
        replace(data, sums=part).gradient(result.state.row) @ result.linear.response for part in problem.parts
    ]
    moves = solve_information(result.linear.information, (np.array(scores) - np.mean(scores, axis=0)).T)
    return np.asarray(moves @ moves.T * count / (count - 1))


def adequacy_of(search: ConstrainedLeastSquares, rss: float) -> tuple[float, float]:
    """Return the F ratio of the constrained fit against the free one, and the probability of a larger one."""
    free = search.data.free
    constraints = search.constraints
    more = constraints.count - len(constraints.parameters)
    left = search.data.count - constraints.size
    if free is None or left <= 0 or more <= 0:
        return math.nan, math.nan
    floor = ROUNDING * search.data.power
    ratio = (max(rss - free, 0.0) / more) / (max(free, floor) / left)
    return ratio, float(fdtrc(more, left, ratio))


class HalvedKnots(NamedTuple):
    """What fits with every second knot of one coordinate after the other say.

    `change`, [k], is by how much the constants change, added up over coordinates, most along the `coarsest`, and `rss`
    the largest residual sum of squares. `resolution`, [k], and `of_field`, [P, coordinates], are what the knots leave
    of an error of the constants and of the field's coefficients.
    """

    change: Array
    resolution: Array
    rss: float
    of_field: Array
    coarsest: str = ""


def _halved(problem: EquationProblem, result: SearchResult) -> HalvedKnots:
    """Return what every second knot says; all zeros where the search did not converge."""
    search = problem.search
    tau = result.state.tau
    change = np.zeros(len(tau))
    resolution = np.zeros(len(tau))
    worst = 0.0
    of_field = np.zeros((search.data.order.size, len(problem.space.names)))
    units = np.sqrt(np.maximum(np.diag(result.linear.information), 0.0))
    moved: dict[str, float] = {}
    orders = highest_orders(problem.equations)
    coefficients = search.data.with_reference(result.state.row)
    for axis, name in enumerate(problem.space.names):
        smaller = problem.coarsened([name], coefficients) if result.converged else None
        if smaller is None:
            continue
        coarse = replace(smaller, ridge=search.ridge).search
        other = coarse.run(coarse.start(smaller.coefficients, tau), errors=False)
        # The error goes with the knots' distance to the power of degree + 1 − order.
        rate = 2.0 ** (problem.space.features[axis].offsets - orders.get(name, 0)) - 1
        own = np.abs(other.state.tau - tau)
        moved[name] = float(np.max(own * units, initial=0.0))
        change = change + own
        resolution = resolution + own / rate
        worst = max(worst, other.rss)
        there = refined(coarse.data.with_reference(other.state.row), smaller.space, problem.space)
        apart = {v: (c - there[v]) / (rate * search.data.scale[v]) for v, c in coefficients.items()}
        of_field[:, axis] = search.data.order.flatten(apart)
    return HalvedKnots(change, resolution, worst, of_field, max(moved, key=moved.__getitem__, default=""))


def inadequate(
    search: ConstrainedLeastSquares,
    rss: float,
    adequacy: float,
    probability: float,
    coarse_rss: float,
    missing: Sequence[str] = (),
) -> Iterator[str]:
    """Yield that the constrained field misses the data by more than noise, and why, such as what is `missing`."""
    free = search.data.free
    if free is None or not probability < CHANCE:
        return
    if rss - free < TINY * search.data.power:
        return
    text = (
        f"a field that obeys the equation misses the data by more than their noise (F = {adequacy:.3g}, probability "
        f"{probability:.1g}); "
    )
    if _knots_matter(search, rss, coarse_rss):
        yield (
            text
            + "knots still make a difference, so use more, or a higher degree, where the field changes fast"
        )
    else:
        why = missing or (
            "more knots would not help: a term or a source is missing, a known is wrong, or errors are correlated, "
            "which this takes as independent",
        )
        yield text + why[0]


def _knots_matter(search: ConstrainedLeastSquares, rss: float, coarse_rss: float) -> bool:
    """Return whether half the knots leave more than twice the misfit, so that more of them would leave less."""
    free = search.data.free
    return free is not None and coarse_rss - free > 2 * (rss - free)


def _unresolved(
    problem: EquationProblem, result: SearchResult, halved: HalvedKnots, stderr: Array
) -> Iterator[str]:
    """Yield the constants that half the knots change by more than any rate of convergence explains.

    The change is compared with the largest constant, each in units of what the data tell of it, as a constant may be
    zero.
    """
    units = np.sqrt(np.maximum(np.diag(result.linear.information), 0.0))
    largest = float(np.max(np.abs(result.state.tau) * units, initial=0.0))
    line = problem.finer(halved.coarsest) if halved.coarsest else ""
    if line:
        advice = f"use more knots, most along {halved.coarsest!r}, where it changes fast: {line}"
    else:
        advice = (
            f"a higher degree helps, or more observations along {halved.coarsest!r} where it changes fast"
        )
    for power, own, error, unit in zip(problem.parameters, halved.change, stderr, units, strict=True):
        seen = own * unit > math.sqrt(TINY * problem.search.data.power)
        if seen and own * unit > ROUGH * largest and own > SURELY * error:
            yield (
                f"half the knots change {power} by {own:.2g}, so these do not resolve the field yet; {advice}"
            )


def _not_halved(space: Space) -> Iterator[str]:
    """Yield the coordinates of which nothing is known of what the knots leave."""
    splines = [
        (n, f)
        for n, f in zip(space.names, space.features, strict=True)
        if isinstance(space.basis(n), BSpline)
    ]
    names = ", ".join(repr(name) for name, features in splines if AxisLevel.of(features).coarse is None)
    if names:
        yield (
            f"what the knots of {names} leave of an error was not checked and is no part of stderr, as they are too "
            "few to leave out every second one; compare a space of more"
        )
