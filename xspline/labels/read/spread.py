"""How many functions each coordinate gets by default, as far as the data have a say: REML among nested spaces.

Labels say how many functions a coordinate can have, not which of them the data need. Where all of them would take
longer than the budget, the sums are computed once in the finest space (`Budget.nested`); those of every space that lies
in it follow without the data. From the coarsest one on, the coordinate is refined whose refinement gains most
likelihood for the coefficients that it adds, with the strengths of the penalty carried along, as these hardly depend on
knots. That is done while a look at the likelihood is quick. Beyond, the variance that the functions of a coordinate
cannot follow is taken to fall by the same share with every doubling of its cells; of the few spaces within the budget
that should leave least of it the likelihood takes one. Its strengths are searched for in one that lies in it and is
quick, so that it can be as large as a solve or two allow, not a search.

Where finer cells than there is time for would still gain, or there are events, in three coordinates or more, the same
is done in linear splines: rough fields are nearer with these, smooth ones with cubics. They start from the strengths of
cubics. Looks are part of the budget. Nothing here knows the machine.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from xspline import execution
from xspline.labels.fit import Looks
from xspline.labels.read.sizes import (
    LITTLE,
    MOST_LEFT,
    USUAL,
    Budget,
    cells_of,
    decay,
    groups_of,
    listed,
    spline_of,
)
from xspline.labels.statistics import Data, Statistics
from xspline.solve import Resources, SingularSystemError, first_order, likelihood, nearly_product, restricted
from xspline.solve.costs import COSTS
from xspline.spaces import Basis, Space, Union
from xspline.sums import Sums
from xspline.sums.integrals import with_events

Counts = tuple[int, ...]  # functions of each coordinate of the space
Refinement = tuple[int, float]  # a coordinate, and how many times its cells
REFINED = (2, 4, 16)  # times the cells of one coordinate, as what two cells do not follow more may: waves
DOUBLED = 1.7  # what counts as twice the cells, where these are no even number
SEARCHED = 0.5  # of the longest look: strengths are looked for up to there, and carried along beyond
RIVALS, LONGEST = 2, 4.0  # so many spaces are compared at last, which take so many of the longest looks each
BEYOND = 2.5  # of the longest looks: what one takes that tells how much finer cells still gain
SETTLED = 2.5  # of the longest look: where strengths are searched for that the last space is given,
SETTLED_SHARE, FEWER = 0.3, 0.6  # of a look at that, and of its coefficients
BRIEFLY = 0.3  # of the longest looks, and of the time for all: cubics' share before linear splines are tried
ON_THE_WAY = 1.3  # seconds of budget, times the degree, from which there is time to search before the end
KEPT = 0.6  # of the budget is for a fit: estimates of small ones are too long by as much
UNEVEN = 3.0  # what one shape may have of the coefficients of another that costs the same
WANTING = 0.02  # of the variance that is left: what finer cells would take where linear splines are tried
GAIN = 1.0  # of a log-likelihood: less tells nothing
ALIKE = 0.01  # of the variance that is left: spaces this near count as one, and the smaller is taken


class Score(NamedTuple):
    """The likelihood of one space."""

    value: float  # its negative logarithm, over all variables; infinite where there is none
    rho: tuple[np.ndarray, ...]  # for each variable where it was taken


NOTHING = Score(math.inf, ())


def spread(
    statistics: Statistics[Data], budget: Budget, again: Callable[[Space], Statistics[Data]]
) -> tuple[Statistics[Data], Looks]:
    """Return the statistics in the nested space that the likelihood prefers within a budget, and what looks told.

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
    nested.explore(BRIEFLY if budget.linear else 1.0)
    if budget.linear and budget.linear.space and nested.gains_from_more(nested.chosen(1, BRIEFLY)):
        other = again(budget.linear.space)
        linear = NestedSpaces.of(other, budget.linear.budget, nested.spent)
        linear.explore(start=nested.first_order())
        if linear.is_likelier_than(nested):
            statistics, nested = other, linear
    nested.explore()
    counts, strengths = nested.settled(nested.chosen())
    space = nested.space(counts)
    how = f"by the likelihood among spaces that lie in {listed(nested.named(statistics.space.shape))}"
    how += ", linear splines" * (nested.budget.degree == 1)
    if budget.alike and counts == statistics.space.shape:
        how = "as many as there is time for with gaps that are (nearly) the same at all times"
    told = f"{how}; {nested.spent + nested.seconds(counts):.2g} s of {budget.seconds:g} s for that and the penalty"
    parts = tuple(part.within(statistics.space, space, told) for part in statistics.parts)
    starts = dict(zip(statistics.variables, strengths, strict=False))
    finer = None if counts == statistics.space.shape else statistics
    return replace(statistics, space=space, parts=parts), Looks(starts, finer)


