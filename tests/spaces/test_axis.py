"""Labels to floats and back, for every kind of label."""

from __future__ import annotations

import datetime

import cftime
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xspline.spaces import Axis

NUMBER, TIME, DELTA = Axis(), Axis("time"), Axis("timedelta")
CALENDARS = ["noleap", "all_leap", "360_day", "julian", "standard"]
INSTANT = "2010-01-15T06:30:15"
SECONDS = 1263537015.0


# --- numbers


@pytest.mark.parametrize(
    "labels", [[1, 2], np.float32([1, 2]), (1, 2.0), np.array([1, 2], ">i4"), [True, 2], pd.Index([1, 2])]
)
def test_numbers_are_floats(labels: object) -> None:
    x = NUMBER.to_float(labels)
    assert x.dtype == np.float64 and x.dtype.isnative and x.tolist() == [1.0, 2.0]


def test_masked_labels_are_missing() -> None:
    assert np.isnan(NUMBER.to_float(np.ma.masked_greater([1, 2, 3], 2)))[-1]
    stamps = np.ma.MaskedArray(np.array(["2000", "2001"], "datetime64[s]"), mask=[False, True])
    assert TIME.to_float(stamps)[0] == 946684800 and np.isnan(TIME.to_float(stamps)[1])
    dates = np.ma.MaskedArray(
        np.array([cftime.DatetimeGregorian(2000, 1, 1), None], dtype=object), mask=[False, True]
    )
    assert np.isnan(TIME.to_float(dates)).tolist() == [False, True]


# --- times


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns", "ps"])
def test_datetime64_of_any_unit(unit: str) -> None:
    labels = np.array([INSTANT, "1969-12-31T23:59:59", "NaT"], f"datetime64[{unit}]")
    if unit == "ps":  # its range is 106 days around 1970
        labels = np.array(["1970-03-01", "1969-12-31T23:59:59", "NaT"], "datetime64[ps]")
    x = TIME.to_float(labels)
    assert x[:2].tolist() == [SECONDS if unit != "ps" else 59 * 86400.0, -1.0] and np.isnan(x[2])


@pytest.mark.parametrize(
    ("unit", "seconds"),
    [
        ("Y", 1262304000),
        ("M", 1262304000),
        ("W", 1263427200),
        ("D", 1263513600),
        ("h", 1263535200),
        ("m", 1263537000),
    ],
)
def test_years_and_months_are_their_first_instant(unit: str, seconds: int) -> None:
    assert TIME.to_float(np.datetime64(INSTANT).astype(f"datetime64[{unit}]")) == seconds


def test_one_instant_is_one_float() -> None:
    text = "2010-01-15T06:30:15.123456"
    same = [
        np.datetime64(text, "us"),
        np.datetime64(text, "ns"),
        text,
        text.replace("T", " ") + "Z",
        datetime.datetime.fromisoformat(text),
        datetime.datetime.fromisoformat(text + "+02:00") + datetime.timedelta(hours=2),
        pd.Timestamp(text),
        cftime.DatetimeGregorian(2010, 1, 15, 6, 30, 15, 123456),
        cftime.DatetimeProlepticGregorian(2010, 1, 15, 6, 30, 15, 123456),
    ]
    assert {float(TIME.to_float(label)) for label in same} == {SECONDS + 0.123456}
    assert set(TIME.to_float(same)) == {SECONDS + 0.123456}


def test_partial_dates_are_their_first_instant() -> None:
    partial = ["2010", "2010-01", "2010-01-15", "2010-01-15T06", "2010-01-15T06:30", "2010-01-15 06:30:15"]
    expected = [np.datetime64(text.replace(" ", "T"), "s").astype(int) for text in partial]
    assert TIME.to_float(partial).tolist() == expected
    compact = [text.replace("-", "") for text in partial]
    assert TIME.to_float(compact).tolist() == expected and Axis.infer("t", compact[2:3]) == Axis.infer(
        "t", "2010"
    )


@pytest.mark.parametrize("text", ["+12000-01-01T00:00:00", "-200-03-15T06:00:00"])
def test_years_of_more_than_four_digits_have_a_sign(text: str) -> None:
    assert TIME.text(TIME.to_float(text).item()) == text
    with pytest.raises(ValueError, match="'12000' is not an ISO date"):
        TIME.to_float("12000")
    with pytest.raises(ValueError, match="'20101331' is not a date of the standard calendar"):
        TIME.to_float("20101331")


