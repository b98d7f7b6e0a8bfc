"""From sources to sums: in memory at once, in Dask a task a block, in a store a task a region; then a tree of +."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dask.base
from dask._task_spec import DataNode, Task, TaskRef
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from dask.sizeof import sizeof

from xspline.execution import graph as tasks
from xspline.execution import leaves
from xspline.execution.checkpoint import Checkpoint, level
from xspline.execution.chunked import blocks_of, cuts_of, prepare, read_of, steps_of, travels_whole
from xspline.execution.cluster import as_made, client_of_dask, has_client
from xspline.execution.cuts import Cuts
from xspline.execution.description import described
from xspline.execution.device import check_device, on_gpu_workers
from xspline.execution.faults import WorkerMemoryError, explained
from xspline.execution.graph import Blocks, Graph, Grid, Held, Inputs, Key
from xspline.execution.leaves import Recipe
from xspline.execution.source import Opaque, Source, in_memory, is_dask, is_reader
from xspline.spaces import Space
from xspline.sums import HolderSums, Sums


@sizeof.register((Sums, HolderSums))
def _sizeof_sums(sums: Sums | HolderSums) -> int:
    return int(sums.nbytes)


def sums(
    sources: Sequence[Source], space: Space, *, device: str | None = None, checkpoint: Any = None
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

    Raises
    ------
    ValueError
        The checkpoint is of other data or of another space, or damaged.
    WorkerMemoryError
        Workers were killed again and again.
    ClusterLostError
        Client or scheduler went away.
    """
    check_device(device, here=not has_client())
    lazy = [source for source in sources if source.is_lazy]
    kept = None if checkpoint is None else Checkpoint.at(checkpoint)
    computed = iter(_computed(lazy, space, device, kept))
    return [next(computed) if s.is_lazy else leaves.sum_in_memory(s, space, device) for s in sources]


def lazy_sums(source: Source, space: Space, *, device: str | None = None) -> Delayed:
    """Return the Sums of `source`, or HolderSums, as a Delayed; building it computes and reads nothing."""
    check_device(device)
    graph, (key,) = build([source], space, device)
    layers = HighLevelGraph.from_collections(key, tasks.needed(graph, [key]), dependencies=())
    return Delayed(key, layers)


def compute(values: Sequence[Any]) -> list[Any]:
    """Compute several lazy values at once, with the active client or else Dask's threads."""
    with explained():
        return list(dask.base.compute(*values))


def persist(values: Sequence[Any]) -> list[Any]:
    """Start computing several lazy values at once, kept where they are computed; others come back as they are."""
    return list(dask.base.persist(*values))


def _computed(
    sources: Sequence[Source], space: Space, device: str | None, checkpoint: Checkpoint | None
) -> list[Any]:
    if not sources:
        return []
    graph, lefts = _build(sources, space, device, checkpoint)
    try:
        with on_gpu_workers(device, client_of_dask()):
            found = iter(_fetched(graph, [key for left in lefts for key in left.keys]))
    except WorkerMemoryError as error:
        from xspline.execution.planning import plan

        raise WorkerMemoryError(f"{error}\n{plan(sources[0], space)}") from error
    if checkpoint is not None:
        checkpoint.close()
    return [leaves.assemble(space.frame, left.counts, *(next(found) for _ in left.keys)) for left in lefts]


def _fetched(graph: Graph, keys: Sequence[Key]) -> list[Any]:
    """Return the values of some keys, each from where it was made: no worker holds them all."""
    client = client_of_dask()
    if client is not None and len(keys) > 1:
        with explained():
            return as_made(client, tasks.needed(graph, keys), keys)
    # Keys of their own: those of blocks are tuples, which a graph of several results loses when it is culled.
    own = [tasks.add_task(graph, "fetch", _same, TaskRef(key)) for key in keys]
    layers = HighLevelGraph.from_collections("fetch", tasks.needed(graph, own), dependencies=())
    return compute([Delayed(key, layers, layer="fetch") for key in own])


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Left:
    """What the tree leaves of a source: the blocks of its batch members, a grid of `counts` in C order."""

    keys: tuple[Key, ...]
    counts: tuple[int, ...] = ()

    def one(self, graph: Graph, space: Space) -> Key:
        """Return the key of all of them side by side."""
        if len(self.keys) == 1:
            return self.keys[0]
        return tasks.add_task(
            graph, "sums", leaves.assemble, space.frame, self.counts, *map(TaskRef, self.keys)
        )


def build(sources: Sequence[Source], space: Space, device: str | None = None) -> tuple[Graph, list[Key]]:
    """Return a graph, and for each source the key of its Sums in it. Computes and reads nothing."""
    graph, lefts = _build(sources, space, device, None)
    return graph, [left.one(graph, space) for left in lefts]


def _build(
    sources: Sequence[Source], space: Space, device: str | None, checkpoint: Checkpoint | None
) -> tuple[Graph, list[Left]]:
    """Return a graph, and what it leaves of each source. Without a checkpoint it reads nothing."""
    prepared = [prepare(source) for source in sources]
    if checkpoint is not None:
        checkpoint.open(described(prepared, space, device))
    values = [source.values for source in prepared if is_dask(source.values)]
    inputs = Inputs.of(values, [a for source in prepared for _, a in source.parts if is_dask(a)])
    return inputs.graph, [
        _add_source(inputs, source, space, device, checkpoint, number)
        for number, source in enumerate(prepared)
    ]


