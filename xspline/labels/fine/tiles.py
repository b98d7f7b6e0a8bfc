"""The fine field of a grid that is not in memory: each tile of places reads the observations around it.

What all tiles share is small: the covariance, which boxes of the grid tell, and means over cells that are nine times
as wide as one observation needs, or more. A tile adds what lies around it, so that values do not depend on tiles.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import xarray as xr

from xspline import execution
from xspline.kriging import fitting, nearby
from xspline.kriging.nearby import DENSE, NEIGHBOURS, SANDWICHED, TAKEN, TOGETHER, Nearby
from xspline.kriging.places import Places
from xspline.kriging.pyramid import WIDER, Grid, Level, Pyramid, coarser, metric_of
from xspline.labels import evaluation
from xspline.labels.fine import in_memory
from xspline.labels.fine.field import Array, Fine
from xspline.labels.fine.in_memory import MOST_VALUES, on_grid, places_of, rounding, step_of
from xspline.labels.fit import Fit
from xspline.labels.read.coordinates import floats
from xspline.labels.read.observations import Observations
from xspline.labels.read.targets import Target, target_chunks
from xspline.labels.statistics import Statistics
from xspline.solve.errors import warn
from xspline.spaces import Space

#: Boxes of labels that tell the covariance, labels in each, and observations of each that are predicted from others.
BOXES, LABELS, INNER = 16, 4000, 64
#: Seconds of one core for each value, and bytes for each 3^2d values in d dimensions, of cells where the fit is called:
#: a store of 10⁸ values takes 73 CPU seconds and 1.8 GB beside imports (`python -m benchmarks large`).
SECONDS_PER_VALUE, BYTES_PER_CELL = 4e-7, 1500
#: Labels of a tile of places that are asked for at once.
TILE = 1_000_000


@dataclass(frozen=True, eq=False)
class Stored:
    """What a coarse field leaves of observations on a grid, in chunks."""

    residual: xr.DataArray  # of Dask
    # of Dask, with the same dimensions and chunks; None where all are equal
    weights: xr.DataArray | None
    labels: tuple[Array, ...]  # for each dimension of the data its labels as floats
    order: tuple[int, ...]  # for each coordinate of the space, the number of its dimension
    places: Places  # how coordinates become places

    @property
    def along(self) -> tuple[Array, ...]:
        """The labels of each coordinate of the space that lie in its domain."""
        return tuple(self.labels[axis][np.isfinite(self.labels[axis])] for axis in self.order)

    @property
    def steps(self) -> Array:
        """The usual distance of labels along each coordinate of the space."""
        return np.array([step_of(x) for x in self.along])

    def part(self, index: Sequence[Any]) -> tuple[Any, Any, tuple[Array, ...]]:
        """Return values, weights and labels of some entries along each dimension; the first two are lazy."""
        own = dict(zip(self.residual.dims, index, strict=True))
        weights = None if self.weights is None else self.weights.isel(own).data
        return (
            self.residual.isel(own).data,
            weights,
            tuple(x[i] for x, i in zip(self.labels, index, strict=True)),
        )

    def between(self, lower: Array, upper: Array) -> tuple[Any, ...]:
        """Return which entries along each dimension lie between some coordinates, around the globe where it is one."""
        index: list[Any] = [slice(None)] * len(self.labels)
        for j, axis in enumerate(self.order):
            x, low, high = self.labels[axis], lower[j], upper[j]
            if j == self.places.longitude and self.places.is_round:
                circle = 360.0 / self.places.degrees
                inside = np.mod(x - low, circle) <= high - low
            else:
                inside = (x >= low) & (x <= high)
            chosen = np.flatnonzero(inside)
            is_run = chosen.size and chosen[-1] - chosen[0] + 1 == chosen.size
            index[axis] = slice(int(chosen[0]), int(chosen[-1]) + 1) if is_run else chosen
        return tuple(index)

    def blocks(self) -> list[tuple[slice, ...]]:
        """Return the entries of each chunk."""
        chunks: Any = self.residual.data.chunks
        ends = [np.cumsum((0, *sizes)) for sizes in chunks]
        runs = [[slice(int(a), int(b)) for a, b in itertools.pairwise(e)] for e in ends]
        return list(itertools.product(*runs))


@dataclass(frozen=True, eq=False)
class Tiled(Fine):
    """The fine field of observations that are read where they are needed."""

    stored: Stored  # the observations
    far: tuple[Level, ...]  # coarse levels of all of them
    in_tiles: ClassVar[bool] = True

    @property
    def member(self) -> Nearby:
        """The covariance, with a sample of the observations."""
        return cast("Nearby", self.members[0])

    def to_arrays(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Raise ValueError: the observations stay where they are."""
        raise ValueError(
            "the fine field of data that are not in memory reads its observations where they are stored, and is in no "
            "file: write what it predicts, as in field.predict(stderr=True).to_zarr(path), or fit a single field, "
            "fit(..., fine=False), and write that"
        )

    def _apply(
        self, function: Any, space: Space, target: Target, batch: Mapping[Hashable, int], types: list[type]
    ) -> tuple[xr.DataArray, ...]:
        columns = [column.compute() for column in self._columns(space, target)]
        sizes = {dim: n for column in columns for dim, n in column.sizes.items()}
        dims, shape = tuple(sizes), tuple(sizes.values())
        own = _InTile(function, self.names, len(types))
        member = self.member
        few = None if member.sampled is None else member.sampled[:TOGETHER]
        slim = replace(
            member, pyramid=member.pyramid.emptied(), coordinates=member.coordinates[:0], sampled=few
        )
        shared = execution.once((slim, self.far))
        spread = [column.variable.set_dims(dims).transpose(*dims).data for column in columns]
        if target.chunks is None:
            out: Any = self._of_tiles(own, shared, np.broadcast_arrays(*spread))
        else:

            def arguments(box: tuple[slice, ...]) -> tuple[Any, ...]:
                parts = []
                for column in spread:
                    cut = tuple(slice(None) if n == 1 else s for n, s in zip(column.shape, box, strict=True))
                    parts.append(column[cut].copy())
                return self._arguments(shared, parts)

            out = execution.in_chunks(own, arguments, own.results, shape, target.chunk_sizes(dims, shape))
        alone = dict.fromkeys(batch, 1)
        parts = (xr.DataArray(out[k].astype(kind), dims=dims) for k, kind in enumerate(types))
        return tuple(part.expand_dims(alone, range(len(dims), len(dims) + len(alone))) for part in parts)

    def _of_tiles(self, own: _InTile, shared: Any, columns: Sequence[Array]) -> Array:
        """Return results in memory, [k, ...], of places by tiles of coordinates."""
        points = np.stack([column.ravel() for column in columns], axis=1)
        side = TILE ** (1 / len(columns))
        first = np.array([x.min() for x in self.stored.along])
        known = np.isfinite(points).all(axis=1)
        tile = np.full(points.shape, -1.0)
        tile[known] = np.floor((points[known] - first) / (side * self.stored.steps))
        _, number = np.unique(tile, axis=0, return_inverse=True)
        order = np.argsort(number.ravel(), kind="stable")
        groups = np.split(order, np.cumsum(np.bincount(number.ravel()))[:-1]) if order.size else []
        parts = execution.computed(own, [self._arguments(shared, list(points[group].T)) for group in groups])
        out = np.full((own.results, len(points)), np.nan)
        for group, part in zip(groups, parts, strict=True):
            out[:, group] = part
        return out.reshape(own.results, *columns[0].shape)

    def _arguments(self, shared: Any, columns: list[Array]) -> tuple[Any, ...]:
        """Return what a function in a tile is called with, for some places."""
        p, places = self.member.pyramid, self.stored.places
        known = [column[np.isfinite(column)] for column in columns]
        if not all(x.size for x in known):
            index: tuple[Any, ...] = (slice(0, 0),) * len(self.stored.labels)
        else:
            ranges = np.array([(x.min(), x.max()) for x in known])
            margin = _margin(p.grid, places)
            index = self.stored.between(*places.around(ranges[:, 0], ranges[:, 1], margin))
        return shared, columns, *self.stored.part(index), self.stored.order


