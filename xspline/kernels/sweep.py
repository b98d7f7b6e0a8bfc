"""Sums of a block on a grid in one sweep over the values as they are stored: nothing is cast or copied.

The sweep runs along the axis that shrinks the data most. Of each line of values along it, it takes the
contraction of y − r, Σ (y − r)², how many values are known, and which: in bits, or on a GPU as a digest. That tells
what a mask separates into, and only a mask that does not separate is swept a second time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xspline.kernels.block import Array, Floats, Scratch, first_true, rounded
from xspline.kernels.component import SumsByCell, SumsBySlab
from xspline.kernels.device.cuda import CudaSweeper
from xspline.kernels.engines import Stage, work
from xspline.kernels.rows import GROUP, LineSums, Rows
from xspline.kernels.separation import BlockResult, LineMasks, factors_of
from xspline.kernels.walk import SlabBox, Walk, slab_boxes
from xspline.sums import Tally


class CompiledSweeper:
    """How lines of values along one axis are summed, in one reading: NumPy's in compiled loops.

    The sums of a sweep are those of the last one's memory: they are used before the next.
    """

    _scratch = Scratch()

    def per_line(self, rows: Rows) -> int:
        """Entries of a slab that one line stands for: sums of pairs may take more memory than a slab, 4 to 12 MiB.

        With a quarter of them, contractions of what lies in more cells than rows take twice as long.
        """
        return max(1, rows.extent // 2)

    def told(self, rows: Rows) -> tuple[int, Any]:
        """How many numbers of which type tell the rows that a line knows."""
        return rows.sorted.groups, np.uint8

    def reads(self, array: NDArray[Any]) -> bool:
        """Whether an array is read as it is stored."""
        plain = array.dtype in (np.float32, np.float64) and array.dtype.isnative
        return bool(plain and array.flags.c_contiguous and array.flags.aligned)

    def readable(self, array: NDArray[Any]) -> NDArray[Any]:
        """A copy of an array that is."""
        return np.require(array, np.float32 if array.dtype == np.float32 else np.float64, ["C", "A"])

    def sweep(
        self, values: Array, column: int, after: int, rows: Rows, reference: float | None, known: Any = None
    ) -> LineSums:
        """sums[p, r, R] = sum over the rows i of values[i, R] e[p, i, r].

        The values are [before, n, at least column + after], of which `after` columns are read from `column` on; `rows`
        are of one coefficient axis. e is values - reference, 0 where they are NaN; with None 1, and 0 there: then there
        are sums only, from what is `known` by the sweep of the same lines with a reference.
        """
        from xspline.kernels.compiled.contraction import sweep, sweep_known

        sorted_rows, shape = rows.sorted, (len(values), after)
        sums = self._scratch.take((*shape, rows.extent))
        if reference is None:
            sweep_known(np.ascontiguousarray(known), sorted_rows, sums)
            return LineSums(sums)
        values = values.view()
        values.flags.writeable = False  # as stores hand them out: one specialisation
        power = np.zeros(shape)
        bits = np.zeros((len(values), sorted_rows.groups, after), dtype=np.uint8)
        sweep(values, column, sorted_rows, reference, sums, power, bits)
        return LineSums(sums, power, np.bitwise_count(bits).sum(axis=1, dtype=np.int64), bits)


class Sweep:
    """One block, swept along one of its slab axes.

    `index` is the number of the slab axis. The sweeper is by default compiled loops for NumPy arrays, a kernel of its
    own for CuPy's.
    """

    def __init__(self, walk: Walk, index: int, sweeper: CompiledSweeper | CudaSweeper | None = None) -> None:
        self.walk, self.index = walk, index
        default = CompiledSweeper() if walk.on_host else CudaSweeper(walk.xp, walk.device)
        self.sweeper = default if sweeper is None else sweeper
        self._stored = self.sweeper.reads(walk.ordered)
        self.rows = walk.rows(index, (0, walk.lengths[index]))
        self.lines = LineMasks(walk, index, *self.sweeper.told(self.rows))

    @staticmethod
    def of(walk: Walk) -> Sweep | None:
        """Return the sweep of a block on a grid of NumPy's or CuPy's, without weights, all labels inside; else None."""
        index = _cheapest(walk)
        if index is None or not walk.engine.sweeps or walk.block.weights:
            return None
        for axis, features in enumerate(walk.space.features):
            x, domain = walk.coordinates_of(axis), features.domain
            if x.dtype.kind == "c":
                x = np.where(features.locate(x)[0] < 0, np.nan, 0.0)
            low, high = np.nextafter(domain or (-np.inf, np.inf), (-np.inf, np.inf))
            if not (np.isfinite(x) & (x >= low) & (x <= high)).all():
                return None
        return None if SumsByCell.of(walk, walk.groups) else Sweep(walk, index)

    def result(self) -> BlockResult | None:
        """Return what the block gives; None where the values hold an infinity or overflow."""
        walk, xp, reference = self.walk, self.walk.xp, self._reference()
        moment = SumsBySlab(walk, walk.groups, pairs=False, last=self.index)
        power, count = (
            xp.zeros(walk.member_shape, dtype=kind, device=walk.device) for kind in (xp.float64, xp.int64)
        )
        for box in self._boxes():
            lines = self._swept(box, self.rows, reference)
            if not bool(xp.all(xp.isfinite(lines.power))):
                return None
            moment.add(lines.sums, box)
            self.lines.known[self.lines.spans(box)] = lines.known
            members = tuple(slice(1) if i in walk.pooled else span for i, span in enumerate(box.spans))
            power[members] += xp.sum(lines.power, axis=walk.pooled, keepdims=True)
            count[members] += xp.sum(lines.count, axis=walk.pooled, keepdims=True)
        total = int(xp.sum(count))
        tally = Tally(math.prod(walk.lengths) - total)
        if not total:
            return BlockResult(tally, count)
        which = np.array((self.index, *walk.lengths)), self.lines.known
        factors = factors_of(walk, self.lines, self._pairs, which)
        weight = xp.astype(count, xp.float64)
        return BlockResult(tally, count, power, weight, reference, moment.finish(), factors)

    def _pairs(self) -> Floats:
        """The second sweep: pairs [k.., o.., b..] of a mask that does not separate."""
        out = SumsBySlab(self.walk, self.walk.groups, pairs=True, last=self.index)
        rows = self.rows.folded() if out.folded else self.rows.paired()
        for box in self._boxes():
            out.add(self._swept(box, rows, None).sums, box)
        return out.finish()

    def _boxes(self) -> Iterator[SlabBox]:
        """Yield boxes of all rows of the swept axis and some of the others; both sweeps have the same."""
        walk = self.walk
        limit = max(1, walk.limit // self.sweeper.per_line(self.rows))
        whole = walk.slab_axes[self.index].axes
        return slab_boxes(walk.shape, walk.slab_axes, limit, walk.rows_limit, whole)

    def _swept(self, box: SlabBox, rows: Rows, reference: float | None) -> LineSums:
        """Contracted lines [.., R], and what goes with a reference, with the axes of slabs."""
        xp, index, (values, column) = self.walk.xp, self.index, self._values(box)
        after, shape = math.prod(box.shape[index + 1 :]), (*box.shape[:index], 1, *box.shape[index + 1 :])
        told = self.lines.known[self.lines.spans(box)]
        known = xp.reshape(told, (-1, told.shape[index], after))
        lines = self.sweeper.sweep(values, column, after, rows, reference, known)
        sums = xp.reshape(lines.sums, (*shape[:index], *shape[index + 1 :], rows.extent))
        if reference is None:
            return LineSums(sums)
        power, count = (xp.reshape(a, shape) for a in lines[1:3])
        return LineSums(sums, power, count, xp.reshape(lines.known, told.shape))

    def _values(self, box: SlabBox) -> tuple[Array, int]:
        """Values [before, n, columns] as the sweep reads them; the box's first column.

        Where they are stored so the columns are those of the block, else those of the box alone, a copy.
        """
        walk, index = self.walk, self.index
        length, others = walk.lengths[index], (slice(index), slice(index + 1, None))
        before, after = (_range(box.rows[s], walk.lengths[s]) for s in others)
        if self._stored and before and after:
            shape = (-1, length, math.prod(walk.lengths[index + 1 :]))
            return walk.xp.reshape(walk.ordered, shape)[before[0] : sum(before), ...], after[0]
        slab = self.sweeper.readable(walk.ordered[tuple(box.slices[axis] for axis in walk.axis_order)])
        counts = [math.prod(box.shape[s]) for s in others]
        return walk.xp.reshape(slab, (counts[0], length, counts[1])), 0

    def _reference(self) -> float:
        """The first finite value, rounded to float32."""
        walk, xp = self.walk, self.walk.xp
        if not walk.space.has_constant:
            return 0.0
        if walk.on_host:
            # In C order, and never a copy of all.
            flags: Any = ["external_loop", "buffered", "zerosize_ok"]
            for values in np.nditer(walk.ordered, flags, order="C", buffersize=1 << 16):
                finite = np.isfinite(values)
                if finite.any():
                    return rounded(float(values[np.argmax(finite)]))
            return 0.0
        flat, size = xp.reshape(walk.ordered, (-1,)), math.prod(walk.shape)
        step = 1 << 20  # each waits for an answer of the device
        for first in range(0, size, step):
            finite = xp.isfinite(flat[first : min(first + step, size)])
            if bool(xp.any(finite)):
                return rounded(float(flat[first + first_true(finite, xp)[0]]))
        return 0.0


def _range(rows: Sequence[tuple[int, int]], lengths: Sequence[int]) -> tuple[int, int] | None:
    """First and number of the raveled indices of a box, if they follow each other."""
    first, count = 0, 1
    for (low, n), length in zip(rows, lengths, strict=True):
        if count > 1 and n < length:
            return None
        first, count = first * length + low, count * n
    return first, count


def _cheapest(walk: Walk) -> int | None:
    """The slab axis to sweep along, for the least work of sweep and contractions after it."""
    costs, shape, size = {}, walk.lengths, math.prod(walk.lengths)
    stages = [_stage(walk, i) for i in range(len(shape))]
    for i, axis in enumerate(walk.slab_axes):
        # Values behind the axis: vector instructions would be idle.
        few = math.prod(shape[i + 1 :]) < 8
        if axis.is_batch or len(axis.axes) != 1 or len(axis.coefficient_axes) != 1 or few:
            continue
        if 0 < shape[i] <= walk.rows_limit:
            (a,) = axis.coefficient_axes
            features = walk.space.features[a]
            if features.support.everywhere and not walk.on_host:  # its kernel moves from support to support
                continue
            products = features.width * (features.width + 1) // 2
            own = size * (features.width + products)
            # Each cell looks up its groups of rows, which takes as long as adding what they have.
            if walk.on_host:
                cells = min(max(walk.ranges[a].extent - features.support.near + 1, 1), shape[i])
                additions = cells * (1 + math.ceil(shape[i] / cells / GROUP))
                own = size // shape[i] * additions * 2 * products
            rest = [stages[j] for j, other in enumerate(walk.slab_axes) if j != i and other.coefficient_axes]
            swept = (*shape[:i], stages[i][2], *shape[i + 1 :])
            costs[i] = own + min(work(swept, order) for order in itertools.permutations(rest))
    return min(costs, key=lambda i: (costs[i], i)) if costs else None


def _stage(walk: Walk, index: int) -> Stage:
    """The contraction of pairs along a slab axis."""
    axes, n = walk.slab_axes[index].coefficient_axes, walk.lengths[index]
    features = [(walk.space.features[a], walk.ranges[a].extent) for a in axes]
    extent = math.prod(length * f.support.depth(pairs=True) for f, length in features)
    return index, n, extent, n * math.prod(f.width * (f.width + 1) // 2 for f, _ in features)
