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
    Array,
    chunked,
    counted_computes,
    grid,
    limits,
    positions,
    space,
    values,
)
from tests.execution.memory import peak_of
from tests.execution.test_device import moved
from xspline.execution import compute, deferred, evaluate, lazy_sums
from xspline.execution.dask_api import Task
from xspline.kernels import Group, Layout
from xspline.kernels import evaluate as evaluate_values
from xspline.spaces import BSpline, Space
from xspline.sums import Sums

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


@pytest.mark.parametrize("chunks", [5, (7, 5, -1), "auto"])
@pytest.mark.parametrize("orders", [(0, 0, 0), (1, 0, 2)])
def test_blocks_of_forms_give_the_whole(chunks: Any, orders: tuple[int, ...]) -> None:
    given = (pairs_of(), positions(SHAPE), GRID, SPACE, orders, SHAPE)
    with counted_computes(allowed=0):
        lazy = evaluate(*given, pairs=True, chunks=chunks)
        expected = evaluate(*given, pairs=True)
    assert (lazy.shape, lazy.dtype) == (SHAPE, np.float64)
    assert isinstance(expected, np.ndarray)
    np.testing.assert_array_equal(expected, evaluate_values(*given[:-1], pairs=True))
    np.testing.assert_allclose(lazy.compute(), expected, rtol=0, atol=1e-13 * np.abs(expected).max())


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


@pytest.mark.parametrize("large", [False, True])
def test_values_at_scattered_points(large: bool) -> None:
    sizes = limits(whole_bytes=0) if large else limits()
    layout = Layout((Group((0,), (0, 1, 2)),))
    x = tuple(np.random.default_rng(2).random((3, 100)))
    expected = evaluate(COEFFICIENTS, x, layout, SPACE, (0, 0, 0), (100,))
    lazy = evaluate(COEFFICIENTS, x, layout, SPACE, (0, 0, 0), (100,), chunks=(33,), limits=sizes)
    np.testing.assert_allclose(lazy.compute(), expected, rtol=1e-12)


@pytest.mark.parametrize("extent", [1, 14])
def test_batch_members_are_cut_with_their_block(extent: int) -> None:
    line = Space({"t": BSpline(6, domain=(0.0, 1.0))})
    layout = Layout((Group((0,), (0,)),), (1, 2))
    c = np.random.default_rng(3).normal(size=(6, extent, 12))
    shape = (30, 14, 12)
    full = np.broadcast_to(c, (6, 14, 12))
    expected = evaluate(np.ascontiguousarray(full), positions(shape)[:1], layout, line, (0,), shape)
    lazy = evaluate(c, positions(shape)[:1], layout, line, (0,), shape, chunks=(11, 5, 5))
    np.testing.assert_allclose(lazy.compute(), expected, rtol=1e-12)


def test_scalar_and_empty_targets() -> None:
    layout = Layout((Group((), (0,)), Group((), (1,)), Group((), (2,))))
    point = tuple(np.asarray(0.3) for _ in range(3))
    expected = evaluate(COEFFICIENTS, point, layout, SPACE, (0, 0, 0), ())
    lazy = evaluate(COEFFICIENTS, point, layout, SPACE, (0, 0, 0), (), chunks=())
    assert lazy.compute() == pytest.approx(float(expected))
    nothing = (np.empty(0), *positions(SHAPE)[1:])
    assert evaluate(COEFFICIENTS, nothing, GRID, SPACE, (0, 0, 0), (0, 14, 12)).shape == (0, 14, 12)
    empty = evaluate(COEFFICIENTS, nothing, GRID, SPACE, (0, 0, 0), (0, 14, 12), chunks=4)
    assert empty.compute().shape == (0, 14, 12)


def test_lazy_coefficients_give_the_same_values() -> None:
    lazy = evaluate(chunked(COEFFICIENTS, 4), positions(SHAPE), GRID, SPACE, (0, 0, 0), SHAPE)
    np.testing.assert_allclose(lazy.compute(), whole(), rtol=1e-13, atol=1e-13)


def total(*parts: Sums) -> np.ndarray:
    return Sums.merge(parts, SPACE.frame).full_moment(SPACE.frame)


def test_deferred_waits_for_its_parts() -> None:
    reader = Array(values(), (5, 14, 12))
    parts = [lazy_sums(grid(chunked(values(), 6)), SPACE), lazy_sums(grid(reader), SPACE)]
    with counted_computes(allowed=0):
        moment = deferred(total, [*parts, Sums.zero(SPACE.frame)], SPACE.shape)
        field = evaluate(moment, positions(SHAPE), GRID, SPACE, (0, 0, 0), SHAPE, chunks=(10, 14, 12))
    assert not reader.reads
    assert moment.npartitions == 1
    with counted_computes(allowed=1):
        field_values = field.compute()
    expected = total(*compute(parts), Sums.zero(SPACE.frame))
    np.testing.assert_array_equal(moment.compute(), expected)
    np.testing.assert_allclose(
        field_values, evaluate(expected, positions(SHAPE), GRID, SPACE, (0, 0, 0), SHAPE), rtol=1e-12
    )


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
