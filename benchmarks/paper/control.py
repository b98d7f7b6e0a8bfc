"""The paper's control: its differences on exact values, without any fit."""

from __future__ import annotations

import numpy as np
import xarray as xr

from benchmarks.paper.problems import Problem

STABILISER = 1e-8


def difference(u: xr.DataArray, name: str, order: int) -> xr.DataArray:
    """Central difference along an evenly spaced coordinate, NaN at both ends."""
    step = float(u[name][1] - u[name][0])
    after, before = u.shift({name: -1}), u.shift({name: 1})
    return (after - before) / (2 * step) if order == 1 else (after - 2 * u + before) / step**2


def recovered(problem: Problem, u: xr.DataArray) -> float:
    """The constant of a gridded field, by the formulas of the paper's section 3.3."""
    laplacian = sum(difference(u, name, 2) for name in u.dims if name != "t")
    if "c" in problem.truth.parameters:
        return float(np.sqrt(ratio(laplacian, difference(u, "t", 2))))
    rate = difference(u, "t", 1) - problem.truth.known(u).get("S", 0.0)
    if "kappa" in problem.truth.parameters:
        rate = rate + u * difference(u, "x", 1)
    return ratio(laplacian, rate)


def ratio(feature: xr.DataArray, response: xr.DataArray) -> float:
    """Least squares of one feature over the points that have both."""
    feature = feature.where(response.notnull())
    return float((feature * response).sum() / ((feature**2).sum() + STABILISER))


def error(problem: Problem, **labels: int) -> float:
    """Relative error in percent, signed, on a grid over the whole domain."""
    (true,) = problem.truth.parameters.values()
    return 100 * (recovered(problem, problem.truth.grid(**{**problem.labels, **labels})) / true - 1)
