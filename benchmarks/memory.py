"""Peak memory of workers that fit, and write predictions of, a store larger than they are."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import xarray as xr
from dask.distributed import Client, LocalCluster

import xspline as xs
from benchmarks import measure, stand_in

CHUNKS = (64, 256, 256)  # 16.8 MB


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--size", type=float, default=None, help="GB of the store (default: 3; --quick: 0.1)")
    parser.add_argument("--limit", default="1GB", help="memory limit of each of the two workers")
    parser.add_argument("--folder", type=Path, default=None, help="where the stores go (default: temporary)")


def shape(gigabytes: float) -> tuple[int, int, int]:
    lat, lon = (512, 1024) if gigabytes >= 1 else (256, 512)
    steps = -(-gigabytes * 1e9 // (4 * lat * lon * CHUNKS[0]))
    return int(steps) * CHUNKS[0], lat, lon


def peaks(client: Client, call: object) -> tuple[float, list[int], list[int]]:
    """Seconds of `call`, resident bytes of each worker before it, and its peak above them."""
    idle = client.run(measure.reset_peak)
    took = measure.seconds(call, repeat=1, warm=False)
    top = client.run(measure.peak)
    return took, list(idle.values()), [top[address] - idle[address] for address in idle]


def run(args: argparse.Namespace) -> None:
    with (
        tempfile.TemporaryDirectory(dir=args.folder) as folder,
        LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit=args.limit, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        path = stand_in.store(
            Path(folder) / "sst.zarr", shape(args.size or (0.1 if args.quick else 3.0)), CHUNKS
        )
        rows = []
        for name, chunks in (("Dask chunks", {}), ("chunks=None", None)):
            sst = stand_in.open_store(path, chunks)
            rows += measured(name, sst, client, Path(folder))
        title = f"memory: {sst.nbytes / 1e9:.2f} GB, chunks of 16.8 MB, two 1-thread workers of {args.limit}"
        measure.table(
            title, ("what", "seconds", "idle, MB", "peak - idle, MB", "plan, MB", "peak / plan"), rows
        )


def measured(name: str, sst: xr.DataArray, client: Client, folder: Path) -> list[tuple[object, ...]]:
    space = sst.spline.space(stand_in.paper_bases())
    small = sst.isel(time=slice(0, CHUNKS[0]))
    small.spline.fit(space, penalty=0.1)  # imports and compilation belong to the idle process
    plan = sst.spline.plan(space).memory_bytes
    fields: list[xs.Field] = []
    took, idle, above = peaks(client, lambda: fields.append(sst.spline.fit(space, penalty=0.1)))
    rows = [(f"fit, {name}", took, max(idle) / 1e6, max(above) / 1e6, plan / 1e6, max(above) / plan)]
    values = fields[0].predict().astype("float32").to_dataset(name="sst")
    took, idle, above = peaks(
        client, lambda: values.to_zarr(folder / f"{len(name)}.zarr", mode="w", consolidated=False)
    )
    return [*rows, (f"predict().to_zarr(), {name}", took, max(idle) / 1e6, max(above) / 1e6, "", "")]
