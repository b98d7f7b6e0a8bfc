"""Error bars, and scores of the fits without each part: how far a fit may be off. From sums, never from the data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from xspline import execution
from xspline.kernels import Group, Layout
from xspline.labels.fit import Fit, selection
from xspline.solve import Factorisation, Penalty, SingularSystemError, solve
from xspline.spaces import Space
from xspline.sums import Gram, Sums, leave_one_out, masked_pairs, outer_pairs

Array = NDArray[np.float64]

METHODS = ("exact", "draws", "jackknife")
DRAWS = 800  # of the method "draws": a relative error of 1/√(2·800) = 2.5 %
DRAWN = 2**22  # numbers that are drawn at a time, 32 MB
MAX_PAIRS = 2**31  # bytes of a covariance in pair form; beyond, draws of the coefficients stand for it
INDEPENDENT = "assumes independent errors"
_SCORES = {
    "count": "observations with positive weight",
    "rmse": "root of the weighted mean squared difference from the fit without this holder",
    "influence": "largest change of the field without this holder",
}


# ---- covariances and draws


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


def covariance(fit: Fit, method: str | None, device: str | None = None) -> Covariance:
    """Return the covariance of one variable's coefficients.

    Parameters
    ----------
    fit : Fit
        A solved one.
    method : str, optional
        "exact": σ̂² (G + Λ)⁻¹, the Bayesian covariance (Wahba 1983; Nychka 1988). "draws": the same from draws of
        the coefficients. "jackknife": from fits without one part at a time (delete-a-group jackknife). None: exact
        where its pairs fit in memory, else draws.
    device : str, optional
        Where the jackknife solves.
    """
    frame = fit.space.frame
    if method is None:
        nbytes = 8 * math.prod((*frame.sizes, *frame.offsets, *fit.variable.batch_shape))
        method = "exact" if nbytes <= MAX_PAIRS else "draws"
    attrs: dict[str, Any] = {"method": method, "comment": INDEPENDENT}
    match method:
        case "exact":
            pairs = fit.solved.factorisation.inverse_pairs() * fit.sigma() ** 2
        case "draws":
            draws = deviations(fit, DRAWS, np.random.default_rng(0))
            pairs = outer_pairs(draws, frame) / DRAWS
            attrs["relative_error"] = 1 / math.sqrt(2 * DRAWS)
        case "jackknife":
            pairs = outer_pairs(jackknife_replicates(fit, device), frame)
            n = len(fit.sums)
            attrs["comment"] = f"assumes errors that are independent between the {n} parts, not within them"
            attrs["degrees_of_freedom"] = n - 1
        case _:
            known = ", ".join(map(repr, METHODS))
            raise ValueError(f"method={method!r} is unknown; use one of {known}, or None")
    if fit.selected:
        pairs = masked_pairs(pairs, selection(fit.space, fit.selected), frame)
    return Covariance(pairs, attrs)


def deviations(fit: Fit, n: int, rng: np.random.Generator) -> np.ndarray:
    """Return n draws of the coefficients about their estimate, [K.., n, b..], with covariance σ̂² (G + Λ)⁻¹."""
    shape, batch = fit.space.shape, fit.variable.batch_shape
    factorisation, sigma = fit.solved.factorisation, fit.sigma()
    step = max(1, DRAWN // (math.prod(shape) * math.prod(batch)))
    sizes = [min(step, n - first) for first in range(0, n, step)]
    noise = (rng.standard_normal((*shape, size, *batch)) for size in sizes)
    return np.concatenate([sigma * factorisation.apply_inverse_sqrt(z) for z in noise], axis=len(shape))


# ---- fits without each part


def leave_out_fits(fits: Mapping[str, Fit], device: str | None = None) -> dict[str, Array]:
    """Coefficients of the fits without each part, under the penalty of each fit.

    Parameters
    ----------
    fits : mapping of str to Fit
        Of statistics with at least two parts. Those with one G and one penalty share their factorisations.
    device : str, optional
        Where they are solved, if this process has such a device.

    Returns
    -------
    dict of ndarray, [K.., H, b..]
        Parts in the order of the statistics; NaN where the other parts do not determine the fit.

    Raises
    ------
    ValueError
        There is only one part, a fit is lazy, or no part of a variable can be spared (`SingularSystemError`).
    """
    statistics = next(iter(fits.values())).statistics
    if any(fit.is_lazy for fit in fits.values()):
        raise ValueError("this field is still lazy (compute=False); call .compute() first")
    parts, space = statistics.parts, statistics.space
    if len(parts) < 2:
        held = ", ".join(part.describe() for part in parts) or "none"
        why = ", into which others were collapsed" if statistics.collapsed else ""
        raise ValueError(
            f"there is nothing to leave out: the statistics have {len(parts)} part ({held}{why}); label the "
            'observations with holders, for example fit(..., holder="time.year"), or merge those of several'
        )
    remaining = {name: leave_one_out(fit.sums, space.frame) for name, fit in fits.items()}
    coefficients: dict[str, list[Array]] = {name: [] for name in fits}
    resources = execution.resources(execution.present(device))
    for number in range(len(parts)):
        known: list[tuple[Gram, Penalty, Factorisation]] = []
        for name, fit in fits.items():
            sums, penalty = remaining[name][number], fit.known_penalty
            shared = (f for gram, p, f in known if p == penalty and gram.equals(sums.gram))
            try:
                solution = solve(sums, space, penalty, None, next(shared, None), resources)
                known.append((sums.gram, penalty, solution.factorisation))
                c = solution.coefficients
            except SingularSystemError:
                c = np.full((*space.shape, *(1 for _ in sums.batch)), np.nan)
            coefficients[name].append(np.broadcast_to(c, (*space.shape, *fit.variable.batch_shape)))
    for name, by_part in coefficients.items():
        if np.isnan(by_part).all():
            raise SingularSystemError(
                f"none of the {len(by_part)} parts of {name!r} can be spared: without it the others do not determine "
                'the field; take parts that overlap more (holder="time.year", say), or pass a penalty'
            )
    return {name: np.stack(by_part, axis=len(space.shape)) for name, by_part in coefficients.items()}


def jackknife_replicates(fit: Fit, device: str | None = None) -> Array:
    """Deviations whose squares add up to the delete-a-group jackknife's variance of everything linear in c.

    √((H − 1)/H) (c₋ₕ − mean of the c₋ₕ): with f the values of these coefficients at some point,
    the variance of the field there is Σₕ fₕ² (Quenouille 1956, Tukey 1958; Efron 1982, chapter 3). It assumes parts
    that are independent of each other, and nothing of the errors within them (Künsch 1989).

    Parameters
    ----------
    fit : Fit
        Of statistics with at least two parts; its selected terms are those of the replicates.
    device : str, optional
        Where the fits without each part are solved.

    Returns
    -------
    ndarray, [K.., H, b..]
        Zero for a part without observations of a batch member, which does not count in its H. NaN for members that
        some part's removal leaves undetermined.

    Raises
    ------
    ValueError
        There is only one part, the fit is lazy, or a part cannot be spared for any member
        (`SingularSystemError`).
    """
    c, ndim = leave_out_fits({fit.name: fit}, device)[fit.name], len(fit.space.shape)
    used = np.stack([np.broadcast_to(s.count > 0, c.shape[ndim + 1 :]) for s in fit.sums])
    undetermined = np.isnan(c).any(axis=tuple(range(ndim)))
    spared = (used & ~undetermined).reshape(len(used), -1).any(axis=1)
    needed = used.reshape(len(used), -1).any(axis=1) & ~spared
    if needed.any():
        part = fit.statistics.parts[int(np.flatnonzero(needed)[0])]
        raise SingularSystemError(
            f"part {part.describe()} of {fit.name!r} cannot be spared: without it the others do not determine the "
            "field, so its jackknife has no value; take parts that overlap more, or pass a penalty"
        )
    count = used.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        deviation = c - np.sum(c, axis=ndim, keepdims=True, where=used) / count
        scaled = np.sqrt((count - 1) / count) * deviation
    return np.where(used, scaled * selection(fit.space, fit.selected, c.ndim), 0.0)


# ---- cross-validation


def cross_validate(fits: Mapping[str, Fit], device: str | None = None) -> dict[str, xr.Dataset]:
    """Score the fit without each part on that part (Stone 1974; by groups: Geisser 1975).

    Parameters
    ----------
    fits : mapping of str to Fit
        Solved ones, of statistics with at least two parts; their penalties are those of all fits.
    device : str, optional
        Where the fits without each part are solved.

    Returns
    -------
    dict of Dataset
        For each variable, over ``holder`` and the batch dimensions:

        - ``count``: observations of the part;
        - ``rmse``: √((s − 2hᵀc + cᵀGc)/Σw) with the sums of the part and the coefficients c of the fit without it,
          in the data's units; of the whole field, whatever terms of it are selected;
        - ``influence``: largest change of the field when the part is left out, in the data's units, over those Greville
          points that have observations within about a knot spacing (Fourier and polynomials: over their domain).

        NaN where the other parts do not determine the fit, and for the rmse of a part without observations.

    Raises
    ------
    ValueError
        There is only one part, a fit is lazy, or no part can be spared (`SingularSystemError`).
    """
    tables = {}
    for name, left_out in leave_out_fits(fits, device).items():
        fit = fits[name]
        variable, sums, frame = fit.variable, fit.sums, fit.space.frame
        rmse = []
        for s, c in zip(sums, np.moveaxis(left_out, len(frame.sizes), 0), strict=True):
            rss = np.maximum(s.rss(s.centred(c, frame), frame), 0.0)  # zero up to rounding where it is exact
            with np.errstate(divide="ignore", invalid="ignore"):
                rmse.append(np.sqrt(rss / s.weight))
        values = {"count": [s.count for s in sums], "rmse": rmse, "influence": _influence(fit, left_out)}
        shape, dims = (len(sums), *variable.batch_shape), ("holder", *variable.batch_dims)
        scores = {}
        for key, value in values.items():
            units = {"units": variable.units} if key != "count" and variable.units else {}
            full = np.broadcast_to(np.asarray(value), shape).copy()
            scores[key] = xr.DataArray(full, dims=dims, attrs={"long_name": _SCORES[key], **units})
        coords = {"holder": list(fit.statistics.holders), **variable.batch.coords}
        tables[name] = xr.Dataset(scores, coords, {"penalty": repr(fit.penalty)})
    return tables


def _influence(fit: Fit, left_out: Array) -> Array:
    """Largest |change| of the field without each part, over the sample of every basis, [H, b..]."""
    space, axes = fit.space, tuple(range(len(fit.space.shape)))
    whole = np.expand_dims(fit.solved.coefficients, len(axes))
    points = [features.sample() for features in space.features]
    grid = Layout(tuple(Group((k,), (k,)) for k in axes), tuple(range(len(axes), left_out.ndim)))
    shape = (*(x.size for x in points), *left_out.shape[len(axes) :])
    change = (left_out - whole) * selection(space, fit.selected, left_out.ndim)
    values = np.abs(execution.evaluate(change, points, grid, space, (0,) * len(axes), shape))
    observed = np.expand_dims(_observed(fit.total, space), len(axes))
    largest = np.max(values, axis=axes, where=observed, initial=0.0)
    return np.where(observed.any(axis=axes), largest, np.nan)


def _observed(total: Sums, space: Space) -> NDArray[np.bool_]:
    """Whether the field is observed around a Greville point, [K.., b..]; extent 1 along a global basis.

    Of the functions whose own points lie ⌊degree/2⌋ to either side, the product is positive over the cell that
    holds the point, or the two that meet in it, and zero elsewhere: G says whether there are observations.
    """
    apart = [2 * ((f.width - 1) // 2) if f.local else 0 for f in space.features]
    everywhere = tuple(axis for axis, f in enumerate(space.features) if not f.local)
    observed = np.any(total.gram.at(apart, space.frame) > 0, axis=everywhere, keepdims=True)
    return np.roll(observed, [offset // 2 for offset in apart], range(len(apart)))
