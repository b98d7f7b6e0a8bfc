"""A penalty of fields in space and time that splits as their statistics do: one system in space for each mode of time.

With G = G_x ⊗ G_t and N = G_t / n, n the weight of all times together, it is

    Λ = Λ_x ⊗ N + M_x ⊗ Λ_t

Λ_x the roughness in space, M_x the mass matrix there, Λ_t the roughness in time. Where Tᵀ G_t T = diag(γ) and
Tᵀ Λ_t T = diag(r), each mode k of time has a system of its own, γ_k (G_x + Λ_x / n) + r_k M_x (`Separable`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from xspline.solve.kronecker.product import alone, expected, product_of
from xspline.solve.penalties.roughness import Penalty, Roughness, penalty_code, still_to_be_chosen
from xspline.solve.penalties.sobolev import Sobolev
from xspline.spaces import Space
from xspline.spaces.space import only
from xspline.sums import Factor, Gram
from xspline.sums.integrals import integral


@dataclass(frozen=True, repr=False)
class SpaceTime(Penalty):
    """Mean over the observed times of the roughness in space, and roughness in time integrated over space.

    (1/n) Σ_i w_i ‖u(·, t_i)‖² + ∫ |u(x, ·)|² dx: the first norm is that of `space`, at each time t_i that has
    observations, of weight w_i, n = Σ w_i; the second that of `time`. A `Sobolev` penalty of all coordinates integrates
    over the domain of time instead, and has mixed derivatives of space and time.

    It takes statistics that are a product of space and time: gaps (land, ice) that are the same at all times, or none.
    Then each mode of time has a system in space of its own, which makes some hundred thousand coefficients a matter of
    seconds, with exact REML and error bars. Where gaps change a little, iterations start from there: coefficients are
    as exact, REML takes the traces of the product, and error bars hold what a few draws tell of the gaps.

    Parameters
    ----------
    space : Sobolev
        Of all coordinates but time; without a metric each with B-splines counts 1.
    time : Roughness or sum of them
        Of one coordinate, that of time. Along a union with a B-spline it is that of the events: season and trend
        cost nothing, however they change in time, and are as rough in space as the events are.

    Examples
    --------
    >>> import xspline as xs
    >>> penalty = xs.SpaceTime(
    ...     space=xs.Sobolev({1: 0.04, 2: 8e-5}, {"lat": 1.0, "lon": 0.9}),
    ...     time=xs.Roughness({"time": 1e-3}, order=2) + xs.Roughness({"time": 0.1}, order=0),
    ... )
    >>> penalty.along
    'time'

    All strengths by restricted likelihood:

    >>> xs.SpaceTime()
    SpaceTime(space=xs.Sobolev((1, 2), criterion='reml'), time=xs.Roughness('reml', order=2))
    """

    space: Sobolev = field(default_factory=Sobolev)
    time: Penalty = field(default_factory=Roughness)
    _observed: Factor | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        parts = self.time.parts if isinstance(self.time, Penalty) else ()
        if (
            not isinstance(self.space, Sobolev)
            or not parts
            or not all(isinstance(p, Roughness) for p in parts)
        ):
            raise TypeError(
                f"SpaceTime: space is a Sobolev penalty and time a Roughness or a sum of them, not {self.space!r} and "
                f"{self.time!r}; pass xs.SpaceTime() to have their strengths chosen"
            )
        if any(part.geometry for part in parts if isinstance(part, Roughness)):
            raise ValueError(
                f"SpaceTime: its norm in space is that of a plane, and {self.time!r} is for a sphere; pass "
                "xs.Roughness('reml', geometry='sphere') alone"
            )
        methods = {part.criterion for part in (self.space, *parts)}
        if methods not in ({None}, {"reml"}):
            raise ValueError(
                f"{self!r}: either all strengths are given or all are chosen by 'reml'; pass xs.SpaceTime() for the "
                "latter"
            )
        if self.criterion is None and len(self._names()) != 1:
            named = ", ".join(map(repr, self._names())) or "all B-splines"
            raise ValueError(
                f"SpaceTime: time is the roughness of one coordinate, here of {named}; name it, as in "
                'xs.Roughness({"time": 1e-3})'
            )

    @property
    def criterion(self) -> str | None:
        return self.space.criterion

    @property
    def along(self) -> str | None:
        """Name of the coordinate that is time; None where it is still to be told from the statistics."""
        return next(iter(self._names()), None)

    def elements(self, space: Space) -> tuple[Penalty, ...]:
        if self.criterion or self.along is None:
            return (self,)
        _check(self, self.along, space)
        orders = {order: x for order, x in self.space.orders.items() if x is not None}
        return (Sobolev(orders, self.space.metric(without(space, self.along))), *self.time.parts)

    def bound(self, gram: Gram, space: Space) -> SpaceTime:
        """Return the penalty with the observed times of these statistics.

        Raises
        ------
        ValueError
            These have no factor of their own along time.
        """
        if self.along is None:
            return self
        _check(self, self.along, space)
        return self.at(*observed_times(gram, space, self.along))

    def at(self, times: Factor, weight: float) -> SpaceTime:
        """Return the penalty with times that have been observed: G_t, and n."""
        return replace(self, _observed=times.scaled(1.0 / weight))

    def gram(self, space: Space) -> Gram:
        """Λ_x ⊗ N, a term for each derivative in space, then M_x ⊗ Λ_t."""
        if self.criterion or self.along is None:
            raise still_to_be_chosen(self)
        if self._observed is None:
            raise ValueError(
                f"{self!r} depends on the times of the observations, which statistics know; call penalty.bound(gram, "
                "space) first"
            )
        _check(self, self.along, space)
        axis, own = space.names.index(self.along), without(space, self.along)
        places = [j for j in range(len(space.names)) if j != axis]

        def term(factors: tuple[Factor, ...], along: Factor) -> tuple[Factor, ...]:
            moved = (replace(f, axes=tuple(places[a] for a in f.axes)) for f in factors)
            return (*moved, along)

        masses = tuple(integral(own, j, 0) for j in range(len(own.names)))
        in_time = (factor for (factor,) in self.time.gram(only(space, [self.along])).terms)
        return Gram(
            (
                *(term(factors, self._observed) for factors in self.space.gram(own).terms),
                *(term(masses, replace(factor, axes=(axis,))) for factor in in_time),
            )
        )

    def to_dict(self) -> dict[str, Any]:
        """``{"kind": "space_time", "space": {...}, "time": {...}}``."""
        return {"kind": "space_time", "space": self.space.to_dict(), "time": self.time.to_dict()}

    @staticmethod
    def _of(data: Mapping[str, Any]) -> SpaceTime:
        space, time = (Penalty.from_dict(data[key]) for key in ("space", "time"))
        if not isinstance(space, Sobolev):
            raise ValueError(f"the space of a SpaceTime penalty is a Sobolev penalty, not {space!r}")
        return SpaceTime(space, time)

    def __repr__(self) -> str:
        return f"SpaceTime(space={penalty_code(self.space)}, time={penalty_code(self.time)})"

    def _names(self) -> set[str]:
        strengths = (part.strength for part in self.time.parts if isinstance(part, Roughness))
        return {name for x in strengths if isinstance(x, dict) for name in x}


Penalty.kinds["space_time"] = SpaceTime._of


def observed_times(gram: Gram, space: Space, name: str) -> tuple[Factor, float]:
    """G_t and n, the weight of all observed times: in G_t / n the function 1 has 1.

    It raises ValueError where G has no factor of this coordinate alone that the whole batch shares, or the basis has no
    constant.
    """
    axis = space.names.index(name)
    products = product_of(gram, space.frame), expected(gram, space.frame, axis)
    own = next((f for p in products if p is not None for f in p.factors if f.axes == (axis,)), None)
    if own is None:
        raise ValueError(
            f"a SpaceTime penalty needs a grid with nearly the same gaps and weights at all labels of {name!r} (in a "
            f"batch the same, of all members), and they differ: mask what is not there at all of them, as in "
            f"data.where(data.notnull().all({name!r})), pass weights without the dimension of {name!r}, fit members "
            "one by one, or pass penalty='reml', which takes any gaps and scattered data"
        )
    constant = space.frame.constant[axis]
    if not constant.any():
        raise ValueError(
            f"a SpaceTime penalty needs the constant among the functions of {name!r}; add xs.Polynomial(0)"
        )
    weight = float(constant @ alone((own,), (axis,)).matvec(constant, space.frame.along((axis,))))
    return own, weight if weight > 0 else 1.0


@functools.lru_cache(maxsize=64)
def without(space: Space, name: str) -> Space:
    """The space of all coordinates but one."""
    return only(space, [n for n in space.names if n != name])


def _check(penalty: SpaceTime, name: str, space: Space) -> None:
    if name not in space.names:
        raise ValueError(
            f"{penalty!r}: no coordinate {name!r} in this space, which has {', '.join(space.names)}"
        )
    if len(space.names) < 2:
        raise ValueError(
            f"{penalty!r}: there are no coordinates beside {name!r}; pass xs.Roughness for a line"
        )
