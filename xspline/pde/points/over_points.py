"""Constants by least squares over points (paper, section 3.3), with exact or differenced derivatives."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from xspline.labels.field_base import FieldBase
from xspline.pde.points import least_squares
from xspline.pde.points.evaluation_points import Differences, Points, at_points
from xspline.pde.points.least_squares import Estimate
from xspline.pde.results import as_dataset, not_real, of_the_space, units_of_names, with_roots
from xspline.pde.text import expression, unit_powers
from xspline.pde.text.equation import Equation, Power
from xspline.pde.text.symbols import CoordinateSymbol, KnownSymbol, Names, Shape, Value

ASSUMPTIONS = (
    "stderr and the 95 % interval assume independent residuals and terms without error; neighbouring points of a "
    "smooth field are neither, so the true uncertainty is larger"
)


def over_points(
    field: FieldBase[Any],
    parsed: Equation,
    names: Names,
    given: Mapping[str, Any],
    method: str,
    at: Any,
    remark: str = "",
) -> xr.Dataset:
    """Return the Dataset of ``recover`` by "pointwise" or "differences"; a remark goes to its checks.

    It raises ValueError where what is known does not cover the points, or nothing is left to estimate from.
    """
    points = Points.of(field, at)
    if method == "differences":
        points = Differences.inside(points, parsed.values)
    values: dict[str, Any] = {}
    for name, symbol in parsed.symbols.items():
        match symbol:
            case Value():
                values[name] = points.value(symbol)
            case CoordinateSymbol():
                values[name] = points.coordinate(symbol.name)
            case Shape():
                values[name] = symbol.value(points.along)
            case KnownSymbol():
                values[name] = at_points(name, given[symbol.name], points, names.letters)
    used = dict.fromkeys(value.variable for value in parsed.values)
    batch = tuple(dict.fromkeys(dim for name in used for dim in field.variables[name].batch_dims))
    with np.errstate(all="ignore"):
        response = expression.evaluate(parsed.response, values)
        terms = [expression.evaluate(factor, values) for factor in parsed.terms.values()]
        everywhere = sum(values[name] for name, symbol in parsed.symbols.items() if isinstance(symbol, Value))
    estimate = least_squares.least_squares(response, terms, list(points.sizes), batch, everywhere)
    powers = list(parsed.terms)
    total = math.prod(points.sizes.values())
    _check_determined(estimate, powers, total)
    columns = with_roots(powers, estimate.value, estimate.stderr, estimate.factor)
    variables: dict[str, Any] = {
        key: (("parameter", *batch), np.moveaxis(v, -1, 0)) for key, v in columns.items()
    }
    scalars = {
        "points": estimate.count.astype(int),
        "residual_rms": estimate.rms,
        "condition_number": estimate.condition,
    }
    variables |= {key: (batch, v) for key, v in scalars.items() if batch}
    units, remarks = unit_powers.of_parameters(parsed, units_of_names(parsed, given, field))
    checks = [*_checks(powers, estimate, total), *of_the_space([parsed], field, 3)]
    if method == "differences":
        checks.append("the truncation error of central differences is not part of stderr")
    return as_dataset(
        [parsed],
        method,
        powers,
        (estimate.value, estimate.covariance, estimate.factor),
        variables,
        units,
        list(field.variables.values()),
        batch,
        [*checks, *remarks, remark],
        **{key: v.item() for key, v in scalars.items() if not batch},
        assumptions=ASSUMPTIONS,
    )


def _check_determined(estimate: Estimate, powers: Sequence[Power], total: int) -> None:
    """Raise ValueError where no batch member has what it takes to estimate from."""
    if np.isfinite(estimate.value).any():
        return
    count = int(estimate.count.max(initial=0))
    if count <= len(powers):
        raise ValueError(
            f"there is nothing left to estimate from: {count} of {total} points have finite values of "
            f"every term, which is not more than the parameters ({', '.join(map(str, powers))}); pass at= points "
            f"inside the domain, and known values without gaps"
        )
    zero = [str(power) for i, power in enumerate(powers) if not estimate.squares[..., i].all()]
    raise ValueError(
        f"there is nothing left to estimate from: the term of {' and of '.join(zero)} is zero at all {count} points"
    )


def _checks(powers: Sequence[Power], estimate: Estimate, total: int) -> list[str]:
    """Return what a reader of the estimates should know, each in a sentence without a full stop."""
    remarks = not_real(powers, estimate.value)
    lost = total - estimate.count
    if lost.any():
        most = "up to " if lost.ndim else ""
        remarks.append(
            f"{most}{int(lost.max())} of {total} points were left out: outside the domain, or a known has no "
            f"value there"
        )
    if (undetermined := np.isnan(estimate.value).any(-1)).any():
        remarks.append(
            f"{undetermined.sum()} of {undetermined.size} batch members do not determine the parameters"
        )
    if (worst := float(estimate.condition.max())) > 1 / least_squares.STABILISER:
        remarks.append(
            f"the terms of {', '.join(map(str, powers))} are nearly proportional to each other (condition "
            f"number {worst:.2g}), so their estimates cannot be told apart"
        )
    if (relative := float(np.nanmax(estimate.relative_rms, initial=0.0))) > 0.5:
        remarks.append(f"the residual is {relative:.0%} of the terms without a parameter (root mean square)")
    return remarks
