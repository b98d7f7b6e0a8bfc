"""Least squares against NumPy's, quantiles, roots, stencils and units on their own."""

from __future__ import annotations

import numpy as np
import pytest

from xspline.pde.results import root
from xspline.pde.text.unit_powers import Mismatch, Unit


def test_odd_roots_keep_their_sign_and_even_ones_need_a_positive_power() -> None:
    values = np.array([8.0, -8.0])
    np.testing.assert_allclose(root(values, 3), [2, -2])
    np.testing.assert_allclose(root(values, -1), [0.125, -0.125])
    np.testing.assert_allclose(root(values, -3), [0.5, -0.5])
    np.testing.assert_allclose(root(values * 2, 2), [4, np.nan])
    np.testing.assert_allclose(root(values, 0.5), [64, np.nan])


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("m2 s-1", "m2 s-1"),
        ("s-1 m**2", "m2 s-1"),
        ("kg/m^3", "kg m-3"),
        ("kg m-2/s", "kg m-2 s-1"),
        ("degC", "K"),
        ("degrees_north", "degree"),
        ("W.m-2", "W m-2"),
        ("1", "1"),
        ("m m-1", "1"),
    ],
)
def test_units_are_read(text: str, written: str) -> None:
    unit = Unit.parse(text, "a")
    assert str(unit) == written and unit.is_known


@pytest.mark.parametrize("text", ["", "1e-3 m", "days since 2000-01-01", "m (depth)"])
def test_units_that_are_not_known_may_cancel(text: str) -> None:
    unit = Unit.parse(text, "a")
    assert not unit.is_known
    assert str(unit * Unit.parse("m", "b") / unit) == "m"


def test_units_of_sums_and_powers() -> None:
    m, s, number = Unit.parse("m", "a"), Unit.parse("s", "b"), Unit(number=2.0)
    unknown = Unit.parse("", "c")
    assert (m + number, number + m, m - m, m + unknown, unknown + m) == (m, m, m, m, m)
    assert str(m**number) == "m2" and str((m / s).to(0.5)) == "m0.5 s-0.5" and str(-m) == "m"
    assert not (m**unknown).is_known and number.to(0.5) == number
    with pytest.raises(Mismatch, match="m and s are added"):
        m + s
