"""What comes back from the recovery of constants, whatever the method: roots of powers, units, names of variables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xspline.labels.field_base import FieldBase
from xspline.pde import units
from xspline.pde.equation import Equation, Power
from xspline.pde.pointwise import Floats, root
from xspline.pde.symbols import Coordinate, Known, Value

LONG_NAMES = {
    "estimate": "least-squares estimate",
    "stderr": "standard error",
    "lower": "lower end of the 95 % interval",
    "upper": "upper end of the 95 % interval",
    "raw": "least-squares estimate of the power in which the parameter enters",
    "raw_stderr": "standard error of that power",
    "points": "points used",
    "residual_rms": "root mean squared residual",
    "condition_number": "condition number of the normal equations, terms scaled to one size",
    "covariance": "covariance of the estimates",
    "weak": "estimate of the weak form, for comparison",
    "weak_stderr": "standard error of the weak form",
    "resolution": "error that the knots leave, from every second one",
    "holder_stderr": "standard error from the scores of holders, for errors that are correlated within one",
    "sigma": "standard deviation of an observation of weight 1 about a field that obeys the equation",
    "adequacy": "F ratio of the fit that obeys the equation against the free one; about 1 where the equation holds",
    "probability": "probability of a larger F ratio where the equation holds",
    "converged": "whether the search converged",
}


def units_of_names(
    equation: Equation, known: Mapping[str, Any], field: FieldBase[Any]
) -> dict[str, units.Unit]:
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


def with_roots(
    powers: Sequence[Power],
    raw: Floats,
    raw_error: Floats,
    factor: Floats,
    interval: tuple[Floats, Floats] | None = None,
) -> dict[str, Floats]:
    """Return estimates and errors of the parameters, and of their powers where these differ; [b.., p].

    Where a power enters, the parameter is its root, with the error to first order and the roots of the interval's ends.

    Parameters
    ----------
    powers : how each parameter enters.
    raw, raw_error : of the powers, [b.., p].
    factor : half the width of the interval in standard errors, [b..].
    interval : ends of those of the powers, [b.., p] each, where they are not even.
    """
    half_width = factor[..., None] * raw_error
    lower, upper = interval or (raw - half_width, raw + half_width)
    columns = {"estimate": raw, "stderr": raw_error, "lower": lower, "upper": upper}
    columns = {key: column.copy() for key, column in columns.items()}
    for i, exponent in ((i, power.exponent) for i, power in enumerate(powers) if power.exponent != 1):
        value, error, low, high = (columns[key][..., i] for key in ("estimate", "stderr", "lower", "upper"))
        estimate = root(value, exponent)
        if exponent % 2 != 1:
            low = np.maximum(low, 0.0)
        with np.errstate(all="ignore"):
            stderr = error * np.abs(estimate / (exponent * value))
            ends = np.where(np.isfinite(estimate), [root(low, exponent), root(high, exponent)], np.nan)
        for key, column in zip(columns, (estimate, stderr, ends.min(axis=0), ends.max(axis=0)), strict=True):
            columns[key][..., i] = column
    if any(power.exponent != 1 for power in powers):
        columns |= {"raw": raw, "raw_stderr": raw_error}
    return columns


def not_real(powers: Sequence[Power], raw: Floats) -> list[str]:
    """Return which parameters have powers without a real root, each in a sentence without a full stop."""
    remarks = []
    for i, power in enumerate(powers):
        value = raw[..., i]
        wrong = (value < 0) & np.isnan(root(value, power.exponent))
        if wrong.any() and value.ndim == 0:
            remarks.append(f"{power} = {value.item():.6g} is negative, so {power.parameter} is not real")
        elif wrong.any():
            where = f"{wrong.sum()} of {wrong.size} batch members"
            remarks.append(f"{power} is negative for {where}, so {power.parameter} is not real there")
    return remarks


def highest_orders(equations: Sequence[Equation]) -> dict[str, int]:
    """Return the highest derivative along each coordinate that has one."""
    highest: dict[str, int] = {}
    for value in (value for equation in equations for value in equation.values):
        for name, order in value.orders:
            highest[name] = max(order, highest.get(name, 0))
    return highest


def low_degrees(equations: Sequence[Equation], field: FieldBase[Any], more: int) -> list[str]:
    """Return the coordinates whose degree exceeds the order of a derivative by less than `more`, and what to write."""
    remarks, space = [], field.space
    for name, order in highest_orders(equations).items():
        features = space.features[space.names.index(name)]
        if features.local and features.max_order is not None and features.max_order < order + more:
            degree, enough = features.max_order, order + more
            size = features.size + (0 if features.periodic else enough - degree)
            remarks.append(
                f"{name!r} has B-splines of degree {degree}; for derivatives of order {order}, degree {enough} or "
                f"more is advised: fit with {json.dumps(name)}: xs.BSpline({size}, {enough}), or leave the space to "
                "xs.recover(data, equation)"
            )
    return remarks


def of_the_space(equations: Sequence[Equation], field: FieldBase[Any], more: int) -> list[str]:
    """Return what to know of the coordinates: degrees that are not metres, and B-splines of too low a degree.

    `more` is by how much a degree should exceed the order of a derivative.
    """
    remarks = []
    for name in highest_orders(equations):
        axis = field.space.axis(name)
        if axis.role in ("latitude", "longitude") or axis.units.startswith("degree"):
            remarks.append(
                f"derivatives along {name!r} are per {axis.units or 'degree'} and not per metre: the metric of the "
                f"sphere is left out"
            )
    return [*remarks, *low_degrees(equations, field, more)]
