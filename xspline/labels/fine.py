"""The fine field of a bare fit: what season, trend and mean leave of the data, by what neighbours tell."""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from xspline.kriging.nearby import Nearby
from xspline.labels.read.coordinates import floats
from xspline.labels.read.targets import Target
from xspline.spaces import Space

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Fine:
    """The fine field of one variable.

    Attributes
    ----------
    members : for each member of the batch, in the order of its dimensions, what its neighbours tell; None where there
        are too few observations, or all are equal.
    names : of the coordinates.
    """

    members: tuple[Nearby | None, ...]
    names: tuple[str, ...]

    @property
    def first(self) -> Nearby:
        """A member that has a fine field."""
        return next(member for member in self.members if member is not None)

    def noise(self, shape: tuple[int, ...]) -> Array:
        """Return the variance of an observation of mean weight about the field, over the batch; NaN where unknown."""
        noise = [math.nan if member is None else member.noise for member in self.members]
        return np.array(noise).reshape(shape)

    def residuals(self, shape: tuple[int, ...]) -> tuple[Array, Array]:
        """Return degrees of freedom for each observation, and the mean weighted square of residuals, over the batch."""
        pairs = [(0.0, math.nan) if member is None else member.residuals for member in self.members]
        leverage, square = (np.array(column).reshape(shape) for column in zip(*pairs, strict=True))
        return leverage, square

    def values(
        self, space: Space, target: Target, batch: Mapping[Hashable, int], orders: Mapping[str, int]
    ) -> xr.DataArray:
        """Return values or derivatives at the labels of a target, over the dimensions of these and of the batch."""
        return self._applied(space, target, batch, orders, with_variance=False)[0]

    def errors(
        self, space: Space, target: Target, batch: Mapping[Hashable, int], orders: Mapping[str, int]
    ) -> tuple[xr.DataArray, xr.DataArray]:
        """Return the variance of the same, and how far the fine field makes good what the coarse one has wrong."""
        return self._applied(space, target, batch, orders, with_variance=True)

    def near(
        self, space: Space, target: Target, batch: Mapping[Hashable, int], distance: int
    ) -> xr.DataArray:
        """Return whether an observation is within 1 + `distance` labels or so of the labels of a target."""
        function = functools.partial(self._near, distance=1.5 * (1 + distance))
        return self._apply(function, space, target, batch, [bool])[0]

    def _applied(
        self,
        space: Space,
        target: Target,
        batch: Mapping[Hashable, int],
        orders: Mapping[str, int],
        with_variance: bool,
    ) -> tuple[xr.DataArray, ...]:
        numbered = {self.names.index(name): order for name, order in orders.items()}
        function = functools.partial(self._predicted, orders=numbered, with_variance=with_variance)
        return self._apply(function, space, target, batch, [float, float] if with_variance else [float])

    def _apply(
        self, function: Any, space: Space, target: Target, batch: Mapping[Hashable, int], types: list[type]
    ) -> tuple[xr.DataArray, ...]:
        sizes = {dim: n for c in target.coordinates.values() for dim, n in c.sizes.items()}
        shape = tuple(batch.values())
        member = xr.DataArray(np.arange(math.prod(shape)).reshape(shape), dims=tuple(batch))
        columns = []
        for name in self.names:
            own = target.coordinates[name]
            x = floats(own.drop_vars(own.coords), name, space, own.dims, sizes)
            within = functools.partial(space.within, name=name, extrapolate=target.extrapolate)
            lazy = not isinstance(x, np.ndarray)
            columns.append(xr.DataArray(x.map_blocks(within, dtype=float) if lazy else within(x), dims=own.dims))
        if target.chunks is not None:
            columns = [_chunked(column, target.chunks) for column in (*columns, member)]
        else:
            columns = [*columns, member]
        out = xr.apply_ufunc(
            function,
            *columns,
            output_core_dims=[()] * len(types),
            dask="parallelized",
            output_dtypes=types,
        )
        return out if isinstance(out, tuple) else (out,)

    def _predicted(
        self, *columns: Array, orders: Mapping[int, int], with_variance: bool
    ) -> Array | tuple[Array, Array]:
        """Predict at coordinates that broadcast against each other, the last of which numbers the members."""
        shape = np.broadcast_shapes(*(column.shape for column in columns))
        mean, variance, trust = np.full(shape, np.nan), np.full(shape, np.nan), np.zeros(shape)
        for where, points, member in self._by_member(columns, shape):
            if member is None:
                mean[where] = 0.0
                continue
            found = member.predict(points, orders, with_variance=with_variance)
            mean[where], variance[where], trust[where] = found.mean, found.variance, found.trust
        return (variance, trust) if with_variance else mean

    def _near(self, *columns: Array, distance: float) -> Array:
        shape = np.broadcast_shapes(*(column.shape for column in columns))
        near = np.zeros(shape, bool)
        for where, points, member in self._by_member(columns, shape):
            if member is not None:
                near[where] = member.distances(points) <= distance
        return near

    def _by_member(
        self, columns: Sequence[Array], shape: tuple[int, ...]
    ) -> Iterator[tuple[Any, Array, Nearby | None]]:
        """Yield for each member where its places are in the result, their coordinates, and what tells of them."""
        *coordinates, number = (np.broadcast_to(column, shape) for column in columns)
        inside = np.all([np.isfinite(c) for c in coordinates], axis=0)
        for k in np.unique(number):
            where = np.nonzero(inside & (number == k))
            if where[0].size if shape else inside:
                yield where, np.stack([c[where].ravel() for c in coordinates], axis=1), self.members[int(k)]


def _chunked(column: xr.DataArray, chunks: Any) -> xr.DataArray:
    if not isinstance(chunks, Mapping):
        return column.chunk(chunks)
    fitting = {}
    for dim, n in column.sizes.items():
        size = chunks.get(dim, -1)
        fitting[dim] = max(size, default=-1) if isinstance(size, tuple) and sum(size) != n else size
    return column.chunk(fitting)
