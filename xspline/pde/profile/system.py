"""The normal equations G + λJᵀJ as a band: blocks of one coordinate outermost, dense inside, factorised by LAPACK.

J, the derivative of the residuals, couples functions up to p + q apart, q the degree of the tests, and is not
symmetric coordinate by coordinate, so that pair arrays do not hold JᵀJ.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import blas

from xspline.pde.profile.axes import Array, Integers
from xspline.pde.profile.constraint import Constraint, Constraints
from xspline.solve.direct.band import folded
from xspline.spaces import Frame
from xspline.sums import Gram, orientations

UNTOLD = 1e-10  # of the information of a constant beside others: less is rounding


@dataclass(frozen=True, eq=False)
class Order:
    """Coefficients of several variables in one row: outermost coordinate, variable, other coordinates.

    Parameters
    ----------
    frame : Frame
    variables : tuple of str
    outer : int
        The outermost coordinate.
    position : ndarray of int, [K]
        Where each function of the outermost coordinate comes; folded on a circle.
    reach : int
        How many functions of the outermost coordinate a band spans.
    """

    frame: Frame
    variables: tuple[str, ...]
    outer: int
    position: Integers
    reach: int

    @staticmethod
    def of(constraints: Constraints) -> Order:
        """Return the order in which the band is narrowest."""
        frame = constraints.space.frame
        best: Order | None = None
        for axis, size in enumerate(frame.sizes):
            position = folded(size) if frame.periodic[axis] else np.arange(size)
            reach = min(frame.offsets[axis] * (2 if frame.periodic[axis] else 1), size)
            for constraint in constraints.each:
                first, second = constraint.pairs[axis].places
                places = position[second]
                starts = np.flatnonzero(np.diff(first, prepend=-1))
                spread = np.maximum.reduceat(places, starts) - np.minimum.reduceat(places, starts)
                reach = max(reach, int(spread.max()) + 1)
            order = Order(frame, constraints.variables, axis, position, reach)
            if best is None or order.width < best.width:
                best = order
        if best is None:
            raise ValueError("a space without coordinates has no order")
        return best

    @property
    def inner(self) -> int:
        """Coefficients for each function of the outermost coordinate."""
        return len(self.variables) * math.prod(self.frame.sizes) // self.frame.sizes[self.outer]

    @property
    def size(self) -> int:
        """P."""
        return len(self.variables) * math.prod(self.frame.sizes)

    @property
    def width(self) -> int:
        """Rows of the band, the diagonal among them."""
        return self.reach * self.inner

    @property
    def nbytes(self) -> int:
        """Bytes of a band."""
        return 8 * self.size * (self.width + 1)

    @cached_property
    def index(self) -> Integers:
        """Place of each coefficient in the row, [variables, K..]."""
        sizes = self.frame.sizes
        rest = math.prod(sizes) // sizes[self.outer]
        others = [k for axis, k in enumerate(sizes) if axis != self.outer]
        inside = np.expand_dims(np.arange(rest).reshape(others), self.outer)
        shape = [1] * len(sizes)
        shape[self.outer] = -1
        base = self.position.reshape(shape) * self.inner + inside
        return np.stack([base + v * rest for v in range(len(self.variables))])

    def flatten(self, by_variable: Mapping[str, Array]) -> Array:
        """Coefficients [K..] of each variable as one row."""
        out = np.empty(self.size)
        for v, name in enumerate(self.variables):
            out[self.index[v]] = by_variable[name]
        return out

    def unflatten(self, row: Array) -> dict[str, Array]:
        """Inverse of `flatten`."""
        return {name: row[self.index[v]] for v, name in enumerate(self.variables)}


def band_of(grams: Sequence[Gram], order: Order) -> Array:
    """The matrices of some variables as a band [P, u + 2]: entry (j, r) is that of the coefficients (j + r, j).

    The last column is zero: with it, a square of the band's width lies in memory as BLAS adds to it.
    """
    frame, out = order.frame, np.zeros((order.size, order.width + 1))
    for v, gram in enumerate(grams):
        pairs, index = gram.one_factor(frame).pairs, order.index[v]
        for offset in np.ndindex(*frame.offsets):
            members = [frame.pairs_at(axis, o) for axis, o in enumerate(offset)]
            values = pairs[tuple(span for span, _ in members) + offset]
            if not values.any():
                continue
            first = [np.arange(k)[span] for (span, _), k in zip(members, frame.sizes, strict=True)]
            second = [partners for _, partners in members]
            for flips in orientations(offset):
                row = index[np.ix_(*(s if f else a for a, s, f in zip(first, second, flips, strict=True)))]
                column = index[np.ix_(*(a if f else s for a, s, f in zip(first, second, flips, strict=True)))]
                below = row >= column
                out[column[below], (row - column)[below]] += values[below]
    return out


@dataclass(frozen=True, eq=False)
class Rows:
    """The derivative J of one equation's residuals, a slab for each test function of the outermost coordinate."""

    constraint: Constraint
    order: Order

    @cached_property
    def _slots(self) -> tuple[Integers, Integers, Integers]:
        """Of the pairs along the outermost coordinate: where each test's begin, its first column, and place in it."""
        first, second = self.constraint.pairs[self.order.outer].places
        starts = np.searchsorted(first, np.arange(self.constraint.shape[self.order.outer] + 1))
        places = self.order.position[second]
        low = np.minimum.reduceat(places, starts[:-1])
        low = np.minimum(low, self.order.frame.sizes[self.order.outer] - self.order.reach)
        return starts, low, places - np.repeat(low, np.diff(starts))

    @cached_property
    def _inside(self) -> Integers:
        """Places of pairs along the other coordinates in a slab [tests, width], of the first function and variable."""
        width = self.order.width
        rows, columns = np.zeros(1, np.int64), np.zeros(1, np.int64)
        for axis, pairs in enumerate(self.constraint.pairs):
            if axis != self.order.outer:
                test, function = pairs.places
                rows = (rows[:, None] * len(pairs.tests) + test).ravel()
                columns = (columns[:, None] * self.order.frame.sizes[axis] + function).ravel()
        return rows * width + columns

    def walk(self, entries: Mapping[str, Array]) -> Iterator[tuple[int, Array]]:
        """Yield the first column and the slab [tests, width] for each test of the outermost coordinate, in turn."""
        order, outer = self.order, self.order.outer
        starts, low, slot = self._slots
        tests = math.prod(self.constraint.shape) // self.constraint.shape[outer]
        rest = order.inner // len(order.variables)
        moved = {
            order.variables.index(name): np.moveaxis(e, outer, 0).reshape(e.shape[outer], -1)
            for name, e in entries.items()
        }
        for i, column in enumerate(low.tolist()):
            slab = np.zeros((tests, order.width))
            flat = slab.ravel()
            for pair, (v, array) in itertools.product(range(starts[i], starts[i + 1]), moved.items()):
                flat[self._inside + (slot[pair] * order.inner + v * rest)] = array[pair]
            yield column * order.inner, slab

    def by_outer(self, residual: Array) -> Array:
        """Residuals [.., I..] as [outermost test, other tests, ..]."""
        axes = len(self.constraint.shape)
        moved = np.moveaxis(residual, residual.ndim - axes + self.order.outer, 0)
        extra = residual.shape[: residual.ndim - axes]
        return np.moveaxis(moved.reshape(len(moved), *extra, -1), -1, 1)


