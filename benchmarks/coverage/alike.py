"""Trends where errors are red in space and time: intervals of 95 % by every method, and what `errors="auto"` takes.

Errors are AR(1) from month to month and exp(-distance/6°) between the 5 × 6 pixels, of variance 1, for 20 years, beside
a season and a trend that change linearly over the region. Region: one trend for all pixels, pooled. Pixel: the trend at
a pixel of a field that is linear in latitude and longitude. Jackknife and scores are over years. Another climate, which
nothing was chosen on: 17 years of 7 × 9 pixels, a quarter of them land, 20 % of values and nine months in a row
missing, errors half of long memory (fractional noise, d = .35), half AR(1) of .6, each red in space over another length
that differs between latitude and longitude, and a fifth of the variance independent noise. Shares of replicates whose
interval holds the true slope, and in brackets the median length of intervals over 2 × 1.96 root mean square errors of
what they are about: 1 is as long as they have to be. All replicates are one fit, each a member of its batch with a ρ
of its own; how many periods are joined, and whether errors are alike, is decided once for all.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import xarray as xr

import xspline as xs
from benchmarks import measure
from benchmarks.coverage.older import Rng, lasting, months
from benchmarks.coverage.shares import NORMAL, rms

YEAR = 365.2425 * 86_400
SLOPE = 0.03 / YEAR
SEASON = xs.Polynomial(1) + xs.Fourier(1, "year")
RHOS = (0.0, 0.5, 0.8, 0.95)
METHODS = ("independent", "AR1", "jackknife", "scores", "auto")
Simulated = Callable[[Rng, float], xr.DataArray]


def red(lat: np.ndarray, lon: np.ndarray, north: float, east: float) -> np.ndarray:
    """Return a root of the covariance exp(-distance) of pixels, distances over lengths in degrees."""
    y, x = (c.ravel() for c in np.meshgrid(lat, lon, indexing="ij"))
    apart = np.hypot((y[:, None] - y) / north, (x[:, None] - x) / east)
    return np.linalg.cholesky(np.exp(-apart) + 1e-9 * np.eye(y.size))


def tilt_of(grid: xr.Dataset | xr.DataArray) -> xr.DataArray:
    """Return what trend and season change with, linearly over the region, of mean 0."""
    away = [c - c.mean() for c in (grid.lat, grid.lon)]
    return sum(c / (2 * float(c.max())) for c in away)


def with_truth(time: np.ndarray, lat: np.ndarray, lon: np.ndarray, errors: np.ndarray) -> xr.DataArray:
    """Add season and trend, whose mean slope is that of the middle."""
    coords = {"time": time, "lat": lat, "lon": lon}
    tilt = tilt_of(xr.Dataset(coords=coords))
    seconds = xr.DataArray((time - time[0]) / np.timedelta64(1, "s"), {"time": time}, "time")
    truth = SLOPE * (1 + tilt) * seconds + (1 + 0.5 * tilt) * np.cos(2 * np.pi * seconds / YEAR)
    noise = xr.DataArray(errors.reshape(len(time), lat.size, lon.size), coords, tuple(coords))
    return (truth + noise).transpose("time", "lat", "lon").rename("u")


def climate(rng: Rng, persistence: float) -> xr.DataArray:
    lat, lon, time = 2.0 * np.arange(5), 150 + 2.0 * np.arange(6), months(20)
    errors = lasting(rng, (len(time), lat.size * lon.size), persistence) @ red(lat, lon, 6.0, 6.0).T
    return with_truth(time, lat, lon, errors)


def another(rng: Rng, persistence: float) -> xr.DataArray:
    lat, lon, time = 3.0 * np.arange(7), 3.0 * np.arange(9), months(17)
    n, places, d, burnt = len(time), lat.size * lon.size, 0.35, 600
    weights = np.cumprod(np.append(1.0, (np.arange(1, burnt) - 1 + d) / np.arange(1, burnt)))
    white = rng.standard_normal((n + burnt, places))
    long = np.stack([weights @ white[i + burnt : i : -1] for i in range(n)]) / np.sqrt(np.sum(weights**2))
    short = lasting(rng, (n, places), persistence)
    own = math.sqrt(0.4) * (long @ red(lat, lon, 5.0, 20.0).T + short @ red(lat, lon, 8.0, 4.0).T)
    data = with_truth(time, lat, lon, own + math.sqrt(0.2) * rng.standard_normal((n, places)))
    land = (lat[:, None] + lon > 27) | ((lat[:, None] < 4) & (lon < 5))
    values = data.where(~xr.DataArray(land, dims=("lat", "lon"))).where(rng.random(data.shape) > 0.2)
    values[70:79] = np.nan
    return values


def intervals(data: xr.DataArray, is_region: bool) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield each method and the ends of its intervals of the slope."""
    middle: dict[str, Any] = {"time": data.time.values[data.sizes["time"] // 2]}
    bases: dict[str, Any] = {"time": SEASON, "lat": None, "lon": None}
    if not is_region:
        bases |= {"lat": xs.Polynomial(1), "lon": xs.Polynomial(1)}
        middle |= {"lat": data.lat.values[1], "lon": data.lon.values[-2]}
    fits = {
        "years": {"holder": "time.year"},
        "AR1": {"errors": xs.AR1("time")},
        "auto": {"errors": "auto"},
    }
    trends = {n: data.spline.fit(bases, **options).select(time=xs.Polynomial) for n, options in fits.items()}
    for name in METHODS:
        method = name if name in ("jackknife", "scores") else None
        ends = trends.get(name, trends["years"]).interval(middle, {"time": 1}, method=method)
        yield name, *(end.values.ravel() for end in ends.values())


def row(simulated: Simulated, is_region: bool, persistence: float, replicates: int) -> tuple[object, ...]:
    """Return coverage and length by each method, and CPU seconds of a replicate."""
    start = time.process_time()
    drawn = [simulated(np.random.default_rng([31, seed]), persistence) for seed in range(replicates)]
    data = xr.concat(drawn, "replicate")
    there = (data.lat == data.lat[1]) & (data.lon == data.lon[-2])
    if is_region:  # the pixels that there are
        there = data.notnull().any(("time", "replicate"))
    truth = SLOPE * (1 + float((tilt_of(data) * there).sum() / there.sum()))
    cells = []
    for _, lower, upper in intervals(data, is_region):
        reach = 2 * NORMAL * rms((lower + upper) / 2 - truth)
        held = np.mean((lower <= truth) & (truth <= upper))
        cells.append(f"{held:.1%} ({np.median(upper - lower) / reach:.2f})")
    return *cells, f"{(time.process_time() - start) / replicates:.1f}"


def tables(replicates: int, *, quick: bool) -> None:
    header = ("data", "AR(1)", *METHODS, "CPU s each")
    kinds = {"region": True, "pixel": False}
    rhos = RHOS[2:3] if quick else RHOS
    rows = (
        (kind, f"{rho:g}", *row(climate, own, rho, replicates)) for rho in rhos for kind, own in kinds.items()
    )
    measure.table(f"errors red in space and time, {replicates} replicates", header, rows)
    rows = ((kind, "0.6", *row(another, own, 0.6, replicates)) for kind, own in kinds.items())
    measure.table(f"another climate, {replicates} replicates", header, rows)
