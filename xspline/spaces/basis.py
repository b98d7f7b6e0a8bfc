"""What all bases share: immutable, hashable, JSON-able definitions; the arguments of bases; their union."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, replace
from functools import lru_cache
from itertools import combinations
from typing import Any, ClassVar, TypeAlias

import numpy as np

from xspline.arguments import NotAnArray, brief
from xspline.spaces.axis import Axis
from xspline.spaces.bspline import SplineTerm, union_features
from xspline.spaces.features import Features, Floats, Global, TermFunctions, weyl
from xspline.spaces.instants import Array, plain_text

Domain: TypeAlias = tuple[Any, Any]
Extent: TypeAlias = tuple[float, float]

# Below this singular value the joint design has lost ten digits: the terms are taken for dependent.
DEPENDENT = 1e-10


@contextmanager
def coordinate_in_errors(name: str) -> Iterator[None]:
    """Errors raised inside start with the coordinate's name."""
    try:
        yield
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{name}: {error}") from None


class Basis(NotAnArray):
    """Functions of one coordinate. ``a + b`` is their union."""

    kinds: ClassVar[dict[str, type[Basis]]] = {}
    #: Place of the kind among the terms of a union.
    rank: ClassVar[int] = 0
    #: Whether the constant is a function of its own, which a union can leave out.
    has_separate_constant: ClassVar[bool] = True
    #: Whether its functions on a longer domain span those on a shorter one.
    grows: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        Basis.kinds[cls.__name__] = cls

    @property
    def domain(self) -> Domain | None:
        """(lo, hi) as the user gave it; of a bound basis floats, ISO text (time) or "…s" (timedelta)."""
        raise NotImplementedError

    def record(self, axis: Axis) -> Extent | None:
        """Floats outside which a fit says nothing; None where every label is inside, as for a periodic basis."""
        return None if self.domain is None else range_of(axis, self.domain)

    @property
    def written(self) -> Sequence[Any]:
        """Labels that the user wrote, which tell what kind of coordinate it is."""
        return self.domain or ()

    @property
    def count(self) -> int:
        """Number of functions; known unless it follows from a spacing."""
        raise NotImplementedError

    @property
    def needs_extent(self) -> bool:
        """Whether `bind` takes the domain from the data."""
        return self.domain is None

    @property
    def spans(self) -> bool:
        """Whether its own domain is one that the other terms of a union share."""
        return self.domain is not None

    def bind(self, axis: Axis, extent: Extent | None, *, name: str) -> Basis:
        """Canonical form: domain filled in, spacing turned into a size, durations into floats or seconds.

        `extent` is the range of the data, as floats of the axis. It raises TypeError or ValueError for a domain or
        duration that does not fit the axis, or a domain that is nowhere given; messages begin with `name`.
        """
        with coordinate_in_errors(name):
            bound = self._bind(axis, extent)
            most = 10_000_000  # 80 MB for each array over them: a typing error asks for more
            if bound.count > most:
                raise ValueError(
                    f"{bound.count:.6g} functions along one coordinate, and {most:,} is the most; use fewer of them "
                    "(a larger spacing), or a shorter domain"
                )
            bound.on(axis)
            return bound

    def _bind(self, axis: Axis, extent: Extent | None) -> Basis:
        raise NotImplementedError

    def on(self, axis: Axis) -> Features:
        """Numeric form of a bound basis (cached)."""
        return _features(self, axis)

    def _numeric(self, axis: Axis) -> Features:
        return Global((self.term(axis),), self.integral_range(axis))

    # What a union asks of its terms.

    def term(self, axis: Axis, with_constant: bool = True, suffix: str = "") -> TermFunctions:
        """The functions of a bound basis as one term of several; `suffix` ends their names."""
        raise NotImplementedError

    def suffix(self, number: int) -> str:
        """What ends names of functions of one of several terms of a kind, counted from 0."""
        return f".{number + 1}" if number else ""

    def integral_range(self, axis: Axis) -> Extent:
        """Range of the integrals of a roughness penalty, of a bound basis: its domain, else its period."""
        if self.domain is None:
            raise ValueError(f"{self!r} is not bound to a domain; pass domain=(lo, hi)")
        return range_of(axis, self.domain)

    @property
    def period_length(self) -> float:
        """Period by which terms of one kind are ordered, in the coordinate's unit or seconds; 0 without one."""
        return 0.0

    def reason_dependent(self, later: Basis) -> str:
        """Why a later term of a union cannot be independent of this one, whatever the domain; empty if it can."""
        return ""

    def overlaps(self, later: Basis) -> bool:
        """Whether a later term of a union, a B-spline, spans functions of this one and is there for events."""
        return False

    def select(self, kind: type[Basis], period: float | None = None) -> Array:
        """Mask [K] of the functions of one kind of term, or of one of a period; a constant goes with what holds it."""
        return np.full(self.count, isinstance(self, kind) and period in (None, self.period_length))

    def with_domain(self, domain: Domain) -> Basis:
        """The same basis on another domain."""
        return replace(self, domain=domain)  # type: ignore[type-var]

    def extended(self, axis: Axis, low: float, high: float) -> Basis:
        """The bound basis on a domain that holds [low, high] too, whose functions span all of these.

        Raises
        ------
        ValueError : the functions of a longer domain would be others.
        """
        if not self.grows:
            raise ValueError(
                f"{self!r} cannot be extended: its functions in a longer domain are others; begin anew, in a space of "
                "that domain"
            )
        if self.domain is None:
            return self
        lo, hi = range_of(axis, self.domain)
        return self.with_domain((stored(axis, min(lo, low)), stored(axis, max(hi, high))))

    # As data and as code.

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; what was not given is left out, except a degree."""
        values = {f.name: plain(getattr(self, f.name)) for f in fields(self)}  # type: ignore[arg-type]
        given = {key: value for key, value in values.items() if value is not None}
        listed = {key: list(value) if isinstance(value, tuple) else value for key, value in given.items()}
        return {"type": type(self).__name__, **listed}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Basis:
        """Inverse of `to_dict`."""
        kind = data.get("type")
        if kind not in Basis.kinds:
            raise ValueError(f"unknown type of basis {kind!r}; known are {', '.join(sorted(Basis.kinds))}")
        arguments = {key: value for key, value in data.items() if key != "type"}
        if kind == "Union":
            arguments["terms"] = tuple(map(Basis.from_dict, arguments["terms"]))
        return Basis.kinds[kind](**arguments)

    def code(self, prefix: str = "") -> str:
        """The Python expression that rebuilds the basis; the first argument is written without its name."""
        arguments = []
        for position, f in enumerate(fields(self)):  # type: ignore[arg-type]
            value = getattr(self, f.name)
            if f.default is MISSING or value != f.default:
                arguments.append(f"{f.name + '=' if position else ''}{plain(value)!r}")
        return f"{prefix}{type(self).__name__}({', '.join(arguments)})"

    def __repr__(self) -> str:
        return self.code()

    def __add__(self, other: Basis) -> Basis:
        if not isinstance(other, Basis):
            raise self.unlike(other)
        return Union((self, other))


@lru_cache(maxsize=512)
def _features(basis: Basis, axis: Axis) -> Features:
    return basis._numeric(axis)


@dataclass(frozen=True, repr=False)
class Union(Basis):
    """Functions of several terms, in canonical order, with one constant. Written ``a + b``.

    The constant is the sum of the B-spline's functions if there is one, else the polynomial's, else that of
    the first Fourier term.

    A polynomial with a B-spline is a trend with *events*: what the spline holds beside trend and season. The spline
    spans straight lines too, so that only a penalty on the events (`Events`) tells the two apart; the constant is the
    polynomial's.

    Parameters
    ----------
    terms : tuple of Basis
        At least two; unions among them are taken apart. Their order becomes polynomial, Fourier by falling
        period, broken lines, steps, regressors, B-spline.

    Raises
    ------
    ValueError
        For a term that lies in the span of another one, naming both.

    Examples
    --------
    >>> from xspline import Fourier, Polynomial
    >>> Fourier(1, period=1.0) + Polynomial(2)
    Polynomial(2) + Fourier(1, period=1.0)
    """

    terms: tuple[Basis, ...]

    def __post_init__(self) -> None:
        flat = [term for given in self.terms for term in terms_of(given)]
        if len(flat) < 2 or not all(isinstance(term, Basis) for term in flat):
            raise ValueError(
                f"a union is of two or more terms such as BSpline, Fourier and Polynomial, got {self.terms!r}"
            )
        terms = tuple(sorted(flat, key=lambda term: (term.rank, -term.period_length, repr(term))))
        for first, second in combinations(terms, 2):
            if reason := first.reason_dependent(second):
                raise ValueError(f"{first!r} + {second!r}: {reason}")
        assign(self, terms=terms)

    @property
    def domain(self) -> Domain | None:
        """The domain of the terms that are not periodic."""
        return next((term.domain for term in self.terms if term.spans and term.domain is not None), None)

    def record(self, axis: Axis) -> Extent | None:
        records = {record: term for term in self.terms if (record := term.record(axis)) is not None}
        if not records:
            return None
        lo, hi = max(records)[0], min(high for _, high in records)
        if lo >= hi:
            shown = " and ".join(
                f"{term!r} ({axis.text(a)} to {axis.text(b)})" for (a, b), term in records.items()
            )
            raise ValueError(f"no label is in the records of both {shown}; pass a longer index, or a domain")
        return lo, hi

    @property
    def written(self) -> Sequence[Any]:
        return [label for term in self.terms for label in term.written]

    @property
    def has_events(self) -> bool:
        """Whether a B-spline spans functions of another term, so that nothing but a penalty tells them apart."""
        return any(first.overlaps(second) for first, second in combinations(self.terms, 2))

    @property
    def count(self) -> int:
        return sum(term.count for term in self.terms) - len(self.terms) + 1 + self.has_events

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

    def extended(self, axis: Axis, low: float, high: float) -> Basis:
        # A B-spline, whose constant others share.
        if any(not term.has_separate_constant for term in self.terms):
            return super().extended(axis, low, high)
        return Union(tuple(term.extended(axis, low, high) for term in self.terms))

    def with_domain(self, domain: Domain) -> Union:
        return Union(tuple(t.with_domain(domain) if t.spans or t.needs_extent else t for t in self.terms))

    @property
    def _constant_term(self) -> Basis:
        """The term that holds the constant."""
        if self.has_events:
            return self.terms[0]
        return next((term for term in self.terms if not term.has_separate_constant), self.terms[0])

    def select(self, kind: type[Basis], period: float | None = None) -> Array:
        if issubclass(kind, Union):
            return np.ones(self.count, dtype=bool)
        constant = self._constant_term
        columns = [
            (term, term.count - (term.has_separate_constant and term is not constant)) for term in self.terms
        ]
        return np.concatenate([term.select(kind, period)[:1].repeat(count) for term, count in columns])

    def _numeric(self, axis: Axis) -> Features:
        terms = []
        for term in self.terms:
            same_kind = [other for other in self.terms if type(other) is type(term)]
            suffix = term.suffix(same_kind.index(term)) if len(same_kind) > 1 else ""
            terms.append(term.term(axis, term is self._constant_term, suffix))
        functions = [function for term in terms for function in term.names]
        if twice := [function for function in functions if functions.count(function) > 1]:
            raise ValueError(f"{self!r} has two functions {twice[0]!r}; give the index another name")
        span = self.integral_range(axis)
        independent = terms[:-1] if self.has_events else terms
        if distance_to_dependence(independent, span) < DEPENDENT:
            # Name the first term that is dependent by itself, the first two that are on each other, or all.
            dependent = (
                [self.terms[i] for i in chosen]
                for count in (1, 2)
                for chosen in combinations(range(len(independent)), count)
                if distance_to_dependence([terms[i] for i in chosen], span) < DEPENDENT
            )
            named = next(dependent, self.terms)
            ends = f"({axis.text(span[0])}, {axis.text(span[1])})"
            if len(named) == 1:
                raise ValueError(
                    f"the functions of {named[0]!r} are not independent on {ends}: one of them is zero or a sum of the "
                    "others; leave it out"
                )
            names = " and ".join(map(repr, named))
            raise ValueError(
                f"{names} are not independent on {ends}: a function of one is in the span of the others; drop one"
            )
        # The degree of a B-spline; else a polynomial's derivatives end in zero while a season's go on.
        degrees = [term.max_order for term in terms if term.max_order is not None and not term.kinked]
        return union_features(tuple(terms), span, min(degrees, default=None))

    def integral_range(self, axis: Axis) -> Extent:
        """The common record or domain, else the longest period, of equal ones that of the B-spline."""
        if (record := self.record(axis)) is not None:
            return record
        if self.domain is not None:
            return range_of(axis, self.domain)
        spans = (term.integral_range(axis) for term in reversed(self.terms))
        return max(spans, key=lambda span: span[1] - span[0])

    def to_dict(self) -> dict[str, Any]:
        return {"type": "Union", "terms": [term.to_dict() for term in self.terms]}

    def code(self, prefix: str = "") -> str:
        return " + ".join(term.code(prefix) for term in self.terms)

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.terms))


def terms_of(basis: Basis) -> tuple[Basis, ...]:
    """The terms of a union; any other basis alone."""
    return basis.terms if isinstance(basis, Union) else (basis,)


def distance_to_dependence(terms: Sequence[TermFunctions], span: Extent) -> float:
    """Smallest singular value of the joint design on points of the span, its columns scaled to length 1.

    The points are those of Weyl's sequence, even like a grid without its aliases, on the span and on spline cells.
    B-splines are independent among themselves: with one, last in order, only what the others have outside its
    span is looked at, which is cheaper than all singular values.
    """
    points = [weyl(*span, 2 * sum(len(term.names) for term in terms) + 64)]
    for term in terms:
        if isinstance(term, SplineTerm):
            edges = term.panels(*span)
            inside = weyl(0.0, 1.0, term.nodes + 1)[1:]
            points.append((edges[:-1, None] + np.diff(edges)[:, None] * inside).ravel())
        elif term.kinked:  # an index may be zero nearly everywhere
            points.append(term.panels(*span))
    x = np.concatenate(points)
    designs: list[Floats] = [term.values(x, 0) for term in terms]
    if not all(design.any(axis=0).all() for design in designs):
        return 0.0
    designs = [design / np.linalg.norm(design, axis=0) for design in designs]
    if isinstance(terms[-1], SplineTerm):
        spline, _ = np.linalg.qr(designs.pop())
        rest = np.concatenate(designs, axis=1)
        for _ in range(2):  # twice is enough (Kahan)
            rest = rest - spline @ (spline.T @ rest)
        designs = [rest]
    singular = np.linalg.svd(np.concatenate(designs, axis=1), compute_uv=False)
    return float(singular[-1])


def assign(basis: Basis, **values: Any) -> None:
    """Set fields of a frozen basis while it is built."""
    for key, value in values.items():
        object.__setattr__(basis, key, value)


def plain(value: Any) -> Any:
    """A label, or a tuple of them, as what JSON and code hold."""
    return tuple(plain_text(v) for v in value) if isinstance(value, tuple) else plain_text(value)


def plain_number(value: Any) -> Any:
    """NumPy numbers, and arrays of one without dimensions, as Python numbers; anything else as it is."""
    if getattr(value, "ndim", None) == 0 and not isinstance(value, np.generic):
        value = np.asarray(value)[()]
    return value.item() if isinstance(value, np.generic) and value.dtype.kind in "iuf" else value


def checked_domain(domain: Any) -> Domain | None:
    """A domain as a tuple of two plain labels, lo < hi if they are numbers; None stays None."""
    if domain is None:
        return None
    is_pair = hasattr(domain, "__len__") and getattr(domain, "shape", (2,)) == (2,)
    ends = list(domain) if is_pair and not isinstance(domain, str) else []
    if len(ends) != 2:
        raise ValueError(f"domain {brief(domain)} is not a pair; pass domain=(lo, hi)")
    lo, hi = map(plain_number, ends)
    numbers = isinstance(lo, int | float) and isinstance(hi, int | float)
    if numbers and not (lo < hi and math.isfinite(hi - lo)):
        raise ValueError(f"domain ({lo!r}, {hi!r}) must have finite lo < hi")
    return lo, hi


def checked_count(value: Any, what: str, least: int) -> int:
    """An integer argument of at least `least`."""
    value = plain_number(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what}={value!r} must be an integer")
    if value < least:
        raise ValueError(f"{what}={value} must be at least {least}")
    return value


def stored(axis: Axis, x: float) -> float | str:
    """A label as a bound basis holds it."""
    return float(x) + 0.0 if axis.kind == "number" else axis.text(x)


def stored_duration(axis: Axis, length: float) -> float | str:
    """A length as a bound basis holds it."""
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
        return stored(axis, lo), stored(axis, hi)
    if extent is None:
        raise ValueError(
            f"{basis!r} has no domain; pass domain=(lo, hi), "
            "or build the space from data with da.spline.space(...)"
        )
    lo, hi = (float(end) for end in extent)
    if not (math.isfinite(lo) and math.isfinite(hi)):
        raise ValueError("the data have no finite labels to take a domain from; pass domain=(lo, hi)")
    if lo >= hi:
        raise ValueError(
            f"the data have the one label {axis.text(lo)}, which is no domain; pass domain=(lo, hi)"
        )
    return stored(axis, lo), stored(axis, hi)