@dataclass(frozen=True)
class _InTile:
    """A function of a fine field at the places of a tile."""

    function: Callable[..., Any]
    names: tuple[str, ...]
    results: int

    def __call__(
        self,
        shared: tuple[Nearby, tuple[Level, ...]],
        columns: list[Array],
        values: Array,
        weights: Array | None,
        labels: tuple[Array, ...],
        order: tuple[int, ...],
    ) -> Array:
        first, far = shared
        p, spread = first.pyramid, np.broadcast_arrays(*columns)
        known = np.all([np.isfinite(column) for column in spread], axis=0)
        if not known.any():
            return np.full((self.results, *known.shape), np.nan)
        at = first.places(np.stack([column[known] for column in spread], axis=1))
        observations, _ = _observations(first.places, values, weights, labels, order)
        observations = observations.some(observations.around(at, _margin(p.grid, first.places)))
        second = far[0].some(far[0].around(at, WIDER * _margin(p.grid, first.places)))
        levels = [observations, observations.grouped(p.grid, 1), second, *far[1:]]
        member = replace(first, pyramid=Pyramid.of(levels, p.grid, p.reach, p.spread))
        out = self.function(Fine((member,), self.names), *columns, np.zeros((), int))
        return np.stack(out if isinstance(out, tuple) else (out,)).astype(float)


