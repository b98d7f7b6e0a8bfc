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

import numpy as np

from xspline.solve.costs import COSTS
from xspline.solve.direct.band import Array, Integers
from xspline.solve.multigrid.spaces import AxisLevel, pair_places
from xspline.threads import ranges, rounds_of, run

MAX_SUBDOMAIN = 700  # coefficients


class Schwarz:
    """Subdomains of a system and their inverses.

    `pairs`, [K.., O..], are contiguous, with a positive diagonal.
    """

    def __init__(self, pairs: Array, axes: Sequence[AxisLevel]) -> None:
        from xspline.solve.multigrid import compiled  # imports numba

        count, along = len(axes), _subdomains(axes)
        self.scale = 1.0 / np.sqrt(pairs[(slice(None),) * count + (0,) * count].ravel())
        number = _all_indices([len(own) for own in along])
        inside = _all_indices([own.shape[1] for own in along])
        sizes = tuple(axis.size for axis in axes)
        picked = [own[number[:, j]][:, inside[:, j]] for j, own in enumerate(along)]
        self.index = np.asarray(np.ravel_multi_index(picked, sizes), dtype=np.int64)
        n = len(inside)
        self.inverse = np.empty((len(number), n * (n + 1) // 2), np.float32)
        self.split = self.inverse.size > COSTS.slab_numbers
        places, flat = _places(along, axes, pairs.shape), pairs.reshape(-1)

        def piece(a: int, b: int) -> None:
            # A coefficient whose pivot is at most 1e-12 times the diagonal is left out of a subdomain.
            compiled.inverses(flat, self.scale, self.index, inside, number, places, 1e-12, a, b, self.inverse)

        run(piece, [ranges(len(number))], split=self.split)
        # Subdomains of one round, numbered along the first axis, have no coefficient in common.
        beside = len(number) // len(along[0])
        rounds = rounds_of(along[0].tolist())
        self.rounds = [[(i * beside, (i + 1) * beside) for i in numbers] for numbers in rounds]

    @property
    def nbytes(self) -> int:
        """Bytes of the inverses."""
        return self.inverse.nbytes + self.index.nbytes

    def apply(self, r: Array) -> Array:
        """B r, [m, K..]."""
        from xspline.solve.multigrid import compiled  # imports numba

        scaled = r.reshape(len(r), -1) * self.scale
        size = np.max(np.abs(scaled), axis=1, keepdims=True)  # single precision has a short range
        size[size == 0] = 1.0
        single = (scaled / size).astype(np.float32)
        z = np.zeros_like(scaled)

        def piece(a: int, b: int) -> None:
            compiled.apply_inverses(self.inverse, self.index, single, z, a, b)

        run(piece, self.rounds, split=self.split)
        z *= self.scale
        z *= size
        return z.reshape(r.shape)


def _all_indices(shape: Sequence[int]) -> Integers:
    """All indices of an array of some shape, in C order: [n, axes]."""
    return np.ascontiguousarray(np.indices(shape).reshape(len(shape), -1).T)


def _subdomains(axes: Sequence[AxisLevel]) -> list[Integers]:
    """Coefficients of the subdomains along each axis, [subdomains, width].

    They are evenly spaced, so that no more of them meet than must.
    """
    out = []
    spans = _spans([(axis.size, axis.offsets, axis.knots is not None) for axis in axes])
    for axis, (width, stride) in zip(axes, spans, strict=True):
        if axis.periodic and width < axis.size:
            count = -(-axis.size // stride)
            first = np.arange(count) * axis.size // count
        else:
            count = -(-(axis.size - width) // stride)
            first = np.arange(count + 1) * (axis.size - width) // max(count, 1)
        out.append((first[:, None] + np.arange(width)) % axis.size)
    return out


def _places(along: Sequence[Integers], axes: Sequence[AxisLevel], shape: Sequence[int]) -> Integers:
    """Where pairs within subdomains lie in a flat pair array [K.., O..], as a sum of one number of each axis.

    [axes, subdomains, width, width], of as many as the axis has. Where there is no pair the sum is negative.
    """
    count, widest = len(axes), max(own.shape[1] for own in along)
    out = np.zeros((count, max(map(len, along)), widest, widest), dtype=np.int64)
    for j, (own, axis) in enumerate(zip(along, axes, strict=True)):
        strides = math.prod(shape[j + 1 :]), math.prod(shape[count + j + 1 :])
        width = own.shape[1]
        pairs = pair_places(own[:, :, None], own[:, None, :], axis, strides)[0]
        out[j, : len(own), :width, :width] = np.where(pairs < 0, -math.prod(shape), pairs)
    return out


def _spans(axes: Sequence[tuple[int, int, bool]]) -> list[tuple[int, int]]:
    """Width and stride of the subdomains along each axis, of which size, offsets and whether it is local are given.

    Along a local axis p + 3 coefficients, fewer where a subdomain over all axes would be large, of which 2 are shared
    with the next subdomain, or 1 where there are four local axes or more; a global axis is taken whole.
    """
    shared = 2 if sum(here for _, _, here in axes) < 4 else 1
    widest = max((o + 2 for _, o, here in axes if here), default=0)
    for less in range(widest + 1):
        widths = [min(max(o + 2 - less, shared + 1), k) if here else k for k, o, here in axes]
        if math.prod(widths) <= MAX_SUBDOMAIN:
            break
    return [(w, max(w - shared, 1) if here else w) for w, (_, _, here) in zip(widths, axes, strict=True)]


def inverse_costs(axes: Sequence[tuple[int, int, bool]]) -> tuple[int, float]:
    """How many numbers the inverses of all subdomains take, and how many operations it takes to make them."""
    spans = _spans(axes)
    count = math.prod(-(-k // stride) for (k, _, _), (_, stride) in zip(axes, spans, strict=True))
    n = math.prod(width for width, _ in spans)
    return count * (n * (n + 1) // 2), count * n**3 / 3.0
