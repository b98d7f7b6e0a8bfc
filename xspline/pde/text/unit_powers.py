"""Units as powers of base units, enough to say what a parameter is measured in."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from xspline.pde.text import expression
from xspline.pde.text.equation import Equation

_FACTOR = re.compile(r"\s*[.·*]?\s*(/?)\s*([A-Za-zµ°%_]+)(?:(?:\^|\*\*)?([+-]?\d+))?")
_DEGREES = re.compile(r"degrees?(_?(north|south|east|west|[NSEW]))?")
_SAME = {
    **dict.fromkeys(("degC", "celsius", "Celsius", "degree_Celsius", "degrees_Celsius"), "K"),
    **dict.fromkeys(("sec", "seconds", "second"), "s"),
}
_UNKNOWN = "?"


class Mismatch(ValueError):
    """Terms of different units are added."""


@dataclass(frozen=True)
class Unit:
    """A product of powers.

    `powers` are the exponents of base units, none of them zero; a base that starts with ``?`` stands for units that are
    not known, and may cancel. `number` is that of a literal, which takes the units of whatever it is added to.
    """

    powers: tuple[tuple[str, float], ...] = ()
    number: float | None = None

    @classmethod
    def of(cls, powers: Mapping[str, float]) -> Unit:
        """Return the unit with these exponents."""
        return cls(tuple(sorted((base, float(n)) for base, n in powers.items() if n)))

    @classmethod
    def parse(cls, text: str, name: str) -> Unit:
        """Read ``"m2 s-1"``, ``"kg/m**3"``, ``"1"``; the unknown units of `name` where there are none, or odd ones."""
        powers: dict[str, float] = {}
        position, text = 0, text.strip()
        while position < len(text) and text != "1":
            match = _FACTOR.match(text, position)
            if match is None:
                return cls.of({f"{_UNKNOWN}{name}": 1})
            sign = -1 if match[1] else 1
            base = "degree" if _DEGREES.fullmatch(match[2]) else _SAME.get(match[2], match[2])
            powers[base] = powers.get(base, 0) + sign * int(match[3] or 1)
            position = match.end()
        return cls.of(powers if text else {f"{_UNKNOWN}{name}": 1})

    @property
    def is_known(self) -> bool:
        """Whether no unknown units are left."""
        return not any(base.startswith(_UNKNOWN) for base, _ in self.powers)

    def __str__(self) -> str:
        ordered = sorted(self.powers, key=lambda item: (item[1] < 0, item[0]))
        return " ".join(base if n == 1 else f"{base}{n:g}" for base, n in ordered) or "1"

    def __mul__(self, other: Unit) -> Unit:
        mine, theirs = dict(self.powers), dict(other.powers)
        product = Unit.of({b: mine.get(b, 0) + theirs.get(b, 0) for b in {**mine, **theirs}})
        are_numbers = self.number is not None and other.number is not None
        return Unit(product.powers, self.number) if are_numbers else product

    def __truediv__(self, other: Unit) -> Unit:
        return self * other.to(-1)

    def __add__(self, other: Unit) -> Unit:
        if self.number is not None:
            return other
        if other.number is not None or other.powers == self.powers or not other.is_known:
            return self
        if self.is_known:
            raise Mismatch(f"{self} and {other} are added")
        return other

    __sub__ = __add__

    def __neg__(self) -> Unit:
        return self

    def __pow__(self, exponent: Unit) -> Unit:
        if exponent.number is not None:
            return self.to(exponent.number)
        return self if not self.powers else Unit.of({f"{_UNKNOWN}power": 1})

    def to(self, n: float) -> Unit:
        """Return a power of the unit."""
        if self.number is not None:
            return self
        return Unit.of({base: m * n for base, m in self.powers})


_FUNCTIONS: dict[str, Callable[[Unit], Unit]] = {
    # A number, whose factor may give it any units.
    **dict.fromkeys(expression.FUNCTIONS_AND_SIGN, lambda unit: Unit(number=1.0)),
    "sqrt": lambda unit: unit.to(0.5),
    "abs": lambda unit: unit,
}


def of_parameters(equation: Equation, units: Mapping[str, Unit]) -> tuple[dict[str, str], list[str]]:
    """Return the units of each parameter, empty where they cannot be derived, and what does not fit together."""
    remarks: list[str] = []

    def unit_of(node: ast.expr) -> Unit:
        unit: Unit = expression.evaluate(node, units, _FUNCTIONS, lambda n: Unit(number=n))
        return unit

    try:
        response = unit_of(equation.response)
    except Mismatch as mismatch:
        remark = f"units of the terms without a parameter differ: {mismatch}"
        return {power.parameter: "" for power in equation.terms}, [remark]
    by_parameter = {}
    for power, factor in equation.terms.items():
        by_parameter[power.parameter] = ""
        try:
            unit = (response / unit_of(factor)).to(1 / power.exponent)
        except Mismatch as mismatch:
            remarks.append(f"units in the term of {power} differ: {mismatch}")
        else:
            if unit.is_known and response.number is None:
                by_parameter[power.parameter] = str(unit)
    return by_parameter, remarks
