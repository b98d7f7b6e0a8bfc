"""Features of a B-spline: Legendre series of its functions on each cell."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np
from numpy.polynomial import legendre

from xspline.spaces.features import (
    Floats,
    Global,
    Integers,
    SizesOfSupport,
    Support,
    TermFunctions,
    checked_order,
    combine,
    frozen,
)


def cox_de_boor(knots: Floats, x: Floats, order: int = 0) -> Floats:
    """Values, or derivatives, of the p + 1 functions active on the middle span of local knots: [..., p + 1, n].

    The recursion of de Boor (A Practical Guide to Splines, 2001, chapter X); its last `order` steps
    differentiate, so that derivatives lose no digits to differences of values. `knots`, [..., 2p + 2], are t_{c-p} …
    t_{c+p+1} around the span [t_c, t_{c+1}), which has positive length. `x`, [..., n], are positions on the span, and
    `order` is that of the derivative, at most p.
    """
    p = knots.shape[-1] // 2 - 1
    t = [knots[..., i, None] for i in range(2 * p + 2)]
    values = [np.ones_like(x)]
    for d in range(1, p + 1):
        # Function a of degree d - 1 has the support [left, right], which holds the span: never zero.
        ends = [(t[p + a + 1 - d], t[p + a + 1]) for a in range(d)]
        scaled = [value / (right - left) for value, (left, right) in zip(values, ends, strict=True)]
        if d > p - order:
            rising = [d * value for value in scaled]
            falling = [-value for value in rising]
        else:
            rising = [(x - left) * value for value, (left, _) in zip(scaled, ends, strict=True)]
            falling = [(right - x) * value for value, (_, right) in zip(scaled, ends, strict=True)]
        values = [falling[0], *(r + f for r, f in zip(rising[:-1], falling[1:], strict=True)), rising[-1]]
    return np.stack(values, axis=-2)


def legendre_tables(knots: Floats, order: int = 0) -> Floats:
    """Legendre series of the active functions of spans, or of their derivatives per unit of z in [-1, 1].

    Projection by Gauss quadrature, exact for the degree of P_l times a function. `knots`, [..., 2p + 2], are as in
    `cox_de_boor`, and `order` is that of the derivative. The result is [..., p + 1, p + 1 - order] (function, degree of
    the Legendre polynomial).
    """
    p = knots.shape[-1] // 2 - 1
    count = p + 1 - order
    z, w = legendre.leggauss(count)
    # Relative to the span's own left end and length: no digits lost to large coordinates.
    left, length = knots[..., p, None], knots[..., p + 1, None] - knots[..., p, None]
    local = (knots - left) / length
    values = cox_de_boor(local, np.broadcast_to((z + 1) / 2, (*local.shape[:-1], count)), order)
    project = legendre.legvander(z, count - 1) * w[:, None] * (np.arange(count) + 0.5)
    return np.asarray(np.einsum("...an,nl->...al", values, project, optimize=False) * 0.5**order)


@dataclass(frozen=True, eq=False)
class LocalSpline(SizesOfSupport):
    """B-spline whose functions touch p + 1 cells."""

    knots: Floats  # full knot vector t; function e is supported on [t_e, t_{e + p + 1}], e = 0 … cells' last
    degree: int  # p
    size: int  # K
    periodic: bool  # whether positions and functions wrap around, and function e counts modulo K
    uniform: bool  # whether the cells have equal length, so that one table serves them all

    local: bool = True

    @property
    def support(self) -> Support:
        return Support(self.degree + 1)

    @property
    def max_order(self) -> int:
        return self.degree

    @property
    def ends(self) -> tuple[float, float]:
        """Domain, for periodic splines too."""
        return float(self.knots[self.degree]), float(self.knots[-self.degree - 1])

    @property
    def domain(self) -> tuple[float, float] | None:
        return None if self.periodic else self.ends

    @cached_property
    def _spans(self) -> Integers:
        """Knot index of the left end of each cell; spans of length zero are skipped."""
        p = self.degree
        return np.flatnonzero(np.diff(self.knots[p : self.knots.size - p]) > 0).astype(np.int64) + p

    @cached_property
    def edges(self) -> Floats:
        """[m + 1] ends of the cells."""
        return frozen(np.append(self.knots[self._spans], self.ends[1]))

    @cached_property
    def cells(self) -> int:
        return int(self._spans.size)

    @cached_property
    def first(self) -> Integers:
        return frozen(self._spans - self.degree)

    @cached_property
    def lengths(self) -> Floats:
        """Lengths of the cells: [1] if uniform, else [m]."""
        lo, hi = self.ends
        return np.array([(hi - lo) / self.cells]) if self.uniform else np.diff(self.edges)

    @cached_property
    def tables(self) -> tuple[Floats, ...]:
        """Legendre series [1 or m, q, p + 1 - order] of the functions' derivatives by z, for each order."""
        p = self.degree
        around = np.arange(-p, p + 2)
        knots = around[None].astype(np.float64) if self.uniform else self.knots[self._spans[:, None] + around]
        return tuple(frozen(legendre_tables(knots, order)) for order in range(p + 1))

    def derivative_table(self, order: int) -> Floats:
        """Legendre series [1 or m, q, p + 1 - order] of the active functions' derivatives per unit of x."""
        table = self.tables[checked_order(order, self.degree)]
        return table * ((2.0 / self.lengths) ** order)[:, None, None] if order else table

    # --- positions

    def locate(self, x: Floats, xp: Any = np) -> tuple[Integers, Floats]:
        """Locate as `Features` does; `xp` is the namespace of positions on a device, and of what comes back."""
        y = self.clean(x, xp)
        known, last = xp.logical_not(xp.isnan(y)), self.cells - 1
        y = xp.where(known, y, xp.full_like(y, self.ends[0]))
        edges, lengths = (xp.asarray(np.array(a), device=y.device) for a in (self.edges, self.lengths))
        if self.uniform:
            turns = (y - float(self.edges[0])) / float(self.lengths[0])
            cell = xp.astype(xp.floor(turns), xp.int64)
            cell = xp.minimum(cell, xp.full_like(cell, last))
            # The quotient may round across a knot; the knots themselves decide.
            cell = cell - xp.astype(y < xp.take(edges, cell), xp.int64)
            beyond = xp.logical_and(y >= xp.take(edges, cell + 1), cell < last)
            cell = cell + xp.astype(beyond, xp.int64)
            # Measured from the domain's end: it is exact, knots are rounded.
            turns = turns - xp.astype(cell, xp.float64)
        else:
            cell = xp.astype(xp.searchsorted(edges, y, side="right"), xp.int64) - 1
            cell = xp.minimum(cell, xp.full_like(cell, last))
            turns = (y - xp.take(edges, cell)) / xp.take(lengths, cell)
        z = xp.where(known, 2.0 * turns - 1.0, xp.zeros_like(y))
        z = xp.minimum(xp.maximum(z, xp.full_like(z, -1.0)), xp.ones_like(z))
        return xp.where(known, cell, xp.full_like(cell, -1)), z

    def locate_anywhere(self, x: Floats) -> tuple[Integers, Floats]:
        if self.periodic:
            return self.locate(x)
        (lo, hi), x = self.ends, np.where(np.isfinite(x), x, np.nan)
        cell, z = self.locate(np.clip(x, lo, hi))
        beyond = np.minimum(x - lo, 0.0) / self.lengths[0] + np.maximum(x - hi, 0.0) / self.lengths[-1]
        return cell, np.where(cell >= 0, z + 2.0 * beyond, 0.0)

    def local_coordinate(self, cell: Integers, x: Floats) -> Floats:
        """z of positions whose cells are known, also outside the domain."""
        cell, (lo, _) = np.maximum(cell, 0), self.ends
        if self.uniform:
            turns = (x - lo) / self.lengths[0] - cell
        else:
            turns = (x - self.edges[cell]) / self.lengths[cell]
        return np.asarray(2.0 * turns - 1.0)

    def clean(self, x: Floats, xp: Any = np) -> Floats:
        """Positions in the domain: one ulp outside is on the end, periodic ones wrapped, NaN elsewhere."""
        (lo, hi), x = self.ends, xp.asarray(x, dtype=xp.float64)
        least, most, none = (xp.full_like(x, end) for end in (lo, hi, np.nan))
        cleaned: Floats
        if self.periodic:
            x = xp.where(xp.isfinite(x), x, none)
            # What lies inside stays bit for bit, so that it compares with the knots as written.
            wrapped = xp.remainder(x - lo, xp.full_like(x, hi - lo)) + lo
            y = xp.where(xp.logical_and(x >= lo, x < hi), x, wrapped)
            cleaned = xp.where(y >= hi, least, y)
        else:
            low, high = float(np.nextafter(lo, -np.inf)), float(np.nextafter(hi, np.inf))
            inside = xp.where(xp.logical_and(x >= low, x <= high), x, none)
            cleaned = xp.where(inside < lo, least, xp.where(inside > hi, most, inside))
        return cleaned

    # --- values

    def features(self, cell: Integers, z: Floats, order: int = 0) -> Floats:
        series = self.derivative_table(order)
        powers = np.asarray(legendre.legvander(z, self.degree - order), dtype=np.float64)
        values = combine(series, powers, cell)
        values[cell < 0] = 0.0
        return values

    def design(self, x: Floats, order: int = 0, *, extrapolate: bool = False) -> Floats:
        cell, z = self.locate_anywhere(x) if extrapolate else self.locate(x)
        values = self.features(cell, z, order)
        out, rows = np.zeros((cell.size, self.size)), np.arange(cell.size)
        for a in range(self.width):  # short periodic splines: several of a cell's functions are one
            out[rows, (self.first[cell] + a) % self.size] += values[:, a]
        out[cell < 0] = np.nan
        return out

    def constant(self) -> Floats:
        return np.ones(self.size)

    def roughness(self, order: int) -> Floats:
        lo, hi = self.ends
        scale = np.broadcast_to(self.lengths, self.cells) / (hi - lo)  # cell lengths in ξ
        z, w = legendre.leggauss(self.degree + 1)
        series = self.tables[checked_order(order, self.degree)]
        values = np.einsum("cal,nl->can", series, legendre.legvander(z, self.degree - order), optimize=False)
        pairs = np.zeros((self.size, self.offsets))
        for a, o in zip(*self.support.index(pairs=True), strict=True):
            integral = np.einsum("cn,cn,n->c", values[:, a], values[:, a + o], w, optimize=False)
            np.add.at(
                pairs, ((self.first + a) % self.size, o), integral * (2.0 / scale) ** (2 * order) * scale / 2
            )
        return pairs

    def labels(self) -> Floats:
        """Greville points [K]: averages of a function's inner knots; midpoints for degree 0."""
        p = self.degree
        inner = self.knots[np.arange(self.size)[:, None] + (np.arange(1, p + 1) if p else np.arange(2))]
        points: Floats = self.knots[0] + np.mean(inner - self.knots[0], axis=1)
        return self.clean(points) if self.periodic else points

    def sample(self) -> Floats:
        return self.labels() if self.domain is None else np.clip(self.labels(), *self.domain)

    def count_touched(self, lo: Floats, hi: Floats) -> Integers:
        left, right = self.ends
        if self.periodic:
            first, last = self.locate(lo)[0], self.locate(hi)[0]
            around = (hi - lo >= right - left) | ((first == last) & (self.clean(hi) < self.clean(lo)))
            count = np.minimum((self.first[last] - self.first[first]) % self.size + self.width, self.size)
            return np.where(np.isnan(lo) | np.isnan(hi), 0, np.where(around, self.size, count))
        first, last = (self.locate(np.clip(x, left, right))[0] for x in (lo, hi))
        count = self.first[last] - self.first[first] + self.width
        return np.where((hi >= left) & (lo <= right), count, 0)  # NaN compares as false


