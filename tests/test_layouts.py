"""Every layout of observations on one engine: points, stations, curvilinear grids, and batches of each."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import xspline as xs
from tests.products import dense_prediction, worst

# Few functions leave much of their fields, which is no matter here.
pytestmark = pytest.mark.filterwarnings("ignore:.*residuals of neighbours")

DOMAINS = {"lat": (-20.0, 20.0), "lon": (150.0, 210.0)}
BASES = {
    "lat": xs.BSpline(6, domain=DOMAINS["lat"]),
    "lon": xs.BSpline(7, domain=DOMAINS["lon"]),
    "time": xs.Fourier(1, "365.2425D", domain=("2000", "2004")) + xs.Polynomial(1, domain=("2000", "2004")),
}
EXACT = 1e-12


def times(n: int, rng: np.random.Generator) -> np.ndarray:
    start = np.datetime64("2000-01-01", "ns")
    return np.sort(
        start + rng.integers(0, 4 * 365 * 24, n) * np.timedelta64(1, "h").astype("timedelta64[ns]")
    )


def measured(lat: np.ndarray, lon: np.ndarray, time: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return temperatures at broadcast places and times, with noise and a few missing."""
    t = (time - np.datetime64("2000-01-01", "ns")) / np.timedelta64(365, "D")
    values = 28 - 0.008 * lat**2 + np.sin(np.deg2rad(3 * lon)) + np.cos(2 * np.pi * t) + 0.05 * t
    values = values + 0.2 * rng.standard_normal(values.shape)
    return np.where(rng.random(values.shape) < 0.05, np.nan, values)


def scattered(n: int = 3000, seed: int = 0) -> xr.DataArray:
    """Return observations along `obs`, whose places and times are coordinates."""
    rng = np.random.default_rng(seed)
    lat, lon = rng.uniform(-20, 20, n), rng.uniform(150, 210, n)
    time = times(n, rng)
    coords = {"lat": ("obs", lat), "lon": ("obs", lon), "time": ("obs", time)}
    return xr.DataArray(measured(lat, lon, time, rng), coords, "obs", "sst", {"units": "degC"})


def stations(n: int = 40, seed: int = 1) -> xr.DataArray:
    """Return moorings (station) by dates (time)."""
    rng = np.random.default_rng(seed)
    lat, lon, time = rng.uniform(-20, 20, n), rng.uniform(150, 210, n), times(60, rng)
    coords = {"lat": ("station", lat), "lon": ("station", lon), "time": time}
    values = measured(lat[:, None], lon[:, None], time[None, :], rng)
    values[rng.random(values.shape) < 0.3] = np.nan
    return xr.DataArray(values, coords, ("station", "time"), "sst", {"units": "degC"})


def curvilinear(seed: int = 2) -> xr.DataArray:
    """Return a tripolar-like grid (y, x) with 2-D latitudes and longitudes, by months."""
    rng = np.random.default_rng(seed)
    y, x = np.meshgrid(np.linspace(-1, 1, 14), np.linspace(-1, 1, 16), indexing="ij")
    lat, lon, time = 19 * y + x**2, 180 + 29 * x - 0.9 * y, times(12, rng)
    coords = {"lat": (("y", "x"), lat), "lon": (("y", "x"), lon), "time": time}
    values = measured(lat, lon, time[:, None, None], rng)
    values[:, 3:6, 4:9] = np.nan
    return xr.DataArray(values, coords, ("time", "y", "x"), "sst", {"units": "degC"})


