"""A fit against `.mean()` of the same Zarr store, on the same two worker processes."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from dask.distributed import Client, LocalCluster

from benchmarks import measure, stand_in

SIZES = {False: ((2400, 256, 512), (60, 128, 128)), True: ((240, 64, 128), (60, 32, 64))}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeat", type=int, default=3)


def run(args: argparse.Namespace) -> None:
    shape, chunks = SIZES[args.quick]
    repeat = 1 if args.quick else args.repeat
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster),
    ):
        path = stand_in.store(Path(folder) / "sst.zarr", shape, chunks)
        chunked, lazy = stand_in.open_store(path), stand_in.open_store(path, chunks=None)
        space = chunked.spline.space(stand_in.paper_bases())
        mean = measure.seconds(lambda: chunked.mean().compute(), repeat)
        rows = [("mean of Dask chunks", mean, 1.0)]
        for name, sst in (("fit, Dask chunks", chunked), ("fit, chunks=None", lazy)):
            took = measure.seconds(lambda sst=sst: sst.spline.fit(space, penalty=0.1), repeat)
            rows.append((name, took, took / mean))
        title = (
            f"mean: {chunked.nbytes / 1e9:.2f} GB in {chunked.data.npartitions:,} chunks, P = {space.size}"
        )
        measure.table(title, ("what", "seconds", "over mean"), rows)
