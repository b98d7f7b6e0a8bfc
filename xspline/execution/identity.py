"""What a value of a graph is computed from, told without computing it: it names the files of a checkpoint.

Names of tasks are not trusted: Dask's own tell neither a rewritten chunk of a store nor, always, the order of an array
in memory. What counts is the content: arrays by their values, stored arrays by the version of their files, functions
by their code and by all that they refer to. What cannot be told so has no identity, and is computed again.
"""

from __future__ import annotations

import dataclasses
import datetime
import dis
import functools
import hashlib
import importlib.util
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, NamedTuple

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
    TaskRef,
    run_embedded,
    subgraph_of,
)
from xspline.execution.device.gpu import to_host
from xspline.execution.source import Opaque, Source
from xspline.spaces import Space

Stamp = Callable[[Any], Any]
"""Of a stored array what tells its version, as plain data; None of anything else."""

_PLAIN = (
    *(type(None), type(Ellipsis), bool, int, float, complex, str, bytes, range, slice, PurePath),
    *(datetime.date, datetime.time, datetime.timedelta, np.generic, np.dtype),
)
# Code that makes data of its arguments alone, so that a task which starts from nothing else is known by them,
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
# but for these.
_READING = {"load", "fromfile", "loadtxt", "genfromtxt", "memmap", "fromregex", "open"}


def no_stamp(value: Any) -> None:
    """Return None: no stored array is known."""


_NODES = (TaskRef, GraphNode, EmbeddedTask)


class UnidentifiedError(Exception):
    """What a value is computed from cannot be told without computing it; the text says why."""


class Identities:
    """Digests of what the nodes of a graph are computed from, whatever the names of its tasks and which are fused.

    Parameters
    ----------
    graph : with all that its nodes need.
    stamp : tells stored arrays.
    shared : contents of objects that many tasks hold, by their id; filled while graphs are walked.
    """

    def __init__(
        self, graph: Graph, stamp: Stamp, shared: dict[int, tuple[Any, _Content]] | None = None
    ) -> None:
        self.graph, self.stamp = graph, stamp
        self.shared = {} if shared is None else shared
        self.known: dict[Key, Identity] = {}

    def of(self, key: Key) -> Identity:
        """Return what tells one node, or raise UnidentifiedError."""
        waiting = [key]
        while waiting:  # not a recursion: a graph may be thousands of tasks deep
            at = waiting[-1]
            if at in self.known:
                waiting.pop()
            elif at not in self.graph:
                raise UnidentifiedError("they lie in the memory of a cluster already (persist)")
            elif missing := [name for name in self.graph[at].dependencies if name not in self.known]:
                waiting += missing
            else:
                self.known[at] = self.of_node(self.graph[at])
        return self.known[key]

    def of_node(self, node: Any) -> Identity:
        """Return what tells a node, or a reference to one, whose dependencies are known."""
        if isinstance(node, EmbeddedTask):
            return self.of_node(node.node)
        if isinstance(node, TaskRef | Alias):
            return self.known[node.key if isinstance(node, TaskRef) else node.target]
        content = _Content(self)
        if isinstance(node, DataNode):
            content.add(node.value)
            return content.identity
        if (inner := subgraph_of(node)) is not None:
            tasks, out, inputs = inner
            own = Identities(tasks, self.stamp, self.shared)
            for name, value in inputs.items():
                own.known[name] = self.of_node(value if isinstance(value, _NODES) else DataNode(name, value))
            return own.of(out)
        if node.func is run_embedded:
            return self.of_node(node.args[0])
        # What embedded blocks depend on, they tell by themselves; it comes as the last arguments.
        feeding = sum(len(value.names) for value in node.args if isinstance(value, EmbeddedBlocks))
        content.add((node.func, node.args[: len(node.args) - feeding], node.kwargs))
        if content.foreign and not content.from_data:
            raise UnidentifiedError(f"{content.foreign[0]}() makes them, and what it reads is not known")
        return Identity(content.identity.digest, content.from_data or content.makes_data)


class Identity(NamedTuple):
    """The digest of a value, and whether it starts from arrays, whose values are in it, or from arguments alone."""

    digest: str
    from_data: bool


