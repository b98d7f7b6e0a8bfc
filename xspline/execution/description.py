"""What a checkpoint is of: enough to tell other data, another space and other blocks, in words."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import dask.base
import numpy as np

from xspline.execution.chunked import cuts_of, steps_of
from xspline.execution.cuts import Cuts
from xspline.execution.device import to_host
from xspline.execution.source import Source, cut, in_memory, is_dask, is_reader
from xspline.spaces import Space


def described(sources: Sequence[Source], space: Space, device: str | None) -> dict[str, Any]:
    """Return the version, the space and what the prepared, lazy `sources` are, as plain data with readable values.

    Of the values three blocks are read: the first, one in the middle, the last.
    """
    from xspline import __version__

    out: dict[str, Any] = {"version": __version__, "space": space.to_json(), "device": device}
    for number, source in enumerate(sources):
        found = _facts(source, space)
        out.update({f"the {what} of {source.label} ({number})": value for what, value in found})
    return out


def _facts(source: Source, space: Space) -> Iterator[tuple[str, str]]:
    cuts = cuts_of(source)
    yield "shape", " × ".join(map(str, source.shape))
    yield "type", str(source.dtype)
    yield "blocks", f"{' × '.join(map(str, cuts.largest))} ({_digest(str(cuts.edges).encode())})"
    yield "tree", str(steps_of(source, space, cuts))
    for name, array in zip(space.names, source.coordinates, strict=True):
        yield f"coordinate {name}", _summary(array)
    for axes, array in source.weights:
        yield f"weight along {axes}", _summary(array)
    if source.owners is not None:
        yield "holders", f"{source.owners.count}, {_summary(source.owners.codes)}"
    yield "values", ", ".join(_samples(source, cuts))


def _summary(array: Any) -> str:
    """Return number, range and digest of what is in memory; of anything else its shape."""
    if not in_memory(array):
        return f"{' × '.join(map(str, array.shape))} values"
    array = np.asarray(to_host(array))
    ends = f" from {np.min(array):g} to {np.max(array):g}" if array.size else ""
    return f"{array.size} values{ends} ({_digest(array.tobytes())})"


def _samples(source: Source, cuts: Cuts) -> list[str]:
    """Return the digests of three blocks, or of three chunks of a store."""
    if 0 in source.shape:
        return []
    places = [[0, n // 2, n - 1] for n in source.shape]
    if is_dask(source.values):
        edges = [np.searchsorted(e, at, side="right") - 1 for e, at in zip(cuts.edges, places, strict=True)]
        found = dask.base.compute(
            *(source.values.blocks[tuple(map(int, i))] for i in zip(*edges, strict=True))
        )
    elif is_reader(source.values):
        step = source.values.chunks or (1,) * len(source.shape)
        boxes = [[_around(i, c, n) for i in at] for at, c, n in zip(places, step, source.shape, strict=True)]
        found = tuple(cut(source.values, tuple(range(len(step))), box) for box in zip(*boxes, strict=True))
    else:
        found = ()
    return [_digest(np.ascontiguousarray(to_host(array)).tobytes()) for array in found]


def _around(index: int, chunk: int, length: int) -> slice:
    start = index - index % max(chunk, 1)
    return slice(start, min(start + max(chunk, 1), length))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