@dataclass(eq=False)
class NestedSpaces:
    """The sums of some variables in a space and in those that lie in it."""

    totals: Sequence[Sums]
    fine: Space
    budget: Budget
    spent: float = 0.0  # seconds that looks are expected to have taken
    _sums: dict[Counts, list[Sums]] = field(default_factory=dict)
    _scores: dict[Counts, Score] = field(default_factory=dict)
    _reached: tuple[Counts, Score] = ((), NOTHING)  # the end of the path of looks,
    _left: list[tuple[float, float]] = field(default_factory=list)  # and what its coordinates leave
    _seen: float = 0.0  # how long looks were on it,
    _until: float = math.inf  # and seconds after which there are no more
    _searched: set[Counts] = field(default_factory=set)
    _costs: dict[Counts, tuple[float, float]] = field(default_factory=dict)  # of a fit and of a look

    def __post_init__(self) -> None:
        self._sums[self.fine.shape] = list(self.totals)
        self.resources = Resources(cores=1, memory=COSTS.default_memory, costs=COSTS)

    @staticmethod
    def of(statistics: Statistics[Data], budget: Budget, spent: float = 0.0) -> NestedSpaces:
        """Those of all variables."""
        totals = [statistics.total(name) for name in statistics.variables]
        return NestedSpaces(totals, statistics.space, budget, spent)

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
        splines = (spline_of(basis) for _, basis in self.fine.axes.values())
        known = zip(counts, self.fine.shape, splines, strict=True)
        return [1 if b is None else max(k - size + cells_of(b), 1) for k, size, b in known]

    def space(self, counts: Counts) -> Space:
        """The nested space with so many functions: fewer B-splines, of events too, or no events."""
        bases: dict[str, Basis | int] = {}
        for (name, (_, basis)), k in zip(self.fine.axes.items(), counts, strict=True):
            bases[name] = basis
            if k == basis.count or (spline := spline_of(basis)) is None:
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
            self.spent += sum(s.gram.nbytes for s in self._sums[nearest]) / COSTS.projected_bytes_per_second
            self._sums[counts] = [restricted(sums, finer, space) for sums in self._sums[nearest]]
        return self._sums[counts]

    def _lies_in(self, counts: Counts, finer: Counts) -> bool:
        cells = zip(self.cells(finer), self.cells(counts), strict=True)
        return all(n % k == 0 for n, k in cells)

    def _halved(self, counts: Counts, coarse: Counts) -> Counts:
        """Some space between two others, with half of the cells of each coordinate or fewer where there is such."""
        out = counts
        for j, ladder in enumerate(self.ladders):
            half = self.cells(counts)[j] / 2
            fewer = [c for c in (_with(out, j, k) for k in ladder) if self.cells(c)[j] <= half]
            inside = [c for c in fewer if self._lies_in(c, counts) and self._lies_in(coarse, c)]
            out = inside[-1] if inside else out
        return counts if out == coarse else out

    # ---- costs

    def seconds(self, counts: Counts) -> float:
        """About what the smoothing and the solve take one core, from strengths of a coarser space."""
        return self._cost(counts)[0]

    def look(self, counts: Counts) -> float:
        """About what one look at the likelihood takes, as a share of the longest that is taken."""
        return self._cost(counts)[1] / (COSTS.scored_share * self.budget.seconds)

    def _cost(self, counts: Counts) -> tuple[float, float]:
        if counts not in self._costs:
            space, fit, look = self.space(counts), 0.0, 0.0
            for sums, groups, times in self._costly(space):
                systems = math.prod(sums.gram.batch)
                # Which factors G has is known here, so whether gaps are alike at all times.
                fit += times * execution.search_seconds(space, groups, systems, alike=True, known=True)
                look += execution.score_seconds(space, groups, systems) - COSTS.step_seconds
            self._costs[counts] = fit, look
        return self._costs[counts]

    @property
    def rest(self) -> float:
        """Seconds of the budget that looks have left, most of it at least."""
        return max(self.budget.seconds - self.spent, KEPT * self.budget.seconds)

    def _costly(self, space: Space) -> Iterator[tuple[Sums, list[tuple[int, ...]], float]]:
        """Of each variable the sums, the axes of the factors of G, or of what it nearly is, and how often it counts."""
        events = next((space.names.index(name) for name in with_events(space)), None)
        for sums, nearly in zip(self.totals, self.nearly, strict=True):
            if events is not None and nearly == events:
                others = tuple(j for j in range(len(space.shape)) if j != events)
                yield sums, [others, (events,)], COSTS.nearly_times
            else:
                yield sums, groups_of(sums), 1.0

    @functools.cached_property
    def nearly(self) -> list[int | None]:
        """Of each variable the axis of events, where G is nearly a product of that and the others, and none."""
        axes, frame = [self.fine.names.index(name) for name in with_events(self.fine)], self.fine.frame
        return [
            next((j for j in axes if nearly_product(sums.gram, frame, j) is not None), None)
            for sums in self.totals
        ]

    def within_reach(self) -> list[Counts]:
        """The nested spaces by their numbers of coefficients, without those of several times what is affordable."""
        shapes = sorted(itertools.product(*self.ladders), key=lambda c: (math.prod(c), c))
        affordable = shapes[bisect.bisect_right(shapes, self.rest, hi=len(shapes) - 1, key=self.seconds)]
        return [c for c in shapes if math.prod(c) <= UNEVEN * math.prod(affordable)]

    def score(self, counts: Counts, start: Score = NOTHING, *, search: bool = False) -> Score:
        """The likelihood in a nested space: the one known, at other strengths, or that of a search from there."""
        if counts in self._scores and not (search and counts not in self._searched):
            return self._scores[counts]
        self._searched |= {counts} if search else set()
        space, values, rho = self.space(counts), [], []
        self._scores[counts] = NOTHING
        look = COSTS.look_seconds * self.budget.degree + self._cost(counts)[1]
        self.spent += look * (COSTS.look_search if search else 1.0)
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

    def refined(self, counts: Counts, j: int, times: float = 2) -> Counts | None:
        """The space with about so many times the cells along one coordinate, if there is one."""
        least = DOUBLED * times / 2 * self.cells(counts)[j]
        finer = (_with(counts, j, k) for k in self.ladders[j])
        return next((c for c in finer if self.cells(c)[j] >= least), None)

    def greedy(self, longest: float = 1.0, start: Score = NOTHING) -> tuple[Counts, Score]:
        """The end of the path from the coarsest space, refining what gains most, while scores are quick.

        It goes on from where it was. Strengths are searched for on the way while that is quick, from given ones if
        there are any, and before the path ends as nothing gains: few functions need others than many.
        """
        counts, here = self._reached
        if not counts:
            counts = tuple(ladder[0] for ladder in self.ladders)
            here = self.score(counts, start, search=start is NOTHING)
        kept: dict[int, float] = {}  # of coordinates that stayed as they were, how many times gained most
        self._until = max(COSTS.looked_share * self.budget.seconds, COSTS.least_looks) * min(longest, 1.0)
        while here is not NOTHING and self.spent < self._until:
            tried = self._refinements(counts, longest, kept)
            best, gains = self._best(counts, here, tried)
            if gains[best] < GAIN and not kept:
                tried = {key: c for key, c in tried.items() if key[1] == min(REFINED)}
                best, gains = self._best(counts, here, tried, search=True)
                if gains[best] < GAIN:
                    break
            elif gains[best] < GAIN:
                kept = {}
                continue
            kept = {j: max((k for k in gains if k[0] == j), key=gains.__getitem__)[1] for j, _ in gains}
            kept = {j: times for j, times in kept.items() if j not in (-1, best[0])}
            counts, here = tried[best], self._scores[tried[best]]
            if self.look(counts) <= SEARCHED and self.budget.seconds >= ON_THE_WAY * self.budget.degree:
                searched = self.score(counts, here, search=True)
                here = here if searched is NOTHING else searched
        return counts, here

    def _best(
        self, counts: Counts, here: Score, tried: Mapping[Refinement, Counts], *, search: bool = False
    ) -> tuple[Refinement, dict[Refinement, float]]:
        """Which space gains most likelihood for the logarithm of its coefficients, and what each gains."""
        size, gains = math.prod(counts), {(-1, 1.0): 0.0}  # stay
        for key, c in tried.items():
            if self.spent >= self._until and len(gains) > 1:
                break
            gain = here.value - self.score(c, here, search=search).value
            gains[key] = gain / math.log(math.prod(c) / size)
        return max(gains, key=gains.__getitem__), gains

    def _refinements(
        self, counts: Counts, longest: float, kept: Mapping[int, float]
    ) -> dict[Refinement, Counts]:
        """The spaces to look at from one, by the coordinate that is refined and how many times."""
        out: dict[Refinement, Counts] = {}
        for j in range(len(counts)):
            for some in ((kept[j],), REFINED) if j in kept else (REFINED,):
                spaces = {(j, times): self.refined(counts, j, times) for times in some}
                quick = {key: c for key, c in spaces.items() if c is not None and self.look(c) <= longest}
                if quick:
                    out |= quick
                    break
        return out

    def left(self, counts: Counts, here: Score, longest: float) -> list[tuple[float, float]]:
        """Of each coordinate: the variance that its cells leave, and what share of that twice as many would leave.

        In units of all variance that is left, noise included. Told by the scores of spaces with about twice and half of
        its cells: u (1 − r^a) is gained by a doublings and u (r^-b − 1) is lost by b halvings.
        """
        n, cells, out = self.observations, self.cells(counts), []
        for j, ladder in enumerate(self.ladders):
            gain = loss = up = down = 0.0
            if (finer := self.refined(counts, j)) and self.look(finer) <= longest:
                up = math.log2(self.cells(finer)[j] / cells[j])
                gain = -math.expm1(-_step(here, self.score(finer, here), n))
            if coarser := [k for k in ladder if DOUBLED * self.cells(_with(counts, j, k))[j] <= cells[j]]:
                coarse = _with(counts, j, coarser[-1])
                down = math.log2(cells[j] / self.cells(coarse)[j])
                loss = math.expm1(_step(self.score(coarse, here), here, n))
            out.append(decay(gain, up, loss, down))
        together = max(sum(u for u, _ in out) / MOST_LEFT, 1.0)
        return [(u / together, share) for u, share in out]

    @property
    def whole(self) -> bool:
        """Whether the finest space is within the budget, as gaps are the same at all times."""
        return self.budget.alike is not None and self.seconds(self.fine.shape) <= self.budget.seconds

    def explore(self, longest: float = 1.0, start: Score = NOTHING) -> None:
        """Follow the path of looks that take so long, and see what coordinates leave at its end."""
        if self.whole:
            return
        counts, here = self.greedy(longest, start)
        left = [(1.0, USUAL)] * len(counts)
        if here is NOTHING:  # as many as labels support, less one factor
            counts = tuple(ladder[-1] for ladder in self.ladders)
        elif counts == self._reached[0] and longest <= self._seen:
            return
        else:
            left = self.left(counts, here, BEYOND * longest)
        self._reached, self._left, self._seen = (counts, here), left, longest

    def promising(self) -> list[Counts]:
        """Spaces within the budget that should leave least, best first, none inside another."""
        if self.whole:
            return [self.fine.shape]
        within, best, unit = self.within_reach(), list[Counts](), ALIKE * self.observations / 2
        for other in sorted(within, key=lambda c: (np.round(self.expected(c) / unit), math.prod(c))):
            # What lies in a better one is no rival.
            if any(_inside(other, c) for c in best):
                continue
            if self.seconds(other) <= self.rest:
                best.append(other)
            if len(best) == RIVALS:
                break
        return best or within[:1]

    def chosen(self, rivals: int = RIVALS, share: float = 1.0) -> Counts:
        """The nested space within the budget that the likelihood prefers: of so many that should leave least.

        The finest one where that is within the budget, as gaps are the same at all times.
        """
        best, here = self.promising()[:rivals], self._reached[1]
        if here is NOTHING:
            return best[0]
        for c in (c for c in best if self.look(c) <= share * LONGEST):
            self.score(c, here)
        seen = (c for c in self._scores if self.seconds(c) <= self.rest)
        return min([*best, *seen], key=self.expected)

    def remaining(self, other: Counts) -> float:
        """The variance that a space should leave, in units of all that is left at the end of the looks."""
        doublings = np.log2(np.array(self.cells(other)) / self.cells(self._reached[0]))
        return float(sum(u * share**d for (u, share), d in zip(self._left, doublings, strict=True)))

    def expected(self, counts: Counts) -> float:
        """The score of a space by what that of the end of the looks is."""
        reached, here = self._reached
        if here is NOTHING:
            return self.observations / 2 * self.remaining(counts)
        if counts in self._scores:
            return self._scores[counts].value
        rest = 1.0 - self.remaining(reached) + self.remaining(counts)
        return here.value + self.observations / 2 * math.log(max(rest, LITTLE))

    def is_likelier_than(self, other: NestedSpaces) -> bool:
        """Whether a space within the budget should be likelier than one of others."""
        other.spent = self.spent  # looks at either are looks
        (own, ahead), (theirs, far) = self._promised(), other._promised()
        if abs(theirs - own) < (ahead if own < theirs else far):  # all of the lead may be imagined
            other.explore()
            theirs = other.expected(other.chosen(rivals=1))
            self.spent = other.spent
            own = self.expected(self.chosen(rivals=1))
            other.spent = self.spent
        return own < theirs

    def _promised(self) -> tuple[float, float]:
        """What the best space within the budget should score, and how much better that is than what was seen."""
        expected = self.expected(self.promising()[0])
        seen = (score.value for c, score in self._scores.items() if self.seconds(c) <= self.rest)
        return expected, min(seen, default=self._reached[1].value) - expected

    def settled(self, counts: Counts) -> tuple[Counts, tuple[np.ndarray, ...]]:
        """A space, and the strengths that a search finds in one inside it, likely and quick to search.

        Where that is less likely than one inside itself, so may one not seen: then the likeliest of others.
        """
        here, fewer = self._reached[1], FEWER * math.prod(counts)
        if here is NOTHING and not self.whole:
            return counts, ()
        ladders = ([k for k in ladder if k <= n] for n, ladder in zip(counts, self.ladders, strict=True))
        inside = itertools.product(*(x if n in x else [n] for n, x in zip(counts, ladders, strict=True)))
        small = [c for c in inside if math.prod(c) <= fewer]
        small.sort(key=(lambda c: -math.prod(c)) if here is NOTHING else self.expected)
        most = min(SETTLED, SETTLED_SHARE * self.look(counts))
        least = min(small, key=math.prod, default=counts)
        best = next((c for c in small if self.look(c) <= most), least)
        if self.look(best) > FEWER * self.look(counts):
            return counts, here.rho
        settled = self.score(best, here, search=True)
        worse = any(x.value < settled.value for c, x in self._scores.items() if _inside(c, best))
        if worse and counts not in self._scores:
            seen = {c: x for c, x in self._scores.items() if self.seconds(c) <= self.rest}
            likeliest = min(seen, key=lambda c: seen[c].value, default=best)
            return likeliest, self._scores[likeliest].rho
        return counts, (here if settled is NOTHING else settled).rho

    def first_order(self) -> Score:
        """The strengths at the end of the looks as those of linear splines."""
        reached, here = self._reached
        space = self.space(reached)
        sums = zip(self.sums(reached), here.rho, strict=True)
        return Score(math.inf, tuple(first_order(own, space, rho, self.resources) for own, rho in sums))

    def gains_from_more(self, counts: Counts) -> bool:
        """Whether the likelihood asks for finer cells than there is time for, or may ask for roughness of order 1."""
        if self._reached[1] is NOTHING:  # no look, or as many as labels support
            return False
        if with_events(self.fine):  # cubics have order 2 alone
            return True
        rest = 1.0 - self.remaining(self._reached[0]) + self.remaining(counts)
        gain = self.remaining(counts) - self.remaining(self.fine.shape)
        cut = self._until <= self.spent and self.budget.seconds > COSTS.least_looks  # too soon to know
        return gain > WANTING * rest or cut


def _step(coarse: Score, fine: Score, n: int) -> float:
    """Logarithm of the variance that is left in one space over that in another."""
    step = 2 * (coarse.value - fine.value) / n
    return step if math.isfinite(step) else 0.0


def _inside(counts: Counts, finer: Counts) -> bool:
    return all(k <= n for k, n in zip(counts, finer, strict=True))


def _with(counts: Counts, j: int, k: int) -> Counts:
    return (*counts[:j], k, *counts[j + 1 :])
