"""Replicates of exact solutions at random points, against the Cramér-Rao bound of their constant.

The bound comes from exact sensitivities, not from the method: the derivatives of the solution by the constant and by
every mode of its initial values, at the points of a replicate, since the method knows no initial values either. A
constant has the bound σ √[(FᵀF)⁻¹], F the matrix of these derivatives. Coverage is that of 95 % intervals; errors that
were withheld count as missed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import xarray as xr

import xspline as xs

TURN = 2 * np.pi
LEVELS = (0.01, 0.05)
HIDDEN = {"diffusion": (1.0, 2.0)}  # noise as large as the field, and twice that


@dataclass(frozen=True, eq=False)
class Case:
    """A solution on [0, 2π] × [0, duration], periodic in x.

    Attributes
    ----------
    value : u of x and t.
    sensitivity : [n, 1 + m], derivatives of u by the constant and by what initial values leave open.
    sizes : functions of x and t, quintic.
    """

    name: str
    equation: str
    true: float
    value: Callable[[np.ndarray, np.ndarray], np.ndarray]
    sensitivity: Callable[[np.ndarray, np.ndarray], np.ndarray]
    sizes: tuple[int, int]
    duration: float = 2.0
    count: int = 10_000
    known: Mapping[str, Callable[..., object]] = field(default_factory=dict)

    @property
    def space(self) -> xs.Space:
        x, t = self.sizes
        bases = {"x": xs.BSpline(x, 5, period=TURN), "t": xs.BSpline(t, 5, domain=(0.0, self.duration))}
        return xs.Space(bases)

    def observed(self, level: float, seed: int) -> tuple[xr.DataArray, float]:
        """Observations at random points, and the Cramér-Rao bound of the constant there."""
        rng = np.random.default_rng(seed)
        x, t = rng.uniform(0, TURN, self.count), rng.uniform(0, self.duration, self.count)
        u = self.value(x, t)
        sigma = level * float(u.std())
        data = u + sigma * rng.standard_normal(self.count)
        columns = self.sensitivity(x, t)
        information = columns.T @ columns
        scale = np.sqrt(np.diag(information))
        bound = np.sqrt(np.linalg.inv(information / np.outer(scale, scale))[0, 0]) / scale[0]
        return xr.DataArray(data, {"x": ("point", x), "t": ("point", t)}, "point", "u"), sigma * bound


@dataclass(frozen=True)
class Replicates:
    """Figures of some replicates: rmse and reported error over the bound, coverage, withheld."""

    rmse: float
    reported: float
    coverage: float
    withheld: int
    seconds: float


def replicates(case: Case, level: float, count: int, first: int = 0) -> Replicates:
    """Recover the constant of `count` independent draws of points and noise."""
    ratios, reported, inside, withheld, start = [], [], 0, 0, time.process_time()
    for seed in range(first, first + count):
        data, bound = case.observed(level, seed)
        result = data.spline.statistics(case.space).recover(case.equation, known=dict(case.known))
        error = result.estimate.item() - case.true
        ratios.append(error / bound)
        if np.isnan(result.stderr.item()):
            withheld += 1
            continue
        reported.append(result.stderr.item() / bound)
        inside += result.lower.item() <= case.true <= result.upper.item()
    seconds = (time.process_time() - start) / count
    rmse = float(np.sqrt(np.mean(np.square(ratios))))
    return Replicates(rmse, float(np.mean(reported)), inside / count, withheld, seconds)


# --- solutions and their exact sensitivities

MODES = range(1, 9)  # of initial values; higher ones are beside the solution's few


def waves(x: np.ndarray, factor: Callable[[int], np.ndarray]) -> list[np.ndarray]:
    """Columns cos kx and sin kx times a factor of time, of all modes."""
    return [f(k * x) * factor(k) for k in MODES for f in (np.cos, np.sin)]


def diffusion(d: float = 0.05) -> Case:
    def value(x: np.ndarray, t: np.ndarray) -> np.ndarray:
        return np.exp(-d * t) * np.cos(x) + 0.5 * np.exp(-4 * d * t) * np.sin(2 * x)

    def sensitivity(x: np.ndarray, t: np.ndarray) -> np.ndarray:
        by_d = -t * np.exp(-d * t) * np.cos(x) - 2 * t * np.exp(-4 * d * t) * np.sin(2 * x)
        return np.stack([by_d, np.ones_like(x), *waves(x, lambda k: np.exp(-d * k**2 * t))], axis=1)

    return Case("diffusion", "u_t = D * u_xx", d, value, sensitivity, (20, 10))


def heat(d: float = 0.05) -> Case:
    """With the source 0.3 + 0.2 cos x + 0.1 sin 2x."""
    sources = {1: (0.2, np.cos), 2: (0.1, np.sin)}

    def value(x: np.ndarray, t: np.ndarray) -> np.ndarray:
        driven = sum(a * f(k * x) * (1 - np.exp(-d * k**2 * t)) / (d * k**2) for k, (a, f) in sources.items())
        return np.exp(-d * t) * np.sin(x) + 0.5 * np.exp(-9 * d * t) * np.cos(3 * x) + 0.3 * t + driven

    def sensitivity(x: np.ndarray, t: np.ndarray) -> np.ndarray:
        by_d = -t * np.exp(-d * t) * np.sin(x) - 4.5 * t * np.exp(-9 * d * t) * np.cos(3 * x)
        for k, (a, f) in sources.items():
            decay = np.exp(-d * k**2 * t)
            by_d = by_d + a * f(k * x) * (t * decay / d - (1 - decay) / (d**2 * k**2))
        return np.stack([by_d, np.ones_like(x), *waves(x, lambda k: np.exp(-d * k**2 * t))], axis=1)

    known = {"S": lambda x: 0.3 + 0.2 * np.cos(x) + 0.1 * np.sin(2 * x)}
    return Case("heat with source", "u_t = D * u_xx + S", d, value, sensitivity, (20, 10), known=known)


def wave(c: float = 1.3) -> Case:
    def value(x: np.ndarray, t: np.ndarray) -> np.ndarray:
        return np.cos(x) * np.cos(c * t) + 0.3 * np.sin(2 * (x - c * t))

    def sensitivity(x: np.ndarray, t: np.ndarray) -> np.ndarray:
        by_c = -t * np.cos(x) * np.sin(c * t) - 0.6 * t * np.cos(2 * (x - c * t))
        both = waves(x, lambda k: np.cos(c * k * t)) + waves(x, lambda k: np.sin(c * k * t))
        return np.stack([by_c, np.ones_like(x), t, *both], axis=1)

    return Case("wave", "u_tt = c**2 * u_xx", c, value, sensitivity, (20, 16), duration=3.0)


def cole_hopf(x: np.ndarray, t: np.ndarray, nu: float) -> tuple[np.ndarray, ...]:
    """φ and three derivatives by x of a solution of φ_t = ν φ_xx; u = −2ν φ_x/φ solves Burgers' equation."""
    out = [2.0 + 0 * (x + t), 0 * (x + t), 0 * (x + t), 0 * (x + t)]
    for k, amplitude, phase in ((1, 1.4, 0.3), (2, 0.4, 1.2)):
        decay, z = amplitude * np.exp(-nu * k**2 * t), k * x + phase
        waves_of_z = (np.cos(z), -np.sin(z), -np.cos(z), np.sin(z))
        out = [o + k**n * decay * w for n, (o, w) in enumerate(zip(out, waves_of_z, strict=True))]
    return tuple(out)