@dataclass(frozen=True, eq=False)
class SplineTerm(TermFunctions):
    """A B-spline among the functions of a global basis; the function 1 may be that of another term."""

    in_cells: ClassVar[bool] = True

    spline: LocalSpline
    with_constant: bool = True

    @property
    def names(self) -> list[str]:
        return [f"b{k}" for k in range(self.spline.size)]

    @property
    def constant(self) -> Floats:
        return self.spline.constant() * self.with_constant

    @property
    def domain(self) -> tuple[float, float] | None:
        return self.spline.domain

    @property
    def max_order(self) -> int | None:
        return self.spline.degree

    @property
    def nodes(self) -> int:
        return self.spline.degree + 1

    def clean(self, x: Floats) -> Floats:
        return x if self.spline.periodic else self.spline.clean(x)

    def values(self, x: Floats, order: int) -> Floats:
        return self.spline.design(x, order, extrapolate=True)  # `clean` says what is inside

    def panels(self, lo: float, hi: float) -> Floats:
        """Knots in [lo, hi], repeated with the period."""
        edges, (left, right) = self.spline.edges, self.spline.ends
        if self.spline.periodic:
            turns = np.arange(np.floor((lo - left) / (right - left)), np.ceil((hi - left) / (right - left)))
            edges = (edges[:-1] + turns[:, None] * (right - left)).ravel()
        return np.concatenate([[lo], edges[(edges > lo) & (edges < hi)], [hi]])


