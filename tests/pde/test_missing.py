"""An equation that lacks a term, or whose constants are only told together, gives no confident wrong constants."""

from __future__ import annotations

import re

import numpy as np
import pytest
import xarray as xr

import xspline as xs
from benchmarks.constants.missing import FAMILIES, RIGHT, Family
from tests import scatter
from tests.pde.cases import burgers, grid, sampled

FAMILY = {family.term: family for family in FAMILIES}


def of_printed_line(data: xr.DataArray, checks: str) -> xr.Dataset:
    """Run the line that the checks print, as it is."""
    line = re.search(r"data\.spline\..*?recover\(.*?\)(?=;|$)", checks)
    assert line is not None
    result: xr.Dataset = eval(line[0], {"data": data, "xs": xs})
    return result


@pytest.mark.slow
@pytest.mark.parametrize(("term", "size"), [("u", -0.05), ("1", 0.05), ("u_x", 0.05), ("u*u", 0.05)])
def test_the_missing_term_is_named_and_the_interval_withheld(term: str, size: float) -> None:
    data = FAMILY[term].observed(size, 0.05, 1)
    found = xs.recover(data, "u_t = D*u_xx")
    assert np.isnan(found.lower) and np.isnan(found.stderr)
    text = "k" if term == "1" else f"k*{term}"
    assert f"ask for {text} with k = " in found.attrs["checks"]
    both = of_printed_line(data, found.attrs["checks"])
    assert (abs(both.estimate - [0.1, size]) < 3 * both.stderr).all()


@pytest.mark.slow
def test_a_term_that_may_be_there_widens_the_interval() -> None:
    data = FAMILY["u"].observed(-0.01, 0.05, 0)
    found = xs.recover(data, "u_t = D*u_xx")
    assert "the data do not rule out k*u with k = " in found.attrs["checks"]
    assert abs(found.estimate - 0.1) > 2 * found.stderr
    assert found.lower < 0.1 < found.upper


@pytest.mark.slow
def test_checks_say_what_makes_an_interval_long() -> None:
    said = []
    for seed in range(4):
        found = xs.recover(FAMILY[RIGHT].observed(FAMILY[RIGHT].sizes[0], 0.05, seed), "u_t = D*u_xx")
        said.append("the data do not rule out" in found.attrs["checks"])
        assert said[-1] or found.upper - found.lower < (2 * 1.96 + 1.1) * found.stderr
    assert 0 < sum(said) < 4


