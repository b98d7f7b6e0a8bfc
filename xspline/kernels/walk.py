"""The walk over a block: slabs of float64 values and weights, one axis per group, and the rows of each group.

Nothing here is as large as the block: a slab is read, cast, used and forgotten.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import array_api_compat
import numpy as np

from .arrays import native, to_host, to_namespace
from .cells import Cells, fits, labelled
from .contract import Engine, contract
from .layout import Array, Block, Bools, Floats, Layout, Part, Piece, parts_of, pieces
from .rows import Reach, Rows, build_rows, touched_cells
from .tiles import Tiles

if TYPE_CHECKING:
    from xspline.spaces import Space

SLAB = 1 << 17  # entries of a slab: 1 MiB of float64, which caches hold
DEVICE_SLAB = 1 << 25  # on a device a slab pays for its launches
ROWS = 1 << 15  # rows of one group in a slab: bounds the tables of features


def slab_entries(array: Array) -> int:
    """Entries of a slab of this array."""
    return SLAB if isinstance(array, np.ndarray) else DEVICE_SLAB


@dataclass(frozen=True, eq=False)
class Walk:
    """A block, its layout and space, and how its slabs are cut."""

    block: Block
    layout: Layout
    space: Space
    engine: Engine
    limit: int
    _rows: dict[int, dict[tuple[int, int], Rows]] = field(default_factory=dict)
    _cells: dict[int, Cells | Tiles | None] = field(default_factory=dict)
    _labels: dict[int, Floats] = field(default_factory=dict)

    @cached_property
    def xp(self) -> Any:
        """Array namespace of the values."""
        return array_api_compat.array_namespace(self.block.values)

    @cached_property
    def device(self) -> Any:
        return array_api_compat.device(self.block.values)

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The axes of a slab."""
        return parts_of(self.layout)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Shape of the values."""
        return tuple(self.block.values.shape)

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """Rows of each part in the whole block."""
        return tuple(part.rows(self.shape) for part in self.parts)

    @cached_property
    def sites(self) -> frozenset[int]:
        return frozenset(part.site for part in self.parts)

    @cached_property
    def start(self) -> tuple[int, ...]:
        """Index of the first value in the whole data."""
        return self.block.start or (0,) * len(self.shape)

    @cached_property
    def reaches(self) -> tuple[Reach, ...]:
        """What the coordinates touch, per coefficient axis."""
        return tuple(
            Reach.of(features, self._touched(axis)) for axis, features in enumerate(self.space.features)
        )

    def _touched(self, axis: int) -> Bools:
        """Cells of a coefficient axis that hold positions."""
        index = next(i for i, part in enumerate(self.parts) if axis in part.coefficient_axes)
        cells = self.cells(index)
        if cells is not None and cells.all_inside:  # none is outside along another axis
            return cells.touched(self.parts[index].coefficient_axes.index(axis))
        return touched_cells(self.space.features[axis], self.coordinates_of(axis), self.engine)

    def cells(self, index: int) -> Cells | Tiles | None:
        """The rows of a part by cell, where sums go from cell to cell."""
        if index not in self._cells:
            axes = self.parts[index].coefficient_axes
            features, labels = [self.space.features[a] for a in axes], map(self._positions_of, axes)
            self._cells[index] = self.engine.sort(features, tuple(labels)) if fits(features) else None
        return self._cells[index]

    def inside(self, index: int, span: tuple[int, int]) -> Array:
        """Rows of a part that are inside all its domains; on the host or beside the values."""
        cells = self.cells(index)
        return self.rows(index, span).inside if cells is None else cells.inside(span)

    def labelled(self, index: int, span: tuple[int, int]) -> Array:
        """Rows of a part all of whose coordinates are numbers; on the host or beside the values."""
        cells = self.cells(index)
        if cells is not None:
            return cells.labelled(span)
        return labelled([self.coordinates_of(axis) for axis in self.parts[index].coefficient_axes], span)

    @cached_property
    def axis_order(self) -> tuple[int, ...]:
        """Axes of the values in the order of the parts: those of a group side by side."""
        return tuple(axis for part in self.parts for axis in part.axes)

    def pieces(self, sites: frozenset[int] | None = None) -> Iterator[Piece]:
        """Places of the slabs; with `sites`, of an array that has extent 1 along all other sites."""
        return pieces(self._lengths(self.sites if sites is None else sites), self.parts, self.limit, ROWS)

    def _lengths(self, sites: frozenset[int]) -> tuple[int, ...]:
        inside = {axis for part in self.parts if part.site in sites for axis in part.axes}
        return tuple(length if axis in inside else 1 for axis, length in enumerate(self.shape))

    def whole_piece(self, sites: frozenset[int]) -> Iterator[Piece]:
        """The one place of an array that has extent 1 along all but some sites."""
        lengths = self._lengths(sites)
        return pieces(lengths, self.parts, max(1, math.prod(lengths)), max(1, math.prod(lengths)))

    def values(self, piece: Piece) -> Array:
        """A slab of the values in float64, one axis per part."""
        slab = self.ordered[tuple(piece.slices[axis] for axis in self.axis_order)]
        return self.xp.reshape(native(slab, self.xp), tuple(count for _, count in piece.rows))

    @cached_property
    def ordered(self) -> Array:
        """The values, axes in the order of the parts."""
        values = self.block.values
        if isinstance(values, np.ndarray):  # array_api_compat would drop the mask of a masked array
            return values.transpose(self.axis_order)
        return self.xp.permute_dims(values, self.axis_order)

    # Weights

    @cached_property
    def weight_sites(self) -> tuple[frozenset[int], ...]:
        """The sites that each weight spans; one without axes belongs to the first."""
        return tuple(
            frozenset(part.site for part in self.parts if set(part.axes) & set(axes))
            or frozenset((min(self.sites),))
            for axes, _ in self.block.weights
        )

    def weight_of(self, number: int, piece: Piece) -> Array:
        """One weight on a slab, in float64: extent 1 along parts that it does not span."""
        axes, array = self.block.weights[number]
        order = sorted(range(len(axes)), key=lambda i: self.axis_order.index(axes[i]))
        xp = array_api_compat.array_namespace(array)
        array = xp.permute_dims(array, tuple(order))[tuple(piece.slices[axes[i]] for i in order)]
        array = to_namespace(native(array, xp), self.xp, self.device)
        lengths = {axis: piece.slices[axis].stop - piece.slices[axis].start for axis in self.axis_order}
        lifted = tuple(lengths[axis] if axis in axes else 1 for axis in self.axis_order)
        spread = tuple(
            lengths[axis] if set(part.axes) & set(axes) else 1 for part in self.parts for axis in part.axes
        )
        merged = tuple(
            math.prod(lengths[a] for a in part.axes) if set(part.axes) & set(axes) else 1
            for part in self.parts
        )
        array = self.xp.reshape(array, lifted)
        return self.xp.reshape(self.xp.broadcast_to(array, spread) if spread != lifted else array, merged)

    # Rows

    def rows(self, index: int, span: tuple[int, int]) -> Rows:
        """Features of a range of rows of a part; of one with many rows the last range is remembered, else all."""
        kept = self._rows.setdefault(index, {})
        if span not in kept:
            if self.lengths[index] > ROWS:
                kept.clear()
            kept[span] = self._build(self.parts[index], span)
        return kept[span]

    def _build(self, part: Part, span: tuple[int, int]) -> Rows:
        axes, (first, count) = part.coefficient_axes, span
        return build_rows(
            [self.space.features[axis] for axis in axes],
            [self.coordinates_of(axis)[first : first + count] for axis in axes],
            [self.reaches[axis] for axis in axes],
            [0] * len(axes),
            self.engine,
            count=count,
        )

    def coordinates_of(self, axis: int) -> Floats:
        """Coordinate of a coefficient axis, one number per row of its group, on the host."""
        if axis not in self._labels:  # kept: it may come from a device
            labels = to_host(self.block.coordinates[axis])
            self._labels[axis] = np.asarray(labels, dtype=np.float64).reshape(-1)
        return self._labels[axis]

    def _positions_of(self, axis: int) -> Array:
        """The same where the values are."""
        given = self.block.coordinates[axis]
        if isinstance(given, np.ndarray) or isinstance(self.block.values, np.ndarray):
            return to_namespace(self.coordinates_of(axis), self.xp, self.device)
        return self.xp.reshape(given, (-1,))

    def slab_rows(self, piece: Piece, sites: frozenset[int]) -> list[Rows | None]:
        """Rows of each part on a slab; None for batch dimensions and parts of other sites."""
        return [
            None if part.is_batch or part.site not in sites else self.rows(i, span)
            for i, (part, span) in enumerate(zip(self.parts, piece.rows, strict=True))
        ]


class Accumulator:
    """Sum of contracted slabs, in the order of the parts, unrolled; tidied once, at the end.

    Parameters
    ----------
    walk : Walk
    sites : frozenset of int
        The component: other parts have extent 1 and vanish, except batch axes.
    pairs : bool
        Pairs (G) or moments (h).
    last : int, optional
        The part whose axes are the last of the total, as they are of what `add_lines` takes.
    """

    def __init__(self, walk: Walk, sites: frozenset[int], pairs: bool, last: int | None = None) -> None:
        self.walk, self.sites, self.pairs = walk, sites, pairs
        self.order = sorted(range(len(walk.parts)), key=lambda i: (i == last, i))
        lengths = [length for _, lengths in self._axes() for length in lengths]
        self.total = walk.xp.zeros(tuple(lengths), dtype=walk.xp.float64, device=walk.device)

    def _axes(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """(part, extents of the axes that it has in the total)."""
        walk = self.walk
        for i in self.order:
            part = walk.parts[i]
            if part.is_batch:
                yield i, (walk.lengths[i] if part.site in self.sites else 1,)
            elif part.site in self.sites:
                for axis in part.coefficient_axes:
                    offsets = walk.space.features[axis].offsets if self.pairs else 1
                    yield i, (walk.reaches[axis].extent, offsets)

    def add(self, slab: Array, piece: Piece) -> None:
        """Contract a slab and add it to the stretch that its rows and batch members say."""
        rows = self._rows(piece)
        slab = contract(slab, rows, self.walk.engine)
        place, _ = self._place(rows, piece)
        self.total[place] += self.walk.xp.reshape(slab, self.total[place].shape)

    def add_lines(self, lines: Array, piece: Piece) -> None:
        """Add what is contracted along the last part already: its axis is the last of `lines`."""
        rows = self._rows(piece)
        place, shape = self._place(rows, piece)
        others, part = [*(rows[i] for i in self.order[:-1]), None], self.total[place]
        if isinstance(part, np.ndarray) and part.flags.c_contiguous:
            contract(lines, others, self.walk.engine, part.reshape(shape))
        else:
            found = contract(lines, others, self.walk.engine)
            self.total[place] += self.walk.xp.reshape(found, part.shape)

    def _rows(self, piece: Piece) -> list[Rows | None]:
        rows = self.walk.slab_rows(piece, self.sites)
        return [r.paired() if r is not None and self.pairs else r for r in rows]

    def _place(self, rows: Sequence[Rows | None], piece: Piece) -> tuple[tuple[slice, ...], tuple[int, ...]]:
        """Where rows and batch members go in the total, and how many entries that is for each part."""
        spans: list[slice] = []
        lengths: list[int] = []
        for i in self.order:
            part, r, before = self.walk.parts[i], rows[i], len(spans)
            if part.is_batch:
                spans.append(piece.spans[i] if part.site in self.sites else slice(0, 1))
            elif r is not None:
                for low, (extent, offsets) in zip(r.low, r.shape, strict=True):
                    spans += [slice(low, low + extent), slice(0, offsets)]
            lengths.append(math.prod(span.stop - span.start for span in spans[before:]))
        return tuple(spans), tuple(lengths)

    @property
    def coefficient_axes(self) -> tuple[int, ...]:
        """Coefficient axes of the component, ascending."""
        return tuple(
            sorted(
                axis for part in self.walk.parts if part.site in self.sites for axis in part.coefficient_axes
            )
        )

    def finish(self) -> Floats:
        """The total on the host: [k.., o.., b..] for pairs, [k.., b..] else."""
        walk, total = self.walk, to_host(self.total)
        parts = [walk.parts[i] for i in self.order]
        chosen = [part for part in parts if part.is_batch or part.site in self.sites]
        position, functions, offsets, batch = 0, {}, {}, {}
        for part in chosen:
            if part.is_batch:
                batch[walk.layout.batch_axes.index(part.axes[0])] = position
                position += 1
            for axis in part.coefficient_axes:
                total = roll_up(total, position, walk.reaches[axis].length)
                functions[axis], offsets[axis] = position, position + 1
                position += 2
        axes = self.coefficient_axes
        order = [functions[a] for a in axes] + [offsets[a] for a in axes] + [batch[b] for b in sorted(batch)]
        out = np.transpose(total, order)
        if not self.pairs:
            out = out.reshape(out.shape[: len(axes)] + out.shape[2 * len(axes) :])
        return np.asarray(out, order="C")


def roll_up(array: Floats, position: int, length: int) -> Floats:
    """Add the overhang of a full circle to its beginning."""
    before = (slice(None),) * position
    tail = array[(*before, slice(length, None))]
    if not tail.shape[position]:
        return array
    out = array[(*before, slice(length))].copy()
    # A circle shorter than its overhang would have to be added more than once around; such bases are global.
    out[(*before, slice(tail.shape[position]))] += tail
    return out
