"""Compiled loops: covariances between items, their derivatives, and predictions from a set of neighbours.

An item is an observation or the mean of the observations in a cell. Items of level 0 are observations; in cells of
level l places have the variance `spread[l, j]` along coordinate j. Two items at the difference Δ have the covariance

    Σ_q amplitude[q, l, l'] M(ν_q, √(2 ν_q Σ_j Δ_j² inverse[q, l, l', j]))

with the Matérn function M of smoothness ν_q, which stands in a table of values and of slopes, [node, 2].
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

from xspline.spaces.jit import compiled

FLOOR = 1e-10  # of the variance: the least square of a pivot, where rounding would leave less
#: Sums may be added in any order, so that they are vector instructions: the same bits on one processor.
FAST = {"contract", "nsz", "arcp", "reassoc"}
internal: Any = numba.njit(  # type: ignore[call-overload]
    nogil=True, error_model="numpy", fastmath=FAST, no_cpython_wrapper=True, no_cfunc_wrapper=True
)


@internal
def _squares(place, level, across, levels, n, inverse, q, squares):  # type: ignore[no-untyped-def]
    """Write the squared distances of one place from the first n items, in lengths of one scale."""
    for b in range(n):
        squares[b] = 0.0
    for j in range(across.shape[0]):
        own = place[j]
        for b in range(n):
            difference = own - across[j, b]
            squares[b] += difference * difference * inverse[q, level, levels[b], j]


@internal
def _row(place, level, across, levels, n, inverse, amplitude, smoothness, table, step, squares, out):  # type: ignore[no-untyped-def]
    """Write the covariances of one item with the first n."""
    last = table.shape[1] - 1
    for b in range(n):
        out[b] = 0.0
    for q in range(amplitude.shape[0]):
        _squares(place, level, across, levels, n, inverse, q, squares)
        scale = math.sqrt(2 * smoothness[q]) / step
        for b in range(n):
            squares[b] = math.sqrt(squares[b]) * scale
        for b in range(n):
            i = int(squares[b])
            if i < last:
                u = squares[b] - i
                v = 1.0 - u
                from_left = (1 + 2 * u) * v * v * table[q, i, 0] + u * v * v * table[q, i, 1]
                from_right = u * u * (3 - 2 * u) * table[q, i + 1, 0] - u * u * v * table[q, i + 1, 1]
                out[b] += amplitude[q, level, levels[b]] * (from_left + from_right)


@compiled(fastmath=FAST)
def covariances(places, levels, counts, inverse, amplitude, smoothness, table, step, noise, out):  # type: ignore[no-untyped-def]
    """Write the lower triangle of the covariance matrix of items, [m, m], with the noise of each."""
    m = places.shape[0]
    across, squares = places.T.copy(), np.empty(m)
    for a in range(m):
        _row(
            places[a], levels[a], across, levels, a + 1,
            inverse, amplitude, smoothness, table, step, squares, out[a],
        )  # fmt: skip
        out[a, a] += noise / counts[a]


@compiled(fastmath=FAST)
def slopes(  # type: ignore[no-untyped-def]
    places, levels, counts, inverse, amplitude, smoothness, table, bend, step, weights, lengths, out
):
    """Add Σ_ab weights[a, b] ∂K_ab/∂θ of every parameter θ to `out`; of `weights` the lower triangle is read.

    Parameters are in the order of `Model.parameters`: log length of each scale and coordinate, log variance of each
    scale, log smoothness of each scale, log noise (of a noise of 1). `bend` is ∂/∂ log ν of `table` at the same nodes.
    """
    m, number = places.shape
    scales, last = lengths.shape[0], table.shape[1] - 1
    across, squares = places.T.copy(), np.empty(m)
    for a in range(m):
        level = levels[a]
        for q in range(scales):
            _squares(places[a], level, across, levels, a + 1, inverse, q, squares)
            scale = math.sqrt(2 * smoothness[q]) / step
            widening = 1.0 / (1.0 + smoothness[q])  # −∂ log c/∂ log ν of c = 1 + 1/ν
            for b in range(a + 1):
                t = math.sqrt(squares[b]) * scale
                i = int(t)
                if i >= last:
                    continue
                u = t - i
                v = 1.0 - u
                factor = amplitude[q, level, levels[b]] * weights[a, b] * (1.0 if a == b else 2.0)
                # The cubic between two nodes, its derivative by t, and its derivative by log ν
                first, second, third, fourth = (1 + 2 * u) * v * v, u * v * v, u * u * (3 - 2 * u), -u * u * v
                value = first * table[q, i, 0] + second * table[q, i, 1]
                value = factor * (value + third * table[q, i + 1, 0] + fourth * table[q, i + 1, 1])
                turn = first * bend[q, i, 0] + second * bend[q, i, 1]
                turn = factor * (turn + third * bend[q, i + 1, 0] + fourth * bend[q, i + 1, 1])
                rise = 6 * u * v * (table[q, i + 1, 0] - table[q, i, 0])
                rise += (1 - 4 * u + 3 * u * u) * table[q, i, 1] + (3 * u * u - 2 * u) * table[q, i + 1, 1]
                along = 0.5 * factor * rise * t  # ∂/∂ log of the squared distance
                turn += along
                slope = along / squares[b] if squares[b] > 0.0 else 0.0
                for j in range(number):
                    difference = places[a, j] - across[j, b]
                    part = inverse[q, level, levels[b], j]
                    share = lengths[q, j] * lengths[q, j] * part
                    own = slope * difference * difference * part
                    out[q * number + j] += value * (1.0 - share) - 2.0 * share * own
                    turn += widening * (1.0 - share) * (0.5 * value + own)
                out[scales * number + q] += value
                out[scales * (number + 1) + q] += turn
        out[scales * (number + 2)] += weights[a, a] / counts[a]


@internal
def _factorise(matrix, floor):  # type: ignore[no-untyped-def]
    """Cholesky factorisation of a lower triangle in place."""
    for a in range(matrix.shape[0]):
        for b in range(a):
            value = matrix[a, b]
            for i in range(b):
                value -= matrix[a, i] * matrix[b, i]
            matrix[a, b] = value / matrix[b, b]
        value = matrix[a, a]
        for i in range(a):
            value -= matrix[a, i] * matrix[a, i]
        matrix[a, a] = math.sqrt(max(value, floor))


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
def _own_variance(targets, combination, first, number, inverse, amplitude, smoothness, table, step):  # type: ignore[no-untyped-def]
    """The variance of a combination of values at some targets before anything is known."""
    across, zeros = np.empty((targets.shape[1], number)), np.zeros(number, np.int64)
    squares, row, own = np.empty(number), np.empty(number), 0.0
    for s in range(number):
        for j in range(targets.shape[1]):
            across[j, s] = targets[first + s, j]
        _row(
            targets[first + s], 0, across, zeros, s + 1,
            inverse, amplitude, smoothness, table, step, squares, row,
        )  # fmt: skip
        for r in range(s + 1):
            double = 1.0 if r == s else 2.0
            own += double * combination[first + s] * combination[first + r] * row[r]
    return own


@compiled(fastmath=FAST)
def choose(distance, index, clear, wanted, offset, reach, chosen, filled):  # type: ignore[no-untyped-def]
    """Add to the neighbours of each row the nearest items of a level that are clear of those it has.

    `distance` and `index` [m, k] are sorted by distance, infinite where there are no more items. `reach` [m] is that of
    the furthest neighbour, `chosen`
    [m, n] has `filled` [m] of them.
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


