"""The fine field of a bare fit: what season, trend and mean leave of the data, by what neighbours tell."""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import xarray as xr

from xspline.kriging.nearby import DENSE, Nearby
from xspline.labels.read.targets import Target
from xspline.spaces import Space
from xspline.threads import on_one_core

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Fine:
    """The fine field of one variable."""

    # for each member of the batch, in the order of its dimensions, what its neighbours tell; None where there
    # are too few observations, or all are equal
    members: tuple[Nearby | None, ...]
    names: tuple[str, ...]  # of the coordinates
    in_tiles: ClassVar[bool] = False  # whether observations are read where they are needed

    @property
    def first(self) -> Nearby | None:
        """A member that has a fine field, if any has."""
        return next((member for member in self.members if member is not None), None)

    def to_arrays(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return the observations of all members as arrays, one behind the other, and everything else as plain data."""
        stored = [None if member is None else member.to_arrays() for member in self.members]
        parts = [both[0] for both in stored if both is not None]
        empty = {"coordinates": np.zeros((0, len(self.names))), "values": np.zeros(0), "weights": np.zeros(0)}
        columns = {
            name: np.concatenate([none, *(part[name] for part in parts)]) for name, none in empty.items()
        }
        counts = [0 if both is None else len(both[0]["values"]) for both in stored]
        metas = [None if both is None else both[1] for both in stored]
        return columns, {"names": list(self.names), "counts": counts, "members": metas}

    @classmethod
    def from_arrays(cls, columns: Mapping[str, Array], meta: Mapping[str, Any], space: Space) -> Fine:
        """Inverse of `to_arrays`."""
        ends = np.cumsum(meta["counts"])
        members: list[Nearby | None] = []
        for own, end, count in zip(meta["members"], ends, meta["counts"], strict=True):
            if own is None:
                members.append(None)
                continue
            part = {name: np.ascontiguousarray(x[end - count : end]) for name, x in columns.items()}
            rows = fitted_rows(space, part["coordinates"])
            members.append(Nearby.from_arrays(part, own, rows))
        return cls(tuple(members), tuple(meta["names"]))

    def scales(self, space: Space) -> dict[str, xr.DataArray]:
        """Return standard deviation, smoothness and correlation lengths of each scale, the latter in labels too.

        A length along longitude is in degrees of a great circle. Of several models it is the likeliest, and of
        members whose covariances differ that of the first.
        """
        first = self.first
        if first is None:
            return {}
        names = first.places.names(space.names)
        along = sorted(names, key=space.names.index)
        index = [int(np.flatnonzero(first.places.links == names.index(name))[0]) for name in along]
        best = int(np.argmax([weight for weight, _ in first.models]))
        model = first.likeliest
        labels = [f"{k + 1}" for k in range(len(model.variances))]
        lengths = model.lengths[:, index]
        counted = {space.names[j] for j, *_ in first.places.counted}
        angles = [space.axis(name).role in ("latitude", "longitude") for name in along]
        unit = [first.places.degrees if is_angle else 1.0 for is_angle in angles]
        steps = np.array([first.steps[space.names.index(name)] for name in along]) * unit
        dims = ("scale", "along")
        coords = {"scale": labels, "along": along}
        deviation = np.sqrt(model.variances * first.mean_scales[best])
        named = {
            "fine_sd": (deviation, "standard deviation of the fine field at this scale", dims[:1]),
            "fine_smoothness": (model.smoothness, "smoothness of its Matérn covariance", dims[:1]),
            "fine_length": (
                np.where([name in counted for name in along], np.nan, lengths),
                "correlation length, in units of the coordinate; NaN where labels are counted",
                dims,
            ),
            "fine_length_in_labels": (lengths / steps, "correlation length, in steps of labels", dims),
        }
        return {
            name: xr.DataArray(x, {d: coords[d] for d in over}, over, attrs={"long_name": text})
            for name, (x, text, over) in named.items()
        }

    def text(self, space: Space, units: str) -> list[str]:
        """Return a line for each scale."""
        table, lines = self.scales(space), []
        if not table:
            return ["none: there are fewer than three values that differ"]
        for k in range(table["fine_sd"].size):
            scale = {name: x.isel(scale=k) for name, x in table.items()}
            lengths = []
            for name in scale["fine_length"]["along"].values:
                length = float(scale["fine_length"].sel(along=name))
                in_labels = f"{float(scale['fine_length_in_labels'].sel(along=name)):.2g} labels"
                axis = space.axis(str(name))
                if axis.kind != "number":
                    with_unit = f"{length / 86_400:.3g} days"
                else:
                    unit = "°" if axis.role in ("latitude", "longitude") else axis.units
                    with_unit = f"{length:.3g} {unit}".rstrip()
                known = in_labels if math.isnan(length) else f"{with_unit} ({in_labels})"
                lengths.append(f"{name} {known}")
            deviation = f"{float(scale['fine_sd']):.3g} {units}".rstrip()
            lines.append(
                f"standard deviation {deviation}, correlation lengths {', '.join(lengths)}, "
                f"smoothness {float(scale['fine_smoothness']):.2g}"
            )
        members = [member.likeliest.parameters for member in self.members if member is not None]
        if apart := sum(not np.array_equal(own, members[0]) for own in members):
            lines.append(
                f"{apart} of {len(members)} fields have a covariance of their own; these lines tell the first"
            )
        return lines

    @property
    def degrees(self) -> Array:
        """Degrees of freedom by which errors of each member are known; NaN where there is no fine field."""
        return np.array([math.nan if member is None else member.degrees for member in self.members])

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
        if (known := target.known.get(self._key(orders))) is not None:
            return known[0]
        return self._applied(space, target, batch, orders, with_variance=False)[0]

    def errors(
        self, space: Space, target: Target, batch: Mapping[Hashable, int], orders: Mapping[str, int]
    ) -> tuple[xr.DataArray, ...]:
        """Return the variance of the same, and how far the fine field makes good what the coarse one has wrong.

        Beside them, the variance of observations there about the field, over that of all.
        """
        key = self._key(orders)
        if key not in target.known:
            target.known[key] = self._applied(space, target, batch, orders, with_variance=True)
        return target.known[key][1:]

    def _key(self, orders: Mapping[str, int]) -> Hashable:
        return id(self), frozenset(orders.items())

    def near(
        self, space: Space, target: Target, batch: Mapping[Hashable, int], distance: int
    ) -> xr.DataArray:
        """Return whether an observation is within 1 + `distance` labels or so of the labels of a target."""
        function = functools.partial(Fine._near, distance=1.5 * (1 + distance))
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
        function = functools.partial(Fine._predicted, orders=numbered, with_variance=with_variance)
        return self._apply(function, space, target, batch, [float] * (4 if with_variance else 1))

    def _apply(
        self, function: Any, space: Space, target: Target, batch: Mapping[Hashable, int], types: list[type]
    ) -> tuple[xr.DataArray, ...]:
        """Apply a function of a fine field, of columns of coordinates, and of numbers of members."""
        shape = tuple(batch.values())
        member = xr.DataArray(np.arange(math.prod(shape)).reshape(shape), dims=tuple(batch))
        columns = [*self._columns(space, target), member]
        own = functools.partial(function, self)
        if target.chunks is not None:
            own = functools.partial(on_one_core, own)
            sizes_of = [target.chunk_sizes(column.dims, column.shape) for column in columns]
            columns = [
                c.chunk(dict(zip(c.dims, n, strict=True))) for c, n in zip(columns, sizes_of, strict=True)
            ]
        out = xr.apply_ufunc(
            own, *columns, output_core_dims=[()] * len(types), dask="parallelized", output_dtypes=types
        )
        return out if isinstance(out, tuple) else (out,)

    def _columns(self, space: Space, target: Target) -> list[xr.DataArray]:
        """Return the labels of each coordinate of a target as floats."""
        sizes = {dim: n for c in target.coordinates.values() for dim, n in c.sizes.items()}
        spans = [target.coordinates[name].dims for name in self.names]
        return [
            xr.DataArray(target.floats(space, name, span, sizes), dims=span)
            for name, span in zip(self.names, spans, strict=True)
        ]

    def _predicted(
        self, *columns: Array, orders: Mapping[int, int], with_variance: bool
    ) -> Array | tuple[Array, Array, Array, Array]:
        """Predict at coordinates that broadcast against each other, the last of which numbers the members."""
        shape = np.broadcast_shapes(*(column.shape for column in columns))
        mean, variance, noise = (np.full(shape, np.nan) for _ in range(3))
        trust = np.zeros(shape)
        for where, points, member in self._by_member(columns, shape):
            if member is None:
                mean[where] = 0.0
                continue
            predicted = member.predict(points, orders, with_variance=with_variance)
            mean[where], variance[where], trust[where], _, noise[where] = predicted
        return (mean, variance, trust, noise) if with_variance else mean

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
            chosen = np.asarray(inside & (number == k))
            where = np.nonzero(chosen) if shape else ...
            if chosen.any():
                points = [np.asarray(c[where]).ravel() for c in coordinates]
                yield where, np.stack(points, axis=1), self.members[int(k)]


def active_functions(space: Space, points: Array) -> tuple[Array, Array]:
    """Return the functions that are not zero at points [n, d] of the domain, and their numbers, as [n, q] both."""
    values = np.ones((len(points), 1))
    number = np.zeros(values.shape, np.int64)
    for x, features in zip(points.T, space.features, strict=True):
        cell, z = features.locate(x)
        everywhere = features.support.everywhere
        near = features.first[cell][:, None] + np.arange(features.support.near)
        near = everywhere + near % (features.size - everywhere)
        own = np.concatenate([near, np.tile(np.arange(everywhere), (len(x), 1))], axis=1)
        values = (values[:, :, None] * features.features(cell, z)[:, None]).reshape(len(x), -1)
        number = (number[:, :, None] * features.size + own[:, None]).reshape(len(x), -1)
    return values, number


def rows_of(space: Space, points: Array) -> Array:
    """Return the functions of a space at points [n, d] of its domain, as [n, P]."""
    rows = np.zeros((len(points), space.size))
    values, number = active_functions(space, points)
    np.add.at(rows, (np.arange(len(points))[:, None], number), values)
    return rows


def fitted_rows(space: Space, points: Array) -> Array | None:
    """Return what the functions that were fitted to few observations span, orthonormal, [n, p]; None of many.

    Those of so few values that they hardly tell of all functions are taken to tell of the constant alone. Of some that
    are one at these places, as those of four splines are at three labels, fewer are left: the likelihood of what
    they leave would be that of rounding errors.
    """
    if len(points) > DENSE:
        return None
    if 2 * math.prod(space.shape) > len(points):
        return np.ones((len(points), 1))
    spanned, sizes, _ = np.linalg.svd(rows_of(space, points), full_matrices=False)
    return np.ascontiguousarray(spanned[:, sizes > math.sqrt(np.finfo(float).eps) * sizes[0]])
