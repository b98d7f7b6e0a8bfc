"""Fields whose equations are known, and small spaces that hold them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import xarray as xr

import xspline as xs

#: Quintic, so that second derivatives are good to many digits.
SMOOTH = {"x": xs.BSpline(40, 5), "t": xs.BSpline(12, 5)}


def grid(nx: int = 70, nt: int = 40, length: float = 2 * np.pi, duration: float = 1.0) -> xr.Dataset:
    """Return a grid of metres and seconds."""
    x, t = np.linspace(0, length, nx), np.linspace(0, duration, nt)
    return xr.Dataset(coords={"t": ("t", t, {"units": "s"}), "x": ("x", x, {"units": "m"})})


def sampled(
    u: Callable[[xr.DataArray, xr.DataArray], xr.DataArray], at: xr.Dataset | None = None
) -> xr.DataArray:
    """Return u(x, t) in kelvin on a grid of (t, x)."""
    at = grid() if at is None else at
    data = u(at.x, at.t).transpose("t", "x")
    return data.rename("u").assign_attrs(units="K", long_name="temperature")


def diffusion(x: xr.DataArray, t: xr.DataArray, d: float = 0.05) -> xr.DataArray:
    """Return two decaying modes: u_t = d u_xx."""
    return np.exp(-d * t) * np.cos(x) + 0.5 * np.exp(-4 * d * t) * np.sin(2 * x)


def wave(x: xr.DataArray, t: xr.DataArray, c: float = 1.3) -> xr.DataArray:
    """Return a standing and a travelling wave: u_tt = c² u_xx."""
    return np.cos(x) * np.cos(c * t) + 0.3 * np.sin(2 * (x - c * t))


def burgers(x: xr.DataArray, t: xr.DataArray, k: float = 0.3) -> xr.DataArray:
    """Return a travelling front: u_t + u u_x = k u_xx."""
    return 1 - 0.6 * np.tanh(0.6 * (x - 3 - t) / (2 * k))


def noisy(data: xr.DataArray, noise: float, seed: int = 0) -> xr.DataArray:
    """Return data with noise of a standard deviation."""
    return data + noise * np.random.default_rng(seed).standard_normal(data.shape)


def turning(at: xr.Dataset, noise: float, more: float) -> xr.Dataset:
    """Return diffusion that turns, u + iv = e^(iωt) w(x, t), with so many times more noise in v."""
    rng, w = np.random.default_rng(0), diffusion(at.x, at.t)
    draw = [noise * xr.DataArray(rng.standard_normal(w.shape), dims=w.dims) for _ in range(2)]
    return xr.Dataset({"u": w * np.cos(1.5 * at.t) + draw[0], "v": w * np.sin(1.5 * at.t) + more * draw[1]})


def fitted(u: Callable[[xr.DataArray, xr.DataArray], xr.DataArray], **bases: xs.BSpline) -> xs.Field:
    """Return a close fit of u on the grid."""
    return sampled(u).spline.fit({**SMOOTH, **bases}, penalty=0)


def plane() -> xr.DataArray:
    """Return data of x² + x t + t³/3, a polynomial that cubic splines hold."""
    return sampled(lambda x, t: x**2 + x * t + t**3 / 3, grid(12, 11, 3.0, 2.0))


def burgers_on_a_circle(x: xr.DataArray, t: xr.DataArray, nu: float = 0.2) -> xr.DataArray:
    """Return a solution of u_t + u u_x = nu u_xx of period 2π, by Cole's and Hopf's transformation."""
    decay = np.exp(-nu * t)
    return 2 * nu * decay * np.sin(x) / (1.5 + decay * np.cos(x))
