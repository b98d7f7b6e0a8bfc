"""Newton's method for the minimum of a smooth score over a box, with few evaluations: each costs a factorisation.

The Hessian's eigenvalues are taken by their magnitude, steps are at most `LONGEST` and are halved while the score
rises or does not exist. Where the score falls towards a limit, as C exp(−|ρ|) does, Newton's steps have length 1 for
ever: there the bound is tried at once. Three steps that gain little end a search, which wanders where scores are flat.

Scores are in the units of a log-likelihood: a difference of 1 matters, one of 1e-5 does not.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from xspline.solve.direct.cholesky import Array
from xspline.solve.errors import SingularSystemError
from xspline.solve.families.base import BEYOND

# The longest step along an eigenvector of the Hessian, in log λ: from a bound to where scores end.
LONGEST = BEYOND
STEPS = 50  # the most that a search takes
# A rise of the score, in units of the log-likelihood, that counts as none, over a step or per unit of log λ on a bound;
# it is also the step in log λ that ends a search.
RISE = 1e-5
# A search that finds nothing better has converged where a step promises less than this, in units of the log-likelihood.
# It also ends after three steps that gained less than a tenth of this together.
LOST = 0.01
TAIL = 0.3  # the bound itself is tried where the score promises to fall by less than this on the way there
# Share of the rounding errors: a step that promises less is not taken, as gradients are more exact.
DOUBT = 0.01


class Point(Protocol):
    """A score at one ρ; its derivatives are computed when they are needed."""

    @property
    def value(self) -> float | None:
        """What is minimised; None where only its derivatives are known."""

    @property
    def gradient(self) -> Array:
        """Its derivatives by ρ, [J]."""

    @property
    def hessian(self) -> Array:
        """Its second derivatives by ρ, [J, J]; errors in it make the search longer, not its result worse."""

    @property
    def noise(self) -> float:
        """Rounding errors of the value."""


P = TypeVar("P", bound=Point)


@dataclass(frozen=True, eq=False)
class State(Generic[P]):
    """Where a search stands or has ended."""

    rho: Array  # [J]
    point: P  # the score there
    lower: Array  # [J], lower bounds; they have drawn closer where there was no score
    upper: Array  # [J], likewise
    tried: Array  # [J], the sign of the slope with which a coordinate's bound was tried last, or 0
    converged: bool = False  # False while the search goes on, and where the number of steps ran out

    @property
    def at_bound(self) -> NDArray[np.bool_]:
        """Coordinates on a bound, beyond which the score falls or is flat."""
        g = self.point.gradient
        low = self.rho <= self.lower
        high = self.rho >= self.upper
        return np.asarray((low & (g > -RISE)) | (high & (g < RISE)))


def minimise(
    score: Callable[[Array], P],
    start: Array,
    lower: Array,
    upper: Array,
    near: float = RISE,
    enough: float = 1e-5 * RISE,
) -> State[P]:
    """Return the minimum of a score within bounds.

    `score` takes ρ to a Point, and raises SingularSystemError where there is no score; at `start`, [J], as the bounds,
    there has to be one. A step of less than `near` ends the search, one that promises less than `enough`, in units of
    the log-likelihood, and three that have gained less than a tenth of `LOST`.
    """
    rho = np.clip(start, lower, upper)
    state = State(rho, score(rho), lower, upper, np.zeros(len(rho)))
    values = [state.point.value]
    for _ in range(STEPS):
        step = _newton_step(state)
        known = [value for value in values[-4:] if value is not None]
        stands = len(known) > 3 and known[0] - known[-1] < LOST / 10  # the last three have gained little
        small = np.max(np.abs(step)) < near
        if small or _gain(state.point, step) < enough + DOUBT * state.point.noise or stands:
            return replace(state, converged=True)
        before = state  # first: while a score is computed the point before this one is not held
        state = _advanced(score, before, step)
        if state.point is before.point:  # what is left is rounding, or gradients that are not the score's
            return replace(state, converged=_gain(state.point, step) < LOST + state.point.noise)
        values.append(state.point.value)
    return state


def _gain(point: Point, step: Array) -> float:
    """Return twice what a step of Newton's method promises."""
    return abs(float(point.gradient @ step))


