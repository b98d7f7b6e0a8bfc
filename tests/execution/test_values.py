"""Values out: lazy where asked, each block evaluated on its own, equal to the whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import xarray as xr
from distributed import Client

from tests.execution.cases import (
    GRID,
    SHAPE,
    chunked,
    counted_computes,
    positions,
    space,
)
from tests.execution.memory import peak_of
from tests.execution.test_device import moved
from xspline.execution import evaluate
from xspline.execution.dask_api import Task
from xspline.kernels import Group, Layout
from xspline.spaces import BSpline, Space

__all__ = ["moved"]

SPACE = space()
COEFFICIENTS = np.random.default_rng(0).normal(size=SPACE.shape)


def whole(orders: tuple[int, ...] = (0, 0, 0)) -> np.ndarray:
    return evaluate(COEFFICIENTS, positions(SHAPE), GRID, SPACE, orders, SHAPE)


@pytest.mark.parametrize("chunks", [5, (7, 5, -1), ((10, 20), (14,), (6, 6)), "auto"])
@pytest.mark.parametrize("orders", [(0, 0, 0), (1, 0, 2)])
def test_blocks_give_the_whole(chunks: Any, orders: tuple[int, ...]) -> None:
    with counted_computes(allowed=0):
        lazy = evaluate(COEFFICIENTS, positions(SHAPE), GRID, SPACE, orders, SHAPE, chunks=chunks)
    assert lazy.shape == SHAPE
    assert lazy.dtype == np.float64
    np.testing.assert_allclose(lazy.compute(), whole(orders), rtol=1e-13, atol=1e-13)


def pairs_of(batch: tuple[int, ...] = ()) -> np.ndarray:
    return np.random.default_rng(5).normal(size=(*SPACE.shape, *SPACE.frame.offsets, *batch))


def test_a_slice_evaluates_only_its_blocks() -> None:
    lazy = evaluate(COEFFICIENTS, positions(SHAPE), GRID, SPACE, (0, 0, 0), SHAPE, chunks=(10, 14, 12))[3:5]
    (optimised,) = dask.optimize(lazy)
    assert sum(isinstance(node, Task) for node in dict(optimised.dask).values()) <= 2
    np.testing.assert_allclose(lazy.compute(), whole()[3:5], rtol=1e-13, atol=1e-13)


def test_chunked_coordinates_make_the_result_lazy() -> None:
    layout = Layout((Group((1, 2), (0, 1)), Group((0,), (2,))))
    where = Space(
        {
            "lat": BSpline(7, domain=(0.0, 1.0)),
            "lon": BSpline(6, domain=(0.0, 1.0)),
            "t": BSpline(5, domain=(0.0, 1.0)),
        }
    )
    rng = np.random.default_rng(1)
    (lat, lon), t, c = rng.random((2, 20, 30)), np.linspace(0, 1, 10), rng.normal(size=where.shape)
    expected = evaluate(c, (lat, lon, t), layout, where, (0, 0, 0), (10, 20, 30))
    given = (chunked(lat, (5, 30)), chunked(lon, (20, 7)), t)
    with counted_computes(allowed=0):
        lazy = evaluate(c, given, layout, where, (0, 0, 0), (10, 20, 30), chunks=(3, 8, 30))
        unasked = evaluate(c, (chunked(lat, (5, 10)), lon, t), layout, where, (0, 0, 0), (10, 20, 30))
    np.testing.assert_allclose(lazy.compute(), expected, rtol=1e-12)
    assert unasked.chunks == ((10,), (5, 5, 5, 5), (10, 10, 10))
    np.testing.assert_allclose(unasked.compute(), expected, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [False, True])
def test_a_large_target_is_written_in_constant_memory(tmp_path: Path, worker: Client, pairs: bool) -> None:
    """Four times the data need no more memory: some copies of a block."""

    def write(months: int) -> None:
        shape, given = (months, 500, 500), pairs_of() if pairs else COEFFICIENTS
        lazy = evaluate(
            given, positions(shape), GRID, SPACE, (0, 0, 0), shape, pairs=pairs, chunks=(5, 500, 500)
        )
        xr.DataArray(lazy, dims=("t", "lat", "lon"), name="y").to_zarr(
            tmp_path / f"{months}.zarr", consolidated=False
        )

    write(5)
    peaks = [peak_of(worker, lambda months=months: write(months)) for months in (50, 200)]
    assert max(peaks) < 6 * 8 * 5 * 500**2, peaks
