"""Constants under an equation that holds everywhere: exact solutions, noise, sums of holders, and errors withheld."""

from __future__ import annotations

import ast
import functools
import re

import numpy as np
import pytest
import xarray as xr

import xspline as xs
from benchmarks import constants
from tests import scatter
from tests.labels.test_ar1 import noise
from tests.pde import cases
from tests.products import stderr_of
from xspline.pde.profile import gauss_newton
from xspline.pde.text import expression
from xspline.solve import TooLargeError

BASES = {"x": xs.BSpline(24, 5), "t": xs.BSpline(12, 5)}


@functools.cache
def noisy(noise: float = 0.01, extra: float = 0.0) -> xs.Field:
    """Return a fit of diffusion with noise, and with something that no diffusion has."""

    def values(x: xr.DataArray, t: xr.DataArray) -> xr.DataArray:
        draw = np.random.default_rng(0).standard_normal((t.size, x.size))
        u = cases.diffusion(x, t) + extra * t * np.sin(3 * x)
        return u + noise * xr.DataArray(draw, dims=("t", "x"))

    return cases.sampled(values).spline.fit(BASES)


@pytest.mark.parametrize(
    ("u", "equation", "true", "sizes", "within"),
    [
        (cases.diffusion, "u_t = D*u_xx", 0.05, (24, 12), 1e-5),
        (cases.diffusion, "u_t + a*u_x = 0.05*u_xx", 0.0, (24, 12), 1e-5),
        (cases.wave, "u_tt = c**2*u_xx", 1.3, (24, 14), 1e-5),
        (cases.burgers, "u_t + u*u_x = k*u_xx", 0.3, (60, 20), 1e-4),
        (cases.diffusion, "u_t = u_xx/R", 20.0, (24, 12), 1e-5),
    ],
)
def test_without_noise_constants_are_exact(u, equation, true, sizes, within) -> None:
    x, t = sizes
    field = cases.sampled(u).spline.fit(x=xs.BSpline(x, 5), t=xs.BSpline(t, 5), penalty=0)
    found = field.recover(equation)
    assert found.attrs["method"] == "profile" and bool(found.converged)
    assert found.estimate.item() == pytest.approx(true, rel=within, abs=within)
    assert abs(found.estimate.item() - true) < scatter.FIVE * found.stderr.item()
    assert found.stderr.item() < within * max(true, 1)


@pytest.mark.slow
def test_a_metric_and_a_source_in_coordinates_and_functions() -> None:
    """u = (1 + x) e^(−t) solves u_t = D((1 + x) u_xx + (1 + x) u_x ... ) with the source that is left over."""
    data = cases.sampled(lambda x, t: np.exp(-t) * np.sin(x) + x * t)
    field = data.spline.fit(x=xs.BSpline(30, 5), t=xs.BSpline(14, 5), penalty=0)

    def source(x: np.ndarray, t: np.ndarray) -> np.ndarray:
        sine = np.exp(-t) * np.sin(x)
        return -sine + x + 0.7 * (1 + x) * sine

    for known in (source, cases.sampled(source)):
        found = field.recover("u_t = D*(1 + x)*u_xx + S", known={"S": known})
        assert found.estimate.item() == pytest.approx(0.7, rel=1e-5)
    steady = cases.sampled(lambda x, t: source(x, t) + 0 * x)
    found = field.recover("u_t = D*(1 + x)*u_xx + S", known={"S": steady.spline.fit(BASES, penalty=0)})
    assert found.estimate.item() == pytest.approx(0.7, rel=1e-4)


def test_fourier_series_and_polynomials() -> None:
    field = cases.sampled(cases.diffusion).spline.fit(x=xs.Fourier(3, period=2 * np.pi), t=xs.Polynomial(8))
    found = field.recover("u_t = D*u_xx")
    assert found.attrs["method"] == "profile"
    assert found.estimate.item() == pytest.approx(0.05, rel=1e-6)


