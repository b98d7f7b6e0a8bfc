"""The Sobolev penalty: roughness of several orders with all mixed derivatives, in one metric of the coordinates."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xspline.arguments import brief, is_integer
from xspline.solve.kronecker.product import scaled_term
from xspline.solve.penalties.roughness import (
    AUTOMATIC,
    Penalty,
    check_names,
    checked_criterion,
    checked_strength,
    spline_degrees,
    still_to_be_chosen,
)
from xspline.spaces import Space
from xspline.sums import Gram
from xspline.sums.integrals import roughness


@dataclass(frozen=True, init=False, repr=False)
class Sobolev(Penalty):
    """Σ_k τ_k Σ_|α|=k (k!/α!) Π_j m_j^α_j ∫ (∂^α u)² dξ over the domain, every coordinate scaled to ξ in [0, 1].

    The sum of Sobolev seminorms of several orders k, each with all its mixed derivatives, in a metric m that says how
    much a change along one coordinate counts beside one along another: Σ_k τ_k ∫ |∇^k u|² with ∇_j = √m_j ∂/∂ξ_j. It is
    the norm of variational analysis in oceanography (Brasseur 1991) without its term of order 0. As a prior, order 1 is
    a rough field, whose values know of their neighbours only, and order 2 a smooth one; τ_2/τ_1 is the square of the
    length below which the field is smooth. Constants cost nothing.

    Parameters
    ----------
    orders : mapping of int to float, or sequence of int
        τ_k ≥ 0 of each order k ≥ 1; or the orders alone, whose τ_k and m_j a criterion is to choose.
    metric : mapping of coordinate name to float, optional
        m_j > 0 of every coordinate that is smoothed; None: 1 for each that has B-splines.
    criterion : {"reml", "gcv", "holders"}
        What chooses, where `orders` are without strengths.

    Examples
    --------
    >>> import xspline as xs
    >>> xs.Sobolev({1: 0.04, 2: 8e-5}, {"lat": 1.0, "lon": 0.9})
    Sobolev({1: 0.04, 2: 8e-05}, {'lat': 1.0, 'lon': 0.9})
    """

    _orders: tuple[tuple[int, float | None], ...]
    _metric: tuple[tuple[str, float], ...] | None
    _criterion: str

    def __init__(
        self,
        orders: Mapping[int, float] | Sequence[int] = (1, 2),
        metric: Mapping[str, float] | None = None,
        criterion: str = AUTOMATIC[0],
    ) -> None:
        given: dict[int, float | None] = {}
        if not isinstance(orders, Mapping | Sequence | set | np.ndarray) or getattr(orders, "ndim", 1) == 0:
            raise TypeError(
                "Sobolev: orders are a list of them, (1, 2), or a mapping to strengths, {1: 1e-2, 2: 1e-4}, not "
                f"{orders!r}"
            )
        for order in orders:
            if not is_integer(order) or order < 1:
                raise ValueError(f"Sobolev: orders are integers of at least 1, not {order!r}")
            x = orders[order] if isinstance(orders, Mapping) else None
            given[int(order)] = None if x is None else checked_strength(x, f"Sobolev, order {order}")
        if not given:
            raise ValueError("Sobolev: there are no orders; pass penalty=0 for none")
        object.__setattr__(self, "_orders", tuple(sorted(given.items())))
        if not isinstance(metric, Mapping | None):
            raise TypeError(f"Sobolev: the metric is a mapping from names to numbers, not {brief(metric)}")
        frozen = None
        if metric is not None and None in given.values():
            raise ValueError(
                f"Sobolev: a metric without strengths; pass Sobolev({{{min(given)}: 1e-2}}, {dict(metric)!r}), or "
                "leave the metric out, which is chosen with them"
            )
        if metric is not None:
            frozen = tuple(
                (str(name), checked_strength(x, f"Sobolev, metric of {name!r}")) for name, x in metric.items()
            )
            if not frozen or min(x for _, x in frozen) == 0:
                raise ValueError(
                    f"Sobolev: the metric has a positive number for each coordinate, not {metric!r}"
                )
        object.__setattr__(self, "_metric", frozen)
        object.__setattr__(self, "_criterion", checked_criterion(criterion, "Sobolev: the criterion"))

    @property
    def orders(self) -> dict[int, float | None]:
        """τ_k by order; None where they are to be chosen."""
        return dict(self._orders)

    @property
    def criterion(self) -> str | None:
        return self._criterion if None in dict(self._orders).values() else None

    def metric(self, space: Space) -> dict[str, float]:
        """m_j of every coordinate of `space` that is smoothed.

        Raises
        ------
        ValueError
            A name that the space does not have; an order above what the basis of a coordinate has; no metric and a
            space without any B-spline.
        """
        metric = dict.fromkeys(spline_degrees(space), 1.0) if self._metric is None else dict(self._metric)
        top = max(dict(self._orders))
        check_names(self, metric, space)
        if not metric:
            raise ValueError(
                f"{self!r} smooths B-spline coordinates and none of {', '.join(space.names)} has one; pass penalty=0"
            )
        for name in metric:
            most = space.features[space.names.index(name)].max_order
            if most is not None and top > most:
                raise ValueError(
                    f"{self!r}: the basis of {name!r} has derivatives up to order {most}, not {top}; leave order {top} "
                    "out, or use a higher degree"
                )
        return metric

    def gram(self, space: Space) -> Gram:
        """Σ_k τ_k Σ_α (k!/α!) m^α ⊗_j R_j^(α_j), with the mass matrix where α_j is 0: a term for each α."""
        if self.criterion:
            raise still_to_be_chosen(self)
        metric, terms = self.metric(space), []
        for order, strength in self._orders:
            if strength:
                for alpha in multi_indices(len(metric), order):
                    scale = math.prod(m**a for m, a in zip(metric.values(), alpha, strict=True))
                    ways = math.factorial(order) // math.prod(map(math.factorial, alpha))
                    along = dict(zip(metric, alpha, strict=True))
                    factors = [roughness(space, j, along.get(name, 0)) for j, name in enumerate(space.names)]
                    terms.append(scaled_term(factors, strength * scale * ways))
        return Gram(tuple(terms))

    def to_dict(self) -> dict[str, Any]:
        """``{"kind": "sobolev", "orders": {k: τ_k}, "metric": {name: m_j}}``, or orders alone and the criterion."""
        metric = None if self._metric is None else dict(self._metric)
        if self.criterion:
            own: dict[str, Any] = {"orders": list(self.orders), "metric": metric, "criterion": self.criterion}
        else:
            own = {"orders": {str(order): x for order, x in self._orders}, "metric": metric}
        return {"kind": "sobolev", **own}

    @staticmethod
    def _of(data: Mapping[str, Any]) -> Sobolev:
        orders = data["orders"]
        if isinstance(orders, dict):  # JSON knows no integers as keys
            orders = {int(order): x for order, x in orders.items()}
        return Sobolev(orders, data["metric"], data.get("criterion", AUTOMATIC[0]))

    def __repr__(self) -> str:
        orders = tuple(self.orders) if self.criterion else self.orders
        metric = "" if self._metric is None else f", {dict(self._metric)!r}"
        chosen = f", criterion={self._criterion!r}" if self.criterion else ""
        return f"Sobolev({orders!r}{metric}{chosen})"


Penalty.kinds["sobolev"] = Sobolev._of


def multi_indices(count: int, order: int) -> list[tuple[int, ...]]:
    """Return all α of so many coordinates with |α| equal to the order, the first coordinates first."""
    places = itertools.combinations_with_replacement(range(count), order)
    return [tuple(chosen.count(j) for j in range(count)) for chosen in places]
