"""The same fit in memory on the CPU and on a card; says so where there is none."""

from __future__ import annotations

import argparse
import importlib.util

import numpy as np

from benchmarks import measure, stand_in


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeat", type=int, default=5)


def reason_for_none() -> str:
    if importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed"
    import cupy

    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"CuPy finds no card ({error})"
    return ""


def run(args: argparse.Namespace) -> None:
    if reason := reason_for_none():
        print(f"gpu: skipped, {reason}")
        return
    import cupy

    sst = stand_in.noaa(48 if args.quick else 494)
    on_card = sst.copy(data=cupy.asarray(sst.values))
    space = sst.spline.space(stand_in.paper_bases())
    fit = [da.spline.statistics(space).solve(penalty=0.1) for da in (sst, on_card)]
    apart = np.abs(fit[0].coefficients - fit[1].coefficients).max() / np.abs(fit[0].coefficients).max()
    host = measure.seconds(lambda: sst.spline.statistics(space), args.repeat)
    rows = [("NumPy", host, 1.0)]
    for name, call in (
        ("CuPy array", lambda: on_card.spline.statistics(space)),
        ('NumPy, device="cuda"', lambda: sst.spline.statistics(space, device="cuda")),
    ):
        took = measure.seconds(call, args.repeat)
        rows.append((name, took, host / took))
    count = int(sst.notnull().sum())
    title = f"gpu: {count:,} observations, P = {space.size}; coefficients {apart.item():.1e} apart"
    measure.table(title, ("values", "seconds", "speed over NumPy"), rows)
