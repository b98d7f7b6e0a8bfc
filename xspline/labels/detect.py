"""What the labels of an xarray object say: kinds of coordinate, CF roles, domains, and the layout of the dimensions."""

from __future__ import annotations

import datetime
import re
import warnings
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import cftime
import numpy as np
import xarray as xr

from xspline.kernels import Group, Layout
from xspline.labels.errors import unknown_name
from xspline.spaces import Axis, Space

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
_USUAL_NAMES = {
    **dict.fromkeys(("x", "xc", "rlon", "easting"), "X"),
    **dict.fromkeys(("y", "yc", "rlat", "northing"), "Y"),
    **dict.fromkeys(("z", "depth", "lev", "level", "plev", "pressure", "height", "altitude"), "Z"),
    **dict.fromkeys(("t", "time"), "T"),
}
_PRESSURE_UNITS = {"Pa", "hPa", "kPa", "mb", "mbar", "millibar", "millibars", "bar", "dbar", "decibar", "atm"}
_ONE_GAP = 1.5  # labels close the circle when their widest gap is within this factor of the usual one
_SMALL_GAP = 0.01  # or below this share of the circle,
_WIDE_GAP = 0.1  # or, below this share, within that factor of the second widest


def role_of(coordinate: xr.DataArray) -> str:
    """Return "latitude", "longitude" or "" from CF attributes, then from the name (CF conventions, section 4)."""
    standard, units = coordinate.attrs.get("standard_name"), coordinate.attrs.get("units")
    if standard in ("latitude", "longitude"):
        return str(standard)
    if units in _LATITUDE_UNITS:
        return "latitude"
    if units in _LONGITUDE_UNITS:
        return "longitude"
    return Axis.infer(str(coordinate.name), 0.0).role if units in (None, "", "degrees", "degree") else ""


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
        axis, rank = ("Z", 5) if attrs.get("positive") in ("up", "down") else _by_name(coordinate, name)
    return ("", 0) if axis in ("X", "Y") and _counts(coordinate) else (axis, rank)


def _by_name(coordinate: xr.DataArray, name: str) -> tuple[str, int]:
    """Return the axis that a name or a unit suggests; in two dimensions they are as likely a field, such as a depth."""
    if coordinate.ndim != 1:
        return "", 0
    pressure = "Z" if coordinate.attrs.get("units") in _PRESSURE_UNITS else ""
    return _USUAL_NAMES.get(name, pressure), 6 if name in _USUAL_NAMES else 7


def _counts(coordinate: xr.DataArray) -> bool:
    return coordinate.dtype.kind in "iu" and coordinate.attrs.get("units", "1") in ("", "1")


def is_date(coordinate: xr.DataArray) -> bool:
    """Return whether the labels are datetime64 or date objects such as cftime's."""
    if coordinate.dtype != object or coordinate.size == 0:
        return coordinate.dtype.kind == "M"
    return isinstance(_sample(coordinate).ravel()[0], cftime.datetime | datetime.date)


def axis_of(coordinate: xr.DataArray) -> Axis:
    """Return the :class:`~xspline.spaces.Axis` of a coordinate: its kind, calendar, units and CF role."""
    sample = _sample(coordinate)
    if coordinate.dtype.kind not in "iufbMmO":
        raise TypeError(
            f"coordinate {coordinate.name!r} has dtype {coordinate.dtype}, which is neither a number nor a time; "
            f"convert it, or fit another coordinate of {coordinate.dims}"
        )
    axis = Axis.infer("", sample)
    if axis.kind != "number":
        return axis
    role = role_of(coordinate)
    units = str(coordinate.attrs.get("units", ""))
    return Axis(units=units, wrap=360.0 if role == "longitude" else None, role=role)


def _sample(coordinate: xr.DataArray) -> np.ndarray:
    """Return labels enough to see their type, without loading a chunked array unless only its values tell."""
    if coordinate.dtype == object or coordinate.size == 0:
        return np.asarray(coordinate.isel(dict.fromkeys(coordinate.dims, slice(0, 1))).values)
    return np.zeros(1, coordinate.dtype)


