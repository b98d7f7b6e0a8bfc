"""Compiled loops over a grid as it is stored: lines of values along one axis, contracted as they are read.

float32 is read as it is and added up in float64. Four lines of one cell are taken at a time, `TILE` columns
wide, so that all sums of a cell stay in the cache. As in `compiled`, what a compiled function calls is in this
file.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .compiled import compiled
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
def _add_rows(e: Floats, values: Floats, columns: int, total: Floats) -> None:
    """total[q TILE + r] += sum over j of values[j, q] e[j TILE + r], four rows j."""
    q, width = 0, values.shape[1]
    while q + 4 <= width:
        a0, a1, a2, a3 = values[0, q], values[0, q + 1], values[0, q + 2], values[0, q + 3]
        b0, b1, b2, b3 = values[1, q], values[1, q + 1], values[1, q + 2], values[1, q + 3]
        c0, c1, c2, c3 = values[2, q], values[2, q + 1], values[2, q + 2], values[2, q + 3]
        d0, d1, d2, d3 = values[3, q], values[3, q + 1], values[3, q + 2], values[3, q + 3]
        out = total[q * TILE : (q + 4) * TILE]
        for r in range(columns):
            e0, e1, e2, e3 = e[r], e[TILE + r], e[2 * TILE + r], e[3 * TILE + r]
            out[r] += a0 * e0 + b0 * e1 + c0 * e2 + d0 * e3
            out[TILE + r] += a1 * e0 + b1 * e1 + c1 * e2 + d1 * e3
            out[2 * TILE + r] += a2 * e0 + b2 * e1 + c2 * e2 + d2 * e3
            out[3 * TILE + r] += a3 * e0 + b3 * e1 + c3 * e2 + d3 * e3
        q += 4
    while q < width:
        a0, b0, c0, d0 = values[0, q], values[1, q], values[2, q], values[3, q]
        out = total[q * TILE : (q + 1) * TILE]
        for r in range(columns):
            out[r] += a0 * e[r] + b0 * e[TILE + r] + c0 * e[2 * TILE + r] + d0 * e[3 * TILE + r]
        q += 1


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
    """out[p, r, start[i] + places[q]] += values[i, q] e[p, order[i], r].

    Parameters
    ----------
    x : [before, n, after]
    order : rows sorted by where they start; `start` and `values` come in this order.
    ends : number of sorted rows up to the end of each cell.
    moment : e is x - reference, 0 where x is NaN, else 1 and 0 there.
    power, count, digest : [before, after], of the moment: Σ e², how many rows are known, sum of their words.
    """
    before, _, after = x.shape
    total, e, rest = np.empty(places.size * TILE), np.empty(FOUR * TILE), np.zeros((FOUR, places.size))
    for p in range(before):
        for left in range(0, after, TILE):
            columns = min(TILE, after - left)
            s, i = slice(left, left + columns), 0
            for cell in range(ends.size):
                total[:], first = 0.0, start[i]
                while i + FOUR <= ends[cell]:
                    a, b, c, d = (
                        x[p, order[i], s],
                        x[p, order[i + 1], s],
                        x[p, order[i + 2], s],
                        x[p, order[i + 3], s],
                    )
                    if moment:
                        _errors(a, b, c, d, reference, words[i:], e, power[p, s], count[p, s], digest[p, s])
                    else:
                        _known(a, b, c, d, e)
                    _add_rows(e, values[i : i + FOUR], columns, total)
                    i += FOUR
                if i < ends[cell]:
                    e[:], rest[:] = 0.0, 0.0
                    for j in range(ends[cell] - i):
                        a, line, rest[j] = x[p, order[i + j], s], e[j * TILE : (j + 1) * TILE], values[i + j]
                        if moment:
                            _errors_of_one(
                                a, reference, words[i + j], line, power[p, s], count[p, s], digest[p, s]
                            )
                        else:
                            for r in range(columns):
                                line[r] = 1.0 if a[r] == a[r] else 0.0
                    _add_rows(e, rest, columns, total)
                    i = ends[cell]
                _put(total, first, places, out[p, s])
