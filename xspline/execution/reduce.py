"""From sources to sums: in memory at once, in Dask a task a block, in a store a task a region; then a tree of +.

Below the graphs stands what their tasks run: the sums of blocks, of a region read by read, and their merges.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import dask.base
import numpy as np
from array_api_compat import array_namespace
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from dask.sizeof import sizeof

from xspline.execution.checkpoint import Checkpoint
from xspline.execution.cuts import (
    Cuts,
    cuts_of,
    groups,
    prepare,
    read_of,
    step_edges,
    steps_of,
    travels_whole,
)
from xspline.execution.dask_api import (
    BlockKeys,
    EmbeddedBlocks,
    Graph,
    InputGraph,
    Key,
    Task,
    TaskRef,
    WorkerMemoryError,
    active_client,
    add_data,
    add_task,
    cluster_errors_explained,
    fetch_as_completed,
    needed,
    new_name,
)
from xspline.execution.device.gpu import check_device, on_gpu_workers, to_device
from xspline.execution.identity import Stamp, UnidentifiedError, identity_of, no_stamp
from xspline.execution.limits import LIMITS, Limits
from xspline.execution.planning import plan
from xspline.execution.source import (
    Opaque,
    Slices,
    Source,
    cut,
    in_memory,
    is_dask,
    is_reader,
    located,
    read_noted,
    split_by_holder,
    unmasked,
)
from xspline.kernels import Block, accumulate
from xspline.kernels.engines import engine_of_size
from xspline.kernels.series.lags import joined, remembered
from xspline.spaces import Frame, Space
from xspline.sums import HolderSums, Sums
from xspline.threads import single_threaded_blas

Total = TypeVar("Total", Sums, HolderSums)
"""Both add alike: the Sums of one holder, or of each holder that has observations."""


sizeof.register((Sums, HolderSums), lambda sums: int(sums.nbytes))


def sums(
    sources: Sequence[Source],
    space: Space,
    *,
    device: str | None = None,
    checkpoint: Any = None,
    stamp: Stamp = no_stamp,
    reusing: Callable[[Any], Any] = lambda stored: stored,
    limits: Limits = LIMITS,
) -> list[Any]:
    """Return the Sums of each source: those in memory at once, the others in one compute for all of them.

    Of a source that several holders share, they are HolderSums: the Sums of each holder by its code. It raises
    ValueError where the checkpoint is no directory, of another version, or damaged; WorkerMemoryError where workers
    were killed again and again; and ClusterLostError where client or scheduler went away.

    Partial sums that are in the directory `checkpoint`, which all workers see, are not computed again; `stamp` tells
    the version of stored arrays to it, and `reusing` returns what is read in their place. Sources in memory are summed
    at once. `device` is None (where the data are) or "cuda"; `limits` are the sizes of regions, reads and merges.
    """
    check_device(device, here=active_client() is None)
    lazy = [source for source in sources if source.is_lazy]
    directory = None if checkpoint is None else Checkpoint.at(checkpoint, limits)
    computed = iter(_computed(lazy, _How(space, device, directory, stamp, limits, reusing)) if lazy else ())
    return [next(computed) if s.is_lazy else _sum_in_memory(s, space, device) for s in sources]


def lazy_sums(source: Source, space: Space, *, device: str | None = None, limits: Limits = LIMITS) -> Delayed:
    """Return the Sums of `source`, or HolderSums, as a Delayed; building it computes and reads nothing."""
    check_device(device)
    graph, ((keys, counts),) = _build([source], _How(space, device, None, no_stamp, limits))
    key = keys[0]
    if len(keys) > 1:
        key = add_task(graph, "sums", _assemble, space.frame, counts, *map(TaskRef, keys))
    return Delayed(key, HighLevelGraph.from_collections(key, needed(graph, [key]), dependencies=()))


def compute(values: Sequence[Any]) -> list[Any]:
    """Compute several lazy values at once, with the active client or else Dask's threads."""
    with cluster_errors_explained():
        return list(dask.base.compute(*values))


def persist(values: Sequence[Any]) -> list[Any]:
    """Start computing several lazy values at once, kept where they are computed; others come back as they are."""
    return list(dask.base.persist(*values))


