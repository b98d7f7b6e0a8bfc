"""Dask's graphs, client and errors: the only module that uses API of Dask which its documentation does not promise.

Graphs are plain dictionaries of the nodes of `dask._task_spec`, written after Dask has optimised those of the input.
Each input block's own task is embedded in the task that sums it, so that a block is one task whatever stands between
the store and us, and a failed read is repeated in place. Measured with 100,000 chunks of one Zarr array: the graph is
built and optimised in 13 s and has 48 tasks (13 MB pickled); the same by `dask.array.map_blocks` and
`dask.array.reduction`, which are public, takes 55 s and has 200,000 tasks (63 MB). What is private here is held by
`tests/execution/test_dask_api.py`, which names the release of Dask that changed it.
"""

from __future__ import annotations

import inspect
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import dask.array as da
import dask.base
import numpy as np
from dask._task_spec import Alias, DataNode, GraphNode, Task, TaskRef, _execute_subgraph
from dask.array.core import getter, getter_nofancy
from dask.array.utils import meta_from_array
from dask.blockwise import Blockwise

from xspline.execution.limits import LIMITS
from xspline.execution.source import retrying

Key = Any
Graph = dict[Key, Any]
BlockKeys = dict[tuple[int, ...], Key]
"""Keys by block index."""


# Graphs


def type_of_blocks(array: da.Array) -> type:
    """Return the type of the arrays that a Dask array is made of, as far as it knows."""
    return type(meta_from_array(array))


def new_name(what: str) -> str:
    """Return a unique key prefix; dashboards show the part before the last dash."""
    return f"xspline-{what}-{uuid.uuid4().hex}"


def check_arrays() -> None:
    """Raise NotImplementedError where Dask's arrays are expressions, which have no graph until they are computed."""
    if "_array_expr" in da.Array.__module__:
        raise NotImplementedError(
            "xspline does not support Dask's array expressions, which are experimental: set "
            "dask.config.set({'array.query-planning': False}) before dask.array is first imported, or pass data in "
            "memory or opened with chunks=None"
        )


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


def stored_leaves(array: da.Array) -> list[Any]:
    """Return the objects that an array was made from by `dask.array.from_array`, those in memory left out."""
    layers = getattr(array.dask, "layers", {"": array.dask}).values()
    single = (
        next(iter(layer.values())) for layer in layers if type(layer) is not Blockwise and len(layer) == 1
    )
    values = (node.value if isinstance(node, DataNode) else node for node in single)
    return [value for value in values if hasattr(value, "shape") and not isinstance(value, np.ndarray)]


def stored_reads(array: da.Array) -> Iterator[tuple[Any, Any]]:
    """Yield for each read of such an object the object and its index, which is None where it cannot be told."""

    def reads(graph: Graph, outside: Callable[[Key], Any]) -> Iterator[tuple[Any, Any]]:
        def value_of(node: Any) -> Any:
            if isinstance(node, TaskRef | Alias):
                key = node.key if isinstance(node, TaskRef) else node.target
                return value_of(graph[key]) if key in graph else outside(key)
            return node.value if isinstance(node, DataNode) else node

        for node in graph.values():
            if isinstance(node, Task) and node.func is _execute_subgraph:  # tasks that Dask has fused
                inner, _, names, *values = node.args
                inputs = dict(zip(names, values, strict=True))
                yield from reads(dict(inner), lambda key, inputs=inputs: value_of(inputs.get(key)))  # type: ignore[misc]
            elif isinstance(node, Task) and node.args:
                value, *index = map(value_of, node.args)
                if hasattr(value, "shape") and not isinstance(value, np.ndarray):
                    yield value, index[0] if index else None

    (optimised,) = dask.base.optimize(array)
    yield from reads(dict(optimised.dask), lambda key: None)


class EmbeddedTask:
    """A graph node as an argument: Dask passes it on as it is, and the task that gets it calls it.

    `node` is the Task or DataNode, `names` are keys of its dependencies, in the order in which their values are passed,
    and `pauses` the seconds before each further try, where a read fails in passing.
    """

    __slots__ = ("names", "node", "pauses")

    def __init__(self, node: GraphNode, pauses: Sequence[float]) -> None:
        self.node = node
        self.names = tuple(node.dependencies)
        self.pauses = pauses

    def __call__(self, values: Iterable[Any] = ()) -> Any:
        return retrying(self.node, dict(zip(self.names, values, strict=True)), pauses=self.pauses)


