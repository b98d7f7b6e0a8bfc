"""What all bases share: immutable, hashable, JSON-able definitions; `on` gives their numeric form."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields, replace
from functools import lru_cache
from typing import Any, ClassVar, TypeAlias

import numpy as np

from xspline.spaces._types import Array
from xspline.spaces.axis import Axis
from xspline.spaces.features import Features
from xspline.spaces.instants import plain_text

Domain: TypeAlias = tuple[Any, Any]
Extent: TypeAlias = tuple[float, float]


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Errors raised inside start with the coordinate's name."""
    try:
        yield
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{name}: {error}") from None


class Basis:
    """Functions of one coordinate. ``a + b`` is their union."""

    kinds: ClassVar[dict[str, type[Basis]]] = {}

    def __init_subclass__(cls) -> None:
        Basis.kinds[cls.__name__] = cls

    @property
    def domain(self) -> Domain | None:
        """(lo, hi) as the user gave it; of a bound basis floats, ISO text (time) or "…s" (timedelta)."""
        raise NotImplementedError

    @property
    def count(self) -> int:
        """Number of functions; known unless it follows from a spacing."""
        raise NotImplementedError

    @property
    def needs_extent(self) -> bool:
        """Whether `bind` takes the domain from the data."""
        raise NotImplementedError

    @property
    def spans(self) -> bool:
        """Whether its own domain is one that the other terms of a union share."""
        return self.domain is not None

    def bind(self, axis: Axis, extent: Extent | None, *, name: str) -> Basis:
        """Canonical form: domain filled in, spacing turned into a size, durations into floats or seconds.

        Parameters
        ----------
        axis : Axis
            How labels of the coordinate are read.
        extent : tuple of float or None
            Range of the data, as floats of the axis.
        name : str
            The coordinate, for messages.

        Raises
        ------
        TypeError, ValueError
            For a domain or duration that does not fit the axis, or a domain that is nowhere given.
        """
        with naming(name):
            bound = self._bind(axis, extent)
            bound.on(axis)
            return bound

    def _bind(self, axis: Axis, extent: Extent | None) -> Basis:
        raise NotImplementedError

    def on(self, axis: Axis) -> Features:
        """Numeric form of a bound basis (cached)."""
        return _features(self, axis)

    def _numeric(self, axis: Axis) -> Features:
        raise NotImplementedError

    def select(self, kind: type[Basis]) -> Array:
        """Mask [K] of the functions of one kind of term; the constant goes with the term that holds it."""
        return np.full(self.count, isinstance(self, kind))

    def with_domain(self, domain: Domain) -> Basis:
        """The same basis on another domain."""
        return replace(self, domain=domain)  # type: ignore[type-var]

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; what was not given is left out, except a degree."""
        items = [(f.name, plain(getattr(self, f.name))) for f in fields(self)]  # type: ignore[arg-type]
        return {
            "type": type(self).__name__,
            **{key: _listed(value) for key, value in items if value is not None},
        }

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Basis:
        """Inverse of `to_dict`."""
        kind = data.get("type")
        if kind not in Basis.kinds:
            raise ValueError(f"unknown type of basis {kind!r}; known are {', '.join(Basis.kinds)}")
        return Basis.kinds[kind]._from_arguments({key: value for key, value in data.items() if key != "type"})

    @classmethod
    def _from_arguments(cls, arguments: dict[str, Any]) -> Basis:
        return cls(**arguments)

    def _given(self) -> Iterator[tuple[str, Any]]:
        """(name, value) of the arguments that differ from their default, those without default first."""
        for f in fields(self):  # type: ignore[arg-type]
            value = getattr(self, f.name)
            if f.default is MISSING or value != f.default:
                yield f.name, plain(value)

    def code(self, prefix: str = "") -> str:
        """The Python expression that rebuilds the basis."""
        leading = self._leading
        arguments = [repr(value) if key == leading else f"{key}={value!r}" for key, value in self._given()]
        return f"{prefix}{type(self).__name__}({', '.join(arguments)})"

    @property
    def _leading(self) -> str:
        """The argument that is written without its name."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.code()

    def __add__(self, other: Basis) -> Basis:
        return Basis.kinds["Union"]((self, other)) if isinstance(other, Basis) else NotImplemented  # type: ignore[call-arg]


