"""Error bars of fields that iterations solved: draws, held to the exact ones of a direct solver."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import xarray as xr

import xspline as xs
from tests import scatter
from tests.products import stderr_of

WAYS = {
    "plane with land": (2, "iterative"),
    "space with clouds": (3, "iterative"),
    "full grid": (3, "spectral"),
}
SMALL = {2: (17, 15), 3: (9, 8, 7)}
LARGE = {2: (58, 53), 3: (16, 15, 14)}  # more coefficients than multigrid solves for directly
PENALTY = xs.Roughness(1e-4)
NAMES = ("x", "y", "z")


def data(sizes: tuple[int, ...], *, gaps: bool = True, seed: int = 0) -> xr.DataArray:
    """Waves with noise; a hole over a third of each axis, and a quarter missing at random."""
    rng, ndim = np.random.default_rng(seed), len(sizes)
    shape = tuple(2 * k + 3 for k in sizes)
    axes = [np.linspace(0, 1, n) for n in shape]
    mesh = np.meshgrid(*axes, indexing="ij")
    values = np.sin(sum((4 + j) * a for j, a in enumerate(mesh))) + 0.2 * rng.standard_normal(shape)
    if gaps:
        values[rng.random(shape) < 0.25] = np.nan
        values[tuple(slice(n // 5, n // 5 + n // 3) for n in shape)] = np.nan
    names = NAMES[:ndim]
    return xr.DataArray(values, dict(zip(names, axes, strict=True)), names, "u", {"units": "K"})


@functools.lru_cache
def both(sizes: tuple[int, ...], solver: str, penalty: Any = PENALTY) -> tuple[xs.Field, xs.Field]:
    """One field, solved by iterations and by a band."""
    values = data(sizes, gaps=solver == "iterative")
    bases = dict(zip(NAMES, sizes, strict=False))
    fits = (values.spline.fit(bases, penalty=penalty, solver=s) for s in (solver, "banded"))
    ours, exact = fits
    return ours, exact


def target(ndim: int) -> dict[str, np.ndarray]:
    return {name: np.linspace(0.02, 0.98, 13) for name in NAMES[:ndim]}


def assert_right_on_average(drawn: xr.DataArray, exact: xr.DataArray, values: xr.DataArray, n: int) -> None:
    """The mean ratio is 1 within five of its standard errors, of n draws at places correlated as `values` are."""
    correlated = values.transpose("sample", ...).to_numpy().reshape(values.sizes["sample"], -1)
    bias = 0.005  # that the tolerance of solves may leave
    tolerance = scatter.FIVE * scatter.of_mean_deviation(correlated, n) + bias
    assert float((drawn / exact).mean()) == pytest.approx(1, abs=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_drawn_errors_are_the_exact_ones(way: str) -> None:
    """In the mean over the domain and in the hole; of single points within five of their own standard errors."""
    ndim, solver = WAYS[way]
    ours, exact = both(LARGE[ndim], solver)
    at, samples = target(ndim), exact.sample(100, seed=9)
    drawn, known, values = ours.stderr(at), exact.stderr(at), samples.predict(at)
    assert_right_on_average(drawn, known, values, 200)
    hole = {name: slice(0.25, 0.5) for name in at}
    assert_right_on_average(*(x.sel(hole) for x in (drawn, known, values)), 200)
    assert float(abs(drawn / known - 1).max()) < scatter.FIVE * scatter.of_deviation(200)
    assert drawn.units == "K" and drawn.name == "u_stderr"
    ours, exact = both(SMALL[ndim], solver)  # of what else has draws
    samples = exact.sample(100, seed=9)
    slopes = [stderr_of(f.derivative(at, x=1, y=1, stderr=True)) for f in (ours, exact)]
    assert_right_on_average(*slopes, samples.derivative(at, x=1, y=1), 200)
    curved = [f.derivative(at, x=2, stderr=True).d2u_dx2_stderr for f in (ours, exact)]
    assert_right_on_average(*curved, samples.derivative(at, x=2), 200)
    gradients = [f.gradient(at, stderr=True) for f in (ours, exact)]
    for name in ("x", "y"):
        errors = [g[f"du_d{name}_stderr"] for g in gradients]
        assert_right_on_average(*errors, samples.derivative(at, {name: 1}), 200)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_samples_are_drawn_from_iterations(way: str) -> None:
    ndim, solver = WAYS[way]
    ours, exact = both(SMALL[ndim], solver)
    at = target(ndim)
    values, error = ours.sample(200, seed=1).predict(at), exact.stderr(at)
    assert_right_on_average(values.std("sample"), error, values, 200)
    z = (values.mean("sample") - exact.predict(at)) / error * np.sqrt(200)
    assert float(abs(z).max()) < scatter.FIVE
    correlated = values.transpose("sample", ...).to_numpy().reshape(200, -1)
    of_mean_square = 2 * scatter.of_mean_deviation(correlated, 1)
    assert float((z**2).mean()) == pytest.approx(1, abs=scatter.FIVE * of_mean_square)
    np.testing.assert_array_equal(ours.sample(200, seed=1).predict(at), values)


@pytest.mark.slow
def test_what_is_drawn_says_so() -> None:
    ours, exact = both(SMALL[2], "iterative")
    at = target(2)
    drawn = ours.stderr(at)
    assert drawn.attrs["method"] == "draws" and drawn.attrs["draws"] == 200 and drawn.attrs["seed"] == 0
    assert drawn.attrs["relative_error"] == pytest.approx(0.05)
    known = exact.stderr(at)
    assert known.attrs["method"] == "exact" and "draws" not in known.attrs
    many = exact.stderr(at, method="draws")
    assert many.attrs["draws"] == 800 and many.attrs["relative_error"] == pytest.approx(0.025)
    np.testing.assert_array_equal(exact.stderr(at, draws=50), known)  # it has no use for them


def test_the_same_seed_gives_the_same_error_bars() -> None:
    ours, _ = both(SMALL[2], "iterative")
    again = ours.statistics.solve(PENALTY, solver="iterative")
    at = target(2)
    first = ours.stderr(at, draws=12)
    np.testing.assert_array_equal(first, again.stderr(at, draws=12))
    assert float(abs(first - ours.stderr(at, draws=12, seed=1)).max()) > 0
    np.testing.assert_allclose(first[3], ours.stderr({**at, "x": at["x"][3]}, draws=12), rtol=1e-12)


def test_too_few_draws_and_what_iterations_do_not_know_are_refused() -> None:
    ours, exact = both(SMALL[2], "iterative")
    said = r"draws=.*(needs an integer of at least 10 draws| has to be an integer or None)"
    for draws in (9, 0, True, 20.0):
        with pytest.raises((ValueError, TypeError), match=said):
            ours.stderr(draws=draws)
        with pytest.raises((ValueError, TypeError), match=said):
            exact.gradient(stderr=True, draws=draws)
    with pytest.raises(ValueError, match=r"seed=-1: the seed of the draws is an integer, 0 or more"):
        stderr_of(ours.derivative(x=1, seed=-1, stderr=True))
    with pytest.raises(
        ValueError,
        match=r"'u' was solved by iterations \(solver='iterative'\); pass method='draws', or fit with",
    ):
        ours.stderr(method="exact")


@pytest.mark.parametrize("solver", [pytest.param("iterative", marks=pytest.mark.slow), "spectral"])
def test_members_of_a_batch_have_draws_of_their_own(solver: str) -> None:
    """Gaps that differ between members, and observations that are there several times."""
    values = data(SMALL[2], gaps=solver == "iterative").expand_dims(member=3).copy()
    if solver == "iterative":
        values[1] = data(SMALL[2], seed=1)
        values[2] = np.nan  # nothing to fit
    bases = dict(zip(NAMES, SMALL[2], strict=False))
    ours, exact = (values.spline.fit(bases, penalty=PENALTY, solver=s) for s in (solver, "banded"))
    drawn, known = ours.stderr(target(2)), exact.stderr(target(2))
    values = exact.sample(100, seed=9).predict(target(2))
    for member in range(2 if solver == "iterative" else 3):
        own = {"member": member}
        assert_right_on_average(drawn[own], known[own], values[own], 200)
    assert float(abs(drawn[0] / drawn[1] - known[0] / known[1]).max()) > 1e-3  # not the same numbers
    np.testing.assert_array_equal(np.isnan(drawn), np.isnan(known))


@pytest.mark.slow
def test_a_field_whose_strengths_iterations_chose_has_error_bars() -> None:
    values = data(SMALL[3])
    bases = dict(zip(NAMES, SMALL[3], strict=False))
    ours = values.spline.fit(bases, solver="iterative")
    exact = values.spline.fit(bases, penalty=ours.penalty, solver="banded")
    at = target(3)
    assert_right_on_average(ours.stderr(at), exact.stderr(at), exact.sample(100, seed=9).predict(at), 200)
