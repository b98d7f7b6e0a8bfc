"""A fit in memory against rows of Phi in batches, on 4.4 million observations and 2093 coefficients.

The dense way is timed on at least 1 % of the rows (whole months) and scaled; on these rows G, expanded here
only, is compared with the dense one.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import numpy as np
import xarray as xr

import xspline as xs
from benchmarks import measure, stand_in

PENALTY = 0.1
BATCH = 4096


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--months", type=int, default=None, help="length of the record (default: 494)")


def rows(sst: xr.DataArray, space: xs.Space) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Batches of (Phi, y) over the observed cells."""
    order = sst.transpose(*space.names)
    designs = [
        features.design(space.to_float(name, sst[name].values))
        for name, features in zip(space.names, space.features, strict=True)
    ]
    where = np.nonzero(order.notnull().values)
    y = order.values[where].astype(np.float64)
    for start in range(0, y.size, BATCH):
        phi = np.ones((y[start : start + BATCH].size, 1))
        for design, index in zip(designs, where, strict=True):
            phi = (phi[:, :, None] * design[index[start : start + BATCH], None, :]).reshape(len(phi), -1)
        yield phi, y[start : start + BATCH]


def dense(sst: xr.DataArray, space: xs.Space) -> tuple[np.ndarray, np.ndarray, float]:
    """Phi'Phi, Phi'y and the seconds that they took, forming rows included."""
    start = time.perf_counter()
    gram, moment = np.zeros((space.size, space.size)), np.zeros(space.size)
    for phi, y in rows(sst, space):
        gram += phi.T @ phi
        moment += phi.T @ y
    return gram, moment, time.perf_counter() - start


def gram_difference(statistics: xs.Statistics, space: xs.Space, expected: np.ndarray) -> float:
    gram = statistics.total("sst").gram.to_dense(space.frame).reshape(space.size, space.size)
    return float(np.abs(gram - expected).max() / np.abs(expected).max())


def run(args: argparse.Namespace) -> None:
    sst = stand_in.noaa(args.months or (48 if args.quick else 494))
    space = sst.spline.space(stand_in.paper_bases())
    picked = np.linspace(0, sst.sizes["time"] - 1, max(1, -(-sst.sizes["time"] // 99))).astype(int)
    subset = sst.isel(time=picked)
    count, count_subset = int(sst.notnull().sum()), int(subset.notnull().sum())

    statistics = sst.spline.statistics(space)
    reduce_s = measure.seconds(lambda: sst.spline.statistics(space))
    solve_s = measure.seconds(lambda: statistics.solve(penalty=PENALTY))
    peak = measure.allocated(lambda: sst.spline.statistics(space).solve(penalty=PENALTY))

    gram, moment, subset_s = dense(subset, space)
    dense_s = subset_s * count / count_subset
    dense_solve_s = measure.seconds(
        lambda: np.linalg.solve(gram + PENALTY * np.eye(space.size), moment), repeat=3, warm=False
    )
    apart = gram_difference(subset.spline.statistics(space), space, gram)
    ours, theirs = reduce_s + solve_s, dense_s + dense_solve_s
    measure.table(
        f"dense: {count:,} observations, P = {space.size}; dense on {count_subset / count:.1%} of them",
        ("step", "xspline", "dense rows", "dense / xspline"),
        [
            ("statistics, s", reduce_s, dense_s, dense_s / reduce_s),
            ("solve, s", solve_s, dense_solve_s, dense_solve_s / solve_s),
            ("both, s", ours, theirs, theirs / ours),
            (
                "statistics against G, MB",
                statistics.nbytes / measure.MB,
                gram.nbytes / measure.MB,
                gram.nbytes / statistics.nbytes,
            ),
            ("peak allocated against G, MB", peak / measure.MB, gram.nbytes / measure.MB, gram.nbytes / peak),
            ("max |G - dense G| / max |G|", apart, 0, ""),
        ],
    )
