"""Numeric form of a basis: where a coordinate falls, which functions are active there, and their values.

`Features` is what the other rooms rely on. `Global` serves every basis whose functions are non-zero
everywhere: Fourier, polynomials, unions, and periodic B-splines too short to be local.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True)
class Support:
    """The functions that are active in a cell: neighbours, and after them those that are active in every cell.

    Sums over rows are collected *unrolled*: an array whose first axis are the functions that have neighbours, with a
    second axis of `depth` entries at each. There every cell touches the same places, counted from its first function:
    what belongs to functions of every cell alone waits at that one, and is added up in the end. `near` are neighbours
    in a cell: p + 1, or all K functions of a global basis. `everywhere` is m, functions active in every cell of a basis
    that has both.
    """

    near: int
    everywhere: int = 0

    @property
    def width(self) -> int:
        """Number of active functions."""
        return self.near + self.everywhere

    def depth(self, pairs: bool) -> int:
        """Entries at each of the neighbours: a function, and those of every cell; or pairs in the same way."""
        m = self.everywhere
        return self.width + m * (m + 1) // 2 if pairs else 1 + m

    def index(self, pairs: bool) -> tuple[Integers, Integers]:
        """(a, o): how far behind the first function of the cell, and which entry there; of pairs in a-major order."""
        first, second = np.triu_indices(self.width) if pairs else (np.arange(self.width),) * 2
        near = first < self.near
        entry = second - first if pairs else np.zeros_like(first)
        if self.everywhere:
            if pairs:  # a neighbour and a function of every cell
                entry = np.where(near & (second >= self.near), second, entry)
            entry[~near] = (self.width if pairs else 1) + np.arange(np.count_nonzero(~near))
        return np.where(near, first, 0).astype(np.int64), entry.astype(np.int64)


class Features(Protocol):
    """A basis as numbers: float64, host NumPy."""

    @property
    def size(self) -> int: ...  # K, number of functions
    @property
    def width(self) -> int: ...  # q, functions active in a cell: degree + 1, or K (global)
    @property
    def cells(self) -> int: ...  # m, 1 for global features
    @property
    def offsets(self) -> int: ...  # O of the pair arrays: degree + 1, or K
    @property
    def periodic(self) -> bool: ...  # function indices count modulo `size` (local features only)
    @property
    def first(self) -> Integers: ...  # [m], index of the first active function of each cell
    @property
    def max_order(self) -> int | None: ...  # highest derivative that is not refused
    @property
    def domain(self) -> tuple[float, float] | None: ...  # outside it there are no values; None: nowhere
    @property
    def local(self) -> bool: ...  # whether functions have compact support
    @property
    def support(self) -> Support: ...  # the functions that are active in a cell

    def locate(self, x: Floats) -> tuple[Integers, Floats]:
        """Cell [n] (-1 outside or NaN) and local coordinate z [n] of positions x [n].

        One ulp outside an end counts as on it; the upper end belongs to the last cell; periodic: modulo.
        """

    def locate_anywhere(self, x: Floats) -> tuple[Integers, Floats]:
        """As `locate`, but what lies outside belongs to the cell at that end, whose functions go on there."""

    def features(self, cell: Integers, z: Floats, order: int = 0) -> Floats:
        """Values [n, q] of functions first[cell] + a, or derivatives per unit of x; zero where cell is -1."""

    def design(self, x: Floats, order: int = 0) -> Floats:
        """Dense values [n, K] at positions x [n]; rows outside are NaN."""

    def constant(self) -> Floats:
        """Coefficients [K] of the function 1, all zero if it is not in the span."""

    def roughness(self, order: int) -> Floats:
        """Pair array [K, O] of ∫ D^order B_k D^order B_{k+o} dξ over the domain, scaled to ξ in [0, 1].

        In a union with a B-spline season and trend on one side and the spline on the other are independent of each
        other: entries between the two are 0, and of order 1 and more season and trend cost nothing.
        """

    def labels(self) -> list[str] | Floats:
        """Names of the functions, or their Greville points."""

    def sample(self) -> Floats:
        """Positions where functions show: Greville points [K] moved into the domain, or many even ones [> K]."""

    def count_touched(self, lo: Floats, hi: Floats) -> Integers:
        """How many functions each of the ranges [lo, hi] touches; 0 outside the domain, and where an end is NaN."""


def checked_order(order: int, highest: int | None) -> int:
    """A derivative order, refused above the degree of a B-spline."""
    if order < 0:
        raise ValueError(f"derivative order {order} is negative")
    if highest is not None and order > highest:
        raise ValueError(
            f"derivative order {order} is above the degree {highest} of the B-spline; use a higher degree"
        )
    return order


def frozen(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """The array, read-only: features are shared between spaces."""
    array.setflags(write=False)
    return array


def combine(series: Floats, values: Floats, cell: Integers) -> Floats:
    """Sum over l of series[cell, a, l] values[:, l] as [n, q], laid out function by function.

    Term by term and without BLAS: a row has the same bits in any batch of rows, on any number of threads. `series` is
    [1 or m, q, L], with one row the same for every cell, `values` [n, L] and `cell` [n].
    """
    same_everywhere = series.shape[0] == 1
    out = np.zeros((series.shape[1], cell.size))
    for a, term in np.ndindex(series.shape[1:]):
        out[a] += values[:, term] * (series[0, a, term] if same_everywhere else series[cell, a, term])
    return out.T


def pair_products(values: Floats) -> Floats:
    """Products of the functions a and a + o, a-major as in `Support.index`: [n, q] to [n, q (q + 1) / 2]."""
    first, second = np.triu_indices(values.shape[1])
    out = np.empty((values.shape[0], first.size))
    for column, (a, b) in enumerate(zip(first, second, strict=True)):
        np.multiply(values[:, a], values[:, b], out=out[:, column])
    return out


class SizesOfSupport:
    """What follows from the support, for all classes that have `Features`."""

    @property
    def width(self: Features) -> int:
        return self.support.width

    @property
    def offsets(self: Features) -> int:
        return self.support.width


def is_inside(x: Floats, lo: float, hi: float) -> NDArray[np.bool_]:
    """Whether a position is in the domain, or one ulp outside."""
    inside: NDArray[np.bool_] = (x >= np.nextafter(lo, -np.inf)) & (x <= np.nextafter(hi, np.inf))
    return inside


def weyl(lo: float, hi: float, count: int) -> Floats:
    """Points of Weyl's sequence on [lo, hi], from lo: even like a grid without its aliases."""
    golden = (np.sqrt(5.0) - 1.0) / 2.0
    points: Floats = lo + (hi - lo) * np.mod(np.arange(count) * golden, 1.0)
    return points