class EmbeddedBlocks:
    """Blocks of a Dask array that one task computes, one after another, or several by one read.

    `blocks` have by first index along each axis the embedded task of a block, or the key of its value; where all are
    boxes of one stored array, only the first is kept. `names` are keys of what they depend on, in the order in which
    the values are passed.
    """

    def __init__(self, blocks: dict[tuple[int, ...], EmbeddedTask | Key]) -> None:
        names = (b.names if isinstance(b, EmbeddedTask) else (b,) for b in blocks.values())
        self.names = tuple(dict.fromkeys(name for own in names for name in own))
        reads = {_read_of(start, block) for start, block in blocks.items()}
        # Where the first label lies in the stored array; None where blocks are anything else.
        self.offset = reads.pop()[0] if len(reads) == 1 else None
        self.count = len(blocks)
        self.blocks = blocks if self.offset is None else dict([next(iter(blocks.items()))])

    def compute(self, box: tuple[slice, ...], values: Mapping[Key, Any]) -> Any:
        """Return the block in a box, or any box of a stored array, from the values by name."""
        block = self.blocks.get(tuple(s.start for s in box))
        if self.offset is not None:
            (first,) = self.blocks.values()
            read: Any = first.node
            index = tuple(slice(s.start + o, s.stop + o) for s, o in zip(box, self.offset, strict=True))
            node = Task(read.key, read.func, read.args[0], index, *read.args[2:], **read.kwargs)
            block = EmbeddedTask(node, first.pauses)
        return block(values[n] for n in block.names) if isinstance(block, EmbeddedTask) else values[block]


def _read_of(start: tuple[int, ...], block: EmbeddedTask | Key) -> tuple[Any, Key]:
    """Return where the first label lies in a stored array of which a block is a box, and its key; None of others."""
    node = getattr(block, "node", None)
    if isinstance(node, Task) and node.func in (getter, getter_nofancy) and isinstance(node.args[0], TaskRef):
        index = getattr(node.args[1], "value", node.args[1])
        plain = isinstance(index, tuple) and len(index) == len(start)
        if plain and all(isinstance(s, slice) and s.step in (None, 1) and s.start is not None for s in index):
            return tuple(s.start - n for s, n in zip(index, start, strict=True)), node.args[0].key
    return None, None


def run_embedded(task: EmbeddedTask, *values: Any) -> Any:
    """Run an embedded task; what a Task of the input becomes, so that its reads are tried again."""
    try:
        return task(values)
    except Exception as error:
        error.add_note(f"in the task {task.node.key!r}")
        raise


@dataclass(frozen=True, eq=False)
class InputGraph:
    """What the tasks of a reduction start from."""

    # the optimised graph of the input, every task of it tried again when a read fails; ours is added to it
    graph: Graph
    keys: dict[str, BlockKeys]  # those of the blocks, by name of each Dask array
    embedded: dict[Key, EmbeddedTask]  # nodes taken out of the graph, to be run by the task that uses them

    @staticmethod
    def of(
        values: Sequence[da.Array],
        auxiliary: Sequence[da.Array],
        pauses: Sequence[float] = LIMITS.retry_pauses,
        reusing: Callable[[Any], Any] = lambda stored: stored,
    ) -> InputGraph:
        """Optimise arrays together, and take out those blocks of `values` that nothing else needs.

        `reusing` turns what lies in a store into what tasks read instead.
        """
        arrays = [*values, *auxiliary]
        optimised = dask.base.optimize(*arrays) if arrays else ()
        graph: Graph = {}
        for layers in {id(array.dask): array.dask for array in optimised}.values():
            graph.update(layers)
        keys: dict[str, BlockKeys] = {array.name: {} for array in arrays}
        for array, new in zip(arrays, optimised, strict=True):
            for index in np.ndindex(*array.numblocks):
                key: Key = (new.name, *index)
                while isinstance(node := graph.get(key), Alias):
                    key = node.target
                keys[array.name][index] = key
        graph = needed(graph, (key for by_index in keys.values() for key in by_index.values()))
        wanted = Counter(key for array in values for key in keys[array.name].values())
        shared = {d for node in graph.values() if isinstance(node, GraphNode) for d in node.dependencies}
        shared.update(key for array in auxiliary for key in keys[array.name].values())
        own = [
            key
            for key, times in wanted.items()
            if times == 1 and key not in shared and isinstance(graph.get(key), Task | DataNode)
        ]
        embedded = {key: EmbeddedTask(graph.pop(key), pauses) for key in own}
        for key, node in graph.items():
            if isinstance(node, DataNode) and not isinstance(node.value, np.ndarray):
                graph[key] = DataNode(key, reusing(node.value))
            if isinstance(node, Task):
                task = EmbeddedTask(node, pauses)
                # The flag tells Dask's scheduler which tasks read data: more of them than threads have to wait.
                graph[key] = Task(
                    key, run_embedded, task, *map(TaskRef, task.names), _data_producer=node.data_producer
                )
        return InputGraph(graph, keys, embedded)

    @property
    def blocks_are_independent(self) -> bool:
        """Whether all blocks were taken out and need nothing but data of the graph, such as an open store."""
        wanted = [key for keys in self.keys.values() for key in keys.values()]
        return all(key in self.embedded for key in wanted) and all(
            isinstance(self.graph.get(name), DataNode) for key in wanted for name in self.embedded[key].names
        )


