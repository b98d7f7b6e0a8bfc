"""Solutions of four equations that can be evaluated anywhere.

Diffusion, waves and heat with a source: each Fourier mode evolves on its own, by a formula. Viscous Burgers' equation:
pseudospectral in space, Runge-Kutta in time, as in the paper.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np
import xarray as xr

from xspline.synthetic.truth import Array, Truth, Wave

# sin x sin y + 0.3 cos 2x cos y as Σ Re A exp(i k·x): a product is half the sum of the modes of x + y and x − y.
SMOOTH: dict[tuple[int, int], complex] = {(1, -1): 0.5, (1, 1): -0.5, (2, -1): 0.15, (2, 1): 0.15}
# 0.3 + 0.2 cos x + 0.1 sin 2y (paper, section 4.4)
SOURCE: dict[tuple[int, int], complex] = {(0, 0): 0.3, (1, 0): 0.2, (0, 2): -0.1j}
SINES = {1: -1j, 2: -0.5j}  # sin x + 0.5 sin 2x

#: One term Re A exp(i k·x) exp(rate t): its wavenumber k, A and rate.
Mode = tuple[tuple[int, int], complex, complex]


@dataclass(frozen=True, eq=False)
class Linear(Truth):
    """A linear equation's solution on the periodic square: modes, and what grows in proportion to time."""

    modes: tuple[Mode, ...]
    drift: float = 0.0
    source: tuple[Mode, ...] = ()

    def waves(self, t: Array, order: int) -> Iterator[Wave]:
        for wavenumber, amplitude, rate in self.modes:
            yield wavenumber, amplitude * rate**order * np.exp(rate * t)
        yield (0, 0), self.drift * (t if order == 0 else np.full_like(t, order == 1)) + 0j

    def known(self, at: Any) -> dict[str, xr.DataArray]:
        """Return the source ``S`` at the labels of a DataArray, a Dataset or a mapping, if there is one."""
        if not self.source:
            return {}
        still = Linear(self.equation, self.parameters, self.domain, self.source)
        here: dict[str, Any] = {name: self._axis(name, at[name]) for name in ("x", "y")}
        return {"S": still(**here, t=0.0).rename("S")}


def diffusion(D: float = 0.05) -> Linear:
    """Return a solution of u_t = D (u_xx + u_yy) on [0, 2π]² × [0, 2] (paper, section 4.1).

    Parameters
    ----------
    D : float
        Diffusivity, area per time.

    Returns
    -------
    Truth
        The solution as a function of x, y and t, which starts as sin x sin y + 0.3 cos 2x cos y.
    """
    modes = tuple((k, complex(a), -D * _squared(k)) for k, a in SMOOTH.items())
    return Linear("u_t = D * (u_xx + u_yy)", {"D": D}, _square(2.0), modes)


def wave(c: float = 1.0) -> Linear:
    """Return a solution of u_tt = c² (u_xx + u_yy) on [0, 2π]² × [0, 3] (paper, section 4.2).

    Parameters
    ----------
    c : float
        Wave speed.

    Returns
    -------
    Truth
        The solution as a function of x, y and t, which starts at rest as that of :func:`diffusion` does.
    """
    modes = tuple(
        (k, a / 2, sign * 1j * c * np.sqrt(_squared(k))) for k, a in SMOOTH.items() for sign in (1, -1)
    )
    return Linear("u_tt = c**2 * (u_xx + u_yy)", {"c": c}, _square(3.0), modes)


def heat(D: float = 0.03) -> Linear:
    """Return a solution of u_t = D (u_xx + u_yy) + S(x, y) on [0, 2π]² × [0, 2] (paper, section 4.4).

    Parameters
    ----------
    D : float
        Diffusivity, area per time.

    Returns
    -------
    Truth
        The solution as a function of x, y and t, which starts as that of :func:`diffusion` does. The paper's source is
        S = 0.3 + 0.2 cos x + 0.1 sin 2y.
    """
    modes: list[Mode] = []
    for k in dict.fromkeys([*SMOOTH, *SOURCE]):
        rate = D * _squared(k)
        steady = SOURCE.get(k, 0.0) / rate if rate else 0.0
        modes += [(k, SMOOTH.get(k, 0.0) - steady, -rate), (k, steady, 0.0)]
    sources = tuple((k, complex(a), 0.0) for k, a in SOURCE.items())
    drift = complex(SOURCE[0, 0]).real
    return Linear("u_t = D * (u_xx + u_yy) + S", {"D": D}, _square(2.0), tuple(modes), drift, sources)


