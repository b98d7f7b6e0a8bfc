"""What there is to know of a fit before it is trusted: each thing that was looked at, and advice where it is not fine.

A finding is in the field's text where it has advice, and a warning where it is worth one. A warning is for what changes
the answer without having been asked for. So none is for missing values, none for observations outside a domain that the
user wrote down, none for independent fits over dimensions that the user left out, and none for the smoothing of data
without noise, of which every λ makes the same field.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from xspline.labels.fine.field import Fine
from xspline.labels.fit import Fit
from xspline.labels.read import defaults
from xspline.labels.read.memory import splines_in
from xspline.labels.report.check import Finding
from xspline.residuals import assumptions
from xspline.solve import Likelihood, Roughness, rounded
from xspline.solve.errors import warn
from xspline.solve.smoothing.resolution import SEEN
from xspline.spaces import Basis, BSpline, Fourier, Polynomial, Union
from xspline.spaces.basis import terms_of
from xspline.spaces.instants import DAY
from xspline.sums import Tally

#: Times the limit of what errors show from which the largest residual is worth a warning, so that tails are none.
CERTAIN = 2.0
#: What to do with values that are skewed or mostly equal.
APART = "fit logarithms, or amounts apart from zeros"


def concerns(fit: Fit) -> list[Finding]:
    """Return what is not fine, as far as it is known without further computation."""
    if fit.is_lazy:
        return []
    known = [*_of_choice(fit), *_robust(fit), *_left_out(fit), *_long_gaps(fit), *_errors(fit)]
    return [finding for finding in known if finding.advice]


def warn_of(fits: Mapping[str, Fit]) -> None:
    """Warn of what is worth it, at the user's line."""
    for name, fit in fits.items():
        for finding in concerns(fit):
            if finding.warns:
                warn(f"{name}: {finding.text}; {finding.advice}")


def checked(fit: Fit) -> list[Finding]:
    """Return all findings of a solved fit."""
    single = [] if fit.fine is not None else [*_functions(fit), *_evenness(fit)]
    solved = [*single, *_batch(fit), *_units(fit), *_residual(fit), *_robust(fit)]
    return [*_of_choice(fit), *solved, *_left_out(fit), *_long_gaps(fit), *_errors(fit)]


def _of_choice(fit: Fit) -> list[Finding]:
    """Return what is known of what was chosen."""
    if fit.fine is not None:
        return list(_fine(fit, fit.fine))
    strengths = [*_smoothing(fit), *_bounds(fit), *_gaps(fit), *_equation(fit)]
    return [*strengths, *_knots(fit), *_walls(fit), *_condition(fit)]


def _smoothing(fit: Fit) -> Iterator[Finding]:
    choice = fit.choice
    if not choice:
        yield Finding("smoothing", f"penalty given: {rounded(fit.known_penalty)!r}")
        return
    strengths = ", ".join(f"{name} {x:.3g}" for name, x in fit.strengths.items())
    plain = strengths and all(isinstance(part, Roughness) for part in fit.known_penalty.parts)
    penalty = f"lambda {strengths}" if plain else repr(rounded(fit.known_penalty))
    errors = "".join(f", log lambda of {name} ± {x:.2g}" for name, x in choice.get("error", {}).items())
    text = f"{penalty} by {choice['method']!r} in {choice['factorisations']} factorisations{errors}"
    if choice["converged"]:
        yield Finding("smoothing", text)
    else:
        advice = "the search ended with the best that it had seen: compare another criterion or penalty"
        yield Finding("smoothing", f"not converged: {text}", advice, warns=True)


