"""Constants by least squares over points (paper, section 3.3), with exact or differenced derivatives."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from xspline.labels import evaluation
from xspline.labels.field_base import FieldBase
from xspline.pde.points import least_squares
from xspline.pde.points.evaluation_points import Differences, Points, at_points
from xspline.pde.points.least_squares import Estimate
from xspline.pde.results import (
    LONG_NAMES,
    not_real,
    of_the_space,
    units_of_names,
    varying_variables,
    with_roots,
)
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
    derived, remarks = unit_powers.of_parameters(parsed, units_of_names(parsed, given, field))
    recovery = Recovery(
        parsed, method, points, estimate, batch, derived, tuple(filter(None, [*remarks, remark]))
    )
    return _dataset(recovery)


@dataclass(frozen=True, eq=False)
class Recovery:
    """Everything that is known at the end.

    `batch` has the batch dimensions in the order of the estimates' first axes. `units` are those of each parameter,
    empty where they cannot be derived, and `remarks` tell what did not fit together in them.
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

    It raises ValueError where no batch member has what it takes to estimate from.
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
        for key, v in with_roots(powers, estimate.value, estimate.stderr, estimate.factor).items()
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
    checks = _checks(recovery)
    described: dict[Hashable, Any] = {
        key: (*variable, {"long_name": LONG_NAMES[key]}) for key, variable in variables.items()
    }
    for varying in recovery.equation.varying.values():
        unit = recovery.units[varying.parameter(varying.indices[0])]
        functions, labels, said = varying_variables(
            varying, powers, estimate.value, estimate.covariance, estimate.factor, unit, recovery.batch
        )
        described, coords = {**described, **functions}, {**coords, **labels}
        checks += [said] if said else []
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
    attrs["checks"] = "; ".join(checks) or "nothing to report"
    attrs["assumptions"] = ASSUMPTIONS
    attrs["history"] = evaluation.history(next(iter(fitted)).history, call)
    return xr.Dataset(described, coords, attrs)


# --- checks in words


def _checks(recovery: Recovery) -> list[str]:
    """Return what a reader of the estimates should know, each in a sentence without a full stop."""
    remarks, estimate = [], recovery.estimate
    remarks += not_real(recovery.powers, estimate.value)
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
    if (worst := float(estimate.condition.max())) > 1 / least_squares.STABILISER:
        remarks.append(
            f"the terms of {', '.join(map(str, recovery.powers))} are nearly proportional to each other (condition "
            f"number {worst:.2g}), so their estimates cannot be told apart"
        )
    if (relative := float(np.nanmax(estimate.relative_rms, initial=0.0))) > 0.5:
        remarks.append(f"the residual is {relative:.0%} of the terms without a parameter (root mean square)")
    remarks += of_the_space([recovery.equation], recovery.points.field, 3)
    if recovery.method == "differences":
        remarks.append("the truncation error of central differences is not part of stderr")
    return [*remarks, *recovery.remarks]
