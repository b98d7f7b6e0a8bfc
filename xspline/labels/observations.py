"""From labelled data to the Source that the execution reads: values, coordinates as floats, weights, layout."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from xspline.execution import Source
from xspline.labels.attributes import UNNAMED
from xspline.labels.detect import Arrangement, arrange, floats, is_lazily_indexed, storage_chunks
from xspline.labels.holders import Holders
from xspline.labels.statistics import Variable
from xspline.spaces import Space


class LazyReader:
    """Reads regions of a lazily indexed variable; opaque to Dask, whose ``sizeof`` would load an xarray object."""

    def __init__(self, data: xr.DataArray) -> None:
        self.shape, self.dtype, self.chunks = data.shape, data.dtype, storage_chunks(data)
        self._variable = data.variable

    def read(self, slices: tuple[slice, ...]) -> Any:
        """Return the values of a region, from the store, on the host or the device that the store decodes to."""
        return self._variable[slices].data


@dataclass(frozen=True, eq=False)
class Observations:
    """One variable with everything that its fit needs, in labels.

    Attributes
    ----------
    data : the values.
    coordinates : labels of the fitted coordinates, in Space order.
    pooled : dimensions of repeated observations.
    weights : relative precisions over some of the dimensions, or None.
    holders : whose they are, or None for one holder.
    """

    data: xr.DataArray
    coordinates: Mapping[str, xr.DataArray]
    pooled: tuple[Hashable, ...]
    weights: xr.DataArray | None = None
    holders: Holders | None = None

    @property
    def arrangement(self) -> Arrangement:
        """How the dimensions meet the coordinates."""
        return arrange(self.data.dims, self.coordinates, self.pooled)

    @property
    def name(self) -> str:
        """The variable's name, or ``field``."""
        return UNNAMED if self.data.name is None else str(self.data.name)

    def source(self, space: Space) -> Source:
        """Return the Source of these observations."""
        arrangement, data = self.arrangement, self.data
        coordinates = tuple(
            floats(self.coordinates[name], name, space, span, data.sizes)
            for name, span in zip(arrangement.names, arrangement.spans, strict=True)
        )
        values, weights = _aligned_weights(data, self.weights)
        owners = None if self.holders is None else self.holders.owners(data, arrangement.batch)
        return Source(_values(values), coordinates, weights, arrangement.layout(), self.name, owners)

    def variable(self) -> Variable:
        """Return what outputs need to know of these labels."""
        data, batch = self.data, self.arrangement.batch
        kept = {
            n: c for n, c in data.coords.items() if set(c.dims) <= set(batch) and n not in self.coordinates
        }
        loaded = xr.Dataset(coords={n: c.variable for n, c in kept.items()}).compute()
        attrs = {key: str(data.attrs.get(key, "")) for key in ("units", "long_name", "history")}
        return Variable(
            self.name,
            attrs["units"],
            attrs["long_name"] or self.name,
            attrs["history"],
            tuple(data.dims),
            tuple(tuple(c.dims) for c in self.coordinates.values()),
            loaded,
            batch,
            tuple(data.sizes[d] for d in batch),
        )


def _values(data: xr.DataArray) -> Any:
    return LazyReader(data) if is_lazily_indexed(data) else data.data


def check_data(data: xr.DataArray) -> None:
    """Raise TypeError unless the data are real numbers, ValueError if a dimension is there twice."""
    if twice := {d for d in data.dims if data.dims.count(d) > 1}:
        raise ValueError(
            f"{data.name or 'the data'} has dimensions {data.dims}, of which {sorted(map(str, twice))} repeat; "
            "give each axis a name of its own"
        )
    if data.dtype.kind not in "iufb":
        hint = (
            "fit its .real and .imag parts apart"
            if data.dtype.kind == "c"
            else "convert it with .astype(float)"
        )
        raise TypeError(
            f"{data.name or 'the data'} has dtype {data.dtype}, which is not a real number; {hint}"
        )


def fitted_variables(dataset: xr.Dataset, dims: set[Hashable]) -> dict[str, xr.DataArray]:
    """Return the numeric variables that span the fitted dimensions; the others are named in a warning.

    Raises
    ------
    ValueError
        No variable spans them.
    """
    fitted = {
        str(n): v for n, v in dataset.data_vars.items() if dims <= set(v.dims) and v.dtype.kind in "iuf"
    }
    left_out = [f"{n} {v.dims}" for n, v in dataset.data_vars.items() if str(n) not in fitted]
    if not fitted:
        raise ValueError(
            f"no numeric variable spans {sorted(map(str, dims))}; the Dataset holds {', '.join(left_out) or 'none'}"
        )
    if left_out:
        named = ", ".join(left_out)
        message = (
            f"not fitted, because not numeric or without the dimensions {sorted(map(str, dims))}: {named}"
        )
        warnings.warn(message, UserWarning, stacklevel=4)
    return fitted


def checked_weights(weights: Any, data: xr.DataArray) -> xr.DataArray | None:
    """Return weights as a DataArray over dimensions of the data, with equal labels.

    Raises
    ------
    ValueError
        They span another dimension, or their labels differ from the data's.
    """
    if weights is None:
        return None
    if isinstance(weights, xr.Dataset):
        weights = weights[data.name]
    if not isinstance(weights, xr.DataArray):
        raise TypeError(
            f"weights have to be a DataArray, which says what its dimensions are, not {type(weights).__name__}"
        )
    if extra := [d for d in weights.dims if d not in data.dims]:
        raise ValueError(f"weights span {extra}, but {data.name or 'the data'} has dimensions {data.dims}")
    try:
        xr.align(data, weights, join="exact", copy=False)
    except ValueError as error:
        raise ValueError(
            f"weights and {data.name or 'the data'} have different labels ({_first_difference(data, weights)}); "
            f"select or reindex the weights: weights.reindex_like(data, method='nearest', tolerance=...)"
        ) from error
    return weights.transpose(*(d for d in data.dims if d in weights.dims))


def _first_difference(data: xr.DataArray, weights: xr.DataArray) -> str:
    for dim in weights.dims:
        if data.sizes[dim] != weights.sizes[dim]:
            return f"{dim}: {data.sizes[dim]} and {weights.sizes[dim]} labels"
        mine, yours = data[dim].values, weights[dim].values
        if not np.array_equal(mine, yours):
            i = int(np.flatnonzero(mine != yours)[0])
            return f"{dim}: {mine[i]} and {yours[i]} at position {i}"
    return "their indexes"


def _aligned_weights(
    data: xr.DataArray, weights: xr.DataArray | None
) -> tuple[xr.DataArray, tuple[Any, ...]]:
    """Return data and weights of which either both or none are left to Dask."""
    if weights is None:
        return data, ()
    axes = tuple(data.dims.index(d) for d in weights.dims)
    in_memory = weights.chunks is None and not is_lazily_indexed(weights)
    if not in_memory and weights.ndim == data.ndim and (data.chunks is not None or is_lazily_indexed(data)):
        data = (
            data
            if data.chunks is not None
            else data.chunk(dict(zip(data.dims, storage_chunks(data) or data.shape, strict=True)))
        )
        weights = weights.chunk(dict(zip(data.dims, data.chunks or (), strict=True)))
    elif not in_memory:
        weights = weights.compute()
    return data, ((axes, weights.data),)
