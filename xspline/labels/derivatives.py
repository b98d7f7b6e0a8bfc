"""Which derivatives are requested, and how they combine into gradients and Laplacians, in the plane and on the sphere.

With latitude φ and longitude λ in degrees, R the radius of the Earth and d = π/180 (radians are converted):

    northward   ∂u/∂y = 1/(R d) ∂u/∂φ                   eastward   ∂u/∂x = 1/(R d cos φ) ∂u/∂λ
    ∇²u = 1/(R d)² [ ∂²u/∂φ² + 1/cos² φ ∂²u/∂λ² ] − tan φ/(R² d) ∂u/∂φ
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import xarray as xr

from xspline.arguments import is_integer
from xspline.kriging.search import SMOOTHEST
from xspline.labels.errors import check_names
from xspline.labels.evaluation import attributes, evaluate, per
from xspline.labels.fit import Fit
from xspline.labels.read.targets import Target
from xspline.labels.uncertainty import ROOT, Covariance, along_roots
from xspline.spaces import Polynomial, Space
from xspline.spaces.basis import terms_of
from xspline.spaces.conversions import are_one, converted, degrees_in, units_of

#: Mean radius of the Earth in metres (IUGG R1).
EARTH_RADIUS = 6_371_008.8
_METRES_PER_DEGREE = float(np.deg2rad(EARTH_RADIUS))
#: Degrees from a pole (111 m) within which east has no direction: there the Laplacian's 1/cos² φ would magnify the
#: rounding of ∂²u/∂λ², some 1e-16 of it, more than 3e9 times.
POLE = 1e-3


def checked_orders(
    space: Space, orders: Mapping[str, int] | None, keywords: Mapping[str, int], *, limited: bool = True
) -> dict[str, int]:
    """Return derivative orders by name, positive ones only, in Space order; `limited` to the degrees of the bases.

    Raises
    ------
    ValueError : both forms are given, a name is not fitted, an order is not a non-negative integer or exceeds the
        degree, or all are zero.
    """
    if orders is not None and keywords:
        raise ValueError(
            f"orders given both as a mapping ({dict(orders)}) and as keywords ({dict(keywords)}); use one form"
        )
    requested = dict(keywords if orders is None else orders)
    check_names(requested, space.names)
    for name, order in requested.items():
        if not is_integer(order) or order < 0:
            raise ValueError(
                f"the order of the derivative along {name!r} is {order!r}; it has to be an integer, 0 or more"
            )
        if not limited and order > SMOOTHEST:
            raise ValueError(
                f"a fine field has no derivative of order {order} along {name!r}: fit(..., fine=False)"
            )
        highest = space.features[space.names.index(name)].max_order
        if highest is not None and order > highest and limited:
            smoother = ", or leave the bases out and pass penalty=xs.Roughness('reml', order=2)" * (
                highest == 1
            )
            raise ValueError(
                f"the derivative of order {order} along {name!r} is above the degree {highest} of "
                f"{space.basis(name)!r}; fit a basis of higher degree{smoother}"
            )
    if not any(requested.values()):
        raise ValueError(
            f"no derivative asked for in {requested or 'no coordinate'}; pass for example "
            f"derivative({space.names[0]}=1)"
        )
    return {name: int(requested[name]) for name in space.names if requested.get(name)}


def constant_along(fits: Mapping[str, Fit], orders: Mapping[str, int], *given: Any) -> dict[str, Any]:
    """Return a label for each coordinate along which a derivative is constant, as the slope of a linear trend is.

    None where a target, chunks or a mask are `given`: these ask for a value at each label.
    """
    first, labels = next(iter(fits.values())), {}
    space, selected = first.space, first.selected
    once = first.whole is None and all(x is None for x in given)
    for name, order in orders.items() if once else ():
        terms = terms_of(space.basis(name))
        if selected.get(name) == Polynomial.__name__:
            terms = tuple(term for term in terms if isinstance(term, Polynomial))
        if all(isinstance(term, Polynomial) and term.degree <= order for term in terms):
            ends = space.features[space.names.index(name)].sample()
            labels[name] = xr.DataArray(space.axis(name).to_label(np.asarray(ends.mean())))
    return labels


def differentiated(space: Space, dims: Iterable[str] | str | None) -> tuple[str, ...]:
    """Return the coordinates of a gradient: those requested, or every fitted one that is not time."""
    if dims is None:
        names = tuple(n for n in space.names if space.axis(n).kind == "number")
        if not names:
            raise ValueError(
                f"every fitted coordinate ({', '.join(space.names)}) is a time; name them in dims="
            )
        return names
    names = (dims,) if isinstance(dims, str) else tuple(map(str, dims))
    if not names:
        raise ValueError(
            f"dims={dims!r} names no coordinate; those that are fitted are {', '.join(space.names)}"
        )
    check_names(names, space.names)
    if len(set(names)) < len(names):
        raise ValueError(f"dims={names} names a coordinate twice; give each once")
    return names


def gradient(
    fit: Fit,
    target: Target,
    names: tuple[str, ...],
    geometry: str,
    device: str | None,
    covariance: Covariance | None = None,
) -> xr.Dataset:
    """Return first derivatives along `names`, as a Dataset under their own names; with a covariance their errors."""
    lat, lon = _sphere_names(fit.space, names, geometry)
    limited = fit.whole is None
    orders = {name: checked_orders(fit.space, {name: 1}, {}, limited=limited) for name in names}
    first = {name: evaluate(fit, target, order, device, covariance) for name, order in orders.items()}
    if lat:
        cos_phi = cos_lat(degrees_of(fit.space, first[lon].coords[lat]))
        north = _per_degree(fit.space, lat, first[lat], 1) / _METRES_PER_DEGREE
        east = _per_degree(fit.space, lon, first[lon], 1) / (cos_phi * _METRES_PER_DEGREE)
        for name, metric, direction in ((lat, north, "northward"), (lon, east, "eastward")):
            plane = first[name]
            call = f"gradient(geometry='sphere'{', stderr=True' if covariance else ''})"
            long_name = f"{direction} {plane.attrs['long_name']}"
            attrs = attributes(per(fit.variable.units, ("m", 1)), long_name, fit.variable.history, call)
            named = metric.transpose(*plane.dims).rename(plane.name)
            first[name] = named.assign_attrs({**plane.attrs, **attrs})
    return xr.Dataset({d.name: d for d in first.values()})


def laplacian(
    fit: Fit,
    target: Target,
    names: tuple[str, ...],
    geometry: str,
    device: str | None,
    covariance: Covariance | None = None,
) -> xr.DataArray:
    """Return the sum of second derivatives along `names`, or the Laplacian on the sphere.

    With a covariance it returns the sum of the standard errors of its terms, which that of the sum never exceeds.
    """
    space, variable = fit.space, fit.variable
    lat, lon = _sphere_names(space, names, geometry)
    if lat and (extra := set(names) - {lat, lon}):
        raise ValueError(
            f"the Laplacian on the sphere is over latitude and longitude, not {sorted(extra)}; "
            f"pass dims={[lat, lon]}"
        )
    units = {name: space.axis(name).units for name in names}
    if not lat and not all(are_one(a, b) and bool(a) == bool(b) for a, b in pairwise(units.values())):
        raise ValueError(
            f"a Laplacian adds second derivatives per {units}, which differ; choose dims= with one unit, "
            f"or geometry='sphere' for latitude and longitude"
        )
    angles = [name for name in names if space.axis(name).role in ("latitude", "longitude")]
    if not lat and len(names) > 1 and angles:
        raise ValueError(
            f"degrees of {' and '.join(angles)} are no lengths, so second derivatives along {list(names)} do not add "
            f"up to a Laplacian; pass geometry='sphere' with dims= a latitude and a longitude"
        )
    orders = {name: checked_orders(space, {name: 2}, {}, limited=fit.whole is None) for name in names}
    second = {name: evaluate(fit, target, order, device, covariance) for name, order in orders.items()}
    example = second[names[0]]
    if lat:
        first = _per_degree(space, lat, evaluate(fit, target, {lat: 1}, device, covariance), 1)
        north, east = (_per_degree(space, name, second[name], 2) for name in (lat, lon))
        latitude = degrees_of(space, example.coords[lat])
        cos_phi = cos_lat(latitude)
        curvature = -np.sin(np.deg2rad(latitude)) / cos_phi * np.deg2rad(1.0)
        if covariance is not None:
            curvature = abs(curvature)
        total = (north + east / cos_phi**2 + curvature * first) / _METRES_PER_DEGREE**2
    else:
        total = functools.reduce(operator.add, second.values())
    error = covariance is not None
    of = per(variable.units, ("m" if lat else units[names[0]], 2))
    long_name = f"{'standard error of ' * error}Laplacian of {variable.long_name}"
    call = f"laplacian(geometry={geometry!r}{', stderr=True' * error})"
    attrs = attributes(of, long_name, variable.history, call)
    if error and (len(names) > 1 or lat):
        attrs["comment"] = (
            f"{example.attrs['comment']}; at most: its terms are added as if they erred together"
        )
    named = total.transpose(*example.dims).rename(f"{variable.name}_laplacian{'_stderr' * error}")
    return named.assign_attrs({**example.attrs, **attrs})


def laplacian_stderr(
    fit: Fit,
    target: Target,
    names: tuple[str, ...],
    geometry: str,
    device: str | None,
    roots: Sequence[np.ndarray],
    assumptions: Mapping[str, Any],
) -> xr.DataArray:
    """Return the standard error of the Laplacian, from roots of the covariance of the coefficients.

    The root of the sum of the squares of their Laplacians.
    """
    sizes = {dim: n for c in target.coordinates.values() for dim, n in c.sizes.items()}
    labels = math.prod([*sizes.values(), *fit.variable.batch_shape]) if target.chunks is None else None
    laplacians = (laplacian(own, target, names, geometry, device) for own in along_roots(fit, roots, labels))
    first = next(laplacians)
    variance = (first**2).sum(ROOT, skipna=False)
    for other in laplacians:
        variance = variance + (other**2).sum(ROOT, skipna=False)
    stderr: xr.DataArray = variance**0.5
    stderr = stderr.rename(f"{fit.variable.name}_laplacian_stderr")
    call = f"laplacian(geometry={geometry!r}, stderr=True)"
    long_name = f"standard error of {first.attrs['long_name']}"
    attrs = attributes(first.attrs.get("units", ""), long_name, fit.variable.history, call)
    return stderr.assign_attrs({**first.attrs, **attrs, **assumptions})


def geostrophic(
    fit: Fit, slope: xr.Dataset, names: tuple[str, ...], equator: float, gravity: float
) -> xr.Dataset:
    """Return u = −g/f ∂η/∂y and v = g/f ∂η/∂x from the slope of a height on the sphere, in m/s."""
    lat, lon = _sphere_names(fit.space, names, "sphere")
    latitude = degrees_of(fit.space, slope[f"d{fit.name}_d{lat}"].coords[lat])
    f: Any = 2 * 7.292115e-5 * np.sin(np.deg2rad(latitude))  # 1/s: the Earth turns so many rad/s (IERS 2010)
    scale = (metres_in(fit.variable.units, fit.name) * gravity / f).where(abs(latitude) >= equator)
    velocity = {}
    for name, along, sign, direction in (("u", lat, -1, "eastward"), ("v", lon, 1, "northward")):
        for end in [end for end in ("", "_stderr") if f"d{fit.name}_d{along}{end}" in slope]:
            along_slope, error = slope[f"d{fit.name}_d{along}{end}"], bool(end)
            component = ((abs(scale) if error else sign * scale) * along_slope).transpose(*along_slope.dims)
            call = f"geostrophic(equator={equator:g}, gravity={gravity:g}{', stderr=True' * error})"
            long_name = f"{'standard error of ' * error}{direction} geostrophic velocity"
            attrs = attributes("m s-1", long_name, fit.variable.history, call)
            velocity[f"{name}{end}"] = component.assign_attrs({**along_slope.attrs, **attrs})
    return xr.Dataset(velocity)


def metres_in(units: str, name: str) -> float:
    """Return how many metres the unit of a height is; ValueError where it is none of length."""
    try:
        return float(converted(1.0, units or "none", "m"))
    except ValueError:
        raise ValueError(
            f"geostrophic() takes a height of the sea, or of a surface of equal pressure, and {name!r} has units "
            f"{units!r}; give the data units of length before the fit: data.attrs['units'] = 'm'"
        ) from None


def on_sphere(space: Space) -> tuple[str, ...]:
    """Return latitude and longitude, in Space order; without either what a gradient takes, which then says so."""
    geographic = [n for n in space.names if space.axis(n).role in ("latitude", "longitude")]
    return differentiated(space, geographic or None)


def cos_lat(latitude: xr.DataArray) -> xr.DataArray:
    """Return cos φ of a latitude in degrees, NaN within `POLE` degrees of a pole."""
    colatitude = 90 - np.abs(latitude.astype(np.float64))  # exact near the poles, and so is its sine
    return xr.where(colatitude <= POLE, np.nan, np.sin(np.deg2rad(colatitude)))


def degrees_of(space: Space, latitude: xr.DataArray) -> xr.DataArray:
    """Return labels of a latitude in degrees, which are those of their own units, else of the fitted ones."""
    given = units_of(latitude) or space.axis(str(latitude.name)).units
    degrees: xr.DataArray = converted(latitude.astype(np.float64), given, "degree")
    return degrees


def _per_degree(space: Space, name: str, derivative: xr.DataArray, order: int) -> xr.DataArray:
    """Return a derivative along latitude or longitude per degree instead of per unit of the coordinate."""
    degrees = degrees_in(space.axis(name).units) or np.nan
    return derivative if degrees == 1 else derivative / degrees**order


def _sphere_names(space: Space, names: tuple[str, ...], geometry: str) -> tuple[str, str]:
    """Return the names of latitude and longitude on the sphere; empty ones in the plane."""
    if geometry not in ("plane", "sphere"):
        raise ValueError(f"geometry={geometry!r} is unknown; use 'plane' or 'sphere'")
    if geometry == "plane":
        return "", ""
    roles = {space.axis(name).role: name for name in names}
    if "latitude" not in roles or "longitude" not in roles:
        raise ValueError(
            f"geometry='sphere' needs a latitude and a longitude among {list(names)}; give the coordinates "
            f"units degrees_north and degrees_east before the fit, or name them in dims="
        )
    for role in ("latitude", "longitude"):
        units = space.axis(roles[role]).units
        if (degrees_in(units) or -1) < 0:
            raise ValueError(
                f"geometry='sphere' takes degrees, north and east, or radians, and {roles[role]!r} was fitted in "
                f"{units!r}; convert its labels and its units before the fit, or use geometry='plane'"
            )
    return roles["latitude"], roles["longitude"]
