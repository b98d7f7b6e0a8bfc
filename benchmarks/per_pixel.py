"""Trend and annual cycle of every pixel against `polyfit('time', 1)`, which fits the trend alone.

In memory and over Dask chunks that the two workers hold. Time and bytes of both sides: what is allocated beside the
data (in memory), or how far the resident bytes of a worker rise (Dask). Whether there are gaps polyfit finds out for
itself in memory; over Dask chunks it takes each pixel for one with gaps, unless it is told (`skipna=False`).

Then trend, cycle and two indices of every pixel of a Zarr store against its `mean()`, in turns.
"""

from __future__ import annotations

import argparse
import functools
import mmap
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import xarray as xr
from dask.distributed import Client, LocalCluster, wait

import xspline as xs
from benchmarks import measure
from benchmarks.mean import clocks, in_turns

SIZES = {False: (480, 360, 720), True: (120, 30, 60)}
SHORT = {False: (128, 720, 1440), True: (24, 60, 120)}  # as many values about
LONG = {False: (2048, 90, 180), True: (240, 18, 36)}  # months since 1854 on cells of 2 degrees, as ERSST has
Shape = tuple[int, int, int]
GAPS = ("no gaps", "land", "30 % random gaps")
CYCLE = {"time": xs.Polynomial(1) + xs.Fourier(1, period="365.2425D")}
TREND = {"time": xs.Polynomial(1)}
HEADER = ("what", "seconds", "polyfit over it", "bytes, MB", "polyfit's over it")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--only", choices=("memory", "dask", "store"), help="a part of it")


def cube(shape: tuple[int, int, int], gaps: str) -> xr.DataArray:
    """Months of float32 noise around a trend, time first."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal(shape, dtype="f4")
    values += np.linspace(14, 15, shape[0], dtype="f4")[:, None, None]
    if gaps != "no gaps":
        values[:, rng.random(shape[1:]) < 0.3] = np.nan
    if gaps == "30 % random gaps":
        values[rng.random(shape, dtype="f4") < 0.3] = np.nan
    months = np.datetime64("1981-01") + np.arange(shape[0])
    coords = {
        "time": months.astype("datetime64[ns]"),
        "lat": np.linspace(-89, 89, shape[1]),
        "lon": np.linspace(0, 359, shape[2]),
    }
    return xr.DataArray(values, coords, tuple(coords), "t")


def polyfit(data: xr.DataArray, skipna: bool | None = None) -> xr.Dataset:
    return data.polyfit("time", 1, skipna=skipna).compute()


def sides(data: xr.DataArray, gaps: str) -> dict[str, Callable[[], object]]:
    found: dict[str, Callable[[], object]] = {
        f"polyfit, trend, {gaps}": functools.partial(polyfit, data),
        f"xspline, trend + cycle, {gaps}": lambda: data.spline.fit(CYCLE),
        f"xspline, trend, {gaps}": lambda: data.spline.fit(TREND),
    }
    if data.chunks is not None and gaps == "no gaps":
        found["polyfit(skipna=False), trend, no gaps"] = functools.partial(polyfit, data, skipna=False)
    return found


def slopes_apart(data: xr.DataArray) -> float:
    """How far the trends of both differ, of the largest."""
    theirs = polyfit(data).polyfit_coefficients.sel(degree=1) * 1e9  # per ns
    field = data.spline.fit(TREND)
    ours = field.derivative(data.isel(time=[0]), time=1).isel(time=0)
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def clocked(calls: dict[str, Callable[[], object]], repeat: int) -> dict[str, float]:
    """Median seconds of each, taken in turns; a call before them compiles."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(repeat + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if turn:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(taken) for name, taken in times.items()}


def rows_of(took: dict[str, float], size: dict[str, float]) -> list[tuple[object, ...]]:
    first = next(iter(took))
    return [(n, t, took[first] / t, size[n] / 1e6, size[first] / size[n]) for n, t in took.items()]


def in_memory(shape: Shape, repeat: int) -> None:
    rows, apart = [], []
    for gaps in GAPS:
        data = cube(shape, gaps)
        calls = sides(data, gaps)
        took = clocked(calls, repeat)
        rows += rows_of(took, {name: float(measure.allocated(call)) for name, call in calls.items()})
        apart.append(slopes_apart(data))
    title = (
        f"per_pixel: {shape} float32 ({data.nbytes / 1e6:.0f} MB) in memory; trends agree to {max(apart):.0e}"
    )
    measure.table(title, HEADER, rows)


