"""Statistics of scattered observations against sparse and dense Phi, in a cubic space of three coordinates.

Sparse: CSR rows from `BSpline.design_matrix` of each coordinate, then Phi'Phi and Phi'y of scipy.sparse. Dense:
rows of Phi in batches. Both are timed on the first observations only, as their cost is proportional to the
number, and with the formation of Phi and without. Times are CPU seconds, which count every thread. A last table has
the wall seconds of labelled observations in a store, by one worker and by two.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse
import xarray as xr
from scipy.interpolate import BSpline as SciPySpline

import xspline as xs
from benchmarks import mean, measure
from xspline.kernels import Block, Group, Layout, accumulate, evaluate

LAYOUT = Layout((Group((0,), (0, 1, 2)),))
BATCH = 4096


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--observations", type=int, default=None, help="default: 1,000,000")
    parser.add_argument("--repeat", type=int, default=5)


@dataclass
class Clock:
    """CPU and wall seconds of each call, by name."""

    cpu: dict[str, list[float]] = field(default_factory=dict)
    wall: dict[str, list[float]] = field(default_factory=dict)

    def call(self, name: str, function: Callable[[], object]) -> object:
        cpu, wall = time.process_time(), time.perf_counter()
        out = function()
        self.cpu.setdefault(name, []).append(time.process_time() - cpu)
        self.wall.setdefault(name, []).append(time.perf_counter() - wall)
        return out


def space_of(cells: int) -> xs.Space:
    return xs.Space({name: xs.BSpline(cells + 3, domain=(0.0, 1.0)) for name in ("x", "y", "z")})


def head(block: Block, count: int) -> Block:
    return Block(block.values[:count], tuple(x[:count] for x in block.coordinates))


def sparse_rows(block: Block, space: xs.Space) -> scipy.sparse.csr_array:
    """Phi, 64 entries a row: products of the four of each coordinate."""
    count, index, data = block.values.size, np.zeros((1, 1), np.int64), np.ones((1, 1))
    for features, x in zip(space.features, block.coordinates, strict=True):
        rows = SciPySpline.design_matrix(x, features.knots, features.degree)
        one = rows.indices.reshape(count, -1), rows.data.reshape(count, -1)
        index = (index[:, :, None] * features.size + one[0][:, None, :]).reshape(count, -1)
        data = (data[:, :, None] * one[1][:, None, :]).reshape(count, -1)
    pointer = np.arange(0, index.size + 1, index.shape[1])
    return scipy.sparse.csr_array((data.ravel(), index.ravel(), pointer), shape=(count, space.size))


def dense_rows(block: Block, space: xs.Space, first: int) -> np.ndarray:
    """A batch of rows of Phi."""
    phi = np.ones((block.values[first : first + BATCH].size, 1))
    for features, x in zip(space.features, block.coordinates, strict=True):
        phi = (phi[:, :, None] * features.design(x[first : first + BATCH])[:, None, :]).reshape(len(phi), -1)
    return phi


def dense(block: Block, space: xs.Space, clock: Clock) -> np.ndarray:
    """Phi'Phi in batches; the product and the rows are clocked apart."""
    gram, rows_s, product_s = np.zeros((space.size, space.size)), 0.0, 0.0
    for first in range(0, block.values.size, BATCH):
        start = time.process_time()
        phi = dense_rows(block, space, first)
        middle = time.process_time()
        gram += phi.T @ phi
        phi.T @ block.values[first : first + BATCH]
        rows_s, product_s = rows_s + middle - start, product_s + time.process_time() - middle
    clock.cpu.setdefault("dense", []).append(rows_s + product_s)
    clock.cpu.setdefault("dense, product alone", []).append(product_s)
    return gram


def sparse(block: Block, space: xs.Space, clock: Clock) -> scipy.sparse.csr_array:
    phi = clock.call("rows", lambda: sparse_rows(block, space))
    gram = clock.call("product", lambda: (phi.T @ phi, phi.T @ block.values)[0])
    rows_s, product_s = clock.cpu["rows"].pop(), clock.cpu["product"].pop()
    clock.cpu.setdefault("sparse", []).append(rows_s + product_s)
    clock.cpu.setdefault("sparse, product alone", []).append(product_s)
    return gram


