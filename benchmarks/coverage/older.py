"""B-splines by name: errors that are independent, errors that last from month to month, and large gaps.

Coverage across the function (Nychka 1988): the share of places and replicates at which the truth is within the quantile
times the standard error of the estimate. Truths are sums of waves of random direction and phase, of amplitude k^-slope
at the wavenumber k; strengths are chosen by REML in every replicate. Slope 2 is as rough as the penalty expects (the
spectrum of its prior); smoother truths are covered more often. Errors include what the choice of the strengths leaves
open; "λ as known" beside them leaves that out. Of large gaps, a block inside and one at an edge that are a quarter of
the grid, shares are those of the places in the gaps alone, also where the truth is smoother or rougher than expected.
Of the orders of roughness 1 and 2, REML should find that of the truth the likelier.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from scipy import stats

import xspline as xs
from benchmarks import measure
from benchmarks.coverage.shares import NORMAL, mean, text
from xspline.spaces import Axis

TRUTHS = 20  # functions, each with its share of the replicates
NOISE = 0.4  # standard deviation; that of the truths is about 1
FIELD, SLOPES, JACKKNIFE = (0.93, 0.97), (0.92, 0.99), (0.90, 0.97)
LIKELIER = 0.8  # share of the replicates in which the order of the truth is the likelier
KNOWN = ", λ as known"
ROUGHNESSES = (2.0, 3.0, 1.5)  # slopes of truths in large gaps: as expected, smoother, rougher
PERSISTENCE, YEARS = 0.7, 12
Rng = np.random.Generator
Covered = dict[str, list[float]]


@dataclass(frozen=True, eq=False)
class Waves:
    """Σ a cos(k·x + φ) over the unit square."""

    k: np.ndarray  # [waves, 2]
    amplitude: np.ndarray
    phase: np.ndarray

    @staticmethod
    def draw(rng: Rng, slope: float = 2.0, cycles: float = 6.0) -> Waves:
        """Waves of up to so many cycles, on a square of 1.5 (so not periodic on the unit square); variance about 1."""
        side = np.arange(-16, 17) / 1.5
        k = np.stack(np.meshgrid(side, side[side >= 0], indexing="ij"), axis=-1).reshape(-1, 2)
        length = np.hypot(*k.T)
        k, length = (a[(length > 0) & (length <= cycles)] for a in (k, length))
        amplitude = rng.standard_normal(len(k)) / length**slope
        amplitude /= np.sqrt(np.sum(amplitude**2) / 2)
        return Waves(2 * np.pi * k, amplitude, rng.uniform(0, 2 * np.pi, len(k)))

    def __call__(self, x: xr.DataArray, z: xr.DataArray, dx: int = 0, dz: int = 0) -> xr.DataArray:
        """The sum, or its derivative of these orders."""
        waves = xr.Dataset(
            {
                "x": ("wave", self.k[:, 0]),
                "z": ("wave", self.k[:, 1]),
                "a": ("wave", self.amplitude),
                "phase": ("wave", self.phase),
            }
        )
        scale = waves.a * waves.x**dx * waves.z**dz
        return (scale * np.cos(waves.x * x + waves.z * z + waves.phase + (dx + dz) * np.pi / 2)).sum("wave")


def holds(field: xs.Field, truth: xr.DataArray, quantile: float, **options: Any) -> float:
    """Share of the truth's places inside the interval."""
    error = field.stderr(truth, **options)
    return float((abs(field.predict(truth) - truth) <= quantile * error).where(truth.notnull()).mean())


def holds_derivative(
    field: xs.Field, truth: xr.DataArray, quantile: float, smoothing_uncertainty: bool = True, **orders: int
) -> float:
    found, error = field.derivative(
        truth, **orders, stderr=True, smoothing_uncertainty=smoothing_uncertainty
    ).data_vars.values()
    return float((abs(found - truth) <= quantile * error).mean())


# Independent errors


def unit_square(size: int = 18) -> xs.Space:
    return xs.Space({c: xs.BSpline(size, domain=(0, 1)) for c in "xz"}, axes={c: Axis() for c in "xz"})


