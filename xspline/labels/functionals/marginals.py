"""Weights of the functions of some coordinates, and of nodes of a quadrature: what a mean over these coordinates is.

A linear functional of a field is a product of marginals, one for each coordinate or group of them: an integral over an
interval, over a cell around each label, over a region of such cells, or the value at each label.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr

from xspline.arguments import brief
from xspline.labels.read.cells import bounds_of
from xspline.labels.read.cells import cells_of as read_cells
from xspline.labels.read.coordinates import extent_of, floats, in_units_of
from xspline.solve.errors import warn
from xspline.spaces import Fourier, Space
from xspline.spaces.basis import coordinate_in_errors
from xspline.spaces.conversions import degrees_in
from xspline.spaces.instants import DAY, with_hyphens
from xspline.spaces.means import CellMeans, as_cells, neighbours

Array = np.ndarray
Range = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Marginal:
    """The part of some linear functionals along one coordinate, or several that go together."""

    names: tuple[str, ...]  # of the coordinates
    dims: tuple[Hashable, ...]  # of the labels that the functionals have
    shape: tuple[int, ...]  # along these
    rows: Array  # [n, K..], weights of the functions; NaN where there is no value
    nodes: tuple[Array, ...]  # floats of each coordinate, where a quadrature takes values
    weights: Array | None  # [n, q..], of the values there; None where these are the values at n places

    def without_season(self, space: Space, reference: Marginal) -> Marginal:
        """Return these values of one coordinate, without its Fourier term, less their mean over a reference."""
        (name,) = self.names
        season = space.basis(name).select(Fourier)
        keep = ~season | (space.constant()[space.names.index(name)] != 0)
        own = np.eye(self.nodes[0].size) if self.weights is None else self.weights
        apart = np.repeat(-np.asarray(reference.weights), len(own), axis=0)
        nodes = np.concatenate([self.nodes[0], reference.nodes[0]])
        rows = (self.rows - reference.rows) * keep
        return replace(self, rows=rows, nodes=(nodes,), weights=np.concatenate([own, apart], axis=1))


@dataclass(frozen=True, eq=False)
class Measure:
    """What is integrated over: intervals of coordinates, with a density."""

    space: Space  # of the field
    area: bool  # whether a cosine of latitude is the density along it
    # distance between labels by coordinate, for nodes of a fine field; empty where there is none
    steps: Mapping[str, float]
    is_mean: bool = True  # whether integrals are divided by those of 1

    def _degrees(self, name: str) -> float:
        """Return the degrees in a unit of latitude, whose cosine is the density along it; 0 where the density is 1."""
        axis = self.space.axis(name)
        return (degrees_in(axis.units) or 1.0) if self.area and axis.role == "latitude" else 0.0

    def _integrals(self, name: str, lower: Array, upper: Array) -> tuple[Array, Array]:
        """Return integrals of the functions [n, K] and of 1 [n]; 0 over intervals that are no longer than nothing."""
        features, radians = self.space.features[self.space.names.index(name)], np.deg2rad(self._degrees(name))
        used = upper > lower
        cells, half = as_cells(lower[used], upper[used]), (upper - lower)[used] / 2
        sizes, rows = np.zeros(lower.size), np.zeros((lower.size, features.size))
        sizes[used] = 2 * half
        if radians:
            sizes[used] = 2 * np.cos((lower[used] + half) * radians) * np.sin(half * radians) / radians
        means = CellMeans(features, neighbours(features, cells), self._degrees(name))
        rows[used] = means.design(cells) * sizes[used, None]
        return rows, sizes

    def table(self, name: str, lower: Array, upper: Array) -> tuple[Array, Array, Array, Array]:
        """Return integrals of the functions [n, K] and of 1 [n] over intervals, nodes [q] and their weights [n, q]."""
        rows, sizes = self._integrals(name, lower, upper)
        if not self.steps:
            return rows, sizes, np.zeros(0), np.zeros((len(lower), 0))
        used = np.flatnonzero(upper > lower)
        width = (upper - lower)[used, None]
        share = _shares(float(np.max(width, initial=0.0)) / self.steps[name])
        nodes, many = lower[used, None] + share * width, share.size
        parts = np.cos(np.deg2rad(nodes * self._degrees(name)))
        weights = np.zeros((len(lower), used.size, many))
        weights[used, np.arange(used.size)] = parts * (sizes[used] / parts.sum(axis=1))[:, None]
        return rows, sizes, nodes.ravel(), weights.reshape(len(lower), -1)

    def over(self, name: str, ends: Range) -> Marginal:
        """Return the integral, or mean, over a range of one coordinate, as far as it is in the domain."""
        table = self._shared(name, np.array(ends[:1]), np.array(ends[1:]))
        return self._marginal((name,), np.ones((1, 1)), [table], {})

    def cells(self, name: str, labels: xr.DataArray, bounds: xr.DataArray | None) -> Marginal:
        """Return the mean over the cell around each of some labels; NaN where a label is outside the domain."""
        inside, lower, upper = cells_of(self.space, name, labels, bounds)
        start = self.space.basis(name).integral_range(self.space.axis(name))[0]
        table = self._shared(name, np.where(inside, lower, start), np.where(inside, upper, start))
        dims = dict(zip(labels.dims, labels.shape, strict=True))
        return self._marginal((name,), np.eye(labels.size), [table], dims)

    def region(self, names: Sequence[str], where: xr.DataArray, ranges: Mapping[str, Range]) -> Marginal:
        """Return the integrals, or means, over the cells of the labels of a mask, each counted by its weight."""
        tables = []
        for name in names:
            inside, lower, upper = cells_of(self.space, name, where[name])
            _check_inside(self.space, where, name, inside, "where=")
            tables.append(self._shared(name, lower, upper, ranges[name]))
        extra = {dim: n for dim, n in where.sizes.items() if dim not in names}
        weights = where.transpose(*extra, *names).values.astype(np.float64)
        return self._marginal(tuple(names), weights.reshape(-1, *weights.shape[len(extra) :]), tables, extra)

    def _shared(
        self, name: str, lower: Array, upper: Array, chosen: Range | None = None
    ) -> tuple[Array, Array, Array, Array]:
        """Return the table of what intervals share with a range and the domain: of a longitude, a turn away too."""
        axis, pieces = self.space.axis(name), [np.stack([lower, upper])]
        for ends in filter(None, (chosen, self.space.basis(name).record(axis))):
            pieces = [
                np.clip(piece + turn, *ends)
                for piece in pieces
                for turn in _turns(axis.wrap, (piece.min(), piece.max()), *ends)
            ]
        rows, sizes, nodes, weights = zip(*(self.table(name, *piece) for piece in pieces), strict=True)
        return (
            np.sum(rows, axis=0),
            np.sum(sizes, axis=0),
            np.concatenate(nodes),
            np.concatenate(weights, axis=1),
        )

    def _marginal(
        self, names: tuple[str, ...], given: Array, tables: Sequence[Any], extra: Mapping[Hashable, int]
    ) -> Marginal:
        """Return sums with given weights [n, L..] of tables, one for each coordinate of a product of cells."""
        rows, sizes, nodes, weights = zip(*tables, strict=True)
        total = (
            combined(given, [own[:, None] for own in sizes]).ravel() if self.is_mean else np.ones(len(given))
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            scale = 1 / np.where(total > 0, total, np.nan)

        def scaled(parts: Sequence[Array]) -> Array:
            product = combined(given, parts)
            return product * scale.reshape(-1, *(1,) * (product.ndim - 1))

        return Marginal(names, tuple(extra), tuple(extra.values()), scaled(rows), nodes, scaled(weights))


def _turns(turn: float | None, ends: Range, low: float, high: float) -> Array:
    """Return by how much a range is moved to meet a domain: of a longitude by the turns that may, else not at all."""
    if turn is None:
        return np.zeros(1)
    return turn * (np.round((low + high - sum(ends)) / 2 / turn) + np.array([-1.0, 0.0, 1.0]))


def combined(given: Array, parts: Sequence[Array]) -> Array:
    """Return Σ_l given[n, l..] Π_j parts_j[l_j, k_j], [n, k..]."""
    for part in parts:
        given = np.tensordot(given, part, axes=(1, 0))
    return given


def at_labels(
    space: Space, names: Sequence[str], columns: Sequence[Array], sizes: Mapping[Hashable, int]
) -> Marginal:
    """Return the values at labels of coordinates that share their dimensions, given as floats."""
    rows = np.ones((columns[0].size, 1))
    for name, x in zip(names, columns, strict=True):
        own = space.features[space.names.index(name)].design(x.ravel())
        rows = (rows[:, :, None] * own[:, None, :]).reshape(len(rows), -1)
    shape = tuple(space.shape[space.names.index(name)] for name in names)
    flat = tuple(x.ravel() for x in columns)
    return Marginal(tuple(names), tuple(sizes), tuple(sizes.values()), rows.reshape(-1, *shape), flat, None)


def weighted(space: Space, weights: xr.DataArray) -> Marginal:
    """Return the sums of values at labels with given weights."""
    names = [name for name in space.names if name in weights.dims]
    extra = {dim: n for dim, n in weights.sizes.items() if dim not in names}
    rows, nodes = [], []
    for name in names:
        x = space.within(_floats(space, name, weights[name]), name)
        _check_inside(space, weights, name, np.isfinite(x), "weights=")
        rows.append(np.nan_to_num(space.features[space.names.index(name)].design(x)))
        nodes.append(np.where(np.isfinite(x), x, np.nanmin(x)))
    given = weights.transpose(*extra, *names).values.astype(np.float64)
    given = given.reshape(-1, *given.shape[len(extra) :])
    return Marginal(
        tuple(names), tuple(extra), tuple(extra.values()), combined(given, rows), tuple(nodes), given
    )


def is_around(space: Space, name: str) -> bool:
    """Return whether a coordinate is a longitude all around the Earth."""
    axis, basis = space.axis(name), space.basis(name)
    return axis.wrap is not None and (
        (record := basis.record(axis)) is None or record[1] - record[0] == axis.wrap
    )


def range_in(space: Space, name: str, given: Any, observed: Mapping[str, Range]) -> Range:
    """Return a range of one coordinate as floats, which may leave the domain, or go on through the seam.

    A text such as "2020" as an end is the end of that year. An open end is that of the domain, or of what was
    `observed` where the basis has no end.
    """
    axis, basis = space.axis(name), space.basis(name)
    whole, record = observed.get(name) or basis.integral_range(axis), basis.record(axis)
    ends = (given.start, given.stop) if isinstance(given, slice) and given.step is None else given
    ends = (None, None) if given is None else ends
    if not isinstance(ends, Sequence | np.ndarray) or isinstance(ends, str) or len(ends) != 2:
        raise ValueError(
            f"{name}={brief(given)} is no range; pass a pair of labels, as in {{{name!r}: (lo, hi)}}"
        )
    any_open, around = any(end is None for end in ends), is_around(space, name)
    if all(end is None for end in ends):
        return whole
    with coordinate_in_errors(name):
        low, high = (
            other if end is None else float(axis.to_float(end))
            for end, other in zip(ends, whole, strict=True)
        )
    # A year, a month or a day that is written as a text ends with the next one's first instant.
    text = with_hyphens(ends[1]) if axis.kind == "time" and isinstance(ends[1], str) else ""
    shown = f"the range {axis.text(low)} to {text or axis.text(high)} of {name!r}"
    if re.fullmatch(r"\d{4}(-\d\d){0,2}", text):
        numbers = [*map(int, text.split("-"))]
        year, month = [*numbers, 12][:2]
        after = f"+{year + month // 12:04d}-{month % 12 + 1:02d}"
        behind = high + DAY if len(numbers) == 3 else float(axis.to_float(after))
        high = behind if record is None else max(min(behind, whole[1]), high)
    if axis.wrap is not None:
        labels = observed.get(name) if around else record
        low, high = _on_circle(space, name, (low, high), given if any_open else None, labels)
    if not low < high and (record is None or not any_open):
        raise ValueError(
            f"{name}=({brief(ends[0])}, {brief(ends[1])}): the ends of a range have to ascend; exchange them"
        )
    if record is None or around:
        return low, high
    turns = _turns(axis.wrap, (low, high), *record)
    inside = sum(np.ptp(np.clip(np.add((low, high), turn), *record)) for turn in turns)
    domain = f"{axis.text(record[0])} to {axis.text(record[1])}"
    if not inside > 0:
        raise ValueError(
            f"{shown} lies outside its domain {domain}, where the field has no values; pass a range inside"
        )
    if inside < high - low:
        warn(f"{shown} leaves the domain {domain}; the part inside counts. To say so, pass that part")
    return low, high


def _on_circle(space: Space, name: str, ends: Range, half_open: Any, labels: Range | None) -> Range:
    """Return a range of longitudes that ascends; the open end of a `half_open` one is an end of the `labels`."""
    axis, (low, high) = space.axis(name), ends
    turn = axis.wrap or 0.0
    if half_open is not None and labels is not None and 0 < high - low <= turn:
        return ends
    x = space.to_float(name, np.array(ends))
    low, high = map(float, space.within(x, name, half_open is None))
    if half_open is None:
        return low, high + turn * (high <= low)
    if low < high and not is_around(space, name):
        return low, high
    known = "are not known" if labels is None else f"go from {' to '.join(map(axis.text, labels))}"
    raise ValueError(
        f"{name}={brief(half_open)} has an open end on a circle, whose labels {known}; write both ends, as in "
        f"{{{name!r}: (lo, hi)}}"
    )


def _shares(labels: float) -> Array:
    """Return where nodes lie in an interval of so many labels, from 0 to 1: about as many, in pairs of Gauss's."""
    pairs = int(np.ceil(labels / 2 - 1e-9))  # up to rounding, here and below
    if labels < 1 + 1e-9:
        return np.array([0.5])
    centres = np.arange(1, 2 * pairs, 2)[:, None]
    return ((centres + np.array([-1, 1]) / np.sqrt(3)) / (2 * pairs)).ravel()


