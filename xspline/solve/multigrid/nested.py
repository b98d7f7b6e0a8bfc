"""Sums in a space from those in a finer one that it lies in, without the data: h = Pᵀh_fine, G = PᵀG_fineP.

P holds what the coarse functions are of the fine ones, a matrix for each coordinate. A B-spline lies in a finer one of
equal degree and domain whose knots inside it are among the fine ones; a union in one with the same other terms and a
finer B-spline, or without any. The likelihood says which of such spaces the data prefer; residuals in the finer one
say how much of the field a space leaves out.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, sparse
from scipy.special import logsumexp

from xspline.solve.families.base import Family
from xspline.solve.families.orders import several_orders, smoothed
from xspline.solve.multigrid.spaces import AxisLevel, projected, prolongation, sparse_along
from xspline.solve.parallel import Resources, single_threaded_blas
from xspline.solve.smoothing.choose import Problem
from xspline.solve.smoothing.criteria import Reml
from xspline.solve.smoothing.family import family_for
from xspline.solve.smoothing.fit import Model, centred
from xspline.solve.smoothing.newton import Until
from xspline.solve.solution import Solution
from xspline.spaces import Frame, Space
from xspline.spaces.bspline import LocalSpline, SplineTerm
from xspline.spaces.features import Features, Global
from xspline.sums import Gram, Sums
from xspline.sums.window import whole

ROUGHLY = 1.0  # the step in log λ that ends a search where spaces are compared, which differ by much more
LOOKS = 4  # steps from strengths of another space
ENOUGH = 1e-4  # of the observations: a step that promises less of a log-likelihood ends it too
SHORTEST = 500.0  # in log κ²: no wave is as short
INSIDE = 1e-9  # of a cell: what two computations of one knot may differ by
# The variance of what a space leaves out is what residuals have in common within a fine function, times f / (1 − r^-½)
# where these have r times the cells along a coordinate: finer waves than they tell follow by a power law. Measured on
# 54 simulated fields in three coordinates, amplitudes k^-3.5, k^-2 and k^-1.5, r from 1.6 to 6: 0.8 to 1.5 times that.
FINER_WAVES = 1.3  # f
PAIRED = 0.05  # of the squared weight of fine functions: fewer pairs of observations in them tell nothing
MOST_LEFT_OUT = 0.95  # of the variance of residuals; the rest is noise


def restricted(sums: Sums, fine: Space, coarse: Space) -> Sums:
    """The sums of the same data in a space that lies in theirs; exact up to rounding errors.

    Parameters
    ----------
    sums : Sums
        In `fine`, with or without batch axes.
    fine, coarse : Space
        Of the same coordinates.

    Returns
    -------
    Sums

    Raises
    ------
    ValueError
        A basis of `coarse` does not lie in that of `fine`; with the coordinate's name.
    """
    moment, projections = sums.full_moment(fine.frame), {}
    # First along the coordinate that leaves least.
    for j in sorted(range(len(fine.names)), key=lambda j: coarse.shape[j] / fine.shape[j]):
        name = fine.names[j]
        if coarse.basis(name) != fine.basis(name):
            matrix = inclusion(fine.features[j], coarse.features[j], name)
            moment = sparse_along(matrix.T.tocsr(), moment, j)
            projections[j] = pairs_between(matrix, fine.frame, coarse.frame, j)
    offsets = dict(enumerate(coarse.offsets))
    terms = tuple(
        tuple(projected(factor.full(fine.frame), projections, offsets) for factor in term)
        for term in sums.gram.terms
    )
    window = tuple((0, k) for k in coarse.shape)
    return replace(sums, window=window, gram=Gram(terms, sums.gram.batch_ndim), moment=moment)


@single_threaded_blas()
def likelihood(
    sums: Sums,
    space: Space,
    start: NDArray[np.float64] | None = None,
    *,
    search: bool = False,
    resources: Resources | None = None,
) -> tuple[float, NDArray[np.float64]]:
    """REML of some sums as it compares spaces, and where it was taken.

    Strengths of roughness do not depend on knots, so those of one space tell of another with the same coordinates.

    Parameters
    ----------
    sums : Sums
    space : Space
    start : ndarray, optional
        Logarithms of what the penalty is known by, see `Family`.
    search : bool
        Look for the minimum from there, roughly; else the score there. Where they are not those of the penalties of
        this space, the minimum is looked for from the usual start.
    resources : Resources, optional

    Returns
    -------
    float
        The negative logarithm; NaN where it would be estimated.
    ndarray

    Raises
    ------
    ValueError, SingularSystemError
        Nothing is determined, or there is nothing to smooth.
    """
    resources = resources or Resources.here()
    family = _family(sums, space, resources)
    problem = Problem(Model(space, centred(sums, space), family, None, resources), "reml", ())
    if problem.estimated:
        return math.nan, problem.bounds.start
    bounds, rho = problem.bounds, start
    if rho is None or rho.shape != bounds.start.shape:
        rho, search = bounds.start, True
    rho = np.clip(rho, bounds.lower, bounds.upper)
    rho = rho - max(float(np.max(family.design @ rho - bounds.most)), 0.0) * family.overall
    if search:
        enough = ENOUGH * problem.model.observations
        until = Until(ROUGHLY, enough, unseen=True)
        if start is not None:
            until = until._replace(grows=True, steps=LOOKS)
        state = problem.search(rho, until)[0]
        rho, point = state.rho, state.point
    else:
        point = problem.score(rho)
    return (point.comparable if isinstance(point, Reml) else math.nan), rho


def left_out(sums: Sums, fine: Space, space: Space, solution: Solution) -> NDArray[np.float64]:
    """The variance of what a space leaves out of the field, told by residuals in a finer one, [b..].

    Residuals of noise are independent, those of waves that the space cannot follow alike between neighbours. With the
    sums g = Σwφr and b = Σwφ over the residuals r of the observations of each fine function φ, the pairs of different
    ones covary by (Σg² − σ²ΣG_ii) / (Σb² − w̄ΣG_ii) on average; Σg² of a draw of the coefficients' errors is added, as
    residuals lack what the coefficients took from them.

    Parameters
    ----------
    sums : Sums
        In `fine`, with or without batch axes.
    fine, space : Space
        Of the same coordinates; the second lies in the first.
    solution : Solution
        Of the same data, in `space`.

    Returns
    -------
    ndarray
        In the data's units squared; zero where residuals are as good as noise, or the space lacks the constant.
    """
    frame, axes = fine.frame, tuple(range(len(fine.shape)))
    gram, factorisation = sums.gram.with_batch_axes(sums.batch_ndim), solution.factorisation
    draw = factorisation.draws(np.random.default_rng(0))((1, *sums.batch))
    fitted, drawn = (_in_finer(c, fine, space) for c in (solution.coefficients, np.take(draw, 0, len(axes))))
    residual = sums.full_moment(frame) - gram.matvec(sums.centred(fitted, frame), frame)
    # Season and trend, which meet all observations, tell nothing of neighbours beside events.
    local = tuple(slice(_others(f) if _spline(f) else 0, None) for f in fine.features)
    weights = np.sum(gram.image(frame.constant, whole(frame.sizes), frame)[local] ** 2, axes)
    own = np.sum(gram.diagonal(frame)[local], axes)
    finer = math.prod(_cells(f) / _cells(g) for f, g in zip(fine.features, space.features, strict=True))
    beyond = FINER_WAVES / (1 - max(finer, 1.01) ** (-0.5 / len(axes)))
    with np.errstate(divide="ignore", invalid="ignore"):
        variance, mean = solution.rss / (sums.count - factorisation.edf()), sums.weight / sums.count
        taken = np.sum(gram.matvec(drawn, frame)[local] ** 2, axes)
        squares = np.sum(residual[local] ** 2, axes) + variance * taken
        pairs = weights - mean * own
        common = np.where(pairs > PAIRED * weights, (squares - variance * own) / pairs, 0.0)
        return np.asarray(np.nan_to_num(np.clip(beyond * common, 0.0, MOST_LEFT_OUT * variance / mean)))


def _in_finer(c: NDArray[np.float64], fine: Space, space: Space) -> NDArray[np.float64]:
    """The coefficients of the same field in a finer space."""
    for j, name in enumerate(fine.names):
        if fine.basis(name) != space.basis(name):
            c = sparse_along(inclusion(fine.features[j], space.features[j], name), c, j)
    return c


def first_order(
    sums: Sums, space: Space, rho: NDArray[np.float64], resources: Resources
) -> NDArray[np.float64]:
    """Logarithms of the strengths of first derivatives that smooth as a penalty does that is known by ρ, [J].

    A penalty passes waves along a coordinate up to where it weighs as much as the data, Σ_k λ_k κ^2k = Σw. One of first
    derivatives alone does so with the strength Σw/κ².
    """
    family, weight = _family(sums, space, resources), np.asarray(sums.weight)
    data, strengths = math.log(float(np.mean(weight[weight > 0]))), family.design @ rho
    out = []
    for j in range(len(family.names)):
        orders = np.array([alpha[j] if sum(alpha) == alpha[j] else 0 for alpha in family.alphas])
        own, orders = strengths[orders > 0], orders[orders > 0]
        passed = optimize.brentq(_excess, -SHORTEST, SHORTEST, (own - data, orders))
        out.append(data - float(passed))
    events = [own for own, alpha in zip(strengths, family.alphas, strict=True) if not any(alpha)]
    return np.array([*out, *events])  # the mass of events is one of any splines


def _excess(x: float, strengths: NDArray[np.float64], orders: NDArray[np.int64]) -> float:
    """log Σ_k λ_k κ^2k at x = log κ²."""
    return float(logsumexp(strengths + orders * x))


def _family(sums: Sums, space: Space, resources: Resources) -> Family:
    """The penalties that spaces are compared with."""
    several = several_orders(space, smoothed(space, "reml"))
    return several or family_for(sums.gram, "reml", space, None, resources)


def inclusion(fine: Features, coarse: Features, name: str) -> sparse.csr_array:
    """P [K, K_c]: the coefficients of the coarse functions among the fine ones, along the coordinate `name`."""
    own, wanted, before = _spline(fine), _spline(coarse), _others(fine)
    if before != _others(coarse) or own is None or (wanted is None and not before):
        raise ValueError(
            f"{name}: of the {coarse.size} coarse functions some do not lie among the {fine.size} fine ones"
        )
    if wanted is None:  # season and trend without events
        return sparse.eye_array(fine.size, coarse.size, format="csr")
    apart = np.abs(wanted.edges[:, None] - own.edges).min(axis=1).max() / own.lengths.min()
    if apart > INSIDE or own.degree != wanted.degree:
        raise ValueError(
            f"{name}: the {wanted.cells} cells of the coarse B-spline are not made of the {own.cells} fine ones, or "
            "degrees differ; take a number of cells that divides the finer one"
        )
    spline = prolongation(AxisLevel.of(own), AxisLevel.of(wanted))
    return sparse.block_diag([sparse.eye_array(before), spline], format="csr") if before else spline


def _spline(features: Features) -> LocalSpline | None:
    if isinstance(features, Global):
        last = features.terms[-1]
        return last.spline if isinstance(last, SplineTerm) else None
    return features if isinstance(features, LocalSpline) else None


def _cells(features: Features) -> int:
    """Those of its B-spline; 1 without one."""
    return 1 if (spline := _spline(features)) is None else spline.cells


def _others(features: Features) -> int:
    """Number of functions beside a B-spline."""
    return features.size - (0 if (spline := _spline(features)) is None else spline.size)


def pairs_between(matrix: sparse.csr_array, fine: Frame, coarse: Frame, axis: int) -> sparse.csr_array:
    """[K_c O_c, K O]: pairs of Pᵀ M P from pairs of a symmetric M, along one axis of any kind.

    A fine pair {k, l} adds P[k, c] P[l, d] + P[l, c] P[k, d] to the entry (c, d), one of them where k = l.
    """
    first, second, place = _pairs(fine, axis)
    size, (own, partner, target) = coarse.sizes[axis], _pairs(coarse, axis)
    entries = (np.concatenate([target, target]) + 1, (np.append(own, partner), np.append(partner, own)))
    # A pair with itself is there twice.
    entries[0][: own.size][own == partner] = 0
    places = sparse.coo_array(entries, shape=(size, size)).tocsr()
    columns, values = _rows(matrix)
    rows, sources, weights = [], [], []
    for i in range(columns.shape[1]):
        for j in range(columns.shape[1]):
            c, d = columns[first, i], columns[second, j]
            weight = values[first, i] * values[second, j]
            # Off the diagonal of M either order counts; c = d is reached by both.
            keep = (weight != 0) & ((first != second) | (c <= d))
            weight = weight * np.where((first != second) & (c == d), 2.0, 1.0)
            rows.append(np.asarray(places[c[keep], d[keep]]).ravel() - 1)
            sources.append(place[keep])
            weights.append(weight[keep])
    shape = (size * coarse.offsets[axis], fine.sizes[axis] * fine.offsets[axis])
    at = np.concatenate(rows), np.concatenate(sources)
    return sparse.coo_array((np.concatenate(weights), at), shape=shape).tocsr()


def _pairs(frame: Frame, axis: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The members of all pairs along an axis, and where they lie in the pair array: [pairs] each."""
    parts = []
    for o in range(frame.offsets[axis]):
        span, partners = frame.pairs_at(axis, o)
        k = np.arange(frame.sizes[axis])[span]
        parts.append((k, np.asarray(partners, np.int64), k * frame.offsets[axis] + o))
    first, second, place = (np.concatenate(x) for x in zip(*parts, strict=True))
    return first, second, place


def _rows(matrix: sparse.csr_array) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Columns and values of each row of a matrix, [K, width], filled up with zeros."""
    counts = np.diff(matrix.indptr)
    columns = np.zeros((matrix.shape[0], int(counts.max())), np.int64)
    values = np.zeros(columns.shape)
    filled = np.arange(columns.shape[1]) < counts[:, None]
    columns[filled], values[filled] = matrix.indices, matrix.data
    return columns, values
