"""One variable's observations, their weights and holders, as the execution reads them, and the labels for outputs."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from xspline.execution import HolderCodes, Source, resources, to_host, type_of_blocks
from xspline.labels.errors import check_names, label_text, place
from xspline.labels.read.cells import cells_of, over_cells
from xspline.labels.read.cf import auxiliary, cf_axis, hidden_axes
from xspline.labels.read.coordinates import Arrangement, arrange, floats, seam_once
from xspline.labels.read.memory import AR1, obstacle_to_series, splines_in
from xspline.labels.read.stored.chunks import reusing
from xspline.residuals.assumptions import MOST
from xspline.solve.errors import warn
from xspline.spaces import Space
from xspline.spaces.means import middle
from xspline.sums.memory import Series

UNNAMED = "field"  # what an unnamed variable is called
_TEXTS = ("name", "units", "long_name", "standard_name", "history")


@dataclass(frozen=True, eq=False)
class Variable:
    """What the labels say of one fitted variable.

    Attributes
    ----------
    name, units, long_name, standard_name, history : name and attributes of the data.
    dims : dimensions of the data, in stored order.
    spans : for each fitted coordinate, its own dimensions.
    batch : coordinates over batch dimensions, as a Dataset without variables.
    batch_dims, batch_shape : batch dimensions and their lengths, in the order of the last axes of the sums.
    """

    name: str
    units: str
    long_name: str
    standard_name: str
    history: str
    dims: tuple[Hashable, ...]
    spans: tuple[tuple[Hashable, ...], ...]
    batch: xr.Dataset
    batch_dims: tuple[Hashable, ...]
    batch_shape: tuple[int, ...]

    @property
    def batch_sizes(self) -> dict[Hashable, int]:
        """Lengths of the batch dimensions."""
        return dict(zip(self.batch_dims, self.batch_shape, strict=True))

    def check_matches(self, other: Variable) -> None:
        """Raise ValueError unless units and batch labels agree."""
        if self.units != other.units:
            raise ValueError(
                f"{self.name!r} has units {self.units!r} in one part and {other.units!r} in the other; "
                "convert one of them"
            )
        if (self.batch_dims, self.batch_shape) != (other.batch_dims, other.batch_shape):
            raise ValueError(
                f"{self.name!r} has batch dimensions {self.batch_sizes} in one part and {other.batch_sizes} in the "
                "other; select the same members first"
            )
        for dim in self.batch_dims:
            a, b = (v.batch.coords[dim].values if dim in v.batch.coords else None for v in (self, other))
            if (a is None) != (b is None) or (a is not None and b is not None and not np.array_equal(a, b)):
                raise ValueError(
                    f"batch dimension {dim!r} of {self.name!r} has labels {_brief(a)} in one part and {_brief(b)} "
                    "in the other; select the same members first"
                )

    def member(self, place: Sequence[int]) -> str:
        """Return the labels of a member of the batch: ``station=17``."""
        coords = self.batch.coords
        labels = [
            label_text(coords[dim].values[i]) if dim in coords else str(i)
            for dim, i in zip(self.batch_dims, place, strict=True)
        ]
        return ", ".join(f"{dim}={label}" for dim, label in zip(self.batch_dims, labels, strict=True))

    def along(self, dim: Hashable, n: int) -> Variable:
        """Return these labels with a first batch dimension more, of n entries."""
        return replace(
            self,
            dims=(dim, *self.dims),
            batch=self.batch.assign_coords({dim: np.arange(n)}),
            batch_dims=(dim, *self.batch_dims),
            batch_shape=(n, *self.batch_shape),
        )

    @property
    def levels(self) -> dict[str, list[str]]:
        """The names of the coordinates that each MultiIndex over a batch dimension is made of."""
        indexes = {str(dim): self.batch.indexes[dim] for dim in self.batch_dims if dim in self.batch.indexes}
        return {dim: [*map(str, index.names)] for dim, index in indexes.items() if index.nlevels > 1}

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the values of the batch coordinates as plain data."""
        return {
            **{key: getattr(self, key) for key in _TEXTS},
            "dims": [str(d) for d in self.dims],
            "spans": [[str(d) for d in span] for span in self.spans],
            "batch_dims": [str(d) for d in self.batch_dims],
            "batch_shape": list(self.batch_shape),
            "levels": self.levels,
        }

    @classmethod
    def from_dict(cls, described: Mapping[str, Any], batch: Mapping[str, xr.DataArray]) -> Variable:
        """Inverse of `to_dict`, given the batch coordinates."""
        return cls(
            **{key: described.get(key, "") for key in _TEXTS},
            dims=tuple(described["dims"]),
            spans=tuple(tuple(span) for span in described["spans"]),
            batch=xr.Dataset(coords=batch).set_index(described.get("levels", {})),
            batch_dims=tuple(described["batch_dims"]),
            batch_shape=tuple(described["batch_shape"]),
        )