@pytest.mark.slow
@pytest.mark.parametrize("family", [FAMILY[RIGHT], FAMILY["u"]], ids=["right", "decay"])
def test_wrong_intervals_are_rare(family: Family) -> None:
    sizes = family.sizes[:3]
    count = 12 if family.term == RIGHT else 3
    draws = [(k, seed) for k in sizes for seed in range(count // len(sizes))]
    found = [xs.recover(family.observed(k, 0.05, seed), "u_t = D*u_xx") for k, seed in draws]
    wrong = [not f.lower <= 0.1 <= f.upper for f in found if np.isfinite(f.lower)]
    assert sum(wrong) <= count // 12
    if family.term == RIGHT:
        assert len(wrong) == len(draws)


@pytest.mark.slow
def test_the_line_has_what_is_known_and_all_equations() -> None:
    data = FAMILY["1"].observed(0.1, 0.05, 1).to_dataset()
    data["v"] = FAMILY["u"].observed(-0.2, 0.05, 2)
    found = xs.recover(data, ["u_t = D*u_xx + S", "v_t = D*v_xx + k*v"], known={"S": 0.0})
    assert "ask for k1 with k1 = " in found.attrs["checks"]
    both = of_printed_line(data, found.attrs["checks"])
    assert list(both.parameter.values) == ["D", "k1", "k"]
    assert (abs(both.estimate - [0.1, 0.1, -0.2]) < 3 * both.stderr).all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:u. .* functions along 'x' are in use")
def test_knots_that_do_not_resolve_a_front_print_a_line_that_does_as_data_do_by_themselves() -> None:
    data = sampled(lambda x, t: burgers(x, t, 0.02), grid(100, 40, 6.0, 1.0))
    equation = "u_t + u*u_x = nu*u_xx"
    found = data.spline.fit({"x": xs.BSpline(60, 4), "t": xs.BSpline(27)}).recover(equation)
    assert np.isnan(found.stderr) and found.attrs["limited_by"] == "x"
    assert "use more knots, most along 'x'" in found.attrs["checks"]
    finer = of_printed_line(data, found.attrs["checks"])
    assert abs(finer.estimate - 0.02) < abs(found.estimate - 0.02) / 5
    assert np.isnan(finer.stderr) or abs(finer.estimate - 0.02) < 4 * finer.stderr
    own = xs.recover(data, equation)
    assert own.space == 'fit({"x": xs.BSpline(100, degree=4), "t": xs.BSpline(27)})'
    xr.testing.assert_allclose(own.estimate, finer.estimate)


@pytest.mark.slow
def test_a_degree_that_is_too_low_is_the_one_cause_that_is_told() -> None:
    at = grid(140, 60, 6.0, 1.0)
    field = sampled(lambda x, t: burgers(x, t, 0.02), at).spline.fit(x=60, t=20, penalty=1e-9)
    with pytest.warns(UserWarning, match="degree 3; for derivatives of order 2, degree 4"):
        checks = field.recover("u_t + u*u_x = nu*u_xx").attrs["checks"]
    assert checks.startswith("errors are withheld: 'x' has B-splines of degree 3")
    assert checks.count("'x' has B-splines of degree 3") == 1 and "more knots" not in checks


# --- what was believed too easily


def decaying() -> xr.DataArray:
    x, t = np.linspace(0, 6, 60), np.linspace(0, 2, 40)
    u = sum(np.exp(-0.1 * k**2 * t)[:, None] * np.sin(k * x + k) / k for k in (1, 2, 3))
    return xr.DataArray(
        u + 0.02 * np.random.default_rng(0).standard_normal((40, 60)), {"t": t, "x": x}, name="u"
    )


BASES = {"x": xs.BSpline(20, degree=5), "t": xs.BSpline(9, degree=5)}


@pytest.mark.slow
def test_between_gaps_the_penalty_of_the_field_does_not_matter() -> None:
    """From a field that almost interpolates a search ended at a negative diffusivity, with a small error."""
    data = decaying()
    seen = data.where((data.t < 0.3) | (abs(data.x - 3) > 2.8))
    field = xs.fit(seen, BASES, penalty=1e-6, weights=xr.full_like(seen, 2500.0))
    found = field.recover("u_t = D*u_xx")
    assert abs(found.estimate.item() - 0.1) < scatter.FIVE * found.stderr.item() < 0.08


@pytest.mark.slow
def test_intervals_of_constants_that_data_tell_together_are_withheld_together() -> None:
    """Of one wave only a - b is told; an interval of b that holds whatever a is has no ends."""
    t, x = np.linspace(0, 2, 40), np.linspace(0, 6, 60)
    u = np.exp(-0.3 * t)[:, None] * np.sin(x) + 0.1 * np.random.default_rng(1).standard_normal((40, 60))
    found = xr.DataArray(u, {"t": t, "x": x}, ("t", "x"), "u").spline.recover("u_t = a*u_xx + b*u")
    assert found.lower.isnull().all() and found.upper.isnull().all()
    assert "as are those of b, which the data tell together with it" in found.attrs["checks"]


def test_a_known_without_dimensions_is_a_number() -> None:
    data = decaying()
    by_number, by_array = (
        xs.fit(data, BASES, penalty=xs.Physics("u_t = D*u_xx", 10.0, {"D": d}))
        for d in (0.1, xr.DataArray(0.1))
    )
    np.testing.assert_array_equal(by_number.coefficients, by_array.coefficients)


def test_models_that_know_an_equation_are_not_merged() -> None:
    field = xs.fit(decaying(), BASES, penalty=xs.Physics("u_t = D*u_xx", "hard", {"D": 0.1}))
    with pytest.raises(TypeError, match=r"item 0 knows an equation, .*merge the statistics"):
        xs.merge_models([field])


def test_maps_without_a_value_say_so() -> None:
    labels = {"lat": np.linspace(0, 10, 24), "lon": np.linspace(0, 10, 20), "time": np.arange(20.0)}
    data = xr.DataArray(np.full((24, 20, 20), np.nan), labels, ("lat", "lon", "time"), "u")
    with pytest.raises(ValueError, match="there are no observations: every value is missing"):
        data.spline.fit(seconds=2)
