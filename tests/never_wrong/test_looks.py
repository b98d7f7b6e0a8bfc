"""What a field tells of itself: a check with advice, its text, its look in a notebook; plans in plain words."""

from __future__ import annotations

import re

import dask.array as da
import numpy as np
import pytest
import xarray as xr

import xspline as xs
from tests.products import stderr_of

SUBJECTS = (*"smoothing bounds knots functions condition fits units residual".split(), "left out", "errors")


def data(noise: float = 0.1, members: int = 3) -> xr.DataArray:
    x = np.linspace(0, 1, 120)
    values = np.sin(9 * x)[:, None] + noise * np.random.default_rng(0).standard_normal((120, members))
    coords = {"x": ("x", x, {"units": "m"}), "time": range(members)}
    return xr.DataArray(values, coords, ("x", "time"), "u", {"units": "K"})


@pytest.fixture(scope="module")
def field() -> xs.Field:
    return data().spline.fit(x=20)


# ---- check


def test_a_check_says_what_is_fine(field: xs.Field) -> None:
    check = field.check()
    assert isinstance(check, xs.FitCheck) and check.concerns == {"u": ()}
    assert tuple(dict.fromkeys(finding.subject for finding in check.findings["u"])) == SUBJECTS
    text = repr(check)
    for part in (
        "all fine",
        "by 'reml' in ",
        "no lambda at a bound",
        "of 20 along x",
        "3 independent fits over time",
    ):
        assert part in text
    assert "360 observations used, 0 missing values" in text
    assert "x: m" in text
    assert "standard deviation 0.1" in text
    assert max(map(len, text.splitlines())) <= 100
    assert "<pre class='xspline-text'>&lt;xspline.FitCheck" in check._repr_html_()


def test_a_check_advises() -> None:
    x = np.linspace(0, 1, 400)
    values = np.sin(25 * x) + 0.1 * np.random.default_rng(0).standard_normal(400)
    values[3] = np.nan
    with pytest.warns(xs.FitWarning, match="knots limit"):
        field = xr.DataArray(values, {"x": x}, "x", "u").spline.fit(x=xs.BSpline(10, domain=(0, 0.9)))
    concerns = {finding.subject: finding for finding in field.check().concerns["u"]}
    assert set(concerns) == {"knots", "left out", "structure", "units"}
    assert (
        "xs.BSpline(20" in concerns["knots"].advice and "40 observations outside" in concerns["left out"].text
    )
    assert "derivatives along x carry none" in concerns["units"].advice and "1 missing values" in repr(
        field.check()
    )


def test_a_check_of_a_given_penalty_and_of_an_opened_file(field: xs.Field, tmp_path: object) -> None:
    plain = data().spline.fit(x=20, penalty=0.1)
    assert "penalty given: Ridge(0.1)" in repr(plain.check())
    field.to_netcdf(f"{tmp_path}/fit.nc")
    opened = xs.open_field(f"{tmp_path}/fit.nc")
    assert repr(opened.check()) == repr(field.check())


def test_a_check_of_several_variables() -> None:
    both = xr.Dataset({"a": data(), "b": 2 * data()}).spline.fit(x=20)
    check = both.check()
    assert set(check.findings) == {"a", "b"} and repr(check).count("residual") == 2
    assert set(both["a"].check().findings) == {"a"}


def test_a_check_needs_a_solved_field() -> None:
    with pytest.raises(ValueError, match=r"still lazy.*call \.compute\(\) first"):
        data().chunk(x=40).spline.fit(x=20, compute=False).check()
    with pytest.raises(AttributeError, match="draws along 'sample', which have no check; ask the field"):
        data().spline.fit(x=20, penalty=0.1).sample(3, seed=0).check()


# ---- text


def test_strengths_have_three_digits(field: xs.Field) -> None:
    numbers = re.findall(r"Sobolev\(\{1: ([\d.e+-]+), 2: ", repr(field))
    assert len(numbers) == 2  # the penalty and the line of code
    assert all(float(n) == float(f"{float(n):.3g}") and len(n) < 9 for n in numbers)
    exact = field.penalty.orders[1]
    assert repr(exact) in field.code() and float(numbers[0]) == pytest.approx(exact, rel=5e-3)
    summed = data().spline.fit(x=20, penalty=xs.Ridge(1 / 3) + xs.Roughness(2 / 3))
    assert "Ridge(0.333) + Roughness(0.667, order=2)" in repr(summed)


def test_a_plan_speaks_plainly() -> None:
    x = np.linspace(0, 1, 200)
    lazy = xr.DataArray(da.zeros((200, 200), chunks=50), {"a": x, "b": x}, ("a", "b"), "u")
    text = repr(lazy.spline.plan(a=30))
    for part in ("missing data", "static (land)", "any (clouds)", "200 independent fits", "tasks", "of Dask"):
        assert part in text
    assert "moved" not in text and "tier" not in text and max(map(len, text.splitlines())) <= 110


def test_the_slope_of_a_linear_trend_comes_once() -> None:
    """Not at each of 399 months; a target, or a term that is not linear, asks for more."""
    time = xr.date_range("1980-01", periods=399, freq="MS")
    season = np.sin(2 * np.pi * np.arange(399) / 12)
    data = xr.DataArray(
        (0.01 * np.arange(399) + season)[:, None] * [1.0, 2.0], {"time": time}, ("time", "x"), "u"
    )
    field = data.spline.fit(time=xs.Fourier(1, "365.2425D") + xs.Polynomial(1))
    trend = field.select(time=xs.Polynomial)
    slope = trend.derivative(time=1)
    assert slope.dims == ("x",) and "time" not in slope.coords
    everywhere = trend.derivative(data, time=1)
    assert everywhere.sizes == {"time": 399, "x": 2}
    np.testing.assert_allclose(everywhere, slope.broadcast_like(everywhere), rtol=1e-9)
    both = trend.derivative(time=1, stderr=True)
    assert both.du_dtime_stderr.dims == ("x",) == stderr_of(trend.derivative(time=1, stderr=True)).dims
    assert field.derivative(time=1).sizes == {"time": 399, "x": 2}
    lazy = data.chunk(x=1).spline.fit(time=xs.Fourier(1, "365.2425D") + xs.Polynomial(1))
    slopes = lazy.select(time=xs.Polynomial).derivative(time=1)
    assert slopes.chunks == ((1, 1),), "as lazy as the data"
    np.testing.assert_allclose(slopes, slope, rtol=1e-12)