def _brief(labels: np.ndarray | None) -> str:
    if labels is None:
        return "none"
    ends = f"{labels[0]}…{labels[-1]}" if len(labels) else "empty"
    return f"{ends} ({len(labels)})"


def is_lazily_indexed(data: xr.DataArray) -> bool:
    """Return whether the values still lie in their store without Dask (opened with ``chunks=None``)."""
    return data.chunks is None and not data.variable._in_memory


def storage_chunks(data: xr.DataArray) -> tuple[int, ...] | None:
    """Return the chunk shape of the store behind a lazily indexed array, if it is known and fits."""
    preferred = data.encoding.get("preferred_chunks")
    if preferred and all(dim in preferred for dim in data.dims):
        first = (preferred[dim] for dim in data.dims)
        return tuple(int(chunk[0]) if isinstance(chunk, tuple) else int(chunk) for chunk in first)
    stored = data.encoding.get("chunks") or data.encoding.get("chunksizes")
    return tuple(int(n) for n in stored) if stored and len(stored) == data.ndim else None


@dataclass(frozen=True, eq=False)
class Holders:
    """Holders that share some data.

    Attributes
    ----------
    names : of each, in the order of their labels.
    dim : dimension along which the observations are shared out.
    holder_codes : along it, the number of the holder of each entry.
    periods : of periods that nobody named, the first and the last number of the coordinate, and these labels.
    """

    names: tuple[str, ...]
    dim: Hashable
    holder_codes: NDArray[np.int32]
    periods: tuple[tuple[float, float, str, str], ...] = ()


class LazyReader:
    """A lazily indexed variable whose regions can be read.

    Dask cannot look into it: its ``sizeof`` would load an xarray object.
    """

    def __init__(self, data: xr.DataArray) -> None:
        self.shape, self.dtype, self.chunks = data.shape, data.dtype, storage_chunks(data)
        self._variable = data.variable
        self._reused = self._variable.copy(deep=False, data=reusing(self._variable._data))

    @property
    def lazy(self) -> Any:
        """The lazy array, as xarray holds it."""
        return self._variable._data

    def read(self, slices: tuple[slice, ...]) -> Any:
        """Return the values of a region, from the store, on the host or the device that the store decodes to."""
        return self._reused[slices].data


def observations_of(
    variables: Iterable[xr.DataArray],
    coordinates: Mapping[str, xr.DataArray],
    space: Space,
    pooled: tuple[Hashable, ...],
    weights: Any,
    holders: Holders | None = None,
    bounds: Mapping[str, xr.DataArray] | None = None,
) -> list[Observations]:
    """Return the observations of some variables; a meridian that a grid has twice counts once, which is told."""
    once = seam_once(coordinates, space)
    if once is not None:
        (dim,) = once.dims
        warn(
            f"the first and the last label along {dim!r} are one meridian, which counts once: the values at the first "
            f"are taken; data.isel({dim}=slice(0, -1)) does without this warning"
        )
    observed = []
    for variable in variables:
        if not _warn_of_packing(variable) and weights is None:  # which may be 0 there
            _warn_of_fills(variable)
        own = checked_weights(weights, variable)
        if once is not None:
            own = once if own is None else own * once
        observed.append(Observations(variable, coordinates, pooled, own, holders, bounds=dict(bounds or {})))
    return observed


