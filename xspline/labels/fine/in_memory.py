"""What a coarse field leaves of its observations, as points, and the fine field that is fitted to that."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from xspline.kriging import fitting
from xspline.kriging.fitting import Observed
from xspline.kriging.nearby import DENSE, pyramid_of
from xspline.kriging.places import Places
from xspline.labels import evaluation
from xspline.labels.fine.field import Fine, fitted_rows
from xspline.labels.fit import Fit
from xspline.labels.read.cf import cf_axis
from xspline.labels.read.coordinates import floats
from xspline.labels.read.observations import Observations
from xspline.labels.read.targets import Target
from xspline.labels.statistics import Statistics
from xspline.residuals.assumptions import copies
from xspline.spaces import Space
from xspline.spaces.conversions import degrees_in

Array = np.ndarray
#: Observations that differ, of a member with a fine field.
LEAST = 3
#: Values, up to which a bare fit has a fine field; the time of that grows with them (`python -m benchmarks contest`).
MOST_VALUES = 5_000_000
#: Of one core for each value, and memory: of a million values on a grid of two or three coordinates.
SECONDS_PER_VALUE, BYTES_PER_VALUE = 7e-6, 240
#: Of one core, where all values are one window, and for the cube of their number.
SECONDS_OF_FEW, SECONDS_PER_CUBE = 0.2, 5e-9
#: Windows of the data that are looked at in a second, of those that are looked at in the end.
WINDOWS_PER_SECOND = 12


def windows_in(seconds: float) -> int:
    """Return how many windows of the data the choice of a fine field looks at within a budget."""
    return int(min(max(WINDOWS_PER_SECOND * seconds, fitting.FEW), fitting.MANY))


def fine_costs(observed: Observations, windows: int) -> tuple[float, int]:
    """Return the seconds of one core, and the bytes of memory, that the fine field of so many values takes about."""
    count = int(observed.data.size)
    if count <= DENSE:
        return SECONDS_OF_FEW + SECONDS_PER_CUBE * count**3, 3 * 8 * count**2
    return count * SECONDS_PER_VALUE + windows / WINDOWS_PER_SECOND / 2, count * BYTES_PER_VALUE


class Left(NamedTuple):
    """What a fit leaves of its observations."""

    members: list[Observed]  # of a batch, those with enough of them, by their rank
    places: Places  # how coordinates become places
    steps: Array  # the distance between labels along each coordinate
    entries: list[int]  # which entry of the batch each member is
    least_noise: float  # the variance of noise by rounding


def as_one(observed: Observations, statistics: Statistics[Any], coefficients: Array) -> float:
    """Return how many observations, of what coefficients leave of them, vary as one."""
    left = _left(observed, Fit(statistics, observed.name, coefficients, None))
    return 1.0 if left is None else fitting.as_one(left.members, left.places)


def fine_of(observed: Observations, fit: Fit, windows: int) -> Fine:
    """Return the fine field of what a fit leaves of its observations; members with too few of these have none."""
    left = _left(observed, fit)
    if left is None:
        return Fine((None,) * math.prod(fit.variable.batch_shape), fit.space.names)
    rows_of = functools.partial(fitted_rows, fit.space)
    numbers = [j for j, name in enumerate(fit.space.names) if fit.space.axis(name).kind == "number"]
    largest = left.members[0]
    counting = left.places.counting(largest.coordinates, left.steps, numbers)
    ways = (left.places, counting) if counting.counted else (left.places,)
    places = fitting.likelier(largest, ways, rows_of)
    found = fitting.fit(left.members, places, left.steps, rows_of, left.least_noise, windows)
    fields = dict(zip(left.entries, found, strict=True))
    return Fine(tuple(fields.get(k) for k in range(math.prod(fit.variable.batch_shape))), fit.space.names)


def beside(fit: Fit, fine: Fine) -> Fit:
    """Return a fit with its fine field. Terms of few observations know the covariance of what they leave.

    A daily cycle takes up weather that lasts for days otherwise, and no smooth field makes that good.
    """
    whole, members = replace(fit, fine=fine), list(fine.members)
    coefficients = np.array(fit.coefficients, np.float64).reshape(fit.space.size, len(members))
    for k, own, functions, held, _ in whole.of_few():
        if (terms := own.terms(functions, held, coefficients[:, k])) is None:
            continue
        change, _ = terms
        coefficients[:, k] += change
        columns = own.coordinates, own.window.values - functions @ change, own.window.counts
        members[k] = replace(own, pyramid=pyramid_of(*columns, own.places, own.pyramid.metric))
    coefficients = coefficients.reshape(fit.coefficients.shape)
    return replace(whole, fine=replace(fine, members=tuple(members)), coefficients=coefficients)


def _left(observed: Observations, fit: Fit) -> Left | None:
    """Return what a fit leaves of its observations; None where no member of the batch has enough."""
    space, data = fit.space, observed.data.compute()
    coordinates = {n: c.compute() if c.chunks is not None else c for n, c in observed.coordinates.items()}
    coarse = evaluation.evaluate(fit, Target(coordinates, xr.Dataset(), None, False, None), {}, None)
    coarse = coarse.drop_vars(coarse.coords)
    residual = (data.drop_vars(data.coords).astype(np.float64) - coarse).transpose(*data.dims)
    weights = xr.ones_like(residual)
    if observed.weights is not None:
        own = observed.weights.compute()
        weights = (weights * own.drop_vars(own.coords)).transpose(*data.dims)
    batch, spans = observed.arrangement.batch, observed.arrangement.spans
    axes = [data.dims.index(dim) for dim in batch]
    members = math.prod(data.sizes[dim] for dim in batch)

    def by_member(x: Any) -> Array:
        return np.moveaxis(np.asarray(x), axes, range(len(axes))).reshape(members, -1)

    along = []
    for name in space.names:
        x = space.within(floats(coordinates[name], name, space, spans[name], data.sizes), name)
        column = xr.Variable(spans[name], np.asarray(x)).set_dims(dict(data.sizes)).transpose(*data.dims)
        along.append(by_member(column.values))
    values, precision = by_member(residual.values), by_member(weights.values)
    used = np.isfinite(values) & (precision > 0) & np.all([np.isfinite(c) for c in along], axis=0)
    known = [own[is_used] for own, is_used in zip(by_member(data.values), used, strict=True)]
    alone = [len(spans[name]) == 1 and list(spans.values()).count(spans[name]) == 1 for name in space.names]
    is_grid = all(alone) and all(np.unique(c).size == c.size for c in coordinates.values())
    each = dict[int, Observed]()
    for k, own in enumerate(known):
        if own.size == 0 or own.min() == own.max():
            continue
        points = np.stack([c[k][used[k]] for c in along], axis=1)
        # Taken for two observations, copies would say that there is no noise at all: any is a rough field then.
        once = slice(None) if is_grid else ~copies(points, own)
        member = Observed(points[once], values[k][used[k]][once], precision[k][used[k]][once])
        if member.values.size >= LEAST:
            each[k] = member
    if not each:
        return None
    places = places_of(space).facing(*min(each.values(), key=lambda member: member.rank)[:3])
    each = {k: member.in_order(places).at_few_places() for k, member in each.items()}
    entries = sorted(each, key=lambda k: each[k].rank)
    parts = [each[k] for k in entries]
    # Labels are those of all members, and a pole is one that any of them has many values at.
    places = next((p for p in (places.with_tubes(*m[:2]) for m in parts) if p.tube), places)
    steps = np.array([_step_of_points(x, len(alone)) for x in parts[0].coordinates.T])
    for j in np.flatnonzero(alone):
        labels = np.concatenate([np.unique(member.coordinates[:, j]) for member in parts])
        if np.ptp(labels) > 0:
            steps[j] = step_of(labels)
    places = on_grid(places, [coordinates[name] for name in space.names], steps, alone)
    return Left(parts, places, steps, entries, rounding(np.concatenate(known)))


def on_grid(places: Places, along: Sequence[xr.DataArray], steps: Array, alone: Sequence[bool]) -> Places:
    """Return places whose labels resolve the field along horizontal coordinates that have dimensions `alone`.

    Months and years may tell nothing of each other, as weather does, levels may be far apart, and of a single
    coordinate noise is all that is so short.
    """
    is_horizontal = [len(along) > 1 and cf_axis(c)[0] in ("X", "Y") for c in along]
    return places.on_grid(steps, [a and b for a, b in zip(is_horizontal, alone, strict=True)])


def places_of(space: Space) -> Places:
    """Return how the coordinates of a space become places."""
    roles = [space.axis(name).role for name in space.names]
    known = {r: roles.index(r) for r in ("latitude", "longitude") if r in roles}
    degrees = {degrees_in(space.axis(space.names[j]).units) for j in known.values()}
    if len(known) < 2 or len(degrees) > 1 or None in degrees:
        return Places(len(roles))
    latitudes, longitudes = (_extent(space, known[role]) for role in ("latitude", "longitude"))
    unit = float(degrees.pop() or 1.0)
    return Places.over(len(roles), known["latitude"], known["longitude"], latitudes, longitudes, unit)


def _extent(space: Space, j: int) -> tuple[float, float]:
    """Return the range of a coordinate of numbers: its domain, or a period from 0."""
    basis = space.basis(space.names[j])
    low, high = basis.domain or (0.0, getattr(basis, "period", None) or 1.0)
    return float(low), float(high)


def _step_of_points(labels: Array, dimensions: int) -> float:
    """Return the distance of labels along a coordinate that points would have on a grid."""
    return float(np.ptp(labels)) / labels.size ** (1 / dimensions) or 1.0


def step_of(labels: Array) -> float:
    """Return the usual distance of labels that differ; 1 where none do."""
    apart = np.diff(np.unique(labels))
    return float(np.median(apart)) if apart.size else 1.0


def rounding(values: Array) -> float:
    """Return the variance of errors by rounding, where values were rounded so that many are equal."""
    # Some of the values in their order, so that it does not matter in which order they came.
    sample = np.sort(values)[:: max(values.size // 10_000, 1)].astype(np.float64)
    apart = np.diff(sample)
    positive = apart[apart > 0]
    if positive.size == 0 or positive.size >= sample.size / 2:
        return 0.0
    return float(positive.min()) ** 2 / 12
