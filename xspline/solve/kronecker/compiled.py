"""The compiled product of a pair array with a vector, time innermost: what iterations of `NearlySeparable` wait for."""

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
    """out += G x for vectors [R, T] over places and times.

    Parameters
    ----------
    pairs : ndarray, [R, S, O, T]
        Pairs of places by their first member and offset, and of times by their offset and first member.
    places : ndarray, [R, S, Q, 2]
        Both members of the Q pairs of places that have these numbers; −1 where there are fewer.
    near : int
        Offsets in time between B-splines; the others belong to the functions that are active everywhere.
    everywhere : int
        How many these are.
    x, out : ndarray, [R, T]
    """
    size = x.shape[1]
    for r in range(places.shape[0]):
        for s in range(places.shape[1]):
            for q in range(places.shape[2]):
                row, column = places[r, s, q, 0], places[r, s, q, 1]
                if row < 0:
                    continue
                for way in range(1 if row == column else 2):
                    y, v = (out[row], x[column]) if way == 0 else (out[column], x[row])
                    g = pairs[r, s, 0]
                    for t in range(size):
                        y[t] += g[t] * v[t]
                    for o in range(1, near):
                        g = pairs[r, s, o]
                        for t in range(everywhere, size - o):
                            y[t] += g[t] * v[t + o]
                        for t in range(everywhere, size - o):
                            y[t + o] += g[t] * v[t]
                    for j in range(everywhere):
                        g, total, factor = pairs[r, s, near + j], 0.0, v[j]
                        for t in range(j + 1, size):
                            total += g[t] * v[t]
                        for t in range(j + 1, size):
                            y[t] += g[t] * factor
                        y[j] += total
