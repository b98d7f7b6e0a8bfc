"""The choice of smoothing: one strength of roughness for each B-spline coordinate, from the sums alone."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from xspline.solve.direct.cholesky import Array, tolerance
from xspline.solve.errors import SingularSystemError, TooLargeError, nothing_determined, warn
from xspline.solve.multigrid.spaces import coarser
from xspline.solve.parallel import Resources, on_cores, single_threaded_blas
from xspline.solve.penalty import AUTOMATIC, Penalty, Roughness, spline_degrees
from xspline.solve.select import ITERATIVE, Choice, candidates
from xspline.solve.smoothing.criteria import Gcv, Holders, Mask, OfFit, Reml, Score
from xspline.solve.smoothing.fit import Model, PenalisedFit, centred
from xspline.solve.smoothing.newton import NEAR, SLACK, State, minimise
from xspline.solve.smoothing.probes import Estimated
from xspline.solve.smoothing.progress import Progress
from xspline.solve.smoothing.resolution import Resolution, resolution
from xspline.solve.structure import distinct
from xspline.solve.system import Factorisation
from xspline.spaces import Space
from xspline.sums import Gram, Sums, leave_one_out

ORDER = 2  # of the derivatives that measure roughness, where the degree allows it
WEAKEST = np.log(1e-10)  # of the start: the penalty is that share of the diagonal of G
ROUGHLY = 0.1  # the step in log λ that ends a search of a coarser problem
COARSELY = 3 * ROUGHLY  # the same where that step is taken without another look
CLOSE = 0.02  # the step in log λ that ends a search of a large problem: what remains is of the order of its square
ESTIMATED = 0.005  # the step that ends a search by estimates, which scatter more
STIFFEST = 1e4  # Σw times this: the roughest function that a penalty still lets through is that much shrunk
APART = 1.0  # in log λ: a start this near to a minimum leads there
MAX_FACTORISATIONS = 81  # for a look at the score on a lattice within the bounds,
MAX_SIDE, MIN_SIDE = 24, 3  # which has so many places along one λ
SOFTER = 5.0, 10.0  # in log λ: below its usual start
MAX_MINIMA = 3  # of these from which searches start


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
    resolution : Resolution
        Whether the space is fine enough for what the data show.
    """

    penalty: Roughness
    method: str
    score: float
    gradient: dict[str, float]
    at_bounds: dict[str, str]
    factorisations: int
    factorisation: Factorisation
    converged: bool
    error: dict[str, float]
    resolution: Resolution