def cells(count: int) -> xr.Dataset:
    """Centres of a square grid."""
    at = (np.arange(count) + 0.5) / count
    return xr.Dataset(coords={"x": at, "z": at})


def gappy_grid(rng: Rng) -> xr.DataArray:
    """Ones on 36 x 36 cells, NaN at a quarter of them at random and in a hole."""
    grid = cells(36)
    hole = (abs(grid.x - 0.7) < 0.07) & (abs(grid.z - 0.6) < 0.07)
    seen = (xr.ones_like(grid.x * grid.z)).where(~hole)
    return seen.where(rng.random(seen.shape) < 0.75)


def scattered(rng: Rng) -> xr.DataArray:
    """Ones at 900 points."""
    x, z = rng.random((2, 900))
    return xr.DataArray(np.ones(900), {"x": ("obs", x), "z": ("obs", z)}, ("obs",))


INDEPENDENT = {"grid with gaps": gappy_grid, "scattered points": scattered}


def independent(name: str, replicates: int, seed: int = 0) -> Covered:
    """Shares that intervals of each replicate hold, for the field and its first derivatives, over the whole domain."""
    rng = np.random.default_rng(seed)
    seen, space, at = INDEPENDENT[name](rng), unit_square(), cells(30)
    truths = [Waves.draw(rng) for _ in range(TRUTHS)]
    found: Covered = {f"{what}{suffix}": [] for suffix in ("", KNOWN) for what in ("field", "d/dx", "d/dz")}
    for replicate in range(replicates):
        truth = truths[replicate % TRUTHS]
        y = truth(seen.x, seen.z) * seen + NOISE * rng.standard_normal(seen.shape)
        field = y.spline.fit(space, penalty="reml")
        for known, suffix in ((False, ""), (True, KNOWN)):
            how = {"smoothing_uncertainty": not known}
            found[f"field{suffix}"].append(holds(field, truth(at.x, at.z), NORMAL, **how))
            for c in "xz":
                slope = truth(at.x, at.z, **{f"d{c}": 1})
                found[f"d/d{c}{suffix}"].append(holds_derivative(field, slope, NORMAL, **how, **{c: 1}))
    return found


# Large gaps


def large_gaps() -> xr.DataArray:
    """Whether a place of 36 x 36 cells lies in a gap: a block inside, and one at an edge."""
    grid = cells(36)
    inside = (abs(grid.x - 0.35) < 0.17) & (abs(grid.z - 0.4) < 0.17)
    edge = (grid.x > 0.66) & (abs(grid.z - 0.7) < 0.17)
    return inside | edge


def in_gaps(slope: float, replicates: int, seed: int = 0, penalty: Any = "reml") -> Covered:
    """Shares of the places in large gaps, and of the others, that intervals of each replicate hold.

    The truth is as rough as amplitudes k^-slope make it.
    """
    rng = np.random.default_rng(seed)
    gaps, space = large_gaps(), unit_square()
    found: Covered = {f"{where}{suffix}": [] for suffix in ("", KNOWN) for where in ("gaps", "elsewhere")}
    for _ in range(replicates):  # a truth for each: places in one gap are off together
        truth = Waves.draw(rng, slope)(gaps.x, gaps.z)
        noisy = truth + NOISE * rng.standard_normal(truth.shape)
        field = noisy.where(~gaps).spline.fit(space, penalty=penalty)
        for known, suffix in ((False, ""), (True, KNOWN)):
            for where, places in (("gaps", gaps), ("elsewhere", ~gaps)):
                share = holds(field, truth.where(places), NORMAL, smoothing_uncertainty=not known)
                found[f"{where}{suffix}"].append(share)
    return found


def likelier(order: int, replicates: int, seed: int = 0) -> list[float]:
    """1 where REML finds the order of the truth, k^-order up to the scale of the grid, the likelier of two; else 0."""
    rng, gaps, space = np.random.default_rng(seed), large_gaps(), unit_square(27)
    found = []
    for _ in range(replicates):
        truth = Waves.draw(rng, float(order), cycles=16.0)(gaps.x, gaps.z)
        statistics = (truth + NOISE * rng.standard_normal(truth.shape)).where(~gaps).spline.statistics(space)
        summaries = {k: statistics.solve(xs.Roughness("reml", order=k)).summary() for k in (1, 2)}
        scores = {k: float(summary.comparable_score) for k, summary in summaries.items()}
        found.append(float(min(scores, key=scores.__getitem__) == order))
    return found


