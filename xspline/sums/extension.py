"""Sums of a space in one with longer domains, in which all its functions lie."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from xspline.spaces import Space
from xspline.spaces.bspline import LocalSpline
from xspline.spaces.features import Floats, Global, Legendre
from xspline.sums.factor import Factor
from xspline.sums.sums import Sums


class Move(NamedTuple):
    """How the functions φ of one coordinate lie among those of a longer domain, φ'.

    `shift` is the number of B-splines in front of the first one, and `matrix`, [K, K], A of φ' = A φ, or None where
    they are the same.
    """

    shift: int
    matrix: Floats | None


def moves_between(space: Space, longer: Space) -> tuple[Move, ...]:
    """Return how each coordinate of a space moves into what `Space.extend` made of it."""
    moves = []
    for own, other in zip(space.features, longer.features, strict=True):
        move = Move(0, None)
        if isinstance(own, LocalSpline) and isinstance(other, LocalSpline) and not own.periodic:
            (lo, hi), (low, _) = own.ends, other.ends
            move = Move(round((lo - low) / (hi - lo) * own.cells), None)
        elif isinstance(own, Global) and isinstance(other, Global):
            move = Move(0, _change_of_polynomials(own, other))
        moves.append(move)
    return tuple(moves)


def _change_of_polynomials(own: Global, other: Global) -> Floats | None:
    """Return A of φ' = A φ, which mixes the polynomials alone."""
    mine = next((term for term in own.terms if isinstance(term, Legendre)), None)
    yours = next((term for term in other.terms if isinstance(term, Legendre)), None)
    if mine is None or yours is None or (mine.lo, mine.hi) == (yours.lo, yours.hi):
        return None
    names = [name for term in own.terms for name in term.names]
    at = [names.index(name) for name in ("const", *mine.names) if name in names]
    at = list(dict.fromkeys(at))
    matrix = np.eye(len(names))
    matrix[np.ix_(at, at)] = yours.in_terms_of(mine)
    return matrix


def moved(sums: Sums, moves: tuple[Move, ...]) -> Sums:
    """Return the same sums among the functions of a longer domain: h' = A h and G' = A G Aᵀ along each coordinate."""
    moment = sums.moment
    for axis, (span, move) in enumerate(zip(sums.window, moves, strict=True)):
        if move.matrix is not None and span[1]:
            moment = np.moveaxis(np.tensordot(move.matrix, moment, (1, axis)), 0, axis)
    window = tuple((start + move.shift, n) for (start, n), move in zip(sums.window, moves, strict=True))
    terms = tuple(tuple(_moved_factor(factor, moves) for factor in term) for term in sums.gram.terms)
    memory = sums.memory
    if memory is not None:
        memory = replace(memory, lagged=tuple(moved(own, moves) for own in memory.lagged))
    gram = replace(sums.gram, terms=terms)
    return replace(sums, window=window, moment=moment, gram=gram, memory=memory)


def _moved_factor(factor: Factor, moves: tuple[Move, ...]) -> Factor:
    pairs, count = factor.pairs, len(factor.axes)
    own = [moves[axis] for axis in factor.axes]
    for i, move in enumerate(own):
        if move.matrix is not None:
            pairs = _congruent(pairs, i, count + i, move.matrix)
    window = tuple((start + move.shift, n) for (start, n), move in zip(factor.window, own, strict=True))
    return Factor(factor.axes, window, pairs, factor.key)


def _congruent(pairs: Floats, first: int, offset: int, matrix: Floats) -> Floats:
    """Return A M Aᵀ along one axis of a pair array, where M is the symmetric matrix of that axis."""
    size = matrix.shape[0]
    arranged = np.moveaxis(pairs, (first, offset), (0, 1))
    dense = np.zeros((size, size, *arranged.shape[2:]))
    for k in range(size):
        for o in range(size - k):
            dense[k, k + o] = dense[k + o, k] = arranged[k, o]
    dense = np.einsum("ik,jl,kl...->ij...", matrix, matrix, dense, optimize=True)
    out = np.zeros_like(arranged)
    for k in range(size):
        for o in range(size - k):
            out[k, o] = dense[k, k + o]
    return np.ascontiguousarray(np.moveaxis(out, (0, 1), (first, offset)))
