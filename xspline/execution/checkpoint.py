"""Partial sums in files, so that an interrupted accumulation goes on where it stopped, with the same bits.

One level of the tree of merges is kept: its sums are written by the tasks that compute them, some to a file. A file is
named by a digest of all that its sums are computed from (`identity_of`), and takes its name once it is complete. So a
run takes just those files that are of its own data, space and blocks, and computes the rest; all merges above are
computed again, in the same order. Workers write, as they write the chunks of a Zarr store: sums do not pass through the
client, and those of a client that dies are kept. So the directory has to be one that all see. Any runs may share it:
those of the same data write the same bits under the same names, others other names, and none removes a file.
"""

from __future__ import annotations

import hashlib
import json
import operator
import os
import shutil
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xspline.execution.dask_api import BlockKeys, Graph, Task, TaskRef, add_task, new_name
from xspline.execution.limits import LIMITS, Limits
from xspline.execution.source import retrying
from xspline.solve.errors import warn
from xspline.sums import HolderSums, Sums

#: Version of what is written, in files of statistics and fields too; a reader refuses a later one.
SCHEMA = 3
DESCRIPTION = "description.json"


@dataclass(frozen=True)
class Checkpoint:
    """A directory of partial sums. `directory` is absolute, and `limits` tell how many files there are."""

    directory: Path
    limits: Limits = LIMITS

    @classmethod
    def at(cls, path: Any, limits: Limits = LIMITS) -> Checkpoint:
        """Raise ValueError unless the path is one of a file system, and no file."""
        if not isinstance(path, str | os.PathLike) or "://" in str(path):
            raise ValueError(
                f"checkpoint has to be a directory on a path that all workers see, not {path!r}; for example a "
                "folder of a shared file system"
            )
        directory = Path(path).absolute()
        for place in (directory, *directory.parents):
            if place.exists() and not place.is_dir():
                raise ValueError(
                    f"checkpoint has to be a directory, and {place} is a file; give the path of a directory, which "
                    "is made if it does not exist"
                )
        return cls(directory, limits)

    def open(self) -> None:
        """Make the directory, and say in it what its files are.

        It raises ValueError where its files are of another version.
        """
        file = self.directory / DESCRIPTION
        if not file.exists():
            self.directory.mkdir(parents=True, exist_ok=True)
            with replacing(file) as beside:
                beside.write_text(json.dumps({"content": "checkpoint", "schema": SCHEMA}), encoding="utf-8")
        try:
            schema = json.loads(file.read_text(encoding="utf-8")).get("schema", 1)
        except (ValueError, AttributeError):
            schema = "unknown"
        if schema != SCHEMA:
            raise ValueError(
                f"the checkpoint {self.directory} has schema version {schema} and this xspline writes "
                f"{SCHEMA}, so its sums cannot be used; give another directory, or delete this one to start "
                "again"
            )

    def add(self, graph: Graph, keys: BlockKeys, identity: str) -> BlockKeys:
        """Add the tasks that keep the sums at `keys`, or take them from their files, and return their new keys.

        `keys` are those of the sums of one level of the tree, and `identity` is that of what all of them are computed
        from, and how.
        """
        out: BlockKeys = {}
        for indices in batches(list(keys), self.limits):
            own = hashlib.sha256(f"{identity} {indices}".encode()).hexdigest()
            path = self.directory / f"{own[:40]}.npz"
            pauses = self.limits.retry_pauses
            if path.exists():
                file = add_task(graph, "load", load, path, pauses)
            else:
                refs = [TaskRef(keys[index]) for index in indices]
                file = add_task(graph, "save", save, path, pauses, *refs)
            name = new_name("kept")
            for k, index in enumerate(indices):
                out[index] = (name, *index)
                graph[out[index]] = Task(out[index], operator.getitem, TaskRef(file), k)
        return out

    def warn_not_kept(self, label: str, reason: Exception) -> None:
        """Warn that nothing tells what the sums of a variable are computed from, and say what to do."""
        warn(
            f"the checkpoint {self.directory} keeps no sums of {label}, as nothing tells whether a later run has the "
            f"same values: {reason}. They are computed in every run; to keep their sums, write the values to a Zarr "
            "store or a NetCDF file first and open that, or keep the statistics of each part by itself, with "
            "xs.statistics(part, space).to_zarr(path), and add them up with xs.merge"
        )


