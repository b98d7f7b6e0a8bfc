"""Where a field is evaluated, and its values, derivatives and standard errors there, with labels, names and units."""

from __future__ import annotations

import datetime
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from xspline import execution
from xspline.labels.errors import unknown_name
from xspline.labels.fine.field import Fine
from xspline.labels.fit import Fit
from xspline.labels.read.cells import over_cells
from xspline.labels.read.coordinates import arrange
from xspline.labels.read.observations import Variable
from xspline.labels.read.targets import Target
from xspline.labels.uncertainty import Covariance
from xspline.spaces import Fourier, Union
from xspline.sums import observed_cells

_WORD = re.compile(r"[^\W\d]+|[°%]")
_WORDS = {1: "derivative", 2: "second derivative", 3: "third derivative"}


def ordered_dims(target: Target, variable: Variable) -> tuple[Hashable, ...]:
    """Return the order that ``DataArray.interp`` gives; the order of the Space where the data's is unknown."""
    spans = dict(zip(target.coordinates, variable.spans, strict=True))
    order: list[Hashable] = []
    for dim in variable.dims:
        replaced = [d for name, c in target.coordinates.items() if dim in spans[name] for d in c.dims]
        if set(replaced) <= set(variable.dims):  # labels over (j, i) of data over (i, j)
            replaced = [d for d in variable.dims if d in replaced]
        order += replaced or ([dim] if dim in variable.batch_dims else [])
    order += [dim for c in target.coordinates.values() for dim in c.dims]
    return tuple(dict.fromkeys(order))


def evaluate(
    fit: Fit,
    target: Target,
    orders: Mapping[str, int],
    device: str | None,
    covariance: Covariance | None = None,
    uncompiled: bool = False,
) -> xr.DataArray:
    """Return one variable, or a derivative of it per unit of its coordinates; with a covariance its standard error."""
    variable, space = fit.variable, fit.space
    dims = ordered_dims(target, variable)
    sizes = {dim: n for c in target.coordinates.values() for dim, n in c.sizes.items()}
    for dim, n in variable.batch_sizes.items():
        if dim in sizes:
            raise ValueError(
                f"{dim!r} is a batch dimension of the fit and a dimension of the target too; rename the target's"
            )
        sizes[dim] = n
    arrangement = arrange(dims, target.coordinates)
    coordinates = tuple(target.floats(space, name, span, sizes) for name, span in arrangement.spans.items())
    shape, layout = tuple(sizes[dim] for dim in dims), arrangement.layout()
    chunks = target.chunk_sizes(dims, shape)
    above = [
        f.max_order is not None and orders.get(c, 0) > f.max_order
        for c, f in zip(space.names, space.features, strict=True)
    ]
    values = execution.evaluate(
        fit.coefficients if covariance is None else covariance.pairs,
        coordinates,
        layout,
        over_cells(
            space, {n: x for n, x in zip(space.names, coordinates, strict=True) if n in target.bounds}
        ),
        tuple(0 if any(above) else orders.get(c, 0) for c in space.names),
        shape,
        chunks=chunks,
        device=device,
        pairs=covariance is not None,
        extrapolate=target.extrapolate,
        uncompiled=uncompiled,
    )
    if (fine := fit.whole) is not None:
        if any(above):  # what the coarse field has no derivative of is constant there
            values = 0.0 * values
        values = _with_fine(values, fit, fine, target, orders, dims, errors=covariance is not None)
    elif isinstance(target.mask, int):
        cells, everywhere = _observed(fit, target.mask), (0,) * len(space.names)
        near = execution.evaluate(cells, coordinates, layout, space.cells, everywhere, shape, chunks=chunks)
        values = np.where(near > 0, values, np.nan)
    name = variable.name
    if orders:  # dsst_dlat, d2sst_dlon2, d2sst_dlon_dtime
        total = sum(orders.values())
        below = "_".join(f"d{c}{n if n > 1 else ''}" for c, n in orders.items())
        name = f"d{total if total > 1 else ''}{name}_{below}"
    if covariance is None:
        result = labelled(xr.DataArray(values, dims=dims, name=name), target, fit, orders)
    else:
        stderr = np.sqrt(np.maximum(values, 0.0))  # where it vanishes, rounding may leave it below zero
        result = xr.DataArray(stderr, dims=dims, name=f"{name}_stderr")
        result = labelled(result, target, fit, orders, stderr=True)
        long_name = f"standard error of {result.attrs['long_name']}"
        result = result.assign_attrs(long_name=long_name, **covariance.attrs)
    return result if target.mask is None or isinstance(target.mask, int) else _kept(result, target.mask, fit)


