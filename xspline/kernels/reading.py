"""Reading a slab: what is valid, what it weighs, and what has to be left out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from xspline.sums import Tally

from .arrays import all_true, count_true, first_true, to_namespace
from .layout import Array, Piece
from .walk import Walk


@dataclass(frozen=True, eq=False)
class Slab:
    """Values of one slab and where they count; `weight` (None: ones) is zero where they do not."""

    values: Array
    valid: Array
    weight: Array | None
    count: int
    full: bool

    def weights(self, xp: Any) -> Array:
        """Weights as an array of the shape of the values."""
        return xp.astype(self.valid, xp.float64) if self.weight is None else self.weight


def read(walk: Walk, piece: Piece) -> tuple[Slab, Tally]:
    """One slab, and the tally of what is left out of it."""
    xp, values = walk.xp, walk.values(piece)
    size, finite = math.prod(values.shape), xp.isfinite(values)
    known, valid = _inside(walk, piece, finite)
    present, count = count_true(known, xp), count_true(valid, xp)
    infinity = None if present == size else _place(walk, piece, xp.isinf(values))
    weight, bad = _weights(walk, piece)
    outside = present - count
    if weight is not None:
        valid = xp.logical_and(valid, weight > 0)
        weight = xp.where(valid, weight, xp.zeros_like(values))
        count = count_true(valid, xp)
    return Slab(values, valid, weight, count, count == size), Tally(size - present, outside, infinity, bad)


def _inside(walk: Walk, piece: Piece, finite: Array) -> tuple[Array, Array]:
    """Finite values with known labels, and those of them whose labels are inside all domains."""
    xp, known, valid = walk.xp, finite, finite
    for i, part in enumerate(walk.parts):
        inside = np.ones(0, dtype=bool) if part.is_batch else walk.inside(i, piece.rows[i])
        if all_true(inside):
            continue
        shape = tuple(piece.rows[i][1] if j == i else 1 for j in range(len(walk.parts)))
        known, valid = (
            xp.logical_and(mask, xp.reshape(to_namespace(rows, xp, walk.device), shape))
            for mask, rows in ((known, walk.labelled(i, piece.rows[i])), (valid, inside))
        )
    return known, valid


def _weights(walk: Walk, piece: Piece) -> tuple[Array | None, tuple[int, ...] | None]:
    """Product of the weights, zero where one is bad, and the first place of a bad one."""
    xp, total, first = walk.xp, None, None
    for number in range(len(walk.block.weights)):
        weight = walk.weight_of(number, piece)
        good = xp.logical_and(xp.isfinite(weight), weight >= 0)
        if not bool(xp.all(good)):
            place = _place(walk, piece, xp.logical_not(good))
            first = place if first is None or (place is not None and place < first) else first
            weight = xp.where(good, weight, xp.zeros_like(weight))
        total = weight if total is None else total * weight
    return total, first


def _place(walk: Walk, piece: Piece, mask: Array) -> tuple[int, ...] | None:
    """Global index of the first true entry, in C order of the data; the mask has one axis per part."""
    xp = walk.xp
    if not bool(xp.any(mask)):
        return None
    mask = xp.broadcast_to(mask, tuple(count for _, count in piece.rows))
    lengths = [piece.slices[axis].stop - piece.slices[axis].start for axis in walk.axis_order]
    mask = xp.reshape(mask, tuple(lengths))
    mask = xp.permute_dims(mask, tuple(int(i) for i in np.argsort(walk.axis_order)))
    found = first_true(mask, xp)
    return tuple(g + s.start + i for g, s, i in zip(walk.start, piece.slices, found, strict=True))
