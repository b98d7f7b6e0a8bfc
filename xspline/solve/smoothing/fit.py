"""One penalised fit and its derivatives by ρ = log λ, from the sums: what every score of smoothing is made of.

With A = G + Λ, c = A⁻¹h and x_j = A⁻¹λ_jS_jc = −∂c/∂ρ_j,

    t_j   = tr(A⁻¹λ_jS_j)               exact, by the factorisation
    q_j   = cᵀλ_jS_jc                   exact
    u_ij  = tr(A⁻¹λ_iS_iA⁻¹λ_jS_j)      = E (λ_iS_ix)ᵀA⁻¹(λ_jS_jx) for x with E xxᵀ = A⁻¹

u is exact where x may run over a square root of A⁻¹, column by column; beyond, x are a few draws of a fixed seed
(Hutchinson 1990).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from xspline.solve.direct.cholesky import Array
from xspline.solve.parallel import Resources
from xspline.solve.penalty import Roughness
from xspline.solve.smoothing.determinant import Spectrum, spectrum
from xspline.solve.solution import factorise
from xspline.spaces import Space
from xspline.sums import Gram, Sums

SLAB = 2**23  # numbers of one array of draws
SMALLEST = 1e-290  # a residual sum of squares that may be divided by
ROUNDING = 2e-15  # of the power of the data: what a residual sum of squares loses


@dataclass(frozen=True, eq=False)
class Model:
    """Sums and the penalties whose strengths are to be chosen.

    Parameters
    ----------
    space : Space
    sums : Sums
        As `centred` makes them.
    names : tuple of str
        Coordinates that are smoothed.
    order : int
        Of the derivatives that measure roughness.
    solver : str, optional
    resources : Resources, optional
        Cores, memory and GPU of its solves, see `solve`.
    """

    space: Space
    sums: Sums
    names: tuple[str, ...]
    order: int
    solver: str | None = None
    resources: Resources = field(default_factory=Resources.here)

    @property
    def observations(self) -> int:
        """Their number, the largest of any batch member."""
        return int(self.sums.count.max(initial=0))

    @cached_property
    def spectrum(self) -> Spectrum:
        """Of the penalties."""
        return spectrum(self.space, self.names, self.order)

    def penalty(self, rho: Array) -> Roughness:
        """Σ_j exp(ρ_j) S_j."""
        strengths = (float(x) for x in np.exp(rho))
        return Roughness(dict(zip(self.names, strengths, strict=True)), self.order)


def centred(sums: Sums, space: Space) -> Sums:
    """Sums about the mean of each batch member, where the space has the constant.

    Rounding errors of s − 2hᵀc + cᵀGc are relative to s, which is least about the mean.
    """
    if space.has_constant:
        along = functools.reduce(np.multiply, np.ix_(*space.frame.constant))
        total = np.tensordot(along, sums.full_moment(space.frame), axes=along.ndim)
        observed = sums.weight > 0
        mean = np.where(observed, total / np.where(observed, sums.weight, 1.0), 0.0)
        sums = sums.recentred(sums.reference + mean, space.frame)
    return replace(sums, gram=sums.gram.with_batch_axes(sums.batch_ndim))


class PenalisedFit:
    """The penalised fit of a model at one ρ, and its derivatives.

    Parameters
    ----------
    model : Model
    rho : ndarray, [J]
    exact : int
        P² times the number of systems up to which `hessian_traces` are exact; it takes P solves a system.
    steering : bool
        Whether nothing but the length of a search hangs on `hessian_traces`: fewer draws do in large problems.

    Attributes
    ----------
    exact_solver : bool
        Whether only a solver that knows the inverse will do.
    factorisation : Factorisation
    c : ndarray, [K.., b..]
        Coefficients of the field minus the reference; NaN for members that are not determined.
    """

    exact_solver = True

    def __init__(self, model: Model, rho: Array, exact: int = 0, steering: bool = False) -> None:
        self.size, self.limit, self.steering = math.prod(model.space.shape), exact, steering
        self.model, self.frame, self.count = model, model.space.frame, len(model.space.shape)
        self.rho = rho
        self.penalty = model.penalty(rho).gram(model.space)
        self.terms = [Gram((term,)) for term in self.penalty.terms]
        self.factorisation = factorise(
            model.sums.gram,
            self.penalty,
            model.space,
            model.solver,
            observations=model.observations,
            exact=self.exact_solver,
            resources=model.resources,
        )
        self.c = self.factorisation.solve(model.sums.full_moment(self.frame))

    @cached_property
    def rss(self) -> Array:
        """Weighted residual sum of squares, [b..]; not below its rounding errors."""
        sums = self.model.sums
        absolute = sums.reference**2 * sums.weight * np.finfo(np.float64).eps ** 2
        floor = 4 * ROUNDING * sums.power + absolute + SMALLEST
        return np.maximum(sums.rss(self.c, self.frame), 0.0) + floor

    @cached_property
    def penalty_times_c(self) -> Array:
        """λ_jS_jc, [P, J, b..]."""
        return self.apply_penalties(self.c)

    @cached_property
    def coefficient_derivatives(self) -> Array:
        """x_j = A⁻¹λ_jS_jc, the derivatives of c by −ρ_j, [P, J, b..]."""
        return self.apply_inverse(self.penalty_times_c)

    @cached_property
    def q(self) -> Array:
        """cᵀλ_jS_jc, [J, b..]."""
        return np.asarray(np.einsum("p...,pj...->j...", self.flat(self.c), self.penalty_times_c))

    @cached_property
    def traces(self) -> Array:
        """t_j, [J, b..]."""
        return self.factorisation.traces(self.terms)

    def apply_penalties(self, v: Array) -> Array:
        """λ_jS_jv of vectors [K.., rest..]: [P, J, rest..].

        The part of v that a penalty ignores is taken out first: it is the larger part, and λ would blow up its rounding
        errors.
        """
        axes = self.model.spectrum.axes.items()
        wiggly = (spectrum.wiggly(v, axis) for axis, spectrum in axes)
        images = [term.matvec(part, self.frame) for term, part in zip(self.terms, wiggly, strict=True)]
        return np.stack([self.flat(image) for image in images], axis=1)

    def apply_inverse(self, v: Array) -> Array:
        """A⁻¹v of vectors [P, rest.., b..]."""
        return self.flat(self.factorisation.solve(self.shaped(v)))

    def flat(self, v: Array) -> Array:
        """[K.., rest..] to [P, rest..]."""
        return v.reshape(self.size, *v.shape[self.count :])

    def shaped(self, v: Array) -> Array:
        """[P, rest..] to [K.., rest..]."""
        return v.reshape(*self.frame.sizes, *v.shape[1:])

    def loss(self, other: Sums, residual: Array | None = None) -> tuple[Array, Array]:
        """Derivatives of s − 2hᵀc + cᵀGc of sums with the reference of the fit: [J, b..] and [J, J, b..].

        Gc − h may be given, [P, b..].
        """
        g, x = other.gram.with_batch_axes(other.batch_ndim), self.coefficient_derivatives
        if residual is None:
            residual = self.flat(g.matvec(self.c, self.frame) - other.full_moment(self.frame))
        pull = self.apply_penalties(self.shaped(self.apply_inverse(residual)))
        along, across = np.einsum("p...,pj...->j...", residual, x), products(pull, x)
        curved = self.flat(g.matvec(self.shaped(x), self.frame))
        return -2 * along, 2 * (products(x, curved) + across + across.swapaxes(0, 1) - diagonal(along))

    @cached_property
    def hessian_traces(self) -> tuple[Array, Array, Array]:
        """t_j, u_ij, and Σ_k tr(A⁻¹λ_iS_iA⁻¹λ_kS_kA⁻¹λ_jS_j): [J, b..] and twice [J, J, b..].

        All from the same x: where these are draws, what is left of t − u has no more error than its size allows.
        """
        t = u = v = np.zeros(())
        # Columns z, [K.., m, b..], of which the sum of zzᵀ is the identity, or is that on average.
        batch, size = self.factorisation.determined.shape, self.size
        systems = math.prod(batch)
        count = (
            size if self.exact else max(2, self.model.resources.costs.draws(size, self.steering) // systems)
        )
        step, rng = max(1, SLAB // (size * systems * len(self.terms))), np.random.default_rng(0)
        for start in range(0, count, step):
            m = min(step, count - start)
            if self.exact:
                z = np.eye(size, m, -start).reshape(size, m, *(1 for _ in batch))
            else:
                z = rng.choice([-1.0, 1.0], (size, m, *batch)) / math.sqrt(count)
            x = self.factorisation.apply_inverse_sqrt(self.shaped(z))
            weighted = self.apply_penalties(x)
            solved = self.apply_inverse(weighted)
            twice = self.apply_penalties(self.shaped(solved)).sum(axis=1)
            t = t + np.einsum("pm...,pjm...->j...", self.flat(x), weighted)
            u = u + products(weighted, solved).sum(axis=2)
            v = v + products(solved, twice).sum(axis=2)
        return t, u, v

    @property
    def exact(self) -> bool:
        """Whether `hessian_traces` are exact."""
        return self.size**2 * self.factorisation.determined.size <= self.limit


def products(a: Array, b: Array) -> Array:
    """a_iᵀb_j of vectors [P, J, rest..]: [J, J, rest..]."""
    return np.asarray(np.einsum("pi...,pj...->ij...", a, b))


def diagonal(v: Array) -> Array:
    """[J, b..] to [J, J, b..]."""
    return np.eye(len(v)).reshape(len(v), len(v), *(1 for _ in v.shape[1:])) * v
