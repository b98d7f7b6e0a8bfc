"""A first fit of few values waits for no compiler: numba is not even imported."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from xspline.kernels import Group, Layout
from xspline.kernels.engines import engine_of_size
from xspline.spaces import BSpline, Space

FITS = """
import sys, numpy as np, xarray as xr, xspline
rng = np.random.default_rng(0)
axes = {"time": np.arange(20.0), "lat": np.linspace(-20, 20, 20), "lon": np.linspace(100, 150, 20)}
grid = xr.DataArray(rng.standard_normal((20, 20, 20)), axes, tuple(axes))
grid += 9 * np.sin(grid.lat / 9 + grid.lon / 9 + grid.time / 9)
points = xr.DataArray(rng.standard_normal(2000), {name: ("obs", rng.random(2000)) for name in axes}, ("obs",))
points += 9 * np.sin(6 * points.lat + 6 * points.lon + 6 * points.time)
for data in (grid, points):
    data.spline.fit(lat=8, lon=8, time=8, penalty="reml")
print("numba" in sys.modules)
"""


@pytest.mark.slow
def test_fits_of_few_values_compile_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FITS], check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == ["False"]


@pytest.mark.parametrize(
    ("functions", "count", "engine"),
    [(8, 1000, "namespace"), (8, 10_000_000, None), (20_000, 100_000, None)],
    ids=["few", "many values", "many cells"],
)
def test_the_whole_problem_decides(functions: int, count: int, engine: str | None) -> None:
    space = Space({"x": BSpline(functions, domain=(0.0, 1.0))})
    values, layout = np.zeros(2), Layout((Group((0,), (0,)),))  # a block of it may be small
    assert engine_of_size(values, layout, space, (count,)) == engine
