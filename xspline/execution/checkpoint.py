"""Partial sums in files, so that an interrupted accumulation goes on where it stopped, with the same bits.

One level of the tree of merges is kept: its sums are written by the tasks that make them, some to a file, and a file
takes its name once it is complete. A later run with the same description takes what is there and computes the rest;
all merges above are made again, in the same order. Workers write, as they write the chunks of a Zarr store: sums do
not pass through the client, and those of a client that dies are kept. So the directory has to be one that all see.
"""

from __future__ import annotations

import json
import math
import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from dask._task_spec import Task, TaskRef

from xspline.execution.files import replacing
from xspline.execution.graph import Graph, Grid, add_task, new_name
from xspline.execution.retry import retrying
from xspline.spaces import Space
from xspline.sums import HolderSums, Sums

KEPT = 16
"""Sums of the highest level of the tree that has this many are kept, or those of the blocks."""

FILES = 64
"""Most files of one variable."""

SCHEMA = 1
DESCRIPTION = "description.json"


@dataclass(frozen=True)
class Checkpoint:
    """A directory of partial sums.

    Attributes
    ----------
    directory : absolute.
    """

    directory: Path

    @classmethod
    def at(cls, path: Any) -> Checkpoint:
        """Raise ValueError unless the path is one of a file system."""
        if not isinstance(path, str | os.PathLike) or "://" in str(path):
            raise ValueError(
                f"checkpoint has to be a directory on a path that all workers see, not {path!r}; for example a "
                "folder of a shared file system"
            )
        return cls(Path(path).absolute())

    def open(self, description: dict[str, Any]) -> None:
        """Say what the files are of, or check that those there are of the same.

        Raises
        ------
        ValueError
            They are partial sums of other data, of another space, or cut up otherwise.
        """
        file, here = self.directory / DESCRIPTION, json.loads(json.dumps(description))
        if file.exists():
            _check_same(self.directory, json.loads(file.read_text(encoding="utf-8")), here)
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        with replacing(file) as beside:
            beside.write_text(json.dumps(here, indent=1, ensure_ascii=False), encoding="utf-8")

    def close(self) -> None:
        """Remove what interrupted runs left unfinished."""
        for path in self.directory.glob(".new-*"):
            path.unlink(missing_ok=True)

    def add(self, graph: Graph, found: Grid, number: int) -> Grid:
        """Add the tasks that keep the sums at the keys of `found`, or that take them from their files."""
        out: Grid = {}
        for i, members in enumerate(batches(list(found))):
            path = self.directory / f"{number}-{i:03d}.npz"
            refs = [TaskRef(found[index]) for index in members]
            key = (
                add_task(graph, "load", load, path)
                if path.exists()
                else add_task(graph, "save", save, path, *refs)
            )
            name = new_name("kept")
            for k, index in enumerate(members):
                out[index] = (name, *index)
                graph[out[index]] = Task(out[index], _taken, TaskRef(key), k)
        return out


def _taken(kept: Sequence[Any], k: int) -> Any:
    return kept[k]


def batches(members: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yield the members of each file: consecutive ones, in at most `FILES`."""
    size = max(1, -(-len(members) // FILES))
    for start in range(0, len(members), size):
        yield members[start : start + size]


def level(blocks: Sequence[int], steps: Sequence[Sequence[int]]) -> int:
    """Return the number of the level of a tree whose sums are kept; 0 is that of the blocks."""
    left, counts = tuple(blocks), []
    for step in steps:
        counts.append(math.prod(left))
        left = tuple(-(-n // f) for n, f in zip(left, step, strict=True))
    return max((k for k, n in enumerate(counts) if n >= KEPT), default=0)


# What the tasks run


def save(path: Path, *parts: Sums | HolderSums) -> tuple[Sums | HolderSums, ...]:
    """Write sums to a file, which appears once it is complete, and return them."""
    _check_seen(path)
    arrays: dict[str, Any] = {}
    meta = [_described(part, f"{k}_", arrays) for k, part in enumerate(parts)]
    text = np.frombuffer(json.dumps({"schema": SCHEMA, "parts": meta}).encode(), dtype=np.uint8)
    retrying(_write, path, {"meta": text, **arrays})
    return parts


def _write(path: Path, arrays: dict[str, Any]) -> None:
    with replacing(path) as beside, beside.open("wb") as file:
        np.savez(file, **arrays)
        file.flush()
        os.fsync(file.fileno())


def _described(part: Sums | HolderSums, prefix: str, arrays: dict[str, Any]) -> dict[str, Any]:
    """Add the arrays of one part and return what JSON says of it."""
    shared = isinstance(part, HolderSums)
    found = []
    for code, sums in part.items() if isinstance(part, HolderSums) else [(0, part)]:
        own, meta = sums.to_arrays()
        arrays.update({f"{prefix}{code}_{name}": array for name, array in own.items()})
        found.append({"code": code, "arrays": list(own), "meta": meta, "digest": sums.digest()})
    return {"shared": shared, "sums": found}


def load(path: Path) -> tuple[Sums | HolderSums, ...]:
    """Return the sums in a file.

    Raises
    ------
    ValueError
        The file is damaged.
    """
    _check_seen(path)
    try:
        return retrying(_read, path)
    except Exception as error:
        raise ValueError(
            f"the checkpoint file {path} is damaged ({type(error).__name__}: {error}); delete it and run again: what "
            "it held is then computed again"
        ) from error


def _read(path: Path) -> tuple[Sums | HolderSums, ...]:
    with np.load(path, allow_pickle=False) as file:
        meta = json.loads(file["meta"].tobytes())
        return tuple(_restored(part, f"{k}_", file) for k, part in enumerate(meta["parts"]))


def _restored(part: dict[str, Any], prefix: str, file: Any) -> Sums | HolderSums:
    found = {}
    for one in part["sums"]:
        arrays = {name: file[f"{prefix}{one['code']}_{name}"] for name in one["arrays"]}
        found[one["code"]] = sums = Sums.from_arrays(arrays, one["meta"])
        if sums.digest() != one["digest"]:
            raise ValueError(
                f"its sums have digest {sums.digest()[:12]} and should have {one['digest'][:12]}"
            )
    return HolderSums(found) if part["shared"] else found[0]


def _check_seen(path: Path) -> None:
    if not (path.parent / DESCRIPTION).exists():
        raise FileNotFoundError(
            f"the worker on {socket.gethostname()} does not see the checkpoint {path.parent}, which the client does; "
            "give checkpoint= a path that all workers see"
        )


def _check_same(directory: Path, there: dict[str, Any], here: dict[str, Any]) -> None:
    advice = "Give another directory, or delete this one to start again"
    theirs, mine = (Space.from_json(d["space"]) for d in (there, here))
    if theirs != mine:
        raise ValueError(
            f"the checkpoint {directory} is of another space: {theirs.difference(mine)}. {advice}"
        )
    names = [name for name in {**there, **here} if name != "space"]
    if differ := next((name for name in names if there.get(name) != here.get(name)), None):
        raise ValueError(
            f"the checkpoint {directory} is of other data: {differ} is {there.get(differ)} there and "
            f"{here.get(differ)} here. {advice}"
        )
