"""Intervals where noise hides the field, and spaces that an equation asks for."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import xspline as xs
from benchmarks.constants.bound import TURN, burgers
from tests import scatter
from tests.pde import cases


def hidden(size: float, seed: int) -> xr.Dataset:
    """A constant of 0.1 from waves under noise that is `size` times as large."""
    x, t = np.linspace(0, 6, 40), np.linspace(0, 2, 30)
    waves = sum(np.exp(-0.1 * k**2 * t)[:, None] * np.sin(k * x + k) for k in (1, 2, 3))
    noise = np.random.default_rng(seed).standard_normal(waves.shape)
    data = xr.DataArray(waves + size * waves.std() * noise, {"t": t, "x": x}, name="u")
    return data.spline.fit(x=xs.BSpline(16, 5), t=xs.BSpline(8, 5), penalty=1e-4).recover("u_t = D*u_xx")


@pytest.mark.slow
def test_where_noise_hides_the_field_intervals_are_from_fits_with_the_constant_held() -> None:
    clear, covered = hidden(0.01, 3), hidden(1.0, 3)
    assert "noise hides" not in clear.checks
    even = (clear.lower + clear.upper) / 2
    np.testing.assert_allclose(even, clear.estimate, rtol=1e-9)
    assert "the interval of D is from fits with D held" in covered.checks
    assert covered.lower < 0.1 < covered.upper and covered.lower < covered.estimate < covered.upper
    factor = ((clear.upper - clear.lower) / 2 / clear.stderr).item()
    np.testing.assert_allclose(covered.stderr, (covered.upper - covered.lower) / (2 * factor), rtol=0.01)


@pytest.mark.slow
def test_intervals_of_a_hidden_field_cover_or_are_withheld() -> None:
    found = [hidden(2.0, seed) for seed in range(10)]
    told = [r for r in found if np.isfinite(r.stderr)]
    inside = [r.lower.item() <= 0.1 <= r.upper.item() for r in told]
    assert np.mean(inside) >= 0.95 - scatter.FIVE * scatter.of_share(0.95, len(told))
    for r in found:
        # As noise hides the field, or knots seem too few.
        assert np.isfinite(r.stderr) or "withheld" in r.checks


@pytest.mark.slow
def test_an_equation_without_bases_chooses_a_space_that_suits_it() -> None:
    x, t = np.linspace(0, 1, 24), np.linspace(0, 1, 20)
    u = xr.DataArray(np.exp(-(np.pi**2) * 0.1 * t)[:, None] * np.sin(np.pi * x), {"t": t, "x": x}, name="u")
    found = u.spline.recover("u_t = D*u_xx")
    assert found.space == 'fit({"x": xs.BSpline(20, degree=4), "t": xs.BSpline(15)})'
    np.testing.assert_allclose(found.estimate, 0.1, rtol=1e-5)
    same = u.spline.fit(x=xs.BSpline(20, degree=4), t=xs.BSpline(15)).recover("u_t = D*u_xx")
    xr.testing.assert_identical(same.estimate, found.estimate)


@pytest.mark.slow
def test_the_field_that_obeys_an_equation_needs_no_bases() -> None:
    data = cases.sampled(cases.diffusion, cases.grid(40, 30))
    noisy = cases.noisy(data, 0.05)
    obeying = xs.constrain(noisy.rename("u"), "u_t = D*u_xx")
    assert float(np.sqrt(((obeying.predict(data) - data) ** 2).mean())) < 0.02
    xr.testing.assert_allclose(obeying.constants.estimate, xs.recover(noisy, "u_t = D*u_xx").estimate)
    again = eval(obeying.code(), {"fit": noisy.rename("u").spline.fit, "xs": xs})
    xr.testing.assert_allclose(again.predict(data), obeying.predict(data))
    known = noisy.spline.constrain("u_t = k*u_xx", known={"k": 0.05})
    assert known.constants.sizes["parameter"] == 0


@pytest.mark.slow
def test_the_terms_of_an_equation_need_no_bases() -> None:
    noisy = cases.noisy(cases.sampled(cases.burgers_on_a_circle, cases.grid(40, 24)), 0.001)
    models = noisy.rename("u").spline.discover("u_t", order=2, power=1)
    assert models.attrs["recover"] == "u_t = k1*u*u_x + k2*u_xx"
    assert "xs.BSpline(" in models.space and models.space.startswith("fit(")
    listed = xs.discover(noisy, "u_t", terms=["S", "u_xx", "u*u_x"], known={"S": lambda x: np.cos(x)})
    assert listed.attrs["recover"] == "u_t = k1*u_xx + k2*u*u_x"


def test_functions_of_data_name_the_method_of_a_field() -> None:
    field = cases.plane().spline.fit(x=6, t=6, penalty=0)
    for call, name in ((xs.constrain, "constrain"), (xs.discover, "discover")):
        with pytest.raises(TypeError, match=rf"xs.{name} takes data, and this is Field: call its method"):
            call(field, "u_t")


@pytest.mark.slow
def test_error_bars_of_a_constrained_field_know_what_the_knots_leave() -> None:
    case = burgers()
    data, _ = case.observed(0.0005, seed=1)
    bases = {"x": xs.BSpline(24, 5, period=TURN), "t": xs.BSpline(12, 5, domain=(0.0, 4.0))}
    obeying = data.spline.fit(bases, penalty=1e-6).constrain(case.equation)
    x, t = np.linspace(0.1, 6.2, 40), np.linspace(0.2, 3.8, 20)
    error = (obeying.predict(x=x, t=t) - case.value(x, t[:, None]).T).transpose("x", "t")
    bars = obeying.stderr(x=x, t=t).transpose("x", "t")
    assert (abs(error) < 1.96 * bars).mean() > 0.95
