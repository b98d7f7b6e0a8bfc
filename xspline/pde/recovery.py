"""``field.recover``: from an equation's text to a Dataset of its constants."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import xarray as xr

from xspline.labels.field_base import FieldBase
from xspline.pde import expression, pointwise, report, units
from xspline.pde.equation import Equation, parse
from xspline.pde.points import Differences, Points, at_points
from xspline.pde.symbols import Coordinate, Known, Names, Symbol, Value

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
    grid = Points.of(field, at)
    points = Differences.inside(grid, parsed.values) if _method(method) == "differences" else grid
    values = {name: _values(symbol, given, points, names) for name, symbol in parsed.symbols.items()}
    batch = _batch_dims(parsed, field)
    sums = _sums(parsed, values, points, batch)
    estimate = pointwise.solve(sums)
    derived, remarks = units.of_parameters(parsed, _units(parsed, given, field))
    recovery = report.Recovery(
        parsed, _method(method), points, sums, estimate, batch, derived, tuple(remarks)
    )
    return report.dataset(recovery)


def _method(method: str | None) -> str:
    if method not in (None, *METHODS):
        raise ValueError(f"method={method!r} is unknown; use {' or '.join(map(repr, METHODS))}")
    return method or METHODS[0]


def _values(symbol: Symbol, known: Mapping[str, Any], points: Points, names: Names) -> Any:
    match symbol:
        case Value():
            return points.value(symbol)
        case Coordinate(name=name):
            return points.coordinate(name)
        case Known(name=name):
            return at_points(name, known[name], points, names.letters)


def _batch_dims(equation: Equation, field: FieldBase[Any]) -> tuple[Hashable, ...]:
    used = dict.fromkeys(value.variable for value in equation.values)
    return tuple(dict.fromkeys(dim for name in used for dim in field.variables[name].batch_dims))


def _sums(
    equation: Equation, values: Mapping[str, Any], points: Points, batch: tuple[Hashable, ...]
) -> pointwise.NormalEquations:
    """Evaluate the response and the terms, and sum their products."""
    with np.errstate(all="ignore"):
        response = expression.evaluate(equation.response, values)
        terms = [expression.evaluate(term.factor, values) for term in equation.terms]
        everywhere = sum(
            values[name] for name, symbol in equation.symbols.items() if isinstance(symbol, Value)
        )
        return pointwise.normal_equations(response, terms, list(points.sizes), batch, everywhere)


def _units(equation: Equation, known: Mapping[str, Any], field: FieldBase[Any]) -> dict[str, units.Unit]:
    """Return the unit of each name in the equation, from attributes."""
    by_name = {}
    for name, symbol in equation.symbols.items():
        match symbol:
            case Value(variable=variable, orders=orders):
                unit = units.Unit.parse(field.variables[variable].units, variable)
                for coordinate, order in orders:
                    unit = unit / _axis_unit(field, coordinate).to(order)
            case Coordinate(name=coordinate):
                unit = _axis_unit(field, coordinate)
            case Known(name=given):
                unit = units.Unit.parse(str(getattr(known[given], "attrs", {}).get("units", "")), given)
        by_name[name] = unit
    return by_name


def _axis_unit(field: FieldBase[Any], name: str) -> units.Unit:
    return units.Unit.parse(field.space.axis(name).units, name)
