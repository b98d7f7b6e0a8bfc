"""Coarser problems are the fine one seen by fewer functions."""

from __future__ import annotations

import numpy as np
import pytest

from xspline.kernels import Block, Group, Layout, accumulate
from xspline.solve.multigrid.spaces import coarser
from xspline.spaces import BSpline, Fourier, Polynomial, Space

SPACES = {
    "clamped": Space({"x": BSpline(11, domain=(0, 3)), "y": BSpline(9, degree=2, domain=(-1, 1))}),
    "odd": Space({"x": BSpline(12, domain=(0, 3)), "y": BSpline(8, domain=(-1, 1))}),
    "circle": Space({"x": BSpline(16, period=3.0), "y": Polynomial(1, domain=(-1, 1))}),
    "odd circle": Space({"x": BSpline(17, period=3.0), "y": BSpline(9, domain=(-1, 1))}),
    "times": Space(
        {
            "x": BSpline(12, domain=("2000-01-01", "2003-01-01")),
            "y": Fourier(1, "year", domain=("2000", "2003")),
        }
    ),
}


def scattered(space: Space, n: int = 400) -> Block:
    rng = np.random.default_rng(1)
    ends = [f.domain or f.ends if hasattr(f, "ends") else (f.domain or (-1, 1)) for f in space.features]
    points = tuple(rng.uniform(lo, hi, n) for lo, hi in ends)
    return Block(rng.normal(3.0, 1.0, n), points, (((0,), rng.uniform(0.5, 2, n)),), (0,))


@pytest.mark.parametrize("name", SPACES)
def test_the_sums_are_those_of_the_data_in_the_coarse_space(name: str) -> None:
    space = SPACES[name]
    block, layout = scattered(space), Layout((Group((0,), (0, 1)),), ())
    projected = coarser(accumulate(block, layout, space), space)
    assert projected is not None
    sums, smaller = projected
    direct = accumulate(block, layout, smaller).recentred(sums.reference, smaller.frame)
    assert smaller.size < space.size
    np.testing.assert_allclose(
        sums.gram.to_dense(smaller.frame), direct.gram.to_dense(smaller.frame), atol=1e-10
    )
    np.testing.assert_allclose(sums.moment, direct.full_moment(smaller.frame), atol=1e-10)


def test_a_space_without_breakpoints_to_spare_has_no_coarser_one() -> None:
    space = Space({"x": BSpline(4, domain=(0, 1)), "t": Polynomial(2, domain=(0, 1))})
    block, layout = scattered(space), Layout((Group((0,), (0, 1)),), ())
    assert coarser(accumulate(block, layout, space), space) is None


def test_only_the_named_coordinates_are_coarsened() -> None:
    space = SPACES["clamped"]
    block, layout = scattered(space), Layout((Group((0,), (0, 1)),), ())
    projected = coarser(accumulate(block, layout, space), space, ["y"])
    assert projected is not None
    sums, smaller = projected
    assert smaller.shape == (11, 6) and smaller.axes["x"] == space.axes["x"]
    direct = accumulate(block, layout, smaller).recentred(sums.reference, smaller.frame)
    np.testing.assert_allclose(
        sums.gram.to_dense(smaller.frame), direct.gram.to_dense(smaller.frame), atol=1e-10
    )
