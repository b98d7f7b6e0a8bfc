"""Minimum of a smooth score over a box by Newton's method, with few evaluations: each costs a factorisation.

The Hessian's eigenvalues are taken by their magnitude, steps are at most `LONGEST` and are halved while the score
rises or does not exist. Where the score falls towards a limit, as C exp(−|ρ|) does, Newton's steps have length 1 for
ever: there the bound is tried at once.

Scores are in the units of a log-likelihood: a difference of 1 matters, one of 1e-5 does not.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from xspline.solve.direct.cholesky import Array
from xspline.solve.errors import SingularSystemError

LONGEST = 5.0  # a step along an eigenvector of the Hessian
NEAR = 5e-5  # a step that ends the search
GAIN = 1e-10  # and one that promises no more than half of this,
DOUBT = 0.01  # or than this share of the rounding errors: gradients are more exact than the score
SLACK = 1e-5  # what the score may rise by over a step
OVERSHOT = 0.5  # of the slope at the start of a step is the most that it may have uphill at its end
LEVEL = 1e-5  # a slope on a bound that counts as none
STEPS = 50
HALVINGS = 10
SOME = 4  # times what is enough: what a search of few steps may leave
NEXT = 3  # of these, whose scores should be those of the start
LOST = 1e-3  # what may be left to gain where no step gains anything
SHORT = 0.5  # a step over which a Hessian changes little
MAX_MINIMA = 3  # places of a lattice from which searches start
TAIL = 0.3  # what is left to gain where the score is looked at on the bound


class Until(NamedTuple):
    """What ends a search, and how far it goes at a time.

    Parameters
    ----------
    near : float
        A step this short ends it,
    enough : float
        and one that promises no more.
    grows : bool
        Whether the score grows upwards as e^ρ does, so that Newton's steps s upwards overshoot: log(1 + s) does not.
    steps : int
        The most that it takes, and how often one is halved at most.
    unseen : bool
        Whether it goes the last step, as far as `near`, without another look: of use to those who go on from there.
    """

    near: float = NEAR
    enough: float = 0.0
    grows: bool = False
    steps: int = STEPS
    unseen: bool = False


UNTIL = Until()


class Point(Protocol):
    """A score at one ρ; its derivatives are computed when they are needed."""

    @property
    @abstractmethod
    def value(self) -> float | None:
        """What is minimised; None where only its derivatives are known."""

    @property
    @abstractmethod
    def gradient(self) -> Array:
        """Its derivatives by ρ, [J]."""

    @property
    @abstractmethod
    def hessian(self) -> Array:
        """Its second derivatives by ρ, [J, J]; errors in it make the search longer, not its result worse."""

    @property
    @abstractmethod
    def noise(self) -> float:
        """Rounding errors of the value."""


P = TypeVar("P", bound=Point)


@dataclass(frozen=True, eq=False)
class State(Generic[P]):
    """Where a search stands or has ended.

    Parameters
    ----------
    rho : ndarray, [J]
    point : Point
        The score there.
    lower, upper : ndarray, [J]
        Bounds; they have drawn closer where there was no score.
    tried : ndarray of bool, [J]
        Coordinates whose bound has been tried, which happens once.
    stride : float
        Least length of a step where the score curves downwards.
    rounding : float
        What scores next to each other differ by, where no step gained anything.
    converged : bool
        False while the search goes on, and where the number of steps ran out.
    """

    rho: Array
    point: P
    lower: Array
    upper: Array
    tried: NDArray[np.bool_]
    stride: float = 0.0
    rounding: float = 0.0
    converged: bool = False

    @property
    def at_bound(self) -> NDArray[np.bool_]:
        """Coordinates on a bound, beyond which the score falls or is flat."""
        g = self.point.gradient
        low, high = self.rho <= self.lower, self.rho >= self.upper
        return np.asarray((low & (g > -LEVEL)) | (high & (g < LEVEL)))


def minimise(
    score: Callable[[Array], P],
    start: Array,
    lower: Array,
    upper: Array,
    until: Until = UNTIL,
) -> State[P]:
    """The minimum of a score within bounds.

    Parameters
    ----------
    score : callable
        ρ to Point; raises SingularSystemError where there is no score.
    start : ndarray, [J]
        There has to be a score.
    lower, upper : ndarray, [J]
    until : Until
    """

    def ended(state: State[P], step: Array) -> State[P]:
        short = min(1.0, until.near / max(float(np.max(np.abs(step))), until.near))
        rho = np.clip(state.rho + short * step, state.lower, state.upper) if until.unseen else state.rho
        return replace(state, rho=rho, converged=True)

    rho = np.clip(start, lower, upper)
    state = State(rho, score(rho), lower, upper, np.zeros(len(rho), dtype=bool))
    hessian, correction = state.point.hessian, np.zeros((len(rho), len(rho)))
    for _ in range(until.steps):
        step, downhill = _newton_step(state, hessian, until)
        if _ends(state.point, step, until):
            return ended(state, step)
        before = state  # first: while a score is computed the point before this one is not held
        state = _advanced(score, before, step, hessian, min(HALVINGS, until.steps))
        if state.point is before.point and until.steps < STEPS:
            break
        if state.point is before.point:  # what is left is rounding, or gradients that are not the score's
            lost = max(LOST + state.point.noise, state.rounding)
            return replace(state, converged=_gain(state.point, step) < lost)
        moved = state.rho - before.rho
        # After a whole step downhill: twice as far the next time.
        state = replace(state, stride=2 * downhill if np.allclose(moved, step) else 0.0)
        if np.max(np.abs(moved)) <= SHORT:
            step = _newton_step(state, hessian, until)[0]
            if _ends(state.point, step, until):  # which spares the Hessian there
                return ended(state, step)
            # The mean of two Hessians is made to agree with the gradients at both, by the least change (Powell 1970).
            # Hessians may come from random draws; then it is this that makes the last steps short.
            length, after = moved @ moved, state.point
            mean = (before.point.hessian + after.hessian) / 2 + correction
            wrong = (after.gradient - before.point.gradient - mean @ moved) / length
            correction = correction + (np.outer(wrong, moved) + np.outer(moved, wrong))
            correction = correction - (wrong @ moved) / length * np.outer(moved, moved)
        hessian = state.point.hessian + correction
    enough = until._replace(enough=SOME * until.enough)
    step = _newton_step(state, state.point.hessian, until)[0]
    return replace(state, converged=_ends(state.point, step, enough))


def lowest_places(score: Callable[[Array], P], lower: Array, upper: Array, side: int) -> Iterator[Array]:
    """The lowest minima among the places of a lattice within bounds, so many along each coordinate, lowest first."""
    places, values = np.linspace(lower, upper, side), np.full((side,) * len(lower), np.inf)
    for index in np.ndindex(values.shape):
        with suppress(SingularSystemError):
            value = score(places[index, range(len(lower))]).value
            values[index] = np.inf if value is None else value
    padded, is_low = np.pad(values, 1, constant_values=np.inf), np.isfinite(values)
    for axis, step in itertools.product(range(values.ndim), (-1, 1)):
        is_low &= values <= np.roll(padded, step, axis)[(slice(1, -1),) * values.ndim]
    low = np.argwhere(is_low)
    for index in low[np.argsort(values[is_low])][:MAX_MINIMA]:
        yield places[index, range(len(lower))]


def _ends(point: Point, step: Array, until: Until) -> bool:
    """Whether a step is not worth taking."""
    short = bool(np.max(np.abs(step)) < until.near)
    return short or _gain(point, step) < max(2 * until.enough, GAIN) + DOUBT * point.noise


def _gain(point: Point, step: Array) -> float:
    """Twice what a step of Newton's method promises."""
    return abs(float(point.gradient @ step))


