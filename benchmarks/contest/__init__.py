"""Withheld values of real products: the bare `fit()` against published entries, fits by hand, and interpolation.

The contest of Heaton et al. (2019, JABES 24:398-425): MODIS land surface temperatures of one day with the gaps of
another. Fits see `train`; scored is `truth` where train is missing. Predictions are normal, with the intervals that
`interval(new=True)` returns. Published rows are the paper's figures, recalled, with its run times on its machines.

Further sets: a tenth of the values is withheld, single ones at random and whole blocks, others for each seed. They are
compared with interpolation, above all with radial basis functions of 30 neighbours, and where `--rows` asks for them
with B-splines by hand, of which the best is taken by its error on what was withheld: an oracle. RMSE is over all that
is withheld; error bars, and the scores that need them, are evaluated at so many places of it at most.

Then what more seconds do to the bare fit of these sets: RMSE by seconds, the worst rise from fewer seconds to more, and
CPU seconds taken over seconds asked. Last El Niño: the mean of the bare field over the Niño 3.4 region (5S-5N,
170W-120W) against that of the data, month by month.
"""

from __future__ import annotations

import argparse
import inspect
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import xarray as xr

import xspline as xs
from benchmarks import measure
from benchmarks.contest import budgets, peers, scores
from benchmarks.contest.elsewhere import ELSEWHERE
from benchmarks.contest.packages import PACKAGES
from benchmarks.contest.scores import Row
from benchmarks.contest.sets import CONTEST, SEED, SETS, WITHHELD, Problem, path_of, withheld

ALL_SETS = {**SETS, **ELSEWHERE, **PACKAGES}
TABLES = ("contest", "sets", "seconds", "nino")
ROWS = ("bare", "hand", "peers", "published")
BY_DEFAULT = ("bare", "peers", "published")
PLACES = 10_000  # with error bars, at most
TOLERANCE = 0.03  # of the bare fit over the best by hand
NINO = 0.95  # correlation
BARE = "bare fit()"
SUMMARY = (
    "set",
    "withheld",
    "seed",
    "bare RMSE",
    "coverage",
    "fit, CPU s",
    "all, CPU s",
    "peak, GB",
    "best by hand",
    "its RMSE",
    "over it",
    "within 3 %",
    "best peer",
    "its RMSE",
    "bare / peer",
    "bare / RBF",
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", help="folder of the products (default: XSPLINE_DATA_DIR)")
    parser.add_argument("--tables", choices=TABLES, nargs="*", default=TABLES)
    parser.add_argument(
        "--rows",
        choices=ROWS,
        nargs="*",
        help="which kinds of rows (default: all but those by hand; --quick: all)",
    )
    parser.add_argument(
        "--sets",
        choices=tuple(ALL_SETS),
        nargs="*",
        default=tuple(SETS),
        help="of the further sets (default: those that the defaults were looked at with)",
    )
    parser.add_argument(
        "--seeds", type=int, nargs="*", default=(SEED,), help="of what is withheld of the further sets"
    )
    parser.add_argument("--places", type=int, default=PLACES, help="with error bars, at most")
    parser.add_argument(
        "--seconds", type=float, help="budget of the bare fit, if fit() takes one (--quick: 1)"
    )


def budget(seconds: float | None) -> dict[str, float]:
    """The argument of `fit` that gives the bare fit more or less time."""
    if seconds is None:
        return {}
    if "seconds" not in inspect.signature(xs.fit).parameters:
        raise SystemExit("contest: --seconds is given, and fit() has no argument for it; leave it out")
    return {"seconds": seconds}


def fitted(name: str, problem: Problem, fit: Any, most: int) -> Row:
    """The row of a field with its error bars at so many places; one that cannot be had says why."""
    clock = scores.Clock()
    try:
        field = fit(problem.train)
        costs = {"fitted": time.perf_counter() - clock.start, "fit_cpu": time.process_time() - clock.cpu}
        error = (field.predict(problem.truth) - problem.truth).to_numpy()
        some = problem.some(most)
        ends = field.interval(problem.truth.isel(point=some), new=True)
        sd = (ends.upper - ends.lower).to_numpy() / (2 * scores.NORMAL)
    except (ValueError, xs.ConvergenceError, MemoryError) as failure:
        return Row.absent(name, f"{type(failure).__name__}: {str(failure).splitlines()[0][:80]}")
    shape = " × ".join(map(str, field.space.shape))
    name = f"{name}, {shape}" if name == BARE else name
    return Row.of(name, error, sd, some, **costs, **clock.costs())


def of_library(problem: Problem, args: argparse.Namespace) -> Iterator[Row]:
    options = budget(args.seconds)
    if "bare" in args.rows:
        yield fitted(BARE, problem, lambda data: data.spline.fit(**options), args.places)
    if "hand" in args.rows:
        for choice in [problem.by_hand[0].small()] if args.quick else problem.by_hand:
            yield fitted(f"by hand: {choice.name}", problem, choice.fit, args.places)


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
        f"contest: {counts(problem, args)}; {load()}",
        scores.HEADER,
        [row.cells() for row in rows],
    )


def load() -> str:
    return f"load {os.getloadavg()[0]:.1f}"


def counts(problem: Problem, args: argparse.Namespace) -> str:
    """How many values there are, and at how many of those that are withheld error bars are scored."""
    held = problem.truth.size
    bars = f", error bars at {args.places:,} of these, at random" if held > args.places else ""
    return f"{int(problem.train.count()):,} values, {held:,} withheld ({problem.how}){bars}"


