"""Errors that remember, as they are asked for: AR(1) along a coordinate, and whether the data allow it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from xspline.arguments import is_integer, is_number
from xspline.labels.errors import place
from xspline.spaces import Basis, BSpline, Space
from xspline.spaces.basis import terms_of


@dataclass(frozen=True)
class AR1:
    """Errors that remember along a coordinate: neighbours at a distance of m steps have the correlation ρ^m.

    A fit with ``errors=AR1("time")`` is the generalised least-squares fit, and its error bars and degrees of freedom
    follow. The sums are those for every ρ, which REML chooses from them afterwards, for each independent fit its own.

    Parameters
    ----------
    dim
        The coordinate, with labels at equal steps (months count as such), whose basis has no B-spline: it is
        made of ``Polynomial``, ``Fourier``, ``Regressors`` and the like.
    rho
        The correlation of neighbours, between -0.99 and 0.99; None: chosen from the data.
    lags
        Steps between two observations that follow each other, at most, across which errors are remembered: longer gaps
        part the series. With 1 every gap would, and at ρ = 0.95 intervals would be too short where values are missing.

    Raises
    ------
    ValueError
        A `rho` that is out of range; `lags` that are no integer from 1 to 12.

    Examples
    --------
    >>> import numpy as np, xarray as xr, xspline as xs
    >>> rng, time = np.random.default_rng(0), np.arange(400.0)
    >>> noise = np.zeros(400)
    >>> for i in range(1, 400):
    ...     noise[i] = 0.7 * noise[i - 1] + rng.normal()
    >>> data = xr.DataArray(0.01 * time + noise, {"time": time}, "time", "u")
    >>> field = xs.fit(data, time=xs.Polynomial(1), errors=xs.AR1("time"))
    >>> bool(abs(field.summary().ar1 - 0.7) < 0.1)
    True
    """

    dim: str
    rho: float | None = None
    lags: int = 4

    def __post_init__(self) -> None:
        if not isinstance(self.dim, str):
            raise ValueError(
                f"AR1({self.dim!r}): name the coordinate along which errors remember, AR1('time')"
            )
        if self.rho is not None and not (is_number(self.rho) and abs(self.rho) <= 0.99):
            raise ValueError(
                f"AR1(rho={self.rho!r}): a correlation is a number from -0.99 to 0.99; leave it out, and it is chosen "
                "from the data"
            )
        if not (is_integer(self.lags) and 1 <= self.lags <= 12):
            raise ValueError(f"AR1(lags={self.lags!r}): steps across a gap are an integer from 1 to 12")


def check_errors(errors: Any, **others: Any) -> None:
    """Raise TypeError or ValueError unless errors are an AR1 or "auto" and go with the other arguments, or None."""
    if errors is None:
        return
    if not isinstance(errors, AR1) and not (isinstance(errors, str) and errors == "auto"):
        raise TypeError(
            f"errors={errors!r} has to be an xs.AR1, as in errors=xs.AR1('time'), or \"auto\", or None"
        )
    named = f"AR1({errors.dim!r})" if isinstance(errors, AR1) else repr(errors)
    advice = {
        "compute": "ρ is chosen from the sums, which have to be there: leave out compute=False",
        "robust": "weights that follow residuals take errors as independent: leave out robust=True",
        "fine": "a fine field has a memory of its own: leave out fine=True, or errors=",
        "checkpoint": "partial sums are kept without their edges: leave out checkpoint=, and keep statistics of parts",
    }
    for name, value in others.items():
        if value != (name == "compute") and value is not None:
            raise ValueError(f"errors={named} does not go with {name}={value!r}: {advice[name]}")


def splines_in(basis: Basis) -> bool:
    """Return whether a basis has a B-spline, which follows what a series remembers."""
    return any(isinstance(term, BSpline) for term in terms_of(basis))


def obstacle_to_series(
    dim: str,
    space: Space,
    data: xr.DataArray,
    spans: Mapping[str, tuple[Hashable, ...]],
    x: np.ndarray,
    weights: xr.DataArray | None,
) -> str:
    """Return why errors cannot remember along a fitted coordinate, and what to do; empty where they can.

    `spans` are the dimensions of each fitted coordinate, and `x` the labels of this one as floats.
    """
    basis, span = space.basis(dim), spans[dim]
    if splines_in(basis):
        return (
            f"the basis of {dim!r} has a B-spline, which follows what errors=AR1({dim!r}) would take for errors; "
            f"take Polynomial and Fourier, for example fit(..., {dim}=xs.Polynomial(1) + xs.Fourier(2, 'year'))"
        )
    if len(span) != 1 or list(spans.values()).count(span) > 1:
        shared = [name for name, other in spans.items() if other == span and name != dim]
        return (
            f"errors=AR1({dim!r}) needs series, and {dim!r} shares the dimension{'s' * (len(span) > 1)} "
            f"{', '.join(map(str, span))} with {', '.join(shared) or 'others'}: the data are points; put them on a "
            f"grid (dimensions place and {dim}) first, or use errors='auto', which takes scores of periods"
        )
    if weights is not None and span[0] in weights.dims:
        return (
            f"weights have the dimension {span[0]!r}, and errors=AR1({dim!r}) has one variance along a series; leave "
            f"out weights=, or take their mean, weights.mean({str(span[0])!r}), and mark what is missing as NaN"
        )
    return _irregular(data, dim, span[0], x)


def _irregular(data: xr.DataArray, dim: str, along: Hashable, x: np.ndarray) -> str:
    """Return how labels are no series; empty where they ascend by about the same step."""
    if x.size < 2:
        return f"errors=AR1({dim!r}) needs two labels along {dim!r}, and there is {x.size}: their distance is the step"
    distance = np.diff(x)
    if not (distance > 0).all():
        i = int(np.flatnonzero(~(distance > 0))[0])
        return (
            f"the labels of {dim!r} do not ascend, as errors=AR1({dim!r}) needs them: {_label(data, along, i)} is "
            f"followed by {_label(data, along, i + 1)}; sort first, data.sortby({dim!r}), one value each"
        )
    step = float(np.median(distance))
    off = np.abs(distance / np.maximum(np.rint(distance / step), 1) - step) / step
    if off.max() <= 0.25:
        return ""
    i = int(off.argmax())
    return (
        f"the labels of {dim!r} are irregular: {_label(data, along, i)} and {_label(data, along, i + 1)} are "
        f"{distance[i] / step:.3g} steps apart, and errors=AR1({dim!r}) counts in whole steps; average over equal "
        f"steps first, or name parts that are independent, holder=..., and use stderr(method='scores'); of times "
        f"data.resample({dim}=...).mean() averages, and errors='auto' takes periods for parts"
    )


def _label(data: xr.DataArray, dim: Hashable, i: int) -> str:
    return place(data[dim], (i,)) if dim in data.coords else str(i)
