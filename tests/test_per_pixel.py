"""A fit over time at every pixel: least squares pixel by pixel, wherever the gaps and whatever the chunks."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from tests.products import SEASONS

MONTHS, LAT, LON = 40, 11, 13


def series(gaps: str, dtype: str) -> xr.DataArray:
    """Months of a trend, a cycle and noise; among random gaps one pixel knows nothing and one too little."""
    rng = np.random.default_rng(0)
    months = np.datetime64("2001-03") + np.arange(MONTHS)
    t = np.arange(MONTHS)[:, None, None] / 12
    values = 280 + rng.normal(size=(LAT, LON)) * t + 3 * np.cos(2 * np.pi * t)
    values = (values + rng.normal(size=(MONTHS, LAT, LON))).astype(dtype)
    if gaps != "none":
        values[:, rng.random((LAT, LON)) < 0.3] = np.nan
    if gaps == "random":
        values[rng.random(values.shape) < 0.3] = np.nan
        values[:, 0, 0], values[3:, 1, 1] = np.nan, np.nan
    coords = {
        "time": months.astype("datetime64[ns]"),
        "lat": np.arange(LAT) * 2.0,
        "lon": np.arange(LON) * 3.0,
    }
    return xr.DataArray(values, coords, tuple(coords), "t")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dims", "dtype", "chunks"),
    [
        (("time", "lat", "lon"), "f4", None),
        (("time", "lat", "lon"), "f8", {"time": 17, "lon": 5}),
        (("lat", "lon", "time"), "f8", {"time": -1, "lat": 4}),
        (("lon", "time", "lat"), "f4", {"time": 17, "lon": 5}),
    ],
)
@pytest.mark.parametrize("gaps", ["none", "land", "random"])
def test_coefficients_of_least_squares(
    gaps: str, dtype: str, dims: tuple[str, ...], chunks: dict[str, int] | None
) -> None:
    data = series(gaps, dtype)
    moved = data.transpose(*dims)
    field = (moved if chunks is None else moved.chunk(chunks)).spline.fit(time=SEASONS)
    # [K, lat, lon] by `lstsq` of the rows that are known; NaN where they are too few.
    phi = field.space.features[0].design(field.space.to_float("time", data.time.values))
    expected = np.full((phi.shape[1], LAT, LON), np.nan)
    for i, j in np.ndindex(LAT, LON):
        y = data.values[:, i, j].astype(float)
        known = np.isfinite(y)
        if known.sum() >= phi.shape[1]:
            expected[:, i, j] = np.linalg.lstsq(phi[known], y[known], rcond=None)[0]
    coefficients = field.coefficients.transpose("time_basis", "lat", "lon").values
    np.testing.assert_array_equal(np.isnan(coefficients), np.isnan(expected))
    np.testing.assert_allclose(coefficients, expected, rtol=0, atol=1e-10 * np.nanmax(np.abs(expected)))
