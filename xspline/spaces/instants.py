"""Seconds since 1970-01-01 of a calendar, from and to what people write: dates, strings, durations.

Everything is rounded once, from an exact integer or fraction, so that one instant written in two ways
(nanoseconds, microseconds, a string, a cftime date) is one float64. Today's seconds since 1970 are rounded to
2.4e-7; an epoch, whole seconds after 1970 that are subtracted as integers first, keeps what is finer.
"""

from __future__ import annotations

import datetime
import re
from fractions import Fraction
from typing import Any, TypeAlias

import cftime
import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]

STANDARD = "standard"
# Calendars that agree after 1582 are one; cftime's own aliases for the others.
CALENDARS = {
    **dict.fromkeys(("", "standard", "gregorian", "proleptic_gregorian"), STANDARD),
    **dict.fromkeys(("noleap", "365_day"), "noleap"),
    **dict.fromkeys(("all_leap", "366_day"), "all_leap"),
    "360_day": "360_day",
    "julian": "julian",
}
# Days in the mean year, as exact fractions.
MEAN_YEAR = {
    STANDARD: Fraction(3652425, 10000),
    "noleap": Fraction(365),
    "all_leap": Fraction(366),
    "360_day": Fraction(360),
    "julian": Fraction(36525, 100),
}
SECONDS = {
    "W": Fraction(7 * 86400),
    "D": Fraction(86400),
    "h": Fraction(3600),
    "H": Fraction(3600),
    "m": Fraction(60),
    "min": Fraction(60),
    "s": Fraction(1),
    "ms": Fraction(1, 10**3),
    "us": Fraction(1, 10**6),
    "ns": Fraction(1, 10**9),
}
DAY = int(SECONDS["D"])
# Subdivisions of a second in NumPy's datetime units.
_FINE = {"ms": 10**3, "us": 10**6, "ns": 10**9, "ps": 10**12, "fs": 10**15, "as": 10**18}
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
DURATION = re.compile(rf"\s*({_NUMBER})\s*({'|'.join(sorted(SECONDS, key=len, reverse=True))})\s*")
INSTANT = re.compile(
    r"""\s* (\d{4} | [+-]\d{3,}) (?: -(\d{1,2}) (?: -(\d{1,2})                         # date
            (?: [T\ ](\d{1,2}) (?: :(\d{1,2}) (?: :(\d{1,2}) (\.\d*)? )? )? )? )? )?  # clock
        Z? \s*""",
    re.VERBOSE,
)
#: A clock with its distance from UTC, "2000-06-01T02:00+02:00".
ZONED = re.compile(r"(.+[T ].*?\d) ?([+-])([01]\d|2[0-3])(?::?([0-5]\d))?\s*")


def with_hyphens(text: str) -> str:
    """The text of an instant with the hyphens of its date, "2000-06-01" for "20000601"; others as they are."""
    return re.sub(r"^(\s*\d{4})(\d\d)(\d\d)?(?=[T Z]|$)", lambda m: "-".join(filter(None, m.groups())), text)


def canonical_calendar(calendar: str) -> str:
    """The one name of a calendar, ``standard`` for those that agree with datetime64 after 1582."""
    try:
        return CALENDARS[calendar.lower()]
    except KeyError:
        raise ValueError(
            f"unknown calendar {calendar!r}; known are {', '.join(filter(None, CALENDARS))}"
        ) from None


# --- labels to seconds


def seconds_of_integers(labels: Array, epoch: int = 0) -> Floats:
    """datetime64 or timedelta64 of any unit to float64 seconds since the epoch; NaT to NaN."""
    kind, (unit, _) = labels.dtype.kind, np.datetime_data(labels.dtype)
    if unit == "generic":
        unit = "s"
    elif kind == "m" and unit in "YM":
        raise ValueError(
            f"timedelta64 in calendar {'years' if unit == 'Y' else 'months'} has no fixed length; {_USE}"
        )
    factor = _FINE.get(unit, 1)
    exact = labels.astype(f"{kind}8[{unit if factor > 1 else 's'}]")
    count = exact.astype(np.int64)
    whole = np.floor_divide(count, factor)
    seconds = (whole - epoch) + (count - whole * factor) / float(factor)
    return np.where(np.isnat(labels), np.nan, seconds)


