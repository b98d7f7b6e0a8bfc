"""Scalars that say how a fit went."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from xspline.sums import Sums

if TYPE_CHECKING:
    from xspline.labels.field import Field
    from xspline.labels.statistics import Variable


def summarise(field: Field, name: str) -> xr.Dataset:
    """Return the summary of one variable, over its batch dimensions."""
    variable, sums, solution = field.variables[name], field.statistics.total(name), field.solution[name]
    determined = np.broadcast_to(solution.determined, sums.count.shape)
    edf = np.where(determined, solution.factorisation.edf(), np.nan)
    rss = np.where(determined, solution.rss, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = {
            "count": sums.count,
            "rmse": np.sqrt(rss / sums.weight),
            "r2": 1 - rss / spread(sums, field),
            "sigma": np.sqrt(np.where(sums.count > edf, rss / (sums.count - edf), np.nan)),
            "edf": edf,
        }
    dims = variable.batch_dims
    arrays = {
        key: xr.DataArray(np.asarray(v), dims=dims, attrs=_attrs(key, variable)) for key, v in values.items()
    }
    arrays["coefficients"] = xr.DataArray(field.space.size, attrs={"long_name": "coefficients"})
    attrs = {
        "penalty": repr(field.penalty),
        "solver": f"{solution.factorisation.name}: {solution.factorisation.reason}",
    }
    if sums.tally.outside:
        attrs["outside"] = f"{sums.tally.outside} observations outside the domain were left out"
    order = ["count", "coefficients", "rmse", "r2", "sigma", "edf"]
    return xr.Dataset({key: arrays[key] for key in order}, coords=variable.batch.coords, attrs=attrs)


def _attrs(key: str, variable: Variable) -> dict[str, str]:
    names = {
        "count": "observations with positive weight",
        "rmse": "root of the weighted mean squared residual",
        "r2": "share of the weighted variance that is explained",
        "sigma": "standard deviation of an observation of weight 1",
        "edf": "effective degrees of freedom",
    }
    own = {"units": variable.units} if key in ("rmse", "sigma") and variable.units else {}
    return {"long_name": names[key], **own}


def spread(sums: Sums, field: Field) -> np.ndarray:
    """Return Σw (y − ȳ)² from the sums; about zero where the space does not hold the constant."""
    if not field.space.has_constant:
        return np.asarray(sums.power)
    moment = sums.full_moment(field.space.frame)
    for e in field.space.constant():
        moment = np.tensordot(e, moment, axes=(0, 0))
    return np.asarray(sums.power - moment**2 / sums.weight)
