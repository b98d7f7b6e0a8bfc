"""How many B-splines coordinates get in a single field where nobody says: as many as labels support, within a limit.

With a penalty whose strength the data choose, more functions than the data need do no harm but cost. So each dimension
of labels supports a function for every second label. Where all coordinates together would have more functions than a
choice of the penalty should take, the numbers of cells between the knots shrink by one factor. Only labels count here,
neither values nor the machine: equal coordinates get equal numbers everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xspline.spaces import Axis, Basis, BSpline
from xspline.sums import join_overlapping

Floats: TypeAlias = NDArray[np.float64]

#: Functions of one coordinate, at least, as over one cell of a cubic B-spline, and at most.
LEAST, MOST = 4, 1024
#: Labels for each function, along each dimension of labels.
LABELS_PER_FUNCTION = 2
#: Coefficients that REML smooths in ten seconds of one core, by the number of coordinates with B-splines.
#: Measured on MODIS (35,721 in 9.7 s) and the Mediterranean (19,343 in 31 s): `python -m benchmarks smoothing`.
TEN_SECONDS = {1: 1_000_000, 2: 36_000, 3: 10_000}
#: The budget of somebody who waits in a notebook, in seconds of one core.
SECONDS = 10.0


class Labels(NamedTuple):
    """What is known of one coordinate."""

    dims: tuple[Hashable, ...]  # the dimensions that it spans
    values: Floats  # its labels along these dimensions
    axis: Axis
    extent: tuple[float, float]  # the range of the labels
    direction: str  # X, Y, Z or T of the CF conventions, or nothing

    @property
    def closed(self) -> bool:
        """Whether the labels close a circle."""
        return self.extent == (0.0, self.axis.wrap)

    def functions(self, cells: float) -> int:
        """Return how many functions there are over so many cells: as many on a closed circle, else the degree more."""
        return min(max(round(cells) + (0 if self.closed else LEAST - 1), LEAST), MOST)


def largest(
    counts_at: Callable[[float], dict[str, float]], most: float, high: float = 1.0
) -> dict[str, float]:
    """Return the numbers at the largest factor, up to `high`, that leaves their product at or below `most`.

    Where not even the factor 0 does, the numbers are those at 0.
    """
    if math.prod(counts_at(high).values()) <= most:
        return counts_at(high)
    low = 0.0
    for _ in range(40):
        middle = (low + high) / 2
        if math.prod(counts_at(middle).values()) <= most:
            low = middle
        else:
            high = middle
    return counts_at(low)


def sized(
    bases: Mapping[str, Basis],
    labels: Mapping[str, Labels],
    sizes: Mapping[Hashable, int],
    seconds: float,
    per_function: int,
) -> dict[str, Basis]:
    """Return the bases with the numbers of functions of their B-splines.

    The `sizes` are the lengths of the dimensions of the data that are not pooled, `seconds` the time of one core that
    the choice of the penalty may take, and `per_function` the labels for each function along a dimension. The time
    grows like the power 3/2 of the number of coefficients in two coordinates, and like the square in three, as nested
    dissection does.
    """
    cells: dict[str, float] = {}
    for group in groups(labels):
        cells |= _supported(group, bases, labels, sizes, per_function)
    if not cells:
        return dict(bases)
    dimensions = min(len(cells), 3)
    power = {1: 1.0, 2: 2 / 3, 3: 1 / 2}[dimensions]
    spanned = {dim for known in labels.values() for dim in known.dims}
    systems = math.prod(n for dim, n in sizes.items() if dim not in spanned)
    others = math.prod(basis.count for name, basis in bases.items() if name not in cells)
    most = TEN_SECONDS[dimensions] * (seconds / SECONDS / systems) ** power / others
    counts = largest(
        lambda factor: {name: labels[name].functions(max(factor * k, 1)) for name, k in cells.items()}, most
    )
    return {name: BSpline(int(counts[name])) if name in counts else b for name, b in bases.items()}


def different(x: Floats, enough: int) -> int:
    """Return the number of different labels; that of a part of them if it is enough, for there may be millions."""
    x = x[np.isfinite(x)]
    part = np.unique(x[:: max(x.size // (10 * enough), 1)]).size
    return int(part if part >= enough else np.unique(x).size)


def groups(labels: Mapping[str, Labels]) -> list[list[str]]:
    """Return the coordinates that share dimensions, in the order of the coordinates."""
    joined = join_overlapping([{("dim", d) for d in x.dims} | {("name", n)} for n, x in labels.items()])
    return [[n for n in labels if ("name", n) in members] for members in joined]


def _supported(
    group: Sequence[str],
    bases: Mapping[str, Basis],
    labels: Mapping[str, Labels],
    sizes: Mapping[Hashable, int],
    per_function: int,
) -> dict[str, float]:
    """Return how many cells the labels of a group support along each of its coordinates that has a B-spline."""
    splines = {name: labels[name] for name in group if isinstance(bases[name], BSpline)}
    cells: dict[str, float] = {}
    for name, known in splines.items():
        count = different(known.values, per_function * MOST)
        cells[name] = max(count // per_function, 1)
    dims = {dim for name in group for dim in labels[name].dims}
    if not splines or len(group) == len(dims) == 1:
        return cells
    # Scattered observations support together a cell for every second one (over two dimensions every fourth), and no
    # more than two for each position, where they are repeated at few.
    observations = math.prod(sizes[dim] for dim in dims)
    allowed = observations / per_function ** len(dims)
    allowed /= math.prod(bases[name].count for name in group if name not in splines)
    allowed = min(allowed, 2 * positions(list(splines.values())))
    widths = _widths(splines)
    # The longest coordinate has `longest` cells, and the others as many as make cells square.
    return largest(
        lambda longest: {n: min(max(longest * widths[n], 1), k) for n, k in cells.items()},
        allowed,
        2.0 * MOST,
    )


def positions(coordinates: Sequence[Labels]) -> int:
    """Return at about how many different positions there are observations; of more than a million from a sample."""
    sizes = {dim: n for x in coordinates for dim, n in zip(x.dims, x.values.shape, strict=True)}
    whole = math.prod(sizes.values())
    sample = min(whole, 1_000_000)
    flat = np.random.default_rng(0).integers(0, whole, sample) if whole > sample else np.arange(whole)
    index = dict(zip(sizes, np.unravel_index(flat, tuple(sizes.values())), strict=True))
    code = np.zeros(flat.size, np.int64)
    for x in coordinates:
        _, own = np.unique(x.values[tuple(index[dim] for dim in x.dims)], return_inverse=True)
        _, code = np.unique(code * (int(own.max()) + 1) + own, return_inverse=True)
    count = int(code.max()) + 1
    # A sample that hardly repeats itself says that the rest does not either.
    return count if count < sample // 2 else count * whole // sample


def _widths(labels: Mapping[str, Labels]) -> dict[str, float]:
    """Return the relative numbers of cells that make cells of the plane square; 1 along other coordinates."""
    plane = {n: x for n, x in labels.items() if x.direction in ("X", "Y")}
    roles, units = {x.axis.role for x in plane.values()}, {x.axis.units for x in plane.values()}
    if len(plane) < 2 or not (roles == {"latitude", "longitude"} or (roles == {""} and len(units) == 1)):
        return dict.fromkeys(labels, 1.0)
    spans = {n: x.extent[1] - x.extent[0] for n, x in plane.items()}
    latitude = next((x for x in plane.values() if x.axis.role == "latitude"), None)
    if latitude is not None:
        middle = math.cos(math.radians(np.clip(sum(latitude.extent) / 2, -80, 80)))
        spans = {n: span * (middle if plane[n].axis.role == "longitude" else 1) for n, span in spans.items()}
    longest = max(spans.values())
    return {n: spans.get(n, longest) / longest for n in labels}
