"""The search for terms: models fitted exactly, and the sum of squares of all others linearised about them.

A model is a set of terms, with the field that obeys its equation and is nearest to the data. All models obey their
equations against the test functions of the whole library, so that their sums of squares compare.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from xspline.pde.profile.axes import Array, Integers
from xspline.pde.profile.gauss_newton import ConstrainedLeastSquares, SearchResult
from xspline.pde.profile.normal_equations import directions
from xspline.pde.profile.problem import EquationProblem
from xspline.residuals.assumptions import SURELY
from xspline.solve.direct.cholesky import TINY
from xspline.solve.smoothing.fit import ROUNDING

Subset = tuple[int, ...]  # numbers of terms, in rising order

WIDTH = 200  # sets of each size of which all that have a term more are looked at
CLEAR = 10.0  # of BIC: very strong evidence (Kass and Raftery 1995), from which an equation is claimed
SEVERAL = 4  # sets that are fitted at a time, and terms of the largest set that a search starts from
HASTY = 12  # factorisations of a set that is hardly the best
ALIKE = 0.99  # cosine of two terms of the fitted field, from which either may stand for the other
# Residual of the weak form over the least one, from which a set is no start: searches there wander.
CLEARLY = 10.0


def size_cost(terms: int, candidates: int, count: int) -> float:
    """Return what the extended BIC adds for a number of terms (Chen and Chen 2008).

    That is |A| log n + 2 log C(k, |A|), where n is the number of observations and k that of candidates. All sizes of
    sets up to half of the candidates are then equally probable before the data; larger sets are no more probable.
    """
    terms_or_half = min(terms, candidates // 2)
    number = (
        math.lgamma(candidates + 1)
        - math.lgamma(terms_or_half + 1)
        - math.lgamma(candidates - terms_or_half + 1)
    )
    return terms * math.log(count) + 2 * number


class Parabola:
    """A sum of squares about its minimum, (θ − θ*)ᵀ S (θ − θ*) / σ². Terms that are left out have θ = 0.

    `theta`, [k], is the minimum θ*, `information`, [k, k], the positive S, and `variance` σ², that of an observation of
    weight 1; there are `count` observations.
    """

    def __init__(self, theta: Array, information: Array, variance: float, count: int) -> None:
        values, vectors, scale = directions(information)
        # As rounding makes the lowest eigenvalue negative, it makes others positive that are not much larger.
        told = np.where(values > -4 * values[0], values, 0.0) + 10 * ROUNDING
        self.matrix = (vectors * told) @ vectors.T
        scaled = theta * scale
        self.right = self.matrix @ scaled
        self.total = float(scaled @ self.right)
        self.variance, self.count = variance, count

    @property
    def candidates(self) -> int:
        """The number of terms, k."""
        return len(self.right)

    def costs(self, subsets: Integers) -> Array:
        """Return the criterion of sets of one size, [sets, size]."""
        own = self.right[subsets]
        blocks = self.matrix[subsets[:, :, None], subsets[:, None, :]]
        gains = np.sum(own * np.linalg.solve(blocks, own[..., None])[..., 0], axis=1)
        more = size_cost(subsets.shape[1], self.candidates, self.count)
        return np.asarray((self.total - gains) / self.variance + more)

    def cost(self, subset: Iterable[int]) -> float:
        """Return the criterion of one set."""
        return float(self.costs(np.array([sorted(subset)], dtype=np.int64))[0])

    @cached_property
    def _by_size(self) -> list[tuple[Array, Integers]]:
        """The best sets of each size with their costs, best first; each extends one of the best of the size before."""
        subsets = np.zeros((1, 0), np.int64)
        best = []
        for size in range(self.candidates + 1):
            if size:
                terms = np.arange(self.candidates)
                longer = np.empty((len(subsets), len(terms), size), np.int64)
                longer[..., :-1] = subsets[:, None]
                longer[..., -1] = terms
                longer.sort(axis=-1)
                apart = (np.diff(longer) > 0).all(axis=-1)
                subsets = np.unique(longer[apart], axis=0)
            costs = self.costs(subsets)
            first = np.argsort(costs, kind="stable")[:WIDTH]
            subsets = subsets[first]
            best.append((costs[first], subsets))
        return best

    def ranked(self, most: int) -> list[tuple[float, Subset]]:
        """Return the best sets with their costs, best first."""
        costs = np.concatenate([own for own, _ in self._by_size])
        subsets = [tuple(subset) for _, own in self._by_size for subset in own.tolist()]
        return sorted(zip(costs.tolist(), subsets, strict=True))[:most]

    def best_of_size(self, size: int, most: int) -> list[Subset]:
        """Return the best sets of one size."""
        if size > self.candidates:
            return []
        return [tuple(subset) for subset in self._by_size[size][1][:most].tolist()]


@dataclass(frozen=True, eq=False)
class FittedModel:
    """One set of terms, fitted.

    `coefficients`, [K..] by variable, are those of the field that obeys the equation. `bic` is n log(rss / n) and the
    cost of the set; it is infinite where the search did not converge.
    """

    subset: Subset
    result: SearchResult
    coefficients: Mapping[str, Array]
    bic: float


@dataclass(frozen=True, eq=False)
class Library:
    """All candidate terms of one equation, and the models that were fitted.

    Its problem is that of the equation which has all terms.
    """

    problem: EquationProblem
    models: dict[Subset, FittedModel] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The number of candidates."""
        return len(self.problem.parameters)

    @property
    def count(self) -> int:
        """The number of observations."""
        return self.problem.search.data.count

    @property
    def floor(self) -> float:
        """What is added to each sum of squares: in data without noise a smaller one is the error of the space."""
        return TINY * self.problem.search.data.power

    def search(self, subset: Subset) -> ConstrainedLeastSquares:
        """Return the search for the constants of some terms, with the test functions of all terms."""
        whole = self.problem.search
        powers = tuple(self.problem.parameters[i] for i in subset)
        (constraint,) = whole.constraints.each
        equation = replace(constraint.equation, terms={p: constraint.equation.terms[p] for p in powers})
        own = replace(constraint, equation=equation, parameters=powers)
        return replace(whole, constraints=replace(whole.constraints, parameters=powers, each=(own,)))

    def fit(
        self, subset: Subset, coefficients: Mapping[str, Array], theta: Array, *, hasty: bool = False
    ) -> FittedModel:
        """Return a model; a set that was fitted before is not fitted again.

        The search starts from `coefficients` of each variable, [K..], and constants `theta` of all candidates, [k]; a
        hasty one is given up after a few steps.
        """
        known = self.models.get(subset)
        given_up = known is not None and math.isinf(known.bic) and known.result.steps <= HASTY
        if known is not None and not (given_up and not hasty):
            return known
        search = self.search(subset)
        start = search.start(coefficients, theta[list(subset)])
        result = search.run(start, HASTY) if hasty else search.run(start)
        rss = max(result.rss, 0.0) + self.floor
        bic = self.count * math.log(rss / self.count) + size_cost(len(subset), self.size, self.count)
        own = search.data.with_reference(result.state.row)
        self.models[subset] = FittedModel(subset, result, own, bic if result.converged else math.inf)
        return self.models[subset]

    def ranked(self) -> list[FittedModel]:
        """Return all models that were fitted, best first."""
        return sorted(self.models.values(), key=lambda m: (m.bic, len(m.subset), m.subset))

    def theta(self, model: FittedModel) -> Array:
        """Return the constants of all candidates in a model, with zeros for terms that it has not."""
        theta = np.zeros(self.size)
        theta[list(model.subset)] = model.result.state.tau
        return theta

    def distinct(self, model: FittedModel) -> Array:
        """Return how many times `SURELY` errors each constant is, were noise negligible, [k].

        A constant below 1 is rounding.
        """
        errors = self.search(model.subset).stderr(model.result.linear, self.floor)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.abs(model.result.state.tau) / (SURELY * errors))

    def linearised(self, model: FittedModel) -> Parabola | None:
        """Return the sum of squares of all sets, linearised about a model; None where it is not finite."""
        result = model.result
        theta = self.theta(model)
        search = self.problem.search
        state = replace(result.state, tau=theta)
        linear = search.linearised(state, result.linear.strengths)
        step = search.step(state, linear)
        if not (np.isfinite(step.tau).all() and (np.diag(linear.information) > 0).all()):
            return None
        left = max(self.count - self.search(model.subset).freedom, 1)
        variance = (max(result.rss, 0.0) + self.floor) / left
        return Parabola(theta + step.tau, linear.information, variance, self.count)

    # --- the weak form

    @cached_property
    def _weak(self) -> tuple[Array, Array, Parabola]:
        """The regression of the fit on smooth test functions: rows [k, tests], target [tests], sums of squares.

        It raises ValueError where a term is zero, or not finite somewhere.
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
        # Errors of these tests are correlated, so that the sums compare sets of one size, and not sizes.
        return rows, target, Parabola(theta, scaled @ scaled.T, float(target @ target), len(target))

    def weak_constants(self, subset: Subset) -> Array:
        """Return the constants of all candidates by the weak form of some terms, with zeros for the others."""
        rows, target, _ = self._weak
        theta = np.zeros(self.size)
        theta[list(subset)] = np.linalg.lstsq(rows[list(subset)].T, target, rcond=None)[0]
        return theta

    def weak_rms(self, subset: Subset) -> float:
        """Return the residual of some terms by the weak form, at least what data without noise show."""
        rows, target, _ = self._weak
        missed = np.linalg.norm(target - self.weak_constants(subset) @ rows)
        return float(max(missed, math.sqrt(TINY) * np.linalg.norm(target)))

    def weak_starts(self) -> list[Subset]:
        """Return the best set of each small size by the weak form, without sets that are clearly worse than others."""
        sizes = range(1, SEVERAL + 1)
        best = {s: self.weak_rms(s) for size in sizes for s in self._weak[2].best_of_size(size, 1)}
        return [subset for subset, rms in best.items() if rms <= CLEARLY * min(best.values())]

    def alternatives(self, model: FittedModel) -> list[Subset]:
        """Return sets that the weak form hardly tells from a model, and sets with a term that is nearly the same.

        Of the former the residual is at most twice that of the model.

        Sets that hold all terms of the model or of a set that is listed already, and sets that the model holds, are
        left out.
        """
        best = self.weak_rms(model.subset)
        own = set(model.subset)
        # One term in place of another that is nearly a multiple of it in the fitted field.
        unit = self._weak[0] / np.linalg.norm(self._weak[0], axis=1)[:, None]
        alike = np.abs(unit @ unit.T)
        pairs = [(alike[i, j], i, j) for i in own for j in range(self.size) if j not in own]
        nearest = sorted((pair for pair in pairs if pair[0] > ALIKE), reverse=True)[:SEVERAL]
        swapped = [tuple(sorted({*own, j} - {i})) for _, i, j in nearest]
        near = list(swapped)
        for size in range(1, len(own) + 2):
            # Of the next size, sets with one term more than the model come first.
            for subset in self._weak[2].best_of_size(size, self.size + SEVERAL):
                apart = not (own <= set(subset) or any(set(least) <= set(subset) for least in near))
                if apart and not set(subset) <= own and self.weak_rms(subset) < 2 * best:
                    near.append(subset)
        return near[: len(swapped) + SEVERAL]


def explore(library: Library) -> None:
    """Fit the sets of terms that may be the best.

    The first sets come from the weak form. About the best of them follow the best sets of the linearised sums of
    squares, and sets that the weak form hardly tells from it, until the best stands.
    """
    coefficients = library.problem.coefficients
    library.fit((), coefficients, np.zeros(library.size))
    for subset in library.weak_starts():
        library.fit(subset, coefficients, library.weak_constants(subset), hasty=True)
    done: set[Subset] = set()
    while (model := library.ranked()[0]).subset not in done:
        done.add(model.subset)
        if (parabola := library.linearised(model)) is not None:
            nearest = parabola.ranked(SEVERAL)
            for cost, subset in nearest:
                hasty = cost - nearest[0][0] >= CLEAR
                library.fit(subset, model.coefficients, library.theta(model), hasty=hasty)
        for subset in library.alternatives(model):
            library.fit(subset, coefficients, library.weak_constants(subset), hasty=True)
