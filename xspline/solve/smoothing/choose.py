"""The choice of smoothing: one strength of roughness for each B-spline coordinate, from the sums alone."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from xspline.solve.direct.cholesky import Array
from xspline.solve.errors import ConvergenceError, SingularSystemError, nothing_determined, warn
from xspline.solve.families.base import Bounds
from xspline.solve.families.orders import SingleOrder, several_orders, smoothed
from xspline.solve.multigrid.spaces import coarser
from xspline.solve.parallel import Resources, on_cores, single_threaded_blas
from xspline.solve.penalty import Penalty, criterion_of
from xspline.solve.select import NEARLY_SEPARABLE, Choice
from xspline.solve.smoothing.criteria import Gcv, Holders, Logarithm, Mask, NearReml, OfFit, Reml, Score
from xspline.solve.smoothing.family import family_for, solver_for
from xspline.solve.smoothing.fit import Model, PenalisedFit, centred, observed_parts
from xspline.solve.smoothing.newton import SLACK, UNTIL, State, Until, lowest_places, minimise
from xspline.solve.smoothing.probes import Estimated
from xspline.solve.smoothing.progress import Progress
from xspline.solve.smoothing.resolution import Resolution, raised_for_gaps, resolution
from xspline.solve.system import Factorisation
from xspline.spaces import Space
from xspline.sums import Sums, leave_one_out
from xspline.sums.integrals import with_events

ROUGHLY = 0.1  # the step in log λ that ends a search of a coarser problem
COARSELY = 3 * ROUGHLY  # the same where that step is taken without another look
CLOSE = 0.02  # the step in log λ that ends a search of a large problem: what remains is of the order of its square
KNOWN_STEPS = 3  # from strengths that are about known; one where each takes seconds
ESTIMATED = 0.005  # the step that ends a search by estimates, which scatter more
RAISED = np.log(1e-4)  # of its usual start: what a coarser problem found at its lower bound
APART = 1.0  # in log λ: a start this near to a minimum leads there
MAX_FACTORISATIONS = 81  # for a look at the score on a lattice within the bounds,
ROUNDS = 2  # of looks at what traces are off by where G is nearly a product, and searches on from there
MAX_SIDE, MIN_SIDE = 24, 3  # which has so many places along one λ
SOFTER = 5.0, 10.0  # in log λ: below its usual start
ASIDE = -3.0  # in log m_j: what the strengths along one coordinate are lowered by for another start


@dataclass(frozen=True, eq=False)
class Smoothing:
    """A choice of smoothing.

    Parameters
    ----------
    penalty : Penalty
        With its strengths.
    method : str
    score : float
        The score at the choice; of "reml" its negative logarithm, in which a difference of 1 counts, or NaN where its
        traces are estimated.
    comparable : float
        Of "reml" the score as it compares penalties of different orders, see `Reml.comparable`; else NaN.
    gradient : dict of str to float
        Its derivatives by the logarithms of what was chosen, see `Family`.
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
    gap_error : float
        0, or what `raised_for_gaps` has mended; then the gradient is not zero.
    covariance : ndarray, [T, T], or None
        Of the logarithms of the terms' strengths given the data; None where the score is no likelihood.
    """

    penalty: Penalty
    method: str
    score: float
    comparable: float
    gradient: dict[str, float]
    at_bounds: dict[str, str]
    factorisations: int
    factorisation: Factorisation
    converged: bool
    error: dict[str, float]
    resolution: Resolution
    gap_error: float
    covariance: Array | None


@single_threaded_blas()
def choose(
    sums: Sums,
    space: Space,
    requested: str | Penalty,
    *,
    solver: str | None = None,
    parts: Sequence[Sums] = (),
    resources: Resources | None = None,
    start: Array | None = None,
) -> Smoothing:
    """The penalty, of a family for all coordinates with a B-spline, that minimises a score of the sums.

    Parameters
    ----------
    sums : Sums
        Batch members share the strengths; their scores add.
    space : Space
    requested : {"reml", "gcv", "holders"} or Penalty
        Restricted likelihood (Wood 2011), generalised cross-validation (Craven and Wahba 1979), or the error of each
        part predicted from the others; a penalty that leaves its strengths to one of them. See `family_for`.
    solver : str, optional
        See `candidates`.
    parts : sequence of Sums
        The holders' sums for "holders"; together they are `sums`.
    resources : Resources, optional
        Cores, memory and GPU of the solves, see `solve`.
    start : ndarray, optional
        Where the search starts, as logarithms of what the penalty is known by (see `Family`); of another number it says
        nothing here. It was found in a coarser space: a large problem is searched from there until that is enough.

    Raises
    ------
    ValueError
        An unknown method; no B-spline, or one of degree 0; no more observations than functions without roughness; one
        holder only.
    SingularSystemError
        Nothing is determined.
    """
    resources = resources or Resources.here()
    try:
        return _chosen(sums, space, requested, solver, parts, resources, start)
    except ConvergenceError:  # of data further from a product than they seem
        if requested != "reml" or solver or not with_events(space):
            raise
        return _chosen(sums, space, requested, solver, parts, resources, start, modes=False)


def _chosen(
    sums: Sums,
    space: Space,
    requested: str | Penalty,
    solver: str | None,
    parts: Sequence[Sums],
    resources: Resources,
    start: Array | None,
    *,
    modes: bool = True,
) -> Smoothing:
    """`choose`; with `modes` as `family_for` has it."""
    method = criterion_of(requested) or ""
    names = smoothed(space, method)
    if not sums.has_weight:
        raise nothing_determined(space, np.zeros((*space.shape, 1), dtype=np.bool_))
    family = family_for(sums.gram, requested, space, solver, resources, modes=modes)
    model = Model(space, centred(sums, space), family, solver, resources)
    if requested == "reml" and isinstance(family, SingleOrder) and several_orders(space, names) is not None:
        model, known = Problem(model, method, ()).with_likelier_order()
        family, start = model.family, None if start is None else known
    observed = observed_parts(model, method, parts)
    problem = Problem(model, method, observed)
    try:
        if problem.choice.memory_refusal:
            warn(
                f"penalty={method!r} is estimated from random probes, not computed: {problem.choice.memory_refusal}. "
                "The strengths have the standard errors that `error` says; for exact ones use fewer coefficients along "
                "some coordinate, or a machine with more memory"
            )
        explored, until = 0, problem.until
        if start is None or start.shape != problem.bounds.start.shape:
            start, explored = problem.start()
        elif problem.operations >= resources.costs.coarse_start_flops and not problem.estimated:
            until = problem.until_known
        minimum, factorisations = problem.search(start, until)
        minimum, more = problem.softer(minimum)
        minimum, gaps, raised = problem.determined(minimum)
    except SingularSystemError as error:
        if method == "holders":
            raise
        raise SingularSystemError(
            f"penalty={method!r} smooths {', '.join(names)} and leaves {family.null} functions that have no "
            f"roughness to the {model.observations} observations, which lie in too few places to determine them; "
            "use fewer functions without a B-spline, or pass a number for a ridge (penalty=1e-3)"
        ) from error
    rho, point, at_bound, bounds = minimum.rho, minimum.point, minimum.at_bound, problem.bounds
    value, gradient = point.score
    fit = point.fit if isinstance(point, OfFit) else PenalisedFit(model, rho)
    factorisation, errors = fit.solving, []
    if not problem.choice.exact:  # its solver is chosen for its structure, not by name
        factorisation = replace(factorisation, choice=problem.choice)
    if isinstance(point, Estimated):
        errors = point.error(~at_bound).tolist()
    sides = np.where(rho - bounds.lower < bounds.upper - rho, "lower", "upper").tolist()
    bound = {name: side for name, side, at in zip(family.parameters, sides, at_bound, strict=True) if at}
    return Smoothing(
        penalty=family.penalty(rho),
        method=method,
        score=value,
        comparable=point.comparable if isinstance(point, Reml) and math.isfinite(value) else math.nan,
        gradient=dict(zip(family.parameters, gradient.tolist(), strict=True)),
        at_bounds=family.stopped(bound),
        factorisations=factorisations + explored + more + raised + (method == "holders"),
        factorisation=factorisation,
        converged=minimum.converged,
        error=dict(zip(names, errors, strict=False)),
        resolution=resolution(fit, point),
        gap_error=gaps,
        covariance=point.covariance(~at_bound),
    )


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

    def search(self, start: Array, until: Until = UNTIL) -> tuple[State[Score], int]:
        """The minimum, and how many factorisations it took; see `minimise`."""
        with on_cores(self.model.resources.cores), Progress(self.model.family.parameters) as progress:
            score, bounds = _Scores(self, progress), self.bounds
            excess = np.max(self.model.family.design @ start - bounds.most)
            if excess > 0:  # of a start from a problem with other bounds
                start = start - excess * self.model.family.overall
            state = minimise(score, start, bounds.lower, bounds.upper, until)
            for _ in range(0 if until.unseen else ROUNDS):
                if not isinstance(state.point, NearReml) or state.point.step_of_off <= until.near:
                    break
                score.slope = state.point.off
                state = minimise(score, state.rho, bounds.lower, bounds.upper, until)
            return state, score.factorisations

    def explored(self) -> tuple[Array, int]:
        """A start in the valley of the lowest minimum, and how many factorisations that took.

        A likelihood has one minimum, as a rule. Scores of predictions may have several, with the nearest one at a
        bound and much worse than that of REML: searches from there and from the lowest places of a lattice compete.
        """
        start, lower, upper, *_ = self.bounds
        if self.method == "reml":
            return start, 0
        ends: list[tuple[float, Array]] = []  # of each search; without its factorisations
        with on_cores(self.model.resources.cores), Progress(self.model.family.parameters) as progress:
            score = _Scores(self, progress)
            for candidate, apart in itertools.chain([(start, start)], self._starts(score)):
                if any((np.abs(rho - candidate) < apart).all() for _, rho in ends):
                    continue
                try:
                    ends.append(_end(minimise(score, candidate, lower, upper, Until(ROUGHLY))))
                except SingularSystemError:
                    if not ends:
                        raise
        lowest = min(value for value, _ in ends)
        best = next(rho for value, rho in ends if value <= lowest + SLACK)
        return best, score.factorisations

    def softer(self, minimum: State[Score]) -> tuple[State[Score], int]:
        """A lower minimum of REML than one on an upper bound, if there is one and a look is quick; factorisations.

        Of waves that the knots just hold the likelihood has a second minimum: a straight line, and everything is noise.
        Of few noisy data it may have one for each coordinate: rough along this one, and constant along the others.
        """
        stiff, looks = minimum.at_bound & (minimum.rho >= self.bounds.upper), 0
        quick = self.operations < self.model.resources.costs.lattice_flops
        if self.method != "reml" or self.estimated or not quick or not stiff.any():
            return minimum, 0
        for step in SOFTER:
            looks += 1
            rho = np.where(stiff, self.bounds.start - step, minimum.rho)
            with suppress(SingularSystemError):
                if _lower(self.score(rho, minimum.point.included), minimum.point):
                    softer, more = self.search(rho, self.until)
                    return softer, looks + more
        family = self.model.family
        for along in np.array(family.alphas, dtype=float).T:
            aside = np.linalg.lstsq(family.design, ASIDE * along, rcond=None)[0]
            with suppress(SingularSystemError):
                other, more = self.search(self.bounds.start + aside, self.until)
                looks += more
                if (
                    _lower(other.point, minimum.point)
                    and (other.point.included == minimum.point.included).all()
                ):
                    minimum = other
        return minimum, looks

    def determined(self, minimum: State[Score]) -> tuple[State[Score], float, int]:
        """The minimum, or strengths that determine gaps in the data too; `Smoothing.gap_error`; factorisations."""
        if not isinstance(minimum.point, Logarithm):
            return minimum, 0.0, 0
        with on_cores(self.model.resources.cores), Progress(self.model.family.parameters) as progress:
            score = _Scores(self, progress)
            likely, upper = (lambda: self._likely(score)), self.bounds.upper
            point, gaps = raised_for_gaps(self.model, minimum.point, score, likely, upper)
        return replace(minimum, rho=point.rho, point=point), gaps, score.factorisations

    def _likely(self, score: _Scores) -> Array | None:
        """What REML would choose, roughly; its factorisations count with those of the score."""
        (start, lower, upper, *_), likelihood = self.bounds, replace(self, method="reml", parts=())
        if not likelihood.estimated:
            with suppress(SingularSystemError):
                told = _Scores(likelihood, score.progress)
                likely = minimise(told, start, lower, upper, Until(ROUGHLY)).rho
                score.factorisations += told.factorisations
                return likely
        return None

    def _starts(self, score: _Scores) -> Iterator[tuple[Array, Array]]:
        """What REML would choose, then the lowest places of a lattice within the bounds if that is quick.

        With how far away a minimum has to be, [J], for a search from there to be worth it.
        """
        _, lower, upper, *_ = self.bounds
        if (likely := self._likely(score)) is not None:
            yield likely, np.full(len(lower), APART)
        each = max(len(self.parts), 1)  # factorisations of a score
        most = min(MAX_FACTORISATIONS, self.model.resources.costs.lattice_flops / self.operations) / each
        side = min(int(most ** (1 / len(lower)) + 1e-9), MAX_SIDE)
        if side < MIN_SIDE:
            return
        spacing = np.maximum((upper - lower) / (side - 1), APART)
        yield from ((place, spacing) for place in lowest_places(score, lower, upper, side))

    def score(self, rho: Array, included: Mask | None = None, slope: Array | None = None) -> Score:
        """The score at ρ, of the batch members that counted elsewhere; `slope` is that of `NearReml`."""
        if (self.model.family.design @ rho > self.bounds.most).any():
            raise SingularSystemError("at these strengths rounding errors of the penalty reach the constant")
        if not self.choice.exact:
            own = replace(self.model, solver=self.choice.name)
            if self.choice.name == NEARLY_SEPARABLE:
                return NearReml(own, rho, included, slope)
            return Estimated(own, rho, included)
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
            rho, searched = problem.search(rho, Until(COARSELY, unseen=True))[0].rho, True
            smoothness, low = problem.smoothness(rho), rho <= problem.bounds.lower
            halvings[min((n for n in names if halvings[n]), key=lambda n: smoothness[n])] -= 1
            problem = self
            for time in range(max(halvings.values())):
                problem = problem.coarser([n for n, times in halvings.items() if times > time]) or problem
            # What coarse knots do not tell apart finer ones may; from a bound a search is slow to come back.
            rho = np.where(low, problem.bounds.start + RAISED, rho)
        return rho, factorisations

    def smoothness(self, rho: Array) -> dict[str, float]:
        """Of each smoothed coordinate, the most that a penalty of its own weighs beside the data, as a logarithm."""
        family = self.model.family
        weights = family.design @ rho - self.bounds.even
        return {
            n: float(np.max(weights[own == 1])) for n, own in zip(family.names, family.shares, strict=True)
        }

    def with_likelier_order(self) -> tuple[Model, Array | None]:
        """The model with the order, 1 or 2, that fits best on a coarser space where that is quickly told; ρ there."""
        costs, names, scores = self.model.resources.costs, self.model.names, dict[int, tuple[float, Array]]()
        problem = self.coarser(names)
        while problem is not None and not scores:
            for order in (1, 2):
                family = SingleOrder(problem.model.space, names, order)
                trial = replace(problem, model=replace(problem.model, family=family, solver=None))
                if trial.estimated or trial.operations > costs.coarse_start_flops:
                    break
                with suppress(SingularSystemError):
                    end = trial.search(trial.start()[0], Until(COARSELY))[0]
                    if isinstance(end.point, Reml) and end.point.included.all():
                        scores[order] = end.point.comparable, end.rho
            problem = problem.coarser(names)
        if not scores:
            return self.model, None
        best = min(scores, key=lambda order: scores[order][0])
        return replace(self.model, family=SingleOrder(self.model.space, names, best)), scores[best][1]

    def coarser(self, names: Collection[str]) -> Problem | None:
        """With every second breakpoint removed along some coordinates; None where none has one to spare."""
        space = self.model.space
        coarse = coarser(self.model.sums, space, names)
        if coarse is None:
            return None
        solver = None if self.estimated else self.model.solver
        family = self.model.family.on(coarse[1], coarse[0].gram)
        model = replace(self.model, sums=coarse[0], space=coarse[1], family=family, solver=solver)
        parts = (coarser(part, space, names) for part in self.parts)
        return replace(self, model=model, parts=[part[0] for part in parts if part is not None])

    @property
    def until(self) -> Until:
        """What ends a search: of estimates, which scatter, of large problems, and of others."""
        if self.estimated:
            return Until(ESTIMATED)
        return UNTIL if self.operations < self.model.resources.costs.close_search_flops else Until(CLOSE)

    @property
    def until_known(self) -> Until:
        """The same from strengths that a search in a coarser space has found, where steps take long."""
        costs = self.model.resources.costs
        most = 1 if self.operations >= costs.max_exact_reml_flops else KNOWN_STEPS
        return Until(COARSELY, costs.enough * self.model.observations, True, most)

    @property
    def estimated(self) -> bool:
        """Whether the score is estimated on top of iterations."""
        return not self.choice.exact and self.choice.name != NEARLY_SEPARABLE

    @property
    def operations(self) -> float:
        """Of a factorisation."""
        return self.model.resources.costs.max_exact_reml_flops if self.estimated else self.choice.operations

    @cached_property
    def choice(self) -> Choice:
        """The solver of each score."""
        model = self.model
        return solver_for(model.sums.gram, model.family, self.method, model.solver, model.resources)

    @cached_property
    def bounds(self) -> Bounds:
        """A place to start at, and bounds beyond which a strength makes no difference."""
        model, frame = self.model, self.model.space.frame
        sums, axes = model.sums, tuple(range(len(frame.sizes)))
        data, weight = np.broadcast_arrays(sums.gram.diagonal(frame).sum(axis=axes), sums.weight)
        return model.family.bounds(float(np.mean(data[weight > 0])), float(np.mean(weight[weight > 0])))


def _lower(point: Score, other: Score) -> bool:
    """Whether a score is lower than another."""
    return point.value is not None and point.value < (other.value or 0.0) - SLACK


def _end(state: State[Score]) -> tuple[float, Array]:
    """The score at the end of a search, and where that is."""
    return float(state.point.value or 0.0), state.rho


class _Scores:
    """The scores of a problem, of the same batch members everywhere; counts them and tells the progress."""

    def __init__(self, problem: Problem, progress: Progress) -> None:
        self.problem, self.progress = problem, progress
        self.factorisations = 0
        self.slope: Array | None = None  # of `NearReml`
        self._included: Mask | None = None

    def __call__(self, rho: Array) -> Score:
        self.factorisations += max(len(self.problem.parts), 1)
        point = self.problem.score(rho, self._included, self.slope)
        self._included = point.included
        self.progress.step(self.problem.method, rho, point.value)
        return point
