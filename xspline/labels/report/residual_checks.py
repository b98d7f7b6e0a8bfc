"""What residuals of a fit say of its model: gross errors, heavy tails, repeated records, structure, uneven noise.

Residuals are looked at in a sample of the data, in units of what they should be. Those of a single field are divided by
their median size; those of a field with neighbours are the errors of observations that are predicted from all others.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from scipy import optimize, stats
from scipy.spatial import cKDTree

from xspline.kriging.screening import apart
from xspline.labels import evaluation
from xspline.labels.errors import label_text
from xspline.labels.fine.field import Fine
from xspline.labels.fit import Fit
from xspline.labels.read.coordinates import floats
from xspline.labels.read.observations import Observations
from xspline.labels.read.targets import Target
from xspline.spaces import Space

Array = np.ndarray

#: Values that are looked at, at most, in so many boxes of neighbouring labels.
MOST, BOXES = 100_000, 8
#: Observations of a field with neighbours that are predicted from the others: some at random, and the most suspicious.
WITHHELD = 400
#: Observations of an independent fit, at least, that its residuals are looked at.
FEWEST = 20
#: The median of |u| of a normal distribution of variance 1.
MEDIAN = float(stats.norm.ppf(0.75))
#: The probability of a false alarm of one look at clean data.
CHANCE = 2e-3
#: Standard deviations from which residuals count as far away, and a correlation and a ratio that matter to a user.
FAR, ALIKE, UNEVEN = 3.0, 0.1, 1.5
#: Parts of the range of a coordinate whose residuals are compared.
PARTS = 8


def look(fit: Fit, observed: Observations | None) -> dict[str, Any]:
    """Return what a sample of residuals says, as plain data; empty where there are too few.

    Parameters
    ----------
    fit : a solved fit.
    observed : its observations, of which those in the boxes of the sample are read; a field with neighbours has them.
    """
    if fit.fine is not None:
        return _of_neighbours(fit.fine, fit.space)
    if observed is None:
        return {}
    boxes = boxes_of(observed)
    parts = [Sample.of(fit, observed, box) for box in boxes]
    errors = [part.standardised() for part in parts]
    if sum(int(np.isfinite(u).sum()) for u in errors) < FEWEST:
        return {}
    columns = {
        name: np.concatenate(
            [part.along[name][np.isfinite(u)] for part, u in zip(parts, errors, strict=True)]
        )
        for name in fit.space.names
    }
    u = np.concatenate([u[np.isfinite(u)] for u in errors])
    return {
        **_tails(u),
        "is_whole": len(boxes) == 1,
        "at": max(part.farthest(own) for part, own in zip(parts, errors, strict=True))[1],
        "repeated": sum(part.repeated() for part in parts),
        "alike": _alike(parts, errors),
        "uneven": _uneven(columns, u),
    }


@dataclass(frozen=True, eq=False)
class Sample:
    """The residuals in a box of labels.

    Attributes
    ----------
    data : DataArray, the values of the box.
    residual : ndarray, [...], in the order of the dimensions of the data; NaN of what is not fitted.
    root : ndarray, [...], roots of the weights.
    along : for each fitted coordinate its labels as floats, with the shape of the data.
    used : ndarray of bool; observations that are fitted.
    batch : dimensions of independent fits.
    """

    data: xr.DataArray
    residual: Array
    root: Array
    along: Mapping[str, Array]
    used: Array
    batch: tuple[Hashable, ...]

    @classmethod
    def of(cls, fit: Fit, observed: Observations, box: Mapping[Hashable, slice]) -> Sample:
        """Read a box and compute what the field leaves of it."""

        def within(x: xr.DataArray) -> xr.DataArray:
            return x.isel({dim: s for dim, s in box.items() if dim in x.dims}).compute()

        arrangement, space = observed.arrangement, fit.space
        batch = {dim: box[dim] for dim in arrangement.batch}
        data = within(observed.data)
        coordinates = {name: within(c) for name, c in observed.coordinates.items()}
        target = Target(coordinates, xr.Dataset(), None, False, None)
        values = evaluation.evaluate(fit, target, {}, None).isel(batch)
        values = values.drop_vars(values.coords)
        bare = data.drop_vars(data.coords)
        residual = (bare.astype(np.float64) - values).transpose(*data.dims)
        used, root = np.isfinite(residual.values), np.ones(residual.shape)
        if observed.weights is not None:
            weights = within(observed.weights)
            spread = (weights.drop_vars(weights.coords) * xr.ones_like(residual)).transpose(*data.dims)
            used &= spread.values > 0
            root = np.sqrt(np.maximum(spread.values, 0.0))
        along = {}
        for name, span in zip(arrangement.names, arrangement.spans, strict=True):
            x = xr.Variable(span, np.asarray(floats(coordinates[name], name, space, span, data.sizes)))
            along[name] = np.asarray(x.set_dims(dict(data.sizes)).transpose(*data.dims).values)
        return cls(data, np.where(used, residual.values, np.nan), root, along, used, arrangement.batch)

    def standardised(self) -> Array:
        """Return residuals over their median size, each independent fit by its own; NaN where there are too few."""
        axes = tuple(i for i, dim in enumerate(self.data.dims) if dim not in self.batch)
        count = self.used.sum(axis=axes, keepdims=True)
        size = np.abs(self.residual * self.root)
        filled = np.where(count >= FEWEST, size, 0.0)
        median = (
            np.nanmedian(np.where(self.used, filled, np.nan), axis=axes, keepdims=True) if size.size else size
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(
                (count >= FEWEST) & (median > 0), self.residual * self.root / median * MEDIAN, np.nan
            )

    def repeated(self) -> int:
        """Return how many observations have the coordinates and the value of another one; of points alone."""
        if not self.along or any(c.ndim == 1 and self.data.ndim > 1 for c in self.along.values()):
            return 0
        columns = [x[self.used] for x in self.along.values()]
        rows = np.stack([*columns, np.asarray(self.data.values)[self.used].astype(np.float64)], axis=1)
        if len(rows) < 2 or len(np.unique(rows[:, :-1], axis=0)) == len(rows):
            return 0
        return int(len(rows) - len(np.unique(rows, axis=0)))

    def farthest(self, u: Array) -> tuple[float, str]:
        """Return the largest of |u|, and the value and the labels where it is."""
        if not np.isfinite(u).any():
            return 0.0, ""
        where = np.unravel_index(int(np.nanargmax(np.abs(u))), u.shape)
        return float(abs(u[where])), text_at(self.data, where)


def text_at(data: xr.DataArray, where: tuple[Any, ...]) -> str:
    """Return a value with all its labels: ``5.01 at lat=12.5, lon=30.25``."""
    one = data.isel(dict(zip(data.dims, (int(i) for i in where), strict=True)))
    named = {name: c for name, c in one.coords.items() if c.ndim == 0}
    labels = [f"{name}={label_text(c.values[()])}" for name, c in named.items()]
    labels += [f"{dim}[{int(i)}]" for dim, i in zip(data.dims, where, strict=True) if dim not in named]
    return f"{float(one):.4g} at {', '.join(labels[:4])}"


def boxes_of(observed: Observations) -> list[dict[Hashable, slice]]:
    """Return the boxes of labels whose residuals are looked at."""
    return list(_boxes(dict(observed.data.sizes), BOXES, MOST))


def _boxes(sizes: Mapping[Hashable, int], number: int, most: int) -> Iterator[dict[Hashable, slice]]:
    """Yield boxes of labels that hold at most so many values together: all labels, or some places at random."""
    total = math.prod(sizes.values())
    if total <= most:
        yield {dim: slice(0, n) for dim, n in sizes.items()}
        return
    lengths = dict(sizes)
    while math.prod(lengths.values()) > most / number:
        longest = max(lengths, key=lambda dim: lengths[dim])
        lengths[longest] = -(-lengths[longest] // 2)
    rng = np.random.default_rng(0)
    for _ in range(number):
        first = {dim: int(rng.integers(n - lengths[dim] + 1)) for dim, n in sizes.items()}
        yield {dim: slice(i, i + lengths[dim]) for dim, i in first.items()}


# ---- one question each


def _of_neighbours(fine: Fine, space: Space) -> dict[str, Any]:
    """Return what the errors of withheld observations say, over all members with neighbours."""
    members = [member for member in fine.members if member is not None][:WITHHELD]
    if not members:
        return {}
    each = max(WITHHELD // len(members), 1)
    rng = np.random.default_rng(0)
    usual, suspects, places, count, repeated = [], [], [], 0, 0
    for member in members:
        values = member.pyramid.values[: member.pyramid.count]
        # Observations are in the order of their coordinates and values.
        same = np.all(np.diff(member.coordinates, axis=0) == 0, axis=1) & (np.diff(values) == 0)
        repeated += int(same.sum())
        own = rng.permutation(values.size)[:MOST]
        count += own.size
        furthest = own[np.argsort(-apart(member.pyramid.trees[0], values, own), kind="stable")[:each]]
        suspects.append(member.withheld(furthest))
        places.append(member.coordinates[furthest])
        usual.append((member.coordinates[own[:each]], member.withheld(own[:each])))
    largest = np.abs(np.concatenate(suspects))
    worst = np.concatenate(places)[int(np.nanargmax(largest))]
    labels = [
        f"{name}={label_text(np.asarray(space.axis(name).to_label(np.array([x]))).ravel()[0])}"
        for name, x in zip(space.names, worst, strict=True)
    ]
    u, at = np.concatenate([errors for _, errors in usual]), np.concatenate([x for x, _ in usual])
    known = np.isfinite(u)
    return {
        **_tails(u[known], largest, count),
        "is_whole": count == sum(member.pyramid.count for member in members),
        "at": f"that at {', '.join(labels)}",
        "repeated": repeated,
        "alike": {},
        "uneven": _uneven(dict(zip(space.names, at[known].T, strict=True)), u[known]),
    }


def _tails(u: Array, suspects: Array | None = None, count: int | None = None) -> dict[str, Any]:
    """Return how residuals u compare with a normal distribution.

    Their tails are those of Student's t whose share beyond three median sizes is that of the residuals; gross errors
    are those that even among so many of that distribution would not be seen.

    Parameters
    ----------
    u : ndarray, [n]
        A sample at random, in units of standard deviations.
    suspects : ndarray, [m]
        Those of `count` that seem farthest from their neighbours; None where u holds all.
    """
    u = np.abs(u[np.isfinite(u)])
    suspects = u if suspects is None else np.abs(suspects[np.isfinite(suspects)])
    count = count or u.size
    if u.size < FEWEST:
        return {"far": 0, "tails": math.nan, "freedom": math.inf, "largest": math.nan, "limit": math.nan}
    # The median of few residuals is not sure: a standard error of 1.17/√n of it, twice.
    sure = 1 + 2 * 1.17 / math.sqrt(u.size)
    scale = max(float(np.median(u)) / MEDIAN, np.finfo(float).tiny)
    far = float(np.sum(suspects > FAR * scale * sure)) / count
    heavy = far * count > stats.binom.isf(CHANCE, count, 2 * stats.norm.sf(FAR))
    freedom = _freedom(far) if heavy else math.inf
    chance = CHANCE / (2 * count)
    quantile = (
        stats.norm.isf(chance) if math.isinf(freedom) else _unit(freedom) * stats.t.isf(chance, freedom)
    )
    gross = suspects > quantile * scale * sure
    return {
        "far": int(gross.sum()),
        "tails": far if heavy else math.nan,
        "freedom": float(freedom),
        "largest": float(suspects.max(initial=0.0)) / scale,
        "limit": float(quantile * sure),
        "count": int(count),
    }


def _unit(freedom: float) -> float:
    """Return the standard deviations of a normal distribution of the same median size as Student's t."""
    return float(MEDIAN / stats.t.ppf(0.75, freedom))


