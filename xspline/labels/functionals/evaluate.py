"""Values of linear functionals of a field, with their standard errors and covariances, as labelled arrays."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import xarray as xr

from xspline.labels import evaluation, uncertainty
from xspline.labels.fit import Fit
from xspline.labels.functionals.marginals import Marginal
from xspline.labels.functionals.whole import variances
from xspline.labels.read.targets import Target
from xspline.labels.uncertainty import MAX_PAIRS, Requested
from xspline.solve import TooLargeError

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Functional:
    """Linear functionals of a field, one for each of their labels.

    Attributes
    ----------
    marginals : the parts along the coordinates, of which it is the product; together they have all coordinates.
    target : labels of what is left of the coordinates; of the others a label without a dimension.
    extra : labels of other dimensions, as of several regions.
    gone : coordinates that are averaged over.
    name, long_name, units, call : of the result: a pattern for its name, and for its long name; units of what it is
        integrated over, by power; what the history says.
    """

    marginals: tuple[Marginal, ...]
    target: Target
    extra: xr.Dataset
    gone: tuple[str, ...]
    name: str
    long_name: str
    units: tuple[tuple[str, int], ...]
    call: str

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
        batch = dict(zip(fit.variable.batch_dims, fit.variable.batch_shape, strict=True))
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
