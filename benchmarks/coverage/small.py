"""The bare fit of very few values: a constant with noise, and waves that few values hardly tell from noise.

Shares are of the labels at which 95 % intervals hold the truth, with the standard error of their mean over replicates.
Beside them is the root mean square of standard errors over that of errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import xarray as xr

from benchmarks import measure
from benchmarks.coverage import shares

COUNTS = (3, 4, 5, 7, 10, 15, 20)
NOISE = 0.3
TRUTHS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "constant": np.zeros_like,
    "sin 2πx": lambda x: np.sin(2 * np.pi * x),
    "sin 4x": lambda x: np.sin(4 * x),
}
HEADER = ("truth", "values", "covered", "stderr / error")


def scored(name: str, count: int, seed: int) -> tuple[float, np.ndarray, np.ndarray]:
    """The share of labels that intervals hold, errors and standard errors of one replicate."""
    x = np.linspace(0, 1, count)
    truth = TRUTHS[name](x)
    values = truth + NOISE * np.random.default_rng(seed).standard_normal(count)
    field = xr.DataArray(values, {"x": x}, ("x",), "u").spline.fit()
    error, stderr = field.predict().to_numpy() - truth, field.stderr().to_numpy()
    return shares.held(error, stderr), error, stderr


def rows(counts: Sequence[int], replicates: int) -> Iterator[tuple[object, ...]]:
    for name in TRUTHS:
        for count in counts:
            held, error, stderr = zip(*(scored(name, count, seed) for seed in range(replicates)), strict=True)
            ratio = shares.rms(np.array(stderr)) / shares.rms(np.array(error))
            yield name, count, shares.text(held), f"{ratio:.2f}"


def tables(replicates: int, *, quick: bool) -> None:
    counts = COUNTS[::6] if quick else COUNTS
    title = f"coverage, few values of noise {NOISE}: {replicates} replicates each"
    measure.table(title, HEADER, rows(counts, replicates))
