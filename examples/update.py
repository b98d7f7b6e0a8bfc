"""A new year of sea surface temperature added to saved statistics, a bad year taken out; no record is read twice.

    python examples/update.py [--out DIR] [--quick]

An archive of monthly grids is read once, with one part of the statistics for each year, saved to one file. Then the
archive is deleted. A year later the statistics of the new year alone are added to the saved ones and the field is
solved again, the strength of its smoothing chosen again (REML); the result is compared with a fit of all years, for
which the example makes the archive a second time. Cross-validation, from the parts alone, predicts each year from
the others. One year was delivered upside down. It stands out, and it is withdrawn: what remains is, bit for bit, what
would be there if it had never come.

The domain of time has to reach beyond the first years: it is agreed beforehand, for as long as years shall be added.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import xarray as xr

import xspline as xs

FIRST, NEW = 2001, 2013  # the years before NEW are the archive
UPSIDE_DOWN = 2006


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="directory for the files (default: a temporary one)")
    parser.add_argument("--quick", action="store_true", help="a grid of 2 degrees")
    return parser.parse_args()


# ---- records --------------------------------------------------------------------------------------------------------


def make(step: float) -> xr.DataArray:
    """Return monthly grids of all years; of one year, each grid has north and south exchanged."""
    months = 12 * (NEW + 1 - FIRST)
    sst = xs.synthetic.sea_surface_temperature(
        months, step, start=f"{FIRST}-01", lat=(-30.0, 30.0), lon=(120.0, 290.0)
    ).sst
    flipped = sst.isel(lat=slice(None, None, -1)).assign_coords(lat=sst.lat)
    return sst.where(sst.time.dt.year != UPSIDE_DOWN, flipped)


def written(sst: xr.DataArray, path: Path) -> xr.DataArray:
    """Write records to a Zarr store, a chunk for each year, and open it lazily."""
    sst.to_dataset().chunk(time=12).to_zarr(path, mode="w", consolidated=False)
    return xr.open_zarr(path, consolidated=False).sst


def agreed(sst: xr.DataArray) -> xs.Space:
    """Return the space of all years to come: labels of place from the grid, two decades of time."""
    domain = (f"{FIRST}-01-01", f"{FIRST + 20}-01-01")
    time = xs.Fourier(2, "year", domain=domain) + xs.Polynomial(1, domain=domain)
    return sst.spline.space(lat=16, lon=28, time=time)


def size(path: Path) -> int:
    """Bytes of all files of a store."""
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


# ---- the walk -------------------------------------------------------------------------------------------------------


def archive(sst: xr.DataArray, out: Path) -> Path:
    """Read the old years once, save their statistics, delete the records; return where the statistics are."""
    records, saved = out / "records.zarr", out / "statistics.zarr"
    old = written(sst.sel(time=slice(None, f"{NEW - 1}")), records)
    statistics = old.spline.statistics(agreed(old), holder="time.year").require_inside()
    statistics.to_zarr(saved, mode="w")
    print(f"{FIRST} to {NEW - 1}: {statistics.count:,} records, {size(records):,} bytes, read once")
    print(f"  {saved.name}: {len(statistics.holders)} parts, {size(saved):,} bytes")
    shutil.rmtree(records)
    print(f"  {records.name} deleted: {not records.exists()}")
    return saved


def update(saved: Path, arrived: xr.DataArray) -> xs.Statistics:
    """Add a year to the saved statistics and save them again."""
    old = xs.open_statistics(saved)
    statistics = old + arrived.spline.statistics(old.space, holder="time.year").require_inside()
    statistics.to_zarr(saved, mode="w")
    print(f"\n{NEW} arrives: {arrived.size:,} cells read, {statistics.count:,} records in {saved.name}")
    return statistics


def compare(statistics: xs.Statistics, everything: xr.DataArray) -> xs.Field:
    """Print how far the updated field is from a fit of all records; return the updated field."""
    field, pooled = statistics.solve(), everything.spline.fit(statistics.space)
    same = statistics.solve(pooled.penalty)
    print(f"  smoothing, from statistics: {field.penalty}")
    print(f"  smoothing, from records:    {pooled.penalty}")
    expected = pooled.predict().where(everything.notnull())
    for which, updated in (("each with its own smoothing", field), ("with equal smoothing", same)):
        apart = float(np.abs(updated.predict(everything) - expected).max() / np.abs(expected).max())
        print(f"  max |difference| = {apart:.1e} of max |prediction|, {which}")
    return field


def validate(field: xs.Field) -> str:
    """Print how well each year is predicted by the others, and how far it moves the field; return the worst."""
    scores = field.cross_validate()
    print(f"\n{'year':>6}{'records':>10}{'rmse':>8}{'influence':>11}   degC, without that year")
    for score in (scores.sel(holder=name) for name in scores.holder):
        year, count, rmse, influence = (score[k].item() for k in ("holder", "count", "rmse", "influence"))
        print(f"{year:>6}{count:>10,}{rmse:>8.2f}{influence:>11.3f}")
    return str(scores.rmse.idxmax("holder").item())


def withdraw(statistics: xs.Statistics, name: str, everything: xr.DataArray) -> None:
    """Take a year out and print whether the rest is what it would be had that year never come, bit for bit."""
    theirs = everything.sel(time=name).spline.statistics(statistics.space, holder=name)
    rest = statistics - theirs
    others = everything.sel(time=everything.time.dt.year != int(name))
    never = others.spline.statistics(statistics.space, holder="time.year")
    after, expected = rest.solve(), never.solve()
    print(f"\n{name} withdrawn: {rest.count:,} records in {len(rest.holders)} parts")
    parts = sorted(p.digest for p in rest.parts) == sorted(p.digest for p in never.parts)
    print(f"  digests equal to those of statistics that never had it: {parts}")
    same = after.coefficients.values.tobytes() == expected.coefficients.values.tobytes()
    print(f"  coefficients equal bit for bit: {same}")
    print(f"  smoothing: {after.penalty}")


def main() -> None:
    args = arguments()
    with ExitStack() as stack:
        out = args.out or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        out.mkdir(parents=True, exist_ok=True)
        sst = make(2.0 if args.quick else 1.0)
        saved = archive(sst, out)
        statistics = update(saved, written(sst.sel(time=f"{NEW}"), out / "arrived.zarr"))
        everything = sst.chunk(time=12)
        field = compare(statistics, everything)
        worst = validate(field)
        withdraw(statistics, worst, everything)


if __name__ == "__main__":
    main()
