"""Units of coordinates: which of them are one, and how numbers go from one to the other."""

from __future__ import annotations

import math
from typing import Any, NamedTuple


class Scale(NamedTuple):
    """x units are x · numerator / denominator + offset units of the base."""

    base: str
    numerator: float = 1.0
    denominator: float = 1.0
    offset: float = 0.0


def _plural(*names: str) -> tuple[str, ...]:
    return (*names, *(f"{name}s" for name in names))


def _spelt(scale: Scale, *names: str) -> dict[str, Scale]:
    return dict.fromkeys(names, scale)


def _degrees(direction: str) -> tuple[str, ...]:
    letter = direction[0].upper()
    return tuple(f"degree{s}{end}" for s in ("", "s") for end in (f"_{direction}", f"_{letter}", letter))


# As UDUNITS spells them, as far as coordinates have them. West and south count the other way.
TABLE: dict[str, Scale] = {
    **_spelt(Scale("m"), "m", *_plural("metre", "meter")),
    **_spelt(Scale("m", 1000), "km", *_plural("kilometre", "kilometer")),
    **_spelt(Scale("m", 1, 10), "dm", *_plural("decimetre", "decimeter")),
    **_spelt(Scale("m", 1, 100), "cm", *_plural("centimetre", "centimeter")),
    **_spelt(Scale("m", 1, 1000), "mm", *_plural("millimetre", "millimeter")),
    **_spelt(Scale("m", 1, 10**6), "um", "µm", *_plural("micrometre", "micrometer", "micron")),
    **_spelt(Scale("m", 1852), *_plural("nautical_mile")),
    **_spelt(Scale("m", 3048, 10000), "ft", "foot", "feet"),
    **_spelt(Scale("s"), "s", "sec", "secs", *_plural("second")),
    **_spelt(Scale("s", 1, 1000), "ms", "msec", *_plural("millisecond")),
    **_spelt(Scale("s", 1, 10**6), "us", "µs", *_plural("microsecond")),
    **_spelt(Scale("s", 60), "min", "mins", *_plural("minute")),
    **_spelt(Scale("s", 3600), "h", "hr", "hrs", *_plural("hour")),
    **_spelt(Scale("s", 86400), "d", *_plural("day")),
    **_spelt(Scale("s", 7 * 86400), *_plural("week")),
    **_spelt(Scale("Pa"), "Pa", *_plural("pascal")),
    **_spelt(Scale("Pa", 100), "hPa", "mb", "mbar", *_plural("hectopascal", "millibar")),
    **_spelt(Scale("Pa", 1000), "kPa", *_plural("kilopascal")),
    **_spelt(Scale("Pa", 10**4), "dbar", *_plural("decibar")),
    **_spelt(Scale("Pa", 10**5), *_plural("bar")),
    **_spelt(Scale("Pa", 101325), "atm", *_plural("atmosphere")),
    **_spelt(Scale("degree"), "deg", "°", *_plural("degree"), *_degrees("north"), *_degrees("east")),
    **_spelt(Scale("degree", -1), *_degrees("south"), *_degrees("west")),
    **_spelt(Scale("degree", 180, math.pi), "rad", *_plural("radian")),
    **_spelt(Scale("degree", 1, 60), "arcmin", *_plural("arcminute", "arc_minute", "minute_of_arc")),
    **_spelt(Scale("degree", 1, 3600), "arcsec", *_plural("arcsecond", "arc_second")),
    **_spelt(Scale("K"), "K", *_plural("kelvin", "Kelvin", "degree_K")),
    **_spelt(Scale("K", 1, 1, 273.15), "degC", "degreeC", "celsius", "Celsius", "degree_C", "degrees_C"),
    **_spelt(Scale("K", 1, 1, 273.15), *(f"degree{s}_{c}elsius" for s in ("", "s") for c in "cC")),
    **_spelt(Scale("1"), "1", "dimensionless", "level", "layer", "sigma_level"),
    **_spelt(Scale("1", 1, 100), "%", "percent"),
}


def scale_of(units: str, base: str) -> float | None:
    """How many units of `base` one of `units` is; None where it is of another quantity."""
    scale = TABLE.get(units.strip())
    if scale is None or scale.base != TABLE[base].base or scale.offset:
        return None
    return scale.numerator / scale.denominator


def converted(x: Any, given: str, wanted: str) -> Any:
    """Numbers in other units; as they are where the units are the same, or either says nothing.

    Raises
    ------
    ValueError
        The units measure different things, or are not known.

    Examples
    --------
    >>> converted(np.array([1.5]), "km", "m"), converted(np.array([1.5]), "hours", "h")
    (array([1500.]), array([1.5]))
    """
    given, wanted = given.strip(), wanted.strip()
    if not given or not wanted or given == wanted:
        return x
    mine, theirs = TABLE.get(given), TABLE.get(wanted)
    if mine is None or theirs is None or mine.base != theirs.base:
        unknown = [repr(units) for units, scale in ((given, mine), (wanted, theirs)) if scale is None]
        why = f"{' and '.join(unknown)} cannot be converted" if unknown else "these measure different things"
        raise ValueError(
            f"its labels have units {given!r}, and the fitted coordinate has {wanted!r}: {why}; convert the labels to "
            f"{wanted!r}, or, where the attribute is wrong, correct it (attrs['units'])"
        )
    if mine == theirs:
        return x
    # One product and one quotient of whole numbers: 1500 m are exactly 1.5 km.
    base = x * (mine.numerator * theirs.denominator) / (mine.denominator * theirs.numerator)
    shift = (mine.offset - theirs.offset) * theirs.denominator / theirs.numerator
    return base + shift if shift else base


def are_one(a: str, b: str) -> bool:
    """Whether two units are the same, or either says nothing."""
    a, b = a.strip(), b.strip()
    return not a or not b or a == b or (a in TABLE and TABLE.get(a) == TABLE.get(b))
