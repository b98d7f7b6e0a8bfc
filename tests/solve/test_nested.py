"""A space that lies in a finer one sees the data through the sums of the finer one."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from tests.solve.test_coarse import scattered
from xspline.kernels import Group, Layout, accumulate
from xspline.solve import Roughness, left_out, solve
from xspline.solve.multigrid.nested import restricted
from xspline.spaces import Basis, BSpline, Fourier, Polynomial, Space

YEARS = ("2000-01-01", "2003-01-01")
SEASONS = Fourier(1, "year", domain=YEARS) + Polynomial(1, domain=YEARS)


def events(size: int) -> Basis:
    return SEASONS + BSpline(size, domain=YEARS)


LAYOUT = Layout((Group((0,), (0, 1)),), ())
CASES: dict[str, tuple[dict[str, Basis], dict[str, Basis]]] = {
    "a third and all": (
        {"x": BSpline(15, domain=(0, 3)), "y": BSpline(9, domain=(-1, 1))},
        {"x": BSpline(7, domain=(0, 3)), "y": BSpline(9, domain=(-1, 1))},
    ),
    "one cell": (
        {"x": BSpline(15, domain=(0, 3)), "y": BSpline(8, degree=2, domain=(-1, 1))},
        {"x": BSpline(4, domain=(0, 3)), "y": BSpline(5, degree=2, domain=(-1, 1))},
    ),
    "circle": (
        {"x": BSpline(24, period=3.0), "y": Polynomial(1, domain=(-1, 1))},
        {"x": BSpline(8, period=3.0), "y": Polynomial(1, domain=(-1, 1))},
    ),
    "events in cells": (
        {"x": BSpline(6, domain=(0, 3)), "t": events(33)},
        {"x": BSpline(6, domain=(0, 3)), "t": events(18)},
    ),
    "few events": (
        {"x": BSpline(6, domain=(0, 3)), "t": events(33)},
        {"x": BSpline(4, domain=(0, 3)), "t": events(4)},
    ),
    "without events": (
        {"x": BSpline(6, domain=(0, 3)), "t": events(33)},
        {"x": BSpline(6, domain=(0, 3)), "t": SEASONS},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_sums_are_those_of_the_data_in_the_smaller_space(name: str) -> None:
    fine, coarse = map(Space, CASES[name])
    block = scattered(fine)
    sums = restricted(accumulate(block, LAYOUT, fine), fine, coarse)
    direct = accumulate(block, LAYOUT, coarse).recentred(sums.reference, coarse.frame)
    scale = np.abs(direct.moment).max()
    np.testing.assert_allclose(sums.moment, direct.full_moment(coarse.frame), atol=1e-12 * scale)
    dense, wanted = (s.gram.to_dense(coarse.frame) for s in (sums, direct))
    np.testing.assert_allclose(dense, wanted, atol=1e-12 * np.abs(wanted).max())
    assert sums.count == direct.count and sums.power == pytest.approx(float(direct.power), rel=1e-12)


def test_what_does_not_lie_in_the_finer_space_is_refused() -> None:
    fine = Space({"x": BSpline(15, domain=(0, 3)), "t": SEASONS})
    sums = accumulate(scattered(fine), LAYOUT, fine)
    other = Space({"x": BSpline(8, domain=(0, 3)), "t": SEASONS})
    with pytest.raises(
        ValueError, match="x: the 5 cells of the coarse B-spline are not made of the 12 fine ones"
    ):
        restricted(sums, fine, other)
    other = Space({"x": BSpline(15, domain=(0, 3)), "t": BSpline(9, domain=YEARS)})
    with pytest.raises(
        ValueError, match="t: of the 9 coarse functions some do not lie among the 4 fine ones"
    ):
        restricted(sums, fine, other)


@pytest.mark.parametrize("amplitude", [0.0, 0.3])
@pytest.mark.parametrize("weight", [1.0, 4.0])
def test_waves_shorter_than_cells_are_left_out_and_noise_is_not(amplitude: float, weight: float) -> None:
    rng = np.random.default_rng(0)
    x, y = np.meshgrid(np.linspace(0, 1, 120), np.linspace(0, 1, 90), indexing="ij")
    short = np.sqrt(2) * amplitude * np.cos(2 * np.pi * (7 * x + 5 * y))
    values = np.sin(3 * x) + y + short + rng.normal(0, 0.5, x.shape)
    values[rng.random(x.shape) < 0.3] = np.nan
    data = xr.DataArray(values, {"x": x[:, 0], "y": y[0]}, ("x", "y"), "u")
    finer = data.spline.statistics(x=33, y=33, weights=xr.full_like(data, weight))
    axes = {name: axis for name, (axis, _) in finer.space.axes.items()}
    few = Space({name: BSpline(8, domain=(0, 1)) for name in axes}, axes=axes)
    sums = restricted(finer.total("u"), finer.space, few)
    found = float(left_out(finer.total("u"), finer.space, few, solve(sums, few, Roughness(1e-6))))
    assert 0.6 * amplitude**2 - 0.002 < found < 1.5 * amplitude**2 + 0.004