def _margin(grid: Grid, places: Places) -> Array:
    """Return how far the observations lie that a place may have as neighbours, along each axis of the places.

    Beside the reach that is a block of places, and the parts of cells that lie beyond.
    """
    d = places.coordinates
    return np.asarray((nearby.reach_of(d) + 2 * WIDER + nearby.block_width(d)) * grid.metric)


def _observations(
    places: Places, values: Array, weights: Array | None, labels: Sequence[Array], order: Sequence[int]
) -> tuple[Level, Array]:
    """Return the observations among values [n1, ...] as items, and their coordinates [n, d]."""
    used = np.isfinite(values)
    if weights is not None:
        used &= weights > 0
    index = np.nonzero(used)
    points = np.stack([labels[axis][index[axis]] for axis in order], axis=1)
    own = np.ones(len(points)) if weights is None else np.asarray(weights[index], np.float64)
    return Level.of(places(points), np.asarray(values[index], np.float64), own), points


def _cells(
    grid: Grid, places: Places, values: Array, weights: Array | None, labels: Any, order: Any
) -> Level:
    """Return the means over cells of the second level of a chunk."""
    return _observations(places, values, weights, labels, order)[0].grouped(grid, 2)


def fine_costs(observed: Observations, windows: int) -> tuple[float, int]:
    """Return the seconds of one core, and the bytes of memory, that the fine field of so many values takes about."""
    if not is_tiled(observed):
        return in_memory.fine_costs(observed, windows)
    count, number = int(observed.data.size), observed.data.ndim - len(observed.arrangement.batch)
    seconds = count * SECONDS_PER_VALUE + windows / in_memory.WINDOWS_PER_SECOND / 2
    # A label is taken to be as wide as one observation needs.
    margin = nearby.reach_of(number) + 2 * WIDER + nearby.block_width(number)
    boxes = BOXES * (LABELS ** (1 / number) + 2 * margin) ** number
    return seconds, int(in_memory.BYTES_PER_VALUE * boxes + BYTES_PER_CELL * count / WIDER ** (2 * number))


def is_large(observed: Observations) -> bool:
    """Return whether there are more values than a fine field keeps in memory."""
    return observed.data.size > MOST_VALUES


def is_tiled(observed: Observations) -> bool:
    """Return whether that is so of a grid of all dimensions, where boxes of labels are boxes of places.

    A dimension of one label, as of a level at the surface, is none of these.
    """
    arrangement = observed.arrangement
    alone = all(observed.data.sizes[dim] == 1 for dim in arrangement.batch)
    dims = [dim for span in arrangement.spans.values() for dim in span]
    is_grid = len(set(dims)) == len(dims) == len(arrangement.spans)
    return is_large(observed) and is_grid and alone and not arrangement.pooled


def as_one(observed: Observations, statistics: Statistics[Any], coefficients: Array) -> float:
    """Return how many observations, of what coefficients leave of them, vary as one.

    Of a grid out of memory, boxes of labels at random tell: the variance of sums over these, beside that of sums of as
    many independent observations.
    """
    if not is_tiled(observed):
        return in_memory.as_one(observed, statistics, coefficients)
    stored = _stored(observed, Fit(statistics, observed.name, coefficients, None))
    near = _sampled(stored, observed.data.squeeze(observed.arrangement.batch))
    sums = np.array([items.counts @ items.values for items, _, _ in near])
    own = np.array([items.counts @ items.values**2 for items, _, _ in near])
    return max(float(sums @ sums / own.sum()), 1.0) if own.sum() else 1.0