@pytest.mark.slow
def test_a_circle() -> None:
    """Tests of the wrong parity would leave the fastest wave of the circle free."""
    for size in (16, 17):
        data = cases.sampled(cases.burgers_on_a_circle)
        found = data.spline.fit(
            x=xs.BSpline(2 * size, 5, period=2 * np.pi), t=xs.BSpline(14, 5), penalty=0
        ).recover("u_t + u*u_x = nu*u_xx")
        assert found.estimate.item() == pytest.approx(0.2, rel=1e-4)


@pytest.mark.slow
def test_a_system_of_two_variables() -> None:
    data = cases.turning(cases.grid(40, 30), 0.01, 5)
    field = data.spline.fit(x=xs.BSpline(16, 5), t=xs.BSpline(12, 5), penalty=1e-9)
    found = field.recover(["u_t = D*u_xx - w*v", "v_t = D*v_xx + w*u"])
    single = field.recover("u_t = D*u_xx - w*v")
    for result in (found, single):
        z = (result.estimate.values - [0.05, 1.5]) / result.stderr.values
        assert (np.abs(z) < 3).all() and result.attrs["method"] == "profile"
    assert (found.stderr < single.stderr).all()


@pytest.mark.parametrize(
    "text",
    [
        "u**3/x",
        "sin(u*x)+cos(u)",
        "exp(u)/u",
        "sqrt(u)*tanh(u)-log(u)",
        "abs(-u)*tan(x*u)",
        "x**u",
        "(2+u)**2-u",
    ],
)
def test_derivatives_of_expressions(text: str) -> None:
    node = ast.parse(text, mode="eval").body
    derived = expression.differentiate(node, "u")
    assert derived is not None

    def value(u: float) -> float:
        return float(expression.evaluate(node, {"u": np.float64(u), "x": np.float64(0.7)}))

    own = expression.evaluate(derived, {"u": 0.4, "x": 0.7}, expression.FUNCTIONS_AND_SIGN)
    assert own == pytest.approx((value(0.4 + 1e-6) - value(0.4 - 1e-6)) / 2e-6, rel=1e-7)
    assert expression.differentiate(node, "v") is None


def test_with_noise_the_error_is_that_of_the_bound() -> None:
    case = constants.bound.diffusion()
    data, bound = case.observed(0.01, 5)
    found = data.spline.fit(case.space).recover(case.equation)
    assert found.stderr.item() == pytest.approx(bound, rel=0.05)
    assert abs(found.estimate.item() - case.true) < scatter.FIVE * bound
    assert found.attrs["checks"].startswith("what the knots of 'x' leave of an error was not checked")
    assert "withheld" not in found.attrs["checks"] and 0.8 < found.adequacy < 1.25
    assert abs(found.weak.item() - case.true) < scatter.FIVE * found.weak_stderr.item()
    assert found.weak_stderr.item() > 1.5 * bound


@pytest.mark.slow
@pytest.mark.parametrize("make", constants.bound.CASES)
def test_errors_reach_the_bound_and_intervals_cover(make) -> None:
    r = constants.bound.replicates(make(), 0.05, 10)
    assert r.rmse < 1 + scatter.FIVE * scatter.of_deviation(10) and abs(r.reported - 1) < 0.05
    assert r.coverage >= 0.95 - scatter.FIVE * scatter.of_share(0.95, 10) and r.withheld == 0


@pytest.mark.slow
def test_holders_together_are_their_data_together() -> None:
    case = constants.bound.burgers()
    data, _ = case.observed(0.05, 1)
    pooled = data.spline.statistics(case.space)
    parts = [data[k::4].spline.statistics(case.space, holder=str(k)) for k in range(4)]
    one, two = (s.recover(case.equation) for s in (pooled, xs.merge(parts)))
    assert abs(one.estimate.item() - two.estimate.item()) < 1e-8 * one.stderr.item()
    assert one.stderr.item() == pytest.approx(two.stderr.item(), rel=1e-8)


