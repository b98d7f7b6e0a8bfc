"""Season, trend and events in one union: the penalty that tells them apart, and its choice by REML."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference import gauss
from xspline.solve import Roughness, choose, solve
from xspline.solve.families.orders import SingleOrder
from xspline.solve.smoothing.criteria import Gcv, Reml
from xspline.solve.smoothing.family import family_for
from xspline.spaces import Axis, BSpline, Fourier, Polynomial, Space
from xspline.sums import Gram

from .cases import Case, gaps, grid, static
from .test_family import assert_scores_are_dense, model_of

EVENTS = {
    "in cells": Fourier(1, period=0.3) + Polynomial(1) + BSpline(16, degree=2, domain=(0, 1)),
    "in one cell": Fourier(1, period=0.3) + Polynomial(1) + BSpline(6, domain=(0, 1)),
}
STRUCTURES = {"line": (1, grid), "grid": (2, grid), "gaps": (2, gaps), "static mask": (3, static)}


def space_of(kind: str, count: int = 1) -> Space:
    """Events, and beside them up to two splines."""
    bases = {"a": BSpline(5, degree=2, domain=(0, 1)), "b": BSpline(4, degree=2, domain=(0, 1))}
    bases = {name: bases[name] for name in "ab"[: count - 1]}
    return Space({**bases, "t": EVENTS[kind]}, axes={name: Axis() for name in (*bases, "t")})


@pytest.fixture(params=EVENTS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def case_of(kind: str, structure: str, batch: tuple[int, ...] = ()) -> tuple[Case, Gram]:
    count, made = STRUCTURES[structure]
    return made(space_of(kind, count), np.random.default_rng(1), batch)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_events_alone_are_smoothed(kind: str, order: int) -> None:
    """∫ (∂^order e)² + e² of the part that the B-spline holds, by quadrature."""
    space = space_of(kind)
    (features,) = space.features
    c = np.random.default_rng(0).normal(size=features.size)
    own = np.where(space.basis("t").select(BSpline), c, 0.0)
    x, w = gauss(np.linspace(0, 1, 14 * 4 * 3 + 1), 4)  # with all knots among the edges
    expected = np.sum(w * (features.design(x, order) @ own) ** 2)
    if order:  # straight lines are not the trend's for nothing
        expected += np.sum(w * (features.design(x) @ own) ** 2)
    matrix = Roughness({"t": 1.0}, order).gram(space)
    np.testing.assert_allclose(c @ matrix.matvec(c, space.frame), expected, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("structure", STRUCTURES)
def test_the_score_is_that_of_dense_matrices(kind: str, structure: str) -> None:
    case, gram = case_of(kind, structure)
    family = family_for(gram, Roughness(), case.space)
    assert isinstance(family, SingleOrder)
    assert family.parameters[-1] == "events along t"
    model = model_of(case, gram, family)
    rhos = np.random.default_rng(3).normal(-3.0, 1.5, (3, len(family.parameters)))
    assert_scores_are_dense(case, model, list(rhos))
    rho = rhos[-1]
    for score in (Reml, Gcv):
        point = score(model, rho)
        for j, e in enumerate(np.eye(len(rho)) * 1e-4):
            slope = (score(model, rho + e).value - score(model, rho - e).value) / 2e-4
            np.testing.assert_allclose(point.gradient[j], slope, rtol=1e-4, atol=1e-5)


def smoothed_series(events: float) -> tuple[Case, np.ndarray]:
    """A season and a trend, a wave of no season along with them, and noise, at 400 labels; coefficients by REML."""
    space, rng = space_of("in cells"), np.random.default_rng(0)
    x = np.sort(rng.uniform(0, 1, 400))
    y = 1.0 + 2.0 * x + np.cos(2 * np.pi * x / 0.3) + events * np.sin(9.0 * x**2) + 0.1 * rng.normal(size=400)
    case = Case(space, (x,), y, np.ones(400))
    sums = case.sums(case.general())
    chosen = choose(sums, space, "reml")
    return case, solve(sums, space, chosen.penalty).coefficients


def events_of(case: Case, c: np.ndarray) -> np.ndarray:
    return case.phi @ np.where(case.space.basis("t").select(BSpline), c, 0.0)


def test_reml_says_whether_there_are_events() -> None:
    """Where there are none they vanish, and season and trend are what they are."""
    case, c = smoothed_series(0.0)
    assert np.std(events_of(case, c)) < 0.02
    np.testing.assert_allclose(c[:4], [2.0, 1.0, 1.0, 0.0], atol=0.05)
    case, c = smoothed_series(1.0)
    truth = case.y - (case.phi @ c)
    assert np.std(truth) == pytest.approx(0.1, rel=0.15)
    assert np.std(events_of(case, c)) > 0.3
    np.testing.assert_allclose(c[2:4], [1.0, 0.0], atol=0.2)
