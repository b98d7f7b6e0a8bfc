"""Errors of weighted sums of a field that neighbours tell, and how those of several sums go together.

A prediction is a sum of observations with known factors, so that the error of a sum of predictions is one of values of
the field, at the nodes of the sum and at all observations, and of noise. Its variance under the model follows from the
covariance of these values. Of many the covariance takes a form that is no sum over pairs, and has no variance below
zero: each is predicted from those before it that are near, in a random order, and what is left is independent (Vecchia
1988; Guinness 2018). Of fields that are smooth between observations with little noise it says up to twice the error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.spatial import cKDTree

from xspline.kriging.model import Model
from xspline.kriging.nearby import NEIGHBOURS, SANDWICHED, TAKEN, TOGETHER, Nearby, root_where_calm
from xspline.kriging.pyramid import Array, Index
from xspline.threads import threads

#: Values before it that each is predicted from: as many as a place has neighbours of the coarsest level.
EARLIER = NEIGHBOURS[-1]


class Terms(NamedTuple):
    """The terms that were fitted before, as far as errors of weighted sums need them."""

    functions: Callable[[Array], tuple[Array, Index]]  # those not zero at [n, d], and numbers, [n, q]
    sums: Array  # [P, N], the weighted sums of the functions
    solve: Callable[[Array], Array]  # returns A⁻¹ r of r [P, N]
    weight: float  # of an observation of mean weight in A
    held_back: float  # variance σ² where a penalty holds coefficients back, else 0


def covariance(field: Nearby, nodes: Array, weights: Array, terms: Terms) -> Array:
    """Return the covariance [N, N] of errors of the sums, with weights [m, N], of terms and field at nodes [m, d]."""
    number, p = weights.shape[1], field.pyramid
    parts, at = _by_model(field, nodes, weights)
    total, means = np.zeros((number, number)), []
    for (share, model), scale, (factors, scaled) in zip(field.models, field.mean_scales, parts, strict=True):
        # What each observation counts: a cell is the mean of its observations.
        each = factors[: p.count].copy()
        for level in range(1, len(p.starts) - 1):
            cells = slice(p.starts[level], p.starts[level + 1])
            if factors[cells].any():
                of_cells = factors[cells] / p.counts[cells, None]
                each += p.counts[: p.count, None] * of_cells[p.cell_of_observations(level)]
        means.append(p.values[: p.count] @ each[:, :number])
        left = terms.sums - sum(rows.T @ each[own, :number] for own, rows in _rows(field, terms))
        solved = terms.solve(left)
        fitted = np.concatenate([rows @ solved for _, rows in _rows(field, terms)])
        each = each[:, number:] + np.sqrt(scale) * terms.weight * p.counts[: p.count, None] * fitted
        places = np.concatenate([at, p.places[: p.count]])
        own = _between(field, model, places, np.concatenate([scaled, -each]))
        own += model.noise * (each.T / p.counts[: p.count]) @ each
        if terms.held_back:
            # gᵀΛg, by what A and G have in common
            squares = terms.weight * (fitted.T * p.counts[: p.count]) @ fitted
            own += terms.held_back * (solved.T @ left - squares)
        total += share * own
    apart = np.array(means) - np.average(means, axis=0, weights=[share for share, _ in field.models])
    shares = np.array([share for share, _ in field.models])
    return np.asarray(total + (apart.T * shares) @ apart)


def _by_model(field: Nearby, nodes: Array, weights: Array) -> tuple[list[tuple[Array, Array]], Array]:
    """Return for each model what items count [items, 2 N] and the weights of nodes [m, N] in local scales; and places.

    Items count in sums with the given weights, and in those with weights in local scales.
    """
    from xspline.kriging import compiled

    p, at = field.pyramid, field.places(nodes)
    order, starts, centres = field.in_blocks(at)
    at, weights = np.ascontiguousarray(at[order]), weights[order]
    out = [(np.zeros((p.values.size, 2 * weights.shape[1])), np.empty_like(weights)) for _ in field.models]
    for first in range(0, len(centres), TOGETHER):
        last = min(first + TOGETHER, len(centres))
        own = slice(starts[first], starts[last])
        blocks = starts[first : last + 1] - starts[first]
        near = p.neighbours(centres[first:last], field.wanted)
        local = root_where_calm(field.local(at[own]))
        for (_, model), (items, scaled) in zip(field.models, out, strict=True):
            x = field.by_model(model, near, at[own, None], np.ones(1), blocks, True)
            longer = np.sqrt(x.scale * local) * field.calibration(x.left, x.scale)[0]
            scaled[own] = longer[:, None] * weights[own]
            both = np.ascontiguousarray(np.concatenate([weights[own], scaled[own]], axis=1))
            compiled.contributions(
                p.places, p.levels, p.counts, *near, at[own], both, blocks, model.between(p.spread), items
            )
    return out, at


def _rows(field: Nearby, terms: Terms) -> Iterator[tuple[slice, sparse.csr_array]]:
    """Yield which observations these are, and the functions at them."""
    for first in range(0, field.pyramid.count, TAKEN):
        own = slice(first, first + TAKEN)
        values, number = terms.functions(field.coordinates[own])
        starts = np.arange(len(values) + 1) * values.shape[1]
        yield own, sparse.csr_array((values.ravel(), number.ravel(), starts), (len(values), len(terms.sums)))


def _between(field: Nearby, model: Model, places: Array, factors: Array) -> Array:
    """Return the covariance [N, N] of sums of values at places [n, D] with factors [n, N]."""
    from xspline.kriging import compiled

    p, out = field.pyramid, np.zeros((factors.shape[1],) * 2)
    order = np.random.default_rng(0).permutation(len(places))
    at = np.ascontiguousarray(places[order])
    white = np.ascontiguousarray(factors[order])
    # Matrices of smooth fields are singular up to rounding: without a variance of each value alone, variances of means
    # are 1e13 times too large and more in three of seven such fields; with 1e-13 to 1e-10 none is.
    alone = 1e-12 * float(model.variances.sum())
    if len(places) <= 2 * SANDWICHED:  # .1 s
        compiled.quadratic(at, model.between(p.spread), white, out)
        return np.asarray(out + alone * white.T @ white)
    covariance = model.between(p.spread)._replace(noise=alone)
    compiled.whiten(at, *_earlier(at / p.metric), covariance, white)
    return np.asarray(white.T @ white)


def _earlier(places: Array) -> tuple[Index, Index]:
    """Return the numbers of the nearest of the places before each place, [n, EARLIER], and how many there are."""
    n, last = len(places), 0
    chosen, filled = np.zeros((n, EARLIER), np.int64), np.zeros(n, np.int64)
    while last < n:
        # About half of a set twice as large, or more, are before.
        start, last = last, min(max(2 * last, 4 * EARLIER), n)
        sets = places[:last], places[start:last]
        tree, new = (cKDTree(x, compact_nodes=False, balanced_tree=False) for x in sets)
        many = np.arange(1, (min(3 * EARLIER, last) if start else last) + 1)
        for first in range(0, last - start, TAKEN):
            own = start + new.indices[first : first + TAKEN]  # near each other, as are neighbours in memory
            near = tree.query(places[own], many, workers=threads())[1]
            before = near < own[:, None]
            rank = np.cumsum(before, axis=1)
            row, column = np.nonzero(before & (rank <= EARLIER))
            chosen[own[row], rank[row, column] - 1] = near[row, column]
            filled[own] = np.minimum(rank[:, -1], EARLIER)
    return chosen, filled
