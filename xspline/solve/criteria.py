"""What the strengths of smoothing are chosen by: scores of ρ = log λ with their gradients and Hessians.

All from the sums: with A = G + Λ, c = A⁻¹h and x_j = A⁻¹λ_jS_jc = −∂c/∂ρ_j,

    t_j   = tr(A⁻¹λ_jS_j)               exact, by the factorisation
    q_j   = cᵀλ_jS_jc                   exact
    u_ij  = tr(A⁻¹λ_iS_iA⁻¹λ_jS_j)      = E (λ_iS_ix)ᵀA⁻¹(λ_jS_jx) for x with E xxᵀ = A⁻¹

u is exact where x may run over a square root of A⁻¹, column by column; else x are a few draws of a fixed seed (Hutchinson
1990). REML needs u for its Hessian only; the gradient of GCV needs it too.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xspline.sums import Gram, Sums

from .cholesky import Array
from .determinant import Spectrum, spectrum
from .errors import SingularSystemError
from .penalty import Roughness
from .solution import Factorisation, factorise

if TYPE_CHECKING:
    from xspline.spaces import Space

Members = NDArray[np.bool_]
EXACT = 1500**2  # P² times the number of systems, up to which u is exact
DRAWS = 32  # beyond, over all systems
SLAB = 2**23  # numbers of one array of draws
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
    """

    space: Space
    sums: Sums
    names: tuple[str, ...]
    order: int
    solver: str | None = None

    @staticmethod
    def of(sums: Sums, space: Space, names: tuple[str, ...], order: int, solver: str | None) -> Model:
        """Of sums about any reference."""
        sums = _about_mean(sums, space)
        sums = replace(sums, gram=sums.gram.with_batch_axes(sums.batch_ndim))
        return Model(space, sums, names, order, solver)

    @cached_property
    def spectrum(self) -> Spectrum:
        """Of the penalties."""
        return spectrum(self.space, self.names, self.order)

    def penalty(self, rho: Array) -> Roughness:
        """Σ_j exp(ρ_j) S_j."""
        strengths = (float(x) for x in np.exp(rho))
        return Roughness(dict(zip(self.names, strengths, strict=True)), self.order)

    def about(self, sums: Sums) -> Model:
        """The same penalties with other sums."""
        return replace(self, sums=sums)


def _about_mean(sums: Sums, space: Space) -> Sums:
    """Rounding errors of s − 2hᵀc + cᵀGc are relative to s, which is least about the mean."""
    if not space.has_constant:
        return sums
    along = functools.reduce(np.multiply, np.ix_(*space.frame.constant))
    total = np.tensordot(along, sums.full_moment(space.frame), axes=along.ndim)
    seen = sums.weight > 0
    return sums.recentred(sums.reference + np.where(seen, total / np.where(seen, sums.weight, 1.0), 0.0), space.frame)


# --- one penalised fit


