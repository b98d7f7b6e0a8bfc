"""Compiled loops of sums for groups of one coefficient axis.

`scatter` contracts one axis of an array, `sweep` that of values as they are stored: float32 is read as it is and
added up in float64. Both take four rows of a cell at a time, `TILE` columns wide, so that all sums of the cell
stay in the cache. As in `compiled`, what a compiled function calls is in this file.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from xspline.spaces.jit import compiled

from .layout import Floats, Integers

TILE = 256  # columns at a time
FOUR = 4  # rows at a time

Values = NDArray[Any]  # float32 or float64, missing: NaN


@compiled
def _errors(
    a: Values,
    b: Values,
    c: Values,
    d: Values,
    reference: float,
    words: Integers,
    e: Floats,
    power: Floats,
    count: Integers,
    digest: Integers,
) -> None:
    """Four rows less the reference, 0 where missing, and what their columns add up to."""
    w0, w1, w2, w3, zero = words[0], words[1], words[2], words[3], np.int64(0)
    for r in range(a.size):  # selections, not branches: vector instructions
        k0, k1, k2, k3 = a[r] == a[r], b[r] == b[r], c[r] == c[r], d[r] == d[r]
        e0 = np.float64(a[r]) - reference if k0 else 0.0
        e1 = np.float64(b[r]) - reference if k1 else 0.0
        e2 = np.float64(c[r]) - reference if k2 else 0.0
        e3 = np.float64(d[r]) - reference if k3 else 0.0
        e[r], e[TILE + r], e[2 * TILE + r], e[3 * TILE + r] = e0, e1, e2, e3
        power[r] += e0 * e0 + e1 * e1 + e2 * e2 + e3 * e3
        count[r] += np.int64(k0) + np.int64(k1) + np.int64(k2) + np.int64(k3)
        digest[r] += (w0 if k0 else zero) + (w1 if k1 else zero) + (w2 if k2 else zero) + (w3 if k3 else zero)


@compiled
def _errors_of_one(
    a: Values, reference: float, word: int, e: Floats, power: Floats, count: Integers, digest: Integers
) -> None:
    """`_errors` of one row."""
    zero = np.int64(0)
    for r in range(a.size):
        known = a[r] == a[r]
        e[r] = np.float64(a[r]) - reference if known else 0.0
        power[r] += e[r] * e[r]
        count[r] += np.int64(known)
        digest[r] += word if known else zero


@compiled
def _known(a: Values, b: Values, c: Values, d: Values, e: Floats) -> None:
    """1 where four rows have values, 0 where they are missing."""
    for r in range(a.size):
        e[r] = 1.0 if a[r] == a[r] else 0.0
        e[TILE + r] = 1.0 if b[r] == b[r] else 0.0
        e[2 * TILE + r] = 1.0 if c[r] == c[r] else 0.0
        e[3 * TILE + r] = 1.0 if d[r] == d[r] else 0.0


@compiled
def _clear(total: Floats, width: int, columns: int) -> None:
    for q in range(width):
        total[q * TILE : q * TILE + columns] = 0.0


@compiled
def _add_four(a: Floats, b: Floats, c: Floats, d: Floats, values: Floats, total: Floats) -> None:
    """total[q TILE + r] += values[0, q] a[r] + ... + values[3, q] d[r]: four functions for each load of the rows."""
    q, width = 0, values.shape[1]
    while q + 4 <= width:
        a0, a1, a2, a3 = values[0, q], values[0, q + 1], values[0, q + 2], values[0, q + 3]
        b0, b1, b2, b3 = values[1, q], values[1, q + 1], values[1, q + 2], values[1, q + 3]
        c0, c1, c2, c3 = values[2, q], values[2, q + 1], values[2, q + 2], values[2, q + 3]
        d0, d1, d2, d3 = values[3, q], values[3, q + 1], values[3, q + 2], values[3, q + 3]
        out = total[q * TILE : (q + 4) * TILE]
        for r in range(a.size):
            ar, br, cr, dr = a[r], b[r], c[r], d[r]
            out[r] += a0 * ar + b0 * br + c0 * cr + d0 * dr
            out[TILE + r] += a1 * ar + b1 * br + c1 * cr + d1 * dr
            out[2 * TILE + r] += a2 * ar + b2 * br + c2 * cr + d2 * dr
            out[3 * TILE + r] += a3 * ar + b3 * br + c3 * cr + d3 * dr
        q += 4
    while q < width:
        a0, b0, c0, d0 = values[0, q], values[1, q], values[2, q], values[3, q]
        out = total[q * TILE : (q + 1) * TILE]
        for r in range(a.size):
            out[r] += a0 * a[r] + b0 * b[r] + c0 * c[r] + d0 * d[r]
        q += 1


@compiled
def _add_one(a: Floats, values: Floats, total: Floats) -> None:
    """total[q TILE + r] += values[q] a[r]."""
    for q in range(values.size):
        a0, out = values[q], total[q * TILE : (q + 1) * TILE]
        for r in range(a.size):
            out[r] += a0 * a[r]


@compiled
def _scatter_lone(array: Floats, start: Integers, places: Integers, values: Floats, out: Floats) -> None:
    """`scatter` of [before, n] into [before, R]."""
    for p in range(array.shape[0]):
        for i in range(array.shape[1]):
            x = array[p, i]
            if x != 0.0:
                for q in range(places.size):
                    out[p, start[i] + places[q]] += values[i, q] * x


@compiled
def scatter(array: Floats, start: Integers, places: Integers, values: Floats, out: Floats) -> None:
    """out[p, start[i] + places[q], r] += values[i, q] array[p, i, r]; fastest where rows of a cell are neighbours."""
    before, rows, after = array.shape
    if after == 1:
        _scatter_lone(array.reshape(before, rows), start, places, values, out.reshape(before, out.shape[1]))
        return
    total = np.empty(places.size * TILE)
    for p in range(before):
        for left in range(0, after, TILE):
            s, i = slice(left, min(left + TILE, after)), 0
            columns = s.stop - left
            while i < rows:
                first = start[i]
                _clear(total, places.size, columns)
                while i + FOUR <= rows and start[i + 1] == start[i + 2] == start[i + 3] == first == start[i]:
                    a, b, c, d = array[p, i, s], array[p, i + 1, s], array[p, i + 2, s], array[p, i + 3, s]
                    _add_four(a, b, c, d, values[i : i + FOUR], total)
                    i += FOUR
                while i < rows and start[i] == first:
                    _add_one(array[p, i, s], values[i], total)
                    i += 1
                for q in range(places.size):
                    line, found = out[p, first + places[q], s], total[q * TILE : q * TILE + columns]
                    for r in range(columns):
                        line[r] += found[r]


@compiled
def _put(total: Floats, first: int, places: Integers, out: Floats) -> None:
    """out[r, first + places[q]] += total[q TILE + r]."""
    for r in range(out.shape[0]):
        line = out[r]
        for q in range(places.size):
            line[first + places[q]] += total[q * TILE + r]


@compiled
def sweep(
    x: Values,
    column: int,
    order: Integers,
    ends: Integers,
    start: Integers,
    places: Integers,
    values: Floats,
    words: Integers,
    reference: float,
    moment: bool,
    out: Floats,
    power: Floats,
    count: Integers,
    digest: Integers,
) -> None:
    """out[p, r, start[i] + places[q]] = sum of values[i, q] e[p, order[i], r].

    Parameters
    ----------
    x : [before, n, at least column + after]
    column : the first to be read.
    order : rows sorted by where they start; `start` and `values` come in this order.
    ends : number of sorted rows up to the end of each cell.
    moment : e is x - reference, 0 where x is NaN, else 1 and 0 there.
    power, count, digest : [before, after], of the moment: Σ e², how many rows are known, sum of their words.
    """
    before, after = power.shape
    total, e = np.empty(places.size * TILE), np.empty(FOUR * TILE)
    e0, e1, e2, e3 = e[:TILE], e[TILE : 2 * TILE], e[2 * TILE : 3 * TILE], e[3 * TILE :]
    for p in range(before):
        for left in range(0, after, TILE):
            columns = min(TILE, after - left)
            s, i = slice(left, left + columns), 0
            there = slice(column + left, column + left + columns)
            out[p, s] = 0.0
            for cell in range(ends.size):
                first = start[i]
                _clear(total, places.size, columns)
                while i + FOUR <= ends[cell]:
                    a, b, c, d = (
                        x[p, order[i], there],
                        x[p, order[i + 1], there],
                        x[p, order[i + 2], there],
                        x[p, order[i + 3], there],
                    )
                    if moment:
                        _errors(a, b, c, d, reference, words[i:], e, power[p, s], count[p, s], digest[p, s])
                    else:
                        _known(a, b, c, d, e)
                    _add_four(
                        e0[:columns], e1[:columns], e2[:columns], e3[:columns], values[i : i + FOUR], total
                    )
                    i += FOUR
                while i < ends[cell]:
                    a, line = x[p, order[i], there], e[:columns]
                    if moment:
                        _errors_of_one(a, reference, words[i], line, power[p, s], count[p, s], digest[p, s])
                    else:
                        for r in range(columns):
                            line[r] = 1.0 if a[r] == a[r] else 0.0
                    _add_one(line, values[i], total)
                    i += 1
                _put(total, first, places, out[p, s])
