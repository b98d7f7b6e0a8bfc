"""``.spline`` on DataArray and Dataset: the functions of the same names, with the data left out, and no state."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import xarray as xr

from xspline import fitting

Result = TypeVar("Result")


def _method(function: Callable[..., Result]) -> Callable[..., Result]:
    """Return a function of data as a method with the same documentation and the same other parameters."""

    @functools.wraps(function)
    def method(self: SplineAccessor, /, *args: Any, **kwargs: Any) -> Result:
        return function(self._data, *args, **kwargs)

    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    parameters[0] = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    method.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    method.__qualname__ = f"SplineAccessor.{function.__name__}"
    return method


class SplineAccessor:
    """Fits smooth, differentiable fields; see :func:`xspline.fit`."""

    def __init__(self, data: xr.DataArray | xr.Dataset) -> None:
        self._data = data

    fit = _method(fitting.fit)
    statistics = _method(fitting.statistics)
    space = _method(fitting.space)
    plan = _method(fitting.plan)
    recover = _method(fitting.recover)
    constrain = _method(fitting.constrain)
    discover = _method(fitting.discover)


def register() -> None:
    """Make the accessor known to xarray, once."""
    for kind, decorate in (
        (xr.DataArray, xr.register_dataarray_accessor),
        (xr.Dataset, xr.register_dataset_accessor),
    ):
        if getattr(kind, "spline", None) is not SplineAccessor:
            decorate("spline")(SplineAccessor)
