"""Zarr stores and NetCDF files, written so that a file is complete once it has its name."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import xarray as xr

from xspline.execution import replacing

_IN_PART = ("append_dim", "compute", "group", "region")


def open_dataset(path: Any, **kwargs: Any) -> xr.Dataset:
    """Return the contents of a Zarr store or a NetCDF file, loaded; `kwargs` as for xarray's functions."""
    if isinstance(path, str | Path) and Path(path).is_file() and not str(path).endswith(".zip"):
        with xr.open_dataset(path, **kwargs) as dataset:
            return dataset.load()
    with xr.open_zarr(path, **{"consolidated": False, "chunks": None, **kwargs}) as dataset:
        return dataset.load()


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
