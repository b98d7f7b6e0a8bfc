"""What the names in an equation mean: values and derivatives of the field, coordinates, knowns, else parameters.

A constant that varies is a sum Σ_j θ_j B_j(x) of given functions: its coefficients θ_j are parameters, each B_j a name.
"""

from __future__ import annotations

import collections
import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from numbers import Number, Real
from typing import Any, TypeAlias

import numpy as np

from xspline.labels.derivatives import checked_orders
from xspline.labels.errors import check_names
from xspline.labels.field_base import FieldBase
from xspline.labels.statistics import Statistics
from xspline.pde.text.expression import FUNCTIONS
from xspline.spaces import Axis, Basis, BSpline, Features, Space, as_basis

#: Letters that mean a coordinate by its role, where no coordinate has that letter for a name.
_ROLES = {"t": "time", "x": "longitude", "y": "latitude"}


@dataclass(frozen=True)
class Value:
    """A variable of the field, or its derivative of positive `orders` by fitted coordinate, in Space order."""

    variable: str
    orders: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class CoordinateSymbol:
    """Labels of a fitted coordinate as numbers: its own, or seconds for times."""

    name: str


@dataclass(frozen=True)
class KnownSymbol:
    """What the caller passed in ``known=``."""

    name: str


@dataclass(frozen=True, eq=False)
class Varying:
    """A constant that varies: a sum of products of one function along each of its coordinates.

    `coordinates` are fitted ones, in the order of the text. `axes` tell how labels of each are read, `features` are the
    functions along each, and `ends` those of the domain along each, as floats of its axis.
    """

    name: str
    coordinates: tuple[str, ...]
    axes: tuple[Axis, ...]
    features: tuple[Features, ...]
    ends: tuple[tuple[float, float], ...]

    @property
    def indices(self) -> list[tuple[int, ...]]:
        """Of its products."""
        return list(itertools.product(*(range(f.size) for f in self.features)))

    def parameter(self, index: tuple[int, ...]) -> str:
        """What the coefficient of a product is called."""
        return f"{self.name}[{', '.join(map(str, index))}]"


@dataclass(frozen=True, eq=False)
class Shape:
    """One of the products of a constant that varies, or its derivative of `orders` along each of its coordinates."""

    varying: Varying
    index: tuple[int, ...]
    orders: tuple[int, ...]

    def value(self, along: Callable[[str, Callable[[Any], Any]], Any]) -> Any:
        """Return its value; `along` applies a function of labels as floats to those of a coordinate."""
        total: Any = 1.0
        own = self.varying
        for name, f, j, order in zip(own.coordinates, own.features, self.index, self.orders, strict=True):

            def design(x: Any, f: Features = f, j: int = j, order: int = order) -> Any:
                return f.design(np.ravel(x), order)[:, j].reshape(np.shape(x))

            total = total * along(name, design)
        return total


Symbol = Value | CoordinateSymbol | KnownSymbol | Shape

#: What has variables and a space, before or after a fit.
Fitted: TypeAlias = FieldBase[Any] | Statistics[Any]


