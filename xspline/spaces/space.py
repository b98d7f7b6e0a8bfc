"""A tensor-product space: a basis for each coordinate, bound to domains that all holders share."""

from __future__ import annotations

import hashlib
import html
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NoReturn

import numpy as np

from xspline.spaces._types import Floats
from xspline.spaces.axis import Axis
from xspline.spaces.bases import BSpline, Fourier
from xspline.spaces.basis import Basis, Extent, as_basis, naming, range_of, stored
from xspline.spaces.features import Features, frozen
from xspline.spaces.union import Union

SCHEMA = 1


@dataclass(frozen=True, eq=False)
class Frame:
    """Geometry of the coefficients: all that sums of them need to know."""

    sizes: tuple[int, ...]
    offsets: tuple[int, ...]
    periodic: tuple[bool, ...]
    constant: tuple[Floats, ...]


class Space:
    """Tensor product of one basis for each coordinate. Immutable; equal and hashed by `digest`.

    Parameters
    ----------
    bases : mapping of str to Basis or int
        In the order of the coefficients' dimensions; an integer is the size of a cubic B-spline.
    axes : mapping of str to Axis, optional
        How labels are read; inferred from the name and from domain and period where left out.
    extents : mapping of str to (float, float), optional
        Ranges of the data, as floats of the axis, for bases without a domain.

    Raises
    ------
    ValueError, TypeError
        Starting with the coordinate's name, for a basis that does not fit it or has no domain.

    Examples
    --------
    >>> Space({"lat": BSpline(13, domain=(-30, 30)), "lon": BSpline(23, period=360.0)}).shape
    (13, 23)
    """

    axes: dict[str, tuple[Axis, Basis]]
    from_data: tuple[str, ...]

    def __init__(
        self,
        bases: Mapping[str, Basis | int],
        *,
        axes: Mapping[str, Axis] | None = None,
        extents: Mapping[str, Extent] | None = None,
    ) -> None:
        if not bases:
            raise ValueError(
                'a space needs at least one coordinate, as in Space({"x": BSpline(13, domain=(0, 1))})'
            )
        bound, from_data = {}, []
        for name, value in bases.items():
            with naming(name):
                basis = as_basis(value)
                axis = (axes or {}).get(name) or _inferred(name, basis)
            bound[name] = (axis, basis.bind(axis, (extents or {}).get(name), name=name))
            if basis.needs_extent:
                from_data.append(name)
        self.__dict__.update(axes=bound, from_data=tuple(from_data))

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"Space is immutable; make a new one instead of setting {name}")

    def described_by(self, axes: Mapping[str, Axis]) -> Space:
        """Return the same space with the units and roles of some data where its own axes say nothing.

        Neither is part of the definitions, so the digest stays.
        """
        pairs = {name: (_described(axis, axes.get(name)), basis) for name, (axis, basis) in self.axes.items()}
        space = Space(
            {name: basis for name, (_, basis) in pairs.items()}, axes={n: a for n, (a, _) in pairs.items()}
        )
        space.__dict__["from_data"] = self.from_data
        return space

    # --- shape

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Coordinates, in the order of the coefficients' dimensions."""
        return tuple(self.axes)

    def axis(self, name: str) -> Axis:
        """How the labels of one coordinate are read."""
        return self._coordinate(name)[0]

    def basis(self, name: str) -> Basis:
        """The basis of one coordinate, bound to its domain."""
        return self._coordinate(name)[1]

    def _coordinate(self, name: str) -> tuple[Axis, Basis]:
        if name not in self.axes:
            raise KeyError(f"{name!r} is not a coordinate of the space, which has {', '.join(self.names)}")
        return self.axes[name]

    @cached_property
    def features(self) -> tuple[Features, ...]:
        """Numeric form of each basis."""
        return tuple(basis.on(axis) for axis, basis in self.axes.values())

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Number of coefficients per coordinate."""
        return tuple(f.size for f in self.features)

    @property
    def size(self) -> int:
        """Number of coefficients."""
        return math.prod(self.shape)

    @property
    def offsets(self) -> tuple[int, ...]:
        """Offsets of the pair arrays per coordinate."""
        return tuple(f.offsets for f in self.features)

    @property
    def periodic(self) -> tuple[bool, ...]:
        """Whether function indices count modulo the size, per coordinate."""
        return tuple(f.periodic for f in self.features)

    @cached_property
    def frame(self) -> Frame:
        """Geometry of the coefficients."""
        return Frame(self.shape, self.offsets, self.periodic, tuple(frozen(e) for e in self.constant()))

    def constant(self) -> tuple[Floats, ...]:
        """e_j per coordinate: the function 1 has the coefficients ⊗ e_j."""
        return tuple(f.constant() for f in self.features)

    @property
    def has_constant(self) -> bool:
        """Whether the function 1 is in the space."""
        return all(e.any() for e in self.constant())

    # --- identity

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the definitions: names in order, kinds, calendars and bound bases."""
        definitions = [
            [name, axis.kind, axis.calendar, basis.to_dict()] for name, (axis, basis) in self.axes.items()
        ]
        return hashlib.sha256(_canonical(definitions).encode()).hexdigest()

    def to_json(self) -> str:
        """Canonical JSON text from which `from_json` makes an equal space."""
        items = self.axes.items()
        axes = [
            {"name": name, "axis": axis.to_dict(), "basis": basis.to_dict()} for name, (axis, basis) in items
        ]
        return _canonical({"schema": SCHEMA, "axes": axes, "from_data": self.from_data})

    @staticmethod
    def from_json(text: str) -> Space:
        """Inverse of `to_json`."""
        return _from_json(text)

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_json, (self.to_json(),)

    def __eq__(self, other: object) -> bool:
        return self.digest == other.digest if isinstance(other, Space) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    # --- labels and windows

    def to_float(self, name: str, labels: Any) -> Floats:
        """Labels of one coordinate as float64; those of a longitude taken modulo 360 into the domain.

        Labels already inside, or one ulp outside, stay as they are bit for bit.
        """
        axis, basis = self._coordinate(name)
        with naming(name):
            x = axis.to_float(labels)
        ends = _wrapping_range(basis, axis)
        return x if axis.wrap is None or ends is None else _wrapped(x, *ends, axis.wrap)

    def window(self, ranges: Sequence[tuple[float, float]]) -> tuple[tuple[int, int], ...]:
        """(start, length) per coordinate of the coefficients that the box of [lo, hi] ranges touches."""
        return tuple(f.window(lo, hi) for f, (lo, hi) in zip(self.features, ranges, strict=True))

    # --- text

    def code(self) -> str:
        """The Python expression that rebuilds the space, with ``import xspline as xs``."""
        items = ", ".join(
            f"{json.dumps(name)}: {basis.code('xs.')}" for name, (_, basis) in self.axes.items()
        )
        odd = {name: axis for name, (axis, basis) in self.axes.items() if not _inferable(name, axis, basis)}
        given = ", ".join(f"{json.dumps(name)}: {_axis_code(axis)}" for name, axis in odd.items())
        return f"xs.Space({{{items}}}{f', axes={{{given}}}' if given else ''})"

    def difference(self, other: Space) -> str:
        """What differs from another space, for messages; empty if they are equal."""
        if self == other:
            return ""
        if self.names != other.names:
            return (
                f"the spaces have different coordinates: {self.names} and {other.names}; name the bases of both, or "
                "agree on one space beforehand"
            )
        parts = [text for name in self.names for text in self._difference_at(name, other)]
        differ = [name for name in self.names if self.axes[name][1] != other.axes[name][1]]
        if learned := [name for name in differ if name in {*self.from_data, *other.from_data}]:
            parts.append(
                f"the domain of {', '.join(learned)} was taken from the data: agree on one beforehand, "
                f"with space = {self._agreed(other).code()}"
            )
        return "; ".join(parts)

    def _difference_at(self, name: str, other: Space) -> list[str]:
        (axis, basis), (its_axis, its_basis) = self.axes[name], other.axes[name]
        if (axis.kind, axis.calendar) != (its_axis.kind, its_axis.calendar):
            return [f"{name}: {axis.noun} and {its_axis.noun} coordinates"]
        return [f"{name}: {basis!r} and {its_basis!r}"] if basis.to_dict() != its_basis.to_dict() else []

    def _agreed(self, other: Space) -> Space:
        """This space, with the hull of both domains and the larger size where they came from data."""
        agreed: dict[str, Basis | int] = {}
        for name, (axis, basis) in self.axes.items():
            theirs = other.axes[name][1]
            hull = _hull(axis, basis, theirs) if name in {*self.from_data, *other.from_data} else None
            agreed[name] = basis if hull is None else hull
        return Space(agreed, axes={name: axis for name, (axis, _) in self.axes.items()})

    def __repr__(self) -> str:
        width = max(map(len, self.names))
        rows = [f"  {name:<{width}}  {size:>5}  {basis!r}" for name, size, basis in self._rows()]
        return "\n".join([self._title, *rows, f"  digest {self.digest[:12]}"])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{size}</td><td><code>{html.escape(repr(basis))}</code></td></tr>"
            for name, size, basis in self._rows()
        )
        head, foot = f"<strong>{html.escape(self._title)}</strong>", f"<small>digest {self.digest}</small>"
        return f"<div>{head}<table>{rows}</table>{foot}</div>"

    def _rows(self) -> list[tuple[str, int, Basis]]:
        return [(name, size, self.axes[name][1]) for name, size in zip(self.names, self.shape, strict=True)]

    @property
    def _title(self) -> str:
        return f"Space {' × '.join(map(str, self.shape))} = {self.size} coefficients"