def above_idle(client: Client, call: Callable[[], object]) -> float:
    """Largest rise of the resident bytes of a worker; a page at least, which is how they are counted."""
    idle = client.run(measure.reset_peak)
    call()
    rises = (peak - idle[worker] for worker, peak in client.run(measure.peak).items())
    return float(max(mmap.PAGESIZE, *rises))


def compile_kernels(kinds: Sequence[str]) -> None:
    """Workers that compile seem slow: Dask would move blocks away from them, then and later."""
    for gaps in kinds:
        small = cube((24, 8, 12), gaps).chunk(lat=1)
        for call in sides(small, gaps).values():
            call()


def over_dask(client: Client, shape: Shape, repeat: int, kinds: Sequence[str]) -> None:
    compile_kernels(kinds)
    rows = []
    for gaps in kinds:
        chunks = {"time": -1, "lat": shape[1] // 4, "lon": shape[2] // 4}
        data = cube(shape, gaps).chunk(chunks)
        # Copied there: blocks as they come from the network are not aligned in memory, those of a store are.
        data = data.copy(data=data.data.map_blocks(np.array)).persist()
        wait(data)
        calls = sides(data, gaps)
        took = clocked(calls, repeat)
        rows += rows_of(took, {name: above_idle(client, call) for name, call in calls.items()})
        del data, calls
    title = f"per_pixel: {shape} float32 in 16 chunks of two 1-thread workers"
    measure.table(title, HEADER, rows)


def regression(months: xr.DataArray) -> dict[str, xs.Basis]:
    """Trend, two harmonics, and indices of ENSO and of volcanic aerosol that are made up: eight functions."""
    rng, time = np.random.default_rng(7), {"time": months.values}
    enso = xr.DataArray(np.convolve(rng.standard_normal(months.size), np.ones(6) / 6, "same"), time, "time")
    aod = xr.DataArray(np.maximum(rng.standard_normal(months.size) - 1, 0), time, "time")
    return {"time": xs.Polynomial(1) + xs.Fourier(2, "365.2425D") + xs.Regressors(enso=enso, aod=aod)}


def series_of(shape: Shape) -> Shape:
    """Chunks with all months of their pixels."""
    return shape[0], shape[1] // 4, shape[2] // 4


def parts_of(shape: Shape) -> Shape:
    return shape[0] // 4, shape[1] // 2, shape[2] // 2


def decades_of(shape: Shape) -> Shape:
    return min(120, shape[0]), *shape[1:]


def of_a_store(client: Client, shape: Shape, short: Shape, long: Shape, repeat: int, every: int) -> None:
    rows = []
    cases = [*((shape, gaps, series_of(shape)) for gaps in GAPS), (shape, "land", parts_of(shape))]
    cases += [
        (short, "no gaps", series_of(short)),
        (short, "land", series_of(short)),
        (short, "land", parts_of(short)),
        (long, "land", series_of(long)),
        (long, "land", decades_of(long)),
    ]
    for shape, gaps, chunks in cases[::every]:
        with tempfile.TemporaryDirectory() as folder:
            data, path = cube(shape, gaps), Path(folder) / "t.zarr"
            data.to_zarr(path, consolidated=False, encoding={"t": {"chunks": chunks}})
            store = xr.open_zarr(path, consolidated=False).t
            bases = regression(data.time)
            calls = {
                "mean()": lambda store=store: store.mean().compute(),
                "mean('time')": lambda store=store: store.mean("time").compute(),
                "regression": lambda store=store, bases=bases: store.spline.fit(**bases),
            }
            took = in_turns(calls, repeat, clocks(client))
            (mean, cpu), (per_pixel, _), (regressed, own) = (map(float, both) for both in took.values())
            ratios = regressed / mean, regressed / per_pixel, own / cpu
            rows.append((gaps, str(chunks), mean, per_pixel, regressed, *ratios))
    title = "per_pixel: float32 chunks of a Zarr store, regression on 8 functions, two 1-thread workers"
    header = (
        "gaps",
        "chunks",
        "mean(), s",
        "mean('time'), s",
        "regression, s",
        "over mean()",
        "over mean('time')",
        "CPU over mean()'s",
    )
    measure.table(title, header, rows)


def run(args: argparse.Namespace) -> None:
    shape, repeat = SIZES[args.quick], 1 if args.quick else args.repeat
    if args.only in (None, "memory"):
        in_memory(shape, repeat)
    if args.only == "memory":
        return
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        if args.only != "store":
            over_dask(client, shape, repeat, GAPS[-1:] if args.quick else GAPS)
        if args.only != "dask":
            every = 4 if args.quick else 1  # chunks of all months, of some, and of decades
            of_a_store(client, shape, SHORT[args.quick], LONG[args.quick], repeat, every)
