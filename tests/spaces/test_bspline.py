"""B-splines against SciPy, and the laws that do not need it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spaces.cases import NUMBER, bound, features_of, full_knots, scipy_design, splines
from xspline.spaces import BSpline


def positions(basis: BSpline, count: int = 61) -> np.ndarray:
    lo, hi = basis.domain
    return np.sort(np.concatenate([lo + (hi - lo) * np.random.default_rng(7).random(count), [lo, hi]]))


@given(splines())
def test_values_and_derivatives_are_scipys(basis: BSpline) -> None:
    x = positions(basis)[:-1] if basis.period is not None else positions(basis)
    features = bound(basis).on(NUMBER)
    for order in range(basis.degree + 1):
        expected = scipy_design(basis, x, order)
        # Knots at 1.5e9 are rounded to 2e-7: SciPy's values move by that, relative to the smallest cell.
        knots = full_knots(basis)
        sharp = np.min(np.diff(knots)[np.diff(knots) > 0])
        rounding = 1e-13 + 60 * np.spacing(np.abs(knots).max()) / sharp * (order + 1)
        scale = max(np.abs(expected).max(), (1 / sharp) ** order)
        np.testing.assert_allclose(features.design(x, order), expected, rtol=0, atol=rounding * scale)


@pytest.mark.parametrize("degree", range(9))
def test_digits_are_kept_up_to_degree_eight(degree: int) -> None:
    basis = bound(BSpline(degree + 6, degree, domain=(-3, 5)))
    features, x = basis.on(NUMBER), np.linspace(-3, 5, 201)
    for order in range(degree + 1):
        expected = scipy_design(basis, x, order)
        np.testing.assert_allclose(features.design(x, order), expected, atol=2e-14 * np.abs(expected).max())


@given(splines(), st.integers(-3, 3))
def test_functions_sum_to_one_and_circles_close(basis: BSpline, turns: int) -> None:
    features, x = features_of(basis), positions(basis)
    np.testing.assert_allclose(features.design(x).sum(axis=1), 1.0, rtol=1e-12)
    assert np.all(features.constant() == 1.0)
    if basis.period is not None:
        assert features.domain is None
        np.testing.assert_allclose(
            features.design(x[1:-1] + turns * basis.period).sum(axis=1), 1.0, rtol=1e-12
        )
        ends = features.design(np.array(basis.domain))
        assert np.array_equal(ends[0], ends[1])


# --- where a position falls


@pytest.mark.parametrize("degree", [0, 3])
@pytest.mark.parametrize(("lo", "hi"), [(0.0, 1.0), (-30.0, 30.0), (1.5e9, 1.6e9), (0.1, 0.7)])
def test_one_ulp_outside_is_on_the_end(degree: int, lo: float, hi: float) -> None:
    features = features_of(BSpline(9, degree, domain=(lo, hi)))
    below, above = np.nextafter(lo, -np.inf), np.nextafter(hi, np.inf)
    x = np.array([below, lo, hi, above, np.nextafter(below, -np.inf), np.nextafter(above, np.inf)])
    cell, z = features.locate(np.append(x, [np.nan, np.inf, -np.inf]))
    assert cell.tolist() == [0, 0, features.cells - 1, features.cells - 1, -1, -1, -1, -1, -1]
    assert z[:4].tolist() == [-1.0, -1.0, 1.0, 1.0] and np.all(z[4:] == 0)
    assert cell.dtype == np.int64
    design = features.design(np.append(x, np.nan))
    assert np.array_equal(design[0], design[1]) and np.array_equal(design[2], design[3])
    assert np.isnan(design[4:]).all()
    assert np.all(features.features(cell, z)[4:] == 0)


def test_positions_of_seconds_keep_their_digits() -> None:
    """A cell of a month at 1.5e9 s: z is right to the rounding of the position, not of the knots."""
    lo, month = 1.4e9, 2_629_746.0
    features = features_of(BSpline(63, domain=(lo, lo + 60 * month)))
    steps = np.arange(60) * month + 0.25 * month
    cell, z = features.locate(lo + steps)
    assert cell.tolist() == list(range(60))
    np.testing.assert_allclose(z, -0.5, atol=1e-13)


def test_a_circle_of_seconds_keeps_its_phase() -> None:
    year = 31556952.0
    features = features_of(BSpline(12, period=year))
    x = np.linspace(0, year, 50, endpoint=False)
    np.testing.assert_allclose(
        features.design(np.round(x) + 40 * year), features.design(np.round(x)), atol=1e-14
    )
    assert features.locate(np.array([-1e-20]))[0][0] in (0, 11)


# --- consistency of the ways to the same numbers


@given(splines(3))
def test_labels_are_averages_of_inner_knots(basis: BSpline) -> None:
    labels, knots, p = features_of(basis).labels(), full_knots(basis), basis.degree
    start = [knots[k + 1 : k + p + 1] if p else knots[k : k + 2] for k in range(basis.count)]
    expected = np.array([inner.mean() for inner in start])
    if basis.period is not None:
        lo, hi = basis.domain
        offset = np.mod(labels - expected + (hi - lo) / 2, hi - lo) - (hi - lo) / 2
        np.testing.assert_allclose(offset, 0, atol=1e-9 * max(abs(lo), abs(hi)))
        assert np.all((labels >= lo) & (labels <= hi))
    else:
        np.testing.assert_allclose(labels, expected, rtol=1e-12, atol=1e-12 * np.abs(knots).max())


def test_derivatives_above_the_degree_are_refused() -> None:
    features = features_of(BSpline(9, 2, domain=(0, 1)))
    assert features.max_order == 2
    with pytest.raises(ValueError, match="order 3 is above the degree 2 of the B-spline"):
        features.design(np.array([0.5]), 3)
    with pytest.raises(ValueError, match="order -1 is negative"):
        features.design(np.array([0.5]), -1)
    with pytest.raises(ValueError, match="order 3 is above the degree 2"):
        features.roughness(3)