def noise_at(fit: Fit, target: Target) -> xr.DataArray:
    """Return the standard deviation of an observation of weight 1 about the field, at the labels of a target."""
    variable = fit.variable
    noise = xr.DataArray(np.broadcast_to(fit.noise(), variable.batch_shape), dims=variable.batch_dims)
    if fit.fine is None:
        return noise
    return noise * fit.fine.errors(fit.space, target, variable.batch_sizes, {})[2] ** 0.5


def as_coefficient(
    values: xr.DataArray, fit: Fit, function: str, size: float, per_unit: bool
) -> xr.DataArray:
    """Return values of one function's term, or their errors, as its coefficient; the function's value is `size`."""
    end = "_stderr" if str(values.name).endswith("_stderr") else ""
    told = f"coefficient of {function} in {fit.variable.long_name}" + f", per unit of {function}" * per_unit
    result = values.copy(data=values.data / (abs(size) if end else size)).rename(
        f"{fit.name}_{function}{end}"
    )
    result.attrs["long_name"] = f"standard error of the {told}" if end else told
    call = f"coefficient({function!r}{', stderr=True' * bool(end)})"
    result.attrs["history"] = history(fit.variable.history, call)
    if per_unit:
        result.attrs.pop("units", None)
    return result


def _with_fine(
    values: Any,
    fit: Fit,
    fine: Fine,
    target: Target,
    orders: Mapping[str, int],
    dims: tuple[Hashable, ...],
    *,
    errors: bool,
) -> Any:
    """Return values of the coarse field, or variances of them, with those of the fine field; NaN where masked.

    The variance is that of the fine field and (1 − trust)² of the coarse one. Trust is the sum of the weights of the
    neighbours: near data they correct what the coarse field errs by, as far as it errs alike at all of them. This is so
    of values, and of slopes in space, which are as smooth as splines. Of slopes of a season it is not, and trust is 0.
    """
    batch = fit.variable.batch_sizes
    if errors:
        variance, trust, _ = (x.transpose(*dims).data for x in fine.errors(fit.space, target, batch, orders))
        if any(isinstance(fit.space.basis(name), Union | Fourier) for name in orders):
            trust = np.zeros_like(trust)
        elif orders:
            trust = fine.errors(fit.space, target, batch, {})[1].transpose(*dims).data
        values = variance + (1 - trust) ** 2 * values
    else:
        values = values + fine.values(fit.space, target, batch, orders).transpose(*dims).data
    if isinstance(target.mask, int):
        near = fine.near(fit.space, target, batch, target.mask).transpose(*dims).data
        values = np.where(near, values, np.nan)
    return values


def _observed(fit: Fit, distance: int) -> np.ndarray:
    """Return 1 for knot cells that are near observations and 0 for others, as coefficients of `Space.cells`."""
    if fit.is_lazy:
        raise ValueError(
            "mask='data' needs what was observed, but this field is still lazy; call .compute() first"
        )
    cells = observed_cells(fit.total.gram, fit.space, distance)
    axes = len(fit.space.names)  # draws have a batch dimension more than their statistics
    new = (1,) * (len(fit.variable.batch_shape) + axes - cells.ndim)
    return cells.reshape(*cells.shape[:axes], *new, *cells.shape[axes:]).astype(np.float64)


def _kept(result: xr.DataArray, mask: xr.DataArray | xr.Dataset, fit: Fit) -> xr.DataArray:
    """Return the result with NaN where a mask by labels is False."""
    if isinstance(mask, xr.Dataset):
        names = [name for name in (fit.name, f"{fit.name}_stderr") if name in mask]
        if not names:
            raise unknown_name(fit.name, "variable of mask=", mask.data_vars)
        mask = mask[names[0]]
    if extra := set(mask.dims) - set(result.dims):
        names = sorted(map(str, extra))
        raise ValueError(
            f"mask= spans {names}, the result has dimensions {result.dims}; rename or select them"
        )
    try:
        _, mask = xr.align(result, mask, join="exact", copy=False)
    except ValueError as error:
        raise ValueError(
            f"mask= has other labels than the result; pass at=mask, or reindex it. {error}"
        ) from None
    return result.where(mask.drop_vars(mask.coords))


