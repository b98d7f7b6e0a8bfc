"""Laws of the covariance: its table, its slopes, and what is left where neighbours tell nothing new."""

from __future__ import annotations

import contextlib
import itertools

import numpy as np
import pytest
import xarray as xr
from scipy.ndimage import gaussian_filter1d
from scipy.spatial.distance import cdist

import xspline as xs
from xspline.kriging import compiled
from xspline.kriging.fitting import Observed, as_one, likelier
from xspline.kriging.likelihood import Window, Windows
from xspline.kriging.model import STEP, Model, matern
from xspline.kriging.nearby import Calibration, Nearby, stretch
from xspline.kriging.places import Places
from xspline.kriging.pyramid import metric_of
from xspline.kriging.search import ENOUGH, SLOPED, SMOOTHEST, Prior
from xspline.labels.fine.field import rows_of


@pytest.mark.parametrize("nu", [0.5, 0.6, 0.75, 1.2, 1.5, 2.5, 8.0])
def test_a_table_has_the_covariance(nu: float) -> None:
    """As the compiled loops read it."""
    z = np.concatenate([[0.0], np.geomspace(1e-8, 60, 20_000)])
    (table,) = Model(np.ones((1, 1)), np.ones(1), np.array([nu]), 0.0).table
    index = (np.sqrt(z) / STEP).astype(int)
    inside = np.minimum(index, len(table) - 1)
    u = np.sqrt(z) / STEP - index
    read = np.where(index < len(table), np.sum(table[inside] * u[:, None] ** np.arange(6), axis=1), 0.0)
    assert abs(read - matern(z, nu)).max() < (1e-7 if nu == 0.6 else 1e-12)


