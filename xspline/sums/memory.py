"""Sums of errors that remember, as AR(1) does: of pairs of observations that follow each other, for every ρ.

Of observations y in order, of which those at most `lags` steps apart make pairs, the inverse of R_ij = ρ^|i − j| is

    R⁻¹ = Σ yyᵀ + Σ_m [q/(1 − q²) D_m − q/(1 + q) P_m],    q = ρ^m,    log|R| = Σ_m n_m log(1 − q²),

where D_m sums (y_b − y_a)(y_b − y_a)ᵀ over the n_m pairs at distance m, and P_m sums y_ay_aᵀ + y_by_bᵀ. Most
observations have neighbours at distance 1 on both sides. So Σ yyᵀ is taken as if all had, and mended for each side of
one whose next one is m > 1 steps away (U_m), or that has none (U_∞). Of pairs that two parts make P_m is added, since
each of the parts saw no next one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xspline.spaces import Frame
from xspline.sums.factor import Factor, digest_key
from xspline.sums.gram import Gram
from xspline.sums.window import Array, take

Sums: TypeAlias = Any
"""`xspline.sums.sums.Sums`, which has a Memory, so that this file cannot import it."""


@dataclass(frozen=True)
class Series:
    """Along which axis errors remember, and how the data lie about it.

    Attributes
    ----------
    dim : its name.
    axis, coefficient : which data axis it is, and which coefficient axis.
    step : distance of two labels, in numbers of the coordinate.
    lags : steps between two observations, at most, that know of each other.
    rho : correlation of neighbours where it is given; None where it follows from the data.
    groups, batch_axes : of the layout: data axes and coefficient axes of each group, and batch axes.
    """

    dim: str
    axis: int
    coefficient: int
    step: float
    lags: int
    rho: float | None
    groups: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    batch_axes: tuple[int, ...]

    @property
    def spans(self) -> tuple[tuple[int, ...], ...]:
        """The data axes of each coefficient axis."""
        axes = {k: data for data, coefficients in self.groups for k in coefficients}
        return tuple(axes[k] for k in sorted(axes))

    @property
    def text(self) -> str:
        """How errors remember, as it was asked for."""
        rho = "" if self.rho is None else f", rho={self.rho!r}"
        return f"AR1({self.dim!r}{rho}, lags={self.lags})"

    def check_matches(self, other: Series | None) -> None:
        """Raise ValueError unless both remember alike."""
        its = "none" if other is None else other.text
        if its != self.text:
            raise ValueError(
                f"errors={self.text} in one part and {its} in the other; compute both with the same errors="
            )
        if other is not None and abs(self.step - other.step) > 0.25 * min(self.step, other.step):
            raise ValueError(
                f"steps along {self.dim!r} are {self.step:.6g} in one part and {other.step:.6g} in the other; average "
                "both over the same step first"
            )


@dataclass(frozen=True, eq=False)
class Edge:
    """The first and the last observations along a series, as many as there are lags: other ones may follow.

    Attributes
    ----------
    start, stop : box of the data that they are the edge of.
    values : NaN where there is no observation; fewer along the series than the box.
    coordinates, weights : as of a Block.
    """

    start: tuple[int, ...]
    stop: tuple[int, ...]
    values: Array
    coordinates: tuple[Array, ...]
    weights: tuple[tuple[tuple[int, ...], Array], ...]

    def beside(self, other: Edge, axis: int, series: Series) -> Edge:
        """Return this and the next one along an axis as one."""

        def both(mine: Array, its: Array, axes: Sequence[int]) -> Array:
            return np.concatenate([mine, its], axes.index(axis)) if axis in axes else mine

        coordinates = zip(self.coordinates, other.coordinates, series.spans, strict=True)
        weights = zip(self.weights, other.weights, strict=True)
        return Edge(
            self.start,
            (*self.stop[:axis], other.stop[axis], *self.stop[axis + 1 :]),
            both(self.values, other.values, range(self.values.ndim)),
            tuple(both(*c) for c in coordinates),
            tuple((axes, both(mine, its, axes)) for (axes, mine), (_, its) in weights),
        )

    def trimmed(self, series: Series) -> Edge:
        """Return the first and the last observations alone."""
        n, k = self.values.shape[series.axis], series.coefficient
        if n <= 2 * series.lags:
            return self
        kept = np.r_[: series.lags, n - series.lags : n]
        x = self.coordinates[k][kept]
        coordinates = (*self.coordinates[:k], x, *self.coordinates[k + 1 :])
        return replace(self, values=np.take(self.values, kept, series.axis), coordinates=coordinates)


Join = Callable[[Edge, Edge], None]


def folded(edges: Sequence[Edge], series: Series, axis: int, join: Join | None = None) -> list[Edge]:
    """Return edges with those side by side along a data axis made one; of those that follow in time `join` is told."""
    rows: dict[Any, list[Edge]] = {}
    for edge in sorted(edges, key=lambda edge: edge.start[axis]):
        box = [(a, b) for i, (a, b) in enumerate(zip(edge.start, edge.stop, strict=True)) if i != axis]
        row = rows.setdefault(tuple(box), [])
        if row and row[-1].stop[axis] == edge.start[axis]:
            if join is not None:
                join(row[-1], edge)
            edge = row.pop().beside(edge, axis, series)
        row.append(edge.trimmed(series))
    return [edge for row in rows.values() for edge in row]


@dataclass(frozen=True, eq=False)
class Memory:
    """Sums over pairs of a series.

    Attributes
    ----------
    lagged : D_m, m = 1, …, lags; so many P_m, of pairs between parts; U_m from m = 2 on, and U_∞; see above. Those
        of no pairs are zero, one for the whole batch.
    edges : what other parts may follow; empty once all are there.
    """

    series: Series
    lagged: tuple[Sums, ...]
    edges: tuple[Edge, ...] = ()

    def merge(self, others: Sequence[Memory | None], frame: Frame) -> Memory:
        """Return this and others as one; edges stay apart."""
        known = []
        for other in others:
            self.series.check_matches(None if other is None else other.series)
            known += [] if other is None else [other]
        slots = zip(self.lagged, *(other.lagged for other in known), strict=True)
        lagged = tuple(type(slot[0]).merge(slot, frame) for slot in slots)
        return Memory(self.series, lagged, sum((other.edges for other in known), self.edges))

    def concatenate(
        self, others: Sequence[Memory], axis: int, extents: Sequence[int], frame: Frame
    ) -> Memory:
        """Return this and those that differ along a batch axis, of these extents, side by side."""
        lagged = []
        for slot in zip(self.lagged, *(other.lagged for other in others), strict=True):
            if not any(own.gram.terms for own in slot):
                lagged.append(slot[0])
                continue
            kind, before, after = type(slot[0]), (1,) * axis, (1,) * (slot[0].batch_ndim - axis - 1)
            none = (kind.zero(frame, (*before, extent, *after)) for extent in extents)
            parts = [own if own.gram.terms else zero for own, zero in zip(slot, none, strict=True)]
            lagged.append(kind.concatenate(parts, axis, frame))
        edges = sum((other.edges for other in others), self.edges)
        return Memory(
            self.series, tuple(lagged), tuple(folded(edges, self.series, self.series.batch_axes[axis]))
        )

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(int(s.nbytes) for s in self.lagged) + sum(edge.values.nbytes for edge in self.edges)

    def logdet(self, rho: Array) -> Array:
        """Return log|R|, [b..]."""
        lags = range(1, self.series.lags + 1)
        return np.asarray(sum(self.lagged[m - 1].count * np.log1p(-(rho ** (2 * m))) for m in lags))

    def parted(self, count: Array, labels: float) -> Array:
        """Return the share of observations, of `count` [b..], whose next one is too far to know of; 1 of those alone.

        A series of so many `labels` begins once.
        """
        pairs = sum(own.count for own in self.lagged[: self.series.lags])
        with np.errstate(divide="ignore", invalid="ignore"):
            share = 1 - pairs / count - np.maximum(1 / count, 1 / labels)
        return np.where(pairs == 0, 1.0, share)

    def to_arrays(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return plain arrays by name, and a JSON-able description."""
        arrays: dict[str, Any] = {}
        lagged, edges = [], []
        for i, sums in enumerate(self.lagged):
            own, meta = sums.to_arrays()
            arrays |= {f"lag{i}_{name}": array for name, array in own.items()}
            lagged.append({"arrays": list(own), "meta": meta})
        for i, edge in enumerate(self.edges):
            arrays[f"edge{i}_values"] = edge.values
            for k, x in enumerate(edge.coordinates):  # of cells both ends
                arrays[f"edge{i}_x{k}"] = np.stack([x.real, x.imag], -1) if np.iscomplexobj(x) else x
            arrays |= {f"edge{i}_w{k}": w for k, (_, w) in enumerate(edge.weights)}
            edges.append(
                {"start": edge.start, "stop": edge.stop, "weights": [axes for axes, _ in edge.weights]}
            )
        described = {"series": asdict(self.series), "lagged": lagged, "edges": edges}
        return arrays, json.loads(json.dumps(described))

    @staticmethod
    def from_arrays(arrays: Mapping[str, Any], meta: Mapping[str, Any], kind: Any) -> Memory:
        """Inverse of `to_arrays`."""
        own = dict(meta["series"])
        groups = tuple((tuple(data), tuple(k)) for data, k in own.pop("groups"))
        series = Series(**own | {"groups": groups, "batch_axes": tuple(own["batch_axes"])})
        lagged = []
        for i, stored in enumerate(meta["lagged"]):
            named = {name: arrays[f"lag{i}_{name}"] for name in stored["arrays"]}
            lagged.append(kind.from_arrays(named, stored["meta"]))
        edges = []
        for i, stored in enumerate(meta["edges"]):
            known = [(arrays[f"edge{i}_x{k}"], len(span)) for k, span in enumerate(series.spans)]
            x = tuple(a[..., 0] + 1j * a[..., 1] if a.ndim > ndim else a for a, ndim in known)
            weights = tuple((tuple(a), arrays[f"edge{i}_w{k}"]) for k, a in enumerate(stored["weights"]))
            box = (tuple(stored["start"]), tuple(stored["stop"]))
            edges.append(Edge(*box, arrays[f"edge{i}_values"], x, weights))
        return Memory(series, tuple(lagged), tuple(edges))


