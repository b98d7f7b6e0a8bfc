"""Statistics as users hold them: parts, files, refusals."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import xspline as xs
from tests.products import BASES, sst


@pytest.fixture(scope="module")
def holders(product: xr.DataArray) -> list[xs.Statistics]:
    space = product.spline.space(BASES)
    slices = {"west": slice(0, 9), "middle": slice(9, 16), "east": slice(16, None)}
    return [product.isel(lon=s).spline.statistics(space, holder=h) for h, s in slices.items()]


def same_bits(a: xs.Statistics, b: xs.Statistics) -> bool:
    """Return whether totals and coefficients agree bit for bit."""
    if {p.digest for p in a.parts} != {p.digest for p in b.parts}:
        return False
    x, y = a.total("sst"), b.total("sst")
    return x.digest() == y.digest() and np.array_equal(a.solve(0.1).coefficients, b.solve(0.1).coefficients)


def test_addition_is_commutative_and_associative_bit_for_bit(holders: list[xs.Statistics]) -> None:
    a, b, c = holders
    assert same_bits(a + b, b + a)
    assert same_bits((a + b) + c, a + (b + c))
    assert same_bits(sum(holders), xs.merge([c, a, b]))


def test_a_holder_can_be_taken_out_again_bit_for_bit(holders: list[xs.Statistics]) -> None:
    a, b, c = holders
    assert same_bits(a + b - b, a)
    assert same_bits(xs.merge([a, b, c]) - b, a + c)


def test_merged_field_needs_a_target(holders: list[xs.Statistics]) -> None:
    merged = xs.merge(holders).solve(penalty=0.1)
    with pytest.raises(ValueError, match=r"no labels for 'lat' are remembered here; pass at="):
        merged.predict()


def test_subtracting_a_part_that_was_never_added_is_refused(holders: list[xs.Statistics]) -> None:
    a, b, c = holders
    with pytest.raises(ValueError, match=r"part 'east' .* was never added here; the parts are 'west'"):
        a + b - c
    collapsed = (a + b).collapse()
    assert collapsed._collapsed and len(collapsed.parts) == 1
    with pytest.raises(ValueError, match="were collapsed into one part"):
        collapsed - a
    assert (collapsed + c)._collapsed


def test_another_space_is_refused_with_the_line_that_agrees(product: xr.DataArray) -> None:
    west, east = product.isel(lon=slice(0, 12)), product.isel(lon=slice(12, None))
    a, b = west.spline.statistics(BASES, holder="west"), east.spline.statistics(BASES, holder="east")
    with pytest.raises(ValueError, match=r"different spaces.*lon.*177\.5.*180.*domain=\(150") as raised:
        a + b
    agreed = eval(str(raised.value).rpartition("space = ")[2], {"xs": xs})
    again = [part.spline.statistics(agreed, holder=name) for name, part in (("west", west), ("east", east))]
    assert (again[0] + again[1]).space == agreed


def test_other_units_are_refused(product: xr.DataArray, holders: list[xs.Statistics]) -> None:
    kelvin = (
        (product + 273.15)
        .rename("sst")
        .assign_attrs(units="K")
        .spline.statistics(holders[0].space, holder="kelvin")
    )
    with pytest.raises(ValueError, match="'sst' has units 'degC' in one part and 'K' in the other"):
        holders[0] + kelvin


def test_other_batch_labels_are_refused() -> None:
    data = xr.concat([sst(months=12, seed=s).expand_dims(member=[s]) for s in (1, 2)], "member")
    space = data.spline.space(lat=6, lon=8)
    a = data.isel(time=slice(0, 6)).spline.statistics(space, holder="a")
    b = data.isel(time=slice(6, 12)).spline.statistics(space, holder="b")
    with pytest.raises(
        ValueError, match=r"batch dimension 'time' of 'sst' has labels 2000-01.* and 2000-07.* in the other"
    ):
        a + b
    c = data.isel(time=slice(0, 5)).spline.statistics(space, holder="c")
    with pytest.raises(ValueError, match=r"'time': 6.* in one part and .*'time': 5"):
        a + c


def test_another_variable_is_refused(product: xr.DataArray, holders: list[xs.Statistics]) -> None:
    other = product.rename("t2m").spline.statistics(holders[0].space, holder="x")
    with pytest.raises(ValueError, match=r"different variables: \['sst'\] and \['t2m'\]"):
        holders[0] + other
    with pytest.raises(TypeError, match="goes with its own kind only"):
        holders[0] + 1.5


def test_reprs_say_what_is_inside(holders: list[xs.Statistics]) -> None:
    both = holders[0] + holders[1]
    assert "6 x 8 x 4 = 192 coefficients" in repr(both) and "west" in repr(both)
    assert "west" in both._repr_html_()
    field = both.solve(0.1)
    assert "Ridge(0.1)" in repr(field) and "<" in field._repr_html_()
