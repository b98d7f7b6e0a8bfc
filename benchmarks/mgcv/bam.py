"""ERSST with 2093 coefficients: mgcv::bam and ours, on the same values."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import numpy as np
import xarray as xr

import xspline as xs
from benchmarks import measure, stand_in
from benchmarks.mgcv import r

SIZES = {False: (13, 23, 7), True: (5, 6, 4)}


def values(quick: bool) -> xr.DataArray | None:
    """ERSST over the tropical Pacific where it is at hand."""
    path = Path(os.environ.get("XSPLINE_DATA_DIR", "")) / "ersst_v5_2010_2020.nc"
    if not path.is_file():
        return None
    with xr.open_dataset(path) as ds:
        sst = ds.sst.sel(lat=slice(30, -30), lon=slice(120, 280)).load()
    return sst[::8] if quick else sst


def theirs(sst: xr.DataArray, sizes: tuple[int, ...], threads: int) -> dict[str, list[str]]:
    """The figures of bam on every observed value."""
    days = (sst.time - sst.time[0]) / np.timedelta64(1, "D")
    table = xr.Dataset({"sst": sst, "days": days}).to_dataframe().reset_index().dropna()
    with tempfile.TemporaryDirectory() as folder:
        r.write(Path(folder), lat=table.lat, lon=table.lon, time=table.days, sst=table.sst)
        return r.run("bam.R", folder, threads, *sizes)


def models(sizes: tuple[int, ...]) -> dict[str, dict[str, object]]:
    """The same model as bam's, and the paper's time."""
    lat, lon, time = sizes
    place = {"lat": xs.BSpline(lat), "lon": xs.BSpline(lon)}
    season = xs.Fourier(2, period=stand_in.YEAR) + xs.Polynomial(2)
    return {f"BSpline({time})": {**place, "time": xs.BSpline(time)}, "season": {**place, "time": season}}


def row(name: str, sst: xr.DataArray, bases: dict[str, object], bam: float) -> tuple[object, ...]:
    """Seconds of λ and coefficients from the statistics, then with the pass that makes these."""
    space = sst.spline.space(bases)
    statistics = sst.spline.statistics(space)
    chosen = measure.seconds(lambda: statistics.solve(penalty="reml"))
    both = measure.seconds(lambda: sst.spline.statistics(space).solve(penalty="reml"))
    summary = statistics.solve(penalty="reml").summary()
    figures = (float(summary.edf), float(summary.sigma), float(summary.rmse))
    return f"xspline, time {name}", space.size, *figures, chosen, bam / chosen, both, bam / both


def run(args: argparse.Namespace) -> None:
    sst = values(args.quick)
    if sst is None:
        print("bam: skipped, XSPLINE_DATA_DIR does not hold ersst_v5_2010_2020.nc")
        return
    sizes = SIZES[args.quick]
    told = theirs(sst, sizes, args.threads)
    count, wall = int(sst.notnull().sum()), float(told["wall"][0])
    figures = (float(told[name][0]) for name in ("edf", "sigma", "rmse"))
    rows = [("mgcv::bam", int(told["coefficients"][0]), *figures, wall, 1.0, wall, 1.0)]
    rows += [row(name, sst, bases, wall) for name, bases in models(sizes).items()]
    mgcv, blas = told["version"][0], Path(told["blas"][0]).resolve()
    title = f"bam: {count:,} values; mgcv {mgcv}, nthreads = {args.threads}, {blas}"
    header = ("what", "P", "edf", "sigma", "rmse", "λ and solve, s", "ratio", "with the pass, s", "ratio")
    measure.table(title, header, rows)
