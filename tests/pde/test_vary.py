"""Constants that vary in space: how they are written, exact cases, labels and units, intervals, what is refused."""

from __future__ import annotations

import ast
import functools

import numpy as np
import pytest
import xarray as xr

import xspline as xs
from benchmarks import varying
from tests import scatter
from tests.pde import cases
from xspline.pde.text.equation import Equation, parse
from xspline.pde.text.symbols import Names

BASES = {"x": xs.BSpline(26, 5), "t": xs.BSpline(12, 5)}


def diffusivity(x: np.ndarray) -> np.ndarray:
    return 0.5 + 0.2 * x - 0.03 * x**2


def medium(noise: float = 0.0) -> tuple[xr.DataArray, dict[str, object]]:
    """Data of u_t = (D u_x)_x + S and its source, D a parabola."""

    def value(x, t):
        return np.exp(-t) * np.sin(x) + 0.3 * np.cos(2 * x + t)

    def source(x, t):
        by_t = -np.exp(-t) * np.sin(x) - 0.3 * np.sin(2 * x + t)
        by_x = np.exp(-t) * np.cos(x) - 0.6 * np.sin(2 * x + t)
        by_xx = -np.exp(-t) * np.sin(x) - 1.2 * np.cos(2 * x + t)
        return by_t - diffusivity(x) * by_xx - (0.2 - 0.06 * x) * by_x

    return cases.noisy(cases.sampled(value), noise), {"S": source}


@functools.cache
def small() -> xs.Field:
    return medium()[0].spline.fit(x=8, t=6, penalty=0)


def read(text: str, *known: str, **vary: object) -> Equation:
    return parse(text, Names.of(small(), None, known, vary))


def texts(equation: Equation) -> dict[str, str]:
    return {str(power): ast.unparse(factor) for power, factor in equation.terms.items()}


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("u_t = (k*u_x)_x", {"k": "u_xx"}),
        ("u_t = k*(u**2/2)_x", {"k": "2.0 * u / 2 * u_x"}),
        ("u_t = k*(x*u)_xx", {"k": "u_x + u_x + x * u_xx"}),
        ("u_t = k*(sin(u))_x", {"k": "cos(u) * u_x"}),
        ("u_t = k*u + (pi)_x", {"k": "u"}),
        ("u_t = k*(u_x)_xt", {"k": "u_xxt"}),
    ],
)
def test_derivatives_of_products_are_multiplied_out(text: str, terms: dict[str, str]) -> None:
    assert texts(read(text)) == terms


def test_a_constant_that_varies_is_a_sum_of_constants() -> None:
    equation = read("u_t = D(x)*u_xx", D=4)
    assert texts(equation) == {f"D[{j}]": f"D[{j}](x) * u_xx" for j in range(4)}
    assert list(texts(read("u_t = (D(x)*u_x)_x", D=4)).values())[1] == "u_x * D[1](x)_x + D[1](x) * u_xx"
    assert list(texts(read("u_t = D(x, t)*u", D={"x": 4, "t": xs.Polynomial(1)}))) == [
        f"D[{j}, {k}]" for j in range(4) for k in range(2)
    ]


