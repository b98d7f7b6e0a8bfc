"""Bases as the user writes them: what they hold, how they are bound, what they say when they cannot be."""

from __future__ import annotations

import datetime
import json
import pickle

import cftime
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import xspline as xs
from tests.spaces.cases import ALL, NUMBER, TIME, bound
from xspline.spaces import Axis, Basis, BSpline, Fourier, Polynomial, Union, as_basis

DELTA = Axis("timedelta")
WRITTEN = [
    BSpline(13),
    BSpline(13, 2, domain=(-30, 30)),
    BSpline(degree=1, knots=[0, 0, 0.5, 2, 2]),
    BSpline(spacing=0.5),
    BSpline(spacing="30D", period="year"),
    BSpline(12, period=np.timedelta64(365, "D")),
    BSpline(5, domain=(np.datetime64("2000-01-01"), "2010")),
    BSpline(5, domain=(datetime.datetime(2000, 1, 1, 6), datetime.date(2010, 2, 3))),
    BSpline(5, domain=(cftime.DatetimeNoLeap(2000, 1, 1), cftime.DatetimeNoLeap(2010, 1, 1))),
    Fourier(2, "365.2425D"),
    Fourier(2, datetime.timedelta(days=1), domain=(0, 10)),
    Polynomial(2),
    Polynomial(2, domain=(np.float32(0.5), np.int64(3))),
    Polynomial(2) + Fourier(2, "year") + Fourier(1, "day"),
    Fourier(1, 3.0) + BSpline(7, 2),
]


@pytest.mark.parametrize("basis", [*WRITTEN, *ALL.values()], ids=repr)
def test_text_and_json_rebuild_a_basis(basis: Basis) -> None:
    again = eval(repr(basis), {"BSpline": BSpline, "Fourier": Fourier, "Polynomial": Polynomial})
    assert repr(again) == repr(basis)
    assert eval(basis.code("xs."), {"xs": xs}) == again
    data = json.loads(json.dumps(basis.to_dict()))
    assert Basis.from_dict(data) == again == Basis.from_dict(again.to_dict())
    assert pickle.loads(pickle.dumps(basis)) == basis
    assert hash(again) == hash(Basis.from_dict(data))


def test_text_is_short() -> None:
    assert repr(BSpline(13)) == "BSpline(13)"
    assert repr(BSpline(13, 2, domain=(-30, np.float64(30.0)))) == "BSpline(13, degree=2, domain=(-30, 30.0))"
    assert (
        repr(Fourier(2, period="365.2425D") + Polynomial(2))
        == "Polynomial(2) + Fourier(2, period='365.2425D')"
    )


def test_integers_are_cubic_splines() -> None:
    assert as_basis(13) == as_basis(np.int64(13)) == BSpline(13) == as_basis(BSpline(13))
    for wrong in (True, 13.0, "13", None):
        with pytest.raises(TypeError, match=f"expected a basis or an integer .*, got {wrong!r}"):
            as_basis(wrong)


# --- binding


def test_a_domain_is_filled_from_the_data() -> None:
    assert BSpline(13).needs_extent and Polynomial(1).needs_extent and not Fourier(1, 1.0).needs_extent
    assert bound(BSpline(13), extent=(1, 2)) == BSpline(13, domain=(1.0, 2.0))
    assert bound(BSpline(13, domain=(0, 5)), extent=(1, 2)) == BSpline(13, domain=(0.0, 5.0))
    assert bound(Fourier(1, 2), extent=(1, 2)) == Fourier(1, 2.0)
    assert bound(Polynomial(1), TIME, (0.0, 86400.5)).domain == (
        "1970-01-01T00:00:00",
        "1970-01-02T00:00:00.500000",
    )
    assert bound(Polynomial(1), DELTA, (0.0, 0.1)).domain == ("0.0s", "0.1s")


def test_domains_of_times_are_instants() -> None:
    same = [
        ("2000", "2010-02"),
        (np.datetime64("2000-01-01", "D"), np.datetime64("2010-02-01", "ns")),
        (datetime.datetime(2000, 1, 1), datetime.date(2010, 2, 1)),
        (cftime.DatetimeGregorian(2000, 1, 1), cftime.DatetimeProlepticGregorian(2010, 2, 1)),
        np.array(["2000-01-01", "2010-02-01"], "datetime64[s]"),
    ]
    assert {bound(BSpline(5, domain=domain), TIME) for domain in same} == {
        BSpline(5, domain=("2000-01-01T00:00:00", "2010-02-01T00:00:00"))
    }


def test_lengths_of_time_are_seconds() -> None:
    same = [
        "year",
        "365.2425D",
        "31556952s",
        np.timedelta64(31556952, "s"),
        datetime.timedelta(days=365.2425),
    ]
    assert {bound(Fourier(2, period), TIME) for period in same} == {Fourier(2, "31556952.0s")}
    assert bound(Fourier(2, "year"), Axis("time", calendar="360_day")).period == "31104000.0s"
    assert bound(Fourier(2, "6h"), DELTA).period == "21600.0s"


