"""A multigrid V-cycle for G + Λ: nested spline spaces, Galerkin systems, Schwarz smoothing.

Every second breakpoint of an axis is removed from level to level; the system of a level is Pᵀ A P, which takes the
gaps between the observations along. Where the penalty is much stronger along some axes than along others, only those
are coarsened until the strengths meet. The smoother is a Chebyshev polynomial of the fourth kind in B A, B the
additive Schwarz operator, which needs no more of the spectrum than its upper end (Lottes 2023).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xspline.solve.direct.band import band, narrowest
from xspline.solve.direct.cholesky import BandCholesky
from xspline.solve.multigrid import compiled as stencil
from xspline.solve.multigrid.operator import Operator
from xspline.solve.multigrid.schwarz import Schwarz
from xspline.solve.multigrid.spaces import COARSEST, Line, Step, Table
from xspline.solve.parallel import ranges, run, single_threaded_blas
from xspline.spaces import Frame

Array = NDArray[np.float64]
Terms = Sequence[Sequence[Array]]  # of the penalty: pairs [K, O] of each axis

WEAK = 1.0 / 12.0  # strength of an axis, relative to the strongest, below which it is not coarsened yet
BETAS = (1.00391310427285, 1.04035811188593, 1.14863498546254, 1.38268869241000)  # optimal for four steps
STEPS = 12  # of the estimate of the largest eigenvalue
MARGIN = 1.05  # over that estimate, which is from below
SMALL = 1 << 16  # numbers whose change of level is not worth a second thread


class Level:
    """A system, its smoother and the way to the next coarser level.

    Parameters
    ----------
    pairs : ndarray, [K.., O..]
        Over four axes, contiguous.
    lines, coarse : sequence of Line
        The axes of this level and of the next.
    """

    xp: Any = np

    def __init__(self, pairs: Array, lines: Sequence[Line], coarse: Sequence[Line]) -> None:
        changes = enumerate(zip(lines, coarse, strict=True))
        self.steps = [(axis, Step.of(fine, c)) for axis, (fine, c) in changes if c is not fine]
        self.operator, self.smoother = self._made(pairs, lines)
        self.bound = MARGIN * self._largest()

    def _made(self, pairs: Array, lines: Sequence[Line]) -> tuple[Operator, Schwarz]:
        return Operator(pairs, lines), Schwarz(pairs, lines)

    @property
    def nbytes(self) -> int:
        """Bytes of the system and its smoother."""
        return self.operator.nbytes + self.smoother.nbytes

    def galerkin(self, pairs: Array) -> Array:
        """Pairs of Pᵀ A P from those of A."""
        for axis, step in self.steps:
            pairs = along(pairs, step.galerkin, axis, axis + 4)
        return pairs

    def terms(self, terms: Terms) -> Terms:
        """The penalty of the coarse level."""
        steps = dict(self.steps)
        return [
            [along(f, steps[j].galerkin, 0, 1) if j in steps else f for j, f in enumerate(term)]
            for term in terms
        ]

    def restrict(self, r: Array) -> Array:
        """Pᵀ r, [m, K..]."""
        for axis, step in self.steps:
            r = along(r, step.restrict, axis + 1)
        return r

    def prolong(self, x: Array) -> Array:
        """P x, [m, K..]."""
        for axis, step in self.steps:
            x = along(x, step.prolong, axis + 1)
        return x

    def smooth(self, r: Array) -> Array:
        """The correction x of the residual r of four steps: a polynomial in B A, symmetric in the product of A."""
        x: Array = self.xp.zeros_like(r)
        d = x
        for k, beta in enumerate(BETAS, start=1):
            share = (8 * k - 4) / ((2 * k + 1) * self.bound)
            d = (2 * k - 3) / (2 * k + 1) * d + share * self.smoother.apply(r)
            x = x + beta * d
            if k < len(BETAS):
                r = r - self.operator.matvec(d)
        return x

    def _start(self, vector: Array) -> Array:
        """A vector where this level is."""
        return vector

    def _largest(self) -> float:
        """The largest eigenvalue of B A, by the Lanczos process in conjugate gradients from a fixed random start."""
        r = self._start(np.random.default_rng(0).standard_normal((1, *self.operator.sizes)))
        p, before, alpha, beta = self.xp.zeros_like(r), 1.0, 1.0, 0.0
        diagonal, beside = [], []
        for step in range(STEPS):
            z = self.smoother.apply(r)
            now = float(self.xp.sum(r * z))
            if now <= 0:
                break
            ratio = now / before if step else 0.0
            p = z + ratio * p
            q = self.operator.matvec(p)
            beta, previous = ratio, alpha
            alpha = now / float(self.xp.sum(p * q))
            diagonal.append(1.0 / alpha + beta / previous)
            beside.append(math.sqrt(beta) / previous)
            r, before = r - alpha * q, now
        return float(
            np.linalg.eigvalsh(np.diag(diagonal) + np.diag(beside[1:], 1) + np.diag(beside[1:], -1))[-1]
        )


class Multigrid:
    """Levels down to a few thousand coefficients, and a Cholesky factorisation there.

    Parameters
    ----------
    pairs : ndarray, [K.., O..]
        Of A, over four axes, contiguous, with a positive diagonal.
    lines : sequence of Line
    terms : sequence of sequences of ndarray [K, O]
        Terms of the penalty, products over the axes; empty where they are not known.
    coarsest : int
        Coefficients that are solved for directly.
    """

    def __init__(
        self, pairs: Array, lines: Sequence[Line], terms: Terms = (), coarsest: int = COARSEST
    ) -> None:
        self.levels: list[Level] = []
        self.sizes = [tuple(line.size for line in lines)]
        while math.prod(self.sizes[-1]) > coarsest:
            coarse = coarsened(lines, terms)
            if coarse == list(lines):
                break
            level = self._level(pairs, lines, coarse)
            pairs, terms, lines = level.galerkin(pairs), level.terms(terms), coarse
            self.levels.append(level)
            self.sizes.append(tuple(line.size for line in lines))
        sizes, offsets, periodic = zip(
            *((line.size, line.offsets, line.periodic) for line in lines), strict=True
        )
        self.ordering = narrowest(Frame(sizes, offsets, periodic, ()))
        with single_threaded_blas():  # the same bits on any number of threads
            self.base = BandCholesky(band(self.get(pairs)[..., None], self.ordering)[..., 0])
        self.operator = self.levels[0].operator if self.levels else self._operator(pairs, lines)

    def _level(self, pairs: Array, lines: Sequence[Line], coarse: Sequence[Line]) -> Level:
        return Level(pairs, lines, coarse)

    def _operator(self, pairs: Array, lines: Sequence[Line]) -> Operator:
        return Operator(pairs, lines)

    def put(self, array: Array) -> Array:
        """A host array where the levels are."""
        return array

    def get(self, array: Array) -> Array:
        """An array of the levels on the host."""
        return array

    @property
    def nbytes(self) -> int:
        """Bytes of all levels."""
        return self.base.nbytes + sum(level.nbytes for level in self.levels)

    @property
    def weakest(self) -> tuple[int, ...]:
        """Place, in the finest axes, of the coefficient of the coarsest level that depends most on the others."""
        at = np.unravel_index(self.ordering.original(self.base.weakest), self.sizes[-1])
        shares = zip(at, self.sizes[-1], self.sizes[0], strict=True)
        return tuple(int(k) * (fine - 1) // max(coarse - 1, 1) for k, coarse, fine in shares)

    def cycle(self, r: Array, number: int = 0) -> Array:
        """One V-cycle: a symmetric approximation of A⁻¹ r, [m, K..]."""
        if number == len(self.levels):
            return self._direct(r)
        level = self.levels[number]
        x = level.smooth(r)
        rest = level.restrict(r - level.operator.matvec(x))
        x = x + level.prolong(self.cycle(rest, number + 1))
        return x + level.smooth(r - level.operator.matvec(x))

    def _direct(self, r: Array) -> Array:
        with single_threaded_blas():
            x = self.base.solve(self.ordering.flatten(np.moveaxis(r, 0, -1)))
        return np.ascontiguousarray(np.moveaxis(self.ordering.unflatten(x), -1, 0))


def along(array: Array, table: Table, axis: int, partner: int | None = None) -> Array:
    """Apply a table to an axis of an array, or to an axis of first members and its partner of offsets."""
    shape = list(array.shape)
    last = axis if partner is None else partner
    between = math.prod(shape[axis + 1 : last])
    offsets = 1 if partner is None else shape[partner]
    after = math.prod(shape[last + 1 :])
    source = array.reshape(-1, shape[axis], between, offsets, after)
    out = np.zeros((len(source), table.size, between, table.offsets, after))

    def piece(a: int, b: int) -> None:
        stencil.combine(source, table.start, table.place, table.offset, table.weight, out, a, b)

    run(piece, [ranges(table.size)], split=out.size > SMALL)
    shape[axis] = table.size
    if partner is not None:
        shape[partner] = table.offsets
    return out.reshape(shape)


def coarsened(lines: Sequence[Line], terms: Terms) -> list[Line]:
    """The axes of the next level: those that can be coarsened and along which the penalty is not weak."""
    strength = [_strength(j, lines, terms) if line.coarse else 0.0 for j, line in enumerate(lines)]
    least = WEAK * max(strength)
    return [
        line.coarse if line.coarse is not None and s >= least else line
        for line, s in zip(lines, strength, strict=True)
    ]


def _strength(axis: int, lines: Sequence[Line], terms: Terms) -> float:
    """Penalty of the function whose coefficients alternate along one axis and are constant along the others."""
    return sum(math.prod(_energy(f, lines[j], j == axis) for j, f in enumerate(term)) for term in terms)


def _energy(pairs: Array, line: Line, alternating: bool) -> float:
    if line.knots is None:
        return float(np.sum(pairs[:, 0]))
    sign = -1.0 if alternating else 1.0
    weights = np.array([sign**o * (2.0 if o else 1.0) for o in range(line.offsets)])
    return float(np.sum(pairs @ weights))
