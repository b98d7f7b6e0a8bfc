"""Data that several holders own are read once; each holder's sums are those of its own rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from xspline.execution import HolderCodes, Source, compute, lazy_sums, persist, plan, sums
from xspline.execution.dask_api import Task
from xspline.spaces import Space
from xspline.sums import HolderSums, Sums

from .cases import SHAPE, SPACE, Array, assert_same, chunked, counted_computes, grid, limits, values

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


@pytest.mark.slow
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


@pytest.mark.parametrize("read", [1000, 8 * 2**20])
def test_a_stored_chunk_of_several_holders_is_read_once(read: int) -> None:
    reader = Array(values(), (10, 14, 12))
    (by_holder,) = sums([with_holders(grid(reader), 0, SEASONS)], SPACE, limits=limits(read))
    assert len(by_holder) == 4
    assert sum(np.prod([s.stop - s.start for s in box]) for box in reader.reads) == np.prod(SHAPE)


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


@pytest.mark.slow
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
