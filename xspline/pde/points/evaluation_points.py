"""Where an equation is compared with a field: values, exact or differenced derivatives, and what is known there."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from xspline.labels.errors import unknown_name
from xspline.labels.field_base import FieldBase
from xspline.labels.read import targets
from xspline.labels.read.coordinates import in_units_of
from xspline.labels.read.observations import is_lazily_indexed
from xspline.pde.text.symbols import Value
from xspline.spaces import Space


@dataclass(frozen=True, eq=False)
class Points:
    """Where a field is evaluated. Arrays that come from here have no coordinates and are aligned by dimensions alone.

    `fields` holds the field of each variable, `labels` those of each fitted coordinate in Space order, and `chunks` the
    chunk sizes by dimension, None for arrays in memory.
    """

    field: FieldBase[Any]
    fields: Mapping[str, FieldBase[Any]]
    labels: Mapping[str, xr.DataArray]
    chunks: Mapping[Hashable, Any] | None

    @classmethod
    def of(cls, field: FieldBase[Any], at: Any) -> Points:
        """Return the points of a target; None means the fitted labels.

        It raises ValueError where there are none, because the statistics of several holders were merged or the field
        was read from a file.
        """
        s = field.statistics
        if at is None and (missing := [name for name in field.space.names if name not in (s._fitted or {})]):
            raise ValueError(
                f"this field remembers no labels of {', '.join(missing)}, so there is nowhere to hold the equation "
                f"against it; pass at= a grid, for example xr.Dataset(coords={{{missing[0]!r}: ...}})"
            )
        batch = (dim for v in field.variables.values() for dim in v.batch_dims)
        where = targets.resolve(field.space, s._fitted, s._chunks, batch, at, {}, None)
        fields = {name: field[name] if s._is_dataset else field for name in field.variables}
        return cls(field, fields, where.coordinates, where.chunks)

    @property
    def sizes(self) -> dict[Hashable, int]:
        """Length of each dimension that the labels span."""
        return {dim: n for c in self.labels.values() for dim, n in c.sizes.items()}

    def value(self, value: Value) -> xr.DataArray:
        """Return a value or a derivative, exactly."""
        variable = self.fields[value.variable]
        if not value.orders:
            return bare(variable.predict(self.labels, chunks=self.chunks))
        return bare(variable.derivative(self.labels, dict(value.orders), chunks=self.chunks))

    def coordinate(self, name: str) -> xr.DataArray:
        """Return labels as floats of the coordinate's axis."""
        space = self.field.space
        plain = bare(in_units_of(space, self.labels[name], name))
        return xr.apply_ufunc(
            space.axis(name).to_float, plain, dask="parallelized", output_dtypes=[np.float64]
        )

    def along(self, name: str, function: Callable[[Any], Any]) -> xr.DataArray:
        """Return a function of a coordinate's labels as floats."""
        x = self.coordinate(name)
        return xr.apply_ufunc(function, x, dask="parallelized", output_dtypes=[np.float64])