def test_a_circle_starts_at_zero() -> None:
    assert bound(BSpline(12, period=360)) == BSpline(12, period=360.0, domain=(0.0, 360.0))
    assert bound(BSpline(12, period="year"), TIME).domain == ("1970-01-01T00:00:00", "1971-01-01T05:49:12")
    assert bound(BSpline(12, period=360, domain=(-180, 180))).domain == (-180.0, 180.0)


def test_a_longitude_that_goes_round_is_a_circle() -> None:
    axis = Axis(wrap=360.0, role="longitude")
    assert bound(BSpline(23), axis, (0.0, 360.0)) == BSpline(23, period=360.0, domain=(0.0, 360.0))
    assert bound(BSpline(spacing=10.0), axis, (0.0, 360.0)).count == 36
    assert bound(BSpline(23), axis, (0.0, 350.0)).period is None
    assert bound(BSpline(23), NUMBER, (0.0, 360.0)).period is None
    assert bound(BSpline(23, domain=(0, 360)), axis, (0.0, 360.0)).period is None


@pytest.mark.parametrize(
    ("spacing", "size"), [(1.0, 13), (0.1, 103), (3.0, 7), (100.0, 4), (10 / 3, 6), (np.float64(2.5), 7)]
)
def test_spacing_is_the_greatest_interval(spacing: float, size: int) -> None:
    basis = bound(BSpline(spacing=spacing, domain=(0, 10)))
    assert basis == BSpline(size, domain=(0.0, 10.0))
    assert 10 / (size - 3) <= max(spacing * (1 + 1e-9), 10)


def test_spacing_of_time() -> None:
    assert bound(BSpline(spacing="30D", domain=("2001", "2002")), TIME).size == 13 + 3
    assert bound(BSpline(spacing="30D", period="year"), TIME).size == 13
    with pytest.raises(ValueError, match=r"size of BSpline\(spacing='30D'\) follows from its domain"):
        BSpline(spacing="30D").select(BSpline)


def test_knots_carry_their_domain() -> None:
    knots = [0, 0, 0, 1, 4, 5, 5, 5]
    basis = bound(BSpline(degree=2, knots=np.array(knots)), extent=(-9.0, 9.0))
    assert basis.domain == (0.0, 5.0) and basis.count == 5
    assert basis == bound(BSpline(degree=2, knots=tuple(map(float, knots)), domain=(0, 5)))
    circle = bound(BSpline(knots=[0, 1, 4, 6], period=6))
    assert circle.domain == (0.0, 6.0) and circle.count == 3
    months = bound(BSpline(degree=1, knots=["2000-01", "2000-01", "2000-03", "2000-07", "2000-07"]), TIME)
    assert months.knots[2] == "2000-03-01T00:00:00" and months.domain == (months.knots[1], months.knots[3])


# --- unions


def test_terms_come_in_one_order() -> None:
    a, b, c, d = Polynomial(1), Fourier(1, "day"), Fourier(2, "year"), BSpline(12, period="7D")
    expected = (a, c, b, d)
    assert (d + b + c + a).terms == ((a + b) + (c + d)).terms == Union((a, b, c, d)).terms == expected
    assert hash(a + b) == hash(b + a) and a + b == b + a
    assert (b + c).to_dict() == (c + b).to_dict()


def test_terms_share_a_domain() -> None:
    basis = bound(Fourier(1, 2.0) + Polynomial(2, domain=(0, 5)), extent=(7.0, 9.0))
    assert basis.domain == (0.0, 5.0)
    assert bound(Fourier(1, 2.0) + BSpline(degree=1, knots=[0, 0, 1, 1])).domain == (0.0, 1.0)
    given = Polynomial(2) + Fourier(2, 3.0)
    assert given.needs_extent and bound(given, extent=(7.0, 9.0)).domain == (7.0, 9.0)
    assert given.with_domain((1, 2)).domain == (1, 2) and given.with_domain((1, 2)).terms[1] == Fourier(
        2, 3.0
    )
    with pytest.raises(
        ValueError, match=r"x: the terms of a union share one domain; got .*\(0.0, 5.0\).* and .*\(0.0, 6.0\)"
    ):
        bound(Polynomial(2, domain=(0, 5)) + Fourier(1, 2.0, domain=(0, 6)))