@pytest.mark.slow
def test_errors_from_the_scores_of_holders() -> None:
    """Each holder's records are off in a shape of the constant's own: only holders are independent."""
    rng, case = np.random.default_rng(0), constants.bound.diffusion()
    plain, by_holders = [], []
    for seed in range(6):
        data, bound = case.observed(0.01, seed)
        holder = rng.integers(0, 20, data.size)
        shape = case.sensitivity(data.x.values, data.t.values)[:, 0]
        wrong = data + 30 * bound * rng.standard_normal(20)[holder] * shape
        places = wrong.assign_coords(place=("point", [f"{h:02d}" for h in holder]))
        field = places.spline.statistics(case.space, holder="place").solve(1e-9)
        found = field.recover(case.equation)
        error = found.estimate.item() - case.true
        plain.append(error / found.stderr.item())
        by_holders.append(error / found.holder_stderr.item())
    assert np.sqrt(np.mean(np.square(plain))) > 2.5
    assert np.sqrt(np.mean(np.square(by_holders))) < 1.7


@pytest.mark.slow
def test_weights_are_precisions() -> None:
    """A tenth of the records with a hundredth of the weight and ten times the error."""
    rng = np.random.default_rng(4)
    at = cases.grid(60, 40)
    bad = xr.DataArray(rng.random((40, 60)) < 0.3, dims=("t", "x"))
    sigma = xr.where(bad, 0.2, 0.02)
    data = cases.sampled(cases.diffusion, at) + sigma * xr.DataArray(
        rng.standard_normal((40, 60)), dims=("t", "x")
    )
    weighted = data.spline.fit(BASES, weights=(1 / sigma**2).broadcast_like(data)).recover("u_t = D*u_xx")
    plain = data.spline.fit(BASES).recover("u_t = D*u_xx")
    assert weighted.sigma.item() == pytest.approx(1, rel=0.1)
    assert weighted.stderr.item() < 0.5 * plain.stderr.item()
    assert abs(weighted.estimate.item() - 0.05) < scatter.FIVE * weighted.stderr.item()


@pytest.mark.slow
def test_gaps_and_few_records() -> None:
    """Where there are no records the equation alone says what the field is."""
    data = cases.sampled(cases.diffusion) + 0.01 * np.random.default_rng(2).standard_normal((40, 70))
    for kept in (data.where((data.x < 2) | (data.x > 3.5)), data[::4, ::6]):
        found = kept.spline.fit(BASES).recover("u_t = D*u_xx")
        assert bool(found.converged)
        assert abs(found.estimate.item() - 0.05) < scatter.FIVE * found.stderr.item() < 0.08


@pytest.mark.slow
def test_members_of_a_batch() -> None:
    runs = xr.DataArray([0.05, 0.1, 0.2], {"run": ["a", "b", "c"]}, "run")
    data = xr.concat(
        [cases.sampled(lambda x, t, d=d: cases.diffusion(x, t, d)) for d in runs.values], runs.run
    )
    field = data.where(runs.run != "b").rename("u").spline.fit(BASES, penalty=1e-9)
    found = field.recover("u_t = D*u_xx")
    np.testing.assert_allclose(found.estimate[0], [0.05, np.nan, 0.2], rtol=1e-5)
    assert found.covariance.dims == ("parameter", "other", "run") and found.converged.dims == ("run",)
    assert "1 of 3 batch members do not determine the parameters" in found.attrs["checks"]
    scaled = field.recover("u_t = q*rate*u_xx", known={"rate": runs})
    np.testing.assert_allclose(scaled.estimate[0], [1, np.nan, 1], rtol=1e-5)


@pytest.mark.slow
def test_a_wrong_equation_has_no_errors() -> None:
    found = noisy(extra=0.1).recover("u_t = D*u_xx")
    assert found.adequacy.item() > 2 and found.probability.item() < 1e-6
    assert np.isnan([found[name].item() for name in ("stderr", "lower", "upper", "covariance")]).all()
    assert "errors are withheld: a field that obeys the equation misses the data" in found.attrs["checks"]
    assert "a term is missing: the data ask for" in found.attrs["checks"]


