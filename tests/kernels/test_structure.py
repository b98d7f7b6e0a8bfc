"""What masks and weights separate into, and the keys by which blocks find each other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.kernels.cases import CASES, LAT, LON, SPACE, TIME, block, grid
from tests.sums.cases import partitions
from xspline.kernels import Block, Group, Layout, accumulate
from xspline.sums import Gram

Partition = tuple[tuple[int, ...], ...]


def partition(built: Block, layout: Layout) -> Partition:
    (sums,) = partitions(accumulate(built, layout, SPACE).gram)
    return tuple(sums)


SEPARATE = ((LAT,), (LON,), (TIME,))


def test_full_grid_is_a_product_of_single_axes() -> None:
    assert partition(*block("grid")) == SEPARATE
    assert accumulate(*block("grid"), SPACE).gram.nbytes < 1000


def test_a_static_mask_separates_from_time() -> None:
    rng = np.random.default_rng(0)
    land = np.broadcast_to(rng.random((8, 12)) < 0.6, (6, 8, 12))
    built, layout = block("grid")
    masked = replace(built, values=np.where(land, built.values, np.nan))
    assert partition(masked, layout) == ((LAT, LON), (TIME,))


def test_static_mask_of_a_snapshot() -> None:
    """One time step tells nothing about time: its factor is still its own, and agrees from step to step."""
    land = np.random.default_rng(0).random((1, 8, 12)) < 0.6
    built, layout = block("grid")
    steps = [
        Block(
            np.where(land, built.values[i : i + 1], np.nan),
            (*built.coordinates[:2], built.coordinates[2][[i]]),
        )
        for i in range(6)
    ]
    grams = [accumulate(step, layout, SPACE).gram for step in steps]
    assert {partitions(gram) for gram in grams} == {(((LAT, LON), (TIME,)),)}
    merged = Gram.merge(grams, SPACE.frame)
    assert partitions(merged) == (((LAT, LON), (TIME,)),)
    whole = accumulate(replace(built, values=np.where(land, built.values, np.nan)), layout, SPACE).gram
    np.testing.assert_allclose(merged.to_dense(SPACE.frame), whole.to_dense(SPACE.frame), atol=1e-14)


def test_stations_and_curvilinear_grids_separate() -> None:
    assert partition(*block("stations × time")) == ((LAT, LON), (TIME,))
    assert partition(*block("curvilinear")) == ((LAT, LON), (TIME,))
    assert partition(*block("scalar time")) == SEPARATE
    assert partition(*block("observations")) == ((LAT, LON, TIME),)


def test_groups_separate_in_any_combination() -> None:
    """Two pairs that do not separate inside: no single group separates, the pairs do."""
    rng = np.random.default_rng(0)
    built, layout = block("batch first")
    ensemble, land = rng.random((3, 5, 1, 1)) < 0.6, rng.random((1, 1, 8, 9)) < 0.6
    sums = accumulate(replace(built, values=np.where(ensemble & land, built.values, np.nan)), layout, SPACE)
    assert partitions(sums.gram) == (((LAT, LON), (TIME,)),)
    assert [factor.batch for factor in sums.gram.terms[0]] == [(1,), (3,)]


# Weights


@pytest.mark.parametrize(
    ("axes", "expected"),
    [
        ((1,), SEPARATE),
        ((0, 2), ((LAT,), (LON, TIME))),
        ((2, 0), ((LAT,), (LON, TIME))),
        ((0, 1, 2), ((LAT, LON, TIME),)),
    ],
)
def test_weights_join_what_they_span(axes: tuple[int, ...], expected: Partition) -> None:
    built, layout = block("grid")
    weight = np.random.default_rng(0).uniform(1, 2, [built.values.shape[axis] for axis in axes])
    assert partition(replace(built, weights=((axes, weight),)), layout) == expected


# Batch and pooled dimensions


def test_per_pixel_batch_with_land() -> None:
    layout = Layout((Group((0,), (LAT,)), Group((), (LON, TIME))), (1, 2))
    rng = np.random.default_rng(0)
    values, land = rng.normal(size=(9, 4, 5)), rng.random((4, 5)) < 0.5
    coordinates = (np.linspace(-30, 30, 9), np.array(5.0), np.array(1.0))
    sums = accumulate(Block(np.where(land, values, np.nan), coordinates), layout, SPACE)
    (term,) = sums.gram.terms
    assert [factor.axes for factor in term] == [(LAT,), (LON, TIME), ()]
    assert [factor.batch for factor in term] == [(1, 1), (1, 1), (4, 5)]
    np.testing.assert_array_equal(term[-1].pairs, land)
    np.testing.assert_array_equal(sums.count, 9 * land)


def test_pooled_dimension_is_a_multiplicity() -> None:
    gram = accumulate(*block("pooled last"), SPACE).gram
    assert partitions(gram) == ((*SEPARATE, ()),)
    assert gram.terms[0][-1].pairs == 2.0


# Keys


def keys(built: Block, layout: Layout) -> dict[tuple[int, ...], int]:
    (term,) = accumulate(built, layout, SPACE).gram.terms
    return {factor.axes: factor.key for factor in term}


def test_keys_tell_coordinates_masks_and_weights_apart() -> None:
    built, layout = block("grid", "static")
    lat, lon, t = built.coordinates
    base = keys(built, layout)
    assert keys(replace(built, values=built.values + 1.0), layout) == base
    other_time = keys(replace(built, coordinates=(lat, lon, t + 0.1)), layout)
    assert other_time[LAT, LON] == base[LAT, LON]
    assert other_time[(TIME,)] != base[(TIME,)]
    other_mask = keys(*block("grid", "static", seed=1))
    assert other_mask[LAT, LON] != base[LAT, LON]
    weighted = keys(replace(built, weights=(((1,), np.linspace(1, 2, 8)),)), layout)
    assert weighted[LAT, LON] != base[LAT, LON]
    assert weighted[(TIME,)] == base[(TIME,)]


def test_keys_do_not_depend_on_the_order_of_dimensions() -> None:
    built, layout = block("grid", "static")
    turned = replace(built, values=built.values.transpose(2, 0, 1))
    assert keys(turned, grid(LON, TIME, LAT)) == keys(built, layout)


@pytest.mark.parametrize("name", CASES)
def test_equal_blocks_have_equal_keys(name: str) -> None:
    built, layout = block(name, "random")
    grams = [accumulate(built, layout, SPACE, slab=slab).gram for slab in (64, 10**6)]
    assert partitions(grams[0]) == partitions(grams[1])
    if len(grams[0].terms) and len(grams[0].terms[0]) > 1:
        assert [f.key for f in grams[0].terms[0]] == [f.key for f in grams[1].terms[0]]
