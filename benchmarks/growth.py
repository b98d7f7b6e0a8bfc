"""What statistics cost as values, coefficients and workers grow: seconds, ratios, peak memory of a worker."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import dask
import numpy as np
import xarray as xr
from dask.distributed import Client, LocalCluster

import xspline as xs
from benchmarks import measure, stand_in

CHUNK = (16, 160, 320)  # 3.3 MB
GAPS, TIMES = 0.3, (1, 4, 16)  # as many chunks as the smallest store has; a quick run stops at four
COEFFICIENTS = ((4, 4, 6), (8, 12, 10), (16, 32, 20), (32, 64, 48))  # lat, lon, time: P = 96 … 98,304
HEADER = (
    "what",
    "chunks",
    "values",
    "P",
    "workers",
    "seconds",
    "over the first",
    "Mvalues/s",
    "peak - idle, MB",
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--chunks", type=int, default=None, help="of the smallest store (default: 8; --quick: 1)"
    )
    parser.add_argument("--repeat", type=int, default=None, help="times that each row is run (default: 5)")


def store(path: Path, days: int) -> Path:
    """Values with land and 30 % random gaps, uncompressed: what takes time is the sums."""
    stand_in.store(path, (days, *CHUNK[1:]), CHUNK)
    out = path.with_name("gaps.zarr")
    sst = stand_in.open_store(path)

    def with_gaps(block: np.ndarray, block_id: tuple[int, ...] = ()) -> np.ndarray:
        rng = np.random.default_rng(block_id)
        return np.where(rng.random(block.shape, dtype="f4") < GAPS, np.float32(np.nan), block)

    gaps = sst.copy(data=sst.data.map_blocks(with_gaps, dtype="f4")).drop_encoding()
    gaps.to_dataset().to_zarr(out, encoding={"sst": {"compressors": ()}}, consolidated=False)
    return out


def space(sst: xr.DataArray, sizes: Sequence[int]) -> xs.Space:
    return sst.spline.space(dict(zip(("lat", "lon", "time"), sizes, strict=True)))


def row(client: Client, what: str, sst: xr.DataArray, where: xs.Space, repeat: int) -> list[object]:
    """Median seconds of the statistics, and the highest peak of a worker above what it held before."""
    sst.isel(time=slice(0, CHUNK[0])).spline.statistics(where)  # compiles and imports
    client.run(measure.reset_peak)
    sst.spline.statistics(where)
    idle = client.run(measure.reset_peak)
    took = measure.seconds(lambda: sst.spline.statistics(where), repeat)
    peaks = client.run(measure.peak)
    above = max(peaks[address] - idle[address] for address in idle) / measure.MB
    workers, chunks = len(idle), -(-sst.sizes["time"] // CHUNK[0])
    return [what, chunks, sst.size, where.size, workers, took, 1.0, sst.size / took / 1e6, above]


def relative(rows: list[list[object]]) -> list[list[object]]:
    for found in rows:
        found[6] = found[5] / rows[0][5]
    return rows


def run(args: argparse.Namespace) -> None:
    chunks, repeat = args.chunks or (1 if args.quick else 8), args.repeat or (1 if args.quick else 5)
    found, times = [], TIMES[:2] if args.quick else TIMES
    with tempfile.TemporaryDirectory() as folder:
        path = store(Path(folder) / "sst.zarr", times[-1] * chunks * CHUNK[0])
        # Dask's profiler of a worker keeps 0.2 MB a second for an hour: nothing to do with the sums.
        dask.config.set({"distributed.worker.profile.enabled": False})
        for workers in (1, 2):
            with (
                LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0") as cluster,
                Client(cluster) as client,
            ):
                sst = stand_in.open_store(path)
                short = sst.isel(time=slice(0, chunks * CHUNK[0]))
                middle = COEFFICIENTS[2]
                found += relative(
                    [
                        row(client, "values", part, space(sst, middle), repeat)
                        for part in (sst.isel(time=slice(0, n * chunks * CHUNK[0])) for n in times)
                    ]
                )
                if workers == 2:
                    sizes = COEFFICIENTS[: 2 if args.quick else None]
                    found += relative(
                        [row(client, "coefficients", short, space(sst, k), repeat) for k in sizes]
                    )
    one, two = (
        next(r for r in found if r[0] == "values" and r[4] == w and r[1] == times[-1] * chunks)
        for w in (1, 2)
    )
    measure.table(
        "growth: 30 % random gaps, uncompressed, Dask chunks of 3.3 MB, 1-thread workers", HEADER, found
    )
    print(f"two workers are {one[5] / two[5]:.2f} times faster than one")
