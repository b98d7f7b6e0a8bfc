"""Diffusion, waves and heat with a source: each Fourier mode evolves on its own, by a formula."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from xspline.synthetic.truth import Array, Truth, Wave

Modes = Mapping[tuple[int, int], complex]
TURN = 2 * np.pi

# sin x sin y + 0.3 cos 2x cos y: a product is half the sum of the modes of x + y and x − y.
SMOOTH: Modes = {(1, -1): 0.5, (1, 1): -0.5, (2, -1): 0.15, (2, 1): 0.15}
SOURCE: Modes = {(0, 0): 0.3, (1, 0): 0.2, (0, 2): -0.1j}  # 0.3 + 0.2 cos x + 0.1 sin 2y (paper, section 4.4)


@dataclass(frozen=True)
class Mode:
    """One term Re A exp(i k·x) exp(rate t); its wavenumber, A and rate."""

    wavenumber: tuple[int, int]
    amplitude: complex
    rate: complex


@dataclass(frozen=True)
class Linear(Truth):
    """A linear equation's solution on the periodic square: modes, and what grows in proportion to time."""

    text: str
    values: tuple[tuple[str, float], ...]
    duration: float
    modes: tuple[Mode, ...]
    drift: float = 0.0
    source: tuple[Mode, ...] = ()

    @property
    def equation(self) -> str:
        return self.text

    @property
    def parameters(self) -> dict[str, float]:
        return dict(self.values)

    @property
    def domain(self) -> dict[str, tuple[float, float]]:
        return {"x": (0.0, TURN), "y": (0.0, TURN), "t": (0.0, self.duration)}

    def waves(self, t: Array, order: int) -> Iterator[Wave]:
        for mode in self.modes:
            yield mode.wavenumber, mode.amplitude * mode.rate**order * np.exp(mode.rate * t)
        yield (0, 0), self.drift * (t if order == 0 else np.full_like(t, order == 1)) + 0j

    def known(self, at: Any) -> dict[str, xr.DataArray]:
        """Return the source ``S`` at the labels of a DataArray, a Dataset or a mapping, if there is one."""
        if not self.source:
            return {}
        still = Linear(self.text, self.values, self.duration, self.source)
        here: dict[str, Any] = {name: self._axis(name, at[name]) for name in ("x", "y")}
        return {"S": still(**here, t=0.0).rename("S")}


def diffusion(D: float = 0.05, *, initial: Modes = SMOOTH, duration: float = 2.0) -> Linear:
    """Return a solution of u_t = D (u_xx + u_yy) on [0, 2π]² × [0, duration] (paper, section 4.1).

    Parameters
    ----------
    D
        Diffusivity, area per time.
    initial
        u at t = 0 as modes: {(kx, ky): A} stands for the sum of Re A exp(i(kx x + ky y)), so that 1 is a
        cosine and −1j a sine.
    duration
        Length of the time domain.
    """
    modes = tuple(Mode(k, complex(a), -D * _square(k)) for k, a in initial.items())
    return Linear("u_t = D * (u_xx + u_yy)", (("D", D),), duration, modes)


def wave(
    c: float = 1.0, *, initial: Modes = SMOOTH, velocity: Modes | None = None, duration: float = 3.0
) -> Linear:
    """Return a solution of u_tt = c² (u_xx + u_yy) on [0, 2π]² × [0, duration] (paper, section 4.2).

    Parameters
    ----------
    c
        Wave speed.
    initial, velocity
        u and u_t at t = 0 as modes; see :func:`diffusion`. No velocity is rest.
    duration
        Length of the time domain.
    """
    velocity = velocity or {}
    modes: list[Mode] = []
    for k in dict.fromkeys([*initial, *velocity]):
        omega = c * np.sqrt(_square(k))
        here, speed = complex(initial.get(k, 0.0)), complex(velocity.get(k, 0.0))
        turn = -1j * speed / omega if omega else 0.0
        modes += [Mode(k, (here + turn) / 2, 1j * omega), Mode(k, (here - turn) / 2, -1j * omega)]
    drift = complex(velocity.get((0, 0), 0.0)).real
    return Linear("u_tt = c**2 * (u_xx + u_yy)", (("c", c),), duration, tuple(modes), drift)


def heat(
    D: float = 0.03, *, initial: Modes = SMOOTH, source: Modes = SOURCE, duration: float = 2.0
) -> Linear:
    """Return a solution of u_t = D (u_xx + u_yy) + S(x, y) on [0, 2π]² × [0, duration] (paper, section 4.4).

    Parameters
    ----------
    D
        Diffusivity, area per time.
    initial, source
        u at t = 0, and S, as modes; see :func:`diffusion`. The paper's S = 0.3 + 0.2 cos x + 0.1 sin 2y.
    duration
        Length of the time domain.
    """
    modes = []
    for k in dict.fromkeys([*initial, *source]):
        rate = D * _square(k)
        steady = complex(source.get(k, 0.0)) / rate if rate else 0.0
        modes += [Mode(k, complex(initial.get(k, 0.0)) - steady, -rate), Mode(k, steady, 0.0)]
    drift = complex(source.get((0, 0), 0.0)).real
    sources = tuple(Mode(k, complex(a), 0.0) for k, a in source.items())
    return Linear("u_t = D * (u_xx + u_yy) + S", (("D", D),), duration, tuple(modes), drift, sources)


def _square(wavenumber: tuple[int, int]) -> int:
    return wavenumber[0] ** 2 + wavenumber[1] ** 2
