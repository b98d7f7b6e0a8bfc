"""The search for terms: models fitted exactly, and the sum of squares of all others linearised about them.

A model is a set of terms, with the field that obeys its equation and is nearest to the data. All models are held by the
test functions of the whole library, so that their sums of squares compare.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from xspline.pde.discovery.subsets import Parabola, Subset, size_cost
from xspline.pde.profile.axes import Array
from xspline.pde.profile.estimate import NEGLIGIBLE, Problem, found_from
from xspline.pde.profile.search import STRENGTH, Result, Search, State

STARTS = (
    4  # terms: the best sets of the weak form of up to so many are fitted, and the best of them is the start
)
ROUNDS = 12  # linearisations at most
MOST = 4  # sets that are fitted after each linearisation at most, of which those further from the best than
NEAR = 6.0  # of the criterion get only
FEW = 12  # steps
TOLD = 3.0  # standard errors of data whose noise is negligible: a constant within them is rounding
OTHERS = 3  # sets that the weak form hardly tells from the best, whose residual there is below
ALIKE = 0.99  # cosine of two terms of the fitted field, from which one may stand for the other
HARDLY = 2.0  # times that of the best
CLEARLY = 10.0  # times the least residual of the weak form, from which a set is no start: searches from there wander


@dataclass(frozen=True, eq=False)
class Model:
    """One set of terms, fitted.

    Parameters
    ----------
    subset : Subset
    result : Result
    coefficients : mapping of str to ndarray, [K..]
        Of the field that obeys the equation, by variable.
    bic : float
        n log(rss / n) and the cost of the set; infinite where the search did not converge.
    """

    subset: Subset
    result: Result
    coefficients: Mapping[str, Array]
    bic: float


@dataclass(frozen=True, eq=False)
class Library:
    """All candidate terms of one equation.

    Parameters
    ----------
    problem : Problem
        Of the equation that has all of them.
    """

    problem: Problem
    models: dict[Subset, Model] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Number of candidates."""
        return len(self.problem.parameters)

    @property
    def count(self) -> int:
        """Number of observations."""
        return self.problem.search.data.count

    @property
    def floor(self) -> float:
        """What is added to each sum of squares: what data without noise show is the error of the space."""
        return NEGLIGIBLE**2 * self.problem.search.data.power

    def search(self, subset: Subset) -> Search:
        """Return the search for the constants of some terms, the tests being those of all."""
        whole = self.problem.search
        powers = tuple(self.problem.parameters[i] for i in subset)
        (constraint,) = whole.constraints.each
        equation = replace(constraint.equation, terms={p: constraint.equation.terms[p] for p in powers})
        own = replace(constraint, equation=equation, parameters=powers)
        return replace(whole, constraints=replace(whole.constraints, parameters=powers, each=(own,)))

    def fit(
        self, subset: Subset, coefficients: Mapping[str, Array], theta: Array, steps: int | None = None
    ) -> Model:
        """Return a model; from what is known already where it was fitted before.

        Parameters
        ----------
        subset : Subset
        coefficients : mapping of str to ndarray, [K..]
            Where to start.
        theta : ndarray, [k]
            Constants of all candidates, likewise.
        steps : int, optional
            At most, without a second try.
        """
        known = self.models.get(subset)
        hasty = known is not None and math.isinf(known.bic) and known.result.steps <= FEW
        if known is None or (hasty and steps is None):
            search = self.search(subset)
            tau = theta[list(subset)]
            if steps is None:
                result = found_from(search, coefficients, tau)
            else:
                nothing = tuple(np.zeros(constraint.shape) for constraint in search.constraints.each)
                start = State(search.data.centred(coefficients), tau, nothing)
                result = search.run(start, STRENGTH, steps, hard=True)
            rss = max(result.rss, 0.0) + self.floor
            bic = self.count * math.log(rss / self.count) + size_cost(len(subset), self.size, self.count)
            own = search.data.with_reference(result.state.row)
            self.models[subset] = Model(subset, result, own, bic if result.converged else math.inf)
        return self.models[subset]

    @cached_property
    def _weak(self) -> tuple[Array, Array, Parabola]:
        """The regression of the fit on smooth test functions: rows [k, tests], target [tests], sums of squares.

        Raises
        ------
        ValueError
            A term is zero, or not finite somewhere.
        """
        (constraint,) = self.problem.constraints.each
        smooth = replace(constraint, smooth=True)
        values = smooth.environment(self.problem.coefficients)
        with np.errstate(invalid="ignore"):
            target = smooth.residual(self.problem.coefficients, np.zeros(self.size)).ravel()
            rows = -smooth.by_parameter(values).reshape(self.size, -1)
        sizes = np.sqrt(np.sum(rows**2, axis=1))
        for term, size in zip(constraint.equation.terms, sizes, strict=True):
            if not (np.isfinite(size) and size > 0):
                what = "zero on all of the domain" if size == 0 else "not finite somewhere"
                raise ValueError(f"the candidate of {term} is {what}; leave it out")
        scaled = rows / sizes[:, None]
        theta = np.linalg.lstsq(scaled.T, target, rcond=None)[0]
        # Errors are correlated: it tells which set of a size is best, but not which size.
        return rows, target, Parabola(theta, scaled @ scaled.T, float(target @ target), len(target))

    def weak_constants(self, subset: Subset) -> Array:
        """Return the constants of all candidates by the weak form of some, zero of the others."""
        rows, target, _ = self._weak
        theta = np.zeros(self.size)
        theta[list(subset)] = np.linalg.lstsq(rows[list(subset)].T, target, rcond=None)[0]
        return theta

    def weak_rms(self, subset: Subset) -> float:
        """Return the residual of some terms by the weak form, no less than what data without noise show."""
        rows, target, _ = self._weak
        missed = np.linalg.norm(target - self.weak_constants(subset) @ rows)
        return float(max(missed, NEGLIGIBLE * np.linalg.norm(target)))

    def weak_starts(self) -> list[Subset]:
        """Return the best set of each small size by the weak form, but those that it tells from the best of these."""
        best = {subset: self.weak_rms(subset) for subset in self._weak[2].best_by_size(STARTS)}
        return [subset for subset, rms in best.items() if rms <= CLEARLY * min(best.values())]

    def alternatives(self, model: Model) -> list[Subset]:
        """Return sets that neither hold a model's nor are held, and that the weak form hardly tells from it.

        Without those that hold another of them; and sets with a term in place of one that is nearly the same.
        """
        best, own = self.weak_rms(model.subset), set(model.subset)
        near = swapped = self._swapped(model.subset)
        for size in range(1, len(own) + 2):
            # Of the next size, those with one term more than the model come first.
            for subset in self._weak[2].best_of_size(size, self.size + OTHERS):
                apart = not (own <= set(subset) or any(set(least) <= set(subset) for least in near))
                if apart and not set(subset) <= own and self.weak_rms(subset) < HARDLY * best:
                    near = [*near, subset]
        return near[: len(swapped) + OTHERS]

    def _swapped(self, subset: Subset) -> list[Subset]:
        """Return sets with one term in place of another that is nearly a multiple of it in the fitted field."""
        rows = self._weak[0]
        unit = rows / np.linalg.norm(rows, axis=1)[:, None]
        alike = np.abs(unit @ unit.T)
        pairs = [(alike[i, j], i, j) for i in subset for j in range(self.size) if j not in subset]
        nearest = sorted((pair for pair in pairs if pair[0] > ALIKE), reverse=True)[:OTHERS]
        return [tuple(sorted({*subset, j} - {i})) for _, i, j in nearest]

    def linearised(self, model: Model) -> Parabola | None:
        """Return the sum of squares of all sets, linearised about a model; None where it is not finite."""
        result, whole = model.result, self.problem.search
        theta = self.theta(model)
        state = replace(result.state, tau=theta)
        step = whole.step(state, 0.0, result.step.strengths)
        if not (np.isfinite(step.tau).all() and (np.diag(step.information) > 0).all()):
            return None
        left = max(self.count - self.search(model.subset).freedom, 1)
        variance = (max(result.rss, 0.0) + self.floor) / left
        return Parabola(theta + step.tau, step.information, variance, self.count)

    def theta(self, model: Model) -> Array:
        """Return the constants of all candidates in a model, zero where it has none."""
        theta = np.zeros(self.size)
        theta[list(model.subset)] = model.result.state.tau
        return theta

    def distinct(self, model: Model) -> Array:
        """Return how many times `TOLD` errors each constant is, were noise negligible; below 1 it is rounding, [k]."""
        errors = self.search(model.subset).stderr(model.result.step, self.floor)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.abs(model.result.state.tau) / (TOLD * errors))

    def ranked(self) -> list[Model]:
        """Return all models that were fitted, best first."""
        return sorted(self.models.values(), key=lambda m: (m.bic, len(m.subset), m.subset))


