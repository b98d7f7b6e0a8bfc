"""Families of penalties that a search chooses from: Λ(ρ) = Σ_t exp((Dρ)_t) S_t.

S_t are terms of strength one, each a product over the coordinates; ρ are logarithms of what the user knows the penalty
by (strengths of coordinates, or of orders, and the metric), and D turns them into those of the terms' strengths. So a
score needs its derivatives by the terms alone: D carries them to ρ exactly.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from xspline.solve.costs import Resources
from xspline.solve.direct.cholesky import TINY, Array, tolerance
from xspline.solve.families.determinant import Determinant, axis_spectrum, pinned
from xspline.solve.penalties.roughness import Penalty
from xspline.spaces import Space
from xspline.spaces.space import only
from xspline.sums import Gram
from xspline.sums.integrals import with_events

# The lower bound from the start: there the penalty is that share of the diagonal of G.
WEAKEST = np.log(TINY)
STIFFEST = 1e4  # at the upper bound the roughest function that a penalty lets through is shrunk by this
BEYOND = 5.0  # a score exists so far, in the logarithm of a term's strength, above its upper bound


class Bounds(NamedTuple):
    """A place to start at, and the bounds of ρ, [J]; log-strengths of terms, [T]."""

    start: Array
    lower: Array
    upper: Array
    # beyond it there is no score, as products of ρ within their bounds would take a term to where its rounding
    # errors reach the constant
    most: Array


class Family(ABC):
    """Penalties of one kind on one space, of which the coordinates `names` are smoothed."""

    parameters: tuple[str, ...]  # the names of exp(ρ)
    design: Array  # [T, J], D
    # each term has the order of its derivative along each smoothed coordinate
    alphas: tuple[tuple[int, ...], ...]
    metric: tuple[str, ...] = ()  # coordinates in whose metric there are strengths of orders

    def __init__(self, space: Space, names: Sequence[str]) -> None:
        self.space = space
        self.names = tuple(names)

    @property
    @abstractmethod
    def free(self) -> list[Array]:
        """Functions along each smoothed coordinate whose products cost nothing, orthonormal over the domain: [K, m]."""

    @abstractmethod
    def on(self, space: Space, gram: Gram) -> Family:
        """Return the same family on another space with the same coordinates, where the statistics have another G."""

    @abstractmethod
    def penalty(self, rho: Array) -> Penalty:
        """Return Λ(ρ), whose Gram has the terms in their order."""

    def log_determinant(self, rho: Array, resources: Resources) -> Determinant:
        """Return log|Λ|₊ at ρ with its derivatives, by a factorisation where no structure gives eigenvalues."""
        wiggly = partial(self.wiggly, space=self.alone)
        return pinned(self.space, self.alone, self.penalty(rho), wiggly, resources, self.free)

    def bounds(self, typical: float, weight: float) -> Bounds:
        """Return where a search starts, and the bounds beyond which a strength makes no difference.

        At the start each term weighs as much as the data on the diagonal of A; orders share this weight. At the lower
        bound a term weighs `TINY` of that. At the upper bound the roughest function that costs anything is shrunk by
        `STIFFEST`, if observations were spread evenly, G = Σw ⊗M; but rounding errors of λS never reach the constant,
        which only G determines. Parameters of the metric go half as far, to either side, as strengths go down.
        `typical` is the sum of the diagonal of G, and `weight` Σw.
        """
        even, stiffest = self._limits(typical, weight)
        stiffest = np.maximum(stiffest, even + 1.0)
        plain = np.count_nonzero(self.alphas, axis=1) <= 1  # derivatives along one coordinate alone
        start = np.asarray(np.linalg.lstsq(self.design[plain], even[plain], rcond=None)[0])
        of_metric = np.array([name in self.metric[1:] for name in self.parameters])
        lower = start + np.where(of_metric, WEAKEST / 2, WEAKEST)
        upper = start - WEAKEST / 2
        beside = stiffest - self.design[:, of_metric] @ start[of_metric]
        for j in np.flatnonzero(~of_metric):
            upper[j] = beside[plain & (self.design[:, j] > 0)].max()
        of_orders = np.array([name.startswith("order ") for name in self.parameters])
        shared = np.where(of_orders, math.log(max(int(of_orders.sum()), 1)), 0.0)
        return Bounds(start - shared, lower, upper, stiffest + BEYOND)

    def stopped(self, sides: Mapping[str, str]) -> dict[str, str]:
        """Return the coordinates that are smoothed as little or as much as makes a difference, by the bounds of ρ."""
        at_bounds = {name: side for name, side in sides.items() if name in self.names}
        orders = [sides.get(name) for name in self.parameters if name.startswith("order ")]
        if "upper" in orders:
            at_bounds |= dict.fromkeys(self.metric, "upper")
        elif orders and all(side == "lower" for side in orders):
            at_bounds |= dict.fromkeys(self.metric, "lower")
        return at_bounds

    @cached_property
    def null(self) -> int:
        """M, the dimension of the null space of Λ."""
        free = math.prod(own.shape[1] for own in self.free)
        return int(self.space.size // self.alone.size * free)

    @cached_property
    def log_null(self) -> float:
        """log|NᵀN| of functions N, [P, M], that span the null space and are orthonormal over the domain."""
        space = self.space
        logs = [(n.shape[1], np.linalg.slogdet(n.T @ n)[1]) for n in self.free]
        others = (j for j, name in enumerate(space.names) if name not in self.names)
        logs += [(space.shape[j], -axis_spectrum(space, j, 0).log_mass) for j in others]
        return float(sum(self.null / count * log for count, log in logs))

    @cached_property
    def unit(self) -> Penalty:
        """The penalty at ρ = 0."""
        return self.penalty(np.zeros(len(self.parameters)))

    @cached_property
    def overall(self) -> Array:
        """The direction of ρ along which all terms grow alike, [J]."""
        return np.asarray(np.linalg.lstsq(self.design, np.ones(len(self.design)), rcond=None)[0])

    @cached_property
    def alone(self) -> Space:
        """The space of the smoothed coordinates alone."""
        return only(self.space, self.names)

    @cached_property
    def shares(self) -> Array:
        """How much each term belongs to each smoothed coordinate, [N, T]: columns add up to 1."""
        alphas = np.array(self.alphas, dtype=float)
        return np.asarray((alphas / alphas.sum(axis=1, keepdims=True)).T)

    def wiggly(self, v: Array, term: int, space: Space | None = None) -> Array:
        """Return what a term sees of v, [K.., rest..]; the rest is larger and would leave its rounding errors."""
        space = space or self.space
        for name, order in zip(self.names, self.alphas[term], strict=True):
            if order:
                axis = space.names.index(name)
                v = axis_spectrum(space, axis, order).wiggly(v, axis)
        return v

    def _limits(self, typical: float, weight: float) -> tuple[Array, Array]:
        """Return the log-strengths at which terms weigh as much as the data, and the largest ones: [T] each."""
        space = self.space
        rough = []
        softest = []
        for alpha, term in zip(self.alphas, self.unit.gram(space).terms, strict=True):
            along = dict(zip(self.names, alpha, strict=True))
            rough.append(float(Gram((term,)).diagonal(self.space.frame).sum()))
            spectra = [(axis_spectrum(space, space.names.index(n), k), n, k) for n, k in along.items() if k]
            # Straight lines among events are for the term of order 0.
            values = [s.values[(s.free + k if n in with_events(space) else 0) :] for s, n, k in spectra]
            softest.append(math.prod(x[x > 0].min(initial=np.inf) for x in values))
        stiffest = STIFFEST * weight / np.where(np.isfinite(softest), softest, 1.0)
        # Beyond a bound 1,000 times lower nothing changes but rounding errors of two terms that shrink the same events.
        others = [name not in with_events(space) for name in self.names]
        of_events = [not all(others) and not any(np.array(alpha)[others]) for alpha in self.alphas]
        stiffest = np.where(of_events, stiffest / 1e3, stiffest)
        wall = weight / (16 * tolerance(space.size) * np.array(rough))
        return np.log(typical / np.array(rough)), np.log(np.minimum(stiffest, wall))
