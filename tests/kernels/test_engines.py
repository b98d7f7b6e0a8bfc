"""The two faces of the kernels: compiled loops and the array namespace give the same numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests import reference
from tests.devices import Device
from tests.kernels.cases import CASES, SPACE, block
from tests.sums.cases import partitions
from xspline.kernels import Block, Group, Layout, accumulate
from xspline.kernels.engines import engine_of_size
from xspline.spaces import BSpline, Space
from xspline.sums import Sums


def moved(built: Block, device: Device, *, coordinates: bool = False) -> Block:
    """The same block, with values and weights on a device; perhaps coordinates as well."""
    weights = tuple((axes, device.put(array)) for axes, array in built.weights)
    labels = tuple(map(device.put, built.coordinates)) if coordinates else built.coordinates
    return replace(built, values=device.put(built.values), coordinates=labels, weights=weights)


def assert_same(a: Sums, b: Sums) -> None:
    """Equal to rounding, in numbers and structure."""
    assert a.window == b.window
    assert a.tally == b.tally
    assert partitions(a.gram) == partitions(b.gram)
    assert a.reference == pytest.approx(b.reference)
    for name in ("moment", "power", "weight"):
        reference.close(getattr(a, name), getattr(b, name))
    np.testing.assert_array_equal(a.count, b.count)
    for mine, theirs in zip(*(g.gram.terms[0] if g.gram.terms else () for g in (a, b)), strict=True):
        assert mine.window == theirs.window
        reference.close(mine.pairs, theirs.pairs)


@pytest.mark.parametrize("mask", ["static", "random"])
@pytest.mark.parametrize("name", CASES)
def test_three_namespaces_give_the_same_sums(name: str, mask: str, device: Device) -> None:
    built, layout = block(name, mask, "first axis")
    compiled_sums = accumulate(built, layout, SPACE, slab=300)
    assert_same(accumulate(built, layout, SPACE, engine="namespace", slab=300), compiled_sums)
    for coordinates in (False, True):
        there = moved(built, device, coordinates=coordinates)
        assert_same(accumulate(there, layout, SPACE, slab=300), compiled_sums)


def test_tallies_of_a_device(device: Device) -> None:
    built, layout = block("grid", "random")
    values = built.values.copy()
    values[3, 4, 5] = np.inf
    lat, lon, t = (x.copy() for x in built.coordinates)
    lat[0], lat[1] = 99.0, np.nan
    weight = np.array([1.0, 2.0, -1.0, 0.0, 1.0, 1.0])
    built = replace(built, values=values, coordinates=(lat, lon, t), weights=(((0,), weight),))
    sums = accumulate(replace(built, values=device.put(values)), layout, SPACE)
    assert_same(sums, accumulate(built, layout, SPACE))
    assert sums.tally.infinity == (3, 4, 5)
    assert sums.tally.bad_weight == (2, 0, 1)  # at (2, 0, 0) is no value


@pytest.mark.parametrize(
    ("functions", "count", "engine"),
    [(8, 1000, "namespace"), (8, 10_000_000, None), (20_000, 100_000, None)],
    ids=["few", "many values", "many cells"],
)
def test_the_whole_problem_decides(functions: int, count: int, engine: str | None) -> None:
    space = Space({"x": BSpline(functions, domain=(0.0, 1.0))})
    values, layout = np.zeros(2), Layout((Group((0,), (0,)),))  # a block of it may be small
    assert engine_of_size(values, layout, space, (count,)) == engine
