"""The scores of `python -m benchmarks contest`, against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from benchmarks.contest import scores


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
