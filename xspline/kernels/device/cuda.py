"""Sweeps of CuPy arrays by kernels of our own, `sweep.cu`: values are read once, as they are stored."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xspline.kernels.block import Array, Floats, Integers
from xspline.kernels.rows import LineSums, Rows, row_words

THREADS = 128  # of a block
TYPES = {"float32": "float", "float64": "double"}

Kernel: TypeAlias = Callable[[tuple[int, ...], tuple[int, ...], tuple[Any, ...]], None]
"""Called with the numbers of blocks and of threads along each axis, and the arguments."""


@lru_cache(maxsize=1)
def source() -> str:
    """The kernels of a sweep in CUDA C++."""
    return files(__package__).joinpath("sweep.cu").read_text(encoding="utf-8")


@lru_cache(maxsize=64)
def load_kernel(source: str, name: str, options: tuple[str, ...]) -> Kernel:
    """A kernel of a source in CUDA C++, compiled for the current GPU."""
    import cupy

    kernel: Kernel = cupy.RawModule(code=source, options=options).get_function(name)
    return kernel


@dataclass(frozen=True)
class CudaSweeper:
    """`sweep.CompiledSweeper` on a GPU."""

    xp: Any  # the namespace of the values
    device: Any  # where the values are
    # compiles a kernel of a source, a name and options
    load: Callable[[str, str, tuple[str, ...]], Kernel] = load_kernel
    tile_rows: tuple[int, int] = (64, 1024)  # rows of a tile, at least and at most
    held_sums: int = 28  # sums of one line that a thread holds where it may choose: pairs of seven functions
    grid: int = 65_535  # blocks along the second axis of a launch; CUDA allows no more

    def per_line(self, rows: Rows) -> int:
        tiles = math.ceil(rows.count / self.tile_rows[1])  # shorter ones are for few lines
        return 2 * rows.extent + tiles * (rows.width + 3)

    def told(self, rows: Rows) -> tuple[int, Any]:
        return 1, self.xp.int64

    def reads(self, array: Array) -> bool:
        return str(array.dtype) in TYPES and bool(array.flags.c_contiguous)

    def readable(self, array: Array) -> Array:
        kind = self.xp.float32 if str(array.dtype) == "float32" else self.xp.float64
        return array.astype(kind, order="C")

    def sweep(
        self, values: Array, column: int, after: int, rows: Rows, reference: float | None, known: Any = None
    ) -> LineSums:
        """One launch reads the values, a second adds what tiles have in common."""
        xp, (before, length, stored) = self.xp, values.shape
        lines, extent = before * after, rows.extent
        tiling = Tiling.of(rows, lines, self.tile_rows, self.held_sums)
        # In two transfers.
        table, together = (self._put(tiling.values), self._put(np.concatenate(tiling.tables)))
        ends = np.cumsum([given.size for given in tiling.tables]).tolist()
        tables = [together[end - given.size : end] for given, end in zip(tiling.tables, ends, strict=True)]
        options = (f"-DVALUE={TYPES[str(values.dtype)]}", *tiling.options)
        sums = self._empty((tiling.slots, lines), xp.float64)
        shape = (0 if rows.pairs else tiling.tiles, lines)
        scalars = [self._empty(shape, dtype) for dtype in (xp.float64, xp.int64, xp.int64)]
        sizes = (length, stored, column, after, lines, table.shape[1], tiling.tiles)
        numbers = [*map(np.int64, sizes), np.float64(0.0 if reference is None else reference)]
        blocks = -(-lines // (THREADS * tiling.lines)), min(tiling.tiles, self.grid), tiling.groups
        arguments = (values, table, *tables[:-2], *numbers, sums, *scalars)
        self.load(source(), "sweep", options)(blocks, (THREADS, 1, 1), arguments)
        out = self._empty((extent, lines), xp.float64)
        blocks = -(-lines // THREADS), min(extent, self.grid), 1
        arguments = (sums, *tables[-2:], np.int64(lines), np.int64(extent), out)
        self.load(source(), "gather", options)(blocks, (THREADS, 1, 1), arguments)
        out = xp.reshape(xp.permute_dims(out, (1, 0)), (before, after, extent))
        if reference is None:
            return LineSums(out)
        power, count, digest = (xp.reshape(xp.sum(a, axis=0), (before, 1, after)) for a in scalars)
        return LineSums(out, power[:, 0, :], count[:, 0, :], digest)

    def _empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        return self.xp.empty(shape, dtype=dtype, device=self.device)

    def _put(self, table: NDArray[Any]) -> Array:
        return self.xp.asarray(np.ascontiguousarray(table), device=self.device)


@dataclass(frozen=True, eq=False)
class Tiling:
    """How sorted rows are shared out among threads."""

    tiles: int  # how many tiles of rows there are
    groups: int  # how many groups of columns
    lines: int  # how many lines one thread has
    slots: int  # sums of all tiles of a line, before those that tiles have in common are added
    values: Floats  # [n, columns], values of the rows, filled up with zeros to full groups
    tables: tuple[Integers, ...]  # of both kernels, in the order of their arguments
    options: tuple[str, ...]  # what the kernels are compiled for

    @staticmethod
    def of(rows: Rows, lines: int, tile_rows: tuple[int, int], held_sums: int) -> Tiling:
        """Tiles that give enough threads something to do."""
        known, (functions,), columns = rows.sorted, rows.functions, rows.width
        # With several cells a thread moves from support to support, and holds all sums of one.
        local = known.ends.size > 1
        groups = 1 if local else -(-columns // held_sums)
        width = -(-columns // groups)
        padded = groups * width - columns
        # With few sums a thread takes several lines, so that rows are loaded once for all of them.
        abreast = 4 if width <= 8 else 2 if width <= 16 else 1
        offsets = functions if rows.pairs and local else 1

        length = rows.count * -(-lines // abreast) >> 18  # 2¹⁸ threads keep a GPU busy
        length = min(max(length, tile_rows[0]), tile_rows[1])
        tiles = np.append(np.arange(length, rows.count, length), rows.count)  # rows up to the end of each
        runs = np.union1d(known.ends, tiles)  # rows up to the end of each run of one cell in one tile
        if local:
            first, last = known.start[np.append(0, tiles[:-1])], known.start[tiles - 1]
            slots = last - first + functions * offsets
            owner = np.concatenate([np.arange(n) + begin for n, begin in zip(slots, first, strict=True)])
        else:
            slots = np.full(tiles.size, groups * width)
            places = np.pad(known.places + known.start[0], (0, padded), constant_values=-1)
            owner = np.tile(places, tiles.size)
        owned = np.flatnonzero(owner >= 0)
        tables = (
            known.order,
            row_words(rows.count)[known.order],
            runs,
            known.start[np.append(0, runs[:-1])],
            np.searchsorted(runs, tiles, side="right"),
            np.cumsum(slots) - slots,
            np.cumsum(np.bincount(owner[owned], minlength=rows.extent)),
            owned[np.argsort(owner[owned], kind="stable")],
        )
        numbers = {
            "MOMENT": int(not rows.pairs),
            "FUNCTIONS": functions if local else 0,
            "OFFSETS": offsets,
            "WIDTH": width,
            "LINES": abreast,
            "DEPTH": 4,  # rows that a thread loads before it uses the first of them
        }
        options = tuple(f"-D{name}={number}" for name, number in numbers.items())
        values = np.pad(known.values, ((0, 0), (0, padded)))
        return Tiling(tiles.size, groups, abreast, owner.size, values, tables, options)
