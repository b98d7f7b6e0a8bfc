"""Sums of a block on a grid in one sweep over the values as they are stored: nothing is cast or copied.

The sweep runs along the axis that shrinks the data most. Of each line of values along it, it takes the
contraction of y − r, Σ (y − r)², how many values are known, and a digest of which: the sum of random words of
the known rows, modulo 2⁶⁴. Lines with equal digests miss the same rows, so digests tell what a mask
separates into, and only a mask that does not separate is swept a second time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from xspline.sums import Tally

from .arrays import all_true, first_true, rounded, to_host
from .cuda import Cuda
from .factors import Found, factors_of
from .layout import Array, Bools, Floats, Piece, pieces
from .lines import Definition, Loops, Sorted, Sweeper, Swept
from .mask import Lines
from .scattered import Scattered
from .walk import ROWS, Accumulator, Walk

COLUMNS = 8  # values behind the axis of a sweep: with fewer, vector instructions are idle
SEARCHED = 1 << 16  # values searched at a time for the first finite one
SEARCHED_THERE = 1 << 20  # on a device, where each step waits for an answer
EACH = 20  # multiply-adds that an entry of the contracted lines costs afterwards


class Sweep:
    """One block, swept along one of its parts.

    Parameters
    ----------
    walk : Walk
    index : int
        Number of the part.
    sweeper : Sweeper, optional
        By default the one for the kind of the values.
    """

    def __init__(self, walk: Walk, index: int, sweeper: Sweeper | None = None) -> None:
        self.walk, self.index = walk, index
        self.sweeper = _sweeper(walk) if sweeper is None else sweeper
        self.rows = walk.rows(index, (0, walk.lengths[index]))
        self.lengths = tuple(1 if i == index else n for i, n in enumerate(walk.lengths))
        xp, device = walk.xp, walk.device
        members = (n if part.is_batch else 1 for part, n in zip(walk.parts, walk.lengths, strict=True))
        self.count = xp.zeros(self.lengths, dtype=xp.int64, device=device)
        self.digest = xp.zeros(self.lengths, dtype=xp.int64, device=device)
        self.power = xp.zeros(tuple(members), dtype=xp.float64, device=device)
        self._sorted: dict[bool, Sorted] = {}

    @staticmethod
    def of(walk: Walk) -> Sweep | None:
        """None where a block is not on a grid, has weights or labels outside the domains."""
        index, masked = _cheapest(walk), isinstance(walk.block.values, np.ma.MaskedArray)
        if index is None or masked or not walk.engine.sweeps or walk.block.weights or not _inside(walk):
            return None
        return None if Scattered.of(walk, walk.sites) else Sweep(walk, index)

    def found(self) -> Found | None:
        """What the block gives; None where the values hold an infinity or overflow."""
        walk, reference = self.walk, self._reference()
        moment = Accumulator(walk, walk.sites, pairs=False, last=self.index)
        for piece in self._pieces():
            swept = self._swept(piece, reference)
            if not all_true(walk.xp.isfinite(swept.power)):
                return None
            moment.add_lines(swept.sums, piece)
            self._add(piece, swept)
        count = walk.xp.sum(self.count, axis=self._summed, keepdims=True)
        total = int(walk.xp.sum(count))
        tally = Tally(math.prod(walk.lengths) - total)
        if not total:
            return Found(tally, count)
        separation = Lines(walk.parts, self.index, self.count, self.digest, self._known)
        factors = factors_of(walk, separation, total, self._pairs)
        weight = walk.xp.astype(count, walk.xp.float64)
        return Found(tally, count, self.power, weight, reference, moment.finish(), factors)

    def _add(self, piece: Piece, swept: Swept) -> None:
        spans = tuple(slice(1) if i == self.index else span for i, span in enumerate(piece.spans))
        self.count[spans], self.digest[spans] = swept.count, swept.digest
        members = tuple(s if i not in self._summed else slice(1) for i, s in enumerate(spans))
        self.power[members] += self.walk.xp.sum(swept.power, axis=self._summed, keepdims=True)

    def _pairs(self) -> Floats:
        """The second sweep: pairs [k.., o.., b..] of a mask that does not separate."""
        out = Accumulator(self.walk, self.walk.sites, pairs=True, last=self.index)
        for piece in self._pieces():
            out.add_lines(self._swept(piece, None).sums, piece)
        return out.finish()

    # Pieces: all rows of the swept part, some of the others

    def _pieces(self) -> Iterator[Piece]:
        """The same for the moment and for pairs, so that rows are built once."""
        walk = self.walk
        limit = max(1, walk.limit // self.sweeper.per_line(self._lines(pairs=False)))
        return pieces(walk.shape, walk.parts, limit, ROWS, kept=walk.parts[self.index].axes)

    @cached_property
    def _summed(self) -> tuple[int, ...]:
        return tuple(i for i, part in enumerate(self.walk.parts) if not part.is_batch)

    @cached_property
    def _stored(self) -> bool:
        """Whether the sweep reads the values as they are stored."""
        return self.sweeper.reads(self.walk.ordered)

    def _values(self, piece: Piece) -> tuple[Array, int]:
        """Values [before, n, columns] as the sweep reads them; the piece's first column.

        Where they are stored so the columns are those of the block, else those of the piece alone, a copy.
        """
        walk, index = self.walk, self.index
        before, after = (
            _range(piece.rows[s], walk.lengths[s]) for s in (slice(index), slice(index + 1, None))
        )
        if self._stored and before and after:
            shape = (-1, walk.lengths[index], math.prod(walk.lengths[index + 1 :]))
            return walk.xp.reshape(walk.ordered, shape)[before[0] : sum(before), ...], after[0]
        slab = self.sweeper.readable(walk.ordered[tuple(piece.slices[axis] for axis in walk.axis_order)])
        counts = [math.prod(n for _, n in rows) for rows in (piece.rows[:index], piece.rows[index + 1 :])]
        return walk.xp.reshape(slab, (counts[0], walk.lengths[index], counts[1])), 0

    def _swept(self, piece: Piece, reference: float | None) -> Swept:
        """Contracted lines [parts.., R], and power, count and digest [parts..]; the swept part has length 1."""
        xp, (values, column) = self.walk.xp, self._values(piece)
        after = math.prod(n for _, n in piece.rows[self.index + 1 :])
        lines = self._lines(pairs=reference is None)
        found = self.sweeper.sweep(values, column, after, lines, reference)
        shape = tuple(1 if i == self.index else n for i, (_, n) in enumerate(piece.rows))
        others = (*shape[: self.index], *shape[self.index + 1 :], lines.rows.extent)
        scalars = (a if a is None else xp.reshape(a, shape) for a in found[1:])
        return Swept(xp.reshape(found.sums, others), *scalars)

    def _lines(self, *, pairs: bool) -> Sorted:
        """What is contracted with."""
        if pairs not in self._sorted:
            self._sorted[pairs] = Sorted.of(self.rows.paired() if pairs else self.rows)
        return self._sorted[pairs]

    def _reference(self) -> float:
        """The first finite value, rounded to float32."""
        given = self.walk.block.reference
        if not self.walk.space.has_constant or given is not None:
            return given if self.walk.space.has_constant and given is not None else 0.0
        finite = _first_finite if isinstance(self.walk.block.values, np.ndarray) else self._first_there
        found = finite(self.walk.ordered)
        return 0.0 if found is None else rounded(found)

    def _first_there(self, values: Array) -> float | None:
        """`_first_finite` on a device."""
        xp = self.walk.xp
        flat = xp.reshape(values, (-1,))
        size = math.prod(values.shape)
        for first in range(0, size, SEARCHED_THERE):
            finite = xp.isfinite(flat[first : min(first + SEARCHED_THERE, size)])
            if bool(xp.any(finite)):
                return float(flat[first + first_true(finite, xp)[0]])
        return None

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
        return to_host(walk.xp.isfinite(slab)).reshape(lengths)


def _sweeper(walk: Walk) -> Sweeper:
    """Compiled loops for NumPy arrays, a kernel of its own for CuPy's, the definition for every other."""
    if isinstance(walk.block.values, np.ndarray):
        return Loops()
    if array_api_compat.is_cupy_array(walk.block.values):
        return Cuda(walk.xp, walk.device)
    return Definition(walk.engine, walk.xp, walk.device)


def _first_finite(values: NDArray[Any]) -> float | None:
    """The first finite value in C order; never a copy of all."""
    some = np.nditer(values, ["external_loop", "buffered", "zerosize_ok"], order="C", buffersize=SEARCHED)
    for part in some:
        finite = np.isfinite(part)
        if finite.any():
            return float(part[np.argmax(finite)])
    return None


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
