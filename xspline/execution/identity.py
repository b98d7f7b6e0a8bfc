"""What the sums of a source are computed from, told without computing it: it names the files of a checkpoint.

Stored arrays are told by the version of their files, arrays in memory by their values. Of a Dask array these are what
its graph starts from; in between there may be selections, new chunks, casts and arithmetic, which Dask's names tell.
A function of the user may do or read anything, so what it makes has no identity, and is computed again in every run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import dask.array as da
import dask.base
import numpy as np

from xspline.execution.dask_api import DataNode
from xspline.execution.device.gpu import to_host
from xspline.execution.source import Opaque, Source, is_dask

Stamp = Callable[[Any], Any]
"""Of a stored array what tells its version, as plain data; None of anything else."""

# Layers of graphs whose names tell what they do with the arrays in them.
_MOVES = {"astype", "concatenate", "getitem", "rechunk-merge", "rechunk-split", "stack", "transpose"}


class UnidentifiedError(Exception):
    """What a value is computed from cannot be told without computing it; the text says why."""


def no_stamp(value: Any) -> None:
    """Return None: no stored array is known."""


def identity_of(source: Source, stamp: Stamp, *how: Any) -> str:
    """Return a digest of a source, and of how it is summed, as plain data.

    It raises UnidentifiedError where what the source is computed from cannot be told.
    """
    from xspline import __version__

    codes = source.holders and (source.holders.axis, source.holders.count)
    arrays = [source.values, *(array for _, array in source.auxiliary)]
    axes = [axes for axes, _ in source.auxiliary]
    return _digest(
        [__version__, repr(source.layout), codes, axes, [_content(a, stamp) for a in arrays], list(how)]
    )


def _content(array: Any, stamp: Stamp) -> Any:
    """Return plain data that tell an array from any other."""
    if isinstance(array, Opaque):
        array = array.reader
    if is_dask(array):
        return _content_of_graph(array, stamp)
    version = stamp(array)
    if version is not None:
        return version
    if isinstance(array, np.ndarray | np.generic):
        return array
    if hasattr(array, "__cuda_array_interface__"):
        return to_host(array)
    if hasattr(array, "__dask_tokenize__"):
        return _token(array)
    if type(array).__module__.startswith("distributed"):
        raise UnidentifiedError("they lie in the memory of a cluster already (persist)")
    raise UnidentifiedError(f"a {type(array).__name__} does not tell the version of what it reads")


def _content_of_graph(array: da.Array, stamp: Stamp) -> list[Any]:
    """Return what a graph starts from, then the names of what it does with that."""
    layers: Mapping[str, Any] = getattr(array.dask, "layers", {})
    content: list[Any] = [array.chunks, str(array.dtype)]
    starts: list[str] = []
    moves: list[str] = []
    for name, layer in sorted(layers.items()):
        needs = array.dask.dependencies[name]
        if needs == {f"original-{name}"}:  # the blocks of a stored array, which `dask.array.from_array` makes
            continue
        if needs:
            _check_known(name, layer)
            moves.append(name)
            continue
        starts.append(name)
        for key, node in sorted(dict(layer).items(), key=lambda item: str(item[0])):
            value = node.value if isinstance(node, DataNode) else node
            if callable(value):  # a task
                raise _made_by(name)
            index = key[1:] if isinstance(key, tuple) else ()
            content.append((index, _content(value, stamp)))
    if not starts:
        raise UnidentifiedError("their graph has no layers")
    # Names tell which array is moved where; those of arrays that are taken as they are may differ.
    return [*content, starts, moves] if moves else content


def _check_known(name: str, layer: Any) -> None:
    """Raise UnidentifiedError unless the name of a layer, a digest of its arguments, tells what it does."""
    function = getattr(getattr(layer, "task", None), "func", None)
    function = getattr(function, "func", function)  # of a partial one
    module = str(getattr(function, "__module__", ""))
    moves = _prefix(name) in _MOVES and (function is None or module.startswith(("dask.", "numpy")))
    if not moves and not module.startswith(("_operator", "xspline.")):
        raise _made_by(name)


def _made_by(name: str) -> UnidentifiedError:
    return UnidentifiedError(
        f"{_prefix(name)!r} of their Dask graph makes them, and what it reads is not known"
    )


def _prefix(name: str) -> str:
    """Return the part of a name that says what a layer does, before its token."""
    return name.rpartition("-")[0] or name


def _digest(value: Any) -> str:
    """Return a digest of plain data; the same values in an array digest alike, whatever their order in memory."""
    if isinstance(value, np.ma.MaskedArray):
        return _digest([np.ma.getmaskarray(value), value.filled()])
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        plain = np.ascontiguousarray(value)
        content = hashlib.blake2b(
            plain.view(np.ndarray).reshape(-1).view(np.uint8).data if plain.nbytes else b""
        )
        return f"{value.dtype!r} {value.shape} {content.hexdigest()}"
    if isinstance(value, Mapping):
        return _digest(list(value.items()))
    if isinstance(value, list | tuple):
        return hashlib.blake2b(repr([_digest(part) for part in value]).encode()).hexdigest()
    return _token(value)


def _token(value: Any) -> str:
    try:
        return str(dask.base.tokenize(value, ensure_deterministic=True))
    except Exception as error:  # whatever an object raises when it is pickled
        raise UnidentifiedError(f"a {type(value).__name__} cannot be told from another") from error
