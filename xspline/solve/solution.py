"""The one solve: (G + Λ) c = h, centred about the reference of the sums."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from xspline.solve.direct.cholesky import Array
from xspline.solve.direct.solver import Direct
from xspline.solve.errors import ConvergenceError, nothing_determined
from xspline.solve.kronecker.pcg import FastDiagonal
from xspline.solve.kronecker.separable import Separable
from xspline.solve.kronecker.spectral import Spectral
from xspline.solve.krylov import MOST
from xspline.solve.penalty import Penalty
from xspline.solve.select import ITERATIVE, Choice, candidates, room_for, room_on
from xspline.solve.structure import product_of, ridge_of, split
from xspline.sums import Gram, Sums

if TYPE_CHECKING:
    from xspline.solve.device.gpu import Gpu
    from xspline.spaces import Frame, Space

FEW = 100  # iterations after which another solver, if there is one, takes over


class System(Protocol):
    """A factorised system."""

    @property
    def determined(self) -> NDArray[np.bool_]: ...

    @property
    def weakest(self) -> int: ...

    def solve(self, rhs: Array) -> Array: ...

    def edf(self) -> Array: ...

    def logdet(self) -> Array: ...

    def inverse_pairs(self) -> Array: ...

    def traces(self, grams: Sequence[Gram]) -> Array: ...

    def half(self, z: Array) -> Array: ...


@runtime_checkable
class Iterating(Protocol):
    """A system that is solved by iterations, and a few random probes of it."""

    def solve(self, rhs: Array, tolerance: float | None = None) -> Array: ...

    def probed(self) -> tuple[Array, Array, Array]: ...


@dataclass(frozen=True, eq=False)
class Factorisation:
    """G + Λ, factorised: solves for any number of right-hand sides.

    Parameters
    ----------
    choice : Choice
        The solver and why.
    system : Spectral, FastDiagonal, Separable, Direct or Iterative
    determined : ndarray of bool, [b..]
        Which batch members the data and the penalty determine; one without observations is not, whatever the
        penalty. Extents are those of G: 1 where it is shared.
    """

    choice: Choice
    system: System
    determined: NDArray[np.bool_]

    @property
    def name(self) -> str:
        """Name of the solver."""
        return self.choice.name

    @property
    def reason(self) -> str:
        """Why this solver."""
        return self.choice.reason

    def solve(self, rhs: Array, tolerance: float | None = None) -> Array:
        """(G + Λ)⁻¹ rhs, [K.., b..]; NaN for members that are not determined.

        Where the solver iterates, up to a relative residual, if that is not to be the usual one.
        """
        system = self.system
        if tolerance is not None and isinstance(system, Iterating):
            return np.where(self.determined, system.solve(rhs, tolerance), np.nan)
        return np.where(self.determined, system.solve(rhs), np.nan)

    def probed(self) -> tuple[Array, Array, Array]:
        """Random a and w with E[w aᵀ] = I, and b = (G + Λ)⁻¹ w, [K.., m] each, of a solver that iterates."""
        if not isinstance(self.system, Iterating):
            raise TypeError(f"the {self.name} solver knows the inverse and has no probes; ask it for traces")
        return self.system.probed()

    def edf(self) -> Array:
        """Effective degrees of freedom tr((G + Λ)⁻¹ G), [b..]; NaN where not determined.

        Exact, but for iterations, which estimate traces and log|G + Λ| from fixed random probes.
        """
        return np.where(self.determined, self.system.edf(), np.nan)

    def logdet(self) -> Array:
        """log|G + Λ|, [b..]; NaN where not determined."""
        return np.where(self.determined, self.system.logdet(), np.nan)

    def inverse_pairs(self) -> Array:
        """Pair form Z of (G + Λ)⁻¹, [K.., O.., b..], on the frame of the Space; NaN for members not determined.

        Only the entries of the inverse that pairs of features meet in are computed: tr((G + Λ)⁻¹ B) = Σ Z B for a
        pair array B, and φᵀ (G + Λ)⁻¹ φ = Σ_{k,o} Z[k,o] Π_j φ_{k_j} φ_{k_j + o_j}.
        """
        return np.where(self.determined, self.system.inverse_pairs(), np.nan)

    def traces(self, grams: Sequence[Gram]) -> Array:
        """tr((G + Λ)⁻¹ S) of Grams S without batch axes, [len, b..]; NaN where not determined."""
        return np.where(self.determined, self.system.traces(grams), np.nan)

    def half(self, z: Array) -> Array:
        """x with E[x xᵀ] = (G + Λ)⁻¹ for z of independent standard normal numbers.

        Parameters
        ----------
        z : ndarray, [K.., b..]
            Batch extents of 1 broadcast on both sides.

        Returns
        -------
        ndarray, [K.., b..]; NaN for members that are not determined.
        """
        return np.where(self.determined, self.system.half(z), np.nan)


@dataclass(frozen=True, eq=False)
class Solution:
    """Coefficients of a fit.

    Parameters
    ----------
    coefficients : ndarray, [K.., b..]
        c; NaN for members that are not determined.
    rss : ndarray, [b..]
        Weighted residual sum of squares.
    determined : ndarray of bool, [b..]
    factorisation : Factorisation
    """

    coefficients: Array
    rss: Array
    determined: NDArray[np.bool_]
    factorisation: Factorisation


def factorise(
    gram: Gram,
    penalty: Gram,
    space: Space,
    solver: str | None = None,
    *,
    observations: int | None = None,
    exact: bool = False,
    gpu: Gpu | None = None,
) -> Factorisation:
    """Factorise G + Λ.

    Parameters
    ----------
    gram, penalty : Gram
        G, and Λ without batch axes.
    space : Space
    solver : str, optional
        See `select`.
    observations : int, optional
        Number of observations, for messages.
    exact : bool
        Only solvers that know the inverse, see `select`.
    gpu : Gpu, optional
        See `solve`.

    Raises
    ------
    SingularSystemError
        Nothing is determined: the whole system, or every batch member, is singular.
    ValueError
        The solver does not fit the structure, or needs more memory than there is.
    """
    found = _factorised(gram, penalty, space, solver, observations=observations, exact=exact, gpu=gpu)
    return found[0]


def _factorised(
    gram: Gram,
    penalty: Gram,
    space: Space,
    solver: str | None,
    rhs: Array | None = None,
    *,
    observations: int | None,
    exact: bool = False,
    gpu: Gpu | None = None,
) -> tuple[Factorisation, Array]:
    """The factorisation and, with a right-hand side [K.., b..], its solution: each factor is made once for both."""
    frame = space.frame
    members = (*frame.sizes, math.prod(gram.batch))
    observed = gram.diagonal(frame) > 0
    if not observed.any():
        raise nothing_determined(space, observed.reshape(members))
    choice, system, solved = _attempted(gram, penalty, space, solver, rhs, exact, gpu)
    determined = system.determined & observed.any(axis=tuple(range(len(frame.sizes))))
    if not determined.any():
        raise nothing_determined(
            space,
            observed.reshape(members),
            system.weakest,
            penalised=bool(penalty.terms),
            observations=observations,
        )
    return Factorisation(choice, system, determined), np.where(determined, solved, np.nan)


def _attempted(
    gram: Gram,
    penalty: Gram,
    space: Space,
    solver: str | None,
    rhs: Array | None,
    exact: bool,
    gpu: Gpu | None,
) -> tuple[Choice, System, Array]:
    """The first solver that gets there: where iterations take too many, the next one takes over."""
    choices = candidates(gram, penalty, space.frame, solver, exact=exact, gpu=gpu)
    room, failed = room_for(exact), ""
    for number, choice in enumerate(choices, start=1):
        most = MOST if number == len(choices) else FEW
        try:
            system = _system(choice, gram, penalty, space, room, most, gpu)
            solved = np.zeros(()) if rhs is None else system.solve(rhs)
        except ConvergenceError:
            if number == len(choices):
                raise
            failed = f"; {choice.name} did not converge in {FEW} iterations"
        else:
            break
    return replace(choice, reason=choice.reason + failed), system, solved


def _system(
    choice: Choice, gram: Gram, penalty: Gram, space: Space, room: float, most: int, gpu: Gpu | None
) -> System:
    """The solver of a choice; an iterative one gives up after `most` iterations."""
    name = choice.name
    if name == ITERATIVE:
        from xspline.solve.multigrid.solver import Iterative  # imports numba

        return Iterative(gram, penalty, space, most=most, gpu=gpu)
    frame = space.frame
    product, ridge = product_of(gram, frame), ridge_of(penalty)
    if product is not None and name == "spectral":
        if ridge is None:
            return FastDiagonal(product, penalty, frame, most=most)
        return Spectral(product, ridge, frame)
    if product is not None and name == "separable" and (parts := split(product, penalty, frame)) is not None:
        return Separable(parts, frame, room)
    if choice.on_gpu and gpu is not None:
        room = min(room, room_on(gpu, space.size))
        return Direct(gram, penalty, frame, dense=True, room=room, gpu=gpu)
    return Direct(gram, penalty, frame, dense=name == "dense", room=room)


def solve(
    sums: Sums,
    space: Space,
    penalty: Penalty,
    solver: str | None = None,
    factorisation: Factorisation | None = None,
    gpu: Gpu | None = None,
) -> Solution:
    """Coefficients of the penalised least-squares fit.

    The sums are centred about their reference r, and the constant has the coefficients e, so
    (G + Λ)(c − r e) = h − r Λe. The result does not depend on r.

    Parameters
    ----------
    sums : Sums
    space : Space
    penalty : Penalty
    solver : str, optional
        See `select`.
    factorisation : Factorisation, optional
        Of the same G and penalty, from an earlier solve or another variable.
    gpu : Gpu, optional
        Device of the iterative solver, and of dense systems that fit there and are worth the way; all others, which are
        small or have structure, stay on the host.

    Raises
    ------
    SingularSystemError
        Nothing is determined.
    """
    frame, matrix = space.frame, penalty.gram(space)
    shift, penalised = _shift(sums, matrix, frame)
    rhs, most = sums.full_moment(frame) - penalised, int(sums.count.max(initial=0))
    if factorisation is None:
        factorisation, centred = _factorised(
            sums.gram, matrix, space, solver, rhs, observations=most, gpu=gpu
        )
    else:
        centred = factorisation.solve(rhs)
    rss = np.maximum(sums.rss(centred, frame), 0.0)  # zero up to rounding when the fit is exact
    determined = np.broadcast_to(factorisation.determined, rss.shape)
    centred += shift
    return Solution(centred, rss, determined, factorisation)


def _shift(sums: Sums, penalty: Gram, frame: Frame) -> tuple[Array, Array]:
    """r e and r Λe, [K.., b..]."""
    constant = functools.reduce(np.multiply, np.ix_(*frame.constant))
    lifted = constant.shape + (1,) * sums.reference.ndim
    penalised = penalty.matvec(constant, frame)
    return constant.reshape(lifted) * sums.reference, penalised.reshape(lifted) * sums.reference
