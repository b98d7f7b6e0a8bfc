"""How likely a model makes the data in windows of some hundred items, each at a scale of its own.

The restricted likelihood of a window y of m items with covariance s K, whose scale s the window itself decides, is

    −2 log L = log |K| + log |Xᵀ K⁻¹ X| + (m − p) log (yᵀ P y),      P = K⁻¹ − K⁻¹ X (Xᵀ K⁻¹ X)⁻¹ Xᵀ K⁻¹

(Patterson and Thompson 1971), where the columns of X are functions that were fitted before, if the window holds all
observations. So calm regions say as much about lengths as lively ones, and what the data's scale is comes afterwards.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import special
from scipy.linalg import lapack

from xspline.kriging.model import STEP, Model
from xspline.kriging.pyramid import Array, Index, Pyramid

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


@dataclass(frozen=True, eq=False)
class _Solved:
    """A window under a model: U with Uᵀ U = K, yᵀ P y, log |K| + log |Xᵀ K⁻¹ X|, m − p, P y, and V, P = K⁻¹ − V Vᵀ."""

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
        return np.diag(lapack.dpotri(self.root)[0])

    def residuals(self, window: Window, model: Model) -> tuple[Array, Array]:
        """Return leverages of observations, and the weighted squares of what the field leaves of them.

        The leverage of an observation is how much its prediction follows it: with K⁻¹ and the noise n of the model it
        is 1 − n (K⁻¹)_ii, and the residual is n (P y)_i.
        """
        observed, noise = window.levels == 0, model.noise / window.counts
        return (1 - noise * self.precisions)[observed], (window.counts * (noise * self.alpha) ** 2)[observed]

    def withheld(self, window: Window) -> Array:
        """Return errors of observations, each predicted from all others, over what is expected.

        With P = K⁻¹ less what fitted functions explain, the error of a withheld observation is (P y)_i/P_ii and its
        variance is s²/P_ii, where s² is the scale that the other observations have. Errors are quantiles of a normal
        distribution in place of those of Student's t.
        """
        inverse = self.precisions - np.sum(self.explained**2, axis=1)
        freedom = max(self.freedom - 1, 1)
        square = self.alpha**2 / inverse
        scale = np.maximum(self.misfit - square, np.finfo(float).tiny) / freedom
        normal = -special.ndtri(special.stdtr(freedom, -np.sqrt(square / scale)))
        return np.asarray((np.sign(self.alpha) * normal)[window.levels == 0])


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
        return sum(IMPOSSIBLE if solved is None else solved.value for _, solved in self._each(model))

    def value_and_gradient(self, model: Model) -> tuple[float, Array]:
        """Return −log L over all windows and its derivatives by the parameters of the model."""
        from xspline.kriging import compiled

        inverse, amplitude = model.between(self.spread)
        value, gradient = 0.0, np.zeros(model.parameters.size)
        for window, solved in self._each(model):
            if solved is None:
                return IMPOSSIBLE, gradient
            value += solved.value
            weights = lapack.dpotri(solved.root)[0].T
            if window.fitted is not None:
                weights -= solved.explained @ solved.explained.T
            weights -= np.outer(solved.freedom / solved.misfit * solved.alpha, solved.alpha)
            weights *= 0.5
            own = np.zeros(gradient.size)
            compiled.slopes(
                window.places, window.levels, window.counts, inverse, amplitude, model.smoothness, model.table,
                model.bend, STEP, weights, model.lengths, own,
            )  # fmt: skip
            own[-1] *= model.noise
            gradient += own
        return value, gradient

    def scales(self, model: Model) -> Array:
        """Return the scale that each window decides on, yᵀ P y/(m − p)."""
        return np.array([x.misfit / x.freedom for _, x in self._each(model) if x is not None])

    def residuals(self, model: Model) -> tuple[float, float]:
        """Return the mean leverage of observations, and the mean weighted square of what the field leaves of them."""
        parts = [x.residuals(window, model) for window, x in self._each(model) if x is not None]
        leverages, squares = (np.concatenate(column) for column in zip(*parts, strict=True))
        return float(np.mean(leverages)), float(np.mean(squares))

    def first(self, model: Model) -> tuple[float, float, float, Array]:
        """Return the scale, both of `residuals`, and errors of withheld observations, of the first window."""
        window, solved = next(self._each(model))
        if solved is None:
            return math.nan, math.nan, math.nan, np.full(int((window.levels == 0).sum()), np.nan)
        leverages, squares = solved.residuals(window, model)
        scale = solved.misfit / solved.freedom
        return scale, float(np.mean(leverages)), float(np.mean(squares)), solved.withheld(window)

    def _each(self, model: Model) -> Iterator[tuple[Window, _Solved | None]]:
        """Yield each window with its solution; None where its covariance is not positive definite to rounding."""
        from xspline.kriging import compiled

        inverse, amplitude = model.between(self.spread)
        for window in self.items:
            matrix = np.zeros((window.values.size,) * 2)
            compiled.covariances(
                window.places, window.levels, window.counts, inverse, amplitude,
                model.smoothness, model.table, STEP, model.noise, matrix,
            )  # fmt: skip
            root, info = lapack.dpotrf(matrix.T, lower=0, overwrite_a=1)
            yield window, None if info else _solved(root, window)


def _solved(root: Array, window: Window) -> _Solved:
    """Solve for what the fitted functions leave of the values of a window."""
    values, fitted = window.values, window.fitted
    freedom, determinant = values.size, 2 * float(np.log(np.diag(root)).sum())
    white = lapack.dtrtrs(root, values, trans=1)[0]
    explained = np.zeros((values.size, 0))
    if fitted is not None:
        basis, triangle = np.linalg.qr(lapack.dtrtrs(root, fitted, trans=1)[0])
        white = white - basis @ (basis.T @ white)
        explained = lapack.dtrtrs(root, basis)[0]
        freedom -= fitted.shape[1]
        tiny = np.finfo(float).tiny
        determinant += 2 * float(np.log(np.maximum(np.abs(np.diag(triangle)), tiny)).sum())
    alpha = lapack.dtrtrs(root, white)[0]
    least = float(np.finfo(float).tiny / np.finfo(float).eps)  # its inverse is a number
    return _Solved(root, max(float(white @ white), least), determinant, freedom, alpha, explained)


def lively(
    pyramid: Pyramid, candidates: Sequence[Index], number: int, rng: np.random.Generator
) -> list[Index]:
    """Return some of the candidates for windows: of those that vary as all data do half, and more that vary more."""
    variance = np.array([np.var(pyramid.values[i]) for i in candidates])
    share = variance / (variance + np.var(pyramid.values[: pyramid.count]))
    order = np.argsort(np.log(rng.random(share.size)) / np.maximum(share, np.finfo(float).eps))
    return [candidates[i] for i in order[::-1][:number]]


def local_scales(scales: Array, size: float) -> tuple[float, float]:
    """Return b and a of scales that differ from place to place like b a/χ²(a), given those of windows of some size.

    From the mean and the variance of their logarithms, of which chance in a window explains ψ'(size/2).
    """
    scales = scales[scales > 0]
    if scales.size == 0:
        return 0.0, UNIFORM
    logarithms, half = np.log(scales), size / 2
    mean = float(np.mean(logarithms)) - float(special.digamma(half)) + math.log(half)
    beyond = float(np.var(logarithms)) - float(special.polygamma(1, half))
    if scales.size == 1 or beyond < DIFFERENT:
        return math.exp(mean), UNIFORM
    # ψ'(a/2) = beyond, by Newton's method in log a from 2/a + 2/a² ≈ ψ'(a/2)
    freedom = (1 + math.sqrt(1 + 2 * beyond)) / beyond
    for _ in range(20):
        value = float(special.polygamma(1, freedom / 2))
        slope = float(special.polygamma(2, freedom / 2)) / 2
        freedom *= math.exp(np.clip((beyond - value) / (slope * freedom), -1, 1))
    return math.exp(mean + float(special.digamma(freedom / 2)) - math.log(freedom / 2)), freedom
