"""Automatic smoothing on real masks: the ocean's of the OISST product, and nearly equal ones of the Mediterranean.

The first on half and quarter degrees. The others are 20 days whose five masks differ in one to three pixels, against
the same days with one mask.

Values are made: waves and eddies of known size with noise. Statistics are not counted; CPU seconds are of all cores.
`--solver` asks for a solver by name in all solves, to see what another one costs. Without XSPLINE_DATA_DIR the
continents are made too.
"""

from __future__ import annotations

import argparse
import gc
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

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
    "CPU s",
    "REML, s",
    "CPU s",
    "ratio of CPU",
    "factorisations",
    "stderr, s",
    "CPU s",
    "peak, GB",
)
DAYS_HEADER = ("coefficients", "days", "masks", "REML, s", "CPU s", "one mask, s", "CPU s", "ratio of CPU")
T = TypeVar("T")
EDDIES, NOISE = (2.0, 6.0, 25.0), 0.3  # degrees; over the standard deviation of the eddies


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--solver", help="by name, in all solves")
    parser.add_argument(
        "--only",
        choices=("half", "full", "days"),
        nargs="*",
        default=("half", "full", "days"),
        help="180 or 360 rows, or the days",
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


def days() -> xr.DataArray:
    """20 days of sea level in the Mediterranean, or made ones, with five masks in runs of some days."""
    directory = os.environ.get("XSPLINE_DATA_DIR", "")
    if directory:
        with xr.open_dataset(Path(directory) / "adt_mediterranean_2005_q2.nc") as product:
            return product.adt.isel(time=slice(20)).load()
    rng, lat, lon = np.random.default_rng(0), np.arange(30.0, 46, 0.125), np.arange(-6.0, 37, 0.125)
    field = ndimage.gaussian_filter(rng.standard_normal((20, lat.size, lon.size)), (2, 6, 6))
    for day, gap in enumerate(rng.integers(0, lat.size * lon.size, 5).repeat(4).tolist()):
        field[day].ravel()[[0, gap]] = np.nan
    return xr.DataArray(field, {"latitude": lat, "longitude": lon}, ("time", "latitude", "longitude"), "adt")


def days_row(rows: int, columns: int) -> tuple[object, ...]:
    """The choice of λ for all days, with their own masks and with what all of them have."""
    data, seconds = days(), []
    for own in (data, data.where(data.notnull().all("time"))):
        made = xs.statistics(own, latitude=rows, longitude=columns)
        made.total("adt")
        seconds.append(timed(made.solve)[1:])
    masks = len({mask.tobytes() for mask in data.isnull().to_numpy()})
    return (
        f"{rows} × {columns}",
        len(data.time),
        masks,
        *seconds[0],
        *seconds[1],
        seconds[0][1] / seconds[1][1],
    )


def statistics(rows: int, step: float) -> xs.Statistics:
    bases = {
        "lat": xs.BSpline(rows, domain=(-90, 90)),
        "lon": xs.BSpline(2 * rows, domain=(0, 360), period=360),
    }
    made = xs.statistics(values(step), bases)
    made.total("u")
    return made


def timed(call: Callable[[], T]) -> tuple[T, float, float]:
    """What a call returns, its seconds, and those of the CPU on all cores."""
    start, cpu = time.perf_counter(), time.process_time()
    result = call()
    return result, time.perf_counter() - start, time.process_time() - cpu


def row(rows: int, step: float, solver: str | None) -> tuple[object, ...]:
    """One grid: the choice of λ, error bars at all values, and a solve with λ given that shares nothing with it."""
    made = statistics(rows, step)
    before = measure.reset_peak()
    field, *chosen = timed(lambda: made.solve(solver=solver))
    _, *bars = timed(field.stderr)
    peak, fit, penalty = measure.peak() - before, field.fits["u"], field.penalty
    name, count = fit.solved.factorisation.choice.name, fit.choice["factorisations"]
    del field, fit
    gc.collect()
    _, *once = timed(lambda: made.solve(penalty, solver=solver))
    size = f"{rows} × {2 * rows}"
    return (size, f"{step}°", name, *once, *chosen, chosen[1] / once[1], count, *bars, peak / 1e9)


def run(args: argparse.Namespace) -> None:
    sizes = {"half": (180, 0.5), "full": (360, 0.25)}
    if args.quick:
        rows, several = [row(18, 5.0, args.solver)], [days_row(12, 24)]
    else:
        rows = [row(*sizes[name], args.solver) for name in args.only if name in sizes]
        several = [days_row(*shape) for shape in ((40, 100), (64, 172)) if "days" in args.only]
    load = f"load {os.getloadavg()[0]:.1f}"
    if rows:
        measure.table(f"REML on the ocean's mask; {load}", HEADER, rows)
    if several:
        measure.table(f"REML of days whose masks are nearly the same; {load}", DAYS_HEADER, several)
