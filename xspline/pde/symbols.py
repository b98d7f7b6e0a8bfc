"""What the names in an equation mean: values and derivatives of the field, coordinates, knowns, else parameters."""

from __future__ import annotations

import collections
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from xspline.labels.derivatives import checked_orders
from xspline.labels.errors import unknown_name
from xspline.labels.field_base import FieldBase
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
    def of(cls, field: FieldBase[Any], dims: Mapping[str, str] | None, known: Iterable[str]) -> Names:
        """Return the names of a field.

        Raises
        ------
        ValueError
            A known has the name of a variable, or `dims` names a coordinate that is not fitted or is there twice.
        """
        given, variables = frozenset(known), list(field.variables)
        if taken := given & set(variables):
            raise ValueError(
                f"{sorted(taken)} in known= is a fitted variable too; call what is known something else"
            )
        stems = {name: name for name in variables}
        if len(variables) == 1 and "u" not in given:
            stems["u"] = variables[0]
        batch: set[Hashable] = {c for v in field.variables.values() for c in (*v.batch_dims, *v.batch.coords)}
        return cls(field.space, stems, letters(field.space, dims), given, frozenset(map(str, batch)))

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
            return Value(self.stems[stem], self._orders(name, suffix))
        if name in self.letters:
            return Coordinate(self.letters[name])
        if name in self.space.names:
            return Coordinate(name)
        self._check_parameter(name, stem, suffix)
        return None

    def _orders(self, name: str, suffix: str) -> tuple[tuple[str, int], ...]:
        strangers = [letter for letter in suffix if letter not in self.letters]
        if strangers or not suffix:
            legend = ", ".join(f"{letter} for {name!r}" for letter, name in self.letters.items()) or "none"
            what = (
                f"along {strangers[0]!r}, which is no coordinate here" if strangers else "along no coordinate"
            )
            raise ValueError(
                f"{name} is a derivative {what}; the letters are {legend}; pass dims={{letter: coordinate}} "
                f"for others"
            )
        counted = collections.Counter(self.letters[letter] for letter in suffix)
        return tuple(checked_orders(self.space, dict(counted), {}).items())

    def _check_parameter(self, name: str, stem: str, suffix: str) -> None:
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


def letters(space: Space, dims: Mapping[str, str] | None) -> dict[str, str]:
    """Return the fitted coordinate of each letter: `dims`, then names of one letter, then time, longitude and latitude.

    Raises
    ------
    ValueError
        `dims` has a key that is no letter, a coordinate that is not fitted, or one twice.
    """
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
    given = dict(dims)
    roles = {
        name: "time" if space.axis(name).kind != "number" or name.lower() == "time" else space.axis(name).role
        for name in space.names
    }
    meanings = {name: name for name in space.names if len(name) == 1}
    for letter, role in _ROLES.items():
        matching = [name for name in space.names if roles[name] == role]
        if letter not in meanings and len(matching) == 1:
            meanings[letter] = matching[0]
    return given | {a: name for a, name in meanings.items() if a not in given and name not in given.values()}
