"""Band matrices: the order of the coefficients that makes the bandwidth small, and pair arrays as bands and back.

A system over tensor-product features couples a coefficient with those that are at most O_j − 1 away along
each axis j. In C order the matrix then has the half-bandwidth u = Σ_j (O_j − 1) stride_j, least with the
longest axis outermost. A periodic axis couples its first coefficients with its last; folded, as 0, K − 1, 1,
K − 2, …, neighbours are at most 2 (O_j − 1) apart instead of K − 1.

A band is an array [P, u + 1, systems]: entry (j, r, b) is the matrix entry (j + r, j) of system b.
Transposed, it is LAPACK's lower band storage. Of its rows r only some hold pairs; these alone are `stripes`.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from xspline.spaces import Frame
from xspline.sums.factor import matrix_entries, orientations

Array = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Slices: TypeAlias = tuple[slice, ...]


@dataclass(frozen=True, eq=False)
class Ordering:
    """An order of the coefficients."""

    frame: Frame
    axes: tuple[int, ...]  # from the outermost to the innermost
    # the position of each index along its axis, not the identity where a periodic axis is folded
    positions: tuple[NDArray[np.int64], ...]
    # the largest distance of the positions of a pair, per axis, in the order of the Space, as `frame` has them
    spans: tuple[int, ...]

    @property
    def bandwidth(self) -> int:
        """u: the largest distance of two coefficients that a system couples."""
        return _bandwidth(self.axes, self.frame.sizes, self.spans)

    @property
    def size(self) -> int:
        """P."""
        return math.prod(self.frame.sizes)

    @cached_property
    def folded_axes(self) -> tuple[int, ...]:
        """Axes whose pairs are not those of neighbours: circles, and those with functions active everywhere."""
        return tuple(
            axis
            for axis in self.axes
            if self.frame.everywhere[axis] or (np.diff(self.positions[axis]) != 1).any()
        )

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """The distances r ≤ u from the diagonal at which a band holds pairs at all, ascending."""
        sizes, offsets = self.folded_extents
        inside = (o for o in np.ndindex(*offsets) if all(x < k for x, k in zip(o, sizes, strict=True)))
        return np.unique([row for offset in inside for row, _, _ in _entries(offset, sizes)])

    @property
    def folded_extents(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Sizes and numbers of offsets of the axes once folded, from the outermost to the innermost."""
        offsets = [self.spans[a] + 1 if a in self.folded_axes else self.frame.offsets[a] for a in self.axes]
        return tuple(self.frame.sizes[axis] for axis in self.axes), tuple(offsets)

    def flatten(self, v: Array) -> Array:
        """[K.., rest..] in the order of the Space to [P, rest..] in this order."""
        count = len(self.axes)
        for axis in self.folded_axes:
            v = np.take(v, np.argsort(self.positions[axis]), axis=axis)
        rest = tuple(range(count, v.ndim))
        return v.transpose(self.axes + rest).reshape(self.size, *v.shape[count:])

    def unflatten(self, v: Array) -> Array:
        """[P, rest..] in this order to [K.., rest..] in the order of the Space."""
        v = v.reshape(*(self.frame.sizes[axis] for axis in self.axes), *v.shape[1:])
        v = v.transpose(*np.argsort(self.axes).tolist(), *range(len(self.axes), v.ndim))
        for axis in self.folded_axes:
            v = np.take(v, self.positions[axis], axis=axis)
        return v

    def original(self, index: int) -> int:
        """Flat index in the order of the Space of the coefficient at `index` in this order."""
        sizes = self.frame.sizes
        at = dict(zip(self.axes, np.unravel_index(index, [sizes[a] for a in self.axes]), strict=True))
        back = (int(np.argsort(self.positions[axis])[at[axis]]) for axis in range(len(sizes)))
        return int(np.ravel_multi_index(tuple(back), sizes))


def narrowest(frame: Frame) -> Ordering:
    """The order of the axes of a frame with the least bandwidth; ties go to the order of the Space."""
    sizes = frame.sizes
    fold = [p and o > 1 for p, o in zip(frame.periodic, frame.offsets, strict=True)]
    positions = tuple(folded(k) if f else np.arange(k) for k, f in zip(sizes, fold, strict=True))
    extents = zip(sizes, frame.offsets, fold, frame.everywhere, strict=True)
    spans = tuple(k - 1 if m else min(k - 1, 2 * (o - 1) if f else o - 1) for k, o, f, m in extents)
    orders = itertools.permutations(range(len(sizes)))
    return Ordering(frame, min(orders, key=lambda o: _bandwidth(o, sizes, spans)), positions, spans)


def _bandwidth(axes: Sequence[int], sizes: Sequence[int], spans: Sequence[int]) -> int:
    total, stride = 0, 1
    for axis in reversed(axes):
        total += spans[axis] * stride
        stride *= sizes[axis]
    return total


def folded(size: int) -> NDArray[np.int64]:
    """Positions of 0 … size − 1, taken from both ends in turn: 0, size − 1, 1, size − 2 and so on."""
    index = np.arange(size)
    return np.where(2 * index < size, 2 * index, 2 * (size - 1 - index) + 1)


# --- pair arrays and bands


