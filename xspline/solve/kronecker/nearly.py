"""Conjugate gradients with a Kronecker product as preconditioner: for a grid with a few gaps that change in time.

With E the product that the marginals of G make (`product.expected`), M = E + Λ falls into one system in space for
each mode of time (`Separable`), and M⁻¹(G + Λ) is near the identity: conjugate gradients take a few steps where single
values are missing, some dozens where whole blocks are. Whatever M is off by, solutions are those of G + Λ.

Degrees of freedom are those of M and what a few probes add. Draws are x = (M⁻¹A)^-½ x₀ for draws x₀ of covariance M⁻¹,
which differ where G does, so that variances are those of M and the mean of x² − x₀².
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from xspline.solve.direct.cholesky import Array
from xspline.solve.kronecker.operator import Operator
from xspline.solve.kronecker.pcg import KroneckerSum
from xspline.solve.kronecker.separable import Separable
from xspline.solve.krylov import AT_ONCE, TOLERANCE, conjugate_gradients, power_of, probes
from xspline.solve.system import CoupledDraw, Draw, IterativeSystem
from xspline.spaces import Frame
from xspline.sums import Gram

_operators: WeakKeyDictionary[Gram, Operator] = WeakKeyDictionary()


class NearlySeparable(IterativeSystem):
    """G + Λ by iterations with M = E + Λ.

    `gram`, `near_gram` and `penalty` are G, E and Λ, without batch axes, and `near` is M, which knows its inverse.
    """

    near: Separable
    mixes_systems = True
    at_once = 8  # vectors by which a product with G reads it once, and which fit in a cache

    def __init__(self, gram: Gram, near_gram: Gram, penalty: Gram, frame: Frame, near: Separable) -> None:
        self.gram, self.near_gram, self.penalty = gram, near_gram, penalty
        self.rough = KroneckerSum.of(penalty.terms, frame)
        if gram not in _operators:
            _operators[gram] = Operator(gram.one_factor(frame).pairs, frame)
        self.data = _operators[gram]
        self.frame, self.near, self.tolerance = frame, near, TOLERANCE
        self.index = np.zeros((), dtype=np.intp)

    @property
    def determined(self) -> NDArray[np.bool_]:
        return self.near.determined

    @property
    def weakest(self) -> int:
        return self.near.weakest

    @property
    def nbytes(self) -> int:
        return self.near.nbytes

    def _matvec(self, rows: Array) -> Array:
        """(G + Λ) x of rows x [m, K..]."""
        return self.data.matvec(rows) + self.rough.matvec(rows)

    def _near_matvec(self, rows: Array) -> Array:
        """M x."""
        near = self.near_gram.matvec(np.moveaxis(rows, 0, -1), self.frame)
        return np.moveaxis(near, -1, 0) + self.rough.matvec(rows)

    def _near_solve(self, rows: Array) -> Array:
        """M⁻¹ x."""
        return np.moveaxis(self.near.solve(np.moveaxis(rows, 0, -1)), -1, 0)

    def _solve_rows(self, rows: Array, which: NDArray[np.intp], tolerance: float) -> Array:
        return self._counted(conjugate_gradients(self._matvec, self._near_solve, rows, tolerance))

    def draws(self, rng: np.random.Generator) -> Draw:
        draw = self.coupled_draws(rng)
        return lambda extents: draw(extents)[0]

    def coupled_draws(self, rng: np.random.Generator) -> CoupledDraw:
        first, *others = self.near_gram.terms[0]
        rest = Gram((*self.gram.terms, (first.scaled(-1.0), *others)))
        operator = Operator(rest.one_factor(self.frame).pairs, self.frame)
        maps = operator.matvec, self._near_solve, self._near_matvec

        def draw(extents: tuple[int, ...]) -> tuple[Array, Array]:
            near = self.near.apply_inverse_sqrt(rng.standard_normal((*self.frame.sizes, *extents)))
            rows = np.ascontiguousarray(np.moveaxis(near.reshape(*self.frame.sizes, -1), -1, 0))
            step = min(self.at_once, math.ceil(AT_ONCE / rows[0].size))
            parts = [power_of(*maps, rows[i : i + step], -0.5) for i in range(0, len(rows), step)]
            return np.moveaxis(np.concatenate(parts), 0, -1).reshape(near.shape), near

        return draw

    def probes(self) -> tuple[Array, Array, Array]:
        """a of covariance M⁻¹, w = M a and b = A⁻¹w = a + A⁻¹(M − A) a, [K.., m] each."""
        a = self.near.apply_inverse_sqrt(np.moveaxis(probes(self.frame.sizes), 0, -1))
        rows = np.moveaxis(a, -1, 0)
        w = self._near_matvec(rows)
        rest = np.moveaxis(w - self._matvec(rows), 0, -1)
        # What probes of the two systems differ by is little: a relative residual of 1 % will do.
        return a, np.moveaxis(w, 0, -1), a + self.solve(rest, 1e-2)

    def edf_samples(self) -> Sequence[Array]:
        """Return the degrees of freedom of M less bᵀΛa − aᵀΛa, [probes]."""
        a, _, b = self.probes()
        lost = np.sum((b - a) * self.penalty.matvec(a, self.frame), axis=tuple(range(len(self.frame.sizes))))
        return [float(self.near.edf()) - lost]
