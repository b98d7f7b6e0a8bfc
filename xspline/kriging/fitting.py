"""The likeliest field that neighbours tell, of observations in memory or of a sample, and its calibration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from xspline.kriging.likelihood import Window, Windows, local_scales
from xspline.kriging.model import Model
from xspline.kriging.nearby import NORMAL, Nearby, pyramid_of
from xspline.kriging.places import Places
from xspline.kriging.pyramid import DENSE, NEIGHBOURS, WIDER, Array, Pyramid, metric_of
from xspline.kriging.search import SLOPED, SMOOTHEST, Prior, likeliest

#: Items of windows, of each level: half of what a place has as neighbours.
WINDOW = tuple(number // 2 for number in NEIGHBOURS)
#: Windows of a search that starts.
FEW = 24
#: Observations of the only window, up to which searches start with it, of more with small windows, and up to which what
#: the likelihood leaves open is integrated over: by the likeliest model alone, trends of 240 months with errors AR(1)
#: .95 are covered in 90 %. Of more there may be two scales.
SMALL = 300
#: Observations that are predicted from others.
WITHHELD = 400
#: Beyond which distances, in widths of a cell of one observation: the first leaves out the observation alone.
DISTANCES = (float(np.finfo(float).eps), *(2.0 * WIDER**level for level in range(len(NEIGHBOURS) - 1)))


class Observed(NamedTuple):
    """Observations of one member of a batch."""

    coordinates: Array  # [n, d]
    values: Array  # [n], what is left of the data by what was fitted before
    weights: Array  # [n], relative precisions of mean 1
    rows: Array | None  # [n, p], the functions that were fitted before

    def in_order(self) -> Observed:
        """Return them in an order that does not depend on the one that they came in."""
        order = np.lexsort((self.values, *self.coordinates.T))
        return Observed(
            self.coordinates[order],
            self.values[order],
            self.weights[order],
            None if self.rows is None else self.rows[order],
        )


def fit(
    members: Sequence[Observed], places: Places, steps: Array, least_noise: float, windows: int
) -> list[Nearby]:
    """Return the fields of some members of a batch, which share their covariance up to its scale.

    Each member has three observations or more, which differ, and weights of mean 1. `steps` [d] is the distance
    between labels along each coordinate, `least_noise` the variance that noise has at least, as rounding has, and
    `windows` how many are looked at.
    """
    members = [member.in_order() for member in members]
    largest = max(members, key=lambda member: member.values.size)
    at, links = places(largest.coordinates), places.links
    metric = metric_of(at, largest.values, links, is_round=places.is_round)
    pyramids = [pyramid_of(*member[:3], places, metric) for member in members]
    rows = [member.rows if member.values.size <= DENSE else None for member in members]
    variance = float(np.mean([np.var(member.values) for member in members]))
    floor = math.log(max(least_noise / variance, 1e-300))
    chosen = _chosen(pyramids, rows, places, np.ptp(at, axis=0), floor, windows)
    fields = []
    for member, pyramid, own in zip(members, pyramids, rows, strict=True):
        # Where all observations are neighbours, these alone tell the scale.
        shared = chosen if pyramid.count > DENSE else chosen._replace(scale=0.0, freedom=0.0, usual_scale=0.0)
        nearby = Nearby(places, pyramid, *shared, member.coordinates, own, steps)
        fields.append(nearby if nearby.is_dense else _calibrated(nearby))
    return fields


def fit_sample(
    sample: Pyramid,
    coordinates: Array,
    places: Places,
    steps: Array,
    least_noise: float,
    windows: int,
    sampled: Array,
) -> Nearby:
    """Return a field of observations that are not all in memory, of which a sample tells.

    `sample` holds some observations, more than one window, with cells of all of them; `coordinates` [n, d] are those
    of these observations. The rest is as for :func:`fit` and `Nearby`.
    """
    floor = math.log(max(least_noise / float(np.var(sample.values[: sample.count])), 1e-300))
    chosen = _chosen([sample], [None], places, np.ptp(places(sampled), axis=0), floor, windows)
    return _calibrated(Nearby(places, sample, *chosen, coordinates, None, steps, sampled=sampled))


class _Chosen(NamedTuple):
    """Models, the scale and its freedom, the usual scale, and the usual residuals, as `Nearby` has them."""

    models: tuple[tuple[float, Model], ...]
    scale: float
    freedom: float
    usual_scale: float
    usual_residuals: tuple[float, float]


def _chosen(
    pyramids: Sequence[Pyramid],
    rows: Sequence[Array | None],
    places: Places,
    span: Array,
    floor: float,
    windows: int,
) -> _Chosen:
    """Return the covariance that windows around some observations of each pyramid make likely."""
    largest = max(pyramids, key=lambda pyramid: pyramid.count)
    dense, count = largest.count <= DENSE, sum(p.count for p in pyramids)
    smoothest, draw = SMOOTHEST if dense else SLOPED, count <= SMALL
    scales = (1,) if draw else (1, 2)
    priors = [Prior.over(largest.metric, span, places, q, smoothest, floor) for q in scales]
    few, everything = _windows(pyramids, rows, windows)
    models = tuple(likeliest(few, everything, priors, draw))
    local, size = everything.scales(models[0][1]), np.mean([len(w.values) for w in everything.items])
    return _Chosen(
        models, *local_scales(local, float(size)), float(local.mean()), everything.residuals(models[0][1])
    )


def _calibrated(field: Nearby) -> Nearby:
    """Return a field with its `calibration`, from observations that are predicted from others some distance away.

    Of errors over their standard deviations, the quantile of 95 % is compared with that of a normal distribution,
    as far as it is the field, not noise, that they come from.
    """
    p, alone = field.pyramid, np.ones(1)
    own = np.random.default_rng(1).permutation(p.count)[:WITHHELD]
    blocks = np.arange(own.size + 1)
    knots = []
    for distance in DISTANCES:
        chosen, filled = p.neighbours(p.places[own], NEIGHBOURS, distance)
        if filled.min() == 0:
            break
        combined = field.combined(chosen, filled, p.places[own, None], alone, blocks, True)
        noise = field.noise_share * combined.scale / p.counts[own]
        error = np.abs(p.values[own] - combined.mean) / np.sqrt(combined.variance + noise)
        stretch = float(np.quantile(error, 0.95)) / NORMAL
        share = float(np.median(combined.variance / (combined.variance + noise)))
        own_stretch = math.sqrt(1 + (stretch**2 - 1) * share)
        # Gaps have other shapes than those made here, so errors across gaps are never shortened.
        own_stretch = own_stretch if distance < 1 else max(own_stretch, 1.0)
        knots.append((math.log(max(np.median(combined.left), 1e-12)), own_stretch))
    shares, stretches = np.array(sorted(knots)).T
    return replace(field, calibration=(shares, stretches))


def _windows(
    pyramids: Sequence[Pyramid], rows: Sequence[Array | None], number: int
) -> tuple[Windows, Windows]:
    """Return windows for searches that start, and for those that end; of small data each member is a window."""
    rng = np.random.default_rng(0)
    sampled = rng.permutation(len(pyramids))[:FEW]
    largest = max(pyramids, key=lambda pyramid: pyramid.count)
    items = [
        Window(p.places, p.levels, p.counts, p.values, row)
        for p, row in ((pyramids[i], rows[i]) for i in sampled)
    ]
    everything = Windows(largest.spread, items)
    if largest.count <= SMALL:
        return everything, everything
    local, each = [], -(-number // len(sampled))
    for i in sampled:
        p = pyramids[i]
        centres = p.places[rng.permutation(p.count)[:each]]
        local += Windows.of(p, p.lists(centres, WINDOW)).items
    few = Windows(largest.spread, local[:FEW])
    return few, everything if largest.count <= DENSE else Windows(largest.spread, local)
