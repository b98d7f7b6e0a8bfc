"""Constants recovered from fields that obey an equation exactly, or to the digits of the fit."""

from __future__ import annotations

import inspect

import dask
import dask.threaded
import numpy as np
import pytest
import xarray as xr

import xspline as xs
from tests.pde import cases
from xspline import pde


def value(found: xr.Dataset, name: str, variable: str = "estimate") -> float:
    return float(found[variable].sel(parameter=name))


def test_it_is_a_method_of_fields() -> None:
    method = inspect.signature(xs.Field.recover).parameters
    assert list(method) == ["self", "equation", "known", "vary", "dims", "method", "at"]
    function = inspect.signature(pde.recover).parameters
    assert [(p.name, p.kind, p.default) for p in list(method.values())[1:]] == [
        (p.name, p.kind, p.default) for p in list(function.values())[1:]
    ]


@pytest.mark.slow
def test_terms_that_are_not_there_are_zero_within_their_errors() -> None:
    found = cases.fitted(cases.diffusion).recover("u_t + a*u_x = D*u_xx + b*u**2 + S")
    assert list(found.parameter.values) == ["a", "D", "b", "S"]
    assert list(found.units.values) == ["m s-1", "m2 s-1", "K-1 s-1", "K s-1"]
    np.testing.assert_allclose(found.estimate, [0, 0.05, 0, 0], atol=1e-6)


def test_a_wave_speed_is_recovered() -> None:
    found = cases.fitted(cases.wave).recover("u_tt = c**2 * u_xx")
    assert value(found, "c") == pytest.approx(1.3, rel=1e-5)
    assert value(found, "c", "raw") == pytest.approx(1.69, rel=1e-5)
    assert value(found, "c", "stderr") == pytest.approx(value(found, "c", "raw_stderr") / 2.6, rel=1e-4)
    assert found.units.item() == "m s-1"
    assert "not real" not in found.attrs["checks"]


def test_what_a_space_holds_is_exact() -> None:
    field = cases.plane().spline.fit(x=6, t=6, penalty=0)
    with pytest.warns(xs.FitWarning, match="degree 3; for derivatives of order 2"):
        found = field.recover("u_t - x = a*t**2 + b*u_xx")
    np.testing.assert_allclose(found.estimate, [1, 0], atol=1e-8)
    found = field.recover("u_x = a*x + b*u_xt*t", method="pointwise")
    np.testing.assert_allclose(found.estimate, [2, 1], rtol=1e-7)
    assert found.attrs["points"] == 132 and isinstance(found.attrs["points"], int)


def test_two_space_dimensions_and_a_known_source() -> None:
    """Heat with a source, as in the paper: u_t = D (u_xx + u_yy) + S(x, y), from the zero field."""
    d, axis, time = 0.3, np.arange(0, 2 * np.pi, 0.5), np.linspace(0, 1, 12)
    at = xr.Dataset(coords={"x": axis, "y": axis, "t": time})
    source = (np.cos(at.x) + 0.5 * np.cos(2 * at.y)).rename("S")
    one, two = (1 - np.exp(-d * at.t)) / d, (1 - np.exp(-4 * d * at.t)) / (4 * d)
    data = (one * np.cos(at.x) + 0.5 * two * np.cos(2 * at.y)).rename("T")
    waves = xs.Fourier(2, period=2 * np.pi)
    field = data.spline.fit(x=waves, y=waves, t=xs.BSpline(8, 5), penalty=0)
    for equation in ("T_t = D * (T_xx + T_yy) + S", "u_t - S = D*u_xx + D*u_yy"):
        found = field.recover(equation, known={"S": source})
        assert value(found, "D") == pytest.approx(d, rel=1e-5)
    found = field.recover("u_t = D * (u_xx + u_yy) + q*S", known={"S": source})
    np.testing.assert_allclose(found.estimate, [d, 1], rtol=1e-5)


