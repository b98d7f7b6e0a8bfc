"""Direct solver for any Gram and penalty: everything multiplied out into a band, or into a dense matrix."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xspline.sums import Factor, Gram

from .band import band, gather, gather_dense, narrowest, rows, stripes
from .batch import BatchCholesky
from .blas import threads_for
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
Verdict: TypeAlias = tuple[object, object, object, object]
Step: TypeAlias = Callable[[System, Array, NDArray[np.int64]], Array]


class Direct:
    """Cholesky factorisations of the distinct members of G + Λ, made when they are first needed.

    Those for which there is no room are made again whenever they are needed, one after the other in one place.

    Parameters
    ----------
    gram, penalty : Gram
        G, and Λ without batch axes.
    frame : Frame
    dense : bool
        Whether to store P² numbers a member instead of a band.
    room : float
        Bytes of factorisations and selected inverses that are kept; a single factorisation always is.

    Attributes
    ----------
    nbytes : int
        Bytes of what is kept: factorisations and, once asked for, selected inverses.
    """

    def __init__(
        self, gram: Gram, penalty: Gram, frame: Frame, *, dense: bool, room: float = math.inf
    ) -> None:
        self.frame, self.dense, self.room = frame, dense, room
        self.ordering = narrowest(frame)
        self.members, self.index = distinct(gram)
        self.count = int(self.index.max(initial=0)) + 1
        self.penalty = penalty.with_batch_axes(1).one_factor(frame) if penalty.terms else None
        self.batched = self.count >= MIN_BATCH and self._steps() <= MAX_STEPS
        step = SLAB if self.batched else 1
        self._slabs = [(i, min(i + step, self.count)) for i in range(0, self.count, step)]
        self._rows = rows(self.ordering, frame.offsets)
        self.nbytes = 0
        self._kept: dict[int, System] = {}
        self._inverses: dict[int, Array] = {}
        self._seen: dict[int, Verdict] = {}

    @cached_property
    def _verdicts(self) -> tuple[Array, ...]:
        """Pivots, weakest coefficients, whether determined, log-determinants: [b..] each."""
        missing = [i for i in range(len(self._slabs)) if i not in self._seen]
        for _ in self._each_system(missing):
            pass
        verdicts = (self._seen[i] for i in range(len(self._slabs)))
        return tuple(self._indexed(list(part)) for part in zip(*verdicts, strict=True))

    @property
    def pivots(self) -> Array:
        """Smallest relative pivot of each member."""
        return self._verdicts[0]

    @property
    def weak(self) -> NDArray[np.int64]:
        """The coefficient that it belongs to."""
        return self._verdicts[1].astype(np.int64)

    @property
    def determined(self) -> NDArray[np.bool_]:
        """Whether each member is positive definite beyond rounding errors."""
        return self._verdicts[2].astype(bool)

    @property
    def weakest(self) -> int:
        """The weakest coefficient of the best determined member."""
        return self.original(int(self.weak.flat[np.argmax(self.pivots)]))

    def solve(self, rhs: Array) -> Array:
        """(G + Λ)⁻¹ rhs, [K.., b..]; batch extents of 1 broadcast on both sides."""
        return self._each(rhs, _solve)

    def half(self, z: Array) -> Array:
        """x with E[x xᵀ] = (G + Λ)⁻¹ for independent standard normal z, [K.., b..]; extents as in `solve`."""
        return self._each(z, _half)

    def logdet(self) -> Array:
        """log|G + Λ|, [b..]."""
        return self._verdicts[3]

    def inverse_pairs(self) -> Array:
        """Pair form of (G + Λ)⁻¹, [K.., O.., b..]."""
        return self._indexed(list(self._each_inverse()))

    def traces(self, grams: Sequence[Gram]) -> Array:
        """tr((G + Λ)⁻¹ S) of Grams S without batch axes, [len, b..]."""
        factors = [gram.one_factor(self.frame) for gram in grams]
        return self._indexed([_traces(pairs, factors) for pairs in self._each_inverse()])

    def edf(self) -> Array:
        """tr((G + Λ)⁻¹ G), [b..]; as P − tr((G + Λ)⁻¹ Λ) where that is the smaller part."""
        size = float(self.ordering.size)
        if self.penalty is None:
            return np.full(self.index.shape, size)
        parts = []
        for i, pairs in enumerate(self._each_inverse()):
            direct, lost = _traces(pairs, [self._gram(i), self.penalty])
            parts.append(np.where(lost < direct, size - lost, direct))
        return self._indexed(parts)

    def original(self, index: int) -> int:
        """Flat index in the order of the Space of a coefficient of the systems."""
        return index if self._natural else self.ordering.original(index)

    def _each_system(self, slabs: Iterable[int]) -> Iterator[tuple[int, System]]:
        """The factorisations of some slabs, one after the other: the next one takes the place of one not kept."""
        place = None
        for i in slabs:
            if i in self._kept:
                yield i, self._kept[i]
                continue
            pairs = self._gram(i).pairs
            pairs = pairs if self.penalty is None else pairs + self.penalty.pairs
            with threads_for(self._operations):
                system = self._factorise(pairs, place)
            self._seen[i] = (system.pivot, system.weakest, system.determined, system.logdet)
            if len(self._slabs) == 1 or self.nbytes + system.nbytes <= self.room:
                self._kept[i], place = system, None
                self.nbytes += system.nbytes
            elif isinstance(system, BandCholesky):
                place = system.factor
            yield i, system

    def _factorise(self, pairs: Array, place: Array | None) -> System:
        if self.batched:
            return BatchCholesky(band(pairs, self.ordering))
        if not self.dense:
            shape = self.ordering.size, self.ordering.bandwidth + 1
            held = stripes(pairs, self._rows, self.ordering)[..., 0]
            return BandCholesky.of_stripes(held, self._rows, np.empty(shape) if place is None else place)
        axes, size = tuple(range(len(self.frame.sizes))), self.ordering.size
        window = tuple((0, k) for k in self.frame.sizes)
        return DenseCholesky(Factor(axes, window, pairs[..., 0], 0).to_dense(self.frame).reshape(size, size))

    def _gram(self, i: int) -> Factor:
        """G of a slab, multiplied out: pairs [K.., O.., members]."""
        return members(self.members, *self._slabs[i]).one_factor(self.frame)

    def _each_inverse(self) -> Iterator[Array]:
        """Pair form of the inverses of each slab, [K.., O.., members], kept if there is room."""
        missing = [i for i in range(len(self._slabs)) if i not in self._inverses]
        systems = self._each_system(missing)
        for i in range(len(self._slabs)):
            if i in self._inverses:
                yield self._inverses[i]
                continue
            _, system = next(systems)
            with threads_for(self._operations):
                pairs = self._gathered(system)
            if self.nbytes + pairs.nbytes <= self.room:
                self._inverses[i] = pairs
                self.nbytes += pairs.nbytes
            yield pairs

    def _gathered(self, system: System) -> Array:
        if isinstance(system, BatchCholesky):
            return gather(system.inverse(self._rows), self._rows, self.ordering, self.frame.offsets)
        if not system.determined:
            return np.full((*self.frame.sizes, *self.frame.offsets, 1), np.nan)
        if isinstance(system, DenseCholesky):
            return gather_dense(system.inverse(), self.frame)[..., None]
        inverse = system.inverse(self._rows)[..., None]
        return gather(inverse, self._rows, self.ordering, self.frame.offsets)

    def _indexed(self, parts: Sequence[Array]) -> Array:
        """Results of the slabs, [.., members], for each batch position: [.., b..]."""
        return np.asarray(np.concatenate([np.atleast_1d(p) for p in parts], axis=-1)[..., self.index])

    def _steps(self) -> int:
        return self.ordering.size * (self.ordering.bandwidth + 1)

    @property
    def _operations(self) -> float:
        """Of one factorisation."""
        return float(self._steps()) * (self.ordering.bandwidth + 1)

    def _each(self, rhs: Array, step: Step) -> Array:
        """Apply a step of every system, [P, n] to [P, n], to its columns of rhs [K.., b..]."""
        sizes = rhs.shape[: len(self.frame.sizes)]
        batch = np.broadcast_shapes(rhs.shape[len(sizes) :], self.index.shape)
        which = np.broadcast_to(self.index, batch).ravel()
        flat = self._flatten(np.broadcast_to(rhs, sizes + batch).reshape(*sizes, -1))
        out = np.empty_like(flat)
        order, slabs = np.argsort(which, kind="stable"), self._slabs
        starts = np.searchsorted(which[order], [first for first, _ in slabs])
        stops = [*starts[1:], len(order)]
        needed = [i for i in range(len(slabs)) if stops[i] > starts[i]]
        for i, system in self._each_system(needed):
            chosen = slice(None) if len(slabs) == 1 else order[starts[i] : stops[i]]
            if not np.any(system.determined):
                out[:, chosen] = np.nan
                continue
            with threads_for(self._operations):
                out[:, chosen] = step(system, flat[:, chosen], which[chosen] - slabs[i][0])
        return self._unflatten(out).reshape(sizes + batch)

    @property
    def _natural(self) -> bool:
        """Whether the systems are in the order of the Space."""
        return self.dense and not self.batched

    def _flatten(self, v: Array) -> Array:
        return v.reshape(self.ordering.size, -1) if self._natural else self.ordering.flatten(v)

    def _unflatten(self, v: Array) -> Array:
        return v.reshape(*self.frame.sizes, -1) if self._natural else self.ordering.unflatten(v)


def _solve(system: System, flat: Array, which: NDArray[np.int64]) -> Array:
    return system.solve(flat, which) if isinstance(system, BatchCholesky) else system.solve(flat)


def _half(system: System, flat: Array, which: NDArray[np.int64]) -> Array:
    return system.half(flat, which) if isinstance(system, BatchCholesky) else system.half(flat)


def _traces(inverse: Array, factors: Sequence[Factor]) -> Array:
    """Σ Z B of pair forms Z [K.., O.., members] and pair arrays B, of members or shared: [len, members]."""
    flat = inverse.reshape(-1, inverse.shape[-1])
    pairs = (factor.pairs.reshape(len(flat), -1) for factor in factors)
    return np.array([b[:, 0] @ flat if b.shape[1] == 1 else np.einsum("pb,pb->b", b, flat) for b in pairs])
