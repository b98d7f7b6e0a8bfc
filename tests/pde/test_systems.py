"""Systems of equations: units of variables and coordinates do not matter, and constants that data do not tell apart."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import xarray as xr

import xspline as xs
from tests import scatter
from tests.pde import cases

BASES = {"x": xs.BSpline(16, 5), "t": xs.BSpline(12, 5)}
TURNING = ["u_t = D*u_xx - a*v", "v_t = D*v_xx + b*u"]


@functools.cache
def turning(noise: float = 0.01) -> xr.Dataset:
    return cases.turning(cases.grid(40, 30), noise, 2)


def constants(data: xr.Dataset, equations: list[str] = TURNING, method: str | None = None) -> xr.Dataset:
    return data.spline.fit(BASES, penalty=1e-9).recover(equations, method=method)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.01, 0.0])
@pytest.mark.parametrize("method", ["profile", "weak"])
def test_units_of_a_variable_do_not_matter(noise: float, method: str) -> None:
    own = constants(turning(noise), method=method)
    np.testing.assert_allclose(own.estimate, [0.05, 1.5, 1.5], rtol=0.2)
    for size in (1e6, 1e-6):
        data = turning(noise).assign(v=size * turning(noise).v)
        other = constants(data, method=method)
        scale = np.array([1, 1 / size, size])
        for name in ("estimate", "stderr", "lower"):
            np.testing.assert_allclose(other[name], own[name] * scale, rtol=1e-6)
    assert method == "weak" or (bool(own.converged) and own.adequacy.item() < 1.5)


@pytest.mark.slow
def test_variables_that_have_nothing_to_do_with_each_other() -> None:
    """Neither sizes nor noise of one matter to the other: a weight of one equation would be far off in the other."""
    at, draw = cases.grid(40, 30), np.random.default_rng(0).standard_normal((2, 30, 40))
    u = cases.diffusion(at.x, at.t).transpose("t", "x")
    v = cases.diffusion(at.x, at.t, 0.1).transpose("t", "x")
    data = xr.Dataset({"u": u + 0.001 * draw[0], "v": 1e5 * (v + 0.05 * draw[1])})
    own = [constants(data[[n]], [f"{n}_t = D*{n}_xx"]) for n in ("u", "v")]
    both = constants(data, ["u_t = D*u_xx", "v_t = F*v_xx"])
    for name, rtol in (("estimate", 1e-5), ("stderr", 0.05)):
        np.testing.assert_allclose(both[name], np.concatenate([o[name] for o in own]), rtol=rtol)


@pytest.mark.slow
def test_a_variable_without_noise_is_followed() -> None:
    data = turning(0.01).assign(v=turning(0.0).v)
    found = constants(data)
    z = (found.estimate - [0.05, 1.5, 1.5]) / found.stderr
    assert bool(found.converged) and (np.abs(z) < 4).all()
    assert (found.stderr < constants(turning()).stderr).all()


@pytest.mark.slow
def test_the_field_of_a_system_in_other_units() -> None:
    own, other = (
        d.spline.fit(BASES, penalty=1e-9).constrain(TURNING)
        for d in (turning(), turning().assign(v=1e6 * turning().v))
    )
    at = {"x": [1.0, 2.0], "t": [0.1, 0.5]}
    np.testing.assert_allclose(other["v"].stderr(at), 1e6 * own["v"].stderr(at), rtol=1e-4)
    np.testing.assert_allclose(other["u"].predict(at), own["u"].predict(at), rtol=1e-6)
    np.testing.assert_allclose(other.summary().edf, own.summary().edf, rtol=1e-5)


ONE_MODE = {"x": xs.BSpline(20, 5), "t": xs.BSpline(10, 5)}


def mode(x: xr.DataArray, t: xr.DataArray) -> xr.DataArray:
    """u_xx is −u: a − b is known alone."""
    return np.exp(-0.3 * t) * np.sin(x)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 0.01, 0.1])
@pytest.mark.parametrize(
    ("u", "equation", "told"),
    [
        (cases.diffusion, "u_t = a*u_xx + 2*b*u_xx + c*u_x", "a and b apart"),
        (mode, "u_t = a*u_xx + b*u", "a and b apart (only b - "),
        (mode, "u_t = a*u_xx + c*u_x + b*u", "a and b apart"),
    ],
)
def test_constants_that_are_told_together_only_are_named(u, equation: str, told: str, noise: float) -> None:
    data = cases.noisy(cases.sampled(u), noise)
    found = data.spline.fit(ONE_MODE, penalty=1e-8).recover(equation)
    assert np.isnan(found.stderr).all()
    assert f"errors are withheld: the data do not tell {told}" in found.attrs["checks"]
    assert noise or u is cases.diffusion or "(only b - a, about -0.3" in found.attrs["checks"]
    assert "pass one in known=" in found.attrs["checks"] and "more knots" not in found.attrs["checks"]


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 0.01, 0.1])
def test_constants_that_two_modes_tell_apart_have_errors(noise: float) -> None:
    data = cases.noisy(cases.sampled(cases.diffusion), noise)
    found = data.spline.fit(ONE_MODE, penalty=1e-8).recover("u_t = a*u_xx + b*u")
    assert (np.abs(found.estimate - [0.05, 0]) < scatter.FIVE * found.stderr).all()


def test_two_constants_that_vary_alike_are_named() -> None:
    data = cases.sampled(lambda x, t: np.exp(-t) * (1 + 0 * x))
    found = data.spline.fit(ONE_MODE, penalty=1e-8).recover(
        "u_t = -k(t)*u - 0*u_xx + b(t)*u", vary={"k": 4, "b": 4}
    )
    assert "the data do not tell k and b apart" in found.attrs["checks"] and np.isnan(found.k_stderr).all()
