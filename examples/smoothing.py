"""Sea surface temperature under clouds: season and trend of the field, and how sure they are.

    python examples/smoothing.py [--data FILE.nc] [--figure PATH] [--quick]

The time basis says what the field is, season and trend; everything else is weather. REML takes the roughness and the
strength of smoothing in space from the statistics. With `holder="time.year"` these keep a part for each year, and there
are two kinds of error bar:

- model-based: exact if the errors of the cells are independent;
- jackknife: one year is left out at a time. Only years have to be independent.

Weather is not independent. Here it is red noise that lasts a few months (lag-one correlation 0.7) and spans a few
degrees, so the first kind is far too short and calls most of any trend significant. The synthetic product has a known
truth: the last panel says how often intervals of a nominal coverage hold it. With `--data` nobody knows the truth,
and there are four panels. Cells are tested one by one: of those without a trend, one in twenty is hatched.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.ticker import FuncFormatter, MultipleLocator, PercentFormatter
from scipy.ndimage import gaussian_filter1d
from scipy.special import ndtr
from scipy.stats import t as student

import xspline as xs
from xspline.synthetic.ocean import bump, climatology, land

YEAR = np.timedelta64(31_556_952, "s")  # 365.2425 days
DECADE = 10 * YEAR / np.timedelta64(1, "s")  # in seconds
METHODS = {"model-based": None, "jackknife": "jackknife"}
COLOURS = {"model-based": "#d95f02", "jackknife": "#1f5fa8"}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="NetCDF product to use instead of the synthetic one")
    parser.add_argument("--variable", default="sst", help="its variable (default: sst)")
    parser.add_argument("--figure", type=Path, default=Path("smoothing.png"))
    parser.add_argument("--quick", action="store_true", help="twelve years of the east, for a quick look")
    return parser.parse_args()


# ---- data -----------------------------------------------------------------------------------------------------------


def product(args: argparse.Namespace) -> xr.Dataset:
    """Return sst(time, lat, lon); where it is made, also truth, of the field, and slope, of the trend."""
    if args.data is None:
        return make(12, (-20, 20), (200, 290)) if args.quick else make(20, (-30, 30), (120, 290))
    with xr.open_dataset(args.data) as opened:
        return opened[[args.variable]].rename({args.variable: "sst"}).squeeze(drop=True).load()


def make(years: int, lat: tuple[int, int], lon: tuple[int, int], seed: int = 0) -> xr.Dataset:
    """Return a monthly product at one degree: season and trend, weather, land, and clouds that move."""
    rng = np.random.default_rng(seed)
    time = (np.datetime64("2001-01", "M") + np.arange(12 * years)).astype("datetime64[ns]")
    y, x = np.arange(lat[0] + 0.5, lat[1])[:, None], np.arange(lon[0] + 0.5, lon[1])
    t = ((time - np.datetime64("1970-01-01")) / YEAR)[:, None, None]
    truth = climatology(t, y, x) + trend(y, x) * (t - t.mean()) / 10
    weather = 0.4 * red_noise(truth.shape, (2.0, 2.6), 0.7, rng)
    clouds = ndtr(red_noise(truth.shape, (3.0, 5.0), 0.4, rng)) < cloudiness(y)
    hidden = clouds | land(y[:, 0], x)
    axes = ("time", "lat", "lon")
    return xr.Dataset(
        {
            "sst": (axes, np.where(hidden, np.nan, truth + weather), {"units": "degC"}),
            "truth": (axes, truth),
            "slope": (axes[1:], trend(y, x)),
        },
        {
            "time": time,
            "lat": ("lat", y[:, 0], {"units": "degrees_north"}),
            "lon": ("lon", x, {"units": "degrees_east"}),
        },
    )


def trend(lat: np.ndarray, lon: np.ndarray) -> np.ndarray:
    """degC per decade: the west and the subtropics warm, the south-east cools, and much does neither."""
    west = 0.45 * bump(lon, 145, 22) * bump(lat, 6, 13)
    north = 0.40 * bump(lon, 208, 26) * bump(lat, 25, 8)
    south = 0.30 * bump(lon, 185, 28) * bump(lat, -27, 8)
    return west + north + south - 0.50 * bump(lon, 265, 22) * bump(lat, -9, 9)


def cloudiness(lat: np.ndarray) -> np.ndarray:
    """Share of time under clouds: most below the rains at 7N and in the storms of the subtropics."""
    return 0.3 + 0.3 * bump(lat, 7, 4) + 0.15 * bump(np.abs(lat), 30, 6)


def red_noise(
    shape: tuple[int, ...], widths: Sequence[float], keep: float, rng: np.random.Generator
) -> np.ndarray:
    """Return noise of variance 1, smooth over the widths in cells, of which each month keeps a share of the last."""
    noise = rng.standard_normal(shape)
    for axis, width in enumerate(widths, start=1):
        noise = gaussian_filter1d(noise, width, axis, mode="wrap")
    noise /= noise.std()
    for before, now in pairwise(noise):
        now *= np.sqrt(1 - keep**2)
        now += keep * before
    return noise


# ---- estimates and how sure they are --------------------------------------------------------------------------------


class Estimate(NamedTuple):
    """A quantity with its standard error of both kinds, and its truth where that is known; the sea only."""

    name: str
    units: str
    value: xr.DataArray
    stderr: dict[str, xr.DataArray]
    truth: xr.DataArray | None


def estimate_field(field: xs.Field, ds: xr.Dataset, sea: xr.DataArray) -> Estimate:
    """Return the field at every seventh month, which is every season and every year."""
    some = ds.isel(time=slice(None, None, 7))
    at = some.sst
    stderr = {name: field.stderr(at, method=method).where(sea) for name, method in METHODS.items()}
    return Estimate("field", "°C", field.predict(at).where(sea), stderr, some.get("truth"))


def estimate_trend(field: xs.Field, ds: xr.Dataset, sea: xr.DataArray) -> Estimate:
    """Return the trend without the season in the middle of the record."""
    slow, at = field.select(time=xs.Polynomial), middle(ds).sst
    stderr = {
        name: DECADE * slow.derivative(at, time=1, stderr=True, method=method).dsst_dtime_stderr.where(sea)
        for name, method in METHODS.items()
    }
    value = DECADE * slow.derivative(at, time=1).where(sea)
    return Estimate("trend", "°C per decade", value, stderr, ds.get("slope"))


def middle(ds: xr.Dataset) -> xr.Dataset:
    return ds.isel(time=ds.sizes["time"] // 2)


def quantile(field: xs.Field, method: str, level: float = 0.95) -> float:
    """Return how many standard errors an interval reaches: Student's t of the years less one, or the normal."""
    freedom = len(field.statistics.holders) - 1 if method == "jackknife" else np.inf
    return float(student.ppf((1 + level) / 2, freedom))


