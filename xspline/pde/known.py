"""What is known of an equation at nodes of quadrature: numbers, functions, fields, and arrays between their labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from xspline.labels.field_base import FieldBase
from xspline.labels.read.coordinates import in_units_of
from xspline.pde.points.evaluation_points import arguments_of, number_of, of_field, values_of
from xspline.pde.profile.axes import Array, ProjectedCoordinate
from xspline.spaces import Space
from xspline.spaces.features import Harmonics


def at_nodes(
    name: str,
    value: Any,
    space: Space,
    coordinates: Sequence[ProjectedCoordinate],
    letters: Mapping[str, str],
) -> Any:
    """Return the values of something known, which broadcast to the nodes of all coordinates.

    The value is a number; a function whose arguments are named after coordinates or their letters; a field; or a
    DataArray over fitted coordinates, through whose values splines of degree 5 are drawn, or Fourier series where the
    field's are. It raises TypeError or ValueError where it is none of these, or its labels do not cover the domain.
    """
    if isinstance(value, FieldBase):
        pairs = zip(space.names, coordinates, strict=True)
        labels = {n: xr.DataArray(space.axis(n).to_label(c.nodes), dims=n) for n, c in pairs}
        values = of_field(name, value, space, labels)
        if lost := [dim for dim in values.dims if dim not in space.names]:
            raise ValueError(
                f"known {name!r} spans {lost[0]!r}, which is no fitted coordinate; fit one entry of it, or pass values "
                f"of all, {name}.predict(), where the field that obeys the equation has {lost[0]!r} too"
            )
        if values.isnull().any():
            raise ValueError(
                f"known {name!r} is a field without values on part of the domain of the equation; fit it on all of it"
            )
        return _spread(values, space)
    if isinstance(value, xr.DataArray):
        return _interpolated(name, value, space, coordinates)
    if callable(value):
        return _called(name, value, space, coordinates, letters)
    return number_of(name, value)


def _called(
    name: str,
    function: Callable[..., Any],
    space: Space,
    coordinates: Sequence[ProjectedCoordinate],
    letters: Mapping[str, str],
) -> Array:
    arguments = {}
    for argument, coordinate in arguments_of(name, function, space.names, letters).items():
        axis = space.names.index(coordinate)
        shape = [1] * len(coordinates)
        shape[axis] = -1
        arguments[argument] = (coordinates[axis].nodes + space.axis(coordinate).epoch).reshape(shape)
    return values_of(name, function, arguments)


def _interpolated(
    name: str, array: xr.DataArray, space: Space, coordinates: Sequence[ProjectedCoordinate]
) -> Array:
    if array.dtype.kind not in "iufb":
        raise TypeError(f"known {name!r} has dtype {array.dtype}, which is not a real number")
    for dim in array.dims:
        if dim not in space.names or dim not in array.coords:
            raise ValueError(
                f"known {name!r} spans {dim!r}, which is no fitted coordinate with labels ({', '.join(space.names)}); "
                f"an equation that holds everywhere needs it as a function, a field fitted to it, or on a grid of these"
            )
    # In the order of the space, so that the order of the array's dimensions does not round differently.
    out = array.astype(np.float64).transpose(*(name for name in space.names if name in array.dims))
    if out.isnull().any():
        raise ValueError(
            f"known {name!r} has missing values; fit a field to it and pass that: {name}.spline.fit(...)"
        )
    values = np.array(out.values, order="C")
    for i, dim in enumerate(out.dims):
        axis = space.names.index(str(dim))
        x = space.to_float(str(dim), in_units_of(space, array[dim], str(dim)).values)
        values = _along_labels(name, str(dim), x, values, i, coordinates[axis])
    labelled = xr.DataArray(values, dims=out.dims)
    return _spread(labelled, space)


def _along_labels(
    name: str, dim: str, x: Array, values: Array, axis: int, coordinate: ProjectedCoordinate
) -> Array:
    """Return values at the nodes of one coordinate from values at labels x."""
    if x.size < 2 or not np.isfinite(x).all():
        raise ValueError(
            f"known {name!r} has {x.size} labels along {dim!r}, and there is nothing between them"
        )
    order = np.argsort(x, kind="stable")
    x, values, nodes = x[order], np.take(values, order, axis=axis), coordinate.nodes
    if (harmonics := min(2 * coordinate.harmonics, (x.size - 1) // 2)) > 0:
        waves = Harmonics(coordinate.period, harmonics)
        matrix = waves.values(nodes, 0) @ np.linalg.pinv(waves.values(x, 0))
        return np.moveaxis(np.tensordot(matrix, values, axes=(1, axis)), 0, axis)
    # Splines through the values are of the degree of the field, or of the next one: an odd one needs no more ends.
    degree = (coordinate.features.max_order or 0) | 1
    if coordinate.period:
        # Where labels go round, the last ones come before the first.
        period, reach = coordinate.period, min(2 * degree, x.size)
        inside = x < x[0] + period * (1 - 1e-9)
        x, values = x[inside], np.compress(inside, values, axis=axis)
        before, after = np.arange(x.size)[-reach:], np.arange(x.size)[:reach]
        nodes = x[0] + np.mod(nodes - x[0], period)
        values = np.concatenate(
            [np.take(values, p, axis=axis) for p in (before, np.arange(x.size), after)], axis
        )
        x = np.concatenate([x[before] - period, x, x[after] + period])
    elif nodes.min() < x[0] or nodes.max() > x[-1]:
        raise ValueError(
            f"known {name!r} has labels of {dim!r} from {x[0]:g} to {x[-1]:g}, but the equation holds from "
            f"{nodes.min():g} to {nodes.max():g}; pass it on all of the domain, or as a function"
        )
    # Not above: few equations have knowns, and each import makes that of the package longer.
    from scipy.interpolate import make_interp_spline

    degree = min(degree, x.size - 1)
    degree -= degree % 2 == 0 and degree > 0
    return np.asarray(make_interp_spline(x, values, k=degree, axis=axis)(nodes))


def _spread(array: xr.DataArray, space: Space) -> Array:
    """Return values with an axis for each coordinate, which has one entry where they do not depend on it."""
    present = [name for name in space.names if name in array.dims]
    values = array.transpose(*present).values
    shape = [array.sizes[name] if name in present else 1 for name in space.names]
    return np.asarray(values, dtype=np.float64).reshape(shape)
