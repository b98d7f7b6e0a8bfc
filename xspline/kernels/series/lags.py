"""Sums over pairs of observations that follow each other along a series: of a block, and across the edges of parts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from xspline.kernels.block import Array, Block, Floats, Group, Integers, Layout, to_host
from xspline.kernels.passes import accumulate
from xspline.spaces import Frame, Space
from xspline.spaces.features import Features, Global
from xspline.sums import Sums, Tally
from xspline.sums.memory import Edge, Memory, Series, folded


@dataclass(frozen=True, eq=False)
class Differences(Global):
    """Functions of a coordinate that have the rows of a table at some labels.

    Parameters
    ----------
    at : [n], ascending.
    table : [n, K]
    """

    at: Floats = field(default_factory=lambda: np.zeros(0))
    table: Floats = field(default_factory=lambda: np.zeros((0, 0)))

    @property
    def size(self) -> int:  # type: ignore[override]
        return self.table.shape[1]

    def constant(self) -> Floats:
        return np.zeros(self.size)

    def locate(self, x: Floats) -> tuple[Integers, Floats]:
        return self.locate_anywhere(np.where(np.isin(x, self.at), x, np.nan))

    def values(self, x: Floats, order: int) -> Floats:
        return self.table[np.searchsorted(self.at, x).clip(max=len(self.at) - 1)]


@dataclass(frozen=True, eq=False)
class _Space:
    """What sums of a block need to know of a space: of differences, which have no constant."""

    features: tuple[Features, ...]
    frame: Frame
    has_constant: bool = False


@dataclass(eq=False)
class _Pairs:
    """Sums over pairs in the making: of each slot of `Memory.lagged`, parts to be merged."""

    layout: Layout
    space: Space
    series: Series
    slots: list[list[Sums]]

    @classmethod
    def of(cls, space: Space, series: Series) -> _Pairs:
        layout = Layout(tuple(Group(*group) for group in series.groups), series.batch_axes)
        return cls(layout, space, series, [[] for _ in range(2 * series.lags + 1)])

    def add(self, block: Block, cut: int | None = None) -> None:
        """Add the pairs of a block along its series; those alone that reach over row `cut` if that is given.

        Parameters
        ----------
        block : on the host, NaN where there is no observation.
        """
        axis, lags = self.series.axis, self.series.lags
        x, values = block.coordinates[self.series.coefficient], np.moveaxis(block.values, axis, 0)
        known = np.isfinite(values)
        features, n = self.space.features[self.series.coefficient], len(x)
        phi = features.design(x)
        counts = {m: np.zeros(known.shape, dtype=np.int8) for m in range(1, lags + 1)}
        gaps = not known.all()
        for d in range(1, min(lags, n - 1) + 1):
            pair = known[d:] & known[:-d]
            for between in range(1, d):
                pair &= ~known[between : n - d + between]
            if cut is not None:  # the later row is beyond, the earlier one before it
                pair[: max(cut - d, 0)] = False
                pair[cut:] = False
            distance = np.rint((x[d:] - x[:-d]) / self.series.step).astype(np.int64)
            for m in np.unique(distance[distance <= lags]).tolist():
                rows = _range(np.flatnonzero((distance == m) & pair.reshape(n - d, -1).any(axis=1)))
                if rows is None:
                    continue
                own, later = pair[rows], values[d:][rows]
                difference = np.where(own, later - values[:-d][rows], np.nan)
                self._differences(m, block, x[d:][rows], (phi[d:] - phi[:-d])[rows], difference)
                counts[m][d:][rows] += own
                counts[m][:-d][rows] += own
            if not gaps:
                break
        for m in range(1, lags + 1):
            if m > 1 or cut is not None:
                self._weighted(lags + m - 1, block, values, counts[m])
        if cut is None:
            self._weighted(2 * lags, block, values, np.where(known, 2 - counts[1], 0))

    def _differences(self, m: int, block: Block, x: Floats, table: Floats, values: Array) -> None:
        k, axis, features = self.series.coefficient, self.series.axis, list(self.space.features)
        features[k] = Differences((), (0.0, 1.0), at=x, table=table)
        own = replace(
            block,
            values=np.moveaxis(values, 0, axis),
            coordinates=(*block.coordinates[:k], x, *block.coordinates[k + 1 :]),
            reference=0.0,
        )
        space: Any = _Space(tuple(features), self.space.frame)
        sums = accumulate(own, self.layout, space)
        self.slots[m - 1].append(replace(sums, weight=np.zeros_like(sums.weight), tally=Tally()))

    def _weighted(self, slot: int, block: Block, values: Array, weights: Array) -> None:
        """Add the observations that have weights, in one term where these hang on the place in the series alone."""
        rows = _range(np.flatnonzero(weights.reshape(len(weights), -1).any(axis=1)))
        if rows is None:
            return
        k, axis = self.series.coefficient, self.series.axis
        weights, values = weights[rows], values[rows]
        top = weights.reshape(len(weights), -1).max(axis=1)
        used = weights > 0
        if np.array_equal(weights, used * top.reshape(-1, *(1,) * (values.ndim - 1))):
            extra: tuple[tuple[int, ...], Array] = ((axis,), top.astype(np.float64))
        else:
            extra = (tuple(range(values.ndim)), np.moveaxis(weights, 0, axis).astype(np.float64))
        own = replace(
            block,
            values=np.moveaxis(np.where(used, values, np.nan), 0, axis),
            coordinates=(*block.coordinates[:k], block.coordinates[k][rows], *block.coordinates[k + 1 :]),
            weights=(*block.weights, extra),
        )
        self.slots[slot].append(replace(accumulate(own, self.layout, self.space), tally=Tally()))

    def merged(self, known: tuple[Sums, ...] = (), batch: tuple[int, ...] = ()) -> tuple[Sums, ...]:
        """Return the sums of each slot, with those that were `known` before."""
        frame = self.space.frame
        before = known or (Sums.zero(frame, batch),) * len(self.slots)
        slots = zip(before, self.slots, strict=True)
        return tuple(Sums.merge([s for s in (a, *own) if s.gram.terms] or [a], frame) for a, own in slots)


def _range(rows: Integers) -> slice | Integers | None:
    """Return rows as a slice where they follow each other, which copies nothing; None where there are none."""
    if not rows.size:
        return None
    return slice(int(rows[0]), int(rows[-1]) + 1) if rows[-1] - rows[0] == rows.size - 1 else rows


def remembered(block: Block, layout: Layout, space: Space, series: Series) -> Memory:
    """Return the sums over pairs of a block, whose series is one coordinate's axis."""
    axis = series.axis
    batch = tuple(block.values.shape[a] for a in layout.batch_axes)
    pairs = _Pairs.of(space, series)
    if 0 in block.values.shape:
        return Memory(series, pairs.merged(batch=batch))
    values = np.array(np.ma.filled(to_host(block.values).astype(np.float64), np.nan))
    inside = space.features[series.coefficient].locate(block.coordinates[series.coefficient])[0] >= 0
    values[~(np.isfinite(values) & _along(inside, (axis,), values.ndim))] = np.nan
    for axes, weight in block.weights:
        values[np.broadcast_to(~(_along(to_host(weight), axes, values.ndim) > 0), values.shape)] = np.nan
    start = block.start or (0,) * values.ndim
    host = replace(block, values=values, start=start, reference=None)
    pairs.add(host)
    stop = tuple(a + n for a, n in zip(start, values.shape, strict=True))
    weights = tuple((axes, np.asarray(to_host(w), dtype=np.float64)) for axes, w in block.weights)
    edge = Edge(start, stop, values, block.coordinates, weights).trimmed(series)
    return Memory(series, pairs.merged(batch=batch), (edge,))


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
    series, pairs, edges = memory.series, _Pairs.of(space, memory.series), list(memory.edges)
    count = 0
    while count != len(edges):
        count = len(edges)
        for axis in range(edges[0].values.ndim):
            join = (lambda a, b: _join(pairs, a, b)) if axis == series.axis else None
            edges = folded(edges, series, axis, join)
    return replace(sums, memory=Memory(series, pairs.merged(memory.lagged), tuple(edges)))


