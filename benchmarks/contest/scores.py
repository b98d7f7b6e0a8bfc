"""Scores of predictions at withheld values, rows of a table, and what was published."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import stats

from benchmarks import measure

Array = np.ndarray
LEVEL = 0.95
NORMAL = float(stats.norm.ppf((1 + LEVEL) / 2))
HEADER = (
    "fit",
    "MAE",
    "RMSE",
    "CRPS",
    "interval score",
    "coverage",
    "fit, s",
    "and predicted, s",
    "CPU, s",
    "peak, GB",
)
# Heaton et al. (2019), JABES 24:398-425, table 3, recalled: MAE, RMSE, CRPS, interval score, coverage, minutes, cores.
PUBLISHED = (
    ("SPDE (INLA)", 1.10, 1.53, 0.83, 8.85, 0.97, 120.33, 2),
    ("NNGP, conjugate", 1.21, 1.64, 0.85, 7.57, 0.95, 2.06, 10),
    ("NNGP, response", 1.24, 1.68, 0.87, 7.50, 0.94, 42.85, 10),
    ("LatticeKrig", 1.22, 1.68, 0.87, 7.55, 0.96, 27.92, 1),
    ("periodic embedding", 1.29, 1.79, 0.91, 7.44, 0.93, 9.81, 1),
    ("partitioning", 1.41, 1.80, 1.02, 10.49, 0.86, 79.98, 55),
    ("multi-resolution (MRA)", 1.33, 1.85, 0.94, 8.00, 0.92, 15.61, 1),
    ("Gapfill", 1.33, 1.86, 1.17, 34.78, 0.36, 1.39, 40),
    ("local GP (laGP)", 1.65, 2.08, 1.17, 10.81, 0.83, 2.27, 40),
    ("fixed rank kriging (FRK)", 1.96, 2.44, 1.44, 14.08, 0.79, 2.32, 1),
    ("tapering", 1.87, 2.45, 1.32, 10.31, 0.93, 133.26, 1),
    ("metakriging", 2.08, 2.50, 1.44, 10.77, 0.89, 2888.52, 30),
    ("predictive process", 2.15, 2.64, 1.55, 15.51, 0.83, 640.48, 1),
)


def mae(error: Array) -> float:
    return float(np.mean(abs(error)))


def rmse(error: Array) -> float:
    return float(np.sqrt(np.mean(error**2)))


def crps(error: Array, sd: Array) -> float:
    """The continuous ranked probability score of normal predictions, mean (Gneiting and Raftery 2007, 4.2)."""
    z = error / sd
    return float(np.mean(sd * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))))


def interval_score(error: Array, sd: Array) -> float:
    """Width of the 95 % interval, and 2/0.05 times how far outside a value lies, mean (the same, 6.2)."""
    half = NORMAL * sd
    return float(np.mean(2 * half + 2 / (1 - LEVEL) * np.maximum(abs(error) - half, 0)))


def coverage(error: Array, sd: Array) -> float:
    """The share of values inside their 95 % intervals."""
    return float(np.mean(abs(error) <= NORMAL * sd))


@dataclass(frozen=True)
class Row:
    """How one prediction scored; NaN where it has no error bars, or was not measured.

    `filled` is the share that it does not predict and took from the nearest value.
    """

    name: str
    mae: float = np.nan
    rmse: float = np.nan
    crps: float = np.nan
    interval: float = np.nan
    coverage: float = np.nan
    fitted: float = np.nan  # seconds
    fit_cpu: float = np.nan  # seconds of all cores, of the fit alone
    predicted: float = np.nan  # seconds from the first to the last
    cpu: float = np.nan  # seconds of all cores
    peak: float = np.nan  # bytes of the process
    filled: float = 0.0
    why: str = ""

    @classmethod
    def of(
        cls, name: str, error: Array, sd: Array | None = None, some: Any = slice(None), **others: float
    ) -> Row:
        """The row of errors; standard deviations may be those of `some` of them."""
        scored = {}
        if sd is not None:
            own = error[some]
            scored = {
                "crps": crps(own, sd),
                "interval": interval_score(own, sd),
                "coverage": coverage(own, sd),
            }
        return cls(name, mae(error), rmse(error), **scored, **others)

    @classmethod
    def absent(cls, name: str, why: str) -> Row:
        return cls(name, why=why)

    def cells(self) -> tuple[object, ...]:
        """As `HEADER` says."""
        if self.why:
            return (self.name, self.why, *[""] * (len(HEADER) - 2))
        name = self.name + (f" ({self.filled:.1%} from the nearest)" if self.filled else "")
        numbers = (self.mae, self.rmse, self.crps, self.interval, self.coverage)
        costs = (self.fitted, self.predicted, self.cpu, self.peak / 1e9)
        texts = [_text(x, ".4g") for x in numbers]
        return (name, *texts, *[_text(x, ",.1f") for x in costs[:3]], _text(costs[3], ".2f"))


def published() -> Iterator[Row]:
    for name, *scored, minutes, cores in PUBLISHED:
        machine = f"{cores} core{'s' * (cores > 1)}"
        yield Row(f"{name}; published, recalled, {machine}", *scored, predicted=60 * minutes)


@dataclass
class Clock:
    """Seconds, CPU seconds and peak memory since it was made."""

    start: float = field(default_factory=time.perf_counter)
    cpu: float = field(default_factory=time.process_time)

    def __post_init__(self) -> None:
        measure.reset_peak()

    def costs(self) -> dict[str, float]:
        return {
            "predicted": time.perf_counter() - self.start,
            "cpu": time.process_time() - self.cpu,
            "peak": measure.peak(),
        }


def _text(x: float, form: str) -> str:
    return "" if np.isnan(x) else format(x, form)
