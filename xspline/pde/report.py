"""What is handed back: estimates with their errors and units, and what there is to say about them."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np
import xarray as xr

from xspline.labels import evaluation
from xspline.pde.equation import Equation, Power
from xspline.pde.points import Points
from xspline.pde.pointwise import Estimate, Floats, NormalEquations, root

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


@dataclass(frozen=True, eq=False)
class Recovery:
    """Everything that is known at the end.

    Attributes
    ----------
    equation, method, points, sums, estimate : of the estimation.
    batch : batch dimensions, in the order of the estimates' first axes.
    units : of each parameter, empty where they cannot be derived.
    remarks : what did not fit together in the units.
    """

    equation: Equation
    method: str
    points: Points
    sums: NormalEquations
    estimate: Estimate
    batch: tuple[Hashable, ...]
    units: Mapping[str, str]
    remarks: tuple[str, ...]

    @property
    def powers(self) -> list[Power]:
        """How each parameter enters."""
        return [term.power for term in self.equation.terms]

    @property
    def total(self) -> int:
        """Number of points, used or not."""
        return math.prod(self.points.sizes.values())


def dataset(found: Recovery) -> xr.Dataset:
    """Return the Dataset of ``recover``.

    Raises
    ------
    ValueError
        No batch member has what it takes to estimate from.
    """
    _check_determined(found)
    variables = {
        key: (("parameter", *found.batch), np.moveaxis(v, -1, 0)) for key, v in _estimates(found).items()
    }
    scalars = {
        "points": found.sums.count.astype(int),
        "residual_rms": found.estimate.rms,
        "condition_number": found.estimate.condition,
    }
    if found.batch:
        variables |= {key: (found.batch, v) for key, v in scalars.items()}
    names = [power.parameter for power in found.powers]
    coords = {"parameter": names, "units": ("parameter", [found.units[name] for name in names])}
    described = {key: (*variable, {"long_name": _LONG_NAMES[key]}) for key, variable in variables.items()}
    return xr.Dataset(described, coords | _batch_coords(found), _attrs(found, {} if found.batch else scalars))


def _estimates(found: Recovery) -> dict[str, Floats]:
    """Return estimates and errors of the parameters, and of their powers where these differ; [b.., p]."""
    raw, error = found.estimate.value, found.estimate.stderr
    half = found.estimate.factor[..., None] * error
    bounds = (raw, error, raw - half, raw + half)
    columns = [_rooted(power.exponent, *(a[..., i] for a in bounds)) for i, power in enumerate(found.powers)]
    stacked = [np.stack(parts, axis=-1) for parts in zip(*columns, strict=True)]
    result = dict(zip(("estimate", "stderr", "lower", "upper"), stacked, strict=True))
    if any(power.exponent != 1 for power in found.powers):
        result |= {"raw": raw, "raw_stderr": error}
    return result


def _rooted(exponent: float, value: Floats, error: Floats, low: Floats, high: Floats) -> tuple[Floats, ...]:
    """Return a parameter from its power: the root, its error to first order, and the roots of the interval's ends."""
    if exponent == 1:
        return value, error, low, high
    estimate = root(value, exponent)
    if exponent % 2 != 1:
        low = np.maximum(low, 0.0)
    with np.errstate(all="ignore"):
        stderr = error * np.abs(estimate / (exponent * value))
        ends = np.where(np.isfinite(estimate), [root(low, exponent), root(high, exponent)], np.nan)
    return estimate, stderr, ends.min(axis=0), ends.max(axis=0)


def _batch_coords(found: Recovery) -> dict[Hashable, xr.Variable]:
    every = [v.batch for v in found.points.field.variables.values()]
    return {
        name: c.variable
        for labels in every
        for name, c in labels.coords.items()
        if set(c.dims) <= set(found.batch)
    }


def _attrs(found: Recovery, scalars: Mapping[str, Floats]) -> dict[str, str | int | float]:
    numbers = {key: value.item() for key, value in scalars.items()}
    text = found.equation.text
    history = next(iter(found.points.field.variables.values())).history
    return {
        "equation": text,
        "method": found.method,
        **numbers,
        "checks": "; ".join(checks(found)) or "nothing to report",
        "assumptions": ASSUMPTIONS,
        "history": evaluation.history(history, f"recover({text!r}, method={found.method!r})"),
    }


