"""Sandwich errors from the sums of parts, without fits again: what each part's score moves the estimate by.

With A = G + Λ the score of part b is g_b = h_b − G_b c − π_b Λ c, π_b its share of the weight, and Σ g_b = 0. Without
the part and its share of the penalty the estimate is c − x_b, where (A − G_b − π_bΛ) x_b = g_b. So

    V = (B − 1)/B Σ x_b x_bᵀ

is the sandwich A⁻¹ Σ g_b g_bᵀ A⁻¹ with the correction for the leverage of parts that is CV3 of MacKinnon, Nielsen and
Webb (2023, Journal of Econometrics 232), with which intervals of Student's t with B − 1 degrees of freedom are the
least too short where parts are few.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from xspline.solve.batch import FEW
from xspline.solve.direct.cholesky import TINY, Array
from xspline.solve.krylov import AT_ONCE, TOLERANCE, LinearMap, conjugate_gradients
from xspline.solve.penalties.roughness import Penalty
from xspline.solve.smoothing.fit import ROUNDING
from xspline.solve.solution import Solution
from xspline.spaces import Space
from xspline.sums import Sums
from xspline.threads import single_threaded_blas


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of parts, and what they move.

    Attributes
    ----------
    scores, moves : g_b and x_b, [K.., B, b..]; zero where a part has no observations, and x_b is NaN where the other
        parts do not determine the fit.
    used : [B, b..], whether it has some.
    edf, variance : [b..], of the fit: effective degrees of freedom, and σ̂².
    """

    scores: Array
    moves: Array
    used: np.ndarray
    edf: Array
    variance: Array

    @property
    def replicates(self) -> Array:
        """√((B − 1)/B) x_b, whose squares add up to the variance of everything linear in c."""
        count = np.maximum(self.used.sum(axis=0), 1)
        return np.where(count > 1, np.sqrt((count - 1) / count), np.nan) * self.moves

    @cached_property
    def inflation(self) -> Array:
        """How many times more they vary than those of independent errors, of which E Σ g_bᵀx_b = σ² edf, [b..]."""
        axes = tuple(range(self.scores.ndim - self.used.ndim + 1))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.sum(self.scores * self.moves, axis=axes) / (self.variance * self.edf)
        return np.where(np.isfinite(ratio), ratio, 1.0)

    @property
    def mean_inflation(self) -> float:
        """That of the batch, by degrees of freedom."""
        edf = np.nan_to_num(self.edf)
        return float(np.sum(self.inflation * edf) / max(float(np.sum(edf)), 1.0))

    @property
    def are_alike(self) -> bool:
        """Whether errors within parts are alike: the inflation is two standard errors above what chance makes of 1."""
        freedom = len(self.used) * float(np.nansum(self.edf))
        return bool(self.mean_inflation > 1 + 2 * np.sqrt(2 / max(freedom, 1.0)))

    @property
    def remember(self) -> bool:
        """Whether parts that follow each other go together more than others do, by however little.

        Where nothing remembers, joined parts are as right, and intervals a little longer.
        """
        axis = self.scores.ndim - self.used.ndim
        arrays = (self.scores, np.nan_to_num(self.moves))
        g, x = (np.moveaxis(own, axis, 0).reshape(len(self.used), -1) for own in arrays)
        both = g @ x.T + x @ g.T
        return bool(np.mean(np.diagonal(both, 1)) > np.mean(both[np.triu_indices(len(both), 1)]))


@single_threaded_blas()
def scores_of(cumulated: Sequence[Sums], space: Space, penalty: Penalty, solution: Solution) -> Scores:
    """Return the scores of parts, from the sums of the first one, of the first two, and so on up to all.

    Where errors remember, those of two parts are more than what each has: of pairs between both. The solution is that
    of all parts under the penalty.
    """
    frame, total, axes = space.frame, cumulated[-1], len(space.shape)
    sums = [own.recentred(total.reference, frame) for own in cumulated]
    matrix = penalty.bound(total.gram, space).gram(space)
    batch = np.broadcast_shapes(solution.coefficients.shape[axes:], total.batch)
    c = np.where(solution.determined, solution.coefficients, 0.0)
    centred = total.centred(c, frame)
    weights = np.stack([np.broadcast_to(own.weight, batch) for own in sums])
    shares = np.diff(weights, axis=0, prepend=0.0) / np.where(weights[-1] > 0, weights[-1], 1.0)
    left = [own.full_moment(frame) - own.gram.matvec(centred, frame) for own in sums]
    g = np.diff(
        np.stack([np.broadcast_to(x, (*space.shape, *batch)) for x in left], axes), axis=axes, prepend=0.0
    )
    g = g - shares * np.expand_dims(matrix.matvec(c, frame), axes)
    used = np.diff([np.broadcast_to(own.count, batch) for own in sums], axis=0, prepend=0) > 0
    g = np.where(used & solution.determined, g, 0.0)
    rows = (len(used), *batch)

    def shaped(v: Array) -> Array:  # rows [m, K..] as [K.., B, b..]
        return np.moveaxis(v, 0, -1).reshape(*space.shape, *rows)

    def flat(v: Array) -> Array:
        return np.ascontiguousarray(np.moveaxis(v.reshape(*space.shape, -1), -1, 0))

    def without(v: Array) -> Array:
        x = shaped(v)
        out = total.gram.matvec(x, frame) + (1 - shares) * matrix.matvec(x, frame)
        for b in range(len(used)):
            own = np.take(x, b, axes)
            taken = sums[b].gram.matvec(own, frame) - (sums[b - 1].gram.matvec(own, frame) if b else 0.0)
            out[(slice(None),) * axes + (b,)] -= taken
        return flat(np.where(solution.determined, out, 0.0))

    def near(v: Array) -> Array:
        return flat(np.nan_to_num(solution.factorisation.solve(shaped(v))))

    moves = _solved(without, near, flat(g))
    edf = np.broadcast_to(solution.factorisation.edf(), batch)
    degrees = np.where(total.count > edf, total.count - edf, np.nan)
    variance = np.where(solution.determined, solution.rss / degrees, np.nan)
    x = np.where(solution.determined, shaped(moves), np.nan)
    return Scores(g, x, used, edf, variance)


def _solved(without: LinearMap, near: LinearMap, g: Array) -> Array:
    """Return x, [m, K..], of `without` x = g; of few coefficients NaN where the matrix is singular.

    Scores lie in the range of a singular matrix, so that iterations would not find out. `near` is the inverse of a
    matrix that is no smaller: eigenvalues of both together are 1 less the leverages of the part. Few coefficients take
    no more products than iterations do.
    """
    size = math.prod(g.shape[1:])
    if size > FEW or g.size * size > FEW * AT_ONCE:
        return conjugate_gradients(without, near, g, TOLERANCE)[0]
    matrices = np.empty((len(g), size, size))
    for k in range(size):
        unit = np.zeros((len(g), size))
        unit[:, k] = 1.0
        matrices[:, :, k] = near(without(unit.reshape(g.shape))).reshape(len(g), size)
    is_known = np.any(matrices, axis=2)
    matrices += np.where(is_known, ROUNDING, 1.0)[:, :, None] * np.eye(size)  # so that all have an inverse
    inverse = np.linalg.inv(matrices)
    x = (inverse @ near(g).reshape(len(g), size, 1)).reshape(g.shape)
    x[np.abs(np.trace(inverse, axis1=1, axis2=2)) > 1 / TINY] = np.nan
    return x
