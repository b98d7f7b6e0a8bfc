"""Three institutions, one sea surface temperature: statistics are exchanged, records stay where they are.

    python examples/merge_institutions.py [--out DIR] [--quick]

A coordinator publishes one Space as JSON. A mooring programme (stations by time), a shipping line (points) and
a reanalysis (a grid with land) each compute the statistics of their own records in it and send a file, NetCDF or
Zarr. Whoever holds the files merges them and solves; the result is compared with a fit of all records in one
place, which nobody could have made. Then one institution withdraws. Files that do not belong are refused.

Statistics are sums over records, not records. They are not a promise of privacy: a sum over a single record
tells that record.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import xarray as xr

import xspline as xs

PENALTY = xs.Roughness({"lat": 1e-2, "lon": 1e-2}) + xs.Ridge(1e-6)
START, END = "2000-01-01", "2010-01-01"
BASES = {  # with their domains, so that nobody has to look at data to agree
    "lat": xs.BSpline(9, domain=(-20, 20)),
    "lon": xs.BSpline(18, domain=(150, 280)),
    "time": xs.Fourier(2, period="365.2425D", domain=(START, END)) + xs.Polynomial(1, domain=(START, END)),
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="directory for the files (default: a temporary one)")
    parser.add_argument("--quick", action="store_true", help="a tenth of the records")
    return parser.parse_args()


# ---- records, made; each institution has its own layout -------------------------------------------------------------


def observed(rng: np.random.Generator, noise: float, **coords: tuple | np.ndarray) -> xr.DataArray:
    """Return temperatures over the dimensions of some coordinates, with noise of one instrument."""
    labels = xr.Dataset(coords=coords)
    turns = 2 * np.pi * (labels.time - np.datetime64(START)) / np.timedelta64(365, "D")
    east = (labels.lon - 150) / 130
    mean = 29 - 0.01 * labels.lat**2 - 3 * east * np.exp(-((labels.lat / 5) ** 2)) - 2 * east
    sst = mean + 0.1 * labels.lat * np.cos(turns - 4) + 0.7 * east * np.cos(turns - 1.5) + 0.002 * turns
    sst = sst + noise * rng.standard_normal(sst.shape)
    return sst.rename("sst").assign_attrs(units="degC", standard_error=noise)


def moorings(thin: int) -> xr.DataArray:
    """Stations by days, a tenth of the reports missing."""
    rng = np.random.default_rng(1)
    lat, lon = (grid.ravel() for grid in np.meshgrid((-8, -5, -2, 0, 2, 5, 8), np.arange(156, 270, 12)))
    time = np.arange(START, END, thin, dtype="datetime64[D]").astype("datetime64[ns]")
    sst = observed(rng, 0.1, lat=("station", lat), lon=("station", lon), time=time)
    return sst.where(rng.random(sst.shape) > 0.1)


def ships(thin: int) -> xr.DataArray:
    """Points along crossings, noisier."""
    rng = np.random.default_rng(2)
    n = 200_000 // thin
    lon = rng.uniform(150, 280, n)
    lat = np.clip(18 * np.sin(np.deg2rad(2 * lon)) + rng.normal(0, 2, n), -20, 20)
    hours = rng.integers(0, 24 * 3652, n).astype("timedelta64[h]")
    return observed(
        rng,
        0.6,
        lat=("obs", lat),
        lon=("obs", lon),
        time=("obs", (np.datetime64(START) + hours).astype("datetime64[ns]")),
    )


def reanalysis(thin: int) -> xr.DataArray:
    """A monthly grid with land."""
    rng = np.random.default_rng(3)
    time = np.arange(START[:7], END[:7], dtype="datetime64[M]").astype("datetime64[ns]")[:: max(thin // 3, 1)]
    sst = observed(rng, 0.3, time=time, lat=np.arange(-19.5, 20), lon=np.arange(150.5, 280))
    return sst.where(sst.lon < 277 - 0.01 * (sst.lat + 5) ** 2)


RECORDS: dict[str, Callable[[int], xr.DataArray]] = {
    "moorings": moorings,
    "ships": ships,
    "reanalysis": reanalysis,
}


# ---- what each institution does, with its own records and the published space ---------------------------------------


def contribute(name: str, records: xr.DataArray, published: Path, out: Path) -> Path:
    """Compute the statistics of an institution's records and write the file that it sends."""
    space = xs.Space.from_json(published.read_text())
    statistics = records.spline.statistics(space, weights=precision(records), holder=name).require_inside()
    if name == "reanalysis":
        statistics.to_zarr(out / f"{name}.zarr", mode="w")
        return out / f"{name}.zarr"
    statistics.to_netcdf(out / f"{name}.nc")
    return out / f"{name}.nc"


