"""The choice of smoothing: one strength of roughness for each B-spline coordinate, from the sums alone."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from xspline.solve.direct.cholesky import Array, tolerance
from xspline.solve.errors import SingularSystemError, TooLargeError, nothing_determined, warn
from xspline.solve.multigrid.coarse import coarser
from xspline.solve.parallel import Resources, single_threaded
from xspline.solve.penalty import AUTOMATIC, Penalty, Roughness
from xspline.solve.select import Choice, iterating, select
from xspline.solve.smoothing.criteria import Gcv, Holders, Members, Reml, Score
from xspline.solve.smoothing.fit import Model
from xspline.solve.smoothing.newton import NEAR, Minimum, Search
from xspline.solve.smoothing.probes import Estimated, Slopes
from xspline.solve.system import Factorisation
from xspline.spaces import BSpline, Union
from xspline.sums import Gram, Sums, leave_one_out

if TYPE_CHECKING:
    from xspline.spaces import Basis, Space

ORDER = 2  # of the derivatives that measure roughness, where the degree allows it
WEAKEST = np.log(1e-10)  # of the start: the penalty is that share of the diagonal of G
LONG = 1e9  # operations of a factorisation, from which coarser problems give the start
ROUGHLY = 0.1  # how well they are solved
COSTLY, CLOSE = (
    3e10,
    0.02,
)  # operations from which a step of 2 % in λ ends the search: what remains is its square
ESTIMATED = 0.005  # the step that ends a search by estimates, which scatter more
LONGEST = 2e12  # operations of a factorisation, a minute, from which iterations estimate REML
ENOUGH = 3e11  # of one of a coarser problem that may still give their start
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
        How many it took, without the smaller ones of coarser problems.
    factorisation : Factorisation
        Of G + Λ, for `solve`.
    converged : bool
        False where the search gave up; the choice is the best that it saw.
    error : dict of str to float
        Where the choice rests on random probes of an iterative solver, the standard errors that these leave in log λ_j;
        then the score is NaN and the gradient an estimate. Empty where it is exact.
    """

    penalty: Roughness
    method: str
    score: float
    gradient: dict[str, float]
    at_bounds: dict[str, str]
    factorisations: int
    factorisation: Factorisation
    converged: bool
    error: dict[str, float] = field(default_factory=dict)


