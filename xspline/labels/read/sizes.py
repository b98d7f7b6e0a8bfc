"""How many functions coordinates get by default: as many as their labels support, within a budget of seconds.

With a penalty whose strength the data choose, more functions than they need do no harm but cost. So along each
dimension of labels there is a function for every second label; where that would take longer than the budget allows,
the cells between the knots of all coordinates shrink by one factor. Nothing here looks at values or at the machine:
equal coordinates get equal numbers everywhere. Where there is no time for all, these are the numbers before the values
are known; the budget lists those of nested spaces, among which `spread` chooses afterwards.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xspline import execution
from xspline.labels.read.stores import Gaps
from xspline.solve.costs import COSTS
from xspline.spaces import Axis, Basis, BSpline, Space, Union
from xspline.sums import Sums, join_overlapping

Floats: TypeAlias = NDArray[np.float64]

DEGREE = 3
LEAST = 4  # functions of one coordinate
LABELS_PER_FUNCTION = 2  # along each dimension of labels
CELLS_PER_POSITION = 2  # at most, where observations are repeated at few positions
POSITIONS = 1_000_000  # that are looked at; of more a sample
DIVISORS, NEARLY = (2, 3, 4, 5, 6, 8), 0.85  # numbers of cells that divide well, at most so much smaller
FEW = 16  # cells of linear splines that stay between labels: between other knots, each label would be a mean of two
LONGEST_EVENT = "90D"  # cells of events
AHEAD = 1.5  # times the budget: a search from known strengths takes half, and three quarters are for it
USUAL = 0.5  # of the variance that one coordinate leaves: what it leaves with twice the cells, where nothing tells,
LEAST_LEFT, MOST_LEFT = 0.1, 0.9  # and what else it may be
LITTLE = 1e-4  # of all variance that is left: a coordinate that gains nothing is refined last
STEP, STRIDE = 0.96, 4  # numbers of cells shrink by this factor, so many times before a look


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
    degree : int
        Of the B-splines that it gets.
    beside : Basis or None
        Season and trend, beside which its B-spline is that of events.
    """

    dims: tuple[Hashable, ...]
    values: Floats
    axis: Axis
    extent: tuple[float, float]
    direction: str
    degree: int = DEGREE
    beside: Basis | None = None

    @property
    def per_function(self) -> int:
        """Labels along each dimension for a function; linear splines have one for each label."""
        return LABELS_PER_FUNCTION if self.degree > 1 else 1

    @property
    def closed(self) -> bool:
        """Whether a longitude goes all around."""
        return self.axis.wrap is not None and self.extent == (0.0, self.axis.wrap)

    @property
    def more(self) -> int:
        """How many more functions there are than cells."""
        return (0 if self.closed else self.degree) + (self.beside.count if self.beside else 0)

    @property
    def most(self) -> int:
        """Functions that it gets at most."""
        return COSTS.most_events if self.beside else COSTS.most_functions

    def functions(self, cells: int) -> int:
        """How many functions there are over so many cells."""
        return max(cells + self.more, LEAST)

    def cells(self, count: int) -> int:
        """Cells for so many different labels; linear splines have one between each two."""
        return count // self.per_function if self.degree > 1 else count - (not self.closed)

    def basis(self, count: int) -> Basis:
        """So many functions."""
        if self.beside is None:
            return BSpline(count, self.degree)
        return self.beside + BSpline(count - self.beside.count, self.degree)


class Linear(NamedTuple):
    """Linear splines, of which there is time for many more.

    Parameters
    ----------
    bases : dict of str to Basis
        The finest.
    budget : Budget
        Of nested spaces.
    space : Space or None
        Of these bases, once the coordinates are known.
    """

    bases: dict[str, Basis]
    budget: Budget
    space: Space | None = None


class Alike(NamedTuple):
    """Bases for gaps that are the same at all times, under which events are solved for mode by mode of time.

    Parameters
    ----------
    bases : dict of str to Basis
        The finest, with events.
    nested : dict of str to tuple of int
        Numbers of functions of spaces that lie in theirs, without events that there is no time for otherwise.
    close : bool
        Whether the other coordinates have about as many functions as they would have otherwise, so that little is lost
        where gaps turn out to differ.
    time : hashable
        The dimension of times.
    """

    bases: dict[str, Basis]
    nested: dict[str, tuple[int, ...]]
    close: bool
    time: Hashable


