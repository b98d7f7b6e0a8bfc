"""Which groups of a block separate, and the factors of G: a mask that is a product needs only its factors.

The validity of a block separates between two sets of groups if it equals the product of its projections (`any`
along the other set). All batch dimensions together count as one group.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from xspline.kernels.block import Array, Bools, Floats, Integers, first_true, to_host, to_namespace
from xspline.kernels.component import SumsByCell, SumsBySlab
from xspline.kernels.rows import row_words
from xspline.kernels.walk import Component, SlabBox, SlabValues, Walk, read
from xspline.sums import Factor, Tally, digest_key, join_overlapping
from xspline.sums.factor import KEY_MODULUS


class LineMasks:
    """For each line of values along one slab axis, which of its rows are valid, and what this mask separates into.

    `index` is the slab axis along which lines run. `known` has `length` numbers along that axis: the valid rows as
    bits, or one digest of them, the sum of one random word for each valid row modulo 2⁶⁴. Lines of equal digests have
    the same valid rows. The mask is a product of a factor over the lines' group and some others, and one over the rest,
    exactly if at each place of these others all lines with any valid row agree, whatever their place in the rest.
    """

    def __init__(self, walk: Walk, index: int, length: int = 1, dtype: Any = None) -> None:
        self.walk, self.index = walk, index
        lengths = tuple(length if i == index else n for i, n in enumerate(walk.lengths))
        self.known = walk.xp.zeros(lengths, dtype=dtype or walk.xp.int64, device=walk.device)

    def spans(self, box: SlabBox) -> tuple[slice, ...]:
        """Where the lines of a box are."""
        return tuple(slice(None) if i == self.index else span for i, span in enumerate(box.spans))

    def add(self, slab: SlabValues, box: SlabBox) -> None:
        """Add the digests of the validity of one slab."""
        xp, shape = self.walk.xp, [1] * len(box.shape)
        shape[self.index] = box.shape[self.index]
        words = to_namespace(self._words[box.spans[self.index]].reshape(shape), xp, self.walk.device)
        told = words if slab.full else xp.where(slab.valid, words, xp.zeros_like(words))
        self.known[self.spans(box)] += xp.sum(told, axis=self.index, keepdims=True)

    @cached_property
    def _words(self) -> Integers:
        return row_words(self.walk.lengths[self.index])

    def components(self) -> list[Component]:
        """Finest partition of the groups across which validity and weights separate; something is valid."""
        first, *others = sorted(self.walk.groups)
        components = [self.walk.groups]
        for size in range(len(others)):
            for chosen in itertools.combinations(others, size):  # one half of every way to split in two
                half = frozenset((first, *chosen))
                if self._separates(half):
                    split = [(c & half, c - half) for c in components]
                    components = [part for parts in split for part in parts if part]
        return join(components, self.walk.weight_groups)

    def mask(self, component: Component) -> Bools:
        """The factor of the validity over a component, one axis per slab axis, of extent 1 along the others."""
        if self._group not in component:
            return to_host(self._seen(component))
        place = self._first(self.walk.groups - component)
        slab, _ = read(self.walk, self.walk.box_at(place))
        return to_host(slab.valid)

    @property
    def _group(self) -> int:
        return self.walk.slab_axes[self.index].group

    def _separates(self, half: Component) -> bool:
        xp, others = self.walk.xp, half if self._group not in half else self.walk.groups - half
        alike = xp.all(self.known == self.known[self._first(others)], axis=self.index, keepdims=True)
        return bool(xp.all(xp.logical_or(alike, xp.logical_not(self._seen(others)))))

    @cached_property
    def _not_empty(self) -> Array:
        """Lines that know anything."""
        return self.walk.xp.any(self.known != 0, axis=self.index, keepdims=True)

    def _seen(self, groups: Component) -> Array:
        """Places of some groups with anything known, one axis per slab axis."""
        axes = tuple(i for i, axis in enumerate(self.walk.slab_axes) if axis.group not in groups)
        return self.walk.xp.any(self._not_empty, axis=axes, keepdims=True)

    def _first(self, groups: Component) -> tuple[slice, ...]:
        """The first of these places, and everything along the other groups."""
        place = zip(self.walk.slab_axes, first_true(self._seen(groups), self.walk.xp), strict=True)
        return tuple(slice(p, p + 1) if axis.group in groups else slice(None) for axis, p in place)


def join(components: Iterable[Component], joined: Iterable[Component]) -> list[Component]:
    """A partition, those of its sets that one of `joined` touches made one; ordered by their first groups."""
    return sorted(map(frozenset, join_overlapping([*components, *joined])), key=min)


# Factors of G


@dataclass(frozen=True, eq=False)
class BlockResult:
    """What a block gives; of one with nothing in it the tally and the count."""

    tally: Tally
    count: Array  # n, one axis per slab axis, of extent 1 but for batch dimensions
    power: Array = None  # s, likewise
    weight: Array = None  # Σw, likewise
    reference: float = 0.0
    moment: Floats | None = None
    factors: tuple[Factor, ...] = ()


def factors_of(
    walk: Walk, lines: LineMasks, pairs: Callable[[], Floats], known: Sequence[Any] = ()
) -> tuple[Factor, ...]:
    """Factors of a block with valid entries; `pairs` of all of it where it does not separate.

    `known` are what the pairs follow from, beside the coordinates, where that is less than they are.
    """
    components = lines.components()
    if len(components) == 1:
        return (whole_factor(walk, pairs(), known),)
    factors = [_component_factor(walk, c, lines.mask(c)) for c in components]
    scalars = [factor for factor in factors if not factor.axes]
    factors = [factor for factor in factors if factor.axes]
    if scalars:  # batch dimensions and pooled ones are one multiplicity
        multiplicity = math.prod((factor.pairs for factor in scalars[1:]), start=scalars[0].pairs)
        if not np.all(multiplicity == 1.0):
            key = math.prod(factor.key for factor in scalars) % KEY_MODULUS
            factors.append(Factor((), (), multiplicity, key))
    return tuple(factors)


def whole_factor(walk: Walk, pairs: Floats, known: Sequence[Any] = ()) -> Factor:
    """One factor over everything; its key is of what is known of it, or of the result: it has none to agree with."""
    axes = tuple(range(len(walk.ranges)))
    window = walk.window(axes)
    coordinates = [walk.coordinates_of(axis) for axis in axes] if known else []
    parts = [part.reshape(-1) for part in (*coordinates, *(map(to_host, known) if known else (pairs,)))]
    # Hashing copies what it is given: some entries at a time.
    pieces = [part[first : first + (1 << 14)] for part in parts for first in range(0, part.size, 1 << 14)]
    return Factor(axes, window, pairs, digest_key("whole", repr((axes, pairs.shape, window)), *pieces))


def _component_factor(walk: Walk, component: Component, mask: Bools) -> Factor:
    """Factor of a component, from its part of the mask and the weights that it spans."""
    numbers = [i for i, spanned in enumerate(walk.weight_groups) if spanned <= component]
    by_cell = SumsByCell.of(walk, component)
    if by_cell is not None:
        pairs = by_cell.pairs_of(mask, numbers)
    else:
        xp, sums = walk.xp, SumsBySlab(walk, component, pairs=True)
        for box in walk.boxes(component):
            inside = to_namespace(mask[box.spans], xp, walk.device)
            w = xp.astype(inside, xp.float64)
            for number in numbers:
                w = w * walk.weight_of(number, box)
            # Where the mask is false a weight may be anything, NaN too.
            sums.add(xp.where(inside, w, xp.zeros_like(w)) if numbers else w, box)
        pairs = sums.finish()
    axes = walk.coefficient_axes(component)
    return Factor(axes, walk.window(axes), pairs, _key(walk, component, mask, numbers))


def _key(walk: Walk, component: Component, mask: Bools, numbers: Sequence[int]) -> int:
    """What the factor comes from: coordinates, mask and weights, whatever the order of the dimensions."""
    slab_axes = walk.slab_axes
    chosen = [i for i, axis in enumerate(slab_axes) if axis.group in component]
    order = sorted(chosen, key=lambda i: (slab_axes[i].is_batch, slab_axes[i].coefficient_axes, i))
    axes = [a for i in order for a in slab_axes[i].coefficient_axes]
    order += [i for i in range(len(slab_axes)) if i not in chosen]
    # Pooled rows have no coordinates: their place tells them apart.
    pooled = [i for i in chosen if not slab_axes[i].is_batch and not slab_axes[i].coefficient_axes]
    starts = [walk.start[a] for i in pooled for a in slab_axes[i].axes]
    canonical, whole = mask.transpose(order), walk.whole_box(component)
    return digest_key(
        repr(axes),
        *(walk.coordinates_of(axis) for axis in axes),
        repr(starts),
        repr(canonical.shape),
        np.packbits(canonical),
        *(np.transpose(to_host(walk.weight_of(number, whole)), order) for number in numbers),
    )
