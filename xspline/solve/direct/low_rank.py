"""Low-rank updates of a factorisation (Woodbury) answer for systems that differ from it in few observations.

A_k = A + V diag(s) Vᵀ (see `near`). With Y the vectors for which YᵀAY = 1 and Yᵀ(A_k − A)Y = diag(m), and N = AY,

    A_k = A + N diag(m) Nᵀ,   A_k⁻¹ = A⁻¹ − Y diag(m / (1 + m)) Yᵀ,   log|A_k| = log|A| + Σ log(1 + m)

and (1 + Y diag(1/√(1 + m) − 1) Nᵀ) x is a draw of A_k⁻¹ where x is one of A⁻¹. Y takes as many solves with A as V has
columns. 1 + m are the eigenvalues of A_k relative to A: where one is small, what was taken away mattered, so that
rounding errors would too, and A_k is factorised on its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xspline.solve.batch import taken
from xspline.solve.direct.cholesky import Array
from xspline.solve.direct.cholesky import tolerance as least_pivot
from xspline.solve.direct.near import Change, Near
from xspline.solve.direct.solver import Direct
from xspline.solve.system import columns_of
from xspline.spaces import Frame
from xspline.sums import Gram, outer_pairs

LEAST = 1e-2  # of 1 + m, and of one over another: two digits of sixteen may be lost


@dataclass(frozen=True, eq=False)
class Correction:
    """What tells A_k⁻¹ from A⁻¹: m [r], Y [P, r] in the order of the Space, N [n, r] in the rows that are not zero."""

    m: Array
    y: Array
    n: Array
    rows: NDArray[np.int64]

    @property
    def weights(self) -> Array:
        """m / (1 + m)."""
        return np.asarray(self.m / (1 + self.m))


class LowRank(Direct):
    """The different systems of a batch, some factorised and the others as corrections; parameters as of `Direct`."""

    def __init__(self, near: Near, penalty: Gram, frame: Frame, **options: Any) -> None:
        factorised = list(near.leaders)
        super().__init__(taken(near.gram, np.array(factorised)), penalty, frame, **options)
        self.corrections = self._corrections(near.changes, factorised)
        apart = sorted(near.changes.keys() - self.corrections.keys())
        if apart:
            made, numbers = self.slabs, self.index
            factorised += apart
            super().__init__(taken(near.gram, np.array(factorised)), penalty, frame, **options)
            if not self.batched:  # each slab is one system: those of the leaders have been factorised
                for new, old in zip(self.index, numbers, strict=False):
                    self.slabs[new].verdict = made[old].verdict
                    self.slabs[new].factors = made[old].factors if new < self._factors_kept else None
        self.systems, self.lambdas = near.index, penalty
        # Who answers for each batch member before corrections; `Direct` numbers its systems in an order of its own.
        place = {system: i for i, system in enumerate(factorised)}
        leaders = {k: near.changes[k].leader for k in self.corrections}
        own = [place[leaders.get(k, k)] for k in near.index.ravel().tolist()]
        self.index = self.index[own].reshape(near.index.shape)

    def _corrections(self, changes: dict[int, Change], factorised: list[int]) -> dict[int, Correction]:
        """Those of the systems of which the factorised ones tell enough."""
        ends = np.cumsum([0, *(len(change.signs) for change in changes.values())]).tolist()
        columns = {k: slice(*span) for k, span in zip(changes, itertools.pairwise(ends), strict=True)}
        rhs = np.zeros((self.ordering.size, ends[-1]))
        for k, change in changes.items():
            rhs[change.rows, columns[k]] = change.vectors
        places = {k: factorised.index(change.leader) for k, change in changes.items()}
        verdicts, numbers = self.verdicts, self.index  # [leaders], each of one batch member so far
        self.index = np.repeat(numbers[list(places.values())], np.diff(ends))  # of each column
        solved = super().solve(rhs.reshape(*self.frame.sizes, ends[-1])).reshape(rhs.shape)
        del self.verdicts  # for it remembers those of the leaders alone
        self.index, out = numbers, {}
        for k, place in places.items():
            if verdicts.determined[place]:
                own = correction(changes[k], solved[:, columns[k]])
                spread = (1 + own.m.min(initial=0.0)) / (1 + own.m.max(initial=0.0))
                # Pivots of A_k are at least that share of those of A.
                if spread > LEAST and spread * verdicts.pivot[place] > least_pivot(self.ordering.size):
                    out[k] = own
        return out

    @property
    def nbytes(self) -> int:
        return super().nbytes + sum(c.y.nbytes + c.n.nbytes for c in self.corrections.values())

    def solve(self, rhs: Array, tolerance: float | None = None) -> Array:
        out = np.ascontiguousarray(super().solve(rhs))
        columns, which, _ = columns_of(rhs, self.frame.sizes, self.systems)
        flat, solved = columns.reshape(-1, len(which)), out.reshape(-1, len(which))
        for k, c in self.corrections.items():
            own = which == k
            solved[:, own] -= c.y @ (c.weights[:, None] * (c.y.T @ flat[:, own]))
        return out

    def apply_inverse_sqrt(self, z: Array) -> Array:
        out = np.ascontiguousarray(super().apply_inverse_sqrt(z))
        _, which, _ = columns_of(z, self.frame.sizes, self.systems)
        drawn = out.reshape(-1, len(which))
        for k, c in self.corrections.items():
            own = np.flatnonzero(which == k)
            drawn[:, own] += c.y @ (
                (1 / np.sqrt(1 + c.m) - 1)[:, None] * (c.n.T @ drawn[np.ix_(c.rows, own)])
            )
        return out

    def logdet(self) -> Array:
        return self._corrected(super().logdet(), lambda c: np.log1p(c.m).sum())

    def traces(self, grams: Sequence[Gram]) -> Array:
        def change(c: Correction) -> Array:
            return np.array([-np.sum(c.weights * self._forms(gram, c)) for gram in grams])[:, None]

        return self._corrected(super().traces(grams), change)

    def edf(self) -> Array:
        """tr(A_k⁻¹G_k) = P − tr(A_k⁻¹Λ), [b..]."""
        return self._corrected(super().edf(), lambda c: (c.weights * self._forms(self.lambdas, c)).sum())

    def inverse_pairs(self) -> Array:
        def change(c: Correction) -> Array:
            vectors = (c.y * np.sqrt(np.abs(c.weights))).reshape(*self.frame.sizes, -1)
            more, fewer = (outer_pairs(vectors[..., own], self.frame) for own in (c.m < 0, c.m >= 0))
            return np.asarray(more - fewer)[..., None]

        return self._corrected(super().inverse_pairs(), change)

    def _forms(self, gram: Gram, c: Correction) -> Array:
        """yᵀSy of each column of Y, [r]."""
        columns = c.y.reshape(*self.frame.sizes, -1)
        return gram.with_batch_axes(1).form(columns, self.frame) if gram.terms else np.zeros(len(c.m))

    def _corrected(self, answers: Array, change: Callable[[Correction], Array | float]) -> Array:
        """Answers of who is factorised, [.., b..], plus what changes for those who are not."""
        out = np.array(answers)
        for k, c in self.corrections.items():
            out[..., self.systems == k] += change(c)
        return out


def correction(change: Change, solved: Array) -> Correction:
    """Y, N and m of a change, from A⁻¹V, [P, r]."""
    overlap = change.vectors.T @ solved[change.rows]
    sizes, directions = np.linalg.eigh((overlap + overlap.T) / 2)
    keep = sizes > np.finfo(np.float64).eps  # others change A by less than its rounding errors
    roots, directions = np.sqrt(sizes[keep]), directions[:, keep]
    inner = roots[:, None] * (directions.T @ (change.signs[:, None] * directions)) * roots
    m, rotation = np.linalg.eigh((inner + inner.T) / 2)
    basis = (directions / roots) @ rotation
    return Correction(m, solved @ basis, change.vectors @ basis, change.rows)
