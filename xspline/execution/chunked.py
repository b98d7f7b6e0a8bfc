"""One form for each tier: everything in Dask blocks cut alike, values in their store, everything in memory."""

from __future__ import annotations

import math
from typing import Any

import dask.array as da

from xspline.execution.cuts import GPU, JOIN, MAX_REGIONS, Cuts, grouped, levels, read_shape, regions, runs
from xspline.execution.footprint import Sizes, joined
from xspline.execution.graph import Inputs, new_name
from xspline.execution.source import Opaque, Source, in_memory, is_dask, is_reader, nbytes
from xspline.spaces import Space

SMALL = 2**20
"""Coordinates and weights up to these bytes travel whole, once to each worker; larger ones by the block."""


def prepare(source: Source) -> Source:
    """Return `source` in the form that its tier works on.

    Anything chunked makes everything chunked: values and large parts become Dask arrays cut alike. Values in a
    store stay a Reader. The rest stays in memory. Nothing is computed or read.
    """
    if not any(map(is_dask, source.arrays)):
        return source
    values = _as_dask(source)
    check_chunks(values, source.label)
    parts = [aligned(array, tuple(values.chunks[a] for a in axes)) for axes, array in source.parts]
    return source.with_parts(values, parts)


def _as_dask(source: Source) -> da.Array:
    values = source.values
    if is_dask(values):
        return values
    if is_reader(values):
        step = read_shape(source.shape, values.chunks, source.dtype.itemsize)
        return _from_array(
            values, Cuts(tuple(runs(0, n, k) for n, k in zip(source.shape, step, strict=True)))
        )
    known = {
        a: c
        for axes, array in source.parts
        if is_dask(array)
        for a, c in zip(axes, array.chunks, strict=True)
    }
    return _from_array(values, Cuts.of_chunks([known.get(a, (n,)) for a, n in enumerate(source.shape)]))


def _from_array(array: Any, cuts: Cuts) -> da.Array:
    lazy = Opaque(array) if is_reader(array) else array
    return da.from_array(lazy, chunks=cuts.chunks, name=new_name("part"), asarray=False, fancy=False)


def aligned(array: Any, chunks: tuple[tuple[int, ...], ...]) -> Any:
    """Return a coordinate or weight cut at `chunks`, or whole where it is small and in memory."""
    if is_dask(array):
        check_chunks(array, "a coordinate or weight")
        return array if array.chunks == chunks else array.rechunk(chunks)
    return (
        array if in_memory(array) and nbytes(array) <= SMALL else _from_array(array, Cuts.of_chunks(chunks))
    )


def check_chunks(array: da.Array, label: str) -> None:
    """Raise ValueError where the length of a block is unknown."""
    unknown = [axis for axis, n in enumerate(array.shape) if math.isnan(n)]
    if unknown:
        raise ValueError(
            f"{label}: chunk sizes along axis {unknown[0]} are unknown (shape {array.shape}), so its blocks "
            "cannot be matched with coordinates; call .compute_chunk_sizes() on the Dask array first"
        )


def travels_whole(array: Any) -> bool:
    """Return whether a part goes to each worker as it is, rather than by the block."""
    return is_reader(array) or (in_memory(array) and nbytes(array) <= SMALL)


def cuts_of(source: Source) -> Cuts:
    """Return the boxes of one task each: blocks of a chunked source, or groups of them; regions of a stored one."""
    if is_dask(source.values):
        blocks = blocks_of(source)
        batch = source.layout.batch_axes
        return grouped(blocks, source.dtype.itemsize, batch) if _groupable(source, blocks) else blocks
    if is_reader(source.values):
        return regions(source.shape, source.values.chunks, source.dtype.itemsize, source.layout.batch_axes)
    return Cuts(tuple((0, n) for n in source.shape))


def blocks_of(source: Source) -> Cuts:
    """Return the blocks of a chunked source."""
    return Cuts.of_chunks(source.values.chunks)


def _groupable(source: Source, blocks: Cuts) -> bool:
    """Return whether a task may make several blocks, one after another.

    So it is where each comes from a store or the like, by a task of its own: then none has to wait, or to travel.
    The first and the last block are asked.
    """
    if math.prod(blocks.blocks) <= MAX_REGIONS or not all(travels_whole(a) for _, a in source.parts):
        return False
    if any(0 in lengths for lengths in blocks.chunks):
        return False
    ends = [(0,) * len(blocks.blocks), tuple(n - 1 for n in blocks.blocks)]
    return all(Inputs.of([source.values.blocks[index]], ()).read_alone for index in ends)


def read_of(source: Source, cuts: Cuts, device: str | None = None) -> tuple[int, ...]:
    """Return the shape of what is summed at once: few and large reads of a store, or small blocks joined."""
    gpu = None if device is None else GPU
    if not is_dask(source.values):
        return read_shape(cuts.largest, source.values.chunks, source.dtype.itemsize, gpu)
    blocks = blocks_of(source)
    if cuts == blocks:
        return blocks.largest
    one = tuple(max(1, n) for n in blocks.largest)
    return read_shape(cuts.largest, one, source.dtype.itemsize, gpu or JOIN)


def steps_of(source: Source, space: Space, cuts: Cuts) -> tuple[tuple[int, ...], ...]:
    """Return the levels of the tree of merges, with fan-ins for the largest sums that a mask can leave."""
    sizes, every = Sizes.of(source, space, cuts), joined(space)
    return levels(
        cuts.blocks, source.consumed, lambda f: sizes.largest(f, every), lambda f: sizes.total(f, every)
    )
