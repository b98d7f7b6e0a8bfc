"""Scalars that say how a fit went."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from xspline.solve import Roughness
from xspline.sums import Sums

if TYPE_CHECKING:
    from xspline.labels.field import Field
    from xspline.labels.statistics import Variable


def summarise(field: Field, name: str) -> xr.Dataset:
    """Return the summary of one variable, over its batch dimensions."""
    variable, sums, solution = field.variables[name], field.statistics.total(name), field.solution[name]
    edf, rss = _of_determined(field, name)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = {
            "count": sums.count,
            "rmse": np.sqrt(rss / sums.weight),
            "r2": 1 - rss / spread(sums, field),
            "sigma": sigma_of(field, name),
            "edf": edf,
        }
    dims = variable.batch_dims
    arrays = {
        key: xr.DataArray(np.asarray(v), dims=dims, attrs=_attrs(key, variable)) for key, v in values.items()
    }
    arrays["coefficients"] = xr.DataArray(field.space.size, attrs={"long_name": "coefficients"})
    attrs = {
        "penalty": repr(field.penalties[name]),
        "solver": f"{solution.factorisation.name}: {solution.factorisation.reason}",
    }
    if sums.tally.outside:
        attrs["outside"] = f"{sums.tally.outside} observations outside the domain were left out"
    order = ["count", "coefficients", "rmse", "r2", "sigma", "edf"]
    every = {key: arrays[key] for key in order} | _smoothing(field, name, attrs)
    return xr.Dataset(every, coords=variable.batch.coords, attrs=attrs)


def _smoothing(field: Field, name: str, attrs: dict[str, str]) -> dict[str, xr.DataArray]:
    """Return the strengths of the roughness penalty and the score of their choice; how it went becomes an attribute."""
    strengths: dict[str, float] = {}
    for part in field.penalties[name].parts:
        strengths |= part.strengths(field.space) if isinstance(part, Roughness) else {}
    found = {}
    if strengths:
        along = xr.Variable("penalised", list(strengths))
        found["lambda"] = xr.DataArray(
            list(strengths.values()),
            {"penalised": along},
            attrs={"long_name": "strength of the roughness penalty"},
        )
    if choice := field.choices.get(name):
        ends = (f", lambda of {name} at its {side} bound" for name, side in choice["at_bounds"].items())
        given_up = "" if choice["converged"] else ", not converged"
        errors = (f", log lambda of {n} ± {e:.2g}" for n, e in choice.get("error", {}).items())
        attrs["smoothing"] = (
            f"{choice['method']}, {choice['factorisations']} factorisations{given_up}{''.join(ends)}{''.join(errors)}"
        )
        found["score"] = xr.DataArray(choice["score"], attrs={"long_name": f"{choice['method']} score"})
    return found


def _of_determined(field: Field, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return effective degrees of freedom and residual sum of squares; NaN for members that are not determined."""
    sums, solution = field.statistics.total(name), field.solution[name]
    determined = np.broadcast_to(solution.determined, sums.count.shape)
    edf = np.where(determined, solution.factorisation.edf(), np.nan)
    return edf, np.where(determined, solution.rss, np.nan)


def sigma_of(field: Field, name: str) -> np.ndarray:
    """Return √(Σw e²/(count − edf)), the standard deviation of an observation of weight 1, over batch dimensions."""
    edf, rss = _of_determined(field, name)
    count = field.statistics.total(name).count
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.sqrt(np.where(count > edf, rss / (count - edf), np.nan)))


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