def _check_determined(found: Recovery) -> None:
    if np.isfinite(found.estimate.value).any():
        return
    count = int(found.sums.count.max(initial=0))
    if count <= len(found.powers):
        raise ValueError(
            f"there is nothing left to estimate from: {count} of {found.total} points have finite values of every "
            f"term, which is not more than the parameters ({', '.join(map(str, found.powers))}); pass at= points "
            f"inside the domain, and known values without gaps"
        )
    diagonal = np.diagonal(found.sums.matrix, axis1=-2, axis2=-1)
    zero = [str(power) for i, power in enumerate(found.powers) if not diagonal[..., i].all()]
    raise ValueError(
        f"there is nothing left to estimate from: the term of {' and of '.join(zero)} is zero at all {count} points"
    )


# --- checks in words


def checks(found: Recovery) -> list[str]:
    """Return what a reader of the estimates should know, each in a sentence without a full stop."""
    return [*_of_powers(found), *_of_points(found), *_of_fit(found), *_of_derivatives(found), *found.remarks]


def _of_powers(found: Recovery) -> list[str]:
    remarks = []
    for i, power in enumerate(found.powers):
        raw = found.estimate.value[..., i]
        wrong = (raw < 0) & np.isnan(root(raw, power.exponent))
        if wrong.any() and raw.ndim == 0:
            remarks.append(f"{power} = {raw.item():.6g} is negative, so {power.parameter} is not real")
        elif wrong.any():
            where = f"{wrong.sum()} of {wrong.size} batch members"
            remarks.append(f"{power} is negative for {where}, so {power.parameter} is not real there")
    return remarks


def _of_points(found: Recovery) -> list[str]:
    remarks, lost = [], found.total - found.sums.count
    if lost.any():
        most = "up to " if found.batch else ""
        remarks.append(
            f"{most}{int(lost.max())} of {found.total} points were left out: outside the domain, or a known has no "
            f"value there"
        )
    if (undetermined := np.isnan(found.estimate.value).any(-1)).any():
        remarks.append(
            f"{undetermined.sum()} of {undetermined.size} batch members do not determine the parameters"
        )
    return remarks


def _of_fit(found: Recovery) -> list[str]:
    remarks, names = [], ", ".join(map(str, found.powers))
    if (worst := float(found.estimate.condition.max())) > _NEARLY_SINGULAR:
        remarks.append(
            f"the terms of {names} are nearly proportional to each other (condition number {worst:.2g}), "
            f"so their estimates cannot be told apart"
        )
    if (share := float(np.nanmax(found.estimate.share, initial=0.0))) > _UNEXPLAINED:
        remarks.append(f"the residual is {share:.0%} of the terms without a parameter (root mean square)")
    return remarks


def _of_derivatives(found: Recovery) -> list[str]:
    remarks = [text for name, order in _orders(found.equation).items() for text in _along(found, name, order)]
    if found.method == "differences":
        remarks.append("the truncation error of central differences is not part of stderr")
    return remarks


def _along(found: Recovery, name: str, order: int) -> list[str]:
    """Return what there is to say about derivatives along one coordinate."""
    space, remarks = found.points.field.space, []
    axis, features = space.axes[name][0], space.features[space.names.index(name)]
    if axis.role in ("latitude", "longitude") or axis.units.startswith("degree"):
        remarks.append(
            f"derivatives along {name!r} are per {axis.units or 'degree'} and not per metre: the metric of the sphere "
            f"is left out"
        )
    if features.local and features.max_order is not None and features.max_order < order + 3:
        remarks.append(
            f"{name!r} has B-splines of degree {features.max_order}; for derivatives of order {order}, "
            f"degree {order + 3} or more is advised"
        )
    return remarks


def _orders(equation: Equation) -> dict[str, int]:
    """Return the highest order of derivative along each coordinate."""
    highest: dict[str, int] = {}
    for name, order in (pair for value in equation.values for pair in value.orders):
        highest[name] = max(order, highest.get(name, 0))
    return highest
