"""Krylov methods for symmetric positive definite systems, several right-hand sides [m, ..] side by side.

Conjugate gradients (Hestenes and Stiefel 1952) for solutions, fixed random probes for traces (Hutchinson 1990).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from xspline.solve.errors import ConvergenceError

Array = NDArray[np.float64]
LinearMap = Callable[[Array], Array]

TOLERANCE = 1e-10  # of the residual, relative to the right-hand side
MAX_ITERATIONS = 400
RESTARTS = 3  # runs, each of which refines the solution of the last one
STALLED = 50  # iterations without a residual of half the size, after which a run ends
PROBES = (4, 16)  # fewest and most: their estimates scatter like 1 / √P
PROBE_TOLERANCE = 1e-6  # relative residual of the systems that are solved for probes
FULLY_PROBED = 200_000  # coefficients up to which there are most probes
SEED = 20240229


def conjugate_gradients(
    matvec: LinearMap, precondition: LinearMap, rhs: Array, tolerance: float, most: int = MAX_ITERATIONS
) -> tuple[Array, int, float]:
    """A⁻¹ rhs for several right-hand sides [m, ..] side by side.

    The recursion's residual ends a run; the true one, b − A x, decides whether another run refines x.

    Returns
    -------
    x : ndarray, [m, ..]
    iterations : int
    residual : float
        The largest ‖b − A x‖ / ‖b‖.

    Raises
    ------
    ConvergenceError
    """
    xp, norm = array_namespace(rhs), norm_of(rhs)
    norm = xp.where(norm == 0, xp.ones_like(norm), norm)
    x, r, count, worst = xp.zeros_like(rhs), rhs, 0, 1.0
    for _ in range(RESTARTS):
        last = worst
        step, iterations = descend(matvec, precondition, r, tolerance * norm, most - count)
        x, count = x + step, count + iterations
        r = rhs - matvec(x)
        worst = float(xp.max(norm_of(r) / norm))
        if worst <= tolerance:
            return x, count, worst
        if not worst < last / 2 or count >= most:
            break
    raise stalled(math.prod(rhs.shape[1:]), worst, count, tolerance)


def stalled(size: int, residual: float, iterations: int, tolerance: float) -> ConvergenceError:
    """The error of iterations that did not get there."""
    return ConvergenceError(
        f"conjugate gradients for {size} coefficients stand at a relative residual of {residual:.1e} after "
        f"{iterations} iterations, {tolerance:.0e} was asked for: the system is nearly singular. Pass a larger "
        "penalty, add a ridge to it (penalty + xs.Ridge(1e-3)), use fewer coefficients, or pass solver='banded'"
    )


def descend(
    matvec: LinearMap, precondition: LinearMap, r: Array, goal: Array, most: int
) -> tuple[Array, int]:
    """Preconditioned conjugate gradients (Hestenes and Stiefel 1952) until all residuals are at the goal [m].

    Ends too where the best residuals have not been halved for `STALLED` iterations.
    """
    xp = array_namespace(r)
    x, p, r, before = xp.zeros_like(r), xp.zeros_like(r), xp.asarray(r, copy=True), xp.zeros_like(goal)
    least, improved_at = np.inf, 0
    for count in range(most + 1):
        distance = float(xp.max(norm_of(r) - goal))
        if distance <= 0 or count == most or count - improved_at == STALLED:
            break
        if distance < least / 2:
            least, improved_at = distance, count
        z = precondition(r)
        now = dot(r, z)
        p *= _lifted(_ratio(now, before), p)
        p += z
        q = matvec(p)
        share = _ratio(now, dot(p, q))
        x += times(share, p)
        r -= times(share, q)
        before = now
    return x, count


def _ratio(a: Array, b: Array) -> Array:
    """a / b, 0 where b is 0."""
    xp, zero = array_namespace(a), b == 0
    quotient: Array = xp.where(zero, xp.zeros_like(a), a / xp.where(zero, xp.ones_like(b), b))
    return quotient


def times(a: Array, x: Array) -> Array:
    """Rows x [m, ..] times numbers a [m]."""
    return _lifted(a, x) * x


def _lifted(a: Array, x: Array) -> Array:
    out: Array = array_namespace(a).reshape(a, (-1, *(1,) * (x.ndim - 1)))
    return out


def dot(a: Array, b: Array) -> Array:
    """Products of the rows, summed in a fixed order, without BLAS."""
    xp = array_namespace(a)
    out: Array = xp.sum(xp.reshape(a * b, (a.shape[0], -1)), axis=1)
    return out


def norm_of(a: Array) -> Array:
    """Norms of the rows."""
    out: Array = array_namespace(a).sqrt(dot(a, a))
    return out


def probes(sizes: Sequence[int]) -> Array:
    """±1 at random, always the same: [count, K..], fewer of long vectors, which need fewer."""
    fewest, most = PROBES
    count = int(np.clip(most * FULLY_PROBED // math.prod(sizes), fewest, most))
    bits = np.random.default_rng(SEED).integers(0, 2, size=(count, *sizes), dtype=np.int8)
    return np.asarray(bits * 2.0 - 1.0, dtype=np.float64)