def _bounds(fit: Fit) -> Iterator[Finding]:
    for name, side in fit.choice.get("at_bounds", {}).items():
        if side == "lower":
            text = f"lambda of {name!r} is at its lower bound, so nothing is smoothed along it"
            advice = (
                "take more functions there if the field is finer than its knots; where neighbouring errors are alike, "
                "'holders' chooses better, or pass a penalty"
            )
        elif isinstance(basis := fit.space.basis(name), Union) and basis.has_events:
            text = f"the data show no events along {name!r} beside its season and trend"
            yield Finding("bounds", text, f"leave the B-spline of {name} out to say so")
            continue
        else:
            text = f"lambda of {name!r} is at its upper bound: along it the field has no more than a straight line"
            advice = f"fit {name}=xs.Polynomial(1) to say so; if there is more, try more functions or less noisy data"
        yield Finding("bounds", text, advice, warns=fit.choice.get("visible", False))
    if fit.choice and not fit.choice["at_bounds"]:
        yield Finding("bounds", "no lambda at a bound")


def _fine(fit: Fit, fine: Fine) -> Iterator[Finding]:
    """What there is to know of a field by neighbours."""
    for line in fine.text(fit.space, fit.variable.units):
        yield Finding("fine field", line)
    count = np.asarray(fit.total.count)
    leverage, _ = fine.residuals(count.shape)
    share, noise = float(np.nanmean(leverage)), fit.noise()
    told = f"{share:.0%}" if share >= 0.005 else "less than 1%"
    text = f"{told} of each value goes into the field at its place"
    if share > 0.9 and np.nanmean(count) < 30:
        advice = "so few values hardly tell field and noise apart: take error bars as a guess"
        yield Finding("noise", text, advice)
    else:
        yield Finding("noise", text)
    unknown = int(np.isnan(np.broadcast_to(noise, count.shape)).sum())
    if unknown:
        which = "" if count.size == 1 else f" in {unknown} of {count.size} fields"
        advice = (
            "there are fewer than three values, or all are equal, which says nothing of errors: they are NaN"
        )
        yield Finding("errors", f"their size is unknown{which}", advice)


def _gaps(fit: Fit) -> Iterator[Finding]:
    if error := fit.choice.get("gap_error", 0.0):
        method = fit.choice["method"]
        text = (
            f"{method!r} alone would leave the field undetermined where there are no observations, with errors "
            f"{error:.3g} times the spread of the data: the strengths are those of 'reml', raised until the expected "
            "error there is least"
        )
        advice = (
            "penalty='reml' learns from the data what to expect there; mask='data' predicts near data only"
        )
        yield Finding("gaps", text, advice, warns=True)


def _equation(fit: Fit) -> Iterator[Finding]:
    """Whether data contradict an equation that is a penalty."""
    if gain := fit.choice.get("departure", 0.0):
        text = (
            f"data contradict it: a field that departs is likelier, by {gain:.3g} in twice the log-likelihood"
        )
        advice = (
            "if it ought to hold, a known is wrong or a term or source is missing: recover(...) estimates constants, "
            "discover(...) finds terms"
        )
        yield Finding("equation", text, advice)


def _functions(fit: Fit) -> Iterator[Finding]:
    edf, size, sizes = float(np.nanmean(fit.edf_and_rss[0])), fit.space.size, fit.sizes
    each = (f", {x:.3g} of {sizes[n]} along {n}" for n, x in fit.choice.get("functions", {}).items())
    yield Finding("functions", f"in use: {edf:.4g} of {size} coefficients{''.join(each)}")


def _knots(fit: Fit) -> Iterator[Finding]:
    choice, sizes = fit.choice, fit.sizes
    limited = [name for name in choice.get("limited", ()) if name not in choice["at_bounds"]]
    used = ", ".join(f"{choice['functions'][n]:.3g} of the {sizes[n]} functions along {n!r}" for n in limited)
    if limited:
        text = f"{used} are in use, so the knots limit the fit, which its error bars do not know"
        yield Finding("knots", text, _finer(fit, limited), warns=True)
    elif choice:
        yield Finding("knots", "they do not limit the fit")


