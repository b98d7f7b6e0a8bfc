"""Values of a field and their standard errors at a target, with labels."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from xspline import execution
from xspline.labels import attributes, operators, target
from xspline.labels.uncertainty import Covariance, covariance

if TYPE_CHECKING:
    from xspline.labels.field import Field

Orders = Mapping[str, int]


def values(field: Field, name: str, where: target.Target, orders: Orders, device: str | None) -> xr.DataArray:
    """Return one variable, or a derivative of it per unit of its coordinates."""
    found, dims = _evaluated(field, name, where, orders, device, field.arrays[name])
    return _labelled(xr.DataArray(found, dims=dims, name=_named(name, orders)), field, name, where, orders)


def errors(
    field: Field,
    name: str,
    where: target.Target,
    orders: Orders,
    device: str | None,
    method: str | None = None,
) -> xr.DataArray:
    """Return the standard error of one variable, or of a derivative of it."""
    found = _covariance(field, name, method)
    variance, dims = _evaluated(field, name, where, orders, device, found.pairs, pairs=True)
    stderr = np.sqrt(np.maximum(variance, 0.0))  # where it vanishes, rounding may leave it below zero
    result = xr.DataArray(stderr, dims=dims, name=f"{_named(name, orders)}_stderr")
    return attributes.of_error(_labelled(result, field, name, where, orders), found.attrs)


def at_orders(evaluate: Callable[..., xr.DataArray]) -> Callable[..., operators.Derivative]:
    """Return `values` or `errors` as a function that leaves the orders of the derivative open."""

    def opened(field: Field, name: str, where: target.Target, device: str | None) -> operators.Derivative:
        return lambda orders: evaluate(field, name, where, orders, device)

    return opened


def _named(name: str, orders: Orders) -> str:
    return attributes.derivative_name(name, orders) if orders else name


def _labelled(
    result: xr.DataArray, field: Field, name: str, where: target.Target, orders: Orders
) -> xr.DataArray:
    return operators.labelled(
        result, where, field.variables[name], field.space, orders, selection_text(field.selected)
    )


def selection_text(selected: Mapping[str, str]) -> str:
    """Return ``time=Polynomial`` for the long name of a part of a field."""
    return ", ".join(f"{name}={kind}" for name, kind in selected.items())


def _covariance(field: Field, name: str, method: str | None) -> Covariance:
    """Return the covariance of the coefficients in pair form, made once for each method."""
    field._check_computed("standard error")
    known = field._covariances
    if (name, method) not in known:
        known[name, method] = covariance(field, name, method)
    return known[name, method]


def _evaluated(
    field: Field,
    name: str,
    where: target.Target,
    orders: Orders,
    device: str | None,
    array: Any,
    *,
    pairs: bool = False,
) -> tuple[Any, tuple[Hashable, ...]]:
    """Return coefficients, or a covariance in pair form, evaluated at a target, and the dimensions of the result."""
    variable, space = field.variables[name], field.space
    grid = target.grid(where, variable, space, variable.batch_shape)
    found = execution.evaluate(
        array,
        grid.coordinates,
        grid.layout,
        space,
        tuple(orders.get(c, 0) for c in space.names),
        grid.shape,
        chunks=grid.chunks,
        device=device,
        pairs=pairs,
    )
    return found, grid.dims
