"""Sets that no default was chosen on, from public collections; to be put beside the others by whoever runs them.

`eraint_uvz.nc` is in pydata/xarray-data; `A1B_north_america.nc`, `ostia_monthly.nc` and NEMO's file in
SciTools/iris-sample-data (NetCDF 4: xarray needs h5netcdf or netCDF4 for them); the tables in fatiando/verde.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd
import xarray as xr

from benchmarks.contest.peers import RBF
from benchmarks.contest.sets import Product, path_of

ERA, NEMO = "eraint_uvz.nc", "nemo_1m_20150101-20150201_grid-T.nc"
WORLD = {"latitude": slice(None, None, 8), "longitude": slice(None, None, 8)}
QUARTER = {"latitude": 12, "longitude": 16}  # blocks of 9° × 12°


@dataclass(frozen=True)
class Table(Product):
    """A table of points."""

    def open(self, directory: str | None, *, quick: bool) -> Any:
        path = path_of(self.file, directory)
        if not path.is_file():
            return None
        frame = pd.read_csv(path)
        return self.read(frame[:: 20 if quick else 1])


def points(value: str, step: int = 1) -> Callable[[pd.DataFrame], xr.DataArray]:
    """Read a column, of every so manieth row, and one value of those within 10 m of each other."""

    def read(frame: Any) -> xr.DataArray:
        places = frame[::step].round({"latitude": 4, "longitude": 4})
        kept = places.drop_duplicates(["latitude", "longitude"])
        coords = {name: ("obs", kept[full].to_numpy()) for name, full in NAMES.items()}
        return xr.DataArray(kept[value].to_numpy(float), coords, ["obs"], name=value)

    return read


NAMES = {"lat": "latitude", "lon": "longitude"}


def era(name: str, level: int, month: int) -> Product:
    def read(dataset: xr.Dataset) -> xr.DataArray:
        return dataset[name].sel(level=level, month=month, drop=True)

    return Product(
        ERA, "241 × 480, both poles; blocks of 9° × 12°", read, (), ("nearest", RBF), WORLD, QUARTER
    )


def nemo(dataset: xr.Dataset) -> xr.DataArray:
    sst = dataset.tos.isel(time_counter=0, drop=True)
    sst = sst.drop_vars([name for name in sst.coords if name not in ("nav_lat", "nav_lon")])
    return sst.where(sst != 0).rename(nav_lat="lat", nav_lon="lon")


def alone(name: str) -> Callable[[xr.Dataset], xr.DataArray]:
    """Read a variable with its coordinates of space and time alone."""
    kept = ("time", "latitude", "longitude")
    return lambda dataset: dataset[name].drop_vars([c for c in dataset[name].coords if c not in kept])


ELSEWHERE: dict[str, Product] = {
    "ERA z500": era("z", 500, 1),
    "ERA u200": era("u", 200, 1),
    "ERA v850": era("v", 850, 7),
    "NEMO": Product(
        NEMO, "curvilinear; blocks of 10 × 10 cells", nemo, (), ("nearest", RBF), {"x": slice(None, None, 6)},
        {"y": 10, "x": 10},
    ),
    "A1B": Product(
        "A1B_north_america.nc", "240 years; blocks of 6 × 6 cells, 10 years", alone("air_temperature"), (),
        ("nearest", RBF), {"time": slice(None, None, 20)}, {"latitude": 6, "longitude": 6, "time": 10},
    ),
    "OSTIA": Product(
        "ostia_monthly.nc", "5° S to 5° N, 54 months; blocks of 6 × 12 cells, 6 months", alone("surface_temperature"),
        (), ("nearest", RBF), {"longitude": slice(None, None, 8)}, {"latitude": 6, "longitude": 12, "time": 6},
    ),
    "Baja": Table(
        "baja-bathymetry.csv.xz", "ship tracks, every 20th; blocks of half a degree", points("bathymetry_m", 20),
        (), ("nearest", RBF), {}, {"lat": 0.5, "lon": 0.5},
    ),
    "Rio": Table(
        "rio-magnetic.csv.xz", "flight lines; blocks of .03°", points("total_field_anomaly_nt"), (),
        ("nearest", RBF), {}, {"lat": 0.03, "lon": 0.03},
    ),
    "GPS": Table(
        "california-gps.csv.xz", "stations; blocks of half a degree", points("velocity_east"), (),
        ("nearest", RBF), {}, {"lat": 0.5, "lon": 0.5},
    ),
    "Texas": Table(
        "texas-wind.csv", "stations; blocks of a degree", points("air_temperature_c"), (), ("nearest", RBF), {},
        {"lat": 1.0, "lon": 1.0},
    ),
}  # fmt: skip
