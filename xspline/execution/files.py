"""Files that are there once all of them is written, and not before."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a path beside `path` that takes its place at the end; after an error what was there stays."""
    beside = _sibling(path, "new")
    try:
        yield beside
        _swap(beside, path)
    finally:
        _remove(beside)


def _sibling(path: Path, what: str) -> Path:
    # The end of the name stays: formats are told by it.
    return path.with_name(f".{what}-{uuid.uuid4().hex[:8]}-{path.name}")


def _swap(new: Path, path: Path) -> None:
    if not path.is_dir():
        new.replace(path)
        return
    old = _sibling(path, "old")  # a directory cannot be replaced in one step
    path.rename(old)
    try:
        new.replace(path)
    except OSError:
        old.rename(path)
        raise
    shutil.rmtree(old)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
