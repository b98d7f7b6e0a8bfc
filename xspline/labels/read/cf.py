"""What a coordinate is, by the CF conventions: latitude, longitude, one of the axes X, Y, Z, T; a number or a time."""

from __future__ import annotations

import datetime
import re
from collections.abc import Hashable, Mapping

import cftime
import numpy as np
import xarray as xr

from xspline.spaces import Axis
from xspline.spaces.conversions import converted, degrees_in, units_of
from xspline.spaces.instants import INSTANT, with_hyphens

_LATITUDE_UNITS = {"degrees_north", "degree_north", "degrees_N", "degree_N", "degreesN", "degreeN"}
_LONGITUDE_UNITS = {"degrees_east", "degree_east", "degrees_E", "degree_E", "degreesE", "degreeE"}
_GEOGRAPHIC = {"latitude": "Y", "longitude": "X"}
_STANDARD_NAMES = {
    "time": "T",
    **dict.fromkeys(("projection_x_coordinate", "projection_x_angular_coordinate", "grid_longitude"), "X"),
    **dict.fromkeys(("projection_y_coordinate", "projection_y_angular_coordinate", "grid_latitude"), "Y"),
    **dict.fromkeys(("depth", "height", "altitude", "air_pressure", "sea_water_pressure"), "Z"),
    **dict.fromkeys(("height_above_mean_sea_level", "geopotential_height", "model_level_number"), "Z"),
}
_VERTICAL = re.compile(r"(atmosphere|ocean)_\w+_coordinate\w*")  # CF conventions, appendix D
_BOUNDS = re.compile(r"(.*)_(?:bnds|bounds|vertices)")
_USUAL_NAMES = {
    **dict.fromkeys(("x", "xc", "rlon", "easting"), "X"),
    **dict.fromkeys(("y", "yc", "rlat", "northing"), "Y"),
    **dict.fromkeys("z depth lev level plev pres pressure height altitude".split(), "Z"),
    **dict.fromkeys(("t", "time", "year"), "T"),
}
_PRESSURE_UNITS = {"Pa", "hPa", "kPa", "mb", "mbar", "millibar", "millibars", "bar", "dbar", "decibar", "atm"}


def role_of(coordinate: xr.DataArray) -> str:
    """Return "latitude", "longitude" or "" from CF attributes, then from the name (CF conventions, section 4)."""
    standard, given = coordinate.attrs.get("standard_name"), units_of(coordinate)
    if standard in ("latitude", "longitude"):
        return str(standard)
    if given in _LATITUDE_UNITS:
        return "latitude"
    if given in _LONGITUDE_UNITS:
        return "longitude"
    return Axis.infer(str(coordinate.name), 0.0).role if degrees_in(given) else ""


def cf_axis(coordinate: xr.DataArray) -> tuple[str, int]:
    """Return which axis a coordinate is, "X", "Y", "Z", "T" or "", and a rank: the lower, the surer.

    In this order: latitude and longitude, dates, standard names, the attributes ``axis`` and ``positive``, then, for
    coordinates along one dimension, usual names and units of pressure (CF conventions, sections 4 and 5). Dates that
    are called time come before others; integers that merely count positions are no X and no Y.
    """
    attrs, name = coordinate.attrs, str(coordinate.name).lower()
    standard = str(attrs.get("standard_name", ""))
    if is_date(coordinate):
        return "T", 0 if standard == "time" or attrs.get("axis") == "T" else 1 if name == "time" else 2
    if coordinate.dtype.kind not in "iuf":
        return "", 0
    if role := role_of(coordinate):
        named = Axis.infer(name, 0.0).role == role
        return _GEOGRAPHIC.get(role, "T"), 0 if standard == role else 1 if named else 2
    if standard in _STANDARD_NAMES or _VERTICAL.fullmatch(standard):
        return _STANDARD_NAMES.get(standard, "Z"), 3
    axis, rank = str(attrs.get("axis", "")), 4
    if axis not in ("X", "Y", "Z", "T"):
        if attrs.get("positive") in ("up", "down"):
            axis, rank = "Z", 5
        elif coordinate.ndim != 1:  # there a name or a unit is as likely that of a field, such as a depth
            axis, rank = "", 0
        else:
            pressure = "Z" if attrs.get("units") in _PRESSURE_UNITS else ""
            axis, rank = _USUAL_NAMES.get(name, pressure), 6 if name in _USUAL_NAMES else 7
    counts_positions = coordinate.dtype.kind in "iu" and attrs.get("units", "1") in ("", "1")
    return ("", 0) if axis in ("X", "Y") and counts_positions else (axis, rank)


