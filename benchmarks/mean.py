"""A fit against `.mean()` of the same Zarr store: large chunks, small chunks, two workers against one."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
import zarr
from dask.distributed import Client, LocalCluster

import xspline as xs
from benchmarks import measure, stand_in
from benchmarks.large import processors

GAPS = 0.3


@dataclass(frozen=True)
class Size:
    """Shapes (time, lat, lon) of the stores and their chunks."""

    large: tuple[tuple[int, ...], tuple[int, ...]]
    small: tuple[tuple[int, ...], tuple[int, ...]]
    plain: tuple[tuple[int, ...], tuple[int, ...]]


FULL = Size(
    ((1536, 320, 500), (64, 320, 500)), ((480, 256, 512), (12, 64, 64)), ((1024, 320, 500), (32, 320, 500))
)
QUICK = Size(((32, 64, 100), (8, 64, 100)), ((24, 32, 64), (6, 16, 16)), ((32, 64, 100), (4, 64, 100)))


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=None, help="where the stores go (default: temporary)")


def run(args: argparse.Namespace) -> None:
    size, repeat = (QUICK, 1) if args.quick else (FULL, args.repeat)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        mask, gaps, small, plain = stores(Path(folder), size)
        with workers(2) as client:
            paper, wide = stand_in.paper_bases(), many_bases()
            cases = (
                ("static land mask", mask, paper),
                (f"{GAPS:.0%} random gaps", gaps, paper),
                ("the same, Blosc", blosc(gaps, Path(folder) / "blosc.zarr"), paper),
                ("the same, shards", shards(gaps, Path(folder) / "shards.zarr"), paper),
                ("random gaps, many functions", gaps, wide),
            )
            large_chunks(client, (cases[0], cases[-1]) if args.quick else cases, repeat)
            small_chunks(client, small, repeat)
        scaling(plain, repeat, (1,) if args.quick else (1, 2))
        print(f"\ncompilation: {compilation():.1f} s in a process with an empty cache", flush=True)


def workers(count: int) -> Client:
    """Client of a cluster of 1-thread processes, which ends with it."""
    cluster = LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=":0")
    return _Client(cluster)


class _Client(Client):
    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.cluster.close()


# The stores


def stores(folder: Path, size: Size) -> tuple[Path, Path, Path, Path]:
    """Land over a fifth; the same with 30 % random gaps; small chunks; gaps without a codec."""
    mask = stand_in.store(folder / "mask.zarr", *size.large)
    gaps = with_gaps(mask, folder / "gaps.zarr")
    small = stand_in.store(folder / "small.zarr", *size.small)
    steps, chunk = size.plain[0][0], size.plain[1][0]
    return mask, gaps, small, with_gaps(mask, folder / "plain.zarr", steps, chunk, {"compressors": ()})


def with_gaps(
    source: Path, path: Path, steps: int | None = None, chunk: int | None = None, encoding: dict | None = None
) -> Path:
    """A copy of the first steps of a store in which values are missing at random, written chunk by chunk."""
    data, rng = stand_in.open_store(source)[:steps], np.random.default_rng(5)
    chunk = chunk or data.chunks[0][0]
    empty = data.drop_encoding().chunk(time=chunk).to_dataset()
    encodings = {"sst": {"chunks": (chunk, *data.shape[1:]), **(encoding or {})}}
    empty.to_zarr(path, mode="w", compute=False, consolidated=False, encoding=encodings)
    there = zarr.open_array(path / "sst")
    for start in range(0, data.shape[0], chunk):
        part = data[start : start + chunk].values
        part[rng.random(part.shape, dtype=np.float32) < GAPS] = np.nan
        there[start : start + chunk] = part
    return path


def blosc(source: Path, path: Path) -> Path:
    """A copy of a store with Blosc (LZ4, bytes shuffled) in place of Zstandard."""
    return _copy(source, path, {"compressors": (zarr.codecs.BloscCodec(cname="lz4", shuffle="shuffle"),)})


def shards(source: Path, path: Path) -> Path:
    """A copy of a store whose chunks are shards, of four chunks each."""
    shape = zarr.open_array(source / "sst", mode="r").chunks
    return _copy(source, path, {"shards": shape, "chunks": (max(shape[0] // 4, 1), *shape[1:])})


def _copy(source: Path, path: Path, encoding: dict[str, object]) -> Path:
    data = stand_in.open_store(source).drop_encoding()
    chunks = {"chunks": tuple(own[0] for own in data.chunks)}
    data.to_dataset().to_zarr(path, consolidated=False, encoding={"sst": chunks | encoding})
    return path


def stored_steps(path: Path) -> int:
    """Labels of the first dimension in what is an object of a store."""
    array = zarr.open_array(path / "sst", mode="r")
    return int((array.shards or array.chunks)[0])


def many_bases() -> dict[str, object]:
    """36 x 72 cubic B-splines and 6 functions of time: P = 15,552."""
    return {
        "lat": xs.BSpline(36),
        "lon": xs.BSpline(72),
        "time": xs.Fourier(2, period=stand_in.YEAR) + xs.Polynomial(1),
    }


# Both sides, in turns


def in_turns(
    calls: dict[str, Callable[[], object]], repeat: int, clock: Callable[[], Any] = time.perf_counter
) -> dict[str, Any]:
    """Median seconds of each, by one clock or an array of them; a round before compiles and fills caches."""
    took: dict[str, list[Any]] = {name: [] for name in calls}
    for turn in range(repeat + 1):
        for name, call in calls.items():
            start = clock()
            call()
            if turn:
                took[name].append(clock() - start)
    return {name: np.median(values, axis=0) for name, values in took.items()}


def clocks(client: Client) -> Callable[[], Any]:
    """Wall seconds, and CPU seconds of this process and of all workers."""
    return lambda: np.array([time.perf_counter(), processors(client)])


def large_chunks(client: Client, cases: Sequence[tuple[str, Path, dict[str, object]]], repeat: int) -> None:
    rows, parts = [], []
    for name, path, bases in cases:
        sst = stand_in.open_store(path, {"time": stored_steps(path)})
        space = sst.spline.space(bases)
        took = in_turns(
            {
                "mean": lambda sst=sst: sst.mean().compute(),
                "statistics": lambda sst=sst, space=space: sst.spline.statistics(space),
                "fit": lambda sst=sst, space=space: sst.spline.fit(space, penalty=0.1),
            },
            repeat,
            clocks(client),
        )
        walls, cpus = ([float(took[what][clock]) for what in took] for clock in (0, 1))
        rows.append(
            (name, space.size, *walls, *(t / walls[0] for t in walls[1:]), *(t / cpus[0] for t in cpus[1:]))
        )
        one = client.submit(split, path, space, max(repeat, 3), pure=False).result()
        each = len(client.scheduler_info()["workers"]) / sst.data.npartitions
        for side, work in (("mean", one["mean"]), ("fit", one["kernel"])):
            whole = float(took[side][0]) * each
            parts.append(
                (
                    name,
                    side,
                    *(1e3 * float(t) for t in (one["read"], work, whole - one["read"] - work, whole)),
                )
            )
    chunk = f"{sst.nbytes / sst.data.npartitions / 1e6:.1f} MB"
    title = f"mean (a): {sst.nbytes / 1e9:.2f} GB in {sst.data.npartitions} chunks of {chunk}"
    header = (
        "store",
        "P",
        "mean, s",
        "statistics, s",
        "fit, s",
        "statistics / mean",
        "fit / mean",
        "CPU: statistics / mean",
        "fit / mean",
    )
    measure.table(title, header, rows)
    header = ("store", "what", "read", "kernel", "rest (tasks, merges, solve)", "all")
    measure.table("mean (a): where a chunk's milliseconds go, on a worker by itself", header, parts)


def split(path: Path, space: xs.Space, repeat: int) -> dict[str, float]:
    """Median seconds of one chunk, in the process of a worker: read, mean and sums of what is in memory."""
    import dask

    with dask.config.set(scheduler="synchronous"):
        sst = stand_in.open_store(path, {"time": stored_steps(path)})
        lazy = sst.isel(time=slice(0, sst.chunks[0][0]))
        held = lazy.load(scheduler="synchronous")
        chunked = held.chunk()
        return in_turns(
            {
                "read": lambda: stand_in.open_store(path)[: held.sizes["time"]].data.compute(),
                "mean": lambda: chunked.mean().compute(),
                "kernel": lambda: held.spline.statistics(space),
            },
            repeat,
        )


def small_chunks(client: Client, path: Path, repeat: int) -> None:
    chunked, lazy = stand_in.open_store(path), stand_in.open_store(path, chunks=None)
    space = chunked.spline.space(stand_in.paper_bases())
    took = in_turns(
        {
            "mean of Dask chunks": lambda: chunked.mean().compute(),
            "fit, chunks=None": lambda: lazy.spline.fit(space, penalty=0.1),
            "fit, Dask chunks": lambda: chunked.spline.fit(space, penalty=0.1),
        },
        repeat,
        clocks(client),
    )
    mean = took["mean of Dask chunks"]
    count, each = chunked.data.npartitions, chunked.nbytes / chunked.data.npartitions / 1e6
    title = f"mean (b): {chunked.nbytes / 1e9:.2f} GB in {count:,} chunks of {each:.2f} MB, P = {space.size}"
    measure.table(
        title,
        ("what", "seconds", "over mean", "CPU, s", "CPU over mean"),
        [
            (name, *(float(x) for pair in zip(s, s / mean, strict=True) for x in pair))
            for name, s in took.items()
        ],
    )


# Workers


def wide_bases() -> dict[str, object]:
    """Splines of degree 5: six functions and 21 products for each value."""
    return {
        "lat": xs.BSpline(16, 5),
        "lon": xs.BSpline(8, 5),
        "time": xs.Fourier(3, period=stand_in.YEAR),
    }


def scaling(path: Path, repeat: int, counts: Sequence[int]) -> None:
    """Statistics by each number of workers; peak memory as chunks grow in number."""
    whole, rows = stand_in.open_store(path), []
    space = whole.spline.space(wide_bases())
    for count in counts:
        with workers(count) as client:
            for part in (2, 1):
                sst = whole.isel(time=slice(0, whole.sizes["time"] // part))
                seconds, peak = one_scale(client, sst, space, repeat)
                rows.append((count, sst.data.npartitions, seconds, peak / 1e6))
    title = (
        f"mean (c): {whole.nbytes / 1e9:.2f} GB, {GAPS:.0%} random gaps, no codec, degree 5, P = {space.size}"
    )
    measure.table(title, ("workers", "chunks", "seconds", "peak above idle, MB a worker"), rows)
    if len(counts) > 1:
        print(f"\n{counts[-1]} workers are {rows[1][2] / rows[-1][2]:.2f} times faster than one", flush=True)


def one_scale(client: Client, sst: xr.DataArray, space: xs.Space, repeat: int) -> tuple[float, float]:
    """Median seconds, and the most that a worker held above what it held before."""
    seconds = measure.seconds(lambda: sst.spline.statistics(space), repeat)
    idle = client.run(measure.reset_peak)
    sst.spline.statistics(space)
    return seconds, max(peak - idle[worker] for worker, peak in client.run(measure.peak).items())


# Compilation

COMPILE = """
import time
import numpy as np
import xspline
from benchmarks import stand_in
days, lat = np.arange("2000-01-01", "2000-03-01", dtype="datetime64[D]"), np.linspace(-60, 60, 40)
sst = stand_in.cube(days, lat, np.arange(0.0, 360.0, 6.0), np.zeros((40, 60), dtype=bool))
sst = sst.where(np.random.default_rng(0).random(sst.shape) > 0.3).astype("f4")
space = sst.spline.space(stand_in.paper_bases())
took = []
for _ in range(2):
    start = time.perf_counter()
    sst.spline.statistics(space)
    took.append(time.perf_counter() - start)
print(took[0] - took[1])
"""


def compilation() -> float:
    """Seconds that the first statistics of a process take longer than the second, with nothing cached on disk."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
        done = subprocess.run(
            [sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True, check=True
        )
    return float(done.stdout)
