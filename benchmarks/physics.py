"""Diffusion with 80 % of its values missing: `xs.Physics` as a penalty against roughness alone, and a wrong constant.

Initial values are waves of random phase whose amplitude falls as 1/k, others in each replicate; the fit knows neither
them nor that the domain is periodic. Missing are values at random places, or all but a frame: the first fifth of the
times or so and both ends. Figures are over the values that were withheld: RMSE over the standard deviation of the
truth, and how many 95 % intervals cover it, of all replicates.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable

import numpy as np
import xarray as xr

import xspline as xs

DIFFUSIVITY, WRONG = 0.05, 1.2
LEVELS = (0.01, 0.05, 0.20)
WAVES = 6
BASES = {"x": xs.BSpline(24, 5), "t": xs.BSpline(10, 5)}
GAPS = ("random", "block")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--replicates", type=int, default=20)
    parser.add_argument("--only", default="", help="part of the name of a gap")


def truth(seed: int) -> xr.DataArray:
    """A solution of u_t = D u_xx on 60 × 40 points of [0, 2π] × [0, 2]."""
    rng = np.random.default_rng(seed)
    x, t = np.linspace(0, 2 * np.pi, 60), np.linspace(0, 2, 40)
    u = np.zeros((t.size, x.size))
    for k in range(1, WAVES + 1):
        wave = rng.normal() * np.cos(k * x) + rng.normal() * np.sin(k * x)
        u += np.exp(-DIFFUSIVITY * k**2 * t)[:, None] * wave / k
    return xr.DataArray(u, {"t": t, "x": x}, ("t", "x"), "u")


def observed(u: xr.DataArray, gap: str, level: float, seed: int) -> xr.DataArray:
    """With noise, as a part of the standard deviation, and 80 % missing."""
    rng = np.random.default_rng([seed, round(1000 * level)])
    noisy = u + level * float(u.std()) * rng.standard_normal(u.shape)
    if gap == "random":
        return noisy.where(xr.DataArray(rng.random(u.shape) < 0.2, dims=u.dims))
    width = u.x - np.pi
    return noisy.where((abs(width) > 0.93 * np.pi) | (u.t < 0.14 * 2))


def equation(strength: str, factor: float = 1.0) -> xs.Physics:
    return xs.Physics("u_t = D*u_xx", strength, known={"D": DIFFUSIVITY * factor})


PENALTIES: dict[str, Callable[[], object]] = {
    'roughness, "reml"': lambda: "reml",
    'Physics("reml")': lambda: equation("reml"),
    'Physics("hard")': lambda: equation("hard"),
    'Roughness() + Physics("reml")': lambda: xs.Roughness() + equation("reml"),
    'Roughness() + Physics("hard")': lambda: xs.Roughness() + equation("hard"),
    'Physics("hard"), D 20 % wrong': lambda: equation("hard", WRONG),
    'Roughness() + Physics("reml"), D 20 % wrong': lambda: xs.Roughness() + equation("reml", WRONG),
}


def scores(penalty: object, gap: str, level: float, count: int) -> tuple[float, float, int, float]:
    """RMSE, coverage of the fits that have error bars, how many have none, CPU seconds each."""
    squares, inside, withheld, start = [], [], 0, time.process_time()
    for seed in range(count):
        u = truth(seed)
        data = observed(u, gap, level, seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", xs.FitWarning)
            field = data.spline.fit(BASES, penalty=penalty)
        missing = data.isnull().values
        error = (field.predict(u) - u).transpose("t", "x").values[missing]
        stderr = field.stderr(u).transpose("t", "x").values[missing]
        squares.append(np.mean(error**2) / float(u.var()))
        if np.isnan(stderr).all():
            withheld += 1
        else:
            inside.append(np.mean(np.abs(error) < 1.96 * stderr))
    coverage = float(np.mean(inside)) if inside else np.nan
    return float(np.sqrt(np.mean(squares))), coverage, withheld, (time.process_time() - start) / count


def run(args: argparse.Namespace) -> None:
    print(*__doc__.splitlines()[2:], sep="\n")
    count, levels = (1, LEVELS[1:2]) if args.quick else (args.replicates, LEVELS)
    print("\n| missing | noise | penalty | RMSE, % | coverage | withheld | CPU s each |\n" + "|---" * 7 + "|")
    for gap in GAPS:
        for level in levels if args.only in gap else ():
            for name, penalty in PENALTIES.items():
                rmse, coverage, withheld, seconds = scores(penalty(), gap, level, count)
                figures = f"{100 * rmse:.2f} | {coverage:.1%} | {withheld} of {count} | {seconds:.2f}"
                print(f"| {gap} | {level:.0%} | `{name}` | {figures} |", flush=True)