@single_threaded
def choose(
    sums: Sums,
    space: Space,
    method: str,
    *,
    solver: str | None = None,
    parts: Sequence[Sums] = (),
    resources: Resources | None = None,
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
    resources : Resources, optional
        Cores, memory and GPU of the solves, see `solve`.

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
    model = Model.of(sums, space, names, order, solver, resources)
    _check_count(model, method)
    problem = Problem(model, method, _seen(parts) if method == "holders" else ())
    try:
        if problem.choice.memory_refusal:
            warn(
                f"penalty={method!r} is estimated from random probes, not computed: {problem.choice.memory_refusal}. "
                "The strengths have the standard errors that `error` says; for exact ones use fewer coefficients along "
                "some coordinate, or a machine with more memory"
            )
        found, factorisations = problem.search(problem.start(), problem.near)
    except SingularSystemError as error:
        raise error if method == "holders" else _undetermined(model, method) from error
    (value, gradient), point = found.point.score, found.point
    errors = point.error(~found.at_bound).tolist() if isinstance(point, Estimated) else []
    _, lower, upper = problem.box
    sides = np.where(found.rho - lower < upper - found.rho, "lower", "upper")
    return Smoothing(
        penalty=model.penalty(found.rho),
        method=method,
        score=value,
        gradient=dict(zip(names, gradient.tolist(), strict=True)),
        at_bounds={n: str(side) for n, side, at in zip(names, sides, found.at_bound, strict=True) if at},
        factorisations=factorisations + (method == "holders"),
        factorisation=found.point.factorisation,
        converged=found.converged,
        error=dict(zip(names, errors, strict=False)),
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


def _seen(parts: Sequence[Sums]) -> list[Sums]:
    seen = [part for part in parts if part.has_weight]
    if len(seen) < 2:
        raise ValueError(
            "penalty='holders' predicts each part from the others and needs two or more with observations, not "
            f"{len(seen)}; pass holder=labels to make one part for each label, or penalty='reml'"
        )
    return seen


def choice_for(
    gram: Gram,
    asked: Penalty | str,
    space: Space,
    solver: str | None = None,
    resources: Resources | None = None,
) -> Choice:
    """The solver of a fit with a penalty, or with one whose strengths a criterion chooses.

    Parameters
    ----------
    gram : Gram
    asked : Penalty or {"reml", "gcv", "holders"}
    space : Space
    solver : str, optional
    resources : Resources, optional
        See `select`.
    """
    if isinstance(asked, Penalty):
        return select(gram, asked.gram(space), space.frame, solver, resources=resources)
    names, order = smoothed(space, asked)
    penalty = Roughness(dict.fromkeys(names, 1.0), order).gram(space)
    return _solver_of(asked, gram, penalty, space, solver, resources)


def _solver_of(
    method: str, gram: Gram, penalty: Gram, space: Space, solver: str | None, resources: Resources | None
) -> Choice:
    """One that knows the inverse; for REML one that iterates, where a factorisation would take minutes."""
    rough = iterating(gram, penalty, space.frame, solver, resources) if method == "reml" else None
    try:
        exact = select(gram, penalty, space.frame, solver, exact=True, resources=resources)
    except TooLargeError as error:
        if rough is None:
            raise
        return replace(rough, memory_refusal=error.cause)
    except ValueError:
        if rough is None:
            raise
        return rough
    return exact if rough is None or exact.operations <= LONGEST else rough


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


@dataclass(frozen=True, eq=False)
class Problem:
    """What is minimised, in one space.

    Parameters
    ----------
    model : Model
    method : str
    parts : sequence of Sums
        The holders', for "holders".
    """

    model: Model
    method: str
    parts: Sequence[Sums]

    def search(self, start: Array, near: float = NEAR) -> tuple[Minimum[Score], int]:
        """The minimum, and how many factorisations it took."""
        _, lower, upper = self.box
        scores = self.scores()
        kind: type[Search[Score]] = Slopes if self.estimated else Search
        return kind(scores, lower, upper, near).run(start), scores.factorisations

    def scores(self) -> Scores:
        """The score as a function of ρ."""
        if self.estimated:
            return Scores(functools.partial(Estimated, self.model))
        if self.method != "holders":
            return Scores(functools.partial(Reml if self.method == "reml" else Gcv, self.model))
        model, frame = self.model, self.model.space.frame
        rests = [model.about(rest) for rest in leave_one_out(self.parts, frame)]
        pairs = [(r, p.recentred(r.sums.reference, frame)) for r, p in zip(rests, self.parts, strict=True)]
        return Scores(functools.partial(Holders, model, pairs), len(pairs))

    def start(self) -> Array:
        """Where the search starts: where those of coarser problems end, if a factorisation of this one takes long.

        Coordinates are refined one at a time, first the one that is least smooth: its strength is the most wrong where
        knots are missing, and all problems but the last remain much smaller than this one.
        """
        problem, missing = self, dict.fromkeys(self.model.names, 0)
        while problem.operations > LONG and (coarse := problem.coarser(self.model.names)) is not None:
            sizes = zip(
                self.model.space.names, problem.model.space.shape, coarse.model.space.shape, strict=True
            )
            missing = {n: missing[n] + (before != after) for n, before, after in sizes if n in missing}
            problem = coarse
        rho = problem.box[0]
        while any(missing.values()) and not (self.estimated and problem.operations > ENOUGH):
            rho = problem.search(rho, ROUGHLY)[0].rho
            smoothness = dict(zip(self.model.names, rho - problem.box[0], strict=True))
            missing[min((n for n in missing if missing[n]), key=lambda n: smoothness[n])] -= 1
            problem = self.without(missing)
        return rho

    def coarser(self, names: Collection[str]) -> Problem | None:
        """With every second breakpoint removed along some coordinates; None where none has one to spare."""
        space = self.model.space
        found = coarser(self.model.sums, space, names)
        if found is None:
            return None
        parts = [one[0] for one in (coarser(part, space, names) for part in self.parts) if one is not None]
        solver = None if self.estimated else self.model.solver
        return replace(
            self, model=replace(self.model, sums=found[0], space=found[1], solver=solver), parts=parts
        )

    def without(self, missing: Mapping[str, int]) -> Problem:
        """With breakpoints removed so many times along each coordinate."""
        problem = self
        for time in range(max(missing.values())):
            problem = problem.coarser([n for n, times in missing.items() if times > time]) or problem
        return problem

    @property
    def estimated(self) -> bool:
        """Whether the score is estimated on top of iterations."""
        return not self.choice.exact

    @property
    def operations(self) -> float:
        """Of a factorisation."""
        return self.choice.operations if self.choice.exact else LONGEST

    @cached_property
    def choice(self) -> Choice:
        """The solver of each score."""
        model, penalty = self.model, self.model.penalty(self.box[0]).gram(self.model.space)
        return _solver_of(self.method, model.sums.gram, penalty, model.space, model.solver, model.resources)

    @property
    def near(self) -> float:
        """A step that ends the search."""
        if self.estimated:
            return ESTIMATED
        return NEAR if self.operations < COSTLY else CLOSE

    @cached_property
    def box(self) -> tuple[Array, Array, Array]:
        """A place to start at, and the bounds of ρ, [J] each.

        At the start penalty and data weigh the same on the diagonal of A. At the upper bound the roughest function
        that a penalty lets through is shrunk by `STIFFEST`, were the observations spread evenly: G = Σw ⊗M; but no
        further than where rounding errors of λS reach the constant, which only G determines.
        """
        model, space, frame = self.model, self.model.space, self.model.space.frame
        sums, axes = model.sums, tuple(range(len(frame.sizes)))
        data, weight = np.broadcast_arrays(sums.gram.diagonal(frame).sum(axis=axes), sums.weight)
        typical, total = float(np.mean(data[weight > 0])), float(np.mean(weight[weight > 0]))
        grams = [Gram((term,)) for term in model.penalty(np.zeros(len(model.names))).gram(space).terms]
        rough = np.array([gram.diagonal(frame).sum() for gram in grams])
        start = np.log(typical / rough)
        stiffest = np.log(STIFFEST * total / model.spectrum.softest)
        wall = np.log(total / (16 * tolerance(space.size) * rough))
        return start, start + WEAKEST, np.maximum(np.minimum(stiffest, wall), start + 1.0)
