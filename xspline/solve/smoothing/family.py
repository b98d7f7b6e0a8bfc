"""Families of penalties that a search chooses from: Λ(ρ) = Σ_t exp((Dρ)_t) S_t.

S_t are terms of strength one, each a product over the coordinates; ρ are logarithms of what the user knows the penalty
by (strengths of coordinates, or of orders, and the metric), and D turns them into those of the terms' strengths. So a
score needs its derivatives by the terms alone: D carries them to ρ exactly.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from xspline.solve.direct.cholesky import Array, tolerance
from xspline.solve.errors import TooLargeError
from xspline.solve.parallel import Resources
from xspline.solve.penalty import (
    AUTOMATIC,
    Penalty,
    Roughness,
    Sobolev,
    criterion_of,
    multi_indices,
    spline_degrees,
)
from xspline.solve.select import ITERATIVE, Choice, candidates
from xspline.solve.smoothing.determinant import (
    Determinant,
    Known,
    Pinned,
    Spectrum,
    axis_spectrum,
    nullity,
    spectrum,
)
from xspline.solve.structure import distinct
from xspline.spaces import Space
from xspline.sums import Gram
from xspline.sums.integrals import with_events

ORDER = 2  # of the derivatives that measure roughness, where there is one and the degree allows it
WEAKEST = np.log(1e-10)  # of the start: the penalty is that share of the diagonal of G
STIFFEST_EVENTS = 1e3  # of events so much less
STIFFEST = 1e4  # Σw times this: the roughest function that a penalty still lets through is that much shrunk
BEYOND = 5.0  # in the logarithm of a term's strength: above where it makes no more difference
WIDEST = 14.0  # in log m_j from a metric in which all coordinates count the same on the diagonal


class Bounds(NamedTuple):
    """A place to start at, and the bounds of ρ, [J]; log-strengths of terms, [T].

    Parameters
    ----------
    start, lower, upper : ndarray, [J]
    even : ndarray, [T]
        At which each term weighs as much as the data.
    most : ndarray, [T]
        Beyond which there is no score: products of ρ within their bounds would take a term to where its rounding errors
        reach the constant.
    """

    start: Array
    lower: Array
    upper: Array
    even: Array
    most: Array


class Family(ABC):
    """Penalties of one kind on one space.

    Parameters
    ----------
    space : Space
    names : tuple of str
        Coordinates that are smoothed.

    Attributes
    ----------
    parameters : tuple of str
        What exp(ρ) are.
    design : ndarray, [T, J]
        D.
    alphas : tuple of tuple of int
        Of each term the order of its derivative along each smoothed coordinate.
    null : int
        M, the dimension of the null space of Λ.
    log_null : float
        log|NᵀN| of functions N, [P, M], that span it and are orthonormal over the domain.
    """

    parameters: tuple[str, ...]
    design: Array
    alphas: tuple[tuple[int, ...], ...]
    null: int
    log_null: float

    def __init__(self, space: Space, names: Sequence[str]) -> None:
        self.space, self.names = space, tuple(names)

    @abstractmethod
    def on(self, space: Space) -> Family:
        """The same family on another space with the same coordinates."""

    @abstractmethod
    def penalty(self, rho: Array) -> Penalty:
        """Λ(ρ); its Gram has the terms in their order."""

    @abstractmethod
    def log_determinant(self, rho: Array, resources: Resources) -> Determinant:
        """log|Λ|₊."""

    @abstractmethod
    def bounds(self, typical: float, weight: float) -> Bounds:
        """Where a search starts, and beyond which a strength makes no difference.

        At the start penalty and data weigh the same on the diagonal of A. At the upper bound the roughest function
        that a penalty lets through is shrunk by `STIFFEST`, were the observations spread evenly: G = Σw ⊗M; but no
        further than where rounding errors of λS reach the constant, which only G determines.

        Parameters
        ----------
        typical : float
            Sum of the diagonal of G.
        weight : float
            Σw.
        """

    @abstractmethod
    def stopped(self, sides: Mapping[str, str]) -> dict[str, str]:
        """Coordinates that are smoothed as little or as much as makes a difference, by the bounds that ρ is at."""

    @cached_property
    def unit(self) -> Penalty:
        """With ρ = 0."""
        return self.penalty(np.zeros(len(self.parameters)))

    @cached_property
    def overall(self) -> Array:
        """The direction of ρ along which all terms grow alike, [J]."""
        return np.asarray(np.linalg.lstsq(self.design, np.ones(len(self.design)), rcond=None)[0])

    @cached_property
    def alone(self) -> Space:
        """The space of the smoothed coordinates alone."""
        space = self.space
        return Space({n: space.basis(n) for n in self.names}, axes={n: space.axis(n) for n in self.names})

    @cached_property
    def shares(self) -> Array:
        """How much each term belongs to each smoothed coordinate, [N, T]: columns add up to 1."""
        alphas = np.array(self.alphas, dtype=float)
        return np.asarray((alphas / alphas.sum(axis=1, keepdims=True)).T)

    def wiggly(self, v: Array, term: int) -> Array:
        """What a term sees of v, [K.., rest..]; the rest is larger and would leave its rounding errors."""
        return self._wiggly(v, term, self.space)

    def wiggly_alone(self, v: Array, term: int) -> Array:
        """The same of functions of the smoothed coordinates alone."""
        return self._wiggly(v, term, self.alone)

    def _wiggly(self, v: Array, term: int, space: Space) -> Array:
        for name, order in zip(self.names, self.alphas[term], strict=True):
            if order:
                axis = space.names.index(name)
                v = axis_spectrum(space, axis, order).wiggly(v, axis)
        return v

    def _limits(self, typical: float, weight: float) -> tuple[Array, Array]:
        """Log-strengths of terms where they weigh as much as the data, and where they are as large as may be: [T]."""
        space, frame = self.space, self.space.frame
        rough, softest = [], []
        for alpha, term in zip(self.alphas, self.unit.gram(space).terms, strict=True):
            along = dict(zip(self.names, alpha, strict=True))
            rough.append(float(Gram((term,)).diagonal(frame).sum()))
            spectra = [(axis_spectrum(space, space.names.index(n), k), n, k) for n, k in along.items() if k]
            # Straight lines among events are for the term of order 0.
            values = [s.values[(s.free + k if n in with_events(space) else 0) :] for s, n, k in spectra]
            softest.append(math.prod(x[x > 0].min(initial=np.inf) for x in values))
        stiffest = STIFFEST * weight / np.where(np.isfinite(softest), softest, 1.0)
        # Beyond, nothing changes but rounding errors of two terms that shrink the same events.
        others = [name not in with_events(space) for name in self.names]
        of_events = [not all(others) and not any(np.array(alpha)[others]) for alpha in self.alphas]
        stiffest = np.where(of_events, stiffest / STIFFEST_EVENTS, stiffest)
        wall = weight / (16 * tolerance(space.size) * np.array(rough))
        return np.log(typical / np.array(rough)), np.log(np.minimum(stiffest, wall))


class SingleOrder(Family):
    """`Roughness` of one order: a strength for each coordinate, derivatives along one coordinate each.

    Events beside a trend have one of order 0 too.
    """

    def __init__(self, space: Space, names: Sequence[str], order: int) -> None:
        super().__init__(space, names)
        self.order, self.events = order, tuple(n for n in with_events(space) if n in self.names)
        self.parameters = (*self.names, *(f"events along {name}" for name in self.events))
        self.design = np.eye(len(self.parameters))
        orders = [tuple(order * int(i == j) for j in range(len(names))) for i in range(len(names))]
        self.alphas = (*orders, *((0,) * len(names) for _ in self.events))

    def on(self, space: Space) -> SingleOrder:
        return SingleOrder(space, self.names, self.order)

    @cached_property
    def spectrum(self) -> Spectrum:
        """Eigenvalues of all terms."""
        return spectrum(self.space, self.names, self.order, self.events)

    @cached_property
    def shares(self) -> Array:
        owners = [*self.names, *self.events]
        return np.array([[float(owner == name) for owner in owners] for name in self.names])

    @property
    def null(self) -> int:  # type: ignore[override]
        return self.spectrum.null

    @property
    def log_null(self) -> float:  # type: ignore[override]
        return self.spectrum.log_null

    def penalty(self, rho: Array) -> Penalty:
        strengths = [float(x) for x in np.exp(rho)]
        rough = Roughness(dict(zip(self.names, strengths, strict=False)), self.order)
        if not self.events:
            return rough
        return rough + Roughness(dict(zip(self.events, strengths[len(self.names) :], strict=True)), 0)

    def log_determinant(self, rho: Array, resources: Resources) -> Determinant:
        return Known(*self.spectrum.at(rho))

    def bounds(self, typical: float, weight: float) -> Bounds:
        start, upper = self._limits(typical, weight)
        upper = np.maximum(upper, start + 1.0)
        return Bounds(start, start + WEAKEST, upper, start, np.full(len(start), np.inf))

    def stopped(self, sides: Mapping[str, str]) -> dict[str, str]:
        return {name: side for name, side in sides.items() if name in self.names}


class SeveralOrders(Family):
    """`Sobolev`: a strength for each order, and how much each coordinate counts beside the first."""

    def __init__(self, space: Space, names: Sequence[str], orders: Sequence[int]) -> None:
        super().__init__(space, names)
        self.orders = tuple(orders)
        self.parameters = (*(f"order {k}" for k in orders), *self.names[1:])
        self.alphas = tuple(alpha for k in orders for alpha in multi_indices(len(names), k))
        strengths = [[float(sum(alpha) == k) for k in orders] for alpha in self.alphas]
        self.design = np.array(
            [[*own, *alpha[1:]] for own, alpha in zip(strengths, self.alphas, strict=True)]
        )
        smooth = [j for j, name in enumerate(space.names) if name in names]
        self.null = space.size // math.prod(space.shape[j] for j in smooth)
        self.log_null = self.null * sum(math.log(np.sum(space.frame.constant[j] ** 2)) for j in smooth)
        for j in set(range(len(space.names))).difference(smooth):
            self.log_null += self.null / space.shape[j] * axis_spectrum(space, j, 0).log_null

    def on(self, space: Space) -> SeveralOrders:
        return SeveralOrders(space, self.names, self.orders)

    def penalty(self, rho: Array) -> Sobolev:
        numbers = [float(x) for x in np.exp(rho)]
        orders = dict(zip(self.orders, numbers, strict=False))
        return Sobolev(orders, dict(zip(self.names, [1.0, *numbers[len(orders) :]], strict=True)))

    def log_determinant(self, rho: Array, resources: Resources) -> Determinant:
        return Pinned(self.space, self.alone, self.penalty(rho), self.wiggly_alone, resources)

    def bounds(self, typical: float, weight: float) -> Bounds:
        start, upper = self._limits(typical, weight)
        pure = np.array([max(alpha) == sum(alpha) for alpha in self.alphas])
        first = np.array([alpha == self.alphas[0] for alpha in self.alphas])
        own = np.array([sum(alpha) == self.orders[0] for alpha in self.alphas]) & pure
        # The first order's terms weigh the same at the start.
        metric = (start[own][1:] - start[first]) / self.orders[0]
        orders = []
        for values, choose in ((start, np.mean), (upper, np.max)):
            moved = values - self.design[:, len(self.orders) :] @ metric
            orders.append([choose(moved[(self.design[:, k] > 0) & pure]) for k in range(len(self.orders))])
        low, high = np.array(orders[0]), np.maximum(np.array(orders[1]), np.array(orders[0]) + 1.0)
        return Bounds(
            np.concatenate([low - math.log(len(low)), metric]),
            np.concatenate([low + WEAKEST, metric - WIDEST]),
            np.concatenate([high, metric + WIDEST]),
            start,
            np.maximum(upper, start + 1.0) + BEYOND,
        )

    def stopped(self, sides: Mapping[str, str]) -> dict[str, str]:
        orders = [sides.get(f"order {k}") for k in self.orders]
        if "upper" in orders:
            return dict.fromkeys(self.names, "upper")
        if all(side == "lower" for side in orders):
            return dict.fromkeys(self.names, "lower")
        return {name: side for name, side in sides.items() if name in self.names}


def smoothed(space: Space, method: str) -> tuple[str, ...]:
    """Coordinates with a B-spline, which are smoothed.

    Raises
    ------
    ValueError
        An unknown method, no B-spline, or one of degree 0.
    """
    if method not in AUTOMATIC:
        raise ValueError(
            f"unknown choice of smoothing {method!r}: known are {', '.join(map(repr, AUTOMATIC))}"
        )
    lowest = spline_degrees(space)
    if not lowest:
        raise ValueError(
            f"penalty={method!r} smooths coordinates with a B-spline, and none of {', '.join(space.names)} has one; "
            "pass penalty=0 for least squares, or a number for a ridge"
        )
    steps = next((name for name, degree in lowest.items() if degree == 0), None)
    if steps is not None:
        raise ValueError(
            f"penalty={method!r}: the B-spline of {steps!r} has degree 0 and no roughness to smooth; use degree 1 or "
            "more, or pass a number for a ridge"
        )
    return tuple(lowest)


def several_orders(
    space: Space, names: Sequence[str], orders: Sequence[int] = (1, 2)
) -> SeveralOrders | None:
    """The penalties of several orders on a space; None where it has no such derivatives or falls apart at a knot."""
    degrees = spline_degrees(space)
    if min(degrees[name] for name in names) < max(orders):
        return None
    if any(nullity(space, space.names.index(name), 1) > 1 for name in names):
        return None
    return SeveralOrders(space, names, orders)


# --- which family, and which solver searches it


def family_for(
    gram: Gram,
    requested: str | Penalty,
    space: Space,
    solver: str | None = None,
    resources: Resources | None = None,
) -> Family:
    """The family that a penalty is chosen from.

    "reml" chooses among `Sobolev` penalties of the orders 1 and 2 where a solver that knows the inverse takes them in
    some seconds and all degrees are 2 or more; else, as "gcv" and "holders", a `Roughness` of order 2.

    Parameters
    ----------
    gram : Gram
    requested : {"reml", "gcv", "holders"} or Penalty
    space : Space
    solver, resources
        See `candidates`.
    """
    method, resources = criterion_of(requested) or "", resources or Resources.here()
    names = smoothed(space, method)
    if isinstance(requested, Sobolev):
        requested.metric(space)  # has these derivatives
        if 1 not in requested.orders:
            raise ValueError(
                f"{requested!r}: without order 1 straight lines cost nothing, and no strength of them is to be chosen; "
                f"pass xs.Sobolev({(1, *requested.orders)}), or xs.Roughness({method!r}, order={min(requested.orders)})"
            )
        if (family := several_orders(space, names, tuple(requested.orders))) is None:
            raise ValueError(
                f"{requested!r}: at some knots the field falls apart, so that more than constants cost nothing; pass "
                f"xs.Roughness({method!r})"
            )
        return family
    if isinstance(requested, Roughness):
        Roughness(dict.fromkeys(names, 1.0), requested.order).strengths(space)  # has these derivatives
        return SingleOrder(space, names, requested.order)
    single = SingleOrder(space, names, min(ORDER, *spline_degrees(space).values()))
    if method == "reml" and (wide := several_orders(space, names)) is not None:
        with suppress(ValueError):
            if (
                solver_for(gram, wide, method, solver, resources).operations
                <= resources.costs.max_exact_reml_flops
            ):
                return wide
    return single


def choice_for(
    gram: Gram,
    penalty: Penalty | str,
    space: Space,
    solver: str | None = None,
    resources: Resources | None = None,
) -> Choice:
    """The solver of a fit with a penalty, or with one whose strengths a criterion chooses.

    Parameters
    ----------
    gram : Gram
    penalty : Penalty or {"reml", "gcv", "holders"}
    space : Space
    solver : str, optional
    resources : Resources, optional
        See `candidates`.
    """
    method, resources = criterion_of(penalty), resources or Resources.here()
    if method is None and isinstance(penalty, Penalty):
        return candidates(gram, penalty.gram(space), space.frame, solver, resources=resources)[0]
    family = family_for(gram, penalty, space, solver, resources)
    return solver_for(gram, family, method or "", solver, resources)


def solver_for(gram: Gram, family: Family, method: str, solver: str | None, resources: Resources) -> Choice:
    """The solver of a search: one that knows the inverse; for REML one that iterates, where that would take minutes."""
    matrix, frame = family.unit.gram(family.space), family.space.frame
    single = (
        method == "reml" and int(distinct(gram)[1].max(initial=0)) == 0 and isinstance(family, SingleOrder)
    )

    def iterating(name: str | None) -> Choice | None:
        """The first that does, if it is worth it or asked for, and there is one system only."""
        with suppress(ValueError):
            proposed = candidates(gram, matrix, frame, name, resources=resources) if single else []
            held = resources.costs.searched_solvers
            return next((replace(c, nbytes=held * c.nbytes) for c in proposed if not c.exact), None)
        return None

    iterative = iterating(solver)
    try:
        exact = candidates(gram, matrix, frame, solver, exact=True, resources=resources)[0]
        if isinstance(family, SeveralOrders):  # Λ is factorised too
            alone = family.unit.gram(family.alone)
            own = candidates(alone, Gram(()), family.alone.frame, exact=True, resources=resources)[0]
            nbytes, operations = exact.nbytes + own.nbytes, exact.operations + own.operations
            inverse = exact.searching + own.searching - operations
            exact = replace(exact, nbytes=nbytes, operations=operations, inverse=inverse, searches=2.0)
    except ValueError as error:
        if iterative is None and solver is None:  # one solve would fit in memory, the search does not
            iterative = iterating(ITERATIVE)
        if iterative is None:
            raise
        refusal = error.cause if isinstance(error, TooLargeError) else ""
        return replace(iterative, memory_refusal=refusal, searched=True)
    exact = replace(exact, searched=True)
    if exact.operations <= resources.costs.max_exact_reml_flops:
        return exact
    if iterative is None and solver is None:
        # One solve is faster by a factorisation; a search may be faster by iterations.
        other = iterating(ITERATIVE)
        choices = [exact] if other is None else [exact, replace(other, searched=True)]
        return min(choices, key=lambda c: _worth(c.seconds(frame, 1, resources.costs), c, resources))
    return exact if iterative is None else replace(iterative, searched=True)


def _worth(seconds: float, choice: Choice, resources: Resources) -> float:
    """Seconds of a search, less what exact answers are worth."""
    costs = resources.costs
    return seconds - costs.iterative_handicap_flops / costs.flops_per_second if choice.exact else seconds
