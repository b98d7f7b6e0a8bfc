"""The choice of smoothing: one strength of roughness for each B-spline coordinate, from the sums alone."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from xspline.spaces import BSpline, Union
from xspline.sums import Gram, Sums, leave_one_out

from .cholesky import Array, tolerance
from .coarse import coarser
from .criteria import Gcv, Holders, Members, Reml, Score
from .errors import SingularSystemError, nothing_determined
from .newton import Search
from .penalised import Model
from .penalty import AUTOMATIC, Roughness
from .select import select
from .solution import Factorisation

if TYPE_CHECKING:
    from xspline.spaces import Basis, Space

ORDER = 2  # of the derivatives that measure roughness, where the degree allows it
WEAKEST = np.log(1e-10)  # of the start: the penalty is that share of the diagonal of G
LONG = 1e10  # operations of a factorisation, from which a coarser problem gives the start
STIFFEST = 1e4  # Σw times this: the roughest function that a penalty still lets through is that much shrunk


@dataclass(frozen=True, eq=False)
class Smoothing:
    """A choice of smoothing.

    Parameters
    ----------
    penalty : Roughness
        With one strength λ_j for each coordinate that has a B-spline.
    method : str
    score : float
        The score at the choice; of "reml" its negative logarithm, in which a difference of 1 counts.
    gradient : dict of str to float
        Its derivatives by log λ_j.
    at_bounds : dict of str to str
        Coordinates whose strength is as small or as large as makes a difference: "lower" or "upper".
    factorisations : int
        How many it took.
    factorisation : Factorisation
        Of G + Λ, for `solve`.
    converged : bool
        False where the search gave up; the choice is the best that it saw.
    """

    penalty: Roughness
    method: str
    score: float
    gradient: dict[str, float]
    at_bounds: dict[str, str]
    factorisations: int
    factorisation: Factorisation
    converged: bool


def choose(
    sums: Sums, space: Space, method: str, *, solver: str | None = None, parts: Sequence[Sums] = ()
) -> Smoothing:
    """Strengths of roughness, one for each coordinate with a B-spline, that minimise a score of the sums.

    Parameters
    ----------
    sums : Sums
        Batch members share the strengths; their scores add.
    space : Space
    method : {"reml", "gcv", "holders"}
        Restricted likelihood (Wood 2011), generalised cross-validation (Craven and Wahba 1979), or the error of each
        part predicted from the others.
    solver : str, optional
        See `select`.
    parts : sequence of Sums
        The holders' sums for "holders"; together they are `sums`.

    Raises
    ------
    ValueError
        An unknown method; no B-spline, or one of degree 0; no more observations than functions without roughness; one
        holder only.
    SingularSystemError
        Nothing is determined.
    """
    names, order = smoothed(space, method)
    if not sums.has_weight:
        raise nothing_determined(space, np.zeros((*space.shape, 1), dtype=np.bool_))
    model = Model.of(sums, space, names, order, solver)
    _check_count(model, method)
    scores = _scores(model, method, parts)
    start, lower, upper = _box(model)
    try:
        found = Search(scores, lower, upper).run(_start(model, method, parts, start))
    except SingularSystemError as error:
        raise error if method == "holders" else _undetermined(model, method) from error
    value, gradient = found.point.score
    sides = np.where(found.rho - lower < upper - found.rho, "lower", "upper")
    factorisation = found.point.factorisation
    return Smoothing(
        penalty=model.penalty(found.rho),
        method=method,
        score=value,
        gradient=dict(zip(names, gradient.tolist(), strict=True)),
        at_bounds={n: str(side) for n, side, at in zip(names, sides, found.at_bound, strict=True) if at},
        factorisations=scores.factorisations + (method == "holders"),
        factorisation=factorisation,
        converged=found.converged,
    )


def smoothed(space: Space, method: str) -> tuple[tuple[str, ...], int]:
    """Coordinates with a B-spline, and the order of the derivatives that measure their roughness.

    Raises
    ------
    ValueError
        An unknown method, no B-spline, or one of degree 0.
    """
    if method not in AUTOMATIC:
        raise ValueError(
            f"unknown choice of smoothing {method!r}: known are {', '.join(map(repr, AUTOMATIC))}"
        )
    degrees = {name: _degree(basis) for name, (_, basis) in space.axes.items()}
    known = {name: degree for name, degree in degrees.items() if degree is not None}
    if not known:
        raise ValueError(
            f"penalty={method!r} smooths coordinates with a B-spline, and none of {', '.join(space.names)} has one; "
            "pass penalty=0 for least squares, or a number for a ridge"
        )
    steps = next((name for name, degree in known.items() if degree == 0), None)
    if steps is not None:
        raise ValueError(
            f"penalty={method!r}: the B-spline of {steps!r} has degree 0 and no roughness to smooth; use degree 1 or "
            "more, or pass a number for a ridge"
        )
    return tuple(known), min(ORDER, *known.values())


def _degree(basis: Basis) -> int | None:
    """The lowest degree of the B-splines of a basis."""
    terms = basis.terms if isinstance(basis, Union) else (basis,)
    return min((term.degree for term in terms if isinstance(term, BSpline)), default=None)


def _check_count(model: Model, method: str) -> None:
    most, null = int(model.sums.count.max(initial=0)), model.spectrum.null
    if 0 < most <= null:
        raise ValueError(
            f"penalty={method!r} needs more observations than the {null} functions that have no roughness, and "
            f"there are {most}; use fewer functions without a B-spline, or pass a number for a ridge (penalty=1e-3)"
        )


def _undetermined(model: Model, method: str) -> SingularSystemError:
    return SingularSystemError(
        f"penalty={method!r} smooths {', '.join(model.names)} and leaves {model.spectrum.null} functions that have no "
        f"roughness to the {int(model.sums.count.max())} observations, which lie in too few places to determine them; "
        "use fewer functions without a B-spline, or pass a number for a ridge (penalty=1e-3)"
    )


class Scores:
    """A score as a function of ρ, of the same batch members wherever it is asked for; counts factorisations."""

    def __init__(self, score: Callable[[Array, Members | None], Score], cost: int = 1) -> None:
        self.score, self.cost, self.factorisations = score, cost, 0
        self.members: Members | None = None

    def __call__(self, rho: Array) -> Score:
        """The score at ρ."""
        self.factorisations += self.cost
        found = self.score(rho, self.members)
        self.members = found.members
        return found


def _scores(model: Model, method: str, parts: Sequence[Sums]) -> Scores:
    if method != "holders":
        return Scores(functools.partial(Reml if method == "reml" else Gcv, model))
    seen = [part for part in parts if part.has_weight]
    if len(seen) < 2:
        raise ValueError(
            "penalty='holders' predicts each part from the others and needs two or more with observations, not "
            f"{len(seen)}; pass holder=labels to make one part for each label, or penalty='reml'"
        )
    frame = model.space.frame
    rests = [
        Model.of(rest, model.space, model.names, model.order, model.solver)
        for rest in leave_one_out(seen, frame)
    ]
    pairs = [
        (rest, part.recentred(rest.sums.reference, frame)) for rest, part in zip(rests, seen, strict=True)
    ]
    return Scores(functools.partial(Holders, model, pairs), len(pairs))


def _start(model: Model, method: str, parts: Sequence[Sums], start: Array) -> Array:
    """Where the search starts: where a coarser problem ends, if a factorisation of this one takes long."""
    sums, space = model.sums, model.space
    cost = select(sums.gram, model.penalty(start).gram(space), space.frame, model.solver).operations
    found = coarser(sums, space) if cost > LONG else None
    if found is None:
        return start
    smaller = [
        one[0] for one in (coarser(part, space) for part in parts if part.has_weight) if one is not None
    ]
    chosen = choose(*found, method, parts=smaller).penalty.strengths(found[1])
    return np.log([chosen[name] for name in model.names])


def _box(model: Model) -> tuple[Array, Array, Array]:
    """Where the search starts, and the bounds of ρ, [J] each.

    At the start penalty and data weigh the same on the diagonal of A. At the upper bound the roughest function that a
    penalty lets through is shrunk by `STIFFEST`, were the observations spread evenly: G = Σw ⊗M; but no further than
    where rounding errors of λS reach the constant, which only G determines.
    """
    sums, space, frame = model.sums, model.space, model.space.frame
    seen = np.broadcast_to(sums.weight > 0, np.broadcast_shapes(sums.weight.shape, sums.gram.batch))
    axes = tuple(range(len(frame.sizes)))
    data = float(np.mean(np.broadcast_to(sums.gram.diagonal(frame).sum(axis=axes), seen.shape)[seen]))
    weight = float(np.mean(np.broadcast_to(sums.weight, seen.shape)[seen]))
    grams = [Gram((term,)) for term in model.penalty(np.zeros(len(model.names))).gram(space).terms]
    rough = np.array([gram.diagonal(frame).sum() for gram in grams])
    start = np.log(data / rough)
    stiffest = np.log(STIFFEST * weight / model.spectrum.softest)
    wall = np.log(weight / (16 * tolerance(space.size) * rough))
    return start, start + WEAKEST, np.maximum(np.minimum(stiffest, wall), start + 1.0)
