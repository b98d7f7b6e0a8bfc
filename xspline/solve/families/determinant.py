"""The log-determinant log|Λ|₊ of a penalty for REML, over its eigenvalues that are not 0, and traces of inverses.

For Λ = Σ_j λ_j S_j with S_j = R_j ⊗ masses of the others, T_jᵀ M_j T_j = I and T_jᵀ R_j T_j = diag(r_j) on every axis,
T = ⊗T_j diagonalises all S_j at once (`Spectrum`):

    Λ = T⁻ᵀ diag(d) T⁻¹      d_k = Σ_j λ_j r_j(k_j)

The null space is the same for all λ > 0, so log|Λ|₊ = Σ_{d > 0} log d plus a constant: with N the columns of T where d
is 0, it is log|⊗M_j| + log|NᵀN| (a minor of the inverse is the complementary minor over the determinant).

Terms of several orders along one axis have no common eigenvectors. There Λ is factorised (`pinned`). Its null space
are the constants e, which one entry δ on the diagonal at k takes away: |Λ + δ e_k e_kᵀ| = δ times the minor without k,
and log|Λ|₊ is that minor's logarithm plus log |e|² / e_k² (Kirchhoff's theorem for e = 1).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy import linalg

from xspline.solve.costs import Resources
from xspline.solve.direct.cholesky import Array
from xspline.solve.kronecker.product import dense_of
from xspline.solve.penalties.roughness import Penalty
from xspline.solve.solution import factorise
from xspline.solve.system import Factorisation
from xspline.spaces import Arrow, Features, Frame, Global, Space
from xspline.spaces.space import only
from xspline.sums import Factor, Gram, digest_key
from xspline.sums.integrals import roughness, with_events


@dataclass(frozen=True, eq=False)
class AxisSpectrum:
    """Eigenvalues of the roughness R of one axis in the metric of its mass M."""

    vectors: Array  # [K, K], T
    # [K], r, ascending. It is exactly 0 where a function has no roughness, and everywhere on an axis that is
    # not smoothed.
    values: Array
    # [K, m], N, the functions without roughness, with NᵀMN = I; none on an axis that is not smoothed
    smooth: Array
    projection: Array  # [m, K], NᵀM
    log_mass: float  # log|M|
    # how many functions of season and trend there are in a union with a B-spline. They come first.
    free: int = 0

    @property
    def null(self) -> int:
        """The number of functions without roughness."""
        return int(np.sum(self.values == 0))

    @property
    def events(self) -> Array:
        """The eigenvalues of the mass of the B-spline alone, [K]: 0 for season and trend, and 1."""
        return (np.arange(len(self.values)) >= self.free).astype(np.float64)

    def wiggly(self, v: Array, axis: int) -> Array:
        """Return v − N NᵀM v along an axis of v: it has the same roughness, without rounding errors of the rest."""
        flat = np.tensordot(self.smooth, np.tensordot(self.projection, v, axes=(1, axis)), axes=(1, 0))
        return v - np.moveaxis(flat, 0, axis)


class Known(NamedTuple):
    """A log-determinant that is known with its derivatives."""

    value: float
    gradient: Array
    hessian: Array


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues of the S_j in the basis that diagonalises them all."""

    # [J, R], r_j(k_j) for all products of functions of the smoothed axes for which not all of them are 0
    values: Array
    copies: int  # how often each of them occurs, which is the size of the axes that are not smoothed
    constant: float  # log|Λ|₊ − Σ log d

    def at(self, rho: Array) -> Known:
        """Return log|Λ|₊ with its derivatives by ρ = log λ."""
        top = float(np.max(rho))
        shares = np.exp(rho - top)[:, None] * self.values
        total = np.sum(shares, axis=0)
        shares /= total
        value = self.copies * float(np.sum(np.log(total) + top)) + self.constant
        first = self.copies * np.sum(shares, axis=1)
        return Known(value, first, np.diag(first) - self.copies * (shares @ shares.T))


