"""A bare fit of 10⁸ values in a store, by workers that cannot hold them: seconds over reading twice, and memory.

Two Zarr stores, over two coordinates and over three, are written block by block: waves of all lengths with noise, a
tenth of the values missing at random and more of them in clouds. Two worker processes of 2 GB each read them in chunks,
fit without any option, and write the prediction of so many places (all of them: `--places 1e8`). The reference is the
mean of the store, computed twice by the same workers. Another chunking of the same store must give the same field: the
largest difference of their predictions in a box in the middle, over their standard error. What fails is a row that says
so.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import dask.array
import numpy as np
import xarray as xr
from dask.distributed import Client, KilledWorker, LocalCluster

import xspline as xs
from benchmarks import measure

NOISE, MISSING, CLOUDED = 0.3, 0.1, 0.5
WAVES = 12  # from ten labels to the whole extent
COMPARED, ACROSS = 1000, 60  # places, and labels of the box in the middle that they are in
QUICK_SECONDS = 1.0
HEADER = (
    "what",
    "seconds",
    "over reading twice",
    "CPU s of all",
    "over reading twice",
    "peak of a worker, MB",
    "peak of this process, MB",
)
Call = Callable[[], object]


@dataclass(frozen=True)
class Size:
    """A store, with its chunks and others that it is read in; coordinates are those of a map in time, or of a map."""

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    others: tuple[int, ...]

    @property
    def coords(self) -> dict[str, np.ndarray]:
        space = {"lat": np.linspace(-60, 60, self.shape[-2]), "lon": np.linspace(0, 300, self.shape[-1])}
        if len(self.shape) == 2:
            return space
        days = np.datetime64("2001-01-01") + np.arange(self.shape[0])
        return {"time": days.astype("datetime64[ns]"), **space}

    @property
    def name(self) -> str:
        return " × ".join(f"{n:,}" for n in self.shape)


FULL = (
    Size((25_000, 4_000), (1_000, 1_000), (5_000, 1_000)),
    Size((2_500, 200, 200), (100, 100, 100), (500, 100, 100)),
)
QUICK = (Size((60, 40), (20, 20), (40, 20)), Size((20, 12, 10), (5, 6, 10), (20, 6, 10)))


def block(size: Size, start: int, stop: int) -> np.ndarray:
    """Values of some labels of the first dimension, float32."""
    rng, shape = np.random.default_rng(start), (stop - start, *size.shape[1:])
    index = np.meshgrid(np.arange(start, stop), *map(np.arange, shape[1:]), indexing="ij", sparse=True)
    of_waves = np.random.default_rng(1)
    values = NOISE * rng.standard_normal(shape, dtype=np.float32)
    for length in np.geomspace(10, max(size.shape), WAVES):
        ways = of_waves.standard_normal(len(shape))
        ways *= 2 * np.pi / (length * np.linalg.norm(ways))
        phase = sum(way * i for way, i in zip(ways, index, strict=True)) + of_waves.uniform(0, 2 * np.pi)
        values += (length / max(size.shape)) ** 0.5 * np.sin(phase).astype(np.float32)
    clouds = math.prod(1 + np.sin(i / (7.0 + 4 * k)) for k, i in enumerate(index))
    values[clouds > (1 + CLOUDED) ** len(shape)] = np.nan
    values[rng.random(shape, dtype=np.float32) < MISSING] = np.nan
    return values


def store(path: Path, size: Size) -> Path:
    """A Zarr store, written one row of chunks at a time."""
    dims = tuple(size.coords)
    empty = dask.array.zeros(size.shape, chunks=size.chunks, dtype="float32")
    labelled = xr.DataArray(empty, size.coords, dims, "u", {"units": "K"})
    labelled.to_dataset().to_zarr(path, mode="w", compute=False, consolidated=False)
    for start in range(0, size.shape[0], size.chunks[0]):
        rows = slice(start, min(start + size.chunks[0], size.shape[0]))
        part = xr.Dataset({"u": (dims, block(size, rows.start, rows.stop))})
        part.to_zarr(path, region={dims[0]: rows}, consolidated=False)
    return path


def opened(path: Path, chunks: tuple[int, ...], dims: tuple[str, ...]) -> xr.DataArray:
    return xr.open_zarr(path, chunks=dict(zip(dims, chunks, strict=True)), consolidated=False).u


@dataclass(frozen=True)
class Costs:
    """Wall seconds, CPU seconds of all processes, and peak bytes of the worker that held most and of this process."""

    seconds: float
    cpu: float
    worker: float
    here: float

    @staticmethod
    def of(client: Client, call: Call) -> Costs:
        client.run(measure.reset_peak)
        measure.reset_peak()
        before = processors(client)
        took = measure.seconds(call, repeat=1, warm=False)
        peaks = client.run(measure.peak)
        return Costs(took, processors(client) - before, max(peaks.values()), measure.peak())


def processors(client: Client) -> float:
    """CPU seconds of the workers and of this process so far."""
    return sum(client.run(time.process_time).values()) + time.process_time()


def attempted(what: str, client: Client, call: Call, reading: Costs) -> tuple[object, ...]:
    """As `HEADER` says; of a call that fails, why."""
    try:
        own = Costs.of(client, call)
    except (ValueError, NotImplementedError, MemoryError, KilledWorker, xs.ConvergenceError) as failure:
        why = f"{type(failure).__name__}: {str(failure).splitlines()[0][:60]}"
        return (what, why, *[""] * (len(HEADER) - 2))
    return cells(what, own, reading)


def cells(what: str, own: Costs, reading: Costs) -> tuple[object, ...]:
    """As `HEADER` says."""
    times = (own.seconds, own.seconds / reading.seconds, own.cpu, own.cpu / reading.cpu)
    return (what, *times, own.worker / measure.MB, own.here / measure.MB)


def box(data: xr.DataArray, most: float) -> xr.DataArray:
    """The first labels of the first dimension, with so many places at most."""
    first = str(data.dims[0])
    labels = int(most // (data.size // data.sizes[first]))
    return data.isel({first: slice(0, max(labels, 1))})


def rows(client: Client, size: Size, folder: Path, args: argparse.Namespace) -> Iterator[tuple[object, ...]]:
    path, dims = store(folder / "u.zarr", size), tuple(size.coords)
    data, other = (opened(path, chunks, dims) for chunks in (size.chunks, size.others))
    options = {"seconds": QUICK_SECONDS} if args.quick else {}
    data.mean().compute()  # imports belong to no row
    reading = Costs.of(client, lambda: (data.mean().compute(), data.mean().compute()))
    yield cells("reading twice", reading, reading)
    fields: list[xs.Field] = []
    yield attempted("fit()", client, lambda: fields.append(data.spline.fit(**options)), reading)
    if not fields:
        return
    target, written = box(data, args.places), folder / "predicted.zarr"

    def write() -> None:
        values = fields[0].predict(target).astype("float32").to_dataset(name="u")
        values.to_zarr(written, consolidated=False)

    yield attempted(f"predict().to_zarr(), {target.size:,} places", client, write, reading)
    yield attempted(
        "fit(), other chunks", client, lambda: fields.append(other.spline.fit(**options)), reading
    )
    if len(fields) == 2:
        apart = difference(fields[0], fields[1], data)
        yield ("largest difference by chunks / stderr", f"{apart:.2g}", *[""] * (len(HEADER) - 2))


def difference(one: xs.Field, other: xs.Field, data: xr.DataArray) -> float:
    """The largest difference of two fields at some places of the data, over the standard error of the first."""
    rng = np.random.default_rng(0)
    ranges = {d: (max((n - ACROSS) // 2, 0), min((n + ACROSS) // 2, n)) for d, n in data.sizes.items()}
    where = {d: xr.DataArray(rng.integers(*own, COMPARED), dims="point") for d, own in ranges.items()}
    places = data[where].compute()
    apart = abs(one.predict(places) - other.predict(places)) / one.stderr(places)
    return float(apart.max())


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--limit", default="2GB", help="memory limit of each of the two workers")
    parser.add_argument("--folder", type=Path, help="where the stores go (default: temporary)")
    parser.add_argument("--only", type=int, choices=(2, 3), help="the store over so many coordinates")
    parser.add_argument("--places", type=float, default=1e6, help="of the prediction, at most (default: 1e6)")


def run(args: argparse.Namespace) -> None:
    print(*__doc__.splitlines()[2:], sep="\n")
    only = args.only or (3 if args.quick else None)
    for size in QUICK if args.quick else FULL:
        if only not in (None, len(size.shape)):
            continue
        with (
            warnings.catch_warnings(),
            tempfile.TemporaryDirectory(dir=args.folder) as folder,
            LocalCluster(
                n_workers=2, threads_per_worker=1, memory_limit=args.limit, dashboard_address=":0"
            ) as cluster,
            Client(cluster) as client,
        ):
            warnings.simplefilter("ignore")
            title = f"large: {size.name} values, two 1-thread workers of {args.limit}"
            measure.table(title, HEADER, rows(client, size, Path(folder), args))
