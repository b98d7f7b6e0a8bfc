"""Sums of a block: in one sweep over a grid, or else in two passes over its slabs.

The first pass finds what is valid, the moment and the scalars, and what the mask separates into. Of what
separates, only the factors are contracted, from small arrays; the second pass contracts the weights
themselves, slab by slab, and only for a block that does not separate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from xspline.kernels.block import (
    Array,
    Block,
    Floats,
    Layout,
    count_true,
    first_true,
    rounded,
    to_host,
    to_namespace,
)
from xspline.kernels.component import SumsByCell, SumsBySlab
from xspline.kernels.engines import Engine, choose_engine
from xspline.kernels.separation import BlockResult, Projections, factors_of, join, whole_factor
from xspline.kernels.sweep import Sweep
from xspline.kernels.walk import SLAB_ROWS, SlabBox, Walk, slab_entries
from xspline.spaces import Space
from xspline.sums import Factor, Gram, Sums, Tally


def accumulate(
    block: Block,
    layout: Layout,
    space: Space,
    *,
    engine: str | Engine | None = None,
    slab: int | None = None,
    slab_rows: int = SLAB_ROWS,
) -> Sums:
    """Sums of one block of data: G, h, s, Σw, n about a reference, and what was left out.

    They are on the host. Their window holds the coefficients that the coordinates touch. It raises ValueError where
    shapes do not fit, but never on data: NaN, infinities, bad weights and labels outside are tallied.

    Values have any numeric type and array namespace. `engine`, {"numba", "namespace"} or Engine, is which twin of the
    contraction runs: by default the compiled one for NumPy arrays. A slab has `slab` entries, and `slab_rows` rows of
    one group.

    A sweep takes every value for finite or missing. Where a block holds an infinity, or its sum of squares
    overflows, the sweep stops and the block is summed in slabs, which leave infinities out and know where the first
    one is.
    """
    if isinstance(block.values, np.generic):
        block = replace(block, values=np.asarray(block.values))
    block.check(layout)
    chosen = choose_engine(block.values, engine)
    limit = slab or slab_entries(block.values)
    walk = Walk(block, layout, space, chosen, limit, slab_rows)
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
    device = walk.device
    groups = walk.groups
    tally = Tally()
    reference = walk.block.reference if walk.space.has_constant else 0.0
    by_cell = SumsByCell.of(walk, groups)  # then moment and pairs wait for the second pass
    moment = None if by_cell else SumsBySlab(walk, groups, pairs=False)
    # Weights that span everything leave nothing to separate: G is then summed in the same walk.
    joined = len(join([frozenset((group,)) for group in groups], walk.weight_groups)) == 1
    pairs = SumsBySlab(walk, groups, pairs=True) if joined and not by_cell else None
    projections = None if joined else Projections(walk.slab_axes, walk.lengths, xp, device)
    power, weight, count = (
        xp.zeros(walk.member_shape, dtype=kind, device=device) for kind in (xp.float64, xp.float64, xp.int64)
    )
    for box in walk.boxes():
        slab, left_out = read(walk, box)
        tally = Tally.merge((tally, left_out))
        if projections is not None:
            projections.add(slab.valid, box, slab.full)
        if not slab.count:
            continue
        if reference is None:
            reference = rounded(float(slab.values[first_true(slab.valid, xp)]))
        e = slab.values - reference
        if not slab.full:
            e = xp.where(slab.valid, e, xp.zeros_like(e))
        weighted = e if slab.weight is None else e * slab.weight
        axes = zip(walk.slab_axes, box.spans, strict=True)
        members = tuple(span if axis.is_batch else slice(0, 1) for axis, span in axes)
        counted = xp.sum(xp.astype(slab.valid, xp.int64), axis=walk.pooled, keepdims=True)
        weights = counted if slab.weight is None else xp.sum(slab.weight, axis=walk.pooled, keepdims=True)
        power[members] += xp.sum(weighted * e, axis=walk.pooled, keepdims=True)
        weight[members] += xp.astype(weights, xp.float64)
        count[members] += counted
        if moment is not None:
            moment.add(weighted, box)
        if pairs is not None:
            pairs.add(slab.weights(xp), box)
    total = int(xp.sum(count))
    if not total or reference is None:
        return BlockResult(tally, count)
    if by_cell is not None:
        h, whole = by_cell.sums(reference, moment=True, pairs=projections is None)
    else:
        h, whole = (np.zeros(0) if sums is None else sums.finish() for sums in (moment, pairs))
    if projections is None:
        factors: tuple[Factor, ...] = (whole_factor(walk, whole),)
    else:
        factors = factors_of(walk, projections, total, partial(_second_pass, walk, by_cell))
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


@dataclass(frozen=True, eq=False)
class SlabValues:
    """Values of one slab and where they count; `weight` (None: ones) is zero where they do not."""

    values: Array
    valid: Array
    weight: Array | None
    count: int
    full: bool

    def weights(self, xp: Any) -> Array:
        """Weights as an array of the shape of the values."""
        return xp.astype(self.valid, xp.float64) if self.weight is None else self.weight


def read(walk: Walk, box: SlabBox) -> tuple[SlabValues, Tally]:
    """One slab, and the tally of what is left out of it, with the first places of an infinity and a bad weight."""
    xp = walk.xp
    values = walk.values(box)
    size = math.prod(values.shape)
    known = xp.isfinite(values)
    valid = finite = known
    for i, axis in enumerate(walk.slab_axes):  # known: labels are numbers; valid: inside all domains
        inside = np.ones(0, dtype=bool) if axis.is_batch else walk.inside(i, box.rows[i])
        if bool(array_api_compat.array_namespace(inside).all(inside)):
            continue
        shape = tuple(n if j == i else 1 for j, n in enumerate(box.shape))
        known, valid = (
            xp.logical_and(mask, xp.reshape(to_namespace(rows, xp, walk.device), shape))
            for mask, rows in ((known, walk.labelled(i, box.rows[i])), (valid, inside))
        )
    present = count_true(known, xp)
    count = count_true(valid, xp)
    infinity = None if present == size else _first_place(walk, box, xp.isinf(values))
    outside = present - count
    weight = None
    bad = None
    unlabelled = 0 if known is finite else count_true(finite, xp) - present
    for number in range(len(walk.block.weights)):  # their product, zero where one is bad
        this_weight = walk.weight_of(number, box)
        good = xp.logical_and(xp.isfinite(this_weight), this_weight >= 0)
        if not bool(xp.all(good)):
            place = _first_place(walk, box, xp.logical_not(good))
            bad = place if bad is None or (place is not None and place < bad) else bad
            this_weight = xp.where(good, this_weight, xp.zeros_like(this_weight))
        weight = this_weight if weight is None else weight * this_weight
    if weight is not None:
        valid = xp.logical_and(valid, weight > 0)
        weight = xp.where(valid, weight, xp.zeros_like(values))
        count = count_true(valid, xp)
    tally = Tally(size - present, outside, infinity, bad, unlabelled)
    return SlabValues(values, valid, weight, count, count == size), tally


def _first_place(walk: Walk, box: SlabBox, mask: Array) -> tuple[int, ...] | None:
    """Global index of the first true entry, in C order of the data; the mask has the axes of slabs."""
    xp = walk.xp
    if not bool(xp.any(mask)):
        return None
    lengths = [box.slices[axis].stop - box.slices[axis].start for axis in walk.axis_order]
    mask = xp.reshape(xp.broadcast_to(mask, box.shape), tuple(lengths))
    mask = xp.permute_dims(mask, tuple(int(i) for i in np.argsort(walk.axis_order)))
    places = zip(walk.start, box.slices, first_true(mask, xp), strict=True)
    return tuple(start + span.start + i for start, span, i in places)
