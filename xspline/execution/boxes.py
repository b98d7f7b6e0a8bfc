"""Functions of boxes of arrays: computed now, added up in a tree, or lazy in chunks.

Among the arguments of a function may be arrays of Dask, which it gets as NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import dask.array as da
import dask.base
import numpy as np
from dask.array.core import normalize_chunks
from dask.delayed import delayed

#: Results that are joined at a time.
JOINED = 8


def once(value: Any) -> Any:
    """Return what stands for a value in the arguments of many calls, which travels to each worker once."""
    return delayed(value)


def computed(function: Callable[..., Any], calls: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return the result of each call of a function."""
    task = delayed(function, pure=False)
    results: tuple[Any, ...] = dask.base.compute(*(task(*arguments) for arguments in calls))
    return results


def reduced(
    function: Callable[..., Any], calls: Iterable[tuple[Any, ...]], join: Callable[[Sequence[Any]], Any]
) -> Any:
    """Return the results of all calls, joined some at a time."""
    task, joined = delayed(function, pure=False), delayed(join, pure=False)
    parts = [task(*arguments) for arguments in calls]
    while True:
        parts = [joined(parts[i : i + JOINED]) for i in range(0, len(parts), JOINED)]
        if len(parts) == 1:
            return dask.base.compute(parts[0])[0]


def lazy(
    function: Callable[..., Any],
    arguments: Callable[[tuple[slice, ...]], tuple[Any, ...]],
    results: int,
    shape: tuple[int, ...],
    chunks: Any,
) -> da.Array:
    """Return some results of a function at each element, [results, ...], in chunks of a shape.

    Parameters
    ----------
    function : returns an array [results, ...] of floats.
    arguments : returns what it is called with, given the box of elements.
    """
    sizes = normalize_chunks(chunks, shape, dtype=np.float64)
    ends = [np.cumsum((0, *own)) for own in sizes]
    blocks = np.empty(tuple(len(own) for own in sizes), object)
    task = delayed(function, pure=False)
    for at in np.ndindex(blocks.shape):
        box = tuple(slice(int(e[i]), int(e[i + 1])) for e, i in zip(ends, at, strict=True))
        own = tuple(s.stop - s.start for s in box)
        blocks[at] = da.from_delayed(task(*arguments(box)), (results, *own), np.float64)
    return da.block(blocks.tolist())