@pytest.mark.slow
def test_errors_that_remember_are_named_beside_what_the_equation_misses() -> None:
    data = cases.sampled(cases.diffusion)
    errors = noise(np.random.default_rng(0), 0.5, *data.transpose("t", "x").shape)
    red = data + xr.DataArray(0.03 * errors, data.transpose("t", "x").coords, ("t", "x"))
    checks = red.rename("u").spline.recover("u_t = D*u_xx").attrs["checks"]
    assert (
        "or errors are correlated, which this takes as independent" in checks or "a term is missing" in checks
    )
    assert re.search(r"neighbours' residuals .* are correlated along 't' \(0\.\d+\)", checks)
    white = data + 0.03 * np.random.default_rng(0).standard_normal(data.shape)
    assert "correlated" not in white.rename("u").spline.recover("u_t = D*u_xx").attrs["checks"]


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_a_front_that_knots_do_not_resolve_has_no_errors(noise: float) -> None:
    def front(x: xr.DataArray, t: xr.DataArray) -> xr.DataArray:
        return cases.burgers(x, t, 0.02)

    data = cases.noisy(cases.sampled(front), noise, 3)
    found = data.spline.fit(x=xs.BSpline(20, 5), t=xs.BSpline(10, 5), penalty=1e-6).recover(
        "u_t + u*u_x = k*u_xx"
    )
    assert np.isnan(found.stderr.item())
    assert "use more" in found.attrs["checks"]


@pytest.mark.slow
def test_too_few_records_for_what_stays_free() -> None:
    data = cases.sampled(cases.diffusion)[::8, ::18]
    found = data.spline.fit(BASES, penalty=1e-6).recover("u_t = D*u_xx")
    assert np.isnan(found.stderr.item())
    assert "degrees of freedom that the equation leaves" in found.attrs["checks"]


@pytest.mark.slow
def test_the_weak_form() -> None:
    found = noisy().recover("u_t = D*u_xx", method="weak")
    assert found.attrs["method"] == "weak" and "adequacy" not in found
    assert abs(found.estimate.item() - 0.05) < scatter.FIVE * found.stderr.item() < 0.033
    assert found.estimate.item() == noisy().recover("u_t = D*u_xx").weak.item()
    wrong = noisy(extra=0.1).recover("u_t = D*u_xx", method="weak")
    assert np.isnan(wrong.stderr.item())
    assert "misses the equation by more than its errors" in wrong.attrs["checks"]


@pytest.mark.parametrize("method", ["profile", "weak"])
def test_more_constants_than_the_weak_form_has_tests(method: str) -> None:
    field = cases.sampled(cases.diffusion).spline.fit(x=xs.BSpline(8, 5), t=xs.BSpline(8, 5), penalty=1e-6)
    terms = ["1", "u", "u_x", "u_xx", "u*u_x", "u**2", "u**3", "u*u_xx", "u**2*u_x", "u_xxx"]
    text = " + ".join(f"k{i}*{term}" for i, term in enumerate(terms))
    found = field.recover(f"u_t = {text}", method=method)
    assert found.sizes["parameter"] == 10 and found.stderr.isnull().all()
    assert "apart" in found.attrs["checks"] and "errors are withheld" in found.attrs["checks"]


@pytest.mark.slow
def test_where_profile_does_not_suit_the_default_says_so() -> None:
    data = cases.sampled(cases.diffusion)
    union = data.spline.fit(x=xs.Polynomial(1) + xs.BSpline(20, 5), t=xs.BSpline(12, 5), penalty=1e-6)
    found = union.recover("u_t = D*u_xx")
    assert found.attrs["method"] == "pointwise" and "'x' has the union" in found.attrs["checks"]
    with pytest.raises(ValueError, match=r"'x' has the union .*; fit with a single basis along 'x'"):
        union.recover("u_t = D*u_xx", method="profile")
    hole = data.where(data.x > 1)  # what is biased by noise has to be asked for
    with pytest.raises(
        ValueError, match=r"known 'S' has missing values; .* method='pointwise', which leaves such"
    ):
        noisy().recover("u_t = D*u_xx + 0*S", known={"S": hole})
    assert noisy().recover("u_t = D*u_xx", at=data).attrs["method"] == "pointwise"
    assert noisy().recover("t = D*u").attrs["method"] == "pointwise"
    assert noisy().sample(2, seed=0).recover("u_t = D*u_xx").attrs["method"] == "pointwise"


