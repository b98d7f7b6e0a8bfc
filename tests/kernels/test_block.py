"""Slabs: they tile the block, stay small, and keep the rows of every group a range."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.cases import CASES, LAT, LON, SPACE, TIME, grid
from xspline.kernels import Block, accumulate, evaluate
from xspline.kernels.walk import slab_axes_of, slab_boxes


@given(name=st.sampled_from(sorted(CASES)), limit=st.integers(1, 700), rows_limit=st.integers(1, 100))
def test_slabs_tile_the_block(name: str, limit: int, rows_limit: int) -> None:
    case = CASES[name]
    slab_axes = slab_axes_of(case.layout)
    seen = np.zeros(case.shape, dtype=int)
    for box in slab_boxes(case.shape, slab_axes, limit, rows_limit):
        seen[box.slices] += 1
        assert seen[box.slices].size <= limit
        for axis, (first, count) in zip(slab_axes, box.rows, strict=True):
            assert axis.is_batch or count <= rows_limit
            lengths = [case.shape[a] for a in axis.axes]
            rows = np.arange(math.prod(lengths)).reshape(lengths)[tuple(box.slices[a] for a in axis.axes)]
            np.testing.assert_array_equal(rows.ravel(), np.arange(first, first + count))
    assert (seen == 1).all()


def test_memory_does_not_grow_with_the_block() -> None:
    """A float64 copy of this block would take 32 MiB, its mask 4."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(512, 64, 128)).astype("f4")
    values[rng.random(values.shape) < 0.3] = np.nan
    coordinates = (np.linspace(-30, 30, 64), np.linspace(0, 360, 128), np.linspace(0, 10, 512))
    built, layout = Block(values, coordinates), grid(TIME, LAT, LON)
    accumulate(built, layout, SPACE)
    evaluate(rng.normal(size=SPACE.shape), coordinates, layout, SPACE)  # compiled before what is measured
    tracemalloc.start()
    accumulate(built, layout, SPACE)
    summing = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    evaluate(rng.normal(size=SPACE.shape), coordinates, layout, SPACE)
    evaluating = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert summing < 10 * 2**20
    assert evaluating < values.size * 8 + 5 * 2**20
