"""Where a field is to be evaluated: labels of the target, its dimensions in order, and its chunks."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from xspline.kernels import Layout
from xspline.labels.detect import arrange, floats, is_lazily_indexed, storage_chunks
from xspline.labels.errors import unknown_name
from xspline.labels.statistics import Variable
from xspline.spaces import Axis, Space


@dataclass(frozen=True, eq=False)
class Target:
    """The labels to evaluate at.

    Attributes
    ----------
    coordinates : for each fitted coordinate, in Space order, its labels.
    extra : other coordinates of the target that may label the result.
    chunks : chunk sizes by dimension; None for a result in memory.
    """

    coordinates: Mapping[str, xr.DataArray]
    extra: xr.Dataset
    chunks: Mapping[Hashable, Any] | None


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
    for name in coords:
        if name not in space.names:
            raise unknown_name(name, "fitted coordinate", space.names)
        if at is not None and name in _named(at):
            raise ValueError(f"{name!r} is given twice, in at= and as {name}=...; drop it from one of them")
    if isinstance(at, Mapping) and not isinstance(at, xr.Dataset):
        for name in at:
            if name not in space.names:
                raise unknown_name(str(name), "fitted coordinate", space.names)
    found = {name: _instants(_labels(name, fitted, at, coords), space.axes[name][0]) for name in space.names}
    return Target(found, _extra(at), _chunks(at, coords, fitted_chunks, chunks))


def _named(at: Any) -> set[Hashable]:
    """Return the names that a target brings labels for."""
    return set(
        at.variables if isinstance(at, xr.Dataset) else at.coords if isinstance(at, xr.DataArray) else at
    )


def _labels(
    name: str, fitted: Mapping[str, xr.DataArray] | None, at: Any, coords: Mapping[str, Any]
) -> xr.DataArray:
    if name in coords:
        return _as_labels(name, coords[name])
    if isinstance(at, xr.Dataset) and name in at.variables:
        return at[name]
    if isinstance(at, xr.DataArray) and name in at.coords:
        return at.coords[name]
    if isinstance(at, Mapping) and not isinstance(at, xr.Dataset) and name in at:
        return _as_labels(name, at[name])
    if fitted is not None and name in fitted:
        return fitted[name]
    raise ValueError(
        f"no labels for {name!r} are remembered here; pass at= an object that has them, or {name}=..."
    )


def _instants(labels: xr.DataArray, axis: Axis) -> xr.DataArray:
    """Return labels with strings read as the instants that they name, so that the result is labelled by times."""
    if axis.kind == "number" or labels.dtype.kind not in "US":
        return labels
    return labels.copy(data=axis.to_label(axis.to_float(labels.values)))


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


def _extra(at: Any) -> xr.Dataset:
    if isinstance(at, xr.DataArray | xr.Dataset):
        return at.coords.to_dataset()
    return xr.Dataset()


def _chunks(at: Any, coords: Mapping[str, Any], fitted: Mapping[Hashable, Any] | None, chunks: Any) -> Any:
    if chunks is not None:
        return chunks if isinstance(chunks, Mapping) else {None: chunks}
    if isinstance(at, xr.DataArray | xr.Dataset):
        return target_chunks(at)
    asked = [*coords.values(), *(at.values() if isinstance(at, Mapping) else ())]
    lazy = [c for c in asked if isinstance(c, xr.DataArray | xr.Variable) and c.chunks is not None]
    if lazy:
        return {dim: sizes for c in lazy for dim, sizes in zip(c.dims, c.chunks or (), strict=True)}
    return fitted if not asked else None


def target_chunks(data: xr.DataArray | xr.Dataset) -> Mapping[Hashable, Any] | None:
    """Return the chunks of a lazy object by dimension; None for one in memory."""
    if isinstance(data, xr.Dataset):
        lazy = [
            c for c in map(target_chunks, [*data.data_vars.values(), *data.coords.values()]) if c is not None
        ]
        return {dim: sizes for one in lazy for dim, sizes in one.items()} if lazy else None
    if data.chunks is not None:
        return dict(zip(data.dims, data.chunks, strict=True))
    if data.ndim and is_lazily_indexed(data):
        stored = storage_chunks(data)
        return dict(zip(data.dims, stored or data.shape, strict=True))
    return None


@dataclass(frozen=True, eq=False)
class Grid:
    """A target for one variable: dimensions in order, shape, the layout of its axes, and coordinates as floats."""

    dims: tuple[Hashable, ...]
    shape: tuple[int, ...]
    layout: Layout
    coordinates: tuple[Any, ...]
    chunks: tuple[Any, ...] | None


def grid(target: Target, variable: Variable, space: Space, batch_shape: tuple[int, ...]) -> Grid:
    """Return the dimensions and axes of a result: those of the data, each replaced by those of its new labels."""
    dims = _ordered_dims(target, variable)
    sizes = {dim: n for c in target.coordinates.values() for dim, n in c.sizes.items()}
    for dim, n in zip(variable.batch_dims, batch_shape, strict=True):
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
    return Grid(dims, shape, arrangement.layout(), coordinates, _chunk_tuple(target.chunks, dims, shape))


def _ordered_dims(target: Target, variable: Variable) -> tuple[Hashable, ...]:
    """Return the order that ``DataArray.interp`` gives; the order of the Space where the data's is unknown."""
    spans = dict(zip(target.coordinates, variable.spans, strict=True))
    order: list[Hashable] = []
    for dim in variable.dims:
        replaced = [d for name, c in target.coordinates.items() if dim in spans[name] for d in c.dims]
        order += replaced or ([dim] if dim in variable.batch_dims else [])
    order += [dim for c in target.coordinates.values() for dim in c.dims]
    return tuple(dict.fromkeys(order))


def _chunk_tuple(
    chunks: Mapping[Hashable, Any] | None, dims: tuple[Hashable, ...], shape: tuple[int, ...]
) -> Any:
    """Return chunk sizes per axis as Dask reads them; a dimension that is not named is one chunk."""
    if chunks is None:
        return None
    if None in chunks:
        return tuple(chunks[None] for _ in dims)
    return tuple(_fitting(chunks.get(dim, -1), n) for dim, n in zip(dims, shape, strict=True))


def _fitting(chunk: Any, n: int) -> Any:
    """Return explicit chunk sizes only where they add up to the new length, and their first otherwise."""
    if isinstance(chunk, tuple) and sum(chunk) != n:
        return max(chunk, default=-1)
    return chunk
