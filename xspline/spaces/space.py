"""A tensor-product space: a basis for each coordinate, bound to domains that all holders share."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from typing import Any, NoReturn

import numpy as np

from xspline import notebook
from xspline.arguments import brief, is_by_name
from xspline.spaces.axis import Axis
from xspline.spaces.bases import BSpline, Fourier, as_basis
from xspline.spaces.basis import Basis, Extent, coordinate_in_errors, range_of, stored, terms_of
from xspline.spaces.bspline import LocalSpline
from xspline.spaces.conversions import converted, degrees_in, units_of
from xspline.spaces.features import Features, Floats, Global, Integers, frozen, is_inside

# One more where cells couple more: what knows of none would take such sums for those of points.
SPACE_SCHEMA = 1


@dataclass(frozen=True)
class Frame:
    """Geometry of the coefficients: all that sums of them need to know. Hashed without the constant."""

    sizes: tuple[int, ...]  # K per axis
    offsets: tuple[int, ...]  # O per axis
    periodic: tuple[bool, ...]  # whether function indices count modulo K
    constant: tuple[Floats, ...] = field(compare=False)  # [K], the coefficients of the function 1
    # of a basis in cells, how many functions are active in all of them: its first m, see `Arrow`; else 0
    everywhere: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "everywhere", self.everywhere or (0,) * len(self.sizes))

    def pairs_at(self, axis: int, offset: int) -> tuple[slice, Integers]:
        """First members of the pairs (k, o) of an axis at one offset, which follow each other; the second of each."""
        size, m = self.sizes[axis], self.everywhere[axis]
        if self.periodic[axis]:
            return slice(0, size), (np.arange(size) + offset) % size
        near = self.offsets[axis] - m
        if offset >= near and m:
            j = offset - near
            return slice(j + 1, size), np.full(size - j - 1, j)
        start = m if offset else 0
        return slice(start, max(size - offset, start)), np.arange(start + offset, size)

    def along(self, axes: Sequence[int]) -> Frame:
        """The frame of some of the coefficient axes."""
        own = {
            f.name: tuple(getattr(self, f.name)[j] for j in axes)
            for f in fields(self)
            if getattr(self, f.name)
        }
        return replace(self, **own)


class Space:
    """Tensor product of one basis for each coordinate. Immutable; equal and hashed by `digest`.

    Parameters
    ----------
    bases : mapping of str to Basis or int
        In the order of the coefficients' dimensions; an integer is the size of a cubic B-spline.
    axes : mapping of str to Axis, optional
        How labels are read; inferred from the name and from domain and period where left out.
    extents : mapping of str to (float, float), optional
        Ranges of the data, as floats of the axis, for bases without a domain.
    from_data : sequence of str, optional
        More coordinates whose domain was taken from data, which `difference` tells; those that take it from `extents`
        are counted without being named.
    coupled : mapping of str to int, optional
        How many neighbours among the functions of a B-spline observations couple, where they are means over cells and
        couple more than a point does. It is no part of the definitions: sums of points and of cells are of one space.

    Raises
    ------
    ValueError, TypeError
        Starting with the coordinate's name, for a basis that does not fit it or has no domain.

    Examples
    --------
    >>> from xspline import BSpline, Fourier, Space
    >>> space = Space({"lat": BSpline(13, domain=(-30, 30)), "time": Fourier(2, period="year")})
    >>> space.shape
    (13, 5)
    >>> space.basis("lat")
    BSpline(13, domain=(-30.0, 30.0))
    >>> space.axis("time").kind
    'time'
    """

    axes: dict[str, tuple[Axis, Basis]]
    from_data: tuple[str, ...]
    coupled: Mapping[str, int]

    def __init__(
        self,
        bases: Mapping[str, Basis | int],
        *,
        axes: Mapping[str, Axis] | None = None,
        extents: Mapping[str, Extent] | None = None,
        from_data: Sequence[str] = (),
        coupled: Mapping[str, int] | None = None,
    ) -> None:
        for what, given in (
            ("bases", bases),
            ("axes", {} if axes is None else axes),
            ("extents", {} if extents is None else extents),
        ):
            if not is_by_name(given):
                raise TypeError(f"{what}={brief(given)} has to be a mapping from the names of coordinates")
        if wrong := [name for name, ends in (extents or {}).items() if np.shape(ends) != (2,)]:
            raise ValueError(f"the extent of {wrong[0]!r} has to be a pair, the lowest and the highest label")
        if wrong := [name for name, axis in (axes or {}).items() if not isinstance(axis, Axis)]:
            raise TypeError(
                f"the axis of {wrong[0]!r} has to be an xs.Axis, as in axes={{'x': xs.Axis(units='m')}}"
            )
        if not bases:
            raise ValueError(
                'a space needs at least one coordinate, as in Space({"x": BSpline(13, domain=(0, 1))})'
            )
        bound, learned = {}, []
        for name, value in bases.items():
            with coordinate_in_errors(name):
                basis = as_basis(value)
                extent = (extents or {}).get(name)
                axis = near_labels((axes or {}).get(name) or _inferred(name, basis), basis, extent)
            basis_bound = basis.bind(axis, extent, name=name)
            # The epoch is that of the bound basis alone, so that it is the same wherever the text of the Space is read.
            bound[name] = (near_labels(replace(axis, epoch=0), basis_bound, None), basis_bound)
            if basis.needs_extent or name in from_data or (axis.epoch and _ends(basis) is None):
                learned.append(name)
        object.__setattr__(self, "axes", bound)
        object.__setattr__(self, "from_data", tuple(learned))
        object.__setattr__(self, "coupled", dict(coupled or {}))

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"Space is immutable; make a new one instead of setting {name}")

    def described_by(self, axes: Mapping[str, Axis]) -> Space:
        """Return the same space with the units and roles of some data where its own axes say nothing.

        Neither is part of the definitions, so the digest stays. A latitude or longitude that says nothing is in
        degrees, so that radians are converted.
        """
        described = {}
        for name, (axis, _) in self.axes.items():
            other = axes.get(name)
            if other is not None and other.kind == axis.kind:
                its = other.units
                if axis.role in ("latitude", "longitude") and degrees_in(its) not in (None, 1):
                    its = "degrees"
                role = axis.role or other.role
                axis = replace(axis, units=axis.units or its, role=role, wrap=axis.wrap or other.wrap)
            described[name] = axis
        return self._changed(axes=described)

    def coupling(self, near: Mapping[str, int]) -> Space:
        """Return the same space for sums that couple at least so many neighbours along some coordinates."""
        own = {name: f.support.near for name, f in zip(self.names, self.features, strict=True)}
        coupled = {
            name: n for name in own if (n := max(self.coupled.get(name, 0), near.get(name, 0))) > own[name]
        }
        return self if coupled == self.coupled else self._changed(coupled=coupled)

    def _changed(self, **given: Any) -> Space:
        """Return the same space but for some arguments of `Space`."""
        own: dict[str, Any] = {"from_data": self.from_data, "coupled": self.coupled}
        own["bases"] = {name: basis for name, (_, basis) in self.axes.items()}
        own["axes"] = {name: axis for name, (axis, _) in self.axes.items()}
        return Space(**own | given)

    def extend(self, **ranges: Any) -> Space:
        """Return the space whose domains hold further labels too, in which all functions of this one lie.

        Statistics of this space become those of the longer one by :meth:`Statistics.extend`, exactly, so that the sums
        of next month are added to those of last year.

        Parameters
        ----------
        **ranges
            By coordinate: a label or several that its domain is to hold, a DataArray in its own units.
            Polynomials get a longer domain, B-splines with knots at equal distances further cells; Fourier series and
            circles stay.

        Raises
        ------
        ValueError
            A coordinate is not of this space, or its functions in a longer domain would be others: knots were given
            one by one, or it is a sum with a B-spline.

        Examples
        --------
        >>> from xspline import BSpline, Fourier, Polynomial, Space
        >>> time = Fourier(1, "year") + Polynomial(1, domain=("2000", "2010"))
        >>> space = Space({"x": BSpline(13, domain=(0, 10)), "time": time})
        >>> space.extend(x=12.5, time="2011-02").basis("x")
        BSpline(16, domain=(0.0, 13.0))
        """
        bases = {name: basis for name, (_, basis) in self.axes.items()}
        for name, labels in ranges.items():
            axis, basis = self._coordinate(name)
            with coordinate_in_errors(name):
                try:
                    x = axis.to_float(np.atleast_1d(np.asarray(labels)))
                except (TypeError, ValueError) as error:
                    raise ValueError(f"{brief(labels)} are no labels of it ({error}); pass a list") from error
                if not (x.size and np.isfinite(x).all()):
                    raise ValueError(f"extend takes labels, none of them missing or infinite, not {labels!r}")
                x = converted(x, units_of(labels), axis.units) if axis.kind == "number" else x
                bases[name] = basis.extended(axis, float(x.min()), float(x.max()))
        return self._changed(bases=bases, from_data=())

    # --- shape

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Coordinates, in the order of the coefficients' dimensions."""
        return tuple(self.axes)

    def axis(self, name: str) -> Axis:
        """How the labels of one coordinate are read."""
        return self._coordinate(name)[0]

    def basis(self, name: str) -> Basis:
        """The basis of one coordinate, bound to its domain."""
        return self._coordinate(name)[1]

    def _coordinate(self, name: str) -> tuple[Axis, Basis]:
        if name not in self.axes:
            raise KeyError(f"{name!r} is not a coordinate of the space, which has {', '.join(self.names)}")
        return self.axes[name]

    @cached_property
    def features(self) -> tuple[Features, ...]:
        """Numeric form of each basis."""
        return tuple(basis.on(axis) for axis, basis in self.axes.values())

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Number of coefficients per coordinate."""
        return tuple(f.size for f in self.features)

    @property
    def size(self) -> int:
        """Number of coefficients."""
        return math.prod(self.shape)

    @property
    def offsets(self) -> tuple[int, ...]:
        """Offsets of the pair arrays per coordinate."""
        own = zip(self.names, self.features, strict=True)
        return tuple(max(f.offsets, self.coupled.get(n, 0) + f.support.everywhere) for n, f in own)

    def at_points(self, pairs: Any, xp: Any = np) -> Any:
        """Return of a pair form, [K.., O.., b..], the entries of functions that meet at points, no others."""
        for a, (f, own) in enumerate(zip(self.features, self.offsets, strict=True)):
            if own > f.offsets:
                before, m = (slice(None),) * (len(self.shape) + a), f.support.everywhere
                parts = [pairs[(*before, s, ...)] for s in (slice(f.support.near), slice(own - m, own))]
                pairs = xp.concat(parts, axis=len(before))
        return pairs

    @property
    def periodic(self) -> tuple[bool, ...]:
        """Whether function indices count modulo the size, per coordinate."""
        return tuple(f.periodic for f in self.features)

    @cached_property
    def frame(self) -> Frame:
        """Geometry of the coefficients."""
        everywhere = tuple(f.support.everywhere for f in self.features)
        constant = tuple(frozen(e) for e in self.constant())
        return Frame(self.shape, self.offsets, self.periodic, constant, everywhere)

    def constant(self) -> tuple[Floats, ...]:
        """e_j per coordinate: the function 1 has the coefficients ⊗ e_j."""
        return tuple(f.constant() for f in self.features)

    @property
    def has_constant(self) -> bool:
        """Whether the function 1 is in the space."""
        return all(e.any() for e in self.constant())

    # --- identity

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the definitions: names in order, kinds, calendars and bound bases."""
        definitions = [
            [name, axis.kind, axis.calendar, basis.to_dict()] for name, (axis, basis) in self.axes.items()
        ]
        return hashlib.sha256(_canonical(definitions).encode()).hexdigest()

    def to_json(self) -> str:
        """Canonical JSON text from which `from_json` builds an equal space."""
        items = self.axes.items()
        axes = [
            {"name": name, "axis": axis.to_dict(), "basis": basis.to_dict()} for name, (axis, basis) in items
        ]
        coupled = {"coupled": self.coupled} if self.coupled else {}
        described = {"schema": SPACE_SCHEMA + len(coupled), "axes": axes, "from_data": self.from_data}
        return _canonical(described | coupled)

    @staticmethod
    def from_json(text: str) -> Space:
        """Build a space from the text of `to_json`.

        Parameters
        ----------
        text : str

        Returns
        -------
        Space
            Equal to the one that was written; two calls with one text may return one object.

        Raises
        ------
        ValueError
            The text is not of this schema, or does not describe a space.

        Examples
        --------
        >>> from xspline import BSpline, Space
        >>> space = Space({"lat": BSpline(13, domain=(-30, 30))})
        >>> Space.from_json(space.to_json()) == space
        True
        """
        if not isinstance(text, str):
            raise TypeError(f"from_json takes the text that to_json gave, not {brief(text)}")
        return _parsed(text)

    def __reduce__(self) -> tuple[Any, ...]:
        return Space.from_json, (self.to_json(),)

    def __eq__(self, other: object) -> bool:
        return self.digest == other.digest if isinstance(other, Space) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    # --- labels

    def to_float(self, name: str, labels: Any) -> Floats:
        """Labels of one coordinate as float64; those of a longitude taken modulo 360 into the domain.

        Labels already inside, or one ulp outside, stay as they are bit for bit.
        """
        axis, basis = self._coordinate(name)
        with coordinate_in_errors(name):
            x = axis.to_float(labels)
            period = _shortest_period(axis, basis) if axis.kind == "time" else math.inf
            if period < 60 and x.size:  # within longer ones, float64 tells times of thousands of years apart
                step = float(np.spacing(np.max(np.abs(np.nan_to_num(x)))))
                if step > 1e-6 * period:  # an error of the phase that is seen
                    raise ValueError(
                        f"seconds since {axis.text(0.0)} tell these times apart by {step:.2g} s, too coarse for the "
                        f"period of {period:.3g} s; give the basis a domain near them, as in Fourier(2, period=..., "
                        "domain=(start, end))"
                    )
        # A Fourier basis alone takes labels as they are: its functions repeat by themselves.
        if axis.wrap is None or basis.domain is None or isinstance(basis, Fourier):
            return x
        lo, hi = range_of(axis, basis.domain)
        inside = is_inside(x, lo, hi)
        known = np.where(np.isfinite(x), x, lo)
        moved = known - axis.wrap * np.floor((known - lo) / axis.wrap)
        # A label is as exact as its own ulp: 359.9 is -0.1 up to that.
        tolerance = np.spacing(np.maximum(np.abs(known), axis.wrap))
        moved = np.where(np.abs(moved - hi) <= tolerance, hi, moved)
        at_start = (np.abs(moved - lo) <= tolerance) | (np.abs(moved - lo - axis.wrap) <= tolerance)
        return np.where(inside | ~np.isfinite(x), x, np.where(at_start, lo, moved))

    def coefficient_labels(self, name: str) -> list[str] | Floats:
        """Names of the functions of one coordinate, or their Greville points; of times in seconds since 1970-01-01."""
        axis, basis = self._coordinate(name)
        labels = basis.on(axis).labels()
        return labels if isinstance(labels, list) else labels + axis.epoch

    def within(self, x: Floats, name: str, extrapolate: bool = False) -> Floats:
        """Floats of one coordinate, from `to_float`, with NaN outside the record, where a field has no values.

        The record is the domain; a periodic basis has none, every label is inside. A number that is outside by no more
        than float32 rounds, in which many files keep their labels, is at the end. To `extrapolate`, labels outside
        stay, and those of a longitude go to the end of its arc that is nearer.
        """
        axis, basis = self._coordinate(name)
        if (record := basis.record(axis)) is None:
            return x
        lo, hi = record
        if not extrapolate:
            is_number = axis.kind == "number"
            rounding = float(np.finfo(np.float32).eps) * max(abs(lo), abs(hi)) if is_number else 0.0
            if axis.wrap is not None:  # just west of the first longitude
                x = np.where(x >= lo + axis.wrap - rounding, x - axis.wrap, x)
            return np.where(is_inside(x, lo - rounding, hi + rounding), np.clip(x, lo, hi), np.nan)
        return x if axis.wrap is None else np.where(x - hi > lo + axis.wrap - x, x - axis.wrap, x)

    @cached_property
    def cells(self) -> Space:
        """The space of what is constant at the start of each knot cell and on the rest; globally along other bases.

        Its labels are the floats of this one's axes.
        """
        bases: dict[str, Basis | int] = {}
        for name, f in zip(self.names, self.features, strict=True):
            if isinstance(f, LocalSpline):
                (lo, hi), starts = f.ends, f.edges[:-1]
                knots = np.append(np.stack([starts, np.nextafter(starts, np.inf)], axis=1), hi)
                period = hi - lo if f.periodic else None
                bases[name] = BSpline(degree=0, knots=tuple(knots.tolist()), period=period)
            elif isinstance(f, Global):
                lo, hi = f.span  # of what has no domain one period, which goes on
                period = hi - lo if f.domain is None else None
                bases[name] = BSpline(1, degree=0, domain=f.span, period=period)
        return Space(bases, axes=dict.fromkeys(self.names, Axis()))

    # --- text

    def code(self) -> str:
        """The Python expression that rebuilds the space, with ``import xspline as xs``."""
        items = ", ".join(
            f"{json.dumps(name)}: {basis.code('xs.')}" for name, (_, basis) in self.axes.items()
        )
        explicit = []  # axes that do not follow from name and basis, up to their units
        for name, (axis, basis) in self.axes.items():
            if replace(_inferred(name, basis), units=axis.units, epoch=axis.epoch) != axis:
                kept = {k: v for k, v in axis.to_dict().items() if axis.kind == "number" or k != "units"}
                arguments = ", ".join(f"{key}={value!r}" for key, value in kept.items())
                explicit.append(f"{json.dumps(name)}: xs.spaces.Axis({arguments})")
        given = ", ".join(explicit)
        return f"xs.Space({{{items}}}{f', axes={{{given}}}' if given else ''})"

    def difference(self, other: Space) -> str:
        """What differs from another space, for messages; empty if they are equal."""
        if self == other:
            return ""
        if self.names != other.names:
            return (
                f"the spaces have different coordinates: {self.names} and {other.names}; name the bases of both, or "
                "agree on one space beforehand"
            )
        differences, from_data = [], {*self.from_data, *other.from_data}
        agreed: dict[str, Basis | int] = {}  # with the hull of both domains where they came from data
        for name, (axis, basis) in self.axes.items():
            its_axis, its_basis = other.axes[name]
            if (axis.kind, axis.calendar) != (its_axis.kind, its_axis.calendar):
                differences.append(f"{name}: {axis.noun} and {its_axis.noun} coordinates")
            elif basis.to_dict() != its_basis.to_dict():
                differences.append(f"{name}: {basis!r} and {its_basis!r}")
            agreed[name] = _hull(axis, basis, its_basis) if name in from_data else basis
        learned = [name for name in self.names if name in from_data and self.basis(name) != other.basis(name)]
        if learned:
            space = Space(agreed, axes={name: axis for name, (axis, _) in self.axes.items()})
            differences.append(
                f"the domain of {', '.join(learned)} was taken from the data: agree on one beforehand, "
                f"with space = {space.code()}"
            )
        return "; ".join(differences)

    def __repr__(self) -> str:
        width = max(map(len, self.names))
        rows = [f"  {name:<{width}}  {size:>5}  {basis!r}" for name, size, basis in self._rows()]
        return "\n".join([self._title, *rows, f"  digest {self.digest[:12]}"])

    def _repr_html_(self) -> str:
        bases, kind = notebook.table(self._rows(), ("coordinate", "functions", "basis")), "xspline.Space"
        contents = {f"Bases ({len(self.names)})": bases, "Digest": notebook.code(self.digest)}
        return notebook.page(kind, self._title.partition(" ")[2], contents, repr(self), closed=["Digest"])

    def _rows(self) -> list[tuple[str, int, Basis]]:
        return [(name, size, self.basis(name)) for name, size in zip(self.names, self.shape, strict=True)]

    @property
    def _title(self) -> str:
        return f"Space {' × '.join(map(str, self.shape))} = {self.size} coefficients"