def coordinate_of(
    data: xr.DataArray | xr.Dataset, name: str, *, index: bool, others: Iterable[Hashable] = ()
) -> xr.DataArray:
    """Return the coordinate called `name`; a dimension without labels gets 0..n-1 when `index` allows it.

    Raises
    ------
    ValueError
        The name is a data variable (`others`), is unknown (near misses are suggested), or is a dimension
        without labels while every holder has to agree on the labels.
    """
    if name in data.coords:
        return data.coords[name]
    if name in data.dims:
        return _counted(data, name, index)
    if name in others:
        raise ValueError(
            f"{name!r} is a data variable; make it a coordinate first: ds = ds.set_coords([{name!r}])"
        )
    advice = f". A variable of a Dataset becomes a coordinate of the others by ds.set_coords([{name!r}])"
    raise unknown_name(name, "coordinate", [*data.coords, *data.dims], advice)


def _counted(data: xr.DataArray | xr.Dataset, name: str, index: bool) -> xr.DataArray:
    if not index:
        raise ValueError(
            f"dimension {name!r} has no coordinate, so holders cannot agree on its labels; "
            f"assign one first: data.assign_coords({name}=...)"
        )
    warnings.warn(
        f"dimension {name!r} has no coordinate; its labels are taken as 0..{data.sizes[name] - 1}",
        stacklevel=2,
    )
    return xr.DataArray(np.arange(data.sizes[name], dtype=float), dims=name, name=name)


def extents_of(
    coordinates: Mapping[str, xr.DataArray], axes: Mapping[str, Axis]
) -> dict[str, tuple[float, float]]:
    """Return the range of every coordinate as floats of its axis; chunked coordinates are loaded in one compute."""
    loaded = in_memory(coordinates)
    return {name: extent_of(axes[name].to_float(c.values), axes[name], name) for name, c in loaded.items()}


def in_memory(coordinates: Mapping[str, xr.DataArray]) -> dict[str, xr.DataArray]:
    """Return the coordinates with their labels loaded; the chunked ones all in one compute."""
    chunked = {name: c for name, c in coordinates.items() if c.chunks is not None}
    if not chunked:
        return dict(coordinates)
    loaded = xr.Dataset({f"c{i}": c.variable for i, c in enumerate(chunked.values())}).compute()
    variables = (loaded[f"c{i}"].variable for i in range(len(chunked)))
    return {
        **coordinates,
        **{n: c.copy(data=v.data) for (n, c), v in zip(chunked.items(), variables, strict=True)},
    }


def extent_of(x: np.ndarray, axis: Axis, name: str) -> tuple[float, float]:
    """Return (lowest, highest) of the finite labels; for a longitude the smallest arc that holds them all.

    A longitude whose labels close the circle has the extent (0, 360).
    """
    x = x[np.isfinite(x)]
    if x.size == 0:
        raise ValueError(
            f"coordinate {name!r} has no valid labels, so it has no range; pass domain=(lo, hi) in its basis"
        )
    if axis.wrap is None:
        return float(x.min()), float(x.max())
    return _arc(x, axis.wrap)


def _arc(x: np.ndarray, period: float) -> tuple[float, float]:
    """Return the smallest arc over labels on a circle, with the labels' own numbers if they do not jump."""
    places = np.unique(np.mod(x, period))
    gaps = np.diff(places, append=places[0] + period)
    widest = int(np.argmax(gaps))
    if len(gaps) > 2 and gaps[widest] <= _closed(np.delete(gaps, widest), period):
        return 0.0, period
    lo = float(places[(widest + 1) % len(places)])
    span = float(period - gaps[widest])
    start = float(x.min())
    if x.max() - start <= span * (1 + 1e-12):  # labels that do not jump keep their own numbers, bit for bit
        return start, float(x.max())
    return lo, lo + span


def _closed(others: np.ndarray, period: float) -> float:
    """Return the widest gap that belongs to a closed circle: labels of curvilinear grids and of points are not even."""
    second = min(_ONE_GAP * others.max(), _WIDE_GAP * period)
    return float(max(_ONE_GAP * np.median(others), _SMALL_GAP * period, second))


def is_lazily_indexed(data: xr.DataArray) -> bool:
    """Return whether the values still lie in their store without Dask (opened with ``chunks=None``)."""
    return data.chunks is None and not data.variable._in_memory


