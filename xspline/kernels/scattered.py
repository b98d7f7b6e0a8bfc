"""Sums of a group with several coefficient axes, cell by cell: slabs of rows sorted by cell.

`walk.Accumulator` contracts slabs in the order of the data. Where cells hold several rows, as those of
scattered observations, stations or curvilinear grids do, it is faster to go from cell to cell. Which way is
taken depends on shapes alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from .arrays import native
from .cells import Cells, CellSums
from .layout import Array, Bools, Floats, Integers
from .mask import Sites
from .walk import Walk, roll_up

MEMBERS = 16  # batch members that share a pass over the rows
ENTRIES = 1 << 13  # of a slab of sorted rows


class Scattered:
    """Sums over a component of a block that holds one group, which has cells, and perhaps batch dimensions."""

    def __init__(self, walk: Walk, sites: Sites, cells: Cells, index: int) -> None:
        self.walk, self.sites, self.cells, self.index = walk, sites, cells, index
        self.part = walk.parts[index]
        self.lengths = [
            n if part.site in sites else 1 for part, n in zip(walk.parts, walk.lengths, strict=True)
        ]
        # Other groups are outside the component: of length one.
        self.batch = [n for part, n in zip(walk.parts, self.lengths, strict=True) if part.is_batch]
        self.members = math.prod(self.batch)

    @staticmethod
    def of(walk: Walk, sites: Sites) -> Scattered | None:
        """None unless the component is of this kind."""
        chosen = [i for i, part in enumerate(walk.parts) if part.site in sites and not part.is_batch]
        cells = walk.cells(chosen[0]) if len(chosen) == 1 else None
        found = None if cells is None else Scattered(walk, sites, cells, chosen[0])
        return found if found is not None and found.members <= MEMBERS else None

    # Slabs of rows: [batch members, rows]

    def _slabs(self) -> Iterator[tuple[int, Integers]]:
        return self.cells.slabs(max(1, ENTRIES // max(1, self.members)))

    def _index(self, rows: Integers, axes: Sequence[int]) -> tuple[Integers | slice, ...]:
        """How some rows are taken from an array over these axes of the values."""
        mine, shape = self.part.axes, self.walk.shape
        places = (rows,) if len(mine) == 1 else np.unravel_index(rows, [shape[axis] for axis in mine])
        at = dict(zip(mine, places, strict=True))
        return tuple(at.get(axis, slice(None)) for axis in axes)

    def _members(self, array: Floats) -> Floats:
        """One axis per part to [members, rows]."""
        moved = np.moveaxis(array, self.index, -1)
        return np.ascontiguousarray(moved).reshape(-1, moved.shape[-1])

    def _values(self, rows: Integers) -> Floats:
        slab = self.walk.ordered[self._index(rows, self.walk.axis_order)]
        return self._members(native(slab, np).reshape(self._shape(rows)))

    def _shape(self, rows: Integers) -> list[int]:
        return [rows.size if i == self.index else n for i, n in enumerate(self.lengths)]

    def _weights(self, rows: Integers, numbers: Sequence[int]) -> Array:
        """Product of some weights, zero where one is bad; one for each part, of extent 1 where it may be."""
        total: Array = 1.0
        for number in numbers:
            axes, array = self.walk.block.weights[number]
            order = sorted(range(len(axes)), key=lambda i: self.walk.axis_order.index(axes[i]))
            ordered = tuple(axes[i] for i in order)
            slab = native(np.transpose(array, order)[self._index(rows, ordered)], np)
            lengths = zip(self.walk.parts, self._shape(rows), strict=True)
            slab = slab.reshape([n if set(part.axes) & set(axes) else 1 for part, n in lengths])
            total = total * np.where(np.isfinite(slab) & (slab >= 0), slab, 0.0)
        return total

    # Sums

    def _sums(self, moments: int, pairs: int) -> CellSums:
        reaches = [self.walk.reaches[axis] for axis in self.part.coefficient_axes]
        return CellSums(self.cells, reaches, moments, pairs)

    def sums(self, reference: float, moment: bool, pairs: bool) -> tuple[Floats, Floats]:
        """Moment [k.., b..] and pairs [k.., o.., b..] of a whole block; empty where they are not wanted."""
        out = self._sums(self.members * moment, self.members * pairs)
        numbers = range(len(self.walk.block.weights))
        for first, rows in self._slabs():
            e = self._values(rows) - reference
            finite, weight = np.isfinite(e), self._weights(rows, numbers)
            if len(numbers):
                weight = self._members(np.broadcast_to(weight, self._shape(rows)))
            w = np.where(finite, weight, 0.0)
            e = w * np.where(finite, e, 0.0)
            out.add(first, rows, w[: out.pairs.shape[0]], e[: out.moment.shape[0]])
        return self._finish(out.moment, out.extents, ()), self._finish(out.pairs, out.extents, out.offsets)

    def pairs_of(self, mask: Bools, numbers: Sequence[int]) -> Floats:
        """Pairs [k.., o.., b..] of a component: its mask, one axis per part, and the weights it spans."""
        out = self._sums(0, self.members)
        for first, rows in self._slabs():
            inside = np.take(mask, rows, axis=self.index)
            w = self._members(np.where(inside, self._weights(rows, numbers), 0.0))
            out.add(first, rows, w, np.empty((0, rows.size)))
        return self._finish(out.pairs, out.extents, out.offsets)

    def _finish(self, total: Floats, extents: Sequence[int], offsets: Sequence[int]) -> Floats:
        """[members, stretch (, offsets)] to [k.., o.., b..], axes in the order of the space."""
        axes, walk = self.part.coefficient_axes, self.walk
        if not total.shape[0]:
            return np.zeros(0)
        total = total.reshape(-1, *extents, *offsets)
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