def only(space: Space, names: Sequence[str]) -> Space:
    """Return the space of some coordinates of another one, without what observations couple."""
    return Space({n: space.basis(n) for n in names}, axes={n: space.axis(n) for n in names})


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def _inferred(name: str, basis: Basis) -> Axis:
    """Axis of a coordinate of which only the basis is known: from its labels, else its durations."""
    if labels := basis.written:
        return Axis.infer(name, labels)
    durations = [
        d for t in terms_of(basis) for d in (getattr(t, "period", None), getattr(t, "spacing", None))
    ]
    if any(d is not None and not isinstance(d, int | float) for d in durations):
        return Axis("time", role="time")
    return Axis.infer(name, [0.0])


def near_labels(axis: Axis, basis: Basis, extent: Extent | None) -> Axis:
    """The axis with the epoch that a basis needs: from its domain or knots, else from the range of the data."""
    ends = _ends(basis)
    if axis.kind != "time" or (ends is None and extent is None):
        return axis
    lo, hi = extent or (0.0, 0.0) if ends is None else (float(axis.to_float(end)) for end in ends)
    return axis.near(lo, hi, _shortest_period(axis, basis))


def _ends(basis: Basis) -> tuple[Any, Any] | None:
    """The ends of a basis as the user gave them, None where they follow from data or there are none."""
    knots = next((term.knots for term in terms_of(basis) if isinstance(term, BSpline) and term.knots), None)
    return basis.domain or (knots and (knots[0], knots[-1]))


