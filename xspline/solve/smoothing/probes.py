"""REML on top of an iterative solver: its gradient alone, with traces from fixed random probes (Hutchinson).

With E[w aᵀ] = I for probes of an iterative solver and b = A⁻¹w, t_j = tr(A⁻¹λ_jS_j) is the mean of bᵀλ_jS_ja, and
u_ij = tr(A⁻¹λ_iS_iA⁻¹λ_jS_j) that of (λ_iS_ib)ᵀA⁻¹(λ_jS_ja). The probes are the same at all strengths, so the gradient
is a smooth function of them and has a zero near that of REML: both scatter like √P where their sizes grow like P.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from xspline.solve.direct.cholesky import Array
from xspline.solve.families.determinant import products
from xspline.solve.smoothing.criteria import Mask, Reml
from xspline.solve.smoothing.fit import PenalisedFit
from xspline.solve.smoothing.newton import LONGEST


class ProbedFit(PenalisedFit):
    """The penalised fit at one ρ by the solver of its model, which iterates, with estimates of its traces."""

    exact_solver = False

    def apply_inverse(self, v: Array) -> Array:
        """Return A⁻¹v of vectors [P, rest.., b..], roughly, since the solutions are only parts of the Hessian."""
        return self.flat(self.factorisation.solve(self.shaped(v), tolerance=1e-3))

    @cached_property
    def probed(self) -> tuple[Array, Array, Array]:
        """a, w and b, [K.., m]."""
        return self.factorisation.probes()

    @cached_property
    def samples(self) -> Array:
        """Estimates of t_t, [m, T]."""
        a, _, b = self.probed
        return np.asarray(np.einsum("pm,pjm->mj", self.flat(b), self.apply_penalties(a)))

    @cached_property
    def traces(self) -> Array:
        """t_j, [J, 1..]."""
        return self._with_batch_axes(self.samples.mean(axis=0))

    @cached_property
    def hessian_traces(self) -> tuple[Array, Array, Array]:
        """t_j, u_ij, both from the same probes; what REML does not need is not computed."""
        count = max(1, self.probed[0].shape[-1] // 8)  # the Hessian only steers
        a, _, b = (x[..., :count] for x in self.probed)
        right = self.apply_penalties(a)
        left = self.apply_penalties(b)
        u = products(left, self.apply_inverse(right)).mean(axis=-1)
        t = np.einsum("pm,pjm->j", self.flat(b), right) / b.shape[-1]
        return self._with_batch_axes(t), self._with_batch_axes((u + u.T) / 2), np.zeros(())

    def _with_batch_axes(self, x: Array) -> Array:
        return x.reshape(*x.shape, *(1 for _ in self.factorisation.determined.shape))


class Estimated(Reml):
    """The gradient of REML and a Hessian, without a value."""

    fit: ProbedFit
    fit_type = ProbedFit

    @property
    def value(self) -> None:
        """There is none, since log|A| is not known."""
        return None

    @cached_property
    def scatter(self) -> Array:
        """The covariance that the probes leave in the gradient, [J, J]."""
        samples = self.fit.samples
        of_terms = np.atleast_2d(np.cov(samples.T)) / len(samples) * (int(self.included.sum()) / 2) ** 2
        return np.asarray(self.design.T @ of_terms @ self.design)

    @cached_property
    def noise(self) -> float:
        """What a step promises where the probes alone make the gradient: E gᵀH⁻¹g."""
        values, vectors = np.linalg.eigh(self.hessian)
        deviations = np.sqrt(np.einsum("ij,ik,kj->j", vectors, self.scatter, vectors))
        steps = deviations / np.maximum(np.abs(values), np.finfo(np.float64).tiny)
        return super().noise + float(deviations @ np.minimum(steps, LONGEST))

    def covariance(self, free: Mask) -> Array:
        """Return that of the logarithms of the strengths given the data, with what the probes leave open."""
        return np.asarray(super().covariance(free) + self.design @ self._of_probes(free) @ self.design.T)

    def error(self, free: Mask) -> Array:
        """Return the standard errors that the probes leave in log λ_j, [J]; 0 where a coordinate is not free."""
        return np.sqrt(np.diag(self._of_probes(free)))

    def _of_probes(self, free: Mask) -> Array:
        """Return the covariance that the probes leave in ρ, [J, J]; it is 0 where a coordinate is not free."""
        out = np.zeros((len(free), len(free)))
        if free.any():
            square = np.ix_(free, free)
            inverse = np.linalg.pinv(self.hessian[square])
            out[square] = inverse @ self.scatter[square] @ inverse
        return out
