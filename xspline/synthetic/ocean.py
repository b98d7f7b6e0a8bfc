"""Synthetic sea surface temperature: monthly, Indo-Pacific, with land; nothing is downloaded.

It has what is hard in the real ones: coastlines, an annual cycle that differs from place to place, a cold
tongue and upwelling coasts, a slow trend, El Niño-like events that move, and weather on top.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import xarray as xr

Array = np.ndarray[Any, np.dtype[Any]]

# Coastlines drawn by hand: points of (longitude east, latitude), good to about a degree.
COASTS = """
Australia: 114,-22 113.5,-26 115,-32 115,-34.5 118,-35 123.5,-34 126,-32.3 131,-31.5 135,-34.8 136,-33
    137.5,-33 138,-35.5 140,-38 144,-38.5 147,-38.5 150,-37.5 151,-34 153,-31 153.5,-28 153,-25 150.5,-23
    149,-20.5 146.5,-19 145.5,-15 143.5,-14 142.5,-10.7 141.6,-13 141,-17 139.5,-17.5 136.5,-15.5 136,-12.2
    132.5,-11.5 130.5,-12.5 129.5,-15 126,-14 122.5,-17 121.5,-19 117,-20.8
New Guinea: 131,-0.8 134,-0.8 135,-3.3 138,-1.7 141,-2.6 145.5,-4.5 147.5,-6 148,-8 150.5,-10.5 147,-9.5
    144,-7.7 142.5,-9.2 139,-8 138,-6 135,-4.4 133,-4 132.5,-2.5 134,-2.2
New Britain: 148.4,-5.6 151.6,-4.1 152.2,-5.2 150,-6.5
Borneo: 109,1.5 110,-1.3 110.5,-3 114.5,-4 116,-3.5 117.5,0.8 119,5 117,7 115.5,5.5 113,3.2 111,1.8
Sulawesi: 119,-5.6 120.6,-5.6 121,-3 123,-4.6 122.5,-1 125.2,1.6 124,0.4 120.6,0.4 120.3,1.3 119.4,-1
Sumatra: 95.2,5.6 97.5,5.2 100.5,2.5 103.5,-0.5 106,-3 105.8,-5.8 104.5,-5.8 101.5,-3.5 98.7,1.5
Java: 105.2,-6.4 108.5,-6.4 112.5,-6.4 115,-7.7 115,-8.8 110,-8.6 106.5,-7.6
Timor: 123.4,-10.6 127.2,-8.3 127.2,-9.2 124,-11
Halmahera: 127.3,0 128.7,0.3 128.2,2.1 127.4,1.2
Luzon: 120.2,16 120,14.4 121,13.4 124.1,12.4 122.2,15.5 122.4,18.4 120.4,18.6
Mindanao: 121.8,6.8 124,6.3 125.5,5.6 126.6,8 125.6,12.4 124.3,12.4 122.6,9.4 123.5,8.5
Taiwan: 120,23 120.9,21.9 122,24.8 121,25.3
Hainan: 108.4,19.4 110,18.1 111.2,19.8 110,20.3
Asia: 80,50 80,10 92,21.5 94.3,16 97.5,16.5 98.7,11 98.3,8 100.3,5.5 103.5,1.3 104.2,1.5 103.4,5 101,6.9
    100,9.5 100,13.3 101,12.7 103,11 105,8.7 106.7,10.5 109.2,11.8 108.8,15.5 106,18.8 106.5,20.5 108.5,21.7
    110,21.3 113.5,22.3 117,23.5 119.5,25.5 121.5,28.5 121.8,31 120,34.5 119.2,35 122.5,37 118,38.5 121.5,40
    125,40 125,38 126.5,36.5 126.3,34.5 129.3,35.2 129.2,37 127.5,40 135,44 140,50
Japan: 130,33.2 130.2,31.2 131.5,31.2 132,33 134,33.3 136,33.5 137,34.6 139,34.8 140.8,35.5 141.8,39.5
    140,41 138.5,37.5 136.8,37.2 135,35.6 132,35
New Zealand: 172.7,-34.4 175.5,-36.6 178.5,-37.8 177,-39.6 175.2,-41.6 174,-39.3 174.7,-38
New Caledonia: 163.6,-20 164.6,-19.9 167.2,-22.2 166.4,-22.6
Fiji: 177,-18.4 178.8,-18.4 178.8,-17.3 177,-17.3
Solomon Islands: 154.4,-5.4 155.2,-5.4 160,-9.4 161,-9.4 161,-10.6 159.4,-10
Hawaii: 203.8,18.9 205.2,18.9 205.2,20.1 203.4,21.1 203.2,20.6
Americas: 230,55 235.5,48 236,40.3 237.5,37.8 239.4,34.5 242.8,32.6 244,30.2 245,27.8 247.8,24.8 250.2,22.7
    249.2,25.8 247,29.5 245.2,31.7 247,31 249.5,27.5 251,25.3 253.5,23.3 254.5,20.4 257.5,18 260,16.6
    264.5,16 266,15.8 268.5,13.9 272.3,13 274,11.5 274.3,10 276.3,8.6 277.2,8 279,7.3 280.3,8.7 282,7.5
    282.7,5.5 282.7,3.9 281,1.5 280,0.5 279.2,-2 279,-3.2 278.8,-4.6 280,-6.3 281.3,-8.3 282.8,-12 284,-14.3
    287.5,-17 289.7,-18.5 289.7,-22 289.4,-27 288.4,-30 288.5,-33 287,-36 286.5,-38.5 286,-50 320,-50 325,-8
    310,0 300,8 290,12 284.5,11 283,8.7 280,9.6 276.5,11 276.7,15 271.5,16 272.5,21.3 269.7,21 268.8,18.7
    265,18.3 262.5,20.5 262.3,25 264,29 270,29.3 276,30 278,25.3 279.8,26.5 278.8,31 284,35.5 286,40 290,55
