"""Which groups of a block separate, and the factors of G: a mask that is a product needs only its factors.

The validity V of a block separates between two sets of groups if it equals the product of its projections (`any`
along the other set). V never exceeds that product, so the two are equal exactly if they hold equally many ones:
counting decides, in integers, on the projections. All batch dimensions together count as one group.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import array_api_compat
import numpy as np

from xspline.kernels.block import Array, Bools, Floats, first_true, to_host, to_namespace
from xspline.kernels.component import SumsByCell, SumsBySlab
from xspline.kernels.walk import Component, SlabAxis, SlabBox, Walk
from xspline.sums import Factor, Tally, digest_key, join_overlapping
from xspline.sums.factor import KEY_MODULUS


class Separation(ABC):
    """The finest product structure of a validity."""

    def __init__(self, slab_axes: Sequence[SlabAxis]) -> None:
        self.slab_axes = tuple(slab_axes)
        self.groups: Component = frozenset(axis.group for axis in slab_axes)

    def components(self, count: int, joined: Iterable[Component]) -> list[Component]:
        """Finest partition of the groups across which validity and weights separate.

        `count` is the number of valid entries, at least 1; `joined` are groups that a weight spans together.
        """
        first, *others = sorted(self.groups)
        components = [self.groups]
        for size in range(len(others)):
            for chosen in itertools.combinations(others, size):  # one half of every way to split in two
                half = frozenset((first, *chosen))
                if self._separates(half, count):
                    split = [(c & half, c - half) for c in components]
                    components = [part for parts in split for part in parts if part]
        return join(components, joined)

    @abstractmethod
    def mask(self, component: Component) -> Bools:
        """The factor of the validity over a component, one axis per slab axis, of extent 1 along the others."""

    @abstractmethod
    def _separates(self, half: Component, count: int) -> bool: ...


class Projections(Separation):
    """A separation by counting: `any` of the validity along each group, collected slab by slab."""

    def __init__(self, slab_axes: Sequence[SlabAxis], lengths: Sequence[int], xp: Any, device: Any) -> None:
        super().__init__(slab_axes)
        self.xp = xp
        # Groups of one row reduce nothing: they share one array, which is the validity itself.
        self._reduced = {
            group: tuple(i for i, axis in enumerate(slab_axes) if axis.group == group and lengths[i] != 1)
            for group in self.groups
        }
        self._arrays: dict[tuple[int, ...], Array] = {}
        for reduced in set(self._reduced.values()):
            shape = tuple(1 if i in reduced else length for i, length in enumerate(lengths))
            self._arrays[reduced] = xp.zeros(shape, dtype=xp.bool, device=device)
        self._known: dict[Component, Bools] = {}

    def add(self, valid: Array, box: SlabBox, all_valid: bool) -> None:
        """Take in the validity of one slab; not after the first question."""
        for reduced, array in self._arrays.items():
            spans = tuple(slice(0, 1) if i in reduced else span for i, span in enumerate(box.spans))
            if all_valid:
                array[spans] = True
            elif reduced:
                array[spans] |= self.xp.any(valid, axis=reduced, keepdims=True)
            else:
                array[spans] = valid

    def along(self, groups: Component) -> Bools:
        """`any` along some groups (not all of them): a mask over the others, on the host."""
        if groups not in self._known:
            last = max(groups)
            if len(groups) == 1:
                self._known[groups] = to_host(self._arrays[self._reduced[last]])
            else:
                axes = tuple(i for i, axis in enumerate(self.slab_axes) if axis.group == last)
                self._known[groups] = np.any(self.along(groups - {last}), axis=axes, keepdims=True)
        return self._known[groups]

    def mask(self, component: Component) -> Bools:
        return self.along(self.groups - component)

    def _separates(self, half: Component, count: int) -> bool:
        masks = self.along(half), self.along(self.groups - half)
        return math.prod(int(np.count_nonzero(mask)) for mask in masks) == count


class LineSeparation(Separation):
    """The same from the lines of values along one slab axis.

    A validity separates into the lines' group with some others, and the rest, exactly if all lines at a place
    of these others that know anything know the same rows, whatever the place among the rest. `index` tells which of
    them the lines run along. `count` and `digest`, one axis per slab axis, tell how many rows each line knows, and
    which: equal for equal rows, 0 for none. `known` is the validity at a place: slices, one per slab axis.
    """

    def __init__(
        self,
        slab_axes: Sequence[SlabAxis],
        index: int,
        count: Array,
        digest: Array,
        known: Callable[[tuple[slice, ...]], Bools],
    ) -> None:
        super().__init__(slab_axes)
        self.known, self._group = known, slab_axes[index].group
        self._xp = array_api_compat.array_namespace(count)
        self._count, self._digest = count, digest

    def mask(self, component: Component) -> Bools:
        if self._group in component:
            return self.known(self._first(self.groups - component))
        seen: Bools = to_host(self._seen(component))
        return seen

    def _separates(self, half: Component, count: int) -> bool:
        xp, others = self._xp, half if self._group not in half else self.groups - half
        seen, at = self._seen(others), self._first(others)
        return all(
            bool(xp.all(a == xp.where(seen, a[at], xp.zeros_like(a)))) for a in (self._count, self._digest)
        )

    def _seen(self, groups: Component) -> Array:
        """Places of some groups with anything known, one axis per slab axis."""
        axes = tuple(i for i, axis in enumerate(self.slab_axes) if axis.group not in groups)
        return self._xp.any(self._count > 0, axis=axes, keepdims=True)

    def _first(self, groups: Component) -> tuple[slice, ...]:
        """The first of these places, and everything along the other groups."""
        place = zip(self.slab_axes, first_true(self._seen(groups), self._xp), strict=True)
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
    walk: Walk, separation: Separation, count: int, pairs: Callable[[], Floats], known: Sequence[Any] = ()
) -> tuple[Factor, ...]:
    """Factors of a block with `count` > 0 valid entries; `pairs` of all of it where it does not separate.

    `known` are what the pairs follow from, beside the coordinates, where that is less than they are.
    """
    components = separation.components(count, walk.weight_groups)
    if len(components) == 1:
        return (whole_factor(walk, pairs(), known),)
    factors = [_component_factor(walk, c, separation.mask(c)) for c in components]
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
    window, coordinates = walk.window(axes), [walk.coordinates_of(axis) for axis in axes] if known else []
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
