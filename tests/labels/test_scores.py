"""Errors by scores of parts: the dense sandwich, the jackknife where parts are many, and what `errors="auto"` takes."""

from __future__ import annotations

import re

import numpy as np
import pytest
import xarray as xr
from scipy import stats

import xspline as xs
from tests import scatter
from tests.labels import test_ar1 as ar1
from tests.labels.test_uncertainty import BASES, GRID, PENALTY, design
from tests.products import rows, sst, stderr_of

MONTHS = np.arange("1990-01", "2002-01", dtype="datetime64[M]").astype("datetime64[ns]")


@pytest.fixture(scope="module")
def product() -> xr.DataArray:
    return sst(months=60, gaps=0.2)


@pytest.fixture(scope="module")
def field(product: xr.DataArray) -> xs.Field:
    return product.spline.fit(BASES, penalty=PENALTY, holder="time.year")


def sandwich(field: xs.Field, data: xr.DataArray, labels: np.ndarray) -> np.ndarray:
    """Return (B − 1)/B Σ x_b x_bᵀ, [P, P], from rows of Φ: x_b = (A − G_b − π_bΛ)⁻¹ g_b."""
    space, matrix = field.space, field.penalty.gram(field.space).to_dense(field.space.frame)
    phi, y = rows(data, space, slice(None)), data.values.astype(float).ravel() - 290
    shape = [-1 if dim == "time" else 1 for dim in data.dims]
    labels = np.broadcast_to(labels.reshape(shape), data.shape).ravel()
    seen = np.isfinite(y)
    phi, y, labels = phi[seen], y[seen], labels[seen]
    c = np.linalg.solve(phi.T @ phi + matrix, phi.T @ y)
    total, parts = np.zeros_like(matrix), np.unique(labels)
    for own in (labels == label for label in parts):
        gone, share = ~own, np.mean(own)
        g = phi[own].T @ (y - phi @ c)[own] - share * matrix @ c
        x = np.linalg.solve(phi[gone].T @ phi[gone] + (1 - share) * matrix, g)
        total += np.outer(x, x)
    return total * (len(parts) - 1) / len(parts)


def test_scores_are_the_dense_sandwich(field: xs.Field, product: xr.DataArray) -> None:
    dense = sandwich(field, product, product.time.dt.year.values)
    for orders in ({}, {"lon": 1}):
        phi = design(field, GRID, **orders)
        expected = np.sqrt(np.einsum("...i,ij,...j->...", phi, dense, phi))
        own = {"method": "scores", "stderr": True}
        error = field.predict(GRID, **own) if not orders else field.derivative(GRID, **orders, **own)
        found = stderr_of(error).transpose("time", "lat", "lon")
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10 * expected.max())
    assert found.attrs["degrees_of_freedom"] == 4 and "between the 5 parts" in found.attrs["comment"]


@pytest.mark.slow
def test_parts_that_alone_know_a_pixel_leave_its_error_bars_nan(product: xr.DataArray) -> None:
    """As the jackknife has it; that of others is what it is without that pixel."""
    data = product.isel(lat=16, lon=slice(4, 11))
    poor = data.copy()
    poor[6:, 1] = np.nan  # one part knows all; of column 0 none knows anything, which is land
    poor[:, 2] = np.nan
    poor[[3, 40], 2] = 290.0  # two parts, each of which a line needs
    poor[[4, 41, 50], 3] = np.nan
    holders = {"holder": "time.year", "time": xs.Polynomial(1)}
    at = {"time": data.time[[0, 30]]}
    for errors in (None, xs.AR1("time")):
        field, whole = (xs.fit(own, **holders, errors=errors) for own in (poor, data))
        for method in ("jackknife", "scores"):
            found = field.stderr(at, method=method)
            np.testing.assert_array_equal(found.isnull().all("time"), [True, True, True, *[False] * 4])
            np.testing.assert_allclose(found[:, 4:], whole.stderr(at, method=method)[:, 4:], rtol=1e-6)
        ridge = xs.fit(poor, **holders, errors=errors, penalty=1.0)
        assert ridge.stderr(at, method="jackknife")[:, :2].isnull().all()
    with pytest.raises(xs.SingularSystemError, match="none of the 5 parts of 'sst' can be spared"):
        xs.fit(poor[:, 2], **holders).stderr(at, method="scores")


@pytest.mark.slow
def test_scores_of_many_parts_are_near_the_jackknife(product: xr.DataArray) -> None:
    many = product.isel(time=slice(36)).spline.fit(BASES, penalty=PENALTY, holder="time")
    scores, jackknife = (many.stderr(GRID, method=m) for m in ("scores", "jackknife"))
    np.testing.assert_allclose(scores, jackknife, rtol=0.02)


