"""The one solve: (G + Λ) c = h, centred about the reference of the sums."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xspline.solve.direct.cholesky import Array
from xspline.solve.direct.solver import Direct
from xspline.solve.errors import ConvergenceError, nothing_determined
from xspline.solve.kronecker.pcg import FastDiagonal
from xspline.solve.kronecker.separable import Separable
from xspline.solve.kronecker.spectral import Spectral
from xspline.solve.krylov import MOST
from xspline.solve.parallel import Resources
from xspline.solve.penalty import Penalty
from xspline.solve.select import ITERATIVE, Choice, candidates, room_for, room_on
from xspline.solve.structure import product_of, ridge_of, split
from xspline.solve.system import Factorisation, System
from xspline.sums import Gram, Sums

if TYPE_CHECKING:
    from xspline.spaces import Frame, Space

FEW = 100  # iterations after which another solver, if there is one, takes over


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
    resources: Resources | None = None,
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
    resources : Resources, optional
        See `solve`.

    Raises
    ------
    SingularSystemError
        Nothing is determined: the whole system, or every batch member, is singular.
    ValueError
        The solver does not fit the structure, or needs more memory than there is.
    """
    found = _factorised(
        gram, penalty, space, solver, observations=observations, exact=exact, resources=resources
    )
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
    resources: Resources | None = None,
) -> tuple[Factorisation, Array]:
    """The factorisation and, with a right-hand side [K.., b..], its solution: each factor is made once for both."""
    frame = space.frame
    members = (*frame.sizes, math.prod(gram.batch))
    observed = gram.diagonal(frame) > 0
    if not observed.any():
        raise nothing_determined(space, observed.reshape(members))
    choice, system, solved = _attempted(gram, penalty, space, solver, rhs, exact, resources)
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
    resources: Resources | None,
) -> tuple[Choice, System, Array]:
    """The first solver that gets there: where iterations take too many, the next one takes over."""
    resources = resources or Resources.here()
    choices = candidates(gram, penalty, space.frame, solver, exact=exact, resources=resources)
    room, failed = room_for(resources, exact), ""
    for number, choice in enumerate(choices, start=1):
        most = MOST if number == len(choices) else FEW
        try:
            system = _system(choice, gram, penalty, space, room, most, resources)
            solved = np.zeros(()) if rhs is None else system.solve(rhs)
        except ConvergenceError:
            if number == len(choices):
                raise
            failed = f"; {choice.name} did not converge in {FEW} iterations"
        else:
            break
    return replace(choice, reason=choice.reason + failed), system, solved


def _system(
    choice: Choice, gram: Gram, penalty: Gram, space: Space, room: float, most: int, resources: Resources
) -> System:
    """The solver of a choice; an iterative one gives up after `most` iterations."""
    name, gpu, cores = choice.name, resources.gpu, resources.cores
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
        return Separable(parts, frame, room, cores)
    if choice.on_gpu and gpu is not None:
        room = min(room, room_on(gpu, space.size))
        return Direct(gram, penalty, frame, dense=True, room=room, cores=cores, gpu=gpu)
    return Direct(gram, penalty, frame, dense=name == "dense", room=room, cores=cores)


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
    resources : Resources, optional
        Cores, memory and GPU that it may use; those of this process and machine, without a GPU, if they are not given.

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
            sums.gram, matrix, space, solver, rhs, observations=most, resources=resources
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