@dataclass(frozen=True)
class _How:
    """How several sources are summed."""

    space: Space
    device: str | None
    checkpoint: Checkpoint | None
    stamp: Stamp
    limits: Limits
    reusing: Callable[[Any], Any] = lambda stored: stored


def _computed(sources: Sequence[Source], how: _How) -> list[Any]:
    graph, all_remaining = _build(sources, how)
    keys = [key for own, _ in all_remaining for key in own]
    client = active_client()
    try:
        with on_gpu_workers(how.device, client), cluster_errors_explained():
            if client is not None and len(keys) > 1:
                # Each from where it was computed, as soon as it is: no worker holds them all.
                values = fetch_as_completed(client, needed(graph, keys), keys)
            else:
                own = keys
                if len(keys) > 1:
                    # Keys of blocks are tuples, which a graph of several results loses when it is culled.
                    own = [add_task(graph, "fetch", lambda value: value, TaskRef(key)) for key in keys]
                layers = HighLevelGraph.from_collections("fetch", needed(graph, own), dependencies=())
                values = compute([Delayed(key, layers, layer="fetch") for key in own])
    except WorkerMemoryError as error:
        raise WorkerMemoryError(f"{error}\n{plan(sources[0], how.space, limits=how.limits)}") from error
    fetched = iter(values)
    frame = how.space.frame
    return [_assemble(frame, counts, *itertools.islice(fetched, len(own))) for own, counts in all_remaining]


# Graphs


RemainingKeys: TypeAlias = tuple[list[Key], tuple[int, ...]]
"""What the tree leaves of a source: keys of the blocks of its batch members, and of which grid, in C order."""


def _build(sources: Sequence[Source], how: _How) -> tuple[Graph, list[RemainingKeys]]:
    """Return a graph, and what it leaves of each source. It reads no values."""
    prepared = [prepare(source, how.limits) for source in sources]
    if how.checkpoint is not None:
        how.checkpoint.open()
    arrays = [(s.shape, array) for s in prepared for array in (s.values, *(x for _, x in s.auxiliary))]
    lazy = [(array, array.ndim == len(shape)) for shape, array in arrays if is_dask(array)]
    inputs = InputGraph.of(  # one task needs a block, or all along the dimensions that it does not span
        [array for array, one in lazy if one],
        [array for array, one in lazy if not one],
        how.limits.retry_pauses,
        how.reusing,
    )
    return inputs.graph, [_add_source(inputs, source, how) for source in prepared]


