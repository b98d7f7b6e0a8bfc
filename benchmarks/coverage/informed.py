"""What can be known of a field from its values: the mean over all that they leave open.

Kriging that knows the covariance is out of anybody's reach where values are few: those of a rough field with little
noise look like those of a smooth one with more. This one knows only that the covariance is one of several, and takes
each length and each noise for equally likely (on a scale of ratios); constant and variance are integrated out as
restricted likelihood does (Handcock and Stein 1993). What it loses against kriging is the price of not knowing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from scipy.spatial.distance import cdist

LENGTHS = np.geomspace(0.02, 2, 25)
NOISES = np.geomspace(0.02, 1, 20)  # standard deviations, over that of the field
JITTER = 1e-9  # a variance that lets covariances be inverted
Array = np.ndarray


def posterior_mean(covariances: Iterable[Callable[[Array], Array]], places: Array, values: Array) -> Array:
    """The field at all places, [n], from values of which some are NaN."""
    seen = np.flatnonzero(np.isfinite(values))
    apart = cdist(places, places)
    logs, means = [], []
    for covariance in covariances:
        for length in LENGTHS:
            between = covariance(apart / length)
            for log, mean in each_noise(between, seen, values[seen]):
                logs.append(log)
                means.append(mean)
    weights = np.exp(np.array(logs) - max(logs))
    return weights @ np.array(means) / weights.sum()


def each_noise(between: Array, seen: Array, values: Array) -> Iterable[tuple[float, Array]]:
    """Restricted log-likelihood and the mean at all places, for each noise: one decomposition serves all."""
    eigenvalues, vectors = np.linalg.eigh(between[np.ix_(seen, seen)])
    y, one = vectors.T @ values, vectors.sum(axis=0)
    freedom = len(seen) - 1
    for noise in NOISES:
        variances = np.maximum(eigenvalues, 0) + noise**2 + JITTER
        precision = np.sum(one**2 / variances)
        constant = np.sum(one * y / variances) / precision
        residual = y - constant * one
        squares = np.sum(residual**2 / variances)
        log = -(freedom * np.log(squares) + np.sum(np.log(variances)) + np.log(precision)) / 2
        yield log, constant + between[:, seen] @ (vectors @ (residual / variances))