def _finer(fit: Fit, names: list[str]) -> str:
    """Return advice with a line that has twice as many splines along some coordinates."""
    bases: dict[str, Basis] = {name: fit.space.basis(name) for name in fit.space.names}
    for name in names:
        basis = bases[name]
        finer = tuple(
            replace(term, size=2 * term.count, knots=None, spacing=None)
            if isinstance(term, BSpline)
            else term
            for term in (basis.terms if isinstance(basis, Union) else (basis,))
        )
        bases[name] = Union(finer) if isinstance(basis, Union) else finer[0]
    line = f"fit({defaults.code(fit.space, bases)})"
    return f"take more and compare, for example {line}; fit() without bases follows what functions leave"


def _walls(fit: Fit) -> Iterator[Finding]:
    """Whether functions reach over land that was to part two waters."""
    parts = [part for part in fit.known_penalty.elements(fit.space) if isinstance(part, Roughness)]
    for sea in {part.where for part in parts if part.where is not None}:
        dry, observed = sea.ashore(fit.total.gram, fit.space)
        if 2 * dry > observed:
            cell = f"cell of {', '.join(sea.to_dict()['dims'])} that where= marks"
            text = f"of {observed} cells between knots that hold observations {dry} hold no {cell}"
            yield Finding("walls", text, "if it is True on land, invert it: where=~mask", warns=True)
        tied, count, place = sea.straddling(fit.space)
        if not tied:
            yield Finding("walls", f"none of {count} functions reaches over land from one water to another")
            continue
        axes = ((name, fit.space.axis(name), x) for name, x in place.items())
        near = ", ".join(f"{n} {f'{x:.4g}' if a.kind == 'number' else a.text(x)}" for n, a, x in axes)
        text = (
            f"{tied} of {count} functions reach over land from one water to another, as near {near}, and tie what lies "
            "on its two sides"
        )
        advice = (
            "let the narrowest land hold as many whole knot intervals as the degree (3 to a cell for cubic B-splines, "
            "or degree=1 with order=1), and close walls of cells that touch at corners alone"
        )
        yield Finding("walls", text, advice, warns=True)


def _evenness(fit: Fit) -> Iterator[Finding]:
    """How far from singular a system is that is not nearly so."""
    if fit.weak is None:
        ratio = math.sqrt(max(float(np.nanmax(fit.condition, initial=0.0)), 1.0))
        even = f"in the least determined direction errors are {ratio:.3g} times those of even data"
        yield Finding("condition", even)


def _condition(fit: Fit) -> Iterator[Finding]:
    if fit.weak is None:
        return
    places = np.argwhere(fit.weak > 0)
    several = fit.weak.size > 1
    named = "; ".join(fit.variable.member(place) for place in places[:3])
    more = f" and {len(places) - 3} more" if len(places) > 3 else ""
    which = f" in {len(places)} of {fit.weak.size} fits, which are NaN ({named}{more})" if several else ""
    text = f"nearly singular{which}: errors are {fit.weak.max():.3g} times as large in one direction as elsewhere"
    there = "" if several else "there the field may be anything: "
    advice = f"{there}pass a penalty ('reml' chooses one) or take fewer functions"
    yield Finding("condition", text, advice, warns=True)


def _left_out(fit: Fit) -> Iterator[Finding]:
    tally = Tally.merge(s.tally for s in fit.sums)
    if tally.unlabelled:
        text = f"{tally.unlabelled} observations were left out because a label is NaN, NaT or infinite"
        yield Finding("left out", text, "drop or mend them, to be sure which ones they are")
    if tally.outside:
        text = f"{tally.outside} observations outside the domain were left out"
        yield Finding("left out", text, "widen the domain if they should count")
    missing = tally.missing - tally.unlabelled
    used = sum(int(s.count.sum()) for s in fit.sums)
    yield Finding("left out", f"{used} observations used, {missing} missing values")