@compiled(fastmath=FAST)
def predictions(  # type: ignore[no-untyped-def]
    places, levels, counts, values, chosen, filled, targets, combination, groups, blocks,
    inverse, amplitude, smoothness, table, step, noise, with_variance, mean, variance, left, trust, size,
):  # fmt: skip
    """Predict linear combinations of values, each from the neighbours of its block.

    Items are `places` [n, D], `levels`, `counts` and `values` [n]; the neighbours of block b are the first `filled[b]`
    of `chosen[b]`. Block b has the combinations from `blocks[b]` to `blocks[b + 1]`, and combination g is that of the
    rows from `groups[g]` to `groups[g + 1]` of `targets` with the factors `combination`. `mean[g]` and `variance[g]`
    are those of a combination given the values, `left[g]` is the share of its variance that is left, `trust[g]` the
    sum of the weights of the neighbours, and `size[b]` the mean square of the whitened values, which is 1
    where they vary as the model says.
    """
    axes, total = places.shape[1], 0.0
    for q in range(amplitude.shape[0]):
        total += amplitude[q, 0, 0]
    for block in range(chosen.shape[0]):
        m = filled[block]
        across, own_levels = np.empty((axes, m)), np.empty(m, np.int64)
        place, squares, matrix = np.empty(axes), np.empty(m), np.empty((m, m))
        alpha, beta, row, sums = np.empty(m), np.empty(m), np.empty(m), np.empty(m)
        for a in range(m):
            item = chosen[block, a]
            own_levels[a] = levels[item]
            alpha[a] = values[item]
            beta[a] = 1.0
            for j in range(axes):
                across[j, a] = places[item, j]
        for a in range(m):
            for j in range(axes):
                place[j] = across[j, a]
            _row(
                place, own_levels[a], across, own_levels, a + 1,
                inverse, amplitude, smoothness, table, step, squares, matrix[a],
            )  # fmt: skip
            matrix[a, a] += noise / counts[chosen[block, a]]
        _factorise(matrix, FLOOR * total)
        _forward(matrix, alpha)
        square = 0.0
        for a in range(m):
            square += alpha[a] * alpha[a]
        size[block] = square / m
        _backward(matrix, alpha)
        _forward(matrix, beta)
        _backward(matrix, beta)
        for g in range(blocks[block], blocks[block + 1]):
            first, number = groups[g], groups[g + 1] - groups[g]
            for a in range(m):
                sums[a] = 0.0
            for s in range(first, first + number):
                _row(
                    targets[s], 0, across, own_levels, m,
                    inverse, amplitude, smoothness, table, step, squares, row,
                )  # fmt: skip
                for a in range(m):
                    sums[a] += combination[s] * row[a]
            value, held = 0.0, 0.0
            for a in range(m):
                value += sums[a] * alpha[a]
                held += sums[a] * beta[a]
            mean[g] = value
            trust[g] = held
            if with_variance:
                own = _own_variance(
                    targets, combination, first, number, inverse, amplitude, smoothness, table, step
                )
                _forward(matrix, sums)
                rest = own
                for a in range(m):
                    rest -= sums[a] * sums[a]
                variance[g] = max(rest, 0.0)
                left[g] = variance[g] / own
