"""Direct solver for any Gram and penalty: everything multiplied out into a band, or into a dense matrix."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xspline.solve.device.dense import DeviceCholesky
from xspline.solve.device.gpu import Gpu
from xspline.solve.direct.band import band, gather, gather_dense, narrowest, rows, stripes
from xspline.solve.direct.batch import BatchCholesky
from xspline.solve.direct.cholesky import Array, BandCholesky, DenseCholesky
from xspline.solve.parallel import cores as all_cores
from xspline.solve.parallel import ranges, run, threads_for
from xspline.solve.select import abreast
from xspline.solve.structure import distinct, members
from xspline.solve.system import DirectSystem
from xspline.sums import Factor, Gram

if TYPE_CHECKING:
    from xspline.spaces import Frame

SLAB = (
    1 << 18,
    512,
)  # numbers that a batched factorisation takes at once, to stay in a cache; members, at least
MAX_STEPS = (
    64 * 64
)  # P (u + 1) of the largest systems that are faster factorised many at a time than by LAPACK
MIN_BATCH = 32

System = BandCholesky | DenseCholesky | DeviceCholesky | BatchCholesky
Verdict: TypeAlias = tuple[object, object, object, object]
Step: TypeAlias = Callable[[System, Array, NDArray[np.int64]], Array]


class Direct(DirectSystem):
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
    cores : int, optional
        On which bands are factorised side by side; all of this process if it is not given.
    gpu : Gpu, optional
        Device on which dense systems are factorised and kept; None: the host.

    Attributes
    ----------
    nbytes : int
        Bytes of what is kept: factorisations and, once asked for, selected inverses.
    """

    def __init__(
        self,
        gram: Gram,
        penalty: Gram,
        frame: Frame,
        *,
        dense: bool,
        room: float = math.inf,
        cores: int | None = None,
        gpu: Gpu | None = None,
    ) -> None:
        self.frame, self.dense, self.room, self.gpu = frame, dense, room, gpu
        self.cores = all_cores() if cores is None else cores
        self.ordering = narrowest(frame)
        self.members, self.index = distinct(gram)
        self.count = int(self.index.max(initial=0)) + 1
        self.penalty = penalty.with_batch_axes(1).one_factor(frame) if penalty.terms else None
        self.batched = self.count >= MIN_BATCH and self._steps() <= MAX_STEPS
        step = max(SLAB[0] // self._steps(), SLAB[1]) if self.batched else 1
        self._slabs = [(i, min(i + step, self.count)) for i in range(0, self.count, step)]
        self._rows = rows(self.ordering, frame.offsets)
        self._kept: dict[int, System] = {}
        self._inverses: dict[int, Array] = {}
        self._seen: dict[int, Verdict] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of what is kept."""
        return sum(x.nbytes for kept in (self._kept, self._inverses) for x in kept.values())

    @cached_property
    def _verdicts(self) -> tuple[Array, ...]:
        """Pivots, weakest coefficients, whether determined, log-determinants: [b..] each."""
        missing = [i for i in range(len(self._slabs)) if i not in self._seen]
        self._visit(missing, lambda i, system: None)
        verdicts = [self._seen.pop(i) for i in range(len(self._slabs))]
        return tuple(self._indexed(list(part)) for part in zip(*verdicts, strict=True))

    @property
    def pivots(self) -> Array:
        """Smallest relative pivot of each member."""
        return self._verdicts[0]

    @property
    def weak(self) -> NDArray[np.int64]:
        """The coefficient that it belongs to."""
        return self._verdicts[1].astype(np.int64)

    @cached_property
    def determined(self) -> NDArray[np.bool_]:
        """Whether each member is positive definite beyond rounding errors."""
        return self._verdicts[2].astype(bool)

    @cached_property
    def weakest(self) -> int:
        """The weakest coefficient of the best determined member."""
        return self.original(int(self.weak.flat[np.argmax(self.pivots)]))

    def solve(self, rhs: Array, tolerance: float | None = None) -> Array:
        """(G + Λ)⁻¹ rhs, [K.., b..]; batch extents of 1 broadcast on both sides."""
        return self._each(rhs, _solve)

    def apply_inverse_sqrt(self, z: Array) -> Array:
        """x with E[x xᵀ] = (G + Λ)⁻¹ for independent standard normal z, [K.., b..]; extents as in `solve`."""
        return self._each(z, _half)

    def logdet(self) -> Array:
        """log|G + Λ|, [b..]."""
        return self._verdicts[3]

    def inverse_pairs(self) -> Array:
        """Pair form of (G + Λ)⁻¹, [K.., O.., b..]."""
        return self._of_inverses(lambda i, pairs: pairs)

    def traces(self, grams: Sequence[Gram]) -> Array:
        """tr((G + Λ)⁻¹ S) of Grams S without batch axes, [len, b..]."""
        factors = [gram.one_factor(self.frame) for gram in grams]
        return self._of_inverses(lambda i, pairs: _traces(pairs, factors))

    def edf(self) -> Array:
        """tr((G + Λ)⁻¹ G), [b..]; as P − tr((G + Λ)⁻¹ Λ) where that is the smaller part."""
        size = float(self.ordering.size)
        if self.penalty is None:
            return np.full(self.index.shape, size)
        penalty = self.penalty

        def part(i: int, pairs: Array) -> Array:
            direct, lost = _traces(pairs, [self._gram(i), penalty])
            return np.asarray(np.where(lost < direct, size - lost, direct))

        return self._of_inverses(part)

    def original(self, index: int) -> int:
        """Flat index in the order of the Space of a coefficient of the systems."""
        return index if self._natural else self.ordering.original(index)

    def _visit(self, slabs: Sequence[int], visit: Callable[[int, System], None]) -> None:
        """Call with the factorisation of each of some slabs, a few at the same time.

        The next one takes the place of one that is not kept.
        """

        def piece(first: int, last: int) -> None:
            place = None
            for i in slabs[first:last]:
                system = self._kept.get(i) or self._factorise(i, place)
                if i < self._factors_kept:
                    self._kept[i], place = system, None
                elif isinstance(system, BandCholesky):
                    place = system.factor
                visit(i, system)

        crew = 1 if self.dense or self.batched else abreast(len(slabs), self.ordering, self.cores)
        # Where there is a GPU, the host factorises what that could not: a dense matrix, for all threads.
        with threads_for(self._operations if self.gpu is None else math.inf):
            run(piece, [ranges(len(slabs), crew)])

    @property
    def _bytes(self) -> int:
        """Of the factorisations of a slab."""
        width = self.ordering.size if self.dense and not self.batched else self.ordering.bandwidth + 1
        first, last = self._slabs[0]
        return 8 * self.ordering.size * width * (last - first)

    @property
    def _factors_kept(self) -> int:
        """Of how many slabs; many small systems are as soon factorised again as read again."""
        return 0 if self.batched and len(self._slabs) > 1 else self._room_for(self._bytes)

    def _room_for(self, nbytes: int, taken: int = 0) -> int:
        """How many slabs are kept of something that takes so many bytes a slab; the only one always is."""
        count = len(self._slabs)
        return 1 if count == 1 else int(min(max(self.room - taken, 0) / nbytes, count))

    def _factorise(self, i: int, place: Array | None) -> System:
        """The factorisations of a slab, in a given place if they are one band."""
        pairs = self._gram(i).pairs
        system = self._of(pairs if self.penalty is None else pairs + self.penalty.pairs, place)
        self._seen[i] = (system.pivot, system.weakest, system.determined, system.logdet)
        return system

    def _of(self, pairs: Array, place: Array | None) -> System:
        if self.batched:
            return BatchCholesky(band(pairs, self.ordering))
        if not self.dense:
            shape = self.ordering.size, self.ordering.bandwidth + 1
            held = stripes(pairs, self._rows, self.ordering)[..., 0]
            return BandCholesky.of_stripes(held, self._rows, np.empty(shape) if place is None else place)
        return self._dense_of(pairs[..., 0])

    def _dense_of(self, pairs: Array) -> DenseCholesky | DeviceCholesky:
        """On the GPU where that finds it determined; else LAPACK gives the verdict, and names a coefficient."""
        if self.gpu is not None:
            system = DeviceCholesky(pairs, self.frame, self.gpu)
            if system.determined:
                return system
            del system  # a matrix on the GPU
        axes, size = tuple(range(len(self.frame.sizes))), self.ordering.size
        window = tuple((0, k) for k in self.frame.sizes)
        return DenseCholesky(Factor(axes, window, pairs, 0).to_dense(self.frame).reshape(size, size))

    def _gram(self, i: int) -> Factor:
        """G of a slab, multiplied out: pairs [K.., O.., members]."""
        return members(self.members, *self._slabs[i]).one_factor(self.frame)

    def _of_inverses(self, part: Callable[[int, Array], Array]) -> Array:
        """What a function makes of the inverses of each slab, in pair form [K.., O.., members], for the batch."""
        count, (first, last) = len(self._slabs), self._slabs[0]
        nbytes = 8 * self.ordering.size * math.prod(self.frame.offsets) * (last - first)
        kept = self._room_for(nbytes, self._bytes * self._factors_kept)
        out = {i: part(i, pairs) for i, pairs in self._inverses.items()}

        def visit(i: int, system: System) -> None:
            pairs = self._gathered(system)
            out[i] = part(i, pairs)
            if i < kept:
                self._inverses[i] = pairs

        self._visit([i for i in range(count) if i not in out], visit)
        return self._indexed([out[i] for i in range(count)])

    def _gathered(self, system: System) -> Array:
        if isinstance(system, BatchCholesky):
            return gather(system.inverse(self._rows), self._rows, self.ordering, self.frame.offsets)
        if not system.determined:
            return np.full((*self.frame.sizes, *self.frame.offsets, 1), np.nan)
        if isinstance(system, DenseCholesky):
            return gather_dense(system.inverse(), self.frame)[..., None]
        if isinstance(system, DeviceCholesky):
            return system.inverse_pairs()[..., None]
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

        def visit(i: int, system: System) -> None:
            chosen = slice(None) if len(slabs) == 1 else order[starts[i] : stops[i]]
            if np.any(system.determined):
                out[:, chosen] = step(system, flat[:, chosen], which[chosen] - slabs[i][0])
            else:
                out[:, chosen] = np.nan

        self._visit(needed, visit)
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
    return (
        system.apply_inverse_sqrt(flat, which)
        if isinstance(system, BatchCholesky)
        else system.apply_inverse_sqrt(flat)
    )


def _traces(inverse: Array, factors: Sequence[Factor]) -> Array:
    """Σ Z B of pair forms Z [K.., O.., members] and pair arrays B, of members or shared: [len, members]."""
    flat = inverse.reshape(-1, inverse.shape[-1])
    pairs = (factor.pairs.reshape(len(flat), -1) for factor in factors)
    return np.array([b[:, 0] @ flat if b.shape[1] == 1 else np.einsum("pb,pb->b", b, flat) for b in pairs])
