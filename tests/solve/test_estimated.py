"""The choice of smoothing by iterations: estimates against the exact choice, and what they say of themselves."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests import scatter
from tests.solve.cases import Case, cube, product
from xspline.solve import Roughness, Smoothing, choose
from xspline.solve.families.orders import SingleOrder
from xspline.solve.smoothing import choose as smoothing
from xspline.solve.smoothing.criteria import Reml
from xspline.solve.smoothing.fit import Model, centred
from xspline.spaces import Space
from xspline.sums import Sums


def waves(space: Space, *, gaps: bool = True, seed: int = 0, noise: float = 0.3) -> tuple[Space, Sums]:
    """Noisy waves on a grid, with a hole and random gaps or full."""
    rng = np.random.default_rng(seed)
    xs = tuple((np.arange(2 * k) + 0.5) / (2 * k) for k in space.shape)
    mesh = np.meshgrid(*xs, indexing="ij")
    y = np.sin(sum((5 + 3 * j) * x for j, x in enumerate(mesh))) + noise * rng.normal(size=mesh[0].shape)
    if not gaps:
        case, gram = product(space, xs, [((j,), np.ones(len(x))) for j, x in enumerate(xs)], rng)
        return space, Case(space, xs, y, np.ones_like(y)).sums(gram)
    w = (rng.random(y.shape) < 0.7).astype(float)
    w[tuple(slice(n // 4, n // 2) for n in y.shape)] = 0.0
    case = Case(space, xs, y, w)
    return space, case.sums(case.general())


def logs(choice: Smoothing, space: Space) -> np.ndarray:
    return np.log(list(choice.penalty.strengths(space).values()))


@pytest.mark.slow
@pytest.mark.parametrize(("gaps", "solver"), [(True, "iterative"), (False, "spectral")])
def test_estimated_choice_is_the_exact_one_within_its_error(gaps: bool, solver: str) -> None:
    space, sums = waves(cube(11, 12, 10), gaps=gaps)
    exact = choose(sums, space, Roughness("reml"), solver="banded")
    ours = choose(sums, space, Roughness("reml"), solver=solver)
    assert ours.converged and ours.factorisation.choice.name == solver
    error = np.array([ours.error[name] for name in space.names])
    assert (error > 0).all() and (error < (0.05 if gaps else 0.005)).all()
    off = np.abs(logs(ours, space) - logs(exact, space))
    assert (off < scatter.FIVE * error + smoothing.CLOSE).all()
    assert math.isnan(ours.score) and not exact.error and math.isfinite(exact.score)


@pytest.mark.slow
def test_a_strength_that_makes_no_difference_has_the_score_of_the_exact_choice() -> None:
    """A field that is linear along one coordinate: whatever large strength is chosen, the score is as good."""
    space = cube(9, 10, 8)
    rng = np.random.default_rng(0)
    xs = tuple((np.arange(3 * k) + 0.5) / (3 * k) for k in space.shape)
    a, b, c = np.meshgrid(*xs, indexing="ij")
    y = a + np.sin(7 * b + 4 * c) + 0.1 * rng.normal(size=a.shape)
    w = (rng.random(y.shape) < 0.9).astype(float)
    case = Case(space, xs, y, w)
    sums = case.sums(case.general())
    exact, ours = (choose(sums, space, Roughness("reml"), solver=s) for s in ("banded", "iterative"))
    assert exact.at_bounds == {"a": "upper"} and ours.converged and ours.factorisations < 12
    assert ours.at_bounds == {"a": "upper"} or ours.error["a"] > 0.5
    model = Model(space, centred(sums, space), SingleOrder(space, space.names, 2))
    assert abs(Reml(model, logs(ours, space)).value - exact.score) < 0.2