def _described(axis: Axis, other: Axis | None) -> Axis:
    """Return an axis with what is empty in it taken from another of the same kind."""
    if other is None or other.kind != axis.kind:
        return axis
    units, role, wrap = axis.units or other.units, axis.role or other.role, axis.wrap or other.wrap
    return replace(axis, units=units, role=role, wrap=wrap)


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


@lru_cache(maxsize=64)
def _from_json(text: str) -> Space:
    data = json.loads(text)
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        schema = data.get("schema") if isinstance(data, dict) else None
        raise ValueError(
            f"the text is no space of schema {SCHEMA} (it says {schema!r}); a newer xspline may read it"
        )
    items = {item["name"]: item for item in data["axes"]}
    bases: dict[str, Basis | int] = {name: Basis.from_dict(item["basis"]) for name, item in items.items()}
    space = Space(bases, axes={name: Axis.from_dict(item["axis"]) for name, item in items.items()})
    space.__dict__["from_data"] = tuple(data["from_data"])
    return space


# --- axes from bases alone


def _inferred(name: str, basis: Basis) -> Axis:
    """Axis of a coordinate of which only the basis is known: from its domain or knots, else its durations."""
    labels = [label for term in _terms(basis) for label in _labels(term)]
    if labels:
        return Axis.infer(name, labels)
    durations = [d for t in _terms(basis) for d in (getattr(t, "period", None), getattr(t, "spacing", None))]
    if any(d is not None and not isinstance(d, int | float) for d in durations):
        return Axis("time", role="time")
    return Axis.infer(name, [0.0])


