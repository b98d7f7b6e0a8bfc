"""Pictures of a field: a map or a line of its prediction, with a band of its standard error, by xarray's plotting."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from xspline.labels.errors import label_text, unknown_name
from xspline.labels.read.targets import Target
from xspline.spaces import Space

if TYPE_CHECKING:
    from xspline.labels.field_base import FieldBase

LABELS = 201  # along a coordinate without labels of its own


def plot(
    field: FieldBase[Any],
    interval: Any,
    at: Any,
    band: float | None,
    where: Mapping[str, Any],
    options: dict[str, Any],
) -> Any:
    """Draw a field; see :meth:`Field.plot`.

    `interval` gives the ends of a band, as ``Field.interval`` does; `where` holds ``extrapolate`` and ``mask``, and
    `options` labels by name, and what goes to xarray's plotting.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise ImportError(
            "plot() needs matplotlib, which is not installed: python -m pip install 'xarray-spline[plot]'"
        )
    if band is not None and not 0 < float(band) < 1:
        raise ValueError(f"band={band!r} is no probability between 0 and 1, such as 0.95; None draws no band")
    if len(field.variables) > 1:
        names = list(field.variables)
        raise ValueError(
            f"this field holds {len(names)} variables, {', '.join(names)}: draw one of them, for example "
            f"field[{names[0]!r}].plot()"
        )
    (variable,) = field.variables.values()
    field._check_computed()
    own = {name: options.pop(name) for name in field.space.names if name in options}
    chosen = {dim: options.pop(dim) for dim in map(str, variable.batch_dims) if dim in options}
    labels = own | _spread(field, at, own)
    sizes = variable.batch_sizes
    target = field._target(at, labels, None, where["extrapolate"], where["mask"])
    _check_choice(
        variable.name, field.space, target, {dim: n for dim, n in sizes.items() if dim not in chosen}
    )
    # Dimensions of independent fits are cut into 16 parts, so that few fits beside the chosen ones are computed.
    chunks = {dim: -(-sizes[dim] // 16) for dim in chosen} or None

    def drawn(evaluate: Any, **how: Any) -> list[xr.DataArray]:
        values = evaluate(at, chunks=chunks, **where, **how, **labels)
        parts = values.data_vars.values() if isinstance(values, xr.Dataset) else (values,)
        return [_members(part, chosen).squeeze().compute() for part in parts]

    (values,) = drawn(field.predict)
    if not values.size:
        raise ValueError("there are no labels to draw at; leave them out to draw over the fitted ones")
    try:
        if values.ndim == 2:
            return _map(values, field.space, options)
        ends = None if band is None else drawn(interval, level=float(band))
        return _line(values, field.space, ends, band, options)
    except (
        AttributeError
    ) as error:  # what matplotlib does not know: most likely a coordinate with a typing error
        if wrong := [name for name in options if f"'{name}'" in str(error)]:
            known = [*field.space.names, *sizes]
            raise unknown_name(wrong[0], "coordinate or option of the plotting", known) from error
        raise


def _spread(field: FieldBase[Any], at: Any, given: Mapping[str, Any]) -> dict[str, xr.DataArray]:
    """Return labels spread evenly over the domain for coordinates that have none of their own along a dimension."""
    if at is not None:
        return {}
    fitted = field.statistics._fitted or {}
    along = [dim for labels in fitted.values() for dim in labels.dims]
    spread = {}
    for name, features in zip(field.space.names, field.space.features, strict=True):
        labels = fitted.get(name)
        if name in given or (labels is not None and labels.ndim == 1 and along.count(labels.dims[0]) == 1):
            continue
        axis, ends = field.space.axis(name), features.domain
        if ends is None and labels is not None:
            x = field.space.to_float(name, labels.values)
            ends = (float(np.nanmin(x)), float(np.nanmax(x)))
        if ends is None:
            continue
        known = {} if axis.kind != "number" or not axis.units else {"units": axis.units}
        attrs = known if labels is None else known | labels.attrs
        spread[name] = xr.DataArray(axis.to_label(np.linspace(*ends, LABELS)), dims=name, attrs=attrs)
    return spread


def _check_choice(name: str, space: Space, target: Target, batch: Mapping[Any, int]) -> None:
    """Raise ValueError where there are not one or two dimensions, with what to pass."""
    sizes = {dim: n for labels in target.coordinates.values() for dim, n in labels.sizes.items()}
    sizes = {dim: n for dim, n in (*sizes.items(), *batch.items()) if n > 1}
    if not sizes:
        raise ValueError(f"{name} at one place is a number and no picture; predict() returns it")
    if len(sizes) > 2:
        listed = ", ".join(f"{dim} ({n})" for dim, n in sizes.items())
        fitted = [coordinate for coordinate in target.coordinates if coordinate in sizes]
        chosen = next((n for n in fitted if space.axis(n).role == "time"), next(iter(fitted), None))
        example = f"{next(iter(sizes))}=..."
        if chosen is not None:
            labels = target.coordinates[chosen].values
            middle = labels[labels.size // 2]
            example = (
                f"{chosen}={str(label_text(middle))!r}" if labels.dtype.kind in "MO" else f"{chosen}={middle}"
            )
        raise ValueError(
            f"{name} spans {len(sizes)} dimensions here, with so many labels: {listed}. A picture shows one or two; "
            f"say where on the others, for example plot({example})"
        )


def _members(values: xr.DataArray, chosen: Mapping[str, Any]) -> xr.DataArray:
    """Return the independent fits at the labels that were asked for."""
    for dim, label in chosen.items():
        try:
            values = values.sel({dim: label})
        except (KeyError, IndexError, ValueError):
            own = values[dim].values
            near = ""
            if own.dtype.kind in "iuf" and np.isscalar(label) and not isinstance(label, str):
                near = f"; the nearest is {dim}={label_text(own[np.abs(own - label).argmin()])}"
            raise ValueError(
                f"{dim}={label} is none of its {own.size} labels, {label_text(own[0])} to {label_text(own[-1])}, each "
                f"of which has a fit of its own{near}"
            ) from None
    return values


def _line(
    values: xr.DataArray,
    space: Space,
    ends: list[xr.DataArray] | None,
    band: float | None,
    options: dict[str, Any],
) -> Any:
    """Draw a line, upright where its coordinate is positive downwards, and a band around it."""
    (dim,) = values.dims
    values, *ends = map(_in_order, (values, *(ends or ())))
    along = [name for name in space.names if name in values.coords and values[name].dims == (dim,)]
    ordered = [n for n in along if values[n].to_index().is_monotonic_increasing]
    ordered.sort(key=lambda n: (n != dim, space.axis(n).role != "time"))
    name = next(iter(ordered), dim)
    upright = name in values.coords and values[name].attrs.get("positive") == "down"
    axes = {"y": name, "yincrease": False} if upright else {"x": name}
    lines = values.plot.line(**(axes | options))
    if not ends or band is None:
        return lines
    lower, upper = ends
    line, ax = lines[0], lines[0].axes
    fill = ax.fill_betweenx if upright else ax.fill_between
    places = line.get_ydata() if upright else line.get_xdata()
    how = "errors as alike as neighbours are"
    if "independent" in lower.attrs.get("comment", ""):
        how = "errors taken as independent"
    if (method := lower.attrs["method"]) in ("jackknife", "scores"):
        how = f"{method} {'over holders' if method == 'jackknife' else 'of parts'}"
    style = {"alpha": 0.25, "linewidth": 0, "color": line.get_color()}
    fill(places, lower.values, upper.values, label=f"{100 * band:g} %, {how}", **style)
    ax.legend(frameon=False)
    return lines


def _in_order(values: xr.DataArray) -> xr.DataArray:
    """Return values whose labels ascend or descend along each dimension that has any."""
    own = {dim: values[dim].to_index() for dim in values.dims if dim in values.coords}
    return values.sortby(
        [d for d, i in own.items() if not i.is_monotonic_increasing and not i.is_monotonic_decreasing]
    )


def _map(values: xr.DataArray, space: Space, options: dict[str, Any]) -> Any:
    """Draw a map with longitude, or x, or else time, across, and what is positive downwards so."""
    spanning: list[Any] = [name for name in space.names if name in values.coords and values[name].ndim]
    spanned = {dim for name in spanning for dim in values[name].dims}
    spanning += [dim for dim in values.dims if dim not in spanned and dim in values.coords]
    if len(spanning) != 2:
        return values.plot.pcolormesh(**options)

    def precedence(name: Any) -> tuple[bool, ...]:
        role = space.axis(name).role if name in space.names else ""
        is_x = name == "x" or values[name].attrs.get("axis") == "X"
        return role != "longitude", not is_x, role != "time", name != values.dims[-1]

    x, y = sorted(spanning, key=precedence)
    axes: dict[str, Any] = {"x": x, "y": y}
    if values[y].attrs.get("positive") == "down":
        axes["yincrease"] = False
    wrap = space.axis(x).wrap if x in space.names else None
    if wrap and values[x].ndim == 1:  # no jump at the date line
        values = values.assign_coords({x: values[x].copy(data=np.unwrap(values[x].values, period=wrap))})
    values = _in_order(values)
    for name in (x, y):
        if values[name].isnull().any():
            raise ValueError(
                f"labels of {name!r} are missing, and a map has a place for each; leave them out"
            )
    return values.plot.pcolormesh(**(axes | options))
