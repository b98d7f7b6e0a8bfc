"""Sums of a block against rows of Φ, in every layout."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import reference
from tests.kernels.cases import CASES, EVENTS, LAT, LON, MASKS, SPACE, TIME, WEIGHTS, block, grid, variants
from xspline.kernels import Block, Layout, accumulate, evaluate
from xspline.kernels.walk import slab_axes_of, slab_boxes
from xspline.spaces import BSpline, Space
from xspline.sums import Sums


def check(built: Block, layout: Layout, space: Space = SPACE, rtol: float = 1e-12, **options) -> Sums:
    """Accumulate, and compare with the dense reference about the same value."""
    sums = accumulate(built, layout, space, **options)
    centre = float(np.max(sums.reference, initial=-np.inf))
    reference.assert_equal(sums, reference.sums(built, layout, space, centre), space, rtol)
    return sums


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_sums_are_those_of_the_rows(name: str) -> None:
    for mask, weight, dtype in variants(name):
        built, layout = block(name, mask, weight, dtype)
        assert built.values.dtype == np.dtype(dtype)
        sums = check(built, layout)
        assert sums.tally.missing == np.count_nonzero(np.isnan(built.values))
        assert sums.tally.outside == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_sums_of_unions_in_cells_are_those_of_the_rows(name: str) -> None:
    for mask, weight, dtype in variants(name)[::3]:
        check(*block(name, mask, weight, dtype), EVENTS)


@pytest.mark.slow
@settings(max_examples=15)
@given(
    name=st.sampled_from(sorted(CASES)),
    mask=st.sampled_from(MASKS),
    weight=st.sampled_from(WEIGHTS),
    slab=st.integers(20, 400),
    seed=st.integers(0, 2**31),
)
def test_any_slab(name: str, mask: str, weight: str, slab: int, seed: int) -> None:
    built, layout = block(name, mask, weight, seed=seed)
    check(built, layout, slab=slab)


@pytest.mark.parametrize(
    "change",
    [lambda a: np.asfortranarray(a), lambda a: np.repeat(a, 2, axis=0)[::2], lambda a: a[::-1][::-1]],
    ids=["fortran", "strided", "reversed"],
)
def test_any_order_of_memory(change) -> None:
    built, layout = block("grid", "random")
    changed = accumulate(replace(built, values=change(built.values)), layout, SPACE)
    reference.assert_equal(changed, reference.sums(built, layout, SPACE, float(changed.reference)), SPACE)


def test_read_only_input_is_left_alone() -> None:
    built, layout = block("grid", "random", "all")
    for array in (built.values, built.weights[0][1], *built.coordinates):
        array.setflags(write=False)
    check(built, layout)


# The reference


def test_reference_is_the_first_finite_value_in_float32() -> None:
    built, layout = block("grid")
    values = built.values.copy()
    values[0, 0, :3] = np.nan
    sums = accumulate(replace(built, values=values), layout, SPACE)
    assert sums.reference == np.float32(values[0, 0, 3])


# Windows


@pytest.mark.parametrize(
    ("lon", "window"),
    [
        (np.array([355.0, 358.0, 2.0, 5.0]), (35, 5)),
        (np.array([1.0, 2.0]), (0, 4)),
        (np.array([355.0, 356.0]), (35, 4)),
        (np.arange(0.0, 360.0, 5.0), (0, 36)),
    ],
    ids=["across the seam", "behind it", "before it", "circle"],
)
def test_periodic_windows(lon: np.ndarray, window: tuple[int, int]) -> None:
    space = Space({"lon": BSpline(36, domain=(0.0, 360.0), period=360.0), "y": BSpline(4, domain=(0.0, 1.0))})
    rng = np.random.default_rng(0)
    values, y = rng.normal(size=(lon.size, 6)), rng.uniform(0, 1, 6)
    values[rng.random(values.shape) < 0.2] = np.nan
    for slab in (6, 100):
        assert check(Block(values, (lon, y)), grid(0, 1), space, slab=slab).window[0] == window


# Tally


def test_tally_of_labels_outside_and_missing() -> None:
    built, layout = block("grid")
    lat, lon, t = (x.copy() for x in built.coordinates)
    lat[2], lat[3] = 31.0, np.nan
    values = built.values.copy()
    values[0, 2, :], values[1, 5, 4] = np.nan, np.nan
    sums = check(replace(built, values=values, coordinates=(lat, lon, t)), layout)
    assert sums.tally.missing == 12 + 1 + 6 * 12 and sums.tally.unlabelled == 6 * 12
    assert sums.tally.outside == 5 * 12
    assert sums.count == 6 * 8 * 12 - 13 - 6 * 12 - 5 * 12


@pytest.mark.parametrize("slab", [50, 10**6])
@pytest.mark.parametrize("name", ["grid", "curvilinear, time between", "batch between, reversed"])
def test_first_infinity_in_order_of_the_data(name: str, slab: int) -> None:
    built, layout = block(name, "random")
    values = built.values.copy()
    places = [tuple(n - 1 for n in values.shape), tuple(n // 2 for n in values.shape), (0,) * values.ndim]
    for place, sign in zip(places, (1, -1, 1), strict=True):
        values[place] = sign * np.inf
        start = tuple(range(10, 10 + values.ndim))
        sums = accumulate(replace(built, values=values, start=start), layout, SPACE, slab=slab)
        assert sums.tally.infinity == tuple(a + b for a, b in zip(start, place, strict=True))
        assert sums.tally.missing == np.count_nonzero(~np.isfinite(values))
    check(replace(built, values=values), layout, slab=slab)  # with all three infinities left out


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
def test_first_bad_weight(bad: float) -> None:
    built, layout = block("grid")
    on_longitude, everywhere = np.ones(12), np.ones((6, 8, 12))
    on_longitude[7] = bad
    everywhere[2, 0, 0] = bad
    weights = (((2,), on_longitude), ((0, 1, 2), everywhere))
    sums = accumulate(replace(built, weights=weights, start=(100, 0, 0)), layout, SPACE)
    assert sums.tally.bad_weight == (100, 0, 7)
    excluded = (
        ((2,), np.where(on_longitude == 1, 1.0, 0.0)),
        ((0, 1, 2), np.where(everywhere == 1, 1.0, 0.0)),
    )
    expected = reference.sums(replace(built, weights=excluded), layout, SPACE, float(sums.reference))
    reference.assert_equal(sums, expected, SPACE)


def test_a_weight_of_missing_values_is_not_looked_at_and_stays_out_of_the_factors() -> None:
    built, layout = block("grid")
    values = built.values.copy()
    values[:, 3] = np.nan
    weight = np.ones(8)
    weight[3] = np.nan
    sums = accumulate(replace(built, values=values, weights=(((1,), weight),)), layout, SPACE)
    assert sums.tally.bad_weight is None
    assert all(np.isfinite(factor.pairs).all() for term in sums.gram.terms for factor in term)


# Slabs: they tile the block, stay small, and keep the rows of every group a range


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
