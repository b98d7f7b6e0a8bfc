"""What a fresh process pays: the import, and a first fit with an empty cache of compiled code and with a full one.

CPU seconds, the least of some rounds. The import is what `import xspline` takes on top of xarray and Dask, with
bytecode as an installation has it. A first fit is that of one process from its start to its end, less what it takes to
import xspline; with an empty cache its loops are compiled.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile

from benchmarks import measure

PEERS = "import xarray, dask.array"
OWN = f"{PEERS}, xspline"
GRID = """
import numpy as np, xarray as xr, xspline
axes = {"time": np.arange(60.0), "lat": np.linspace(-20, 20, 40), "lon": np.linspace(100, 150, 50)}
values = np.random.default_rng(0).standard_normal((60, 40, 50)).astype("float32")
xr.DataArray(values, axes, tuple(axes))"""
POINTS = """
import numpy as np, xarray as xr, xspline
rng = np.random.default_rng(0)
axes = {name: ("obs", rng.random(20_000)) for name in ("time", "lat", "lon")}
xr.DataArray(rng.standard_normal(20_000), axes, ("obs",))"""
FITS = {
    "grid, bases by name": f"{GRID}.spline.fit(lat=8, lon=8, time=8, penalty='reml')",
    "grid, bare": f"{GRID}.spline.fit()",
    "points, bases by name": f"{POINTS}.spline.fit(lat=8, lon=8, time=8, penalty='reml')",
    "points, bare": f"{POINTS}.spline.fit()",
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeat", type=int, default=5)


def cost(code: str, repeat: int, folder: str, cache: str | None = None) -> float:
    """CPU seconds of a new process, at least, with bytecode and compiled code in folders of their own."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPYCACHEPREFIX": folder, "PYTHONWARNINGS": "ignore"}
    taken = []
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as empty:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            environment["NUMBA_CACHE_DIR"] = cache or empty
            subprocess.run(
                [sys.executable, "-c", code], env=environment, check=True, stderr=subprocess.DEVNULL
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(taken)


def run(args: argparse.Namespace) -> None:
    repeat, fits = (1, {}) if args.quick else (args.repeat, FITS)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cache:
        cost(OWN, 1, folder)  # writes bytecode
        nothing, peers, own = (cost(code, repeat, folder) for code in ("pass", PEERS, OWN))
        row = (peers - nothing, own - peers, (own - peers) / (peers - nothing))
        measure.table("first: imports, CPU s", ("xarray, dask.array", "xspline on top", "ratio"), [row])
        rows = []
        for name, code in fits.items():
            empty = cost(code, 1, folder) - own
            cost(code, 1, folder, cache)
            rows.append((name, empty, cost(code, repeat, folder, cache) - own))
        if rows:
            measure.table("first: fits, CPU s", ("fit", "empty cache", "full cache"), rows)
