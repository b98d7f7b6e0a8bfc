"""The files: Zarr stores or NetCDF, written so that a file is complete once it has its name.

A file holds plain arrays and one attribute of JSON; nothing in it is pickled or executed. ``part{i}__{k}__{array}``
are the arrays of the sums of variable k of part i (`Sums.to_arrays`), ``batch{k}__{name}`` and ``fitted__{name}``
coordinates and, in the file of a field, ``coefficients__{k}`` the coefficients of variable k. The JSON has the version
of this layout ("schema"), "content" ("statistics" or "field"), the space, the digest, holder and provenance of each
part, what the labels say of each variable and, of a field, its penalties and how they were chosen
(`Statistics.to_dataset`, `Field.to_dataset`).
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from xspline.execution import replacing

#: Version of the layout; a reader refuses a later one.
SCHEMA = 2
ATTRIBUTE = "xspline"  # that holds the JSON
_IN_PART = ("append_dim", "compute", "group", "region")


def open_dataset(path: Any, **kwargs: Any) -> xr.Dataset:
    """Return the contents of a Zarr store or a NetCDF file, loaded; `kwargs` as for xarray's functions."""
    if isinstance(path, str | Path) and Path(path).is_file() and not str(path).endswith(".zip"):
        with xr.open_dataset(path, **kwargs) as dataset:
            return dataset.load()
    with xr.open_zarr(path, **{"consolidated": False, "chunks": None, **kwargs}) as dataset:
        return dataset.load()


def read_meta(dataset: xr.Dataset, content: str) -> dict[str, Any]:
    """Return the JSON of a file of statistics or of a field; ValueError where the content or the version is another."""
    if ATTRIBUTE not in dataset.attrs:
        raise ValueError(f"this is not a file of xspline {content}: it has no attribute {ATTRIBUTE!r}")
    meta: dict[str, Any] = json.loads(dataset.attrs[ATTRIBUTE])
    if meta["schema"] > SCHEMA:
        raise ValueError(
            f"the file has schema version {meta['schema']} and this xspline reads up to {SCHEMA}; upgrade xspline"
        )
    if meta["content"] != content and content == "field":
        raise ValueError(
            "the file holds statistics, not a field; read it with xspline.open_statistics and .solve() it"
        )
    return meta


def stored_coordinate(coordinate: xr.DataArray, prefix: str) -> xr.Variable:
    """Return a coordinate as it is stored, with dimensions of its own."""
    loaded = coordinate.variable.compute()
    return xr.Variable([f"{prefix}{d}" for d in loaded.dims], loaded.values, loaded.attrs)


def restored_coordinate(dataset: xr.Dataset, prefix: str, name: str) -> xr.DataArray:
    """Inverse of `stored_coordinate`; text has a fixed length again, which files do not keep."""
    variable = dataset[prefix + name].variable
    values = variable.values
    if values.dtype.kind in "OT" and values.size and all(isinstance(label, str) for label in values.flat):
        values = np.array(values.ravel().tolist()).reshape(values.shape)
    dims = [str(d).removeprefix(prefix) for d in variable.dims]
    return xr.DataArray(values, dims=dims, name=name, attrs=variable.attrs)


class Stored(ABC):
    """What is stored as the Dataset that it turns into."""

    @abstractmethod
    def to_dataset(self) -> xr.Dataset:
        """Return everything as plain arrays and one JSON attribute."""

    def to_zarr(self, path: Any, **kwargs: Any) -> None:
        """Write to a Zarr store; `kwargs` as for :meth:`xarray.Dataset.to_zarr`.

        There is no consolidated metadata (which Zarr 3 does not define) unless asked for. Text is written with variable
        length: Zarr 3 does not define text of fixed length either. A store on a local path takes its name once all of
        it is written; where that fails, what was there stays. Read it again with ``xs.open_statistics`` or
        ``xs.open_field``.
        """
        dataset = self.to_dataset()
        text = {name: v.astype(object) for name, v in dataset.variables.items() if v.dtype.kind == "U"}
        with _target(path, kwargs, ("w", "w-")) as target:
            dataset.assign(text).to_zarr(target, **{"consolidated": False, **kwargs})

    def to_netcdf(self, path: Any, **kwargs: Any) -> None:
        """Write to a NetCDF file; `kwargs` as for :meth:`xarray.Dataset.to_netcdf`.

        A file takes its name once all of it is written. Read it again with ``xs.open_statistics`` or ``xs.open_field``.
        """
        with _target(path, kwargs, ("w",)) as target:
            self.to_dataset().to_netcdf(target, **kwargs)


@contextmanager
def _target(path: Any, kwargs: Mapping[str, Any], modes: tuple[str, ...]) -> Iterator[Any]:
    """Yield where to write: beside a path that is to be written as a whole, else what was given."""
    mode = kwargs.get("mode") or modes[-1]
    local = isinstance(path, str | os.PathLike) and "://" not in str(path)
    taken = local and Path(path).exists() and mode == "w-"  # xarray says so
    if not local or taken or mode not in modes or any(name in kwargs for name in _IN_PART):
        yield path
        return
    with replacing(Path(path)) as beside:
        yield beside
