"""What a scheduler has to do for up to 10⁶ chunks on 1,000 workers that are not there: tasks, seconds, bytes moved.

The store is empty: chunks of 41 MB that nobody reads. Its graph is built as for a cluster and given to Dask's own
scheduler, whose workers are entries in its tables: it orders the tasks, assigns them, and hears that each is done, with
the bytes of its result. Tasks that wait on a worker go to idle ones, as by stealing. What is timed is all that it does;
messages over a network come on top. A task that runs on a worker without its inputs moves them. P = 2,093 and gaps of
any shape, so that sums are largest.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import dask
import numpy as np
import xarray as xr
import zarr
from dask.order import order
from dask.sizeof import sizeof
from distributed import Scheduler
from distributed.core import Status
from distributed.scheduler import ClientState, WorkerState

import xspline as xs
from benchmarks import measure, stand_in

CHUNK, ACROSS = (16, 640, 1000), (4, 5)  # 41 MB, twenty of them at each step of time
THREADS = 2
HEADER = (
    "chunks",
    "TB",
    "what",
    "tasks",
    "tasks that read",
    "depth",
    "build, s",
    "client, MB",
    "scheduler, s",
    "ms a task",
    "moved, MB",
    "most into one task, MB",
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--chunks", type=int, nargs="*", default=None, help="default: 10,000 100,000 1,000,000"
    )
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--mean", type=int, default=10_000, help="most chunks of which the mean is a row too")


def empty_store(path: Path, chunks: int) -> Path:
    """A store of which nothing but the labels is written."""
    shape = (chunks // math.prod(ACROSS) * CHUNK[0], *(n * m for n, m in zip(CHUNK[1:], ACROSS, strict=True)))
    labels = {"time": np.arange(shape[0]), "lat": np.linspace(-60, 60, shape[1])}
    labels["lon"] = np.linspace(0, 359, shape[2])
    group = zarr.create_group(path)
    group.create_array(
        "sst", shape=shape, chunks=CHUNK, dtype="f4", fill_value=float("nan"), dimension_names=tuple(labels)
    )
    for name, values in labels.items():
        array = group.create_array(name, shape=values.shape, dtype=values.dtype, dimension_names=(name,))
        array[:] = values
    group["time"].attrs["units"] = "hours since 1982-01-01"
    return path


class Simulated(Scheduler):
    """A scheduler whose messages go nowhere."""

    def send_all(self, client_msgs: object, worker_msgs: object) -> None: ...

    def add_entries(self, workers: int) -> None:
        """Workers that are known to the scheduler alone."""
        self.clients["client"] = ClientState("client")
        self.plugins.clear()  # stealing talks to workers
        for i in range(workers):
            address = f"tcp://10.0.{i // 250}.{i % 250}:1"
            worker = WorkerState(
                address=address,
                status=Status.running,
                pid=i,
                name=i,
                nthreads=THREADS,
                memory_limit=8 * 2**30,
                local_directory="",
                nanny=None,
                server_id=address,
                scheduler=self,
            )
            self.workers[address], self.aliases[i] = worker, address
            self.running.add(worker)
            self.total_nthreads += THREADS
            self.check_idle_saturated(worker)

    def steal(self, busy: list[WorkerState]) -> None:
        """Give tasks that wait to workers without any."""
        idle = [worker for worker in self.workers.values() if not worker.processing]
        for worker in busy:
            for task in list(worker.processing)[THREADS:]:
                if not idle:
                    return
                self._exit_processing_common(task)
                self._add_to_processing(task, idle.pop(), "steal")

    def simulate(self, graph: dict, keys: list, nbytes: dict) -> tuple[float, float, float]:
        """CPU seconds of the scheduler, bytes that move in all, and the most into one task."""
        start, moved, largest = time.process_time(), 0.0, 0.0
        self._create_taskstate_from_graph(
            start=time.time(),
            dsk=graph,
            keys=set(keys),
            ordered=order(graph),
            client="client",
            annotations_by_type={},
            global_annotations=None,
            stimulus_id="graph",
            submitting_task=None,
            span_metadata={"collections": []},
        )
        took = time.process_time() - start
        while busy := [w for w in self.workers.values() if w.processing]:
            start = time.process_time()
            self.steal(busy)
            took += time.process_time() - start
            for worker in [w for w in self.workers.values() if w.processing]:
                task = next(iter(worker.processing))
                missing = [d for d in task.dependencies if worker not in (d.who_has or ())]
                given = sum(d.nbytes for d in missing)
                moved, largest = moved + given, max(largest, given)
                start = time.process_time()
                for dependency in missing:
                    self.add_replica(dependency, worker)
                self._transitions(
                    *self.stimulus_task_finished(
                        key=task.key,
                        worker=worker.address,
                        stimulus_id="done",
                        run_id=task.run_id,
                        metadata={},
                        nbytes=nbytes[task.key],
                        type=b"",
                        typename="",
                        startstops=[],
                    ),
                    "done",
                )
                self.stimulus_queue_slots_maybe_opened(stimulus_id="done")
                took += time.process_time() - start
        return took, moved, largest


def depth(graph: dict) -> int:
    """The longest way through a graph, in tasks."""
    known: dict = {}
    for key in sorted(graph, key=order(graph).__getitem__):
        known[key] = 1 + max((known[d] for d in graph[key].dependencies), default=0)
    return max(known.values())


def row(
    sst: xr.DataArray, chunks: int, what: str, build: Callable[[], object], plan: object, workers: int
) -> tuple:
    before, start = measure.reset_peak(), time.process_time()
    (best,) = dask.optimize(build())
    graph, keys = dict(best.__dask_graph__()), list(dask.core.flatten(best.__dask_keys__()))
    took_to_build, growth = time.process_time() - start, (measure.peak() - before) / measure.MB
    each = 16 if plan is None else plan.rows[-1].moved_bytes / max(1, plan.tasks)
    nbytes = {key: int(each) if node.dependencies else sizeof(node) for key, node in graph.items()}
    reading = chunks if plan is None else sum("region" in str(key) or "block" in str(key) for key in graph)

    async def simulated() -> tuple[float, float, float]:
        scheduler = Simulated(dashboard=False)
        scheduler.add_entries(workers)
        return scheduler.simulate(graph, keys, nbytes)

    took, moved, largest = asyncio.run(simulated())
    facts = (chunks, sst.nbytes / 1e12, what, len(graph), reading, depth(graph), took_to_build, growth)
    return (*facts, took, 1e3 * took / len(graph), moved / measure.MB, largest / measure.MB)


def rows(folder: Path, sizes: list[int], args: argparse.Namespace) -> Iterator[tuple]:
    for chunks in sizes:
        path = empty_store(folder / f"{chunks}.zarr", chunks)
        for what, how in (("statistics, chunks=None", None), ("statistics, Dask chunks", {})):
            sst = stand_in.open_store(path, how)
            space = sst.spline.space(lat=13, lon=23, time=7)

            def build(sst: xr.DataArray = sst, space: xs.Space = space) -> object:
                return sst.spline.statistics(space, compute=False).parts[0].sums["sst"]

            yield row(sst, chunks, what, build, sst.spline.plan(space), args.workers)
        if chunks <= args.mean:
            yield row(sst, chunks, "mean, Dask chunks", sst.mean, None, args.workers)


def run(args: argparse.Namespace) -> None:
    logging.getLogger("distributed").setLevel(logging.ERROR)
    sizes = args.chunks or ([100] if args.quick else [10**4, 10**5, 10**6])
    with tempfile.TemporaryDirectory() as folder:
        title = f"simulated: chunks of 41 MB, P = 2,093, {args.workers:,} workers of {THREADS} threads"
        measure.table(title, HEADER, rows(Path(folder), sizes, args))