def burgers(nu: float = 0.1) -> Case:
    def value(x: np.ndarray, t: np.ndarray) -> np.ndarray:
        phi, by_x, _, _ = cole_hopf(x, t, nu)
        return -2 * nu * by_x / phi

    def sensitivity(x: np.ndarray, t: np.ndarray) -> np.ndarray:
        phi, by_x, by_xx, by_xxx = cole_hopf(x, t, nu)
        u = -2 * nu * by_x / phi
        u_x = -2 * nu * (by_xx / phi - (by_x / phi) ** 2)
        # φ answers to ν by t φ_xx.
        by_nu = u / nu - 2 * nu * t * (by_xxx / phi - by_xx * by_x / phi**2)
        columns = [by_nu, 1 - t * u_x]  # the mean flow carries all along
        for k in MODES:
            decay = np.exp(-nu * k**2 * t)
            for wave_, slope in (
                (np.cos(k * x), -k * np.sin(k * x)),
                (np.sin(k * x), k * np.cos(k * x)),
            ):
                columns.append(decay * (slope / phi - wave_ * by_x / phi**2))
        return np.stack(columns, axis=1)

    return Case(
        "Burgers", "u_t + u*u_x = nu * u_xx", nu, value, sensitivity, (32, 14), duration=4.0, count=5_000
    )


CASES = (diffusion, wave, heat, burgers)
