"""Data of the shapes that matter, synthetic: the mask is NOAA's where XSPLINE_DATA_DIR has it."""

from __future__ import annotations

import os
from pathlib import Path

import dask.array
import numpy as np
import xarray as xr
from scipy.ndimage import gaussian_filter

import xspline as xs

YEAR = "365.2425D"


def paper_bases() -> dict[str, object]:
    """13 x 23 cubic B-splines and 7 functions of time: P = 2093."""
    return {
        "lat": xs.BSpline(13),
        "lon": xs.BSpline(23),
        "time": xs.Fourier(2, period=YEAR) + xs.Polynomial(2),
    }


def land_mask() -> xr.DataArray | None:
    """True on land, over lat and lon: NOAA's mask where it is at hand, else None."""
    path = Path(os.environ.get("XSPLINE_DATA_DIR", "")) / "oisst_v2_land_sea_mask.nc"
    if not path.is_file():
        return None
    with xr.open_dataset(path) as ds:
        return (ds["mask"] == 0).squeeze(drop=True).load()


def ersst(step: int = 1) -> xr.DataArray | None:
    """Every `step`-th month of ERSST over the tropical Pacific, 2010 to 2020, where it is at hand."""
    path = Path(os.environ.get("XSPLINE_DATA_DIR", "")) / "ersst_v5_2010_2020.nc"
    if not path.is_file():
        return None
    with xr.open_dataset(path) as ds:
        return ds.sst.sel(lat=slice(30, -30), lon=slice(120, 280))[::step].load()


def values(time: np.ndarray, lat: np.ndarray, lon: np.ndarray, seed: int = 0) -> np.ndarray:
    """Climatology, season, a wave along the equator and noise, float32 [time, lat, lon]."""
    t = time.astype("datetime64[D]").astype(float)[:, None, None] / 365.2425
    y, x = np.deg2rad(lat)[:, None], np.deg2rad(lon)
    field = 28 * np.cos(y) ** 2 + 4 * y * np.cos(2 * np.pi * t) + 0.02 * (t - 20)
    field = field + np.exp(-((y / 0.15) ** 2)) * np.sin(2 * x - 2 * np.pi * t / 4)
    noise = np.random.default_rng(seed).standard_normal(field.shape, dtype=np.float32)
    return (field + 0.3 * noise).astype(np.float32)


def cube(time: np.ndarray, lat: np.ndarray, lon: np.ndarray, mask: np.ndarray, seed: int = 0) -> xr.DataArray:
    """`values` with NaN on land, labelled."""
    data = values(time, lat, lon, seed)
    data[:, mask] = np.nan
    coords = {"time": time.astype("datetime64[ns]"), "lat": lat, "lon": lon}
    return xr.DataArray(data, coords, ("time", "lat", "lon"), "sst", {"units": "degC"})


def noaa(months: int = 494) -> xr.DataArray:
    """The paper's product in shape: monthly from 1981-12, 30S-30N, 120E-280E at 1 degree, 494 x 60 x 160.

    Without NOAA's mask, land is drawn by hand.
    """
    region = {"start": "1981-12", "lat": (-30.0, 30.0), "lon": (120.0, 280.0)}
    return xs.synthetic.sea_surface_temperature(months, **region, land_mask=land_mask()).sst


def store(path: Path, shape: tuple[int, int, int], chunks: tuple[int, int, int]) -> Path:
    """A Zarr store (days, lat, lon) with land over a fifth of it, written one row of chunks at a time."""
    coords = {
        "time": (np.datetime64("1982-01-01") + np.arange(shape[0])).astype("datetime64[ns]"),
        "lat": np.linspace(-60, 60, shape[1]),
        "lon": np.linspace(0, 359, shape[2]),
    }
    rough = gaussian_filter(np.random.default_rng(1).standard_normal(shape[1:]), 6)
    mask = rough > np.quantile(rough, 0.8)
    empty = xr.DataArray(
        dask.array.zeros(shape, chunks=chunks, dtype="float32"), coords, tuple(coords), "sst"
    )
    empty.assign_attrs(units="degC").to_dataset().to_zarr(path, mode="w", compute=False, consolidated=False)
    for start in range(0, shape[0], chunks[0]):
        days = slice(start, min(start + chunks[0], shape[0]))
        part = cube(coords["time"][days], coords["lat"], coords["lon"], mask, seed=start)
        part.drop_vars(list(coords)).to_dataset().to_zarr(path, region={"time": days}, consolidated=False)
    return path


def open_store(path: Path, chunks: dict | None = {}) -> xr.DataArray:  # noqa: B006 (xarray's own default)
    return xr.open_zarr(path, chunks=chunks, consolidated=False).sst