def _batch(fit: Fit) -> Iterator[Finding]:
    lost = np.count_nonzero(~np.broadcast_to(fit.solved.determined, fit.variable.batch_shape))
    left = f", of which {lost} are not determined (NaN)" if lost else ""
    advice = "pass a penalty, or leave them out" if lost else ""
    yield Finding("fits", f"{batch_text(fit) or 'one fit'}{left}", advice)


def batch_text(fit: Fit, without: str = "") -> str:
    """Return how many independent fits there are and over which dimensions; empty if there is one."""
    sizes = {dim: n for dim, n in fit.variable.batch_sizes.items() if dim != without}
    count = math.prod(sizes.values())
    return f"{count} independent fits over {' × '.join(map(str, sizes))}" if count > 1 else ""


def _units(fit: Fit) -> Iterator[Finding]:
    kinds = {"time": "dates", "timedelta": "durations"}
    units = {name: kinds.get(axis.kind, axis.units) for name, (axis, _) in fit.space.axes.items()}
    text = ", ".join(f"{name}: {u or 'none'}" for name, u in units.items())
    bare = ", ".join(name for name, u in units.items() if not u)
    advice = (
        f"derivatives along {bare} carry none; set them before the fit, .attrs['units'] = ..." if bare else ""
    )
    yield Finding("units", text, advice)


def _residual(fit: Fit) -> Iterator[Finding]:
    noise, r2 = xr.DataArray(fit.noise()), xr.DataArray(fit.r2)
    mean = "mean " if noise.ndim else ""
    sigma = f"{mean}standard deviation {float(noise.mean()):.3g} {fit.variable.units}".rstrip()
    yield Finding("residual", f"{sigma}, R² {float(r2.mean()):.3g}")


def _robust(fit: Fit) -> Iterator[Finding]:
    """How often a robust fit went over the data, and whether it left out more than gross errors use to be."""
    if not fit.robust:
        return
    unsettled = "its weights still changed: look at what the data hold so much of"
    advice = "" if fit.robust["settled"] else unsettled
    yield Finding("robust", f"gross errors were kept out in {fit.robust['passes']} passes", advice)
    if fit.robust.get("equal"):
        text = (
            "most values are equal, so that residuals do not tell errors from true values: none was left out"
        )
        yield Finding("robust", text, f"drop what is wrong; {APART}", warns=True)
    elif fit.robust.get("left_out", 0.0) > 0.1:
        which = " of one of the fields" if math.prod(fit.variable.batch_shape) > 1 else ""
        share = f"{fit.robust['left_out']:.0%} of the values{which}"
        text = f"robust=True left out {share}, more than gross errors use to be"
        advice = "they may be true, where values are skewed or the functions cannot follow them: compare robust=False"
        yield Finding("robust", text, advice, warns=True)
    elif fit.residuals.get("skewed"):
        text = "residuals are skewed, so that robust=True takes the longer tail for errors, and the field is biased"
        yield Finding("robust", text, APART, warns=True)


def _long_gaps(fit: Fit) -> Iterator[Finding]:
    """Gaps that errors would be remembered across, and that are longer than the steps that sums are kept of.

    Of 240 months with gaps after every 20th, trends are held in 93 and 79 % where .33 and .77 of an error last over
    them, with `lags` as long as the gaps in 95 and 94 % (`python -m benchmarks coverage --parts ar1`).
    """
    memory = fit.statistics.total(fit.name).memory
    if fit.rho is None or memory is None:
        return
    parted, series = fit.parted, memory.series
    lasts = np.abs(fit.rho) ** (series.lags + 1)
    matters = (parted > 3 * SEEN) & (1 + lasts > assumptions.UNEVEN * (1 - lasts))
    short = (fit.total.count >= assumptions.FEWEST) & (matters | (parted == 1))
    if short.any():
        which = "" if short.size == 1 else f" in {short.sum()} of {short.size} fields"
        text = (
            f"{np.max(parted, where=short, initial=0.0):.0%} of the observations are followed by none within "
            f"{series.lags} steps of {series.dim!r}{which}, and errors on both sides are taken as independent"
        )
        longer = f"pass errors=xs.AR1({series.dim!r}, lags=12), or " if series.lags < 12 else ""
        advice = f"{longer}average over longer steps, as data.resample({series.dim}=...).mean() does"
        yield Finding("gaps", text, advice, warns=True)


