"""Coordinates as places in a Euclidean space, where neighbours are near and lengths are those of the covariance.

Latitude and longitude become a place on a sphere of radius 180/π, so that near places are a degree apart in units of
the coordinates, poles and the date line are places like others, and a covariance of distances through the sphere is a
covariance (Gneiting 2013). Along the axis of the sphere and across it lengths may differ. Where the longitudes span
less than a half circle, the sphere is turned so that the domain lies on its equator: the two lengths are then those
northward and eastward.

Eastward and northward wind have no one value at a pole, where these directions turn with the longitude, and neither has
what splines along longitude leave of a season. Where values at a pole, or beside it, follow the longitude, the sphere
ends there in a tube, whose longitudes are as far apart at the pole as where the tube begins.

Levels are chosen close together where the field changes fast, as those of an ocean are below its surface. A coordinate
may therefore count how many labels lie between places instead of how far these are apart.

Cells begin somewhere, and samples are taken in some order. So that neither hangs on which coordinate is first, on
whether a depth is positive upward or downward, or on the meridian that longitudes are counted from, the data say these.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
#: Degrees from a pole; with half of it errors beside poles are 80 times larger (`python -m benchmarks geometry`).
TUBE = 10.0
#: Ratio of the largest distance of labels to the least, from which they may be counted (2 is the same, 8 too rare).
UNEVEN = 4.0
#: Labels between which places are interpolated at most; 20, 80: 3 % (`benchmarks contest --sets section`).
COUNTED = 40


@dataclass(frozen=True)
class Places:
    """How coordinates become places."""

    coordinates: int  # how many there are
    latitude: int | None = None  # which coordinate this is, in degrees; both of them or none
    longitude: int | None = None  # likewise
    # latitude, in its direction, and longitude of the middle of the domain; a latitude of 0 where the domain is round
    centre: tuple[float, float] = (0.0, 0.0)
    is_round: bool = False  # whether the longitudes span a half circle or more
    degrees: float = 1.0  # a unit of latitude and longitude in degrees
    directions: Sequence[float] = ()  # of each coordinate, 1 or -1; 1 where nothing tells it
    order: Sequence[int] = ()  # in which the coordinates are taken; their own where nothing tells it
    # how many degrees from each pole the sphere becomes a tube; 0 where a pole is one place
    tube: float = 0.0
    # of each coordinate along which labels are counted: its number, some labels, and where these are placed
    counted: tuple[tuple[int, Sequence[float], Sequence[float]], ...] = ()
    shortest: Sequence[float] = ()  # of the field, at least, in the order of `links`, if that is known

    @classmethod
    def over(
        cls,
        coordinates: int,
        latitude: int,
        longitude: int,
        latitudes: tuple[float, float],
        longitudes: tuple[float, float],
        degrees: float = 1.0,
    ) -> Places:
        """Return the places of a domain, given the ranges of latitude and longitude."""
        (south, north), (west, east) = latitudes, longitudes
        is_round = degrees * (east - west) >= math.degrees(math.pi)
        middle = 0.0 if is_round else degrees * (south + north) / 2
        return cls(coordinates, latitude, longitude, (middle, degrees * (west + east) / 2), is_round, degrees)

    @property
    def on_sphere(self) -> bool:
        """Whether latitude and longitude are among the coordinates."""
        return self.latitude is not None

    @property
    def others(self) -> list[int]:
        """The coordinates that are neither latitude nor longitude."""
        return [j for j in self.order or range(self.coordinates) if j not in (self.latitude, self.longitude)]

    @property
    def links(self) -> NDArray[np.int64]:
        """For each axis of the places the number of its length: the first two axes of a sphere share one."""
        sphere = [] if self.latitude is None else [0, 0, 1]
        first = max(sphere, default=-1) + 1
        return np.array([*sphere, *range(first, first + len(self.others))])

    def facing(self, x: Array, values: Array, weights: Array) -> Places:
        """Return the places in the direction in which values vary most, of observations at coordinates [n, d].

        The squares of values grow along each coordinate, most along the first, and around the globe their mean is at
        longitude 0.
        """
        squares, away, (north, east) = weights * values**2, x - x.mean(axis=0), self.centre
        if self.longitude is not None and self.is_round:
            angles = np.radians(self.degrees * x[:, self.longitude])
            middle = float(np.angle(squares @ np.exp(1j * angles)))
            away[:, self.longitude], east = np.sin(2 * (angles - middle)), math.degrees(middle)
        growth = squares @ away
        directions = np.where(growth < 0, -1.0, 1.0).tolist()
        order = np.argsort(-np.abs(growth) / np.maximum(np.std(away, axis=0), np.finfo(float).tiny)).tolist()
        if self.latitude is not None:
            north *= directions[self.latitude]
        return replace(self, centre=(north, east), directions=directions, order=order)

    def directed(self, x: Array) -> Array:
        """Return coordinates [n, d] in these directions, latitude and longitude in degrees.

        Longitude is counted from the middle of the domain; around the globe it is from 0 to 360.
        """
        x = np.array(x, np.float64)
        if self.latitude is not None and self.longitude is not None:
            x[:, [self.latitude, self.longitude]] *= self.degrees
            x[:, self.longitude] -= self.centre[1]
        if self.directions:
            x *= self.directions
        if self.longitude is not None and self.is_round:
            x[:, self.longitude] %= 360.0
        return x

    def __call__(self, x: Array) -> Array:
        """Return the places [n, D] of coordinates [n, d]."""
        x = self.directed(x)
        along = {j: _counted(x[:, j], labels, placed) for j, labels, placed in self.counted}
        axes = [along.get(j, x[:, j]) for j in self.others]
        if self.latitude is None or self.longitude is None:
            return np.stack(axes, axis=1)
        latitude, longitude = np.radians(x[:, self.latitude]), np.radians(x[:, self.longitude])
        round_part = np.clip(latitude, *np.radians([self.tube - 90, 90 - self.tube]))
        along_tube, latitude = latitude - round_part, round_part
        tilt = np.radians(self.centre[0])
        outward = np.cos(latitude) * np.cos(longitude)
        east = np.cos(latitude) * np.sin(longitude)
        north = np.sin(latitude) + along_tube
        away = np.cos(tilt) * outward + np.sin(tilt) * north
        up = np.cos(tilt) * north - np.sin(tilt) * outward
        return np.stack([*(np.degrees(axis) for axis in (away, east, up)), *axes], axis=1)

    def on_grid(self, steps: Array, resolved: Sequence[bool]) -> Places:
        """Return the places of a grid, whose labels resolve the field along some coordinates.

        Lengths of the field are at least the distances of labels there, `steps` [d]. The likelihood does not tell a
        shorter length from none: each row of a map of years may have a spike of its own, and there is nothing between.
        """
        least = np.where(resolved, steps, 0.0)
        own = [float(least[j]) for j in self.others]
        if self.latitude is not None and self.longitude is not None:
            north, east = self.degrees * least[[self.latitude, self.longitude]]
            east *= math.cos(math.radians(self.centre[0]))
            own = [float(min(north, east) if self.is_round else east), float(north), *own]
        return replace(self, shortest=own)

    def counting(self, x: Array, steps: Array, candidates: Sequence[int]) -> Places:
        """Return the places where labels are counted along those of some coordinates that have uneven ones.

        `x` [n, d] are coordinates of observations, and `steps` [d] the usual distances of labels, which they keep. The
        distance of labels changes smoothly along a coordinate: it is a straight line through the logarithms nearby.
        """
        x, counted = self.directed(x), []
        for j in set(candidates) & set(self.others):
            labels = np.unique(x[:, j])
            are_shared = self.coordinates == 1 or 2 * labels.size <= len(x)
            most = min(COUNTED, labels.size if are_shared else math.isqrt(len(x)))
            if most < 4:
                continue
            some = labels[np.round(np.linspace(0, labels.size - 1, most)).astype(np.int64)]
            apart, number = np.log(np.diff(some)), np.arange(most - 1.0)
            near = [np.polyfit(number - i, apart, 1, w=np.exp(-((number - i) ** 2) / 4))[1] for i in number]
            if max(near) - min(near) > math.log(UNEVEN):
                placed = np.append(0.0, np.cumsum(np.exp(apart - near)))
                placed *= (steps[j] * (labels.size - 1) if are_shared else np.ptp(labels)) / placed[-1]
                counted.append((int(j), some.tolist(), placed.tolist()))
        return replace(self, counted=tuple(counted))

    def with_tubes(self, x: Array, values: Array) -> Places:
        """Return the places with tubes, if values at coordinates [n, d] follow the longitude at a pole."""
        if self.latitude is None or self.longitude is None:
            return self
        north, east = self.degrees * x[:, self.latitude], self.degrees * x[:, self.longitude]
        times = x.copy()
        times[:, [self.latitude, self.longitude]] = 0.0
        follow = _follow_at_pole(north, east, times, values) or _follow_beside_pole(
            north, east, times, values
        )
        return replace(self, tube=TUBE) if follow else self

    def around(self, lower: Array, upper: Array, widths: Array) -> tuple[Array, Array]:
        """Return the range of coordinates [d] of all places that are within some widths [D] of those of a range.

        On a sphere longitudes beyond the poles are all longitudes: the range is a circle wide or more.
        """
        low, high = np.array(lower, np.float64), np.array(upper, np.float64)
        margin = np.zeros(self.coordinates)
        margin[self.others] = widths[-len(self.others) :] if self.others else 0.0
        if self.latitude is not None and self.longitude is not None:
            chord = np.radians(widths[:3].max())
            arc = 2 * np.arcsin(min(chord / 2, 1.0))
            farthest = np.radians(self.degrees * max(abs(low[self.latitude]), abs(high[self.latitude])))
            over_pole = arc + farthest >= np.pi / 2
            turn = np.pi if over_pole else np.arcsin(np.sin(arc) / np.cos(farthest))
            margin[self.latitude] = np.degrees(arc) / self.degrees
            margin[self.longitude] = np.degrees(turn) / self.degrees
        return low - margin, high + margin

    def names(self, coordinates: Sequence[str]) -> list[str]:
        """Return what each length is along, given the names of the coordinates."""
        if self.latitude is None or self.longitude is None:
            return list(coordinates)
        return [
            coordinates[self.longitude],
            coordinates[self.latitude],
            *(coordinates[j] for j in self.others),
        ]


def _follow_at_pole(north: Array, east: Array, times: Array, values: Array) -> bool:
    """Return whether values at a pole follow the longitude.

    They do where the squares of the steps from one longitude to the next are less than those about the mean: of noise
    they are twice as large (von Neumann 1941). Rounding errors are none.
    """
    nearly = 1 - np.finfo(np.float32).eps  # no latitude of single precision is nearer to 90
    at = np.abs(north) >= 90 * nearly
    _, pole = np.unique(np.column_stack([north[at], times[at]]), axis=0, return_inverse=True)
    pole = pole.ravel()
    order = np.lexsort((east[at], pole))
    pole, values = pole[order], values[at][order]
    means = np.bincount(pole, weights=values) / np.bincount(pole)
    steps = np.diff(values)[np.diff(pole) == 0]
    about = np.sum((values - means[pole]) ** 2)
    return bool(max(np.sum(steps**2), np.finfo(float).eps * np.sum(values**2)) < about)


def _follow_beside_pole(north: Array, east: Array, times: Array, values: Array) -> bool:
    """Return whether values on the two circles of latitude nearest to a pole, but not at it, follow the longitude.

    They do where most of what varies along the near circle is a wave of one cycle that is as large on both, as winds
    have. It grows with the distance to the pole where the values have one limit there.
    """
    variance = wave = of_one_limit = 0.0
    as_large = float(np.finfo(float).eps * np.mean(values**2))
    for apart in (90 - north, 90 + north):
        near = float(apart.min())
        far = float(apart.min(where=apart > near, initial=180))
        if 0 < near < TUBE:
            at = apart <= far
            at_near, at_far, variances = _waves(east[at], times[at], values[at], apart[at] == far)
            variance += float(np.sum(variances))
            wave += float(np.sum(2 * np.abs(at_near) ** 2))
            of_one_limit += float(np.sum(np.abs(at_near - near / far * at_far) ** 2))
            as_large += float(np.sum(np.abs(at_near - at_far) ** 2))
    return variance < 2 * wave and as_large < of_one_limit


def _waves(east: Array, times: Array, values: Array, is_far: NDArray[np.bool_]) -> tuple[Any, Any, Array]:
    """Return the waves [n] of one cycle on the near and the far circle, and the variances on the near one.

    Each is for a time (or a level) with values on both circles, more than the three that a mean and a wave fit.
    """
    _, time = np.unique(times, axis=0, return_inverse=True)
    circle = 2 * time.ravel() + is_far
    sums = functools.partial(np.bincount, circle, minlength=2 * (int(time.max()) + 1))
    count = np.maximum(sums(), 1)
    values = values - (sums(values) / count)[circle]
    turn = np.radians(east)
    means = [sums(each) / count for each in (values * np.cos(turn), values * np.sin(turn), values**2)]
    cosine, sine, variance = (mean.reshape(-1, 2)[count.reshape(-1, 2).min(axis=1) > 3] for mean in means)
    wave = cosine + 1j * sine
    return wave[:, 0], wave[:, 1], variance[:, 0]


def _counted(x: Array, labels: Sequence[float], placed: Sequence[float]) -> Array:
    """Return where coordinates [n] are placed, given that of some labels; beyond these the last distance goes on."""
    from scipy.interpolate import PchipInterpolator  # not above: it makes the import of the package longer

    curve = PchipInterpolator(labels, placed)
    inside = np.clip(x, labels[0], labels[-1])
    return np.asarray(curve(inside) + (x - inside) * curve(inside, 1))
