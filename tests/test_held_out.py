"""Automatic strengths on withheld cells of a real product: `python -m benchmarks held_out`."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import held_out, stand_in


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*the knots limit the fit:xspline.FitWarning")
def test_automatic_strengths_are_as_good_as_the_best_of_a_lattice(data_dir: Path) -> None:
    sst = stand_in.ersst()
    assert sst is not None
    problem = held_out.Withheld(sst, sst.spline.space(stand_in.paper_bases()), seed=0)
    best = problem.best()[-1]
    worse = {name: problem.rmse(field) / best - 1 for name, field in problem.chosen()}
    print(f"RMSE on withheld cells over the best of the lattice, {best:.4f} degC: {worse}")
    for name, bound in held_out.BOUNDS.items():
        assert worse[name] <= bound, name
