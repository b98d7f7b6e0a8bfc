"""How many functions each coordinate gets by default, as far as the data have a say: REML among nested spaces.

Labels say how many functions a coordinate can have, not which of them the data need. Where all of them would take
longer than the budget, the sums are computed once in the finest space (`Budget.nested`); those of every space that lies
in it follow without the data. From the coarsest one on, the coordinate is refined whose refinement gains most
likelihood for the coefficients that it adds, with the strengths of the penalty carried along, as these do not depend on
knots. That is done while a look at the likelihood is quick. Beyond, the variance that the functions of a coordinate
cannot follow is taken to fall by the same share with every doubling of its cells; of the few spaces within the budget
that should leave least of it the likelihood takes one.

Where finer cells than there is time for would still gain, in three coordinates or more, the same is done in linear
splines, whose coefficients cost a tenth, from sums of their own: rough fields are nearer with more of them, smooth ones
with cubics. The likelihood tells, at strengths that are searched for in either.

Nothing here knows the machine or the order of tasks: equal sums give equal spaces.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from xspline import execution
from xspline.labels.read.sizes import Budget, listed
from xspline.labels.statistics import Data, Part, Statistics
from xspline.solve import Resources, SingularSystemError, likelihood, nearly_product, restricted
from xspline.solve.costs import COSTS
from xspline.spaces import Basis, BSpline, Space, Union
from xspline.sums import Sums
from xspline.sums.integrals import with_events

Counts = tuple[int, ...]  # functions of each coordinate of the space
REFINED = (2, 4, 16)  # times the cells of one coordinate, as what two cells do not follow more may: waves
DOUBLED = 1.7  # what counts as twice the cells, where these are no even number
USUAL = 0.5  # of the variance that one coordinate leaves: what it leaves with twice the cells, where nothing tells,
LEAST_LEFT, MOST_LEFT = 0.1, 0.9  # and what else it may be
SEARCHED = 0.1  # of the longest look: strengths are looked for up to there, and carried along beyond
RIVALS, LONGEST = 3, 6.0  # so many spaces are compared at last, which take so many of the longest looks each
UNEVEN = 3.0  # what one shape may have of the coefficients of another that costs the same
LITTLE = 1e-4  # of all variance that is left: a coordinate that gains nothing is refined last
WANTING = (
    0.02  # of the variance that is left: what finer cells have to take of it for linear splines to be tried
)
GAIN = 1.0  # of a log-likelihood: less tells nothing


class Score(NamedTuple):
    """The likelihood of one space.

    Parameters
    ----------
    value : float
        Its negative logarithm, over all variables; infinite where there is none.
    rho : tuple of ndarray
        For each variable where it was taken.
    """

    value: float
    rho: tuple[np.ndarray, ...]


NOTHING = Score(math.inf, ())


def spread(
    statistics: Statistics[Data], budget: Budget, again: Callable[[Space], Statistics[Data]]
) -> Statistics[Data]:
    """Return the statistics in the nested space that the likelihood prefers within a budget.

    Where they come from says what it was chosen from (``summary()`` of a field shows it).

    Parameters
    ----------
    statistics : Statistics
        Computed ones, in the finest space.
    budget : Budget
        With the numbers of functions of the nested spaces.
    again : callable
        To the statistics of the same data in another space, that of linear splines.
    """
    nested = NestedSpaces.of(statistics, budget)
    counts = nested.chosen()
    if budget.linear and budget.linear.space and nested.gains_from_more(counts):
        other = again(budget.linear.space)
        linear = NestedSpaces.of(other, budget.linear.budget)
        more = linear.chosen()
        if linear.expected(more) < nested.expected(counts):
            statistics, nested, counts = other, linear, more
    space = nested.space(counts)
    how = f"by the likelihood among spaces that lie in {listed(nested.named(statistics.space.shape))}"
    how += ", linear splines" * (nested.budget.degree == 1)
    if budget.alike and counts == statistics.space.shape:
        how = "as many as there is time for with gaps that are (nearly) the same at all times"
    told = f"{how}; {nested.seconds(counts):.2g} s of {budget.seconds:g} s to choose the penalty"
    parts = []
    for part in statistics.parts:
        sums = {n: restricted(s, statistics.space, space) for n, s in part.sums.items()}
        parts.append(Part.of(sums, part.holder or None, {**part.provenance, "spread": told}))
    return replace(statistics, space=space, parts=tuple(parts))


@dataclass(eq=False)
class NestedSpaces:
    """The sums of some variables in a space and in those that lie in it.

    Parameters
    ----------
    totals : sequence of Sums
    fine : Space
    budget : Budget
    """

    totals: Sequence[Sums]
    fine: Space
    budget: Budget
    _sums: dict[Counts, list[Sums]] = field(default_factory=dict)
    _scores: dict[Counts, Score] = field(default_factory=dict)
    _reached: tuple[Counts, Score] = ((), NOTHING)  # the end of the path of looks,
    _left: list[tuple[float, float]] = field(default_factory=list)  # and what its coordinates leave

    def __post_init__(self) -> None:
        self._sums[self.fine.shape] = list(self.totals)
        self.resources = Resources(cores=1, memory=COSTS.default_memory, costs=COSTS)

    @staticmethod
    def of(statistics: Statistics[Data], budget: Budget) -> NestedSpaces:
        """Those of all variables."""
        totals = [statistics.total(name) for name in statistics.variables]
        return NestedSpaces(totals, statistics.space, budget)

    @property
    def ladders(self) -> list[Counts]:
        """Of each coordinate the numbers of functions to choose from, ascending."""
        return [
            self.budget.ladders.get(n, (k,)) for n, k in zip(self.fine.names, self.fine.shape, strict=True)
        ]

    @property
    def observations(self) -> int:
        """Of all variables."""
        return max(sum(int(sums.count.sum()) for sums in self.totals), 1)

    def named(self, counts: Counts) -> dict[str, int]:
        """The numbers of functions that there is a choice of."""
        by_name = zip(self.fine.names, counts, self.ladders, strict=True)
        return {name: k for name, k, ladder in by_name if len(ladder) > 1}

    def cells(self, counts: Counts) -> list[int]:
        """Cells between the knots of each coordinate; 1 of a coordinate without a B-spline."""
        splines = (_spline(basis) for _, basis in self.fine.axes.values())
        known = zip(counts, self.fine.shape, splines, strict=True)
        return [1 if b is None else max(k - size + _cells(b), 1) for k, size, b in known]

    def space(self, counts: Counts) -> Space:
        """The nested space with so many functions: fewer B-splines, of events too, or no events."""
        bases: dict[str, Basis | int] = {}
        for (name, (_, basis)), k in zip(self.fine.axes.items(), counts, strict=True):
            bases[name] = basis
            if k == basis.count or (spline := _spline(basis)) is None:
                continue
            fewer = replace(spline, size=size) if (size := spline.count - basis.count + k) > 0 else None
            if isinstance(basis, Union):
                others = tuple(term for term in basis.terms if term is not spline)
                bases[name] = Union((*others, fewer)) if fewer else functools.reduce(operator.add, others)
            elif fewer:
                bases[name] = fewer
        axes = {name: axis for name, (axis, _) in self.fine.axes.items()}
        return Space(bases, axes=axes, from_data=self.fine.from_data)

    def sums(self, counts: Counts) -> list[Sums]:
        """The sums of each variable in a nested space, from the smallest known ones that it lies in."""
        if counts not in self._sums:
            nearest = min((c for c in self._sums if self._lies_in(counts, c)), key=math.prod)
            if (between := self._halved(nearest, counts)) != nearest:  # from which others follow sooner, too
                self.sums(between)
                return self.sums(counts)
            space, finer = self.space(counts), self.space(nearest)
            self._sums[counts] = [restricted(sums, finer, space) for sums in self._sums[nearest]]
        return self._sums[counts]

    def _lies_in(self, counts: Counts, finer: Counts) -> bool:
        cells = zip(self.cells(finer), self.cells(counts), strict=True)
        return all(n % k == 0 for n, k in cells)

    def _halved(self, counts: Counts, coarse: Counts) -> Counts:
        """Some space between two others, with half of the cells of each coordinate or fewer where there is such."""
        out = counts
        for j, ladder in enumerate(self.ladders):
            fewer = [
                _with(out, j, k)
                for k in ladder
                if 2 * self.cells(_with(out, j, k))[j] <= self.cells(counts)[j]
            ]
            inside = [c for c in fewer if self._lies_in(c, counts) and self._lies_in(coarse, c)]
            out = inside[-1] if inside else out
        return counts if out == coarse else out

    # ---- costs

    def seconds(self, counts: Counts) -> float:
        """About what the search for the smoothing and the solve take one core."""
        space = self.space(counts)
        # Which factors G has is known here, so whether gaps are alike at all times.
        estimates = (
            times * execution.search_seconds(space, groups, math.prod(sums.gram.batch), alike=True)
            for sums, groups, times in self._costly(space)
        )
        return sum(estimates)

    def _costly(self, space: Space) -> Iterator[tuple[Sums, list[tuple[int, ...]], float]]:
        """Of each variable the sums, the axes of the factors of G, or of what it nearly is, and how often it counts."""
        events = next((space.names.index(name) for name in with_events(space)), None)
        for sums, nearly in zip(self.totals, self.nearly, strict=True):
            if events is not None and nearly == events:
                others = tuple(j for j in range(len(space.shape)) if j != events)
                yield sums, [others, (events,)], COSTS.nearly_times
            else:
                yield sums, _groups(sums), 1.0

    @functools.cached_property
    def nearly(self) -> list[int | None]:
        """Of each variable the axis of events, where G is nearly a product of that and the others, and none."""
        axes = [self.fine.names.index(name) for name in with_events(self.fine)]
        frame = self.fine.frame
        return [
            next((j for j in axes if nearly_product(sums.gram, frame, j) is not None), None)
            for sums in self.totals
        ]

    def within_reach(self) -> list[Counts]:
        """The nested spaces by their numbers of coefficients, without those of several times what is affordable."""
        shapes = sorted(itertools.product(*self.ladders), key=lambda c: (math.prod(c), c))
        seconds = self.budget.seconds
        affordable = shapes[bisect.bisect_right(shapes, seconds, hi=len(shapes) - 1, key=self.seconds)]
        return [c for c in shapes if math.prod(c) <= UNEVEN * math.prod(affordable)]

    def look(self, counts: Counts) -> float:
        """About what one look at the likelihood takes, as a share of the longest that is taken."""
        space = self.space(counts)
        looks = (
            execution.score_seconds(space, groups, math.prod(sums.gram.batch))
            for sums, groups, _ in self._costly(space)
        )
        return sum(looks) / (COSTS.scored_share * self.budget.seconds)

    # ---- likelihoods

    def score(self, counts: Counts, start: Score = NOTHING, *, search: bool = False) -> Score:
        """The likelihood in a nested space: the one known, at other strengths, or that of a search from there."""
        if counts in self._scores and not search:
            return self._scores[counts]
        space, values, rho = self.space(counts), [], []
        self._scores[counts] = NOTHING
        try:
            for i, sums in enumerate(self.sums(counts)):
                own = start.rho[i] if start.rho else None
                value, at = likelihood(sums, space, own, search=search, resources=self.resources)
                values.append(value)
                rho.append(at)
        except (SingularSystemError, ValueError):
            return NOTHING
        if math.isfinite(total := float(sum(values))):
            self._scores[counts] = Score(total, tuple(rho))
        return self._scores[counts]

    def refined(self, counts: Counts, times: float = 2) -> Iterable[Counts]:
        """The spaces with about so many times the cells along one coordinate."""
        cells = self.cells(counts)
        for j, ladder in enumerate(self.ladders):
            finer = (
                k for k in ladder if self.cells(_with(counts, j, k))[j] >= DOUBLED * times / 2 * cells[j]
            )
            if (k := next(finer, None)) is not None:
                yield _with(counts, j, k)

    def greedy(self) -> tuple[Counts, Score]:
        """The end of the path from the coarsest space, refining what gains most, while scores are quick."""
        counts = tuple(ladder[0] for ladder in self.ladders)
        here = self.score(counts, search=True)
        while here is not NOTHING:
            candidates = {c for times in REFINED for c in self.refined(counts, times) if self.look(c) <= 1}
            scores = {c: self.score(c, here) for c in sorted(candidates)}
            gains = {
                c: (here.value - score.value) / math.log(math.prod(c) / math.prod(counts))
                for c, score in scores.items()
            }
            best = max(gains, key=gains.__getitem__, default=counts)
            if gains.get(best, 0.0) < GAIN:
                break
            counts, here = best, scores[best]
            if self.look(best) <= SEARCHED:
                searched = self.score(best, here, search=True)
                here = here if searched is NOTHING else searched
        return counts, here

    def left(self, counts: Counts, here: Score) -> list[tuple[float, float]]:
        """Of each coordinate: the variance that its cells leave, and what share of that twice as many would leave.

        In units of all variance that is left, noise included. Told by the scores of spaces with about twice and half of
        its cells: u (1 − r^a) is gained by a doublings and u (r^-b − 1) is lost by b halvings.
        """
        n, cells, out = self.observations, self.cells(counts), []
        finer = {_changed(c, counts): c for c in self.refined(counts) if self.look(c) <= LONGEST}
        for j, ladder in enumerate(self.ladders):
            gain = loss = up = down = 0.0
            if j in finer:
                up = math.log2(self.cells(finer[j])[j] / cells[j])
                gain = -math.expm1(-_step(here, self.score(finer[j], here), n))
            if coarser := [k for k in ladder if DOUBLED * self.cells(_with(counts, j, k))[j] <= cells[j]]:
                coarse = _with(counts, j, coarser[-1])
                down = math.log2(cells[j] / self.cells(coarse)[j])
                loss = math.expm1(_step(self.score(coarse, here), here, n))
            out.append(_decay(gain, up, loss, down))
        return out

    # ---- the choice

    def chosen(self) -> Counts:
        """The nested space within the budget that the likelihood prefers: of those that should leave least.

        The finest one where that is within the budget, as gaps are the same at all times.
        """
        if self.budget.alike and self.seconds(self.fine.shape) <= self.budget.seconds:
            return self.fine.shape
        counts, here = self.greedy()
        left = [(1.0, USUAL)] * len(counts)
        if here is NOTHING:  # as many as labels support, less one factor
            counts = tuple(ladder[-1] for ladder in self.ladders)
        else:
            left = self.left(counts, here)
        self._reached, self._left, best = (counts, here), left, list[Counts]()
        within = self.within_reach()
        for other in sorted(within, key=lambda c: (self.remaining(c), math.prod(c))):
            # What lies in a better one is no rival.
            if any(all(k <= n for k, n in zip(other, c, strict=True)) for c in best):
                continue
            if self.seconds(other) <= self.budget.seconds:
                best.append(other)
            if len(best) == RIVALS:
                break
        if here is NOTHING or len(best) < 2:
            return next(iter(best), within[0])
        looks = {c: self.score(c, here).value for c in best if self.look(c) <= LONGEST}
        return min(looks, key=looks.__getitem__) if len(looks) == len(best) else best[0]

    def remaining(self, other: Counts) -> float:
        """The variance that a space should leave, in units of all that is left at the end of the looks."""
        doublings = np.log2(np.array(self.cells(other)) / self.cells(self._reached[0]))
        return float(sum(u * share**d for (u, share), d in zip(self._left, doublings, strict=True)))

    def expected(self, counts: Counts) -> float:
        """The score of a space where strengths are searched for, by what that changes at the end of the looks."""
        reached, here = self._reached
        known, searched = self._scores.get(counts, NOTHING), self.score(reached, here, search=True)
        if known is not NOTHING:
            return searched.value + known.value - here.value
        rest = 1.0 - self.remaining(reached) + self.remaining(counts)
        return searched.value + self.observations / 2 * math.log(max(rest, LITTLE))

    def gains_from_more(self, counts: Counts) -> bool:
        """Whether the likelihood asks for finer cells than there is time for."""
        if self._reached[1] is NOTHING:  # no look, or as many as labels support
            return False
        rest = 1.0 - self.remaining(self._reached[0]) + self.remaining(counts)
        gain = self.remaining(counts) - self.remaining(self.fine.shape)
        return gain > WANTING * rest


def _decay(gain: float, up: float, loss: float, down: float) -> tuple[float, float]:
    """u and r where u (1 − r^up) is gained and u (r^-down − 1) is lost; one of both may be unknown (of 0 doublings)."""
    gain, loss = max(gain, LITTLE), max(loss, LITTLE)
    share = USUAL
    if up and down:
        shares = np.linspace(LEAST_LEFT, MOST_LEFT, 81)
        share = float(shares[np.argmin(np.abs((1 - shares**up) / (shares**-down - 1) - gain / loss))])
    return (gain / (1 - share**up) if up else loss / (share ** -(down or 1.0) - 1)), share


def _changed(counts: Counts, other: Counts) -> int:
    """The coordinate along which two spaces differ."""
    return next(j for j, (a, b) in enumerate(zip(counts, other, strict=True)) if a != b)


def _step(coarse: Score, fine: Score, n: int) -> float:
    """Logarithm of the variance that is left in one space over that in another."""
    step = 2 * (coarse.value - fine.value) / n
    return step if math.isfinite(step) else 0.0


def _spline(basis: Basis) -> BSpline | None:
    """The B-spline of a coordinate, which may be that of the events of a union."""
    terms = basis.terms if isinstance(basis, Union) else (basis,)
    return next((term for term in terms if isinstance(term, BSpline)), None)


def _cells(spline: BSpline) -> int:
    return spline.count - (0 if spline.period else spline.degree)


def _with(counts: Counts, j: int, k: int) -> Counts:
    return (*counts[:j], k, *counts[j + 1 :])


def _groups(sums: Sums) -> list[tuple[int, ...]]:
    """The coefficient axes of each factor of G; all together where it is a sum of products."""
    terms = sums.gram.terms
    if len(terms) == 1:
        return [factor.axes for factor in terms[0] if factor.axes]
    return [tuple(range(len(sums.window)))]
