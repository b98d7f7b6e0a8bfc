"""Laws of all features, and Fourier, polynomials and unions against their formulas."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.polynomial import Legendre as Series

from tests.spaces.cases import ALL, EXTENT, NUMBER, TIME, bound, dense_pairs, features_of, inside
from xspline.spaces import Basis, BSpline, Features, Fourier, Global, Polynomial, Union, jit
from xspline.spaces.basis import terms_of


@pytest.fixture(params=ALL.values(), ids=ALL.keys())
def basis(request: pytest.FixtureRequest) -> Basis:
    return request.param


@pytest.fixture
def features(basis: Basis) -> Features:
    return basis.on(NUMBER)


def test_the_constant_is_one_everywhere(basis: Basis, features: Features) -> None:
    x = inside(*EXTENT)
    np.testing.assert_allclose(features.design(x) @ features.constant(), 1.0, rtol=1e-13)
    highest = 1 if features.max_order is None else min(1, features.max_order)
    if highest:
        np.testing.assert_allclose(features.design(x, 1) @ features.constant(), 0.0, atol=1e-12)


def test_there_are_values_inside_the_domain_only(features: Features) -> None:
    outside = np.array([EXTENT[0] - 1, EXTENT[1] + 1])
    cell, _ = features.locate(outside)
    if features.domain is None:
        assert np.all(cell >= 0) and np.isfinite(features.design(outside)).all()
    else:
        assert features.domain == EXTENT and cell.tolist() == [-1, -1]
        assert np.isnan(features.design(outside)).all()
    low, high = np.array([[EXTENT[1] + 1, EXTENT[1] + 2], [0.0, 1.0], [np.nan, 1.0]]).T
    beyond, inside, unknown = features.count_touched(low, high)
    assert (beyond > 0) == (features.domain is None)
    assert inside > 0 and unknown == 0


def test_derivatives_are_slopes(features: Features) -> None:
    step = 1e-5
    x = inside(*EXTENT, count=29)
    for order in range(1, 4 if features.max_order is None else min(features.max_order, 4)):
        slope = (features.design(x + step, order - 1) - features.design(x - step, order - 1)) / (2 * step)
        exact = features.design(x, order)
        np.testing.assert_allclose(slope, exact, atol=2e-6 * max(1.0, np.abs(exact).max()))


@pytest.mark.parametrize("order", [0, 1, 2])
def test_roughness_is_the_integral(basis: Basis, features: Features, order: int) -> None:
    if order > min((term.degree for term in terms_of(basis) if isinstance(term, BSpline)), default=order):
        with pytest.raises(ValueError, match="above the degree"):
            features.roughness(order)
        return
    lo, hi = features.span if isinstance(features, Global) else basis.domain  # else one period from 0
    places, length = [lo, hi], hi - lo
    for term in terms_of(basis):
        if isinstance(term, BSpline):
            edges = term.local(NUMBER).edges
            turns = range(-4, 5) if term.period is not None else (0,)
            places += [e + turn * (edges[-1] - edges[0]) for turn in turns for e in edges]
    breaks = np.unique([x for x in places if lo <= x <= hi])
    dense = dense_pairs(features, features.roughness(order))
    # Gauss's rule between knots, for polynomials of degree 79 and waves that are as smooth there.
    nodes, weights = np.polynomial.legendre.leggauss(40)
    left, half = breaks[:-1, None], np.diff(breaks)[:, None] / 2
    values = features.design((left + half * (1 + nodes)).ravel(), order)
    scale, unit = np.abs(dense).max(), length ** (2 * order - 1)
    integrals = values.T @ ((half * weights).reshape(-1, 1) * values) * unit
    first = features.size - getattr(features, "events", 0)  # of a B-spline beside other terms
    integrals[:first, first:] = integrals[first:, :first] = 0.0
    if order and first < features.size:
        integrals[:first] = 0.0
    np.testing.assert_allclose(dense, integrals, atol=1e-9 * scale)


@pytest.mark.parametrize("order", [0, 1, 2, 3, 4, 5])
def test_fourier_is_cosines_and_sines(order: int) -> None:
    features, x = features_of(Fourier(3, 2.5)), np.linspace(-7, 7, 41)
    phase = [2 * np.pi * k / 2.5 for k in (1, 2, 3)]
    columns = [np.full(x.size, float(order == 0))]
    for w in phase:
        turn = w * x + order * np.pi / 2
        columns += [w**order * np.cos(turn), w**order * np.sin(turn)]
    np.testing.assert_allclose(
        features.design(x, order), np.stack(columns, 1), atol=1e-13 * phase[-1] ** order
    )
    assert features.labels() == ["const", "cos1", "sin1", "cos2", "sin2", "cos3", "sin3"]
    assert features.domain is None and features.max_order is None
    np.testing.assert_array_equal(features.constant(), [1, 0, 0, 0, 0, 0, 0])


def test_the_phase_of_a_billion_seconds_is_exact() -> None:
    year = bound(Fourier(2, "365.2425D"), TIME).on(TIME)
    x = np.array([0.0, 86400.0 * 100, 86400.0 * 300])
    np.testing.assert_allclose(year.design(x + 50 * 31556952.0), year.design(x), atol=1e-14)
    assert year.design(np.zeros(1))[0].tolist() == [1, 1, 0, 1, 0]


@pytest.mark.parametrize("order", [0, 1, 2, 3, 4, 5])
def test_polynomials_are_legendres(order: int) -> None:
    features, x = features_of(Polynomial(4, domain=(2, 7))), np.linspace(-1, 9, 31)
    series = [Series.basis(d, domain=[2, 7]) for d in range(5)]
    expected = np.stack([(s.deriv(order) if order else s)(x) for s in series], 1)
    inside = (x >= 2) & (x <= 7)
    np.testing.assert_allclose(features.design(x[inside], order), expected[inside], atol=1e-12)
    assert np.isnan(features.design(x[~inside], order)).all()
    np.testing.assert_allclose(features.features(*features.locate_anywhere(x), order), expected, atol=1e-12)
    assert features.labels() == ["const", "x1", "x2", "x3", "x4"]
    assert features.domain == (2, 7) and features.max_order == 4


def test_a_union_is_its_terms_with_one_constant() -> None:
    x = np.linspace(-1, 9, 23)
    poly, wave = Polynomial(2, domain=EXTENT), Fourier(2, 3.0)
    joint, p, f = (features_of(b).design(x) for b in (poly + wave, poly, wave))
    np.testing.assert_array_equal(joint, np.concatenate([p, f[:, 1:]], axis=1))
    assert features_of(poly + wave).labels() == ["const", "x1", "x2", "cos1", "sin1", "cos2", "sin2"]
    spline = BSpline(5, domain=EXTENT)
    joint, s = features_of(wave + spline).design(x), features_of(spline).design(x)
    np.testing.assert_array_equal(joint, np.concatenate([f[:, 1:], s], axis=1))
    assert features_of(wave + spline).labels() == [
        "cos1",
        "sin1",
        "cos2",
        "sin2",
        "b0",
        "b1",
        "b2",
        "b3",
        "b4",
    ]
    np.testing.assert_array_equal(features_of(wave + spline).constant(), [0, 0, 0, 0, 1, 1, 1, 1, 1])
    assert features_of(wave + spline).domain == EXTENT


def test_two_periods_have_two_names() -> None:
    features = features_of(Fourier(1, 1.0) + Fourier(1, 0.3))
    assert features.labels() == ["const", "cos1(1.0)", "sin1(1.0)", "cos1(0.3)", "sin1(0.3)"]
    x = np.linspace(0, 2, 17)
    np.testing.assert_allclose(features.design(x)[:, 3], np.cos(2 * np.pi * x / 0.3), atol=1e-13)
    tides = features_of(Fourier(1, "year") + Fourier(1, "44714.16s"), TIME)
    assert tides.labels()[1::2] == ["cos1(365.2425D)", "cos1(12.4206h)"]


def test_a_trend_over_decades_and_a_circle_of_months() -> None:
    """The circle repeats inside the domain of the trend, which ends there."""
    basis = bound(Polynomial(2, domain=("1980", "2020")) + BSpline(12, period="year"), TIME)
    features = basis.on(TIME)
    assert features.size == 14 and features.max_order == 3
    assert features.domain == tuple(TIME.to_float(["1980-01-01", "2020-01-01"]))
    x = TIME.to_float(["1990-05-01", "2000-02-10", "2019-06-01"])
    assert np.isfinite(features.design(x)).all()
    assert np.isnan(features.design(TIME.to_float(["1970-05-01", "2030-06-01"]))).all()
    np.testing.assert_allclose(
        features.design(x)[:, 2:], bound(BSpline(12, period="year"), TIME).on(TIME).design(x), atol=1e-15
    )


@pytest.mark.parametrize(
    ("basis", "kind", "columns"),
    [
        (Polynomial(2) + Fourier(2, 3.0), Polynomial, [0, 1, 2]),
        (Polynomial(2) + Fourier(2, 3.0), Fourier, [3, 4, 5, 6]),
        (Fourier(1, 3.0) + Fourier(1, 1.0), Fourier, [0, 1, 2, 3, 4]),
        (Fourier(1, 3.0) + BSpline(5), Fourier, [0, 1]),
        (Fourier(1, 3.0) + BSpline(5), BSpline, [2, 3, 4, 5, 6]),
        (Fourier(1, 3.0) + BSpline(5), Polynomial, []),
        (Polynomial(1) + BSpline(5, period=2.0), Polynomial, [0]),
        (BSpline(5), BSpline, [0, 1, 2, 3, 4]),
        (BSpline(5), Fourier, []),
        (BSpline(degree=1, knots=[0, 0, 1, 2, 2]), BSpline, [0, 1, 2]),
        (Fourier(1, 3.0) + Polynomial(1), Union, [0, 1, 2, 3]),
    ],
)
def test_select_finds_the_columns_of_a_term(basis: Basis, kind: type[Basis], columns: list[int]) -> None:
    mask = basis.select(kind)
    assert mask.dtype == bool and mask.shape == (basis.count,)
    assert np.flatnonzero(mask).tolist() == columns
    assert np.array_equal(mask, bound(basis, extent=EXTENT).select(kind))


def test_one_warning_where_there_is_no_place_for_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def njit(*, cache: bool = False, **_):
        if cache:
            raise RuntimeError("cannot cache function 'f': no locator available")
        return lambda function: function

    monkeypatch.setattr(jit.numba, "njit", njit)
    jit._warn_once.cache_clear()
    with pytest.warns(RuntimeWarning, match="compiles them again. Set NUMBA_CACHE_DIR") as caught:
        functions = [jit.compiled(len), jit.compiled(len), jit.compiled_sums(len)]
    jit._warn_once.cache_clear()
    assert functions == [len, len, len]
    assert len(caught) == 1
    assert caught[0].filename == __file__