@dataclass(frozen=True)
class Budget:
    """The seconds that numbers of functions were chosen for.

    Parameters
    ----------
    seconds : float
        Of one core, for the choice of the smoothing and the solve.
    estimate : float
        What these numbers are expected to take of them.
    supported : dict of str to int
        The numbers that the labels support.
    nested : dict of str to tuple of int
        Numbers of functions of spaces that lie in each other, ascending, among which the likelihood of the data may
        choose; empty where all that labels support is within the budget.
    alike : Alike or None
        What there is time for if gaps turn out to be the same at all times, where that is more.
    nearly : Alike or None
        The same where gaps are few and nearly the same at all times, which takes longer.
    linear : Linear or None
        What there is time for in linear splines, where there is none for many cubics.
    finest : dict of str to Basis
        With the last of `nested`.
    degree : int
        Of the B-splines.
    """

    seconds: float
    estimate: float
    supported: dict[str, int]
    nested: dict[str, tuple[int, ...]] = field(default_factory=dict)
    alike: Alike | None = None
    nearly: Alike | None = None
    linear: Linear | None = None
    finest: dict[str, Basis] = field(default_factory=dict)
    degree: int = DEGREE

    @property
    def ladders(self) -> dict[str, tuple[int, ...]]:
        """The numbers to choose from after the sums of the finest space are known."""
        return self.alike.nested if self.alike else self.nested

    def knowing(self, gaps: Gaps | None) -> Budget:
        """Return the budget once it is known how gaps change with time; None where sums have to tell."""
        if gaps is None:
            return self if self.alike and self.alike.close else replace(self, alike=None)
        return replace(self, alike={Gaps.ALIKE: self.alike, Gaps.NEARLY: self.nearly}.get(gaps))

    def widest(self, bases: Mapping[str, Basis]) -> dict[str, Basis]:
        """Return the bases with the most functions that may be chosen."""
        return self.alike.bases if self.alike else {**bases, **self.finest}

    def over(self, space_of: Callable[[Mapping[str, Basis]], Space]) -> Budget:
        """Return the budget with the space of linear splines."""
        linear = self.linear
        return replace(self, linear=linear and linear._replace(space=space_of(linear.bases)))

    def __str__(self) -> str:
        told = f"{self.estimate:.2g} s of {self.seconds:g} s to choose the penalty"
        if self.supported:
            told += f"; labels support {listed(self.supported)}"
        if self.alike:
            more = {name: basis.count for name, basis in self.alike.bases.items()}
            told += f"; a fit takes {listed(more)} where gaps are the same at all times"
        if self.linear:
            more = {name: counts[-1] for name, counts in self.linear.budget.nested.items()}
            told += f"; a fit takes linear splines in up to {listed(more)} where that is likelier"
        return told


def listed(counts: Mapping[str, int]) -> str:
    """Return numbers of functions as text."""
    return " × ".join(f"{name} {n}" for name, n in counts.items())


