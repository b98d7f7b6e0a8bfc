"""Sea surface temperature from moorings as a field of latitude, longitude and time, tried on withheld moorings.

    python examples/moorings.py [--data tao_sst_5day.nc] [--reference ersst.nc] [--figure PATH] [--quick]

Reports lie along `obs`, each with its place and time. The field is the sum of two fits. The climatology has the
annual and the semiannual harmonic in time; the anomaly, of what that leaves, has B-splines 60 days apart, fine
enough for El Niño. Both have cubic B-splines in latitude and longitude, and both penalise slopes: where no mooring
reports, the anomaly then levels off, whereas a penalty on curvature carries slopes on.

One mooring in five is withheld for the score. The strengths of the penalties are those that predict each of the
four other groups best from the remaining three, and the same is tried for a single fit of B-splines.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.ticker import FuncFormatter, MultipleLocator

import xspline as xs
from xspline.synthetic import sea_surface_temperature

PLACE = {"lat": 9, "lon": 12}
SEASONS = PLACE | {"time": xs.Fourier(2, period="365.2425D")}
EVENTS = PLACE | {"time": xs.BSpline(spacing="60D")}
SEASON_PENALTIES = [xs.Roughness({"lat": s, "lon": s}, order=1) for s in (1, 3, 10, 30, 100)]
EVENT_PENALTIES = [
    xs.Roughness({"lat": s, "lon": s, "time": t}, order=1) for s in (10, 30, 100, 300) for t in (1e-3, 1e-2)
]
GROUPS = 5
WITHHELD = 0  # the group that no fit and no choice has seen


class Model(NamedTuple):
    """The sum of a climatology and an anomaly."""

    climatology: xs.Field
    anomaly: xs.Field

    def predict(self, at: xr.DataArray) -> xr.DataArray:
        return self.climatology.predict(at) + self.anomaly.predict(at)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="NetCDF file with sst, lat, lon, time along obs")
    parser.add_argument("--reference", type=Path, help="gridded monthly sst(time, lat, lon) to compare with")
    parser.add_argument("--figure", type=Path, default=Path("moorings.png"))
    parser.add_argument("--quick", action="store_true", help="six synthetic years, for a quick look")
    return parser.parse_args()


# ---- reports --------------------------------------------------------------------------------------------------------


def reports(args: argparse.Namespace) -> xr.DataArray:
    """Return temperatures along obs, each labelled with its mooring and its group of moorings."""
    if args.data is None:
        return grouped(make_reports(years=6 if args.quick else 30))
    with xr.open_dataset(args.data) as opened:
        sst = opened.load().set_coords(["lat", "lon", "time"]).sst
    return grouped(sst.assign_attrs({"units": "degC", "long_name": "sea surface temperature"} | sst.attrs))


def make_reports(years: int, seed: int = 0) -> xr.DataArray:
    """Return five-day means at moorings of the tropical Pacific, in deployments with gaps, of a synthetic ocean."""
    rng = np.random.default_rng(seed)
    ocean = sea_surface_temperature(12 * years, lat=(-12.0, 12.0), lon=(130.0, 275.0)).sst
    days = np.arange(ocean.time[0].values, ocean.time[-1].values, np.timedelta64(5, "D"))
    lat, lon = np.meshgrid((-8, -5, -2, 0, 2, 5, 8), (137, 147, 156, 165, 180, 190, 205, 220, 235, 250, 265))
    mooring, day = np.nonzero([deployed(days.size, rng) for _ in range(lat.size)])
    place = {"lat": lat.ravel()[mooring], "lon": lon.ravel()[mooring], "time": days[day]}
    sst = ocean.interp({name: ("obs", labels) for name, labels in place.items()})
    return (sst + 0.2 * rng.standard_normal(sst.size)).assign_attrs(ocean.attrs).dropna("obs")


def deployed(steps: int, rng: np.random.Generator) -> np.ndarray:
    """True while a mooring reports: from some year of the first third on, two years at a time, half a year not."""
    lengths = rng.exponential(np.tile([146, 36], steps // 36)).astype(int) + 1
    on = np.repeat(np.arange(lengths.size) % 2 == 0, lengths)
    before = rng.integers(0, steps // 3)
    return np.concatenate([np.zeros(before, bool), on])[:steps]


def grouped(sst: xr.DataArray, seed: int = 0) -> xr.DataArray:
    """Label each report with its mooring and with one of five groups into which these are dealt at random."""
    places, mooring = np.unique(np.stack([sst.lat, sst.lon], axis=1), axis=0, return_inverse=True)
    group = np.random.default_rng(seed).permutation(len(places)) % GROUPS
    return sst.assign_coords(mooring=("obs", mooring), group=("obs", group[mooring]))


def split(sst: xr.DataArray, group: int) -> tuple[xr.DataArray, xr.DataArray]:
    """Return the reports of all other groups, and those of one."""
    return sst[sst.group != group], sst[sst.group == group]


# ---- fits -----------------------------------------------------------------------------------------------------------


class Fold(NamedTuple):
    """The statistics of some groups of moorings, and the reports of the one left out."""

    statistics: xs.Statistics
    left_out: xr.DataArray


def rmse(errors: xr.DataArray | np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(errors))))


def folds(
    sst: xr.DataArray, space: xs.Space, season: tuple[xs.Space, xs.Roughness] | None = None
) -> Iterator[Fold]:
    """Leave out each group in turn, of the reports or of what a climatology of the other groups leaves."""
    for group in np.unique(sst.group):
        rest, left_out = split(sst, group)
        if season is not None:
            climatology = rest.spline.fit(season[0], penalty=season[1])
            rest, left_out = rest - climatology.predict(), left_out - climatology.predict(left_out)
        yield Fold(rest.spline.statistics(space), left_out)


def best(of: Iterable[Fold], penalties: list[xs.Roughness]) -> tuple[xs.Roughness, float]:
    """Return the penalty that predicts best what was left out, and its root mean square error."""
    kept = list(of)
    scores = []
    for penalty in penalties:
        errors = [f.statistics.solve(penalty).predict(f.left_out) - f.left_out for f in kept]
        scores.append(rmse(np.concatenate(errors)))
    return penalties[int(np.argmin(scores))], min(scores)


def fit(
    sst: xr.DataArray, seasons: xs.Space, events: xs.Space, penalties: tuple[xs.Roughness, xs.Roughness]
) -> Model:
    climatology = sst.spline.fit(seasons, penalty=penalties[0])
    anomaly = (sst - climatology.predict()).assign_attrs(units="degC", long_name="anomaly")
    return Model(climatology, anomaly.spline.fit(events, penalty=penalties[1]))


def choose(sst: xr.DataArray, seasons: xs.Space, events: xs.Space) -> tuple[Model, xs.Field]:
    """Choose penalties by moorings left out, say what was found, and return the two fits and the single one."""
    print("chosen by leaving out each group of moorings in turn (root mean square error, degC):")
    season, score = best(folds(sst, seasons), SEASON_PENALTIES)
    print(f"  climatology          {score:.3f}   {season}")
    event, score = best(folds(sst, events, (seasons, season)), EVENT_PENALTIES)
    print(f"  climatology+anomaly  {score:.3f}   {event}")
    single, score = best(folds(sst, events), EVENT_PENALTIES)
    print(f"  one fit of B-splines {score:.3f}   {single}")
    return fit(sst, seasons, events, (season, event)), sst.spline.fit(events, penalty=single)


# ---- scores ---------------------------------------------------------------------------------------------------------


def report(model: Model, single: xs.Field, withheld: xr.DataArray) -> None:
    print(
        f"\nwithheld moorings ({np.unique(withheld.mooring).size}, {withheld.size:,} reports), RMSE in degC:"
    )
    for name, field in (
        ("climatology", model.climatology),
        ("field", model),
        ("one fit of B-splines", single),
    ):
        print(f"  {name:<21}{rmse(field.predict(withheld) - withheld):.3f}")


def compare(model: Model, sst: xr.DataArray, path: Path) -> None:
    """Print how far monthly means at the moorings are from a gridded product, where both are there."""
    with xr.open_dataset(path) as opened:
        product = opened.sst.load()
    covered = sst[(sst.time >= product.time[0]) & (sst.time < product.time[-1])]
    months = monthly(covered, model)
    at = {name: xr.DataArray(months[name].values, dims="obs") for name in ("lat", "lon", "time")}
    months["product"] = product.interp(at).values
    first, last = (f"{product.time[i].dt.strftime('%Y-%m').item()}" for i in (0, -1))
    print(f"\nagainst {path.name} ({first} to {last}), monthly means at the moorings, RMSE in degC:")
    for name, chosen in (
        ("fitted", months[months.group != WITHHELD]),
        ("withheld", months[months.group == WITHHELD]),
    ):
        far = {k: rmse(chosen[k] - chosen["product"]) for k in ("reports", "field", "climatology")}
        print(f"  {name:<9}({len(chosen)} months)  " + ", ".join(f"{k} {v:.3f}" for k, v in far.items()))


def monthly(sst: xr.DataArray, model: Model) -> pd.DataFrame:
    """Return a table of monthly means of reports, field and climatology for each mooring."""
    columns = {"reports": sst, "field": model.predict(sst), "climatology": model.climatology.predict(sst)}
    table = xr.Dataset({k: v.drop_attrs() for k, v in columns.items()}).to_dataframe()
    table["time"] = table.time.to_numpy().astype("datetime64[M]").astype("datetime64[ns]")
    return table.groupby(["mooring", "time"]).mean().reset_index()


# ---- figure ---------------------------------------------------------------------------------------------------------


def degrees(positive: str, negative: str) -> FuncFormatter:
    def text(x: float, _position: int) -> str:
        x = (x + 180) % 360 - 180
        return f"{abs(x):g}°{positive if x > 0 else negative if 0 > x > -180 else ''}"

    return FuncFormatter(text)


def axis_of(space: xs.Space, name: str, n: int) -> np.ndarray:
    """Return n labels across the domain of a coordinate."""
    axis, _ = space.axes[name]
    lo, hi = space.features[space.names.index(name)].domain
    return axis.to_label(np.linspace(lo, hi, n))


def heard(sst: xr.DataArray, lon: np.ndarray, time: np.ndarray) -> np.ndarray:
    """True where a mooring within 2 degrees of the equator and 13 degrees of longitude reports within 2 months."""
    near = sst[np.abs(sst.lat) <= 2]
    day = np.timedelta64(1, "D")
    edges = np.append(time, time[-1] + (time[-1] - time[-2]))
    reporting = np.zeros((lon.size, time.size), bool)
    for x in np.unique(near.lon):
        often = np.histogram(near.time[near.lon == x].values.astype(float), edges.astype(float))[0] > 0
        wide = np.ones(1 + 2 * int(60 * day / (time[1] - time[0])))
        reporting |= (np.abs(lon - x) <= 13)[:, None] & (np.convolve(often, wide, "same") > 0)
    return reporting


def strongest(anomaly: xs.Field, sst: xr.DataArray) -> np.datetime64:
    """Return when the anomaly over 5S-5N, 170W-120W is largest, of the times at which half of all moorings report."""
    time = axis_of(anomaly.space, "time", 300)
    lat, lon = np.linspace(-5, 5, 11), np.linspace(190, 240, 26)
    box = anomaly.predict(lat=lat, lon=lon, time=time).mean(("lat", "lon"))
    step = np.searchsorted(time, sst.time.values, side="right") - 1
    reporting = np.bincount(np.unique([step, sst.mooring], axis=1)[0], minlength=time.size)
    many = reporting >= np.unique(sst.mooring).size / 2
    return time[np.where(many, box, -np.inf).argmax()]


def map_panel(ax: plt.Axes, model: Model, sst: xr.DataArray, when: np.datetime64, style: dict) -> None:
    space = model.anomaly.space
    lat, lon = axis_of(space, "lat", 60), axis_of(space, "lon", 200)
    ax.pcolormesh(lon, lat, model.anomaly.predict(lat=lat, lon=lon, time=when), **style)
    for group, face in ((sst.group != WITHHELD, "black"), (sst.group == WITHHELD, "white")):
        ax.scatter(
            sst.lon[group], sst.lat[group], s=26, c=face, edgecolors="black", linewidths=0.9, clip_on=False
        )
    ax.set_title(
        f"a   Anomaly in {when.astype('datetime64[s]').item():%B %Y}; moorings fitted (black) and withheld (white)",
        loc="left",
    )
    ax.set_aspect("equal")
    ax.xaxis.set_major_locator(MultipleLocator(20))
    ax.xaxis.set_major_formatter(degrees("E", "W"))
    ax.yaxis.set_major_formatter(degrees("N", "S"))


def hovmoeller(
    ax: plt.Axes, equator: xr.DataArray, when: np.datetime64, style: dict
) -> plt.cm.ScalarMappable:
    ax.set_facecolor("0.85")
    mesh = ax.pcolormesh(equator.time, equator.lon, equator.transpose("lon", "time"), **style)
    ax.axvline(when, color="black", lw=0.8, ls=":")
    ax.set_title("b   Anomaly along the equator; grey: no mooring near it reports", loc="left")
    ax.yaxis.set_major_locator(MultipleLocator(20))
    ax.yaxis.set_major_formatter(degrees("E", "W"))
    return mesh


def series(ax: plt.Axes, model: Model, withheld: xr.DataArray) -> None:
    """Draw the withheld mooring with the most reports: these, the field, the climatology."""
    most = np.bincount(withheld.mooring).argmax()
    reports = withheld[withheld.mooring == most].sortby("time")
    lat, lon = reports.lat[0].item(), reports.lon[0].item()
    time = np.arange(reports.time.values[0], reports.time.values[-1], np.timedelta64(5, "D"))
    at = xr.Dataset({"time": time, "lat": lat, "lon": lon})
    ax.plot(reports.time, reports, ".", ms=2.2, color="0.6", label="reports, withheld")
    ax.plot(time, model.climatology.predict(at), lw=0.9, color="tab:blue", label="climatology")
    ax.plot(time, model.predict(at), lw=1.2, color="tab:red", label="field")
    place = f"{degrees('N', 'S')(lat, 0)} {degrees('E', 'W')(lon, 0)}"
    ax.set_title(f"c   The withheld mooring at {place}", loc="left")
    ax.set_ylabel("°C")
    ax.legend(loc="upper right", ncols=3, frameon=False, markerscale=4)
    ax.margins(y=0.18)


def figure(model: Model, sst: xr.DataArray, path: Path) -> None:
    space, when = model.anomaly.space, strongest(model.anomaly, sst)
    lon, time = axis_of(space, "lon", 160), axis_of(space, "time", 1000)
    equator = (
        model.anomaly.predict(lat=0.0, lon=lon, time=time)
        .transpose("lon", "time")
        .where(heard(sst, lon, time))
    )
    limit = np.ceil(2 * np.abs(equator).quantile(0.998).item()) / 2
    style = {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit, "rasterized": True}
    fig = plt.figure(figsize=(11, 8.6), layout="constrained")
    top, middle, low = fig.subplots(3, 1, height_ratios=(1.0, 1.7, 1.2))
    map_panel(top, model, sst, when, style)
    mesh = hovmoeller(middle, equator, when, style)
    series(low, model, split(sst, WITHHELD)[1])
    low.set_xlim(middle.get_xlim())
    fig.colorbar(mesh, ax=[top, middle], label="°C", extend="both", pad=0.015, aspect=30)
    fig.savefig(path, dpi=200)
    plt.close(fig)


def main() -> None:
    args = arguments()
    sst = reports(args)
    print(f"{sst.size:,} reports of {np.unique(sst.mooring).size} moorings\n")
    fitted, withheld = split(sst, WITHHELD)
    seasons, events = (
        sst.spline.space(SEASONS),
        sst.spline.space(EVENTS),
    )  # the domains of all, withheld or not
    print(f"climatology: {seasons}\nanomaly: {events}\n")
    model, single = choose(fitted, seasons, events)
    report(model, single, withheld)
    if args.reference:
        compare(model, sst, args.reference)
    figure(model, sst, args.figure)
    print(f"\nfigure: {args.figure}")


if __name__ == "__main__":
    main()
