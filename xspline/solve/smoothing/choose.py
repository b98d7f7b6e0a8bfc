"""The choice of smoothing strengths by REML, GCV or prediction of holders, from the sums alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from xspline.solve.costs import Resources
from xspline.solve.direct.cholesky import Array
from xspline.solve.errors import ConvergenceError, SingularSystemError, nothing_determined, warn
from xspline.solve.families.base import WEAKEST, Bounds
from xspline.solve.families.modes import SpaceTimes
from xspline.solve.families.orders import SingleOrder, several_orders, smoothed
from xspline.solve.multigrid.spaces import coarser
from xspline.solve.penalties.roughness import Penalty, Roughness, criterion_of
from xspline.solve.progress import LOGGER, tell, told
from xspline.solve.select import NEARLY_SEPARABLE
from xspline.solve.smoothing.criteria import Gcv, Holders, Mask, NearReml, OfFit, Reml, Score
from xspline.solve.smoothing.family import family_for, solver_for
from xspline.solve.smoothing.fit import Model, PenalisedFit, centred
from xspline.solve.smoothing.newton import LOST, RISE, State, minimise
from xspline.solve.smoothing.probes import Estimated
from xspline.solve.smoothing.resolution import Resolution, gap_error, resolution
from xspline.solve.solution import solve
from xspline.solve.system import Choice, Factorisation
from xspline.spaces import Space
from xspline.sums import Sums, leave_one_out
from xspline.threads import on_cores, single_threaded_blas

# The step in log λ, or in the logarithm of a scale, that ends a search of a large problem. The score is off by the
# order of its square.
CLOSE = 0.02


@dataclass(frozen=True, eq=False)
class Smoothing:
    """A choice of smoothing."""

    penalty: Penalty  # with its strengths
    method: str
    # the score at the choice; of "reml" its negative logarithm, in which a difference of 1 counts, or NaN
    # where its traces are estimated
    score: float
    # of "reml" the score as it compares penalties of different orders, see `Reml.comparable`; else NaN
    comparable: float
    gradient: dict[str, float]  # derivatives of the score by the logarithms of what was chosen, see `Family`
    # coordinates whose strength is as small or as large as makes a difference: "lower" or "upper"
    at_bounds: dict[str, str]
    factorisations: int  # how many the choice took, without the smaller ones of coarser problems
    factorisation: Factorisation  # of G + Λ, for `solve`
    converged: bool  # False where the search gave up; the choice is the best that it saw
    # where the choice rests on random probes of an iterative solver, the standard errors that these leave in
    # log λ_j; then the score is NaN and the gradient an estimate. Empty where it is exact.
    error: dict[str, float]
    resolution: Resolution  # whether the space is fine enough for what the data show
    # 0, or the standard error of the field over the spread of the data that the score alone would have left; then
    # the strengths are those of REML, and the gradient is not zero
    gap_error: float
    # [T, T], of the logarithms of the terms' strengths given the data; None where the score is no likelihood
    covariance: Array | None
    as_one: float  # how many observations vary as one


@single_threaded_blas()
def choose(
    sums: Sums,
    space: Space,
    requested: str | Penalty,
    *,
    solver: str | None = None,
    parts: Sequence[Sums] = (),
    resources: Resources | None = None,
    as_one: Callable[[Array], float] | None = None,
) -> Smoothing:
    """Choose the penalty, of a family for all coordinates with a B-spline, that minimises a score of the sums.

    It raises ValueError where there is no B-spline or one of degree 0, no more observations than functions without
    roughness, or one holder only; and SingularSystemError where nothing is determined.

    Batch members share the strengths; their scores add. What is `requested` is "reml", restricted likelihood (Wood
    2011), "gcv", generalised cross-validation (Craven and Wahba 1979), "holders", the error of each of `parts`, which
    together are `sums`, predicted from the others, or a penalty that leaves its strengths to one of them; see
    `family_for`. For `solver` see `candidates`, for `resources` see `solve`. "reml" divides the number of
    observations by how many of them vary as one, and keeps two for each function without roughness; `as_one` counts
    them, given coefficients.
    """
    resources = resources or Resources.here()
    method = criterion_of(requested) or ""
    names = smoothed(space, method)
    if not sums.has_weight:
        raise nothing_determined(space, np.zeros((*space.shape, 1), dtype=np.bool_))
    family = family_for(sums.gram, requested, space, solver, resources)
    model = Model(space, centred(sums, space), family, solver, resources)
    if 0 < model.observations <= family.null:
        raise ValueError(
            f"penalty={method!r} needs more observations than the {family.null} functions that have no roughness, and "
            f"there are {model.observations}; use fewer functions without a B-spline, or pass a number for a ridge "
            "(penalty=1e-3)"
        )
    observed = [part for part in parts if part.has_weight] if method == "holders" else []
    if method == "holders" and len(observed) < 2:
        raise ValueError(
            "penalty='holders' predicts each part from the others and needs two or more with observations, not "
            f"{len(observed)}; pass holder=labels to make one part for each label, or penalty='reml'"
        )
    problem = Problem(model, method, observed)
    start, is_open = None, requested == "reml" and isinstance(family, SingleOrder)
    try:
        if as_one is not None and method == "reml":
            problem, start = problem.counting(as_one)
        if is_open and several_orders(space, names) is not None:
            problem, start = problem.of_likelier_order(), None
        if problem.choice.memory_refusal:
            warn(
                f"penalty={method!r} is estimated from random probes, not computed: {problem.choice.memory_refusal}. "
                "The strengths have the standard errors that `error` says; for exact ones use fewer coefficients along "
                "some coordinate, or a machine with more memory"
            )
        return _chosen(problem, problem.minimum(start))
    except ConvergenceError:  # data are further from a product than they seem
        if requested != "reml" or solver or not isinstance(family, SpaceTimes):
            raise
        return choose(sums, space, Roughness("reml"), parts=parts, resources=resources, as_one=as_one)
    except SingularSystemError as error:
        if method == "holders":
            raise
        raise SingularSystemError(
            f"penalty={method!r} smooths {', '.join(names)} and leaves {family.null} functions that have no "
            f"roughness to the {model.observations} observations, which lie in too few places to determine them; "
            "use fewer functions without a B-spline, or pass a number for a ridge (penalty=1e-3)"
        ) from error


def _chosen(problem: Problem, minimum: State[Score]) -> Smoothing:
    """Describe the choice that a search has ended with, or another one where that leaves gaps undetermined.

    Scores of predictions at observations say nothing of places without any.
    """
    fit = problem.fit(minimum.point)
    gaps = 0.0
    if problem.method != "reml" and (error := gap_error(fit, minimum.point)).undetermined:
        gaps = error.relative
        point = problem.determined()
        minimum = replace(minimum, rho=point.rho, point=point)
        fit = problem.fit(point)
    bounds = problem.bounds
    family = problem.model.family
    rho = minimum.rho
    point = minimum.point
    at_bound = minimum.at_bound
    value, gradient = point.score
    factorisation = fit.solving
    if not problem.choice.exact:  # its solver is chosen for its structure, not by name
        factorisation = replace(factorisation, choice=problem.choice)
    errors = point.error(~at_bound).tolist() if isinstance(point, Estimated) else []
    sides = np.where(rho - bounds.lower < bounds.upper - rho, "lower", "upper").tolist()
    stopped = {name: side for name, side, at in zip(family.parameters, sides, at_bound, strict=True) if at}
    return Smoothing(
        penalty=family.penalty(rho),
        method=problem.method,
        score=value,
        comparable=point.comparable,
        gradient=dict(zip(family.parameters, gradient.tolist(), strict=True)),
        at_bounds=family.stopped(stopped),
        factorisations=problem.factorisations + (problem.method == "holders"),
        factorisation=factorisation,
        converged=minimum.converged,
        error=dict(zip(family.parameters, errors, strict=False)),
        resolution=resolution(fit, point),
        gap_error=gaps,
        covariance=point.covariance(~at_bound),
        as_one=problem.model.as_one,
    )


@dataclass(eq=False)
class Problem:
    """What is minimised, in one space. `parts` are the holders', for "holders"."""

    model: Model
    method: str
    parts: Sequence[Sums]
    factorisations: int = field(default=0, init=False)  # how many scores have taken so far
    steps: int = field(default=0, init=False)  # how many scores there have been
    included: Mask | None = field(default=None, init=False)  # batch members that count

    def counting(self, as_one: Callable[[Array], float]) -> tuple[Problem, Array]:
        """Return the problem that knows how many observations vary as one, and where its search starts.

        Where REML does not know, it takes what errors of neighbours share for signal. So a quick fit comes first, and
        what it leaves of the observations tells how far their errors are alike.
        """
        model = self.model
        start = self.within(self.quicker.minimum().rho)
        penalty = model.family.penalty(start)
        solution = solve(model.sums, model.space, penalty, model.solver, resources=model.resources)
        most = model.observations / (2 * max(model.family.null, 1))
        times = max(min(as_one(solution.coefficients), most), 1.0)
        counting = replace(self, model=replace(model, as_one=times))
        counting.factorisations = self.factorisations + 1
        return counting, start

    def minimum(self, start: Array | None = None) -> State[Score]:
        """Return the lowest minimum that is found from several starts, or near that of a quicker problem."""
        if self.quicker is not self:
            return self.search(self.quicker.minimum(start).rho)
        best = self.search(self.bounds.start if start is None else start)
        for start in self.other_starts(best):
            with suppress(SingularSystemError):
                other = self.search(start)
                if other.point.value is not None and other.point.value < (best.point.value or 0.0) - LOST:
                    best = other
        return best

    def other_starts(self, first: State[Score]) -> Iterator[Array]:
        """Yield further starts, where the minimum that was found first need not be the lowest.

        Of waves that the knots just hold the likelihood has a second minimum: a straight line, and everything is noise.
        Of few noisy data it may have one for each coordinate: rough along this one, and constant along the others. A
        minimum within the bounds is nearly always the only one. Scores of predictions may have several anywhere.
        """
        stiff = first.at_bound & (first.rho >= self.bounds.upper)
        if self.estimated or (self.method == "reml" and not stiff.any()):
            return
        if self.method != "reml" and (likely := self.likely) is not None:
            yield likely
        family = self.model.family
        # Half of the way to the lower bounds. From nearer starts GCV misses minima of rough fields under two gaps.
        softer = WEAKEST / 2
        yield self.bounds.start + softer * family.overall
        for along in np.array(family.alphas, dtype=float).T if len(family.names) > 1 else ():
            yield self.bounds.start + np.linalg.lstsq(family.design, softer * along, rcond=None)[0]

    def search(self, start: Array) -> State[Score]:
        """Return the minimum that Newton's method reaches from a start."""
        bounds, near = self.bounds, RISE if self.is_quick else CLOSE
        with on_cores(self.model.resources.cores), told("choosing the smoothing"):
            return minimise(self.score, self.within(start), bounds.lower, bounds.upper, near)

    def within(self, start: Array) -> Array:
        """Return a start from a problem with other bounds, within these."""
        family = self.model.family
        excess = np.max(family.design @ start - self.bounds.most)
        return start - max(float(excess), 0.0) * family.overall

    @cached_property
    def likely(self) -> Array | None:
        """What REML would choose; its factorisations count with those of the score."""
        problem = replace(self, method="reml", parts=())
        with suppress(SingularSystemError):
            likely = problem.search(problem.bounds.start).rho
            self.factorisations += problem.factorisations
            return likely
        return None

    def determined(self) -> Score:
        """Return the score at strengths that determine gaps in the data too.

        They are those of REML, whose prior says what fields to expect where nothing is seen, and all are raised as long
        as that lowers the expected error in the gaps.
        """
        best = self.score(self.bounds.start if self.likely is None else self.likely)
        error = gap_error(self.fit(best), best).expected
        with suppress(SingularSystemError):
            while (best.rho < self.bounds.upper).any():
                higher = self.score(np.minimum(best.rho + self.model.family.overall, self.bounds.upper))
                lower = gap_error(self.fit(higher), higher).expected
                if lower >= error:
                    break
                best = higher
                error = lower
        return best

    def fit(self, point: Score) -> PenalisedFit:
        """Return the fit to all data at the strengths of a score."""
        return point.fit if isinstance(point, OfFit) else PenalisedFit(self.model, point.rho)

    def score(self, rho: Array) -> Score:
        """Return the score at ρ, of the same batch members everywhere."""
        if (self.model.family.design @ rho > self.bounds.most).any():
            raise SingularSystemError("at these strengths rounding errors of the penalty reach the constant")
        self.factorisations += max(len(self.parts), 1)
        own = self.model if self.choice.exact else replace(self.model, solver=self.choice.name)
        if self.method == "holders":
            point: Score = Holders(own, self._without_each, rho, self.included)
        else:
            estimated = NearReml if self.choice.name == NEARLY_SEPARABLE else Estimated
            exact: type[OfFit] = Reml if self.method == "reml" else Gcv
            point = (exact if self.choice.exact else estimated)(own, rho, self.included)
        self.included = point.included
        self.steps += 1
        strengths = zip(self.model.family.parameters, np.exp(rho).tolist(), strict=True)
        found = ", ".join(f"{name}={x:.3g}" for name, x in strengths)
        found += "" if point.value is None else f", score {point.value:.6g}"  # iterations know none
        LOGGER.info("%s step %d: lambda %s", self.method, self.steps, found)
        tell(f"{self.method} step {self.steps}: lambda {found}")
        return point

    @cached_property
    def _without_each(self) -> list[tuple[Model, Sums]]:
        """The model without each part, and that part about the same reference."""
        model = self.model
        frame = self.model.space.frame
        rests = [replace(model, sums=centred(x, model.space)) for x in leave_one_out(self.parts, frame)]
        return [(r, p.recentred(r.sums.reference, frame)) for r, p in zip(rests, self.parts, strict=True)]

    def of_likelier_order(self) -> Problem:
        """Return the problem of order 1 or 2, whichever fits better on a coarser space where that is quickly told."""
        problem = self.coarser()
        while problem is not None and not problem.is_quick:
            problem = problem.coarser()
        if problem is None:
            return self
        family = SingleOrder(self.model.space, self.model.family.names, min((2, 1), key=problem.comparable))
        return replace(self, model=replace(self.model, family=family))

    def comparable(self, order: int) -> float:
        """Return how well penalties of one order fit, see `Reml.comparable`; infinite where nothing is determined."""
        family = SingleOrder(self.model.space, self.model.family.names, order)
        trial = replace(self, model=replace(self.model, family=family))
        with suppress(SingularSystemError):
            return trial.search(trial.bounds.start).point.comparable
        return math.inf

    def coarser(self) -> Problem | None:
        """Return the problem with every second breakpoint removed; None where no coordinate has one to spare."""
        space = self.model.space
        names = self.model.family.names
        coarse = coarser(self.model.sums, space, names)
        if coarse is None:
            return None
        solver = None if self.estimated else self.model.solver
        family = self.model.family.on(coarse[1], coarse[0].gram)
        model = replace(self.model, sums=coarse[0], space=coarse[1], family=family, solver=solver)
        parts = (coarser(part, space, names) for part in self.parts)
        return replace(self, model=model, parts=[part[0] for part in parts if part is not None])

    @cached_property
    def quicker(self) -> Problem:
        """The problem with half of the knots where a factorisation takes long, else this one."""
        return self if self.is_quick else self.coarser() or self

    @property
    def is_quick(self) -> bool:
        """Whether a factorisation takes some tenths of a second at most."""
        costs = self.model.resources.costs
        operations = costs.max_exact_reml_flops if self.estimated else self.choice.operations
        return operations <= costs.coarse_start_flops

    @property
    def estimated(self) -> bool:
        """Whether the score is estimated on top of iterations."""
        return not self.choice.exact and self.choice.name != NEARLY_SEPARABLE

    @cached_property
    def choice(self) -> Choice:
        """The solver of each score."""
        model = self.model
        return solver_for(model.sums.gram, model.family, self.method, model.solver, model.resources)

    @cached_property
    def bounds(self) -> Bounds:
        """A place to start at, and bounds beyond which a strength makes no difference."""
        model = self.model
        frame = self.model.space.frame
        sums = model.sums
        axes = tuple(range(len(frame.sizes)))
        data, weight = np.broadcast_arrays(sums.gram.diagonal(frame).sum(axis=axes), sums.weight)
        return model.family.bounds(float(np.mean(data[weight > 0])), float(np.mean(weight[weight > 0])))
