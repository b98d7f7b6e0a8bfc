"""What `fit()` alone gives: a coarse field and a fine one of what that leaves; all else is a single field by labels."""

from __future__ import annotations

import dask.array
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import signal
from scipy.ndimage import gaussian_filter

import xspline as xs
from tests import scatter
from tests.products import sst


def waves(shape: tuple[int, int, int] = (10, 6, 4), count: int = 20) -> xr.DataArray:
    """So many waves along each coordinate, with noise and gaps."""
    rng = np.random.default_rng(0)
    grids = np.meshgrid(*(np.linspace(0, 1, n) for n in shape), indexing="ij")
    phase = 2 * np.pi * rng.normal(size=(count, 3)) * [2, 0.5, 0.25]
    values = sum(np.cos(sum(f * g for f, g in zip(p, grids, strict=True)) + i) for i, p in enumerate(phase))
    values = values + rng.normal(0, 0.5, shape)
    values[rng.random(shape) < 0.2] = np.nan
    coords = {name: np.linspace(0, 50, n) for name, n in zip("xyt", shape, strict=True)}
    return xr.DataArray(values, coords, ("x", "y", "t"), "u")


def rough(slope: float, noise: float, shape: tuple[int, int, int], gaps: float = 0.4) -> xr.DataArray:
    """Waves of up to twelve along the domain whose amplitudes fall as k to minus the slope, with a share of gaps."""
    rng = np.random.default_rng(0)
    grids = np.stack(np.meshgrid(*(np.linspace(0, 1, n) for n in shape), indexing="ij"), axis=-1)
    direction = rng.normal(size=(400, 3))
    k = rng.uniform(0.5, 12, 400)
    along = direction / np.linalg.norm(direction, axis=1, keepdims=True) * k[:, None]
    values = np.cos(2 * np.pi * (grids @ along.T) + rng.uniform(0, 2 * np.pi, 400)) @ k**-slope
    values = values / values.std() + noise * rng.normal(size=shape)
    values[rng.random(shape) < gaps] = np.nan
    coords = {name: np.linspace(0, 30, n) for name, n in zip(("time", "lat", "lon"), shape, strict=True)}
    return xr.DataArray(values, coords, ("time", "lat", "lon"), "u")


@pytest.fixture(scope="module")
def line() -> xs.Field:
    x = np.linspace(0, 10, 60)
    return xr.DataArray(np.sin(x), {"x": x}, "x", "u").spline.fit()


