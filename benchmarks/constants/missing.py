"""Constants of an equation that lacks a term: how often a wrong interval is given."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import xarray as xr

import xspline as xs

HEAD = (
    "lacks",
    "k",
    "noise",
    "draws",
    "given",
    "given and wrong",
    "withheld",
    "the term that is named",
    "s each",
)
LEVELS = (0.02, 0.05, 0.1)
RIGHT = "nothing"


@dataclass(frozen=True)
class Family:
    """Three modes that diffuse, D = 0.1, and obey one term more: u(x, t, k) solves u_t = D*u_xx + k*term."""

    term: str
    sizes: tuple[float, ...]
    value: Callable[[np.ndarray, np.ndarray, float], np.ndarray]

    def observed(self, k: float, noise: float, seed: int) -> xr.DataArray:
        x = np.linspace(0, 6, 50)
        t = np.linspace(0, 2, 30)
        u = self.value(x, t[:, None], k)
        data = u + noise * np.random.default_rng(seed).standard_normal(u.shape)
        return xr.DataArray(data, {"t": t, "x": x}, ("t", "x"), "u")


def modes(x: np.ndarray, t: np.ndarray, d: float = 0.1) -> np.ndarray:
    return np.sum([np.exp(-d * j**2 * t) * np.sin(j * x + j) for j in (1, 2, 3)], axis=0)


def squared(x: np.ndarray, t: np.ndarray, k: float, d: float = 0.1) -> np.ndarray:
    """u_t = d u_xx + k u², by Fourier series on a circle of 2π and Runge-Kutta steps."""
    grid = np.linspace(0, 2 * np.pi, 64, endpoint=False)
    wave = np.arange(33)
    u = np.fft.rfft(modes(grid, np.zeros(1)))

    def slope(own: np.ndarray) -> np.ndarray:
        return -d * wave**2 * own + k * np.fft.rfft(np.fft.irfft(own) ** 2)

    design = np.exp(1j * wave * x[:, None]) * np.where(wave == 0, 1, 2) / 64
    out = []
    steps = 20
    ends = np.ravel(t)
    for i, end in enumerate(ends):
        h = (end - (ends[i - 1] if i else 0.0)) / steps
        for _ in range(steps):
            a = slope(u)
            b = slope(u + h / 2 * a)
            c = slope(u + h / 2 * b)
            u = u + h / 6 * (a + 2 * b + 2 * c + slope(u + h * c))
        out.append((design @ u).real)
    return np.array(out)


FAMILIES = (
    Family(RIGHT, (0.0,), lambda x, t, k: modes(x, t)),
    Family("u", (-0.01, -0.02, -0.05, -0.1, -0.2), lambda x, t, k: modes(x, t) * np.exp(k * t)),
    Family("u_x", (0.02, 0.1), lambda x, t, k: modes(x + k * t, t)),
    Family("1", (0.01, 0.1), lambda x, t, k: modes(x, t) + k * t),
    Family("u*u", (0.01, 0.05), squared),
)


def rows(
    only: str, count: int, levels: tuple[float, ...] = LEVELS, most: int | None = None
) -> Iterator[tuple[object, ...]]:
    """Yield a row for each family, size (`most` of them, the first ones) and noise, from the mean over draws."""
    for family in (f for f in FAMILIES if only in f.term):
        for k in family.sizes[:most]:
            for noise in levels:
                start = time.process_time()
                given = []
                named = 0
                for seed in range(count):
                    found = xs.recover(family.observed(k, noise, seed), "u_t = D*u_xx")
                    low, high = found.lower.item(), found.upper.item()
                    if np.isfinite(low):
                        given.append(low <= 0.1 <= high)
                    text = "k" if family.term == "1" else f"k*{family.term}"
                    named += f"ask for {text} with" in found.attrs["checks"]
                seconds = (time.process_time() - start) / count
                wrong = len(given) - sum(given)
                cells = (len(given), f"{wrong / count:.0%}", count - len(given), named, f"{seconds:.2f}")
                yield (family.term, f"{k:g}", f"{noise:g}", count, *cells)
