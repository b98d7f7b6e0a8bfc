"""Sums over pairs of observations that follow each other along a series: of a block, and across the edges of parts."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from xspline.kernels.block import Array, Block, Floats, Group, Layout, slab_entries, to_host
from xspline.kernels.component import SumsBySlab
from xspline.kernels.engines import choose_engine
from xspline.kernels.passes import accumulate
from xspline.kernels.series.lines import Lines
from xspline.kernels.walk import Walk
from xspline.spaces import Space
from xspline.spaces.means import CellSpace, middle
from xspline.sums import Factor, Gram, Sums, digest_key
from xspline.sums.memory import Edge, Memory, Series, folded


class _Pairs:
    """Sums over pairs in the making: of each slot of `Memory.lagged`, parts to be merged."""

    def __init__(self, space: Space, series: Series) -> None:
        self.space, self.series = space, series
        self.slots: list[list[Sums]] = [[] for _ in range(3 * series.lags)]

    def add(self, block: Block, plain: Sums, weight: Floats, cut: int | None = None) -> None:
        """Add the pairs of a block along its series; those alone that reach over row `cut` if that is given.

        Parameters
        ----------
        block : on the host, with labels and weights as they are.
        plain : its sums. Where the gaps of all lines are alike, G is a product, and so it is of pairs.
        weight : `line_weights` of the block.
        """
        if not plain.gram.terms:
            return
        series, k = self.series, self.series.coefficient
        features = CellSpace.over(self.space, block.coordinates).features[k]
        lines = Lines.of(block, series, features, float(plain.reference.ravel()[0]))
        size = lines.phi.shape[1]
        spanned = {axis for span in series.spans for axis in span} | set(series.batch_axes)
        pools = any(n > 1 and axis not in spanned for axis, n in enumerate(block.values.shape))
        # Of lines that are pooled gaps may differ, and G is a product all the same.
        alone = [f for f in plain.gram.terms[0] if f.axes == (k,) and math.prod(f.batch) == 1]
        along = alone[0] if alone and len(plain.gram.terms) == 1 and not pools else None
        totals, scalars = lines.summed(weight.ravel(), cut, grams=along is None)
        slots = [slot for slot, own in enumerate(scalars) if own[:, 2].any()]
        if along is None:
            grams = self._grams(block, plain, cut, slots, totals[slots, :, size:])
        else:
            # A weight of all observations is in the factor of the first group, see `Walk.weight_groups`.
            numbers = [float(own) for axes, own in block.weights if not axes and k in series.groups[0][1]]
            grams = self._products(lines, weight.ravel(), math.prod(numbers), plain, along, cut, slots)
        moments = self._over_places(block, totals[slots, :, :size], pairs=False)
        for slot, moment, gram in zip(slots, moments, grams, strict=True):
            power, mass, count = (self._members(a.reshape(lines.rest)) for a in scalars[slot].T)
            about = plain.reference
            if slot < series.lags:  # of differences the constant is none
                mass, about = np.zeros_like(mass), np.zeros_like(about)
            moment = np.moveaxis(moment, len(series.spans) - 1, k)
            own = Sums(plain.window, gram, moment, power, mass, count.astype(np.int64), about)
            self.slots[slot].append(own)

    def _products(
        self,
        lines: Lines,
        weight: Floats,
        own: float,
        plain: Sums,
        along: Factor,
        cut: int | None,
        slots: Sequence[int],
    ) -> Iterator[Gram]:
        """Yield G of slots where the gaps of all lines are alike: one tells for all, of the factor's `own` weight."""
        used = np.flatnonzero(weight > 0)
        line = next(int(i) for i in used if np.isfinite(lines.values[lines.used, i]).any())
        size = lines.phi.shape[1]
        upper = lines.along(line).summed(np.full(1, own), cut, grams=True)[0][:, 0, size:]
        for slot in slots:
            pairs = np.zeros((size, size))
            i, j = np.triu_indices(size)
            pairs[i, j - i] = upper[slot]
            pairs = pairs.reshape(size, size, *(1,) * plain.batch_ndim)
            key = digest_key("series", repr((slot, cut, along.key)))
            factor = Factor(along.axes, along.window, pairs, key)
            yield Gram((tuple(factor if f is along else f for f in plain.gram.terms[0]),), plain.batch_ndim)

    def _grams(
        self, block: Block, plain: Sums, cut: int | None, slots: Sequence[int], upper: Floats
    ) -> Iterator[Gram]:
        """Yield G of slots from the upper triangles of their lines, [slots, C, Q]."""
        k, axes = self.series.coefficient, tuple(range(len(plain.window)))
        keys = [f.key for term in plain.gram.terms for f in term]
        size = plain.window[k][1]
        others = len(axes) - 1
        i, j = np.triu_indices(size)
        for slot, own in zip(slots, self._over_places(block, upper, pairs=True), strict=True):
            lengths = own.shape[:others]
            offsets = own.shape[others : 2 * others]
            batch = own.shape[2 * others + 1 :]
            pairs = np.zeros((*lengths[:k], size, *lengths[k:], *offsets[:k], size, *offsets[k:], *batch))
            np.moveaxis(pairs, (k, len(axes) + k), (0, 1))[i, j - i] = np.moveaxis(own, 2 * others, 0)
            key = digest_key("series", repr((slot, cut, keys)))
            yield Gram(((Factor(axes, plain.window, pairs, key),),), plain.batch_ndim)

    def line_weights(self, block: Block) -> Floats:
        """Return the weight of each line of a block, without the axis of the series; 0 for lines outside."""
        axis, shape = self.series.axis, list(block.values.shape)
        shape[axis] = 1
        weight = np.ones(shape)
        for axes, own in block.weights:
            weight *= np.nan_to_num(_along(to_host(own), axes, len(shape)))
        features = CellSpace.over(self.space, block.coordinates).features
        for k, (x, span) in enumerate(zip(block.coordinates, self.series.spans, strict=True)):
            if k != self.series.coefficient:
                cell, _ = features[k].locate(np.ravel(x))
                weight *= _along((cell >= 0).reshape(x.shape), span, len(shape))
        return np.squeeze(weight, axis)

    def _members(self, lines: Array) -> Array:
        """Sum numbers of lines over all but the batch, in the order of its axes."""
        full = np.expand_dims(lines, self.series.axis)
        batch = self.series.batch_axes
        total = full.sum(axis=tuple(a for a in range(full.ndim) if a not in batch))
        return np.transpose(total, [sorted(batch).index(a) for a in batch])

    def _over_places(self, block: Block, entries: Floats, *, pairs: bool) -> Iterator[Floats]:
        """Yield what lines have in each slot, [slots, C, m], contracted over their places: [k.., o.., m, b..].

        The coordinate of the series is not among them. What a line has comes last, where loops are fast.
        """
        series, k = self.series, self.series.coefficient
        groups = [
            Group(tuple(a - (a > series.axis) for a in data), tuple(c - (c > k) for c in coefficients))
            for data, coefficients in series.groups
            if k not in coefficients
        ]
        rest = [n for axis, n in enumerate(block.values.shape) if axis != series.axis]
        last, batch = len(rest), tuple(a - (a > series.axis) for a in series.batch_axes)
        features = list(CellSpace.over(self.space, block.coordinates).features)
        space: Any = SimpleNamespace(features=(*features[:k], *features[k + 1 :]))
        array = np.moveaxis(entries, 0, 1).reshape(*rest, -1)
        own = Block(array, (*block.coordinates[:k], *block.coordinates[k + 1 :]))
        layout = Layout(tuple(groups), (last, *batch))
        walk = Walk(own, layout, space, choose_engine(array), slab_entries(array))
        sums = SumsBySlab(walk, walk.groups, pairs)
        for box in walk.boxes():
            sums.add(walk.values(box), box)
        total, at = sums.finish(), (1 + pairs) * len(space.features)
        total = total.reshape(*total.shape[:at], len(entries), entries.shape[2], *total.shape[at + 1 :])
        yield from np.moveaxis(total, at, 0)

    def merged(self, known: tuple[Sums, ...] = ()) -> tuple[Sums, ...]:
        """Return the sums of each slot, with those that were `known` before; Σw of differences is none.

        A slot without pairs is zero, of one number for the whole batch.
        """
        frame = self.space.frame
        nothing = Sums.zero(frame, (1,) * len(self.series.batch_axes))
        before = known or (nothing,) * len(self.slots)
        slots = zip(before, self.slots, strict=True)
        return tuple(Sums.merge([s for s in (a, *own) if s.gram.terms] or [a], frame) for a, own in slots)


