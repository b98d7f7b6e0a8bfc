"""Noise: two equations x three densities x three levels x five seeds, each pooled and merged."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.paper.problems import DIFFUSION, WAVE, Problem, split
from benchmarks.paper.row import Row

COUNTS, LEVELS, SEEDS = (1_000, 3_000, 10_000), (0.0, 0.01, 0.05), range(5)
APART = 1e-11
# Mean and standard deviation over five seeds, %: the paper's table of parameter recovery.
FIGURES = {
    DIFFUSION: (
        ((2.3, 2.3), (2.0, 2.6), (8.1, 5.3)),
        ((0.3, 0.2), (0.4, 0.2), (2.6, 1.7)),
        ((0.1, 0.08), (0.4, 0.4), (1.8, 1.9)),
    ),
    WAVE: (
        ((0.9, 0.6), (0.6, 0.5), (8.4, 0.8)),
        ((0.4, 0.04), (0.3, 0.2), (1.2, 0.9)),
        ((0.04, 0.03), (0.06, 0.03), (0.5, 0.4)),
    ),
}


def rows(quick: bool) -> list[Row]:
    found, apart = [], []
    for problem, i, j in conditions(quick):
        seeds = SEEDS[:2] if quick else SEEDS
        row, worst = condition(problem, i, j, seeds)
        found += [row, profile(problem, i, j, seeds[:1] if quick else seeds)]
        apart += worst
    return [*found, Row(f"delta_max, worst of {len(apart)}", max(apart), "< 1e-11", APART)]


def conditions(quick: bool) -> Iterator[tuple[Problem, int, int]]:
    """Problem, density and level of noise; the quick choice is one of each problem, in the middle of the table."""
    for problem in FIGURES:
        for i in range(len(COUNTS)):
            yield from ((problem, i, j) for j in range(len(LEVELS)) if not quick or (i == 1 and j == 1))


def condition(problem: Problem, i: int, j: int, seeds: range) -> tuple[Row, list[float]]:
    """Mean absolute error over seeds, and each seed's delta_max."""
    inner, whole, apart = [], [], []
    for seed in seeds:
        data = problem.truth.scatter(COUNTS[i], seed, LEVELS[j])
        pooled, merged = problem.fit(data), problem.merged(split(data))
        inner.append(problem.error(pooled))
        whole.append(problem.error(pooled, left_out=0.0))
        apart.append(problem.apart(pooled, merged))
    mean, deviation = FIGURES[problem][i][j]
    figure = f"{problem.name}, {COUNTS[i]:,} observations, noise {LEVELS[j]:.0%}: error, %"
    beside = (
        f"± {np.std(np.abs(inner), ddof=1):.2f}; bias {np.mean(inner):+.2f}; whole domain {spread(whole)}"
    )
    return Row(
        figure, float(np.mean(np.abs(inner))), f"{mean} ± {deviation}", mean + 2 * deviation, beside
    ), apart


def profile(problem: Problem, i: int, j: int, seeds: range) -> Row:
    """Mean absolute error over seeds where the equation holds on the whole domain; the paper's mean is the bound."""
    draws = (problem.truth.scatter(COUNTS[i], seed, LEVELS[j]) for seed in seeds)
    errors, reported = zip(
        *(problem.profile_error(problem.obeying({"all": data})) for data in draws), strict=True
    )
    mean, deviation = FIGURES[problem][i][j]
    figure = f"{problem.name}, {COUNTS[i]:,} observations, noise {LEVELS[j]:.0%}: error by the profile, %"
    beside = f"bias {np.mean(errors):+.3f}; stderr {np.median(reported):.3f}"
    return Row(figure, float(np.mean(np.abs(errors))), f"{mean} ± {deviation}", mean, beside)


def spread(errors: list[float]) -> str:
    return f"{np.mean(np.abs(errors)):.2f} ± {np.std(np.abs(errors), ddof=1):.2f}"
