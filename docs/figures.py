"""Maps and axes that the pages share: land of the synthetic ocean, degrees, panels of one size."""

from __future__ import annotations

import re
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.ticker import FuncFormatter, MaxNLocator

from xspline.synthetic.ocean import COASTS

LAND = "0.80"
BLUE, ORANGE, GREEN, GREY = "#1f5fa8", "#d95f02", "#1b9e77", "0.55"

plt.rcParams.update(
    {
        "figure.dpi": 110,
        "savefig.dpi": 110,
        "figure.constrained_layout.use": True,
        "axes.titlelocation": "left",
        "axes.titlesize": 10.5,
        "axes.labelsize": 10,
        "xtick.labelsize": 9,
        "ytick.labelsize": 9,
        "legend.frameon": False,
        "legend.fontsize": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
)


def coastlines() -> list[np.ndarray]:
    """Return the outlines of the synthetic ocean's land, each [point, (lon, lat)]."""
    outlines = re.split(r"[A-Za-z ]+:", COASTS)[1:]
    return [np.array([point.split(",") for point in text.split()], float) for text in outlines]


def degrees(positive: str, negative: str) -> FuncFormatter:
    """Label ticks as 40°N, 0°, 120°W."""

    def text(x: float, _position: int | None = None) -> str:
        x = (x + 180) % 360 - 180
        side = positive if 0 < x < 180 else negative if -180 < x < 0 else ""
        return f"{abs(x):g}°{side}"

    return FuncFormatter(text)


def geographic(ax: plt.Axes, *, land: bool = False) -> plt.Axes:
    """Label both axes of a map in degrees; with the synthetic ocean's land in grey."""
    if land:
        limits = ax.get_xlim(), ax.get_ylim()
        for outline in coastlines():
            ax.fill(*outline.T, facecolor=LAND, edgecolor="0.35", linewidth=0.6, zorder=2)
        ax.set(xlim=limits[0], ylim=limits[1])
    ax.set_aspect("equal")
    for axis, names in ((ax.xaxis, "EW"), (ax.yaxis, "NS")):
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 3, 5, 10]))
        axis.set_major_formatter(degrees(*names))
    return ax


def draw_map(ax: plt.Axes, values: xr.DataArray, title: str, *, land: bool = True, **style: Any) -> Any:
    """Draw values over lat and lon, with land, ticks in degrees and a title; returns what a colour bar needs."""
    values = values.transpose("lat", "lon")
    mesh = ax.pcolormesh(values.lon, values.lat, values, rasterized=True, **style)
    geographic(ax, land=land)
    ax.set_title(title)
    return mesh


def symmetric(*values: xr.DataArray, quantile: float = 0.995) -> dict[str, Any]:
    """Return a diverging colour scale about zero that holds nearly all of some values."""
    limit = max(float(np.abs(v).quantile(quantile)) for v in values)
    return {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit}


def shared(*values: xr.DataArray, cmap: str = "viridis", quantile: float = 0.005) -> dict[str, Any]:
    """Return one colour scale that holds nearly all of some values."""
    lo = min(float(v.quantile(quantile)) for v in values)
    hi = max(float(v.quantile(1 - quantile)) for v in values)
    return {"cmap": cmap, "vmin": lo, "vmax": hi}
