"""Progress of long work: a status line on a terminal or in a notebook, and a log record of each step of a search."""

from __future__ import annotations

import logging
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

LOGGER = logging.getLogger("xspline")
PATIENCE_S = 2.0  # seconds that work may take before a line says how far it is, and then again


def is_main_thread() -> bool:
    """Whether this is the thread of the user; others are those of workers, whose process may have a terminal too."""
    return threading.current_thread() is threading.main_thread()


class StatusLine:
    """What is being done, as a context: from `PATIENCE_S` on a line on stderr says it, where somebody watches.

    Work within work is added to the line, which the outermost wipes at its end.
    """

    def __init__(self, text: str) -> None:
        self.text, self.detail = text, ""

    def __enter__(self) -> Self:
        _SCREEN.push(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _SCREEN.pop(self)


def tell(detail: str) -> None:
    """Say how far the innermost line is, if there is one."""
    _SCREEN.tell(detail)


def counted(total: int, step: int, text: str) -> Iterator[int]:
    """Yield 0, step, 2 step, … below the total, and say after the text how far that is."""
    with StatusLine(text) as line:
        for first in range(0, total, step):
            line.text = f"{text}, {min(first + step, total)} of {total}"
            tell("")
            yield first


class _Screen:
    """The one line of this process, and what it is about, innermost last."""

    def __init__(self) -> None:
        self.lines: list[StatusLine] = []
        self.width, self.start, self.shown_at = 0, 0.0, 0.0

    def push(self, line: StatusLine) -> None:
        watched = sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules)
        if watched and is_main_thread():
            if not self.lines:
                self.start, self.shown_at = time.monotonic(), 0.0
            self.lines.append(line)

    def pop(self, line: StatusLine) -> None:
        if line in self.lines:
            self.lines.remove(line)
            if self.width and not self.lines:
                self.write("")

    def tell(self, detail: str) -> None:
        if not self.lines or not is_main_thread():
            return
        self.lines[-1].detail = detail
        now = time.monotonic()
        if now - max(self.start, self.shown_at) >= PATIENCE_S:
            parts = (f"{line.text}, {line.detail}" if line.detail else line.text for line in self.lines)
            self.write(f"{': '.join(parts)}, {now - self.start:.0f} s")
            self.shown_at = now

    def write(self, line: str) -> None:
        line = line[: shutil.get_terminal_size().columns - 1]  # a longer one could not be overwritten
        print(f"\r{line:{self.width}}", end="" if line else "\r", file=sys.stderr, flush=True)
        self.width = len(line)


_SCREEN = _Screen()


class Progress(StatusLine):
    """Steps of a search, with the strengths λ and the score at each.

    Every step is a record of the logger "xspline" at the level INFO. `names` are the coordinates that are smoothed.
    """

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__("choosing the smoothing")
        self.names, self.steps = names, 0

    def step(self, method: str, rho: NDArray[np.float64], score: float | None) -> None:
        """One more evaluation of a criterion, at λ = exp(ρ); iterations know no score."""
        self.steps += 1
        strengths = ", ".join(f"{n}={x:.3g}" for n, x in zip(self.names, np.exp(rho).tolist(), strict=True))
        told = "" if score is None else f", score {score:.6g}"
        LOGGER.info("%s step %d: lambda %s%s", method, self.steps, strengths, told)
        self.text = f"choosing the smoothing by {method}, step {self.steps}: lambda {strengths}{told}"
        tell("")
