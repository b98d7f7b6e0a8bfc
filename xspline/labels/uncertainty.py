"""Error bars, and scores of the fits without each part: how far a fit may be off. From sums, never from the data."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from xspline import execution
from xspline.kernels import Group, Layout
from xspline.kernels.series.lags import closed
from xspline.labels.fine.field import rows_of
from xspline.labels.fit import Fit, selection
from xspline.solve import ConvergenceError, Factorisation, Penalty, SingularSystemError, TooLargeError, solve
from xspline.solve import strength_derivatives as derivatives_by_log_strength
from xspline.solve.progress import counted
from xspline.sums import Gram, leave_one_out, masked_pairs, observed_cells, outer_pairs
from xspline.sums.memory import whitened

Array = NDArray[np.float64]

METHODS = ("exact", "draws", "jackknife")
#: Draws behind a standard error, n of which leave a relative error of 1/√(2n): where a solver iterates (5 %), for what
#: a system differs by from one that knows its inverse (11 % of that), where the inverse is known and draws cost little
#: (2.5 %), and at least (22 %).
DRAWS, NEAR_DRAWS, DIRECT_DRAWS, FEWEST_DRAWS = 200, 40, 800, 10
#: Draws at most, which leave a relative error of 0.2 %.
MOST_DRAWS = 100_000
#: Numbers that are drawn at a time: 32 MB.
DRAWN = 2**22
#: Draws that a solver which iterates solves for at a time, side by side.
SIDE_BY_SIDE = 8
#: Bytes of a covariance in pair form beyond which draws of the coefficients stand for it.
MAX_PAIRS = 2**31
INDEPENDENT = "assumes independent errors"
WITH_CHOICE = f"{INDEPENDENT}; includes what the choice of lambda leaves open"
OF_NEIGHBOURS = "what neighbours leave open; coarse terms with errors that are alike as those of neighbours"
WITHOUT_CHOICE = f"{INDEPENDENT}; takes the chosen lambda as known"
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
    pairs : [K.., O.., b..], its pair form: the variance at x is Σ_{k,o} pairs[k,o] Π_j φ_{k_j}(x_j) φ_{k_j + o_j}(x_j).
    attrs : what it assumes, and how sure it is.
    degrees : [b..], degrees of freedom of Student's t, which errors over their standard errors follow.
    """

    pairs: np.ndarray
    attrs: Mapping[str, Any]
    degrees: np.ndarray


@dataclass(frozen=True)
class Requested:
    """What error bars are requested.

    Parameters
    ----------
    method : "exact": σ̂² (G + Λ)⁻¹, the Bayesian covariance (Wahba 1983; Nychka 1988). "draws": this from draws of the
        coefficients. "jackknife": from fits without one part at a time (delete-a-group jackknife). None: exact where
        the solver knows the inverse and its pairs fit in memory, else draws.
    draws : how many; None: 200 where the solver iterates, 40 of what few changing gaps alone leave open, 800 where it
        knows the inverse.
    seed : of their random numbers.
    smoothing_uncertainty : whether to add J Cov(log λ) Jᵀ with J = ∂c/∂log λ, what a choice by REML leaves open (Wood,
        Pya and Säfken 2016). The jackknife never does: Cov(log λ) takes errors as independent.

    Raises
    ------
    TypeError : `smoothing_uncertainty` is neither True nor False.
    ValueError : an unknown method; draws that are no integer or fewer than 10; a seed that is no integer or negative.
    """

    method: str | None = None
    draws: int | None = None
    seed: int = 0
    smoothing_uncertainty: bool = True

    def __post_init__(self) -> None:
        if self.method is not None and self.method not in METHODS:
            known = ", ".join(map(repr, METHODS))
            raise ValueError(f"method={self.method!r} is unknown; use one of {known}, or None")
        if self.draws is not None and not (_is_integer(self.draws) and self.draws >= FEWEST_DRAWS):
            raise ValueError(
                f"draws={self.draws!r}: a standard error needs an integer of at least {FEWEST_DRAWS} draws, which "
                f"leave a relative error of {1 / math.sqrt(2 * FEWEST_DRAWS):.0%}; {DRAWS} leave "
                f"{1 / math.sqrt(2 * DRAWS):.0%}"
            )
        if self.draws is not None and self.draws > MOST_DRAWS:
            raise ValueError(
                f"draws={self.draws}: {MOST_DRAWS:,} are the most, which leave a relative error of "
                f"{1 / math.sqrt(2 * MOST_DRAWS):.1%}; method='exact' has none where the solver knows the inverse"
            )
        if not (_is_integer(self.seed) and self.seed >= 0):
            raise ValueError(f"seed={self.seed!r}: the seed of the draws is an integer, 0 or more")


