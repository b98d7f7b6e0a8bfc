"""Public bases: what the user writes for one coordinate."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from xspline.spaces._types import Array
from xspline.spaces.axis import Axis
from xspline.spaces.basis import (
    Basis,
    Domain,
    Extent,
    assign,
    bound_domain,
    count_of,
    pair,
    plain,
    plain_number,
    range_of,
    stored,
    stored_duration,
)
from xspline.spaces.bspline import LocalSpline, periodic_knots, spline_features, uniform_knots
from xspline.spaces.features import Features, Global, Harmonics, Legendre


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
    >>> BSpline(13, domain=(-30, 30))
    BSpline(13, domain=(-30, 30))
    """

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
        assign(self, degree=count_of(self.degree, "degree", 0), period=plain_number(self.period))
        assign(
            self,
            spacing=plain_number(self.spacing),
            domain=None if self.domain is None else pair(self.domain),
        )
        if self.size is not None:
            self._check_size()
        if self.knots is not None:
            assign(self, knots=tuple(plain_number(knot) for knot in self.knots))
            self._check_knot_count()

    def _check_size(self) -> None:
        assign(self, size=count_of(self.size, "size", 1))
        if self.period is None and self.count <= self.degree:
            raise ValueError(f"BSpline size {self.size} must be greater than its degree {self.degree}")

    def _check_knot_count(self) -> None:
        least = 2 if self.period is not None else 2 * self.degree + 2
        if len(self.knots or ()) < least:
            kind = (
                "breakpoints of one period" if self.period is not None else f"knots for degree {self.degree}"
            )
            raise ValueError(f"BSpline needs at least {least} {kind}, got {len(self.knots or ())}")

    @property
    def _leading(self) -> str:
        return "size"

    @property
    def count(self) -> int:
        if self.knots is not None:
            return len(self.knots) - 1 - (0 if self.period is not None else self.degree)
        if self.size is None:
            raise ValueError(f"the size of {self!r} follows from its domain; bind it first, or pass size")
        return self.size

    @property
    def spans(self) -> bool:
        return self.period is None and (self.domain is not None or self.knots is not None)

    @property
    def needs_extent(self) -> bool:
        return self.domain is None and self.period is None and self.knots is None

    def _bind(self, axis: Axis, extent: Extent | None) -> BSpline:
        period = self._period(axis, extent)
        if self.knots is not None:
            return self._bind_knots(axis, period)
        domain = self._periodic_domain(axis, period) if period else bound_domain(self, axis, extent)
        size = self.size or self._spaced(axis, range_of(axis, domain), period is not None)
        length = None if period is None else stored_duration(axis, period)
        return replace(self, size=size, spacing=None, domain=domain, period=length)

    def _period(self, axis: Axis, extent: Extent | None) -> float | None:
        if self.period is not None:
            return axis.duration(self.period, "period")
        whole = axis.wrap is not None and extent == (0.0, axis.wrap)
        return axis.wrap if self.needs_extent and whole else None

    def _bind_knots(self, axis: Axis, period: float | None) -> BSpline:
        knots = np.array([float(axis.to_float(knot)) for knot in self.knots or ()])
        self._check_knots(axis, knots, period)
        inner = knots if period else knots[self.degree : knots.size - self.degree]
        domain = (stored(axis, inner[0]), stored(axis, inner[-1]))
        if self.domain is not None and range_of(axis, self.domain) != (inner[0], inner[-1]):
            raise ValueError(
                f"domain {plain(self.domain)} differs from {domain}, which the knots span; leave it out"
            )
        if period:
            _check_period(axis, inner[0], inner[-1], period)
        length = None if period is None else stored_duration(axis, period)
        return replace(self, knots=tuple(stored(axis, t) for t in knots), domain=domain, period=length)

    def _check_knots(self, axis: Axis, knots: Array, period: float | None) -> None:
        if not np.all(np.isfinite(knots)) or np.any(np.diff(knots) < 0):
            raise ValueError("knots must be finite and ascending")
        full = periodic_knots(knots, self.degree) if period else knots
        p = self.degree
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

    def _periodic_domain(self, axis: Axis, period: float) -> Domain:
        lo, hi = (0.0, period) if self.domain is None else range_of(axis, self.domain)
        _check_period(axis, lo, hi, period)
        return stored(axis, lo), stored(axis, hi)

    def _spaced(self, axis: Axis, ends: Extent, periodic: bool) -> int:
        # A domain that is a whole number of spacings up to rounding is that number.
        ratio = (ends[1] - ends[0]) / axis.duration(self.spacing, "spacing")
        intervals = max(math.ceil(ratio * (1 - 1e-12)), 1)
        return intervals if periodic else intervals + self.degree

    def _numeric(self, axis: Axis) -> Features:
        return spline_features(self.local(axis))

    def local(self, axis: Axis) -> LocalSpline:
        """The spline in cells, however short."""
        if self.domain is None or self.spacing is not None:
            raise ValueError(f"{self!r} is not bound to a domain; pass domain=(lo, hi)")
        periodic, size = self.period is not None, self.count
        if self.knots is not None:
            knots = np.array([float(axis.to_float(knot)) for knot in self.knots])
            return LocalSpline(
                periodic_knots(knots, self.degree) if periodic else knots, self.degree, size, periodic, False
            )
        lo, hi = range_of(axis, self.domain)
        self._check_resolved(axis, lo, hi)
        if not periodic:
            return LocalSpline(
                uniform_knots(lo, hi, size - self.degree, self.degree), self.degree, size, False, True
            )
        return LocalSpline(
            periodic_knots(np.linspace(lo, hi, size + 1), self.degree), self.degree, size, True, True
        )

    def _check_resolved(self, axis: Axis, lo: float, hi: float) -> None:
        """Float64 must tell the knots apart."""
        intervals = self.count if self.period is not None else self.count - self.degree
        if (hi - lo) / intervals <= 2 * np.spacing(max(abs(lo), abs(hi))):
            ends = f"({axis.text(lo)}, {axis.text(hi)})"
            raise ValueError(
                f"domain {ends} is too short for {intervals} intervals in float64; pass a wider one"
            )


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
    period : number, str or numpy.timedelta64
        A number in the coordinate's unit, or a length of time: ``"365.2425D"``, ``"year"`` (the mean year of
        the calendar), ``"day"``.
    domain : tuple, optional
        Range of the integrals of a roughness penalty; one period from 0 by default. Values exist everywhere.
    """

    harmonics: int
    period: Any
    domain: Domain | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        assign(self, harmonics=count_of(self.harmonics, "harmonics", 1), period=plain_number(self.period))
        if self.period is None:
            raise ValueError(f'Fourier needs a period, as in Fourier({self.harmonics}, period="365.2425D")')
        assign(self, domain=None if self.domain is None else pair(self.domain))

    @property
    def _leading(self) -> str:
        return "harmonics"

    @property
    def count(self) -> int:
        return 2 * self.harmonics + 1

    @property
    def needs_extent(self) -> bool:
        return False

    def _bind(self, axis: Axis, extent: Extent | None) -> Fourier:
        period = stored_duration(axis, axis.duration(self.period, "period"))
        domain = None if self.domain is None else bound_domain(self, axis, None)
        return replace(self, period=period, domain=domain)

    def part(self, axis: Axis, with_constant: bool = True, suffix: str = "") -> Harmonics:
        """Its functions, for features of one or several terms."""
        return Harmonics(axis.duration(self.period, "period"), self.harmonics, with_constant, suffix)

    def _numeric(self, axis: Axis) -> Features:
        part = self.part(axis)
        return Global((part,), (0.0, part.period) if self.domain is None else range_of(axis, self.domain))


@dataclass(frozen=True, repr=False)
class Polynomial(Basis):
    """Legendre polynomials in 2 (t - lo) / (hi - lo) - 1, continued beyond the domain.

    Parameters
    ----------
    degree : int
    domain : tuple, optional
        (lo, hi) labels; the range of the data by default.
    """

    degree: int
    domain: Domain | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        assign(self, degree=count_of(self.degree, "degree", 0))
        assign(self, domain=None if self.domain is None else pair(self.domain))

    @property
    def _leading(self) -> str:
        return "degree"

    @property
    def count(self) -> int:
        return self.degree + 1

    @property
    def needs_extent(self) -> bool:
        return self.domain is None

    def _bind(self, axis: Axis, extent: Extent | None) -> Polynomial:
        return replace(self, domain=bound_domain(self, axis, extent))

    def part(self, axis: Axis, with_constant: bool = True) -> Legendre:
        """Its functions, for features of one or several terms."""
        if self.domain is None:
            raise ValueError(f"{self!r} is not bound to a domain; pass domain=(lo, hi)")
        return Legendre(*range_of(axis, self.domain), self.degree, with_constant)

    def _numeric(self, axis: Axis) -> Features:
        part = self.part(axis)
        return Global((part,), (part.lo, part.hi), self.degree)
