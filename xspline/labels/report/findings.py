"""What there is to know of a fit before it is trusted: each thing that was looked at, and advice where it is not fine.

A finding is in the field's text where it has advice, and a warning where it is worth one. A warning is for what changes
the answer without having been asked for. So none is for missing values, none for observations outside a domain that the
user wrote down, none for independent fits over dimensions that the user left out, and none for the smoothing of data
without noise, of which every λ makes the same field.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from xspline.labels.fit import Fit, spread_of
from xspline.solve import Penalty, PenaltySum, Roughness, condition, rounded
from xspline.solve.errors import warn
from xspline.sums import Tally

NEGLIGIBLE = (
    1e-4  # share of the variance: residuals below a hundredth of the data's spread are too small to matter
)
ROUNDING = 1e-12  # share of Σ w y²: residuals below a millionth of the values are rounding
CROWDED = (
    0.8  # share of functions in use from which the knots, not the smoothing, decide how fine the field is,
)
ABOVE_NOISE = (
    10.0  # if the finest of them hold so many times the power of noise. Measured on waves and random walks:
)
# below 3 where more knots change nothing, above 10 where they change the field by more than its error bar.
ROOM = 2.0  # observations for each coefficient, at least, for advice to take more coefficients
NEARLY_SINGULAR = (
    1e3  # condition from which errors somewhere are thirty times those elsewhere. Measured: below 2 on
)
# any full grid; with 10⁴, at scattered stations without penalty, the field is off by ten times the spread of the data.


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes
    ----------
    subject, text : what it is about, and what there is.
    advice : what to do; empty where it is fine.
    warns : whether the fit warns of it.
    """

    subject: str
    text: str
    advice: str = ""
    warns: bool = False


def concerns(fit: Fit) -> list[Finding]:
    """Return what is not fine, as far as it is known without further computation."""
    if fit.is_lazy:
        return []
    known = [*_convergence(fit), *_bounds(fit), *_functions(fit), *_condition(fit, fit.condition)]
    return [finding for finding in [*known, *_left_out(fit)] if finding.advice]


def warn_of(fits: Mapping[str, Fit]) -> None:
    """Warn of what is worth it, at the user's line."""
    for name, fit in fits.items():
        for finding in concerns(fit):
            if finding.warns:
                warn(f"{name}: {finding.text}; {finding.advice}")


def checked(fit: Fit) -> list[Finding]:
    """Return all findings of a solved fit."""
    known = fit.condition
    if math.isnan(known):
        known = float(np.nanmax(condition(fit.total, fit.space, fit.solved.factorisation), initial=0.0))
    return [
        *_convergence(fit),
        *_bounds(fit),
        *_functions(fit),
        *_condition(fit, known),
        *_left_out(fit),
        *_batch(fit),
        *_units(fit),
        *_residual(fit),
    ]


# ---- one subject each


def _convergence(fit: Fit) -> Iterator[Finding]:
    choice = fit.choice
    if not choice:
        yield Finding("smoothing", f"penalty given: {rounded(fit.known_penalty)!r}")
        return
    strengths = ", ".join(f"{name} {x:.3g}" for name, x in _strengths(fit.known_penalty, fit.space).items())
    errors = "".join(f", log lambda of {name} ± {x:.2g}" for name, x in choice.get("error", {}).items())
    text = f"lambda {strengths} by {choice['method']!r} in {choice['factorisations']} factorisations{errors}"
    if choice["converged"]:
        yield Finding("smoothing", text)
    else:
        advice = "the search gave up on the best that it saw: compare field.check() of another criterion or penalty"
        yield Finding("smoothing", f"not converged: {text}", advice, warns=True)


def _bounds(fit: Fit) -> Iterator[Finding]:
    at_bounds = fit.choice.get("at_bounds", {})
    for name, side in at_bounds.items():
        if side == "lower":
            text = f"lambda of {name!r} is at its lower bound, so nothing is smoothed along it"
            advice = (
                "take more functions there if the field is finer than its knots; where neighbouring errors are alike, "
                "'holders' chooses better, or pass a penalty"
            )
        else:
            text = f"lambda of {name!r} is at its upper bound: along it the field has no more than a straight line"
            advice = f"fit {name}=xs.Polynomial(1) to say so; if there is more, try more functions or less noisy data"
        yield Finding("bounds", text, advice, warns=_matters(fit))
    if fit.choice and not at_bounds:
        yield Finding("bounds", "no lambda at a bound")


