"""The files: Zarr stores or NetCDF, written so that a file is complete once it has its name.

A file holds plain arrays, one attribute of JSON and a digest of both; nothing in it is pickled or executed.
``part{i}__{k}__{array}`` are the arrays of the sums of variable k of part i (`Sums.to_arrays`), ``batch{k}__{name}``
and ``fitted__{name}`` coordinates and, in the file of a field, ``coefficients__{k}`` the coefficients of variable k.
The JSON has the version of this layout ("schema"), "content" ("statistics" or "field"), the space, the digest, holder
and provenance of each part, what the labels say of each variable and, of a field, its penalties and how they were
chosen (`Statistics.to_dataset`, `Field.to_dataset`). Arrays are numbers or text; "stored" says what they were, and
their attributes. The digest covers the JSON and every array that no part's own digest covers: what opens is what was
written.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import cftime
import numpy as np
import xarray as xr
from numpy.typing import NDArray

from xspline.arguments import brief
from xspline.execution import LIMITS, replacing, retrying
from xspline.execution.checkpoint import SCHEMA

ATTRIBUTE, DIGEST = "xspline", "xspline_digest"  # that hold the JSON, and the digest
_IN_PART = ("append_dim", "compute", "group", "region")
_OF_A_PART = re.compile(r"part\d+__")
_BROKEN = "the file was changed or damaged; write it again, or ask who wrote it for it again"

DATES = xr.coders.CFDatetimeCoder(use_cftime=True)

T = TypeVar("T")

# Reading


def read(path: Any, build: Callable[[xr.Dataset], T], **kwargs: Any) -> T:
    """Return what `build` makes of the contents of a file; `kwargs` as for xarray's functions.

    A file that another process replaces in the meantime is read again: it is the old one or the new one.

    Raises
    ------
    ValueError
        The file is damaged, of another kind or of a later version.
    """
    _check_path(path)
    while True:
        before = _identity(path)
        try:
            return _built(path, build, open_dataset(path, **kwargs))
        except Exception:
            if before is None and _is_local(path):
                time.sleep(
                    LIMITS.retry_pauses[0]
                )  # a directory has no name for a moment while it is replaced
            if _identity(path) == before:
                raise


def _built(path: Any, build: Callable[[xr.Dataset], T], dataset: xr.Dataset) -> T:
    try:
        return build(dataset)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(
            f"{path} lacks what it should hold ({type(error).__name__}: {error}): {_BROKEN}"
        ) from error


def open_dataset(path: Any, **kwargs: Any) -> xr.Dataset:
    """Return the contents of a Zarr store or a NetCDF file, loaded and checked, in the form of `to_dataset`."""
    raw: dict[str, Any] = {"decode_cf": False}
    where = str(path) if isinstance(path, str | os.PathLike) else brief(path)
    where = f"group {kwargs['group']!r} of {where}" if kwargs.get("group") else where
    try:
        if _is_local(path) and Path(path).is_file() and not str(path).endswith(".zip"):
            opened = xr.open_dataset(path, **raw | kwargs)
        else:
            options = {"consolidated": False, "chunks": None} | raw | kwargs
            opened = retrying(functools.partial(xr.open_zarr, path, **options))
        with opened as dataset:
            for variable in dataset.variables.values():  # of many on a busy server some fail each time
                retrying(variable.load)
            stored = dataset.load()
    except Exception as error:
        if isinstance(error, FileNotFoundError) and _identity(path) is None:
            raise FileNotFoundError(
                f"{where} does not exist, or is no store with arrays: pass another path"
            ) from error
        if isinstance(error, OSError) and ((error.errno or 0) > 0 or _identity(path) is None):
            raise  # the system, the network or the path, not what the file holds
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise ValueError(
            f"{where} cannot be read as a Zarr store or NetCDF file ({reason}): {_BROKEN}"
        ) from error
    return _unsealed(stored)


def _check_path(path: Any) -> None:
    """Raise TypeError or ValueError where this is neither a path nor a store."""
    if isinstance(path, MutableMapping) and not all(isinstance(key, str) for key in path):
        raise TypeError(f"a mapping as a store has names for keys, which {brief(path)} has not")
    is_store = any(kind.__module__.startswith("zarr.") for kind in type(path).__mro__)
    if not (isinstance(path, str | os.PathLike | MutableMapping) or is_store):
        raise TypeError(f"a path or a Zarr store is needed to open or to write, not {brief(path)}")
    if isinstance(path, str) and not path:
        raise ValueError("the path is empty; pass the name of a Zarr store or of a NetCDF file")


def _is_local(path: Any) -> bool:
    return isinstance(path, str | os.PathLike) and "://" not in str(path)


def _identity(path: Any) -> tuple[int, ...] | None:
    """Which file or directory a path names now; None if none, or not on a disk."""
    try:
        status = os.stat(path) if _is_local(path) else None
    except OSError:
        return None
    return None if status is None else (status.st_dev, status.st_ino, status.st_ctime_ns)


def read_meta(dataset: xr.Dataset, content: str) -> dict[str, Any]:
    """Return the JSON of a file of statistics or of a field; ValueError where the content or the version is another."""
    if not isinstance(dataset, xr.Dataset):
        raise TypeError(f"from_dataset takes the Dataset that to_dataset gave, not {brief(dataset)}")
    if ATTRIBUTE not in dataset.attrs:
        raise ValueError(f"this is not a file of xspline {content}: it has no attribute {ATTRIBUTE!r}")
    meta = _parsed(dataset.attrs[ATTRIBUTE])
    if meta.get("content") not in ("statistics", "field"):
        raise ValueError(
            f"the file says that it holds {meta.get('content')!r}, not statistics or a field: {_BROKEN}"
        )
    if meta["content"] != content and content == "field":
        raise ValueError(
            "the file holds statistics, not a field; read it with xspline.open_statistics and .solve() it"
        )
    return meta


def _parsed(text: Any) -> dict[str, Any]:
    """Return the JSON of a version that is known."""
    try:
        meta = json.loads(text)
    except (TypeError, ValueError) as error:
        raise ValueError(f"the attribute {ATTRIBUTE!r} is not JSON ({error}): {_BROKEN}") from error
    schema = meta.get("schema") if isinstance(meta, dict) else None
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise ValueError(
            f"the file has schema version {schema!r}, which is not one from 1 to {SCHEMA}: {_BROKEN}"
        )
    if schema > SCHEMA:
        raise ValueError(
            f"the file has schema version {schema} and this xspline reads up to {SCHEMA}; upgrade xspline"
        )
    return dict(meta)


# Plain arrays, JSON and a digest


def _sealed(dataset: xr.Dataset) -> xr.Dataset:
    """Return a Dataset of `to_dataset` as a file holds it: numbers and text, all else in the JSON, and a digest."""
    plain, stored = {}, {}
    for name, variable in dataset.variables.items():
        values, attrs = _plain(str(name), variable)
        plain[str(name)] = xr.Variable(variable.dims, values)
        dtype = variable.dtype.str if variable.dtype.kind in "mMbSUO" else ""
        if dtype or not _OF_A_PART.match(str(name)):  # `Part.digest` covers those
            stored[str(name)] = {"dtype": dtype, "attrs": attrs}
    meta = json.loads(dataset.attrs[ATTRIBUTE]) | {"stored": stored}
    text = json.dumps(
        meta, default=lambda x: x.tolist() if isinstance(x, np.ndarray | np.generic) else str(x)
    )
    return xr.Dataset(plain, attrs={ATTRIBUTE: text, DIGEST: _digest(plain, stored, text)})


def _unsealed(dataset: xr.Dataset) -> xr.Dataset:
    """Inverse of `_sealed`, checking the digest."""
    if ATTRIBUTE not in dataset.attrs:
        return dataset  # `read_meta` says what it is not
    text = dataset.attrs[ATTRIBUTE]
    stored, expected = _parsed(text).get("stored", {}), dataset.attrs.get(DIGEST)
    if missing := sorted(set(stored) - set(map(str, dataset.variables))):
        raise ValueError(f"the file lacks the arrays {missing}: {_BROKEN}")
    if expected is None:
        raise ValueError(f"the file has no digest, which to_netcdf and to_zarr of a field write: {_BROKEN}")
    if expected != (digest := _digest(dataset.variables, stored, text)):
        raise ValueError(f"the file has digest {digest[:12]} and says {str(expected)[:12]}: {_BROKEN}")
    restored = {name: _restored(v, stored.get(str(name))) for name, v in dataset.variables.items()}
    return xr.Dataset(restored, attrs={ATTRIBUTE: text})


def _plain(name: str, variable: xr.Variable) -> tuple[NDArray[Any], dict[str, Any]]:
    """Return values as numbers or text, and what their attributes are."""
    values, attrs = variable.values, dict(variable.attrs)
    if values.dtype.kind in "mMb":
        return values.view("u1" if values.dtype.kind == "b" else "i8"), attrs
    if values.dtype.kind == "S":
        return values.astype("U"), attrs
    labels = list(values.flat) if values.dtype.kind == "O" else []
    if all(isinstance(label, str) for label in labels):
        return values, attrs
    if not all(isinstance(label, cftime.datetime) for label in labels):
        kinds = ", ".join(sorted({type(label).__name__ for label in labels}))
        raise ValueError(
            f"the coordinate {name.partition('__')[2]!r} has labels of type {kinds}, which a file cannot hold; turn "
            "them into numbers, dates or text, or drop them (drop_vars), before the fit"
        )
    encoded = xr.conventions.encode_cf_variable(variable, name=name)
    return encoded.values, dict(encoded.attrs)


def _restored(variable: xr.Variable, stored: Mapping[str, Any] | None) -> xr.Variable:
    """Inverse of `_plain`."""
    if stored is None:
        return xr.Variable(variable.dims, variable.values)
    values, dtype, attrs = variable.values, np.dtype(stored["dtype"] or variable.dtype), stored["attrs"]
    if dtype.kind == "O" and values.dtype.kind in "iuf":
        encoded = xr.Variable(variable.dims, values, attrs)
        return xr.conventions.decode_cf_variable("", encoded, decode_times=DATES)
    if dtype.kind in "mMb":
        values = values.view(dtype)
    elif dtype.kind in "SUO":
        values = np.array([str(label) for label in values.flat], dtype).reshape(values.shape)
    return xr.Variable(variable.dims, values, attrs)


def _digest(variables: Mapping[Any, xr.Variable], names: Iterable[str], text: str) -> str:
    """SHA-256 of the JSON and of some arrays, in hexadecimal; the same on every machine."""
    digest = hashlib.sha256(str(text).encode())
    for name in sorted(names):
        values, dims = variables[name].values, [*map(str, variables[name].dims)]
        if values.dtype.kind in "OTU":
            labels = json.dumps([str(label) for label in values.flat])
            kind, data = "text", np.frombuffer(labels.encode(), "u1")
        else:
            data = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
            kind = data.dtype.str[1:]
        digest.update(json.dumps([name, dims, kind, values.shape]).encode())
        digest.update(data.data)
    return digest.hexdigest()


# Coordinates


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


# Writing


class Stored(ABC):
    """What is stored as the Dataset that it turns into."""

    @abstractmethod
    def to_dataset(self) -> xr.Dataset:
        """Return everything as arrays and one JSON attribute; files add a digest of both."""

    def to_zarr(self, path: Any, **kwargs: Any) -> None:
        """Write to a Zarr store; `kwargs` as for :meth:`xarray.Dataset.to_zarr`.

        There is no consolidated metadata (which Zarr 3 does not define) unless asked for. Text is written with variable
        length: Zarr 3 does not define text of fixed length either. A digest covers everything: what opens is what was
        written. A store on a local path takes its name once all of it is written; where that fails, what was there
        stays. Read it again with ``xs.open_statistics`` or ``xs.open_field``.
        """
        dataset = _sealed(self.to_dataset())
        text = {name: v.astype(object) for name, v in dataset.variables.items() if v.dtype.kind == "U"}
        with _target(path, kwargs, ("w", "w-")) as target:
            dataset.assign(text).to_zarr(target, **{"consolidated": False, **kwargs})

    def to_netcdf(self, path: Any, **kwargs: Any) -> None:
        """Write to a NetCDF file; `kwargs` as for :meth:`xarray.Dataset.to_netcdf`.

        A digest covers everything: what opens is what was written. A file takes its name once all of it is written.
        Read it again with ``xs.open_statistics`` or ``xs.open_field``.
        """
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"a path is needed to write NetCDF to, not {brief(path)}")
        with _target(path, kwargs, ("w",)) as target:
            _sealed(self.to_dataset()).to_netcdf(target, **kwargs)


@contextmanager
def _target(path: Any, kwargs: Mapping[str, Any], modes: tuple[str, ...]) -> Iterator[Any]:
    """Yield where to write: beside a path that is to be written as a whole, else what was given."""
    _check_path(path)
    mode, local = kwargs.get("mode") or modes[-1], _is_local(path)
    taken = local and Path(path).exists() and mode == "w-"
    if not local or taken or mode not in modes or any(name in kwargs for name in _IN_PART):
        try:
            yield path
        except FileExistsError as error:
            raise FileExistsError(
                f"{brief(path)} already contains data; pass mode='w' to replace it"
            ) from error
        return
    with replacing(Path(path), mode) as beside:
        yield beside