def sized(
    bases: Mapping[str, Basis],
    labels: Mapping[str, Labels],
    seconds: float,
    sizes: Mapping[Hashable, int],
    fits: int,
    *,
    alike: bool = False,
) -> tuple[dict[str, Basis], Budget]:
    """Return the bases with the numbers of functions of their B-splines, and the budget that they keep.

    Parameters
    ----------
    bases : mapping of str to Basis
        Those that are B-splines get another number of functions.
    labels : mapping of str to Labels
    seconds : float
    sizes : mapping of hashable to int
        Of the dimensions of the data that are not pooled.
    fits : int
        Variables that are fitted one after the other.
    alike : bool
        Whether to count on gaps that are the same at all times, and on sums that are small if they are not.
    """
    groups = _groups(labels)
    supported = {k: n for group in groups for k, n in _supported(group, bases, labels, sizes).items()}
    spanned = {dim for known in labels.values() for dim in known.dims}
    systems = math.prod(n for dim, n in sizes.items() if dim not in spanned)
    factors = _factors(groups, labels)
    degree = min((labels[name].degree for name in supported), default=DEGREE)

    def of(counts: Mapping[str, int]) -> dict[str, Basis]:
        return {n: labels[n].basis(counts[n]) if n in counts else basis for n, basis in bases.items()}

    def space(counts: Mapping[str, int]) -> Space:
        axes, extents = ({n: getattr(x, key) for n, x in labels.items()} for key in ("axis", "extent"))
        return Space(of(counts), axes=axes, extents=extents)

    def cost(counts: Mapping[str, int], known: bool = False) -> float:
        return fits * execution.search_seconds(space(counts), factors, systems, alike=alike, known=known)

    if not supported:
        return dict(bases), Budget(seconds, 0.0, {})
    splines = {name: labels[name] for name in supported}
    counts, estimate = _within(seconds, splines, supported, functools.partial(cost, known=alike))
    nested: dict[str, tuple[int, ...]] = {}
    quick, events = (
        min(seconds / COSTS.full_sums_seconds, 1.0),
        any(labels[name].beside for name in supported),
    )
    if alike:  # sums are small
        nested = _nested(counts, labels, space(counts), fits * systems)
        counts = {name: ladder[-1] for name, ladder in nested.items()}
        estimate = cost(counts, known=True)
    elif counts != supported or degree < DEGREE or events:
        finest = supported
        if degree < DEGREE and events:
            # The dense columns of season and trend make a place dear: halves of far too many would be too few.
            finest = _within(AHEAD * seconds, splines, supported, functools.partial(cost, known=True))[0]
        nested = _nested(finest, labels, space(finest), fits * systems / quick)
        if degree == DEGREE and any(nested[name][-1] < NEARLY * counts[name] for name in supported):
            nested = {}  # there is no room for the sums of a finer space
    widest = {name: labels[name].basis(ladder[-1]) for name, ladder in nested.items()}
    return of(counts), Budget(seconds, estimate, supported, nested, finest=widest, degree=degree)


def _within(
    seconds: float,
    labels: Mapping[str, Labels],
    supported: Mapping[str, int],
    cost: Callable[[Mapping[str, int]], float],
) -> tuple[dict[str, int], float]:
    """Return the most functions, over cells in proportion to those supported, whose cost is within the budget."""
    cells = {name: max(n - labels[name].more, 1) for name, n in supported.items()}

    def at(step: int) -> tuple[dict[str, int], float]:
        fewer = {n: labels[n].functions(max(round(k * STEP**step), 1)) for n, k in cells.items()}
        counts = dict(supported) if step == 0 else fewer
        return counts, cost(counts)

    # Costs fall in jumps where another solver takes over: steps down until one is within, then back by small ones.
    step, (counts, estimate) = 0, at(0)
    while estimate > seconds and max(counts.values()) > LEAST:
        step += STRIDE
        counts, estimate = at(step)
    for finer in range(step - STRIDE + 1, step):
        if finer > 0 and (other := at(finer))[1] <= seconds:
            return other
    return counts, estimate


# ---- spaces that lie in each other


def _nested(
    supported: Mapping[str, int], labels: Mapping[str, Labels], space: Space, sums: float
) -> dict[str, tuple[int, ...]]:
    """Return the numbers of functions of the finest space of small enough sums, and of those in it, ascending.

    `space` is that of all functions that labels support; there are so many `sums`.
    """
    others = math.prod(n for name, n in zip(space.names, space.shape, strict=True) if name not in supported)
    most = COSTS.default_sums / 8 / math.prod(space.offsets) / others / sums
    cells = {name: max(n - labels[name].more, 1) for name, n in supported.items()}
    step = 0
    while math.prod(cells.values()) > most and max(cells.values()) > 1:
        step += 1
        cells = {n: max(int((k - labels[n].more) * STEP**step), 1) for n, k in supported.items()}
    fewest = {n: FEW if known.degree == 1 else 0 for n, known in labels.items()}
    return {n: _ladder(k if k <= fewest[n] else _divisible(k), labels[n]) for n, k in cells.items()}


def _divisible(cells: int) -> int:
    """Return the number of cells, a little smaller at most, that the most of `DIVISORS` divide."""
    near = range(max(math.ceil(NEARLY * cells), 1), cells + 1)
    return max(near, key=lambda k: (sum(k % d == 0 for d in DIVISORS), k))