def coverage(field: xs.Field, of: Estimate, method: str, level: float = 0.95) -> float:
    """Return the share of cells of which the interval holds the truth."""
    error, half_width = np.abs(of.value - of.truth), quantile(field, method, level) * of.stderr[method]
    return (error <= half_width).where(of.value.notnull()).mean().item()


def significant(field: xs.Field, of: Estimate, method: str) -> xr.DataArray:
    """1 where the interval excludes zero, 0 where not, NaN on land."""
    return (np.abs(of.value) > quantile(field, method) * of.stderr[method]).where(of.value.notnull())


def report(field: xs.Field, estimates: Sequence[Estimate]) -> None:
    print(f"\n{'':<46}" + "".join(f"{name:>13}" for name in METHODS))
    for of in estimates:
        row(f"{of.name}: median standard error, {of.units}", "{:.3f}", lambda m, of=of: of.stderr[m].median())
        if of.truth is not None:
            rmse = np.sqrt(((of.value - of.truth) ** 2).mean()).item()
            print(f"  {'root mean square of its error':<44}{rmse:>13.3f}{rmse:>13.3f}")
            row("  intervals of 95 % that hold the truth", "{:.1%}", lambda m, of=of: coverage(field, of, m))
    trend = estimates[-1]
    row("  significant at 95 %", "{:.1%}", lambda m: significant(field, trend, m).mean())
    if trend.truth is not None:
        wrong = np.sign(trend.value) != np.sign(trend.truth)
        row(
            "  of these of the wrong sign",
            "{:.1%}",
            lambda m: wrong.where(significant(field, trend, m) == 1).mean(),
        )


def row(title: str, form: str, value: object) -> None:
    print(f"{title:<46}" + "".join(f"{form.format(float(value(name))):>13}" for name in METHODS))


# ---- figure ---------------------------------------------------------------------------------------------------------


def degrees(positive: str, negative: str) -> FuncFormatter:
    def text(x: float, _position: int) -> str:
        x = (x + 180) % 360 - 180
        return f"{abs(x):g}°{positive if x > 0 else negative if 0 > x > -180 else ''}"

    return FuncFormatter(text)


