"""Season, trend and events along one coordinate: holders, files and checkpoints as with any other basis."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import xspline as xs
from tests.products import undated
from xspline.spaces import Arrow

TIME = xs.Fourier(1, "year") + xs.Polynomial(1) + xs.BSpline(40)
PENALTY = xs.Sobolev({1: 1e-2, 2: 1e-5})


@pytest.fixture(scope="module")
def moorings() -> xr.DataArray:
    rng, n = np.random.default_rng(0), 900
    days = rng.integers(0, 4 * 365, n)
    lat = rng.choice([-5.0, -2.0, 0.0, 2.0, 5.0], n)
    values = (
        20 + np.cos(2 * np.pi * days / 365) + 0.1 * lat + np.sin(days / 60.0) + 0.2 * rng.standard_normal(n)
    )
    time = np.datetime64("2001-01-01", "ns") + days * np.timedelta64(1, "D")
    return xr.DataArray(values, {"time": ("obs", time), "lat": ("obs", lat)}, "obs", "sst")


@pytest.fixture(scope="module")
def space(moorings: xr.DataArray) -> xs.Space:
    agreed = moorings.spline.space(lat=5, time=TIME)
    assert any(isinstance(features, Arrow) for features in agreed.features)
    return agreed


def test_holders_add_up_to_all_and_can_be_taken_out(moorings: xr.DataArray, space: xs.Space) -> None:
    years = moorings.spline.statistics(space, holder="time.year")
    apart = [
        moorings.where(moorings.time.dt.year == year, drop=True).spline.statistics(space, holder=str(year))
        for year in range(2001, 2005)
    ]
    whole = moorings.spline.fit(space, penalty=PENALTY)
    for merged in (years, xs.merge(apart)):
        xr.testing.assert_allclose(
            merged.solve(PENALTY).predict(moorings), whole.predict(moorings), rtol=1e-9
        )
    rest = xs.merge(apart) - apart[2]
    same = xs.merge([apart[0], apart[1], apart[3]])
    xr.testing.assert_identical(*(undated(s.solve(PENALTY).predict(moorings)) for s in (rest, same)))
    errors = years.solve(PENALTY).stderr(moorings, method="jackknife")
    assert float(errors.min()) > 0 and np.isfinite(errors).all()


def test_files_and_checkpoints_keep_the_bits(moorings: xr.DataArray, space: xs.Space, tmp_path: Path) -> None:
    statistics = moorings.spline.statistics(space)
    statistics.to_zarr(tmp_path / "sums.zarr")
    before = statistics.solve(PENALTY).predict(moorings)
    again = xs.open_statistics(tmp_path / "sums.zarr").solve(PENALTY).predict(moorings)
    xr.testing.assert_identical(undated(again), undated(before))
    chunked = moorings.chunk(obs=200)
    first, second = (
        chunked.spline.fit(space, penalty=PENALTY, checkpoint=tmp_path / "sums").predict(moorings)
        for _ in range(2)
    )
    xr.testing.assert_identical(undated(first), undated(second))
    xr.testing.assert_allclose(first, before, rtol=1e-9)
