"""Compiled loop over pairs of observations that follow each other along a series, of many lines at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from xspline.kernels.block import Floats, Integers
from xspline.spaces.jit import compiled, internal


@internal
def _fill(row: Floats, out: Floats) -> None:
    """Write the functions of a row, and after them as many products of two as there is room for."""
    n = row.size
    out[:n] = row
    place = n
    if out.size > n:
        for i in range(n):
            for j in range(i, n):
                out[place] = row[i] * row[j]
                place += 1


@internal
def _add(row: Floats, n: int, e: float, w: float, total: Floats, scalars: Floats) -> None:
    """Add an observation e to the totals of a line in one slot."""
    x = w * e
    for i in range(n):
        total[i] += x * row[i]
    for i in range(n, row.size):
        total[i] += w * row[i]
    scalars[0] += x * e
    scalars[1] += w
    scalars[2] += 1.0


@internal
def _add_row(x: float, a: Floats, out: Floats, size: int) -> None:
    for c in range(size):
        out[c] += x * a[c]


@compiled
def pairs(
    values: NDArray[Any],
    weight: Floats,
    position: Integers,
    phi: Floats,
    lags: int,
    reference: float,
    cut: int,
    totals: Floats,
    scalars: Floats,
) -> None:
    """Add the pairs of lines of values [n, C], each of one weight, to slots [S, C, ..]; see `sums.memory.Memory`.

    Parameters
    ----------
    position : [n], in steps; negative: not looked at.
    phi : [n, K]
    cut : the row that pairs have to reach over, or a negative number for all pairs.
    totals : [S, C, W], of the K functions, and then of pairs of them if W > K.
    scalars : [S, C, 3], s, Σw and n.
    """
    n, lines = values.shape
    functions, width, alone = phi.shape[1], totals.shape[2], 3 * lags - 1
    tile = 64  # lines at a time, whose totals the cache holds
    last = np.empty(tile, dtype=np.int64)
    before, product, mass, power = np.empty(tile), np.empty(tile), np.empty(tile), np.empty(tile)
    rows, row, own = np.empty((n, width)), np.empty(width), np.empty((width, tile))
    for t in range(n):
        _fill(phi[t], rows[t])
    for first in range(0, lines, tile):
        size = min(tile, lines - first)
        last[:] = -1
        own[:] = 0.0
        power[:] = 0.0
        for t in range(n):
            if position[t] < 0:
                continue
            adjacent = False
            for c in range(size):
                product[c] = mass[c] = 0.0
                line = first + c
                w, y = weight[line], values[t, line]
                if w <= 0.0 or not np.isfinite(y):
                    continue
                e, a = y - reference, last[c]
                lag = position[t] - position[a] if a >= 0 else lags + 1
                if cut >= 0 and not (a < cut <= t):
                    lag = lags + 1
                if lag == 1:  # the same two rows in most lines: all of them at a time, below
                    adjacent = True
                    difference = e - before[c]
                    product[c], mass[c] = w * difference, w
                    power[c] += w * difference * difference
                    scalars[0, line, 2] += 1.0
                elif lag <= lags:
                    _fill(phi[t] - phi[a], row)
                    _add(row, functions, e - before[c], w, totals[lag - 1, line], scalars[lag - 1, line])
                if lag > 1 or cut >= 0:
                    slot = min(2 * lags + lag - 2, alone) if cut < 0 else lags + lag - 1
                    if cut < 0 or lag <= lags:
                        _add(rows[t], functions, e, w, totals[slot, line], scalars[slot, line])
                        if a >= 0:
                            _add(rows[a], functions, before[c], w, totals[slot, line], scalars[slot, line])
                last[c], before[c] = t, e
            if adjacent:
                _fill(phi[t] - phi[t - 1], row)
                for i in range(width):
                    _add_row(row[i], product if i < functions else mass, own[i], size)
        for c in range(size):
            scalars[0, first + c, 0] += power[c]
            for i in range(width):
                totals[0, first + c, i] += own[i, c]
            if cut < 0 and last[c] >= 0:
                line, a = first + c, last[c]
                _add(rows[a], functions, before[c], weight[line], totals[alone, line], scalars[alone, line])
