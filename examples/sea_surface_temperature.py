"""Sea surface temperature of the tropical Pacific as one smooth field: from one store and from two halves.

    python examples/sea_surface_temperature.py [--data FILE.nc] [--figure PATH] [--quick]

A monthly product is written to a chunked Zarr store and opened lazily. Worker processes reduce it to its
statistics, and one solve gives a field of latitude and longitude (cubic B-splines) and time (two annual
harmonics and a quadratic trend). The same is done as two institutions would, west and east of 160°W: each
sends statistics, never data, and the merged fit is compared with the pooled one. One figure shows a month.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import ExitStack
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from dask.distributed import Client, LocalCluster
from matplotlib.ticker import FuncFormatter, MultipleLocator

import xspline as xs

BASES = {"lat": 13, "lon": xs.BSpline(23), "time": xs.Fourier(2, period="365.2425D") + xs.Polynomial(2)}
PENALTY = 0.1
MERIDIAN = 200.0  # west of it one holder, east of it the other


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="NetCDF product to use instead of the synthetic one")
    parser.add_argument("--variable", default="sst", help="its variable (default: sst)")
    parser.add_argument("--out", type=Path, help="directory for the stores (default: a temporary one)")
    parser.add_argument("--figure", type=Path, default=Path("sea_surface_temperature.png"))
    parser.add_argument("--quick", action="store_true", help="six years at 2 degrees, for a quick look")
    return parser.parse_args()


def product(args: argparse.Namespace) -> xr.Dataset:
    if args.data is None:
        synthetic = xs.synthetic.sea_surface_temperature
        return synthetic(months=72, step=2.0) if args.quick else synthetic()
    with xr.open_dataset(args.data) as opened:
        return opened[[args.variable]].rename({args.variable: "sst"}).drop_encoding().load()


def write(ds: xr.Dataset, path: Path) -> Path:
    ds.chunk(time=60, lat=40, lon=50).to_zarr(path, mode="w", consolidated=False)
    return path


def between(da: xr.DataArray, **limits: tuple[float, float]) -> xr.DataArray:
    """Labels in lo <= label <= hi, whichever way the coordinate runs."""
    for name, (lo, hi) in limits.items():
        ends = (lo, hi) if da[name][0] < da[name][-1] else (hi, lo)
        da = da.sel({name: slice(*ends)})
    return da


def fit_as_two_holders(sst: xr.DataArray, directory: Path) -> xs.Field:
    """Each holder writes the statistics of its own half; whoever solves reads two small files."""
    space = sst.spline.space(BASES)  # agreed beforehand: the domains are those of the whole region
    cut = int((sst.lon < MERIDIAN).sum())
    halves = {"west": sst.isel(lon=slice(None, cut)), "east": sst.isel(lon=slice(cut, None))}
    for holder, half in halves.items():
        half.spline.statistics(space, holder=holder).to_zarr(directory / f"{holder}.zarr")
    parts = [xs.open_statistics(directory / f"{holder}.zarr") for holder in halves]
    return xs.merge(parts).solve(penalty=PENALTY)


def report(field: xs.Field, merged: xs.Field, sst: xr.DataArray) -> None:
    summary = field.summary()
    for name, value in summary.data_vars.items():
        form = "," if value.dtype.kind in "iu" else ".6g"
        print(f"  {name:<14}{value.item():{form}}")
    for name in ("penalty", "solver"):
        print(f"  {name:<14}{summary.attrs[name]}")
    fitted = field.predict()
    apart = np.abs(merged.predict(sst) - fitted).where(sst.notnull()).max()
    largest = np.abs(fitted).where(sst.notnull()).max()
    apart, largest = apart.compute().item(), largest.compute().item()
    print(f"\nmerged (west + east of {MERIDIAN:g}E) against pooled, at observed cells:")
    print(f"  max |difference| = {apart:.2e} degC = {apart / largest:.1e} of max |prediction|")


def strongest_month(sst: xr.DataArray, field: xs.Field) -> xr.DataArray:
    """The month that season and trend explain least over the central Pacific: the height of an El Niño."""
    box = {"lat": (-5.0, 5.0), "lon": (190.0, 240.0)}
    residual = (between(sst, **box) - between(field.predict(), **box)).mean(("lat", "lon")).compute()
    return residual.time[residual.argmax("time").item()]


def degrees(positive: str, negative: str) -> FuncFormatter:
    def text(x: float, _position: int) -> str:
        x = (x + 180) % 360 - 180
        return f"{abs(x):g}°{positive if x > 0 else negative if x < 0 else ''}"

    return FuncFormatter(text)


def panel(ax: plt.Axes, da: xr.DataArray, title: str, **style: object) -> plt.cm.ScalarMappable:
    ax.set_facecolor("0.72")  # land: cells without a value show it
    mesh = ax.pcolormesh(da.lon, da.lat, da, rasterized=True, **style)
    ax.set_title(title, loc="left", fontsize=11)
    ax.set_aspect("equal")
    ax.xaxis.set_major_locator(MultipleLocator(40))
    ax.yaxis.set_major_locator(MultipleLocator(15))
    ax.xaxis.set_major_formatter(degrees("E", "W"))
    ax.yaxis.set_major_formatter(degrees("N", "S"))
    ax.tick_params(labelsize=9)
    return mesh


def figure(sst: xr.DataArray, field: xs.Field, month: xr.DataArray, path: Path) -> None:
    data = sst.sel(time=month).compute()
    ocean = data.notnull()
    fit = field.predict(data).where(ocean)
    slope = field.gradient(at=data, geometry="sphere")
    steepness = 1e5 * np.hypot(slope.dsst_dlat, slope.dsst_dlon).where(ocean)  # per metre -> per 100 km
    residual = data - fit
    limits = {"vmin": np.floor(data.quantile(0.01).item()), "vmax": np.ceil(data.max().item())}
    spread = np.ceil(2 * np.abs(residual).quantile(0.995).item()) / 2

    fig, axes = plt.subplots(2, 2, figsize=(12.5, 5.6), layout="constrained", sharex=True, sharey=True)
    (top_left, top_right), (low_left, low_right) = axes
    panel(top_left, data, "a   Data", cmap="plasma", **limits)
    shared = panel(top_right, fit, "b   Field", cmap="plasma", **limits)
    left = panel(
        low_left,
        residual,
        "c   Data − field: what season and trend leave",
        cmap="RdBu_r",
        vmin=-spread,
        vmax=spread,
    )
    steep = steepness.quantile(0.995).item()
    right = panel(
        low_right, steepness, "d   |∇SST| of the field, on the sphere", cmap="YlGnBu", vmin=0, vmax=steep
    )
    bar = {"shrink": 0.9, "pad": 0.015, "aspect": 22}
    fig.colorbar(shared, ax=axes[0], label="°C", extend="both", **bar)
    fig.colorbar(left, ax=low_left, label="°C", extend="both", **bar)
    fig.colorbar(right, ax=low_right, label="°C per 100 km", extend="max", **bar)
    fig.suptitle(f"Sea surface temperature, {month.dt.strftime('%B %Y').item()}", fontsize=13)
    fig.savefig(path, dpi=200)
    plt.close(fig)


def main() -> None:
    args = arguments()
    with ExitStack() as stack:
        out = args.out or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        out.mkdir(parents=True, exist_ok=True)
        store = write(product(args), out / "sst.zarr")
        cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0")
        stack.enter_context(cluster)
        stack.enter_context(Client(cluster))
        sst = between(xr.open_zarr(store, consolidated=False).sst, lat=(-30.0, 30.0), lon=(120.0, 280.0))
        print(f"{sst.name}: {dict(sst.sizes)}, {sst.data.npartitions} chunks of {store.name}\n")
        field = sst.spline.fit(BASES, penalty=PENALTY)
        report(field, fit_as_two_holders(sst, out), sst)
        figure(sst, field, strongest_month(sst, field), args.figure)
        print(f"\nfigure: {args.figure}")


if __name__ == "__main__":
    main()
