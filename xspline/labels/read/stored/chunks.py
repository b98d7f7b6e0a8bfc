"""Chunks of Zarr arrays decoded into memory that is used again, where store and codecs are known.

Zarr asks for new memory twice for each chunk, for what a codec gives and for the result, and what the system has to
clear and map takes as long as the codec. Here a codec writes into the result. Anything that is not known, damaged or
never written is read by Zarr itself, which gives the same numbers or says what is wrong.
"""

from __future__ import annotations

import copy
import itertools
import math
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Box = tuple[slice, ...]


def reusing(value: Any) -> Any:
    """Return what reads as a lazy array of xarray's does, from memory that is used again where that is possible."""
    if type(value).__module__.startswith("xarray.") and hasattr(value, "array"):
        name, inner = "array", value.array
        reader = reusing(inner)
    elif type(value).__name__ == "ZarrArrayWrapper":
        name, inner = "_array", value._array
        reader = ChunkReader.of(inner)
    else:
        return value
    if reader is inner:
        return value
    twin = copy.copy(value)
    setattr(twin, name, reader)
    return twin


class UnknownError(Exception):
    """Zarr has to read this."""


# Memory


class Memory:
    """Memory of results that nobody refers to any more, for the next ones."""

    def __init__(self) -> None:
        self._free: list[Bytes] = []

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return an array with any numbers in it, whose memory comes back when the last view of it is gone."""
        size = math.prod(shape) * dtype.itemsize
        memory = None
        while self._free and (memory is None or not size <= memory.size <= 2 * size):
            try:
                memory = self._free.pop()
            except IndexError:  # another thread has taken the last
                break
        if memory is None or not size <= memory.size <= 2 * size:
            memory = np.empty(size, np.uint8)
        return np.asarray(_Loan(memory, self._free))[:size].view(dtype).reshape(shape)


class _Loan:
    """What NumPy keeps as long as there is a view of some memory."""

    def __init__(self, memory: Bytes, free: list[Bytes]) -> None:
        self._memory, self._free = memory, free
        self.__array_interface__ = memory.__array_interface__

    def __del__(self) -> None:
        self._free.append(self._memory)


class _Scratch(threading.local):
    """Memory that each thread uses from one chunk to the next, grown where it is too small."""

    def __init__(self) -> None:
        self._held: dict[str, Bytes] = {}

    def take(self, what: str, size: int) -> Bytes:
        held = self._held.get(what)
        if held is None or held.size < size:
            held = self._held[what] = np.empty(size + size // 8, np.uint8)
        return held[:size]


# Formats


@dataclass(frozen=True)
class Format:
    """How the chunks of an array lie in its objects."""

    objects: tuple[int, ...]  # shape of what is an object of the store: a chunk, or a shard
    chunks: tuple[int, ...]  # shape of what is compressed at once
    codec: Any  # of numcodecs, or None
    index_last: bool | None = None  # where a shard has its index; None of an array without shards

    @staticmethod
    def of(array: Any) -> Format | None:
        """Return the format of a Zarr array; None where it is not known."""
        facts, dtype = array.metadata.to_dict(), array.dtype
        if dtype.kind not in "iufb" or not dtype.isnative or sys.byteorder != "little":
            return None
        if facts["zarr_format"] == 2:
            compressor = facts.get("compressor") or {}
            plain = not facts.get("filters") and facts.get("order") == "C"
            codecs = [{"name": "bytes"}, *([{"name": compressor["id"]}] if compressor else [])]
            return Format._of_codecs(tuple(facts["chunks"]), codecs) if plain else None
        grid = facts["chunk_grid"]
        if grid["name"] != "regular" or facts.get("storage_transformers"):
            return None
        shape, codecs = tuple(grid["configuration"]["chunk_shape"]), list(facts["codecs"])
        if codecs[0]["name"] != "sharding_indexed":
            return Format._of_codecs(shape, codecs)
        shard = codecs[0]["configuration"]
        index = [codec["name"] for codec in shard["index_codecs"]]
        inner = Format._of_codecs(tuple(shard["chunk_shape"]), list(shard["codecs"]))
        if (
            len(codecs) > 1
            or index != ["bytes", "crc32c"]
            or inner is None
            or not _little(shard["index_codecs"][0])
        ):
            return None
        return Format(shape, inner.chunks, inner.codec, shard["index_location"] == "end")

    @staticmethod
    def _of_codecs(shape: tuple[int, ...], codecs: Sequence[dict[str, Any]]) -> Format | None:
        """Return the format of chunks of one codec, which has to tell how much it will write before it does."""
        names = [codec["name"] for codec in codecs]
        if names[0] != "bytes" or not _little(codecs[0]) or len(names) > 2:
            return None
        if len(names) == 2 and names[1] not in ("zstd", "blosc", "lz4"):
            return None
        from numcodecs import get_codec  # late: importing xspline needs no zarr

        return Format(shape, shape, get_codec({"id": names[1]}) if len(names) == 2 else None)


def _little(codec: dict[str, Any]) -> bool:
    return codec.get("configuration", {}).get("endian", "little") == "little"


# Reading


class ChunkReader:
    """A Zarr array for xarray to index, which decodes boxes of whole arrays itself."""

    def __init__(self, array: Any, form: Format) -> None:
        self._array, self._form = array, form
        self._memory, self._scratch = Memory(), _Scratch()

    @staticmethod
    def of(array: Any) -> Any:
        """Return the reader of a Zarr array, or the array where Zarr has to read it."""
        if not (type(array).__module__.startswith("zarr.") and hasattr(array, "store_path") and array.ndim):
            return array
        try:
            form = Format.of(array)
        except (AttributeError, KeyError, TypeError, ValueError):  # of a version of Zarr that is not known
            return array
        return array if form is None else ChunkReader(array, form)

    def __reduce__(self) -> tuple[Any, ...]:
        return ChunkReader.of, (self._array,)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._array, name)

    def __getitem__(self, key: Any) -> Any:
        try:
            return self._read(self._box(key))
        except OSError:  # the store is busy: whoever reads tries again
            raise
        except Exception:
            return self._array[key]

    def _box(self, key: Any) -> Box:
        if not isinstance(key, tuple) or len(key) != self._array.ndim:
            raise UnknownError(key)
        spans = [k.indices(n) for k, n in zip(key, self._array.shape, strict=True)]
        if any(step != 1 or stop <= start for start, stop, step in spans):
            raise UnknownError(key)
        return tuple(slice(start, stop) for start, stop, _ in spans)

    def _read(self, box: Box) -> NDArray[Any]:
        """Return the values of a box; an error where Zarr has to read them."""
        out = self._memory.array(tuple(s.stop - s.start for s in box), self._array.dtype)
        objects = list(_overlaps(box, self._form.objects))
        for (index, part), content in zip(objects, self._contents(objects), strict=True):
            if self._form.index_last is None:
                self._decode(content.read(0, content.size), index, out, box)
                continue
            counts = tuple(n // k for n, k in zip(self._form.objects, self._form.chunks, strict=True))
            places = self._index(content, counts)
            for chunk, _ in _overlaps(part, self._form.chunks):
                start, size = places[tuple(i % n for i, n in zip(chunk, counts, strict=True))].tolist()
                self._decode(content.read(start, size), chunk, out, box)
        return out

    def _contents(self, objects: Sequence[tuple[tuple[int, ...], Box]]) -> Iterator[Any]:
        """Yield what is in some objects: of a directory one by one, of other stores whole and all at once."""
        from zarr.core.buffer import cpu, default_buffer_prototype
        from zarr.core.common import concurrent_map
        from zarr.core.config import config
        from zarr.core.sync import sync
        from zarr.storage import LocalStore

        store, path = self._array.store_path.store, self._array.path
        names = [self._array.metadata.encode_chunk_key(index) for index, _ in objects]
        keys = [f"{path}/{name}" if path else name for name in names]
        if type(store) is LocalStore:
            for key in keys:
                with _File(os.path.join(store.root, key), self._scratch) as content:
                    yield content
            return
        shape, prototype = self._array.shape, default_buffer_prototype()
        whole = all(part == _whole(index, self._form.objects, shape) for index, part in objects)
        if prototype.buffer is not cpu.Buffer or (self._form.index_last is not None and not whole):
            raise UnknownError(store)
        limit = config.get("async.concurrency")
        for buffer in sync(concurrent_map([(key, prototype) for key in keys], store.get, limit)):
            if buffer is None:
                raise UnknownError("never written")
            yield _Fetched(np.frombuffer(buffer.as_numpy_array(), np.uint8))

    def _index(self, content: Any, counts: tuple[int, ...]) -> NDArray[np.uint64]:
        """Return where the chunks of a shard begin, and their sizes."""
        from google_crc32c import value as checksum

        size = 16 * math.prod(counts) + 4
        index = content.read(content.size - size if self._form.index_last else 0, size).copy()
        if checksum(index[:-4].tobytes()) != int(index[-4:].view("<u4")[0]):
            raise UnknownError("damaged")
        return index[:-4].view("<u8").reshape(*counts, 2)

    def _decode(self, stored: Bytes, index: tuple[int, ...], out: NDArray[Any], box: Box) -> None:
        """Write what a chunk has of a box where it belongs."""
        shape, codec = self._form.chunks, self._form.codec
        first = [i * n for i, n in zip(index, shape, strict=True)]
        part = [slice(max(b.start, f), min(b.stop, f + n)) for b, f, n in zip(box, first, shape, strict=True)]
        target = out[
            tuple(slice(p.start - b.start, p.stop - b.start) for p, b in zip(part, box, strict=True))
        ]
        size = math.prod(shape) * out.dtype.itemsize
        direct = target.shape == shape and target.flags.c_contiguous
        memory = target.reshape(-1).view(np.uint8) if direct else self._scratch.take("chunk", size)
        if codec is None:
            if stored.size != size:
                raise UnknownError("of another size")
            memory[:] = stored
        else:
            try:  # a codec refuses at once to write more than there is room for: less would be left unseen
                codec.decode(stored, memory[:-1])
            except (ValueError, RuntimeError):
                codec.decode(stored, memory)
            else:
                raise UnknownError("of another size")
        if not direct:
            inside = tuple(slice(p.start - f, p.stop - f) for p, f in zip(part, first, strict=True))
            target[...] = memory.view(out.dtype).reshape(shape)[inside]


def _overlaps(box: Box, shape: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], Box]]:
    """Yield the index of each box of a shape, side by side from 0 on, that overlaps a box, and what overlaps."""
    for index in itertools.product(
        *(range(s.start // n, (s.stop - 1) // n + 1) for s, n in zip(box, shape, strict=True))
    ):
        spans = zip(box, index, shape, strict=True)
        yield index, tuple(slice(max(s.start, i * n), min(s.stop, i * n + n)) for s, i, n in spans)


def _whole(index: tuple[int, ...], shape: tuple[int, ...], extent: tuple[int, ...]) -> Box:
    """Return the box of this index of a shape, as far as an array extends."""
    return tuple(slice(i * n, min(i * n + n, m)) for i, n, m in zip(index, shape, extent, strict=True))


def _check_span(start: int, size: int, whole: int) -> None:
    """Raise an error where an object has no such bytes; a chunk that was never written starts at 2⁶⁴ - 1."""
    if start < 0 or start + size > whole:
        raise UnknownError("never written, or cut short")


class _Fetched:
    """An object of a store that has been fetched."""

    def __init__(self, content: Bytes) -> None:
        self._content, self.size = content, content.size

    def read(self, start: int, size: int) -> Bytes:
        _check_span(start, size, self.size)
        return self._content[start : start + size]


class _File:
    """An object of a directory, of which parts are read into memory of this thread."""

    def __init__(self, path: str, scratch: _Scratch) -> None:
        try:
            self._file: Any = open(path, "rb", buffering=0)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
            raise UnknownError("never written") from error
        self._scratch, self.size = scratch, os.fstat(self._file.fileno()).st_size

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def read(self, start: int, size: int) -> Bytes:
        _check_span(start, size, self.size)
        memory, done = self._scratch.take("stored", size), 0
        self._file.seek(start)
        while done < size:
            count = self._file.readinto(memory[done:])
            if not count:
                raise UnknownError("cut short")
            done += count
        return memory