def whitened(sums: Sums, rho: Array, frame: Frame) -> Sums:
    """Return the sums with R⁻¹ between observations: G = ΦᵀR⁻¹Φ and so on, of all parts, for correlations ρ [b..].

    Σw becomes 1ᵀR⁻¹1. One ρ for all keeps a product of factors a product.
    """
    memory = sums.memory
    if memory is None or not np.any(rho):
        return replace(sums, memory=None)
    lags = memory.series.lags
    q = [rho**m for m in range(1, lags + 1)]
    ends = [x / (1 + x) for x in q]
    shares = [x / (1 - x * x) for x in q] + [-x for x in ends] + [ends[0] - x for x in ends[1:]] + [ends[0]]
    k = memory.series.coefficient
    parts = [scaled(replace(sums, memory=None), 1 - 2 * ends[0], k, frame)]
    for i, (own, share) in enumerate(zip(memory.lagged, shares, strict=True)):
        if own.gram.terms:
            about = sums.reference if i < lags else own.reference  # differences have none
            plain = replace(own, count=np.zeros_like(own.count), tally=type(sums.tally)(), reference=about)
            parts.append(scaled(plain, share, k, frame))
    return type(sums).merge(parts, frame)


def scaled(sums: Sums, x: Array, coefficient: int, frame: Frame) -> Sums:
    """Return sums times a number, or one for each member of the batch; a number scales the factor of an axis."""
    x = np.asarray(x)
    if x.size == 1:
        number = float(x.ravel()[0])
        terms = [[f.scaled(number) if coefficient in f.axes else f for f in term] for term in sums.gram.terms]
        gram = Gram(tuple(map(tuple, terms)), sums.gram.batch_ndim)
        x = x.reshape((1,) * sums.batch_ndim)
    else:
        whole = sums.gram.with_batch_axes(sums.batch_ndim).one_factor(frame)
        pairs = take(whole.pairs, sums.window, frame.sizes) * x
        factor = Factor(whole.axes, sums.window, pairs, digest_key("scaled", repr(whole.key), x))
        gram = Gram(((factor,),), sums.batch_ndim)
    return replace(sums, gram=gram, moment=sums.moment * x, power=sums.power * x, weight=sums.weight * x)
