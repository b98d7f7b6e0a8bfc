"""The choice of smoothing against R's mgcv, whose figures are fixtures (`python -m benchmarks mgcv --write`)."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from benchmarks.mgcv.cases import Case, cases
from benchmarks.mgcv.gam import FIXTURES
from tests import reference_reml
from xspline.solve import Roughness, solve
from xspline.solve.smoothing.choose import choose

FIGURES: list[dict[str, Any]] = json.loads(FIXTURES.read_text(encoding="utf-8"))
STEP = 1e-3
each = pytest.mark.parametrize("fixture", FIGURES, ids=[f["name"] for f in FIGURES])
both = pytest.mark.parametrize("method", ["reml", "gcv"])


def test_fixtures_hold_the_cases_of_the_benchmark() -> None:
    for case, fixture in zip(cases(), FIGURES, strict=True):
        same = Case.from_dict(fixture)
        assert case.name == same.name and case.space == same.space
        for mine, stored in zip(case.rows(), same.rows(), strict=True):
            np.testing.assert_allclose(mine, stored, rtol=0, atol=1e-12)


@pytest.mark.slow
@both
@each
def test_the_dense_definition_equals_mgcv(fixture: dict[str, Any], method: str) -> None:
    """Score, edf and sigma at mgcv's strengths, which are at the bottom of the dense score."""
    rows, figures = rows_of(Case.from_dict(fixture)), fixture[method]
    rho = np.log(figures["lambda"])
    fit, score = reference_reml.fit(rows, rho), reference_reml.SCORES[method]
    assert fit.edf == pytest.approx(figures["edf"], rel=1e-8)
    assert fit.sigma == pytest.approx(figures["sigma"], rel=1e-8)
    unweighted = np.log(rows.w).sum() / 2 if method == "reml" else 0.0
    assert score(rows, rho) - unweighted == pytest.approx(figures["score"], rel=1e-8)
    slope, curvature = along(lambda at: score(rows, at), rho)
    assert (curvature > 0).all() and (abs(slope / curvature) < 1e-3).all()


@pytest.mark.slow
@both
@each
def test_choice_equals_mgcv(fixture: dict[str, Any], method: str) -> None:
    """log λ to 1e-3, edf and sigma to 1e-4."""
    case, figures = Case.from_dict(fixture), fixture[method]
    sums = case.data.y.spline.statistics(case.space, weights=case.data.w).total("y")
    chosen = choose(sums, case.space, Roughness(method))
    strengths = chosen.penalty.strengths(case.space)
    solution = solve(sums, case.space, chosen.penalty, factorisation=chosen.factorisation)
    edf = float(solution.factorisation.edf())
    sigma = np.sqrt(float(solution.rss) / (float(sums.count) - edf))
    np.testing.assert_allclose(
        [np.log(strengths[name]) for name in case.smoothed], np.log(figures["lambda"]), rtol=0, atol=1e-3
    )
    assert edf == pytest.approx(figures["edf"], rel=1e-4)
    assert sigma == pytest.approx(figures["sigma"], rel=1e-4)


def rows_of(case: Case) -> reference_reml.Rows:
    return reference_reml.Rows(*case.rows(), case.penalties)


def along(score: Any, rho: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Slope and curvature of a score along each axis, by central differences."""
    steps = STEP * np.eye(len(rho))
    ahead, behind, here = ([score(rho + s * d) for d in steps] for s in (1, -1, 0))
    slope = (np.array(ahead) - behind) / (2 * STEP)
    return slope, (np.array(ahead) + behind - 2 * np.array(here)) / STEP**2
