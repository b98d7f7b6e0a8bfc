"""The time that a plan estimates against the time that the call takes, in CPU seconds.

The plan is made of coordinates alone. What it leaves out, reading and compiling, is not in the calls: data are in
memory, and the first of the calls does not count.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import xarray as xr

import xspline as xs
from benchmarks import measure


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeat", type=int, default=3)


def grid(*shape: int) -> xr.DataArray:
    """Waves with noise and a tenth of gaps over coordinates in [0, 1]."""
    rng, names = np.random.default_rng(0), "abc"[: len(shape)]
    axes = [np.linspace(0, 1, n) for n in shape]
    values = sum(np.sin(5 * x) for x in np.meshgrid(*axes, indexing="ij")) + 0.1 * rng.standard_normal(shape)
    data = xr.DataArray(values, dict(zip(names, axes, strict=True)), list(names), "u")
    return data.where(rng.random(shape) > 0.1)


def points(count: int) -> xr.DataArray:
    a, b = np.random.default_rng(1).random((2, count))
    return xr.DataArray(np.sin(5 * a) + b, {"a": ("p", a), "b": ("p", b)}, "p", "u")


def row(name: str, data: xr.DataArray, bases: dict[str, int], penalty: object, repeat: int) -> tuple:
    plan = xs.plan(data, bases, penalty=penalty)
    planned = next(row.seconds for row in plan.rows if row.mask == "any")
    taken = []
    for _ in range(repeat + 1):  # the first compiles
        before = time.process_time()
        data.spline.fit(bases, penalty=penalty)
        taken.append(time.process_time() - before)
    best = min(taken[1:])
    return name, " × ".join(map(str, bases.values())), planned, best, planned / best


def run(args: argparse.Namespace) -> None:
    small, repeat = (4, 1) if args.quick else (1, args.repeat)
    rough = xs.Roughness(1e-5)
    calls = [
        ("line, REML", grid(1000), {"a": 50}, "reml"),
        ("plane, REML", grid(60, 90), {"a": 20, "b": 30}, "reml"),
        ("box, REML", grid(18, 18, 18), {"a": 9, "b": 9, "c": 9}, "reml"),
        ("points, REML", points(100_000 // small), {"a": 24, "b": 24}, "reml"),
        ("plane, λ given", grid(120, 240), {"a": 40, "b": 80}, rough),
        ("large plane, REML", grid(180, 360), {"a": 90 // small, "b": 180 // small}, "reml"),
        ("large box, REML", grid(60, 60, 60), dict.fromkeys("abc", 26 // small), "reml"),
        ("large box, λ given", grid(60, 60, 60), dict.fromkeys("abc", 40 // small), rough),
    ]
    measure.table(
        "plan: estimated and taken",
        ("call", "coefficients", "planned, s", "taken, CPU s", "planned / taken"),
        [row(*call, repeat) for call in calls],
    )
