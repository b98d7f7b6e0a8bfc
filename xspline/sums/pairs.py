"""Pair form of a symmetric matrix: the adjoint of pair arrays.

A pair array B[k, o] stands for the matrix that has it wherever the pair (k, k + o) or one that differs from it by
exchanging the two members along some axes is row and column. The pair form Z of a symmetric matrix X sums X over all
these places, so that tr(X B) = Σ Z B, and φᵀ X φ = Σ_{k,o} Z[k,o] Π_j φ_{k_j} φ_{k_j + o_j}.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from .window import Array

if TYPE_CHECKING:
    from xspline.spaces import Frame


def outer_pairs(vectors: Array, frame: Frame) -> Array:
    """Pair form of Σ_m x_m x_mᵀ.

    Parameters
    ----------
    vectors : ndarray, [K.., m, b..]
        x_m.
    frame : Frame

    Returns
    -------
    ndarray, [K.., O.., b..]
    """
    count = len(frame.sizes)
    out = np.zeros((*frame.sizes, *frame.offsets, *vectors.shape[count + 1 :]))
    for offset in np.ndindex(*frame.offsets):
        place = (slice(None),) * count + offset
        for exchanged in _exchanges(offset):
            members = (
                _shifted(
                    vectors, [o if e == side else 0 for o, e in zip(offset, exchanged, strict=True)], frame
                )
                for side in (True, False)
            )
            out[place] += np.sum(math.prod(members), axis=count)
    return out


def _exchanges(offset: tuple[int, ...]) -> itertools.product[tuple[bool, ...]]:
    """Along which axes the two members of a pair change places; where o = 0 they are one."""
    return itertools.product(*((False, True) if o else (False,) for o in offset))


def _shifted(x: Array, offset: list[int], frame: Frame) -> Array:
    """Entry k + o at k: modulo K on periodic axes, zero past the end of others."""
    for axis, o in enumerate(offset):
        if o:
            x = np.roll(x, -o, axis=axis)
            if not frame.periodic[axis]:
                x[(slice(None),) * axis + (slice(-o, None),)] = 0.0
    return x


def masked_pairs(pairs: Array, keep: Array, frame: Frame) -> Array:
    """Pair form of D X D from that of X, for a diagonal D of zeros and ones.

    Parameters
    ----------
    pairs : ndarray, [K.., O.., b..]
    keep : ndarray, [K..]
        The diagonal of D: a product of one vector per axis.
    """
    both = outer_pairs(keep[..., None], frame) > 0
    return pairs * both.reshape(both.shape + (1,) * (pairs.ndim - both.ndim))
