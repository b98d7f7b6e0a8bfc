"""Units of coordinates: which of them are one, and how numbers go from one to the other."""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

from xspline.spaces.instants import STANDARD, seconds_of_object

# Quantity, and how many of its base units one is: spellings as UDUNITS has them, with or without an s where there is +.
# West and south count the other way; Celsius has an offset too.
_SPELLINGS = """
    length 1/1: m metre+ meter+
    length 1000/1: km kilometre+ kilometer+
    length 1/100: cm centimetre+ centimeter+
    length 1/1000: mm millimetre+ millimeter+
    time 1/1: s sec+ second+
    time 1/1000: ms msec millisecond+
    time 1/1000000: us µs microsecond+
    time 60/1: min+ minute+
    time 3600/1: h hr+ hour+
    time 86400/1: d day+
    pressure 1/1: Pa pascal+
    pressure 100/1: hPa mb mbar millibar+ hectopascal+
    pressure 1000/1: kPa kilopascal+
    pressure 10000/1: dbar decibar+
    pressure 100000/1: bar+
    pressure 101325/1: atm atmosphere+
    angle 1/1: deg ° degree+ degree+_north degree+_N degree+N degree+_east degree+_E degree+E
    angle -1/1: degree+_south degree+_S degree+S degree+_west degree+_W degree+W
    angle 180/pi: rad radian+
    temperature 1/1: K kelvin+ Kelvin+
    celsius 1/1: degC celsius Celsius degree+_C degree+_celsius degree+_Celsius
    share 1/1: 1 dimensionless level layer sigma_level
    share 1/100: % percent
"""


_COMPASS = re.compile(r"degrees?[ _](north|south|east|west)", re.IGNORECASE)


class Scale(NamedTuple):
    """x units are x · numerator / denominator + offset base units of the quantity."""

    quantity: str
    numerator: float
    denominator: float
    offset: float = 0.0


def _table() -> dict[str, Scale]:
    table: dict[str, Scale] = {}
    for line in _SPELLINGS.strip().splitlines():
        quantity, ratio, *names = line.replace(":", "").split()
        top, bottom = ratio.split("/")
        scale = Scale(quantity, float(top), math.pi if bottom == "pi" else float(bottom))
        if quantity == "celsius":
            scale = Scale("temperature", 1.0, 1.0, 273.15)
        table |= {name.replace("+", s): scale for name in names for s in ("", "s")}
    return table


_TABLE = _table()


def _scale_of(units: str) -> Scale | None:
    """Return what a text means; elapsed time, as in "days since 2000-01-01", is a quantity for each start."""
    unit, since, start = units.strip().partition(" since ")
    scale = _TABLE.get(unit)
    if scale is None or not since:
        return scale
    try:
        return scale._replace(quantity=f"time since {seconds_of_object(start, STANDARD)}")
    except ValueError:
        return None


def units_of(labelled: Any) -> str:
    """Return the units that attributes say, "Degrees North" as "degrees_north"; empty without any."""
    given = str(getattr(labelled, "attrs", {}).get("units") or "").strip()
    return given.lower().replace(" ", "_") if _COMPASS.fullmatch(given) else given


def degrees_in(units: str) -> float | None:
    """How many degrees one unit is, of which none means degrees; None where it is no angle."""
    scale = _TABLE.get(units.strip() or "degree")
    return scale.numerator / scale.denominator if scale and scale.quantity == "angle" else None


def converted(x: Any, given: str, wanted: str) -> Any:
    """Numbers in other units; as they are where the units are the same, or either says nothing.

    It raises ValueError where the units measure different things, or are not known.
    """
    if are_one(given, wanted):
        return x
    mine, theirs = _scale_of(given), _scale_of(wanted)
    if mine is None or theirs is None or mine.quantity != theirs.quantity:
        unknown = [repr(units) for units, scale in ((given, mine), (wanted, theirs)) if scale is None]
        why = f"{' and '.join(unknown)} cannot be converted" if unknown else "these measure different things"
        raise ValueError(
            f"its labels have units {given!r}, and the fitted coordinate has {wanted!r}: {why}; convert the labels to "
            f"{wanted!r}, or, where the attribute is wrong, correct it (attrs['units'])"
        )
    # One product and one quotient of whole numbers: 1500 m are exactly 1.5 km.
    base = x * (mine.numerator * theirs.denominator) / (mine.denominator * theirs.numerator)
    shift = (mine.offset - theirs.offset) * theirs.denominator / theirs.numerator
    return base + shift if shift else base


def are_one(a: str, b: str) -> bool:
    """Whether two units are the same, or either says nothing."""
    a, b = a.strip(), b.strip()
    scale = _scale_of(a)
    return not a or not b or a == b or (scale is not None and scale == _scale_of(b))