def test_the_formula_of_the_paper() -> None:
    field = cases.fitted(cases.diffusion)
    at = cases.grid(23, 17)
    u_t, u_xx = field.derivative(at, t=1).values, field.derivative(at, x=2).values
    by_hand = (u_xx * u_t).sum() / ((u_xx**2).sum() + 1e-8)
    found = field.recover("u_t = D * u_xx", at=at)
    assert value(found, "D") == pytest.approx(by_hand, rel=1e-12)
    # Residuals by hand: those of the fit, far above rounding.
    other = field.recover("u_t = D * u", at=at)
    u = field.predict(at).values
    residual = u_t - value(other, "D") * u
    assert other.attrs["residual_rms"] == pytest.approx(np.sqrt((residual**2).mean()), rel=1e-9)
    stderr = np.sqrt((residual**2).sum() / (u.size - 1) / (u**2).sum())
    assert value(other, "D", "stderr") == pytest.approx(stderr, rel=1e-7)
    assert value(other, "D", "upper") == pytest.approx(value(other, "D") + 1.966 * stderr, rel=1e-3)


def test_differences_of_any_order_and_mixed_ones() -> None:
    """Central differences are exact for polynomials of a degree above their order."""
    data = cases.sampled(lambda x, t: x**4 + x**2 * t**2, cases.grid(14, 12, 2.0, 2.0))
    field = data.spline.fit(x=xs.Polynomial(5), t=xs.Polynomial(5))
    h = 2.0 / 13
    found = field.recover("a*x*t + b*x + 24*x + u_xxxt = u_xxx", method="differences")
    np.testing.assert_allclose(found.estimate, [0, 0], atol=1e-5)
    assert found.attrs["points"] == (14 - 4) * (12 - 2)
    found = field.recover("u_xt = a*x*t", method="differences")
    assert value(found, "a") == pytest.approx(4, rel=1e-9)
    found = field.recover("u_x = a*x**3 + b*x*t**2 + c*x", method="differences")
    np.testing.assert_allclose(found.estimate, [4, 2, 4 * h**2], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1e-6, 1.0, 1e6])
def test_the_stabiliser_does_not_bend_other_units(factor: float) -> None:
    """In a unit of length 1e6 times longer or shorter, Σ u_xx² goes from 1e24 to 1e-24; the answer stays."""
    data = cases.sampled(cases.diffusion)
    data = data.assign_coords(x=("x", data.x.values / factor, {"units": "m"}))
    found = data.spline.fit(cases.SMOOTH, penalty=0).recover("u_t = D*u_xx")
    assert value(found, "D") * factor**2 == pytest.approx(0.05, rel=1e-6)


@pytest.mark.parametrize("method", ["pointwise", pytest.param("differences", marks=pytest.mark.slow)])
def test_chunked_equals_in_memory_in_one_compute(method: str) -> None:
    data = cases.sampled(cases.diffusion)
    source = (0.1 * data.x + 0 * data.t).rename("S")
    bases = {"x": xs.BSpline(12, 5), "t": xs.BSpline(8, 5)}
    text = "u_t + u*u_x = D*u_xx + b*S + a*t"
    mine = data.spline.fit(bases, penalty=0).recover(text, known={"S": source}, method=method)
    field = data.chunk(x=17, t=11).spline.fit(bases, penalty=0)
    calls = []

    def counted(graph: object, keys: object, **kwargs: object) -> object:
        calls.append(keys)
        return dask.threaded.get(graph, keys, **kwargs)

    with dask.config.set(scheduler=counted):
        found = field.recover(text, known={"S": source.chunk(x=20)}, method=method)
    assert len(calls) == 1
    for name in ("estimate", "stderr", "lower", "upper"):
        np.testing.assert_allclose(found[name], mine[name], rtol=1e-7)
    assert found.attrs["points"] == mine.attrs["points"]


def test_times_count_in_seconds_and_degrees_are_named() -> None:
    time = np.datetime64("2001-01-01", "ns") + np.arange(0, 50, 5).astype("timedelta64[h]")
    hours = xr.DataArray(np.arange(0, 50, 5.0), {"time": time}, "time")
    lat = xr.DataArray(np.linspace(-10, 10, 12), dims="lat", attrs={"units": "degrees_north"})
    lat = lat.assign_coords(lat=lat)
    data = (lat**2 + 0.72 * hours).rename("sst").assign_attrs(units="degC")
    field = data.spline.fit(lat=xs.BSpline(6, 5), time=xs.Polynomial(2), penalty=0)
    found = field.recover("sst_t = D*sst_yy")
    assert value(found, "D") == pytest.approx(0.72 / 3600 / 2, rel=1e-7)
    assert found.units.item() == "degree2 s-1"
    assert "derivatives along 'lat' are per degrees_north and not per metre" in found.attrs["checks"]
    steps = field.recover("sst_t = D*sst_yy", method="differences")
    assert value(steps, "D") == pytest.approx(0.72 / 3600 / 2, rel=1e-7)
    some = field.recover("sst_t = D*sst_yy", at={"time": ["2001-01-01", "2001-01-02"], "lat": [0.0, 5.0]})
    assert value(some, "D") == pytest.approx(0.72 / 3600 / 2, rel=1e-7) and some.attrs["points"] == 4