@pytest.mark.slow
def test_scores_of_errors_that_remember_are_those_of_innovations() -> None:
    data, space, rho = ar1.grid(), ar1.agreed(), 0.6
    field = xs.fit(data, space, penalty=0, errors=xs.AR1("time", rho), holder="time.year")
    time, lat = (
        f.design(space.to_float(n, data[n].values)) for n, f in zip(space.names, space.features, strict=True)
    )
    phi, y, years = [], [], []  # of which one without the last one's share is independent of those before
    for j in range(data.sizes["lat"]):
        known = np.flatnonzero(np.isfinite(data.values[:, j]))
        full, u, last = np.kron(time, lat[j]), data.values[:, j] - 290, -100
        for i in known:
            q = rho ** (i - last) if i - last <= ar1.LAGS else 0.0
            scale = np.sqrt(1 - q**2)
            phi.append((full[i] - (q * full[last] if q else 0)) / scale)
            y.append((u[i] - (q * u[last] if q else 0)) / scale)
            years.append(i // 12)
            last = i
    phi, y, years = (np.array(own) for own in (phi, y, years))
    c, total = np.linalg.lstsq(phi, y, rcond=None)[0], 0.0
    for own in (years == year for year in range(8)):
        x = np.linalg.solve(phi[~own].T @ phi[~own], phi[own].T @ (y - phi @ c)[own])
        total = total + 7 / 8 * np.outer(x, x)
    at = {"time": ar1.TIME[[3, 50]], "lat": data.lat.values[[1, 4]]}
    rows_at = np.kron(time[[3, 50]], lat[[1, 4]])
    expected = np.sqrt(np.einsum("ip,pq,iq->i", rows_at, total, rows_at)).reshape(2, 2)
    np.testing.assert_allclose(field.stderr(at, method="scores"), expected, rtol=1e-9)


# errors="auto"


def alike(rho: float, together: float, seed: int = 0) -> xr.DataArray:
    """Return errors that are AR(1) in time, of which all places share a part."""
    rng = np.random.default_rng(seed)
    shared, own = ar1.noise(rng, rho, MONTHS.size, 1), ar1.noise(rng, rho, MONTHS.size, 12)
    values = (together**0.5 * shared + (1 - together) ** 0.5 * own).reshape(-1, 3, 4)
    coords = {"time": MONTHS, "lat": [0.0, 5.0, 10.0], "lon": [0.0, 5.0, 10.0, 15.0]}
    return xr.DataArray(values, coords, tuple(coords), "u")


PLANE = {"time": ar1.SEASON, "lat": xs.Polynomial(1), "lon": xs.Polynomial(1)}
PLACE = {"time": MONTHS[50], "lat": 5.0, "lon": 5.0}


@pytest.mark.slow
def test_auto_takes_scores_of_periods_where_places_share_errors() -> None:
    data = alike(0.6, 0.5)
    field = xs.fit(data, PLANE, errors="auto")
    said = field.summary()
    assert said.errors.startswith(
        "AR(1) along time, and alike within 16 parts as long as 2001-04-01 to 2001-12-01"
    )
    assert abs(said.ar1 - 0.6) < 0.1 and not any("neighbours" in f.text for f in field.check().concerns["u"])
    error = field.stderr(PLACE)
    assert error.attrs["method"] == "scores" and error.attrs["degrees_of_freedom"] == 15
    assert error > 2 * field.stderr(PLACE, method="exact")
    xr.testing.assert_identical(error.drop_attrs(), field.stderr(PLACE, method="scores").drop_attrs())
    half = (field.interval(PLACE).upper - field.interval(PLACE).lower) / 2
    np.testing.assert_allclose(half, stats.t.ppf(0.975, 15) * error, rtol=1e-9)
    mean = field.sample(400, seed=0).predict(PLACE).std("sample")
    np.testing.assert_allclose(mean, error, rtol=scatter.FIVE * scatter.of_deviation(400))


@pytest.mark.slow
def test_auto_is_independent_where_residuals_show_nothing() -> None:
    field = xs.fit(alike(0.0, 0.0), PLANE, errors="auto")
    assert field.summary().errors == "AR(1) along time; nothing that they share beyond"
    assert abs(field.summary().ar1) < 0.1 and field.stderr(PLACE).attrs["method"] == "exact"


def test_auto_of_one_series_is_ar1() -> None:
    series = alike(0.6, 1.0)[:, 0, 0]
    field, own = (xs.fit(series, time=ar1.SEASON, errors=e) for e in ("auto", xs.AR1("time")))
    assert len(field.statistics.parts) == 1
    np.testing.assert_array_equal(field.stderr(), own.stderr())


def test_auto_of_a_series_in_another_order_asks_for_that_of_time() -> None:
    series = alike(0.6, 0.5).isel(lat=0, lon=0, drop=True)[::-1]
    with pytest.raises(
        ValueError, match=r"errors='auto': the labels of 'time' do not ascend.*data.sortby\('time'\)"
    ):
        xs.fit(series, time=ar1.SEASON, errors="auto")


@pytest.mark.slow
def test_auto_of_irregular_times_takes_scores_alone() -> None:
    data = alike(0.6, 0.5).isel(time=np.sort(np.random.default_rng(0).permutation(144)[:60]))
    points = data.stack(point=("time", "lat", "lon")).reset_index("point")
    for own in (data, points):
        field = xs.fit(own, PLANE, errors="auto")
        assert re.match("independent, and alike within (8|16) parts", field.summary().errors)
        assert "ar1" not in field.summary() and field.stderr(PLACE).attrs["method"] == "scores"


@pytest.fixture(scope="module")
def institutions() -> tuple[xr.DataArray, xs.Statistics, xs.Statistics]:
    """Data whose errors are alike in space and time, and the statistics of their two halves."""
    data = alike(0.6, 0.5)
    space = xs.space(data, PLANE)
    west, east = (
        xs.statistics(data.isel(lon=lon), space, holder=name, errors="auto")
        for name, lon in (("west", slice(0, 2)), ("east", slice(2, 4)))
    )
    return data, west, east


@pytest.mark.slow
def test_auto_of_institutions_that_merge_is_that_of_all_data(institutions) -> None:
    data, west, east = institutions
    west = xs.Statistics.from_dataset(west.to_dataset())
    merged, whole = (west + east).solve(), xs.fit(data, east.space, errors="auto")
    np.testing.assert_allclose(merged.stderr(PLACE), whole.stderr(PLACE), rtol=1e-8)
    assert merged.stderr(PLACE).attrs["degrees_of_freedom"] == 15
    assert "west 1990-01-01 to" in str(merged.statistics)
    opened = xs.Field.from_dataset(whole.to_dataset())
    np.testing.assert_allclose(opened.stderr(PLACE), whole.stderr(PLACE), rtol=1e-12)


def test_what_does_not_go_with_auto_is_said() -> None:
    data = alike(0.0, 0.0)
    with pytest.raises(
        ValueError, match=r"errors='auto' takes periods of time apart.*there are lat, lon.*holder="
    ):
        xs.fit(data, lat=xs.Polynomial(1), lon=xs.Polynomial(1), time=None, errors="auto")
    with pytest.raises(ValueError, match=r"takes periods of 'time' apart.*has a B-spline.*Fourier"):
        xs.fit(data[:, 0, 0], time=xs.BSpline(9), errors="auto")
    with pytest.raises(TypeError, match=r"errors='ar1' has to be an xs\.AR1.*or \"auto\""):
        xs.fit(data, PLANE, errors="ar1")
    with pytest.raises(ValueError, match="errors='auto' does not go with compute=False"):
        xs.fit(data, PLANE, errors="auto", compute=False)
    with pytest.raises(ValueError, match="there is nothing to leave out: the statistics have 1 part"):
        xs.fit(data, PLANE).stderr(PLACE, method="scores")


@pytest.mark.slow
def test_a_total_keeps_the_periods_that_error_bars_follow_from(institutions) -> None:
    data, west, east = institutions
    whole = west + east
    total = xs.Statistics.from_dataset(whole.collapse("both").to_dataset())
    assert len(total.parts) == len(whole.periods) == len(whole.parts) // 2
    assert total.parts[0].holder.startswith("both 1990-01-01 to")
    expected, found = (s.solve().stderr(PLACE) for s in (whole, total))
    assert found.item() == pytest.approx(expected.item(), rel=1e-9) and found.method == "scores"
    with pytest.raises(ValueError, match="both count the part"):
        total + west
    alone = whole.collapse(periods=False)
    assert len(alone.parts) == 1 and alone.solve().stderr(PLACE).method == "exact"
    named = xs.statistics(data.mean(["lat", "lon"]), time=ar1.SEASON, errors="auto", holder="time.year")
    with pytest.warns(xs.FitWarning, match="total has none: error bars of its fields take errors as indep"):
        named.collapse()
