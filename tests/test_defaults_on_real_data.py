"""The line that a notebook user types, on real data: without arguments, everything chosen and shown."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import xspline as xs


def check(field: xs.Field, data: xr.DataArray, r2: float) -> None:
    """What every field that nobody described has: a fine field, and a line of code that asks for it."""
    summary = field.summary()
    print(f"{data.name}: {field.code()}\n{summary.attrs['fine']}")
    assert float(summary.r2) > r2
    assert 0 < float(summary.sigma)
    assert 0 < float(summary.edf) <= field.statistics.count
    assert field.code().endswith("fine=True)") and "correlation lengths" in summary.attrs["fine"]
    again = eval(f"data.spline.space({field.code()[4:].split(', penalty=')[0]})", {"data": data, "xs": xs})
    assert again == field.space
    assert all(basis.code("xs.").split("(")[0] in repr(field) for _, basis in field.space.axes.values())


@pytest.mark.slow
def test_a_global_product_with_and_without_dask(data_dir: Path) -> None:
    path = data_dir / "ersst_v5_2010_2020.nc"
    opened = [
        own.sst.isel(lat=slice(None, None, 6), lon=slice(None, None, 6), time=slice(24))
        for own in (xr.open_dataset(path), xr.open_dataset(path, chunks={}))
    ]
    fields = [sst.spline.fit() for sst in opened]
    sst = opened[0].load()
    check(fields[0], sst, 0.999)
    assert fields[0].space.periodic == (False, True, False)
    region = sst.sel(lat=slice(5, -5), lon=slice(190, 240))[::2]
    ninos = [x.mean(("lat", "lon")) for x in (region, fields[0].predict(region))]
    assert float(xr.corr(*ninos)) > 0.99
    away = abs(fields[1].predict(region) - fields[0].predict(region)) / fields[0].stderr(region)
    assert float(away.max()) < 1e-3


@pytest.mark.slow
def test_reports_of_moorings(data_dir: Path) -> None:
    ds = xr.open_dataset(data_dir / "tao_sst_5day.nc").load()
    sst = ds.set_coords(["lat", "lon", "time"]).sst
    last = sst.obs % 20 == 0
    field = sst[~last].spline.fit()
    check(field, sst[~last], 0.94)
    assert "\"time\": xs.Polynomial(1) + xs.Fourier(2, period='year')" in field.code()
    held = sst[last][::5]  # in standard errors of a new observation
    z = (field.predict(held) - held) / np.hypot(field.stderr(held), field.summary().sigma)
    assert 0.92 < float((abs(z) < 1.96).mean()) < 0.985


@pytest.mark.slow
def test_a_curvilinear_grid(data_dir: Path) -> None:
    ice = xr.open_dataset(data_dir / "cmip6_canesm5_sea_ice_2020.nc").siconc
    check(ice.spline.fit(), ice, 0.95)


@pytest.mark.slow
def test_an_altimetry_product(data_dir: Path) -> None:
    adt = xr.open_dataset(data_dir / "adt_mediterranean_2005_q2.nc").adt[:10].load()
    field = adt.spline.fit()
    check(field, adt, 0.99)
    assert set(field.space.shape) == {1}  # ten days have no season: the coarse field is the mean


@pytest.mark.slow
def test_between_the_labels_of_a_coarse_grid(data_dir: Path) -> None:
    """A part of the field was as long as a sixth of a label, and there was nothing of it between two rows."""
    whole = xr.open_dataset(data_dir / "ersst_v5_2010_2020.nc").sst.sel(
        lat=slice(10, -10), lon=slice(180, 260)
    )
    whole = whole[:60].load()
    seen = whole[:, ::2, ::4]
    field = seen.spline.fit()
    lengths = field.summary().fine_length_in_labels.sel(along=["lat", "lon"])
    assert float(lengths.min()) > 0.99
    at = {"lat": whole.lat, "lon": whole.lon}
    off = {"bare": field.predict(whole) - whole, "linear": seen.interp(at) - whole}
    rmse = {name: float(np.sqrt((own**2).mean())) for name, own in off.items()}
    assert rmse["bare"] < rmse["linear"], rmse
