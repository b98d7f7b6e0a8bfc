"""What more seconds do to a bare fit: they must not make it worse, and no more than was asked may be taken.

RMSE at the same withheld values for each number of seconds. A rise is the error with more seconds over that with fewer;
the worst is over all pairs. CPU seconds are those of `fit()` with the values in memory.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Sequence

import numpy as np

import xspline as xs
from benchmarks import measure
from benchmarks.contest import scores
from benchmarks.contest.sets import Problem

SECONDS, QUICK = (2.0, 5.0, 10.0, 30.0, 60.0), (1.0, 3.0)
RISE = 0.03  # at most, with more seconds
TAKEN = 1.5  # CPU seconds over those that were asked for, at most


def scored(problem: Problem, seconds: float, most: int) -> tuple[float, float]:
    """RMSE of the bare fit at so many withheld values, and the CPU seconds of the fit; infinite where there is none."""
    truth = problem.truth.isel(point=problem.some(most))
    start = time.process_time()
    try:
        field = problem.train.spline.fit(seconds=seconds)
    except (ValueError, xs.ConvergenceError, MemoryError):
        return np.inf, time.process_time() - start
    taken = time.process_time() - start
    return scores.rmse((field.predict(truth) - truth).to_numpy()), taken


def worst_rise(errors: Sequence[float]) -> float:
    """The largest share by which an error is above an earlier one; negative where each is less than all before it."""
    return max(later / earlier for earlier, later in itertools.combinations(errors, 2)) - 1


def tables(problems: Iterable[tuple[int, Problem]], budgets: Sequence[float], most: int) -> None:
    """Print errors, and times, of each problem with each number of seconds."""
    errors, times = [], []
    for seed, problem in problems:
        found = [scored(problem, budget, most) for budget in budgets]
        rise = worst_rise([error for error, _ in found])
        shares = [taken / budget for (_, taken), budget in zip(found, budgets, strict=True)]
        case = (problem.name, problem.how, seed)
        kept = "yes" if rise <= RISE else "NO"
        errors.append((*case, *(f"{error:.4g}" for error, _ in found), f"{rise:+.1%}", kept))
        kept = "yes" if max(shares) <= TAKEN else "NO"
        times.append((*case, *(f"{share:.2f}" for share in shares), kept))
    if not errors:
        return
    names = ("set", "withheld", "seed", *(f"{budget:g} s" for budget in budgets))
    measure.table(
        f"contest, RMSE of the bare fit by seconds, at {most:,} withheld values at most",
        (*names, "worst rise with more seconds", f"at most {RISE:.0%}"),
        errors,
    )
    measure.table(
        "contest, CPU seconds that the bare fit took over seconds asked",
        (*names, f"at most {TAKEN:g}"),
        times,
    )