def problems(name: str, args: argparse.Namespace) -> Iterator[tuple[int, Problem]]:
    """Each way of withholding values of a set, with its seed; none where the set is not at hand."""
    product = ALL_SETS[name]
    data = product.open(args.data, quick=args.quick)
    if data is None:
        return
    for how in WITHHELD[: 1 if args.quick else None]:
        for seed in args.seeds:
            held = withheld(data, how, product.block, seed)
            yield seed, Problem(name, how, data, held, product.by_hand, product.peers, product.days)


def one_set(name: str, args: argparse.Namespace) -> Iterator[tuple[object, ...]]:
    """Print the table of one set for each way of withholding; yield what the summary says of it."""
    for seed, problem in problems(name, args):
        ours, others = list(of_library(problem, args)), list(of_peers(problem, args))
        measure.table(
            f"contest, {name} ({ALL_SETS[name].what}): {counts(problem, args)}; {load()}",
            ("seed", *scores.HEADER, "RMSE / RBF"),
            [(seed, *row.cells(), over_rbf(row, others)) for row in [*ours, *others]],
        )
        yield verdict(problem, seed, ours, others)


def over_rbf(row: Row | None, others: Sequence[Row]) -> str:
    """The error of a row over that of radial basis functions; blank where one of both is not known."""
    reference = [other.rmse for other in others if other.name == peers.RBF]
    return f"{row.rmse / reference[0]:.3f}" if reference and row and row.rmse > 0 else ""


def verdict(problem: Problem, seed: int, ours: list[Row], others: list[Row]) -> tuple[object, ...]:
    """The bare fit against the best of the others, as `SUMMARY` says."""
    bare = [row for row in ours if row.name.startswith(BARE)]
    by_hand = [row for row in ours if row not in bare]
    hand, peer = (
        min((row for row in rows if row.rmse > 0), key=lambda row: row.rmse, default=None)
        for rows in (by_hand, others)
    )
    mine = bare[0] if bare else Row("none")
    costs = (f"{mine.fit_cpu:.1f}", f"{mine.cpu:.1f}", f"{mine.peak / 1e9:.2f}")
    own = (f"{mine.rmse:.4g}", f"{mine.coverage:.3f}", *costs)
    best, other = ("", "", "", ""), ("", "", "")
    if hand:
        worse = mine.rmse / hand.rmse - 1
        kept = "yes" if worse <= TOLERANCE else "NO"  # no fit is no
        best = (hand.name.removeprefix("by hand: "), f"{hand.rmse:.4g}", f"{worse:+.1%}", kept)
    if peer:
        other = (peer.name, f"{peer.rmse:.4g}", f"{mine.rmse / peer.rmse:.2f}")
    return (problem.name, problem.how, seed, *own, *best, *other, over_rbf(mine, others))


def further_sets(args: argparse.Namespace) -> None:
    """The tables of all further sets, a summary of them, and the mean and worst ratio to radial basis functions."""
    rows = [row for name in args.sets[: 2 if args.quick else None] for row in one_set(name, args)]
    if not rows:
        return
    kept = [k for k in range(len(SUMMARY)) if any(row[k] != "" for row in rows)]
    header = [SUMMARY[k] for k in kept]
    measure.table(f"contest, further sets; {load()}", header, [[row[k] for k in kept] for row in rows])
    for how in WITHHELD:
        ratios = [float(row[-1]) for row in rows if row[1] == how and row[-1]]
        if ratios:
            mean = np.exp(np.mean(np.log(ratios)))
            print(f"bare / RBF, {how}: geometric mean {mean:.3f}, worst {max(ratios):.2f}", flush=True)


def by_seconds(args: argparse.Namespace) -> None:
    """What more seconds do to the bare fit of the further sets."""
    names = args.sets[: 1 if args.quick else None]
    found = (each for name in names for each in problems(name, args))
    budgets.tables(found, budgets.QUICK if args.quick else budgets.SECONDS, args.places)


def warm() -> None:
    """Compile what a bare fit compiles, so that the first row does not take longer than the others."""
    coords = {"time": np.arange("2001-01", "2005-01", dtype="datetime64[M]").astype("datetime64[ns]")}
    coords |= {"lat": np.arange(5.0), "lon": np.arange(6.0)}
    values = np.random.default_rng(0).standard_normal((48, 5, 6))
    field = xr.DataArray(values, coords, tuple(coords), "u").spline.fit()
    field.predict()
    field.stderr()


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
    args.seconds = 1.0 if args.quick and args.seconds is None else args.seconds
    args.rows = args.rows or (ROWS if args.quick else BY_DEFAULT)
    files = [product.file for product in (CONTEST, *(ALL_SETS[name] for name in args.sets))]
    missing = [file for file in dict.fromkeys(files) if not path_of(file, args.data).is_file()]
    if missing:
        print(f"contest: skipped, neither --data nor XSPLINE_DATA_DIR holds {', '.join(missing)}")
    if len(missing) == len(set(files)):
        return
    print(*__doc__.splitlines()[2:], sep="\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the scores say what is wrong with a fit
        if not args.quick:
            warm()
        if "contest" in args.tables:
            contest(args)
        if "sets" in args.tables:
            further_sets(args)
        if "seconds" in args.tables:
            by_seconds(args)
        if "nino" in args.tables:
            nino(args)
