"""One contraction, and its transpose: rows of data to coefficients, one group at a time.

`Namespace` is the definition, for any array namespace. `Compiled` does the same for NumPy arrays in compiled
loops. Both hold two verbs: `scatter` replaces the axis of a group's rows [n] by its coefficients or pairs
[R], `gather` goes back. A test holds them equal, and nothing outside this module knows that there are two.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

import array_api_compat
import numpy as np

from xspline.spaces.bspline import LocalSpline

from .cells import Cells
from .layout import Array, Floats, Integers
from .rows import Positions, Rows
from .tiles import Tiles

if TYPE_CHECKING:
    from xspline.spaces.features import Features

TILE = 1 << 20  # entries of a table of products that are alive at a time
SHORT = 32  # times the values of a row: a stretch of no more entries is one product on a device
LONE = 3  # times as long takes a value of an axis with nothing behind it: no vector instructions
SWAP = 32  # loops run over what follows an axis: so many entries before it, and none behind, change places


class Engine(Positions, Protocol):
    """How contractions are computed.

    Attributes
    ----------
    sweeps : bool
        Whether grids may be summed in one sweep (`sweep.Sweep`).
    """

    @property
    def sweeps(self) -> bool: ...

    def sort(self, features: Sequence[Features], coordinates: Sequence[Array]) -> Cells | Tiles | None:
        """Rows of a group sorted by cell, so that sums go from cell to cell; None where that does not pay."""
        ...

    def scatter(self, array: Array, axis: int, rows: Rows, out: Array | None = None) -> Array:
        """Axis [n] becomes [R]: out[R] = sum over the rows i of values[i, R] array[i].

        Where `out` is given, C-contiguous and of the shape of the result, it is added to and returned.
        """
        ...

    def gather(self, array: Array, axis: int, rows: Rows, out: Array | None = None) -> Array:
        """Axis [R] becomes [n]: out[i] = sum over R of values[i, R] array[R].

        Where `out` is given, C-contiguous and of the shape of the result, it may be written and returned.
        """
        ...


def contract(array: Array, rows: Sequence[Rows | None], engine: Engine, out: Array | None = None) -> Array:
    """Scatter every axis that has rows, the cheapest order first; axes without (batch) stay.

    Where `out` is given, C-contiguous and of the shape of the result, it is added to and returned.
    """
    pooled = tuple(i for i, r in enumerate(rows) if r is not None and not r.functions)
    if pooled:
        array = array_api_compat.array_namespace(array).sum(array, axis=pooled, keepdims=True)
    active = {i: r for i, r in enumerate(rows) if r is not None and r.functions}
    costs = tuple((i, r.count, r.extent, r.count * r.width) for i, r in active.items())
    order = cheapest_order(tuple(array.shape), costs)
    for step, axis in enumerate(order, 1):
        array = engine.scatter(array, axis, active[axis], out if step == len(order) else None)
    if out is not None and not order:
        out += array
        return out
    return array


def expand(array: Array, rows: Sequence[Rows | None], engine: Engine, out: Array | None = None) -> Array:
    """Gather every axis that has rows: the transpose of `contract`.

    The last step, which makes most of the values, may write them into `out`: C-contiguous, of the shape of the
    result. It runs along the values behind its axis, so an axis with none behind it comes early.
    """
    active = {i: r for i, r in enumerate(rows) if r is not None and r.functions}
    lengths = [active[i].count if i in active else n for i, n in enumerate(array.shape)]
    lone = {i: 1 if math.prod(lengths[i + 1 :]) > 1 else LONE for i in active}
    costs = tuple((i, r.extent, r.count, r.count * r.width * lone[i]) for i, r in active.items())
    order = cheapest_order(tuple(array.shape), costs)
    for step, axis in enumerate(order, 1):
        array = engine.gather(array, axis, active[axis], out if step == len(order) else None)
    return array


@lru_cache(maxsize=1024)
def cheapest_order(shape: tuple[int, ...], stages: tuple[tuple[int, int, int, int], ...]) -> tuple[int, ...]:
    """Order of stages (axis, length before, length after, multiply-adds per entry of the rest) of least work.

    All permutations are tried; of equals the one nearest to the stored order wins.
    """

    def work(order: Sequence[tuple[int, int, int, int]]) -> int:
        total, size = 0, math.prod(shape)
        for _, before, after, each in order:
            rest = size // max(before, 1)
            total += rest * each
            size = rest * after
        return total

    return tuple(axis for axis, *_ in min(itertools.permutations(stages), key=work))


# The definition


@dataclass(frozen=True)
class Namespace:
    """Contractions in any array namespace: one matrix product, or one per cell that holds rows."""

    xp: Any
    device: Any
    sweeps: bool = True

    def sort(self, features: Sequence[Features], coordinates: Sequence[Array]) -> Tiles | None:
        return Tiles.sort(features, coordinates, self.xp, self.device)

    def locate(self, features: Features, x: Floats) -> tuple[Integers, Floats]:
        return features.locate(x)

    def values(self, features: Features, cell: Integers, z: Floats, order: int) -> Floats:
        return features.features(cell, z, order)

    def scatter(self, array: Array, axis: int, rows: Rows, out: Array | None = None) -> Array:
        found = self._scatter(array, axis, rows)
        if out is None:
            return found
        out += found
        return out

    def _scatter(self, array: Array, axis: int, rows: Rows) -> Array:
        xp = self.xp
        front, rest = self._matrix(array, axis)
        if _is_short(rows):
            found = xp.matmul(self._host(_dense(rows).T), front)
            return self._back(found, axis, array.shape)
        out = xp.zeros((*itertools.chain(*rows.shape), rest), dtype=xp.float64, device=self.device)
        patch = (*itertools.chain(*rows.patch), rest)
        table = self._host(_patch_table(rows))
        gap = xp.zeros((1, rest), dtype=xp.float64, device=self.device)
        for place, tiles in _cells(rows):
            total = gap
            for tile in tiles:
                total = total + xp.matmul(self._host(_products(rows, tile).T), self._take(front, tile))
            # Pairs fill a triangle of the patch; the last row of the padded total is zero.
            filled = xp.take(xp.concat([total, gap]), table, axis=0)
            out[place] += xp.reshape(filled, patch)
        return self._back(xp.reshape(out, (rows.extent, rest)), axis, array.shape)

    def gather(self, array: Array, axis: int, rows: Rows, out: Array | None = None) -> Array:
        xp = self.xp
        front, rest = self._matrix(array, axis)
        if len(rows.functions) > 1:  # scattered positions: each has a patch of its own
            return self._back(self._gather_patches(front, rows), axis, array.shape)
        if _is_short(rows) and not rows.pairs:  # pairs that do not exist may be anything
            return self._back(xp.matmul(self._host(_dense(rows)), front), axis, array.shape)
        front = xp.reshape(front, (*itertools.chain(*rows.shape), rest))
        done, parts = [], []
        places = rows.places_in_patch()  # of pairs a triangle
        for place, tiles in _cells(rows):
            patch = self._take(xp.reshape(front[place], (-1, rest)), places)
            for tile in tiles:
                parts.append(xp.matmul(self._host(_products(rows, tile)), patch))
                done.append(tile)
        if not parts:
            return xp.zeros(_replaced(array.shape, axis, 0), dtype=xp.float64, device=self.device)
        inverse = np.argsort(np.concatenate(done), kind="stable")
        return self._back(self._take(xp.concat(parts), inverse), axis, array.shape)

    def _gather_patches(self, front: Array, rows: Rows) -> Array:
        """[R, rest] to [n, rest], the patches of many rows at a time."""
        xp, start, places, parts = self.xp, rows.start(), rows.places(), []
        tile = max(1, TILE // (rows.width * max(1, int(front.shape[1]))))
        for first in range(0, rows.count, tile):
            which = np.arange(first, min(first + tile, rows.count))
            at = (start[which, None] + places).reshape(-1)
            patches = xp.reshape(xp.take(front, self._host(at), axis=0), (which.size, rows.width, -1))
            parts.append(xp.matmul(self._host(_products(rows, which)[:, None, :]), patches)[:, 0, :])
        return xp.concat(parts) if parts else front[:0, :]

    def _host(self, table: np.ndarray[Any, Any]) -> Array:
        """A small host table on the device of the data."""
        return self.xp.asarray(np.ascontiguousarray(table), device=self.device)

    def _take(self, matrix: Array, rows: Integers) -> Array:
        """Rows of a matrix; a view where they follow each other."""
        if rows.size and rows[-1] - rows[0] == rows.size - 1 and bool(np.all(np.diff(rows) == 1)):
            return matrix[int(rows[0]) : int(rows[-1]) + 1, :]
        return self.xp.take(matrix, self._host(rows), axis=0)

    def _matrix(self, array: Array, axis: int) -> tuple[Array, int]:
        """The array as [axis, rest], and the length of the rest."""
        xp, ndim = self.xp, array.ndim
        order = (axis, *(i for i in range(ndim) if i != axis))
        rest = math.prod(array.shape[i] for i in order[1:])
        return xp.reshape(xp.permute_dims(array, order), (array.shape[axis], rest)), rest

    def _back(self, matrix: Array, axis: int, shape: Sequence[int]) -> Array:
        """[new, rest] as an array with `axis` replaced."""
        xp, ndim = self.xp, len(shape)
        rest = [shape[i] for i in range(ndim) if i != axis]
        array = xp.reshape(matrix, (matrix.shape[0], *rest))
        return xp.permute_dims(array, (*range(1, axis + 1), 0, *range(axis + 1, ndim)))


def _replaced(shape: Sequence[int], axis: int, length: int) -> tuple[int, ...]:
    return (*shape[:axis], length, *shape[axis + 1 :])


def _is_short(rows: Rows) -> bool:
    """Whether one product with zeros among its numbers is sooner done than one for each cell."""
    size = rows.count * rows.extent
    return len(rows.functions) == 1 and rows.extent <= SHORT * rows.width and 0 < size <= TILE


def _dense(rows: Rows) -> Floats:
    """Values of the rows of one axis at all entries of the stretch: [n, R]."""
    out = np.zeros((rows.count, rows.extent))
    np.put_along_axis(out, rows.start()[:, None] + rows.places(), rows.values[0], axis=1)
    return out


def _cells(rows: Rows) -> Iterator[tuple[tuple[Any, ...], Iterator[Integers]]]:
    """For each cell that holds rows: where its patch lies in the stretch, and the rows, tile by tile."""
    start = rows.start()
    order = np.argsort(start, kind="stable")
    borders = np.flatnonzero(np.diff(start[order], prepend=-1, append=-1))
    tile = max(1, TILE // max(rows.width, 1))
    for first, last in itertools.pairwise(borders.tolist()):
        row = order[first]
        place: list[Any] = []
        for base, (functions, offsets) in zip(rows.base, rows.patch, strict=True):
            place += [slice(int(base[row]), int(base[row]) + functions), slice(0, offsets)]
        yield (*place, ...), (order[i : min(i + tile, last)] for i in range(first, last, tile))


def _products(rows: Rows, which: Integers) -> Floats:
    """Products over the axes of the values of some rows: [rows, width], first axis outermost."""
    out = np.ones((which.size, 1))
    for values in rows.values:
        out = (out[:, :, None] * values[which][:, None, :]).reshape(which.size, -1)
    return out


def _patch_table(rows: Rows) -> Integers:
    """For each entry of the patch the value that goes there; `width` for none."""
    table = np.full(math.prod(k * o for k, o in rows.patch), rows.width, dtype=np.int64)
    table[rows.places_in_patch()] = np.arange(rows.width)
    return table


# Its compiled twin


class Compiled:
    """Contractions of NumPy arrays in compiled loops."""

    sweeps: bool = True

    def sort(self, features: Sequence[Features], coordinates: Sequence[Floats]) -> Cells | None:
        return Cells.sort(features, coordinates, self)

    def locate(self, features: Features, x: Floats) -> tuple[Integers, Floats]:
        if not isinstance(features, LocalSpline):
            return features.locate(x)
        cell, z, (lo, hi) = np.empty(x.size, dtype=np.int64), np.empty(x.size), features.ends
        ends = np.nextafter((lo, hi), (-np.inf, np.inf))
        step, x = float(features.lengths[0]), np.require(x, np.float64, ["C", "W"])
        edges = np.array(features.edges)  # writable, as every argument is: one specialisation
        _kernels().locate(x, edges, step, ends, features.uniform, features.periodic, cell, z)
        return cell, z

    def values(self, features: Features, cell: Integers, z: Floats, order: int) -> Floats:
        if not isinstance(features, LocalSpline):
            return features.features(cell, z, order)
        out = np.empty((cell.size, features.width))
        _kernels().series(cell, z, np.array(features.derivative_table(order), order="C"), out)
        return out

    def scatter(self, array: Floats, axis: int, rows: Rows, out: Floats | None = None) -> Floats:
        kernels, flat = _kernels(), _three(array, axis)
        out = np.zeros(_replaced(array.shape, axis, rows.extent)) if out is None else out
        total = out.reshape(flat.shape[0], rows.extent, flat.shape[2])
        start, places = rows.start(), rows.places()
        if len(rows.functions) == 1:
            _scatter_kernels().scatter(flat, start, places, rows.values[0], total)
        else:
            order, functions = np.argsort(start, kind="stable"), np.array(rows.functions)
            kernels.scatter_products(flat, order, start, places, rows.table, functions, rows.pairs, total)
        return out

    def gather(self, array: Floats, axis: int, rows: Rows, out: Floats | None = None) -> Floats:
        flat, shape = _three(array, axis), _replaced(array.shape, axis, rows.count)
        before, _, after = flat.shape
        if after == 1 and before >= SWAP:
            swapped = np.ascontiguousarray(flat.T)
            return _gather(swapped, rows, np.empty((1, rows.count, before))).T.reshape(shape)
        if out is None or (len(rows.functions) > 1 and out.dtype != np.float64):
            out = np.empty(shape)
        _gather(flat, rows, out.reshape(before, rows.count, after))
        return out


def _gather(flat: Floats, rows: Rows, out: Floats) -> Floats:
    """`out` [before, n, after] from `flat` [before, R, after]."""
    start, places, table = rows.start(), rows.places(), rows.table
    if len(rows.functions) == 1:
        kernels = _gather_kernels()
        kernels.gather(flat, start, places, rows.values[0], np.empty(kernels.TILE), out)
        return out
    functions = np.array(rows.functions)
    if rows.pairs and flat.shape[2] == 1:
        order = np.argsort(start)
        _kernels().gather_folded(flat, order, start[order], places, table[order], functions, out)
    else:
        out[:] = 0.0
        _kernels().gather_products(flat, start, places, table, functions, rows.pairs, out)
    return out


def _kernels() -> ModuleType:
    from . import compiled  # numba takes 0.3 s to import: not before the first kernel call

    return compiled


def _scatter_kernels() -> ModuleType:
    from . import compiled_scatter

    return compiled_scatter


def _gather_kernels() -> ModuleType:
    from . import compiled_gather

    return compiled_gather


def _three(array: Floats, axis: int) -> Floats:
    """The array as [before, axis, after], contiguous and writable: one specialisation of each kernel."""
    shape = math.prod(array.shape[:axis]), array.shape[axis], math.prod(array.shape[axis + 1 :])
    return np.require(array, np.float64, ["C", "W"]).reshape(shape)


def choose_engine(array: Array, engine: str | None = None) -> Engine:
    """The compiled loops for NumPy arrays, the definition for every other namespace.

    Parameters
    ----------
    engine : "numba", "namespace" or None
        None: by the array. The named one that is not compiled goes by slabs, whatever the layout.
    """
    if engine not in (None, "numba", "namespace"):
        raise ValueError(f'engine must be "numba", "namespace" or None, got {engine!r}')
    is_numpy = array_api_compat.is_numpy_array(array)
    if engine == "numba" and not is_numpy:
        raise ValueError(f"the compiled engine takes NumPy arrays, got {type(array).__name__}")
    if engine == "numba" or (engine is None and is_numpy):
        return Compiled()
    where = array_api_compat.array_namespace(array), array_api_compat.device(array)
    return Namespace(*where, sweeps=engine is None)
