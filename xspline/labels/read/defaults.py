"""Default bases, from the coordinates alone: equal coordinates always get equal bases."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import numpy as np
import xarray as xr

from xspline.labels.read.cf import auxiliary, axis_of, cf_axis, hidden_axes, is_date
from xspline.labels.read.coordinates import extent_of, in_memory
from xspline.labels.read.sizes import (
    LABELS_PER_FUNCTION,
    LEAST,
    SECONDS,
    Floats,
    Labels,
    different,
    groups,
    largest,
    positions,
    sized,
)
from xspline.solve.errors import warn
from xspline.spaces import Axis, Basis, BSpline, Fourier, PiecewiseLinear, Polynomial, Space, Step, Union

Data: TypeAlias = xr.DataArray | xr.Dataset
Extent: TypeAlias = tuple[float, float]

SEASONS = Fourier(2, "year") + Polynomial(2)
SEASON_AND_TREND = Fourier(2, "year") + Polynomial(1)
DAY = Fourier(2, "day")
#: Functions of the other coordinates together, beside season and trend of a coarse field: 300, 600 and 1200 leave RMSE
#: of .364, .320 and .299 in blocks of ERSST (a function for every fourth label is 990).
COARSE = 1200
_ORDER = "YXZT"
_NAMES_OF_BOUNDS = re.compile(r".*_(bnds|bounds|vertices)|(bounds|vertices)_.*")


class Defaults(NamedTuple):
    """Bases that nobody named."""

    bases: dict[str, Basis]
    extents: dict[str, Extent]  # ranges of the coordinates, as floats of their axes


def single_for(
    data: Data, pooled: Iterable[Hashable] = (), seconds: float | None = None, *, smooth: bool = True
) -> Defaults:
    """Return a basis for each coordinate that is worth fitting; reads labels only, chunked ones in one compute.

    The coordinates are the axes X, Y, Z and T of the CF conventions (:func:`~xspline.labels.read.cf.cf_axis`) that
    have at least two labels. Where several stand for one axis, it is the one that most surely is that axis, then the
    one that labels a dimension, then the one along most dimensions, then the first. Where there is no such axis, they
    are monotonic floats, dates or durations: the labels of dimensions, or all that is along them. A Dataset takes those
    of the numeric variable that has most. Dimensions that no such coordinate spans are batch.

    Dates over at least two years with at least five labels a year get ``Fourier(2, "year") + Polynomial(2)``, and other
    coordinates get a B-spline. Beside a penalty, more functions than the data need do no harm but cost:

    - A coordinate with n different labels along a dimension of its own supports ``BSpline(n // 2 + 3)``, a longitude
      that closes the circle n // 2, and any at least 4 and at most 1024 functions.
    - Coordinates that share dimensions support together a cell between knots for every second observation (every fourth
      on a curvilinear grid, which has two dimensions), and at most two cells for every position. Each supports no more
      than its different labels do. Cells of latitude and longitude, or of X and Y in equal units, are about square.
    - Where the choice of the smoothing by REML would take longer than the budget, all numbers of cells shrink by one
      factor (:func:`~xspline.labels.read.sizes.sized`).

    Without a penalty on roughness (``smooth=False``), which keeps functions from following noise, there are half as
    many along each dimension of the labels.

    What spans `pooled`, dimensions of repeated observations, is not fitted. The budget is `seconds`, 10 if it is not
    given. It raises ValueError where no coordinate is left, a Dataset holds no numeric variable, or the budget is not
    positive, and TypeError where the budget is not a number.
    """
    seconds = checked_seconds(SECONDS if seconds is None else seconds)
    pooled = set(pooled)
    labels = _labels(data, pooled)
    bases = {n: SEASONS if _shows("year", known) else BSpline(LEAST) for n, known in labels.items()}
    dims = {dim for known in labels.values() for dim in known.dims}
    fitted = [data] if isinstance(data, xr.DataArray) else list(data.data_vars.values())
    if len(fitted) > 1:
        fitted = [v for v in fitted if v.dtype.kind in "iuf" and dims <= set(v.dims)]
    sizes = {dim: n for dim, n in fitted[0].sizes.items() if dim not in pooled}
    per_function = LABELS_PER_FUNCTION * (1 if smooth else 2)
    bases = sized(bases, labels, sizes, seconds / len(fitted), per_function)
    return Defaults(bases, {name: known.extent for name, known in labels.items()})


def checked_seconds(seconds: float) -> float:
    """Return a budget; ValueError where it is none."""
    if not float(seconds) > 0:
        raise ValueError(f"seconds={seconds!r} is no time to choose the smoothing in; pass a positive number")
    return float(seconds)


def coarse_for(data: Data, pooled: Iterable[Hashable] = ()) -> Defaults:
    """Return the bases of the coarse field beside a fine one: season and trend where there are years, else a constant.

    A time with a dimension of its own gets a daily cycle too where it has two days or more with five labels each.
    All of them may differ from place to place: the other coordinates get cubic B-splines then, with a function for
    every fourth label at most. Coordinates that share dimensions, as along a track, get together as many as those of a
    grid of as many places, and all together `COARSE` at most. Where there would be fewer than 1.5 places for each
    function, as of a dozen stations, season and trend are linear in these coordinates, or the same everywhere: of 20
    stations 16 splines err by 1.8 times as much as a plane, of 24 by 1.06 times.
    """
    labels = _labels(data, set(pooled))
    bases: dict[str, Basis] = dict.fromkeys(labels, Polynomial(0))
    years = {name for name, known in labels.items() if _shows("year", known)}
    # Along a track each place has one time of day, and a cycle that differs from place to place follows places.
    days = {group[0] for group in groups(labels) if len(group) == 1 and _shows("day", labels[group[0]])}
    bases |= dict.fromkeys(years, SEASON_AND_TREND)
    bases |= {name: SEASON_AND_TREND + DAY if name in years else DAY for name in days}
    if cyclic := years | days:
        counts: dict[str, float] = {}
        others = {n: known for n, known in labels.items() if n not in cyclic}
        per_function, enough = 2 * LABELS_PER_FUNCTION, 1 / 1.5
        for group in groups(others):
            alone = {n: different(others[n].values, COARSE * per_function) // per_function for n in group}
            places = positions([others[n] for n in group])
            enough *= places
            counts |= _shrunk(alone, places / per_function ** len(group))
        if enough >= LEAST ** len(others):
            bases |= {n: BSpline(int(count)) for n, count in _shrunk(counts, COARSE).items()}
        elif enough >= 2 ** len(others):
            # A straight line does not close a circle.
            bases |= {n: Polynomial(1) for n, known in others.items() if not known.closed}
    return Defaults(bases, {name: known.extent for name, known in labels.items()})


def code(space: Space | Mapping[str, Basis], bound: Mapping[str, Basis] | None = None) -> str:
    """Return the mapping of names to bases as Python, with ``import xspline as xs``.

    Domains that a Space took from the data are left out, so that with the same data it gives the same Space again;
    `bound` are other bases, of the coordinates of the Space.
    """
    if isinstance(space, Mapping):
        bases = dict(space)
    else:
        bases = {n: _requested(space, n, (bound or {}).get(n)) for n in space.names}
    items = (f"{json.dumps(name, ensure_ascii=False)}: {basis.code('xs.')}" for name, basis in bases.items())
    return f"{{{', '.join(items)}}}"


def _requested(space: Space, name: str, bound: Basis | None = None) -> Basis:
    """Return a bound basis as a user would write it: the year by its name, without what came from the data."""
    axis, basis = space.axis(name), bound or space.basis(name)
    if isinstance(basis, Union):
        return Union(tuple(_requested_term(term, axis, name in space.from_data) for term in basis.terms))
    if isinstance(basis, BSpline) and name in space.from_data:
        return replace(basis, domain=None, period=None)  # the period of a longitude that closes the circle
    return _requested_term(basis, axis, name in space.from_data)


def _requested_term(term: Basis, axis: Axis, learned: bool) -> Basis:
    if isinstance(term, Fourier):
        named = ("year", "day") if axis.kind == "time" else ()
        length = axis.duration(term.period, "period")
        cycle = next((name for name in named if axis.duration(name, "period") == length), term.period)
        return replace(term, period=cycle)
    by_range = isinstance(term, Polynomial | Step | PiecewiseLinear)
    unbound = by_range or (isinstance(term, BSpline) and not (term.period or term.knots))
    return replace(term, domain=None) if learned and unbound else term  # type: ignore[type-var]


def warn_of_batch(data: xr.DataArray, batch: Iterable[Hashable], bases: Mapping[str, Basis]) -> None:
    """Warn of dimensions that became independent fits although they look like coordinates of one field.

    They are axes by the CF conventions, of which another coordinate was fitted, or have floats with units as labels, or
    heights that drift lie along them.

    Only where nobody named the bases: there a second time axis, say, would be a fit for each of its labels in silence.
    """
    for dim in batch:
        own = [c for n, c in data.coords.items() if c.dims == (dim,) and c.dtype != object and cf_axis(c)[0]]
        if own and data.sizes[dim] > 1:
            warn(
                f"dimension {dim!r} is an axis ({own[0].name}), but another coordinate was fitted for that axis or its "
                f"labels do not vary: there are {data.sizes[dim]} independent fits over it. Name all coordinates to "
                f"fit, as in fit({own[0].name}={LEAST}, ...), or select one label"
            )
        for name, c in data.coords.items():
            drifts = dim in c.dims and c.ndim > 1 and c.dtype.kind in "iuf" and not cf_axis(c)[0]
            if drifts and cf_axis(c.isel(dict.fromkeys(set(c.dims) - {dim}, 0)))[0] == "Z":
                along = " and ".join(repr(str(d)) for d in c.dims)
                warn(
                    f"{name!r} lies along {along} and is taken for no axis, since it might be a field of its own, such "
                    f"as the depth of the sea: there are {data.sizes[dim]} independent fits over {dim!r}. To fit along "
                    f"it, set data[{name!r}].attrs['positive'] = 'down' or 'up', or select one label of {dim!r}"
                )
    measured = [
        str(dim)
        for dim in batch
        if dim in data.coords and data[dim].dtype.kind == "f" and data[dim].attrs.get("units")
    ]
    measured = [dim for dim in measured if data.sizes[dim] >= LEAST and not cf_axis(data[dim])[0]]
    if measured:
        count = math.prod(data.sizes[dim] for dim in measured)
        named = " and ".join(map(repr, measured))
        line = code({**bases, **dict.fromkeys(measured, Polynomial(0))})
        warn(
            f"{count} independent fits are made over {named}, whose names and attributes say no axis of latitude, "
            f"longitude, height or time; to fit one field over them too: fit({line}, fine=True)"
        )


def _coordinates(data: Data, pooled: set[Hashable]) -> dict[str, xr.DataArray]:
    """Return the coordinates to fit, in memory: latitude, longitude, height and time, or dimensions in their order."""
    if isinstance(data, xr.DataArray):
        variables = [data]
        named: Mapping[Hashable, xr.Variable] = {n: c.variable for n, c in data.coords.items()}
    else:
        variables, named = [v for v in data.data_vars.values() if v.dtype.kind in "iuf"], data.variables
        if not variables:
            raise ValueError(
                f"the Dataset holds no numeric variable, so there is nothing to fit; it has {list(data.variables)}"
            )
    bounds = auxiliary(named) | {name for name in named if _NAMES_OF_BOUNDS.fullmatch(str(name))}
    candidates = [_axes(v, pooled, bounds) for v in variables]
    loaded = in_memory({name: c for by_name in candidates for name, c in by_name.items()})
    choices = [{n: loaded[n] for n in by_name if _varies(loaded[n])} for by_name in candidates]
    if not any(choices):
        choices += [_monotonic_dimensions(v, pooled) for v in variables]
    widest = max(choices, key=len)
    if not widest:
        raise _nothing(data)
    return widest


def _axes(variable: xr.DataArray, pooled: set[Hashable], bounds: set[Hashable]) -> dict[str, xr.DataArray]:
    """Return for each axis the coordinate that it most surely is."""
    best: dict[str, tuple[tuple[int, bool, int], xr.DataArray]] = {}
    for name, c in variable.coords.items():
        if name in bounds or c.size < 2 or pooled & set(c.dims):
            continue
        axis, rank = cf_axis(c)
        order = (rank, c.dims != (name,), -c.ndim)
        if axis and (axis not in best or order < best[axis][0]):
            best[axis] = order, c
    return {str(best[axis][1].name): best[axis][1] for axis in _ORDER if axis in best}


def _monotonic_dimensions(variable: xr.DataArray, pooled: set[Hashable]) -> dict[str, xr.DataArray]:
    """Return floats, dates or durations that rise or fall along dimensions: their labels, or all that is along them."""
    known = [c for c in variable.coords.values() if c.ndim == 1 < c.size and not pooled & set(c.dims)]
    known = [c for c in known if c.dtype.kind in "fm" or is_date(c)]
    sure = [c for c in known if c.name in c.dims or sum(c.dims == other.dims for other in known) == 1]
    sure.sort(key=lambda c: variable.dims.index(c.dims[0]))
    return {str(c.name): c for c in sure if abs(np.sign(np.diff(_numbers(c))).sum()) == c.size - 1}


def _numbers(coordinate: xr.DataArray) -> Floats:
    return axis_of(coordinate).to_float(coordinate.values)


def _varies(coordinate: xr.DataArray) -> bool:
    x = _numbers(coordinate)
    x = x[np.isfinite(x)]
    return bool(x.size and x.min() < x.max())


def _nothing(data: Data) -> ValueError:
    """Return the error for data without a coordinate to fit: what was looked for, what there is, what to do."""
    name = "the Dataset" if isinstance(data, xr.Dataset) else data.name or "the data"
    dims = ", ".join(f"{d} ({n})" for d, n in data.sizes.items()) or "none"
    coordinates = ", ".join(f"{n} ({c.dtype})" for n, c in data.coords.items()) or "none"
    if hidden := hidden_axes(data.data_vars if isinstance(data, xr.Dataset) else {}):
        verb = "is a data variable" if len(hidden) == 1 else "are data variables"
        advice = f"{', '.join(map(repr, hidden))} {verb}; make coordinates of them first: ds = ds.set_coords({hidden})"
    elif data.sizes and max(data.sizes.values()) < 2:
        counts = " and ".join(
            f"{str(d)!r} has {'one label' if n else 'no labels'}" for d, n in data.sizes.items()
        )
        advice = f"{counts}, and two or more are needed: look at how the data were selected"
    else:
        dim = next(iter(data.sizes), "x")
        names = [str(n) for n, c in data.coords.items() if c.size > 1 and c.dtype.kind in "iufmM"]
        label = f"name what to fit, as in fit({names[0]}={LEAST}), or " if names else ""
        advice = (
            f"To go on, {label}assign labels: data.assign_coords({dim}=...); variables of a Dataset become coordinates "
            'of the others by ds.set_coords(["lat", "lon"])'
        )
    return ValueError(
        f"{name} has no coordinate to fit. Looked for the axes X, Y, Z and T of the CF conventions with two labels or "
        "more (attributes axis, standard_name, units, positive; names such as lat, lon, depth, time), then for "
        f"dimensions along which floats or times ascend. Dimensions: {dims}; coordinates: {coordinates}. {advice}"
    )


def _labels(data: Data, pooled: set[Hashable]) -> dict[str, Labels]:
    """Return what is known of each coordinate to fit."""
    known = {}
    for name, c in _coordinates(data, pooled).items():
        axis, units = axis_of(c), str(c.attrs.get("units", ""))
        if axis.kind == "number" and " since " in units:
            warn(
                f"labels of {name!r} are numbers with the units {units!r}, no dates, so that the field has no season, "
                "trend or daily cycle; decode them first: ds = xr.decode_cf(ds)"
            )
        x = axis.to_float(c.values)
        known[name] = Labels(c.dims, x, axis, extent_of(x.ravel(), axis, name), cf_axis(c)[0])
    return known


def _shrunk(counts: Mapping[str, float], most: float) -> dict[str, float]:
    """Return numbers of functions, all smaller by one factor where their product is above `most`."""
    return largest(lambda share: {n: max(round(share * k), LEAST) for n, k in counts.items()}, most)


def _shows(cycle: str, known: Labels) -> bool:
    """Return whether a coordinate has dates over at least two cycles with at least five different ones in each.

    Each date stands for the mean step to the next, so that the months of two whole years are two years.
    """
    if known.axis.kind != "time":
        return False
    span = (known.extent[1] - known.extent[0]) / known.axis.duration(cycle, "period")
    count = different(known.values, enough=math.ceil(5 * (span + 1)))
    cycles = span * count / (count - 1)
    # Months are of unequal length, and two years of them that begin in January end early: by less than a hundredth.
    return cycles >= 0.99 * 2 and count >= 5 * cycles