def precision(records: xr.DataArray) -> xr.DataArray:
    """Return the weight of an institution's records, 1/se²; without dimensions it holds for all of them."""
    return xr.DataArray(records.attrs["standard_error"] ** -2.0)


def size(path: Path) -> int:
    """Bytes of a file, or of all files of a store."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def weigh(name: str, records: xr.DataArray, sent: Path, out: Path) -> None:
    """Print how many bytes were sent instead of the records."""
    kept = out / f"records of {name}.nc"
    records.to_netcdf(kept)
    count, bytes_kept, bytes_sent = records.count().item(), size(kept), size(sent)
    print(f"  {name:<11}{count:>8,} records, {bytes_kept:>9,} bytes; {sent.name}: {bytes_sent:,} bytes")


# ---- what whoever holds the files does ------------------------------------------------------------------------------


def as_points(records: xr.DataArray) -> xr.DataArray:
    """Return the records of any layout along obs, each with its place and time."""
    if records.dims == ("obs",):
        return records
    return records.stack(obs=records.dims).reset_index("obs").drop_vars("station", errors="ignore")


def compare(merged: xs.Statistics, records: dict[str, xr.DataArray]) -> None:
    """Print how far the merged fit is from that of all records in one place."""
    points = [as_points(record) for record in records.values()]
    weights = xr.concat([xr.full_like(values, precision(values).item()) for values in points], "obs")
    everything = xr.concat(points, "obs", combine_attrs="drop_conflicts")
    pooled = everything.spline.fit(merged.space, weights=weights, penalty=PENALTY).predict()
    field = merged.solve(PENALTY)
    apart, largest = np.abs(field.predict(everything) - pooled).max().item(), np.abs(pooled).max().item()
    print(f"\nmerged against pooled, {merged.count:,} records:")
    print(f"  max |difference| = {apart:.1e} degC = {apart / largest:.1e} of max |prediction|")
    rmse = {name: float(np.sqrt(((field.predict(own) - own) ** 2).mean())) for name, own in records.items()}
    print(
        "merged field against each institution, RMSE in degC: "
        + ", ".join(f"{n} {e:.3f}" for n, e in rmse.items())
    )


def withdraw(merged: xs.Statistics, parts: dict[str, xs.Statistics], name: str) -> None:
    """Take an institution out again and print whether the rest is what it would have been without it, bit for bit."""
    rest = merged - parts[name]
    never = xs.merge(part for holder, part in parts.items() if holder != name)
    after, expected = (s.solve(PENALTY).coefficients.values for s in (rest, never))
    print(f"\n{name} withdrawn: {', '.join(rest.holders)} remain, {rest.count:,} records")
    print(f"  equal bit for bit to a merge without {name}: {after.tobytes() == expected.tobytes()}")


def refused(what: str, attempt: Callable[[], object]) -> None:
    """Print the message with which something that must not be merged is refused."""
    try:
        attempt()
    except ValueError as error:
        print(f"\nrefused, {what}:\n  {error}")
    else:
        raise RuntimeError(f"not refused: {what}")


def main() -> None:
    args = arguments()
    with ExitStack() as stack:
        out = args.out or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        out.mkdir(parents=True, exist_ok=True)
        agreed, published = xs.Space(BASES), out / "space.json"
        published.write_text(agreed.to_json())
        print(f"agreed: {agreed}\n")
        records = {name: make(10 if args.quick else 1) for name, make in RECORDS.items()}
        files = {name: contribute(name, own, published, out) for name, own in records.items()}
        print("each sends statistics and keeps its records:")
        for name, own in records.items():
            weigh(name, own, files[name], out)

        parts = {name: xs.open_statistics(file) for name, file in files.items()}
        merged = xs.merge(parts.values())
        compare(merged, records)
        withdraw(merged, parts, "ships")
        refused("the same part again", lambda: merged + parts["moorings"])
        refused("a part that is not there", lambda: merged - parts["ships"] - parts["ships"])
        other = xs.Space({**BASES, "lat": xs.BSpline(10, domain=(-20, 20))})
        refused("another space", lambda: merged + records["ships"].spline.statistics(other, holder="ships"))


if __name__ == "__main__":
    main()
