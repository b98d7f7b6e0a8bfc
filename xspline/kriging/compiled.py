"""Compiled loops: covariances between items, their derivatives, and predictions from a set of neighbours.

An item is an observation or the mean of the observations in a cell. Items of level 0 are observations; in cells of
level l places have the variance `spread[l, j]` along coordinate j. Two items at the difference Δ have the covariance

    Σ_q amplitude[q, l, l'] M(ν_q, √(2 ν_q Σ_j Δ_j² inverse[q, l, l', j]))

with the Matérn function M of smoothness ν_q, a polynomial of degree 5 in the root of its argument between every two
nodes. All of this is in one `ItemCovariance`.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

from xspline.spaces.jit import REORDERING, compiled_sums

#: Of the variance: an item of which those before it leave less open tells nothing beside rounding.
FLOOR = 1e-13
njit: Any = numba.njit
internal = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, **REORDERING)


@internal
def _toward(level, levels, covariance, precision, strength):  # type: ignore[no-untyped-def]
    """Write 1/ℓ² [Q, D, m] and variances [Q, m] between an item of one level and items of other levels."""
    for q in range(covariance.amplitude.shape[0]):
        for b in range(levels.shape[0]):
            strength[q, b] = covariance.amplitude[q, level, levels[b]]
        for j in range(precision.shape[1]):
            for b in range(levels.shape[0]):
                precision[q, j, b] = covariance.inverse[q, level, levels[b], j]


@internal
def _squares(place, across, precision, n, squares):  # type: ignore[no-untyped-def]
    """Write the squared distances of one place from the first n items, in lengths of one scale."""
    for b in range(n):
        squares[b] = 0.0
    for j in range(across.shape[0]):
        own = place[j]
        for b in range(n):
            difference = own - across[j, b]
            squares[b] += difference * difference * precision[j, b]


@internal
def _polynomial(c, k, u):  # type: ignore[no-untyped-def]
    """The polynomial whose coefficients start at c[k]."""
    return c[k] + u * (c[k + 1] + u * (c[k + 2] + u * (c[k + 3] + u * (c[k + 4] + u * c[k + 5]))))


@internal
def _row(place, across, precision, strength, n, covariance, squares, out):  # type: ignore[no-untyped-def]
    """Write the covariances of one item with the first n."""
    table = covariance.table
    last = table.shape[1]
    for b in range(n):
        out[b] = 0.0
    for q in range(strength.shape[0]):
        _squares(place, across, precision[q], n, squares)
        scale = math.sqrt(math.sqrt(2 * covariance.smoothness[q])) / covariance.step
        for b in range(n):
            squares[b] = math.sqrt(math.sqrt(squares[b])) * scale
        for b in range(n):
            i = int(squares[b])
            if i < last:
                out[b] += strength[q, b] * _polynomial(table[q, i], 0, squares[b] - i)


@internal
def _fill(across, levels, counts, covariance, out):  # type: ignore[no-untyped-def]
    """Write the lower triangle of the covariance matrix of items at places [D, m], with the noise of each."""
    axes, m = across.shape
    place, squares = np.empty(axes), np.empty(m)
    scales = covariance.amplitude.shape[0]
    precision, strength = np.empty((scales, axes, m)), np.empty((scales, m))
    for a in range(m):
        for j in range(axes):
            place[j] = across[j, a]
        if a == 0 or levels[a] != levels[a - 1]:
            _toward(levels[a], levels, covariance, precision, strength)
        _row(place, across, precision, strength, a + 1, covariance, squares, out[a])
        out[a, a] += covariance.noise / counts[a]


@internal
def _total(covariance):  # type: ignore[no-untyped-def]
    """The variance of a value."""
    total = 0.0
    for q in range(covariance.amplitude.shape[0]):
        total += covariance.amplitude[q, 0, 0]
    return total


@compiled_sums
def covariances(places, levels, counts, covariance, out):  # type: ignore[no-untyped-def]
    """Write the lower triangle of the covariance matrix of items, [m, m], with the noise of each."""
    _fill(places.T.copy(), levels, counts, covariance, out)


@internal
def _factorise(matrix, floor):  # type: ignore[no-untyped-def]
    """Cholesky factorisation of a lower triangle in place.

    Four rows and two columns at a time share what they read: 128 µs for 220 rows, where one row takes 285.
    """
    m = matrix.shape[0]
    whole = m - m % 4
    for a in range(0, whole, 4):
        r, s, t, u = matrix[a], matrix[a + 1], matrix[a + 2], matrix[a + 3]
        for b in range(0, a, 2):
            p, q = matrix[b], matrix[b + 1]
            rp = rq = sp = sq = tp = tq = up = uq = 0.0
            for i in range(b):
                rp += r[i] * p[i]
                rq += r[i] * q[i]
                sp += s[i] * p[i]
                sq += s[i] * q[i]
                tp += t[i] * p[i]
                tq += t[i] * q[i]
                up += u[i] * p[i]
                uq += u[i] * q[i]
            first, between, second = 1.0 / p[b], q[b], 1.0 / q[b + 1]
            r[b] = (r[b] - rp) * first
            s[b] = (s[b] - sp) * first
            t[b] = (t[b] - tp) * first
            u[b] = (u[b] - up) * first
            r[b + 1] = (r[b + 1] - rq - r[b] * between) * second
            s[b + 1] = (s[b + 1] - sq - s[b] * between) * second
            t[b + 1] = (t[b + 1] - tq - t[b] * between) * second
            u[b + 1] = (u[b + 1] - uq - u[b] * between) * second
        for c in range(a, a + 4):
            _factorise_row(matrix, c, a, floor)
    for c in range(whole, m):
        _factorise_row(matrix, c, 0, floor)


@internal
def _factorise_row(matrix, a, first, floor):  # type: ignore[no-untyped-def]
    """Factorise a row from some column on, given the rows above; an infinite pivot leaves its item out."""
    row = matrix[a]
    for b in range(first, a):
        above, value = matrix[b], row[b]
        for i in range(b):
            value -= row[i] * above[i]
        row[b] = value / above[b]
    value = row[a]
    for i in range(a):
        value -= row[i] * row[i]
    row[a] = math.sqrt(value) if value > floor else math.inf


@internal
def _invert(root, out):  # type: ignore[no-untyped-def]
    """Write the inverse of a Cholesky factor L to `out`, which is 0 above its diagonal; four rows above at a time."""
    for a in range(root.shape[0]):
        row, whole = out[a], a - a % 4
        for i in range(0, whole, 4):
            p, q, r, s = out[i], out[i + 1], out[i + 2], out[i + 3]
            fp, fq, fr, fs = root[a, i], root[a, i + 1], root[a, i + 2], root[a, i + 3]
            for b in range(i + 4):
                row[b] -= fp * p[b] + fq * q[b] + fr * r[b] + fs * s[b]
        for i in range(whole, a):
            for b in range(i + 1):
                row[b] -= root[a, i] * out[i, b]
        row[a] = 1.0
        factor = 1.0 / root[a, a]
        for b in range(a + 1):
            row[b] *= factor


@compiled_sums
def inverse_root(places, levels, counts, covariance, out):  # type: ignore[no-untyped-def]
    """Write L⁻¹ of the covariance matrix K = L Lᵀ of items, and return log |K|.

    `out` [m, m] is 0 before. Infinity is returned where K is not positive definite to rounding.
    """
    m = places.shape[0]
    root = np.empty((m, m))
    _fill(places.T.copy(), levels, counts, covariance, root)
    _factorise(root, 0.0)
    determinant = 0.0
    for a in range(m):
        determinant += 2.0 * math.log(root[a, a])
    if determinant < np.inf:
        _invert(root, out)
    return determinant


@internal
def _count(a, change, weights, alpha, own, product):  # type: ignore[no-untyped-def]
    """Count a row of ∂K/∂θ up to its diagonal in Σ weights ∂K/∂θ, which is returned, and in ∂K/∂θ α."""
    value, total, factor = 0.0, 0.0, alpha[a]
    for b in range(a):
        value += change[b] * weights[b]
        total += change[b] * alpha[b]
        product[b] += change[b] * factor
    product[a] += total + change[a] * factor
    return own + 2.0 * value + change[a] * weights[a]


@internal
def _evaluate(n, squares, scale, table, strength, value, turn, slope):  # type: ignore[no-untyped-def]
    """Write covariances with the first n items, their derivatives by log ν, and by the squared distance."""
    last = table.shape[0] - 1  # there all are 0
    for b in range(n):
        slope[b] = min(math.sqrt(math.sqrt(squares[b])) * scale, float(last))
    for b in range(n):
        i = int(slope[b])
        u, c = slope[b] - i, table[i]
        value[b], turn[b] = _polynomial(c, 0, u), _polynomial(c, 6, u)
        # ∂/∂ log of the squared distance
        slope[b] *= 0.25 * (c[1] + u * (2 * c[2] + u * (3 * c[3] + u * (4 * c[4] + u * 5 * c[5]))))
    for b in range(n):
        value[b] *= strength[b]
        slope[b] *= strength[b]
        turn[b] = turn[b] * strength[b] + slope[b]
        slope[b] = slope[b] / squares[b] if squares[b] > 0.0 else 0.0


@compiled_sums
def derivatives(  # type: ignore[no-untyped-def]
    places, levels, counts, covariance, weights, alpha, lengths, gradient, products,
):  # fmt: skip
    """Add Σ_ab weights[a, b] ∂K_ab/∂θ of every parameter θ to `gradient` [P], and ∂K/∂θ α to `products` [P, m].

    Parameters θ are in the order of `Model.parameters`: log length of each scale and coordinate, log variance of each
    scale, log smoothness of each scale, and noise. The table [Q, interval, 12] has the coefficients of M and of its
    derivative by log ν, and a last interval of zeros. Of `weights` the lower triangle is read.
    """
    m, axes = places.shape
    scales, last = lengths.shape[0], gradient.size - 1
    across, squares, parts = places.T.copy(), np.empty(m), np.empty((axes, m))
    value, turn, slope, change = np.empty(m), np.empty(m), np.empty(m), np.empty(m)
    precision, strength = np.empty((scales, axes, m)), np.empty((scales, m))
    for a in range(m):
        row, n = weights[a], a + 1
        if a == 0 or levels[a] != levels[a - 1]:
            _toward(levels[a], levels, covariance, precision, strength)
        for q in range(scales):
            for b in range(n):
                squares[b] = 0.0
            for j in range(axes):
                own = across[j, a]
                for b in range(n):
                    difference = own - across[j, b]
                    parts[j, b] = difference * difference * precision[q, j, b]
                    squares[b] += parts[j, b]
            bent = math.sqrt(math.sqrt(2 * covariance.smoothness[q])) / covariance.step
            _evaluate(n, squares, bent, covariance.table[q], strength[q], value, turn, slope)
            widening = 1.0 / (1.0 + covariance.smoothness[q])  # −∂ log c/∂ log ν of c = 1 + 1/ν
            for j in range(axes):
                square = lengths[q, j] * lengths[q, j]
                for b in range(n):
                    share = square * precision[q, j, b]
                    along = slope[b] * parts[j, b]
                    change[b] = value[b] * (1.0 - share) - 2.0 * share * along
                    turn[b] += widening * (1.0 - share) * (0.5 * value[b] + along)
                p = q * axes + j
                gradient[p] = _count(a, change, row, alpha, gradient[p], products[p])
            p = scales * axes + q
            gradient[p] = _count(a, value, row, alpha, gradient[p], products[p])
            p += scales
            gradient[p] = _count(a, turn, row, alpha, gradient[p], products[p])
        gradient[last] += row[a] / counts[a]
        products[last, a] += alpha[a] / counts[a]


@internal
def _some(places, levels, counts, items, covariance):  # type: ignore[no-untyped-def]
    """Places [D, m] of some items, 1/ℓ² and variances between these and values, and their Cholesky factor."""
    m, axes, scales = items.shape[0], places.shape[1], covariance.amplitude.shape[0]
    across, own_levels, own_counts = np.empty((axes, m)), np.empty(m, np.int64), np.empty(m)
    for a in range(m):
        own_levels[a] = levels[items[a]]
        own_counts[a] = counts[items[a]]
        for j in range(axes):
            across[j, a] = places[items[a], j]
    matrix = np.empty((m, m))
    _fill(across, own_levels, own_counts, covariance, matrix)
    _factorise(matrix, FLOOR * _total(covariance))
    precision, strength = np.empty((scales, axes, m)), np.empty((scales, m))
    _toward(0, own_levels, covariance, precision, strength)
    return across, precision, strength, matrix


@internal
def _product(x, y):  # type: ignore[no-untyped-def]
    value = 0.0
    for a in range(x.shape[0]):
        value += x[a] * y[a]
    return value


@internal
def _forward(root, x):  # type: ignore[no-untyped-def]
    """Solve L z = x in place."""
    for a in range(x.shape[0]):
        value = x[a]
        for i in range(a):
            value -= root[a, i] * x[i]
        x[a] = value / root[a, a]


@internal
def _backward(root, x):  # type: ignore[no-untyped-def]
    """Solve Lᵀ z = x in place."""
    for a in range(x.shape[0] - 1, -1, -1):
        x[a] /= root[a, a]
        for i in range(a):
            x[i] -= root[a, i] * x[a]


@internal
def _own_variance(targets, factors, precision, strength, covariance, squares, row):  # type: ignore[no-untyped-def]
    """The variance of a combination of values at some targets before anything is known."""
    across, own = targets.T, 0.0
    for s in range(targets.shape[0]):
        _row(targets[s], across, precision, strength, s + 1, covariance, squares, row)
        for r in range(s + 1):
            own += (1.0 if r == s else 2.0) * factors[s] * factors[r] * row[r]
    return own


@compiled_sums
def choose(distance, index, clear, wanted, offset, reach, chosen, filled):  # type: ignore[no-untyped-def]
    """Add to the neighbours of each row the nearest items of a level that are clear of those it has.

    `distance` and `index` [m, k] are sorted by distance, infinite where there are no more items. `reach` [m] is that of
    the furthest neighbour, `chosen` [m, n] has `filled` [m] of them.
    """
    for row in range(distance.shape[0]):
        count, limit = 0, reach[row] + clear
        for i in range(distance.shape[1]):
            if count == wanted or distance[row, i] == np.inf:
                break
            if distance[row, i] > limit:
                chosen[row, filled[row]] = index[row, i] + offset
                filled[row] += 1
                count += 1
                reach[row] = distance[row, i]


@compiled_sums
def predictions(  # type: ignore[no-untyped-def]
    places, levels, counts, values, chosen, filled, targets, combination, groups, blocks,
    covariance, with_variance, mean, variance, left, trust, size,
):  # fmt: skip
    """Predict linear combinations of values, each from the neighbours of its block.

    Items are `places` [n, D], `levels`, `counts` and `values` [n]; the neighbours of block b are the first `filled[b]`
    of `chosen[b]`. Block b has the combinations from `blocks[b]` to `blocks[b + 1]`, and combination g is that of the
    rows from `groups[g]` to `groups[g + 1]` of `targets` with the factors `combination`. `mean[g]` and `variance[g]`
    are those of a combination given the values, `left[g]` is the share of its variance that is left, `trust[g]` the
    sum of the weights of the neighbours, and `size[b]` the mean square of the whitened values, which is 1
    where they vary as the model says.
    """
    axes, scales, most = places.shape[1], covariance.amplitude.shape[0], 0
    for g in range(mean.shape[0]):
        most = max(most, groups[g + 1] - groups[g])
    own_precision, own_strength = np.empty((scales, axes, most)), np.empty((scales, most))
    own_squares, own_row = np.empty(most), np.empty(most)
    _toward(0, np.zeros(most, np.int64), covariance, own_precision, own_strength)
    for block in range(chosen.shape[0]):
        m = filled[block]
        across, precision, strength, matrix = _some(places, levels, counts, chosen[block, :m], covariance)
        squares, alpha, beta, row, sums = np.empty(m), np.empty(m), np.ones(m), np.empty(m), np.empty(m)
        for a in range(m):
            alpha[a] = values[chosen[block, a]]
        _forward(matrix, alpha)
        size[block] = _product(alpha, alpha) / m
        _backward(matrix, alpha)
        _forward(matrix, beta)
        _backward(matrix, beta)
        for g in range(blocks[block], blocks[block + 1]):
            first, last = groups[g], groups[g + 1]
            for a in range(m):
                sums[a] = 0.0
            for s in range(first, last):
                _row(targets[s], across, precision, strength, m, covariance, squares, row)
                for a in range(m):
                    sums[a] += combination[s] * row[a]
            mean[g] = _product(sums, alpha)
            trust[g] = _product(sums, beta)
            if with_variance:
                own = _own_variance(
                    targets[first:last], combination[first:last], own_precision, own_strength, covariance,
                    own_squares, own_row,
                )  # fmt: skip
                _forward(matrix, sums)
                variance[g] = max(own - _product(sums, sums), 0.0)
                left[g] = variance[g] / own


@compiled_sums
def contributions(  # type: ignore[no-untyped-def]
    places, levels, counts, chosen, filled, targets, factors, blocks, covariance, out,
):  # fmt: skip
    """Add what each item counts in weighted sums of predictions to `out` [items, N].

    Targets [t, D] have the weights `factors` [t, N], and those of block b go from `blocks[b]` to `blocks[b + 1]`. All
    else is as for `predictions`.
    """
    sums = factors.shape[1]
    for block in range(chosen.shape[0]):
        m, first, last = filled[block], blocks[block], blocks[block + 1]
        across, precision, strength, matrix = _some(places, levels, counts, chosen[block, :m], covariance)
        squares, share, rows = np.empty(m), np.empty(m), np.empty((last - first, m))
        for s in range(first, last):
            _row(targets[s], across, precision, strength, m, covariance, squares, rows[s - first])
        for n in range(sums):
            counted = False
            for a in range(m):
                share[a] = 0.0
            for s in range(first, last):
                if factors[s, n] != 0.0:
                    counted = True
                    for a in range(m):
                        share[a] += factors[s, n] * rows[s - first, a]
            if counted:
                _forward(matrix, share)
                _backward(matrix, share)
                for a in range(m):
                    out[chosen[block, a], n] += share[a]


@compiled_sums
def quadratic(places, covariance, factors, out):  # type: ignore[no-untyped-def]
    """Add the covariances [N, N] of sums of values at `places` [n, D] with `factors` [n, N] to `out`."""
    (count, axes), sums, scales = places.shape, factors.shape[1], covariance.amplitude.shape[0]
    across, squares, row, own = places.T.copy(), np.empty(count), np.empty(count), np.empty(sums)
    precision, strength = np.empty((scales, axes, count)), np.empty((scales, count))
    _toward(0, np.zeros(count, np.int64), covariance, precision, strength)
    for i in range(count):
        _row(places[i], across, precision, strength, i + 1, covariance, squares, row)
        for n in range(sums):
            own[n] = 0.5 * row[i] * factors[i, n]
        for b in range(i):
            for n in range(sums):
                own[n] += row[b] * factors[b, n]
        for n in range(sums):
            for k in range(sums):
                out[n, k] += factors[i, n] * own[k] + own[n] * factors[i, k]


@compiled_sums
def whiten(places, earlier, filled, covariance, factors):  # type: ignore[no-untyped-def]
    """Turn sums of values at `places` [n, D] into sums of independent numbers of variance 1, `factors` [n, N] in place.

    Each value is predicted from those at the first `filled[i]` of `earlier[i]`, which come before it: what is left is
    independent of these (Vecchia 1988). The noise of the covariance is a variance that each value has of its own.
    """
    sums, total = factors.shape[1], _total(covariance) + covariance.noise
    levels, counts = np.zeros(len(places), np.int64), np.ones(len(places))
    for i in range(places.shape[0] - 1, -1, -1):
        counted = False
        for n in range(sums):
            counted |= factors[i, n] != 0.0
        if not counted:
            continue
        m = filled[i]
        across, precision, strength, matrix = _some(places, levels, counts, earlier[i, :m], covariance)
        squares, row = np.empty(m), np.empty(m)
        _row(places[i], across, precision, strength, m, covariance, squares, row)
        _forward(matrix, row)
        left = math.sqrt(max(total - _product(row, row), 0.0))
        _backward(matrix, row)
        for n in range(sums):
            factor = factors[i, n]
            if factor != 0.0:
                factors[i, n] = factor * left
                for a in range(m):
                    factors[earlier[i, a], n] += factor * row[a]
