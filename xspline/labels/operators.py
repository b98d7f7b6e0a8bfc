"""What derivatives are asked for, and how they combine into gradients and Laplacians."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import numpy as np
import xarray as xr

from xspline.labels import attributes, sphere
from xspline.labels.errors import unknown_name
from xspline.labels.statistics import Variable
from xspline.labels.target import Target
from xspline.spaces import BSpline, Fourier, Polynomial, Space

#: Evaluates one variable's derivative for orders by coordinate name.
Derivative = Callable[[Mapping[str, int]], xr.DataArray]


def checked_orders(
    space: Space, orders: Mapping[str, int] | None, keywords: Mapping[str, int]
) -> dict[str, int]:
    """Return derivative orders by name, positive ones only, in Space order.

    Raises
    ------
    ValueError
        Both forms are given, a name is not fitted, an order is not a non-negative integer or exceeds the degree,
        or all are zero.
    """
    if orders is not None and keywords:
        raise ValueError(
            f"orders given both as a mapping ({dict(orders)}) and as keywords ({dict(keywords)}); use one form"
        )
    wanted = dict(keywords if orders is None else orders)
    for name, order in wanted.items():
        if name not in space.names:
            raise unknown_name(name, "fitted coordinate", space.names)
        _check_order(space, name, order)
    if not any(wanted.values()):
        raise ValueError(
            f"no derivative asked for in {wanted or 'no coordinate'}; pass for example derivative({space.names[0]}=1)"
        )
    return {name: int(wanted[name]) for name in space.names if wanted.get(name)}


def _check_order(space: Space, name: str, order: Any) -> None:
    if isinstance(order, bool) or not isinstance(order, int | np.integer) or order < 0:
        raise ValueError(
            f"the order of the derivative along {name!r} is {order!r}; it has to be an integer, 0 or more"
        )
    highest = space.features[space.names.index(name)].max_order
    if highest is not None and order > highest:
        raise ValueError(
            f"the derivative of order {order} along {name!r} is above the degree {highest} of {space.axes[name][1]!r}; "
            f"fit a basis of higher degree"
        )


def differentiated(space: Space, dims: Iterable[str] | str | None) -> tuple[str, ...]:
    """Return the coordinates of a gradient: those asked for, or every fitted one that is not time."""
    if dims is None:
        names = tuple(n for n in space.names if space.axes[n][0].kind == "number")
        if not names:
            raise ValueError(
                f"every fitted coordinate ({', '.join(space.names)}) is a time; name them in dims="
            )
        return names
    names = (dims,) if isinstance(dims, str) else tuple(dims)
    for name in names:
        if name not in space.names:
            raise unknown_name(name, "fitted coordinate", space.names)
    if len(set(names)) < len(names):
        raise ValueError(f"dims={names} names a coordinate twice; give each once")
    return names


def gradient(
    derivative: Derivative, variable: Variable, space: Space, names: tuple[str, ...], geometry: str
) -> xr.Dataset:
    """Return first derivatives along `names`, as a Dataset under their own names."""
    first = {name: derivative(checked_orders(space, {name: 1}, {})) for name in names}
    if _is_sphere(geometry):
        lat, lon = _sphere_names(space, names)
        place = first[lon].coords[lat]
        first[lat] = _metric(first[lat], sphere.northward(first[lat]), "northward", variable)
        first[lon] = _metric(first[lon], sphere.eastward(first[lon], place), "eastward", variable)
    return xr.Dataset({d.name: d for d in first.values()})


def _metric(plane: xr.DataArray, metric: xr.DataArray, direction: str, variable: Variable) -> xr.DataArray:
    """Return the metric form with the name and attributes of the plane one, per metre."""
    attrs = {
        "units": attributes.per(variable.units, ("m", 1)),
        "long_name": f"{direction} {plane.attrs['long_name']}",
        "history": attributes.history(variable.history, "gradient(geometry='sphere')"),
    }
    return metric.transpose(*plane.dims).rename(plane.name).assign_attrs({**plane.attrs, **attrs})


def laplacian(
    derivative: Derivative, variable: Variable, space: Space, names: tuple[str, ...], geometry: str
) -> xr.DataArray:
    """Return the sum of second derivatives along `names`, or the Laplacian on the sphere."""
    second = {name: derivative(checked_orders(space, {name: 2}, {})) for name in names}
    example = second[names[0]]
    if _is_sphere(geometry):
        lat, lon = _sphere_names(space, names)
        if extra := set(names) - {lat, lon}:
            raise ValueError(
                f"the Laplacian on the sphere is over latitude and longitude, not {sorted(extra)}; "
                f"pass dims={[lat, lon]}"
            )
        first = derivative(checked_orders(space, {lat: 1}, {}))
        total, unit = sphere.laplacian(first, second[lat], second[lon], example.coords[lat]), "m"
    else:
        unit = _common_unit(space, names)
        total = functools.reduce(operator.add, second.values())
    attrs = {
        "units": attributes.per(variable.units, (unit, 2)),
        "long_name": f"Laplacian of {variable.long_name}",
        "history": attributes.history(variable.history, f"laplacian(geometry={geometry!r})"),
    }
    named = total.transpose(*example.dims).rename(f"{variable.name}_laplacian")
    return named.assign_attrs({k: v for k, v in {**example.attrs, **attrs}.items() if v})


def _common_unit(space: Space, names: tuple[str, ...]) -> str:
    units = {name: space.axes[name][0].units for name in names}
    if len(set(units.values())) > 1:
        raise ValueError(
            f"a Laplacian adds second derivatives per {units}, which differ; choose dims= with one unit, "
            f"or geometry='sphere' for latitude and longitude"
        )
    return units[names[0]]


def _is_sphere(geometry: str) -> bool:
    if geometry not in ("plane", "sphere"):
        raise ValueError(f"geometry={geometry!r} is unknown; use 'plane' or 'sphere'")
    return geometry == "sphere"


def _sphere_names(space: Space, names: tuple[str, ...]) -> tuple[str, str]:
    roles = {space.axes[name][0].role: name for name in names}
    if "latitude" not in roles or "longitude" not in roles:
        raise ValueError(
            f"geometry='sphere' needs a latitude and a longitude among {list(names)}; give the coordinates "
            f"units degrees_north and degrees_east before the fit, or name them in dims="
        )
    return roles["latitude"], roles["longitude"]


_TERMS = {kind.__name__: kind for kind in (BSpline, Fourier, Polynomial)}


def selection(space: Space, terms: Mapping[str, str]) -> np.ndarray:
    """Return 1 for the coefficients that belong to the named terms and 0 for others, shape (K_1, …, K_d)."""
    keep = [np.ones(k) for k in space.shape]
    for name, kind in terms.items():
        if name not in space.names:
            raise unknown_name(name, "fitted coordinate", space.names)
        basis = space.axes[name][1]
        if kind not in _TERMS or not (mask := basis.select(_TERMS[kind])).any():
            raise ValueError(f"{name!r} has no term {kind}; its basis is {basis!r}")
        keep[space.names.index(name)] = mask.astype(float)
    return np.asarray(functools.reduce(np.multiply.outer, keep))


def labelled(
    result: xr.DataArray,
    where: Target,
    variable: Variable,
    space: Space,
    orders: Mapping[str, int],
    selected: str,
) -> xr.DataArray:
    """Attach the target's coordinates, and name, units and history of what was evaluated."""
    attrs = _attributes(variable, space, orders, selected)
    own = {name: labels.variable for name, labels in where.coordinates.items()}
    beside = {n: c for labels in where.coordinates.values() for n, c in labels.coords.items()}
    beside |= dict(where.extra.coords)
    fits = {n: c for n, c in beside.items() if n not in own and set(c.dims) <= set(result.dims)}
    batch = {n: c for n, c in variable.batch.coords.items() if n not in own}
    labels: dict[Hashable, Any] = {n: c.variable for n, c in (*fits.items(), *batch.items())}
    return attributes.without_encoding(result.assign_coords(labels | own).assign_attrs(attrs))


def _attributes(variable: Variable, space: Space, orders: Mapping[str, int], selected: str) -> dict[str, Any]:
    units = attributes.per(variable.units, *((space.axes[name][0].units, n) for name, n in orders.items()))
    long_name = f"{variable.long_name} ({selected})" if selected else variable.long_name
    if orders:
        long_name = attributes.derivative_long_name(long_name, orders)
    call = f"derivative({', '.join(f'{n}={o}' for n, o in orders.items())})" if orders else "predict()"
    return attributes.attributes(units, long_name, variable.history, call)
