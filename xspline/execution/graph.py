"""Graphs of sums: one task a block or region, a tree of merges over them, and reads that are tried again.

Graphs are written as plain dictionaries of `dask._task_spec` nodes, after Dask has optimised those of the input.
Each input block's own task is taken into the task that accumulates it, so that a block is one task whatever stands
between the store and us, and a failed read is repeated in place.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dask.array as da
import dask.base
import numpy as np
from dask._task_spec import Alias, DataNode, GraphNode, Task, TaskRef

from xspline.execution.cuts import groups
from xspline.execution.retry import retrying

Key = Any
Graph = dict[Key, Any]
Grid = dict[tuple[int, ...], Key]
"""Keys of partial sums by block index."""


class Held:
    """A graph node as an argument: Dask passes it on as it is, the task that gets it calls it.

    Attributes
    ----------
    node : the Task or DataNode.
    names : keys of its dependencies, in the order in which their values are passed.
    """

    __slots__ = ("names", "node")

    def __init__(self, node: GraphNode) -> None:
        self.node = node
        self.names = tuple(node.dependencies)

    def __call__(self, values: Iterable[Any] = ()) -> Any:
        return retrying(self.node, dict(zip(self.names, values, strict=True)))

    @property
    def refs(self) -> list[TaskRef]:
        return [TaskRef(name) for name in self.names]


class Blocks:
    """Blocks that one task makes, one after another.

    Attributes
    ----------
    members : by first index along each axis the held task of a block, or the key of its value.
    names : keys of what they depend on, in the order in which the values are passed.
    """

    __slots__ = ("members", "names")

    def __init__(self, members: dict[tuple[int, ...], Held | Key]) -> None:
        self.members = members
        needed = (m.names if isinstance(m, Held) else (m,) for m in members.values())
        self.names = tuple(dict.fromkeys(name for names in needed for name in names))

    def make(self, start: tuple[int, ...], values: Mapping[Key, Any]) -> Any:
        """Return the block that begins at `start`, from the values by name."""
        member = self.members[start]
        return member(values[n] for n in member.names) if isinstance(member, Held) else values[member]

    @property
    def refs(self) -> list[TaskRef]:
        return [TaskRef(name) for name in self.names]


def revive(held: Held, *values: Any) -> Any:
    """Run a held task; what a Task of the input becomes, so that its reads are tried again."""
    try:
        return held(values)
    except Exception as error:
        error.add_note(f"in the task {held.node.key!r}")
        raise


def new_name(what: str) -> str:
    """Return a unique key prefix; dashboards show the part before the last dash."""
    return f"xspline-{what}-{uuid.uuid4().hex}"


@dataclass(frozen=True, eq=False)
class Inputs:
    """What the tasks of a reduction start from.

    Attributes
    ----------
    graph : the optimised graph of the input, every task of it tried again when a read fails; ours is added to it.
    grids : by name of each Dask array, the keys of its blocks.
    held : nodes taken out of the graph, to be run by the task that uses them.
    """

    graph: Graph
    grids: dict[str, Grid]
    held: dict[Key, Held]

    @staticmethod
    def of(values: Sequence[da.Array], parts: Sequence[da.Array]) -> Inputs:
        """Optimise arrays together, and take out those blocks of `values` that nothing else needs."""
        graph, grids = _optimised([*values, *parts])
        wanted, kept = ([k for a in arrays for k in grids[a.name].values()] for arrays in (values, parts))
        held = _take_out(graph, wanted, kept)
        _shield(graph)
        return Inputs(graph, grids, held)

    @property
    def read_alone(self) -> bool:
        """Whether all blocks were taken out and need nothing but data of the graph, such as an open store."""
        wanted = [key for grid in self.grids.values() for key in grid.values()]
        found = [self.held[key] for key in wanted if key in self.held]
        return len(found) == len(wanted) and all(
            isinstance(self.graph.get(name), DataNode) for held in found for name in held.names
        )


def _optimised(arrays: Sequence[da.Array]) -> tuple[Graph, dict[str, Grid]]:
    """Return the optimised graph of several Dask arrays, and for the name of each the keys of its blocks in it."""
    graph: Graph = {}
    found = dask.base.optimize(*arrays) if arrays else ()
    for one in {id(a.dask): a.dask for a in found}.values():
        graph.update(one)
    grids = {
        array.name: {index: _end_of(graph, (new.name, *index)) for index in np.ndindex(*array.numblocks)}
        for array, new in zip(arrays, found, strict=True)
    }
    return needed(graph, (key for grid in grids.values() for key in grid.values())), grids


def _end_of(graph: Graph, key: Key) -> Key:
    """Return the key that `key` stands for, through aliases."""
    while isinstance(node := graph.get(key), Alias):
        key = node.target
    return key


def _take_out(graph: Graph, wanted: Sequence[Key], kept: Iterable[Key]) -> dict[Key, Held]:
    """Take out those of the `wanted` nodes that nothing else uses: no other node, no second array, none of `kept`."""
    asked = Counter(wanted)
    used = {d for node in graph.values() if isinstance(node, GraphNode) for d in node.dependencies}
    used.update(kept)
    single = [
        k for k, n in asked.items() if n == 1 and k not in used and isinstance(graph.get(k), Task | DataNode)
    ]
    return {key: Held(graph.pop(key)) for key in single}


def _shield(graph: Graph) -> None:
    """Let every task of `graph` be tried again when a read fails in passing."""
    for key, node in graph.items():
        if isinstance(node, Task):
            held = Held(node)
            graph[key] = Task(key, revive, held, *held.refs, _data_producer=node.data_producer)


def needed(graph: Graph, keys: Iterable[Key]) -> Graph:
    """Return the nodes that `keys` need."""
    out: Graph = {}
    stack = list(keys)
    while stack:
        key = stack.pop()
        if key not in out and key in graph:
            out[key] = graph[key]
            stack.extend(getattr(graph[key], "dependencies", ()))
    return out


def add_tree(
    graph: Graph, leaves: Grid, steps: Sequence[Sequence[int]], merge: Callable[..., Any], recipe: Key
) -> Grid:
    """Add the merges of `leaves`, level by level, and return the keys that are left.

    `merge` is called with the value of `recipe` and the partial sums of a box of neighbours, in C order.
    """
    name = new_name("merge")
    for level, step in enumerate(steps):
        blocks = [1 + max(index) for index in zip(*leaves, strict=True)]
        merged: Grid = {}
        for index, members in groups(blocks, step):
            merged[index] = leaves[members[0]]
            if len(members) > 1:
                merged[index] = key = (name, level, *index)
                graph[key] = Task(key, merge, TaskRef(recipe), *(TaskRef(leaves[m]) for m in members))
        leaves = merged
    return leaves


def add_task(graph: Graph, what: str, function: Callable[..., Any], *args: Any) -> Key:
    """Add a task with a new name and return its key."""
    key = new_name(what)
    graph[key] = Task(key, function, *args)
    return key


def add_data(graph: Graph, what: str, value: Any) -> Key:
    """Add a value with a new name and return its key: it travels once to each worker that needs it."""
    key = new_name(what)
    graph[key] = DataNode(key, value)
    return key
