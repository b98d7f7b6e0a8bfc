"""The preconditioner of multigrid, a V-cycle for G + Λ: nested spline spaces, Galerkin systems, Schwarz smoothing.

Every second breakpoint of an axis is removed from level to level; the system of a level is Pᵀ A P, which takes the
gaps between the observations along. Where the penalty is much stronger along some axes than along others, only those
are coarsened until the strengths meet. The smoother is a Chebyshev polynomial of the fourth kind in B A, B the
additive Schwarz operator, which needs no more of the spectrum than its upper end (Lottes 2023).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import sparse

from xspline.solve.direct.band import band, narrowest
from xspline.solve.direct.cholesky import Array, BandCholesky
from xspline.solve.kronecker.operator import Operator
from xspline.solve.krylov import norm_of
from xspline.solve.multigrid.schwarz import Schwarz
from xspline.solve.multigrid.spaces import AxisLevel, PenaltyTerms, pair_projection, prolongation, times_axis
from xspline.spaces import Frame
from xspline.threads import single_threaded_blas

COARSEST = 3000  # coefficients of a system that needs no coarser one
WEAK = 1.0 / 12.0  # strength of an axis, relative to the strongest, below which it is not coarsened yet
BETAS = (1.00391310427285, 1.04035811188593, 1.14863498546254, 1.38268869241000)  # optimal for four steps


class AxisTransfer(NamedTuple):
    """The change from an axis to its coarse one."""

    axis: int
    offsets: int  # those of the coarse axis
    prolong: sparse.csr_array  # [K, K_c], P
    project: sparse.csr_array  # [K_c O_c, K O], M ↦ Pᵀ M P on pairs

    @staticmethod
    def of(axis: int, fine: AxisLevel, coarse: AxisLevel) -> AxisTransfer:
        """Between two nested axes."""
        matrix = prolongation(fine, coarse)
        return AxisTransfer(axis, coarse.offsets, matrix, pair_projection(matrix, fine, coarse))


class Level:
    """A system, its smoother and the way to the next coarser level.

    `pairs` are [K.., O..], contiguous; `axes` and `coarse` are the axes of this level and of the next.
    """

    def __init__(self, pairs: Array, axes: Sequence[AxisLevel], coarse: Sequence[AxisLevel]) -> None:
        changes = enumerate(zip(axes, coarse, strict=True))
        self.transfers = [AxisTransfer.of(j, fine, c) for j, (fine, c) in changes if c is not fine]
        self.matrix, self.smoother = Operator(pairs, _frame_of(axes)), Schwarz(pairs, axes)
        # The largest eigenvalue of B A, by the power method from a fixed random start: an estimate from below.
        x, size = np.random.default_rng(0).standard_normal((1, *self.matrix.sizes)), 1.0
        for _ in range(12):
            x = self.smoother.apply(self.matrix.matvec(x / size))
            size = float(norm_of(x)[0])
        self.bound = 1.1 * size

    @property
    def nbytes(self) -> int:
        """Bytes of the system and its smoother."""
        return self.matrix.nbytes + self.smoother.nbytes

    def project(self, pairs: Array) -> Array:
        """Pairs of Pᵀ A P from those of A."""
        for transfer in self.transfers:
            offset_axis = transfer.axis + pairs.ndim // 2
            pairs = times_axis(transfer.project, pairs, transfer.axis, offset_axis, transfer.offsets)
        return np.ascontiguousarray(pairs)

    def project_terms(self, terms: PenaltyTerms) -> PenaltyTerms:
        """The penalty of the coarse level."""
        projections = {transfer.axis: transfer.project for transfer in self.transfers}
        return [
            [times_axis(projections[j], f, 0, 1) if j in projections else f for j, f in enumerate(term)]
            for term in terms
        ]

    def restrict(self, r: Array) -> Array:
        """Pᵀ r, [m, K..]."""
        for transfer in self.transfers:
            r = times_axis(transfer.prolong.T, r, transfer.axis + 1)
        return np.ascontiguousarray(r)

    def prolong(self, x: Array) -> Array:
        """P x, [m, K..]."""
        for transfer in self.transfers:
            x = times_axis(transfer.prolong, x, transfer.axis + 1)
        return np.ascontiguousarray(x)

    def smooth(self, r: Array) -> Array:
        """The correction x of the residual r of four steps: a polynomial in B A, symmetric in the product of A."""
        x = np.zeros_like(r)
        d = x
        for k, beta in enumerate(BETAS, start=1):
            share = (8 * k - 4) / ((2 * k + 1) * self.bound)
            d = (2 * k - 3) / (2 * k + 1) * d + share * self.smoother.apply(r)
            x = x + beta * d
            if k < len(BETAS):
                r = r - self.matrix.matvec(d)
        return x


class Multigrid:
    """Levels down to a few thousand coefficients, and a Cholesky factorisation there.

    `pairs`, [K.., O..], are those of A, contiguous, with a positive diagonal. `terms`, [K, O], are those of the
    penalty, products over the axes, none where they are not known; `coarsest` coefficients are solved for directly.
    """

    def __init__(self, pairs: Array, axes: Sequence[AxisLevel], terms: PenaltyTerms, coarsest: int) -> None:
        self.levels: list[Level] = []
        self.sizes = [tuple(axis.size for axis in axes)]
        while math.prod(self.sizes[-1]) > coarsest:
            coarse = coarsened(axes, terms)
            if coarse == list(axes):
                break
            level = Level(pairs, axes, coarse)
            pairs, terms, axes = level.project(pairs), level.project_terms(terms), coarse
            self.levels.append(level)
            self.sizes.append(tuple(axis.size for axis in axes))
        self.ordering = narrowest(_frame_of(axes))
        with single_threaded_blas():  # the same bits on any number of threads
            self.base = BandCholesky(band(pairs[..., None], self.ordering)[..., 0])
        self.matrix = self.levels[0].matrix if self.levels else Operator(pairs, _frame_of(axes))

    @property
    def nbytes(self) -> int:
        """Bytes of all levels."""
        return self.base.nbytes + sum(level.nbytes for level in self.levels)

    @property
    def weakest(self) -> tuple[int, ...]:
        """Index, on the finest axes, of the coefficient of the coarsest level that depends most on the others."""
        at = np.unravel_index(self.ordering.original(self.base.weakest), self.sizes[-1])
        sizes = zip(at, self.sizes[-1], self.sizes[0], strict=True)
        return tuple(int(k) * (fine - 1) // max(coarse - 1, 1) for k, coarse, fine in sizes)

    def cycle(self, r: Array, number: int = 0) -> Array:
        """One V-cycle from a level on: a symmetric approximation of A⁻¹ r, [m, K..]."""
        if number == len(self.levels):
            with single_threaded_blas():
                x = self.base.solve(self.ordering.flatten(np.moveaxis(r, 0, -1)))
            return np.ascontiguousarray(np.moveaxis(self.ordering.unflatten(x), -1, 0))
        level = self.levels[number]
        x = level.smooth(r)
        rest = level.restrict(r - level.matrix.matvec(x))
        x = x + level.prolong(self.cycle(rest, number + 1))
        return x + level.smooth(r - level.matrix.matvec(x))


def _frame_of(axes: Sequence[AxisLevel]) -> Frame:
    """The frame of a level."""
    sizes, offsets, periodic = zip(*((axis.size, axis.offsets, axis.periodic) for axis in axes), strict=True)
    return Frame(sizes, offsets, periodic, ())


def coarsened(axes: Sequence[AxisLevel], terms: PenaltyTerms) -> list[AxisLevel]:
    """The axes of the next level: those that can be coarsened and along which the penalty is not weak.

    The strength of an axis is the penalty of the function whose coefficients alternate along it and are constant along
    the others.
    """

    def energy(pairs: Array, axis: AxisLevel, alternating: bool) -> float:
        if axis.knots is None:
            return float(np.sum(pairs[:, 0]))
        sign = -1.0 if alternating else 1.0
        weights = np.array([sign**o * (2.0 if o else 1.0) for o in range(axis.offsets)])
        return float(np.sum(pairs @ weights))

    strengths = [
        sum(math.prod(energy(f, axes[i], i == j) for i, f in enumerate(term)) for term in terms)
        if axis.coarse
        else 0.0
        for j, axis in enumerate(axes)
    ]
    least = WEAK * max(strengths)
    return [
        axis.coarse if axis.coarse is not None and strength >= least else axis
        for axis, strength in zip(axes, strengths, strict=True)
    ]
