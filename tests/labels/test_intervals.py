"""Intervals, bands of whole curves, chances to exceed a level, and significance of maps: laws, and what they cover."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import xarray as xr
from scipy import ndimage, stats

import xspline as xs
from benchmarks.coverage import intervals, shares
from tests import scatter
from tests.products import BASES, sst

PENALTY = xs.Roughness({"lat": 1e-2, "lon": 3e-2})
PLACE = {"time": "2000-06-15", "lon": 200.0}


@pytest.fixture(scope="module")
def field() -> xs.Field:
    return sst(months=24, gaps=0.2).spline.fit(BASES, penalty=PENALTY, holder="time.year")


def line(count: int = 8, members: int = 1, seed: int = 0) -> xr.DataArray:
    """A line with noise, for each of some members, of which the last has a gap."""
    x, rng = np.arange(float(count)), np.random.default_rng(seed)
    values = 1 + 0.5 * x[:, None] + rng.standard_normal((count, members))
    values[1, -1] = np.nan if members > 1 else values[1, -1]
    return xr.DataArray(values, {"x": x, "member": range(members)}, ("x", "member"), "u").squeeze()


def wave(count: int = 60) -> xr.DataArray:
    x = np.linspace(0, 10, count)
    return xr.DataArray(np.sin(x) + 0.3 * np.random.default_rng(1).standard_normal(count), {"x": x}, "x", "u")


def half(ends: xr.Dataset) -> np.ndarray:
    lower, upper = ends.data_vars.values()
    return (upper - lower).to_numpy() / 2


def refuse(*_args: object, **_kwargs: object) -> None:
    raise AssertionError("something was computed")


@pytest.mark.parametrize("level", [0.5, 0.95, 0.99])
def test_an_interval_is_of_students_t(level: float) -> None:
    field = line().spline.fit(x=xs.Polynomial(1))
    ends, at = field.interval(level=level), field.predict()
    factor = stats.t.ppf((1 + level) / 2, 8 - 2)
    np.testing.assert_allclose(half(ends), factor * field.stderr(), rtol=1e-12)
    np.testing.assert_allclose((ends.lower + ends.upper) / 2, at, rtol=1e-12)
    new = field.interval(level=level, new=True)
    np.testing.assert_allclose(
        half(new), factor * np.hypot(field.stderr(), field.summary().sigma), rtol=1e-12
    )


def test_each_member_has_its_own_degrees_of_freedom() -> None:
    field = line(members=3).spline.fit(x=xs.Polynomial(1))
    expected = stats.t.ppf(0.975, [6, 6, 5]) * field.stderr()
    np.testing.assert_allclose(half(field.interval()), expected, rtol=1e-12)
    several = (field.exceedance(1.0), field.significance(value=0), field.interval(simultaneous=True).upper)
    assert all(own.dims == field.predict().dims for own in several)


@pytest.mark.parametrize("orders", [{"lat": 1}, {"lat": 1, "time": 1}])
def test_of_derivatives_and_terms(field: xs.Field, orders: dict[str, int]) -> None:
    for own in (field, field.select(time=xs.Polynomial)):
        values, error = own.derivative(None, orders, stderr=True).data_vars.values()
        ends = own.interval(orders=orders)
        assert ends.lower.dims == values.dims, "the slope of a linear trend is given once"
        freedom = float(field.summary()["count"] - field.summary().edf)
        np.testing.assert_allclose(half(ends), stats.t.ppf(0.975, freedom) * error, rtol=1e-9)
    trend = field.select(time=xs.Polynomial)
    assert "time" not in trend.interval(orders={"time": 1}).dims
    assert trend.interval(orders={"time": 1}, lat=[0.0, 5.0], lon=200.0).sizes == {"lat": 2}


def test_the_jackknife_has_one_degree_less_than_parts(field: xs.Field) -> None:
    error = field.stderr(method="jackknife", **PLACE)
    ends = field.interval(method="jackknife", **PLACE)
    np.testing.assert_allclose(half(ends), stats.t.ppf(0.975, 1) * error, rtol=1e-9)
    sigma, freedom = float(field.summary().sigma), float(field.summary()["count"] - field.summary().edf)
    squares = np.array([error.to_numpy() ** 2, np.full(error.shape, sigma**2)])
    both = squares.sum(axis=0) ** 2 / (squares[0] ** 2 / 1 + squares[1] ** 2 / freedom)
    new = field.interval(method="jackknife", new=True, **PLACE)
    np.testing.assert_allclose(half(new), stats.t.ppf(0.975, both) * np.sqrt(squares.sum(axis=0)), rtol=1e-9)


def test_of_a_fine_field_95_percent_are_196_standard_errors() -> None:
    for count in (12, 60):
        field = wave(count).spline.fit()
        sigma, stderr = float(field.summary().sigma), field.stderr()
        np.testing.assert_allclose(half(field.interval()), shares.NORMAL * stderr, rtol=1e-9)
        wider = stats.t.ppf([0.975, 0.995], count - 1)  # a mean was taken out
        np.testing.assert_allclose(
            half(field.interval(level=0.99)), shares.NORMAL * wider[1] / wider[0] * stderr, rtol=1e-9
        )
        at_least = shares.NORMAL * np.hypot(stderr, sigma)
        new = half(field.interval(new=True))
        assert (at_least <= new).all() and (new <= wider[0] * np.hypot(stderr, sigma)).all()


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(24, 32), (60, 80)])
def test_new_observations_scatter_as_those_around_them_do(shape: tuple[int, int]) -> None:
    """Ten times as much in the east as in the west."""
    rng, (ny, nx) = np.random.default_rng(1), shape
    field = 12 * ndimage.gaussian_filter(rng.standard_normal(shape), 3)
    values = np.where(np.arange(nx) < nx / 2, 0.2, 2.0) * (field + 0.3 * rng.standard_normal(shape))
    data = xr.DataArray(values, {"y": np.arange(float(ny)), "x": np.arange(float(nx))}, ("y", "x"), "u")
    known = data.where(rng.random(data.shape) > 0.2)
    ends = known.spline.fit().interval(new=True)
    is_inside = ((ends.lower < data) & (data < ends.upper)).where(known.isnull())
    assert is_inside.sel(x=slice(0.55 * nx, None)).mean() > 0.9, "in the east: with the noise of all .84"


def test_merged_statistics_and_files_know_the_noise(tmp_path: Path) -> None:
    data = sst(months=24, gaps=0.2)
    space = data.spline.space(BASES)
    a, b = (data[part].spline.statistics(space, holder=str(part)) for part in (slice(12), slice(12, None)))
    pooled, merged = data.spline.fit(space, penalty=PENALTY), (a + b).solve(penalty=PENALTY)
    merged.to_zarr(tmp_path / "single.zarr")
    bare = wave(40).spline.fit()
    bare.to_zarr(tmp_path / "bare.zarr")
    for same, other, at in (
        (pooled, merged, PLACE | {"lat": [0.0, 5.0]}),
        (pooled, xs.open_field(tmp_path / "single.zarr"), PLACE | {"lat": [0.0, 5.0]}),
        (bare, xs.open_field(tmp_path / "bare.zarr"), {"x": [0.5, 3.3]}),
        (bare, pickle.loads(pickle.dumps(bare)), {"x": [0.5, 3.3]}),
    ):
        for options in ({}, {"new": True, "level": 0.9}):
            xr.testing.assert_allclose(same.interval(**at, **options), other.interval(**at, **options))


def test_new_observations_have_weights() -> None:
    data = wave()
    field = data.spline.fit(x=12, weights=xr.full_like(data, 4.0))
    with pytest.raises(ValueError, match=r"'u' was fitted with weights, 4 on average; pass that of"):
        field.interval(new=True)
    sigma, stderr = float(field.summary().sigma), field.stderr()
    factor = half(field.interval()) / stderr
    np.testing.assert_allclose(half(field.interval(new=True, weight=9)), factor * np.hypot(stderr, sigma / 3))
    weight = xr.where(data.x < 5, 4.0, 0.0)
    own = half(field.interval(new=True, weight=weight))
    assert np.isfinite(own).tolist() == (data.x < 5).values.tolist(), "a weight of zero says nothing"
    with pytest.raises(ValueError, match="an array was given that has other labels than u"):
        field.interval(new=True, weight=weight[:5])
    robust = data.spline.fit(x=12, robust=True)
    assert np.isfinite(half(robust.interval(new=True))).all(), "its weights are its own"


def test_names_labels_and_attributes(field: xs.Field) -> None:
    ends = field.interval(new=True, names=("low", "high"), **PLACE)
    assert list(ends.data_vars) == ["low", "high"]
    assert ends.low.attrs["units"] == "degC" and ends.low.attrs["comment"] == "assumes independent errors"
    assert ends.high.attrs["long_name"] == (
        "upper end of the 95 % interval of a new observation of sea surface temperature"
    )
    assert "interval(level=0.95, new=True)" in ends.low.attrs["history"]
    data = wave()
    of_two = xr.Dataset({"u": data, "v": 2 * data}).spline.fit(x=12, penalty=1e-3)
    assert list(of_two.interval(x=1.0).data_vars) == ["u_lower", "u_upper", "v_lower", "v_upper"]
    assert list(of_two["v"].interval(x=1.0).data_vars) == ["lower", "upper"]
    assert "dv_dx_upper" in of_two.interval(orders={"x": 1}) and list(of_two.exceedance(0.5).data_vars) == [
        "u_exceedance",
        "v_exceedance",
    ]
    chances = of_two.exceedance({"u": 0.5, "v": 1.0}, x=1.0)
    assert float(chances.u_exceedance) == pytest.approx(float(chances.v_exceedance))


def test_outside_the_domain_nothing_is_known() -> None:
    field = wave().spline.fit(x=12, penalty=1e-3)
    where: dict[str, Any] = {"x": [5.0, 11.0]}
    assert np.isfinite(half(field.interval(**where))).tolist() == [True, False]
    assert np.isfinite(half(field.interval(simultaneous=True, **where))).tolist() == [True, False]
    assert np.isfinite(field.exceedance(0.0, **where)).values.tolist() == [True, False]
    assert field.significance(value=9.0, **where).values.tolist() == [True, False]


def test_a_band_of_one_function_is_an_interval() -> None:
    field = line(members=2).spline.fit(x=xs.Polynomial(0))
    exact = half(field.interval())
    drawn = half(field.interval(simultaneous=True, draws=20_000))
    # The density of |t| at its quantile gives the scatter of that.
    for k, freedom in enumerate((7, 6)):
        factor = stats.t.ppf(0.975, freedom)
        error = scatter.of_share(0.95, 20_000) / (2 * stats.t.pdf(factor, freedom)) / factor
        assert abs(drawn[..., k] / exact[..., k] - 1).max() < scatter.FIVE * error


def test_a_band_of_a_line_is_that_of_working_and_hotelling() -> None:
    """Over ever more labels in both directions the band of a line reaches √(2 F) standard errors."""
    field = line(40).spline.fit(x=xs.Polynomial(1))
    at = {
        "x": np.concatenate(
            [-np.geomspace(1e4, 1, 100), np.linspace(0, 39, 200), 39 + np.geomspace(1, 1e4, 100)]
        )
    }
    drawn = half(field.interval(simultaneous=True, draws=20_000, extrapolate=True, **at))
    reach = drawn / field.stderr(extrapolate=True, **at)
    assert float(reach.max() - reach.min()) < 1e-9
    assert float(reach[0]) == pytest.approx(np.sqrt(2 * stats.f.ppf(0.95, 2, 38)), rel=0.03)


def test_bands_of_terms_derivatives_and_the_jackknife(field: xs.Field) -> None:
    trend = field.select(time=xs.Polynomial)
    for own, options in ((trend, {}), (field, {"orders": {"lat": 1}}), (field, {"method": "jackknife"})):
        ordinary, band = (half(own.interval(simultaneous=s, **options, **PLACE)) for s in (False, True))
        ratio = band / ordinary
        assert ratio.min() >= 0.9 and ratio.max() - ratio.min() < 1e-9, options


@pytest.mark.simulation
@pytest.mark.filterwarnings("ignore::xspline.FitWarning")  # one search in 800 does not converge
@pytest.mark.parametrize("name", list(intervals.CURVES)[1:4:2])
def test_bands_hold_whole_curves(name: str) -> None:
    held = [intervals.curve(name, seed)[1] for seed in range(60)]
    tolerance = scatter.FIVE * scatter.of_share(0.95, 60)
    assert 0.93 - tolerance <= np.mean(held) <= 0.97 + tolerance


@pytest.mark.slow
def test_all_are_lazy_where_the_field_is() -> None:
    data = sst(months=24)
    field = data.spline.fit(BASES, penalty=PENALTY)
    calls: list[Any] = [
        lambda **at: field.interval(**at),
        lambda **at: field.interval(simultaneous=True, method="draws", draws=200, **at),
        lambda **at: field.exceedance(28.0, new=True, **at),
        lambda **at: field.significance(orders={"lat": 1}, **at),
    ]
    at = {"lat": [0.0, 3.0, 5.0], "lon": [180.0, 200.0], "time": data.time[:2]}
    for call in calls:
        field.interval(**at, method="draws", draws=200)  # covariances are known
        with dask.config.set(scheduler=refuse):
            lazily = call(chunks={"lat": 2}, **at)
        assert all(lazily.chunksizes[dim] for dim in lazily.dims)
        xr.testing.assert_allclose(lazily.compute(), call(**at), rtol=1e-5)
    bare = wave().spline.fit()
    with dask.config.set(scheduler=refuse):
        ends = bare.interval(new=True, chunks={"x": 20})
    np.testing.assert_allclose(half(ends.compute()), half(bare.interval(new=True)), rtol=1e-9)


def test_chances_are_those_of_intervals() -> None:
    field = line().spline.fit(x=xs.Polynomial(1))
    for options in ({}, {"new": True}):
        ends = field.interval(level=0.9, **options)
        np.testing.assert_allclose(field.exceedance(ends.lower, **options), 0.95)
        np.testing.assert_allclose(field.exceedance(ends.upper, **options), 0.05)
        np.testing.assert_allclose(field.exceedance(field.predict(), **options), 0.5)
    chance = field.exceedance(2.0)
    assert chance.name == "u_exceedance" and chance.attrs["units"] == "1"
    assert chance.attrs["long_name"] == "probability that u is above 2"
    several = field.exceedance(xr.DataArray([1.0, 2.0], dims="level"))
    assert several.dims == ("level", "x") and several[1].values.tolist() == chance.values.tolist()
    slope = field.exceedance(0.0, orders={"x": 1})
    assert slope.name == "du_dx_exceedance" and 0.5 < float(slope) < 1


def test_a_fine_field_has_chances_of_few_degrees() -> None:
    field = wave(12).spline.fit()
    np.testing.assert_allclose(field.exceedance(field.interval(level=0.99).upper), 0.005, rtol=1e-6)


def test_significance_is_by_the_procedures_of_their_authors() -> None:
    rng = np.random.default_rng(0)
    x, strength = np.arange(20.0), np.linspace(0, 1, 40)
    values = 0.5 * strength * x[:, None] + 3 * rng.standard_normal((20, 40))
    field = xr.DataArray(values, {"x": x, "place": range(40)}, ("x", "place"), "u").spline.fit(
        x=xs.Polynomial(1)
    )
    slope, error = field.derivative(x=1, stderr=True).data_vars.values()
    chance = 2 * stats.t.sf(abs(slope / error), 18)
    found = {}
    for procedure in ("bh", "by"):
        expected = stats.false_discovery_control(chance, method=procedure) <= 0.1
        found[procedure] = field.significance(orders={"x": 1}, rate=0.1, procedure=procedure.upper())
        np.testing.assert_array_equal(found[procedure], expected)
    assert 0 < found["by"].sum() < found["bh"].sum() < (chance < 0.1).sum() < 40
    assert found["bh"].name == "du_dx_significant" and found["bh"].dtype == bool
    assert found["bh"].attrs["false_discovery_rate"] == 0.1 and found["bh"].attrs["procedure"] == "BH"
    assert "units" not in found["bh"].attrs
    above = field.significance(orders={"x": 1}, value=xr.full_like(slope, float(slope.mean())))
    assert 0 < above.sum() < 40, "what slopes are compared with may be given"


@pytest.mark.simulation
@pytest.mark.parametrize("name", ["a fit for each pixel", "a fit for each pixel, errors alike in space"])
def test_false_discoveries_are_as_few_as_asked(name: str) -> None:
    rates = np.array([intervals.discoveries(name, seed) for seed in range(60)])[:, 1:, 0]
    for own in rates.T:
        assert own.mean() <= intervals.RATE + scatter.FIVE * scatter.of_mean(own)


def test_bad_input_says_what_to_do(field: xs.Field) -> None:
    single, bare = wave().spline.fit(x=12, penalty=1e-3), wave(30).spline.fit()
    cases: list[tuple[Any, str]] = [
        (lambda: single.interval(level=95), r"level=95 is no probability.*for 95 % pass level=0.95"),
        (lambda: single.interval(level=0.0), "level=0.0 is no probability between 0 and 1"),
        (lambda: single.interval(level="95"), "level='95' has to be a number"),
        (lambda: single.interval(names=("a", "a")), "two texts that differ"),
        (lambda: single.interval(names="lower"), "two texts that differ"),
        (lambda: single.interval(weight=2.0), r"weight=2.0.*takes new=True"),
        (lambda: single.interval(new=True, weight=-1), r"weight=-1.*a number above 0"),
        (lambda: single.interval(orders={"x": 1}, new=True), r"not of a derivative, {'x': 1}"),
        (lambda: single.interval(orders={"y": 1}), r"no fitted coordinate 'y'"),
        (lambda: single.interval(simultaneous=True, new=True), r"of new observations.*level=1 - 0.05 / n"),
        (lambda: bare.interval(simultaneous=True), r"fine=False to the fit, or level=1 - 0.05 / n"),
        (lambda: bare.interval(method="jackknife"), "method='jackknife': the errors of a field with"),
        (lambda: single.exceedance("28"), "'28' is neither a number nor a DataArray"),
        (lambda: single.exceedance(xr.zeros_like(wave(9))), "has other labels than u; reindex"),
        (
            lambda: (
                wave().assign_attrs(units="K").spline.fit(x=12).exceedance(wave().assign_attrs(units="degC"))
            ),
            "u is in 'K', and what it is compared with in 'degC': convert that",
        ),
        (lambda: single.significance(), r"significance\(\) of what.*pass orders={'x': 1}"),
        (lambda: single.significance(x=1.0), r"significance\(\) of what"),
        (lambda: single.significance(value=0, rate=5), r"rate=5 is no probability.*pass rate=0.05"),
        (lambda: single.significance(value=0, procedure="bonferroni"), "use 'BH', or 'BY'"),
    ]
    for call, text in cases:
        with pytest.raises((TypeError, ValueError), match=text):
            call()
    with pytest.raises(ValueError, match=r"not of a term, {'time': 'Polynomial'}"):
        field.select(time=xs.Polynomial).interval(new=True)
    with pytest.raises(AttributeError, match="have no interval; ask the field"):
        field.sample(2, seed=0).interval()
    with pytest.raises(ValueError, match=r"still lazy \(compute=False\)"):
        wave().chunk(x=20).spline.fit(x=12, compute=False).interval()
