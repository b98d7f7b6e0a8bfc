"""Error bars, and scores of the fits without each part: how far a fit may be off. From sums, never from the data."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from xspline import execution
from xspline.arguments import is_integer
from xspline.kernels import Group, Layout
from xspline.kernels.series.lags import begins, closed
from xspline.kriging.nearby import SANDWICHED, stretch
from xspline.labels.fine.field import rows_of
from xspline.labels.fit import Fit, batch_labels, selection
from xspline.residuals.assumptions import MOST
from xspline.solve import ConvergenceError, Factorisation, SingularSystemError, Solution, TooLargeError, solve
from xspline.solve import strength_derivatives as derivatives_by_log_strength
from xspline.solve.kronecker.pcg import symmetric_root
from xspline.solve.krylov import AT_ONCE
from xspline.solve.progress import counted
from xspline.spaces import Space
from xspline.spaces.features import Global
from xspline.sums import leave_one_out, masked_pairs, observed_cells, outer_pairs
from xspline.sums.memory import whitened
from xspline.sums.window import Array

#: Those that ask parts how far errors are alike; they take the penalty as given.
PARTS_METHODS = ("jackknife", "scores")
METHODS = ("exact", "draws", *PARTS_METHODS)
#: Draws behind a standard error; n of them leave a relative error of 1/√(2n). This many where a solver iterates: 5 %.
DRAWS = 200
#: Where only the difference from a system is drawn that knows its inverse: 11 % of the difference.
NEAR_DRAWS = 40
#: Where the inverse is known, so that draws cost little: 2.5 %.
DIRECT_DRAWS = 800
#: The fewest that a user may ask for: 22 %.
FEWEST_DRAWS = 10
#: The dimension of the roots of a covariance, and of draws about an estimate.
ROOT = "root of the covariance"
#: Bytes of the largest matrix: draws of the coefficients stand for a covariance in pair form that is larger, and with a
#: band that is larger a step of a search for constants would take minutes.
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
    """What error bars are requested, by the arguments that :meth:`Field.stderr` describes.

    Raises
    ------
    TypeError : `smoothing_uncertainty` is neither True nor False.
    ValueError : an unknown method; draws that are no integer or fewer than 10; a seed that is no integer or negative.
    """

    method: str | None = None
    draws: int | None = None
    seed: int = 0
    smoothing_uncertainty: bool = True

    def by_parts(self, fit: Fit) -> str:
        """Return the method if it is one by parts, as it is by default where errors are alike in space; else ""."""
        method = self.method or ("scores" if fit.by_scores else "")
        return method if method in PARTS_METHODS else ""

    def __post_init__(self) -> None:
        if self.method is not None and self.method not in METHODS:
            known = ", ".join(map(repr, METHODS))
            raise ValueError(f"method={self.method!r} is unknown; use one of {known}, or None")
        if self.draws is not None and not (is_integer(self.draws) and self.draws >= FEWEST_DRAWS):
            raise ValueError(
                f"draws={self.draws!r}: a standard error needs an integer of at least {FEWEST_DRAWS} draws, which "
                f"leave a relative error of {1 / math.sqrt(2 * FEWEST_DRAWS):.0%}; {DRAWS} leave "
                f"{1 / math.sqrt(2 * DRAWS):.0%}"
            )
        if self.draws is not None and self.draws > MOST:
            raise ValueError(
                f"draws={self.draws}: {MOST:,} are the most, which leave a relative error of "
                f"{1 / math.sqrt(2 * MOST):.1%}; method='exact' has none where the solver knows the inverse"
            )
        if not (is_integer(self.seed) and self.seed >= 0):
            raise ValueError(f"seed={self.seed!r}: the seed of the draws is an integer, 0 or more")


def requested_if(
    stderr: bool, method: str | None, draws: int | None, seed: int, smoothing_uncertainty: bool
) -> Requested | None:
    """Return what error bars are requested beside values, None where there are to be none."""
    if stderr:
        return Requested(method, draws, seed, smoothing_uncertainty)
    for name, value in (("method", method), ("draws", draws)):
        if value is not None:
            raise ValueError(f"{name}={value!r} is of the standard error, which takes stderr=True; add it")
    return None


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
    method = requested.by_parts(fit) or requested.method
    if method is None:
        method = "exact" if factorisation.knows_inverse and nbytes <= MAX_PAIRS else "draws"
    pairs: Any = 0.0
    beside = method  # whose roots are added to these pairs
    if method == "exact":
        if not factorisation.knows_inverse:
            raise ConvergenceError(
                f"method='exact' needs a solver that knows the inverse, and {fit.name!r} was solved by iterations "
                f"(solver={factorisation.choice.name!r}); pass method='draws', or fit with solver='banded', if its "
                "memory suffices"
            )
        pairs = _exact_pairs(fit)
    elif method == "draws":
        memory = execution.resources(None).memory
        if 3 * nbytes > memory:  # the pairs of some draws, of all and of both in the making
            raise TooLargeError(
                f"the covariance of {fit.name!r} in pair form takes three times {nbytes} bytes "
                f"({3 * nbytes / 2**30:.1f} GiB), more than the {memory / 2**30:.1f} GiB of this machine; evaluate "
                "draws themselves (field.sample(20, seed=0)), or use fewer coefficients along some coordinate"
            )
        if (near := factorisation.near) is not None:
            pairs, beside = _beside_near(fit, near, requested), "exact"
    for root in _root_parts(fit, requested, beside, device):
        pairs = pairs + outer_pairs(root, frame)
    if fit.selected:
        pairs = masked_pairs(pairs, selection(fit.space, fit.selected), frame)
    assumed = _assumptions(fit, requested, method)
    return Covariance(pairs, assumed, degrees_of_freedom(fit, requested, method))


def degrees_of_freedom(fit: Fit, requested: Requested, method: str) -> Array:
    """Return those of the standard errors of a single field, over the batch; NaN where nothing is left."""
    if method == "jackknife":
        left = sum(np.broadcast_to(s.count > 0, fit.variable.batch_shape) for s in fit.sums) - 1.0
    elif method == "scores":
        left = np.broadcast_to(fit.scores.used.sum(axis=0), fit.variable.batch_shape) - 1.0
    else:
        left = np.broadcast_to(fit.total.count - fit.edf_and_rss[0], fit.variable.batch_shape)
    left = np.where(left > 0, left, np.nan)
    if method == "draws" and fit.solved.factorisation.near is None:
        left = 1 / (1 / left + 1 / number_of_draws(fit, requested))  # the draws' own scatter
    return np.asarray(left)


def _exact_pairs(fit: Fit) -> Array:
    """Return the pair form of σ̂² (G + Λ)⁻¹; where ρ was chosen, of its mixture over what that leaves open."""
    if (nodes := _memory_nodes(fit)) is None:
        return np.asarray(fit.solved.factorisation.inverse_pairs() * fit.sigma() ** 2)
    pairs, square, axes = np.zeros(()), np.zeros(()), len(fit.space.shape)
    for share, variance, solution in nodes:
        pairs = pairs + share * variance * solution.factorisation.inverse_pairs()
        apart = np.where(solution.determined, solution.coefficients - fit.solved.coefficients, np.nan)
        square = square + outer_pairs(np.expand_dims(apart * np.sqrt(share), axes), fit.space.frame)
    return np.asarray(pairs + square)


def _memory_nodes(fit: Fit) -> Iterator[tuple[Any, Array, Solution]] | None:
    """Return shares, variances of an observation and solutions over what is left open of ρ; None where it is known."""
    memory = fit.statistics.total(fit.name).memory if fit.rho is not None else None
    if memory is None or memory.series.rho is not None:
        return None
    # NaN where no observation is left to tell a variance.
    likelihood, known = fit.likelihood, np.where(np.isnan(fit.sigma()), np.nan, 1.0)
    return (
        (share, known * solution.rss / np.maximum(sums.count - solution.factorisation.edf(), 1), solution)
        for _, share, (sums, solution) in likelihood.nodes(*likelihood.maximum())
    )


def roots(fit: Fit, requested: Requested, device: str | None = None) -> tuple[list[Array], dict[str, Any]]:
    """Return x_m, [K.., m, b..], with Σ x_m x_mᵀ the covariance of the coefficients, and what it assumes.

    A sum of derivatives along several coordinates needs them: its variance is no sum over the pair form. They are
    draws about the estimate, or the replicates of parts.

    Raises
    ------
    ValueError : the exact covariance was requested, which has no root that can be kept.
    """
    if requested.method == "exact":
        raise ValueError(
            "method='exact': the error of a Laplacian over several coordinates is known from draws of the "
            "coefficients or by the jackknife; leave method out, or pass method='jackknife'"
        )
    method = requested.by_parts(fit) or requested.method or "draws"
    attrs = _assumptions(fit, requested, method)
    return list(_root_parts(fit, requested, method, device)), attrs


def _root_parts(fit: Fit, requested: Requested, method: str, device: str | None) -> Iterator[Array]:
    """Yield the roots of `roots`, some at a time; of "exact" what the choice of λ leaves open alone."""
    keep = selection(fit.space, fit.selected, len(fit.space.shape) + 1 + len(fit.variable.batch_shape))
    if method in PARTS_METHODS:
        yield replicates(fit, method, device) * keep
    elif method == "draws":
        n = number_of_draws(fit, requested)
        for part in _drawn(fit, n, np.random.default_rng(requested.seed)):
            yield part / math.sqrt(n) * keep
    for added in _added(fit, requested, method):
        yield added * keep


def along_roots(fit: Fit, parts: Iterable[Array], labels: int | None) -> Iterator[Fit]:
    """Yield fits with roots [K.., m, b..] in place of coefficients, some at a time, along the dimension `ROOT`.

    They are so many that their values at some labels are as many numbers as `AT_ONCE`. None: at those of a chunk.
    """
    axis = len(fit.space.shape)
    # A chunk holds about a sixteenth of them.
    most = 16 if labels is None else max(AT_ONCE // max(labels, 1), 1)
    for part in parts:
        for first in range(0, part.shape[axis], most):
            yield fit.along(ROOT, part[(slice(None),) * axis + (slice(first, first + most),)])


Marginals = Sequence[tuple[tuple[int, ...], Array]]


def applied(marginals: Marginals, vectors: Array) -> Array:
    """Return wᵀx of vectors x, [K.., ...], for all products w of one row of each marginal: [n.., ...].

    A marginal has coefficient axes and rows [n, K..] over these; together they have all axes.
    """
    axes = sum(len(own) for own, _ in marginals)
    rest = list(range(axes, vectors.ndim))
    out = [vectors.ndim + i for i in range(len(marginals))]
    given: list[Any] = [vectors, [*range(axes), *rest]]
    for i, (own, rows) in enumerate(marginals):
        given += [rows, [out[i], *own]]
    return np.asarray(np.einsum(*given, [*out, *rest], optimize="greedy"))


def functional_roots(
    fit: Fit, marginals: Marginals, requested: Requested, device: str | None = None
) -> tuple[Iterator[Array], dict[str, Any]]:
    """Return y_m, [n.., m, b..], some at a time, with Σ y_m y_mᵀ the covariance of all wᵀc, and what it assumes.

    The exact ones take a solve for each w, or for each function where labels are more than these, by any solver. Where
    that is more solves than there are draws, method None takes draws.

    Raises
    ------
    ValueError : a method of terms beside a fine field that is not theirs; a covariance that is too large.
    """
    few = [rows.shape[0] <= math.prod(rows.shape[1:]) for _, rows in marginals]
    reduced = [
        (axes, rows if own else np.eye(math.prod(rows.shape[1:])).reshape(-1, *rows.shape[1:]))
        for own, (axes, rows) in zip(few, marginals, strict=True)
    ]
    count, batch = math.prod(rows.shape[0] for _, rows in reduced), fit.variable.batch_shape
    method = requested.method if fit.fine is not None else requested.by_parts(fit) or requested.method
    if method is None:
        most = DIRECT_DRAWS if fit.solved.factorisation.knows_inverse else DRAWS
        method = "exact" if count <= most or fit.fine is not None else "draws"
    if method == "exact" and 8 * count**2 * math.prod(batch) > MAX_PAIRS:
        raise TooLargeError(
            f"the exact covariance of {count:,} weighted sums of {fit.name!r} is larger than "
            f"{MAX_PAIRS / 2**30:.0f} GiB; pass method='draws', or fewer labels"
        )
    attrs = _assumptions(fit, requested, method) if fit.fine is None else beside_fine(requested)

    def parts() -> Iterator[Array]:
        if method == "exact":
            root = _exact_root(fit, reduced)
            for i, ((_, rows), own) in enumerate(zip(marginals, few, strict=True)):
                if not own:
                    flat = rows.reshape(rows.shape[0], -1)
                    root = np.moveaxis(np.tensordot(flat, root, axes=(1, i)), 0, i)
            yield root
        if fit.fine is None:
            for part in _root_parts(fit, requested, str(method), device):
                yield applied(marginals, part)

    return parts(), attrs


def beside_fine(requested: Requested) -> dict[str, Any]:
    """Return the attributes of errors of a fine field, and of terms beside it; raises ValueError for other methods."""
    if requested.method not in (None, "exact"):
        raise ValueError(
            f"method={requested.method!r}: the errors of a field with a fine part, and of terms beside it, come from "
            "its neighbours; leave method out, or fit a single field, fit(..., fine=False)"
        )
    return {"method": "exact", "comment": OF_NEIGHBOURS}


def _exact_root(fit: Fit, marginals: Marginals) -> Array:
    """Return roots [n.., m, b..] of the exact covariance of wᵀc, of that of terms beside a fine field too."""
    counts, factorisation = [rows.shape[0] for _, rows in marginals], fit.solved.factorisation
    if fit.fine is not None:
        # As `_beside_fine` has it of points.
        half, signs, _ = _sandwich(fit)
        y = applied(marginals, half * selection(fit.space, fit.selected, half.ndim))
        y = y.reshape(-1, *y.shape[len(marginals) :])
        square = np.einsum("im...,jm...->ij...", y, y * signs)
        if _holds_back(fit):
            square += _between(fit, factorisation, marginals) * fit.sigma() ** 2
    elif (nodes := _memory_nodes(fit)) is None:
        square = _between(fit, factorisation, marginals) * fit.sigma() ** 2
    else:
        square = np.zeros(())
        for share, variance, solution in nodes:
            square = square + share * variance * _between(fit, solution.factorisation, marginals)
            apart = np.where(solution.determined, solution.coefficients - fit.solved.coefficients, np.nan)
            keep = selection(fit.space, fit.selected, apart.ndim)
            off = applied(marginals, apart * keep).reshape(-1, *apart.shape[len(fit.space.shape) :])
            square = square + share * off[:, None] * off[None]
    last = np.moveaxis(
        np.broadcast_to(square, (*square.shape[:2], *fit.variable.batch_shape)), (0, 1), (-2, -1)
    )
    known = np.isfinite(last).all(axis=(-2, -1), keepdims=True)
    symmetric = np.where(known, last + np.swapaxes(last, -2, -1), 0.0) / 2
    root = np.where(known, symmetric_root(symmetric), np.nan)
    return np.moveaxis(root, (-2, -1), (0, 1)).reshape((*counts, -1, *fit.variable.batch_shape))


def _between(fit: Fit, factorisation: Factorisation, marginals: Marginals) -> Array:
    """Return wᵀ (G + Λ)⁻¹ w' of all products w and w' of rows, [N, N, b..]; batch extents of 1 are shared."""
    space, batch = fit.space, len(fit.variable.batch_shape)
    keep = selection(space, fit.selected)
    counts = [rows.shape[0] for _, rows in marginals]
    total, columns = math.prod(counts), []
    step = max(AT_ONCE // (space.size * math.prod(factorisation.determined.shape)), 1)
    for first in counted(total, step, "solves for the error"):
        index = np.unravel_index(np.arange(first, min(first + step, total)), counts)
        operands: list[Any] = []
        for own, (axes, rows) in zip(index, marginals, strict=True):
            operands += [rows[own], [len(space.shape), *axes]]
        rhs = np.einsum(*operands, list(range(len(space.shape) + 1))) * keep[..., None]
        solved = factorisation.solve(rhs.reshape(*rhs.shape, *(1,) * batch))
        solved = solved * keep.reshape(*keep.shape, *(1,) * (1 + batch))
        some = applied(marginals, solved)
        columns.append(some.reshape(total, *some.shape[len(counts) :]))
    return np.concatenate(columns, axis=1)


def _includes_choice(fit: Fit, requested: Requested, method: str) -> bool:
    """Return whether errors include what the choice of λ leaves open: it was requested, and the method knows it."""
    return requested.smoothing_uncertainty and method not in PARTS_METHODS and "covariance" in fit.choice


def _added(fit: Fit, requested: Requested, method: str) -> list[Array]:
    """Return roots of what the choice of λ and the offsets of holders leave open; none by parts, which see it all."""
    roots, axis = list[Array](), len(fit.space.shape)
    if _includes_choice(fit, requested, method):
        # These x_m, [K.., m, b..], have Σ x_m x_mᵀ = J Cov(log λ) Jᵀ, what the choice leaves open to first order.
        root = symmetric_root(np.array(fit.choice["covariance"], dtype=np.float64))
        jacobian = derivatives_by_log_strength(fit.total, fit.space, fit.known_penalty, fit.solved)
        if fit.border is not None:
            jacobian = fit.border.with_offsets(jacobian)
        roots.append(np.moveaxis(np.tensordot(jacobian, root, axes=(axis, 0)), -1, axis))
    if fit.border is not None and method not in PARTS_METHODS:
        roots.append(fit.border.roots * fit.sigma())
    return [root for root in roots if root.shape[axis]]


def _check_offsets(fit: Fit) -> None:
    """Raise ValueError where there are offsets, which fits without a part do not know."""
    if fit.levels is not None and fit.levels.offsets:
        raise ValueError(
            "fits without one holder do not know its offset, so that parts tell nothing of how well they predict it, "
            "nor of errors; solve without offsets='holders', or take method='exact' or 'draws'"
        )


def number_of_draws(fit: Fit, requested: Requested) -> int:
    """Return how many draws there are: those that were requested, else fewer the more each of them costs."""
    if requested.draws:
        return requested.draws
    factorisation = fit.solved.factorisation
    if factorisation.knows_inverse:
        return DIRECT_DRAWS
    return DRAWS if factorisation.near is None else NEAR_DRAWS


def _assumptions(fit: Fit, requested: Requested, method: str) -> dict[str, Any]:
    """Return the attributes of a standard error: by what method it is known, and what that assumes."""
    if method in PARTS_METHODS:
        n = int(np.nan_to_num(degrees_of_freedom(fit, requested, method)).max()) + 1
        comment = f"assumes errors that are independent between the {n} parts, not within them"
        return {"method": method, "comment": comment, "degrees_of_freedom": n - 1}
    comment = INDEPENDENT if fit.rho is None else "assumes AR(1) errors"
    if fit.choice and fit.rho is None:
        comment = WITH_CHOICE if _includes_choice(fit, requested, method) else WITHOUT_CHOICE
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
    attrs = beside_fine(requested)
    root, signs, alike = _sandwich(fit)
    frame = fit.space.frame
    pairs = outer_pairs(root, frame, signs)
    if _holds_back(fit):
        pairs += fit.solved.factorisation.inverse_pairs() * fit.sigma() ** 2
    if fit.selected:
        pairs = masked_pairs(pairs, selection(fit.space, fit.selected), frame)
    degrees = alike if fit.whole is None else fit.whole.degrees.reshape(alike.shape)
    return Covariance(pairs, attrs, degrees)


def _holds_back(fit: Fit) -> bool:
    """Return whether there is a penalty whose A⁻¹ Λ A⁻¹ = A⁻¹ − A⁻¹ΦᵀWΦA⁻¹ is known, as its solver is exact."""
    penalty = fit.known_penalty.bound(fit.total.gram, fit.space).gram(fit.space)
    return bool(penalty.terms) and fit.solved.factorisation.knows_inverse


def _sandwich(fit: Fit) -> tuple[Array, Array, Array]:
    """Return x_m, [K.., m, b..], signs of ±1 or 0, [m, b..], and degrees of freedom [b..].

    Σ ±x_m x_mᵀ is the covariance of what errors leave open, less σ² A⁻¹ΦᵀWΦA⁻¹ where the penalty holds something back.
    """
    members = () if fit.fine is None else fit.fine.members
    space, batch = fit.space, fit.variable.batch_shape
    weights = np.broadcast_to(fit.total.weight / np.maximum(fit.total.count, 1), batch).ravel()
    sigma = np.nan_to_num(fit.sigma()) if _holds_back(fit) else np.zeros(())
    functions = functools.partial(rows_of, space)
    most = int(np.clip(SANDWICHED**2 / space.size, SANDWICHED // 2, 2 * SANDWICHED))
    known = _of_few(fit)
    roots, signs, alike = [], [], []
    each = zip(members, weights, np.broadcast_to(sigma, batch).ravel(), strict=True)
    for k, (member, weight, own) in enumerate(each):
        # One cell without weight, where there is no fine field.
        errors, counts, rows, freedom = np.zeros((1, 1)), np.zeros(1), np.zeros((1, space.size)), math.nan
        if member is not None:
            cells, number = member.cells(most)
            errors, freedom = member.error_covariance(cells)
        if k in known:
            covariance, system = known[k]
            left = np.eye(space.size)
            middle = system @ (covariance * stretch(np.array(freedom)) ** 2) @ system - own**2 * system
        else:
            if member is not None:
                counts, rows = cells.counts, member.cell_means(functions, cells, number)
            size = np.sqrt(counts)[:, None]
            left = (size * rows).T
            middle = weight**2 * size * errors * size.T - weight * own**2 * np.eye(len(counts))
            if len(rows) >= space.size:
                left, middle = np.eye(space.size), left @ middle @ left.T
        values, vectors = np.linalg.eigh(middle)
        vectors *= np.sqrt(np.abs(values))
        roots.append(left @ vectors)
        signs.append(np.sign(values)[None])
        alike.append(freedom)

    def joint(parts: list[Array]) -> Array:
        most = max(part.shape[1] for part in parts)
        return np.stack([np.pad(x, ((0, 0), (0, most - x.shape[1]))) for x in parts], axis=-1)

    solved = fit.solved.factorisation.solve(joint(roots).reshape(*space.frame.sizes, -1, *batch))
    return solved, joint(signs).reshape(-1, *batch), np.array(alike).reshape(batch)


def _of_few(fit: Fit) -> dict[int, tuple[Array, Array]]:
    """Return of members of few observations the covariance [P, P] of coefficients, and the system that was solved."""
    known = {}
    for k, member, functions, held, system in fit.of_few():
        if (terms := member.terms(functions, held, np.zeros(fit.space.size))) is not None:
            known[k] = terms[1], system
    return known


def _beside_near(fit: Fit, near: Factorisation, requested: Requested) -> Array:
    """Return the pair form of a system close to this one, and of what draws of both differ by, which is less."""
    draw = fit.solved.factorisation.coupled_draws(np.random.default_rng(requested.seed))
    n, frame = number_of_draws(fit, requested), fit.space.frame
    pairs, step = near.inverse_pairs(), _drawn_at_a_time(fit)
    for first in counted(n, step, "draws of the error"):
        some, beside = (outer_pairs(x, frame) for x in draw((min(step, n - first),)))
        pairs += np.subtract(some, beside, out=some) / n
    return np.asarray(pairs * fit.sigma() ** 2)


def _drawn_at_a_time(fit: Fit) -> int:
    """Return how many draws of all coefficients are in memory, and solved for, side by side."""
    return max(AT_ONCE // (fit.space.size * math.prod(fit.variable.batch_shape)), 1)


def deviations(fit: Fit, n: int, rng: np.random.Generator, requested: Requested) -> Iterator[Array]:
    """Yield n draws of the coefficients about their estimate, [K.., m, b..], with the covariance of their errors.

    Members of a batch share λ, and so a draw of it. Those by parts are sums of their replicates.
    """
    axis, by_parts = len(fit.space.shape), requested.by_parts(fit)
    roots = [replicates(fit, by_parts)] if by_parts else _added(fit, requested, "draws")
    for drawn in _drawn(fit, n, rng, none=bool(by_parts)):
        for added in roots:
            weights = rng.standard_normal((added.shape[axis], drawn.shape[axis]))
            drawn += np.moveaxis(np.tensordot(added, weights, axes=(axis, 0)), -1, axis)
        yield fit.known_penalty.obeyed(drawn, fit.space)


def _drawn(fit: Fit, n: int, rng: np.random.Generator, *, none: bool = False) -> Iterator[Array]:
    """Yield the draws of `deviations`, some at a time; zeros where there are to be none."""
    batch, sigma, factorisation = fit.variable.batch_shape, fit.sigma(), fit.solved.factorisation
    draw = (lambda many: np.zeros((*fit.space.shape, *many))) if none else factorisation.draws(rng)
    step = _drawn_at_a_time(fit)
    for first in counted(n, step, "draws of the error"):
        yield sigma * draw((min(step, n - first), *batch))


def leave_out_fits(fit: Fit, device: str | None = None) -> Array:
    """Return coefficients [K.., H, b..] of the fits without each part, under the penalty of the fit of all.

    Parts are in the order of the statistics; NaN where the other parts do not determine the fit.

    Parameters
    ----------
    fit : of statistics with at least two parts.
    device : where they are solved, if this process has such a device.

    Raises
    ------
    ValueError : there is only one part, or none can be spared (`SingularSystemError`).
    """
    space, batch = fit.space, fit.variable.batch_shape
    _check_offsets(fit)
    fit.statistics._check_several()
    order = sorted(range(len(fit.sums)), key=lambda part: begins(fit.sums[part]))
    remaining = leave_one_out(
        [fit.sums[part] for part in order], space.frame, lambda sums: closed(sums, space, is_last=False)
    )
    resources = execution.resources(execution.present(device))
    by_part = np.full((len(order), *space.shape, *batch), np.nan)
    for number in counted(len(remaining), 1, "fits without one holder"):
        sums = remaining[number]
        if fit.rho is not None:
            sums = whitened(closed(sums, space), fit.rho, space.frame)
        with suppress(SingularSystemError):
            solution = solve(sums, space, fit.known_penalty, resources=resources)
            by_part[order[number]] = solution.coefficients
    if np.isnan(by_part).all():
        raise _none_spared(fit)
    return np.moveaxis(by_part, 0, len(space.shape))


def _none_spared(fit: Fit) -> SingularSystemError:
    return SingularSystemError(
        f"none of the {len(fit.sums)} parts of {fit.name!r} can be spared: without it the others do not determine the "
        'field; take parts that overlap more (holder="time.year", say), or pass a penalty'
    )


def replicates(fit: Fit, method: str, device: str | None = None) -> Array:
    """Return deviations [K.., B, b..] whose squares add up to the variance of everything linear in c, by parts."""
    _check_offsets(fit)
    if method == "jackknife":
        return jackknife_replicates(fit, device)
    own = fit.scores.replicates
    if np.isnan(own).any(axis=tuple(range(own.ndim - fit.scores.used.ndim + 1))).all():
        raise _none_spared(fit)
    return np.asarray(own * selection(fit.space, fit.selected, own.ndim))


def jackknife_replicates(fit: Fit, device: str | None = None) -> Array:
    """Deviations whose squares add up to the delete-a-group jackknife's variance of everything linear in c.

    √((H − 1)/H) (c₋ₕ − mean of the c₋ₕ): with f the values of these coefficients at some point,
    the variance of the field there is Σₕ fₕ² (Quenouille 1956, Tukey 1958; Efron 1982, chapter 3). It assumes parts
    that are independent of each other, and nothing of the errors within them (Künsch 1989).

    They are [K.., H, b..] of the selected terms: zero for a part without observations of a batch member, which does not
    count in its H, and NaN for members that some part's removal leaves undetermined, or that one part alone observed.

    Raises
    ------
    ValueError : there is only one part, or one cannot be spared for any member (`SingularSystemError`).
    """
    c, ndim = leave_out_fits(fit, device), len(fit.space.shape)
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
        scaled = np.where(count > 1, np.sqrt((count - 1) / count), np.nan) * np.where(used, deviation, 0.0)
    return scaled * selection(fit.space, fit.selected, c.ndim)


def cross_validate(fit: Fit, device: str | None = None) -> xr.Dataset:
    """Score the fit without each part on that part (Stone 1974; by groups: Geisser 1975), over ``holder``.

    ``rmse`` is √((s − 2hᵀc + cᵀGc)/Σw) with the sums of the part and the coefficients c of the fit without it, of the
    whole field, whatever terms of it are selected. ``influence`` is the largest change of the field when the part is
    left out, over those Greville points whose knot cell holds observations (Fourier and polynomials: over their
    domain, see `_places`). NaN where the other parts do not determine the fit. Raises as `leave_out_fits` does.
    """
    variable, sums, frame = fit.variable, fit.sums, fit.space.frame
    coords = {"holder": list(fit.statistics.holders), **batch_labels(variable, ("holder", *_SCORES))}
    left_out, rmse = leave_out_fits(fit, device), []
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
    return xr.Dataset(scores, coords, {"penalty": repr(fit.penalty)})


def _influence(fit: Fit, left_out: Array) -> Array:
    """Largest |change| of the field without each part, over the sample of every basis, [H, b..]."""
    space, axes = fit.space, tuple(range(len(fit.space.shape)))
    whole = np.expand_dims(fit.solved.coefficients, len(axes))
    points = _places(space)
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


def _places(space: Space) -> list[Array]:
    """Return the sample of every basis; of global ones a part with both ends where the product has over 100,000 places.

    That of four polynomials has 23 million, which forty holders evaluate for 10 to 50 seconds. Of 4 and 12 holders with
    lines along three coordinates beside trend and season, the influence in the part is 94 to 100 % of that in all.
    """
    points = [f.sample() for f in space.features]
    if math.prod(x.size for x in points) <= MOST:
        return points
    even = [isinstance(f, Global) and f.points is None for f in space.features]
    fewest = math.prod(f.size if e else x.size for f, x, e in zip(space.features, points, even, strict=True))
    each = max((MOST / fewest) ** (1 / max(sum(even), 1)), 2)
    return [
        np.append(x[:-1][: int(each * f.size) - 1], x[-1]) if e else x
        for f, x, e in zip(space.features, points, even, strict=True)
    ]
