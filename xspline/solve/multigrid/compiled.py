"""Compiled loops of the smoother: inverses on subdomains of coefficients, and products with them.

All loops are sequential and release the interpreter's lock: what runs at the same time is chosen by the caller so that
no two write to one place.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xspline.spaces.jit import OPTIONS, compiled

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Integers = NDArray[np.int64]

# "reassoc" besides: sums may be added in another order, without which dot products take no vector instructions. Each
# sum is that of one thread, in an order that the compiled code fixes: bits do not depend on the number of threads.
loop = compiled(fastmath=OPTIONS["fastmath"] | {"reassoc"})


@loop
def root_block(d: Floats, floor: float) -> None:
    """Lower triangle of a small symmetric positive definite matrix to L⁻¹ with d = L Lᵀ, zeros above.

    Where a pivot is not above `floor` the coefficient is left out: its row and column are zeros.
    """
    n = d.shape[0]
    v = np.empty(n)
    for s in range(n):
        share = 1.0 / np.sqrt(d[s, s]) if d[s, s] > floor else 0.0
        d[s, s] = share
        for j in range(s):
            d[s, j] *= share
            d[j, s] = 0.0
        for i in range(s + 1, n):
            v[i] = d[i, s] * share
            d[i, s] = 0.0
            for j in range(s + 1):
                d[i, j] -= v[i] * d[s, j]
            for j in range(s + 1, i + 1):
                d[i, j] -= v[i] * v[j]


@loop
def invert_root(a: Floats, floor: float) -> None:
    """Lower triangle of a symmetric positive definite A to L⁻¹, A = L Lᵀ, in place: four pivots at once.

    Columns p of the pivots are eliminated from the rows b below: with W = L_p⁻¹ and F = A_bp Wᵀ, A_bb loses F Fᵀ, and
    the columns already done, which hold what becomes L⁻¹, lose F times those of the rows p.
    """
    n = a.shape[0]
    w = np.empty((4, n))
    for k in range(0, n, 4):
        c = min(4, n - k)
        d = a[k : k + c, k : k + c].copy()
        root_block(d, floor)
        w[:] = 0.0
        for s in range(c):
            for t in range(s + 1):
                for j in range(k):
                    w[s, j] += d[s, t] * a[k + t, j]
                for j in range(k + c, n):
                    w[s, j] += d[s, t] * a[j, k + t]
                w[s, k + t] = d[s, t]
        for i in range(k + c, n):
            for j in range(k, k + c):
                a[i, j] = 0.0
            f0, f1, f2, f3 = w[0, i], w[1, i], w[2, i], w[3, i]
            for j in range(i + 1):
                a[i, j] -= f0 * w[0, j] + f1 * w[1, j] + f2 * w[2, j] + f3 * w[3, j]
        for s in range(c):
            for j in range(k + c):
                a[k + s, j] = w[s, j]


@loop
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


@loop
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


@loop
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
