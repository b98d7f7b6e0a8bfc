"""The family of `SpaceTime` penalties, and their log-determinant mode by mode of time.

It has strengths of the orders of derivatives and a metric in space, and of roughness and mass of events in time.

log|Λ|₊ comes mode by mode of time: with Tᵀ G_t T = diag(γ) and Tᵀ Λ_t T = diag(r) it is that of γ_k/n Λ_x + r_k M_x,
summed, less 2 P_x log|T|. The m modes of season and trend, where r is 0, leave constants in space free; there one entry
δ on the diagonal takes these away, as in `pinned`. With T_0 these modes it is log|T_0ᵀT_0| more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from scipy import linalg

from xspline.solve.costs import Resources
from xspline.solve.direct.cholesky import Array
from xspline.solve.errors import SingularSystemError
from xspline.solve.families.base import Family
from xspline.solve.families.determinant import Factorised, OfFactors, Pin, axis_spectrum
from xspline.solve.families.orders import design_of_orders, several_orders
from xspline.solve.kronecker.product import (
    AxisGroup,
    Product,
    Split,
    balanced,
    dense_of,
    nearly_split,
    product_of,
    split,
)
from xspline.solve.kronecker.separable import Eigen, Separable
from xspline.solve.penalties.roughness import Penalty, Roughness, spline_degrees
from xspline.solve.penalties.sobolev import Sobolev, multi_indices
from xspline.solve.penalties.space_time import SpaceTime, observed_times, without
from xspline.solve.system import Choice, Factorisation
from xspline.spaces import Frame, Space
from xspline.sums import Gram
from xspline.sums.integrals import with_events


class SpaceTimes(Family):
    """`SpaceTime`: a strength for each order in space, how much each coordinate counts, roughness and mass in time.

    `names` are all coordinates of the space, of which `along` is time. `orders` of derivatives are those in space, the
    first of which is 1, and `order` is that in time. `gram` is G, which has a factor of its own along time.
    """

    def __init__(
        self, space: Space, names: Sequence[str], along: str, orders: Sequence[int], order: int, gram: Gram
    ) -> None:
        super().__init__(space, names)
        self.along = along
        self.orders = tuple(orders)
        self.order = order
        self.times, self.weight = observed_times(gram, space, along)
        self.events = along in with_events(space)
        self.own = without(space, along)
        self.axis = space.names.index(along)
        place = self.names.index(along)
        count = len(self.names)
        in_space = [alpha for k in orders for alpha in multi_indices(count - 1, k)]
        self.in_space = len(in_space)  # terms
        in_time = [(0,) * place + (k,) + (0,) * (count - 1 - place) for k in (order, 0)[: 1 + self.events]]
        self.alphas = (*((*a[:place], 0, *a[place:]) for a in in_space), *in_time)
        others = [name for name in self.names if name != along]
        self.parameters = (*(f"order {k}" for k in orders), *others[1:], along)
        if self.events:
            self.parameters += (f"events along {along}",)
        self.design = linalg.block_diag(design_of_orders(orders, in_space), np.eye(len(in_time)))
        self.metric = tuple(others)

    @property
    def free(self) -> list[Array]:
        constants = dict(zip(self.space.names, self.space.frame.constant, strict=True))
        return [self.still if name == self.along else constants[name][:, None] for name in self.names]

    @cached_property
    def still(self) -> Array:
        """Functions of time that cost nothing, season and trend, orthonormal over the domain: [K_t, m]."""
        spectrum = axis_spectrum(self.space, self.axis, self.order)
        return spectrum.vectors[:, : spectrum.free] if self.events else spectrum.smooth

    @cached_property
    def shares(self) -> Array:
        alphas = np.array(self.alphas, dtype=float)
        alphas[self.in_space :, self.names.index(self.along)] = 1.0
        return np.asarray((alphas / alphas.sum(axis=1, keepdims=True)).T)

    def on(self, space: Space, gram: Gram) -> SpaceTimes:
        return SpaceTimes(space, self.names, self.along, self.orders, self.order, gram)

    def penalty(self, rho: Array) -> SpaceTime:
        numbers = [float(x) for x in np.exp(rho)]
        count = len(self.orders)
        others = [name for name in self.names if name != self.along]
        metric = dict(zip(others, [1.0, *numbers[count:]], strict=False))
        in_time = numbers[count + len(others) - 1 :]
        time: Penalty = Roughness({self.along: in_time[0]}, self.order)
        if self.events:
            time = time + Roughness({self.along: in_time[1]}, 0)
        in_space = Sobolev(dict(zip(self.orders, numbers, strict=False)), metric)
        return SpaceTime(in_space, time).at(self.times, self.weight)

    def log_determinant(self, rho: Array, resources: Resources) -> OfFactors:
        """Return it by modes of time; raises SingularSystemError where the strengths are too far apart for float64."""
        frame = self.space.frame
        matrix = self.penalty(rho).gram(self.space)
        axes = [j for j in range(len(frame.sizes)) if j != self.axis]
        middle = [[frame.sizes[j] // 2] for j in axes]
        pin = Pin.at(frame, axes, middle, [frame.constant[j][:, None] for j in axes])
        parts = split(Product((*pin.factors, self.times), np.ones(())), matrix, frame)
        if parts is None or not parts.beside.terms:
            raise SingularSystemError("season, trend and events are not told apart at these strengths")
        modes = _PinnedModes(parts, frame, self.null, pin.place, resources)
        if not modes.determined.all():
            raise SingularSystemError("the log-determinant of the penalty has no value at these strengths")
        factorisation = Factorisation(Choice("separable", "log-determinant", 0, 0.0), modes, modes.determined)
        system = Factorised(factorisation, matrix, frame, self.wiggly, resources, steering=True)
        (times,) = parts.others
        data, rough = (dense_of(factors, times.axes, frame) for factors in (times.factors, times.mass))
        still = self.still
        along = np.linalg.slogdet(still.T @ still)[1]
        along -= np.linalg.slogdet(still.T @ balanced(data, rough)[0] @ still)[1]
        return OfFactors(system, 1, float(along) + self.null * (pin.log_squares - math.log(modes.pin)))

    def stopped(self, sides: Mapping[str, str]) -> dict[str, str]:
        at_bounds = super().stopped(sides)
        # Where there are none, their roughness tells nothing.
        if sides.get(f"events along {self.along}") == "upper":
            at_bounds[self.along] = "upper"
        return at_bounds


class _PinnedModes(Separable):
    """The modes of Λ alone, where those of season and trend have one entry more on the diagonal.

    `split` is that of the entry, 1, and the penalty, and `pin` the entry as it is added. It goes to `null` modes, those
    with the least roughness, and belongs to the coefficient `place` in space.
    """

    def __init__(
        self, split: Split, frame: Frame, null: int, place: tuple[int, ...], resources: Resources
    ) -> None:
        self.null = null
        self.place = place
        self.pin = 1.0
        super().__init__(split, frame, resources.bytes_kept(True), resources)

    def _eigen(self, block: AxisGroup, pair: bool) -> Eigen:
        own = super()._eigen(block, pair)
        if own.rough is None:
            return own
        values = own.values.copy()
        rough = own.rough.copy()
        self.still = np.argsort(rough, kind="stable")[: self.null]
        values[self.still] = values.max()
        rough[self.still] = 0.0
        return replace(own, values=values, rough=rough)

    def _multiples(self, v: Array) -> Array:
        (times,) = self.parts
        self.pin = float(self.beside.diagonal(self.own)[self.place]) * float(times.values.max())
        pinned = np.isin(np.arange(times.values.size), self.still)
        return np.asarray(v[..., None] * np.where(pinned, self.pin, 0.0))


def space_times(gram: Gram, space: Space, names: Sequence[str], requested: SpaceTime) -> SpaceTimes:
    """Return the family of a `SpaceTime` penalty whose strengths are to be chosen.

    It raises ValueError where it is not told which coordinate is time, or that has no factor of its own in G; where a
    coordinate has no B-spline, degrees are too low for the orders in space, or straight lines cost nothing there; and
    where the observed times do not determine season and trend.
    """
    along = _time(space)
    plain = [name for name in space.names if name not in names]
    if plain or len(space.names) < 2:
        why = f"{plain[0]!r} has no B-spline" if plain else f"there is none beside {along!r}"
        raise ValueError(
            f"a SpaceTime penalty smooths all coordinates, of which one is time, and {why}; pass penalty='reml'"
        )
    own = without(space, along)
    orders = tuple(requested.space.orders)
    if 1 not in orders or several_orders(own, own.names, orders) is None:
        degrees = ", ".join(f"{name} {degree}" for name, degree in spline_degrees(own).items())
        raise ValueError(
            f"a SpaceTime penalty needs order 1 in space, and degrees of at least its orders {orders} without repeated "
            f"knots; the degrees are {degrees}"
        )
    order = min(
        max(p.order for p in requested.time.parts if isinstance(p, Roughness)), spline_degrees(space)[along]
    )
    family = SpaceTimes(space, names, along, orders, order, gram)
    frame = space.frame
    matrix = family.unit.gram(space)
    product = product_of(gram, frame)
    apart = product is not None and split(product, matrix, frame) is not None
    if not apart and nearly_split(gram, matrix, frame) is None:
        raise ValueError(
            f"the observed labels of {along!r} do not determine season and trend beside the events; use fewer "
            "functions there"
        )
    return family


def _time(space: Space) -> str:
    """Return the only coordinate that may be time: that with events, else that whose labels say so."""
    axes = {name: space.axis(name) for name in space.names}
    told = with_events(space) or tuple(n for n, axis in axes.items() if "time" in (axis.role, axis.kind))
    if len(told) != 1:
        which = f"{', '.join(told)} may be" if told else "none is known to be"
        raise ValueError(
            f"SpaceTime: of the coordinates {', '.join(space.names)} {which} time; name one, with all strengths, as in "
            'xs.SpaceTime(xs.Sobolev({1: 1e-2, 2: 1e-4}), xs.Roughness({"time": 1e-3}))'
        )
    return told[0]
