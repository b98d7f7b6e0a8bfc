"""Trends of the bare fit where errors last: the linear trend of 240 months, against generalised least squares.

`fit().select(time=xs.Polynomial)` is the trend, and its derivative the slope. Errors are AR(1) of variance 1, of a
series, of a pixel with 15 % of the months missing at random, and of a region of 5 × 6 pixels, where they are
independent between pixels, or red: exp(-distance/6°). Shares are of the replicates in which the 95 % interval holds the
slope. Standard errors are over those of generalised least squares of the same functions (season and trend) by the true
covariance, median; so are errors, root mean square. Of a region it is the middle pixel, against generalised least
squares of that pixel alone: what the field borrows from other pixels is a ratio below 1.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import xarray as xr
from scipy.linalg import toeplitz

import xspline as xs
from benchmarks import measure
from benchmarks.coverage import shares
from benchmarks.coverage.older import Rng, lasting, months

YEARS, FEW = 20, 4  # the second in a quick run
YEAR = 365.2425 * 86_400
PERSISTENCES = (0.0, 0.5, 0.8, 0.95)
MISSING = 0.15
LAT, LON = 2.0 * np.arange(5), 150 + 2.0 * np.arange(6)
REACH = 6.0  # degrees, of errors that are red in space
SLOPE = 0.03 / YEAR  # of the truth
SLOWER = 4  # a region takes longer: a replicate for so many of the others
HEADER = ("data", "AR(1)", "replicates", "covered", "stderr / GLS", "error / GLS", "CPU s each")


@dataclass(frozen=True)
class Kind:
    """Data of some kind: a series, or a region with errors that reach so far."""

    name: str
    is_region: bool = False
    missing: float = 0.0
    reach: float = 0.0
    years: int = YEARS

    def data(self, rng: Rng, persistence: float) -> xr.DataArray:
        """Season, a trend and errors, with gaps."""
        time = months(self.years)
        seconds = elapsed(time)
        truth = SLOPE * seconds + np.cos(2 * np.pi * seconds / YEAR) + np.sin(4 * np.pi * seconds / YEAR) / 2
        if not self.is_region:
            values = truth + lasting(rng, (len(time),), persistence)
            values[rng.random(len(time)) < self.missing] = np.nan
            return xr.DataArray(values, {"time": time}, ("time",), "u")
        errors = lasting(rng, (len(time), LAT.size * LON.size), persistence)
        errors = errors @ np.linalg.cholesky(self.between()).T
        values = truth[:, None, None] + errors.reshape(-1, LAT.size, LON.size)
        coords = {"time": time, "lat": LAT, "lon": LON}
        return xr.DataArray(values, coords, tuple(coords), "u")

    def between(self) -> np.ndarray:
        """Covariance of the errors of pixels at one time."""
        lat, lon = (c.ravel() for c in np.meshgrid(LAT, LON, indexing="ij"))
        apart = np.hypot(lat[:, None] - lat, lon[:, None] - lon)
        return np.exp(-apart / self.reach) if self.reach else np.eye(lat.size)


KINDS = (
    Kind("series"),
    Kind("pixel, 15 % missing", missing=MISSING),
    Kind("region, white in space", is_region=True),
    Kind("region, red in space", is_region=True, reach=REACH),
)
MIDDLE = {"lat": LAT.size // 2, "lon": LON.size // 2}


def elapsed(time: np.ndarray) -> np.ndarray:
    """Seconds since the first."""
    return (time - time[0]) / np.timedelta64(1, "s")


def generalised(time: np.ndarray, persistence: float) -> float:
    """Standard error of the slope by generalised least squares, of errors of variance 1 at these months."""
    seconds = elapsed(time)
    waves = [wave(2 * np.pi * k * seconds / YEAR) for k in (1, 2) for wave in (np.cos, np.sin)]
    design = np.stack([seconds / YEAR, np.ones_like(seconds), *waves], axis=1)
    number = np.round(seconds / (YEAR / 12)).astype(int)
    row = persistence ** np.arange(number.max() + 1)  # 0 ** 0 is 1
    covariance = toeplitz(row)[np.ix_(number, number)]
    precision = design.T @ np.linalg.solve(covariance, design)
    return float(np.sqrt(np.linalg.inv(precision)[0, 0])) / YEAR


def slope(kind: Kind, data: xr.DataArray, persistence: float) -> tuple[float, float, float]:
    """Error and standard error of the slope, and its standard error by generalised least squares."""
    trend = data.spline.fit().select(time=xs.Polynomial)
    found, stderr = trend.derivative(time=1, stderr=True).data_vars.values()
    if kind.is_region:
        found, stderr, data = (x.isel(MIDDLE) for x in (found, stderr, data))
    best = generalised(data["time"].to_numpy()[data.notnull().to_numpy()], persistence)
    return float(found) - SLOPE, float(stderr), best


def row(kind: Kind, persistence: float, replicates: int) -> tuple[object, ...]:
    """As `HEADER` says."""
    start = time.process_time()
    drawn = (kind.data(np.random.default_rng(seed), persistence) for seed in range(replicates))
    error, stderr, best = np.array([slope(kind, data, persistence) for data in drawn]).T
    each = (time.process_time() - start) / replicates
    covered = shares.text([shares.held(e, s) for e, s in zip(error, stderr, strict=True)])
    ratios = np.median(stderr / best), shares.rms(error / best)
    return (kind.name, f"{persistence:g}", replicates, covered, *(f"{r:.2f}" for r in ratios), each)


def rows(kind: Kind, persistences: Sequence[float], replicates: int) -> Iterator[tuple[object, ...]]:
    for persistence in persistences:
        yield row(kind, persistence, replicates)


def tables(replicates: int, *, quick: bool) -> None:
    """A table of each kind of data, when it is done."""
    kinds, persistences = KINDS, PERSISTENCES
    if quick:  # a series with gaps, and a region
        kinds, persistences = tuple(replace(kind, years=FEW) for kind in KINDS[1::2]), (0.8,)
    for kind in kinds:
        own = max(replicates // SLOWER, 1) if kind.is_region else replicates
        measure.table(f"coverage, trends: {kind.name}", HEADER, rows(kind, persistences, own))
