"""What stored arrays tell without being read: the version of their files, and which chunks were never written."""

from __future__ import annotations

import hashlib
import itertools
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from xspline.execution import LIMITS, UnidentifiedError, stored_leaves, stored_reads
from xspline.labels.read.observations import LazyReader, is_lazily_indexed
from xspline.solve.errors import warn

# By what the file systems of fsspec tell one version of an object from the next.
_VERSIONS = (
    "ETag etag e_tag generation md5Hash crc32c LastModified last_modified updated mtime created".split()
)


def stamp(value: Any) -> Any:
    """Return what tells the version of a stored array, and how it is indexed and decoded; None of anything else.

    Raises
    ------
    xspline.execution.UnidentifiedError : it is stored, and its store does not tell.
    """
    layers, stored = _unwrapped(value)
    if _is_zarr(stored):
        version: Any = (stored.path, str(stored.metadata.to_dict()), _zarr_version(stored))
    elif type(stored).__module__.startswith("xarray.backends.") and hasattr(stored, "datastore"):  # of NetCDF
        store = stored.datastore
        manager: Any = getattr(store, "_manager", None)
        if type(manager).__name__ == "CachingFileManager":
            manager.close()  # it opens again when it reads: the file that has the name now, not one it has replaced
        path = getattr(store, "_filename", None) or getattr(getattr(store, "ds", None), "filename", None)
        version = (_file_version(path), getattr(store, "_group", None), stored.variable_name)
    elif type(stored).__module__.startswith("h5py"):
        version = (_file_version(stored.file.filename), stored.name)
    elif not layers:
        return None
    elif isinstance(stored, np.ndarray):
        version = stored
    else:
        raise UnidentifiedError(f"a {type(stored).__name__} does not tell the version of what it reads")
    return [(type(layer).__name__, _state(layer)) for layer in layers], version


def _unwrapped(value: Any) -> tuple[list[Any], Any]:
    """Return xarray's layers of lazy indexing and decoding, outermost first, and what they wrap."""
    lazy = value.lazy if isinstance(value, LazyReader) else value
    layers = []
    while type(lazy).__module__.startswith("xarray.") and hasattr(lazy, "array"):
        layers.append(lazy)
        lazy = lazy.array
    return layers, getattr(lazy, "_array", lazy) if type(lazy).__module__.startswith("xarray.") else lazy


def _is_zarr(stored: Any) -> bool:
    return type(stored).__module__.startswith("zarr.") and hasattr(stored, "store_path")


def _state(layer: Any) -> dict[str, Any]:
    """Return what a layer does to the array in it."""
    names = {n for kind in type(layer).__mro__ for n in getattr(kind, "__slots__", ())} | set(
        getattr(layer, "__dict__", ())
    )
    state = {n: getattr(layer, n) for n in sorted(names - {"array", "_shape"}) if hasattr(layer, n)}
    return {n: getattr(part, "tuple", part) for n, part in state.items()}


def _file_version(path: Any) -> tuple[Any, ...]:
    try:
        facts = os.stat(path)
    except (OSError, TypeError, ValueError) as error:
        raise UnidentifiedError(f"{path} is no file whose time of change is known") from error
    return (os.path.abspath(path), facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)


def _zarr_version(array: Any) -> Any:
    """Return name, size and time, or tag, of all objects of a Zarr array, digested."""
    from zarr.core.sync import sync
    from zarr.storage import FsspecStore, LocalStore, MemoryStore, WrapperStore, ZipStore

    store = array.store_path.store
    while isinstance(store, WrapperStore):
        store = store._store
    if isinstance(store, ZipStore):
        return _file_version(store.path)
    session: Any = getattr(store, "session", None)  # of Icechunk, whose snapshots never change
    if getattr(session, "snapshot_id", None) and not session.has_uncommitted_changes:
        return session.snapshot_id
    digest = hashlib.sha256()
    if isinstance(store, LocalStore):
        digest.update(str(Path(store.root).absolute()).encode())
        for folder, folders, names in os.walk(Path(store.root) / array.path, followlinks=True):
            folders.sort()
            for name in sorted(names):
                digest.update(repr(_file_version(os.path.join(folder, name))).encode())
    elif isinstance(store, MemoryStore):
        for key, content in sorted(store._store_dict.items()):
            if key.startswith(array.path):
                digest.update(key.encode() + content.to_bytes())
    elif isinstance(store, FsspecStore):
        try:
            store.fs.invalidate_cache()
            objects = sync(store.fs._find(f"{store.path}/{array.path}", detail=True))
        except Exception as error:  # whatever a server answers that has no lists
            raise UnidentifiedError(f"{store} cannot be listed") from error
        for key, facts in sorted(objects.items()):
            told = [(name, str(facts[name])) for name in _VERSIONS if facts.get(name) is not None]
            if not told:
                raise UnidentifiedError(f"{store} does not tell the versions of its objects")
            digest.update(repr((key, facts.get("size"), told)).encode())
    else:
        raise UnidentifiedError(f"a {type(store).__name__} does not tell the versions of its objects")
    return digest.hexdigest()