class Fit:
    """The penalised fit of a model at one ρ, and its derivatives.

    Attributes
    ----------
    factorisation : Factorisation
    c : ndarray, [K.., b..]
        Coefficients of the field minus the reference; NaN for members that are not determined.
    """

    def __init__(self, model: Model, rho: Array) -> None:
        self.model, self.frame, self.count = model, model.space.frame, len(model.space.shape)
        penalty = model.penalty(rho).gram(model.space)
        self.terms = [Gram((term,)) for term in penalty.terms]
        most = int(model.sums.count.max(initial=0))
        self.factorisation: Factorisation = factorise(
            model.sums.gram, penalty, model.space, model.solver, observations=most
        )
        self.c = self.factorisation.solve(model.sums.full_moment(self.frame))

    @cached_property
    def rss(self) -> Array:
        """Weighted residual sum of squares, [b..]; not below its rounding errors."""
        sums = self.model.sums
        absolute = sums.reference**2 * sums.weight * np.finfo(np.float64).eps ** 2
        floor = 4 * ROUNDING * sums.power + absolute + np.finfo(np.float64).tiny
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
        return np.asarray(np.einsum("p...,pj...->j...", _flat(self.c, self.count), self.forces))

    @cached_property
    def w(self) -> Array:
        """(λ_iS_ic)ᵀA⁻¹(λ_jS_jc), [J, J, b..]."""
        return _products(self.forces, self.slopes)

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
        return np.stack([_flat(force, self.count) for force in each], axis=1)

    def solved(self, v: Array) -> Array:
        """A⁻¹v of vectors [P, rest.., b..]."""
        return _flat(self.factorisation.solve(v.reshape(*self.frame.sizes, *v.shape[1:])), self.count)

    def loss(self, other: Sums, residual: Array | None = None) -> tuple[Array, Array]:
        """Derivatives of s − 2hᵀc + cᵀGc of sums with the reference of the fit: [J, b..] and [J, J, b..].

        Gc − h may be given, [P, b..].
        """
        g, x = other.gram.with_batch_axes(other.batch_ndim), self.slopes
        if residual is None:
            residual = _flat(g.matvec(self.c, self.frame) - other.full_moment(self.frame), self.count)
        pull = self.pushed(self.solved(residual).reshape(self.c.shape))
        along, across = np.einsum("p...,pj...->j...", residual, x), _products(pull, x)
        curved = _flat(g.matvec(x.reshape(*self.frame.sizes, *x.shape[1:]), self.frame), self.count)
        return -2 * along, 2 * (_products(x, curved) + across + across.swapaxes(0, 1) - _diagonal(along))

    @cached_property
    def bends(self) -> tuple[Array, Array]:
        """u_ij, and Σ_k tr(A⁻¹λ_iS_iA⁻¹λ_kS_kA⁻¹λ_jS_j), [J, J, b..]."""
        u = v = np.zeros(())
        for draws in self._draws():
            x = self.factorisation.half(draws)
            forces = self.pushed(x)
            slopes = self.solved(forces)
            stiff = self.pushed(slopes.reshape(*self.frame.sizes, *slopes.shape[1:])).sum(axis=1)
            u = u + _products(forces, slopes).sum(axis=2)
            v = v + _products(slopes, stiff).sum(axis=2)
        return u, v

    def _draws(self) -> Iterator[Array]:
        """Columns z, [K.., m, b..], of which the sum of zzᵀ is the identity, or is that on average."""
        batch, size = self.factorisation.determined.shape, math.prod(self.frame.sizes)
        systems = math.prod(batch)
        exact = size**2 * systems <= EXACT
        count = size if exact else max(2, DRAWS // systems)
        step, rng = max(1, SLAB // (size * systems * len(self.terms))), np.random.default_rng(0)
        for start in range(0, count, step):
            m = min(step, count - start)
            if exact:
                z = np.eye(size, m, -start).reshape(size, m, *(1 for _ in batch))
            else:
                z = rng.choice([-1.0, 1.0], (size, m, *batch)) / math.sqrt(count)
            yield z.reshape(*self.frame.sizes, *z.shape[1:])


def _flat(v: Array, count: int) -> Array:
    """[K.., rest..] to [P, rest..]."""
    return v.reshape(math.prod(v.shape[:count]), *v.shape[count:])


def _products(a: Array, b: Array) -> Array:
    """a_iᵀb_j of vectors [P, J, rest..]: [J, J, rest..]."""
    return np.asarray(np.einsum("pi...,pj...->ij...", a, b))


def _diagonal(v: Array) -> Array:
    """[J, b..] to [J, J, b..]."""
    return np.eye(len(v)).reshape(len(v), len(v), *(1 for _ in v.shape[1:])) * v


# --- scores


class Score:
    """A score at one ρ. A batch shares ρ and its scores add; members that are not determined are left out.

    Parameters
    ----------
    model : Model
    rho : ndarray, [J]
    members : ndarray of bool, [b..], optional
        Members that count; by default those that are determined and have more observations than the null space of the
        penalty has dimensions.

    Raises
    ------
    SingularSystemError
        Nothing is determined, or a member that counts is not.
    """

    factorisations = 1

    def __init__(self, model: Model, rho: Array, members: Members | None = None) -> None:
        self.model, self.rho, self.fit = model, rho, Fit(model, rho)
        determined = np.broadcast_to(self.fit.factorisation.determined, self.batch)
        enough = np.broadcast_to(model.sums.count, self.batch) > model.spectrum.null
        self.members = counted(determined & enough, members)

    @property
    def batch(self) -> tuple[int, ...]:
        """Extents of the batch axes."""
        sums = self.model.sums
        return np.broadcast_shapes(sums.batch, sums.gram.batch)

    @property
    def factorisation(self) -> Factorisation:
        """Of G + Λ."""
        return self.fit.factorisation

    def total(self, x: Array) -> Array:
        """Sum over the members that count, [.., b..] to [..]."""
        return total(x, self.members)

    @cached_property
    def n(self) -> Array:
        """Number of observations, [b..]."""
        return np.asarray(self.model.sums.count, dtype=np.float64)


def total(x: Array, members: Members) -> Array:
    """Sum over the members that count, [.., b..] to [..]; batch extents of 1 are shared."""
    full = np.broadcast_to(x, (*x.shape[: x.ndim - members.ndim], *members.shape))
    return np.asarray(full[..., members].sum(axis=-1))


def counted(found: Members, members: Members | None) -> Members:
    """The members that count: those found now, or those that counted before if all of them are found."""
    if members is None:
        return found
    if (members & ~found).any():
        raise SingularSystemError("a member that was determined is not at these strengths")
    return members


class Reml(Score):
    """Restricted likelihood with the variance profiled out, as its negative logarithm (Wood 2011).

    With D = rss + cᵀΛc and M the dimension of the null space of Λ,

        V = (n − M)/2 (1 + log(2π D / (n − M))) + ½ log|A| − ½ log|Λ|₊

    up to −½ Σ log w over the observations.
    """

    @cached_property
    def value(self) -> float:
        """V."""
        degrees, fit = self._degrees, self.fit
        plus = self.model.spectrum.at(self.rho)[0]
        profile = degrees * (1 + np.log(2 * np.pi * self._deviance / degrees))
        return float(self.total(profile + fit.factorisation.logdet() - plus)) / 2

    @cached_property
    def gradient(self) -> Array:
        """∂V/∂ρ, exact."""
        rank = self.model.spectrum.at(self.rho)[1]
        shrunk = self._degrees / self._deviance * self.fit.q + self.fit.traces
        return (self.total(shrunk) - self._members * rank) / 2

    @cached_property
    def hessian(self) -> Array:
        """∂²V/∂ρ²; exact where u is."""
        fit, deviance = self.fit, self._deviance
        curved = (_diagonal(fit.q) - 2 * fit.w) / deviance - fit.q[:, None] * fit.q / deviance**2
        bent = self._degrees * curved + _diagonal(fit.traces) - fit.bends[0]
        return (self.total(bent) - self._members * self.model.spectrum.at(self.rho)[2]) / 2

    @cached_property
    def noise(self) -> float:
        """Rounding errors of V: those of D."""
        return float(self.total(self._degrees * ROUNDING * self.model.sums.power / self._deviance)) / 2

    @property
    def score(self) -> tuple[float, Array]:
        """V and its gradient."""
        return self.value, self.gradient

    @property
    def _members(self) -> int:
        return int(self.members.sum())

    @cached_property
    def _degrees(self) -> Array:
        """n − M."""
        return np.maximum(self.n - self.model.spectrum.null, 1.0)

    @cached_property
    def _deviance(self) -> Array:
        return self.fit.rss + self.fit.q.sum(axis=0)


class Logarithm:
    """A score v > 0 by (n/2) log v, which has the units of a log-likelihood: what is flat for one score is for all."""

    observations: float
    derivatives: tuple[float, Array, Array]

    rounding: float  # of v

    @property
    def value(self) -> float:
        return self.observations / 2 * math.log(self.derivatives[0])

    @property
    def noise(self) -> float:
        return self.observations / 2 * self.rounding / self.derivatives[0]

    @property
    def gradient(self) -> Array:
        v, first, _ = self.derivatives
        return self.observations / 2 * first / v

    @property
    def hessian(self) -> Array:
        v, first, second = self.derivatives
        return self.observations / 2 * (second / v - np.outer(first, first) / v**2)

    @property
    def score(self) -> tuple[float, Array]:
        """v and its gradient."""
        return self.derivatives[:2]


class Gcv(Logarithm, Score):
    """Generalised cross-validation n rss / (n − edf)² (Craven and Wahba 1979)."""

    @cached_property
    def value(self) -> float:
        """(n/2) log V; needs no derivatives."""
        return self.observations / 2 * math.log(self.total(self.n * self.fit.rss / self._left**2))

    @cached_property
    def derivatives(self) -> tuple[float, Array, Array]:
        """V, ∂V/∂ρ and ∂²V/∂ρ²."""
        fit, n, left = self.fit, self.n, self._left
        first, second = fit.loss(self.model.sums, -fit.forces.sum(axis=1))  # h − Gc = Λc
        edf, edf2 = self._edf
        value = n * fit.rss / left**2
        slope = n * (first + 2 * fit.rss * edf / left) / left**2
        cross = first[:, None] * edf
        bent = second + 2 * (cross + cross.swapaxes(0, 1) + fit.rss * edf2) / left
        bent = n * (bent + 6 * fit.rss * edf[:, None] * edf / left**2) / left**2
        return float(self.total(value)), self.total(slope), self.total(bent)

    @cached_property
    def rounding(self) -> float:
        """That of rss."""
        return float(self.total(self.n * ROUNDING * self.model.sums.power / self._left**2))

    @cached_property
    def observations(self) -> float:
        """Of the members that count."""
        return float(self.total(self.n))

    @cached_property
    def _left(self) -> Array:
        """n − edf."""
        left = self.n - (self.model.space.size - self.fit.traces.sum(axis=0))
        if self.total(left <= ROUNDING * self.n) > 0:
            raise SingularSystemError("no degrees of freedom are left at these strengths")
        return left

    @cached_property
    def _edf(self) -> tuple[Array, Array]:
        """∂edf/∂ρ_j and ∂²edf/∂ρ_i∂ρ_j, as good as u is."""
        u, v = self.fit.bends
        along = u.sum(axis=1)
        return along - self.fit.traces, 2 * (u - v) + _diagonal(along - self.fit.traces)


class Holders(Logarithm):
    """Mean squared error of each part, predicted by a fit to the others: Σ_h [s_h − 2h_hᵀc₋ₕ + c₋ₕᵀG_hc₋ₕ] / Σ_h w_h.

    Parameters
    ----------
    model : Model
        Of all parts together.
    pairs : sequence of (Model, Sums)
        Of the parts without each, and that part about the same reference.
    rho : ndarray, [J]
    members : ndarray of bool, [b..], optional
    """

    def __init__(
        self, model: Model, pairs: Sequence[tuple[Model, Sums]], rho: Array, members: Members | None = None
    ) -> None:
        self.model, self.rho, self.factorisations = model, rho, len(pairs)
        each = [_left_out(i, rest, part, rho) for i, (rest, part) in enumerate(pairs)]
        determined, value, first, second, weight, power = (functools.reduce(np.add, x) for x in zip(*each, strict=True))
        self.members = counted(np.broadcast_to(determined == len(pairs), value.shape), members)
        weights = float(total(weight, self.members))
        self.derivatives = (
            float(total(value, self.members)) / weights,
            total(first, self.members) / weights,
            total(second, self.members) / weights,
        )
        self.observations = float(total(model.sums.count, self.members))
        self.rounding = ROUNDING * float(total(power, self.members)) / weights

    @property
    def factorisation(self) -> Factorisation:
        """Of G + Λ of all parts together."""
        return Fit(self.model, self.rho).factorisation


def _left_out(i: int, rest: Model, part: Sums, rho: Array) -> tuple[Array, ...]:
    """Whether each member is determined without part i; the error that the rest makes there, its derivatives; Σw, s."""
    try:
        fit = Fit(rest, rho)
    except SingularSystemError as error:
        raise SingularSystemError(f"without part {i} the others do not determine the fit: {error}") from None
    determined = np.broadcast_to(fit.factorisation.determined, fit.c.shape[fit.count :])
    first, second = fit.loss(part)
    value = np.maximum(part.rss(fit.c, fit.frame), 0.0) + 4 * ROUNDING * part.power + np.finfo(np.float64).tiny
    return determined.astype(np.int64), value, first, second, part.weight, part.power
