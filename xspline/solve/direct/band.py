"""Band storage: the order of the coefficients that makes the band narrow, and products multiplied into it.

A system over tensor-product features couples a coefficient with those that are at most O_j − 1 away along
each axis j. In C order the matrix then has the half-bandwidth u = Σ_j (O_j − 1) stride_j, least with the
longest axis outermost. A periodic axis couples its first coefficients with its last; folded, as 0, K − 1, 1,
K − 2, …, neighbours are at most 2 (O_j − 1) apart instead of K − 1.

A band is an array [P, u + 1, members]: entry (j, r, b) is the matrix entry (j + r, j) of system b.
Transposed, it is LAPACK's lower band storage.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from xspline.spaces import Frame

Array = NDArray[np.float64]
Index: TypeAlias = tuple[NDArray[np.int64], ...]
MAX_PERMUTED = 6  # all orders are tried up to here: 720


@dataclass(frozen=True, eq=False)
class Ordering:
    """An order of the coefficients.

    Parameters
    ----------
    sizes : tuple of int
        K_j, in the order of the Space.
    axes : tuple of int
        Axes from the outermost to the innermost.
    positions : tuple of ndarray
        Position along its axis of each index: not the identity where a periodic axis is folded.
    spans : tuple of int
        Largest distance of the positions of a pair, per axis, in the order of the Space.
    """

    sizes: tuple[int, ...]
    axes: tuple[int, ...]
    positions: tuple[NDArray[np.int64], ...]
    spans: tuple[int, ...]

    @property
    def bandwidth(self) -> int:
        """u: the largest distance of two coefficients that a system couples."""
        return _bandwidth(self.axes, self.sizes, self.spans)

    @property
    def size(self) -> int:
        """P."""
        return math.prod(self.sizes)

    def flatten(self, v: NDArray[np.float64]) -> Array:
        """[K.., rest..] in the order of the Space to [P, rest..] in this order."""
        for axis in self.axes:
            v = np.take(v, np.argsort(self.positions[axis]), axis=axis) if self._folded(axis) else v
        rest = tuple(range(len(self.sizes), v.ndim))
        return v.transpose(self.axes + rest).reshape(self.size, *v.shape[len(self.sizes) :])

    def unflatten(self, v: NDArray[np.float64]) -> Array:
        """[P, rest..] in this order to [K.., rest..] in the order of the Space."""
        v = v.reshape(*(self.sizes[axis] for axis in self.axes), *v.shape[1:])
        count = len(self.sizes)
        v = v.transpose(*np.argsort(self.axes).tolist(), *range(count, v.ndim))
        for axis in self.axes:
            v = np.take(v, self.positions[axis], axis=axis) if self._folded(axis) else v
        return v

    def original(self, index: int) -> int:
        """Flat index in the order of the Space of the coefficient at `index` in this order."""
        ordered = tuple(self.sizes[axis] for axis in self.axes)
        at = dict(zip(self.axes, np.unravel_index(index, ordered), strict=True))
        back = (int(np.argsort(self.positions[axis])[at[axis]]) for axis in range(len(self.sizes)))
        return int(np.ravel_multi_index(tuple(back), self.sizes))

    def _folded(self, axis: int) -> bool:
        return bool((np.diff(self.positions[axis]) != 1).any())


def narrowest(frame: Frame) -> Ordering:
    """The order of the axes of a frame with the least bandwidth; ties go to the order of the Space."""
    sizes = frame.sizes
    fold = [p and o > 1 for p, o in zip(frame.periodic, frame.offsets, strict=True)]
    positions = tuple(folded(k) if f else np.arange(k) for k, f in zip(sizes, fold, strict=True))
    reach = zip(sizes, frame.offsets, fold, strict=True)
    spans = tuple(min(k - 1, 2 * (o - 1) if f else o - 1) for k, o, f in reach)
    return Ordering(sizes, _best_axes(sizes, spans), positions, spans)


def _best_axes(sizes: tuple[int, ...], spans: tuple[int, ...]) -> tuple[int, ...]:
    axes = range(len(sizes))
    if len(sizes) > MAX_PERMUTED:
        return tuple(sorted(axes, key=lambda j: -sizes[j]))
    return min(itertools.permutations(axes), key=lambda order: _bandwidth(order, sizes, spans))


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


def band(pairs: Array, ordering: Ordering) -> Array:
    """The symmetric matrices of a pair array [K.., O.., members] as a band [P, u + 1, members]."""
    count = len(ordering.sizes)
    held = rows(ordering, pairs.shape[count : 2 * count])
    out = np.zeros((ordering.size, ordering.bandwidth + 1, pairs.shape[-1]))
    out[:, held] = stripes(pairs, held, ordering)
    return out


def stripes(pairs: Array, rows: NDArray[np.int64], ordering: Ordering) -> Array:
    """The rows of the band of a pair array [K.., O.., members] that hold pairs, those of `rows`: [P, rows, members]."""
    out = np.zeros((ordering.size, len(rows), pairs.shape[-1]))
    count, place = len(ordering.sizes), {int(row): i for i, row in enumerate(rows)}
    for axis in ordering.axes:
        if ordering._folded(axis):
            pairs = _fold(pairs, axis, count, ordering.positions[axis], ordering.spans[axis])
    pairs = pairs.transpose(*ordering.axes, *(count + axis for axis in ordering.axes), 2 * count)
    cells = out.reshape(*pairs.shape[:count], *out.shape[1:])
    for offset in np.ndindex(*pairs.shape[count:-1]):
        if all(o < k for o, k in zip(offset, pairs.shape, strict=False)):
            block = np.ascontiguousarray(pairs[(slice(None),) * count + offset])
            for row, source, target in _entries(offset, pairs.shape[:count]):
                cells[target][..., place[row], :] += block[source]
    return out


def rows(ordering: Ordering, offsets: Sequence[int]) -> NDArray[np.int64]:
    """The distances r ≤ u from the diagonal at which a band holds pairs at all."""
    sizes, spans = _geometry(ordering, offsets)
    inside = (o for o in np.ndindex(*spans) if all(x < k for x, k in zip(o, sizes, strict=True)))
    return np.unique([row for offset in inside for row, _, _ in _entries(offset, sizes)])


def gather(band: Array, rows: NDArray[np.int64], ordering: Ordering, offsets: Sequence[int]) -> Array:
    """Pair form of the symmetric matrices of a band, the adjoint of `band`: tr(X B) = Σ Z B for pair arrays B.

    Parameters
    ----------
    band : ndarray, [P, rows, members]
        Some rows of it.
    rows : ndarray of int
        Which they are: those of `rows`, or more.
    ordering : Ordering
    offsets : sequence of int
        O_j, in the order of the Space.

    Returns
    -------
    ndarray, [K.., O.., members]
    """
    count, axes = len(ordering.sizes), ordering.axes
    sizes, spans = _geometry(ordering, offsets)
    place = {int(row): i for i, row in enumerate(rows)}
    cells = band.reshape(*sizes, *band.shape[1:])
    pairs = np.zeros((*sizes, *spans, band.shape[2]))
    for offset in np.ndindex(*spans):
        if all(o < k for o, k in zip(offset, sizes, strict=True)):
            block = pairs[(slice(None),) * count + offset]
            for row, source, target in _entries(offset, sizes):
                block[source] += cells[target][..., place[row], :]
            if any(offset):  # an entry and its transpose
                block *= 2.0
    back = np.argsort(axes).tolist()
    pairs = pairs.transpose(*back, *(count + axis for axis in back), 2 * count)
    for axis in axes:
        if ordering._folded(axis):
            pairs = _unfold(pairs, axis, count, ordering.positions[axis], offsets[axis])
    return np.ascontiguousarray(pairs)


def gather_dense(matrix: Array, frame: Frame) -> Array:
    """Pair form of a symmetric matrix [P, P] in the order of the Space: [K.., O..]."""
    cells = matrix.reshape(*frame.sizes, *frame.sizes)
    return gathered(lambda rows, columns: cells[rows + columns], frame)


def gathered(entries: Callable[[Index, Index], Array], frame: Frame) -> Array:
    """Pair form, [K.., O..], of a symmetric matrix whose entries at rows and columns, indices by axis, a call gives."""
    sizes, out = frame.sizes, np.zeros((*frame.sizes, *frame.offsets))
    for offset in np.ndindex(*frame.offsets):
        axes = zip(sizes, offset, frame.periodic, strict=True)
        members = [np.arange(k if circle else max(k - o, 0)) for k, o, circle in axes]
        block = out[tuple(slice(len(k)) for k in members) + offset]
        for flips in itertools.product(*((False, True) if o else (False,) for o in offset)):
            pair = zip(members, sizes, offset, flips, strict=True)
            ends = [((k + o) % n, k) if flip else (k, (k + o) % n) for k, n, o, flip in pair]
            rows, columns = (np.ix_(*side) for side in zip(*ends, strict=True))
            block += entries(rows, columns)
    return out


def _geometry(ordering: Ordering, offsets: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes and numbers of offsets of the folded axes, from the outermost to the innermost."""
    sizes = tuple(ordering.sizes[axis] for axis in ordering.axes)
    return sizes, tuple(ordering.spans[a] + 1 if ordering._folded(a) else offsets[a] for a in ordering.axes)


