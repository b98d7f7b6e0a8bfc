"""Point data of R's packages sp, gstat, geoR, GpGp and FRK (all on CRAN; `pip install rdata` reads them).

They were looked at once, when nothing was to be chosen any more. Most are small, so that a tenth of one is 7 to 50
values: give them several `--seeds`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from benchmarks.contest.elsewhere import OfR, stations
from benchmarks.contest.peers import KRIGING, RBF

Array = np.ndarray


def scattered(value: Any, /, **coordinates: Any) -> xr.DataArray:
    """Return values of points, one where several are at one place."""
    frame = pd.DataFrame({"value": np.asarray(value, float), **coordinates}).dropna()
    own = frame.drop_duplicates(list(coordinates))
    coords = {name: ("obs", own[name].to_numpy()) for name in coordinates}
    return xr.DataArray(own["value"].to_numpy(), coords, ["obs"], name="value")


def on_plane(x: str, y: str, value: str, *names: str, of: Callable[[Array], Array] = np.asarray) -> Any:
    """Read a column of data frames that are parts of one table."""

    def read(objects: Any) -> xr.DataArray:
        table = pd.concat([objects[name] for name in names])
        column = of(table[value].to_numpy(float))
        return scattered(column, x=table[x].to_numpy(float), y=table[y].to_numpy(float))

    return read


def geodata(name: str) -> Callable[[Any], xr.DataArray]:
    """Read an object of geoR."""

    def read(objects: Any) -> xr.DataArray:
        places = np.asarray(objects[name]["coords"], float)
        return scattered(np.ravel(objects[name]["data"]), x=places[:, 0], y=places[:, 1])

    return read


def of_sp(name: str, value: str, of: Callable[[Array], Array] = np.asarray) -> Any:
    """Read a column of a SpatialPointsDataFrame."""

    def read(objects: Any) -> xr.DataArray:
        places = np.asarray(objects[name].coords, float)
        return scattered(of(objects[name].data[value].to_numpy(float)), x=places[:, 0], y=places[:, 1])

    return read


def floats(objects: Any) -> xr.DataArray:
    own = objects["argo2016"].astype(float)
    time = pd.Timestamp("2016-01-01") + pd.to_timedelta(own["day"].to_numpy() - 736330, unit="D")
    places = {"lat": own["lat"].to_numpy(), "lon": own["lon"].to_numpy()}
    return scattered(own["temp100"], time=time, **places)


def altimeter(objects: Any) -> xr.DataArray:
    own = objects["jason3"].astype(float)
    time = pd.Timestamp("2016-08-04") + pd.to_timedelta(
        (own["time"] - own["time"].min()).to_numpy(), unit="s"
    )
    return scattered(own["windspeed"], time=time, lat=own["lat"].to_numpy(), lon=own["lon"].to_numpy())


def sounder(objects: Any) -> xr.DataArray:
    own = objects["AIRS_05_2003"]
    own = own[own["day"] == 1].astype(float)
    return scattered(own["co2avgret"], lat=own["lat"].to_numpy(), lon=own["lon"].to_numpy())


def dated(table: pd.DataFrame, century: int = 0) -> pd.Series:
    return pd.to_datetime({name: table[name].astype(int) + century * (name == "year") for name in DATE})


DATE = ("year", "month", "day")


def hottest(objects: Any) -> xr.DataArray:
    """Return daily maxima in the United States, July 1993, °F."""
    own = objects["NOAA_df_1990"]
    own = own[(own["proc"] == "Tmax") & (own["year"] == 1993) & (own["month"] == 7) & (own["z"] > -9998)]
    own = own.assign(time=dated(own), lon=own["lon"].astype(float), lat=own["lat"].astype(float))
    table = own.pivot_table(index="time", columns=["id", "lon", "lat"], values="z")
    places = table.columns.to_frame()[["lon", "lat"]].to_numpy()
    return stations(places, table.to_numpy()).assign_coords(time=table.index.to_numpy())


def wind(objects: Any) -> xr.DataArray:
    """Return roots of daily wind speeds at twelve Irish stations, 1973 to 1978 (Haslett and Raftery 1989)."""

    def degrees(text: str) -> float:
        whole, rest = str(text).split("d")
        return float(whole) + float(rest.split("'")[0]) / 60

    own = objects["wind"]
    own, at = own[own["year"] >= 73], objects["wind.loc"].set_index("Code")
    names = list(own.columns[3:])
    places = [(-degrees(at.loc[name, "Longitude"]), degrees(at.loc[name, "Latitude"])) for name in names]
    data = stations(places, np.sqrt(0.5148 * own[names].to_numpy(float)))
    return data.assign_coords(time=dated(own, 1900).to_numpy())


def particles(objects: Any) -> xr.DataArray:
    """Return particulate matter at 69 rural stations in Germany, the days of 2005."""
    own = objects["DE_RB_2005"]
    places, index = np.asarray(own.sp.coords, float), np.asarray(own.index, int) - 1
    values = np.full((365, len(places)), np.nan)
    values[index[:, 1], index[:, 0]] = own.data["PM10"]
    coords = {"x": ("station", places[:, 0]), "y": ("station", places[:, 1])}
    days = pd.date_range("2005-01-01", periods=365)
    return xr.DataArray(values, {"time": days, **coords}, ["time", "station"], name="pm10")


def on_sphere(file: str, what: str, read: Any, block: Mapping[str, Any]) -> OfR:
    return OfR(file, what, read, (), ("nearest", RBF), {}, block)


def small(file: str, what: str, read: Any, width: float) -> OfR:
    return OfR(file, what, read, (), ("nearest", RBF, KRIGING), {}, {"x": width, "y": width})


JURA = ("Xloc", "Yloc"), ("jura.pred", "jura.val")
SOIL = ("Linha", "Coluna"), ("soil250",)
PACKAGES = {
    "argo": on_sphere(
        "argo2016.RData", "floats at 100 m; blocks of 6° × 10° × 30 days", floats,
        {"time": np.timedelta64(30, "D"), "lat": 6.0, "lon": 10.0},
    ),
    "jason": on_sphere("jason3.RData", "wind along tracks; blocks of 4° × 6°", altimeter, {"lat": 4.0, "lon": 6.0}),
    "airs": on_sphere("AIRS_05_2003.rda", "CO₂ of a day; blocks of 8° × 12°", sounder, {"lat": 8.0, "lon": 12.0}),
    "hottest": on_sphere(
        "NOAA_df_1990.rda", "stations, 31 days; blocks of 2° × 2° × 5 days", hottest,
        {"lat": 2.0, "lon": 2.0, "time": 5},
    ),
    "wind": on_sphere(
        "wind.rda", "stations, 2,191 days; blocks of half a degree and 10 days", wind,
        {"time": 10, "lat": 0.5, "lon": 0.5},
    ),
    "particles": on_sphere(
        "DE_RB_2005.rda", "stations, 365 days; blocks of 60 km and 10 days", particles,
        {"time": 10, "x": 6e4, "y": 6e4},
    ),
    "meuse": small("meuse.rda", "log zinc; blocks of 400 m", on_plane("x", "y", "zinc", "meuse", of=np.log), 400.0),
    "coal": small("coalash.rda", "ash; blocks of 3 units", on_plane("x", "y", "coalash", "coalash"), 3.0),
    "cobalt": small("jura.rda", "Jura; blocks of 600 m", on_plane(*JURA[0], "Co", *JURA[1]), 0.6),
    "zinc": small("jura.rda", "Jura, log; blocks of 600 m", on_plane(*JURA[0], "Zn", *JURA[1], of=np.log), 0.6),
    "gamma": small(
        "sic2004.rda", "radiation; blocks of 60 km", on_plane("x", "y", "dayx", "sic.val", "sic.test"), 6e4,
    ),
    "swiss": small("sic97.rda", "root of rain; blocks of 40 km", of_sp("sic_full", "rainfall", np.sqrt), 4e4),
    "walker": small("walker.rda", "Walker Lake; blocks of 25 units", of_sp("walker", "V"), 25.0),
    "parana": small("parana.rda", "rain; blocks of 80 km", geodata("parana"), 80.0),
    "calcium": small("ca20.rda", "soil; blocks of 150 m", geodata("ca20"), 150.0),
    "kattegat": small("kattegat.rda", "salinity; blocks of 40 km", geodata("kattegat"), 40.0),
    "elevation": small("elevation.rda", "52 points; blocks of 1.2 units", geodata("elevation"), 1.2),
    "wolfcamp": small("wolfcamp.rda", "aquifer; blocks of 40 miles", geodata("wolfcamp"), 40.0),
    "s256i": small("s256i.rda", "simulated; blocks of .2", geodata("s256i"), 0.2),
    "carbon": small("soil250.rda", "soil; blocks of 4 steps", on_plane(*SOIL[0], "C", *SOIL[1]), 4.0),
    "oxford": small("oxford.rda", "soil; blocks of 200 m", on_plane("XCOORD", "YCOORD", "CEC1", "oxford"), 200.0),
}  # fmt: skip
