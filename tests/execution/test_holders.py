"""Data that several holders own are read once; each holder's sums are those of its own rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import dask
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.execution.cases import (
    BATCH,
    LINE,
    OBS,
    PLANE,
    SHAPE,
    SPACE,
    Array,
    assert_same,
    chunked,
    counted_computes,
    grid,
    limits,
    positions,
    values,
)
from xspline.execution import HolderCodes, Source, compute, lazy_sums, persist, plan, sums
from xspline.execution.dask_api import Task
from xspline.kernels import Group, Layout
from xspline.spaces import BSpline, Space
from xspline.sums import HolderSums, Sums

YEARS = np.repeat(np.arange(5), 6)
SEASONS = np.arange(SHAPE[0]) % 4


def with_holders(source: Source, axis: int, codes: np.ndarray) -> Source:
    return replace(source, holders=HolderCodes(axis, codes, int(codes.max(initial=-1)) + 1))


def selected(source: Source, axis: int, rows: np.ndarray) -> Source:
    """The rows of one holder, selected before anything is summed; everything in memory."""

    def taken(array: Any, axes: tuple[int, ...]) -> np.ndarray:
        whole = array.array if isinstance(array, Array) else np.asarray(array)
        return np.take(whole, rows, axes.index(axis)) if axis in axes else whole

    own = replace(source, holders=None)
    arrays = [taken(array, axes) for axes, array in own.auxiliary]
    return own.with_arrays(taken(own.values, tuple(range(len(own.shape)))), arrays)


def assert_own(by_holder: HolderSums, source: Source, where: Space) -> None:
    """The sums of every holder are those of the rows that carry its code."""
    axis, codes = source.holders.axis, np.asarray(source.holders.codes)
    assert sorted(by_holder) == list(range(source.holders.count))
    for code, own in by_holder.items():
        (expected,) = sums([selected(source, axis, np.flatnonzero(codes == code))], where)
        assert_same(own, expected, where, 1e-13)
        assert (own.tally.missing, own.tally.outside) == (expected.tally.missing, expected.tally.outside)


FORMS: dict[str, Callable[..., Any]] = {"memory": lambda y, chunks: y, "dask": chunked, "reader": Array}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "axis, codes",
    [(0, YEARS), (0, SEASONS), (1, np.arange(14)[::-1] // 4), (2, np.zeros(12, dtype=int))],
    ids=["years", "seasons", "along the second axis", "one holder"],
)
def test_the_sums_of_a_holder_are_those_of_its_rows_selected(form: str, axis: int, codes: np.ndarray) -> None:
    source = with_holders(grid(FORMS[form](values(), (7, 5, 6))), axis, codes)
    (by_holder,) = sums([source], SPACE)
    assert_own(by_holder, source, SPACE)


@settings(max_examples=5)
@given(st.data())
def test_any_labels_in_any_chunks(data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, 2), label="axis")
    seed, count = data.draw(st.integers(0, 99), label="seed"), data.draw(st.integers(1, 6), label="holders")
    codes = np.unique(np.random.default_rng(seed).integers(0, count, SHAPE[axis]), return_inverse=True)[1]
    chunks = tuple(data.draw(st.integers(3, n), label="chunk") for n in SHAPE)
    source = with_holders(grid(chunked(values(), chunks)), axis, codes)
    assert_own(sums([source], SPACE)[0], source, SPACE)


@pytest.mark.parametrize("read", [1000, 8 * 2**20])
def test_a_stored_chunk_of_several_holders_is_read_once(read: int) -> None:
    reader = Array(values(), (10, 14, 12))
    (by_holder,) = sums([with_holders(grid(reader), 0, SEASONS)], SPACE, limits=limits(read))
    assert len(by_holder) == 4
    assert sum(np.prod([s.stop - s.start for s in box]) for box in reader.reads) == np.prod(SHAPE)


def test_a_block_of_several_holders_is_computed_once() -> None:
    calls: list[tuple[int, ...]] = []

    def counted(block: np.ndarray) -> np.ndarray:
        calls.append(block.shape)
        return block

    lazy = chunked(values(), (10, 14, 12)).map_blocks(counted, dtype=float, meta=np.empty((0, 0, 0)))
    source = with_holders(grid(lazy), 0, SEASONS)
    with dask.config.set(scheduler="synchronous"):
        sums([source], SPACE)
        assert len(calls) == 3
        lazy_holders = lazy_sums(source, SPACE)
        compute([lazy_holders[code] for code in range(4)])
    assert len(calls) == 6


@pytest.mark.parametrize("read", [1, pytest.param(8 * 2**20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("form", FORMS)
def test_batch_members_of_every_holder(form: str, read: int) -> None:
    data = FORMS[form](values(), (7, 5, 4))
    source = with_holders(Source(data, positions(SHAPE)[:1], (), BATCH), 0, YEARS)
    (by_holder,) = sums([source], LINE, limits=limits(read))
    assert {own.batch for own in by_holder.values()} == {SHAPE[1:]}
    assert_own(by_holder, source, LINE)


@pytest.mark.parametrize("small", [0, pytest.param(2**20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("form", FORMS)
def test_scattered_observations(form: str, small: int) -> None:
    rng = np.random.default_rng(3)
    y, x, w = rng.normal(size=500), rng.random((2, 500)), rng.random(500)
    data = FORMS[form](y, (120,))
    source = Source(data, tuple(x), (((0,), w),), OBS)
    source = with_holders(source, 0, rng.integers(0, 7, 500))
    assert_own(sums([source], PLANE, limits=limits(whole_bytes=small))[0], source, PLANE)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("axis", [0, *(pytest.param(axis, marks=pytest.mark.slow) for axis in (1, 2))])
def test_curvilinear_grids_and_weights(form: str, axis: int) -> None:
    rng = np.random.default_rng(4)
    layout = Layout((Group((1, 2), (0, 1)), Group((0,), (2,))))
    where = Space({**{n: b for n, (_, b) in PLANE.axes.items()}, "t": BSpline(5, domain=(0.0, 1.0))})
    y, (lat, lon), t = rng.normal(size=(10, 12, 14)), rng.random((2, 12, 14)), np.linspace(0, 1, 10)
    w = rng.random((10, 12))
    source = Source(FORMS[form](y, (4, 5, 6)), (lat, lon, t), (((0, 1), w),), layout)
    source = with_holders(source, axis, np.arange(y.shape[axis]) % 3)
    assert_own(sums([source], where)[0], source, where)


@pytest.mark.parametrize("form", FORMS)
def test_tallies_point_into_the_whole(form: str) -> None:
    y, w = values(gaps="none"), np.ones(SHAPE[0])
    y[17, 9, 3], w[22] = np.inf, -1.0
    source = grid(FORMS[form](y, (7, 5, 4)), weights=(((0,), w),))
    (by_holder,) = sums([with_holders(source, 0, SEASONS)], SPACE)
    assert {code: own.tally.infinity for code, own in by_holder.items() if own.tally.infinity} == {
        1: (17, 9, 3)
    }
    bad = {code: own.tally.bad_weight for code, own in by_holder.items() if own.tally.bad_weight}
    assert bad == {2: (22, 0, 0)}


@pytest.mark.parametrize(
    "scheduler, workers",
    [
        pytest.param("synchronous", 1, marks=pytest.mark.slow),
        pytest.param("threads", 1, marks=pytest.mark.slow),
        ("threads", 3),
    ],
)
def test_same_bits_whatever_runs_them(scheduler: str, workers: int) -> None:
    forms = chunked(values(), (10, 5, 12)), Array(values(), (10, 5, 12))
    sources = [with_holders(grid(data), 0, SEASONS) for data in forms]

    def digests() -> list[str]:
        return [own.digest() for holder_sums in sums(sources, SPACE) for own in holder_sums.values()]

    expected = digests()
    with dask.config.set(scheduler=scheduler, num_workers=workers):
        assert digests() == expected


def test_lazy_sums_of_holders_are_computed_together() -> None:
    source = with_holders(grid(Array(values(), (5, 14, 12))), 0, YEARS)
    with counted_computes(allowed=0):
        holder_sums = lazy_sums(source, SPACE)
        lazy = [holder_sums[code] for code in range(5)]
    with counted_computes(allowed=1):
        by_holder = compute(lazy)
    kept = persist([*lazy, "as it is"])
    assert kept.pop() == "as it is"
    assert [s.digest() for s in compute(kept)] == [s.digest() for s in by_holder]
    assert_own(HolderSums(dict(enumerate(by_holder))), source, SPACE)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", [(0, 14, 12), (30, 0, 12)])
def test_no_data_have_zero_sums_for_every_holder(form: str, shape: tuple[int, ...]) -> None:
    codes = np.arange(shape[0]) % 3
    data = FORMS[form](np.ones(shape), shape if form == "dask" else None)
    (by_holder,) = sums(
        [with_holders(replace(grid(), values=data, coordinates=positions(shape)), 0, codes)], SPACE
    )
    assert sorted(by_holder) == sorted(set(codes))
    assert all(own.count == 0 and not own.gram.terms for own in by_holder.values())


@pytest.mark.parametrize("form", ["dask", "reader"])
def test_a_plan_counts_holders(form: str) -> None:
    sizes = limits(5000)
    plain = grid(FORMS[form](values(), (7, 5, 6)))
    several = with_holders(plain, 0, SEASONS)
    (by_holder,) = sums([several], SPACE, limits=sizes)
    alone, plan_of = (plan(source, SPACE, limits=sizes) for source in (plain, several))
    assert (alone.holders, plan_of.holders) == (1, 4)
    assert "4, one for each holder" in repr(plan_of)
    assert "for each holder" not in repr(alone)
    row = next(row for row in plan_of.rows if row.mask == "any")
    assert by_holder.nbytes <= row.statistics_bytes
    assert alone.memory_bytes < plan_of.memory_bytes
    tasks = dict(lazy_sums(several, SPACE, limits=sizes).dask)
    assert plan_of.tasks == 1 + sum(isinstance(node, Task) for node in tasks.values())


def test_sums_with_and_without_holders_take_one_compute() -> None:
    data = chunked(values(), (10, 14, 12))
    sources = [grid(data), with_holders(grid(data), 0, YEARS), with_holders(grid(), 0, YEARS)]
    with counted_computes(allowed=1):
        whole, lazy, eager = sums(sources, SPACE)
    assert isinstance(whole, Sums)
    for holder_sums in (lazy, eager):
        assert_same(Sums.merge(list(holder_sums.values()), SPACE.frame), whole, SPACE)
