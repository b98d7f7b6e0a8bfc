"""Viscous Burgers' equation: pseudospectral in space, Runge-Kutta in time, as in the paper."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import comb

import numpy as np

from xspline.synthetic.truth import Array, Truth, Wave

TURN = 2 * np.pi
SINES = {1: -1j, 2: -0.5j}  # sin x + 0.5 sin 2x
STABLE = 2.7  # |rate| · step at which the fourth-order Runge-Kutta method still damps
ROUNDING = 1e-15


@dataclass(frozen=True)
class Burgers(Truth):
    """The solution at every step, as Fourier modes of [0, 2π], and between steps by Hermite's cubic.

    Derivatives in x are spectral. Those in t follow from the equation at the steps, mode by mode; between
    steps each is interpolated from its values and slopes, to ``step``⁴/384 of its fourth derivative.
    """

    kappa: float
    initial: tuple[tuple[int, complex], ...]
    duration: float
    size: int
    step: float

    @property
    def equation(self) -> str:
        return "u_t + u * u_x = kappa * u_xx"

    @property
    def parameters(self) -> dict[str, float]:
        return {"kappa": self.kappa}

    @property
    def domain(self) -> dict[str, tuple[float, float]]:
        return {"x": (0.0, TURN), "t": (0.0, self.duration)}

    @property
    def steps(self) -> int:
        """Number of steps; the last one ends at the duration."""
        return round(self.duration / self.step)

    def waves(self, t: Array, order: int) -> Iterator[Wave]:
        values, slopes = levels(self, order), levels(self, order + 1)
        largest = np.abs(levels(self, 0)).max(axis=0)
        step = self.duration / self.steps
        cell = np.clip((t / step).astype(int), 0, self.steps - 1)
        weights = _hermite(t / step - cell, step)
        # Modes below rounding are left out: high derivatives would show nothing but them.
        for k in np.flatnonzero(largest > ROUNDING * largest.max()):
            ends = values[cell, k], values[cell + 1, k], slopes[cell, k], slopes[cell + 1, k]
            yield (int(k),), sum(w * v for w, v in zip(weights, ends, strict=True)) * (2 if k else 1)


def burgers(
    kappa: float = 0.1,
    *,
    initial: Mapping[int, complex] = SINES,
    duration: float = 1.0,
    size: int = 256,
    step: float = 0.001,
) -> Burgers:
    """Return a solution of u_t + u u_x = kappa u_xx on [0, 2π] × [0, duration] (paper, section 4.3).

    Parameters
    ----------
    kappa
        Viscosity, area per time.
    initial
        u at t = 0 as modes: {k: A} stands for the sum of Re A exp(i k x), so that 1 is a cosine and −1j a
        sine.
    duration
        Length of the time domain.
    size, step
        Points in space (an even number) and length of a step in time.

    Raises
    ------
    ValueError
        The step is too long for this viscosity and size, or a mode is not represented.
    """
    if kappa * (size / 2) ** 2 * step > STABLE:
        limit = STABLE / (kappa * (size / 2) ** 2)
        raise ValueError(f"step={step} is unstable with {kappa=} and {size=}; pass at most {limit:.2g}")
    if outside := [k for k in initial if not 0 <= k < size // 2]:
        raise ValueError(f"initial has the modes {outside}; with {size=} they run from 0 to {size // 2 - 1}")
    modes = tuple((k, complex(a)) for k, a in initial.items())
    return Burgers(kappa, modes, duration, size, step)


@functools.lru_cache(maxsize=32)
def levels(problem: Burgers, order: int) -> Array:
    """Return a time derivative of û_k at every step, [steps + 1, size / 2 + 1] complex."""
    if order == 0:
        return _integrated(problem)
    lower = [levels(problem, n) for n in range(order)]
    products = [comb(order - 1, n) * _product(lower[n], lower[order - 1 - n]) for n in range(order)]
    return _right_hand_side(problem, lower[-1], np.sum(products, axis=0))


def _integrated(problem: Burgers) -> Array:
    def slope(u: Array) -> Array:
        return _right_hand_side(problem, u, _product(u, u))

    u = np.zeros(problem.size // 2 + 1, complex)
    for k, amplitude in problem.initial:
        u[k] = amplitude / 2 if k else amplitude.real
    states, step = [u], problem.duration / problem.steps
    for _ in range(problem.steps):
        k1 = slope(u)
        k2 = slope(u + step / 2 * k1)
        k3 = slope(u + step / 2 * k2)
        k4 = slope(u + step * k3)
        u = u + step / 6 * (k1 + 2 * (k2 + k3) + k4)
        states.append(u)
    return np.array(states)


def _right_hand_side(problem: Burgers, u: Array, product: Array) -> Array:
    """Return κ (ik)² û − ½ ik (u²)^, for û and (u²)^ or for derivatives of both."""
    k = np.arange(u.shape[-1])
    return -problem.kappa * k**2 * u - 0.5j * k * product


def _product(a: Array, b: Array) -> Array:
    """Return the modes of a product; padded by half (the 3/2 rule), so that none is aliased."""
    modes = a.shape[-1]
    size = 3 * (modes - 1)
    values = np.fft.irfft(a, size, axis=-1, norm="forward") * np.fft.irfft(b, size, axis=-1, norm="forward")
    product = np.fft.rfft(values, axis=-1, norm="forward")[..., :modes]
    product[..., -1] = 0.0  # the mode of the grid's own frequency has no phase
    return product


def _hermite(z: Array, step: float) -> tuple[Array, Array, Array, Array]:
    """Return the weights of both ends' values and both ends' slopes at 0 ≤ z ≤ 1 of a step."""
    w = 1 - z
    return w * w * (1 + 2 * z), z * z * (1 + 2 * w), step * z * w * w, -step * z * z * w