def batches(indices: Sequence[Any], limits: Limits) -> Iterator[Sequence[Any]]:
    """Yield the indices of the sums in each file: consecutive ones, in at most as many as there are regions."""
    size = max(1, -(-len(indices) // limits.regions))
    for start in range(0, len(indices), size):
        yield indices[start : start + size]


# Files that the tasks write and read


def save(path: Path, pauses: Sequence[float], *parts: Sums | HolderSums) -> tuple[Sums | HolderSums, ...]:
    """Write sums to a file, which appears once it is complete, and return them."""
    _check_seen(path)
    if path.exists():  # another run was faster: the same bits
        return parts
    arrays: dict[str, Any] = {}
    meta = []
    for k, part in enumerate(parts):
        shared = isinstance(part, HolderSums)
        own = []
        for code, sums in part.items() if isinstance(part, HolderSums) else [(0, part)]:
            named, attributes = sums.to_arrays()
            arrays.update({f"{k}_{code}_{name}": array for name, array in named.items()})
            own.append({"code": code, "arrays": list(named), "meta": attributes, "digest": sums.digest()})
        meta.append({"shared": shared, "sums": own})
    text = np.frombuffer(
        json.dumps({"schema": SCHEMA, "name": path.stem, "parts": meta}).encode(), dtype=np.uint8
    )

    def write() -> None:
        with replacing(path) as beside, beside.open("wb") as file:
            np.savez(file, meta=text, **arrays)
            file.flush()
            os.fsync(file.fileno())

    retrying(write, pauses=pauses)
    return parts


def load(path: Path, pauses: Sequence[float] = LIMITS.retry_pauses) -> tuple[Sums | HolderSums, ...]:
    """Return the sums in a file. It raises ValueError where the file is damaged."""
    _check_seen(path)
    try:
        return retrying(_read, path, pauses=pauses)
    except Exception as error:
        raise ValueError(
            f"the checkpoint file {path} is damaged ({type(error).__name__}: {error}); delete it and run again: what "
            "it held is then computed again"
        ) from error


# NumPy parses headers by `ast`, which in Python 3.11 fails now and then in several threads.
_PARSING = threading.Lock()


def _read(path: Path) -> tuple[Sums | HolderSums, ...]:
    parts: list[Sums | HolderSums] = []
    with _PARSING, np.load(path, allow_pickle=False) as file:
        held = {name: file[name] for name in file.files}
    meta = json.loads(held["meta"].tobytes())
    if meta["name"] != path.stem:
        raise ValueError(f"it was written as {meta['name']}.npz")
    for k, part in enumerate(meta["parts"]):
        by_code = {}
        for own in part["sums"]:
            code, digest = own["code"], own["digest"]
            arrays = {name: held[f"{k}_{code}_{name}"] for name in own["arrays"]}
            by_code[code] = sums = Sums.from_arrays(arrays, own["meta"])
            if sums.digest() != digest:
                raise ValueError(f"its sums have digest {sums.digest()[:12]} and should have {digest[:12]}")
        parts.append(HolderSums(by_code) if part["shared"] else by_code[0])
    return tuple(parts)


def _check_seen(path: Path) -> None:
    if not (path.parent / DESCRIPTION).exists():
        raise FileNotFoundError(
            f"the worker on {socket.gethostname()} does not see the checkpoint {path.parent}, which the client does; "
            "give checkpoint= a path that all workers see"
        )


@contextmanager
def replacing(path: Path, mode: str = "w") -> Iterator[Path]:
    """Yield a path beside `path` that takes its place at the end; after an error what was there stays.

    In mode "w-" a directory that is there is not replaced.
    """
    tag = f"{uuid.uuid4().hex[:8]}-{path.name}"  # the end of the name stays: formats are told by it
    new, old = path.with_name(f".new-{tag}"), path.with_name(f".old-{tag}")
    try:
        yield new
        if new.is_dir() and mode == "w":
            _replace_directory(new, path, old)
        else:
            new.replace(path)
    finally:
        for _ in range(100):  # after an error threads of the writer may still add to a directory
            if not new.is_dir():
                break
            shutil.rmtree(new, ignore_errors=True)
            time.sleep(0.01)
        new.unlink(missing_ok=True)


def _replace_directory(new: Path, path: Path, old: Path) -> None:
    """Give a directory the name of another, in two steps: between them a second writer may take the name."""
    for left in reversed(range(100)):
        with suppress(FileNotFoundError):  # the second writer has just moved it away
            path.rename(old)
        try:
            new.replace(path)
            break
        except OSError:
            if not path.exists() and old.exists():
                old.rename(path)
            if not left or not path.is_dir():
                raise
        finally:
            shutil.rmtree(old, ignore_errors=True)
