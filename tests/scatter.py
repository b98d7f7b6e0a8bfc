"""Standard errors of what is computed from random draws: tolerances of such tests are `FIVE` of them.

A seed does not fix draws: signs of eigenvectors and the order of sums differ between processors.
"""

from __future__ import annotations

import math

import numpy as np

FIVE = 5.0


def of_deviation(n: int) -> float:
    """Of a standard deviation from n draws, relative to it."""
    return 1 / math.sqrt(2 * n)


def of_mean_deviation(correlated: np.ndarray, n: int) -> float:
    """Of the mean over places of such relative standard deviations.

    The places are correlated as their values [draw, place] are, of any number of draws.
    """
    z = (correlated - correlated.mean(axis=0)) / correlated.std(axis=0)
    squares = np.sum((z @ z.T) ** 2) / z.size**2  # the mean of all squared correlations
    return math.sqrt(squares) * of_deviation(n)


def of_trace(size: int, n: int) -> float:
    """Of the mean variance of n draws of as many independent variables of variance 1."""
    return math.sqrt(2 / (size * n))


def of_share(share: float, n: int) -> float:
    """Of the share of n independent events."""
    return math.sqrt(share * (1 - share) / n)


def of_mean(replicates: object) -> float:
    """Of the mean of independent replicates, from their own scatter."""
    values = np.asarray(replicates, dtype=float)
    return float(values.std(ddof=1) / math.sqrt(values.size))
