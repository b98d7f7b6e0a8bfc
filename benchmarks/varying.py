"""Constants that vary in space: heat in a medium whose diffusivity is no spline, coverage at all labels.

u_t = (D(x) u_x)_x on a circle, solved by Fourier series of 64 modes and a matrix exponential, so exactly. D is
0.05 exp(0.6 sin(x + 0.5)), which no spline is; it is recovered as one with few functions from scattered points with
noise, on the circle, or on part of it whose ends nothing is known of. Coverage is that of pointwise 95 % intervals
over 101 labels and all replicates; errors that were withheld count as missed. Errors are the median over labels of
the rms over the replicates that have one, relative to D.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import numpy as np
import xarray as xr

import xspline as xs

TURN, MODES = 2 * np.pi, 64
PART, LEVELS = (0.5, 5.5), (0.01, 0.05)
EQUATION = "u_t = (D(x)*u_x)_x"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--replicates", type=int, default=100)


def diffusivity(x: np.ndarray) -> np.ndarray:
    return 0.05 * np.exp(0.6 * np.sin(x + 0.5))


@dataclass(frozen=True, eq=False)
class Medium:
    """The diffusivity's number of functions, and data of one solution for 0 <= t <= duration."""

    periodic: bool
    functions: int
    duration: float = 4.0
    count: int = 10_000

    @property
    def space(self) -> xs.Space:
        x = xs.BSpline(28, 5, period=TURN) if self.periodic else xs.BSpline(28, 5, domain=PART)
        return xs.Space({"x": x, "t": xs.BSpline(12, 5, domain=(0.0, self.duration))})

    def value(self, x: np.ndarray, t: np.ndarray) -> np.ndarray:
        """The solution that starts as cos x + sin 2x / 2 + cos(3x + 1) / 2."""
        nodes = TURN * np.arange(MODES) / MODES
        k = np.fft.fftfreq(MODES, 1 / MODES)
        k[MODES // 2] = 0
        derive = np.fft.ifft(1j * k[:, None] * np.fft.fft(np.eye(MODES), axis=0), axis=0).real
        rates, modes = np.linalg.eigh(derive @ np.diag(diffusivity(nodes)) @ derive)
        start = np.cos(nodes) + 0.5 * np.sin(2 * nodes) + 0.5 * np.cos(3 * nodes + 1)
        waves = np.fft.fft(modes * (modes.T @ start), axis=0) / MODES  # of each mode of decay
        out = np.zeros(x.shape)
        for part in np.array_split(np.arange(x.size), max(x.size // 2000, 1)):
            decay = np.exp(np.outer(t[part], rates))
            at = np.exp(1j * np.outer(x[part], k))
            out[part] = np.sum((at @ waves).real * decay, axis=1)
        return out

    def observed(self, level: float, seed: int) -> xr.DataArray:
        """Values at random points, with noise of `level` standard deviations of the field."""
        rng = np.random.default_rng(seed)
        lo, hi = (0.0, TURN) if self.periodic else PART
        x, t = rng.uniform(lo, hi, self.count), rng.uniform(0, self.duration, self.count)
        u = self.value(x, t)
        data = u + level * u.std() * rng.standard_normal(self.count)
        return xr.DataArray(data, {"x": ("point", x), "t": ("point", t)}, "point", "u")


def medium(periodic: bool) -> Medium:
    return Medium(periodic, 12 if periodic else 9)


@dataclass(frozen=True)
class Coverage:
    """Of some replicates: share of labels inside the interval, error and stderr over D, withheld, CPU seconds."""

    coverage: float
    error: float
    stderr: float
    withheld: int
    seconds: float


def replicates(case: Medium, level: float, count: int, first: int = 0) -> Coverage:
    """Recover D from `count` independent draws of points and noise."""
    inside, errors, stderrs, withheld, start = [], [], [], 0, time.process_time()
    for seed in range(first, first + count):
        statistics = case.observed(level, seed).spline.statistics(case.space)
        result = statistics.recover(EQUATION, vary={"D": case.functions})
        true = diffusivity(result.x.values)
        inside.append(((result.D_lower <= true) & (true <= result.D_upper)).mean().item())
        if result.D_stderr.isnull().any():
            withheld += 1
            continue
        errors.append(((result.D - true) / true).values)
        stderrs.append((result.D_stderr / true).values)
    seconds = (time.process_time() - start) / count
    typical = [float(np.median(np.sqrt(np.mean(np.square(both), axis=0)))) for both in (errors, stderrs)]
    return Coverage(float(np.mean(inside)), *typical, withheld, seconds)


def run(args: argparse.Namespace) -> None:
    print(*__doc__.splitlines()[2:], sep="\n")
    count, levels = (1, LEVELS[1:]) if args.quick else (args.replicates, LEVELS)
    head = (
        "domain",
        "noise",
        "functions of D",
        "coverage",
        "error of D",
        "stderr of D",
        "withheld",
        "CPU s each",
    )
    print("\n| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for i, (periodic, level) in enumerate((p, n) for p in (True, False) for n in levels):
        case = medium(periodic)
        r = replicates(case, level, count, i * count)
        where = "circle" if periodic else f"{PART[0]} to {PART[1]}"
        figures = (
            f"{r.coverage:.1%} | {r.error:.2%} | {r.stderr:.2%} | {r.withheld} of {count} | {r.seconds:.2f}"
        )
        print(f"| {where} | {level:.0%} | {case.functions} | {figures} |", flush=True)
