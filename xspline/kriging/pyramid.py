"""Observations, and their means in ever larger cells, among which each place finds its neighbours.

Near a place its neighbours are observations, further away means over cells three times as wide, and so on: some
hundred of them tell of a place what all observations around it tell, in a gap of any size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from xspline.threads import threads

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Near = tuple[Index, Index]  # the neighbours of some places [m, n], and how many of each there are [m]

#: How much wider the cells of a level are than those of the one below.
WIDER = 3
#: Cells of the coarsest level, at least.
FEWEST = 30
#: Items that are looked at for each neighbour in cells, as those that overlap nearer ones are passed over.
LOOKED_AT = 3
#: Distance, in widths, that keeps a cell away from nearer neighbours.
APART = 0.4
#: Items within a distance of one width, at most, on the surfaces that data lie on.
PASSED_OVER = 8
#: Observations that the widths of cells are found from, near ones of each, and how often.
SAMPLED, AROUND, ROUNDS = 3000, 13, 5
#: Parts of a factor of two that widths are rounded to.
PARTS = 8
#: The place of the corner of a cell beside the first observation, in widths, so that labels are not on edges.
CORNER = 0.37
#: Change along the mean distance of a pair, over the mean change, below which an axis has no slope of its own.
UNSEEN = 1e-3
#: The least change along an axis, as a share of the largest.
LEAST_SLOPE = 0.01


class Level(NamedTuple):
    """Items of one level: observations, or their means over cells."""

    places: Array  # [n, D]
    values: Array  # [n], means
    counts: Array  # [n], sums of the weights in the means
    scatter: Array  # [n, D], variances of the places within each; zero for observations

    @classmethod
    def of(cls, places: Array, values: Array, weights: Array) -> Level:
        """Return observations as items."""
        return cls(places, values, weights, np.broadcast_to(0.0, places.shape))

    @classmethod
    def joined(cls, parts: Sequence[Level]) -> Level:
        """Return the items of several parts, one behind the other."""
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    @property
    def spread(self) -> Array:
        """The mean variance of the places in an item along each axis, [D]."""
        return np.asarray(self.counts @ self.scatter / self.counts.sum())

    def some(self, which: Any) -> Level:
        """Return some of the items."""
        return Level(*(column[which] for column in self))

    def around(self, at: Array, margin: Array) -> Array:
        """Return which items are in the box around some places, widened by a margin."""
        inside = (self.places >= at.min(axis=0) - margin) & (self.places <= at.max(axis=0) + margin)
        return np.asarray(inside.all(axis=1))

    def grouped(self, grid: Grid, level: float) -> Level:
        """Return the means over the cells of a level.

        Those of parts, joined and grouped once more, are the means over all, as a mean lies in its own cell.
        """
        own = grid.cells(self.places, level)
        total = np.bincount(own, self.counts).astype(np.float64)

        def mean(column: Array) -> Array:
            return np.bincount(own, self.counts * column) / total

        places = np.stack([mean(x) for x in self.places.T], axis=1)
        scatter = self.scatter + (self.places - places[own]) ** 2
        return Level(places, mean(self.values), total, np.stack([mean(x) for x in scatter.T], axis=1))


class Grid(NamedTuple):
    """The cells of all levels."""

    metric: Array  # [D], widths of a cell that holds about one observation
    origin: Array  # [D], a place that lies in the first cell

    def cells(self, places: Array, level: float) -> Index:
        """Return the number of the cell of a level that each place [n, D] lies in."""
        index = np.floor((places - self.origin) / (self.metric * float(WIDER) ** level) + CORNER)
        return _numbered(index.astype(np.int64))

    def in_widths(self, places: Array) -> Array:
        """Return places [n, D] in widths, each moved a little, so that few are as far as others from any place.

        On a grid many items are as far as each other, and rounding errors would choose among them: in feet, predictions
        of 40 × 40 values differed by 0.04 of an error bar from those in metres. So places are rounded to a millionth of
        a width, a power of two since widths are, and moved by what the golden ratio makes of that number, up to 1e-4.
        """
        steps = np.rint((places - self.origin) / self.metric * 2.0**20)
        return np.asarray(steps / 2.0**20 + 1e-4 * np.modf(steps * (math.sqrt(5) - 1) / 2)[0])


def coarser(grid: Grid, second: Level, number: int, most: int) -> list[Level]:
    """Return the levels from the second on, which the others are made of, as long as they have many cells.

    There are so many levels with the observations, and more as long as the last has more than `most` cells.
    """
    levels: list[Level] = []
    above = second
    while above.values.size >= FEWEST:
        levels.append(above)
        if len(levels) + 2 >= number and above.values.size <= most:
            break
        above = second.grouped(grid, len(levels) + 2)
    return levels


@dataclass(frozen=True, eq=False)
class Pyramid:
    """Items: observations and means of them."""

    places: Array  # [n, D]
    values: Array  # [n], means
    counts: Array  # [n], sums of the weights in the means
    levels: Index  # [n], 0 for observations, which come first
    starts: Index  # [L + 1], where the items of each level begin
    spread: Array  # [L, D], variance of the places in a cell of each level
    grid: Grid  # the cells. Neighbours are near in units of their widths.
    # widths within which observations and cells of the first level are neighbours; those of the second are
    # within three times as many, and so on but for the last
    reach: float
    trees: list[Any]  # of each level

    @classmethod
    def of(
        cls, levels: Sequence[Level], grid: Grid, reach: float = math.inf, spread: Array | None = None
    ) -> Pyramid:
        """Return the pyramid of levels, the observations first; its spread is theirs, or that of a larger one."""
        sizes = [level.values.size for level in levels]
        return cls(
            np.ascontiguousarray(np.concatenate([level.places for level in levels])),
            np.concatenate([level.values for level in levels]),
            np.concatenate([level.counts for level in levels]),
            np.repeat(np.arange(len(levels)), sizes),
            np.concatenate([[0], np.cumsum(sizes)]),
            np.stack([level.spread for level in levels]) if spread is None else spread,
            grid,
            reach,
            [cKDTree(grid.in_widths(level.places)) for level in levels],
        )

    @property
    def metric(self) -> Array:
        """Widths of a cell that holds about one observation."""
        return self.grid.metric

    def emptied(self) -> Pyramid:
        """Return one without items, of the same cells."""
        return replace(
            self,
            places=self.places[:0],
            values=self.values[:0],
            counts=self.counts[:0],
            levels=self.levels[:0],
            trees=[],
        )

    @property
    def count(self) -> int:
        """How many observations there are."""
        return int(self.starts[1])

    def cell_of_observations(self, level: int) -> Index:
        """Return the number of the item of a level that each observation is counted in."""
        own = self.grid.cells(self.places[: self.count], min(level, 2))
        if level <= 2:
            return own
        second = slice(self.starts[2], self.starts[3])
        return np.asarray(self.grid.cells(self.places[second], level)[own])

    def neighbours(self, centres: Array, wanted: Sequence[int], beyond: float = -1.0) -> Near:
        """Return the items near each of some places [m, D], and how many there are [m].

        `wanted` says how many of each level. Those of a level lie beyond those of the level below, so that no
        observation counts twice; those nearer than `beyond`, in widths of a cell of one observation, are left out. Of
        each row of the items [m, n] only as many are meant as there are.
        """
        from xspline.kriging import compiled

        scaled = np.ascontiguousarray(self.grid.in_widths(centres))
        reach, filled = np.full(len(centres), beyond), np.zeros(len(centres), np.int64)
        chosen = np.zeros((len(centres), sum(wanted)), np.int64)
        for level, number in enumerate(wanted[: len(self.trees)]):
            size = self.trees[level].n
            if size == 0:
                continue
            passed_over = int(PASSED_OVER * max(beyond, 0.0) ** 2 / float(WIDER) ** (2 * level))
            looked_at = min(size, number * (LOOKED_AT if level else 1) + passed_over)
            is_last = level + 1 == len(wanted)
            most = math.inf if is_last else self.reach * float(WIDER) ** max(level - 1, 0)
            distance, index = self.trees[level].query(
                scaled, np.arange(1, looked_at + 1), distance_upper_bound=most, workers=threads()
            )
            clear = APART * float(WIDER) ** level if level else 0.0
            start, index = int(self.starts[level]), index.astype(np.int64)
            compiled.choose(distance, index, clear, number, start, reach, chosen, filled)
        return chosen, filled

    def lists(self, centres: Array, wanted: Sequence[int]) -> list[Index]:
        """Return the neighbours of each place as a list of their numbers."""
        chosen, filled = self.neighbours(centres, wanted)
        return [row[:count] for row, count in zip(chosen, filled, strict=True)]


def _numbered(index: Index) -> Index:
    """Return for each row of integers [n, D] the number of its value, counted from 0."""
    if index.size == 0:
        return np.zeros(0, np.int64)
    lowest = index.min(axis=0)
    extent = [int(n) for n in index.max(axis=0) - lowest + 1]
    if math.prod(extent) < np.iinfo(np.int64).max:
        code = np.ravel_multi_index(tuple((index - lowest).T), extent)
        return np.asarray(np.unique(code, return_inverse=True)[1].ravel(), np.int64)
    return np.asarray(np.unique(index, axis=0, return_inverse=True)[1].ravel(), np.int64)


def _tree(places: Array) -> cKDTree:
    """Return a tree for a few queries; with SciPy's leaves of 10 places it takes half as long again to build."""
    return cKDTree(places, leafsize=80, compact_nodes=False, balanced_tree=False)


