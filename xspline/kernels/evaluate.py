"""Evaluation of fields, of their derivatives and of quadratic forms: the transpose of the contraction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import array_api_compat
import numpy as np

from xspline.kernels.block import SLAB_ENTRIES, Array, Floats, Layout, slab_entries
from xspline.kernels.engines import Engine, choose_engine, expand
from xspline.kernels.rows import CoefficientRange, Rows, build_rows, unrolled
from xspline.kernels.walk import SlabAxis, SlabBox, flat_labels, slab_axes_of, slab_boxes
from xspline.spaces import Space


def evaluate(
    coefficients: Array,
    coordinates: Sequence[Floats],
    layout: Layout,
    space: Space,
    orders: Sequence[int] | None = None,
    *,
    pairs: bool = False,
    engine: str | Engine | None = None,
    slab: int | None = None,
    out: Array | None = None,
    extrapolate: bool = False,
) -> Array:
    """Values of a field, or of a partial derivative of it, at coordinates of any layout; NaN outside the domains.

    They are `out`, or a new array of float64 in the namespace of the coefficients. `out` has the shape of the result;
    of NumPy it is C-contiguous, native float32 or float64. Sums are float64. `engine`, {"numba", "namespace"} or
    Engine, is which twin of the contraction runs: by default the compiled one for NumPy arrays. A slab has `slab`
    entries. With `extrapolate`, values outside the domains are those of the polynomials at the ends.

    With `pairs` they are quadratic forms φᵀZφ of the rows φ of Φ, or of a derivative of it. With the pair form Z of a
    covariance of the coefficients these are the variances of the field. It is the transpose of how G is summed:
    Σ w φᵀZφ = Σ_{k,o} Z[k, o] G[k, o] for the G of observations with weights w.

    The coefficients are [K.., b..], of any array namespace, or Z, [K.., O.., b..], with φᵀZφ = Σ_{k,o} Z[k, o] Π_j
    φ_{k_j} φ_{k_j + o_j}; k_j + o_j is modulo K_j on periodic axes, and entries with k_j + o_j ≥ K_j on others are not
    read. The coordinates of each coefficient axis are float64 on the host, of the lengths of its group's data axes;
    `layout` says where they and the batch axes lie in the result; nothing is pooled. The orders of the derivative, per
    unit of the coordinate's float, are 0 by default.
    """
    engine = choose_engine(coefficients, engine)
    xp, ndim = array_api_compat.array_namespace(coefficients), len(space.shape)
    orders = (0,) * ndim if orders is None else orders
    batch = tuple(coefficients.shape[ndim * (1 + pairs) :])
    lengths = [0] * layout.ndim
    for axes, coordinate in zip(layout.spans, coordinates, strict=True):
        for axis, length in zip(axes, coordinate.shape, strict=True):
            lengths[axis] = length
    for axis, length in zip(layout.batch_axes, batch, strict=True):
        lengths[axis] = length
    shape = tuple(lengths)
    if out is None:
        out = xp.empty(shape, dtype=xp.float64, device=array_api_compat.device(coefficients))
    slab_axes = slab_axes_of(layout)
    offsets = space.frame.offsets if pairs else (1,) * ndim
    array = xp.reshape(xp.astype(coefficients, xp.float64, copy=False), (*space.shape, *offsets, *batch))
    array = space.at_points(array, xp) if pairs else array
    array = _unrolled(array, layout, slab_axes, space, pairs, xp)
    entries = slab_entries(coefficients)
    # Values are written once, 8 MiB or more at a time: only what they come from waits in a cache.
    limit = slab or (entries if pairs else max(entries, 8 * SLAB_ENTRIES))
    boxes = slab_boxes(shape, slab_axes, limit)
    _fill(out, array, coordinates, slab_axes, boxes, space, orders, engine, pairs, extrapolate)
    return out


def _unrolled(
    coefficients: Array, layout: Layout, slab_axes: Sequence[SlabAxis], space: Space, pairs: bool, xp: Any
) -> Array:
    """Axes [K.., O.., b..] in the order of the slab axes, offsets behind their functions.

    The first coefficients of periodic axes are repeated behind the last, so that supports do not wrap around.
    """
    ndim, order = len(space.features), []
    for a, features in enumerate(space.features):
        coefficients = unrolled(coefficients, features, a, ndim + a, pairs, xp)
    for axis in slab_axes:
        if axis.is_batch:
            order.append(2 * ndim + layout.batch_axes.index(axis.axes[0]))
        for a in axis.coefficient_axes:
            order += [a, ndim + a]
    return xp.permute_dims(coefficients, tuple(order))


def _fill(
    out: Array,
    coefficients: Array,
    coordinates: Sequence[Floats],
    slab_axes: Sequence[SlabAxis],
    boxes: Iterable[SlabBox],
    space: Space,
    orders: Sequence[int],
    engine: Engine,
    pairs: bool,
    extrapolate: bool,
) -> None:
    """Fill the result slab by slab: written in place where its axes are those of slabs, in their order.

    The coefficients are unrolled, axes in the order of the slab axes; behind each coefficient axis is one of offsets,
    of length 1 unless `pairs`. What neighbouring slabs share is kept from one to the next: the rows of an axis, and
    the coefficients that they touch.
    """
    xp = array_api_compat.array_namespace(coefficients)
    labels = [flat_labels(x) for x in coordinates]
    axes = [a for axis in slab_axes for a in axis.axes]
    in_order, back = axes == sorted(axes), tuple(int(i) for i in np.argsort(axes))
    known: dict[int, tuple[tuple[int, int], Rows]] = {}
    touched: tuple[list[slice], Array] = ([], None)
    for box in boxes:
        rows: list[Rows | None] = []
        spans: list[slice] = []
        lengths: list[int] = []
        for i, (axis, span) in enumerate(zip(slab_axes, box.rows, strict=True)):
            if axis.is_batch:
                rows.append(None)
                spans.append(box.spans[i])
                lengths.append(span[1])
                continue
            if i not in known or known[i][0] != span:
                own = axis.coefficient_axes
                features, positions = [space.features[a] for a in own], [labels[a] for a in own]
                ranges = [CoefficientRange.whole(f) for f in features]
                order = [orders[a] for a in own]
                built = build_rows(
                    features, positions, ranges, order, span, engine.compiled, np.nan, extrapolate
                )
                known[i] = span, built.paired() if pairs else built
            rows.append(known[i][1])
            spans += known[i][1].spans
            lengths.append(known[i][1].extent)
        if touched[1] is None or touched[0] != spans:
            touched = spans, xp.reshape(coefficients[tuple(spans)], tuple(lengths))
        place = out[box.slices]
        plain = isinstance(place, np.ndarray) and place.flags.c_contiguous and in_order
        target = place.reshape(box.shape) if plain else None
        array = expand(touched[1], rows, engine, target)
        if array is not target:
            array = xp.permute_dims(xp.reshape(array, tuple(place.shape[a] for a in axes)), back)
            out[box.slices] = xp.astype(array, out.dtype, copy=False)
