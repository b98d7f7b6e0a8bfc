"""Systems that differ from a factorised one in few observations: its answers, corrected.

A_k = A + V diag(s) Vᵀ (see `near`). With Y the vectors for which YᵀAY = 1 and Yᵀ(A_k − A)Y = diag(m), and N = AY,

    A_k = A + N diag(m) Nᵀ,   A_k⁻¹ = A⁻¹ − Y diag(m / (1 + m)) Yᵀ,   log|A_k| = log|A| + Σ log(1 + m)

and (1 + Y diag(1/√(1 + m) − 1) Nᵀ) x is a draw of A_k⁻¹ where x is one of A⁻¹. Y takes as many solves with A as V has
columns. 1 + m are the eigenvalues of A_k relative to A: where one is small, what was taken away mattered, so that
rounding errors would too, and A_k is factorised on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xspline.solve.direct.cholesky import Array, tolerance
from xspline.solve.direct.near import Change, Near
from xspline.solve.direct.solver import Direct
from xspline.solve.system import DirectSystem, columns_of
from xspline.spaces import Frame
from xspline.sums import Gram, outer_pairs

LEAST = 1e-2  # of 1 + m and 1 / (1 + m): two digits of sixteen may be lost


@dataclass(frozen=True, eq=False)
class Correction:
    """What tells A_k⁻¹ from A⁻¹.

    Parameters
    ----------
    rows : ndarray of int, [n]
        Where N is not zero.
    y : ndarray, [P, r]
        Y, in the order of the Space.
    n : ndarray, [n, r]
        N.
    m : ndarray, [r]
    """

    rows: NDArray[np.int64]
    y: Array
    n: Array
    m: Array

    @property
    def weights(self) -> Array:
        """m / (1 + m)."""
        return np.asarray(self.m / (1 + self.m))


class LowRank(DirectSystem):
    """The different systems of a batch, some factorised and the others as corrections of these.

    Parameters
    ----------
    near : Near
    penalty : Gram
        Λ without batch axes.
    frame : Frame
    direct : callable
        Makes the solver of some systems, a Gram with one batch axis.
    """

    def __init__(self, near: Near, penalty: Gram, frame: Frame, direct: Callable[[Gram], Direct]) -> None:
        self.frame, self.penalty, self.index = frame, penalty, near.index
        factorised = list(near.leaders)
        self.base = direct(near.only(factorised))
        self.corrections = self._corrections(near.changes, factorised)
        apart = sorted(near.changes.keys() - self.corrections.keys())
        if apart:
            factorised += apart
            self.base = direct(near.only(factorised))
        # For each system the number of the factorised one that answers for it.
        place = {system: i for i, system in enumerate(factorised)}
        systems = range(len(place) + len(self.corrections))
        self.place = np.array(
            [place[near.changes[s].leader if s in self.corrections else s] for s in systems]
        )

    def _corrections(self, changes: dict[int, Change], factorised: list[int]) -> dict[int, Correction]:
        """Those of the systems of which the factorised ones tell enough."""
        own = [[k for k, change in changes.items() if change.leader == leader] for leader in factorised]
        ranks = [[len(changes[k].signs) for k in group] for group in own]
        size = int(np.prod(self.frame.sizes))
        rhs = np.zeros((size, max(map(sum, ranks)), len(factorised)))
        starts = {}
        for place, group in enumerate(own):
            start = 0
            for k in group:
                vectors = changes[k].vectors
                starts[k] = place, slice(start, start + vectors.shape[1])
                rhs[changes[k].rows, starts[k][1], place] = vectors
                start += vectors.shape[1]
        solved = self.base.solve(rhs.reshape(*self.frame.sizes, *rhs.shape[1:])).reshape(rhs.shape)
        out, pivot = {}, self.base.verdicts.pivot
        for k, (place, columns) in starts.items():
            if self.base.determined[place]:
                found = correction(changes[k], solved[:, columns, place])
                spread = (1 + found.m.min(initial=0.0)) / (1 + found.m.max(initial=0.0))
                # Pivots of A_k are at least that share of those of A.
                if spread > LEAST and spread * pivot[place] > tolerance(size):
                    out[k] = found
        return out

    @property
    def determined(self) -> NDArray[np.bool_]:
        return np.asarray(self.base.determined[self.place][self.index])

    @property
    def weakest(self) -> int:
        return self.base.weakest

    @property
    def nbytes(self) -> int:
        return self.base.nbytes + sum(c.y.nbytes + c.n.nbytes for c in self.corrections.values())

    def solve(self, rhs: Array, tolerance: float | None = None) -> Array:
        columns, which, shape = columns_of(rhs, self.frame.sizes, self.index)
        out, flat = self._by_base(columns, which, self.base.solve), columns.reshape(-1, len(which))
        for k, c in self.corrections.items():
            own = which == k
            out[:, own] -= c.y @ (c.weights[:, None] * (c.y.T @ flat[:, own]))
        return out.reshape(shape)

    def apply_inverse_sqrt(self, z: Array) -> Array:
        columns, which, shape = columns_of(z, self.frame.sizes, self.index)
        out = self._by_base(columns, which, self.base.apply_inverse_sqrt)
        for k, c in self.corrections.items():
            own = which == k
            shrunk = (1 / np.sqrt(1 + c.m) - 1)[:, None]
            out[:, own] += c.y @ (shrunk * (c.n.T @ out[np.ix_(c.rows, own)]))
        return out.reshape(shape)

    def _by_base(self, columns: Array, which: NDArray[np.intp], answer: Callable[[Array], Array]) -> Array:
        """Answers of the factorised systems, [P, n], to columns [K.., n] of some systems."""
        sizes, count = self.frame.sizes, len(self.base.index)
        places = self.place[which]
        own = [np.flatnonzero(places == place) for place in range(count)]
        padded = np.zeros((*sizes, max(map(len, own)), count))
        for place, chosen in enumerate(own):
            padded[..., : len(chosen), place] = columns[..., chosen]
        answers = answer(padded).reshape(-1, *padded.shape[len(sizes) :])
        out = np.empty((len(answers), len(which)))
        for place, chosen in enumerate(own):
            out[:, chosen] = answers[:, : len(chosen), place]
        return out

    def logdet(self) -> Array:
        return self._corrected(self.base.logdet(), lambda c: np.sum(np.log1p(c.m)))

    def traces(self, grams: Sequence[Gram]) -> Array:
        def lost(c: Correction) -> Array:
            return np.array([-np.sum(c.weights * self._forms(gram, c)) for gram in grams])

        return self._corrected(self.base.traces(grams), lost)

    def edf(self) -> Array:
        """tr(A_k⁻¹G_k) = P − tr(A_k⁻¹Λ), [b..]."""
        return self._corrected(self.base.edf(), lambda c: np.sum(c.weights * self._forms(self.penalty, c)))

    def inverse_pairs(self) -> Array:
        def lost(c: Correction) -> Array:
            vectors = (c.y * np.sqrt(np.abs(c.weights))).reshape(*self.frame.sizes, -1)
            more, fewer = (outer_pairs(vectors[..., own], self.frame) for own in (c.m < 0, c.m >= 0))
            return np.asarray(more - fewer)

        return self._corrected(self.base.inverse_pairs(), lost)

    def _forms(self, gram: Gram, c: Correction) -> Array:
        """yᵀSy of each column of Y, [r]."""
        columns = c.y.reshape(*self.frame.sizes, -1)
        return gram.with_batch_axes(1).form(columns, self.frame) if gram.terms else np.zeros(len(c.m))

    def _corrected(self, answers: Array, change: Callable[[Correction], Array]) -> Array:
        """Answers of the factorised systems, [.., factorised], plus the changes of the others: [.., b..]."""
        out = answers[..., self.place]
        for k, c in self.corrections.items():
            out[..., k] += change(c)
        return np.asarray(out[..., self.index])


def correction(change: Change, solved: Array) -> Correction:
    """Y, N and m of a change, from A⁻¹V, [P, r]."""
    overlap = change.vectors.T @ solved[change.rows]
    sizes, directions = np.linalg.eigh((overlap + overlap.T) / 2)
    keep = sizes > np.finfo(np.float64).eps  # others change A by less than its rounding errors
    roots, directions = np.sqrt(sizes[keep]), directions[:, keep]
    inner = roots[:, None] * (directions.T @ (change.signs[:, None] * directions)) * roots
    m, rotation = np.linalg.eigh((inner + inner.T) / 2)
    basis = (directions / roots) @ rotation
    return Correction(change.rows, solved @ basis, change.vectors @ basis, m)
