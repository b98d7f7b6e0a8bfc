"""Integrals along one coordinate: of products of derivatives, which penalties are made of, and over intervals."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray

from xspline.spaces import Arrow, Global, Space, Union
from xspline.spaces.bspline import LocalSpline, SplineTerm
from xspline.sums.factor import Factor, digest_key


@functools.lru_cache(maxsize=256)  # small arrays, needed again at every strength that is tried
def integral(space: Space, axis: int, order: int) -> Factor:
    """The matrix of ∫ D^order B_i D^order B_j dξ of one coordinate."""
    basis = space.basis(space.names[axis])
    return factor_of(axis, space.features[axis].roughness(order), f"order {order}", repr(basis))


@functools.lru_cache(maxsize=256)
def mass(space: Space, axis: int) -> Factor:
    """The matrix of ∫ B_i B_j dξ of one coordinate; that of a penalty leaves out season times events of a union."""
    features = space.features[axis]
    pairs = features.roughness(0)
    if isinstance(features, Arrow):
        m, near = features.others.size, features.spline.width
        pairs[m:, near:] = features.integrals(0)[m:, :m]
    elif isinstance(features, Global) and features.events:
        dense = features.integrals(0)
        for o in range(features.size):
            pairs[: features.size - o, o] = np.diagonal(dense, o)
    return factor_of(axis, pairs, "mass", repr(space.basis(space.names[axis])))


@functools.lru_cache(maxsize=256)
def roughness(space: Space, axis: int, order: int) -> Factor:
    """Return `integral`, for events beside a trend with ∫ e² too, where the order is at least 1."""
    factor = integral(space, axis, order)
    if not order or space.names[axis] not in with_events(space):
        return factor
    pairs = factor.pairs + spline_mass(space, axis).pairs
    return factor_of(axis, pairs, f"events, order {order}", repr(space.basis(space.names[axis])))


def spline_mass(space: Space, axis: int) -> Factor:
    """Return `integral` of order 0 for the B-spline of a union alone."""
    pairs, features = space.features[axis].roughness(0), space.features[axis]
    if isinstance(features, Global) and features.events:
        pairs[: features.size - features.events] = 0.0
    return factor_of(axis, pairs, "spline", repr(space.basis(space.names[axis])))


def with_events(space: Space) -> tuple[str, ...]:
    """Coordinates along which nothing but a penalty tells events from a trend."""
    bases = ((name, space.basis(name)) for name in space.names)
    return tuple(name for name, basis in bases if isinstance(basis, Union) and basis.has_events)


def factor_of(axis: int, pairs: NDArray[np.float64], *key: str) -> Factor:
    """A pair array over all functions of one axis, with a key made of texts."""
    return Factor((axis,), ((0, pairs.shape[0]),), pairs, digest_key(str(axis), *key))


def over_intervals(
    space: Space,
    axis: int,
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    density: Callable[[NDArray[np.float64]], NDArray[np.float64]] = np.ones_like,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """∫ B_k ρ dx and ∫ ρ dx over intervals [n] of one coordinate, in its unit: [n, K] and [n].

    By Gauss quadrature between knots, and between cycles: with ρ = 1 exact to rounding, and with a cosine of latitude
    too. Intervals that are no longer than nothing give 0; the others lie in the domain.
    """
    features = space.features[axis]
    terms = (SplineTerm(features),) if isinstance(features, LocalSpline) else getattr(features, "terms", ())
    rows, sizes = np.zeros((lower.size, features.size)), np.zeros(lower.size)
    used = np.flatnonzero(upper > lower)
    if not used.size:
        return rows, sizes
    ends = lower[used].min(), upper[used].max()
    edges = np.unique(np.concatenate([*(t.panels(*ends) for t in terms), lower[used], upper[used]]))
    # A cosine between two poles takes 14 nodes more, for an error below 1e-16.
    nodes, weights = legendre.leggauss(sum({type(t): t.nodes for t in terms}.values()) + 14)
    step = max((1 << 20) // (nodes.size * features.size), 1)  # 8 MB of values at a time
    for i in used:
        own = edges[np.searchsorted(edges, lower[i]) : np.searchsorted(edges, upper[i]) + 1]
        half = np.diff(own)[:, None] / 2
        x, scale = own[:-1, None] + half * (1 + nodes), half * weights
        for first in range(0, half.size, step):
            part = slice(first, first + step)
            own_scale = scale[part].ravel() * density(x[part].ravel())
            rows[i] += own_scale @ features.design(x[part].ravel())
            sizes[i] += own_scale.sum()
    return rows, sizes
