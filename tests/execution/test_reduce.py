"""Sums do not depend on where the data are or how they are cut; graphs are small and lazy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from distributed import Client

from tests.sums.cases import partitions
from xspline.execution import Source, evaluate, lazy_sums, sums
from xspline.execution.dask_api import Task
from xspline.spaces import Space
from xspline.sums import Sums

from .cases import GRID, SHAPE, SPACE, Array, Endless, assert_same, chunked, grid, peak_of, positions, values


def summed(source: Source, where: Space = SPACE, **kwargs: Any) -> Sums:
    return sums([source], where, **kwargs)[0]


@pytest.fixture(scope="module")
def pooled() -> dict[str, Sums]:
    return {gaps: summed(grid(values(gaps=gaps))) for gaps in ("none", "static", "any")}


def test_a_full_grid_stays_one_product(pooled: dict[str, Sums]) -> None:
    result = summed(grid(chunked(values(gaps="none"), (7, 5, 5))))
    assert partitions(result.gram) == (((0,), (1,), (2,)),)
    static = summed(grid(chunked(values(gaps="static"), (7, 14, 12))))
    assert partitions(static.gram) == (((0,), (1, 2)),)


def test_one_array_in_two_sources() -> None:
    """Blocks that two sources need are read once and not taken into either."""
    data = chunked(values(), (7, 7, 12))
    heavy = grid(data, weights=(((0, 1, 2), data),))
    first, second = sums([grid(data + 0), heavy], SPACE)
    assert_same(first, summed(grid()), SPACE)
    assert_same(second, summed(grid(weights=(((0, 1, 2), values()),))), SPACE)


@pytest.mark.parametrize(
    "scheduler, workers",
    [("synchronous", 1), pytest.param("threads", 1, marks=pytest.mark.slow), ("threads", 5)],
)
def test_same_bits_whatever_runs_them(scheduler: str, workers: int) -> None:
    sources = [grid(chunked(values(), (4, 5, 6))), grid(Array(values(), (4, 5, 6)))]
    expected = [s.digest() for s in sums(sources, SPACE)]
    with dask.config.set(scheduler=scheduler, num_workers=workers):
        assert [s.digest() for s in sums(sources, SPACE)] == expected


def tasks_of(lazy: Any) -> int:
    (optimised,) = dask.optimize(lazy)
    return sum(isinstance(node, Task) for node in dict(optimised.dask).values())


BIG = (1000, 20, 20)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(lambda: da.ones(BIG, chunks=(10, 2, 2), dtype="f4"), id="plain"),
        pytest.param(
            lambda: da.ones(BIG, chunks=(10, 2, 2), dtype="f4")[::-1] + 1,
            id="sliced and shifted",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_ten_thousand_chunks_take_little_more_tasks(data: Callable[[], da.Array]) -> None:
    array = data()
    assert array.npartitions == 10_000
    assert tasks_of(lazy_sums(grid(array), SPACE)) <= 1.1 * 10_000


def test_ten_thousand_stored_chunks_take_some_tens_of_tasks() -> None:
    source = grid(Endless((10_000, 720, 1440), (1, 720, 1440)))
    assert 24 <= tasks_of(lazy_sums(source, SPACE)) < 100


# --- values


COEFFICIENTS = np.random.default_rng(0).normal(size=SPACE.shape)


def whole(orders: tuple[int, ...] = (0, 0, 0)) -> np.ndarray:
    return evaluate(COEFFICIENTS, positions(SHAPE), GRID, SPACE, orders, SHAPE)


def test_a_slice_evaluates_only_its_blocks() -> None:
    lazy = evaluate(COEFFICIENTS, positions(SHAPE), GRID, SPACE, (0, 0, 0), SHAPE, chunks=(10, 14, 12))[3:5]
    assert tasks_of(lazy) <= 2
    np.testing.assert_allclose(lazy.compute(), whole()[3:5], rtol=1e-13, atol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [False, True])
def test_a_large_target_is_written_in_constant_memory(tmp_path: Path, worker: Client, pairs: bool) -> None:
    """Four times the data need no more memory: some copies of a block."""

    def write(months: int) -> None:
        shape, size = (months, 500, 500), (*SPACE.shape, *SPACE.frame.offsets)
        given = np.random.default_rng(5).normal(size=size) if pairs else COEFFICIENTS
        lazy = evaluate(
            given, positions(shape), GRID, SPACE, (0, 0, 0), shape, pairs=pairs, chunks=(5, 500, 500)
        )
        xr.DataArray(lazy, dims=("t", "lat", "lon"), name="y").to_zarr(
            tmp_path / f"{months}.zarr", consolidated=False
        )

    write(5)
    peaks = [peak_of(worker, lambda months=months: write(months)) for months in (50, 200)]
    assert max(peaks) < 6 * 8 * 5 * 500**2, peaks
