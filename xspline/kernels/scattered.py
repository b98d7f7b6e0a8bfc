"""Sums of a group with several coefficient axes, cell by cell: slabs of rows sorted by cell.

`walk.Accumulator` contracts slabs in the order of the data. Where cells hold several rows, as those of
scattered observations, stations or curvilinear grids do, it is faster to go from cell to cell. Which way is
taken depends on shapes alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from .arrays import native, to_namespace
from .cells import Cells, CellSums
from .layout import Array, Bools, Floats, Integers
from .mask import Sites
from .tiles import Tiles, TileSums
from .walk import Walk, roll_up

MEMBERS = 16  # batch members that share a pass over the rows


class Scattered:
    """Sums over a component of a block that holds one group, which has cells, and perhaps batch dimensions."""

    def __init__(self, walk: Walk, sites: Sites, cells: Cells | Tiles, index: int) -> None:
        self.walk, self.sites, self.cells, self.index = walk, sites, cells, index
        self.part = walk.parts[index]
        self.lengths = [
            n if part.site in sites else 1 for part, n in zip(walk.parts, walk.lengths, strict=True)
        ]
        # Other groups are outside the component: of length one.
        self.batch = [n for part, n in zip(walk.parts, self.lengths, strict=True) if part.is_batch]
        self.members = math.prod(self.batch)
        self._kept: dict[int, Array] = {}

    @staticmethod
    def of(walk: Walk, sites: Sites) -> Scattered | None:
        """None unless the component is of this kind."""
        chosen = [i for i, part in enumerate(walk.parts) if part.site in sites and not part.is_batch]
        cells = walk.cells(chosen[0]) if len(chosen) == 1 else None
        found = None if cells is None else Scattered(walk, sites, cells, chosen[0])
        return found if found is not None and found.members <= MEMBERS else None

    # Slabs of rows: [batch members, rows]

    def _index(self, rows: Integers, axes: Sequence[int]) -> tuple[Integers | slice, ...]:
        """How some rows are taken from an array over these axes of the values."""
        mine, shape = self.part.axes, self.walk.shape
        places = (rows,) if len(mine) == 1 else np.unravel_index(rows, [shape[axis] for axis in mine])
        at = dict(zip(mine, places, strict=True))
        return tuple(at.get(axis, slice(None)) for axis in axes)

    @cached_property
    def _merged(self) -> Array:
        """The values on a device, one axis per part."""
        return self.walk.xp.reshape(self.walk.ordered, tuple(self.lengths))

    def _values(self, rows: Array) -> Array:
        walk, xp = self.walk, self.walk.xp
        if isinstance(walk.block.values, np.ndarray):  # no copy of a block whose axes are not in order
            slab = walk.ordered[self._index(rows, walk.axis_order)]
        else:
            slab = xp.take(self._merged, rows, axis=self.index)
        return self._members(xp.reshape(native(slab, xp), self._shape(rows)))

    def _members(self, array: Array) -> Array:
        """One axis per part to [members, rows]."""
        xp, order = self.walk.xp, [i for i in range(array.ndim) if i != self.index]
        moved = xp.permute_dims(array, (*order, self.index))
        moved = xp.reshape(moved, (-1, moved.shape[-1]))
        return np.ascontiguousarray(moved) if isinstance(moved, np.ndarray) else moved

    def _shape(self, rows: Array) -> tuple[int, ...]:
        return tuple(int(rows.shape[0]) if i == self.index else n for i, n in enumerate(self.lengths))

    def _weights(self, rows: Array, numbers: Sequence[int]) -> Array | None:
        """Product of some weights, zero where one is bad; one for each part, of extent 1 where it may be."""
        xp, total = self.walk.xp, None
        for number in numbers:
            slab = self._weight(rows, number)
            slab = xp.where(xp.logical_and(xp.isfinite(slab), slab >= 0), slab, xp.zeros_like(slab))
            total = slab if total is None else total * slab
        return total

    def _weight(self, rows: Array, number: int) -> Array:
        (axes, array), walk = self.walk.block.weights[number], self.walk
        if not isinstance(walk.block.values, np.ndarray):
            whole = self._whole_weight(number)
            return walk.xp.take(whole, rows, axis=self.index) if whole.shape[self.index] > 1 else whole
        order = sorted(range(len(axes)), key=lambda i: walk.axis_order.index(axes[i]))
        ordered = tuple(axes[i] for i in order)
        slab = native(np.transpose(array, order)[self._index(rows, ordered)], np)
        lengths = zip(walk.parts, self._shape(rows), strict=True)
        return slab.reshape([n if set(part.axes) & set(axes) else 1 for part, n in lengths])

    def _whole_weight(self, number: int) -> Array:
        """A weight on a device, one axis per part; kept."""
        if number not in self._kept:
            (everything,) = self.walk.whole_piece(self.sites)
            self._kept[number] = self.walk.weight_of(number, everything)
        return self._kept[number]

    # Sums

    def sums(self, reference: float, moment: bool, pairs: bool) -> tuple[Floats, Floats]:
        """Moment [k.., b..] and pairs [k.., o.., b..] of a whole block; empty where they are not wanted."""
        xp, out = self.walk.xp, self._sums(self.members * moment, self.members * pairs)
        for first, rows in self.cells.slabs(self.members):
            e = self._values(rows) - reference
            finite, weight = xp.isfinite(e), self._weights(rows, range(len(self.walk.block.weights)))
            if weight is None:
                w = xp.astype(finite, xp.float64)
            else:
                weight = self._members(xp.broadcast_to(weight, self._shape(rows)))
                w = xp.where(finite, weight, xp.zeros_like(weight))
            e = w * xp.where(finite, e, xp.zeros_like(e))
            out.add(first, rows, w[: self.members * pairs, :], e[: self.members * moment, :])
        return self._finish(out.moment, out, ()), self._finish(out.pairs, out, out.offsets)

    def pairs_of(self, mask: Bools, numbers: Sequence[int]) -> Floats:
        """Pairs [k.., o.., b..] of a component: its mask, one axis per part, and the weights it spans."""
        xp, out = self.walk.xp, self._sums(0, self.members)
        inside = to_namespace(mask, xp, self.walk.device)
        for first, rows in self.cells.slabs(self.members):
            w = xp.astype(xp.take(inside, rows, axis=self.index), xp.float64)
            weight = self._weights(rows, numbers)
            if weight is not None:
                w = xp.where(w > 0, w * weight, xp.zeros_like(w * weight))
            w = self._members(w)
            out.add(first, rows, w, w[:0, :])
        return self._finish(out.pairs, out, out.offsets)

    def _sums(self, moments: int, pairs: int) -> CellSums | TileSums:
        return self.cells.sums(
            [self.walk.reaches[axis] for axis in self.part.coefficient_axes], moments, pairs
        )

    def _finish(self, total: Floats, sums: CellSums | TileSums, offsets: Sequence[int]) -> Floats:
        """[members, stretch (, offsets)] to [k.., o.., b..], axes in the order of the space."""
        axes, walk = self.part.coefficient_axes, self.walk
        if not total.shape[0]:
            return np.zeros(0)
        total = total.reshape(-1, *sums.extents, *offsets)
        for number, axis in enumerate(axes):
            total = roll_up(total, 1 + number, walk.reaches[axis].length)
        order = np.argsort(axes)
        moved = [1 + i for i in order] + [1 + len(axes) + i for i in order[: len(offsets)]]
        total = np.transpose(total, (*moved, 0)).reshape(*(total.shape[i] for i in moved), *self.batch)
        # Batch parts come in the order of the data, batch axes in that of the layout.
        parts = [part.axes[0] for part in walk.parts if part.is_batch]
        batch = [parts.index(axis) for axis in walk.layout.batch_axes]
        ndim = len(moved)
        return np.ascontiguousarray(np.transpose(total, (*range(ndim), *(ndim + i for i in batch))))
