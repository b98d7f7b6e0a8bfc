"""Automatic smoothing on a real mask: the ocean's of the OISST product, on half and quarter degrees.

Values are made: waves and eddies of known size with noise. Statistics are not counted. `--solver` asks for a solver by
name in all solves, to see what another one costs. Without XSPLINE_DATA_DIR the continents are made too.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
import xarray as xr
from scipy import ndimage

import xspline as xs
from benchmarks import measure

HEADER = (
    "coefficients",
    "data",
    "solver",
    "λ given, s",
    "REML, s",
    "ratio",
    "factorisations",
    "stderr, s",
    "peak, GB",
)
EDDIES, NOISE = (2.0, 6.0, 25.0), 0.3  # degrees; over the standard deviation of the eddies


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--solver", help="by name, in all solves")
    parser.add_argument(
        "--only", choices=("half", "full"), nargs="*", default=("half", "full"), help="180 or 360 rows"
    )


def sea() -> xr.DataArray:
    """Where there is sea, on whole degrees."""
    lat, lon = np.arange(89.5, -90, -1.0), np.arange(0.5, 360, 1.0)
    directory = os.environ.get("XSPLINE_DATA_DIR", "")
    if directory:
        mask = xr.open_dataset(Path(directory) / "oisst_v2_land_sea_mask.nc").mask.squeeze(drop=True)
        return mask.astype(bool)
    waves = np.sin(np.radians(3 * lon)) + np.cos(np.radians(2 * lon + 4 * lat[:, None]))
    return xr.DataArray(waves < 0.8, {"lat": lat, "lon": lon}, ("lat", "lon"))


def values(step: float) -> xr.DataArray:
    """Waves and eddies with noise where there is sea, on a grid of a step in degrees."""
    rng, ocean = np.random.default_rng(0), sea()
    lat, lon = np.arange(-90 + step / 2, 90, step), np.arange(step / 2, 360, step)
    field = np.zeros((lat.size, lon.size))
    for scale in EDDIES:
        eddies = ndimage.gaussian_filter(
            rng.standard_normal(field.shape), scale / step, mode=("nearest", "wrap")
        )
        field += eddies / eddies.std()
    field += NOISE * rng.standard_normal(field.shape)
    coordinates = {
        "lat": ("lat", lat, {"units": "degrees_north"}),
        "lon": ("lon", lon, {"units": "degrees_east"}),
    }
    data = xr.DataArray(field, coordinates, ("lat", "lon"), "u")
    return data.where(ocean.sel(lat=lat, lon=lon, method="nearest").to_numpy())


def statistics(rows: int, step: float) -> xs.Statistics:
    bases = {
        "lat": xs.BSpline(rows, domain=(-90, 90)),
        "lon": xs.BSpline(2 * rows, domain=(0, 360), period=360),
    }
    made = xs.statistics(values(step), bases)
    made.total("u")
    return made


def row(rows: int, step: float, solver: str | None) -> tuple[object, ...]:
    """One grid: a solve with λ given, the choice of it, and error bars at all values."""
    made = statistics(rows, step)
    measure.reset_peak()
    before, start = measure.status("VmRSS"), time.perf_counter()
    field = made.solve(solver=solver)
    chosen, start = time.perf_counter() - start, time.perf_counter()
    field.stderr()
    bars, peak = time.perf_counter() - start, measure.peak() - before
    once = measure.seconds(lambda: made.solve(field.penalty, solver=solver), repeat=3, warm=False)
    fit = field.fits["u"]
    name, count = fit.solved.factorisation.choice.name, fit.choice["factorisations"]
    return f"{rows} × {2 * rows}", f"{step}°", name, once, chosen, chosen / once, count, bars, peak / 1e9


def run(args: argparse.Namespace) -> None:
    if args.quick:
        rows = [row(18, 5.0, args.solver)]
    else:
        sizes = {"half": (180, 0.5), "full": (360, 0.25)}
        rows = [row(*sizes[name], args.solver) for name in args.only]
    measure.table(f"REML on the ocean's mask; load {os.getloadavg()[0]:.1f}", HEADER, rows)
