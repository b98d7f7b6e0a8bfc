"""Values out: lazy where asked, each block evaluated on its own, equal to the whole."""

from __future__ import annotations

from pathlib import Path

import dask
import numpy as np
import pytest
import xarray as xr
from distributed import Client

from tests.execution.cases import (
    GRID,
    SHAPE,
    positions,
    space,
)
from tests.execution.memory import peak_of
from xspline.execution import evaluate
from xspline.execution.dask_api import Task

SPACE = space()
COEFFICIENTS = np.random.default_rng(0).normal(size=SPACE.shape)


def whole(orders: tuple[int, ...] = (0, 0, 0)) -> np.ndarray:
    return evaluate(COEFFICIENTS, positions(SHAPE), GRID, SPACE, orders, SHAPE)


def pairs_of(batch: tuple[int, ...] = ()) -> np.ndarray:
    return np.random.default_rng(5).normal(size=(*SPACE.shape, *SPACE.frame.offsets, *batch))


def test_a_slice_evaluates_only_its_blocks() -> None:
    lazy = evaluate(COEFFICIENTS, positions(SHAPE), GRID, SPACE, (0, 0, 0), SHAPE, chunks=(10, 14, 12))[3:5]
    (optimised,) = dask.optimize(lazy)
    assert sum(isinstance(node, Task) for node in dict(optimised.dask).values()) <= 2
    np.testing.assert_allclose(lazy.compute(), whole()[3:5], rtol=1e-13, atol=1e-13)


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
