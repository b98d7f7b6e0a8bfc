"""What fields hand back: labels, units, names, laziness, derivatives and geometry; they are functions of arrays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import xspline as xs
from tests.products import BASES, sst


@pytest.fixture(scope="module")
def product() -> xr.DataArray:
    return sst(months=24)


@pytest.fixture(scope="module")
def field(product: xr.DataArray) -> xs.Field:
    return product.spline.fit(BASES, penalty=1e-3)


def plane() -> xs.Field:
    """Return a field that is exactly u = 2 + 3x + xy − y²/2 on a plane in metres."""
    x, y = np.linspace(0, 10, 30), np.linspace(-5, 5, 20)
    xx, yy = np.meshgrid(x, y, indexing="ij")
    attrs = {"units": "m"}
    data = xr.DataArray(
        2 + 3 * xx + xx * yy - yy**2 / 2,
        {"x": ("x", x, attrs), "y": ("y", y, attrs)},
        ("x", "y"),
        "u",
        {"units": "K"},
    )
    return data.spline.fit(x=6, y=7, penalty=0)


def globe() -> tuple[xs.Field, xr.Dataset]:
    """Return a fit of cos φ cos λ + sin φ, whose Laplacian on the unit sphere is −2 times itself, and a grid."""
    lat, lon = np.linspace(-90, 90, 91), np.arange(0.0, 360.0, 3.0)
    phi, lam = np.deg2rad(lat)[:, None], np.deg2rad(lon)[None, :]
    coords = {"lat": ("lat", lat, {"units": "degrees_north"}), "lon": ("lon", lon, {"units": "degrees_east"})}
    data = xr.DataArray(np.cos(phi) * np.cos(lam) + np.sin(phi), coords, ("lat", "lon"), "u", {"units": "1"})
    grid = xr.Dataset(coords={"lat": np.linspace(-80, 80, 33), "lon": np.linspace(5, 355, 36)})
    return data.spline.fit(lat=xs.BSpline(40, degree=5), lon=xs.BSpline(60, degree=5), penalty=0), grid


def test_own_grid_keeps_labels_name_units_and_no_encoding(product: xr.DataArray, field: xs.Field) -> None:
    predicted = field.predict()
    assert predicted.dims == product.dims and predicted.name == "sst"
    for dim in product.dims:
        xr.testing.assert_identical(predicted[dim], product[dim])
    assert predicted.attrs["units"] == "degC" and predicted.attrs["long_name"] == "sea surface temperature"
    assert "xspline" in predicted.attrs["history"]
    assert predicted.attrs["standard_name"] == "sea_surface_temperature"
    assert "standard_name" not in field.derivative(time=1).attrs | field.stderr(product[:1]).attrs
    assert isinstance(predicted.data, np.ndarray) and np.isfinite(predicted).all(), "land is filled"


def test_outer_grid_scalars_and_strings(field: xs.Field) -> None:
    line = field.predict(lat=[0.0, 5.0], lon=200.0, time="2000-06-15")
    assert line.dims == ("lat",) and float(line.lon) == 200.0
    assert line.time.dtype.kind == "M" and line.time.values == np.datetime64("2000-06-15")
    grid = field.predict(lat=[0.0, 5.0], lon=[200.0, 201.0, 202.0], time=["2000-06", "2001"])
    assert grid.dims == ("time", "lat", "lon") and grid.shape == (2, 2, 3)
    assert list(grid.time.dt.year) == [2000, 2001]
    np.testing.assert_allclose(field.predict(lat=0.0, lon=200.0, time=np.datetime64("2000-06-15")), line[0])


def test_points_share_a_dimension(field: xs.Field) -> None:
    lat = xr.DataArray([0.0, 3.0, -7.0], dims="ship")
    lon = xr.DataArray([160.0, 170.0, 180.0], dims="ship")
    points = field.predict(lat=lat, lon=lon)
    assert points.dims == ("time", "ship")
    outer = field.predict(lat=lat.values, lon=lon.values)
    for i in range(3):
        np.testing.assert_allclose(points[:, i], outer[:, i, i], rtol=1e-13)


def test_another_object_gives_coordinates_else_variables(field: xs.Field) -> None:
    lat, lon = np.meshgrid(np.linspace(-10, 10, 4), np.linspace(160, 200, 5), indexing="ij")
    curvilinear = xr.Dataset(
        {"lat": (("y", "x"), lat)}, {"lon": (("y", "x"), lon), "area": (("y", "x"), lat * 0)}
    )
    predicted = field.predict(curvilinear, time="2000-06")
    assert predicted.dims == ("y", "x") and "area" in predicted.coords
    np.testing.assert_allclose(predicted[2, 3], field.predict(lat=lat[2, 3], lon=lon[2, 3], time="2000-06"))
    xr.testing.assert_allclose(field.predict({"time": ["2000-06"]}), field.predict(time=["2000-06"]))


def test_lazy_when_the_target_is_and_chunked_like_it(product: xr.DataArray, field: xs.Field) -> None:
    target = product.chunk(time=5, lon=10)
    lazy = field.predict(target)
    assert lazy.chunks == target.chunks
    np.testing.assert_allclose(lazy, field.predict(), rtol=1e-14)
    chunked = target.spline.fit(BASES, penalty=1e-3)
    assert chunked.predict().chunks == target.chunks
    assert chunked.derivative(lat=1).chunks == target.chunks
    assert chunked.gradient(geometry="sphere").dsst_dlon.chunks == target.chunks
    chunked = field.predict(chunks={"time": 4})
    assert chunked.chunks[0] == (4,) * 6 and chunked.chunks[1] == (17,)
    assert isinstance(field.predict(lat=[0.0]).data, np.ndarray)


def test_derivatives_of_a_polynomial_are_exact() -> None:
    u = plane()
    x, y = u.predict().x, u.predict().y
    np.testing.assert_allclose(u.derivative(x=1), (3 + y + 0 * x).transpose("x", "y"), atol=1e-10)
    np.testing.assert_allclose(u.derivative(y=1), (x - y).transpose("x", "y"), atol=1e-10)
    np.testing.assert_allclose(u.derivative(x=1, y=1), np.ones((30, 20)), atol=1e-9)
    np.testing.assert_allclose(u.laplacian(), -np.ones((30, 20)), atol=1e-9)
    assert u.derivative(x=1, y=1).name == "d2u_dx_dy" and u.derivative(y=2).name == "d2u_dy2"
    assert u.derivative(x=1).attrs["units"] == "K m-1" and u.laplacian().attrs["units"] == "K m-2"
    assert u.laplacian().name == "u_laplacian"
    gradient = u.gradient()
    assert list(gradient) == ["du_dx", "du_dy"]
    with pytest.raises(TypeError, match=r"gradient\(\) has no argument 'x'; it has at, dims, geometry, "):
        u.gradient(x=1.0)
    assert gradient.du_dx.attrs["long_name"] == "derivative of u with respect to x"


def test_time_derivative_is_per_second(field: xs.Field) -> None:
    time = np.array(["2000-06-01", "2000-06-02"], "datetime64[ns]")
    values = field.predict(lat=0.0, lon=200.0, time=time)
    slope = field.derivative({"lat": 0.0, "lon": 200.0, "time": "2000-06-01T12"}, time=1)
    np.testing.assert_allclose(slope, (values[1] - values[0]) / 86400, rtol=1e-4)
    assert slope.attrs["units"] == "degC s-1"


def test_gradient_on_the_sphere() -> None:
    u, grid = globe()
    gradient = u.gradient(grid, geometry="sphere")
    phi, lam = np.deg2rad(grid.lat), np.deg2rad(grid.lon)
    north = (-np.sin(phi) * np.cos(lam) + np.cos(phi)) / xs.EARTH_RADIUS
    east = (-np.sin(lam) + 0 * phi) / xs.EARTH_RADIUS
    scale = 1 / xs.EARTH_RADIUS
    np.testing.assert_allclose(gradient.du_dlat, north.transpose("lat", "lon"), atol=1e-7 * scale)
    np.testing.assert_allclose(gradient.du_dlon, east.transpose("lat", "lon"), atol=1e-6 * scale)
    assert gradient.du_dlat.attrs["units"] == "m-1"
    assert gradient.du_dlat.attrs["long_name"].startswith("northward")


def test_laplacian_on_the_sphere_two_ways() -> None:
    u, grid = globe()
    got = u.laplacian(grid, geometry="sphere")
    value = u.predict(grid)
    spherical_harmonic_of_degree_1 = -2 * value / xs.EARTH_RADIUS**2
    np.testing.assert_allclose(got, spherical_harmonic_of_degree_1, atol=1e-4 / xs.EARTH_RADIUS**2)
    assert got.attrs["units"] == "m-2"


def test_the_eastward_derivative_is_missing_at_the_poles() -> None:
    u, _ = globe()
    gradient = u.gradient(geometry="sphere")
    assert np.isnan(gradient.du_dlon.sel(lat=[-90, 90])).all()
    assert np.isfinite(gradient.du_dlon.sel(lat=slice(-89, 89))).all()
    assert np.isfinite(gradient.du_dlat).all()


def test_gradient_leaves_out_time_by_default(field: xs.Field) -> None:
    assert list(field.gradient(geometry="sphere")) == ["dsst_dlat", "dsst_dlon"]
    assert field.gradient(geometry="sphere").dsst_dlon.attrs["units"] == "degC m-1"
    assert list(field.gradient(dims=["time"])) == ["dsst_dtime"]
    assert field.gradient().dsst_dlon.attrs["units"] == "degC degrees_east-1"


@pytest.mark.parametrize("units", ["", "degrees"])
def test_a_laplacian_in_the_plane_refuses_latitude_and_longitude(units: str) -> None:
    attrs = {"units": units} if units else {}
    lat, lon = np.linspace(-60, 60, 21), np.linspace(0, 354, 30)
    coords = {"lat": ("lat", lat, attrs), "lon": ("lon", lon, attrs)}
    data = xr.DataArray(np.ones((21, 30)), coords, ("lat", "lon"), "sst", {"units": "degC"})
    field = data.spline.fit(lat=6, lon=8, penalty=1e-3)
    with pytest.raises(ValueError, match=r"degrees of lat and lon are no lengths.*geometry='sphere'"):
        field.laplacian()
    assert np.isfinite(field.laplacian(geometry="sphere")).all()


def test_coefficients_are_labelled(field: xs.Field) -> None:
    c = field.coefficients
    assert c.dims == ("lat_basis", "lon_basis", "time_basis")
    assert list(c.time_basis.values) == ["const", "x1", "cos1", "sin1"]
    lo, hi = -20, 20
    # Greville points of cubic splines are one knot apart.
    np.testing.assert_allclose(np.diff(c.lat_basis), (hi - lo) / 3)
    assert c.attrs["units"] == "degC"


def test_a_space_made_by_hand_takes_units_from_the_data(product: xr.DataArray) -> None:
    space = xs.Space({"lat": xs.BSpline(6, domain=(-20, 20)), "lon": xs.BSpline(8, domain=(150, 210))})
    field = product.isel(time=0).spline.fit(space, penalty=0.1)
    assert field.space == space
    assert field.derivative(lon=1).attrs["units"] == "degC degrees_east-1"
    assert field.gradient(geometry="sphere").dsst_dlon.attrs["units"] == "degC m-1"


def test_a_selection_survives_compute_and_files(product: xr.DataArray, tmp_path: Path) -> None:
    lazy = product.chunk(time=6).spline.fit(BASES, penalty=1e-3, compute=False).select(time=xs.Polynomial)
    trend = product.spline.fit(BASES, penalty=1e-3).select(time=xs.Polynomial)
    np.testing.assert_allclose(lazy.compute().predict(product), trend.predict(), rtol=1e-11)
    np.testing.assert_allclose(lazy.persist().compute().predict(product), trend.predict(), rtol=1e-11)
    trend.to_netcdf(tmp_path / "trend.nc")
    again = xs.open_field(tmp_path / "trend.nc")
    xr.testing.assert_equal(again.predict(), trend.predict())
    assert "time=Polynomial" in again.predict().attrs["long_name"]


def test_lazy_results_of_one_field_are_computed_together(product: xr.DataArray) -> None:
    field = product.chunk(time=6).spline.fit(BASES, penalty=1e-3, compute=False)
    both = xr.Dataset({"a": field.predict().sum("lat"), "b": field.derivative(lat=1).sum("lat")}).compute()
    now = field.compute()
    np.testing.assert_allclose(both.a, now.predict(product).sum("lat"), rtol=1e-11)
    np.testing.assert_allclose(both.b, now.derivative(product, lat=1).sum("lat"), atol=1e-9)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda f: f.predict(latt=0.0), r"no fitted coordinate 'latt'; did you mean 'lat'\?"),
        (lambda f: f.predict(lat=slice(0, 5)), r"lat=slice.* is a slice; pass the labels themselves"),
        (lambda f: f.predict(lat=np.zeros((2, 2))), "array of 2 dimensions without names"),
        (lambda f: f.derivative(lat=4), r"order 4 along 'lat' is above the degree 3.*of higher degree"),
        (lambda f: f.derivative(lat=-1), "order of the derivative along 'lat' is -1"),
        (lambda f: f.derivative(lat=1.5), r"order of the derivative along 'lat' is 1\.5"),
        (lambda f: f.derivative(lat=0), "no derivative asked for"),
        (lambda f: f.derivative(depth=1), r"no fitted coordinate 'depth'"),
        (lambda f: f.derivative(None, {"lat": 1}, lon=1), "both as a mapping"),
        (lambda f: f.gradient(geometry="torus"), "geometry='torus' is unknown; use 'plane' or 'sphere'"),
        (lambda f: f.laplacian(), r"degrees of lat and lon are no lengths, .* geometry=.sphere."),
        (
            lambda f: f.gradient(dims=["lat"], geometry="sphere"),
            r"needs a latitude and a longitude among \['lat'\]",
        ),
        (lambda f: plane().gradient(geometry="sphere"), "needs a latitude and a longitude"),
        (lambda f: f.gradient(dims=["lat", "lat"]), "names a coordinate twice"),
        (
            lambda f: f.laplacian(dims=["lat", "lon", "time"], geometry="sphere"),
            r"not \['time'\]; pass dims=",
        ),
        (lambda f: f.select(lat=xs.Fourier), r"'lat' has no term Fourier; its basis is"),
        (lambda f: f.select(tim=xs.Fourier), "no fitted coordinate 'tim'"),
        (lambda f: f["salt"], "no fitted variable 'salt'"),
    ],
)
def test_what_is_refused(field: xs.Field, call: Callable[[xs.Field], object], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        call(field)


def test_unnamed_data_are_called_field() -> None:
    data = xr.DataArray(np.arange(20.0), {"x": np.arange(20.0)}, "x")
    assert data.spline.fit(x=5, penalty=0).predict().name == "field"
    assert data.spline.fit(x=5, penalty=0).derivative(x=1).name == "dfield_dx"


# As a function of arrays, in `apply_ufunc` of NumPy and of Dask

X, Y = np.linspace(0, 3, 20), np.linspace(0, 2, 16)


@pytest.fixture(scope="module")
def curves() -> xs.Field[xr.DataArray]:
    values = np.sin(X)[:, None] * np.cos(Y)
    return xr.DataArray(values, {"x": X, "y": Y}, ("x", "y"), "u").spline.fit(x=12, y=10, penalty=0)


def test_arrays_are_points_by_the_rules_of_broadcasting(curves: xs.Field[xr.DataArray]) -> None:
    a, b = np.array([[0.1], [1.0], [5.0]]), np.array([0.2, 0.3])
    values = curves(a, b)
    assert values.shape == (3, 2) and np.isnan(values[2]).all()
    np.testing.assert_allclose(values[:2], curves.predict(x=[0.1, 1.0], y=[0.2, 0.3]), rtol=1e-14)
    assert curves(0.1, 0.2) == pytest.approx(values[0, 0], rel=1e-14)


@pytest.mark.parametrize("chunks", [None, {"time": 2}])
def test_apply_ufunc_takes_a_curves(curves: xs.Field[xr.DataArray], chunks: dict[str, int] | None) -> None:
    track = xr.Dataset({"x": ("time", [0.1, 1.0, 2.0, 2.9]), "y": ("time", [0.2, 0.3, 1.0, 1.9])}).chunk(
        chunks or {}
    )
    called = xr.apply_ufunc(curves, track.x, track.y, dask="parallelized", output_dtypes=[float])
    assert called.dims == ("time",) and (called.chunks is not None) == (track.x.chunks is not None)
    np.testing.assert_array_equal(called, curves.predict(track))
    np.testing.assert_array_equal(curves(track.x, track.y), curves.predict(track))


def test_independent_fits_are_behind(curves: xs.Field[xr.DataArray]) -> None:
    assert curves.sample(3, seed=0)(np.zeros(5), 1.0).shape == (5, 3)


def test_labels_that_do_not_go_with_the_coordinates_are_refused(curves: xs.Field[xr.DataArray]) -> None:
    with pytest.raises(TypeError, match=r"\(x, y\) takes labels of each .* in this order, and 1 were given"):
        curves(np.zeros(3))
    both = xr.Dataset({n: ("x", np.sin(X)) for n in "uv"}, {"x": X}).spline.fit(x=8, penalty=0.1)
    with pytest.raises(TypeError, match=r"a field of u, v; by name: field.predict\(x=...\).* field\['u'\]"):
        both(np.zeros(3))
