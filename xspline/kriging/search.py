"""The likeliest model of windows of the data: at one scale, or at two where the data say so."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import special

from xspline.kriging.likelihood import Windows
from xspline.kriging.model import Array, Model
from xspline.kriging.places import Places

#: Smoothness of the longer of two scales at least, as what is seen across gaps has slopes; and at most, of one of two
#: covariances that compete.
SLOPED = 1.5
SMOOTHEST = 8.0  # at most, of any field
ROUGHEST = 0.5
USUAL = 0.8
#: Noise over variance: at least, at most, and as likely as not at first.
NOISE = (1e-6, 1e3, 0.1)
#: Standard deviations of logarithms that are likely at first: lengths, shares, smoothness, noise; noise of very few
#: observations. With 1.5 for all, trends of 240 months with errors AR(1) .5 to .95 are covered in 90 %, as much red is
#: taken for noise; with 3 for all, a sine at 5 observations is covered in 83 % (`benchmarks coverage`).
LOOSE = (1.0, 1.5, 0.8, 3.0, 1.5)
#: Smoothness and noise that searches start from.
STARTS = ((0.5, 0.01), (3.0, 0.05))
#: By how much lengths of two scales start apart from those of one.
APART = ((0.5, 4.0), (0.2, 1.0), (0.1, 1.0))
#: Gain in log likelihood that each parameter of a second scale must bring.
WORTH = 2.0
#: Steps of a search at most.
STEPS = 30
#: Rise in log likelihood that ends a search where no more is promised: of those that choose where the last one starts,
#: and of the last one. With the first for both, noise of MODIS's surface temperature moved by 14 % where values were
#: rounded to float32 in other units, with these by 0.05 %.
ENOUGH = (0.01, 1e-5)
#: Models that are drawn from the prior, or about the likeliest one, where few data leave open which it is.
DRAWN, DRAWN_AROUND = 256, 32
#: Weights below this share of all are left out.
NEGLIGIBLE = 2e-3


class Evaluated(NamedTuple):
    """Parameters, −log of likelihood times prior, its gradient and the average information, with that of the prior."""

    x: Array
    value: float
    gradient: Array
    information: Array


@dataclass(frozen=True, eq=False)
class Prior:
    """What is likely of the logarithms of the parameters before data are seen: normal, within bounds.

    On a sphere the ratio of the length along its axis to that across it is independent of the latter, not the length.
    """

    mean: Array  # [parameters]
    root: Array  # [parameters, parameters], of their covariance, a lower triangle
    low: Array  # [parameters]
    high: Array  # [parameters]
    # [model parameters, parameters], 1 where a parameter of the model is this one: axes may share a length
    parts: Array
    scales: int
    lengths: int  # how many there are of each scale

    @classmethod
    def over(
        cls,
        metric: Array,
        span: Array,
        places: Places,
        scales: int,
        smoothest: float,
        least_noise: float,
        very_few: bool,
    ) -> Prior:
        """Return the prior of lengths between the widths of cells of one observation and the range of the data.

        `least_noise` is the logarithm of the share of variance that noise has at least.
        """
        links = places.links
        axes = [np.flatnonzero(links == i) for i in range(int(links.max()) + 1)]
        short = np.log([metric[own].mean() for own in axes])
        long = np.maximum(np.log([max(span[own].max(), 1e-300) for own in axes]), short)
        least = np.log(np.maximum(places.shortest or np.zeros(len(axes)), 1e-300))
        rows = []
        for q in range(scales):
            share = (q + 1) / (scales + 1)
            middle = (1 - share) * short + share * long
            bounds = zip(middle, short, long, least, strict=True)
            rows += [(max(m, c), LOOSE[0], max(a - 0.5, c), b + 3.5) for m, a, b, c in bounds]
        rows += [(-math.log(scales), LOOSE[1], -12.0, 3.0)] * scales
        for q in range(scales):
            rough = ROUGHEST if q == 0 else SLOPED
            rows.append((math.log(USUAL), LOOSE[2], math.log(rough), math.log(max(smoothest, rough))))
        lowest, most, usual = NOISE
        rows.append(
            (math.log(usual), LOOSE[4 if very_few else 3], max(math.log(lowest), least_noise), math.log(most))
        )
        mean, deviation, low, high = np.array(rows).T
        free, all_axes = len(axes), links.size
        parts, root = np.zeros((scales * all_axes + 2 * scales + 1, len(rows))), np.diag(deviation)
        for q in range(scales):
            parts[q * all_axes + np.arange(all_axes), q * free + links] = 1
            if places.on_sphere:
                root[q * free + 1, q * free] = LOOSE[0]
        parts[scales * all_axes :, scales * free :] = np.eye(2 * scales + 1)
        return cls(mean, root, low, high, parts, scales, free)

    def model(self, x: Array) -> Model:
        """Return the model of free parameters."""
        return Model.of(self.parts @ x, self.scales, (len(self.parts) - 2 * self.scales - 1) // self.scales)

    @property
    def starts(self) -> list[Array]:
        """What searches for one scale start from."""
        return [np.append(self.mean[: self.lengths + 1], np.log(start)) for start in STARTS]

    def evaluated(self, model: Model, windows: Windows) -> Evaluated:
        """Return what is likely of a model, with the parameters that are nearest to it."""
        x = np.linalg.lstsq(self.parts, model.parameters)[0]
        return self._at(np.clip(x, self.low, self.high), windows)

    def _at(self, x: Array, windows: Windows) -> Evaluated:
        """Return −log of likelihood times prior of parameters, its gradient, and the average information."""
        value, gradient, information = windows.value_and_derivatives(self.model(x))
        inverse = np.linalg.inv(self.root)
        away = inverse @ (x - self.mean)
        gradient = self.parts.T @ gradient + inverse.T @ away
        information = self.parts.T @ information @ self.parts + inverse.T @ inverse
        return Evaluated(x, value + 0.5 * float(away @ away), gradient, information)

    def from_starts(self, windows: Windows, starts: Sequence[Array] = ()) -> Evaluated:
        """Return the likeliest parameters that searches find from `starts`, by default from those for one scale."""
        return min((self.search(windows, x) for x in starts or self.starts), key=lambda found: found.value)

    def search(self, windows: Windows, start: Array, enough: float = ENOUGH[0]) -> Evaluated:
        """Return the likeliest parameters that Newton's method with average information finds from a start.

        Steps stay in a box about the parameters where they stand, at first as wide as the prior, which grows where the
        likelihood rises as was promised and shrinks where it does not, until a rise of less than `enough` is promised.
        """
        found, radius = self._at(np.clip(start, self.low, self.high), windows), 1.0
        for _ in range(STEPS):
            reach = radius * np.diagonal(self.root)
            low, high = np.maximum(self.low - found.x, -reach), np.minimum(self.high - found.x, reach)
            step = _lowest(found.gradient, found.information, low, high)
            promised = -float(found.gradient @ step + 0.5 * step @ found.information @ step)
            if promised < enough:
                # Taken unseen, so that parameters do not hang on which side of this the search ended.
                return found._replace(x=np.clip(found.x + step, self.low, self.high))
            trial = self._at(np.clip(found.x + step, self.low, self.high), windows)
            length = float(np.max(np.abs(step) / np.diagonal(self.root)))
            radius = max(radius, 2 * length) if found.value - trial.value > promised / 2 else length / 3
            found = min(found, trial, key=lambda point: point.value)
        return found

    def drawn(self, windows: Windows) -> list[tuple[float, Model]]:
        """Return models with weights that stand for all that few data leave possible: draws from the prior.

        Quasi-random draws, with the likelihood of each as its weight.
        """
        z = _normal_draws(DRAWN, self.mean.size)
        points = np.clip(self.mean + z @ self.root.T, self.low, self.high)
        models = [self.model(x) for x in points]
        return _weighted(models, -np.array([windows.value(model) for model in models]))

    def around(self, best: Evaluated, windows: Windows) -> list[tuple[float, Model]]:
        """Return models with weights, as `drawn`, from a normal approximation about the likeliest parameters."""
        values, vectors = np.linalg.eigh(best.information)
        z = _normal_draws(DRAWN_AROUND, best.x.size)
        points = np.clip(best.x + z @ (vectors / np.sqrt(values)).T, self.low, self.high)
        models = [self.model(x) for x in points]
        away = np.linalg.solve(self.root, (points - self.mean).T).T
        likely = -np.array([windows.value(model) for model in models])
        return _weighted(models, likely + 0.5 * np.sum(z * z - away * away, axis=1))


def _lowest(gradient: Array, curvature: Array, low: Array, high: Array) -> Array:
    """Return the step within a box that a quadratic function is lowest at."""
    from scipy.optimize import lsq_linear  # not above: it makes the import of the package longer

    root = np.linalg.cholesky(curvature)
    # SciPy's solver refuses a lower bound that equals the upper one.
    low, high = np.minimum(low, -1e-12), np.maximum(high, 1e-12)
    found = lsq_linear(root.T, np.linalg.solve(root, -gradient), (low, high), method="bvls")
    return np.asarray(found.x)


def _weighted(models: list[Model], logarithms: Array) -> list[tuple[float, Model]]:
    """Return models with weights that add up to 1; those that hardly count are left out."""
    weights = np.exp(logarithms - logarithms.max())
    kept = np.flatnonzero(weights > NEGLIGIBLE * weights.sum())
    return [(float(weights[i] / weights[kept].sum()), models[i]) for i in kept]


def _normal_draws(count: int, size: int) -> Array:
    """Return quasi-random normal numbers, [count, size]."""
    # Not above: its import takes as long as half of that of xarray.
    from scipy.stats import qmc

    return np.asarray(special.ndtri(qmc.Sobol(size, rng=0).random(count)))


def likeliest(
    few: Windows,
    all_windows: Windows,
    near: Windows | None,
    priors: tuple[Prior, Prior | None],
    likely: Evaluated,
    draw: bool,
) -> list[tuple[float, Model]]:
    """Return the likeliest model at one scale or two, or several with weights.

    Searches from several starts look at `few` windows, `likely` is what they find at one scale; the last ones look
    at all. Smoothness and noise of a rough field are then those of the windows `near`, without cells: the
    covariance of means over cells is right to .05. The `priors` are for one scale and two, None where data are too
    few. With `draw` there are several models, as few data leave open which it is.
    """
    (single, double), lengths = priors, priors[0].lengths

    def ended(prior: Prior, found: Evaluated) -> Evaluated:
        return prior.search(all_windows, found.x, ENOUGH[1])

    if double is None:
        prior, best = single, ended(single, likely)
    else:
        own, rest = likely.x[:lengths], likely.x[lengths:]
        halves = np.concatenate([np.repeat(rest[:1] - math.log(2), 2), np.repeat(rest[1:2], 2), rest[2:]])
        scales = [[own + math.log(x) for x in pair] for pair in APART]
        starts = [np.concatenate([*pair, halves]) for pair in scales]
        both = double.from_starts(few, starts)
        # What is seen across gaps has slopes. Where neither is longer along all coordinates, either may be rough.
        rough, sloped = double.model(both.x).lengths
        if not (sloped > rough).all():
            rest = both.x[2 * lengths :]
            swapped = np.concatenate([both.x[lengths : 2 * lengths], both.x[:lengths], rest[1::-1], rest[2:]])
            both = min(both, double.search(few, swapped), key=lambda found: found.value)
        worth = WORTH * (double.mean.size - single.mean.size)
        # All windows say more clearly what few say.
        if both.value < likely.value - worth:
            prior, best = double, ended(double, both)
        elif both.value > likely.value:
            prior, best = single, ended(single, likely)
        else:
            likely, both = ended(single, likely), ended(double, both)
            prior, best = (double, both) if both.value < likely.value - worth else (single, likely)
    if near is not None and prior.model(best.x).smoothness.max() < SLOPED + 1e-6:  # else cells tell as much
        known = np.arange(best.x.size) < best.x.size - prior.scales - 1
        low, high = (np.where(known, best.x, bounds) for bounds in (prior.low, prior.high))
        best = replace(prior, low=low, high=high).search(near, best.x, ENOUGH[1])
    return prior.around(best, all_windows) if draw else [(1.0, prior.model(best.x))]
