"""Terms: products of factors; how a list of them is kept short, and how lists are put side by side."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np

from xspline.sums.factor import KEY_MODULUS, Factor, add_factors, digest_key, multiply_factors, spread
from xspline.sums.window import Array, Window, add_into, bytes_of_pairs, lengths, union

if TYPE_CHECKING:
    from xspline.spaces import Frame

Term: TypeAlias = tuple[Factor, ...]
Axes: TypeAlias = tuple[int, ...]
Member = TypeVar("Member", bound=Hashable)
Slot: TypeAlias = list[Term | None]  # one term per block, over one partition; None where a block lacks it


def join_overlapping(sets: Iterable[Iterable[Member]]) -> list[set[Member]]:
    """Disjoint sets: those that overlap, directly or through others, joined into one.

    Parameters
    ----------
    sets : iterable of iterables
        Of hashable members; empty ones are left out.

    Returns
    -------
    list of sets
        In the order in which they were completed: each stands where the last set that joined it stood.
    """
    joined: list[set[Member]] = []
    for members in map(set, sets):
        overlapping = [other for other in joined if other & members]
        joined = [other for other in joined if not other & members]
        joined.append(members.union(*overlapping))
    return [members for members in joined if members]


def ordered(factors: Iterable[Factor]) -> Term:
    """Factors by ascending axes, the multiplicity last."""
    return tuple(sorted(factors, key=lambda factor: (not factor.axes, factor.axes)))


def check_term(term: Term, first: Term, batch_ndim: int) -> None:
    axes, expected = (sorted(a for factor in t for a in factor.axes) for t in (term, first))
    if axes != expected or len(set(axes)) != len(axes) or sum(not factor.axes for factor in term) > 1:
        raise ValueError(
            f"the factors of a term must partition the axes {expected}, with at most one multiplicity; "
            f"got {[factor.axes for factor in term]}"
        )
    found = next((len(f.batch) for f in term if len(f.batch) != batch_ndim), batch_ndim)
    if found != batch_ndim:
        raise ValueError(f"a factor has {found} batch axes in a Gram with {batch_ndim}; see with_batch_axes")


def term_window(term: Term) -> Window:
    """Window of a term, over all coefficient axes."""
    spans = {axis: span for factor in term for axis, span in zip(factor.axes, factor.window, strict=True)}
    return tuple(spans[axis] for axis in sorted(spans))


def outer(arrays: Sequence[Array], axes: Sequence[Axes]) -> Array:
    """Product of arrays [k.., b..] over different axes, over all of them in ascending order."""
    target = sorted(axis for group in axes for axis in group)
    parts = [spread(array, group, target, copies=1) for array, group in zip(arrays, axes, strict=True)]
    return math.prod(parts[1:], start=parts[0])


def image_of(factor: Factor, vectors: Sequence[Array], frame: Frame) -> Array:
    """Product with the outer product of one vector per axis, on the factor's window: [k.., b..].

    Each axis' pairs are symmetric on their own, so they are summed axis by axis.
    """
    out, count = factor.pairs, len(factor.axes)
    for position in reversed(range(count)):
        axis, (start, length) = factor.axes[position], factor.window[position]
        size, offsets = frame.sizes[axis], factor.offsets[position]
        around = frame.periodic[axis] and length == size  # pairs reach around the circle
        v = vectors[axis][(start + np.arange(length + (offsets - 1 if around else 0))) % size]
        pairs = np.moveaxis(out, (position, count + position), (0, 1))
        out = np.moveaxis(_image_along(pairs, v, length), 0, position)
    return np.asarray(out, order="C")  # keeps a multiplicity's shape ()


def _image_along(pairs: Array, v: Array, length: int) -> Array:
    """Σ over o of pairs[k, o] v[k + o], and of the same pairs from their second members: [length, rest..]."""
    out, v = np.zeros((v.size, *pairs.shape[2:])), v.reshape(-1, *(1,) * (pairs.ndim - 2))
    for o in range(pairs.shape[1]):
        n = min(length, v.size - o)
        out[:n] += pairs[:n, o] * v[o : o + n]
        if o:
            out[o : o + n] += pairs[:n, o] * v[:n]
    out[: v.size - length] += out[length:]
    return out[:length]


# Merging


def ones(batch_ndim: int) -> Factor:
    """The multiplicity that a term without one has: the unit of the ring, key 1."""
    return Factor((), (), np.ones((1,) * batch_ndim), 1)


def split(term: Term, axes: Axes, batch_ndim: int) -> tuple[Factor | None, Term]:
    """The factor of a term over exactly `axes`, and the others; a multiplicity left out is one of ones."""
    found = next((factor for factor in term if factor.axes == axes), None)
    rest = tuple(factor for factor in term if factor is not found)
    return (ones(batch_ndim) if found is None and not axes else found), rest


def tidy(terms: Sequence[Term], batch_ndim: int, frame: Frame) -> tuple[Term, ...]:
    return tuple(_multiply_out(_sweep(terms, batch_ndim, frame), batch_ndim, frame))


def _sweep(terms: Sequence[Term], batch_ndim: int, frame: Frame) -> list[Term]:
    """Merge terms that agree on every key but one, position by position, until nothing changes."""
    count = len(terms) + 1
    swept = list(terms)
    while 1 < len(swept) < count:
        count = len(swept)
        found = {factor.axes for term in swept for factor in term if factor.axes}
        # Multiplicities last, and always: they may be left out in every term.
        for axes in [*sorted(found), ()]:
            swept = _merge_at(swept, axes, batch_ndim, frame)
    return swept


def _merge_at(terms: Sequence[Term], axes: Axes, batch_ndim: int, frame: Frame) -> list[Term]:
    """Add the factors over `axes` of all terms that agree on everything else."""
    groups: dict[object, list[tuple[Factor | None, Term]]] = {}
    for number, term in enumerate(terms):
        factor, rest = split(term, axes, batch_ndim)
        signature = number if factor is None else tuple((f.axes, f.key) for f in rest if f.axes or f.key != 1)
        groups.setdefault(signature, []).append((factor, rest))
    return [_merged(group, frame) for group in groups.values()]


def _merged(group: Sequence[tuple[Factor | None, Term]], frame: Frame) -> Term:
    rest = group[0][1]
    factors = [factor for factor, _ in group if factor is not None]
    return _without_ones([*rest, add_factors(factors, frame)] if factors else rest)


def _without_ones(factors: Iterable[Factor]) -> Term:
    return ordered(factor for factor in factors if factor.axes or factor.key != 1)


def _multiply_out(terms: list[Term], batch_ndim: int, frame: Frame) -> list[Term]:
    """The form that takes the fewest bytes: the list, or one term of fewer factors.

    Blocks of the coarsest common partition on whose keys all terms agree stay factors of their own; the
    others become one factor, because a sum of products is not a product. On short axes the product of all
    blocks may be smaller still: a batch axis that both hold is then there once.
    """
    if len(terms) < 2:
        return terms
    blocks = [[_block(term, axes, batch_ndim) for term in terms] for axes in _common_partition(terms)]
    agree = [len({_key(factors) for factors in block}) == 1 for block in blocks]
    agree[0] &= not all(agree)  # all equal: one of them has to take the sum
    forms = [_Form(blocks, agree), _Form(blocks, [False] * len(blocks))]
    best = min(forms, key=lambda form: form.nbytes(frame))
    return terms if best.nbytes(frame) >= sum(f.nbytes for t in terms for f in t) else [best.term(frame)]


@dataclass(frozen=True, eq=False)
class _Form:
    """One term for a list: blocks that stay factors, and those that are multiplied out together."""

    blocks: list[list[Term]]
    agree: list[bool]

    @property
    def kept(self) -> list[Term]:
        return [block[0] for block, same in zip(self.blocks, self.agree, strict=True) if same]

    @property
    def mixed(self) -> list[Term]:
        """For each term of the list its factors that are multiplied out."""
        blocks = [block for block, same in zip(self.blocks, self.agree, strict=True) if not same]
        return [tuple(f for factors in group for f in factors) for group in zip(*blocks, strict=True)]

    def nbytes(self, frame: Frame) -> int:
        return _bytes_of_sum(self.mixed, frame) + sum(_bytes_of_sum([part], frame) for part in self.kept)

    def term(self, frame: Frame) -> Term:
        kept = [multiply_factors(part) for part in self.kept]
        return _without_ones([*kept, _sum_of_products(self.mixed, frame)])


def _common_partition(terms: Iterable[Term]) -> list[Axes]:
    """The coarsest common partition: axes that share a factor in any term share a block; then () for
    multiplicities."""
    blocks = join_overlapping(factor.axes for term in terms for factor in term)
    return [*sorted(tuple(sorted(block)) for block in blocks), ()]


def _block(term: Term, axes: Axes, batch_ndim: int) -> Term:
    """The factors of a term inside one block of the join."""
    if not axes:
        factor, _ = split(term, (), batch_ndim)
        return () if factor is None else (factor,)
    return tuple(factor for factor in term if set(factor.axes) & set(axes))


def _key(factors: Term) -> int:
    return math.prod(factor.key for factor in factors) % KEY_MODULUS


def _support(parts: Sequence[Term], frame: Frame) -> tuple[Axes, Window, tuple[int, ...]]:
    """Axes, union window and batch extents of a sum of products over the same axes."""
    axes = tuple(sorted(axis for factor in parts[0] for axis in factor.axes))
    sizes, periodic = [frame.sizes[a] for a in axes], [frame.periodic[a] for a in axes]
    window = union([term_window(part) for part in parts], sizes, periodic)
    return axes, window, np.broadcast_shapes(*(factor.batch for part in parts for factor in part))


def _bytes_of_sum(parts: Sequence[Term], frame: Frame) -> int:
    axes, window, batch = _support(parts, frame)
    return bytes_of_pairs(window, [frame.offsets[a] for a in axes], batch)


def _sum_of_products(parts: Sequence[Term], frame: Frame) -> Factor:
    """Multiply out and add one after the other, so that only one product is alive at a time."""
    axes, window, batch = _support(parts, frame)
    pairs = np.zeros((*lengths(window), *(frame.offsets[a] for a in axes), *batch))
    for part in parts:
        product = multiply_factors(part)
        add_into(pairs, window, product.pairs, product.window, [frame.sizes[a] for a in axes])
    return Factor(axes, window, pairs, sum(_key(part) for part in parts) % KEY_MODULUS)


# Blocks side by side along a batch axis: what they share stays shared, by keys


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
