"""Compiled matrix-vector products of a pair array, in which iterations of `NearlySeparable` spend their time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xspline.spaces.jit import OPTIONS, compiled

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# "reassoc" besides: dot products take no vector instructions without it; their order is fixed by the compiled code.
loop = compiled(fastmath=OPTIONS["fastmath"] | {"reassoc"})


@loop
def product(pairs: Floats, places: Integers, near: int, everywhere: int, x: Floats, out: Floats) -> None:
    """out += G x for m vectors over places and times, all entries of the same numbers side by side.

    `pairs` [R, S, O, T] are pairs of places by their first member and offset, and of times by their offset and first
    member. `places` [R, S, Q, 2] are row and column of the Q entries that have these numbers; −1 where there are
    fewer. `near` offsets in time lie between B-splines, the others belong to the `everywhere` functions that are
    active everywhere. `x` and `out` are [R, T, m].
    """
    size, m = x.shape[1], x.shape[2]
    v = np.empty((size, places.shape[2] * m))
    y = np.empty(v.shape)
    for r in range(places.shape[0]):
        for s in range(places.shape[1]):
            count = 0
            for q in range(places.shape[2]):
                column = places[r, s, q, 1]
                if column >= 0:
                    for t in range(size):
                        for i in range(m):
                            v[t, count + i] = x[column, t, i]
                    count += m
            for t in range(size):
                for i in range(count):
                    y[t, i] = pairs[r, s, 0, t] * v[t, i]
            for o in range(1, near + everywhere):
                j = o - near  # of a function that is active everywhere
                for t in range(everywhere if j < 0 else j + 1, size - o if j < 0 else size):
                    other, g = t + o if j < 0 else j, pairs[r, s, o, t]
                    for i in range(count):
                        y[t, i] += g * v[other, i]
                    for i in range(count):
                        y[other, i] += g * v[t, i]
            count = 0
            for q in range(places.shape[2]):
                row = places[r, s, q, 0]
                if row >= 0:
                    for t in range(size):
                        for i in range(m):
                            out[row, t, i] += y[t, count + i]
                    count += m
