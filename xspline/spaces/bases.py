"""Public bases: what the user writes for one coordinate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from xspline.arguments import brief
from xspline.spaces.axis import Axis
from xspline.spaces.basis import (
    Basis,
    Domain,
    Extent,
    assign,
    bound_domain,
    checked_count,
    checked_domain,
    plain,
    plain_number,
    range_of,
    stored,
    stored_duration,
)
from xspline.spaces.bspline import LocalSpline, SplineTerm, periodic_knots
from xspline.spaces.features import Features, Global, Harmonics, Legendre, frozen
from xspline.spaces.instants import brief_duration, seconds_of_duration


def as_basis(value: Any) -> Basis:
    """A basis as it is; an integer as a cubic B-spline of that size."""
    if isinstance(value, Basis):
        return value
    value = plain_number(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return BSpline(value)
    is_class = isinstance(value, type) and issubclass(value, Basis)
    kind = f", one of the class: write {value.__name__}(...)" if is_class else ""
    raise TypeError(
        f"expected a basis or an integer (the size of a cubic B-spline), got {brief(value)}{kind}"
    )


@dataclass(frozen=True, repr=False)
class BSpline(Basis):
    """B-splines of one degree.

    Exactly one of `size`, `knots` and `spacing` is given. With `size`, knots are uniform and extend past the
    domain: ``size - degree`` intervals, or ``size`` if periodic.

    Parameters
    ----------
    size : int, optional
        Number of coefficients.
    degree : int, default 3
        Of the piecewise polynomials; derivatives exist up to this order.
    domain : tuple, optional
        (lo, hi) labels; the range of the data, or (0, period), by default. For a longitude whose data go all
        the way round, the default is the period 360 from 0.
    period : number, str or numpy.timedelta64, optional
        Makes the spline periodic: a number in the coordinate's unit, or a length of time such as ``"year"``.
    knots : sequence of labels, optional
        Full knot vector t as in SciPy: ``len(t) - degree - 1`` coefficients on (t[degree], t[-degree-1]).
        With `period`: the breakpoints of one period, both ends included.
    spacing : number, str or numpy.timedelta64, optional
        Greatest length of the uniform intervals.

    Raises
    ------
    ValueError
        If not exactly one of the three is given, or there are too few coefficients or knots for the degree.

    Examples
    --------
    >>> from xspline import BSpline, Fourier
    >>> BSpline(13, domain=(-30, 30))
    BSpline(13, domain=(-30, 30))
    >>> BSpline(12, period="year")
    BSpline(12, period='year')
    >>> BSpline(spacing=2.5, domain=(-30, 30)) + Fourier(1, period=20.0)
    Fourier(1, period=20.0) + BSpline(domain=(-30, 30), spacing=2.5)
    """

    rank: ClassVar[int] = 5
    has_separate_constant: ClassVar[bool] = False

    size: int | None = None
    degree: int = 3
    domain: Domain | None = field(default=None, kw_only=True)
    period: Any = field(default=None, kw_only=True)
    knots: tuple[Any, ...] | None = field(default=None, kw_only=True)
    spacing: Any = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        given = {"size": self.size, "knots": self.knots, "spacing": self.spacing}
        given = {key: value for key, value in given.items() if value is not None}
        if len(given) != 1:
            got = " and ".join(f"{key}={value!r}" for key, value in given.items()) or "none"
            raise ValueError(f"BSpline needs exactly one of size, knots, spacing; got {got}")
        assign(self, degree=checked_count(self.degree, "degree", 0), period=plain_number(self.period))
        assign(self, spacing=plain_number(self.spacing), domain=checked_domain(self.domain))
        if self.size is not None:
            assign(self, size=checked_count(self.size, "size", 1))
            if self.period is None and self.count <= self.degree:
                raise ValueError(f"BSpline size {self.size} must be greater than its degree {self.degree}")
        if self.knots is not None:
            knots = tuple(plain_number(knot) for knot in self.knots)
            assign(self, knots=knots)
            if self.period is not None:
                least, kind = 2, "breakpoints of one period"
            else:
                least, kind = 2 * self.degree + 2, f"knots for degree {self.degree}"
            if len(knots) < least:
                raise ValueError(f"BSpline needs at least {least} {kind}, got {len(knots)}")

    @property
    def count(self) -> int:
        if self.knots is not None:
            return len(self.knots) - 1 - (0 if self.period is not None else self.degree)
        if self.size is None:
            raise ValueError(f"the size of {self!r} follows from its domain; bind it first, or pass size")
        return self.size

    def record(self, axis: Axis) -> Extent | None:
        return None if self.period is not None else super().record(axis)

    @property
    def written(self) -> Sequence[Any]:
        return [*(self.domain or ()), *(self.knots or ())]

    @property
    def spans(self) -> bool:
        return self.period is None and (self.domain is not None or self.knots is not None)

    @property
    def needs_extent(self) -> bool:
        return self.domain is None and self.period is None and self.knots is None

    def _bind(self, axis: Axis, extent: Extent | None) -> BSpline:
        period: float | None = None
        if self.period is not None:
            period = axis.duration(self.period, "period")
        elif self.needs_extent and axis.wrap is not None and extent == (0.0, axis.wrap):
            period = axis.wrap  # the data go all the way round
        length = None if period is None else stored_duration(axis, period)
        if self.knots is not None:
            knots, domain = self._bound_knots(axis, period)
            return replace(self, knots=knots, domain=domain, period=length)
        if period:  # from the epoch, which is 1970-01-01 unless that is too far away
            lo, hi = (0.0, period) if self.domain is None else range_of(axis, self.domain)
            _check_period(axis, lo, hi, period)
            domain = stored(axis, lo), stored(axis, hi)
        else:
            domain = bound_domain(self, axis, extent)
        size = self.size
        if size is None:
            # A domain that is a whole number of spacings up to rounding is that number.
            lo, hi = range_of(axis, domain)
            ratio = (hi - lo) / axis.duration(self.spacing, "spacing")
            intervals = max(math.ceil(ratio * (1 - 1e-12)), 1)
            size = intervals if period is not None else intervals + self.degree
        return replace(self, size=size, spacing=None, domain=domain, period=length)

    def extended(self, axis: Axis, low: float, high: float) -> Basis:
        """Further cells of the same length at the ends, in whole numbers."""
        if self.period is not None:
            return self
        if self.knots is not None or self.size is None or self.domain is None:
            raise ValueError(f"the knots of {self!r} were given; write more of them into a new space")
        lo, hi = range_of(axis, self.domain)
        cell = (hi - lo) / (self.size - self.degree)
        before = max(math.ceil((lo - low) / cell * (1 - 1e-12)), 0)
        after = max(math.ceil((high - hi) / cell * (1 - 1e-12)), 0)
        domain = stored(axis, lo - before * cell), stored(axis, hi + after * cell)
        return replace(self, size=self.size + before + after, domain=domain)

    def _bound_knots(self, axis: Axis, period: float | None) -> tuple[tuple[float | str, ...], Domain]:
        """Knots and domain in bound form, checked."""
        p, knots = self.degree, np.array([float(axis.to_float(knot)) for knot in self.knots or ()])
        if not np.all(np.isfinite(knots)) or np.any(np.diff(knots) < 0):
            raise ValueError("knots must be finite and ascending")
        full = periodic_knots(knots, p) if period else knots
        empty = np.flatnonzero(full[p + 1 :] <= full[: -p - 1])
        if empty.size:
            knot = axis.text(full[empty[0]])
            raise ValueError(
                f"knot {knot} is repeated more than degree + 1 = {p + 1} times; repeat it less often"
            )
        if full[p] >= full[-p - 1]:
            raise ValueError(f"knots span no domain: t[{p}] = t[{-p - 1}] = {axis.text(full[p])}")
        if not period and (full[p] == full[p + 1] or full[-p - 1] == full[-p - 2]):
            ends = f"({axis.text(full[p])}, {axis.text(full[-p - 1])})"
            raise ValueError(
                f"a function of the knots is zero on all of the domain {ends}; drop an outer knot"
            )
        lo, hi = (knots[0], knots[-1]) if period else (knots[p], knots[-p - 1])
        domain = (stored(axis, lo), stored(axis, hi))
        if self.domain is not None and range_of(axis, self.domain) != (lo, hi):
            raise ValueError(
                f"domain {plain(self.domain)} differs from {domain}, which the knots span; leave it out"
            )
        if period:
            _check_period(axis, lo, hi, period)
        return tuple(stored(axis, t) for t in knots), domain

    def _numeric(self, axis: Axis) -> Features:
        spline = self.local(axis)
        if not spline.periodic or spline.size > 2 * spline.degree:
            return spline
        # With K <= 2p a pair could be reached both ways around the circle, as (k, o) and as (k + o, K - o), within
        # the offsets 0 … p, and some functions of a cell are one; as a global basis, with K offsets, each pair is
        # one entry.
        return Global((SplineTerm(spline),), spline.ends, spline.degree, frozen(spline.labels()))

    def term(self, axis: Axis, with_constant: bool = True, suffix: str = "") -> SplineTerm:
        return SplineTerm(self.local(axis), with_constant)

    def local(self, axis: Axis) -> LocalSpline:
        """The spline in cells, however short."""
        if self.domain is None or self.spacing is not None:
            raise ValueError(f"{self!r} is not bound to a domain; pass domain=(lo, hi)")
        periodic = self.period is not None
        size = self.count
        uniform = self.knots is None
        if self.knots is not None:
            knots = np.array([float(axis.to_float(knot)) for knot in self.knots])
        else:
            lo, hi = range_of(axis, self.domain)
            intervals = size if periodic else size - self.degree
            if (hi - lo) / intervals <= 2 * np.spacing(max(abs(lo), abs(hi))):
                ends = f"({axis.text(lo)}, {axis.text(hi)})"
                raise ValueError(
                    f"domain {ends} is too short for {intervals} intervals in float64; pass a wider one"
                )
            if periodic:
                knots = np.linspace(lo, hi, size + 1)
            else:
                # Continued beyond both ends, which are exact.
                beyond = (hi - lo) / intervals * np.arange(1, self.degree + 1)
                knots = np.concatenate([lo - beyond[::-1], np.linspace(lo, hi, intervals + 1), hi + beyond])
        full = periodic_knots(knots, self.degree) if periodic else knots
        return LocalSpline(full, self.degree, size, periodic, uniform)

    def reason_dependent(self, later: Basis) -> str:
        return "both B-splines span the constant; keep one" if isinstance(later, BSpline) else ""


def _check_period(axis: Axis, lo: float, hi: float, period: float) -> None:
    if abs(hi - lo - period) > 4 * np.spacing(max(abs(lo), abs(hi), period)):
        length, wanted = stored_duration(axis, hi - lo), stored_duration(axis, period)
        raise ValueError(
            f"domain ({axis.text(lo)}, {axis.text(hi)}) has length {length}, the period is {wanted}; "
            "pass a domain of one period, or leave it out"
        )


@dataclass(frozen=True, repr=False)
class Fourier(Basis):
    """Constant, then cosine and sine of each harmonic of one period.

    The phase is zero at 0, or at 1970-01-01 of the calendar.

    Parameters
    ----------
    harmonics : int
        Number of frequencies: 1, 2, … times that of the period, each with a cosine and a sine.
    period : number, str or numpy.timedelta64
        A number in the coordinate's unit, or a length of time: ``"365.2425D"``, ``"year"`` (the mean year of
        the calendar), ``"day"``.
    domain : tuple, optional
        Range of the integrals of a roughness penalty; one period from 0 by default. Values exist everywhere. A period
        below some four minutes takes the range of the data, since seconds from 1970 are too coarse for it.

    Raises
    ------
    TypeError, ValueError
        For a number of harmonics that is not an integer of at least 1, or no period.

    Examples
    --------
    An annual cycle and its first overtone, beside a trend:

    >>> from xspline import Fourier, Polynomial
    >>> Fourier(2, period="year") + Polynomial(1)
    Polynomial(1) + Fourier(2, period='year')
    """

    rank: ClassVar[int] = 1
    grows: ClassVar[bool] = True

    harmonics: int
    period: Any
    domain: Domain | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        assign(self, harmonics=checked_count(self.harmonics, "harmonics", 1))
        assign(self, period=plain_number(self.period))
        if self.period is None:
            raise ValueError(f'Fourier needs a period, as in Fourier({self.harmonics}, period="365.2425D")')
        assign(self, domain=checked_domain(self.domain))

    def record(self, axis: Axis) -> Extent | None:
        return None

    @property
    def count(self) -> int:
        return 2 * self.harmonics + 1

    @property
    def needs_extent(self) -> bool:
        return False

    @property
    def period_length(self) -> float:
        is_number = isinstance(self.period, int | float)
        return float(self.period) if is_number else seconds_of_duration(self.period, None)

    def _bind(self, axis: Axis, extent: Extent | None) -> Fourier:
        period = stored_duration(axis, axis.duration(self.period, "period"))
        # An epoch follows from a domain.
        has_domain = self.domain is not None or (axis.epoch and extent is not None)
        domain = bound_domain(self, axis, extent) if has_domain else None
        return replace(self, period=period, domain=domain)

    def term(self, axis: Axis, with_constant: bool = True, suffix: str = "") -> Harmonics:
        period = axis.duration(self.period, "period")
        return Harmonics(period, self.harmonics, with_constant, suffix, math.fmod(axis.epoch, period))

    def suffix(self, number: int) -> str:
        is_text = isinstance(self.period, str)
        return f"({brief_duration(self.period) if is_text else self.period})"

    def integral_range(self, axis: Axis) -> Extent:
        if self.domain is None:
            return 0.0, axis.duration(self.period, "period")
        return range_of(axis, self.domain)

    def reason_dependent(self, later: Basis) -> str:
        if isinstance(later, Fourier) and self.period == later.period:
            return (
                "one lies in the span of the other, having the same period; keep the one with more harmonics"
            )
        return ""


@dataclass(frozen=True, repr=False)
class Polynomial(Basis):
    """Legendre polynomials in 2 (t - lo) / (hi - lo) - 1.

    Observations outside the domain are left out, and a field has values there only with ``extrapolate=True``.

    Parameters
    ----------
    degree : int
        Highest power; there are ``degree + 1`` functions.
    domain : tuple, optional
        (lo, hi) labels; the range of the data by default.

    Raises
    ------
    TypeError, ValueError
        For a degree that is not an integer of at least 0.

    Examples
    --------
    >>> from xspline import Polynomial
    >>> Polynomial(1, domain=("1990", "2020"))
    Polynomial(1, domain=('1990', '2020'))
    """

    grows: ClassVar[bool] = True

    degree: int
    domain: Domain | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        assign(self, degree=checked_count(self.degree, "degree", 0), domain=checked_domain(self.domain))

    @property
    def count(self) -> int:
        return self.degree + 1

    def _bind(self, axis: Axis, extent: Extent | None) -> Polynomial:
        return replace(self, domain=bound_domain(self, axis, extent))

    def term(self, axis: Axis, with_constant: bool = True, suffix: str = "") -> Legendre:
        return Legendre(*self.integral_range(axis), self.degree, with_constant)

    def _numeric(self, axis: Axis) -> Features:
        return Global((self.term(axis),), self.integral_range(axis), self.degree)

    def reason_dependent(self, later: Basis) -> str:
        if self.degree == 0:
            return f"the constant of {self!r} lies in the span of {later!r}; leave it out"
        if isinstance(later, Polynomial):
            return "one polynomial lies in the span of the other; keep the higher degree"
        return ""

    def overlaps(self, later: Basis) -> bool:
        # A B-spline of degree >= 1 holds straight lines, so x1 at least is in both, whichever degree is higher.
        return isinstance(later, BSpline) and later.period is None and later.degree > 0