def remembered(block: Block, plain: Sums, space: Space, series: Series) -> Memory:
    """Return the sums over pairs of a block, whose series is one coordinate's axis, beside its `plain` ones."""
    pairs = _Pairs(space, series)
    if 0 in block.values.shape:
        return Memory(series, pairs.merged())
    values = to_host(np.ma.filled(block.values, np.nan) if np.ma.isMA(block.values) else block.values)
    values = values if values.dtype in (np.float32, np.float64) else values.astype(np.float64)
    start = block.start or (0,) * values.ndim
    stop = tuple(a + n for a, n in zip(start, values.shape, strict=True))
    weights = tuple((axes, np.asarray(to_host(w), dtype=np.float64)) for axes, w in block.weights)
    host = replace(block, values=values, start=start, weights=weights)
    weight = pairs.line_weights(host)
    pairs.add(host, plain, weight)
    edge = Edge(start, stop, values, block.coordinates, weights).trimmed(series)
    x = edge.coordinates[series.coefficient]
    used = _along(space.features[series.coefficient].locate(x)[0] >= 0, (series.axis,), values.ndim)
    used = used & np.expand_dims(weight > 0, series.axis) & np.isfinite(edge.values)
    edge = replace(edge, values=np.where(used, edge.values, np.nan))
    return Memory(series, pairs.merged(), (edge,))


