"""Direct solver by the eigenvectors of each axis: for a full grid with a ridge or no penalty.

With T_jᵀ F_j T_j = diag(μ_j) for each axis, (v ⊗F_j + λ I)⁻¹ = (⊗T_j) diag(1 / (v Πμ_j + λ)) (⊗T_j)ᵀ (Lynch,
Rice and Thomas 1964): Σ K_j³ operations once, and 4 P Σ K_j for each right-hand side.

The eigenvalues come with the size of the errors that rounding leaves in them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from xspline.solve.direct.cholesky import Array, tolerance, unit_scale
from xspline.solve.kronecker.product import Product, balanced, dense_of
from xspline.solve.system import DirectSystem, columns_of
from xspline.spaces import Frame
from xspline.sums import Gram, outer_pairs
from xspline.sums.factor import outer


@dataclass(frozen=True, eq=False)
class Eigen:
    """Simultaneous diagonalisation: Tᵀ F T = diag(μ), and Tᵀ M T = I for the matrix M of a penalty, or diag(r).

    Parameters
    ----------
    rotation : ndarray, [K, K]
        T.
    values, errors : ndarray, [K]
        μ ≥ 0, and bounds of the rounding errors in them. Both are exactly 0 for coefficients without
        observations.
    logdet : float
        log|det T|.
    rough : ndarray, [K], or None
        r ≥ 0 of a pencil; None: 1.
    """

    rotation: Array
    values: Array
    errors: Array
    logdet: float
    rough: Array | None = None

    def pairs(self, frame: Frame) -> Array:
        """Pair form of t_m t_mᵀ for each column t_m of T, [K.., O.., M]; the frame is that of the factor."""
        return outer_pairs(self.rotation.reshape(*frame.sizes, 1, -1), frame)


def eigen(matrix: Array, mass: Array | None = None) -> Eigen:
    """Diagonalise a symmetric positive semidefinite matrix [K, K] beside a positive definite one.

    Without a mass matrix F is scaled to a unit diagonal, which makes the verdict on a singular factor independent of
    units. The mass matrix is factorised here and not inside `scipy.linalg.eigh`, because the bound of the errors needs
    the norm of its inverse factor.
    """
    size, eps = len(matrix), float(np.finfo(np.float64).eps)
    scale = unit_scale(np.diagonal(matrix if mass is None else mass))
    scaled, back, logdet = matrix / scale / scale[:, None], np.eye(size), -float(np.sum(np.log(scale)))
    if mass is not None:
        lower = np.linalg.cholesky(mass / scale / scale[:, None])
        back, _ = lapack.dtrtri(lower, lower=1)
        logdet -= float(np.sum(np.log(np.diag(lower))))
    whitened = back @ scaled @ back.T
    values, errors, vectors = np.zeros(size), np.zeros(size), np.eye(size)
    active = np.flatnonzero(np.diagonal(whitened) > 0)  # other coefficients stay by themselves
    if len(active):
        square = np.ix_(active, active)
        eigenvalues, vectors[square] = np.linalg.eigh(whitened[square])
        values[active] = np.maximum(eigenvalues, 0.0)
        errors[active] = tolerance(len(active)) * eigenvalues[-1]
    # An ill-conditioned mass matrix magnifies rounding errors; an eigenvalue that is exactly 0 has none.
    magnified = float(eps * np.linalg.norm(scaled, 2) * np.linalg.norm(back, 2) ** 2)
    errors = np.where(errors > 0, errors + magnified, 0.0)
    return Eigen(back.T @ vectors / scale[:, None], values, errors, logdet)


def pencil(matrix: Array, other: Array) -> Eigen:
    """Diagonalise two symmetric positive semidefinite matrices F and R [K, K], of which neither has to be definite.

    In the metric of their sum, in which both weigh the same: Tᵀ(xF + R)T = I, and eigenvalues of F from 0 to 1/x.
    """
    scaled, both = balanced(matrix, other)
    own = eigen(scaled, both)
    x = float(np.trace(scaled)) / float(np.trace(matrix))
    # What R has nothing of has exactly 0 of it: such modes are one system.
    shares = np.where(own.values > 1.0 - tolerance(len(matrix)), 1.0, own.values)
    return Eigen(own.rotation, shares / x, own.errors / x, own.logdet, 1.0 - shares)


def eigenvalues(parts: Sequence[Eigen]) -> tuple[Array, float, list[int]]:
    """Eigenvalues of a product, and the one that rises the least above its rounding errors.

    Returns
    -------
    values : ndarray, [K_1, K_2, ..]
    deficit : float
        How far errors exceed an eigenvalue at most; negative when every eigenvalue rises above its errors.
    place : list of int
        For each part the coefficient that weighs most in the eigenvector of that one.
    """
    start = np.ones((1,) * len(parts))
    values = math.prod(np.ix_(*(part.values for part in parts)), start=start)
    bounds = math.prod(np.ix_(*(part.values + part.errors for part in parts)), start=start)
    deficits = bounds - values - values
    worst = np.unravel_index(np.argmax(deficits), values.shape)
    vectors = (part.rotation[:, k] for part, k in zip(parts, worst, strict=True))
    return values, float(deficits[worst]), [int(np.argmax(np.abs(v))) for v in vectors]


def rotate(parts: Sequence[Eigen], v: Array, *, back: bool) -> Array:
    """Apply the transposed rotations, or the rotations themselves, to the leading axes of v.

    Leading axes are consumed and come back last: [K_1, .., K_m, rest..] → [rest.., K_1, .., K_m].
    """
    for part in parts:
        v = np.tensordot(v, part.rotation, axes=(0, 1 if back else 0))
    return v


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
        self.frame, self.ridge, self.multiplicity = frame, ridge, product.multiplicity
        matrices = [dense_of((f,), f.axes, frame) for f in product.factors]
        self.parts = [eigen(matrix, np.eye(len(matrix)) if ridge else None) for matrix in matrices]
        self.pairs = [part.pairs(frame.along((j,))) for j, part in enumerate(self.parts)]
        self.values, self._deficit, self._place = eigenvalues(self.parts)
        self.distinct, index = np.unique(self.multiplicity, return_inverse=True)
        self.index = index.reshape(self.multiplicity.shape)
        self._data = self.distinct.reshape(-1, *(1 for _ in frame.sizes)) * self.values
        sums = self._data + ridge
        self.spectrum = np.where(sums > 0, sums, np.nan)  # eigenvalues of G + Λ, [distinct, K..]

    @cached_property
    def determined(self) -> NDArray[np.bool_]:
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
        columns, which, shape = columns_of(rhs, self.values.shape, self.index)
        spectrum = self.spectrum if len(self.distinct) == 1 else self.spectrum[which]
        return self._from_eigenvectors(rotate(self.parts, columns, back=False) / spectrum, shape)

    def apply_inverse_sqrt(self, z: Array) -> Array:
        columns, which, shape = columns_of(z, self.values.shape, self.index)
        spectrum = self.spectrum if len(self.distinct) == 1 else self.spectrum[which]
        return self._from_eigenvectors(np.moveaxis(columns, -1, 0) / np.sqrt(spectrum), shape)

    def edf(self) -> Array:
        return self._sums(self._data / self.spectrum)

    def logdet(self) -> Array:
        rotations = sum(part.logdet * (self.values.size / len(part.values)) for part in self.parts)
        return self._sums(np.log(self.spectrum)) - 2.0 * rotations

    def traces(self, grams: Sequence[Gram]) -> Array:
        traces = []
        for gram in grams:
            squares = np.zeros(self.values.shape)  # t_mᵀ S t_m of every eigenvector t_m of the system, [K..]
            for term in gram.terms:
                images = []
                for factor in term:
                    image, count = factor.full(self.frame).pairs, len(factor.axes)
                    for j, axis in enumerate(factor.axes):
                        image = np.tensordot(image, self.pairs[axis], axes=((0, count - j), (0, 1)))
                    images.append(image)
                squares += outer(images, [factor.axes for factor in term])
            traces.append(self._sums(squares / self.spectrum))
        return np.array(traces)

    def inverse_pairs(self) -> Array:
        out = np.moveaxis(1.0 / self.spectrum, 0, -1)
        for pairs in self.pairs:
            out = np.tensordot(out, pairs, axes=(0, 2))  # the next eigenvalues first, (K, O) last
        count = len(self.parts)
        out = out.transpose(*range(1, 2 * count, 2), *range(2, 2 * count + 1, 2), 0)
        return np.asarray(out[..., self.index])

    def _sums(self, values: Array) -> Array:
        """Σ of values [distinct, K..], for each batch position."""
        return np.asarray(np.sum(values.reshape(len(self.distinct), -1), axis=-1)[self.index])

    def _from_eigenvectors(self, x: Array, shape: tuple[int, ...]) -> Array:
        """From [n, K..] in eigenvectors to coefficients."""
        x = rotate(self.parts, np.moveaxis(x, 0, -1), back=True)
        return np.moveaxis(x, 0, -1).reshape(shape)
