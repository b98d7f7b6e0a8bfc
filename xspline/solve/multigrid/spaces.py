"""Nested spline spaces by knot removal: the prolongation from every second breakpoint to all, and Galerkin sums.

A coarse B-spline is a combination of fine ones, the columns of the prolongation P. Its coefficients are values of
the blossom (polar form) of the coarse spline at the fine knots (Ramshaw 1989; the Oslo algorithm of Cohen, Lyche and
Riesenfeld 1980 for any knots): exact, non-negative, at most p + 1 in each row.

The coarse space lies inside the fine one, so its statistics are those of the fine one between the prolongations (a
Galerkin projection), and no data are read. Strengths of roughness do not depend on knots: those that a coarse problem
chooses are a good start for the fine one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xspline.solve.direct.band import Array, Integers
from xspline.solve.direct.cholesky import tolerance
from xspline.spaces import Basis, BSpline, Frame, Space
from xspline.spaces.bspline import LocalSpline, periodic_knots
from xspline.spaces.features import Features
from xspline.sums import Factor, Gram, Sums

PenaltyTerms = Sequence[Sequence[Array]]  # products over the axes: pairs [K, O] of each axis


@dataclass(frozen=True, eq=False)
class AxisLevel:
    """One axis of a level."""

    size: int  # K
    offsets: int  # O
    periodic: bool = False
    knots: Array | None = None  # the full one of a local spline, None on an axis that is not coarsened

    @staticmethod
    def of(features: Features, offsets: int = 0) -> AxisLevel:
        """The axis of a basis; of sums over cells, which couple more neighbours, with so many offsets."""
        knots = features.knots if isinstance(features, LocalSpline) else None
        return AxisLevel(features.size, offsets or features.offsets, features.periodic, knots)

    @property
    def degree(self) -> int:
        """p of a local spline."""
        more = 0 if self.knots is None else self.knots.size - self.size - 1
        return more // 2 if self.periodic else more

    @cached_property
    def coarse(self) -> AxisLevel | None:
        """The axis with every second breakpoint removed; None where it is as coarse as it gets."""
        if self.knots is None:
            return None
        p = self.degree
        inner = self.knots[p : self.knots.size - p]
        # Every second breakpoint between the ends of the domain goes, whatever its multiplicity.
        breaks, number = np.unique(inner, return_inverse=True)
        kept = inner[(number % 2 == 0) | (number == len(breaks) - 1)]
        if self.periodic:
            size = kept.size - 1
            if size <= 2 * (self.offsets - 1):  # a pair could be reached both ways around
                return None
            return AxisLevel(size, self.offsets, True, periodic_knots(kept, p))
        if kept.size == inner.size or kept.size + p - 1 < self.offsets:
            return None
        knots = np.concatenate([self.knots[:p], kept, self.knots[self.knots.size - p :]])
        return AxisLevel(knots.size - p - 1, self.offsets, False, knots)


def prolongation(fine: AxisLevel, coarse: AxisLevel) -> sparse.csr_array:
    """P [K, K_c]: the coefficients of the coarse functions among the fine ones, of two axes with knots."""
    p, t, tau = fine.degree, np.asarray(fine.knots), np.asarray(coarse.knots)
    k = np.arange(fine.size)
    # A position inside the domain on the support of each fine function, in its knot interval nearest to the middle.
    middle, distance = np.full(fine.size, np.nan), np.full(fine.size, np.inf)
    for i in range(p + 1):
        left = k + i
        usable = (left >= p) & (left <= t.size - p - 2) & (t[left + 1] > t[left])
        nearer = usable & (abs(2 * i - p) < distance)
        middle[nearer] = 0.5 * (t[left] + t[left + 1])[nearer]
        distance[nearer] = abs(2 * i - p)
    # The span of the coarse knots that holds this piece of each fine function.
    inside = np.flatnonzero(np.diff(tau[p : tau.size - p]) > 0) + p
    span = inside[np.searchsorted(tau[inside], middle, side="right") - 1]
    values = _blossoms(tau, span, t[k[:, None] + np.arange(1, p + 1)], p)
    values[np.abs(values) < tolerance(p)] = 0.0
    columns = (span[:, None] - p + np.arange(p + 1)) % coarse.size
    entries = (values.ravel(), (np.repeat(k, p + 1), columns.ravel()))
    matrix = sparse.coo_array(entries, shape=(fine.size, coarse.size)).tocsr()
    matrix.eliminate_zeros()
    return matrix


def _blossoms(tau: Array, span: Integers, arguments: Array, p: int) -> Array:
    """Blossoms on a span of its p + 1 functions, [n, p + 1], at p arguments each: de Boor's algorithm."""
    d = np.broadcast_to(np.eye(p + 1), (span.size, p + 1, p + 1)).copy()
    for r in range(1, p + 1):
        for j in range(p, r - 1, -1):
            left, right = tau[span - p + j], tau[span + 1 + j - r]
            share = ((arguments[:, r - 1] - left) / (right - left))[:, None]
            d[:, j] = (1.0 - share) * d[:, j - 1] + share * d[:, j]
    return d[:, p]


