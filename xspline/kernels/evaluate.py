"""Evaluation of fields, of their derivatives and of quadratic forms: the transpose of the contraction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import array_api_compat
import numpy as np

from . import walk
from .contract import Engine, choose_engine, expand
from .layout import Array, Floats, Layout, Part, Piece, check_coordinates, parts_of, pieces
from .rows import Reach, Rows, build_rows

if TYPE_CHECKING:
    from xspline.spaces import Space


SLAB = 1 << 20  # entries of a slab: results are written once, only what they are made from waits in a cache


class Options(TypedDict, total=False):
    """How an evaluation runs, and where its result goes.

    Attributes
    ----------
    engine : {"numba", "namespace"}
        Which twin of the contraction; by default the compiled one for NumPy arrays.
    slab : int
        Entries of a slab.
    out : array, float32 or float64
        To write into, of the shape of the result; of NumPy C-contiguous and native. Sums are float64.
    """

    engine: str | None
    slab: int | None
    out: Array | None


def evaluate(
    coefficients: Array,
    coordinates: Sequence[Floats],
    layout: Layout,
    space: Space,
    orders: Sequence[int] | None = None,
    **options: Unpack[Options],
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
    **options
        `Options`.

    Returns
    -------
    array
        `out`, or a new array of float64 in the namespace of the coefficients; NaN outside the domains.

    Raises
    ------
    ValueError
        If shapes do not fit, or `out` cannot be written.
    """
    engine = choose_engine(coefficients, options.get("engine"))
    return Evaluation.of(coefficients, coordinates, layout, space, orders, engine).run(options)


