"""Bases chosen from labels: which coordinates are fitted, with how many functions, and the code that asks for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import xarray as xr

import xspline as xs
from tests.products import sst
from xspline.labels.read import defaults

SEASONS = xs.Fourier(2, "year") + xs.Polynomial(2)
SEASON_AND_TREND = xs.Fourier(2, "year") + xs.Polynomial(1)
DAY = xs.Fourier(2, "day")
MEAN = xs.Polynomial(0)


def single_for(data: xr.DataArray | xr.Dataset, pooled: tuple[str, ...] = ()) -> dict[str, xs.Basis]:
    return defaults.single_for(data, pooled).bases


def coarse_for(data: xr.DataArray | xr.Dataset, pooled: tuple[str, ...] = ()) -> dict[str, xs.Basis]:
    return defaults.coarse_for(data, pooled).bases


def days(n: int, step: int = 1, start: str = "2001-01-01") -> np.ndarray:
    return np.datetime64(start, "ns") + np.arange(n) * np.timedelta64(step, "D")


def zeros(dims: tuple[str, ...], coords: dict[str, Any], name: str = "sst", **sizes: int) -> xr.DataArray:
    """Return zeros; the length of a dimension is that of its 1-D labels, or given."""
    for dim in dims:
        known = [np.shape(c[1])[0] for c in coords.values() if isinstance(c, tuple) and c[0] == dim]
        sizes.setdefault(dim, len(coords[dim]) if dim in coords and not known else (known or [0])[0])
    return xr.DataArray(np.zeros([sizes[d] for d in dims]), coords, dims, name)


def test_a_global_monthly_product(data_dir: Path) -> None:
    with xr.open_dataset(data_dir / "ersst_v5_2010_2020.nc") as opened:
        data = opened.sst
        chosen = {"lat": xs.BSpline(47), "lon": xs.BSpline(90), "time": SEASONS}
        assert single_for(data) == single_for(opened) == single_for(data.chunk(time=30)) == chosen
        assert list(single_for(data)) == ["lat", "lon", "time"]
        space = data.spline.space()
    assert space.shape == (47, 90, 7) and space.periodic == (False, True, False)
    assert space == data.spline.space(chosen)


def test_moorings(data_dir: Path) -> None:
    with xr.open_dataset(data_dir / "tao_sst_5day.nc") as opened:
        reports = opened.load()
    with pytest.raises(
        ValueError,
        match=r"'time', 'lat', 'lon' are data variables.*ds\.set_coords\(\['time', 'lat', 'lon'\]\)",
    ):
        reports.spline.fit()
    with pytest.raises(ValueError, match=r"sst has no coordinate.*obs \(123032\).* none.*set_coords"):
        reports.sst.spline.fit()
    chosen = single_for(reports.set_coords(["time", "lat", "lon"]).sst)
    assert list(chosen) == ["lat", "lon", "time"] and chosen["time"] == SEASONS
    assert chosen["lat"] == xs.BSpline(8) and chosen["lon"] == xs.BSpline(9)


def test_a_curvilinear_ocean_with_a_calendar_of_its_own(data_dir: Path) -> None:
    dates = xr.coders.CFDatetimeCoder(use_cftime=True)
    for decoded in (True, "all"):  # "all" makes coordinates of bounds and areas, too
        path = data_dir / "cmip6_canesm5_sea_ice_2020.nc"
        with xr.open_dataset(path, decode_times=dates, decode_coords=decoded) as opened:
            chosen = single_for(opened.siconc)
            assert single_for(opened) == chosen and list(chosen) == ["latitude", "longitude", "time"]
            assert 1.5 < chosen["longitude"].count / chosen["latitude"].count < 2.5
            assert opened.siconc.spline.space().periodic == (False, True, False)
            if decoded is True:
                with pytest.warns(UserWarning, match=r"not fitted.*areacello"):
                    assert opened.spline.space() == opened.siconc.spline.space()


def test_members_and_levels_without_labels_stay_batch() -> None:
    data = sst(months=30).expand_dims(member=3, number=np.arange(2))
    assert list(single_for(data)) == ["lat", "lon", "time"]
    field = data.isel(lat=slice(0, 9)).spline.fit(penalty=1e-3)
    assert field.coefficients.dims[-2:] == ("member", "number")


def test_a_single_label_is_not_fitted() -> None:
    data = sst(months=30).expand_dims(depth=[5.0])
    assert list(single_for(data)) == ["lat", "lon", "time"]
    assert "depth" in data.spline.fit(penalty=1e-3).coefficients.dims
    scalar = sst(months=30).isel(time=0).assign_coords(height=2.0)
    assert list(single_for(scalar)) == ["lat", "lon"]
    repeated = sst(months=30).assign_coords(lat=np.full(17, 3.0))
    assert list(single_for(repeated)) == ["lon", "time"]


@pytest.mark.parametrize(
    "coordinate",
    [
        ("depth", {}),
        ("plev", {}),
        ("s", {"standard_name": "ocean_s_coordinate_g2"}),
        ("k", {"positive": "down"}),
        ("k", {"axis": "Z"}),
        ("k", {"units": "hPa"}),
    ],
    ids=str,
)
def test_vertical_coordinates_are_recognised(coordinate: tuple[str, dict[str, str]]) -> None:
    name, attrs = coordinate
    levels = np.array([5.0, 10, 20, 30, 50, 75, 100, 150])
    data = zeros(
        ("time", name, "lat"), {"time": days(40), name: (name, levels, attrs), "lat": np.arange(9.0)}
    )
    assert single_for(data) == {"lat": xs.BSpline(7), name: xs.BSpline(7), "time": xs.BSpline(23)}


def test_pressure_levels_may_be_integers_but_counters_are_no_axes() -> None:
    levels = np.array([1000, 925, 850, 700, 500])
    counters = {
        "i": ("i", np.arange(20), {"axis": "X", "units": "1"}),
        "x": np.arange(9),
        "step": np.arange(4),
    }
    data = zeros(("level", "i", "x", "step", "time"), {"level": levels, **counters, "time": days(40)})
    assert list(single_for(data)) == ["level", "time"]


def test_two_dimensional_latitude_comes_before_projected_metres() -> None:
    y, x = np.linspace(-1e6, 1e6, 12), np.linspace(-2e6, 2e6, 20)
    metres = {"units": "m"}
    coords = {
        "y": ("y", y, {"standard_name": "projection_y_coordinate", **metres}),
        "x": ("x", x, {"standard_name": "projection_x_coordinate", **metres}),
        "time": days(100),
    }
    projected = zeros(("time", "y", "x"), coords)
    assert single_for(projected) == {"y": xs.BSpline(9), "x": xs.BSpline(13), "time": xs.BSpline(53)}
    place = {
        "lat": (("y", "x"), 50 + y[:, None] / 1e5 + 0 * x),
        "lon": (("y", "x"), x / 1e5 + 0 * y[:, None]),
    }
    assert single_for(projected.assign_coords(place)) == {
        "lat": xs.BSpline(9),
        "lon": xs.BSpline(13),
        "time": xs.BSpline(53),
    }


def test_names_without_attributes() -> None:
    plain = zeros(("t", "y", "x"), {n: np.linspace(0, 1, 17) for n in "tyx"})
    assert single_for(plain) == dict.fromkeys("yxt", xs.BSpline(11))
    rotated = zeros(("rlat", "rlon"), {"rlat": np.linspace(0, 1, 17), "rlon": np.linspace(0, 1, 9)})
    assert single_for(rotated) == {"rlat": xs.BSpline(11), "rlon": xs.BSpline(7)}
    assert list(single_for(zeros(("year", "region"), {"year": np.arange(17)}, region=2))) == ["year"]


def test_the_stronger_evidence_wins_and_names_decide_among_equals() -> None:
    coords = {
        "reference": ("time", days(30, 1, "1999-01-01")),
        "time": days(30),
        "deployed": ("time", np.arange(30.0), {"units": "degrees_north"}),
        "lat": ("time", np.arange(30.0)),
        "lon": ("time", np.arange(30.0) + 100),
        "depth": (
            ("time", "z"),
            np.arange(150.0).reshape(30, 5),
        ),  # by name alone, and not along one dimension
        "level": ("z", np.arange(5.0)),
    }
    data = zeros(("time", "z"), coords)
    assert list(single_for(data)) == ["lat", "lon", "level", "time"]


@pytest.mark.parametrize("units", ["degrees {}", "Degrees_{} ", "degree {}"])
def test_degrees_north_is_a_latitude_however_it_is_spelt(units: str) -> None:
    data = zeros(("lat", "x"), {"lat": np.linspace(-90, 90, 9), "x": np.arange(16) * 22.5})
    data.lat.attrs["units"], data.x.attrs["units"] = units.format("North"), units.format("East")
    space = data.spline.space()
    assert [space.axis(name).role for name in space.names] == ["latitude", "longitude"]
    assert space.periodic == (False, True)


def test_latitudes_that_are_data_variables_are_named_where_only_time_is_fitted() -> None:
    dataset = zeros(("time", "y", "x"), {"time": days(30)}, y=3, x=4).to_dataset()
    dataset["a"] = (("y", "x"), np.zeros((3, 4)), {"units": "degrees_north"})
    with pytest.warns(UserWarning, match=r"a .*'x'\); to fit .* over a: ds.set_coords\(\['a'\]\)"):
        dataset.spline.space()


def test_bounds_are_no_coordinates() -> None:
    edges = np.stack([np.arange(9.0) - 0.5, np.arange(9.0) + 0.5], axis=1)
    data = zeros(("lat", "nv"), {"lat": np.arange(9.0), "nv": [0.0, 1.0]}, "area")
    data = data.assign_coords(
        lat=("lat", np.arange(9.0), {"bounds": "corners"}),
        corners=(("lat", "nv"), edges, {"units": "degrees_north", "standard_name": "latitude"}),
        lat_bnds=(("lat", "nv"), edges, {"standard_name": "latitude"}),
    )
    assert single_for(data) == {"lat": xs.BSpline(7)}


def test_without_any_axis_every_ascending_dimension_is_taken() -> None:
    coords = {
        "azimuth": np.linspace(0, 350, 36),
        "range": np.linspace(900, 100, 21),
        "elapsed": days(12) - days(1),
        "sweep": np.arange(4),
        "zigzag": np.array([0.0, 2.0, 1.0]),
        "name": list("ab"),
    }
    data = zeros(("name", "range", "azimuth", "elapsed", "sweep", "zigzag"), coords)
    chosen = defaults.single_for(data, seconds=1e9).bases  # of 24 fits
    assert chosen == {"range": xs.BSpline(13), "azimuth": xs.BSpline(21), "elapsed": xs.BSpline(9)}
    core = zeros(("sample",), {"age": ("sample", np.arange(17.0) ** 2)}, sample=17)
    assert list(single_for(core)) == ["age"]


def test_nothing_to_fit_says_what_was_looked_for() -> None:
    data = zeros(("row", "col"), {"row": np.arange(5)}, "image", col=4)
    with pytest.raises(
        ValueError,
        match=r"image has no coordinate to fit.*X, Y, Z and T.*Dimensions: row \(5\), col \(4\); coordinates: row "
        r"\(int64\).*fit\(row=4\).*assign_coords",
    ):
        data.spline.fit()
    series = zeros(("time",), {"time": days(3)}, "y")
    with pytest.raises(
        ValueError, match="'time' has one label, and two or more are needed: look at how the data"
    ):
        series[:1].spline.fit()
    with pytest.raises(ValueError, match="'time' has no labels, and two or more are needed"):
        series[:0].spline.fit()
    with pytest.raises(TypeError, match=r"not DataTree; tree\.spline\.fit\(\.\.\.\) fits each node"):
        xs.fit(xr.DataTree.from_dict({"/a": series.to_dataset()}))
    with pytest.raises(ValueError, match="holds no numeric variable"):
        xr.Dataset({"name": ("x", list("ab"))}).spline.fit()
    with pytest.raises(ValueError, match="'lat' is a data variable; make"):
        xr.Dataset({"sst": ("obs", np.zeros(9)), "lat": ("obs", np.arange(9.0))}).spline.plan()


def test_a_dataset_is_fitted_where_its_widest_variable_lies() -> None:
    dataset = sst(months=30).to_dataset()
    dataset = dataset.assign(
        mask=dataset.sst.isel(time=0, drop=True), label=("lat", list("abcdefghijklmnopq"))
    )
    with pytest.warns(UserWarning, match=r"not fitted.*mask \('lat', 'lon'\), label"):
        field = dataset.spline.fit(penalty=1e-3)
    assert field.space.names == ("lat", "lon", "time") and list(field.variables) == ["sst"]


def test_pooled_dimensions_leave_the_rest_to_the_defaults() -> None:
    data = sst(months=30).expand_dims(member=2)
    assert data.spline.space(member=None) == data.isel(member=0).spline.space()
    assert data.spline.fit(member=None, penalty=1e-3).coefficients.ndim == 3
    assert single_for(data, pooled=["time"]).keys() == {"lat", "lon"}


def test_points_with_positions_along_one_dimension() -> None:
    rng = np.random.default_rng(0)
    coords = {
        "lat": ("obs", rng.integers(-5, 5, 500) * 1.0),
        "lon": ("obs", rng.uniform(150, 210, 500)),
        "depth": ("obs", rng.choice([5, 10, 20, 50], 500)),
        "time": ("obs", days(500, 3)[rng.permutation(500)]),
        "quality": ("obs", rng.integers(0, 3, 500)),
    }
    chosen = single_for(zeros(("obs",), coords))
    assert chosen == {"lat": xs.BSpline(5), "lon": xs.BSpline(14), "depth": xs.BSpline(5), "time": SEASONS}


@pytest.mark.parametrize("start", [0.0, -180.0, 0.5, 20.0])
def test_a_longitude_that_closes_is_periodic(start: float) -> None:
    data = zeros(("lat", "lon"), {"lat": np.linspace(80, -80, 30), "lon": start + 5 * np.arange(72.0)})
    space = data.spline.space()
    assert space.shape == (18, 36) and space.periodic == (False, True)
    assert space.basis("lat").domain == (-80.0, 80.0)
    few = zeros(("lon",), {"lon": np.arange(8) * 45.0})
    assert few.spline.space().basis("lon") == xs.BSpline(4, period=360.0, domain=(0.0, 360.0))


@pytest.mark.parametrize(
    ("labels", "season"),
    [
        (days(24, 31), True),  # two years of months
        (days(23, 31), False),
        (days(13, 60), True),
        (days(40, 90), False),  # four a year
        (days(730), True),
        (days(700), False),
        (days(60 * 365, 1, "1850-01-01"), True),
    ],
)
def test_a_season_where_the_record_shows_it(labels: np.ndarray, season: bool) -> None:
    """With and without a penalty, and in the coarse field, where a record without years has its mean."""
    data = zeros(("time",), {"time": labels})
    chosen, without = single_for(data)["time"], defaults.single_for(data, smooth=False).bases["time"]
    coarse = coarse_for(data)["time"]
    if season:
        assert chosen == without == SEASONS and coarse == SEASON_AND_TREND
    else:
        assert isinstance(chosen, xs.BSpline) and isinstance(without, xs.BSpline)
        assert coarse == MEAN


def test_dates_that_were_not_decoded_are_told() -> None:
    undecoded = zeros(("time",), {"time": ("time", np.arange(0.0, 1500.0, 30.0))})
    undecoded["time"].attrs["units"] = "days since 2000-01-01"
    with pytest.warns(
        xs.FitWarning, match="'time' are numbers .* 'days since 2000-01-01', no dates.* xr.decode_cf"
    ):
        assert coarse_for(undecoded) == {"time": MEAN}
    assert coarse_for(xr.decode_cf(undecoded.to_dataset())) == {"time": SEASON_AND_TREND}


def test_a_coarse_field_has_few_functions_where_coordinates_have_the_fewest() -> None:
    """As a drifting float has, over whose latitudes and longitudes there is one cell."""
    time = np.arange("2000-01", "2003-01", dtype="datetime64[M]").astype("datetime64[ns]")
    sizes = {"time": 36, "lat": 12, "lon": 12, "depth": 400}
    coords = {name: np.arange(float(n)) for name, n in sizes.items()} | {"time": time}
    data = xr.DataArray(np.broadcast_to(0.0, tuple(sizes.values())), coords, tuple(sizes))
    counts = {name: basis.size for name, basis in coarse_for(data).items() if isinstance(basis, xs.BSpline)}
    assert counts == {"lat": 4, "lon": 4, "depth": 75}


@pytest.mark.parametrize(
    ("places", "expected"), [(5, MEAN), (6, xs.Polynomial(1)), (23, xs.Polynomial(1)), (24, xs.BSpline(4))]
)
def test_a_coarse_field_has_enough_places_for_each_function(places: int, expected: xs.Basis) -> None:
    """Sixteen splines of twelve stations took their levels, and said that they were sure of them."""
    at = np.random.default_rng(0).uniform(0, 30, (2, places))
    time = np.arange("2000-01", "2003-01", dtype="datetime64[M]").astype("datetime64[ns]")
    coords = {"lat": ("station", at[0]), "lon": ("station", at[1]), "time": time}
    chosen = coarse_for(zeros(("station", "time"), coords))
    assert chosen == {"lat": expected, "lon": expected, "time": SEASON_AND_TREND}


def test_a_coarse_field_of_few_places_is_no_line_around_the_globe() -> None:
    time = np.arange("2000-01", "2003-01", dtype="datetime64[M]").astype("datetime64[ns]")
    coords = {"lat": np.arange(-20.0, 21, 20), "lon": np.arange(0.0, 360, 60), "time": time}
    chosen = coarse_for(zeros(("lat", "lon", "time"), coords))
    assert chosen == {"lat": xs.Polynomial(1), "lon": MEAN, "time": SEASON_AND_TREND}


def test_a_coarse_field_along_a_track_has_as_many_functions_as_a_grid_of_its_places() -> None:
    rng = np.random.default_rng(0)
    track = {name: ("time", rng.uniform(0, 30, 3200)) for name in ("lat", "lon")}
    chosen = coarse_for(zeros(("time",), track | {"time": days(3200)}))
    assert chosen == {"lat": xs.BSpline(14), "lon": xs.BSpline(14), "time": SEASON_AND_TREND}  # √(3200 / 16)


@pytest.mark.parametrize(
    "hours, count, expected",
    [(1, 48, DAY), (1, 47, MEAN), (3, 800, DAY), (6, 800, MEAN), (1, 17600, SEASON_AND_TREND + DAY)],
)
def test_a_daily_cycle_where_the_record_shows_it(hours: int, count: int, expected: xs.Basis) -> None:
    """Over two days with five labels each; along a track places and times of day are not told apart."""
    time = np.datetime64("2001-01-01", "ns") + np.arange(count) * np.timedelta64(hours, "h")
    data = zeros(("time",), {"time": time})
    assert coarse_for(data) == {"time": expected}
    assert eval(defaults.code(data.spline.space(time=expected)), {"xs": xs}) == {"time": expected}
    track = coarse_for(data.assign_coords(lat=("time", np.linspace(0, 30, count))))
    assert track["time"] == (SEASON_AND_TREND if count > 800 else MEAN)


@pytest.mark.parametrize("calendar", ["360_day", "noleap", "all_leap", "julian", "standard"])
def test_any_calendar_has_its_own_year(calendar: str) -> None:
    time = xr.date_range("2000-01-16", periods=24, freq="MS", calendar=calendar, use_cftime=True)
    data = zeros(("time",), {"time": time})
    chosen, space = single_for(data), data.spline.space()
    assert chosen == {"time": SEASONS} and coarse_for(data) == {"time": SEASON_AND_TREND}
    assert space.axis("time").calendar == calendar and eval(defaults.code(space), {"xs": xs}) == chosen
    assert single_for(zeros(("time",), {"time": time[:20]})) == {"time": xs.BSpline(13)}


def test_chunked_labels_are_computed_once_and_values_never() -> None:
    rng = np.random.default_rng(0)
    computed = []

    def scheduler(graph: Any, keys: Any, **kwargs: Any) -> Any:
        computed.append(keys)
        return dask.get(graph, keys, **kwargs)

    def refuse(block: np.ndarray) -> np.ndarray:
        raise RuntimeError("a value was read")

    place = {n: ("obs", dask.array.from_array(rng.uniform(0, 50, 300), 100)) for n in ("lat", "lon")}
    values = dask.array.zeros(300, chunks=100).map_blocks(refuse, dtype=float, meta=np.empty(0))
    data = xr.DataArray(values, {**place, "time": ("obs", days(300))}, "obs")
    with dask.config.set(scheduler=scheduler):
        space = data.spline.space()
        assert len(computed) == 1
        repr(data.spline.plan())
    assert space.shape == (8, 8, 8)


@pytest.mark.parametrize(
    "bases",
    [
        {"lat": xs.BSpline(6, domain=(-25.0, 25.0)), "lon": xs.Fourier(2, 360.0)},
        {"lat": xs.BSpline(6, 4), "lon": xs.BSpline(8, period=360.0, domain=(-180.0, 180.0))},
        {"time": xs.BSpline(8) + xs.Fourier(1, "30D"), "lat": xs.Polynomial(2, domain=(-90.0, 90.0))},
        {"time": xs.BSpline(12, period="year")},
        {"lon": xs.BSpline(knots=(150.0, 160.0, 180.0, 210.0), degree=0)},
    ],
    ids=str,
)
def test_code_shows_the_requested_bases(bases: dict[str, Any]) -> None:
    data = sst(months=30)
    space = data.spline.space(bases)
    again = eval(defaults.code(space), {"xs": xs})
    assert data.spline.space(again) == space
    given = {name: basis for name, basis in bases.items() if basis.domain is not None}
    assert {name: basis.domain for name, basis in again.items() if name in given} == {
        name: basis.domain for name, basis in given.items()
    }


@pytest.mark.slow
def test_the_line_of_a_bare_fit_asks_for_it_again() -> None:
    data = sst(months=30).isel(lon=12, drop=True)[:, ::4]
    field = data.spline.fit()
    assert eval(defaults.code(field.space), {"xs": xs}) == coarse_for(data)
    assert field.code().endswith(", fine=True)")
    again = eval(f"data.spline.{field.code()}", {"xs": xs, "data": data})
    np.testing.assert_array_equal(again.predict(), field.predict())


ASKED: list[dict[str, Any]] = [{"errors": xs.AR1("time", rho=0.3)}, {"errors": "auto", "holder": "us"}]


@pytest.mark.slow
@pytest.mark.parametrize("own", [{"lat": None}, *ASKED, {"robust": True}, {"holder": "time.year"}])
def test_the_line_of_a_fit_says_how_observations_were_taken(own: dict[str, Any]) -> None:
    data = sst(months=30).isel(lon=12, drop=True)[:, ::12]
    field = data.spline.fit(time=xs.Fourier(1, "year"), penalty=0, **own)
    assert all(name in field.code() for name in own) and "weights" not in field.code()
    again = eval(f"data.spline.{field.code()}", {"xs": xs, "data": data})
    assert repr(again) == repr(field)
    np.testing.assert_array_equal(again.coefficients, field.coefficients)
    assert "weights=..." in data.spline.fit(time=9, weights=xr.full_like(data, 2), penalty=0).code()


def test_holders_with_their_own_defaults_are_told_how_to_agree() -> None:
    data = sst(months=30)
    west, east = data.isel(lon=slice(0, 14)), data.isel(lon=slice(14, None))
    a, b = (part.spline.statistics(holder=name) for part, name in ((west, "west"), (east, "east")))
    with pytest.raises(ValueError, match=r"lon: BSpline\(10, .*BSpline\(8, .*taken from the data") as caught:
        _ = a + b
    space = eval(str(caught.value).rsplit("space = ", 1)[1], {"xs": xs})
    assert space.basis("lon") == xs.BSpline(10, domain=(150.0, 210.0))
    pooled = (west.spline.statistics(space, holder="w") + east.spline.statistics(space, holder="e")).solve(
        1e-3
    )
    expected = data.spline.fit(space, penalty=1e-3)
    np.testing.assert_allclose(pooled.predict(data), expected.predict(), rtol=1e-9)
