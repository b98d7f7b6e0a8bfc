"""Values of a field, as lazy as their target, and functions of boxes of arrays: each task computes its own block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dask.array as da
import dask.base
import numpy as np
from dask.array.core import normalize_chunks
from dask.delayed import Delayed, delayed

from xspline.execution.cuts import Cuts, aligned
from xspline.execution.dask_api import check_arrays, new_name
from xspline.execution.device.gpu import check_device, to_device, to_host
from xspline.execution.limits import LIMITS, Limits
from xspline.execution.source import as_floats, cut, is_dask
from xspline.kernels import Layout
from xspline.kernels import evaluate as evaluate_values
from xspline.kernels.engines import engine_of_size
from xspline.spaces import Space
from xspline.threads import single_threaded_blas


def evaluate(
    coefficients: Any,
    coordinates: Sequence[Any],
    layout: Layout,
    space: Space,
    orders: tuple[int, ...],
    shape: tuple[int, ...],
    *,
    pairs: bool = False,
    extrapolate: bool = False,
    chunks: Any = None,
    device: str | None = None,
    limits: Limits = LIMITS,
    uncompiled: bool = False,
) -> Any:
    """Return the values, or derivatives, of a field over a target; with `pairs`, the quadratic forms φᵀZφ.

    They are a NumPy or Dask array of float64, NaN outside the domain.

    The `coefficients` are [K.., b..], or pairs Z, [K.., O.., b..], as those of `xspline.kernels.evaluate`. The
    `coordinates` are, per coefficient axis, an array over its group's data axes, in floats of its axis; `orders` has
    the order of the derivative for each coefficient axis, and `layout` says how the axes of the target, which has
    `shape`, meet those of the coefficients. With `extrapolate`, values outside the domains are those of the
    polynomials at the ends. `chunks` are those of the result, as Dask reads them; None is NumPy unless something
    given is a Dask array. `device` is None (the host) or "cuda". Coordinates up to a size in `limits` travel
    whole. With `uncompiled`, few values do not wait for compiled loops: their last bits may be others.
    """
    check_device(device)
    lazy = chunks is not None or is_dask(coefficients) or any(map(is_dask, coordinates))
    if chunks is None:  # those of the lazy coordinates, and one chunk along all other axes
        chunked = [(axes, x) for axes, x in zip(layout.spans, coordinates, strict=True) if is_dask(x)]
        known = {a: c for axes, x in chunked for a, c in zip(axes, x.chunks, strict=True)}
        chunks = tuple(known.get(a, (n,)) for a, n in enumerate(shape))
    cuts = Cuts.of_chunks(normalize_chunks(chunks, shape, dtype=float))
    engine = engine_of_size(coefficients, layout, space, shape) if uncompiled and not lazy else None
    request = EvaluationRequest(layout, space, orders, pairs, extrapolate, cuts, device, engine)
    if lazy:
        check_arrays()
        return _lazy_values(coefficients, coordinates, request, limits)
    check_device(device, here=True)
    return _values(coefficients, coordinates, request, shape)


def deferred(function: Callable[..., np.ndarray], parts: Sequence[Any], shape: tuple[int, ...]) -> da.Array:
    """Return ``function(*parts)``, an array of floats of that shape, as a Dask array of one block.

    `parts` are lazy values, or values.
    """
    check_arrays()
    lazy = [part if isinstance(part, Delayed) else once(part) for part in parts]
    return da.from_delayed(delayed(function, pure=False)(*lazy), shape, float)


@dataclass(frozen=True, eq=False)
class EvaluationRequest:
    """What every task of one evaluation needs beside the coefficients. All else is as of `evaluate`."""

    layout: Layout
    space: Space
    orders: tuple[int, ...]
    pairs: bool
    extrapolate: bool
    cuts: Cuts  # blocks of the target
    device: str | None
    engine: str | None
    coordinates: tuple[Any, ...] = ()  # those that travel whole; None for those that come by the block


def _lazy_values(
    coefficients: Any, coordinates: Sequence[Any], request: EvaluationRequest, limits: Limits
) -> da.Array:
    """Return the Dask array; on each worker its tasks share one copy of request and coefficients."""
    chunks = request.cuts.chunks
    axes_of = request.layout.spans
    arrays = [
        aligned(x, tuple(chunks[a] for a in axes), limits)
        for axes, x in zip(axes_of, coordinates, strict=True)
    ]
    whole = tuple(None if is_dask(x) else np.asarray(x) for x in arrays)
    ndim = len(chunks)
    # Its blocks repeat one byte without memory; it lends the grid of blocks to map_blocks.
    template = da.zeros(tuple(map(sum, chunks)), chunks=chunks, dtype=np.int8)
    spread = [_spread(x, axes, ndim) for axes, x in zip(axes_of, arrays, strict=True) if is_dask(x)]
    if is_dask(coefficients):
        single = coefficients.rechunk(-1) if coefficients.npartitions > 1 else coefficients
        # A key of its own: that of a block is a tuple, which a graph of several results loses when it is culled.
        shared = delayed(np.asarray, pure=False)(single.to_delayed(optimize_graph=False).item())
    else:
        shared = once(np.asarray(coefficients))
    return da.map_blocks(
        _block,
        template,
        *spread,
        request=once(replace(request, coordinates=whole)),
        coefficients=shared,
        dtype=np.float64,
        meta=np.empty((0,) * ndim),
        name=new_name("evaluate"),
    )


def _spread(array: da.Array, axes: tuple[int, ...], ndim: int) -> da.Array:
    """Return an array over some of the axes as one over all, of length 1 along the others."""
    array = array.transpose(sorted(range(len(axes)), key=lambda i: axes[i]))
    return array[tuple(slice(None) if a in axes else None for a in range(ndim))]


def _block(
    template: np.ndarray,
    *arrays: np.ndarray,
    request: EvaluationRequest,
    coefficients: np.ndarray,
    block_id: tuple[int, ...] = (),
) -> np.ndarray:
    """Evaluate one block of the target, with the batch members that it holds."""
    layout, box = request.layout, request.cuts.box(block_id)
    chunked, coordinates = iter(arrays), []
    for axes, x in zip(layout.spans, request.coordinates, strict=True):
        if x is None:  # back from `_spread` to its own axes, in their order
            own = np.squeeze(next(chunked), tuple(a for a in range(len(box)) if a not in axes))
            coordinates.append(own.transpose([sorted(axes).index(a) for a in axes]))
        else:
            coordinates.append(cut(x, axes, box))
    # An extent of 1 is shared by all batch members.
    extents = coefficients.shape[coefficients.ndim - len(layout.batch_axes) :]
    members: tuple[Any, ...] = tuple(
        box[a] if n > 1 else slice(None) for a, n in zip(layout.batch_axes, extents, strict=True)
    )
    return _values(coefficients[(..., *members)], coordinates, request, template.shape)


@single_threaded_blas()
def _values(
    coefficients: Any, coordinates: Sequence[Any], request: EvaluationRequest, shape: tuple[int, ...]
) -> np.ndarray:
    if 0 in shape:
        return np.empty(shape)
    floats = tuple(map(as_floats, coordinates))
    moved = to_device(coefficients, request.device)
    values = to_host(
        evaluate_values(
            moved,
            floats,
            request.layout,
            request.space,
            request.orders,
            pairs=request.pairs,
            extrapolate=request.extrapolate,
            engine=request.engine,
        )
    )
    return values if values.shape == shape else np.broadcast_to(values, shape).copy()


# ---- any functions of boxes of arrays; arrays of Dask among their arguments arrive as NumPy arrays


def once(value: Any) -> Any:
    """Return what stands for a value in the arguments of many calls, which travels to each worker once."""
    return delayed(value, name=new_name("shared"), traverse=False)


def computed(function: Callable[..., Any], calls: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return the result of each call of a function."""
    task = delayed(function, pure=False)
    results: tuple[Any, ...] = dask.base.compute(*(task(*arguments) for arguments in calls))
    return results


def in_chunks(
    function: Callable[..., Any],
    arguments: Callable[[tuple[slice, ...]], tuple[Any, ...]],
    results: int,
    shape: tuple[int, ...],
    chunks: Any,
) -> da.Array:
    """Return some results of a function at each element, [results, ...], in chunks of a shape.

    `function` returns an array [results, ...] of floats, and `arguments` what it is called with, given the box of
    elements.
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