def metric_of(
    places: Array,
    values: Array,
    links: Index,
    *,
    is_round: bool,
    limited: bool = True,
    range_of: Array | None = None,
) -> Array:
    """Return widths [D] over which values change alike, of a cell that holds about one observation.

    Squared differences of near values are fitted by a plane in the distances along each axis, whose slopes say how
    far one has to go along each for the same change. What is near follows from the answer, so this is repeated; each
    axis in turn is taken for a shorter one, or pairs along an axis of large changes would never be near, and if
    `limited` no width is far below the distance of different places along it. Axes with one number in `links` [D] have
    one width. Where the first two axes span a sphere (`is_round`), the third is its axis and has no larger width, or
    places on both hemispheres would be near each other. Of a sample, `range_of` [n, D] are places with the range of
    all, with which widths go.
    """
    range_of = places if range_of is None else range_of
    sampled = np.random.default_rng(0).permutation(len(places))[:SAMPLED]
    axes = [np.flatnonzero(links == i) for i in range(int(links.max()) + 1)]
    unit = np.array([np.sqrt(np.sum(np.var(places[:, own], axis=0))) for own in axes])
    widths = unit = np.where(unit > 0, unit, max(unit.max(), 1.0))
    extents = np.array([np.ptp(range_of[:, own], axis=0).max() for own in axes])
    extents = np.where(extents > 0, extents, 1.0)
    # On a grid many places are as near as each other, and rounding errors would choose among them.
    moved = np.random.default_rng(0).uniform(-1e-8, 1e-8, places.shape)
    for _ in range(ROUNDS):
        far, change = [], []
        for i in range(len(axes)):
            scaled = places / np.where(np.arange(len(axes)) == i, WIDER**2 * widths, widths)[links]
            near = _tree(scaled + moved).query(scaled[sampled], min(AROUND, len(places)))[1][:, 1:]
            steps = places[sampled, None] - places[near]
            far.append(np.stack([np.sqrt(np.sum(steps[..., own] ** 2, axis=-1)) for own in axes], axis=-1))
            change.append((values[sampled, None] - values[near]) ** 2)
        slopes = _slopes(np.concatenate(far, axis=1) / widths, np.concatenate(change, axis=1), widths / unit)
        before, widths = widths, _rounded(widths / np.sqrt(slopes), extents)
        if is_round:
            widths[1] = min(widths[:2])
        if np.array_equal(widths, before):
            break
    scaled = places / widths[links]
    apart = np.median(_tree(scaled).query(scaled[sampled], [min(2, len(places))])[0])
    if apart > 1e-8:
        # Different places are apart by two widths of the next level at most. Of stations that differ by offsets windows
        # would be those of one, and withheld ones covered in 83 % in place of 88 (`benchmarks coverage`; of other draws
        # in 87 %, with 3, 6, 9, 24 widths in 91, 93, 91, 86 %).
        least = [
            _distance(places[:, own]) / (2 * WIDER) if limited and len(axes) > 1 else 0.0 for own in axes
        ]
        widths = np.maximum(widths * apart, least)
        if is_round:
            widths[1] = min(widths[:2])
        return _rounded(widths, extents)[links]
    different, place = np.unique(places, axis=0, return_inverse=True)
    if len(different) == len(places):
        return _rounded(widths, extents)[links]  # records twice, rounded to float32
    means = np.bincount(place.ravel(), values) / np.bincount(place.ravel())
    return metric_of(different, means, links, is_round=is_round, limited=limited, range_of=range_of)