def seconds_of_object(label: Any, calendar: str, epoch: int = 0) -> float:
    """One date of any library, or an ISO string, to seconds since the epoch, itself since 1970-01-01 of `calendar`."""
    if isinstance(label, str):
        return _seconds_of_text(label, calendar, epoch)
    if isinstance(label, cftime.datetime):
        return float(seconds_of_objects(np.array([label]), calendar, epoch)[0])
    if hasattr(label, "to_datetime64"):  # pandas, with its nanoseconds
        label = label.to_datetime64()
    if isinstance(label, datetime.datetime) and label.tzinfo is not None:
        label = label.astimezone(datetime.UTC).replace(tzinfo=None)
    if isinstance(label, np.datetime64 | datetime.date):
        label = np.datetime64(label)
        _check_calendar(STANDARD, calendar, label)
        return float(seconds_of_integers(np.asarray(label), epoch))
    if label is None or (isinstance(label, float) and np.isnan(label)):
        return np.nan
    raise TypeError(f"{label!r} is not an instant; pass datetime64, cftime dates or ISO strings")


def seconds_of_objects(labels: Array, calendar: str, epoch: int = 0) -> Floats:
    """Dates and strings one by one to seconds; an array of cftime dates of one calendar in one call."""
    flat = labels.ravel()
    calendars = {label.calendar if isinstance(label, cftime.datetime) else None for label in flat}
    if len(calendars) == 1 and None not in calendars:
        _check_calendar(flat[0].calendar, calendar, flat[0])
        micro = cftime.date2num(flat, "microseconds since 1970-01-01", calendar=flat[0].calendar)
        seconds = seconds_of_integers(np.asarray(micro, dtype=np.int64).view("M8[us]"), epoch)
    else:
        seconds = np.array([seconds_of_object(label, calendar, epoch) for label in flat], dtype=np.float64)
    return seconds.reshape(labels.shape)


def _check_calendar(given: str, wanted: str, label: Any) -> None:
    if canonical_calendar(given) != wanted:
        raise ValueError(
            f"{label} is a date of the {canonical_calendar(given)} calendar, the coordinate has the {wanted} "
            f"calendar; pass an ISO string, or a cftime date with calendar={wanted!r}"
        )


def _seconds_of_text(text: str, calendar: str, epoch: int) -> float:
    """An ISO string to seconds since the epoch, in UTC or a zone; what it leaves out is the first instant."""
    if zoned := ZONED.fullmatch(text):
        ahead = (int(zoned[3]) * 60 + int(zoned[4] or 0)) * 60
        return _seconds_of_text(zoned[1], calendar, epoch) - (-ahead if zoned[2] == "-" else ahead)
    match = INSTANT.fullmatch(with_hyphens(text))
    if match is None:
        if text.strip() in ("NaT", "nan", ""):
            return np.nan
        raise ValueError(
            f"{text!r} is not an ISO date such as '2010-01-15' or '2010-01-15T06:00'; times are UTC, and "
            "years of more than four digits have a sign"
        )
    numbers = [int(part) if part else None for part in match.groups()[:6]]
    first_instant = (0, 1, 1, 0, 0, 0)
    year, month, day, hour, minute, second = (
        default if number is None else number for number, default in zip(numbers, first_instant, strict=True)
    )
    try:
        if calendar == STANDARD:
            date = f"{year:05d}" if year < 0 else f"{year:04d}"
            days = int(np.datetime64(f"{date}-{month:02d}-{day:02d}", "D").astype(np.int64))
        else:
            date_then = cftime.datetime(year, month, day, calendar=calendar)
            days = int(cftime.date2num(date_then, "days since 1970-01-01", calendar=calendar))
        datetime.time(hour, minute, second)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a date of the {calendar} calendar: {error}") from None
    fraction = float(Fraction("0" + match[7])) if match[7] and len(match[7]) > 1 else 0.0
    return days * DAY + hour * 3600 + minute * 60 + second - epoch + fraction


# --- durations


_USE = 'pass a string such as "365.2425D" or "6h", "year", "day", or numpy.timedelta64'


def seconds_of_duration(value: Any, calendar: str | None) -> float:
    """A length of time to seconds; bare numbers are refused by the caller, who knows what it is for."""
    if isinstance(value, str):
        text = value.strip()
        if text == "year":
            return float(MEAN_YEAR[calendar or STANDARD] * DAY)
        if text == "day":
            return float(DAY)
        match = DURATION.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a length of time; {_USE} (units: {' '.join(SECONDS)})")
        return float(Fraction(match[1]) * SECONDS[match[2]])
    if isinstance(value, datetime.timedelta | np.timedelta64):
        return float(seconds_of_integers(np.asarray(value, dtype="m8")))
    raise TypeError(f"{value!r} is not a length of time; {_USE}")


