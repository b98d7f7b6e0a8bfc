"""From sources to sums: in memory at once, in Dask a task a block, in a store a task a region; then a tree of +."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dask.base
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from dask.sizeof import sizeof

from xspline.execution import leaves
from xspline.execution.checkpoint import Checkpoint, description_of, kept_level
from xspline.execution.cuts import Cuts, blocks_of, cuts_of, groups, prepare, read_of, steps_of, travels_whole
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
from xspline.execution.device.gpu import check_device, on_gpu_workers
from xspline.execution.leaves import Recipe
from xspline.execution.limits import LIMITS, Limits
from xspline.execution.planning import plan
from xspline.execution.source import Opaque, Source, in_memory, is_dask, is_reader
from xspline.spaces import Space
from xspline.sums import HolderSums, Sums


@sizeof.register((Sums, HolderSums))
def _sizeof_sums(sums: Sums | HolderSums) -> int:
    return int(sums.nbytes)


def sums(
    sources: Sequence[Source],
    space: Space,
    *,
    device: str | None = None,
    checkpoint: Any = None,
    limits: Limits = LIMITS,
) -> list[Any]:
    """Return the Sums of each source: those in memory at once, the others in one compute for all of them.

    Of a source that several holders share, they are HolderSums: the Sums of each holder by its code.

    Parameters
    ----------
    sources : variables to accumulate.
    space : where they are fitted.
    device : None (where the data are) or "cuda".
    checkpoint : directory that all workers see, for partial sums; those that are there are not computed again.
        Sources in memory are summed at once.
    limits : sizes of regions, reads and merges.

    Raises
    ------
    ValueError
        The checkpoint is of other data or of another space, or damaged.
    WorkerMemoryError
        Workers were killed again and again.
    ClusterLostError
        Client or scheduler went away.
    """
    check_device(device, here=active_client() is None)
    lazy = [source for source in sources if source.is_lazy]
    directory = None if checkpoint is None else Checkpoint.at(checkpoint, limits)
    computed = iter(_computed(lazy, space, device, directory, limits) if lazy else ())
    return [next(computed) if s.is_lazy else leaves.sum_in_memory(s, space, device) for s in sources]


def lazy_sums(source: Source, space: Space, *, device: str | None = None, limits: Limits = LIMITS) -> Delayed:
    """Return the Sums of `source`, or HolderSums, as a Delayed; building it computes and reads nothing."""
    check_device(device)
    graph, (remaining,) = _build([source], space, device, None, limits)
    key = remaining.keys[0]
    if len(remaining.keys) > 1:
        refs = map(TaskRef, remaining.keys)
        key = add_task(graph, "sums", leaves.assemble, space.frame, remaining.counts, *refs)
    return Delayed(key, HighLevelGraph.from_collections(key, needed(graph, [key]), dependencies=()))


def compute(values: Sequence[Any]) -> list[Any]:
    """Compute several lazy values at once, with the active client or else Dask's threads."""
    with cluster_errors_explained():
        return list(dask.base.compute(*values))


def persist(values: Sequence[Any]) -> list[Any]:
    """Start computing several lazy values at once, kept where they are computed; others come back as they are."""
    return list(dask.base.persist(*values))


def _computed(
    sources: Sequence[Source], space: Space, device: str | None, checkpoint: Checkpoint | None, limits: Limits
) -> list[Any]:
    graph, all_remaining = _build(sources, space, device, checkpoint, limits)
    keys = [key for remaining in all_remaining for key in remaining.keys]
    client = active_client()
    try:
        with on_gpu_workers(device, client), cluster_errors_explained():
            if client is not None and len(keys) > 1:
                # Each from where it was computed, as soon as it is: no worker holds them all.
                values = fetch_as_completed(client, needed(graph, keys), keys)
            else:
                # Keys of their own: those of blocks are tuples, which a graph of several results loses when culled.
                own = [add_task(graph, "fetch", _same, TaskRef(key)) for key in keys]
                layers = HighLevelGraph.from_collections("fetch", needed(graph, own), dependencies=())
                values = compute([Delayed(key, layers, layer="fetch") for key in own])
    except WorkerMemoryError as error:
        raise WorkerMemoryError(f"{error}\n{plan(sources[0], space, limits=limits)}") from error
    if checkpoint is not None:
        checkpoint.close()
    fetched = iter(values)
    return [
        leaves.assemble(space.frame, remaining.counts, *(next(fetched) for _ in remaining.keys))
        for remaining in all_remaining
    ]


def _same(value: Any) -> Any:
    return value


# Graphs


@dataclass(frozen=True)
class RemainingKeys:
    """What the tree leaves of a source: keys of the blocks of its batch members, a grid of `counts` in C order."""

    keys: tuple[Key, ...]
    counts: tuple[int, ...] = ()


