"""Gross errors in real data: whether they are told, and what they cost a robust fit; and alarms of clean data.

Some of the values that fits may see are moved by ten standard deviations of the data, up or down. `told` says whether
`check()` of a plain fit names outliers; errors are those of withheld values, over those of the fit to clean data.

Clean data are drawn: a curve, a map and points, with normal errors (150 draws) and those of Student's t with five
degrees of freedom (50), of which `check()` is to tell the tails and no outliers.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import xarray as xr

import xspline as xs
from benchmarks import measure
from benchmarks.contest.sets import SETS, points, withheld

SHARES = (1 / 3000, 0.01, 0.05)
SPREADS = 10.0  # standard deviations of the data that a wrong value is off by
PLACES = 4000  # withheld values that errors are measured at
DRAWS = {"normal": 150, "t5": 50}  # of clean data
SINGLE = {
    "MODIS": {"lat": 60, "lon": 100},
    "TAO": {"lat": 7, "lon": 9, "time": 300},
    "Mediterranean": {"latitude": 32, "longitude": 86, "time": 8},
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tables", nargs="+", choices=("outliers", "false_alarms"), default=("outliers", "false_alarms")
    )
    parser.add_argument("--sets", nargs="+", choices=tuple(SINGLE), default=tuple(SINGLE))


def spoilt(data: xr.DataArray, share: float) -> xr.DataArray:
    """The same with some values moved far away."""
    rng = np.random.default_rng(1)
    wrong = (rng.random(data.shape) < share) & data.notnull().to_numpy()
    moved = SPREADS * float(data.std()) * rng.choice((-1.0, 1.0), data.shape)
    return data + np.where(wrong, moved, 0.0)


def rows(name: str, *, quick: bool) -> Iterator[tuple[str, ...]]:
    """A row for each share and kind of fit."""
    product = SETS[name]
    data = product.open(None, quick=quick)
    if data is None:
        return
    held = withheld(data, "random", {})
    train, truth = data.where(~held), points(data, held.to_numpy())
    truth = truth[np.random.default_rng(0).permutation(truth.size)[:PLACES]]
    sizes = {dim: min(n, 8) if quick else n for dim, n in SINGLE[name].items()}
    kinds: dict[str, Callable[..., xs.Field]] = {
        "bare": lambda y, **options: y.spline.fit(**options),
        "single": lambda y, **options: y.spline.fit(sizes, **options),
    }

    def rmse(field: xs.Field) -> float:
        return float(np.sqrt(((field.predict(truth) - truth) ** 2).mean()))

    for kind, fit in kinds.items():
        clean = rmse(fit(train))
        yield name, kind, "0", f"{rmse(fit(train, robust=True)) / clean:.2f}", "", ""
        for share in SHARES[1:2] if quick else SHARES:
            wrong = spoilt(train, share)
            plain = fit(wrong)
            told = any(
                finding.subject in ("outliers", "tails")
                for concerns in plain.check().concerns.values()
                for finding in concerns
            )
            robust = fit(wrong, robust=True)
            yield (
                name,
                kind,
                f"{share:.2%}",
                f"{rmse(robust) / clean:.2f}",
                f"{rmse(plain) / clean:.2f}",
                "yes" if told else "no",
            )


def clean(layout: str, errors: str, seed: int) -> tuple[xr.DataArray, dict[str, int]]:
    """Drawn data of a smooth truth, and the bases of a single field that can follow it."""
    rng = np.random.default_rng(seed)

    def noise(*shape: int) -> np.ndarray:
        return 0.3 * (rng.standard_normal(shape) if errors == "normal" else rng.standard_t(5, shape))

    if layout == "curve":
        x = np.linspace(0, 10, 400)
        return xr.DataArray(np.sin(x) + noise(400), {"x": x}, "x", "u"), {"x": 20}
    if layout == "map":
        x, y = np.linspace(0, 6, 30), np.linspace(0, 4, 20)
        values = np.sin(x)[:, None] * np.cos(y) + noise(30, 20)
        return xr.DataArray(values, {"x": x, "y": y}, ("x", "y"), "u"), {"x": 10, "y": 8}
    x, y = rng.uniform(0, 6, 400), rng.uniform(0, 4, 400)
    coords = {"x": ("obs", x), "y": ("obs", y)}
    return xr.DataArray(np.sin(x) * np.cos(y) + noise(400), coords, "obs", "u"), {"x": 8, "y": 6}


def alarms(*, quick: bool) -> Iterator[tuple[str, ...]]:
    """A row for each kind of fit and of errors: of how many draws `check()` says what."""
    subjects = ("outliers", "tails", "repeated", "structure", "uneven")
    for kind in ("bare", "single"):
        for errors, draws in DRAWS.items():
            draws = 1 if quick else draws
            told = dict.fromkeys(subjects, 0)
            for seed in range(draws):
                data, bases = clean(("curve", "map", "points")[seed % 3], errors, seed)
                concerns = data.spline.fit(bases if kind == "single" else None).check().concerns["u"]
                for subject in {finding.subject for finding in concerns} & set(subjects):
                    told[subject] += 1
            yield kind, errors, str(draws), *map(str, told.values())


def run(args: argparse.Namespace) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", xs.FitWarning)
        if "outliers" in args.tables:
            names = args.sets[: 1 if args.quick else None]
            table = [row for name in names for row in rows(name, quick=args.quick)]
            header = ("set", "fit", "gross errors", "robust / clean", "plain / clean", "told")
            title = f"outliers: values that are wrong by {SPREADS:.0f} standard deviations of the data"
            measure.table(title, header, table)
        if "false_alarms" in args.tables:
            header = ("fit", "errors", "draws", "outliers", "tails", "repeated", "structure", "uneven")
            measure.table("what is told of clean data", header, list(alarms(quick=args.quick)))