def _freedom(far: float) -> float:
    """Return the degrees of freedom of a Student's t of which this share is beyond three median sizes."""

    def excess(logarithm: float) -> float:
        freedom = math.exp(logarithm)
        return 2 * float(stats.t.sf(FAR / _unit(freedom), freedom)) - far

    low, high = math.log(1.0), math.log(200.0)
    if excess(low) <= 0:
        return math.exp(low)
    return math.exp(optimize.brentq(excess, low, high)) if excess(high) < 0 else math.inf


def _alike(parts: list[Sample], errors: list[Array]) -> dict[str, float]:
    """Return the correlation of residuals of neighbours along each dimension, or of nearest points, if it matters."""
    found: dict[str, list[tuple[float, float, int]]] = {}
    for part, u in zip(parts, errors, strict=True):
        u = np.clip(u, -FAR, FAR)
        fitted = [dim for dim in part.data.dims if dim not in part.batch]
        if len(fitted) == 1 and len(part.along) > 1:
            found.setdefault("nearest points", []).append(_of_nearest(part, u))
            continue
        for dim in fitted:
            axis = part.data.dims.index(dim)
            first, second = (np.take(u, range(i, u.shape[axis] - 1 + i), axis=axis) for i in (0, 1))
            both = np.isfinite(first) & np.isfinite(second)
            product = float(np.sum(first[both] * second[both]))
            found.setdefault(str(dim), []).append(
                (product, float(np.nansum(u**2)) / max(np.isfinite(u).sum(), 1), int(both.sum()))
            )
    alike = {}
    for name, sums in found.items():
        pairs = sum(n for _, _, n in sums)
        variance = sum(v * n for _, v, n in sums)
        correlation = sum(p for p, _, _ in sums) / variance if variance else 0.0
        if correlation > max(ALIKE, stats.norm.isf(CHANCE / 4) / math.sqrt(max(pairs, 1))):
            alike[name] = float(correlation)
    return alike


