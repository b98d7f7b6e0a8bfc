"""What a value of a graph is computed from, told without computing it: it names the files of a checkpoint.

Names of tasks are not trusted: Dask's own tell neither a rewritten chunk of a store nor, always, the order of an array
in memory. What counts is the content: arrays by their values, stored arrays by the version of their files, functions
by their code and by all that they refer to. What cannot be told so has no identity, and is computed again.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import hashlib
import os
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

import dask.base
import numpy as np

from xspline.execution.dask_api import (
    Alias,
    DataNode,
    EmbeddedBlocks,
    EmbeddedTask,
    Graph,
    GraphNode,
    Key,
    Task,
    TaskRef,
    subgraph_of,
)
from xspline.execution.device.gpu import to_host
from xspline.execution.source import Opaque, Source
from xspline.spaces import Space

Stamp = Callable[[Any], Any]
"""Of a stored array what tells its version, as plain data; None of anything else."""

_PLAIN = (
    *(type(None), type(Ellipsis), bool, int, float, complex, str, bytes, range, PurePath),
    *(datetime.date, datetime.time, datetime.timedelta, np.generic, np.dtype, np.ufunc),
)
# Code that makes data of its arguments alone, so that a task which starts from nothing else is known by them.
_PURE = (
    "dask.array",
    "dask._task_spec",
    "dask.utils",
    "numpy",
    "operator",
    "_operator",
    "builtins",
    "functools",
)
_READING = {"load", "fromfile", "loadtxt", "genfromtxt", "memmap", "fromregex", "open"}


class UnidentifiedError(Exception):
    """What a value is computed from cannot be told without computing it; the text says what and why."""


def no_stamp(value: Any) -> None:
    """Return None: no stored array is known."""


class Identities:
    """Digests of what the nodes of a graph are computed from, whatever the names of its tasks.

    Parameters
    ----------
    graph : with all that its nodes need.
    stamp : tells stored arrays.
    """

    def __init__(self, graph: Graph, stamp: Stamp = no_stamp) -> None:
        self.graph, self.stamp = graph, stamp
        self.known: dict[Key, str] = {}

    def of(self, key: Key) -> str:
        """Return the digest of one node.

        Raises
        ------
        UnidentifiedError
            Something that it is computed from cannot be told.
        """
        waiting = [key]
        while waiting:  # not a recursion: a graph may be thousands of tasks deep
            at = waiting[-1]
            if at in self.known:
                waiting.pop()
                continue
            if at not in self.graph:
                raise UnidentifiedError("they lie in the memory of a cluster already (persist)")
            node = self.graph[at]
            missing = [name for name in node.dependencies if name not in self.known]
            if missing:
                waiting += missing
            else:
                self.known[at] = self._of_node(node)
        return self.known[key]

    def _of_node(self, node: GraphNode) -> str:
        if isinstance(node, Alias):
            return self.known[node.target]
        content = _Content(self)
        content.add(node)
        return content.digest(node)

    def of_subgraph(self, inner: Graph, out: Key, inputs: Mapping[Key, str]) -> str:
        """Return the digest of one node of a graph within a task, from those of its inputs."""
        own = Identities(inner, self.stamp)
        own.known.update(inputs)
        return own.of(out)


class _Content:
    """The digest of one task, while its parts are added."""

    def __init__(self, identities: Identities) -> None:
        self.identities = identities
        self._hash = hashlib.blake2b(digest_size=20)
        self._has_input = False  # arrays, or other tasks
        self._foreign: list[str] = []  # functions that may read what their arguments do not tell
        self._within: set[int] = set()  # functions whose code is being added

    def digest(self, node: GraphNode | None = None) -> str:
        if isinstance(node, Task) and self._foreign and not self._has_input:
            raise UnidentifiedError(f"{self._foreign[0]}() makes them, and what it reads is not known")
        return self._hash.hexdigest()

    def add(self, value: Any) -> None:
        """Add one value: its type, then what it holds."""
        kind = type(value)
        self._write(f"{kind.__module__}.{kind.__qualname__}(")
        if isinstance(value, _PLAIN):
            self._write(repr(value))
        elif isinstance(value, np.ndarray):
            self._add_array(value)
        elif isinstance(value, TaskRef | GraphNode | EmbeddedTask | EmbeddedBlocks):
            self._add_node(value)
        elif isinstance(value, tuple | list):
            self._add_all(value)
        elif isinstance(value, Mapping):
            self._add_all([part for item in value.items() for part in item])
        elif isinstance(value, set | frozenset):
            self._write(",".join(sorted(self._apart(part) for part in value)))
        elif isinstance(value, slice):
            self._add_all([value.start, value.stop, value.step])
        elif isinstance(value, functools.partial):
            self._add_all([value.func, value.args, value.keywords])
        elif isinstance(value, types.FunctionType | types.BuiltinFunctionType | types.MethodType | type):
            self._add_code(value)
        elif isinstance(value, types.ModuleType):
            self._write(f"{value.__name__} {getattr(value, '__version__', '')}")
        elif isinstance(value, Space):
            self._write(value.to_json())
        elif isinstance(value, Opaque):
            self.add(value.reader)
        elif isinstance(value, Source):
            self._add_all([part for item in vars(value).items() for part in item])
        elif (stamp := self.identities.stamp(value)) is not None:
            self._has_input = True
            self.add(stamp)
        else:
            self._add_object(value)
        self._write(")")

    def _write(self, text: str) -> None:
        self._hash.update(text.encode(errors="surrogatepass"))

    def _add_all(self, values: Any) -> None:
        self._write(f"{len(values)}:")
        for value in values:
            self.add(value)

    def _apart(self, value: Any) -> str:
        """Return the digest of one value alone."""
        content = _Content(self.identities)
        content._within = self._within
        content.add(value)
        self._has_input |= content._has_input
        self._foreign += content._foreign
        return content._hash.hexdigest()

    def _add_array(self, array: np.ndarray) -> None:
        self._has_input |= array.ndim > 0
        self._write(f"{array.dtype!r}{array.shape}")
        if array.dtype.hasobject:
            self._add_all(array.ravel().tolist())
            return
        if isinstance(array, np.ma.MaskedArray):
            self._add_all([np.ma.getmaskarray(array), array.fill_value])
        plain = np.ascontiguousarray(array)  # the same values digest alike, whatever their order in memory
        if plain.nbytes:
            self._hash.update(plain.view(np.ndarray).reshape(-1).view(np.uint8).data)

    def _add_node(self, node: Any) -> None:
        if isinstance(node, TaskRef | Alias):
            self._add_known(node.key if isinstance(node, TaskRef) else node.target)
        elif isinstance(node, DataNode):
            self.add(node.value)
        elif isinstance(node, EmbeddedTask):
            self._write(self.identities._of_node(node.node))
            self._has_input = True
        elif isinstance(node, EmbeddedBlocks):
            self._has_input = True
            for start, block in node.blocks.items():
                self.add(start)
                if isinstance(block, EmbeddedTask):
                    self.add(block)
                else:
                    self._add_known(block)
        elif (inner := subgraph_of(node)) is not None:
            tasks, out, inputs = inner
            # A graph within a task: sources in it are told there, its functions start from them.
            self._write(
                self.identities.of_subgraph(tasks, out, {k: self._apart(v) for k, v in inputs.items()})
            )
            self._has_input = True
        else:
            self._add_all([node.func, node.args, node.kwargs])

    def _add_known(self, key: Key) -> None:
        if key not in self.identities.known:
            raise UnidentifiedError(f"the task {key!r} is not in the graph")
        self._has_input = True
        self._write(self.identities.known[key])

    def _add_code(self, function: Any) -> None:
        """Add a function or class: its name and its package's version; without one its code and what that names."""
        module, name = str(getattr(function, "__module__", "")), function.__qualname__
        self._write(f"{module}.{name} {_version(module) or ''}")
        owner = getattr(function, "__self__", None)
        if owner is not None and not isinstance(owner, types.ModuleType):
            self.add(owner)
        function = getattr(function, "__func__", function)
        if not any(f"{module}.".startswith(f"{pure}.") for pure in _PURE) or name in _READING:
            self._foreign.append(f"{module}.{name}")
        if isinstance(function, type) and _version(module) is None:
            self._add_all([f for f in vars(function).values() if isinstance(f, types.FunctionType)])
        code = getattr(function, "__code__", None)
        if code is None or id(function) in self._within:
            return
        self._within.add(id(function))
        self._add_all([function.__defaults__, function.__kwdefaults__])
        for cell in function.__closure__ or ():
            try:
                self.add(cell.cell_contents)
            except ValueError:  # not assigned yet
                self._write("empty")
        if _version(module) is not None:
            return
        named: set[str] = set()
        for part in _codes(code):
            self._hash.update(part.co_code)
            self._add_all([c for c in part.co_consts if not isinstance(c, types.CodeType)])
            self._add_all(part.co_names)
            named.update(part.co_names)
        self._add_all([function.__globals__[n] for n in sorted(named & function.__globals__.keys())])

    def _add_object(self, value: Any) -> None:
        if hasattr(value, "acquire") and hasattr(value, "release"):
            return  # a lock
        if hasattr(value, "__cuda_array_interface__"):
            self.add(to_host(value))
        elif hasattr(value, "__dask_graph__"):
            raise UnidentifiedError(f"a function that computes them holds a {type(value).__name__}")
        elif hasattr(value, "__dask_tokenize__"):
            self._has_input = True
            self.add(value.__dask_tokenize__())
        elif hasattr(value, "shape") and hasattr(value, "dtype"):
            raise UnidentifiedError(f"a {type(value).__name__} does not tell the version of what it reads")
        elif dataclasses.is_dataclass(value):
            fields = dataclasses.fields(value)
            self._add_all([part for f in fields for part in (f.name, getattr(value, f.name))])
        else:
            self._add_code(type(value))
            try:
                self._write(dask.base.tokenize(value, ensure_deterministic=True))
            except Exception as error:  # whatever an object raises when it is pickled
                raise UnidentifiedError(f"a {type(value).__name__} cannot be told from another") from error


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield the code of a function and of those defined in it."""
    yield code
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from _codes(part)


@functools.cache
def _version(module: str) -> str | None:
    """Return the version of the installed package or of Python that a module is part of; None for code of the user."""
    root = module.partition(".")[0]
    if root in sys.stdlib_module_names or root == "builtins":
        return sys.version
    package = sys.modules.get(root)
    places = Path(getattr(package, "__file__", None) or os.sep).parts
    installed = root == "xspline" or "site-packages" in places or "dist-packages" in places
    return str(getattr(package, "__version__", "")) if installed else None
