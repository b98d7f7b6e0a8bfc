"""Means, integrals and other functionals against fine quadrature and dense definitions, by every method."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from scipy import stats

import xspline as xs
from tests import scatter
from tests.labels.test_uncertainty import dense_covariance
from tests.products import SEASONS
from tests.reference import gauss
from xspline.kriging.likelihood import Windows
from xspline.kriging.model import matern
from xspline.labels.fine.field import rows_of as functions_at

# Knots at whole degrees, a circle, and seasons with a trend.
BASES = {"lat": xs.BSpline(7), "lon": xs.BSpline(6), "time": SEASONS}
PENALTY = xs.Roughness({"lat": 1e-2, "lon": 3e-2})
BOX = {"lat": (-7.3, 12.1), "lon": (163.0, 189.5)}


@pytest.fixture(scope="module")
def field(product: xr.DataArray) -> xs.Field:
    return product.spline.fit(BASES, penalty=PENALTY, holder="time.year")


@pytest.fixture(scope="module")
def around() -> xs.Field:
    """A field around the Earth: B-spline × Fourier series."""
    lat, lon = np.linspace(-60, 80, 29), np.arange(0.0, 360.0, 10.0)
    y, x = np.deg2rad(lat)[:, None], np.deg2rad(lon)
    values = np.sin(y) + np.cos(2 * x) * np.cos(y) + np.random.default_rng(0).normal(0, 0.1, (29, 36))
    data = xr.DataArray(values, {"lat": lat, "lon": lon}, name="u")
    return data.spline.fit({"lat": 9, "lon": xs.Fourier(3, period=360.0)}, penalty=1e-4)


def edges(lo: float, hi: float, knots: np.ndarray, many: int = 60) -> np.ndarray:
    return np.unique([*np.linspace(lo, hi, many), *knots[(knots > lo) & (knots < hi)]])


def knots_of(field: xs.Field, name: str) -> np.ndarray:
    features = field.space.features[field.space.names.index(name)]
    return getattr(features, "edges", np.zeros(0))


def quadrature(field: xs.Field, box: dict, area: bool = True, **labels: object) -> xr.DataArray:
    """The integral of predictions over a box of latitude and longitude, in degrees squared, and that of 1."""
    parts, total = {}, 1.0
    for name, (lo, hi) in box.items():
        x, w = gauss(edges(lo, hi, knots_of(field, name)))
        if area and name == "lat":
            w = w * np.cos(np.deg2rad(x))
        parts[name], total = xr.DataArray(w, {name: x}), total * w.sum()
    at = {name: w[name].values for name, w in parts.items()}
    values = field.predict(at | labels)
    return xr.dot(values, *parts.values(), dim=[*parts]), total


def test_mean_over_a_box_is_fine_quadrature(field: xs.Field) -> None:
    expected, total = quadrature(field, BOX)
    mean = field.mean(BOX)
    assert mean.dims == ("time",) and mean.name == "sst" and mean.units == "degC"
    np.testing.assert_allclose(mean, expected / total, rtol=0, atol=1e-8)
    plain, flat = quadrature(field, BOX, area=False)
    np.testing.assert_allclose(field.mean(BOX, weights=None), plain / flat, rtol=0, atol=1e-8)


def test_mean_over_names_is_that_over_domains(field: xs.Field, product: xr.DataArray) -> None:
    whole = {"lat": (-20, 20), "lon": (150, 210)}
    np.testing.assert_allclose(field.mean(("lat", "lon")), field.mean(whole), rtol=1e-13)
    np.testing.assert_allclose(field.mean(["lon", "lat"]), field.mean(whole), rtol=1e-13)
    zonal = field.mean("lon", lat=[0.0, 5.0])
    assert zonal.dims == ("time", "lat")
    np.testing.assert_array_equal(field.mean("lon", product[::2, 3:]), field.mean("lon")[::2, 3:])
    one = field.mean(whole | {"time": (None, None)})
    assert one.shape == () and field.mean().item() == pytest.approx(one.item(), abs=1e-12)


def test_fourier_times_spline_around_the_earth(around: xs.Field) -> None:
    for lon in ((0.0, 360.0), (300.0, 420.0), (-50.0, 30.0)):
        expected, total = quadrature(around, {"lat": (-35.0, 71.5), "lon": lon})
        mean = around.mean({"lat": (-35.0, 71.5), "lon": lon})
        np.testing.assert_allclose(mean, expected / total, rtol=0, atol=1e-8)
    through = around.mean({"lon": (350, 10), "lat": (-35.0, 71.5)})
    assert through.item() == pytest.approx(
        around.mean({"lon": (-10, 10), "lat": (-35.0, 71.5)}).item(), abs=1e-12
    )


def test_circle_of_splines_goes_through_the_seam() -> None:
    lon = np.arange(0.0, 360.0, 5.0)
    data = xr.DataArray(np.cos(np.deg2rad(lon)) + np.sin(np.deg2rad(2 * lon)), {"lon": lon}, name="u")
    field = data.spline.fit(lon=16)
    mean = field.mean({"lon": (340, 25)}).item()
    parts = field.mean({"lon": (340, 360)}).item() * 20 + field.mean({"lon": (0, 25)}).item() * 25
    assert mean == pytest.approx(parts / 45, abs=1e-12)
    mask = xr.DataArray((lon > 342) | (lon < 22), {"lon": lon})  # cells from 342.5 to 22.5
    assert field.mean(where=mask).item() == pytest.approx(
        field.mean({"lon": (342.5, 22.5)}).item(), abs=1e-12
    )
    west = mask.assign_coords(lon=(lon + 180) % 360 - 180).sortby("lon")
    assert field.mean(where=west).item() == pytest.approx(field.mean(where=mask).item(), abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"lon": 16, "penalty": 1e-9}, {"lon": xs.Fourier(2, period=360.0)}, {}])
@pytest.mark.parametrize(("first", "turn"), [(-180, -180), (-177.5, -180), (0, 0), (2.5, 0), (20, 20)])
def test_open_ends_of_a_circle_are_where_its_labels_end(options: dict, first: float, turn: float) -> None:
    lon = np.arange(72) * 5.0 + first
    values = np.cos(np.deg2rad(lon - 40)) + np.random.default_rng(0).normal(0, 0.01, 72)
    field = xr.DataArray(values, {"lon": lon}, name="u").spline.fit(**options)
    mean = {ends: field.mean({"lon": ends}).item() for ends in ((turn, turn + 110), (turn + 110, turn + 360))}
    for (low, high), ends in zip(mean, ((None, turn + 110), (turn + 110, None)), strict=True):
        assert field.mean({"lon": ends}).item() == pytest.approx(mean[low, high], abs=1e-3)
        assert field.mean({"lon": slice(*ends)}).item() == field.mean({"lon": ends}).item()
        cells = xr.ones_like(field.predict())  # at the seam of a domain half a cell is left out
        assert field.mean({"lon": ends}, where=cells).item() == pytest.approx(mean[low, high], abs=0.02)
    assert field.mean({"lon": slice(turn, None)}).item() == field.mean().item() == pytest.approx(0, abs=0.01)
    match = rf"has an open end on a circle, whose labels go from {turn}.0 to {turn + 360}.0; write both ends"
    for ends in ((None, turn + 400), (turn - 0.5, None)):
        with pytest.raises(ValueError, match=match):
            field.mean({"lon": ends})


def test_open_ends_of_a_circle_without_labels_are_refused() -> None:
    lon = np.arange(-180.0, 180.0, 5.0)
    data = xr.DataArray(np.cos(np.deg2rad(lon)), {"lon": lon}, name="u")
    space = xs.Space({"lon": xs.BSpline(8, domain=(0, 360), period=360)})
    both = [data[part].spline.statistics(space) for part in (slice(40), slice(40, None))]
    field = (both[0] + both[1]).solve(penalty=1e-9)
    match = r"lon=\(-60, None\) has an open end .* labels are not known; .* as in \{'lon': \(lo, hi\)\}"
    with pytest.raises(ValueError, match=match):
        field.mean({"lon": (-60, None)})
    assert field.mean({"lon": (None, None)}).item() == field.mean("lon").item()


@pytest.mark.slow
@pytest.mark.parametrize("first", [-80, 280, 120])
@pytest.mark.parametrize("options", [{"lon": 30, "penalty": 1e-12}, {}])
def test_ranges_of_regional_longitudes_go_around_the_earth(options: dict, first: float) -> None:
    lon = np.arange(51) * 4.0 + first  # 200 degrees
    values = np.cos(np.deg2rad(2 * lon)) + np.random.default_rng(0).normal(0, 0.01, 51)
    field = xr.DataArray(values, {"lon": lon}, name="u").spline.fit(**options)
    whole, ones = field.mean().item(), xr.DataArray(np.ones(51), {"lon": lon})
    for ends in ((0, 360), (-180, 180), (first - 7, first + 230), (first + 340, first + 310)):
        with pytest.warns(
            xs.FitWarning, match=f"the range {ends[0]}.0 to {ends[1]}.0 of 'lon' leaves the domain"
        ):
            assert field.mean({"lon": ends}).item() == pytest.approx(whole, abs=1e-3)
    parts = [field.integral({"lon": (first + a, first + b)}).item() for a, b in ((0, 30), (170, 200))]
    for where in (None, ones):
        with pytest.warns(xs.FitWarning, match="the part inside counts"):
            both = field.integral({"lon": (first + 170, first + 30)}, where=where, stderr=True)
        # A cell of a mask is as wide as a label and has one node: (2h)²/24 of the integral, 0.035.
        close = 0.02 if where is None else 0.05
        assert both.u_integral.item() == pytest.approx(sum(parts), abs=close) and both.u_integral_stderr > 0
    with pytest.raises(ValueError, match=f"range {first + 210}.0 to {first + 350}.0 of 'lon' lies outside"):
        field.mean({"lon": (first + 210, first + 350)})
    assert (
        field.mean({"lon": (first + 390, None)}).item()
        == field.mean({"lon": (first + 30, first + 200)}).item()
    )
    with pytest.raises(ValueError, match=rf"open end .* from {first}.0 to {first + 200}.0; write both ends"):
        field.mean({"lon": (first + 300, None)})


@pytest.mark.slow
@pytest.mark.parametrize("calendar", ["360_day", "noleap", "all_leap", "julian", "standard"])
def test_ranges_of_times_end_by_their_calendar(calendar: str) -> None:
    time = xr.date_range("2000-01-01", periods=84, freq="MS", calendar=calendar, use_cftime=True)
    field = xr.DataArray(np.arange(84.0) ** 2, {"time": time}, name="u").spline.fit(time=xs.Polynomial(2))
    after = {"2004": "2005-01-01T00", "200412": "2005-01-01T00", "2004-02": "2004-03-01T00"}
    for day in ("2004-02-28", "2004-11-30", "2004-12-30"):
        after[day] = xr.date_range(day, periods=2, calendar=calendar, use_cftime=True)[1].isoformat()
    for end, instant in after.items():
        assert field.mean({"time": ("2001", end)}).equals(field.mean({"time": ("2001", instant)}))
        assert field.anomaly(reference=("2001", end)).equals(field.anomaly(reference=("2001", instant)))
    if calendar == "360_day":
        assert field.mean({"time": ("2001", "2004-02-30")}).equals(field.mean({"time": ("2001", "2004-02")}))
    else:
        with pytest.raises(ValueError, match=f"'2004-02-30' is not a date of the {calendar} calendar"):
            field.mean({"time": ("2001", "2004-02-30")})


@pytest.mark.slow
def test_regions_are_their_cells(field: xs.Field, product: xr.DataArray) -> None:
    lat, lon = product.lat, product.lon
    masks = xr.concat(
        [
            (lat > 3) & (lon < 171),
            (abs(lat) < 9) & (abs(lon - 181) < 7),
            ((lat + 5) ** 2 + (lon - 190) ** 2) < 90,
        ],
        xr.Variable("region", ["north", "middle", "round"]),
    )
    masks = masks.transpose("region", "lat", "lon")
    mean = field.mean(("lat", "lon"), where=masks)
    assert mean.dims == ("region", "time") and list(mean.region) == ["north", "middle", "round"]
    assert mean.time.equals(product.time)
    dated = masks.assign_coords(time=product.time[3])  # as of a mask that one month tells
    assert field.mean(where=dated).equals(mean)
    # The second is a box of whole cells; labels are 2.5 degrees apart.
    inner = {"lat": (-8.75, 8.75), "lon": (173.75, 188.75)}
    inner["lon"] = (float(lon[abs(lon - 181) < 7].min()) - 1.25, float(lon[abs(lon - 181) < 7].max()) + 1.25)
    np.testing.assert_allclose(mean.sel(region="middle"), field.mean(inner), rtol=0, atol=1e-11)
    total, size = 0.0, 0.0
    for y in lat.values:
        for x in lon.values:
            if masks.sel(region="round", lat=y, lon=x):
                own, one = quadrature(
                    field, {"lat": (y - 1.25, y + 1.25), "lon": (x - 1.25, x + 1.25)}, time=["2001"]
                )
                total, size = total + own.item(), size + one
    round_ = field.mean(where=masks.sel(region="round"), time=["2001"])
    assert round_.item() == pytest.approx(total / size, abs=1e-8)
    double = field.mean(where=masks.sel(region="round") * 2.5, time=["2001"])
    assert double.item() == pytest.approx(round_.item(), abs=1e-12)
    stretch = {"lat": (-20, 0), "lon": (150, 210)}  # a mask within ranges
    both = field.mean(stretch, where=masks.sel(region="middle"))
    np.testing.assert_allclose(both, field.mean({"lat": (-8.75, 0), "lon": inner["lon"]}), rtol=0, atol=1e-11)


def test_integral_on_the_sphere_and_in_the_plane(field: xs.Field, around: xs.Field) -> None:
    integral = field.integral(BOX)
    assert integral.name == "sst_integral" and integral.units == "degC m2"
    radian = np.deg2rad(1.0)
    area = xs.EARTH_RADIUS**2 * np.ptp(np.sin(np.deg2rad(BOX["lat"]))) * np.ptp(BOX["lon"]) * radian
    np.testing.assert_allclose(integral, field.mean(BOX) * area, rtol=1e-12)
    seconds = field.integral(BOX | {"time": ("2000", "2001")})
    assert seconds.units == "degC m2 s"
    days = field.mean(BOX | {"time": ("2000", "2001")}) * area * 731 * 86400
    assert seconds.item() == pytest.approx(days.item(), rel=1e-12)
    plain = field.integral(BOX, weights=None)
    assert plain.units == "degC degrees_north degrees_east"
    np.testing.assert_allclose(plain, quadrature(field, BOX, area=False)[0], rtol=1e-10)
    assert "units" not in around.integral("lon").attrs


def test_anomaly_is_without_season_and_reference(field: xs.Field, product: xr.DataArray) -> None:
    anomaly = field.anomaly(reference=("2000", "2001"))
    trend = field.select(time=xs.Polynomial)
    mean = trend.mean({"time": ("2000", "2001")})
    expected = trend.predict() - mean
    assert anomaly.dims == product.dims and anomaly.name == "sst_anomaly" and anomaly.units == "degC"
    np.testing.assert_allclose(anomaly, expected.transpose(*anomaly.dims), rtol=0, atol=1e-11)
    index = field.anomaly(reference=("2000", "2001"), mean=BOX)
    np.testing.assert_allclose(
        index, trend.mean(BOX) - mean.pipe(lambda _: trend.mean(BOX | {"time": ("2000", "2001")}))
    )


def test_anomaly_without_a_season_is_less_the_mean() -> None:
    time = np.arange("2000-01", "2010-01", dtype="datetime64[M]").astype("datetime64[ns]")
    data = xr.DataArray(np.sin(np.arange(120) / 9), {"time": time}, name="u")
    field = data.spline.fit(time=30)
    expected = field.predict() - field.mean({"time": ("2003", "2005-06")})
    np.testing.assert_allclose(field.anomaly(reference=("2003", "200506")), expected, rtol=0, atol=1e-12)


def test_cell_means_of_a_target(field: xs.Field) -> None:
    coarse = {"lat": [-15.0, -5.0, 5.0, 15.0], "lon": [160.0, 180.0, 200.0]}
    cells = field.regrid(coarse, time=["2001-03", "2002-05"])
    assert cells.dims == ("time", "lat", "lon") and cells.name == "sst"
    for y, x in ((-5.0, 180.0), (15.0, 200.0)):
        box = {"lat": (y - 5, y + 5), "lon": (x - 10, x + 10)}
        expected = field.mean(box, time=["2001-03", "2002-05"])
        np.testing.assert_allclose(cells.sel(lat=y, lon=x), expected, rtol=0, atol=1e-12)
    whole = cells.weighted(
        xr.DataArray(np.diff(np.sin(np.deg2rad([-20, -10, 0, 10, 20]))), {"lat": coarse["lat"]})
    )
    np.testing.assert_allclose(
        whole.mean(("lat", "lon")), field.mean(("lat", "lon"), time=["2001-03", "2002-05"])
    )
    target = xr.Dataset(
        {"lat_bnds": (("lat", "bnds"), [[-20.0, -4.0], [-4.0, 9.0]])},
        {"lat": ("lat", [-12.0, 2.0], {"bounds": "lat_bnds"}), "lon": [180.0, 190.0]},
    )
    bounded = field.regrid(target, dims="lat", time=["2001"])
    np.testing.assert_allclose(
        bounded.isel(lat=1),
        field.mean({"lat": (-4, 9)}, lon=[180.0, 190.0], time=["2001"]),
        rtol=0,
        atol=1e-12,
    )
    outside = field.regrid(
        {"lat": [-15.0, 0.0, 15.0, 30.0], "lon": [160.0, 180.0]}, time=["2001"], stderr=True
    )
    assert np.isnan(outside.sst.sel(lat=30)).all() and np.isnan(outside.sst_stderr.sel(lat=30)).all()
    assert np.isfinite(outside.sst.sel(lat=15)).all()


THIRTIES = [(x - 15.0, x + 15.0) for x in range(0, 360, 30)]
CELLS_OF_LONGITUDES = {
    "through the seam": ([350, 0, 10, 20], [(345, 355), (-5, 5), (5, 15), (15, 25)]),
    "westward": ([20, 10, 0, 350], [(15, 25), (5, 15), (-5, 5), (345, 355)]),
    "sorted as numbers": ([10, 30, 350], [(0, 20), (20, 40), (340, 360)]),
    "below 0": ([-10, 0, 10, 20], [(-15, -5), (-5, 5), (5, 15), (15, 25)]),
    "two conventions": ([-10, 0, 370, 20], [(-15, -5), (-5, 5), (5, 15), (15, 25)]),
    "two": ([355, 5], [(350, 360), (0, 10)]),
    "uneven": ([5, 100, 200, 260], [(-47.5, 52.5), (52.5, 150), (150, 230), (230, 312.5)]),
    "uneven, from -170": ([-170, -90, 10, 100], [(145, 230), (-130, -40), (-40, 55), (55, 145)]),
    "even, from 0": ([*range(0, 360, 30)], THIRTIES),
    "even, from 180": ([*range(180, 360, 30), *range(0, 180, 30)], [*THIRTIES[6:], *THIRTIES[:6]]),
    "both ends": ([-180, -90, 0, 90, 180], [(180, 225), (-135, -45), (-45, 45), (45, 135), (135, 180)]),
    "both ends of three": ([0, 180, 360], [(0, 90), (90, 270), (270, 360)]),
}


def wave(x: np.ndarray) -> np.ndarray:
    return np.cos(np.deg2rad(x - 40)) + 0.5 * np.sin(np.deg2rad(2 * x))


def assert_cells(field: xs.Field, labels: list, cells: list, degree: float = 1.0) -> None:
    """Means of the wave over cells, and over all of them but the second, are those of 4000 values in each."""
    expected = np.array([wave(lo + (hi - lo) * (np.arange(4000) + 0.5) / 4000).mean() for lo, hi in cells])
    lon = ("lon", np.array(labels) * degree, {"units": "degrees_east" if degree == 1 else "radian"})
    mask = xr.DataArray(np.arange(len(labels)) != 1, {"lon": lon}, "lon")
    np.testing.assert_allclose(field.regrid(mask), expected, rtol=0, atol=3e-3)
    widths = np.where(mask, np.diff(cells)[:, 0], 0)
    assert field.mean(where=mask).item() == pytest.approx(np.average(expected, weights=widths), abs=3e-3)
    integral = field.integral(where=mask).item() / degree
    assert integral == pytest.approx(expected @ widths, abs=3e-3 * widths.sum())


@pytest.mark.slow
@pytest.mark.parametrize("case", CELLS_OF_LONGITUDES)
@pytest.mark.parametrize("options", [{"lon": 36, "penalty": 1e-12}, {"lon": xs.Fourier(2, period=360.0)}, {}])
def test_cells_of_longitudes_are_those_on_the_circle(options: dict, case: str) -> None:
    """Whatever the conventions of field and target, and where a cell goes on behind the end of the record."""
    for first in (0, -180):
        lon = np.arange(72) * 5.0 + first
        field = xr.DataArray(wave(lon), {"lon": lon}, name="u").spline.fit(**options)
        assert_cells(field, *CELLS_OF_LONGITUDES[case])


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"lon": 36, "penalty": 1e-12}, {}])
def test_cells_of_longitudes_in_radians_and_in_domains(options: dict) -> None:
    lon = np.arange(0.0, 360, 5)
    radians = ("lon", np.deg2rad(lon), {"units": "radian"})
    field = xr.DataArray(wave(lon), {"lon": radians}, name="u").spline.fit(**options)
    for case in ("through the seam", "uneven", "even, from 0", "both ends"):
        assert_cells(field, *CELLS_OF_LONGITUDES[case], np.deg2rad(1.0))
    for first in (-60, 300, 10):
        lon = np.arange(first, 351 if first == 10 else first + 176, 5.0)
        field = xr.DataArray(wave(lon), {"lon": lon}, name="u").spline.fit(**options)
        if first != 10:  # the first cell and the last one end where the domain does
            assert_cells(field, [310, 340, 40, 110], [(300, 325), (325, 370), (10, 75), (75, 115)])
    cells = field.regrid({"lon": [315, 15, 75]})  # the second has both ends of this domain in it
    with pytest.warns(xs.FitWarning, match="leaves the domain 10.0 to 350.0; the part inside counts"):
        assert cells[1].item() == pytest.approx(field.mean({"lon": (345, 45)}).item(), abs=1e-3)
    with pytest.raises(ValueError, match="labels of 'lon' are there twice"):
        field.regrid({"lon": [350, 0, 10, 360]})


@pytest.mark.parametrize("options", [{"lon": 36, "penalty": 1e-12}, {"lon": xs.Fourier(2, period=360.0)}, {}])
def test_bounds_of_longitudes_may_pass_the_seam(options: dict) -> None:
    """However they are written; they are in the units of their labels."""
    lon = np.arange(0.0, 360, 5)
    degrees = ("lon", lon, {"units": "degrees_east"})
    field = xr.DataArray(wave(lon), {"lon": degrees}, name="u").spline.fit(**options)
    at = (np.arange(4000) + 0.5) / 4000
    expected = [wave(lo + 30 * at).mean() for lo in (-15, 15)]
    for first, low, high in ((0, -15, 15), (0, 345, 15), (0, 345, 375), (360, 345, 375), (0, 15, 345)):
        for unit, degree in (("degrees_east", 1.0), ("radian", np.deg2rad(1.0))):
            labels = ("lon", np.array([first, 30]) * degree, {"bounds": "b", "units": unit})
            bounds = ("lon", "nv"), np.array([[low, high], [15, 45]]) * degree
            cells = field.regrid(xr.Dataset({"b": bounds}, {"lon": labels}))
            np.testing.assert_allclose(cells, expected, rtol=0, atol=3e-3)


def test_functional_is_the_sum_of_predictions(field: xs.Field) -> None:
    weights = xr.DataArray(
        [[1.0, -1.0], [0.5, 2.0]],
        {"time": np.array(["2000-05", "2001-05"], "M8[ns]"), "what": ["a", "b"]},
        ("time", "what"),
    )
    result = field.functional(weights, lat=[0.0, 5.0], lon=[170.0])
    expected = xr.dot(weights, field.predict(time=weights.time, lat=[0.0, 5.0], lon=[170.0]), dim="time")
    assert result.dims == ("what", "lat", "lon") and "units" not in result.attrs
    np.testing.assert_allclose(result, expected, rtol=1e-12)
    of_mean = field.functional(weights.assign_attrs(units="K-1"), mean=BOX)
    assert of_mean.units == "degC (K-1)"
    np.testing.assert_allclose(
        of_mean, xr.dot(weights, field.mean(BOX, time=weights.time), dim="time"), rtol=1e-12
    )


def rows_of(field: xs.Field, box: dict, time: np.ndarray) -> np.ndarray:
    """Rows [n, P] of means over a box at times, by fine quadrature."""
    space, parts = field.space, []
    for name, features in zip(space.names, space.features, strict=True):
        if name == "time":
            parts.append(features.design(space.to_float("time", time)))
            continue
        x, w = gauss(edges(*box[name], knots_of(field, name)))
        w = w * np.cos(np.deg2rad(x)) if name == "lat" else w
        parts.append(((w / w.sum()) @ features.design(x))[None])
    return np.einsum("ak,al,nm->nklm", *parts).reshape(len(time), -1)


def test_errors_are_the_dense_formula(field: xs.Field, product: xr.DataArray) -> None:
    mean = field.mean(BOX, covariance=True)
    rows = rows_of(field, BOX, product.time.values)
    expected = rows @ dense_covariance(field, product) @ rows.T
    assert mean.sst_covariance.dims == ("time", "time_") and mean.sst_covariance.units == "(degC)2"
    np.testing.assert_allclose(mean.sst_covariance, expected, rtol=1e-10, atol=1e-10 * expected.max())
    np.testing.assert_allclose(mean.sst_stderr**2, np.diagonal(expected), rtol=1e-10)
    few = field.mean(BOX, time=product.time[:2], stderr=True)  # fewer labels than functions
    np.testing.assert_allclose(few.sst_stderr, mean.sst_stderr[:2], rtol=1e-10)
    assert mean.sst_stderr.method == "exact" and "independent" in mean.sst_stderr.comment


def test_covariance_goes_with_functionals(field: xs.Field, product: xr.DataArray) -> None:
    mean = field.mean(BOX, covariance=True)
    t = xr.DataArray(np.arange(36.0) - 17.5, {"time": product.time})
    slope = t / (t**2).sum()
    result = field.functional(slope, mean=BOX, stderr=True)
    c = mean.sst_covariance
    expected = float(slope @ c @ slope.rename(time="time_")) ** 0.5
    assert result.sst_functional_stderr.item() == pytest.approx(expected, rel=1e-9)
    assert result.sst_functional.item() == pytest.approx(float(slope @ mean.sst), abs=1e-12)
    anomaly = field.anomaly(reference=("2000", "2002"), mean=BOX, stderr=True)
    assert (anomaly.sst_anomaly_stderr < 1.5 * mean.sst_stderr).all()


def test_draws_and_jackknife(field: xs.Field) -> None:
    exact = field.mean(BOX, stderr=True, smoothing_uncertainty=False).sst_stderr
    drawn = field.mean(BOX, stderr=True, method="draws", draws=3000).sst_stderr
    np.testing.assert_allclose(drawn, exact, rtol=scatter.FIVE * scatter.of_deviation(3000))
    assert drawn.draws == 3000
    jackknife = field.mean(BOX, covariance=True, method="jackknife")
    s = field.statistics
    means = xr.concat(
        [s.without(h).solve(penalty=field.penalty).mean(BOX, time=field.mean(BOX).time) for h in s.holders],
        "h",
    )
    apart = means - means.mean("h")
    np.testing.assert_allclose(jackknife.sst_stderr, np.sqrt((apart**2).sum("h") * 2 / 3), rtol=1e-7)
    square = xr.dot(apart, apart.rename(time="time_"), dim="h") * 2 / 3
    np.testing.assert_allclose(jackknife.sst_covariance, square, rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("method", ["exact", "jackknife", "scores"])
def test_weights_of_a_point_have_its_error(field: xs.Field, method: str) -> None:
    point = {"lat": [3.0], "lon": [181.0]}
    at = xr.DataArray(np.ones((1, 1)), point, ("lat", "lon"))
    error = field.functional(at, time=["2001-02"], stderr=True, method=method).sst_functional_stderr
    expected = field.stderr(point, time=["2001-02"], method=method)
    assert error.item() == pytest.approx(expected.item(), rel=1e-8)
    assert error.method == expected.method == method and error.comment == expected.comment


def test_exact_error_where_the_solver_iterates(product: xr.DataArray) -> None:
    bases = {"lat": 8, "lon": 10, "time": 12}
    data, penalty = product.isel(time=slice(24)), xs.Roughness(1e-3)
    direct = data.spline.fit(bases, penalty=penalty, solver="banded").mean(BOX, stderr=True)
    iterated = data.spline.fit(bases, penalty=penalty, solver="iterative").mean(BOX, stderr=True)
    assert iterated.sst_stderr.method == "exact"
    np.testing.assert_allclose(iterated.sst_stderr, direct.sst_stderr, rtol=0.02)  # σ from an estimated trace
    np.testing.assert_allclose(iterated.sst, direct.sst, rtol=1e-5)


def test_independent_fits_and_datasets(product: xr.DataArray) -> None:
    pair = xr.Dataset({"sst": product, "other": (product + 1).isel(lon=slice(None))})
    field = pair.spline.fit({"time": SEASONS})  # a fit for each pixel, some without observations
    mean = field.mean("time", stderr=True)
    assert set(mean) == {"sst", "sst_stderr", "other", "other_stderr"} and mean.sst.dims == ("lat", "lon")
    assert not mean.attrs and mean.other.attrs
    land = product.isnull().all("time")
    assert mean.sst.isnull().equals(land) and mean.sst_stderr.isnull().equals(land)
    np.testing.assert_allclose((mean.other - mean.sst).where(~land, 1.0), 1.0, atol=1e-5)
    with pytest.raises(ValueError, match="of independent fits, and of samples, average the predictions"):
        field.mean("lat")


def test_points_and_draws_of_fields(field: xs.Field) -> None:
    x, y = np.random.default_rng(0).uniform(0, 10, (2, 300))
    points = xr.DataArray(x + y**2, {"x": ("obs", x), "y": ("obs", y)}, ("obs",), "u")
    single = points.spline.fit({"x": 5, "y": 5}, penalty=1e-9)
    mean = single.mean({"y": (1, 9)})
    assert mean.dims == ("obs",)  # at the x of each point
    np.testing.assert_allclose(mean, x + (9**3 - 1) / 24, rtol=1e-4)
    sample = field.sample(400, seed=0).mean(BOX, time=["2001"])
    assert sample.dims == ("sample", "time")
    error = field.mean(BOX, time=["2001"], stderr=True).sst_stderr.item()
    assert float(sample.std("sample").squeeze()) == pytest.approx(
        error, rel=scatter.FIVE * scatter.of_deviation(400)
    )
    with pytest.raises(AttributeError, match="which have no stderr; ask the field"):
        field.sample(2).mean(BOX, stderr=True)


def test_terms_and_errors_that_remember(product: xr.DataArray) -> None:
    series = (
        product.isel(lat=2, lon=20).drop_vars(["lat", "lon"]).interpolate_na("time", fill_value="extrapolate")
    )
    field = series.spline.fit(time=SEASONS, errors=xs.AR1("time"))
    at = xr.DataArray([1.0], {"time": series.time[:1]})
    summed = field.functional(at, stderr=True).sst_functional_stderr.item()
    assert summed == pytest.approx(field.stderr(time=series.time[:1]).item(), rel=1e-8)
    trend = field.select(time=xs.Polynomial)
    summed = trend.functional(at, stderr=True).sst_functional_stderr.item()
    assert summed == pytest.approx(trend.stderr(time=series.time[:1]).item(), rel=1e-8)


@pytest.fixture(scope="module")
def bare() -> xs.Field:
    lat, lon = np.linspace(-20.0, 20.0, 11), np.linspace(150.0, 210.0, 16)
    y, x = np.deg2rad(lat)[:, None], np.deg2rad(lon)
    values = (
        20 * np.cos(y) + np.sin(4 * x) * np.cos(3 * y) + np.random.default_rng(0).normal(0, 0.1, (11, 16))
    )
    return xr.DataArray(values, {"lat": lat, "lon": lon}, name="sst").spline.fit()


def test_means_of_a_fine_field(bare: xs.Field) -> None:
    box = {"lat": (-10.0, 10.0), "lon": (170.0, 190.0)}
    lat, lon = np.linspace(-9.75, 9.75, 40), np.linspace(170.25, 189.75, 40)
    weights = np.cos(np.deg2rad(xr.DataArray(lat, {"lat": lat})))
    fine = bare.predict(lat=lat, lon=lon).weighted(weights).mean()
    assert bare.mean(box).item() == pytest.approx(fine.item(), abs=0.005)
    smooth = xr.DataArray(np.sin(np.arange(60.0) / 2), {"x": np.arange(60.0)}, "x", "u").spline.fit()
    mean = (np.cos(3.5) - np.cos(6)) / 2.5  # over 5 labels: by nodes at even distances .0105 of it more
    assert smooth.mean({"x": (7, 12)}).item() == pytest.approx(mean, rel=2e-4)
    cells = bare.regrid({"lat": [-10.0, 0.0, 10.0], "lon": [170.0, 180.0, 190.0]})
    one = bare.mean({"lat": (-5, 5), "lon": (175, 185)})
    assert cells.sel(lat=0, lon=180).item() == pytest.approx(one.item(), abs=1e-10)
    at = xr.DataArray([1.0, -1.0], {"lat": [3.0, -8.0]})
    values = bare.predict(lat=at.lat, lon=[180.0]).squeeze()
    difference = bare.functional(at, lon=[180.0])
    assert difference.item() == pytest.approx(float(values[0] - values[1]), abs=1e-9)


def dense_errors(field: xs.Field, weights: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The covariance of errors of sums with weights [m, N] at x, by matrices of all observations and one model."""
    fit, member = field.fits["u"], field.fits["u"].fine.first
    ((_, model),) = member.models
    own, window = member.coordinates[:, 0], Windows(member.pyramid.spread, [member.window])
    lengths = model.lengths[:, 0]

    def between(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        apart = np.abs(x[:, None] - y)
        each = zip(model.variances, model.smoothness, lengths, strict=True)
        return sum(v * matern(np.sqrt(2 * nu) * apart / length, nu) for v, nu, length in each)

    noise = model.noise * np.eye(own.size)
    phi, phi_at = (functions_at(field.space, x[:, None]).T for x in (own, at))
    penalty = fit.penalty.gram(field.space).to_dense(field.space.frame)
    kriged = np.linalg.solve(between(own, own) + noise, between(own, at))
    solved = np.linalg.solve(phi @ phi.T + penalty, phi_at - phi @ kriged)
    factors = kriged + phi.T @ solved  # of observations, for each place
    square = between(at, at) - factors.T @ between(own, at) - between(at, own) @ factors
    square += factors.T @ (between(own, own) + noise) @ factors
    stretch = stats.t.ppf(0.975, own.size - member.rows.shape[1]) / stats.norm.ppf(0.975)
    square *= window.scales(model).mean() * stretch**2
    square += solved.T @ penalty @ solved * fit.sigma() ** 2
    return weights.T @ square @ weights


def test_errors_of_a_fine_field_are_the_dense_formula() -> None:
    x, rng = np.arange(340.0), np.random.default_rng(0)
    walk = np.cumsum(rng.normal(0, 0.3, 340)) * 0.3 + np.sin(x / 9) + rng.normal(0, 0.2, 340)
    walk[100:130] = np.nan
    field = xr.DataArray(walk, {"x": x}, name="u").spline.fit()
    at = np.arange(0.0, 340.0, 2)
    weights = np.stack([(at > 96) & (at < 120), (at > 200) & (at < 240), at - at.mean()], axis=1) * 1.0
    weights /= np.abs(weights).sum(axis=0)
    given = xr.DataArray(weights, {"x": at}, ("x", "of"))
    result = field.functional(given, covariance=True)
    expected = dense_errors(field, weights, at)
    size = np.sqrt(np.outer(np.diagonal(expected), np.diagonal(expected)))
    np.testing.assert_allclose(result.u_functional_covariance / size, expected / size, atol=5e-4)
    np.testing.assert_allclose(result.u_functional_stderr**2, np.diagonal(result.u_functional_covariance))
    assert result.u_functional_stderr.method == "exact" and "neighbours" in result.u_functional_stderr.comment


@pytest.mark.slow
@pytest.mark.parametrize("axes", [("t",), ("y", "x")])
def test_errors_of_means_of_a_smooth_field_are_those_of_pairs(
    axes: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values that are near and smooth tell each other up to rounding, which once grew from value to value to 1e40."""
    size = 1200 if len(axes) == 1 else 36
    x, rng = np.linspace(0, 10, size), np.random.default_rng(0)
    wave = np.sin(x) if len(axes) == 1 else np.sin(x) * np.cos(x / 2)[:, None]
    noisy = wave + rng.normal(0, 0.1, wave.shape)
    field = xr.DataArray(noisy, dict.fromkeys(axes, x), axes, "u").spline.fit()
    box = dict.fromkeys(axes, (3, 5))
    paired = field.mean(box, stderr=True).u_stderr.item()
    assert paired < field.stderr(dict.fromkeys(axes, x)).max()
    monkeypatch.setattr("xspline.kriging.functionals.SANDWICHED", 0)
    assert 0.8 * paired < field.mean(box, stderr=True).u_stderr.item() < 2.2 * paired


def test_cells_that_nothing_reaches_have_no_errors() -> None:
    x = np.arange(40.0)
    field = xr.DataArray(np.sin(x / 4), {"x": x}, "x", "u").spline.fit()
    for target in ([100.0, 110.0], [20.0, 60.0, 110.0]):
        cells = field.regrid({"x": target}, stderr=True)
        xr.testing.assert_equal(cells.u.isnull(), cells.u_stderr.isnull())
        assert cells.u.isnull().sum() == 2


@pytest.mark.slow
def test_along_a_track_places_keep_their_dimension() -> None:
    """Also where it has the name of what is averaged over; errors are those of the covariance, sum by sum."""
    rng = np.random.default_rng(0)
    lat, lon = np.cumsum(rng.normal(0, 0.3, (2, 60)), axis=1)
    labels = {"time": np.arange(60.0), "lat": ("time", lat), "lon": ("time", lon)}
    field = xr.DataArray(np.sin(lat) + lon + rng.normal(0, 0.1, 60), labels, "time", "u").spline.fit()
    mean = field.mean("time", covariance=True)
    assert mean.u.dims == ("time",) and {"lat", "lon"} <= set(mean.coords) and "time" not in mean.coords
    alone = field.mean("time", stderr=True)
    np.testing.assert_allclose(alone.u_stderr**2, np.diagonal(mean.u_covariance), rtol=1e-7)
    over = field.predict(lat=lat[7], lon=lon[7], time=np.linspace(0.5, 58.5, 59)).mean()
    assert alone.u[7].item() == pytest.approx(over.item(), abs=1e-3)


def test_a_season_beside_a_fine_field_is_averaged_over_the_record() -> None:
    """The Fourier series has no domain, and its first year is none of the observed ones."""
    time = np.arange("1990-01", "1994-01", dtype="datetime64[M]").astype("datetime64[ns]")
    values = 20 + np.cumsum(np.random.default_rng(0).normal(size=48))
    data = xr.DataArray(values, {"time": time}, name="u")
    field = data.spline.fit(time=xs.Fourier(1, "year"), fine=True)
    mean = field.mean(stderr=True)
    within = field.mean({"time": (time[0], time[-1])}, stderr=True)
    xr.testing.assert_allclose(mean, within)
    assert mean.u_stderr < 0.1
    anomaly = field.anomaly()
    xr.testing.assert_allclose(anomaly, field.anomaly(reference=(time[0], time[-1])))


def test_terms_beside_a_fine_field_have_errors() -> None:
    time = np.arange("2000-01", "2010-01", dtype="datetime64[M]").astype("datetime64[ns]")
    rng = np.random.default_rng(0)
    values = np.convolve(rng.normal(0, 0.2, 124), np.ones(5), "valid") + np.cos(np.arange(120) * np.pi / 6)
    field = xr.DataArray(values, {"time": time}, name="sst").spline.fit()
    anomaly = field.anomaly(time=time[:5])
    fourier = field.select(time=xs.Fourier).predict(time=time[:5])
    left = field.predict(time=time[:5]) - fourier - anomaly
    np.testing.assert_allclose(left, left[0], atol=1e-9)
    trend = field.select(time=xs.Polynomial)
    at = xr.DataArray([1.0], {"time": time[7:8]})
    summed = trend.functional(at, stderr=True).sst_functional_stderr.item()
    assert summed == pytest.approx(trend.stderr(time=time[7:8]).item(), rel=1e-8)
    with pytest.raises(ValueError, match="'draws': the errors of a field with a fine part, and of terms"):
        trend.mean("time", stderr=True, method="draws")


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda f: f.mean("latt"), "no fitted coordinate 'latt'; did you mean 'lat'"),
        (lambda f: f.mean([]), "a mean over no coordinate; name one of lat, lon, time"),
        (lambda f: f.mean({"lat": 5}), r"lat=5 is no range; pass a pair of .* as in \{'lat': \(lo, hi\)\}"),
        (lambda f: f.mean({"lat": (5, -5)}), r"lat=\(5, -5\): the ends of a range have to ascend"),
        (lambda f: f.mean({"lat": (50, 60)}), r"the range 50.0 to 60.0 .* outside its domain -20.0 to 20.0"),
        (lambda f: f.mean("lat", weights="volume"), "weights='volume' is unknown; pass 'area'"),
        (lambda f: f.mean("lat", lat=[0.0]), r"'lat' is averaged over, and .* of it.*\{'lat': \(lo, hi\)\}"),
        (lambda f: f.mean("lat", method="exact"), r"method='exact' is of the standard .* takes stderr=True"),
        (lambda f: f.integral("lat"), r"the integral over 'lat' by area needs .* it, or pass weights=None"),
        (lambda f: f.mean("lat", where=3), "where=3 has to be a DataArray of bool or numbers with labels"),
        (lambda f: f.regrid({"lat": [0.0]}), "the cells around the labels of 'lat' are not known"),
        (lambda f: f.regrid({"lat": [0.0, 1.0]}, dims=["depth"]), "no fitted coordinate 'depth'"),
        (lambda f: f.regrid({"time": ["2001"]}), "no times; pass dims=, one or more of .*'time'"),
        (lambda f: f.anomaly(dim="depth"), "no fitted coordinate 'depth'"),
        (lambda f: f.anomaly(mean=["time"]), "'time' is averaged over, so that it has no anomaly"),
    ],
)
def test_what_is_refused(field: xs.Field, call: object, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        call(field)


@pytest.mark.parametrize(
    "call",
    [lambda f: f.mean(3), lambda f: f.integral(3), lambda f: f.anomaly(mean=3)],
    ids=["mean", "integral", "anomaly"],
)
def test_what_names_no_coordinates_is_refused(field: xs.Field, call: object) -> None:
    with pytest.raises(
        TypeError, match=r"3 names no coordinates to go over; pass .* of lat, lon, time, .*: \(lo, hi\)\}"
    ):
        call(field)


def test_masks_that_are_refused(field: xs.Field, product: xr.DataArray) -> None:
    lat = product.lat
    numbers = xr.where(lat > 0, 1.0, np.nan)
    with pytest.raises(ValueError, match=r"weights= holds NaN at 9 of 17 labels.*fillna\(0\)"):
        field.functional(numbers)
    for mask, match in (
        (numbers, r"where= holds NaN, as a map of the numbers of regions.*mask_3D"),
        (lat > 90, "where= marks no label"),
        (-1.0 * (lat > 0), "where= has to be finite and 0 or more"),
        (xr.DataArray([True], dims="lat"), "dimension 'lat' of where= has no labels"),
        ((0 * lat == 0).expand_dims(longitude=[10.0]), r"has no 'lon'.*\.rename\(longitude='lon'\)"),
        (
            xr.DataArray([True], {"y": [0.0]}),
            r"where= has dimensions \('y',\), and none is a fitted coordinate",
        ),
        (
            xr.DataArray([True, True], {"lat": [10.0, 30.0]}),
            "where= counts 1 labels of 'lat' outside its domain -20.0",
        ),
        (xr.DataArray([True, True], {"lat": [3.0, 3.0]}), "labels of 'lat' are there twice"),
    ):
        with pytest.raises(ValueError, match=match):
            field.mean("lat", where=mask)
    with pytest.raises(ValueError, match="where= goes along 'lat', which is not averaged over"):
        field.mean("lon", where=lat > 0)
    regions = xr.concat([lat > 0, lat < 0], "region")
    with pytest.raises(ValueError, match="'region' is a dimension of the weights and of what is left"):
        field.mean("lat", where=regions, time=xr.DataArray(product.time.values[:2], dims="region"))
    halves = xr.concat([product.lon > 180, product.lon < 180], "region")
    with pytest.raises(ValueError, match="'region' is a dimension of weights= and of where= too"):
        field.functional(regions * 1.0, where=halves)
    with pytest.raises(ValueError, match="'lat' is averaged over and has weights= too"):
        field.functional(1.0 * (lat > 0), mean=["lat"])


def test_ranges_that_leave_the_domain_warn(field: xs.Field) -> None:
    with pytest.warns(xs.FitWarning, match="the range 0.0 to 30.0 of 'lat' leaves the domain -20.0 to 20.0"):
        mean = field.mean({"lat": (0, 30)}, lon=[180.0], time=["2001"])
    assert mean.item() == field.mean({"lat": (0, 20)}, lon=[180.0], time=["2001"]).item()
    field.mean({"time": ("2000", "2002")})  # a year that ends after the last label is meant as it is


def test_lazy_fields_say_so(product: xr.DataArray) -> None:
    lazy = product.chunk(time=12).spline.fit(BASES, penalty=1e-2, compute=False)
    with pytest.raises(ValueError, match=r"this field is still lazy .*; call .compute\(\) first"):
        lazy.mean("lat")
