"""Sums of a group with several coefficient axes in any array namespace: batched products of tiles of one cell.

The twin of `cells` for devices. Rows are located, sorted by cell and cut into tiles of equally many rows of
one cell; the sums of products of columns of a tile are one matrix product, and all tiles of a slab are one
batch. Nothing here loops over rows or cells.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from xspline.spaces.bspline import LocalSpline

from .arrays import clipped, to_host
from .cells import BOX, ByCell, cell_range, columns_of, given_columns
from .layout import Array, Floats, Integers
from .positions import locate
from .rows import Reach, base_of_cells

if TYPE_CHECKING:
    from xspline.spaces.features import Features

TILES = 8, 4096  # rows of a tile: at least, at most
KEPT = 1 << 28  # entries of the sums of all cells
ENTRIES = 1 << 26  # of a slab's products of columns, and of the sums that are folded at a time


@dataclass(frozen=True, eq=False)
class Tiles(ByCell):
    """The rows of a group in the order of their cells, on a device.

    Attributes
    ----------
    features : tuple of Features
        One per coefficient axis of the group.
    xp, device
        Where the rows are.
    keys : array, int64 [n]
        Number of the cell of each row; -1 outside the domains.
    known : array, bool [n]
        Rows all of whose coordinates are numbers.
    order : array, int64 [rows inside]
        Rows sorted by key.
    ends : ndarray, int64 [occupied]
        Number of sorted rows up to the end of each cell that holds rows.
    cells : ndarray, int64 [occupied, axes]
        These cells, along each axis.
    low, box : tuple of int
        Per axis the first cell that rows can be in, and how many cells there are from it on.
    given : tuple of arrays
        Per axis the local coordinate [1, n], or the columns [L, n] of a basis other than a B-spline.
    """

    features: tuple[Features, ...]
    xp: Any
    device: Any
    keys: Array
    known: Array
    order: Array
    ends: Integers
    cells: Integers
    low: tuple[int, ...]
    box: tuple[int, ...]
    given: tuple[Array, ...]

    @staticmethod
    def sort(
        features: Sequence[Features], coordinates: Sequence[Array], xp: Any, device: Any
    ) -> Tiles | None:
        """Cells of a group whose features fit; None where rows are too few for so many cells."""
        count, pairs = int(coordinates[0].shape[0]), list(zip(features, coordinates, strict=True))
        ranges = [cell_range(f, partial(_ends, x, xp)) for f, x in pairs] if count else []
        low, box = tuple(a for a, _ in ranges), tuple(b - a + 1 for a, b in ranges)
        if not count or math.prod(box) > BOX * count:
            return None
        keys, known = xp.zeros(count, dtype=xp.int64, device=device), True
        outside, given = xp.zeros(count, dtype=xp.bool, device=device), []
        for f, x, start, length in zip(features, coordinates, low, box, strict=True):
            cell, columns = _located(f, x, xp, device)
            keys = keys * length + (cell - start)
            known, outside = xp.logical_not(xp.isnan(x)) & known, xp.logical_or(outside, cell < 0)
            given.append(columns)
        keys = xp.where(outside, xp.full_like(keys, -1), keys)
        # Sorting goes by the bits of a key: half of them will do.
        order = xp.argsort(xp.astype(keys, xp.int32) if math.prod(box) < 1 << 31 else keys)
        borders = xp.arange(math.prod(box) + 1, dtype=xp.int64, device=device)
        ends = to_host(xp.searchsorted(xp.take(keys, order), borders)).astype(np.int64)
        occupied = np.flatnonzero(np.diff(ends))
        if not occupied.size or occupied.size * math.prod(columns_of(f).size for f in features) > KEPT:
            return None
        cells = np.stack(np.unravel_index(occupied, box), axis=1) + np.array(low)
        order, ends = order[int(ends[0]) :], ends[occupied + 1] - ends[0]
        return Tiles(tuple(features), xp, device, keys, known, order, ends, cells, low, box, tuple(given))

    def labelled(self, span: tuple[int, int]) -> Array:
        """Rows of a range all of whose coordinates are numbers."""
        return self.known[span[0] : span[0] + span[1]]

    def slabs(self, members: int) -> Iterator[tuple[int, Array]]:
        """(number of the first, rows) of consecutive sorted rows, for so many members."""
        each = math.prod(c.size for c in self.columns[1:]) + members * (self.columns[0].size + 2)
        rows, count = max(1, ENTRIES // each), int(self.order.shape[0])
        for first in range(0, count, rows):
            yield first, self.order[first : min(first + rows, count)]

    def sums(self, reaches: Sequence[Reach], moments: int, pairs: int) -> TileSums:
        """Empty sums of so many members each."""
        return TileSums(self, reaches, moments, pairs)


def _ends(x: Array, xp: Any) -> tuple[float, float]:
    """The least and the greatest of positions, NaN where all are missing."""
    known = xp.logical_not(xp.isnan(x))
    if not bool(xp.any(known)):
        return math.nan, math.nan
    below, above = (xp.where(known, x, xp.full_like(x, sign * math.inf)) for sign in (1, -1))
    return float(xp.min(below)), float(xp.max(above))


def _located(features: Features, x: Array, xp: Any, device: Any) -> tuple[Array, Array]:
    """Cell [n] of each row along an axis, and what its columns are made of: [1, n] or [L, n]."""
    if isinstance(features, LocalSpline):
        cell, z = locate(features, x, xp, device)
        return cell, xp.reshape(z, (1, -1))
    where, z = features.locate(to_host(x))
    columns = given_columns(features, where, z)
    return xp.asarray(where, device=device), xp.asarray(np.array(columns, order="C"), device=device)


class TileSums:
    """Moments and pairs of a group: sums of products of columns of each cell, folded at the end.

    Parameters
    ----------
    tiles : Tiles
    reaches : sequence of Reach
        One per axis.
    moments, pairs : int
        Members of each; 0 for none.
    """

    def __init__(self, tiles: Tiles, reaches: Sequence[Reach], moments: int, pairs: int) -> None:
        self.tiles, self.reaches, self.counts = tiles, tuple(reaches), (moments, pairs)
        self.extents = tuple(reach.extent for reach in reaches)
        self.offsets = tuple(f.offsets for f in tiles.features)
        self._sizes = tuple(f.width for f in tiles.features), tuple(c.size for c in tiles.columns)
        xp, occupied = tiles.xp, tiles.ends.size
        self._totals = [
            xp.zeros((occupied, count, *sizes), dtype=xp.float64, device=tiles.device)
            for count, sizes in zip(self.counts, self._sizes, strict=True)
        ]

    def add(self, first: int, rows: Array, weights: Array, errors: Array) -> None:
        """Add sorted rows from the `first` on: weights and weighted errors are [members, rows]."""
        xp, cut = self.tiles.xp, _Cut.of(first, int(rows.shape[0]), self.tiles.ends)
        step = xp.arange(cut.length, dtype=xp.int64, device=self.tiles.device)
        at = _asarray(cut.starts[:, None], self.tiles) + step[None, :]
        # The last rows of a cell fill their tile up with rows of others, of weight zero.
        inside = at < _asarray(cut.stops[:, None], self.tiles)
        at = xp.reshape(clipped(at, 0, int(rows.shape[0]) - 1, xp), (-1,))
        columns = [self._columns(axis, xp.take(rows, at), cut) for axis in range(len(self.offsets))]
        for total, array, sizes in zip(self._totals, (errors, weights), self._sizes, strict=True):
            members = int(total.shape[1])
            if members:
                taken = xp.reshape(xp.take(array[:members, :], at, axis=1), (members, *inside.shape))
                taken = xp.where(inside, taken, xp.zeros_like(taken))
                cut.add(self._products(taken, columns, sizes), total, xp, self.tiles)

    def _columns(self, axis: int, rows: Array, cut: _Cut) -> Array:
        """Columns of an axis: [tiles, L, rows of a tile]."""
        xp, about = self.tiles.xp, self.tiles.columns[axis]
        columns = xp.take(self.tiles.given[axis], rows, axis=1)
        columns = _legendre(columns, about.size, xp) if about.of_position else columns
        columns = xp.reshape(columns, (columns.shape[0], cut.starts.size, cut.length))
        return xp.permute_dims(columns, (1, 0, 2))

    def _products(self, array: Array, columns: Sequence[Array], sizes: Sequence[int]) -> Array:
        """Sums over the rows of each tile of products of columns: [tiles, members, columns..]."""
        xp, (members, tiles, length) = self.tiles.xp, array.shape
        front = xp.permute_dims(array, (1, 0, 2))[:, :, None, :] * columns[0][:, None, : sizes[0], :]
        rest = xp.ones((tiles, length, 1), dtype=xp.float64, device=self.tiles.device)
        for lines, size in zip(
            columns[1:], sizes[1:], strict=True
        ):  # as the product reads it: no copy turned
            turned = xp.matrix_transpose(lines[:, :size, :])
            rest = xp.reshape(rest[:, :, :, None] * turned[:, :, None, :], (tiles, length, -1))
        front = xp.reshape(front, (tiles, members * sizes[0], length))
        return xp.reshape(xp.matmul(front, rest), (tiles, members, *sizes))

    # Sums of cells become functions and pairs

    @property
    def moment(self) -> Floats:
        """[members, stretch]."""
        return self._folded(0, [c.functions for c in self.tiles.columns], pairs=False)

    @property
    def pairs(self) -> Floats:
        """[members, stretch, offsets]."""
        return self._folded(1, [c.pairs for c in self.tiles.columns], pairs=True)

    def _folded(self, which: int, tables: Sequence[Floats], *, pairs: bool) -> Floats:
        xp, members = self.tiles.xp, self.counts[which]
        offsets = self.offsets if pairs else (1,) * len(self.extents)
        matrices = [
            _fold(f, reach, table, range(low, low + count), pairs=pairs)
            for f, reach, table, low, count in zip(
                self.tiles.features, self.reaches, tables, self.tiles.low, self.tiles.box, strict=True
            )
        ]
        shape = (*(e * o for e, o in zip(self.extents, offsets, strict=True)), members)
        out = xp.zeros(shape, dtype=xp.float64, device=self.tiles.device)
        for matrix, box in self._boxes(which, matrices[0], int(tables[0].shape[1])):
            array = box
            for axis, fold in enumerate((matrix, *matrices[1:])):
                array = _apply(array, axis, _asarray(fold, self.tiles), xp)
            out = out + array
        split = [length for pair in zip(self.extents, offsets, strict=True) for length in pair]
        host = to_host(out).reshape(*split, members)
        axes = range(0, len(split), 2)
        host = np.transpose(host, (len(split), *axes, *(axis + 1 for axis in axes)))
        return host.reshape(members, math.prod(self.extents), *((math.prod(offsets),) if pairs else ()))

    def _boxes(self, which: int, matrix: Floats, size: int) -> Iterator[tuple[Floats, Array]]:
        """Cells of the first axis at a time: what folds them, and [cells · L, …, members], empty ones too."""
        xp, total, cells = self.tiles.xp, self._totals[which], self.tiles.cells
        lengths, start = self.tiles.box, np.array(self.tiles.low)
        each = math.prod(lengths[1:]) * math.prod(total.shape[1:])
        step = max(1, ENTRIES // max(each, 1))
        gap = xp.zeros((1, *total.shape[1:]), dtype=xp.float64, device=self.tiles.device)
        for low in range(0, lengths[0] if self.counts[which] else 0, step):
            high = min(low + step, lengths[0])
            first, last = np.searchsorted(cells[:, 0] - start[0], (low, high))
            shape = (high - low, *lengths[1:])
            places = np.full(math.prod(shape), last - first)
            inside = cells[first:last] - start - np.array([low] + [0] * (len(lengths) - 1))
            places[np.ravel_multi_index(tuple(inside.T), shape)] = np.arange(last - first)
            box = xp.take(
                xp.concat([total[int(first) : int(last), ...], gap]), _asarray(places, self.tiles), axis=0
            )
            yield matrix[:, low * size : high * size], _interleaved(box, shape, xp)


def _interleaved(box: Array, shape: Sequence[int], xp: Any) -> Array:
    """[cells, members, L..] as [m_1 · L_1, m_2 · L_2, …, members]."""
    ndim, sizes = len(shape), tuple(box.shape[2:])
    box = xp.reshape(box, (*shape, *box.shape[1:]))
    order = [i for axis in range(ndim) for i in (axis, ndim + 1 + axis)]
    merged = (m * size for m, size in zip(shape, sizes, strict=True))
    return xp.reshape(xp.permute_dims(box, (*order, ndim)), (*merged, box.shape[ndim]))


def _fold(features: Features, reach: Reach, table: Floats, cells: range, *, pairs: bool) -> Floats:
    """Matrix [extent · offsets, cells · L] that turns the sums of cells of an axis into functions or pairs."""
    offsets = features.offsets if pairs else 1
    base, (_, size, count) = base_of_cells(features, reach), table.shape
    a, o = features.pair_index() if pairs else (np.arange(count), np.zeros(count, dtype=np.int64))
    out = np.zeros((reach.extent, offsets, len(cells), size))
    for place, cell in enumerate(cells):
        if 0 <= base[cell] and base[cell] + features.width <= reach.extent:  # others hold no rows
            out[base[cell] + a, o, place] = table[cell if len(table) > 1 else 0].T
    return out.reshape(reach.extent * offsets, -1)


def _apply(array: Array, axis: int, matrix: Array, xp: Any) -> Array:
    """The matrix along one axis."""
    order = (axis, *(i for i in range(array.ndim) if i != axis))
    moved = xp.permute_dims(array, order)
    done = xp.matmul(matrix, xp.reshape(moved, (moved.shape[0], -1)))
    done = xp.reshape(done, (matrix.shape[0], *moved.shape[1:]))
    return xp.permute_dims(done, tuple(int(i) for i in np.argsort(order)))


def _legendre(z: Array, size: int, xp: Any) -> Array:
    """P_0 … P_{size - 1} at z [1, n]: [size, n]."""
    lines = [xp.ones_like(z), z]
    for n in range(1, size - 1):
        lines.append(((2 * n + 1) / (n + 1)) * z * lines[n] - (n / (n + 1)) * lines[n - 1])
    return xp.concat(lines[:size], axis=0)


def _asarray(table: np.ndarray[Any, Any], tiles: Tiles) -> Array:
    """A small host table beside the rows."""
    return tiles.xp.asarray(np.array(table, order="C"), device=tiles.device)


@dataclass(frozen=True, eq=False)
class _Cut:
    """How a slab of sorted rows is cut into tiles, the first of all cells before the second of any.

    Attributes
    ----------
    cells : slice
        Occupied cells that the slab touches.
    rank : ndarray
        These cells, those with most tiles first.
    counts : ndarray
        Number of cells that have a first tile, a second, …
    starts, stops : ndarray
        Where each tile begins in the slab, and where its cell ends.
    length : int
        Rows of a tile.
    """

    cells: slice
    rank: Integers
    counts: Integers
    starts: Integers
    stops: Integers
    length: int

    @staticmethod
    def of(first: int, count: int, ends: Integers) -> _Cut:
        low = int(np.searchsorted(ends, first, side="right"))
        high = int(np.searchsorted(ends, first + count, side="left")) + 1
        stops = np.minimum(ends[low:high] - first, count)
        starts = np.concatenate([[0], stops[:-1]])
        length = 1 << max(0, math.ceil(math.log2(count / stops.size)))
        length = min(max(length, TILES[0]), TILES[1])
        tiles = -(-(stops - starts) // length)
        rank = np.argsort(-tiles, kind="stable")
        counts = np.array([np.count_nonzero(tiles > number) for number in range(int(tiles.max()))])
        every = [(starts[rank[:n]] + number * length, stops[rank[:n]]) for number, n in enumerate(counts)]
        begin, end = (np.concatenate(part) for part in zip(*every, strict=True))
        return _Cut(slice(low, high), rank, counts, begin, end, length)

    def add(self, sums: Array, total: Array, xp: Any, tiles: Tiles) -> None:
        """Add the sums of the tiles to those of their cells, one tile of each cell at a time."""
        cell, last = sums[: int(self.counts[0]), ...], int(self.counts[0])
        cell = xp.asarray(cell, copy=True)
        for count in self.counts[1:].tolist():
            cell[:count, ...] += sums[last : last + count, ...]
            last += count
        back = _asarray(np.argsort(self.rank), tiles)
        total[self.cells, ...] += xp.take(cell, back, axis=0)
