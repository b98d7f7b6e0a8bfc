"""Intervals against simulated truths: `python -m benchmarks coverage`, with its seed."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.coverage import older

# Shares of single replicates have standard deviations of 0.010 to 0.034, and so the mean of 40 at most 0.006. Those of
# the jackknife, which takes longer, have 0.011, the mean of 20 so 0.003. With standard errors 15 % too small, 0.918 of
# the field is held and 0.874 by the jackknife.
INDEPENDENT, LASTING = (pytest.param(n, marks=pytest.mark.slow) for n in (40, 20))


@pytest.mark.parametrize("name", older.INDEPENDENT)
@pytest.mark.parametrize("replicates", [6, INDEPENDENT])
def test_independent_errors_are_covered(name: str, replicates: int) -> None:
    covered = {what: np.mean(shares) for what, shares in older.independent(name, replicates).items()}
    print(f"{name}, {replicates} replicates: {covered}")
    for what, share in covered.items():
        if older.KNOWN not in what:
            low, high = older.FIELD if what == "field" else older.SLOPES
            assert low <= share <= high, what


@pytest.mark.simulation
@pytest.mark.parametrize("slope", [2.0, 1.5])
def test_in_gaps_intervals_that_know_that_lambda_was_chosen_are_nearer_to_what_they_say(slope: float) -> None:
    covered = older.in_gaps(slope, 40)
    share, known = (np.mean(covered[f"gaps{suffix}"]) for suffix in ("", older.KNOWN))
    print(f"k^-{slope:g}: {share:.4f}, with lambda as known {known:.4f}")
    assert abs(share - 0.95) < abs(known - 0.95)


@pytest.mark.filterwarnings("ignore:.*the knots limit the fit:xspline.FitWarning")
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("replicates", [4, pytest.param(40, marks=pytest.mark.slow)])
def test_the_order_of_the_truth_is_the_likelier(order: int, replicates: int) -> None:
    assert np.mean(older.likelier(order, replicates)) >= older.LIKELIER


@pytest.mark.parametrize("replicates", [3, LASTING])
def test_errors_that_last_are_covered_by_the_jackknife_over_years_alone(replicates: int) -> None:
    covered = {what: np.mean(shares) for what, shares in older.persistent(replicates).items()}
    print(f"AR(1), {replicates} replicates: {covered}")
    assert covered["model"] < 0.85
    assert older.JACKKNIFE[0] <= covered["jackknife"] <= older.JACKKNIFE[1]


def test_waves_have_exact_derivatives() -> None:
    waves, at = older.Waves.draw(np.random.default_rng(0)), older.cells(4)
    step = 1e-5
    by_x = (waves(at.x + step, at.z) - waves(at.x - step, at.z)).values / (2 * step)
    by_z = (waves(at.x, at.z + step) - waves(at.x, at.z - step)).values / (2 * step)
    for exact, differences in ((waves(at.x, at.z, dx=1), by_x), (waves(at.x, at.z, dz=1), by_z)):
        np.testing.assert_allclose(exact.values, differences, rtol=0, atol=1e-7 * np.abs(differences).max())


def test_errors_last_as_they_should() -> None:
    errors = older.lasting(np.random.default_rng(0), (500, 400))
    assert np.var(errors) == pytest.approx(1, abs=0.02)
    assert np.mean(errors[1:] * errors[:-1]) == pytest.approx(older.PERSISTENCE, abs=0.02)
    assert np.mean(errors[3:] * errors[:-3]) == pytest.approx(older.PERSISTENCE**3, abs=0.02)
