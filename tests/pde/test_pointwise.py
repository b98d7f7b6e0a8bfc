"""Least squares against NumPy's, quantiles, roots, stencils and units on their own."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import xarray as xr

from tests import scatter
from xspline.pde.points import least_squares as pointwise
from xspline.pde.points.evaluation_points import stencil
from xspline.pde.results import root
from xspline.pde.text.unit_powers import Mismatch, Unit


def solved(y: np.ndarray, columns: list[np.ndarray]) -> pointwise.Estimate:
    arrays = [xr.DataArray(a, dims=("run", "i")) for a in (y, *columns)]
    return pointwise.least_squares(arrays[0], arrays[1:], ["i"], ["run"], arrays[0])


def test_least_squares_is_that_of_numpy() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 2, 500)) * np.array([1.0, 30.0, 1e-3])[:, None, None]
    y = 2 * x[0] - x[1] + 5 * x[2] + rng.standard_normal((2, 500))
    y[1, ::7], x[2, 0, 3] = np.nan, np.nan
    found = solved(y, list(x))
    for run in range(2):
        keep = np.isfinite(y[run]) & np.isfinite(x[:, run]).all(0)
        design = x[:, run, keep].T
        value, rss, _, _ = np.linalg.lstsq(design, y[run, keep])
        cov = np.linalg.inv(design.T @ design) * rss[0] / (keep.sum() - 3)
        np.testing.assert_allclose(found.value[run], value, rtol=1e-6)
        np.testing.assert_allclose(found.stderr[run], np.sqrt(np.diag(cov)), rtol=1e-6)
        np.testing.assert_allclose(found.rms[run], np.sqrt(rss[0] / keep.sum()), rtol=1e-9)


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    rng = np.random.default_rng(1)
    x, noise = rng.standard_normal((4000, 8)), rng.standard_normal((4000, 8))
    found = solved(0.7 * x + noise, [x])
    half_width = found.factor * found.stderr[:, 0]
    assert np.mean(np.abs(found.value[:, 0] - 0.7) < half_width) == pytest.approx(
        0.95, abs=scatter.FIVE * scatter.of_share(0.95, 4000)
    )


def test_a_perfect_fit_is_not_certain_beyond_rounding() -> None:
    x = np.linspace(1, 2, 50)[None]
    found = solved(3 * x, [x])
    assert 0 < found.stderr[0, 0] < 1e-7 and abs(found.value[0, 0] - 3) < 1e-7


def test_terms_that_are_proportional_are_told() -> None:
    x = np.linspace(1, 2, 50)[None]
    found = solved(3 * x, [x, 2 * x])
    assert found.condition[0] > 1e8 and np.isfinite(found.value).all()


@pytest.mark.parametrize("freedom", [1, 2, 3, 6, 30, 1000])
def test_intervals_are_those_of_student(freedom: int) -> None:
    x, noise = np.random.default_rng(2).standard_normal((2, 1, freedom + 1))
    factor = solved(0.7 * x + noise, [x]).factor
    np.testing.assert_allclose(factor, scipy.stats.t.ppf(0.975, freedom), rtol=1e-12)


@pytest.mark.parametrize(("size", "stabiliser"), [(1.0, 1e-8), (40.0, 1e-8), (1e-20, 1e-28)])
def test_the_stabiliser_is_the_paper_s_for_terms_of_its_size(size: float, stabiliser: float) -> None:
    x = np.full((1, 4), np.sqrt(size / 4))
    value = solved(3 * x, [x]).value
    np.testing.assert_allclose(value / 3 - 1, -stabiliser / (size + stabiliser), rtol=1e-5)


def test_odd_roots_keep_their_sign_and_even_ones_need_a_positive_power() -> None:
    values = np.array([8.0, -8.0])
    np.testing.assert_allclose(root(values, 3), [2, -2])
    np.testing.assert_allclose(root(values, -1), [0.125, -0.125])
    np.testing.assert_allclose(root(values, -3), [0.5, -0.5])
    np.testing.assert_allclose(root(values * 2, 2), [4, np.nan])
    np.testing.assert_allclose(root(values, 0.5), [64, np.nan])


def test_stencils_are_central_differences() -> None:
    assert stencil(1) == {-1: -0.5, 1: 0.5}
    assert stencil(2) == {-1: 1.0, 0: -2.0, 1: 1.0}
    assert stencil(3) == {-2: -0.5, -1: 1.0, 1: -1.0, 2: 0.5}
    assert stencil(4) == {-2: 1.0, -1: -4.0, 0: 6.0, 1: -4.0, 2: 1.0}


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("m2 s-1", "m2 s-1"),
        ("s-1 m**2", "m2 s-1"),
        ("kg/m^3", "kg m-3"),
        ("kg m-2/s", "kg m-2 s-1"),
        ("degC", "K"),
        ("degrees_north", "degree"),
        ("W.m-2", "W m-2"),
        ("1", "1"),
        ("m m-1", "1"),
    ],
)
def test_units_are_read(text: str, written: str) -> None:
    unit = Unit.parse(text, "a")
    assert str(unit) == written and unit.is_known


@pytest.mark.parametrize("text", ["", "1e-3 m", "days since 2000-01-01", "m (depth)"])
def test_units_that_are_not_known_may_cancel(text: str) -> None:
    unit = Unit.parse(text, "a")
    assert not unit.is_known
    assert str(unit * Unit.parse("m", "b") / unit) == "m"


def test_units_of_sums_and_powers() -> None:
    m, s, number = Unit.parse("m", "a"), Unit.parse("s", "b"), Unit(number=2.0)
    unknown = Unit.parse("", "c")
    assert (m + number, number + m, m - m, m + unknown, unknown + m) == (m, m, m, m, m)
    assert str(m**number) == "m2" and str((m / s).to(0.5)) == "m0.5 s-0.5" and str(-m) == "m"
    assert not (m**unknown).is_known and number.to(0.5) == number
    with pytest.raises(Mismatch, match="m and s are added"):
        m + s