def _errors(fit: Fit) -> Iterator[Finding]:
    """What a sample of residuals says of the errors that were assumed: normal, independent, of one size."""
    seen = fit.residuals
    if not seen:
        asked = {part.provenance.get("holder") for part in fit.statistics.parts}
        whose = ", holder=..." if fit.levels and (len(asked) > 1 or None in asked) else ""
        text = f"residuals were not looked at; check(data{whose}) does, in a sample of the data"
        yield Finding("errors", text)
        return
    yield from _gross(fit, seen)
    if fit.errors:
        yield Finding("errors", fit.errors)
    if seen["repeated"] > SEEN * seen["count"]:
        text = f"{seen['repeated']} observations have the coordinates and the value of another one"
        advice = (
            "records that are there twice make error bars too short: keep one of each, as "
            "data.to_dataframe().drop_duplicates() does"
        )
        yield Finding("repeated", text, advice, warns=seen["repeated"] > 10 * SEEN * seen["count"])
    modelled = fit.remembers
    correlated = {name: r for name, r in seen["correlated"].items() if name != modelled and not fit.by_scores}
    if correlated:
        yield _correlation(fit, correlated)
    for name, periods in seen.get("cycles", {}).items():
        yield from _cycles(fit, name, periods)
    if lasting := seen.get("lasting"):
        short = f"error bars of trends and means are about {lasting**0.5:.2g} times too short"
        text = f"errors last longer than AR(1) errors do: {short}"
        advice = (
            "fit() without bases follows what lasts; or holder='time.year' and stderr(method='jackknife')"
        )
        yield Finding("structure", text, advice, warns=True)
    if seen["uneven"] and not seen["far"] and not correlated:  # either makes parts differ
        along = ", ".join(f"{name} ({ratio:.2g} times)" for name, ratio in seen["uneven"].items())
        text = f"residuals are larger in some parts than in others along {along}"
        yield Finding("uneven", text, "say so by weights=, 1/σ² where σ is the error of each value")


def _cycles(fit: Fit, name: str, periods: list[float]) -> Iterator[Finding]:
    """Sines that go on through the record, such as tides, which a fine field cannot carry across gaps."""
    space, axis = fit.space, fit.space.axis(name)
    # Each cycle has a constant.
    terms = [t for t in terms_of(space.basis(name)) if not (isinstance(t, Polynomial) and t.count == 1)]
    waves = [term for term in terms if isinstance(term, Fourier)]
    known = [axis.duration(w.period, "period") / (k + 1) for w in waves for k in range(w.harmonics)]
    new = [p for p in periods if not any(math.isclose(p, q, rel_tol=1e-3) for q in known)]
    if axis.kind == "number":
        each: list[Any] = [float(f"{p:.6g}") for p in new]
    else:
        each = [f"{p / 3600:.6g}h" if p < 2 * DAY else f"{p / DAY:.6g}D" for p in new]
    if each:
        basis = functools.reduce(operator.add, [*terms, *(Fourier(1, period) for period in each)])
        text = f"most of what the coarse field leaves is made of cycles of {name}, of {', '.join(map(str, each))}"
        code = f"fit({defaults.code(space, {name: basis})}, fine=True)"
        yield Finding("cycles", text, f"to have them in gaps too, name them: {code}")


