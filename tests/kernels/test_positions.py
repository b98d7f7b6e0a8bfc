"""Positions on a device are those on the host, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from tests.devices import Device
from xspline.spaces import BSpline, Space

SPLINES = {
    "uniform": BSpline(9, domain=(-30.0, 30.1)),
    "periodic": BSpline(11, period=360.0, domain=(0.0, 360.0)),
    "knots": BSpline(knots=np.r_[[0.0] * 4, 1.0, 1.5, 1.5, 4.0, [7.0] * 4]),
    "linear": BSpline(6, degree=1, domain=(0.0, 1e9)),
}


def positions(lo: float, hi: float, edges: np.ndarray) -> np.ndarray:
    """Random ones, knots and their neighbours, far outside, NaN and infinities."""
    rng = np.random.default_rng(0)
    near = [np.nextafter(edges, -np.inf), edges, np.nextafter(edges, np.inf)]
    far = [lo - 1e-9, hi + 1e-9, lo - 5 * (hi - lo), hi + 7.3 * (hi - lo), np.nan, np.inf, -np.inf]
    return np.concatenate([rng.uniform(lo - 0.2 * (hi - lo), hi + 0.2 * (hi - lo), 2000), *near, far])


@pytest.mark.parametrize("name", SPLINES)
def test_cells_and_local_coordinates(name: str, device: Device) -> None:
    (spline,) = Space({"x": SPLINES[name]}).features
    x = positions(*spline.ends, spline.edges)
    cell, z = spline.locate(device.put(x), device.xp)
    expected_cell, expected_z = spline.locate(x)
    np.testing.assert_array_equal(device.get(cell), expected_cell)
    np.testing.assert_array_equal(device.get(z), expected_z)
