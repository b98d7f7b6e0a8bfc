"""Four equations, dense and from two holders: 5,000 or 10,000 random observations, ridge 1e-4."""

from __future__ import annotations

from dataclasses import dataclass

import xarray as xr

import xspline as xs
from benchmarks.paper import control
from benchmarks.paper.problems import BURGERS, DIFFUSION, HEAT, WAVE, Problem
from benchmarks.paper.row import Row


@dataclass(frozen=True)
class Figures:
    """The paper's: errors of the constant in percent, RMSE, delta_max, and the bound on the first."""

    dense: str
    distributed: str
    rmse: str
    apart: float
    bound: float


FIGURES = {
    DIFFUSION: Figures("0.12", "0.22", "0.00252", 1e-12, 0.1 + 2 * 0.08),
    WAVE: Figures("0.09", "0.09", "0.00178", 1e-12, 0.04 + 2 * 0.03),
    HEAT: Figures("0.76", "0.17", "0.00095", 1e-12, 1.0),
    BURGERS: Figures("5.0", "5.0", "0.01096", 2e-11, 5.0),
}
CONTROLS = (
    (DIFFUSION, {}, "0.45"),
    (WAVE, {}, "0.13"),
    (BURGERS, {}, "0.89"),
    (BURGERS, {"x": 320, "t": 240}, "0.06"),
)


def rows(quick: bool) -> list[Row]:
    found = [row for problem, figures in FIGURES.items() for row in problem_rows(problem, figures)]
    return found if quick else found + profile_rows() + control_rows()


def problem_rows(problem: Problem, figures: Figures) -> list[Row]:
    name, seed = problem.name, 0
    dense = problem.fit(problem.truth.scatter(problem.count, seed))
    holders = problem.halves(seed)
    pooled, merged = problem.fit(xr.concat(list(holders.values()), "obs")), problem.merged(holders)
    return [
        constant(problem, "dense", dense, figures.dense, figures.bound),
        constant(problem, "pooled halves", pooled, figures.distributed, figures.bound),
        constant(problem, "merged halves", merged, figures.distributed, figures.bound),
        Row(f"{name}, pooled halves: RMSE", problem.rmse(pooled), figures.rmse),
        Row(f"{name}, merged halves: RMSE", problem.rmse(merged), figures.rmse),
        Row(f"{name}: delta_max", problem.apart(pooled, merged), f"< {figures.apart:g}", figures.apart),
    ]


def constant(problem: Problem, which: str, field: object, paper: str, bound: float) -> Row:
    (symbol,) = problem.truth.parameters
    inner, whole = problem.error(field), problem.error(field, left_out=0.0)
    figure = f"{problem.name}, {which}: error of {symbol}, %"
    return Row(figure, abs(inner), paper, bound, f"signed {inner:+.2f}; whole domain {whole:+.2f}")


def profile_rows() -> list[Row]:
    return [row for problem, figures in FIGURES.items() for row in rows_by_profile(problem, figures)]


def rows_by_profile(problem: Problem, figures: Figures) -> list[Row]:
    """All rows of an equation by the field that obeys it."""
    holders = problem.halves(0)
    dense = problem.obeying({"all": problem.truth.scatter(problem.count, 0)})
    pooled = problem.obeying({"all": xr.concat(list(holders.values()), "obs")})
    merged = problem.obeying(holders)
    return [
        profile(problem, "dense", dense, figures.dense),
        profile(problem, "pooled halves", pooled, figures.distributed),
        profile(problem, "merged halves", merged, figures.distributed),
        rmse(problem, "pooled halves", pooled, figures.rmse),
        rmse(problem, "merged halves", merged, figures.rmse),
        Row(
            f"{problem.name}: delta_max by the profile", problem.apart(pooled, merged), f"< {figures.apart:g}"
        ),
    ]


def rmse(problem: Problem, which: str, field: xs.Field, paper: str) -> Row:
    figure = f"{problem.name}, {which}: RMSE of the field that obeys the equation"
    return Row(figure, problem.rmse(field), paper, float(paper))


def profile(problem: Problem, which: str, field: xs.Field, paper: str) -> Row:
    (symbol,) = problem.truth.parameters
    error, stderr = problem.profile_error(field)
    figure = f"{problem.name}, {which}: error of {symbol} by the profile, %"
    return Row(
        figure, abs(error), paper, float(paper), f"signed {error:+.4f}; stderr {stderr:.4f}; whole domain"
    )


def control_rows() -> list[Row]:
    return [control_row(*each) for each in CONTROLS]


def control_row(problem: Problem, labels: dict[str, int], paper: str) -> Row:
    size = " x ".join(map(str, {**problem.labels, **labels}.values()))
    figure = f"{problem.name}, differences of exact values on {size}: error, %"
    return Row(figure, abs(control.error(problem, **labels)), paper)
