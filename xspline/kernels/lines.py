"""Lines of values along one axis, summed in one reading: the definition, and its twin in compiled loops.

A line is what a block holds along its swept axis at one place of the others. Both give, of each line, its
contraction with the rows, Σ e², how many rows are known and a digest of which.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from .contract import Engine
from .layout import Array, Integers
from .rows import Rows


@dataclass(frozen=True, eq=False)
class Sorted:
    """Rows of one coefficient axis sorted by cell.

    Attributes
    ----------
    rows : Rows
        As they come.
    order : ndarray, int64 [n]
        Rows sorted by where their patches start.
    ends : ndarray, int64 [cells]
        Number of sorted rows up to the end of each cell.
    start, values, words : ndarray, [n], [n, width], [n]
        Where patches start, their values, and a word of 64 random bits for each row, in this order.
    places : ndarray, int64 [width]
        Where values go, from the start of a patch on.
    """

    rows: Rows
    order: Integers
    ends: Integers
    start: Integers
    places: Integers
    values: NDArray[np.float64]
    words: Integers

    @staticmethod
    def of(rows: Rows) -> Sorted:
        """Sort the rows of one axis."""
        order = np.argsort(rows.start(), kind="stable")
        start = rows.start()[order]
        ends = np.flatnonzero(np.diff(start, append=-1)) + 1
        values = np.ascontiguousarray(rows.values[0][order])
        return Sorted(rows, order, ends, start, rows.places(), values, _words(order.size)[order])


@lru_cache(maxsize=8)
def _words(count: int) -> Integers:
    """One word for each row: sums of two sets of them are equal with a chance of 2⁻⁶⁴."""
    return np.random.default_rng(count).integers(-(2**63), 2**63, count, dtype=np.int64)


class Swept(NamedTuple):
    """What a sweep gives: sums [before, after, R], and of the moment power, count and digest [before, after]."""

    sums: Array
    power: Array = None
    count: Array = None
    digest: Array = None


class Sweeper(Protocol):
    """How lines are summed."""

    def per_line(self, lines: Sorted) -> int:
        """Numbers that the sums of one line take while they are made."""
        ...

    def reads(self, array: Array) -> bool:
        """Whether an array is read as it is stored."""
        ...

    def readable(self, array: Array) -> Array:
        """A copy of an array that is."""
        ...

    def sweep(self, values: Array, column: int, after: int, lines: Sorted, reference: float | None) -> Swept:
        """sums[p, r, start[i] + places[q]] = sum of values[i, q] e[p, i, r].

        Parameters
        ----------
        values : array, float32 or float64 [before, n, at least column + after]
        column : int
            The first to be read.
        after : int
            How many are.
        lines : Sorted
            The rows.
        reference : float or None
            e is values - reference, 0 where they are NaN; with None 1, and 0 there: then there are sums only.
        """
        ...


@dataclass(frozen=True)
class Definition:
    """Sweeps in the words of an array namespace, for devices.

    Attributes
    ----------
    engine : Engine
    xp, device
        The namespace, and where its arrays are.
    """

    engine: Engine
    xp: Any
    device: Any

    def per_line(self, lines: Sorted) -> int:
        return 4 * lines.order.size

    def reads(self, array: Array) -> bool:
        return array.dtype in (self.xp.float32, self.xp.float64)

    def readable(self, array: Array) -> Array:
        return self.xp.astype(array, self.xp.float64)

    def sweep(self, values: Array, column: int, after: int, lines: Sorted, reference: float | None) -> Swept:
        xp, values = self.xp, values[:, :, column : column + after]
        known = xp.logical_not(xp.isnan(values))
        e = xp.astype(known, xp.float64)
        if reference is not None:
            e = xp.where(known, xp.astype(values, xp.float64) - reference, xp.zeros_like(e))
        sums = xp.permute_dims(self.engine.scatter(e, 1, lines.rows), (0, 2, 1))
        if reference is None:
            return Swept(sums)
        number = xp.astype(known, xp.int64)
        words = number * xp.asarray(_words(lines.order.size)[:, None], device=self.device)
        return Swept(sums, xp.sum(e * e, axis=1), xp.sum(number, axis=1), xp.sum(words, axis=1))


class Loops:
    """Sweeps of NumPy arrays in compiled loops."""

    def __init__(self) -> None:
        self._kept = np.empty(0)  # memory fresh from the system costs more than the sums

    def per_line(self, lines: Sorted) -> int:
        return 2 * lines.rows.extent

    def reads(self, array: NDArray[Any]) -> bool:
        plain = array.dtype in (np.float32, np.float64) and array.dtype.isnative
        return bool(plain and array.flags.c_contiguous and array.flags.aligned)

    def readable(self, array: NDArray[Any]) -> NDArray[Any]:
        return np.require(array, np.float32 if array.dtype == np.float32 else np.float64, ["C", "A"])

    def sweep(
        self, values: NDArray[Any], column: int, after: int, lines: Sorted, reference: float | None
    ) -> Swept:
        from . import compiled_scatter  # numba takes 0.3 s to import: not before the first kernel call

        values, moment = values.view(), reference is not None
        values.flags.writeable = False  # as stores hand them out: one specialisation
        shape = len(values), after
        out, power = self._room((*shape, lines.rows.extent)), np.zeros(shape)
        count, digest = (np.zeros(shape, dtype=np.int64) for _ in range(2))
        with np.errstate(over="ignore"):  # digests are modulo 2⁶⁴; plain Python, uncompiled, would warn
            compiled_scatter.sweep(
                values, column, lines.order, lines.ends, lines.start, lines.places, lines.values, lines.words,
                reference or 0.0, moment, out, power, count, digest,
            )  # fmt: skip
        return Swept(out, power, count, digest)

    def _room(self, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Memory for sums, the same as before if there is enough."""
        size = int(np.prod(shape))
        if self._kept.size < size:
            self._kept = np.empty(size)
        return self._kept[:size].reshape(shape)
