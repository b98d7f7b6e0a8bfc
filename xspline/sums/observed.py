"""Where there are observations, by knot cell: from G alone."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xspline.spaces import Space
from xspline.spaces.bspline import LocalSpline
from xspline.sums.gram import Gram
from xspline.sums.integrals import mass

Bools: TypeAlias = NDArray[np.bool_]


def observed_cells(gram: Gram, space: Space, distance: int = 0) -> Bools:
    """Return whether each knot cell, or one at most `distance` cells away along every coordinate, holds observations.

    Two B-splines that are as many functions apart as their degree overlap in one cell: their entry of G is not zero
    where there are observations inside it. Those exactly on a knot show only in the entries of functions that are one
    less apart, which overlap in the two cells that meet there. A global basis is one cell. The result, [K.., b..], is
    as coefficients of `Space.cells`: along a local spline the start of each cell, which belongs to the cell before it
    too, and the rest of it, in turn. Batch extents are those of G.
    """
    features = space.features
    local = [axis for axis, f in enumerate(features) if f.local]
    # Knots are counted like cells: where there is one more of them, the last cell is none.
    counts = [f.cells + (not f.periodic) if f.local else 1 for f in features]
    is_cell = (
        i < (f.cells if f.local else 1)
        for i, f in zip(np.indices(counts, sparse=True), features, strict=True)
    )
    real = functools.reduce(np.logical_and, is_cell).reshape(*counts, *(1,) * gram.batch_ndim)
    cells = np.zeros((*counts, *gram.batch), dtype=bool)
    levels = itertools.product(*((0, 1) if f.local and f.width > 1 else (0,) for f in features))
    for level in sorted(levels, key=sum):  # inside of cells; then on knots along one axis, along two, …
        apart = [f.width - 1 - less if f.local else 0 for f, less in zip(features, level, strict=True)]
        entries: Any = gram.at(apart, space.frame) != 0
        for axis, (f, n) in enumerate(zip(features, counts, strict=True)):
            places = np.append(f.first, min(f.first[-1] + 1, f.size - 1))[:n]
            entries = np.take(entries, places, axis) if f.local else np.any(entries, axis, keepdims=True)
        knots = [axis for axis, less in enumerate(level) if less]
        cells |= _spread(entries & ~_spread(cells, knots, 1), knots, -1) & real
    for _ in range(min(distance, max(counts))):
        cells = _spread(_spread(cells, local, 1), local, -1) & real
    for axis in local:
        starts = _spread(cells, [axis], 1) if features[axis].width > 1 else cells
        cells = np.stack([starts, cells], axis + 1).reshape(*cells.shape[:axis], -1, *cells.shape[axis + 1 :])
    return cells[tuple(slice(2 * f.cells if f.local else 1) for f in features)]


def cell_weights(gram: Gram, space: Space) -> NDArray[np.float64]:
    """Return about how much weight of observations each knot cell holds, [m.., b..]; a global basis is one cell.

    Two B-splines as many functions apart as their degree overlap in one cell: their entry of G is Σw BB' inside it,
    here over the mean of BB'. So it is right where observations are many, and of a single one up to twice as much.
    """
    apart = [f.width - 1 if f.local else 0 for f in space.features]
    weights = gram.at(apart, space.frame)
    for axis, f in enumerate(space.features):
        first = f.first if f.local else np.zeros(1, dtype=np.int64)
        means = mass(space, axis).pairs[first, apart[axis]]
        if isinstance(f, LocalSpline):
            means = means * (f.ends[1] - f.ends[0]) / np.diff(f.edges)
        shape = [-1 if other == axis else 1 for other in range(weights.ndim)]
        weights = np.take(weights, first, axis) / means.reshape(shape)
    return weights


def _spread(marks: Bools, axes: Iterable[int], step: int) -> Bools:
    """Cells' marks to the knots at their ends (step 1), or those of knots to the cells that meet there (-1)."""
    for axis in axes:
        marks = marks | np.roll(marks, step, axis)
    return marks