def test_what_profile_refuses() -> None:
    field = noisy()
    with pytest.raises(ValueError, match="holds the equation on all of the domain and takes no at="):
        field.recover("u_t = D*u_xx", method="profile", at={"x": [1.0]})
    with pytest.raises(TypeError, match="draws have no observations of their own"):
        field.sample(2, seed=0).recover("u_t = D*u_xx", method="profile")
    with pytest.raises(ValueError, match="the term of b is zero on all of the domain"):
        field.recover("u_t = D*u_xx + b*(x - x)", method="profile")
    with pytest.raises(ValueError, match=r"known 'S' has labels of 'x' from 1\.0.*on all of the domain"):
        field.recover(
            "u_t = D*u_xx + S", method="weak", known={"S": cases.sampled(cases.wave).sel(x=slice(1, 5))}
        )
    with pytest.raises(ValueError, match=r"D enters as D and as D\*\*2; use one power"):
        field.recover(["u_t = D*u_xx", "u_t = D**2*u_xx"], method="profile")
    with pytest.raises(ValueError, match="q in known= does not appear in the equations"):
        field.recover(["u_t = D*u_xx", "u_x = a*u"], known={"q": 1.0})
    with pytest.raises(ValueError, match="there is no equation; pass text"):
        field.recover([])
    with pytest.raises(ValueError, match="a system of 2 equations takes method='profile' or 'weak'"):
        field.recover(["u_t = D*u_xx", "u_x = a*u"], method="pointwise")


def test_a_band_beyond_memory_is_refused_and_the_weak_form_takes_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("xspline.pde.profile.problem.MAX_PAIRS", 1e5)
    with pytest.raises(TooLargeError, match="or method='weak', which needs no band"):
        noisy().recover("u_t = D*u_xx", method="profile")
    found = noisy().recover("u_t = D*u_xx")
    assert found.attrs["method"] == "weak" and "method='weak': the normal equations" in found.attrs["checks"]


def test_a_search_that_cannot_converge_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    run = gauss_newton.ConstrainedLeastSquares.run
    monkeypatch.setattr(
        gauss_newton.ConstrainedLeastSquares, "run", lambda own, start, *_, **__: run(own, start, 1)
    )
    found = noisy().recover("u_t = D*u_xx")
    assert not found.converged and np.isnan(found.stderr.item())
    assert "the search did not converge in" in found.attrs["checks"]


def strong_residual(field: xs.Field, at: xr.Dataset, d: float) -> float:
    slope, bend = field.derivative(at, t=1), field.derivative(at, x=2)
    return float(np.sqrt(np.mean((slope.values - d * bend.values) ** 2)))


@pytest.mark.slow
def test_a_field_that_obeys_an_equation_is_surer_and_nearer() -> None:
    field, at = noisy(0.1), cases.grid(31, 21).sel(x=slice(1, 5), t=slice(0.2, 0.8))
    obeying = field.constrain("u_t = D*u_xx")
    assert obeying.constants.estimate.item() == field.recover("u_t = D*u_xx").estimate.item()
    d = obeying.constants.estimate.item()
    assert strong_residual(obeying, at, d) < 0.5 * strong_residual(field, at, d)
    truth = cases.sampled(cases.diffusion, at)
    rmse = [float(np.sqrt(((f.predict(at) - truth) ** 2).mean())) for f in (obeying, field)]
    errors = [float(f.stderr(at).mean()) for f in (obeying, field)]
    assert rmse[0] < 1.2 * rmse[1] and errors[0] < errors[1]
    z = ((obeying.predict(at) - truth) / obeying.stderr(at)).values
    assert 0.5 < np.sqrt(np.mean(z**2)) < 1.6
    assert "constrain('u_t = D*u_xx')" in repr(obeying) and obeying.check()
    assert obeying.summary().edf.item() == pytest.approx(24 * 12 - 22 * 11 + 1, abs=0.1)