def unwritten_chunks(data: xr.DataArray, what: str, missing_chunks: str) -> str:
    """Return what there is to say of chunks of a Zarr store that were never written; empty where none is missing.

    `what` says what the data are: values or weights. `missing_chunks` is "raise", "ignore", or "warn", which says
    nothing of those that are missing at all times. It raises ValueError where some are missing and that is to be an
    error, and for anything else than these three.
    """
    if missing_chunks not in ("warn", "raise", "ignore"):
        raise ValueError(f"missing_chunks={missing_chunks!r} is unknown; use 'warn', 'raise' or 'ignore'")
    texts = []
    for text, steady in _unwritten(data, None if missing_chunks == "raise" else LIMITS.counted_chunks):
        advice = "write them again, or pass missing_chunks='ignore' if they hold nothing but gaps"
        if missing_chunks == "raise":
            raise ValueError(f"{what}: {text}; {advice}")
        if missing_chunks == "warn" and not steady:
            warn(f"{what}: {text}; {advice} ('raise' makes this an error)")
        texts.append(text)
    return "; ".join(texts)


def _unwritten(data: xr.DataArray, most: int | None) -> Iterator[tuple[str, bool]]:
    """Yield what each Zarr array behind the data lacks, and whether at all times, as where there is land.

    Only chunks that the data need count; arrays of more than `most` chunks are not looked at.
    """
    lazy = [data.variable._data] if is_lazily_indexed(data) else []
    leaves = [*lazy, *(stored_leaves(data.data) if data.chunks is not None else ())]
    present = {}
    for array in (_unwrapped(leaf)[1] for leaf in leaves):
        if not (_is_zarr(array) and array.size):
            continue
        sizes = array.shards or array.chunks  # what is a file each
        counts = [range(-(-n // size)) for n, size in zip(array.shape, sizes, strict=True)]
        if most is None or math.prod(map(len, counts)) <= most:
            names = _names(array)
            if not names & {"zarr.json", ".zarray"}:
                if most is None:
                    raise ValueError(
                        f"{array.store_path} cannot be listed, so it is not known which chunks it lacks; leave out "
                        "missing_chunks='raise'"
                    )
                continue
            if any(key not in names for key in _keys(array, counts)):
                present[id(array)] = array, names, [set[int]() for _ in array.shape]
    if not present:
        return
    reads = stored_reads(data.data) if data.chunks is not None else [(leaf, None) for leaf in lazy]
    for leaf, index in reads:
        layers, array = _unwrapped(leaf)
        if id(array) in present:
            sizes, places = array.shards or array.chunks, _places(layers, array.shape, index)
            for own, read, size in zip(present[id(array)][2], places, sizes, strict=True):
                own.update(np.unique(read // size).tolist())
    for stored, names, chunks in present.values():
        shape = tuple(map(len, chunks))
        keys = list(_keys(stored, [sorted(own) for own in chunks]))
        lacks = np.array([key not in names for key in keys]).reshape(shape)
        if not lacks.any():
            continue
        dims = getattr(stored.metadata, "dimension_names", None) or stored.attrs.get("_ARRAY_DIMENSIONS", ())
        dated = {dim for dim in dims if dim in data.coords and data.coords[dim].dtype.kind in "MO"}
        times = [a for a, dim in enumerate(dims) if dim in dated and shape[a] > 1]
        steady = any((lacks == lacks.all(axis=a, keepdims=True)).all() for a in times) and not lacks.all()
        yield (
            f"{int(lacks.sum())} of {lacks.size} chunks were never written, the first of them "
            f"{keys[int(np.argmax(lacks))]} of {stored.store_path}; they are read as {stored.fill_value}",
            bool(steady),
        )


def _keys(array: Any, chunks: Sequence[Iterable[int]]) -> Iterator[str]:
    """Yield the names of the objects that hold the chunks of these numbers along each axis, in C order."""
    return map(array.metadata.encode_chunk_key, itertools.product(*chunks))


def _places(layers: list[Any], shape: tuple[int, ...], index: Any) -> list[np.ndarray]:
    """Return the indices along each axis of a stored array that are read; all where that cannot be told."""
    everything = [np.arange(n) for n in shape]
    places = everything
    for layer in reversed(layers):  # from the store outwards
        key = getattr(getattr(layer, "key", None), "tuple", None)
        if key is None:
            continue
        if type(layer).__name__ != "LazilyIndexedArray" or len(key) != len(shape):
            return everything
        places = [np.atleast_1d(own[part]) for own, part in zip(places, key, strict=True)]
        if any(np.ndim(part) == 0 and not isinstance(part, slice) for part in key):
            return places  # an axis less: what is read of it is not followed any further
    if isinstance(index, tuple) and len(index) == len(shape):
        return [np.atleast_1d(own[part]) for own, part in zip(places, index, strict=True)]
    return places


def _names(array: Any) -> set[str]:
    """Return the names of all objects of a Zarr array, relative to it; none of a store that cannot be listed."""
    from zarr.core.sync import sync  # late: importing xspline needs no zarr

    prefix = f"{array.path}/" if array.path else ""

    async def listed() -> set[str]:
        return {key.removeprefix(prefix) async for key in array.store_path.store.list_prefix(prefix)}

    try:
        return sync(listed())
    except Exception:  # whatever a server answers that has no lists
        return set()
