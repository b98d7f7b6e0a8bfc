"""Compiled loops of the iterative solver: products with pair arrays, blocks of coefficients.

All loops are sequential and release the interpreter's lock: what runs at the same time is chosen by the caller so that
no two write to one place.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xspline.spaces.jit import OPTIONS, compiled

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Integers = NDArray[np.int64]
FourArrays: TypeAlias = tuple[Integers, Integers, Integers, Integers]  # one of each axis


class Links(NamedTuple):
    """Which rows of vectors the bands of a matrix link.

    Link l of band e, start[e] <= l < start[e + 1], is the row target[l] of the product and the row source[l].
    """

    start: Integers
    target: Integers
    source: Integers


# "reassoc" besides: sums may be added in another order, without which dot products (`four_products`) take no vector
# instructions. Each sum is that of one thread, in an order that the compiled code fixes: bits do not depend on the
# number of threads or on timing.
loop = compiled(fastmath=OPTIONS["fastmath"] | {"reassoc"})


@loop
def pack(pairs: Floats, rows: Integers, kinds: Integers, wraps: bool, out: Floats) -> None:
    """out[e, o, w + k] = pairs[rows[e], k, kinds[e], o] with w = O − 1 entries in front: the last ones, or zeros."""
    entries, width, _ = out.shape
    size, front = pairs.shape[1], width - 1
    for e in range(entries):
        for o in range(width):
            for k in range(size):
                inside = wraps or k + o < size
                out[e, o, front + k] = pairs[rows[e], k, kinds[e], o] if inside else 0.0
            for k in range(front):
                out[e, o, k] = out[e, o, size + k] if wraps else 0.0


@loop
def multiply(bands: Floats, links: Links, x: Floats, y: Floats, first: int, last: int) -> None:
    """y[m, target] += T x[m, source] for symmetric bands T [O, w + K] and their links, x with w in front and behind.

    The bands are those from `first` to `last`.
    """
    start, target, source = links
    width, size = bands.shape[1], y.shape[2]
    w = width - 1
    for e in range(first, last):
        for link in range(start[e], start[e + 1]):
            a, b = target[link], source[link]
            for m in range(x.shape[0]):
                if width == 4:
                    for k in range(size):
                        y[m, a, k] += (
                            bands[e, 0, k + 3] * x[m, b, k + 3]
                            + bands[e, 1, k + 3] * x[m, b, k + 4]
                            + bands[e, 2, k + 3] * x[m, b, k + 5]
                            + bands[e, 3, k + 3] * x[m, b, k + 6]
                            + bands[e, 1, k + 2] * x[m, b, k + 2]
                            + bands[e, 2, k + 1] * x[m, b, k + 1]
                            + bands[e, 3, k] * x[m, b, k]
                        )
                    continue
                for k in range(size):
                    y[m, a, k] += bands[e, 0, k + w] * x[m, b, k + w]
                for o in range(1, width):
                    for k in range(size):
                        y[m, a, k] += (
                            bands[e, o, k + w] * x[m, b, k + w + o]
                            + bands[e, o, k + w - o] * x[m, b, k + w - o]
                        )


@loop
def assemble(flat: Floats, places: FourArrays, s: Floats, out: Floats) -> None:
    """The lower triangle of one subdomain, scaled: out[i, l] = s_i s_l flat[Σ_j t_j[i_j, l_j]], 0 where a t is −1.

    `places` t_j [w, w] tell where the pair array has two coefficients along an axis. What is above the diagonal is
    not zero.
    """
    t0, t1, t2, t3 = places
    n0, n1, n2, n3 = t0.shape[0], t1.shape[0], t2.shape[0], t3.shape[0]
    out[:] = 0.0
    for i0 in range(n0):
        for l0 in range(i0 + 1):
            if t0[i0, l0] < 0:
                continue
            for i1 in range(n1):
                for l1 in range(n1 if l0 < i0 else i1 + 1):
                    if t1[i1, l1] < 0:
                        continue
                    for i2 in range(n2):
                        for l2 in range(n2):
                            if t2[i2, l2] < 0:
                                continue
                            base = t0[i0, l0] + t1[i1, l1] + t2[i2, l2]
                            row = ((i0 * n1 + i1) * n2 + i2) * n3
                            column = ((l0 * n1 + l1) * n2 + l2) * n3
                            for i3 in range(n3):
                                si = s[row + i3]
                                for l3 in range(n3):
                                    if t3[i3, l3] >= 0:
                                        out[row + i3, column + l3] = (
                                            flat[base + t3[i3, l3]] * si * s[column + l3]
                                        )


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
def flat_indices(indices: FourArrays, sizes: Integers, out: Integers) -> None:
    """Flat indices of the coefficients of one subdomain, the product of those along four axes."""
    n = 0
    for i0 in indices[0]:
        for i1 in indices[1]:
            for i2 in indices[2]:
                for i3 in indices[3]:
                    out[n] = ((i0 * sizes[1] + i1) * sizes[2] + i2) * sizes[3] + i3
                    n += 1


@loop
def inverses(
    flat: Floats,
    scale: Floats,
    sizes: Integers,
    indices: FourArrays,
    places: FourArrays,
    floor: float,
    first: int,
    out: Singles,
) -> None:
    """L⁻¹ of the subdomains from number `first` of the first axis on, A = L Lᵀ.

    Of each the rows of the lower triangle after each other, [v, w.., n (n + 1) / 2].
    """
    (m0, m1, m2, m3), (t0, t1, t2, t3) = indices, places
    n = m0.shape[1] * m1.shape[1] * m2.shape[1] * m3.shape[1]
    a, index, s = np.empty((n, n)), np.empty(n, np.int64), np.empty(n)
    for v0 in range(out.shape[0]):
        for v1 in range(out.shape[1]):
            for v2 in range(out.shape[2]):
                for v3 in range(out.shape[3]):
                    flat_indices((m0[first + v0], m1[v1], m2[v2], m3[v3]), sizes, index)
                    for i in range(n):
                        s[i] = scale[index[i]]
                    assemble(flat, (t0[first + v0], t1[v1], t2[v2], t3[v3]), s, a)
                    invert_root(a, floor)
                    place = 0
                    for i in range(n):
                        for j in range(i + 1):
                            out[v0, v1, v2, v3, place] = a[i, j]
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
def apply_inverses(
    inverse: Singles, sizes: Integers, indices: FourArrays, r: Singles, z: Floats, first: int, last: int
) -> None:
    """z[m] += Σ Rᵀ Wᵀ W R r[m] over the subdomains `first` to `last` of the first axis."""
    m0, m1, m2, m3 = indices
    n = m0.shape[1] * m1.shape[1] * m2.shape[1] * m3.shape[1]
    index, x, y = np.empty(n, np.int64), np.empty(n, np.float32), np.empty(n, np.float32)
    for v0 in range(first, last):
        for v1 in range(inverse.shape[1]):
            for v2 in range(inverse.shape[2]):
                for v3 in range(inverse.shape[3]):
                    flat_indices((m0[v0], m1[v1], m2[v2], m3[v3]), sizes, index)
                    triangle = inverse[v0, v1, v2, v3]
                    for m in range(r.shape[0]):
                        for i in range(n):
                            x[i] = r[m, index[i]]
                        root_product(triangle, x, y)
                        for i in range(n):
                            z[m, index[i]] += y[i]
