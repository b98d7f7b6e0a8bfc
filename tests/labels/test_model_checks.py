"""What `check()` says of errors that are not as assumed, and fits that gross errors do not spoil."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import dask.array as da
import numpy as np
import pytest
import xarray as xr

import xspline as xs

X = np.linspace(0, 10, 150)


def series(errors: np.ndarray) -> xr.DataArray:
    x = np.linspace(0, 10, errors.size)
    return xr.DataArray(np.sin(x) + errors, {"x": ("x", x, {"units": "m"})}, "x", "u")


def noise(seed: int = 0, sigma: float = 0.1, size: int = X.size) -> np.ndarray:
    return sigma * np.random.default_rng(seed).standard_normal(size)


def subjects(field: xs.Field, *data: Any) -> set[str]:
    (concerns,) = field.check(*data).concerns.values()
    return {finding.subject for finding in concerns}


def rmse(field: xs.Field) -> float:
    return float(np.sqrt(((field.predict(x=X) - np.sin(X)) ** 2).mean()))


def spoilt(data: xr.DataArray, count: int, seed: int = 1) -> xr.DataArray:
    """Some values moved by ten standard deviations of the data, all upwards."""
    moved = data.copy(deep=True)
    wrong = np.random.default_rng(seed).permutation(data.size)[:count]
    moved.values.ravel()[wrong] += 10 * float(data.std())
    return moved


KINDS: list[Mapping[str, Any]] = [{"x": 20}, {}]


@pytest.mark.parametrize("bases", KINDS, ids=["single", "bare"])
@pytest.mark.parametrize("seed", range(4))
def test_clean_data_raise_no_alarm(bases: Mapping[str, Any], seed: int) -> None:
    assert subjects(series(noise(seed)).spline.fit(**bases)) == set()


@pytest.mark.parametrize("bases", KINDS, ids=["single", "bare"])
@pytest.mark.parametrize(
    "count", [pytest.param(1, marks=pytest.mark.slow), 3, pytest.param(15, marks=pytest.mark.slow)]
)
def test_gross_errors_are_told_and_cost_a_robust_fit_nothing(bases: Mapping[str, Any], count: int) -> None:
    data = series(noise())
    clean, wrong = data.spline.fit(**bases), spoilt(data, count)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", xs.FitWarning)
        plain = wrong.spline.fit(**bases)
    assert subjects(plain) & {"outliers", "tails"}
    robust = wrong.spline.fit(robust=True, **bases)
    assert rmse(robust) < 1.1 * rmse(clean) < rmse(plain)
    assert int(robust.summary()["count"]) == data.size - count
    passes = int(robust.summary().attrs["robust"].split()[0])
    assert passes >= 2 and robust.summary().attrs["robust"] == f"{passes} passes over the data"
    assert f"kept out in {passes} passes" in repr(robust.check()) and "robust" not in plain.summary().attrs
    np.testing.assert_allclose(robust.summary().sigma, clean.summary().sigma, rtol=0.1)


def test_the_warning_of_a_gross_error_has_its_labels() -> None:
    wrong = series(noise(size=300))
    wrong[100] += 20
    with pytest.warns(xs.FitWarning, match=r"1 of 300 values .* x=3\.34.*robust=True"):
        wrong.spline.fit(x=20)


@pytest.mark.slow
def test_robust_fits_of_points_batches_datasets_and_dask_agree_with_clean_ones() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.uniform(0, 6, (2, 400))
    values = np.stack([np.sin(x) * np.cos(y), np.cos(x + y)]) + 0.05 * rng.standard_normal((2, 400))
    coords = {"x": ("obs", x), "y": ("obs", y), "k": [0, 1]}
    clean = xr.DataArray(values, coords, ("k", "obs"), "u")
    wrong = spoilt(clean, 10)
    sizes = {"x": 9, "y": 9}
    expected = clean.spline.fit(sizes).predict(x=2.0, y=3.0)
    for data in (wrong, wrong.chunk(obs=125)):
        values = data.spline.fit(sizes, robust=True).predict(x=2.0, y=3.0)
        np.testing.assert_allclose(values, expected, atol=0.02)
    both = xr.Dataset({"u": wrong.isel(k=0, drop=True), "v": clean.isel(k=1, drop=True)})
    field = both.spline.fit(sizes, robust=True)
    np.testing.assert_allclose(field.predict(x=2.0, y=3.0).u, expected[0], atol=0.02)
    # What is wrong in one variable, or one member, is no matter of another.
    for name, own in both.items():
        alone = own.spline.fit(sizes, robust=True)
        np.testing.assert_array_equal(field.coefficients[name], alone.coefficients)
    mixed = xr.concat([both.u, both.v.rename("u"), both.u.where(False)], "k")
    members = mixed.spline.fit(sizes, robust=True, penalty=1e-3)
    assert members.fits["u"].robust["settled"]
    for k, name in enumerate(both):
        alone = both[name].spline.fit(sizes, robust=True, penalty=1e-3).coefficients
        np.testing.assert_allclose(members.coefficients.isel(k=k), alone, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("bases", KINDS, ids=["single", "bare"])
@pytest.mark.parametrize("unit", [1.0, 1e-6])
def test_robust_fits_of_weighted_data_keep_weights(bases: Mapping[str, Any], unit: float) -> None:
    """In whatever unit: weights are relative precisions."""
    weights = xr.DataArray(unit * np.where(X < 5, 1.0, 4.0), {"x": X}, "x")
    data = series(noise() / np.sqrt(weights.values / unit))
    field = spoilt(data, 5).spline.fit(weights=weights, robust=True, **bases)
    clean = data.spline.fit(weights=weights, **bases)
    assert int(field.summary()["count"]) == X.size - 5
    np.testing.assert_allclose(field.predict(), clean.predict(), atol=0.04)


def test_a_robust_fit_is_computed() -> None:
    with pytest.raises(ValueError, match=r"robust fit weighs residuals.*leave out compute=False"):
        series(noise()).spline.fit(x=20, robust=True, compute=False)


@pytest.mark.slow
def test_structure_that_is_left_is_told() -> None:
    x = y = np.linspace(0, 20, 120)
    rng = np.random.default_rng(0)
    wave = np.sin(1.2 * x)[:, None] * np.sin(1.1 * y) + 0.01 * rng.standard_normal((120, 120))
    data = xr.DataArray(wave, {"x": x, "y": y}, ("x", "y"), "u")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", xs.FitWarning)
        field = data.spline.fit(x=12, y=12)
    findings = {finding.subject: finding for finding in field.check().concerns["u"]}
    assert "along x" in findings["structure"].text and "y" in findings["structure"].text
    assert "structure" not in subjects(data.spline.fit(x=40, y=40))


@pytest.mark.parametrize("shared", [0.0, 1.0])
def test_what_stations_share_at_one_time_is_told_of_a_table(shared: float) -> None:
    """The nearest point of all is the next month of the same station."""
    rng = np.random.default_rng(0)
    month = np.datetime64("2015-01", "M") + np.arange(36)
    values = rng.standard_normal((20, 36)) + shared * rng.standard_normal(36)
    place = {name: ("station", rng.uniform(0, 1, 20)) for name in ("x", "y")}
    stations = xr.DataArray(values, {**place, "time": month.astype("M8[ns]")}, ("station", "time"), "t")
    table = stations.stack(obs=("station", "time")).reset_index("obs")
    bases = {"x": xs.Polynomial(1), "y": xs.Polynomial(1), "time": xs.Polynomial(1)}
    said = [f for f in table.spline.fit(bases, penalty=0.0).check().concerns["t"] if f.subject == "structure"]
    assert len(said) == (shared > 0)
    if said:
        assert "along points at the same time (0.5" in said[0].text and "errors='auto'" in said[0].advice
        assert "structure" not in subjects(table.spline.fit(bases, penalty=0.0, errors="auto"))


def test_noise_that_differs_is_told() -> None:
    errors = noise(size=300) * np.repeat([1.0, 4.0], 150)
    assert "uneven" in subjects(series(errors).spline.fit(x=20))


@pytest.mark.parametrize(
    "bases", [{"time": xs.Polynomial(1)}, pytest.param({}, marks=pytest.mark.slow)], ids=["single", "bare"]
)
@pytest.mark.parametrize("unit, half, parts", [("M", 6, "seasons of time ("), ("h", 12, "hours of time (")])
def test_noise_that_differs_by_season_or_hour_is_told(
    bases: Mapping[str, Any], unit: str, half: int, parts: str
) -> None:
    time = np.datetime64("1990-01", unit) + np.arange(360)
    for winter in (1.0, 4.0):
        errors = noise(size=360) * np.tile(np.repeat([winter, 1.0], half), 180 // half)
        (found,) = (
            xr.DataArray(errors, {"time": time}, "time", "u").spline.fit(**bases).check().concerns.values()
        )
        told = [finding.text for finding in found if finding.subject == "uneven"]
        assert [text.split("along the ")[1][: len(parts)] for text in told] == [parts] * (winter > 1)


@pytest.mark.slow
def test_cycles_that_go_on_are_told_with_the_fit_that_has_them() -> None:
    """Weather that oscillates for some periods is none."""
    hours, rng = np.arange(0, 24 * 50, 3), np.random.default_rng(0)
    time = np.datetime64("2020-01-01", "ns") + hours * np.timedelta64(1, "h")
    level = np.cos(2 * np.pi * hours / 12.42) + 0.4 * np.sin(2 * np.pi * hours / 25.82)
    weather = np.zeros(hours.size)
    for i in range(2, hours.size):
        weather[i] = 1.9 * weather[i - 1] - 0.98 * weather[i - 2] + 0.1 * rng.standard_normal()
    hidden = hours // 48 % 8 == 3
    for values, is_told in ((level, True), (weather, False)):
        noisy = values + 0.05 * rng.standard_normal(hours.size)
        data = xr.DataArray(noisy, {"time": time}, "time", "ssh", {"units": "m"})
        field = data[~hidden].spline.fit()
        told = [f.advice for f in field.check().findings["ssh"] if f.subject == "cycles"]
        assert bool(told) == is_told
        if told:
            assert float(np.abs(field.predict(data[hidden]) - values[hidden]).max()) > 1
            named = eval(f"data.spline.{told[0].split('name them: ')[1]}", {"xs": xs, "data": data[~hidden]})
            assert float(np.abs(named.predict(data[hidden]) - values[hidden]).max()) < 0.1


def test_data_out_of_memory_are_looked_at_when_they_are_passed() -> None:
    data = spoilt(series(noise(size=300)), 3)
    lazy = data.copy(data=da.from_array(data.values, chunks=100))
    field = lazy.spline.fit(x=20)
    (findings,) = field.check().findings.values()
    assert any("not looked at" in finding.text for finding in findings)
    assert "outliers" in subjects(field, lazy) and "outliers" in subjects(field, data)


def alone(fit: Callable[[], xs.Field]) -> tuple[xs.Field, list[str]]:
    """Return a field, and what it warned of."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        field = fit()
    return field, [str(own.message) for own in told]


