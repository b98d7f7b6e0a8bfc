"""Where a field is evaluated, and its values, derivatives and standard errors there, with labels, names and units."""

from __future__ import annotations

import datetime
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from xspline import execution
from xspline.labels.errors import unknown_name
from xspline.labels.fit import Fit
from xspline.labels.read.coordinates import arrange, floats
from xspline.labels.read.observations import Variable, is_lazily_indexed, storage_chunks
from xspline.labels.uncertainty import Covariance
from xspline.spaces import Space

_WORD = re.compile(r"[^\W\d]+|[°%]")
_WORDS = {1: "derivative", 2: "second derivative", 3: "third derivative"}


# ---- where


@dataclass(frozen=True, eq=False)
class Target:
    """The labels to evaluate at.

    Attributes
    ----------
    coordinates : for each fitted coordinate, in Space order, its labels.
    extra : other coordinates of the target that may label the result.
    chunks : chunk sizes by dimension, or one for all dimensions; None for a result in memory.
    """

    coordinates: Mapping[str, xr.DataArray]
    extra: xr.Dataset
    chunks: Any


def resolve(
    space: Space,
    fitted: Mapping[str, xr.DataArray] | None,
    fitted_chunks: Mapping[Hashable, Any] | None,
    at: Any,
    coords: Mapping[str, Any],
    chunks: Any,
) -> Target:
    """Return the target that the arguments of ``predict`` describe, as ``DataArray.interp`` reads them.

    Raises
    ------
    ValueError
        A name is not fitted, a coordinate is neither given nor remembered, or a label is a slice.
    """
    at = {} if at is None else at
    is_object = isinstance(at, xr.DataArray | xr.Dataset)
    given = at.variables if isinstance(at, xr.Dataset) else at.coords if is_object else at
    for name in coords:
        if name not in space.names:
            raise unknown_name(name, "fitted coordinate", space.names)
        if name in given:
            raise ValueError(f"{name!r} is given twice, in at= and as {name}=...; drop it from one of them")
    if not is_object:
        for key in given:
            if key not in space.names:
                raise unknown_name(str(key), "fitted coordinate", space.names)
    labels = {}
    for name in space.names:
        if name in coords:
            own = _as_labels(name, coords[name])
        elif name in given:
            own = at[name] if is_object else _as_labels(name, at[name])
        elif fitted is not None and name in fitted:
            own = fitted[name]
        else:
            raise ValueError(
                f"no labels for {name!r} are remembered here; pass at= an object that has them, or {name}=..."
            )
        axis = space.axis(name)
        if axis.kind != "number" and own.dtype.kind in "US":  # strings become the instants that they name
            own = own.copy(data=axis.to_label(axis.to_float(own.values)))
        labels[name] = own
    if chunks is None and is_object:
        chunks = target_chunks(at)
    elif chunks is None:
        requested = [*coords.values(), *given.values()]
        lazy = [c for c in requested if isinstance(c, xr.DataArray | xr.Variable) and c.chunks is not None]
        if lazy:
            chunks = {dim: sizes for c in lazy for dim, sizes in zip(c.dims, c.chunks or (), strict=True)}
        elif not requested:
            chunks = fitted_chunks
    return Target(labels, at.coords.to_dataset() if is_object else xr.Dataset(), chunks)


def _as_labels(name: str, value: Any) -> xr.DataArray:
    """Return labels given as a DataArray, a Variable, a scalar, or a sequence along a dimension of that name."""
    if isinstance(value, slice):
        raise ValueError(
            f"{name}={value} is a slice; pass the labels themselves, for example np.linspace(lo, hi, n)"
        )
    if isinstance(value, xr.DataArray):
        return value
    if isinstance(value, xr.Variable):
        return xr.DataArray(value)
    array = np.asarray(value)
    if array.ndim > 1:
        raise ValueError(f"{name} is an array of {array.ndim} dimensions without names; pass a DataArray")
    return xr.DataArray(array, dims=(name,) if array.ndim else ())


def target_chunks(data: xr.DataArray | xr.Dataset) -> Mapping[Hashable, Any] | None:
    """Return the chunks of a lazy object by dimension; None for one in memory."""
    if isinstance(data, xr.Dataset):
        variables = [*data.data_vars.values(), *data.coords.values()]
        lazy = [chunks for chunks in map(target_chunks, variables) if chunks is not None]
        return {dim: sizes for chunks in lazy for dim, sizes in chunks.items()} if lazy else None
    if data.chunks is not None:
        return dict(zip(data.dims, data.chunks, strict=True))
    if data.ndim and is_lazily_indexed(data):
        stored = storage_chunks(data)
        return dict(zip(data.dims, stored or data.shape, strict=True))
    return None


def _ordered_dims(target: Target, variable: Variable) -> tuple[Hashable, ...]:
    """Return the order that ``DataArray.interp`` gives; the order of the Space where the data's is unknown."""
    spans = dict(zip(target.coordinates, variable.spans, strict=True))
    order: list[Hashable] = []
    for dim in variable.dims:
        replaced = [d for name, c in target.coordinates.items() if dim in spans[name] for d in c.dims]
        order += replaced or ([dim] if dim in variable.batch_dims else [])
    order += [dim for c in target.coordinates.values() for dim in c.dims]
    return tuple(dict.fromkeys(order))


