"""Blocks side by side along a batch axis: what they share stays shared, by keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from .factor import KEY_MODULUS, Factor, digest_key
from .terms import Axes, Term, split
from .window import add_into, lengths, union

if TYPE_CHECKING:
    from xspline.spaces import Frame

Slot: TypeAlias = list[Term | None]  # one term per block, over one partition; None where a block lacks it


def concatenate_terms(
    blocks: Sequence[Sequence[Term]], axis: int, sizes: Sequence[int], frame: Frame
) -> list[Term]:
    """Terms of blocks that lie side by side along batch axis `axis`, with extents `sizes` there."""
    return [_concatenate_slot(slot, axis, sizes, frame) for slot in _slots(blocks)]


def _partition(term: Term) -> tuple[Axes, ...]:
    return tuple(factor.axes for factor in term if factor.axes)


def _slots(blocks: Sequence[Sequence[Term]]) -> list[Slot]:
    """Which terms of the blocks belong together: of one partition, with as many equal keys as possible."""
    slots: list[Slot] = []
    for number, terms in enumerate(blocks):
        free = list(range(len(slots)))
        for slot in slots:
            slot.append(None)
        for term in terms:
            fitting = [i for i in free if _likeness(slots[i], term) >= 0]
            if not fitting:
                slots.append([None] * number + [term])
                continue
            best = max(fitting, key=lambda i: _likeness(slots[i], term))
            slots[best][number] = term
            free.remove(best)
    return slots


def _likeness(slot: Slot, term: Term) -> int:
    """Number of equal keys between a term and the first of a slot; -1 if the partitions differ."""
    first = next(member for member in slot if member is not None)
    if _partition(first) != _partition(term):
        return -1
    return len({(f.axes, f.key) for f in first} & {(f.axes, f.key) for f in term})


def _concatenate_slot(slot: Slot, axis: int, sizes: Sequence[int], frame: Frame) -> Term:
    present = [term for term in slot if term is not None]
    batch_ndim = len(present[0][0].batch)
    columns = {
        axes: [None if term is None else split(term, axes, batch_ndim)[0] for term in slot]
        for axes in (*_partition(present[0]), ())
    }
    shared = {axes: _is_shared(column, axis) for axes, column in columns.items()}
    if len(present) < len(slot) and all(shared.values()):
        # Nothing else would say that the term is missing from some blocks.
        shared[()] = False
    joined = (
        _first(column) if shared[axes] else _concatenate_factors(column, axis, sizes, frame)
        for axes, column in columns.items()
    )
    return tuple(factor for factor in joined if factor.axes or factor.key != 1)


def _first(column: Sequence[Factor | None]) -> Factor:
    return next(factor for factor in column if factor is not None)


def _is_shared(column: Sequence[Factor | None], axis: int) -> bool:
    present = [factor for factor in column if factor is not None]
    return len({f.key for f in present}) == 1 and all(f.batch[axis] == 1 for f in present)


def _concatenate_factors(
    column: Sequence[Factor | None], axis: int, sizes: Sequence[int], frame: Frame
) -> Factor:
    """Factors over the same axes, side by side, on the union of their windows; zeros where there is none."""
    first, present = _first(column), [factor for factor in column if factor is not None]
    extents = first.sizes(frame)
    window = union([f.window for f in present], extents, [frame.periodic[a] for a in first.axes])
    batch = list(np.broadcast_shapes(*((*f.batch[:axis], 1, *f.batch[axis + 1 :]) for f in present)))
    batch[axis] = sum(sizes)
    pairs = np.zeros((*lengths(window), *first.offsets, *batch))
    lead, start, key = (slice(None),) * (2 * len(first.axes) + axis), 0, 0
    for factor, size in zip(column, sizes, strict=True):
        if factor is not None:
            add_into(pairs[(*lead, slice(start, start + size))], window, factor.pairs, factor.window, extents)
            salt = digest_key("concatenated", np.asarray([axis, start, size])) | 1
            key = (key + factor.key * salt) % KEY_MODULUS
        start += size
    return Factor(first.axes, window, pairs, key)
