"""Season, trend and events on a map with land: `SpaceTime` by REML, in text, files, tables and with holders."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import xspline as xs
from tests.products import undated

BASES = {
    "lat": xs.BSpline(6),
    "lon": xs.BSpline(8),
    "time": xs.Fourier(1, "year") + xs.Polynomial(1) + xs.BSpline(12),
}


@pytest.fixture(scope="module")
def maps() -> xr.DataArray:
    """A wave that travels, a season and noise; land at the same places at all times."""
    coords = {
        "time": pd.date_range("2000-01-01", periods=60, freq="MS"),
        "lat": ("lat", np.linspace(-60, 60, 12), {"units": "degrees_north"}),
        "lon": ("lon", np.arange(0, 360, 20.0), {"units": "degrees_east"}),
    }
    month = np.arange(60)[:, None, None]
    lat, lon = np.deg2rad(coords["lat"][1])[:, None], np.deg2rad(coords["lon"][1])
    values = np.cos(lat) * np.cos(lon + month / 9) + np.cos(month * np.pi / 6) + 0.01 * month
    values = values + 0.2 * np.random.default_rng(0).normal(size=values.shape)
    values[:, 5:8, 3:6] = np.nan
    return xr.DataArray(values, coords, ("time", "lat", "lon"), "sst", {"units": "K"})


@pytest.fixture(scope="module")
def field(maps: xr.DataArray) -> xs.Field:
    return maps.spline.fit(BASES)


def test_it_is_chosen_and_finds_the_field(maps: xr.DataArray, field: xs.Field) -> None:
    assert isinstance(field.penalty, xs.SpaceTime)
    summary = field.summary()
    assert summary.attrs["solver"].startswith("separable: ")
    assert float(summary.sigma) == pytest.approx(0.2, rel=0.05)
    assert summary["lambda"].sel(penalised="time") > 0 and summary.metric.sel(penalised="lat") == 1
    assert "SpaceTime(space=xs.Sobolev" in str(field.check())
    errors = field.stderr(maps.isel(time=[0, 30]))
    land, sea = errors.isel(lat=6, lon=4), errors.isel(lat=6, lon=12)
    assert (land > 1.2 * sea).all()


def test_its_text_and_its_file_are_the_field(maps: xr.DataArray, field: xs.Field, tmp_path: Path) -> None:
    again = maps.spline.fit(BASES, penalty=eval(f"xs.{field.penalty!r}", {"xs": xs}))
    xr.testing.assert_allclose(again.predict(maps), field.predict(maps), rtol=1e-9)
    field.to_zarr(tmp_path / "field.zarr")
    opened = xs.open_field(tmp_path / "field.zarr")
    assert opened.penalty == field.penalty
    xr.testing.assert_identical(undated(opened.predict(maps)), undated(field.predict(maps)))
    times = maps.isel(time=[0])
    xr.testing.assert_allclose(opened.stderr(times), field.stderr(times), rtol=1e-9)


def test_holders_of_some_years_are_averaged_over_theirs(maps: xr.DataArray, field: xs.Field) -> None:
    years = maps.spline.statistics(BASES, holder="time.year")
    xr.testing.assert_allclose(years.solve(field.penalty).predict(maps), field.predict(maps), rtol=1e-9)
    rest = years.without("2002")
    solved = rest.solve(field.penalty)
    assert solved.summary().attrs["solver"].startswith("separable: ")
    assert abs(solved.predict(maps) - field.predict(maps)).max() < 2.0


@pytest.mark.slow
def test_gaps_of_their_own_are_refused_and_reml_takes_another_kind(maps: xr.DataArray) -> None:
    # One half of the map, then the other.
    clouds = maps.where((maps.lon > 180) == (maps.time < maps.time[30]))
    with pytest.raises(ValueError, match=r"data\.where\(data\.notnull\(\)\.all\('time'\)\)"):
        clouds.spline.fit(BASES, penalty=xs.SpaceTime())
    assert not isinstance(clouds.spline.fit(BASES).penalty, xs.SpaceTime)


def test_plans_know_what_it_costs(maps: xr.DataArray) -> None:
    rows = {row.mask: row for row in maps.spline.plan(BASES).rows}
    assert rows["static"].solver == rows["none"].solver == "separable" != rows["any"].solver
    assert rows["static"].seconds < rows["any"].seconds
    refused = {row.mask: row for row in maps.spline.plan(BASES, penalty=xs.SpaceTime()).rows}
    assert refused["any"].solver == "none" and "the same gaps" in refused["any"].reason


@pytest.mark.slow
def test_no_events_are_a_finding_and_no_warning(maps: xr.DataArray) -> None:
    month = xr.DataArray(np.arange(60), dims="time")
    still = np.cos(month * np.pi / 6) * np.cos(np.deg2rad(maps.lat)) + 0 * maps
    noisy = still + 0.2 * np.random.default_rng(4).normal(size=maps.shape)
    field = noisy.rename("sst").spline.fit(BASES)  # a warning would be an error
    assert isinstance(field.penalty, xs.SpaceTime) and "time" in field.summary().attrs["smoothing"]
    assert "no events along 'time' beside its season and trend" in str(field.check())
