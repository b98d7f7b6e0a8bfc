"""Constants of a coupled nonlinear system in two space dimensions and time: accuracy, seconds and memory.

Reaction and diffusion of the λ-ω kind, u_t = D ∇²u + (1 − A²) u + β A² v, v_t = E ∇²v + (1 − A²) v − γ A² u with
A² = u² + v², D = E = 0.1 and β = γ = 1, on a torus of side 2π, solved by 64 × 64 Fourier modes and a fourth-order
Runge-Kutta method with integrating factor (half the step changes it by less than 1e-10). The grid is 64 × 64 × 41
with noise; P counts the coefficients of both variables. CPU seconds are from data to constants, memory is the peak of
the process.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import xarray as xr

import xspline as xs
from benchmarks.measure import peak

SIDE, MODES, FRAMES, DURATION, STEPS = 2 * np.pi, 64, 41, 4.0, 40  # steps of time between two frames
TRUE = {"D": 0.1, "beta": 1.0, "E": 0.1, "gamma": 1.0}
SQUARE = "(u**2 + v**2)"
EQUATIONS = [
    f"u_t = D*(u_xx + u_yy) + (1 - {SQUARE})*u + beta*{SQUARE}*v",
    f"v_t = E*(v_xx + v_yy) + (1 - {SQUARE})*v - gamma*{SQUARE}*u",
]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--noise", type=float, default=0.01)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--largest", action="store_true", help="of the sizes the largest alone")


def solution(steps: int = STEPS, modes: int = MODES, frames: int = FRAMES) -> np.ndarray:
    """u + iv at all frames, of initial values of the lowest modes."""
    k = np.fft.fftfreq(modes, 1 / modes)
    rates = -TRUE["D"] * (k[:, None] ** 2 + k**2)
    low = np.maximum(np.abs(k[:, None]), np.abs(k)) < modes / 3  # products leave no aliases
    x = np.arange(modes) * SIDE / modes
    rng, z = np.random.default_rng(0), np.zeros((modes, modes), complex)
    for i, j in np.ndindex(3, 3):
        amplitude = rng.standard_normal(2) @ [1, 1j]
        z += amplitude * np.exp(1j * ((i - 1) * x[:, None] + (j - 1) * x))
    z *= 0.8 / np.sqrt(np.mean(np.abs(z) ** 2))

    def reaction(waves: np.ndarray) -> np.ndarray:
        values = np.fft.ifft2(waves)
        square = np.abs(values) ** 2
        return low * np.fft.fft2((1 - (1 + 1j * TRUE["beta"]) * square) * values)

    h = DURATION / (frames - 1) / steps
    half, waves, out = np.exp(rates * h / 2), np.fft.fft2(z), [z]
    for _ in range(frames - 1):
        for _ in range(steps):
            a = h * reaction(waves)
            b = h * reaction(half * (waves + a / 2))
            c = h * reaction(half * waves + b / 2)
            d = h * reaction(half * (half * waves + c))
            waves = half * (half * (waves + a / 6) + (b + c) / 3) + d / 6
        out.append(np.fft.ifft2(waves))
    return np.array(out)


def observed(level: float, seed: int) -> xr.Dataset:
    """u and v on the grid, each with noise of `level` of its standard deviation."""
    z, rng = solution(), np.random.default_rng(seed)
    x = np.arange(MODES) * SIDE / MODES
    coords = {"t": np.linspace(0, DURATION, FRAMES), "y": x, "x": x}
    both = {
        name: (tuple(coords), a + level * a.std() * rng.standard_normal(a.shape))
        for name, a in (("u", z.real), ("v", z.imag))
    }
    return xr.Dataset(both, coords)


def space(functions: int, times: int) -> xs.Space:
    """Quintic in space, cubic in time."""
    around = xs.BSpline(functions, 5, period=SIDE)
    return xs.Space({"x": around, "y": around, "t": xs.BSpline(times, domain=(0.0, DURATION))})


def run(args: argparse.Namespace) -> None:
    print(*__doc__.splitlines()[2:], sep="\n")
    sizes = ((10, 9),) if args.quick else ((14, 13), (16, 17), (22, 19))[2 * args.largest :]
    head = ("functions", "P", "noise", "z of D, β, E, γ", "error, %", "F", "withheld", "CPU s", "peak GB")
    print("\n| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for seed, size in ((s, n) for n in sizes for s in range(args.seeds)):
        data, own, start = observed(args.noise, seed), space(*size), time.process_time()
        result = data.spline.statistics(own).solve(1e-6).recover(EQUATIONS)  # a smooth start is enough
        seconds = time.process_time() - start
        own_error = [result.estimate.sel(parameter=n).item() - true for n, true in TRUE.items()]
        errors = [result.stderr.sel(parameter=n).item() for n in TRUE]
        z = ", ".join(f"{e / s:+.1f}" for e, s in zip(own_error, errors, strict=True))
        off = ", ".join(
            f"{100 * abs(e) / true:.3f}" for e, true in zip(own_error, TRUE.values(), strict=True)
        )
        withheld = "yes" if np.isnan(errors).any() else "no"
        figures = (
            f"{z} | {off} | {result.adequacy.item():.2f} | {withheld} | {seconds:.0f} | {peak() / 1e9:.2f}"
        )
        print(
            f"| {size[0]} × {size[0]} × {size[1]} | {2 * own.size:,} | {args.noise:.0%} | {figures} |",
            flush=True,
        )
