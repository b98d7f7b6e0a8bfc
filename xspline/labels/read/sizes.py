"""How many B-splines coordinates get by default in a single field: as many as labels support, within a limit.

With a penalty whose strength the data choose, more functions than they need do no harm but cost. So along each
dimension of labels there is a function for every second label; where these are more together than a choice of the
penalty should take, the cells between the knots of all coordinates shrink by one factor. Nothing here looks at values
or at the machine: equal coordinates get equal numbers everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xspline.spaces import Axis, Basis, BSpline
from xspline.sums import join_overlapping

Floats: TypeAlias = NDArray[np.float64]

DEGREE = 3
#: Functions of one coordinate, at least and at most.
LEAST, MOST = 4, 1024
#: Labels for each function, along each dimension of labels.
LABELS_PER_FUNCTION = 2
#: Cells for each position at which there are observations, at most, where these are repeated at few positions.
CELLS_PER_POSITION = 2
#: Positions that are looked at; of more a sample.
POSITIONS = 1_000_000
#: Coefficients that REML smooths in ten seconds of one core, by the number of coordinates with B-splines.
#: Measured on MODIS (35,721 in 9.7 s) and the Mediterranean (19,343 in 31 s): `python -m benchmarks smoothing`.
TEN_SECONDS = {1: 1_000_000, 2: 36_000, 3: 10_000}
#: The budget of somebody who waits in a notebook, in seconds of one core.
SECONDS = 10.0


class Labels(NamedTuple):
    """What is known of one coordinate.

    Parameters
    ----------
    dims : tuple of hashable
    values : ndarray of float
        Along these dimensions.
    axis : Axis
    extent : tuple of float
    direction : str
        X, Y, Z or T of the CF conventions, or nothing.
    """

    dims: tuple[Hashable, ...]
    values: Floats
    axis: Axis
    extent: tuple[float, float]
    direction: str

    @property
    def more(self) -> int:
        """How many more functions there are than cells: none for a longitude that goes all around."""
        closed = self.axis.wrap is not None and self.extent == (0.0, self.axis.wrap)
        return 0 if closed else DEGREE

    def functions(self, cells: float) -> int:
        """How many functions there are over so many cells."""
        return min(max(round(cells) + self.more, LEAST), MOST)


def sized(
    bases: Mapping[str, Basis], labels: Mapping[str, Labels], sizes: Mapping[Hashable, int], seconds: float
) -> dict[str, Basis]:
    """Return the bases with the numbers of functions of their B-splines.

    Parameters
    ----------
    bases : mapping of str to Basis
        Those that are B-splines get another number of functions.
    labels : mapping of str to Labels
    sizes : mapping of hashable to int
        Of the dimensions of the data that are not pooled.
    seconds : float
        Of one core, that choosing the penalty may take. Time grows like the power 3/2 of the number of coefficients in
        two coordinates, and like the square in three, as nested dissection does.
    """
    cells: dict[str, float] = {}
    for group in _groups(labels):
        cells |= _supported(group, bases, labels, sizes)
    if not cells:
        return dict(bases)
    dimensions = min(len(cells), 3)
    power = {1: 1.0, 2: 2 / 3, 3: 1 / 2}[dimensions]
    most = TEN_SECONDS[dimensions] * (seconds / SECONDS) ** power
    most /= math.prod(basis.count for name, basis in bases.items() if name not in cells)
    spanned = {dim for known in labels.values() for dim in known.dims}
    systems = math.prod(n for dim, n in sizes.items() if dim not in spanned)
    most /= systems**power

    def at(factor: float) -> dict[str, int]:
        return {name: labels[name].functions(max(factor * k, 1)) for name, k in cells.items()}

    low, high = 0.0, 1.0
    counts = at(high)
    if math.prod(counts.values()) > most:
        for _ in range(30):
            middle = (low + high) / 2
            low, high = (middle, high) if math.prod(at(middle).values()) <= most else (low, middle)
        counts = at(low)
    return {name: BSpline(counts[name]) if name in counts else basis for name, basis in bases.items()}


def _groups(labels: Mapping[str, Labels]) -> list[list[str]]:
    """Return the coordinates that share dimensions, in the order of the coordinates."""
    joined = join_overlapping([{("dim", d) for d in x.dims} | {("name", n)} for n, x in labels.items()])
    return [[n for n in labels if ("name", n) in members] for members in joined]


def _supported(
    group: Sequence[str],
    bases: Mapping[str, Basis],
    labels: Mapping[str, Labels],
    sizes: Mapping[Hashable, int],
) -> dict[str, float]:
    """Return the numbers of cells of the coordinates of a group that have B-splines."""
    splines = [name for name in group if isinstance(bases[name], BSpline)]
    counted = {name: different(labels[name].values, LABELS_PER_FUNCTION * MOST) for name in splines}
    cells = {name: max(count // LABELS_PER_FUNCTION, 1) for name, count in counted.items()}
    dims = {dim for name in group for dim in labels[name].dims}
    if not splines or len(group) == len(dims) == 1:
        return dict(cells)
    # Scattered: cells for as many observations, and at as many positions, as there are.
    observations = math.prod(sizes[dim] for dim in dims)
    allowed = observations / LABELS_PER_FUNCTION ** len(dims)
    allowed /= math.prod(bases[name].count for name in group if name not in splines)
    allowed = min(allowed, CELLS_PER_POSITION * _positions([labels[n] for n in splines], observations))
    widths = _widths({name: labels[name] for name in splines})

    def at(longest: float) -> dict[str, float]:
        """Return the cells where the longest coordinate has so many."""
        return {name: min(max(longest * widths[name], 1), cells[name]) for name in splines}

    low, high = 1.0, 2.0 * MOST
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if math.prod(at(middle).values()) <= allowed else (low, middle)
    return at(low)


def different(x: Floats, enough: int) -> int:
    """Return the number of different labels; that of a part of them if it is enough, for there may be millions."""
    x = x[np.isfinite(x)]
    part = np.unique(x[:: max(x.size // (10 * enough), 1)]).size
    return int(part if part >= enough else np.unique(x).size)


def _positions(coordinates: Sequence[Labels], observations: int) -> int:
    """Return at about how many different positions there are observations."""
    dims = list(dict.fromkeys(dim for x in coordinates for dim in x.dims))
    sizes = {dim: n for x in coordinates for dim, n in zip(x.dims, x.values.shape, strict=True)}
    shape = tuple(sizes[dim] for dim in dims)
    whole = math.prod(shape)
    flat = np.arange(whole) if whole <= POSITIONS else np.random.default_rng(0).integers(0, whole, POSITIONS)
    index = dict(zip(dims, np.unravel_index(flat, shape), strict=True))
    code = np.zeros(flat.size, np.int64)
    for x in coordinates:
        _, own = np.unique(x.values[tuple(index[dim] for dim in x.dims)], return_inverse=True)
        _, code = np.unique(code * (int(own.max()) + 1) + own, return_inverse=True)
    count = int(code.max()) + 1
    # Of a sample that hardly repeats itself the rest does not either.
    return count if whole <= POSITIONS or count < POSITIONS // 2 else count * whole // POSITIONS


def _widths(labels: Mapping[str, Labels]) -> dict[str, float]:
    """Return the relative numbers of cells that make cells of the plane square; 1 along other coordinates."""
    plane = {n: x for n, x in labels.items() if x.direction in ("X", "Y")}
    if len(plane) < 2 or not _comparable([x.axis for x in plane.values()]):
        return dict.fromkeys(labels, 1.0)
    spans = {n: x.extent[1] - x.extent[0] for n, x in plane.items()}
    latitude = next((x for x in plane.values() if x.axis.role == "latitude"), None)
    if latitude is not None:
        middle = math.cos(math.radians(np.clip(sum(latitude.extent) / 2, -80, 80)))
        spans = {n: span * (middle if plane[n].axis.role == "longitude" else 1) for n, span in spans.items()}
    longest = max(spans.values())
    return {n: spans.get(n, longest) / longest for n in labels}


def _comparable(axes: Sequence[Axis]) -> bool:
    """Whether lengths along two axes measure the same: latitude and longitude, or equal units."""
    roles = {axis.role for axis in axes}
    return roles == {"latitude", "longitude"} or (roles == {""} and len({axis.units for axis in axes}) == 1)
