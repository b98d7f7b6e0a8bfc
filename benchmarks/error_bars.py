"""Error bars from draws where a solver iterates: held to exact ones, and what they cost over a solve; REML in 3-D.

Ratios are of standard errors on a grid of targets; 200 draws scatter by 5 % at each of them. Times are wall seconds
and CPU seconds, which count every thread.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import xarray as xr

import xspline as xs
from benchmarks import measure

NAMES = ("x", "y", "z")
T = TypeVar("T")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--large", action="store_true", help="P = 127,500 instead: minutes")


def clouds(sizes: tuple[int, ...], share: float = 0.3, hole: bool = True) -> xr.DataArray:
    """Three values a coefficient and axis with noise, a share missing at random, and a hole of a fifth of each axis."""
    rng, axes = np.random.default_rng(0), [np.linspace(0, 1, 3 * k) for k in sizes]
    mesh = np.meshgrid(*axes, indexing="ij", sparse=True)
    bump = 0.5 * np.exp(-30 * sum((a - 0.4 - 0.1 * j) ** 2 for j, a in enumerate(mesh)))
    values = np.sin(5 * mesh[0]) * np.cos(sum((4 - j) * a for j, a in enumerate(mesh[1:]))) + bump
    values = values + 0.3 * rng.standard_normal(values.shape)
    values[rng.random(values.shape) < share] = np.nan
    if hole:
        values[tuple(slice(n // 5, 2 * n // 5) for n in values.shape)] = np.nan
    names = NAMES[: len(sizes)]
    return xr.DataArray(values, dict(zip(names, axes, strict=True)), names, "u")


def clocked(call: Callable[[], T]) -> tuple[T, float, float]:
    """What it returns, wall seconds and CPU seconds."""
    start, cpu = time.perf_counter(), time.process_time()
    value = call()
    return value, time.perf_counter() - start, time.process_time() - cpu


def ratios(sizes: tuple[int, ...], solver: str) -> list[tuple[object, ...]]:
    """Drawn over exact errors of a field and of its derivative."""
    values = clouds(sizes, *((0.3, True) if solver == "iterative" else (0.0, False)))
    statistics = values.spline.statistics(dict(zip(values.dims, sizes, strict=True)))
    at = {name: np.linspace(0.01, 0.99, 40) for name in values.dims}
    rows = []
    for strength in (1e-3, 1e-6):
        penalty = xs.Roughness(strength)
        (ours, solve, _) = clocked(lambda p=penalty: statistics.solve(p, solver=solver))
        exact = statistics.solve(penalty, solver="banded")
        drawn, wall, cpu = clocked(lambda field=ours: field.stderr(at))
        known, direct, _ = clocked(lambda field=exact: field.stderr(at))
        slope = (ours.derivative(at, x=1, stderr=True) / exact.derivative(at, x=1, stderr=True)).du_dx_stderr
        ratio = drawn / known
        low, high = np.quantile(ratio, [0.05, 0.95])
        what = " x ".join(map(str, sizes))
        spread = f"{low:.3f} to {high:.3f}"
        rows.append(
            (
                what,
                solver,
                strength,
                float(ratio.mean()),
                spread,
                float(slope.mean()),
                solve,
                wall,
                cpu,
                direct,
            )
        )
    return rows


def large(sizes: tuple[int, ...]) -> list[tuple[object, ...]]:
    """REML, one solve at the strengths that it chose, and the error bars of that field."""
    values = clouds(sizes, hole=False)
    statistics = values.spline.statistics(dict(zip(values.dims, sizes, strict=True)))
    statistics.total("u")
    measure.reset_peak()
    before = measure.status("VmRSS")
    field, wall, cpu = clocked(statistics.solve)
    rows: list[tuple[object, ...]] = [("REML", wall, cpu, (measure.peak() - before) / 1e9)]
    _, wall, cpu = clocked(lambda: statistics.solve(field.penalty))
    rows.append(("one solve", wall, cpu, (measure.peak() - before) / 1e9))
    measure.reset_peak()
    before = measure.status("VmRSS")
    error, wall, cpu = clocked(field.stderr)
    rows.append(
        (
            f"stderr of {error.size:,} values, {error.attrs['method']}",
            wall,
            cpu,
            (measure.peak() - before) / 1e9,
        )
    )
    return rows


def run(args: argparse.Namespace) -> None:
    if args.large:
        sizes = (50, 51, 50)
        title = f"30 % random gaps, P = {np.prod(sizes):,}; load {os.getloadavg()[0]:.1f}"
        measure.table(title, ("what", "s", "CPU s", "GB"), large(sizes))
        return
    small: list[tuple[tuple[int, ...], str]] = [((60, 56), "iterative"), ((16, 15, 14), "iterative")]
    small.append(((16, 15, 14), "spectral"))
    rows = [row for sizes, solver in (small[:1] if args.quick else small) for row in ratios(sizes, solver)]
    header = ("coefficients", "solver", "λ", "drawn / exact", "5 to 95 %", "of ∂/∂x")
    times = ("solve, s", "draws, s", "CPU s", "exact, s")
    measure.table("200 draws against exact errors", (*header, *times), rows)
