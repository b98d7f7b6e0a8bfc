"""Constants of equations that hold on the whole domain, as a Dataset: the methods "profile" and "weak"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr
from scipy.special import stdtrit

from xspline.labels.field import Field
from xspline.pde.profile.axes import Array, Unsuitable
from xspline.pde.profile.estimate import Estimates, profile
from xspline.pde.profile.problem import EquationProblem, member, problem_of
from xspline.pde.results import (
    ENOUGH,
    LEVEL,
    ROUGH,
    as_dataset,
    correlated,
    low_degrees,
    not_real,
    of_the_space,
    units_of_names,
    with_roots,
)
from xspline.pde.text import unit_powers
from xspline.pde.text.equation import Equation, Power
from xspline.pde.text.symbols import Names
from xspline.residuals.assumptions import CHANCE
from xspline.solve.errors import warn
from xspline.solve.smoothing.fit import centred
from xspline.threads import single_threaded_blas

ASSUMPTIONS = {
    "profile": "stderr and the 95 % interval assume independent errors of the observations, with variances in "
    "proportion to 1/w, and an equation that holds everywhere in the domain",
    "weak": "stderr and the 95 % interval assume independent errors of the observations and are those of the fitted "
    "field, to first order, and what every second knot changes; the smoothing is taken as known and without bias",
}
_INADEQUATE = (
    "errors are withheld: the fitted field misses the equation by more than its errors (probability {:.1g}); a term "
    "or a source is missing, or the field is too smooth: use more knots, or a higher degree, where it changes fast"
)
_UNTOLD = (
    "errors are withheld: the smooth test functions of this space do not tell the constants apart; use more knots, or "
    "leave out terms"
)


@single_threaded_blas()
def over_domain(
    field: Field[Any],
    equations: Sequence[Equation],
    names: Names,
    given: Mapping[str, Any],
    method: str,
    remark: str = "",
) -> xr.Dataset:
    """Return the Dataset of ``recover`` by "profile" or "weak".

    It raises Unsuitable where a basis is a union, one term of the field was selected, what is known does not reach
    between labels, variables have different batch dimensions, or parameters enter differently, and ValueError where the
    constants are not determined.
    """
    variables = list(dict.fromkeys(value.variable for e in equations for value in e.values))
    dims = [field.variables[name].batch_dims for name in variables]
    shapes = [field.variables[name].batch_shape for name in variables]
    if len(set(dims)) > 1:
        raise Unsuitable(f"the variables {', '.join(variables)} have different batch dimensions, {dims}")
    if any(field.fits[name].selected for name in variables):
        raise Unsuitable(
            "a term of this field was selected, so that it is no fit of the data; ask the whole field"
        )
    powers = list(dict.fromkeys(power for equation in equations for power in equation.terms))
    exponents = {power.parameter: power for power in reversed(powers)}
    for power in powers:
        if (other := exponents[power.parameter]) != power:
            raise Unsuitable(
                f"{power.parameter} enters as {other} and as {power}; use one power in all equations"
            )
    for remark_of_space in low_degrees(equations, field.space, ENOUGH):
        warn(remark_of_space)
    members = [
        _estimates(problem_of(field, equations, names, given, variables, index), method)
        if all(_tells(field, name, index) for name in variables)
        else Estimates.without_errors(np.full(len(powers), np.nan))
        for index in np.ndindex(*shapes[0])
    ]
    return dataset_of(field, equations, given, members, powers, method, remark)


def _tells(field: Field[Any], name: str, index: tuple[int, ...]) -> bool:
    """Whether a member of a batch was determined, and its values are not all the same."""
    if not np.isfinite(field.fits[name].coefficients[(..., *index)]).all():
        return False
    return not index or float(member(centred(field.fits[name].total, field.space), index).power) > 0


def _estimates(problem: EquationProblem, method: str) -> Estimates:
    if method == "weak":
        weak = problem.weak(combinations=16)
        left = max(sum(int(s.count) for s in problem.sums.values()) - len(weak.value), 1)
        factor = float(stdtrit(left, (1 + LEVEL) / 2))
        own = Estimates.without_errors(weak.value, factor)
        if weak.probability < CHANCE:
            return replace(own, misses=True, remarks=(_INADEQUATE.format(weak.probability),))
        if np.isnan(weak.covariance).any():
            return replace(own, remarks=(_UNTOLD,))
        return replace(own, covariance=weak.covariance + np.diag(problem.weak_resolution(weak) ** 2))
    return profile(problem).estimates


def dataset_of(
    field: Field[Any],
    equations: Sequence[Equation],
    given: Mapping[str, Any],
    members: Sequence[Estimates],
    powers: Sequence[Power],
    method: str,
    remark: str = "",
) -> xr.Dataset:
    """Return the Dataset of ``recover``; a remark goes to its checks."""
    first = field.variables[equations[0].values[0].variable]
    batch, shape = first.batch_dims, first.batch_shape

    def each(name: str) -> Array:
        array = np.array([getattr(m, name) for m in members])
        return array.reshape((*shape, *array.shape[1:]))

    raw = each("value")
    covariance = each("covariance")
    factor = each("factor")
    ends = (each("lower"), each("upper")) if method == "profile" else None
    columns = with_roots(powers, raw, _errors(covariance), factor, ends)
    # The derivative of each parameter by the power in which it enters.
    exponents = np.array([power.exponent for power in powers])
    with np.errstate(all="ignore"):
        slopes = np.where(exponents == 1, 1.0, columns["estimate"] / (exponents * raw))
    variables: dict[str, Any] = {
        key: (("parameter", *batch), np.moveaxis(v, -1, 0)) for key, v in columns.items()
    }
    squares = slopes[..., :, None] * slopes[..., None, :]
    both = np.moveaxis(covariance * squares, (-2, -1), (0, 1))
    variables["covariance"] = (("parameter", "other", *batch), both)
    if method == "profile":
        weak = with_roots(powers, each("weak"), _errors(each("weak_covariance")), factor)
        own = {"weak": weak["estimate"], "weak_stderr": weak["stderr"]}
        own["resolution"] = each("resolution") * np.abs(slopes)
        if len(field.statistics.parts) > 1:
            own["holder_stderr"] = _errors(each("by_holders") * squares)
        variables |= {key: (("parameter", *batch), np.moveaxis(v, -1, 0)) for key, v in own.items()}
        scalars = ("sigma", "adequacy", "probability", "converged")
        variables |= {name: (batch, each(name)) for name in scalars}
    derived: dict[str, str] = {}  # the units of each parameter, from the first equation that tells them
    remarks: list[str] = []
    for equation in equations:
        told, said = unit_powers.of_parameters(equation, units_of_names(equation, given, field))
        derived |= {name: unit for name, unit in told.items() if unit and not derived.get(name)}
        remarks += said
    checks = _checks(members, powers, raw, method)
    space = [text for text in of_the_space(equations, field, ENOUGH) if not any(text in c for c in checks)]
    checks += [*space, *remarks, remark]
    if any(m.misses for m in members):
        checks += correlated(field.fits[value.variable] for e in equations for value in e.values)
    limited_by = next((m.limited_by for m in members if m.limited_by), "")
    return as_dataset(
        equations,
        method,
        powers,
        (raw, covariance, factor),
        variables,
        derived,
        [first],
        batch,
        checks,
        limited_by=limited_by,
        assumptions=ASSUMPTIONS[method],
    ).assign_coords(other=[power.parameter for power in powers])


def _checks(members: Sequence[Estimates], powers: Sequence[Power], raw: Array, method: str) -> list[str]:
    """Return what a reader of the estimates should know, each in a sentence without a full stop."""
    remarks = not_real(powers, raw)
    if (undetermined := sum(not np.isfinite(m.value).all() for m in members)) and len(members) > 1:
        remarks.append(f"{undetermined} of {len(members)} batch members do not determine the parameters")
    for text in dict.fromkeys(text for m in members for text in m.remarks):
        count = sum(text in m.remarks for m in members)
        remarks.append(text if len(members) == 1 else f"{text} ({count} of {len(members)} batch members)")
    if method == "profile":
        return remarks
    with np.errstate(invalid="ignore"):
        rough = [np.sqrt(np.diagonal(m.covariance)) > ROUGH * np.abs(m.value) for m in members]
    for power, is_rough in zip(powers, np.any(rough, axis=0), strict=True):
        if is_rough and power.constant == power.parameter:
            remarks.append(
                f"{power.parameter} is known to no better than {ROUGH:.0%} of its size: either it is near zero, or "
                "noise hides the field, and then estimates are too small and their intervals too short"
            )
    return remarks


def _errors(covariance: Array) -> Array:
    with np.errstate(invalid="ignore"):
        return np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))
