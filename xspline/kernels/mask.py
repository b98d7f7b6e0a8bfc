"""Which groups of a block separate: a mask that is a product needs only its factors.

Sites are the groups, and all batch dimensions together. The validity V of a block separates between two sets
of sites if it equals the product of its projections (`any` along the other set). V never exceeds that
product, so the two are equal exactly if they hold equally many ones: counting decides, in integers, on the
projections.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import array_api_compat
import numpy as np

from .arrays import first_true, to_host
from .layout import Array, Bools, Part, Piece

Sites = frozenset[int]


class Projections:
    """`any` of the validity along each site, collected slab by slab.

    Every projection keeps one axis per part, of extent 1 where it was reduced.
    """

    def __init__(self, parts: Sequence[Part], lengths: Sequence[int], xp: Any, device: Any) -> None:
        self.parts, self.xp = tuple(parts), xp
        self.sites = tuple(sorted({part.site for part in parts}))
        axes = {site: self._axes((site,)) for site in self.sites}
        # Sites of one row reduce nothing: they share one array, which is the validity itself.
        self._reduced = {site: tuple(i for i in axes[site] if lengths[i] != 1) for site in self.sites}
        self._arrays = {
            reduced: xp.zeros(_reduce_shape(lengths, reduced), dtype=xp.bool, device=device)
            for reduced in set(self._reduced.values())
        }

    def _axes(self, sites: Iterable[int]) -> tuple[int, ...]:
        chosen = set(sites)
        return tuple(i for i, part in enumerate(self.parts) if part.site in chosen)

    def add(self, valid: Array, piece: Piece, all_valid: bool) -> None:
        """Take in the validity of one slab."""
        for reduced, array in self._arrays.items():
            spans = tuple(slice(0, 1) if i in reduced else span for i, span in enumerate(piece.spans))
            if all_valid:
                array[spans] = True
            elif reduced:
                array[spans] |= self.xp.any(valid, axis=reduced, keepdims=True)
            else:
                array[spans] = valid

    def finish(self) -> Separation:
        """The projections on the host, ready to be asked."""
        host = {reduced: to_host(array) for reduced, array in self._arrays.items()}
        return Separation(self.parts, {frozenset((s,)): host[self._reduced[s]] for s in self.sites})


class Separation:
    """The finest product structure of a validity, from its projections."""

    def __init__(self, parts: Sequence[Part], projections: dict[Sites, Bools]) -> None:
        self.parts = tuple(parts)
        self.sites: Sites = frozenset().union(*projections)
        self._known = dict(projections)

    def along(self, sites: Sites) -> Bools:
        """`any` along some sites (not all of them): a mask over the others."""
        if sites not in self._known:
            last = max(sites)
            axes = tuple(i for i, part in enumerate(self.parts) if part.site == last)
            self._known[sites] = np.any(self.along(sites - {last}), axis=axes, keepdims=True)
        return self._known[sites]

    def mask(self, component: Sites) -> Bools:
        """The factor of the validity over a component."""
        return self.along(self.sites - component)

    def components(self, count: int, joined: Iterable[Sites]) -> list[Sites]:
        """Finest partition of the sites across which validity and weights separate.

        Parameters
        ----------
        count : int
            Number of valid entries, at least 1.
        joined : iterable of sets of sites
            Sites that a weight spans together.
        """
        blocks = [self.sites]
        for half in self._halves():
            if self._separates(half, count):
                blocks = [part for block in blocks for part in (block & half, block - half) if part]
        return join(blocks, joined)

    def _halves(self) -> Iterator[Sites]:
        """One half of every way to split the sites in two."""
        first, *others = sorted(self.sites)
        for size in range(len(others)):
            for chosen in itertools.combinations(others, size):
                yield frozenset((first, *chosen))

    def _separates(self, half: Sites, count: int) -> bool:
        other = self.sites - half
        ones = np.count_nonzero(self.along(half)), np.count_nonzero(self.along(other))
        return math.prod(int(n) for n in ones) == count


class Lines(Separation):
    """The same from the lines of values along one part.

    A validity separates into the lines' part with some others, and the rest, exactly if all lines at a place
    of these others that know anything know the same rows, whatever the place among the rest.

    Parameters
    ----------
    parts : sequence of Part
    index : int
        The lines' part.
    count, digest : array of int, one axis per part
        How many rows each line knows, and which: equal for equal rows, 0 for none.
    known : callable
        The validity at a place: slices, one per part.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        index: int,
        count: Array,
        digest: Array,
        known: Callable[[tuple[slice, ...]], Bools],
    ) -> None:
        self.parts, self.known = tuple(parts), known
        self.sites = frozenset(part.site for part in parts)
        self._xp = array_api_compat.array_namespace(count)
        self._site, self._count, self._digest = parts[index].site, count, digest

    def mask(self, component: Sites) -> Bools:
        others = self.sites - component
        found: Bools = (
            to_host(self._seen(component)) if self._site not in component else self.known(self._first(others))
        )
        return found

    def _separates(self, half: Sites, count: int) -> bool:
        xp, others = self._xp, half if self._site not in half else self.sites - half
        seen, at = self._seen(others), self._first(others)
        return all(
            bool(xp.all(a == xp.where(seen, a[at], xp.zeros_like(a)))) for a in (self._count, self._digest)
        )

    def _seen(self, sites: Sites) -> Array:
        """Places of some sites with anything known, one axis per part."""
        axes = tuple(i for i, part in enumerate(self.parts) if part.site not in sites)
        return self._xp.any(self._count > 0, axis=axes, keepdims=True)

    def _first(self, sites: Sites) -> tuple[slice, ...]:
        """The first of these places, and everything along the other sites."""
        place = first_true(self._seen(sites), self._xp)
        chosen = [part.site in sites for part in self.parts]
        return tuple(slice(p, p + 1) if c else slice(None) for p, c in zip(place, chosen, strict=True))


def join(blocks: Iterable[Sites], joined: Iterable[Sites]) -> list[Sites]:
    """Blocks of a partition, those that a set of `joined` touches made one; ordered by their first sites."""
    out = list(blocks)
    for together in joined:
        touching = [block for block in out if block & together]
        out = [block for block in out if block not in touching]
        out.append(frozenset().union(*touching))
    return sorted(out, key=min)


def _reduce_shape(lengths: Sequence[int], reduced: Sequence[int]) -> tuple[int, ...]:
    return tuple(1 if i in reduced else length for i, length in enumerate(lengths))
