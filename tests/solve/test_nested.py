"""A space that lies in a finer one sees the data through the sums of the finer one."""

from __future__ import annotations

import numpy as np
import pytest

from tests.solve.test_coarse import scattered
from xspline.kernels import Group, Layout, accumulate
from xspline.solve.multigrid.nested import restricted
from xspline.spaces import Basis, BSpline, Fourier, Polynomial, Space

YEARS = ("2000-01-01", "2003-01-01")
SEASONS = Fourier(1, "year", domain=YEARS) + Polynomial(1, domain=YEARS)


def events(size: int) -> Basis:
    return SEASONS + BSpline(size, domain=YEARS)


LAYOUT = Layout((Group((0,), (0, 1)),), ())
CASES: dict[str, tuple[dict[str, Basis], dict[str, Basis]]] = {
    "a third and all": (
        {"x": BSpline(15, domain=(0, 3)), "y": BSpline(9, domain=(-1, 1))},
        {"x": BSpline(7, domain=(0, 3)), "y": BSpline(9, domain=(-1, 1))},
    ),
    "one cell": (
        {"x": BSpline(15, domain=(0, 3)), "y": BSpline(8, degree=2, domain=(-1, 1))},
        {"x": BSpline(4, domain=(0, 3)), "y": BSpline(5, degree=2, domain=(-1, 1))},
    ),
    "circle": (
        {"x": BSpline(24, period=3.0), "y": Polynomial(1, domain=(-1, 1))},
        {"x": BSpline(8, period=3.0), "y": Polynomial(1, domain=(-1, 1))},
    ),
    "events in cells": (
        {"x": BSpline(6, domain=(0, 3)), "t": events(33)},
        {"x": BSpline(6, domain=(0, 3)), "t": events(18)},
    ),
    "few events": (
        {"x": BSpline(6, domain=(0, 3)), "t": events(33)},
        {"x": BSpline(4, domain=(0, 3)), "t": events(4)},
    ),
    "without events": (
        {"x": BSpline(6, domain=(0, 3)), "t": events(33)},
        {"x": BSpline(6, domain=(0, 3)), "t": SEASONS},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_sums_are_those_of_the_data_in_the_smaller_space(name: str) -> None:
    fine, coarse = map(Space, CASES[name])
    block = scattered(fine)
    sums = restricted(accumulate(block, LAYOUT, fine), fine, coarse)
    direct = accumulate(block, LAYOUT, coarse).recentred(sums.reference, coarse.frame)
    scale = np.abs(direct.moment).max()
    np.testing.assert_allclose(sums.moment, direct.full_moment(coarse.frame), atol=1e-12 * scale)
    dense, wanted = (s.gram.to_dense(coarse.frame) for s in (sums, direct))
    np.testing.assert_allclose(dense, wanted, atol=1e-12 * np.abs(wanted).max())
    assert sums.count == direct.count and sums.power == pytest.approx(float(direct.power), rel=1e-12)


def test_what_does_not_lie_in_the_finer_space_is_refused() -> None:
    fine = Space({"x": BSpline(15, domain=(0, 3)), "t": SEASONS})
    sums = accumulate(scattered(fine), LAYOUT, fine)
    other = Space({"x": BSpline(8, domain=(0, 3)), "t": SEASONS})
    with pytest.raises(
        ValueError, match="x: the 5 cells of the coarse B-spline are not made of the 12 fine ones"
    ):
        restricted(sums, fine, other)
    other = Space({"x": BSpline(15, domain=(0, 3)), "t": BSpline(9, domain=YEARS)})
    with pytest.raises(
        ValueError, match="t: of the 9 coarse functions some do not lie among the 4 fine ones"
    ):
        restricted(sums, fine, other)
