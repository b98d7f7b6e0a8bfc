"""Direct solver for one product of factors, some of which the penalty does not tell apart: a static mask on a grid.

With T_jᵀ M_j T_j = I and T_jᵀ F_j T_j = diag(γ_j) for factors F_j of G and the matrices M_j that stand in their place
in every term of the penalty (the identity for a ridge, the mass matrix for a roughness of other coordinates), each
product of eigenvalues γ_k leaves one system v γ_k F + S over the main axes (Lynch, Rice and Thomas 1964). Without a
penalty they are all one but for v γ_k.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xspline.solve.direct.cholesky import Array
from xspline.solve.direct.solver import Direct
from xspline.solve.kronecker.eigen import eigen, outer, rotate, weakest
from xspline.solve.parallel import Resources
from xspline.solve.structure import AxisGroup, Split, alone, dense_of, subframe, within
from xspline.solve.system import DirectSystem
from xspline.sums import Factor, Gram, digest_key

if TYPE_CHECKING:
    from xspline.spaces import Frame


class Separable(DirectSystem):
    """Eigenvalues of the factors that stand apart, and a banded Cholesky factorisation for each product of them.

    Parameters
    ----------
    split : Split
        Of G and Λ.
    frame : Frame
    room : float
        Bytes of factorisations and selected inverses that are kept.
    resources : Resources, optional
        Cores on which bands are factorised side by side.

    Attributes
    ----------
    systems : Direct
        v γ_k F + S, [b.., M]; one F, [1.., 1], without a penalty.
    divisors : ndarray, [b.., M]
        What their inverses have to be divided by: v γ_k without a penalty, else 1.
    """

    def __init__(
        self, split: Split, frame: Frame, room: float = math.inf, resources: Resources | None = None
    ) -> None:
        self.room, self.resources = room, resources
        self.frame, self.own = frame, subframe(frame, split.axes)
        self.axes, self.others = split.axes, [block.axes for block in split.others]
        self.parts = [eigen(*_matrices(block, frame)) for block in split.others]
        self.pairs = [p.pairs(subframe(frame, b)) for p, b in zip(self.parts, self.others, strict=True)]
        self.values, v = outer(self.parts)[0].ravel(), split.multiplicity
        self.penalised, self.penalty = bool(split.penalty.terms), split.penalty
        self.main = alone(split.factors, split.axes)
        # Members without observations go along as any other.
        positive = np.where(v > 0, v, np.min(v, where=v > 0, initial=1.0))
        multiples = positive[..., None] * self.values
        apart = np.where(multiples > 0, multiples, np.nan)
        self.divisors = np.ones_like(multiples) if self.penalised else apart
        self.systems = self._direct(multiples if self.penalised else np.ones((1,) * multiples.ndim))
        self.deficit, self.place = weakest(self.parts)
        self.positive, self.multiplicity = positive, v

    @cached_property
    def determined(self) -> NDArray[np.bool_]:
        """Whether each batch member is, [b..]."""
        fine = self._rises_above(self.deficit * self.positive) & self.systems.determined.all(axis=-1)
        return np.asarray((self.multiplicity > 0) & fine)

    @cached_property
    def weakest(self) -> int:
        """Flat index of the coefficient that depends most on the others."""
        return self._original(self.multiplicity, self.place)

    @property
    def nbytes(self) -> int:
        """Bytes of what is kept."""
        return self.systems.nbytes

    def _direct(self, multiples: Array) -> Direct:
        """m F + S for multiples m, [n..]."""
        factors = (factor.with_batch_axes(multiples.ndim) for factor in self.main.terms[0])
        many = Factor((), (), multiples, digest_key("multiples", multiples))
        return Direct(
            Gram(((*factors, many),), multiples.ndim),
            self.penalty,
            self.own,
            dense=False,
            room=self.room,
            resources=self.resources,
        )

    def _rises_above(self, deficits: Array) -> NDArray[np.bool_]:
        """Whether S − d F is positive definite: d > 0 is how far γ_k may lie below zero, within its rounding errors."""
        if not self.penalised:
            return np.asarray(deficits < 0)
        return (
            self._direct(-deficits).determined
            if (deficits > 0).any()
            else np.ones(deficits.shape, dtype=bool)
        )

    def _original(self, v: Array, place: list[int]) -> int:
        """Flat index in the Space of the weakest coefficient of the main factor and one of each other factor."""
        pivots = np.where((v > 0)[..., None], self.systems.verdicts.pivot, -1.0)
        weak = np.broadcast_to(self.systems.verdicts.weakest, pivots.shape)
        member = np.argmax(pivots.min(axis=-1))
        lowest = np.argmin(pivots.reshape(-1, pivots.shape[-1])[member])
        index = self.systems.original(int(weak.reshape(-1, pivots.shape[-1])[member, lowest]))
        at = np.zeros(len(self.frame.sizes), dtype=np.int64)
        for axes, flat in zip([self.axes, *self.others], [index, *place], strict=True):
            at[list(axes)] = np.unravel_index(flat, tuple(self.frame.sizes[j] for j in axes))
        return int(np.ravel_multi_index(tuple(at), self.frame.sizes))

    def solve(self, rhs: Array, tolerance: float | None = None) -> Array:
        """(G + Λ)⁻¹ rhs, [K.., b..]; batch extents of 1 broadcast on both sides."""
        x = rotate(self.parts, self._into(rhs), back=False)
        x = x.reshape(*x.shape[: -len(self.parts)], -1)
        return self._out_of(self.systems.solve(x) / self.divisors)

    def apply_inverse_sqrt(self, z: Array) -> Array:
        """x with E[x xᵀ] = (G + Λ)⁻¹ for independent standard normal z, [K.., b..]; extents as in `solve`."""
        z = self._into(z)
        z = np.moveaxis(z.reshape(-1, *z.shape[len(self.parts) :]), 0, -1)
        return self._out_of(self.systems.apply_inverse_sqrt(z) / np.sqrt(self.divisors))

    def _into(self, v: Array) -> Array:
        """[K.., b..] to [coefficients of each other factor, those of the main one.., b..]."""
        lead, count = [axis for axes in self.others for axis in axes], len(self.frame.sizes)
        v = v.transpose(*lead, *self.axes, *range(count, v.ndim))
        return v.reshape(*(len(part.values) for part in self.parts), *v.shape[len(lead) :])

    def _out_of(self, x: Array) -> Array:
        """From eigenvectors, [main K.., b.., M], to coefficients, [K.., b..]."""
        count, batch = len(self.axes), x.shape[len(self.axes) : -1]
        parts = range(len(self.parts))
        x = x.reshape(*x.shape[:-1], *(len(part.values) for part in self.parts))
        x = rotate(self.parts, np.moveaxis(x, [x.ndim - len(parts) + j for j in parts], parts), back=True)
        lead = [axis for axes in self.others for axis in axes]
        x = x.reshape(*x.shape[:count], *batch, *(self.frame.sizes[axis] for axis in lead))
        places = [*self.axes, *(-1 for _ in batch), *lead]
        order = [places.index(axis) for axis in range(len(self.frame.sizes))]
        return x.transpose(*order, *range(count, count + len(batch)))

    def logdet(self) -> Array:
        """log|G + Λ|, [b..]."""
        size, count = self.systems.ordering.size, self.divisors.shape[-1]
        rotations = sum(part.logdet * (count / len(part.values)) for part in self.parts)
        logs = self.systems.logdet() + size * np.log(self.divisors)
        return np.asarray(np.sum(logs, axis=-1) - 2.0 * size * rotations)

    def edf(self) -> Array:
        """tr((G + Λ)⁻¹ G), [b..]."""
        if not self.penalised:
            return np.full(self.determined.shape, float(math.prod(self.frame.sizes)))
        return np.asarray(np.sum(self.systems.edf(), axis=-1))

    def traces(self, grams: Sequence[Gram]) -> Array:
        """tr((G + Λ)⁻¹ S) of Grams S without batch axes, [len, b..]; from the main systems where S splits as Λ does."""
        terms = [(i, term) for i, gram in enumerate(grams) for term in gram.terms]
        whole = [(i, term) for i, term in terms if self._splits(term)]
        mains = [alone(within(term, self.axes), self.axes) for _, term in whole]
        out = np.zeros((len(grams), *self.determined.shape))
        for (i, term), found in zip(whole, self.systems.traces(mains) if mains else (), strict=True):
            out[i] += np.sum(found / self.divisors * self._squares(term), axis=-1)
        for i, term in (t for t in terms if not self._splits(t[1])):
            pairs = self.inverse_pairs().reshape(-1, *self.determined.shape)
            out[i] += np.tensordot(Gram((term,)).one_factor(self.frame).pairs.ravel(), pairs, axes=1)
        return out

    def _splits(self, term: tuple[Factor, ...]) -> bool:
        return sum(len(within(term, axes)) for axes in (self.axes, *self.others)) == len(term)

    def _squares(self, term: tuple[Factor, ...]) -> Array:
        """t_kᵀ S t_k of the eigenvectors t_k of the other factors, [M]."""
        out = np.ones(1)
        for axes, pairs in zip(self.others, self.pairs, strict=True):
            own = alone(within(term, axes), axes).one_factor(subframe(self.frame, axes)).pairs
            out = np.multiply.outer(out, own.ravel() @ pairs.reshape(own.size, -1)).ravel()
        return out

    def inverse_pairs(self) -> Array:
        """Pair form of (G + Λ)⁻¹, [K.., O.., b..]."""
        count = 2 * len(self.axes) + len(self.determined.shape)
        out = self.systems.inverse_pairs() / self.divisors
        out = out.reshape(*out.shape[:count], *(len(part.values) for part in self.parts))
        for pairs in self.pairs:
            out = np.tensordot(out, pairs, axes=(count, -1))
        batch = [() for _ in self.determined.shape]
        places = [*_twice(self.axes), *batch, *(x for axes in self.others for x in _twice(axes))]
        order = [places.index(x) for x in _twice(range(len(self.frame.sizes)))]
        return np.ascontiguousarray(out.transpose(*order, *range(2 * len(self.axes), count)))


def _matrices(block: AxisGroup, frame: Frame) -> tuple[Array, Array | None]:
    """F_j and M_j."""
    mass = dense_of(block.mass, block.axes, frame) if block.mass else None
    return dense_of(block.factors, block.axes, frame), mass


def _twice(axes: Sequence[int]) -> list[tuple[int, ...]]:
    """Names of the axes of a pair array: coefficients, then offsets."""
    return [(axis, copy) for copy in (0, 1) for axis in axes]