def _is_integer(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def covariance(fit: Fit, requested: Requested, device: str | None = None) -> Covariance:
    """Return the covariance of one variable's coefficients.

    Parameters
    ----------
    fit : a solved one.
    device : where the jackknife solves.

    Raises
    ------
    ValueError : an exact one of a solver that iterates; draws whose pairs do not fit in memory.
    """
    if fit.fine is not None:
        return _beside_fine(fit, requested)
    frame, factorisation = fit.space.frame, fit.solved.factorisation
    nbytes = 8 * math.prod((*frame.sizes, *frame.offsets, *fit.variable.batch_shape))
    method = requested.method
    if method is None:
        method = "exact" if factorisation.knows_inverse and nbytes <= MAX_PAIRS else "draws"
    added = _left_open_if(fit, requested, method)
    match method:
        case "exact":
            if not factorisation.knows_inverse:
                raise ConvergenceError(
                    f"method='exact' needs a solver that knows the inverse, and {fit.name!r} was solved by iterations "
                    f"(solver={factorisation.choice.name!r}); pass method='draws', or fit with solver='banded', if "
                    "its memory suffices"
                )
            pairs = _exact_pairs(fit)
        case "draws":
            n = number_of_draws(fit, requested)
            pairs = _drawn_pairs(fit, n, np.random.default_rng(requested.seed), nbytes)
        case "jackknife":
            pairs = outer_pairs(jackknife_replicates(fit, device), frame)
    for root in (added, _of_offsets(fit)):
        if root is not None:
            pairs = pairs + outer_pairs(root, frame)
    if fit.selected:
        pairs = masked_pairs(pairs, selection(fit.space, fit.selected), frame)
    assumed = _assumptions(fit, requested, method, added is not None)
    return Covariance(pairs, assumed, degrees_of_freedom(fit, requested, method))


def degrees_of_freedom(fit: Fit, requested: Requested, method: str) -> Array:
    """Return those of the standard errors of a single field, over the batch; NaN where nothing is left."""
    if method == "jackknife":
        left = sum(np.broadcast_to(s.count > 0, fit.variable.batch_shape) for s in fit.sums) - 1.0
    else:
        left = np.broadcast_to(fit.total.count - fit.edf_and_rss[0], fit.variable.batch_shape)
    left = np.where(left > 0, left, np.nan)
    if method == "draws" and fit.solved.factorisation.near is None:
        left = 1 / (1 / left + 1 / number_of_draws(fit, requested))  # the draws' own scatter
    return np.asarray(left)


def _exact_pairs(fit: Fit) -> Array:
    """Return the pair form of σ̂² (G + Λ)⁻¹; where ρ was chosen, of its mixture over what that leaves open."""
    memory = fit.statistics.total(fit.name).memory if fit.rho is not None else None
    if memory is None or memory.series.rho is not None:
        return np.asarray(fit.solved.factorisation.inverse_pairs() * fit.sigma() ** 2)
    likelihood, axes = fit.likelihood, len(fit.space.shape)
    pairs, square = np.zeros(()), np.zeros(())
    for _, share, (sums, solution) in likelihood.nodes(*likelihood.maximum()):
        degrees = np.maximum(sums.count - solution.factorisation.edf(), 1)
        pairs = pairs + share * solution.rss / degrees * solution.factorisation.inverse_pairs()
        apart = np.where(solution.determined, solution.coefficients - fit.solved.coefficients, np.nan)
        square = square + outer_pairs(np.expand_dims(apart * np.sqrt(share), axes), fit.space.frame)
    return np.asarray(pairs + square)


def roots(fit: Fit, requested: Requested, device: str | None = None) -> tuple[list[Array], dict[str, Any]]:
    """Return x_m, [K.., m, b..], with Σ x_m x_mᵀ the covariance of the coefficients, and what it assumes.

    A sum of derivatives along several coordinates needs them: its variance is no sum over the pair form. They are
    draws about the estimate, or the replicates of the jackknife.

    Raises
    ------
    ValueError : the exact covariance was requested, which has no root that can be kept.
    """
    if requested.method == "exact":
        raise ValueError(
            "method='exact': the error of a Laplacian over several coordinates is known from draws of the "
            "coefficients or by the jackknife; leave method out, or pass method='jackknife'"
        )
    method = requested.method or "draws"
    added = _left_open_if(fit, requested, method)
    attrs = _assumptions(fit, requested, method, added is not None)
    if method == "jackknife":
        return [jackknife_replicates(fit, device)], attrs
    n = number_of_draws(fit, requested)
    drawn = [part / math.sqrt(n) for part in _drawn(fit, n, np.random.default_rng(requested.seed))]
    drawn += [root for root in (added, _of_offsets(fit)) if root is not None]
    return [part * selection(fit.space, fit.selected, part.ndim) for part in drawn], attrs


def _left_open_if(fit: Fit, requested: Requested, method: str) -> Array | None:
    """Return what the choice of λ leaves open, where that was requested and the method knows it."""
    return left_open(fit) if requested.smoothing_uncertainty and method != "jackknife" else None


def _of_offsets(fit: Fit) -> Array | None:
    """Return x_m, [K.., m, b..], with Σ x_m x_mᵀ what offsets of holders leave open, if there are some."""
    if fit.levels is None or fit.border is None or not fit.levels.offsets:
        return None
    return np.asarray(fit.border.roots * fit.sigma())


def number_of_draws(fit: Fit, requested: Requested) -> int:
    """Return how many draws there are: those that were requested, else fewer the more each of them costs."""
    if requested.draws:
        return requested.draws
    factorisation = fit.solved.factorisation
    if factorisation.knows_inverse:
        return DIRECT_DRAWS
    return DRAWS if factorisation.near is None else NEAR_DRAWS


def _assumptions(fit: Fit, requested: Requested, method: str, with_choice: bool) -> dict[str, Any]:
    """Return the attributes of a standard error: by what method it is known, and what that assumes."""
    if method == "jackknife":
        n = len(fit.sums)
        comment = f"assumes errors that are independent between the {n} parts, not within them"
        return {"method": method, "comment": comment, "degrees_of_freedom": n - 1}
    comment = INDEPENDENT if fit.rho is None else "assumes AR(1) errors"
    if fit.choice and fit.rho is None:
        comment = WITH_CHOICE if with_choice else WITHOUT_CHOICE
    attrs: dict[str, Any] = {"method": method, "comment": comment}
    if method == "draws":
        n = number_of_draws(fit, requested)
        attrs |= {"draws": n, "seed": requested.seed, "relative_error": 1 / math.sqrt(2 * n)}
    return attrs


def _beside_fine(fit: Fit, requested: Requested) -> Covariance:
    """Return the covariance of coarse coefficients, whose errors are the fine field and noise.

    With A = G + Λ and the errors' covariance V, that of A⁻¹Φᵀ W V W Φ A⁻¹ (Huber 1967: a sandwich), and
    σ² A⁻¹ Λ A⁻¹ for what the penalty holds back. Sums over observations are those over cells in which V hardly changes.
    """
    if requested.method not in (None, "exact"):
        raise ValueError(
            f"method={requested.method!r}: the errors of a field with a fine part come from its neighbours; for other "
            "ones fit a single field, fit(..., fine=False)"
        )
    members, alike = () if fit.fine is None else fit.fine.members, []
    space, frame, batch = fit.space, fit.space.frame, fit.variable.batch_shape
    axes, factorisation = len(frame.sizes), fit.solved.factorisation
    penalised = bool(fit.known_penalty.bound(fit.total.gram, space).gram(space).terms)
    roots, evens = [], []
    for member in members:
        root, even = (np.zeros((*frame.sizes, 0)),) * 2
        freedom = math.nan
        if member is not None:
            errors, counts, freedom = member.error_root()
            rows = member.cell_means(functools.partial(rows_of, space))
            root = (rows.T @ (counts[:, None] * errors)).reshape(*frame.sizes, -1)
            even = (rows.T * np.sqrt(counts)).reshape(*frame.sizes, -1)
        roots.append(root)
        evens.append(even)
        alike.append(freedom)
    solved = [_stacked(parts, batch, axes) for parts in (roots, evens)]
    weight = fit.total.weight / np.maximum(fit.total.count, 1)
    pairs = outer_pairs(factorisation.solve(solved[0] * weight), frame)
    if penalised and factorisation.knows_inverse:
        data = outer_pairs(factorisation.solve(solved[1] * np.sqrt(weight)), frame)
        pairs = pairs + (factorisation.inverse_pairs() - data) * fit.sigma() ** 2
    if fit.selected:
        pairs = masked_pairs(pairs, selection(space, fit.selected), frame)
    degrees = np.array(alike) if fit.whole is None else fit.whole.degrees
    return Covariance(pairs, {"method": "exact", "comment": OF_NEIGHBOURS}, degrees.reshape(batch))


def _stacked(parts: Sequence[Array], batch: tuple[int, ...], axes: int) -> Array:
    """Return columns [K.., m] of each member of a batch as [K.., m, b..], with zeros behind the shorter ones."""
    most = max(part.shape[-1] for part in parts)
    filled = [np.pad(part, [(0, 0)] * axes + [(0, most - part.shape[-1])]) for part in parts]
    return np.stack(filled, axis=-1).reshape(*filled[0].shape, *batch)


def _drawn_pairs(fit: Fit, n: int, rng: np.random.Generator, nbytes: int) -> Array:
    """Return the pair form of the mean of n draws' squares: what is kept does not grow with n."""
    memory = execution.resources(None).memory
    if 3 * nbytes > memory:  # of some draws, of all and in the making
        raise TooLargeError(
            f"the covariance of {fit.name!r} in pair form takes three times {nbytes} bytes "
            f"({3 * nbytes / 2**30:.1f} GiB), more than the {memory / 2**30:.1f} GiB of this machine; evaluate draws "
            "themselves (field.sample(20, seed=0)), or use fewer coefficients along some coordinate"
        )
    total, frame = None, fit.space.frame
    if (near := fit.solved.factorisation.near) is not None:
        return _beside_near(fit, near, n, rng)
    for some in _drawn(fit, n, rng):
        pairs = outer_pairs(some, frame)
        total = pairs if total is None else np.add(total, pairs, out=total)
    return np.asarray(total) / n


def _beside_near(fit: Fit, near: Factorisation, n: int, rng: np.random.Generator) -> Array:
    """Return the pair form of a system close to this one, and of what draws of both differ by, which is less."""
    draw, frame = fit.solved.factorisation.coupled_draws(rng), fit.space.frame
    pairs, kept = near.inverse_pairs(), []
    for first in counted(n, SIDE_BY_SIDE, "draws of the error"):
        kept.append(draw((min(SIDE_BY_SIDE, n - first),)))
        if len(kept) * SIDE_BY_SIDE >= NEAR_DRAWS or first + SIDE_BY_SIDE >= n:  # pairs of many cost less
            some, beside = (outer_pairs(np.concatenate(x, axis=-1), frame) for x in zip(*kept, strict=True))
            pairs += np.subtract(some, beside, out=some) / n
            kept.clear()
    return np.asarray(pairs * fit.sigma() ** 2)


def left_open(fit: Fit) -> Array | None:
    """Return x_m, [K.., m, b..], with Σ x_m x_mᵀ = J Cov(log λ) Jᵀ, what the choice of λ leaves open to first order.

    None where it is not known: the penalty was given, or the criterion was no likelihood, as GCV is none.
    """
    if "covariance" not in fit.choice:
        return None
    values, vectors = np.linalg.eigh(np.array(fit.choice["covariance"], dtype=np.float64))
    root, axis = vectors * np.sqrt(np.maximum(values, 0.0)), len(fit.space.shape)
    jacobian = derivatives_by_log_strength(fit.total, fit.space, fit.known_penalty, fit.solved)
    if fit.border is not None:
        jacobian = fit.border.with_offsets(jacobian)
    return np.moveaxis(np.tensordot(jacobian, root, axes=(axis, 0)), -1, axis)


def deviations(fit: Fit, n: int, rng: np.random.Generator, requested: Requested) -> Iterator[Array]:
    """Yield n draws of the coefficients about their estimate, [K.., m, b..], with the covariance of their errors.

    Members of a batch share λ, and so a draw of it. Those of the jackknife are sums of its replicates.
    """
    axis, by_parts = len(fit.space.shape), requested.method == "jackknife"
    both = (_left_open_if(fit, requested, "draws"), _of_offsets(fit))
    roots = [jackknife_replicates(fit)] if by_parts else [root for root in both if root is not None]
    for drawn in _drawn(fit, n, rng, none=by_parts):
        for added in roots:
            weights = rng.standard_normal((added.shape[axis], drawn.shape[axis]))
            drawn += np.moveaxis(np.tensordot(added, weights, axes=(axis, 0)), -1, axis)
        yield drawn


def _drawn(fit: Fit, n: int, rng: np.random.Generator, *, none: bool = False) -> Iterator[Array]:
    """Yield the draws of `deviations`, some at a time; zeros where there are to be none."""
    batch, sigma, factorisation = fit.variable.batch_shape, fit.sigma(), fit.solved.factorisation
    draw = (lambda many: np.zeros((*fit.space.shape, *many))) if none else factorisation.draws(rng)
    members = math.prod(batch)
    fewest = 1 if factorisation.knows_inverse else SIDE_BY_SIDE // members
    step = max(1, fewest, DRAWN // (fit.space.size * members))
    for first in counted(n, step, "draws of the error"):
        yield sigma * draw((min(step, n - first), *batch))


# ---- fits without each part


def leave_out_fits(fits: Mapping[str, Fit], device: str | None = None) -> dict[str, Array]:
    """Coefficients of the fits without each part, under the penalty of each fit.

    Parameters
    ----------
    fits : of statistics with at least two parts. Those with one G and one penalty share their factorisations.
    device : where they are solved, if this process has such a device.

    Returns
    -------
    dict of ndarray, [K.., H, b..] : parts in the order of the statistics; NaN where the other parts do not determine
        the fit.

    Raises
    ------
    ValueError : there is only one part, a fit is lazy, or no part of a variable can be spared (`SingularSystemError`).
    """
    statistics = next(iter(fits.values())).statistics
    if any(fit.is_lazy for fit in fits.values()):
        raise ValueError("this field is still lazy (compute=False); call .compute() first")
    parts, space = statistics.parts, statistics.space
    if len(parts) < 2:
        held = ", ".join(part.describe() for part in parts) or "none"
        why = ", into which others were collapsed" if statistics._collapsed else ""
        raise ValueError(
            f"there is nothing to leave out: the statistics have {len(parts)} part ({held}{why}); label the "
            'observations with holders, for example fit(..., holder="time.year"), or merge those of several'
        )
    if any(fit.levels is not None and fit.levels.offsets for fit in fits.values()):
        raise ValueError(
            "fits without one holder do not know its offset, so that nothing tells how well they predict it, and the "
            "jackknife nothing of the others; solve without offsets='holders', or take method='exact' or 'draws'"
        )
    remaining = {name: leave_one_out(fit.sums, space.frame) for name, fit in fits.items()}
    for name, fit in fits.items():
        if fit.rho is not None:
            remaining[name] = [whitened(closed(s, space), fit.rho, space.frame) for s in remaining[name]]
    coefficients: dict[str, list[Array]] = {name: [] for name in fits}
    resources = execution.resources(execution.present(device))
    for number in counted(len(parts), 1, "fits without one holder"):
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
    fit : of statistics with at least two parts; its selected terms are those of the replicates.
    device : where the fits without each part are solved.

    Returns
    -------
    ndarray, [K.., H, b..] : zero for a part without observations of a batch member, which does not count in its H. NaN
        for members that some part's removal leaves undetermined.

    Raises
    ------
    ValueError : there is only one part, the fit is lazy, or a part cannot be spared for any member
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
    fits : solved ones, of statistics with at least two parts; their penalties are those of all fits.
    device : where the fits without each part are solved.

    Returns
    -------
    dict of Dataset : for each variable, over ``holder`` and the batch dimensions:

        - ``count``: observations of the part;
        - ``rmse``: √((s − 2hᵀc + cᵀGc)/Σw) with the sums of the part and the coefficients c of the fit without it,
          in the data's units; of the whole field, whatever terms of it are selected;
        - ``influence``: largest change of the field when the part is left out, in the data's units, over those Greville
          points whose knot cell holds observations (Fourier and polynomials: over their domain).

        NaN where the other parts do not determine the fit, and for the rmse of a part without observations.

    Raises
    ------
    ValueError : there is only one part, a fit is lazy, or no part can be spared (`SingularSystemError`).
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
    cells = observed_cells(fit.total.gram, space).astype(np.float64)
    layout = Layout(grid.groups, tuple(range(len(axes), cells.ndim)))
    sizes = (*shape[: len(axes)], *cells.shape[len(axes) :])
    near = execution.evaluate(cells, points, layout, space.cells, (0,) * len(axes), sizes)
    observed = np.expand_dims(near > 0, len(axes))
    largest = np.max(values, axis=axes, where=observed, initial=0.0)
    return np.where(observed.any(axis=axes), largest, np.nan)
