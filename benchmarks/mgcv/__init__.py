"""Smoothing chosen by R's mgcv and here: the same figures as gam, the same values in less time than bam.

gam: `mgcv::gam(y ~ X - 1, paraPen = list(X = list(S1, ..)), method = "REML")` is given the rows of Phi and the penalty
matrices of small cases, so that both sides minimise one function; `--write` makes the fixtures of the test anew.

bam: NOAA ERSST v5 over the tropical Pacific, 2010-2020, with 13 x 23 x 7 functions. mgcv fits `te(lat, lon, time,
bs = "ps")`; timed is the call of `bam(discrete = TRUE, method = "fREML")`, values in memory. Ours are the same model
(B-splines of time) and the paper's (seasonal cycle and polynomial): strengths chosen by REML and coefficients solved.
"""

from __future__ import annotations

import argparse

from benchmarks.mgcv import bam, gam, r

PARTS = {"gam": gam, "bam": bam}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", choices=tuple(PARTS), help="one comparison (default: both)")
    parser.add_argument(
        "--write", action="store_true", help="write the figures of gam as fixtures of the test"
    )
    parser.add_argument(
        "--blas",
        default="",
        help="'libblas.so.3 liblapack.so.3' for R, with their folders (default: its own)",
    )
    parser.add_argument("--threads", type=int, default=2, help="nthreads of bam (default: 2)")


def run(args: argparse.Namespace) -> None:
    if reason := r.missing():
        print(f"mgcv: skipped, {reason}")
        return
    print(*__doc__.splitlines()[2:], sep="\n")
    for name, module in PARTS.items():
        if args.only in (None, name):
            module.run(args)
