"""Terms of equations: the right ones from noise, none from noise alone, and honest where several are as good."""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

import xspline as xs
from benchmarks.constants import bound, waves
from tests import scatter
from tests.pde import cases
from xspline.pde.discovery.models import Parabola, size_cost

BASES = {"x": xs.BSpline(16, 5), "t": xs.BSpline(8, 5)}


def noisy(u, noise: float, seed: int = 0) -> xr.DataArray:
    """Return u on the grid with noise, as a part of its standard deviation."""
    data = cases.sampled(u, cases.grid(48, 30))
    draw = np.random.default_rng(seed).standard_normal(data.shape)
    return data.copy(data=data.values + noise * (float(data.std()) or 1.0) * draw)


@functools.cache
def diffusion() -> xs.Field:
    return noisy(cases.diffusion, 0.01).spline.fit(BASES)


def terms_of(found: xr.Dataset, model: int = 0) -> set[str]:
    return set(found.term.values[found.included.values[model]])


def test_burgers_equation_among_sixteen_candidates() -> None:
    x, t = np.arange(50) * 2 * np.pi / 50, np.linspace(0, 4, 40)
    u = bound.burgers(0.3).value(x, t[:, None])
    u = u + 0.01 * u.std() * np.random.default_rng(0).standard_normal(u.shape)
    labels = {"t": ("t", t, {"units": "s"}), "x": ("x", x, {"units": "m"})}
    data = xr.DataArray(u, labels, ("t", "x"), "u", {"units": "m s-1"})
    found = xs.fit(data, {"x": xs.BSpline(16, 5, period=2 * np.pi), "t": xs.BSpline(9, 5)}).discover("u_t")
    assert found.sizes["term"] == 16 and terms_of(found) == {"u*u_x", "u_xx"}
    for term, true in (("u*u_x", -1.0), ("u_xx", 0.3)):
        own = found.sel(term=term).isel(model=0)
        assert abs(own.coefficient.item() - true) < scatter.FIVE * own.stderr.item() < 0.125
    assert list(found.units.sel(term=["u*u_x", "u_xx"]).values) == ["1", "m2 s-1"]
    assert found.attrs["equation"] == found.equation.values[0]
    assert found.attrs["equation"].startswith("u_t = -") and "*u*u_x + 0." in found.attrs["equation"]
    assert found.delta_bic[0] == 0 and (np.diff(found.bic) >= 0).all()
    assert found.attrs["checks"].startswith("what the knots of 'x' leave")
    assert "tell it" not in found.attrs["checks"]


@pytest.mark.slow
def test_the_best_is_what_recover_gives() -> None:
    found = diffusion().discover("u_t", order=2, power=1)
    assert found.attrs["recover"] == "u_t = k1*u_xx"
    constant = diffusion().recover(found.attrs["recover"])
    own = found.isel(model=0).sel(term="u_xx")
    assert own.coefficient.item() == pytest.approx(constant.estimate.item(), abs=0.02 * own.stderr.item())
    assert own.stderr.item() == pytest.approx(constant.stderr.item(), rel=1e-2)
    assert own.adequacy.item() == pytest.approx(constant.adequacy.item(), rel=1e-3)


