"""Moments and pairs of a component of a block: contracted slab by slab, or, where rows are sorted, cell by cell.

`SumsBySlab` contracts slabs in the order of the data. Where cells hold several rows, as those of scattered
observations, stations or curvilinear grids do, it is faster to go from cell to cell: `SumsByCell`. Which way is
taken depends on shapes alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from xspline.kernels.block import Array, Bools, Floats, Scratch, native, to_host, to_namespace
from xspline.kernels.engines import contract
from xspline.kernels.points.cells import Cells, CellTotals, take
from xspline.kernels.points.tiles import Tiles, TileTotals
from xspline.kernels.rows import Rows, roll_up
from xspline.kernels.walk import Component, SlabBox, Walk

MEMORY = Scratch(), Scratch()  # of rows: their weights and errors


class SumsBySlab:
    """Sum of contracted slabs, in the order of the slab axes, unrolled; tidied once, at the end.

    Other groups than those of `component` have extent 1 and vanish, except batch axes. There are pairs (G) if `pairs`,
    else moments (h). `last` is the slab axis whose coefficients are the last of the total, as they are of what is
    added; its pairs are `folded` where it has one cell (`Rows.folded`).
    """

    def __init__(self, walk: Walk, component: Component, pairs: bool, last: int | None = None) -> None:
        self.walk, self.component, self.pairs, self.last = walk, component, pairs, last
        self.order = sorted(range(len(walk.slab_axes)), key=lambda i: (i == last, i))
        ends = [] if last is None else [walk.space.features[a] for a in walk.slab_axes[last].coefficient_axes]
        self.folded = pairs and walk.on_host and len(ends) == 1 and ends[0].cells == 1
        lengths: list[int] = []
        for i in self.order:
            axis = walk.slab_axes[i]
            if axis.is_batch:
                lengths.append(walk.lengths[i] if axis.group in component else 1)
            elif i == last and self.folded:
                lengths += [1, math.comb(ends[0].size + 1, 2)]
            elif axis.group in component:
                for a in axis.coefficient_axes:
                    lengths += [walk.ranges[a].extent, walk.space.features[a].support.depth(pairs)]
        self.total = walk.xp.zeros(tuple(lengths), dtype=walk.xp.float64, device=walk.device)

    def add(self, slab: Array, box: SlabBox) -> None:
        """Contract a slab and add it to the coefficients of its rows and batch members.

        Where there is a `last` axis, the slab is contracted along it already: its coefficients are the last axis.
        """
        walk, component, target = self.walk, self.component, None
        rows: list[Rows | None] = []
        places: list[slice] = []
        lengths: list[int] = []  # entries of the total for each slab axis
        for i in self.order:
            axis, r, spans = walk.slab_axes[i], None, []
            if axis.is_batch:
                spans = [box.spans[i] if axis.group in component else slice(0, 1)]
            elif axis.group in component:
                r = walk.rows(i, box.rows[i])
                if self.pairs:
                    r = r.folded() if i == self.last and self.folded else r.paired()
                spans = r.spans
            rows.append(r)
            places += spans
            lengths.append(math.prod(span.stop - span.start for span in spans))
        part = self.total[tuple(places)]
        if self.last is not None:
            rows[-1] = None
            if isinstance(part, np.ndarray) and part.flags.c_contiguous:
                target = part.reshape(lengths)
        sums = contract(slab, rows, walk.engine, target)
        if target is None:
            self.total[tuple(places)] += walk.xp.reshape(sums, part.shape)

    def finish(self) -> Floats:
        """The total on the host: [k.., o.., b..] for pairs, [k.., b..] else."""
        walk, total = self.walk, to_host(self.total)
        position, functions, batch = 0, {}, {}
        for axis in (walk.slab_axes[i] for i in self.order):
            if axis.is_batch:
                batch[walk.layout.batch_axes.index(axis.axes[0])] = position
                position += 1
            elif axis.group in self.component:
                for a in axis.coefficient_axes:
                    features, length = walk.space.features[a], walk.ranges[a].length
                    total = roll_up(total, features, length, position, position + 1, self.pairs)
                    functions[a] = position
                    position += 2
        firsts = [functions[a] for a in sorted(functions)]
        order = [*firsts, *(first + 1 for first in firsts), *(batch[b] for b in sorted(batch))]
        if self.folded:
            return _unfolded(total, order)
        out, ndim = np.transpose(total, order), len(firsts)
        if not self.pairs:
            out = out.reshape(out.shape[:ndim] + out.shape[2 * ndim :])
        return np.asarray(out, order="C")


def _unfolded(total: Floats, order: Sequence[int]) -> Floats:
    """The axes of a total in this order, where the pairs of the last two, [1, K (K + 1) / 2], are [K, K]: (a, o)."""
    size = math.isqrt(2 * total.shape[-1])
    shape = (*total.shape[:-2], size, size)
    out, begin = np.zeros([shape[i] for i in order]), 0
    stored = np.transpose(out, np.argsort(order))
    for a in range(size):
        stored[..., a, : size - a] = total[..., 0, begin : begin + size - a]
        begin += size - a
    return out


class SumsByCell:
    """Sums over a component that holds one group, whose rows are sorted by cell, and perhaps batch dimensions."""

    def __init__(self, walk: Walk, component: Component, cells: Cells | Tiles, index: int) -> None:
        self.walk, self.component, self.cells, self.index = walk, component, cells, index
        # Other groups are outside the component: of length one.
        axes = list(zip(walk.slab_axes, walk.lengths, strict=True))
        self.lengths = [n if axis.group in component else 1 for axis, n in axes]
        self.batch = [n for (axis, _), n in zip(axes, self.lengths, strict=True) if axis.is_batch]
        self.members = math.prod(self.batch)

    @staticmethod
    def of(walk: Walk, component: Component) -> SumsByCell | None:
        """Return the sums of a component, or None where it is not of this kind."""
        axes = enumerate(walk.slab_axes)
        chosen = [i for i, axis in axes if axis.group in component and not axis.is_batch]
        cells = walk.cells(chosen[0]) if len(chosen) == 1 else None
        if cells is None:
            return None
        sums = SumsByCell(walk, component, cells, chosen[0])
        return sums if sums.members <= 16 else None  # more go slab by slab

    def sums(self, reference: float, moment: bool, pairs: bool) -> tuple[Floats, Floats]:
        """Moment [k.., b..] and pairs [k.., o.., b..] of a whole block; empty where they are not wanted."""
        walk, xp = self.walk, self.walk.xp
        numbers, members = range(len(walk.block.weights)), self.members
        totals = self._totals(members * moment, members * pairs)
        for first, rows in self.cells.slabs(members):
            e = self._values(rows)
            e -= reference
            finite, weight = xp.isfinite(e), self._weights(rows, numbers)
            if not (walk.on_host and finite.all()):  # a device would have to be waited for
                e = xp.where(finite, e, xp.zeros_like(e))
            if weight is None:
                w = native(finite, xp, MEMORY[0])
            else:
                lengths = [*self.lengths[: self.index], int(rows.shape[0]), *self.lengths[self.index + 1 :]]
                weight = self._members(xp.broadcast_to(weight, tuple(lengths)))
                w = xp.where(finite, weight, xp.zeros_like(weight))
                e = w * e
            totals.add(first, rows, w[: members * pairs, :], e[: members * moment, :])
        h, whole = totals.finish()
        return self._finish(h, pairs=False), self._finish(whole, pairs=True)

    def pairs_of(self, mask: Bools, numbers: Sequence[int]) -> Floats:
        """Pairs [k.., o.., b..] of a component: its mask, one axis per slab axis, and the weights it spans."""
        xp, totals = self.walk.xp, self._totals(0, self.members)
        inside = to_namespace(mask, xp, self.walk.device)
        for first, rows in self.cells.slabs(self.members):
            w = xp.astype(xp.take(inside, rows, axis=self.index), xp.float64)
            weight = self._weights(rows, numbers)
            if weight is not None:
                w = xp.where(w > 0, w * weight, xp.zeros_like(w * weight))
            w = self._members(w)
            totals.add(first, rows, w, w[:0, :])
        return self._finish(totals.finish()[1], pairs=True)

    # Slabs of rows: [batch members, rows]

    @cached_property
    def _stored(self) -> Array:
        """The values as they are stored, with the axes of slabs."""
        return self.walk.xp.reshape(self.walk.ordered, tuple(self.lengths))

    def _members(self, array: Array) -> Array:
        """The axes of slabs to [members, rows]."""
        xp, order = self.walk.xp, [i for i in range(array.ndim) if i != self.index]
        moved = xp.permute_dims(array, (*order, self.index))
        moved = xp.reshape(moved, (-1, moved.shape[-1]))
        return np.ascontiguousarray(moved) if isinstance(moved, np.ndarray) else moved

    def _values(self, rows: Array) -> Array:
        walk, xp = self.walk, self.walk.xp
        if isinstance(self.cells, Cells) and walk.ordered.ndim == 1:  # the compiled way
            out = MEMORY[1].take((1, rows.size))
            take(walk.ordered, rows, out[0])
            return out
        return self._members(native(xp.take(self._stored, rows, axis=self.index), xp))

    def _weights(self, rows: Array, numbers: Sequence[int]) -> Array | None:
        """Product of some weights, zero where one is bad, with the axes of slabs: of extent 1 where it may be."""
        walk, xp, total = self.walk, self.walk.xp, None
        for number in numbers:
            slab = walk.weights[number]
            slab = xp.take(slab, rows, axis=self.index) if slab.shape[self.index] > 1 else slab
            slab = native(slab, xp)
            slab = xp.where(xp.logical_and(xp.isfinite(slab), slab >= 0), slab, xp.zeros_like(slab))
            total = slab if total is None else total * slab
        return total

    def _totals(self, moments: int, pairs: int) -> CellTotals | TileTotals:
        axes = self.walk.slab_axes[self.index].coefficient_axes
        return self.cells.totals([self.walk.ranges[axis] for axis in axes], moments, pairs)

    def _finish(self, total: Floats, pairs: bool) -> Floats:
        """[members, coefficients, offsets] to [k.., o.., b..], axes in the order of the space."""
        walk = self.walk
        axes = walk.slab_axes[self.index].coefficient_axes
        if not total.shape[0]:
            return np.zeros(0)
        features, ranges, count = self.cells.features, [walk.ranges[axis] for axis in axes], len(axes)
        total = total.reshape(-1, *(r.extent for r in ranges), *(f.support.depth(pairs) for f in features))
        for i, (f, r) in enumerate(zip(features, ranges, strict=True)):
            total = roll_up(total, f, r.length, 1 + i, 1 + count + i, pairs)
        if not pairs:
            total = total.reshape(total.shape[: 1 + count])
        order = np.argsort(axes)
        moved = [1 + i for i in order] + [1 + count + i for i in order if pairs]
        total = np.transpose(total, (*moved, 0)).reshape(*(total.shape[i] for i in moved), *self.batch)
        # Batch dimensions come in the order of the data, batch axes in that of the layout.
        stored = [axis.axes[0] for axis in walk.slab_axes if axis.is_batch]
        batch = [stored.index(axis) for axis in walk.layout.batch_axes]
        ndim = len(moved)
        return np.ascontiguousarray(np.transpose(total, (*range(ndim), *(ndim + i for i in batch))))
