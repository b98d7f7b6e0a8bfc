"""Geostrophic velocity of a sea level, vorticity and divergence of velocities, on the sphere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import xspline as xs

R, G, OMEGA = xs.EARTH_RADIUS, 9.80665, 7.292115e-5
LAT = xr.DataArray(np.linspace(-60, 60, 41), dims="lat", name="lat", attrs={"units": "degrees_north"})
LON = xr.DataArray(np.linspace(100, 160, 31), dims="lon", name="lon", attrs={"units": "degrees_east"})
#: Powers of latitude and longitude, which cubic splines hold exactly.
Y, X = LAT / 60, (LON - 130) / 30
PER_Y, PER_X = np.rad2deg(1) / 60 / R, np.rad2deg(1) / 30 / R / np.cos(np.deg2rad(LAT))


def field(values: xr.DataArray, name: str, units: str, **options: Any) -> xs.Field[xr.DataArray]:
    data = values.transpose("lat", "lon").assign_coords(lat=LAT, lon=LON).rename(name)
    return data.assign_attrs(units=units).spline.fit(**{"lat": 9, "lon": 8, "penalty": 0.0, **options})


def near(computed: xr.DataArray, exact: xr.DataArray, rtol: float = 1e-8) -> None:
    exact = exact.transpose(*computed.dims)
    np.testing.assert_allclose(computed.values, exact.values, rtol=0, atol=rtol * float(abs(exact).max()))


def test_geostrophic_velocity_is_that_of_the_exact_slope() -> None:
    eta = 0.3 * Y**3 * X - 0.2 * Y * X**2
    f = 2 * OMEGA * np.sin(np.deg2rad(LAT))
    for units, scale in (("m", 1.0), ("cm", 100.0)):
        flow = field(scale * eta, "adt", units).geostrophic()
        beyond = abs(LAT) >= 5
        near(flow.u.where(beyond, 0), (-G / f * PER_Y * (0.9 * Y**2 * X - 0.2 * X**2)).where(beyond, 0))
        near(flow.v.where(beyond, 0), (G / f * PER_X * (0.3 * Y**3 - 0.4 * Y * X)).where(beyond, 0))
        assert flow.u.isnull().all("lon").values.tolist() == (abs(LAT) < 5).values.tolist()
    assert flow.u.units == "m s-1" and flow.v.long_name == "northward geostrophic velocity"
    assert np.isfinite(field(eta, "adt", "m").geostrophic(equator=2).u.sel(lat=3)).all()


def test_vorticity_and_divergence_are_those_of_the_exact_velocity() -> None:
    u, v = Y**3 - X * Y, X**2 * Y + Y**2
    both = field(u, "u", "m s-1"), field(v, "v", "m s-1")
    tan = np.tan(np.deg2rad(LAT)) / R
    near(xs.vorticity(*both), PER_X * 2 * X * Y - PER_Y * (3 * Y**2 - X) + tan * u)
    near(xs.divergence(*both), PER_X * -Y + PER_Y * (X**2 + 2 * Y) - tan * v)
    spin = xs.vorticity(*both, {"lat": 30.0, "lon": [110.0, 120.0]}, stderr=True)
    assert spin.vorticity.dims == ("lon",) and spin.vorticity.units == "s-1"
    assert list(spin) == ["vorticity", "vorticity_stderr"]


@pytest.mark.slow
@pytest.mark.parametrize("function", [xs.vorticity, xs.divergence])
def test_labels_and_their_order_are_those_of_the_first_field(function: Callable[..., Any]) -> None:
    u, plain = field(Y**3 + X, "u", "m s-1"), field(X * Y, "v", "m s-1")
    turned = plain.predict().transpose("lon", "lat").isel(lat=slice(1, None)).assign_attrs(units="m s-1")
    v = turned.expand_dims(run=[1, 2]).spline.fit(lon=9, lat=8, penalty=0)
    result = function(u, v)
    assert result.dims == ("lat", "lon", "run") and result.lat.equals(u.predict().lat)
    near(result.isel(run=0, lat=slice(1, None)), function(u, plain).isel(lat=slice(1, None)))
    assert function(v, u).dims == ("run", "lon", "lat") and function(v, u).sizes["lat"] == LAT.size - 1
    both = function(u, v, stderr=True)
    assert both[f"{function.__name__}_stderr"].dims == ("lat", "lon", "run")


def noisy(seed: int, name: str, units: str) -> xs.Field[xr.DataArray]:
    noise = np.random.default_rng(seed).normal(0, 0.1, (LAT.size, LON.size))
    return field(xr.DataArray(noise, dims=("lat", "lon")), name, units, penalty=1.0)


def test_standard_errors_are_those_of_draws() -> None:
    """Of vorticity at most: 0 to 5 % longer here, where a slope goes over 15 degrees and more."""
    at = {"lat": [-50.0, -20.0, 10.0, 40.0], "lon": [110.0, 130.0, 155.0]}
    u, v = noisy(1, "u", "m s-1"), noisy(2, "v", "m s-1")
    drawn = [w.sample(4000, seed=k) for k, w in enumerate((u, v))]
    for function in (xs.vorticity, xs.divergence):
        ratio = function(u, v, at, stderr=True)[f"{function.__name__}_stderr"] / function(*drawn, at).std(
            "sample"
        )
        assert 0.95 < ratio.min() and ratio.max() < 1.15, ratio.values
    eta = noisy(3, "adt", "m")
    flow, spread = eta.geostrophic(at, stderr=True), eta.sample(4000, seed=3).geostrophic(at).std("sample")
    for name in ("u", "v"):
        np.testing.assert_allclose(flow[f"{name}_stderr"], spread[name], rtol=0.05)


@pytest.mark.parametrize("part", ["fine", "chunked", "by time"])
def test_velocities_of_every_kind_of_field(part: str) -> None:
    eta = (0.1 * Y * X).transpose("lat", "lon").assign_coords(lat=LAT, lon=LON).rename("adt")
    eta = eta.assign_attrs(units="m").expand_dims(time=3)
    match part:
        case "fine":
            level = eta[0, 24::2, ::2]
            level = level + np.random.default_rng(0).normal(0, 0.01, level.shape)
            flow = (
                level.assign_attrs(units="m")
                .spline.fit()
                .geostrophic({"lat": [30.0, 40.0], "lon": 120.0}, stderr=True)
            )
            assert (flow.u_stderr > 0).all() and (abs(flow.u + 0.01) < 0.1).all()
        case "chunked":
            lazy = eta[0].chunk(lat=20).spline.fit(lat=8, lon=8, penalty=0).geostrophic(stderr=True)
            assert lazy.u.chunks is not None and lazy.u_stderr.chunks is not None
        case "by time":
            flow = eta.spline.fit(lat=8, lon=8, penalty=0).geostrophic({"lat": [30.0], "lon": [120.0, 130.0]})
            assert flow.u.dims == ("time", "lat", "lon")


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "no units": (
        lambda: field(Y * X, "adt", "").geostrophic(),
        r"geostrophic\(\) takes a height of the sea.* and 'adt' has units ''; give the data units of length",
    ),
    "other units": (
        lambda: field(Y * X, "sst", "degC").geostrophic(),
        r"geostrophic\(\) takes a height.* and 'sst' has units 'degC'",
    ),
    "an equator beyond the pole": (
        lambda: field(Y * X, "adt", "m").geostrophic(equator=95),
        "equator=95 has to be a latitude in degrees, at least 0 and below 90",
    ),
    "no gravity": (
        lambda: field(Y * X, "adt", "m").geostrophic(gravity=-1),
        "gravity=-1 has to be above 0, in m s⁻²; leave it out for that of the Earth",
    ),
    "no longitude": (
        lambda: field(Y * X, "adt", "m", lon=None).geostrophic(),
        "geometry='sphere' needs a latitude and a longitude among",
    ),
    "no field": (
        lambda: xs.vorticity(field(Y * X, "u", "m/s"), 3.0),
        r"vorticity\(u, v\) takes two fields, and 3.0 is none",
    ),
    "two units": (
        lambda: xs.divergence(field(Y * X, "u", "m/s"), field(Y * X, "v", "cm/s")),
        "'u' has units 'm/s' and 'v' 'cm/s', whose slopes do not add up; convert one",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_velocity_is_refused(what: str) -> None:
    call, message = REFUSED[what]
    with pytest.raises((TypeError, ValueError), match=message):
        call()


def test_a_field_of_several_variables_says_how_to_select() -> None:
    data = (Y * X).assign_coords(lat=LAT, lon=LON).assign_attrs(units="m")
    both = xr.Dataset({"adt": data, "sla": data}).spline.fit(lat=8, lon=8, penalty=0)
    with pytest.raises(ValueError, match=r"this field has 'adt', 'sla'; select it first: field\['adt'\]"):
        both.geostrophic()
    with pytest.raises(ValueError, match=r"one has 'adt', 'sla'; select them: xs.vorticity\(field\['u'\]"):
        xs.vorticity(both, both)


def differences(eta: xr.DataArray, dim: str, order: int) -> xr.DataArray:
    """Central differences a label, of second or of fourth order."""
    ahead = [(eta.shift({dim: -n}) - eta.shift({dim: n})) / 2 for n in (1, 2)]
    return ahead[0] if order == 2 else (4 * ahead[0] - ahead[1] / 2) / 3


@pytest.mark.slow
def test_currents_of_the_mediterranean_are_those_of_differences(data_dir: Path) -> None:
    """Central differences damp what is short: those of fourth order are nearer to the field, and less below it."""
    with xr.open_dataset(data_dir / "adt_mediterranean_2005_q2.nc") as product:
        adt = product.adt.isel(time=30).sel(latitude=slice(31, 39), longitude=slice(14, 29)).load()
    bases = {dim: adt.sizes[dim] for dim in ("latitude", "longitude")}
    flow = adt.spline.fit(bases, penalty=xs.Roughness("reml", order=2)).geostrophic(stderr=True)
    latitude = np.deg2rad(adt.latitude.astype(float))
    north = np.deg2rad(0.125) * R  # of a cell
    balance, shares, slopes = G / (2 * OMEGA * np.sin(latitude)), [], []
    for order in (2, 4):
        u = -balance * differences(adt, "latitude", order) / north
        v = balance * differences(adt, "longitude", order) / (north * np.cos(latitude))
        known = u.notnull() & v.notnull()
        theirs, mine = (
            np.stack([w.values[known.values] for w in pair]) for pair in ((u, v), (flow.u, flow.v))
        )
        shares.append(np.sqrt(((mine - theirs) ** 2).sum() / (mine**2).sum()))
        slopes.append((mine * theirs).sum() / (mine**2).sum())
    assert shares[1] < 0.1 < shares[0] < 0.15
    assert 0.9 < slopes[0] < slopes[1] < 1.0
    assert 0.005 < flow.u_stderr.where(known).median() < 0.02
