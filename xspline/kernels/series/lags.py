"""Sums over pairs of observations that follow each other along a series: of a block, and across the edges of parts."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from xspline.kernels.block import Array, Block, Floats, Group, Layout, slab_entries, to_host
from xspline.kernels.component import SumsBySlab
from xspline.kernels.engines import choose_engine
from xspline.kernels.passes import accumulate
from xspline.kernels.walk import Walk
from xspline.spaces import Frame, Space
from xspline.spaces.features import Features, Global
from xspline.spaces.means import CellSpace, middle
from xspline.sums import Factor, Gram, Sums, digest_key
from xspline.sums.memory import Edge, Memory, Series, folded


@dataclass(frozen=True, eq=False)
class Rows(Global):
    """Functions of a coordinate that have the rows of a table at whole numbers.

    Parameters
    ----------
    table : [n, K]
    """

    table: Floats = field(default_factory=lambda: np.zeros((0, 0)))

    @cached_property
    def size(self) -> int:
        return int(self.table.shape[1])

    def constant(self) -> Floats:
        return np.zeros(self.size)

    def values(self, x: Floats, order: int) -> Floats:
        return np.array(self.table[x.astype(np.int64)])


@dataclass(frozen=True, eq=False)
class _Space:
    """What sums of a block need to know of a space."""

    features: tuple[Features, ...]
    frame: Frame
    has_constant: bool = False


class _Pairs:
    """Sums over pairs in the making: of each slot of `Memory.lagged`, parts to be merged."""

    def __init__(self, space: Space, series: Series) -> None:
        self.space, self.series = space, series
        self.layout = Layout(tuple(Group(*group) for group in series.groups), series.batch_axes)
        self.slots: list[list[Sums]] = [[] for _ in range(3 * series.lags)]

    def add(self, block: Block, plain: Sums, cut: int = -1) -> None:
        """Add the pairs of a block along its series; those alone that reach over row `cut` if that is given.

        Parameters
        ----------
        block : on the host, with labels and weights as they are.
        plain : its sums. Where the gaps of all lines are alike, G is a product, and so it is of pairs.
        """
        from xspline.kernels.compiled import series as loops  # imports numba

        if not plain.gram.terms:
            return
        series, k = self.series, self.series.coefficient
        x, features = block.coordinates[k], CellSpace.over(self.space, block.coordinates).features[k]
        values = np.moveaxis(block.values, series.axis, 0)
        rest = values.shape[1:]
        flat = np.require(values.reshape(len(x), -1), requirements=["C", "W"])
        weight = self.line_weights(block).reshape(-1)
        position = np.append(0, np.cumsum(np.rint(np.diff(middle(x)) / series.step))).astype(np.int64)
        position[features.locate(x)[0] < 0] = -1
        phi = np.nan_to_num(features.design(x))
        spanned = {axis for span in series.spans for axis in span} | set(series.batch_axes)
        pools = any(n > 1 and axis not in spanned for axis, n in enumerate(block.values.shape))
        # Of lines that are pooled gaps may differ, and G is a product all the same.
        along = None if pools else _alone(plain.gram, k)
        keys = [f.key for term in plain.gram.terms for f in term]
        n, slots, width = phi.shape[1], len(self.slots), phi.shape[1] * (phi.shape[1] + 1) // 2

        def contracted(flat: Array, weight: Floats, width: int) -> tuple[Floats, Floats]:
            totals, scalars = (np.zeros((slots, flat.shape[1], m)) for m in (n + width, 3))
            reference = float(plain.reference.ravel()[0])
            loops.pairs(flat, weight, position, phi, series.lags, reference, cut, totals, scalars)
            return totals, scalars

        totals, scalars = contracted(flat, weight, 0 if along else width)
        if along:  # one line tells for all
            line = next(i for i in np.flatnonzero(weight > 0) if np.isfinite(flat[position >= 0, i]).any())
            alone = np.array(flat[:, line : line + 1], dtype=np.float64)
            grams = contracted(alone, np.ones(1), width)[0][:, 0, n:]
            known = x[np.isfinite(alone[:, 0]) & (position >= 0)]
        for slot in range(slots):
            if not scalars[slot, :, 2].any():
                continue
            moment = self._over_places(block, totals[slot, :, :n].T.reshape(n, *rest), np.eye(n), pairs=False)
            if along:
                key = digest_key("series", repr((slot, cut, along.key)), known)
                factor = Factor((k,), ((0, n),), _pair_array(grams[slot], n, plain.batch_ndim), key)
                gram = Gram(
                    (tuple(factor if f is along else f for f in plain.gram.terms[0]),), plain.batch_ndim
                )
            else:
                table, entries = _as_rows(totals[slot, :, n:].T.reshape(width, *rest), n)
                pairs = self._over_places(block, entries, table, pairs=True)
                axes, window = tuple(range(len(plain.window))), plain.window
                factor = Factor(axes, window, pairs, digest_key("series", repr((slot, cut, keys))))
                gram = Gram(((factor,),), plain.batch_ndim)
            power, mass, count = (self._members(a.reshape(rest)) for a in scalars[slot].T)
            reference = plain.reference
            if slot < series.lags:  # of differences the constant is none
                mass, reference = np.zeros_like(mass), np.zeros_like(reference)
            own = Sums(plain.window, gram, moment, power, mass, count.astype(np.int64), reference)
            self.slots[slot].append(own)

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
        batch = self.layout.batch_axes
        total = full.sum(axis=tuple(a for a in range(full.ndim) if a not in batch))
        return np.transpose(total, [sorted(batch).index(a) for a in batch])

    def _over_places(self, block: Block, entries: Array, table: Floats, pairs: bool) -> Floats:
        """Return what lines have for rows of a table, [rows, lines..], contracted over the places of the lines."""
        k = self.series.coefficient
        features, at = (
            list(CellSpace.over(self.space, block.coordinates).features),
            np.arange(float(len(table))),
        )
        features[k] = Rows((), (0.0, 1.0), table=table)
        array = np.ascontiguousarray(np.moveaxis(entries, 0, self.series.axis))
        own = Block(array, (*block.coordinates[:k], at, *block.coordinates[k + 1 :]))
        space: Any = _Space(tuple(features), self.space.frame)
        walk = Walk(own, self.layout, space, choose_engine(array), slab_entries(array))
        sums = SumsBySlab(walk, walk.groups, pairs)
        for box in walk.boxes():
            sums.add(walk.values(box), box)
        return sums.finish()

    def merged(self, known: tuple[Sums, ...] = (), batch: tuple[int, ...] = ()) -> tuple[Sums, ...]:
        """Return the sums of each slot, with those that were `known` before; Σw of differences is none."""
        frame = self.space.frame
        before = known or (Sums.zero(frame, batch),) * len(self.slots)
        slots = zip(before, self.slots, strict=True)
        return tuple(Sums.merge([s for s in (a, *own) if s.gram.terms] or [a], frame) for a, own in slots)


def _alone(gram: Gram, k: int) -> Factor | None:
    """Return the factor of one coefficient axis alone, shared by the batch; None where G is no product with it."""
    factors = [f for f in gram.terms[0] if f.axes == (k,) and math.prod(f.batch) == 1]
    return factors[0] if len(gram.terms) == 1 and factors else None


def _pair_array(upper: Floats, size: int, batch_ndim: int) -> Floats:
    """Return the upper triangle of a matrix, row by row, as a pair array."""
    i, j = np.triu_indices(size)
    pairs = np.zeros((size, size))
    pairs[i, j - i] = upper
    return pairs.reshape(size, size, *(1,) * batch_ndim)


def _as_rows(upper: Array, size: int) -> tuple[Floats, Array]:
    """Return rows, and numbers by which their outer products add up to matrices of these upper triangles [Q, ..]."""
    i, j = np.triu_indices(size)
    table = np.eye(size)[i] + np.where(i == j, 0.0, 1.0)[:, None] * np.eye(size)[j]
    entries = upper.copy()
    for q in np.flatnonzero(i != j):
        for end in (i[q], j[q]):
            entries[np.flatnonzero((i == end) & (j == end))[0]] -= upper[q]
    return table, entries


def remembered(block: Block, plain: Sums, space: Space, series: Series) -> Memory:
    """Return the sums over pairs of a block, whose series is one coordinate's axis, beside its `plain` ones."""
    pairs = _Pairs(space, series)
    if 0 in block.values.shape:
        return Memory(series, pairs.merged(batch=plain.batch))
    values = to_host(np.ma.filled(block.values, np.nan) if np.ma.isMA(block.values) else block.values)
    values = values if values.dtype in (np.float32, np.float64) else values.astype(np.float64)
    start = block.start or (0,) * values.ndim
    stop = tuple(a + n for a, n in zip(start, values.shape, strict=True))
    weights = tuple((axes, np.asarray(to_host(w), dtype=np.float64)) for axes, w in block.weights)
    host = replace(block, values=values, start=start, weights=weights)
    pairs.add(host, plain)
    edge = Edge(start, stop, values, block.coordinates, weights).trimmed(series)
    x = edge.coordinates[series.coefficient]
    used = _along(space.features[series.coefficient].locate(x)[0] >= 0, (series.axis,), values.ndim)
    used = used & np.expand_dims(pairs.line_weights(host) > 0, series.axis) & np.isfinite(edge.values)
    edge = replace(edge, values=np.where(used, edge.values, np.nan))
    return Memory(series, pairs.merged(batch=plain.batch), (edge,))


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
    series, pairs, edges = memory.series, _Pairs(space, memory.series), list(memory.edges)
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
    pairs.add(block, accumulate(block, pairs.layout, own), n - first)