def _chunk_sizes(chunks: Any, dims: tuple[Hashable, ...], shape: tuple[int, ...]) -> Any:
    """Return chunk sizes per axis as Dask reads them; a dimension that is not named is one chunk."""
    if chunks is None:
        return None
    if not isinstance(chunks, Mapping):
        return tuple(chunks for _ in dims)
    sizes = [chunks.get(dim, -1) for dim in dims]
    # Explicit sizes hold only where they add up to the new length.
    return tuple(
        max(size, default=-1) if isinstance(size, tuple) and sum(size) != n else size
        for size, n in zip(sizes, shape, strict=True)
    )


# ---- values


def evaluate(
    fit: Fit,
    target: Target,
    orders: Mapping[str, int],
    device: str | None,
    covariance: Covariance | None = None,
) -> xr.DataArray:
    """Return one variable, or a derivative of it per unit of its coordinates; with a covariance its standard error."""
    variable, space = fit.variable, fit.space
    dims = _ordered_dims(target, variable)
    sizes = {dim: n for c in target.coordinates.values() for dim, n in c.sizes.items()}
    for dim, n in zip(variable.batch_dims, variable.batch_shape, strict=True):
        if dim in sizes:
            raise ValueError(
                f"{dim!r} is a batch dimension of the fit and a dimension of the target too; rename the target's"
            )
        sizes[dim] = n
    arrangement = arrange(dims, target.coordinates)
    coordinates = tuple(
        floats(target.coordinates[name], name, space, span, sizes)
        for name, span in zip(arrangement.names, arrangement.spans, strict=True)
    )
    shape = tuple(sizes[dim] for dim in dims)
    values = execution.evaluate(
        fit.coefficients if covariance is None else covariance.pairs,
        coordinates,
        arrangement.layout(),
        space,
        tuple(orders.get(c, 0) for c in space.names),
        shape,
        chunks=_chunk_sizes(target.chunks, dims, shape),
        device=device,
        pairs=covariance is not None,
    )
    name = variable.name
    if orders:  # dsst_dlat, d2sst_dlon2, d2sst_dlon_dtime
        total = sum(orders.values())
        below = "_".join(f"d{c}{n if n > 1 else ''}" for c, n in orders.items())
        name = f"d{total if total > 1 else ''}{name}_{below}"
    if covariance is None:
        return _labelled(xr.DataArray(values, dims=dims, name=name), target, fit, orders)
    stderr = np.sqrt(np.maximum(values, 0.0))  # where it vanishes, rounding may leave it below zero
    result = _labelled(xr.DataArray(stderr, dims=dims, name=f"{name}_stderr"), target, fit, orders)
    long_name = f"standard error of {result.attrs['long_name']}"
    return result.assign_attrs(long_name=long_name, **covariance.attrs)


def _labelled(result: xr.DataArray, target: Target, fit: Fit, orders: Mapping[str, int]) -> xr.DataArray:
    """Attach the target's coordinates, and name, units and history of what was evaluated."""
    variable, space = fit.variable, fit.space
    units = per(variable.units, *((space.axis(name).units, n) for name, n in orders.items()))
    selected = ", ".join(f"{name}={kind}" for name, kind in fit.selected.items())
    long_name = f"{variable.long_name} ({selected})" if selected else variable.long_name
    call = "predict()"
    if orders:
        parts = [
            f"{_WORDS.get(n, f'derivative of order {n}')} with respect to {c}" for c, n in orders.items()
        ]
        parts[0] = parts[0].replace(" with", f" of {long_name} with", 1)
        long_name = ", ".join(parts)
        call = f"derivative({', '.join(f'{n}={o}' for n, o in orders.items())})"
    own = {name: labels.variable for name, labels in target.coordinates.items()}
    beside = {n: c for labels in target.coordinates.values() for n, c in labels.coords.items()}
    beside |= dict(target.extra.coords)
    fits = {n: c for n, c in beside.items() if n not in own and set(c.dims) <= set(result.dims)}
    batch = {n: c for n, c in variable.batch.coords.items() if n not in own}
    labels: dict[Hashable, Any] = {n: c.variable for n, c in (*fits.items(), *batch.items())}
    attrs = attributes(units, long_name, variable.history, call)
    return result.assign_coords(labels | own).assign_attrs(attrs).drop_encoding()


# ---- units and history


def per(units: str, *denominators: tuple[str, int]) -> str:
    """Return units divided by powers of others, as UDUNITS writes it; empty where one of these is unknown.

    >>> per("degC", ("s", 1), ("degrees_east", 2))
    'degC s-1 degrees_east-2'
    >>> per("degC", ("", 1))
    ''
    """
    if any(n and not unit for unit, n in denominators):
        return ""
    # Of elapsed time "days since 2000-01-01" a derivative is per day; a product of units takes brackets.
    plain = [(unit.partition(" since ")[0], n) for unit, n in denominators]
    below = [f"{u if _WORD.fullmatch(u) else f'({u})'}-{n}" for u, n in plain if u != "1" and n]
    return " ".join([units, *below] if units and units != "1" else below)


def attributes(units: str, long_name: str, previous: str, what: str) -> dict[str, Any]:
    """Return the attributes of an output; empty ones are left out."""
    full = {"long_name": long_name, "units": units, "history": history(previous, what)}
    return {key: value for key, value in full.items() if value}


def history(previous: str, what: str) -> str:
    """Return a CF history with one line more, the newest first."""
    from xspline import __version__

    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    line = f"{now} xspline {__version__}: {what}"
    return f"{line}\n{previous}" if previous else line
