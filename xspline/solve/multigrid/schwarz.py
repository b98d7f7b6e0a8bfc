"""The smoother of multigrid, additive overlapping Schwarz: inverses on small subdomains of coefficients, added up.

    B r = S Σ_i R_iᵀ (R_i S A S R_iᵀ)⁻¹ R_i S r

over subdomains i with their restrictions R_i, S the inverse square roots of the diagonal of A (Toselli and Widlund
2005). Scaled to a unit diagonal, a subdomain of which a part has no observations is no worse conditioned than others:
single precision is enough. Subdomains are not weighted: with weights the largest eigenvalue of B A grows like the
contrast between observed and empty cells, and without it is at most the number of subdomains that meet.

Over cubic functions of three coordinates subdomains of 6³ that share 2 along each axis were the best of those between
4³ and 8³: wider ones cost more than the iterations they save, narrower ones need twice as many where gaps are large.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from xspline.solve.direct.band import Array, Integers, pair_places
from xspline.solve.multigrid.spaces import AxisLevel
from xspline.solve.parallel import WORTH_THREADS, rounds_of, run

FourArrays: TypeAlias = tuple[Integers, Integers, Integers, Integers]  # one of each axis

MAX_SUBDOMAIN = 700  # coefficients
MIN_WIDTH = 3  # coefficients along a local axis


class Schwarz:
    """Subdomains of a system and their inverses.

    `pairs`, [K.., O..], are over four axes, contiguous, with a positive diagonal.
    """

    def __init__(self, pairs: Array, axes: Sequence[AxisLevel]) -> None:
        from xspline.solve.multigrid import compiled  # imports numba

        self.sizes = np.array([axis.size for axis in axes])
        self.indices = subdomain_indices(axes)
        self.scale = 1.0 / np.sqrt(pairs[..., 0, 0, 0, 0].ravel())
        n = math.prod(indices.shape[1] for indices in self.indices)
        self.inverse = np.empty((*(len(i) for i in self.indices), n * (n + 1) // 2), np.float32)
        self.split = self.inverse.size > WORTH_THREADS
        # Subdomains of one round, numbered along the first axis, have no coefficient in common.
        self.rounds = [[(i, i + 1) for i in numbers] for numbers in rounds_of(self.indices[0].tolist())]
        places, flat = subdomain_pairs(self.indices, axes, pairs.shape), pairs.reshape(-1)

        def piece(a: int, b: int) -> None:
            out = self.inverse[a:b]
            # A coefficient whose pivot is at most 1e-12 times the diagonal is left out of a subdomain.
            compiled.inverses(flat, self.scale, self.sizes, self.indices, places, 1e-12, a, out)

        run(piece, [[(i, i + 1) for i in range(len(self.inverse))]], split=self.split)

    @property
    def nbytes(self) -> int:
        """Bytes of the inverses."""
        return self.inverse.nbytes

    def apply(self, r: Array) -> Array:
        """B r, [m, K..]."""
        from xspline.solve.multigrid import compiled  # imports numba

        scaled = r.reshape(len(r), -1) * self.scale
        size = np.max(np.abs(scaled), axis=1, keepdims=True)  # single precision has a short range
        size[size == 0] = 1.0
        single = (scaled / size).astype(np.float32)
        z = np.zeros_like(scaled)

        def piece(a: int, b: int) -> None:
            compiled.apply_inverses(self.inverse, self.sizes, self.indices, single, z, a, b)

        run(piece, self.rounds, split=self.split)
        z *= self.scale
        z *= size
        return z.reshape(r.shape)


def subdomain_indices(axes: Sequence[AxisLevel]) -> FourArrays:
    """Coefficients of the subdomains along each axis, [subdomains, width].

    They are evenly spaced, so that no more of them meet than must.
    """
    sizes, out = [axis.size for axis in axes], []
    spans = _spans(sizes, [axis.offsets for axis in axes], [axis.knots is not None for axis in axes])
    for axis, (width, stride) in zip(axes, spans, strict=True):
        if axis.periodic and width < axis.size:
            count = -(-axis.size // stride)
            first = np.arange(count) * axis.size // count
        else:
            count = -(-(axis.size - width) // stride)
            first = np.arange(count + 1) * (axis.size - width) // max(count, 1)
        out.append((first[:, None] + np.arange(width)) % axis.size)
    a, b, c, d = out
    return a, b, c, d


def subdomain_pairs(indices: FourArrays, axes: Sequence[AxisLevel], shape: Sequence[int]) -> FourArrays:
    """Where pairs within subdomains lie in a flat pair array [K.., O..], as a sum of one number of each axis.

    [subdomains, width, width]; −1 where there is no pair.
    """
    strides = [math.prod(shape[axis + 1 :]) for axis in range(8)]
    a, b, c, d = (
        pair_places(i[:, :, None], i[:, None, :], axis.size, axis.offsets, axis.periodic, steps)[0]
        for i, axis, steps in zip(indices, axes, zip(strides[:4], strides[4:], strict=True), strict=True)
    )
    return a, b, c, d


def _spans(sizes: Sequence[int], offsets: Sequence[int], local: Sequence[bool]) -> list[tuple[int, int]]:
    """Width and stride of the subdomains along each axis.

    Along a local axis p + 3 coefficients, fewer where a subdomain over all axes would be large, of which 2 are shared
    with the next subdomain, or 1 where there are four local axes; a global axis is taken whole.
    """
    axes = list(zip(sizes, offsets, local, strict=True))
    shared = 2 if sum(local) < 4 else 1
    widest = max((o + 2 for _, o, here in axes if here), default=MIN_WIDTH)
    for less in range(max(widest - MIN_WIDTH, 0) + 1):
        widths = [min(max(o + 2 - less, MIN_WIDTH), k) if here else k for k, o, here in axes]
        if math.prod(widths) <= MAX_SUBDOMAIN:
            break
    return [(w, max(w - shared, 1) if here else w) for w, (_, _, here) in zip(widths, axes, strict=True)]


def inverse_costs(sizes: Sequence[int], offsets: Sequence[int], local: Sequence[bool]) -> tuple[int, float]:
    """How many numbers the inverses of all subdomains take, and how many operations it takes to make them."""
    spans = _spans(sizes, offsets, local)
    count = math.prod(-(-k // stride) for k, (_, stride) in zip(sizes, spans, strict=True))
    n = math.prod(width for width, _ in spans)
    return count * (n * (n + 1) // 2), count * n**3 / 3.0
