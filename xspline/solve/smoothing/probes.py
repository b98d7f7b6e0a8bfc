"""The choice of smoothing on top of iterations: REML by its gradient alone, whose traces come from fixed random probes.

With E[w aᵀ] = I for probes of an iterative solver and b = A⁻¹w, t_j = tr(A⁻¹λ_jS_j) is the mean of bᵀλ_jS_ja, and
u_ij = tr(A⁻¹λ_iS_iA⁻¹λ_jS_j) that of (λ_iS_ib)ᵀA⁻¹(λ_jS_ja). The probes are the same at all strengths, so the gradient
is a smooth function of them and has a zero near that of REML: both scatter like √P where their sizes grow like P.

They are asked for the difference from a system whose traces are known, that of the same observations spread evenly:
ḡM + Λ, which the eigenvectors of each axis diagonalise. Where the penalty has the larger share little is left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from xspline.solve.direct.cholesky import Array
from xspline.solve.kronecker.products import rotated
from xspline.solve.select import iterating
from xspline.solve.smoothing.criteria import Members, OfFit, Reml, Score
from xspline.solve.smoothing.determinant import axis_spectrum
from xspline.solve.smoothing.fit import Fit, Model, flat, products
from xspline.solve.smoothing.newton import LONGEST, Search
from xspline.solve.solution import factorise
from xspline.solve.system import Factorisation

BENT = 2  # probes of the Hessian, which only steers
ROUGH = 1e-3  # relative residual of its solves
OVERSHOT = 0.5  # of the slope at the start of a step is the most that it may have uphill at its end


@dataclass(frozen=True, eq=False)
class Even:
    """ḡM + Λ = T⁻ᵀ diag(ḡ + Σ_j d_j) T⁻¹, G as if its observations were spread evenly.

    Parameters
    ----------
    vectors : list of ndarray, [K, K]
        T of each axis.
    level : float
        ḡ = tr G / tr M.
    shares : list of ndarray, broadcastable to [K..]
        d_j: λ_j times the eigenvalues of S_j.
    """

    vectors: list[Array]
    level: float
    shares: list[Array]

    @staticmethod
    def of(model: Model, rho: Array) -> Even:
        """That of a model at one ρ."""
        space, count = model.space, len(model.space.shape)
        each = [
            axis_spectrum(space, j, model.order if n in model.names else 0) for j, n in enumerate(space.names)
        ]
        lifted = (a.values.reshape([-1 if i == j else 1 for i in range(count)]) for j, a in enumerate(each))
        smoothed = [r for r, name in zip(lifted, space.names, strict=True) if name in model.names]
        masses = (np.trace(np.linalg.inv(axis.vectors @ axis.vectors.T)) for axis in each)
        data = float(np.mean(model.sums.gram.diagonal(space.frame).sum(axis=tuple(range(count)))))
        shares = [np.exp(x) * r for x, r in zip(rho, smoothed, strict=True)]
        return Even([axis.vectors for axis in each], data / math.prod(masses), shares)

    @cached_property
    def inverse(self) -> Array:
        """1 / (ḡ + Σ_j d_j), [K..]."""
        sizes = [len(t) for t in self.vectors]
        return np.asarray(1.0 / np.broadcast_to(self.level + sum(self.shares), sizes))

    def solve(self, w: Array) -> Array:
        """(ḡM + Λ)⁻¹ w, [K.., m]."""
        turned = rotated([t.T for t in self.vectors], np.moveaxis(w, -1, 0))
        return np.moveaxis(rotated(self.vectors, turned * self.inverse), 0, -1)

    @property
    def traces(self) -> Array:
        """tr((ḡM + Λ)⁻¹λ_jS_j), [J]."""
        return np.array([float(np.sum(d * self.inverse)) for d in self.shares])


class ProbedFit(Fit):
    """The penalised fit at one ρ by iterations, with estimates of its traces."""

    def factorised(self) -> Factorisation:
        """By the first solver that iterates."""
        model, penalty = self.model, self.penalty
        choice = iterating(model.sums.gram, penalty, model.space.frame, model.solver, model.resources)
        if choice is None:
            raise ValueError("no solver that iterates takes this system; leave solver out")
        most = int(model.sums.count.max(initial=0))
        found = factorise(
            model.sums.gram, penalty, model.space, choice.name, observations=most, resources=model.resources
        )
        return replace(found, choice=choice)  # chosen for its structure, not by name

    def solved(self, v: Array) -> Array:
        """A⁻¹v of vectors [P, rest.., b..], roughly: all that are solved for here are parts of the Hessian."""
        shaped = v.reshape(*self.frame.sizes, *v.shape[1:])
        return flat(self.factorisation.solve(shaped, tolerance=ROUGH), self.count)

    @cached_property
    def probed(self) -> tuple[Array, Array, Array]:
        """a, w and b, [K.., m]."""
        return self.factorisation.probes()

    @cached_property
    def samples(self) -> Array:
        """Estimates of t_j, [m, J]."""
        (a, w, b), even = self.probed, Even.of(self.model, self.rho)
        apart = flat(b - even.solve(w), self.count)
        return np.asarray(np.einsum("pm,pjm->mj", apart, self.pushed(a)) + even.traces)

    @cached_property
    def traces(self) -> Array:
        """t_j, [J, 1..]."""
        return self._lifted(self.samples.mean(axis=0))

    @cached_property
    def bends(self) -> tuple[Array, Array, Array]:
        """t_j, u_ij, both from the same probes; what REML does not need is not worked out."""
        a, _, b = (x[..., :BENT] for x in self.probed)
        pushed, pulled = self.pushed(a), self.pushed(b)
        u = products(pulled, self.solved(pushed)).mean(axis=-1)
        t = np.einsum("pm,pjm->j", flat(b, self.count), pushed) / b.shape[-1]
        return self._lifted(t), self._lifted((u + u.T) / 2), np.zeros(())

    def _lifted(self, x: Array) -> Array:
        return x.reshape(*x.shape, *(1 for _ in self.factorisation.determined.shape))


class Estimated(Reml):
    """The gradient of REML, and a Hessian; no value."""

    fit: ProbedFit

    def __init__(self, model: Model, rho: Array, members: Members | None = None) -> None:
        OfFit.__init__(self, model, rho, members, ProbedFit(model, rho))

    @property
    def value(self) -> float:
        """A number that is the same everywhere: `Slopes` asks for none."""
        return 0.0

    @property
    def score(self) -> tuple[float, Array]:
        """NaN and the gradient."""
        return math.nan, self.gradient

    @cached_property
    def scatter(self) -> Array:
        """Covariance of the gradient that the probes leave, [J, J]."""
        samples = self.fit.samples
        return np.atleast_2d(np.cov(samples.T)) / len(samples) * (self._members / 2) ** 2

    @cached_property
    def noise(self) -> float:
        """What a step promises where the probes alone make the slopes: E gᵀH⁻¹g."""
        values, vectors = np.linalg.eigh(self.hessian)
        slopes = np.sqrt(np.einsum("ij,ik,kj->j", vectors, self.scatter, vectors))
        steps = slopes / np.maximum(np.abs(values), np.finfo(np.float64).tiny)
        return super().noise + float(slopes @ np.minimum(steps, LONGEST))

    def error(self, free: Members) -> Array:
        """Standard errors that the probes leave in log λ_j of the coordinates that are free; 0 of others: [J]."""
        out = np.zeros(len(free))
        if free.any():
            square = np.ix_(free, free)
            inverse = np.linalg.pinv(self.hessian[square])
            out[free] = np.sqrt(np.diag(inverse @ self.scatter[square] @ inverse))
        return out


class Slopes(Search[Score]):
    """Newton's method on a gradient: a step is good that does not end far uphill."""

    def _better(self, rho: Array, point: Score, step: Array, bend: Array) -> tuple[Array, Score] | None:
        for trial in self._halved(rho, step):
            found = self._try(rho, trial)
            moved = trial - rho
            if found is not None and found.gradient @ moved <= OVERSHOT * abs(point.gradient @ moved):
                return trial, found
        return None
