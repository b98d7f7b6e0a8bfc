"""Integrals of products of derivatives along one coordinate, which penalties are made of."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from xspline.spaces import Arrow, Global, Space, Union
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
