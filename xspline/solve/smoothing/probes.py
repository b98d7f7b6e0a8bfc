"""REML on top of an iterative solver: its gradient alone, with traces from fixed random probes (Hutchinson).

With E[w aᵀ] = I for probes of an iterative solver and b = A⁻¹w, t_j = tr(A⁻¹λ_jS_j) is the mean of bᵀλ_jS_ja, and
u_ij = tr(A⁻¹λ_iS_iA⁻¹λ_jS_j) that of (λ_iS_ib)ᵀA⁻¹(λ_jS_ja). The probes are the same at all strengths, so the gradient
is a smooth function of them and has a zero near that of REML: both scatter like √P where their sizes grow like P.

Only the difference from a system whose traces are known is estimated, that of the same observations spread evenly:
ḡM + Λ, which the eigenvectors of each axis diagonalise. Where the penalty has the larger share little is left.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from xspline.solve.direct.cholesky import Array
from xspline.solve.families.determinant import axis_spectrum, products
from xspline.solve.families.orders import SingleOrder
from xspline.solve.kronecker.pcg import apply_kronecker
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
        """Estimates of t_t, [m, T]: the traces of the evenly observed system, and what the probes find beside them.

        On a sphere the probes find all of it, as the evenly observed system has no eigenvectors that are products.
        """
        family = self.model.family
        a, w, b = self.probed
        traces = np.zeros(len(self.terms))
        if isinstance(family, SingleOrder):
            even, traces = self._even(family, w)
            b = b - even
        return np.asarray(np.einsum("pm,pjm->mj", self.flat(b), self.apply_penalties(a)) + traces)

    def _even(self, family: SingleOrder, w: Array) -> tuple[Array, Array]:
        """Return A⁻¹w, [K.., m], and t_j, [J], of the system that is observed evenly.

        It is ḡM + Λ = T⁻ᵀ diag(ḡ + Σ_j d_j) T⁻¹ with ḡ = tr G / tr M, and d_j are λ_j times the eigenvalues of S_j.
        """
        model = self.model
        space = self.model.space
        axes = [
            axis_spectrum(space, j, family.order if name in model.family.names else 0)
            for j, name in enumerate(space.names)
        ]
        mass = math.prod(np.trace(np.linalg.inv(axis.vectors @ axis.vectors.T)) for axis in axes)
        data = float(np.mean(model.sums.gram.diagonal(self.frame).sum(axis=tuple(range(self.count)))))
        along = [(j, axes[j].values) for j, name in enumerate(space.names) if name in model.family.names]
        along += [(j, axes[j].events) for j in map(space.names.index, family.events)]
        shares = [
            np.exp(x) * values.reshape([-1 if i == j else 1 for i in range(self.count)])
            for x, (j, values) in zip(self.rho, along, strict=True)
        ]
        inverse = np.asarray(1.0 / np.broadcast_to(data / mass + sum(shares), self.frame.sizes))
        images = apply_kronecker([axis.vectors.T for axis in axes], np.moveaxis(w, -1, 0))
        even = np.moveaxis(apply_kronecker([axis.vectors for axis in axes], images * inverse), 0, -1)
        return even, np.array([float(np.sum(share * inverse)) for share in shares])

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
