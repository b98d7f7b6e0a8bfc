"""Conjugate gradients preconditioned by fast diagonalisation: for a full grid with a roughness penalty.

G is a product of single-axis factors, and the penalty a sum of such products.

No vectors diagonalise G_j, M_j and R_j of an axis at once, but those of the pencil (R_j, G_j + τR_j) leave little of
M_j beside its diagonal where observations are dense (fast diagonalisation: Lynch, Rice and Thomas 1964; Sangalli and
Tani 2016). In their coordinates G and the larger part of Λ are diagonal, the diagonal of all is the preconditioner of
conjugate gradients, and a product with G + Λ is a few products with small matrices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from xspline.solve.costs import COSTS
from xspline.solve.direct.cholesky import TINY, Array, tolerance
from xspline.solve.errors import NEEDS_DIRECT, ConvergenceError
from xspline.solve.kronecker.product import Product, dense_of
from xspline.solve.krylov import (
    AT_ONCE,
    MAX_ITERATIONS,
    PROBE_TOLERANCE,
    TOLERANCE,
    LinearMap,
    descend,
    norm_of,
    probes,
    refined,
    times,
)
from xspline.solve.system import PerturbedSystem
from xspline.spaces import Frame
from xspline.sums import Factor, Gram
from xspline.threads import ranges, run, single_threaded_blas

Term = tuple[float, tuple[int, ...]]
# Eigenvectors of an axis, a root for each along another, and these axes.
_Joint = tuple[Array, Array, tuple[int, int]]


@dataclass(frozen=True, eq=False)
class KroneckerSum:
    """Σ_t c_t F_t1 ⊗ F_t2 ⊗ …, symmetric, of small matrices: what a full grid and its penalty are made of."""

    matrices: tuple[tuple[Array, ...], ...]  # the different ones of each axis, [K, K], or [K] for a diagonal
    terms: tuple[Term, ...]  # c_t and which matrix of each axis

    @staticmethod
    def of(terms: Iterable[Sequence[Factor]], frame: Frame) -> KroneckerSum:
        """Take terms of single-axis factors without batch axes; matrices that are multiples of others become one."""
        matrices: list[list[Array]] = [[] for _ in frame.sizes]
        out = []
        for term in terms:
            scales, indices = [], []
            for known, factor in zip(matrices, sorted(term, key=lambda f: f.axes), strict=True):
                matrix = dense_of((factor.full(frame),), factor.axes, frame)
                size = float(np.linalg.norm(matrix))
                trace = float(np.trace(matrix))
                rounding = tolerance(len(matrix))
                scales.append(trace if trace > rounding * size else size)
                matrix = matrix / scales[-1]
                same = [np.abs(matrix - other).max() <= rounding * np.abs(other).max() for other in known]
                indices.append(next((i for i, is_same in enumerate(same) if is_same), len(known)))
                if indices[-1] == len(known):
                    known.append(matrix)
            out.append((math.prod(scales), tuple(indices)))
        return KroneckerSum(tuple(map(tuple, matrices)), tuple(out))

    def transformed(self, rotations: Sequence[Array], diagonal: Sequence[int]) -> KroneckerSum:
        """TᵀFT for every matrix F of an axis and its T; those of the given numbers are known to become diagonal."""
        changed = []
        for own, rotation, number in zip(self.matrices, rotations, diagonal, strict=True):
            images = [rotation.T @ matrix @ rotation for matrix in own]
            changed.append(tuple(np.diag(m).copy() if i == number else m for i, m in enumerate(images)))
        return KroneckerSum(tuple(changed), self.terms)

    def diagonal(self) -> Array:
        """[K..]."""
        out = np.zeros([len(own[0]) for own in self.matrices])
        for scale, indices in self.terms:
            picked = (own[i] for own, i in zip(self.matrices, indices, strict=True))
            out += scale * math.prod(np.ix_(*(m if m.ndim == 1 else np.diag(m) for m in picked)))
        return out

    @cached_property
    def roots(self) -> tuple[tuple[Array, ...], ...]:
        """A root W with W Wᵀ = F of each matrix F, which is positive semidefinite: [K, K]."""
        return tuple(tuple(map(symmetric_root, own)) for own in self.matrices)

    @cached_property
    def indefinite(self) -> int | None:
        """The axis with a matrix that is not positive semidefinite, as latitude on a sphere has; None without one."""
        for axis, own in enumerate(self.matrices):
            if any(x[0] < -TINY * x[-1] for x in map(np.linalg.eigvalsh, own)):
                return axis
        return None

    def perturbations(self, count: int, rng: np.random.Generator) -> Array:
        """Random vectors of this covariance, [count, K..]: independent ones of each term."""
        shape, out = (count, *(len(own[0]) for own in self.matrices)), []
        for scale, indices, roots in self._rooted:
            z = rng.standard_normal(shape)
            for axis, i in enumerate(indices):
                if i is not None:
                    z = apply_along(self.roots[axis][i], z, axis + 1)
            if roots is not None:
                turned, own, (axis, other) = roots
                moved = np.moveaxis(z, (other + 1, axis + 1), (0, 1))
                blocks = np.stack([np.tensordot(w, x, axes=1) for w, x in zip(own, moved, strict=True)])
                z = np.moveaxis(np.tensordot(turned, blocks, axes=1), (0, 1), (other + 1, axis + 1))
            out.append(math.sqrt(scale) * z)
        return np.asarray(sum(out[1:], start=out[0]))

    @cached_property
    def _rooted(self) -> list[tuple[float, tuple[int | None, ...], _Joint | None]]:
        """What is positive semidefinite: terms, or those together that differ along two axes alone.

        One of these has the indefinite matrices, and the others commute, as around a circle: in their eigenvectors
        there is one matrix along the first axis for each.
        """
        axis = self.indefinite
        if axis is None:
            return [(scale, indices, None) for scale, indices in self.terms]
        for other, own in enumerate(self.matrices):
            turned = np.linalg.eigh(sum(m / np.linalg.norm(m) / (2 + i) for i, m in enumerate(own)))[1]
            images = [turned.T @ m @ turned for m in own]
            apart = [np.abs(m - np.diag(np.diag(m))).max() / np.abs(m).max() for m in images]
            if other != axis and max(apart) < 1e-9:
                break
        else:
            raise ConvergenceError("draws of a field on a part of a sphere " + NEEDS_DIRECT)
        groups: dict[tuple[int | None, ...], list[Array]] = {}
        for scale, indices in self.terms:
            alike = tuple(None if j in (axis, other) else i for j, i in enumerate(indices))
            along = np.diag(images[indices[other]])
            blocks = scale * along[:, None, None] * self.matrices[axis][indices[axis]]
            groups.setdefault(alike, []).append(blocks)
        return [
            (1.0, alike, (turned, symmetric_root(np.sum(blocks, axis=0)), (axis, other)))
            for alike, blocks in groups.items()
        ]

    def matvec(self, x: Array, terms: Sequence[Term] | None = None, axis: int = 0) -> Array:
        """Products with vectors x [m, K..]; or those of some terms, of their matrices from an axis on.

        Each matrix is applied once to a sum.
        """
        terms, last = terms or self.terms, axis == len(self.matrices) - 1
        sums: list[Array] = []
        for number in sorted({indices[axis] for _, indices in terms}):
            own = [term for term in terms if term[1][axis] == number]
            inner = x if last else self.matvec(x, own, axis + 1)
            part = apply_along(self.matrices[axis][number], inner, axis + 1)
            if last:
                part *= sum(scale for scale, _ in own)
            # Added up at once: vectors may be large.
            sums = [np.add(sums[0], part, out=sums[0]) if sums else part]
        return sums[0]


def symmetric_root(matrix: Array) -> Array:
    """Return W with W Wᵀ = `matrix`, [.., n, n], whose least eigenvalues may be less than 0 by rounding."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :])


