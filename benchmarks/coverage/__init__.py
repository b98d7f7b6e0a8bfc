"""How often 95 % intervals hold the truth, and how far the bare fit is from what knows the covariance.

Parts: simulated fields, against kriging; very few values; trends under errors that last, against generalised least
squares, of fits whose errors remember, and of errors that are alike in space too; intervals of whole curves, of several
levels and of new observations, and false discoveries; means over a box, their differences and trends; institutions
that differ; stations of a network that differ by offsets; and, older, B-splines that are asked for by name. Each says
of itself what it measures, and against what.
"""

from __future__ import annotations

import argparse
import warnings

from benchmarks.coverage import (
    alike,
    institutions,
    intervals,
    means,
    networks,
    older,
    remembered,
    simulations,
    small,
    trends,
)

PARTS = {
    "simulations": simulations,
    "small": small,
    "trends": trends,
    "ar1": remembered,
    "alike": alike,
    "intervals": intervals,
    "means": means,
    "holders": institutions,
    "networks": networks,
    "older": older,
}
DRAWS, REPLICATES, QUICK = 35, 200, 1


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parts", choices=tuple(PARTS), nargs="*", default=tuple(PARTS))
    parser.add_argument(
        "--draws", type=int, help=f"of each simulated field (default: {DRAWS}; --quick: {QUICK})"
    )
    parser.add_argument(
        "--replicates",
        type=int,
        help=f"of the other parts (default: {REPLICATES}, of a region a quarter, of networks an eighth; --quick: "
        f"{QUICK})",
    )


def run(args: argparse.Namespace) -> None:
    counts = {
        "simulations": args.draws or (QUICK if args.quick else DRAWS),
        "others": args.replicates or (QUICK if args.quick else REPLICATES),
    }
    for name in args.parts:
        part = PARTS[name]
        print("", *part.__doc__.splitlines(), sep="\n")
        with warnings.catch_warnings():
            if part is not older:
                warnings.simplefilter("ignore")  # the shares say what is wrong with a fit
            part.tables(counts.get(name, counts["others"]), quick=args.quick)