def closed(sums: Sums, space: Space) -> Sums:
    """Return sums with the edges of all parts joined by labels, where one follows the other at the same places.

    Raises
    ------
    ValueError : parts at the same places alternate along the series.
    """
    memory = sums.memory
    if memory is None or not memory.edges:
        return sums
    series, pairs = memory.series, _Pairs.of(space, memory.series)
    for row in _by_place(memory):
        edge = row[0]
        for after in row[1:]:
            distance = float(after.coordinates[series.coefficient][0] - edge.coordinates[series.coefficient][-1])
            if distance < 0.5 * series.step:
                raise ValueError(
                    f"two parts alternate along {series.dim!r} at the same places: one begins at {_label(after, 0, space, series)}, "
                    f"before the other ends at {_label(edge, -1, space, series)}, and errors=AR1({series.dim!r}) needs "
                    "the order of observations; share them out by place, or in periods that follow each other "
                    f"(holder={series.dim + '.year'!r})"
                )
            if distance < (series.lags + 0.5) * series.step:
                _join(pairs, edge, after)
                edge = edge.beside(after, series.axis, series).trimmed(series)
            else:
                edge = after
    return replace(sums, memory=Memory(series, pairs.merged(memory.lagged)))


def _label(edge: Edge, i: int, space: Space, series: Series) -> str:
    name = space.names[series.coefficient]
    x = np.asarray([edge.coordinates[series.coefficient][i]])
    return str(np.asarray(space.axis(name).to_label(x)).ravel()[0])


def _by_place(memory: Memory) -> Iterator[list[Edge]]:
    """Yield the edges at each place, in the order of the series."""
    k, rows = memory.series.coefficient, dict[bytes, list[Edge]]()
    for edge in sorted(memory.edges, key=lambda edge: float(edge.coordinates[k][0])):
        shape = [n for i, n in enumerate(edge.values.shape) if i != memory.series.axis]
        digest = hashlib.sha256(repr((shape, [axes for axes, _ in edge.weights])).encode())
        for x in (*edge.coordinates[:k], *edge.coordinates[k + 1 :], *(w for _, w in edge.weights)):
            digest.update(np.ascontiguousarray(x, dtype=np.float64).tobytes())
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
    pairs.add(Block(np.take(both.values, kept, axis), coordinates, both.weights, start), n - first)