def pair_projection(prolong: sparse.csr_array, fine: AxisLevel, coarse: AxisLevel) -> sparse.csr_array:
    """[K_c O_c, K O]: pairs of Pᵀ M P from pairs of a symmetric M.

    A fine pair {k, l} adds P[k, c] P[l, d] + P[l, c] P[k, d] to the entry (c, d), one of them where k = l.
    """
    # Columns and values of each row of P, [K, width], filled up with zeros.
    counts = np.diff(prolong.indptr)
    columns = np.zeros((fine.size, int(counts.max())), np.int64)
    values = np.zeros(columns.shape)
    filled = np.arange(columns.shape[1]) < counts[:, None]
    columns[filled], values[filled] = prolong.indices, prolong.data
    k, o = (x.ravel() for x in np.indices((fine.size, fine.offsets)))
    valid = fine.periodic | (k + o < fine.size)
    k, o = k[valid], o[valid]
    second = (k + o) % fine.size
    rows, sources, weights = [], [], []
    for i in range(columns.shape[1]):
        for j in range(columns.shape[1]):
            c, d = columns[k, i], columns[second, j]
            row, forward = pair_places(c, d, coarse)
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


def pair_places(
    a: Integers, b: Integers, axis: AxisLevel, strides: tuple[int, int] | None = None
) -> tuple[Integers, NDArray[np.bool_]]:
    """Return where pairs of coefficients of an axis are in a flat pair array, −1 if nowhere, and whether a is first.

    `strides` are those of coefficients and of offsets in the array; if they are not given, those of this axis alone.
    """
    stride, offset_stride = strides or (axis.offsets, 1)
    ahead, behind = b - a, a - b
    if axis.periodic:
        ahead, behind = ahead % axis.size, behind % axis.size
    forward = (ahead >= 0) & (ahead < axis.offsets)
    backward = (behind >= 0) & (behind < axis.offsets)
    places = np.where(forward, a * stride + ahead * offset_stride, b * stride + behind * offset_stride)
    return np.where(forward | backward, places, -1), forward


def times_axis(
    matrix: Any, array: Array, axis: int, offset_axis: int | None = None, offsets: int = 0
) -> Array:
    """A matrix times one axis of an array, or times an axis of coefficients and that of their offsets as one.

    Afterwards there are as many `offsets` as before, or so many.
    """
    if offset_axis is None:
        # Axes are exchanged: of small arrays np.moveaxis takes most of the time.
        front = array.swapaxes(0, axis)
        out = matrix @ front.reshape(len(front), -1)
        return np.asarray(out.reshape(-1, *front.shape[1:]).swapaxes(0, axis))
    own = axis, offset_axis
    front = np.moveaxis(array, own, (0, 1))
    out = matrix @ front.reshape(math.prod(front.shape[:2]), -1)
    return np.moveaxis(out.reshape(-1, offsets or front.shape[1], *front.shape[2:]), (0, 1), own)


def coarser(sums: Sums, space: Space, names: Collection[str]) -> tuple[Sums, Space] | None:
    """Sums and space with every second breakpoint removed along each B-spline of the named coordinates.

    None where no axis has a breakpoint to spare.
    """
    bases: dict[str, Basis] = {name: basis for name, (_, basis) in space.axes.items()}
    moment, prolongations, projections = sums.full_moment(space.frame), {}, {}
    for j, (name, (axis, basis)) in enumerate(space.axes.items()):
        fine = AxisLevel.of(space.features[j], space.offsets[j])
        coarse = fine.coarse if name in names else None
        if coarse is not None:
            knots = np.asarray(coarse.knots)
            if coarse.periodic:  # a periodic basis takes the breakpoints of its period
                knots = knots[coarse.degree : knots.size - coarse.degree]
            exact = map(axis.text, knots) if axis.epoch else axis.to_label(knots)
            labels = tuple(knots.tolist() if axis.kind == "number" else exact)
            period = basis.period if isinstance(basis, BSpline) else None
            bases[name] = BSpline(degree=coarse.degree, knots=labels, period=period)
            prolongations[j] = prolongation(fine, coarse)
            projections[j] = pair_projection(prolongations[j], fine, coarse)
    if not prolongations:
        return None
    for j, matrix in prolongations.items():
        moment = times_axis(matrix.T, moment, j)
    terms = tuple(
        tuple(projected(f.full(space.frame), projections) for f in term) for term in sums.gram.terms
    )
    window = tuple((0, k) for k in moment.shape[: len(space.names)])
    smaller = Space(bases, axes={name: axis for name, (axis, _) in space.axes.items()}, coupled=space.coupled)
    return replace(sums, window=window, gram=Gram(terms, sums.gram.batch_ndim), moment=moment), smaller


def projected(factor: Factor, projections: Mapping[int, sparse.csr_array]) -> Factor:
    """A factor of Pᵀ G P from one of G, over all coefficients; projections of pairs by axis, in the order to take."""
    pairs, count = factor.pairs, len(factor.axes)
    for axis, matrix in projections.items():
        if axis in factor.axes:
            position = factor.axes.index(axis)
            pairs = times_axis(matrix, pairs, position, count + position)
    return Factor(factor.axes, tuple((0, k) for k in pairs.shape[:count]), pairs, factor.key)


def terms_by_axis(penalty: Gram, frame: Frame) -> PenaltyTerms:
    """Terms of a penalty as pairs of each axis; none if a factor spans several."""
    if any(len(f.axes) != 1 for term in penalty.terms for f in term):
        return ()
    return [[f.full(frame).pairs for f in sorted(term, key=lambda f: f.axes)] for term in penalty.terms]
