"""Standard errors against predictions: the quadratic form of the covariance's pairs, on a grid and at points.

All take turns in one process. Times are CPU seconds, which count every thread. The covariance is that of three
draws, so that the form is known: the sum of their squares.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

import xspline as xs
from benchmarks import measure
from benchmarks.scattered import Clock, space_of
from xspline.execution import evaluate
from xspline.kernels import Group, Layout
from xspline.sums import outer_pairs

DRAWS = 3
PLAIN, ALONG = (0, 0, 0), (0, 1, 0)
GRIDS = {
    "time, lat, lon": Layout((Group((1,), (0,)), Group((2,), (1,)), Group((0,), (2,)))),
    "lat, lon, time": Layout((Group((0,), (0,)), Group((1,), (1,)), Group((2,), (2,)))),
}
POINTS = Layout((Group((0,), (0, 1, 2)),))
HEADER = ("what", "CPU s", "over prediction", "peak - result, MB", "apart")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeat", type=int, default=5)


@dataclass(frozen=True)
class Target:
    """Where a field is wanted, and a field with its covariance."""

    space: xs.Space
    coordinates: Sequence[np.ndarray]
    layout: Layout

    @cached_property
    def shape(self) -> tuple[int, ...]:
        lengths = {self.layout.spans[j]: x.size for j, x in enumerate(self.coordinates)}
        return tuple(lengths[axis,] for axis in range(self.layout.ndim))

    @cached_property
    def draws(self) -> np.ndarray:
        return np.random.default_rng(0).normal(size=(*self.space.shape, DRAWS))

    @cached_property
    def pairs(self) -> np.ndarray:
        return outer_pairs(self.draws, self.space.frame)

    def predict(self, k: int = 0, orders: tuple[int, ...] = PLAIN) -> np.ndarray:
        given = (self.coordinates, self.layout, self.space, orders, self.shape)
        return evaluate(self.draws[..., k], *given)

    def stderr(self, orders: tuple[int, ...] = PLAIN) -> np.ndarray:
        given = (self.coordinates, self.layout, self.space, orders, self.shape)
        form = evaluate(self.pairs, *given, pairs=True)
        return np.sqrt(form, out=form)

    def apart(self, orders: tuple[int, ...]) -> float:
        """Largest difference from the square root of the sum of squares, over the largest."""
        expected = np.sqrt(sum(self.predict(k, orders) ** 2 for k in range(DRAWS)))
        return float(np.abs(self.stderr(orders) - expected).max() / expected.max())


def against(name: str, target: Target, repeat: int) -> list[tuple[object, ...]]:
    """Rows of a table: the prediction, then the standard error and that of a derivative."""
    calls = {
        "prediction": (target.predict, 0.0),
        "standard error": (target.stderr, target.apart(PLAIN)),
        "standard error of a derivative": (lambda: target.stderr(ALONG), target.apart(ALONG)),
    }
    clock, rows, size = Clock(), [], 8 * np.prod(target.shape)
    for _ in range(repeat):
        for what, (call, _) in calls.items():
            clock.call(what, call)
    for what, (call, apart) in calls.items():
        took, base = (statistics.median(clock.cpu[key]) for key in (what, "prediction"))
        beside = float(measure.allocated(call) - size) / measure.MB
        rows.append((f"{name}: {what}", took, took / base, beside, apart))
    return rows


def on_grids(months: int, lat: int, lon: int, repeat: int) -> None:
    ends = {"lat": (-30.0, 30.0), "lon": (120.0, 280.0), "time": (0.0, 30.4 * months)}
    time = xs.Fourier(2, period=365.2425) + xs.Polynomial(2, domain=ends["time"])
    local = {name: xs.BSpline(size, domain=ends[name]) for name, size in (("lat", 13), ("lon", 23))}
    space = xs.Space({**local, "time": time})
    x = [np.linspace(*ends[name], n) for name, n in zip(space.names, (lat, lon, months), strict=True)]
    found = [against(name, Target(space, x, layout), repeat) for name, layout in GRIDS.items()]
    title = f"stderr: {months * lat * lon:,} grid points, P = {space.size}"
    measure.table(title, HEADER, [row for rows in found for row in rows])


def at_points(count: int, repeat: int) -> None:
    x = np.random.default_rng(1).uniform(size=(3, count))
    found = [against(f"{cells}³ cells", Target(space_of(cells), x, POINTS), repeat) for cells in (8, 16, 37)]
    title = f"stderr: {count:,} scattered points, three cubic coordinates"
    measure.table(title, HEADER, [row for rows in found for row in rows])


def run(args: argparse.Namespace) -> None:
    repeat = 1 if args.quick else args.repeat
    on_grids(*((48, 30, 40) if args.quick else (494, 127, 160)), repeat)
    at_points(20_000 if args.quick else 1_000_000, repeat)
