"""Small labelled data sets and the dense definition of a fit, for the tests that walk the whole way."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

import xspline as xs

SEASONS = xs.Fourier(1, period="365.2425D") + xs.Polynomial(1)
BASES = {"lat": 6, "lon": xs.BSpline(8), "time": SEASONS}


def opened(path: Path, **kwargs: Any) -> xr.DataArray:
    return xr.open_zarr(path, consolidated=False, **kwargs).sst


def bits(field: xs.Field) -> bytes:
    return field.fits["sst"].coefficients.tobytes()


def undated(values: xr.DataArray) -> xr.DataArray:
    """Return values without their history, which has the second at which each line was written."""
    return values.assign_attrs(history="")


def land(lat: np.ndarray, lon: np.ndarray) -> np.ndarray:
    """Return a mask with a continent in one corner and an island."""
    y, x = np.meshgrid(lat, lon, indexing="ij")
    return (x - lon.min() < 20 - 0.4 * np.abs(y)) | ((y - 5) ** 2 + (x - lon.mean()) ** 2 < 40)


def sst(
    *,
    months: int = 48,
    lat: np.ndarray | None = None,
    lon: np.ndarray | None = None,
    gaps: float = 0.0,
    seed: int = 0,
) -> xr.DataArray:
    """Return a float32 sea-surface temperature (time, lat, lon) with land, and a share of random gaps."""
    rng = np.random.default_rng(seed)
    lat = np.linspace(-20.0, 20.0, 17) if lat is None else lat
    lon = np.linspace(150.0, 210.0, 25) if lon is None else lon
    time = (np.datetime64("2000-01", "M") + np.arange(months) * np.timedelta64(1, "M")).astype(
        "datetime64[ns]"
    )
    t = np.arange(months)[:, None, None] / 12
    y, x = lat[None, :, None], np.mod(lon, 360.0)[None, None, :]
    values = 28 - 0.008 * y**2 + np.sin(np.deg2rad(3 * x)) + (1 + 0.02 * y) * np.cos(2 * np.pi * t) + 0.03 * t
    values = values + 0.3 * rng.standard_normal((months, lat.size, lon.size))
    values = np.where(land(lat, np.mod(lon, 360.0)), np.nan, values)
    values[rng.random(values.shape) < gaps] = np.nan
    attrs = {
        "units": "degC",
        "long_name": "sea surface temperature",
        "standard_name": "sea_surface_temperature",
    }
    coords = {
        "time": time,
        "lat": ("lat", lat, {"units": "degrees_north"}),
        "lon": ("lon", lon, {"units": "degrees_east"}),
    }
    return xr.DataArray(values.astype(np.float32), coords, ("time", "lat", "lon"), "sst", attrs)


def rows(
    data: xr.DataArray, space: xs.Space, part: slice = slice(None), orders: Sequence[int] | None = None
) -> np.ndarray:
    """Return Φ for some values of the data, in the order of its dimensions: shape (values, coefficients)."""
    phi = np.ones((len(range(data.size)[part]), 1))
    for j, (name, features) in enumerate(zip(space.names, space.features, strict=True)):
        labels = data[name].broadcast_like(data).transpose(*data.dims).values.ravel()[part]
        columns = features.design(space.to_float(name, labels), orders[j] if orders else 0)
        phi = (phi[:, :, None] * columns[:, None, :]).reshape(len(phi), -1)
    return phi


def dense_prediction(
    data: xr.DataArray, space: xs.Space, ridge: float, weights: xr.DataArray | None = None, step: int = 10_000
) -> xr.DataArray:
    """Return the ridge fit of the paper's equation 4 by dense normal equations, about the mean, at every label."""
    y = data.values.astype(float).ravel()
    w = (
        np.ones_like(y)
        if weights is None
        else weights.broadcast_like(data).transpose(*data.dims).values.ravel()
    )
    seen = np.isfinite(y) & (w > 0)
    r = y[seen].mean()
    e = functools.reduce(np.multiply.outer, space.constant()).ravel()
    gram, moment = ridge * np.eye(e.size), -r * ridge * e
    parts = [slice(i, i + step) for i in range(0, y.size, step)]
    for part in parts:
        phi, keep = rows(data, space, part), seen[part]
        weighted = (phi[keep] * w[part][keep, None]).T
        gram += weighted @ phi[keep]
        moment += weighted @ (y[part][keep] - r)
    c = np.linalg.solve(gram, moment) + r * e
    values = np.concatenate([rows(data, space, part) @ c for part in parts])
    return data.copy(data=values.reshape(data.shape))


def worst(a: xr.DataArray, b: xr.DataArray, where: xr.DataArray | None = None) -> float:
    """Return the largest difference over the largest value, over the places that were observed."""
    difference = abs(a - b) if where is None else abs(a - b).where(np.isfinite(where))
    return float(difference.max() / abs(b).max())


def stderr_of(both: xr.Dataset) -> xr.DataArray:
    """The standard error alone, of a derivative or value that comes with it."""
    (name,) = (name for name in both.data_vars if str(name).endswith("_stderr"))
    return both[name]