def explore(library: Library) -> None:
    """Fit the sets of terms that are worth it.

    From the weak form to the best set of the linearised sums of squares, until it stands; then all that are near it,
    and those that are not, but that the weak form hardly tells from it.
    """
    coefficients = library.problem.coefficients
    library.fit((), coefficients, np.zeros(library.size))
    for subset in library.weak_starts():
        library.fit(subset, coefficients, library.weak_constants(subset), FEW)
    model = library.ranked()[0]
    done: set[Subset] = set()
    for _ in range(ROUNDS):
        if model.subset in done:
            model = library.ranked()[0]
            if model.subset in done:
                return
        done.add(model.subset)
        parabola = library.linearised(model)
        if parabola is None:
            continue
        ranked = parabola.ranked(MOST)
        if ranked[0][1] != model.subset:
            other = library.fit(ranked[0][1], model.coefficients, library.theta(model))
            if math.isfinite(other.bic) and other.subset not in done:
                model = other
                continue
        # The set stands: what is near it is fitted, in case the parabola is none.
        for cost, subset in ranked[1:]:
            steps = None if cost - ranked[0][0] < NEAR else FEW
            library.fit(subset, model.coefficients, library.theta(model), steps)
        for subset in library.alternatives(model):
            library.fit(subset, coefficients, library.weak_constants(subset), FEW)
        model = library.ranked()[0]