def _add_source(inputs: InputGraph, source: Source, how: _How) -> RemainingKeys:
    """Add the tasks of one prepared source and return the keys of its Sums."""
    graph, space, device, limits = inputs.graph, how.space, how.device, how.limits
    if 0 in source.shape:
        zero: Any = _sums_of(Block(np.zeros(source.shape), ()), source, space, None)
        if source.holders is not None:
            zero = HolderSums(dict.fromkeys(range(source.holders.count), zero))
        return [add_data(graph, "zero", zero)], ()
    if in_memory(source.values):
        data = TaskRef(add_data(graph, "source", source))
        return [add_task(graph, "sums", _sum_in_memory, data, space, device)], ()
    cuts, stored = cuts_of(source, limits), is_reader(source.values)
    # Every task of the source shares all of it but the values and the auxiliary arrays that come by the block.
    whole = [travels_whole(array, limits) for _, array in source.auxiliary]
    shared = [
        (Opaque(array) if is_reader(array) else array) if travels else None
        for travels, (_, array) in zip(whole, source.auxiliary, strict=True)
    ]
    slim = source.with_arrays(Opaque(source.values) if stored else None, shared)
    blocks = cuts if stored else Cuts.of_chunks(source.values.chunks)
    read = read_of(source, cuts, device, limits)
    whole_recipe = _Recipe(slim, space, cuts, read, blocks, device, limits)
    recipe = add_data(graph, "recipe", whole_recipe)
    large = []  # of the arrays that come by the block: the keys of their blocks, by the index along their own axes
    for travels, (axes, array) in zip(whole, source.auxiliary, strict=True):
        own_cuts = Cuts(tuple(cuts.edges[a] for a in axes))
        if is_dask(array):
            large.append((axes, inputs.keys[array.name]))
        elif not travels:
            pieces = {i: add_data(graph, "piece", array[(*own_cuts.box(i), ...)]) for i in own_cuts}
            large.append((axes, pieces))
    # The blocks of a Dask array in each box: their own tasks, embedded, or their keys.
    members: dict[tuple[int, ...], dict[tuple[int, ...], Any]] = {index: {} for index in cuts}
    for index, key in () if stored else inputs.keys[source.values.name].items():
        start = tuple(s.start for s in blocks.box(index))
        members[index if cuts == blocks else cuts.containing(start)][start] = inputs.embedded.get(key, key)
    name = new_name("region" if stored else "block" if cuts == blocks else "blocks")
    keys: BlockKeys = {}
    for index in cuts:
        keys[index] = key = (name, *index)
        own = [at[tuple(index[a] for a in axes)] for axes, at in large]
        if stored:
            graph[key] = Task(key, _sum_region, TaskRef(recipe), index, *map(TaskRef, own))
        else:
            start = tuple(s.start for s in cuts.box(index))
            parts = [EmbeddedBlocks({start: inputs.embedded.get(k, k)}) for k in own]
            parts.append(EmbeddedBlocks(members[index]))
            names = tuple(dict.fromkeys(name for part in parts for name in part.names))
            graph[key] = Task(key, _sum_blocks, TaskRef(recipe), index, parts, names, *map(TaskRef, names))
    keys = _add_merges(graph, keys, source, whole_recipe, recipe, how)
    # The blocks of batch members, the first batch axis outermost.
    batch = source.layout.batch_axes
    counts = tuple(1 + max(index[a] for index in keys) for a in batch)
    order = sorted(keys, key=lambda index: tuple(index[a] for a in batch))
    return [keys[index] for index in order], counts


