"""What data tell of constants: which they tell together only, and intervals of those that noise nearly hides."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from xspline.pde.equation import Power
from xspline.pde.pointwise import LEVEL
from xspline.pde.profile.axes import Array
from xspline.pde.profile.search import STEPS, STRENGTH, Result, Search
from xspline.pde.profile.system import UNTOLD, directions
from xspline.pde.results import ROUGH

HIDDEN = 0.05  # of the information on a constant: that noise in the field adds, from which it is not trusted
PAIRS_OF_DRAWS = 2  # of the field, that tell what noise adds
ENDS = 14  # fits that an end of an interval may take
CLOSE_TO_END = 0.02  # of Student's t: then the end is found
WIDEST = 30.0  # standard errors, from which on there is none
NOISE_TELLS = 0.5  # of the information of a combination of constants: it is noise, its errors are too small
TIED = (
    1.0  # standard errors that a constant moves along with another, from which it is told together with that
)
ALIKE = 0.5  # smallest eigenvalue of information of unit diagonal, above which terms are unlike
PART_OF_DIRECTION = 0.3  # of the largest constant of a combination: smaller ones do not belong to it


def unsettled(search: Search, result: Result) -> Iterator[str]:
    """Yield why there is no estimate to speak of."""
    if search.data.count <= search.freedom:
        yield (
            f"{search.data.count} observations are no more than the {search.freedom} degrees of freedom that the "
            "equation leaves; use fewer functions"
        )
        return
    stderr = search.stderr(result.step, result.rss)
    if np.isinf(stderr).any():
        yield _apart(search, np.isinf(stderr))
        return
    ratio, direction = noise_told(search, result)
    own = np.abs(direction) > PART_OF_DIRECTION * np.abs(direction).max(initial=0.0)
    # Where the field tells a constant that varies less, its own errors say so.
    if ratio > NOISE_TELLS and len({p.constant for p in _powers(search, own)}) > 1:
        yield _apart(search, own)
    elif not (result.converged and np.isfinite(stderr).all()):
        yield (
            f"the search did not converge in {result.steps} steps, and what it saw last is no estimate; see the weak "
            "form. Use more knots where the field changes fast, or leave out a term"
        )


def _powers(search: Search, own: NDArray[np.bool_]) -> list[Power]:
    return [p for p, mine in zip(search.constraints.parameters, own, strict=True) if mine]


def _apart(search: Search, untold: NDArray[np.bool_]) -> str:
    """Return which constants the data tell together only."""
    names = list(
        dict.fromkeys(str(p) if "[" not in p.parameter else p.constant for p in _powers(search, untold))
    )
    if len(names) == 1:
        return f"the field does not tell {names[0]} everywhere; give it fewer functions in vary=, or observe more of it"
    return (
        f"the data do not tell {', '.join(names[:-1])} and {names[-1]} apart: a combination of their terms is zero, or "
        "noise, everywhere in this field; leave out one of them, pass one in known=, or observe a field in which the "
        "terms differ, such as one of more waves"
    )


def noise_told(search: Search, result: Result) -> tuple[float, Array]:
    """Return how much of what tells a combination of constants is noise of the field at most, and the combination.

    Terms of a field with errors differ where those of the true field are the same. The information is that of the
    field's terms; the part of it that one draw of the field's errors would give is compared with all of it. The
    combination is in units of what data tell of each constant. Constants whose terms are unlike are not looked at.
    """
    step, data = result.step, search.data
    count = len(step.tau)
    if count < 2:
        return 0.0, np.zeros(count)
    if not (np.isfinite(step.information).all() and (np.diag(step.information) > 0).all()):
        return 0.0, np.zeros(count)
    values, vectors, scale = directions(step.information)
    if values[0] > ALIKE or values[0] <= UNTOLD:
        return 0.0, np.zeros(count)
    sigma = math.sqrt(max(result.rss, 0.0) / (data.count - search.freedom))
    draw = np.random.default_rng(0).standard_normal((data.order.size, 1))
    errors = sigma * step.factor.apply_inverse_sqrt(draw)[:, 0]
    noise = search.information(step, errors, alone=True)
    root = vectors / np.sqrt(values)
    shares, combinations = np.linalg.eigh(root.T @ (noise / np.outer(scale, scale)) @ root)
    return float(shares[-1]), root @ combinations[:, -1]


def reaches(search: Search, result: Result, covariance: Array) -> tuple[Array, Array, list[str]]:
    """Return how many standard errors an interval reaches to both sides, and remarks on those that are not even.

    Where noise hides part of the field, what is noise in it counts as information on a constant, and errors that are
    read off at the estimate are too small. At a constant's true value the field that obeys the equation there and the
    residuals are independent, so that the Gauss-Newton step which would leave that value, in its own standard errors,
    has the t distribution (exactly where the equation is linear in the field: Kleibergen 2002). An interval holds the
    values from which this step is not improbable, each a fit with the constant held.
    """
    left = search.data.count - search.freedom
    factor = float(stdtrit(max(left, 1), (1 + LEVEL) / 2))
    below, above = (np.full(len(result.state.tau), factor) for _ in range(2))
    errors, remarks = np.sqrt(np.diag(covariance)), list[str]()
    withheld = np.zeros(len(errors), dtype=bool)
    if not np.isfinite(errors).all() or not errors.size:
        return below, above, []
    # Of a constant that varies there are many, each a number that tells little by itself.
    single = np.array([p.constant == p.parameter for p in search.constraints.parameters])
    rough = errors > ROUGH * np.abs(result.state.tau)
    doubtful = single & (rough | (search.hidden(result, PAIRS_OF_DRAWS) > HIDDEN)) if single.any() else single
    for k in np.flatnonzero(doubtful).tolist():
        name = search.constraints.parameters[k]
        ends = [_end(search, result, k, side * errors[k], factor) for side in (-1, 1)]
        below[k], above[k] = (end for end, _ in ends)
        open_ends = [w for w, end in (("below", below[k]), ("above", above[k])) if not np.isfinite(end)]
        if open_ends:
            below[k] = above[k] = np.nan
            # What is told of constants together only is open in each of them.
            tied = np.maximum(*(moved for _, moved in ends)) > TIED * errors
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


def _end(search: Search, result: Result, constant: int, unit: float, target: float) -> tuple[float, Array]:
    """Return after how many units from the estimate the step back is `target` standard errors; NaN if nowhere.

    And the farthest that each constant moved meanwhile.
    """
    state, moved = result.state, np.zeros(len(result.state.tau))
    inside, outside, at = (0.0, 0.0), (math.nan, math.nan), target
    for _ in range(ENDS):
        tau = state.tau.copy()
        tau[constant] = result.state.tau[constant] + at * unit
        there = replace(search, held=(constant,)).run(replace(state, tau=tau), STRENGTH, STEPS, hard=True)
        if not there.converged:
            return math.nan, moved
        moved = np.maximum(moved, np.abs(there.state.tau - result.state.tau))
        error = math.copysign(float(search.stderr(there.step, result.rss)[constant]), unit)
        seen, state = -there.step.wish[constant] / error, there.state
        if abs(seen - target) < CLOSE_TO_END:
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