# The client


def active_client() -> Any:
    """Return the client that Dask would compute with; None without one, and in a task, which must not wait."""
    client = getattr(dask.base.get_scheduler(), "__self__", None)  # `Client.get` is a bound method
    if client is None:
        return None
    from distributed import Client, get_worker

    if not isinstance(client, Client):
        return None
    try:
        get_worker()
    except ValueError:
        return client
    return None


def workers_of(client: Any) -> list[dict[str, Any]]:
    """Return what the scheduler knows of each worker; some versions of distributed name five unless asked for all."""
    everyone = {"n_workers": -1} if "n_workers" in inspect.signature(client.scheduler_info).parameters else {}
    return list(client.scheduler_info(**everyone)["workers"].values())


def fetch_as_completed(client: Any, graph: Graph, keys: Sequence[Key]) -> list[Any]:
    """Return the values of some keys; each leaves its worker as soon as it is computed, while others are."""
    from distributed import as_completed

    futures = client.get(graph, list(keys), sync=False)
    places = {future.key: place for place, future in enumerate(futures)}
    completed = as_completed(futures, loop=client.loop, with_results=True)
    del futures  # a worker lets go of what nobody refers to
    values: list[Any] = [None] * len(places)
    for future, value in completed:
        if future.cancelled():
            raise value
        values[places[future.key]] = value
        del future
    return values


# Errors of a cluster


class WorkerMemoryError(RuntimeError, MemoryError):
    """Workers were killed, most likely for want of memory; the text says what was projected."""


class ClusterLostError(ConnectionError):
    """The cluster went away, or the connection to it, while it computed; nothing was kept."""


_MEMORY = (
    "Workers were killed again and again, most likely for want of memory. See the projected memory a thread "
    "in .plan(); give workers more memory or fewer threads, or use smaller chunks."
)
_LOST = (
    "nothing was kept or written. Connect a new Client and run this again; with statistics(..., checkpoint=path) "
    "or fit(..., checkpoint=path) it goes on where it stopped."
)


@contextmanager
def cluster_errors_explained() -> Iterator[None]:
    """Turn errors of a cluster into ours, which say what to do.

    It raises WorkerMemoryError where workers were killed again and again, and ClusterLostError where client, scheduler
    or all of the cluster went away.
    """
    try:
        yield
    except Exception as error:
        from concurrent.futures import CancelledError

        from distributed import KilledWorker

        if isinstance(error, KilledWorker):
            raise WorkerMemoryError(f"{error}\n{_MEMORY}") from error
        if isinstance(error, CancelledError):  # distributed's FutureCancelledError is one
            texts = (str(getattr(error, name, None) or "") for name in ("reason", "msg"))
            reason = ": ".join(text for text in texts if text and text != "unknown")
            raise ClusterLostError(
                f"the cluster was lost while it computed ({reason or 'its client or its workers closed'}); {_LOST}"
            ) from error
        raise
