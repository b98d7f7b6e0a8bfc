"""Tasks a chunk, seconds to build, memory of client and scheduler, on a store of 10,000 chunks."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import xarray as xr
from dask.distributed import Client, LocalCluster

import xspline as xs
from benchmarks import measure, stand_in


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--days", type=int, default=None, help="100 chunks a 4 days (default: 400)")


def row(
    name: str, lazy: Callable[[], object], compute: Callable[[], object], chunks: int
) -> tuple[object, ...]:
    """Build, count, then compute with client and scheduler in this process; their growth is measured."""
    build = measure.seconds(lazy, repeat=3)
    nodes = measure.tasks(lazy())
    before = measure.reset_peak()
    took = measure.seconds(compute, repeat=1, warm=False)
    growth = max(0.0, measure.peak() - before) / measure.MB
    return name, nodes["task"], nodes["task"] / chunks, nodes["alias"], build, took, growth


def fit_row(name: str, sst: xr.DataArray, space: xs.Space, chunks: int) -> tuple[object, ...]:
    return row(
        name,
        lambda: sst.spline.fit(space, penalty=0.1, compute=False).coefficients,
        lambda: sst.spline.fit(space, penalty=0.1),
        chunks,
    )


def run(args: argparse.Namespace) -> None:
    days = args.days or (16 if args.quick else 400)
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster),
    ):
        path = stand_in.store(Path(folder) / "sst.zarr", (days, 160, 320), (4, 16, 32))
        chunked, lazy = stand_in.open_store(path), stand_in.open_store(path, chunks=None)
        chunks = chunked.data.npartitions
        space = chunked.spline.space(stand_in.paper_bases())
        chunked.isel(time=slice(0, 8)).spline.fit(
            space, penalty=0.1
        )  # imports and compilation on the workers
        rows = [
            fit_row("fit, Dask chunks", chunked, space, chunks),
            fit_row("fit, chunks=None", lazy, space, chunks),
            row("mean, Dask chunks", chunked.mean, lambda: chunked.mean().compute(), chunks),
        ]
        header = (
            "what",
            "tasks",
            "tasks a chunk",
            "aliases",
            "build, s",
            "compute, s",
            "client + scheduler, MB",
        )
        measure.table(f"graph: {chunks:,} chunks of {chunked.nbytes / chunks / 1e3:.0f} kB", header, rows)
