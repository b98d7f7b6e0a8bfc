"""From statistics and what was asked of the penalty to the solve of every variable."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from xspline import execution
from xspline.labels.statistics import Statistics
from xspline.solve import Factorisation, Penalty, Resources, Solution, solve
from xspline.solve.smoothing.choose import Smoothing, choose
from xspline.spaces import Space
from xspline.sums import Gram, Sums

#: A penalty, or the name of the criterion that chooses one: "reml", "gcv" or "holders".
Asked: TypeAlias = Penalty | str


@dataclass(frozen=True, eq=False)
class Solved:
    """The solve of one variable.

    Attributes
    ----------
    penalty : the penalty that was asked for, or the one that was chosen.
    solution : its coefficients and factorisation.
    choice : how it was chosen, as plain data; empty if it was given.
    """

    penalty: Penalty
    solution: Solution
    choice: Mapping[str, Any] = field(default_factory=dict)


def solved_variables(
    statistics: Statistics, asked: Mapping[str, Asked], solver: str | None, device: str | None = None
) -> dict[str, Solved]:
    """Return the solve of every variable; those with the same Gram and penalty share one factorisation.

    Parameters
    ----------
    statistics : computed ones.
    asked : for each variable a penalty, or the name of a criterion.
    solver : name of a solver, or None.
    device : where iterations and large dense systems are solved: None (the host) or "cuda".
    """
    shared: list[tuple[Gram, Penalty, Factorisation]] = []
    resources = execution.resources(device)
    return {
        name: _solved(statistics, name, asked[name], solver, shared, resources)
        for name in statistics.variables
    }


def _solved(
    statistics: Statistics,
    name: str,
    asked: Asked,
    solver: str | None,
    shared: list[tuple[Gram, Penalty, Factorisation]],
    resources: Resources,
) -> Solved:
    sums, space = statistics.total(name), statistics.space
    if isinstance(asked, str):
        return chosen(sums, [part.sums[name] for part in statistics.parts], space, asked, solver, resources)
    known = (f for gram, penalty, f in shared if penalty == asked and gram.equals(sums.gram))
    solution = solve(sums, space, asked, solver, next(known, None), resources)
    shared.append((sums.gram, asked, solution.factorisation))
    return Solved(asked, solution)


def chosen(
    sums: Sums,
    parts: list[Sums],
    space: Space,
    method: str,
    solver: str | None,
    resources: Resources | None = None,
) -> Solved:
    """Return the solve with the penalty that a criterion chooses from sums (and for "holders" from their parts)."""
    found = choose(sums, space, method, solver=solver, parts=parts, resources=resources)
    solution = solve(sums, space, found.penalty, solver, found.factorisation)
    return Solved(found.penalty, solution, _described(found))


def _described(found: Smoothing) -> dict[str, Any]:
    """Return what a summary and a file say of a choice."""
    return {
        "method": found.method,
        "score": float(found.score),
        "factorisations": int(found.factorisations),
        "at_bounds": dict(found.at_bounds),
        "converged": bool(found.converged),
        "error": dict(found.error),
    }


def lazy_arrays(
    statistics: Statistics, asked: Asked, solver: str | None, device: str | None = None
) -> dict[str, Any]:
    """Return the coefficients of every variable as Dask arrays of one block, solved on a worker."""
    space = statistics.space
    return {
        name: execution.deferred(
            functools.partial(_merged_coefficients, space=space, asked=asked, solver=solver, device=device),
            [part.sums[name] for part in statistics.parts],
            (*space.shape, *(variable.batch_shape)),
        )
        for name, variable in statistics.variables.items()
    }


def _merged_coefficients(
    parts: list[Sums], space: Space, asked: Asked, solver: str | None, device: str | None
) -> np.ndarray:
    # A worker without a GPU solves on its cores, as it does where `fit` finds none.
    total, resources = Sums.merge(parts, space.frame), execution.resources(execution.present(device))
    if isinstance(asked, str):
        return chosen(total, parts, space, asked, solver, resources).solution.coefficients
    return solve(total, space, asked, solver, resources=resources).coefficients
