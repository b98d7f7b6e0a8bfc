"""Statistics, values and solves on a GPU against one core of the host, each beside the floor of the GPU.

The floor of what only reads is its bytes over the bandwidth that a copy on the same GPU reaches (bytes read and
written both count); of what comes from the host, its bytes over that of one copy from pinned memory; that of scattered
observations and solves is their multiplications over the rate of a product of two large matrices in float64.
Without a GPU it says so; `tests/cupy_on_numpy` on PYTHONPATH shows that all of it runs.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import dask
import numpy as np

import xspline as xs
from benchmarks import measure, stand_in
from benchmarks.scattered import LAYOUT, space_of
from benchmarks.solve import with_gaps
from xspline import execution
from xspline.execution import Source, sums
from xspline.kernels import Block, Group, Layout, accumulate, evaluate
from xspline.solve.direct.band import narrowest
from xspline.solve.direct.device import DeviceCholesky
from xspline.solve.direct.solver import Direct
from xspline.sums import Gram

GRID = Layout(tuple(Group((axis,), (axis,)) for axis in range(3)))
PRODUCT = {False: 8192, True: 512}  # rows of the matrices whose product measures arithmetic
COPIED = {False: 1 << 28, True: 1 << 20}  # numbers that are copied
SCALE = {False: (11, 10), True: (1, 1)}  # times 60 x 160 pixels over 494 months: 2.1 GB
AGAIN = {False: 12, True: 2}  # times as long: Python's share of the time goes down
OBSERVATIONS = {False: 100_000_000, True: 50_000}
TARGET = {False: (240, 512, 512), True: (24, 64, 64)}
PER_OBSERVATION = {3: 7 * 49 + 64}  # multiplications of cubics in three coordinates: pairs and moment


class Gpu(execution.Gpu):
    """The current GPU."""

    device = "cuda"

    def __init__(self) -> None:
        super().__init__()
        import cupy

        self.cupy = cupy

    @property
    def name(self) -> str:
        name: str = self.cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
        return name

    def plain(self, array: np.ndarray) -> Any:
        """As CuPy moves it."""
        return self.cupy.asarray(array)

    def pinned(self, nbytes: int) -> Callable[[], object]:
        """What copies so many bytes of pinned memory to the GPU."""
        host, array = self.cupy.cuda.alloc_pinned_memory(nbytes), self.cupy.empty(nbytes, np.uint8)
        return lambda: array.data.copy_from_host_async(host.ptr, nbytes)

    def wait(self) -> None:
        self.cupy.cuda.Device().synchronize()


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeat", type=int, default=5)


def reason_for_none() -> str:
    if importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed"
    import cupy

    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"CuPy finds no GPU ({error})"
    return ""


class Bench:
    """Clocks on one GPU, and its ceilings."""

    def __init__(self, gpu: Any, quick: bool, repeat: int) -> None:
        self.gpu, self.quick, self.repeat = gpu, quick, repeat

    def seconds(self, call: Callable[[], object]) -> float:
        """Median wall seconds of a call until the GPU is idle; one call before them compiles."""
        times = []
        for _ in range(self.repeat + 1):
            self.gpu.wait()
            start = time.perf_counter()
            call()
            self.gpu.wait()
            times.append(time.perf_counter() - start)
        return statistics.median(times[1:])

    @cached_property
    def bandwidth(self) -> float:
        """Bytes read and written by a copy, per second."""
        array = self.gpu.put(np.random.default_rng(0).random(COPIED[self.quick]))
        return 16 * COPIED[self.quick] / self.seconds(lambda: self.gpu.xp.asarray(array, copy=True))

    @cached_property
    def bus(self) -> float:
        """Bytes that one copy from pinned memory brings to the GPU, per second."""
        nbytes = 8 * COPIED[self.quick]
        return nbytes / self.seconds(self.gpu.pinned(nbytes))

    @cached_property
    def rate(self) -> float:
        """Multiplications and additions of a product of matrices in float64, per second."""
        n = PRODUCT[self.quick]
        array = self.gpu.put(np.random.default_rng(0).random((n, n)))
        return n**3 / self.seconds(lambda: self.gpu.xp.matmul(array, array))


def transfers(bench: Bench) -> Iterator[tuple[object, ...]]:
    """Arrays in memory as NumPy makes it, to the GPU and back."""
    array = np.random.default_rng(0).random((64, COPIED[bench.quick] // 64))
    moved = bench.gpu.put(array)
    exact = bool((bench.gpu.get(moved) == array).all())
    for name, call in (
        ("to the GPU", lambda: bench.gpu.put(array)),
        ("to the GPU, in steps of 64 MB", lambda: [bench.gpu.put(a) for a in np.array_split(array, 32)]),
        ("to the GPU, every second column", lambda: bench.gpu.put(array[:, ::2])),
        ("to the GPU, as CuPy moves it", lambda: bench.gpu.plain(array)),
        ("from the GPU", lambda: bench.gpu.get(moved)),
    ):
        nbytes, took = array.nbytes // (2 if "second" in name else 1), bench.seconds(call)
        yield name, nbytes / took / 1e9, took, nbytes / bench.bus, took * bench.bus / nbytes, exact


def on_gpu(bench: Bench, block: Block) -> Block:
    """The same block with its values on the GPU, and coordinates that are as many."""
    coordinates = (bench.gpu.put(x) if x.size == block.values.size else x for x in block.coordinates)
    return replace(block, values=bench.gpu.put(block.values), coordinates=tuple(coordinates))


def apart(a: Any, b: Any) -> float:
    """Largest difference of two moments, relative."""
    return float(np.abs(a.moment - b.moment).max() / np.abs(b.moment).max())


def gridded(bench: Bench) -> Iterator[tuple[object, ...]]:
    """The paper's product in shape, scaled in space; then repeated in time, on the GPU alone."""
    sst, (lat, lon) = stand_in.noaa(494), SCALE[bench.quick]
    values = np.repeat(np.repeat(sst.values.astype("float32"), lat, axis=1), lon, axis=2)
    space = sst.spline.space(stand_in.paper_bases())
    layout = Layout(tuple(Group((sst.dims.index(name),), (j,)) for j, name in enumerate(space.names)))
    for gaps in ("land", "30 % random"):
        if gaps != "land":
            values[np.random.default_rng(0).random(values.shape, dtype="float32") < 0.3] = np.nan
        block = _grid(values, space, sst.dims)
        floor = values.nbytes / bench.bandwidth
        yield from _compared(bench, f"grid, {gaps}", block, layout, space, floor)
        moved = on_gpu(bench, block)
        took = bench.seconds(lambda b=moved: accumulate(b, layout, space, engine="namespace"))
        yield f"grid, {gaps}, slab by slab", values.size / took / 1e6, took, floor, took / floor, "", ""
        again = bench.gpu.xp.concat([moved.values] * AGAIN[bench.quick])
        longer = _grid(again, space, sst.dims)
        floor *= AGAIN[bench.quick]
        took = bench.seconds(lambda b=longer: accumulate(b, layout, space))
        size = AGAIN[bench.quick] * values.size
        yield f"grid, {gaps}, longer", size / took / 1e6, took, floor, took / floor, "", ""


