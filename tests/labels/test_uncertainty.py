"""Error bars against their dense definition, by every method, for every kind of target."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
import xarray as xr

import xspline as xs
from tests import scatter
from tests.products import BASES, SEASONS, rows, sst, stderr_of

PENALTY = xs.Roughness({"lat": 1e-2, "lon": 3e-2})


@pytest.fixture(scope="module")
def field(product: xr.DataArray) -> xs.Field:
    return product.spline.fit(BASES, penalty=PENALTY, holder="time.year")


def dense_covariance(field: xs.Field, data: xr.DataArray) -> np.ndarray:
    """Return σ̂² (G + Λ)⁻¹, [P, P], from rows of Φ."""
    space, penalty = field.space, field.penalty.gram(field.space).to_dense(field.space.frame)
    seen = np.isfinite(data.values.ravel())
    phi, y = rows(data, space, slice(None))[seen], data.values.astype(float).ravel()[seen]
    inverse = np.linalg.inv(phi.T @ phi + penalty)
    edf = np.trace(inverse @ phi.T @ phi)
    residual = y - phi @ (inverse @ (phi.T @ y))
    return residual @ residual / (len(y) - edf) * inverse


def design(field: xs.Field, at: xr.Dataset, **orders: int) -> np.ndarray:
    """Return rows of Φ, or of a derivative of it, at a grid (time, lat, lon): [time, lat, lon, P]."""
    space = field.space
    parts = {
        name: f.design(space.to_float(name, at[name].values), orders.get(name, 0))
        for name, f in zip(space.names, space.features, strict=True)
    }
    phi = np.einsum("ak,bl,cm->cabklm", parts["lat"], parts["lon"], parts["time"])
    return phi.reshape(*phi.shape[:3], -1)


def expected(field: xs.Field, data: xr.DataArray, at: xr.Dataset, **orders: int) -> np.ndarray:
    phi = design(field, at, **orders)
    return np.sqrt(np.einsum("...i,ij,...j->...", phi, dense_covariance(field, data), phi))


GRID = xr.Dataset(
    coords={
        "time": np.array(["2000-05-17", "2001-02-03"], dtype="datetime64[ns]"),
        "lat": [-20.0, -3.3, 14.9],
        "lon": [150.0, 171.7, 190.2, 209.9],
    }
)


@pytest.mark.parametrize("orders", [{}, {"lat": 1}, {"lon": 2}, {"lat": 1, "time": 1}])
def test_standard_errors_are_the_dense_ones(
    field: xs.Field, product: xr.DataArray, orders: dict[str, int]
) -> None:
    errors = stderr_of(field.derivative(GRID, orders, stderr=True)) if orders else field.stderr(GRID)
    np.testing.assert_allclose(
        errors.transpose("time", "lat", "lon"), expected(field, product, GRID, **orders), rtol=1e-9
    )


def test_names_units_and_what_is_assumed(field: xs.Field) -> None:
    plain, slope = field.stderr(GRID), stderr_of(field.derivative(GRID, lat=1, stderr=True))
    assert (plain.name, plain.attrs["units"]) == ("sst_stderr", "degC")
    assert plain.attrs["long_name"] == "standard error of sea surface temperature"
    assert plain.attrs["comment"] == "assumes independent errors" and plain.attrs["method"] == "exact"
    assert (slope.name, slope.attrs["units"]) == ("dsst_dlat_stderr", "degC degrees_north-1")
    assert slope.attrs["long_name"].startswith("standard error of derivative of sea surface temperature")


def test_on_the_data_points_and_outside(field: xs.Field, product: xr.DataArray) -> None:
    everywhere = field.stderr()
    assert everywhere.shape == product.shape and np.isfinite(everywhere).all()
    points = {n: xr.DataArray(GRID[n].values[:2], dims="ship") for n in ("lat", "lon")}
    at_points = field.stderr(time=GRID.time, **points)
    outer = field.stderr(GRID)
    np.testing.assert_allclose(at_points.isel(ship=1), outer.isel(lat=1, lon=1), rtol=1e-12)
    assert np.isnan(field.stderr(lat=50.0, lon=170.0, time="2000-06-01"))


def test_lazy_targets_give_lazy_errors(field: xs.Field) -> None:
    lazy = field.stderr(GRID, chunks={"lat": 2, "lon": 2, "time": 1})
    assert isinstance(lazy.data, da.Array) and lazy.data.numblocks == (2, 2, 2)
    np.testing.assert_array_equal(lazy.compute(), field.stderr(GRID))


def test_gradients_carry_their_errors(field: xs.Field) -> None:
    flat = field.gradient(at=GRID, stderr=True)
    assert set(flat.data_vars) == {"dsst_dlat", "dsst_dlon", "dsst_dlat_stderr", "dsst_dlon_stderr"}
    np.testing.assert_array_equal(
        flat.dsst_dlon_stderr, stderr_of(field.derivative(GRID, lon=1, stderr=True))
    )
    sphere = field.gradient(at=GRID, geometry="sphere", stderr=True)
    # A metric scales a derivative and its error alike.
    np.testing.assert_allclose(
        sphere.dsst_dlon_stderr / flat.dsst_dlon_stderr, abs(sphere.dsst_dlon / flat.dsst_dlon), rtol=1e-12
    )
    assert sphere.dsst_dlon_stderr.attrs["units"] == "degC m-1"
    both = field.derivative(GRID, lat=1, stderr=True)
    assert list(both.data_vars) == ["dsst_dlat", "dsst_dlat_stderr"]
    np.testing.assert_array_equal(both.dsst_dlat_stderr, flat.dsst_dlat_stderr)


@pytest.mark.slow
def test_values_and_laplacians_carry_their_errors(field: xs.Field) -> None:
    both = field.predict(GRID, stderr=True)
    assert list(both.data_vars) == ["sst", "sst_stderr"]
    np.testing.assert_array_equal(both.sst_stderr, field.stderr(GRID))
    jackknife = field.predict(GRID, stderr=True, method="jackknife").sst_stderr
    np.testing.assert_array_equal(jackknife, field.stderr(GRID, method="jackknife"))
    sphere = field.laplacian(GRID, geometry="sphere", stderr=True)
    assert list(sphere.data_vars) == ["sst_laplacian", "sst_laplacian_stderr"]
    error = sphere.sst_laplacian_stderr
    assert (
        error.units == "degC m-2" and error.attrs["draws"] == 800 and error.dims == sphere.sst_laplacian.dims
    )
    drawn = field.sample(800, seed=1).laplacian(GRID, geometry="sphere").std("sample")
    np.testing.assert_allclose(error, drawn, rtol=2 * scatter.FIVE * scatter.of_deviation(800))
    lazy = field.laplacian(GRID, geometry="sphere", stderr=True, chunks={"time": 1}).sst_laplacian_stderr
    assert lazy.chunks
    np.testing.assert_allclose(lazy, error, rtol=1e-9)
    one = field.laplacian(GRID, dims="lat", stderr=True).sst_laplacian_stderr
    np.testing.assert_allclose(one, stderr_of(field.derivative(GRID, {"lat": 2}, stderr=True)), rtol=1e-12)
    with pytest.raises(ValueError, match="Laplacian over several coordinates is known from draws"):
        field.laplacian(GRID, geometry="sphere", stderr=True, method="exact")
    with pytest.raises(
        ValueError, match="method='jackknife' is of the standard error, which takes stderr=True"
    ):
        field.predict(GRID, method="jackknife")


def test_beside_a_fine_field_the_error_of_a_laplacian_is_a_bound() -> None:
    x = np.linspace(0, 1, 12)
    values = np.sin(4 * x)[:, None] * x + 0.01 * np.random.default_rng(0).standard_normal((12, 12))
    data = xr.DataArray(values, {"x": x, "y": x}, ("x", "y"), "u")
    field, at = data.spline.fit(), {"x": [0.2, 0.5], "y": [0.4]}
    bound = field.laplacian(at, stderr=True).u_laplacian_stderr
    parts = [stderr_of(field.derivative(at, {name: 2}, stderr=True)) for name in "xy"]
    np.testing.assert_allclose(bound, parts[0] + parts[1])
    assert "at most" in bound.attrs["comment"] and bound.attrs["long_name"].startswith("standard error of")


def test_the_trend_alone_has_its_own_error(field: xs.Field, product: xr.DataArray) -> None:
    trend = field.select(time=xs.Polynomial)
    keep = field.space.basis("time").select(xs.Polynomial)
    phi = design(field, GRID, time=1) * np.broadcast_to(keep, field.space.shape).ravel()
    dense = np.sqrt(np.einsum("...i,ij,...j->...", phi, dense_covariance(field, product), phi))
    errors = stderr_of(trend.derivative(GRID, time=1, stderr=True)).transpose("time", "lat", "lon")
    np.testing.assert_allclose(errors, dense, rtol=1e-8)


def test_samples_are_fields_along_a_dimension(field: xs.Field) -> None:
    draws = field.sample(400, seed=1)
    values = draws.predict(GRID)
    assert values.dims == ("sample", "time", "lat", "lon") and values.sizes["sample"] == 400
    np.testing.assert_array_equal(field.sample(400, seed=1).predict(GRID), values)
    error = field.stderr(GRID)
    z = (values.mean("sample") - field.predict(GRID)) / (error / 20)
    assert float(abs(z).max()) < scatter.FIVE
    tolerance = scatter.FIVE * scatter.of_deviation(400)
    np.testing.assert_allclose(values.std("sample"), error, rtol=tolerance)
    slopes = draws.derivative(GRID, lat=1).std("sample")
    np.testing.assert_allclose(slopes, stderr_of(field.derivative(GRID, lat=1, stderr=True)), rtol=tolerance)
    trend = field.select(time=xs.Polynomial)
    np.testing.assert_allclose(
        trend.sample(400, seed=1).derivative(GRID, time=1).std("sample"),
        stderr_of(trend.derivative(GRID, time=1, stderr=True)),
        rtol=tolerance,
    )


def test_the_jackknife_is_that_of_refits(field: xs.Field, product: xr.DataArray) -> None:
    years = np.unique(product.time.dt.year)
    fits = [
        product.where(product.time.dt.year != year).spline.fit(field.space, penalty=PENALTY).predict(GRID)
        for year in years
    ]
    stacked = np.stack([f.values for f in fits])
    n = len(years)
    dense = np.sqrt((n - 1) / n * ((stacked - stacked.mean(axis=0)) ** 2).sum(axis=0))
    errors = field.stderr(GRID, method="jackknife")
    np.testing.assert_allclose(errors, dense, rtol=1e-7)
    assert errors.attrs["degrees_of_freedom"] == n - 1 and "independent between" in errors.attrs["comment"]
    slope = stderr_of(field.derivative(GRID, lon=1, method="jackknife", stderr=True))
    assert slope.shape == errors.shape and np.isfinite(slope).all()


def test_batch_members_have_errors_of_their_own() -> None:
    data = sst(months=24, gaps=0.3).expand_dims(member=[1, 2, 3]).copy(deep=True)
    data = data.assign_coords(member=["a", "b", "c"])
    data[1] = data[1].where(data.lat < 10) * 2
    both = data.spline.fit({"lat": 6, "lon": 8, "time": SEASONS}, penalty=PENALTY + xs.Ridge(1e-6))
    for member in data.member.values:
        alone = data.sel(member=member).spline.fit(both.space, penalty=both.penalty)
        np.testing.assert_allclose(both.stderr(GRID).sel(member=member), alone.stderr(GRID), rtol=1e-8)
        draws = both.sample(400, seed=0).predict(GRID).sel(member=member)
        tolerance = scatter.FIVE * scatter.of_deviation(400)
        np.testing.assert_allclose(draws.std("sample"), alone.stderr(GRID), rtol=tolerance)


def test_stderr_and_sample_refuse_bad_requests(field: xs.Field, product: xr.DataArray) -> None:
    with pytest.raises(ValueError, match="'bootstrap' is unknown; use one of 'exact', 'draws', 'jackknife'"):
        field.stderr(GRID, method="bootstrap")
    with pytest.raises(ValueError, match="number of draws is an integer, at least 1"):
        field.sample(0)
    draws = field.sample(2, seed=0)
    assert isinstance(draws, xs.Draws)
    for name in ("stderr", "summary", "cross_validate", "sample"):
        with pytest.raises(AttributeError, match=f"draws along 'sample', which have no {name}; ask the"):
            getattr(draws, name)
    alone = product.spline.fit(BASES, penalty=PENALTY)
    with pytest.raises(ValueError, match=r'holder="time\.year"'):
        alone.stderr(GRID, method="jackknife")
    with pytest.raises(ValueError, match="have a dimension 'sample' already"):
        product.expand_dims(sample=2).spline.fit(BASES, penalty=PENALTY).sample(2)
    lazy = product.chunk().spline.fit(BASES, penalty=PENALTY, compute=False)
    with pytest.raises(ValueError, match="still lazy"):
        lazy.stderr(GRID)
