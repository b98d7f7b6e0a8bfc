"""Values and their errors as one: intervals, also of whole curves, chances to exceed a level, significance of maps."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from xspline.arguments import brief, is_number
from xspline.labels import uncertainty
from xspline.labels.errors import check_names
from xspline.labels.evaluation import history, noise_at
from xspline.labels.fit import Fit
from xspline.labels.read.targets import Target
from xspline.labels.uncertainty import DRAWS, ROOT, Covariance, Requested
from xspline.solve import interval_factor, student_below
from xspline.spaces.conversions import are_one, units_of

PROCEDURES = ("BH", "BY")


@dataclass(frozen=True, eq=False)
class Estimate:
    """Values of one variable, or of a derivative of it, at some labels, with their errors."""

    fit: Fit  # what is evaluated
    evaluated: Callable[..., xr.DataArray]  # by what function
    requested: Requested  # what errors were requested
    value: xr.DataArray  # as ``predict`` returns it
    # errors over this are Student's t: the standard error, with the noise of new observations; that of a fine field
    # without what it is stretched by
    scale: xr.DataArray
    degrees: xr.DataArray  # degrees of freedom of this Student's t
    attrs: Mapping[str, Any]  # what the standard error assumes

    @classmethod
    def of(
        cls,
        fit: Fit,
        evaluated: Callable[..., xr.DataArray],
        covariance: Covariance,
        requested: Requested,
        noise: xr.DataArray | None,
    ) -> Estimate:
        """Evaluate a fit; `noise` is that of new observations, None for the field itself."""
        stderr, batch = evaluated(fit, covariance), fit.variable.batch_dims
        value = evaluated(fit)
        degrees, scale = xr.DataArray(covariance.degrees, dims=batch), stderr
        if fit.fine is not None:  # its errors are stretched: those of 95 % are as of a normal distribution
            scale = stderr * (interval_factor(0.95) / interval_factor(0.95, degrees))
        if noise is not None:
            square, extra = scale**2, aligned(value, noise) ** 2
            scale = (square + extra) ** 0.5
            if requested.by_parts(fit):  # two variances, each known on its own (Satterthwaite 1946)
                own = xr.DataArray(uncertainty.degrees_of_freedom(fit, requested, "exact"), dims=batch)
                degrees = scale**4 / (square**2 / degrees + extra**2 / own)
        return cls(fit, evaluated, requested, value, scale, degrees, stderr.attrs)

    def interval(
        self, level: float, names: Sequence[str], *, simultaneous: bool = False, new: bool = False
    ) -> xr.Dataset:
        """Return the ends of intervals under two names."""
        factor = _elementwise(interval_factor, level, self.degrees)
        if simultaneous:
            factor = np.maximum(self._factor_of_all(level), factor)
        half = (factor * self.scale).transpose(*self.value.dims)
        kind = f"{'simultaneous ' * simultaneous}{100 * level:g} % interval"
        of = f"end of the {kind} of {'a new observation of ' * new}{self.value.attrs['long_name']}"
        call = f"interval(level={level:g}{', new=True' * new}{', simultaneous=True' * simultaneous})"
        lower = self._labelled(self.value - half, f"lower {of}", call)
        upper = self._labelled(self.value + half, f"upper {of}", call)
        return xr.Dataset(dict(zip(names, (lower, upper), strict=True)))

    def exceedance(self, level: Any) -> xr.DataArray:
        """Return the chance of being above a level."""
        chance = self._below(self._scores(level))
        of = f"{level:g} {self.attrs.get('units', '')}".rstrip() if is_number(level) else "a level"
        text = f"probability that {self.value.attrs['long_name']} is above {of}"
        result = self._labelled(chance, text, "exceedance()").assign_attrs(units="1")
        return result.rename(f"{self.value.name}_exceedance")

    def significance(self, value: Any, rate: float, procedure: str) -> xr.DataArray:
        """Return where there is a difference from a value, by a procedure with a rate of false discoveries."""
        chance = 2 * self._below(-abs(self._scores(value)))
        together = chance if chance.chunks is None else chance.chunk(-1)
        function = functools.partial(highest_discovered, rate=rate, procedure=procedure)
        highest = _elementwise(function, together, input_core_dims=[chance.dims])
        text = f"whether {self.value.attrs['long_name']} is significant"
        result = self._labelled(chance <= highest, text, "significance()")
        result.attrs.pop("units", None)
        known = {"false_discovery_rate": rate, "procedure": procedure}
        return result.rename(f"{self.value.name}_significant").assign_attrs(known)

    def _scores(self, level: Any) -> xr.DataArray:
        """Return how many scales values are above a level."""
        if isinstance(level, Mapping):
            check_names([self.fit.name], level, "variable among the levels")
            level = level[self.fit.name]
        mine, given = self.attrs.get("units", ""), units_of(level)
        if not are_one(given, mine):
            raise ValueError(
                f"{self.value.name} is in {mine!r}, and what it is compared with in {given!r}: convert that, or "
                "correct its attrs['units']"
            )
        return (self.value - aligned(self.value, level)) / self.scale

    def _below(self, scores: xr.DataArray) -> xr.DataArray:
        """Return the chance that an error, in scales, is less."""
        return _elementwise(student_below, self.degrees, scores).transpose(..., *self.value.dims)

    def _labelled(self, result: xr.DataArray, long_name: str, call: str) -> xr.DataArray:
        attrs = {"long_name": long_name, "history": history(self.fit.variable.history, call)}
        return result.assign_attrs({**self.attrs, **attrs})

    def _factor_of_all(self, level: float) -> xr.DataArray:
        """Return the factor c such that no error of a fit is larger than c scales anywhere, with this probability.

        It is the quantile of the largest |error| over the scale, of draws of the error, each divided by a draw of how
        wrong the scale is, √(χ²/ν) (Ruppert, Wand and Carroll 2003, section 6.5).
        """
        fit, batch = self.fit, self.fit.variable.batch_dims
        n = max(uncertainty.number_of_draws(fit, self.requested), DRAWS)
        rng = np.random.default_rng([self.requested.seed, 1])
        labels = self.value.size if self.value.chunks is None else None
        over = [dim for dim in self.value.dims if dim not in batch]
        scale, maxima = self.scale.where(self.scale > 0), []
        for some in uncertainty.along_roots(fit, uncertainty.deviations(fit, n, rng, self.requested), labels):
            maxima.append((abs(self.evaluated(some.select(fit.selected))) / scale).max(over))
        degrees = self.degrees.fillna(1.0)
        relative = rng.chisquare(degrees, (n, *degrees.shape)) / degrees.values
        largest = xr.concat(maxima, ROOT) / xr.DataArray(relative, dims=(ROOT, *batch)) ** 0.5
        largest = largest if largest.chunks is None else largest.chunk({ROOT: -1})
        return largest.quantile(level, ROOT, skipna=False).drop_vars("quantile")


def noise_of(fit: Fit, weight: Any, target: Target) -> xr.DataArray:
    """Return the standard deviation of new observations at labels; ValueError where their weight is not known."""
    total = fit.statistics.total(fit.name)  # as weights are, whatever errors remember
    if weight is None and fit.levels is not None and np.any(fit.levels.ratio != 1):
        raise ValueError(
            f"new=True: holders of {fit.name!r} have noise of their own; pass the weight of the new observation, 1 for "
            f"one of {fit.levels.reference!r}, (its noise / that of a holder)**2 for one of another: field.noise"
        )
    if weight is None and not fit.robust and not np.array_equal(total.weight, total.count):
        mean = float(np.sum(total.weight) / np.sum(total.count))
        raise ValueError(
            f"new=True: {fit.name!r} was fitted with weights, {mean:.3g} on average; pass that of the new observation, "
            f"for example weight={mean:.3g}"
        )
    if isinstance(weight, xr.DataArray):
        weight = weight.where(weight > 0)
    elif weight is not None and not (is_number(weight) and weight > 0):
        raise ValueError(
            f"weight={brief(weight)}: that of a new observation is a number above 0, or a DataArray"
        )
    return noise_at(fit, target) / (1.0 if weight is None else weight) ** 0.5


def aligned(value: xr.DataArray, given: Any) -> Any:
    """Return what goes with a value; raises ValueError for an array that has other labels, and for no number."""
    if isinstance(given, xr.DataArray):
        try:
            return xr.align(value, given, join="exact", copy=False)[1]
        except ValueError as error:
            raise ValueError(
                f"an array was given that has other labels than {value.name}; reindex it like that. {error}"
            ) from None
    if not is_number(given):
        raise ValueError(f"{brief(given)} is neither a number nor a DataArray, in the units of {value.name}")
    return given


def highest_discovered(chances: np.ndarray, *, rate: float, procedure: str) -> np.ndarray:
    """Return the highest chance that is a discovery, -1 if none is, of which a share of `rate` is false on average."""
    known = np.sort(chances[np.isfinite(chances)])
    ranks = np.arange(1, known.size + 1)
    tests = max(known.size, 1) * (np.sum(1 / ranks) if procedure == "BY" else 1.0)
    return np.asarray(np.max(known, where=known <= rate * ranks / tests, initial=-1.0))


def check_probability(name: str, value: float, example: str) -> None:
    """Raise ValueError where this is no probability, with what is likely meant."""
    if not 0 < value < 1:
        meant = f"; for {value:g} % pass {name}={value / 100:g}" if 1 <= value < 100 else ""
        raise ValueError(f"{name}={value!r} is no probability between 0 and 1, such as {example}{meant}")


def _elementwise(function: Any, *arguments: Any, **how: Any) -> Any:
    return xr.apply_ufunc(function, *arguments, dask="parallelized", output_dtypes=[float], **how)
