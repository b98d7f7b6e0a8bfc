"""What is known beside the field: numbers, labelled arrays and functions of the coordinates, brought to the points."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np
import xarray as xr

from xspline.labels.errors import unknown_name
from xspline.labels.read.observations import is_lazily_indexed
from xspline.pde.points import Points, bare


def at_points(name: str, value: Any, points: Points, letters: Mapping[str, str]) -> Any:
    """Return the values of something known at some points.

    Parameters
    ----------
    value
        A number; a DataArray whose labels are those of the points, or cover them exactly; or a function whose
        arguments are named after coordinates or their letters (numbers; times in seconds since 1970-01-01).

    Returns
    -------
    float or DataArray without coordinates

    Raises
    ------
    TypeError, ValueError
        It is none of these, or its labels do not cover the points.
    """
    if isinstance(value, xr.DataArray):
        return _aligned(name, value, points)
    if callable(value):
        return _called(name, value, points, letters)
    if isinstance(value, int | float | np.number | np.ndarray) and np.ndim(value) == 0:
        number = np.asarray(value)
        if number.dtype.kind in "iuf":
            return np.float64(number)
    raise TypeError(
        f"known {name!r} is of type {type(value).__name__}; pass a number, a DataArray, which says what its "
        f"dimensions are, or a function of the coordinates"
    )


def _called(
    name: str, function: Callable[..., Any], points: Points, letters: Mapping[str, str]
) -> xr.DataArray:
    arguments = _arguments(name, function)
    coordinates = []
    for argument in arguments:
        coordinate = letters.get(argument, argument)
        if coordinate not in points.labels:
            raise unknown_name(
                argument,
                f"coordinate that the known {name!r} could be a function of:",
                [*letters, *points.labels],
            )
        coordinates.append(points.coordinate(coordinate))

    def broadcast(*x: np.ndarray) -> np.ndarray:
        values = function(**dict(zip(arguments, x, strict=True)))
        return np.broadcast_to(
            np.asarray(values, dtype=np.float64), np.broadcast_shapes(*(a.shape for a in x))
        )

    return xr.apply_ufunc(broadcast, *coordinates, dask="parallelized", output_dtypes=[np.float64])


def _arguments(name: str, function: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        parameters = ()  # type: ignore[assignment]
    needed = [
        p.name
        for p in parameters
        if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]
    if not needed:
        raise TypeError(
            f"known {name!r} is a function whose arguments do not name coordinates; wrap it, for example "
            f"lambda x, t: ..."
        )
    return needed


def _aligned(name: str, array: xr.DataArray, points: Points) -> xr.DataArray:
    """Select the points' labels from an array, exactly."""
    if array.dtype.kind not in "iufb":
        raise TypeError(f"known {name!r} has dtype {array.dtype}, which is not a real number")
    if is_lazily_indexed(array) and points.chunks is not None:
        array = array.chunk("auto")
    indexers: dict[Hashable, Any] = {}
    for dim in array.dims:
        if dim in points.labels and dim in array.coords:
            indexers[dim] = _fitted_indexer(name, array[dim], points)
        else:
            _check_dimension(name, array, dim, points)
    array = _on_batch(name, array, points)
    chosen = {dim: index for dim, index in indexers.items() if index is not None}
    return bare(xr.DataArray(array.variable.isel(chosen)))


def _fitted_indexer(name: str, labels: xr.DataArray, points: Points) -> slice | xr.Variable | None:
    """Return where the points' labels are among the array's; None if they are the same ones in the same order."""
    dim, space, wanted = str(labels.name), points.field.space, points.labels[str(labels.name)]
    mine, asked = space.to_float(dim, labels.values), space.to_float(dim, wanted.values)
    if wanted.dims == labels.dims and np.array_equal(mine, asked):
        return None
    position = _positions(mine, asked)
    if (lost := position < 0).any():
        first = np.asarray(wanted.values)[lost].ravel()[0]
        raise ValueError(
            f"known {name!r} has no value at {dim}={first} ({lost.sum()} of {lost.size} labels of the points are not "
            f"among its own); bring it there first, for example {name}.interp({dim}=...), or "
            f".sel({dim}=..., method='nearest')"
        )
    if wanted.dims == labels.dims and (np.diff(position) == 1).all():
        return slice(int(position[0]), int(position[-1]) + 1)  # a slice keeps the chunks of a lazy array
    return xr.Variable(wanted.dims, position)


def _positions(mine: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Return where each number is in an array; -1 where it is not, and anywhere for NaN: no field has a value there."""
    if not mine.size:
        return np.full(asked.shape, -1)
    order = np.argsort(mine, kind="stable")
    nearest = order[np.minimum(np.searchsorted(mine[order], asked), mine.size - 1)]
    return np.where((mine[nearest] == asked) | np.isnan(asked), nearest, -1)


def _check_dimension(name: str, array: xr.DataArray, dim: Hashable, points: Points) -> None:
    """Raise unless a dimension that no fitted coordinate labels is one of the points', entry by entry, or batch."""
    if dim in _batch(points).dims or dim in _batch_dims(points):
        return
    if dim not in points.sizes:
        known = ", ".join(map(repr, [*points.sizes, *_batch_dims(points)]))
        raise ValueError(
            f"known {name!r} spans {dim!r}, which is no dimension of the points ({known}); select one entry of it"
        )
    if array.sizes[dim] != points.sizes[dim]:
        raise ValueError(
            f"known {name!r} has {array.sizes[dim]} entries along {dim!r} without labels, but there are "
            f"{points.sizes[dim]} points; give it the coordinate {dim!r}"
        )
    for labels in points.labels.values():
        if (
            dim in labels.coords
            and dim in array.coords
            and not np.array_equal(labels[dim].values, array[dim].values)
        ):
            raise ValueError(
                f"known {name!r} and the points have different labels along {dim!r}; select the same ones first"
            )


def _batch(points: Points) -> xr.Dataset:
    return xr.merge([v.batch for v in points.field.variables.values()], compat="override", join="outer")


def _batch_dims(points: Points) -> dict[Hashable, int]:
    return {
        d: n
        for v in points.field.variables.values()
        for d, n in zip(v.batch_dims, v.batch_shape, strict=True)
    }


def _on_batch(name: str, array: xr.DataArray, points: Points) -> xr.DataArray:
    """Select the members of the fit along batch dimensions."""
    labels, sizes = _batch(points), _batch_dims(points)
    for dim in [d for d in array.dims if d in sizes]:
        if dim in labels.coords and dim in array.coords:
            try:
                array = array.sel({dim: labels[dim].values})
            except KeyError as error:
                raise ValueError(
                    f"known {name!r} does not have every {dim!r} of the fit: {error.args[0]}"
                ) from None
        elif array.sizes[dim] != sizes[dim]:
            raise ValueError(
                f"known {name!r} has {array.sizes[dim]} entries along {dim!r}, but the fit has {sizes[dim]}"
            )
    return array
