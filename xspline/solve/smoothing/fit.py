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
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from xspline.solve.direct.cholesky import Array
from xspline.solve.parallel import Resources
from xspline.solve.penalty import Roughness
from xspline.solve.smoothing.determinant import Spectrum, spectrum
from xspline.solve.solution import factorise
from xspline.solve.system import Factorisation
from xspline.sums import Gram, Sums

if TYPE_CHECKING:
    from xspline.spaces import Space

DRAWS = 32  # over all systems
SLAB = 2**23  # numbers of one array of draws
SMALLEST = 1e-290  # a residual sum of squares that may be divided by
ROUNDING = 2e-15  # of the power of the data: what a residual sum of squares loses


@dataclass(frozen=True, eq=False)
class Model:
    """Sums and the penalties whose strengths are looked for.

    Parameters
    ----------
    space : Space
    sums : Sums
        About the mean of each member, where the space has the constant.
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
    resources: Resources | None = None

    @staticmethod
    def of(
        sums: Sums,
        space: Space,
        names: tuple[str, ...],
        order: int,
        solver: str | None,
        resources: Resources | None = None,
    ) -> Model:
        """Of sums about any reference."""
        sums = _about_mean(sums, space)
        sums = replace(sums, gram=sums.gram.with_batch_axes(sums.batch_ndim))
        return Model(space, sums, names, order, solver, resources)

    @cached_property
    def spectrum(self) -> Spectrum:
        """Of the penalties."""
        return spectrum(self.space, self.names, self.order)

    def penalty(self, rho: Array) -> Roughness:
        """Σ_j exp(ρ_j) S_j."""
        strengths = (float(x) for x in np.exp(rho))
        return Roughness(dict(zip(self.names, strengths, strict=True)), self.order)

    def about(self, sums: Sums) -> Model:
        """The same penalties with other sums, about any reference."""
        return Model.of(sums, self.space, self.names, self.order, self.solver, self.resources)


def _about_mean(sums: Sums, space: Space) -> Sums:
    """Rounding errors of s − 2hᵀc + cᵀGc are relative to s, which is least about the mean."""
    if not space.has_constant:
        return sums
    along = functools.reduce(np.multiply, np.ix_(*space.frame.constant))
    total = np.tensordot(along, sums.full_moment(space.frame), axes=along.ndim)
    seen = sums.weight > 0
    return sums.recentred(
        sums.reference + np.where(seen, total / np.where(seen, sums.weight, 1.0), 0.0), space.frame
    )


# --- one penalised fit


class Fit:
    """The penalised fit of a model at one ρ, and its derivatives.

    Parameters
    ----------
    model : Model
    rho : ndarray, [J]
    exact : int
        P² times the number of systems up to which `bends` are exact; it takes P solves a system.

    Attributes
    ----------
    factorisation : Factorisation
    c : ndarray, [K.., b..]
        Coefficients of the field minus the reference; NaN for members that are not determined.
    """

    def __init__(self, model: Model, rho: Array, exact: int = 0) -> None:
        self.size, self.limit = math.prod(model.space.shape), exact
        self.model, self.frame, self.count = model, model.space.frame, len(model.space.shape)
        self.rho = rho
        self.penalty = model.penalty(rho).gram(model.space)
        self.terms = [Gram((term,)) for term in self.penalty.terms]
        self.factorisation = self.factorised()
        self.c = self.factorisation.solve(model.sums.full_moment(self.frame))

    def factorised(self) -> Factorisation:
        """G + Λ, by a solver that knows its inverse."""
        model, most = self.model, int(self.model.sums.count.max(initial=0))
        return factorise(
            model.sums.gram,
            self.penalty,
            model.space,
            model.solver,
            observations=most,
            exact=True,
            resources=model.resources,
        )

    @cached_property
    def rss(self) -> Array:
        """Weighted residual sum of squares, [b..]; not below its rounding errors."""
        sums = self.model.sums
        absolute = sums.reference**2 * sums.weight * np.finfo(np.float64).eps ** 2
        floor = 4 * ROUNDING * sums.power + absolute + SMALLEST
        return np.maximum(sums.rss(self.c, self.frame), 0.0) + floor

    @cached_property
    def forces(self) -> Array:
        """λ_jS_jc, [P, J, b..]."""
        return self.pushed(self.c)

    @cached_property
    def slopes(self) -> Array:
        """x_j = A⁻¹λ_jS_jc, [P, J, b..]."""
        return self.solved(self.forces)

    @cached_property
    def q(self) -> Array:
        """cᵀλ_jS_jc, [J, b..]."""
        return np.asarray(np.einsum("p...,pj...->j...", flat(self.c, self.count), self.forces))

    @cached_property
    def w(self) -> Array:
        """(λ_iS_ic)ᵀA⁻¹(λ_jS_jc), [J, J, b..]."""
        return products(self.forces, self.slopes)

    @cached_property
    def traces(self) -> Array:
        """t_j, [J, b..]."""
        return self.factorisation.traces(self.terms)

    def pushed(self, v: Array) -> Array:
        """λ_jS_jv of vectors [K.., rest..]: [P, J, rest..].

        The part of v that a penalty ignores is taken out first: it is the larger part, and λ would blow up its rounding
        errors.
        """
        axes = self.model.spectrum.axes.items()
        wiggly = (spectrum.wiggly(v, axis) for axis, spectrum in axes)
        each = [term.matvec(part, self.frame) for term, part in zip(self.terms, wiggly, strict=True)]
        return np.stack([flat(force, self.count) for force in each], axis=1)

    def solved(self, v: Array) -> Array:
        """A⁻¹v of vectors [P, rest.., b..]."""
        return flat(self.factorisation.solve(v.reshape(*self.frame.sizes, *v.shape[1:])), self.count)

    def loss(self, other: Sums, residual: Array | None = None) -> tuple[Array, Array]:
        """Derivatives of s − 2hᵀc + cᵀGc of sums with the reference of the fit: [J, b..] and [J, J, b..].

        Gc − h may be given, [P, b..].
        """
        g, x = other.gram.with_batch_axes(other.batch_ndim), self.slopes
        if residual is None:
            residual = flat(g.matvec(self.c, self.frame) - other.full_moment(self.frame), self.count)
        pull = self.pushed(self.solved(residual).reshape(self.c.shape))
        along, across = np.einsum("p...,pj...->j...", residual, x), products(pull, x)
        curved = flat(g.matvec(x.reshape(*self.frame.sizes, *x.shape[1:]), self.frame), self.count)
        return -2 * along, 2 * (products(x, curved) + across + across.swapaxes(0, 1) - diagonal(along))

    @cached_property
    def bends(self) -> tuple[Array, Array, Array]:
        """t_j, u_ij, and Σ_k tr(A⁻¹λ_iS_iA⁻¹λ_kS_kA⁻¹λ_jS_j): [J, b..] and twice [J, J, b..].

        All from the same x: where these are draws, what is left of t − u has no more error than its size allows.
        """
        t = u = v = np.zeros(())
        for draws in self._draws():
            x = self.factorisation.apply_inverse_sqrt(draws)
            forces = self.pushed(x)
            slopes = self.solved(forces)
            stiff = self.pushed(slopes.reshape(*self.frame.sizes, *slopes.shape[1:])).sum(axis=1)
            t = t + np.einsum("pm...,pjm...->j...", flat(x, self.count), forces)
            u = u + products(forces, slopes).sum(axis=2)
            v = v + products(slopes, stiff).sum(axis=2)
        return t, u, v

    @property
    def exact(self) -> bool:
        """Whether `bends` are exact."""
        return self.size**2 * self.factorisation.determined.size <= self.limit

    def _draws(self) -> Iterator[Array]:
        """Columns z, [K.., m, b..], of which the sum of zzᵀ is the identity, or is that on average."""
        batch, size = self.factorisation.determined.shape, self.size
        systems = math.prod(batch)
        count = size if self.exact else max(2, DRAWS // systems)
        step, rng = max(1, SLAB // (size * systems * len(self.terms))), np.random.default_rng(0)
        for start in range(0, count, step):
            m = min(step, count - start)
            if self.exact:
                z = np.eye(size, m, -start).reshape(size, m, *(1 for _ in batch))
            else:
                z = rng.choice([-1.0, 1.0], (size, m, *batch)) / math.sqrt(count)
            yield z.reshape(*self.frame.sizes, *z.shape[1:])


def flat(v: Array, count: int) -> Array:
    """[K.., rest..] to [P, rest..]."""
    return v.reshape(math.prod(v.shape[:count]), *v.shape[count:])


def products(a: Array, b: Array) -> Array:
    """a_iᵀb_j of vectors [P, J, rest..]: [J, J, rest..]."""
    return np.asarray(np.einsum("pi...,pj...->ij...", a, b))


def diagonal(v: Array) -> Array:
    """[J, b..] to [J, J, b..]."""
    return np.eye(len(v)).reshape(len(v), len(v), *(1 for _ in v.shape[1:])) * v