def _newton_step(state: State[P], hessian: Array, until: Until) -> tuple[Array, float]:
    """Newton's step of the coordinates that are free, and its length where the score curves downwards.

    Where it would cross a bound it ends there, and the others go where the score is lowest given that.
    """
    free, step, downhill = ~state.at_bound, np.zeros(len(state.rho)), 0.0
    nearest, farthest = state.lower - state.rho, state.upper - state.rho
    while free.any():
        values, vectors = np.linalg.eigh(hessian[np.ix_(free, free)])
        least = max(1e-7 * np.abs(values).max(), np.finfo(np.float64).tiny)
        gradient = state.point.gradient[free] + hessian[np.ix_(free, ~free)] @ step[~free]
        along = vectors.T @ gradient / np.maximum(np.abs(values), least)
        down = (values < 0) & (np.abs(along) < state.stride)
        along[down] = np.copysign(state.stride, along[down])
        downhill = float(np.max(np.abs(along), where=values < 0, initial=0.0))
        step[free] = -vectors @ np.clip(along, -LONGEST, LONGEST)
        beyond = free & ((step < nearest) | (step > farthest))
        if not beyond.any():
            break
        step[beyond] = np.clip(step, nearest, farthest)[beyond]
        free &= ~beyond
    return np.log1p(np.maximum(step, 0.0)) + np.minimum(step, 0.0) if until.grows else step, downhill


