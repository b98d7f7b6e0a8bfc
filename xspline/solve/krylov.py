"""Krylov methods: conjugate gradients, probes for traces, and the Lanczos process for square roots.

Systems are symmetric and positive definite; several right-hand sides [m, ..] are solved for side by side.

Conjugate gradients (Hestenes and Stiefel 1952) for solutions, fixed random probes for traces (Hutchinson 1990), the
Lanczos process for square roots (Druskin and Knizhnerman 1989).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from xspline.solve.costs import COSTS
from xspline.solve.errors import ConvergenceError
from xspline.solve.progress import tell, told
from xspline.sums.window import Array

LinearMap = Callable[[Array], Array]

TOLERANCE = 1e-10  # of the residual, relative to the right-hand side
MAX_ITERATIONS = 400
# Numbers of vectors that are solved for, or evaluated, side by side; the Lanczos process keeps some 40 of each.
AT_ONCE = 1 << 20
# Relative residual of the systems that are solved for probes; scores are off by its square.
PROBE_TOLERANCE = math.sqrt(TOLERANCE)
# The relative residual of solves for draws, which makes error bars wrong by 0.1 % on average, and the relative change
# over four steps that ends those of a root.
DRAW_TOLERANCE = 2e-3


def conjugate_gradients(
    matvec: LinearMap, precondition: LinearMap, rhs: Array, tolerance: float, diagonal: Array | None = None
) -> tuple[Array, int]:
    """A⁻¹ rhs for several right-hand sides [m, ..] side by side.

    The recursion's residual ends a run; the true one, b − A x, decides whether another run refines x. It returns x, [m,
    ..], and the number of iterations, and raises ConvergenceError where ‖b − A x‖ / ‖b‖ stays above the tolerance.
    Of a matrix whose `diagonal` is given, [..], rounding errors of its products are small enough too.
    """

    def correct(r: Array, share: Array, left: int) -> tuple[Array, int]:
        return descend(matvec, precondition, r, share * norm_of(r), left)

    return refined(lambda x: rhs - matvec(x), correct, rhs, tolerance, diagonal)


def refined(
    residual: LinearMap,
    correct: Callable[[Array, Array, int], tuple[Array, int]],
    rhs: Array,
    tolerance: float,
    diagonal: Array | None = None,
) -> tuple[Array, int]:
    """Solutions that runs of iterations correct until their true residuals, b − A x, are small enough.

    `residual` takes x to b − A x. `correct` takes a residual [m, ..], by how much of its size it has to fall at least,
    [m], and the most iterations, to a correction of x and the iterations that it took. All else, the results and the
    error are as of `conjugate_gradients`.
    """
    norm = norm_of(rhs)
    norm[norm == 0] = 1.0
    x = np.zeros_like(rhs)
    r = rhs
    count = 0
    worst = np.ones(len(rhs))
    for _ in range(3):  # runs, each of which refines the solution of the last one
        last = float(worst.max())
        step, iterations = correct(
            r, np.minimum(tolerance / np.maximum(worst, tolerance), 1.0), MAX_ITERATIONS - count
        )
        x, count = x + step, count + iterations
        r = residual(x)
        worst = norm_of(r) / norm
        rounding = 0.0 if diagonal is None else 4 * np.finfo(np.float64).eps * norm_of(diagonal * x) / norm
        if (worst <= np.maximum(tolerance, rounding)).all():
            return x, count
        if not worst.max() < last / 2 or count >= MAX_ITERATIONS:
            break
    raise ConvergenceError(
        f"conjugate gradients for {math.prod(rhs.shape[1:])} coefficients stand at a relative residual of "
        f"{worst.max():.1e} after {count} iterations, {tolerance:.0e} was asked for: the system is nearly singular. "
        "Pass a larger penalty, add a ridge to it (penalty + xs.Ridge(1e-3)), use fewer coefficients, or pass "
        "solver='banded'"
    )


@told("iterations")
def descend(
    matvec: LinearMap, precondition: LinearMap, r: Array, goal: Array, most: int
) -> tuple[Array, int]:
    """Preconditioned conjugate gradients (Hestenes and Stiefel 1952) until all residuals are at the goal [m]."""
    x, p, r, before = np.zeros_like(r), np.zeros_like(r), r.copy(), np.zeros_like(goal)
    for count in range(most + 1):
        if count == most or (norm_of(r) <= goal).all():
            break
        tell(f"{count + 1} of at most {most}")
        z = precondition(r)
        now = dot(r, z)
        p = times(_ratio(now, before), p)
        p += z
        q = matvec(p)
        share = _ratio(now, dot(p, q))
        x += times(share, p)
        r -= times(share, q)
        before = now
    return x, count


def _ratio(a: Array, b: Array) -> Array:
    """a / b, 0 where b is 0."""
    return np.divide(a, b, out=np.zeros_like(a), where=b != 0)


def times(a: Array, x: Array) -> Array:
    """Rows x [m, ..] times numbers a [m]."""
    return np.asarray(a.reshape(-1, *(1,) * (x.ndim - 1)) * x)


def dot(a: Array, b: Array) -> Array:
    """Products of the rows, summed in a fixed order, without BLAS."""
    return np.asarray(np.sum((a * b).reshape(len(a), -1), axis=1))


def norm_of(a: Array) -> Array:
    """Norms of the rows."""
    return np.sqrt(dot(a, a))


def probes(sizes: Sequence[int]) -> Array:
    """±1 at random, always the same: [count, K..], fewer of long vectors, which need fewer."""
    count = int(np.clip(COSTS.drawn_numbers // math.prod(sizes), 4, 16))
    bits = np.random.default_rng(3).integers(0, 2, size=(count, *sizes), dtype=np.int8)
    return np.asarray(bits * 2.0 - 1.0, dtype=np.float64)


def square_root(matvec: LinearMap, z: Array) -> Array:
    """S^½ z for several z [m, ..] side by side, S symmetric and positive semidefinite, on the host.

    In the basis V of the Krylov space of z, S is a tridiagonal matrix T and S^½ z = ‖z‖ V T^½ e₁ up to what the next
    steps would change. √ is small where it is not smooth, at 0, so that S may be singular; eigenvalues in clusters, as
    those of a system of even observations with gaps, need few steps.
    """
    return power_of(lambda v: matvec(v) - v, lambda v: v, lambda v: v, z, 0.5)


def power_of(rest: LinearMap, near_solve: LinearMap, near_matvec: LinearMap, x: Array, power: float) -> Array:
    """(M⁻¹A)^power x for several x [m, ..] side by side, A and M symmetric and positive definite, on the host.

    Of x with the covariance M⁻¹, the power −½ has the covariance A⁻¹. `rest`, `near_solve` and `near_matvec` are
    products with A − M, M⁻¹ and M. The Lanczos process gives a basis of vectors v that are orthonormal in the metric of
    M; w are M v, and A v = w + (A − M) v.
    """
    w = near_matvec(x)
    norm = np.sqrt(dot(x, w))
    scale = _ratio(np.ones_like(norm), norm)
    v, w, before, beta = times(scale, x), times(scale, w), np.zeros_like(x), np.zeros_like(norm)
    basis, diagonal, beside = [], [], list[Array]()
    column = last = np.zeros((len(x), 0))
    for step in range(1, 161):
        basis.append(v)
        q = w + rest(v) - times(beta, before)
        alpha = dot(v, q)
        diagonal.append(alpha)
        if step % 2 == 0:
            before_last, last = last, column
            column = _power_column(np.array(diagonal).T, np.array(beside).T, power)
            change = column.copy()
            change[:, : before_last.shape[1]] -= before_last
            if (np.linalg.norm(change, axis=1) <= DRAW_TOLERANCE * np.linalg.norm(column, axis=1)).all():
                break
        q -= times(alpha, w)
        image = near_solve(q)
        beta = np.sqrt(np.maximum(dot(q, image), 0.0))
        beside.append(beta)
        scale = _ratio(np.ones_like(beta), beta)
        before, w, v = w, times(scale, q), times(scale, image)
    out = np.zeros_like(x)
    for v, share in zip(basis, column.T, strict=True):
        out += times(share * norm, v)
    return out


def _power_column(diagonal: Array, beside: Array, power: float) -> Array:
    """T^power e₁ of tridiagonal matrices T, [m, k] from [m, k] and [m, k − 1]."""
    k = diagonal.shape[1]
    matrices = np.zeros((*diagonal.shape, k))
    matrices[:, range(k), range(k)] = diagonal
    matrices[:, range(1, k), range(k - 1)] = beside
    values, vectors = np.linalg.eigh(matrices)
    least = 0.0 if power > 0 else np.finfo(np.float64).eps * values[:, -1:]
    powers = np.maximum(values, least) ** power
    return np.asarray(np.einsum("mij,mj,mj->mi", vectors, powers, vectors[:, 0]))
