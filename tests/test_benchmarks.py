"""Figures of `python -m benchmarks`: of the paper, each experiment at a small size; held out; scores of the contest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, stats

from benchmarks import held_out, paper, stand_in
from benchmarks.contest import scores
from benchmarks.paper import control
from benchmarks.paper.problems import BURGERS, DIFFUSION, WAVE, Problem


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n in ("noise", "images") else n for n in paper.EXPERIMENTS],
)
def test_figures_keep_their_bounds(name: str) -> None:
    rows = paper.experiment(name, quick=True)
    if not rows:
        pytest.skip("needs the data that XSPLINE_DATA_DIR points to")
    assert not [r for r in rows if not r.kept]
    assert any(r.bound is not None and "delta_max" in r.figure for r in rows)


@pytest.mark.slow
@pytest.mark.parametrize("problem", [DIFFUSION, WAVE, BURGERS], ids=lambda p: p.name)
def test_recovered_constant_is_that_of_the_formulas(problem: Problem) -> None:
    """The text of the equation and the paper's formulas, written out, agree on one field."""
    field = problem.fit(problem.truth.scatter(2_000, 3))
    (true,) = problem.truth.parameters.values()
    by_hand = control.recovered(problem, field.predict(problem.grid(1.0)))
    assert problem.error(field) == pytest.approx(100 * (by_hand / true - 1), abs=1e-6)


def test_controls_are_near_the_papers() -> None:
    """Differences of exact values: what the grid alone costs."""
    controls = {r.figure: (r.ours, float(r.paper)) for r in paper.equations.control_rows()}
    assert len(controls) == 4
    assert all(0.5 < ours / printed < 2 for ours, printed in controls.values()), controls


# Withheld cells of a real product


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*the knots limit the fit:xspline.FitWarning")
def test_automatic_strengths_are_as_good_as_the_best_of_a_lattice(data_dir: Path) -> None:
    sst = stand_in.ersst(3)
    assert sst is not None
    problem = held_out.Withheld(sst, sst.spline.space(stand_in.paper_bases()), seed=0)
    best = problem.best()[-1]
    worse = {name: problem.rmse(field) / best - 1 for name, field in problem.chosen(held_out.BOUNDS)}
    print(f"RMSE on withheld cells over the best of the lattice, {best:.4f} degC: {worse}")
    assert all(worse[name] <= bound for name, bound in held_out.BOUNDS.items())


# Scores of the contest, against their definitions


def test_crps_is_the_integral_of_its_definition() -> None:
    error, sd = np.array([-1.3, 0.0, 0.4]), np.array([0.5, 1.0, 2.0])
    wanted = [
        integrate.quad(
            lambda x, e=e, s=s: (stats.norm.cdf(x, scale=s) - (x >= -e)) ** 2, -30, 30, points=[-e]
        )[0]
        for e, s in zip(error, sd, strict=True)
    ]
    assert scores.crps(error, sd) == pytest.approx(np.mean(wanted), rel=1e-7)


def test_interval_score_and_coverage_by_hand() -> None:
    """A width of 2 z s, and 40 times the distance of a value outside; half of these are inside."""
    error, sd = np.array([1.0, 3.0]), np.array([1.0, 1.0])
    z = stats.norm.ppf(0.975)
    assert scores.interval_score(error, sd) == pytest.approx(2 * z + 40 * (3 - z) / 2)
    assert scores.coverage(error, sd) == 0.5
