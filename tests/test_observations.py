"""Observations as they come: moorings, a curvilinear ocean model with its own calendar, a sea between coasts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from scipy import ndimage

import xspline as xs

METRES_PER_DEGREE = xs.EARTH_RADIUS * np.pi / 180


def rmse(errors: xr.DataArray) -> float:
    return float(np.sqrt((errors**2).mean()))


PLACE = {"lat": 9, "lon": 12}
SEASONS = PLACE | {"time": xs.Fourier(2, period="365.2425D")}
EVENTS = PLACE | {"time": xs.BSpline(spacing="60D")}
SEASON_PENALTY = xs.Roughness({"lat": 10, "lon": 10}, order=1)  # as examples/moorings.py chooses them
EVENT_PENALTY = xs.Roughness({"lat": 100, "lon": 100, "time": 1e-2}, order=1)


@pytest.fixture(scope="module")
def tao(data_dir: Path) -> xr.DataArray:
    """Five-day means of 71 moorings along obs, each labelled with its mooring; one mooring in five is withheld."""
    with xr.open_dataset(data_dir / "tao_sst_5day.nc") as opened:
        sst = opened.load().set_coords(["lat", "lon", "time"]).sst.assign_attrs(units="degC")
    places, mooring = np.unique(np.stack([sst.lat, sst.lon], axis=1), axis=0, return_inverse=True)
    withheld = np.random.default_rng(0).permutation(len(places)) % 5 == 0
    return sst.assign_coords(mooring=("obs", mooring), withheld=("obs", withheld[mooring]))


@pytest.fixture(scope="module")
def climatology(tao: xr.DataArray) -> xs.Field:
    return tao[~tao.withheld].spline.fit(tao.spline.space(SEASONS), penalty=SEASON_PENALTY)


@pytest.fixture(scope="module")
def anomaly(tao: xr.DataArray, climatology: xs.Field) -> xs.Field:
    left = tao[~tao.withheld] - climatology.predict()
    return left.spline.fit(tao.spline.space(EVENTS), penalty=EVENT_PENALTY)


@pytest.mark.slow
def test_every_report_of_the_moorings_is_fitted(tao: xr.DataArray) -> None:
    field = tao.spline.fit(EVENTS, penalty=EVENT_PENALTY)
    assert field.statistics.count == 123_032 and field.statistics.outside == 0
    assert rmse(field.predict() - tao) < 0.6


@pytest.mark.slow
def test_withheld_moorings_are_predicted_better_than_by_their_season(
    tao: xr.DataArray, climatology: xs.Field, anomaly: xs.Field
) -> None:
    unseen = tao[tao.withheld]
    season = climatology.predict(unseen)
    single = tao[~tao.withheld].spline.fit(tao.spline.space(EVENTS), penalty=EVENT_PENALTY)
    scores = {
        "climatology": rmse(season - unseen),
        "climatology + anomaly": rmse(season + anomaly.predict(unseen) - unseen),
        "one fit of B-splines": rmse(single.predict(unseen) - unseen),
    }
    print(f"TAO, RMSE at {np.unique(unseen.mooring).size} withheld moorings, {unseen.size} reports: {scores}")
    assert scores["climatology + anomaly"] < 0.75 * scores["climatology"]
    assert scores["one fit of B-splines"] < 0.85 * scores["climatology"]


ICE = {"latitude": 60, "longitude": 90, "time": xs.Fourier(3, period="year")}


@pytest.fixture(scope="module")
def siconc(data_dir: Path) -> xr.DataArray:
    """Sea-ice concentration in %, monthly, on a tripolar grid with 2-D latitudes and longitudes, noleap calendar."""
    with xr.open_dataset(data_dir / "cmip6_canesm5_sea_ice_2020.nc") as opened:
        return opened.siconc.load()


def test_sea_ice_of_a_tripolar_grid(siconc: xr.DataArray) -> None:
    assert siconc.shape == (12, 291, 360) and siconc.latitude.dims == ("j", "i")
    field = siconc.spline.fit(ICE, penalty=0.01)
    assert field.space.periodic == (False, True, False), "its longitudes leave no gap"
    assert field.space.axes["time"][0].calendar == "noleap"
    assert field.statistics.count == int(siconc.notnull().sum())
    predicted = field.predict()
    xr.testing.assert_equal(predicted.coords.to_dataset(), siconc.coords.to_dataset())
    assert predicted.dims == siconc.dims and bool(np.isfinite(predicted).all()), "land included"
    polar = np.abs(siconc.latitude) > 60
    everywhere, poles = rmse(predicted - siconc), rmse((predicted - siconc).where(polar))
    print(f"CMIP6 sea ice: RMSE {everywhere:.2f} % everywhere, {poles:.2f} % poleward of 60 degrees")
    assert everywhere < 6 and poles < 0.25 * float(siconc.where(polar).std())


def test_uneven_longitudes_without_a_gap_close_the_circle() -> None:
    rng = np.random.default_rng(0)
    lat, lon = rng.uniform(-60, 60, 3000), rng.uniform(0, 360, 3000)
    around = xr.DataArray(lat + np.cos(np.deg2rad(lon)), {"lat": ("obs", lat), "lon": ("obs", lon)}, "obs")
    assert around.spline.space(lat=6, lon=8).periodic == (False, True)
    few = around[:60]
    assert few.spline.space(lat=6, lon=8).periodic == (False, True)
    part = around[(lon > 20) & (lon < 340)]
    assert part.spline.space(lat=6, lon=8).periodic == (False, False), "a gap of 40 degrees"


def test_a_prediction_keeps_the_labels_beside_those_that_were_fitted() -> None:
    lat, lon = np.meshgrid(np.linspace(0.0, 9.0, 5), np.linspace(0.0, 9.0, 6), indexing="ij")
    labels = {
        "lat": (("y", "x"), lat),
        "lon": (("y", "x"), lon),
        "y": np.arange(5),
        "basin": ("y", list("abcde")),
    }
    data = xr.DataArray(lat * lon, labels, ("y", "x"))
    field = data.spline.fit(lat=4, lon=4, penalty=1e-6)
    assert set(field.predict().coords) == set(field.gradient().coords) == {"lat", "lon", "y", "basin"}
    assert set(field.predict(data[0]).coords) == {"lat", "lon", "y", "basin"}
    assert field.laplacian(geometry="sphere").attrs["history"].endswith("laplacian(geometry='sphere')")
    slope = field.gradient(geometry="sphere").dfield_dlat
    assert slope.attrs["history"].endswith("gradient(geometry='sphere')")


SEA = {"latitude": 36, "longitude": 90, "time": 8}  # knots half a degree and eighteen days apart
# The weakest is enough to carry slopes over land.
SLIGHT = xs.Roughness({"latitude": 1e-5, "longitude": 1e-5})
NOISE = 0.011  # metres, what this fit leaves of the real data


@pytest.fixture(scope="module")
def adt(data_dir: Path) -> xr.DataArray:
    """Daily absolute dynamic topography of the Mediterranean in metres, three months at 1/8 degree, 62 % land."""
    with xr.open_dataset(data_dir / "adt_mediterranean_2005_q2.nc") as opened:
        return opened.adt.load()


def waves(at: xr.DataArray, length: float) -> dict[str, xr.DataArray]:
    """Return a height in metres, moving waves of some length in degrees, and its slopes per metre on a sphere."""
    k = 2 * np.pi / length
    moved = k * at.longitude + 2 * np.pi * (at.time - at.time[0]) / np.timedelta64(90, "D")
    across, slanted = 1.3 * k * at.latitude, 0.8 * k * (at.latitude + at.longitude)
    north = -0.13 * k * np.sin(moved) * np.sin(across) - 0.04 * k * np.sin(slanted)
    east = 0.1 * k * np.cos(moved) * np.cos(across) - 0.04 * k * np.sin(slanted)
    return {
        "height": (0.1 * np.sin(moved) * np.cos(across) + 0.05 * np.cos(slanted)).transpose(*at.dims),
        "north": north / METRES_PER_DEGREE,
        "east": east / (METRES_PER_DEGREE * np.cos(np.deg2rad(at.latitude))),
    }


def next_to_land(sea: xr.DataArray) -> xr.DataArray:
    """True in sea cells that have land among their eight neighbours."""
    return sea & xr.DataArray(ndimage.binary_dilation(~sea.values, np.ones((3, 3))), dims=sea.dims)


@pytest.mark.slow
@pytest.mark.parametrize("length", [2.5, 4.0, 8.0])
def test_slopes_next_to_the_coast(adt: xr.DataArray, length: float) -> None:
    noise = NOISE * np.random.default_rng(0).standard_normal(adt.shape)
    seen = (waves(adt, length)["height"] + noise).where(adt.notnull()).rename("adt")
    field = seen.spline.fit(SEA, penalty=SLIGHT)
    days = adt[::15]
    known, slopes = waves(days, length), field.gradient(days, geometry="sphere")
    errors = np.hypot(slopes.dadt_dlatitude - known["north"], slopes.dadt_dlongitude - known["east"])
    sea = adt.notnull().all("time")
    coast, interior = rmse(errors.where(next_to_land(sea))), rmse(errors.where(sea & ~next_to_land(sea)))
    slope = rmse(np.hypot(known["north"], known["east"]).where(sea))
    print(
        f"waves of {length} degrees: slope {slope:.2e}, RMSE coast {coast:.2e}, interior {interior:.2e} "
        f"per metre, ratio {coast / interior:.2f}"
    )
    assert coast < 3 * interior
    assert interior < 0.12 * slope


def test_the_mediterranean_is_mapped(adt: xr.DataArray) -> None:
    field = adt.spline.fit(SEA, penalty=SLIGHT)
    sea = adt.notnull().all("time")
    left = rmse(field.predict() - adt)
    assert left == pytest.approx(NOISE, rel=0.05)
    days = adt[::15]
    slopes = field.gradient(days, geometry="sphere")
    assert slopes.dadt_dlatitude.attrs["units"] == slopes.dadt_dlongitude.attrs["units"] == "m m-1"
    assert bool(np.isfinite(slopes).all().to_array().all()), "land included"
    coriolis = 2 * 7.2921e-5 * np.sin(np.deg2rad(days.latitude))
    speed = (9.81 / coriolis * np.hypot(slopes.dadt_dlatitude, slopes.dadt_dlongitude)).where(sea)
    print(
        f"Mediterranean: RMSE {left:.4f} m, geostrophic speed mean {speed.mean():.3f}, max {speed.max():.2f} m/s"
    )
    assert 0.05 < speed.mean() < 0.3 and speed.max() < 2