def cells_of(
    space: Space, name: str, labels: xr.DataArray, bounds: xr.DataArray | None = None
) -> tuple[Array, Array, Array]:
    """Return which labels are in the domain, and the ends of the cells around them, which may leave it.

    A cell goes half-way to the next labels; the outermost ones as far outward as inward. Next to each other are
    longitudes on the circle, which the widest gap between them cuts, or nothing where they close it.
    """
    x, axis = _floats(space, name, labels), space.axis(name)
    with coordinate_in_errors(name):  # those of a longitude are not moved into the domain
        middle = axis.to_float(in_units_of(space, labels, name).values)
    if bounds is not None:
        own = bounds_of(xr.Dataset(), {name: bounds}, {name: labels})[name]  # in the units of the labels
        cells = read_cells(labels, own, name, space, labels.dims, labels.sizes)
        left, right = x - cells.real, cells.imag - x
    else:
        if middle.ndim != 1 or middle.size < 2 or not np.all(np.isfinite(middle)):
            raise ValueError(
                f"the cells around the labels of {name!r} are not known from {brief(middle)}; they take two or more "
                "labels along one dimension (or CF bounds)"
            )
        arc, rest = extent_of(middle, axis, name), (axis.wrap or np.nan) - np.ptp(middle)
        # No gap of two or three is wider than usual; they close the circle where they have one meridian at both ends.
        around = np.ptp(arc) == axis.wrap or (rest == 0 and middle.size < 4)
        if axis.wrap is not None and not around:
            middle = middle + axis.wrap * np.round((np.mean(arc) - middle) / axis.wrap)
        order = np.argsort(middle)
        gaps = np.diff(middle[order])
        if gaps.min() <= 0:
            raise ValueError(f"labels of {name!r} are there twice; drop_duplicates({name!r}) first")
        outer = (rest, rest) if around and rest >= 0 else (gaps[0], gaps[-1])
        left, right = np.empty_like(middle), np.empty_like(middle)
        left[order], right[order] = np.append(outer[0], gaps) / 2, np.append(gaps, outer[1]) / 2
    lower, upper = x - left, x + right
    if axis.role == "latitude":
        pole = 90 / (degrees_in(axis.units) or 1.0)
        lower, upper = np.clip(lower, -pole, pole), np.clip(upper, -pole, pole)
    return np.isfinite(space.within(x, name)), lower, upper


