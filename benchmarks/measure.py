"""Clocks, memory and a table: what every benchmark needs."""

from __future__ import annotations

import gc
import os
import platform
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import dask
from dask._task_spec import Alias, DataNode, GraphNode

MB = 1e6


def seconds(call: Callable[[], object], repeat: int = 5, warm: bool = True) -> float:
    """Median wall seconds of `call`; one call before them compiles and fills caches."""
    if warm:
        call()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def allocated(call: Callable[[], object]) -> int:
    """Peak bytes that `call` allocates on top of what is there (NumPy reports its buffers to tracemalloc)."""
    gc.collect()
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def status(field: str) -> int:
    """A line of /proc/self/status in bytes: VmRSS (now) or VmHWM (peak)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise LookupError(f"/proc/self/status has no line {field}")


def reset_peak() -> int:
    """Start a new peak (VmHWM) for this process; returns the resident bytes now."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    return status("VmRSS")


def peak() -> int:
    return status("VmHWM")


def tasks(collection: object) -> dict[str, int]:
    """Nodes of the optimised graph by kind: work ("task"), names for other nodes ("alias"), data ("data")."""
    (optimised,) = dask.optimize(collection)
    graph = dict(optimised.__dask_graph__())
    counts = {"task": 0, "alias": 0, "data": 0}
    for node in graph.values():
        if isinstance(node, Alias):
            counts["alias"] += 1
        elif isinstance(node, DataNode) or not isinstance(node, GraphNode):
            counts["data"] += 1
        else:
            counts["task"] += 1
    return counts


def machine() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    model = next(
        (line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine()
    )
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}"


def text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under a header, as a Markdown table that can be pasted into RESULTS.md."""
    cells = [list(header), *([text(value) for value in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = ["| " + " | ".join(f"{c:<{w}}" for c, w in zip(row, widths, strict=True)) + " |" for row in cells]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    print(f"\n{title}\n{machine()}\n", *lines, sep="\n", flush=True)