def _ladder(cells: int, known: Labels) -> tuple[int, ...]:
    """Return the numbers of functions over cells that are made of those, ascending."""
    least = known.degree * 2 + 1 if known.closed else 1  # on a circle, functions would meet twice
    if known.beside:  # longer ones would not see shorter waves
        least = int((known.extent[1] - known.extent[0]) / known.axis.duration(LONGEST_EVENT, "spacing"))
    wider = [cells // d for d in range(1, cells + 1) if cells % d == 0]
    return tuple(sorted(k + known.more for k in wider if k >= least or k == cells))


def _groups(labels: Mapping[str, Labels]) -> list[list[str]]:
    """Return the coordinates that share dimensions, in the order of the coordinates."""
    joined = join_overlapping({("dim", d) for d in x.dims} | {("name", n)} for n, x in labels.items())
    return [[n for n in labels if ("name", n) in members] for members in joined]


def _factors(groups: Sequence[Sequence[str]], labels: Mapping[str, Labels]) -> list[tuple[int, ...]]:
    """Return the coefficient axes of the factors of G under a mask that does not change with time, but is no product.

    Times that other coordinates share dimensions with have no factor of their own.
    """
    number = {name: j for j, name in enumerate(labels)}
    times = [group for group in groups if all(labels[name].direction == "T" for name in group)]
    others = sorted(number[name] for group in groups if group not in times for name in group)
    return [tuple(axes) for axes in (others, *([number[n] for n in group] for group in times)) if axes]


# ---- how many functions labels support


def _supported(
    group: Sequence[str],
    bases: Mapping[str, Basis],
    labels: Mapping[str, Labels],
    sizes: Mapping[Hashable, int],
) -> dict[str, int]:
    """Return the numbers of functions of the coordinates of a group that have B-splines."""
    splines = [name for name in group if isinstance(bases[name], BSpline) or labels[name].beside]
    cells = {n: labels[n].cells(different(labels[n].values, 2 * labels[n].most)) for n in splines}
    most = {n: min(labels[n].functions(cells[n]), labels[n].most) for n in splines}
    dims = {dim for name in group for dim in labels[name].dims}
    splines = [name for name in splines if not labels[name].beside]
    if not splines or len(group) == len(dims) == 1:
        return most
    # Scattered: cells for as many observations, and at as many positions, as there are; events have those of times.
    observations = math.prod(sizes[dim] for dim in dims)
    allowed = observations / max(labels[n].per_function for n in splines) ** len(dims)
    allowed /= math.prod((labels[n].beside or bases[n]).count for n in group if n not in splines)
    allowed = min(allowed, CELLS_PER_POSITION * _positions([labels[n] for n in splines], observations))
    widths = _widths({n: labels[n] for n in splines})

    def at(longest: int) -> dict[str, int]:
        """Return the cells where the longest coordinate has so many."""
        return {n: min(max(round(longest * widths[n]), 1), cells[n]) for n in splines}

    low, high = 1, 2 * COSTS.most_functions
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if math.prod(at(middle).values()) <= allowed else (low, middle)
    return {**most, **{n: min(labels[n].functions(k), most[n]) for n, k in at(low).items()}}


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


# ---- of sums and bases that are known


def spline_of(basis: Basis) -> BSpline | None:
    """The B-spline of a coordinate, which may be that of the events of a union."""
    terms = basis.terms if isinstance(basis, Union) else (basis,)
    return next((term for term in terms if isinstance(term, BSpline)), None)


def cells_of(spline: BSpline) -> int:
    """Its cells between knots."""
    return spline.count - (0 if spline.period else spline.degree)


def groups_of(sums: Sums) -> list[tuple[int, ...]]:
    """The coefficient axes of each factor of G; all together where it is a sum of products."""
    terms = sums.gram.terms
    if len(terms) == 1:
        return [factor.axes for factor in terms[0] if factor.axes]
    return [tuple(range(len(sums.window)))]


# ---- what cells leave


def decay(gain: float, up: float, loss: float, down: float) -> tuple[float, float]:
    """Return u and r where u (1 − r^up) is gained and u (r^-down − 1) is lost; unknown of 0 doublings."""
    gain, loss = max(gain, LITTLE), max(loss, LITTLE)
    if up and down:
        shares = np.linspace(LEAST_LEFT, MOST_LEFT, 81)
        share = float(shares[np.argmin(np.abs((1 - shares**up) / (shares**-down - 1) - gain / loss))])
    elif up or not down:
        share = USUAL
    else:  # what is lost is many times what was left, where cells are too large
        share = min(USUAL, (1 + loss / MOST_LEFT) ** (-1 / down))
    # Where no share tells both, the larger: what gains nothing with more cells may still lose with fewer.
    return max(gain / (1 - share**up) if up else 0.0, loss / (share ** -(down or 1.0) - 1)), share
