"""Compiled loops of evaluation for groups of one coefficient axis.

The last step of an evaluation writes the result itself, in its precision: nothing is filled, copied or cast on
the way. As in `compiled`, what a compiled function calls is in this file.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from xspline.spaces.jit import compiled

from .layout import Floats, Integers

TILE = 512  # values of a line that wait in the cache for further functions


@compiled
def _sum_line(
    array: Floats, k: int, places: Integers, values: Floats, held: Floats, out: NDArray[Any]
) -> None:
    """out[r] = sum over q of values[q] array[k + places[q], r]; `held` is scratch."""
    if places.size == 4:
        f0, f1, f2, f3 = values[0], values[1], values[2], values[3]
        a0, a1 = array[k + places[0]], array[k + places[1]]
        a2, a3 = array[k + places[2]], array[k + places[3]]
        for r in range(out.size):
            out[r] = f0 * a0[r] + f1 * a1[r] + f2 * a2[r] + f3 * a3[r]
        return
    for first in range(0, out.size, held.size):
        line = out[first : first + held.size]
        total, q = held[: line.size], 0
        total[:] = 0.0
        while q + 4 <= places.size:
            f0, f1, f2, f3 = values[q], values[q + 1], values[q + 2], values[q + 3]
            a0, a1 = array[k + places[q], first:], array[k + places[q + 1], first:]
            a2, a3 = array[k + places[q + 2], first:], array[k + places[q + 3], first:]
            for r in range(total.size):
                total[r] += f0 * a0[r] + f1 * a1[r] + f2 * a2[r] + f3 * a3[r]
            q += 4
        while q < places.size:
            f0, a0 = values[q], array[k + places[q], first:]
            for r in range(total.size):
                total[r] += f0 * a0[r]
            q += 1
        for r in range(total.size):
            line[r] = total[r]


@compiled
def gather(
    array: Floats, start: Integers, places: Integers, values: Floats, held: Floats, out: NDArray[Any]
) -> None:
    """out[p, i, r] = sum over q of values[i, q] array[p, start[i] + places[q], r].

    `out` is float32 or float64, sums are float64; `held` is scratch of `TILE` entries.
    """
    before, rows, after = out.shape
    if after > 1:
        for p in range(before):
            for i in range(rows):
                _sum_line(array[p], start[i], places, values[i], held, out[p, i])
        return
    lines, results = array.reshape(before, -1), out.reshape(before, rows)
    if places.size == 4:
        q0, q1, q2, q3 = places[0], places[1], places[2], places[3]
        for p in range(before):
            for i in range(rows):
                k, v = start[i], values[i]
                x = v[0] * lines[p, k + q0] + v[1] * lines[p, k + q1]
                results[p, i] = x + v[2] * lines[p, k + q2] + v[3] * lines[p, k + q3]
        return
    for p in range(before):
        for i in range(rows):
            total = 0.0
            for q in range(places.size):
                total += values[i, q] * lines[p, start[i] + places[q]]
            results[p, i] = total