@dataclass(frozen=True, eq=False)
class Arrow(Global):
    """A union whose last term is a B-spline, in cells: m functions that are active everywhere, then n local ones.

    A matrix over these functions has the shape of an arrow: a band and m dense rows and columns. Of a pair array the
    entry (k, o) is the pair of k with

    - k + o, for o ≤ p, a local function k, and for o = 0 of every function;
    - function j = o − p − 1 of those active everywhere, for o > p and k > j.

    So each pair is there once, and other entries are zero. A position is its own local coordinate.
    """

    @property
    def spline(self) -> LocalSpline:
        """The B-spline among the terms."""
        return cast("SplineTerm", self.terms[-1]).spline

    @cached_property
    def others(self) -> Global:
        """The terms before it."""
        return Global(self.terms[:-1], self.span)

    @property
    def support(self) -> Support:
        return Support(self.spline.width, self.others.size)

    @property
    def cells(self) -> int:
        return self.spline.cells

    @property
    def first(self) -> Integers:
        """[m] first active one of the local functions, which are counted from 0."""
        return self.spline.first

    def locate_anywhere(self, x: Floats) -> tuple[Integers, Floats]:
        cell, _ = self.spline.locate_anywhere(x)
        return cell, np.where(cell >= 0, x, 0.0)

    def features(self, cell: Integers, z: Floats, order: int = 0) -> Floats:
        local = self.spline.features(cell, self.spline.local_coordinate(cell, z), order)
        values = np.concatenate([local.T, self.others.values(z, order).T]).T
        values[cell < 0] = 0.0
        return values

    def roughness(self, order: int) -> Floats:
        m, near = self.others.size, self.spline.width
        pairs = np.zeros((self.size, self.offsets))
        pairs[m:, :near] = self.spline.roughness(order)
        if not order:
            dense = self.others.integrals(0)
            pairs[:m, 0] = np.diagonal(dense)
            for j in range(m):
                pairs[j + 1 : m, near + j] = dense[j + 1 :, j]
        return pairs


def union_features(
    terms: tuple[TermFunctions, ...], span: tuple[float, float], max_order: int | None
) -> Global:
    """Features of a union: in cells where it has a B-spline long enough that this takes fewer numbers."""
    arrow = Arrow(terms, span, max_order)
    if isinstance(terms[-1], SplineTerm) and not terms[-1].spline.periodic:
        if arrow.support.depth(pairs=True) < arrow.size:
            return arrow
    return Global(terms, span, max_order)


def periodic_knots(breakpoints: Floats, degree: int) -> Floats:
    """Breakpoints of one period, both ends included, continued by `degree` beyond both ends."""
    period, count = breakpoints[-1] - breakpoints[0], breakpoints.size - 1
    turn, place = np.divmod(np.arange(-degree, count + degree + 1), count)
    knots: Floats = breakpoints[place] + turn * period
    knots[degree : degree + count + 1] = breakpoints
    return knots
