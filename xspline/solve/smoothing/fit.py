"""One penalised fit and its derivatives by ρ_j = log λ_j, from the sums; every criterion is made of these.

With A = G + Λ, c = A⁻¹h and x_j = A⁻¹λ_jS_jc = −∂c/∂ρ_j,

    t_j   = tr(A⁻¹λ_jS_j)               exact, by the factorisation
    q_j   = cᵀλ_jS_jc                   exact
    u_ij  = tr(A⁻¹λ_iS_iA⁻¹λ_jS_j)      = E (λ_iS_ix)ᵀA⁻¹(λ_jS_jx) for x with E xxᵀ = A⁻¹

u is exact where x may run over a square root of A⁻¹, column by column; beyond, x are a few draws of a fixed seed
(Hutchinson 1990).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import cast

import numpy as np

from xspline.solve.costs import Resources
from xspline.solve.direct.cholesky import Array
from xspline.solve.families.base import Family
from xspline.solve.families.determinant import Factorised, products
from xspline.solve.krylov import PROBE_TOLERANCE
from xspline.solve.solution import factorise
from xspline.solve.system import Factorisation
from xspline.spaces import Space
from xspline.sums import Sums

# The least residual sum of squares: numbers from rounding errors on may be divided by it.
SMALLEST = float(np.finfo(float).tiny / np.finfo(float).eps)
ROUNDING = 2e-15  # a residual sum of squares loses that share of the power of the data


@dataclass(frozen=True, eq=False)
class Model:
    """Sums and the penalties whose strengths are to be chosen."""

    space: Space
    sums: Sums  # as `centred` makes them
    family: Family  # penalties to choose from
    solver: str | None = None
    # cores, memory and GPU of its solves, see `solve`
    resources: Resources = field(default_factory=Resources.here)
    as_one: float = 1.0  # how many observations vary as one, as "reml" takes it

    @property
    def observations(self) -> int:
        """The number of observations, the largest of any batch member."""
        return int(self.sums.count.max(initial=0))


def centred(sums: Sums, space: Space) -> Sums:
    """Return the sums about the mean of each batch member, where the space has the constant.

    Rounding errors of s − 2hᵀc + cᵀGc are relative to s, which is least about the mean.
    """
    if space.has_constant:
        along = functools.reduce(np.multiply, np.ix_(*space.frame.constant))
        total = np.tensordot(along, sums.full_moment(space.frame), axes=along.ndim)
        observed = sums.weight > 0
        mean = np.where(observed, total / np.where(observed, sums.weight, 1.0), 0.0)
        moved = sums.recentred(sums.reference + mean, space.frame)
        # Of members whose values are all one, as over land, rounding errors are left, of either sign.
        varies = moved.power > 8 * ROUNDING * sums.power
        sums = replace(moved, power=moved.power * varies, moment=moved.moment * varies)
    return replace(sums, gram=sums.gram.with_batch_axes(sums.batch_ndim))


class PenalisedFit(Factorised):
    """The penalised fit of a model at one ρ, and its derivatives by the logarithms of the terms' strengths.

    ρ is [J]; for `steering` see `Factorised`. `exact_solver` tells whether only a solver that knows the
    inverse will do, and `solving` is the factorisation of G + Λ that c is solved with, whatever traces and determinants
    are taken of. `c`, [K.., b..], has the coefficients of the field minus the reference; NaN for members that are not
    determined.
    """

    exact_solver = True
    tolerance: float | None = None  # relative residual of c, where that is iterated

    def __init__(self, model: Model, rho: Array, steering: bool = False) -> None:
        self.model = model
        self.rho = rho
        frame = model.space.frame
        penalty = model.family.penalty(rho).gram(model.space)
        self.solving = factorise(
            model.sums.gram,
            penalty,
            model.space,
            model.solver,
            observations=model.observations,
            exact=self.exact_solver,
            resources=model.resources,
        )
        super().__init__(self.traced, penalty, frame, model.family.wiggly, model.resources, steering)
        self.c = self.solving.solve(model.sums.full_moment(frame), self.tolerance)

    @property
    def traced(self) -> Factorisation:
        """The factorisation that traces and determinants are taken of."""
        return self.solving

    @property
    def floor(self) -> Array:
        """Rounding errors of the residual sum of squares, [b..]."""
        sums = self.model.sums
        absolute = sums.reference**2 * sums.weight * np.finfo(np.float64).eps ** 2
        return np.asarray(4 * ROUNDING * sums.power + absolute + SMALLEST)

    @cached_property
    def rss(self) -> Array:
        """The weighted residual sum of squares, [b..], which is not below its rounding errors."""
        return np.maximum(self.model.sums.rss(self.c, self.frame), 0.0) + self.floor

    @cached_property
    def penalty_times_c(self) -> Array:
        """λ_jS_jc, [P, T, b..]."""
        return self.apply_penalties(self.c)

    @cached_property
    def coefficient_derivatives(self) -> Array:
        """x_j = A⁻¹λ_jS_jc, the derivatives of c by −ρ_j, [P, T, b..]."""
        return self.apply_inverse(self.penalty_times_c)

    @cached_property
    def q(self) -> Array:
        """cᵀλ_jS_jc, [T, b..]."""
        return np.asarray(np.einsum("p...,pj...->j...", self.flat(self.c), self.penalty_times_c))

    def loss(self, other: Sums, residual: Array | None = None) -> tuple[Array, Array]:
        """Return the derivatives of s − 2hᵀc + cᵀGc of sums with the reference of the fit: [T, b..] and [T, T, b..].

        Gc − h may be given, [P, b..].
        """
        g = other.gram.with_batch_axes(other.batch_ndim)
        x = self.coefficient_derivatives
        if residual is None:
            residual = self.flat(g.matvec(self.c, self.frame) - other.full_moment(self.frame))
        pull = self.apply_penalties(self.shaped(self.apply_inverse(residual)))
        along = np.einsum("p...,pj...->j...", residual, x)
        across = products(pull, x)
        curved = self.flat(g.matvec(self.shaped(x), self.frame))
        return -2 * along, 2 * (products(x, curved) + across + across.swapaxes(0, 1) - diagonal(along))


class NearFit(PenalisedFit):
    """The penalised fit where G is nearly a product: c of G itself, by iterations, log|A| and traces of the product.

    With E the product of the marginals of G, log|E + Λ| stands for log|G + Λ|, and so for their derivatives. Traces are
    off by the second order of what G and E differ by where values are missing at random; where whole blocks are, by
    what is not known there.
    """

    exact_solver = False
    tolerance = PROBE_TOLERANCE

    @property
    def traced(self) -> Factorisation:
        return cast("Factorisation", self.solving.near)


def diagonal(v: Array) -> Array:
    """Put [T, b..] on the diagonal of [T, T, b..]."""
    return np.eye(len(v)).reshape(len(v), len(v), *(1 for _ in v.shape[1:])) * v
