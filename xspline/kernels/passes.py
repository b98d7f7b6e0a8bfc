"""Sums of a block in two passes over its slabs.

The first pass finds what is valid, the moment and the scalars, and what the mask separates into. Of what
separates, only the factors are contracted, from small arrays; the second pass contracts the weights
themselves, slab by slab, and only for a block that does not separate.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xspline.sums import Factor, Gram, Sums, Tally

from .arrays import first_true, rounded, to_host
from .contract import choose_engine
from .factors import Found, factors_of, stream, whole_factor
from .layout import Array, Block, Floats, Layout, Piece
from .mask import Projections, join
from .reading import Slab, read
from .scattered import Scattered
from .sweep import Sweep
from .walk import Accumulator, Walk, slab_entries

if TYPE_CHECKING:
    from xspline.spaces import Space


def accumulate(
    block: Block, layout: Layout, space: Space, *, engine: str | None = None, slab: int | None = None
) -> Sums:
    """Sums of one block of data: G, h, s, Σw, n about a reference, and what was left out.

    Parameters
    ----------
    block : Block
        Values of any numeric type and array namespace.
    layout : Layout
        Which axes of the values the coordinates span.
    space : Space
        The features.
    engine : {"numba", "namespace"}, optional
        Which twin of the contraction runs; by default the compiled one for NumPy arrays.
    slab : int, optional
        Entries of a slab.

    Returns
    -------
    Sums
        On the host. Its window holds the coefficients that the coordinates touch.

    Raises
    ------
    ValueError
        If shapes do not fit. Never on data: NaN, infinities, bad weights and labels outside are tallied.
    """
    if isinstance(block.values, np.generic):
        block = replace(block, values=np.asarray(block.values))
    block.check(layout)
    chosen = choose_engine(block.values, engine)
    limit = slab or slab_entries(block.values)
    walk = Walk(block, layout, space, chosen, limit)
    swept = Sweep.of(walk)
    return _sums(walk, (swept and swept.found()) or _in_slabs(walk))


def _in_slabs(walk: Walk) -> Found:
    first = FirstPass(walk)
    for piece in walk.pieces():
        first.add(piece)
    return first.found()


def _sums(walk: Walk, found: Found) -> Sums:
    batch_axes = walk.layout.batch_axes
    if found.moment is None:
        zero = Sums.zero(walk.space.frame, tuple(walk.shape[axis] for axis in batch_axes))
        return replace(zero, tally=found.tally)
    window = tuple((reach.start, reach.length) for reach in walk.reaches)
    reference = np.full((1,) * len(batch_axes), found.reference)
    power, weight, count = (_per_member(walk, a) for a in (found.power, found.weight, found.count))
    gram = Gram((found.factors,), len(batch_axes))
    return Sums(window, gram, found.moment, power, weight, count, reference, found.tally)


def _per_member(walk: Walk, array: Array) -> NDArray[Any]:
    """[b..] in the order of the layout's batch axes."""
    parts, host = walk.parts, to_host(array)
    batch = {part.axes[0]: i for i, part in enumerate(parts) if part.is_batch}
    order = [batch[axis] for axis in walk.layout.batch_axes]
    others = [i for i, part in enumerate(parts) if not part.is_batch]
    return np.transpose(host, order + others).reshape([host.shape[i] for i in order])


class FirstPass:
    """Everything that one walk over the slabs can tell."""

    def __init__(self, walk: Walk) -> None:
        self.walk = walk
        self.reference: float | None = walk.block.reference if walk.space.has_constant else 0.0
        self.tally = Tally()
        self.scattered = Scattered.of(walk, walk.sites)  # then moment and pairs wait for the second pass
        self.moment = None if self.scattered else Accumulator(walk, walk.sites, pairs=False)
        # Weights that span everything leave nothing to separate: G is then streamed in the same walk.
        self.joined = len(join([frozenset((site,)) for site in walk.sites], walk.weight_sites)) == 1
        streams = self.joined and not self.scattered
        self.pairs = Accumulator(walk, walk.sites, pairs=True) if streams else None
        xp, device = walk.xp, walk.device
        lengths = [n if part.is_batch else 1 for part, n in zip(walk.parts, walk.lengths, strict=True)]
        self.power, self.weight, self.count = (
            xp.zeros(tuple(lengths), dtype=t, device=device) for t in (xp.float64, xp.float64, xp.int64)
        )
        self.projections = None if self.joined else Projections(walk.parts, walk.lengths, xp, device)

    def add(self, piece: Piece) -> None:
        """Take in one slab."""
        walk, xp = self.walk, self.walk.xp
        slab, tally = read(walk, piece)
        self.tally = Tally.merge((self.tally, tally))
        if self.projections is not None:
            self.projections.add(slab.valid, piece, slab.full)
        if not slab.count:
            return
        if self.reference is None:
            self.reference = rounded(float(slab.values[first_true(slab.valid, xp)]))
        e = slab.values - self.reference
        if not slab.full:
            e = xp.where(slab.valid, e, xp.zeros_like(e))
        weighted = e if slab.weight is None else e * slab.weight
        self._add_scalars(slab, e, weighted, piece)
        if self.moment is not None:
            self.moment.add(weighted, piece)
        if self.pairs is not None:
            self.pairs.add(slab.weights(xp), piece)

    def _add_scalars(self, slab: Slab, e: Array, weighted: Array, piece: Piece) -> None:
        xp, parts = self.walk.xp, self.walk.parts
        axes = tuple(i for i, part in enumerate(parts) if not part.is_batch)
        spans = tuple(span if p.is_batch else slice(0, 1) for p, span in zip(parts, piece.spans, strict=True))
        count = xp.sum(xp.astype(slab.valid, xp.int64), axis=axes, keepdims=True)
        self.power[spans] += xp.sum(weighted * e, axis=axes, keepdims=True)
        weight = count if slab.weight is None else xp.sum(slab.weight, axis=axes, keepdims=True)
        self.weight[spans] += xp.astype(weight, xp.float64)
        self.count[spans] += count

    def found(self) -> Found:
        """What the walk has found; runs the second pass where it is needed."""
        total = int(self.walk.xp.sum(self.count))
        if not total or self.reference is None:
            return Found(self.tally, self.count)
        pairs: Floats | None
        if self.scattered is not None:
            moment, pairs = self.scattered.sums(self.reference, moment=True, pairs=self.joined)
        elif self.moment is not None:
            moment, pairs = self.moment.finish(), self.pairs.finish() if self.pairs else None
        factors = self._factors(total, pairs)
        return Found(self.tally, self.count, self.power, self.weight, self.reference, moment, factors)

    def _factors(self, count: int, pairs: Floats | None) -> tuple[Factor, ...]:
        if self.projections is None:
            return (whole_factor(self.walk, stream(self.walk) if pairs is None else pairs),)
        return factors_of(self.walk, self.projections.finish(), count, partial(stream, self.walk))
