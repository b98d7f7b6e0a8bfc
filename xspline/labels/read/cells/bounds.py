"""Which coordinates have cells, by their CF bounds (CF conventions, section 7.1), and these cells as floats."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import xarray as xr

from xspline.arguments import brief
from xspline.labels.errors import check_names
from xspline.labels.read.coordinates import floats, in_units_of
from xspline.solve.errors import warn
from xspline.spaces import Axis, Space
from xspline.spaces.basis import coordinate_in_errors
from xspline.spaces.conversions import degrees_in, units_of
from xspline.spaces.means import CellSpace, as_cells, neighbours

Array = np.ndarray
CELLS, POINTS = "cells", "points"


def has_cells(support: Any) -> bool:
    """Return whether a support says that there are cells."""
    given = support.values() if isinstance(support, Mapping) else [support]
    return not all(own is None or (isinstance(own, str) and own == POINTS) for own in given)


def bounds_of(
    data: xr.DataArray | xr.Dataset, support: Any, coordinates: Mapping[str, xr.DataArray]
) -> dict[str, xr.DataArray]:
    """Return the bounds of the fitted coordinates that have cells, over the dimensions of each and one of two ends.

    Parameters
    ----------
    support : "cells" for all that name their bounds, None or "points" for none; or by coordinate one of these, or the
        bounds themselves.

    Raises
    ------
    ValueError : a support is none of these, there are no bounds, or they do not fit the coordinate.
    """
    if support is None or (isinstance(support, str) and not has_cells(support)):
        return {}
    if isinstance(support, str) and support == CELLS:
        named = [name for name, c in coordinates.items() if _named_by(c) is not None]
        if not named:
            raise ValueError(
                f"support='cells' takes cells from CF bounds, and none of {', '.join(coordinates)} names any; add them "
                "(cf_xarray: ds.cf.add_bounds(['time'])), or pass the ends of the cells, support={'time': bounds}, a "
                "DataArray with a dimension of two beside that of the labels"
            )
        support = dict.fromkeys(named, CELLS)
    if not isinstance(support, Mapping):
        raise ValueError(
            f"support={brief(support)} is unknown; pass 'cells', or by coordinate 'cells', 'points' or bounds, as in "
            "support={'time': 'cells'}"
        )
    bounds = {}
    check_names(support, coordinates, "fitted coordinate for support=")
    for name, given in support.items():
        if not has_cells(given):
            continue
        is_named = isinstance(given, str) and given == CELLS
        own = _variable_of(data, coordinates[name], name) if is_named else given
        if not isinstance(own, xr.DataArray):
            raise ValueError(
                f"support={{{name!r}: {brief(given)}}} is unknown; pass 'cells', 'points', or a DataArray of bounds"
            )
        bounds[name] = _fitting(own, coordinates[name], name)
    return bounds


def _named_by(coordinate: xr.DataArray) -> str | None:
    """Return the name of the bounds that the attributes say, which xarray may have moved to the encoding."""
    return {**coordinate.encoding, **coordinate.attrs}.get("bounds")


def _variable_of(data: xr.DataArray | xr.Dataset, coordinate: xr.DataArray, name: str) -> xr.DataArray:
    """Return the bounds that a coordinate names."""
    key = _named_by(coordinate)
    if key is None:
        raise ValueError(
            f"coordinate {name!r} names no bounds: it has no attribute 'bounds'; add it (cf_xarray: "
            f"ds.cf.add_bounds([{name!r}])), or pass the ends of its cells, support={{{name!r}: bounds}}"
        )
    if key in (data.variables if isinstance(data, xr.Dataset) else data.coords):
        return data[key]
    raise ValueError(
        f"coordinate {name!r} names the bounds {key!r}, which are not here: xarray leaves them out of ds.u and "
        f"ds[['u']]; fit the Dataset that holds them, ds.spline.fit(...), or pass them, "
        f"support={{{name!r}: ds[{key!r}]}}"
    )


def _fitting(bounds: xr.DataArray, coordinate: xr.DataArray, name: str) -> xr.DataArray:
    """Return bounds in memory, the ends last, in the units of their coordinate if they say none."""
    (*beside,) = (dim for dim in bounds.dims if dim not in coordinate.dims)
    sizes = {dim: n for dim, n in bounds.sizes.items() if dim in coordinate.dims}
    if len(beside) != 1 or bounds.sizes[beside[0]] != 2 or sizes != dict(coordinate.sizes):
        raise ValueError(
            f"the bounds of {name!r} have the dimensions {dict(bounds.sizes)}, and have to have those of its labels, "
            f"{dict(coordinate.sizes)}, and one of two ends; corners of cells in two dimensions are not taken: say "
            f"which coordinates have cells, as in support={{'time': 'cells'}}"
        )
    for dim in coordinate.dims:
        mine, yours = bounds.indexes.get(dim), coordinate.indexes.get(dim)
        if mine is not None and yours is not None and not mine.equals(yours):
            i = int(np.flatnonzero(mine != yours)[0])
            raise ValueError(
                f"the bounds of {name!r} are those of {dim}={mine[i]} where the data have {dim}={yours[i]}; select "
                f"them as the data, bounds.sel({dim}=data.{dim})"
            )
    units = units_of(bounds) or units_of(coordinate)
    plain = bounds.drop_vars(bounds.coords).transpose(*coordinate.dims, beside[0]).compute()
    return plain.assign_attrs(units=units)


def ends_of(axis: Axis, x: Array, bounds: Array, name: str) -> tuple[Array, Array]:
    """Return the lower and the upper end of the cell around each label x, as floats of the axis, before it is moved.

    A longitude's cell may be written across the seam, and one of a latitude ends at the pole.

    Raises
    ------
    ValueError : an end is missing, a cell has no width, or a label is not in its cell.
    """
    lower, upper = np.min(bounds, axis=-1), np.max(bounds, axis=-1)
    # Labels may have been rounded to float32.
    rounding = np.spacing(np.abs(np.nan_to_num(x)).astype(np.float32)).astype(np.float64)
    if axis.wrap is not None:
        for low, high in ((upper - axis.wrap, lower), (lower, upper)):  # the last that holds the label
            turns = axis.wrap * np.rint((x - (low + high) / 2) / axis.wrap)
            holds = (low + turns - rounding <= x) & (x <= high + turns + rounding)
            lower, upper = np.where(holds, low + turns, lower), np.where(holds, high + turns, upper)
    known = np.isfinite(x)
    ends = np.isfinite(lower) & np.isfinite(upper)
    holds = (lower - rounding <= x) & (x <= upper + rounding)
    for wrong, what, advice in (
        (known & ~ends, "is missing or infinite", "mend it, or drop the label"),
        (known & (upper <= lower), "has no width", "an observation at a point takes support='points'"),
        (known & ~holds, "does not hold it", "pass the bounds in the order of the labels"),
    ):
        if wrong.any():
            i = tuple(int(k[0]) for k in np.nonzero(wrong))
            shown = " to ".join(axis.text(end[i]) if np.isfinite(end[i]) else "NaN" for end in (lower, upper))
            raise ValueError(
                f"{name}: the cell {shown} of the label {axis.text(x[i])} {what}, as {int(wrong.sum())} of {x.size}; "
                f"{advice}"
            )
    if axis.role == "latitude":
        pole = 90 / (degrees_in(axis.units) or 1.0)
        lower, upper = np.clip(lower, -pole, pole), np.clip(upper, -pole, pole)
    return lower, upper


def range_of_cells(
    bounds: Mapping[str, xr.DataArray], name: str, axis: Axis, coordinate: xr.DataArray
) -> Array:
    """Return numbers whose range holds all cells of a coordinate, or its labels where it has none."""
    x = axis.to_float(coordinate.values)
    if name not in bounds:
        return x
    with coordinate_in_errors(f"bounds of {name}"):
        ends = axis.to_float(bounds[name].values)
    return np.concatenate([np.ravel(own) for own in (x, *ends_of(axis, x, ends, name))])


def cells_of(
    coordinate: xr.DataArray,
    bounds: xr.DataArray,
    name: str,
    space: Space,
    span: tuple[Hashable, ...],
    sizes: Mapping[Hashable, int],
) -> Array:
    """Return the cells of a coordinate as complex numbers over its whole group; raises as `floats` and `ends_of`."""
    coordinate, axis = coordinate.compute(), space.axis(name)
    with coordinate_in_errors(name):
        x = axis.to_float(in_units_of(space, coordinate, name).values)
    with coordinate_in_errors(f"bounds of {name}"):
        ends = axis.to_float(in_units_of(space, bounds, name).values)
    lower, upper = ends_of(axis, x, ends, name)
    turn = floats(coordinate, name, space, coordinate.dims, sizes) - x
    if turn.any():  # labels that are moved into the domain take their cells along
        lower, upper = lower + turn, upper + turn
    for end in space.basis(name).record(axis) or ():
        kind = bounds.dtype.type if bounds.dtype.kind == "f" else np.float64
        near = 4 * float(np.spacing(kind(abs(end))))
        lower, upper = (np.where(np.abs(e - end) <= near, end, e) for e in (lower, upper))
    full = xr.Variable(coordinate.dims, as_cells(lower, upper)).set_dims({dim: sizes[dim] for dim in span})
    return np.asarray(full.transpose(*span).values)


def over_cells(space: Space, cells: Mapping[str, Array]) -> Space:
    """Return the space whose functions are means over cells, along coordinates that have some; else the same.

    Raises
    ------
    ValueError : a cell touches so many functions of a circle that two are neighbours on both sides.
    """
    near = {}
    for name, own in cells.items():
        features = space.features[space.names.index(name)]
        near[name] = neighbours(features, own)
        if features.periodic and 2 * near[name] - 1 > features.size:
            raise ValueError(
                f"{name}: a cell of the data touches {near[name]} of the {features.size} functions on the circle; take "
                f"{2 * near[name]} or more, or Fourier, whose cells may be as wide as they are"
            )
    return CellSpace(space.coupling(near), near) if near else space


def warn_of_cut(space: Space, cells: Mapping[str, Array]) -> None:
    """Warn of cells that the end of a domain cuts: means over what is outside too, which no field has."""
    for name, own in cells.items():
        axis, record = space.axis(name), space.basis(name).record(space.axis(name))
        if record is None:
            continue
        low, high = record
        cut = ((own.real < low) & (own.imag > low)) | ((own.real < high) & (own.imag > high))
        if cut.any():
            ends = own[cut].real.min(initial=low), own[cut].imag.max(initial=high)
            wider = f"({axis.text(ends[0])}, {axis.text(ends[1])})"
            warn(
                f"{int(cut.sum())} of {own.size} cells of {name!r} reach out of its domain {axis.text(low)} to "
                f"{axis.text(high)}, and their observations were left out; a domain that holds them is {wider}, "
                "which xs.space(data, ..., support='cells') gives too"
            )
