"""The bare fit of simulated fields, against kriging that knows the covariance, the noise and the mean.

Fields over the unit interval, square and cube have variance 1 and a correlation length of a fifth; values have noise,
and a block of places has none. Ratios are of root mean square errors of the field, pooled over draws: 1 is what nobody
who does not know the field can beat. Shares are of the places at which 95 % intervals hold the field, with the standard
error of their mean over draws; those of kriging, whose intervals are right, tell what is left to chance. Of lines, the
errors of who knows which covariances there are, but not which it is, nor length and noise (`informed`), are over those
of kriging too: what is left to gain is between those and the bare fit's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr
from scipy.spatial.distance import cdist

from benchmarks import measure
from benchmarks.coverage import informed, shares
from benchmarks.coverage.shares import rms

LENGTH = 0.2
NOISES = (0.1, 0.3)
JITTER = 1e-9  # a variance that lets covariances be factorised
NAMES = "xyz"
HEADER = (
    "values",
    "covariance",
    "noise",
    "RMSE / kriging",
    "in gaps",
    "informed / kriging",
    "in gaps",
    "covered",
    "in gaps",
    "by kriging",
    "in gaps",
    "CPU s each",
)
Array = np.ndarray


def exponential(r: Array) -> Array:
    return np.exp(-r)


def matern_3_2(r: Array) -> Array:
    a = np.sqrt(3) * r
    return (1 + a) * np.exp(-a)


def matern_5_2(r: Array) -> Array:
    a = np.sqrt(5) * r
    return (1 + a + a**2 / 3) * np.exp(-a)


def gaussian(r: Array) -> Array:
    return np.exp(-(r**2) / 2)


COVARIANCES: dict[str, Callable[[Array], Array]] = {
    "exponential": exponential,
    "Matérn 3/2": matern_3_2,
    "Matérn 5/2": matern_5_2,
    "Gaussian": gaussian,
}


@dataclass(frozen=True)
class Layout:
    """Where values are.

    Parameters
    ----------
    shape : tuple of int
        Of a regular grid; of scattered points their number.
    dimensions : int
    half : float
        A gap is all that is nearer than this to the middle, along each coordinate.
    middle : float
    """

    shape: tuple[int, ...]
    dimensions: int
    half: float
    middle: float = 0.5

    @property
    def name(self) -> str:
        if self.dimensions == 1:
            return f"1-D, {self.shape[0]}"
        sizes = " × ".join(map(str, self.shape))
        return f"{self.dimensions}-D, {sizes}{' points' * (not self.is_grid)}"

    @property
    def is_grid(self) -> bool:
        return len(self.shape) == self.dimensions

    def places(self, rng: np.random.Generator) -> Array:
        """Coordinates, [n, dimensions]; of points at random."""
        if not self.is_grid:
            return rng.random((self.shape[0], self.dimensions))
        axes = [np.linspace(0, 1, size) for size in self.shape]
        return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, self.dimensions)

    def data(self, places: Array, values: Array) -> xr.DataArray:
        """Values as a user has them."""
        if self.is_grid:
            coords = {n: np.linspace(0, 1, size) for n, size in zip(NAMES, self.shape, strict=False)}
            return xr.DataArray(values.reshape(self.shape), coords, tuple(coords), "u")
        points = {n: ("obs", x, {"axis": n.upper()}) for n, x in zip(NAMES, places.T, strict=False)}
        return xr.DataArray(values, points, ("obs",), "u")


LINES = tuple(Layout((n,), 1, half=0.05, middle=0.55) for n in (30, 60, 200))
LAYOUTS = (
    *LINES,
    Layout((30, 30), 2, half=0.12),
    Layout((60, 60), 2, half=0.12),
    Layout((500,), 2, half=0.12),
    Layout((600,), 3, half=0.2),
)


@dataclass(frozen=True, eq=False)
class Simulated:
    """A field at some places, values of it, and what kriging with its covariance says of it."""

    data: xr.DataArray
    places: Array
    truth: Array
    gap: Array
    kriged: Array
    error: Array

    @staticmethod
    def draw(layout: Layout, covariance: Callable[[Array], Array], noise: float, seed: int) -> Simulated:
        rng = np.random.default_rng(seed)
        places = layout.places(rng)
        between = covariance(cdist(places, places) / LENGTH)
        root = np.linalg.cholesky(between + JITTER * np.eye(len(places)))
        truth = root @ rng.standard_normal(len(places))
        values = truth + noise * rng.standard_normal(len(places))
        gap = (np.abs(places - layout.middle) < layout.half).all(axis=1)
        seen = np.flatnonzero(~gap)
        of_values = between[np.ix_(seen, seen)] + noise**2 * np.eye(len(seen))
        weights = np.linalg.solve(of_values, between[seen]).T
        variance = between.diagonal() - np.sum(weights * between[:, seen], axis=1)
        data = layout.data(places, np.where(gap, np.nan, values))
        return Simulated(data, places, truth, gap, weights @ values[seen], np.sqrt(np.maximum(variance, 0)))

    def informed(self) -> Array:
        """The mean of who knows only which covariances there are; NaN where a thousand decompositions take too long."""
        if self.places.shape[1] > 1:
            return np.full_like(self.truth, np.nan)
        return informed.posterior_mean(COVARIANCES.values(), self.places, self.data.to_numpy())


@dataclass(frozen=True)
class Scored:
    """Root mean square errors, and shares that intervals hold, at some places; CPU seconds of the bare fit."""

    rmse: float
    informed: float
    best: float
    held: float
    held_by_best: float
    seconds: float


def scored(simulated: Simulated) -> tuple[Scored, Scored]:
    """Among the values, and in the gap."""
    start = time.process_time()
    field = simulated.data.spline.fit()
    mean, stderr = (x.to_numpy().ravel() for x in (field.predict(), field.stderr()))
    seconds = time.process_time() - start
    known = simulated.informed()
    found = []
    for own in (~simulated.gap, simulated.gap):
        truth = simulated.truth[own]
        error, best = mean[own] - truth, simulated.kriged[own] - truth
        sides = shares.held(error, stderr[own]), shares.held(best, simulated.error[own])
        found.append(Scored(rms(error), rms(known[own] - truth), rms(best), *sides, seconds))
    return found[0], found[1]


def row(layout: Layout, name: str, noise: float, draws: int) -> tuple[object, ...]:
    """As `HEADER` says."""
    found = [scored(Simulated.draw(layout, COVARIANCES[name], noise, seed)) for seed in range(draws)]
    both = [list(where) for where in zip(*found, strict=True)]
    best = [rms([s.best for s in own]) for own in both]
    ratios = [f"{rms([s.rmse for s in own]) / b:.3f}" for own, b in zip(both, best, strict=True)]
    reachable = [f"{rms([s.informed for s in own]) / b:.3f}" for own, b in zip(both, best, strict=True)]
    covered = [shares.text([s.held for s in own]) for own in both]
    reference = [shares.text([s.held_by_best for s in own]) for own in both]
    each = np.mean([s.seconds for s in both[0]])
    return (layout.name, name, f"{noise:g}", *ratios, *reachable, *covered, *reference, each)


def rows(
    layout: Layout, names: Sequence[str], noises: Sequence[float], draws: int
) -> Iterator[tuple[object, ...]]:
    for name in names:
        for noise in noises:
            yield row(layout, name, noise, draws)


def tables(draws: int, *, quick: bool) -> None:
    """A table of each layout, when it is done."""
    every = slice(1 if quick else None)
    for layout in LAYOUTS[every]:
        own = rows(layout, tuple(COVARIANCES)[every], NOISES[every], draws)
        measure.table(f"coverage, simulations: {draws} draws each of {layout.name}", HEADER, own)
