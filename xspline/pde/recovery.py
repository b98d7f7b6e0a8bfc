"""``field.recover``: from an equation's text to a Dataset of its constants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from xspline.labels.field_base import FieldBase
from xspline.pde import expression, pointwise, report, units
from xspline.pde.equation import Equation, parse
from xspline.pde.points import Differences, Points, at_points
from xspline.pde.symbols import Coordinate, Known, Names, Value

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
    recovery = report.Recovery(parsed, method, points, estimate, batch, derived, tuple(remarks))
    return report.dataset(recovery)


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