def _shortest_period(axis: Axis, basis: Basis) -> float:
    periods = [getattr(term, "period", None) for term in terms_of(basis)]
    return min((axis.duration(p, "period") for p in periods if p is not None), default=math.inf)


def _hull(axis: Axis, basis: Basis, other: Basis) -> Basis:
    """A basis on the hull of both domains: the larger of two splines, else that of the wider domain.

    A longitude that closes the circle for one of them does so for both. A basis whose domain follows from knots or a
    period stays as it is.
    """

    def is_fixed(basis: Basis) -> bool:
        splines = [term for term in terms_of(basis) if isinstance(term, BSpline)]
        return any(term.knots is not None or term.period is not None for term in splines)

    # B-splines of one degree with uniform knots.
    degrees = [b.degree for b in (basis, other) if isinstance(b, BSpline) and b.knots is None]
    alike = len(degrees) == 2 and degrees[0] == degrees[1]
    if basis.domain is None or other.domain is None or is_fixed(basis):
        return basis
    if is_fixed(other):
        return other if axis.wrap is not None and alike else basis
    (a, b), (c, d) = range_of(axis, basis.domain), range_of(axis, other.domain)
    domain = (stored(axis, min(a, c)), stored(axis, max(b, d)))
    mine, theirs = basis.with_domain(domain), other.with_domain(domain)
    larger = theirs.count > mine.count if alike else d - c > b - a
    return theirs if larger else mine


@lru_cache(maxsize=64)
def _parsed(text: str) -> Space:
    """The space of a text, parsed once."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise ValueError(f"the text is no JSON ({error}); pass what to_json gave") from error
    if not isinstance(data, dict) or data.get("schema") != SPACE_SCHEMA + ("coupled" in data):
        schema = data.get("schema") if isinstance(data, dict) else None
        raise ValueError(
            f"the text is no space of schema {SPACE_SCHEMA} (it says {schema!r}); a newer xspline may read it"
        )
    items = {item["name"]: item for item in data["axes"]}
    bases: dict[str, Basis | int] = {name: Basis.from_dict(item["basis"]) for name, item in items.items()}
    axes = {name: Axis.from_dict(item["axis"]) for name, item in items.items()}
    return Space(bases, axes=axes, from_data=data["from_data"], coupled=data.get("coupled"))