def _terms(basis: Basis) -> tuple[Basis, ...]:
    return basis.terms if isinstance(basis, Union) else (basis,)


def _labels(term: Basis) -> tuple[Any, ...]:
    return (*(term.domain or ()), *((isinstance(term, BSpline) and term.knots) or ()))


def _inferable(name: str, axis: Axis, basis: Basis) -> bool:
    inferred = _inferred(name, basis)
    return (inferred.kind, inferred.calendar, inferred.wrap, inferred.role) == (
        axis.kind,
        axis.calendar,
        axis.wrap,
        axis.role,
    )


def _axis_code(axis: Axis) -> str:
    arguments = ", ".join(
        f"{key}={value!r}" for key, value in axis.to_dict().items() if axis.kind == "number" or key != "units"
    )
    return f"xs.spaces.Axis({arguments})"


def _hull(axis: Axis, basis: Basis, other: Basis) -> Basis | None:
    """A basis on the hull of both domains: the larger of two splines, else that of the wider domain.

    A longitude that closes the circle for one of them does so for both. None keeps the basis as it is.
    """
    if basis.domain is None or other.domain is None or _rigid(basis):
        return None
    if _rigid(other):
        closed = axis.wrap is not None and isinstance(other, BSpline) and _like(basis, other)
        return other if closed else None
    (a, b), (c, d) = range_of(axis, basis.domain), range_of(axis, other.domain)
    domain = (stored(axis, min(a, c)), stored(axis, max(b, d)))
    mine, theirs = basis.with_domain(domain), other.with_domain(domain)
    larger = theirs.count > mine.count if _like(basis, other) else d - c > b - a
    return theirs if larger else mine


def _rigid(basis: Basis) -> bool:
    """Whether the domain follows from knots or a period."""
    return any(
        isinstance(t, BSpline) and (t.knots is not None or t.period is not None) for t in _terms(basis)
    )


def _like(basis: Basis, other: Basis) -> bool:
    """Whether both are B-splines of one degree with uniform knots."""
    return _degree(basis) is not None and _degree(basis) == _degree(other)


def _degree(basis: Basis) -> int | None:
    return basis.degree if isinstance(basis, BSpline) and basis.knots is None else None


# --- longitudes


def _wrapping_range(basis: Basis, axis: Axis) -> Extent | None:
    """Domain into which labels are wrapped; None where a Fourier basis alone takes them as they are."""
    if basis.domain is None or isinstance(basis, Fourier):
        return None
    return range_of(axis, basis.domain)


def _wrapped(x: Floats, lo: float, hi: float, wrap: float) -> Floats:
    inside = (x >= np.nextafter(lo, -np.inf)) & (x <= np.nextafter(hi, np.inf))
    known = np.where(np.isfinite(x), x, lo)
    moved = known - wrap * np.floor((known - lo) / wrap)
    # A label is as exact as its own ulp: 359.9 is -0.1 up to that.
    tolerance = np.spacing(np.maximum(np.abs(known), wrap))
    moved = np.where(np.abs(moved - hi) <= tolerance, hi, moved)
    moved = np.where((np.abs(moved - lo) <= tolerance) | (np.abs(moved - lo - wrap) <= tolerance), lo, moved)
    return np.where(inside | ~np.isfinite(x), x, moved)