def tiled_of(observed: Observations, fit: Fit, windows: int) -> Fine:
    """Return the fine field of what a fit leaves of observations for which `is_tiled` is true.

    The data are read twice: some boxes, and all for the coarse levels.
    """
    stored = _stored(observed, fit)
    near = _sampled(stored, observed.data.squeeze(observed.arrangement.batch))
    points = [points for _, points, _ in near]
    known, first = np.unique(np.concatenate(points), axis=0, return_index=True)  # boxes may overlap
    if len(known) <= DENSE:
        return _none(observed, fit)
    values = np.concatenate([items.values for items, _, _ in near])[first]
    places = stored.places
    ends = np.meshgrid(*((x.min(), (x.min() + x.max()) / 2, x.max()) for x in stored.along))
    corners = places(np.stack([x.ravel() for x in ends], axis=1))
    metric = metric_of(places(known), values, places.links, is_round=places.is_round, range_of=corners)
    grid = Grid(metric, places(np.array([[x.min() for x in stored.along]]))[0])
    means = functools.partial(_cells, grid, places)
    calls = [(*stored.part(own), stored.order) for own in stored.blocks()]
    # Few cells lie in two chunks: workers that merge them hold all cells several times, and gain nothing.
    second = Level.joined(execution.computed(means, calls)).grouped(grid, 2)
    far = coarser(grid, second, len(NEIGHBOURS), SANDWICHED)
    if not far:
        return _none(observed, fit)
    least = rounding(np.concatenate([raw for _, _, raw in near]))
    member = _fitted_to_sample(stored, grid, far, points, least, windows)
    return Tiled((member,), fit.space.names, stored, tuple(far))


def _none(observed: Observations, fit: Fit) -> Fine:
    """Return no fine field, with a warning."""
    warn(
        f"{observed.name} has no fine field: boxes of its {observed.data.size:,} labels hold too few observations to "
        "tell one; drop labels without observations, or stack these along one dimension and drop what is missing"
    )
    return Fine((None,), fit.space.names)


def _stored(observed: Observations, fit: Fit) -> Stored:
    """Return what a fit leaves of its observations, lazily."""
    data, space, arrangement = observed.data, fit.space, observed.arrangement
    if data.chunks is None:
        data = data.chunk(target_chunks(data) or "auto")
    coordinates = {name: c.compute() for name, c in observed.coordinates.items()}
    chunks = dict(target_chunks(data) or {})
    target = Target(coordinates, xr.Dataset(), chunks, False, None)
    coarse = evaluation.evaluate(fit, target, {}, None)
    bare = data.drop_vars(data.coords).astype(np.float64)
    residual = (bare - coarse.drop_vars(coarse.coords)).transpose(*data.dims)
    weights = None
    if observed.weights is not None:
        own = observed.weights.drop_vars(observed.weights.coords)
        mean = float((fit.total.weight / np.maximum(fit.total.count, 1)).ravel()[0])
        weights = (xr.ones_like(residual) * own / mean).transpose(*data.dims).chunk(chunks)
        weights = weights.squeeze(arrangement.batch)
    residual = residual.squeeze(arrangement.batch)
    spans = arrangement.spans
    labels, order = [np.zeros(0)] * residual.ndim, []
    for name in space.names:
        axis = residual.dims.index(spans[name][0])
        x = space.within(floats(coordinates[name], name, space, spans[name], data.sizes), name)
        labels[axis] = np.asarray(x)
        order.append(axis)
    stored = Stored(residual, weights, tuple(labels), tuple(order), places_of(space))
    along = [coordinates[name] for name in space.names]
    places = on_grid(_with_tubes(stored), along, stored.steps, [True] * len(along))
    return replace(stored, places=places)


