"""``.spline`` on DataArray and Dataset: one delegated line a method, and no state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import xarray as xr

from xspline import execution, fitting
from xspline.labels.field import Field
from xspline.labels.statistics import Statistics
from xspline.spaces import Space


class SplineAccessor:
    """Fits smooth, differentiable fields; see :func:`xspline.fit`."""

    def __init__(self, data: xr.DataArray | xr.Dataset) -> None:
        self._data = data

    def fit(
        self,
        space: Space | Mapping[str, Any] | None = None,
        *,
        penalty: Any = None,
        weights: xr.DataArray | None = None,
        holder: Any = None,
        solver: str | None = None,
        device: str | None = None,
        compute: bool = True,
        checkpoint: Any = None,
        **bases: Any,
    ) -> Field:
        """Fit a field; see :func:`xspline.fit`."""
        return fitting.fit(
            self._data,
            space,
            penalty=penalty,
            weights=weights,
            holder=holder,
            solver=solver,
            device=device,
            compute=compute,
            checkpoint=checkpoint,
            **bases,
        )

    def statistics(
        self,
        space: Space | Mapping[str, Any] | None = None,
        *,
        weights: xr.DataArray | None = None,
        holder: Any = None,
        device: str | None = None,
        compute: bool = True,
        checkpoint: Any = None,
        **bases: Any,
    ) -> Statistics:
        """Compute sufficient statistics; see :func:`xspline.statistics`."""
        return fitting.statistics(
            self._data,
            space,
            weights=weights,
            holder=holder,
            device=device,
            compute=compute,
            checkpoint=checkpoint,
            **bases,
        )

    def space(self, space: Space | Mapping[str, Any] | None = None, **bases: Any) -> Space:
        """Return the Space of some bases over these coordinates; see :func:`xspline.space`."""
        return fitting.space(self._data, space, **bases)

    def plan(
        self,
        space: Space | Mapping[str, Any] | None = None,
        *,
        penalty: Any = None,
        weights: xr.DataArray | None = None,
        holder: Any = None,
        solver: str | None = None,
        device: str | None = None,
        **bases: Any,
    ) -> execution.Plan:
        """Say what a fit would cost, before any data move; see :func:`xspline.plan`."""
        return fitting.plan(
            self._data,
            space,
            penalty=penalty,
            weights=weights,
            holder=holder,
            solver=solver,
            device=device,
            **bases,
        )


def register() -> None:
    """Make the accessor known to xarray, once."""
    for kind, decorate in (
        (xr.DataArray, xr.register_dataarray_accessor),
        (xr.Dataset, xr.register_dataset_accessor),
    ):
        if getattr(kind, "spline", None) is not SplineAccessor:
            decorate("spline")(SplineAccessor)
