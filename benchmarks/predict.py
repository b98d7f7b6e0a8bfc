"""Values of a field on a grid: rate of one core, against SciPy, and `predict().to_zarr()` against writing noise.

Rates count CPU seconds of one core that writes blocks into a buffer it reuses, so that no pages are new. The stores
are written by two workers of one thread, with the default codec and without one; a block of noise costs nothing to
make, drawn noise is what `zeros + noise` costs in Dask.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import shutil
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import dask.array
import numpy as np
import xarray as xr
from dask.distributed import Client, LocalCluster
from scipy.interpolate import NdBSpline, RegularGridInterpolator

import xspline as xs
from benchmarks import measure
from xspline.kernels import Group, Layout, evaluate
from xspline.threads import cores, on_cores

NAMES = ("time", "lat", "lon")
GRID = Layout(tuple(Group((axis,), (axis,)) for axis in range(3)))
SIZES = {False: ((240, 512, 512), (60, 256, 256)), True: ((24, 64, 64), (12, 32, 32))}
COUNTS = (11, 20, 37)  # functions of each coordinate
LABELS, FEW = 23, 6  # of each coordinate, to compare with SciPy; a quick run has few functions
ORDERS = {
    "values": ((0, 0, 0),),
    "derivative in lat": ((0, 1, 0),),
    "gradient in lat, lon": ((0, 1, 0), (0, 0, 1)),
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=None, help="where the stores go (default: temporary)")


def space_of(functions: int) -> xs.Space:
    """Cubic in three coordinates from 0 to 1."""
    return xs.Space({name: xs.BSpline(functions, domain=(0.0, 1.0)) for name in NAMES})


def grid_of(shape: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    return tuple(np.linspace(0.0, 1.0, n) for n in shape)


def cpu(call: Callable[[], object], repeat: int) -> float:
    """Median CPU seconds of `call`; one call before them compiles."""
    call()
    times = []
    for _ in range(repeat):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return statistics.median(times)


# One core


def fill(
    c: np.ndarray, space: xs.Space, orders: tuple[tuple[int, ...], ...], quick: bool, out: np.ndarray
) -> None:
    """Evaluate the grid block by block, each into `out`."""
    shape, chunk = SIZES[quick]
    cut = [[x[i : i + n] for i in range(0, x.size, n)] for x, n in zip(grid_of(shape), chunk, strict=True)]
    for where, order in itertools.product(itertools.product(*cut), orders):
        evaluate(c, where, GRID, space, order, out=out)


def rates(quick: bool, repeat: int) -> None:
    (shape, chunk), rows = SIZES[quick], []
    for functions, (name, orders) in itertools.product(COUNTS[: 1 if quick else None], ORDERS.items()):
        space = space_of(functions)
        c = np.random.default_rng(0).normal(size=space.shape)
        buffers = [np.empty(chunk, dtype) for dtype in ("f8", "f4")]
        took = [cpu(functools.partial(fill, c, space, orders, quick, out), repeat) for out in buffers]
        rows.append((f"{name}, P = {functions}³", *(np.prod(shape) * len(orders) / t / 1e6 for t in took)))
    title = f"predict: a grid of {shape} in blocks of {chunk}, cubic in three coordinates, one core"
    measure.table(title, ("what", "float64, million values/s", "float32, million values/s"), rows)


# SciPy


def against_scipy(quick: bool, repeat: int) -> None:
    """The same points: a grid for us, its points one by one for SciPy."""
    functions, labels, chunk = (
        (FEW, 2 * FEW, SIZES[quick][1]) if quick else (COUNTS[0], LABELS, (20, 100, 100))
    )
    space = space_of(functions)
    x, y, z = np.meshgrid(*grid_of((labels,) * 3), indexing="ij")
    truth = np.sin(6 * x) * np.cos(5 * y) + z * y
    knots, where = tuple(f.knots for f in space.features), grid_of(chunk)
    field = xr.DataArray(truth, dict(zip(NAMES, grid_of(truth.shape), strict=True))).spline.fit(space)
    c = field.coefficients.values
    points, out = np.stack(np.meshgrid(*where, indexing="ij"), axis=-1), np.empty(chunk)
    samples = evaluate(c, grid_of(truth.shape), GRID, space)
    sides: dict[str, Callable[[], np.ndarray]] = {
        "xspline, into a buffer": lambda: evaluate(c, where, GRID, space, out=out),
        "NdBSpline, same coefficients": lambda: NdBSpline(knots, c, 3)(points),
    }
    for method in ("cubic", "linear"):
        regular = RegularGridInterpolator(grid_of(truth.shape), samples, method=method)
        name = f"RegularGridInterpolator, {method}, {labels}³ samples of it"
        sides[name] = lambda regular=regular: regular(points)
    took = {name: cpu(call, repeat) for name, call in sides.items()}
    ours, first = sides["xspline, into a buffer"]().copy(), took["xspline, into a buffer"]
    apart = {name: float(np.abs(call() - ours).max() / np.abs(ours).max()) for name, call in sides.items()}
    rows = [(n, t, ours.size / t / 1e6, t / first, f"{apart[n]:.0e}") for n, t in took.items()]
    title = f"predict: {ours.size:,} points of a grid, P = {functions}³"
    measure.table(title, ("what", "CPU s", "million values/s", "over xspline", "apart from xspline"), rows)


# A fine field


def by_neighbours(quick: bool, repeat: int) -> None:
    """Values and error bars of a bare fit in memory, on one core and on all."""
    every = 15 if quick else 2
    data = xs.synthetic.sea_surface_temperature(60, lat=(-30, 30), lon=(120.0, 280.0)).sst
    data = data[::every, ::every, ::4]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", xs.FitWarning)
        field = data.spline.fit(seconds=1 if quick else 10)
    took = {}
    for number in (1, cores()):
        times = []
        for _ in range(repeat):
            start = time.perf_counter()
            on_cores(number)(field.predict)(data, stderr=True)
            times.append(time.perf_counter() - start)
        took[number] = statistics.median(times)
    rows = [(n, t, 1e6 * t / data.size, took[1] / t) for n, t in took.items()]
    header = ("cores", "seconds", "µs a place", "speed over one core")
    measure.table(f"predict: a fine field at {data.size:,} places, with error bars", header, rows)


# To Zarr


def written(
    client: Client, shape: tuple[int, ...], chunk: tuple[int, ...], functions: int
) -> dict[str, xr.DataArray]:
    """What is written: a prediction, and zeros plus noise."""
    rng, few = np.random.default_rng(0), tuple(-(-n // 4) for n in shape)
    coords = dict(zip(NAMES, grid_of(shape), strict=True))
    small = xr.DataArray(rng.normal(size=few), dict(zip(NAMES, grid_of(few), strict=True)), name="u")
    zeros = dask.array.zeros(shape, chunks=chunk)
    target = xr.DataArray(zeros, coords)
    block = client.scatter(rng.normal(size=chunk), broadcast=True)
    noise = dask.array.random.default_rng(0).normal(size=shape, chunks=chunk)
    return {
        "predict().to_zarr()": small.spline.fit(space_of(functions), penalty=0.1).predict(at=target),
        "zeros + one block of noise": target.copy(data=zeros.map_blocks(np.add, block, dtype=float)),
        "zeros + drawn noise": target.copy(data=zeros + noise),
    }


def stored(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def to_zarr(client: Client, folder: Path, quick: bool, repeat: int) -> None:
    (shape, chunk), functions = SIZES[quick], FEW if quick else COUNTS[1]
    sides, path = written(client, shape, chunk, functions), folder / "u.zarr"
    rows = []
    codecs = {"default": {}, "none": {"u": {"compressors": None}}}
    for dtype, (codec, encoding) in list(itertools.product(("float64", "float32"), codecs.items()))[
        : 1 if quick else None
    ]:
        datasets = {name: side.astype(dtype).to_dataset(name="u") for name, side in sides.items()}
        took: dict[str, list[float]] = {name: [] for name in sides}
        peak, size = dict.fromkeys(sides, 0.0), dict.fromkeys(sides, 0)
        for turn, (name, dataset) in itertools.product(range(repeat + 1), datasets.items()):
            shutil.rmtree(path, ignore_errors=True)
            idle = client.run(measure.reset_peak)
            start = time.perf_counter()
            dataset.to_zarr(path, mode="w", encoding=encoding, consolidated=False)
            if turn:  # the first of each fills caches
                took[name].append(time.perf_counter() - start)
                above = [top - idle[worker] for worker, top in client.run(measure.peak).items()]
                peak[name], size[name] = max(peak[name], *above), stored(path)
        first = statistics.median(took["predict().to_zarr()"])
        for name, times in took.items():
            each = statistics.median(times)
            label = f"{name}, {dtype}, codec: {codec}"
            rows.append((label, each, first / each, peak[name] / 1e6, size[name] / 1e6))
    title = f"predict: a grid of {shape} in chunks of {chunk} to Zarr, P = {functions}³, two workers of one thread"
    measure.table(title, ("what", "seconds", "predict over it", "peak - idle, MB", "stored, MB"), rows)


def run(args: argparse.Namespace) -> None:
    repeat = 1 if args.quick else args.repeat
    rates(args.quick, repeat)
    against_scipy(args.quick, repeat)
    by_neighbours(args.quick, repeat)
    with (
        tempfile.TemporaryDirectory(dir=args.folder) as folder,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        to_zarr(client, Path(folder), args.quick, repeat)
