"""Residuals against the errors that a fit assumes: their tails, their correlation, and whether they have one size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special
from scipy.fft import next_fast_len
from scipy.spatial import cKDTree

Array = NDArray[np.float64]
#: Residuals, at least, that say anything.
FEWEST = 20
#: The largest sample of residuals, or of draws: its standard deviation has a relative error of 0.2 %.
MOST = 100_000
#: The median of |u| of a normal distribution of variance 1.
MEDIAN = float(special.ndtri(0.75))
#: The probability of a false alarm in one question to clean data, by residuals or an equation.
CHANCE = 2e-3
#: Standard deviations from which a residual counts as far away.
FAR = 3.0
#: Standard deviations from which a difference is no noise.
SURELY = 5.0
#: A correlation of neighbours, and a ratio of standard deviations, below which nobody needs to act.
CORRELATED, UNEVEN = 0.1, 1.5
#: Parts of the range of a coordinate whose residuals are compared, and places that a sample comes from.
PARTS = 8


class Pairs(NamedTuple):
    """Residuals of neighbours: the sum of their products, the mean square, and the number of pairs."""

    product: float
    square: float
    number: int


def unsure(count: Any) -> Any:
    """Return twice the relative standard error of the median size of some residuals, 1.17/√n."""
    return 2 * 1.17 / np.sqrt(count)


def tails(u: Array, suspects: Array, count: int) -> dict[str, Any]:
    """Return how residuals compare with a normal distribution.

    Their tails are those of Student's t whose share beyond three standard deviations, which the median size tells, is
    that of the residuals, at the most that their number leaves open. Gross errors are those that even among so many of
    that distribution would not be seen; what only a normal distribution would not have is tails.

    `u` [n] is a sample at random, in units of standard deviations, and `suspects` [m] are the largest of `count`
    residuals. The result has ``far``, how many are gross; ``tails``, the share beyond three standard deviations where
    that or the largest is too large for a normal distribution, else 0; ``largest`` and the ``limit`` of what is
    expected; ``count``; whether residuals are ``skewed`` as those of rain or of a lognormal variable are; whether tails
    are ``heavy``, so that a robust fit is nearer; and whether they are ``spoilt``: they are not skewed, and far ones
    make most of their variance.
    """
    low, middle, high = np.quantile(u, [1 / 8, 1 / 2, 7 / 8])
    # Of octiles: 0.28 of lognormal values of σ = 0.5, 0.52 of σ = 1, up to 0.36 where a twentieth of the values, wrong
    # on one side, spoils a field. Its standard error is 1.07/√n.
    leaning = abs(low + high - 2 * middle) / max(high - low, np.finfo(float).tiny)
    u, suspects = np.abs(u), np.abs(suspects)
    sure = 1 + float(unsure(u.size))
    scale = max(float(np.median(u)) / MEDIAN, np.finfo(float).tiny)
    beyond = int(np.sum(suspects > FAR * scale * sure))
    chance = CHANCE / (2 * count)
    normal = -float(special.ndtri(chance))
    is_heavy = special.bdtrc(beyond - 1, count, 2 * special.ndtr(-FAR)) <= CHANCE
    is_heavy |= bool(np.any(suspects > normal * scale * sure))
    most = float(special.betaincinv(beyond + 1, max(count - beyond, 1), 0.975))
    # What Student's t exceeds with this chance, in standard deviations as its median size tells them. It has three
    # degrees of freedom or more, with which a share of it is beyond three: large errors are better called gross.
    freedom = np.geomspace(3.0, 200.0, 100)
    shares = 2 * special.stdtr(freedom, FAR / MEDIAN * special.stdtrit(freedom, 0.25))
    own = float(np.interp(-most, -shares, freedom))
    heavy = MEDIAN * float(special.stdtrit(own, chance) / special.stdtrit(own, 0.25))
    limit = max(heavy, normal)
    # The ratio of variances is 1.4 of Student's t of five degrees of freedom, 1.9 of Laplace's distribution.
    excess = float(np.mean(u**2)) / (scale * sure) ** 2
    spoilt = bool(is_heavy and leaning < 0.4 and excess > 3)
    return {
        "far": int(np.sum(suspects > limit * scale * sure)),
        "tails": beyond / count if is_heavy else 0.0,
        "largest": float(suspects.max(initial=0.0)) / scale,
        "limit": limit * sure,
        "count": int(count),
        "skewed": bool(leaning > 0.2 + 2 * 1.07 / math.sqrt(u.size) and not spoilt),
        "heavy": bool(is_heavy and excess > 1.9),
        "spoilt": spoilt,
    }


def grows(sizes: Array, values: Array) -> bool:
    """Return whether errors are the larger the larger the value is, as those of concentrations and of rain are.

    Their ranks are correlated then, by .3, which is four standard errors of 200 values, and values have a long upper
    tail: from their quantile of 5 % to that of 95 %, the median is less than three eighths of the way.
    """
    low, middle, high = np.quantile(values, [0.05, 0.5, 0.95])
    of_size, of_value = (np.argsort(np.argsort(x)) - (x.size - 1) / 2 for x in (sizes, values))
    is_long = middle - low < 3 / 8 * (high - low)
    return bool(is_long and of_size @ of_value > 0.3 * (of_size @ of_size))


def mostly_equal(values: Array) -> bool:
    """Return whether most values are one, as zeros of rain are, so that their residuals have no usual size."""
    return bool(2 * np.sum(values == np.median(values)) > values.size)


def correlation(pairs: list[Pairs]) -> float:
    """Return the correlation of the residuals of neighbours; 0 where it is small, or may be chance."""
    count = sum(own.number for own in pairs)
    square = sum(own.square * own.number for own in pairs)
    if square == 0:
        return 0.0
    value = sum(own.product for own in pairs) / square
    return value if value > max(CORRELATED, -special.ndtri(CHANCE / 4) / math.sqrt(count)) else 0.0


def along_axis(u: Array, axis: int) -> Pairs:
    """Return the pairs of neighbours along an axis of residuals, where NaN is missing.

    Where most have no neighbour, as weekly samples on an axis of days, the next one is taken, however far it is.
    """
    u = np.moveaxis(u, axis, 0)
    known = np.isfinite(u)
    first = u[:-1]
    if 2 * np.sum(known[:-1] & known[1:]) < known.sum() and len(u) > 1:
        rows = np.arange(len(u)).reshape(-1, *(1,) * (u.ndim - 1))
        latest = np.maximum.accumulate(np.where(known, rows, 0), axis=0)
        first = np.take_along_axis(u, latest, axis=0)[:-1]
    products = first * u[1:]
    both = np.isfinite(products)
    square = float(np.nansum(u**2)) / max(int(known.sum()), 1)
    return Pairs(float(np.sum(products[both])), square, int(both.sum()))


def lasting(innovations: list[Array]) -> float:
    """Return by what sums of errors vary more than their model says; 0 where that is little, or may be chance.

    `innovations` [steps, ...] are what the model leaves of each error from those before it, NaN where one is missing:
    independent if it is right. How they correlate over up to twelve steps tells (Ljung and Box 1978).
    """
    lags = np.arange(1 + min(12, len(innovations[0]) // 10))
    products = [[u[: len(u) - k] * u[k:] for k in lags] for u in innovations]
    counts = np.sum([[np.isfinite(x).sum() for x in own] for own in products], axis=0)
    if counts[0] < FEWEST or counts.min() == 0:
        return 0.0
    mean = np.sum([[np.nansum(x) for x in own] for own in products], axis=0) / counts
    r = mean[1:] / max(mean[0], np.finfo(float).tiny)
    times = 1 + 2 * float(r.sum())
    sure = r.size > 1 and special.chdtrc(r.size - 1, float(np.sum(counts[1:] * r**2))) <= CHANCE
    return times if sure and times > UNEVEN**2 else 0.0


def of_nearest(u: Array, points: Array, same: int | None = None) -> Pairs:
    """Return the pairs of points [n, d] and those nearest to them, in standard deviations along each axis.

    With `same` those nearest among the points that are equal along that axis. A pair counts once.
    """
    if u.size < FEWEST:
        return Pairs(0.0, 0.0, 0)
    spread = points.std(axis=0)
    scaled, limit = points / np.where(spread > 0, spread, 1.0), np.inf
    if same is not None:
        rank = np.unique(points[:, same], return_inverse=True)[1]
        scaled[:, same] = 0.0
        limit = 1.0 + float(np.linalg.norm(np.ptp(scaled, axis=0)))  # nothing is as far along the other axes
        scaled[:, same] = limit * rank
    distance, near = cKDTree(scaled).query(scaled, 2)
    second, first = near[:, 1], np.arange(u.size)
    is_pair = (distance[:, 1] > 0) & (distance[:, 1] < limit) & ((first < second) | (second[second] != first))
    if is_pair.sum() < FEWEST:
        return Pairs(0.0, 0.0, 0)
    square = float(np.mean(u**2 if same is None else u[is_pair] ** 2))
    return Pairs(float(u[is_pair] @ u[second[is_pair]]), square, int(is_pair.sum()))


def unevenness(columns: Mapping[str, Array], u: Array) -> dict[str, float]:
    """Return by coordinate how many times larger residuals are in one part of its range than in another.

    Only where that is no chance, by an analysis of variance of their sizes (Levene 1960).
    """
    uneven = {}
    size = np.minimum(np.abs(u), FAR)
    for name, x in columns.items():
        if size.size < PARTS * FEWEST or np.ptp(x) == 0:
            continue
        edges = np.unique(np.quantile(x, np.linspace(0, 1, PARTS + 1)[1:-1]))
        part = np.searchsorted(edges, x, side="right")
        groups = [group for k in np.unique(part) if (group := size[part == k]).size >= FEWEST]
        if len(groups) < 2:
            continue
        medians = [float(np.median(group)) for group in groups]
        ratio = max(medians) / max(min(medians), np.finfo(float).tiny)
        if ratio > UNEVEN:
            from scipy.stats import f_oneway  # only here: its import takes as long as half of that of xarray

            if float(f_oneway(*groups).pvalue) < CHANCE / 100:
                uneven[name] = ratio
    return uneven


def cycles(x: Array, values: Array) -> list[float]:
    """Return the periods of sines along x that most of the values is made of, the largest first; else none.

    The largest peak of the periodogram (Lomb 1976) is taken out, then the next, while each is more than a tenth of what
    is left. Each has ten periods in the record, as slow noise has peaks too, and is no faster than labels tell. Sines
    of either half have to predict the other, as waves of weather do not.
    """
    labels, of, counts = np.unique(x, return_inverse=True, return_counts=True)
    if labels.size < PARTS * FEWEST:
        return []
    sums, total, t = np.bincount(of, values), float(values @ values), labels - labels[0]
    remaining, left = sums, total
    step = max(float(np.median(np.diff(labels))), t[-1] / MOST)
    cells = np.rint(t / step).astype(np.int64)
    size = next_fast_len(4 * int(cells[-1]), real=True)
    first, last = (math.ceil(f * size * step) for f in (10 / t[-1], 0.5 / step))
    periods: list[float] = []
    for _ in range(PARTS):
        power = np.abs(np.fft.rfft(np.bincount(cells, remaining), size))[first:last]
        if not power.any():
            break
        near = (first + int(np.argmax(power)) + np.linspace(-1, 1, 41)) / (size * step)
        waves = np.stack([wave(2 * np.pi * near[:, None] * t) for wave in (np.cos, np.sin)], axis=1)
        inverse = np.linalg.pinv((waves * counts) @ waves.swapaxes(1, 2), hermitian=True)
        sine = (inverse @ (waves @ remaining)[..., None])[..., 0]
        explained = np.sum(sine * (waves @ remaining), axis=1)
        best = int(np.argmax(explained))
        if explained[best] < CORRELATED * left:
            break
        left -= float(explained[best])
        remaining = remaining - counts * (sine[best] @ waves[best])
        periods.append(1 / float(near[best]))
    if total < UNEVEN**2 * left or not periods:
        return []
    phases = 2 * np.pi * t[:, None] / periods
    design = np.concatenate([np.cos(phases), np.sin(phases)], axis=1) * np.sqrt(counts)[:, None]
    means, is_first = sums / np.sqrt(counts), t < t[-1] / 2
    for known, other in ((is_first, ~is_first), (~is_first, is_first)):
        errors = means[other] - design[other] @ np.linalg.lstsq(design[known], means[known])[0]
        if means[other] @ means[other] < UNEVEN**2 * (errors @ errors):
            return []
    return periods


def one_place(x: Array) -> float:
    """Return the distance up to which labels are one: those of two files may be rounded to float32 in one of them."""
    return 8 * float(np.finfo(np.float32).eps) * float(np.ptp(x)) if x.size else 0.0


def copies(points: Array, values: Array) -> NDArray[np.bool_]:
    """Return which observations are records that are there before, at equal points [n, d] with equal values.

    Where most values at equal points differ, as those of repeated measurements do, equal ones are chance.
    """
    again = np.zeros(values.size, np.bool_)
    if values.size < 2:
        return again
    step = np.array([one_place(x) or 1.0 for x in points.T])
    order = np.lexsort((values, *np.round(points / step).T))
    same_place = np.all(np.abs(np.diff(points[order], axis=0)) <= step, axis=1)
    scale = float(np.max(np.abs(values)))
    same = same_place & (np.abs(np.diff(values[order])) <= 4 * float(np.finfo(np.float32).eps) * scale)
    again[order[1:]] = same & (2 * same.sum() > same_place.sum())
    return again
