"""The line that a notebook user types, on real data: without arguments, everything chosen and shown."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import xspline as xs

# Half of the labels at most by default, and what a minute allows: less than these data resolve, which the fit says.
pytestmark = pytest.mark.filterwarnings("ignore:.*the knots limit the fit:xspline.FitWarning")


def check(field: xs.Field, data: xr.DataArray, r2: float) -> None:
    """What every field that nobody described has: a penalty that was chosen, and a line of code that asks for it."""
    summary = field.summary()
    print(f"{data.name}: {field.code()}\n{summary.attrs['smoothing']}")
    chosen = "tau" if "tau" in summary else "lambda"
    assert field.request.penalty == "reml" and np.isfinite(summary[chosen]).all() and float(summary.r2) > r2
    again = eval(f"data.spline.space({field.code()[4:].split(', penalty=')[0]})", {"data": data, "xs": xs})
    assert again == field.space
    assert all(basis.code("xs.").split("(")[0] in repr(field) for _, basis in field.space.axes.values())


@pytest.mark.slow
def test_a_global_product_with_and_without_dask(data_dir: Path) -> None:
    path = data_dir / "ersst_v5_2010_2020.nc"
    sst = xr.open_dataset(path).sst.load()
    field = sst.spline.fit()
    assert isinstance(field.penalty, xs.SpaceTime) and field.space.basis("time").has_events
    check(field, sst, 0.999)
    ninos = [
        x.sel(lat=slice(5, -5), lon=slice(190, 240)).mean(("lat", "lon")) for x in (sst, field.predict())
    ]
    assert float(xr.corr(*ninos)) > 0.99
    quick = [
        own.sst.spline.fit(seconds=5) for own in (xr.open_dataset(path), xr.open_dataset(path, chunks={}))
    ]
    assert quick[0].space == quick[1].space
    np.testing.assert_allclose(quick[0].summary().edf, quick[1].summary().edf, rtol=1e-5)


@pytest.mark.slow
def test_reports_of_moorings(data_dir: Path) -> None:
    ds = xr.open_dataset(data_dir / "tao_sst_5day.nc").load()
    sst = ds.set_coords(["lat", "lon", "time"]).sst
    field = sst.spline.fit()
    check(field, sst, 0.94)
    assert field.space.basis("time").has_events


@pytest.mark.slow
def test_a_curvilinear_grid(data_dir: Path) -> None:
    ice = xr.open_dataset(data_dir / "cmip6_canesm5_sea_ice_2020.nc").siconc
    check(ice.spline.fit(seconds=15), ice, 0.95)


@pytest.mark.slow  # some 40,000 coefficients
def test_an_altimetry_product(data_dir: Path) -> None:
    adt = xr.open_dataset(data_dir / "adt_mediterranean_2005_q2.nc").adt
    check(adt[:30].spline.fit(seconds=6), adt[:30], 0.85)
