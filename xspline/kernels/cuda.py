"""Sweeps of CuPy arrays by kernels of our own, `sweep.cu`: values are read once, as they are stored.

In the words of a namespace (`lines.Definition`) each step reads and writes all of the block again: some 90 bytes for
a float32, of which the kernel reads 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Any, TypeAlias

import numpy as np

from .layout import Array, Floats, Integers
from .lines import Sorted, Swept

THREADS = 128  # of a block
WANTED = 1 << 18  # threads that keep a GPU busy
TILE = 64, 1024  # rows of a tile, at least and at most
TOGETHER = 28  # sums of one line that a thread holds where it may choose: pairs of seven functions
ABREAST = ((8, 4), (16, 2))  # with so few sums, a thread takes so many lines: rows are loaded once for all
DEPTH = 4  # rows that a thread loads before it uses the first of them
GRID = 65_535  # blocks along the second and third axis of a launch
TYPES = {"float32": "float", "float64": "double"}

Kernel: TypeAlias = Callable[[tuple[int, ...], tuple[int, ...], tuple[Any, ...]], None]
"""Called with the numbers of blocks and of threads along each axis, and the arguments."""


@lru_cache(maxsize=1)
def source() -> str:
    """The kernels of a sweep in CUDA C++."""
    return files(__package__).joinpath("sweep.cu").read_text(encoding="utf-8")


@lru_cache(maxsize=64)
def compiled(source: str, name: str, options: tuple[str, ...]) -> Kernel:
    """A kernel of a source, for the current GPU."""
    import cupy

    found: Kernel = cupy.RawModule(code=source, options=options).get_function(name)
    return found


@dataclass(frozen=True)
class Cuda:
    """Sweeps on a GPU.

    Attributes
    ----------
    xp, device
        The namespace of the values, and where they are.
    compile : callable
        Makes a kernel of a source, a name and options.
    """

    xp: Any
    device: Any
    compile: Callable[[str, str, tuple[str, ...]], Kernel] = compiled

    def per_line(self, lines: Sorted) -> int:
        tiles = math.ceil(lines.order.size / TILE[1])  # shorter ones are for few lines
        return 2 * lines.rows.extent + tiles * (lines.places.size + 3)

    def reads(self, array: Array) -> bool:
        return str(array.dtype) in TYPES and bool(array.flags.c_contiguous)

    def readable(self, array: Array) -> Array:
        kind = self.xp.float32 if str(array.dtype) == "float32" else self.xp.float64
        return array.astype(kind, order="C")

    def sweep(self, values: Array, column: int, after: int, lines: Sorted, reference: float | None) -> Swept:
        """`Sweeper.sweep`: one launch reads the values, a second adds what tiles have in common."""
        xp, (before, rows, stored) = self.xp, values.shape
        tiling = Tiling.of(lines, before * after, reference is None)
        tables, table = [*self._moved(tiling.tables)], self._put(tiling.values)
        options = (f"-DVALUE={TYPES[str(values.dtype)]}", *tiling.options)
        sums = self._empty((tiling.owner.size, tiling.lines), xp.float64)
        shape = (0 if tiling.pairs else tiling.tiles.size, tiling.lines)
        scalars = [self._empty(shape, dtype) for dtype in (xp.float64, xp.int64, xp.int64)]
        sizes = (rows, stored, column, after, tiling.lines, table.shape[1], tiling.tiles.size)
        numbers = [*map(np.int64, sizes), np.float64(0.0 if reference is None else reference)]
        arguments = (values, table, *tables[:-2], *numbers, sums, *scalars)
        self.compile(source(), "sweep", options)(tiling.blocks, (THREADS, 1, 1), arguments)
        out = self._gathered(tiling, options, sums, tables[-2:])
        out = xp.reshape(xp.permute_dims(out, (1, 0)), (before, after, tiling.extent))
        if reference is None:
            return Swept(out)
        return Swept(out, *(xp.reshape(xp.sum(a, axis=0), (before, after)) for a in scalars))

    def _gathered(
        self, tiling: Tiling, options: tuple[str, ...], sums: Array, owned: Sequence[Array]
    ) -> Array:
        """[extent, lines]."""
        out = self._empty((tiling.extent, tiling.lines), self.xp.float64)
        blocks = -(-tiling.lines // THREADS), min(tiling.extent, GRID), 1
        sizes = np.int64(tiling.lines), np.int64(tiling.extent)
        self.compile(source(), "gather", options)(blocks, (THREADS, 1, 1), (sums, *owned, *sizes, out))
        return out

    def _empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        return self.xp.empty(shape, dtype=dtype, device=self.device)

    def _put(self, table: np.ndarray[Any, Any]) -> Array:
        return self.xp.asarray(np.ascontiguousarray(table), device=self.device)

    def _moved(self, tables: Sequence[Integers]) -> Iterator[Array]:
        """Tables on the GPU, in one transfer."""
        first, together = 0, self._put(np.concatenate(tables))
        for table in tables:
            yield together[first : first + table.size]
            first += table.size


@dataclass(frozen=True, eq=False)
class Tiling:
    """How sorted rows are shared out among threads.

    Attributes
    ----------
    source : Sorted
    lines, extent : int
        How many lines there are, and entries of the contraction of one.
    pairs : bool
        Whether the sums are of pairs, and of ones.
    tiles : ndarray, int64 [tiles]
        Number of sorted rows up to the end of each tile.
    """

    source: Sorted
    lines: int
    extent: int
    pairs: bool
    tiles: Integers

    @staticmethod
    def of(source: Sorted, lines: int, pairs: bool) -> Tiling:
        """Tiles that give enough threads something to do."""
        rows, threads = source.order.size, -(-lines // _abreast(_columns(source)[1]))
        length = min(max(rows * threads // WANTED, TILE[0]), TILE[1])
        tiles = np.append(np.arange(length, rows, length), rows)
        return Tiling(source, lines, source.rows.extent, pairs, tiles)

    @property
    def local(self) -> bool:
        """Whether there are several cells: a thread then moves from patch to patch, and holds all of one."""
        return self.source.ends.size > 1

    @property
    def blocks(self) -> tuple[int, int, int]:
        """Of the launch: over lines, tiles and groups of columns."""
        groups, width = _columns(self.source)
        return -(-self.lines // (THREADS * _abreast(width))), min(self.tiles.size, GRID), groups

    @property
    def options(self) -> tuple[str, ...]:
        """What the kernels are compiled for."""
        (functions,), (_, width) = self.source.rows.functions, _columns(self.source)
        numbers = {
            "MOMENT": int(not self.pairs),
            "FUNCTIONS": functions if self.local else 0,
            "OFFSETS": self._offsets,
            "WIDTH": width,
            "LINES": _abreast(width),
            "DEPTH": DEPTH,
        }
        return tuple(f"-D{name}={number}" for name, number in numbers.items())

    @property
    def values(self) -> Floats:
        """Values of the rows [n, columns], filled up with zeros to full groups."""
        groups, width = _columns(self.source)
        values = self.source.values
        return np.pad(values, ((0, 0), (0, groups * width - values.shape[1])))

    @property
    def _offsets(self) -> int:
        return self.source.rows.functions[0] if self.pairs and self.local else 1

    @cached_property
    def _runs(self) -> Integers:
        """Number of rows up to the end of each run of rows of one cell in one tile."""
        return np.union1d(self.source.ends, self.tiles)

    @cached_property
    def _spans(self) -> tuple[Integers, Integers]:
        """Where the first and the last patch of each tile begin."""
        start, first = self.source.start, np.append(0, self.tiles[:-1])
        return start[first], start[self.tiles - 1]

    @cached_property
    def _slots(self) -> Integers:
        """Number of slots of each tile."""
        first, last = self._spans
        if not self.local:
            return np.full(first.size, math.prod(_columns(self.source)))
        return last - first + self.source.rows.functions[0] * self._offsets

    @cached_property
    def owner(self) -> Integers:
        """The entry that each slot belongs to; -1 for none."""
        if self.local:
            each = (np.arange(n) + first for first, n in zip(self._spans[0], self._slots, strict=True))
            return np.concatenate([*each])
        places = self.source.places + self.source.start[0]
        filled = np.pad(places, (0, math.prod(_columns(self.source)) - places.size), constant_values=-1)
        return np.tile(filled, self.tiles.size)

    @property
    def tables(self) -> tuple[Integers, ...]:
        """Of both kernels, in the order of their arguments."""
        runs, slots, owned = self._runs, self._slots, np.flatnonzero(self.owner >= 0)
        count = np.bincount(self.owner[owned], minlength=self.extent)
        return (
            self.source.order,
            self.source.words,
            runs,
            self.source.start[np.append(0, runs[:-1])],
            np.searchsorted(runs, self.tiles, side="right"),
            np.cumsum(slots) - slots,
            np.cumsum(count),
            owned[np.argsort(self.owner[owned], kind="stable")],
        )


def _columns(source: Sorted) -> tuple[int, int]:
    """Groups of columns, and columns of a group: all of a patch where there are several."""
    columns = source.places.size
    groups = 1 if source.ends.size > 1 else -(-columns // TOGETHER)
    return groups, -(-columns // groups)


def _abreast(width: int) -> int:
    """Lines of one thread."""
    return next((lines for most, lines in ABREAST if width <= most), 1)
