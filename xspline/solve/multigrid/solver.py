"""Conjugate gradients with a multigrid V-cycle as preconditioner: for any Gram and penalty.

Memory and time grow like P: the pair array and the inverses of the subdomains of `schwarz`, about twice as large, and
some ten to forty iterations of eight products with each. What needs the inverse itself is estimated from fixed random
probes: z with entries ±1 has E[zᵀ M z] = tr M (Hutchinson 1990).

Every second breakpoint of an axis is removed from level to level; the system of a level is Pᵀ A P, which takes the
gaps between the observations along. Where the penalty is much stronger along some axes than along others, only those
are coarsened until the strengths meet. The smoother is a Chebyshev polynomial of the fourth kind in B A, B the
additive Schwarz operator, which needs no more of the spectrum than its upper end (Lottes 2023).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from xspline.solve.batch import distinct, taken
from xspline.solve.direct.band import band, narrowest
from xspline.solve.direct.cholesky import Array, BandCholesky, unit_scale
from xspline.solve.errors import NEEDS_DIRECT, ConvergenceError
from xspline.solve.kronecker.operator import Operator
from xspline.solve.kronecker.pcg import KroneckerSum, apply_kronecker
from xspline.solve.kronecker.product import dense_of
from xspline.solve.krylov import (
    AT_ONCE,
    PROBE_TOLERANCE,
    TOLERANCE,
    LinearMap,
    conjugate_gradients,
    norm_of,
    probes,
    square_root,
)
from xspline.solve.multigrid.schwarz import Schwarz
from xspline.solve.multigrid.spaces import (
    AxisLevel,
    PenaltyTerms,
    pair_projection,
    prolongation,
    terms_by_axis,
    times_axis,
)
from xspline.solve.system import PerturbedSystem
from xspline.spaces import Frame, Space
from xspline.sums import Gram
from xspline.sums.integrals import integral
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


class Iterative(PerturbedSystem):
    """Multigrid preconditioners of the different systems G + Λ of a batch.

    `gram` and `penalty` are G, and Λ without batch axes. A solve ends at a `tolerance` of ‖(G + Λ) c − h‖ / ‖h‖;
    `coarsest` coefficients are solved for directly.
    """

    at_once = 8

    def __init__(
        self,
        gram: Gram,
        penalty: Gram,
        space: Space,
        *,
        tolerance: float = TOLERANCE,
        coarsest: int = COARSEST,
    ) -> None:
        self.space, self.frame, self.tolerance = space, space.frame, tolerance
        features = zip(space.features, space.offsets, strict=True)
        self.axes = [AxisLevel.of(own, offsets) for own, offsets in features]
        self.gram, self.index = distinct(gram)
        self.penalty = penalty
        count = int(self.index.max(initial=0)) + 1
        self.systems = [self._system(i, coarsest) for i in range(count)]

    def _system(self, i: int, coarsest: int) -> Multigrid | None:
        """The levels of one system; None without observations or if a coefficient has nothing that determines it."""
        data, penalty = taken(self.gram, slice(i, i + 1)), self.penalty
        observed = data.diagonal(self.frame)
        if not observed.any() or not (observed[..., 0] + penalty.diagonal(self.frame) > 0).all():
            return None
        total = Gram((*data.terms, *penalty.with_batch_axes(1).terms), 1)
        terms = terms_by_axis(penalty, self.frame)
        return Multigrid(self._pairs(total), self.axes, terms, coarsest)

    def _pairs(self, gram: Gram) -> Array:
        """Pair array [K.., O..] of a Gram with one batch axis of extent 1."""
        return np.ascontiguousarray(gram.one_factor(self.frame).pairs[..., 0])

    @cached_property
    def determined(self) -> NDArray[np.bool_]:
        """Whether every coefficient has an entry on the diagonal and the coarsest level is positive definite, [b..]."""
        determined = [system is not None and system.base.determined for system in self.systems]
        return np.asarray(np.array(determined)[self.index])

    @property
    def nbytes(self) -> int:
        """Bytes of the levels of all systems."""
        return sum(system.nbytes for system in self.systems if system is not None)

    @cached_property
    def weakest(self) -> int:
        """Flat index of the coefficient that depends most on the others, as far as the coarsest level shows it."""
        systems = [system for system in self.systems if system is not None]
        if not systems:
            diagonal = self.gram.diagonal(self.frame)[..., 0] + self.penalty.diagonal(self.frame)
            return int(np.argmin(diagonal))
        worst = max(systems, key=lambda system: system.base.pivot).weakest
        return int(np.ravel_multi_index(worst, self.frame.sizes))

    def _solve_rows(self, rows: Array, which: NDArray[np.intp], tolerance: float) -> Array:
        """A⁻¹ rows, [m, K..], all of one system, which is determined."""
        system: Any = self.systems[int(which[0])]
        return self._solved(system, rows, tolerance)

    def _perturbations(self, rng: np.random.Generator) -> Callable[[NDArray[np.intp]], Array]:
        roots = [None if system is None else self._data_root(i) for i, system in enumerate(self.systems)]
        penalty = KroneckerSum.of(self.penalty.terms, self.frame)

        def rows(which: NDArray[np.intp]) -> Array:
            out = np.zeros((len(which), *self.frame.sizes))
            for first in range(0, len(which), self.at_once):
                some = slice(first, first + self.at_once)
                for i in np.unique(which[some]):
                    if (root := roots[i]) is not None:
                        own = first + np.flatnonzero(which[some] == i)
                        out[own] = root(rng.standard_normal((len(own), *self.frame.sizes)))
                if penalty.terms:
                    out[some] += penalty.perturbations(len(out[some]), rng)
            return out

        return rows

    def _data_root(self, i: int) -> LinearMap:
        """z ↦ W z with W Wᵀ = G of one system up to the tolerance of `square_root`, for vectors [m, K..].

        W = D C S^½ with D the roots of the diagonal of G, C a Cholesky factor of the mass matrix, both of a unit
        diagonal, and S = C⁻¹D⁻¹GD⁻¹C⁻ᵀ, near the identity where observations are dense. Coefficients without
        observations get 0.
        """
        matrix, space = Operator(self._pairs(taken(self.gram, slice(i, i + 1))), self.frame), self.space
        scale = np.sqrt(matrix.diagonal)
        inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
        lower = []
        for j in range(len(space.names)):
            mass = dense_of((integral(space, j, 0),), (j,), space.frame)
            unit = unit_scale(np.diagonal(mass))
            lower.append(np.asarray(np.linalg.cholesky(mass / unit / unit[:, None])))
        inverses = [linalg.solve_triangular(factor, np.eye(len(factor)), lower=True) for factor in lower]
        transposed = [np.ascontiguousarray(factor.T) for factor in inverses]

        def scaled(v: Array) -> Array:
            beside = inverse * apply_kronecker(transposed, v)
            return apply_kronecker(inverses, inverse * matrix.matvec(beside))

        def root(z: Array) -> Array:
            step = max(1, AT_ONCE // math.prod(space.shape))
            parts = [square_root(scaled, z[i : i + step]) for i in range(0, len(z), step)]
            return scale * apply_kronecker(lower, np.concatenate(parts))

        return root

    def _solved(self, system: Multigrid, rows: Array, tolerance: float) -> Array:
        """A⁻¹ rows, [m, K..]."""
        matrix = system.matrix
        return self._counted(
            conjugate_gradients(matrix.matvec, system.cycle, rows, tolerance, matrix.diagonal)
        )

    # --- estimates

    def probes(self) -> tuple[Array, Array, Array]:
        """a = S z, w = S⁻¹ z and b = A⁻¹ w of the only system, [K.., m] each."""
        first = self._probes[0]
        if len(self._probes) != 1 or first is None:
            raise ConvergenceError("probes of several systems " + NEEDS_DIRECT)
        a, b = first
        return a, 1.0 / a, b  # z are ±1, so S⁻¹ z and S z are reciprocal

    @cached_property
    def _probes(self) -> list[tuple[Array, Array] | None]:
        """Scaled probes S z of each system and the solutions A⁻¹ S⁻¹ z, S the inverse roots of the diagonal: [K.., m].

        Then xᵀ B (S z) estimates tr(A⁻¹ B) as well as zᵀ A⁻¹ B z does, with less scatter where A has steep contrasts.
        """
        out: list[tuple[Array, Array] | None] = []
        for system in self.systems:
            if system is None or not system.base.determined:
                out.append(None)
                continue
            scale, z = 1.0 / np.sqrt(system.matrix.diagonal), probes(self.frame.sizes)
            w = z / scale
            parts = (w[i : i + self.at_once] for i in range(0, len(w), self.at_once))
            b = np.concatenate([self._solved(system, part, PROBE_TOLERANCE) for part in parts])
            out.append((np.moveaxis(z * scale, 0, -1), np.moveaxis(b, 0, -1)))
        return out

    def edf_samples(self) -> list[Array]:
        samples, axes = [], tuple(range(len(self.frame.sizes)))
        for i, pair in enumerate(self._probes):
            if pair is None:
                samples.append(np.full(1, np.nan))
                continue
            scaled, solutions = pair
            image = taken(self.gram, slice(i, i + 1)).matvec(scaled, self.frame)
            samples.append(np.asarray(np.sum(solutions * image, axis=axes), dtype=np.float64))
        return samples
