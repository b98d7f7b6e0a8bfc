"""One coordinate of an equation: nodes of quadrature, the functions of the field there, and test functions.

The residual of an equation is projected on splines of degree p − m on the same knots, with m the highest derivative
along the coordinate. There are K − m such splines, so that as many directions stay free as initial and boundary values
decide; data have to tell these. On a circle no direction is free, and there are K tests of degree p − 2: tests of the
other parity would leave the fastest wave that K functions hold untouched.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.polynomial import legendre
from scipy import sparse

from xspline.solve.direct.band import Array, Integers
from xspline.solve.smoothing.fit import ROUNDING
from xspline.spaces import Features, Global, Space
from xspline.spaces.bspline import LocalSpline, SplineTerm, periodic_knots
from xspline.spaces.features import Harmonics, Legendre

SMOOTHER = 4  # degrees that smooth tests have above the order of a derivative
CELLS = 3  # knot cells that an interval of a smooth test spans, and how many such tests there are at least


class Unsuitable(ValueError):
    """An equation cannot be held on the whole domain, because of itself, a basis, or a known function."""


@dataclass(frozen=True, eq=False)
class ProjectedCoordinate:
    """One coordinate of a field, with the nodes at which an equation is integrated against test functions.

    `features` are the functions of the field; `nodes` and `weights`, [n], are of quadrature over the domain, or over
    one period.
    """

    features: Features
    nodes: Array
    weights: Array
    _values: dict[int, Array] = field(default_factory=dict, init=False, repr=False)  # by order

    @staticmethod
    def of(space: Space, axis: int) -> ProjectedCoordinate:
        """Return the coordinate of a space. It raises Unsuitable where its basis is a union."""
        features = space.features[axis]
        if (spline := _spline(features)) is not None:
            # The quadrature is exact for a test, a function and the derivative of another one, as in u u_x.
            z, w = legendre.leggauss((3 * spline.degree + 2) // 2)
            half = np.diff(spline.edges)[:, None] / 2
            return ProjectedCoordinate(
                features, (spline.edges[:-1, None] + half * (1 + z)).ravel(), (half * w).ravel()
            )
        match features:
            case Global(terms=(Harmonics(period=period),)):
                n = 4 * features.size  # exact for a product of three functions
                start = features.span[0]
                return ProjectedCoordinate(
                    features, start + period * np.arange(n) / n, np.full(n, period / n)
                )
            case Global(terms=(Legendre(lo=lo, hi=hi, degree=p),)):
                z, w = legendre.leggauss((3 * p + 2) // 2 + 1)
                return ProjectedCoordinate(features, lo + (hi - lo) / 2 * (1 + z), (hi - lo) / 2 * w)
        name = space.names[axis]
        raise Unsuitable(
            f"{name!r} has the union {space.basis(name)!r}, whose functions are no test functions of an equation; fit "
            f"with a single basis along {name!r}, or use method='pointwise'"
        )

    @property
    def period(self) -> float:
        """The period of functions that go round; 0 of others."""
        if (spline := _spline(self.features)) is not None:
            return spline.ends[1] - spline.ends[0] if spline.periodic else 0.0
        match self.features:
            case Global(terms=(Harmonics(period=period),)):
                return period
        return 0.0

    @property
    def harmonics(self) -> int:
        """The number of harmonics of a Fourier series; 0 of other functions."""
        match self.features:
            case Global(terms=(Harmonics(harmonics=harmonics),)):
                return harmonics
        return 0

    def values(self, order: int) -> Array:
        """Return the functions, or derivatives of them, at the nodes: [n, K]."""
        if order not in self._values:
            values = self.features.design(self.nodes, order)
            self._values[order] = np.where(np.abs(values) < ROUNDING * np.abs(values).max(), 0.0, values)
        return self._values[order]

    def nearest(self, refining: Array) -> Array:
        """Return the matrix that gives the coefficients of the nearest coarse function, in the mean of squares.

        The nearest coefficients would be wrong: of high degrees they are large where their functions are small.
        `refining`, [K, coarse], takes coefficients of coarse functions to coefficients of the same functions here.
        """
        values = np.sqrt(self.weights)[:, None] * self.values(0)
        return np.asarray(np.linalg.lstsq(values @ refining, values, rcond=None)[0])

    def tests(self, order: int) -> Array:
        """Return test functions for derivatives of up to `order`, of unit norm, times the weights: [I, n]."""
        return self._weighted(self._tests(order))

    def smooth_tests(self, order: int) -> Array:
        """Return fewer and smoother test functions, which vanish with their derivatives at the ends: [I, n].

        They are splines of degree m + 4 on a third of the cells. Finer ones would see the noise of derivatives.
        """
        if (spline := _spline(self.features)) is None:
            return self.tests(order)
        q = order + SMOOTHER
        cells = max(spline.cells // CELLS, q + CELLS)
        places = np.linspace(0, spline.cells, cells + 1)
        breaks = np.interp(places, np.arange(spline.cells + 1), spline.edges)
        if spline.periodic:
            smooth = LocalSpline(periodic_knots(breaks, q), q, cells, True, False)
            return self._weighted(smooth.design(self.nodes))
        knots = np.concatenate([np.repeat(breaks[0], q), breaks, np.repeat(breaks[-1], q)])
        smooth = LocalSpline(knots, q, cells + q, False, False)
        return self._weighted(smooth.design(self.nodes)[:, q:-q])

    def _weighted(self, values: Array) -> Array:
        norms = np.sqrt(self.weights @ values**2)
        return np.ascontiguousarray((self.weights[:, None] * (values / norms)).T)

    def _tests(self, order: int) -> Array:
        if (spline := _spline(self.features)) is not None:
            p = spline.degree
            if spline.periodic:
                q = p if order == 0 else max(p - 2, p % 2)
                knots = periodic_knots(spline.edges, q)
                return LocalSpline(knots, q, spline.cells, True, False).design(self.nodes)
            q = p - order
            ends = np.repeat(spline.edges[[0, -1]], q)
            knots = np.concatenate([ends[:q], spline.edges, ends[q:]])
            return LocalSpline(knots, q, spline.cells + q, False, False).design(self.nodes)
        match self.features:
            case Global(terms=(Legendre(lo=lo, hi=hi, degree=p),)):
                z = 2 * (self.nodes - lo) / (hi - lo) - 1
                return np.asarray(legendre.legvander(z, max(p - order, 0)))
        return self.features.design(self.nodes)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Test functions and functions of the field that meet, along one coordinate.

    `tests`, [I, n], are the test functions at the nodes, times the weights.
    """

    coordinate: ProjectedCoordinate
    tests: Array
    _weights: dict[int, sparse.csr_array] = field(default_factory=dict, init=False, repr=False)  # by order

    @cached_property
    def places(self) -> tuple[Integers, Integers]:
        """The test and the function of each pair, sorted by tests."""
        tests = sparse.csr_array(self.tests != 0).astype(np.float64)
        functions = sparse.csr_array(self.coordinate.values(0) != 0).astype(np.float64)
        first, second = (tests @ functions).toarray().nonzero()
        return first.astype(np.int64), second.astype(np.int64)

    def weights(self, order: int) -> sparse.csr_array:
        """Return what a value at a node adds to the integral of a test times a derivative: [pairs, n]."""
        if order not in self._weights:
            first, second = self.places
            tests = sparse.csr_array(self.tests)[first]
            functions = sparse.csr_array(self.coordinate.values(order).T)[second]
            self._weights[order] = tests.multiply(functions).tocsr()
        return self._weights[order]

    def integrals(self, order: int) -> Array:
        """Return the integrals of each test times a derivative of its function, [pairs]."""
        return np.asarray(self.weights(order).sum(axis=1)).ravel()


def _spline(features: Features) -> LocalSpline | None:
    """Return the B-spline of features that consist of one; None of other features."""
    match features:
        case LocalSpline():
            return features
        case Global(terms=(SplineTerm(spline=spline),)):
            return spline
    return None
