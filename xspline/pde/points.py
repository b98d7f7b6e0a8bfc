"""Values and derivatives of a field where an equation is held against it: exact, or by central differences."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr

from xspline.labels import evaluation
from xspline.labels.field_base import FieldBase
from xspline.pde.symbols import Value


@dataclass(frozen=True, eq=False)
class Points:
    """Where a field is evaluated. Arrays that come from here have no coordinates; dimensions alone tell them apart.

    Attributes
    ----------
    field : the field.
    fields : the field of each variable.
    labels : of each fitted coordinate, in Space order.
    chunks : chunk sizes by dimension; None for arrays in memory.
    """

    field: FieldBase[Any]
    fields: Mapping[str, FieldBase[Any]]
    labels: Mapping[str, xr.DataArray]
    chunks: Mapping[Hashable, Any] | None

    @classmethod
    def of(cls, field: FieldBase[Any], at: Any) -> Points:
        """Return the points of a target; None means the fitted labels.

        Raises
        ------
        ValueError
            There are none, because the statistics of several holders were merged or the field was read from a file;
            or the field is still lazy.
        """
        if field.is_lazy:
            raise ValueError("this field is still lazy (compute=False); call .compute() first")
        s = field.statistics
        if at is None and (missing := [name for name in field.space.names if name not in (s.fitted or {})]):
            raise ValueError(
                f"this field remembers no labels of {', '.join(missing)}, so there is nowhere to hold the equation "
                f"against it; pass at= a grid, for example xr.Dataset(coords={{{missing[0]!r}: ...}})"
            )
        where = evaluation.resolve(field.space, s.fitted, s.chunks, at, {}, None)
        fields = {name: field[name] if s.is_dataset else field for name in field.variables}
        return cls(field, fields, where.coordinates, where.chunks)

    @property
    def sizes(self) -> dict[Hashable, int]:
        """Length of each dimension that the labels span."""
        return {dim: n for c in self.labels.values() for dim, n in c.sizes.items()}

    def value(self, value: Value) -> xr.DataArray:
        """Return a value or a derivative, exactly."""
        one = self.fields[value.variable]
        if not value.orders:
            return bare(one.predict(self.labels, chunks=self.chunks))
        return bare(one.derivative(self.labels, dict(value.orders), chunks=self.chunks))

    def coordinate(self, name: str) -> xr.DataArray:
        """Return labels as numbers: seconds since 1970-01-01 of the calendar for times."""
        axis = self.field.space.axes[name][0]
        plain = bare(self.labels[name])
        return xr.apply_ufunc(axis.to_float, plain, dask="parallelized", output_dtypes=[np.float64])


@dataclass(frozen=True, eq=False)
class Differences(Points):
    """Interior points of a regular grid, with derivatives by central differences of the values (paper, section 3.3).

    Attributes
    ----------
    grid : all of the grid.
    margins : points that each differentiated coordinate loses at both of its ends.
    """

    grid: Points
    margins: Mapping[str, int]

    @classmethod
    def inside(cls, points: Points, values: Iterable[Value]) -> Differences:
        """Return the points of the grid at which all these derivatives have neighbours on both sides.

        Raises
        ------
        ValueError
            A coordinate is not a dimension of its own, is not evenly spaced, or is too short.
        """
        margins: dict[str, int] = {}
        for name, order in (pair for value in values for pair in value.orders):
            margins[name] = max(margins.get(name, 0), (order + 1) // 2)
        for name, margin in margins.items():
            _check_dimension(points, name, margin)
        inside = _shifted(points.labels, margins, {})
        return cls(points.field, points.fields, inside, points.chunks, points, margins)

    def value(self, value: Value) -> xr.DataArray:
        """Return a value, or a derivative by second differences and, for an odd order, one central first difference."""
        if not value.orders:
            return super().value(value)
        stencils = [stencil(order) for _, order in value.orders]
        total: Any = 0
        for place in itertools.product(*(s.items() for s in stencils)):
            shifts = {name: shift for (name, _), (shift, _) in zip(value.orders, place, strict=True)}
            weight = np.prod([w for _, w in place])
            total = total + weight * self._at(value.variable, tuple(shifts.items()))
        scale = np.prod([self.step(name) ** order for name, order in value.orders])
        return total / scale

    @functools.cached_property
    def _found(self) -> dict[Any, xr.DataArray]:
        return {}

    def _at(self, variable: str, shifts: tuple[tuple[str, int], ...]) -> xr.DataArray:
        """Return the values on the interior moved by some grid points; each is evaluated once."""
        moved = tuple((name, shift) for name, shift in shifts if shift)
        if (variable, moved) not in self._found:
            labels = _shifted(self.grid.labels, self.margins, dict(moved))
            self._found[variable, moved] = replace(self.grid, labels=labels).value(Value(variable))
        return self._found[variable, moved]

    def step(self, name: str) -> float:
        """Return the spacing of a coordinate, in its own units or seconds."""
        x = self.grid.coordinate(name).values
        return float((x[-1] - x[0]) / (x.size - 1))


def stencil(order: int) -> dict[int, float]:
    """Return the weights of a central difference by offset, for a spacing of one.

    >>> stencil(2)
    {-1: 1.0, 0: -2.0, 1: 1.0}
    """
    weights = np.ones(1)
    for _ in range(order // 2):
        weights = np.convolve(weights, [1.0, -2.0, 1.0])
    if order % 2:
        weights = np.convolve(weights, [-0.5, 0.0, 0.5])
    margin = weights.size // 2
    return {i - margin: float(w) for i, w in enumerate(weights) if w}


def bare(array: xr.DataArray) -> xr.DataArray:
    """Return the array without name, coordinates and attributes."""
    return xr.DataArray(array.variable).drop_attrs()


def _shifted(
    labels: Mapping[str, xr.DataArray], margins: Mapping[str, int], shifts: Mapping[str, int]
) -> dict[str, xr.DataArray]:
    """Return the labels with the margins cut off, moved by some grid points."""
    found = {}
    for name, array in labels.items():
        margin, shift = margins.get(name, 0), shifts.get(name, 0)
        inside = {array.dims[0]: slice(margin + shift, array.size - margin + shift)} if margin else {}
        found[name] = array.isel(inside)
    return found


def _check_dimension(points: Points, name: str, margin: int) -> None:
    labels = points.labels[name]
    shared = [n for n, other in points.labels.items() if n != name and set(other.dims) & set(labels.dims)]
    if labels.ndim != 1 or shared:
        what = f"shares a dimension with {', '.join(shared)}" if shared else f"has dimensions {labels.dims}"
        raise ValueError(
            f"method='differences' needs a regular grid, but {name!r} {what}; pass at= a grid, "
            f"or use method='pointwise'"
        )
    if labels.size < 2 * margin + 1:
        raise ValueError(
            f"there is nothing left to estimate from: {name!r} has {labels.size} labels and differences need "
            f"{2 * margin + 1} or more; pass at= a longer grid"
        )
    _check_spacing(points.coordinate(name).values, name, labels.dtype)


def _check_spacing(x: np.ndarray, name: str, dtype: np.dtype[Any]) -> None:
    steps, mean = np.diff(x), (x[-1] - x[0]) / (x.size - 1)
    rounding = np.finfo(np.float32 if dtype == np.float32 else np.float64).eps
    tolerance = 1e-9 * abs(mean) + 4 * rounding * np.abs(x).max()
    if not np.abs(steps - mean).max() <= tolerance or mean == 0:
        raise ValueError(
            f"method='differences' needs an evenly spaced {name!r}, but its steps go from {steps.min():g} to "
            f"{steps.max():g}; pass at= a regular grid, or use method='pointwise'"
        )
