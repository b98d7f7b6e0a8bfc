"""Where there are observations, by knot cell: from G alone."""

from __future__ import annotations

import itertools
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xspline.spaces import Features, Space
from xspline.sums.gram import Gram

Bools: TypeAlias = NDArray[np.bool_]


def observed_cells(gram: Gram, space: Space, distance: int = 0) -> Bools:
    """Return whether each knot cell, or one at most `distance` cells away along every coordinate, holds observations.

    Two B-splines that are as many functions apart as their degree overlap in one cell: their entry of G is not zero
    where there are observations inside it. Those exactly on a knot show only in the entries of functions that are one
    less apart, which overlap in the two cells that meet there. A global basis is one cell.

    Returns
    -------
    ndarray of bool, [m.., b..]
        Batch extents are those of G.
    """
    features = space.features
    cells: Any = None
    # What lies inside of cells comes before what lies on knots along some of the axes.
    on_knots = itertools.product(*((0, 1) if f.local and f.width > 1 else (0,) for f in features))
    for knots in sorted(on_knots, key=sum):
        apart = [f.width - 1 - knot if f.local else 0 for f, knot in zip(features, knots, strict=True)]
        places: Any = gram.at(apart, space.frame) != 0
        for axis, (f, knot) in enumerate(zip(features, knots, strict=True)):
            places = _by_place(places, f, knot, axis)
        if cells is None:
            cells = places
            continue
        axes = [axis for axis, knot in enumerate(knots) if knot]
        explained = cells
        for axis in axes:
            explained = _meeting_cells(explained, features[axis], axis)
        places &= ~explained
        for axis in axes:
            places = _ends(places, features[axis], axis)
        cells = cells | places
    for axis, f in enumerate(features):
        for _ in range(min(distance, f.cells) if f.local else 0):
            cells = _ends(_meeting_cells(cells, f, axis), f, axis)
    return np.asarray(cells)


def _by_place(entries: Bools, f: Features, knot: int, axis: int) -> Bools:
    """Entries by cell, or by knot, along one axis; any of those of a global basis."""
    if not f.local:
        return np.asarray(np.any(entries, axis=axis, keepdims=True))
    last = [] if f.periodic or not knot else [f.first[-1] + 1]
    return np.take(entries, np.append(f.first, last).astype(np.int64), axis=axis)


def _meeting_cells(cells: Bools, f: Features, axis: int) -> Bools:
    """Whether either of the cells that meet at a knot is marked, by knot."""
    if f.periodic:
        return cells | np.roll(cells, 1, axis)
    widths = [(0, 0)] * cells.ndim
    before, after = ([*widths[:axis], pad, *widths[axis + 1 :]] for pad in ((1, 0), (0, 1)))
    return np.pad(cells, before) | np.pad(cells, after)


def _ends(knots: Bools, f: Features, axis: int) -> Bools:
    """Whether either end of a cell is marked, by cell."""
    if f.periodic:
        return knots | np.roll(knots, -1, axis)
    n = knots.shape[axis]
    return np.take(knots, range(n - 1), axis) | np.take(knots, range(1, n), axis)
