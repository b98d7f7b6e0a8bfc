"""Evaluation of fields and their derivatives: the transpose of the contraction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import array_api_compat
import numpy as np

from . import walk
from .contract import Engine, choose_engine, expand
from .layout import Array, Floats, Layout, Part, Piece, check_coordinates, parts_of, pieces
from .rows import Reach, Rows, build_rows

if TYPE_CHECKING:
    from xspline.spaces import Space


def evaluate(
    coefficients: Array,
    coordinates: Sequence[Floats],
    layout: Layout,
    space: Space,
    orders: Sequence[int] | None = None,
    *,
    engine: str | None = None,
    slab: int | None = None,
) -> Array:
    """Values of a field, or of a partial derivative of it, at coordinates of any layout.

    Parameters
    ----------
    coefficients : array, [K.., b..]
        Of any array namespace.
    coordinates : sequence of ndarray
        Per coefficient axis, float64 on the host; shape = lengths of its group's data axes.
    layout : Layout
        Where the coordinates and the batch axes lie in the result; nothing is pooled.
    space : Space
    orders : sequence of int, optional
        Derivative order per coefficient axis, per unit of the coordinate's float; default 0.

    Returns
    -------
    array, float64
        In the namespace of the coefficients; NaN outside the domains.
    """
    orders = tuple(orders) if orders is not None else (0,) * len(space.shape)
    task = Evaluation.of(
        coefficients, coordinates, layout, space, orders, choose_engine(coefficients, engine)
    )
    limit = slab or walk.slab_entries(coefficients)
    out = task.xp.empty(task.shape, dtype=task.xp.float64, device=task.device)
    for piece in pieces(task.shape, task.parts, limit, walk.ROWS):
        out[piece.slices] = task.values(piece)
    return out


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What one evaluation needs for each of its slabs."""

    coefficients: Array  # unrolled, axes in the order of the parts
    coordinates: tuple[Floats, ...]  # raveled
    shape: tuple[int, ...]
    parts: tuple[Part, ...]
    space: Space
    orders: tuple[int, ...]
    engine: Engine
    xp: Any
    device: Any

    @staticmethod
    def of(
        coefficients: Array,
        coordinates: Sequence[Floats],
        layout: Layout,
        space: Space,
        orders: tuple[int, ...],
        engine: Engine,
    ) -> Evaluation:
        """Check shapes, and bring the coefficients into the order of the parts."""
        xp, ndim = array_api_compat.array_namespace(coefficients), len(space.shape)
        batch = coefficients.shape[ndim:]
        if tuple(coefficients.shape[:ndim]) != space.shape or len(batch) != len(layout.batch_axes):
            raise ValueError(
                f"coefficients must have shape {space.shape} and {len(layout.batch_axes)} batch axes, "
                f"got {tuple(coefficients.shape)}"
            )
        if len(orders) != ndim or min(orders) < 0:
            raise ValueError(
                f"one derivative order >= 0 is needed for each of {ndim} coordinates, got {orders}"
            )
        lengths = list(check_coordinates(coordinates, layout))
        for axis, length in zip(layout.batch_axes, batch, strict=True):
            lengths[axis] = length
        if -1 in lengths:
            raise ValueError(f"no coordinate tells the length of data axis {lengths.index(-1)}")
        parts = parts_of(layout)
        order = [
            axis
            for part in parts
            for axis in (
                [ndim + layout.batch_axes.index(part.axes[0])] if part.is_batch else part.coefficient_axes
            )
        ]
        unrolled = _unroll(xp.astype(coefficients, xp.float64), space, xp)
        raveled = tuple(np.asarray(x, dtype=np.float64).reshape(-1) for x in coordinates)
        device = array_api_compat.device(coefficients)
        arranged = xp.permute_dims(unrolled, tuple(order))
        return Evaluation(arranged, raveled, tuple(lengths), parts, space, orders, engine, xp, device)

    @cached_property
    def _remembered(self) -> dict[int, tuple[tuple[int, int], Rows]]:
        return {}

    def rows(self, index: int, span: tuple[int, int]) -> Rows:
        """Features of a range of rows of a part; the last range is remembered."""
        known = self._remembered.get(index)
        if known is None or known[0] != span:
            known = (span, self._build(self.parts[index], *span))
            self._remembered[index] = known
        return known[1]

    def _build(self, part: Part, first: int, count: int) -> Rows:
        axes = part.coefficient_axes
        features = [self.space.features[axis] for axis in axes]
        labels = [self.coordinates[axis][first : first + count] for axis in axes]
        reaches, orders = [Reach.whole(f) for f in features], [self.orders[axis] for axis in axes]
        return build_rows(features, labels, reaches, orders, self.engine, count=count, outside=np.nan)

    def values(self, piece: Piece) -> Array:
        """One slab of the result."""
        rows = [
            None if part.is_batch else self.rows(i, span)
            for i, (part, span) in enumerate(zip(self.parts, piece.rows, strict=True))
        ]
        array = expand(self._stretch(rows, piece), rows, self.engine)
        axes = [axis for part in self.parts for axis in part.axes]
        lengths = [piece.slices[axis].stop - piece.slices[axis].start for axis in axes]
        array = self.xp.reshape(array, tuple(lengths))
        return self.xp.permute_dims(array, tuple(int(i) for i in np.argsort(axes)))

    def _stretch(self, rows: Sequence[Rows | None], piece: Piece) -> Array:
        """The coefficients that a slab touches, one axis per part."""
        spans: list[slice] = []
        for span, r in zip(piece.spans, rows, strict=True):
            spans += [span] if r is None else list(_stretches(r))
        merged = [
            span.stop - span.start if r is None else r.extent
            for span, r in zip(piece.spans, rows, strict=True)
        ]
        return self.xp.reshape(self.coefficients[tuple(spans)], tuple(merged))


def _stretches(rows: Rows) -> Iterator[slice]:
    for low, (extent, _) in zip(rows.low, rows.shape, strict=True):
        yield slice(low, low + extent)


def _unroll(coefficients: Array, space: Space, xp: Any) -> Array:
    """Repeat the first coefficients of periodic axes behind the last, so that patches do not wrap around."""
    for axis, features in enumerate(space.features):
        tail = Reach.whole(features).extent - features.size
        if tail:
            head = coefficients[(*(slice(None),) * axis, slice(0, tail), ...)]
            coefficients = xp.concat([coefficients, head], axis=axis)
    return coefficients
