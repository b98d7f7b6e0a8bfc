"""Compiled loop over pairs of observations that follow each other along a series, of many lines at a time.

Pairs of neighbours are most of all, and most lines have nearly all of them. So their moment is taken as if all were
there, which makes it a sum over errors, as any moment is. What ends of runs change, and what pairs over gaps add, is
known for each row and gap before any line is read: it is looked up gap by gap, in words with a bit for each row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from xspline.kernels.block import Floats, Integers
from xspline.kernels.compiled.lanes import LANES, add_product, load, spread, store
from xspline.spaces.jit import compiled, internal

TILE = 256  # lines at a time, whose errors of four rows the cache of a core holds
BITS = 32  # rows of a word, a multiple of four


@internal
def _four_rows(
    a: NDArray[Any],
    b: NDArray[Any],
    c: NDArray[Any],
    d: NDArray[Any],
    reference: float,
    steps: Floats,
    shift: int,
    before: Floats,
    errors: Floats,
    sums: Floats,
    word: Integers,
) -> None:
    """Take in four rows of some lines: errors [4, lines], Σ difference², number of pairs, and bits of what is known.

    `before` has the errors of the row before, NaN where one is missing. `steps` are 1 for rows that follow those
    before by one step, else 0.
    """
    s0, s1, s2, s3, zero = steps[0], steps[1], steps[2], steps[3], np.int64(0)
    for r in range(word.size):
        x0, x1 = np.float64(a[r]) - reference, np.float64(b[r]) - reference
        x2, x3 = np.float64(c[r]) - reference, np.float64(d[r]) - reference
        d0, d1, d2, d3 = x0 - before[r], x1 - x0, x2 - x1, x3 - x2
        k0, k1, k2, k3 = x0 == x0, x1 == x1, x2 == x2, x3 == x3
        m0, m1, m2, m3 = d0 == d0, d1 == d1, d2 == d2, d3 == d3
        first = (s0 * d0 * d0 if m0 else 0.0) + (s1 * d1 * d1 if m1 else 0.0)
        sums[0, r] += first + ((s2 * d2 * d2 if m2 else 0.0) + (s3 * d3 * d3 if m3 else 0.0))
        sums[1, r] += ((s0 if m0 else 0.0) + (s1 if m1 else 0.0)) + ((s2 if m2 else 0.0) + (s3 if m3 else 0.0))
        errors[0, r], errors[1, r] = x0 if k0 else 0.0, x1 if k1 else 0.0
        errors[2, r], errors[3, r] = x2 if k2 else 0.0, x3 if k3 else 0.0
        bits = (np.int64(1) if k0 else zero) | (np.int64(2) if k1 else zero)
        bits |= (np.int64(4) if k2 else zero) | (np.int64(8) if k3 else zero)
        word[r] |= bits << shift
        before[r] = x3


@internal
def _add_rows(rows: Floats, errors: Floats, out: Floats) -> None:
    """out[i, r] += rows[0, i] errors[0, r] + ... + rows[3, i] errors[3, r]."""
    for i in range(out.shape[0]):
        a, b, c, d = rows[0, i], rows[1, i], rows[2, i], rows[3, i]
        for r in range(errors.shape[1]):
            out[i, r] += a * errors[0, r] + b * errors[1, r] + c * errors[2, r] + d * errors[3, r]


@internal
def _add_event(known: Floats, left: float, right: float, moments: int, total: Floats, scalars: Floats) -> None:
    """Add what a table has for a gap between two errors, or for one at an end of a line, eight numbers at a time."""
    a, b, one = spread(left), spread(right), spread(1.0)
    for i in range(0, moments, LANES):
        own = add_product(load(total, i), load(known, i), a)
        store(total, i, add_product(own, load(known, moments + i), b))
    for i in range(moments, total.size, LANES):
        store(total, i, add_product(load(total, i), load(known, moments + i), one))
    scalars[0] += (right - left) * (right - left)
    scalars[1] += 1.0
    scalars[2] += left * left + right * right


@internal
def _add_line(
    words: Integers,
    jumps: Integers,
    line: NDArray[Any],
    reference: float,
    used: Integers,
    position: Integers,
    table: Floats,
    places: Integers,
    total: Floats,
    scalars: Floats,
) -> None:
    """Add all ends of runs of a line to totals: [lags, ..], of gaps of 2, 3, … steps, and of those that are longer."""
    lags, moments, last, carry = total.shape[0], table.shape[2] - total.shape[1], np.int64(-1), np.int64(0)
    for g in range(words.size):
        word = words[g]
        shifted = word << 1 | carry
        carry = word >> (BITS - 1)
        changed = ((word ^ shifted) | jumps[g]) & ((np.int64(1) << BITS) - 1)
        while changed:
            lowest = changed & -changed
            bit = places[lowest % places.size]
            changed ^= lowest
            row = g * BITS + bit
            if shifted >> bit & 1:
                last = row - 1
            if word >> bit & 1:
                e, lag = np.float64(line[used[row]]) - reference, lags + 1
                before = 0.0
                if last >= 0:
                    before, lag = np.float64(line[used[last]]) - reference, position[row] - position[last]
                if lag <= lags:
                    _add_event(table[lag, last], before, e, moments, total[lag - 2], scalars[lag - 2])
                else:
                    _add_event(table[0, row], 0.0, e, moments, total[lags - 1], scalars[lags - 1])
                    if last >= 0:
                        _add_event(table[1, last], before, 0.0, moments, total[lags - 1], scalars[lags - 1])
    if last >= 0:
        e = np.float64(line[used[last]]) - reference
        _add_event(table[1, last], e, 0.0, moments, total[lags - 1], scalars[lags - 1])


@internal
def _put(scalars: Floats, w: float, power: float, count: float) -> None:
    """Write s, Σw and n."""
    scalars[0], scalars[1], scalars[2] = w * power, w * count, count


@internal
def _put_parts(
    total: Floats, moments: int, size: int, w: float, neighbours: Floats, gap: Floats, alone: Floats
) -> None:
    """Add what events of one kind make to the pairs of neighbours, and write those of the gap and of errors alone."""
    for i in range(neighbours.size):
        first, n = (i, size) if i < size else (moments + i - size, neighbours.size - size)
        neighbours[i] += w * total[first]
        gap[i] = w * total[first + n]
        alone[i] = w * total[first + 2 * n]


@compiled
def pairs(
    values: NDArray[Any],
    weight: Floats,
    used: Integers,
    position: Integers,
    steps: Floats,
    second: Floats,
    table: Floats,
    reference: float,
    totals: Floats,
    scalars: Floats,
) -> None:
    """Add the pairs of lines of values [n, C], each of one weight, to slots [S, .., C]; see `sums.memory.Memory`.

    Parameters
    ----------
    used : [4 m] the rows that are looked at, in order, with others behind them that fill the last four.
    position : [rows], in steps, of those that are no filling.
    steps, second : [4 m] and [4 m, K]: 1 where a row follows the one before by one step, else 0; what an error is
        taken times in the moment of neighbours. Both are 0 for filling.
    table : [lags + 1, rows, ..], what an error that begins a line adds, one that ends a line, and two with a gap of 2,
        3, … steps, by the row of the first: in the moments of neighbours, of the pair, and of both alone [3 K], times
        the first error; the same for the second; and in G [3 Q]. Zeros fill each of the three to whole lanes.
    totals : [3 lags, C, K + Q], moments, and Q entries of G.
    scalars : [3 lags, C, 3], s, Σw and n.
    """
    lines, rows, size, lags = values.shape[1], position.size, second.shape[1], table.shape[0] - 1
    places, jumps = np.zeros(37, np.int64), np.zeros(rows // BITS + 1, np.int64)
    for i in range(BITS):  # powers of two differ modulo 37
        places[(np.int64(1) << i) % 37] = i
    for t in range(1, rows):
        if steps[t] == 0.0:
            jumps[t // BITS] |= np.int64(1) << (t % BITS)
    errors, before, sums = np.zeros((4, TILE)), np.empty(TILE), np.empty((2, TILE))
    own, words = np.empty((size, TILE)), np.empty((jumps.size, TILE), np.int64)
    word, alone = np.empty(jumps.size, np.int64), np.empty((lags, 3))
    moments = (3 * size + LANES - 1) // LANES * LANES
    total, unused = np.empty((lags, table.shape[2] - moments)), np.empty(totals.shape[2])
    for first in range(0, lines, TILE):
        count = min(TILE, lines - first)
        s = slice(first, first + count)
        before[:], sums[:], own[:], words[:] = np.nan, 0.0, 0.0, 0
        for t in range(0, used.size, 4):
            a, b, c, d = used[t], used[t + 1], used[t + 2], used[t + 3]
            _four_rows(
                values[a, s], values[b, s], values[c, s], values[d, s], reference, steps[t:], t % BITS,
                before, errors, sums, words[t // BITS, :count],
            )  # fmt: skip
            _add_rows(second[t:], errors, own)
        for c in range(count):
            line, w = first + c, weight[first + c]
            if w == 0.0:
                continue
            for g in range(jumps.size):
                word[g] = words[g, c]
            # Bits of what fills the last four are none.
            word[jumps.size - 1] &= (np.int64(1) << (rows % BITS)) - 1
            total[:], alone[:] = 0.0, 0.0
            _add_line(word, jumps, values[:, line], reference, used, position, table, places, total, alone)
            _put(scalars[0, line], w, sums[0, c], sums[1, c])
            for i in range(size):
                totals[0, line, i] = w * own[i, c]
            for m in range(lags):
                if alone[m, 1] > 0.0:
                    is_gap = m < lags - 1
                    gap = totals[m + 1, line] if is_gap else unused
                    _put_parts(total[m], moments, size, w, totals[0, line], gap, totals[2 * lags + m, line])
                    _put(scalars[2 * lags + m, line], w, alone[m, 2], (1.0 + is_gap) * alone[m, 1])
                    if is_gap:
                        _put(scalars[m + 1, line], w, alone[m, 0], alone[m, 1])