def test_scattered_observations() -> None:
    rng = np.random.default_rng(1)
    x, t = rng.uniform(0, 6, 3000), rng.uniform(0, 1, 3000)
    coords = {"x": ("obs", x), "t": ("obs", t)}
    data = (
        cases.diffusion(xr.DataArray(x, dims="obs"), xr.DataArray(t, dims="obs"))
        .assign_coords(coords)
        .rename("u")
    )
    field = data.spline.fit(x=xs.BSpline(24, 5), t=xs.BSpline(8, 5), penalty=0)
    assert value(field.recover("u_t = D*u_xx"), "D") == pytest.approx(0.05, rel=1e-4)
    with pytest.raises(
        ValueError, match="needs a regular grid, but 't' shares a dimension with x; pass at= a grid"
    ):
        field.recover("u_t = D*u_xx", method="differences")
    at = cases.grid(30, 20, 6.0)
    found = field.recover("u_t = D*u_xx", method="differences", at=at)
    assert value(found, "D") == pytest.approx(0.05, rel=0.02)


def test_several_variables() -> None:
    at = cases.grid(20, 18, 2.0)
    u, v = cases.sampled(lambda x, t: x**2 * t + t, at), cases.sampled(lambda x, t: x * t**2 + x, at)
    dataset = xr.Dataset({"sst": u, "v": v.drop_attrs(deep=False).assign_attrs(units="m s-1")})
    field = dataset.spline.fit(x=xs.Polynomial(4), t=xs.Polynomial(4))
    known = xr.Dataset({"sst": u, "v": v})
    left = known.x**2 + 1 + known.v * 2 * known.x * known.t
    found = field.recover("sst_t + v*sst_x = a*F", known={"F": left})
    assert value(found, "a") == pytest.approx(1, rel=1e-9)
    assert field.recover("sst_t + v*sst_x = a*v").units.item() == "K m-1"
    with pytest.raises(
        ValueError, match=r"u_t looks like a derivative of 'u', which is not a fitted variable \(sst, v\)"
    ):
        field.recover("u_t = D*sst_xx")


def test_what_comes_back_can_be_written(tmp_path: object) -> None:
    found = cases.fitted(cases.wave).recover("u_tt = c**2 * u_xx", method="pointwise")
    found.to_netcdf(f"{tmp_path}/found.nc")
    with xr.open_dataset(f"{tmp_path}/found.nc") as again:
        xr.testing.assert_allclose(again.load(), found)
        assert again.attrs == found.attrs
    assert list(found) == ["estimate", "stderr", "lower", "upper", "raw", "raw_stderr"]
    attrs = found.attrs
    assert attrs["equation"] == "u_tt = c**2 * u_xx" and attrs["method"] == "pointwise"
    assert attrs["points"] == 2800 and attrs["condition_number"] == 1.0 and attrs["residual_rms"] > 0
    assert "assume independent residuals" in attrs["assumptions"]
    assert "recover('u_tt = c**2 * u_xx', method='pointwise')" in attrs["history"]
    assert found.estimate.attrs["long_name"] == "least-squares estimate"


def test_checks_in_words() -> None:
    field = cases.fitted(cases.diffusion)
    assert field.recover("u_t = D*u_xx").attrs["checks"] == "nothing to report"
    cubic = cases.sampled(cases.diffusion).spline.fit(x=24, t=xs.Polynomial(5), penalty=0)
    text = "'x' has B-splines of degree 3; for derivatives of order 2, degree 5 or more is advised"
    write = ': fit with "x": xs.BSpline(26, 5), or leave the space to xs.recover(data, equation)'
    assert cubic.recover("u_t = D*u_xx", method="pointwise").attrs["checks"] == text + write
    checks = field.recover("u_t = D*u_xx + E*(u_xx + 1e-9*u)", method="pointwise").attrs["checks"]
    assert "the terms of D, E are nearly proportional to each other" in checks
    assert (
        "the residual is 100% of the terms without a parameter"
        in field.recover("u_t = a*x**8", method="pointwise").attrs["checks"]
    )
    beyond = xr.Dataset(coords={"x": np.linspace(0, 8, 9), "t": [0.2, 0.4]})
    assert "4 of 18 points were left out" in field.recover("u_t = D*u_xx", at=beyond).attrs["checks"]


