"""The kernels of a GPU, run by the host's compiler: the sums of the definition."""

from __future__ import annotations

import numpy as np
import pytest
from array_api_compat import numpy as namespace

from tests import host_kernels
from tests.kernels.cases import MASKS, SPACE
from tests.kernels.test_engines import assert_same
from tests.kernels.test_sweep import SWEPT, built, walk
from xspline.kernels import accumulate, cuda
from xspline.kernels.contract import choose_engine
from xspline.kernels.lines import Definition, Loops, Sorted
from xspline.kernels.passes import _sums
from xspline.kernels.sweep import Sweep
from xspline.kernels.walk import DEVICE_SLAB
from xspline.sums import Sums

pytestmark = pytest.mark.skipif(host_kernels.COMPILER is None, reason="needs a C++ compiler")


def swept(name: str, mask: str, dtype: str, index: int | None = None, limit: int = DEVICE_SLAB) -> Sums:
    """Sums by the kernels of a GPU."""
    block, layout = built(name, mask, dtype)
    found = walk(block, layout, limit)
    index = Sweep.of(found).index if index is None else index
    out = Sweep(found, index, cuda.Cuda(namespace, "cpu", host_kernels.compiled)).found()
    return _sums(found, out)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", SWEPT)
def test_kernels_of_a_gpu_are_the_twin_of_the_definition(name: str, mask: str) -> None:
    for dtype in ("f4", "f8"):
        expected = accumulate(*built(name, mask, dtype), SPACE, engine="namespace")
        assert_same(swept(name, mask, dtype), expected)


@pytest.mark.parametrize("name", ["members first", "pixels", "scalar time"])
def test_any_tiles_groups_and_pieces(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    block, layout = built(name, "random", "f4")
    expected = accumulate(block, layout, SPACE, engine="namespace")
    parts = walk(block, layout).parts
    along = [i for i, part in enumerate(parts) if len(part.axes) == 1 == len(part.coefficient_axes)]
    monkeypatch.setattr(cuda, "TOGETHER", 2)
    for rows in (1, 3, 7):
        monkeypatch.setattr(cuda, "TILE", (rows, rows))
        for index in along:
            assert_same(swept(name, "random", "f4", index, limit=2000), expected)


def test_more_tiles_than_a_launch_has_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "TILE", (1, 1))
    monkeypatch.setattr(cuda, "GRID", 2)
    expected = accumulate(*built("lat, lon, time", "random", "f4"), SPACE, engine="namespace")
    assert_same(swept("lat, lon, time", "random", "f4"), expected)


def test_few_numbers_are_read_ahead_of_a_knot_in_each_tile() -> None:
    block, layout = built("lat, lon, time", "random", "f4")
    rows = Sweep.of(walk(block, layout)).rows
    tiling = cuda.Tiling.of(Sorted.of(rows), 10, pairs=False)
    assert tiling.local
    np.testing.assert_array_equal(np.unique(tiling.owner), np.arange(tiling.extent))


@pytest.mark.parametrize("name", ["time, lat, lon", "lat, lon, time"])
def test_lines_are_digested_alike(name: str) -> None:
    block, layout = built(name, "random", "f4")
    found = walk(block, layout)
    index = Sweep.of(found).index
    lines = Sorted.of(found.rows(index, (0, found.lengths[index])))
    values = block.values.reshape(lines.order.size, -1)[None, :, :40]
    values = np.ascontiguousarray(values)
    sweepers = (
        Loops(),
        Definition(choose_engine(values, "namespace"), namespace, "cpu"),
        cuda.Cuda(namespace, "cpu", host_kernels.compiled),
    )
    expected, *others = (sweeper.sweep(values, 3, 30, lines, 280.0) for sweeper in sweepers)
    for other in others:
        np.testing.assert_array_equal(other.count, expected.count)
        np.testing.assert_array_equal(other.digest, expected.digest)
        np.testing.assert_allclose(other.power, expected.power, rtol=1e-13)
        np.testing.assert_allclose(
            other.sums, expected.sums, rtol=0, atol=1e-12 * np.abs(expected.sums).max()
        )
