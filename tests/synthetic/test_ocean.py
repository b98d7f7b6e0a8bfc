"""The synthetic ocean: labels, land, seasons, and the same bytes for the same seed."""

from __future__ import annotations

import numpy as np
import xarray as xr

import xspline as xs

ocean = xs.synthetic.sea_surface_temperature


def test_labels_are_those_of_a_product() -> None:
    sst = ocean(24, 2.0).sst
    assert sst.dims == ("time", "lat", "lon") and sst.shape == (24, 40, 100)
    assert sst.dtype == np.float32 and sst.attrs["units"] == "degC"
    assert (float(sst.lat[0]), float(sst.lat[-1])) == (39.0, -39.0)
    assert str(sst.time.values[-1])[:7] == "1991-12"
    assert (sst.lat.attrs["units"], sst.lon.attrs["units"]) == ("degrees_north", "degrees_east")


def test_region_start_and_mask_are_the_callers() -> None:
    mask = xr.DataArray([[True, False]], {"lat": [0.0], "lon": [150.0, 200.0]}, ("lat", "lon"))
    sst = ocean(3, start="1981-12", lat=(-5.0, 5.0), lon=(150.0, 200.0), land_mask=mask).sst
    assert sst.shape == (3, 10, 50) and str(sst.time.values[0])[:7] == "1981-12"
    assert bool(sst.sel(lon=slice(None, 175)).isnull().all()) and bool(
        sst.sel(lon=slice(176, None)).notnull().all()
    )


def test_same_seed_same_bytes() -> None:
    assert ocean(6, 4.0, seed=3).identical(ocean(6, 4.0, seed=3))
    assert not ocean(6, 4.0, seed=3).equals(ocean(6, 4.0, seed=4))


def test_it_is_an_ocean() -> None:
    sst = ocean(48, 2.0).sst
    wet = sst.notnull()
    assert bool((wet.all("time") == wet.any("time")).all())  # land never changes
    assert 0.6 < float(wet.mean()) < 0.9
    assert not bool(wet.sel(lat=-25, lon=135, method="nearest").any())  # Australia
    assert bool(wet.sel(lat=0, lon=220, method="nearest").all())
    north = sst.sel(lat=slice(40, 20)).mean(("lat", "lon"))
    by_month = north.groupby("time.month").mean()
    assert int(by_month.idxmax()) in (8, 9) and int(by_month.idxmin()) in (2, 3)