class _Content:
    """The digest of some values while they are added, and what they start from.

    Attributes
    ----------
    from_data : whether there are arrays, or values of tasks that start from some.
    makes_data : whether there are functions that make arrays of their arguments alone.
    foreign : functions that may read what their arguments do not tell.
    """

    def __init__(self, identities: Identities) -> None:
        self._identities = identities
        self._hash = hashlib.blake2b(digest_size=20)
        self.from_data = self.makes_data = False
        self.foreign: list[str] = []

    @property
    def identity(self) -> Identity:
        return Identity(self._hash.hexdigest(), self.from_data)

    def add(self, value: Any) -> None:
        """Add one value: its type, then what it holds."""
        if isinstance(value, _NODES):
            self._take(self._identities.of_node(value))
            return
        kind = type(value)
        self._write(f"{kind.__module__}.{kind.__qualname__}(")
        if isinstance(value, _PLAIN):
            self._write(repr(value))
        elif isinstance(value, EmbeddedBlocks):
            for start, block in value.blocks.items():
                self.add((start, block if isinstance(block, EmbeddedTask) else TaskRef(block)))
        elif isinstance(value, tuple | list):
            self._add_all(value)
        elif isinstance(value, Mapping):
            self._add_all([part for item in value.items() for part in item])
        elif isinstance(value, functools.partial):
            self._add_all([value.func, value.args, value.keywords])
        elif isinstance(value, Opaque):
            self.add(value.reader)
        else:  # many tasks may hold one of these, which takes time: an array, a store, a function
            if id(value) not in self._identities.shared:
                content = _Content(self._identities)
                # Before it is complete, as a function may refer to itself.
                self._identities.shared[id(value)] = value, content
                try:
                    content._add_object(value)
                except BaseException:
                    del self._identities.shared[id(value)]
                    raise
            content = self._identities.shared[id(value)][1]
            self.foreign += content.foreign
            self.makes_data |= content.makes_data
            self._take(content.identity)
        self._write(")")

    def _write(self, text: str) -> None:
        self._hash.update(text.encode(errors="surrogatepass"))

    def _add_all(self, values: Iterable[Any]) -> None:
        for value in values:
            self.add(value)
            self._write(",")

    def _take(self, other: Identity) -> None:
        self._write(f"<{other.digest}>")
        self.from_data |= other.from_data

    def _add_object(self, value: Any) -> None:
        kind = type(value).__module__
        if isinstance(value, np.ndarray):
            self._add_array(value)
        elif isinstance(value, types.FunctionType | types.BuiltinFunctionType | types.MethodType | type):
            self._add_code(value)
            module = f"{value.__module__}."
            pure = value.__name__ not in _READING and any(module.startswith(f"{p}.") for p in _PURE)
            self.foreign += [] if pure else [f"{module}{value.__qualname__}"]
            self.makes_data = pure and module.startswith(("dask.array.", "numpy."))
            self.from_data = False  # what a function holds is not what a task starts from
        elif isinstance(value, types.ModuleType):
            self._write(f"{value.__name__} {_version(value.__name__)}")
        elif isinstance(value, Space):
            self._write(value.to_json())
        elif isinstance(value, Source):
            self.add(vars(value))
        elif hasattr(value, "acquire") and hasattr(value, "release"):
            pass  # a lock
        elif (stamp := self._identities.stamp(value)) is not None:
            self.from_data = True
            self.add(stamp)
        elif hasattr(value, "__cuda_array_interface__"):
            self.add(to_host(value))
        elif hasattr(value, "__dask_graph__"):
            raise UnidentifiedError(f"a function that computes them holds a {type(value).__name__}")
        elif hasattr(value, "__dask_tokenize__"):
            self.from_data = True
            self.add(value.__dask_tokenize__())
        elif hasattr(value, "shape") and hasattr(value, "dtype") and not kind.startswith("pandas."):
            raise UnidentifiedError(f"a {type(value).__name__} does not tell the version of what it reads")
        elif dataclasses.is_dataclass(value):
            self._add_all([(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)])
        else:
            self._add_code(type(value))
            self.add(getattr(value, "__wrapped__", getattr(value, "py_func", None)))  # a decorated function
            # A token tells functions by their names: those that the object holds are told here.
            held = getattr(value, "__dict__", {})
            is_own = _version(kind) is None
            self._add_all(
                [item for item in held.items() if is_own or isinstance(item[1], types.FunctionType)]
            )
            try:
                self._write(dask.base.tokenize(value, ensure_deterministic=True))
            except Exception as error:  # whatever an object raises when it is pickled
                raise UnidentifiedError(f"a {type(value).__name__} cannot be told from another") from error

    def _add_array(self, array: np.ndarray) -> None:
        self.from_data = array.ndim > 0
        self._write(f"{array.dtype!r}{array.shape}")
        if array.dtype.hasobject:
            self._add_all(array.ravel().tolist())
            return
        if isinstance(array, np.ma.MaskedArray):
            self._add_all([np.ma.getmaskarray(array), array.fill_value])
        plain = np.ascontiguousarray(array)  # the same values digest alike, whatever their order in memory
        if plain.nbytes:
            self._hash.update(plain.view(np.ndarray).reshape(-1).view(np.uint8).data)

    def _add_code(self, function: Any) -> None:
        """Add a function or class: its name and its package's version; without one its code and what that names."""
        module, name = str(getattr(function, "__module__", "")), function.__qualname__
        version = _version(module)
        self._write(f"{module}.{name} {version}")
        owner = getattr(function, "__self__", None)
        if not isinstance(owner, types.ModuleType):
            self.add(owner)
        function = getattr(function, "__func__", function)
        if isinstance(function, type) and version is None:
            self._add_all([*function.__bases__, *_members(function)])
        if not isinstance(function, types.FunctionType):
            return
        assigned = [cell for cell in function.__closure__ or () if cell != types.CellType()]
        self._add_all([function.__defaults__, function.__kwdefaults__, *(c.cell_contents for c in assigned)])
        for code in _codes(function.__code__) if version is None else ():
            self._hash.update(code.co_code)
            self._add_all([c for c in code.co_consts if not isinstance(c, types.CodeType)])
            named = [function.__globals__.get(n) for n in code.co_names] + _imported(function, code)
            for part in named:  # which grows: a module may hold a module
                if isinstance(part, types.ModuleType) and _version(part.__name__) is None:
                    inside = [vars(part)[n] for n in code.co_names if n in vars(part)]
                    named += [value for value in inside if not any(value is other for other in named)]
            self._add_all(named)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield the code of a function and of those defined in it."""
    yield code
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from _codes(part)


def _imported(function: types.FunctionType, code: types.CodeType) -> list[Any]:
    """Return the modules that a function imports while it runs."""
    modules, steps = [], list(dis.get_instructions(code))
    for place, step in enumerate(steps):
        if step.opname == "IMPORT_NAME":
            level = int(steps[place - 2].argval)  # of dots before the name
            name = importlib.util.resolve_name(
                "." * level + step.argval, function.__globals__.get("__package__")
            )
            try:
                modules.append(importlib.import_module(name))
            except ImportError as error:
                raise UnidentifiedError(
                    f"{function.__qualname__}() imports {name}, which is not here"
                ) from error
    return modules


def _members(kind: type) -> list[tuple[str, Any]]:
    """Return what a class of the user says by itself: values by name, of methods and properties their functions."""
    members: list[tuple[str, Any]] = []
    for name, value in vars(kind).items():
        if isinstance(value, property):
            members.append((name, (value.fget, value.fset, value.fdel)))
        elif isinstance(value, staticmethod | classmethod):
            members.append((name, value.__func__))
        elif isinstance(value, functools.cached_property):
            members.append((name, value.func))
        elif isinstance(value, types.FunctionType) or not name.startswith(("__", "_abc_")):
            is_slot = isinstance(value, types.MemberDescriptorType)
            members.append((name, None if is_slot else value))
    return members


@functools.cache
def _version(module: str) -> str | None:
    """Return the version of the installed package or of Python that a module is part of; None for code of the user."""
    root = module.partition(".")[0]
    if root in sys.stdlib_module_names or root == "builtins":
        return sys.version
    package = sys.modules.get(root)
    places = Path(getattr(package, "__file__", None) or "").parts
    installed = root == "xspline" or "site-packages" in places or "dist-packages" in places
    return str(getattr(package, "__version__", "")) if installed and root != "__main__" else None
