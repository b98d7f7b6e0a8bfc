"""Many small blocks are few tasks: each makes a group of them, one after another, with the same sums."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from tests.execution.test_reduce import summed, tasks_of
from tests.sums.cases import partitions
from xspline import BSpline, Space
from xspline.execution import LIMITS, Source, lazy_sums, plan
from xspline.kernels import Group, Layout

from .cases import SHAPE, SPACE, Flaky, assert_same, chunked, counted_computes, grid, limits, values


def leaves_of(source: Source, where: Any = SPACE) -> Counter[str]:
    """Return the number of tasks by the first words of their keys."""
    keys = [key[0] if isinstance(key, tuple) else key for key in dict(lazy_sums(source, where).dask)]
    return Counter("-".join(str(key).split("-")[:2]) for key in keys)


def made_by(
    read: Callable[[tuple[slice, ...]], np.ndarray],
    chunks: tuple[int, ...],
    shape: tuple[int, ...] = SHAPE,
    dtype: str = "f8",
) -> da.Array:
    """Return an array of whose blocks each is one read."""

    def make(block_info: Any = None) -> np.ndarray:
        return read(tuple(slice(*place) for place in block_info[None]["array-location"]))

    return da.map_blocks(make, chunks=da.core.normalize_chunks(chunks, shape), dtype=dtype)


@pytest.mark.parametrize("gaps", ["none", "static", "any"])
@pytest.mark.parametrize(
    "chunks", [(1, 7, 6), *(pytest.param(c, marks=pytest.mark.slow) for c in [(2, 3, 4), (3, 2, 12)])]
)
def test_groups_give_the_sums_of_the_whole(chunks: tuple[int, ...], gaps: str) -> None:
    data = values(gaps=gaps)
    result = summed(grid(chunked(data, chunks)))
    assert_same(result, summed(grid(data)), SPACE)
    if gaps == "none":
        assert partitions(result.gram) == (((0,), (1,), (2,)),)


def test_each_block_is_made_once_by_some_tens_of_tasks() -> None:
    made: Counter[tuple[int, ...]] = Counter()

    def read(box: tuple[slice, ...]) -> np.ndarray:
        made[tuple(s.start for s in box)] += 1
        return values()[box]

    source = grid(made_by(read, (1, 7, 6)))
    tasks = leaves_of(source)
    assert 24 <= tasks["xspline-blocks"] <= LIMITS.regions
    assert tasks["xspline-block"] == 0
    assert plan(source, SPACE).tasks == tasks_of(lazy_sums(source, SPACE)) + 1  # handed over
    with dask.config.set(scheduler="synchronous"), counted_computes(allowed=1):
        assert_same(summed(source), summed(grid()), SPACE)
    assert set(made.values()) == {1}
    assert len(made) == 120


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_labels_of_points_are_read_once_by_the_task_that_sums_them(dtype: str) -> None:
    rng, made = np.random.default_rng(7), Counter[tuple[int, ...]]()
    y, *labels = rng.random((3, 400)).astype(dtype)

    def read(box: tuple[slice, ...]) -> np.ndarray:
        made[tuple(s.start for s in box)] += 1
        return labels[0][box]

    def source(*arrays: Any) -> Source:
        return Source(arrays[0], arrays[1:], (), Layout((Group((0,), (0, 1)),)), "u")

    parts = source(chunked(y, (99,)), made_by(read, (99,), (400,), dtype), chunked(labels[1], (99,)))
    plane = Space({"x": BSpline(5, domain=(0, 1)), "y": BSpline(5, domain=(0, 1))})
    assert set(leaves_of(parts, plane)) == {"xspline-recipe", "xspline-block", "xspline-merge"}
    assert_same(summed(parts, plane), summed(source(y, *(x.astype(float) for x in labels)), plane), plane)
    assert set(made.values()) == {1}


@pytest.mark.slow
@pytest.mark.usefixtures("client")
def test_blocks_that_workers_hold_stay_where_they_are() -> None:
    expected = summed(grid())
    held = chunked(values(), (2, 7, 6)).persist()
    for array in (held, held + 0):
        assert array.npartitions > LIMITS.regions
        assert leaves_of(grid(array))["xspline-blocks"] == 0
        assert_same(summed(grid(array)), expected, SPACE)
    with dask.config.set(scheduler="threads"):
        here = chunked(values(), (2, 7, 6)).persist()
        assert_same(summed(grid(here)), expected, SPACE)


@pytest.mark.slow
def test_a_read_of_a_group_is_tried_again_and_named(tmp_path: Path) -> None:
    expected = summed(grid(chunked(values(), (1, 7, 6)))).digest()
    for times, directory in ((1, tmp_path / "passing"), (3, tmp_path / "failing")):
        directory.mkdir()
        flaky = Flaky(values(), directory, times, ConnectionResetError)
        source = grid(made_by(flaky.read, (1, 7, 6)))
        if times == 1:
            assert summed(source, limits=limits()).digest() == expected
            assert len(list(directory.iterdir())) == 240
            continue
        with pytest.raises(ConnectionResetError, match="failed") as caught:
            summed(source, limits=limits())
        assert any(
            re.match(r"while reading sst\[\d+:\d+, (0:7|7:14), (0:6|6:12)\]", n)
            for n in caught.value.__notes__
        )
