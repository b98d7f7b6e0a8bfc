"""Constants by least squares over points (paper, section 3.3), from sums that are computed block by block."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from scipy.special import stdtrit

from xspline.labels.field_base import FieldBase
from xspline.pde.points.evaluation_points import Differences, Points, at_points
from xspline.pde.results import LEVEL, Floats, as_dataset, not_real, of_the_space, units_of_names, with_roots
from xspline.pde.text import expression, unit_powers
from xspline.pde.text.equation import Equation, Power
from xspline.pde.text.symbols import CoordinateSymbol, KnownSymbol, Names, Shape, Value

#: Added to the diagonal of the normal equations (paper, section 3.3), but never more than this times the entry itself.
STABILISER = 1e-8
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
    estimate = least_squares(response, terms, list(points.sizes), batch, everywhere)
    powers = list(parsed.terms)
    total = math.prod(points.sizes.values())
    _check_determined(estimate, powers, total)
    stderr = np.sqrt(np.diagonal(estimate.covariance, axis1=-2, axis2=-1))
    columns = with_roots(powers, estimate.value, stderr, estimate.factor)
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


@dataclass(frozen=True, eq=False)
class Estimate:
    """Least-squares estimates of the powers of parameters, batch axes first; NaN where points do not determine them."""

    value: Floats  # [b.., p]
    covariance: Floats  # [b.., p, p]
    factor: Floats  # [b..], half the width of the interval in standard errors
    rms: Floats  # [b..], of the residuals
    relative_rms: Floats  # [b..], the same relative to that of the response
    condition: Floats  # [b..], of the normal equations with terms scaled to one size
    count: Floats  # [b..], points at which response and terms are all finite
    squares: Floats  # [b.., p], sums of the squares of the terms


def least_squares(
    response: Any,
    terms: Sequence[Any],
    dims: Sequence[Hashable],
    batch: Sequence[Hashable],
    field: xr.DataArray,
) -> Estimate:
    """Sum products over `dims` in one compute; solve the stabilised normal equations, scaled to a unit diagonal.

    A point counts where response and terms are all finite. Scaled, so that units do not matter. `response` and `terms`
    are numbers or arrays without coordinates; `dims` are summed over, `batch` is kept, and `field` is an array that has
    all of these dimensions.
    """
    summands = [response, *terms]
    valid = np.isfinite(field)
    for array in summands:
        valid = valid & np.isfinite(array)
    y, *columns = (xr.where(valid, array, 0.0) for array in summands)
    products = {f"{i} {j}": a * b for i, a in enumerate(columns) for j, b in enumerate(columns[: i + 1])}
    products |= {f"{i}": a * y for i, a in enumerate(columns)}
    sums = xr.Dataset({k: a.sum(dims, skipna=False) for k, a in {**products, "y": y * y, "n": valid}.items()})
    loaded = {str(k): v.transpose(*batch).values.astype(float) for k, v in sums.compute().items()}
    size, indices = len(columns), range(len(columns))
    rows = [np.stack([loaded[f"{max(i, j)} {min(i, j)}"] for j in indices], axis=-1) for i in indices]
    matrix = np.stack(rows, axis=-2)
    moment = np.stack([loaded[f"{i}"] for i in indices], axis=-1)
    power, count = loaded["y"], loaded["n"]

    squares = np.diagonal(matrix, axis1=-2, axis2=-1)
    determined = (squares > 0).all(-1) & (count > size)
    matrix = np.where(determined[..., None, None], matrix, np.eye(size))
    diagonal = np.where(determined[..., None], squares, 1.0)
    # The paper's terms are of order one and summed over thousands of points; in SI units a squared Laplacian is of
    # order 1e-24, next to which 1e-8 would be everything.
    ridge = STABILISER * np.minimum(1.0, diagonal)
    scale = np.sqrt(diagonal + ridge)
    scaled = (matrix + ridge[..., None] * np.eye(size)) / (scale[..., :, None] * scale[..., None, :])
    inverse = np.linalg.inv(scaled) / (scale[..., :, None] * scale[..., None, :])
    value = np.einsum("...ij,...j->...i", inverse, moment)
    fitted = 2 * np.einsum("...i,...i", value, moment) - np.einsum("...i,...ij,...j", value, matrix, value)
    # The difference of two sums is exact to rounding of the sums: no residual is known to be smaller.
    rss = np.maximum(power - fitted, np.finfo(float).eps * power)
    with np.errstate(all="ignore"):
        variance = np.where(determined, rss / (count - size), np.nan)
        covariance = variance[..., None, None] * inverse
        value = np.where(determined[..., None], value, np.nan)
        rms, relative_rms = np.sqrt(rss / count), np.sqrt(rss / power)
    factor = np.asarray(stdtrit(np.maximum(count - size, 1.0), (1 + LEVEL) / 2))  # of Student's t, both tails
    # The ratio of the extreme eigenvalues, with a unit diagonal and no stabiliser; infinite if singular.
    length = np.sqrt(diagonal)
    eigenvalues = np.linalg.eigvalsh(matrix / (length[..., :, None] * length[..., None, :]))
    lowest, highest = eigenvalues[..., 0], eigenvalues[..., -1]
    singular = lowest <= highest * np.finfo(float).eps
    condition = np.where(singular, np.inf, highest / np.where(singular, 1.0, lowest))
    return Estimate(value, covariance, factor, rms, relative_rms, condition, count, squares)


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
    if (worst := float(estimate.condition.max())) > 1 / STABILISER:
        remarks.append(
            f"the terms of {', '.join(map(str, powers))} are nearly proportional to each other (condition "
            f"number {worst:.2g}), so their estimates cannot be told apart"
        )
    if (relative := float(np.nanmax(estimate.relative_rms, initial=0.0))) > 0.5:
        remarks.append(f"the residual is {relative:.0%} of the terms without a parameter (root mean square)")
    return remarks