def _floats(space: Space, name: str, labels: xr.DataArray) -> Array:
    """Return labels as floats, in the units of the space; those of a longitude are moved into the domain."""
    return np.asarray(floats(labels, name, space, labels.dims, labels.sizes))


def check_weights(space: Space, weights: xr.DataArray, what: str, *, positive: bool) -> list[str]:
    """Return the fitted coordinates that weights go along; raises where they are none that a functional takes."""
    if not isinstance(weights, xr.DataArray) or weights.dtype.kind not in "biuf":
        raise ValueError(
            f"{what}{brief(weights)} has to be a DataArray of {'bool or ' * positive}numbers with labels of fitted "
            f"coordinates ({', '.join(space.names)})"
        )
    names = [name for name in space.names if name in weights.dims]
    beside = [
        name for name in space.names if name in weights.coords and weights[name].ndim and name not in names
    ]
    if not names or beside:
        raise ValueError(
            f"{what} has dimensions {weights.dims}, and none is a fitted coordinate of one dimension "
            f"({', '.join(space.names)}); name its dimensions as these, with one label each along them"
        )
    # As latitude for lat: in silence each latitude would be a region.
    for name, dim in itertools.product(set(space.names) - {*names}, set(map(str, weights.dims)) - {*names}):
        if min(len(name), len(dim)) >= 3 and (dim.startswith(name) or name.startswith(dim)):
            raise ValueError(
                f"{what} has no {name!r}, and {dim!r} is no fitted coordinate: rename it, .rename({dim}={name!r}), "
                "or if several regions lie along it, to 'region'"
            )
    if lost := [name for name in names if name not in weights.coords]:
        raise ValueError(
            f"dimension {lost[0]!r} of {what} has no labels; assign them: .assign_coords({lost[0]}=...)"
        )
    values = weights.values
    if values.dtype.kind == "f" and (missing := int(np.isnan(values).sum())):
        raise ValueError(
            f"{what} holds NaN, as a map of the numbers of regions does; pass one that is True in a region, such as "
            "numbers == 3, or several along a dimension (regionmask: mask_3D), or fillna(0)"
            if positive
            else f"{what} holds NaN at {missing} of {values.size} labels of {', '.join(names)}; what these count is "
            "not known: pass fillna(0) to leave them out of the sum"
        )
    if not np.isfinite(values).all() or (positive and (values < 0).any()):
        raise ValueError(f"{what} has to be finite{' and 0 or more' * positive}; set other weights to 0")
    if not values.any():
        raise ValueError(f"{what} marks no label; the mean over nothing is not known")
    return names


def _check_inside(space: Space, weights: xr.DataArray, name: str, inside: Array, what: str) -> None:
    """Raise ValueError where labels that count are outside the domain."""
    others = [dim for dim in weights.dims if dim != name]
    lost = (weights != 0).any(others).values & ~inside
    if lost.any():
        low, high = map(space.axis(name).text, space.basis(name).integral_range(space.axis(name)))
        raise ValueError(
            f"{what} counts {int(lost.sum())} labels of {name!r} outside its domain {low} to {high}, where the "
            "field has no values; select those inside, or fit a wider domain"
        )
