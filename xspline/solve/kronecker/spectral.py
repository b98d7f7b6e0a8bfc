"""Direct solver for a product of single-axis factors with a ridge: their eigenvectors decouple it.

With T_jᵀ F_j T_j = diag(μ_j) for each axis, (v ⊗F_j + λ I)⁻¹ = (⊗T_j) diag(1 / (v Πμ_j + λ)) (⊗T_j)ᵀ (Lynch,
Rice and Thomas 1964): Σ K_j³ operations once, and 4 P Σ K_j for each right-hand side.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xspline.solve.direct.cholesky import Array
from xspline.solve.kronecker.eigen import eigen, outer, rotate, weakest
from xspline.solve.structure import Product, dense_of, subframe
from xspline.solve.system import DirectSystem
from xspline.sums import Factor, Gram
from xspline.sums.terms import outer as multiplied

if TYPE_CHECKING:
    from xspline.spaces import Frame


class Spectral(DirectSystem):
    """Eigenvalues and eigenvectors of the factors of a product.

    Parameters
    ----------
    product : Product
        Of single-axis factors.
    ridge : float
        λ.
    frame : Frame
    """

    def __init__(self, product: Product, ridge: float, frame: Frame) -> None:
        self.frame = frame
        masses = [np.eye(k) if ridge else None for k in frame.sizes]
        matrices = (dense_of((f,), f.axes, frame) for f in product.factors)
        self.parts = [eigen(matrix, mass) for matrix, mass in zip(matrices, masses, strict=True)]
        self.pairs = [part.pairs(subframe(frame, (j,))) for j, part in enumerate(self.parts)]
        self.values, _ = outer(self.parts)
        self._deficit, self._place = weakest(self.parts)
        self.ridge, self.multiplicity = ridge, product.multiplicity
        self.distinct, index = np.unique(self.multiplicity, return_inverse=True)
        self.index = index.reshape(self.multiplicity.shape)
        sums = self._lifted(self.distinct) * self.values + ridge
        self.spectrum = np.where(sums > 0, sums, np.nan)  # eigenvalues of G + Λ, [distinct, K..]

    @cached_property
    def determined(self) -> NDArray[np.bool_]:
        """Whether each batch member is, [b..]."""
        v = self.multiplicity
        # A ridge has to rise above the rounding errors of every eigenvalue that does not do so by itself.
        return np.asarray((v > 0) & (self.ridge > v * self._deficit))

    @cached_property
    def weakest(self) -> int:
        """Flat index of the coefficient that weighs most in the eigenvector that is determined least."""
        return int(np.ravel_multi_index(self._place, self.values.shape))

    @property
    def nbytes(self) -> int:
        """Bytes of the eigenvalues and eigenvectors."""
        return self.values.nbytes + sum(part.rotation.nbytes for part in self.parts)

    def solve(self, rhs: Array, tolerance: float | None = None) -> Array:
        """(G + Λ)⁻¹ rhs, [K.., b..]; batch extents of 1 broadcast on both sides."""
        flat, which, shape = self._columns(rhs)
        return self._back(rotate(self.parts, flat, back=False) / self.spectrum[which], shape)

    def apply_inverse_sqrt(self, z: Array) -> Array:
        """x with E[x xᵀ] = (G + Λ)⁻¹ for independent standard normal z, [K.., b..]; extents as in `solve`."""
        flat, which, shape = self._columns(z)
        return self._back(np.moveaxis(flat, -1, 0) / np.sqrt(self.spectrum[which]), shape)

    def edf(self) -> Array:
        """tr((G + Λ)⁻¹ G), [b..]."""
        return self._sums(self._lifted(self.distinct) * self.values / self.spectrum)

    def logdet(self) -> Array:
        """log|G + Λ|, [b..]."""
        rotations = sum(part.logdet * (self.values.size / len(part.values)) for part in self.parts)
        return self._sums(np.log(self.spectrum)) - 2.0 * rotations

    def traces(self, grams: Sequence[Gram]) -> Array:
        """tr((G + Λ)⁻¹ S) of Grams S without batch axes, [len, b..]."""
        return np.array([self._sums(self._quadratic(gram) / self.spectrum) for gram in grams])

    def inverse_pairs(self) -> Array:
        """Pair form of (G + Λ)⁻¹, [K.., O.., b..]."""
        out = np.moveaxis(1.0 / self.spectrum, 0, -1)
        for pairs in self.pairs:
            out = np.tensordot(out, pairs, axes=(0, 2))  # the next eigenvalues first, (K, O) last
        count = len(self.parts)
        out = out.transpose(*range(1, 2 * count, 2), *range(2, 2 * count + 1, 2), 0)
        return np.asarray(out[..., self.index])

    def _quadratic(self, gram: Gram) -> Array:
        """t_mᵀ S t_m of every eigenvector t_m of the system, [K..]."""
        out = np.zeros(self.values.shape)
        for term in gram.terms:
            out += multiplied([self._quadratic_of(f) for f in term], [f.axes for f in term])
        return out

    def _quadratic_of(self, factor: Factor) -> Array:
        out, count = factor.full(self.frame).pairs, len(factor.axes)
        for j, axis in enumerate(factor.axes):
            out = np.tensordot(out, self.pairs[axis], axes=((0, count - j), (0, 1)))
        return out

    def _sums(self, values: Array) -> Array:
        """Σ of values [distinct, K..], for each batch position."""
        return np.asarray(np.sum(values.reshape(len(self.distinct), -1), axis=-1)[self.index])

    def _lifted(self, v: Array) -> Array:
        return v.reshape(-1, *(1 for _ in self.values.shape))

    def _columns(self, rhs: Array) -> tuple[Array, NDArray[np.int64] | slice, tuple[int, ...]]:
        """rhs as [K.., n], which spectrum each column has, and the shape of the result."""
        sizes = self.values.shape
        batch = np.broadcast_shapes(rhs.shape[len(sizes) :], self.index.shape)
        flat = np.broadcast_to(rhs, sizes + batch).reshape(*sizes, -1)
        which = slice(None) if len(self.distinct) == 1 else np.broadcast_to(self.index, batch).ravel()
        return flat, which, sizes + batch

    def _back(self, x: Array, shape: tuple[int, ...]) -> Array:
        """From eigenvectors, [n, K..], to coefficients."""
        x = rotate(self.parts, np.moveaxis(x, 0, -1), back=True)
        return np.moveaxis(x, 0, -1).reshape(shape)
