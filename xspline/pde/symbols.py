"""What the names in an equation mean: values and derivatives of the field, coordinates, knowns, else parameters."""

from __future__ import annotations

import collections
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from xspline.labels.derivatives import checked_orders
from xspline.labels.errors import unknown_name
from xspline.labels.field_base import FieldBase
from xspline.labels.statistics import Statistics
from xspline.pde.expression import FUNCTIONS
from xspline.spaces import Space

#: Letters that mean a coordinate by its role, where no coordinate has that letter for a name.
_ROLES = {"t": "time", "x": "longitude", "y": "latitude"}


@dataclass(frozen=True)
class Value:
    """A variable of the field, or its derivative of positive `orders` by fitted coordinate, in Space order."""

    variable: str
    orders: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Coordinate:
    """Labels of a fitted coordinate as numbers: its own, or seconds for times."""

    name: str


@dataclass(frozen=True)
class Known:
    """What the caller passed in ``known=``."""

    name: str


Symbol = Value | Coordinate | Known

#: What has variables and a space, before or after a fit.
Fitted: TypeAlias = FieldBase[Any] | Statistics[Any]


@dataclass(frozen=True, eq=False)
class Names:
    """The names that have a meaning before any equation is read.

    Attributes
    ----------
    space : of the field.
    stems : what the field's variables are called, by their own name or by ``u``.
    letters : the fitted coordinate that each letter of a derivative means.
    known : names that the caller gives values for.
    batch : coordinates that are not fitted.
    """

    space: Space
    stems: Mapping[str, str]
    letters: Mapping[str, str]
    known: frozenset[str]
    batch: frozenset[str]

    @classmethod
    def of(cls, field: Fitted, dims: Mapping[str, str] | None, known: Iterable[str]) -> Names:
        """Return the names of a field.

        Raises
        ------
        ValueError
            A known has the name of a variable, or `dims` has a key that is no letter, a coordinate that is not fitted,
            or one twice.
        """
        given, variables, space = frozenset(known), list(field.variables), field.space
        if taken := given & set(variables):
            raise ValueError(
                f"{sorted(taken)} in known= is a fitted variable too; call what is known something else"
            )
        stems = {name: name for name in variables}
        if len(variables) == 1 and "u" not in given:
            stems["u"] = variables[0]
        batch: set[Hashable] = {c for v in field.variables.values() for c in (*v.batch_dims, *v.batch.coords)}
        dims = dims or {}
        if not isinstance(dims, Mapping):
            raise TypeError(
                f"dims has to be a mapping of letters to fitted coordinates, such as {{'x': 'lon'}}, not {dims!r}"
            )
        for letter, name in dims.items():
            if not (isinstance(letter, str) and len(letter) == 1 and letter.isalpha()):
                raise ValueError(f"dims maps letters to fitted coordinates; {letter!r} is not a letter")
            if name not in space.names:
                raise unknown_name(str(name), "fitted coordinate", space.names)
        if twice := [name for name, n in collections.Counter(dims.values()).items() if n > 1]:
            raise ValueError(f"dims={dict(dims)} names {twice[0]!r} twice; give each coordinate one letter")
        # Letters mean what `dims` says, then names of one letter, then time, longitude and latitude.
        roles = {}
        for name in space.names:
            axis = space.axis(name)
            roles[name] = "time" if axis.kind != "number" or name.lower() == "time" else axis.role
        meanings = {name: name for name in space.names if len(name) == 1}
        for letter, role in _ROLES.items():
            matching = [name for name in space.names if roles[name] == role]
            if letter not in meanings and len(matching) == 1:
                meanings[letter] = matching[0]
        others = {a: name for a, name in meanings.items() if a not in dims and name not in dims.values()}
        return cls(space, stems, {**dims, **others}, given, frozenset(map(str, batch)))

    def meaning(self, name: str) -> Symbol | None:
        """Return what a name stands for; None if it is a parameter.

        Raises
        ------
        ValueError
            It looks like a derivative and is none, or cannot be a parameter.
        """
        if name in self.known:
            return Known(name)
        if name in self.stems:
            return Value(self.stems[name])
        stem, _, suffix = name.rpartition("_")
        if stem in self.stems:
            strangers = [letter for letter in suffix if letter not in self.letters]
            if strangers or not suffix:
                legend = (
                    ", ".join(f"{letter} for {name!r}" for letter, name in self.letters.items()) or "none"
                )
                where = f"{strangers[0]!r}, which is no coordinate here" if strangers else "no coordinate"
                raise ValueError(
                    f"{name} is a derivative along {where}; the letters are {legend}; pass "
                    "dims={letter: coordinate} for others"
                )
            counted = collections.Counter(self.letters[letter] for letter in suffix)
            return Value(self.stems[stem], tuple(checked_orders(self.space, dict(counted), {}).items()))
        if name in self.letters:
            return Coordinate(self.letters[name])
        if name in self.space.names:
            return Coordinate(name)
        # A parameter, unless its name says that something else was meant.
        fitted = ", ".join(dict.fromkeys(self.stems))
        if stem in self.known and suffix:
            raise ValueError(
                f"{name} looks like a derivative of the known {stem!r}; pass it as known={{{name!r}: ...}} itself"
            )
        if stem and suffix and set(suffix) <= set(self.letters):
            raise ValueError(
                f"{name} looks like a derivative of {stem!r}, which is not a fitted variable ({fitted}); "
                f"call a parameter something else, for example {stem}{suffix}"
            )
        if name in FUNCTIONS:
            raise ValueError(f"{name} is a function and no parameter; write {name}(...)")
        if name in self.batch:
            raise ValueError(
                f"{name} is a coordinate that was not fitted; pass its values as known={{{name!r}: ...}}, or rename "
                f"the parameter"
            )
        return None
