"""Partial sums in files, so that an interrupted accumulation goes on where it stopped, with the same bits.

One level of the tree of merges is kept: its sums are written by the tasks that compute them, some to a file, and a
file takes its name once it is complete. A later run with the same description takes what is there and computes the
rest; all merges above are computed again, in the same order. Workers write, as they write the chunks of a Zarr store:
sums do not pass through the client, and those of a client that dies are kept. So the directory has to be one that all
see. Several runs may share it: they write the same bits, and none removes what another is writing.
"""

from __future__ import annotations

import hashlib
import json
import math
import operator
import os
import shutil
import socket
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask.base
import numpy as np

from xspline.execution.cuts import Cuts, cuts_of, steps_of
from xspline.execution.dask_api import BlockKeys, Graph, Task, TaskRef, add_task, new_name
from xspline.execution.device.gpu import to_host
from xspline.execution.limits import LIMITS, Limits
from xspline.execution.source import Source, cut, in_memory, is_dask, is_reader, retrying
from xspline.spaces import Space
from xspline.sums import HolderSums, Sums

SCHEMA = 1
DESCRIPTION = "description.json"


@dataclass(frozen=True)
class Checkpoint:
    """A directory of partial sums.

    Attributes
    ----------
    directory : absolute.
    limits : how many files there are, and when an unfinished one is given up.
    """

    directory: Path
    limits: Limits = LIMITS

    @classmethod
    def at(cls, path: Any, limits: Limits = LIMITS) -> Checkpoint:
        """Raise ValueError unless the path is one of a file system."""
        if not isinstance(path, str | os.PathLike) or "://" in str(path):
            raise ValueError(
                f"checkpoint has to be a directory on a path that all workers see, not {path!r}; for example a "
                "folder of a shared file system"
            )
        return cls(Path(path).absolute(), limits)

    def open(self, description: dict[str, Any]) -> None:
        """Say what the files are of, or check that those there are of the same.

        Raises
        ------
        ValueError
            They are partial sums of other data, of another space, or cut up otherwise.
        """
        file, here = self.directory / DESCRIPTION, json.loads(json.dumps(description))
        if file.exists():
            there = json.loads(file.read_text(encoding="utf-8"))
            advice = "Give another directory, or delete this one to start again"
            theirs, ours = (Space.from_json(d["space"]) for d in (there, here))
            if theirs != ours:
                raise ValueError(
                    f"the checkpoint {self.directory} is of another space: {theirs.difference(ours)}. {advice}"
                )
            names = [name for name in {**there, **here} if name != "space"]
            if differ := next((name for name in names if there.get(name) != here.get(name)), None):
                raise ValueError(
                    f"the checkpoint {self.directory} is of other data: {differ} is {there.get(differ)} there and "
                    f"{here.get(differ)} here. {advice}"
                )
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        with replacing(file) as beside:
            beside.write_text(json.dumps(here, indent=1, ensure_ascii=False), encoding="utf-8")

    def close(self) -> None:
        """Remove unfinished files that nobody has written to for so long that their run must have ended."""
        oldest = time.time() - self.limits.abandoned_seconds
        for path in self.directory.glob(".new-*"):
            try:
                if path.stat().st_mtime < oldest:
                    path.unlink()
            except FileNotFoundError:  # finished, or removed by another run
                continue

    def add(self, graph: Graph, keys: BlockKeys, number: int) -> BlockKeys:
        """Add the tasks that keep the sums at `keys`, of the source of this number, or take them from their files."""
        out: BlockKeys = {}
        for i, indices in enumerate(batches(list(keys), self.limits)):
            path = self.directory / f"{number}-{i:03d}.npz"
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


