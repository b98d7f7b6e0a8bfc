"""Intervals against simulated truths: `python -m benchmarks coverage`, with its seed."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from benchmarks.coverage import alike, means, older
from tests import scatter

# Shares of single replicates have standard deviations of 0.010 to 0.034, those of the jackknife 0.011. Beyond bounds
# a mean may be by five of its own standard errors. With standard errors 15 % too small, 0.918 of the field is held and
# 0.874 by the jackknife: what the mean of 40 and of 20 tells from the bounds.
INDEPENDENT, LASTING = 24, 12


def within(each: list[float], bounds: tuple[float, float]) -> bool:
    """Whether the mean of replicates is between bounds, or so near that it may be by its standard error."""
    tolerance = scatter.FIVE * scatter.of_mean(each)
    return bounds[0] - tolerance <= np.mean(each) <= bounds[1] + tolerance


@pytest.mark.slow
@pytest.mark.parametrize("name", older.INDEPENDENT)
def test_independent_errors_are_covered(name: str) -> None:
    covered = older.independent(name, INDEPENDENT)
    print(f"{name}, {INDEPENDENT} replicates: { {what: np.mean(own) for what, own in covered.items()} }")
    for what, own in covered.items():
        if older.KNOWN not in what:
            assert within(own, older.FIELD if what == "field" else older.SLOPES), what


@pytest.mark.simulation
def test_in_gaps_intervals_that_know_that_lambda_was_chosen_are_nearer_to_what_they_say() -> None:
    covered = older.in_gaps(2.0, 40)
    share, known = (np.mean(covered[f"gaps{suffix}"]) for suffix in ("", older.KNOWN))
    print(f"{share:.4f}, with lambda as known {known:.4f}")
    assert abs(share - 0.95) < abs(known - 0.95)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*the knots limit the fit:xspline.FitWarning")
@pytest.mark.parametrize("order", [1, 2])
def test_the_order_of_the_truth_is_the_likelier(order: int) -> None:
    assert np.mean(older.likelier(order, 20)) >= older.LIKELIER


@pytest.mark.slow
def test_errors_that_last_are_covered_by_the_jackknife_over_years_alone() -> None:
    covered = older.persistent(LASTING)
    print(f"AR(1), {LASTING} replicates: { {what: np.mean(own) for what, own in covered.items()} }")
    assert np.mean(covered["model"]) < 0.85
    assert within(covered["jackknife"], older.JACKKNIFE)


@pytest.mark.simulation
@pytest.mark.parametrize("is_region", [True, False])
@pytest.mark.parametrize("rho", [0.5, 0.95])
def test_errors_that_are_alike_in_space_and_time_are_covered_by_what_auto_takes(
    is_region: bool, rho: float
) -> None:
    own = alike.row(alike.climate, is_region, rho, 100)[: len(alike.METHODS)]
    share = {name: float(text.partition("%")[0]) / 100 for name, text in zip(alike.METHODS, own, strict=True)}
    print(f"{rho:g}, {share}")
    assert share["independent"] < 0.7
    assert abs(share["auto"] - 0.95) < 0.03 + scatter.FIVE * (0.05 * 0.95 / 100) ** 0.5


# Means over a box


@pytest.mark.simulation
@pytest.mark.parametrize(("name", "replicates"), [("known", 20), *zip(means.LATTICES, (16, 4), strict=True)])
def test_means_their_differences_and_trends_err_as_they_say(name: str, replicates: int) -> None:
    """Of so few replicates mean squares tell more than shares: of normal errors within 93 % of intervals it is 1.17."""
    known, bare = functools.partial(means.independent, known=True), functools.partial(means.bare, name=name)
    for _, of, by, _, _, ratio, _ in means.rows(name, known if name == "known" else bare, replicates):
        print(f"{name}, {of}, {by}: standard error over error {ratio}")
        assert float(ratio) ** -2 < 1.17 + scatter.FIVE * scatter.of_trace(1, replicates), (of, by)


def test_a_mean_over_a_box_is_near_the_truth() -> None:
    result = means.independent(np.random.default_rng(0), known=True)
    assert {of for of, _ in result} == {"month", "difference", "trend"}
    assert all(abs(error) < scatter.FIVE * stderr for error, stderr, _ in result.values())