@dataclass(frozen=True, eq=False)
class Differences(Points):
    """Interior points of a regular grid, with derivatives by central differences of the values (paper, section 3.3).

    `grid` is all of the grid, of which each differentiated coordinate loses `margins` points at both of its ends.
    """

    grid: Points
    margins: Mapping[str, int]

    @classmethod
    def inside(cls, points: Points, values: Iterable[Value]) -> Differences:
        """Return the points of the grid at which all these derivatives have neighbours on both sides.

        It raises ValueError where a coordinate is not a dimension of its own, is not evenly spaced, or is too short.
        """
        margins: dict[str, int] = {}
        for name, order in (pair for value in values for pair in value.orders):
            margins[name] = max(margins.get(name, 0), (order + 1) // 2)
        inside = dict(points.labels)
        for name, margin in margins.items():
            _check_regular(points, name, margin)
            inside[name] = inside[name].isel({inside[name].dims[0]: slice(margin, -margin)})
        return cls(points.field, points.fields, inside, points.chunks, points, margins)

    def value(self, value: Value) -> xr.DataArray:
        """Return a value, or a derivative by second differences and, for an odd order, one central first difference."""
        total = self.grid.value(Value(value.variable))
        orders = dict(value.orders)
        for name, margin in self.margins.items():
            dim = self.grid.labels[name].dims[0]
            count = total.sizes[dim] - 2 * margin
            order = orders.get(name, 0)
            weights = np.ones(1)  # of a central difference, for a spacing of one
            for _ in range(order // 2):
                weights = np.convolve(weights, [1.0, -2.0, 1.0])
            if order % 2:
                weights = np.convolve(weights, [-0.5, 0.0, 0.5])
            used = [(margin - weights.size // 2 + i, float(w)) for i, w in enumerate(weights) if w]
            parts = [w * total.isel({dim: slice(first, first + count)}) for first, w in used]
            total = sum(parts[1:], start=parts[0]) / self.step(name) ** order
        return total

    def step(self, name: str) -> float:
        """Return the spacing of a coordinate, in its own units or seconds."""
        x = self.grid.coordinate(name).values
        return float((x[-1] - x[0]) / (x.size - 1))


def bare(array: xr.DataArray) -> xr.DataArray:
    """Return the array without name, coordinates and attributes."""
    return xr.DataArray(array.variable).drop_attrs()


def _check_regular(points: Points, name: str, margin: int) -> None:
    labels = points.labels[name]
    shared = [n for n, other in points.labels.items() if n != name and set(other.dims) & set(labels.dims)]
    if labels.ndim != 1 or shared:
        what = f"shares a dimension with {', '.join(shared)}" if shared else f"has dimensions {labels.dims}"
        raise ValueError(
            f"method='differences' needs a regular grid, but {name!r} {what}; pass at= a grid, "
            f"or use method='pointwise'"
        )
    if labels.size < 2 * margin + 1:
        raise ValueError(
            f"there is nothing left to estimate from: {name!r} has {labels.size} labels and differences need "
            f"{2 * margin + 1} or more; pass at= a longer grid"
        )
    x = points.coordinate(name).values
    steps, mean = np.diff(x), (x[-1] - x[0]) / (x.size - 1)
    rounding = np.finfo(np.float32 if labels.dtype == np.float32 else np.float64).eps
    tolerance = 1e-9 * abs(mean) + 4 * rounding * np.abs(x).max()
    if not np.abs(steps - mean).max() <= tolerance or mean == 0:
        raise ValueError(
            f"method='differences' needs an evenly spaced {name!r}, but its steps go from {steps.min():g} to "
            f"{steps.max():g}; pass at= a regular grid, or use method='pointwise'"
        )


def at_points(name: str, value: Any, points: Points, letters: Mapping[str, str]) -> Any:
    """Return the values of something known at some points.

    The value is a number; a DataArray whose labels are those of the points, or cover them exactly; a field; or a
    function whose arguments are named after coordinates or their letters (numbers; times in seconds since 1970-01-01).
    The result is a number or a DataArray without coordinates. It raises TypeError or ValueError where it is none of
    these, or its labels do not cover the points.
    """
    if isinstance(value, FieldBase):
        value = of_field(name, value, points.field.space, points.labels, points.chunks)
    if isinstance(value, xr.DataArray):
        return _aligned(name, value, points)
    if callable(value):
        return _called(name, value, points, letters)
    return number_of(name, value)


def of_field(
    name: str,
    field: FieldBase[Any],
    space: Space,
    labels: Mapping[str, xr.DataArray],
    chunks: Mapping[Hashable, Any] | None = None,
) -> xr.DataArray:
    """Return the values of a known field at labels, which are in the units of a space where they do not say theirs.

    It raises TypeError or ValueError where there are several variables, or the field cannot read these labels.
    """
    if len(field.variables) > 1:
        own = list(field.variables)
        raise ValueError(
            f"known {name!r} is a field of several variables, {own}; select one, {name}[{own[0]!r}]"
        )
    at = {}
    for n in field.space.names:
        if n not in labels:
            raise ValueError(
                f"known {name!r} is a field over {n!r}, which is no fitted coordinate {tuple(labels)}; pass its values "
                f"for one label of that, {name}.predict({n}=...), or rename it before the fit"
            )
        at[n], axis = in_units_of(space, labels[n], n), space.axis(n)
        if axis.kind == "number" and axis.units:
            at[n] = at[n].assign_attrs(units=axis.units)
    own_chunks = {dim: n for dim, n in (chunks or {}).items() if any(dim in c.dims for c in at.values())}
    try:
        values = field.predict(at, chunks=own_chunks or None)
    except (TypeError, ValueError) as error:
        raise type(error)(f"known {name!r}: {error}") from None
    return values if isinstance(values, xr.DataArray) else values[next(iter(values))]


def number_of(name: str, value: Any) -> np.float64:
    """Return a number that is known. It raises TypeError where the value is none, nor what else it may be."""
    if isinstance(value, int | float | np.number | np.ndarray) and np.ndim(value) == 0:
        if np.asarray(value).dtype.kind in "iuf":
            return np.float64(value)
    raise TypeError(
        f"known {name!r} is of type {type(value).__name__}; pass a number, a DataArray, which says what its "
        "dimensions are, a field, or a function of the coordinates"
    )


def arguments_of(
    name: str, function: Callable[..., Any], names: Iterable[str], letters: Mapping[str, str]
) -> dict[str, str]:
    """Return the arguments of a known function and the fitted coordinate that each means.

    It raises TypeError or ValueError where the function has no arguments with names, or one that means no coordinate.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    arguments = [p.name for p in parameters if p.default is p.empty and p.kind in named]
    if not arguments:
        raise TypeError(
            f"known {name!r} is a function whose arguments do not name coordinates; wrap it, for example "
            f"lambda x, t: ..."
        )
    fitted = list(names)
    for argument in arguments:
        if letters.get(argument, argument) not in fitted:
            what = f"coordinate that the known {name!r} could be a function of:"
            raise unknown_name(argument, what, [*letters, *fitted])
    return {argument: letters.get(argument, argument) for argument in arguments}


def values_of(name: str, function: Callable[..., Any], arguments: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the values of a known function.

    It raises TypeError or ValueError where the function returned no real numbers, or not one for each label.
    """
    values = function(**arguments)
    shape = np.broadcast_shapes(*(x.shape for x in arguments.values()))
    own = np.asarray(values)
    if own.dtype.kind not in "iufb":
        raise TypeError(f"known {name!r} returned {type(values).__name__}, which is no real number")
    if own.ndim > len(shape) or any(
        n not in (1, m) for n, m in zip(own.shape[::-1], shape[::-1], strict=False)
    ):
        raise ValueError(
            f"known {name!r} returned an array of shape {own.shape} for {', '.join(arguments)} of shape {shape}; "
            "it has to return one value for each label, as NumPy's functions do, or a number"
        )
    return own.astype(np.float64)


def _called(
    name: str, function: Callable[..., Any], points: Points, letters: Mapping[str, str]
) -> xr.DataArray:
    arguments, coordinates = arguments_of(name, function, points.labels, letters), []
    for coordinate in arguments.values():
        epoch = points.field.space.axis(coordinate).epoch
        coordinates.append(points.coordinate(coordinate) + epoch if epoch else points.coordinate(coordinate))

    def broadcast(*x: np.ndarray) -> np.ndarray:
        values = values_of(name, function, dict(zip(arguments, x, strict=True)))
        return np.broadcast_to(values, np.broadcast_shapes(*(a.shape for a in x)))

    return xr.apply_ufunc(broadcast, *coordinates, dask="parallelized", output_dtypes=[np.float64])


def _aligned(name: str, array: xr.DataArray, points: Points) -> xr.DataArray:
    """Select the points' labels from an array, exactly."""
    if array.dtype.kind not in "iufb":
        raise TypeError(f"known {name!r} has dtype {array.dtype}, which is not a real number")
    if is_lazily_indexed(array) and points.chunks is not None:
        array = array.chunk("auto")
    variables = points.field.variables.values()
    batch = xr.merge([v.batch for v in variables], compat="override", join="outer")
    sizes = {dim: n for v in variables for dim, n in v.batch_sizes.items()}
    indexers: dict[Hashable, Any] = {}
    for dim in array.dims:
        if dim in points.labels and dim in array.coords:
            indexers[dim] = _fitted_indexer(name, array[dim], points)
        elif dim in sizes and dim in batch.coords and dim in array.coords:
            try:
                array = array.sel({dim: batch[dim].values})
            except KeyError as error:
                reason = error.args[0]
                raise ValueError(f"known {name!r} does not have every {dim!r} of the fit: {reason}") from None
        elif dim in sizes and array.sizes[dim] != sizes[dim]:
            raise ValueError(
                f"known {name!r} has {array.sizes[dim]} entries along {dim!r}, but the fit has {sizes[dim]}"
            )
        elif dim in sizes or dim in batch.dims:
            continue
        elif dim not in points.sizes:
            dims = ", ".join(map(repr, [*points.sizes, *sizes]))
            raise ValueError(
                f"known {name!r} spans {dim!r}, which is no dimension of the points ({dims}); select one entry of it"
            )
        elif array.sizes[dim] != points.sizes[dim]:
            raise ValueError(
                f"known {name!r} has {array.sizes[dim]} entries along {dim!r} without labels, but there are "
                f"{points.sizes[dim]} points; give it the coordinate {dim!r}"
            )
        elif dim in array.coords:  # entry by entry
            others = [labels[dim] for labels in points.labels.values() if dim in labels.coords]
            if not all(np.array_equal(other.values, array[dim].values) for other in others):
                raise ValueError(
                    f"known {name!r} and the points have different labels along {dim!r}; select the same ones first"
                )
    chosen = {dim: index for dim, index in indexers.items() if index is not None}
    return bare(xr.DataArray(array.variable.isel(chosen)))


def _fitted_indexer(name: str, labels: xr.DataArray, points: Points) -> slice | xr.Variable | None:
    """Return where the points' labels are among the array's; None if they are the same ones in the same order."""
    dim, space, wanted = str(labels.name), points.field.space, points.labels[str(labels.name)]
    mine, requested = (space.to_float(dim, in_units_of(space, own, dim).values) for own in (labels, wanted))
    if wanted.dims == labels.dims and np.array_equal(mine, requested):
        return None
    # Where each label is among the array's; -1 where it is not, and anywhere for NaN: no field has a value there.
    if mine.size:
        order = np.argsort(mine, kind="stable")
        nearest = order[np.minimum(np.searchsorted(mine[order], requested), mine.size - 1)]
        position = np.where((mine[nearest] == requested) | np.isnan(requested), nearest, -1)
    else:
        position = np.full(requested.shape, -1)
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