class TermFunctions(ABC):
    """The functions of one term of a global basis, by name, without cells."""

    in_cells: ClassVar[bool] = False  # whether it is a B-spline
    # whether it has corners or jumps, and no roughness: regressors, steps, broken lines
    kinked: ClassVar[bool] = False

    @property
    @abstractmethod
    def names(self) -> list[str]: ...
    @property
    @abstractmethod
    def nodes(self) -> int:
        """Gauss nodes that a panel needs."""

    @property
    def slopes(self) -> tuple[str, ...]:
        """Names of the functions whose coefficient is told as a slope."""
        return ()

    @abstractmethod
    def values(self, x: Floats, order: int) -> Floats:
        """[n, k] values at finite positions inside."""

    @abstractmethod
    def panels(self, lo: float, hi: float) -> Floats:
        """Breakpoints in [lo, hi] between which Gauss quadrature of products is exact to rounding."""

    @property
    def constant(self) -> Floats:
        """Coefficients [k] of the function 1; zero if another term has it."""
        return np.array([float(name == "const") for name in self.names])

    @property
    def domain(self) -> tuple[float, float] | None:
        return None

    @property
    def max_order(self) -> int | None:
        """Highest derivative that is not refused; None: any."""
        return None

    def clean(self, x: Floats) -> Floats:
        """x with NaN more than one ulp outside the domain."""
        if self.domain is None:
            return x
        return np.where(is_inside(x, *self.domain), x, np.nan)