def _with_tubes(stored: Stored) -> Places:
    """Return the places of a grid, with tubes if values at a pole follow the longitude."""
    places = stored.places
    if places.latitude is None or places.longitude is None:
        return places
    index: list[Any] = [slice(n // 2, n // 2 + 1) for n in stored.residual.shape]
    north_south = stored.order[places.latitude]
    latitudes = stored.labels[north_south]
    nearest = np.argsort(-np.abs(latitudes))
    pole = latitudes[nearest] * latitudes[nearest[0]] > 0
    index[north_south] = sorted(nearest[pole][:2].tolist())
    index[stored.order[places.longitude]] = slice(None)
    ((values, weights, labels),) = execution.computed(_as_they_are, [stored.part(index)])
    items, points = _observations(places, values, weights, labels, stored.order)
    return places.with_tubes(points, items.values)


def _sampled(stored: Stored, data: xr.DataArray) -> list[tuple[Level, Array, Array]]:
    """Return the observations of boxes of labels at random: as items, their coordinates, and their values."""
    rng = np.random.default_rng(0)
    shape = stored.residual.shape
    side = round(LABELS ** (1 / len(shape)))
    starts = rng.integers(0, np.maximum(np.array(shape) - side, 1), (3 * BOXES, len(shape)))
    index = [tuple(slice(int(a), int(a) + side) for a in start) for start in starts]
    lazy = [
        (*stored.part(own), data.isel(dict(zip(data.dims, own, strict=True))).chunk().data) for own in index
    ]
    out = []
    for values, weights, labels, raw in execution.computed(_as_they_are, lazy):
        items, points = _observations(stored.places, values, weights, labels, stored.order)
        if len(points):
            out.append((items, points, raw[np.isfinite(raw)]))
    return out


def _as_they_are(*parts: Any) -> tuple[Any, ...]:
    return parts


class _Sample(NamedTuple):
    """Observations around some of a box, and cells of the first level; those that have all neighbours come first."""

    observations: Level
    coordinates: Array
    inner: int
    first: Level


def _sample(
    grid: Grid,
    places: Places,
    order: Sequence[int],
    values: Array,
    weights: Array | None,
    labels: Sequence[Array],
    lower: Array,
    upper: Array,
) -> _Sample:
    """Return what tells of some observations between two corners, given all that lie around these."""
    observations, points = _observations(places, values, weights, labels, order)
    inside = np.flatnonzero(np.all((points >= lower) & (points <= upper), axis=1))
    inner = np.random.default_rng(0).permutation(inside)[:INNER]
    first = observations.grouped(grid, 1)
    pyramid = Pyramid.of([observations, first], grid, nearby.reach_of(places.coordinates))
    marked = fitting.in_neighbourhoods(pyramid, inner)
    near = marked[: len(points)].copy()
    near[inner] = False
    kept = np.concatenate([inner, np.flatnonzero(near)])
    return _Sample(observations.some(kept), points[kept], inner.size, first.some(marked[len(points) :]))


def _fitted_to_sample(
    stored: Stored,
    grid: Grid,
    far: Sequence[Level],
    points: Sequence[Array],
    least_noise: float,
    windows: int,
) -> Nearby:
    """Return the covariance, of boxes around observations at random with all neighbours that these may have."""
    rng, places = np.random.default_rng(0), stored.places
    margin = _margin(grid, places)
    half = stored.steps * LABELS ** (1 / len(stored.labels)) / 2
    chosen = rng.permutation(len(points))[:BOXES]
    ranges = [(centre - half, centre + half) for centre in (rng.choice(points[i]) for i in chosen)]
    calls = [(*stored.part(stored.between(*places.around(*own, margin))), *own) for own in ranges]
    samples = execution.computed(functools.partial(_sample, grid, places, stored.order), calls)
    inner = Level.joined([s.observations.some(slice(s.inner)) for s in samples])
    outer = Level.joined([s.observations.some(slice(s.inner, None)) for s in samples])
    parts = [s.coordinates[: s.inner] for s in samples] + [s.coordinates[s.inner :] for s in samples]
    coordinates = np.concatenate(parts)
    once = np.sort(np.unique(coordinates, axis=0, return_index=True)[1])  # boxes may overlap
    first = Level.joined([s.first for s in samples])
    # Means over one cell differ by rounding.
    first = first.some(np.unique(grid.cells(first.places, 1), return_index=True)[1])
    reach = nearby.reach_of(places.coordinates)
    pyramid = Pyramid.of([Level.joined([inner, outer]).some(once), first, *far], grid, reach)
    sampled = np.stack([rng.choice(x, TAKEN) for x in stored.along], axis=1)
    number = int((once < inner.values.size).sum())
    return fitting.fit_sample(
        pyramid, coordinates[once], number, places, stored.steps, least_noise, windows, sampled
    )
