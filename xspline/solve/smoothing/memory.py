"""The correlation ρ of AR(1) errors by REML, from sums that know it for every ρ; and what the choice leaves open."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from xspline.solve.costs import Resources
from xspline.solve.direct.cholesky import Array
from xspline.solve.penalties.roughness import Penalty
from xspline.solve.smoothing.fit import SMALLEST, centred
from xspline.solve.solution import Solution, solve
from xspline.spaces import Space
from xspline.sums import Gram, Sums
from xspline.sums.memory import whitened
from xspline.threads import single_threaded_blas


@dataclass(frozen=True, eq=False)
class Likelihood:
    """The restricted likelihood of ρ, one for each member of a batch, under a penalty.

    Parameters
    ----------
    sums : with all of their edges joined.
    most : of |ρ|.
    inflation : how many times more than others the errors vary that functions follow, as where they are alike in space:
        each coefficient takes so many residuals. A number, or [b..].
    """

    sums: Sums
    space: Space
    penalty: Penalty
    solver: str | None = None
    resources: Resources = field(default_factory=Resources.here)
    most: float = 0.995
    inflation: Array | float = 1.0

    def solution(self, rho: Array) -> tuple[Sums, Solution]:
        """Return the sums that ρ gives, about their mean, and their solution."""
        sums = centred(whitened(self.sums, rho, self.space.frame), self.space)
        return sums, solve(sums, self.space, self.penalty, self.solver, resources=self.resources)

    def score(self, rho: Array, solved: tuple[Sums, Solution] | None = None) -> Array:
        """Return its negative logarithm up to a constant, [b..]; infinite for members that are not determined."""
        frame = self.space.frame
        sums, solution = solved or self.solution(rho)
        matrix = self.penalty.bound(sums.gram, self.space).gram(self.space)
        deviance = np.maximum(solution.rss, 0.0)
        if matrix.terms:
            deviance = deviance + matrix.with_batch_axes(sums.batch_ndim).form(solution.coefficients, frame)
        free = self._null(matrix)
        degrees = np.maximum(sums.count - self.inflation * free, 1)
        logdet = self.inflation * solution.factorisation.logdet()
        value = degrees * np.log(np.maximum(deviance, SMALLEST)) + logdet
        memory = self.sums.memory
        of_errors = 0.0 if memory is None else memory.logdet(rho)
        full = np.broadcast_to((value + of_errors) / 2, self.sums.batch)
        # Rounding errors may hide that there are fewer observations than functions.
        return np.where(np.isfinite(full) & (sums.count >= free), full, np.inf)

    def _null(self, matrix: Gram) -> int:
        """Return the number of functions that the penalty leaves free."""
        size = self.space.size
        if not matrix.terms:
            return size
        if size > 1024:  # those that it does not know at all
            return int((matrix.diagonal(self.space.frame) == 0).sum())
        terms = (Gram((term,)).to_dense(self.space.frame).reshape(size, size) for term in matrix.terms)
        # Each by itself, as strengths may be far apart.
        return size - int(np.linalg.matrix_rank(sum(x / (np.trace(x) or 1.0) for x in terms)))

    @single_threaded_blas()
    def maximum(self) -> tuple[Array, Array]:
        """Return artanh ρ where it is largest, and its standard deviation there, [b..]."""
        most = math.atanh(self.most)
        grid = np.linspace(-most / 2, most, 12)
        batch = self.sums.batch
        scores = np.stack([self.score(np.full(batch, math.tanh(z))) for z in grid])
        best = np.argmin(scores, axis=0).clip(1, grid.size - 2)
        z, step = grid[best], float(grid[1] - grid[0])
        below, here, above = (np.take_along_axis(scores, best[None] + i, 0)[0] for i in (-1, 0, 1))
        for round_ in range(3):
            if round_:
                below, here, above = (
                    self.score(np.tanh(np.clip(z + i * step, -most, most))) for i in (-1, 0, 1)
                )
            with np.errstate(invalid="ignore", divide="ignore"):
                curvature = (below - 2 * here + above) / step**2
                newton = (below - above) / (2 * step * curvature)
                downhill = np.where(below < above, -step, step)
                move = np.where(curvature > 0, np.clip(newton, -step, step), downhill)
            z = np.clip(z + np.where(np.isfinite(move), move, 0.0), -most, most)
            step /= 4
        with np.errstate(invalid="ignore", divide="ignore"):
            spread = 1 / np.sqrt(curvature)
        known = np.isfinite(here)
        return np.where(known, z, 0.0), np.where(known & (spread < 1.0), spread, 1.0)

    def nodes(self, z: Array, spread: Array) -> list[tuple[Array, Array, tuple[Sums, Solution]]]:
        """Return ρ about its likeliest value, their shares of the posterior under a flat prior, and solutions."""
        most = math.atanh(self.most)
        rhos = [np.tanh(np.clip(z + i * spread, -most, most)) for i in range(-3, 4)]
        solved = [self.solution(rho) for rho in rhos]
        scores = np.stack([self.score(rho, own) for rho, own in zip(rhos, solved, strict=True)])
        lowest = np.min(scores, axis=0)
        known = np.isfinite(lowest)
        shares = np.exp(np.where(known, lowest, 0.0) - np.where(known, scores, 0.0)) * (
            1 - np.stack(rhos) ** 2
        )
        shares /= shares.sum(axis=0)
        return list(zip(rhos, shares, solved, strict=True))