def batches(indices: Sequence[Any], limits: Limits = LIMITS) -> Iterator[Sequence[Any]]:
    """Yield the indices of the sums in each file: consecutive ones, in at most `checkpoint_files`."""
    size = max(1, -(-len(indices) // limits.checkpoint_files))
    for start in range(0, len(indices), size):
        yield indices[start : start + size]


def kept_level(blocks: Sequence[int], steps: Sequence[Sequence[int]], limits: Limits = LIMITS) -> int:
    """Return the number of the level of a tree whose sums are kept; 0 is that of the blocks."""
    left, counts = tuple(blocks), []
    for step in steps:
        counts.append(math.prod(left))
        left = tuple(-(-n // f) for n, f in zip(left, step, strict=True))
    return max((k for k, n in enumerate(counts) if n >= limits.checkpoint_sums), default=0)


# Files that the tasks write and read


def save(path: Path, pauses: Sequence[float], *parts: Sums | HolderSums) -> tuple[Sums | HolderSums, ...]:
    """Write sums to a file, which appears once it is complete, and return them."""
    _check_seen(path)
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
    text = np.frombuffer(json.dumps({"schema": SCHEMA, "parts": meta}).encode(), dtype=np.uint8)

    def write() -> None:
        with replacing(path) as beside, beside.open("wb") as file:
            np.savez(file, meta=text, **arrays)
            file.flush()
            os.fsync(file.fileno())

    retrying(write, pauses=pauses)
    return parts


def load(path: Path, pauses: Sequence[float] = LIMITS.retry_pauses) -> tuple[Sums | HolderSums, ...]:
    """Return the sums in a file.

    Raises
    ------
    ValueError
        The file is damaged.
    """
    _check_seen(path)
    try:
        return retrying(_read, path, pauses=pauses)
    except Exception as error:
        raise ValueError(
            f"the checkpoint file {path} is damaged ({type(error).__name__}: {error}); delete it and run again: what "
            "it held is then computed again"
        ) from error


def _read(path: Path) -> tuple[Sums | HolderSums, ...]:
    parts: list[Sums | HolderSums] = []
    with np.load(path, allow_pickle=False) as file:
        for k, part in enumerate(json.loads(file["meta"].tobytes())["parts"]):
            by_code = {}
            for own in part["sums"]:
                code, digest = own["code"], own["digest"]
                arrays = {name: file[f"{k}_{code}_{name}"] for name in own["arrays"]}
                by_code[code] = sums = Sums.from_arrays(arrays, own["meta"])
                if sums.digest() != digest:
                    raise ValueError(
                        f"its sums have digest {sums.digest()[:12]} and should have {digest[:12]}"
                    )
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


# What the sums are of: enough to tell other data, another space and other blocks, in words


def description_of(
    sources: Sequence[Source], space: Space, device: str | None, limits: Limits = LIMITS
) -> dict[str, Any]:
    """Return the version, the space and what the prepared, lazy `sources` are, as plain data with readable values.

    Of the values three blocks are read: the first, one in the middle, the last.
    """
    from xspline import __version__

    out: dict[str, Any] = {"version": __version__, "space": space.to_json(), "device": device}
    for number, source in enumerate(sources):
        cuts = cuts_of(source, limits)
        coordinates = zip(space.names, source.coordinates, strict=True)
        facts = {
            "shape": " × ".join(map(str, source.shape)),
            "type": str(source.dtype),
            "blocks": f"{' × '.join(map(str, cuts.largest))} ({_digest(str(cuts.edges).encode())})",
            "tree": str(steps_of(source, space, cuts, limits)),
            **{f"coordinate {name}": _summary(array) for name, array in coordinates},
            **{f"weight along {axes}": _summary(array) for axes, array in source.weights},
        }
        if source.holders is not None:
            facts["holders"] = f"{source.holders.count}, {_summary(source.holders.codes)}"
        facts["values"] = ", ".join(_samples(source, limits))
        out.update({f"the {what} of {source.label} ({number})": value for what, value in facts.items()})
    return out


def _summary(array: Any) -> str:
    """Return number, range and digest of what is in memory; of anything else its shape."""
    if not in_memory(array):
        return f"{' × '.join(map(str, array.shape))} values"
    array = np.asarray(to_host(array))
    ends = f" from {np.min(array):g} to {np.max(array):g}" if array.size else ""
    return f"{array.size} values{ends} ({_digest(array.tobytes())})"


def _samples(source: Source, limits: Limits) -> list[str]:
    """Return the digests of three blocks, or of three chunks of a store."""
    values, shape = source.values, source.shape
    if 0 in shape or in_memory(values):
        return []
    chunks = [max(1, n) for n in values.chunks or (1,) * len(shape)] if is_reader(values) else ()
    blocks = Cuts.in_steps(shape, chunks) if chunks else Cuts.of_chunks(values.chunks)
    boxes = [
        blocks.box(blocks.containing(place))
        for place in zip(*([0, n // 2, n - 1] for n in shape), strict=True)
    ]
    if is_dask(values):
        samples = dask.base.compute(*(values[box] for box in boxes))
    else:
        axes = tuple(range(len(shape)))
        samples = tuple(cut(values, axes, box, limits.retry_pauses) for box in boxes)
    return [_digest(np.ascontiguousarray(to_host(array)).tobytes()) for array in samples]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