@dataclass(frozen=True, eq=False)
class Legendre(TermFunctions):
    """Legendre polynomials P_0 … P_degree in 2 (x - lo) / (hi - lo) - 1; P_0 only `with_constant`."""

    lo: float
    hi: float
    degree: int
    with_constant: bool = True

    slopes: ClassVar[tuple[str, ...]] = ("x1",)

    @property
    def names(self) -> list[str]:
        return ["const", *(f"x{i}" for i in range(1, self.degree + 1))][1 - self.with_constant :]

    @property
    def nodes(self) -> int:
        return self.degree + 1

    @property
    def domain(self) -> tuple[float, float] | None:
        return self.lo, self.hi

    def values(self, x: Floats, order: int) -> Floats:
        if order > self.degree:
            return np.zeros((x.size, len(self.names)))
        length = self.hi - self.lo
        series = np.asarray(legendre.legder(np.eye(self.degree + 1), order, axis=1), dtype=np.float64)
        scaled = 2.0 * ((x - self.lo) / length) - 1.0
        values = np.asarray(legendre.legvander(scaled, self.degree - order), dtype=np.float64)
        series = series[None, 1 - self.with_constant :]
        return combine(series * (2.0 / length) ** order, values, np.zeros(x.size, dtype=np.int64))

    def panels(self, lo: float, hi: float) -> Floats:
        return np.array([lo, hi])

    def in_terms_of(self, other: Legendre) -> Floats:
        """[k, k] A, where these polynomials are A times those of another domain.

        With s' = a s + b between the scaled coordinates P_i(s') is a combination of P_0(s), …, P_i(s).
        """
        nodes, weights = legendre.leggauss(self.degree + 1)
        x = other.lo + (nodes + 1) / 2 * (other.hi - other.lo)
        there = legendre.legvander(2 * (x - self.lo) / (self.hi - self.lo) - 1, self.degree)
        here = legendre.legvander(nodes, self.degree) * (np.arange(self.degree + 1) + 0.5)
        return np.asarray((there * weights[:, None]).T @ here)


@dataclass(frozen=True, eq=False)
class Harmonics(TermFunctions):
    """1, cos(2πx/P), sin(2πx/P), … cos(2πHx/P), sin(2πHx/P), phase zero at x = -start."""

    period: float
    harmonics: int
    with_constant: bool = True
    suffix: str = ""
    start: float = 0.0

    nodes: ClassVar[int] = 28  # for the four cycles of a panel: the error of Gauss quadrature is below 1e-17

    @property
    def names(self) -> list[str]:
        waves = [f"{wave}{k}{self.suffix}" for k in range(1, self.harmonics + 1) for wave in ("cos", "sin")]
        return ["const"] * self.with_constant + waves

    def values(self, x: Floats, order: int) -> Floats:
        # The remainder is exact; the phase of 1e9 s is as good as that of 1 s.
        turn = np.fmod(x, self.period) / self.period
        if self.start:
            turn += self.start / self.period
        turn -= np.rint(turn)
        out = np.full((len(self.names), x.size), float(order == 0))
        for k, (even, odd) in enumerate(
            out[int(self.with_constant) :].reshape(self.harmonics, 2, x.size), start=1
        ):
            phase = (2.0 * np.pi * k) * turn
            # d/dφ turns (cos, sin) into (-sin, cos).
            cos, sin = (np.cos, np.sin) if order % 2 == 0 else (np.sin, np.cos)
            scale = (2.0 * np.pi * k / self.period) ** order
            np.multiply(cos(phase), (1, -1, -1, 1)[order % 4] * scale, out=even)
            np.multiply(sin(phase), (1, 1, -1, -1)[order % 4] * scale, out=odd)
        return out.T

    def panels(self, lo: float, hi: float) -> Floats:
        """Four cycles each of the fastest product."""
        count = int(np.ceil((hi - lo) / self.period * 2 * self.harmonics / 4))
        return np.linspace(lo, hi, max(count, 1) + 1)