def evaluate_pairs(
    pairs: Array,
    coordinates: Sequence[Floats],
    layout: Layout,
    space: Space,
    orders: Sequence[int] | None = None,
    **options: Unpack[Options],
) -> Array:
    """Quadratic form φᵀZφ of the rows φ of Φ, or of a derivative of it, at coordinates of any layout.

    With the pair form Z of a covariance of the coefficients these are the variances of the field. It is the
    transpose of how G is summed: Σ w φᵀZφ = Σ_{k,o} Z[k, o] G[k, o] for the G of observations with weights w.

    Parameters
    ----------
    pairs : array, [K.., O.., b..]
        Z, with φᵀZφ = Σ_{k,o} Z[k, o] Π_j φ_{k_j} φ_{k_j + o_j}; k_j + o_j is modulo K_j on periodic axes, and
        entries with k_j + o_j ≥ K_j on others are not read.
    coordinates, layout, space, orders, **options
        As of `evaluate`, and so are the result and the errors.
    """
    engine = choose_engine(pairs, options.get("engine"))
    return Evaluation.of(pairs, coordinates, layout, space, orders, engine, pairs=True).run(options)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What one evaluation needs for each of its slabs.

    Coefficients have an axis of offsets behind each of their axes: of length 1 unless `pairs`.
    """

    coefficients: Array  # unrolled, axes in the order of the parts
    coordinates: tuple[Floats, ...]  # raveled
    shape: tuple[int, ...]
    parts: tuple[Part, ...]
    space: Space
    orders: tuple[int, ...]
    engine: Engine
    pairs: bool
    xp: Any
    device: Any

    @staticmethod
    def of(
        coefficients: Array,
        coordinates: Sequence[Floats],
        layout: Layout,
        space: Space,
        orders: Sequence[int] | None,
        engine: Engine,
        *,
        pairs: bool = False,
    ) -> Evaluation:
        """Check shapes, and bring the coefficients into the order of the parts."""
        xp, ndim = array_api_compat.array_namespace(coefficients), len(space.shape)
        orders = tuple(orders) if orders is not None else (0,) * ndim
        if len(orders) != ndim or min(orders) < 0:
            raise ValueError(
                f"one derivative order >= 0 is needed for each of {ndim} coordinates, got {orders}"
            )
        batch = _batch(coefficients, layout, space, pairs)
        lengths = list(check_coordinates(coordinates, layout))
        for axis, length in zip(layout.batch_axes, batch, strict=True):
            lengths[axis] = length
        if -1 in lengths:
            raise ValueError(f"no coordinate tells the length of data axis {lengths.index(-1)}")
        parts = parts_of(layout)
        offsets = space.frame.offsets if pairs else (1,) * ndim
        array = xp.reshape(xp.astype(coefficients, xp.float64, copy=False), (*space.shape, *offsets, *batch))
        array = xp.permute_dims(_unroll(array, space, xp), _order(parts, layout))
        return Evaluation(
            array,
            tuple(np.asarray(x, dtype=np.float64).reshape(-1) for x in coordinates),
            tuple(lengths),
            parts,
            space,
            orders,
            engine,
            pairs,
            xp,
            array_api_compat.device(coefficients),
        )

    def run(self, options: Options) -> Array:
        """The result, slab by slab."""
        limit, out = options.get("slab") or self._slab_entries(), options.get("out")
        if out is None:
            out = self.xp.empty(self.shape, dtype=self.xp.float64, device=self.device)
        _check_out(out, self.shape)
        for piece in pieces(self.shape, self.parts, limit, walk.ROWS):
            self._fill(out, piece)
        return out

    def _slab_entries(self) -> int:
        entries = walk.slab_entries(self.coefficients)
        return entries if self.pairs else max(entries, SLAB)

    def _fill(self, out: Array, piece: Piece) -> None:
        """One slab of the result: written in place where its axes are those of the parts, in their order."""
        box = out[piece.slices]
        axes = [axis for part in self.parts for axis in part.axes]
        lengths = tuple(count for _, count in piece.rows)
        plain = isinstance(box, np.ndarray) and box.flags.c_contiguous and axes == sorted(axes)
        target = box.reshape(lengths) if plain else None
        array = self.values(piece, target)
        if array is target:
            return
        array = self.xp.reshape(array, tuple(out[piece.slices].shape[axis] for axis in axes))
        array = self.xp.permute_dims(array, tuple(int(i) for i in np.argsort(axes)))
        out[piece.slices] = self.xp.astype(array, out.dtype, copy=False)

    @cached_property
    def _remembered(self) -> dict[int, tuple[tuple[int, int], Rows]]:
        return {}

    @cached_property
    def _taken(self) -> list[tuple[list[slice], Array]]:
        return []

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
        rows = build_rows(features, labels, reaches, orders, self.engine, count=count, outside=np.nan)
        return rows.paired() if self.pairs else rows

    def values(self, piece: Piece, out: Array | None = None) -> Array:
        """One slab, one axis per part; written into `out` where the engine can."""
        rows = [
            None if part.is_batch else self.rows(i, span)
            for i, (part, span) in enumerate(zip(self.parts, piece.rows, strict=True))
        ]
        return expand(self._stretch(rows, piece), rows, self.engine, out)

    def _stretch(self, rows: Sequence[Rows | None], piece: Piece) -> Array:
        """The coefficients that a slab touches, one axis per part; the last of them are remembered."""
        spans: list[slice] = []
        for span, r in zip(piece.spans, rows, strict=True):
            spans += [span] if r is None else list(_stretches(r))
        if not self._taken or self._taken[0][0] != spans:
            merged = [
                span.stop - span.start if r is None else r.extent
                for span, r in zip(piece.spans, rows, strict=True)
            ]
            self._taken[:] = [(spans, self.xp.reshape(self.coefficients[tuple(spans)], tuple(merged)))]
        return self._taken[0][1]


def _check_out(out: Array, shape: tuple[int, ...]) -> None:
    """Raise where a result of this shape cannot be written."""
    if tuple(out.shape) != shape:
        raise ValueError(f"the result has shape {shape}, out has {tuple(out.shape)}")
    if isinstance(out, np.ndarray) and (
        out.dtype not in (np.float32, np.float64)
        or not (out.flags.c_contiguous and out.flags.writeable and out.dtype.isnative)
    ):
        raise ValueError(
            f"out must be C-contiguous, native float32 or float64 that can be written; got {out.dtype}, {out.flags}"
        )


def _stretches(rows: Rows) -> Iterator[slice]:
    for low, (extent, offsets) in zip(rows.low, rows.shape, strict=True):
        yield from (slice(low, low + extent), slice(0, offsets))


def _batch(coefficients: Array, layout: Layout, space: Space, pairs: bool) -> tuple[int, ...]:
    """Extents of the batch axes; all others must be as the space says."""
    shape = (*space.shape, *(space.frame.offsets if pairs else ()))
    batch = tuple(coefficients.shape[len(shape) :])
    if tuple(coefficients.shape[: len(shape)]) != shape or len(batch) != len(layout.batch_axes):
        raise ValueError(
            f"{'pairs' if pairs else 'coefficients'} must have shape {shape} and {len(layout.batch_axes)} "
            f"batch axes, got {tuple(coefficients.shape)}"
        )
    return batch


def _order(parts: Sequence[Part], layout: Layout) -> tuple[int, ...]:
    """Axes [K.., O.., b..] in the order of the parts, offsets behind their functions."""
    ndim, order = layout.coefficient_ndim, []
    for part in parts:
        if part.is_batch:
            order.append(2 * ndim + layout.batch_axes.index(part.axes[0]))
        for axis in part.coefficient_axes:
            order += [axis, ndim + axis]
    return tuple(order)


def _unroll(coefficients: Array, space: Space, xp: Any) -> Array:
    """Repeat the first coefficients of periodic axes behind the last, so that patches do not wrap around."""
    for axis, features in enumerate(space.features):
        tail = Reach.whole(features).extent - features.size
        if tail:
            head = coefficients[(*(slice(None),) * axis, slice(0, tail), ...)]
            coefficients = xp.concat([coefficients, head], axis=axis)
    return coefficients
