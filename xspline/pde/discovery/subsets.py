"""Sets of terms by an information criterion, where the sum of squares is a parabola in their constants."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

import numpy as np

from xspline.pde.profile.axes import ROUNDING, Array, Integers

Subset = tuple[int, ...]  # numbers of terms, in rising order

# Sets of terms, some 0.2 s: of more, a search by elimination and swaps looks at a part.
LARGEST_SWEEP = 60_000
CLEAR = 10.0  # of BIC: very strong evidence (Kass and Raftery 1995), from which an equation is claimed


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
        scale = np.sqrt(np.diag(information))
        values, vectors = np.linalg.eigh(information / np.outer(scale, scale))
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

    def ranked(self, most: int) -> list[tuple[float, Subset]]:
        """Return the best sets with their costs, best first, from all small sets and a search among larger ones."""
        costs: dict[Subset, float] = {}
        total = 0
        size = 0
        while size <= self.candidates and (total := total + math.comb(self.candidates, size)) < LARGEST_SWEEP:
            subsets = self._of_size(size)
            own = self.costs(subsets)
            first = np.argsort(own, kind="stable")[:most]
            costs |= {tuple(subsets[i].tolist()): float(own[i]) for i in first}
            size += 1
        if size <= self.candidates:
            costs |= self._searched()
        return sorted((cost, subset) for subset, cost in costs.items())[:most]

    def best_of_size(self, size: int, most: int) -> list[Subset]:
        """Return the best sets of one size; none where there are more sets than can be looked at."""
        if math.comb(self.candidates, size) > LARGEST_SWEEP:
            return []
        subsets = self._of_size(size)
        return [tuple(subsets[i].tolist()) for i in np.argsort(self.costs(subsets), kind="stable")[:most]]

    def best_by_size(self, largest: int) -> list[Subset]:
        """Return the best set of each size from one up: of all sets, or of sets that extend the one before."""
        best: list[Subset] = []
        for size in range(1, min(largest, self.candidates) + 1):
            if not best or math.comb(self.candidates, size) <= LARGEST_SWEEP:
                subsets = self._of_size(size)
            else:
                outside = [i for i in range(self.candidates) if i not in best[-1]]
                subsets = np.array([sorted((*best[-1], i)) for i in outside])
            best.append(tuple(subsets[np.argmin(self.costs(subsets))].tolist()))
        return best

    def _of_size(self, size: int) -> Integers:
        flat = itertools.chain.from_iterable(itertools.combinations(range(self.candidates), size))
        return np.fromiter(flat, np.int64).reshape(math.comb(self.candidates, size), size)

    def _searched(self) -> dict[Subset, float]:
        """Return the sets that backward elimination meets, and then single changes and swaps until none helps."""
        current = frozenset(range(self.candidates))
        costs = {current: self.cost(current)}
        while current:
            current = min((current - {i} for i in current), key=self.cost)
            costs[current] = self.cost(current)
        current = min(costs, key=lambda subset: costs[subset])
        while True:
            outside = frozenset(range(self.candidates)) - current
            changes = [current ^ {i} for i in range(self.candidates)]
            changes += [current - {i} | {j} for i in current for j in outside]
            better = min(changes, key=self.cost)
            costs[better] = self.cost(better)
            if costs[better] >= costs[current]:
                return {tuple(sorted(subset)): cost for subset, cost in costs.items()}
            current = better
