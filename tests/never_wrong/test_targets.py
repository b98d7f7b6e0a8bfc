"""Where a field is evaluated: what is not recognised is never ignored, and there is nothing where nothing is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import interpolate

import xspline as xs
from tests.products import SEASONS, sst, stderr_of

DOORS: dict[str, Callable[..., Any]] = {
    "predict": lambda f, at: f.predict(at),
    "derivative": lambda f, at: f.derivative(at, {f.space.names[0]: 1}),
    "gradient": lambda f, at: f.gradient(at).to_array(),
    "laplacian": lambda f, at: f.laplacian(at, dims=f.space.names[0]),
    "stderr": lambda f, at: f.stderr(at),
    "derivative with stderr": lambda f, at: stderr_of(f.derivative(at, {f.space.names[0]: 1}, stderr=True)),
    "jackknife": lambda f, at: f.stderr(at, method="jackknife"),
    "draws": lambda f, at: f.sample(2, seed=0).predict(at),
}


def line(seed: int = 0) -> xs.Field:
    """Return a field over `t` with two holders."""
    t = np.linspace(0.0, 10.0, 60)
    y = np.sin(t) + 0.1 * np.random.default_rng(seed).standard_normal(60)
    data = xr.DataArray(y, {"t": t}, "t", "u")
    holder = xr.DataArray(np.arange(60) % 2, dims="t")
    return data.spline.fit(t=10, penalty=1e-3, holder=holder)


@pytest.fixture(scope="module")
def series() -> xs.Field:
    return line()


def sea(lat: str = "latitude", lon: str = "longitude", attrs: bool = True) -> xr.DataArray:
    """Return values over latitude and longitude under some names."""
    y, x = np.linspace(-30.0, 30.0, 21), np.linspace(100.0, 160.0, 25)
    units = {lat: {"units": "degrees_north"}, lon: {"units": "degrees_east"}}
    coords = {lat: (lat, y, units[lat] if attrs else {}), lon: (lon, x, units[lon] if attrs else {})}
    values = np.cos(np.deg2rad(y))[:, None] * np.sin(np.deg2rad(3 * x))
    return xr.DataArray(values, coords, (lat, lon), "sst")


@pytest.fixture(scope="module")
def basin() -> xs.Field:
    holder = xr.DataArray(np.arange(21) % 3, dims="latitude")
    return sea().spline.fit(latitude=7, longitude=8, penalty=1e-3, holder=holder)


def elsewhere(lat: str = "lat", lon: str = "lon", attrs: bool = True) -> xr.Dataset:
    y, x = np.linspace(-20.0, 20.0, 5), np.linspace(110.0, 150.0, 6)
    coords = {lat: (lat, y), lon: (lon, x)}
    target = xr.Dataset({"ice": ((lat, lon), np.zeros((5, 6)))}, coords)
    if attrs:
        target[lat].attrs["units"], target[lon].attrs["units"] = "degrees_north", "degrees_east"
    return target


UNNAMED: dict[str, Callable[[], Any]] = {
    "list": lambda: [3.5, 7.25],
    "tuple": lambda: (3.5, 7.25),
    "array": lambda: np.array([3.5, 7.25]),
    "number": lambda: 3.5,
    "text": lambda: "2016",
    "index": lambda: pd.Index([3.5, 7.25], name="t"),
    "series": lambda: pd.Series([3.5, 7.25], name="t"),
    "variable": lambda: xr.Variable("t", [3.5, 7.25]),
    "dask": lambda: da.ones(3),
    "groupby": lambda: sst(months=12).groupby("time.season"),
}


@pytest.mark.parametrize("kind", UNNAMED)
def test_labels_without_a_name_are_refused(series: xs.Field, kind: str) -> None:
    with pytest.raises(TypeError, match=r"does not say which coordinate.*predict\(t=.*DataFrame"):
        series.predict(UNNAMED[kind]())


@pytest.mark.parametrize("door", DOORS)
def test_every_door_refuses_labels_without_a_name(series: xs.Field, basin: xs.Field, door: str) -> None:
    with pytest.raises(TypeError, match=r"at= is of type list.*predict\(t=\[\.\.\.\]\)"):
        DOORS[door](series, [3.5, 7.25])
    with pytest.raises(TypeError, match=r"at=dict\(latitude=\[\.\.\.\], longitude=\[\.\.\.\]\)"):
        DOORS[door](basin, np.zeros(3))


@pytest.mark.parametrize("door", DOORS)
def test_a_table_gives_points_along_its_rows(series: xs.Field, door: str) -> None:
    table = pd.DataFrame({"t": [3.5, 7.25], "u": [1.0, 2.0]}, index=pd.Index(["a", "b"], name="buoy"))
    result = DOORS[door](series, table)
    assert result.dims[-1] == "buoy" and list(result.buoy.values) == ["a", "b"]
    expected = DOORS[door](series, {"t": [3.5, 7.25]})
    np.testing.assert_array_equal(result.values, expected.values)
    np.testing.assert_array_equal(result.t, [3.5, 7.25])


def test_a_table_of_several_columns_is_points_not_a_grid(basin: xs.Field) -> None:
    table = pd.DataFrame({"latitude": [0.0, 5.0, 9.0], "longitude": [110.0, 120.0, 130.0]})
    points = basin.predict(table)
    grid = basin.predict(latitude=[0.0, 5.0, 9.0], longitude=[110.0, 120.0, 130.0])
    assert points.dims == ("index",)
    np.testing.assert_allclose(points, np.diag(grid), atol=1e-13)
    levels = table.set_index(["latitude", "longitude"])
    np.testing.assert_array_equal(basin.predict(levels), points)
    by_row = table.set_index("latitude", drop=False)
    assert basin.predict(by_row).dims == ("latitude",)
    np.testing.assert_array_equal(basin.predict(by_row), points)


@pytest.mark.parametrize("header", ["latitude (degrees_north)", "latitude (radian)", "breite"])
def test_a_table_gives_every_coordinate_or_is_refused(basin: xs.Field, header: str) -> None:
    """Units in its headers are those of its columns; fitted labels are not crossed with its rows."""
    table = pd.DataFrame({"latitude": [0.0, 5.0, 9.0], "longitude": [110.0, 120.0, 130.0]})
    scale = np.pi / 180 if "radian" in header else 1.0
    other = table.assign(latitude=table.latitude * scale).rename(columns={"latitude": header})
    if header == "breite":
        message = (
            r"no column for 'latitude' \(it has 'breite', 'longitude'\), and a row is one.*'latitude'}\)"
        )
        with pytest.raises(ValueError, match=message):
            basin.predict(other)
        assert basin.predict(other, latitude=[0.0, 5.0]).sizes == {"latitude": 2, "index": 3}
    else:
        np.testing.assert_allclose(basin.predict(other), basin.predict(table), atol=1e-13)


def test_a_tuple_is_labels_along_a_dimension_as_xarray_writes_it(series: xs.Field) -> None:
    expected = series.predict(t=[1.0, 2.0])
    for at in ({"t": ("pt", [1.0, 2.0])}, {"t": ("pt", np.array([1.0, 2.0]), {"long_name": "time"})}):
        result = series.predict(at)
        assert result.dims == ("pt",) and result.t.dims == ("pt",)
        np.testing.assert_array_equal(result.values, expected.values)
    assert series.predict(t=(1.0, 2.0)).dims == ("t",)


def test_labels_without_attributes_get_those_of_the_fit() -> None:
    x = ("x", np.arange(9.0), {"units": "km", "long_name": "distance", "bounds": "x_bounds"})
    field = xr.DataArray(np.arange(9.0), {"x": x}, "x", "u").spline.fit(x=5)
    for labels in ([1.0, 2.0], (1.0, 2.0), np.array([1.0, 2.0]), 1.0):
        assert field.predict(x=labels).x.attrs == {"units": "km", "long_name": "distance"}
    metres = xr.Variable("x", [1000.0], {"units": "m"})
    assert field.predict(x=metres).x.attrs == {"units": "m"}
    inches = field.predict(x=xr.DataArray([1.0], dims="x"))
    assert inches.x.attrs == {}
    np.testing.assert_allclose(field.predict(x=metres).values, field.predict(x=[1.0]).values)


def test_units_of_other_data_than_the_space_are_no_units_of_plain_labels() -> None:
    """Plain labels are in the units of the space."""
    x = np.arange(9.0)
    km = xr.DataArray(x, {"x": ("x", x, {"units": "km"})}, "x", "u")
    m = km.assign_coords(x=("x", 1000 * x, {"units": "m"}))
    field = m.spline.fit(km.spline.space(x=5))
    np.testing.assert_allclose(field.predict(x=[1.0, 2.0]), [1.0, 2.0], atol=1e-6)
    assert field.predict(x=[1.0, 2.0]).x.attrs.get("units", "km") == "km"


@pytest.mark.parametrize(
    "text", ["2000-06-01T02:00+02:00", "2000-05-31 20:30:00 -0330", "20000601T02+02", "2000-06-01T00Z"]
)
def test_a_text_with_a_zone_is_that_instant_in_utc(text: str) -> None:
    time = pd.date_range("2000", periods=60, freq="MS")
    field = xr.DataArray(np.sin(np.arange(60)), {"time": time}, name="u").spline.fit(time=8, penalty=1e-3)
    for label in (text, pd.Timestamp(text)):
        assert field.predict(time=label).time == np.datetime64("2000-06-01", "ns")
    with pytest.raises(ValueError, match=r"'2000-06-01T02:00\+25:00' is not an ISO date"):
        field.predict(time="2000-06-01T02:00+25:00")


@pytest.mark.parametrize(
    "read", [list, pd.Series, lambda t: {"time": t}, lambda t: t.strftime("%Y-%m-%dT%HZ")]
)
def test_times_of_a_zone_and_texts_become_instants_in_utc(read: Callable[[pd.DatetimeIndex], Any]) -> None:
    time = pd.date_range("2000", periods=60, freq="MS")
    field = xr.DataArray(np.sin(np.arange(60)), {"time": time}, name="u").spline.fit(time=8, penalty=1e-3)
    target = read(time[3:6].tz_localize("UTC"))
    at = xr.Dataset(coords=target) if isinstance(target, dict) else {"time": target}
    assert field.predict(at).time.equals(field.predict(time=time[3:6]).time)


@pytest.mark.parametrize("door", DOORS)
def test_latitude_answers_for_lat_and_says_so(basin: xs.Field, door: str) -> None:
    target = elsewhere()
    with pytest.warns(xs.FitWarning, match=r"'lat' for 'latitude', 'lon' for 'longitude'.*rename\(lat="):
        result = DOORS[door](basin, target)
    assert result.sizes["lat"] == 5 and result.sizes["lon"] == 6
    expected = DOORS[door](basin, target.rename(lat="latitude", lon="longitude"))
    np.testing.assert_array_equal(result.values, expected.values)


def test_several_latitudes_are_not_guessed_among(basin: xs.Field) -> None:
    target = elsewhere().assign_coords(lat_u=("lat", np.zeros(5), {"units": "degrees_north"}))
    with pytest.raises(
        ValueError, match=r"no 'latitude' but several .*latitude: 'lat', 'lat_u'.*rename\(lat="
    ):
        basin.predict(target)


@pytest.mark.parametrize("door", DOORS)
def test_an_object_with_nothing_that_is_fitted_is_refused(
    series: xs.Field, basin: xs.Field, door: str
) -> None:
    with pytest.raises(ValueError, match=r"none of the fitted coordinates t.*did you mean 'tt'"):
        DOORS[door](series, xr.Dataset({"v": ("z", [1.0])}, {"tt": ("z", [3.0])}))
    with pytest.raises(
        ValueError, match=r"none of the fitted coordinates latitude, longitude.*Known: 'depth'"
    ):
        DOORS[door](basin, xr.Dataset(coords={"depth": [0.0, 1.0]}))
    with pytest.raises(ValueError, match=r"none of the fitted coordinates t"):
        DOORS[door](series, pd.DataFrame({"speed": [1.0]}))


def test_dimensions_without_labels_are_refused(series: xs.Field) -> None:
    with pytest.raises(ValueError, match=r"dimension 't' of at= has no labels; pass t=\.\.\."):
        series.predict(xr.DataArray(np.zeros(5), dims="t"))


def test_what_other_labels_do_not_need_is_not_ignored(basin: xs.Field) -> None:
    with pytest.raises(ValueError, match="none of the fitted coordinates latitude, longitude"):
        basin.predict(xr.Dataset(coords={"depth": [0.0]}), latitude=3.0)
    named = elsewhere("y", "x").rename(y="latitude", x="longitude").drop_vars(["latitude", "longitude"])
    lat, lon = np.meshgrid(np.linspace(-20, 20, 5), np.linspace(110, 150, 6), indexing="ij")
    dims = ("latitude", "longitude")  # of a curvilinear grid, without labels
    curvilinear = named.assign_coords(nav_lat=(dims, lat, {"units": "degrees_north"}), lon=(dims, lon))
    with pytest.warns(xs.FitWarning, match="'nav_lat' for 'latitude', 'lon' for 'longitude'"):
        assert basin.predict(curvilinear).dims == dims


def test_a_near_miss_beside_a_match_is_refused() -> None:
    x = np.linspace(0, 1, 20)
    field = xr.DataArray(np.outer(x, x), {"x": x, "y": x}, ("x", "y")).spline.fit(x=5, y=5, penalty=0)
    with pytest.raises(ValueError, match=r"no 'y'; did you mean its 'yy'\?.*rename\(yy='y'\).*drop_vars"):
        field.predict(xr.Dataset(coords={"x": [0.1], "yy": [0.1, 0.2]}))


def test_what_a_target_lacks_keeps_its_fitted_labels(basin: xs.Field) -> None:
    one = xr.Dataset(coords={"latitude": [0.0, 1.0]})
    assert basin.predict(one).shape == (2, 25)
    assert basin.predict({"latitude": [0.0, 1.0]}).shape == (2, 25)
    assert basin.predict(one.coords).shape == (2, 25)
    assert basin.predict({}).shape == (21, 25)


@pytest.mark.parametrize(
    "door", ["predict", "derivative", "gradient", "laplacian", "stderr", "derivative with stderr"]
)
def test_chunks_of_unknown_dimensions_are_refused(basin: xs.Field, door: str) -> None:
    call = getattr(basin, door.removesuffix(" with stderr"))
    arguments: dict[str, Any] = {"orders": {"latitude": 1}} if "derivative" in door else {}
    arguments |= {"stderr": True} if door.endswith(" with stderr") else {}
    arguments |= {"dims": ["latitude"]} if door in ("gradient", "laplacian") else {}
    with pytest.raises(
        ValueError, match=r"no dimension of the result to chunk 'foo'.*'latitude', 'longitude'"
    ):
        call(chunks={"foo": 3}, **arguments)
    with pytest.raises(ValueError, match=r"to chunk 'lat'; did you mean 'latitude'"):
        call(chunks={"lat": 3}, **arguments)
    lazy = call(chunks={"latitude": 4}, **arguments)
    assert lazy.chunks


def fitted(basis: Any, lo: float = 0.0, hi: float = 10.0) -> xs.Field:
    t = np.linspace(lo, hi, 101)
    y = 1 + 0.2 * t + np.sin(2 * np.pi * t / 5)
    return xr.DataArray(y, {"t": t}, "t", "u").spline.fit(t=basis, penalty=1e-6)


RECORDS = {
    "polynomial": lambda: xs.Polynomial(2),
    "trend and season": lambda: xs.Polynomial(1) + xs.Fourier(1, period=5.0),
    "spline": lambda: xs.BSpline(12),
    "spline and season": lambda: xs.BSpline(8) + xs.Fourier(1, period=5.0),
    "trend and periodic spline": lambda: xs.Polynomial(1) + xs.BSpline(8, period=5.0),
}


@pytest.mark.parametrize("kind", RECORDS)
def test_outside_the_record_there_is_nothing(kind: str) -> None:
    field, at = fitted(RECORDS[kind]()), {"t": [-0.001, 0.0, 5.0, 10.0, 10.001]}
    inside = np.array([False, True, True, True, False])
    results = [
        field.predict(at),
        field.derivative(at, t=1),
        field.gradient(at).du_dt,
        field.laplacian(at),
        field.stderr(at),
        stderr_of(field.derivative(at, t=1, stderr=True)),
        field.predict(at, chunks=2).compute(),
        field.predict(t=xr.DataArray(at["t"], dims="t").chunk(t=2)).compute(),
    ]
    for result in results:
        np.testing.assert_array_equal(np.isfinite(result), inside)
    assert np.isfinite(field.predict()).all()


@pytest.mark.parametrize("kind", RECORDS)
def test_extrapolation_is_asked_for(kind: str) -> None:
    field, at = fitted(RECORDS[kind]()), {"t": np.linspace(-3.0, 13.0, 33)}
    values, lazy = field.predict(at, extrapolate=True), field.predict(at, extrapolate=True, chunks=5)
    assert np.isfinite(values).all()
    np.testing.assert_array_equal(lazy, values)
    inside = (values.t >= 0) & (values.t <= 10)
    np.testing.assert_allclose(values[inside], field.predict(at)[inside], rtol=1e-13)
    # The field and its slope go on without a jump.
    ends = field.predict(t=[-1e-9, 0.0, 10.0, 10.0 + 1e-9], extrapolate=True).values
    assert abs(ends[1] - ends[0]) < 1e-7 and abs(ends[3] - ends[2]) < 1e-7
    error = field.stderr(at, extrapolate=True)
    assert np.isfinite(error).all()
    slope = field.derivative(at, t=1, extrapolate=True).values
    steps = (field.predict(t=at["t"] + 1e-5, extrapolate=True).values - values.values) / 1e-5
    np.testing.assert_allclose(slope, steps, atol=1e-2)
    for result in (field.gradient(at, extrapolate=True).du_dt, field.laplacian(at, extrapolate=True)):
        assert np.isfinite(result).all()
    assert np.isfinite(stderr_of(field.derivative(at, {"t": 1}, extrapolate=True, stderr=True))).all()


def test_extrapolated_splines_are_scipys() -> None:
    knots = (0.0, 0.0, 0.0, 0.0, 1.0, 2.5, 2.5, 4.0, 7.0, 10.0, 10.0, 10.0, 10.0)
    at = np.linspace(-4.0, 14.0, 37)
    for basis in (xs.BSpline(12), xs.BSpline(9, degree=2), xs.BSpline(knots=knots)):
        field = fitted(basis)
        bound = field.space.features[0]
        reference = interpolate.BSpline(
            bound.knots, field.coefficients.values, bound.degree, extrapolate=True
        )
        np.testing.assert_allclose(field.predict(t=at, extrapolate=True), reference(at), rtol=1e-9, atol=1e-9)
        slope = field.derivative({"t": at}, t=1, extrapolate=True)
        np.testing.assert_allclose(slope, reference.derivative()(at), rtol=1e-9, atol=1e-9)
    error = field.stderr(t=[10.0, 11.0, 12.0, 14.0], extrapolate=True)
    assert (error.diff("t") > 0).all(), "errors grow outside"


def test_a_polynomial_goes_on_as_itself_in_several_dimensions() -> None:
    def truth(x: Any, y: Any) -> Any:
        return x**3 - 2 * x * y + y**2

    x, y = np.linspace(0, 3, 14), np.linspace(-2, 1, 12)
    coords = {"x": ("x", x, {"units": "m"}), "y": ("y", y, {"units": "m"}), "day": [1, 2]}
    u = truth(x[:, None], y)
    data = xr.DataArray(np.stack([u, -u]), coords, ("day", "x", "y"), "u")
    out = xr.Dataset(coords={"x": np.linspace(-2, 5, 8), "y": np.linspace(-4, 3, 8)})
    drift = xr.Dataset({"x": ("o", out.x.values), "y": ("o", out.y.values[::-1])})
    for basis in ({"x": 6, "y": xs.BSpline(5, degree=2)}, {"x": xs.Polynomial(3), "y": 6}):
        field = data.spline.fit(basis, penalty=0)
        for at in (out, drift):
            values = field.predict(at, extrapolate=True)
            np.testing.assert_allclose(values.sel(day=1), truth(at.x, at.y), atol=1e-9)
            np.testing.assert_allclose(values.sel(day=2), -truth(at.x, at.y), atol=1e-9)
            lazy = field.predict(at, extrapolate=True, chunks=3)
            np.testing.assert_allclose(lazy, values, atol=1e-12)
            laplacian = field.laplacian(at, extrapolate=True).sel(day=1)
            np.testing.assert_allclose(laplacian, 6 * at.x + 2 + 0 * at.y, atol=1e-8)
            assert np.isnan(field.predict(at).isel({at.x.dims[0]: 0})).all()


def test_a_longitude_goes_on_from_the_nearer_end() -> None:
    lon = np.arange(120.0, 281.0, 4.0)
    data = xr.DataArray(lon / 100, {"lon": ("lon", lon, {"units": "degrees_east"})}, "lon", "u")
    for basis in (xs.Polynomial(1), xs.BSpline(8)):
        field = data.spline.fit(lon=basis, penalty=1e-12)
        assert np.isnan(field.predict(lon=[110.0, 290.0, -70.0, 470.0])).all()
        out = field.predict(lon=[110.0, 290.0, -70.0, 470.0, 130.0, -230.0], extrapolate=True)
        np.testing.assert_allclose(out, [1.10, 2.90, 2.90, 1.10, 1.30, 1.30], rtol=1e-6)


def test_every_door_takes_a_mask_and_lazy_results_do() -> None:
    data = sst(months=12)
    field = data.spline.fit({"lat": 12, "lon": 16, "time": SEASONS}, penalty=1e-2)
    expected = field.predict(mask="data").notnull()
    assert not expected.all()
    results = [
        field.derivative(lat=1, mask="data"),
        field.gradient(mask="data").dsst_dlat,
        field.gradient(mask="data", geometry="sphere", stderr=True).dsst_dlon_stderr,
        field.laplacian(dims=["lat", "lon"], geometry="sphere", mask="data"),
        field.stderr(mask="data"),
        stderr_of(field.derivative(lat=1, mask="data", stderr=True)),
        field.sample(2, seed=0).predict(mask="data").isel(sample=1, drop=True),
        field.predict(mask="data", chunks={"time": 5, "lon": 7}).compute(),
        data.chunk(time=4).spline.fit(field.space, penalty=1e-2).predict(mask="data").compute(),
    ]
    for result in results:
        xr.testing.assert_equal(result.notnull().drop_vars("height", errors="ignore"), expected)


def test_masks_in_time() -> None:
    time = np.arange("2000", "2003", dtype="datetime64[D]").astype("datetime64[ns]")
    data = xr.DataArray(np.sin(np.arange(time.size) / 58), {"time": time}, "time", "u")
    winters = data.where((data.time.dt.month < 4) | (data.time.dt.month > 9))
    season = winters.spline.fit(time=xs.BSpline(12, period="year"), penalty=1e-3)
    far = season.predict(time=["2050-01-15", "2050-06-15", "1950-12-31"], mask="data")
    np.testing.assert_array_equal(far.notnull(), [True, False, True])
    waves = winters.spline.fit(time=xs.BSpline(6, period="year"), penalty=1e-3)
    assert waves.predict(mask="data").equals(waves.predict())
    lead = winters.assign_coords(time=time - time[0]).rename(time="lead")
    for own in (winters, winters.convert_calendar("noleap", use_cftime=True), lead):
        field = own.spline.fit({own.dims[0]: xs.BSpline(40)}, penalty=1e-3)
        kept = field.predict(mask="data").notnull()
        assert (kept | own.isnull()).all() and 0.4 < float(kept.mean()) < 0.6
    daily = data[:10].spline.fit(time=xs.BSpline(spacing="2D"), penalty=1e-3)
    after = daily.predict(time=time[:12], mask="data", extrapolate=True).notnull()
    np.testing.assert_array_equal(after, np.arange(12) < 10)


@pytest.mark.parametrize("seed", range(4))
def test_cells_are_kept_exactly_where_there_are_observations(seed: int) -> None:
    """Random bases, scattered or on a grid, some of them on knots; against cells counted one by one."""
    rng = np.random.default_rng(seed)
    bases, edges = {}, {}
    for name in "xy":
        cells = int(rng.integers(7, 12))
        knots = (
            np.sort(rng.uniform(0, 10, cells - 1))
            if rng.random() < 0.5
            else np.linspace(0, 10, cells + 1)[1:-1]
        )
        degree, edges[name] = int(rng.integers(0, 4)), np.concatenate([[0.0], knots, [10.0]])
        kind = rng.integers(3)
        if kind == 0:
            bases[name] = xs.BSpline(knots=tuple(edges[name]), degree=degree, period=10.0)
        elif kind == 1:  # the ends repeated, as in SciPy
            full = np.concatenate([np.zeros(degree), edges[name], np.full(degree, 10.0)])
            bases[name] = xs.BSpline(knots=tuple(full), degree=degree)
        else:
            edges[name] = np.linspace(0, 10, cells + 1)
            bases[name] = xs.BSpline(cells + degree, degree=degree, domain=(0.0, 10.0))
    labels = {
        n: np.where(rng.random(6) < 0.4, rng.choice(edges[n][1:-1], 6), rng.uniform(0, 10, 6)) for n in "xy"
    }
    if seed % 2:
        data = xr.DataArray(np.ones(6), {n: ("obs", labels[n]) for n in "xy"}, "obs", "u")
        places = np.stack([labels["x"], labels["y"]], axis=1)
    else:
        values = np.where(rng.random((6, 6)) < 0.3, 1.0, np.nan)
        values[0, 0] = 1.0
        data = xr.DataArray(values, labels, ("x", "y"), "u")
        places = np.array([(labels["x"][i], labels["y"][j]) for i, j in np.argwhere(values == 1.0)])
    field = data.spline.fit(bases, penalty=0.1)
    assert field.predict(mask="data").where(data.notnull()).notnull().equals(data.notnull())
    at = {n: np.linspace(0.0131, 9.9872, 61) for n in "xy"}
    kept = field.predict(at, mask="data").notnull().values
    cell = {n: np.searchsorted(edges[n], at[n]) - 1 for n in "xy"}
    closed = np.zeros(kept.shape, bool)
    inside = np.zeros(kept.shape, bool)
    for x, y in places:
        near = [(edges[n][cell[n]] <= v) & (v <= edges[n][cell[n] + 1]) for n, v in (("x", x), ("y", y))]
        deep = [(edges[n][cell[n]] < v) & (v < edges[n][cell[n] + 1]) for n, v in (("x", x), ("y", y))]
        closed |= np.outer(*near)
        inside |= np.outer(*deep)
    assert (kept | ~inside).all() and (closed | ~kept).all()


def test_a_mask_goes_around_the_circle() -> None:
    lon = np.arange(0.0, 360.0, 3.0)
    y = np.where((lon > 20) & (lon < 340), np.nan, 1.0)
    data = xr.DataArray(y, {"lon": ("lon", lon, {"units": "degrees_east"})}, "lon", "u")
    field = data.spline.fit(lon=xs.BSpline(36), penalty=1e-3)
    assert field.space.features[0].periodic
    at = {"lon": [-12.0, 5.0, 18.0, 45.0, 180.0, 345.0, 365.0]}
    np.testing.assert_array_equal(field.predict(at, mask="data").notnull(), [1, 1, 1, 0, 0, 1, 1])
    np.testing.assert_array_equal(field.predict(at, mask=2).notnull(), [1, 1, 1, 0, 0, 1, 1])
    np.testing.assert_array_equal(field.predict(at, mask=3).notnull(), [1, 1, 1, 1, 0, 1, 1])


def test_points_and_members_of_a_batch_have_masks_of_their_own() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.uniform(0, 4, 300), rng.uniform(0, 4, 300)
    values = np.stack([np.where(x < 2, np.nan, x), np.where(y < 2, np.nan, y)])
    data = xr.DataArray(values, {"x": ("obs", x), "y": ("obs", y), "day": [1, 2]}, ("day", "obs"), "u")
    space = {"x": xs.BSpline(7, domain=(0, 4)), "y": xs.BSpline(7, domain=(0, 4))}
    field = data.spline.fit(space, penalty=1e-2)
    masked = field.predict(mask="data")
    assert masked.notnull().equals(data.notnull())
    corners = field.predict(x=[0.5, 3.5], y=[0.5, 3.5], mask="data").notnull()
    np.testing.assert_array_equal(corners.sel(day=1), [[0, 0], [1, 1]])
    np.testing.assert_array_equal(corners.sel(day=2), [[0, 1], [0, 1]])
    drawn = field.sample(3, seed=0).predict(mask="data")
    assert drawn.isel(sample=2, drop=True).notnull().equals(data.notnull())


def test_a_boolean_mask_keeps_what_it_marks(basin: xs.Field) -> None:
    keep = xr.DataArray(np.arange(21) > 9, {"latitude": sea().latitude}, "latitude")
    for mask in (keep, keep.chunk(latitude=5), xr.Dataset({"sst": keep})):
        kept = basin.predict(mask=mask)
        xr.testing.assert_equal(kept.notnull().compute().drop_attrs(), keep.broadcast_like(kept).drop_attrs())
        assert kept.dims == ("latitude", "longitude")
    error = basin.stderr()
    sure = basin.predict(mask=error < float(error.median()))
    assert 0.4 < float(sure.notnull().mean()) < 0.6


@pytest.mark.parametrize(
    ("mask", "match"),
    [
        ("land", "mask='land' is none of these: 'data'"),
        (-1, "mask=-1 is none of these"),
        (True, "mask=True is none of these"),
        (0.3, "mask=0.3 is none of these"),
        (np.ones((21, 25), bool), "mask=ndarray is none of these"),
        (sea(), "mask=DataArray is none of these.*a DataArray of bool"),
        (sea("lat", "lon") > 0, r"spans \['lat', 'lon'\], the result has dimensions"),
        (sea()[:5] > 0, "mask= has other labels than the result"),
        (xr.Dataset({"v": sea() > 0}), "no variable of mask= 'sst'"),
    ],
)
def test_other_masks_are_refused(basin: xs.Field, mask: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        basin.predict(mask=mask)


def test_the_oceans_mask(data_dir: Path) -> None:
    with xr.open_dataset(data_dir / "oisst_v2_land_sea_mask.nc") as opened:
        mask = opened.mask.isel(time=0, drop=True).load() > 0
    truth = np.cos(np.deg2rad(mask.lat)) * np.sin(np.deg2rad(mask.lon)) + 0 * mask
    data = truth.where(mask).rename("sst")
    field = data.spline.fit(lat=xs.BSpline(93), lon=xs.BSpline(180), penalty=xs.Roughness(1e-6))
    kept = field.predict(mask="data").notnull()
    assert bool((kept | ~mask).all()), "all of the sea is there"
    share = float((kept & ~mask).sum() / (~mask).sum())
    print(f"land that keeps values, next to a coast by 2 degrees: {share:.3f}")
    assert share < 0.25
    inland = field.predict(lat=[48.0, -25.0, 10.0], lon=[90.0, 133.0, 20.0], mask="data")
    assert np.isnan(np.diag(inland)).all()


def test_curvilinear_coordinates_in_the_other_order_keep_that_of_the_data() -> None:
    i, j = np.meshgrid(np.arange(12.0), np.arange(15.0), indexing="ij")
    x, y = 0.1 * i + 0.02 * j, 0.1 * j - 0.01 * i
    data = xr.DataArray(x + y, {"x": (("j", "i"), x.T), "y": (("j", "i"), y.T)}, ("i", "j"), "u")
    field = data.spline.fit(x=5, y=5, penalty=1e-6)
    assert field.predict().dims == ("i", "j") and field.predict(data).dims == ("i", "j")
    assert field.stderr().dims == ("i", "j") and field.derivative(x=1).dims == ("i", "j")
    np.testing.assert_allclose(field.predict().values, data.values, atol=1e-3)
    assert data.chunk(i=4).spline.fit(x=5, y=5, penalty=1e-6).predict().dims == ("i", "j")


def globe() -> xs.Field:
    lat, lon = np.linspace(-90, 90, 46), np.arange(0.0, 360.0, 6.0)
    coords = {"lat": ("lat", lat, {"units": "degrees_north"}), "lon": ("lon", lon, {"units": "degrees_east"})}
    phi, lam = np.deg2rad(lat)[:, None], np.deg2rad(lon)
    data = xr.DataArray(np.sin(phi) + np.cos(phi) * np.cos(lam), coords, ("lat", "lon"), "u")
    return data.spline.fit(lat=20, lon=24, penalty=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("lat", [89.99999, -89.99999, 89.9999999999, 90.0, -90.0])
def test_next_to_a_pole_there_is_no_noise(lat: float) -> None:
    field = globe()
    for door in (field.laplacian, lambda *a, **k: field.gradient(*a, **k).du_dlon):
        assert np.isnan(door({"lat": lat, "lon": [0.0, 77.0]}, geometry="sphere")).all()
    assert np.isfinite(field.gradient({"lat": lat, "lon": [0.0]}, geometry="sphere").du_dlat).all()
    # Where there are values, rounding is small beside the terms that it comes from.
    near = {"lat": np.copysign(90 - 0.0011, lat), "lon": np.linspace(0, 350, 36)}
    second = np.abs(field.derivative(near, lon=2)).max() / xs.EARTH_RADIUS**2 / np.deg2rad(1.0) ** 2
    moved = {**near, "lon": near["lon"] + 360}
    apart = np.abs(
        field.laplacian(near, geometry="sphere").values - field.laplacian(moved, geometry="sphere").values
    )
    assert apart.max() < 1e-5 * float(second) / np.sin(np.deg2rad(0.0011)) ** 2
