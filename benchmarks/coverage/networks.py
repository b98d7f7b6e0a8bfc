"""Withheld stations of a network whose records differ by offsets, as of height, against kriging that knows the truth.

Ten years of monthly means of 38 stations, with a season, weather of 1.5 K that reaches 3° and does not last, an offset
of each station (standard deviation as printed) and noise of .2 K. Predicted are the offset, season and weather of seven
other stations at every ninth month, where these lie in the domain of the others. Shares are of such values of which the
95 % interval of the bare field holds the truth; errors are root mean square, those of kriging with the true covariance
and the true mean.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
import xarray as xr

from benchmarks import measure

STATIONS, SEEN, MONTHS, EVERY = 45, 38, 120, 9
REACH, WEATHER, NOISE = 3.0, 1.5, 0.2  # degrees, K, K
OFFSETS = (0.0, 1.5)
HEADER = ("offset, K", "replicates", "covered", "error", "error of kriging", "ratio", "CPU s each")


def network(
    rng: np.random.Generator, offset: float, months: int = MONTHS
) -> tuple[xr.DataArray, xr.DataArray, np.ndarray]:
    """Return observations of all stations, the truth, and the covariance of weather between stations."""
    lat, lon = rng.uniform(45, 50, STATIONS), rng.uniform(5, 15, STATIONS)
    plane = np.stack([lat, 0.67 * lon], axis=-1)
    weather = np.exp(-np.linalg.norm(plane[:, None] - plane, axis=-1) / REACH)
    root = np.linalg.cholesky(weather + 1e-9 * np.eye(STATIONS))
    season = 10 + 9 * np.sin(2 * np.pi * (np.arange(months) / 12 - 0.3))
    truth = season + offset * rng.standard_normal((STATIONS, 1))
    truth = truth + WEATHER * root @ rng.standard_normal((STATIONS, months))
    coords = {
        "lat": ("station", lat, {"units": "degrees_north"}),
        "lon": ("station", lon, {"units": "degrees_east"}),
        "time": pd.date_range("2000-01-01", periods=months, freq="MS"),
        "season": ("time", season),
    }
    known = xr.DataArray(truth, coords, ("station", "time"), "t2m", {"units": "degC"})
    return known + NOISE * rng.standard_normal(truth.shape), known, WEATHER**2 * weather


def kriged(data: xr.DataArray, offset: float, weather: np.ndarray) -> np.ndarray:
    """Return what the true covariance predicts of the stations that are not seen, [stations, months]."""
    left = (data - data.season).transpose("station", "time").values[:SEEN]
    # Months share offsets alone: the mean over months tells of these, and what is left of the weather of each.
    mean, anomaly = left.mean(axis=1), left - left.mean(axis=1, keepdims=True)
    here, there = weather[:SEEN, :SEEN] + NOISE**2 * np.eye(SEEN), weather[SEEN:, :SEEN]
    of_means = here / data.time.size + offset**2 * np.eye(SEEN)
    constant = there / data.time.size @ np.linalg.solve(of_means, mean)
    return np.asarray(data.season.values + constant[:, None] + there @ np.linalg.solve(here, anomaly))


def rows(replicates: int, months: int, offsets: Sequence[float]) -> Iterator[tuple[object, ...]]:
    for offset in offsets:
        start, held, errors, best = time.process_time(), [], [], []
        for seed in range(replicates):
            data, truth, weather = network(np.random.default_rng(seed), offset, months)
            field = data[:SEEN].drop_vars("season").spline.fit()
            others = truth[SEEN:, 3::EVERY]
            lower, upper = (end.transpose("station", "time") for end in field.interval(others).values())
            inside = np.isfinite(lower.values)
            held.append(((lower <= others) & (others <= upper)).values[inside].mean())
            middle = (lower + upper).values / 2
            errors.append(np.mean((middle - others.values)[inside] ** 2))
            own = kriged(data, offset, weather)[:, 3::EVERY]
            best.append(np.mean((own - others.values)[inside] ** 2))
        error, least = np.sqrt(np.mean(errors)), np.sqrt(np.mean(best))
        each = (time.process_time() - start) / replicates
        share = f"{np.mean(held):.1%} ± {np.std(held) / np.sqrt(replicates):.1%}"
        yield offset, replicates, share, f"{error:.2f}", f"{least:.2f}", f"{error / least:.2f}", f"{each:.1f}"


def tables(replicates: int, *, quick: bool) -> None:
    months, offsets = (24, OFFSETS[1:]) if quick else (MONTHS, OFFSETS)
    own = rows(max(replicates // 8, 1), months, offsets)
    measure.table("coverage of withheld stations", HEADER, own)