def band(pairs: Array, ordering: Ordering) -> Array:
    """The symmetric matrices of a pair array [K.., O.., systems] as a band [P, u + 1, systems]."""
    out = np.zeros((ordering.size, ordering.bandwidth + 1, pairs.shape[-1]))
    out[:, ordering.rows] = stripes(pairs, ordering)
    return out


def stripes(pairs: Array, ordering: Ordering) -> Array:
    """`ordering.rows` of the band of a pair array [K.., O.., systems]: [P, rows, systems]."""
    out = np.zeros((ordering.size, len(ordering.rows), pairs.shape[-1]))
    count = len(ordering.axes)
    place = {int(row): i for i, row in enumerate(ordering.rows)}
    for axis in ordering.folded_axes:
        moved = np.moveaxis(pairs, (axis, count + axis), (0, 1))
        line = np.zeros((len(moved), ordering.spans[axis] + 1, *moved.shape[2:]))
        here, there = _on_a_line(ordering, axis)
        np.add.at(line, there, moved[here])
        pairs = np.moveaxis(line, (0, 1), (axis, count + axis))
    pairs = pairs.transpose(*ordering.axes, *(count + axis for axis in ordering.axes), 2 * count)
    sizes = pairs.shape[:count]
    cells = out.reshape(*sizes, *out.shape[1:])
    for offset in np.ndindex(*pairs.shape[count:-1]):
        if all(o < k for o, k in zip(offset, sizes, strict=True)):
            block = np.ascontiguousarray(pairs[(slice(None),) * count + offset])
            for row, source, target in _entries(offset, sizes):
                cells[target][..., place[row], :] += block[source]
    return out


def gather(stripes: Array, ordering: Ordering) -> Array:
    """Pair form [K.., O.., systems] of a band, the adjoint of `stripes`: tr(X B) = Σ Z B for pair arrays B.

    `stripes`, [P, rows, systems], are `ordering.rows` of the band.
    """
    count, axes = len(ordering.axes), ordering.axes
    sizes, offsets = ordering.folded_extents
    place = {int(row): i for i, row in enumerate(ordering.rows)}
    cells = stripes.reshape(*sizes, *stripes.shape[1:])
    pairs = np.zeros((*sizes, *offsets, stripes.shape[2]))
    for offset in np.ndindex(*offsets):
        if all(o < k for o, k in zip(offset, sizes, strict=True)):
            block = pairs[(slice(None),) * count + offset]
            for row, source, target in _entries(offset, sizes):
                block[source] += cells[target][..., place[row], :]
            if any(offset):  # an entry and its transpose
                block *= 2.0
    back = np.argsort(axes).tolist()
    pairs = pairs.transpose(*back, *(count + axis for axis in back), 2 * count)
    for axis in ordering.folded_axes:
        moved = np.moveaxis(pairs, (axis, count + axis), (0, 1))
        here, there = _on_a_line(ordering, axis)
        own = np.zeros((len(moved), ordering.frame.offsets[axis], *moved.shape[2:]))
        own[here] = moved[there]
        pairs = np.moveaxis(own, (0, 1), (axis, count + axis))
    return np.ascontiguousarray(pairs)


@functools.lru_cache(maxsize=4096)  # small, needed again at every strength that is tried
def _entries(offset: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[tuple[int, Slices, Slices], ...]:
    """Return, for one offset vector, the row of the band, slices of the first members and slices of the columns.

    An entry is in the lower triangle when along the outermost axis with o > 0 the second member is the row.
    """
    strides = [math.prod(sizes[j + 1 :]) for j in range(len(sizes))]
    outermost = next((j for j, o in enumerate(offset) if o), None)
    source = tuple(slice(0, k - o) for k, o in zip(sizes, offset, strict=True))
    entries = []
    for flips in orientations(offset):
        if outermost is not None and flips[outermost]:
            continue
        distances = zip(flips, offset, strides, strict=True)
        row = sum((-o if flip else o) * stride for flip, o, stride in distances)
        extents = zip(flips, offset, sizes, strict=True)
        target = tuple(slice(o, k) if flip else slice(0, k - o) for flip, o, k in extents)
        entries.append((row, source, target))
    return tuple(entries)


Places: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]


def _on_a_line(ordering: Ordering, axis: int) -> tuple[Places, Places]:
    """The pairs (k, o) of a folded axis, and where they are on the line that it is folded to: [n] and [n] each."""
    frame, positions = ordering.frame, ordering.positions[axis]
    both = [frame.pairs_at(axis, o) for o in range(frame.offsets[axis])]
    first = np.concatenate([np.arange(len(positions))[span] for span, _ in both])
    second = np.concatenate([partners for _, partners in both])
    offset = np.repeat(np.arange(len(both)), [len(partners) for _, partners in both])
    a, b = positions[first], positions[second]
    return (first, offset), (np.minimum(a, b), np.abs(a - b))


def gather_entries(matrix: Array, frame: Frame) -> Array:
    """Pair form, [K.., O..], of a symmetric matrix [P, P] in the order of the Space."""
    cells = matrix.reshape(*frame.sizes, *frame.sizes)
    out = np.zeros((*frame.sizes, *frame.offsets))
    for place, rows, columns in matrix_entries(frame):
        out[place] += cells[rows + columns]
    return out


def band_operations(ordering: Ordering) -> float:
    """Operations of the Cholesky factorisation of a band."""
    return float(ordering.size) * (ordering.bandwidth + 1) ** 2
