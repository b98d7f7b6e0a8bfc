"""One contraction, and its transpose: rows of data to coefficients, one group at a time.

`ArrayApiEngine` is the definition, for any array namespace. `CompiledEngine` does the same for NumPy arrays in compiled
loops. Both hold two verbs: `scatter` replaces the axis of a group's rows [n] by its coefficients or pairs [R],
`gather` goes back. A test holds them equal.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, TypeAlias

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from xspline.kernels.block import SLAB_ENTRIES, Array, Floats, Integers, Layout, Scratch, slab_entries
from xspline.kernels.points.cells import SIZES, Cells, CellSizes
from xspline.kernels.points.tiles import Tiles
from xspline.kernels.rows import Rows
from xspline.spaces import Space
from xspline.spaces.features import Features


def choose_engine(array: Array, engine: str | Engine | None = None) -> Engine:
    """The compiled loops for NumPy arrays, the definition for every other namespace.

    An engine is "numba", "namespace" or an Engine; None: by the array. The named one that is not compiled goes by
    slabs, whatever the layout.
    """
    if not (engine is None or isinstance(engine, str)):
        return engine
    if engine == "numba" or (engine is None and array_api_compat.is_numpy_array(array)):
        return CompiledEngine()
    sweeps = engine is None and array_api_compat.is_cupy_array(array)
    return ArrayApiEngine(array_api_compat.array_namespace(array), array_api_compat.device(array), sweeps)


def engine_of_size(array: Array, layout: Layout, space: Space, shape: Sequence[int]) -> str | None:
    """The engine of arrays of so few values that compiled loops would not pay: "namespace", else None.

    They gain 50 ms at most there, and take 4 to 9 s to compile where no cache has them. The shape of the whole problem
    decides, not the cache: the same call gives the same bits.
    """
    most, work = 1, 0
    for group in layout.groups:
        own = [space.features[a] for a in group.coefficient_axes]
        most = max(most, math.prod(f.width for f in own))
        cells = math.prod(f.cells for f in own)
        rows = math.prod(shape[a] for a in group.data_axes)
        work += 512 * min(cells, rows)  # a cell takes as long as so many products, measured
    small = work + most * math.prod(shape) <= 32 * SLAB_ENTRIES
    return "namespace" if small and isinstance(array, np.ndarray) else None


SCRATCH = Scratch(), Scratch()  # one is read while the other is written


def contract(array: Array, rows: Sequence[Rows | None], engine: Engine, out: Array | None = None) -> Array:
    """Scatter every axis that has rows, the cheapest order first; axes without (batch) stay.

    Where `out` is given, C-contiguous and of the shape of the result, it is added to and returned. All else that is
    made on the host lies in memory that this thread uses again: it is used before the next call.
    """
    pooled = tuple(i for i, r in enumerate(rows) if r is not None and not r.functions)
    if pooled:
        array = array_api_compat.array_namespace(array).sum(array, axis=pooled, keepdims=True)
    active = {i: r for i, r in enumerate(rows) if r is not None and r.functions}
    costs = tuple((i, r.count, r.extent, r.count * r.width) for i, r in active.items())
    order = cheapest_order(tuple(array.shape), costs)
    for step, axis in enumerate(order, 1):
        target = out if step == len(order) else None
        if target is None and isinstance(array, np.ndarray):
            target = SCRATCH[step % 2].take(
                (*array.shape[:axis], active[axis].extent, *array.shape[axis + 1 :])
            )
            target.fill(0.0)
        array = engine.scatter(array, axis, active[axis], target)
    if out is None or array is out:
        return array
    out += array
    return out


def expand(array: Array, rows: Sequence[Rows | None], engine: Engine, out: Array | None = None) -> Array:
    """Gather every axis that has rows: the transpose of `contract`.

    The last step, which makes most of the values, may write them into `out`: C-contiguous, of the shape of the
    result. It runs along the values behind its axis, so an axis with none behind it comes early.
    """
    active = {i: r for i, r in enumerate(rows) if r is not None and r.functions}
    lengths = [active[i].count if i in active else n for i, n in enumerate(array.shape)]
    # Without values behind its axis, for vector instructions, a value takes three times as long.
    lone = {i: 1 if math.prod(lengths[i + 1 :]) > 1 else 3 for i in active}
    costs = tuple((i, r.extent, r.count, r.count * r.width * lone[i]) for i, r in active.items())
    order = cheapest_order(tuple(array.shape), costs)
    for step, axis in enumerate(order, 1):
        array = engine.gather(array, axis, active[axis], out if step == len(order) else None)
    return array


Stage: TypeAlias = tuple[int, int, int, int]
"""An axis, its length before and after, and the multiply-adds per entry of the rest."""


@lru_cache(maxsize=1024)
def cheapest_order(shape: tuple[int, ...], stages: tuple[Stage, ...]) -> tuple[int, ...]:
    """Order of stages of least work.

    All permutations are tried; of equals the one nearest to the stored order wins.
    """
    return tuple(
        axis for axis, *_ in min(itertools.permutations(stages), key=lambda order: work(shape, order))
    )


def work(shape: Sequence[int], order: Sequence[Stage]) -> int:
    """Multiply-adds of stages in this order."""
    total, size = 0, math.prod(shape)
    for _, before, after, operations in order:
        rest = size // max(before, 1)
        total += rest * operations
        size = rest * after
    return total


@dataclass(frozen=True)
class ArrayApiEngine:
    """Contractions by array-API functions: one matrix product, or one per cell that holds rows.

    `xp` is the namespace, whose arrays are on `device`. Grids may be summed in one sweep (`sweep.Sweep`) if it
    `sweeps`: NumPy's arrays, and CuPy's. A box of no more entries than `short_box` times the values of a row is one
    product. `sizes` are of groups that go from cell to cell.
    """

    xp: Any
    device: Any
    sweeps: bool = False
    short_box: int = 32
    sizes: CellSizes = SIZES
    compiled: ClassVar[bool] = False

    def sort(self, features: Sequence[Features], coordinates: Sequence[Array]) -> Tiles | None:
        """Rows of a group sorted by cell, so that sums go from cell to cell; None where that does not pay."""
        return Tiles.sort(features, coordinates, self.xp, self.device, self.sizes)

    def scatter(self, array: Array, axis: int, rows: Rows, out: Array | None = None) -> Array:
        """Axis [n] becomes [R]: out[R] = sum over the rows i of values[i, R] array[i].

        Where `out` is given, C-contiguous and of the shape of the result, it may be added to and returned.
        """
        xp = self.xp
        front, rest = self._matrix(array, axis)
        if self._is_short(rows, front):
            return self._back(xp.matmul(self._put(_dense(rows).T), front), axis, array.shape)
        out = xp.zeros((*itertools.chain(*rows.box), rest), dtype=xp.float64, device=self.device)
        # Pairs fill a triangle of a support; the last row of the padded total is zero, and goes to the rest of it.
        table = np.full(math.prod(k * o for k, o in rows.support), rows.width, dtype=np.int64)
        table[rows.places_in_support()] = np.arange(rows.width)
        to_support = self._put(table)
        gap = xp.zeros((1, rest), dtype=xp.float64, device=self.device)
        for place, batches in _by_cell(rows):
            total = gap
            for batch in batches:
                total = total + xp.matmul(self._put(_products(rows, batch).T), self._take(front, batch))
            filled = xp.take(xp.concat([total, gap]), to_support, axis=0)
            out[place] += xp.reshape(filled, (*itertools.chain(*rows.support), rest))
        return self._back(xp.reshape(out, (rows.extent, rest)), axis, array.shape)

    def gather(self, array: Array, axis: int, rows: Rows, out: Array | None = None) -> Array:
        """Axis [R] becomes [n]: out[i] = sum over R of values[i, R] array[R].

        Where `out` is given, C-contiguous and of the shape of the result, it may be written and returned.
        """
        xp = self.xp
        front, rest = self._matrix(array, axis)
        if len(rows.functions) > 1:  # scattered positions: each has a support of its own
            return self._back(self._gather_by_row(front, rows), axis, array.shape)
        if self._is_short(rows, front) and not rows.pairs:  # pairs that do not exist may be anything
            return self._back(xp.matmul(self._put(_dense(rows)), front), axis, array.shape)
        front = xp.reshape(front, (*itertools.chain(*rows.box), rest))
        done, values = [], []
        places = rows.places_in_support()  # of pairs a triangle
        for place, batches in _by_cell(rows):
            support = self._take(xp.reshape(front[place], (-1, rest)), places)
            for batch in batches:
                values.append(xp.matmul(self._put(_products(rows, batch)), support))
                done.append(batch)
        if not values:
            shape = (*array.shape[:axis], 0, *array.shape[axis + 1 :])
            return xp.zeros(shape, dtype=xp.float64, device=self.device)
        inverse = np.argsort(np.concatenate(done), kind="stable")
        return self._back(self._take(xp.concat(values), inverse), axis, array.shape)

    def _gather_by_row(self, front: Array, rows: Rows) -> Array:
        """[R, rest] to [n, rest], the supports of many rows at a time."""
        xp, start, places, values = self.xp, rows.start(), rows.places(), []
        at_once = max(1, slab_entries(front) // (rows.width * max(1, int(front.shape[1]))))
        for first in range(0, rows.count, at_once):
            which = np.arange(first, min(first + at_once, rows.count))
            at = (start[which, None] + places).reshape(-1)
            supports = xp.reshape(xp.take(front, self._put(at), axis=0), (which.size, rows.width, -1))
            values.append(xp.matmul(self._put(_products(rows, which)[:, None, :]), supports)[:, 0, :])
        return xp.concat(values) if values else front[:0, :]

    def _is_short(self, rows: Rows, array: Array) -> bool:
        """Whether one product with zeros among its numbers takes less time than one for each cell."""
        size = rows.count * rows.extent
        one_axis = len(rows.functions) == 1
        return one_axis and rows.extent <= self.short_box * rows.width and 0 < size <= slab_entries(array)

    def _put(self, table: NDArray[Any]) -> Array:
        """A small host table on the device of the data."""
        return self.xp.asarray(np.ascontiguousarray(table), device=self.device)

    def _take(self, matrix: Array, rows: Integers) -> Array:
        """Rows of a matrix; a view where they follow each other."""
        if rows.size and rows[-1] - rows[0] == rows.size - 1 and bool(np.all(np.diff(rows) == 1)):
            return matrix[int(rows[0]) : int(rows[-1]) + 1, :]
        return self.xp.take(matrix, self._put(rows), axis=0)

    def _matrix(self, array: Array, axis: int) -> tuple[Array, int]:
        """The array as [axis, rest], and the length of the rest."""
        xp, ndim = self.xp, array.ndim
        order = (axis, *(i for i in range(ndim) if i != axis))
        rest = math.prod(array.shape[i] for i in order[1:])
        return xp.reshape(xp.permute_dims(array, order), (array.shape[axis], rest)), rest

    def _back(self, matrix: Array, axis: int, shape: Sequence[int]) -> Array:
        """[new, rest] as an array with `axis` replaced."""
        xp, ndim = self.xp, len(shape)
        array = xp.reshape(matrix, (matrix.shape[0], *(n for i, n in enumerate(shape) if i != axis)))
        return xp.permute_dims(array, (*range(1, axis + 1), 0, *range(axis + 1, ndim)))


def _dense(rows: Rows) -> Floats:
    """Values of the rows of one axis at all entries of the box: [n, R]."""
    out = np.zeros((rows.count, rows.extent))
    np.put_along_axis(out, rows.start()[:, None] + rows.places(), rows.values[0], axis=1)
    return out


def _by_cell(rows: Rows) -> Iterator[tuple[Any, Iterator[Integers]]]:
    """For each cell that holds rows: where its support lies in the box, and the rows, some at a time."""
    start = rows.start()
    order = np.argsort(start, kind="stable")
    borders = np.flatnonzero(np.diff(start[order], prepend=-1, append=-1))
    at_once = max(1, SLAB_ENTRIES // max(rows.width, 1))
    for first, last in itertools.pairwise(borders.tolist()):
        row, place = order[first], []
        for base, (functions, offsets) in zip(rows.base, rows.support, strict=True):
            place += [slice(int(base[row]), int(base[row]) + functions), slice(0, offsets)]
        batches = (order[i : min(i + at_once, last)] for i in range(first, last, at_once))
        yield (*place, ...), batches


def _products(rows: Rows, which: Integers | slice) -> Floats:
    """Products over the axes of the values of some rows: [rows, width], first axis outermost."""
    out, *others = (values[which] for values in rows.values)
    for values in others:
        out = (out[:, :, None] * values[:, None, :]).reshape(len(out), -1)
    return out


@dataclass(frozen=True)
class CompiledEngine:
    """Contractions of NumPy arrays in compiled loops.

    For `sweeps` and `sizes` see `ArrayApiEngine`; `compiled` tells whether compiled loops locate the rows of B-splines.
    """

    sweeps: bool = True
    sizes: CellSizes = SIZES
    compiled: ClassVar[bool] = True

    def sort(self, features: Sequence[Features], coordinates: Sequence[Floats]) -> Cells | None:
        return Cells.sort(features, coordinates, self.sizes)

    def scatter(self, array: Floats, axis: int, rows: Rows, out: Floats | None = None) -> Floats:
        from xspline.kernels.compiled.contraction import scatter

        flat, shape = _three(array, axis), (*array.shape[:axis], rows.extent, *array.shape[axis + 1 :])
        out = np.zeros(shape) if out is None else out
        total = out.reshape(flat.shape[0], rows.extent, flat.shape[2])
        start, places = rows.start(), rows.places()
        for some, values in _tables(rows):
            scatter(np.ascontiguousarray(flat[:, some]), start[some], places, values, total)
        return out

    def gather(self, array: Floats, axis: int, rows: Rows, out: Floats | None = None) -> Floats:
        from xspline.kernels.compiled.contraction import gather, gather_products

        flat, shape = _three(array, axis), (*array.shape[:axis], rows.count, *array.shape[axis + 1 :])
        swapped = flat.shape[2] == 1 and len(flat) >= 32  # loops run over what follows an axis
        if swapped:
            flat = np.ascontiguousarray(flat.T)
        before, _, after = flat.shape
        start = rows.start()
        places = rows.places()
        lone = len(rows.functions) == 1
        if swapped or out is None or (not lone and out.dtype != np.float64):
            out = np.empty((before, rows.count, after))
        target = out.reshape(before, rows.count, after)
        if lone:
            gather(flat, start, places, rows.values[0], target)
        elif after == 1:
            table, order = rows.table, np.arange(rows.count)
            if rows.pairs:  # of which there are many: rows of one cell share a copy of them
                order = np.argsort(start)
                start, table = start[order], table[order]
            functions = np.array(rows.functions)
            gather_products(
                flat[:, :, 0], order, start, places, table, functions, rows.pairs, target[:, :, 0]
            )
        else:
            for some, values in _tables(rows):
                part = np.empty((before, len(values), after))
                gather(flat, start[some], places, values, part)
                target[:, some] = part
        return (out.T if swapped else out).reshape(shape)


def _tables(rows: Rows) -> Iterator[tuple[slice, Floats]]:
    """Values of rows: of one axis of all at once, their products over several axes so many as a cache holds."""
    if len(rows.functions) == 1:
        yield slice(None), rows.values[0]
        return
    at_once = max(1, SLAB_ENTRIES // rows.width)
    for first in range(0, rows.count, at_once):
        some = slice(first, min(first + at_once, rows.count))
        yield some, _products(rows, some)


def _three(array: Floats, axis: int) -> Floats:
    """The array as [before, axis, after], contiguous and writable: one specialisation of each kernel."""
    shape = math.prod(array.shape[:axis]), array.shape[axis], math.prod(array.shape[axis + 1 :])
    return np.require(array, np.float64, ["C", "W"]).reshape(shape)


Engine: TypeAlias = ArrayApiEngine | CompiledEngine
"""How contractions are computed; both have the members that `ArrayApiEngine` explains."""