def against(block: Block, space: xs.Space, repeat: int, few: tuple[int, int]) -> None:
    """One table: each way once a round, `repeat` rounds."""
    clock, count = Clock(), block.values.size
    for_sparse, for_dense = (head(block, n) for n in few)
    accumulate(head(block, count), LAYOUT, space)  # compiles
    for _ in range(repeat):
        clock.call("xspline", lambda: accumulate(block, LAYOUT, space))
        by_sparse, by_dense = sparse(for_sparse, space, clock), dense(for_dense, space, clock)
    sizes = {"xspline": count, "sparse": for_sparse.values.size, "dense": for_dense.values.size}
    rows, base = [], statistics.median(clock.cpu["xspline"]) / count
    for name in ("xspline", "sparse", "sparse, product alone", "dense", "dense, product alone"):
        each = statistics.median(clock.cpu[name]) / sizes[name.split(",")[0]]
        rows.append((name, sizes[name.split(",")[0]], each * 1e6, 1e-6 / each, each / base))
    apart = []
    for sample, theirs in ((for_sparse, by_sparse.toarray()), (for_dense, by_dense)):
        ours = accumulate(sample, LAYOUT, space).gram.to_dense(space.frame).reshape(theirs.shape)
        apart.append(float(np.abs(ours - theirs).max() / np.abs(theirs).max()))
    measure.table(
        f"scattered: P = {space.size}; G apart from the sparse and the dense one by {apart[0]:.0e}, {apart[1]:.0e}",
        ("statistics", "observations", "CPU s for a million", "million/s", "over xspline"),
        rows,
    )


def rates(block: Block, repeat: int) -> None:
    """Rates of statistics and of evaluation by the number of cells."""
    rows = []
    for cells in (8, 16, 37):
        space, clock = space_of(cells), Clock()
        coefficients = np.random.default_rng(1).normal(size=space.shape)
        for _ in range(repeat + 1):
            clock.call("statistics", lambda space=space: accumulate(block, LAYOUT, space))
            clock.call(
                "evaluation",
                lambda space=space, c=coefficients: evaluate(c, block.coordinates, LAYOUT, space),
            )
        for name in clock.cpu:
            cpu, wall = (times[name][1:] for times in (clock.cpu, clock.wall))
            millions = block.values.size / 1e6
            rows.append(
                (f"{name}, {cells}³ cells", statistics.median(cpu), statistics.median(wall),
                 millions / statistics.median(cpu), millions / min(cpu))
            )  # fmt: skip
    measure.table(
        f"scattered: {block.values.size:,} observations, one thread",
        ("what", "CPU s", "wall s", "million/s", "million/s at best"),
        rows,
    )


def by_workers(count: int, chunks: int, repeat: int) -> None:
    """Wall seconds of the statistics of float32 observations in a Zarr store, by one worker process and by two."""
    rng, space = np.random.default_rng(2), space_of(8)
    names, walls = tuple(space.names), {}
    columns = {name: ("obs", rng.random(count, dtype=np.float32)) for name in names}
    data = xr.Dataset({"u": ("obs", rng.standard_normal(count, dtype=np.float32)), **columns})
    with tempfile.TemporaryDirectory() as folder:
        encoding = {name: {"compressors": ()} for name in data.data_vars}
        data.chunk(obs=-(-count // chunks)).to_zarr(folder, encoding=encoding, consolidated=False)
        for workers in (1, 2):
            with mean.workers(workers):
                stored = xr.open_zarr(folder, consolidated=False).set_coords(names).u
                walls[workers] = measure.seconds(lambda own=stored: own.spline.statistics(space), repeat)
    measure.table(
        f"scattered: {count:,} float32 observations in {chunks} chunks of a Zarr store",
        ("workers", "wall s", "million/s", "times one"),
        [(workers, wall, count / wall / 1e6, walls[1] / wall) for workers, wall in walls.items()],
    )


def run(args: argparse.Namespace) -> None:
    count = args.observations or (20_000 if args.quick else 1_000_000)
    rng, repeat = np.random.default_rng(0), 1 if args.quick else args.repeat
    x, y, z = rng.uniform(size=(3, count))
    block = Block(280.0 + np.sin(6 * x) * y + z + rng.normal(size=count), (x, y, z))
    rates(block, repeat)
    against(block, space_of(8), repeat, (min(count, 50_000), min(count, 20_000)))
    by_workers(48 * count, 48, repeat)
