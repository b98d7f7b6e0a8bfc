"""Where a field is evaluated: what `at=`, labels by name, `chunks=` and `mask=` of a call mean."""

from __future__ import annotations

import difflib
import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr

from xspline.arguments import brief, is_integer
from xspline.labels.errors import check_names, unknown_name
from xspline.labels.read.cells import cells_of
from xspline.labels.read.cf import is_date, role_of
from xspline.labels.read.coordinates import floats
from xspline.labels.read.observations import is_lazily_indexed, storage_chunks
from xspline.solve.errors import warn
from xspline.spaces import Space

HEADER = re.compile(r"(.+?) \(([^()]*)\)")  # of ERDDAP: "latitude (degrees_north)"


@dataclass(frozen=True, eq=False)
class Target:
    """The labels to evaluate at."""

    coordinates: Mapping[str, xr.DataArray]  # for each fitted coordinate, in Space order, its labels
    extra: xr.Dataset  # other coordinates of the target that may label the result
    # chunk sizes by dimension, or one size for all dimensions; None where the result is in memory
    chunks: Any
    extrapolate: bool  # whether there are values outside the domains
    # which places keep their values: those within so many knot cells of an observation, those that are
    # marked, or all (None)
    mask: int | xr.DataArray | xr.Dataset | None
    # of coordinates along which values are means over cells, as observations may be
    bounds: Mapping[str, xr.DataArray] = field(default_factory=dict)
    # what fine fields say here, by field and orders of derivatives: values and errors take one look at neighbours
    known: dict[Hashable, tuple[xr.DataArray, ...]] = field(default_factory=dict)

    def floats(
        self, space: Space, name: str, span: tuple[Hashable, ...], sizes: Mapping[Hashable, int]
    ) -> Any:
        """Return the labels of a coordinate as floats, NaN where a field has no values; lazy labels stay lazy."""
        if name in self.bounds:
            return cells_of(self.coordinates[name], self.bounds[name], name, space, span, sizes)
        x = floats(self.coordinates[name], name, space, span, sizes)
        if isinstance(x, np.ndarray):
            return space.within(x, name, self.extrapolate)
        return x.map_blocks(space.within, name, self.extrapolate, dtype=float, meta=np.empty((0,) * x.ndim))

    def chunk_sizes(self, dims: tuple[Hashable, ...], shape: tuple[int, ...]) -> Any:
        """Return chunk sizes per axis as Dask reads them; a dimension that is not named is one chunk."""
        if self.chunks is None:
            return None
        if not isinstance(self.chunks, Mapping):
            return tuple(self.chunks for _ in dims)
        sizes = [self.chunks.get(dim, -1) for dim in dims]
        # Explicit sizes hold only where they add up to the new length.
        return tuple(
            max(size, default=-1) if isinstance(size, tuple) and sum(size) != n else size
            for size, n in zip(sizes, shape, strict=True)
        )


def resolve(
    space: Space,
    fitted: Mapping[str, xr.DataArray] | None,
    fitted_chunks: Mapping[Hashable, Any] | None,
    batch_dims: Iterable[Hashable],
    at: Any,
    coords: Mapping[str, Any],
    chunks: Any,
    extrapolate: bool = False,
    mask: Any = None,
) -> Target:
    """Return the target that the arguments of ``predict`` describe, as ``DataArray.interp`` reads them.

    Raises
    ------
    TypeError : `at` is nothing that names its labels.
    ValueError : a name is not fitted, a coordinate is neither given nor remembered, a label is a slice, or an object
        that has the coordinates under other names does not say which of them is meant.
    """
    _check_chunks(chunks)
    is_table, at = _is_table(at), _named(at, space)
    is_object = isinstance(at, xr.DataArray | xr.Dataset)
    given = at.variables if isinstance(at, xr.Dataset) else at.coords if is_object else at
    check_names(coords, space.names)
    for name in coords:
        if name in given:
            raise ValueError(f"{name!r} is given twice, in at= and as {name}=...; drop it from one of them")
    check_names(() if is_object else given, space.names)
    others = _other_names(space, at, coords) if is_object else {}
    labels = {}
    for name in space.names:
        if name in coords or (name in given and not is_object):
            own = _as_labels(name, coords[name] if name in coords else at[name], space, fitted)
        elif name in given:
            own = at[name]
        elif name in others:
            own = at[others[name]]
        elif fitted is not None and name in fitted and not (is_table and fitted[name].ndim):
            own = fitted[name]
        elif is_table:
            raise ValueError(
                f"the table has no column for {name!r} (it has {', '.join(map(repr, at.data_vars))}), and a row is one "
                f"point: rename what is meant, table.rename(columns={{...: {name!r}}}), or pass {name}=... beside it"
            )
        else:
            raise ValueError(
                f"no labels for {name!r} are remembered here; pass at= an object that has them, or {name}=..."
            )
        axis = space.axis(name)
        if axis.kind != "number" and _name_instants(own):
            own = own.copy(data=axis.to_label(axis.to_float(np.asarray(own.data, dtype=object))))
        labels[name] = own
    dims = list(dict.fromkeys([*(d for c in labels.values() for d in c.dims), *batch_dims]))
    if isinstance(chunks, Mapping):
        check_names(chunks, dims, "dimension of the result to chunk")
    elif chunks is None:
        requested = [*coords.values(), *(() if is_object else given.values())]
        if is_object:
            chunks = target_chunks(at)
        elif lazy := [c for c in requested if getattr(c, "chunks", None) and hasattr(c, "dims")]:
            chunks = {dim: sizes for c in lazy for dim, sizes in zip(c.dims, c.chunks, strict=True)}
        else:
            chunks = None if requested else fitted_chunks
        chunks = chunks and {dim: sizes for dim, sizes in chunks.items() if dim in dims}
    extra = at.coords.to_dataset() if is_object else xr.Dataset()
    return Target(labels, extra, chunks, bool(extrapolate), checked_mask(mask))


