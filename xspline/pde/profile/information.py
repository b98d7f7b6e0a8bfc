"""What data tell of constants: those that they only tell together, and intervals where noise hides the field."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from xspline.pde.profile.axes import Array
from xspline.pde.profile.gauss_newton import ConstrainedLeastSquares, SearchResult
from xspline.pde.profile.normal_equations import belonging, directions, solve_information
from xspline.pde.results import LEVEL, ROUGH
from xspline.pde.text.equation import Power
from xspline.pde.text.low_terms import LowTerm
from xspline.residuals.assumptions import CHANCE
from xspline.solve.direct.cholesky import TINY
from xspline.solve.smoothing.newton import STEPS
from xspline.solve.smoothing.resolution import SEEN
from xspline.solve.system import MAX_BIAS

WIDEST = 30.0  # standard errors: an interval that has no end so far out has none


def unsettled(search: ConstrainedLeastSquares, result: SearchResult, of_field: Array) -> Iterator[str]:
    """Yield why there is no estimate to speak of; `of_field` is what knots leave of an error of the field, [P, d]."""
    if search.data.count <= search.freedom:
        yield (
            f"{search.data.count} observations are no more than the {search.freedom} degrees of freedom that the "
            "equation leaves; use fewer functions"
        )
        return
    stderr = search.stderr(result.linear, result.rss)
    if np.isinf(stderr).any():
        values, vectors, scale = directions(result.linear.information)
        along = vectors[:, 0] / scale if np.sum(values <= TINY) == 1 else None
        yield _apart(search, result, np.isinf(stderr), along)
        return
    share, direction = noise_told(search, result, of_field)
    own = belonging(direction)
    # Where the field tells less of a constant that varies, its own errors say so.
    if share > 0.5 and len({p.constant for p in _powers(search, own)}) > 1:
        yield _apart(search, result, own, direction)
    elif not (result.converged and np.isfinite(stderr).all()):
        yield (
            f"the search did not converge in {result.steps} steps, and what it saw last is no estimate; see the weak "
            "form. Use more knots where the field changes fast, or leave out a term"
        )


def _powers(search: ConstrainedLeastSquares, own: NDArray[np.bool_]) -> list[Power]:
    return [p for p, mine in zip(search.constraints.parameters, own, strict=True) if mine]


def _apart(
    search: ConstrainedLeastSquares, result: SearchResult, untold: NDArray[np.bool_], along: Array | None
) -> str:
    """Return which constants the data tell together only, and what they tell if these move `along` one direction."""
    names = list(
        dict.fromkeys(str(p) if "[" not in p.parameter else p.constant for p in _powers(search, untold))
    )
    if len(names) == 1:
        return f"the field does not tell {names[0]} everywhere; give it fewer functions in vary=, or observe more of it"
    combined = ""
    if along is not None and len(names) == np.sum(untold):
        combined = f" (only {' and '.join(_determined(search, result, untold, along))})"
    return (
        f"the data do not tell {', '.join(names[:-1])} and {names[-1]} apart{combined}: a combination of their terms "
        "is zero, or noise, everywhere in this field; leave out one of them, pass one in known=, or observe a field in "
        "which the terms differ, such as one of more waves"
    )


def _determined(
    search: ConstrainedLeastSquares, result: SearchResult, untold: NDArray[np.bool_], along: Array
) -> Iterator[str]:
    """Yield the combinations of two constants that stay where both move along a direction."""
    first, *others = np.flatnonzero(untold).tolist()
    powers = search.constraints.parameters
    tau = result.state.tau
    for other in others:
        ratio = along[other] / along[first]
        size = "" if f"{abs(ratio):.2g}" == "1" else f"{abs(ratio):.2g}*"
        sign = "-" if ratio > 0 else "+"
        yield f"{powers[other]} {sign} {size}{powers[first]}, about {tau[other] - ratio * tau[first]:.4g}"


def noise_told(search: ConstrainedLeastSquares, result: SearchResult, of_field: Array) -> tuple[float, Array]:
    """Return how much of the information on one combination of constants is noise, and the combination.

    It is the combination of which this share is largest. Errors of a field make terms look different that are the same
    in the true field. So the information that one draw of the field's errors would give by itself, with that of the
    errors which the knots leave (`of_field`), is compared with the whole. The combination is in units of what data tell
    of each constant. Where no eigenvalue is below a half the terms are unlike in any field, and the share is 0.
    """
    linear = result.linear
    count = len(result.state.tau)
    if count < 2 or not (np.isfinite(linear.information).all() and (np.diag(linear.information) > 0).all()):
        return 0.0, np.zeros(count)
    values, vectors, scale = directions(linear.information)
    if values[0] > 0.5 or values[0] <= TINY:
        return 0.0, np.zeros(count)
    noise = search.information(linear, search.draws(result, 1)[:, 0], alone=True)
    for error in of_field.T:
        noise += search.information(linear, error, alone=True)
    root = vectors / np.sqrt(values)
    shares, combinations = np.linalg.eigh(root.T @ (noise / np.outer(scale, scale)) @ root)
    return float(shares[-1]), root @ combinations[:, -1]


def noise_added(search: ConstrainedLeastSquares, result: SearchResult) -> Array:
    """Return how much noise in the field adds to the information on each constant, over that information, [k].

    It is the mean over two pairs of fields about the constrained one, as far from it as their covariance says.
    """
    linear = result.linear
    apart = search.draws(result, 2)
    # Draws are held to the equations by their strength alone; what the equations do not allow is taken out of them.
    images = np.stack([search.data.image(y) for y in apart.T], axis=1) + search.ridge * apart
    apart = linear.factor.solve(images)
    seen = [np.diag(search.information(linear, x)) for y in apart.T for x in (y, -y)]
    own = np.diag(search.information(linear, np.zeros(search.data.order.size)))
    return np.asarray(np.mean(seen, axis=0) / own - 1.0)


class Lacking(NamedTuple):
    """What is said of terms that the equations lack.

    `doubts` are of a term that is there beyond doubt, for which errors are withheld, and `remarks` of one that may be.
    By `below` and `above`, [k], intervals have to be longer to hold the constants that there are with a term that may
    be.
    """

    doubts: tuple[str, ...]
    remarks: tuple[str, ...]
    below: Array
    above: Array


def lacking(
    search: ConstrainedLeastSquares,
    result: SearchResult,
    terms: Sequence[Sequence[LowTerm]],
    resolution: Array,
) -> Lacking:
    """Return what scores say of terms that the equations lack, each compared with noise.

    A term whose score is improbable for the largest of so many is there. One that would lower the noise that is found,
    of a square over 1, may be there: intervals are then the hull of those without and with it, and that is remarked
    where it would be significant by itself, or makes an interval longer by a standard error. What moves no constant by
    more than the knots do, or is negligible beside the data, says nothing.
    """
    nothing = np.zeros(len(result.state.tau))
    candidates = [term for own in terms for term in own]
    left = search.data.count - search.freedom
    if not candidates or left <= 1:
        return Lacking((), (), nothing, nothing)
    scores = search.scores(result.linear, terms)
    told = np.flatnonzero((scores.share > math.sqrt(TINY)) & (scores.information > 0))
    squares = scores.constant[told] ** 2 * scores.information[told]
    moved = (np.abs(scores.shift[:, told]) > resolution[:, None]).any(axis=0)
    seen = moved & (squares > TINY * search.data.power)
    sigma = search.sigma(result.rss)
    z = np.sqrt(squares[seen]) / sigma
    told = told[seen]
    likely = z**2 > 1
    if not likely.any():
        return Lacking((), (), nothing, nothing)

    def of(i: int) -> str:
        term, size = candidates[told[i]], scores.constant[told[i]]
        return f"{term.text} with {term.constant} = {size:.3g} +- {abs(size) / z[i]:.2g} (z = {z[i]:.1f})"

    largest = int(np.argmax(z))
    if 2 * len(candidates) * stdtr(left, -z[largest]) < CHANCE:
        advice = f"add it, or look for another one like it: {candidates[told[largest]].code}"
        doubt = f"a term is missing: the data ask for {of(largest)}; {advice}"
        return Lacking((doubt,), (), nothing, nothing)
    shift = scores.shift[:, told[likely]]
    factor = float(stdtrit(left, (1 + LEVEL) / 2))
    variance = sigma**2 * np.diag(solve_information(result.linear.information, np.eye(len(nothing))))
    error = np.sqrt(variance)[:, None]
    # The error of the term adds to those of the constants that move with it.
    wider = factor * (np.hypot(error, shift / z[likely]) - error)
    below, above = np.maximum(wider - shift, 0.0), np.maximum(wider + shift, 0.0)
    longer = ((below + above) / error).max(axis=0)  # in standard errors, by term
    longest = int(np.flatnonzero(likely)[np.argmax(longer)])
    said = largest if z[largest] > factor else longest if longer.max() > 1 else None
    remarks = (
        ()
        if said is None
        else (
            f"the data do not rule out {of(said)}, and intervals are long enough for it too; compare "
            f"{candidates[told[said]].code}",
        )
    )
    return Lacking((), remarks, below.max(axis=1), above.max(axis=1))


def reaches(
    search: ConstrainedLeastSquares, result: SearchResult, covariance: Array
) -> tuple[Array, Array, list[str]]:
    """Return how many standard errors an interval reaches to both sides, and remarks on intervals that are not even.

    Where noise hides part of the field, the noise in it counts as information on a constant, and errors that are read
    off at the estimate are too small. At a constant's true value the field that obeys the equation there and the
    residuals are independent. The Gauss-Newton step which would leave that value, in its own standard errors, then has
    the t distribution, exactly so where the equation is linear in the field (Kleibergen 2002). An interval holds the
    values from which this step is probable, each by a fit with the constant held.
    """
    left = search.data.count - search.freedom
    factor = float(stdtrit(max(left, 1), (1 + LEVEL) / 2))
    below = np.full(len(result.state.tau), factor)
    above = below.copy()
    errors = np.sqrt(np.diag(covariance))
    remarks = list[str]()
    withheld = np.zeros(len(errors), dtype=bool)
    if not np.isfinite(errors).all() or not errors.size:
        return below, above, []
    # Of a constant that varies there are many, each a number that tells little by itself.
    single = np.array([p.constant == p.parameter for p in search.constraints.parameters])
    rough = errors > ROUGH * np.abs(result.state.tau)
    doubtful = single & (rough | (noise_added(search, result) > MAX_BIAS)) if single.any() else single
    for k in np.flatnonzero(doubtful).tolist():
        name = search.constraints.parameters[k]
        ends = [_end(search, result, k, side * errors[k], factor) for side in (-1, 1)]
        below[k], above[k] = (end for end, _ in ends)
        open_ends = [w for w, end in (("below", below[k]), ("above", above[k])) if not np.isfinite(end)]
        if open_ends:
            below[k] = above[k] = np.nan
            # A constant that moves by more than its error along with this one is only told together with it.
            tied = np.maximum(*(moved for _, moved in ends)) > errors
            open_too = [str(search.constraints.parameters[j]) for j in np.flatnonzero(tied) if j != k]
            withheld[tied] = True
            others = ", ".join(open_too)
            with_them = f", as are those of {others}, which the data tell together with it" if others else ""
            remarks.append(
                f"the interval of {name} is withheld{with_them}: noise hides the field, and data do not bound "
                f"{name} from {' nor from '.join(open_ends)}; more observations help, a smaller space, or a term less"
            )
        elif not withheld[k]:
            remarks.append(
                f"noise hides part of the field: the interval of {name} is from fits with {name} held, and may be "
                "longer to one side; stderr is its half over Student's t"
            )
    below[withheld] = above[withheld] = np.nan
    return below, above, remarks


def _end(
    search: ConstrainedLeastSquares, result: SearchResult, constant: int, unit: float, target: float
) -> tuple[float, Array]:
    """Return after how many units from the estimate the step back is `target` standard errors, by false position.

    It is NaN where there is no such place. The second value is how far each constant moved meanwhile.
    """
    state = result.state
    moved = np.zeros(len(result.state.tau))
    at = target
    inside = (0.0, 0.0)
    outside = (math.nan, math.nan)
    for _ in range(STEPS):
        tau = state.tau.copy()
        tau[constant] = result.state.tau[constant] + at * unit
        there = replace(search, held=(constant,)).run(replace(state, tau=tau))
        if not there.converged:
            return math.nan, moved
        moved = np.maximum(moved, np.abs(there.state.tau - result.state.tau))
        error = math.copysign(float(search.stderr(there.linear, result.rss)[constant]), unit)
        seen = -there.wish[constant] / error
        state = there.state
        if abs(seen - target) < 2 * SEEN:
            return at, moved
        if seen < target:
            inside = (at, float(seen))
        else:
            outside = (at, float(seen))
        if math.isfinite(outside[0]):
            share = (target - inside[1]) / (outside[1] - inside[1])
            at = inside[0] + min(max(share, 0.1), 0.9) * (outside[0] - inside[0])
        else:
            at *= min(max(target / max(seen, 1e-3), 1.1), 2.0)
        if at > WIDEST:
            return math.nan, moved
    return outside[0], moved
