"""Compiled loops of the smoother: inverses on subdomains of coefficients, and products with them.

All loops are sequential and release the interpreter's lock: what runs at the same time is chosen by the caller so that
no two write to one place.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xspline.spaces.features import Floats, Integers
from xspline.spaces.jit import compiled_sums

Singles = NDArray[np.float32]


@compiled_sums
def invert_root(a: Floats, floor: float) -> None:
    """Lower triangle of a symmetric positive definite A to L⁻¹, A = L Lᵀ, in place, row by row.

    The rows of L⁻¹ above a row of A give that of L, whose entries times the same rows are those of L⁻¹ below. Where a
    pivot is not above `floor` the coefficient is left out: its row and column are zeros.
    """
    n = a.shape[0]
    below = np.empty(n)
    for i in range(n):
        pivot = a[i, i]
        below[:i] = 0.0
        for j in range(i):
            entry = 0.0
            for k in range(j + 1):
                entry += a[j, k] * a[i, k]
            pivot -= entry * entry
            for k in range(j + 1):
                below[k] += entry * a[j, k]
        share = 1.0 / np.sqrt(pivot) if pivot > floor else 0.0
        for k in range(i):
            a[i, k] = -below[k] * share
        a[i, i] = share


@compiled_sums
def inverses(
    flat: Floats,
    scale: Floats,
    index: Integers,
    inside: Integers,
    number: Integers,
    places: Integers,
    floor: float,
    first: int,
    last: int,
    out: Singles,
) -> None:
    """L⁻¹ of the subdomains from `first` to `last`, A = L Lᵀ scaled: of each the rows of the lower triangle.

    `index` [subdomains, n] are their coefficients, of which number i has the index inside[i, j] along each axis j of
    the subdomain, and `number` [subdomains, axes] tells which subdomain along each axis they are. Two coefficients have
    the entry at Σ_j places[j, number, i_j, k_j] of the flat pair array, or 0 where that is negative.
    """
    n, axes = inside.shape
    a, at = np.empty((n, n)), np.empty((n, n), np.int64)
    for v in range(first, last):
        at[:] = 0
        for j in range(axes):
            for i in range(n):
                steps = places[j, number[v, j], inside[i, j]]
                for k in range(i + 1):
                    at[i, k] += steps[inside[k, j]]
        for i in range(n):
            for k in range(i + 1):
                entry = flat[at[i, k]] if at[i, k] >= 0 else 0.0
                a[i, k] = entry * scale[index[v, i]] * scale[index[v, k]]
        invert_root(a, floor)
        place = 0
        for i in range(n):
            for k in range(i + 1):
                out[v, place] = a[i, k]
                place += 1


@compiled_sums
def root_product(w: Singles, x: Singles, y: Singles) -> None:
    """y = Wᵀ W x, w the rows of a lower triangle W, each of which is read twice in a row."""
    y[:] = 0.0
    place = 0
    for i in range(x.size):
        row = w[place : place + i + 1]
        t = np.float32(0)
        for j in range(row.size):
            t += row[j] * x[j]
        for j in range(row.size):
            y[j] += t * row[j]
        place += row.size


@compiled_sums
def apply_inverses(inverse: Singles, index: Integers, r: Singles, z: Floats, first: int, last: int) -> None:
    """z[m] += Σ Rᵀ Wᵀ W R r[m] over the subdomains from `first` to `last`."""
    n = index.shape[1]
    x, y = np.empty(n, np.float32), np.empty(n, np.float32)
    for v in range(first, last):
        for m in range(r.shape[0]):
            for i in range(n):
                x[i] = r[m, index[v, i]]
            root_product(inverse[v], x, y)
            for i in range(n):
                z[m, index[v, i]] += y[i]
