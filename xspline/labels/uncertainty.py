"""Error bars: standard errors of values and derivatives, and draws of the field."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from xspline.labels import operators
from xspline.labels.summary import sigma_of
from xspline.labels.validation import jackknife_replicates
from xspline.sums import masked_pairs, outer_pairs

if TYPE_CHECKING:
    from xspline.labels.field import Field
    from xspline.labels.statistics import Variable

DRAWS = 800
DRAWN = 2**22  # numbers that are drawn at a time
MAX_PAIRS = 2**31  # bytes of a covariance in pair form; beyond, draws of the coefficients stand for it


@dataclass(frozen=True, eq=False)
class Covariance:
    """The covariance of the coefficients of one variable, as far as values and derivatives need it.

    Attributes
    ----------
    pairs : ndarray, [K.., O.., b..]
        Its pair form: the variance at x is Σ_{k,o} pairs[k,o] Π_j φ_{k_j}(x_j) φ_{k_j + o_j}(x_j).
    attrs : what it assumes, and how sure it is.
    """

    pairs: np.ndarray
    attrs: Mapping[str, Any]


def covariance(field: Field, name: str, method: str | None) -> Covariance:
    """Return the covariance of one variable's coefficients.

    Parameters
    ----------
    field : Field
    name : str
        A fitted variable.
    method : str, optional
        "exact": σ̂² (G + Λ)⁻¹, the Bayesian covariance (Wahba 1983; Nychka 1988). "draws": the same from draws of
        the coefficients. "jackknife": from fits without one part at a time (delete-a-group jackknife). None: exact
        where its pairs fit in memory, else draws.
    """
    if method is None:
        method = "exact" if _nbytes(field, name) <= MAX_PAIRS else "draws"
    if method not in _METHODS:
        raise ValueError(
            f"method={method!r} is unknown; use one of {', '.join(map(repr, _METHODS))}, or None"
        )
    found = _METHODS[method](field, name)
    if not field.selected:
        return found
    keep = operators.selection(field.space, field.selected)
    return Covariance(masked_pairs(found.pairs, keep, field.space.frame), found.attrs)


def _nbytes(field: Field, name: str) -> int:
    frame, members = field.space.frame, math.prod(field.variables[name].batch_shape)
    return 8 * math.prod(frame.sizes) * math.prod(frame.offsets) * members


def _exact(field: Field, name: str) -> Covariance:
    pairs = field.solution[name].factorisation.inverse_pairs()
    return Covariance(pairs * sigma_of(field, name) ** 2, {"method": "exact", "comment": INDEPENDENT})


INDEPENDENT = "assumes independent errors"


def _from_draws(field: Field, name: str) -> Covariance:
    draws = deviations(field, name, DRAWS, np.random.default_rng(0))
    attrs = {"method": "draws", "comment": INDEPENDENT, "relative_error": 1 / math.sqrt(2 * DRAWS)}
    return Covariance(outer_pairs(draws, field.space.frame) / DRAWS, attrs)


def _jackknife(field: Field, name: str) -> Covariance:
    replicates = jackknife_replicates(field, name)
    holders = len(field.statistics.parts)
    attrs = {
        "method": "jackknife",
        "comment": f"assumes errors that are independent between the {holders} parts, not within them",
        "degrees_of_freedom": holders - 1,
    }
    return Covariance(outer_pairs(replicates, field.space.frame), attrs)


_METHODS: dict[str, Callable[[Field, str], Covariance]] = {
    "exact": _exact,
    "draws": _from_draws,
    "jackknife": _jackknife,
}


def deviations(field: Field, name: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """Return n draws of the coefficients about their estimate, [K.., n, b..], with covariance σ̂² (G + Λ)⁻¹."""
    shape, batch = field.space.shape, field.variables[name].batch_shape
    factorisation, sigma = field.solution[name].factorisation, sigma_of(field, name)
    step = max(1, DRAWN // (math.prod(shape) * math.prod(batch)))
    sizes = [min(step, n - first) for first in range(0, n, step)]
    drawn = (
        sigma * factorisation.apply_inverse_sqrt(rng.standard_normal((*shape, size, *batch)))
        for size in sizes
    )
    return np.concatenate(list(drawn), axis=len(shape))


def drawn(field: Field, n: int, seed: int | None) -> Field:
    """Return a field of n draws along a dimension ``sample``; see :meth:`Field.sample`."""
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise ValueError(f"sample({n!r}): the number of draws is an integer, at least 1")
    field._check_computed("draws of their own")
    taken = [str(d) for v in field.variables.values() for d in (*v.dims, *v.batch_dims)]
    if SAMPLE in taken:
        raise ValueError(
            f"the data have a dimension {SAMPLE!r} already; rename it before the fit, to draw samples"
        )
    rng = np.random.default_rng(seed)
    arrays = {name: _draws(field, name, n, rng) for name in field.variables}
    variables = {name: _along_sample(v, n) for name, v in field.variables.items()}
    statistics = replace(field.statistics, variables=variables)
    plain = replace(field, statistics=statistics, arrays=arrays, solved={}, selected={}, members=SAMPLE)
    return plain._with(field.selected)


SAMPLE = "sample"


def _draws(field: Field, name: str, n: int, rng: np.random.Generator) -> np.ndarray:
    estimate = np.expand_dims(field.solution[name].coefficients, len(field.space.shape))
    return estimate + deviations(field, name, n, rng)


def _along_sample(variable: Variable, n: int) -> Variable:
    """Return the labels of a variable with a batch dimension ``sample`` in front."""
    return replace(
        variable,
        dims=(SAMPLE, *variable.dims),
        batch=variable.batch.assign_coords({SAMPLE: np.arange(n)}),
        batch_dims=(SAMPLE, *variable.batch_dims),
        batch_shape=(n, *variable.batch_shape),
    )
