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
from xspline.kernels.compiled.lanes import COLUMNS, LANES, add_product, load, lowest_bit, spread, store
from xspline.spaces.jit import compiled, internal

BITS = np.iinfo(np.int32).bits  # rows of a word, a multiple of four


@internal
def _four_rows(
    a: NDArray[Any],
    b: NDArray[Any],
    c: NDArray[Any],
    d: NDArray[Any],
    count: int,
    reference: float,
    shift: int,
    before: Floats,
    errors: Floats,
    power: Floats,
    word: Integers,
) -> None:
    """Take in four rows of some lines: errors, 0 where one is missing, difference², and bits for what is known.

    `before` has the errors of the row before; of the rows only the first `count` are there.
    """
    zero, has_b, has_c, has_d = np.int64(0), count > 1, count > 2, count > 3
    for r in range(word.size):
        x0, x1 = np.float64(a[r]) - reference, np.float64(b[r]) - reference
        x2, x3 = np.float64(c[r]) - reference, np.float64(d[r]) - reference
        k0, k1, k2, k3 = x0 == x0, has_b & (x1 == x1), has_c & (x2 == x2), has_d & (x3 == x3)
        e0, e1, e2, e3 = x0 if k0 else 0.0, x1 if k1 else 0.0, x2 if k2 else 0.0, x3 if k3 else 0.0
        d0, d1, d2, d3 = e0 - before[r], e1 - e0, e2 - e1, e3 - e2
        power[r] += (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3)
        errors[0, r], errors[1, r], errors[2, r], errors[3, r] = e0, e1, e2, e3
        bits = (np.int64(1) if k0 else zero) | (np.int64(2) if k1 else zero)
        bits |= (np.int64(4) if k2 else zero) | (np.int64(8) if k3 else zero)
        word[r] |= bits << shift
        before[r] = e3


@internal
def _add_four(rows: Floats, errors: Floats, out: Floats) -> None:
    """out[i, r] += rows[0, i] errors[0, r] + ... + rows[3, i] errors[3, r]."""
    for i in range(out.shape[0]):
        a, b, c, d = rows[0, i], rows[1, i], rows[2, i], rows[3, i]
        for r in range(errors.shape[1]):
            out[i, r] += (a * errors[0, r] + b * errors[1, r]) + (c * errors[2, r] + d * errors[3, r])


@internal
def _add_event(
    table: Floats, at: int, left: float, right: float, moments: int, total: Floats, slot: int, scalars: Floats
) -> None:
    """Add what the table has from a place on for a gap between two errors, or for one at an end of a line.

    Arrays are flat: a view of a row would take longer than what is done with it.
    """
    width = total.size * 3 // scalars.size
    first, a, b, unit = slot * width, spread(left), spread(right), spread(1.0)
    for i in range(0, moments, LANES):
        own = add_product(load(total, first + i), load(table, at + i), a)
        store(total, first + i, add_product(own, load(table, at + moments + i), b))
    for i in range(moments, width, LANES):
        store(total, first + i, add_product(load(total, first + i), load(table, at + moments + i), unit))
    scalars[3 * slot] += (right - left) * (right - left)
    scalars[3 * slot + 1] += 1.0
    scalars[3 * slot + 2] += left * left + right * right


@internal
def _add_line(
    words: Integers,
    c: int,
    jumps: Integers,
    values: NDArray[Any],
    line: int,
    reference: float,
    used: Integers,
    position: Integers,
    table: Floats,
    moments: int,
    total: Floats,
    scalars: Floats,
) -> tuple[float, int]:
    """Add all ends of runs of a line to totals: [lags, ..], of gaps of 2, 3, … steps, and of those that are longer.

    It returns what differences from a row to the next have of those that are no neighbours, squared, with errors of 0
    where one is missing and around the line; and how many pairs are neighbours.
    """
    rows, lags, last, carry = position.size, scalars.size // 3, -1, 0
    width = total.size // lags + moments
    power, count = 0.0, 0
    for g in range(jumps.size):
        word = int(words[g, c])
        shifted = word << 1 | carry
        carry = word >> (BITS - 1)
        changed = ((word ^ shifted) | int(jumps[g])) & ((1 << BITS) - 1)
        while changed:
            bit = lowest_bit(changed)
            changed &= changed - 1
            row = g * BITS + bit
            if shifted >> bit & 1:
                last = row - 1
            if word >> bit & 1:
                e, before, lag = np.float64(values[used[row], line]) - reference, 0.0, lags + 1
                if last >= 0:
                    before = np.float64(values[used[last], line]) - reference
                    lag = int(position[row] - position[last])
                    count += last
                count -= row
                power += (e - before) * (e - before) if last == row - 1 else e * e + before * before
                if lag <= lags:
                    at = (lag * rows + last) * width
                    _add_event(table, at, before, e, moments, total, lag - 2, scalars)
                else:
                    _add_event(table, row * width, 0.0, e, moments, total, lags - 1, scalars)
                    if last >= 0:
                        at = (rows + last) * width
                        _add_event(table, at, before, 0.0, moments, total, lags - 1, scalars)
    if last >= 0:
        e = np.float64(values[used[last], line]) - reference
        _add_event(table, (rows + last) * width, e, 0.0, moments, total, lags - 1, scalars)
        power, count = power + e * e, count + last
    return power, count


