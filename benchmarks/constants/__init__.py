"""Constants of equations: against the Cramér-Rao bound, on nonlinear waves, on public files, and PySINDy beside.

Replicates of exact solutions at random points come first. The bound comes from exact sensitivities, not from the
method: the derivatives of the solution by the constant and by every mode of its initial values. Coverage is that of
95 % intervals; errors that were withheld count as missed.

Waves are on grids with noise, as a part of the standard deviation of u; each draw of noise is another one. Errors are
largest ones over all constants, in parts of each constant.

What constants cost against the size of a space is of diffusion of x and t, and of advection-diffusion of x, y and t,
with 5 % noise and splines of degree 5 that are not periodic: CPU seconds of ``recover`` alone on one core,
factorisations of all searches, peak memory of the process and what it held before.

Where an equation lacks a term, the constant is wrong: of diffusion with one term more, asked as ``u_t = D*u_xx``, an
interval that is given should hold the D of the field all the same: at most 7 % of the draws of any row are given and
wrong, and of right equations (that lack nothing) at most 5 % are withheld. Data go to ``xs.recover`` as they are.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from benchmarks.constants import bound, cost, missing, public, side_by_side, waves

TABLES = ("replicates", "waves", "cost", "missing")
LEVELS = (0.01, 0.05, 0.10)
#: The largest error that is asked of a wave at each level of noise, %.
ASKED: dict[Callable[[], waves.Set], dict[float, float]] = {
    waves.korteweg_de_vries: {0.01: 0.1, 0.05: 0.5, 0.10: 1.0},
    waves.burgers: {0.01: 0.1, 0.05: 0.5, 0.10: 1.0},
    waves.kuramoto_sivashinsky: {0.01: 0.05},
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--replicates", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=10, help="draws of noise of each wave")
    parser.add_argument("--only", default="", help="part of the name of a case, wave or file")
    parser.add_argument("--tables", choices=TABLES, nargs="*", default=TABLES)
    parser.add_argument("--data", help="folder with files that others published; only these")
    parser.add_argument(
        "--peers", nargs="?", const="", help="PySINDy beside, of this Python (default: the same one)"
    )


def run(args: argparse.Namespace) -> None:
    print(*__doc__.splitlines()[2:], sep="\n")
    if args.data:
        public.table(args.data, args.only, LEVELS[:1] if args.quick else (0.0, *LEVELS))
        return
    if args.peers is not None:
        side_by_side.compare(args.peers, args.only, (0.01,) if args.quick else (0.0, *LEVELS))
        return
    if "replicates" in args.tables:
        replicates_table(args.only, 1 if args.quick else args.replicates, args.quick)
    if "waves" in args.tables:
        waves_table(args.only, 1 if args.quick else args.seeds, args.quick)
    if "cost" in args.tables:
        header(*cost.HEAD)
        for cells in cost.rows(args.quick):
            row(*cells)
    if "missing" in args.tables:
        header(*missing.HEAD)
        few = (1, (0.05,), 1) if args.quick else (min(args.replicates, 50), missing.LEVELS)
        for cells in missing.rows(args.only, *few):
            row(*cells)


def replicates_table(only: str, count: int, quick: bool) -> None:
    header("", "noise", "rmse / bound", "stderr / bound", "coverage", "withheld", "s each")
    for make in bound.CASES:
        case = make()
        levels = (*bound.LEVELS, *bound.HIDDEN.get(case.name, ()))[: 1 if quick else None]
        for i, level in enumerate(levels if only in case.name else ()):
            r = bound.replicates(case, level, count, i * count)  # draws of their own
            cells = (f"{r.rmse:.3f}", f"{r.reported:.3f}", f"{r.coverage:.1%}", f"{r.withheld} of {count}")
            row(case.name, f"{level:.0%}", *cells, f"{r.seconds:.2f}")


def waves_table(only: str, seeds: int, quick: bool) -> None:
    header(
        "wave", "noise", "draws", "withheld", "median error, %", "worst, %", "asked, %",
        "median stderr, %", "worst error / stderr", "within 3", "CPU s each",
    )  # fmt: skip
    for make, asked in list(ASKED.items())[1 if quick else 0 : 2 if quick else None]:
        own = make()
        for level in () if only not in own.name else (0.01,) if quick else asked:
            start = time.process_time()
            found = [own.recovered(level, seed) for seed in range(seeds)]
            seconds = (time.process_time() - start) / seeds
            true = np.array(list(own.constants.values()))
            error = np.array(
                [np.abs(f.estimate.sel(parameter=list(own.constants)).values - true) for f in found]
            )
            stderr = np.array([f.stderr.sel(parameter=list(own.constants)).values for f in found])
            z, percent = error / stderr, 100 * error / np.abs(true)
            cells = (f"{np.median(percent.max(axis=1)):.3g}", f"{percent.max():.3g}", f"{asked[level]:g}")
            spread = (
                f"{np.median(100 * stderr / np.abs(true)):.3g}",
                f"{np.nanmax(z):.2f}",
                f"{np.mean(z <= 3):.0%}",
            )
            withheld = int(np.isnan(stderr).any(axis=1).sum())
            row(own.name, f"{level:.0%}", seeds, withheld, *cells, *spread, f"{seconds:.1f}")


def header(*names: str) -> None:
    print("\n| " + " | ".join(names) + " |\n|" + "---|" * len(names))


def row(*cells: object) -> None:
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)