@lru_cache(maxsize=512)
def _features(basis: Basis, axis: Axis) -> Features:
    return basis._numeric(axis)


def as_basis(value: Any) -> Basis:
    """A basis as it is; an integer as a cubic B-spline of that size."""
    if isinstance(value, Basis):
        return value
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return Basis.kinds["BSpline"](value)  # type: ignore[call-arg]
    raise TypeError(f"expected a basis or an integer (the size of a cubic B-spline), got {value!r}")


def plain(value: Any) -> Any:
    return tuple(plain_text(v) for v in value) if isinstance(value, tuple) else plain_text(value)


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def pair(domain: Any) -> Domain:
    """A domain as a tuple of two plain labels, lo < hi if they are numbers."""
    if isinstance(domain, str) or not hasattr(domain, "__len__") or len(domain) != 2:
        raise ValueError(f"domain {domain!r} is not a pair; pass domain=(lo, hi)")
    lo, hi = (plain_number(end) for end in domain)
    if (
        isinstance(lo, int | float)
        and isinstance(hi, int | float)
        and not (lo < hi and math.isfinite(hi - lo))
    ):
        raise ValueError(f"domain ({lo!r}, {hi!r}) must have finite lo < hi")
    return lo, hi


def plain_number(value: Any) -> Any:
    """NumPy numbers as Python numbers; anything else as it is."""
    return value.item() if isinstance(value, np.generic) and value.dtype.kind in "iuf" else value


def count_of(value: Any, what: str, least: int) -> int:
    """An integer argument of at least `least`."""
    value = plain_number(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what}={value!r} must be an integer")
    if value < least:
        raise ValueError(f"{what}={value} must be at least {least}")
    return value


def assign(basis: Basis, **values: Any) -> None:
    for key, value in values.items():
        object.__setattr__(basis, key, value)


# --- labels of a bound basis


def stored(axis: Axis, x: float) -> float | str:
    """A label as a bound basis holds it."""
    return float(x) + 0.0 if axis.kind == "number" else axis.text(x)


def stored_duration(axis: Axis, length: float) -> float | str:
    return float(length) if axis.kind == "number" else f"{float(length)!r}s"


def range_of(axis: Axis, domain: Domain) -> Extent:
    """A domain as floats, lo < hi."""
    lo, hi = (float(axis.to_float(end)) for end in domain)
    if not (lo < hi and math.isfinite(hi - lo)):
        raise ValueError(
            f"domain ({plain_text(domain[0])!r}, {plain_text(domain[1])!r}) must have finite lo < hi"
        )
    return lo, hi


def bound_domain(basis: Basis, axis: Axis, extent: Extent | None) -> Domain:
    """The domain as given, else the extent of the data, in bound form."""
    if basis.domain is not None:
        lo, hi = range_of(axis, basis.domain)
    elif extent is None:
        raise ValueError(
            f"{basis!r} has no domain; pass domain=(lo, hi), "
            "or build the space from data with da.spline.space(...)"
        )
    else:
        lo, hi = (float(end) for end in extent)
        _check_extent(axis, lo, hi)
    return stored(axis, lo), stored(axis, hi)


def _check_extent(axis: Axis, lo: float, hi: float) -> None:
    if not (math.isfinite(lo) and math.isfinite(hi)):
        raise ValueError("the data have no finite labels to take a domain from; pass domain=(lo, hi)")
    if lo >= hi:
        raise ValueError(
            f"the data have the one label {axis.text(lo)}, which is no domain; pass domain=(lo, hi)"
        )
