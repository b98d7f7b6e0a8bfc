"""Errors of functionals of terms and fine field together: how errors of many places go with each other."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from xspline.kriging import functionals
from xspline.kriging.functionals import Terms
from xspline.kriging.nearby import Nearby
from xspline.labels.fine.field import Fine, active_functions
from xspline.labels.fit import Fit
from xspline.labels.functionals.marginals import Marginal
from xspline.labels.uncertainty import MAX_PAIRS
from xspline.solve import TooLargeError
from xspline.solve.progress import counted

Array = np.ndarray


def variances(fit: Fit, marginals: Sequence[Marginal], *, covariance: bool) -> tuple[Array, Array]:
    """Return the variances [n.., b..] of functionals of a whole field, and where requested the covariance [N, N, b..].

    Raises
    ------
    ValueError : observations that are not in memory, as errors take all of them.
    TooLargeError : more labels than the covariance between them has memory for.
    """
    fine, counts = _in_memory(fit), [len(m.rows) for m in marginals]
    total, batch = math.prod(counts), fit.variable.batch_shape
    items = max((member.pyramid.values.size for member in fine.members if member is not None), default=1)
    nodes = math.prod(_nodes(m, np.arange(len(m.rows)))[1].shape[1] for m in marginals)
    # Of each sum what items and nodes count, as they are and in local scales, and twice in turn
    each = 8 * 6 * (items + nodes / total)
    step = max(int(MAX_PAIRS / each), 1)
    if covariance and total > step:
        raise TooLargeError(
            f"the covariance of {total:,} labels of {fit.name!r} takes {total * each / 2**30:.1f} GiB, as errors take "
            f"all of {items:,} observations and cells, more than {MAX_PAIRS / 2**30:.0f}; pass fewer labels, or "
            "functional(weights) of what it is for"
        )
    if not covariance and any(member is not None and member.is_dense for member in fine.members):
        # All pairs of places are looked at: those of a few sums, with about as many nodes as there are observations.
        step = min(step, max(int(items * total / nodes), 1))
    variance, square = np.full((total, len(fine.members)), np.nan), np.zeros(())
    for first in counted(total, step, "errors of functionals"):
        own = np.arange(first, min(first + step, total))
        each = [_covariance(fit, member, k, marginals, own) for k, member in enumerate(fine.members)]
        variance[own] = np.stack([np.diagonal(x) for x in each], axis=-1)
        square = np.stack(each, axis=-1).reshape(own.size, own.size, *batch)
    return variance.reshape(*counts, *batch), square


def _in_memory(fit: Fit) -> Fine:
    if fit.whole is None or fit.whole.in_tiles:
        raise ValueError(
            f"the errors of means of {fit.name!r} take all observations at once, and those of data that are not in "
            "memory are read in tiles; pass stderr=False, fit the region alone, data.sel(...).load(), take a term, "
            "field.select(time=xs.Polynomial).mean(...), or a single field, fit(..., fine=False)"
        )
    return fit.whole


def _covariance(
    fit: Fit, member: Nearby | None, number: int, marginals: Sequence[Marginal], own: Array
) -> Array:
    """Return the covariance of some functionals of one member of a batch."""
    if member is None:
        return np.full((own.size, own.size), np.nan)
    rows = np.unravel_index(own, [len(m.rows) for m in marginals])
    names = [name for m in marginals for name in m.names]
    points = []
    weights = np.ones((own.size, 1))
    functions = np.ones((own.size, 1))
    axes = list[int]()
    for m, index in zip(marginals, rows, strict=True):
        at, w = _nodes(m, index)
        points.append(at)
        weights = (weights[:, :, None] * w[:, None]).reshape(own.size, -1)
        functions = (functions[:, :, None] * np.nan_to_num(m.rows[index]).reshape(own.size, 1, -1)).reshape(
            own.size, -1
        )
        axes += [fit.space.names.index(name) for name in m.names]
    grid = np.meshgrid(*(np.arange(len(at)) for at in points), indexing="ij")
    nodes = np.concatenate([at[i.ravel()] for at, i in zip(points, grid, strict=True)], axis=1)
    nodes = nodes[:, [names.index(name) for name in fit.space.names]]
    shape = [fit.space.shape[axis] for axis in axes]
    functions = np.transpose(functions.reshape(-1, *shape), (0, *(1 + np.argsort(axes))))
    used = np.isfinite(nodes).all(axis=1) & weights.any(axis=0)
    if member.is_dense and (pairs := (int(used.sum()) + member.pyramid.count) ** 2 / 2) > MAX_PAIRS:
        raise TooLargeError(
            f"the error of {own.size} labels of {fit.name!r} is a sum over {pairs:.1g} pairs of places, more than "
            f"{MAX_PAIRS:.1g}; pass smaller ranges or fewer labels, or stderr=False"
        )
    terms = _terms(fit, number, functions.reshape(own.size, -1).T)
    return functionals.covariance(member, nodes[used], np.ascontiguousarray(weights[:, used].T), terms)


def _nodes(m: Marginal, index: Array) -> tuple[Array, Array]:
    """Return nodes [q, d] and weights [n, q] of some rows of a marginal."""
    if m.weights is None:
        chosen, own = np.unique(index, return_inverse=True)
        return np.stack([x[chosen] for x in m.nodes], axis=1), np.eye(chosen.size)[own.ravel()]
    weights = np.nan_to_num(m.weights.reshape(len(m.weights), -1))[index]
    grid = np.meshgrid(*m.nodes, indexing="ij")
    used = weights.any(axis=0)
    return np.stack([x.ravel()[used] for x in grid], axis=1), weights[:, used]


def _terms(fit: Fit, number: int, sums: Array) -> Terms:
    """Return what errors need of the terms of one member."""
    space, factorisation, batch = fit.space, fit.solved.factorisation, fit.variable.batch_shape
    axes = len(space.shape)

    def solve(r: Array) -> Array:
        solved = factorisation.solve(r.reshape(*space.shape, -1, *(1,) * len(batch)))
        full = np.broadcast_to(solved, (*solved.shape[: axes + 1], *batch))
        return np.asarray(full.reshape(space.size, full.shape[axes], -1)[..., number])

    penalised = bool(fit.known_penalty.bound(fit.total.gram, space).gram(space).terms)

    def of_member(x: Array) -> float:
        return float(np.broadcast_to(x, batch).ravel()[number])

    return Terms(
        functools.partial(active_functions, space),
        sums,
        solve,
        of_member(fit.total.weight / np.maximum(fit.total.count, 1)),
        of_member(fit.sigma() ** 2) if penalised else 0.0,
    )