@dataclass(frozen=True, eq=False)
class Observations:
    """One variable with everything that its fit needs, in labels."""

    data: xr.DataArray  # the values
    coordinates: Mapping[str, xr.DataArray]  # labels of the fitted coordinates, in Space order
    pooled: tuple[Hashable, ...]  # dimensions of repeated observations
    weights: xr.DataArray | None = None  # relative precisions over some of the dimensions, or None
    holders: Holders | None = None  # who contributed them, or None where there is one holder
    errors: AR1 | None = None  # how errors remember; None for independent ones
    decides: bool = False  # whether what residuals show decides on error bars
    # of the coordinates along which the values are means over cells
    bounds: Mapping[str, xr.DataArray] = field(default_factory=dict)

    def cells(self, space: Space) -> dict[str, NDArray[np.complex128]]:
        """Return the cells of the coordinates that have some."""
        return {
            name: cells_of(self.coordinates[name], self.bounds[name], name, space, span, self.data.sizes)
            for name, span in self.arrangement.spans.items()
            if name in self.bounds
        }

    def in_cells(self, space: Space) -> Space:
        """Return the space in which these observations are summed: of means over cells where there are some."""
        return over_cells(space, self.cells(space))

    def on_host(self) -> Observations:
        """Return the same observations in the memory of the host, where a GPU has them."""
        weights = None if self.weights is None else _on_host(self.weights)
        return replace(self, data=_on_host(self.data), weights=weights)

    @property
    def arrangement(self) -> Arrangement:
        """How the dimensions meet the coordinates."""
        return arrange(self.data.dims, self.coordinates, self.pooled)

    @property
    def name(self) -> str:
        """The variable's name, or ``field``."""
        return UNNAMED if self.data.name is None else str(self.data.name)

    def source(self, space: Space) -> Source:
        """Return the Source of these observations.

        Raises
        ------
        ValueError : the data lack the dimension of the holders, or it is one of their batch dimensions; errors cannot
            remember along the coordinate that they are to.
        """
        arrangement, data, cells = self.arrangement, self.data, self.cells(space)
        coordinates = tuple(
            cells[name]
            if name in cells
            else floats(self.coordinates[name], name, space, span, data.sizes, True)
            for name, span in arrangement.spans.items()
        )
        values, weights = _aligned_weights(data, self.weights)
        codes = None
        if self.holders is not None:
            shared = self.holders.dim
            if shared not in data.dims:
                raise _no_dimension(shared, data)
            if shared in arrangement.batch:
                raise ValueError(
                    f"the holder labels run along {shared!r}, but no fitted coordinate spans it: each of its members "
                    f"is a fit of its own, which cannot be shared out; fit its coordinate, pool it ({shared}=None), or "
                    "label another dimension"
                )
            codes = HolderCodes(data.dims.index(shared), self.holders.holder_codes, len(self.holders.names))
        array = LazyReader(values) if is_lazily_indexed(values) else values.data
        layout = arrangement.layout()
        series = None
        if self.errors is not None:
            spans, dim = arrangement.spans, self.errors.dim
            check_names([dim], space.names, "fitted coordinate for errors=AR1(...)")
            k = space.names.index(dim)
            x = middle(coordinates[k])
            if obstacle := obstacle_to_series(dim, space, data, spans, x, self.weights):
                raise ValueError(obstacle)
            groups = tuple((group.data_axes, group.coefficient_axes) for group in layout.groups)
            axis, step = data.dims.index(spans[dim][0]), float(np.median(np.diff(x)))
            lags, rho = int(self.errors.lags), self.errors.rho
            series = Series(dim, axis, k, step, lags, rho, groups, layout.batch_axes)
            if self.holders is not None:
                _check_in_order(self.holders, dim, data.dims[axis])
        return Source(array, coordinates, weights, layout, self.name, codes, series)

    def variable(self) -> Variable:
        """Return what outputs need to know of these labels."""
        data, batch = self.data, self.arrangement.batch
        others = {n: c for n, c in data.coords.items() if n not in self.coordinates}
        kept = {n: c.variable for n, c in others.items() if set(c.dims) <= set(batch)}
        loaded = xr.Dataset(coords=kept).compute()
        attrs = {key: str(data.attrs.get(key, "")) for key in _TEXTS[1:]}
        return Variable(
            self.name,
            attrs["units"],
            attrs["long_name"] or self.name,
            attrs["standard_name"],
            attrs["history"],
            tuple(data.dims),
            tuple(tuple(c.dims) for c in self.coordinates.values()),
            loaded,
            batch,
            tuple(data.sizes[d] for d in batch),
        )