def _correlation(fit: Fit, correlated: Mapping[str, float]) -> Finding:
    """Residuals of neighbours that are alike; a warning where the errors of a series alone are too short for it."""
    along = ", ".join(f"{name} ({r:.2g})" for name, r in correlated.items())
    text = f"residuals of neighbours are correlated along {along}"
    if fit.levels:  # which know neither AR(1) errors nor the jackknife, and have no neighbours
        advice = (
            "the functions cannot follow the field, for which there have to be more, or errors are correlated"
        )
        return Finding("structure", text, f"{advice}; error bars are too short for either")
    times = [name for name in fit.space.names if fit.space.axis(name).kind == "time"]
    series = [name for name in times if name in correlated and not splines_in(fit.space.basis(name))]
    if series and fit.rho is None:
        rho = correlated[series[0]]
        text = f"{text}, and error bars take errors as independent: they are too short"
        known = f"fit(..., errors=xs.AR1({series[0]!r})) takes neighbours as correlated, by about {rho:.2g} a step"
        smooth = (
            f"errors=xs.AR1({series[0]!r}) knows {Likelihood.most} at most: average over longer steps for it"
        )
        advice = (
            f"{known if rho < Likelihood.most else smooth}; fit() without bases follows what neighbours share; or "
            "holder='time.year' and stderr(method='jackknife')"
        )
        # Who names parts has the jackknife; along several coordinates it is the field that functions do not follow.
        alone = fit.fine is None and len(fit.statistics.parts) == 1 and len(series) == len(correlated)
        return Finding("structure", text, advice, warns=alone and 1 + rho > assumptions.UNEVEN * (1 - rho))
    parts = (
        "errors='auto' asks periods of time, or holder='time.year'" if times else "name parts, holder=...,"
    )
    advice = (
        "the functions cannot follow the field, or errors are correlated, and error bars are too short for either: "
        "fit() without bases follows what neighbours share, or take more functions; for errors that are correlated, "
        f"{parts} and stderr(method='jackknife')"
    )
    return Finding("structure", text, advice)


def _gross(fit: Fit, seen: Mapping[str, Any]) -> Iterator[Finding]:
    """Gross errors and heavy tails; old files do not know all that is asked, and robust fits take holders as alike."""
    is_robust = bool(fit.robust)
    of = "" if seen["is_whole"] else " in a sample"
    skewed = seen.get("skewed", False) or seen.get("grows", False)
    spoilt = seen["matters"] and seen.get("spoilt", False) and not is_robust
    dropped = "look at them, and drop what is wrong"
    advice = dropped if is_robust or fit.levels else f"{dropped}, or fit(robust=True)"
    if skewed:
        what = "errors grow with the value" if seen.get("grows") else "values are skewed or mostly equal"
        advice = f"{what}, of which robust=True would bias the field: {APART}"
    if not seen.get("visible", True):
        text = f"the largest residual of {seen['count']:,} values{of} is not seen beside them"
        yield Finding("errors", text)
    elif seen["far"]:
        text = (
            f"{seen['far']} of {seen['count']:,} values{of} are up to {seen['largest']:.3g} standard deviations away, "
            f"where {seen['limit']:.2g} is the most to expect; {seen['at']}"
        )
        is_certain = seen["matters"] and seen["largest"] > CERTAIN * seen["limit"]
        yield Finding("outliers", text, advice, warns=is_certain or spoilt)
    elif seen["tails"] > 0:
        share = f"{seen['tails']:.2g} of residuals{of} are beyond 3 standard deviations"
        text = f"{share}, of normal errors .0027, and the largest is {seen['largest']:.3g}; {seen['at']}"
        if spoilt:
            text = f"{text}; they make most of the variance"
        elif is_robust:
            advice = ""  # they count less already
        elif not skewed and not seen.get("heavy", True):
            advice = ""  # intervals know of them, and a robust fit is hardly nearer
        elif not skewed:
            nearer = "look at the largest" if fit.levels else "fit(robust=True) is nearer"
            advice = f"errors have heavy tails, or some are gross: {nearer}"
        yield Finding("tails", text, advice, warns=spoilt)
    else:
        yield Finding(
            "errors", f"{seen['count']:,} values{of} are no farther from the field than normal errors are"
        )
