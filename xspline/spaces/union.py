"""Sum of the spans of several bases of one coordinate: a trend and a season, a season and a spline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from xspline.spaces._types import Array, Floats
from xspline.spaces.axis import Axis
from xspline.spaces.bases import BSpline, Fourier, Polynomial
from xspline.spaces.basis import Basis, Domain, Extent, range_of
from xspline.spaces.bspline import SplinePart
from xspline.spaces.features import Features, Global, Part, weyl
from xspline.spaces.instants import seconds_of_duration

# Below this singular value the joint design has lost ten digits: the terms are taken for dependent.
DEPENDENT = 1e-10
_ORDER = (Polynomial, Fourier, BSpline)


@dataclass(frozen=True, repr=False)
class Union(Basis):
    """Functions of several terms, in canonical order, with one constant. Written ``a + b``.

    The constant is the sum of the B-spline's functions if there is one, else the polynomial's, else that of
    the first Fourier term.

    Parameters
    ----------
    terms : tuple of Basis
        At least two; unions among them are taken apart. Their order becomes polynomial, Fourier by falling
        period, B-spline.

    Raises
    ------
    ValueError
        For a term that lies in the span of another one, naming both.

    Examples
    --------
    >>> Polynomial(2) + Fourier(1, period=1.0)
    Polynomial(2) + Fourier(1, period=1.0)
    """

    terms: tuple[Basis, ...]

    def __post_init__(self) -> None:
        flat = [
            term for given in self.terms for term in (given.terms if isinstance(given, Union) else (given,))
        ]
        if len(flat) < 2 or not all(isinstance(term, _ORDER) for term in flat):
            raise ValueError(
                f"a union is of two or more BSpline, Fourier and Polynomial terms, got {self.terms!r}"
            )
        terms = tuple(sorted(flat, key=_place))
        for first, second in combinations(terms, 2):
            _check_pair(first, second)
        object.__setattr__(self, "terms", terms)

    @property
    def domain(self) -> Domain | None:
        """That of the terms that are not periodic."""
        return next((term.domain for term in self.terms if term.spans and term.domain is not None), None)

    @property
    def count(self) -> int:
        return sum(term.count for term in self.terms) - len(self.terms) + 1

    @property
    def needs_extent(self) -> bool:
        return any(term.needs_extent for term in self.terms) and not any(term.spans for term in self.terms)

    def _bind(self, axis: Axis, extent: Extent | None) -> Union:
        fixed = [term._bind(axis, None) for term in self.terms if not term.needs_extent]
        ranges = {
            range_of(axis, term.domain): term for term in fixed if term.spans and term.domain is not None
        }
        if len(ranges) > 1:
            shown = " and ".join(f"{term!r}" for term in ranges.values())
            raise ValueError(f"the terms of a union share one domain; got {shown}")
        common = next(iter(ranges), extent)
        return Union(tuple(term._bind(axis, common) for term in self.terms))

    def with_domain(self, domain: Domain) -> Union:
        return Union(tuple(t.with_domain(domain) if t.spans or t.needs_extent else t for t in self.terms))

    def select(self, kind: type[Basis]) -> Array:
        if issubclass(kind, Union):
            return np.ones(self.count, dtype=bool)
        return np.concatenate([np.full(n, isinstance(term, kind)) for term, n in self._blocks()])

    def _blocks(self) -> Iterator[tuple[Basis, int]]:
        """(term, number of its columns)."""
        owner = self._owner
        return ((term, term.count - (term is not owner)) for term in self.terms)

    @property
    def _owner(self) -> Basis:
        """The term that holds the constant."""
        return self.terms[-1] if isinstance(self.terms[-1], BSpline) else self.terms[0]

    # --- numeric form

    def _numeric(self, axis: Axis) -> Features:
        parts = self._parts(axis)
        span = self._span(axis, parts)
        if distance_to_dependence(parts, span) < DEPENDENT:
            self._refuse(parts, span, axis)
        return Global(parts, span, self._max_order)

    def _parts(self, axis: Axis) -> tuple[Part, ...]:
        waves = [term for term in self.terms if isinstance(term, Fourier)]
        return tuple(_part(term, axis, term is self._owner, waves) for term in self.terms)

    @property
    def _max_order(self) -> int | None:
        """The degree of a B-spline; else a polynomial's derivatives end in zero while a season's go on."""
        degrees = [term.degree for term in self.terms if isinstance(term, BSpline)]
        return min(degrees, default=None)

    def _span(self, axis: Axis, parts: Sequence[Part]) -> Extent:
        """Range of integrals: the common domain, else the longest period."""
        if self.domain is not None:
            return range_of(axis, self.domain)
        spans = [
            range_of(axis, t.domain) for t in self.terms if isinstance(t, BSpline) and t.domain is not None
        ]
        spans += [(0.0, axis.duration(t.period, "period")) for t in self.terms if isinstance(t, Fourier)]
        return max(spans, key=lambda span: span[1] - span[0])

    def _refuse(self, parts: Sequence[Part], span: Extent, axis: Axis) -> None:
        """Name the first two terms that are dependent on each other, or all."""
        culprits: tuple[Basis, ...] = self.terms
        for i, j in combinations(range(len(parts)), 2):
            if distance_to_dependence((parts[i], parts[j]), span) < DEPENDENT:
                culprits = (self.terms[i], self.terms[j])
                break
        names = " and ".join(repr(term) for term in culprits)
        ends = f"({axis.text(span[0])}, {axis.text(span[1])})"
        raise ValueError(
            f"{names} are not independent on {ends}: a function of one is in the span of the others; drop one"
        )

    # --- as data

    def to_dict(self) -> dict[str, Any]:
        return {"type": "Union", "terms": [term.to_dict() for term in self.terms]}

    @classmethod
    def _from_arguments(cls, arguments: dict[str, Any]) -> Union:
        return cls(tuple(Basis.from_dict(term) for term in arguments["terms"]))

    def code(self, prefix: str = "") -> str:
        return " + ".join(term.code(prefix) for term in self.terms)


def _place(term: Basis) -> tuple[int, float, str]:
    """Key of the canonical order: polynomial, Fourier (longest period first), B-spline."""
    rank = next(i for i, kind in enumerate(_ORDER) if isinstance(term, kind))
    return rank, -_length(term.period) if isinstance(term, Fourier) else 0.0, repr(term)


def _length(period: Any) -> float:
    return float(period) if isinstance(period, int | float) else seconds_of_duration(period, None)


def _check_pair(first: Basis, second: Basis) -> None:
    """Refuse, before any domain is known, what can be known then."""
    why = _shared(first, second)
    if why:
        raise ValueError(f"{first!r} + {second!r}: {why}")


def _shared(first: Basis, second: Basis) -> str:
    if isinstance(first, Polynomial) and first.degree == 0:
        return f"the constant of {first!r} lies in the span of {second!r}; leave it out"
    if isinstance(first, Polynomial) and isinstance(second, Polynomial):
        return "one polynomial lies in the span of the other; keep the higher degree"
    if isinstance(first, BSpline) and isinstance(second, BSpline):
        return "both B-splines span the constant; keep one"
    if isinstance(first, Fourier) and isinstance(second, Fourier) and first.period == second.period:
        return "one lies in the span of the other, having the same period; keep the one with more harmonics"
    # A B-spline of degree >= 1 holds straight lines, so x1 at least is in both, whichever degree is higher.
    if (
        isinstance(first, Polynomial)
        and isinstance(second, BSpline)
        and second.period is None
        and second.degree
    ):
        return f"polynomials up to degree {second.degree} lie in the span of the B-spline; leave them out"
    return ""


def _part(term: Basis, axis: Axis, with_constant: bool, waves: Sequence[Fourier]) -> Part:
    if isinstance(term, Polynomial):
        return term.part(axis, with_constant)
    if isinstance(term, Fourier):
        place = next(i for i, wave in enumerate(waves) if wave is term)
        return term.part(axis, with_constant, f".{place + 1}" if place else "")
    if isinstance(term, BSpline):
        return SplinePart(term.local(axis))
    raise TypeError(f"{term!r} cannot be part of a union")


def distance_to_dependence(parts: Sequence[Part], span: Extent) -> float:
    """Smallest singular value of the joint design on points of the span, its columns scaled to length 1.

    B-splines are independent among themselves: with one, last in order, only what the others have outside its
    span is looked at, which is cheaper than all singular values.
    """
    x = _sample(parts, span)
    designs = [part.values(x, 0) for part in parts]
    designs = [design / np.linalg.norm(design, axis=0) for design in designs]
    if isinstance(parts[-1], SplinePart):
        spline, _ = np.linalg.qr(designs.pop())
        rest = np.concatenate(designs, axis=1)
        for _ in range(2):  # twice is enough (Kahan)
            rest = rest - spline @ (spline.T @ rest)
        designs = [rest]
    singular = np.linalg.svd(np.concatenate(designs, axis=1), compute_uv=False)
    return float(singular[-1])


def _sample(parts: Sequence[Part], span: Extent) -> Floats:
    """Points of Weyl's sequence, even like a grid without its aliases, on the span and on spline cells."""
    size = sum(len(part.names) for part in parts)
    golden = (np.sqrt(5.0) - 1.0) / 2.0
    points = [weyl(*span, 2 * size + 64)]
    for part in parts:
        if isinstance(part, SplinePart):
            edges = part.panels(*span)
            inside = np.mod(np.arange(1, part.nodes + 1) * golden, 1.0)
            points.append((edges[:-1, None] + np.diff(edges)[:, None] * inside).ravel())
    return np.concatenate(points)
