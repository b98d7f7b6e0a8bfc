"""Nested spline spaces: every second breakpoint of an axis removed, and the matrices of that change.

A coarse B-spline is a combination of fine ones, the columns of the prolongation P. Its coefficients are values of
the blossom (polar form) of the coarse spline at the fine knots (Ramshaw 1989; the Oslo algorithm of Cohen, Lyche and
Riesenfeld 1980 for any knots): exact, non-negative, at most p + 1 in each row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xspline.spaces.bspline import LocalSpline, periodic_knots

if TYPE_CHECKING:
    from xspline.spaces.features import Features

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
ROUNDING = 1e-12  # entries of P below are zeros
MAX_AXES = 4  # that the compiled loops walk
COARSEST = 3000  # coefficients of a system that needs no coarser one


@dataclass(frozen=True, eq=False)
class Line:
    """One axis of a level.

    Parameters
    ----------
    size, offsets : int
        K and O.
    periodic : bool
    knots : ndarray or None
        Full knot vector of a local spline; None: an axis that is not coarsened.
    """

    size: int
    offsets: int
    periodic: bool = False
    knots: Array | None = None

    @staticmethod
    def of(features: Features) -> Line:
        """The axis of a basis."""
        knots = features.knots if isinstance(features, LocalSpline) else None
        return Line(features.size, features.offsets, features.periodic, knots)

    @property
    def degree(self) -> int:
        """p of a local spline."""
        return self.offsets - 1

    @cached_property
    def coarse(self) -> Line | None:
        """The axis with every second breakpoint removed; None where it is as coarse as it gets."""
        if self.knots is None:
            return None
        p = self.degree
        inner = self.knots[p : self.knots.size - p]
        kept = _every_second(inner)
        if self.periodic:
            size = kept.size - 1
            if size <= 2 * p:  # a pair could be reached both ways around
                return None
            return Line(size, self.offsets, True, periodic_knots(kept, p))
        if kept.size == inner.size:
            return None
        knots = np.concatenate([self.knots[:p], kept, self.knots[self.knots.size - p :]])
        return Line(knots.size - p - 1, self.offsets, False, knots)


def _every_second(inner: Array) -> Array:
    """Knots of the domain without every second breakpoint between its ends, whatever its multiplicity."""
    breaks, number = np.unique(inner, return_inverse=True)
    last = len(breaks) - 1
    return np.asarray(inner[(number % 2 == 0) | (number == last)])


def prolongation(fine: Line, coarse: Line) -> sparse.csr_array:
    """P [K, K_c]: the coefficients of the coarse functions among the fine ones."""
    if fine.knots is None or coarse.knots is None:
        return sparse.eye_array(fine.size, format="csr")
    p, t, tau = fine.degree, fine.knots, coarse.knots
    k = np.arange(fine.size)
    middle = _middle(t, k, p, fine.size)
    # The span of the coarse knots that holds a piece of each fine function, inside the domain.
    inside = np.flatnonzero(np.diff(tau[p : tau.size - p]) > 0) + p
    span = inside[np.searchsorted(tau[inside], middle, side="right") - 1]
    arguments = t[k[:, None] + np.arange(1, p + 1)]
    values = _blossoms(tau, span, arguments, p)
    values[np.abs(values) < ROUNDING] = 0.0
    columns = (span[:, None] - p + np.arange(p + 1)) % coarse.size
    entries = (values.ravel(), (np.repeat(k, p + 1), columns.ravel()))
    matrix = sparse.coo_array(entries, shape=(fine.size, coarse.size)).tocsr()
    matrix.eliminate_zeros()
    return matrix


def _middle(t: Array, k: Integers, p: int, size: int) -> Array:
    """A position inside the domain on the support of each function, near its middle."""
    last = t.size - p - 2
    out, distance = np.full(size, np.nan), np.full(size, np.inf)
    for i in range(p + 1):
        left = k + i
        usable = (left >= p) & (left <= last) & (t[left + 1] > t[left])
        better = usable & (abs(2 * i - p) < distance)
        out[better] = 0.5 * (t[left] + t[left + 1])[better]
        distance[better] = abs(2 * i - p)
    return out


def _blossoms(tau: Array, span: Integers, arguments: Array, p: int) -> Array:
    """Blossoms on a span of its p + 1 functions, [n, p + 1], at p arguments each: de Boor's algorithm."""
    d = np.broadcast_to(np.eye(p + 1), (span.size, p + 1, p + 1)).copy()
    for r in range(1, p + 1):
        for j in range(p, r - 1, -1):
            left, right = tau[span - p + j], tau[span + 1 + j - r]
            share = ((arguments[:, r - 1] - left) / (right - left))[:, None]
            d[:, j] = (1.0 - share) * d[:, j - 1] + share * d[:, j]
    return d[:, p]


