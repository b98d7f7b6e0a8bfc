"""Compiled loop over pairs of observations that follow each other along a series, of many lines at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from xspline.kernels.block import Floats, Integers
from xspline.spaces.jit import compiled, internal

#: Lines at a time, whose totals the cache of a core holds: with 64 a full grid costs 3.7 ns a value, with 256 2.0.
TILE = 256


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
def _follow(
    values: NDArray[Any],
    reference: float,
    previous: int,
    weight: Floats,
    last: Integers,
    before: Floats,
    errors: Floats,
    product: Floats,
    mass: Floats,
    sums: Floats,
) -> int:
    """Write the pairs that some lines make with row `previous`; return how many observations make none.

    There is no branch, so that one instruction does several lines. `last` and `before` are the rows and the errors of
    the last observations. NaN stands for an error that is missing.
    """
    others = 0
    for c in range(weight.size):
        e = values[c] - reference if weight[c] > 0.0 else np.nan
        is_seen = np.isfinite(e)
        follows = is_seen and last[c] == previous
        difference = e - before[c] if follows else 0.0
        w = weight[c] if follows else 0.0
        errors[c] = e if is_seen else np.nan
        product[c], mass[c] = w * difference, w
        sums[0, c] += w * difference * difference
        sums[1, c] += 1.0 if follows else 0.0
        others += 1 if is_seen and not follows else 0
    return others


@internal
def _add_rows(rows: Floats, functions: int, product: Floats, mass: Floats, out: Floats) -> None:
    """Add four rows times what lines have for each: `product` for functions, `mass` for pairs of them."""
    for i in range(out.shape[0]):
        own = product if i < functions else mass
        a, b, c, d = rows[0, i], rows[1, i], rows[2, i], rows[3, i]
        for line in range(out.shape[1]):
            out[i, line] += a * own[0, line] + b * own[1, line] + c * own[2, line] + d * own[3, line]


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
    rows, row = np.empty((n, width)), np.empty(width)
    for t in range(n):
        _fill(phi[t], rows[t])
    for first in range(0, lines, TILE):
        size = min(TILE, lines - first)
        ours = weight[first : first + size]
        last, before, errors = np.full(size, -1), np.zeros(size), np.empty(size)
        # Pairs of neighbours, most of all, four rows at a time; the rest one by one.
        product, mass, steps = np.zeros((4, size)), np.zeros((4, size)), np.zeros((4, width))
        sums, own, held, previous = np.zeros((2, size)), np.zeros((width, size)), 0, -2
        for t in range(n):
            if position[t] < 0:
                continue
            follows = cut < 0 and previous >= 0 and position[t] == position[previous] + 1
            others = _follow(
                values[t, first:], reference, previous if follows else -2, ours, last, before, errors,
                product[held], mass[held], sums,
            )  # fmt: skip
            if follows:
                _fill(phi[t] - phi[previous], steps[held])
                held += 1
            if held == 4:
                _add_rows(steps, functions, product, mass, own)
                held = 0
            for c in range(size if others else 0):
                a, e, line = last[c], errors[c], first + c
                if not np.isfinite(e) or (follows and a == previous):
                    continue
                w = ours[c]
                lag = position[t] - position[a] if a >= 0 else lags + 1
                if cut >= 0 and not (a < cut <= t):
                    lag = lags + 1
                if lag <= lags:
                    _fill(phi[t] - phi[a], row)
                    _add(row, functions, e - before[c], w, totals[lag - 1, line], scalars[lag - 1, line])
                if cut < 0 or lag <= lags:
                    slot = min(2 * lags + lag - 2, alone) if cut < 0 else lags + lag - 1
                    _add(rows[t], functions, e, w, totals[slot, line], scalars[slot, line])
                    if a >= 0:
                        _add(rows[a], functions, before[c], w, totals[slot, line], scalars[slot, line])
            for c in range(size):
                is_seen = np.isfinite(errors[c])
                before[c] = errors[c] if is_seen else before[c]
                last[c] = t if is_seen else last[c]
            previous = t
        steps[held:] = 0.0
        _add_rows(steps, functions, product, mass, own)
        for c in range(size):
            line, a = first + c, last[c]
            scalars[0, line, 0] += sums[0, c]
            scalars[0, line, 2] += sums[1, c]
            for i in range(width):
                totals[0, line, i] += own[i, c]
            if cut < 0 and a >= 0:
                _add(rows[a], functions, before[c], ours[c], totals[alone, line], scalars[alone, line])
