"""What once was wrong, surprising or unclear, as far as no other file has a test of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import xspline as xs


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def series(count: int, sigma: float = 0.1, waves: float = 3.0) -> xr.DataArray:
    x = np.linspace(0, 1, count)
    values = np.sin(2 * np.pi * waves * x) + sigma * noise(count)
    return xr.DataArray(values, {"x": ("x", x, {"units": "m"})}, "x", "u")


def pacific(seed: int = 0) -> tuple[xr.DataArray, xr.DataArray]:
    """Season, El Niño and noise, with a block of gaps; and the truth."""
    time = pd.date_range("2000-01-01", periods=96, freq="MS")
    k, lat, lon = np.arange(96), np.linspace(-20, 20, 12), np.linspace(160, 220, 16)
    season = np.cos(2 * np.pi * k / 12)[:, None, None] * lat[:, None] / 10
    decay = np.exp(-((lat / 12) ** 2))[:, None] * np.cos(np.radians(lon - 190) * 3)
    values = 25 + season + 2 * np.sin(2 * np.pi * k / 45)[:, None, None] * decay + 0 * lon
    truth = xr.DataArray(values, {"time": time, "lat": lat, "lon": lon}, ("time", "lat", "lon"), "sst")
    data = truth + 0.3 * noise(*truth.shape, seed=seed)
    data[30:36, 2:7, 3:9] = np.nan
    return data, truth


def covered(field: xs.Field, truth: xr.DataArray, at: Any = None) -> float:
    return float((abs(field.predict(at) - truth) < 1.96 * field.stderr(at)).mean())


def difference(a: xs.Field, b: xs.Field, at: Any, scale: float = 1.0, shift: float = 0.0) -> float:
    """The largest difference of two fields and of their errors, in standard errors."""
    error = a.stderr(at)
    values = abs((b.predict(at) - shift) / scale - a.predict(at)) / error
    return max(float(values.max()), float((abs(b.stderr(at) / scale - error) / error).max()))


# ---- error bars


def test_error_bars_of_a_rough_field_hold() -> None:
    x = np.linspace(0, 1, 17)
    points = np.stack(np.meshgrid(x, x, indexing="ij"), -1).reshape(-1, 2)
    distance = np.linalg.norm(points[:, None] - points, axis=-1)
    values = np.linalg.cholesky(np.exp(-distance / 0.2) + 1e-9 * np.eye(289)) @ noise(289)
    truth = xr.DataArray(values.reshape(17, 17), {"y": x, "x": x}, ("y", "x"), "v")
    assert covered((truth + 0.1 * noise(17, 17, seed=1)).spline.fit(), truth) > 0.9


@pytest.mark.slow
def test_few_observations_are_not_certain() -> None:
    x = np.linspace(0, 1, 5)
    hits = []
    for seed in range(7):
        truth = xr.DataArray(np.sin(4 * x), {"x": x}, "x", "u")
        field = (truth + 0.2 * noise(5, seed=seed)).spline.fit()
        assert float(field.stderr().min()) > 1e-3
        hits.append(covered(field, truth))
    assert np.mean(hits) > 0.7  # it was .19


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.2, 0.3, 0.5, 0.7, 1.0])
def test_the_advice_on_repeated_records_mends_coverage(share: float) -> None:
    rng = np.random.default_rng(0)
    lat, lon = rng.uniform(-20, 20, 200), rng.uniform(150, 200, 200)
    coords = {"lat": ("obs", lat, {"units": "degrees_north"}), "lon": ("obs", lon, {"units": "degrees_east"})}
    truth = xr.DataArray(np.sin(lat / 8) * np.cos(lon / 9), coords, "obs", "u")
    data = truth + 0.1 * rng.standard_normal(200)
    twice = xr.concat([data, data[: int(share * 200)]], "obs")
    for bases in ({}, {"lat": 9, "lon": 9}):
        with pytest.warns(xs.FitWarning, match="have the coordinates and the value of another one"):
            field = twice.spline.fit(bases or None)
        (advice,) = (f.advice for f in field.check().concerns["u"] if f.subject == "repeated")
        assert "data.to_dataframe().drop_duplicates()" in advice
        once = twice.to_dataframe().drop_duplicates().to_xarray().set_coords(["lat", "lon"]).u
        at = {"lat": truth.lat, "lon": truth.lon}
        assert covered(once.spline.fit(bases or None), truth, at) >= 0.93


def test_the_error_of_a_regional_mean_by_years() -> None:
    """Neighbours share their weather, which draws do not know; the fits without each year do."""
    page = (Path(__file__).parents[2] / "docs/guide/errors.md").read_text()
    block = page.split("**The mean of a region**")[1].split("```{code-cell} ipython3")[1].split("```")[0]
    red = page.split("def red(")[1].split("held = {")[0]
    scope: dict[str, Any] = {"np": np, "xr": xr, "xs": xs}
    exec(f"def red({red}\n{block}", scope)
    assert scope["jackknife"] > 3 * float(scope["drawn"])
    true = np.std([scope["red"](240, 0.7, 0.4, np.random.default_rng(s)).mean() for s in range(200)])
    assert 0.6 < scope["jackknife"] / true < 1.7
    assert "the mean over a region" in str(xs.Field.sample.__doc__)


@pytest.mark.slow
def test_a_longer_record_is_not_fitted_worse() -> None:
    def withheld(years: int) -> float:
        days = pd.date_range("2000-01-01", periods=182 * years, freq="2D")
        values = 10 * np.cos(4 * np.pi * np.arange(days.size) / 365.2425)
        weather = noise(days.size)
        for i in range(1, days.size):
            weather[i] = 0.7 * weather[i - 1] + 0.7 * weather[i]
        data = xr.DataArray(values + 3 * weather, {"time": days}, "time", "t")
        left_out = np.random.default_rng(1).random(days.size) < 0.2
        field = data.where(~left_out).spline.fit()
        return float(np.sqrt(((field.predict() - data).where(left_out) ** 2).mean()))

    assert withheld(4) < 1.2 * withheld(1)


def test_a_read_error_of_a_bare_fit_is_an_error(tmp_path: Path) -> None:
    data, _ = pacific()
    path = tmp_path / "sst.zarr"
    data.to_dataset().to_zarr(path, consolidated=False, encoding={"sst": {"chunks": (24, 12, 16)}})
    (path / "sst/c/2/0/0").write_bytes(b"no chunk")
    for chunks in (None, {}):
        with pytest.raises(Exception, match=r".") as caught:
            xr.open_zarr(path, chunks=chunks, consolidated=False).sst.spline.fit()
        assert any("this piece cannot be read" in note for note in caught.value.__notes__)


def test_a_flipped_byte_that_decodes_is_named(tmp_path: Path) -> None:
    data, _ = pacific()
    path = tmp_path / "sst.zarr"
    encoding = {"sst": {"chunks": (24, 12, 16), "compressors": None}}
    data.to_dataset().to_zarr(path, consolidated=False, encoding=encoding)
    chunk = path / "sst/c/2/0/0"
    content = bytearray(chunk.read_bytes())
    # The exponent of the value at the first date and latitude, and the sixth longitude.
    content[8 * 5 + 7] ^= 0x20
    chunk.write_bytes(content)
    for chunks in (None, {}):
        with pytest.raises(
            ValueError, match=r"the largest is .* at time=2004-01.*lat=-20\.0, lon=180\.0; mend"
        ):
            xr.open_zarr(path, chunks=chunks, consolidated=False).sst.spline.fit(lat=6, lon=6, time=9)


# ---- what does not matter


@pytest.mark.slow
def test_rows_of_nan_are_no_observations() -> None:
    data, at = series(200).where(noise(200, seed=2) < 0.8), {"x": np.linspace(0.01, 0.99, 77)}
    kept = data.dropna("x")
    data.values.view(np.uint64)[data.isnull().values] = 0x7FF00000000007A2  # NA of R, a signalling NaN
    assert difference(data.spline.fit(), kept.spline.fit(), at) < 1e-5
    basis = xs.BSpline(20, domain=(0, 1))
    assert difference(data.spline.fit(x=basis), kept.spline.fit(x=basis), at) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("start", [0.0, -180.0])
@pytest.mark.parametrize("bases", [{}, {"lat": 6, "lon": 8}], ids=["bare", "single"])
def test_a_meridian_at_both_ends_counts_once(bases: dict[str, int], start: float) -> None:
    lat, lon = np.linspace(-60, 60, 9), np.linspace(start, start + 360, 25)
    values = np.cos(np.radians(lat))[:, None] * np.cos(2 * np.radians(lon)) + 0.2 * noise(9, 25)
    values[:, -1] = values[:, 0]
    data = xr.DataArray(values, {"lat": lat, "lon": lon}, ("lat", "lon"), "u")
    once = data[:, :-1].spline.fit(**bases)
    for own in (data, data[:, ::-1].chunk(lon=7)):
        with pytest.warns(
            xs.FitWarning, match=r"one meridian, which counts once.*isel\(lon=slice\(0, -1\)\)"
        ):
            twice = own.spline.fit(**bases)
        assert twice.statistics.count == data.size - 9
        assert difference(once, twice, {"lat": [-30.0, 20.0], "lon": lon[:-1] + 3}) < 1e-4
        assert twice.predict().sizes == own.sizes


# ---- messages


def test_numbers_may_be_arrays_without_dimensions() -> None:
    data = series(40)
    low, high, one = data.x.min(), data.x.max(), xr.DataArray(0.5)
    assert xs.BSpline(xr.DataArray(8), domain=(low, high)) == xs.BSpline(8, domain=(0.0, 1.0))
    assert xs.Sobolev({1: one, 2: one}) == xs.Sobolev({1: 0.5, 2: 0.5})
    assert xs.Roughness({"x": one}) == xs.Roughness({"x": 0.5}) and xs.Ridge(one) == xs.Ridge(0.5)
    space = xs.Space({"x": xr.DataArray(8)}, extents={"x": (low, high)})
    assert space == xs.Space({"x": 8}, extents={"x": (0.0, 1.0)})
    assert data.spline.fit(x=xr.DataArray(8), penalty=one).penalty == xs.Ridge(0.5)
    with pytest.raises(TypeError, match="orders are a list of them"):
        xs.Sobolev(one)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::xspline.FitWarning")
def test_advice_on_knots_runs_and_keeps_all_terms() -> None:
    days = pd.date_range("1990-01-01", periods=400)
    season = xs.Polynomial(1) + xs.Fourier(1, period="year")
    long = series(400).rename(x="time").assign_coords(time=days)
    few = xr.concat([series(10, 0.1)] * 20, "r") + 0.1 * noise(20, 10, seed=3)
    for data, bases, line in (
        (long, {"time": season + xs.BSpline(8)}, "xs.Fourier(1, period='year') + xs.BSpline(16)"),
        (few, {"x": 8, "r": None}, "xs.BSpline(16)"),
    ):
        (finding,) = (f for f in data.spline.fit(bases).check().concerns["u"] if f.subject == "knots")
        code = finding.advice.removeprefix("take more and compare, for example ").partition(";")[0]
        assert line in code
        pooled = ", r=None)" if "r" in bases else ")"
        assert eval(f"data.spline.{code[:-1]}{pooled}", {"xs": xs, "data": data}).space.names


@pytest.mark.filterwarnings("ignore:.*residuals of neighbours")
def test_a_nearly_singular_member_is_named_and_masked() -> None:
    time = pd.date_range("1990-01-01", periods=120, freq="MS")
    values = noise(120, 137).cumsum(axis=0) / 10
    values[7:, 19] = np.nan
    data = xr.DataArray(values, {"time": time, "station": np.arange(137)}, ("time", "station"), "T")
    bases = {"time": xs.Polynomial(1) + xs.Fourier(2, period="year")}
    with pytest.warns(xs.FitWarning, match=r"nearly singular in 1 of 137 fits, which are NaN \(station=19\)"):
        field = data.spline.fit(bases, penalty=0)
    assert "station=19" in repr(field.check())
    lazy = data.spline.fit(bases, penalty=0, compute=False).predict(time="1991-05-01")
    slope = field.select(time=xs.Polynomial).derivative(time=1, stderr=True)
    for result in (
        lazy,
        slope.dT_dtime,
        slope.dT_dtime_stderr,
        field.sample(2, seed=0).predict(time="1991-05-01"),
    ):
        wrong = result.isnull().transpose("station", ...).values.reshape(137, -1).any(axis=1)
        assert np.flatnonzero(wrong).tolist() == [19]


def test_bad_values_end_lazy_fits_in_the_error_of_others() -> None:
    """They were left out in silence where nobody computed the statistics themselves."""
    data, weights = series(200).chunk(x=50), xr.ones_like(series(200))
    weights[60] = -1.0
    infinite = data.where(data.x > 0.01, np.inf)
    for lazy, match in (
        (infinite.spline.fit(x=8, compute=False).predict(x=[0.5]), r"u is infinite at x=0\.0; mark"),
        (infinite.spline.fit(x=8, compute=False).coefficients, r"u is infinite at x=0\.0; mark"),
        (data.spline.fit(x=8, weights=weights, compute=False).predict(x=[0.5]), r"weight of u at x=0\.30"),
    ):
        with pytest.raises(ValueError, match=match):
            lazy.compute()
    for ask in (lambda s: s.count, lambda s: s.outside, lambda s: s.nbytes, lambda s: s.require_inside()):
        with pytest.raises(ValueError, match=r"still lazy \(compute=False\); call .compute\(\) first"):
            ask(data.spline.statistics(x=8, compute=False))


def test_variables_of_a_dataset_may_have_batches_of_their_own() -> None:
    x, values = np.linspace(0, 10, 30), noise(30, 3)
    one = xr.DataArray(values, {"x": x, "e": [0, 1, 2]}, ("x", "e"))
    holder = xr.DataArray(np.repeat(["p", "q", "r"], 10), dims="x")
    field = xr.Dataset({"a": one, "c": 2 * one, "k": one[:, 0].drop_vars("e")}).spline.fit(
        x=6, penalty=0.1, holder=holder
    )
    for table in (field.summary(), field.cross_validate()):
        assert table.rmse.sizes["e"] == 3 and table.indexes["variable"].tolist() == ["a", "c", "k"]
    alone = one[:, 0].spline.fit(x=6, penalty=0.1, holder=holder).summary()
    np.testing.assert_allclose(field.summary().rmse.sel(variable="k"), alone.rmse)
    for dim, ask in (("variable", xs.Field.summary), ("holder", xs.Field.cross_validate)):
        renamed = xr.Dataset({"a": one.rename(e=dim)}).spline.fit(x=6, penalty=0.1, holder=holder)
        with pytest.raises(ValueError, match=f"a dimension '{dim}', and this table has something else"):
            ask(renamed)


def test_no_variable_takes_the_place_of_an_error_bar() -> None:
    both = xr.Dataset({"u": series(40), "u_stderr": 0.1 + 0 * series(40)}).spline.fit(x=8, penalty=0.1)
    with pytest.raises(
        ValueError, match=r"two results are called 'u_stderr': .* field\[name\], or rename it"
    ):
        both.predict(x=[0.5], stderr=True)
    assert both["u"].predict(x=[0.5], stderr=True).u_stderr == both["u"].stderr(x=[0.5])


def test_half_a_band_is_an_error_bar() -> None:
    field = series(100).spline.fit(x=12, penalty=0.01)
    ends = field.interval(level=0.9, simultaneous=True)
    half = field.stderr(simultaneous=0.9)
    np.testing.assert_allclose(half, (ends.upper - ends.lower) / 2)
    assert (half > 2 * field.stderr()).all()
    xr.testing.assert_identical(
        half,
        series(100)
        .to_dataset()
        .spline.fit(x=12, penalty=0.01)
        .stderr(simultaneous=0.9)
        .u_stderr.assign_attrs(half.attrs),
    )


def test_of_constant_data_no_share_is_told() -> None:
    for n in (10, 200):
        data = xr.DataArray(np.full(n, 273.15), {"x": np.arange(float(n))}, "x", "u")
        assert np.isnan(data.spline.fit(x=6, penalty=0.1).summary().r2)


def test_a_field_from_a_file_says_that_data_had_weights(tmp_path: Path) -> None:
    field = series(50).spline.fit(x=8, penalty=0.1, weights=1 + series(50) ** 2)
    field.to_netcdf(tmp_path / "field.nc")
    assert "weights=..." in field.code() == xs.open_field(tmp_path / "field.nc").code()


@pytest.mark.slow
def test_degrees_of_freedom_and_residuals_of_a_bare_fit_are_those_of_the_field() -> None:
    """They were those of windows of some hundred values: 192 degrees of freedom for 37, residuals 6 % too small."""
    x = np.arange(40.0)
    values = np.sin(x / 8)[:, None] * np.cos(x / 9) + 0.3 * noise(40, 40)
    data = xr.DataArray(values, {"y": x, "x": x}, ("y", "x"), "u")
    field = data.spline.fit()
    found = field.summary()
    assert float(found.edf) == pytest.approx(float(((field.stderr() / found.sigma) ** 2).sum()), rel=0.1)
    assert float(found.rmse) == pytest.approx(float(((field.predict() - data) ** 2).mean() ** 0.5), rel=2e-3)


def test_names_of_results_are_no_names_of_members() -> None:
    """Numbers of a summary went to labels of a dimension of their name, or became NaN; coordinates hid error bars."""
    x, values = np.linspace(0, 10, 60), np.sin(np.linspace(0, 10, 60))[:, None] + 0.1 * noise(60, 3)
    data = xr.DataArray(values, {"x": x, "e": [7, 8, 9]}, ("x", "e"), "u")
    for dim in ("order", "penalised", "sigma"):
        field = data.rename(e=dim).spline.fit(x=12)
        assert field.check().concerns
        with pytest.raises(ValueError, match=f"a dimension '{dim}', and this table has something else"):
            field.summary()
    beside = data.assign_coords(count=("e", [5, 6, 7]), u_stderr=("e", [0.1, 0.2, 0.3]), u=("e", [1, 2, 3]))
    field = beside.spline.fit(x=12)
    assert (field.summary()["count"] == 60).all()
    for found in (field.predict(x=[1.0], stderr=True), field.mean("x", stderr=True)):
        assert set(found.data_vars) == {"u", "u_stderr"}
    with pytest.raises(ValueError, match=r"no variable among the levels 'u'\. Known: 'v'"):
        data.to_dataset().spline.fit(x=12).exceedance({"v": 0.5}, x=[1.0])
    with pytest.raises(ValueError, match=r"follow from the sums.* leave out compute=False"):
        data.chunk().spline.fit(x=12, offsets="holders", compute=False)


@pytest.mark.parametrize("dim", ["holder", "variable"])
def test_fitted_coordinates_may_have_names_of_results(dim: str) -> None:
    data = series(60).rename(x=dim).to_dataset()
    holder = xr.DataArray(np.tile(["p", "q"], 30), dims=dim)
    field = data.spline.statistics({dim: 8}, holder=holder).solve(0.1)
    assert field.summary().sizes == {"variable": 1}
    assert field.cross_validate().sizes == {"variable": 1, "holder": 2}
