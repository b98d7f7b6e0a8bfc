"""Withheld values of real products: the bare `fit()` against published entries, fits by hand, and interpolation.

The contest of Heaton et al. (2019, JABES 24:398-425): MODIS land surface temperatures of one day with the gaps of
another. Fits see `train`; scored is `truth` where train is missing. Predictions are normal with variance stderr² +
sigma². Published rows are the paper's figures, recalled, with its run times on its machines.

Further sets: a tenth of the values is withheld, single ones at random and whole blocks. The best fit by hand is taken
by its error on what was withheld, so it is an oracle. Then El Niño: the mean of the bare field over the Niño 3.4 region
(5S-5N, 170W-120W) against that of the data, month by month.
"""

from __future__ import annotations

import argparse
import inspect
import os
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray as xr

import xspline as xs
from benchmarks import measure
from benchmarks.contest import peers, scores
from benchmarks.contest.scores import Row
from benchmarks.contest.sets import CONTEST, SETS, WITHHELD, Problem, path_of, withheld

TABLES = ("contest", "sets", "nino")
ROWS = ("bare", "hand", "peers", "published")
TOLERANCE = 0.03  # of the bare fit over the best by hand
NINO = 0.95  # correlation
BARE = "bare fit()"
SUMMARY = (
    "set",
    "withheld",
    "bare RMSE",
    "best by hand",
    "its RMSE",
    "over it",
    "within 3 %",
    "best peer",
    "its RMSE",
    "bare / peer",
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", help="folder of the products (default: XSPLINE_DATA_DIR)")
    parser.add_argument("--tables", choices=TABLES, nargs="*", default=TABLES)
    parser.add_argument("--rows", choices=ROWS, nargs="*", default=ROWS, help="which kinds of rows")
    parser.add_argument(
        "--sets", choices=tuple(SETS), nargs="*", default=tuple(SETS), help="of the further sets"
    )
    parser.add_argument(
        "--seconds", type=float, help="budget of the bare fit, if fit() takes one (--quick: 3)"
    )


def budget(seconds: float | None) -> dict[str, float]:
    """The argument of `fit` that gives the bare fit more or less time."""
    if seconds is None:
        return {}
    if "seconds" not in inspect.signature(xs.fit).parameters:
        raise SystemExit("contest: --seconds is given, and fit() has no argument for it; leave it out")
    return {"seconds": seconds}


def fitted(name: str, problem: Problem, fit: Any) -> Row:
    """The row of a spline field with its error bars; one that cannot be had says why."""
    clock = scores.Clock()
    try:
        field = fit(problem.train)
        seconds = time.perf_counter() - clock.start
        error = (field.predict(problem.truth) - problem.truth).to_numpy()
        sd = np.hypot(field.stderr(problem.truth).to_numpy(), float(field.summary().sigma))
    except (ValueError, xs.ConvergenceError, MemoryError) as failure:
        return Row.absent(name, f"{type(failure).__name__}: {str(failure).splitlines()[0][:80]}")
    shape = " × ".join(map(str, field.space.shape))
    return Row.of(f"{name}, {shape}" if name == BARE else name, error, sd, fitted=seconds, **clock.costs())


def of_library(problem: Problem, args: argparse.Namespace) -> Iterator[Row]:
    options = budget(args.seconds)
    if "bare" in args.rows:
        yield fitted(BARE, problem, lambda data: data.spline.fit(**options))
    if "hand" in args.rows:
        for choice in [problem.by_hand[0].small()] if args.quick else problem.by_hand:
            yield fitted(f"by hand: {choice.name}", problem, choice.fit)


def of_peers(problem: Problem, args: argparse.Namespace) -> Iterator[Row]:
    if "peers" in args.rows:
        yield from (interpolated(name, problem) for name in problem.peers)


def interpolated(name: str, problem: Problem) -> Row:
    """The row of a peer, which has no error bars; where it predicts nothing, the nearest value stands in."""
    clock = scores.Clock()
    try:
        value = peers.PEERS[name](problem)
    except ImportError:
        return Row.absent(name, "not installed")
    costs, gaps = clock.costs(), np.isnan(value)
    if gaps.any():
        value = np.where(gaps, peers.nearest(problem), value)
    return Row.of(name, value - problem.truth.to_numpy(), filled=float(gaps.mean()), **costs)


def contest(args: argparse.Namespace) -> None:
    dataset = CONTEST.open(args.data, quick=args.quick)
    if dataset is None:
        return
    data, held = dataset.train.fillna(dataset.truth), dataset.truth.notnull() & dataset.train.isnull()
    problem = Problem("MODIS", "contest", data, held, CONTEST.by_hand, CONTEST.peers)
    rows = [*of_library(problem, args), *of_peers(problem, args)]
    rows += scores.published() if "published" in args.rows else []
    measure.table(
        f"contest: {int(problem.train.count()):,} values, {problem.truth.size:,} withheld; {load()}",
        scores.HEADER,
        [row.cells() for row in rows],
    )


def load() -> str:
    return f"load {os.getloadavg()[0]:.1f}"


def one_set(name: str, args: argparse.Namespace) -> Iterator[tuple[object, ...]]:
    """Print the table of one set for each way of withholding; yield what the summary says of it."""
    product = SETS[name]
    data = product.open(args.data, quick=args.quick)
    if data is None:
        return
    for how in WITHHELD[: 1 if args.quick else None]:
        held = withheld(data, how, product.block)
        problem = Problem(name, how, data, held, product.by_hand, product.peers, product.days)
        ours, others = list(of_library(problem, args)), list(of_peers(problem, args))
        measure.table(
            f"contest, {name} ({product.what}): {int(problem.train.count()):,} values, {problem.truth.size:,} "
            f"withheld ({how}); {load()}",
            scores.HEADER,
            [row.cells() for row in [*ours, *others]],
        )
        yield verdict(name, how, ours, others)


def verdict(name: str, how: str, ours: list[Row], others: list[Row]) -> tuple[object, ...]:
    """The bare fit against the best of the others."""
    bare = [row for row in ours if row.name.startswith(BARE)]
    by_hand = [row for row in ours if row not in bare]
    hand, peer = (
        min((row for row in rows if row.rmse > 0), key=lambda row: row.rmse, default=None)
        for rows in (by_hand, others)
    )
    mine = bare[0].rmse if bare else np.nan
    best, other = ("", "", "", ""), ("", "", "")
    if hand:
        worse = mine / hand.rmse - 1
        kept = "yes" if worse <= TOLERANCE else "NO"  # no fit is no
        best = (hand.name.removeprefix("by hand: "), f"{hand.rmse:.4g}", f"{worse:+.1%}", kept)
    if peer:
        other = (peer.name, f"{peer.rmse:.4g}", f"{mine / peer.rmse:.2f}")
    return (name, how, f"{mine:.4g}", *best, *other)


def nino(args: argparse.Namespace) -> None:
    """Niño 3.4 of the bare field and of the data, and both without the data's mean season."""
    data = SETS["ERSST"].open(args.data, quick=args.quick)
    if data is None:
        return
    field = data.spline.fit(**budget(args.seconds))
    means = [region_mean(x) for x in (data, field.predict().where(data.notnull()))]
    season = means[0].groupby("time.month").mean()
    anomalies = [mean.groupby("time.month") - season for mean in means]
    rows = []
    for name, (seen, smooth) in {"monthly means": means, "anomalies": anomalies}.items():
        years = slice("2015", "2016") if not args.quick else slice(None)
        event = [float(x.sel(time=years).max()) for x in (seen, smooth)]
        r = float(xr.corr(seen, smooth))
        rows.append((name, f"{r:.4f}", *(f"{x:.2f}" for x in event), "yes" if r >= NINO else "NO"))
    measure.table(
        f"contest, Niño 3.4 of {data.sizes['time']} months; {load()}",
        ("of", "correlation", "largest of 2015-16, data", "field", f"at least {NINO}"),
        rows,
    )


def region_mean(sst: xr.DataArray) -> xr.DataArray:
    region = sst.where((abs(sst.lat) <= 5) & (sst.lon >= 190) & (sst.lon <= 240), drop=True)
    return region.weighted(np.cos(np.radians(region.lat))).mean(("lat", "lon"))


def run(args: argparse.Namespace) -> None:
    args.seconds = 3.0 if args.quick and args.seconds is None else args.seconds
    files = [product.file for product in (CONTEST, *SETS.values())]
    missing = [file for file in dict.fromkeys(files) if not path_of(file, args.data).is_file()]
    if missing:
        print(f"contest: skipped, neither --data nor XSPLINE_DATA_DIR holds {', '.join(missing)}")
    if len(missing) == len(set(files)):
        return
    print(*__doc__.splitlines()[2:], sep="\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the scores say what is wrong with a fit
        if "contest" in args.tables:
            contest(args)
        if "sets" in args.tables:
            rows = [row for name in args.sets[: 2 if args.quick else None] for row in one_set(name, args)]
            if rows:
                measure.table(f"contest, further sets; {load()}", SUMMARY, rows)
        if "nino" in args.tables:
            nino(args)