@single_threaded_blas()
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
        See `candidates`.
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
    resources = resources or Resources.here()
    model = Model(space, centred(sums, space), names, order, solver, resources)
    observations, null = model.observations, model.spectrum.null
    if 0 < observations <= null:
        raise ValueError(
            f"penalty={method!r} needs more observations than the {null} functions that have no roughness, and "
            f"there are {observations}; use fewer functions without a B-spline, or pass a number for a ridge "
            "(penalty=1e-3)"
        )
    observed = [part for part in parts if part.has_weight] if method == "holders" else []
    if method == "holders" and len(observed) < 2:
        raise ValueError(
            "penalty='holders' predicts each part from the others and needs two or more with observations, not "
            f"{len(observed)}; pass holder=labels to make one part for each label, or penalty='reml'"
        )
    problem = Problem(model, method, observed)
    try:
        if problem.choice.memory_refusal:
            warn(
                f"penalty={method!r} is estimated from random probes, not computed: {problem.choice.memory_refusal}. "
                "The strengths have the standard errors that `error` says; for exact ones use fewer coefficients along "
                "some coordinate, or a machine with more memory"
            )
        near = NEAR if problem.operations < resources.costs.close_search_flops else CLOSE
        start, explored = problem.start()
        near = ESTIMATED if problem.estimated else near
        minimum, factorisations = problem.search(start, near)
        minimum, more = problem.softer(minimum, near)
    except SingularSystemError as error:
        if method == "holders":
            raise
        raise SingularSystemError(
            f"penalty={method!r} smooths {', '.join(names)} and leaves {null} functions that have no "
            f"roughness to the {observations} observations, which lie in too few places to determine them; "
            "use fewer functions without a B-spline, or pass a number for a ridge (penalty=1e-3)"
        ) from error
    rho, point, at_bound, bounds = minimum.rho, minimum.point, minimum.at_bound, problem.bounds
    value, gradient = point.score
    fit = point.fit if isinstance(point, OfFit) else PenalisedFit(model, rho)
    factorisation, errors = fit.factorisation, []
    if isinstance(point, Estimated):  # its solver is chosen for its structure, not by name
        factorisation, errors = replace(factorisation, choice=problem.choice), point.error(~at_bound).tolist()
    sides = np.where(rho - bounds.lower < bounds.upper - rho, "lower", "upper")
    return Smoothing(
        penalty=model.penalty(rho),
        method=method,
        score=value,
        gradient=dict(zip(names, gradient.tolist(), strict=True)),
        at_bounds={name: str(side) for name, side, at in zip(names, sides, at_bound, strict=True) if at},
        factorisations=factorisations + explored + more + (method == "holders"),
        factorisation=factorisation,
        converged=minimum.converged,
        error=dict(zip(names, errors, strict=False)),
        resolution=resolution(fit, point),
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
    lowest = spline_degrees(space)
    if not lowest:
        raise ValueError(
            f"penalty={method!r} smooths coordinates with a B-spline, and none of {', '.join(space.names)} has one; "
            "pass penalty=0 for least squares, or a number for a ridge"
        )
    steps = next((name for name, degree in lowest.items() if degree == 0), None)
    if steps is not None:
        raise ValueError(
            f"penalty={method!r}: the B-spline of {steps!r} has degree 0 and no roughness to smooth; use degree 1 or "
            "more, or pass a number for a ridge"
        )
    return tuple(lowest), min(ORDER, *lowest.values())


def choice_for(
    gram: Gram,
    penalty: Penalty | str,
    space: Space,
    solver: str | None = None,
    resources: Resources | None = None,
) -> Choice:
    """The solver of a fit with a penalty, or with one whose strengths a criterion chooses.

    Parameters
    ----------
    gram : Gram
    penalty : Penalty or {"reml", "gcv", "holders"}
    space : Space
    solver : str, optional
    resources : Resources, optional
        See `candidates`.
    """
    if isinstance(penalty, Penalty):
        return candidates(gram, penalty.gram(space), space.frame, solver, resources=resources)[0]
    # One that knows the inverse; for REML one that iterates, where a factorisation would take minutes.
    names, order = smoothed(space, penalty)
    matrix, frame = Roughness(dict.fromkeys(names, 1.0), order).gram(space), space.frame
    resources = resources or Resources.here()
    single = penalty == "reml" and int(distinct(gram)[1].max(initial=0)) == 0

    def iterating(name: str | None) -> Choice | None:
        """The first that does, if it is worth it or asked for, and there is one system only."""
        with suppress(ValueError):
            proposed = candidates(gram, matrix, frame, name, resources=resources) if single else []
            held = resources.costs.searched_solvers
            return next((replace(c, nbytes=held * c.nbytes) for c in proposed if not c.exact), None)
        return None

    iterative = iterating(solver)
    try:
        exact = candidates(gram, matrix, frame, solver, exact=True, resources=resources)[0]
    except ValueError as error:
        if iterative is None and solver is None:  # one solve would fit in memory, the search does not
            iterative = iterating(ITERATIVE)
        if iterative is None:
            raise
        refusal = error.cause if isinstance(error, TooLargeError) else ""
        return replace(iterative, memory_refusal=refusal, searched=True)
    exact = replace(exact, searched=True)
    if exact.operations <= resources.costs.max_exact_reml_flops:
        return exact
    if iterative is None and solver is None:
        # One solve is faster by a factorisation; a search may be faster by iterations.
        other = iterating(ITERATIVE)
        choices = [exact] if other is None else [exact, replace(other, searched=True)]
        return min(choices, key=lambda c: c.seconds(frame, 1, resources.costs))
    return exact if iterative is None else replace(iterative, searched=True)


class Bounds(NamedTuple):
    """A place to start at, and the bounds of ρ, [J] each."""

    start: Array
    lower: Array
    upper: Array


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

    def search(self, start: Array, near: float = NEAR, *, unseen: bool = False) -> tuple[State[Score], int]:
        """The minimum, and how many factorisations it took; see `minimise`."""
        with on_cores(self.model.resources.cores), Progress(self.model.names) as progress:
            score, (_, lower, upper) = _Scores(self, progress), self.bounds
            return minimise(score, start, lower, upper, near, unseen=unseen), score.factorisations

    def explored(self) -> tuple[Array, int]:
        """A start in the valley of the lowest minimum, and how many factorisations that took.

        A likelihood has one minimum, as a rule. Scores of predictions may have several, with the nearest one at a
        bound and much worse than that of REML: searches from there and from the lowest places of a lattice compete.
        """
        start, lower, upper = self.bounds
        if self.method == "reml":
            return start, 0
        ends: list[tuple[float, Array]] = []  # of each search; without its factorisations
        with on_cores(self.model.resources.cores), Progress(self.model.names) as progress:
            score = _Scores(self, progress)
            for candidate, apart in itertools.chain([(start, start)], self._starts(score)):
                if any((np.abs(rho - candidate) < apart).all() for _, rho in ends):
                    continue
                try:
                    ends.append(_end(minimise(score, candidate, lower, upper, ROUGHLY)))
                except SingularSystemError:
                    if not ends:
                        raise
        lowest = min(value for value, _ in ends)
        best = next(rho for value, rho in ends if value <= lowest + SLACK)
        return best, score.factorisations

    def softer(self, minimum: State[Score], near: float) -> tuple[State[Score], int]:
        """A lower minimum of REML than one on an upper bound, if there is one and a look is quick; factorisations.

        Of waves that the knots just hold the likelihood has a second minimum: a straight line, and everything is noise.
        """
        stiff, looks = minimum.at_bound & (minimum.rho >= self.bounds.upper), 0
        quick = self.operations < self.model.resources.costs.lattice_flops
        if self.method == "reml" and not self.estimated and quick and stiff.any():
            for looks, step in enumerate(SOFTER, 1):
                rho = np.where(stiff, self.bounds.start - step, minimum.rho)
                with suppress(SingularSystemError):
                    value = self.score(rho, minimum.point.included).value
                    if value is not None and value < (minimum.point.value or 0.0) - SLACK:
                        softer, more = self.search(rho, near)
                        return softer, looks + more
        return minimum, looks

    def _starts(self, score: _Scores) -> Iterator[tuple[Array, Array]]:
        """What REML would choose, then the lowest places of a lattice within the bounds if that is quick.

        With how far away a minimum has to be, [J], for a search from there to be worth it.
        """
        (start, lower, upper), likelihood = self.bounds, replace(self, method="reml", parts=())
        if not likelihood.estimated:
            with suppress(SingularSystemError):
                told = _Scores(likelihood, score.progress)
                likely = minimise(told, start, lower, upper, ROUGHLY).rho
                score.factorisations += told.factorisations
                yield likely, np.full(len(start), APART)
        each = max(len(self.parts), 1)  # factorisations of a score
        most = min(MAX_FACTORISATIONS, self.model.resources.costs.lattice_flops / self.operations) / each
        side = min(int(most ** (1 / len(start)) + 1e-9), MAX_SIDE)
        if side < MIN_SIDE:
            return
        places, values = np.linspace(lower, upper, side), np.full((side,) * len(start), np.inf)
        for index in np.ndindex(values.shape):
            with suppress(SingularSystemError):
                values[index] = score(places[index, range(len(start))]).value
        padded, is_low = np.pad(values, 1, constant_values=np.inf), np.isfinite(values)
        for axis, step in itertools.product(range(values.ndim), (-1, 1)):
            is_low &= values <= np.roll(padded, step, axis)[(slice(1, -1),) * values.ndim]
        low = np.argwhere(is_low)
        for index in low[np.argsort(values[is_low])][:MAX_MINIMA]:
            yield places[index, range(len(start))], np.maximum(places[1] - places[0], APART)

    def score(self, rho: Array, included: Mask | None = None) -> Score:
        """The score at ρ, of the batch members that counted elsewhere."""
        if self.estimated:
            return Estimated(replace(self.model, solver=self.choice.name), rho, included)
        if self.method == "holders":
            return Holders(self.model, self._left_out, rho, included)
        return (Reml if self.method == "reml" else Gcv)(self.model, rho, included)

    @cached_property
    def _left_out(self) -> list[tuple[Model, Sums]]:
        """The model without each part, and that part about the same reference."""
        model, frame = self.model, self.model.space.frame
        rests = [replace(model, sums=centred(x, model.space)) for x in leave_one_out(self.parts, frame)]
        return [(r, p.recentred(r.sums.reference, frame)) for r, p in zip(rests, self.parts, strict=True)]

    def start(self) -> tuple[Array, int]:
        """Where the search starts: where those of coarser problems end, if a factorisation of this one takes long.

        With the factorisations of this problem that it took to find out.

        Coordinates are refined one at a time, first the one that is least smooth: its strength is the most wrong where
        knots are missing. Problems that would cost a good part of this one are left out.
        """
        names, problem, costs = self.model.names, self, self.model.resources.costs
        halvings = dict.fromkeys(self.model.space.names, 0)  # how often every second knot has been removed
        while (
            problem.operations > costs.coarse_start_flops and (coarse := problem.coarser(names)) is not None
        ):
            shapes = problem.model.space.shape, coarse.model.space.shape
            for name, before, after in zip(halvings, *shapes, strict=True):
                halvings[name] += before != after
            problem = coarse
        rho, factorisations = problem.explored()
        factorisations, searched = factorisations if problem is self else 0, self.estimated
        most = costs.max_coarse_flops if self.estimated else costs.coarse_share * self.operations
        while any(halvings.values()) and not (searched and problem.operations > most):
            rho, searched = problem.search(rho, COARSELY, unseen=True)[0].rho, True
            smoothness = dict(zip(names, rho - problem.bounds.start, strict=True))
            halvings[min((n for n in names if halvings[n]), key=lambda n: smoothness[n])] -= 1
            problem = self
            for time in range(max(halvings.values())):
                problem = problem.coarser([n for n, times in halvings.items() if times > time]) or problem
        return rho, factorisations

    def coarser(self, names: Collection[str]) -> Problem | None:
        """With every second breakpoint removed along some coordinates; None where none has one to spare."""
        space = self.model.space
        coarse = coarser(self.model.sums, space, names)
        if coarse is None:
            return None
        solver = None if self.estimated else self.model.solver
        model = replace(self.model, sums=coarse[0], space=coarse[1], solver=solver)
        parts = (coarser(part, space, names) for part in self.parts)
        return replace(self, model=model, parts=[part[0] for part in parts if part is not None])

    @property
    def estimated(self) -> bool:
        """Whether the score is estimated on top of iterations."""
        return not self.choice.exact

    @property
    def operations(self) -> float:
        """Of a factorisation."""
        return (
            self.choice.operations if self.choice.exact else self.model.resources.costs.max_exact_reml_flops
        )

    @cached_property
    def choice(self) -> Choice:
        """The solver of each score."""
        model = self.model
        return choice_for(model.sums.gram, self.method, model.space, model.solver, model.resources)

    @cached_property
    def bounds(self) -> Bounds:
        """A place to start at, and bounds beyond which a strength makes no difference.

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
        positive = (axis.values[axis.values > 0] for axis in model.spectrum.axes.values())
        softest = [values.min() if len(values) else 1.0 for values in positive]
        stiffest = np.log(STIFFEST * total / np.array(softest))
        wall = np.log(total / (16 * tolerance(space.size) * rough))
        return Bounds(start, start + WEAKEST, np.maximum(np.minimum(stiffest, wall), start + 1.0))


def _end(state: State[Score]) -> tuple[float, Array]:
    """The score at the end of a search, and where that is."""
    return float(state.point.value or 0.0), state.rho


class _Scores:
    """The scores of a problem, of the same batch members everywhere; counts them and tells the progress.

    Parameters
    ----------
    problem : Problem
    progress : Progress
    """

    def __init__(self, problem: Problem, progress: Progress) -> None:
        self.problem, self.progress = problem, progress
        self.factorisations = 0
        self._included: Mask | None = None

    def __call__(self, rho: Array) -> Score:
        self.factorisations += max(len(self.problem.parts), 1)
        point = self.problem.score(rho, self._included)
        self._included = point.included
        self.progress.step(self.problem.method, rho, point.value)
        return point