def _check_chunks(chunks: Any) -> None:
    """Raise ValueError unless these are chunk sizes that Dask reads: "auto", -1 for one chunk, or positive integers."""

    def is_size(size: Any) -> bool:
        is_whole = is_integer(size) and size < 2**63
        named = size is None or (isinstance(size, str) and size == "auto")
        return named or bool(is_whole and (size == -1 or size > 0))

    by_name = isinstance(chunks, Mapping) and not hasattr(chunks, "dims")
    sizes = list(chunks.values()) if by_name else [chunks]
    for own in sizes:
        parts = own if isinstance(own, tuple | list) and by_name and own else [own]
        if not all(map(is_size, parts)):
            raise ValueError(
                f"chunks={brief(chunks)}: sizes are positive integers, -1 for one chunk or 'auto', for all dimensions "
                "or by name, as in chunks={'time': 10}"
            )


def checked_mask(mask: Any) -> int | xr.DataArray | xr.Dataset | None:
    """Return what `mask=` means; raise ValueError where it means nothing."""
    if isinstance(mask, str) and mask == "data":
        return 0
    is_count = is_integer(mask) and mask >= 0
    marks = mask.data_vars.values() if isinstance(mask, xr.Dataset) else (mask,)
    if mask is None or is_count or all(isinstance(m, xr.DataArray) and m.dtype == bool for m in marks):
        return int(mask) if is_count else mask
    raise ValueError(
        f"mask={brief(mask)} is none of these: 'data', a number of knot cells (0, 1, ...), or a DataArray of bool "
        "that is True where values are kept, for example sea > 0"
    )


def _named(at: Any, space: Space) -> Any:
    """Return `at` as a DataArray, a Dataset or a mapping; a table as points along its rows."""
    if at is None:
        return {}
    if isinstance(at, xr.Coordinates):
        return at.to_dataset()
    if _is_table(at):
        table = at.reset_index() if at.index.nlevels > 1 else at
        dim = table.index.name or "index"
        columns, attrs = columns_without_units(table)
        named = {name: (dim, _labels_of(own), attrs[name]) for name, own in columns.items() if name != dim}
        return xr.Dataset(named, {dim: _labels_of(table.index)})
    if isinstance(at, Mapping | xr.DataArray):
        return at
    example = ", ".join(f"{name}=[...]" for name in space.names)
    raise TypeError(
        f"at= is of type {type(at).__name__}, which does not say which coordinate its labels are of; pass labels by "
        f"name, as in predict({example}) or at=dict({example}), or an xarray object or a pandas DataFrame that has them"
    )


def _is_table(at: Any) -> bool:
    """Return whether this is a DataFrame of pandas, or of what has its methods."""
    return hasattr(at, "columns") and hasattr(at, "reset_index")


