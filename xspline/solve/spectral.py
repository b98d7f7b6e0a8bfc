"""Direct solver for a product of single-axis factors with a ridge: their eigenvectors decouple it.

With T_jᵀ F_j T_j = diag(μ_j) for each axis, (v ⊗F_j + λ I)⁻¹ = (⊗T_j) diag(1 / (v Πμ_j + λ)) (⊗T_j)ᵀ (Lynch,
Rice and Thomas 1964): Σ K_j³ operations once, and 4 P Σ K_j for each right-hand side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .cholesky import Array
from .eigen import eigen, outer, rotate, weakest
from .structure import Product, alone, subframe

if TYPE_CHECKING:
    from xspline.spaces import Frame


class Spectral:
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
        self.ridge, self.multiplicity = ridge, product.multiplicity
        self.parts = [
            eigen(alone(f).to_dense(subframe(frame, f.axes)), scaled=not ridge) for f in product.factors
        ]
        self.values, _ = outer(self.parts)
        # A ridge has to rise above the rounding errors of every eigenvalue that does not do so by itself.
        deficit, place = weakest(self.parts)
        v = self.multiplicity
        self.determined: NDArray[np.bool_] = (v > 0) & (ridge > v * deficit)
        self.weakest = int(np.ravel_multi_index(place, self.values.shape))
        self.nbytes = self.values.nbytes + sum(part.rotation.nbytes for part in self.parts)

    def solve(self, rhs: Array) -> Array:
        """(G + Λ)⁻¹ rhs, [K.., b..]; batch extents of 1 broadcast on both sides."""
        sizes = self.values.shape
        batch = np.broadcast_shapes(rhs.shape[len(sizes) :], self.multiplicity.shape)
        x = rotate(self.parts, np.broadcast_to(rhs, sizes + batch).reshape(*sizes, -1), back=False)
        v = self.multiplicity if self.multiplicity.size == 1 else np.broadcast_to(self.multiplicity, batch)
        with np.errstate(divide="ignore", invalid="ignore"):
            x /= self._denominators(v.reshape(-1))
        x = rotate(self.parts, np.moveaxis(x, 0, -1), back=True)
        return np.moveaxis(x, 0, -1).reshape(sizes + batch)

    def edf(self) -> Array:
        """tr((G + Λ)⁻¹ G), [b..]."""
        distinct, index = np.unique(self.multiplicity, return_inverse=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            traces = [float(np.sum(v * self.values / self._denominators(v[None])[0])) for v in distinct]
        return np.array(traces)[index].reshape(self.multiplicity.shape)

    def _denominators(self, v: Array) -> Array:
        """Eigenvalues of G + Λ for multiplicities v [n]: [n, K..]."""
        return v.reshape(-1, *(1 for _ in self.values.shape)) * self.values + self.ridge
