"""Observations that are far from their neighbours, found without a covariance, which gross errors would spoil."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from xspline.residuals.assumptions import MEDIAN, Array

Index = NDArray[np.int64]

#: Nearest observations of each that it is compared with.
AROUND = 16


def tree_of(scaled: Array) -> cKDTree:
    """Return a tree of places [n, D] in units in which values change alike along each axis."""
    return cKDTree(scaled)


def distances(tree: cKDTree, values: Array, own: Index) -> tuple[Array, Index]:
    """Return how far observations [m] are from the median of the nearest others, and these with themselves [m, k].

    The `tree` is of the places of all observations, in units in which values change alike along each axis.
    """
    size = min(AROUND + 1, values.size)
    near = tree.query(tree.data[own], size)[1].reshape(own.size, size)
    others = np.where(near == own[:, None], np.nan, values[near])
    return np.abs(values[own] - np.nanmedian(others, axis=1)), near


def apart(tree: cKDTree, values: Array, own: Index | None = None) -> Array:
    """Return how far observations are from the median of the nearest others, over what is usual.

    Usual is the median of such distances over all that are looked at, or the upper quartile over the neighbours where
    that is larger, as it is at fronts, and at the ends of slopes, where only some neighbours have theirs on one side.

    The `tree` is as for `distances`; `own` [m] are those that are looked at, None for all. The result [m] is in
    standard deviations, as far as distances are normal.
    """
    own = np.arange(values.size) if own is None else own
    distance = np.full(values.size, np.nan)
    distance[own], near = distances(tree, values, own)
    usual = float(np.median(distance[own])) or float(np.quantile(distance[own], 0.9))
    around = np.where(near == own[:, None], np.nan, distance[near])
    # The quartile of each row, between two of its values: `np.nanquantile` takes a hundred times as long.
    ordered, last = np.sort(around, axis=1), np.isfinite(around).sum(axis=1) - 1
    at = 0.75 * np.maximum(last, 0)
    below = at.astype(np.int64)
    low, high = (
        np.take_along_axis(ordered, i[:, None], axis=1)[:, 0] for i in (below, np.ceil(at).astype(np.int64))
    )
    local = np.where(last >= 0, low + (at - below) * (high - low), 0.0)
    scale = np.maximum(usual, local) / MEDIAN
    return np.where(scale > 0, distance[own] / np.where(scale > 0, scale, 1.0), 0.0)
