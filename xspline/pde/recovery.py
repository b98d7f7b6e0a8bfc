"""``field.recover``: from an equation's text to a Dataset of its constants."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from xspline.labels import evaluation
from xspline.labels.field_base import FieldBase
from xspline.pde import expression, pointwise, units
from xspline.pde.equation import Equation, Power, parse
from xspline.pde.points import Differences, Points, at_points
from xspline.pde.pointwise import Estimate, Floats, root
from xspline.pde.symbols import Coordinate, Known, Names, Value

ASSUMPTIONS = (
    "stderr and the 95 % interval assume independent residuals and terms without error; neighbouring points of a "
    "smooth field are neither, so the true uncertainty is larger"
)
_NEARLY_SINGULAR = 1e8
_UNEXPLAINED = 0.5
_LONG_NAMES = {
    "estimate": "least-squares estimate",
    "stderr": "standard error, assuming independent residuals",
    "lower": "lower end of the 95 % interval",
    "upper": "upper end of the 95 % interval",
    "raw": "least-squares estimate of the power in which the parameter enters",
    "raw_stderr": "standard error of that power",
    "points": "points used",
    "residual_rms": "root mean squared residual",
    "condition_number": "condition number of the normal equations, terms scaled to one size",
}

METHODS = ("pointwise", "differences")


def recover(
    field: FieldBase[Any],
    equation: str,
    *,
    known: Mapping[str, Any] | None = None,
    dims: Mapping[str, str] | None = None,
    method: str | None = None,
    at: Any = None,
) -> xr.Dataset:
    """Estimate the constants of an equation that a field obeys, by least squares over points (paper, section 3.3).

    Parameters
    ----------
    field : Field or Draws
        Its variables go by their names, a single one also by ``u``; ``u_xx`` and ``u_xt`` are derivatives.
    equation : str
        For example ``"u_t + u*u_x = D*(u_xx + u_yy) + S"``: linear in its parameters, which are all names that mean
        nothing else. A parameter may be to a fixed power (``c**2``); that power is what is estimated, and `c` is its
        root. Functions: sin, cos, tan, exp, log, sqrt, tanh, abs.
    known : mapping, optional
        What is known, by name: a number; a DataArray whose labels are those of the points or cover them exactly; a
        function whose arguments are named after coordinates (``lambda x, t: ...``).
    dims : mapping, optional
        The fitted coordinate that each letter means. By default coordinates of one letter mean themselves, ``t`` is
        time, ``x`` longitude and ``y`` latitude. Times are in seconds.
    method : {"pointwise", "differences"}, optional
        "pointwise" (the default) takes exact derivatives of the fitted functions; "differences" takes the paper's
        central differences on the interior of a regular grid.
    at : optional
        The points, as for ``predict``; None means the fitted labels.

    Returns
    -------
    Dataset
        Over ``parameter`` and the batch dimensions: ``estimate``, ``stderr``, ``lower``, ``upper`` (95 %), and for
        parameters that enter as powers ``raw`` and ``raw_stderr``, those of the power itself; a power that is negative
        where it has no root leaves the estimate NaN. Coordinates: ``units``. Attributes: method, equation, points,
        residual_rms, condition_number (variables if there are batch dimensions), checks and assumptions in words.

    Raises
    ------
    ValueError
        The equation cannot be read or is not linear in its parameters, a name means nothing, a derivative is above the
        degree, what is known does not cover the points, or nothing is left to estimate from.

    Notes
    -----
    1e-8 is added to the diagonal of the normal equations, as in the paper, or 1e-8 of the diagonal where that is less.
    """
    names, given = Names.of(field, dims, known or {}), dict(known or {})
    parsed = parse(equation, names)
    points = Points.of(field, at)
    if method not in (None, *METHODS):
        raise ValueError(f"method={method!r} is unknown; use {' or '.join(map(repr, METHODS))}")
    method = method or METHODS[0]
    if method == "differences":
        points = Differences.inside(points, parsed.values)
    values: dict[str, Any] = {}
    for name, symbol in parsed.symbols.items():
        match symbol:
            case Value():
                values[name] = points.value(symbol)
            case Coordinate():
                values[name] = points.coordinate(symbol.name)
            case Known():
                values[name] = at_points(name, given[symbol.name], points, names.letters)
    used = dict.fromkeys(value.variable for value in parsed.values)
    batch = tuple(dict.fromkeys(dim for name in used for dim in field.variables[name].batch_dims))
    with np.errstate(all="ignore"):
        response = expression.evaluate(parsed.response, values)
        terms = [expression.evaluate(factor, values) for factor in parsed.terms.values()]
        everywhere = sum(values[name] for name, symbol in parsed.symbols.items() if isinstance(symbol, Value))
    estimate = pointwise.least_squares(response, terms, list(points.sizes), batch, everywhere)
    derived, remarks = units.of_parameters(parsed, _units(parsed, given, field))
    recovery = Recovery(parsed, method, points, estimate, batch, derived, tuple(remarks))
    return _dataset(recovery)


def _units(equation: Equation, known: Mapping[str, Any], field: FieldBase[Any]) -> dict[str, units.Unit]:
    """Return the unit of each name in the equation, from attributes."""
    of_axes = {name: units.Unit.parse(field.space.axis(name).units, name) for name in field.space.names}
    by_name = {}
    for name, symbol in equation.symbols.items():
        match symbol:
            case Value(variable=variable, orders=orders):
                unit = units.Unit.parse(field.variables[variable].units, variable)
                for coordinate, order in orders:
                    unit = unit / of_axes[coordinate].to(order)
            case Coordinate(name=coordinate):
                unit = of_axes[coordinate]
            case Known(name=given):
                unit = units.Unit.parse(str(getattr(known[given], "attrs", {}).get("units", "")), given)
        by_name[name] = unit
    return by_name


@dataclass(frozen=True, eq=False)
class Recovery:
    """Everything that is known at the end.

    Attributes
    ----------
    equation, method, points, estimate : of the estimation.
    batch : batch dimensions, in the order of the estimates' first axes.
    units : of each parameter, empty where they cannot be derived.
    remarks : what did not fit together in the units.
    """

    equation: Equation
    method: str
    points: Points
    estimate: Estimate
    batch: tuple[Hashable, ...]
    units: Mapping[str, str]
    remarks: tuple[str, ...]

    @property
    def powers(self) -> list[Power]:
        """How each parameter enters."""
        return list(self.equation.terms)

    @property
    def total(self) -> int:
        """Number of points, used or not."""
        return math.prod(self.points.sizes.values())


def _dataset(recovery: Recovery) -> xr.Dataset:
    """Return the Dataset of ``recover``.

    Raises
    ------
    ValueError
        No batch member has what it takes to estimate from.
    """
    estimate, powers = recovery.estimate, recovery.powers
    if not np.isfinite(estimate.value).any():
        count = int(estimate.count.max(initial=0))
        if count <= len(powers):
            raise ValueError(
                f"there is nothing left to estimate from: {count} of {recovery.total} points have finite values of "
                f"every term, which is not more than the parameters ({', '.join(map(str, powers))}); pass at= points "
                f"inside the domain, and known values without gaps"
            )
        zero = [str(power) for i, power in enumerate(powers) if not estimate.squares[..., i].all()]
        raise ValueError(
            f"there is nothing left to estimate from: the term of {' and of '.join(zero)} is zero at all {count} points"
        )
    variables = {
        key: (("parameter", *recovery.batch), np.moveaxis(v, -1, 0))
        for key, v in _estimates(recovery).items()
    }
    scalars = {
        "points": estimate.count.astype(int),
        "residual_rms": estimate.rms,
        "condition_number": estimate.condition,
    }
    if recovery.batch:
        variables |= {key: (recovery.batch, v) for key, v in scalars.items()}
    names = [power.parameter for power in powers]
    coords: dict[Hashable, Any] = {
        "parameter": names,
        "units": ("parameter", [recovery.units[name] for name in names]),
    }
    described = {key: (*variable, {"long_name": _LONG_NAMES[key]}) for key, variable in variables.items()}
    fitted = recovery.points.field.variables.values()
    coords |= {
        name: c.variable
        for variable in fitted
        for name, c in variable.batch.coords.items()
        if set(c.dims) <= set(recovery.batch)
    }
    call = f"recover({recovery.equation.text!r}, method={recovery.method!r})"
    attrs: dict[str, str | int | float] = {"equation": recovery.equation.text, "method": recovery.method}
    if not recovery.batch:
        attrs |= {key: value.item() for key, value in scalars.items()}
    attrs["checks"] = "; ".join(_checks(recovery)) or "nothing to report"
    attrs["assumptions"] = ASSUMPTIONS
    attrs["history"] = evaluation.history(next(iter(fitted)).history, call)
    return xr.Dataset(described, coords, attrs)


def _estimates(recovery: Recovery) -> dict[str, Floats]:
    """Return estimates and errors of the parameters, and of their powers where these differ; [b.., p].

    Where a power enters, the parameter is its root, with the error to first order and the roots of the interval's ends.
    """
    raw, raw_error = recovery.estimate.value, recovery.estimate.stderr
    half_width = recovery.estimate.factor[..., None] * raw_error
    columns = {"estimate": raw, "stderr": raw_error, "lower": raw - half_width, "upper": raw + half_width}
    columns = {key: column.copy() for key, column in columns.items()}
    for i, exponent in (
        (i, power.exponent) for i, power in enumerate(recovery.powers) if power.exponent != 1
    ):
        value, error, low, high = (columns[key][..., i] for key in ("estimate", "stderr", "lower", "upper"))
        estimate = root(value, exponent)
        if exponent % 2 != 1:
            low = np.maximum(low, 0.0)
        with np.errstate(all="ignore"):
            stderr = error * np.abs(estimate / (exponent * value))
            ends = np.where(np.isfinite(estimate), [root(low, exponent), root(high, exponent)], np.nan)
        for key, column in zip(columns, (estimate, stderr, ends.min(axis=0), ends.max(axis=0)), strict=True):
            columns[key][..., i] = column
    if any(power.exponent != 1 for power in recovery.powers):
        columns |= {"raw": raw, "raw_stderr": raw_error}
    return columns


# --- checks in words


def _checks(recovery: Recovery) -> list[str]:
    """Return what a reader of the estimates should know, each in a sentence without a full stop."""
    remarks, estimate = [], recovery.estimate
    for i, power in enumerate(recovery.powers):
        raw = estimate.value[..., i]
        wrong = (raw < 0) & np.isnan(root(raw, power.exponent))
        if wrong.any() and raw.ndim == 0:
            remarks.append(f"{power} = {raw.item():.6g} is negative, so {power.parameter} is not real")
        elif wrong.any():
            where = f"{wrong.sum()} of {wrong.size} batch members"
            remarks.append(f"{power} is negative for {where}, so {power.parameter} is not real there")
    lost = recovery.total - estimate.count
    if lost.any():
        most = "up to " if recovery.batch else ""
        remarks.append(
            f"{most}{int(lost.max())} of {recovery.total} points were left out: outside the domain, or a known has no "
            f"value there"
        )
    if (undetermined := np.isnan(estimate.value).any(-1)).any():
        remarks.append(
            f"{undetermined.sum()} of {undetermined.size} batch members do not determine the parameters"
        )
    if (worst := float(estimate.condition.max())) > _NEARLY_SINGULAR:
        remarks.append(
            f"the terms of {', '.join(map(str, recovery.powers))} are nearly proportional to each other (condition "
            f"number {worst:.2g}), so their estimates cannot be told apart"
        )
    if (relative := float(np.nanmax(estimate.relative_rms, initial=0.0))) > _UNEXPLAINED:
        remarks.append(f"the residual is {relative:.0%} of the terms without a parameter (root mean square)")
    space, highest = recovery.points.field.space, dict[str, int]()
    for name, order in (pair for value in recovery.equation.values for pair in value.orders):
        highest[name] = max(order, highest.get(name, 0))
    for name, order in highest.items():
        axis, features = space.axis(name), space.features[space.names.index(name)]
        if axis.role in ("latitude", "longitude") or axis.units.startswith("degree"):
            remarks.append(
                f"derivatives along {name!r} are per {axis.units or 'degree'} and not per metre: the metric of the "
                f"sphere is left out"
            )
        if features.local and features.max_order is not None and features.max_order < order + 3:
            remarks.append(
                f"{name!r} has B-splines of degree {features.max_order}; for derivatives of order {order}, "
                f"degree {order + 3} or more is advised"
            )
    if recovery.method == "differences":
        remarks.append("the truncation error of central differences is not part of stderr")
    return [*remarks, *recovery.remarks]
