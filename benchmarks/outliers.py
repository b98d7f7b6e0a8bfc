"""Gross errors in real data: whether they are told, and what they cost a robust fit.

Some of the values that fits may see are moved by ten standard deviations of the data, up or down. `told` says whether
`check()` of a plain fit names outliers; errors are those of withheld values, over those of the fit to clean data.
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
SINGLE = {
    "MODIS": {"lat": 60, "lon": 100},
    "TAO": {"lat": 7, "lon": 9, "time": 300},
    "Mediterranean": {"latitude": 32, "longitude": 86, "time": 8},
}


def configure(parser: argparse.ArgumentParser) -> None:
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


def run(args: argparse.Namespace) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", xs.FitWarning)
        table = [row for name in args.sets for row in rows(name, quick=args.quick)]
    header = ("set", "fit", "gross errors", "robust / clean", "plain / clean", "told")
    measure.table(
        f"outliers: values that are wrong by {SPREADS:.0f} standard deviations of the data", header, table
    )