@pytest.mark.parametrize(
    ("first", "second", "match"),
    [
        (Polynomial(1), Polynomial(2), r"Polynomial\(1\) \+ Polynomial\(2\): one polynomial .* in the span"),
        (BSpline(5), BSpline(7, period=1.0), r"BSpline\(5\) \+ BSpline\(7, .* B-splines span the constant"),
        (Fourier(1, 2.0), Fourier(3, 2), "having the same period; keep the one with more harmonics"),
        (Polynomial(0), Fourier(2, 1.0), r"the constant of Polynomial\(0\) .* of Fourier\(2, period=1.0\)"),
    ],
)
def test_a_term_in_the_span_of_another_is_refused(first: Basis, second: Basis, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        first + second
    with pytest.raises(ValueError, match=match):
        (Fourier(1, 0.3) + second) + first


@pytest.mark.parametrize(
    ("basis", "axis", "extent", "match"),
    [
        (Fourier(2, 2.0) + Fourier(1, 1.0), NUMBER, None, r"x: Fourier\(2, period=2.0\) and .* are not"),
        (Fourier(1, "year") + Fourier(1, "365.2425D"), TIME, None, "having the same period"),
        (Polynomial(3) + Fourier(2, "year"), TIME, (0.0, 3600.0), r"not .* 1970-01-01T01:00:00\)"),
        (Polynomial(4) + BSpline(2, 0), NUMBER, (0.0, 1.0), None),
        (Polynomial(1) + Fourier(4, 1.0) + BSpline(30, period=0.25), NUMBER, (0.0, 4.0), None),
    ],
)
def test_terms_that_turn_out_dependent_are_named(
    basis: Basis, axis: Axis, extent: tuple[float, float] | None, match: str | None
) -> None:
    if match is None:
        assert bound(basis, axis, extent).count
        return
    with pytest.raises(ValueError, match=match):
        bound(basis, axis, extent)


# --- messages


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: BSpline(), "exactly one of size, knots, spacing; got none"),
        (lambda: BSpline(5, spacing=2), "exactly one of size, knots, spacing; got size=5 and spacing=2"),
        (lambda: BSpline(3), "BSpline size 3 must be greater than its degree 3"),
        (lambda: BSpline(5.0), "size=5.0 must be an integer"),
        (lambda: BSpline(5, -1), "degree=-1 must be at least 0"),
        (lambda: BSpline(5, domain=(3, 2)), r"domain \(3, 2\) must have finite lo < hi"),
        (lambda: BSpline(5, domain=7), "domain 7 is not a pair; pass domain="),
        (lambda: BSpline(knots=[0, 1, 2]), "at least 8 knots for degree 3, got 3"),
        (lambda: BSpline(knots=[0], period=1), "at least 2 breakpoints of one period, got 1"),
        (lambda: Fourier(0, 1.0), "harmonics=0 must be at least 1"),
        (lambda: Fourier(2, None), r'Fourier needs a period, as in Fourier\(2, period="365.2425D"\)'),
        (lambda: Basis.from_dict({"type": "Wavelet"}), "unknown type of basis 'Wavelet'; known are BSpline"),
        (lambda: BSpline(5).on(NUMBER), r"BSpline\(5\) is not bound to a domain; pass domain"),
    ],
)
def test_arguments_that_make_no_basis_are_refused(make, match) -> None:
    with pytest.raises((TypeError, ValueError), match=match):
        make()


@pytest.mark.parametrize(
    ("basis", "axis", "extent", "match"),
    [
        (BSpline(13), NUMBER, None, r"^x: BSpline\(13\) has no domain; pass domain=\(lo, hi\), or build"),
        (BSpline(13), NUMBER, (2.0, 2.0), r"x: the data have the one label 2.0, .*; pass domain=\(lo, hi\)"),
        (BSpline(13), NUMBER, (np.nan, np.nan), "no finite labels"),
        (BSpline(13, domain=("2000", "2001")), NUMBER, None, "x: labels of type .* pass numbers"),
        (BSpline(13, domain=(0, 1)), TIME, None, r"x: labels of type int64 on a time \(standard calendar\)"),
        (Fourier(2, 365.25), TIME, None, r'period=365.25 is a bare number .*Fourier\(2, period="365.25D"\)'),
        (Fourier(2, "year"), NUMBER, None, "period='year' on a coordinate of numbers; pass a number"),
        (Fourier(2, "fortnight"), TIME, None, "x: period: 'fortnight' is not a length of time; pass a"),
        (Fourier(2, -1.0), NUMBER, None, "period=-1.0 must be positive and finite"),
        (BSpline(5, period=360, domain=(0, 350)), NUMBER, None, r"\(0.0, 350.0\) has length 350.0, the"),
        (BSpline(degree=1, knots=[0, 1, 3, 2]), NUMBER, None, "x: knots must be finite and ascending"),
        (BSpline(degree=1, knots=[0, 1, 1, 1, 2]), NUMBER, None, r"knot 1.0 is repeated more than degree"),
        (BSpline(100, domain=(1.5e9, 1.5e9 + 1e-5)), NUMBER, None, "too short for 97 intervals in float64"),
    ],
)
def test_a_basis_that_does_not_fit_its_axis_is_refused(basis, axis, extent, match) -> None:
    with pytest.raises((TypeError, ValueError), match=match):
        bound(basis, axis, extent)


@given(st.floats(1e-3, 1e12), st.sampled_from(["D", "h", "s", "ms"]))
def test_stored_lengths_read_back(value: float, unit: str) -> None:
    once = bound(Fourier(1, f"{value!r}{unit}"), TIME)
    assert bound(once, TIME) == once
    assert once.on(TIME) is bound(once, TIME).on(TIME)
