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
from xspline.solve.errors import NEEDS_DIRECT, ConvergenceError
from xspline.solve.kronecker.products import Products, rotated
from xspline.solve.krylov import (
    MAX_ITERATIONS,
    PROBE_TOLERANCE,
    RESTARTS,
    TOLERANCE,
    LinearMap,
    descend,
    norm_of,
    probes,
    stalled,
    times,
)
from xspline.solve.structure import Product
from xspline.solve.system import IterativeSystem
from xspline.sums import Gram

if TYPE_CHECKING:
    from xspline.spaces import Frame

RELATIVE = 1e-10  # τ of the pencil over tr G_j / tr R_j: makes it definite where an axis has gaps
CLOSER = 0.3  # the share of what is asked for at which a run in the other coordinates ends
AT_ONCE = 2**23  # numbers of all right-hand sides that are solved for side by side


class FastDiagonal(IterativeSystem):
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

    """

    def __init__(
        self,
        product: Product,
        penalty: Gram,
        frame: Frame,
        *,
        tolerance: float = TOLERANCE,
        most: int = MAX_ITERATIONS,
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
        self.multiplicity = v
        self.at_once = max(1, AT_ONCE // math.prod(frame.sizes))

    mixes_systems = True

    @cached_property
    def determined(self) -> NDArray[np.bool_]:
        """Whether the diagonal rises above its rounding errors and there are observations, [b..]."""
        least = tolerance(max(self.frame.sizes)) * float(self.seen.max())
        definite = np.array([bool((v * self.seen + self.held).min() > least * v) for v in self.distinct])
        return np.asarray((self.multiplicity > 0) & definite[self.index])

    @cached_property
    def weakest(self) -> int:
        """Flat index of the coefficient that weighs most in the direction that is determined least."""
        place = np.unravel_index(int(np.argmin(self.seen + self.held)), self.seen.shape)
        at = [int(np.argmax(np.abs(t[:, k]))) for t, k in zip(self.rotations, place, strict=True)]
        return int(np.ravel_multi_index(at, self.seen.shape))

    @property
    def nbytes(self) -> int:
        """Bytes of the diagonals."""
        return self.seen.nbytes + self.held.nbytes

    # --- solving

    def _solve_rows(self, rhs: Array, which: NDArray[np.intp], tolerance: float) -> Array:
        """A⁻¹ rhs, [m, K..]: the residual is that of the coefficients, whatever rounding does to other coordinates."""
        v = self.distinct[which]
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
        self._record(count, float(worst.max()))
        if not (worst <= tolerance).all():
            raise stalled(rhs[0].size, float(worst.max()), count, tolerance)
        return x

    def _steps(self, v: Array) -> tuple[LinearMap, LinearMap]:
        """TᵀAT and the inverse of its diagonal, for rows that have the multiplicities v."""

        def matvec(x: Array) -> Array:
            return self.rest.matvec(x) + times(v, self.seen * x)

        def precondition(r: Array) -> Array:
            lifted = v.reshape(-1, *(1,) * self.seen.ndim)
            return np.asarray(r / (lifted * self.seen + self.held))

        return matvec, precondition

    # --- estimates: of what is left beside the diagonal

    def probes(self) -> tuple[Array, Array, Array]:
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

    def edf_samples(self) -> list[Array]:
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