@pytest.mark.parametrize("calendar", CALENDARS)
def test_cftime_counts_in_its_calendar(calendar: str) -> None:
    axis = Axis("time", calendar=calendar)
    dates = cftime.num2date([0, 86400 * 400, 1.25e9, -5e8], "seconds since 1970-01-01", calendar=calendar)
    assert axis.to_float(dates).tolist() == [0, 86400 * 400, 1.25e9, -5e8]
    assert axis.to_float([d.isoformat() for d in dates]).tolist() == [0, 86400 * 400, 1.25e9, -5e8]
    assert axis.to_float("1971-02-10") == 86400 * {"360_day": 399, "all_leap": 406}.get(calendar, 405)


def test_calendars_have_their_days() -> None:
    assert Axis("time", calendar="360_day").to_float("2000-02-30") % 86400 == 0
    with pytest.raises(ValueError, match="'2000-02-29' is not a date of the noleap calendar"):
        Axis("time", calendar="noleap").to_float("2000-02-29")
    with pytest.raises(ValueError, match="'2001-02-29' is not a date of the standard calendar"):
        TIME.to_float("2001-02-29")
    with pytest.raises(ValueError, match="'2001-02-20T25' is not a date of the standard calendar"):
        TIME.to_float("2001-02-20T25")


def test_gregorian_calendars_are_one_after_1582() -> None:
    assert Axis("time", calendar="gregorian") == Axis("time", calendar="proleptic_gregorian") == TIME
    assert TIME.calendar == "standard" and NUMBER.calendar is None
    assert Axis("time", calendar="365_day").calendar == "noleap"
    with pytest.raises(ValueError, match="unknown calendar 'mayan'; known are standard, gregorian"):
        Axis("time", calendar="mayan")


def test_dates_before_1582_are_instants() -> None:
    """The day after 4 October 1582 (Julian) was 15 October (Gregorian)."""
    assert TIME.to_float(cftime.DatetimeGregorian(1582, 10, 4)) + 86400 == TIME.to_float("1582-10-15")


@pytest.mark.parametrize("calendar", CALENDARS)
@given(x=st.one_of(st.floats(-6e10, 6e10), st.integers(-(10**10), 10**10).map(float), st.floats(-1, 1)))
def test_text_reads_back_exactly(calendar: str, x: float) -> None:
    axis = Axis("time", calendar=calendar)
    text = axis.text(x)
    back = float(axis.to_float(text))
    # Labels are whole seconds plus a fraction: in the second before 1970, and close after, to 1e-16 s only.
    assert back == x or (-1 < x < 1e-5 and abs(back - x) < 2e-16)
    assert float(axis.to_float(axis.text(back))) == back
    if x == int(x):
        assert "." not in text
    assert float(DELTA.to_float(DELTA.text(x))) == x and float(NUMBER.text(x)) == x


@given(st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=5))
def test_labels_come_back_in_the_range_of_nanoseconds(nanoseconds: list[int]) -> None:
    labels = np.array(nanoseconds, "datetime64[ns]").astype("datetime64[us]").astype("datetime64[ns]")
    back = TIME.to_label(TIME.to_float(labels))
    assert back.dtype == "datetime64[ns]"
    # Microseconds are told apart up to 2^33 seconds, 272 years from 1970.
    far = np.abs(TIME.to_float(labels)) > 2.0**32
    assert np.all(np.abs((back - labels).astype(np.int64)) <= np.where(far, 1000, 0))
    assert np.array_equal(
        DELTA.to_label(TIME.to_float(labels)), back.astype(np.int64).astype("timedelta64[ns]")
    )


def test_labels_far_away_are_in_microseconds() -> None:
    far = TIME.to_label(TIME.to_float(["0850-01-01", "2000-01-01", "NaT"]))
    assert far.dtype == "datetime64[us]" and str(far[0]) == "0850-01-01T00:00:00.000000" and np.isnat(far[2])
    near = TIME.to_label([7e-9, np.nan])
    assert near.dtype == "datetime64[ns]" and near[0].astype(int) == 7 and np.isnat(near[1])


def test_cftime_labels_come_back() -> None:
    axis = Axis("time", calendar="noleap")
    dates = [cftime.DatetimeNoLeap(2000, 2, 28, 23, 59, 59, 5), cftime.DatetimeNoLeap(1850, 3, 1)]
    back = axis.to_label(axis.to_float([*dates, None]))
    assert back[:2].tolist() == dates and back[2] is None
    assert back[0].calendar == "noleap" and axis.to_label(axis.to_float(dates[0])).item() == dates[0]


# --- lengths of time


