"""Trends where errors are red in space and time: intervals of 95 % by every method, and what `errors="auto"` takes.

Errors are AR(1) from month to month and exp(-distance/6°) between the 5 × 6 pixels, of variance 1, for 20 years, beside
a season and a trend that change linearly over the region. Region: one trend for all pixels, pooled. Pixel: the trend at
a pixel of a field that is linear in latitude and longitude. Jackknife and scores are over years. Two other climates are
checks that nothing was chosen on when they were first run. Long memory: 17 years of 7 × 9 pixels, a quarter of them
land, 20 % of values and nine months in a row missing, errors half of long memory (fractional noise, d = .35), half
AR(1), each red in space over another length that differs between latitude and longitude, and a fifth of the variance
independent noise. Oscillating errors: 29 years of a third of 6 × 8 pixels missing, those in the south beginning later,
errors AR(2) with a period of 44 months, smooth in space, and a third of the variance independent noise.

Shares of replicates whose interval holds the true slope, and in brackets the median length of intervals over 2 × 1.96
root mean square errors of what they are about: 1 is as long as they have to be. All replicates are one fit, each a
member of its batch with a ρ of its own, for which it is decided once how many periods are joined; or a fit each.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
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
SLOWER = 4  # single fits take longer: a replicate for so many of the others
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


def oscillating(rng: Rng, _persistence: float) -> xr.DataArray:
    lat, lon, time = 2.5 * np.arange(6), 2.5 * np.arange(8), months(29)
    burnt = 400
    y, x = (c.ravel() for c in np.meshgrid(lat, lon, indexing="ij"))
    apart = np.hypot(y[:, None] - y, x[:, None] - x)
    between = np.exp(-((apart / 7.0) ** 2)) + 0.3 * np.exp(-apart / 2.0)
    e = (
        rng.standard_normal((len(time) + burnt, y.size))
        @ np.linalg.cholesky(between + 1e-6 * np.eye(y.size)).T
    )
    turn, keep = 2 * math.pi / 44, 0.96  # a period of 44 months
    for t in range(2, len(e)):
        e[t] += 2 * keep * math.cos(turn) * e[t - 1] - keep**2 * e[t - 2]
    e = e[burnt:] / e[burnt:].std()
    data = with_truth(time, lat, lon, 0.8 * e + 0.6 * rng.standard_normal(e.shape))
    stations = xr.DataArray(np.random.default_rng(0).random((6, 8)) > 0.35, dims=("lat", "lon"))
    stations[1, -2] = True
    values = data.where(stations).where(rng.random(data.shape) > 0.1)
    values[:60, :2] = np.nan  # those in the south begin later
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


def row(
    simulated: Simulated, is_region: bool, persistence: float, replicates: int, *, each: bool = False
) -> tuple[object, ...]:
    """Return coverage and length by each method, and CPU seconds of a replicate; `each` is a fit of its own."""
    start = time.process_time()
    drawn = [simulated(np.random.default_rng([31, seed]), persistence) for seed in range(replicates)]
    data = xr.concat(drawn, "replicate")
    there = (data.lat == data.lat[1]) & (data.lon == data.lon[-2])
    if is_region:  # the pixels that there are
        there = data.notnull().any(("time", "replicate"))
    truth = SLOPE * (1 + float((tilt_of(data) * there).sum() / there.sum()))
    fits = [[*intervals(own, is_region)] for own in (drawn if each else [data])]
    cells = []
    for ends in zip(*fits, strict=True):
        lower, upper = (np.concatenate([own[i] for own in ends]) for i in (1, 2))
        reach = 2 * NORMAL * rms((lower + upper) / 2 - truth)
        held = np.mean((lower <= truth) & (truth <= upper))
        cells.append(f"{held:.1%} ({np.median(upper - lower) / reach:.2f})")
    return *cells, f"{(time.process_time() - start) / replicates:.2f}"


def tables(replicates: int, *, quick: bool) -> None:
    header = ("data", "AR(1)", *METHODS, "CPU s each")
    kinds = {"region": True, "pixel": False}
    cases: dict[str, tuple[Simulated, Sequence[float], bool]] = {
        "errors red in space and time": (climate, RHOS[2:3] if quick else RHOS, False),
        "long memory": (another, (0.6,), False),
        "oscillating errors": (oscillating, (0.0,), False),
        "AR(1), each replicate a fit of its own": (climate, RHOS[3:], True),
    }
    if quick:  # the first and the last, which take both ways
        cases = {title: case for title, case in cases.items() if case[0] is climate}
    for title, (simulated, rhos, each) in cases.items():
        count = max(replicates // SLOWER, 1) if each else replicates
        rows = (
            (kind, f"{rho:g}", *row(simulated, own, rho, count, each=each))
            for rho in rhos
            for kind, own in kinds.items()
        )
        measure.table(f"{title}, {count} replicates", header, rows)