@pytest.mark.slow
def test_waves_have_a_second_derivative_in_time() -> None:
    found = noisy(cases.wave, 0.01).spline.fit(BASES).discover("u_tt", order=2, power=1)
    assert terms_of(found) == {"u_xx"}
    assert found.coefficient.sel(term="u_xx")[0].item() == pytest.approx(1.69, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(("knots", "penalty"), [(20, 0), (30, "reml")])
def test_without_noise_no_term_is_rounding(knots: int, penalty: float | str) -> None:
    data = cases.sampled(cases.diffusion, cases.grid(80, 40))
    found = data.spline.fit({"x": xs.BSpline(knots, 5), "t": xs.BSpline(10, 5)}, penalty=penalty).discover(
        "u_t"
    )
    assert terms_of(found) == {"u_xx"} and "tell it" not in found.attrs["checks"]
    assert (np.abs(found.coefficient.values[found.included.values]) > 0.01).all()


@pytest.mark.slow
@pytest.mark.parametrize(("knots", "order"), [(10, 2), (14, 3)])
def test_what_the_knots_leave_is_no_term(knots: int, order: int) -> None:
    """Without noise the misfit is that of the space, and sets of up to ten terms follow it."""
    data = cases.sampled(cases.diffusion, cases.grid(50, 25))
    field = data.spline.fit({"x": xs.BSpline(knots, 5), "t": xs.BSpline(10, 5)})
    found = field.discover("u_t", order=order)
    assert found.attrs["equation"] == "none" and "no equation is claimed" in found.attrs["checks"]
    # What knots leave of the field is as good as noise, which hides how terms differ.
    assert "use more" in found.attrs["checks"] or "do not tell" in found.attrs["checks"]


@pytest.mark.slow
def test_known_sources_and_coordinates_are_candidates() -> None:
    def heated(x: xr.DataArray, t: xr.DataArray) -> xr.DataArray:
        return cases.diffusion(x, t) + 2 * (1 - np.exp(-0.05 * t)) / 0.05 * np.cos(x)

    field = noisy(heated, 0.01).spline.fit(BASES)
    found = field.discover("u_t", terms=["u_x", "u_xx", "S", "x", "u"], known={"S": lambda x: np.cos(x)})
    assert terms_of(found) == {"u_xx", "S"}
    assert found.coefficient.sel(term="S")[0].item() == pytest.approx(2, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("response", "right"),
    [
        ("u_t", {"u**2*v", "v**3", "v_xx"}),
        ("v_t", {"v**2*u", "u**3", "u_xx"}),
    ],
)
def test_two_variables_without_a_list_of_terms(response: str, right: set[str]) -> None:
    """Of raw data: the cubic Schrödinger equation, as its real and imaginary part."""
    data = waves.schrodinger().noisy(0.02, 0).isel(t=slice(None, None, 3))
    found = xs.discover(data, response, order=2)
    assert found.sizes["term"] == 22 and found.attrs["equation"] != "none"
    assert terms_of(found) == right
    assert found.space.startswith('fit({"x": xs.BSpline(')


@pytest.mark.slow
@pytest.mark.parametrize(("space", "time", "letter"), [("r", "t", "r"), ("distance", "time", "x")])
def test_of_raw_data_coordinates_are_fitted_whatever_their_names(space: str, time: str, letter: str) -> None:
    data = noisy(cases.diffusion, 0.01).rename(x=space, t=time)
    found = xs.discover(data, "u_t", order=2, power=1)
    assert terms_of(found) == {f"u_{letter * 2}"}


def test_merged_statistics_find_what_all_data_find() -> None:
    data = noisy(cases.diffusion, 0.01)
    space = xs.space(data, **BASES)
    west, east = (xs.statistics(data[:, part], space) for part in (slice(0, 20), slice(20, None)))
    asked = {"terms": ["u", "u_xx"]}
    both, pooled = (s.discover("u_t", **asked) for s in (west + east, xs.statistics(data, space)))
    assert terms_of(both) == {"u_xx"}
    np.testing.assert_allclose(both.coefficient[0], pooled.coefficient[0], rtol=1e-8)


@pytest.mark.slow
def test_a_field_that_obeys_no_candidate_has_no_equation() -> None:
    field = noisy(lambda x, t: np.sin(x + 2 * t**2) + np.cos(2 * x), 0.01).spline.fit(BASES, penalty=0)
    found = field.discover("u_t", terms=["u", "u_x"])
    assert found.attrs["equation"] == "none" and found.probability[0] < 1e-3
    assert "misses the data by more than their noise" in found.attrs["checks"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "seed", "around", "asked"),
    [
        (0.0, 0, True, {}),
        (0.05, 2, True, {"order": 2}),
        (0.0, 0, False, {"order": 2, "power": 1}),
        (1e-3, 0, False, {"order": 2, "power": 2}),
        (0.01, 0, False, {}),
    ],
)
def test_of_a_single_wave_no_more_terms_than_data_tell(
    noise: float, seed: int, around: bool, asked: dict
) -> None:
    """Of sin(kx) u is u_xx over −k²: both are told, and no set is as good that has terms more than one of them."""
    if around:
        x, t, decay = np.arange(48) * 2 * np.pi / 48, np.linspace(0, 2, 30), 0.05
        wave, bases = np.sin(x), {"x": xs.BSpline(24, 5, period=2 * np.pi), "t": xs.BSpline(8, 5)}
    else:
        x, t, decay = np.linspace(0, 1, 40), np.linspace(0, 1, 30), 0.1 * np.pi**2
        wave, bases = np.sin(np.pi * x), {"x": xs.BSpline(14, 5), "t": xs.BSpline(10, 5)}
    u = np.exp(-decay * t)[:, None] * wave + noise * np.random.default_rng(seed).standard_normal((30, x.size))
    data = xr.DataArray(u, {"t": t, "x": x}, ("t", "x"), "u")
    found = data.spline.fit(bases, penalty=1e-9).discover("u_t", **asked)
    good = {frozenset(terms_of(found, i)) for i in np.flatnonzero(found.as_good)}
    assert good == {frozenset({"u"}), frozenset({"u_xx"})}
    assert "the data do not tell it from u_t = " in found.attrs["checks"]


@pytest.mark.slow
def test_a_travelling_wave_obeys_a_shorter_equation_too() -> None:
    field = noisy(cases.burgers, 0.01).spline.fit({"x": xs.BSpline(30, 5), "t": xs.BSpline(8, 5)})
    found = field.discover("u_t", terms=["u_x", "u*u_x", "u_xx"])
    good = [terms_of(found, i) for i in np.flatnonzero(found.as_good)]
    assert {"u_x"} in good and {"u*u_x", "u_xx"} in good


