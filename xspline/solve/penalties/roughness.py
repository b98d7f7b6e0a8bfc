"""Penalties: ridge, roughness (integrated squared derivatives) and sums of them, as matrices on any Space."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xspline import notebook
from xspline.arguments import NotAnArray, is_integer, is_number
from xspline.solve.kronecker.product import scaled_term
from xspline.solve.penalties import sphere
from xspline.solve.penalties.sea import Sea
from xspline.spaces import BSpline, Space
from xspline.spaces.basis import plain_number, terms_of
from xspline.sums import Gram
from xspline.sums.integrals import factor_of, integral, roughness, spline_mass

AUTOMATIC = ("reml", "gcv", "holders")


class Penalty(NotAnArray, ABC):
    """A quadratic form cᵀΛc that a fit adds to the sum of squares; penalties add with ``+``."""

    kinds: ClassVar[dict[str, Callable[[Mapping[str, Any]], Penalty]]] = {}  # of other modules

    @abstractmethod
    def gram(self, space: Space) -> Gram:
        """Λ on the coefficients of `space`: a sum of products of single-axis factors, without batch axes."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Plain data (JSON) from which `from_dict` rebuilds the penalty."""

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Penalty:
        """The penalty that `to_dict` described."""
        kind = data.get("kind")
        if kind == "ridge":
            return Ridge(data["strength"])
        if kind == "roughness":
            where = data.get("where") and Sea.from_dict(data["where"])
            return Roughness(data["strength"], data["order"], data.get("geometry"), where=where)
        if kind == "sum":
            return PenaltySum(tuple(Penalty.from_dict(part) for part in data["parts"]))
        if kind in Penalty.kinds:
            return Penalty.kinds[kind](data)
        known = ", ".join(map(repr, ("ridge", "roughness", "sum", *Penalty.kinds)))
        raise ValueError(f"unknown kind of penalty {kind!r}: known are {known}")

    def bound(self, gram: Gram, space: Space) -> Penalty:
        """The penalty as it is for these statistics: few kinds depend on where there are observations."""
        return self

    def obeyed(self, c: NDArray[np.float64], space: Space) -> NDArray[np.float64]:
        """Coefficients, [K.., b..], with what the penalty asks for exactly; most kinds ask for nothing."""
        return c

    @property
    def parts(self) -> tuple[Penalty, ...]:
        """The penalties that this one adds up."""
        return (self,)

    def elements(self, space: Space) -> tuple[Penalty, ...]:
        """Its parts, with those that one of them is made of in its place."""
        return (self,)

    @property
    def criterion(self) -> str | None:
        """The criterion that is to choose its strengths: "reml", "gcv" or "holders"; None where they are given."""
        return None

    _repr_html_ = notebook.of_parts

    def __add__(self, other: Penalty) -> PenaltySum:
        if not isinstance(other, Penalty):
            raise self.unlike(other)
        if hasattr(other, "__radd__"):  # such a one adds itself
            return NotImplemented
        for part in (self, other):
            if part.criterion:
                raise ValueError(
                    f"{part!r} is to be chosen by {part.criterion!r}, which chooses a penalty alone and no sum; pass "
                    "its strength as a number"
                )
        return PenaltySum(self.parts + other.parts)


@dataclass(frozen=True, repr=False)
class Ridge(Penalty):
    """λ‖c‖²: every coefficient is drawn to zero.

    Parameters
    ----------
    strength : float
        λ ≥ 0, in the units of the weights; 0 is no penalty.
    """

    strength: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "strength", checked_strength(self.strength, "Ridge"))

    def gram(self, space: Space) -> Gram:
        """λ times the identity; no terms when λ is 0."""
        if not self.strength:
            return Gram(())
        factors = []
        for axis, extents in enumerate(zip(space.shape, space.offsets, strict=True)):
            pairs = np.zeros(extents)
            pairs[:, 0] = 1.0
            factors.append(factor_of(axis, pairs, "identity"))
        return Gram((scaled_term(factors, self.strength),))

    def to_dict(self) -> dict[str, Any]:
        """``{"kind": "ridge", "strength": λ}``."""
        return {"kind": "ridge", "strength": self.strength}

    def __repr__(self) -> str:
        return f"Ridge({self.strength!r})"