def storage_chunks(data: xr.DataArray) -> tuple[int, ...] | None:
    """Return the chunk shape of the store behind a lazily indexed array, if it is known and fits."""
    preferred = data.encoding.get("preferred_chunks")
    if preferred and all(dim in preferred for dim in data.dims):
        return tuple(_first(preferred[dim]) for dim in data.dims)
    stored = data.encoding.get("chunks") or data.encoding.get("chunksizes")
    return tuple(int(n) for n in stored) if stored and len(stored) == data.ndim else None


def _first(chunk: Any) -> int:
    return int(chunk[0]) if isinstance(chunk, tuple) else int(chunk)


@dataclass(frozen=True)
class Arrangement:
    """How the dimensions of some data meet the coordinates of a Space.

    Attributes
    ----------
    names : fitted coordinates, in Space order.
    dims : dimensions of the data, in stored order.
    spans : for each fitted coordinate, the dimensions of its group.
    pooled, batch : dimensions of repeated observations, and of independent fits.
    """

    names: tuple[str, ...]
    dims: tuple[Hashable, ...]
    spans: tuple[tuple[Hashable, ...], ...]
    pooled: tuple[Hashable, ...]

    @property
    def consumed(self) -> set[Hashable]:
        """Dimensions that the fit sums over."""
        return {dim for span in self.spans for dim in span} | set(self.pooled)

    @property
    def batch(self) -> tuple[Hashable, ...]:
        """Dimensions that no fitted coordinate spans."""
        return tuple(dim for dim in self.dims if dim not in self.consumed)

    def layout(self) -> Layout:
        """Return the same in positions of array axes, which is all that the kernels know."""
        axis = {dim: i for i, dim in enumerate(self.dims)}
        groups: dict[tuple[Hashable, ...], list[int]] = {}
        scalars = []
        for j, span in enumerate(self.spans):
            if span:
                groups.setdefault(span, []).append(j)
            else:
                scalars.append(Group((), (j,)))
        spanned = [Group(tuple(axis[d] for d in span), tuple(js)) for span, js in groups.items()]
        pooled = [Group((axis[d],), ()) for d in self.pooled]
        return Layout((*spanned, *scalars, *pooled), tuple(axis[d] for d in self.batch))


def arrange(
    dims: tuple[Hashable, ...], coordinates: Mapping[str, xr.DataArray], pooled: Iterable[Hashable] = ()
) -> Arrangement:
    """Group the coordinates by the dimensions that they share.

    Raises
    ------
    ValueError
        A coordinate spans a dimension that the data lack, or a pooled dimension is unknown or is spanned.
    """
    spans = _connected([set(c.dims) for c in coordinates.values()])
    for name, span in zip(coordinates, spans, strict=True):
        if missing := span - set(dims):
            raise ValueError(
                f"coordinate {name!r} spans {sorted(map(str, missing))}, but the data have dimensions {dims}"
            )
    pooled = tuple(pooled)
    for dim in pooled:
        if dim not in dims:
            raise unknown_name(str(dim), "dimension", dims)
        if any(dim in span for span in spans):
            raise ValueError(
                f"dimension {dim!r} is spanned by a fitted coordinate, so it cannot be pooled; leave out {dim}=None"
            )
    ordered = tuple(tuple(d for d in dims if d in span) for span in spans)
    return Arrangement(tuple(coordinates), tuple(dims), ordered, pooled)


def _connected(spans: list[set[Hashable]]) -> list[set[Hashable]]:
    """Return for each set the union of all sets that it is linked to by shared members."""
    merged = [set(span) for span in spans]
    for _ in merged:
        merged = [set().union(a, *(b for b in merged if a & b)) for a in merged]
    return merged


def floats(
    coordinate: xr.DataArray,
    name: str,
    space: Space,
    span: tuple[Hashable, ...],
    sizes: Mapping[Hashable, int],
) -> Any:
    """Return a coordinate as floats of its axis over its whole group: NumPy, or a lazy array where it is chunked."""
    full = coordinate.variable.set_dims({dim: sizes[dim] for dim in span}).transpose(*span)
    if coordinate.chunks is None:
        return space.to_float(name, full.values)
    return full.data.map_blocks(_to_float, space, name, dtype=float, meta=np.empty((0,) * full.ndim))


def _to_float(block: np.ndarray, space: Space, name: str) -> np.ndarray:
    return space.to_float(name, block)
