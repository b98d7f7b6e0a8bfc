"""Intervals of `field.interval`, and false discoveries of `field.significance`.

Whole curves: the share of replicates in which a simultaneous band of 95 % holds the truth at all 200 labels, beside the
share of labels that ordinary intervals hold, and how many standard errors the band reaches to. Truths are in the span
of a regression, or sums of waves of amplitude k^-slope; with slope 1 they are about as rough as the default penalty
expects, and smoother truths are covered more often, as with ordinary intervals. Levels: intervals of other levels, of
few values too, for the truth at the middle of the values and for a new observation there. Discoveries: trends of 30
years on a map of 16 × 20 pixels, none in the six rows of the south, which grow over six rows and are large in the
north; false ones among all that are found, mean over replicates, at a rate of 5 % ("uncontrolled": each pixel for
itself, p < 0.05), and the share of true ones that is found. Errors are independent in time, in space too or alike over
6 pixels. Withheld values: new observations of the contest's sets at 10,000 of the places at most, beside the interval
put together by hand from `stderr` and `sigma`, the mean of the noise everywhere.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import xarray as xr

import xspline as xs
from benchmarks import contest, measure
from benchmarks.coverage import shares
from benchmarks.coverage.older import Rng

X = np.linspace(0, 1, 200)
NOISE, RATE = 0.5, 0.05
LEVELS = (0.5, 0.8, 0.95, 0.99)
LAT, LON, YEARS, FEW = np.arange(-7.5, 8), np.arange(20.0), 30, 4  # a quick run has few years
REACH = 6.0  # pixels
RAMP = np.clip((LAT + 2.5) / 5, 0, 1)
TRENDS = xr.DataArray(
    0.08 * RAMP**2 * (3 - 2 * RAMP), {"lat": LAT}, "lat"
)  # a year, of errors of deviation 1
SLOWER = 10  # a fine field takes longer: a replicate for so many of the others
SETS = ("MODIS", "TAO")


# Whole curves


def cubic(_rng: Rng) -> np.ndarray:
    return 1 + X - X**3


def waves(slope: float) -> Callable[[Rng], np.ndarray]:
    def truth(rng: Rng) -> np.ndarray:
        k = np.arange(1, 9)
        a, b = rng.standard_normal((2, k.size)) * k**-slope
        phase = 2 * np.pi * k * X[:, None]
        return np.cos(phase) @ a + np.sin(phase) @ b

    return truth


CURVES: dict[str, tuple[Callable[[Rng], np.ndarray], dict[str, Any]]] = {
    "in the span, regression on 4 functions": (cubic, {"x": xs.Polynomial(3)}),
    "in the span, regression on 15 functions": (cubic, {"x": 15, "penalty": 0}),
    "k^-1, 30 functions, REML": (waves(1.0), {"x": 30}),
    "k^-1.5, 30 functions, REML": (waves(1.5), {"x": 30}),
    "k^-3, 30 functions, REML": (waves(3.0), {"x": 30}),
}


def curve(name: str, seed: int) -> tuple[float, float, float]:
    """The share of labels that intervals hold, whether a band holds all, and its reach in standard errors."""
    rng = np.random.default_rng(seed)
    make, options = CURVES[name]
    truth = make(rng)
    field = xr.DataArray(truth + NOISE * rng.standard_normal(X.size), {"x": X}, "x", "u").spline.fit(
        **options
    )
    each, band = (field.interval(simultaneous=whole) for whole in (False, True))
    held, whole = ((own.lower <= truth) & (truth <= own.upper) for own in (each, band))
    reach = (band.upper - band.lower).mean() / 2 / field.stderr().mean()
    return float(held.mean()), float(whole.all()), float(reach)


def curves(replicates: int) -> Iterator[tuple[object, ...]]:
    for name in CURVES:
        held, whole, reach = zip(*(curve(name, seed) for seed in range(replicates)), strict=True)
        yield name, replicates, shares.text(held), shares.text(whole), f"{np.mean(reach):.2f}"


# Levels


FITS: dict[str, tuple[int, dict[str, Any]]] = {
    "line": (6, {"x": xs.Polynomial(1)}),
    "12 functions": (100, {"x": 12}),
    "bare": (12, {}),
    "bare, more": (100, {}),
}


def levels(name: str, seed: int) -> np.ndarray:
    """Whether intervals of each level hold the truth, and a new observation, [2, level]."""
    rng = np.random.default_rng(seed)
    count, options = FITS[name]
    x = np.linspace(0, 1, count)
    slope, height = rng.standard_normal(2)

    def truth(at: Any) -> Any:
        return height + slope * at + (0 if name == "line" else np.sin(2 * np.pi * at + height))

    field = xr.DataArray(truth(x) + NOISE * rng.standard_normal(count), {"x": x}, "x", "u").spline.fit(
        **options
    )
    at, new = 0.52, truth(0.52) + NOISE * rng.standard_normal()
    held = []
    for value, options in ((truth(at), {}), (new, {"new": True})):
        ends = [field.interval(level=level, x=at, **options) for level in LEVELS]
        held.append([bool(e.lower <= value <= e.upper) for e in ends])
    return np.array(held, float)


def all_levels(replicates: int) -> Iterator[tuple[object, ...]]:
    for name, (count, _) in FITS.items():
        held = np.array([levels(name, seed) for seed in range(replicates)])
        for k, what in enumerate(("truth", "new observation")):
            yield name, count, what, replicates, *(shares.text(held[:, k, j]) for j in range(len(LEVELS)))


# Discoveries


def between(reach: float) -> np.ndarray:
    """A root of the covariance of errors of pixels at one time."""
    lat, lon = (c.ravel() for c in np.meshgrid(LAT, LON, indexing="ij"))
    apart = np.hypot(lat[:, None] - lat, lon[:, None] - lon)
    return np.linalg.cholesky(np.exp(-apart / reach) if reach else np.eye(lat.size))


def each_pixel(data: xr.DataArray) -> xs.Field:
    return data.spline.fit(time=xs.Polynomial(1))


def one_field(data: xr.DataArray, **options: Any) -> xs.Field:
    field = data.spline.fit({"lat": 10, "lon": 10, "time": xs.Polynomial(1)}, **options)
    return field.select(time=xs.Polynomial)


def in_parts(data: xr.DataArray) -> xs.Field:
    return one_field(data, holder="time.year")


def with_fine(data: xr.DataArray) -> xs.Field:
    return one_field(data, fine=True)


MAPS: dict[str, tuple[Callable[[xr.DataArray], xs.Field], float, dict[str, Any]]] = {
    "a fit for each pixel": (each_pixel, 0.0, {}),
    "a fit for each pixel, errors alike in space": (each_pixel, REACH, {}),
    "a single field": (one_field, 0.0, {}),
    "a single field, errors alike in space": (one_field, REACH, {}),
    "the same, jackknife over years": (in_parts, REACH, {"method": "jackknife"}),
    "beside a fine field": (with_fine, 0.0, {}),
    "beside a fine field, errors alike in space": (with_fine, REACH, {}),
}


def discoveries(name: str, seed: int, years: int = YEARS) -> list[tuple[float, float]]:
    """The share of false discoveries, and that of true ones that are found: uncontrolled, by "BH", and by "BY"."""
    make, reach, options = MAPS[name]
    rng, root = np.random.default_rng(seed), between(reach)
    time = (np.datetime64("1990", "Y") + np.arange(years)).astype("datetime64[ns]")
    errors = (rng.standard_normal((years, len(root))) @ root.T).reshape(years, LAT.size, LON.size)
    data = xr.DataArray(errors, {"time": time, "lat": LAT, "lon": LON}, ("time", "lat", "lon"), "u")
    field = make(data + TRENDS * xr.DataArray(np.arange(years), dims="time"))
    at = None if make is each_pixel else {"lat": LAT, "lon": LON, "time": time[:1]}
    ends = field.interval(at, {"time": 1}, level=1 - RATE, **options)
    controlled = [
        field.significance(at, {"time": 1}, rate=RATE, procedure=p, **options) for p in ("BH", "BY")
    ]
    found = []
    for own in [(ends.lower > 0) | (ends.upper < 0), *controlled]:
        false = float((own & (TRENDS == 0)).sum())
        every = float(own.sum())
        found.append((false / max(every, 1.0), float(own.where(TRENDS > 0).mean())))
    return found


def maps(replicates: int, names: Sequence[str], years: int) -> Iterator[tuple[object, ...]]:
    for name in names:
        make = MAPS[name][0]
        number = max(replicates // SLOWER, 1) if make is with_fine else replicates
        own = np.array([discoveries(name, seed, years) for seed in range(number)])
        rates = [shares.text(own[:, k, 0]) for k in range(3)]
        yield name, number, *rates, *(f"{own[:, k, 1].mean():.0%}" for k in range(3))


# Withheld values


def withheld(quick: bool) -> Iterator[tuple[object, ...]]:
    args = argparse.Namespace(data=None, quick=quick, seeds=(contest.SEED,))
    for name in SETS[: 1 if quick else None]:
        for _, problem in contest.problems(name, args):
            field = problem.train.spline.fit()
            truth = problem.truth.isel(point=problem.some(contest.PLACES))
            ends, mean = field.interval(truth, new=True), field.predict(truth)
            half = shares.NORMAL * np.hypot(field.stderr(truth), float(field.summary().sigma))
            by_hand = float((abs(mean - truth) <= half).mean())
            covered = float(((ends.lower <= truth) & (truth <= ends.upper)).mean())
            yield name, problem.how, truth.size, f"{covered:.1%}", f"{by_hand:.1%}"


def tables(replicates: int, *, quick: bool) -> None:
    measure.table(
        "coverage, intervals: whole curves",
        ("truth and fit", "replicates", "labels, ordinary", "whole curve, simultaneous", "reach"),
        curves(replicates),
    )
    measure.table(
        "coverage, intervals: levels",
        ("fit", "values", "of", "replicates", *(f"{level:.0%}" for level in LEVELS)),
        all_levels(replicates),
    )
    kinds = ("uncontrolled", "BH", "BY")
    measure.table(
        "coverage, intervals: false discoveries, and true ones that are found",
        ("trend", "replicates", *(f"false, {k}" for k in kinds), *(f"found, {k}" for k in kinds)),
        maps(replicates, list(MAPS)[:: 3 if quick else 1], FEW if quick else YEARS),
    )
    rows = list(withheld(quick))
    if rows:
        header = ("set", "withheld", "values", "covered", "by hand")
        measure.table("coverage, intervals: withheld values, nominal 95 %", header, rows)
