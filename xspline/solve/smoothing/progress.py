"""How a search for the smoothing gets on: a record of each step, and one line on a terminal if it takes long."""

from __future__ import annotations

import logging
import shutil
import sys
import time
from collections.abc import Sequence
from types import TracebackType

import numpy as np

from xspline.solve.direct.cholesky import Array

LOGGER = logging.getLogger("xspline")
PATIENCE_S = 2.0  # seconds that a search may take before a line says how far it is


class Progress:
    """Steps of a search, with the strengths λ and the score at each; a context, which wipes its line at the end.

    Every step is a record of the logger "xspline" at the level INFO. From `PATIENCE_S` on there is also a line on
    stderr where that is a terminal or a notebook, which each step overwrites.

    Parameters
    ----------
    names : sequence of str
        Coordinates that are smoothed.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.steps, self.start, self.width = 0, time.monotonic(), 0

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.width:
            self._write("")

    def step(self, method: str, rho: Array, score: float | None) -> None:
        """One more evaluation of a criterion, at λ = exp(ρ); iterations know no score."""
        self.steps += 1
        strengths = ", ".join(f"{n}={x:.3g}" for n, x in zip(self.names, np.exp(rho).tolist(), strict=True))
        told = "" if score is None else f", score {score:.6g}"
        LOGGER.info("%s step %d: lambda %s%s", method, self.steps, strengths, told)
        watched = sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules)
        if watched and time.monotonic() - self.start > PATIENCE_S:
            self._write(f"choosing the smoothing by {method}, step {self.steps}: lambda {strengths}{told}")

    def _write(self, line: str) -> None:
        line = line[: shutil.get_terminal_size().columns - 1]  # a longer one could not be overwritten
        print(f"\r{line:{self.width}}", end="" if line else "\r", file=sys.stderr, flush=True)
        self.width = len(line)
