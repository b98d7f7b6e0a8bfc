"""Unions with a B-spline: in cells, and as season, trend and events."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import xspline as xs
from tests.spaces.cases import NUMBER, bound
from xspline.spaces import Axis, Basis, BSpline, Fourier, Global, Polynomial, Space
from xspline.spaces.bspline import Arrow
from xspline.sums import Factor

UNEVEN = (0.0, 0.0, 0.3, 0.5, 0.7, 1.0, 1.2, 1.6, 1.9, 2.0, 2.4, 2.5, 2.5)
UNIONS = {
    "season": Fourier(1, period=0.7) + BSpline(9, degree=1, domain=(0.0, 2.5)),
    "uneven": Fourier(1, period=0.7) + BSpline(knots=UNEVEN, degree=1),
    "events": Fourier(1, period=0.7) + Polynomial(1) + BSpline(20, degree=2, domain=(0.0, 2.5)),
    "trend": Polynomial(2) + BSpline(30, domain=(0.0, 2.5)),
}


@pytest.fixture(params=UNIONS.values(), ids=UNIONS.keys())
def arrow(request: pytest.FixtureRequest) -> Arrow:
    features = bound(request.param).on(NUMBER)
    assert isinstance(features, Arrow)
    return features


def in_one_cell(arrow: Arrow) -> Global:
    return Global(arrow.terms, arrow.span, arrow.max_order)


def frame_of(arrow: Arrow) -> Space:
    return Space({"x": next(b for b in UNIONS.values() if bound(b).on(NUMBER) is arrow)}, axes={"x": Axis()})


@pytest.mark.parametrize("order", [0, 1])
def test_functions_are_those_of_one_cell(arrow: Arrow, order: int) -> None:
    """Inside, at both ends, on knots, outside and missing; and where they are continued."""
    x = np.concatenate([np.linspace(-0.5, 3.0, 71), arrow.spline.edges, [np.nan]])
    expected = in_one_cell(arrow).design(x, order)
    np.testing.assert_array_equal(arrow.design(x, order), expected)
    for locate in (arrow.locate, arrow.locate_anywhere):
        cell, z = locate(x)
        known, m = cell >= 0, arrow.others.size
        values, out = arrow.features(cell, z, order), np.zeros((x.size, arrow.size))
        near = m + arrow.first[np.maximum(cell, 0)][:, None] + np.arange(arrow.support.near)
        np.put_along_axis(out, near, values[:, : arrow.support.near], axis=1)
        out[:, :m] = values[:, arrow.support.near :]
        np.testing.assert_array_equal(known, np.isfinite(locate(x)[1]) & (cell >= 0))
        inside = np.isfinite(expected[:, 0])
        np.testing.assert_allclose(
            out[inside], expected[inside], rtol=0, atol=1e-12 * np.nanmax(np.abs(expected))
        )
    assert (arrow.locate_anywhere(x)[0] >= 0).sum() == np.isfinite(x).sum()


@pytest.mark.parametrize("order", [0, 1])
def test_roughness_is_that_of_one_cell(arrow: Arrow, order: int) -> None:
    """Of season and trend 0, of the spline its own; and of order 0 nothing between the two."""
    pairs, whole = arrow.roughness(order), in_one_cell(arrow).roughness(order)
    one, space = np.zeros((arrow.size, arrow.size)), frame_of(arrow)
    for o in range(arrow.size):
        one += np.diag(whole[: arrow.size - o, o], o)
    found = Factor((0,), ((0, arrow.size),), pairs, 0).to_dense(space.frame)
    np.testing.assert_allclose(np.triu(found), one, rtol=0, atol=1e-12 * np.abs(one).max())
    assert bool(order) is not found[: arrow.others.size].any()


def test_a_short_union_is_one_cell() -> None:
    """Where an array of pairs in cells would take no fewer numbers."""
    for basis in (Fourier(2, period=0.7) + BSpline(8), Polynomial(1) + BSpline(40, domain=(0, 1), period=1)):
        assert type(bound(basis, extent=(0.0, 1.0)).on(NUMBER)) is Global


@pytest.mark.parametrize("size", [5, 40])
def test_a_polynomial_and_a_spline_are_a_trend_with_events(size: int) -> None:
    """The spline spans the trend: the constant is the polynomial's, and there is one function more."""
    basis = bound(Fourier(1, period=0.7) + BSpline(size) + Polynomial(2), extent=(0.0, 2.0))
    features = basis.on(NUMBER)
    assert basis.has_events and basis.count == features.size == 3 + 2 + size
    assert features.labels()[:5] == ["const", "x1", "x2", "cos1", "sin1"]
    np.testing.assert_array_equal(features.constant(), np.eye(features.size)[0])
    kinds = {Polynomial: 3, Fourier: 2, BSpline: size}
    assert {kind: int(basis.select(kind).sum()) for kind in kinds} == kinds
    assert np.linalg.matrix_rank(features.design(np.linspace(0, 2, 500))) == features.size - 3
    assert Basis.from_dict(basis.to_dict()) == basis


def test_values_at_points_of_four_functions_of_a_union() -> None:
    """Two near ones and two that are active everywhere, which do not lie side by side."""
    x = np.linspace(0, 1, 40)
    data = xr.DataArray(np.add.outer(x, x**2), {"y": x, "x": x}, ("y", "x"), "v")
    union = xs.Polynomial(1) + xs.BSpline(20, degree=1, domain=(0, 1))
    field = xs.fit(data, y=xs.BSpline(5, domain=(0, 1)), x=union, penalty=0.01)
    some = xr.DataArray(x[3:30:5], dims="i")
    grid = field.predict(y=some.values, x=some.values).values
    np.testing.assert_allclose(field.predict(y=some, x=some), np.diagonal(grid), rtol=1e-12)


@pytest.mark.parametrize("count", [14, 40])
def test_even_data_determine_a_union_evenly(count: int) -> None:
    x = np.linspace(0, 1, 2001)
    data = xr.DataArray(np.sin(7 * x), {"x": x}, "x", "v")
    basis = xs.Fourier(1, period=0.3) + xs.BSpline(count)
    field = data.spline.fit(x=basis, penalty=0.0)
    assert field.fits["v"].condition == pytest.approx(1.0, abs=0.02)
