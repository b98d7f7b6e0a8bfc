"""The sweep over a grid: the same sums as its definition, and the same structure, where it applies.

The kernels of a GPU are run by the host's compiler.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from array_api_compat import is_cupy_array
from array_api_compat import numpy as namespace

from tests import host_kernels
from tests.devices import Device
from tests.kernels.cases import FLOATS, LAT, LON, MASKS, SPACE, TIME, grid, masked
from tests.kernels.test_engines import assert_same, moved
from xspline.kernels import Block, Group, Layout, accumulate
from xspline.kernels.compiled import contraction
from xspline.kernels.device.cuda import CudaSweeper
from xspline.kernels.engines import choose_engine
from xspline.kernels.passes import sums_of
from xspline.kernels.sweep import CompiledSweeper, Sweep
from xspline.kernels.walk import Walk
from xspline.sums import Sums

COMPILED = pytest.mark.skipif(host_kernels.COMPILER is None, reason="needs a C++ compiler")

SWEPT = {
    "time, lat, lon": (grid(TIME, LAT, LON), (5, 22, 300)),  # more columns than a tile
    "lat, lon, time": (grid(LAT, LON, TIME), (9, 40, 6)),
    "one row a cell": (grid(TIME, LAT, LON), (3, 4, 9)),
    "members first": (grid(-1, TIME, LAT, LON, batch=(0,)), (3, 4, 21, 10)),
    "members last": (grid(TIME, LAT, LON, -1, batch=(3,)), (4, 21, 5, 2)),
    "pixels": (Layout((Group((0,), (TIME,)), Group((), (LAT,)), Group((), (LON,))), (1, 2)), (30, 6, 7)),
    "pooled": (grid(-1, LAT, LON, TIME, pooled=0), (3, 18, 8, 4)),
    "stations behind time": (Layout((Group((1,), (LON, LAT)), Group((0,), (TIME,)))), (14, 40)),
    "curvilinear": (Layout((Group((2, 1), (LAT, LON)), Group((0,), (TIME,)))), (20, 6, 9)),
    "scalar time": (Layout((Group((), (TIME,)), Group((0,), (LAT,)), Group((1,), (LON,)))), (23, 30)),
}


def built(name: str, mask: str = "full", dtype: str = "f8", seed: int = 0) -> tuple[Block, Layout]:
    """A block of one of these grids, its labels unsorted."""
    layout, shape = SWEPT[name]
    rng = np.random.default_rng(seed)
    values = 280.0 + 5.0 * rng.normal(size=shape)
    if dtype != "i2":
        values = masked(values, mask, rng)
    spans = [layout.spans[j] for j in (LAT, LON, TIME)]
    lows, highs = (-30, 0, 0), (30, 360, 10)
    labels = tuple(
        rng.uniform(lo, hi, [shape[axis] for axis in span])
        for lo, hi, span in zip(lows, highs, spans, strict=True)
    )
    return Block(values.astype(dtype), labels), layout


def walk(block: Block, layout: Layout, limit: int = 1 << 17) -> Walk:
    return Walk(block, layout, SPACE, choose_engine(block.values), limit)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", SWEPT)
def test_a_sweep_gives_the_sums_of_the_definition(name: str, mask: str) -> None:
    for dtype, slab in itertools.product(("f8", "f4"), (100, 1 << 17)):
        data, layout = built(name, mask, dtype)
        assert Sweep.of(walk(data, layout))
        swept = accumulate(data, layout, SPACE, slab=slab)
        assert_same(swept, accumulate(data, layout, SPACE, engine="namespace"))


@pytest.mark.slow
@pytest.mark.parametrize("name", SWEPT)
def test_sums_of_a_grid_on_a_device(name: str, device: Device) -> None:
    for mask, dtype in [*zip(MASKS, itertools.cycle(("f4", "f8")), strict=False), ("full", "i2")]:
        data, layout = built(name, mask, dtype)
        there = moved(data, device)
        assert (Sweep.of(walk(there, layout)) is not None) is is_cupy_array(there.values)
        assert_same(accumulate(there, layout, SPACE), accumulate(data, layout, SPACE))
    for slab in (1000, 10_000):
        assert_same(accumulate(there, layout, SPACE, slab=slab), accumulate(data, layout, SPACE))


@pytest.mark.parametrize("dtype", [*FLOATS, "i2"])
def test_any_type_of_values_in_any_order_of_memory(dtype: str) -> None:
    data, layout = built("time, lat, lon", "random", dtype)
    expected = accumulate(data, layout, SPACE, engine="namespace")
    for values in (
        np.asfortranarray(data.values),
        np.repeat(data.values, 2, axis=2)[..., ::2],
        np.broadcast_to(data.values, data.values.shape),
    ):
        assert_same(accumulate(replace(data, values=values), layout, SPACE), expected)
    if hasattr(contraction.sweep, "signatures"):
        assert len(contraction.sweep.signatures) <= 2  # float32 and float64


# The kernels of a GPU


def sweeper(**sizes) -> CudaSweeper:
    return CudaSweeper(namespace, "cpu", host_kernels.compiled, **sizes)


def swept(name: str, mask: str, dtype: str, index: int | None = None, limit: int = 1 << 25, **sizes) -> Sums:
    """Sums by the kernels of a GPU."""
    block, layout = built(name, mask, dtype)
    walked = walk(block, layout, limit)
    index = Sweep.of(walked).index if index is None else index
    return sums_of(walked, Sweep(walked, index, sweeper(**sizes)).result())


@pytest.mark.slow
@COMPILED
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", SWEPT)
def test_kernels_of_a_gpu_give_the_sums_of_the_definition(name: str, mask: str) -> None:
    for dtype in ("f4", "f8"):
        expected = accumulate(*built(name, mask, dtype), SPACE, engine="namespace")
        assert_same(swept(name, mask, dtype), expected)


@pytest.mark.slow
@COMPILED
@pytest.mark.parametrize("name", ["members first", "pixels", "scalar time"])
def test_any_tiles_groups_and_slabs(name: str) -> None:
    block, layout = built(name, "random", "f4")
    expected = accumulate(block, layout, SPACE, engine="namespace")
    axes = enumerate(walk(block, layout).slab_axes)
    along = [i for i, axis in axes if len(axis.axes) == 1 == len(axis.coefficient_axes)]
    for rows, index in itertools.product((1, 3, 7), along):
        sizes = {"held_sums": 2, "tile_rows": (rows, rows)}
        assert_same(swept(name, "random", "f4", index, limit=2000, **sizes), expected)


@COMPILED
def test_more_tiles_than_a_launch_has_blocks() -> None:
    expected = accumulate(*built("lat, lon, time", "random", "f4"), SPACE, engine="namespace")
    assert_same(swept("lat, lon, time", "random", "f4", tile_rows=(1, 1), grid=2), expected)


@COMPILED
@pytest.mark.parametrize("name", ["time, lat, lon", "lat, lon, time"])
def test_host_and_gpu_sweep_lines_alike(name: str) -> None:
    block, layout = built(name, "random", "f4")
    walked = walk(block, layout)
    index = Sweep.of(walked).index
    rows = walked.rows(index, (0, walked.lengths[index]))
    values = block.values.reshape(rows.count, -1)[None, :, :40]
    values = np.ascontiguousarray(values)
    sweepers = (CompiledSweeper(), sweeper())
    host, gpu = (which.sweep(values, 3, 30, rows, 280.0) for which in sweepers)
    np.testing.assert_array_equal(gpu.count, host.count)
    np.testing.assert_allclose(gpu.power, host.power, rtol=1e-13)
    np.testing.assert_allclose(gpu.sums, host.sums, rtol=0, atol=1e-12 * np.abs(host.sums).max())