def spectrum(
    space: Space, names: Sequence[str], order: int, events: Sequence[str], log_null: float
) -> Spectrum:
    """Return the spectrum of `Roughness` of some coordinates, and of the mass of events.

    `log_null` is log|NᵀN| of functions N that cost nothing and are orthonormal over the domain.
    """
    axes = [axis_spectrum(space, j, order if n in names else 0) for j, n in enumerate(space.names)]
    smoothed = [j for j, name in enumerate(space.names) if name in names]
    grids = list(np.broadcast_arrays(*np.ix_(*(axes[j].values for j in smoothed))))
    for j in map(space.names.index, events):
        along = np.expand_dims(axes[j].events, [i for i, other in enumerate(smoothed) if other != j])
        grids.append(np.broadcast_to(along, grids[0].shape))
    values = np.array([grid.ravel() for grid in grids])
    constant = float(sum(space.size / len(a.values) * a.log_mass for a in axes)) + log_null
    return Spectrum(values[:, values.any(axis=0)], space.size // values.shape[1], constant)


def axis_spectrum(space: Space, j: int, order: int) -> AxisSpectrum:
    """Return the spectrum of the derivatives of an order along axis j; the order is 0 where that is not smoothed."""
    return _spectrum_of(only(space, space.names[j : j + 1]), order)


# Needed again at each level, for each variable and holder, and beside other axes.
@functools.lru_cache(maxsize=64)
def _spectrum_of(space: Space, order: int) -> AxisSpectrum:
    """Return the spectrum of the derivatives of an order along the only axis of a space."""
    j = 0  # of that axis
    mass, rough = (dense_of((roughness(space, j, m),), (j,), space.frame) for m in (0, order))
    log_mass = float(np.linalg.slogdet(mass)[1])
    nothing = np.zeros((len(mass), 0))
    if not order:
        weights, vectors = np.linalg.eigh(mass)
        return AxisSpectrum(vectors / np.sqrt(weights), np.zeros(len(mass)), nothing, nothing.T, log_mass)
    features = space.features[j]
    free = 0
    if isinstance(features, Global) and features.events:
        free = features.size - features.events
    values = np.zeros(len(mass))
    vectors = np.zeros(mass.shape)
    if free:  # season and trend do not mix with those of a B-spline that have no roughness either
        weights, own = np.linalg.eigh(mass[:free, :free])
        vectors[:free, :free] = own / np.sqrt(weights)
    try:
        values[free:], vectors[free:, free:] = linalg.eigh(rough[free:, free:], mass[free:, free:])
    except linalg.LinAlgError as error:
        name = space.names[j]
        raise ValueError(
            f"{name}: the functions of {space.basis(name)!r} are too nearly dependent in float64 to choose a "
            "smoothing; use a lower degree (3 to 5 are usual), or pass a strength, as in penalty=xs.Roughness(1e-3)"
        ) from error
    null = free
    if space.names[j] not in with_events(space):
        null += _nullity(features, order, values[free:])
    values[:null], smooth = 0.0, vectors[:, :null]
    return AxisSpectrum(vectors, values, smooth, smooth.T @ mass, log_mass, free)


def nullity(space: Space, j: int, order: int) -> int:
    """Return how many functions along axis j have no roughness of an order; splines in cells need no eigenvalues."""
    if not space.features[j].local:
        return axis_spectrum(space, j, order).null
    return _of_cells(space.features[j], order)


def _nullity(features: Features, order: int, values: Array) -> int:
    """Return the same from eigenvalues, where the basis is not made of cells: it is small, and 0 shows as rounding."""
    if isinstance(features, Arrow):
        features = features.spline
    if features.local:
        return _of_cells(features, order)
    return int(np.sum(values <= len(values) * np.finfo(np.float64).eps * values[-1]))


def _of_cells(features: Features, order: int) -> int:
    """Return how many polynomials of degree < order there are, one set on each cell, tied at the knots.

    They are counted: rounding errors of the eigenvalues of a fine spline exceed the smallest that is not 0.
    """
    around = [features.first[0] + features.size] if features.periodic else []
    repeats = np.diff(np.append(features.first, around).astype(np.int64))
    ties = np.minimum(order, features.width - repeats)  # the value and its derivatives that agree at a knot
    return max(order * features.cells - int(np.sum(ties)), 1)


# --- by factorisation


class Factorised:
    """A = G + Σ_t λ_tS_t, factorised, with the traces that derivatives by log λ_t are made of.

    The terms of `penalty` are λ_tS_t. `wiggly` takes v, [K.., rest..], and the number of a term to the part of v which
    the term sees. `hessian_traces` are exact for small systems; this takes P solves each. If `steering`, only the
    length of a search depends on them: then large problems take fewer draws.
    """

    def __init__(
        self,
        factorisation: Factorisation,
        penalty: Gram,
        frame: Frame,
        wiggly: Callable[[Array, int], Array],
        resources: Resources,
        steering: bool = False,
    ) -> None:
        self.factorisation = factorisation
        self.terms = [Gram((term,)) for term in penalty.terms]
        self.frame = frame
        self.size = math.prod(frame.sizes)
        self.count = len(frame.sizes)
        self.resources = resources
        self.steering = steering
        self._wiggly = wiggly

    @cached_property
    def traces(self) -> Array:
        """t_t, [T, b..]."""
        return self.factorisation.traces(self.terms)

    def apply_penalties(self, v: Array) -> Array:
        """Return λ_tS_tv of vectors [K.., rest..]: [P, T, rest..].

        The part of v that a penalty ignores is taken out first: it is the larger part, and λ would blow up its rounding
        errors.
        """
        images = [term.matvec(self._wiggly(v, t), self.frame) for t, term in enumerate(self.terms)]
        return np.stack([self.flat(image) for image in images], axis=1)

    def apply_inverse(self, v: Array) -> Array:
        """Return A⁻¹v of vectors [P, rest.., b..]."""
        return self.flat(self.factorisation.solve(self.shaped(v)))

    def flat(self, v: Array) -> Array:
        """Reshape [K.., rest..] to [P, rest..]."""
        return v.reshape(self.size, *v.shape[self.count :])

    def shaped(self, v: Array) -> Array:
        """Reshape [P, rest..] to [K.., rest..]."""
        return v.reshape(*self.frame.sizes, *v.shape[1:])

    @cached_property
    def hessian_traces(self) -> tuple[Array, Array, Array]:
        """t_i, u_ij, and Σ_k tr(A⁻¹λ_iS_iA⁻¹λ_kS_kA⁻¹λ_jS_j): [T, b..] and twice [T, T, b..].

        All come from the same x: where these are draws, t − u has no more error than its size allows.
        """
        t = u = v = np.zeros(())
        # The sum of zzᵀ over the columns z, [K.., m, b..], is the identity, or is that on average.
        batch = self.factorisation.determined.shape
        size = self.size
        systems = math.prod(batch)
        count = size if self.exact else max(2, self.resources.costs.draws(size, self.steering) // systems)
        step = max(1, 2**23 // (size * systems * len(self.terms)))  # 64 MiB an array of draws at most
        rng = np.random.default_rng(0)
        for start in range(0, count, step):
            m = min(step, count - start)
            if self.exact:
                z = np.eye(size, m, -start).reshape(size, m, *(1 for _ in batch))
            else:
                z = rng.choice([-1.0, 1.0], (size, m, *batch)) / math.sqrt(count)
            x = self.factorisation.apply_inverse_sqrt(self.shaped(z))
            weighted = self.apply_penalties(x)
            solved = self.apply_inverse(weighted)
            t = t + np.einsum("pm...,pjm...->j...", self.flat(x), weighted)
            u = u + products(weighted, solved).sum(axis=2)
            if not self.steering:
                twice = self.apply_penalties(self.shaped(solved)).sum(axis=1)
                v = v + products(solved, twice).sum(axis=2)
        return t, u, v

    @property
    def exact(self) -> bool:
        """Whether `hessian_traces` are exact."""
        return self.size**2 * self.factorisation.determined.size <= self.resources.costs.exact_entries


def products(a: Array, b: Array) -> Array:
    """Return a_iᵀb_j of vectors [P, J, rest..]: [J, J, rest..]."""
    return np.asarray(np.einsum("pi...,pj...->ij...", a, b))


class OfFactors(NamedTuple):
    """A log-determinant by factorisation: log|Λ|₊ = copies · log|A| + constant. `system` is A = Λ + δ e_k e_kᵀ."""

    system: Factorised
    copies: int
    constant: float

    @property
    def value(self) -> float:
        return self.copies * float(self.system.factorisation.logdet()) + self.constant

    @property
    def gradient(self) -> Array:
        return self.copies * self.system.traces

    @property
    def hessian(self) -> Array:
        t, u, _ = self.system.hessian_traces
        return np.asarray(self.copies * (np.diag(t) - u))


Determinant: TypeAlias = Known | OfFactors
"""log|Λ|₊ as `value`; `gradient` [T] and `hessian` [T, T] by the logarithms of the terms' strengths.

The Hessian may rest on a few draws.
"""


class Pin(NamedTuple):
    """Entries, 1, on the diagonal of a matrix, at a product of places, which take its null space away."""

    place: tuple[int, ...]  # k, the first of them
    factors: tuple[Factor, ...]  # the entries as a product over the axes
    log_squares: float  # log|NᵀN| − 2 log|det N_k| of functions N that span the null space

    @staticmethod
    def at(frame: Frame, axes: Sequence[int], places: Sequence[Sequence[int]], null: Sequence[Array]) -> Pin:
        """Return the pins of products of functions N_j, [K_j, m_j], at m_j places along each of some axes."""
        factors = []
        log_squares = 0.0
        count = math.prod(functions.shape[1] for functions in null)
        for j, own, functions in zip(axes, places, null, strict=True):
            pairs = np.zeros((frame.sizes[j], frame.offsets[j]))
            pairs[own, 0] = 1.0
            factors.append(Factor((j,), ((0, len(pairs)),), pairs, digest_key(str(j), "pin")))
            squares = np.linalg.slogdet(functions.T @ functions)[1] - 2 * np.linalg.slogdet(functions[own])[1]
            log_squares += count / functions.shape[1] * float(squares)
        return Pin(tuple(own[0] for own in places), tuple(factors), log_squares)


def pinned(
    space: Space,
    own: Space,
    penalty: Penalty,
    wiggly: Callable[[Array, int], Array],
    resources: Resources,
    null: Sequence[Array],
) -> OfFactors:
    """Return log|Λ|₊ of a penalty under which products of some functions are free, those of `null`.

    These are [K, m] for each smoothed coordinate. `own` is the space of the smoothed coordinates alone; along the
    others all terms have mass matrices. For `wiggly` see `Factorised`. It raises SingularSystemError where the
    strengths are too far apart for float64.
    """
    matrix = penalty.gram(own)
    frame = own.frame
    axes = range(len(frame.sizes))
    # In the sea, where the penalty has its largest entries.
    stiffest = np.unravel_index(np.argmax(matrix.diagonal(frame)), frame.sizes)
    places = [
        [int(k)] if n.shape[1] == 1 else linalg.qr(n.T, mode="r", pivoting=True)[1][: n.shape[1]].tolist()
        for k, n in zip(stiffest, null, strict=True)
    ]
    pin = Pin.at(frame, axes, places, null)
    count = math.prod(factor.diagonal().sum() for factor in pin.factors)
    entry = float(matrix.diagonal(frame)[pin.place])
    gram = Gram((pin.factors,)).scaled(entry)
    factorisation = factorise(gram, matrix, own, exact=True, resources=resources)
    system = Factorised(factorisation, matrix, frame, wiggly, resources, steering=True)
    copies = space.size // own.size
    others = [axis_spectrum(space, j, 0) for j, name in enumerate(space.names) if name not in own.names]
    masses = sum(copies / len(axis.values) * axis.log_mass for axis in others)
    constant = (own.size - count) * masses + copies * (pin.log_squares - count * math.log(entry))
    return OfFactors(system, copies, constant)