def _grid(values: Any, space: xs.Space, dims: tuple[str, ...]) -> Block:
    """A block whose labels fill the domains, and 41 years."""
    ends = (f.domain or (0.0, 494 * 30.44 * 86400.0) for f in space.features)
    labels = (np.linspace(*e, values.shape[dims.index(n)]) for e, n in zip(ends, space.names, strict=True))
    return Block(values, tuple(labels))


def scattered(bench: Bench) -> Iterator[tuple[object, ...]]:
    """Observations at random; the host sums a part of them."""
    count = OBSERVATIONS[bench.quick]
    many, few = (_observations(n) for n in (count, count // 20))
    # Values and coordinates are read once, in any order.
    floor = max(count * PER_OBSERVATION[3] / bench.rate, count * (4 + 3 * 8) / bench.bandwidth)
    for cells in (8, 37):
        yield from _compared(bench, f"scattered, {cells}³ cells", many, LAYOUT, space_of(cells), floor, few)


def _observations(count: int) -> Block:
    rng = np.random.default_rng(0)
    return Block(rng.normal(size=count).astype("f4"), tuple(rng.random(count) for _ in range(3)))


def _compared(
    bench: Bench,
    name: str,
    block: Block,
    layout: Layout,
    space: xs.Space,
    floor: float,
    few: Block | None = None,
) -> Iterator[tuple[object, ...]]:
    """Sums of a block on the GPU, and moved there first; on one core, of `few` if that is given."""
    few, moved = few or block, on_gpu(bench, block)
    expected = accumulate(few, layout, space)
    start = time.process_time()
    accumulate(few, layout, space)
    host, count = (time.process_time() - start) * block.values.size / few.values.size, block.values.size
    error = apart(accumulate(on_gpu(bench, few), layout, space), expected)
    arrives = sum(x.nbytes for x in (block.values, *block.coordinates)) / bench.bus
    for where, least, call in (
        ("on the GPU", floor, lambda: accumulate(moved, layout, space)),
        ("moved to it", max(floor, arrives), lambda: accumulate(on_gpu(bench, block), layout, space)),
    ):
        took = bench.seconds(call)
        yield f"{name}, {where}", count / took / 1e6, took, least, took / least, host / took, error


class Memory:
    """A store in memory: what is read is copied, as it would be decoded."""

    def __init__(self, values: np.ndarray, chunks: tuple[int, ...]) -> None:
        self.values, self.shape, self.dtype, self.chunks = values, values.shape, values.dtype, chunks

    def read(self, slices: tuple[slice, ...]) -> np.ndarray:
        return self.values[slices].copy()


def streamed(bench: Bench) -> Iterator[tuple[object, ...]]:
    """A store that is read by four threads while the GPU sums, against one that reads and sums on the host."""
    rng, (lat, lon) = np.random.default_rng(0), SCALE[bench.quick]
    shape = (494, 60 * lat, 160 * lon)
    values = rng.standard_normal(shape, dtype="float32")
    values[:, rng.random(shape[1:]) < 0.3] = np.nan
    space = xs.Space({n: xs.BSpline(k, domain=(0.0, 1.0)) for n, k in (("t", 40), ("y", 11), ("x", 21))})
    at = tuple((np.arange(n) + 0.5) / n for n in shape)
    source = Source(Memory(values, (2, *shape[1:])), at, (), GRID)
    found: list[Any] = []

    def summed(device: str | None, **how: Any) -> None:
        with dask.config.set(**how):
            found.append(sums([source], space, device=device)[0])

    summed(None, scheduler="synchronous")
    start = time.process_time()
    summed(None, scheduler="synchronous")
    host, least = time.process_time() - start, values.nbytes / bench.bus
    took = bench.seconds(lambda: summed(bench.gpu.device, scheduler="threads", num_workers=4))
    error = apart(found[-1], found[0])
    yield "grid, land, from a store", values.size / took / 1e6, took, least, took / least, host / took, error


def values(bench: Bench) -> Iterator[tuple[object, ...]]:
    """A full grid of values and of a derivative."""
    shape = TARGET[bench.quick]
    where = tuple(np.linspace(0.0, 1.0, n) for n in shape)
    for functions in (11, 37):
        space = xs.Space({name: xs.BSpline(functions, domain=(0.0, 1.0)) for name in ("t", "y", "x")})
        c = np.random.default_rng(0).normal(size=space.shape)
        moved, floor = bench.gpu.put(c), 8 * np.prod(shape) / bench.bandwidth
        for orders in ((0, 0, 0), (0, 1, 0)):
            start = time.process_time()
            expected = evaluate(c, where, GRID, space, orders)
            host = time.process_time() - start
            found = bench.gpu.get(evaluate(moved, where, GRID, space, orders))
            error = float(np.abs(found - expected).max() / np.abs(expected).max())
            took = bench.seconds(lambda c=moved, s=space, o=orders: evaluate(c, where, GRID, s, o))
            name = f"{'derivative' if any(orders) else 'values'}, P = {functions}³"
            yield name, np.prod(shape) / took / 1e6, took, floor, took / floor, host / took, error


DENSE = {False: 20, True: 8}  # coefficients along each of three coordinates of a dense solve


def dense(bench: Bench) -> Iterator[tuple[object, ...]]:
    """Gaps of any shape: a root with a solve, and the inverse in pairs, on the host and on a GPU.

    A band is what a solve without a GPU takes; both hosts' sides have one thread of BLAS. The floor is P³/6
    multiplications and additions of the root, P³/3 of the inverse.
    """
    case = with_gaps((DENSE[bench.quick],) * 3)
    frame, size, moment = case.space.frame, case.space.size, case.moment.reshape(-1, 1)
    gram, penalty = case.sums.gram, case.roughness(1e-4).gram(case.space)
    both = Gram((*gram.terms, *penalty.terms)).one_factor(frame)
    band = Direct(gram, penalty, frame)

    def host() -> Direct:
        return Direct(gram, penalty, frame, dense=True)

    def root() -> DeviceCholesky:
        return DeviceCholesky(both.to_dense(frame).reshape(size, size), bench.gpu)

    banded, _ = _once(lambda: band.solve(case.moment))
    full, expected = _once(lambda: host().solve(case.moment).reshape(-1, 1))
    error = float(np.abs(root().solve(moment) - expected).max() / np.abs(expected).max())
    took, floor = bench.seconds(lambda: root().solve(moment)), size**3 / 6 / bench.rate
    yield f"P = {size:,}, root and solve", banded, full, took, floor, took / floor, full / took, error
    system, lapack, ordering = root(), host(), narrowest(frame)
    lapack.solve(case.moment)
    banded, _ = _once(band.inverse_pairs)
    full, expected = _once(lambda: lapack.inverse_pairs()[..., None])
    error = float(np.abs(system.inverse_pairs(ordering) - expected).max() / np.abs(expected).max())
    took, floor = bench.seconds(lambda: system.inverse_pairs(ordering)), size**3 / 3 / bench.rate
    yield f"P = {size:,}, inverse in pairs", banded, full, took, floor, took / floor, full / took, error


def _once(call: Callable[[], np.ndarray]) -> tuple[float, np.ndarray]:
    """Wall seconds of a call, and what it gives."""
    start = time.perf_counter()
    found = call()
    return time.perf_counter() - start, found


def run(args: argparse.Namespace) -> None:
    if reason := reason_for_none():
        print(f"gpu: skipped, {reason}")
        return
    bench = Bench(Gpu(), args.quick, 1 if args.quick else args.repeat)
    print(
        f"gpu: {bench.gpu.name}; copies at {bench.bandwidth / 1e9:,.0f} GB/s, from pinned memory at "
        f"{bench.bus / 1e9:,.0f} GB/s, float64 products at "
        f"{bench.rate / 1e9:,.0f} G multiplications/s"
    )
    header = ("what", "GB/s", "s", "floor, s", "over the floor", "exact")
    measure.table("gpu: 2 GB between host and GPU", header, list(transfers(bench)))
    header = ("what", "million/s", "s", "floor, s", "over the floor", "speed over a core", "apart")
    for section in (gridded, streamed, scattered, values):  # printed before the next runs out of time
        measure.table(f"gpu: {section.__name__}", header, list(section(bench)))
    header = ("clouds, roughness", "band s", "LAPACK s", "GPU s", "floor s", "over it", "ratio", "apart")
    measure.table("gpu: dense systems", header, list(dense(bench)))