@pytest.mark.parametrize("nu", [0.5, 0.6, 1.04])
def test_slopes_of_the_likelihood_are_its_differences(nu: float) -> None:
    rng = np.random.default_rng(0)
    places, levels = rng.uniform(0, 1, (80, 2)), np.repeat([0, 1], 40)
    window = Window(places, levels, 9.0**levels, rng.normal(size=80))
    windows = Windows(np.array([[0, 0], [0.01, 0.01]]), [window])
    x = np.log([0.3, 0.2, 0.5, 0.6, 1.0, 0.5, nu, 1.5, 0.01])
    _, slopes, _ = windows.value_and_derivatives(Model.of(x, 2, 2))
    for step, slope in zip(1e-4 * np.eye(x.size), slopes, strict=True):
        high, low = (windows.value(Model.of(x + sign * step, 2, 2)) for sign in (1, -1))
        assert (high - low) / 2e-4 == pytest.approx(slope, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("functions", [0, 2])
def test_information_is_what_slopes_scatter_by(functions: int) -> None:
    """Over data that a model draws, slopes have the mean 0 and as covariance the information."""
    rng = np.random.default_rng(2)
    places, levels = rng.uniform(0, 1, (50, 1)), np.zeros(50, np.int64)
    fitted = rng.normal(size=(50, functions))
    model = Model(np.array([[0.1], [0.4]]), np.array([0.5, 0.8]), np.array([0.6, 1.5]), 0.2)
    apart = abs(places - places.T)
    scaled = [np.sqrt(2 * nu) * apart / length for nu, length in zip((0.6, 1.5), (0.1, 0.4), strict=True)]
    covariance = 0.5 * matern(scaled[0], 0.6) + 0.8 * matern(scaled[1], 1.5) + 0.2 * np.eye(50)
    drawn = np.linalg.cholesky(covariance) @ rng.normal(size=(50, 2000)) + fitted @ np.ones((functions, 2000))
    slopes, information = [], []
    for values in drawn.T:
        window = Window(places, levels, np.ones(50), values, fitted if functions else None)
        found = Windows(np.zeros((1, 1)), [window]).value_and_derivatives(model)
        slopes.append(found[1])
        information.append(found[2])
    expected = np.mean(information, axis=0)
    size = np.sqrt(np.diag(expected) + 1e-12)
    assert abs(np.mean(slopes, axis=0) / size).max() < 0.08  # 2000 draws: .022 to a standard error
    assert abs((np.cov(slopes, rowvar=False) - expected) / np.outer(size, size)).max() < 0.15


def test_the_likeliest_model_does_not_depend_on_units() -> None:
    rng, parts = np.random.default_rng(1), []
    for _ in range(12):
        at = np.sort(rng.uniform(0, 60, 80))[:, None]
        apart = abs(at - at.T)
        covariance = np.exp(-apart / 15) + 0.3 * np.exp(-apart / 1.5) + 0.05 * np.eye(80)
        parts.append((at, np.linalg.cholesky(covariance) @ rng.normal(size=80)))
    prior = Prior.over(np.ones(1), np.array([60.0]), Places(1), 2, SLOPED, -14.0, False)
    found = []
    for unit in (1.0, 1e-6, 1e-100):
        items = [Window(at, np.zeros(80, np.int64), np.ones(80), unit * values) for at, values in parts]
        found.append(prior.search(Windows(np.zeros((1, 1)), items), prior.mean).x)
    assert np.ptp(found, axis=0).max() < 1e-4


@pytest.mark.slow
def test_errors_are_calibrated_where_neighbours_are_calm_and_where_they_are_not() -> None:
    """Fronts beside calm water: the model of both has errors too short there and too long here."""
    x, rng = np.arange(50.0), np.random.default_rng(0)
    values = np.sin(x[:, None] / 9) * np.cos(x / 7) + 1e-3 * rng.standard_normal((50, 50))
    values += np.where(x > 33, 0.5 * np.sign(np.sin(x[:, None] / 4 + x / 3)), 0)
    data, seen = xr.DataArray(values, {"x": x, "y": x}, ["x", "y"], name="u"), rng.random((50, 50)) < 0.85
    field = data.where(seen).spline.fit()
    (member,) = field.fits["u"].fine.members
    calibration = member.calibration
    left, scales = np.exp(calibration.left[[0, -1], 0]), np.exp(calibration.scales[[0, -1], 0])
    calm, front = calibration(left, scales)[0]
    assert calm < 0.8 < 1.5 < front
    ends, is_calm = field.interval(new=True), (x < 30) & ~seen
    held = ((ends.lower <= data) & (data <= ends.upper)).values[is_calm]
    assert 0.9 < held.mean() < 0.985  # 220 places, a standard error of .015; was 1.0
    again = Nearby.from_arrays(*member.to_arrays(), None)
    assert (again.calibration(left, scales)[0] == [calm, front]).all()


def test_factors_of_errors_lie_between_those_of_parts_whose_scales_cross() -> None:
    crossed = Calibration(*np.array([[[0.0]] * 3, [[2.0], [0], [1]], [[0.0]] * 3, [[0.1], [0.9], [0.2]]]))
    assert crossed._between(crossed.shares, np.ones(9), np.exp(np.linspace(-1, 3, 9))).min() >= 0.1


@pytest.mark.slow
def test_intervals_of_new_observations_hold_them_whatever_the_noise_is_like() -> None:
    """Errors of ±.5 in 15 % of observations: by the variance of the noise, 86 % would be held."""
    rng, x = np.random.default_rng(0), np.linspace(0, 6, 60)
    noise = rng.choice([-0.5, 0.0, 0.5], (60, 60), p=[0.075, 0.85, 0.075])
    noise += 0.05 * rng.standard_normal((60, 60))
    data = xr.DataArray(np.sin(x)[:, None] * np.cos(x) + noise, {"x": x, "y": x}, ("x", "y"), "u")
    seen = rng.random((60, 60)) < 0.8
    ends = data.where(seen).spline.fit().interval(new=True)
    held = ((ends.lower <= data) & (data <= ends.upper)).values[~seen]
    assert 0.93 < held.mean() < 0.98


@pytest.mark.slow
def test_members_of_a_batch_share_a_covariance_only_where_they_are_alike() -> None:
    """A quiet station among noisy ones is fitted as it is alone; six that are alike are one covariance."""
    rng, day = np.random.default_rng(0), np.arange(200.0)
    truth = gaussian_filter1d(rng.standard_normal((6, 200)), 8)
    truth /= truth.std(axis=1, keepdims=True)
    errors, seen = rng.standard_normal(truth.shape), rng.random(truth.shape) > 0.3
    names = list("abcdef")

    def fitted(noise: np.ndarray) -> tuple[xs.Field, xr.DataArray]:
        values = truth + noise[:, None] * errors
        data = xr.DataArray(values, {"station": names, "x": day}, ("station", "x"), "u")
        return data.where(seen).spline.fit(), data.where(seen)

    field, data = fitted(np.array([0.03, 1, 1, 1, 1, 1]))
    quiet = data[0].spline.fit()
    xr.testing.assert_allclose(field.predict(data)[0], quiet.predict(data[0]), atol=1e-6)
    xr.testing.assert_allclose(field.stderr(data)[0], quiet.stderr(data[0]), atol=1e-6)
    assert "of 6 fields have a covariance of their own" in repr(field.check())
    alike, _ = fitted(np.full(6, 0.3))
    assert "of their own" not in repr(alike.check())
    first, *others = (member.models[0][1] for member in alike.fits["u"].fine.members)
    assert all(other is first for other in others)


@pytest.mark.slow
def test_the_order_of_a_batch_and_of_labels_does_not_matter() -> None:
    """Cells followed the first entry, and of many entries those looked at were drawn by position: .06 error bars."""
    rng = np.random.default_rng(0)
    truth = 3 * gaussian_filter1d(rng.standard_normal((26, 60)), 4, axis=1)
    values = truth + 0.3 * rng.standard_normal(truth.shape)
    data = xr.DataArray(values, {"station": np.arange(26), "x": np.arange(60.0)}, ("station", "x"), "u")
    other = data[rng.permutation(26), ::-1].spline.fit()
    field = data.spline.fit()
    error = field.stderr(data)
    again = [x.sel(station=data.station) for x in (other.predict(data), other.stderr(data))]
    assert abs((again[0] - field.predict(data)) / error).max() < 1e-3
    assert abs(again[1] / error - 1).max() < 1e-3


@pytest.mark.slow
def test_members_that_share_a_covariance_have_noise_of_their_own() -> None:
    x = np.arange(1200.0)
    wave = np.sin(x / 9) + np.random.default_rng(5).normal(0, 0.1, x.size)
    data = xr.DataArray([wave, 10 * wave], {"x": x}, ("member", "x"), "u")
    found = data.spline.fit().summary()
    np.testing.assert_allclose(found.sigma, [0.1, 1.0], rtol=0.06)
    np.testing.assert_allclose(found.r2, found.r2[0], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["line", "waves"])
@pytest.mark.parametrize("noise", [0.3, 0.01])
def test_errors_of_slopes_of_smooth_fields_are_those_of_no_rounding(shape: str, noise: float) -> None:
    """What two near values of a smooth field differ by was lost in rounding: intervals were no longer than nothing."""
    x = np.arange(1200.0)
    truth = 0.02 * x if shape == "line" else np.sin(x / 60)
    slope = np.full(x.size, 0.02) if shape == "line" else np.cos(x / 60) / 60
    values = truth + np.random.default_rng(0).normal(0, noise, x.size)
    field = xr.DataArray(values, {"x": x}, "x", "u").spline.fit()
    found = field.derivative({"x": x[60:-60:40]}, x=1, stderr=True)
    assert 0.2 < np.sqrt(np.mean(((found.du_dx - slope[60:-60:40]) / found.du_dx_stderr) ** 2)) < 1.6


@pytest.mark.slow
def test_functions_that_are_one_at_all_labels_leave_no_likelihood_of_rounding() -> None:
    """Of four splines at three latitudes and trends: 1e-12 of the values moved the field by half an error bar."""
    rng, time = np.random.default_rng(0), np.arange("2000-01", "2003-01", dtype="datetime64[M]")
    coords = {"time": time.astype("M8[ns]"), "lat": 6.0 * np.arange(3), "lon": 150 + 6.0 * np.arange(6)}
    data = xr.DataArray(rng.standard_normal((36, 3, 6)), coords, tuple(coords), "u")
    data = data.rolling(time=3, min_periods=1).mean() + data.lon / 10
    one, other = (own.spline.fit() for own in (data, data + 1e-12 * rng.standard_normal(data.shape)))
    apart = abs(one.predict(data) - other.predict(data)) / one.stderr(data)
    assert float(apart.max()) < 1e-6


@pytest.mark.slow
def test_one_bird_among_zeros_along_flight_lines() -> None:
    """Windows of zeros alone are without noise at any length, and of rounding where a constant is taken out."""
    rng = np.random.default_rng(0)
    start, towards = rng.uniform(0, 100, (2, 25)), rng.uniform(0, np.pi, 25)
    line, along = rng.integers(0, 25, 400), rng.uniform(0, 60, 400)
    x, y = start[:, line] + along * np.array([np.cos(towards[line]), np.sin(towards[line])])
    birds = np.zeros(400)
    birds[7] = 1
    coords = {name: ("obs", c, {"units": "km"}) for name, c in (("x", x), ("y", y))}
    with pytest.warns(xs.FitWarning, match="standard deviations away"):
        field = xr.DataArray(birds, coords, "obs", "birds").spline.fit(seconds=1)
    assert 0.02 < float(field.summary().sigma) < 0.1
    assert np.isfinite(field.stderr()).all()


def test_a_search_ends_where_another_does_and_above_the_noise_of_rounding() -> None:
    """Noise hung on which side of a threshold the last step fell, and the least noise was no bound."""
    rng = np.random.default_rng(0)
    values = gaussian_filter1d(rng.normal(size=150), 2)
    values += 0.1 * values.std() * rng.normal(size=150)
    window = Window(np.arange(150.0)[:, None], np.zeros(150, int), np.ones(150), values / values.std())
    windows = Windows(np.zeros((1, 1)), [window])
    for least in (-np.inf, -2.0):
        prior = Prior.over(np.ones(1), np.full(1, 150.0), Places(1), 1, SMOOTHEST, least, False)
        first, second = (prior.search(windows, start, ENOUGH[1]).x for start in prior.starts)
        np.testing.assert_allclose(first, second, rtol=0, atol=3e-3)  # .03 by that of other searches
        assert (first[-1] == least) == (least == -2)


@pytest.mark.slow
def test_copies_of_records_say_nothing_of_noise() -> None:
    """Five of 300 records are there twice: σ of .3 was .0003, and the truth was held nowhere."""
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0, 10, (2, 300))
    true = xr.DataArray(np.sin(x / 2) + np.cos(y / 2), {"x": ("obs", x), "y": ("obs", y)}, "obs", name="u")
    data = true + 0.3 * rng.standard_normal(300)
    alone = data.spline.fit()
    for copies in (5, 300):
        told = pytest.warns(xs.FitWarning, match="300 observations have the coordinates and the value of an")
        with told if copies == 300 else contextlib.nullcontext():
            both = xr.concat([data, data[:copies]], "obs").spline.fit()
        assert 0.27 < float(both.summary().sigma) < 0.33
        xr.testing.assert_allclose(both.predict(true), alone.predict(true), atol=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(("square", "noise"), [(9, 0.03), (4, 0.3)])
def test_noise_of_a_smooth_field_is_told(square: float, noise: float) -> None:
    """A covariance with slopes at most takes it for a rough part of the field: the truth is held in 5, 65 %."""
    rng, x = np.random.default_rng(0), np.arange(50.0)
    root = np.linalg.cholesky(np.exp(-((x[:, None] - x) ** 2) / square) + 1e-9 * np.eye(50))
    truth = root @ rng.normal(size=(50, 50)) @ root.T
    data = xr.DataArray(truth + rng.normal(0, noise, truth.shape), {"x": x, "y": x}, ["x", "y"], name="u")
    found, stderr = data.spline.fit().predict(stderr=True).values()
    assert 0.92 < float((abs(found - truth) < 1.96 * stderr).mean()) < 0.98


@pytest.mark.slow
@pytest.mark.parametrize("count", [60, 600])
@pytest.mark.parametrize("is_counted", [False, True])
def test_labels_are_counted_where_that_is_likelier(count: int, is_counted: bool) -> None:
    """A field that changes with the distance of labels, or with their number; 60 are one window, 600 are not."""
    rng = np.random.default_rng(1)
    labels = np.cumsum(np.geomspace(1, 100, count))[:, None]
    plain = Places(1)
    counting = plain.counting(labels, np.ones(1), [0])
    found = 0
    for values in rng.standard_normal((6, count)):
        at = (counting if is_counted else plain)(labels)
        true = (
            np.linalg.cholesky(matern(cdist(at, at) / np.ptp(at) * 60, 1.5) + 0.01 * np.eye(count)) @ values
        )
        own = Observed(labels, true, np.ones(count))
        found += likelier(own, (plain, counting), lambda x: None) is counting
    assert found >= 5 if is_counted else found <= 1


@pytest.mark.slow
@pytest.mark.parametrize("unit", [1.0, -(2.0**-10)])
def test_levels_close_together_say_where_the_field_changes(unit: float) -> None:
    """Of the ocean: up to 5 °C away, of 14, between deep levels where none were counted; 0.25 by straight lines."""
    depth = np.array([0, 5, 10, 20, 30, 50, 75, 100, 150, 200, 300, 500, 1000, 2000, 3000, 4000, 5000.0])
    data = xr.DataArray(2 + 12 * np.exp(-depth / 200), coords={"depth": unit * depth}, name="t")
    middle = unit * (depth[1:] + depth[:-1]) / 2
    field = data.sortby("depth").spline.fit()
    values, stderr = (field.predict(depth=middle, stderr=True)[name].values for name in ("t", "t_stderr"))
    away = abs(values - 2 - 12 * np.exp(-middle / unit / 200))
    assert away.max() < 0.4
    assert np.mean(away < 2 * stderr) > 0.8
    assert "labels, smoothness" in str(field)


@pytest.mark.slow
def test_a_rough_field_is_told_from_noise() -> None:
    """With smoothness and noise of windows with means over cells the error is .22, and the truth held in 85 %."""
    rng, x = np.random.default_rng(1), np.linspace(0, 1, 40)
    at = np.stack([c.ravel() for c in np.meshgrid(x, x, indexing="ij")], 1)
    root = np.linalg.cholesky(np.exp(-5 * cdist(at, at)) + 1e-9 * np.eye(1600))
    truth = (root @ rng.standard_normal(1600)).reshape(40, 40)
    data = xr.DataArray(truth + rng.normal(0, 0.1, truth.shape), {"x": x, "y": x}, ["x", "y"], name="u")
    found = data.spline.fit().predict(stderr=True)
    assert float((abs(found.u - truth) < 1.96 * found.u_stderr).mean()) > 0.88
    assert float(((found.u - truth) ** 2).mean() ** 0.5) < 0.2


@pytest.mark.slow
def test_values_without_noise_have_finite_errors_and_no_warning() -> None:
    """The covariance of errors of coarse cells is singular to rounding; a corner, or a flat sea, is no gross error."""
    x = np.linspace(0, 3, 50)
    data = xr.DataArray((x[:, None] + x) ** 2, {"x": x, "y": x}, ["x", "y"], name="u")
    flat = (np.sin(9 * data.x) * np.cos(9 * data.y)).clip(0).where(data.x < 2, 0.0).rename("u")
    for values, most in ((data, 2e-3), (np.sin(data.x) * np.cos(data.y) + 0.1 * data.y, 2e-3), (flat, 0.05)):
        found, stderr = values.spline.fit().predict(values[::3, ::3], stderr=True).data_vars.values()
        assert float(abs(found - values).max()) < most  # corners too
        assert float(stderr.max()) < most


@pytest.mark.slow
def test_neighbours_are_near_where_observations_are_dense() -> None:
    """As along the track of a ship, or near a pole of a grid: places far apart share no neighbours there."""
    rng = np.random.default_rng(0)
    x, y = np.concatenate([rng.uniform(0, 1, (4000, 2)), rng.uniform(0, 0.1, (2000, 2))]).T
    points = xr.DataArray(np.sin(60 * x) * np.cos(72 * y), {"x": ("n", x), "y": ("n", y)}, "n", "u")
    few, all_points = rng.permutation(np.flatnonzero(np.maximum(x, y) < 0.1))[:500], points.copy()
    points[few] = np.nan
    assert points[:500].spline.fit().summary().fine_length_in_labels.max() < 50  # 1/√500 of the range each
    error = points.spline.fit().predict(all_points[few]) - all_points[few]
    assert float((error**2).mean() ** 0.5) < 1e-3


@pytest.mark.slow
def test_times_of_a_station_share_neighbours() -> None:
    """However far stations are apart; a value is the same whichever others are asked for."""
    x, time = np.arange(6.0), np.arange(500.0)
    data = xr.DataArray(np.sin(time / 30 + x[:, None]), {"x": x, "time": time}, ["x", "time"], name="u")
    field = data.spline.fit()
    (member,) = field.fits["u"].fine.members
    assert len(member.in_blocks(member.pyramid.places[: data.size])[2]) < data.size / 4
    xr.testing.assert_equal(field.predict(data)[2:3, 200:201], field.predict(data[2:3, 200:201]))


@pytest.mark.slow
def test_values_and_errors_take_one_look_at_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    data = xr.DataArray(rng.normal(size=(20, 20)).cumsum(0).cumsum(1), dims=["x", "y"], name="u")
    field = data.assign_coords(x=np.arange(20.0), y=np.arange(20.0)).spline.fit()
    at = {"x": [0.5, 7.25], "y": [3.5]}
    expected = field.predict(at), field.stderr(at)
    looks, look = [], Nearby.predict
    monkeypatch.setattr(Nearby, "predict", lambda self, *a, **k: looks.append(1) or look(self, *a, **k))
    both = field.predict(at, stderr=True)
    assert len(looks) == 1
    xr.testing.assert_equal(both.u, expected[0])
    xr.testing.assert_equal(both.u_stderr, expected[1])
    field.interval(at, new=True)
    assert len(looks) == 2


def test_cells_are_not_far_narrower_than_places_are_apart() -> None:
    """Stations differ by offsets, and are looked at together all the same."""
    rng = np.random.default_rng(1)
    x, time = np.sort(rng.uniform(0, 20, 40)), np.arange(120.0)
    values = 5 * rng.normal(size=40)[:, None] + np.sin(time / 9)
    grid = np.stack(np.meshgrid(x, time, indexing="ij"), axis=-1).reshape(-1, 2)
    widths = metric_of(grid, values.ravel(), np.arange(2), is_round=False)
    assert widths[0] / widths[1] > np.median(np.diff(x)) / 12


@pytest.mark.slow
def test_widths_of_cells_are_those_of_equal_change() -> None:
    """Years that differ at random, of maps that are smooth: whatever the unit of time, its width is a small one."""
    rng, x = np.random.default_rng(0), np.arange(24.0)
    grid = np.stack(np.meshgrid(np.arange(60.0), x, x, indexing="ij"), axis=-1).reshape(-1, 3)
    a, b = rng.normal(size=(2, 60))[:, grid[:, 0].astype(int)]
    values = a * np.sin(grid[:, 1] / 8) + b * np.cos(grid[:, 2] / 8)
    for unit in (0.03, 1.0, 30.0):
        time, *space = metric_of(grid * [unit, 1, 1], values, np.arange(3), is_round=False)
        assert time / unit < min(space) / 3
        assert 0.5 < space[0] / space[1] < 2


def test_few_noisy_values_leave_widths_as_they_are() -> None:
    """The axes differ as far as the slopes tell: of noise alone they are the extents of the data."""
    rng = np.random.default_rng(0)
    places = rng.random((300, 3)) * [1.0, 10.0, 100.0]
    widths = metric_of(places, rng.normal(size=300), np.arange(3), is_round=False)
    np.testing.assert_allclose(widths / widths[0], [1, 10, 100], rtol=0.15)


def test_widths_of_two_halves_agree() -> None:
    rng = np.random.default_rng(0)
    places = rng.random((20_000, 2)) * [40.0, 10.0]
    values = np.sin(places[:, 0]) + np.cos(places[:, 1] * 4) + rng.normal(0, 0.3, 20_000)
    a, b = (metric_of(places[i::2], values[i::2], np.arange(2), is_round=False) for i in (0, 1))
    np.testing.assert_allclose(a / a[0], b / b[0], rtol=0.1)


@pytest.mark.parametrize("domain", ["plane", "region", "globe"])
def test_places_hang_neither_on_directions_nor_on_the_meridian(domain: str) -> None:
    rng = np.random.default_rng(1)
    low, high = {"plane": (-2, 2), "region": (-20, 50), "globe": (-90, 90)}[domain]
    x = np.stack([rng.uniform(low, high, 50), rng.uniform(0, 360 if domain == "globe" else 40, 50)], axis=1)
    values, weights = rng.normal(size=50), rng.uniform(1, 2, 50)

    def places(x: np.ndarray) -> np.ndarray:
        own = Places(2)
        if domain != "plane":
            own = Places.over(2, 0, 1, (x[:, 0].min(), x[:, 0].max()), (x[:, 1].min(), x[:, 1].max()))
        return own.facing(x, values, weights)(x)

    first = places(x)
    for sign, meridian in (([-1, 1], 0), ([1, -1], 0), ([-1, -1], 0), ([1, 1], 11), ([1, -1], 200)):
        other = x * sign
        other[:, 1] += meridian
        np.testing.assert_allclose(np.diff(places(other), axis=0), np.diff(first, axis=0), atol=1e-10)


def test_places_do_not_hang_on_the_order_of_coordinates() -> None:
    rng = np.random.default_rng(1)
    x, values, weights = rng.normal(size=(50, 3)), rng.normal(size=50), np.ones(50)
    for order in itertools.permutations(range(3)):
        own = x[:, order]
        there = Places(3).facing(own, values, weights)(own)
        np.testing.assert_array_equal(there, Places(3).facing(x, values, weights)(x))


def test_observations_that_vary_as_one_are_counted() -> None:
    rng = np.random.default_rng(0)
    at = np.stack(np.meshgrid(*[np.arange(120.0)] * 2, indexing="ij"), axis=-1).reshape(-1, 2)

    def count(values: np.ndarray) -> float:
        return as_one([Observed(at, values, np.ones(len(at)))], Places(2))

    squares = np.kron(rng.normal(size=(24, 24)), np.ones((5, 5))).ravel()
    assert 1 <= count(rng.normal(size=len(at))) < 1.5
    assert 15 < count(squares) < 35  # 25 in each square


@pytest.mark.slow
def test_season_and_trend_take_no_weather_for_signal() -> None:
    """Of a region with errors AR(1) .8, neighbours along time share some; of one with independent errors none do."""
    rng, chosen = np.random.default_rng(0), {}
    time = np.arange("2000-01", "2020-01", dtype="datetime64[M]").astype("datetime64[ns]")
    coords = {"time": time, "lat": 2.0 * np.arange(5), "lon": 150 + 2.0 * np.arange(6)}
    white = rng.normal(size=(240, 5, 6))
    for rho in (0.0, 0.8):
        errors = white.copy()
        for k in range(1, 240):
            errors[k] = rho * errors[k - 1] + np.sqrt(1 - rho**2) * white[k]
        fit = xs.fit(xr.DataArray(errors, coords, tuple(coords), "u")).fits["u"]
        chosen[rho] = fit.choice.get("as_one", 1.0)
    assert chosen[0.0] < 1.5 < 3 < chosen[0.8] < 20


def test_observations_of_few_cells_vary_as_one_too() -> None:
    """Twelve hundred observations are no thirty cells of nine times the width: those of three times tell."""
    rng, x = np.random.default_rng(0), np.arange(1200.0)
    member = Observed(x[:, None], np.repeat(rng.standard_normal(12), 100), np.ones(1200))
    assert as_one([member], Places(1)) > 5
    at = np.stack([x % 30, x // 30], axis=1)
    noise = Observed(at, rng.standard_normal(1200), np.ones(1200))
    assert 1 <= as_one([noise], Places(2)) < 2


@pytest.mark.slow
def test_terms_of_few_observations_are_those_of_generalised_least_squares() -> None:
    """With the covariance that was chosen: nothing of the functions is left, and errors are longer by Student's t."""
    rng, hours = np.random.default_rng(0), np.arange(400)
    weather = 0.1 * np.cumsum(rng.standard_normal(400)) + np.sin(2 * np.pi * hours / 24)
    time = np.datetime64("2001-01-01", "ns") + hours * np.timedelta64(1, "h")
    field = xr.DataArray(weather + rng.normal(0, 0.1, 400), {"time": time}, "time", "u").spline.fit()
    fit = field.fits["u"]
    (member,) = fit.fine.members
    ((_, model),) = member.models
    window, covariance = member.window, np.zeros((400, 400))
    between = model.between(member.pyramid.spread)
    compiled.covariances(window.places, window.levels, window.counts, between, covariance)
    covariance = member.mean_scales[0] * (covariance + np.tril(covariance, -1).T)
    functions = rows_of(fit.space, member.coordinates)
    explained = np.linalg.solve(covariance, functions).T
    normal = explained @ functions
    assert float(abs(np.linalg.solve(normal, explained @ window.values)).max()) < 1e-8
    own = np.sqrt(np.sum(functions * np.linalg.solve(normal, functions.T).T, axis=1))
    longer = field.select(time=xs.Fourier).stderr().values / own
    _, freedom = member.error_covariance(member.cells(400)[0])
    assert np.ptp(longer) < 1e-6
    assert longer.mean() == pytest.approx(stretch(np.array(freedom)), rel=1e-6)
