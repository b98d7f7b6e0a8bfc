"""A field that neighbours tell: fitted to values at places, and predicted at any others, with errors."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import special
from scipy.spatial import cKDTree

from xspline.kriging.likelihood import UNIFORM, Window, Windows, local_scales, solved_window
from xspline.kriging.model import Model
from xspline.kriging.places import Places
from xspline.kriging.pyramid import CORNER, FEWEST, WIDER, Array, Grid, Index, Level, Near, Pyramid, coarser
from xspline.threads import ranges, run

#: Observations that are one window, and neighbours of every place: of more, each place has its own neighbours.
DENSE = 1000
#: Neighbours of a place: observations, and cells of each level.
NEIGHBOURS = (100, 48, 40, 32)
#: Observations around a place whose errors tell its scale, where all are one window. Interval scores of withheld GPS
#: velocities are .57 of those with one scale; with 16, 36, 72 of full weight .59, .60, .67.
SCALED = NEIGHBOURS[1]
#: From the middle of a block of places, which share neighbours, to its corners, over how far the nearest observations
#: reach on a complete grid: errors withheld from the contest's grid grow by .1 % from blocks of one observation.
SHARED = 0.6
#: How far observations and the smallest cells are neighbours where not all are in memory, over how far they reach on a
#: complete grid: in the gaps of the contest the error is 1.55, 1.51, 1.46, 1.45 with 2.5, 3, 4, 5, and 1.45 without.
REACHED = 4.0
#: Cells in which the errors of coarse terms are added up, of as many functions: twice as many at most where these are
#: fewer, and half as many at least where they are more. With 480 functions trends have .8 of their error, with twice
#: as many cells .9 for 2 s more.
SANDWICHED = 2500
#: Observations that the means of functions over these are taken from, at most.
TAKEN = 20_000
#: Independent errors beside as many as were fitted, at least.
FEWEST_INDEPENDENT = 3
#: Blocks that are predicted at a time.
TOGETHER = 128
NORMAL = float(special.ndtri(0.975))


class Predicted(NamedTuple):
    """What neighbours say of values, or of derivatives."""

    mean: Array  # [n]
    variance: Array  # [n], such that ±1.96 roots of it are an interval of 95 %
    trust: Array  # [n], the weights of the observations, added up: about 1 among them and 0 far away
    relative_noise: Array  # [n], variance of an observation there about the field, over that of all
    new_noise: Array  # [n], the same, as withheld observations have it


class Combined(NamedTuple):
    """Predictions over all models, with the share of the variance that is left, and the local scale."""

    mean: Array
    variance: Array
    left: Array
    trust: Array
    scale: Array
    relative: Array | float = 1.0  # that over the scale of all


class Calibration(NamedTuple):
    """By what errors are longer than the model says, from neighbours that vary little to those that vary much.

    They are those of new observations: the field has its share, noise the rest, and the field all where none is left.
    """

    left: Array  # [K, M], logarithms of the share of a variance that is left, ascending
    scales: Array  # [K, M], logarithms of local scales, ascending with K
    longer: Array  # [K, M], logarithms of the factors of errors
    shares: Array  # [K, M], of the variance of a new observation that is the field's

    def __call__(self, left: Array, scale: Array) -> tuple[Array, Array]:
        """Return the factors of errors of the field and of noise, given what is left of the variance, and the scale."""
        longer, share = (self._between(x, left, scale) for x in (self.longer, self.shares))
        beyond = np.expm1(2 * longer)
        field = np.minimum(1 + beyond * share, (1 + beyond) / share)
        return np.sqrt(field), np.sqrt(np.maximum(1 + beyond * (1 + share), 0.0))

    def _between(self, numbers: Array, left: Array, scale: Array) -> Array:
        at, own = np.log(np.maximum(left, 1e-12)), np.log(np.maximum(scale, np.finfo(float).tiny))
        columns = zip(self.left, self.scales, numbers, strict=True)
        knots = [(np.interp(at, x, s), np.interp(at, x, y)) for x, s, y in columns]
        out, step = knots[0][1], np.ones(())
        for (low, less), (high, more) in itertools.pairwise(knots):
            step = np.clip((own - low) / np.maximum(high - low, 1e-9), 0, step)  # scales may cross
            out = out + step * (more - less)
        return np.asarray(out)


#: Errors are as the model says.
MODELLED = Calibration(*np.array([[[0.0]], [[0.0]], [[0.0]], [[1.0]]]))


@dataclass(frozen=True, eq=False)
class Nearby:
    """A field of one variable, of mean zero, by what its neighbours tell."""

    places: Places  # how coordinates become places
    pyramid: Pyramid  # the observations
    models: tuple[tuple[float, Model], ...]  # covariances with weights that add up to 1, up to a local scale
    scale: float  # local scales vary like scale · freedom/χ²(freedom), before neighbours are seen
    freedom: float
    usual_scale: float  # mean of the local scales over the data
    coordinates: Array  # [n, d], of the observations
    rows: Array | None  # [n, p], what was fitted before, where all observations are neighbours of every place
    steps: Array  # [d], distance between labels along each coordinate
    calibration: Calibration = MODELLED
    # the mean leverage of observations, and the mean weighted square of what the field leaves of them; NaN where all
    # observations are neighbours, which tell both themselves
    usual_residuals: tuple[float, float] = (math.nan, math.nan)
    sampled: Array | None = None  # [m, d], some labels at random, where these observations are not all
    # how many observations, which come first, have all of their neighbours among them; None where all have
    inner: int | None = None
    # how many observations of a place each of these is the mean of, on average, and their mean weighted square about it
    joined: tuple[float, float] = (1.0, 0.0)

    @property
    def is_dense(self) -> bool:
        """Whether all observations are neighbours of every place."""
        return self.pyramid.count <= DENSE and math.isinf(self.pyramid.reach)

    @property
    def likeliest(self) -> Model:
        """The covariance of the largest weight."""
        return max(self.models, key=lambda weighted: weighted[0])[1]

    @functools.cached_property
    def _by_model(self) -> tuple[Array, Array, Array, Array, Array]:
        """What each model says of all observations, if these are one window, as `Windows.first`."""
        window = Windows(self.pyramid.spread, [self.window])
        columns = zip(*(window.first(model) for _, model in self.models), strict=True)
        scale, leverage, square, withheld, missed = (np.array(column) for column in columns)
        return scale, leverage, square, withheld, missed

    @property
    def mean_scales(self) -> tuple[float, ...]:
        """The local scale of each model, on average over the data."""
        if not self.is_dense:
            return (self.usual_scale,) * len(self.models)
        return tuple(float(scale) for scale in self._by_model[0])

    @property
    def residuals(self) -> tuple[float, float]:
        """The mean leverage of observations, and the mean weighted square of what the field leaves of them."""
        leverage, square = self.usual_residuals
        if self.is_dense:
            weights = [weight for weight, _ in self.models]
            leverage, square = (float(weights @ column) for column in self._by_model[1:3])
        number, within = self.joined
        return leverage / number, square / number + within

    @property
    def window(self) -> Window:
        """All observations as one window."""
        p, n = self.pyramid, self.pyramid.count
        return Window(p.places[:n], p.levels[:n], p.counts[:n], p.values[:n], self.rows)

    def terms(self, functions: Array, held: Array, coefficients: Array) -> tuple[Array, Array] | None:
        """Return by how much generalised least squares change coefficients [P] of functions [n, P]; their covariance.

        Observations are one window, and what `coefficients` leave of data; `held` [P, P] is their precision before
        data. Their sum with this field, of what the changed ones leave, is the best linear prediction (universal
        kriging). None where the covariance of observations is not positive definite to rounding.
        """
        window, change, covariance = self.window, np.zeros_like(coefficients), np.zeros_like(held)
        for (weight, model), scale in zip(self.models, self.mean_scales, strict=True):
            solved = solved_window(window, model.between(self.pyramid.spread))
            if solved is None:
                return None
            white = solved.root @ np.column_stack([functions, window.values])
            normal = white[:, :-1].T @ white / scale
            inverse = np.linalg.pinv(normal[:, :-1] + held, hermitian=True)
            change += weight * (inverse @ (normal[:, -1] - held @ coefficients))
            covariance += weight * inverse
        return change, covariance

    @property
    def degrees(self) -> float:
        """Degrees of freedom by which scales are known; infinite where they are many."""
        left = self.pyramid.count - (0 if self.rows is None else self.rows.shape[1])
        return max(left, 1) if self.is_dense else math.inf

    @property
    def noise(self) -> float:
        """Variance of an observation of mean weight about the field."""
        weighted = zip(self.models, self.mean_scales, strict=True)
        return sum(w * model.noise * scale for (w, model), scale in weighted)

    @property
    def noise_share(self) -> float:
        """The noise of the models, in units of the local scale."""
        return sum(w * model.noise for w, model in self.models)

    def predict(self, coordinates: Array, orders: Mapping[int, int], *, with_variance: bool) -> Predicted:
        """Return values or derivatives at some coordinates [n, d].

        A derivative of a field with slopes (ν > 1) is a difference over a 128th of the shortest length; where there are
        no slopes, it is that between labels. `orders` has the order of the derivative along each coordinate that has
        one.
        """
        n, p = len(coordinates), self.pyramid
        out = np.zeros((5, n))
        if n == 0:
            return Predicted(*out)
        offsets, factors = self._stencil(orders)
        targets = self.places((coordinates[:, None] + offsets).reshape(-1, coordinates.shape[1]))
        order, starts, centres = self.in_blocks(self.places(coordinates))
        targets = targets.reshape(n, len(factors), -1)[order]
        for first in range(0, len(centres), TOGETHER):
            last = min(first + TOGETHER, len(centres))
            own = slice(starts[first], starts[last])
            blocks = starts[first : last + 1] - starts[first]
            near = p.neighbours(centres[first:last], self.wanted)
            combined = self.combined(near, targets[own], factors, blocks, with_variance)
            longer, noisier = self.calibration(combined.left, combined.scale)
            variance, new = combined.variance * longer**2, combined.relative * noisier**2
            out[:, order[own]] = combined.mean, variance, combined.trust, combined.relative, new
        return Predicted(*out)

    def cells(self, most: int) -> tuple[Level, Index]:
        """Return cells in which errors can be added up, and in which of them each observation is.

        They are made of the items of the highest level that has more than `most`. Where observations are not in memory,
        it is the cells of the second level, which are of all, that lie in these.
        """
        p, lowest = self.pyramid, 0 if self.sampled is None else 2
        sizes = np.diff(p.starts)
        level = max([lowest, *np.flatnonzero(sizes > most)])
        own, number = slice(p.starts[level], p.starts[level + 1]), np.arange(sizes[level])
        scatter = np.broadcast_to(p.spread[level], p.places[own].shape)
        cells = Level(p.places[own], p.values[own], p.counts[own], scatter)
        if number.size > most:
            wide = level + math.log(number.size / most) / (self.places.coordinates * math.log(WIDER))
            while (number := p.grid.cells(cells.places, wide)).max() >= most:
                wide += 0.1
            cells = cells.grouped(p.grid, wide)
        if self.sampled is None and level > 0:
            number = number[p.cell_of_observations(level)]
        return cells, number

    def cell_means(self, functions: Callable[[Array], Array], cells: Level, number: Index) -> Array:
        """Return the means of functions [n, P] of coordinates over what `cells` returns, as [m, P].

        Of many observations of a cell some are taken at random; where they are not in memory, labels near its middle.
        """
        p = self.pyramid
        if cells.values.size == p.count:
            return functions(self.coordinates)
        if self.sampled is not None:
            nearest = np.arange(1, max(len(self.sampled) // cells.values.size, 1) + 1)
            tree = cKDTree(p.grid.in_widths(self.places(self.sampled)))
            near = tree.query(p.grid.in_widths(cells.places), nearest)[1]
            return np.asarray(functions(self.sampled)[near].mean(axis=1))
        shuffled = np.random.default_rng(0).permutation(p.count)
        own = number[shuffled]
        order = np.argsort(own, kind="stable")
        first = np.flatnonzero(np.diff(own[order], prepend=-1))
        sizes = np.diff(first, append=p.count)
        most = max(TAKEN // sizes.size, 1)
        taken = shuffled[order[np.arange(p.count) - np.repeat(first, sizes) < most]]
        starts, means = np.cumsum([0, *np.minimum(sizes, most)]), []
        together = math.ceil(DENSE / most)  # cells, so that functions of their observations fit in a cache
        for cell in range(0, sizes.size, together):
            own = starts[cell : cell + together + 1]
            some = taken[own[0] : own[-1]]
            weights = p.counts[some]
            totals = np.add.reduceat(functions(self.coordinates[some]) * weights[:, None], own[:-1] - own[0])
            means.append(totals / np.add.reduceat(weights, own[:-1] - own[0])[:, None])
        return np.concatenate(means)

    def to_arrays(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return the observations as arrays, and everything else as plain data."""
        p, n = self.pyramid, self.pyramid.count
        arrays = {"coordinates": self.coordinates, "values": p.values[:n], "weights": p.counts[:n]}
        return arrays, {
            "places": asdict(self.places),
            "metric": p.metric.tolist(),
            "models": [[w, len(m.variances), m.parameters.tolist()] for w, m in self.models],
            "scale": self.scale,
            "freedom": self.freedom,
            "usual_scale": self.usual_scale,
            "usual_residuals": list(self.usual_residuals),
            "steps": self.steps.tolist(),
            "calibration": [x.tolist() for x in self.calibration],
            "joined": list(self.joined),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any], rows: Array | None) -> Nearby:
        """Inverse of `to_arrays`, given the functions that were fitted before."""
        places = Places(**{**meta["places"], "centre": tuple(meta["places"]["centre"])})
        columns = arrays["coordinates"], arrays["values"], arrays["weights"]
        metric = np.array(meta["metric"])
        models = tuple((w, Model.of(np.array(x), scales, metric.size)) for w, scales, x in meta["models"])
        return cls(
            places,
            pyramid_of(*columns, places, metric),
            models,
            meta["scale"],
            meta["freedom"],
            meta["usual_scale"],
            columns[0],
            rows,
            np.array(meta["steps"]),
            Calibration(*(np.array(x) for x in meta["calibration"])),
            (meta["usual_residuals"][0], meta["usual_residuals"][1]),
            joined=(meta["joined"][0], meta["joined"][1]),
        )

    def error_covariance(self, cells: Level) -> tuple[Array, float]:
        """Return the covariance [m, m] of the mean errors in some cells, and how many degrees of freedom tell it.

        Errors are all that a coarse field leaves: the fine field and noise. They are as long as 95 % take, of the few
        degrees of freedom that small data leave.
        """
        from xspline.kriging import compiled

        places, counts, levels = cells.places, cells.counts, np.zeros(cells.values.size, np.int64)
        total = np.zeros((len(counts), len(counts)))
        for (weight, model), scale in zip(self.models, self.mean_scales, strict=True):
            matrix = np.zeros_like(total)
            compiled.covariances(places, levels, counts, model.between(cells.spread[None]), matrix)
            total += weight * scale * (matrix + np.tril(matrix, -1).T)
        # As many independent errors have sums of squares that scatter as these do (Satterthwaite 1946).
        scaled = total * np.sqrt(counts[:, None] * counts)
        alike = float(np.trace(scaled)) ** 2 / float(np.sum(scaled**2))
        lost = 0 if self.rows is None else self.rows.shape[1]
        freedom = max(alike - lost, FEWEST_INDEPENDENT)
        return total * stretch(np.array(freedom)) ** 2, freedom

    def distances(self, coordinates: Array) -> Array:
        """Return the distance of places from the nearest observation, in widths of a cell of one observation."""
        return np.asarray(
            self.pyramid.trees[0].query(self.pyramid.grid.in_widths(self.places(coordinates)))[0]
        )

    def withheld(self, own: Index) -> tuple[Array, Array]:
        """Return errors of observations, each predicted from all others, over what is expected, and as they are."""
        if self.is_dense:
            return self._withheld[own], np.asarray([w for w, _ in self.models] @ self._by_model[4])[own]
        p = self.pyramid
        near = p.neighbours(p.places[own], NEIGHBOURS, float(np.finfo(float).eps))
        combined = self.combined(near, p.places[own, None], np.ones(1), np.arange(own.size + 1), True)
        variance = combined.variance * self.calibration(combined.left, combined.scale)[0] ** 2
        noise = self.noise_share * combined.scale / p.counts[own]
        missed = np.asarray(p.values[own] - combined.mean)
        return missed / np.sqrt(variance + noise), missed

    def in_blocks(self, at: Array) -> tuple[Index, Index, Array]:
        """Return an order of places [n, D] by blocks, where each block begins, and the middles of blocks [b, D].

        Where observations are dense, as those of a grid near a pole, blocks are halved until the nearest observations
        reach well beyond the corners. The block of a place hangs on observations alone, not on the other places.
        """
        if self.is_dense:
            return np.arange(len(at)), np.array([0, len(at)]), self.pyramid.places[:1]
        tree, (metric, origin), d = self.pyramid.trees[0], self.pyramid.grid, self.places.coordinates
        width = self._widest_block
        left = np.arange(len(at))
        parts = []
        middles = []
        while left.size:
            corners = np.floor((at[left] - origin) / (width * metric) + CORNER)
            index, block = np.unique(corners, axis=0, return_inverse=True)
            centres, block = (index + 0.5 - CORNER) * width * metric + origin, block.ravel()
            reach = tree.query(self.pyramid.grid.in_widths(centres), [NEIGHBOURS[0]])[0][:, 0]
            whole = (width * math.sqrt(d) / 2 <= math.sqrt(SHARED) * reach) | (reach == 0)
            order = left[np.argsort(block, kind="stable")]
            blocks = np.split(order, np.cumsum(np.bincount(block, minlength=len(index)))[:-1])
            parts += [blocks[i] for i in np.flatnonzero(whole)]
            middles.append(centres[whole])
            left, width = left[~whole[block]], width / 2
        starts = np.cumsum([0, *(part.size for part in parts)])
        return np.concatenate(parts), starts, np.concatenate(middles)

    @functools.cached_property
    def _widest_block(self) -> float:
        """The width of the largest blocks: that on a complete grid, doubled while observations reach twice as far."""
        p, d, doublings = self.pyramid, self.places.coordinates, 0
        if math.isinf(p.reach):  # tiles do not know the observations of each other
            some = p.grid.in_widths(p.places[: p.count : p.count // DENSE])
            reach = float(np.median(p.trees[0].query(some, [NEIGHBOURS[0]])[0]))
            doublings = math.floor(math.log2(max(reach / (2 * _radius(NEIGHBOURS[0], d)), 1.0)))
        return block_width(d) * 2.0**doublings

    @property
    def wanted(self) -> tuple[int, ...]:
        """How many neighbours of each level a block has."""
        return (self.pyramid.count,) if self.is_dense else NEIGHBOURS

    def combined(
        self, near: Near, targets: Array, factors: Array, blocks: Index, with_variance: bool
    ) -> Combined:
        """Predict combinations from given neighbours of each block, over all models, before calibration."""
        sums = np.zeros((6, len(targets)))
        for weight, model in self.models:
            x = self.by_model(model, near, targets, factors, blocks, with_variance)
            sums += weight * np.stack([x.mean, x.mean**2, x.variance * x.scale, x.left, x.trust, x.scale])
        apart = np.maximum(sums[1] - sums[0] ** 2, 0.0)
        local = self.local(targets[:, 0])
        sums[2] *= root_where_calm(local)
        sums[5] *= local
        relative = local if self.is_dense else sums[5] / self.usual_scale
        return Combined(sums[0], sums[2] + apart, sums[3], sums[4], sums[5], relative)

    def by_model(
        self, model: Model, near: Near, targets: Array, factors: Array, blocks: Index, with_variance: bool
    ) -> Combined:
        """Predict the same by one model; its variance is in units of the scale, in which `local` has no part."""
        from xspline.kriging import compiled

        p, n, (chosen, filled) = self.pyramid, len(targets), near
        groups = np.arange(n + 1) * factors.size
        flat = np.ascontiguousarray(targets.reshape(-1, targets.shape[-1]))
        combination = np.tile(factors, n)
        mean, variance, left, trust = np.empty(n), np.zeros(n), np.zeros(n), np.empty(n)
        size, covariance = np.empty(len(chosen)), model.between(p.spread)

        def piece(first: int, last: int) -> None:
            compiled.predictions(
                p.places, p.levels, p.counts, p.values, chosen[first:last], filled[first:last], flat,
                combination, groups, blocks[first : last + 1], covariance, with_variance,
                mean, variance, left, trust, size[first:last],
            )  # fmt: skip

        run(piece, [ranges(len(chosen))])
        # The local scale of each block is widened for the degrees of freedom that it is known by.
        lost = 0 if self.rows is None else self.rows.shape[1]
        freedom = np.maximum(filled - lost + self.freedom, 1)
        scale = (size * filled + self.freedom * self.scale) / freedom * stretch(freedom) ** 2
        return Combined(mean, variance, left, trust, np.repeat(scale, np.diff(blocks)))

    @functools.cached_property
    def _withheld(self) -> Array:
        """Errors of all observations, each predicted from all others, over what is expected, if they are one window."""
        return np.asarray([weight for weight, _ in self.models] @ self._by_model[3])

    @functools.cached_property
    def _unevenness(self) -> tuple[float, float]:
        """Scale and degrees of freedom of the χ² distribution of squares of these errors from place to place.

        Freedom is `UNIFORM` where they do not vary by more than chance: two standard errors of the variance of the
        logarithms of so many independent means.
        """
        count = self.pyramid.count
        if not self.is_dense or count <= SCALED:
            return 1.0, UNIFORM
        means, sizes = self._around(self.pyramid.places[:count])
        size = float(sizes.mean())
        chance = float(special.polygamma(1, size / 2))
        return local_scales(means, size, 2 * chance * math.sqrt(2 * size / count))

    @functools.cached_property
    def _in_lengths(self) -> tuple[Array, cKDTree]:
        """The longer lengths of the likeliest model [D], and a tree of all observations in these."""
        p, lengths = self.pyramid, self.likeliest.lengths[-1]
        return lengths, cKDTree(p.places[: p.count] / lengths)

    def _around(self, at: Array, left_out: Index | None = None) -> tuple[Array, Array]:
        """Return the mean square of these errors around places [n, D], and of how many independent ones it is the mean.

        Weights fall to about zero at the farthest. So it does not matter which of several counts that are equally far.
        """
        lengths, tree = self._in_lengths
        apart, near = tree.query(at / lengths, SCALED)
        share = apart / np.maximum(apart[:, -1:], np.finfo(float).tiny)
        weights = np.maximum(1 - share**2, np.finfo(float).eps)
        if left_out is not None:
            weights[near == left_out[:, None]] = 0.0
        total, squares = weights.sum(axis=1), self._withheld[near] ** 2
        return np.sum(weights * squares, axis=1) / total, total**2 / np.sum(weights**2, axis=1)

    def local(self, at: Array, left_out: Index | None = None) -> Array:
        """Return the scale around places [n, D], some `left_out`, over that of all, if these are one window; else 1."""
        scale, freedom = self._unevenness
        if freedom >= UNIFORM:
            return np.ones(len(at))
        mean, size = self._around(at, left_out)
        wider = stretch(freedom + size) / stretch(np.array(self.degrees))
        return np.asarray((freedom * scale + size * mean) / (freedom + size) * wider**2)

    @functools.cached_property
    def differences(self) -> Array:
        """Over what distance along each coordinate a derivative is a difference, [d].

        That is a share of the shortest length: over less, what two values of a smooth field differ by is lost in
        rounding; over a 32nd, slopes of exact waves err by 56 of their standard errors, by 3.5 over a 128th.
        """
        if any(float(model.smoothness.min()) <= 1 for _, model in self.models):
            return self.steps
        some = self.coordinates[:: len(self.coordinates) // TOGETHER + 1]
        if self.sampled is not None:  # the same in each tile
            some = self.sampled[:TOGETHER]
        lengths = np.min([model.lengths.min(axis=0) for _, model in self.models], axis=0)
        moved = (self.places(some + step) - self.places(some) for step in np.diag(self.steps))
        shares = np.array([np.median(np.linalg.norm(apart / lengths, axis=1)) for apart in moved])
        return np.asarray(self.steps / (128 * np.maximum(shares, np.finfo(float).tiny)))

    def _stencil(self, orders: Mapping[int, int]) -> tuple[Array, Array]:
        """Return offsets [s, d] and factors [s] whose combination of values is a derivative."""
        offsets, factors = [np.zeros(self.places.coordinates)], [1.0]
        for j, order in orders.items():
            step = self.differences[j]
            for _ in range(order):
                half = np.zeros(self.places.coordinates)
                half[j] = step / 2
                offsets = [o + side * half for side in (1, -1) for o in offsets]
                factors = [side * f / step for side in (1, -1) for f in factors]
        return np.array(offsets), np.array(factors)


def root_where_calm(local: Array) -> Array:
    """Return by what variances of the field go with local scales: calm data may have less noise about the same field.

    With noise of .1 and .5 in two halves of a line 85 % of the calm one are covered without the root, 97 % with it.
    """
    return np.maximum(local, np.sqrt(local))


def stretch(freedom: Array) -> Array:
    """Return by what intervals of 95 % are longer where variances are known by so many degrees of freedom."""
    return np.asarray(special.stdtrit(np.minimum(freedom, UNIFORM), 0.975) / NORMAL)


def _radius(items: float, dimensions: int) -> float:
    """Return how far so many observations reach on a complete grid, in widths of a cell of one."""
    ball = math.pi ** (dimensions / 2) / math.gamma(dimensions / 2 + 1)
    return float((items / ball) ** (1 / dimensions))


def block_width(dimensions: int) -> float:
    """Return the width of a block of places that share neighbours, in widths of a cell of one observation."""
    return 2 * SHARED / math.sqrt(dimensions) * _radius(NEIGHBOURS[0], dimensions)


def reach_of(dimensions: int) -> float:
    """Return the reach of a pyramid, in widths of a cell of one observation."""
    nearest, cells = NEIGHBOURS[:2]
    return REACHED * _radius(nearest + cells * WIDER**dimensions, dimensions)


def cells_beyond(observations: Level, grid: Grid) -> list[Level]:
    """Return the levels from the second on."""
    return coarser(grid, observations.grouped(grid, 2), len(NEIGHBOURS), SANDWICHED)


def pyramid_of(coordinates: Array, values: Array, weights: Array, places: Places, metric: Array) -> Pyramid:
    """Return the pyramid of some observations, whose cells have widths of a metric."""
    observations = Level.of(places(coordinates), values, weights)
    grid = Grid(metric, observations.places.min(axis=0))
    if values.size <= DENSE:
        return Pyramid.of([observations], grid)
    first, far = observations.grouped(grid, 1), cells_beyond(observations, grid)
    levels = [first, *far] if first.values.size >= FEWEST else []
    return Pyramid.of([observations, *levels], grid)