@pytest.mark.slow
@pytest.mark.parametrize(
    ("response", "asked", "message"),
    [
        ("u_t", {"terms": ["D*u_xx"]}, r"'D\*u_xx' holds D, which is no variable"),
        ("u_t", {"terms": ["u_xx", "u_xx = 0"]}, "holds '='"),
        ("u_t = 0", {"terms": ["u_xx"]}, "response 'u_t = 0' holds '='"),
        ("u_t", {"terms": ["u_xx", " u_xx"]}, "'u_xx' is there twice"),
        ("u_t", {"terms": ["u_t", "u_xx"]}, "'u_t' is the response itself"),
        ("u_t", {"terms": ["u_"]}, "'u_' .*|u_ is a derivative along no coordinate"),
        ("u_t", {"terms": ["u +"]}, "cannot read the candidate"),
        ("u_t", {"terms": []}, "terms has to be a list of texts"),
        ("u_t", {"terms": "u_xx"}, "terms has to be a list of texts"),
        ("u_t", {"terms": ["u_xx"], "order": 2}, "leave them out, or leave out terms="),
        ("u_t", {"order": -1}, "order=-1 has to be a whole number"),
        ("u", {}, "'u' is no derivative along one coordinate"),
        ("u_xt", {}, "'u_xt' is no derivative along one coordinate"),
        ("u_t", {"order": 6}, "6"),
        ("u_t", {"terms": ["u_xx", "x - x"]}, "zero on all of the domain"),
        ("u_t", {"terms": ["u_xx", "1/(x - x)"]}, "not finite"),
    ],
)
def test_what_cannot_be_asked(response: str, asked: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        diffusion().discover(response, **asked)


def test_what_is_no_field_or_no_text() -> None:
    with pytest.raises(TypeError, match="a candidate has to be text"):
        diffusion().discover("u_t", terms=[1])
    with pytest.raises(TypeError, match="response=1 has to be a text"):
        diffusion().discover(1)
    with pytest.raises(TypeError, match=r"power=1\.5 has to be an integer or None"):
        diffusion().discover("u_t", power=1.5)
    with pytest.raises(AttributeError, match="draws along 'sample', which have no discover"):
        diffusion().sample(2, seed=0).discover("u_t")


@pytest.mark.slow
def test_a_batch_is_refused() -> None:
    data = noisy(cases.diffusion, 0.01)
    field = xr.concat([data, data], "member").spline.fit(BASES)
    with pytest.raises(ValueError, match=r"independent fits along \('member',\); select one") as caught:
        field.discover("u_t")
    assert "xs.discover(data, 'u_t', dims={'m': 'member'})" in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("make", [make for make in waves.SETS if make is not waves.noise])
def test_the_right_terms_at_ten_percent_noise(make) -> None:
    """In the first draw; the benchmark counts many."""
    own = make()
    assert own.is_right(own.discovered(0.10, 0))


@pytest.mark.slow
@pytest.mark.parametrize("make", [m for m in waves.SETS if m not in (waves.noise, waves.schrodinger)])
def test_the_right_terms_without_noise(make) -> None:
    """And no other set is as good, though the space leaves more than rounding."""
    own = make()
    found = own.discovered(0.0, 0)
    assert own.is_right(found) and int(found.as_good.sum()) == 1


@pytest.mark.slow
def test_a_system_without_noise_is_not_given_wrong_terms() -> None:
    """What the space leaves looks like many small terms of the other variable: then none is claimed."""
    bases = {"x": xs.BSpline(40, 5, period=10.0), "t": xs.BSpline(28, 5)}
    own = replace(waves.schrodinger(), bases=bases, asked={"order": 2})
    found = own.discovered(0.0, 0)
    assert own.is_right(found) or found.attrs["equation"] == "none"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::xspline.FitWarning")  # of noise λ is at its bound
def test_no_equation_of_noise() -> None:
    assert all(waves.noise().discovered(1.0, seed).attrs["equation"] == "none" for seed in range(3))


def test_the_best_sets_are_those_of_all() -> None:
    """And what one costs is its sum of squares beside that of all terms, and what its size costs."""
    rng = np.random.default_rng(9)
    columns = rng.standard_normal((200, 9)) * 10.0 ** rng.integers(-4, 4, 9)
    columns[:, 1] = columns[:, 0] + 0.1 * columns[:, 1]
    target = columns[:, [0, 3]] @ (3.0 / columns[:, [0, 3]].std(0)) + rng.standard_normal(200)
    theta, least = (np.linalg.lstsq(columns, target, rcond=None)[i] for i in (0, 1))
    own = Parabola(theta, columns.T @ columns, 1.0, 200)
    every = [s for size in range(10) for s in itertools.combinations(range(9), size)]
    costs = sorted((own.cost(subset), subset) for subset in every)
    assert own.ranked(1)[0][1] == (0, 3)
    assert [subset for _, subset in own.ranked(5)] == [subset for _, subset in costs[:5]]
    for size in range(1, 10):
        best = next(s for _, s in costs if len(s) == size)
        assert own.best_of_size(size, 1) == [best]
        rss = np.linalg.lstsq(columns[:, best], target, rcond=None)[1].item()
        assert own.cost(best) == pytest.approx(rss - least.item() + size_cost(size, 9, 200), rel=1e-6)
