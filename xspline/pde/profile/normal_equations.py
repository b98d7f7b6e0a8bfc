"""The normal equations G + λJᵀJ as a band: blocks of one coordinate outermost, dense inside, factorised by LAPACK.

J is the derivative of the residuals by the coefficients. JᵀJ couples functions up to p + q apart, q being the degree of
the tests, and is not symmetric coordinate by coordinate, so that pair arrays do not hold it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xspline.pde.profile.axes import Array, Integers
from xspline.pde.profile.constraint import Constraint, Constraints
from xspline.solve.direct.band import folded
from xspline.solve.direct.cholesky import TINY
from xspline.spaces import Frame, Space
from xspline.sums import Gram, matrix_entries


@dataclass(frozen=True, eq=False)
class BandOrder:
    """Coefficients of several variables in one row: outermost coordinate, next coordinate, variable, other ones.

    `axes` are coordinates from the outermost to the innermost. `position`, [K], is the place of each function of the
    outermost one, where those of a circle are folded; a band spans `reach` of these functions.
    """

    space: Space
    variables: tuple[str, ...]
    axes: tuple[int, ...]
    position: Integers
    reach: int

    @staticmethod
    def of(constraints: Constraints) -> BandOrder:
        """Return the order in which the band is narrowest, and then that of fewest functions to a test."""
        frame = constraints.space.frame
        met = [
            max(float(np.bincount(c.pairs[axis].places[0]).max()) for c in constraints.each) / size
            for axis, size in enumerate(frame.sizes)
        ]
        orders = []
        for axis, size in enumerate(frame.sizes):
            position = folded(size) if frame.periodic[axis] else np.arange(size)
            # Pairs of functions of the field, and those that a test meets.
            reach = frame.offsets[axis] * (2 if frame.periodic[axis] else 1)
            for constraint in constraints.each:
                first, second = constraint.pairs[axis].places
                places = position[second]
                starts = np.flatnonzero(np.diff(first, prepend=-1))
                spread = np.maximum.reduceat(places, starts) - np.minimum.reduceat(places, starts)
                reach = max(reach, int(spread.max()) + 1)
            others = sorted((a for a in range(len(met)) if a != axis), key=lambda a: met[a])
            axes = (axis, *others)
            orders.append(
                BandOrder(constraints.space, constraints.variables, axes, position, min(reach, size))
            )
        return min(orders, key=lambda order: order.width)

    @property
    def frame(self) -> Frame:
        """The extents of the coordinates."""
        return self.space.frame

    @property
    def inner(self) -> int:
        """The number of coefficients for each function of the outermost coordinate."""
        return self.size // self.frame.sizes[self.axes[0]]

    @property
    def size(self) -> int:
        """The number of coefficients, P."""
        return len(self.variables) * math.prod(self.frame.sizes)

    @property
    def width(self) -> int:
        """The number of rows of the band, the diagonal among them."""
        return self.reach * self.inner

    @property
    def nbytes(self) -> int:
        """The bytes of a band."""
        return 8 * self.size * self.width

    @cached_property
    def index(self) -> Integers:
        """The place of each coefficient in the row, [variables, K..]."""
        _, *others = (self.frame.sizes[axis] for axis in self.axes)
        inside = np.arange(self.inner).reshape(*others[:1], len(self.variables), *others[1:])
        base = self.position.reshape(-1, *(1 for _ in others)) * self.inner
        own = [base + np.take(inside, v, axis=len(others[:1])) for v in range(len(self.variables))]
        return np.stack([np.transpose(array, np.argsort(self.axes)) for array in own])

    def flatten(self, by_variable: Mapping[str, Array]) -> Array:
        """Return coefficients [K..] of each variable as one row."""
        out = np.empty(self.size)
        for v, name in enumerate(self.variables):
            out[self.index[v]] = by_variable[name]
        return out

    def unflatten(self, row: Array) -> dict[str, Array]:
        """Return the inverse of `flatten`."""
        return {name: row[self.index[v]] for v, name in enumerate(self.variables)}


def band_of(grams: Sequence[Gram], order: BandOrder) -> Array:
    """Return the matrices of some variables as a band [P, u + 1]; entry (j, r) belongs to coefficients j + r and j."""
    frame = order.frame
    out = np.zeros((order.size, order.width))
    for v, gram in enumerate(grams):
        pairs = gram.one_factor(frame).pairs
        index = order.index[v]
        for place, rows, columns in matrix_entries(frame):
            values = pairs[place]
            if values.any():
                row, column = index[rows], index[columns]
                below = row >= column
                out[column[below], (row - column)[below]] += values[below]
    return out


@dataclass(frozen=True, eq=False)
class Jacobian:
    """The derivative J of one equation's residuals, a matrix for each pair of functions along the outermost coordinate.

    Only pairs that meet are kept. Along the next coordinate a few tests are taken at a time, which meet few of its
    functions, so that the matrices that are multiplied have few zeros.
    """

    constraint: Constraint
    order: BandOrder

    def _places(self, axis: int) -> tuple[Integers, Integers]:
        return self.constraint.pairs[axis].places

    @cached_property
    def _blocks(self) -> tuple[Integers, list[tuple[int, int, Any, Any]]]:
        """The order of pairs along the outermost coordinate by function, and the functions that share tests.

        Of two that do: both places, the lower one first, and where among the pairs their common tests are.
        """
        test, function = self._places(self.order.axes[0])
        place = self.order.position[function]
        by_place = np.lexsort((test, place))
        test = test[by_place]
        place = place[by_place]
        starts = np.searchsorted(place, np.arange(place.max() + 2))
        own = [np.arange(*ends) for ends in itertools.pairwise(starts.tolist())]
        blocks = []
        for low, here in enumerate(own):
            for high in range(low, min(low + self.order.reach, len(own))):
                _, first, second = np.intersect1d(test[here], test[own[high]], True, True)
                if first.size:
                    blocks.append((low, high, _span(here[first]), _span(own[high][second])))
        return by_place, blocks

    @cached_property
    def _groups(self) -> list[tuple[slice, Integers, Integers, Integers]]:
        """Groups of tests of the second coordinate: their pairs, test and function of each pair, all functions.

        As many are together as there are functions at one place: fewer leave more numbers to add, more have more zeros.
        """
        second = self.order.axes[1:2]
        test, function = self._places(second[0]) if second else (np.zeros(1, np.int64), np.zeros(1, np.int64))
        tests = int(test.max()) + 1
        starts = np.searchsorted(test, np.arange(tests + 1))
        together = self.order.frame.offsets[second[0]] if second else 1
        ends = [*range(0, tests, together), tests]
        spans = [slice(*starts[[a, b]].tolist()) for a, b in itertools.pairwise(ends)]
        return [(s, test[s] - test[s][0], function[s], np.unique(function[s])) for s in spans]

    @cached_property
    def _rest(self) -> tuple[tuple[Integers, Integers], int, int]:
        """The pairs along all other coordinates together, and their numbers of tests and functions."""
        rows = np.zeros(1, np.int64)
        columns = np.zeros(1, np.int64)
        tests = 1
        functions = 1
        for axis in self.order.axes[2:]:
            test, function = self._places(axis)
            own = len(self.constraint.pairs[axis].tests), self.order.frame.sizes[axis]
            rows = (rows[:, None] * own[0] + test).ravel()
            columns = (columns[:, None] * own[1] + function).ravel()
            tests = tests * own[0]
            functions = functions * own[1]
        return (rows, columns), tests, functions

    def add_squares(self, band: Array, entries: Mapping[str, Array], factor: float) -> None:
        """Add factor · JᵀJ to a band [P, u + 1] in place; the band holds the lower triangle."""
        (row, column), tests, functions = self._rest
        order, (by_place, blocks) = self.order, self._blocks
        inner = order.inner
        beside = functions * len(order.variables)
        step = band.shape[1] - 1
        moved = {
            order.variables.index(name): np.transpose(e, order.axes).reshape(by_place.size, -1, row.size)
            for name, e in entries.items()
        }
        for span, test, function, met in self._groups:
            width = met.size * beside
            slab = np.zeros((by_place.size, (int(test[-1]) + 1) * tests * width))
            place = (test * tests)[:, None] + row, (np.searchsorted(met, function) * beside)[:, None] + column
            for v, array in moved.items():
                inside = place[0] * width + place[1] + v * functions
                slab[:, inside.ravel()] = array[by_place, span].reshape(by_place.size, -1)
            slab *= math.sqrt(factor)
            parts = slab.reshape(by_place.size, -1, width)
            starts = np.flatnonzero(np.diff(met, prepend=-2) > 1)
            runs = [
                (int(met[a]) * beside, slice(a * beside, b * beside))
                for a, b in itertools.pairwise([*starts.tolist(), met.size])
            ]
            for low, high, first, second in blocks:
                square = parts[first].reshape(-1, width).T @ parts[second].reshape(-1, width)
                square = np.triu(square) if low == high else square
                for (left, columns), (below, rows) in itertools.product(runs, runs):
                    j = low * inner + left
                    i = high * inner + below
                    if i < j:
                        continue
                    part = square[columns, rows]
                    # Entry (i, j) of the matrix is (j, i − j) of the band, so that a block of it is one of memory.
                    here = np.ndarray(part.shape, band.dtype, band, 8 * (j * step + i), (8 * step, 8))
                    here += part


def _span(places: Integers) -> Any:
    """Return places that follow each other as a slice, which copies nothing."""
    return slice(int(places[0]), int(places[-1]) + 1) if np.ptp(places) == places.size - 1 else places


def directions(matrix: Array) -> tuple[Array, Array, Array]:
    """Return eigenvalues and eigenvectors [k, k] of information of unit diagonal, and the scale that makes it so.

    Of a direction with an eigenvalue below `TINY` only rounding tells.
    """
    scale = np.sqrt(np.diag(matrix))
    values, vectors = np.linalg.eigh(matrix / np.outer(scale, scale))
    return values, vectors, scale


def belonging(direction: Array) -> NDArray[np.bool_]:
    """Return which constants belong to a direction, [k, ..]: those whose square is 1/k of the mean one or more."""
    return np.asarray(len(direction) * np.abs(direction) > np.linalg.norm(direction, axis=0))


def solve_information(matrix: Array, right: Array) -> Array:
    """Return the solution of a small symmetric system in the directions that it determines.

    It is NaN where a diagonal entry is not positive.
    """
    if not (np.isfinite(matrix).all() and (np.diag(matrix) > 0).all()):
        return np.full(right.shape, np.nan)
    values, vectors, scale = directions(matrix)
    inverse = np.where(values > TINY, 1 / np.where(values > TINY, values, 1.0), 0.0)
    return np.asarray(((vectors * inverse) @ (vectors.T @ (right.T / scale).T)).T / scale).T