def panel(ax: plt.Axes, da: xr.DataArray, sea: xr.DataArray, title: str, label: str, **style: object) -> None:
    """Draw a map: grey on land, white where the sea has no value."""
    ax.pcolormesh(da.lon, da.lat, sea, cmap="Greys_r", vmin=-2.5, vmax=1, rasterized=True)
    mesh = ax.pcolormesh(da.lon, da.lat, da, rasterized=True, **style)
    extend = "max" if style["vmin"] == 0 else "both"
    ax.figure.colorbar(mesh, ax=ax, label=label, shrink=0.78, pad=0.015, aspect=15, extend=extend)
    ax.set_title(title, loc="left", fontsize=10.5)
    ax.set_aspect("equal")
    wide = abs(da.lon[-1] - da.lon[0]) > 200
    ax.xaxis.set_major_locator(MultipleLocator(60 if wide else 30))
    ax.yaxis.set_major_locator(MultipleLocator(30 if wide else 15))
    ax.xaxis.set_major_formatter(degrees("E", "W"))
    ax.yaxis.set_major_formatter(degrees("N", "S"))
    ax.tick_params(labelsize=9)


def hatch(ax: plt.Axes, marked: xr.DataArray) -> None:
    ax.contourf(marked.lon, marked.lat, marked, levels=[0.5, 1.5], colors="none", hatches=["/////"])


def calibration(ax: plt.Axes, field: xs.Field, estimates: Sequence[Estimate]) -> None:
    """Draw the share of intervals that hold the truth over their nominal coverage."""
    levels = np.linspace(0.02, 0.99, 60)
    ax.plot([0, 1], [0, 1], color="0.6", lw=0.8)
    for of, line in zip(estimates, ("--", "-"), strict=True):
        for method, colour in COLOURS.items():
            covered = [coverage(field, of, method, level) for level in levels]
            at_95 = 100 * coverage(field, of, method)
            label = f"{of.name}, {method} (95 % intervals: {at_95:.0f} %)"
            ax.plot(levels, covered, line, color=colour, label=label)
    ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="nominal coverage", ylabel="share that hold the truth")
    ax.set_title("f   Intervals that hold the truth", loc="left", fontsize=10.5)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(PercentFormatter(1, symbol=" %"))
    ax.tick_params(labelsize=9)
    ax.legend(loc="upper left", frameon=False, fontsize=9)


def figure(
    field: xs.Field, ds: xr.Dataset, sea: xr.DataArray, estimates: Sequence[Estimate], path: Path
) -> None:
    """Draw a month, its field and standard error, the trend; and, where the truth is known, this and the coverage."""
    rows, month, trend = (2 if "truth" not in ds else 3), middle(ds).sst, estimates[-1]
    tall = 5.2 * abs((sea.lat[-1] - sea.lat[0]) / (sea.lon[-1] - sea.lon[0])).item() + 0.65
    fig, axes = plt.subplots(rows, 2, figsize=(12.5, rows * tall), layout="constrained")
    fitted = field.predict(month).where(sea)
    unsure = field.stderr(month, method="jackknife").where(sea)
    warm = {"cmap": "plasma", "vmin": fitted.quantile(0.01).item(), "vmax": fitted.max().item()}
    pale = {"cmap": "YlGnBu", "vmin": 0, "vmax": unsure.quantile(0.99).item()}
    limit = np.ceil(10 * np.abs(trend.value).quantile(0.995).item()) / 10
    diverging = {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit}
    when = month.time.dt.strftime("%B %Y").item()

    panel(axes[0, 0], month, sea, f"a   Data, {when}", "°C", **warm)
    panel(axes[0, 1], fitted, sea, f"b   Field, {when}", "°C", **warm)
    panel(axes[1, 0], unsure, sea, "c   Standard error of the field (jackknife over years)", "°C", **pale)
    title = "d   Trend; hatched where significant at 95 % (jackknife)"
    panel(axes[1, 1], trend.value, sea, title, trend.units, **diverging)
    hatch(axes[1, 1], significant(field, trend, "jackknife"))
    if rows == 3:
        panel(axes[2, 0], trend.truth.where(sea), sea, "e   True trend", trend.units, **diverging)
        calibration(axes[2, 1], field, estimates)
    fig.savefig(path, dpi=200)
    plt.close(fig)


def main() -> None:
    args = arguments()
    ds = product(args)
    sea = ds.sst.notnull().any("time")
    hidden = 1 - ds.sst.notnull().mean() / sea.mean()
    print(f"sst: {dict(ds.sizes)}, {hidden.item():.0%} of the sea missing\n")
    bases = {name: ds[name].size // 4 + 3 for name in ("lat", "lon")}
    time = xs.Fourier(2, "year") + xs.Polynomial(2)
    field = ds.sst.spline.fit({**bases, "time": time}, holder="time.year")
    print(field)
    estimates = [estimate_field(field, ds, sea), estimate_trend(field, ds, sea)]
    report(field, estimates)
    figure(field, ds, sea, estimates, args.figure)
    print(f"\nfigure: {args.figure}")


if __name__ == "__main__":
    main()
