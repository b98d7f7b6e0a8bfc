"""What comes back from the recovery of constants, whatever the method: roots of powers, units, names of variables."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from xspline.labels import evaluation
from xspline.labels.field_base import FieldBase
from xspline.labels.fit import Fit, batch_labels
from xspline.labels.read.observations import Variable
from xspline.pde.text import unit_powers
from xspline.pde.text.equation import Equation, Power
from xspline.pde.text.symbols import CoordinateSymbol, Fitted, KnownSymbol, Shape, Value, Varying
from xspline.spaces import Space

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
RESERVED = frozenset({*LONG_NAMES, "parameter", "other", "units"})  # names that a result may have

LEVEL = 0.95  # probability of intervals
ENOUGH = 2  # by how much the degree of a B-spline should exceed the order of a derivative
ROUGH = 0.25  # of a constant: an error, or change, from which the field is no longer close to linear in it

Floats = np.ndarray[Any, np.dtype[np.float64]]


def as_dataset(
    equations: Sequence[Equation],
    method: str,
    powers: Sequence[Power],
    estimate: tuple[Floats, Floats, Floats],
    variables: Mapping[str, tuple[tuple[Hashable, ...], Floats]],
    units: Mapping[str, str],
    fitted: Sequence[Variable],
    batch: tuple[Hashable, ...],
    checks: Sequence[str],
    **attrs: Any,
) -> xr.Dataset:
    """Return the Dataset of ``recover``, with constants that vary over labels of their own.

    `estimate` are the powers that were estimated, [b.., p], their covariance, [b.., p, p], and half the width of an
    interval in standard errors, [b..]. `variables` have their dimensions, of which `batch` are those of the `fitted`
    variables.
    """
    names = [power.parameter for power in powers]
    coords: dict[Hashable, Any] = {
        "parameter": names,
        "units": ("parameter", [units.get(name, "") for name in names]),
    }
    for variable in fitted:
        labels = batch_labels(variable, RESERVED)
        coords |= {n: c.variable for n, c in labels.items() if set(c.dims) <= set(batch)}
    described: dict[Hashable, Any] = {
        key: (*variable, {"long_name": LONG_NAMES[key]}) for key, variable in variables.items()
    }
    remarks = list(checks)
    for varying in {n: v for e in equations for n, v in e.varying.items()}.values():
        unit = units.get(varying.parameter(varying.indices[0]), "")
        functions, along, said = varying_variables(varying, powers, *estimate, unit, batch)
        described |= functions
        coords |= along
        remarks.append(said)
    text = "; ".join(equation.text for equation in equations)
    own = {
        "equation": text,
        "method": method,
        **attrs,
        "checks": "; ".join(filter(None, remarks)) or "nothing to report",
        "history": evaluation.history(fitted[0].history, f"recover({text!r}, method={method!r})"),
    }
    return xr.Dataset(described, coords, own)


def units_of_names(
    equation: Equation, known: Mapping[str, Any], field: Fitted
) -> dict[str, unit_powers.Unit]:
    """Return the unit of each name in the equation, from attributes."""
    of_axes = {name: unit_powers.Unit.parse(field.space.axis(name).units, name) for name in field.space.names}
    by_name = {}
    for name, symbol in equation.symbols.items():
        match symbol:
            case Value(variable=variable, orders=orders):
                unit = unit_powers.Unit.parse(field.variables[variable].units, variable)
                for coordinate, order in orders:
                    unit = unit / of_axes[coordinate].to(order)
            case CoordinateSymbol(name=coordinate):
                unit = of_axes[coordinate]
            case Shape(varying=varying, orders=shape_orders):
                unit = unit_powers.Unit()
                for coordinate, order in zip(varying.coordinates, shape_orders, strict=True):
                    unit = unit / of_axes[coordinate].to(order)
            case KnownSymbol(name=given):
                own = known[given]
                variables = own.variables.values() if isinstance(own, FieldBase) else ()
                units = next((v.units for v in variables), getattr(own, "attrs", {}).get("units", ""))
                unit = unit_powers.Unit.parse(str(units or ""), given)
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
    `powers` tell how each parameter enters. `raw` and `raw_error` are of the powers, [b.., p], and so are the ends of
    `interval`, given where they are not even; `factor`, [b..], is half its width in standard errors.
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


def varying_variables(
    varying: Varying,
    powers: Sequence[Power],
    raw: Floats,
    covariance: Floats,
    factor: Floats,
    unit: str,
    batch: tuple[Hashable, ...],
) -> tuple[dict[Hashable, Any], dict[Hashable, Any], str]:
    """Return a constant that varies on a grid of labels: variables, coordinates, and what to know of it.

    `powers` tell how each parameter enters, `raw`, [b.., p], is its estimate, and `covariance`, [b.., p, p], that of
    the estimates. `factor`, [b..], is half the width of the interval in standard errors, and `unit` that of the
    constant, empty if it is not known.
    """
    count = {1: 101, 2: 41}.get(len(varying.ends), 11)  # labels along each coordinate
    nodes = [np.linspace(lo, hi, count) for lo, hi in varying.ends]
    designs = [f.design(x) for f, x in zip(varying.features, nodes, strict=True)]
    both = np.ones((1, 1))
    for design in designs:  # [labels.., functions..]
        both = (both[:, None, :, None] * design[:, None, :]).reshape(len(both) * count, -1)
    names = [power.parameter for power in powers]
    own = [names.index(varying.parameter(index)) for index in varying.indices]
    value = raw[..., own] @ both.T
    inside = covariance[..., own, :][..., own]
    with np.errstate(invalid="ignore"):
        stderr = np.sqrt(np.sum((both @ inside) * both, axis=-1))
    half = factor[..., None] * stderr
    columns = {"": value, "stderr": stderr, "lower": value - half, "upper": value + half}
    dims = (*varying.coordinates, *batch)
    variables: dict[Hashable, Any] = {}
    for key, column in columns.items():
        array = np.moveaxis(column, -1, 0).reshape(*(len(x) for x in nodes), *column.shape[:-1])
        text = f"{varying.name}({', '.join(varying.coordinates)})"
        attrs = {"long_name": f"{LONG_NAMES[key]} of {text}" if key else text, "units": unit}
        variables[f"{varying.name}_{key}" if key else varying.name] = (dims, array, attrs)
    coords: dict[Hashable, Any] = {
        name: (name, axis.to_label(x), {"units": axis.units} if axis.kind == "number" and axis.units else {})
        for name, axis, x in zip(varying.coordinates, varying.axes, nodes, strict=True)
    }
    with np.errstate(invalid="ignore"):
        share = float(np.mean(stderr > ROUGH * np.abs(value)))
    remark = (
        f"{varying.name} is known to no better than {ROUGH:.0%} of its size at {share:.0%} of its labels: there the "
        "field tells little of it, or it is near zero; fewer functions in vary= are surer"
    )
    return variables, coords, remark if share > 0 else ""


def root(value: Floats, exponent: float) -> Floats:
    """Return the parameter whose power is `value`: of an odd power with its sign, of others NaN below zero."""
    with np.errstate(all="ignore"):
        if exponent % 2 == 1:
            return np.sign(value) * np.abs(value) ** (1 / exponent)
        return np.where(value >= 0, np.abs(value) ** (1 / exponent), np.nan)


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


def low_degrees(equations: Sequence[Equation], space: Space, more: int) -> list[str]:
    """Return the coordinates whose degree exceeds the order of a derivative by less than `more`, and what to write."""
    remarks = []
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


def correlated(fits: Iterable[Fit]) -> Iterator[str]:
    """Yield along what residuals of the fields are correlated, which no equation keeps near the data."""
    found: dict[str, float] = {}
    for fit in fits:
        found |= fit.residuals.get("correlated", {})
    if found:
        along = ", ".join(f"{name!r} ({r:.2g})" for name, r in found.items())
        yield (
            f"neighbours' residuals from the field without the equation are correlated along {along}, and errors and "
            "tests here take them as independent, so that a term may seem to be missing that is not: use more knots; "
            "where that changes nothing, average observations over steps longer than their errors remember"
        )


def of_the_space(equations: Sequence[Equation], field: Fitted, more: int) -> list[str]:
    """Return what to know of the coordinates: degrees that are not metres, and B-splines of too low a degree.

    `more` is by how much a degree should exceed the order of a derivative.
    """
    remarks = []
    for name in highest_orders(equations):
        axis = field.space.axis(name)
        if axis.role in ("latitude", "longitude") or axis.units.startswith("degree"):
            remarks.append(
                f"derivatives along {name!r} are per {axis.units or 'degree'} and not per metre: the metric of the "
                "sphere is that which the equation has, and no other"
            )
    return [*remarks, *low_degrees(equations, field.space, more)]