@dataclass(frozen=True, init=False, repr=False)
class Roughness(Penalty):
    """Σ_j λ_j ∫ (∂^order u / ∂ξ_j^order)² dξ over the domain, every coordinate scaled to ξ in [0, 1].

    Along a union with a B-spline it is that of the B-spline: season and trend cost nothing, and are independent of it
    where another coordinate is smoothed. Events beside a trend (`Union`) cost ∫ e² too, little beside their roughness,
    because nothing else would tell those that are straight lines from the trend.

    The scaling makes λ independent of units and of the number of knots.

    Parameters
    ----------
    strength : float, mapping of coordinate name to float, or {"reml", "gcv", "holders"}
        λ_j ≥ 0. A number applies to every coordinate whose basis is a BSpline or a union that holds one;
        coordinates left out of a mapping are not smoothed. The name of a criterion: `fit` chooses one λ_j for each
        coordinate with B-splines.
    order : int
        Order of the derivative, at most the degree of each B-spline it applies to. Order 0 draws values to zero, along
        a union those of its B-spline.
    geometry : {"sphere"}, optional
        Latitude and longitude are smoothed together, by λ_sphere / A ∫ |∇∇u|² + |∇u|² dA on the sphere of radius 1, A
        the area of the domain: on a whole sphere λ_sphere times the mean of (Δu)², the same in all directions and
        at all latitudes. The other coordinates have a λ_j each, and means over the sphere. A mapping says ``"sphere"``
        for both. Where a domain reaches a pole, values and slopes there are single-valued. Of order 2 only, along
        latitude with a B-spline of degree 2 or more, along longitude with such a one or a Fourier series, of
        period 360° if they go all the way round.
    where : DataArray of bool, optional
        True where there is sea. Roughness is integrated over the cells of these labels alone, so that waters on two
        sides of land know nothing of each other, and what is predicted on land means nothing. Its dimensions are fitted
        coordinates with B-splines; a cell reaches half-way to the next labels, and the cells cover the domain. Land is
        a wall where it holds as many whole knot intervals as the degree, and meets other land along sides and not at
        corners alone: one cell wide, it takes 3 intervals of cubic B-splines in each cell, with knots on its borders,
        or degree 1 and order 1. A fit warns where functions reach over land. Strengths are numbers, or "reml".

    Examples
    --------
    >>> import xspline as xs
    >>> xs.Roughness({"lat": 1e-4, "lon": 1e-4})
    Roughness({'lat': 0.0001, 'lon': 0.0001}, order=2)

    A field on the sphere, single-valued at the pole:

    >>> import numpy as np, xarray as xr
    >>> lat, lon = np.arange(-87.5, 90, 5), np.arange(0, 360, 10.0)
    >>> hills = np.sin(np.deg2rad(lat))[:, None] + np.cos(np.deg2rad(lat))[:, None] * np.sin(np.deg2rad(lon))
    >>> hills += np.random.default_rng(0).normal(0, 0.1, hills.shape)
    >>> data = xr.DataArray(hills, {"lat": lat, "lon": lon}, name="height")
    >>> field = data.spline.fit(
    ...     lat=xs.BSpline(16, domain=(-90, 90)), lon=18, penalty=xs.Roughness("reml", geometry="sphere")
    ... )
    >>> pole = field.predict({"lat": [90.0], "lon": [0.0, 90.0, 180.0]})
    >>> float(pole.max() - pole.min()) < 1e-12
    True

    Two basins, with a wall of one cell between them and no data near it:

    >>> x = np.arange(0.5, 11)
    >>> level = xr.DataArray(np.where(x < 5.5, 1.0, 5.0), {"x": x}, name="level")
    >>> data, basis = level.where(abs(level.x - 5.5) > 2), xs.BSpline(3 * 11 + 3, domain=(0, 11))
    >>> for penalty in xs.Roughness(1e-3), xs.Roughness(1e-3, where=level.x != 5.5):
    ...     print(data.spline.fit(x=basis, penalty=penalty).predict(x=[4.5, 6.5]).values.round(3))
    [2.317 3.683]
    [1. 5.]
    """

    order: int
    _strength: float | str | tuple[tuple[str, float], ...]
    geometry: str | None
    where: Sea | None
    _weight: float = field(default=1.0, compare=False)  # of the observations, see `bound`

    def __init__(
        self,
        strength: float | str | Mapping[str, float] = AUTOMATIC[0],
        order: int = 2,
        geometry: str | None = None,
        *,
        where: Any = None,
    ) -> None:
        if geometry not in (None, sphere.NAME):
            raise ValueError(f"Roughness: unknown geometry {geometry!r}; pass 'sphere', or leave it out")
        if geometry and where is not None:
            raise ValueError("Roughness: walls are on a plane: pass where= or geometry=, one of them")
        if not is_integer(order) or order < 0:
            raise ValueError(
                f"Roughness: order is the integer order of a derivative, at least 0, not {order!r}"
            )
        if geometry and order != 2:
            raise ValueError(
                f"Roughness: on the sphere roughness is of order 2, not {order}; leave order or geometry out"
            )
        object.__setattr__(self, "order", int(order))
        object.__setattr__(self, "geometry", geometry)
        frozen: float | str | tuple[tuple[str, float], ...]
        if isinstance(strength, str):
            frozen = checked_criterion(strength, "Roughness: the strength")
            if not order:
                raise ValueError(
                    f"Roughness: a strength of order 0 is not chosen by {strength!r}; pass a number"
                )
        elif not isinstance(strength, Mapping):
            frozen = checked_strength(strength, "Roughness")
        elif strength:
            numbers = (
                (str(name), checked_strength(x, f"Roughness of {name!r}")) for name, x in strength.items()
            )
            frozen = tuple(sorted(numbers))
        else:
            raise ValueError("Roughness: the mapping of names to strengths is empty; pass penalty=0 for none")
        object.__setattr__(self, "_strength", frozen)
        object.__setattr__(self, "where", None if where is None else Sea.of(where))
        if self.where is not None and self.criterion not in (None, AUTOMATIC[0]):
            raise ValueError(
                f"Roughness: with where= strengths are numbers or chosen by 'reml', not by {self.criterion!r}"
            )

    @property
    def strength(self) -> float | str | dict[str, float]:
        """λ as it was given: one number, a mapping of coordinate name to number, or the name of a criterion."""
        return dict(self._strength) if isinstance(self._strength, tuple) else self._strength

    @property
    def criterion(self) -> str | None:
        return self._strength if isinstance(self._strength, str) else None

    def strengths(self, space: Space) -> dict[str, float]:
        """λ_j of every coordinate of `space` that is smoothed, of latitude and longitude together as "sphere".

        Raises
        ------
        ValueError
            A name that the space does not have; an order above what the basis of a coordinate has; a number
            for a space without any B-spline; no sphere.
        """
        if isinstance(self._strength, str):
            raise still_to_be_chosen(self)
        axes = sphere.sphere_of(space, repr(self)).axes if self.geometry else ()
        owners = {name: sphere.NAME if j in axes else name for j, name in enumerate(space.names)}
        if isinstance(self._strength, tuple):
            given = dict(self._strength)
            if apart := [name for name in given if owners.get(name, name) != name]:
                raise ValueError(
                    f"{self!r}: {apart[0]!r} has no strength of its own on the sphere; pass {{'sphere': "
                    f"{given[apart[0]]!r}}} for latitude and longitude together"
                )
        else:
            given = dict.fromkeys([owners[name] for name in spline_degrees(space)], self._strength)
        check_names(self, {name: x for name, x in given.items() if name not in owners.values()}, space)
        chosen = {name: given[owner] for name, owner in owners.items() if owner in given}
        if not chosen:
            raise ValueError(
                f"{self!r} applies to B-spline coordinates and none of {', '.join(space.names)} has one; name some, "
                f"as in Roughness({{{space.names[0]!r}: {self._strength!r}}}), or pass penalty=0"
            )
        for name, features in zip(space.names, space.features, strict=True):
            if chosen.get(name) and features.max_order is not None and self.order > features.max_order:
                raise ValueError(
                    f"{self!r}: the basis of {name!r} has derivatives up to order {features.max_order}, not "
                    f"{self.order}; pass order={features.max_order} or leave {name!r} out of the mapping"
                )
        return {name: x for name, x in given.items() if x}

    def gram(self, space: Space) -> Gram:
        """Σ_j λ_j R_j ⊗ M_rest, R_j roughness and M_i mass matrices: a term for each smoothed coordinate.

        On the sphere three terms come first, and the mass of latitude is weighted by its cosine. Two more are those of
        its poles, where there are any, which do not hang on a strength.
        """
        strengths = self.strengths(space)
        mass = [integral(space, j, 0) for j in range(len(space.names))]
        masked = () if self.where is None else self.where.axes(space)
        terms = []
        if self.geometry:
            own = sphere.sphere_of(space, repr(self))
            rough_terms, weighted = sphere.factors(space, own)
            mass[own.latitude] = weighted
            if sphere.NAME in strengths:
                scaled = [(along, strengths[sphere.NAME]) for along in rough_terms]
                scaled += [(along, self._weight) for along in sphere.at_poles(space, own)]
                for along, x in scaled:
                    product = mass.copy()
                    product[own.latitude], product[own.longitude] = along
                    terms.append(scaled_term(product, x))
        for j, name in enumerate(space.names):
            if name in strengths:
                factors = [factor for i, factor in enumerate(mass) if i not in {j, *masked}]
                if self.where is not None:
                    factors.append(self.where.factor(space, j, self.order if j in masked else 0))
                if j not in masked:
                    factors.append(roughness(space, j, self.order) if self.order else spline_mass(space, j))
                terms.append(scaled_term(factors, strengths[name]))
        return Gram(tuple(terms))

    def bound(self, gram: Gram, space: Space) -> Roughness:
        """The penalty that is as strict at the poles as the weight of these statistics asks for."""
        return self.at(sphere.weight_of(gram, space)) if self.geometry else self

    def at(self, weight: float) -> Roughness:
        """The penalty for observations of this weight, Σw."""
        own = copy.copy(self)
        object.__setattr__(own, "_weight", weight)
        return own

    def obeyed(self, c: NDArray[np.float64], space: Space) -> NDArray[np.float64]:
        """Coefficients that are single-valued at the poles, where the sphere is smoothed."""
        if self.geometry is None or sphere.NAME not in self.strengths(space):
            return c
        return sphere.single_valued(c, space, sphere.sphere_of(space, repr(self)))

    def to_dict(self) -> dict[str, Any]:
        """``{"kind": "roughness", "strength": λ, {name: λ} or a criterion, "order": order}``; geometry; where."""
        own = {"kind": "roughness", "strength": self.strength, "order": self.order}
        own |= {"geometry": self.geometry} if self.geometry else {}
        return own | ({"where": self.where.to_dict()} if self.where else {})

    def __repr__(self) -> str:
        geometry = f", geometry={self.geometry!r}" if self.geometry else ""
        where = f", where={self.where!r}" if self.where else ""
        return f"Roughness({self.strength!r}, order={self.order}{geometry}{where})"