@pytest.mark.parametrize(
    "bases", [{"x": xs.Polynomial(1)}, pytest.param({}, marks=pytest.mark.slow)], ids=["single", "bare"]
)
def test_a_robust_fit_leaves_out_none_of_values_that_are_mostly_equal(bases: Mapping[str, Any]) -> None:
    """Of rain with seven dry days of ten it left out all but the dry ones, and told nothing."""
    rng = np.random.default_rng(0)
    rain = series(np.zeros(600)).copy(data=np.where(rng.random(600) < 0.3, rng.gamma(0.7, 8, 600), 0.0))
    field, told = alone(lambda: rain.spline.fit(robust=True, **bases))
    assert int(field.summary()["count"]) == 600 and float(field.mean()) > 0.95 * float(rain.mean())
    assert any("most values are equal" in text and "amounts apart" in text for text in told)
    assert "robust=True)" not in repr(field.check())
    plain, told = alone(lambda: rain.spline.fit(**bases))
    advice = [f.advice for f in plain.check().concerns["u"] if f.subject in ("tails", "outliers")]
    assert not told and not any("fit(robust=True)" in text for text in advice)


@pytest.mark.slow
@pytest.mark.parametrize("batch", [{}, {"k": [0, 1]}], ids=["one", "batch"])
def test_a_robust_fit_says_that_values_are_skewed_or_many_are_left_out(batch: Mapping[str, Any]) -> None:
    rng = np.random.default_rng(0)
    coords, dims, shape = {**batch, "x": np.arange(1000.0)}, [*batch, "x"], [*[2] * len(batch), 1000]
    skewed = xr.DataArray(np.exp(rng.standard_normal(shape)), coords, dims, "u")
    _, told = alone(lambda: skewed.spline.fit(x=xs.Polynomial(1), robust=True))
    assert any("skewed" in text and "logarithms" in text for text in told)
    many = skewed.copy(data=rng.standard_normal(shape))
    many[..., :150] += 60
    for data in (many, many.chunk(x=500)):
        _, told = alone(lambda data=data: data.spline.fit(x=xs.Polynomial(0), robust=True))
        assert sum("left out 15% of the values" in text for text in told) == 1


