"""``field.discover``: from candidate terms to a Dataset of ranked equations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr

from xspline.labels import evaluation
from xspline.labels.field import Field
from xspline.labels.field_base import FieldBase
from xspline.pde.discovery.candidates import Candidates, default_terms, library
from xspline.pde.discovery.models import CLEAR, SEVERAL, FittedModel, Library, explore
from xspline.pde.profile.axes import Array
from xspline.pde.profile.estimate import adequacy_of, inadequate, profile
from xspline.pde.profile.problem import EquationProblem, problem_of
from xspline.pde.results import ENOUGH, of_the_space, units_of_names
from xspline.pde.results import LONG_NAMES as OF_CONSTANTS
from xspline.pde.text import unit_powers
from xspline.pde.text.equation import Equation
from xspline.pde.text.symbols import Names, checked_known
from xspline.solve import TooLargeError
from xspline.threads import single_threaded_blas

AS_GOOD = 2.0  # of BIC above the best: such models are as good (Kass and Raftery 1995: not worth a mention)
LONG_NAMES = {
    "coefficient": "constant of each term, 0 where the model does not have it",
    "stderr": "standard error of the constant",
    "included": "whether the model has the term",
    "bic": "extended Bayesian information criterion",
    "delta_bic": "the same, above that of the best model",
    "as_good": "whether the data do not tell the model from the best",
    **{key: OF_CONSTANTS[key] for key in ("sigma", "adequacy", "probability")},
}
ASSUMPTIONS = (
    "BIC and stderr assume independent errors of the observations, with variances in proportion to 1/w, and an "
    "equation that holds everywhere in the domain; stderr takes the terms of a model as known"
)


def discover(
    field: FieldBase[Any],
    response: str,
    *,
    terms: Sequence[str] | None = None,
    order: int | None = None,
    power: int | None = None,
    known: Mapping[str, Any] | None = None,
    dims: Mapping[str, str] | None = None,
) -> xr.Dataset:
    """Find which terms the equation of a field has, among candidates, with their constants.

    Parameters
    ----------
    field : Field
        Its variables go by their names, a single one also by ``u``, as for :func:`xspline.pde.recover`.
    response : str
        The side of the equation that is known to be there, such as ``"u_t"`` or ``"u_tt"``.
    terms : sequence of str, optional
        Candidates, such as ``["u*u_x", "u_xx", "S"]``: of variables, derivatives, coordinates and what is known,
        without constants. By default u^a ∂ᵏu for all powers a from 0 to `power` and derivatives k from 0 to `order`
        in all, along the coordinates that the response is no derivative along; and lower derivatives of the response.
        Of several variables u, v: their products u^a v^b, a + b up to `power`, and the derivatives of each, alone and
        times one variable.
    order, power : int, optional
        Of the default candidates; 3 and 3.
    known, dims
        As for ``recover``.

    Returns
    -------
    Dataset
        Over ``model``, best first, and ``term``: ``coefficient``, ``stderr``, ``included``; of each model ``bic``,
        ``delta_bic``, ``as_good`` (whether the data do not tell it from the best), ``sigma``, ``adequacy`` (an F ratio
        against the fit without an equation) and its ``probability``.
        Coordinates: ``equation``, each model as text; ``units`` of constants. Attributes: ``equation``, the one that is
        claimed, or ``"none"``; ``recover``, the text by which ``field.recover`` finds the constants of the best;
        ``checks`` and ``assumptions`` in words.

    Raises
    ------
    ValueError
        A candidate cannot be read, means nothing, is there twice, or is zero everywhere; a derivative is above the
        degree; the field has batch dimensions.
    TooLargeError
        The normal equations do not fit in memory.

    Notes
    -----
    Each model is fitted as by ``recover``: of all fields that obey its equation exactly, the one that is nearest to the
    data, from the statistics alone. The start is the best set of a regression on smooth test functions. About a fitted
    model the sum of squares of all other sets is a parabola in their constants, from one factorisation; the sets of
    least BIC are fitted next, until none is better. BIC is n log(rss/n) + |A| log n +
    2 log C(k, |A|) for |A| of k candidates (Chen and Chen 2008). Models are as good as the best within 2 of it; where
    neither has all terms of the other, within 2 more standard deviations of the difference of two that both hold. Left
    out are models with a term that is rounding, or no more than what the knots leave of its error, as most have where
    there is no noise. An equation is claimed where it fits the data as well as noise allows (an F ratio), is better by
    10 than `response` = 0, and has constants above their errors. Constants and errors of models that are as good are
    those of ``recover``; those of the others are from the search, without its checks.

    Degrees of B-splines should exceed the order of the highest derivative among the candidates by 2.
    """
    if not isinstance(field, Field):
        raise TypeError("draws have no observations of their own; ask the field that they were drawn from")
    field._check_computed()
    given = checked_known(known)
    names = Names.of(field, dims, given)
    return _discover(field, candidates_of(names, response, terms, order, power), names, given)


def candidates_of(
    names: Names, response: str, terms: Sequence[str] | None, order: int | None, power: int | None
) -> Candidates:
    """Return the candidates that :func:`discover` is asked for, in one equation."""
    if terms is not None and not (order is None and power is None):
        raise ValueError(
            "order= and power= are of the default candidates; leave them out, or leave out terms="
        )
    if not isinstance(response, str):
        raise TypeError(f"the response has to be text, such as 'u_t', not {type(response).__name__}")
    listed = terms if terms is not None else default_terms(response, names, order, power)
    return library(response.strip(), listed, names)


@single_threaded_blas()
def _discover(
    field: Field[Any], candidates: Candidates, names: Names, given: Mapping[str, Any]
) -> xr.Dataset:
    for name in dict.fromkeys(value.variable for value in candidates.equation.values):
        if dims := field.variables[name].batch_dims:
            letter = next((a for a in f"{dims[0]}abc" if a.isalpha() and a not in names.letters), "x")
            raise ValueError(
                f"{name!r} has independent fits along {dims}; select one of them before the fit, or fit along them: "
                f"xs.discover(data, {candidates.response!r}, dims={{{letter!r}: {dims[0]!r}}})"
            )
        if field.fits[name].selected:
            raise ValueError(
                "a term of this field was selected, so that it is no fit of the data; ask the whole field"
            )

    def problem(equation: Equation) -> EquationProblem:
        variables = list(dict.fromkeys(value.variable for value in equation.values))
        return problem_of(field, [equation], names, given, variables)

    try:
        models = Library(problem(candidates.equation))
        explore(models)
        rows = _rows(models, candidates, problem)
    except TooLargeError as error:
        raise TooLargeError(str(error).replace(", or method='weak', which needs no band", "")) from error
    return _dataset(field, candidates, given, rows, models)


def _rows(
    models: Library, candidates: Candidates, problem: Callable[[Equation], EquationProblem]
) -> list[ShownModel]:
    """Return the models to show, the best and several others.

    Left out are models that have a term which may be rounding or an error of the knots. Where such a model would be as
    good as the best, the set without the term is fitted.
    """
    ranked = models.ranked()
    queue = [model for model in ranked if math.isfinite(model.bic)]
    good: list[FittedModel] = []
    rows: list[ShownModel] = []
    while queue and len(rows) <= SEVERAL:
        model = queue.pop(0)
        as_good = all(_as_good(models, better, model) for better in good)
        row = _row(models, model, candidates, problem, as_good)
        ratio = models.distinct(model)
        if as_good:
            ratio = np.fmin(ratio, np.abs(row.value) / row.stderr)
        if (ratio < 1).any():
            shorter = tuple(np.delete(model.subset, np.nanargmin(ratio)).tolist())
            if as_good and shorter not in models.models:
                other = models.fit(shorter, model.coefficients, models.theta(model))
                queue = sorted([*queue, other], key=lambda m: m.bic)
            continue
        good += [model] if as_good else []
        rows.append(row)
    return rows or [_row(models, ranked[0], candidates, problem, True)]


@dataclass(frozen=True, eq=False)
class ShownModel:
    """A model as it is shown."""

    model: FittedModel
    # whether the data do not tell the model from the best one, nor from others that are as good
    as_good: bool
    value: Array  # [terms of the model], constants
    stderr: Array  # [terms of the model], their standard errors
    sigma: float
    adequacy: float
    probability: float
    adequate: bool  # whether a field that obeys the equation fits the data as well as noise allows
    remarks: tuple[str, ...] = ()  # sentences without a full stop


def _as_good(models: Library, better: FittedModel, other: FittedModel) -> bool:
    """Return whether a model is as good as a better one, so that data do not tell which of both holds.

    Where neither has all terms of the other, initial and boundary values take different parts of the noise. The sums of
    squares of two models that both hold then differ by 0 ± 2√f σ², with f the degrees of freedom of these values.
    """
    delta = other.bic - better.bic
    nested = set(better.subset) <= set(other.subset) or set(other.subset) <= set(better.subset)
    freedom = 0 if nested else models.search(other.subset).freedom
    return not delta >= AS_GOOD + 2 * 2 * math.sqrt(freedom)


def _row(
    models: Library,
    model: FittedModel,
    candidates: Candidates,
    problem: Callable[[Equation], EquationProblem],
    as_good: bool,
) -> ShownModel:
    """Return a model with its errors; by the search of ``recover`` where it is as good as the best."""
    if as_good and model.subset and math.isfinite(model.bic):
        own = replace(problem(candidates.narrowed(model.subset)), coefficients=model.coefficients)
        whole = profile(own)
        e = whole.estimates
        if e.converged:
            doubts = inadequate(own.search, whole.result.rss, e.adequacy, e.probability, 0.0)
            stderr = np.sqrt(np.diag(e.covariance))
            ratio = e.adequacy, e.probability
            return ShownModel(model, as_good, e.value, stderr, e.sigma, *ratio, not any(doubts), e.remarks)
    search = models.search(model.subset)
    result = model.result
    ratio = adequacy_of(search, result.rss)
    return ShownModel(
        model,
        as_good,
        result.state.tau,
        search.stderr(result.linear, result.rss),
        search.sigma(result.rss),
        *ratio,
        not any(inadequate(search, result.rss, *ratio, 0.0)),
    )


def _dataset(
    field: Field[Any],
    candidates: Candidates,
    given: Mapping[str, Any],
    rows: Sequence[ShownModel],
    models: Library,
) -> xr.Dataset:
    shape = (len(rows), models.size)
    value = np.zeros(shape)
    stderr = np.full(shape, np.nan)
    included = np.zeros(shape, bool)
    for i, row in enumerate(rows):
        own = list(row.model.subset)
        value[i, own], stderr[i, own], included[i, own] = row.value, row.stderr, True
    bic = np.array([row.model.bic for row in rows])
    with np.errstate(invalid="ignore"):
        delta = bic - bic[0]
    both = ("model", "term")
    variables: dict[str, Any] = {
        "coefficient": (both, value),
        "stderr": (both, stderr),
        "included": (both, included),
        "bic": ("model", bic),
        "delta_bic": ("model", delta),
        **{
            name: ("model", [getattr(row, name) for row in rows])
            for name in ("as_good", "sigma", "adequacy", "probability")
        },
    }
    equation = candidates.equation
    derived, remarks = unit_powers.of_parameters(equation, units_of_names(equation, given, field))
    written = [candidates.written(row.model.subset, row.value.tolist()) for row in rows]
    doubt = _doubt(rows, models, candidates.response)
    alike = [text for row, text in zip(rows[1:], written[1:], strict=True) if row.as_good and not doubt]
    checks = [
        doubt,
        *([f"the data do not tell it from {', nor from '.join(alike)}"] if alike else []),
        *rows[0].remarks,
        *of_the_space([equation], field, ENOUGH),
        *remarks,
    ]
    first = field.variables[equation.values[0].variable]
    attrs = {
        "equation": "none" if doubt else written[0],
        "recover": candidates.recovering(rows[0].model.subset) if rows[0].model.subset else "",
        "checks": "; ".join(filter(None, checks)) or "nothing to report",
        "assumptions": ASSUMPTIONS,
        "history": evaluation.history(first.history, f"discover({candidates.response!r})"),
    }
    described = {key: (*variable, {"long_name": LONG_NAMES[key]}) for key, variable in variables.items()}
    coords = {
        "equation": ("model", written),
        "term": list(candidates.terms),
        "units": ("term", [derived.get(power.parameter, "") for power in equation.terms]),
    }
    return xr.Dataset(described, coords, attrs)


def _doubt(rows: Sequence[ShownModel], models: Library, response: str) -> str:
    """Return why no equation is claimed, in a sentence without a full stop; empty where the first one is."""
    best = rows[0].model
    none = models.models[()]
    if not best.subset:
        return f"no equation is claimed: no set of candidates is better than {response} = 0"
    if not math.isfinite(best.bic):
        return "no equation is claimed: the search converged for none; use more knots, or fewer candidates"
    if none.bic - best.bic < CLEAR:
        return (
            f"no equation is claimed: the best is better than {response} = 0 by {none.bic - best.bic:.2g} of BIC, "
            f"which is less than {CLEAR:g}"
        )
    if not rows[0].adequate:
        return (
            f"no equation is claimed: a field that obeys the best misses the data by more than their noise "
            f"(F = {rows[0].adequacy:.3g}, probability {rows[0].probability:.1g}); a term or a source is not among the "
            "candidates, or the knots do not resolve the field"
        )
    if not (np.abs(rows[0].value) > rows[0].stderr).all():
        return "no equation is claimed: constants of the best are smaller than their errors, or have none"
    return ""
