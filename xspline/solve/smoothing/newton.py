"""Minimum of a smooth score over a box by Newton's method, with few evaluations: each costs a factorisation.

Scores are in the units of a log-likelihood: 1 is a difference, 1e-5 is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from xspline.solve.direct.cholesky import Array
from xspline.solve.errors import SingularSystemError

LONGEST = 5.0  # a step along an eigenvector of the Hessian
NEAR = 5e-5  # a step that ends the search
GAIN = 1e-10  # and one that promises no more than this,
DOUBT = 0.01  # or than this share of the rounding errors: slopes are more exact than the score
SLACK = 1e-5  # what a step may lose
LEVEL = 1e-5  # a slope that is none, on a bound
STEPS = 50
HALVINGS = 10
LOST = 1e-3  # what may be left to gain where no step gains anything
SHORT = 0.5  # a step over which a Hessian changes little
TAIL = 0.3  # what is left to gain where the score is looked at on the bound


class Point(Protocol):
    """A score at one ρ; its derivatives are worked out when asked for."""

    @property
    def noise(self) -> float:
        """Rounding errors of the value."""
        ...

    @property
    def value(self) -> float: ...
    @property
    def gradient(self) -> Array: ...
    @property
    def hessian(self) -> Array: ...


P = TypeVar("P", bound=Point)


@dataclass(frozen=True, eq=False)
class Minimum(Generic[P]):
    """Where the search ended.

    Parameters
    ----------
    rho : ndarray, [J]
    point : Point
        The score there.
    at_bound : ndarray of bool, [J]
        Coordinates on a bound, beyond which the score does not rise.
    converged : bool
        False: the number of steps ran out.
    """

    rho: Array
    point: P
    at_bound: NDArray[np.bool_]
    converged: bool


class Search(Generic[P]):
    """Newton's method on ρ within bounds.

    The Hessian's eigenvalues are taken by their magnitude, steps are at most `LONGEST` and are halved while the score
    rises or does not exist. Where the score falls towards a limit, as C exp(−|ρ|) does, Newton's steps have length 1
    for ever: there the bound is tried at once.

    Parameters
    ----------
    score : callable
        ρ to Point; raises SingularSystemError where there is no score.
    lower, upper : ndarray, [J]
    near : float
        A step this short ends the search.
    """

    def __init__(self, score: Callable[[Array], P], lower: Array, upper: Array, near: float = NEAR) -> None:
        self.score, self.lower, self.upper, self.near = score, lower.copy(), upper.copy(), near
        self.error = np.zeros((len(lower), len(lower)))  # of the Hessians, as the slopes showed
        self.stride = self.downhill = 0.0  # least and last length of steps where the score curves downwards
        self.leapt = np.zeros(len(lower), dtype=bool)  # a bound is tried once

    def run(self, start: Array) -> Minimum[P]:
        """From a start at which there is a score."""
        rho = np.clip(start, self.lower, self.upper)
        point = self.score(rho)
        bend, converged = point.hessian, False
        for _ in range(STEPS):
            step = self._step(rho, point, bend)
            if self._ends(point, step):
                converged = True
                break
            found = self._better(rho, point, step, bend)
            if found is None:  # all that is left are rounding errors, or slopes that are none of the score
                converged = _gain(point, step) < LOST + point.noise
                break
            (last, before), (rho, point) = (rho, point), found
            moved = rho - last
            # Downhill all the way: twice as far the next time.
            self.stride = 2 * self.downhill if np.allclose(moved, step) else 0.0
            if np.max(np.abs(moved)) <= SHORT:
                if self._ends(point, self._step(rho, point, bend)):  # which spares the Hessian there
                    converged = True
                    break
                self._learn(moved, before, point)
            bend = point.hessian + self.error
        return Minimum(rho, point, self._outward(rho, point), converged)

    def _ends(self, point: P, step: Array) -> bool:
        short = bool(np.max(np.abs(step)) < self.near)
        return short or _gain(point, step) < GAIN + DOUBT * point.noise

    def _learn(self, step: Array, before: P, after: P) -> None:
        """Make the mean of two Hessians agree with the slopes at both, by the least change (Powell 1970).

        Hessians may come from draws; then it is this that makes the last steps short.
        """
        length = step @ step
        mean = (before.hessian + after.hessian) / 2 + self.error
        wrong = (after.gradient - before.gradient - mean @ step) / length
        self.error += np.outer(wrong, step) + np.outer(step, wrong)
        self.error -= (wrong @ step) / length * np.outer(step, step)

    def _outward(self, rho: Array, point: P) -> NDArray[np.bool_]:
        """Coordinates on a bound where the score falls beyond it, or is flat."""
        g = point.gradient
        return np.asarray(((rho <= self.lower) & (g > -LEVEL)) | ((rho >= self.upper) & (g < LEVEL)))

    def _step(self, rho: Array, point: P, bend: Array) -> Array:
        free = ~self._outward(rho, point)
        step = np.zeros(len(rho))
        if free.any():
            values, vectors = np.linalg.eigh(bend[np.ix_(free, free)])
            least = max(1e-7 * np.abs(values).max(), np.finfo(np.float64).tiny)
            along = vectors.T @ point.gradient[free] / np.maximum(np.abs(values), least)
            down = (values < 0) & (np.abs(along) < self.stride)
            along[down] = np.copysign(self.stride, along[down])
            self.downhill = float(np.max(np.abs(along), where=values < 0, initial=0.0))
            step[free] = -vectors @ np.clip(along, -LONGEST, LONGEST)
        return step

    def _better(self, rho: Array, point: P, step: Array, bend: Array) -> tuple[Array, P] | None:
        """A place where the score is lower, and the score there."""
        slack = SLACK + point.noise
        tail = self._tail(rho, point, np.diagonal(bend))
        if tail.any():
            leap = np.where(tail, np.where(point.gradient < 0, self.upper, self.lower), rho + step)
            leap = np.clip(leap, self.lower, self.upper)
            found = self._try(rho, leap)
            self.leapt |= tail
            if (
                found is not None
                and found.value <= point.value + slack
                and self._outward(leap, found)[tail].all()
            ):
                return leap, found
        for trial in self._halved(rho, step):
            found = self._try(rho, trial)
            if found is not None and found.value <= point.value + slack:
                return trial, found
        return None

    def _tail(self, rho: Array, point: P, bend: Array) -> NDArray[np.bool_]:
        """Coordinates along which the score falls as C exp(−|ρ|) does, with little left to fall."""
        g = point.gradient
        length = np.abs(g) / np.where(bend > 0, bend, np.inf)
        near = (length > 0.6) & (length < 1.7) & (np.abs(g) < TAIL)
        return np.asarray(near & ~self.leapt & ~self._outward(rho, point))

    def _halved(self, rho: Array, step: Array) -> Iterator[Array]:
        for halving in range(HALVINGS):
            yield np.clip(rho + step * 0.5**halving, self.lower, self.upper)

    def _try(self, rho: Array, trial: Array) -> P | None:
        """The score at a place; where there is none, the bounds draw closer."""
        try:
            point = self.score(trial)
            if np.isfinite(point.value):
                return point
        except SingularSystemError:
            pass
        middle, far = (rho + trial) / 2, np.abs(trial - rho) >= 0.5 * np.max(np.abs(trial - rho))
        self.upper = np.where(far & (trial > rho), np.minimum(self.upper, middle), self.upper)
        self.lower = np.where(far & (trial < rho), np.maximum(self.lower, middle), self.lower)
        return None


def _gain(point: Point, step: Array) -> float:
    """Twice what a step of Newton's method promises."""
    return abs(float(point.gradient @ step))