def _newton_step(state: State[P]) -> Array:
    """Return Newton's step of the coordinates that are free, of length 1 at least where the score curves downwards.

    Where it would cross a bound it ends there, and the others go where the score is lowest given that.
    """
    free = ~state.at_bound
    step = np.zeros(len(state.rho))
    hessian = state.point.hessian
    nearest = state.lower - state.rho
    farthest = state.upper - state.rho
    while free.any():
        values, vectors = np.linalg.eigh(hessian[np.ix_(free, free)])
        least = max(1e-7 * np.abs(values).max(), np.finfo(np.float64).tiny)
        gradient = state.point.gradient[free] + hessian[np.ix_(free, ~free)] @ step[~free]
        along = vectors.T @ gradient / np.maximum(np.abs(values), least)
        down = (values < 0) & (np.abs(along) < 1)
        along[down] = np.copysign(1, along[down])
        step[free] = -vectors @ np.clip(along, -LONGEST, LONGEST)
        beyond = free & ((step < nearest) | (step > farthest))
        if not beyond.any():
            break
        step[beyond] = np.clip(step, nearest, farthest)[beyond]
        free &= ~beyond
    return step


def _advanced(score: Callable[[Array], P], state: State[P], step: Array) -> State[P]:
    """Return the search at a place where the score is lower: on the bounds along tails, else after a part of the step.

    Where there is no such place the point stays, and bounds may have drawn closer.
    """
    gradient = state.point.gradient
    curvature = np.diagonal(state.point.hessian)
    # Coordinates along which the score falls as C exp(−|ρ|) does, with little left to fall.
    length = np.abs(gradient) / np.where(curvature > 0, curvature, np.inf)
    tail = (length > 0.6) & (length < 1.7) & (np.abs(gradient) < TAIL) & ~state.at_bound
    tail &= state.tried != np.sign(gradient)
    if tail.any() and state.point.value is not None:  # without a value no bound could be told to be better
        bounds = np.where(gradient < 0, state.upper, state.lower)
        trial = _tried(score, state, np.where(tail, bounds, state.rho + step))
        tried = np.where(tail, np.sign(gradient), state.tried)
        state = replace(state, lower=trial.lower, upper=trial.upper, tried=tried)
        if _is_better(state, trial) and trial.at_bound[tail].all():
            return replace(trial, tried=state.tried)
    for halving in range(10):
        trial = _tried(score, state, state.rho + step * 0.5**halving)
        if _is_better(state, trial):
            return trial
        state = replace(state, lower=trial.lower, upper=trial.upper)
    return state


def _tried(score: Callable[[Array], P], state: State[P], rho: Array) -> State[P]:
    """Return the search at another place; where there is no score it stays, and the bounds draw closer."""
    trial = np.clip(rho, state.lower, state.upper)
    with suppress(SingularSystemError):
        point = score(trial)
        if point.value is None or np.isfinite(point.value):
            return replace(state, rho=trial, point=point)
    middle = (state.rho + trial) / 2
    distance = np.abs(trial - state.rho)
    far = distance >= 0.5 * np.max(distance)
    return replace(
        state,
        upper=np.where(far & (trial > state.rho), np.minimum(state.upper, middle), state.upper),
        lower=np.where(far & (trial < state.rho), np.maximum(state.lower, middle), state.lower),
    )


def _is_better(state: State[P], trial: State[P]) -> bool:
    """Return whether the score does not rise; without a value, whether the trial does not end far uphill."""
    point = state.point
    other = trial.point
    moved = trial.rho - state.rho
    if other is point:
        return False
    if point.value is None or other.value is None:
        return bool(other.gradient @ moved <= abs(point.gradient @ moved) / 2)
    return other.value <= point.value + (RISE + point.noise)
