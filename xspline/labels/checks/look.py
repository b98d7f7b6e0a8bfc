"""What residuals of a fit say of its model: gross errors, heavy tails, repeated records, structure, uneven noise.

Residuals are looked at in a sample of the data, in units of what they should be. Those of a single field are divided by
their median size; those of a field with neighbours are the errors of observations that are predicted from all others.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from xspline.kriging.fitting import WITHHELD
from xspline.labels import evaluation
from xspline.labels.errors import label_text
from xspline.labels.fine.field import Fine
from xspline.labels.fit import Fit
from xspline.labels.inference.levels import Levels
from xspline.labels.read.coordinates import floats
from xspline.labels.read.observations import Holders, Observations, Variable
from xspline.labels.read.targets import Target
from xspline.residuals import assumptions
from xspline.residuals.assumptions import FEWEST, MEDIAN, MOST, PARTS
from xspline.residuals.screening import apart, distances
from xspline.solve.smoothing.resolution import SEEN
from xspline.spaces import Space

Array = np.ndarray


def look(fit: Fit, observed: Observations | None) -> dict[str, Any]:
    """Return what a sample of residuals says, as plain data; empty where there are too few.

    Parameters
    ----------
    fit : a solved fit.
    observed : its observations, of which those in the boxes of the sample are read; a field with neighbours has them.
        Where holders differ, these are those of its holders.
    """
    if fit.fine is not None:
        return _of_neighbours(fit, fit.fine)
    if observed is None or (fit.levels is not None and observed.holders is None):
        return {}
    boxes = boxes_of(observed)
    parts = [Sample.of(fit, observed, box) for box in boxes]
    errors = [part.standardised() for part in parts]
    u = np.concatenate([own[np.isfinite(own)] for own in errors])
    if u.size < FEWEST:
        return {}
    columns = {
        name: np.concatenate([p.along[name][np.isfinite(own)] for p, own in zip(parts, errors, strict=True)])
        for name in fit.space.names
    }
    largest, at = max(part.farthest(own) for part, own in zip(parts, errors, strict=True))
    values = np.concatenate(
        [part.data.values[np.isfinite(own)] for part, own in zip(parts, errors, strict=True)]
    )
    spread, is_rare = float(np.std(values.astype(np.float64))), values != np.median(values)
    amounts = assumptions.mostly_equal(values) and is_rare.sum() >= FEWEST
    seen = assumptions.tails(u[is_rare] if amounts else u, u, u.size)
    return {
        **seen,
        "skewed": seen["skewed"] or amounts,
        "spoilt": seen["spoilt"] and not amounts and not _far_are_neighbours(fit.space, parts, errors),
        "is_whole": len(boxes) == 1,
        "at": at,
        "matters": largest > 3 * spread,
        "visible": largest > SEEN * spread,
        "repeated": sum(part.repeated() for part in parts) + _repeated_labels(fit.space, observed),
        "correlated": _correlated(fit.space, parts, errors),
        "lasting": _lasting(fit, boxes, parts, errors),
        "uneven": assumptions.unevenness(_with_cycles(fit.space, columns), u),
    }


@dataclass(frozen=True, eq=False)
class Sample:
    """The residuals in a box of labels."""

    data: xr.DataArray  # the values of the box
    residual: Array  # [...], in the order of the dimensions of the data; NaN of what is not fitted
    root: Array  # [...], roots of the weights
    along: Mapping[str, Array]  # for each fitted coordinate its labels as floats, with the shape of the data
    used: Array  # [...] of bool, observations that are fitted
    batch: tuple[Hashable, ...]  # dimensions of independent fits
    is_scattered: bool  # whether all coordinates share the other dimensions
    # of each entry along a dimension, the number of the holder whose noise level is estimated
    holders: xr.DataArray | None = None

    @classmethod
    def of(cls, fit: Fit, observed: Observations, box: Mapping[Hashable, slice]) -> Sample:
        """Read a box and compute what the field leaves of it."""

        def within(x: xr.DataArray) -> xr.DataArray:
            return x.isel({dim: s for dim, s in box.items() if dim in x.dims}).compute()

        arrangement, space = observed.arrangement, fit.space
        data = within(observed.data)
        coordinates = {name: within(c) for name, c in observed.coordinates.items()}
        bounds = {name: within(c) for name, c in observed.bounds.items()}
        target = Target(coordinates, xr.Dataset(), None, False, None, bounds)
        values = evaluation.evaluate(fit, target, {}, None, uncompiled=True)
        values = values.isel({dim: box[dim] for dim in arrangement.batch}).drop_vars(values.coords)
        bare = data.drop_vars(data.coords)
        offset: Any = 0.0
        ratio: Any = 1.0
        holders = None
        if fit.levels is not None and observed.holders is not None:
            own = _levels(fit.levels, observed.holders, fit.variable)
            offset, ratio, codes = map(within, own)
            holders = codes if fit.levels.noise else None
        residual = (bare.astype(np.float64) - values - offset).transpose(*data.dims)
        root = np.array((xr.ones_like(residual) / np.sqrt(ratio)).transpose(*data.dims).values)
        used = np.isfinite(residual.values)
        if observed.weights is not None:
            weights = within(observed.weights)
            spread = (weights.drop_vars(weights.coords) * xr.ones_like(residual)).transpose(*data.dims)
            used &= spread.values > 0
            root *= np.sqrt(np.maximum(spread.values, 0.0))
        along = {}
        for name, span in arrangement.spans.items():
            values_of = _on_circle(
                space, name, np.asarray(floats(coordinates[name], name, space, span, data.sizes))
            )
            x = xr.Variable(span, values_of)
            along[name] = np.asarray(x.set_dims(dict(data.sizes)).transpose(*data.dims).values)
        is_scattered = len(set(arrangement.spans.values())) == 1 and not arrangement.pooled
        left = np.where(used, residual.values, np.nan)
        return cls(data, left, root, along, used, arrangement.batch, is_scattered, holders)

    @property
    def values(self) -> Array:
        """The values that are fitted, [n]."""
        return np.asarray(self.data.values)[self.used].astype(np.float64)

    def standardised(self) -> Array:
        """Return residuals over their median size, each independent fit by its own; NaN where there are too few.

        What is as small beside the data as rounding may make it says nothing either.
        """
        axes = tuple(i for i, dim in enumerate(self.data.dims) if dim not in self.batch)
        is_known = self.used.sum(axis=axes, keepdims=True) >= FEWEST
        weighted = self.residual * self.root
        sizes = np.where(is_known, np.where(self.used, np.abs(weighted), np.nan), 0.0)
        median = np.nanmedian(sizes, axis=axes, keepdims=True) if sizes.size else sizes
        usual = np.median(np.abs(self.values * self.root[self.used])) if self.used.any() else 0.0
        rounding = math.sqrt(np.finfo(float).eps) * usual
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            u = np.where(is_known & (median > rounding), weighted / median * MEDIAN, np.nan)
        return u if self.holders is None else self._by_holder(u, self.holders)

    def _by_holder(self, u: Array, holders: xr.DataArray) -> Array:
        """Return errors, those of a holder over their own median size where that surely is another than that of all.

        Gross errors raise the noise level of their holder, beside which they would be small.
        """
        (dim,) = holders.dims
        dims = [dim, *(d for d in self.data.dims if d != dim)]
        axes = tuple(i for i, d in enumerate(dims) if d not in self.batch)
        out = np.moveaxis(u.copy(), self.data.dims.index(dim), 0)
        order = np.argsort(holders.values, kind="stable")
        for own in np.split(order, np.flatnonzero(np.diff(holders.values[order])) + 1):
            count = np.isfinite(out[own]).sum(axis=axes, keepdims=True)
            sizes = np.where(count >= FEWEST, np.abs(out[own]), MEDIAN)
            scale = np.maximum(np.nanmedian(sizes, axis=axes, keepdims=True) / MEDIAN, np.finfo(float).tiny)
            surely = np.abs(np.log(scale)) > assumptions.unsure(np.maximum(count, 1))
            out[own] /= np.where(surely, scale, 1.0)
        return np.moveaxis(out, 0, self.data.dims.index(dim))

    def repeated(self) -> int:
        """Return how many records of points are there twice, those of one independent fit."""
        if not self.is_scattered or not self.along:
            return 0
        first = tuple(0 if dim in self.batch else slice(None) for dim in self.data.dims)
        used = self.used[first]
        points = np.stack([x[first][used] for x in self.along.values()], axis=1)
        values = np.asarray(self.data.values)[first][used].astype(np.float64)
        return int(assumptions.copies(points, values).sum())

    def farthest(self, u: Array) -> tuple[float, str]:
        """Return the size of the residual of the largest |u|, and where it is: ``5.01 at lat=12.5, lon=30.25``."""
        if not np.isfinite(u).any():
            return 0.0, ""
        where = np.unravel_index(int(np.nanargmax(np.abs(u))), u.shape)
        data = self.data
        value = data.isel(dict(zip(data.dims, map(int, where), strict=True)))
        named = {name: value[name] for name in data.coords if data[name].ndim}
        labels = [f"{name}={label_text(c.values[()])}" for name, c in named.items()]
        labels += [f"{dim}[{int(i)}]" for dim, i in zip(data.dims, where, strict=True) if dim not in named]
        return float(abs(self.residual[where])), f"{float(value):.4g} at {', '.join(labels[:4])}"


def _levels(levels: Levels, holders: Holders, variable: Variable) -> list[xr.DataArray]:
    """Return the offset of each observation, by what its variance is larger than the reference's, and its holder."""
    codes = np.array([levels.names.index(name) for name in holders.names])[holders.holder_codes]
    shape = (len(levels.names), *variable.batch_shape)
    both = [np.broadcast_to(level, shape)[codes] for level in (levels.offset, levels.ratio)]
    own = [xr.DataArray(level, dims=(holders.dim, *variable.batch_dims)) for level in both]
    return [*own, xr.DataArray(codes, dims=(holders.dim,))]


