"""Direct solver by eigenvectors of some factors of a Kronecker product: for a static mask on a grid.

These are factors on whose coordinates all terms of the penalty agree.

With T_jᵀ M_j T_j = I and T_jᵀ F_j T_j = diag(γ_j) for factors F_j of G and the matrices M_j that stand in their place
in every term of the penalty (the identity for a ridge, the mass matrix for a roughness of other coordinates), each
product of eigenvalues γ_k leaves one system v γ_k F + S over the main axes (Lynch, Rice and Thomas 1964). Without a
penalty they are all one but for v γ_k.

Terms of the penalty that carry F_1 in place of M_1 split as G does: with Tᵀ F_1 T = diag(γ) and Tᵀ M_1 T = diag(r) the
systems are γ_k (v F + S') + r_k S, and M_1 does not have to be definite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from xspline.solve.costs import Resources
from xspline.solve.direct.cholesky import Array, tolerance, unit_scale
from xspline.solve.direct.dissection import dissects
from xspline.solve.direct.solver import Direct
from xspline.solve.kronecker.product import AxisGroup, Split, alone, balanced, dense_of, within
from xspline.solve.system import DirectSystem
from xspline.spaces import Frame
from xspline.sums import Factor, Gram, digest_key, outer_pairs


class Separable(DirectSystem):
    """Eigenvalues of the factors that stand apart, and for each product of them a factorisation, banded or dissected.

    `split` is that of G and Λ, `room` the bytes of factorisations and selected inverses that are kept, and `resources`
    are cores on which bands are factorised side by side. `systems`, [b.., M], are v γ_k F + S or γ_k (v F + S') + r_k
    S; without a penalty one F, [1.., 1]. Their inverses have to be divided by `divisors`, [b.., M]: v γ_k without a
    penalty, else 1.
    """

    def __init__(
        self, split: Split, frame: Frame, room: float = math.inf, resources: Resources | None = None
    ) -> None:
        self.room, self.resources = room, resources
        self.frame, self.own = frame, frame.along(split.axes)
        self.axes, self.others = split.axes, [block.axes for block in split.others]
        self.order = [axis for axes in (*self.others, self.axes) for axis in axes]  # main axes last
        self.parts = [
            self._eigen(block, i == 0 and bool(split.beside.terms)) for i, block in enumerate(split.others)
        ]
        self.pairs = [p.pairs(frame.along(b)) for p, b in zip(self.parts, self.others, strict=True)]
        self.values, self._deficit, self._place = eigenvalues(self.parts)
        v = split.multiplicity
        self.penalised, self.penalty, self.beside = bool(split.penalty.terms), split.penalty, split.beside
        self.main = alone(split.factors, split.axes)
        # Members without observations go along as any other.
        positive = np.where(v > 0, v, np.min(v, where=v > 0, initial=1.0))
        multiples = self._multiples(positive)
        self.divisors = np.where(multiples > 0, multiples, np.nan)
        if self.penalised:
            self.divisors = np.ones_like(multiples)
        self.systems = self._direct(multiples if self.penalised else np.ones((1,) * multiples.ndim))
        self.positive, self.multiplicity = positive, v

    def _multiples(self, v: Array) -> Array:
        """Return what F weighs in each system, [b.., M]."""
        return np.asarray(v[..., None] * self.values.ravel())

    def _eigen(self, block: AxisGroup, pair: bool) -> Eigen:
        """Diagonalise the factors of G on a group of axes beside those of the penalty."""
        own = dense_of(block.factors, block.axes, self.frame)
        other = dense_of(block.mass, block.axes, self.frame) if block.mass else None
        return pencil(own, other) if pair and other is not None else eigen(own, other)

    def _direct(self, multiples: Array) -> Direct:
        """m F + S for multiples m, [n..]; with terms beside it m F + γ S' + r S."""
        gram, penalty = _multiplied([(self.main, multiples)]), self.penalty
        if self.beside.terms:
            gram, penalty = _multiplied([(self.main, multiples), *self._weighted(multiples.ndim)]), Gram(())
        resources = self.resources or Resources.here()
        cut = dissects(self.own, resources.costs)
        return Direct(gram, penalty, self.own, dissection=cut, room=self.room, resources=resources)

    def _weighted(self, ndim: int) -> list[tuple[Gram, Array]]:
        """S' and S, each of one factor, and what they weigh in each system: γ and r, [1.., M]."""
        first = self.parts[0]
        weights = []
        for along in (first.values, np.ones(1) if first.rough is None else first.rough):
            lifted = np.reshape(along, (-1, *(1 for _ in self.parts[1:])))
            weights.append(
                np.broadcast_to(lifted, self.values.shape).reshape(*(1 for _ in range(ndim - 1)), -1)
            )
        return [
            (Gram(((gram.one_factor(self.own),),)), weight)
            for gram, weight in zip((self.beside, self.penalty), weights, strict=True)
        ]

    @cached_property
    def determined(self) -> NDArray[np.bool_]:
        # How far each γ_k may lie below zero, within its rounding errors: where it may, S − d F has to be definite.
        deficits = self._deficit * self.positive
        definite = deficits < 0
        if self.penalised:
            definite = np.ones(deficits.shape, dtype=bool)
            if (deficits > 0).any() and not self.beside.terms:
                definite = self._direct(-deficits).determined
        return np.asarray((self.multiplicity > 0) & definite & self.systems.determined.all(axis=-1))

    @cached_property
    def weakest(self) -> int:
        """Flat index of the coefficient that depends most on the others.

        That is the weakest one of the main system of the best determined batch member, and one of each other factor.
        """
        pivots = np.where((self.multiplicity > 0)[..., None], self.systems.verdicts.pivot, -1.0)
        weak = np.broadcast_to(self.systems.verdicts.weakest, pivots.shape).reshape(-1, pivots.shape[-1])
        member = np.argmax(pivots.min(axis=-1))
        lowest = np.argmin(pivots.reshape(weak.shape)[member])
        indices = [self.systems.original(int(weak[member, lowest])), *self._place]
        place = np.zeros(len(self.frame.sizes), dtype=np.int64)
        for axes, index in zip([self.axes, *self.others], indices, strict=True):
            place[list(axes)] = np.unravel_index(index, tuple(self.frame.sizes[j] for j in axes))
        return int(np.ravel_multi_index(tuple(place), self.frame.sizes))

    @property
    def nbytes(self) -> int:
        return self.systems.nbytes

    def solve(self, rhs: Array, tolerance: float | None = None) -> Array:
        x = rotate(self.parts, self._blocked(rhs), back=False)
        x = x.reshape(*x.shape[: -len(self.parts)], -1)
        return self._from_eigenvectors(self.systems.solve(x) / self.divisors)

    def apply_inverse_sqrt(self, z: Array) -> Array:
        z = self._blocked(z)
        z = np.moveaxis(z.reshape(-1, *z.shape[len(self.parts) :]), 0, -1)
        return self._from_eigenvectors(self.systems.apply_inverse_sqrt(z) / np.sqrt(self.divisors))

    def _blocked(self, v: Array) -> Array:
        """[K.., b..] to [coefficients of each other factor, those of the main one.., b..]."""
        count = len(self.order)
        v = v.transpose(*self.order, *range(count, v.ndim))
        return v.reshape(*self.values.shape, *v.shape[count - len(self.axes) :])

    def _from_eigenvectors(self, x: Array) -> Array:
        """[main K.., b.., M] to coefficients, [K.., b..]."""
        main, blocks = len(self.axes), len(self.parts)
        x = np.moveaxis(x.reshape(*x.shape[:-1], *self.values.shape), range(-blocks, 0), range(blocks))
        x = rotate(self.parts, x, back=True)  # [main K.., b.., coefficients of each other factor]
        x = np.moveaxis(x, range(-blocks, 0), range(blocks))
        x = x.reshape(*(self.frame.sizes[axis] for axis in self.order[:-main]), *x.shape[blocks:])
        return x.transpose(*np.argsort(self.order), *range(len(self.order), x.ndim))

    def logdet(self) -> Array:
        size, count = self.systems.ordering.size, self.divisors.shape[-1]
        rotations = sum(part.logdet * (count / len(part.values)) for part in self.parts)
        logs = self.systems.logdet() + size * np.log(self.divisors)
        return np.asarray(np.sum(logs, axis=-1) - 2.0 * size * rotations)

    def edf(self) -> Array:
        if not self.penalised:
            return np.full(self.determined.shape, float(math.prod(self.frame.sizes)))
        if not self.beside.terms:
            return np.asarray(np.sum(self.systems.edf(), axis=-1))
        # tr(A⁻¹G) of each system, or P less that of the penalty where that is the smaller part.
        (beside, weight), (penalty, rough) = self._weighted(self.divisors.ndim)
        direct, *parts = self.systems.traces([self.main, beside, penalty])
        direct, lost = direct * self._multiples(self.positive), parts[0] * weight + parts[1] * rough
        size = float(self.systems.ordering.size)
        return np.asarray(np.sum(np.where(lost < direct, size - lost, direct), axis=-1))

    def traces(self, grams: Sequence[Gram]) -> Array:
        """tr((G + Λ)⁻¹ S) of Grams S without batch axes, [len, b..]; from the main systems where S splits as Λ does."""
        terms = [(i, term) for i, gram in enumerate(grams) for term in gram.terms]
        counts = [sum(len(within(term, axes)) for axes in (self.axes, *self.others)) for _, term in terms]
        split = [x for x, count in zip(terms, counts, strict=True) if count == len(x[1])]
        whole = [x for x, count in zip(terms, counts, strict=True) if count != len(x[1])]
        mains = [alone(within(term, self.axes), self.axes) for _, term in split]
        out = np.zeros((len(grams), *self.determined.shape))
        for (i, term), traces in zip(split, self.systems.traces(mains) if mains else (), strict=True):
            squares = np.ones(1)  # t_kᵀ S t_k of the eigenvectors t_k of the other factors, [M]
            for axes, pairs in zip(self.others, self.pairs, strict=True):
                own = alone(within(term, axes), axes).one_factor(self.frame.along(axes)).pairs
                squares = np.multiply.outer(squares, own.ravel() @ pairs.reshape(own.size, -1)).ravel()
            out[i] += np.sum(traces / self.divisors * squares, axis=-1)
        for i, term in whole:
            pairs = self.inverse_pairs().reshape(-1, *self.determined.shape)
            out[i] += np.tensordot(Gram((term,)).one_factor(self.frame).pairs.ravel(), pairs, axes=1)
        return out

    def inverse_pairs(self) -> Array:
        main, batch = 2 * len(self.axes), len(self.determined.shape)
        out = self.systems.inverse_pairs() / self.divisors
        out = out.reshape(*out.shape[:-1], *self.values.shape)
        for pairs in self.pairs:
            out = np.tensordot(out, pairs, axes=(main + batch, -1))
        # Now K and O of the main axes, the batch, K and O of each other block: to all K, all O, the batch.
        out = np.moveaxis(out, range(main, main + batch), range(-batch, 0))
        places = [(offset, axis) for axes in (self.axes, *self.others) for offset in (0, 1) for axis in axes]
        order = sorted(range(len(places)), key=places.__getitem__)
        return np.ascontiguousarray(out.transpose(*order, *range(len(places), out.ndim)))


def _multiplied(grams: Sequence[tuple[Gram, Array]]) -> Gram:
    """Σ m_i S_i of Grams S_i without batch axes, and multiples m_i [n..]."""
    terms = []
    for gram, multiples in grams:
        many = Factor((), (), multiples, digest_key("multiples", multiples))
        lifted = gram.with_batch_axes(multiples.ndim)
        terms += [(*term, many) for term in lifted.terms]
    return Gram(tuple(terms), grams[0][1].ndim)


@dataclass(frozen=True, eq=False)
class Eigen:
    """Simultaneous diagonalisation: Tᵀ F T = diag(μ), and Tᵀ M T = I for the matrix M of a penalty, or diag(r)."""

    rotation: Array  # [K, K], T
    values: Array  # [K], μ ≥ 0, exactly 0 for coefficients without observations
    errors: Array  # [K], bounds of the rounding errors in the values, 0 where these are exact
    logdet: float  # log|det T|
    rough: Array | None = None  # [K], r ≥ 0 of a pencil; None stands for 1

    def pairs(self, frame: Frame) -> Array:
        """Pair form of t_m t_mᵀ for each column t_m of T, [K.., O.., M]; the frame is that of the factor."""
        return outer_pairs(self.rotation.reshape(*frame.sizes, 1, -1), frame)


def eigen(matrix: Array, mass: Array | None = None) -> Eigen:
    """Diagonalise a symmetric positive semidefinite matrix [K, K] beside a positive definite one.

    Without a mass matrix F is scaled to a unit diagonal, which makes the verdict on a singular factor independent of
    units. The mass matrix is factorised here and not inside `scipy.linalg.eigh`, because the bound of the errors needs
    the norm of its inverse factor.
    """
    size, eps = len(matrix), float(np.finfo(np.float64).eps)
    scale = unit_scale(np.diagonal(matrix if mass is None else mass))
    scaled, back, logdet = matrix / scale / scale[:, None], np.eye(size), -float(np.sum(np.log(scale)))
    if mass is not None:
        lower = np.linalg.cholesky(mass / scale / scale[:, None])
        back, _ = lapack.dtrtri(lower, lower=1)
        logdet -= float(np.sum(np.log(np.diag(lower))))
    whitened = back @ scaled @ back.T
    values = np.zeros(size)
    errors = np.zeros(size)
    vectors = np.eye(size)
    active = np.flatnonzero(np.diagonal(whitened) > 0)  # other coefficients stay by themselves
    if len(active):
        square = np.ix_(active, active)
        eigenvalues, vectors[square] = np.linalg.eigh(whitened[square])
        values[active] = np.maximum(eigenvalues, 0.0)
        errors[active] = tolerance(len(active)) * eigenvalues[-1]
    # An ill-conditioned mass matrix magnifies rounding errors; an eigenvalue that is exactly 0 has none.
    magnified = float(eps * np.linalg.norm(scaled, 2) * np.linalg.norm(back, 2) ** 2)
    errors = np.where(errors > 0, errors + magnified, 0.0)
    return Eigen(back.T @ vectors / scale[:, None], values, errors, logdet)


def pencil(matrix: Array, other: Array) -> Eigen:
    """Diagonalise two symmetric positive semidefinite matrices F and R [K, K], of which neither has to be definite.

    In the metric of their sum, in which both weigh the same: Tᵀ(xF + R)T = I, and eigenvalues of F from 0 to 1/x.
    """
    scaled, both = balanced(matrix, other)
    own = eigen(scaled, both)
    x = float(np.trace(scaled)) / float(np.trace(matrix))
    # What R has nothing of has exactly 0 of it: such modes are one system.
    shares = np.where(own.values > 1.0 - tolerance(len(matrix)), 1.0, own.values)
    return Eigen(own.rotation, shares / x, own.errors / x, own.logdet, 1.0 - shares)


def eigenvalues(parts: Sequence[Eigen]) -> tuple[Array, float, list[int]]:
    """Eigenvalues of a product, and the one that rises the least above its rounding errors.

    The values are [K_1, K_2, ..]. The second result is how far errors exceed an eigenvalue at most, negative when every
    eigenvalue rises above its errors; the third, for each part, the coefficient that weighs most in the eigenvector of
    that one.
    """
    start = np.ones((1,) * len(parts))
    values = math.prod(np.ix_(*(part.values for part in parts)), start=start)
    bounds = math.prod(np.ix_(*(part.values + part.errors for part in parts)), start=start)
    deficits = bounds - values - values
    worst = np.unravel_index(np.argmax(deficits), values.shape)
    vectors = (part.rotation[:, k] for part, k in zip(parts, worst, strict=True))
    return values, float(deficits[worst]), [int(np.argmax(np.abs(v))) for v in vectors]


def rotate(parts: Sequence[Eigen], v: Array, *, back: bool) -> Array:
    """Apply the transposed rotations, or the rotations themselves, to the leading axes of v.

    Leading axes are consumed and come back last: [K_1, .., K_m, rest..] → [rest.., K_1, .., K_m].
    """
    for part in parts:
        v = np.tensordot(v, part.rotation, axes=(0, 1 if back else 0))
    return v
