"""Families of roughness penalties by the order of derivatives: one order, or several in a metric of coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from xspline.solve.costs import Resources
from xspline.solve.direct.cholesky import Array
from xspline.solve.families.base import Family
from xspline.solve.families.determinant import Determinant, Spectrum, axis_spectrum, nullity, spectrum
from xspline.solve.penalties.roughness import Penalty, Roughness, spline_degrees
from xspline.solve.penalties.sea import Sea
from xspline.solve.penalties.sobolev import Sobolev, multi_indices
from xspline.spaces import Space
from xspline.sums import Gram
from xspline.sums.integrals import with_events


class SingleOrder(Family):
    """`Roughness` of one order: a strength for each coordinate, derivatives along one coordinate each.

    Events beside a trend have one of order 0 too.
    """

    where: Sea | None = None

    def __init__(self, space: Space, names: Sequence[str], order: int) -> None:
        super().__init__(space, names)
        self.order, self.events = order, tuple(n for n in with_events(space) if n in self.names)
        self.parameters = (*self.names, *(f"events along {name}" for name in self.events))
        self.design = np.eye(len(self.parameters))
        orders = [tuple(order * int(i == j) for j in range(len(names))) for i in range(len(names))]
        self.alphas = (*orders, *((0,) * len(names) for _ in self.events))
        # The order of derivatives that every term has at least along each coordinate.
        self.lowest = dict.fromkeys(self.names, order)

    def on(self, space: Space, gram: Gram) -> SingleOrder:
        return SingleOrder(space, self.names, self.order)

    @cached_property
    def free(self) -> list[Array]:
        axes = {name: axis_spectrum(self.alone, j, self.lowest[name]) for j, name in enumerate(self.names)}
        return [x.vectors[:, : x.free] if name in self.events else x.smooth for name, x in axes.items()]

    @cached_property
    def spectrum(self) -> Spectrum:
        """The eigenvalues of all terms."""
        return spectrum(self.space, self.names, self.order, self.events, self.log_null)

    @cached_property
    def shares(self) -> Array:
        owners = [*self.names, *self.events]
        return np.array([[float(owner == name) for owner in owners] for name in self.names])

    def penalty(self, rho: Array) -> Penalty:
        strengths = [float(x) for x in np.exp(rho)]
        rough = Roughness(dict(zip(self.names, strengths, strict=False)), self.order, where=self.where)
        if not self.events:
            return rough
        events = dict(zip(self.events, strengths[len(self.names) :], strict=True))
        return rough + Roughness(events, 0, where=self.where)

    def log_determinant(self, rho: Array, resources: Resources) -> Determinant:
        return self.spectrum.at(rho)


class OverSea(SingleOrder):
    """`Roughness` over the sea: Λ is factorised, and knows of constants alone along the coordinates of the mask."""

    where: Sea

    def __init__(self, space: Space, names: Sequence[str], order: int, where: Sea) -> None:
        super().__init__(space, names, order)
        self.where = where
        self.masked = tuple(space.names[j] for j in where.axes(space))
        self.lowest |= dict.fromkeys(self.masked, 1)

    def on(self, space: Space, gram: Gram) -> OverSea:
        return OverSea(space, self.names, self.order, self.where)

    def wiggly(self, v: Array, term: int, space: Space | None = None) -> Array:
        if term >= len(self.names):  # events cost themselves
            return v
        space = space or self.space
        own = self.masked if self.names[term] in self.masked else (self.names[term],)
        flat = v
        for name in own:
            axis = space.names.index(name)
            flat = flat - axis_spectrum(space, axis, self.lowest[name]).wiggly(flat, axis)
        return v - flat

    def log_determinant(self, rho: Array, resources: Resources) -> Determinant:
        return Family.log_determinant(self, rho, resources)


class SeveralOrders(Family):
    """`Sobolev`: a strength for each order, and how much each coordinate counts beside the first."""

    def __init__(self, space: Space, names: Sequence[str], orders: Sequence[int]) -> None:
        super().__init__(space, names)
        self.orders = tuple(orders)
        self.parameters = (*(f"order {k}" for k in orders), *self.names[1:])
        self.alphas = tuple(alpha for k in orders for alpha in multi_indices(len(names), k))
        self.design = design_of_orders(self.orders, self.alphas)
        self.metric = self.names

    @property
    def free(self) -> list[Array]:
        return [constant[:, None] for constant in self.alone.frame.constant]

    def on(self, space: Space, gram: Gram) -> SeveralOrders:
        return SeveralOrders(space, self.names, self.orders)

    def penalty(self, rho: Array) -> Sobolev:
        numbers = [float(x) for x in np.exp(rho)]
        orders = dict(zip(self.orders, numbers, strict=False))
        return Sobolev(orders, dict(zip(self.names, [1.0, *numbers[len(orders) :]], strict=True)))


def design_of_orders(orders: Sequence[int], alphas: Sequence[Sequence[int]]) -> Array:
    """Return D for strengths of orders and a metric in which the first coordinate counts 1, [T, J]."""
    return np.array([[*(float(sum(alpha) == k) for k in orders), *alpha[1:]] for alpha in alphas])


def smoothed(space: Space, method: str) -> tuple[str, ...]:
    """Return the coordinates with a B-spline, which are smoothed.

    It raises ValueError where there is no B-spline, or one has degree 0.
    """
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
    """Return the penalties of several orders; None where the space has no such derivatives or falls apart at a knot."""
    degrees = spline_degrees(space)
    if min(degrees[name] for name in names) < max(orders):
        return None
    if any(nullity(space, space.names.index(name), 1) > 1 for name in names):
        return None
    return SeveralOrders(space, names, orders)
