"""The choice of smoothing: what `fit()` without arguments costs, over one solve at the strengths that it chose.

Made values with random gaps in three dimensions, and the real products of XSPLINE_DATA_DIR as a notebook user types
them. Statistics are not counted; peaks are those of the whole process above where it was before.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import xarray as xr

import xspline as xs
from benchmarks import measure

PRODUCTS: dict[str, tuple[str, Callable[[xr.Dataset], xr.DataArray]]] = {
    "ERSST, global": ("ersst_v5_2010_2020.nc", lambda ds: ds.sst),
    "TAO reports": ("tao_sst_5day.nc", lambda ds: ds.load().set_coords(["lat", "lon", "time"]).sst),
    "sea ice, curvilinear": ("cmip6_canesm5_sea_ice_2020.nc", lambda ds: ds.siconc),
    "ADT, Mediterranean": ("adt_mediterranean_2005_q2.nc", lambda ds: ds.adt),
}
HEADER = ("values", "P", "factorisations", "choice, s", "one solve, s", "over one solve", "peak, GB")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--size", type=int, default=27, help="coefficients along each of three axes")
    parser.add_argument("--only", default="", help="part of the name of the values")


def gaps(size: int) -> xr.DataArray:
    """About 3.5 values a coefficient and axis with noise, 30 % missing at random."""
    rng, x = np.random.default_rng(0), np.linspace(0, 1, int(3.7 * size))
    a, b, c = np.meshgrid(x, x, x, indexing="ij", sparse=True)
    bump = 0.5 * np.exp(-30 * ((a - 0.5) ** 2 + (b - 0.4) ** 2 + (c - 0.6) ** 2))
    truth = np.sin(5 * a) * np.cos(4 * b + 2 * c) + bump
    values = truth + 0.3 * rng.standard_normal(truth.shape)
    values[rng.random(truth.shape) < 0.3] = np.nan
    return xr.DataArray(values, {"x": x, "y": x, "z": x}, ("x", "y", "z"), "u")


def problems(size: int) -> Iterator[tuple[str, Callable[[], xs.Statistics]]]:
    bases = dict.fromkeys("xyz", size)
    yield f"30 % random gaps, {size}³", lambda: gaps(size).spline.statistics(bases)
    directory = os.environ.get("XSPLINE_DATA_DIR", "")
    for name, (file, variable) in PRODUCTS.items() if directory else ():
        path = Path(directory) / file
        yield name, lambda path=path, variable=variable: variable(xr.open_dataset(path)).spline.statistics()


def row(name: str, statistics: xs.Statistics) -> tuple[object, ...]:
    statistics.total(next(iter(statistics.variables)))
    measure.reset_peak()
    before, start = measure.status("VmRSS"), time.perf_counter()
    field = statistics.solve()
    chosen, peak = time.perf_counter() - start, measure.peak() - before
    once = measure.seconds(lambda: statistics.solve(field.penalty), repeat=1, warm=False)
    count = next(iter(field.fits.values())).choice["factorisations"]
    return name, field.space.size, count, chosen, once, chosen / once, peak / 1e9


def run(args: argparse.Namespace) -> None:
    size = 8 if args.quick else args.size
    every = [p for p in problems(size) if args.only in p[0]]
    rows = [row(name, make()) for name, make in (every[:1] if args.quick else every)]
    measure.table("Choice of smoothing by REML", HEADER, rows)