@pytest.mark.slow
@pytest.mark.parametrize("bases", [{"x": 30}, {}], ids=["single", "bare"])
def test_residuals_that_nobody_sees_are_no_outliers(bases: Mapping[str, Any]) -> None:
    """Model output has no noise, and a fit leaves a millionth of it, more in some places than in others."""
    x = np.arange(200.0)
    data = xr.DataArray(np.exp(-x / 50), {"x": x}, "x", "u")
    plain, told = alone(lambda: data.spline.fit(**bases))
    assert not told and not subjects(plain) & {"outliers", "tails"}
    robust, told = alone(lambda: data.spline.fit(robust=True, **bases))
    assert not told and int(robust.summary()["count"]) == 200
    assert float(abs(robust.predict() - data).max()) < 1e-3


@pytest.mark.parametrize("share", [0.02, 0.05])
@pytest.mark.parametrize(
    "bases", [{"x": 12}, pytest.param({}, marks=pytest.mark.slow)], ids=["single", "bare"]
)
def test_gross_errors_that_hide_among_each_other_warn(bases: Mapping[str, Any], share: float) -> None:
    data = series(noise(size=800, sigma=0.2))
    data[np.random.default_rng(3).permutation(800)[: int(800 * share)]] -= 15
    with pytest.warns(xs.FitWarning, match=r"standard deviations.*drop what is wrong, or fit\(robust=True\)"):
        data.spline.fit(**bases)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["laplace", "student", "lognormal", "rough"])
