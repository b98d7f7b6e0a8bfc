"""Peak memory of a worker process, measured (Linux)."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

from distributed import Client

RESET = Path("/proc/self/clear_refs")


def reset_peak() -> None:
    gc.collect()
    RESET.write_text("5")


def resident() -> tuple[int, int]:
    """Peak since the reset, and now, in bytes."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return tuple(1024 * int(lines[name].split()[0]) for name in ("VmHWM", "VmRSS"))  # type: ignore[return-value]


def peak_of(worker: Client, run: Callable[[], Any]) -> int:
    """Bytes that the one worker of a cluster needs for `run` above what it holds before."""
    worker.run(reset_peak)
    ((_, idle),) = worker.run(resident).values()
    run()
    ((peak, _),) = worker.run(resident).values()
    return peak - idle
