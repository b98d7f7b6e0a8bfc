"""How likely a model makes the data in windows of some hundred items, each at a scale of its own.

The restricted likelihood of a window y of m items with covariance s K, whose scale s the window itself decides, is

    −2 log L = log |K| + log |Xᵀ K⁻¹ X| + (m − p) log (yᵀ P y),      P = K⁻¹ − K⁻¹ X (Xᵀ K⁻¹ X)⁻¹ Xᵀ K⁻¹

(Patterson and Thompson 1971), where the columns of X are functions that were fitted before, if the window holds all
observations. So calm regions say as much about lengths as lively ones, and what the data's scale is comes afterwards.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from scipy import special

from xspline.kriging.model import ItemCovariance, Model
from xspline.kriging.pyramid import Array, Index, Pyramid
from xspline.threads import ranges, run, single_threaded_blas, threads

T = TypeVar("T")

IMPOSSIBLE = 1e12  # −log L of a covariance that is not positive definite to rounding
UNIFORM = 1e4  # degrees of freedom of local scales that do not differ
DIFFERENT = 0.005  # variance of log scales beyond that of chance, below which they do not differ


class Window(NamedTuple):
    """Some items, with what was fitted before to all observations if these are all of them."""

    places: Array  # [m, D]
    levels: Index  # [m]
    counts: Array  # [m]
    values: Array  # [m]
    fitted: Array | None = None  # [m, p]

    @property
    def left(self) -> Array:
        """What the fitted functions leave of the values, without regard to their covariance."""
        if self.fitted is None:
            return self.values
        return np.asarray(self.values - self.fitted @ np.linalg.lstsq(self.fitted, self.values)[0])


@dataclass(frozen=True, eq=False)
class _Solved:
    """A window under a model: R with Rᵀ R = K⁻¹, yᵀ P y, log |K| + log |Xᵀ K⁻¹ X|, m − p, P y, V of P = K⁻¹ − V Vᵀ."""

    root: Array
    misfit: float
    determinant: float
    freedom: int
    alpha: Array
    explained: Array

    @property
    def value(self) -> float:
        """−log L of the window."""
        return 0.5 * (self.determinant + self.freedom * math.log(self.misfit))

    @functools.cached_property
    def precisions(self) -> Array:
        """The diagonal of K⁻¹."""
        return np.asarray(np.sum(self.root**2, axis=0))

    def residuals(self, window: Window, model: Model) -> tuple[Array, Array]:
        """Return leverages of observations, and the weighted squares of what the field leaves of them.

        The leverage of an observation is how much its prediction follows it: with K⁻¹ and the noise n of the model it
        is 1 − n (K⁻¹)_ii, and the residual is n (P y)_i.
        """
        observed, noise = window.levels == 0, model.noise / window.counts
        return (1 - noise * self.precisions)[observed], (window.counts * (noise * self.alpha) ** 2)[observed]

    def withheld(self, window: Window) -> tuple[Array, Array]:
        """Return errors of observations, each predicted from all others, over what is expected, and as they are.

        With P = K⁻¹ less what fitted functions explain, the error of a withheld observation is (P y)_i/P_ii and its
        variance is s²/P_ii, where s² is the scale that the other observations have. Errors are quantiles of a normal
        distribution in place of those of Student's t.
        """
        inverse = self.precisions - np.sum(self.explained**2, axis=1)
        freedom = max(self.freedom - 1, 1)
        square = self.alpha**2 / inverse
        # Of one value among equal ones the others have no scale beyond rounding.
        number = np.finfo(float)
        scale = np.maximum(self.misfit - square, max(number.eps * self.misfit, number.tiny)) / freedom
        beyond = special.stdtr(freedom, -np.sqrt(square / scale))
        normal = -special.ndtri(np.maximum(beyond, number.tiny))
        own = window.levels == 0
        return np.asarray((np.sign(self.alpha) * normal)[own]), np.asarray((self.alpha / inverse)[own])


@dataclass(frozen=True, eq=False)
class Windows:
    """Windows of the data."""

    spread: Array  # [L, D], variance of the places in a cell of each level
    items: list[Window]

    @classmethod
    def of(cls, pyramid: Pyramid, chosen: Sequence[Index]) -> Windows:
        """Return the windows of some items of a pyramid."""
        p = pyramid
        items = [Window(p.places[i], p.levels[i], p.counts[i], p.values[i]) for i in chosen]
        return cls(p.spread, items)

    def value(self, model: Model) -> float:
        """Return −log L over all windows."""
        values = self._each(model, lambda _, solved: solved.value)
        return sum(IMPOSSIBLE if value is None else value for value in values)

    def value_and_derivatives(self, model: Model) -> tuple[float, Array, Array]:
        """Return −log L over all windows, its derivatives by the parameters of the model, and the average information.

        That is the mean of the second derivatives of the data and of those that are expected, without what is small of
        them (Gilmour, Thompson and Cullis 1995): (wᵢᵀ P wⱼ − wᵢᵀ α αᵀ wⱼ/(m − p))/2 of each window, with α = P y/√s,
        its scale s = yᵀ P y/(m − p), and wᵢ = ∂K/∂θᵢ α. It has no negative eigenvalues.
        """
        size = model.parameters.size
        value, gradient, information = 0.0, np.zeros(size), np.zeros((size, size))
        sloped = model.between(self.spread)._replace(table=model.slopes)
        for part in self._each(model, functools.partial(_derivatives, model, sloped)):
            if part is None:
                return IMPOSSIBLE, np.zeros(size), np.zeros((size, size))
            value += part[0]
            gradient += part[1]
            information += part[2]
        return value, gradient, information

    def scales(self, model: Model) -> Array:
        """Return the scale that each window decides on, yᵀ P y/(m − p)."""
        scales = self._each(model, lambda _, solved: solved.misfit / solved.freedom)
        return np.array([scale for scale in scales if scale is not None])

    def first(self, model: Model) -> tuple[float, float, float, Array, Array]:
        """Return the scale, the means of both of `residuals` and both of `withheld`, of the first window."""
        window = self.items[0]
        solved = self._each(model, lambda _, solved: solved)[0]
        if solved is None:
            unknown = np.full(int((window.levels == 0).sum()), np.nan)
            return math.nan, math.nan, math.nan, unknown, unknown
        leverages, squares = solved.residuals(window, model)
        scale = solved.misfit / solved.freedom
        return scale, float(np.mean(leverages)), float(np.mean(squares)), *solved.withheld(window)

    @single_threaded_blas()
    def _each(self, model: Model, what: Callable[[Window, _Solved], T]) -> list[T | None]:
        """Return what is asked of each window; None where its covariance is not positive definite to rounding."""
        covariance = model.between(self.spread)
        out: list[T | None] = [None] * len(self.items)

        def piece(first: int, last: int) -> None:
            for i in range(first, last):
                solved = solved_window(self.items[i], covariance)
                out[i] = None if solved is None else what(self.items[i], solved)

        run(piece, [ranges(len(self.items), 2 * threads())])
        return out


def solved_window(window: Window, covariance: ItemCovariance) -> _Solved | None:
    """Solve for what the fitted functions leave of the values of a window."""
    from xspline.kriging import compiled

    values, fitted = window.values, window.fitted
    root = np.zeros((values.size, values.size))
    determinant = compiled.inverse_root(window.places, window.levels, window.counts, covariance, root)
    if not math.isfinite(determinant):
        return None
    freedom, white, explained = values.size, root @ values, np.zeros((values.size, 0))
    if fitted is not None:
        basis, triangle = np.linalg.qr(root @ fitted)
        white = white - basis @ (basis.T @ white)
        explained = root.T @ basis
        freedom -= fitted.shape[1]
        tiny = np.finfo(float).tiny
        determinant += 2 * float(np.log(np.maximum(np.abs(np.diag(triangle)), tiny)).sum())
    least = float(np.finfo(float).tiny / np.finfo(float).eps)  # its inverse is a number
    return _Solved(root, max(float(white @ white), least), determinant, freedom, root.T @ white, explained)


def _derivatives(
    model: Model, sloped: ItemCovariance, window: Window, solved: _Solved
) -> tuple[float, Array, Array]:
    """Return what a window adds to `Windows.value_and_derivatives`."""
    from xspline.kriging import compiled

    root, explained = solved.root, solved.explained
    gradient = np.zeros(model.parameters.size)
    products = np.zeros((gradient.size, window.values.size))
    alpha = solved.alpha / math.sqrt(solved.misfit / solved.freedom)
    weights = (root.T @ root - explained @ explained.T - np.outer(alpha, alpha)) / 2
    compiled.derivatives(
        window.places, window.levels, window.counts, sloped, weights, alpha, model.lengths, gradient, products
    )
    gradient[-1] *= model.noise
    products[-1] *= model.noise
    white, fitted, along = products @ root.T, products @ explained, products @ alpha
    information = white @ white.T - fitted @ fitted.T - np.outer(along, along) / solved.freedom
    return solved.value, gradient, information / 2


def varied(windows: Sequence[T], left: Callable[[T], Array], values: Array) -> list[T]:
    """Return the windows where what is `left` varies by more than rounding of `values`, or all where none does.

    A window of zeros alone, as there are in counts and in rain, is infinitely likely without noise, at any length.
    """
    least = math.sqrt(np.finfo(float).eps) * float(np.abs(values).max())
    return [window for window in windows if np.ptp(left(window)) > least] or list(windows)


def lively(
    pyramid: Pyramid, candidates: Sequence[Index], number: int, rng: np.random.Generator
) -> list[Index]:
    """Return some of the candidates for windows: of those that vary as all data do half, and more that vary more."""
    candidates = varied(candidates, lambda i: pyramid.values[i], pyramid.values)
    variance = np.array([np.var(pyramid.values[i]) for i in candidates])
    share = variance / (variance + np.var(pyramid.values[: pyramid.count]))
    order = np.argsort(np.log(rng.random(share.size)) / np.maximum(share, np.finfo(float).eps))
    return [candidates[i] for i in order[::-1][:number]]


def local_scales(scales: Array, size: float, least: float = DIFFERENT) -> tuple[float, float]:
    """Return b and a of scales that differ from place to place like b a/χ²(a), given those of windows of some size.

    From the mean and the variance of their logarithms, of which chance in a window explains ψ'(size/2). They do not
    differ where less than `least` is left of it.
    """
    scales = scales[scales > 0]
    if scales.size == 0:
        return 0.0, UNIFORM
    logarithms, half = np.log(scales), size / 2
    mean = float(np.mean(logarithms)) - float(special.digamma(half)) + math.log(half)
    beyond = float(np.var(logarithms)) - float(special.polygamma(1, half))
    if scales.size == 1 or beyond < least:
        return math.exp(mean), UNIFORM
    # ψ'(a/2) = beyond, by Newton's method in log a from 2/a + 2/a² ≈ ψ'(a/2)
    freedom = (1 + math.sqrt(1 + 2 * beyond)) / beyond
    for _ in range(20):
        value = float(special.polygamma(1, freedom / 2))
        slope = float(special.polygamma(2, freedom / 2)) / 2
        freedom *= math.exp(np.clip((beyond - value) / (slope * freedom), -1, 1))
    return math.exp(mean + float(special.digamma(freedom / 2)) - math.log(freedom / 2)), freedom