def columns_without_units(table: Any) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the columns of a table by their names without units, and the attributes of each."""
    columns, attrs = {}, {}
    for place, header in enumerate(map(str, table.columns)):
        split = HEADER.fullmatch(header)
        name, units = (split[1], split[2]) if split else (header, "")
        if name in columns:
            raise ValueError(
                f"the table has two columns {name!r}; rename or drop one of them: frame.drop(columns=...)"
            )
        known = table.attrs.get(header, table.attrs.get(name, {}))
        own = {"units": units} if units and units != "UTC" else {}
        columns[name] = table.iloc[:, place]
        attrs[name] = {**own, **known} if isinstance(known, dict) else own
    return columns, attrs


def _labels_of(column: Any) -> np.ndarray:
    """Return a column of a table as an array; texts, which are objects there, as texts."""
    array = np.asarray(column)
    texts = array.dtype == object and array.size and all(isinstance(label, str) for label in array)
    return array.astype(str) if texts else array


def _other_names(
    space: Space, at: xr.DataArray | xr.Dataset, coords: Mapping[str, Any]
) -> dict[str, Hashable]:
    """Return under which other name an object has a fitted coordinate that it lacks, by its role.

    Latitude, longitude and time are recognised by their attributes (CF conventions, section 4) or usual names. A
    warning says where one name is taken for another. A coordinate that the object lacks altogether keeps its fitted
    labels, unless the object lacks all of them.

    Raises
    ------
    ValueError : several names would do, a dimension of that name has no labels, another name is nearly the missing one,
        or the object has none of the fitted coordinates.
    """
    owned = at.variables if isinstance(at, xr.Dataset) else at.coords
    unused = [name for name in owned if name not in space.names]
    missing = [name for name in space.names if name not in owned and name not in coords]
    renamed: dict[str, Hashable] = {}
    for name in missing:
        role = space.axis(name).role
        matches = [other for other in unused if role and _role(at[other]) == role]
        matches = [other for other in matches if other in at.coords] or matches
        if len(matches) > 1:
            raise ValueError(
                f"at= has no {name!r} but several coordinates of {role}: {', '.join(map(repr, matches))}; pass the "
                f"one that is meant, for example at=target.rename({matches[0]}={name!r})"
            )
        if matches:
            renamed[name] = matches[0]
            continue
        if name in at.dims:
            raise ValueError(f"dimension {name!r} of at= has no labels; pass {name}=..., or assign them")
        close = difflib.get_close_matches(name, [str(c) for c in at.xindexes if c in unused], n=1, cutoff=0.6)
        if close:
            raise ValueError(
                f"at= has no {name!r}; did you mean its {close[0]!r}? Then pass at=target.rename({close[0]}={name!r}), "
                f"else at=target.drop_vars({close[0]!r})"
            )
    if renamed:
        pairs = ", ".join(f"{other!r} for {name!r}" for name, other in renamed.items())
        names = ", ".join(f"{other}={name!r}" for name, other in renamed.items())
        warn(f"at= is read by what its coordinates are: {pairs}. To say so, rename({names})")
    if not renamed and not set(space.names).intersection(owned):
        error = unknown_name(space.names[0], "coordinate", unused or at.dims)
        raise ValueError(
            f"at= has none of the fitted coordinates {', '.join(space.names)}: {error}. Rename what is meant, or pass "
            "labels by name"
        )
    return renamed


def _role(coordinate: xr.DataArray) -> str:
    # A forecast's reference time is a date too.
    if is_date(coordinate):
        return "time" if coordinate.attrs.get("standard_name", "time") == "time" else ""
    return role_of(coordinate) if coordinate.dtype.kind in "iuf" else ""


def _name_instants(labels: xr.DataArray) -> bool:
    """Return whether these are texts, or have a time zone: they become the instants, in UTC, that they name."""
    if labels.dtype == object and labels.chunks is None:
        return any(isinstance(x, str) or getattr(x, "tzinfo", None) for x in labels.values.flat)
    return not isinstance(labels.dtype, np.dtype) or labels.dtype.kind in "US"


def _as_labels(
    name: str, value: Any, space: Space, fitted: Mapping[str, xr.DataArray] | None
) -> xr.DataArray:
    """Return labels given as a DataArray, a Variable, a tuple of one, a scalar, or a sequence along that dimension.

    A scalar and a sequence, which have no attributes, are in the units of the fit, and get those of its coordinate.
    """
    if isinstance(value, slice):
        raise ValueError(
            f"{name}={value} is a slice; pass the labels themselves, for example np.linspace(lo, hi, n)"
        )
    if value is None:
        raise ValueError(f"{name}=None holds no labels; leave {name} out to keep the fitted ones")
    if isinstance(value, xr.DataArray):
        return value
    if isinstance(value, tuple) and len(value) in (2, 3) and isinstance(value[0], str) and np.ndim(value[1]):
        value = xr.Variable(*value)
    if isinstance(value, xr.Variable):
        return xr.DataArray(value)
    if isinstance(value, Mapping):
        raise TypeError(f"{name}={brief(value)} holds no labels; pass a DataArray or a list of them")
    try:
        array = np.asarray(value)
        labels = xr.DataArray(array, dims=(name,) if array.ndim else ()) if array.ndim < 2 else None
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}={brief(value)} holds no labels ({error}); pass a list of them") from error
    if labels is None:
        raise ValueError(f"{name} is an array of {array.ndim} dimensions without names; pass a DataArray")
    known = {} if fitted is None or name not in fitted else fitted[name].attrs
    if known.get("units", "") == space.axis(name).units:
        labels.attrs = {key: known[key] for key in known if key not in ("bounds", "climatology")}
    return labels


def target_chunks(data: xr.DataArray | xr.Dataset) -> Mapping[Hashable, Any] | None:
    """Return the chunks of a lazy object by dimension; None for one in memory."""
    if isinstance(data, xr.Dataset):
        variables = [*data.data_vars.values(), *data.coords.values()]
        lazy = [chunks for chunks in map(target_chunks, variables) if chunks is not None]
        return {dim: sizes for chunks in lazy for dim, sizes in chunks.items()} if lazy else None
    if data.chunks is not None:
        return dict(zip(data.dims, data.chunks, strict=True))
    if data.ndim and is_lazily_indexed(data):
        stored = storage_chunks(data)
        return dict(zip(data.dims, stored or data.shape, strict=True))
    return None
