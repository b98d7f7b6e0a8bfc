"""Labels of a coordinate to float64 and back, as plain data: what a basis needs to know of its coordinate."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import cftime
import numpy as np

from xspline.arguments import brief
from xspline.spaces import instants
from xspline.spaces.instants import STANDARD, Array, Floats

KINDS = ("number", "time", "timedelta")
ROLES = {"lat": "latitude", "lon": "longitude", "long": "longitude"} | {
    role: role for role in ("latitude", "longitude", "time")
}


@dataclass(frozen=True)
class Axis:
    """How the labels of one coordinate are read as float64.

    Parameters
    ----------
    kind : {"number", "time", "timedelta"}
        Times are seconds since the epoch, timedeltas are seconds.
    units : str
        Units of the float; always ``"s"`` for time and timedelta.
    calendar : str, optional
        Of a time. ``standard``, ``gregorian`` and ``proleptic_gregorian`` are one: ``"standard"``.
    wrap : float, optional
        Labels this far apart are one place: 360 for a longitude in degrees.
    role : {"", "latitude", "longitude", "time"}
        What the coordinate is, for the sphere and for the default directions of a gradient.
    epoch : int
        Of a time, whole seconds after 1970-01-01 of the calendar. A Space sets it (`near`), and no file holds it: it
        follows from the domain.
    """

    kind: str = "number"
    units: str = ""
    calendar: str | None = None
    wrap: float | None = None
    role: str = ""
    epoch: int = 0

    def __post_init__(self) -> None:
        if not (isinstance(self.kind, str) and self.kind in KINDS):
            raise ValueError(f"axis kind {brief(self.kind)} is none of {', '.join(KINDS)}")
        calendar = instants.canonical_calendar(self.calendar or STANDARD) if self.kind == "time" else None
        object.__setattr__(self, "calendar", calendar)
        if self.kind != "number":
            object.__setattr__(self, "units", "s")

    # --- labels

    def near(self, lo: float, hi: float, period: float = math.inf) -> Axis:
        """The axis of times with an epoch near them, if seconds since 1970-01-01 would tell them apart too coarsely.

        `lo` and `hi` are their range, as floats of this axis, and `period` is the shortest one of the basis, in
        seconds.
        """
        largest = max(abs(lo), abs(hi))
        if self.kind != "time" or self.epoch or not math.isfinite(largest):
            return self
        # In 2024 times get an epoch where a domain is shorter than 4.5 hours, or a period than 4 minutes.
        fine = np.spacing(largest) <= 2.0**-30 * min((hi - lo) / 64, period)
        return self if fine else replace(self, epoch=math.floor(lo))

    def to_float(self, labels: Any) -> Floats:
        """Labels as float64 of the same shape: numbers, or seconds; missing labels are NaN.

        Times may be datetime64 of any unit, cftime dates of the calendar, datetimes and ISO strings like "2010-01-15"
        or "20100115" (a partial date is its first instant, a year of more than four digits has a sign); timedeltas may
        be timedelta64, datetime.timedelta and "6h".

        Raises
        ------
        TypeError, ValueError
            For labels of another kind or calendar, with what to pass.
        """
        array = _as_array(labels)
        if self.kind == "number":
            if array.dtype.kind not in "iufbO":
                raise TypeError(f"labels of type {array.dtype} on a coordinate of numbers; pass numbers")
            try:
                return array.astype(np.float64)
            except (TypeError, ValueError):
                types = ", ".join(sorted({type(label).__name__ for label in array.ravel()}))
                raise TypeError(f"labels of type {types} on a coordinate of numbers; pass numbers") from None
        if array.size == 0:
            return np.zeros(array.shape)
        if array.dtype.kind == ("M" if self.kind == "time" else "m") and self.calendar in (STANDARD, None):
            return instants.seconds_of_integers(array, self.epoch)
        if array.dtype.kind not in "OUSTM":
            wanted = "datetime64, cftime dates or ISO strings"
            if self.kind == "timedelta":
                wanted = "timedelta64 or strings such as '6h'"
            raise TypeError(f"labels of type {array.dtype} on a {self.noun} coordinate; pass {wanted}")
        # One by one: strings, objects, and datetime64 on another calendar (which is refused).
        labels = array if array.dtype.kind == "M" else array.astype(object)
        if self.kind == "time":
            return instants.seconds_of_objects(labels, self.calendar or STANDARD, self.epoch)
        lengths = [
            np.nan if label is None or str(label) == "NaT" else instants.seconds_of_duration(label, None)
            for label in labels.ravel()
        ]
        return np.array(lengths).reshape(array.shape)

    @property
    def noun(self) -> str:
        """What the labels are, for messages."""
        return f"time ({self.calendar} calendar)" if self.kind == "time" else self.kind

    def to_label(self, x: Any) -> Array:
        """Inverse of `to_float`: datetime64[ns] ([us] outside its range), cftime dates, timedelta64, floats.

        Seconds are rounded to nanoseconds, or to microseconds where float64 does not tell those apart.
        """
        values = np.asarray(x, dtype=np.float64)
        if self.kind == "number":
            return values
        return instants.labels_of_seconds(values, self.kind, self.calendar, self.epoch)

    def text(self, x: float) -> str:
        """One label for messages and files: ISO instant, ``"…s"`` or number; reads back as `x` exactly."""
        if self.kind == "time":
            return instants.text_of_seconds(float(x), self.calendar or STANDARD, self.epoch)
        return repr(float(x)) + ("s" if self.kind == "timedelta" else "")

    # --- lengths

    def duration(self, value: Any, what: str) -> float:
        """A period or spacing as a float in the coordinate's unit (seconds for time and timedelta).

        `value` is a number on a number axis; else "365.2425D", "6h", "year" (the mean year of the calendar), "day" or
        a timedelta. `what` is the name of the argument, for messages.
        """
        if self.kind == "number":
            if not _is_number(value):
                unit = f" (in {self.units})" if self.units else ""
                raise TypeError(f"{what}={value!r} on a coordinate of numbers; pass a number{unit}")
            length = float(value)
        elif _is_number(value):
            example = f'{what}="{value}D"' if what == "spacing" else f'Fourier(2, period="{value}D")'
            raise TypeError(
                f"{what}={value!r} is a bare number on a {self.noun} coordinate; "
                f"give it a unit, as in {example}"
            )
        else:
            try:
                length = instants.seconds_of_duration(value, self.calendar)
            except (TypeError, ValueError) as error:
                raise type(error)(f"{what}: {error}") from None
        if not (np.isfinite(length) and length > 0):
            raise ValueError(f"{what}={value!r} must be positive and finite")
        return length

    # --- as data

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; what has its default is left out, and the epoch."""
        given = {key: value for key, value in asdict(self).items() if key != "epoch"}
        return {key: value for key, value in given.items() if value not in ("", None)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Axis:
        """Inverse of `to_dict`."""
        return cls(**data)

    @classmethod
    def infer(cls, name: str, labels: Any) -> Axis:
        """Axis of labels without attributes: the kind from their type, the role from a known name."""
        array, label, text = _as_array(labels), None, ""
        if array.dtype.kind not in "iufbMm":  # the first label that is not missing decides
            label = next((label for label in array.ravel() if label is not None and label == label), 0.0)
            text = str(label) if isinstance(label, str) else ""
        if isinstance(label, cftime.datetime):
            return cls("time", calendar=label.calendar, role="time")
        is_length = text in ("year", "day") or instants.DURATION.fullmatch(text)
        if array.dtype.kind == "m" or isinstance(label, datetime.timedelta | np.timedelta64) or is_length:
            return cls("timedelta", role="time")
        is_date = instants.INSTANT.fullmatch(instants.with_hyphens(text))
        if array.dtype.kind == "M" or isinstance(label, datetime.date | np.datetime64) or is_date:
            return cls("time", role="time")
        if label is None or _is_number(label):
            role = ROLES.get(str(name).lower(), "")
            return cls(wrap=360.0 if role == "longitude" else None, role=role)
        raise TypeError(
            f"{text or label!r} is not a coordinate label; "
            "pass numbers, datetime64, cftime dates, timedelta64 or ISO strings"
        )


def _as_array(labels: Any) -> Array:
    """np.asarray that keeps mixed labels as objects and masked entries as missing."""
    if isinstance(labels, np.ma.MaskedArray):
        plain = np.asarray(labels.data)
        missing: Any = np.nan
        if plain.dtype.kind in "Mm":
            missing = np.array("NaT", dtype=plain.dtype)
        elif plain.dtype.kind == "O":
            missing = np.array(None, dtype=object)
        return np.where(np.ma.getmaskarray(labels), missing, plain)
    if isinstance(labels, list | tuple):
        # NumPy would turn labels of several types into strings.
        if len({type(label) for label in labels}) > 1 and not all(map(_is_number, labels)):
            array = np.empty(len(labels), dtype=object)
            array[:] = labels
            return array
    return np.asarray(labels)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(
        value, bool | np.timedelta64
    )
