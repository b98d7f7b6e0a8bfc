"""Sets that no default was chosen on, from public collections; to be put beside the others by whoever runs them.

`eraint_uvz.nc` is in pydata/xarray-data; `A1B_north_america.nc`, `ostia_monthly.nc` and NEMO's file in
SciTools/iris-sample-data (NetCDF 4: xarray needs h5netcdf or netCDF4 for them); the tables in fatiando/verde; files
.rda in R's packages fields, oce (`section`) and ocedata (`papa`), all on CRAN, which take `pip install rdata`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from benchmarks.contest.peers import RBF
from benchmarks.contest.sets import Product

ERA, NEMO = "eraint_uvz.nc", "nemo_1m_20150101-20150201_grid-T.nc"
WORLD = {"latitude": slice(None, None, 8), "longitude": slice(None, None, 8)}
QUARTER = {"latitude": 12, "longitude": 16}  # blocks of 9° × 12°


@dataclass(frozen=True)
class Table(Product):
    """A table of points."""

    def load(self, path: Path, *, quick: bool) -> Any:
        return self.read(pd.read_csv(path)[:: 20 if quick else 1])


@dataclass(frozen=True)
class OfR(Product):
    """A file of objects of R."""

    def load(self, path: Path, *, quick: bool) -> Any:
        import rdata  # no dependency of the benchmarks: only these files need it

        data = self.read(rdata.read_rda(path))
        return data.isel({dim: slice(None, None, 4) for dim in data.dims} if quick else {})


def stations(lonlat: Any, values: Any) -> xr.DataArray:
    """Return finite values of stations, [station] or [time, station]; R's missing values are no usual NaN."""
    place, values = np.asarray(lonlat, float), np.asarray(values, float) + 0.0
    coords = {"lon": ("station", place[:, 0]), "lat": ("station", place[:, 1])}
    data = xr.DataArray(values, coords, ["time", "station"][-values.ndim :], name="y")
    return data.dropna("station", how="all")


def carbon(objects: Any) -> xr.DataArray:
    return stations(objects["CO2"]["lon.lat"][::5], objects["CO2"]["y"][::5])


def rain(objects: Any) -> xr.DataArray:
    own = objects["NorthAmericanRainfall"]
    return stations(np.column_stack([own["longitude"], own["latitude"]]), own["precip"])


def ozone(objects: Any) -> xr.DataArray:
    own = objects["ozone2"]
    return stations(own["lon.lat"], own["y"]).assign_coords(time=pd.date_range("1987-06-03", periods=89))


def warmest(objects: Any) -> xr.DataArray:
    """Return monthly means of daily maxima, 1955 to 1994."""
    data = stations(objects["CO.loc"], objects["CO.tmax"][60:100].reshape(480, -1))
    return data.assign_coords(time=pd.date_range("1955-01", periods=480, freq="MS"))


def model(objects: Any) -> xr.DataArray:
    own = objects["RCMexample"]
    coords = {"lon": (("i", "j"), own["x"]), "lat": (("i", "j"), own["y"])}
    return xr.DataArray(np.asarray(own["z"])[..., 0], coords, ["i", "j"], name="z")


def bottles(name: str) -> Callable[[Any], xr.DataArray]:
    """Read what bottles of a section across the Atlantic have, by longitude and pressure."""

    def read(objects: Any) -> xr.DataArray:
        rows = []
        for station in objects["section"].data["station"]:
            own = [np.ravel(np.asarray(station.data[key], float)) for key in ("pressure", name)]
            lon = float(np.ravel(station.metadata["longitude"])[0])
            rows.append(np.stack([np.full(own[0].size, lon), *own]))
        frame = pd.DataFrame(np.concatenate(rows, axis=1).T, columns=["lon", "pressure", name]).dropna()
        own = frame.drop_duplicates(["lon", "pressure"])
        coords = {"lon": ("obs", own["lon"]), "pressure": ("obs", own["pressure"], {"units": "dbar"})}
        return xr.DataArray(own[name], coords, ["obs"], name=name)

    return read


def papa(objects: Any) -> xr.DataArray:
    """Return a year of temperature at Ocean Station Papa, days and nine depths."""
    own = objects["papa"]
    coords = {"time": pd.to_datetime(np.asarray(own["t"]), unit="s"), "depth": -np.asarray(own["z"])}
    return xr.DataArray(np.asarray(own["temperature"]) + 0.0, coords, ["time", "depth"], name="temperature")


def heights(objects: Any) -> xr.DataArray:
    own = objects["PRISMelevation"]
    data = xr.DataArray(np.asarray(own["z"]) + 0.0, {"lon": own["x"], "lat": own["y"]}, ["lon", "lat"])
    return data[::6, ::6].rename("height")


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
    "CO2": OfR(
        "CO2.rda", "simulated satellite, every 5th; blocks of 10° × 20°", carbon, (), ("nearest", RBF), {},
        {"lat": 10.0, "lon": 20.0},
    ),
    "rain": OfR(
        "NorthAmericanRainfall.rda", "stations; blocks of 3° × 4°", rain, (), ("nearest", RBF), {},
        {"lat": 3.0, "lon": 4.0},
    ),
    "ozone": OfR(
        "ozone2.rda", "stations, 89 days; blocks of 2° × 2° × 10 days", ozone, (), ("nearest", RBF), {},
        {"lat": 2.0, "lon": 2.0, "time": 10},
    ),
    "Colorado": OfR(
        "COmonthlyMet.rda", "stations, 480 months; blocks of a degree and 24 months", warmest, (), ("nearest", RBF), {},
        {"lat": 1.0, "lon": 1.0, "time": 24},
    ),
    "climate model": OfR(
        "RCMexample.rda", "curvilinear; blocks of 10 × 10 cells", model, (), ("nearest", RBF), {}, {"i": 10, "j": 10},
    ),
    "section": OfR(
        "section.rda", "bottles across the Atlantic; blocks of 3° × 300 dbar", bottles("temperature"), (),
        ("nearest", RBF), {}, {"lon": 3.0, "pressure": 300.0},
    ),
    "salt": OfR(
        "section.rda", "salinity of the same", bottles("salinity"), (), ("nearest", RBF), {},
        {"lon": 3.0, "pressure": 300.0},
    ),
    "papa": OfR(
        "papa.rda", "a year, nine depths; blocks of 10 days and 2 depths", papa, (), ("nearest", RBF), {},
        {"time": 10, "depth": 2},
    ),
    "heights": OfR(
        "PRISMelevation.rda", "every 6th; blocks of 10 × 10 cells", heights, (), ("nearest", RBF), {},
        {"lon": 10, "lat": 10},
    ),
}  # fmt: skip
