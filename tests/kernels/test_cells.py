"""Sums that go from cell to cell: the same numbers as row by row, wherever they are chosen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests import reference
from tests.devices import Device
from tests.kernels.cases import pairwise
from tests.kernels.test_accumulate import check
from tests.kernels.test_engines import assert_same, moved
from xspline.kernels import Block, Group, Layout, accumulate
from xspline.kernels.engines import ArrayApiEngine, CompiledEngine, Engine, choose_engine
from xspline.kernels.points.cells import CellSizes
from xspline.kernels.walk import Walk
from xspline.spaces import BSpline, Fourier, Polynomial, Space

UNEVEN = (0.0, 0.0, 0.0, 0.0, 0.1, 0.35, 0.4, 1.0, 1.0, 1.0, 1.0)
REPEATED = (0.0, 0.0, 0.0, 0.3, 0.5, 0.5, 0.5, 0.8, 1.0, 1.0, 1.0)
UNIT = (0.0, 1.0)

SPACES = {
    "three cubics": Space({name: BSpline(5, domain=UNIT) for name in "abc"}),
    "two cubics": Space({name: BSpline(7, domain=UNIT) for name in "ab"}),
    "four lines": Space({name: BSpline(3, 1, domain=UNIT) for name in "abcd"}),
    "long runs": Space({"a": BSpline(3, 1, domain=UNIT), "b": BSpline(43, 2, domain=UNIT)}),
    "long circle": Space({"a": BSpline(3, 1, domain=UNIT), "b": BSpline(40, domain=UNIT, period=1.0)}),
    "uneven": Space({"a": BSpline(degree=3, knots=UNEVEN), "b": BSpline(5, domain=UNIT)}),
    "repeated": Space({"a": BSpline(5, domain=UNIT), "b": BSpline(degree=2, knots=REPEATED)}),
    "circle": Space({"a": BSpline(8, domain=UNIT, period=1.0), "b": BSpline(5, 2, domain=UNIT)}),
    "uneven circle": Space(
        {
            "a": BSpline(5, domain=UNIT),
            "b": BSpline(knots=(0.0, 0.1, 0.2, 0.4, 0.5, 0.7, 0.8, 1.0), period=1.0),
        }
    ),
    "waves last": Space(
        {"a": BSpline(5, domain=UNIT), "b": BSpline(4, domain=UNIT), "c": Fourier(1, period=0.7)}
    ),
    "union first": Space(
        {"a": Polynomial(1, domain=UNIT) + Fourier(1, period=0.3), "b": BSpline(6, domain=UNIT)}
    ),
    "short circle": Space({"a": BSpline(4, domain=UNIT, period=1.0), "b": BSpline(5, domain=UNIT)}),
    "all global": Space({"a": Polynomial(2, domain=UNIT), "b": Fourier(1, period=1.0)}),
    **{
        f"degrees {p} and {5 - p}": Space(
            {"a": BSpline(6, p, domain=UNIT), "b": BSpline(8, 5 - p, domain=UNIT)}
        )
        for p in range(6)
    },
}
WHOLE = {d: Layout((Group((0,), tuple(range(d))),)) for d in (2, 3, 4)}


def observations(space: Space, count: int = 800, seed: int = 0) -> tuple[Block, Layout]:
    """Scattered values with gaps, far from zero, several in each cell."""
    rng, ndim = np.random.default_rng(seed), len(space.shape)
    values = 280.0 + rng.normal(size=count)
    values[rng.random(count) < 0.1] = np.nan
    return Block(values, tuple(rng.uniform(*UNIT, count) for _ in range(ndim))), WHOLE[ndim]


def goes_by_cells(built: Block, layout: Layout, space: Space, engine: Engine | None = None) -> bool:
    return Walk(built, layout, space, choose_engine(built.values, engine), 10**6).cells(0) is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", SPACES)
def test_every_kind_of_basis(name: str, device: Device) -> None:
    """Every second one with weights."""
    built, layout = observations(SPACES[name])
    if list(SPACES).index(name) % 2:
        rng = np.random.default_rng(1)
        weight = np.where(rng.random(800) < 0.1, 0.0, rng.uniform(0.5, 2.0, 800))
        built = replace(built, weights=(((0,), weight),))
    assert goes_by_cells(built, layout, SPACES[name])
    sums = check(built, layout, SPACES[name])
    assert_same(accumulate(built, layout, SPACES[name], engine="namespace"), sums)
    assert goes_by_cells(moved(built, device), layout, SPACES[name])
    for coordinates in (False, True):
        there = moved(built, device, coordinates=coordinates)
        assert_same(accumulate(there, layout, SPACES[name]), sums)


@pytest.mark.slow
@pytest.mark.parametrize("name", SPACES)
def test_few_rows_in_a_cell(name: str, device: Device) -> None:
    built, layout = observations(SPACES[name], 20)
    by_rows = check(built, layout, SPACES[name])
    sizes = CellSizes(rows_per_cell=0, cells_per_row=1000)
    engines = CompiledEngine(sizes=sizes), ArrayApiEngine(device.xp, device.device, sizes=sizes)
    for block, engine in zip((built, moved(built, device)), engines, strict=True):
        assert goes_by_cells(block, layout, SPACES[name], engine)
        assert_same(accumulate(block, layout, SPACES[name], engine=engine), by_rows)


@pytest.mark.parametrize("name", ["three cubics", "uneven", "repeated", "circle", "uneven circle"])
def test_points_on_knots_ends_and_beyond(name: str, device: Device) -> None:
    space, rng = SPACES[name], np.random.default_rng(0)
    special = [0.0, 0.1, 0.3, 0.35, 0.4, 0.5, 0.7, 0.8, 1.0, np.nextafter(0.0, -1.0), np.nextafter(1.0, 2.0)]
    special += [-0.1, 1.1, 3.5, np.nan, np.inf]
    special += [i / n for n in (2, 4, 5, 8) for i in range(n)]
    built, layout = observations(space, 2000)
    built = replace(built, coordinates=tuple(rng.choice(special, 2000) for _ in space.shape))
    assert goes_by_cells(built, layout, space)
    sums = accumulate(built, layout, space)
    assert_same(sums, accumulate(built, layout, space, engine="namespace"))
    for coordinates in (False, True):
        assert_same(sums, accumulate(moved(built, device, coordinates=coordinates), layout, space))
    assert sums.tally.missing > 0


@pytest.mark.slow
@pytest.mark.parametrize("slab", [7, 100])
def test_slabs_that_cut_cells(slab: int, device: Device) -> None:
    space = SPACES["uneven circle"]
    sizes = CellSizes(slab_entries=slab, tile_rows=(4, 8), device_entries=20 * slab)
    built, layout = observations(space)
    sums = check(built, layout, space, engine=CompiledEngine(sizes=sizes))
    tiles = ArrayApiEngine(device.xp, device.device, sizes=sizes)
    assert_same(accumulate(moved(built, device), layout, space, engine=tiles), sums)


@pytest.mark.parametrize("name", ["three cubics", "long circle", "waves last", "four lines"])
@pytest.mark.parametrize("waiting", [0, 3000])
def test_sums_of_cells_that_do_not_wait_for_further_rows(name: str, waiting: int) -> None:
    """Rows are sorted as a whole, or in bands where too many members keep the sums from waiting."""
    sizes = CellSizes(slab_entries=100, waiting_entries=waiting, run_cells=3)
    built, layout = observations(SPACES[name])
    check(built, layout, SPACES[name], engine=CompiledEngine(sizes=sizes))


# Layouts

PLACE = SPACES["two cubics"]
FIELD = Space({"a": BSpline(5, domain=UNIT), "b": BSpline(5, domain=UNIT), "t": Polynomial(1, domain=UNIT)})
LAYOUTS = {
    "image": (PLACE, Layout((Group((0, 1), (0, 1)),)), (20, 30)),
    "image, turned": (PLACE, Layout((Group((1, 0), (1, 0)),)), (20, 30)),
    "members first": (PLACE, Layout((Group((1,), (0, 1)),), (0,)), (3, 300)),
    "members around": (PLACE, Layout((Group((1,), (1, 0)),), (2, 0)), (2, 300, 3)),
    "too many members": (PLACE, Layout((Group((0,), (0, 1)),), (1,)), (200, 17)),
    "stations × time": (FIELD, Layout((Group((0,), (0, 1)), Group((1,), (2,)))), (200, 4)),
    "curvilinear": (FIELD, Layout((Group((1, 2), (1, 0)), Group((0,), (2,)))), (4, 10, 20)),
    "with members": (FIELD, Layout((Group((0,), (0, 1)), Group((2,), (2,))), (1,)), (100, 2, 3)),
    "pooled": (PLACE, Layout((Group((0,), (0, 1)), Group((1,), ()))), (200, 3)),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "weight", "mask"), pairwise(LAYOUTS, ("none", "first", "all"), ("full", "rows", "random"))
)
def test_every_layout(name: str, weight: str, mask: str, device: Device) -> None:
    space, layout, shape = LAYOUTS[name]
    rng = np.random.default_rng(0)
    values = 280.0 + rng.normal(size=shape)
    if mask == "rows":
        axes = layout.groups[0].data_axes
        missing = rng.random([n if axis in axes else 1 for axis, n in enumerate(shape)]) < 0.3
        values[np.broadcast_to(missing, shape)] = np.nan
    elif mask == "random":
        values[rng.random(shape) < 0.3] = np.nan
    lengths = [[shape[axis] for axis in layout.spans[j]] for j in range(len(space.shape))]
    spans = {"none": [], "first": [(0,)], "all": [tuple(range(len(shape)))[::-1], (len(shape) - 1,)]}[weight]
    weights = [(axes, rng.uniform(0.5, 2.0, [shape[axis] for axis in axes])) for axes in spans]
    built = Block(values, tuple(rng.uniform(*UNIT, n) for n in lengths), tuple(weights))
    sums = check(built, layout, space)
    assert_same(accumulate(built, layout, space, engine="namespace"), sums)
    assert_same(accumulate(moved(built, device), layout, space), sums)


def test_bad_weights_stay_out(device: Device) -> None:
    built, layout = observations(PLACE)
    weight = np.ones(800)
    weight[[3, 5, 8]] = np.nan, -1.0, np.inf
    sums = accumulate(replace(built, weights=(((0,), weight),)), layout, PLACE)
    assert sums.tally.bad_weight == (3,)
    assert_same(accumulate(moved(replace(built, weights=(((0,), weight),)), device), layout, PLACE), sums)
    excluded = replace(built, weights=(((0,), np.where(weight == 1.0, 1.0, 0.0)),))
    reference.assert_equal(sums, reference.sums(excluded, layout, PLACE, float(sums.reference)), PLACE)
