"""Systems of a batch that differ in few observations from one of them: one factorisation, and corrections of it.

An observation adds wφφᵀ: masks that differ in one place differ in a matrix of rank 1, which is zero but for the
features at that place. The system with the most observations leads, since it is the one most likely determined.

A_k = A + V diag(s) Vᵀ for the leader's A and few columns V. With Y the vectors for which YᵀAY = 1 and
Yᵀ(A_k − A)Y = diag(m), and N = AY (Woodbury),

    A_k = A + N diag(m) Nᵀ,   A_k⁻¹ = A⁻¹ − Y diag(m / (1 + m)) Yᵀ,   log|A_k| = log|A| + Σ log(1 + m)

and (1 + Y diag(1/√(1 + m) − 1) Nᵀ) x is a draw of A_k⁻¹ where x is one of A⁻¹. Y takes as many solves with A as V has
columns. 1 + m are the eigenvalues of A_k relative to A: where one is small, what was taken away mattered, so that
rounding errors would too, and A_k is factorised on its own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from xspline.solve.batch import distinct, systems_between, taken
from xspline.solve.costs import CostModel
from xspline.solve.direct.band import band_operations, narrowest, pair_places
from xspline.solve.direct.cholesky import Array
from xspline.solve.direct.cholesky import tolerance as least_pivot
from xspline.solve.direct.solver import Direct
from xspline.solve.system import columns_of
from xspline.spaces import Frame
from xspline.sums import Gram, outer_pairs

ROUNDING = 64 * float(np.finfo(np.float64).eps)  # of an entry of G, relative to its diagonal
LEAST = 1e-2  # of 1 + m, and of one over another: two digits of sixteen may be lost


@dataclass(frozen=True, eq=False)
class Change:
    """G_k − G = V diag(s) Vᵀ of a system and the leader.

    Parameters
    ----------
    rows : ndarray of int, [n]
        Coefficients, in the order of the Space, outside of which V is zero.
    vectors, signs : ndarray, [n, r] and [r]
        V and s.
    """

    rows: NDArray[np.int64]
    vectors: Array
    signs: Array


@dataclass(frozen=True, eq=False)
class Near:
    """The different systems of a batch, and which of them are changes of one; `gram` and `index` are of `distinct`.

    Parameters
    ----------
    gram : Gram
    index : ndarray of int, [b..]
    factorised : tuple of int
        The leader, and the systems that differ much from it.
    changes : dict of int to Change
        Of all others.
    """

    gram: Gram
    index: NDArray[np.int64]
    factorised: tuple[int, ...]
    changes: dict[int, Change]


_known: WeakKeyDictionary[Gram, dict[CostModel, Near | None]] = WeakKeyDictionary()


def near(gram: Gram, frame: Frame, costs: CostModel) -> Near | None:
    """The systems of a Gram by their differences; None where none is near another, or factorising all takes no time.

    A search for the smoothing asks again for every λ, so the answer for a Gram is kept as long as it lives.
    """
    kept = _known.setdefault(gram, {})
    if costs not in kept:
        kept[costs] = _near(gram, frame, costs)
    return kept[costs]


def _near(gram: Gram, frame: Frame, costs: CostModel) -> Near | None:
    ordering = narrowest(frame)
    operations = band_operations(ordering)
    systems, index = distinct(gram)
    count = int(index.max(initial=0)) + 1
    small = count >= costs.min_batch and ordering.size * (ordering.bandwidth + 1) <= costs.max_batched_numbers
    if count == 1 or small or operations < costs.min_update_flops or any(frame.everywhere):
        return None  # the last: every row of a change would touch the functions that are active everywhere

    def pairs_of(system: int) -> Array:
        return systems_between(systems, system, system + 1).one_factor(frame).pairs[..., 0]

    rank = min(costs.max_update_rank, (ordering.bandwidth + 1) // 4)
    most = max(200, int(np.cbrt(operations / 4)))
    room = int(costs.update_bytes // (8 * ordering.size))
    trace = np.broadcast_to(systems.diagonal(frame).reshape(ordering.size, -1).sum(axis=0), count)
    leader, *others = np.argsort(-trace, kind="stable").tolist()
    before = pairs_of(leader)
    factorised = [leader]
    changes = {}
    for system in others:
        own = change(before, pairs_of(system), frame, min(rank, room), most)
        if own is None:
            factorised.append(system)
        else:
            changes[system] = own
            room -= len(own.signs)
    return Near(systems, index, tuple(factorised), changes) if changes else None


def change(before: Array, after: Array, frame: Frame, rank: int, most: int) -> Change | None:
    """The difference of two pair arrays [K.., O..] beyond rounding; None where it has too many columns or rows.

    Sums of equal masks differ by rounding where blocks were cut or added up in another way: by a share of the entries
    that |G_ij| ≤ √(G_ii G_jj) allows.
    """
    count, sizes = len(frame.sizes), frame.sizes
    diagonal = (slice(None),) * count + (0,) * count
    noise = ROUNDING * outer_pairs(np.sqrt(before[diagonal])[..., None], frame)
    places = np.nonzero(np.abs(after - before) > noise)
    if len(places[0]) > most * math.prod(frame.offsets):
        return None
    ends = [(k, (k + o) % n) for k, o, n in zip(places[:count], places[count:], sizes, strict=True)]
    rows = np.unique([np.ravel_multi_index(end, sizes) for end in itertools.product(*ends)])
    if len(rows) > most:
        return None
    difference = _entries(after - before, rows, frame)
    scale = np.sqrt(np.maximum(before[diagonal], after[diagonal]).ravel()[rows])
    scale[scale == 0] = 1.0
    values, vectors = np.linalg.eigh(difference / scale / scale[:, None])
    # Relative to the diagonals: what is less is a rounding error of the sums.
    keep = np.abs(values) > 4 * len(rows) * np.finfo(np.float64).eps
    if np.count_nonzero(keep) > rank:
        return None
    own = scale[:, None] * vectors[:, keep] * np.sqrt(np.abs(values[keep]))
    return Change(rows, own, np.sign(values[keep]))


def _entries(pairs: Array, rows: NDArray[np.int64], frame: Frame) -> Array:
    """Rows and columns of the matrix of a pair array [K.., O..]: [n, n]."""
    count = len(frame.sizes)
    strides = [math.prod(pairs.shape[axis + 1 :]) for axis in range(2 * count)]
    exists = np.ones((len(rows), len(rows)), dtype=bool)
    flat = np.zeros((len(rows), len(rows)), dtype=np.int64)
    for axis, k in enumerate(np.unravel_index(rows, frame.sizes)):
        size, offsets, periodic = frame.sizes[axis], frame.offsets[axis], frame.periodic[axis]
        steps = strides[axis], strides[count + axis]
        places, _ = pair_places(k[:, None], k, size, offsets, periodic, steps)
        exists &= places >= 0
        flat += places
    return np.where(exists, pairs.ravel()[np.where(exists, flat, 0)], 0.0)


@dataclass(frozen=True, eq=False)
class Correction:
    """What tells A_k⁻¹ from A⁻¹: m [r], Y [P, r] in the order of the Space, N [n, r] in the rows that are not zero."""

    m: Array
    y: Array
    n: Array
    rows: NDArray[np.int64]

    @staticmethod
    def of(change: Change, solved: Array) -> Correction:
        """Y, N and m of a change, from A⁻¹V, [P, r]."""
        overlap = change.vectors.T @ solved[change.rows]
        sizes, directions = np.linalg.eigh((overlap + overlap.T) / 2)
        keep = sizes > np.finfo(np.float64).eps  # others change A by less than its rounding errors
        roots, directions = np.sqrt(sizes[keep]), directions[:, keep]
        inner = roots[:, None] * (directions.T @ (change.signs[:, None] * directions)) * roots
        m, rotation = np.linalg.eigh((inner + inner.T) / 2)
        basis = (directions / roots) @ rotation
        return Correction(m, solved @ basis, change.vectors @ basis, change.rows)

    @property
    def weights(self) -> Array:
        """m / (1 + m)."""
        return np.asarray(self.m / (1 + self.m))

    @property
    def spread(self) -> float:
        """Pivots of A_k are at least that share of those of A."""
        return float((1 + self.m.min(initial=0.0)) / (1 + self.m.max(initial=0.0)))


class LowRank(Direct):
    """The different systems of a batch, some factorised and the others as corrections; parameters as of `Direct`."""

    def __init__(self, near: Near, penalty: Gram, frame: Frame, **options: Any) -> None:
        leader, *apart = near.factorised
        super().__init__(taken(near.gram, np.array([leader])), penalty, frame, **options)
        self.corrections = self._corrections(near.changes)
        apart += sorted(near.changes.keys() - self.corrections.keys())
        factorised = [leader, *apart]
        if apart:
            (made,) = self.slabs
            super().__init__(taken(near.gram, np.array(factorised)), penalty, frame, **options)
            self.__dict__.pop("verdicts", None)  # it remembers that of the leader alone
            if not self.batched:  # each slab is one system: that of the leader has been factorised
                place = int(self.index[0])
                self.slabs[place].verdict = made.verdict
                self.slabs[place].factors = made.factors if place < self._factors_kept else None
        self.systems, self.lambdas = near.index, penalty
        # Who answers for each batch member before corrections; `Direct` numbers its systems in an order of its own.
        places = {system: i for i, system in enumerate(factorised)}
        own = [places.get(k, 0) for k in near.index.ravel().tolist()]
        self.index = self.index[own].reshape(near.index.shape)
        self.__dict__.pop("verdicts", None)

    def _corrections(self, changes: dict[int, Change]) -> dict[int, Correction]:
        """Those of the systems of which the leader, so far the only system, tells enough."""
        pivot = float(self.verdicts.pivot[0])
        if not self.verdicts.determined[0]:
            return {}
        ends = np.cumsum([0, *(len(change.signs) for change in changes.values())]).tolist()
        rhs = np.zeros((self.ordering.size, ends[-1]))
        for change, (first, last) in zip(changes.values(), itertools.pairwise(ends), strict=True):
            rhs[change.rows, first:last] = change.vectors
        solved = super().solve(rhs.reshape(*self.frame.sizes, ends[-1])).reshape(rhs.shape)
        columns = (solved[:, first:last] for first, last in itertools.pairwise(ends))
        made = {k: Correction.of(changes[k], own) for k, own in zip(changes, columns, strict=True)}
        least = max(LEAST, least_pivot(self.ordering.size) / pivot)
        return {k: correction for k, correction in made.items() if correction.spread > least}

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
            shrunk = (1 / np.sqrt(1 + c.m) - 1)[:, None]
            drawn[:, own] += c.y @ (shrunk * (c.n.T @ drawn[np.ix_(c.rows, own)]))
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
