"""The kernels of a GPU, run by the host's compiler: the sums of the definition."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from array_api_compat import numpy as namespace

from tests import host_kernels
from tests.kernels.cases import MASKS, SPACE
from tests.kernels.test_engines import assert_same
from tests.kernels.test_sweep import SWEPT, built, walk
from xspline.kernels import accumulate
from xspline.kernels.device.cuda import CudaSweeper
from xspline.kernels.passes import sums_of
from xspline.kernels.sweep import CompiledSweeper, Sweep
from xspline.sums import Sums

pytestmark = pytest.mark.skipif(host_kernels.COMPILER is None, reason="needs a C++ compiler")


def sweeper(**sizes) -> CudaSweeper:
    return CudaSweeper(namespace, "cpu", host_kernels.compiled, **sizes)


def swept(name: str, mask: str, dtype: str, index: int | None = None, limit: int = 1 << 25, **sizes) -> Sums:
    """Sums by the kernels of a GPU."""
    block, layout = built(name, mask, dtype)
    walked = walk(block, layout, limit)
    index = Sweep.of(walked).index if index is None else index
    return sums_of(walked, Sweep(walked, index, sweeper(**sizes)).result())


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", SWEPT)
def test_kernels_of_a_gpu_give_the_sums_of_the_definition(name: str, mask: str) -> None:
    for dtype in ("f4", "f8"):
        expected = accumulate(*built(name, mask, dtype), SPACE, engine="namespace")
        assert_same(swept(name, mask, dtype), expected)


@pytest.mark.parametrize("name", ["members first", "pixels", "scalar time"])
def test_any_tiles_groups_and_slabs(name: str) -> None:
    block, layout = built(name, "random", "f4")
    expected = accumulate(block, layout, SPACE, engine="namespace")
    axes = enumerate(walk(block, layout).slab_axes)
    along = [i for i, axis in axes if len(axis.axes) == 1 == len(axis.coefficient_axes)]
    for rows, index in itertools.product((1, 3, 7), along):
        sizes = {"held_sums": 2, "tile_rows": (rows, rows)}
        assert_same(swept(name, "random", "f4", index, limit=2000, **sizes), expected)


def test_more_tiles_than_a_launch_has_blocks() -> None:
    expected = accumulate(*built("lat, lon, time", "random", "f4"), SPACE, engine="namespace")
    assert_same(swept("lat, lon, time", "random", "f4", tile_rows=(1, 1), grid=2), expected)


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