def test_its_errors_are_those_of_its_draws_and_of_its_system() -> None:
    obeying, at = noisy(0.1).constrain("u_t = D*u_xx"), cases.grid(5, 4)
    drawn = obeying.sample(800, seed=0).predict(at).std("sample")
    np.testing.assert_allclose(drawn, obeying.stderr(at), rtol=scatter.FIVE * scatter.of_deviation(800))
    rate = obeying.sample(400, seed=1).derivative(at, t=1).std("sample")
    tolerance = scatter.FIVE * scatter.of_deviation(400)
    np.testing.assert_allclose(rate, stderr_of(obeying.derivative(at, t=1, stderr=True)), rtol=tolerance)
    space, system = obeying.space, obeying.solution["u"].factorisation.system
    one = np.zeros(space.shape)
    one[3, 4] = 1.0
    variance = system.inverse_pairs()[3, 4, 0, 0]
    assert system.solve(one)[3, 4] == pytest.approx(variance, rel=1e-9)


def test_known_constants_are_no_constants() -> None:
    field = noisy(0.1)
    obeying = field.statistics.constrain("u_t = D*u_xx", known={"D": 0.05})
    assert obeying.constants.sizes["parameter"] == 0
    free = field.constrain("u_t = D*u_xx")
    assert float(obeying.stderr().mean()) < float(free.stderr().mean())
    with pytest.raises(ValueError, match="has no parameter"):
        field.recover("u_t = 0.05*u_xx")


@pytest.mark.slow
def test_a_system_that_is_obeyed() -> None:
    at = cases.grid(30, 20)
    data = cases.turning(at, 0.05, 4)
    field = data.spline.fit(x=xs.BSpline(12, 5), t=xs.BSpline(9, 5), penalty=1e-6)
    obeying = field.constrain(["u_t = D*u_xx - w*v", "v_t = D*v_xx + w*u"])
    truth = cases.diffusion(at.x, at.t) * np.sin(1.5 * at.t)
    z = ((obeying["v"].predict(at) - truth) / obeying["v"].stderr(at)).values
    assert 0.4 < np.sqrt(np.mean(z**2)) < 1.8
    assert float(obeying["v"].stderr(at).median()) < 0.5 * float(field["v"].stderr(at).median())
    with pytest.raises(ValueError, match=r"the equation does not hold v; select the others first"):
        field.constrain("u_t = D*u_xx")


def test_what_an_obeying_field_refuses(tmp_path) -> None:
    with pytest.warns(xs.FitWarning, match="a term is missing.*the field has no error bars"):
        wrong = noisy(extra=0.1).constrain("u_t = D*u_xx")
    assert np.isnan(wrong.stderr({"x": [1.0], "t": [0.5]})).all() and np.isfinite(wrong.predict()).all()
    obeying = noisy(0.1).constrain("u_t = D*u_xx")
    with pytest.raises(ValueError, match="files hold no equations; store its statistics"):
        obeying.to_netcdf(tmp_path / "field.nc")
    with pytest.raises(ValueError, match="fits without each holder would not obey"):
        obeying.cross_validate()
    with pytest.raises(ValueError, match="fits without each holder would not obey"):
        obeying.stderr(method="jackknife")
    runs = xr.concat([cases.sampled(cases.diffusion)] * 2, "run").spline.fit(BASES, penalty=1e-6)
    with pytest.raises(ValueError, match="fit one member and constrain it"):
        runs.constrain("u_t = D*u_xx")


def test_values_that_are_all_the_same_tell_nothing() -> None:
    x, t = np.linspace(0, 6, 40), np.linspace(0, 2, 30)
    data = xr.DataArray(np.full((30, 40), 3.0), {"t": t, "x": x}, name="u")
    field = data.spline.fit(x=xs.BSpline(16, 5), t=xs.BSpline(8, 5), penalty=1e-4)
    for ask in (lambda: field.recover("u_t = D*u_xx"), lambda: field.discover("u_t")):
        with pytest.raises(ValueError, match="all values of 'u' are the same"):
            ask()
