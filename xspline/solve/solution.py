"""The solve of the normal equations (G + Λ) c = h, and condition numbers; centred about the reference of the sums."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from xspline.solve.batch import distinct
from xspline.solve.costs import Resources
from xspline.solve.direct.cholesky import Array
from xspline.solve.direct.device import gpu_room
from xspline.solve.direct.solver import Direct
from xspline.solve.errors import ConvergenceError, nothing_determined
from xspline.solve.kronecker.nearly import NearlySeparable
from xspline.solve.kronecker.pcg import FastDiagonal
from xspline.solve.kronecker.product import nearly_split, product_of, ridge_of, split
from xspline.solve.kronecker.separable import Separable
from xspline.solve.krylov import DRAW_TOLERANCE
from xspline.solve.penalties.roughness import Penalty
from xspline.solve.progress import told
from xspline.solve.select import ITERATIVE, NEARLY_SEPARABLE, candidates
from xspline.solve.system import Choice, Factorisation, System
from xspline.spaces import Space
from xspline.sums import Gram, Sums
from xspline.sums.integrals import mass
from xspline.threads import on_cores, single_threaded_blas


@dataclass(frozen=True, eq=False)
class Solution:
    """Coefficients of a fit."""

    coefficients: Array  # [K.., b..], c, and NaN for members that are not determined
    rss: Array  # [b..], the weighted residual sum of squares
    determined: NDArray[np.bool_]  # [b..]
    factorisation: Factorisation

    def __repr__(self) -> str:
        total = self.determined.size
        determined = int(self.determined.sum())
        fits = "" if total == 1 else f", {determined} of {total} fits determined"
        sizes = " × ".join(map(str, self.coefficients.shape[: self.coefficients.ndim - self.rss.ndim]))
        return f"<Solution of {sizes} coefficients{fits}: {self.factorisation!r}>"


@single_threaded_blas()
def factorise(
    gram: Gram,
    penalty: Gram,
    space: Space,
    solver: str | None = None,
    *,
    observations: int | None = None,
    exact: bool = False,
    resources: Resources | None = None,
) -> Factorisation:
    """Factorise G + Λ.

    `gram` and `penalty` are G, and Λ without batch axes, and `observations` is the number of observations, for
    messages. For `solver` and `exact` see `candidates`, for `resources` `solve`. It raises SingularSystemError where
    nothing is determined: the whole system, or every batch member, is singular; and ValueError where the solver does
    not fit the structure, or needs more memory than there is.
    """
    return _solved(gram, penalty, space, solver, None, observations, exact, resources)[0]


@single_threaded_blas()
def solve(
    sums: Sums,
    space: Space,
    penalty: Penalty,
    solver: str | None = None,
    factorisation: Factorisation | None = None,
    resources: Resources | None = None,
) -> Solution:
    """Coefficients of the penalised least-squares fit.

    The sums are centred about their reference r, and the constant has the coefficients e, so
    (G + Λ)(c − r e) = h − r Λe. The result does not depend on r. For `solver` see `candidates`. `factorisation` is one
    of the same G and penalty, from an earlier solve or another variable, and `resources` are cores, memory and GPU that
    it may use; those of this process and machine, without a GPU, if they are not given. It raises SingularSystemError
    where nothing is determined.
    """
    frame = space.frame
    matrix = penalty.bound(sums.gram, space).gram(space)
    e = functools.reduce(np.multiply, np.ix_(*frame.constant))
    lifted = e.shape + (1,) * sums.reference.ndim
    rhs = sums.full_moment(frame)
    if matrix.terms:
        rhs = rhs - matrix.matvec(e, frame).reshape(lifted) * sums.reference
    observations = int(sums.count.max(initial=0))
    with told(f"solving for {space.size} coefficients"):
        if factorisation is None:
            factorisation, centred = _solved(
                sums.gram, matrix, space, solver, rhs, observations, False, resources
            )
        else:
            centred = factorisation.solve(rhs)
    centred = penalty.obeyed(centred, space)
    rss = np.maximum(sums.rss(centred, frame), 0.0)  # zero up to rounding when the fit is exact
    determined = np.broadcast_to(factorisation.determined, rss.shape)
    centred += e.reshape(lifted) * sums.reference
    return Solution(centred, rss, determined, factorisation)


@single_threaded_blas()
def strength_derivatives(sums: Sums, space: Space, penalty: Penalty, solution: Solution) -> Array:
    """Derivatives of the coefficients by the logarithms of the strengths, ∂c/∂log λ_t = −(G + Λ)⁻¹ λ_tS_t c.

    They are [K.., T, b..], and NaN for members that are not determined. The penalty is Λ = Σ_t λ_tS_t, a strength for
    each term of its Gram, none of which has a share in the constant; the solution is that of these sums and this
    penalty.
    """
    # Without the constant, of which λS would leave the rounding errors.
    known = np.where(solution.determined, sums.centred(solution.coefficients, space.frame), 0.0)
    terms = penalty.bound(sums.gram, space).gram(space).terms
    images = [Gram((term,)).matvec(known, space.frame) for term in terms]
    return -solution.factorisation.solve(np.stack(images, axis=len(space.shape)), tolerance=DRAW_TOLERANCE)


@single_threaded_blas()
def condition(sums: Sums, space: Space, factorisation: Factorisation) -> Array:
    """Return how unevenly the data determine the field, [b..]: the largest Σw vᵀMv / vᵀ(G + Λ)v of any direction v.

    M holds the integrals of products of functions. Observations spread evenly have G = Σw M and a condition of 1,
    whatever the basis and its degree; c is a direction in which the field has √c times their error. Below 1 where a
    penalty determines more than the data. From a few steps of inverse iteration, so never too large; NaN for members
    that are not determined. The factorisation is that of their G and a penalty.
    """
    axes = tuple(range(len(space.shape)))
    masses = Gram((tuple(mass(space, j) for j in axes),))
    x = np.random.default_rng(0).standard_normal((*space.shape, *factorisation.determined.shape))
    image = masses.matvec(x, space.frame)
    size = np.ones(())
    for _ in range(2):  # measured: within a factor of 2, mostly of 1.1
        x = factorisation.solve(image / np.sqrt(np.sum(x * image, axis=axes)))
        image = masses.matvec(x, space.frame)
        size = np.sqrt(np.sum(x * image, axis=axes))
    return np.asarray(size * sums.weight)


@single_threaded_blas()
def condition_bound(sums: Sums, space: Space, factorisation: Factorisation) -> Array:
    """Return an upper bound of `condition` where there is no penalty, [b..], without a solve.

    With S² the diagonal of G and C = S⁻¹GS⁻¹ it is Σw λ_max(S⁻¹MS⁻¹) / λ_min(C), at most Σw Σ_i M_ii / G_ii over the
    smallest of P eigenvalues whose sum is P: e λ_min(C) ≥ |C|. Of use where coefficients are few, as in a trend. The
    factorisation is that of their G, by a solver that knows the inverse.
    """
    axes = tuple(range(len(space.shape)))
    masses = Gram((tuple(mass(space, j) for j in axes),)).diagonal(space.frame)
    systems, index = distinct(sums.gram)
    scale = systems.diagonal(space.frame)
    # Members without observations are not determined: their log-determinant is NaN.
    np.copyto(scale, 1.0, where=scale <= 0)
    shares = np.sum(masses[..., None] / scale, axis=axes)
    logdet = factorisation.logdet() - np.sum(np.log(scale, out=scale), axis=axes)[index]
    with np.errstate(over="ignore"):
        return np.asarray(sums.weight * shares[index] * np.exp(1.0 - logdet))


def _solved(
    gram: Gram,
    penalty: Gram,
    space: Space,
    solver: str | None,
    rhs: Array | None,
    observations: int | None,
    exact: bool,
    resources: Resources | None,
) -> tuple[Factorisation, Array]:
    """The factorisation and, with a right-hand side [K.., b..], its solution: each factor is made once for both."""
    frame = space.frame
    resources = resources or Resources.here()
    systems, index = distinct(gram)
    observed = np.asarray(systems.diagonal(frame) > 0)
    if not observed.any():
        raise nothing_determined(space, observed[..., index.ravel()])
    choices = candidates(gram, penalty, frame, solver, exact=exact, resources=resources)
    failed = ""
    for choice in choices:
        last = choice is choices[-1]
        try:
            with on_cores(resources.cores):
                system = _system(choice, gram, penalty, space, exact, resources)
                solved = np.zeros(()) if rhs is None else system.solve(rhs)
            break
        except ConvergenceError:
            if last:
                raise
            failed = f"; {choice.name} did not converge"
    some = np.asarray(observed.any(axis=tuple(range(len(frame.sizes)))))
    determined = system.determined & some[index]
    if not determined.any():
        observed = observed[..., index.ravel()]
        penalised = bool(penalty.terms)
        raise nothing_determined(
            space, observed, system.weakest, penalised=penalised, observations=observations
        )
    choice = replace(choice, reason=choice.reason + failed)
    if rhs is not None and not determined.all():
        np.copyto(solved, np.nan, where=~determined)
    return Factorisation(choice, system, determined), solved


def _system(
    choice: Choice, gram: Gram, penalty: Gram, space: Space, exact: bool, resources: Resources
) -> System:
    """The solver of a choice."""
    name = choice.name
    frame = space.frame
    room = resources.bytes_kept(exact)
    if name == ITERATIVE:
        from xspline.solve.multigrid.solver import Iterative  # imports numba

        return Iterative(gram, penalty, space)
    if name == NEARLY_SEPARABLE and (nearly := nearly_split(gram, penalty, frame)) is not None:
        expected, parts = nearly
        modes = Separable(parts, frame, room, resources)
        return NearlySeparable(gram, Gram((expected.factors,)), penalty, frame, modes)
    product = product_of(gram, frame)
    if product is not None and name in ("spectral", "separable"):
        if name == "spectral" and ridge_of(penalty) is None:
            return FastDiagonal(product, penalty, frame)
        if (apart := split(product, penalty, frame)) is not None:
            return Separable(apart, frame, room, resources)
    if choice.on_gpu:
        room = min(room, gpu_room(resources, space.size))
    else:
        resources = replace(resources, gpu=None)
    options: dict[str, Any] = {"dense": name == "dense", "dissection": name == "dissection"}
    options |= {"room": room, "resources": resources}
    return Direct(gram, penalty, frame, **options)


def interval_factor(level: float, degrees_of_freedom: Any = math.inf) -> Any:
    """Return how many standard errors an interval reaches to each side: of Student's t, else the normal distribution.

    >>> float(interval_factor(0.95).round(2)), float(interval_factor(0.95, 12).round(2))
    (1.96, 2.18)
    """
    return stdtrit(degrees_of_freedom, (1 + level) / 2)


def student_below(degrees_of_freedom: Any, x: Any) -> Any:
    """Return the chance that Student's t is below some numbers."""
    return stdtr(degrees_of_freedom, x)
