"""Zarr stores and NetCDF files that are there once all of them is written, and not before."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import xarray as xr

from xspline.execution import replacing

_IN_PART = ("append_dim", "compute", "group", "region")


def write_zarr(dataset: xr.Dataset, path: Any, **kwargs: Any) -> None:
    """Write a Dataset to Zarr without consolidated metadata (which Zarr 3 does not define) unless asked.

    A store on a local path takes its name once all of it is written; where that fails, what was there stays.
    """
    with _target(path, kwargs, ("w", "w-")) as target:
        dataset.to_zarr(target, **{"consolidated": False, **kwargs})


def write_netcdf(dataset: xr.Dataset, path: Any, **kwargs: Any) -> Any:
    """Write a Dataset to NetCDF; a file takes its name once all of it is written."""
    with _target(path, kwargs, ("w",)) as target:
        return dataset.to_netcdf(target, **kwargs)


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
