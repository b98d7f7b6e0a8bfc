"""Values of linear functionals of a field, with their standard errors and covariances, as labelled arrays.

The errors of terms and fine field together follow from how errors of many places go with each other.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import xarray as xr

from xspline.kriging import functionals
from xspline.kriging.functionals import Terms
from xspline.kriging.nearby import SANDWICHED, Nearby
from xspline.labels import evaluation, uncertainty
from xspline.labels.fine.field import Fine, active_functions
from xspline.labels.fit import Fit
from xspline.labels.functionals.marginals import Array, Marginal
from xspline.labels.read.targets import Target
from xspline.labels.uncertainty import MAX_PAIRS, Requested
from xspline.solve import TooLargeError
from xspline.solve.progress import counted


@dataclass(frozen=True, eq=False)
class Functional:
    """Linear functionals of a field, one for each of their labels."""

    # the parts along the coordinates, of which it is the product; together they have all coordinates
    marginals: tuple[Marginal, ...]
    target: Target  # labels of what is left of the coordinates; of the others a label without a dimension
    extra: xr.Dataset  # labels of other dimensions, as of several regions
    gone: tuple[str, ...]  # coordinates that are averaged over
    name: str  # a pattern for the name of the result
    long_name: str  # a pattern for its long name
    units: tuple[tuple[str, int], ...]  # units of what it is integrated over, with their powers
    call: str  # what the history says

    def evaluated(
        self, fit: Fit, requested: Requested | None, *, covariance: bool = False, device: str | None = None
    ) -> list[xr.DataArray]:
        """Return the values, with their standard error, and covariance, where these are requested."""
        marginals = [(tuple(map(fit.space.names.index, m.names)), m.rows) for m in self.marginals]
        known, finite = [], []
        for axes, rows in marginals:
            good = np.isfinite(rows).reshape(len(rows), -1).all(axis=1)
            known.append((axes, np.where(good.reshape(-1, *(1,) * (rows.ndim - 1)), rows, 0.0)))
            finite.append(good)
        outside = ~functools.reduce(np.multiply.outer, finite, np.ones((), bool))
        values = uncertainty.applied(known, np.asarray(fit.coefficients))
        if fit.whole is not None:
            values = values + self._fine(fit)
        results = [self._labelled(fit, self._masked(values, outside), "")]
        if requested is None:
            return results
        if fit.whole is None:
            parts, attrs = uncertainty.functional_roots(fit, known, requested, device)
            variance, square = self._sums(fit, parts, len(known), covariance)
        else:
            attrs = uncertainty.beside_fine(requested)
            variance, square = variances(fit, self.marginals, covariance=covariance)
        results.append(
            self._labelled(fit, np.sqrt(self._masked(variance, outside)), "_stderr").assign_attrs(attrs)
        )
        if covariance:
            both = outside.ravel()[:, None] | outside.ravel()
            square = self._masked(square, both)
            square = square.reshape((*outside.shape, *outside.shape, *fit.variable.batch_shape))
            results.append(self._labelled(fit, square, "_covariance").assign_attrs(attrs))
        return results

    @staticmethod
    def _masked(values: Array, outside: Array) -> Array:
        return np.where(
            outside.reshape((*outside.shape, *(1,) * (values.ndim - outside.ndim))), np.nan, values
        )

    @staticmethod
    def _sums(fit: Fit, parts: Iterator[Array], axes: int, covariance: bool) -> tuple[Array, Array]:
        """Return sums of squares [n.., b..] of roots, and of products [N, N, b..] where a covariance is requested."""
        variance, square = np.zeros(()), np.zeros(())
        for part in parts:
            variance = variance + np.sum(part**2, axis=axes)
            if covariance:
                flat = part.reshape(-1, *part.shape[axes:])
                nbytes = 8 * len(flat) ** 2 * math.prod(part.shape[axes + 1 :])
                if nbytes > MAX_PAIRS:
                    raise TooLargeError(
                        f"the covariance of {len(flat):,} labels of {fit.name!r} takes {nbytes / 2**30:.1f} GiB, more "
                        f"than {MAX_PAIRS / 2**30:.0f}; pass fewer labels, or functional(weights) of what it is for"
                    )
                square = square + np.einsum("im...,jm...->ij...", flat, flat)
        return variance, square

    def _fine(self, fit: Fit) -> Array:
        """Return the functionals of the fine field by quadrature, [n.., b..]."""
        if fit.whole is None or fit.whole.first is None:
            return np.zeros(())
        batch = fit.variable.batch_sizes
        coordinates, weights = {}, []
        for k, m in enumerate(self.marginals):
            dims = [f"label {k}" if m.weights is None else f"node {k} {name}" for name in m.names]
            for name, dim, x in zip(m.names, dims, m.nodes, strict=True):
                coordinates[name] = xr.DataArray(fit.space.axis(name).to_label(x), dims=[dim])
            if m.weights is not None:
                shape = (f"label {k}", *dims)
                weights.append(xr.DataArray(np.nan_to_num(m.weights), dims=shape))
        ordered = {name: coordinates[name] for name in fit.space.names}
        at = Target(ordered, xr.Dataset(), None, True, None)
        values = fit.whole.values(fit.space, at, batch, {})
        order = [f"label {k}" for k in range(len(self.marginals))]
        return np.asarray(
            xr.dot(values, *weights, dim=[d for d in values.dims if str(d).startswith("node")]).transpose(
                *order, *batch
            )
        )

    def _labelled(self, fit: Fit, values: Array, kind: str) -> xr.DataArray:
        """Return an array with the labels of the functionals; of a covariance with two of each."""
        dims = [dim for m in self.marginals for dim in m.dims]
        shape = [n for m in self.marginals for n in m.shape]
        variable, twice = fit.variable, kind == "_covariance"
        ordered = [*self.extra.sizes, *evaluation.ordered_dims(self.target, variable)]
        second = [f"{dim}_" for dim in dims] if twice else []
        full = values.reshape((*shape, *(shape if twice else ()), *variable.batch_shape))
        name = self.name.format(variable.name)
        result = xr.DataArray(full, dims=[*dims, *second, *variable.batch_dims], name=name)
        both = [f"{d}_" for d in ordered if f"{d}_" in second]
        result = result.transpose(*(d for d in ordered if d in dims), *both, *variable.batch_dims)
        if not twice:
            result = result.transpose(*ordered)
        # Along a track, what is averaged over is the name of the dimension that its places keep.
        left = {n: c for n, c in self.target.coordinates.items() if n not in self.gone}
        result = evaluation.labelled(result, replace(self.target, coordinates=left), fit, {})
        result = result.drop_vars(self.gone, errors="ignore")
        result = result.assign_coords({n: c.variable for n, c in self.extra.coords.items()})
        for dim in dims if twice else ():
            own = {n: c for n, c in result.coords.items() if c.dims == (dim,)}
            result = result.assign_coords({f"{n}_": (f"{dim}_", c.values) for n, c in own.items()})
        units = evaluation.times(variable.units, self.units)
        if twice and units:
            units = "1" if units == "1" else f"({units})2"
        of = {"": "", "_stderr": "standard error of ", "_covariance": "covariance of errors of "}[kind]
        long_name = of + self.long_name.format(result.attrs.get("long_name", name))
        result.attrs = evaluation.attributes(units, long_name, variable.history, self.call)
        return result.rename(f"{name}{kind}")


def scaled(functional: Functional, factor: float) -> Functional:
    """Return functionals times a number."""
    first, *others = functional.marginals
    weights = None if first.weights is None else first.weights * factor
    return replace(functional, marginals=(replace(first, rows=first.rows * factor, weights=weights), *others))


def variances(fit: Fit, marginals: Sequence[Marginal], *, covariance: bool) -> tuple[Array, Array]:
    """Return the variances [n.., b..] of functionals of a whole field, and where requested the covariance [N, N, b..].

    Raises
    ------
    ValueError : observations that are not in memory, as errors take all of them.
    TooLargeError : more labels than the covariance between them has memory for.
    """
    fine, counts = _in_memory(fit), [len(m.rows) for m in marginals]
    total, batch = math.prod(counts), fit.variable.batch_shape
    pyramids = [member.pyramid for member in fine.members if member is not None]
    items = max((pyramid.values.size for pyramid in pyramids), default=1)
    nodes = math.prod(_nodes(m, np.arange(len(m.rows)))[1].shape[1] for m in marginals)
    # Of each sum what items and nodes count, as they are and in local scales, and twice in turn
    each = 8 * 6 * (items + nodes / total)
    step = max(int(MAX_PAIRS / each), 1)
    if covariance and total > step:
        raise TooLargeError(
            f"the covariance of {total:,} labels of {fit.name!r} takes {total * each / 2**30:.1f} GiB, as errors take "
            f"all of {items:,} observations and cells, more than {MAX_PAIRS / 2**30:.0f}; pass fewer labels, or "
            "functional(weights) of what it is for"
        )
    observations = max((pyramid.count for pyramid in pyramids), default=1)
    if not covariance and observations <= SANDWICHED:
        # All pairs of places are looked at: those of a few sums, with about as many nodes as there are observations.
        places = min(items, 2 * SANDWICHED - observations)
        step = min(step, max(int(places * total / max(nodes, 1)), 1))
    variance, square = np.full((total, len(fine.members)), np.nan), np.zeros(())
    for first in counted(total, step, "errors of functionals"):
        own = np.arange(first, min(first + step, total))
        each = [_covariance(fit, member, k, marginals, own) for k, member in enumerate(fine.members)]
        variance[own] = np.stack([np.diagonal(x) for x in each], axis=-1)
        square = np.stack(each, axis=-1).reshape(own.size, own.size, *batch)
    return variance.reshape(*counts, *batch), square


def _in_memory(fit: Fit) -> Fine:
    if fit.whole is None or fit.whole.in_tiles:
        raise ValueError(
            f"the errors of means of {fit.name!r} take all observations at once, and those of data that are not in "
            "memory are read in tiles; pass stderr=False, fit the region alone, data.sel(...).load(), take a term, "
            "field.select(time=xs.Polynomial).mean(...), or a single field, fit(..., fine=False)"
        )
    return fit.whole


def _covariance(
    fit: Fit, member: Nearby | None, number: int, marginals: Sequence[Marginal], own: Array
) -> Array:
    """Return the covariance of some functionals of one member of a batch."""
    if member is None:
        return np.full((own.size, own.size), np.nan)
    rows = np.unravel_index(own, [len(m.rows) for m in marginals])
    names = [name for m in marginals for name in m.names]
    points = []
    weights = np.ones((own.size, 1))
    functions = np.ones((own.size, 1))
    axes = list[int]()
    for m, index in zip(marginals, rows, strict=True):
        at, w = _nodes(m, index)
        points.append(at)
        weights = (weights[:, :, None] * w[:, None]).reshape(own.size, -1)
        functions = (functions[:, :, None] * np.nan_to_num(m.rows[index]).reshape(own.size, 1, -1)).reshape(
            own.size, -1
        )
        axes += [fit.space.names.index(name) for name in m.names]
    grid = np.meshgrid(*(np.arange(len(at)) for at in points), indexing="ij")
    nodes = np.concatenate([at[i.ravel()] for at, i in zip(points, grid, strict=True)], axis=1)
    nodes = nodes[:, [names.index(name) for name in fit.space.names]]
    shape = [fit.space.shape[axis] for axis in axes]
    functions = np.transpose(functions.reshape(-1, *shape), (0, *(1 + np.argsort(axes))))
    used = np.isfinite(nodes).all(axis=1) & weights.any(axis=0)
    if not used.any():  # cells that no observation or function reaches
        return np.full((own.size, own.size), np.nan)
    terms = _terms(fit, number, functions.reshape(own.size, -1).T)
    return functionals.covariance(member, nodes[used], np.ascontiguousarray(weights[:, used].T), terms)


def _nodes(m: Marginal, index: Array) -> tuple[Array, Array]:
    """Return nodes [q, d] and weights [n, q] of some rows of a marginal."""
    if m.weights is None:
        chosen, own = np.unique(index, return_inverse=True)
        return np.stack([x[chosen] for x in m.nodes], axis=1), np.eye(chosen.size)[own.ravel()]
    weights = np.nan_to_num(m.weights.reshape(len(m.weights), -1))[index]
    grid = np.meshgrid(*m.nodes, indexing="ij")
    used = weights.any(axis=0)
    return np.stack([x.ravel()[used] for x in grid], axis=1), weights[:, used]


def _terms(fit: Fit, number: int, sums: Array) -> Terms:
    """Return what errors need of the terms of one member."""
    space, factorisation, batch = fit.space, fit.solved.factorisation, fit.variable.batch_shape
    axes = len(space.shape)

    def solve(r: Array) -> Array:
        solved = factorisation.solve(r.reshape(*space.shape, -1, *(1,) * len(batch)))
        full = np.broadcast_to(solved, (*solved.shape[: axes + 1], *batch))
        return np.asarray(full.reshape(space.size, full.shape[axes], -1)[..., number])

    penalised = bool(fit.known_penalty.bound(fit.total.gram, space).gram(space).terms)

    def of_member(x: Array) -> float:
        return float(np.broadcast_to(x, batch).ravel()[number])

    return Terms(
        functools.partial(active_functions, space),
        sums,
        solve,
        of_member(fit.total.weight / np.maximum(fit.total.count, 1)),
        of_member(fit.sigma() ** 2) if penalised else 0.0,
    )
