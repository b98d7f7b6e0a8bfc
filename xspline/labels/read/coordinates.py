"""Coordinates of some data: found by name, loaded, their ranges, the dimensions they span, their labels as floats."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from xspline.kernels import Group, Layout
from xspline.labels.errors import check_names, unknown_name
from xspline.solve.errors import warn
from xspline.spaces import Axis, Basis, Regressors, Space
from xspline.spaces.basis import coordinate_in_errors, terms_of
from xspline.spaces.conversions import are_one, converted, degrees_in, units_of
from xspline.spaces.space import near_labels
from xspline.sums import Tally


def coordinate_of(
    data: xr.DataArray | xr.Dataset, name: str, *, default_labels: bool, others: Iterable[Hashable] = ()
) -> xr.DataArray:
    """Return the coordinate called `name`; a dimension without labels gets 0..n-1 where `default_labels` are allowed.

    Raises
    ------
    ValueError : the name is a data variable (`others`), is unknown (near misses are suggested), or is a dimension
        without labels while every holder has to agree on the labels.
    """
    if name in data.coords:
        return data.coords[name]
    if name in data.dims:
        if not default_labels:
            raise ValueError(
                f"dimension {name!r} has no coordinate, so holders cannot agree on its labels; "
                f"assign one first: data.assign_coords({name}=...)"
            )
        size = data.sizes[name]
        warn(f"dimension {name!r} has no coordinate; its labels are taken as 0..{size - 1}")
        return xr.DataArray(np.arange(size, dtype=float), dims=name, name=name)
    if name in others:
        raise ValueError(
            f"{name!r} is a data variable; make it a coordinate first: ds = ds.set_coords([{name!r}])"
        )
    advice = f". A variable of a Dataset becomes a coordinate of the others by ds.set_coords([{name!r}])"
    raise unknown_name(name, "coordinate", [*data.coords, *data.dims], advice)


def in_units_of(space: Space, coordinate: xr.DataArray, name: str) -> xr.DataArray:
    """Return a coordinate with its labels in the units of the space; it stays as it is where one of both has no units.

    Raises
    ------
    ValueError : the units measure different things, or are not known.
    """
    given = units_of(coordinate)
    axis = space.axis(name)
    domain = space.basis(name).domain
    if axis.kind != "number" or are_one(given, axis.units):
        return coordinate
    with coordinate_in_errors(name):
        labels = converted(coordinate.variable.data.astype(np.float64), given, axis.units)
    # Rounding errors of the conversion must not carry a label across an end of the domain.
    for end in domain or ():
        labels = np.where(abs(labels - end) <= 4 * np.spacing(abs(end)), end, labels)
    return xr.DataArray(xr.Variable(coordinate.dims, labels), name=coordinate.name)


def in_memory(coordinates: Mapping[str, xr.DataArray]) -> dict[str, xr.DataArray]:
    """Return the coordinates with their labels loaded; the chunked ones all in one compute."""
    chunked = {name: c for name, c in coordinates.items() if c.chunks is not None}
    if not chunked:
        return dict(coordinates)
    loaded = xr.Dataset({f"c{i}": c.variable for i, c in enumerate(chunked.values())}).compute()
    copies = {n: c.copy(data=loaded[f"c{i}"].variable.data) for i, (n, c) in enumerate(chunked.items())}
    return {**coordinates, **copies}


def space_over(
    bases: Mapping[str, Basis],
    coordinates: Mapping[str, xr.DataArray],
    axes: Mapping[str, Axis],
    extents: Mapping[str, tuple[float, float]],
    numbers: Callable[[str, Axis, xr.DataArray], Any],
) -> Space:
    """Return the Space of some bases; those without a domain get the range of their coordinate.

    Only coordinates of bases without a domain whose extent is not known are read. `numbers` returns the numbers whose
    range it is: labels, or the ends of their cells.
    """
    axes, extents = dict(axes), dict(extents)
    unbound = {n: c for n, c in coordinates.items() if bases[n].domain is None and c.ndim}
    for name, c in in_memory({n: c for n, c in unbound.items() if n not in extents}).items():
        extents[name] = extent_of(numbers(name, axes[name], c), axes[name], name)
    near = {}
    for name in unbound:
        with coordinate_in_errors(name):
            near[name] = near_labels(axes[name], bases[name], extents[name])
    # Labels that get an epoch are read again, now exactly.
    for name, c in in_memory({n: unbound[n] for n, axis in near.items() if axis.epoch}).items():
        axes[name] = near[name]
        extents[name] = extent_of(numbers(name, near[name], c), near[name], name)
    return Space(bases, axes=axes, extents=extents)


def extent_of(x: np.ndarray, axis: Axis, name: str) -> tuple[float, float]:
    """Return (lowest, highest) of the finite labels; for a longitude the smallest arc that holds them all.

    A longitude whose labels close the circle has the extent (0, 360).
    """
    x = x[np.isfinite(x)]
    if x.size == 0:
        raise ValueError(
            f"coordinate {name!r} has no valid labels, so it has no range; pass domain=(lo, hi) in its basis"
        )
    if axis.wrap is None:
        return float(x.min()), float(x.max())
    period = axis.wrap
    places = np.unique(np.mod(x, period))
    gaps = np.diff(places, append=places[0] + period)
    widest = int(np.argmax(gaps))
    if len(gaps) > 2:
        # The widest gap is no end of the labels where it is less than one and a half times the usual one (a missing
        # label would make it twice that), or less than a hundredth of the circle. Labels of curvilinear grids and of
        # points are not even: there it may be one and a half times the second widest, up to a tenth of the circle.
        others = np.delete(gaps, widest)
        uneven = min(1.5 * others.max(), period / 10)
        if gaps[widest] <= max(1.5 * np.median(others), period / 100, uneven):
            return 0.0, period
    lo = float(places[(widest + 1) % len(places)])
    span = float(period - gaps[widest])
    start = float(x.min())
    if x.max() - start <= span * (1 + 1e-12):  # labels that do not jump keep their own numbers, bit for bit
        return start, float(x.max())
    return lo, lo + span


def warn_of_degrees(coordinates: Mapping[str, xr.DataArray], axes: Mapping[str, Axis]) -> None:
    """Warn of latitudes beyond the poles, and of longitudes without units that close a circle of 2π."""
    for name, c in coordinates.items():
        axis = axes[name]
        if (
            axis.kind != "number"
            or axis.role not in ("latitude", "longitude")
            or c.chunks is not None
            or c.size < 3
        ):
            continue
        x = axis.to_float(c.values)
        low, high = float(np.nanmin(x)), float(np.nanmax(x))
        if axis.role == "latitude" and max(-low, high) * (degrees_in(axis.units) or 1.0) > 90.01:
            warn(
                f"{name!r} is taken for a latitude, and its labels go from {low:.4g} to {high:.4g}, beyond the poles: "
                "rename it if it is none, or exchange latitude and longitude"
            )
        step = (high - low) / (c.size - 1)
        closes = c.ndim == 1 and abs(high - low + step - 2 * np.pi) < 0.01 * step
        if axis.role == "longitude" and not units_of(c) and (closes or abs(high - low - 2 * np.pi) < 1e-6):
            warn(
                f"the labels of {name!r} close a circle of 2π, and are taken for degrees; say what they are by "
                f"data[{name!r}].attrs['units'] = 'radian', or 'degrees_east'"
            )


def seam_once(coordinates: Mapping[str, xr.DataArray], space: Space) -> xr.DataArray | None:
    """Return weights with which the meridian that a grid has at both ends, as at 0 and 360, counts once; else None."""
    for name, c in coordinates.items():
        period = space.axis(name).wrap
        alone = c.ndim == 1 and c.chunks is None and sum(c.dims == o.dims for o in coordinates.values()) == 1
        if not (period and alone and c.size > 2):
            continue
        x = space.axis(name).to_float(c.values)
        if abs(x[-1] - x[0]) == period == np.ptp(x):
            return xr.DataArray(np.where(np.arange(x.size) < x.size - 1, 1.0, 0.0), dims=c.dims)
    return None


@dataclass(frozen=True)
class Arrangement:
    """How the dimensions of some data meet the coordinates of a Space; `batch` are those of independent fits."""

    dims: tuple[Hashable, ...]  # dimensions of the data, in stored order
    # of each fitted coordinate, in Space order, the dimensions of its group
    spans: Mapping[str, tuple[Hashable, ...]]
    pooled: tuple[Hashable, ...]  # dimensions of repeated observations

    @property
    def batch(self) -> tuple[Hashable, ...]:
        """Dimensions that no fitted coordinate spans and that are not pooled."""
        consumed = {dim for span in self.spans.values() for dim in span} | set(self.pooled)
        return tuple(dim for dim in self.dims if dim not in consumed)

    def layout(self) -> Layout:
        """Return the same in positions of array axes, which is all that the kernels know."""
        axis = {dim: i for i, dim in enumerate(self.dims)}
        groups: dict[tuple[Hashable, ...], list[int]] = {}
        scalars = []
        for j, span in enumerate(self.spans.values()):
            if span:
                groups.setdefault(span, []).append(j)
            else:
                scalars.append(Group((), (j,)))
        spanned = [Group(tuple(axis[d] for d in span), tuple(js)) for span, js in groups.items()]
        pooled = [Group((axis[d],), ()) for d in self.pooled]
        return Layout((*spanned, *scalars, *pooled), tuple(axis[d] for d in self.batch))


def arrange(
    dims: tuple[Hashable, ...], coordinates: Mapping[str, xr.DataArray], pooled: Iterable[Hashable] = ()
) -> Arrangement:
    """Group the coordinates by the dimensions that they share.

    Raises
    ------
    ValueError : a coordinate spans a dimension that the data lack, or a pooled dimension is unknown or is spanned.
    """
    spans = [set(c.dims) for c in coordinates.values()]
    for _ in spans:  # each becomes the union of all that it is linked to by shared dimensions
        spans = [set().union(a, *(b for b in spans if a & b)) for a in spans]
    for name, span in zip(coordinates, spans, strict=True):
        if missing := span - set(dims):
            raise ValueError(
                f"coordinate {name!r} spans {sorted(map(str, missing))}, but the data have dimensions {dims}"
            )
    pooled = tuple(pooled)
    check_names(pooled, dims, "dimension")
    for dim in pooled:
        if any(dim in span for span in spans):
            raise ValueError(
                f"dimension {dim!r} is spanned by a fitted coordinate, so it cannot be pooled; leave out {dim}=None"
            )
    ordered = (tuple(d for d in dims if d in span) for span in spans)
    return Arrangement(tuple(dims), dict(zip(coordinates, ordered, strict=True)), pooled)


def floats(
    coordinate: xr.DataArray,
    name: str,
    space: Space,
    span: tuple[Hashable, ...],
    sizes: Mapping[Hashable, int],
    as_stored: bool = False,
) -> Any:
    """Return a coordinate as floats of its axis over its whole group: NumPy, or a lazy array where it is chunked.

    Lazy numbers stay `as_stored`, in single precision too, for one task to read them with its values.

    Raises
    ------
    ValueError : its units measure something else, or another coordinate has another length along one of its dimensions.
    """
    for dim, n in coordinate.sizes.items():
        if n != sizes[dim]:
            raise ValueError(
                f"coordinate {name!r} has {n} labels along {dim!r}, where others have {sizes[dim]}; coordinates that "
                "share a dimension are points, one label of each for every point: pass as many of each, or name the "
                "dimensions differently for a grid"
            )
    coordinate = in_units_of(space, coordinate, name)
    full = coordinate.variable.set_dims({dim: sizes[dim] for dim in span}).transpose(*span)
    if coordinate.chunks is None:
        return space.to_float(name, full.values)
    if as_stored and space.axis(name).kind == "number" and full.dtype in (np.float32, np.float64):
        return full.data
    convert = functools.partial(space.to_float, name)
    return full.data.map_blocks(convert, dtype=float, meta=np.empty((0,) * full.ndim))


def warn_left_out(
    tallies: Mapping[str, Tally], space: Space, labels: Mapping[str, xr.DataArray] | None
) -> None:
    """Warn of observations that were left out although nobody asked for that.

    These have labels that are NaN, NaT or infinite, or lie outside a domain that came from other data or outside the
    record of an index. A domain that somebody wrote down is there to leave observations out.
    """
    for name, tally in tallies.items():
        if tally.unlabelled:
            warn(
                f"{name}: {tally.unlabelled} observations were left out because a label is NaN, NaT or infinite; drop "
                "or mend them, to be sure which ones they are"
            )
    outside = max((tally.outside for tally in tallies.values()), default=0)
    loaded = {n: c for n, c in (labels or {}).items() if outside and c.chunks is None}
    for name, c in loaded.items():
        domain = space.features[space.names.index(name)].domain
        regressed = any(isinstance(term, Regressors) for term in terms_of(space.basis(name)))
        if domain is None or not (name in space.from_data or regressed):
            continue
        x = space.to_float(name, in_units_of(space, c, name).values)
        low, high = (space.axis(name).text(end) for end in domain)
        lost = int(np.sum((x < domain[0]) | (x > domain[1])))
        if lost and regressed:
            warn(
                f"{lost} of {c.size} labels of {name!r} lie outside {low} to {high}, which the record of the indices "
                "and the domain of other terms hold, and their observations were left out; pass longer indices to "
                "xs.Regressors, or select the data first"
            )
        elif lost:
            warn(
                f"{lost} of {c.size} labels of {name!r} lie outside its domain {low} to {high}, which came from other "
                "data, and their observations were left out; agree on a domain that holds all of them, as in "
                f"xs.BSpline(n, domain=(lo, hi)), or select the data first"
            )