LAYOUTS = {"scattered": scattered, "stations": stations, "curvilinear": curvilinear}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_equals_the_dense_definition(layout: str) -> None:
    data = LAYOUTS[layout]()
    field = data.spline.fit(BASES, penalty=0.1)
    assert worst(field.predict(), dense_prediction(data, field.space, 0.1), where=data) < EXACT
    assert field.predict().dims == data.dims
    assert int(field.summary()["count"]) == int(np.isfinite(data).sum())


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=8)
@given(st.data())
def test_every_layout_merges_to_the_pooled_field(layout: str, data: st.DataObject) -> None:
    product = LAYOUTS[layout]()
    pooled = product.spline.fit(BASES, penalty=0.1)
    dim = data.draw(st.sampled_from(product.dims), label="dim")
    seed, holders = data.draw(st.integers(0, 99), label="seed"), data.draw(st.integers(2, 7), label="holders")
    owner = np.random.default_rng(seed).integers(0, holders, product.sizes[dim])
    parts = [
        product.isel({dim: np.flatnonzero(owner == h)}).spline.statistics(pooled.space, holder=str(h))
        for h in range(holders)
    ]
    merged = xs.merge(parts).solve(penalty=0.1)
    assert worst(merged.predict(product), pooled.predict(), where=product) < EXACT


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("lazy_coordinates", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_every_layout_in_chunks(layout: str, lazy_coordinates: bool) -> None:
    product = LAYOUTS[layout]()
    pooled = product.spline.fit(BASES, penalty=0.1)
    chunked = product.chunk(dict(zip(product.dims, (7, 5, 6), strict=False)))
    if not lazy_coordinates:
        chunked = chunked.assign_coords({n: c.compute() for n, c in chunked.coords.items()})
    field = chunked.spline.fit(BASES, penalty=0.1)
    predicted = field.predict()
    assert predicted.chunks is not None
    assert worst(predicted.compute(), pooled.predict(), where=product) < EXACT


def test_missing_coordinates_and_points_outside() -> None:
    data = scattered()
    lat = data.lat.values.copy()
    lat[5], lat[6], lat[7] = np.nan, 25.0, -20.0
    time = data.time.values.copy()
    time[8] = np.datetime64("NaT", "ns")
    dirty = data.assign_coords(lat=("obs", lat), time=("obs", time))
    dirty[5:9] = 20.0
    with pytest.warns(xs.FitWarning, match="2 observations were left out because a label is NaN, NaT"):
        s = dirty.spline.statistics(data.spline.space(BASES))
    assert s.outside == 1
    assert s.count == int(np.isfinite(dirty).sum()) - 3
    assert "1 more outside the domain" in repr(s)
    field = s.solve(penalty=0.1)
    assert "1 observations outside" in field.summary().attrs["outside"]
    assert np.isnan(field.predict()[[5, 6, 8]]).all() and np.isfinite(field.predict()[7])
    with pytest.raises(ValueError, match=r"1 observations lie outside the domain and were left out; widen"):
        s.require_inside()
    assert data.spline.statistics(s.space).require_inside().outside == 0


def test_exact_duplicates_are_repeated_observations() -> None:
    data = scattered(500)
    twice = xr.concat([data, data], "obs")
    doubled = data.spline.fit(BASES, penalty=0.1, weights=xr.full_like(data, 2.0).fillna(2.0))
    with pytest.warns(xs.FitWarning, match=r"\d+ observations have the coordinates and the value"):
        field = twice.spline.fit(BASES, penalty=0.1)
    assert worst(field.predict(data), doubled.predict(), where=data) < EXACT


def test_rank_deficient_holders_merge() -> None:
    data = scattered(2000)
    space = data.spline.space(BASES)
    west, east = data[data.lon < 180], data[data.lon >= 180]
    parts = [d.spline.statistics(space, holder=h) for d, h in ((west, "west"), (east, "east"))]
    for part in parts:
        with pytest.raises(xs.SingularSystemError, match="have no observations"):
            part.solve(0)
    merged, pooled = xs.merge(parts).solve(0), data.spline.fit(space, penalty=0)
    assert worst(merged.predict(data), pooled.predict(), where=data) < 1e-11


def test_models_merge_like_data_at_unregularised_optima() -> None:
    data = scattered(4000)
    space = data.spline.space(BASES)
    halves = data[::2], data[1::2]
    models = [d.spline.statistics(space, holder=h).solve(0) for d, h in zip(halves, ("a", "b"), strict=True)]
    merged, pooled = xs.merge_models(models), data.spline.fit(space, penalty=0)
    assert worst(merged.predict(data), pooled.predict(), where=data) < 1e-11
    ridged = xs.merge_models(models, penalty=0.1)
    assert worst(ridged.predict(data), data.spline.fit(space, penalty=0.1).predict(), where=data) < 1e-11


def test_regularised_models_are_matched_in_their_predictions() -> None:
    data = scattered(2000)
    space = data.spline.space(BASES)
    fields = [
        d.spline.statistics(space, holder=h).solve(penalty=3.0)
        for d, h in ((data[::2], "a"), (data[1::2], "b"))
    ]
    merged = xs.merge_models(fields)
    predictions = xr.concat(
        [f.predict().where(np.isfinite(d)) for f, d in zip(fields, (data[::2], data[1::2]), strict=True)],
        "obs",
    )
    expected = predictions.spline.fit(space, penalty=0)
    assert worst(merged.predict(data), expected.predict(data), where=data) < 1e-10
    assert worst(merged.predict(data), data.spline.fit(space, penalty=0).predict(), where=data) > 1e-6


def test_models_that_cannot_be_merged() -> None:
    data = scattered(1000)
    with pytest.raises(ValueError, match="at least one Statistics"):
        xs.merge_models([])
    a = data.spline.fit(BASES, penalty=0.1)
    b = data.spline.fit({**BASES, "lat": xs.BSpline(5, domain=DOMAINS["lat"])}, penalty=0.1)
    with pytest.raises(ValueError, match="different spaces"):
        xs.merge_models([a, b])