def _along(array: Array, axes: tuple[int, ...], ndim: int) -> Array:
    """Return an array over some data axes so that it broadcasts over all."""
    order = np.argsort(axes)
    extents = dict(zip(axes, array.shape, strict=True))
    return array.transpose(order).reshape([extents.get(a, 1) for a in range(ndim)])


def joined(sums: Sums, space: Space) -> Sums:
    """Return sums with their edges joined where blocks of one source meet: no boundary of a block is a gap."""
    memory = sums.memory
    if memory is None or len(memory.edges) < 2:
        return sums
    series = memory.series
    pairs = _Pairs(space, memory.series)
    edges = list(memory.edges)
    count = 0
    while count != len(edges):
        count = len(edges)
        for axis in range(edges[0].values.ndim):
            join = (lambda a, b: _join(pairs, a, b)) if axis == series.axis else None
            edges = folded(edges, series, axis, join)
    return replace(sums, memory=Memory(series, pairs.merged(memory.lagged), tuple(edges)))


def closed(sums: Sums, space: Space, *, is_last: bool = True) -> Sums:
    """Return sums with the edges of all parts joined by labels, where one follows the other at the same places.

    Those that are not the last keep edges for others.

    Raises
    ------
    ValueError : parts at the same places alternate along the series.
    """
    memory = sums.memory
    if memory is None or not memory.edges:
        return sums
    series, pairs, kept = memory.series, _Pairs(space, memory.series), list[Edge]()
    for row in _by_place(memory):
        edge = row[0]
        for after in row[1:]:
            first, last = (x.coordinates[series.coefficient][i] for x, i in ((after, 0), (edge, -1)))
            distance = float(middle(first) - middle(last))
            if distance < 0.5 * series.step:
                begins, ends = _label(after, 0, space, series), _label(edge, -1, space, series)
                raise ValueError(
                    f"two parts alternate along {series.dim!r} at the same places: one begins at {begins}, before the "
                    f"other ends at {ends}, and errors=AR1({series.dim!r}) needs "
                    "the order of observations; share them out by place, or in periods that follow each other "
                    f"(holder={series.dim + '.year'!r})"
                )
            if distance < (series.lags + 0.5) * series.step:
                _join(pairs, edge, after)
                edge = edge.beside(after, series.axis, series).trimmed(series)
            else:
                kept.append(edge)
                edge = after
        kept.append(edge)
    return replace(sums, memory=Memory(series, pairs.merged(memory.lagged), () if is_last else tuple(kept)))


def begins(sums: Sums) -> float:
    """Return the first number of the series in sums, infinite without one, and 0 where no errors remember.

    Parts that are joined one after the other are to be in this order, or an edge may end up within a gap that others
    were joined across.
    """
    memory = sums.memory
    if memory is None:
        return 0.0
    k = memory.series.coefficient
    return min((float(middle(edge.coordinates[k][0])) for edge in memory.edges), default=math.inf)


def _label(edge: Edge, i: int, space: Space, series: Series) -> str:
    name = space.names[series.coefficient]
    x = np.asarray([middle(edge.coordinates[series.coefficient][i])])
    return str(np.asarray(space.axis(name).to_label(x)).ravel()[0])


def _by_place(memory: Memory) -> Iterator[list[Edge]]:
    """Yield the edges at each place, in the order of the series."""
    k, rows = memory.series.coefficient, dict[bytes, list[Edge]]()
    for edge in sorted(memory.edges, key=lambda edge: float(middle(edge.coordinates[k][0]))):
        shape = [n for i, n in enumerate(edge.values.shape) if i != memory.series.axis]
        digest = hashlib.sha256(repr((shape, [axes for axes, _ in edge.weights])).encode())
        for x in (*edge.coordinates[:k], *edge.coordinates[k + 1 :], *(w for _, w in edge.weights)):
            digest.update(np.ascontiguousarray(x, dtype=np.result_type(x, np.float64)).tobytes())
        rows.setdefault(digest.digest(), []).append(edge)
    yield from rows.values()


def _join(pairs: _Pairs, edge: Edge, after: Edge) -> None:
    """Add the pairs of which one lies in each of two edges that follow each other."""
    axis, k, lags = pairs.series.axis, pairs.series.coefficient, pairs.series.lags
    n = len(edge.coordinates[k])
    first = max(n - lags, 0)
    both = edge.beside(after, axis, pairs.series)
    kept = np.arange(first, min(n + lags, len(both.coordinates[k])))
    x = both.coordinates[k][kept]
    coordinates = (*both.coordinates[:k], x, *both.coordinates[k + 1 :])
    start = tuple(0 if a == axis else s for a, s in enumerate(both.start))
    block = Block(np.take(both.values, kept, axis), coordinates, both.weights, start)
    own = CellSpace.over(pairs.space, coordinates)
    layout = Layout(tuple(Group(*group) for group in pairs.series.groups), pairs.series.batch_axes)
    pairs.add(block, accumulate(block, layout, own), pairs.line_weights(block), n - first)