def test_tails_without_gross_errors_do_not_warn(kind: str) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        drawn = {
            "laplace": lambda rng=rng: rng.laplace(size=800),
            "student": lambda rng=rng: rng.standard_t(5, 800),
            "lognormal": lambda rng=rng: np.exp(rng.standard_normal(800)),
            "rough": lambda rng=rng: np.cumsum(rng.standard_normal(800)),
        }
        data = series(drawn[kind]())
        field, told = alone(lambda data=data: data.spline.fit(x=12))
        assert not [text for text in told if "standard deviations" in text]
        if kind in ("laplace", "student"):
            assert not subjects(field) & {"tails", "outliers"}, "a robust fit is hardly nearer"


@pytest.mark.slow
def test_errors_that_grow_with_the_value_ask_for_logarithms() -> None:
    """As those of concentrations do; a robust fit would take the largest values for errors."""
    x, rng = np.linspace(0, 6, 30), np.random.default_rng(0)
    logarithm = 2 * np.sin(x)[:, None] * np.cos(x) + 0.5 * rng.standard_normal((30, 30))
    data = xr.DataArray(logarithm, {"x": x, "y": x}, ("x", "y"), "chl")
    field, _ = alone(lambda: np.exp(data).spline.fit())
    assert "errors grow with the value" in str(field.check()) and "fit logarithms" in str(field.check())
    assert "fit logarithms" not in str(data.spline.fit().check())