def _on_circle(space: Space, name: str, x: Array) -> Array:
    """Return labels as numbers, of longitudes in the first turn, where 0 and 360 are one place."""
    period = space.axis(name).wrap
    return np.mod(x, period) if period else x


def _with_cycles(space: Space, columns: Mapping[str, Array]) -> dict[str, Array]:
    """Return columns of labels, and of times over several years or days the time of the year or day beside them."""
    phases = {}
    times = {name: x for name, x in columns.items() if space.axis(name).kind == "time"}
    for name, x in times.items():
        for cycle, parts in (("year", "seasons"), ("day", "hours")):
            period = space.axis(name).duration(cycle, "period")
            phase = np.mod(x, period)
            # The middles of months are at two times of the day.
            if np.ptp(x) > 2 * period and np.unique(phase).size > 2:
                phases[f"the {parts} of {name}"] = phase
    return {**columns, **phases}


def _repeated_labels(space: Space, observed: Observations) -> int:
    """Return how many values of a grid are at labels that are there twice, if those of the first pair are equal."""
    repeated, spans = 0, observed.arrangement.spans
    for name, span in spans.items():
        coordinate = observed.coordinates[name]
        if (
            coordinate.dims != span
            or len(span) != 1
            or list(spans.values()).count(span) > 1
            or len(spans) < 2
        ):
            continue
        (dim,) = span
        x = _on_circle(space, name, np.asarray(floats(coordinate, name, space, span, observed.data.sizes)))
        order = np.argsort(x, kind="stable")
        again = np.flatnonzero(np.diff(x[order]) <= assumptions.one_place(x))
        if again.size:
            two = {dim: order[again[0] : again[0] + 2]}
            pair = observed.data.isel(two).astype(np.float64)
            if observed.weights is not None:
                pair = pair.where(observed.weights.isel(two, missing_dims="ignore").values > 0)
            first, second = np.moveaxis(pair.values, pair.dims.index(dim), 0)
            same = np.isfinite(first) & (first == second)
            if same.any() and np.array_equal(first, second, equal_nan=True):
                repeated += again.size * int(same.sum())
    return repeated


