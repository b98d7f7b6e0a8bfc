"""The likeliest field that neighbours tell, of observations in memory or of a sample, and its calibration."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from xspline.kriging.likelihood import UNIFORM, Window, Windows, lively, local_scales, varied
from xspline.kriging.model import Model
from xspline.kriging.nearby import (
    DENSE,
    NEIGHBOURS,
    NORMAL,
    TAKEN,
    Calibration,
    Nearby,
    cells_beyond,
    pyramid_of,
)
from xspline.kriging.places import Places
from xspline.kriging.pyramid import Array, Grid, Index, Level, Near, Pyramid, metric_of
from xspline.kriging.search import SLOPED, SMOOTHEST, WORTH, Prior, likeliest

#: Items of windows: half of these see only observations, half all levels.
WINDOWS = ((96,), (36, 24, 24, 24))
#: Windows: of a search that starts, and at most in all; candidates for each.
FEW, MANY, CANDIDATES = 24, 120, 4
#: Observations of the only window, up to which searches start with it, of more with small windows, and up to which what
#: the likelihood leaves open is integrated over: by the likeliest model alone, trends of 240 months with errors AR(1)
#: .95 are covered in 90 %.
SMALL = 300
#: Observations from which there may be two scales.
TWO = 200
#: Observations, up to which any model that is likely before data are seen has its weight.
VERY_FEW = 40
#: Observations that are predicted from others, and beyond which distances, in widths of a cell of one observation; the
#: first leaves out the observation alone.
WITHHELD, DISTANCES = 800, (2.0**-52, 2.0, 6.0, 18.0)
#: Parts of these, from the calmest neighbours to the liveliest.
QUARTERS = 4


class Observed(NamedTuple):
    """Observations of one member of a batch."""

    coordinates: Array  # [n, d]
    values: Array  # [n], what is left of the data by what was fitted before
    weights: Array  # [n], relative precisions, before any are joined of mean 1
    joined: tuple[float, float] = (1.0, 0.0)  # as `Nearby` has it

    def in_order(self, places: Places) -> Observed:
        """Return them in an order that does not depend on the one that they came in, with weights of mean 1."""
        along = places.directed(self.coordinates)[:, list(places.order)]
        order = np.lexsort((self.weights, self.values, *along.T))
        weights = self.weights[order] / self.weights.mean()
        return Observed(self.coordinates[order], self.values[order], weights)

    @property
    def rank(self) -> tuple[int, float]:
        """What members of a batch are sorted by: those of more observations first, then those that vary more.

        So nothing that is decided by the largest member, or by some of many, depends on the order of the batch.
        """
        return -self.values.size, -float(self.weights @ self.values**2)

    def at_few_places(self) -> Observed:
        """Return observations, those of each place as two means where so many are repeated at few places.

        All neighbours of a place would be observations of it otherwise. What the two differ by tells of the noise.
        """
        count = self.values.size
        is_next = np.append(True, (self.coordinates[1:] != self.coordinates[:-1]).any(axis=1))
        # With four of each place the hundred nearest are still those of 25 places.
        if count <= DENSE or is_next.sum() > count / 4:
            return self
        half = np.random.default_rng(0).integers(0, 2, count)
        _, first, own = np.unique(2 * np.cumsum(is_next) + half, return_index=True, return_inverse=True)
        weights = np.bincount(own, self.weights).astype(np.float64)
        values = np.bincount(own, self.weights * self.values) / weights
        within = float(np.mean(self.weights * (self.values - values[own]) ** 2))
        return Observed(self.coordinates[first], values, weights, (count / weights.size, within))


def as_one(members: Sequence[Observed], places: Places) -> float:
    """Return how many observations vary as one, of the largest member of a batch.

    It is the variance of sums over the largest cells, beside that of sums of as many independent observations.
    """
    coordinates, values, weights, _ = members[0]
    if values.size <= DENSE:
        return 1.0
    at = places(coordinates)
    some = np.sort(np.random.default_rng(0).permutation(values.size)[:TAKEN])  # enough for the shape of cells
    # What varies as one is seen at any width: wider cells make season and trend of the README's field rougher.
    metric = metric_of(at[some], values[some], places.links, is_round=places.is_round, limited=False)
    grid = Grid(metric * (some.size / values.size) ** (1 / places.coordinates), at.min(axis=0))
    each = Level.of(at, values, weights)
    cells = (cells_beyond(each, grid) or [each.grouped(grid, 1)])[-1]
    return max(float(np.sum((cells.counts * cells.values) ** 2) / (weights @ values**2)), 1.0)


def likelier(member: Observed, ways: Sequence[Places], rows_of: Callable[[Array], Array | None]) -> Places:
    """Return in which of several ways coordinates become places so that observations are likeliest, at one scale.

    Windows are the same for all ways. `rows_of` is as for :func:`fit`.
    """
    if len(ways) == 1:
        return ways[0]
    count, rows = member.values.size, rows_of(member.coordinates)
    windows = [np.arange(count)]
    unlikely: list[float] = []
    for places in ways:
        at = places(member.coordinates)
        metric = metric_of(at, member.values, places.links, is_round=places.is_round)
        if count > SMALL and not unlikely:
            centres = np.random.default_rng(0).permutation(count)[:FEW]
            windows = list(cKDTree(at / metric).query(at[centres] / metric, WINDOWS[0][0])[1])
        own = (None if rows is None else rows[i] for i in windows)
        items = [
            Window(at[i], np.zeros_like(i), member.weights[i], member.values[i], row)
            for i, row in zip(windows, own, strict=True)
        ]
        prior = Prior.over(metric, np.ptp(at, axis=0), places, 1, SMOOTHEST, -math.inf, count <= VERY_FEW)
        levels = Windows(np.zeros((1, at.shape[1])), varied(items, lambda w: w.left, member.values))
        unlikely.append(prior.from_starts(levels).value)
    return ways[int(np.argmin(unlikely))]


def fit(
    members: Sequence[Observed],
    places: Places,
    steps: Array,
    rows_of: Callable[[Array], Array | None],
    least_noise: float = 0.0,
    windows: int = MANY,
) -> list[Nearby]:
    """Return the fields of some members of a batch, which share their covariance up to its scale if they are alike.

    A member whose observations are likelier by another covariance has one of its own; of many members, and of very few
    observations, all share it. Members are sorted by their rank, and each has three observations or more, which differ,
    and weights of mean 1.
    `steps` [d] is the distance between labels along each coordinate. `rows_of` returns the functions [n, p] that were
    fitted before, given the coordinates of few observations, and None of many. `least_noise` is the variance that
    noise has at least, as rounding has, and `windows` how many are looked at.
    """
    shared = _fit_alike(members, places, steps, rows_of, least_noise, windows)
    if not 1 < len(members) <= FEW:
        return shared
    each = max(windows // len(members), FEW + 1)

    def own(member: Observed, field: Nearby) -> Nearby:
        if field.pyramid.count <= VERY_FEW or not _differs(field, least_noise, each):
            return field
        return _fit_alike([member], places, steps, rows_of, least_noise, each)[0]

    return [own(*pair) for pair in zip(members, shared, strict=True)]


def _differs(field: Nearby, least_noise: float, windows: int) -> bool:
    """Return whether observations are likelier by another covariance, as clearly as a second scale has to be."""
    pyramid, places, model = field.pyramid, field.places, field.likeliest
    looked_at, *_ = _windows([pyramid], [field.rows], [np.arange(pyramid.count)], windows)
    values, span = pyramid.values[: pyramid.count], np.ptp(pyramid.places[: pyramid.count], axis=0)
    floor = math.log(max(least_noise / float(np.var(values)), 1e-300))
    smoothest = max(SLOPED, float(model.smoothness.max()))
    prior = Prior.over(pyramid.metric, span, places, len(model.variances), smoothest, floor, False)
    here = prior.evaluated(model, looked_at)
    return here.value - prior.search(looked_at, here.x).value > WORTH * here.x.size


def _fit_alike(
    members: Sequence[Observed],
    places: Places,
    steps: Array,
    rows_of: Callable[[Array], Array | None],
    least_noise: float,
    windows: int,
) -> list[Nearby]:
    """Return the fields of members that share their covariance up to its scale, as :func:`fit`.

    Of several likely covariances it is the one that predicts withheld observations of the largest member best.
    """
    at = places(members[0].coordinates)
    metric = metric_of(at, members[0].values, places.links, is_round=places.is_round)
    pyramids = [pyramid_of(*member[:3], places, metric) for member in members]
    rows = [rows_of(member.coordinates) for member in members]
    variance = float(np.mean([np.var(member.values) for member in members]))
    floor = math.log(max(least_noise / variance, 1e-300))
    inner = [np.arange(p.count) for p in pyramids]

    def field(i: int, own: _Chosen) -> Nearby:
        if pyramids[i].count <= DENSE:  # All observations are neighbours, and these alone tell the scale.
            own = own._replace(scale=0.0, freedom=0.0, usual_scale=0.0)
        elif len(members) > 1:  # They share a covariance up to its scale: noise and what is left are of each.
            *_, sampled = _windows(pyramids[i : i + 1], rows[i : i + 1], inner[i : i + 1], FEW)
            scale = float(sampled.scales(own.models[0][1]).mean())
            own = own._replace(usual_scale=scale)
        coordinates, joined = members[i].coordinates, members[i].joined
        return Nearby(places, pyramids[i], *own, coordinates, rows[i], steps, joined=joined)

    choices = _choices(pyramids, rows, inner, places, np.ptp(at, axis=0), floor, windows)
    chosen, best = _best([field(0, own) for own in choices], inner[0])
    others = (_best([field(i, choices[chosen])], inner[i])[1] for i in range(1, len(members)))
    return [best, *others]


def fit_sample(
    sample: Pyramid,
    coordinates: Array,
    inner: int,
    places: Places,
    steps: Array,
    least_noise: float,
    windows: int,
    sampled: Array,
) -> Nearby:
    """Return a field of observations that are not all in memory, of which a sample tells.

    `sample` holds some observations, more than one window, with cells of all of them; `coordinates` [n, d] are those
    of these observations, of which the `inner` first have all of their neighbours in the sample. The rest is as for
    :func:`fit` and `Nearby`.
    """
    floor = math.log(max(least_noise / float(np.var(sample.values[: sample.count])), 1e-300))
    span, own = np.ptp(places(sampled), axis=0), np.arange(inner)
    choices = _choices([sample], [None], [own], places, span, floor, windows)
    fields = [
        Nearby(places, sample, *chosen, coordinates, None, steps, sampled=sampled, inner=inner)
        for chosen in choices
    ]
    return _best(fields, own)[1]


def in_neighbourhoods(pyramid: Pyramid, inner: Index) -> Array:
    """Return which items are neighbours of some observations, as the functions here ask for these, or are of these."""
    marked = np.zeros(pyramid.values.size, bool)
    marked[inner] = True
    withheld = [(NEIGHBOURS, distance) for distance in DISTANCES]
    for wanted, beyond in (*((wanted, -1.0) for wanted in WINDOWS), *withheld):
        chosen, filled = pyramid.neighbours(pyramid.places[inner], wanted, beyond)
        marked[chosen[np.arange(chosen.shape[1]) < filled[:, None]]] = True
    return marked


class _Chosen(NamedTuple):
    """Models, the scale and its freedom, and the usual scale, as `Nearby` has them."""

    models: tuple[tuple[float, Model], ...]
    scale: float
    freedom: float
    usual_scale: float


def _choices(
    pyramids: Sequence[Pyramid],
    rows: Sequence[Array | None],
    inner: Sequence[Index],
    places: Places,
    span: Array,
    floor: float,
    windows: int,
) -> list[_Chosen]:
    """Return the covariance that windows make likely; of many observations a smooth one beside it, if that is likelier.

    A smooth one is looked for in all windows where few make it likelier.
    """
    largest = pyramids[0]
    dense, count = largest.count <= DENSE, sum(p.count for p in pyramids)
    very_few, metric = largest.count <= VERY_FEW, largest.metric
    few, most, sampled = _windows(pyramids, rows, inner, windows)
    near = None if dense else replace(most, items=[w for w in most.items if not w.levels.any()])
    choices = list[_Chosen]()
    kinds = [(SLOPED, True), (SMOOTHEST, False)][: 1 + (windows > FEW)]
    for smoothest, may_be_two in [(SMOOTHEST, count >= TWO)] if dense else kinds:
        single, double = (Prior.over(metric, span, places, q, smoothest, floor, very_few) for q in (1, 2))
        if very_few:
            found = single.drawn(most)
        else:
            likely = single.from_starts(few)
            if choices and few.value(single.model(likely.x)) >= few.value(choices[0].models[0][1]):
                break
            priors = (single, double if may_be_two else None)
            found = likeliest(few, most, near, priors, likely, count <= SMALL)
        if choices and most.value(found[0][1]) >= most.value(choices[0].models[0][1]):
            break
        scales = sampled.scales(found[0][1])
        scale, freedom = local_scales(scales, float(np.mean([len(w.values) for w in sampled.items])))
        choices.append(_Chosen(tuple(found), scale, freedom, float(scales.mean())))
    return choices


def _best(fields: Sequence[Nearby], inner: Index) -> tuple[int, Nearby]:
    """Return which of several fields of the same observations predicts these best, and the field with its calibration.

    Some observations are withheld, and predicted from others that are at least as far away as each of `DISTANCES`.
    """
    if fields[0].is_dense:
        return 0, fields[0]
    shuffled, p = np.random.default_rng(1).permutation(inner), fields[0].pyramid
    withheld = list[_Withheld]()
    for distance in DISTANCES:
        # Most places that are asked for are among observations: of these, quantiles are known twice as well.
        own = shuffled[: 4 * WITHHELD if distance < 1 else WITHHELD]
        near = p.neighbours(p.places[own], NEIGHBOURS, distance)
        if near[1].min() == 0:
            break
        withheld.append(_Withheld(distance < 1, own, near))
    tried = [_calibrated(field, withheld) for field in fields]
    best = int(np.argmin([wrong for wrong, _ in tried]))
    return best, tried[best][1]


class _Withheld(NamedTuple):
    """Observations that are predicted from others."""

    alone: bool  # whether nothing but the observation itself is withheld
    own: Index  # which these are
    near: Near  # the neighbours of each


def _calibrated(field: Nearby, withheld: Sequence[_Withheld]) -> tuple[float, Nearby]:
    """Return how wrong a field is of withheld observations, and the field with its calibration.

    How wrong it is, is the sum over distances of the logarithm of the mean absolute error; observations that are
    withheld alone count as much as all others. The calibration compares the quantile of 95 % of errors, over their
    standard deviations, with that of a normal distribution. Where scales of neighbours differ, each quarter of the
    observations, from calm to lively, has a calibration of its own: at an ice edge errors are longer than those of a
    model that calm water decides, and calm water's are shorter.
    """
    p, wrong, knots, residuals = field.pyramid, 0.0, [], field.usual_residuals
    # Of fewer than 20 errors, none is among the largest 5 %.
    fewest = min((own.size for _, own, _ in withheld), default=0)
    number = min(QUARTERS, max(fewest // 20, 1)) if field.freedom < UNIFORM else 1
    for alone, own, near in withheld:
        combined = field.combined(near, p.places[own, None], np.ones(1), np.arange(own.size + 1), True)
        noise = field.noise_share * combined.scale / p.counts[own]
        away = np.abs(p.values[own] - combined.mean)
        weight = 1.0 if alone else 1 / (len(DISTANCES) - 1)
        wrong += weight * math.log(max(float(away.mean()), 1e-300))
        error = away / np.sqrt(combined.variance + noise)
        share = combined.variance / (combined.variance + noise)
        if alone:  # An observation takes this share of its error into the field when it is not withheld.
            residuals = float(share.mean()), float(np.mean(p.counts[own] * (away * (1 - share)) ** 2))
        parts = np.array_split(np.argsort(combined.scale), number)
        for part in parts:
            beyond = (float(np.quantile(error[part], 0.95)) / NORMAL) ** 2 - 1
            # Gaps have other shapes than these: errors across are shortened by a third of what is said (RESULTS.md).
            beyond = beyond if alone or beyond > 0 else beyond / 3
            longer = math.log(max(1 + beyond, np.finfo(float).eps)) / 2
            # Single missing values have factors of their own: nine in ten know as much as this.
            left = np.quantile(combined.left[part], 0.9 if alone else 0.5)
            scale, of_field = np.median(combined.scale[part]), max(float(np.median(share[part])), 1e-12)
            knots.append((math.log(max(left, 1e-12)), math.log(max(scale, 1e-300)), longer, of_field))
    if not knots:
        return wrong, field
    by_quarter = np.array(knots).reshape(-1, number, 4).swapaxes(0, 1)  # [quarter, knot, 4], near to far
    order = np.argsort(by_quarter[..., 0], axis=1, kind="stable")
    by_quarter = np.take_along_axis(by_quarter, order[..., None], axis=1)
    calibration = Calibration(*np.moveaxis(by_quarter, -1, 0))
    return wrong, replace(field, calibration=calibration, usual_residuals=residuals)


def _windows(
    pyramids: Sequence[Pyramid], rows: Sequence[Array | None], inner: Sequence[Index], number: int
) -> tuple[Windows, Windows, Windows]:
    """Return windows for searches that start, for those that end, and as a sample of all.

    Of small data each member is a window.
    """
    rng = np.random.default_rng(0)
    sampled = rng.permutation(len(pyramids))[:FEW]
    largest = pyramids[0]
    own = ((pyramids[i], rows[i]) for i in sampled)
    everything = [Window(p.places, p.levels, p.counts, p.values, row) for p, row in own]
    dense = largest.count <= DENSE
    if dense and largest.count <= SMALL:
        return (Windows(largest.spread, everything),) * 3
    kinds = WINDOWS[:1] if dense else WINDOWS
    each = -(-number // len(sampled))
    small, wide = [], []
    for i in sampled:
        p = pyramids[i]
        centres = p.places[rng.permutation(inner[i])[: CANDIDATES * each]]
        parts = np.array_split(centres, len(kinds))
        lists = [p.lists(part, wanted) for part, wanted in zip(parts, kinds, strict=True)]
        chosen = [lively(p, own, -(-each // len(kinds)), rng) for own in lists]
        mixed = [i for pair in itertools.zip_longest(*chosen) for i in pair if i is not None]
        small += Windows.of(p, mixed).items
        wide += Windows.of(p, lists[-1]).items
    sets = (small[:FEW], everything, everything) if dense else (small[:FEW], small, wide)
    few, most, sample = (Windows(largest.spread, items) for items in sets)
    return few, most, sample
