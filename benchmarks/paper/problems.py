"""The four equations as the paper sets them up: bases, grids, counts of observations, and its figures."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import xarray as xr

import xspline as xs

PENALTY = 1e-4
DEGREE = 3
MIDDLE = np.pi  # holders observe the halves on either side of it


@dataclass(frozen=True, eq=False)
class Problem:
    """An equation, its truth, and how the paper fits it.

    Attributes
    ----------
    truth : the solution.
    sizes : number of B-splines of each coordinate.
    labels : size of the evaluation grid.
    count : observations of a fit; half of them a holder.
    quintic : number of B-splines of degree 5 of each coordinate, for an equation that holds on the whole domain.
    """

    name: str
    truth: xs.synthetic.Truth
    sizes: Mapping[str, int]
    labels: Mapping[str, int]
    count: int = 10_000
    quintic: Mapping[str, int] = field(default_factory=lambda: {"x": 13, "y": 13, "t": 8})

    @functools.cached_property
    def space(self) -> xs.Space:
        domain = self.truth.domain
        return xs.Space({name: xs.BSpline(n, DEGREE, domain=domain[name]) for name, n in self.sizes.items()})

    def grid(self, left_out: float = 0.0) -> dict[str, np.ndarray]:
        """Labels of the evaluation grid, without this many knot intervals at each end."""
        found = {}
        for name, (lo, hi) in self.truth.domain.items():
            margin = left_out * (hi - lo) / (self.sizes[name] - DEGREE)
            found[name] = np.linspace(lo + margin, hi - margin, self.labels[name])
        return found

    def fit(self, data: xr.DataArray) -> xs.Field:
        return data.spline.fit(self.space, penalty=PENALTY)

    def merged(self, holders: Mapping[str, xr.DataArray]) -> xs.Field:
        parts = [data.spline.statistics(self.space, holder=name) for name, data in holders.items()]
        return xs.merge(parts).solve(penalty=PENALTY)

    def error(self, field: xs.Field, left_out: float = 1.0) -> float:
        """Relative error of the recovered constant in percent, signed; NaN where its square is negative."""
        at = self.grid(left_out)
        found = field.recover(self.truth.equation, known=self.truth.known(at), method="differences", at=at)
        ((name, true),) = self.truth.parameters.items()
        return 100 * (float(found.estimate.sel(parameter=name)) / true - 1)

    def obeying(self, holders: Mapping[str, xr.DataArray]) -> xs.Field:
        """The field that obeys the equation, from the merged statistics of holders; constants by the profile."""
        domain = self.truth.domain
        space = xs.Space({name: xs.BSpline(n, 5, domain=domain[name]) for name, n in self.quintic.items()})
        known = self.truth.known({name: np.linspace(*domain[name], 65) for name in domain})
        # A little roughness, as a thousand observations leave some coefficients open: the search only starts there.
        parts = [data.spline.statistics(space, holder=name) for name, data in holders.items()]
        return xs.merge(parts).solve(xs.Roughness(1e-6)).constrain(self.truth.equation, known=known)

    def profile_error(self, field: xs.Field) -> tuple[float, float]:
        """Relative error of the constant in percent, signed, over the whole domain, and the reported standard error."""
        ((_, true),) = self.truth.parameters.items()
        found = field.constants
        return 100 * (found.estimate.item() / true - 1), 100 * found.stderr.item() / true

    def rmse(self, field: xs.Field) -> float:
        at = self.grid()
        return float(np.sqrt(((field.predict(at) - self.truth.grid(**at)) ** 2).mean()))

    def apart(self, one: xs.Field, other: xs.Field) -> float:
        """Largest difference of two fields on the evaluation grid, delta_max."""
        at = self.grid()
        return float(np.abs(one.predict(at) - other.predict(at)).max())

    def halves(self, seed: int) -> dict[str, xr.DataArray]:
        """A balanced draw: each holder observes its own half of the domain."""
        lo, hi = self.truth.domain["x"]
        each = self.count // 2
        return {
            "left": self.truth.scatter(each, 2 * seed + 1, within={"x": (lo, MIDDLE)}),
            "right": self.truth.scatter(each, 2 * seed + 2, within={"x": (MIDDLE, hi)}),
        }


def split(data: xr.DataArray) -> dict[str, xr.DataArray]:
    """One draw over the whole domain, as the two holders observed it."""
    left = data.x < MIDDLE
    return {"left": data[left.values], "right": data[~left.values]}


DIFFUSION = Problem(
    "diffusion",
    xs.synthetic.diffusion(),
    {"x": 11, "y": 11, "t": 11},
    {"x": 40, "y": 40, "t": 30},
)
WAVE = Problem(
    "wave",
    xs.synthetic.wave(),
    {"x": 11, "y": 11, "t": 13},
    {"x": 40, "y": 40, "t": 40},
    quintic={"x": 13, "y": 13, "t": 10},
)
HEAT = Problem(
    "heat with source",
    xs.synthetic.heat(),
    {"x": 11, "y": 11, "t": 11},
    {"x": 40, "y": 40, "t": 30},
)
BURGERS = Problem(
    "Burgers",
    xs.synthetic.burgers(),
    {"x": 15, "t": 13},
    {"x": 80, "t": 60},
    5_000,
    {"x": 44, "t": 20},
)