@dataclass(frozen=True, eq=False)
class Table:
    """A sparse map of the entries (place, offset) of an axis, rows of equal numbers of offsets after each other."""

    start: Integers
    place: Integers
    offset: Integers
    weight: Array
    size: int
    offsets: int

    @staticmethod
    def of(matrix: sparse.csr_array, offsets: int, out_offsets: int) -> Table:
        """From a matrix whose rows and columns count the offsets fastest."""
        place, offset = np.divmod(matrix.indices.astype(np.int64), offsets)
        start = matrix.indptr.astype(np.int64)
        return Table(start, place, offset, matrix.data, matrix.shape[0] // out_offsets, out_offsets)


@dataclass(frozen=True, eq=False)
class Step:
    """From an axis to its coarse one: tables of P, of Pᵀ and of M ↦ Pᵀ M P on pairs."""

    prolong: Table
    restrict: Table
    galerkin: Table

    @staticmethod
    def of(fine: Line, coarse: Line) -> Step:
        """The tables of two nested axes."""
        matrix = prolongation(fine, coarse)
        transposed = matrix.T.tocsr()
        pairs = galerkin(matrix, fine, coarse)
        return Step(
            Table.of(matrix, 1, 1), Table.of(transposed, 1, 1), Table.of(pairs, fine.offsets, coarse.offsets)
        )


def galerkin(matrix: sparse.csr_array, fine: Line, coarse: Line) -> sparse.csr_array:
    """[K_c O_c, K O]: pairs of Pᵀ M P from pairs of a symmetric M.

    A fine pair {k, l} adds P[k, c] P[l, d] + P[l, c] P[k, d] to the entry (c, d), one of them where k = l.
    """
    columns, values = _padded(matrix)
    k, o = (x.ravel() for x in np.indices((fine.size, fine.offsets)))
    valid = fine.periodic | (k + o < fine.size)
    k, o = k[valid], o[valid]
    second = (k + o) % fine.size
    rows, sources, weights = [], [], []
    for i in range(columns.shape[1]):
        for j in range(columns.shape[1]):
            c, d = columns[k, i], columns[second, j]
            row, forward = _canonical(c, d, coarse)
            # Off the diagonal of M either orientation counts, once; c = d is reached by both.
            keep = (row >= 0) & ((o > 0) | forward)
            w = values[k, i] * values[second, j] * np.where((o > 0) & (c == d), 2.0, 1.0)
            keep &= w != 0
            rows.append(row[keep])
            sources.append((k * fine.offsets + o)[keep])
            weights.append(w[keep])
    entries = (np.concatenate(weights), (np.concatenate(rows), np.concatenate(sources)))
    shape = (coarse.size * coarse.offsets, fine.size * fine.offsets)
    return sparse.coo_array(entries, shape=shape).tocsr()


def _padded(matrix: sparse.csr_array) -> tuple[Integers, Array]:
    """Columns and values of each row, [K, width], filled up with zeros."""
    counts = np.diff(matrix.indptr)
    columns = np.zeros((matrix.shape[0], int(counts.max())), np.int64)
    values = np.zeros(columns.shape)
    filled = np.arange(columns.shape[1]) < counts[:, None]
    columns[filled], values[filled] = matrix.indices, matrix.data
    return columns, values


def _canonical(c: Integers, d: Integers, line: Line) -> tuple[Integers, NDArray[np.bool_]]:
    """Row (first member · O + offset) of a coarse pair, −1 where it is none, and whether c is its first member."""
    ahead = (d - c) % line.size if line.periodic else d - c
    behind = (c - d) % line.size if line.periodic else c - d
    forward = (ahead >= 0) & (ahead < line.offsets)
    backward = (behind >= 0) & (behind < line.offsets) & ~forward
    row = np.where(forward, c * line.offsets + ahead, np.where(backward, d * line.offsets + behind, -1))
    return row, forward
