"""Direct solver for any Gram and penalty: everything multiplied out into a band, or into a dense matrix."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xspline.sums import Gram

from .band import band, narrowest
from .batch import BatchCholesky
from .cholesky import Array, BandCholesky, DenseCholesky
from .structure import distinct, members

if TYPE_CHECKING:
    from xspline.spaces import Frame

SLAB = 512  # members that a batched factorisation walks at once: its window stays in cache
MAX_STEPS = (
    64 * 64
)  # P (u + 1) of the largest systems that are faster factorised many at a time than by LAPACK
MIN_BATCH = 32

System = BandCholesky | DenseCholesky | BatchCholesky


class Direct:
    """Cholesky factorisations of the distinct members of G + Λ.

    Parameters
    ----------
    gram, penalty : Gram
        G, and Λ without batch axes.
    frame : Frame
    dense : bool
        Whether to store P² numbers a member instead of a band.
    """

    def __init__(self, gram: Gram, penalty: Gram, frame: Frame, *, dense: bool) -> None:
        self.frame, self.dense = frame, dense
        self.ordering = narrowest(frame)
        self.members, self.index = distinct(gram)
        self.count = int(self.index.max(initial=0)) + 1
        self.penalty = penalty.with_batch_axes(1)
        self.batched = self.count >= MIN_BATCH and self._steps() <= MAX_STEPS
        self.systems = tuple(self._system(start, stop) for start, stop in self._slabs())
        pivots, weakest, determined = (
            np.concatenate([np.atleast_1d(getattr(s, name)) for s in self.systems])
            for name in ("pivot", "weakest", "determined")
        )
        self.determined: NDArray[np.bool_] = determined[self.index]
        self.weakest = self._original(int(weakest[np.argmax(pivots)]))
        self.nbytes = sum(system.nbytes for system in self.systems)

    def solve(self, rhs: Array) -> Array:
        """(G + Λ)⁻¹ rhs, [K.., b..]; batch extents of 1 broadcast on both sides."""
        count = len(self.frame.sizes)
        batch = np.broadcast_shapes(rhs.shape[count:], self.index.shape)
        which = np.broadcast_to(self.index, batch).ravel()
        flat = self._flatten(np.broadcast_to(rhs, rhs.shape[:count] + batch).reshape(*rhs.shape[:count], -1))
        if len(self.systems) == 1:
            out = _solve(self.systems[0], flat, which)
        else:
            out = self._solve_slabs(flat, which)
        return self._unflatten(out).reshape(rhs.shape[:count] + batch)

    def _solve_slabs(self, flat: Array, which: NDArray[np.int64]) -> Array:
        out = np.empty_like(flat)
        order = np.argsort(which, kind="stable")
        bounds = list(self._slabs())
        starts = np.searchsorted(which[order], [start for start, _ in bounds])
        stops = [*starts[1:], len(order)]
        for system, (first, _), start, stop in zip(self.systems, bounds, starts, stops, strict=True):
            chosen = order[start:stop]
            out[:, chosen] = _solve(system, flat[:, chosen], which[chosen] - first)
        return out

    def edf(self) -> Array:
        """tr((G + Λ)⁻¹ G), [b..]."""
        if not self.penalty.terms:
            return np.full(self.index.shape, float(self.ordering.size))
        parts = []
        for system, (start, stop) in zip(self.systems, self._slabs(), strict=True):
            gram = members(self.members, start, stop)
            if isinstance(system, DenseCholesky):
                trace: float | Array = system.trace(self._matrix([gram]))
            elif isinstance(system, BandCholesky):
                trace = system.trace(self._band([gram], 1)[..., 0])
            else:
                trace = system.trace(self._band([gram], stop - start))
            parts.append(np.atleast_1d(trace))
        return np.asarray(np.concatenate(parts)[self.index])

    def _system(self, start: int, stop: int) -> System:
        grams = [members(self.members, start, stop), self.penalty]
        if self.batched:
            return BatchCholesky(self._band(grams, stop - start))
        if self.dense:
            return DenseCholesky(self._matrix(grams))
        return BandCholesky(self._band(grams, 1)[..., 0])

    def _slabs(self) -> Iterator[tuple[int, int]]:
        step = SLAB if self.batched else 1
        return ((start, min(start + step, self.count)) for start in range(0, self.count, step))

    def _steps(self) -> int:
        return self.ordering.size * (self.ordering.bandwidth + 1)

    def _band(self, grams: list[Gram], count: int) -> Array:
        return band(grams, self.frame, self.ordering, count)

    def _matrix(self, grams: list[Gram]) -> Array:
        size = math.prod(self.frame.sizes)
        return np.asarray(sum((g.to_dense(self.frame)[..., 0] for g in grams), start=np.zeros((size, size))))

    @property
    def _natural(self) -> bool:
        """Whether the systems are in the order of the Space."""
        return self.dense and not self.batched

    def _flatten(self, v: Array) -> Array:
        return v.reshape(self.ordering.size, -1) if self._natural else self.ordering.flatten(v)

    def _unflatten(self, v: Array) -> Array:
        return v.reshape(*self.frame.sizes, -1) if self._natural else self.ordering.unflatten(v)

    def _original(self, index: int) -> int:
        return index if self._natural else self.ordering.original(index)


def _solve(system: System, flat: Array, which: NDArray[np.int64]) -> Array:
    return system.solve(flat, which) if isinstance(system, BatchCholesky) else system.solve(flat)
