"""Sums of a block on a grid in one sweep over the values as they are stored: nothing is cast or copied.

The sweep runs along the axis that shrinks the data most. Of each line of values along it, it takes the
contraction of y − r, Σ (y − r)², how many values are known, and a digest of which: the sum of random words of
the known rows, modulo 2⁶⁴. Lines with equal digests miss the same rows, so digests tell what a mask
separates into, and only a mask that does not separate is swept a second time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xspline.sums import Tally

from .arrays import rounded
from .factors import Found, factors_of
from .layout import Bools, Floats, Integers, Piece, pieces
from .mask import Lines
from .rows import Rows
from .scattered import Scattered
from .walk import ROWS, Accumulator, Walk

COLUMNS = 8  # values behind the axis of a sweep: with fewer, vector instructions are idle
SEARCHED = 1 << 16  # values searched at a time for the first finite one
EACH = 20  # multiply-adds that an entry of the contracted lines costs afterwards


class Sweep:
    """One block, swept along one of its parts.

    Parameters
    ----------
    walk : Walk
    index : int
        Number of the part.
    """

    def __init__(self, walk: Walk, index: int) -> None:
        self.walk, self.index = walk, index
        self.rows = walk.rows(index, (0, walk.lengths[index]))
        self.lengths = tuple(1 if i == index else n for i, n in enumerate(walk.lengths))
        self.count = np.zeros(self.lengths, dtype=np.int64)
        self.digest = np.zeros(self.lengths, dtype=np.int64)
        self._lines = np.empty(0)
        self.power = np.zeros([n if p.is_batch else 1 for p, n in zip(walk.parts, walk.lengths, strict=True)])

    @staticmethod
    def of(walk: Walk) -> Sweep | None:
        """None where a block is not on a grid, has weights or labels outside the domains."""
        values, index = walk.block.values, _cheapest(walk)
        plain = isinstance(values, np.ndarray) and not isinstance(values, np.ma.MaskedArray)
        if index is None or not plain or not walk.engine.sweeps or walk.block.weights or not _inside(walk):
            return None
        return None if Scattered.of(walk, walk.sites) else Sweep(walk, index)

    def found(self) -> Found | None:
        """What the block gives; None where the values hold an infinity or overflow."""
        walk, reference = self.walk, self._reference()
        moment = Accumulator(walk, walk.sites, pairs=False, last=self.index)
        for piece in self._pieces():
            lines, power, count, digest = self._swept(piece, reference, moment=True)
            if not np.isfinite(power).all():
                return None
            moment.add_lines(lines, piece)
            self._add(piece, power, count, digest)
        count = self.count.sum(axis=self._summed, keepdims=True)
        total = int(count.sum())
        tally = Tally(math.prod(walk.lengths) - total)
        if not total:
            return Found(tally, count)
        separation = Lines(walk.parts, self.index, self.count, self.digest, self._known)
        factors = factors_of(walk, separation, total, self._pairs)
        return Found(tally, count, self.power, count.astype(float), reference, moment.finish(), factors)

    def _add(self, piece: Piece, power: Floats, count: Integers, digest: Integers) -> None:
        spans = tuple(slice(1) if i == self.index else span for i, span in enumerate(piece.spans))
        self.count[spans], self.digest[spans] = count, digest
        members = tuple(s if i not in self._summed else slice(1) for i, s in enumerate(spans))
        self.power[members] += power.sum(axis=self._summed, keepdims=True)

    def _pairs(self) -> Floats:
        """The second sweep: pairs [k.., o.., b..] of a mask that does not separate."""
        out = Accumulator(self.walk, self.walk.sites, pairs=True, last=self.index)
        for piece in self._pieces():
            out.add_lines(self._swept(piece, 0.0, moment=False)[0], piece)
        return out.finish()

    # Pieces: all rows of the swept part, some of the others

    def _pieces(self) -> Iterator[Piece]:
        """The same for the moment and for pairs, so that rows are built once."""
        walk = self.walk
        limit = max(1, walk.limit // (2 * self.rows.extent))
        return pieces(walk.shape, walk.parts, limit, ROWS, kept=walk.parts[self.index].axes)

    @cached_property
    def _summed(self) -> tuple[int, ...]:
        return tuple(i for i, part in enumerate(self.walk.parts) if not part.is_batch)

    @cached_property
    def _stored(self) -> bool:
        """Whether the values are stored as the loops read them."""
        array = self.walk.ordered
        plain = array.dtype in (np.float32, np.float64) and array.dtype.isnative
        return bool(plain and array.flags.c_contiguous and array.flags.aligned)

    def _values(self, piece: Piece) -> tuple[NDArray[Any], int]:
        """Values [before, n, columns], float32 as they are and everything else float64; the piece's first column.

        Where they are stored so the columns are those of the block, else those of the piece alone, a copy.
        """
        walk, index = self.walk, self.index
        before, after = (
            _range(piece.rows[s], walk.lengths[s]) for s in (slice(index), slice(index + 1, None))
        )
        if self._stored and before and after:
            array = walk.ordered.reshape(-1, walk.lengths[index], math.prod(walk.lengths[index + 1 :]))
            view, column = array[before[0] : sum(before)], after[0]
        else:
            slab = walk.ordered[tuple(piece.slices[axis] for axis in walk.axis_order)]
            kind = np.float32 if slab.dtype == np.float32 else np.float64
            shape = [math.prod(n for _, n in rows) for rows in (piece.rows[:index], piece.rows[index + 1 :])]
            view, column = np.require(slab, kind, ["C", "A"]).reshape(shape[0], -1, shape[1]).view(), 0
        view.flags.writeable = False  # as stores hand them out: one specialisation
        return view, column

    def _swept(
        self, piece: Piece, reference: float, moment: bool
    ) -> tuple[Floats, Floats, Integers, Integers]:
        """Contracted lines [parts.., R], and power, count and digest [parts..]; the swept part has length 1."""
        (values, column), (rows, extent) = self._values(piece), self._tables[moment]
        before, after = len(values), math.prod(n for _, n in piece.rows[self.index + 1 :])
        size = before * after * extent
        if self._lines.size < size:
            self._lines = np.empty(size)  # kept: memory fresh from the system costs more than the sums
        out, power = self._lines[:size].reshape(before, after, extent), np.zeros((before, after))
        count, digest = (np.zeros((before, after), dtype=np.int64) for _ in range(2))
        with np.errstate(over="ignore"):  # digests are modulo 2⁶⁴; plain Python, uncompiled, would warn
            _kernels().sweep(
                values, column, rows.order, rows.ends, rows.start, rows.places, rows.values, rows.words,
                reference, moment, out, power, count, digest,
            )  # fmt: skip
        lines = [1 if i == self.index else n for i, (_, n) in enumerate(piece.rows)]
        others = [n for i, n in enumerate(lines) if i != self.index]
        return out.reshape(*others, extent), power.reshape(lines), count.reshape(lines), digest.reshape(lines)

    @cached_property
    def _tables(self) -> dict[bool, tuple[Sorted, int]]:
        """What is contracted with, for the moment (True) and for pairs."""
        both = {True: self.rows, False: self.rows.paired()}
        return {moment: (Sorted.of(rows), rows.extent) for moment, rows in both.items()}

    def _reference(self) -> float:
        """The first finite value, rounded to float32."""
        given = self.walk.block.reference
        if not self.walk.space.has_constant or given is not None:
            return given if self.walk.space.has_constant and given is not None else 0.0
        values = self.walk.ordered
        lines = np.nditer(
            values, ["external_loop", "buffered", "zerosize_ok"], order="C", buffersize=SEARCHED
        )
        for some in lines:  # never a copy of all
            finite = np.isfinite(some)
            if finite.any():
                return rounded(float(some[np.argmax(finite)]))
        return 0.0

    def _known(self, at: tuple[slice, ...]) -> Bools:
        """Validity [parts..] at a place: one row or all of each part."""
        walk, slices = self.walk, [slice(None)] * len(self.walk.shape)
        for part, rows in zip(walk.parts, at, strict=True):
            if rows.start is not None and part.axes:
                place = np.unravel_index(rows.start, [walk.shape[axis] for axis in part.axes])
                for axis, i in zip(part.axes, place, strict=True):
                    slices[axis] = slice(int(i), int(i) + 1)
        slab = walk.ordered[tuple(slices[axis] for axis in walk.axis_order)]
        lengths = [n if rows.start is None else 1 for n, rows in zip(walk.lengths, at, strict=True)]
        return np.asarray(np.isfinite(slab)).reshape(lengths)


@dataclass(frozen=True, eq=False)
class Sorted:
    """Rows of one coefficient axis sorted by cell: what `compiled_scatter.sweep` takes."""

    order: Integers
    ends: Integers
    start: Integers
    places: Integers
    values: Floats
    words: Integers

    @staticmethod
    def of(rows: Rows) -> Sorted:
        order = np.argsort(rows.start(), kind="stable")
        start = rows.start()[order]
        ends = np.flatnonzero(np.diff(start, append=-1)) + 1
        values = np.ascontiguousarray(rows.values[0][order])
        return Sorted(order, ends, start, rows.places(), values, _words(order.size)[order])


@lru_cache(maxsize=8)
def _words(count: int) -> Integers:
    """One word of 64 random bits for each row: sums of two sets of them are equal with a chance of 2⁻⁶⁴."""
    return np.random.default_rng(count).integers(-(2**63), 2**63, count, dtype=np.int64)


def _range(rows: Sequence[tuple[int, int]], lengths: Sequence[int]) -> tuple[int, int] | None:
    """First and number of the raveled indices of a box, if they follow each other."""
    first, count = 0, 1
    for (low, n), length in zip(rows, lengths, strict=True):
        if count > 1 and n < length:
            return None
        first, count = first * length + low, count * n
    return first, count


def _cheapest(walk: Walk) -> int | None:
    """The part to sweep along: few functions, and few entries left for what comes after."""
    work = {}
    for i, part in enumerate(walk.parts):
        after = math.prod(walk.lengths[i + 1 :])
        if part.is_batch or len(part.axes) != 1 or len(part.coefficient_axes) != 1 or after < COLUMNS:
            continue
        if 0 < (rows := walk.lengths[i]) <= ROWS:
            axis = part.coefficient_axes[0]
            features = walk.space.features[axis]
            left = walk.reaches[axis].extent * features.offsets / rows
            work[i] = features.width * (features.width + 3) / 2 + EACH * left
    return min(work, key=lambda i: (work[i], i)) if work else None


def _inside(walk: Walk) -> bool:
    """Whether all labels are inside their domains."""
    for axis, features in enumerate(walk.space.features):
        x = walk.coordinates_of(axis)
        if features.domain is None:
            inside = np.isfinite(x)
        else:
            low, high = np.nextafter(features.domain, (-np.inf, np.inf))
            inside = (x >= low) & (x <= high)
        if not inside.all():
            return False
    return True


def _kernels() -> ModuleType:
    from . import compiled_scatter  # numba takes 0.3 s to import: not before the first kernel call

    return compiled_scatter
