"""Sets of terms by an information criterion, where the sum of squares is a parabola in their constants."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cached_property

import numpy as np

from xspline.pde.profile.axes import Array, Integers
from xspline.solve.smoothing.fit import ROUNDING

Subset = tuple[int, ...]  # numbers of terms, in rising order

WIDTH = 200  # sets of each size of which all that have a term more are looked at
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
