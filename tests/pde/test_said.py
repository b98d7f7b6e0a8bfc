"""What fields that know an equation say of themselves, their lines of code, and errors that name what was given."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import xarray as xr

import xspline as xs
from tests.pde import cases

BASES = {"x": xs.BSpline(14, 5), "t": xs.BSpline(10, 5)}


@functools.cache
def noisy() -> xr.DataArray:
    return cases.noisy(cases.sampled(cases.diffusion), 0.02)


@functools.cache
def fitted() -> xs.Field:
    return noisy().rename("u").spline.fit(BASES)


@pytest.mark.slow
def test_a_field_whose_equation_the_data_refute_says_so() -> None:
    with pytest.warns(xs.FitWarning, match="the field has no error bars"):
        wrong = fitted().constrain("u_t = D*u_xx", known={"D": 0.5})
    with pytest.warns(xs.FitWarning, match="has no error bars"):
        hard = fitted().statistics.solve(xs.Physics("u_t = D*u_xx", "hard", known={"D": 0.5}))
    for field in (wrong, hard):
        first, *others = field.check().concerns["u"]
        assert first.subject == "equation" and "misses the data by more than their noise" in first.text
        assert "a known is wrong" in first.text + first.advice
        assert "residual" not in [finding.subject for finding in (*others, *field.check().findings["u"])]
        assert "misses the data" in repr(field) and "nan" not in repr(field.check())
    right = fitted().constrain("u_t = D*u_xx")
    assert not right.check().concerns["u"] and "equation" in repr(right.check())


def varied() -> xr.DataArray:
    """x² + 4 x t + 2 t², which solves u_t = (x u_x)_x."""
    x, t = np.linspace(1, 3, 40), np.linspace(0, 1, 30)[:, None]
    u = xr.DataArray(x**2 + 4 * x * t + 2 * t**2, {"t": t[:, 0], "x": x}, ("t", "x"), "u")
    return u + 0.01 * np.random.default_rng(0).standard_normal(u.shape)


SOURCE = xr.DataArray(np.zeros(3), {"x": [0.0, 3.0, 2 * np.pi]}, name="S")
LINES: dict[str, tuple[Any, dict[str, Any]]] = {
    "a constant": ("u_t = D*u_xx", {}),
    "a known": ("u_t = D*u_xx", {"known": {"D": 0.05}}),
    "a known array": ("u_t = D*u_xx + S", {"known": {"S": SOURCE}}),
    "letters": ("u_s = D*u_zz", {"dims": {"s": "t", "z": "x"}}),
    "a system": (["u_t = D*u_xx", "v_t = E*v_xx"], {"known": {"E": 0.05}}),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", LINES)
def test_the_line_of_an_obeying_field_runs(kind: str) -> None:
    equation, given = LINES[kind]
    data: Any = noisy().rename("u")
    data = xr.Dataset({"u": data, "v": 2 * data}) if isinstance(equation, list) else data
    field = data.spline.fit(BASES, penalty=xs.Roughness(1e-4))
    own = field.constrain(equation, **given)
    again = eval(own.code(), {"fit": data.spline.fit, "xs": xs, "S": SOURCE})
    xr.testing.assert_allclose(again.predict(), own.predict(), rtol=1e-9)
    assert own.code() in repr(own) and "Ridge(0.0)" not in repr(own) + own._repr_html_()
    if isinstance(equation, list):
        assert own["v"].code() == own.code() + "['v']"


@pytest.mark.slow
def test_the_line_has_constants_that_vary() -> None:
    data = varied()
    field = data.spline.fit({"x": xs.BSpline(12, 5), "t": xs.BSpline(8, 5)}, penalty=xs.Roughness(1e-4))
    for vary in ({"D": 4}, {"D": xs.BSpline(4, 2)}, {"D": {"x": xs.Polynomial(1)}}):
        own = field.constrain("u_t = (D(x)*u_x)_x", vary=vary)
        again = eval(own.code(), {"fit": data.spline.fit, "xs": xs})
        xr.testing.assert_allclose(again.predict(), own.predict(), rtol=1e-9)


@pytest.mark.slow
def test_recover_of_data_takes_constants_that_vary() -> None:
    found = xs.recover(varied(), "u_t = (D(x)*u_x)_x", vary={"D": 4})
    assert float(abs(found.D - found.D.x).max()) < 0.5 and found.D.sizes == {"x": 101}
    own = varied().spline.recover("u_t = (D(x)*u_x)_x", vary={"D": 4})
    xr.testing.assert_identical(own.D, found.D)


@pytest.mark.slow
def test_recover_of_data_over_durations() -> None:
    data = noisy().rename("u")[::2, ::2]
    seconds = xs.recover(data, "u_t = D*u_xx")
    durations = data.assign_coords(t=(data.t * 1e9).astype("timedelta64[ns]"))
    found = xs.recover(durations, "u_t = D*u_xx")
    assert abs(found.estimate - seconds.estimate).item() < seconds.stderr.item()
    steps = durations.rename(t="step")
    named = xs.recover(steps, "u_s = D*u_xx", dims={"s": "step"})
    assert named.estimate.item() == pytest.approx(found.estimate.item(), rel=1e-6)
    leads = np.array([0, 6], "timedelta64[h]").astype("timedelta64[ns]")
    both = xr.concat([data, data], xr.Variable("lead", leads))  # beside a time they are batch, as of any fit
    assert xs.recover(both, "u_t = D*u_xx").estimate.dims == ("parameter", "lead")


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_known_numbers_are_finite(number: float) -> None:
    known = {"D": number}
    said = rf"known 'D' is {number}; pass a finite number"
    for method in (None, "profile", "pointwise"):
        with pytest.raises(ValueError, match=said):
            fitted().recover("u_t = a*u_x + D*u_xx", known=known, method=method)
    for call in (
        lambda: fitted().constrain("u_t = D*u_xx", known=known),
        lambda: xs.Physics("u_t = D*u_xx", known=known),
        lambda: xs.recover(noisy(), "u_t = D*u_xx + a*u", known=known),
        lambda: fitted().discover("u_t", terms=["D*u_xx", "u"], known=known),
    ):
        with pytest.raises(ValueError, match=said):
            call()


@pytest.mark.parametrize("known", [["D"], {"D"}, "D"])
def test_what_is_known_is_a_mapping(known: Any) -> None:
    said = r"known(=.*)? has to be a mapping (of|from) names.*, such as \{"
    for call in (
        lambda: fitted().recover("u_t = D*u_xx", known=known),
        lambda: fitted().constrain("u_t = D*u_xx", known=known),
        lambda: xs.Physics("u_t = D*u_xx", known=known),
        lambda: xs.recover(noisy(), "u_t = D*u_xx", known=known),
        lambda: fitted().discover("u_t", known=known),
    ):
        with pytest.raises(TypeError, match=said):
            call()


def test_recover_of_a_field_names_the_method() -> None:
    for own, name in ((fitted(), "Field"), (fitted().statistics, "Statistics")):
        with pytest.raises(TypeError, match=rf"is {name}.*call its method, \.recover\('u_t = D\*u_xx'\)"):
            xs.recover(own, "u_t = D*u_xx")


def test_known_functions_return_a_value_for_each_label() -> None:
    def wrong(x: Any, t: Any) -> Any:
        return np.zeros(3)

    def nothing(x: Any) -> None:
        return None

    text = "u_t = D*u_xx + S"
    for call in (
        lambda own: fitted().recover(text, known={"S": own}),
        lambda own: fitted().recover(text, known={"S": own}, method="pointwise"),
        lambda own: fitted().constrain(text, known={"S": own}),
        lambda own: fitted().statistics.solve(xs.Physics(text, known={"D": 0.05, "S": own})),
    ):
        with pytest.raises(
            ValueError, match=r"known 'S' returned an array of shape \(3,\) .* one value for each"
        ):
            call(wrong)
        with pytest.raises(TypeError, match="known 'S' returned NoneType, which is no real number"):
            call(nothing)


def test_physics_of_a_lazy_fit_says_what_to_leave_out() -> None:
    penalty = xs.Physics("u_t = D*u_xx", known={"D": 0.05})
    with pytest.raises(
        ValueError, match=r"solved at once.*leave out compute=False, or solve statistics\.compute\(\)"
    ):
        noisy().rename("u").chunk().spline.fit(BASES, penalty=penalty, compute=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("basis", "checked"), [(xs.BSpline(12, 5, period=2 * np.pi), False), (xs.BSpline(24, 5), True)]
)
def test_knots_that_cannot_be_halved_are_named(basis: xs.BSpline, checked: bool) -> None:
    data = noisy().rename("u").isel(x=slice(None, -1))
    found = data.spline.fit({"x": basis, "t": BASES["t"]}).recover("u_t = D*u_xx")
    assert ("what the knots of 'x' leave of an error was not checked" in found.attrs["checks"]) != checked
    assert np.isfinite(found.stderr.item())