def labelled(
    result: xr.DataArray, target: Target, fit: Fit, orders: Mapping[str, int], stderr: bool = False
) -> xr.DataArray:
    """Attach the target's coordinates, and name, units and history of what was evaluated."""
    variable, space = fit.variable, fit.space
    units = per(variable.units, *((space.axis(name).units, n) for name, n in orders.items()))
    selected = ", ".join(f"{name}={kind}" for name, kind in fit.selected.items())
    long_name = f"{variable.long_name} ({selected})" if selected else variable.long_name
    call = "stderr()" if stderr else "predict()"
    if orders:
        parts = [
            f"{_WORDS.get(n, f'derivative of order {n}')} with respect to {c}" for c, n in orders.items()
        ]
        parts[0] = parts[0].replace(" with", f" of {long_name} with", 1)
        long_name = ", ".join(parts)
        options = [f"{n}={o}" for n, o in orders.items()] + ["stderr=True"] * stderr
        call = f"derivative({', '.join(options)})"
    own = {name: labels.variable for name, labels in target.coordinates.items()}
    beside = {n: c for labels in target.coordinates.values() for n, c in labels.coords.items()}
    beside |= dict(target.extra.coords)
    fits = {n: c for n, c in beside.items() if n not in own and set(c.dims) <= set(result.dims)}
    batch = {n: c for n, c in variable.batch.coords.items() if n not in own}
    labels: dict[Hashable, Any] = {n: c.variable for n, c in (*fits.items(), *batch.items())}
    attrs = attributes(units, long_name, variable.history, call)
    if variable.standard_name and not (orders or selected or stderr):
        attrs["standard_name"] = variable.standard_name
    if orders and fit.whole is not None and fit.whole.first is not None:
        steps = dict(zip(fit.whole.names, fit.whole.first.differences, strict=True))
        over = [f"{steps[c]:.3g} {space.axis(c).units}".rstrip() + f" of {c}" for c in orders]
        attrs["comment"] = f"a difference over {', '.join(over)}"
    return result.assign_coords(labels | own).assign_attrs(attrs).drop_encoding()


def per(units: str, *denominators: tuple[str, int]) -> str:
    """Return units divided by powers of others, as UDUNITS writes it; empty where one of these is unknown.

    >>> per("degC", ("s", 1), ("degrees_east", 2))
    'degC s-1 degrees_east-2'
    >>> per("degC", ("km", 1), ("km", 1))
    'degC km-2'
    >>> per("degC", ("", 1))
    ''
    """
    if any(n and not unit for unit, n in denominators):
        return ""
    # Of elapsed time "days since 2000-01-01" a derivative is per day; a product of units takes brackets.
    plain = [(unit.partition(" since ")[0], n) for unit, n in denominators]
    below = [f"{unit}-{n}" for unit, n in _powers(plain).items()]
    return " ".join([units, *below] if units and units != "1" else below)


def times(units: str, factors: tuple[tuple[str, int], ...]) -> str:
    """Return units times powers of others; empty where one of these is unknown.

    >>> times("degC", (("m", 2),))
    'degC m2'
    """
    if any(not unit for unit, _ in factors):
        return ""
    named = [f"{unit}{n if n > 1 else ''}" for unit, n in _powers(factors).items()]
    return " ".join([*([units] if units and (units != "1" or not named) else []), *named]) if units else ""


def _powers(units: Sequence[tuple[str, int]]) -> dict[str, int]:
    """Return the power of each unit, in brackets where it is a product; a unit of 1 is left out."""
    powers: dict[str, int] = {}
    for unit, n in units:
        name = unit if _WORD.fullmatch(unit) else f"({unit})"
        powers[name] = powers.get(name, 0) + n
    return {name: n for name, n in powers.items() if n and name != "(1)"}


def attributes(units: str, long_name: str, previous: str, what: str) -> dict[str, Any]:
    """Return the attributes of an output; empty ones are left out."""
    full = {"long_name": long_name, "units": units, "history": history(previous, what)}
    return {key: value for key, value in full.items() if value}


def history(previous: str, what: str) -> str:
    """Return a CF history with one line more, the newest first."""
    from xspline import __version__

    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    line = f"{now} xspline {__version__}: {what}"
    return f"{line}\n{previous}" if previous else line


def merged(datasets: Iterable[Any]) -> xr.Dataset:
    """Return the variables of several Datasets of one target in one; ValueError where two have one name."""
    parts = list(datasets)
    names = [
        name for part in parts for name in (part.data_vars if isinstance(part, xr.Dataset) else [part.name])
    ]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ValueError(
            f"two results are called {twice[0]!r}: ask one variable at a time, field[name], or rename it before the fit"
        )
    # A coordinate beside the data gives way to a result of its name.
    parts = [p.drop_vars([n for n in names if n in p.coords and n not in p.dims]) for p in parts]
    return xr.merge(parts, compat="override", combine_attrs="override").drop_encoding()
