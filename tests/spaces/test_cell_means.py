"""Means over cells are integrals over them, exact to rounding, on all bases; sums of them are those of dense rows."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from tests.reference import gauss
from xspline.kernels import Block, Group, Layout, accumulate
from xspline.spaces import Axis, Basis, BSpline, Fourier, PiecewiseLinear, Polynomial, Space, Step
from xspline.spaces.means import CellSpace, as_cells, neighbours
from xspline.sums import Sums

DENSE = Layout((Group((0,), (0,)),))
BASES = {
    "bspline": BSpline(17, domain=(0, 10)),
    "degree 0": BSpline(9, degree=0, domain=(0, 10)),
    "degree 5": BSpline(15, degree=5, domain=(0, 10)),
    "uneven": BSpline(knots=(0, 0, 0, 0, 0.5, 1, 3, 3, 4, 7.5, 10, 10, 10, 10)),
    "circle": BSpline(24, period=10),
    "short circle": BSpline(4, period=10),
    "fourier": Fourier(3, period=4.0),
    "polynomial": Polynomial(4, domain=(0, 10)),
    "union": Polynomial(1, domain=(0, 10)) + Fourier(2, period=1.5),
    "events": Polynomial(1, domain=(0, 10)) + Fourier(1, period=1.5) + BSpline(40, domain=(0, 10)),
    "corners": PiecewiseLinear((2.0, 6.5), domain=(0, 10)) + Fourier(1, period=3.0) + Step(4.2),
}
RNG = np.random.default_rng(0)
LOWER = np.sort(RNG.uniform(0, 8, 60))
UPPER = LOWER + RNG.uniform(0.01, 1.9, 60)


def space_of(basis: Basis, name: str = "x") -> Space:
    return Space({name: basis}, axes={name: Axis(role="latitude" if name == "lat" else "")})


def over_cells(space: Space, cells: np.ndarray) -> CellSpace:
    near = {name: neighbours(f, cells) for name, f in zip(space.names, space.features, strict=True)}
    return CellSpace(space.coupling(near), near)


def integrated(space: Space, lower: np.ndarray, upper: np.ndarray, area: bool = False) -> np.ndarray:
    """Means by a quadrature of many pieces, cut at all knots and corners."""
    features, out = space.features[0], []
    cuts = np.concatenate([np.linspace(0, 10, 241), [4.2, 6.5, 0.5, 7.5], np.linspace(0, 10, 38)])
    cuts = np.unique(np.concatenate([cuts, *(getattr(t, "edges", []) for t in (features,))]))
    for lo, hi in zip(lower, upper, strict=True):
        x, weights = gauss(np.concatenate([[lo], cuts[(cuts > lo) & (cuts < hi)], [hi]]), 12)
        weights = weights * (np.cos(np.deg2rad(x)) if area else 1.0)
        out.append(weights @ features.design(x) / weights.sum())
    return np.array(out)


@pytest.mark.slow
@pytest.mark.parametrize("kind", BASES)
def test_means_are_integrals(kind: str) -> None:
    space, cells = space_of(BASES[kind]), as_cells(LOWER, UPPER)
    rows = over_cells(space, cells).features[0].design(cells)
    np.testing.assert_allclose(rows, integrated(space, LOWER, UPPER), atol=1e-13)


@pytest.mark.parametrize("kind", ["bspline", "fourier", "events"])
def test_means_over_latitude_are_by_area(kind: str) -> None:
    basis = BASES[kind].with_domain((0.0, 10.0)) if kind != "fourier" else BASES[kind]
    space, cells = space_of(basis, "lat"), as_cells(LOWER, UPPER)
    rows = over_cells(space, cells).features[0].design(cells)
    np.testing.assert_allclose(rows, integrated(space, LOWER, UPPER, area=True), atol=1e-13)
    assert np.abs(rows - integrated(space, LOWER, UPPER)).max() > 1e-5


@pytest.mark.parametrize("kind", BASES)
def test_sums_of_points_and_cells_add_up(kind: str) -> None:
    space, cells, x = space_of(BASES[kind]), as_cells(LOWER, UPPER), RNG.uniform(0, 10, 50)
    own = over_cells(space, cells)
    parts = [
        accumulate(Block(np.cos(x), (x,)), DENSE, space),
        accumulate(Block(np.sin(LOWER), (cells,)), DENSE, own),
    ]
    frame, rows = own.own.frame, np.concatenate([space.features[0].design(x), own.features[0].design(cells)])
    for order in (parts, parts[::-1]):
        total = Sums.merge(order, frame).recentred(0.0, frame)
        np.testing.assert_allclose(total.gram.to_dense(frame), rows.T @ rows, atol=1e-12)
        y = np.concatenate([np.cos(x), np.sin(LOWER)])
        np.testing.assert_allclose(total.full_moment(frame), rows.T @ y, atol=1e-12)


def test_cells_that_are_not_in_the_domain_are_outside() -> None:
    space = space_of(BASES["bspline"])
    cells = as_cells(np.array([-0.1, 9.5, 3.0, np.nan]), np.array([0.5, 10.2, 3.5, 4.0]))
    own = over_cells(space, cells)
    sums = accumulate(Block(np.ones(4), (cells,)), DENSE, own)
    assert (int(sums.count), sums.tally.outside, sums.tally.unlabelled) == (1, 2, 1)


def test_what_is_coupled_is_no_definition_and_travels() -> None:
    space = space_of(BASES["bspline"])
    wide = space.coupling({"x": 7})
    assert wide == space and wide.frame.offsets == (7,) and space.frame.offsets == (4,)
    for copy in (pickle.loads(pickle.dumps(wide)), Space.from_json(wide.to_json()), wide.described_by({})):
        assert copy.coupled == {"x": 7}
    assert wide.coupling({"x": 5}) is wide and space.coupling({"x": 3}) is space
    own = pickle.loads(pickle.dumps(CellSpace(wide, {"x": 7})))
    assert own.frame == wide.frame and own.features[0].width == 7