@pytest.mark.parametrize(
    "labels",
    [
        ["6h", "90min", "NaT"],
        np.array([360, 90, "NaT"], "timedelta64[m]"),
        [datetime.timedelta(hours=6), datetime.timedelta(minutes=90), None],
        pd.to_timedelta(["6h", "90min", None]),
    ],
)
def test_timedeltas_are_seconds(labels: object) -> None:
    assert np.array_equal(DELTA.to_float(labels), [21600.0, 5400.0, np.nan], equal_nan=True)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2W", 1209600),
        ("365.2425D", 31556952),
        ("6h", 21600),
        ("6H", 21600),
        ("15min", 900),
        ("15m", 900),
        ("1.5s", 1.5),
        ("250ms", 0.25),
        ("5us", 5e-6),
        ("7ns", 7e-9),
        (" 1e3 s ", 1000),
        ("year", 31556952),
        ("day", 86400),
    ],
)
def test_units_of_durations(text: str, seconds: float) -> None:
    assert TIME.duration(text, "period") == DELTA.duration(text, "period") == seconds


def test_years_are_the_calendars() -> None:
    days = {name: Axis("time", calendar=name).duration("year", "period") / 86400 for name in CALENDARS}
    assert days == {"noleap": 365, "all_leap": 366, "360_day": 360, "julian": 365.25, "standard": 365.2425}


# --- messages


@pytest.mark.parametrize(
    ("axis", "labels", "match"),
    [
        (NUMBER, ["a"], "on a coordinate of numbers; pass numbers"),
        (NUMBER, [None, "a"], "labels of type NoneType, str on a coordinate of numbers"),
        (NUMBER, np.datetime64("2000"), r"labels of type datetime64\[Y\] on a coordinate of numbers"),
        (NUMBER, 1j, "labels of type complex128"),
        (TIME, [1.0], r"float64 on a time \(standard calendar\) coordinate; pass datetime64, cftime"),
        (TIME, [np.timedelta64(1, "s")], r"timedelta64\[s\] on a time"),
        (TIME, [object()], "is not an instant; pass datetime64, cftime dates or ISO strings"),
        (TIME, "yesterday", "'yesterday' is not an ISO date such as '2010-01-15'"),
        (TIME, "2010-01-15T06:00+24:00", "times are UTC"),
        (TIME, cftime.DatetimeNoLeap(2000, 1, 1), "date of the noleap calendar, the coordinate has the"),
        (Axis("time", calendar="noleap"), np.datetime64("2000"), "2000 is a date of the standard"),
        (Axis("time", calendar="noleap"), [datetime.date(2000, 1, 1)], "cftime date with calendar='noleap'"),
        (DELTA, [1.0], "float64 on a timedelta coordinate; pass timedelta64 or strings such as '6h'"),
        (DELTA, np.datetime64("2000"), r"datetime64\[Y\] is not|labels of type datetime64|is not a length"),
        (DELTA, "soon", r"'soon' is not a length of time; .*\(units: W D h H m min s ms us ns\)"),
    ],
)
def test_labels_of_another_kind_are_refused(axis: Axis, labels: object, match: str) -> None:
    with pytest.raises((TypeError, ValueError), match=match):
        axis.to_float(labels)


# --- inference and data


@pytest.mark.parametrize(
    ("name", "labels", "expected"),
    [
        ("x", [1, 2], NUMBER),
        ("x", [], NUMBER),
        ("lon", [1.0], Axis(wrap=360.0, role="longitude")),
        ("Longitude", [1.0], Axis(wrap=360.0, role="longitude")),
        ("long", [1.0], Axis(wrap=360.0, role="longitude")),
        ("lat", np.float32([1]), Axis(role="latitude")),
        ("time", [1.0], Axis(role="time")),
        ("t", ["2000", "2001-02"], Axis("time", role="time")),
        ("t", np.array(["NaT", "2000"], "datetime64[s]"), Axis("time", role="time")),
        ("t", [np.datetime64("2000"), "2001"], Axis("time", role="time")),
        ("t", [datetime.date(2000, 1, 1)], Axis("time", role="time")),
        ("t", [cftime.Datetime360Day(2000, 1, 1)], Axis("time", calendar="360_day", role="time")),
        ("t", [None, cftime.DatetimeGregorian(2000, 1, 1)], Axis("time", role="time")),
        ("lead", [np.timedelta64(1, "h")], Axis("timedelta", role="time")),
        ("lead", ["6h", "year"], Axis("timedelta", role="time")),
        ("lead", [datetime.timedelta(1)], Axis("timedelta", role="time")),
    ],
)
def test_kind_and_role_are_inferred_from_labels(name: str, labels: object, expected: Axis) -> None:
    assert Axis.infer(name, labels) == expected
