"""Additive overlapping Schwarz: the inverses of the system on small windows of coefficients, added up.

    B r = S Σ_i R_iᵀ (R_i S A S R_iᵀ)⁻¹ R_i S r

over windows i with their restrictions R_i, S the inverse square roots of the diagonal of A (Toselli and Widlund 2005).
Scaled to a unit diagonal, a window of which a part has no observations is no worse conditioned than others: single
precision is enough. Windows are not weighted: with weights the largest eigenvalue of B A grows like the contrast
between observed and empty cells, and without it is at most the number of windows that meet.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from xspline.solve.multigrid import compiled as stencil
from xspline.solve.multigrid.spaces import Line
from xspline.solve.multigrid.subdomains import members, places_of, spans
from xspline.solve.parallel import rounds_of, run

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Four: TypeAlias = tuple[Integers, Integers, Integers, Integers]
FLOOR = 1e-12  # pivot, relative to the diagonal, below which a coefficient is left out of a window
SMALL = 1 << 19  # numbers of all inverses that are not worth a second thread


class Schwarz:
    """Windows of a system and their inverses.

    Parameters
    ----------
    pairs : ndarray, [K.., O..]
        Over four axes, contiguous, with a positive diagonal.
    lines : sequence of Line
    """

    def __init__(self, pairs: Array, lines: Sequence[Line]) -> None:
        self.sizes = np.array([line.size for line in lines])
        self.members = windows(lines)
        self.scale = 1.0 / np.sqrt(pairs[..., 0, 0, 0, 0].ravel())
        self.inverse = np.empty((*(len(m) for m in self.members), _entries(self.members)), np.float32)
        self.split = self.inverse.size > SMALL
        self.rounds = [[(i, i + 1) for i in pieces] for pieces in rounds_of(self.members[0].tolist())]
        strides = [stride // pairs.itemsize for stride in pairs.strides]
        axes = zip(self.members, lines, strides[:4], strides[4:], strict=True)
        places = _four(places_of(*axis) for axis in axes)
        flat = pairs.reshape(-1)

        def piece(a: int, b: int) -> None:
            into = self.inverse[a:b]
            stencil.inverses(flat, self.scale, self.sizes, *self.members, *places, FLOOR, a, into)

        run(piece, [[(i, i + 1) for i in range(len(self.inverse))]], split=self.split)

    @property
    def nbytes(self) -> int:
        """Bytes of the inverses."""
        return self.inverse.nbytes

    def apply(self, r: Array) -> Array:
        """B r, [m, K..]."""
        scaled = r.reshape(len(r), -1) * self.scale
        size = np.max(np.abs(scaled), axis=1, keepdims=True)  # single precision has a short range
        size[size == 0] = 1.0
        single = (scaled / size).astype(np.float32)
        z = np.zeros_like(scaled)

        def piece(a: int, b: int) -> None:
            stencil.apply_inverses(self.inverse, self.sizes, *self.members, single, z, a, b)

        run(piece, self.rounds, split=self.split)
        z *= self.scale
        z *= size
        return z.reshape(r.shape)


def windows(lines: Sequence[Line]) -> Four:
    """Members of the windows along each axis, [windows, width]."""
    local = [line.knots is not None for line in lines]
    found = spans([line.size for line in lines], [line.offsets for line in lines], local)
    return _four(members(line.size, *span, line.periodic) for line, span in zip(lines, found, strict=True))


def _four(arrays: Iterable[Integers]) -> Four:
    a, b, c, d = arrays
    return a, b, c, d


def _entries(windows: Four) -> int:
    count = int(math.prod(m.shape[1] for m in windows))
    return count * (count + 1) // 2