def with_errors(observed: list[Observations], errors: Any, space: Space, holder: Any) -> list[Observations]:
    """Return observations with what is said of their errors.

    "auto" takes those of a series as AR(1), and where there are several series or none, shares them out among periods.
    """
    if not isinstance(errors, str):
        return [replace(o, errors=errors) for o in observed]
    first = observed[0]
    times = [name for name, c in first.coordinates.items() if cf_axis(c)[0] == "T"]
    spans = first.arrangement.spans
    if not times or len(spans[times[0]]) != 1:
        raise ValueError(
            f"errors='auto' takes periods of time apart, and no fitted coordinate is a time along one dimension: there "
            f"are {', '.join(space.names)}; name parts that are independent, holder=..., and use "
            "stderr(method='scores')"
        )
    dim, (along,) = times[0], spans[times[0]]
    x = np.asarray(floats(first.coordinates[dim], dim, space, (along,), first.data.sizes))
    obstacles = [obstacle_to_series(dim, space, o.data, spans, x, o.weights) for o in observed]
    ordered = np.sort(x)
    if any(obstacles) and not np.array_equal(x, ordered):
        if not any(obstacle_to_series(dim, space, o.data, spans, ordered, o.weights) for o in observed):
            raise ValueError(f"errors='auto': {obstacles[0]}")  # another order would have other errors
    if splines_in(space.basis(dim)):
        raise ValueError(
            f"errors='auto' takes periods of {dim!r} apart, and the basis of {dim!r} has a B-spline, of which each "
            f"period alone determines a part; take Polynomial and Fourier, for example {dim}=xs.Polynomial(1) + "
            "xs.Fourier(2, 'year'), or fit() without bases, which follows what neighbours share"
        )
    alternate = first.holders is not None and _alternate(first.holders, along)
    own, holders = None if alternate or any(obstacles) else AR1(dim), first.holders
    if holders is None and (own is None or len(spans) > 1 or first.arrangement.pooled):
        size = math.prod((*space.frame.sizes, *space.frame.offsets, *first.variable().batch_shape))
        nbytes = 8 * size * len(observed) * (1 if own is None else 1 + 3 * own.lags)
        # Periods hold as many different consecutive labels each, two at least. There are 16, whose neighbours can be
        # joined, as Student's t of 15 degrees is hardly longer than that of more; fewer, but eight, where their sums
        # take more than a quarter of the memory.
        known, index = np.unique(x, return_inverse=True)
        count = min(max(int(resources(None).memory / 4 / max(nbytes, 1)), 8), 16)
        count = min(count, max(known[np.isfinite(known)].size // 2, 1))
        codes = np.minimum(index * count // max(known.size, 1), count - 1)
        labels, periods = first.coordinates[dim].values, list[tuple[float, float, str, str]]()
        for code in range(int(codes.max(initial=-1)) + 1):
            own_x = np.where(codes == code, x, np.nan)
            i, j = int(np.nanargmin(own_x)), int(np.nanargmax(own_x))
            periods.append((float(x[i]), float(x[j]), label_text(labels[i]), label_text(labels[j])))
        prefix = f"{holder} " if holder else ""
        names = tuple(f"{prefix}{start} to {stop}" for _, _, start, stop in periods)
        holders = Holders(names, along, codes.astype(np.int32), tuple(periods))
    return [replace(o, errors=own, holders=holders, decides=True) for o in observed]


def _alternate(holders: Holders, dim: Hashable) -> bool:
    """Return whether holders take turns along a dimension."""
    codes = holders.holder_codes
    return bool(holders.dim == dim and np.count_nonzero(np.diff(codes)) >= np.unique(codes).size)


def _check_in_order(holders: Holders, name: str, dim: Hashable) -> None:
    """Raise ValueError where holders alternate along a series."""
    if _alternate(holders, dim):
        codes = holders.holder_codes
        i = int(np.flatnonzero(np.diff(codes))[0])
        two = " and ".join(repr(holders.names[code]) for code in codes[i : i + 2])
        raise ValueError(
            f"holders alternate along {str(dim)!r} ({two} take turns), "
            f"and errors=AR1({name!r}) needs the order of observations; share them out by place, or in periods "
            f"that follow each other (holder={name + '.year'!r})"
        )


def check_kind(data: Any) -> None:
    """Raise TypeError unless the data are an xarray object."""
    if isinstance(data, xr.DataArray | xr.Dataset):
        return
    if isinstance(data, xr.DataTree):
        advice = "tree.spline.fit(...) fits each node, and a node is tree['/path'].to_dataset()"
    elif hasattr(data, "to_xarray"):
        advice = "rows become points by data.to_xarray(), and columns of coordinates by .set_coords(['lat', 'lon'])"
    else:
        advice = (
            "name its dimensions and labels: xr.DataArray(values, {'lat': lat, 'lon': lon}, ('lat', 'lon'))"
        )
    raise TypeError(
        f"the data have to be an xarray DataArray or Dataset, not {type(data).__name__}; {advice}"
    )


def check_lengths(data: xr.DataArray | xr.Dataset) -> None:
    """Raise ValueError where the length of a dimension is not known before it is computed."""
    if unknown := [str(dim) for dim, n in data.sizes.items() if not n >= 0]:
        raise ValueError(
            f"the length of {', '.join(unknown)} is not known, as a selection by a lazy condition leaves it; compute "
            "it first, data.data.compute_chunk_sizes(), or select by a condition in memory"
        )


def check_data(data: xr.DataArray) -> None:
    """Raise TypeError unless the data are real numbers, ValueError if a dimension is there twice."""
    if twice := {d for d in data.dims if data.dims.count(d) > 1}:
        raise ValueError(
            f"{data.name or 'the data'} has dimensions {data.dims}, of which {sorted(map(str, twice))} repeat; "
            "give each axis a name of its own"
        )
    what = data.name or "the data"
    if not isinstance(data.dtype, np.dtype):
        raise TypeError(
            f"{what} has the type {data.dtype} of pandas, whose missing values are not NaN; build it from "
            "series.to_numpy(float, na_value=np.nan)"
        )
    blocks = type_of_blocks(data.data) if data.chunks is not None else type(data.variable._data)
    if (kind := blocks.__module__.partition(".")[0]) in ("sparse", "pint"):
        raise TypeError(
            f"{what} is an array of {kind}; pass data.as_numpy(), with NaN where nothing was observed"
        )
    if data.dtype.kind not in "iufb":
        parts = "fit its .real and .imag parts apart"
        hint = parts if data.dtype.kind == "c" else "convert it with .astype(float)"
        raise TypeError(f"{what} has dtype {data.dtype}, which is not a real number; {hint}")


def _warn_of_packing(data: xr.DataArray) -> bool:
    """Warn, and return True, where attributes say that values are packed, or that one means that there is none."""

    def is_there(fill: Any) -> bool:
        known = isinstance(fill, np.number) and not np.isnan(fill)
        return known and (not data.variable._in_memory or bool((data == fill).any()))

    attrs = data.attrs
    found = [key for key, usual in (("scale_factor", 1), ("add_offset", 0)) if attrs.get(key, usual) != usual]
    fills = [key for key in ("_FillValue", "missing_value") if key in attrs]
    found += [key for key in fills if any(map(is_there, np.ravel(attrs[key])))]
    if found:
        named = ", ".join(f"{key}={attrs[key]}" for key in found)
        warn(
            f"{data.name or 'the data'} has the attributes {named}, as of packed values, which are fitted as they are; "
            f"decode them first: ds = xr.decode_cf(ds). If they are decoded, drop these attributes: del "
            f"data.attrs[{found[0]!r}]"
        )
    return bool(found)


def _warn_of_fills(data: xr.DataArray) -> None:
    """Warn where the least or the largest of some values in memory is a usual fill value, far from all others."""
    values: Any = data.variable._data
    if not isinstance(values, np.ndarray) or isinstance(values, np.memmap) or not values.size:
        return
    if values.size > MOST:
        values = values.flat[np.random.default_rng(0).integers(values.size, size=MOST)]
    usual = (999, 9999, 99999, 32767, 32768, 1e20, 1e30, 1e34, 1e35, 1e36, 9.969209968386869e36)
    for end in (np.fmin.reduce(values, axis=None), np.fmax.reduce(values, axis=None)):
        if any(math.isclose(abs(float(end)), fill, rel_tol=1e-6) for fill in usual):
            others = values[np.isfinite(values) & (values != end)].astype(np.float64)
            if others.size and np.abs(others - float(end)).min() > 10 * np.ptp(others):
                warn(
                    f"{data.name or 'the data'}: {(values == end).sum()} of {values.size} values are {end!s}, as where "
                    f"one is missing, and all others {others.min():.3g} to {others.max():.3g}; they are fitted. Mask "
                    f"them first: data.where(data != {end!s})"
                )


def _on_host(array: xr.DataArray) -> xr.DataArray:
    """Return values, or blocks of them, in the memory of the host."""
    own: Any = array.variable._data
    if array.chunks is None:
        moved = to_host(own)
    elif type_of_blocks(own) is np.ndarray:
        return array
    else:
        moved = own.map_blocks(to_host, dtype=array.dtype, meta=np.empty((0,) * array.ndim))
    return array if moved is own else array.copy(data=moved)


def fitted_variables(dataset: xr.Dataset, dims: set[Hashable]) -> dict[str, xr.DataArray]:
    """Return the numeric variables that span the fitted dimensions; the others are named in a warning.

    Bounds of cells and grid mappings (CF conventions) are not data: they are left out without a word.

    Raises
    ------
    ValueError : no variable spans them, or the names of two are one text.
    """
    silent = auxiliary(dataset.variables)
    variables = {n: v for n, v in dataset.data_vars.items() if n not in silent}
    fitted = {str(n): v for n, v in variables.items() if v.dtype.kind in "iufb" and dims <= set(v.dims)}
    left_out = [f"{n} {v.dims}" for n, v in variables.items() if str(n) not in fitted]
    if same := [repr(n) for n in variables if sum(str(n) == str(other) for other in variables) > 1]:
        raise ValueError(
            f"the variables {' and '.join(same)} have one name as text, and fields are named by text; rename one of "
            "them: ds.rename({...})"
        )
    for variable in fitted.values():
        check_data(variable)
    if not fitted:
        raise ValueError(
            f"no numeric variable spans {sorted(map(str, dims))}; the Dataset holds {', '.join(left_out) or 'none'}"
        )
    if left_out:
        why = f"not numeric or without the dimensions {sorted(map(str, dims))}"
        apart = {n: v for n, v in variables.items() if str(n) not in fitted and dims.isdisjoint(v.dims)}
        hidden = hidden_axes(apart)
        advice = f"; to fit one field over {' and '.join(hidden)}: ds.set_coords({hidden})" if hidden else ""
        warn(f"not fitted, because {why}: {', '.join(left_out)}{advice}")
    return fitted


def checked_weights(weights: Any, data: xr.DataArray) -> xr.DataArray | None:
    """Return weights as a DataArray over dimensions of the data, with equal labels.

    Raises
    ------
    ValueError : they span another dimension, or their labels differ from the data's.
    """
    if weights is None:
        return None
    if isinstance(weights, xr.Dataset):
        check_names([data.name], weights, "variable of the weights")
        weights = weights[data.name]
    if not isinstance(weights, xr.DataArray):
        raise TypeError(
            f"weights have to be a DataArray, which says what its dimensions are, not {type(weights).__name__}"
        )
    check_lengths(weights)
    if weights.dtype.kind not in "iufb":
        raise TypeError(
            f"weights have dtype {weights.dtype}, and have to be real numbers, relative precisions (1/se**2); convert "
            "them: .astype(float), or .real"
        )
    if len(set(weights.dims)) < weights.ndim:
        raise ValueError(
            f"weights have dimensions {weights.dims}, of which some repeat; name each axis by its own"
        )
    if extra := [d for d in weights.dims if d not in data.dims]:
        raise ValueError(f"weights span {extra}, but {data.name or 'the data'} has dimensions {data.dims}")
    try:
        xr.align(data, weights, join="exact", copy=False)
    except ValueError as error:
        raise ValueError(
            f"weights and {data.name or 'the data'} have different labels ({_first_difference(data, weights)}); "
            f"select or reindex the weights: weights.reindex_like(data, method='nearest', tolerance=...)"
        ) from error
    if weights.variable._in_memory:
        used = weights.values[(weights.values > 0) & np.isfinite(weights.values)].astype(np.float64)
        if used.size and used.min() < np.finfo(np.float64).eps * used.max():
            raise ValueError(
                f"the weights go from {used.min():.3g} to {used.max():.3g}, which float64 does not add up: the "
                "smallest count for nothing beside the largest. Set such weights to 0, which leaves observations out, "
                "and mend those that are too large"
            )
    return weights.transpose(*(d for d in data.dims if d in weights.dims))


def _first_difference(data: xr.DataArray, weights: xr.DataArray) -> str:
    for dim in weights.dims:
        if data.sizes[dim] != weights.sizes[dim]:
            return f"{dim}: {data.sizes[dim]} and {weights.sizes[dim]} labels"
        mine, yours = data[dim].values, weights[dim].values
        if not np.array_equal(mine, yours):
            i = int(np.flatnonzero(mine != yours)[0])
            return f"{dim}: {mine[i]} and {yours[i]} at position {i}"
    return "their indexes"


def _aligned_weights(
    data: xr.DataArray, weights: xr.DataArray | None
) -> tuple[xr.DataArray, tuple[Any, ...]]:
    """Return data and weights of which either both or none are left to Dask."""
    if weights is None:
        return data, ()
    axes = tuple(data.dims.index(d) for d in weights.dims)
    in_memory = weights.chunks is None and not is_lazily_indexed(weights)
    if not in_memory and weights.ndim == data.ndim and (data.chunks is not None or is_lazily_indexed(data)):
        if data.chunks is None:
            data = data.chunk(dict(zip(data.dims, storage_chunks(data) or data.shape, strict=True)))
        weights = weights.chunk(dict(zip(data.dims, data.chunks or (), strict=True)))
    elif not in_memory:
        weights = weights.compute()
    return data, ((axes, weights.data),)


# ---- holders


def holders_of(holder: Any, data: xr.DataArray | xr.Dataset) -> Holders | None:
    """Return the holders that labels name; None if `holder` is the name of one, or None.

    Parameters
    ----------
    holder : 1-D labels along a dimension of the data; or the name of a 1-D coordinate of theirs, or of a component of
        one (``"time.year"``), as in ``groupby``; or any other name.

    Raises
    ------
    TypeError : neither a name nor 1-D labels.
    ValueError : the labels do not fit the data, or some are missing.
    """
    if isinstance(holder, str) and not holder:
        raise ValueError("holder='' names nobody; pass a name, labels along a dimension, or leave it out")
    labels = _coordinate(holder, data) if isinstance(holder, str) else holder
    if labels is None:
        return None
    if not isinstance(labels, xr.DataArray) or labels.ndim != 1:
        dims = f" with the dimensions {labels.dims}" if isinstance(labels, xr.DataArray) else ""
        raise TypeError(
            "holder has to be a name or 1-D labels as a DataArray (for example ds.time.dt.year), "
            f"not {type(labels).__name__}{dims}"
        )
    (dim,) = labels.dims
    if dim not in data.dims:
        raise _no_dimension(dim, data)
    advice = f"select the labels as the data, for example labels.sel({dim}=data.{dim})"
    if labels.size != data.sizes[dim]:
        raise ValueError(
            f"the holder labels have {labels.size} entries along {dim!r} and the data {data.sizes[dim]}; {advice}"
        )
    mine, yours = labels.indexes.get(dim), data.indexes.get(dim)
    if mine is not None and yours is not None and not mine.equals(yours):
        i = int(np.flatnonzero(mine != yours)[0])
        raise ValueError(
            f"the holder labels are for {place(labels[dim], (i,))} where the data have {place(data[dim], (i,))}, at "
            f"position {i} along {dim!r}; {advice}"
        )
    missing = np.flatnonzero(labels.isnull().values)
    if missing.size:
        raise ValueError(
            f"{missing.size} of {labels.size} holder labels along {dim!r} are missing, the first at "
            f"{place(labels, (int(missing[0]),))}, so these observations belong to nobody; name their holder "
            "(labels.fillna(...)) or leave them out of labels and data (.dropna and .sel)"
        )
    values = labels.values.astype(str) if labels.dtype.kind == "S" else labels.values
    try:
        distinct, codes = np.unique(values, return_inverse=True)
    except TypeError as error:
        raise ValueError(
            f"the holder labels along {dim!r} cannot be sorted ({error}); make them all text: labels.astype(str)"
        ) from error
    return Holders(tuple(map(label_text, distinct)), dim, codes.astype(np.int32))


def _coordinate(name: str, data: xr.DataArray | xr.Dataset) -> xr.DataArray | None:
    """Return the coordinate or component that a name means, None if it means neither."""
    if isinstance(data, xr.Dataset) and name in data.data_vars:
        raise ValueError(
            f"{name!r} is a data variable; to take holders from it, make it a coordinate first: "
            f"ds = ds.set_coords([{name!r}])"
        )
    if name in data.coords:
        return data.coords[name]
    base, dot, component = name.partition(".")
    if not dot or base not in data.coords:
        return None
    try:
        return getattr(data.coords[base].dt, component)
    except (AttributeError, TypeError) as error:
        raise ValueError(
            f"coordinate {base!r} has no component {component!r} to take holders from; times have year, month, "
            f"season, dayofyear and the like, and any 1-D coordinate can be named by itself: holder={base!r}"
        ) from error


def _no_dimension(dim: Hashable, data: xr.DataArray | xr.Dataset) -> ValueError:
    what = "the data have" if isinstance(data, xr.Dataset) else f"{data.name or 'the data'!r} has"
    return ValueError(
        f"the holder labels run along {dim!r}, but {what} the dimensions {tuple(data.dims)}; label one of these"
    )
