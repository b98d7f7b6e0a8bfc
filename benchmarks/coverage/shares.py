"""Shares of places that intervals of 95 % hold, one for each replicate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import stats

NORMAL = float(stats.norm.ppf(0.975))


def held(error: np.ndarray, stderr: np.ndarray) -> float:
    """The share of errors that are within their interval; one without an interval is not."""
    return float(np.mean(np.abs(error) <= NORMAL * stderr))


def mean(shares: Sequence[float]) -> float:
    return float(np.mean(shares))


def text(shares: Sequence[float]) -> str:
    """The mean and its standard error, from how replicates scatter."""
    return f"{mean(shares):.1%} ± {np.std(shares) / np.sqrt(len(shares)):.1%}"


def rms(values: Sequence[float] | np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values))))