def add_squares(band: Array, first: int, slab: Array, factor: float) -> None:
    """Add factor · slabᵀ slab to a band, its first column at `first`; in place, the lower triangle alone."""
    width, start = slab.shape[1], first * band.shape[1]
    square = band.reshape(-1)[start : start + width**2].reshape((width, width), order="F")
    blas.dsyrk(factor, slab.T, beta=1.0, c=square, lower=1, overwrite_c=1)


def directions(matrix: Array) -> tuple[Array, Array, Array]:
    """Return eigenvalues and eigenvectors [k, k] of information of unit diagonal, and the scale that makes it so.

    A direction of an eigenvalue below `UNTOLD` is one that nothing tells of but rounding.
    """
    scale = np.sqrt(np.diag(matrix))
    values, vectors = np.linalg.eigh(matrix / np.outer(scale, scale))
    return values, vectors, scale


def solve_information(matrix: Array, right: Array) -> Array:
    """Solve a small symmetric system in the directions that it tells; NaN where a diagonal entry is not positive."""
    if not (np.isfinite(matrix).all() and (np.diag(matrix) > 0).all()):
        return np.full(right.shape, np.nan)
    values, vectors, scale = directions(matrix)
    inverse = np.where(values > UNTOLD, 1 / np.where(values > UNTOLD, values, 1.0), 0.0)
    return np.asarray(((vectors * inverse) @ (vectors.T @ (right.T / scale).T)).T / scale).T