"""


def land(lat: Array, lon: Array) -> Array:
    """True on land, [lat, lon]: inside one of the coastlines.

    Even-odd rule: a point is inside if a ray to the east crosses the outline an odd number of times.
    """
    x, y = lon[None, :], lat[:, None]
    dry = np.zeros((lat.size, lon.size), dtype=bool)
    for points in re.split(r"[A-Za-z ]+:", COASTS)[1:]:
        outline = np.array([point.split(",") for point in points.split()], dtype=float)
        inside = np.zeros_like(dry)
        for (x0, y0), (x1, y1) in zip(outline, np.roll(outline, -1, axis=0), strict=True):
            if y0 != y1:
                spans = (y > y0) != (y > y1)
                inside ^= spans & (x < x0 + (y - y0) * (x1 - x0) / (y1 - y0))
        dry |= inside
    return dry


def bump(x: Array, centre: float | Array, width: float) -> Array:
    """A Gaussian of height 1 with a standard deviation of `width`."""
    return np.exp(-0.5 * ((x - centre) / width) ** 2)


def climatology(years: Array, lat: Array, lon: Array) -> Array:
    """Mean state and annual cycle, degC [time, lat, lon]; broadcastable arguments."""
    east = 1 / (1 + np.exp(-(lon - 205) / 18))  # 0 over the warm pool, 1 off South America
    tongue = east * bump(lat, -1, 3.5)
    mean = 29.4 - 0.0095 * (lat - 2) ** 2 + 0.6 * bump(lat, 7, 3) - 1.5 * east - 3.0 * tongue
    mean = mean - 5 * bump(lon, 283, 9) * bump(lat, -15, 9) - 5 * bump(lon, 241, 9) * bump(lat, 29, 7)
    phase = 2 * np.pi * years
    annual = 0.11 * lat * np.cos(phase - 2 * np.pi * 0.66) + 1.4 * tongue * np.cos(phase - 2 * np.pi * 0.26)
    half_year = 0.35 * (1 - east) * bump(lat, 0, 8) * np.cos(2 * phase - 2 * np.pi * 0.6)
    return mean + annual + half_year


def el_nino(years: Array, lat: Array, lon: Array) -> Array:
    """Irregular warm and cold events along the equator whose centre moves, degC."""
    turns = 2 * np.pi * years
    index = np.sin(turns / 3.7) + 0.8 * np.sin(turns / 5.3 + 1) + 0.4 * np.sin(turns / 2.2 + 2)
    centre = 222 + 22 * np.sin(turns / 4.4)
    return 1.1 * (index + 0.25 * index**2) * bump(lon, centre, 24) * bump(lat, 0, 6)


def weather(shape: tuple[int, ...], step: float, rng: np.random.Generator) -> Array:
    """Return noise with a correlation length of a month and about 3 degrees, standard deviation 0.4 degC."""
    # Not above: real data need none of it, and each import makes that of the package longer.
    from scipy.ndimage import gaussian_filter1d

    rough = rng.standard_normal(shape)
    for axis, width in enumerate((0.7, 1.5 / step, 2.0 / step)):
        rough = gaussian_filter1d(rough, width, axis, mode="wrap")  # cut at four widths
    return 0.4 * rough / rough.std()


def sea_surface_temperature(
    months: int = 360,
    step: float = 1.0,
    seed: int = 0,
    *,
    start: str = "1990-01",
    lat: tuple[float, float] = (-40.0, 40.0),
    lon: tuple[float, float] = (100.0, 300.0),
    land_mask: xr.DataArray | None = None,
) -> xr.Dataset:
    """Return a monthly sea surface temperature: mean, seasons, trend, El Niño-like events that move, weather.

    Parameters
    ----------
    months : int
        Length of the record.
    step : float
        Spacing of the grid in degrees; labels are the centres of cells, latitudes descending.
    seed : int
        Of the weather.
    start : str
        First month.
    lat, lon : tuple of float
        Edges of the region, degrees north and degrees east (0 to 360).
    land_mask : DataArray of bool, optional
        True on land, over ``lat`` and ``lon``, of which the nearest cells are taken; None takes coasts of the
        Indo-Pacific that were drawn by hand.

    Returns
    -------
    Dataset
        ``sst(time, lat, lon)``, float32, degC, NaN on land.
    """
    time = np.datetime64(start, "M") + np.arange(months)
    y = np.arange(lat[1] - step / 2, lat[0], -step)  # descending, as in the products it stands for
    x = np.arange(lon[0] + step / 2, lon[1], step)
    t, row = (np.arange(months) / 12)[:, None, None], y[:, None]
    trend = 0.018 * t * (1 + 0.4 * bump(row, 20, 15))
    values = climatology(t, row, x) + el_nino(t, row, x) + trend
    values = values + weather((months, y.size, x.size), step, np.random.default_rng(seed))
    dry = land(y, x) if land_mask is None else land_mask.sel(lat=y, lon=x, method="nearest").values
    values = np.where(dry, np.nan, values).astype("float32")
    coords = {
        "time": time.astype("datetime64[ns]"),
        "lat": ("lat", y, {"units": "degrees_north", "standard_name": "latitude"}),
        "lon": ("lon", x, {"units": "degrees_east", "standard_name": "longitude"}),
    }
    name = "sea surface temperature"
    attrs = {"units": "degC", "long_name": name, "standard_name": name.replace(" ", "_")}
    return xr.Dataset({"sst": (("time", "lat", "lon"), values, attrs)}, coords)