def _build(
    sources: Sequence[Source], space: Space, device: str | None, checkpoint: Checkpoint | None, limits: Limits
) -> tuple[Graph, list[RemainingKeys]]:
    """Return a graph, and what it leaves of each source. Without a checkpoint it reads nothing."""
    prepared = [prepare(source, limits) for source in sources]
    if checkpoint is not None:
        checkpoint.open(description_of(prepared, space, device, limits))
    inputs = InputGraph.of(
        [source.values for source in prepared if is_dask(source.values)],
        [array for source in prepared for _, array in source.auxiliary if is_dask(array)],
        limits.retry_pauses,
    )
    return inputs.graph, [
        _add_source(inputs, source, space, device, checkpoint, number, limits)
        for number, source in enumerate(prepared)
    ]


def _add_source(
    inputs: InputGraph,
    source: Source,
    space: Space,
    device: str | None,
    checkpoint: Checkpoint | None,
    number: int,
    limits: Limits,
) -> RemainingKeys:
    """Add the tasks of one prepared source and return the keys of its Sums."""
    graph = inputs.graph
    if 0 in source.shape:
        return RemainingKeys((add_data(graph, "zero", leaves.zero(source, space)),))
    if in_memory(source.values):
        data = TaskRef(add_data(graph, "source", source))
        return RemainingKeys((add_task(graph, "sums", leaves.sum_in_memory, data, space, device),))
    cuts, stored = cuts_of(source, limits), is_reader(source.values)
    # Every task of the source shares all of it but the values and the auxiliary arrays that come by the block.
    whole = [travels_whole(array, limits) for _, array in source.auxiliary]
    shared = [
        (Opaque(array) if is_reader(array) else array) if travels else None
        for travels, (_, array) in zip(whole, source.auxiliary, strict=True)
    ]
    slim = source.with_arrays(Opaque(source.values) if stored else None, shared)
    blocks, read = cuts if stored else blocks_of(source), read_of(source, cuts, device, limits)
    recipe = add_data(graph, "recipe", Recipe(slim, space, cuts, read, blocks, device, limits))
    large = [
        (axes, _auxiliary_keys(inputs, array, axes, cuts))
        for travels, (axes, array) in zip(whole, source.auxiliary, strict=True)
        if not travels
    ]

    embedded = {} if stored else _embedded(inputs, source, cuts)
    name = new_name("region" if stored else "block" if cuts == blocks else "blocks")
    keys: BlockKeys = {}
    for index in cuts:
        keys[index] = key = (name, *index)
        refs = [TaskRef(at[tuple(index[a] for a in axes)]) for axes, at in large]
        if stored:
            graph[key] = Task(key, leaves.sum_region, TaskRef(recipe), index, *refs)
        else:
            own = embedded[index]
            graph[key] = Task(key, leaves.sum_blocks, TaskRef(recipe), index, own, *refs, *own.refs)
    steps = steps_of(source, space, cuts, limits)
    if checkpoint is None:
        keys = _add_tree(graph, keys, steps, recipe)
    else:
        kept = kept_level(cuts.blocks, steps, limits)
        keys = checkpoint.add(graph, _add_tree(graph, keys, steps[:kept], recipe), number)
        keys = _add_tree(graph, keys, steps[kept:], recipe)
    # The blocks of batch members, the first batch axis outermost.
    batch = source.layout.batch_axes
    counts = tuple(1 + max(index[a] for index in keys) for a in batch)
    order = sorted(keys, key=lambda index: tuple(index[a] for a in batch))
    return RemainingKeys(tuple(keys[index] for index in order), counts)


def _auxiliary_keys(inputs: InputGraph, array: Any, axes: tuple[int, ...], cuts: Cuts) -> BlockKeys:
    """Return the keys of an array's blocks, by their index along its own axes."""
    if is_dask(array):
        return inputs.keys[array.name]
    own = Cuts(tuple(cuts.edges[a] for a in axes))
    return {index: add_data(inputs.graph, "piece", array[(*own.box(index), ...)]) for index in own}


def _embedded(inputs: InputGraph, source: Source, cuts: Cuts) -> dict[tuple[int, ...], EmbeddedBlocks]:
    """Return the blocks of a Dask array in each box of `cuts`: their own tasks, embedded, or their keys."""
    blocks = blocks_of(source)
    members: dict[tuple[int, ...], dict[tuple[int, ...], Any]] = {index: {} for index in cuts}
    for index, key in inputs.keys[source.values.name].items():
        start = tuple(s.start for s in blocks.box(index))
        members[index if cuts == blocks else cuts.containing(start)][start] = inputs.embedded.get(key, key)
    return {index: EmbeddedBlocks(own) for index, own in members.items()}


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
                graph[key] = Task(key, leaves.merge, TaskRef(recipe), *(TaskRef(keys[m]) for m in members))
        keys = merged
    return keys
