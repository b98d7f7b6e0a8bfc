"""The likeliest model of windows of the data: at one scale, or at two where the data say so."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import special

from xspline.kriging.likelihood import IMPOSSIBLE, Windows
from xspline.kriging.model import Model
from xspline.kriging.places import Places

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

Array = NDArray[np.float64]

#: Smoothness: at least; of the larger of two scales, as what is seen across gaps has slopes, and of one scale of local
#: windows at most; and at most where one window holds all observations.
ROUGHEST, SLOPED, SMOOTHEST = 0.5, 1.5, 8.0
#: Noise over variance: at least, as tables are right to 1e-7, and as likely as not at first.
NOISE = (1e-6, 0.1)
#: Standard deviations of the logarithms of smoothness and of noise; those of all others are 1, a factor of e. With 1.5
#: for noise, trends of 240 months with errors AR(1) .5 to .95 are covered in 90 %, as much red is taken for noise; with
#: 1 for smoothness the error among 30 values of an exponential covariance with noise of a tenth is a sixth larger
#: (`python -m benchmarks coverage`).
LOOSE = (0.8, 3.0)
#: Standard deviations, of what is likely at first, within which parameters are looked for.
FARTHEST = 5.0
#: Models that are drawn about the likeliest one, where few data leave open which it is.
DRAWN = 32


@dataclass(frozen=True, eq=False)
class Prior:
    """What is likely of the logarithms of the parameters before data are seen: normal, within bounds."""

    mean: Array  # [parameters]
    deviation: Array  # [parameters]
    low: Array  # [parameters]
    high: Array  # [parameters]
    # [model parameters, parameters], the logarithms of the parameters of the model are sums of these: of axes
    # that share a length there is one, and the length along the axis of a sphere is relative to that across it
    parts: Array
    scales: int

    @classmethod
    def over(
        cls,
        metric: Array,
        span: Array,
        places: Places,
        scales: int,
        smoothest: float,
        least_noise: float,
    ) -> Prior:
        """Return the prior of lengths between the widths of cells of one observation and the range of the data."""
        links = places.links
        axes = [np.flatnonzero(links == i) for i in range(int(links.max()) + 1)]
        free, all_axes, shapes = len(axes), links.size, slice(-1 - scales, -1)
        short = np.log([metric[own].mean() for own in axes])
        long = np.maximum(np.log([max(span[own].max(), np.finfo(float).tiny) for own in axes]), short)
        shares = np.arange(1, scales + 1)[:, None] / (scales + 1)
        lengths = (1 - shares) * short + shares * long
        if places.on_sphere:
            lengths[:, 1] -= lengths[:, 0]
        usual = math.sqrt(ROUGHEST * SLOPED)
        others = [1 / scales] * scales + [usual] * scales + [NOISE[1]]
        mean = np.concatenate([lengths.ravel(), np.log(others)])
        deviation = np.ones(mean.size)
        deviation[shapes], deviation[-1] = LOOSE
        low, high = mean - FARTHEST * deviation, mean + FARTHEST * deviation
        low[shapes] = np.log([ROUGHEST, SLOPED][:scales])
        high[shapes] = np.maximum(low[shapes], math.log(smoothest))
        low[-1] = max(math.log(NOISE[0]), least_noise)
        if places.is_round:
            high[1 : scales * free : free] = 0.0
        parts = np.zeros((scales * all_axes + 2 * scales + 1, mean.size))
        for q in range(scales):
            parts[q * all_axes + np.arange(all_axes), q * free + links] = 1
            if places.on_sphere:
                parts[q * all_axes + np.flatnonzero(links == 1), q * free] = 1
        parts[scales * all_axes :, scales * free :] = np.eye(2 * scales + 1)
        return cls(mean, deviation, low, high, parts, scales)

    def model(self, x: Array) -> Model:
        """Return the model of free parameters."""
        return Model.of(self.parts @ x, self.scales, (len(self.parts) - 2 * self.scales - 1) // self.scales)

    def objective(self, x: Array, windows: Windows) -> tuple[float, Array]:
        """Return −log of likelihood times prior, and its gradient."""
        value, gradient = windows.value_and_gradient(self.model(x))
        away = (x - self.mean) / self.deviation
        if value >= IMPOSSIBLE:
            return value, away / self.deviation
        return value + 0.5 * float(away @ away), self.parts.T @ gradient + away / self.deviation

    def search(self, windows: Windows, start: Array) -> OptimizeResult:
        """Return the likeliest parameters that a quasi-Newton method finds from a start."""
        from scipy.optimize import minimize  # not above: it makes the import of the package longer

        bounds = list(zip(self.low, self.high, strict=True))
        start = np.clip(start, self.low, self.high)
        return minimize(self.objective, start, (windows,), jac=True, method="L-BFGS-B", bounds=bounds)

    def around(self, best: Array, windows: Windows) -> list[tuple[float, Model]]:
        """Return models with weights that stand for all that few data leave possible.

        Quasi-random draws from a normal approximation about the likeliest parameters have the posterior over it as
        their weights.
        """
        # Not above: its import takes as long as half of that of xarray.
        from scipy.stats import qmc

        size, step = best.size, 1e-2
        curvature = np.zeros((size, size))
        for i in range(size):
            up, down = best.copy(), best.copy()
            up[i] += step
            down[i] -= step
            rise = self.objective(up, windows)[1] - self.objective(down, windows)[1]
            curvature[i] = rise / (2 * step)
        values, vectors = np.linalg.eigh((curvature + curvature.T) / 2)
        root = vectors / np.sqrt(np.maximum(values, 0.25 / np.max(self.deviation) ** 2))
        z = special.ndtri(qmc.Sobol(size, rng=0).random(DRAWN))
        points = np.clip(best + z @ root.T, self.low, self.high)
        models, away = [self.model(x) for x in points], (points - self.mean) / self.deviation
        likely = -np.array([windows.value(model) for model in models])
        weights = special.softmax(likely + 0.5 * np.sum(z * z - away * away, axis=1))
        return list(zip(weights.tolist(), models, strict=True))


def likeliest(
    few: Windows, everything: Windows, priors: Sequence[Prior], draw: bool
) -> list[tuple[float, Model]]:
    """Return the likeliest model by any of some priors, or several with weights.

    Searches start with `few` windows. With `draw` there are several models, as few data leave open which it is. Each
    parameter has to make the data by a factor of e more likely (Akaike 1974).
    """
    results = [prior.search(everything, prior.search(few, prior.mean).x) for prior in priors]
    costs = [float(own.fun) + prior.mean.size for own, prior in zip(results, priors, strict=True)]
    best = int(np.argmin(costs))
    prior, x = priors[best], results[best].x
    return prior.around(x, everything) if draw else [(1.0, prior.model(x))]
