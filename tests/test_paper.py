"""Every experiment of the paper at a small size, against the bounds on its figures."""

from __future__ import annotations

import pytest

from benchmarks import paper
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