@pytest.mark.slow
def test_units_that_do_not_fit_are_named() -> None:
    field = cases.fitted(cases.diffusion)
    source = (field.predict() * 0).assign_attrs(units="W m-2")
    found = field.recover("u_t = D*u_xx + S", known={"S": source})
    assert "units of the terms without a parameter differ: K s-1 and W m-2 are added" in found.attrs["checks"]
    assert found.units.item() == "" and value(found, "D") == pytest.approx(0.05, rel=1e-6)
    found = field.recover("u_t = D*(u_xx + u_x)")
    assert "units in the term of D differ: K m-2 and K m-1 are added" in found.attrs["checks"]


def test_unknown_methods_are_refused() -> None:
    field = cases.plane().spline.fit(x=6, t=6, penalty=0)
    with pytest.raises(ValueError, match=r"'exact' is unknown; use 'profile', .*'pointwise' or 'diff"):
        field.recover("u_t = D*u_xx", method="exact")


def test_there_has_to_be_something_to_estimate_from() -> None:
    field = cases.plane().spline.fit(x=6, t=6, penalty=0)
    with pytest.raises(ValueError, match=r"nothing left to estimate from: 0 of 4 points have finite values"):
        field.recover("u_t = D*u_xx", at={"x": [7.0, 8.0], "t": [0.0, 1.0]})
    with pytest.raises(ValueError, match=r"2 of 2 points .* is not more than the parameters \(D, b\*\*2\)"):
        field.recover("u_t = D*u_xx + b**2", at={"x": [1.0, 2.0], "t": [0.5]})
    with pytest.raises(ValueError, match="the term of b and of c is zero at all 132 points"):
        field.recover("u_t = D*u_xx + b*(x - x) + 0*c", method="pointwise")
    with pytest.raises(
        ValueError, match="nothing left to estimate from: 'x' has 2 labels and differences need 3 or more"
    ):
        field.recover("u_t = D*u_xx", method="differences", at={"x": [1.0, 2.0]})


def test_a_field_without_labels_asks_for_points() -> None:
    data = cases.plane()
    space = data.spline.space(x=6, t=6)
    parts = [data.isel(x=i).spline.statistics(space, holder=str(i)) for i in (slice(0, 6), slice(6, None))]
    field = sum(parts).solve(0)
    with pytest.raises(
        ValueError, match=r"remembers no labels of x, t, so there is nowhere .*; pass at= a grid"
    ):
        field.recover("u_t = a*u_x", method="pointwise")
    assert np.isfinite(field.recover("u_t = a*u_x", at=data).estimate).all()
    lazy = data.chunk(x=4).spline.fit(x=6, t=6, penalty=0, compute=False)
    with pytest.raises(ValueError, match=r"still lazy \(compute=False\); call .compute\(\) first"):
        lazy.recover("u_t = a*u_x")


def test_differences_refuse_uneven_grids() -> None:
    field = cases.plane().spline.fit(x=6, t=6, penalty=0)
    x = np.array([0.0, 0.1, 0.3, 0.4])
    with pytest.raises(
        ValueError, match=r"needs an evenly spaced 'x', but its steps go from 0.1 to 0.2; pass at="
    ):
        field.recover("u_t = D*u_xx", at={"x": x}, method="differences")
    single = np.linspace(0, 3, 31, dtype=np.float32)
    assert field.recover("u_t = D*u_xx", at={"x": single}, method="differences").attrs["points"] == 29 * 9
    curved = xr.Dataset(coords={"x": (("i", "j"), np.ones((3, 4)))})
    with pytest.raises(ValueError, match=r"'x' has dimensions \('i', 'j'\)"):
        field.recover("u_t = D*u_xx", at=curved, method="differences")