@pytest.mark.parametrize(
    ("text", "vary", "message"),
    [
        ("u_t = D(x)*u_xx", {}, r"no function 'D'.*a constant that varies needs vary=\{'D': 6\}"),
        ("u_t = D*u_xx", {"D": 5}, r"D in vary= has to be written with its coordinates, such as D\(x\)"),
        ("u_t = D(x)*u_xx + D*u", {"D": 5}, r"D in vary= has to be written with its coordinates"),
        ("u_t = a*u_xx", {"D": 5}, r"D in vary= does not appear in the equation"),
        ("u_t = D(x)*u_xx + D(t)*u", {"D": 5}, r"D is written as D\(x\) and as D\(t\)"),
        ("u_t = D(2*x)*u_xx", {"D": 5}, r"'D\(2 \* x\)': D varies with coordinates alone, such as D\(x\)"),
        ("u_t = D(x, x)*u_xx", {"D": 5}, r"'D\(x, x\)': D varies with coordinates alone"),
        ("u_t = D(u)*u_xx", {"D": 5}, r"'D\(u\)': D varies with coordinates alone"),
        (
            "u_t = D(x)*u_xx",
            {"D": {"t": 5}},
            r"vary=\{'D': \.\.\.\} has bases along t, but the equation .* D\(x\)",
        ),
        ("u_t = D(x)**2*u_xx", {"D": 5}, "D and D multiply each other"),
        ("u_t = k*D(x)*u_xx", {"D": 5}, "k and D multiply each other"),
        ("u_t = u_xx/D(x)", {"D": 5}, "a sum that holds D divides"),
        ("u_t = D(x)*u_xx", {"D": "x"}, "D in vary=: expected a basis or an integer"),
        ("u_t = D(x)*u_xx", {"D": 3}, r"D in vary=: .*size 3 must be greater than its degree 3"),
        ("u_t = (D(x)*u)_xxxx", {"D": 5}, "4.*'x'|degree"),
        ("u_t = x(x)*u_xx", {"x": 5}, "x in vary= is a coordinate"),
    ],
)
def test_what_is_said_of_one_that_cannot_be_read(text: str, vary: dict[str, object], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        read(text, **vary)


def test_names_of_results_are_taken() -> None:
    field = small()
    with pytest.raises(ValueError, match="weak in vary= is what a result calls something else"):
        field.recover("u_t = weak(x)*u_xx", vary={"weak": 5})
    data = xr.DataArray(np.ones((2, 9, 9)), {"x": np.arange(9.0), "t": np.arange(9.0)}, ("lower", "t", "x"))
    with pytest.raises(
        ValueError, match="the data have a dimension 'lower', and this table has something else"
    ):
        data.spline.fit(x=6, t=6).recover("u_t = D*u_xx")
    with pytest.raises(TypeError, match=r"vary=.* has to be a mapping from names"):
        field.recover("u_t = D(x)*u_xx", vary=["D"])
    with pytest.raises(ValueError, match="E in vary= does not appear in the equations"):
        field.recover(["u_t = D*u_xx", "u_x = a*u"], vary={"E": 5})
    with pytest.raises(
        ValueError, match=r"D_x looks like a derivative of 'D', which varies; write .*\(D\(x\)\)_x"
    ):
        field.recover("u_t = D(x)*u_xx + D_x*u_x", vary={"D": 5})


def test_derivatives_of_what_is_known_are_known() -> None:
    assert texts(read("u_t = k*(S*u_x)_x", "S", "S_x")) == {"k": "u_x * S_x + S * u_xx"}
    with pytest.raises(ValueError, match=r"\(S \* u_x\)_x needs the derivative S_x of the known 'S'"):
        read("u_t = k*(S*u_x)_x", "S")
    equation = parse("u_t = k*(c*u_x)_x", Names.of(small(), None, {"c": 2.0}))
    assert texts(equation) == {"k": "c * u_xx"}
    with pytest.raises(ValueError, match=r"'\(u_x\)_q': .*'q', which is no coordinate here"):
        read("u_t = k*(u_x)_q")


@pytest.mark.slow
@pytest.mark.parametrize("basis", [4, xs.Polynomial(2)])
def test_without_noise_they_are_exact(basis: object) -> None:
    data, known = medium()
    field = data.spline.fit(BASES, penalty=0)
    result = field.recover("u_t = (D(x)*u_x)_x + S", known=known, vary={"D": basis})
    x = result.x.values
    np.testing.assert_allclose(result.D, diffusivity(x), rtol=1e-4)
    assert (np.abs(result.D - diffusivity(x)) < scatter.FIVE * result.D_stderr).all() and result.attrs[
        "method"
    ] == "profile"
    assert result.D.dims == ("x",) and x[0] == 0 and x[-1] == pytest.approx(2 * np.pi)
    assert result.D.attrs["units"] == "m2 s-1" and result.D_stderr.attrs["units"] == "m2 s-1"
    spelt = field.recover("u_t = D(x)*u_xx + (D(x))_x*u_x + S", known=known, vary={"D": basis})
    np.testing.assert_allclose(spelt.D, result.D, rtol=1e-7)
    over_points = field.recover("u_t = (D(x)*u_x)_x + S", known=known, vary={"D": basis}, method="pointwise")
    np.testing.assert_allclose(over_points.D, diffusivity(x), rtol=1e-3)


@pytest.mark.slow
def test_one_that_does_not_vary_is_a_constant() -> None:
    field = cases.noisy(cases.sampled(cases.diffusion), 0.01).spline.fit(BASES)
    one = field.recover("u_t = D*u_xx")
    same = field.recover("u_t = D(x)*u_xx", vary={"D": xs.Polynomial(0)})
    np.testing.assert_allclose(same.D, one.estimate.item(), rtol=1e-8)
    np.testing.assert_allclose(same.D_stderr, one.stderr.item(), rtol=1e-6)
    np.testing.assert_allclose(same.D_lower, one.lower.item(), rtol=1e-8)


@pytest.mark.slow
def test_errors_are_those_of_their_coefficients() -> None:
    data, known = medium(0.01)
    result = data.spline.fit(BASES).recover("u_t = (D(x)*u_x)_x + S", known=known, vary={"D": 5})
    assert list(result.parameter.values) == [f"D[{j}]" for j in range(5)]
    z = ((result.D - diffusivity(result.x)) / result.D_stderr).values
    assert np.abs(z).max() < 4 and (result.D_upper > result.D).all()
    # Legendre's polynomials are 1 at the right end.
    legendre = data.spline.fit(BASES).recover(
        "u_t = (D(x)*u_x)_x + S", known=known, vary={"D": xs.Polynomial(2)}
    )
    assert legendre.D[-1].item() == pytest.approx(legendre.estimate.sum().item(), rel=1e-9)
    assert legendre.D_stderr[-1].item() == pytest.approx(np.sqrt(legendre.covariance.sum().item()), rel=1e-9)


@pytest.mark.slow
def test_in_two_coordinates_and_with_another_constant() -> None:
    n = 18
    x = np.linspace(0, 3, n)
    at = xr.Dataset(coords={"t": np.linspace(0, 1, 12), "y": x, "x": x})
    u = np.exp(-at.t) * np.sin(at.x) * np.cos(at.y) + 0.2 * at.x * at.y * at.t
    d = 1 + 0.2 * at.x + 0.1 * at.y * at.x

    def source(x, y, t):
        e, d = np.exp(-t), 1 + 0.2 * x + 0.1 * y * x
        by_t = -e * np.sin(x) * np.cos(y) + 0.2 * x * y
        by_x, by_y = e * np.cos(x) * np.cos(y) + 0.2 * y * t, -e * np.sin(x) * np.sin(y) + 0.2 * x * t
        curl = -2 * e * np.sin(x) * np.cos(y)
        return by_t - d * curl - (0.2 + 0.1 * y) * by_x - 0.1 * x * by_y - 0.3 * by_x

    data = u.transpose("t", "y", "x").rename("u")
    field = data.spline.fit(x=xs.BSpline(9, 5), y=xs.BSpline(9, 5), t=xs.BSpline(8, 4), penalty=0)
    found = field.recover(
        "u_t = (D(x, y)*u_x)_x + (D(x, y)*u_y)_y + a*u_x + S",
        known={"S": source},
        vary={"D": xs.Polynomial(1)},
    )
    assert found.D.dims == ("x", "y") and found.sizes["parameter"] == 5
    truth = 1 + 0.2 * found.x + 0.1 * found.y * found.x
    np.testing.assert_allclose(found.D, truth, rtol=2e-3)
    assert found.sel(parameter="a").estimate.item() == pytest.approx(0.3, rel=1e-2)
    assert d.max() > 1


@pytest.mark.slow
def test_circles_batches_holders_and_files(tmp_path) -> None:
    """On a circle of the field the constant goes round too; dates are labels of what varies in time."""
    data = varying.medium(periodic=True).observed(0.01, 0)[:2000]
    parts = [data[k::2].spline.statistics(varying.medium(periodic=True).space, holder=str(k)) for k in (0, 1)]
    result = xs.merge(parts).recover("u_t = (D(x)*u_x)_x", vary={"D": 8})
    assert result.D[0].item() == pytest.approx(result.D[-1].item(), rel=1e-9)
    result.to_netcdf(tmp_path / "found.nc")
    with xr.open_dataset(tmp_path / "found.nc") as again:
        xr.testing.assert_allclose(again.load(), result)
    time = np.datetime64("2020-01-01") + np.arange(40) * np.timedelta64(3600, "s")
    waves, _ = medium()
    runs = xr.concat([waves, 2 * waves], "run").assign_coords(t=time).rename("u")
    field = runs.spline.fit(BASES, penalty=0)
    many = field.recover("u_t = D(t)*u_xx", vary={"D": xs.Polynomial(1)}, method="weak")
    assert many.D.dims == ("t", "run") and many.D.t.dtype.kind == "M" and many.D.t[0] == time[0]
    np.testing.assert_allclose(many.D[:, 0], many.D[:, 1], rtol=1e-6)


@pytest.mark.slow
def test_the_field_that_obeys_it() -> None:
    data, known = medium(0.05)
    field = data.spline.fit(BASES)
    obeying = field.constrain("u_t = (D(x)*u_x)_x + S", known=known, vary={"D": 4})
    assert obeying.constants.D.sizes == {"x": 101}
    assert float(obeying.stderr().mean()) < float(field.stderr().mean())


@pytest.mark.slow
def test_too_few_functions_are_seen() -> None:
    data = varying.medium(periodic=True).observed(0.01, 0)
    statistics = data.spline.statistics(varying.medium(periodic=True).space)
    result = statistics.recover("u_t = (D(x)*u_x)_x", vary={"D": xs.Polynomial(0)})
    assert np.isnan(result.D_stderr).all() and "misses the data by more than" in result.attrs["checks"]


@pytest.mark.slow
def test_intervals_cover_all_of_the_domain() -> None:
    case = varying.medium(periodic=True)
    coverage = varying.replicates(case, 0.01, 12).coverage
    # Places between which a function of D lies are about independent.
    tolerance = scatter.FIVE * scatter.of_share(0.95, 12 * case.functions)
    assert coverage == pytest.approx(0.95, abs=tolerance)
