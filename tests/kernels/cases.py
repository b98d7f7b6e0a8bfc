"""Layouts, masks and weights that the kernels must get right, small enough for the dense reference."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Hashable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xspline.kernels import Block, Group, Layout
from xspline.spaces import BSpline, Fourier, Polynomial, Space

Floats = NDArray[np.float64]

SPACE = Space(
    {
        "lat": BSpline(5, domain=(-30.0, 30.0)),
        "lon": BSpline(7, domain=(0.0, 360.0), period=360.0),
        "t": Polynomial(1, domain=(0.0, 10.0)) + Fourier(1, period=3.0),
    }
)
# The same with a long B-spline in the union, which is in cells.
EVENTS = Space(
    {
        "lat": BSpline(5, domain=(-30.0, 30.0)),
        "lon": BSpline(7, domain=(0.0, 360.0), period=360.0),
        "t": Fourier(1, period=3.0) + BSpline(9, 2, domain=(0.0, 10.0)),
    }
)
LAT, LON, TIME = 0, 1, 2


@dataclass(frozen=True)
class Case:
    """A layout with the shape of its values; coefficient axes are latitude, longitude, time."""

    layout: Layout
    shape: tuple[int, ...]

    def coordinates(self, rng: np.random.Generator) -> tuple[Floats, Floats, Floats]:
        """Unsorted labels inside all domains."""
        shapes = [tuple(self.shape[axis] for axis in self.layout.spans[j]) for j in (LAT, LON, TIME)]
        return (
            rng.uniform(-30, 30, shapes[LAT]),
            rng.uniform(0, 360, shapes[LON]),
            rng.uniform(0, 10, shapes[TIME]),
        )

    def partly_outside(self, rng: np.random.Generator) -> tuple[Floats, Floats, Floats]:
        """Labels of which the first is outside the domain, and the last, if there are several, missing."""
        lat, lon, t = self.coordinates(rng)
        lat = lat.copy()
        lat.flat[0] = 30.1
        lat.flat[-1] = np.nan if lat.size > 1 else lat.flat[-1]
        return lat, lon, t


def grid(*order: int, batch: tuple[int, ...] = (), pooled: int | None = None) -> Layout:
    """One group per dimension: data axis i carries coefficient axis order[i]; -1 for batch or pooled axes."""
    groups = [Group((axis,), (j,)) for axis, j in enumerate(order) if j >= 0]
    if pooled is not None:
        groups.append(Group((pooled,), ()))
    return Layout(tuple(groups), batch)


CASES = {
    "grid": Case(grid(TIME, LAT, LON), (6, 8, 12)),
    "grid, longitude first": Case(grid(LON, TIME, LAT), (12, 6, 8)),
    "one of each": Case(grid(LAT, LON, TIME), (1, 1, 1)),
    "observations": Case(Layout((Group((0,), (LAT, LON, TIME)),)), (200,)),
    "stations × time": Case(Layout((Group((0,), (LAT, LON)), Group((1,), (TIME,)))), (20, 6)),
    "time × stations": Case(Layout((Group((1,), (LON, LAT)), Group((0,), (TIME,)))), (6, 20)),
    "curvilinear": Case(Layout((Group((1, 2), (LAT, LON)), Group((0,), (TIME,)))), (5, 6, 7)),
    "curvilinear, time between": Case(Layout((Group((0, 2), (LAT, LON)), Group((1,), (TIME,)))), (6, 5, 7)),
    "curvilinear, transposed": Case(Layout((Group((2, 1), (LAT, LON)), Group((0,), (TIME,)))), (5, 7, 6)),
    "trajectory with ensemble": Case(Layout((Group((1,), (LAT, LON, TIME)),), (0,)), (3, 90)),
    "pooled first": Case(grid(-1, LAT, LON, TIME, pooled=0), (3, 8, 9, 4)),
    "pooled last": Case(grid(TIME, LAT, LON, -1, pooled=3), (4, 8, 9, 2)),
    "scalar time": Case(Layout((Group((), (TIME,)), Group((0,), (LAT,)), Group((1,), (LON,)))), (8, 12)),
    "scalar place": Case(Layout((Group((), (LAT, LON)), Group((0,), (TIME,)))), (20,)),
    "all scalar": Case(Layout((Group((), (LAT, LON, TIME)),)), ()),
    "batch first": Case(grid(-1, TIME, LAT, LON, batch=(0,)), (3, 5, 8, 9)),
    "batch last": Case(grid(TIME, LAT, LON, -1, batch=(3,)), (5, 8, 9, 3)),
    "batch between, reversed": Case(grid(TIME, -1, LAT, -1, LON, batch=(3, 1)), (4, 2, 8, 3, 7)),
    "batch of one": Case(grid(-1, TIME, LAT, LON, batch=(0,)), (1, 5, 8, 9)),
    "pooled and batch": Case(
        Layout((Group((1,), (LAT,)), Group((2,), (LON, TIME)), Group((0,), ())), (3,)), (2, 8, 30, 3)
    ),
}


def pairwise(*factors: Collection[Hashable]) -> list[tuple[Hashable, ...]]:
    """Combinations of one level of each factor among which every pair of levels of two factors occurs."""
    spots = list(itertools.combinations(range(len(factors)), 2))
    missing = {(i, j, a, b) for i, j in spots for a in factors[i] for b in factors[j]}
    combinations = []
    candidates = list(itertools.product(*factors))
    while missing:
        news = [{(i, j, row[i], row[j]) for i, j in spots} & missing for row in candidates]
        best = max(range(len(candidates)), key=lambda k: len(news[k]))
        combinations.append(candidates[best])
        missing -= news[best]
    return combinations


MASKS = ("full", "static", "rows", "random", "one", "none")
WEIGHTS = ("none", "first axis", "pair", "all", "two")
FLOATS = ("f8", "f4", ">f4")  # integers have no gaps


def variants(name: str) -> list[tuple[str, str, str]]:
    """Each mask for a case, with weights and types of values that change from case to case, and integers."""
    index = list(CASES).index(name)
    gaps = [
        (mask, WEIGHTS[number % len(WEIGHTS)], FLOATS[number % len(FLOATS)])
        for number, mask in enumerate(MASKS, index)
    ]
    return [*gaps, ("full", WEIGHTS[(index + 2) % len(WEIGHTS)], "i2")]


def masked(values: Floats, mask: str, rng: np.random.Generator) -> Floats:
    """Values with NaN by the named pattern."""
    values = np.array(values)
    if mask == "static":  # the same along the first axis
        values[..., rng.random(values.shape[1:]) < 0.3] = np.nan
    elif mask == "rows" and values.ndim:
        values[rng.random(values.shape[0]) < 0.4] = np.nan
    elif mask == "random":
        values[rng.random(values.shape) < 0.3] = np.nan
    elif mask in ("one", "none"):
        kept = values.flat[-1]
        values[...] = np.nan
        values.flat[-1] = kept if mask == "one" else np.nan
    return values


def weights(case: Case, kind: str, rng: np.random.Generator) -> tuple[tuple[tuple[int, ...], Floats], ...]:
    """Weights over some axes, with zeros among them."""
    ndim = len(case.shape)
    spans = {
        "none": [],
        "first axis": [tuple(range(min(1, ndim)))],
        "pair": [(ndim - 1, 0) if ndim > 1 else tuple(range(ndim))],
        "all": [tuple(range(ndim))],
        "two": [tuple(range(min(1, ndim))), tuple(range(ndim))[1:3]],
    }[kind]
    out = []
    for axes in spans:
        array = rng.uniform(0.5, 2.0, tuple(case.shape[axis] for axis in axes))
        out.append((axes, np.where(rng.random(array.shape) < 0.1, 0.0, array)))
    return tuple(out)


def block(
    name: str, mask: str = "full", weight: str = "none", dtype: str = "f8", seed: int = 0
) -> tuple[Block, Layout]:
    """A block of one of the cases, with an offset that a reference should take away."""
    case, rng = CASES[name], np.random.default_rng(seed)
    values = masked(np.asarray(280.0 + 5.0 * rng.normal(size=case.shape)), mask, rng)
    built = Block(values.astype(dtype), case.coordinates(rng), weights(case, weight, rng))
    return built, case.layout