def _of_nearest(part: Sample, u: Array) -> tuple[float, float, int]:
    """Return Σ u u' over nearest points, the mean of u², and how many pairs there are."""
    own = np.isfinite(u.ravel())
    points = np.stack([x.ravel()[own] for x in part.along.values()], axis=1)
    v = u.ravel()[own]
    if len(v) < FEWEST:
        return 0.0, 0.0, 0
    widths = np.maximum(points.std(axis=0), np.finfo(float).tiny)
    distance, near = cKDTree(points / widths).query(points / widths, 2)
    pairs = distance[:, 1] > 0
    return float(np.sum((v * v[near[:, 1]])[pairs])), float(np.mean(v**2)), int(pairs.sum())


def _uneven(columns: Mapping[str, Array], u: Array) -> dict[str, float]:
    """Return how many times noise is larger in one part of a coordinate than in another, where that is no chance."""
    uneven = {}
    size = np.minimum(np.abs(u), FAR)
    for name, x in columns.items():
        if size.size < PARTS * FEWEST or np.ptp(x) == 0:
            continue
        edges = np.unique(np.quantile(x, np.linspace(0, 1, PARTS + 1)[1:-1]))
        number = np.searchsorted(edges, x, side="right")
        groups = [size[number == k] for k in np.unique(number)]
        groups = [group for group in groups if group.size >= FEWEST]
        if len(groups) < 2:
            continue
        medians = [float(np.median(group)) for group in groups]
        ratio = max(medians) / max(min(medians), np.finfo(float).tiny)
        if ratio > UNEVEN and float(stats.f_oneway(*groups).pvalue) < CHANCE / 100:
            uneven[name] = ratio
    return uneven
