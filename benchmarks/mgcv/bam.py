"""ERSST with 2093 coefficients: mgcv::bam and ours, on the same values."""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import xarray as xr

import xspline as xs
from benchmarks import measure, stand_in
from benchmarks.mgcv import r

SIZES = {False: (13, 23, 7), True: (5, 6, 4)}


def theirs(sst: xr.DataArray, sizes: tuple[int, ...], threads: int, blas: str) -> dict[str, list[str]]:
    """The figures of bam on every observed value."""
    days = (sst.time - sst.time[0]) / np.timedelta64(1, "D")
    table = xr.Dataset({"sst": sst, "days": days}).to_dataframe().reset_index().dropna()
    with tempfile.TemporaryDirectory() as folder:
        r.write(Path(folder), lat=table.lat, lon=table.lon, time=table.days, sst=table.sst)
        return r.run("bam.R", folder, threads, *sizes, blas=blas)


def models(sizes: tuple[int, ...]) -> dict[str, dict[str, object]]:
    """The same model as bam's, and the paper's time."""
    lat, lon, months = sizes
    place = {"lat": xs.BSpline(lat), "lon": xs.BSpline(lon)}
    season = xs.Fourier(2, period=stand_in.YEAR) + xs.Polynomial(2)
    return {
        f"time BSpline({months})": {**place, "time": xs.BSpline(months)},
        "time seasonal": {**place, "time": season},
    }


def seconds(call: Callable[[], object], repeat: int = 5) -> tuple[float, float]:
    """Median wall and CPU seconds (of all threads), after one call that compiles."""
    call()
    times = []
    for _ in range(repeat):
        start = time.perf_counter(), time.process_time()
        call()
        times.append((time.perf_counter() - start[0], time.process_time() - start[1]))
    wall, cpu = map(statistics.median, zip(*times, strict=True))
    return wall, cpu


def rows(name: str, sst: xr.DataArray, bases: dict[str, object]) -> list[tuple[object, ...]]:
    """Strengths and coefficients from the statistics alone, then with the pass that makes these."""
    space = sst.spline.space(bases)
    sums = sst.spline.statistics(space)
    summary = sums.solve(penalty=xs.Roughness("reml")).summary()
    figures = (space.size, float(summary.edf), float(summary.sigma), float(summary.rmse))
    alone = seconds(lambda: sums.solve(penalty=xs.Roughness("reml")))
    passed = seconds(lambda: sst.spline.statistics(space).solve(penalty=xs.Roughness("reml")))
    return [(f"{name}, from statistics", *figures, *alone), (f"{name}, with the pass", *figures, *passed)]


def run(args: argparse.Namespace) -> None:
    sst = stand_in.ersst(8 if args.quick else 1)
    if sst is None:
        print("bam: skipped, XSPLINE_DATA_DIR does not hold ersst_v5_2010_2020.nc")
        return
    sizes = SIZES[args.quick]
    told = theirs(sst, sizes, args.threads, args.blas)
    columns = ("coefficients", "edf", "sigma", "rmse", "wall", "cpu")
    found = [("mgcv::bam", *(float(told[name][0]) for name in columns))]
    found += [row for name, bases in models(sizes).items() for row in rows(name, sst, bases)]
    wall, cpu = found[0][-2:]
    mgcv, blas = told["version"][0], Path(told["blas"][0]).resolve()
    measure.table(
        f"bam: {int(sst.notnull().sum()):,} values; mgcv {mgcv}, nthreads = {args.threads}, {blas}",
        ("what", "P", "edf", "sigma", "rmse", "wall s", "CPU s", "bam / wall", "bam / CPU"),
        [(what, int(P), *rest, wall / rest[-2], cpu / rest[-1]) for what, P, *rest in found],
    )
