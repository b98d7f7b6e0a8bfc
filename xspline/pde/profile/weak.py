"""The weak form: constants by one least squares of a fitted field's residual on smooth test functions.

It has a closed form and takes no factorisation beyond that of the fit. A search starts there, is compared with it, and
leaves it as the answer where it does not converge. Errors follow by the delta method: the estimate is a function of the
coefficients, whose covariance is σ²(G + Λ)⁻¹.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import chdtrc

from xspline.pde.profile.axes import Array
from xspline.pde.profile.constraint import Constraint, Constraints


@dataclass(frozen=True, eq=False)
class WeakEstimate:
    """Constants of a weak form, as the powers in which they enter.

    `covariance`, [k, k], is that of `value`, [k], and NaN where the constants are not determined. `probability` is that
    of residuals as large as these, in some random combinations, if the field obeys the equation up to its errors; it is
    NaN where it was not requested.
    """

    value: Array
    covariance: Array
    probability: float = math.nan


def weak_estimate(
    constraints: Constraints,
    coefficients: Mapping[str, Array],
    apply_covariance: Callable[[str, Array], Array],
    combinations: int = 0,
) -> WeakEstimate:
    """Return the constants of least squares over smooth tests.

    `coefficients` are those of a fit, and `apply_covariance` multiplies the covariance of a variable by coefficients
    [K..]. So many random `combinations` of the residuals are compared with their errors; each takes a solve. It raises
    ValueError where a term is zero, or not finite somewhere.
    """
    count = len(constraints.parameters)
    if not count:
        return WeakEstimate(np.zeros(0), np.zeros((0, 0)))
    parts: list[tuple[Constraint, dict[str, Any], float]] = []  # with the size of each equation's response
    targets: list[Array] = []
    columns: list[Array] = []
    for constraint in constraints.each:
        smooth = replace(constraint, smooth=True)
        values = smooth.environment(coefficients)
        response = smooth.residual(coefficients, np.zeros(count)).ravel()
        scale = float(np.sqrt(np.mean(response**2))) or 1.0
        parts.append((smooth, values, scale))
        targets.append(response / scale)
        columns.append(-smooth.by_parameter(values).reshape(count, -1) / scale)
    target = np.concatenate(targets)
    matrix = np.concatenate(columns, axis=1)
    sizes = np.sqrt(np.sum(matrix**2, axis=1))
    if not (np.isfinite(matrix).all() and np.isfinite(target).all()):
        raise ValueError(
            "there is nothing left to estimate from: a term is not finite on all of the domain; pass "
            "method='pointwise', which leaves such points out"
        )
    if not (sizes > 0).all():
        zero = [str(power) for power, size in zip(constraints.parameters, sizes, strict=True) if not size > 0]
        raise ValueError(
            f"there is nothing left to estimate from: the term of {' and of '.join(zero)} is zero on all of the domain"
        )
    scaled = matrix / sizes[:, None]
    inverse = np.linalg.pinv(scaled, rcond=1e-12).T / sizes[:, None]  # [k, tests]
    value = inverse @ target
    left_over = max(min(combinations, target.size - count), 0)
    z = np.random.default_rng(0).standard_normal((left_over, target.size))
    # Rows of the constants, and of combinations of the residuals that they leave.
    rows = np.concatenate([inverse, z - (z @ matrix.T) @ inverse])
    answers = [_answer(parts, value, row) for row in rows]
    covariance = np.zeros((len(rows), len(rows)))
    for name in constraints.variables:
        images = [apply_covariance(name, answer[name]) for answer in answers]
        covariance += [[float(np.sum(a[name] * image)) for image in images] for a in answers]
    probability = math.nan
    if len(z) > 0:
        left = rows[count:] @ target
        own = covariance[count:, count:]
        square = float(left @ np.linalg.pinv(own, hermitian=True) @ left)
        probability = float(chdtrc(len(left), square))
    told = np.linalg.matrix_rank(scaled, tol=1e-12 * np.linalg.norm(scaled, 2)) == count
    return WeakEstimate(
        value, covariance[:count, :count] if told else np.full((count, count), np.nan), probability
    )


def _answer(
    parts: Sequence[tuple[Constraint, dict[str, Any], float]], value: Array, row: Array
) -> dict[str, Array]:
    """Return, up to its sign, the derivative by coefficients of a constant which is `row` times all residuals."""
    total: dict[str, Array] = {}
    start = 0
    for constraint, values, scale in parts:
        own = row[start : (start := start + math.prod(constraint.shape))].reshape(constraint.shape) / scale
        for name, answer in constraint.pulled_back(constraint.by_value(values, value), own).items():
            total[name] = total[name] + answer if name in total else answer
    return total