@dataclass(frozen=True, repr=False)
class PenaltySum(Penalty):
    """Several penalties at once, as ``+`` adds them."""

    _parts: tuple[Penalty, ...]

    @property
    def parts(self) -> tuple[Penalty, ...]:
        """The penalties that this one adds up."""
        return self._parts

    def gram(self, space: Space) -> Gram:
        """The terms of all parts, in their order."""
        return Gram(tuple(term for part in self.parts for term in part.gram(space).terms))

    def obeyed(self, c: NDArray[np.float64], space: Space) -> NDArray[np.float64]:
        for part in self.parts:
            c = part.obeyed(c, space)
        return c

    def elements(self, space: Space) -> tuple[Penalty, ...]:
        return tuple(element for part in self.parts for element in part.elements(space))

    def bound(self, gram: Gram, space: Space) -> PenaltySum:
        return PenaltySum(tuple(part.bound(gram, space) for part in self.parts))

    def to_dict(self) -> dict[str, Any]:
        """``{"kind": "sum", "parts": [...]}``."""
        return {"kind": "sum", "parts": [part.to_dict() for part in self.parts]}

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.parts))


def as_penalty(value: Any, space: Space) -> Penalty | str:
    """The penalty that a user's argument means, or the name of the criterion that is to choose one.

    The value is None, a number, str or Penalty. A number is a ridge, 0 no penalty; None is "reml" where `space` has
    B-splines, all of degree 1 or more, else no penalty. A penalty may leave its strengths to a criterion, see
    `criterion_of`. It raises ValueError for a negative or non-finite number and for the name of no criterion, TypeError
    for anything else.
    """
    if value is None:
        degrees = spline_degrees(space).values()
        return AUTOMATIC[0] if min(degrees, default=0) >= 1 else Ridge(0.0)
    if isinstance(value, Penalty):
        return value
    if isinstance(value, str):
        return checked_criterion(value, "penalty")
    value = plain_number(value)
    if is_number(value):
        return Ridge(float(value))
    raise TypeError(
        f"penalty={value!r} is not a penalty; pass a number for a ridge (penalty=1e-3), xs.Ridge(1e-3), "
        'xs.Roughness(1e-4), xs.Sobolev({1: 1e-2, 2: 1e-4}), xs.SpaceTime(), xs.Physics(...), a sum, "reml", "gcv" or '
        '"holders" to have one chosen, or 0 for none'
    )