@dataclass(frozen=True, eq=False)
class Global(SizesOfSupport):
    """Features of one cell in which all functions are active."""

    terms: tuple[TermFunctions, ...]  # their functions follow each other
    span: tuple[float, float]  # the range of the integrals of `roughness`
    # the highest derivative that makes sense; those of a polynomial are zero above it
    max_order: int | None = None
    points: Floats | None = None  # [K], labels, the names of the functions by default

    periodic: bool = False
    local: bool = False

    @cached_property
    def size(self) -> int:
        return sum(len(term.names) for term in self.terms)

    @property
    def cells(self) -> int:
        return 1

    @property
    def events(self) -> int:
        """Number of functions of a B-spline beside other terms, the last ones; 0 if there are no others, or none."""
        last = self.terms[-1]
        return len(last.names) if len(self.terms) > 1 and last.in_cells else 0

    @property
    def support(self) -> Support:
        return Support(self.size)

    @cached_property
    def first(self) -> Integers:
        return frozen(np.zeros(1, dtype=np.int64))

    @property
    def domain(self) -> tuple[float, float] | None:
        ends = [term.domain for term in self.terms if term.domain is not None]
        return (max(lo for lo, _ in ends), min(hi for _, hi in ends)) if ends else None

    def locate(self, x: Floats) -> tuple[Integers, Floats]:
        z = np.asarray(x, dtype=np.float64)
        for term in self.terms:
            z = term.clean(z)
        return self.locate_anywhere(z)

    def locate_anywhere(self, x: Floats) -> tuple[Integers, Floats]:
        known = np.isfinite(x)
        return np.where(known, 0, -1).astype(np.int64), np.where(known, x, 0.0)

    def features(self, cell: Integers, z: Floats, order: int = 0) -> Floats:
        checked_order(order, None)  # a B-spline among the terms refuses by itself
        values = self.values(z, order)
        values[cell < 0] = 0.0
        return values

    def values(self, x: Floats, order: int) -> Floats:
        """[n, K] of all terms, laid out function by function."""
        return np.concatenate([term.values(x, order).T for term in self.terms]).T

    def design(self, x: Floats, order: int = 0) -> Floats:
        checked_order(order, None)
        cell, z = self.locate(x)
        values = self.values(z, order)
        values[cell < 0] = np.nan
        return values

    def constant(self) -> Floats:
        return np.concatenate([term.constant for term in self.terms])

    def roughness(self, order: int) -> Floats:
        dense, pairs = self.integrals(order), np.zeros((self.size, self.size))
        if self.events:
            first = self.size - self.events
            dense[:first, first:] = 0.0
            dense[:first, :first] *= order == 0
        if order:
            rough = np.concatenate([np.full(len(term.names), not term.kinked) for term in self.terms])
            dense *= rough[:, None] * rough
        for o in range(self.size):
            pairs[: self.size - o, o] = np.diagonal(dense, o)
        return pairs

    def integrals(self, order: int) -> Floats:
        """[K, K] of ∫ D^order B_k D^order B_l dξ over the span, scaled to ξ in [0, 1]."""
        checked_order(order, None)  # a B-spline among the terms refuses by itself
        length = self.span[1] - self.span[0]
        dense = np.zeros((self.size, self.size))
        edges = np.unique(np.concatenate([term.panels(*self.span) for term in self.terms]))
        # Harmonics of several periods share their panels, so the nodes of one of them serve all.
        nodes, weights = legendre.leggauss(sum({type(term): term.nodes for term in self.terms}.values()))
        step = max((1 << 15) // nodes.size, 1)  # 32,768 nodes at a time
        for start in range(0, edges.size - 1, step):
            lo = edges[start : start + step + 1][:-1]
            half_length = np.diff(edges[start : start + step + 1]) / 2
            x = (lo[:, None] + half_length[:, None] * (1 + nodes)).ravel()
            scale = np.sqrt((half_length[:, None] * weights).ravel() / length) * length**order
            rows = np.ascontiguousarray((self.values(x, order) * scale[:, None]).T)
            dense += np.einsum("kn,ln->kl", rows, rows, optimize=False)
        return dense

    def labels(self) -> list[str] | Floats:
        return [name for term in self.terms for name in term.names] if self.points is None else self.points

    def sample(self) -> Floats:
        if self.points is None:
            return np.append(weyl(*self.span, 2 * self.size + 64), self.span[1])
        return self.points if self.domain is None else np.clip(self.points, *self.domain)

    def count_touched(self, lo: Floats, hi: Floats) -> Integers:
        least, most = self.domain or (-np.inf, np.inf)
        return np.where((hi >= least) & (lo <= most), self.size, 0)  # NaN compares as false