@internal
def _write_line(
    total: Floats, alone: Floats, lines: int, line: int, w: float, size: int, totals: Floats, scalars: Floats
) -> None:
    """Write what the ends of runs of a line add up to in its slots, which are flat: [3 lags, lines, ..]."""
    lags = alone.size // 3
    width, events = totals.size // (3 * lags * lines), total.size // lags
    moments = (3 * size + LANES - 1) // LANES * LANES
    for m in range(lags):
        count, is_gap = alone[3 * m + 1], m < lags - 1
        if count == 0.0:
            continue
        pair, single = (m + 1) * lines + line, (2 * lags + m) * lines + line
        for i in range(width):
            first, n = m * events + i, size
            if i >= size:
                first, n = m * events + moments + i - size, width - size
            totals[line * width + i] += w * total[first]
            totals[single * width + i] = w * total[first + 2 * n]
            if is_gap:
                totals[pair * width + i] = w * total[first + n]
        if is_gap:
            scalars[3 * pair] = w * alone[3 * m]
            scalars[3 * pair + 1] = w * count
            scalars[3 * pair + 2] = count
            count *= 2.0
        scalars[3 * single] = w * alone[3 * m + 2]
        scalars[3 * single + 1], scalars[3 * single + 2] = w * count, count


@compiled
def pairs(
    values: NDArray[Any],
    weight: Floats,
    used: Integers,
    position: Integers,
    second: Floats,
    table: Floats,
    reference: float,
    totals: Floats,
    scalars: Floats,
) -> None:
    """Add the pairs of lines of values [n, C], each of one weight, to slots [S, C, ..]; see `sums.memory.Memory`.

    Parameters
    ----------
    used : [rows] of the values that are looked at, in order.
    position : [rows], in steps.
    second : [rows + 3, K], what an error is taken times in the moment of neighbours; 0 for the last three.
    table : [lags + 1, rows, ..], what an error that begins a line adds, one that ends a line, and two with a gap of 2,
        3, … steps, by the row of the first: in the moments of neighbours, of the pair, and of both alone [3 K], times
        the first error; the same for the second; and in G [3 Q]. Zeros fill each of the three to whole lanes.
    totals : [3 lags, C, K + Q], moments, and Q entries of G; flat, as scalars are.
    scalars : [3 lags, C, 3], s, Σw and n.
    """
    lines, rows, size, lags = values.shape[1], position.size, second.shape[1], table.shape[0] - 1
    moments = (3 * size + LANES - 1) // LANES * LANES
    jumps = np.zeros(rows // BITS + 1, np.int64)
    for t in range(1, rows):
        if position[t] != position[t - 1] + 1:
            jumps[t // BITS] |= np.int64(1) << (t % BITS)
    errors, before, power = np.zeros((4, COLUMNS)), np.empty(COLUMNS), np.empty(COLUMNS)
    own, words, flat = np.empty((size, COLUMNS)), np.empty((jumps.size, COLUMNS), np.int64), table.reshape(-1)
    total, alone = np.empty(lags * (table.shape[2] - moments)), np.empty(3 * lags)
    width, end = totals.size // (3 * lags * lines), rows - 1
    for first in range(0, lines, COLUMNS):
        columns = min(COLUMNS, lines - first)
        s = slice(first, first + columns)
        before[:], power[:], own[:], words[:] = 0.0, 0.0, 0.0, 0
        for t in range(0, rows, 4):
            a, b, c, d = used[t], used[min(t + 1, end)], used[min(t + 2, end)], used[min(t + 3, end)]
            _four_rows(
                values[a, s], values[b, s], values[c, s], values[d, s], rows - t, reference, t % BITS,
                before, errors, power, words[t // BITS, :columns],
            )  # fmt: skip
            _add_four(second[t:], errors, own)
        for c in range(columns):
            line, w = first + c, weight[first + c]
            if w == 0.0:
                continue
            total[:], alone[:] = 0.0, 0.0
            others, count = _add_line(
                words, c, jumps, values, line, reference, used, position, flat, moments, total, alone
            )
            # After the last row there is one more difference, to nothing, unless rows were filled up to four.
            scalars[3 * line] = w * (power[c] + before[c] * before[c] - others)
            scalars[3 * line + 1], scalars[3 * line + 2] = w * count, count
            for i in range(size):
                totals[line * width + i] = w * own[i, c]
            _write_line(total, alone, lines, line, w, size, totals, scalars)
