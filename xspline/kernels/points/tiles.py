"""Rows of a group with several coefficient axes, sorted by cell, in any array namespace: for devices.

The twin of `cells`. Rows are located, sorted by cell and cut into tiles of equally many rows of one cell; the sums
of products of columns of a tile are one matrix product, and all tiles of a slab are one batch. Nothing here loops
over rows or cells.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xspline.kernels.block import Array, Floats, Integers, to_host
from xspline.kernels.points.cells import ByCell, CellSizes, cell_range, columns_of, given_columns
from xspline.kernels.rows import CoefficientRange
from xspline.spaces.bspline import LocalSpline
from xspline.spaces.features import Features


@dataclass(frozen=True, eq=False)
class Tiles(ByCell):
    """The rows of a group in the order of their cells, on a device; keys and order are int64."""

    features: tuple[Features, ...]
    xp: Any  # the namespace of the rows
    device: Any  # where the rows are
    keys: Array
    known: Array  # [n], rows all of whose coordinates are numbers
    order: Array
    ends: Integers  # [occupied], number of sorted rows up to the end of each cell that holds rows
    cells: Integers
    low: tuple[int, ...]  # per axis the first cell that rows can be in
    box: tuple[int, ...]  # per axis how many cells there are from `low` on
    # per axis the local coordinate [1, n], or the columns [L, n] of a basis other than a B-spline
    given: tuple[Array, ...]
    sizes: CellSizes

    @staticmethod
    def sort(
        features: Sequence[Features], coordinates: Sequence[Array], xp: Any, device: Any, sizes: CellSizes
    ) -> Tiles | None:
        """Cells of a group whose features fit; None where rows are too few for so many cells."""
        count = int(coordinates[0].shape[0])
        pairs = list(zip(features, coordinates, strict=True))
        ranges = [cell_range(f, partial(_ends, x, xp)) for f, x in pairs] if count else []
        low, box = tuple(a for a, _ in ranges), tuple(b - a + 1 for a, b in ranges)
        if not count or math.prod(box) > sizes.cells_per_row * count:
            return None
        keys, known = xp.zeros(count, dtype=xp.int64, device=device), True
        outside, given = xp.zeros(count, dtype=xp.bool, device=device), []
        for f, x, start, length in zip(features, coordinates, low, box, strict=True):
            if isinstance(f, LocalSpline):
                cell, z = f.locate(x, xp)
                given.append(xp.reshape(z, (1, -1)))
            else:
                host_cell, host_z = f.locate(to_host(x))
                cell = xp.asarray(host_cell, device=device)
                given.append(xp.asarray(given_columns(f, host_cell, host_z), device=device))
            keys = keys * length + (cell - start)
            known, outside = xp.isfinite(x) & known, xp.logical_or(outside, cell < 0)
        keys = xp.where(outside, xp.full_like(keys, -1), keys)
        # Sorting goes by the bits of a key: half of them will do.
        order = xp.argsort(xp.astype(keys, xp.int32) if math.prod(box) < 1 << 31 else keys)
        borders = xp.arange(math.prod(box) + 1, dtype=xp.int64, device=device)
        ends = to_host(xp.searchsorted(xp.take(keys, order), borders)).astype(np.int64)
        occupied = np.flatnonzero(np.diff(ends))
        sums = occupied.size * math.prod(columns_of(f).size for f in features)
        if not 0 < sums <= 1 << 28:  # 2 GiB
            return None
        cells = np.stack(np.unravel_index(occupied, box), axis=1) + np.array(low)
        order, ends = order[int(ends[0]) :], ends[occupied + 1] - ends[0]
        located = (keys, known, order, ends, cells, low, box, tuple(given))
        return Tiles(tuple(features), xp, device, *located, sizes)

    def labelled(self, span: tuple[int, int]) -> Array:
        return self.known[span[0] : span[0] + span[1]]

    def slabs(self, members: int) -> Iterator[tuple[int, Array]]:
        products = math.prod(c.size for c in self.columns[1:]) + members * (self.columns[0].size + 2)
        rows = max(1, self.sizes.device_entries // products)
        count = int(self.order.shape[0])
        for first in range(0, count, rows):
            yield first, self.order[first : min(first + rows, count)]

    def totals(self, ranges: Sequence[CoefficientRange], moments: int, pairs: int) -> TileTotals:
        return TileTotals(self, ranges, moments, pairs)

    def put(self, table: NDArray[Any]) -> Array:
        """A small host table beside the rows."""
        return self.xp.asarray(np.array(table, order="C"), device=self.device)


def _ends(x: Array, xp: Any) -> tuple[float, float]:
    """The least and the greatest of positions, NaN where all are missing."""
    known = xp.logical_not(xp.isnan(x))
    if not bool(xp.any(known)):
        return math.nan, math.nan
    below, above = (xp.where(known, x, xp.full_like(x, sign * math.inf)) for sign in (1, -1))
    return float(xp.min(below)), float(xp.max(above))


class TileTotals:
    """The twin of `cells.CellTotals`: sums of products of columns of the tiles of each cell, folded at the end."""

    def __init__(self, tiles: Tiles, ranges: Sequence[CoefficientRange], moments: int, pairs: int) -> None:
        self.tiles, self.ranges = tiles, tuple(ranges)
        self.extents = tuple(span.extent for span in ranges)
        self._sizes = tuple(f.width for f in tiles.features), tuple(c.size for c in tiles.columns)
        xp, occupied = tiles.xp, tiles.ends.size
        self._totals = [
            xp.zeros((occupied, count, *sizes), dtype=xp.float64, device=tiles.device)
            for count, sizes in zip((moments, pairs), self._sizes, strict=True)
        ]

    def add(self, first: int, rows: Array, weights: Array, errors: Array) -> None:
        """Add sorted rows from the `first` on: weights and weighted errors are [members, rows]."""
        tiles, xp = self.tiles, self.tiles.xp
        count = int(rows.shape[0])
        tiling = _CellTiling.of(first, count, tiles.ends, tiles.sizes.tile_rows)
        step = xp.arange(tiling.length, dtype=xp.int64, device=tiles.device)
        at = tiles.put(tiling.starts[:, None]) + step[None, :]
        # The last rows of a cell fill their tile up with rows of others, of weight zero.
        inside = at < tiles.put(tiling.stops[:, None])
        at = xp.reshape(xp.minimum(at, xp.full_like(at, count - 1)), (-1,))
        columns = []
        for given, about in zip(tiles.given, tiles.columns, strict=True):  # [tiles, L, rows of a tile]
            lines = xp.take(given, xp.take(rows, at), axis=1)
            lines = _legendre(lines, about.size, xp) if about.of_position else lines
            lines = xp.reshape(lines, (lines.shape[0], tiling.starts.size, tiling.length))
            columns.append(xp.permute_dims(lines, (1, 0, 2)))
        for total, array, sizes in zip(self._totals, (errors, weights), self._sizes, strict=True):
            members = int(total.shape[1])
            if members:
                taken = xp.reshape(xp.take(array[:members, :], at, axis=1), (members, *inside.shape))
                taken = xp.where(inside, taken, xp.zeros_like(taken))
                # Sums over the rows of each tile of products of columns: [tiles, members, columns..]
                front = xp.permute_dims(taken, (1, 0, 2))[:, :, None, :] * columns[0][:, None, : sizes[0], :]
                rest = xp.ones((tiling.starts.size, tiling.length, 1), dtype=xp.float64, device=tiles.device)
                for lines, size in zip(columns[1:], sizes[1:], strict=True):
                    # As the product reads it: no copy turned.
                    turned = xp.matrix_transpose(lines[:, :size, :])
                    rest = rest[:, :, :, None] * turned[:, :, None, :]
                    rest = xp.reshape(rest, (*rest.shape[:2], -1))
                front = xp.reshape(front, (-1, members * sizes[0], tiling.length))
                products = xp.reshape(xp.matmul(front, rest), (-1, members, *sizes))
                sums = tiling.merged(products, xp)
                total[tiling.cells, ...] += xp.take(sums, tiles.put(tiling.back), axis=0)

    def finish(self) -> tuple[Floats, Floats]:
        """Moment and pairs, [members, coefficients, depth]."""
        return self._folded(self._totals[0], pairs=False), self._folded(self._totals[1], pairs=True)

    def _folded(self, total: Array, *, pairs: bool) -> Floats:
        tiles, xp, members = self.tiles, self.tiles.xp, int(total.shape[1])
        offsets = tuple(f.support.depth(pairs) for f in tiles.features)
        tables = [c.pairs if pairs else c.functions for c in tiles.columns]
        boxes = zip(tiles.features, self.ranges, tables, tiles.low, tiles.box, strict=True)
        matrices = [_fold(f, span, table, range(a, a + n), pairs=pairs) for f, span, table, a, n in boxes]
        shape = (*(e * o for e, o in zip(self.extents, offsets, strict=True)), members)
        out = xp.zeros(shape, dtype=xp.float64, device=tiles.device)
        for matrix, array in self._boxes(total, matrices[0], int(tables[0].shape[1])):
            for axis, fold in enumerate((matrix, *matrices[1:])):
                array = _along(array, axis, tiles.put(fold), xp)
            out = out + array
        split = [length for pair in zip(self.extents, offsets, strict=True) for length in pair]
        host, axes = to_host(out).reshape(*split, members), range(0, len(split), 2)
        host = np.transpose(host, (len(split), *axes, *(axis + 1 for axis in axes)))
        return host.reshape(members, math.prod(self.extents), math.prod(offsets))

    def _boxes(self, total: Array, matrix: Floats, size: int) -> Iterator[tuple[Floats, Array]]:
        """Cells of the first axis at a time, empty ones too: what folds them, and [m_1 · L_1, …, members]."""
        tiles, xp, ndim = self.tiles, self.tiles.xp, len(self.extents)
        lengths, start = tiles.box, np.array(tiles.low)
        step = max(
            1, tiles.sizes.device_entries // max(math.prod(lengths[1:]) * math.prod(total.shape[1:]), 1)
        )
        gap = xp.zeros((1, *total.shape[1:]), dtype=xp.float64, device=tiles.device)
        order = [i for axis in range(ndim) for i in (axis, ndim + 1 + axis)]
        for low in range(0, lengths[0] if total.shape[1] else 0, step):
            high = min(low + step, lengths[0])
            first, last = np.searchsorted(tiles.cells[:, 0] - start[0], (low, high))
            shape = (high - low, *lengths[1:])
            places = np.full(math.prod(shape), last - first)
            inside = tiles.cells[first:last] - start - np.array([low] + [0] * (ndim - 1))
            places[np.ravel_multi_index(tuple(inside.T), shape)] = np.arange(last - first)
            box = xp.take(xp.concat([total[int(first) : int(last), ...], gap]), tiles.put(places), axis=0)
            sizes = tuple(box.shape[2:])
            box = xp.permute_dims(xp.reshape(box, (*shape, *box.shape[1:])), (*order, ndim))
            merged = (m * columns for m, columns in zip(shape, sizes, strict=True))
            yield matrix[:, low * size : high * size], xp.reshape(box, (*merged, box.shape[-1]))


def _fold(features: Features, span: CoefficientRange, table: Floats, cells: range, *, pairs: bool) -> Floats:
    """Matrix [extent · offsets, cells · L] that turns the sums of cells of an axis into functions or pairs."""
    support, (_, size, _) = features.support, table.shape
    base, offsets, (a, o) = span.bases(features), support.depth(pairs), support.index(pairs)
    out = np.zeros((span.extent, offsets, len(cells), size))
    for place, cell in enumerate(cells):
        if 0 <= base[cell] and base[cell] + support.near <= span.extent:  # others hold no rows
            out[base[cell] + a, o, place] = table[cell if len(table) > 1 else 0].T
    return out.reshape(span.extent * offsets, -1)


def _along(array: Array, axis: int, matrix: Array, xp: Any) -> Array:
    """The product with a matrix along one axis."""
    order = (axis, *(i for i in range(array.ndim) if i != axis))
    moved = xp.permute_dims(array, order)
    product = xp.matmul(matrix, xp.reshape(moved, (moved.shape[0], -1)))
    product = xp.reshape(product, (matrix.shape[0], *moved.shape[1:]))
    return xp.permute_dims(product, tuple(int(i) for i in np.argsort(order)))


def _legendre(z: Array, size: int, xp: Any) -> Array:
    """P_0 … P_{size - 1} at z [1, n]: [size, n]."""
    lines = [xp.ones_like(z), z]
    for n in range(1, size - 1):
        lines.append(((2 * n + 1) / (n + 1)) * z * lines[n] - (n / (n + 1)) * lines[n - 1])
    return xp.concat(lines[:size], axis=0)


@dataclass(frozen=True, eq=False)
class _CellTiling:
    """How a slab of sorted rows is cut into tiles, the first of all cells before the second of any."""

    cells: slice  # the occupied ones that the slab touches
    back: Integers  # the place of each of these cells when those with most tiles come first
    counts: tuple[int, ...]  # numbers of cells that have a first tile, a second, …
    starts: Integers  # where each tile begins in the slab
    stops: Integers  # where the cell of each tile ends
    length: int  # rows of a tile

    @staticmethod
    def of(first: int, count: int, ends: Integers, lengths: tuple[int, int]) -> _CellTiling:
        low = int(np.searchsorted(ends, first, side="right"))
        high = int(np.searchsorted(ends, first + count, side="left")) + 1
        stops = np.minimum(ends[low:high] - first, count)
        starts = np.concatenate([[0], stops[:-1]])
        length = 1 << max(0, math.ceil(math.log2(count / stops.size)))
        length = min(max(length, lengths[0]), lengths[1])
        tiles = -(-(stops - starts) // length)
        rank = np.argsort(-tiles, kind="stable")
        counts = tuple(int(np.count_nonzero(tiles > number)) for number in range(int(tiles.max())))
        begin = np.concatenate([starts[rank[:n]] + number * length for number, n in enumerate(counts)])
        end = np.concatenate([stops[rank[:n]] for n in counts])
        return _CellTiling(slice(low, high), np.argsort(rank), counts, begin, end, length)

    def merged(self, sums: Array, xp: Any) -> Array:
        """Sums of cells from those of their tiles, one tile of each cell at a time."""
        last = self.counts[0]
        cells = xp.asarray(sums[:last, ...], copy=True)
        for count in self.counts[1:]:
            cells[:count, ...] += sums[last : last + count, ...]
            last += count
        return cells
