"""The dense definition of everything: rows of Φ, their sums, and predictions, for any layout.

Slow, large and plain: Φ is formed by products of design columns, and sums are written as in the paper.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import null_space

from xspline.kernels import Block, Layout
from xspline.spaces import Space
from xspline.sums import Sums

Floats = NDArray[np.float64]


def gauss(edges: Floats, many: int = 6) -> tuple[Floats, Floats]:
    """Nodes and weights of Gauss's rule between each two edges."""
    z, w = np.polynomial.legendre.leggauss(many)
    half = np.diff(edges)[:, None] / 2
    return (edges[:-1, None] + half * (1 + z)).ravel(), (half * w).ravel()


@dataclass(frozen=True, eq=False)
class Dense:
    """Sums of a block about a reference, per batch member: batch axes last, in the layout's order."""

    gram: Floats  # [P, P, b..]
    moment: Floats  # [P, b..]
    power: Floats  # [b..]
    weight: Floats  # [b..]
    count: NDArray[np.int64]  # [b..]


def design(
    coordinates: Sequence[Floats],
    layout: Layout,
    space: Space,
    shape: Sequence[int],
    orders: Sequence[int] | None = None,
) -> Floats:
    """Φ, or a derivative of it, as [data axes.., P]; batch axes have extent 1. NaN outside the domains."""
    orders = orders or (0,) * len(space.shape)
    phi = np.ones((*(1 if axis in layout.batch_axes else n for axis, n in enumerate(shape)), 1))
    for j, features in enumerate(space.features):
        x = np.asarray(coordinates[j], dtype=np.float64)
        axes = layout.spans[j]
        columns = features.design(x.reshape(-1), orders[j]).reshape(*x.shape, features.size)
        ascending = np.argsort(axes)
        columns = columns.transpose(*ascending, len(axes))
        columns = columns.reshape(*(n if axis in axes else 1 for axis, n in enumerate(shape)), features.size)
        phi = (phi[..., :, None] * columns[..., None, :]).reshape(
            *np.broadcast_shapes(phi.shape[:-1], columns.shape[:-1]), -1
        )
    return phi


def weights_of(block: Block) -> Floats:
    """Product of the weights, of the shape of the values."""
    shape = np.shape(block.values)
    total = np.ones(shape)
    for axes, array in block.weights:
        order = np.argsort(axes)
        lifted = [1] * len(shape)
        for axis in axes:
            lifted[axis] = shape[axis]
        total = total * np.asarray(array, dtype=np.float64).transpose(order).reshape(lifted)
    return total


def sums(block: Block, layout: Layout, space: Space, reference: float) -> Dense:
    """G, h, s, Σw and n, from the rows of Φ."""
    values, weights = np.asarray(block.values, dtype=np.float64), weights_of(block)
    phi = np.broadcast_to(design(block.coordinates, layout, space, values.shape), (*values.shape, space.size))
    valid = np.isfinite(values) & (weights > 0) & np.isfinite(phi).all(axis=-1)
    w = np.where(valid, weights, 0.0)
    e = np.where(valid, values - reference, 0.0)
    phi = np.where(valid[..., None], phi, 0.0)
    # Batch axes first, everything else one row per observation.
    order = (*layout.batch_axes, *(axis for axis in range(values.ndim) if axis not in layout.batch_axes))
    batch = tuple(values.shape[axis] for axis in layout.batch_axes)
    members = math.prod(batch)
    w, e, valid = (a.transpose(order).reshape(members, -1) for a in (w, e, valid))
    phi = phi.transpose(*order, values.ndim).reshape(members, -1, space.size)
    gram = np.moveaxis(np.swapaxes(phi, 1, 2) @ (w[..., None] * phi), 0, -1)
    moment = np.einsum("bnp,bn->pb", phi, w * e)
    scalars = ((w * e * e).sum(axis=1), w.sum(axis=1), valid.sum(axis=1))
    power, weight, count = (scalar.reshape(batch) for scalar in scalars)
    size = space.size
    return Dense(gram.reshape(size, size, *batch), moment.reshape(size, *batch), power, weight, count)


def evaluate(
    coefficients: Floats,
    coordinates: Sequence[Floats],
    layout: Layout,
    space: Space,
    orders: Sequence[int] | None = None,
) -> Floats:
    """Φ c, or a derivative of it, in the order of the layout's axes."""
    ndim, batch_axes = len(space.shape), layout.batch_axes
    shape = [0] * layout.ndim
    for j, x in enumerate(coordinates):
        for axis, length in zip(layout.spans[j], np.shape(x), strict=True):
            shape[axis] = length
    for axis, length in zip(batch_axes, coefficients.shape[ndim:], strict=True):
        shape[axis] = length
    phi = design(coordinates, layout, space, shape, orders)
    others = [axis for axis in range(len(shape)) if axis not in batch_axes]
    phi = phi.transpose(*batch_axes, *others, len(shape)).reshape(*(shape[a] for a in others), space.size)
    out = np.tensordot(phi, coefficients.reshape(space.size, *coefficients.shape[ndim:]), axes=1)
    return out.transpose(np.argsort([*others, *batch_axes]))


def assert_equal(sums: Sums, expected: Dense, space: Space, rtol: float = 1e-12) -> None:
    """Every sum agrees with the dense one, to `rtol` of its largest entry."""
    frame, batch = space.frame, expected.power.shape
    gram = sums.gram.with_batch_axes(len(batch)).to_dense(frame)
    close(np.broadcast_to(gram, expected.gram.shape), expected.gram, rtol)
    moment = sums.full_moment(frame).reshape(space.size, *sums.moment.shape[len(space.shape) :])
    # Sums of residuals cancel: their scale is that of what is added up, Σ|φ w e| <= √(diag G · s).
    scale = np.sqrt(np.einsum("pp...->p...", expected.gram) * expected.power).max(initial=0.0)
    close(np.broadcast_to(moment, expected.moment.shape), expected.moment, rtol, scale)
    close(sums.power, expected.power, rtol)
    close(sums.weight, expected.weight, rtol)
    np.testing.assert_array_equal(sums.count, expected.count)


def close(values: Floats, expected: Floats, rtol: float = 1e-12, scale: float = 0.0) -> None:
    """Equal up to `rtol` of the largest entry, or of `scale` if that is larger; NaN where expected."""
    largest = max(scale, float(np.nanmax(np.abs(expected), initial=0.0)))
    np.testing.assert_allclose(values, expected, rtol=0.0, atol=rtol * largest)


def functions_of_one_place(space: Space) -> np.ndarray:
    """Coefficients of all functions with one value and one tangent plane at poles at ±90°: orthonormal columns.

    Latitude and longitude, all the way round, come first. A tangent plane is what is nearest to cosine and sine.
    """
    lat, lon = space.features[:2]
    poles = [x for x in lat.domain if abs(x) == 90.0]
    if not poles:
        return np.eye(space.size)
    turn = np.linspace(0, 360, 8 * lon.size, endpoint=False)
    waves = [np.ones((turn.size, 1)), np.stack([np.cos(np.deg2rad(turn)), np.sin(np.deg2rad(turn))], axis=1)]
    held = []
    for order, own in enumerate(waves):
        known = np.linalg.lstsq(lon.design(turn), own)[0]
        apart = np.eye(lon.size) - known @ np.linalg.pinv(known)
        held += [np.kron(lat.design(np.array([pole]), order)[0], apart) for pole in poles]
    single = null_space(np.concatenate(held), rcond=1e-9)
    return np.kron(single, np.eye(space.size // len(single)))
