"""Sums of a block: in one sweep over a grid, or else in two passes over its slabs.

The first pass finds what is valid, the moment and the scalars, and what the mask separates into. Of what
separates, only the factors are contracted, from small arrays; the second pass contracts the weights
themselves, slab by slab, and only for a block that does not separate.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xspline.kernels.block import Array, Block, Floats, Layout, first_true, rounded, slab_entries, to_host
from xspline.kernels.component import SumsByCell, SumsBySlab
from xspline.kernels.engines import Engine, choose_engine
from xspline.kernels.separation import BlockResult, LineMasks, factors_of, join, whole_factor
from xspline.kernels.sweep import Sweep
from xspline.kernels.walk import Walk, read
from xspline.spaces import Space
from xspline.sums import Factor, Gram, Sums, Tally


def accumulate(
    block: Block, layout: Layout, space: Space, *, engine: str | Engine | None = None, slab: int | None = None
) -> Sums:
    """Sums of one block of data: G, h, s, Σw, n about a reference, and what was left out.

    They are on the host. Their window holds the coefficients that the coordinates touch. It never raises on data: NaN,
    infinities, bad weights and labels outside are tallied.

    Values have any numeric type and array namespace. `engine`, {"numba", "namespace"} or Engine, is which twin of the
    contraction runs: by default the compiled one for NumPy arrays. A slab has `slab` entries.

    A sweep takes every value for finite or missing. Where a block holds an infinity, or its sum of squares
    overflows, the sweep stops and the block is summed in slabs, which leave infinities out and know where the first
    one is.
    """
    if isinstance(block.values, np.generic):
        block = replace(block, values=np.asarray(block.values))
    chosen = choose_engine(block.values, engine)
    limit = slab or slab_entries(block.values)
    walk = Walk(block, layout, space, chosen, limit)
    sweep = Sweep.of(walk)
    result = sweep.result() if sweep is not None else None
    if result is None:  # not a grid, or infinite: see the notes
        with np.errstate(over="ignore"):  # such values are told, with labels
            result = in_slabs(walk)
    return sums_of(walk, result)


def sums_of(walk: Walk, result: BlockResult) -> Sums:
    """The result of a block as sums over its window."""
    batch_axes = walk.layout.batch_axes
    if result.moment is None:
        zero = Sums.zero(walk.space.frame, tuple(walk.shape[axis] for axis in batch_axes))
        return replace(zero, tally=result.tally)
    window = walk.window(range(len(walk.ranges)))
    reference = np.full((1,) * len(batch_axes), result.reference)
    power, weight, count = (_per_member(walk, a) for a in (result.power, result.weight, result.count))
    gram = Gram((result.factors,), len(batch_axes))
    return Sums(window, gram, result.moment, power, weight, count, reference, result.tally)


def _per_member(walk: Walk, array: Array) -> NDArray[Any]:
    """[b..] in the order of the layout's batch axes."""
    batch = {axis.axes[0]: i for i, axis in enumerate(walk.slab_axes) if axis.is_batch}
    order = [batch[axis] for axis in walk.layout.batch_axes]
    host = to_host(array)
    return np.transpose(host, [*order, *walk.pooled]).reshape([host.shape[i] for i in order])


# Slab by slab


def in_slabs(walk: Walk) -> BlockResult:
    """What a block gives in passes over its slabs."""
    xp = walk.xp
    tally = Tally()
    reference = None if walk.space.has_constant else 0.0  # else the first finite value, rounded to float32
    by_cell = SumsByCell.of(walk, walk.groups)  # then moment and pairs wait for the second pass
    moment = None if by_cell else SumsBySlab(walk, walk.groups, pairs=False)
    # Weights that span everything leave nothing to separate: G is then summed in the same walk.
    joined = len(join([frozenset((group,)) for group in walk.groups], walk.weight_groups)) == 1
    pairs = SumsBySlab(walk, walk.groups, pairs=True) if joined and not by_cell else None
    lines = LineMasks(walk, max(walk.pooled, key=lambda i: walk.lengths[i]))
    power, weight, count = (
        xp.zeros(walk.member_shape, dtype=kind, device=walk.device)
        for kind in (xp.float64, xp.float64, xp.int64)
    )
    for box in walk.boxes(long=by_cell is not None and not walk.on_host):
        slab, left_out = read(walk, box)
        tally = Tally.merge((tally, left_out))
        if not slab.count:
            continue
        axes = zip(walk.slab_axes, box.spans, strict=True)
        members = tuple(span if axis.is_batch else slice(0, 1) for axis, span in axes)
        if not joined:
            lines.add(slab, box)
        count[members] += xp.count_nonzero(slab.valid, axis=walk.pooled, keepdims=True)
        if reference is None:
            reference = rounded(float(slab.values[first_true(slab.valid, xp)]))
        e = slab.values
        if not slab.full:  # first, as some packages mark what is missing by signalling NaN
            e = xp.where(slab.valid, e, xp.full_like(e, reference))
        e -= reference
        weighted = e if slab.weight is None else e * slab.weight
        if slab.weight is not None:
            weight[members] += xp.sum(slab.weight, axis=walk.pooled, keepdims=True)
        if moment is not None:
            moment.add(weighted, box)
        if pairs is not None:
            pairs.add(slab.weights(xp), box)
        e *= weighted  # at last, in place: the weighted ones may be the same
        power[members] += xp.sum(e, axis=walk.pooled, keepdims=True)
    if not int(xp.sum(count)) or reference is None:
        return BlockResult(tally, count)
    if by_cell is not None:
        h, whole = by_cell.sums(reference, moment=True, pairs=joined)
    else:
        h, whole = (np.zeros(0) if sums is None else sums.finish() for sums in (moment, pairs))
    if joined:
        factors: tuple[Factor, ...] = (whole_factor(walk, whole),)
    else:
        factors = factors_of(walk, lines, partial(_second_pass, walk, by_cell))
    weight = weight if walk.block.weights else xp.astype(count, xp.float64)
    return BlockResult(tally, count, power, weight, reference, h, factors)


def _second_pass(walk: Walk, by_cell: SumsByCell | None) -> Floats:
    """Pairs [k.., o.., b..] of a block that does not separate, from the weights themselves."""
    if by_cell is not None:
        return by_cell.sums(0.0, moment=False, pairs=True)[1]
    pairs = SumsBySlab(walk, walk.groups, pairs=True)
    for box in walk.boxes():
        slab, _ = read(walk, box)
        if slab.count:
            pairs.add(slab.weights(walk.xp), box)
    return pairs.finish()