def checked_known(known: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what is known; TypeError where it is no mapping, ValueError where a number is not finite."""
    if not isinstance(known, Mapping | None):
        raise TypeError(f"known has to be a mapping of names to values, such as {{'D': 0.05}}, not {known!r}")
    for name, value in (known or {}).items():
        if isinstance(value, Real) and not math.isfinite(value):
            raise ValueError(
                f"known {name!r} is {value}; pass a finite number, or what varies as an array or field"
            )
    return dict(known or {})


def arguments_code(
    known: Mapping[str, Any] | None, dims: Mapping[str, str] | None, vary: Mapping[str, Any] | None = None
) -> str:
    """Return the arguments of an equation as Python, after commas: numbers and bases spelt out, others by name."""

    def written(value: Any) -> str:
        if isinstance(value, Mapping):
            return f"{{{', '.join(f'{name!r}: {written(own)}' for name, own in value.items())}}}"
        if isinstance(value, Basis):
            return value.code("xs.")
        return str(value) if isinstance(value, Real) else repr(value)

    numbers = (f"{n!r}: {written(x) if isinstance(x, Real) else n}" for n, x in (known or {}).items())
    return "".join(
        (
            f", known={{{', '.join(numbers)}}}" if known else "",
            f", vary={written(vary)}" if vary else "",
            f", dims={dict(dims)!r}" if dims else "",
        )
    )


@dataclass(frozen=True, eq=False)
class Names:
    """The names that have a meaning before any equation is read."""

    space: Space  # of the field
    stems: Mapping[str, str]  # what the field's variables are called, by their own name or by ``u``
    letters: Mapping[str, str]  # the fitted coordinate that each letter of a derivative means
    known: frozenset[str]  # names that the caller gives values for
    batch: frozenset[str]  # coordinates that are not fitted
    numbers: frozenset[str] = frozenset()  # known names whose values are numbers
    zeros: frozenset[str] = frozenset()  # known names whose values are 0
    # the functions of each constant that varies, as the caller gave them
    vary: Mapping[str, Any] = field(default_factory=dict)
    dims: Mapping[str, str] = field(default_factory=dict)  # the letters that the caller gave

    @classmethod
    def of(
        cls,
        field: Fitted,
        dims: Mapping[str, str] | None,
        known: Iterable[str],
        vary: Mapping[str, Any] | None = None,
    ) -> Names:
        """Return the names of a field.

        It raises ValueError where a known has the name of a variable, or `dims` has a key that is no letter, a
        coordinate that is not fitted, or one twice.
        """
        given = frozenset(known)
        variables = list(field.variables)
        space = field.space
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
            check_names([name], space.names)
        if twice := [name for name, n in collections.Counter(dims.values()).items() if n > 1]:
            raise ValueError(f"dims={dict(dims)} names {twice[0]!r} twice; give each coordinate one letter")
        # Letters mean what `dims` says, then names of one letter, then roles; x is the only one left.
        roles = {}
        for name in space.names:
            axis = space.axis(name)
            roles[name] = "time" if axis.kind != "number" or name.lower() == "time" else axis.role
        meanings = {name: name for name in space.names if len(name) == 1}
        for letter, role in _ROLES.items():
            matching = [name for name in space.names if roles[name] == role]
            if letter not in meanings and len(matching) == 1:
                meanings[letter] = matching[0]
        left = [n for n in space.names if n not in {*meanings.values(), *dims.values()}]
        if len(left) == 1 and "x" not in {*meanings, *dims}:  # the one that is left, whatever its name
            meanings["x"] = left[0]
        others = {a: name for a, name in meanings.items() if a not in dims and name not in dims.values()}
        values = known if isinstance(known, Mapping) else {}
        numbers = frozenset(name for name, value in values.items() if isinstance(value, Number))
        zeros = frozenset(name for name in numbers if values[name] == 0)
        letters = {**dims, **others}
        names = cls(space, stems, letters, given, frozenset(map(str, batch)), numbers, zeros, dims=dims)
        own = vary or {}  # every name may be a parameter's
        if not isinstance(own, Mapping):
            raise TypeError(
                f"vary has to be a mapping of constants to bases, such as {{'D': 6}}, not {own!r}"
            )
        for name in own:
            if name in names.letters or name in space.names:
                raise ValueError(f"{name} in vary= is a coordinate; call the constant something else")
            if names.meaning(name) is not None:
                raise ValueError(f"{name} in vary= is known or fitted; call the constant something else")
        return replace(names, vary=own)

    def meaning(self, name: str) -> Symbol | None:
        """Return what a name stands for; None if it is a parameter.

        It raises ValueError where the name looks like a derivative and is none, or cannot be a parameter.
        """
        if name in self.known:
            return KnownSymbol(name)
        if name in self.stems:
            return Value(self.stems[name])
        stem, _, suffix = name.rpartition("_")
        if stem in self.stems:
            strangers = [letter for letter in suffix if letter not in self.letters]
            if strangers or not suffix:
                legend = (
                    ", ".join(f"{letter} for {name!r}" for letter, name in self.letters.items()) or "none"
                )
                if letter := next((a for a, c in self.letters.items() if c == suffix), ""):
                    raise ValueError(f"{name}: the derivative along {suffix!r} is written {stem}_{letter}")
                where = f"{strangers[0]!r}, which is no coordinate here" if strangers else "no coordinate"
                raise ValueError(
                    f"{name} is a derivative along {where}; the letters are {legend}; pass "
                    "dims={letter: coordinate} for others"
                )
            counted = collections.Counter(self.letters[letter] for letter in suffix)
            return Value(self.stems[stem], tuple(checked_orders(self.space, dict(counted), {}).items()))
        if name in self.letters:
            return CoordinateSymbol(self.letters[name])
        if name in self.space.names:
            return CoordinateSymbol(name)
        # A parameter, unless its name says that something else was meant.
        fitted = ", ".join(dict.fromkeys(self.stems))
        if stem in self.known and suffix:
            raise ValueError(
                f"{name} looks like a derivative of the known {stem!r}; pass it as known={{{name!r}: ...}} itself"
            )
        if stem in self.vary and suffix:
            raise ValueError(
                f"{name} looks like a derivative of {stem!r}, which varies; write for example ({stem}(x))_{suffix}"
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

    def varying(self, name: str, letters: tuple[str, ...]) -> Varying | None:
        """Return a constant that varies with some coordinates, by their letters; None if it cannot.

        It raises ValueError or TypeError where its bases are along other coordinates, or are none.
        """
        coordinates = tuple(self.letters.get(letter, letter) for letter in letters)
        distinct = set(coordinates)
        if not letters or len(distinct) < len(letters) or not distinct <= set(self.space.names):
            return None
        given = self.vary[name]
        if isinstance(given, Mapping):
            by_coordinate = {self.letters.get(letter, letter): basis for letter, basis in given.items()}
            if set(by_coordinate) != set(coordinates):
                raise ValueError(
                    f"vary={{{name!r}: ...}} has bases along {', '.join(map(str, given))}, but the equation has "
                    f"{name}({', '.join(letters)})"
                )
        else:
            by_coordinate = dict.fromkeys(coordinates, given)
        bound = []
        for coordinate in coordinates:
            axis, own = self.space.axis(coordinate), self.space.basis(coordinate)
            ends = self.space.features[self.space.names.index(coordinate)].domain or own.integral_range(axis)
            try:
                basis = as_basis(by_coordinate[coordinate])
                if (
                    isinstance(basis, BSpline)
                    and basis.needs_extent
                    and isinstance(own, BSpline)
                    and own.period
                ):
                    basis = replace(basis, period=own.period, domain=own.domain)
                bound.append((axis, basis.bind(axis, ends, name=coordinate).on(axis), ends))
            except (ValueError, TypeError) as error:
                raise type(error)(f"{name} in vary=: {error}") from None
        axes, features, domain = zip(*bound, strict=True)
        return Varying(name, coordinates, axes, features, domain)

    def derivative(self, name: str, symbol: Symbol, letter: str) -> tuple[str, Symbol] | None:
        """Return the derivative of what a name stands for along a coordinate; None where it is zero.

        It raises ValueError where this is one of something known and not known itself, or its order is above the
        degree.
        """
        match symbol:
            case Value(orders=orders):
                longer = f"{name}{letter}" if orders else f"{name}_{letter}"
                meaning = self.meaning(longer)
                return None if meaning is None else (longer, meaning)
            case Shape(varying=varying, index=index, orders=orders):
                coordinate = self.letters[letter]
                if coordinate not in varying.coordinates:
                    return None
                more = tuple(o + (c == coordinate) for c, o in zip(varying.coordinates, orders, strict=True))
                longer = f"{name}{letter}" if any(orders) else f"{name}_{letter}"
                return longer, Shape(varying, index, more)
            case KnownSymbol(name=given) if given not in self.numbers:
                longer = f"{given}{letter}" if "_" in given else f"{given}_{letter}"
                if longer not in self.known:
                    raise ValueError(
                        f"needs the derivative {longer} of the known {given!r}; pass known={{{longer!r}: ...}} too"
                    )
                return longer, KnownSymbol(longer)
        return None
