"""The fit of one variable, from the statistics and what was requested; what it knows of itself in one table."""

from __future__ import annotations

import contextlib
import functools
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import xarray as xr

from xspline import execution
from xspline.kriging.nearby import Nearby
from xspline.labels.errors import Labels, check_names, check_tally
from xspline.labels.fine.field import Fine, rows_of
from xspline.labels.inference.levels import Border, Levels
from xspline.labels.read.observations import Variable
from xspline.labels.statistics import Statistics
from xspline.solve import (
    Choice,
    Factorisation,
    Likelihood,
    Penalty,
    Resources,
    Roughness,
    Scores,
    Sobolev,
    Solution,
    choice_for,
    choose,
    condition,
    condition_bound,
    criterion_of,
    scores_of,
    solve,
)
from xspline.spaces import Basis, Fourier, Space, Union
from xspline.sums import Gram, Sums
from xspline.sums.memory import whitened

#: A penalty, or the name of the criterion that chooses one: "reml", "gcv" or "holders".
RequestedPenalty: TypeAlias = Penalty | str

#: The condition beyond which a fit without penalty may be nearly singular: in one direction errors are thirty times
#: what they are elsewhere. Measured: it is below 2 on any full grid, and where stations exceed it the field is
#: somewhere off by more than the spread of the data.
WEAK = 1e3
_TERMS = {name: kind for name, kind in Basis.kinds.items() if kind is not Union}
_LONG_NAMES = {
    "count": "observations with positive weight",
    "coefficients": "coefficients",
    "rmse": "root of the weighted mean squared residual",
    "r2": "share of the weighted variance that is explained",
    "sigma": "standard deviation of an observation of weight 1",
    "edf": "effective degrees of freedom",
    "ar1": "correlation of errors one step apart",
    "effective": "independent observations that tell as much of the mean",
}


@dataclass(frozen=True)
class Request:
    """What the user requested of a solve.

    Attributes
    ----------
    penalty : a penalty, or the name of the criterion that chooses one.
    solver : name of a solver; None chooses one by structure.
    device : "cuda" or None (the host); later solves run there too, where a process has one.
    """

    penalty: RequestedPenalty
    solver: str | None = None
    device: str | None = None


class SolvedApart(Penalty):
    """A penalty whose matrix is no Gram, which the solvers take: it brings a solver of its own."""

    @abstractmethod
    def field(self, statistics: Statistics[Any], request: Request) -> Any:
        """Return the field of some statistics under it."""

    @abstractmethod
    def choice(self, space: Space) -> Choice:
        """Return what its solver costs."""