def criterion_of(requested: Penalty | str) -> str | None:
    """The criterion that is to choose a penalty, or its strengths; None where they are given."""
    return requested if isinstance(requested, str) else requested.criterion


def penalises_roughness(value: Any) -> bool:
    """Whether what a user passes as penalty will be more than a ridge or nothing."""
    if isinstance(value, Penalty):
        return not all(isinstance(part, Ridge) for part in value.parts)
    return not isinstance(value, Real)


def penalty_code(penalty: Penalty | str) -> str:
    """A penalty, or the name of a criterion, as Python with ``import xspline as xs``."""
    return repr(penalty) if isinstance(penalty, str) else " + ".join(f"xs.{part!r}" for part in penalty.parts)


def rounded(penalty: Penalty) -> Penalty:
    """A penalty whose strengths have three digits, to be read."""
    if isinstance(penalty, PenaltySum):
        return PenaltySum(tuple(rounded(part) for part in penalty.parts))

    def read(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: x if key == "where" else read(x) for key, x in value.items()}
        if isinstance(value, list):
            return [read(x) for x in value]
        return float(f"{value:.3g}") if isinstance(value, float) else value

    return Penalty.from_dict(read(penalty.to_dict()))


def checked_criterion(value: str, what: str) -> str:
    if not (isinstance(value, str) and value in AUTOMATIC):
        raise ValueError(f"{what}={value!r} is no criterion; use one of {', '.join(map(repr, AUTOMATIC))}")
    return value


def check_names(penalty: Penalty, given: Mapping[str, float], space: Space) -> None:
    if unknown := [name for name in given if name not in space.names]:
        known = ", ".join(space.names)
        raise ValueError(f"{penalty!r}: no coordinate {unknown[0]!r} in this space, which has {known}")


def still_to_be_chosen(penalty: Penalty) -> ValueError:
    return ValueError(
        f"the strengths of {penalty!r} are to be chosen by {penalty.criterion!r} from data; pass it to fit or solve, "
        "or give numbers"
    )


def checked_strength(value: Any, what: str) -> float:
    value = plain_number(value)
    if not is_number(value):
        raise TypeError(f"{what}: the strength is a number, got {value!r}")
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{what}: the strength is finite and not negative, not {value!r}; pass 0 for none")
    return float(value)


def spline_degrees(space: Space) -> dict[str, int]:
    """Return the lowest degree of the B-splines of each coordinate that has any."""
    degrees = {}
    for name in space.names:
        own = [term.degree for term in terms_of(space.basis(name)) if isinstance(term, BSpline)]
        if own:
            degrees[name] = min(own)
    return degrees
