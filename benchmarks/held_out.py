"""Withheld places of ERSST: strengths that were chosen automatically against the best of a lattice.

A tenth of the cells of latitude and longitude is withheld over all months, at random. The error there of the strengths
that REML, GCV and holders choose from the rest stands beside the smallest error over a lattice of strengths along
latitude and longitude, two a decade from 1e-9 to 10: of one a decade, then of the strengths next to these. Holders are
blocks of longitude: strips of 4 degrees dealt in turn to five holders, so that leaving one out opens gaps like those of
missing cells; and blocks of 20 degrees, more than two knot intervals, which ask for strengths that extrapolate.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

import numpy as np
import xarray as xr

import xspline as xs
from benchmarks import measure, stand_in

SHARE = 0.1
BOUNDS = {"reml, orders 1 and 2": 0.03, "reml": 0.03, "holders, strips": 0.01}
SIZES = {False: {}, True: {"lat": 6, "lon": xs.BSpline(8)}}
LATTICE = 10.0 ** np.arange(-9.0, 1.1, 0.5)
MONTHS, STEPS, COARSE = 11, (2, 1), (4,)  # of a quick run every so many, and a coarse lattice


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--draws", type=int, default=None, help="draws of withheld cells (default: 3; --quick: 1)"
    )


def holders(lon: xr.DataArray) -> dict[str, xr.DataArray]:
    """Labels of blocks along longitude."""
    east = lon - lon[0]
    return {"holders, strips": (east // 4) % 5, "holders, blocks": east // 20}


class Withheld:
    """Values with a tenth of their cells withheld, and the errors there."""

    def __init__(self, sst: xr.DataArray, space: xs.Space, seed: int) -> None:
        self.sst, self.space = sst, space
        cells = np.random.default_rng(seed).random((sst.lat.size, sst.lon.size)) < SHARE
        held = xr.DataArray(cells, {"lat": sst.lat, "lon": sst.lon}, ("lat", "lon"))
        self.withheld, self.rest = sst.where(held), sst.where(~held)
        self.statistics = self.rest.spline.statistics(space)

    def rmse(self, field: xs.Field) -> float:
        """√ mean squared error on what was withheld."""
        return float(np.sqrt(((field.predict(self.sst) - self.withheld) ** 2).mean()))

    def at(self, lat: float, lon: float) -> float:
        return self.rmse(self.statistics.solve(penalty=xs.Roughness({"lat": lat, "lon": lon})))

    def best(self, steps: Sequence[int] = STEPS) -> tuple[float, float, float]:
        """Strengths along latitude and longitude with the smallest error: of every so many, then ever nearer ones."""
        errors: dict[tuple[int, int], float] = {}
        near: list[Sequence[int]] = [range(0, len(LATTICE), steps[0])] * 2
        for step in (*steps[1:], 1):
            for i, j in itertools.product(*near):
                errors[i, j] = errors.get((i, j)) or self.at(LATTICE[i], LATTICE[j])
            best = min(errors, key=errors.__getitem__)
            near = [[k for k in (i - step, i, i + step) if 0 <= k < len(LATTICE)] for i in best]
        return float(LATTICE[best[0]]), float(LATTICE[best[1]]), errors[best]

    def chosen(self, names: Collection[str] = ()) -> Iterator[tuple[str, xs.Field]]:
        """The fields of every automatic choice, or of some by name."""
        choices: dict[str, Callable[[], xs.Field]] = {"reml, orders 1 and 2": self.statistics.solve}
        for method in ("reml", "gcv"):
            choices[method] = partial(self.statistics.solve, penalty=xs.Roughness(method))
        for name, labels in holders(self.sst.lon).items():
            choices[name] = partial(self.rest.spline.fit, self.space, penalty="holders", holder=labels)
        yield from ((name, fit()) for name, fit in choices.items() if name in (names or choices))


def rows(sst: xr.DataArray, space: xs.Space, seed: int, *, quick: bool) -> Iterator[tuple[object, ...]]:
    problem = Withheld(sst, space, seed)
    lat, lon, best = problem.best(COARSE if quick else STEPS)
    yield seed, "best of the lattice", lat, lon, f"{best:.4f}", "", "", ""
    for name, field in problem.chosen(BOUNDS if quick else ()):  # the others take most of the time
        strengths, error = {"lat": "", "lon": ""}, problem.rmse(field)
        if isinstance(field.penalty, xs.Roughness):
            strengths = field.penalty.strengths(space)
        worse, bound = error / best - 1, BOUNDS.get(name)
        verdict = ("", "") if bound is None else (f"{bound:.0%}", "yes" if worse <= bound else "NO")
        yield seed, name, strengths["lat"], strengths["lon"], f"{error:.4f}", f"{worse:+.2%}", *verdict


def run(args: argparse.Namespace) -> None:
    sst = stand_in.ersst(MONTHS if args.quick else 1)
    if sst is None:
        print("held_out: skipped, XSPLINE_DATA_DIR does not hold ersst_v5_2010_2020.nc")
        return
    space = sst.spline.space({**stand_in.paper_bases(), **SIZES[args.quick]})
    print(*__doc__.splitlines()[2:], sep="\n")
    draws = args.draws or (1 if args.quick else 3)
    measure.table(
        f"held_out: {int(sst.notnull().sum()):,} values, P = {space.size}, {SHARE:.0%} of the cells withheld",
        ("draw", "strengths", "λ lat", "λ lon", "RMSE, degC", "over the best", "asked", "kept"),
        [row for seed in range(draws) for row in rows(sst, space, seed, quick=args.quick)],
    )
