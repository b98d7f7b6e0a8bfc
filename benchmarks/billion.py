"""Scattered values in a store larger than memory, end to end: sums that are killed half way, λ, field, error bars.

The store is Zarr, of float32 and uncompressed: values, latitude, longitude and time of each observation, written chunk
by chunk by the workers, each chunk from its own seed. Two workers of one thread and little memory read it, once for
the means of all four arrays, which is what reading costs, and once for the statistics. These are begun by another
process, which is killed with its workers when half of its checkpoint is there; the same call then goes on from it.
λ is chosen from the sums, and values with standard errors follow at places where the truth is known.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import xarray as xr
import zarr
from dask.distributed import Client, LocalCluster

import xspline as xs
from benchmarks import measure
from benchmarks.large import processors

DOMAINS = {"lat": (-60.0, 60.0), "lon": (0.0, 360.0), "time": (0.0, 3650.0)}
FUNCTIONS = (13, 23, 11)  # P = 3,289; at a small size about half of each
NAMES, NOISE, PLACES, VALUE_BYTES = ("u", *DOMAINS), 0.3, 10_000, 4
SMALL = 100_000  # values
CHUNK, CHUNKS = 1 << 21, 64  # the largest of 8 MB an array; of small stores so many
HEADER = (
    "what",
    "seconds",
    "CPU s of all",
    "over reading once",
    "read, MB",
    "peak of a worker, MB",
    "of this process, MB",
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--observations", type=float, default=1e7)
    parser.add_argument("--limit", default="1GB", help="memory limit of each of the two workers")
    parser.add_argument("--folder", type=Path, help="where the store goes (default: temporary)")


def truth(lat: np.ndarray, lon: np.ndarray, time: np.ndarray) -> np.ndarray:
    """Waves that travel east, and slow ones; so long that the functions can follow them."""
    wave = np.sin(np.deg2rad(lon) - time / 1000)
    return np.cos(np.deg2rad(2 * lat)) * (1 + 0.5 * wave) + 0.3 * np.sin(time / 1000 + lat / 30)


def empty_store(path: Path, count: int) -> list[tuple[int, int]]:
    """A store without values; where its chunks are."""
    chunk = min(CHUNK, -(-count // CHUNKS))
    group = zarr.open_group(path, mode="w")
    for name in NAMES:
        group.create_array(
            name, shape=(count,), chunks=(chunk,), dtype="f4", compressors=None, dimension_names=("obs",)
        )
    group["u"].attrs["coordinates"] = " ".join(DOMAINS)
    return [(first, min(first + chunk, count)) for first in range(0, count, chunk)]


def write(path: Path, first: int, last: int) -> None:
    """One chunk, by its own seed."""
    rng, group, size = np.random.default_rng(first), zarr.open_group(path), last - first
    where = {}
    for name, (low, high) in DOMAINS.items():
        where[name] = group[name][first:last] = low + (high - low) * rng.random(size, dtype="f4")
    group["u"][first:last] = truth(**where) + np.float32(NOISE) * rng.standard_normal(size, dtype="f4")


def opened(path: Path) -> xr.DataArray:
    return xr.open_zarr(path, chunks={}, consolidated=False).u


def statistics(path: Path, sums: Path) -> xs.Statistics:
    data = opened(path)
    sizes = [n if data.size > SMALL else n // 2 + 1 for n in FUNCTIONS]
    bases = {name: xs.BSpline(n, domain=DOMAINS[name]) for name, n in zip(DOMAINS, sizes, strict=True)}
    return data.spline.statistics(xs.Space(bases), checkpoint=sums)


@contextmanager
def workers(limit: str) -> Iterator[Client]:
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit=limit, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def begun(path: str, sums: str, limit: str) -> None:
    """What the process does that is killed."""
    with workers(limit):
        statistics(Path(path), Path(sums))


def kept(sums: Path) -> int:
    """Files of partial sums in a checkpoint."""
    return sum(1 for file in sums.rglob("*") if file.is_file()) if sums.exists() else 0


def killed_half_way(path: Path, sums: Path, limit: str, half: int) -> tuple[float, int]:
    """Seconds until half of the sums were kept and all processes were killed, and how many were kept."""
    code = f"from benchmarks.billion import begun; begun({str(path)!r}, {str(sums)!r}, {limit!r})"
    start = time.perf_counter()
    child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    while child.poll() is None and kept(sums) < half:
        time.sleep(0.05)
    took = time.perf_counter() - start
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    return took, kept(sums)


def bytes_read() -> int:
    """What this process has read so far, from caches of the system too."""
    return int(Path("/proc/self/io").read_text().split()[1])


class Costs:
    """Rows of the table: what a call took, with the workers that it ran on."""

    def __init__(self, client: Client) -> None:
        self.client, self.reading = client, 0.0

    def row(self, what: str, call: Callable[[], object]) -> tuple[object, ...]:
        self.client.run(measure.reset_peak)
        measure.reset_peak()
        before, used = sum(self.client.run(bytes_read).values()), processors(self.client)
        took = measure.seconds(call, repeat=1, warm=False)
        cpu = processors(self.client) - used
        read = sum(self.client.run(bytes_read).values()) - before
        peaks = self.client.run(measure.peak)
        self.reading = self.reading or cpu
        memory = (max(peaks.values()) / measure.MB, measure.peak() / measure.MB)
        return (what, took, cpu, cpu / self.reading, read / measure.MB, *memory)


def rows(client: Client, path: Path, folder: Path, limit: str) -> Iterator[tuple[object, ...]]:
    costs, data, results = Costs(client), opened(path), {}
    everything = data.reset_coords().mean()
    yield costs.row("reading once: means of values and coordinates", everything.compute)
    yield costs.row("mean of the values alone", data.mean().compute)
    whole, sums = folder / "whole", folder / "sums"
    yield costs.row("statistics, with a checkpoint", lambda: results.update(a=statistics(path, whole)))
    files = kept(whole)
    took, half = killed_half_way(path, sums, limit, files // 2)
    yield (f"begun, and killed when {half} of {files} sums were kept", took, *[""] * 5)
    yield costs.row("the same call again", lambda: results.update(b=statistics(path, sums)))
    a, b = (results[key].solve(penalty=0.0) for key in "ab")
    results["same"] = bool((a.coefficients == b.coefficients).all())
    yield costs.row(
        "λ by REML, and the field", lambda: results.update(field=results["b"].solve(penalty="reml"))
    )
    rng = np.random.default_rng(1)
    at = {name: ("place", rng.uniform(*domain, PLACES)) for name, domain in DOMAINS.items()}
    target = xr.Dataset(coords=at)
    yield costs.row(
        f"values and errors at {PLACES:,} places",
        lambda: results.update(out=results["field"].predict(target, stderr=True)),
    )
    out = results["out"]
    names = list(out.data_vars)
    apart = out[names[0]] - truth(**{name: out[name].values for name in DOMAINS})
    covered = float((abs(apart) <= 1.96 * out[names[1]]).mean())
    yield ("same bits after the kill: " + ("yes" if results["same"] else "no"), *[""] * 6)
    yield (f"RMSE {float((apart**2).mean()) ** 0.5:.2g}, 95 % intervals hold {covered:.1%}", *[""] * 6)


def run(args: argparse.Namespace) -> None:
    count = SMALL if args.quick else int(args.observations)
    size = count * VALUE_BYTES * len(NAMES)
    with tempfile.TemporaryDirectory(dir=args.folder) as name, workers(args.limit) as client:
        folder, path = Path(name), Path(name) / "u.zarr"
        free = shutil.disk_usage(folder).free
        if free < 1.5 * size:
            raise SystemExit(
                f"the store takes {size / 1e9:.1f} GB, {free / 1e9:.1f} GB are free: give another --folder, "
                "or fewer --observations"
            )
        spans = empty_store(path, count)
        client.gather([client.submit(write, path, *span, pure=False) for span in spans])
        title = (
            f"billion: {count:,} scattered values, a store of {size / 1e9:.1f} GB, "
            f"two 1-thread workers of {args.limit}"
        )
        measure.table(title, HEADER, rows(client, path, folder, args.limit))