def boxes_of(observed: Observations) -> list[dict[Hashable, slice]]:
    """Return boxes of labels that hold at most `MOST` values together: all labels, or some places at random."""
    sizes = dict(observed.data.sizes)
    if observed.data.size <= MOST:
        return [{dim: slice(0, n) for dim, n in sizes.items()}]
    lengths = dict(sizes)
    while math.prod(lengths.values()) > MOST / PARTS:
        longest = max(lengths, key=lambda dim: lengths[dim])
        lengths[longest] = -(-lengths[longest] // 2)
    rng, boxes = np.random.default_rng(0), []
    for _ in range(PARTS):
        first = {dim: int(rng.integers(n - lengths[dim] + 1)) for dim, n in sizes.items()}
        boxes.append({dim: slice(i, i + lengths[dim]) for dim, i in first.items()})
    return boxes


def _correlated(space: Space, parts: list[Sample], errors: list[Array]) -> dict[str, float]:
    """Return the correlation of residuals of neighbours along each dimension, if it matters.

    Of points it is the largest: of nearest ones, or of nearest ones at the same time. The nearest of all to a station's
    month is its next month, which does not tell of weather that all stations share.
    """
    pairs: dict[str, list[assumptions.Pairs]] = {}
    of_points = False
    for part, own in zip(parts, errors, strict=True):
        u = np.clip(own, -assumptions.FAR, assumptions.FAR)
        fitted = [dim for dim in part.data.dims if dim not in part.batch]
        if part.is_scattered and len(part.along) > 1:
            of_points, known = True, np.isfinite(u)
            points = np.stack([x[known] for x in part.along.values()], axis=1)
            if not part.batch:
                pairs.setdefault("nearest points", []).append(assumptions.of_nearest(u[known], points))
                for axis, name in enumerate(part.along):
                    if space.axis(name).kind == "time":
                        near = assumptions.of_nearest(u[known], points, axis)
                        pairs.setdefault(f"points at the same {name}", []).append(near)
            continue
        for dim in fitted:
            pairs.setdefault(str(dim), []).append(assumptions.along_axis(u, part.data.dims.index(dim)))
    values = {name: assumptions.correlation(own) for name, own in pairs.items()}
    most = max(values.values(), default=0.0)
    return {name: value for name, value in values.items() if value and (value == most or not of_points)}


def _far_are_neighbours(space: Space, parts: list[Sample], errors: list[Array]) -> bool:
    """Return whether far residuals are neighbours, as a front or an eddy leaves them; gross errors are anywhere."""
    far = [np.where(np.abs(own) > assumptions.FAR, np.sign(own), own * 0) for own in errors]
    return max(_correlated(space, parts, far).values(), default=0.0) >= 1 / 2


def _lasting(fit: Fit, boxes: list[dict[Hashable, slice]], parts: list[Sample], errors: list[Array]) -> float:
    """Return by what sums of errors vary more than AR(1) errors would, where these are assumed, if it matters."""
    dim, own = fit.remembers, []
    if fit.rho is None or not all(dim in part.data.dims for part in parts):
        return 0.0
    rho = xr.DataArray(fit.rho, dims=fit.variable.batch_dims)
    for box, part, u in zip(boxes, parts, errors, strict=True):
        known = xr.DataArray(np.clip(u, -assumptions.FAR, assumptions.FAR), dims=part.data.dims)
        before = known.shift({dim: 1}) * rho.isel({name: box[name] for name in rho.dims})
        own.append((known - before).transpose(dim, ...).values)
    return assumptions.lasting(own)


def _of_neighbours(fit: Fit, fine: Fine) -> dict[str, Any]:
    """Return what the errors of withheld observations say, over all members with neighbours."""
    space = fit.space
    members = [member for member in fine.members if member is not None][:WITHHELD]
    if not members:
        return {}
    each = max(WITHHELD // 2 // len(members), 1)  # what tails are expected needs fewer than a calibration
    rng = np.random.default_rng(0)
    usual, local, suspects, places, beyond, visible, count = [], [], [], [], [], [], 0
    alone = len(space.names) == 1
    cyclic = [n for n in space.names if alone or space.axis(n).kind == "time"]
    cycles = {name: list[float]() for name in cyclic}
    counts = np.broadcast_to(fit.total.count, fit.variable.batch_shape).ravel()
    pairs = [(n, member) for n, member in zip(counts, fine.members, strict=True) if member is not None]
    # Copies were left out, where all observations are in memory.
    repeated = sum(round(n - m.pyramid.count * m.joined[0]) for n, m in pairs if m.inner is None)
    for member in members:
        values = member.pyramid.values[: member.pyramid.count]
        columns = [_on_circle(space, *pair) for pair in zip(space.names, member.coordinates.T, strict=True)]
        repeated += int(assumptions.copies(np.stack(columns, axis=1), values).sum())
        sample = rng.permutation(values.size if member.inner is None else member.inner)[:MOST]
        own = np.sort(sample)  # in the order of their coordinates, so that trees find what caches hold
        count += own.size
        for name in cyclic:
            x = member.coordinates[own, space.names.index(name)]
            cycles[name] = cycles[name] or assumptions.cycles(x, values[own])
        furthest = own[np.argsort(-apart(member.pyramid.trees[0], values, own), kind="stable")[:each]]
        expected, missed = member.withheld(furthest)
        suspects.append(expected)
        visible.append(np.abs(missed) > SEEN * values.std())
        places.append(member.coordinates[furthest])
        # A gross error is far from its neighbours, as no corner is, and from all values, as no front is.
        near = distances(member.pyramid.trees[0], values, furthest)[0]
        beyond.append(np.minimum(near, np.abs(values[furthest] - values.mean())) > 3 * values.std())
        # By local scales several gross errors side by side would pass for a lively place.
        some, (errors, off) = sample[:each], member.withheld(sample[:each])
        usual.append((member.coordinates[some], errors, np.abs(off), values[some] - off))
        local.append(errors / np.sqrt(member.local(member.pyramid.places[some], some)))
    largest = np.abs(np.concatenate(suspects))
    at, u, missed, predicted = (np.concatenate(own) for own in zip(*usual, strict=True))
    known = np.isfinite(u)
    if known.sum() < FEWEST or not np.isfinite(largest).any():
        return {}
    farthest = int(np.nanargmax(largest))
    worst = np.concatenate(places)[farthest]
    labels = [
        f"{name}={label_text(np.asarray(space.axis(name).to_label(np.array([x]))).ravel()[0])}"
        for name, x in zip(space.names, worst, strict=True)
    ]
    columns_of = dict(zip(space.names, at[known].T, strict=True))
    return {
        **assumptions.tails(u[known], largest[np.isfinite(largest)], count),
        "grows": assumptions.grows(missed[known], predicted[known]),
        "is_whole": count == sum(member.pyramid.count for member in members if member.inner is None),
        "at": f"that at {', '.join(labels)}",
        "matters": bool(np.concatenate(beyond)[farthest]),
        "visible": bool(np.concatenate(visible)[farthest]),
        "repeated": repeated,
        "correlated": {},
        "cycles": {name: periods for name, periods in cycles.items() if periods},
        "uneven": assumptions.unevenness(_with_cycles(space, columns_of), np.concatenate(local)[known]),
    }