def _add_merges(
    graph: Graph, keys: BlockKeys, source: Source, whole: _Recipe, recipe: Key, how: _How
) -> BlockKeys:
    """Add the tree of merges of a source, and what keeps one level of it in a checkpoint; return the keys on top."""
    steps = steps_of(source, how.space, whole.cuts, how.limits)
    if how.checkpoint is None:
        return _add_tree(graph, keys, steps, recipe)
    plain = (whole.cuts.edges, whole.blocks.edges, whole.read, steps, how.device, repr(how.limits))
    try:
        identity = identity_of(source, how.stamp, how.space.to_json(), *plain)
    except UnidentifiedError as error:
        how.checkpoint.warn_not_kept(source.label, error)
        return _add_tree(graph, keys, steps, recipe)
    left, level = whole.cuts.blocks, 0  # that whose sums are kept; 0 is that of the blocks
    for k, step in enumerate(steps):
        level = k if math.prod(left) >= how.limits.checkpoint_sums else level
        left = tuple(-(-n // f) for n, f in zip(left, step, strict=True))
    kept = how.checkpoint.add(graph, _add_tree(graph, keys, steps[:level], recipe), identity)
    return _add_tree(graph, kept, steps[level:], recipe)


def _add_tree(graph: Graph, keys: BlockKeys, steps: Sequence[Sequence[int]], recipe: Key) -> BlockKeys:
    """Add the merges of neighbours, level by level, and return the keys that are left."""
    name = new_name("merge")
    for level, step in enumerate(steps):
        blocks = [1 + max(index) for index in zip(*keys, strict=True)]
        merged: BlockKeys = {}
        for index, members in groups(blocks, step):
            merged[index] = keys[members[0]]
            if len(members) > 1:
                merged[index] = key = (name, level, *index)
                graph[key] = Task(key, _merged, TaskRef(recipe), *(TaskRef(keys[m]) for m in members))
        keys = merged
    return keys


# What the tasks run


@dataclass(frozen=True, eq=False)
class _Recipe:
    """What every task of one source needs; it travels once to each worker."""

    source: Source  # its values are None or a reader, and auxiliary arrays that come block by block are None
    space: Space
    cuts: Cuts  # blocks, groups of them or regions over the data: a task each
    read: tuple[int, ...]  # the shape of what is summed at once within a region or a group
    blocks: Cuts  # those of a Dask array; the regions of a store
    device: str | None
    limits: Limits  # those of what waits to be merged, and of repeated reads


@single_threaded_blas()
def _sum_in_memory(source: Source, space: Space, device: str | None) -> Sums | HolderSums:
    """Return the Sums of a source that is in memory, in one go."""
    box = tuple(slice(0, n) for n in source.shape)
    auxiliary = [cut(array, axes, box) for axes, array in source.auxiliary]
    if device is None:
        source = replace(source, engine=engine_of_size(source.values, source.layout, space, source.shape))
    return _accumulated(source, source.values, auxiliary, box, space, device)


def _sum_blocks(
    recipe: _Recipe,
    index: tuple[int, ...],
    parts: Sequence[EmbeddedBlocks],
    names: Sequence[Key],
    *given: Any,
) -> Sums | HolderSums:
    """Return the Sums of one Dask block, or of a group of them, several at a time where they are small.

    `parts` are the large auxiliary arrays, then the values: computed from what is `given` by `names`.
    """
    *large, blocks = parts
    region, known = recipe.cuts.box(index), dict(zip(names, given, strict=True))
    with read_noted(recipe.source.label, region):
        arrays = [part.compute(region, known) for part in large]

    def block(box: Slices) -> Any:
        with read_noted(recipe.source.label, box):
            return unmasked(blocks.compute(box, known))

    if blocks.count == 1:
        return _sum_box(recipe, block(region), region, arrays, region)

    def edges_in(box: Slices) -> list[Sequence[int]]:
        pairs = zip(recipe.blocks.edges, box, strict=True)
        return [edges[bisect_left(edges, s.start) : bisect_right(edges, s.stop)] for edges, s in pairs]

    def joined(edges: Sequence[Sequence[int]], box: Slices = ()) -> Any:
        """Return the blocks between these edges as one array; a lone one as it is."""
        axis = len(box)
        if axis == len(edges):
            return block(box)
        parts = [joined(edges, (*box, slice(*ends))) for ends in itertools.pairwise(edges[axis])]
        return parts[0] if len(parts) == 1 else array_namespace(*parts).concat(parts, axis=axis)

    def values(box: Slices) -> Any:
        edges = edges_in(box)
        if blocks.offset is not None and max(map(len, edges)) > 2:
            with suppress(Exception):  # block by block it shows which one is damaged
                return block(box)
        return joined(edges)

    steps = [max(1, n // longest) for n, longest in zip(recipe.read, recipe.blocks.largest, strict=True)]
    bounds = [(*edges[:-1:n], edges[-1]) for edges, n in zip(edges_in(region), steps, strict=True)]
    return _sum_stepwise(recipe, region, arrays, bounds, values)


def _sum_region(recipe: _Recipe, index: tuple[int, ...], *arrays: Any) -> Sums | HolderSums:
    """Return the Sums of one region, read by read in constant memory; `arrays` are its large auxiliary arrays."""
    source, region = recipe.source, recipe.cuts.box(index)

    def read(box: Slices) -> Any:
        with read_noted(source.label, box):
            return cut(source.values, tuple(range(len(box))), box, recipe.limits.retry_pauses)

    bounds = [step_edges(n, s.start, s.stop) for n, s in zip(recipe.read, region, strict=True)]
    return _sum_stepwise(recipe, region, arrays, bounds, read)


def _sum_stepwise(
    recipe: _Recipe,
    region: Slices,
    arrays: Sequence[Any],
    bounds: Sequence[Sequence[int]],
    values: Callable[[Slices], Any],
) -> Sums | HolderSums:
    """Return the Sums of a region, taken step by step.

    Steps are merged axis by axis, so that factors of separable masks meet again as products. What waits to be merged
    is little, or less than the sum: memory is bounded, and so is copying. `region` is a box of the data, all of which
    the large auxiliary `arrays` cover; `bounds` are those of the steps along each axis, and `values` returns those of
    one step.
    """
    batch, frame, limits = recipe.source.layout.batch_axes, recipe.space.frame, recipe.limits
    order = (*batch, *recipe.source.consumed)

    def sums(box: Slices, axes: Sequence[int]) -> Any:
        """Return the Sums of `box`, taken along the first of `axes`, each step along the others."""
        if not axes:
            return _sum_box(recipe, values(box), box, arrays, region)
        axis, *rest = axes
        parts: list[Any] = []
        for lo, hi in itertools.pairwise(bounds[axis]):
            parts.append(sums((*box[:axis], slice(lo, hi), *box[axis + 1 :]), rest))
            if axis in batch:
                continue
            total, *waiting = (part.nbytes for part in parts)
            if len(waiting) >= limits.fan_in or sum(waiting) > max(limits.waiting_bytes, total):
                parts = [_merged(recipe, *parts)]
        if axis in batch:
            return type(parts[0]).concatenate(parts, batch.index(axis), frame)
        return _merged(recipe, *parts)

    return sums(region, order)


def _sum_box(
    recipe: _Recipe, values: Any, box: Slices, arrays: Sequence[Any], origin: Slices
) -> Sums | HolderSums:
    """Return the Sums of the data in `box`; `arrays` are the large auxiliary ones, over the box `origin` around it."""
    relative = tuple(slice(b.start - o.start, b.stop - o.start) for b, o in zip(box, origin, strict=True))
    large, pauses = iter(arrays), recipe.limits.retry_pauses
    auxiliary = [
        cut(next(large), axes, relative) if array is None else cut(array, axes, box, pauses)
        for axes, array in recipe.source.auxiliary
    ]
    return _accumulated(recipe.source, values, auxiliary, box, recipe.space, recipe.device)


def _accumulated(
    source: Source, values: Any, auxiliary: Sequence[Any], box: Slices, space: Space, device: str | None
) -> Sums | HolderSums:
    """Return the Sums of values that lie in `box`, or those of each holder that has some of them."""
    block, holders = source.block(values, auxiliary, box), source.holders
    if holders is None:
        return _sums_of(block, source, space, device)
    axis = holders.axis
    blocks = split_by_holder(block, source.layout, axis, np.asarray(auxiliary[-1]))
    return HolderSums(
        {code: located(_sums_of(own, source, space, device), axis, rows) for code, own, rows in blocks}
    )


def _sums_of(block: Block, source: Source, space: Space, device: str | None) -> Sums:
    """Return the Sums of one block, moved to the device with as many of its coordinates as it has values."""
    shape = tuple(block.values.shape)
    if 0 in shape:
        zero = Sums.zero(space.frame, tuple(shape[a] for a in source.layout.batch_axes))
        return _with_memory(zero, block, source, space)
    count = math.prod(shape)
    moved = replace(
        block,
        values=to_device(block.values, device),
        # Coordinates that are fewer are used on the host.
        coordinates=tuple(to_device(x, device) if x.size == count else x for x in block.coordinates),
        weights=tuple((axes, to_device(w, device)) for axes, w in block.weights),
    )
    return _with_memory(accumulate(moved, source.layout, space, engine=source.engine), block, source, space)


def _with_memory(sums: Sums, block: Block, source: Source, space: Space) -> Sums:
    """Return the sums of a block with those over its pairs, where errors remember."""
    series = source.series
    return sums if series is None else replace(sums, memory=remembered(block, sums, space, series))


def _merged(recipe: _Recipe, *parts: Total) -> Total:
    """Return the sum of neighbours."""
    if len(parts) == 1:
        return parts[0]
    merged, space = type(parts[0]).merge(parts, recipe.space.frame), recipe.space
    if isinstance(merged, Sums):
        return joined(merged, space)
    return type(merged)({code: joined(own, space) for code, own in merged.items()})


def _assemble(frame: Frame, counts: tuple[int, ...], *parts: Total) -> Total:
    """Return blocks of batch members, a grid of `counts` in C order, side by side along every batch axis."""
    row = list(parts)
    for axis in reversed(range(len(counts))):
        n = counts[axis]
        row = [type(parts[0]).concatenate(row[i : i + n], axis, frame) for i in range(0, len(row), n)]
    return row[0]
