"""Trends of 240 months with AR(1) errors: `errors=xs.AR1("time")` against the fit that takes errors as independent.

Shares of replicates whose interval of 95 %, 1.96 standard errors to each side, holds the true slope, which is none; all
replicates are one fit, each a member of its batch with a ρ of its own. `lags=1` ends a series at each gap. Beside them
are the mean of ρ and, of data at once in memory, the CPU time of the statistics over that of plain ones.

Gaps that are longer than the steps that sums are kept of: runs of so many months with four missing between them, with
the four steps of the default and with six, and whether the fit warns.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import xarray as xr

import xspline as xs
from benchmarks import measure
from benchmarks.coverage import shares

MONTHS = np.arange("1990-01", "2010-01", dtype="datetime64[M]").astype("datetime64[ns]")
SEASON = xs.Polynomial(1) + xs.Fourier(1, "year")
RHOS, GAPS, TRIES = (0.0, 0.5, 0.8, 0.95), (0.0, 0.15), 5  # a quick run tries once
RUNS, MISSING = (1, 2, 5, 20), 4  # months that are observed, and those after them that are not


def noise(rng: np.random.Generator, rho: float, count: int) -> np.ndarray:
    """Return AR(1) errors of variance 1, [months, count]."""
    e = rng.standard_normal((MONTHS.size, count))
    for i in range(1, len(e)):
        e[i] = rho * e[i - 1] + math.sqrt(1 - rho**2) * e[i]
    return e


def simulated(rho: float, gaps: float, count: int, seed: int) -> xr.DataArray:
    rng = np.random.default_rng(seed)
    values = noise(rng, rho, count)
    values[rng.random(values.shape) < gaps] = np.nan
    return xr.DataArray(values, {"time": MONTHS}, ("time", "replicate"), "u")


def covered(data: xr.DataArray, errors: xs.AR1 | None) -> tuple[np.ndarray, xs.Field[Any]]:
    """Return whether each interval of the trend holds 0, and the field."""
    field = data.spline.fit(time=SEASON, errors=errors)
    slope = field.select(time=xs.Polynomial).derivative({"time": MONTHS[120:121]}, time=1, stderr=True)
    value, error = (slope[name].to_numpy().ravel() for name in ("du_dtime", "du_dtime_stderr"))
    return np.abs(value) <= shares.NORMAL * error, field


def coverage(rhos: Sequence[float], replicates: int) -> Iterator[tuple[object, ...]]:
    for gaps in GAPS:
        for rho in rhos:
            data = simulated(rho, gaps, replicates, 11)
            own, field = covered(data, xs.AR1("time"))
            short, plain = (covered(data, errors)[0] for errors in (xs.AR1("time", lags=1), None))
            found = float(field.summary().ar1.mean())
            yield f"{gaps:.0%}", rho, *(shares.text(x) for x in (own, short, plain)), f"{found:.3f}"


def long_gaps(rhos: Sequence[float], replicates: int) -> Iterator[tuple[object, ...]]:
    for run in RUNS:
        observed = xr.DataArray(np.arange(MONTHS.size) % (run + MISSING) < run, dims="time")
        for rho in rhos:
            data = simulated(rho, 0.0, replicates, 12).where(observed)
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                own = covered(data, xs.AR1("time"))[0]
            longer = covered(data, xs.AR1("time", lags=6))[0]
            warns = any("followed by none within" in str(one.message) for one in told)
            yield run, rho, shares.text(own), "yes" if warns else "no", shares.text(longer)


def seconds(call: Callable[[], Any], tries: int) -> float:
    """Return the fewest CPU seconds of some tries, after one that compiles."""
    times = []
    for _ in range(tries + 1):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times[1:])


def costs(size: int, tries: int) -> Iterator[tuple[object, ...]]:
    rng = np.random.default_rng(0)
    lat, lon = np.linspace(-60, 60, size), np.linspace(0, 358, 2 * size)
    values = rng.standard_normal((MONTHS.size, size, 2 * size)).astype(np.float32)
    grid = xr.DataArray(values, {"time": MONTHS, "lat": lat, "lon": lon}, ("time", "lat", "lon"), "u")
    land = grid.where(xr.DataArray(rng.random((size, 2 * size)) > 0.3, dims=("lat", "lon")))
    gaps = grid.where(rng.random(grid.shape) > 0.15)
    stations = gaps[:, : size // 4].stack(station=("lat", "lon")).reset_index("station")
    time_alone = {"time": SEASON}
    space = time_alone | {"lat": xs.BSpline(20, domain=(-60, 60)), "lon": xs.BSpline(30, domain=(0, 358))}
    cases = {
        "grid": (grid, space),
        "grid, static mask": (land, space),
        "grid, 15 % missing": (gaps, space),
        "stations, 15 % missing": (stations, space),
        "pixels": (grid, time_alone),
        "pixels, static mask": (land, time_alone),
        "pixels, 15 % missing": (gaps, time_alone),
    }
    for name, (data, bases) in cases.items():
        plain, own = (
            seconds(lambda e=errors, d=data, b=bases: d.spline.statistics(b, errors=e), tries)
            for errors in (None, xs.AR1("time"))
        )
        yield name, f"{1e9 * plain / data.size:.1f}", f"{1e9 * own / data.size:.1f}", f"{own / plain:.1f}"


def tables(replicates: int, *, quick: bool) -> None:
    title = f"coverage of a trend, {replicates} replicates each"
    header = ("missing", "rho", "AR1", "AR1, lags=1", "independent", "mean of rho found")
    measure.table(title, header, coverage(RHOS[2:3] if quick else RHOS, replicates))
    header = ("months in a run", "rho", "AR1", "warns", "AR1, lags=6")
    measure.table("gaps of four months", header, long_gaps(RHOS[1:2] if quick else RHOS[1:], replicates))
    header = ("data", "plain, ns a value", "AR1, ns a value", "ratio")
    measure.table("cost of the statistics", header, costs(*((12, 1) if quick else (100, TRIES))))