def apply_kronecker(matrices: Sequence[Array], x: Array) -> Array:
    """(T_1 ⊗ T_2 ⊗ …) x of vectors x [m, K..]."""
    for axis, matrix in enumerate(matrices):
        x = apply_along(matrix, x, axis + 1)
    return x


def apply_along(matrix: Array, x: Array, axis: int) -> Array:
    """A matrix [K', K], or a diagonal [K], times one axis of x; the same slabs on any number of threads.

    Numbers that a cache holds take one thread.
    """
    if matrix.ndim == 1:
        return np.asarray(x * matrix.reshape(-1, *(1,) * (x.ndim - axis - 1)))
    before, after = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    source = x.reshape(before, x.shape[axis], after)
    out = np.empty((before, len(matrix), after))

    def piece(a: int, b: int) -> None:
        if after == 1:
            np.matmul(source[a:b, :, 0], matrix.T, out=out[a:b, :, 0])
        elif before >= after:
            np.matmul(matrix, source[a:b], out=out[a:b])
        else:
            np.matmul(matrix, source[:, :, a:b], out=out[:, :, a:b])

    with single_threaded_blas():
        run(piece, [ranges(max(before, after))], split=x.size > COSTS.slab_numbers)
    return out.reshape(*x.shape[:axis], len(matrix), *x.shape[axis + 1 :])


