"""Tasks, seconds to plan and build, memory of the client and cost of the scheduler, from 10² to 10⁶ chunks."""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import dask
import numpy as np
import xarray as xr
import zarr
from dask.distributed import Client, LocalCluster, get_task_stream

from benchmarks import measure, stand_in

CHUNK = (4, 16, 32)  # 8 kB, 100 of them a time step: tasks with next to nothing to do
HEADER = (
    "chunks",
    "what",
    "tasks",
    "tasks a chunk",
    "plan, s",
    "build, s",
    "input alone, s",
    "client, MB",
    "compute, s",
    "first task, s",
    "ms a task",
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--chunks", type=int, nargs="*", default=None, help="numbers of chunks, in hundreds (10² … 10⁶)"
    )
    parser.add_argument("--compute", type=int, default=10_000, help="most chunks that are also computed")


def empty_store(path: Path, chunks: int) -> Path:
    """A store of which nothing but the labels is written: every chunk reads as missing."""
    shape = (chunks // 100 * CHUNK[0], 160, 320)
    labels = {
        "time": (np.arange(shape[0]), {"units": "days since 1982-01-01"}),
        "lat": (np.linspace(-60, 60, 160), {}),
        "lon": (np.linspace(0, 359, 320), {}),
    }
    group = zarr.create_group(path)
    group.create_array(
        "sst", shape=shape, chunks=CHUNK, dtype="f4", fill_value=float("nan"), dimension_names=tuple(labels)
    )
    for name, (values, attrs) in labels.items():
        array = group.create_array(name, shape=values.shape, dtype=values.dtype, dimension_names=(name,))
        array[:] = values
        array.attrs.update(attrs)
    return path


def regions(path: Path) -> tuple[Callable[[], object], Callable[[], object], Callable[[], object]]:
    return _ours(stand_in.open_store(path, None))


def blocks(path: Path) -> tuple[Callable[[], object], Callable[[], object], Callable[[], object]]:
    return _ours(stand_in.open_store(path))


def mean(path: Path) -> tuple[Callable[[], object], Callable[[], object], Callable[[], object]]:
    sst = stand_in.open_store(path)
    return lambda: None, sst.mean, lambda: sst.mean().compute()


def _ours(sst: xr.DataArray) -> tuple[Callable[[], object], Callable[[], object], Callable[[], object]]:
    """What plans, what builds and what computes."""
    space = sst.spline.space(lat=13, lon=23, time=7)

    def build() -> object:
        return sst.spline.statistics(space, compute=False).parts[0].sums["sst"]

    return lambda: sst.spline.plan(space), build, lambda: sst.spline.statistics(space)


FORMS = {"statistics, chunks=None": regions, "statistics, Dask chunks": blocks, "mean, Dask chunks": mean}


def once(call: Callable[[], object]) -> tuple[float, object]:
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def row(path: Path, name: str, chunks: int, compute: bool) -> tuple[object, ...]:
    """One row, in a process of its own: its memory is that of one graph."""
    small = path.with_name("small.zarr")
    if not small.exists():
        empty_store(small, 100)
    plan, build, run = FORMS[name](small)
    plan(), dask.optimize(build())  # imports
    plan, build, run = FORMS[name](path)
    planning, _ = once(plan)
    before = measure.reset_peak()
    building, graph = once(lambda: dask.optimize(build())[0])  # as it goes to the scheduler
    growth = (measure.peak() - before) / measure.MB
    tasks = measure.tasks(graph)["task"]
    del graph
    theirs = 0.0 if FORMS[name] is regions else once(lambda: dask.optimize(stand_in.open_store(path)))[0]
    facts = (chunks, name, tasks, tasks / chunks, planning, building, theirs, growth)
    if not compute:
        return (*facts, "", "", "")
    took, first = computed(run, small, name)
    return (*facts, took, first, 1e3 * took / tasks)


@contextmanager
def two_workers() -> Iterator[Client]:
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


def computed(run: Callable[[], object], small: Path, name: str) -> tuple[float, float]:
    """Seconds until all is done, and until the first task starts, on workers that have compiled."""
    with two_workers() as client:
        FORMS[name](small)[2]()
        start = time.time()
        with get_task_stream(client) as stream:
            run()
        took = time.time() - start
    starts = [part["start"] for task in stream.data for part in task["startstops"]]
    return took, max(0.0, min(starts) - start)


def run(args: argparse.Namespace) -> None:
    sizes = args.chunks or ([100] if args.quick else [10**k for k in range(2, 7)])
    context = multiprocessing.get_context("spawn")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for chunks in sizes:
            path = empty_store(Path(folder) / f"{chunks}.zarr", chunks)
            for name in FORMS:
                with ProcessPoolExecutor(1, mp_context=context) as one:
                    # In a quick run only the first form is computed: each starts two workers.
                    do = chunks <= args.compute and not (args.quick and rows)
                    rows.append(one.submit(row, path, name, chunks, do).result())
    measure.table("graph: chunks of 8 kB without data, P = 2093, two 1-thread workers", HEADER, rows)
