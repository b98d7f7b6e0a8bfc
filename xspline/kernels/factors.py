"""Factors of G for a block: one per component of what its mask and weights separate into."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xspline.sums import Factor, Tally, digest_key
from xspline.sums.factor import KEY_MODULUS

from .arrays import to_host, to_namespace
from .layout import Array, Bools, Floats, Piece
from .mask import Separation, Sites
from .reading import read
from .scattered import Scattered
from .walk import Accumulator, Walk


@dataclass(frozen=True, eq=False)
class Found:
    """What a block gives; of one with nothing in it the tally and the count.

    Attributes
    ----------
    count, power, weight : ndarray, one axis per part
        n, s and Σw, of extent 1 but for batch dimensions.
    """

    tally: Tally
    count: Array
    power: Array = None
    weight: Array = None
    reference: float = 0.0
    moment: Floats | None = None
    factors: tuple[Factor, ...] = ()


def factors_of(
    walk: Walk, separation: Separation, count: int, pairs: Callable[[], Floats]
) -> tuple[Factor, ...]:
    """Factors of a block with `count` > 0 valid entries; `pairs` of all of it where it does not separate."""
    components = separation.components(count, walk.weight_sites)
    if len(components) == 1:
        return (whole_factor(walk, pairs()),)
    factors = [component_factor(walk, sites, separation.mask(sites)) for sites in components]
    multiplicity = _multiply([factor for factor in factors if not factor.axes])
    kept = [factor for factor in factors if factor.axes]
    return (*kept, *(() if multiplicity is None else (multiplicity,)))


def _multiply(factors: Sequence[Factor]) -> Factor | None:
    """Batch dimensions and pooled ones as one multiplicity; None if it is one everywhere."""
    if not factors:
        return None
    pairs = math.prod((factor.pairs for factor in factors[1:]), start=factors[0].pairs)
    if np.all(pairs == 1.0):
        return None
    return Factor((), (), pairs, math.prod(factor.key for factor in factors) % KEY_MODULUS)


# A block that does not separate

HASHED = 1 << 14  # entries at a time: hashing copies what it is given


def stream(walk: Walk) -> Floats:
    """The second pass: pairs [k.., o.., b..] from the weights themselves."""
    scattered = Scattered.of(walk, walk.sites)
    if scattered is not None:
        return scattered.sums(0.0, moment=False, pairs=True)[1]
    pairs = Accumulator(walk, walk.sites, pairs=True)
    for piece in walk.pieces():
        slab, _ = read(walk, piece)
        if slab.count:
            pairs.add(slab.weights(walk.xp), piece)
    return pairs.finish()


def whole_factor(walk: Walk, array: Floats) -> Factor:
    """One factor over everything. Its key has none to agree with, so the result itself is hashed."""
    axes = tuple(range(len(walk.reaches)))
    window = tuple((walk.reaches[axis].start, walk.reaches[axis].length) for axis in axes)
    flat = array.reshape(-1)
    pieces = [flat[first : first + HASHED] for first in range(0, flat.size, HASHED)]
    return Factor(axes, window, array, digest_key("whole", repr((axes, array.shape, window)), *pieces))


# A component of a block


def component_factor(walk: Walk, sites: Sites, mask: Bools) -> Factor:
    """Factor of some sites, from their part of the mask and the weights that they span."""
    numbers = [i for i, spanned in enumerate(walk.weight_sites) if spanned <= sites]
    scattered = Scattered.of(walk, sites)
    if scattered is not None:
        array = scattered.pairs_of(mask, numbers)
    else:
        pairs = Accumulator(walk, sites, pairs=True)
        for piece in walk.pieces(sites):
            pairs.add(_masked_weights(walk, mask, numbers, piece), piece)
        array = pairs.finish()
    axes = tuple(sorted(axis for part in walk.parts if part.site in sites for axis in part.coefficient_axes))
    window = tuple((walk.reaches[axis].start, walk.reaches[axis].length) for axis in axes)
    return Factor(axes, window, array, _key(walk, sites, mask, numbers))


def _masked_weights(walk: Walk, mask: Bools, numbers: Sequence[int], piece: Piece) -> Array:
    xp = walk.xp
    inside = to_namespace(mask[piece.spans], xp, walk.device)
    total = xp.astype(inside, xp.float64)
    if not numbers:
        return total
    for number in numbers:
        total = total * walk.weight_of(number, piece)
    # Where the mask is false a weight may be anything, NaN too.
    return xp.where(inside, total, xp.zeros_like(total))


def _key(walk: Walk, sites: Sites, mask: Bools, numbers: Sequence[int]) -> int:
    """What the factor is made of: coordinates, mask and weights, whatever the order of the dimensions."""
    chosen = [i for i, part in enumerate(walk.parts) if part.site in sites]
    order = sorted(chosen, key=lambda i: (walk.parts[i].is_batch, walk.parts[i].coefficient_axes, i))
    order += [i for i in range(len(walk.parts)) if i not in chosen]
    axes = [axis for i in order for axis in walk.parts[i].coefficient_axes if i in chosen]
    parts: list[str | np.ndarray[Any, Any]] = [repr(axes)]
    parts += [walk.coordinates_of(axis) for axis in axes]
    # Pooled rows have no coordinates: their place tells them apart.
    pooled = [
        walk.parts[i] for i in chosen if not walk.parts[i].is_batch and not walk.parts[i].coefficient_axes
    ]
    parts.append(repr([walk.start[axis] for part in pooled for axis in part.axes]))
    canonical = mask.transpose(order)
    parts += [repr(canonical.shape), np.packbits(canonical)]
    (everything,) = walk.whole_piece(sites)
    for number in numbers:
        parts.append(np.transpose(to_host(walk.weight_of(number, everything)), order))
    return digest_key(*parts)