class FastDiagonal(PerturbedSystem):
    """Eigenvectors of each axis, and what G + Λ is in their coordinates.

    `product` is G, of single-axis factors, and `penalty` Λ, at least one term of single-axis factors without batch
    axes. It raises ConvergenceError where a function of an axis has neither
    observations nor roughness.
    """

    mixes_systems = True

    def __init__(self, product: Product, penalty: Gram, frame: Frame) -> None:
        self.frame, self.tolerance = frame, TOLERANCE
        self.data = KroneckerSum.of([product.factors], frame)
        self.penalty = KroneckerSum.of(penalty.terms, frame)
        if self.penalty.indefinite is not None:
            raise ConvergenceError(
                "on a sphere no eigenvectors along latitude nearly diagonalise the system; leave solver out"
            )
        # Of each axis the matrix nearest to singular: the roughness, whose eigenvalues spread the most.
        spectra = [[np.linalg.eigvalsh(matrix) for matrix in own] for own in self.penalty.matrices]
        stiff = [int(np.argmin([values[0] / values[-1] for values in own])) for own in spectra]
        pencils = zip(self.data.matrices, self.penalty.matrices, stiff, strict=True)
        try:  # T with Tᵀ(G + τR)T = I and TᵀRT diagonal; both matrices have trace 1
            self.rotations: list[Array] = [linalg.eigh(r[i], g[0] + TINY * r[i])[1] for g, r, i in pencils]
        except linalg.LinAlgError:
            raise ConvergenceError(
                "a coordinate has functions with neither observations nor roughness: its eigenvectors are not "
                "defined; leave solver out, or pass a larger penalty"
            ) from None
        # In the coordinates of the eigenvectors each matrix of the data is diagonal.
        self.rotated_data = self.data.transformed(self.rotations, [0] * len(stiff))
        self.rotated_penalty = self.penalty.transformed(self.rotations, stiff)
        self.data_diagonal = self.rotated_data.diagonal()
        self.penalty_diagonal = self.rotated_penalty.diagonal()
        self.multiplicity = product.multiplicity
        self.distinct, index = np.unique(self.multiplicity, return_inverse=True)
        self.index = index.reshape(self.multiplicity.shape)
        self.at_once = max(1, AT_ONCE // math.prod(frame.sizes))

    @cached_property
    def determined(self) -> NDArray[np.bool_]:
        """Whether the diagonal rises above its rounding errors and there are observations, [b..]."""
        least = tolerance(max(self.frame.sizes)) * float(self.data_diagonal.max())
        definite = [bool(self._diagonal(v).min() > least * v) for v in self.distinct]
        return np.asarray((self.multiplicity > 0) & np.array(definite)[self.index])

    @cached_property
    def weakest(self) -> int:
        """Flat index of the coefficient that weighs most in the direction that is determined least."""
        diagonal = self._diagonal(1.0)
        worst = np.unravel_index(int(np.argmin(diagonal)), diagonal.shape)
        place = [int(np.argmax(np.abs(t[:, k]))) for t, k in zip(self.rotations, worst, strict=True)]
        return int(np.ravel_multi_index(place, diagonal.shape))

    @property
    def nbytes(self) -> int:
        """Bytes of the diagonals."""
        return self.data_diagonal.nbytes + self.penalty_diagonal.nbytes

    def _diagonal(self, v: Array | float) -> Array:
        """The diagonal of TᵀAT with multiplicities v that broadcast to [.., K..]."""
        return np.asarray(v * self.data_diagonal + self.penalty_diagonal)

    def _solve_rows(self, rows: Array, which: NDArray[np.intp], tolerance: float) -> Array:
        """A⁻¹ rows, [m, K..]: the residual is that of the coefficients, whatever rounding does to other coordinates."""
        v = self.distinct[which]
        transposed = [t.T for t in self.rotations]

        def residual(x: Array) -> Array:
            return rows - times(v, self.data.matvec(x)) - self.penalty.matvec(x)

        def correct(r: Array, share: Array, left: int) -> tuple[Array, int]:
            rotated = apply_kronecker(transposed, r)
            # The residual in these coordinates is not quite that of the coefficients.
            step, iterations = descend(*self._steps(v), rotated, 0.3 * share * norm_of(rotated), left)
            return apply_kronecker(self.rotations, step), iterations

        return self._counted(refined(residual, correct, rows, tolerance))

    def _perturbations(self, rng: np.random.Generator) -> Callable[[NDArray[np.intp]], Array]:
        """Draw with the roots √v G^½, v the multiplicities, and with those of the terms of the penalty."""

        def rows(which: NDArray[np.intp]) -> Array:
            data = self.data.perturbations(len(which), rng)
            return times(np.sqrt(self.distinct[which]), data) + self.penalty.perturbations(len(which), rng)

        return rows

    def _steps(self, v: Array) -> tuple[LinearMap, LinearMap]:
        """TᵀAT and the inverse of its diagonal, for rows that have the multiplicities v."""
        diagonal = self._diagonal(v.reshape(-1, *(1,) * self.data_diagonal.ndim))

        def matvec(x: Array) -> Array:
            return self.rotated_penalty.matvec(x) + times(v, self.data_diagonal * x)

        return matvec, lambda r: np.asarray(r / diagonal)

    # --- estimates: of what is left beside the diagonal

    def probes(self) -> tuple[Array, Array, Array]:
        """a = T z, w = T⁻ᵀ z and b = A⁻¹ w of probes z, where there is one multiplicity: [K.., m] each."""
        if len(self._solved_probes) != 1:
            raise ConvergenceError("probes of several systems " + NEEDS_DIRECT)
        inverses = [np.asarray(np.linalg.inv(t).T, np.float64) for t in self.rotations]
        z = probes(self.frame.sizes)
        a, w = apply_kronecker(self.rotations, z), apply_kronecker(inverses, z)
        b = apply_kronecker(self.rotations, self._solved_probes[0])
        return np.moveaxis(a, 0, -1), np.moveaxis(w, 0, -1), np.moveaxis(b, 0, -1)

    @cached_property
    def _solved_probes(self) -> list[Array]:
        """(TᵀAT)⁻¹ z of the probes z, [m, K..], for each distinct multiplicity."""
        z, out = probes(self.frame.sizes), []
        for v in self.distinct:
            solved = np.full_like(z, np.nan)
            for i in range(len(z) if v > 0 else 0):
                goal = PROBE_TOLERANCE * norm_of(z[i : i + 1])
                solved[i : i + 1], _ = descend(
                    *self._steps(np.full(1, v)), z[i : i + 1], goal, MAX_ITERATIONS
                )
            out.append(solved)
        return out

    def edf_samples(self) -> list[Array]:
        """Estimates of tr((G + Λ)⁻¹ G) of each multiplicity, [probes].

        The trace that the diagonals alone would have is exact; zᵀ (TᵀAT)⁻¹ TᵀGT z estimates what it leaves.
        """
        z, out = probes(self.frame.sizes), []
        for v, solved in zip(self.distinct, self._solved_probes, strict=True):
            inverse = 1.0 / self._diagonal(v)
            rest = [
                np.sum((x - inverse * probe) * self.rotated_data.matvec(probe[None])[0])
                for x, probe in zip(solved, z, strict=True)
            ]
            out.append(v * (np.array(rest) + float(np.sum(inverse * self.data_diagonal))))
        return out
