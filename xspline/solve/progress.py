"""Progress of long work: a status line on a terminal or in a notebook, and a log record of each step of a search."""

from __future__ import annotations

import logging
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

LOGGER = logging.getLogger("xspline")
PATIENCE_S = 2.0  # seconds that work may take before a line says how far it is, and then again

_work: list[list[str]] = []  # what is being done, outermost first, and how far it is
_times = {"start": 0.0, "shown": 0.0}  # of the outermost, and of the line


def is_main_thread() -> bool:
    """Whether this is the thread of the user; others are those of workers, whose process may have a terminal too."""
    return threading.current_thread() is threading.main_thread()


@contextmanager
def told(text: str) -> Iterator[None]:
    """Say what is being done: from `PATIENCE_S` on a line on stderr says it, where somebody watches.

    Work within work is added to the line, which the outermost wipes at its end.
    """
    watched = sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules)
    if not (watched and is_main_thread()):
        yield
        return
    if not _work:
        _times.update(start=time.monotonic(), shown=0.0)
    _work.append([text])
    depth = len(_work)
    try:
        yield
    finally:
        del _work[depth - 1 :]  # with what a generator inside has not ended
        if not _work and _times["shown"]:
            _write("")


def tell(detail: str) -> None:
    """Say how far the innermost work is, if there is any."""
    if not _work or not is_main_thread():
        return
    _work[-1][1:] = [detail]
    now = time.monotonic()
    if now - max(_times.values()) >= PATIENCE_S:
        _write(f"{': '.join(map(', '.join, _work))}, {now - _times['start']:.0f} s")
        _times["shown"] = now


def counted(total: int, step: int, text: str) -> Iterator[int]:
    """Yield 0, step, 2 step, … below the total, and say after the text how far that is."""
    with told(text):
        for first in range(0, total, step):
            tell(f"{min(first + step, total)} of {total}")
            yield first


def _write(line: str) -> None:
    width = shutil.get_terminal_size().columns - 1  # a longer one could not be overwritten
    print(f"\r{line[:width]:{width}}", end="" if line else "\r", file=sys.stderr, flush=True)