# Errors that last


def months(years: int) -> np.ndarray:
    return np.arange("2001-01", f"{2001 + years}-01", dtype="datetime64[M]").astype("datetime64[ns]")


def seasonal_truth(rng: Rng, grid: xr.Dataset) -> xr.DataArray:
    """Mean, annual cycle and trend, each a smooth field; (time, lat, lon)."""
    x, z = (grid.lat + 20) / 40, (grid.lon - 150) / 60
    year = xr.DataArray(np.arange(grid.time.size) / 12, {"time": grid.time})
    parts = [1 + 0 * year, np.cos(2 * np.pi * year), np.sin(2 * np.pi * year), 0.1 * (year - year.mean())]
    # The jackknife knows nothing of what smoothing takes away: truths that the splines resolve.
    return sum(part * Waves.draw(rng, slope=3.0, cycles=2.7)(x, z) for part in parts)


def lasting(rng: Rng, shape: tuple[int, ...], persistence: float = PERSISTENCE) -> np.ndarray:
    """AR(1) along the first axis, of variance 1."""
    errors = rng.standard_normal(shape)
    for t in range(1, shape[0]):
        errors[t] = persistence * errors[t - 1] + np.sqrt(1 - persistence**2) * errors[t]
    return errors


def persistent(replicates: int, seed: int = 0, years: int = YEARS) -> Covered:
    """Shares that intervals of each replicate hold, of the field, by the model and by the jackknife over years."""
    rng = np.random.default_rng(seed)
    grid = xr.Dataset(
        coords={"time": months(years), "lat": np.linspace(-20, 20, 12), "lon": np.linspace(150, 210, 14)}
    )
    student = float(stats.t.ppf(0.975, years - 1))
    bases = {"lat": 9, "lon": xs.BSpline(10), "time": xs.Fourier(2, "year") + xs.Polynomial(2)}
    found: Covered = {"model": [], "jackknife": []}
    for _ in range(replicates):
        truth = seasonal_truth(rng, grid)
        field = (truth + lasting(rng, truth.shape)).spline.fit(bases, penalty="reml", holder="time.year")
        some = truth.isel(time=slice(None, None, 7))
        found["model"].append(holds(field, some, NORMAL))
        found["jackknife"].append(holds(field, some, student, method="jackknife"))
    return found


# The table


def rows(replicates: int) -> Iterator[tuple[str, str, list[float], float, float]]:
    """(errors, what, shares that are covered, bounds)."""
    for name in INDEPENDENT:
        for what, shares in independent(name, replicates).items():
            bounds = (0.0, 1.0) if KNOWN in what else FIELD if what == "field" else SLOPES
            yield (f"independent, {name}", what, shares, *bounds)
    for slope in ROUGHNESSES:
        for what, shares in in_gaps(slope, replicates).items():
            bounds = FIELD if slope == ROUGHNESSES[0] and KNOWN not in what else (0.0, 1.0)
            yield (f"independent, large gaps, k^-{slope:g}", what, shares, *bounds)
    for order in (1, 2):
        shares = likelier(order, replicates)
        yield (f"large gaps, k^-{order}", f"order {order} is the likelier", shares, LIKELIER, 1.0)
    for what, shares in persistent(replicates).items():
        bounds = (0.0, JACKKNIFE[0]) if what == "model" else JACKKNIFE
        yield (f"AR(1) {PERSISTENCE}, {YEARS} years", f"field, {what}", shares, *bounds)


def tables(replicates: int, *, quick: bool = False) -> None:
    table = [
        (
            errors,
            what,
            text(shares),
            f"{lo:.0%} - {hi:.0%}" if hi - lo < 1 else "",
            ("yes" if lo <= mean(shares) <= hi else "NO") if hi - lo < 1 else "",
        )
        for errors, what, shares, lo, hi in rows(replicates)
    ]
    header = ("errors", "of", "covered", "asked", "kept")
    measure.table(f"coverage: {replicates} replicates of nominal 95 % intervals", header, table)