@dataclass(frozen=True, eq=False)
class Fit:
    """The fit of one variable.

    Attributes
    ----------
    statistics : the statistics of all variables that were fitted together.
    name : the name of the variable.
    coefficients : an array with axes in Space order, then batch; a Dask array of one block while the fit is lazy.
    penalty : the penalty that was given or chosen; None while it is still to be chosen.
    choice : how the penalty was chosen, as plain data; empty where it was given.
    solution : the solution for all terms; None while the fit is lazy, for draws, and for a fit from a file.
    selected : the name of the selected term for each coordinate of which one was selected.
    fine : the fine field that is added to all terms together; None for a single field.
    residuals : what residuals say of the model, as plain data; empty where none were looked at.
    robust : of a robust fit, ``passes`` over the data and whether weights ``settled`` in them; else empty.
    rho : where errors remember, the correlation of those one step apart, over batch dimensions; None for independent
        ones.
    weak : of nearly singular members how much larger errors are in one direction than elsewhere, else 0; None for none.
    levels : what holders differ by, where that was asked for; the statistics are without offsets, weighed by noise.
    """

    statistics: Statistics[Any]
    name: str
    coefficients: Any
    penalty: Penalty | None = None
    choice: Mapping[str, Any] = field(default_factory=dict)
    solution: Solution | None = None
    selected: Mapping[str, str] = field(default_factory=dict)
    fine: Fine | None = None
    residuals: Mapping[str, Any] = field(default_factory=dict)
    robust: Mapping[str, Any] = field(default_factory=dict)
    rho: np.ndarray | None = None
    weak: np.ndarray | None = None
    levels: Levels | None = None

    @property
    def space(self) -> Space:
        """The features and their domains."""
        return self.statistics.space

    @property
    def whole(self) -> Fine | None:
        """The fine field, where all terms are selected, to which it is added."""
        return None if self.selected else self.fine

    @property
    def variable(self) -> Variable:
        """Labels of the variable."""
        return self.statistics.variables[self.name]

    @property
    def sums(self) -> list[Sums]:
        """The sums of each part, in the order of the statistics."""
        return [part.sums[self.name] for part in self.statistics.parts]

    @functools.cached_property
    def total(self) -> Sums:
        """The sums of all parts, with R⁻¹ between observations whose errors remember."""
        if self.rho is None:
            return self.statistics.total(self.name)
        return whitened(self.statistics._complete(self.name), self.rho, self.space.frame)

    @functools.cached_property
    def border(self) -> Border | None:
        """What the offsets of holders are beside the coefficients; None where there are no levels."""
        if (levels := self.levels) is None:
            return None
        of = [levels.names.index(part.holder) for part in self.statistics.parts]
        return Border(levels, self.sums, of, self.solved.factorisation, self.space.frame)

    @property
    def remembers(self) -> str:
        """The coordinate along which errors remember; empty for independent ones."""
        memory = None if self.rho is None else self.statistics.total(self.name).memory
        return "" if memory is None else memory.series.dim

    @property
    def parted(self) -> np.ndarray:
        """The share of observations whose next one is too far for errors that remember to be known alike, [b..]."""
        memory = self.statistics._complete(self.name).memory
        if self.rho is None or memory is None:
            return np.zeros(self.variable.batch_shape)
        low, high = self.space.features[memory.series.coefficient].domain or (0.0, 0.0)
        count = np.asarray(self.total.count, dtype=np.float64)
        return memory.parted(count, round((high - low) / memory.series.step) + 1)

    @functools.cached_property
    def scores(self) -> Scores:
        """Scores of the parts; periods that nobody named are as long as neighbours go together, and at least eight."""
        sums = self.statistics._cumulated(self.name)
        if self.rho is not None:
            sums = [whitened(own, self.rho, self.space.frame) for own in sums]
        scores = scores_of(sums, self.space, self.known_penalty, self.solved)
        while self.statistics._is_in_periods and len(sums) >= 16 and scores.remember:
            sums = sums[::-2][::-1]
            scores = scores_of(sums, self.space, self.known_penalty, self.solved)
        return scores

    @property
    def by_scores(self) -> bool:
        """Whether error bars are from scores, as ``errors="auto"`` takes them where errors of a time are alike."""
        statistics = self.statistics
        asks = self.solution is not None and statistics._decides and len(statistics.parts) > 1
        asks = asks and not isinstance(self.penalty, SolvedApart)
        return asks and self.scores.are_alike

    @property
    def errors(self) -> str:
        """What ``errors="auto"`` takes errors for, and why; empty without."""
        if self.solution is None or not self.statistics._decides:
            return ""
        series = f"AR(1) along {self.remembers}" if self.remembers else "independent"
        if not self.by_scores:
            return f"{series}; nothing that they share beyond"
        count, periods, times = len(self.scores.used), self.statistics.periods, self.scores.mean_inflation
        each = -(-len(periods) // count)
        length = f" as long as {periods[-each][2]} to {periods[-1][3]}" if periods else ""
        return (
            f"{series}, and alike within {count} parts{length}, whose scores vary {times:.3g} times as much as "
            "independent errors would make them"
        )

    @property
    def likelihood(self) -> Likelihood:
        """That of the correlation of errors that remember."""
        resources, solver = execution.resources(None), self.solved.factorisation.choice.name
        complete = self.statistics._complete(self.name)
        return Likelihood(complete, self.space, self.known_penalty, solver, resources)

    @property
    def is_lazy(self) -> bool:
        """Whether the coefficients are still to be computed."""
        return not isinstance(self.coefficients, np.ndarray)

    @property
    def known_penalty(self) -> Penalty:
        """The penalty; raises ValueError where it is still to be chosen."""
        if self.penalty is None:
            raise ValueError(
                f"the penalty of {self.name!r} is still to be chosen; call .compute() on its field first"
            )
        return self.penalty

    @property
    def solved(self) -> Solution:
        """The solution; raises ValueError where there is none."""
        if self.solution is None:
            raise ValueError(f"the fit of {self.name!r} is not solved; call .compute() on its field first")
        return self.solution

    @property
    def sizes(self) -> dict[str, int]:
        """Number of functions of each coordinate."""
        return dict(zip(self.space.names, self.space.shape, strict=True))

    @property
    def strengths(self) -> dict[str, float]:
        """λ of each coordinate whose roughness is penalised."""
        elements = self.known_penalty.elements(self.space)
        roughness = (t for t in elements if isinstance(t, Roughness) and t.order)
        return {name: x for term in roughness for name, x in term.strengths(self.space).items()}

    def select(self, terms: Mapping[str, str]) -> Fit:
        """Return the fit with the coefficients of all terms but the selected ones at zero."""
        for name, kind in terms.items():
            before = self.selected.get(name, kind)
            own, kept = (selection(self.space, {name: term}) for term in (kind, before))
            if np.any(own > kept):
                term = f"xs.{before}" if before in _TERMS else repr(before)
                raise ValueError(
                    f"{kind} of {name!r} was left out already, by select({name}={term}); select it from the field "
                    "with all terms"
                )
        keep = selection(self.space, terms, self.coefficients.ndim)
        return replace(self, coefficients=self.coefficients * keep, selected={**self.selected, **terms})

    def along(self, dim: str, coefficients: np.ndarray) -> Fit:
        """Return this fit with other coefficients [K.., n, b..], n of them along a new batch dimension."""
        n = coefficients.shape[len(self.space.shape)]
        variables = {name: v.along(dim, n) for name, v in self.statistics.variables.items()}
        statistics = replace(self.statistics, variables=variables)
        return Fit(statistics, self.name, coefficients, self.penalty, self.choice, selected=self.selected)

    @functools.cached_property
    def edf_and_rss(self) -> tuple[np.ndarray, np.ndarray]:
        """Effective degrees of freedom and residual sum of squares; NaN for members that are not determined."""
        solution = self.solved
        determined = np.broadcast_to(solution.determined, self.total.count.shape)
        edf = np.where(determined, solution.factorisation.edf(), np.nan)
        if self.border is not None:
            edf = edf + self.border.edf
        return edf, np.where(determined, solution.rss, np.nan)

    def sigma(self) -> np.ndarray:
        """√(Σw e²/(count − edf)), the standard deviation of an observation of weight 1, over batch dimensions."""
        edf, rss = self.edf_and_rss
        count = self.total.count
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.sqrt(np.where(count > edf, rss / (count - edf), np.nan)))

    def of_few(self) -> Iterator[tuple[int, Nearby, np.ndarray, np.ndarray, np.ndarray]]:
        """Yield the members with a fine field whose observations are few, and enough to tell all terms.

        Each comes with its number, its functions at observations [n, P], the precision [P, P] that the penalty gives
        coefficients before data, and the system [P, P] that was solved for them.
        """
        space, members = self.space, () if self.fine is None else self.fine.members
        dense = [(k, m) for k, m in enumerate(members) if m is not None and m.is_dense]
        few = [(k, m) for k, m in dense if 2 * space.size <= m.pyramid.count]
        if not few:
            return
        shape = (space.size, space.size, len(members))
        grams = (self.known_penalty.bound(self.total.gram, space).gram(space), self.total.gram)
        penalty, data = (
            np.broadcast_to(gram.to_dense(space.frame).reshape(*shape[:2], -1), shape) for gram in grams
        )
        variance = np.broadcast_to(self.sigma() ** 2, self.variable.batch_shape).ravel()
        for k, member in few:
            if variance[k] > 0:
                own = penalty[..., k]
                yield k, member, rows_of(space, member.coordinates), own / variance[k], own + data[..., k]

    def noise(self) -> np.ndarray:
        """The standard deviation of an observation of weight 1 about the field, over batch dimensions."""
        if self.fine is None:
            return self.sigma()
        mean_weight = self.total.weight / np.maximum(self.total.count, 1)
        return np.asarray(np.sqrt(self.fine.noise(self.total.count.shape) * mean_weight))

    @functools.cached_property
    def condition(self) -> np.ndarray:
        """How far from evenly the data and the penalty determine each field, see :func:`xspline.solve.condition`."""
        return condition(self.total, self.space, self.solved.factorisation)

    @functools.cached_property
    def _as_independent(self) -> tuple[Sums, np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Return sums, edf and Σw e², with a fine field and without memory, and what is to be said of memory."""
        sums, (edf, rss) = self.statistics.total(self.name), self.edf_and_rss
        if self.fine is not None:
            count = np.asarray(self.total.count)
            leverage, square = self.fine.residuals(count.shape)
            edf = np.minimum(edf + leverage * count, count)
            rss = np.where(np.isnan(square), rss, square * self.total.weight)
        if self.rho is None:
            return sums, edf, rss, {}
        c, frame = np.where(self.solved.determined, self.solved.coefficients, np.nan), self.space.frame
        with np.errstate(divide="ignore", invalid="ignore"):
            known = self.solved.determined & (self.parted < 1)
            effective = np.where(known, self.total.weight * sums.count / sums.weight, np.nan)
        rss = sums.rss(sums.centred(c, frame), frame)
        return sums, edf, rss, {"ar1": np.where(known, self.rho, np.nan), "effective": effective}

    @property
    def r2(self) -> np.ndarray:
        """The share of the variance of observations that the field explains, [b..]; NaN where these are constant."""
        sums, _, rss, _ = self._as_independent
        return np.asarray(1 - rss / spread_of(sums, self.space))

    def summary(self) -> xr.Dataset:
        """Return count, coefficients, rmse, r2, sigma, edf and how the penalty was chosen, over batch dimensions."""
        variable, factorisation = self.variable, self.solved.factorisation
        sums, edf, rss, remembered = self._as_independent
        with np.errstate(divide="ignore", invalid="ignore"):
            values = {
                "count": sums.count,
                "coefficients": self.space.size,
                "rmse": np.sqrt(rss / sums.weight),
                "r2": self.r2,
                "sigma": self.noise(),
                "edf": edf,
                **remembered,
            }
        rows = {}
        for key, value in values.items():
            in_units = key == "rmse" or (key == "sigma" and np.array_equal(sums.weight, sums.count))
            units = {"units": variable.units} if in_units and variable.units else {}
            own = {"long_name": _LONG_NAMES[key], **units}
            dims = () if key == "coefficients" else variable.batch_dims
            rows[key] = xr.DataArray(np.asarray(value), dims=dims, attrs=own)
        solver = f"{factorisation.choice.name}: {factorisation.choice.reason}"
        attrs = {"penalty": repr(self.penalty), "solver": solver}
        if self.errors:
            attrs["errors"] = self.errors
        if self.robust:
            attrs["robust"] = f"{self.robust['passes']} passes over the data"
        if sums.tally.outside:
            attrs["outside"] = f"{sums.tally.outside} observations outside the domain were left out"
        unwritten = [part.provenance.get("unwritten", {}).get(self.name) for part in self.statistics.parts]
        if any(unwritten):
            attrs["unwritten"] = "; ".join(filter(None, unwritten))
        for term in self.known_penalty.elements(self.space):
            if isinstance(term, Sobolev):
                named = {"long_name": "strength of the seminorm of this order"}
                taus = {order: x for order, x in term.orders.items() if x is not None}
                rows["tau"] = xr.DataArray(list(taus.values()), {"order": list(taus)}, attrs=named)
                metric = term.metric(self.space)
                named = {"long_name": "how much a change along this coordinate counts"}
                rows["metric"] = xr.DataArray(list(metric.values()), {"penalised": list(metric)}, attrs=named)
        if strengths := self.strengths:
            along = {"penalised": xr.Variable("penalised", list(strengths))}
            named = {"long_name": "strength of the roughness penalty"}
            rows["lambda"] = xr.DataArray(list(strengths.values()), along, attrs=named)
        if self.whole is not None:
            rows |= self.whole.scales(self.space)
            attrs["fine"] = "; ".join(self.whole.text(self.space, variable.units))
        if choice := self.choice:
            ends = (f", lambda of {name} at its {side} bound" for name, side in choice["at_bounds"].items())
            given_up = "" if choice["converged"] else ", not converged"
            errors = (f", log lambda of {n} ± {e:.2g}" for n, e in choice.get("error", {}).items())
            counted = f"{choice['method']}, {choice['factorisations']} factorisations"
            if (times := choice.get("as_one", 1.0)) > 1:
                counted += f", {times:.3g} observations vary as one"
            attrs["smoothing"] = f"{counted}{given_up}{''.join(ends)}{''.join(errors)}"
            named = {"long_name": f"{choice['method']} score"}
            rows["score"] = xr.DataArray(choice["score"], attrs=named)
            if np.isfinite(choice.get("comparable", np.nan)):
                named = {"long_name": "reml score that compares penalties of different orders, in any units"}
                rows["comparable_score"] = xr.DataArray(choice["comparable"], attrs=named)
        taken = {*rows}.union(*(row.dims for key, row in rows.items() if key not in values))
        return xr.Dataset(rows, coords=batch_labels(variable, taken), attrs=attrs)


def batch_labels(variable: Variable, taken: Iterable[Hashable]) -> dict[Hashable, xr.DataArray]:
    """Return labels of batch members for a table, without those whose names are `taken`; ValueError for dimensions."""
    names = set(taken)
    if clash := [dim for dim in variable.batch_dims if dim in names]:
        raise ValueError(
            f"the data have a dimension {clash[0]!r}, and this table has something else of that name; rename it before "
            "the fit"
        )
    beside = [name for name in variable.batch.coords if name in names]
    return dict(variable.batch.drop_vars(beside).coords)


def spread_of(sums: Sums, space: Space) -> np.ndarray:
    """Return Σw (y − ȳ)² from the sums, NaN where it is rounding; about zero where the space has no constant."""
    if not space.has_constant:
        return np.asarray(sums.power)
    moment = sums.full_moment(space.frame)
    for e in space.constant():
        moment = np.tensordot(e, moment, axes=(0, 0))
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = sums.power - moment**2 / sums.weight
    return np.where(spread > 8 * np.finfo(np.float64).eps * sums.power, spread, np.nan)


def selection(space: Space, terms: Mapping[str, str], ndim: int = 0) -> np.ndarray:
    """Return 1 for the coefficients of the named terms and 0 for others, (K_1, …, K_d), then 1s up to `ndim` axes."""
    keep = [np.ones(k) for k in space.shape]
    check_names(terms, space.names)
    for name, kind in terms.items():
        basis = space.basis(name)
        names = space.coefficient_labels(name)
        mask = basis.select(_TERMS[kind]) if kind in _TERMS else np.array([own == kind for own in names])
        if not mask.any():
            axis = space.axis(name)
            with contextlib.suppress(TypeError, ValueError):  # it is no length
                period = axis.duration(float(kind) if axis.kind == "number" else kind, "period")
                mask = basis.select(Fourier, period)
        if not mask.any():
            own = f", with the functions {', '.join(names)}" if isinstance(names, list) else ""
            raise ValueError(f"{name!r} has no term {kind}; its basis is {basis!r}{own}")
        keep[space.names.index(name)] = mask.astype(float)
    keep += [np.ones(1)] * (ndim - len(keep))
    return np.asarray(functools.reduce(np.multiply.outer, keep))


def coefficient_at(space: Space, function: str) -> tuple[str, xr.DataArray, int, float, bool]:
    """Return where the coefficient of a named function shows.

    Its coordinate; a label of it; 1 where the coefficient is told as the slope there, else 0; the function's value
    there, or 1 for a slope; and whether the function is an index, so that the coefficient is per unit of it.
    """
    known = {n: f for n, f in zip(space.names, space.features, strict=True) if isinstance(f.labels(), list)}
    names = {name: list(features.labels()) for name, features in known.items()}
    owners = [name for name, own in names.items() if function in own]
    if len(owners) != 1:
        shown = "; ".join(f"{name}: {', '.join(map(str, own))}" for name, own in names.items())
        why = f"functions of {' and '.join(owners)} have it" if owners else "no function has it"
        raise ValueError(
            f"the name {function!r} is that of no one function: {why}; their names are {shown or 'none'}"
        )
    name, features = owners[0], known[owners[0]]
    terms = [term for term in getattr(features, "terms", ()) if function in term.names]
    order = int(any(function in term.slopes for term in terms))
    axis = space.axis(name)
    corners = [term.panels(*term.domain) for term in terms if term.kinked and term.domain]
    x = axis.to_float(axis.to_label(np.concatenate([features.sample(), *corners])))
    values = features.design(x, order)[:, names[name].index(function)]
    best = int(np.nanargmax(np.abs(values)))
    per_unit = any(term.kinked and term.max_order == 1 for term in terms) and not order
    label = xr.DataArray(axis.to_label(x[best]))
    return name, label, order, 1.0 if order else float(values[best]), per_unit


def planned(
    gram: Gram, penalty: RequestedPenalty, space: Space, solver: str | None, resources: Resources
) -> Choice:
    """Return the solver of a fit to come."""
    if isinstance(penalty, SolvedApart):
        return penalty.choice(space)
    return choice_for(gram, penalty, space, solver, resources)


def solve_variables(
    statistics: Statistics[Any],
    penalties: Mapping[str, RequestedPenalty],
    solver: str | None,
    device: str | None = None,
    rhos: Mapping[str, np.ndarray | None] | None = None,
    as_one: Mapping[str, Callable[[np.ndarray], float]] | None = None,
) -> dict[str, Fit]:
    """Return the fit of every variable; those with the same Gram and penalty share one factorisation.

    Parameters
    ----------
    statistics : statistics in memory.
    penalties : a penalty, or the name of a criterion, for each variable.
    solver : the name of a solver; None chooses one by structure.
    device : where large dense systems are solved: None (the host) or "cuda".
    rhos : correlations of errors that remember, where they are known.
    as_one : counts how many observations of a variable vary as one, given coefficients; see `choose`.
    """
    space, resources = statistics.space, execution.resources(device)
    fits: dict[str, Fit] = {}
    for name, requested in penalties.items():
        total = statistics.total(name)
        parts = [part.sums[name] for part in statistics.parts]
        if total.memory is not None:
            fits[name] = _remembering(statistics, name, requested, solver, resources, (rhos or {}).get(name))
            continue
        equal = (fit for fit in fits.values() if fit.penalty == requested and not fit.choice)
        shared = next((f.solved.factorisation for f in equal if f.total.gram.equals(total.gram)), None)
        count = (as_one or {}).get(name)
        solution, penalty, choice = solution_of(
            total, space, requested, solver, parts, resources, shared, count
        )
        fits[name] = Fit(statistics, name, solution.coefficients, penalty, choice, solution)
    return {name: _without_weak(fit) for name, fit in fits.items()}


def _remembering(
    statistics: Statistics[Any],
    name: str,
    requested: RequestedPenalty,
    solver: str | None,
    resources: Resources,
    rho: np.ndarray | None,
) -> Fit:
    """Return the fit of one variable whose errors remember.

    Errors are whitened with ρ, the penalty is chosen, then ρ; in turn, until ρ moves by less than 0.01.
    """
    space, sums = statistics.space, statistics._complete(name)
    memory = sums.memory
    if criterion_of(requested) == "holders":
        raise ValueError(
            "penalty='holders' predicts each part as if errors were independent, and errors=AR1(...) says that they "
            "are not; pass penalty='reml'"
        )
    if rho is None and memory is not None and memory.series.rho is not None:
        rho = np.full(sums.batch, memory.series.rho)
    is_last = rho is not None
    rho = np.zeros(sums.batch) if rho is None else rho
    by_parts = statistics._decides and len(statistics.parts) > 1
    in_turn = by_parts or criterion_of(requested) is not None
    for _ in range(10):
        before = rho
        white = whitened(sums, rho, space.frame)
        solution, penalty, choice = solution_of(white, space, requested, solver, (), resources)
        fit = Fit(statistics, name, solution.coefficients, penalty, choice, solution, rho=rho)
        if is_last:
            break
        # Where errors are alike in space, functions take more of them; at first that is not told from what remembers.
        inflation = np.maximum(fit.scores.inflation, 1.0) if by_parts and rho.any() else 1.0
        rho = np.tanh(Likelihood(sums, space, penalty, solver, resources, inflation=inflation).maximum()[0])
        if memory is not None:  # pairs an even number of steps apart do not know the sign
            odd = sum(own.count for own in memory.lagged[: memory.series.lags : 2])
            rho = np.where(odd > 0, rho, abs(rho))
        is_last = not in_turn or bool(np.max(np.abs(rho - before), initial=0.0) < 0.01)
    return fit


def _without_weak(fit: Fit) -> Fit:
    """Return a fit that knows which of its members are nearly singular; of several these are NaN."""
    solution = fit.solved
    weak = weak_members(fit.total, fit.space, fit.known_penalty, solution)
    if weak is None or weak.size == 1:
        return replace(fit, weak=weak)
    determined = solution.determined & (weak == 0)
    coefficients = np.where(determined, solution.coefficients, np.nan)
    factorisation = replace(solution.factorisation, determined=determined)
    masked = replace(solution, coefficients=coefficients, determined=determined, factorisation=factorisation)
    return replace(fit, coefficients=coefficients, solution=masked, weak=weak)


def weak_members(sums: Sums, space: Space, penalty: Penalty, solution: Solution) -> np.ndarray | None:
    """Return how many times larger than elsewhere errors of nearly singular fits are in one direction, else 0.

    None where no member is nearly singular, as none with a penalty is.
    """
    factorisation = solution.factorisation
    if not factorisation.choice.exact or isinstance(penalty, SolvedApart):
        return None
    if penalty.bound(sums.gram, space).gram(space).terms:
        return None
    if not (condition_bound(sums, space, factorisation) > WEAK).any():
        return None
    c = condition(sums, space, factorisation)
    variance = solution.rss / np.maximum(sums.count - space.size, 1)
    # The error of that direction is a third of the data's spread, or rounding errors are near.
    unsure = (c > WEAK) & (c * variance > 0.1 * spread_of(sums, space))
    weak = np.sqrt(np.where(unsure | (c > 1e12), c, 0.0))
    return weak if weak.any() else None


def solution_of(
    total: Sums,
    space: Space,
    requested: RequestedPenalty,
    solver: str | None,
    parts: Sequence[Sums],
    resources: Resources,
    shared: Factorisation | None = None,
    as_one: Callable[[np.ndarray], float] | None = None,
) -> tuple[Solution, Penalty, dict[str, Any]]:
    """Return the solution for one variable, its penalty, and how that was chosen, as plain data; see `choose`."""
    if isinstance(requested, Penalty) and requested.criterion is None:
        return solve(total, space, requested, solver, shared, resources), requested, {}
    smoothing = choose(
        total, space, requested, solver=solver, parts=parts, resources=resources, as_one=as_one
    )
    solution = solve(total, space, smoothing.penalty, solver, smoothing.factorisation)
    choice: dict[str, Any] = {
        "method": smoothing.method,
        "score": float(smoothing.score),
        "comparable": float(smoothing.comparable),
        "factorisations": int(smoothing.factorisations),
        "at_bounds": dict(smoothing.at_bounds),
        "converged": bool(smoothing.converged),
        "error": dict(smoothing.error),
        "functions": dict(smoothing.resolution.functions),
        "limited": list(smoothing.resolution.limited),
        "visible": smoothing.resolution.visible,
    }
    if smoothing.as_one > 1:
        choice["as_one"] = smoothing.as_one
    if smoothing.gap_error:
        choice["gap_error"] = smoothing.gap_error
    if smoothing.covariance is not None:
        choice["covariance"] = smoothing.covariance.tolist()
    return solution, smoothing.penalty, choice


def lazy_fits(statistics: Statistics[Any], request: Request) -> dict[str, Fit]:
    """Return the fits of every variable with coefficients as Dask arrays of one block, solved on a worker."""
    space, penalty = statistics.space, request.penalty
    known = penalty if isinstance(penalty, Penalty) and penalty.criterion is None else None
    fits = {}
    for name, variable in statistics.variables.items():
        labels = Labels.of(statistics._pending[name]) if name in statistics._pending else None
        coefficients = execution.deferred(
            functools.partial(_merged_coefficients, space=space, request=request, what=name, labels=labels),
            [part.sums[name] for part in statistics.parts],
            (*space.shape, *variable.batch_shape),
        )
        fits[name] = Fit(statistics, name, coefficients, known)
    return fits


def _merged_coefficients(
    *parts: Sums, space: Space, request: Request, what: str, labels: Labels | None
) -> np.ndarray:
    """Return the coefficients of the merged parts; a worker without a GPU solves on its cores, as `fit` does."""
    if labels is not None:  # Sums that were computed before are checked.
        for part in parts:
            check_tally(part.tally, labels, what)
    resources = execution.resources(execution.present(request.device))
    total = Sums.merge(parts, space.frame)
    solution, penalty, _ = solution_of(total, space, request.penalty, request.solver, parts, resources)
    weak = weak_members(total, space, penalty, solution)
    if weak is None or weak.size == 1:
        return solution.coefficients
    return np.where(weak == 0, solution.coefficients, np.nan)