def _add_source(
    inputs: Inputs,
    source: Source,
    space: Space,
    device: str | None,
    checkpoint: Checkpoint | None,
    number: int,
) -> Left:
    """Add the tasks of one prepared source and return the keys of its Sums."""
    graph = inputs.graph
    if 0 in source.shape:
        return Left((tasks.add_data(graph, "zero", leaves.zero(source, space)),))
    if in_memory(source.values):
        held = Held(DataNode(None, source))
        return Left((tasks.add_task(graph, "sums", leaves.sum_held, held, space, device),))
    cuts = cuts_of(source)
    pieces = [(axes, _pieces(inputs, a, axes, cuts)) for axes, a in source.parts if not travels_whole(a)]
    recipe = _add_recipe(graph, source, space, cuts, device)
    add_leaves = _region_leaves
    if is_dask(source.values):
        add_leaves = _block_leaves if cuts == blocks_of(source) else _group_leaves
    left = add_leaves(inputs, source, cuts, recipe, pieces)
    steps = steps_of(source, space, cuts)
    kept = 0 if checkpoint is None else level(cuts.blocks, steps)
    left = tasks.add_tree(graph, left, steps[:kept], leaves.merge, recipe)
    if checkpoint is not None:
        left = checkpoint.add(graph, left, number)
    left = tasks.add_tree(graph, left, steps[kept:], leaves.merge, recipe)
    return _in_order(left, source.layout.batch_axes)


def _add_recipe(graph: Graph, source: Source, space: Space, cuts: Cuts, device: str | None) -> Key:
    """Add the Recipe of a source, without its values and the parts that come by the block."""
    kept = [(Opaque(a) if is_reader(a) else a) if travels_whole(a) else None for _, a in source.parts]
    stored = is_reader(source.values)
    slim = source.with_parts(Opaque(source.values) if stored else None, kept)
    blocks = cuts if stored else blocks_of(source)
    return tasks.add_data(
        graph, "recipe", Recipe(slim, space, cuts, read_of(source, cuts, device), blocks, device)
    )


Pieces = list[tuple[tuple[int, ...], Grid]]
"""For each part that comes by the block: its data axes, and its keys by block index along them."""


def _pieces(inputs: Inputs, array: Any, axes: tuple[int, ...], cuts: Cuts) -> Grid:
    """Return the keys of a part's pieces, by their block index along its own axes."""
    if is_dask(array):
        return inputs.grids[array.name]
    mine = Cuts(tuple(cuts.edges[a] for a in axes))
    return {index: tasks.add_data(inputs.graph, "piece", array[(*mine.box(index), ...)]) for index in mine}


def _refs(pieces: Pieces, index: tuple[int, ...]) -> list[TaskRef]:
    return [TaskRef(keys[tuple(index[a] for a in axes)]) for axes, keys in pieces]


def _block_leaves(inputs: Inputs, source: Source, cuts: Cuts, recipe: Key, pieces: Pieces) -> Grid:
    """Add one task a block of a Dask array: the block's own task, held, and the accumulation."""
    name, found = tasks.new_name("block"), {}
    for index, own in inputs.grids[source.values.name].items():
        held = inputs.held.get(own)
        refs = [TaskRef(own)] if held is None else held.refs
        found[index] = key = (name, *index)
        parts = _refs(pieces, index)
        inputs.graph[key] = Task(key, leaves.sum_block, TaskRef(recipe), index, held, *parts, *refs)
    return found


def _group_leaves(inputs: Inputs, source: Source, cuts: Cuts, recipe: Key, pieces: Pieces) -> Grid:
    """Add one task for each group of blocks of a Dask array: the blocks' own tasks, held, and their accumulation."""
    name, found, blocks = tasks.new_name("blocks"), {}, blocks_of(source)
    members: dict[tuple[int, ...], dict[tuple[int, ...], Held | Key]] = {index: {} for index in cuts}
    for index, own in inputs.grids[source.values.name].items():
        start = tuple(s.start for s in blocks.box(index))
        members[cuts.containing(start)][start] = inputs.held.get(own, own)
    for index, mine in members.items():
        found[index] = key = (name, *index)
        held = Blocks(mine)
        inputs.graph[key] = Task(key, leaves.sum_blocks, TaskRef(recipe), index, held, *held.refs)
    return found


def _region_leaves(inputs: Inputs, source: Source, cuts: Cuts, recipe: Key, pieces: Pieces) -> Grid:
    """Add one task a region of a stored array."""
    name, found = tasks.new_name("region"), {}
    for index in cuts:
        found[index] = key = (name, *index)
        inputs.graph[key] = Task(key, leaves.sum_region, TaskRef(recipe), index, *_refs(pieces, index))
    return found


def _in_order(left: Grid, axes: Sequence[int]) -> Left:
    """Return the blocks of batch members, the first batch axis outermost."""
    counts = tuple(1 + max(index[a] for index in left) for a in axes)
    order = sorted(left, key=lambda index: tuple(index[a] for a in axes))
    return Left(tuple(left[index] for index in order), counts)
