"""Iterative solver for a product of single-axis factors and a penalty of such products: a full grid with roughness.

No vectors diagonalise G_j, M_j and R_j of an axis at once, but those of the pencil (R_j, G_j + τR_j) leave little of
M_j beside its diagonal where observations are dense (fast diagonalisation: Lynch, Rice and Thomas 1964; Sangalli and
Tani 2016). In their coordinates G and the larger part of Λ are diagonal, the diagonal of all is the preconditioner of
conjugate gradients, and a product with G + Λ is a few products with small matrices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from xspline.solve.direct.cholesky import Array, tolerance
from xspline.solve.errors import NEEDS_DIRECT, ConvergenceError, WithoutInverse
from xspline.solve.kronecker.products import Products, rotated
from xspline.solve.krylov import (
    MOST,
    PROBE_TOLERANCE,
    RESTARTS,
    TOLERANCE,
    Step,
    descend,
    norm_of,
    probes,
    quadrature,
    spread,
    stalled,
    times,
)
from xspline.solve.structure import Product
from xspline.sums import Gram

if TYPE_CHECKING:
    from xspline.spaces import Frame

RELATIVE = 1e-10  # τ of the pencil over tr G_j / tr R_j: makes it definite where an axis has gaps
CLOSER = 0.3  # the share of what is asked for at which a run in the other coordinates ends
AT_ONCE = 2**23  # numbers of all right-hand sides that are solved for side by side
CURVES = 24  # steps of a Lanczos quadrature: what is left of the system is near the identity


class FastDiagonal(WithoutInverse):
    """Eigenvectors of each axis, and what G + Λ is in their coordinates.

    Parameters
    ----------
    product : Product
        G, of single-axis factors.
    penalty : Gram
        Λ, terms of single-axis factors without batch axes; at least one.
    frame : Frame
    tolerance : float
        ‖(G + Λ) c − h‖ / ‖h‖ at which a solve ends.
    most : int
        Iterations.

    Attributes
    ----------
    determined : ndarray of bool, [b..]
    weakest : int
        Flat index of the coefficient that weighs most in the direction that is determined least.
    iterations : int
        Of the last solve, the most of any right-hand side.
    residual : float
        Of the last solve, relative, the largest of any right-hand side.
    """

    def __init__(
        self,
        product: Product,
        penalty: Gram,
        frame: Frame,
        *,
        tolerance: float = TOLERANCE,
        most: int = MOST,
    ) -> None:
        self.frame, self.tolerance, self.most = frame, tolerance, most
        self.data, self.penalty = Products.of([product.factors], frame), Products.of(penalty.terms, frame)
        stiff = [_stiffest(own) for own in self.penalty.matrices]
        pencils = zip(self.data.matrices, self.penalty.matrices, stiff, strict=True)
        self.rotations = [_eigenvectors(data[0], own[i]) for (data, own, i) in pencils]
        # Each matrix of the data has become diagonal too.
        self.seen = self.data.transformed(self.rotations, [0] * len(stiff)).diagonal()
        self.rest = self.penalty.transformed(self.rotations, stiff)
        self.held = self.rest.diagonal()
        v = product.multiplicity
        self.distinct, index = np.unique(v, return_inverse=True)
        self.index = index.reshape(v.shape)
        self.determined: NDArray[np.bool_] = (v > 0) & self._definite()[self.index]
        self.weakest = self._weakest()
        self.iterations, self.residual = 0, 0.0

    def _definite(self) -> NDArray[np.bool_]:
        """Whether the diagonal rises above its rounding errors, for each distinct multiplicity."""
        least = tolerance(max(self.frame.sizes)) * float(self.seen.max())
        return np.array([bool((v * self.seen + self.held).min() > least * v) for v in self.distinct])

    def _weakest(self) -> int:
        place = np.unravel_index(int(np.argmin(self.seen + self.held)), self.seen.shape)
        at = [int(np.argmax(np.abs(t[:, k]))) for t, k in zip(self.rotations, place, strict=True)]
        return int(np.ravel_multi_index(at, self.seen.shape))

    @property
    def nbytes(self) -> int:
        """Bytes of the diagonals."""
        return self.seen.nbytes + self.held.nbytes

    # --- solving

    def solve(self, rhs: Array, tolerance: float | None = None) -> Array:
        """(G + Λ)⁻¹ rhs, [K.., b..]; batch extents of 1 broadcast on both sides.

        Raises
        ------
        ConvergenceError
            The residual did not fall to the tolerance.
        """
        sizes = self.frame.sizes
        batch = np.broadcast_shapes(rhs.shape[len(sizes) :], self.index.shape)
        flat = np.moveaxis(np.broadcast_to(rhs, sizes + batch).reshape(*sizes, -1), -1, 0)
        v = self.distinct[np.broadcast_to(self.index, batch).ravel()]
        fine = np.flatnonzero(np.broadcast_to(self.determined, batch).ravel())
        out = np.full(flat.shape, np.nan)
        self.iterations, self.residual = 0, 0.0
        step = max(1, AT_ONCE // math.prod(sizes))
        for some in (fine[i : i + step] for i in range(0, len(fine), step)):
            rows = np.ascontiguousarray(flat[some])
            out[some] = self._refined(rows, v[some], tolerance or self.tolerance)
        return np.moveaxis(out, 0, -1).reshape(sizes + batch)

    def _refined(self, rhs: Array, v: Array, tolerance: float) -> Array:
        """A⁻¹ rhs, [m, K..]: the residual is that of the coefficients, whatever rounding does to other coordinates."""
        norm = norm_of(rhs)
        norm[norm == 0] = 1.0
        x, r, count, worst = np.zeros_like(rhs), rhs, 0, np.ones(len(rhs))
        transposed = [t.T for t in self.rotations]
        for _ in range(RESTARTS):
            last = float(worst.max())
            other = rotated(transposed, r)
            goal = CLOSER * np.minimum(tolerance / worst, 1.0) * norm_of(other)
            step, iterations = descend(*self._steps(v), other, goal, self.most - count)
            x, count = x + rotated(self.rotations, step), count + iterations
            r = rhs - times(v, self.data.matvec(x)) - self.penalty.matvec(x)
            worst = norm_of(r) / norm
            if (worst <= tolerance).all() or not worst.max() < last / 2 or count >= self.most:
                break
        self.iterations, self.residual = max(self.iterations, count), max(self.residual, float(worst.max()))
        if not (worst <= tolerance).all():
            raise stalled(rhs[0].size, float(worst.max()), count, tolerance)
        return x

    def _steps(self, v: Array) -> tuple[Step, Step]:
        """TᵀAT and the inverse of its diagonal, for rows that have the multiplicities v."""

        def matvec(x: Array) -> Array:
            return self.rest.matvec(x) + times(v, self.seen * x)

        def precondition(r: Array) -> Array:
            lifted = v.reshape(-1, *(1,) * self.seen.ndim)
            return np.asarray(r / (lifted * self.seen + self.held))

        return matvec, precondition

    # --- estimates: of what is left beside the diagonal

    def edf(self) -> Array:
        """tr((G + Λ)⁻¹ G), [b..], from the probes: see `edf_error`."""
        return self._indexed([float(np.mean(x)) for x in self._edf_samples])

    def edf_error(self) -> Array:
        """Standard error of `edf` relative to it, [b..], as its probes spread."""
        return self._indexed([spread(x) / abs(float(np.mean(x))) for x in self._edf_samples])

    def traces(self, grams: Sequence[Gram]) -> Array:
        """tr((G + Λ)⁻¹ S) of Grams S of single-axis factors, [len, b..], from the same probes as `edf`."""
        rows = []
        for gram in grams:
            image = Products.of(gram.terms, self.frame).transformed(self.rotations, [-1] * self.seen.ndim)
            rows.append([float(np.mean(x)) for x in self._samples(image)])
        return np.array([self._indexed(row) for row in rows])

    def logdet(self) -> Array:
        """log|G + Λ|, [b..]; what the diagonal leaves comes from Lanczos quadrature over the probes."""
        size = self.seen.size
        turned = sum(size / len(t) * float(np.linalg.slogdet(t)[1]) for t in self.rotations)
        return self._indexed([self._log(float(v)) - 2.0 * turned for v in self.distinct])

    def _log(self, v: float) -> float:
        """log|TᵀAT|: that of its diagonal D, and tr log(D^-½ TᵀAT D^-½)."""
        diagonal, matvec = v * self.seen + self.held, self._steps(np.full(1, v))[0]
        root = 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, np.nan))
        left = [quadrature(lambda x: root * matvec(root * x), z[None], CURVES) for z in self._z]
        return float(np.mean(left)) - 2.0 * float(np.sum(np.log(root)))

    def probed(self) -> tuple[Array, Array, Array]:
        """a = T z, w = T⁻ᵀ z and b = A⁻¹ w of probes z, where there is one multiplicity: [K.., m] each.

        Raises
        ------
        ConvergenceError
            There are several.
        """
        if len(self._probed) != 1:
            raise ConvergenceError("probes of several systems " + NEEDS_DIRECT)
        back = [np.asarray(np.linalg.inv(t).T, np.float64) for t in self.rotations]
        turned = (
            rotated(self.rotations, self._z),
            rotated(back, self._z),
            rotated(self.rotations, self._probed[0]),
        )
        a, w, b = (np.moveaxis(x, 0, -1) for x in turned)
        return a, w, b

    @property
    def _z(self) -> Array:
        return probes(self.frame.sizes)

    @cached_property
    def _probed(self) -> list[Array]:
        """(TᵀAT)⁻¹ z of the probes z, [m, K..], for each distinct multiplicity."""
        z = self._z
        return [np.concatenate([self._one(row[None], float(v)) for row in z]) for v in self.distinct]

    def _one(self, z: Array, v: float) -> Array:
        if v <= 0:
            return np.full_like(z, np.nan)
        return descend(*self._steps(np.full(1, v)), z, PROBE_TOLERANCE * norm_of(z), self.most)[0]

    @cached_property
    def _edf_samples(self) -> list[Array]:
        found = self._samples(self.data.transformed(self.rotations, [0] * self.seen.ndim))
        return [v * x for v, x in zip(self.distinct, found, strict=True)]

    def _samples(self, image: Products) -> list[Array]:
        """Estimates of tr(A⁻¹ S) for S in these coordinates, [probes], for each distinct multiplicity.

        The trace that the diagonals alone would have is exact; zᵀ (TᵀAT)⁻¹ S z estimates what it leaves.
        """
        own, out = image.diagonal(), []
        for v, solved in zip(self.distinct, self._probed, strict=True):
            inverse = 1.0 / (v * self.seen + self.held)
            left = [
                np.sum((x - inverse * z) * image.matvec(z[None])[0])
                for x, z in zip(solved, self._z, strict=True)
            ]
            out.append(np.array(left) + float(np.sum(inverse * own)))
        return out

    def _indexed(self, values: Sequence[float]) -> Array:
        """One number for each multiplicity, for each batch position; NaN where not determined."""
        return np.where(self.determined, np.array(values)[self.index], np.nan)


def _stiffest(matrices: Sequence[Array]) -> int:
    """Which matrix of a penalty is the nearest to singular: the roughness, whose eigenvalues spread the most."""
    spectra = [np.linalg.eigvalsh(matrix) for matrix in matrices]
    return int(np.argmin([values[0] / values[-1] for values in spectra]))


def _eigenvectors(data: Array, stiff: Array) -> Array:
    """T with Tᵀ(G + τR)T = I and TᵀRT diagonal; both matrices have trace 1.

    Raises
    ------
    ConvergenceError
        G + τR is singular: a function of the axis has no observations and no roughness.
    """
    try:
        return np.asarray(linalg.eigh(stiff, data + RELATIVE * stiff)[1])
    except linalg.LinAlgError:
        raise ConvergenceError(
            "a coordinate has functions with neither observations nor roughness: its eigenvectors are not defined; "
            "leave solver out, or pass a larger penalty"
        ) from None
