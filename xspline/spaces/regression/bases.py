"""Bases whose functions somebody gives: indices such as that of ENSO, steps, and lines with breaks; their values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from xspline.arguments import brief, is_by_name, is_number
from xspline.spaces.axis import Axis
from xspline.spaces.basis import (
    DEPENDENT,
    Basis,
    Domain,
    Extent,
    assign,
    bound_domain,
    checked_domain,
    distance_to_dependence,
    plain,
    plain_number,
    range_of,
    stored,
    stored_duration,
)
from xspline.spaces.conversions import converted
from xspline.spaces.features import Features, Floats, Global, TermFunctions, frozen
from xspline.spaces.instants import plain_text, seconds_of_duration


@dataclass(frozen=True, eq=False)
class Kinked(TermFunctions):
    """Functions with corners or jumps, after a constant if it is `with_constant`."""

    kinked: ClassVar[bool] = True
    nodes: ClassVar[int] = 2  # exact for a product of two straight lines

    labels: tuple[str, ...]  # names of the functions
    corners: tuple[Floats, ...]  # positions of those of each
    record: tuple[float, float]
    with_constant: bool

    @property
    def names(self) -> list[str]:
        return ["const"] * self.with_constant + list(self.labels)

    @property
    def domain(self) -> tuple[float, float] | None:
        return self.record

    def panels(self, lo: float, hi: float) -> Floats:
        inner = np.concatenate(self.corners)
        return np.unique(np.concatenate([[lo], inner[(inner > lo) & (inner < hi)], [hi]]))


@dataclass(frozen=True, eq=False)
class Lines(Kinked):
    """Functions that are straight between corners."""

    max_order: ClassVar[int | None] = 1

    heights: tuple[Floats, ...]  # values at the corners of each
    continued: bool  # whether the outer lines go on outside the record, where there are else no values

    @property
    def slopes(self) -> tuple[str, ...]:
        return self.labels if self.continued else ()

    def values(self, x: Floats, order: int) -> Floats:
        out = np.full((len(self.names), x.size), float(order == 0))
        for row, t, v in zip(out[int(self.with_constant) :], self.corners, self.heights, strict=True):
            j = np.clip(np.searchsorted(t, x, side="right") - 1, 0, t.size - 2)
            slope = (np.diff(v) / np.diff(t))[j]
            if order < 2:
                row[:] = slope if order else v[j] + slope * (x - t[j])
        return out.T if self.continued else np.where(np.isnan(self.clean(x)), np.nan, out).T


@dataclass(frozen=True, eq=False)
class Jump(Kinked):
    """A function that is 0 before its corner, and 1 from there on."""

    def values(self, x: Floats, order: int) -> Floats:
        out = np.full((len(self.names), x.size), float(order == 0))
        out[-1] *= x >= self.corners[0][0]
        return out.T


class Index(NamedTuple):
    """A record along a coordinate."""

    name: str
    labels: tuple[Any, ...]
    values: tuple[float, ...]
    lag: Any = 0.0
    units: str = ""  # of the labels, until it is bound

    @staticmethod
    def of(name: str, given: Any, lag: Any) -> Index:
        """The index in a DataArray, or in a mapping with `labels` and `values`, as it is in files."""
        units = ""
        if isinstance(given, Mapping) and {"labels", "values"} == set(given):
            labels, values = list(given["labels"]), given["values"]
        else:
            dim = next(iter(getattr(given, "dims", ())), None)
            if getattr(given, "ndim", 0) != 1 or dim not in getattr(given, "coords", ()):
                raise ValueError(
                    f"index {name!r} is {brief(given)}; pass a DataArray with one dimension and its labels, as "
                    "xr.DataArray(values, {'time': time}, 'time')"
                )
            labels, values = list(given.coords[dim].values), given.values
            units = str(given.coords[dim].attrs.get("units", ""))
            if hasattr(given.indexes.get(dim), "to_timestamp"):
                raise TypeError(
                    f"the labels of index {name!r} are periods, such as {labels[0]}, and no dates; pass "
                    f"{name}.assign_coords({dim}={name}.indexes[{dim!r}].to_timestamp())"
                )
        try:
            x = np.asarray(values, dtype=np.float64) + 0.0
        except (TypeError, ValueError):
            raise TypeError(f"index {name!r} has values that are no numbers") from None
        known = np.flatnonzero(~np.isnan(x))  # missing values at the ends shorten the record
        inside = slice(known[0], known[-1] + 1) if known.size else slice(0)
        labels, x = labels[inside], x[inside]
        if len(labels) < 2 or x.shape != (len(labels),):
            raise ValueError(
                f"index {name!r} needs at least two values that are not missing, each with a label"
            )
        if not np.isfinite(x).all():
            first = int(np.flatnonzero(~np.isfinite(x))[0])
            what = "missing" if np.isnan(x[first]) else "infinite"
            raise ValueError(
                f"index {name!r} is {what} at {plain_text(labels[first])}, inside its record; fill it, as "
                f"{name}.interpolate_na(...) does, or take a part of the record without gaps"
            )
        return Index(name, tuple(map(plain_number, labels)), tuple(x.tolist()), lag, units)

    def floats(self, axis: Axis) -> Floats:
        """The labels as floats of the axis."""
        try:
            x = axis.to_float(list(self.labels))
            x = converted(x, self.units, axis.units) if axis.kind == "number" else x
        except (TypeError, ValueError) as error:
            raise type(error)(f"index {self.name!r}: {error}") from None
        ascends = np.diff(x) > 0
        if not ascends.all():
            at = plain_text(self.labels[int(np.argmin(ascends)) + 1])
            raise ValueError(
                f"the labels of index {self.name!r} have to ascend, each once, which they do not at {at}; sort them, "
                "with .sortby(...).drop_duplicates(...)"
            )
        return np.asarray(x)

    @lru_cache(maxsize=64)  # noqa: B019 (of tuples; texts take 20 µs each to read)
    def positions(self, axis: Axis) -> Floats:
        """Where the values act: at the labels, later by the lag."""
        return frozen(self.floats(axis) + self.shift(axis))

    def shift(self, axis: Axis) -> float:
        """The lag as a float of the axis."""
        wrong = ""
        if is_number(self.lag):
            if axis.kind == "number" or not self.lag:
                return float(self.lag)
            wrong = f"is a bare number on a {axis.noun} coordinate; give it a unit, as in"
        elif axis.kind == "number":
            raise TypeError(
                f"the lag {self.lag!r} of {self.name!r} is on a coordinate of numbers; pass a number"
            )
        else:
            try:
                return seconds_of_duration(self.lag, axis.calendar)
            except (TypeError, ValueError):
                wrong = "is no length of time; pass"
        raise TypeError(f'the lag {self.lag!r} of {self.name!r} {wrong} lags={{"{self.name}": "90D"}}')

    def bound(self, axis: Axis) -> Index:
        """The index in bound form, its labels as floats or text."""
        shift, labels = self.shift(axis), tuple(stored(axis, x) for x in self.floats(axis))
        return self._replace(labels=labels, lag=stored_duration(axis, shift) if shift else 0.0, units="")


@dataclass(frozen=True, repr=False, init=False)
class Regressors(Basis):
    """A constant, then one function for each index, by name: what a multiple linear regression explains a field by.

    A label between two of an index has the value of the straight line between these, whose higher derivatives are taken
    as 0 in a sum of bases. Observations outside the record that all indices share are left out and counted. An index is
    taken as it is, neither centred nor scaled: its coefficient is in units of the data per unit of the index
    (:meth:`Field.coefficient`). Its values are a part of the basis and travel in files and in the digest, so that
    holders add up only what was regressed on the same index.

    Parameters
    ----------
    lags : mapping, optional
        By index, how much later it acts: ``{"enso": "90D"}`` takes the value 90 days before each label. A length of
        time, or a number in the coordinate's unit; below zero the index acts in advance.
    domain : tuple, optional
        (lo, hi) labels within the record; all of it by default.
    **indices : DataArray
        With one dimension, whose labels ascend. Missing values at the ends shorten the record. Several lags of one
        index are several indices: ``Regressors(now=enso, later=enso, lags={"later": "90D"})``.

    Raises
    ------
    TypeError, ValueError
        For an index without labels, with missing or infinite values inside its record, or in the span of the others.

    Examples
    --------
    >>> import numpy as np, xarray as xr, xspline as xs
    >>> t = np.arange(100.0)
    >>> enso = xr.DataArray(np.sin(t / 7), {"t": t}, "t")
    >>> data = 20 + 0.01 * enso.t + enso * xr.DataArray([0.5, -2.0], dims="place")
    >>> field = xs.fit(data.rename("sst"), t=xs.Polynomial(1) + xs.Regressors(enso=enso))
    >>> field.coefficient("enso").round(6).values
    array([ 0.5, -2. ])
    """

    rank: ClassVar[int] = 4

    indices: tuple[Index, ...]
    domain: Domain | None = None

    def __init__(
        self, *, lags: Mapping[str, Any] | None = None, domain: Domain | None = None, **indices: Any
    ) -> None:
        lags = {} if lags is None else lags
        if not indices:
            raise ValueError("Regressors needs an index, as in Regressors(enso=nino34)")
        if not is_by_name(lags) or set(lags) - set(indices):
            names = ", ".join(indices)
            raise ValueError(
                f"lags={brief(lags)} has to be a mapping from names of the indices, which are {names}"
            )
        if reserved := {"const", "type"} & set(indices):
            raise ValueError(f"an index cannot be called {min(reserved)!r}; give it another name")
        given = tuple(
            Index.of(name, x, plain_number(lags.get(name, 0.0))) for name, x in sorted(indices.items())
        )
        assign(self, indices=given, domain=checked_domain(domain))

    @property
    def count(self) -> int:
        return 1 + len(self.indices)

    @property
    def needs_extent(self) -> bool:
        return False

    @property
    def spans(self) -> bool:
        return False

    @property
    def written(self) -> Sequence[Any]:
        return [*(self.domain or ()), *(label for index in self.indices for label in index.labels)]

    def with_domain(self, domain: Domain) -> Basis:
        return self._with(self.indices, domain)

    @staticmethod
    def _with(indices: tuple[Index, ...], domain: Domain | None) -> Regressors:
        own = object.__new__(Regressors)
        assign(own, indices=indices, domain=domain)
        return own

    def extended(self, axis: Axis, low: float, high: float) -> Basis:
        """The same where the record holds the labels."""
        lo, hi = self.record(axis)
        if lo <= low and high <= hi:
            return self
        raise ValueError(
            f"the record of {self!r} does not reach from {axis.text(low)} to {axis.text(high)}; begin anew, in a space "
            "with a longer index"
        )

    def record(self, axis: Axis) -> Extent:
        """The labels that all indices have, or the domain within these."""
        ends = [(x[0], x[-1]) for x in (index.positions(axis) for index in self.indices)]
        lo, hi = float(max(low for low, _ in ends)), float(min(high for _, high in ends))
        if lo >= hi:
            raise ValueError(f"the indices of {self!r} share no labels; pass longer ones")
        low, high = (lo, hi) if self.domain is None else range_of(axis, self.domain)
        if low < lo or high > hi:
            shared = f"({axis.text(lo)}, {axis.text(hi)})"
            raise ValueError(f"domain {plain(self.domain)} is not within the record {shared} of {self!r}")
        return low, high

    def integral_range(self, axis: Axis) -> Extent:
        return self.record(axis)

    def _bind(self, axis: Axis, extent: Extent | None) -> Regressors:
        domain = None if self.domain is None else bound_domain(self, axis, None)
        return self._with(tuple(index.bound(axis) for index in self.indices), domain)

    def term(self, axis: Axis, with_constant: bool = True, suffix: str = "") -> Lines:
        names = tuple(index.name for index in self.indices)
        x = tuple(index.positions(axis) for index in self.indices)
        values = tuple(np.array(index.values) for index in self.indices)
        return Lines(names, x, self.record(axis), with_constant, values, continued=False)

    def _numeric(self, axis: Axis) -> Features:
        term, span = self.term(axis), self.record(axis)
        if distance_to_dependence((term,), span) < DEPENDENT:
            raise ValueError(
                f"the constant and the indices of {self!r} are not independent: one of them is constant or a sum of "
                "the others; leave it out"
            )
        return Global((term,), span, term.max_order)

    def to_dict(self) -> dict[str, Any]:
        own = {i.name: {"labels": [*map(plain_text, i.labels)], "values": [*i.values]} for i in self.indices}
        lags = {"lags": lags} if (lags := self._lags) else {}
        ends = {} if self.domain is None else {"domain": list(plain(self.domain))}
        return {"type": "Regressors", **lags, **ends, **own}

    @property
    def _lags(self) -> dict[str, Any]:
        return {index.name: plain_text(index.lag) for index in self.indices if index.lag}

    def code(self, prefix: str = "") -> str:
        """As `Basis.code`, with each index as a variable of its own name."""
        return f"{prefix}Regressors({', '.join(f'{i.name}={i.name}' for i in self.indices)}{self._options})"

    @property
    def _options(self) -> str:
        domain = "" if self.domain is None else f", domain={plain(self.domain)!r}"
        return (f", lags={self._lags!r}" if self._lags else "") + domain

    def __repr__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        parts = []
        for index in self.indices:
            ends, content = plain((index.labels[0], index.labels[-1])), [*map(plain_text, index.labels)]
            digest = hashlib.sha256(json.dumps([content, index.values]).encode()).hexdigest()[:8]
            parts.append(f"{index.name}: {len(content)} values {ends[0]} to {ends[1]}, digest {digest}")
        return f"Regressors({'; '.join(parts)}{self._options})"


@dataclass(frozen=True, repr=False)
class Step(Basis):
    """A constant, and a function that is 0 before a label and 1 from there on: a jump of the level.

    Its coefficient is the jump (:meth:`Field.coefficient`), and its derivative is 0. Several jumps are a sum of steps,
    called ``step``, ``step.2``, … in their order.

    Parameters
    ----------
    at : label
        The first label after the jump.
    domain : tuple, optional
        (lo, hi) labels; the range of the data by default.

    Raises
    ------
    ValueError
        For a step outside the domain, which is a constant.

    Examples
    --------
    >>> import numpy as np, xarray as xr, xspline as xs
    >>> t = np.arange(10.0)
    >>> data = xr.DataArray(0.5 * t + 3.0 * (t >= 4), {"t": t}, "t", "level")
    >>> field = xs.fit(data, t=xs.Polynomial(1) + xs.Step(4.0))
    >>> field.coefficient("step").round(6).item()
    3.0
    """

    rank: ClassVar[int] = 3
    grows: ClassVar[bool] = True

    at: Any
    domain: Domain | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        at = plain_number(self.at)
        if str(at) in ("None", "NaT", "nan"):
            raise ValueError(
                f"Step takes the first label after the jump, as in Step('1976-07-01') or Step(4.0), and not {at}"
            )
        assign(self, at=at, domain=checked_domain(self.domain))

    @property
    def count(self) -> int:
        return 2

    @property
    def period_length(self) -> float:
        """Where it is, so that steps at numbers are in their order; those at times are by their text."""
        return -float(self.at) if is_number(self.at) else 0.0

    @property
    def written(self) -> Sequence[Any]:
        return [self.at, *(self.domain or ())]

    def _bind(self, axis: Axis, extent: Extent | None) -> Step:
        bound = replace(
            self, at=stored(axis, float(axis.to_float(self.at))), domain=bound_domain(self, axis, extent)
        )
        lo, hi = bound.integral_range(axis)
        if not lo < float(axis.to_float(bound.at)) <= hi:
            raise ValueError(
                f"the step at {bound.at} is outside the domain ({axis.text(lo)}, {axis.text(hi)}), where it is a "
                "constant; leave it out"
            )
        return bound

    def term(self, axis: Axis, with_constant: bool = True, suffix: str = "") -> Jump:
        at = np.array([float(axis.to_float(self.at))])
        return Jump((f"step{suffix}",), (at,), self.integral_range(axis), with_constant)


@dataclass(frozen=True, repr=False)
class PiecewiseLinear(Basis):
    """A constant, and a trend for each segment between breaks, continuous there.

    The trends are called ``trend1``, ``trend2``, … and :meth:`Field.coefficient` gives each of them per unit of the
    coordinate (of time: per second).

    Parameters
    ----------
    breaks : sequence of labels
        Where the slope may change, ascending and inside the domain.
    domain : tuple, optional
        (lo, hi) labels; the range of the data by default.

    Raises
    ------
    ValueError
        For breaks that do not ascend or lie outside the domain.

    Examples
    --------
    >>> import numpy as np, xarray as xr, xspline as xs
    >>> t = np.arange(11.0)
    >>> data = xr.DataArray(0.5 * t + 2.0 * np.maximum(t - 4, 0), {"t": t}, "t", "level")
    >>> field = xs.fit(data, t=xs.PiecewiseLinear([4.0]))
    >>> [field.coefficient(name).round(6).item() for name in ("trend1", "trend2")]
    [0.5, 2.5]
    """

    rank: ClassVar[int] = 2

    breaks: tuple[Any, ...]
    domain: Domain | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        listed = hasattr(self.breaks, "__len__") and not isinstance(self.breaks, str)
        breaks = tuple(map(plain_number, self.breaks if listed else (self.breaks,)))
        if not breaks:
            raise ValueError(
                'PiecewiseLinear needs a break, as in PiecewiseLinear(["1976-07"]); or take Polynomial(1)'
            )
        assign(self, breaks=breaks, domain=checked_domain(self.domain))

    @property
    def count(self) -> int:
        return 2 + len(self.breaks)

    @property
    def written(self) -> Sequence[Any]:
        return [*self.breaks, *(self.domain or ())]

    def _bind(self, axis: Axis, extent: Extent | None) -> PiecewiseLinear:
        domain = bound_domain(self, axis, extent)
        inner = [float(axis.to_float(label)) for label in self.breaks]
        (lo, hi) = range_of(axis, domain)
        corners = np.array([lo, *inner, hi])
        if not (np.diff(corners) > 0).all():
            shown = ", ".join(map(axis.text, inner))
            raise ValueError(
                f"the breaks {shown} have to ascend inside the domain ({axis.text(lo)}, {axis.text(hi)}); leave out "
                "those that do not, or pass a wider domain"
            )
        return replace(self, breaks=tuple(stored(axis, x) for x in inner), domain=domain)

    def term(self, axis: Axis, with_constant: bool = True, suffix: str = "") -> Lines:
        lo, hi = self.integral_range(axis)
        corners = np.array([lo, *(float(axis.to_float(label)) for label in self.breaks), hi])
        n = corners.size - 1
        heights = [(np.clip(corners, corners[i], corners[i + 1]) - corners[i]) / (hi - lo) for i in range(n)]
        names = tuple(f"trend{i + 1}{suffix}" for i in range(n))
        return Lines(names, (corners,) * n, (lo, hi), with_constant, tuple(heights), continued=True)

    def _numeric(self, axis: Axis) -> Features:
        return Global((self.term(axis),), self.integral_range(axis), 1)

    def overlaps(self, later: Basis) -> bool:
        # As those of a polynomial, its functions are in the span of a B-spline, or nearly so.
        return later.rank > Regressors.rank and getattr(later, "period", None) is None
