"""Intervals against simulated truths: `python -m benchmarks coverage`, with its seed."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import coverage
from tests import scatter

# Shares of single replicates have standard deviations of 0.010 to 0.034, those of the jackknife 0.011. Beyond bounds
# a mean may be by five of its own standard errors. With standard errors 15 % too small, 0.918 of the field is held and
# 0.874 by the jackknife: what the mean of 40 and of 20 tells from the bounds.
INDEPENDENT, LASTING = (pytest.param(n, marks=pytest.mark.slow) for n in (40, 20))


def within(shares: list[float], bounds: tuple[float, float]) -> bool:
    """Whether the mean of replicates is between bounds, or so near that it may be by its standard error."""
    tolerance = scatter.FIVE * scatter.of_mean(shares)
    return bounds[0] - tolerance <= np.mean(shares) <= bounds[1] + tolerance


@pytest.mark.parametrize("name", coverage.INDEPENDENT)
@pytest.mark.parametrize("replicates", [6, INDEPENDENT])
def test_independent_errors_are_covered(name: str, replicates: int) -> None:
    shares = coverage.independent(name, replicates)
    print(f"{name}, {replicates} replicates: { {what: np.mean(own) for what, own in shares.items()} }")
    for what, own in shares.items():
        if coverage.KNOWN not in what:
            assert within(own, coverage.FIELD if what == "field" else coverage.SLOPES), what


@pytest.mark.simulation
@pytest.mark.parametrize("slope", [2.0, 1.5])
def test_in_gaps_intervals_that_know_that_lambda_was_chosen_are_nearer_to_what_they_say(slope: float) -> None:
    covered = coverage.in_gaps(slope, 40)
    share, known = (np.mean(covered[f"gaps{suffix}"]) for suffix in ("", coverage.KNOWN))
    print(f"k^-{slope:g}: {share:.4f}, with lambda as known {known:.4f}")
    assert abs(share - 0.95) < abs(known - 0.95)


@pytest.mark.filterwarnings("ignore:.*the knots limit the fit:xspline.FitWarning")
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("replicates", [4, pytest.param(40, marks=pytest.mark.slow)])
def test_the_order_of_the_truth_is_the_likelier(order: int, replicates: int) -> None:
    assert np.mean(coverage.likelier(order, replicates)) >= coverage.LIKELIER


@pytest.mark.parametrize("replicates", [3, LASTING])
def test_errors_that_last_are_covered_by_the_jackknife_over_years_alone(replicates: int) -> None:
    shares = coverage.persistent(replicates)
    print(f"AR(1), {replicates} replicates: { {what: np.mean(own) for what, own in shares.items()} }")
    assert np.mean(shares["model"]) < 0.85
    assert within(shares["jackknife"], coverage.JACKKNIFE)


def test_waves_have_exact_derivatives() -> None:
    waves, at = coverage.Waves.draw(np.random.default_rng(0)), coverage.cells(4)
    step = 1e-5
    by_x = (waves(at.x + step, at.z) - waves(at.x - step, at.z)).values / (2 * step)
    by_z = (waves(at.x, at.z + step) - waves(at.x, at.z - step)).values / (2 * step)
    for exact, differences in ((waves(at.x, at.z, dx=1), by_x), (waves(at.x, at.z, dz=1), by_z)):
        np.testing.assert_allclose(exact.values, differences, rtol=0, atol=1e-7 * np.abs(differences).max())


def test_errors_last_as_they_should() -> None:
    errors = coverage.lasting(np.random.default_rng(0), (500, 400))  # 400 independent series
    for lag in (0, 1, 3):
        products = np.mean(errors[lag:] * errors[: 500 - lag], axis=0)
        tolerance = scatter.FIVE * scatter.of_mean(products)
        assert np.mean(products) == pytest.approx(coverage.PERSISTENCE**lag, abs=tolerance)