# --- seconds to labels and texts


def brief_duration(text: str) -> str:
    """The same length of time in the longest unit that it is one of, such as 365.2425D for 31556952.0s."""
    x = seconds_of_duration(text, None)
    units = [unit for unit in ("D", "h", "min", "s") if x >= SECONDS[unit]]
    texts = [f"{x / float(SECONDS[unit]):.15g}{unit}" for unit in units]
    return next((t for t in texts if len(t) <= len(text) and seconds_of_duration(t, None) == x), text)


# int64 nanoseconds end in 2262; one second is left for the rounding.
_NANOSECOND_RANGE = float(2**63 // 10**9 - 1)


def labels_of_seconds(x: Floats, kind: str, calendar: str | None, epoch: int = 0) -> Array:
    """Seconds to datetime64, timedelta64 or, of calendars other than the standard one, cftime dates.

    `x` is in seconds, since the epoch for times; NaN is missing. `kind` is "time" or "timedelta", `calendar` is that of
    times, and `epoch` is in seconds since 1970-01-01. The result is of [ns] (of [us] where a label is outside the range
    of nanoseconds), or of objects.
    """
    missing = np.isnan(x)
    if calendar not in (STANDARD, None):
        micro, unit = np.where(missing, 0, _count(x, 10**6) + epoch * 10**6), "microseconds since 1970-01-01"
        return np.where(missing, np.array(None, dtype=object), cftime.num2date(micro, unit, calendar))
    letter, known = "M" if kind == "time" else "m", x[~missing]
    if known.size and np.max(np.abs(known + epoch)) > _NANOSECOND_RANGE:
        count, dtype = _count(x, 10**6) + epoch * 10**6, f"{letter}8[us]"
    else:
        # Above this a float64 of seconds no longer tells nanoseconds apart, and microseconds are what was meant.
        coarse = np.abs(np.nan_to_num(x)) >= 2.0**22
        count = np.where(coarse, _count(x, 10**6) * 1000, _count(np.where(coarse, 0.0, x), 10**9))
        count = count + epoch * 10**9
        dtype = f"{letter}8[ns]"
    return np.where(missing, np.array("NaT", dtype=dtype), count.astype(dtype))


def _count(x: Floats, per: int) -> Integers:
    """x * per to the nearest integer without losing the fraction to the size of x; NaN to 0."""
    known = np.nan_to_num(x)
    whole = np.floor(known)
    count: Integers = whole.astype(np.int64) * per + np.rint((known - whole) * per).astype(np.int64)
    return count


def text_of_seconds(x: float, calendar: str, epoch: int = 0) -> str:
    """ISO instant that reads back as exactly x since the epoch, with as few decimals as that takes."""
    if not np.isfinite(x):
        return "NaT"
    whole = int(np.floor(x))
    part = x - whole
    fraction = ""
    if part == 1.0:  # just below a second, by less than float64 can tell
        whole += 1
    elif part:
        texts = (f"{part:.{decimals}f}" for decimals in (6, 9, 12, 18, 24))
        exact = (text for text in texts if text[0] == "0" and whole + float(text) == x)
        fraction = next(exact, f"{part:.24f}")[1:]
    whole += epoch
    if calendar == STANDARD:
        text = str(np.datetime64(whole, "s"))
    else:
        days, rest = divmod(whole, DAY)
        date = cftime.num2date(days, "days since 1970-01-01", calendar=calendar)
        clock = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
        text = f"{date.year:04d}-{date.month:02d}-{date.day:02d}T{clock}"
    return f"{'+' * text[:5].isdigit()}{text}{fraction}"  # a year of more than four digits has a sign


def plain_text(label: Any) -> Any:
    """A label or duration as what JSON and code hold: numbers as they are, all others as text."""
    if isinstance(label, np.generic) and label.dtype.kind in "iufb":
        return label.item()
    if isinstance(label, np.timedelta64 | datetime.timedelta):
        return f"{seconds_of_duration(label, None)!r}s"
    if isinstance(label, cftime.datetime):
        calendar = canonical_calendar(label.calendar)
        return text_of_seconds(seconds_of_object(label, calendar), calendar)
    if isinstance(label, np.datetime64 | datetime.date) or hasattr(label, "to_datetime64"):
        return text_of_seconds(seconds_of_object(label, STANDARD), STANDARD)
    return label