def _distance(places: Array) -> float:
    """Return the median distance of different places [n, d] from the nearest other one; 0 where all are equal."""
    code = (places * np.sqrt(np.arange(2.0, 2.0 + places.shape[1]))).sum(axis=1)
    different = places[np.unique(code, return_index=True)[1]]
    some = np.random.default_rng(0).permutation(len(different))[:SAMPLED]
    return float(np.median(_tree(different).query(different[some], [min(2, len(different))])[0]))


def _rounded(widths: Array, extents: Array) -> Array:
    """Return widths as powers of two of extents, so that rounding errors of values change no neighbour and no cell.

    Extents are the same in any order, and go with the units of coordinates.
    """
    return np.asarray(extents * 2.0 ** (np.round(PARTS * np.log2(widths / extents)) / PARTS))


def _slopes(far: Array, change: Array, widths: Array) -> Array:
    """Return how much values change per distance along each axis, of mean logarithm 0, none far below the largest.

    Of pairs of some observations with others there are the distances [n, m, D], in `widths` [D], and the changes
    [n, m], which count as shares of all changes of an observation: where fields are lively they would decide alone.
    Few values tell little of an axis: its width is that of the extents but for what two standard errors exclude.
    """
    own = change.mean(axis=1)
    if not own.any():
        return np.ones_like(widths)
    far, change = far[own > 0], change[own > 0] / own[own > 0, None]
    slopes, errors = _plane(far, change)
    alike = widths * _plane((far * widths).sum(axis=-1, keepdims=True), change)[0]
    slopes = np.clip(alike, slopes - 2 * errors, slopes + 2 * errors)
    # Where values change by noise alone, no axis has a slope that rounding does not decide.
    slopes = np.maximum(slopes, max(LEAST_SLOPE * slopes.max(), UNSEEN / max(float(far.mean()), 1e-300)))
    return np.asarray(slopes / np.exp(np.mean(np.log(slopes))))


def _plane(far: Array, change: Array) -> tuple[Array, Array]:
    """Return the slopes of changes over distances, and their standard errors.

    Far pairs have larger changes, which vary more: the weight of a pair is the inverse of its mean change. Pairs of
    one observation have its noise in common, so that they count together in the errors.
    """
    from scipy.optimize import nnls  # not above: it makes the import of the package longer

    count, near, axes = far.shape
    rows, change = np.column_stack([np.ones(change.size), far.reshape(-1, axes)]), change.ravel()
    fitted = np.ones_like(change)
    for _ in range(2):
        weights = 1 / np.sqrt(np.maximum(fitted, UNSEEN))
        fitted = rows @ nnls(rows * weights[:, None], change * weights)[0]
    weights = 1 / np.maximum(fitted, UNSEEN)
    inverse = np.linalg.pinv((rows * weights[:, None]).T @ rows, hermitian=True)
    plane = inverse @ (rows.T @ (weights * change))
    scores = rows * (weights * (change - rows @ plane))[:, None]
    scores = scores.reshape(count, near, -1).sum(axis=1)
    return plane[1:], np.sqrt(np.diag(inverse @ (scores.T @ scores) @ inverse))[1:]