def test_what_is_computed_later_or_asked_for_is_a_single_field_by_labels() -> None:
    data = waves((30, 24, 8))
    space = data.spline.space(seconds=0.01)
    assert space.size < data.spline.space().size
    assert data.spline.fit(seconds=0.01, compute=False).space == space
    halves = xr.DataArray(np.arange(8) // 4, dims="t")
    with pytest.warns(xs.FitWarning, match="the knots limit the fit"):
        parts = data.spline.fit(seconds=0.01, holder=halves)
    singles = [
        parts,
        data.spline.fit(seconds=0.01, penalty=xs.Roughness(1e-3)),
        data.spline.fit(seconds=0.01, penalty=1e-3, fine=False),
    ]
    for field in singles:
        assert "fine" not in field.summary().attrs and "fine" not in field.code()
    assert singles[0].space == singles[1].space == space
    assert data.spline.statistics(seconds=0.01).space == space
    assert tuple(data.spline.plan(seconds=0.01, fine=False).coefficients.values()) == space.shape


def test_the_plan_of_a_bare_fit_has_its_terms_and_what_neighbours_take() -> None:
    plan = sst(months=48).spline.plan()
    assert plan.coefficients == {"lat": 4, "lon": 6, "time": 6}
    assert plan.code == "fit()" and "of neighbours" in repr(plan)
    assert plan.fine_seconds > 0 and plan.seconds > plan.fine_seconds and plan.fine_bytes > 0
    assert sst(months=48).spline.plan(fine=False).fine_bytes == 0


def test_the_plan_of_many_values_on_a_grid_has_a_fine_field_that_little_of_them_is_kept_for() -> None:
    data = xr.DataArray(dask.array.zeros((2600, 2000), chunks=1300), dims=("x", "y"), name="u")
    data = data.assign_coords(x=np.linspace(0, 1, 2600), y=np.linspace(0, 1, 2000))
    plan = data.spline.plan()
    assert plan.code == "fit()" and 0 < plan.fine_bytes < 0.5 * 240 * data.size and plan.fine_seconds > 0


@pytest.mark.parametrize(
    "ask",
    [
        lambda field: field.recover("u_xx = k * u"),
        lambda field: field.discover("u_xx"),
        lambda field: field.constrain("u_xx = k * u"),
        lambda field: field.sample(2),
    ],
    ids=["recover", "discover", "constrain", "sample"],
)
def test_what_goes_with_single_fields_says_so(ask, line: xs.Field) -> None:
    told = "goes with the coefficients of a single field, and beside these there is a fine one"
    with pytest.raises(ValueError, match=told):
        ask(line)


def test_one_place_is_predicted_as_several_are(line: xs.Field) -> None:
    assert float(line.predict(x=1.5)) == pytest.approx(float(line.predict(x=[1.5, 2.0])[0]), rel=1e-9)


def test_a_fine_field_needs_the_values_now() -> None:
    data = waves()
    with pytest.raises(ValueError, match=r"fitted to the values, at once: leave out compute=False"):
        data.spline.fit(compute=False, fine=True)
    with pytest.raises(ValueError, match=r"which holders do not share: leave out holder="):
        data.spline.fit(holder="west", fine=True)


def test_what_happened_is_told(tmp_path) -> None:
    field = waves().spline.fit()
    told = field.summary().attrs["fine"]
    assert told.startswith("standard deviation ")
    assert "correlation lengths" in told
    assert "fine field" in repr(field)
    assert {"fine_sd", "fine_smoothness", "fine_length", "fine_length_in_labels"} <= set(field.summary())
    field.to_zarr(tmp_path / "field.zarr")
    opened = xs.open_field(tmp_path / "field.zarr")
    assert opened.summary().attrs["fine"] == told
    at = {"x": [1.0, 20.0, 44.0], "y": 3.0, "t": [5.0, 6.0]}
    np.testing.assert_allclose(opened.predict(at), field.predict(at), rtol=1e-12)
    np.testing.assert_allclose(opened.stderr(at), field.stderr(at), rtol=1e-12)
    slope = opened.derivative(at, x=1)
    over = float(slope.attrs["comment"].removeprefix("a difference over ").removesuffix(" of x"))
    there, back = (field.predict(at | {"x": np.add(at["x"], side * over / 2)}) for side in (1, -1))
    np.testing.assert_allclose(slope, (there.values - back.values) / over, rtol=0.01)


def test_constant_data_are_constant() -> None:
    """And say nothing of how far off they are, in files neither."""
    data = 0 * waves() + 3
    assert (waves() > 0).spline.fit().predict().std() > 0.1, "what is true or false is not constant"
    field = data.spline.fit()
    np.testing.assert_allclose(field.predict(data.fillna(0)), 3, atol=1e-6)
    assert bool(np.isnan(field.stderr(data.fillna(0))).all())
    assert "which says nothing of errors: they are NaN" in " ".join(repr(field.check()).split())
    again = xs.Field.from_dataset(field.to_dataset())
    np.testing.assert_array_equal(again.predict(data.fillna(0)), field.predict(data.fillna(0)))


def test_chunks_are_read_at_most_twice() -> None:
    """For the sums of the coarse field, and for what it leaves."""
    reads = []

    def read(block: np.ndarray) -> np.ndarray:
        reads.append(block.shape)
        return block

    data = waves()
    blocks = dask.array.from_array(data.to_numpy(), chunks=(5, 6, 2))
    data.copy(data=blocks.map_blocks(read, dtype=float, meta=np.zeros((0, 0, 0)))).spline.fit()
    assert 4 <= len(reads) <= 8


@pytest.mark.slow
def test_few_observations_beside_a_season_in_space() -> None:
    """Three for each function of the coarse field, of which windows of neighbours hold about as many as these."""
    data = sst(months=48, gaps=0.1)[:24, ::4, ::6]
    field = data.spline.fit()
    assert 0.2 < float((data - field.predict()).std()) < 0.32
    assert float(field.summary().sigma) == pytest.approx(0.3, rel=0.2)
    assert bool((field.stderr(data) > 0.01).all())


@pytest.mark.slow
def test_error_bars_of_gaps_hold_the_truth() -> None:
    """Of a field that is rough down to a label or two, of which four tenths are missing."""
    shape = (30, 24, 24)
    data, truth = rough(1.5, 0.2, shape), rough(1.5, 0.0, shape, gaps=0.0)
    field = data.spline.fit()
    at = truth.where(data.isnull()).stack(obs=data.dims).dropna("obs").reset_index("obs")[::3]
    off, error = field.predict(at) - at, field.stderr(at)
    noise = float(field.summary().sigma)
    assert noise == pytest.approx(0.2, rel=0.25)
    # Errors of neighbours are alike: slabs of time are about independent.
    inside = abs(off) < 1.96 * error
    slabs = inside.groupby("time").mean()
    assert float(inside.mean()) > 0.95 - scatter.FIVE * scatter.of_mean(slabs)
    # They are longer than they need be where every second value is seen: 1.47 times when this was written.
    assert 0.9 < float(np.sqrt((error**2).mean() / (off**2).mean())) < 1.6
    again = off + 0.2 * np.random.default_rng(1).normal(size=off.size)
    covered = float((abs(again) < 1.96 * np.hypot(error, noise)).mean())
    assert covered == pytest.approx(0.95, abs=scatter.FIVE * scatter.of_share(0.95, off.size))


@pytest.mark.parametrize("chunks", [10, {"x": 10}, {"x": (20, 40)}])
def test_chunks_of_a_target_are_those_that_are_asked_for(chunks, line: xs.Field) -> None:
    lazy = line.predict(chunks=chunks)
    assert sum(lazy.chunks[0]) == 60 and len(lazy.chunks[0]) > 1
    np.testing.assert_allclose(lazy.compute(), line.predict(), rtol=1e-9)


def test_many_observations_at_few_places(tmp_path) -> None:
    """They say what their means say of the field, and what they differ by tells of the noise."""
    rng = np.random.default_rng(0)
    x = np.repeat(rng.uniform(0, 10, 40), 50)
    data = xr.DataArray(np.sin(x) + rng.normal(0, 0.3, x.size), {"x": ("obs", x)}, "obs", "u")
    field, at = data.spline.fit(), np.linspace(1, 9, 50)
    means = data.groupby("x").mean().spline.fit().predict(x=at)
    apart = {"all": field.predict(x=at) - np.sin(at), "means": means - np.sin(at)}
    errors = {name: float(np.sqrt((own**2).mean())) for name, own in apart.items()}
    assert errors["all"] < 1.2 * errors["means"], errors
    assert float((abs(apart["all"]) / field.stderr(x=at)).max()) < 4
    summary = field.summary()
    assert summary.edf < 40 and summary.sigma == pytest.approx(0.3, rel=0.1)
    left = data - field.predict(data)
    assert summary.rmse == pytest.approx(float(np.sqrt((left**2).mean())), rel=0.01)
    assert np.isfinite((data * (1 + 9 * (data.x > 5)))[:600].spline.fit().stderr(x=at)).all(), "local scales"
    mixed = data.isel(obs=rng.permutation(data.size)).spline.fit()
    np.testing.assert_allclose(mixed.predict(x=at), field.predict(x=at), atol=1e-6)
    field.to_netcdf(tmp_path / "field.nc")
    again = xs.open_field(tmp_path / "field.nc")
    np.testing.assert_allclose(again.stderr(x=at), field.stderr(x=at), rtol=1e-9)
    assert again.summary().rmse == pytest.approx(summary.rmse.item())


@pytest.mark.slow
def test_a_daily_cycle_is_known_beside_weather() -> None:
    """Sixty days by the hour: the cycle is found, and a gap of a night follows it."""
    rng = np.random.default_rng(2)
    hours = np.arange(1440)
    cycle = 3 * np.sin(2 * np.pi * (hours - 9) / 24)
    weather = signal.lfilter([0.3], [1, -0.98], rng.standard_normal(1440))
    time = np.datetime64("2011-05-01", "ns") + hours * np.timedelta64(1, "h")
    truth = xr.DataArray(12 + cycle + weather, {"time": time}, ["time"], name="temperature")
    data = truth + rng.normal(0, 0.5, 1440)
    night = slice(690, 700)
    data[night] = np.nan
    field = data.spline.fit()
    daily = field.select(time=xs.Fourier).predict(time=time[:24])  # about the mean
    assert np.abs(daily - daily.mean() - cycle[:24]).max() < 0.2
    assert np.abs(field.predict() - truth)[night].max() < 4 * field.stderr()[night].max() < 4


@pytest.mark.parametrize("bases", [{}, {"lat": 6, "lon": 6}])
def test_labels_in_float32_have_ends_in_float64_too(bases: dict[str, int]) -> None:
    lat, lon = np.linspace(0.1, 0.9, 9), np.linspace(-0.7, 0.2, 10)
    data = xr.DataArray(np.add.outer(lat**2, lon), {"lat": lat, "lon": lon}, ("lat", "lon"), "u")
    stored = data.assign_coords(lat=lat.astype("f4"), lon=lon.astype("f4"))
    field = stored.spline.fit(**bases, penalty=0.0 if bases else None)
    np.testing.assert_allclose(field.predict(data), data, atol=0.02)
    assert field.predict(lat=[0.1 - 1e-6, 0.9 + 1e-6], lon=[0.0]).isnull().all()


@pytest.mark.slow
def test_units_of_coordinates_choose_no_neighbours() -> None:
    """Rounding errors chose among neighbours that are as far: predictions differed by 0.04 of an error bar.

    Neither do the direction and the order of coordinates, by which these moved by 0.6.
    """
    rng, label = np.random.default_rng(0), np.arange(34.0)
    values = gaussian_filter(rng.normal(size=(34, 34)), 2) + 0.03 * rng.normal(size=(34, 34))
    fitted = []
    along = ((label, label), (0.3048 * label, 1e4 - label), (1e4 - label, 1e4 + label))
    for (y, x), dims in zip(along, (*[("y", "x")] * 2, ("x", "y")), strict=True):
        field = xr.DataArray(values, dict(zip(dims, (y, x), strict=True)), dims, name="u").spline.fit()
        fitted.append(field.predict(stderr=True))
    first, *others = fitted
    for other in others:
        for name in ("u", "u_stderr"):
            assert (np.abs(other[name].values - first[name].values) / first.u_stderr.values).max() < 1e-5


@pytest.mark.slow
def test_slopes_in_space_know_what_neighbours_make_good() -> None:
    """Whatever the unit: the whole error of the coarse slope was added, less a sum of weights per unit of x."""
    rng, time = np.random.default_rng(0), pd.date_range("2000-01", periods=36, freq="MS")
    place = np.arange(8.0)
    t, y, x = np.meshgrid(np.arange(36.0), place, place, indexing="ij")
    waves = rng.normal(size=(4, 60)) / np.array([[4], [3], [3], [1]])
    phases = waves[0] * t[..., None] + waves[1] * y[..., None] + waves[2] * x[..., None] + 9 * waves[3]
    season = (1 + 0.1 * y) * np.cos(2 * np.pi * t / 12)
    values = season + np.cos(phases).mean(-1) * 9 + 0.2 * rng.normal(size=t.shape)
    truth = -(waves[2] * np.sin(phases)).mean(-1) * 9
    found = []
    for unit in (1.0, 1e-3):
        coords = {"time": time, "y": unit * place, "x": unit * place}
        field = xr.DataArray(values, coords, ("time", "y", "x"), "u").spline.fit()
        slope = field.derivative(x=1, stderr=True)
        found.append((unit * slope.du_dx.values, unit * slope.du_dx_stderr.values))
    (slopes, errors), other = found
    np.testing.assert_allclose(other, found[0], rtol=1e-3, atol=1e-3 * errors.max())
    assert 0.7 < np.sqrt(np.mean(((slopes - truth) / errors) ** 2)) < 1.2


@pytest.mark.slow
def test_a_cycle_takes_up_no_weather_that_lasts() -> None:
    """No smooth field makes that good: .72 of values were covered, and errors were twice as large."""
    hours = np.arange(240)
    time = pd.date_range("2001-01-01", periods=240, freq="h")
    covered, errors = [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        weather = gaussian_filter(rng.standard_normal(1040), 30)[400:640]
        truth = (weather - weather.mean()) / weather.std() + 0.3 * np.sin(2 * np.pi * hours / 24)
        data = xr.DataArray(truth + rng.normal(0, 0.1, 240), {"time": time}, "time", "v")
        field = data.spline.fit()
        error = field.predict() - truth
        covered.append(float((abs(error) < 1.96 * field.stderr()).mean()))
        errors.append(float((error**2).mean()))
    assert np.mean(covered) > 0.85
    assert np.mean(errors) ** 0.5 < 0.035


@pytest.mark.slow
def test_of_members_and_variables_any_may_come_first() -> None:
    rng, hours = np.random.default_rng(0), np.arange(120)
    values = 0.3 * np.cumsum(rng.standard_normal((2, 120)), axis=1) + np.sin(2 * np.pi * hours / 24)
    time = pd.date_range("2001-01-01", periods=120, freq="h")
    data = xr.DataArray(values, {"member": ["a", "b"], "time": time}, ("member", "time"), "v")
    data[0, 40:] = np.nan
    there, back = data.spline.fit(), data[::-1].spline.fit()
    for one, other in ((f.predict(), f.mean("time")) for f in (there, back)):
        assert float(abs(one.sel(member="b").mean() - other.sel(member="b"))) < 0.02  # all of its 120 hours
    apart = abs(there.predict() - back.predict()) / there.stderr()
    assert float(apart.max()) < 1e-3
    variables = data.to_dataset("member")
    one, other = (variables[names].spline.fit().mean("time").b for names in (["a", "b"], ["b", "a"]))
    assert float(one) == pytest.approx(float(other), abs=1e-9)