def _square(duration: float) -> dict[str, tuple[float, float]]:
    return {"x": (0.0, 2 * np.pi), "y": (0.0, 2 * np.pi), "t": (0.0, duration)}


def _squared(wavenumber: tuple[int, int]) -> int:
    return wavenumber[0] ** 2 + wavenumber[1] ** 2


@dataclass(frozen=True, eq=False)
class Burgers(Truth):
    """The solution at every step, as Fourier modes of [0, 2π], and between steps by Hermite's cubic.

    Derivatives in x are spectral. Those in t follow from the equation at the steps, mode by mode; between steps each is
    interpolated from its values and slopes, to 1/384 of its fourth derivative times the fourth power of the step.
    """

    initial: dict[int, complex]
    size: int
    steps: int

    def waves(self, t: Array, order: int) -> Iterator[Wave]:
        values, derivatives = self.level(order), self.level(order + 1)
        largest = np.abs(self.level(0)).max(axis=0)
        step = self.domain["t"][1] / self.steps
        cell = np.clip((t / step).astype(int), 0, self.steps - 1)
        z = t / step - cell
        w = 1 - z
        # Of the values and of the slopes at both ends of the step.
        weights = w * w * (1 + 2 * z), z * z * (1 + 2 * w), step * z * w * w, -step * z * z * w
        # Modes below rounding are left out: high derivatives would show nothing but them.
        for k in np.flatnonzero(largest > 4 * np.finfo(np.float64).eps * largest.max()):
            ends = values[cell, k], values[cell + 1, k], derivatives[cell, k], derivatives[cell + 1, k]
            yield (int(k),), sum(w * v for w, v in zip(weights, ends, strict=True)) * (2 if k else 1)

    def level(self, order: int) -> Array:
        """Return a time derivative of û_k at every step, [steps + 1, size / 2 + 1] complex."""
        known = self._levels
        while len(known) <= order:
            n = len(known) - 1
            products = [comb(n, i) * _product(known[i], known[n - i]) for i in range(n + 1)]
            known.append(self._right_hand_side(known[n], np.sum(products, axis=0)))
        return known[order]

    @functools.cached_property
    def _levels(self) -> list[Array]:
        """The solution, by the fourth-order Runge-Kutta method, and those of its time derivatives that are known."""

        def slope(u: Array) -> Array:
            return self._right_hand_side(u, _product(u, u))

        u = np.zeros(self.size // 2 + 1, complex)
        for k, amplitude in self.initial.items():
            u[k] = amplitude / 2 if k else amplitude.real
        states, step = [u], self.domain["t"][1] / self.steps
        for _ in range(self.steps):
            k1 = slope(u)
            k2 = slope(u + step / 2 * k1)
            k3 = slope(u + step / 2 * k2)
            k4 = slope(u + step * k3)
            u = u + step / 6 * (k1 + 2 * (k2 + k3) + k4)
            states.append(u)
        return [np.array(states)]

    def _right_hand_side(self, u: Array, product: Array) -> Array:
        """Return κ (ik)² û − ½ ik (u²)^, for û and (u²)^ or for derivatives of both."""
        k = np.arange(u.shape[-1])
        return -self.parameters["kappa"] * k**2 * u - 0.5j * k * product


def burgers(kappa: float = 0.1) -> Burgers:
    """Return a solution of u_t + u u_x = kappa u_xx on [0, 2π] × [0, 1] (paper, section 4.3).

    Parameters
    ----------
    kappa : float
        Viscosity, area per time.

    Returns
    -------
    Truth
        The solution as a function of x and t, which starts as sin x + 0.5 sin 2x.
    """
    size, steps = 256, 1000
    # What a step of the fourth-order Runge-Kutta method makes of a mode that falls as exp(-z) within it.
    growth = np.polynomial.Polynomial([1, -1, 1 / 2, -1 / 6, 1 / 24])
    while growth(kappa * (size / 2) ** 2 / steps) > 1:
        steps *= 2
    domain = {"x": (0.0, 2 * np.pi), "t": (0.0, 1.0)}
    return Burgers("u_t + u * u_x = kappa * u_xx", {"kappa": kappa}, domain, SINES, size, steps)


def _product(a: Array, b: Array) -> Array:
    """Return the modes of a product; padded by half (the 3/2 rule), so that none is aliased."""
    modes = a.shape[-1]
    size = 3 * (modes - 1)
    values = np.fft.irfft(a, size, axis=-1, norm="forward") * np.fft.irfft(b, size, axis=-1, norm="forward")
    product = np.fft.rfft(values, axis=-1, norm="forward")[..., :modes]
    product[..., -1] = 0.0  # the mode of the grid's own frequency has no phase
    return product
