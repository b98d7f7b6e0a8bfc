"""Draw the picture of real data that the site shows, from NOAA's ERSST v5: nothing of it is in the project but this.

    XSPLINE_DATA_DIR=... python ci/real_data.py [PATH]

PATH defaults to docs/_static/ersst.png. The folder has ersst_v5_2010_2020.nc, monthly means of sea surface temperature
from January 2010 to August 2020 on 2° (public domain; xarray's tutorial data have the same product as "ersstv5").
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import xarray as xr

import xspline as xs

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs/_static/ersst.png"
NINO34 = {"lat": (-5, 5), "lon": (190, 240)}
HIDDEN = slice("2014-06", "2014-12")


def main(path: Path) -> None:
    sst = xr.open_dataset(Path(os.environ["XSPLINE_DATA_DIR"]) / "ersst_v5_2010_2020.nc").sst.load()
    pacific = sst.sel(lat=slice(20, -20), lon=slice(150, 270))
    index = pacific.spline.fit().mean(NINO34)
    enso = (index.groupby("time.month") - index.groupby("time.month").mean()).drop_vars("month")
    time = xs.Polynomial(1) + xs.Fourier(2, "year") + xs.Regressors(enso=enso)
    pixels = sst.spline.fit(time=time, errors=xs.AR1("time"))
    slope = pixels.coefficient("enso", stderr=True)
    with_gap = pacific.where(~pacific.time.isin(pacific.time.sel(time=HIDDEN)))
    mean = with_gap.spline.fit().mean(NINO34, stderr=True)

    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 3.2), width_ratios=(1.1, 1), layout="constrained")
    bar = {"label": "°C per °C"}
    slope.sst_enso.plot(ax=left, vmin=-1.5, vmax=1.5, cmap="RdBu_r", cbar_kwargs=bar)
    left.contourf(
        sst.lon, sst.lat, abs(slope.sst_enso / slope.sst_enso_stderr) < 1.96, levels=[0.5, 1.5], colors="none",
        hatches=["...."],
    )  # fmt: skip
    left.set_title("what El Niño 3.4 explains, hatched where zero is in the interval")
    half = 1.96 * mean.sst_stderr
    right.fill_between(mean.time, mean.sst - half, mean.sst + half, alpha=0.4)
    right.plot(mean.time, mean.sst, linewidth=1)
    labels = pacific.sel(lat=slice(4, -4), lon=slice(190, 240))
    labels = labels.weighted(np.cos(np.deg2rad(labels.lat))).mean(("lat", "lon"))
    right.plot(labels.time.sel(time=HIDDEN), labels.sel(time=HIDDEN), "k.")
    right.set_title("Niño 3.4, dots were withheld")
    right.set_ylabel("°C")
    figure.savefig(path, dpi=80)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else PICTURE)