def _entries(
    offset: tuple[int, ...], sizes: tuple[int, ...]
) -> Iterator[tuple[int, tuple[slice, ...], tuple[slice, ...]]]:
    """Of one offset vector: row of the band, slices of the first members, slices of the columns.

    Along every axis with o > 0 either member of the pair may be the row, except along the outermost of them:
    an entry is in the lower triangle when that one's second member is.
    """
    strides = [math.prod(sizes[j + 1 :]) for j in range(len(sizes))]
    outermost = next((j for j, o in enumerate(offset) if o), None)
    choices = [(1, -1) if o and j != outermost else (1,) for j, o in enumerate(offset)]
    source = tuple(slice(0, k - o) for k, o in zip(sizes, offset, strict=True))
    for signs in itertools.product(*choices):
        row = sum(s * o * stride for s, o, stride in zip(signs, offset, strides, strict=True))
        ranges = zip(signs, offset, sizes, strict=True)
        yield row, source, tuple(slice(0, k - o) if s > 0 else slice(o, k) for s, o, k in ranges)


def _fold(pairs: Array, axis: int, count: int, positions: NDArray[np.int64], span: int) -> Array:
    """Pairs (k, k + o mod K) of a periodic axis as pairs of positions on a line."""
    moved = np.moveaxis(pairs, (axis, count + axis), (0, 1))
    size, offsets = moved.shape[:2]
    first = np.broadcast_to(positions[:, None], (size, offsets))
    second = positions[(np.arange(size)[:, None] + np.arange(offsets)) % size]
    out = np.zeros((size, span + 1, *moved.shape[2:]))
    np.add.at(out, (np.minimum(first, second), np.abs(first - second)), moved)
    return np.moveaxis(out, (0, 1), (axis, count + axis))


def _unfold(pairs: Array, axis: int, count: int, positions: NDArray[np.int64], offsets: int) -> Array:
    """Adjoint of `_fold`: entry (k, o) is that of the positions of k and k + o mod K."""
    moved = np.moveaxis(pairs, (axis, count + axis), (0, 1))
    size = len(moved)
    first = np.broadcast_to(positions[:, None], (size, offsets))
    second = positions[(np.arange(size)[:, None] + np.arange(offsets)) % size]
    taken = moved[np.minimum(first, second), np.abs(first - second)]
    return np.moveaxis(taken, (0, 1), (axis, count + axis))
