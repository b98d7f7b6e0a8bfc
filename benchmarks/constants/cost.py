"""What constants of an equation cost against the size of the space: factorisations, CPU seconds, memory.

Diffusion of x and t, and advection-diffusion of x, y and t, of waves at random points with 5 % noise; splines of
degree 5 that are not periodic. Seconds are of ``field.recover`` alone, on one core; factorisations are those of all
searches, also of those with every second knot along a coordinate; memory is the peak of the process and what it held
before.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import xarray as xr

import xspline as xs
from benchmarks import measure
from xspline.pde.profile.gauss_newton import ConstrainedLeastSquares

HEAD = ("functions", "P", "factorisations", "CPU s", "peak, GB", "before, GB", "error of D, %", "stderr, %")
SIZES = ((40, 25), (12, 10, 9), (72, 70), (20, 20, 13), (102, 100), (28, 24, 15), (142, 140), (40, 20, 24))
WAVES = ((1, 0, 1.0), (0, 1, 0.7), (1, 1, 0.5), (2, 1, 0.4), (1, -2, 0.3))
TURN = 2 * np.pi
DIFFUSIVITY, SPEED = 0.05, (0.4, -0.25)


def observed(dims: Sequence[str], count: int, seed: int = 0) -> xr.DataArray:
    """Waves that travel and decay, at random points over one turn and two units of time."""
    rng = np.random.default_rng(seed)
    places = {name: rng.uniform(0, 2 if name == "t" else TURN, count) for name in dims}
    x, y, t = (places.get(name, np.zeros(count)) for name in "xyt")
    a, b = SPEED if "y" in dims else (0.0, 0.0)
    u = np.zeros(count)
    for k, across, amplitude in WAVES:
        m = across if "y" in dims else 0
        phase = k * (x - a * t) + m * (y - b * t) + amplitude
        u += amplitude * np.exp(-DIFFUSIVITY * (k**2 + m**2) * t) * np.cos(phase)
    u += 0.05 * u.std() * rng.standard_normal(count)
    return xr.DataArray(u, {name: ("point", values) for name, values in places.items()}, "point", "u")


def rows(quick: bool) -> Iterator[tuple[object, ...]]:
    """Yield a row of the table for each space."""
    step, counted = ConstrainedLeastSquares.linearised, 0

    def counting(*own: Any) -> Any:
        nonlocal counted
        counted += 1
        return step(*own)

    for sizes in SIZES[:2] if quick else SIZES:
        dims = ("x", "y", "t") if len(sizes) == 3 else ("x", "t")
        size = math.prod(sizes)
        bases = {
            name: xs.BSpline(k, 5, domain=(0.0, 2.0 if name == "t" else TURN))
            for name, k in zip(dims, sizes, strict=True)
        }
        field = observed(dims, 10 * size).spline.fit(bases, penalty=1e-6)
        equation = "u_t = -a*u_x - b*u_y + D*(u_xx + u_yy)" if "y" in dims else "u_t = D*u_xx"
        before, start, counted = measure.reset_peak(), time.process_time(), 0
        ConstrainedLeastSquares.linearised = counting  # type: ignore[method-assign]
        try:
            own = field.recover(equation).sel(parameter="D")
        finally:
            ConstrainedLeastSquares.linearised = step  # type: ignore[method-assign]
        seconds, memory = time.process_time() - start, (measure.peak() / 1e9, before / 1e9)
        relative = (own.estimate.item() / DIFFUSIVITY - 1, own.stderr.item() / DIFFUSIVITY)
        figures = (f"{x:.2f}" for x in (seconds, *memory))
        yield (
            " × ".join(map(str, sizes)),
            f"{size:,}",
            counted,
            *figures,
            *(f"{100 * x:.3f}" for x in relative),
        )
