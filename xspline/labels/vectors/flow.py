"""Vorticity and divergence of two fields, the eastward and northward components of a velocity, on the sphere.

With R the radius of the Earth, ∂/∂x eastward and ∂/∂y northward per metre:

    divergence = ∂u/∂x + ∂v/∂y − v tan φ / R            vorticity = ∂v/∂x − ∂u/∂y + u tan φ / R
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from xspline.arguments import brief, checked
from xspline.labels.derivatives import EARTH_RADIUS, degrees_of, on_sphere
from xspline.labels.evaluation import attributes, per
from xspline.labels.field_base import FieldBase
from xspline.labels.read.observations import Variable
from xspline.spaces.conversions import are_one

_COMMENT = "takes errors of u and v as independent; at most: a slope and a value of one field err together"


@checked
def vorticity(
    u: Any, v: Any, at: Any = None, *, stderr: bool = False, **options: Any
) -> xr.DataArray | xr.Dataset:
    """Evaluate the vorticity of a velocity on the sphere: ∂v/∂x − ∂u/∂y + u tan φ / R.

    Parameters
    ----------
    u, v
        Fields of the eastward and the northward component, of two fits or of one: ``field["u"], field["v"]``.
    at, **options
        As for :meth:`Field.gradient`: `chunks`, `mask`, `method`, … Without `at`, at the labels of u. Dimensions have
        the order of those of u.
    stderr
        True returns a Dataset of ``vorticity`` and ``vorticity_stderr``, where errors of u and v are independent.

    Returns
    -------
    DataArray or Dataset
        In s⁻¹ of velocities in m s⁻¹; NaN within 0.001° of a pole. Its standard error is the root of the squares of
        what u and v contribute; that of ∂u/∂y and u tan φ / R together is at most their sum, which is taken.

    Raises
    ------
    TypeError
        u or v is no field.
    ValueError
        A field has several variables, units differ, or latitude or longitude was not fitted.

    Examples
    --------
    >>> import numpy as np, xarray as xr, xspline as xs
    >>> lat, lon = np.arange(-60, 61.0, 4), np.arange(0, 360.0, 10)
    >>> u = 10 * np.cos(np.deg2rad(lat))[:, None] + 0 * lon  # a solid rotation, 10 m/s at the equator
    >>> wind = xr.Dataset({"u": (("lat", "lon"), u), "v": (("lat", "lon"), 0 * u)}, {"lat": lat, "lon": lon})
    >>> wind.u.attrs["units"] = wind.v.attrs["units"] = "m s-1"
    >>> field = wind.spline.fit(lat=20, lon=8, penalty=0)
    >>> spin = xs.vorticity(field["u"], field["v"], {"lat": 30.0, "lon": 0.0})
    >>> (
    ...     (spin * xs.EARTH_RADIUS).round(2).item(),
    ...     spin.units,
    ... )  # twice the rotation, times the sine of the latitude
    (10.0, 's-1')
    """
    return _combined("vorticity", u, v, at, stderr, options)


@checked
def divergence(
    u: Any, v: Any, at: Any = None, *, stderr: bool = False, **options: Any
) -> xr.DataArray | xr.Dataset:
    """Evaluate the divergence of a velocity on the sphere: ∂u/∂x + ∂v/∂y − v tan φ / R.

    Parameters, results and errors are those of :func:`vorticity`, with u and v exchanged in what is said of the error.

    Examples
    --------
    >>> import numpy as np, xarray as xr, xspline as xs
    >>> lat, lon = np.arange(-60, 61.0, 4), np.arange(0, 360.0, 10)
    >>> v = 10 * np.cos(np.deg2rad(lat))[:, None] + 0 * lon
    >>> wind = xr.Dataset({"u": (("lat", "lon"), 0 * v), "v": (("lat", "lon"), v)}, {"lat": lat, "lon": lon})
    >>> field = wind.spline.fit(lat=20, lon=8, penalty=0)
    >>> (xs.divergence(field["u"], field["v"], {"lat": 30.0, "lon": 0.0}) * xs.EARTH_RADIUS).round(2).item()
    -10.0
    """
    return _combined("divergence", u, v, at, stderr, options)


def _combined(
    what: str, u: Any, v: Any, at: Any, stderr: bool, options: dict[str, Any]
) -> xr.DataArray | xr.Dataset:
    """Return ∂a/∂x ± (∂b/∂y − b tan φ / R) of two fields, with its standard error: a is v of a vorticity, else u."""
    (name, first), (other, second) = (_component(what, field) for field in (u, v))
    if bool(first.units) != bool(second.units) or not are_one(first.units, second.units):
        raise ValueError(
            f"{name!r} has units {first.units!r} and {other!r} {second.units!r}, whose slopes do not add up; "
            "convert one of them before the fit"
        )
    sign, b, of_u, of_v = 1, v, "longitude", "latitude"
    if what == "vorticity":
        sign, b, of_u, of_v = -1, u, "latitude", "longitude"
    slopes = {of_u: _slope(u, of_u, at, stderr, options)}
    along = slopes[of_u][0]
    slopes[of_v] = _slope(v, of_v, along if at is None else at, stderr, options)
    (east, east_error), (north, north_error) = slopes["longitude"], slopes["latitude"]
    beside = b.predict(north, stderr=stderr, **options)
    beside = beside if isinstance(beside, xr.Dataset) else beside.to_dataset()
    (name,) = b.variables
    (lat,) = (n for n in b.space.names if b.space.axis(n).role == "latitude")
    metric = np.tan(np.deg2rad(degrees_of(b.space, north.coords[lat]))) / EARTH_RADIUS
    results = {what: east + sign * (north - metric * beside[name])}
    if stderr:
        own = north_error + abs(metric) * beside[f"{name}_stderr"]
        results[f"{what}_stderr"] = (east_error**2 + own**2) ** 0.5
    for key, result in results.items():
        units = "s-1" if first.units in ("m s-1", "m/s", "m s**-1", "m s^-1") else per(first.units, ("m", 1))
        is_error = key != what
        long_name, call = f"{'standard error of ' * is_error}{what}", f"{what}({'stderr=True' * is_error})"
        attrs = attributes(units, long_name, first.history, call) | (
            {"comment": _COMMENT} if is_error else {}
        )
        results[key] = result.transpose(*along.dims, ...).rename(key).drop_attrs().assign_attrs(attrs)
    return xr.Dataset(results) if stderr else results[what]


def _component(what: str, field: Any) -> tuple[str, Variable]:
    """Return the one variable of a field."""
    if not isinstance(field, FieldBase):
        raise TypeError(f"{what}(u, v) takes two fields, and {brief(field)} is none")
    if len(field.variables) > 1:
        raise ValueError(
            f"{what}(u, v) takes fields of one variable, and one has {', '.join(map(repr, field.variables))}; "
            f"select them: xs.{what}(field['u'], field['v'])"
        )
    ((name, variable),) = field.variables.items()
    return name, variable


def _slope(field: Any, role: str, at: Any, stderr: bool, options: dict[str, Any]) -> tuple[xr.DataArray, Any]:
    """Return the derivative eastward or northward, per metre, and its standard error where that is requested."""
    names = on_sphere(field.space)
    slopes = field.gradient(at, dims=names, geometry="sphere", stderr=stderr, **options)
    (along,) = (n for n in names if field.space.axis(n).role == role)
    name = f"d{next(iter(field.variables))}_d{along}"
    return slopes[name], slopes[f"{name}_stderr"] if stderr else None