def _advanced(
    score: Callable[[Array], P], state: State[P], step: Array, hessian: Array, halvings: int
) -> State[P]:
    """The search at a place where the score is lower: the bounds along tails, else a part of the step.

    Where there is none the point stays; bounds may have drawn closer.
    """
    gradient, curvature = state.point.gradient, np.diagonal(hessian)
    # Coordinates along which the score falls as C exp(−|ρ|) does, with little left to fall.
    length = np.abs(gradient) / np.where(curvature > 0, curvature, np.inf)
    tail = (length > 0.6) & (length < 1.7) & (np.abs(gradient) < TAIL) & ~state.tried & ~state.at_bound
    if tail.any() and state.point.value is not None:  # without a value no bound could be told to be better
        bounds = np.where(gradient < 0, state.upper, state.lower)
        trial = _tried(score, state, np.where(tail, bounds, state.rho + step))
        state = replace(state, lower=trial.lower, upper=trial.upper, tried=state.tried | tail)
        if _is_better(state, trial) and trial.at_bound[tail].all():
            return replace(trial, tried=state.tried)
    apart = []
    for halving in range(halvings):
        trial = _tried(score, state, state.rho + step * 0.5**halving)
        if _is_better(state, trial):
            return trial
        if state.point.value is not None and trial.point.value is not None:
            apart.append(abs(trial.point.value - state.point.value))
        state = replace(state, lower=trial.lower, upper=trial.upper)
    return replace(state, rounding=max(apart[-NEXT:], default=0.0))


def _tried(score: Callable[[Array], P], state: State[P], rho: Array) -> State[P]:
    """The search at another place; where there is no score it stays, and the bounds draw closer."""
    trial = np.clip(rho, state.lower, state.upper)
    try:
        point = score(trial)
        if point.value is None or np.isfinite(point.value):
            return replace(state, rho=trial, point=point)
    except SingularSystemError:
        pass
    middle, distance = (state.rho + trial) / 2, np.abs(trial - state.rho)
    far = distance >= 0.5 * np.max(distance)
    return replace(
        state,
        upper=np.where(far & (trial > state.rho), np.minimum(state.upper, middle), state.upper),
        lower=np.where(far & (trial < state.rho), np.maximum(state.lower, middle), state.lower),
    )


def _is_better(state: State[P], trial: State[P]) -> bool:
    """Whether the score does not rise; without a value, whether the trial does not end far uphill."""
    point, other, moved = state.point, trial.point, trial.rho - state.rho
    if other is point:
        return False
    if point.value is None or other.value is None:
        return bool(other.gradient @ moved <= OVERSHOT * abs(point.gradient @ moved))
    return other.value <= point.value + (SLACK + point.noise)