def hidden_axes(variables: Mapping[Hashable, xr.DataArray]) -> list[str]:
    """Return the data variables that are axes by their attributes or usual names; a unit of pressure is not enough."""
    axes = {str(n): cf_axis(v) for n, v in variables.items() if v.ndim}
    return [name for name, (axis, rank) in axes.items() if axis and rank < 7]


def is_date(coordinate: xr.DataArray) -> bool:
    """Return whether the labels are datetime64 or date objects such as cftime's."""
    if coordinate.dtype != object or coordinate.size == 0:
        return coordinate.dtype.kind == "M"
    return isinstance(_sample(coordinate).ravel()[0], cftime.datetime | datetime.date)


def axis_of(coordinate: xr.DataArray) -> Axis:
    """Return the :class:`~xspline.spaces.Axis` of a coordinate: its kind, calendar, units and CF role."""
    dtype = getattr(coordinate.indexes.get(coordinate.name), "dtype", coordinate.dtype)
    is_text = coordinate.dtype.kind == "U" or str(dtype).startswith("str")
    label = str(next(coordinate.values.flat, "")) if is_text else ""
    if not isinstance(dtype, np.dtype) or INSTANT.fullmatch(with_hyphens(label)):
        raise TypeError(_of_pandas(str(coordinate.name), str(dtype), label))
    sample = _sample(coordinate)
    if coordinate.dtype.kind not in "iufbMmO":
        raise TypeError(
            f"coordinate {coordinate.name!r} has dtype {coordinate.dtype}, which is neither a number nor a time; "
            f"convert it, or fit another coordinate of {coordinate.dims}"
        )
    axis = Axis.infer("", sample)
    if axis.kind != "number":
        return axis
    role, given = role_of(coordinate), units_of(coordinate)
    is_circle = role == "longitude" and degrees_in(given)
    wrap = abs(converted(360.0, "degree", given)) if is_circle else None
    return Axis(units=given, wrap=wrap, role=role)


def _of_pandas(name: str, dtype: str, label: str) -> str:
    """Return what is wrong with labels of a type of pandas, or texts, of which this is the first, and what to do."""
    index, other = f"ds.indexes[{name!r}]", ("a type of pandas", f"ds[{name!r}].astype(float)")
    if INSTANT.fullmatch(label):
        other = ("texts of dates", f'ds[{name!r}].astype("datetime64[ns]")')
    elif INSTANT.fullmatch(with_hyphens(label)):  # NumPy reads 20000601 as a year
        other = ("texts of dates", f"pandas.to_datetime({index})")
    what, labels = {
        "datetime64": (
            "times of a time zone (all are UTC here)",
            f'{index}.tz_convert("UTC").tz_localize(None)',
        ),
        "period": ("periods, which are no instants", f"{index}.to_timestamp()"),
        "interval": ("intervals; take their middles", f"{index}.mid"),
    }.get(dtype.partition("[")[0], other)
    return f"coordinate {name!r} holds {what}, {dtype}: ds.assign_coords({name}={labels})"


def auxiliary(named: Mapping[Hashable, xr.Variable]) -> set[Hashable]:
    """Return the names of bounds of cells and of grid mappings: neither data nor coordinates (CF, sections 5.6, 7)."""
    attributes = [{**v.encoding, **v.attrs} for v in named.values()]
    names = {a[key] for a in attributes for key in ("bounds", "climatology") if key in a}
    for text in (str(a["grid_mapping"]) for a in attributes if "grid_mapping" in a):  # "crs", or "crs: x y"
        names |= {word.rstrip(":") for word in text.split() if word.endswith(":")} or {text}
    names |= {name for name, v in named.items() if "grid_mapping_name" in v.attrs}
    bounds = ((name, _BOUNDS.fullmatch(str(name))) for name in named)
    return names | {name for name, match in bounds if match and match[1] in named}


def _sample(coordinate: xr.DataArray) -> np.ndarray:
    """Return as many labels as show their type; a chunked array is loaded only where nothing but its values does."""
    if coordinate.dtype == object or coordinate.size == 0:
        return np.asarray(coordinate.isel(dict.fromkeys(coordinate.dims, slice(0, 1))).values)
    return np.zeros(1, coordinate.dtype)
