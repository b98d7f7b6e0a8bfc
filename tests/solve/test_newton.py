"""The search for the lowest score: known functions, their tails, walls and rounding errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from xspline.solve.errors import SingularSystemError
from xspline.solve.smoothing.newton import State, minimise


@dataclass(frozen=True)
class Known:
    value: float | None
    gradient: np.ndarray
    hessian: np.ndarray
    noise: float = 0.0


def minimum_of(
    score: Callable[[np.ndarray], Known], start: list[float], low: float = -30.0, high: float = 30.0
) -> tuple[State[Known], int]:
    """The minimum, and how often the score was evaluated."""
    places = []

    def counted(rho: np.ndarray) -> Known:
        places.append(rho)
        return score(rho)

    count = len(start)
    minimum = minimise(counted, np.array(start), np.full(count, low), np.full(count, high))
    return minimum, len(places)


def bowl(rho: np.ndarray) -> Known:
    """Lowest at (1, −2), its axes turned."""
    curvature, d = np.array([[3.0, 1.0], [1.0, 2.0]]), rho - [1.0, -2.0]
    return Known(float(d @ curvature @ d) / 2, curvature @ d, curvature)


def hump(rho: np.ndarray) -> Known:
    """1 − exp(−ρ²/8): curved downwards away from 0."""
    x = float(rho[0])
    y = np.exp(-(x**2) / 8)
    return Known(1 - y, np.array([x * y / 4]), np.array([[y / 4 - x**2 * y / 16]]))


def test_a_quadratic_takes_one_step() -> None:
    minimum, evaluations = minimum_of(bowl, [0.0, 0.0])
    np.testing.assert_allclose(minimum.rho, [1, -2], atol=1e-12)
    assert minimum.converged and evaluations == 2 and not minimum.at_bound.any()


@pytest.mark.parametrize("start", [-3.0, 1.0, 6.0])
def test_the_minimum_is_reached_from_where_the_score_curves_downwards(start: float) -> None:
    minimum, _ = minimum_of(hump, [start])
    assert abs(minimum.rho[0]) < 1e-4 and minimum.converged


def test_the_search_ends_on_a_bound_beyond_which_the_score_falls() -> None:
    minimum, _ = minimum_of(bowl, [0.0, 0.0], low=-1.0)
    assert minimum.at_bound.tolist() == [False, True] and minimum.converged
    np.testing.assert_allclose(minimum.rho, [2 / 3, -1], atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_where_the_score_is_flat_along_a_coordinate_the_search_ends(seed: int) -> None:
    """Errors of the Hessian hide how little is left to gain along it."""
    rng = np.random.default_rng(seed)

    def flat(rho: np.ndarray) -> Known:
        left = 1e-4 * np.exp(rho[1] / 4)
        curvature = np.diag([1.0, left / 16]) + rng.normal(0, 1e-3) * np.array([[0, 1], [1, 1]])
        return Known(float(rho[0] ** 2 / 2 + left), np.array([rho[0], left / 4]), curvature)

    minimum, evaluations = minimum_of(flat, [3.0, 0.0])
    assert minimum.converged and evaluations < 9 and abs(minimum.rho[0]) < 0.01


def test_places_without_a_score_end_the_search_like_a_bound() -> None:
    """No score beyond 2.3, and a slope that leads there."""

    def slope(rho: np.ndarray) -> Known:
        if rho[0] > 2.3:
            raise SingularSystemError("beyond the wall")
        return Known(float(-rho[0]), np.array([-1.0]), np.array([[0.1]]))

    minimum, evaluations = minimum_of(slope, [0.0])
    assert minimum.at_bound.all() and 1.0 < minimum.rho[0] <= 2.3
    assert evaluations < 8


@pytest.mark.parametrize("noise", [1e-4, 1.0])
def test_rounding_errors_end_the_search(noise: float) -> None:
    rng = np.random.default_rng(0)

    def rough(rho: np.ndarray) -> Known:
        exact = bowl(rho)
        return Known(exact.value + noise * rng.uniform(-0.5, 0.5), exact.gradient, exact.hessian, noise)

    minimum, evaluations = minimum_of(rough, [8.0, 3.0])
    assert minimum.converged and evaluations < 15
    np.testing.assert_allclose(minimum.rho, [1, -2], atol=0.2)


def test_gradients_alone_find_the_minimum() -> None:
    """A score of which only the derivatives are known: steps that end far uphill are halved."""
    for start in ([0.0, 0.0], [20.0, 20.0]):
        minimum, evaluations = minimum_of(lambda rho: replace(bowl(rho), value=None), start)
        np.testing.assert_allclose(minimum.rho, [1, -2], atol=1e-12)
        assert minimum.converged and evaluations < 9

    def steep(rho: np.ndarray) -> Known:
        """Newton's steps of it go too far: its gradient saturates."""
        return Known(None, np.tanh(rho), np.diag(1 / np.cosh(rho) ** 2))

    minimum, _ = minimum_of(steep, [2.0])
    assert minimum.converged and abs(minimum.rho[0]) < 1e-4