def _functions(fit: Fit) -> Iterator[Finding]:
    space, choice = fit.space, fit.choice
    in_use, sizes = choice.get("functions", {}), dict(zip(space.names, space.shape, strict=True))
    if fit.solution is not None and not in_use:
        edf = float(np.nanmean(fit.edf_and_rss()[0]))
        yield Finding("functions", f"{edf:.4g} effective degrees of freedom of {space.size} coefficients")
    if in_use:
        each = ", ".join(f"{x:.3g} of {sizes[name]} along {name}" for name, x in in_use.items())
        yield Finding("functions", f"in use: {choice['edf']:.4g} of {space.size} coefficients; {each}")
    if not in_use or fit.solution is None or not _matters(fit):
        return
    counts = fit.total.count[fit.total.count > 0]
    for name, x in in_use.items():
        crowded = x > CROWDED * sizes[name] and choice["finest"][name] > ABOVE_NOISE
        if crowded and counts.mean() > ROOM * space.size and name not in choice["at_bounds"]:
            text = f"{x:.3g} of the {sizes[name]} functions along {name!r} are in use, so the knots limit the fit"
            yield Finding(
                "functions", text, f"take more and compare, for example {name}={2 * sizes[name]}", True
            )


def _condition(fit: Fit, number: float) -> Iterator[Finding]:
    if math.isnan(number):
        return
    text = (
        f"errors in the least determined direction are {max(number, 1.0) ** 0.5:.3g} times those of even data"
    )
    if number < NEARLY_SINGULAR:
        yield Finding("condition", text)
        return
    advice = "away from the data the field may be anything: pass a penalty ('reml' chooses one) or take fewer functions"
    unpenalised = not fit.known_penalty.gram(fit.space).terms
    yield Finding("condition", f"nearly singular: {text}", advice, warns=unpenalised)


def _left_out(fit: Fit) -> Iterator[Finding]:
    tally = Tally.merge(s.tally for s in fit.sums)
    if tally.unlabelled:
        advice = "drop or mend them, to be sure which ones they are"
        yield Finding("left out", unlabelled_text(tally), advice)
    if tally.outside:
        yield Finding("left out", outside_text(tally), "widen the domain if they should count")
    missing, used = tally.missing - tally.unlabelled, sum(int(s.count.sum()) for s in fit.sums)
    rest = "" if tally.unlabelled or tally.outside else ", none outside the domain"
    yield Finding("left out", f"{used} observations used, {missing} missing values{rest}")


def unlabelled_text(tally: Tally) -> str:
    """Return how many observations have no place."""
    return f"{tally.unlabelled} observations were left out because a label is NaN, NaT or infinite"


def outside_text(tally: Tally) -> str:
    """Return how many observations lie outside the domain."""
    return f"{tally.outside} observations outside the domain were left out"


def _batch(fit: Fit) -> Iterator[Finding]:
    determined = np.broadcast_to(fit.solved.determined, fit.variable.batch_shape or (1,))
    text = batch_text(fit) or "one fit"
    lost = determined.size - int(determined.sum())
    if lost:
        yield Finding("fits", f"{text}, {lost} not determined (NaN)", "pass a penalty or leave them out")
    else:
        yield Finding("fits", f"{text}, all determined" if determined.size > 1 else text)


def batch_text(fit: Fit, without: str = "") -> str:
    """Return how many independent fits there are and over which dimensions; empty if there is one."""
    variable = fit.variable
    sizes = {d: n for d, n in zip(variable.batch_dims, variable.batch_shape, strict=True) if d != without}
    count = math.prod(sizes.values())
    return f"{count} independent fits over {' × '.join(map(str, sizes))}" if count > 1 else ""


def _units(fit: Fit) -> Iterator[Finding]:
    axes = {name: axis for name, (axis, _) in fit.space.axes.items()}
    units = {name: axis.units if axis.kind == "number" else axis.kind for name, axis in axes.items()}
    text = ", ".join(f"{name} {u or 'without units'}" for name, u in units.items())
    bare = [name for name, u in units.items() if not u]
    advice = (
        f'derivatives along {", ".join(bare)} have no units: data.{bare[0]}.attrs["units"] = ...'
        if bare
        else ""
    )
    yield Finding("units", text, advice)


def _residual(fit: Fit) -> Iterator[Finding]:
    table = fit.summary()
    sigma, r2 = (float(table[key].mean()) for key in ("sigma", "r2"))
    mean = "mean " if table.sigma.ndim else ""
    yield Finding(
        "residual", f"{mean}standard deviation {sigma:.3g} {fit.variable.units}".rstrip() + f", R² {r2:.3g}"
    )


def _matters(fit: Fit) -> bool:
    """Whether residuals are large enough for the smoothing to make a difference that anyone sees."""
    if fit.solution is None:
        return False
    sums, rss = fit.total, fit.solution.rss
    rounding = ROUNDING * (sums.power + sums.reference**2 * sums.weight)
    return bool(np.any(rss > NEGLIGIBLE * spread_of(sums, fit.space) + rounding))


def _strengths(penalty: Penalty, space: Any) -> dict[str, float]:
    parts = penalty.parts if isinstance(penalty, PenaltySum) else (penalty,)
    return {n: x for part in parts if isinstance(part, Roughness) for n, x in part.strengths(space).items()}
