"""Fits that gross errors do not spoil: weights from residuals, and observations that neighbours contradict."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import xarray as xr

from xspline.kriging.pyramid import metric_of
from xspline.labels import evaluation
from xspline.labels.checks.look import Sample, boxes_of
from xspline.labels.field import Field
from xspline.labels.fine.in_memory import places_of
from xspline.labels.fit import Fit
from xspline.labels.read.observations import Observations, is_lazily_indexed, storage_chunks
from xspline.labels.read.targets import Target, target_chunks
from xspline.residuals.assumptions import FAR, FEWEST, MEDIAN, SURELY, mostly_equal
from xspline.residuals.screening import apart, tree_of
from xspline.solve.smoothing.choose import CLOSE
from xspline.solve.smoothing.resolution import SEEN
from xspline.spaces import Space

Array = np.ndarray
#: Standard deviations from which a residual has no weight; it has all of it where it is not `FAR`.
NONE = 10.0
#: Passes over the data at most; a scale of residuals that changes by no more than `CLOSE` ends them.
PASSES = 10


#: Fits the same functions to other observations, with neighbours or without: (observed, neighbours=True) -> field.
Solver: TypeAlias = Callable[..., Field[Any]]
#: What residuals are weighed by: a fit and their scales.
Weighing: TypeAlias = tuple[Fit, xr.DataArray]


def reweighted(solved: Solver, observed: list[Observations]) -> tuple[Field[Any], list[Observations]]:
    """Return a field of functions whose large residuals count less, and the weighted observations.

    Residuals give weights, and weights a field, until the scale of residuals settles. Its `passes` say how often. Where
    it has settled the weights stay, so that they do not depend on other variables or members of a batch.
    """
    observed = [_readable(o) for o in observed]
    weighted, plain = observed, None
    before, settled = list[Weighing](), [np.zeros((), bool)]
    for passes in range(1, PASSES + 1):
        field = solved(weighted)
        plain = plain or field
        fits = [field.fits[o.name] for o in observed]
        now = [(fit, _scale(o, fit)) for o, fit in zip(observed, fits, strict=True)]
        if before:
            scales = ((own, old) for (_, own), (_, old) in zip(now, before, strict=True))
            settled = [np.isclose(*each, CLOSE, 0, equal_nan=True) for each in scales]
            now = [_kept(*each) for each in zip(now, before, settled, strict=True)]
        if all(own.all() for own in settled) or passes == PASSES:
            break
        weighted = [_weighted(o, *own) for o, own in zip(observed, now, strict=True)]
        before = now
    equal = {o.name: bool(np.isinf(scale).any()) for o, (_, scale) in zip(observed, now, strict=True)}
    return field._as_robust(passes, all(own.all() for own in settled), plain or field, equal), weighted


def _kept(now: Weighing, before: Weighing, settled: Array) -> Weighing:
    """Return what members are weighed by: what they were before, where they have settled."""
    (fit, scale), (old, old_scale) = now, before
    coefficients = np.where(settled, old.coefficients, fit.coefficients)
    return replace(fit, coefficients=coefficients), xr.where(settled, old_scale, scale)


def without_contradicted(
    solved: Solver, observed: list[Observations]
) -> tuple[Field[Any], list[Observations]]:
    """Return a field with neighbours and its observations, without those that all of their neighbours contradict.

    Observations that are far from their neighbours are left out of a first fit, and come back where it agrees with
    them.
    """

    def without(marks: list[Array]) -> list[Observations]:
        pairs = zip(observed, marks, strict=True)
        return [replace(o, data=o.data.where(xr.DataArray(~mark, dims=o.data.dims))) for o, mark in pairs]

    coarse = solved(observed, neighbours=False)
    looked_at = {o.name: _suspicious(coarse.fits[o.name], o) for o in observed}
    marked = [mark for mark, _ in looked_at.values()]
    equal = {name: is_equal for name, (_, is_equal) in looked_at.items()}
    field = solved(without(marked))
    wrong = [_contradicted(field.fits[o.name], o, mark) for o, mark in zip(observed, marked, strict=True)]
    if all(np.array_equal(a, b) for a, b in zip(wrong, marked, strict=True)):
        return field._as_robust(2, True, coarse, equal), without(marked)
    return solved(without(wrong))._as_robust(3, True, coarse, equal), without(wrong)


def _readable(observed: Observations) -> Observations:
    """Return the same observations as blocks where they are lazily indexed, so that weights go with each block."""
    data = observed.data
    if not is_lazily_indexed(data):
        return observed
    chunks = storage_chunks(data)
    return replace(
        observed, data=data.chunk("auto" if chunks is None else dict(zip(data.dims, chunks, strict=True)))
    )


def _scale(observed: Observations, fit: Fit) -> Any:
    """Return the standard deviation of residuals of weight 1 from their median size, over the batch.

    It is at least so large that what nobody sees beside the field keeps some weight; and infinite, with which all do,
    where most values are equal. Without a batch, from the boxes that :func:`xspline.labels.checks.look.look` looks at.
    """
    batch = observed.arrangement.batch
    if batch:
        residual, root = _residual(observed, fit)
        values = observed.data.drop_vars(observed.data.coords)
    else:
        parts = [Sample.of(fit, observed, box) for box in boxes_of(observed)]
        read = [(part.residual[part.used], part.root[part.used], part.values) for part in parts]
        residual, root, values = (
            xr.DataArray(np.concatenate(own), dims="n") for own in zip(*read, strict=True)
        )
        if not residual.size:
            return xr.DataArray(np.nan)
    over = [dim for dim in residual.dims if dim not in batch]
    used = residual.notnull() & (root > 0)
    residual, root, values = (own.where(used) for own in (residual, root, values))
    least = SEEN / NONE * (values - residual).std(over) * root.median(over)
    is_equal = 2 * (values == values.median(over)).sum(over) > used.sum(over)
    usual = np.maximum(abs(residual * root).median(over) / MEDIAN, least)
    return xr.where(is_equal, np.inf, usual).transpose(*batch).compute()


def _weighted(observed: Observations, fit: Fit, scale: Any) -> Observations:
    """Return observations whose weights fall with the square of residuals beyond three standard deviations.

    That is the weight which the tail of Student's t gives (Lange, Little and Taylor 1989); beyond ten there is none.
    """
    residual, _ = _residual(observed, fit)
    given = 1.0 if observed.weights is None else observed.weights.drop_vars(observed.weights.coords)
    u = abs(residual) * np.sqrt(given) / scale
    robust = xr.where(u > NONE, 0.0, (FAR / u.clip(min=FAR)) ** 2).where(np.isfinite(u), 1.0)
    weights = (given * robust).transpose(*observed.data.dims)
    return replace(observed, weights=weights)


def _residual(observed: Observations, fit: Fit) -> tuple[xr.DataArray, xr.DataArray]:
    """Return what a field leaves of its observations, lazily where they are chunked, and the roots of their weights."""
    data, weights = observed.data, observed.weights
    target = Target(observed.coordinates, xr.Dataset(), target_chunks(data), False, None, observed.bounds)
    values = evaluation.evaluate(fit, target, {}, None)
    residual = data.drop_vars(data.coords) - values.drop_vars(values.coords)
    if weights is None:
        return residual, xr.DataArray(1.0)
    return residual, xr.DataArray(np.sqrt(weights.drop_vars(weights.coords)))


# ---- fields with neighbours


def _suspicious(fit: Fit, observed: Observations) -> tuple[Array, bool]:
    """Return which observations, in the order of the data, are far from all of their neighbours.

    None is where most values of a member are equal, and whether there is such a one comes second.
    """
    sample = Sample.of(replace(fit, fine=None), observed, {dim: slice(None) for dim in observed.data.dims})
    marked, equal, all_values = np.zeros(sample.used.shape, bool), False, np.asarray(sample.data.values)
    places = places_of(fit.space)
    for where, points, values in _members(sample, fit.space, sample.used):
        if len(values) and mostly_equal(all_values[where]):
            equal = True
            continue
        at, own = places(points), np.zeros(len(values), bool)
        # Where wrong values are neighbours, some stand out only after others are gone.
        while (kept := np.flatnonzero(~own)).size > FEWEST:
            metric = metric_of(at[kept], values[kept], places.links, is_round=places.is_round)
            far = apart(tree_of(at[kept] / metric), values[kept]) > SURELY
            if not far.any():
                break
            own[kept[far]] = True
        marked[where] = own
    return marked, equal


def _contradicted(fit: Fit, observed: Observations, marked: Array) -> Array:
    """Return which of some observations a field contradicts, beyond what nobody sees, that was fitted without them."""
    sample = Sample.of(replace(fit, fine=None), observed, {dim: slice(None) for dim in observed.data.dims})
    wrong = np.zeros(marked.shape, bool)
    members = iter(fit.fine.members if fit.fine is not None else ())
    kept = _members(sample, fit.space, sample.used & ~marked)
    left_out = _members(sample, fit.space, sample.used & marked)
    for (others, _, _), (where, points, values) in zip(kept, left_out, strict=True):
        member = next(members)
        if member is None or not len(values):
            continue
        predicted = member.predict(points, {}, with_variance=True)
        # The noise is that of an observation of mean weight.
        weights = sample.root[where] ** 2 / np.mean(sample.root[others] ** 2)
        expected = np.sqrt(predicted.variance + member.noise * predicted.relative_noise / weights)
        least = SEEN * float(np.std(np.asarray(sample.data.values)[others]))
        wrong[where] = np.abs(values - predicted.mean) > np.maximum(SURELY * expected, least)
    return wrong


def _members(sample: Sample, space: Space, used: Array) -> Iterator[tuple[tuple[Array, ...], Array, Array]]:
    """Yield for each member of the batch where its observations are, their coordinates [n, d], and residuals [n]."""
    shape = [sample.data.sizes[dim] for dim in sample.batch]
    members = xr.Variable(sample.batch, np.arange(math.prod(shape)).reshape(shape))
    number = members.set_dims(dict(sample.data.sizes)).transpose(*sample.data.dims).values
    for k in range(math.prod(shape)):
        where = np.nonzero(used & (number == k))
        points = np.stack([sample.along[name][where] for name in space.names], axis=1)
        yield where, points, sample.residual[where]
