"""Direct solver for any Gram and penalty: Cholesky factorisations of all distinct systems of a batch.

Each system is multiplied out into a band, a dense matrix, or the fronts of an elimination tree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from xspline.solve.batch import distinct, taken
from xspline.solve.costs import Resources
from xspline.solve.direct.band import Ordering, band, band_operations, narrowest, stripes
from xspline.solve.direct.cholesky import Array, BandCholesky, BatchCholesky, Cholesky
from xspline.solve.direct.device import DeviceCholesky
from xspline.solve.direct.dissection import LEAF, Cost, Tree, cost_of, tree_of
from xspline.solve.direct.fronts import DissectionCholesky
from xspline.solve.system import DirectSystem, columns_of
from xspline.spaces import Frame
from xspline.sums import Factor, Gram
from xspline.threads import on_cores, ranges, run, single_threaded_blas

Factors: TypeAlias = Cholesky | BatchCholesky
R = TypeVar("R")


class Verdict(NamedTuple):
    """What a factorisation says of its systems, [systems] each; see `Cholesky`."""

    pivot: Array
    weakest: NDArray[np.int64]
    determined: NDArray[np.bool_]
    logdet: Array


@dataclass(eq=False)
class Slab:
    """Systems from `first` to `stop` that are factorised together, and what is kept of them.

    There is a `verdict` once they have been factorised. There are `factors`, and once asked for the pair form of the
    inverses, [K.., O.., systems], if there is room for these.
    """

    number: int
    first: int
    stop: int
    verdict: Verdict | None = None
    factors: Factors | None = None
    inverse: Array | None = None


def side_by_side(systems: int, ordering: Ordering, resources: Resources) -> int:
    """How many bands are factorised at the same time: as many as there are cores, as far as memory is set aside."""
    if systems * band_operations(ordering) < resources.costs.threaded_flops:
        return 1
    fitting = int(resources.bytes_kept(True) // (8 * ordering.size * (ordering.bandwidth + 1)))
    return min(resources.cores, systems, max(1, fitting))


class Direct(DirectSystem):
    """Cholesky factorisations of the distinct systems of G + Λ, made when they are first needed.

    Those for which there is no room are made again whenever they are needed, one after the other in one place. Λ has no
    batch axes. With `dissection` coefficients are eliminated by nested dissection, and if `dense` in a single front of
    P² numbers, instead of a band. `room` is the bytes of factorisations and selected inverses that are kept; a single
    factorisation always is. `resources` are cores on which bands are factorised side by side, and a GPU on which dense
    systems are factorised and kept.
    """

    def __init__(
        self,
        gram: Gram,
        penalty: Gram,
        frame: Frame,
        *,
        dense: bool = False,
        dissection: bool = False,
        room: float = math.inf,
        resources: Resources | None = None,
    ) -> None:
        self.resources = resources or Resources.here()
        self.frame, self.room = frame, room
        self.gpu = self.resources.gpu if dense and not any(frame.everywhere) else None
        self.ordering = narrowest(frame)
        self.gram, self.index = distinct(gram)
        self.count = int(self.index.max(initial=0)) + 1
        self.penalty = penalty.with_batch_axes(1).one_factor(frame) if penalty.terms else None
        costs, numbers = self.resources.costs, self.ordering.size * (self.ordering.bandwidth + 1)
        self.batched = self.count >= costs.min_batch and numbers <= costs.max_batched_numbers
        step = costs.slab_numbers // min(numbers, math.isqrt(costs.slab_numbers)) if self.batched else 1
        self.leaf = self.ordering.size if dense else LEAF
        self.in_fronts = (
            dense or dissection
        ) and not self.batched  # in the order of the Space, which bands are not
        numbers = self._cost.numbers if self.in_fronts else numbers
        self._factor_bytes = 8 * numbers * min(step, self.count)  # of a slab
        starts = range(0, self.count, step)
        self.slabs = [Slab(i, start, min(start + step, self.count)) for i, start in enumerate(starts)]

    # --- what is known of the systems

    @property
    def nbytes(self) -> int:
        """Bytes of what is kept: factorisations and, once asked for, selected inverses."""
        kept = (x for slab in self.slabs for x in (slab.factors, slab.inverse))
        return sum(x.nbytes for x in kept if x is not None)

    @cached_property
    def verdicts(self) -> Verdict:
        """Pivots, weakest coefficients, whether determined, log-determinants: [b..] each."""
        self._each([slab for slab in self.slabs if slab.verdict is None], lambda slab, factors: None)
        columns = zip(*(slab.verdict for slab in self.slabs if slab.verdict is not None), strict=True)
        return Verdict(*(self._of_batch(column) for column in columns))

    @cached_property
    def determined(self) -> NDArray[np.bool_]:
        return self.verdicts.determined

    @cached_property
    def weakest(self) -> int:
        """The weakest coefficient of the best determined member."""
        return self.original(int(self.verdicts.weakest.flat[np.argmax(self.verdicts.pivot)]))

    def original(self, index: int) -> int:
        """Flat index in the order of the Space of a coefficient of the systems."""
        return index if self.in_fronts else self.ordering.original(index)

    # --- answers

    def solve(self, rhs: Array, tolerance: float | None = None) -> Array:
        return self._columns(rhs, lambda factors, columns, which: factors.solve(columns, which))

    def apply_inverse_sqrt(self, z: Array) -> Array:
        return self._columns(z, lambda factors, columns, which: factors.apply_inverse_sqrt(columns, which))

    def logdet(self) -> Array:
        return self.verdicts.logdet

    def inverse_pairs(self) -> Array:
        return self._of_inverses(lambda slab, pairs: pairs)

    def traces(self, grams: Sequence[Gram]) -> Array:
        factors = [gram.one_factor(self.frame) for gram in grams]
        return self._of_inverses(lambda slab, pairs: _traces(pairs, factors))

    def edf(self) -> Array:
        """tr((G + Λ)⁻¹ G), [b..]; as P − tr((G + Λ)⁻¹ Λ) where that is the smaller part."""
        size = float(self.ordering.size)
        if self.penalty is None:
            return np.full(self.index.shape, size)
        penalty = self.penalty

        def edf_of(slab: Slab, pairs: Array) -> Array:
            direct, lost = _traces(pairs, [self._gram_of(slab), penalty])
            return np.asarray(np.where(lost < direct, size - lost, direct))

        return self._of_inverses(edf_of)

    def _columns(self, rhs: Array, answer: Callable[[Factors, Array, NDArray[np.int64]], Array]) -> Array:
        """Apply an answer of every factorisation, [P, n] to [P, n], to its columns of rhs [K.., b..]."""
        ordering = self.ordering
        columns, which, shape = columns_of(rhs, self.frame.sizes, self.index)
        flat = columns.reshape(ordering.size, -1) if self.in_fronts else ordering.flatten(columns)
        out = np.empty_like(flat)
        order = np.arange(len(which))
        if len(self.slabs) > 1:
            order = np.argsort(which.astype(np.min_scalar_type(self.count)), kind="stable")
        own = np.split(order, np.searchsorted(which[order], [slab.first for slab in self.slabs[1:]]))
        cached = self.resources.costs.slab_numbers
        step = cached // min(ordering.size, math.isqrt(cached))  # a solve goes over its columns several times

        def fill(slab: Slab, factors: Factors) -> None:
            columns = own[slab.number]
            determined = bool(np.any(factors.determined))
            for first in range(0, len(columns), step):
                some = columns[first : first + step]
                adjacent = some[-1] - some[0] == len(some) - 1
                mine = slice(some[0], some[-1] + 1) if adjacent else some
                known = answer(factors, flat[:, mine], which[mine] - slab.first) if determined else np.nan
                out[:, mine] = known

        self._each([slab for slab in self.slabs if len(own[slab.number])], fill)
        return (out if self.in_fronts else ordering.unflatten(out)).reshape(shape)

    def _of_inverses(self, answer: Callable[[Slab, Array], Array]) -> Array:
        """Apply a function to the inverses of each slab, [K.., O.., systems]; return the results by batch member."""
        first = self.slabs[0]
        nbytes = 8 * self.ordering.size * math.prod(self.frame.offsets) * (first.stop - first.first)
        count = self._room_for(nbytes, self._factor_bytes * self._factors_kept)
        out = {slab.number: answer(slab, slab.inverse) for slab in self.slabs if slab.inverse is not None}

        def invert(slab: Slab, factors: Factors) -> Array:
            if np.any(factors.determined):
                pairs = factors.inverse_pairs(self.ordering)
            else:
                shape = (*self.frame.sizes, *self.frame.offsets, slab.stop - slab.first)
                pairs = np.full(shape, np.nan)
            if slab.number < count:
                slab.inverse = pairs
            return answer(slab, pairs)

        missing = [slab for slab in self.slabs if slab.number not in out]
        out |= zip((slab.number for slab in missing), self._each(missing, invert), strict=True)
        return self._of_batch([out[slab.number] for slab in self.slabs])

    def _of_batch(self, parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Results of the slabs, [.., systems], for each batch position: [.., b..]."""
        return np.asarray(np.concatenate(parts, axis=-1)[..., self.index])

    # --- factorisations

    def _each(self, slabs: Sequence[Slab], use: Callable[[Slab, Factors], R]) -> list[R]:
        """Apply a function to the factorisation of each of some slabs, a few at the same time, and return its results.

        The next factorisation takes the place of one that is not kept.
        """
        out: dict[int, R] = {}

        def piece(first: int, last: int) -> None:
            place: Array | None = None
            for slab in slabs[first:last]:
                factors = slab.factors or self._factorise(slab, place)
                if slab.number < self._factors_kept:
                    slab.factors, place = factors, None
                elif isinstance(factors, BandCholesky):
                    place = factors.factor
                out[slab.number] = use(slab, factors)

        threads = 1
        if self.in_fronts:
            alone = self._threaded or self.gpu is not None
            threads = 1 if alone else min(self.resources.cores, len(slabs))
        elif not self.batched:
            threads = side_by_side(len(slabs), self.ordering, self.resources)
        with single_threaded_blas(), on_cores(self.resources.cores):
            run(piece, [ranges(len(slabs), threads)])
        return [out[slab.number] for slab in slabs]

    def _factorise(self, slab: Slab, place: Array | None) -> Factors:
        """The factorisation of the systems of a slab, in a given place if they are one band."""
        pairs = self._gram_of(slab).pairs
        if self.penalty is not None:
            pairs = pairs + self.penalty.pairs
        factors: Factors
        if self.batched:
            factors = BatchCholesky(band(pairs, self.ordering))
        elif self.in_fronts:
            factors = self._on_gpu(pairs) or DissectionCholesky(
                pairs[..., 0], self._tree, threaded=self._threaded
            )
        else:
            out = np.empty((self.ordering.size, self.ordering.bandwidth + 1)) if place is None else place
            factors = BandCholesky.of_stripes(stripes(pairs, self.ordering)[..., 0], self.ordering.rows, out)
        numbers = (factors.pivot, factors.weakest, factors.determined, factors.logdet)
        slab.verdict = Verdict(*map(np.atleast_1d, numbers))
        return factors

    def _on_gpu(self, pairs: Array) -> Cholesky | None:
        """On the GPU where that finds it determined; else the host gives the verdict, and names a coefficient."""
        if self.gpu is None:
            return None
        axes = tuple(range(len(self.frame.sizes)))
        whole = Factor(axes, tuple((0, k) for k in self.frame.sizes), pairs, 0)
        factors = DeviceCholesky(whole.to_dense(self.frame).reshape(self.ordering.size, -1), self.gpu)
        return factors if factors.determined else None

    def _gram_of(self, slab: Slab) -> Factor:
        """G of a slab, multiplied out: pairs [K.., O.., systems]."""
        return taken(self.gram, slice(slab.first, slab.stop)).one_factor(self.frame)

    @cached_property
    def _tree(self) -> Tree:
        return tree_of(self.frame, self.leaf)

    @property
    def _cost(self) -> Cost:
        return cost_of(self.frame, self.leaf)

    @property
    def _threaded(self) -> bool:
        """Whether subtrees of one dissected system are eliminated side by side, or such systems are."""
        return self._cost.operations >= self.resources.costs.threaded_flops

    @property
    def _factors_kept(self) -> int:
        """The number of slabs whose factors are kept; refactorising small systems costs no more than rereading them."""
        return 0 if self.batched and len(self.slabs) > 1 else self._room_for(self._factor_bytes)

    def _room_for(self, nbytes: int, taken: int = 0) -> int:
        """How many slabs are kept of something that takes so many bytes a slab; the only one always is."""
        count = len(self.slabs)
        return 1 if count == 1 else int(min(max(self.room - taken, 0) / nbytes, count))


def _traces(inverse: Array, factors: Sequence[Factor]) -> Array:
    """Σ Z B of pair forms Z [K.., O.., systems] and pair arrays B, of each system or shared: [len, systems]."""
    flat = inverse.reshape(-1, inverse.shape[-1])
    pairs = (factor.pairs.reshape(len(flat), -1) for factor in factors)
    return np.array([b[:, 0] @ flat if b.shape[1] == 1 else np.einsum("pb,pb->b", b, flat) for b in pairs])
