"""Terms: products of factors; how a list of them is kept short, and how lists are put side by side."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeAlias, TypeVar

import numpy as np

from xspline.spaces import Frame
from xspline.sums.factor import KEY_MODULUS, Factor, digest_key, members_on_line, multiply_factors
from xspline.sums.window import Array, Window, add_into, embed, lengths, union

Term: TypeAlias = tuple[Factor, ...]
Axes: TypeAlias = tuple[int, ...]
Member = TypeVar("Member", bound=Hashable)


def join_overlapping(sets: Iterable[Iterable[Member]]) -> list[set[Member]]:
    """Disjoint sets: those that overlap, directly or through others, joined into one.

    They are in the order in which they were completed: each stands where the last set that joined it stood. Members are
    hashable, and empty sets are left out.
    """
    joined: list[set[Member]] = []
    for elements in map(set, sets):
        overlapping = [other for other in joined if other & elements]
        joined = [other for other in joined if not other & elements]
        joined.append(elements.union(*overlapping))
    return [elements for elements in joined if elements]


def ordered(factors: Iterable[Factor]) -> Term:
    """Factors by ascending axes, the multiplicity last."""
    return tuple(sorted(factors, key=lambda factor: (not factor.axes, factor.axes)))


def without_ones(factors: Iterable[Factor]) -> Term:
    """Factors in order, without a multiplicity of ones."""
    return ordered(factor for factor in factors if factor.axes or factor.key != 1)


def split(term: Term, axes: Axes, batch_ndim: int) -> tuple[Factor | None, Term]:
    """The factor of a term over exactly `axes`, and the others.

    A term without a multiplicity has one of ones, the unit of the ring of keys; over other axes it may have None.
    """
    factor = next((factor for factor in term if factor.axes == axes), None)
    rest = tuple(other for other in term if other is not factor)
    if factor is None and not axes:
        factor = Factor((), (), np.ones((1,) * batch_ndim), 1)
    return factor, rest


def term_window(term: Term) -> Window:
    """Window of a term, over all coefficient axes."""
    spans = {axis: span for factor in term for axis, span in zip(factor.axes, factor.window, strict=True)}
    return tuple(spans[axis] for axis in sorted(spans))


def image_of(factor: Factor, vectors: Sequence[Array], frame: Frame) -> Array:
    """Product with the outer product of one vector per axis, on the factor's window: [k.., b..].

    Each axis' pairs are symmetric on their own, so they are summed axis by axis. Those whose vectors are mostly zero
    come first, as a constant is one function of a Fourier series: they leave less to read. Else the first axis does,
    as what is read then lies side by side.
    """
    factor = factor.padded(frame)
    out, count = factor.pairs, len(factor.axes)
    left = list(range(count))
    for position in sorted(left, key=lambda p: np.mean(vectors[factor.axes[p]] != 0)):
        axis, (start, length) = factor.axes[position], factor.window[position]
        size, offsets = frame.sizes[axis], factor.offsets[position]
        around = frame.periodic[axis] and length == size  # pairs reach around the circle
        v = vectors[axis][(start + np.arange(length + (offsets - 1 if around else 0))) % size]
        members = [members_on_line(frame, axis, length, around, o) for o in range(offsets)]
        pairs = np.moveaxis(out, (position, count + left.index(position)), (0, 1))
        image = _image_along(pairs, v, members)
        image[: v.size - length] += image[length:]
        out = np.moveaxis(image[:length], 0, position)
        left.remove(position)
    return np.asarray(out, order="C")  # keeps a multiplicity's shape ()


def _image_along(pairs: Array, v: Array, members: Sequence[tuple[slice, slice]]) -> Array:
    """Σ over o of pairs[k, o] v[k + o], and of the same pairs from their second members: [k, ..].

    `members` are the first and the second members of the pairs of each offset o; one second for all firsts where
    functions are active everywhere. Leading and trailing zeros of v are passed over.
    """
    image = np.zeros((v.size, *pairs.shape[2:]))
    products = np.empty((len(pairs), *pairs.shape[2:]))  # used again: new memory is slow on Dask's workers
    for o, (first, second) in enumerate(members):
        count = first.stop - first.start
        for rows, columns in [(first, second), (second, first)][: 1 + (o > 0)]:
            weights = np.broadcast_to(v[columns], count)
            known = np.flatnonzero(weights)
            if not known.size:
                continue
            part = slice(known[0], known[-1] + 1)
            own, weights = pairs[first, o][part], weights[part].reshape(-1, *(1,) * (pairs.ndim - 2))
            product = np.multiply(own, weights, out=products[: len(own)])
            if rows.stop - rows.start == count:
                image[rows][part] += product
            else:
                image[rows] += product.sum(axis=0)
    return image


# --- a short list with the same sum


def tidy(terms: Sequence[Term], batch_ndim: int, frame: Frame) -> tuple[Term, ...]:
    """Terms with the same sum, fewer and smaller by merging and, where that takes fewer bytes, one of fewer factors.

    Take the coarsest common partition of the axes: those that share a factor in any term share a block. Blocks on
    whose keys all terms agree stay factors of their own; the others become one factor, because a sum of products is
    not a product.
    """
    terms = _add_factors_of_like_terms(terms, batch_ndim, frame)
    if len(terms) < 2:
        return tuple(terms)
    blocks = join_overlapping(factor.axes for term in terms for factor in term)
    # For each block the factors of every term inside it, and last their multiplicities.
    columns = [
        [tuple(f for f in term if block.intersection(f.axes)) for term in terms]
        for block in sorted(blocks, key=sorted)
    ]
    multiplicities = (split(term, (), batch_ndim)[0] for term in terms)
    columns.append([() if factor is None else (factor,) for factor in multiplicities])
    keys = [[math.prod(f.key for f in factors) % KEY_MODULUS for factors in column] for column in columns]
    agree = [len(set(column)) == 1 for column in keys]
    agree[0] &= not all(agree)  # all equal: one of them has to take the sum
    # One term: each of its factors is a sum of products, here a list of what is multiplied.
    form = [[column[0]] for column, alone in zip(columns, agree, strict=True) if alone]
    mixed = [column for column, alone in zip(columns, agree, strict=True) if not alone]
    form.append([tuple(f for factors in row for f in factors) for row in zip(*mixed, strict=True)])
    size = sum(8 * math.prod(_support(products, frame)[2]) for products in form)
    if size >= sum(factor.nbytes for term in terms for factor in term):
        return tuple(terms)
    return (without_ones(add_products(products, frame) for products in form),)


def _add_factors_of_like_terms(terms: Sequence[Term], batch_ndim: int, frame: Frame) -> list[Term]:
    """Merge terms that agree on every key but one, position by position, until nothing changes."""
    shorter, count = list(terms), len(terms) + 1
    while 1 < len(shorter) < count:
        count = len(shorter)
        positions = sorted({factor.axes for term in shorter for factor in term if factor.axes})
        # Multiplicities last, and always: they may be left out in every term.
        for axes in [*positions, ()]:
            # Terms that agree on everything but the factor over `axes`; one without such a factor stays alone.
            alike: dict[object, list[Term]] = {}
            for number, term in enumerate(shorter):
                factor, rest = split(term, axes, batch_ndim)
                keys = tuple((f.axes, f.key) for f in without_ones(rest))
                alike.setdefault(number if factor is None else keys, []).append(term)
            shorter = []
            for same in alike.values():
                _, rest = split(same[0], axes, batch_ndim)
                factors = [
                    factor for term in same if (factor := split(term, axes, batch_ndim)[0]) is not None
                ]
                total = [add_products([(factor,) for factor in factors], frame)] if factors else []
                shorter.append(without_ones([*rest, *total]))
    return shorter


def _support(products: Sequence[Term], frame: Frame) -> tuple[Axes, Window, tuple[int, ...]]:
    """Axes, union window and shape of the pair array of a sum of products over the same axes."""
    axes = tuple(sorted(axis for factor in products[0] for axis in factor.axes))
    sizes, periodic = [frame.sizes[a] for a in axes], [frame.periodic[a] for a in axes]
    window = union([term_window(factors) for factors in products], sizes, periodic)
    batch = np.broadcast_shapes(*(factor.batch for factors in products for factor in factors))
    return axes, window, (*lengths(window), *(frame.offsets[a] for a in axes), *batch)


def add_products(products: Sequence[Term], frame: Frame) -> Factor:
    """Sum of products of factors over the same axes, in their order, on the union of their windows; keys add.

    Multiplied out and added one after the other, so that only one product is alive at a time.
    """
    if len(products) == 1:
        return multiply_factors(products[0])
    axes, window, shape = _support(products, frame)
    pairs, key = np.zeros(shape), 0
    for factors in products:
        product = multiply_factors(factors).padded(frame)
        add_into(pairs, window, product.pairs, product.window, [frame.sizes[a] for a in axes])
        key += product.key
    return Factor(axes, window, pairs, key % KEY_MODULUS)


# --- blocks side by side along a batch axis: what they share stays shared, by keys


def concatenate_terms(
    blocks: Sequence[Sequence[Term]], axis: int, sizes: Sequence[int], frame: Frame
) -> list[Term]:
    """Terms of blocks that lie side by side along batch axis `axis`, with extents `sizes` there."""
    concatenated = []
    for slot in _matching_terms(blocks):
        present = [term for term in slot if term is not None]
        batch_ndim = len(present[0][0].batch)
        columns = {
            axes: [None if term is None else split(term, axes, batch_ndim)[0] for term in slot]
            for axes in (*_partition(present[0]), ())
        }
        shared = {}
        for axes, column in columns.items():
            factors = [factor for factor in column if factor is not None]
            shared[axes] = len({f.key for f in factors}) == 1 and all(f.batch[axis] == 1 for f in factors)
        if len(present) < len(slot) and all(shared.values()):
            # Nothing else would say that the term is missing from some blocks.
            shared[()] = False
        joined = (
            next(factor for factor in column if factor is not None)
            if shared[axes]
            else _concatenate_factors(column, axis, sizes, frame)
            for axes, column in columns.items()
        )
        concatenated.append(without_ones(joined))
    return concatenated


def _partition(term: Term) -> tuple[Axes, ...]:
    return tuple(factor.axes for factor in term if factor.axes)


def _matching_terms(blocks: Sequence[Sequence[Term]]) -> list[list[Term | None]]:
    """Which terms of the blocks belong together: of one partition, with as many equal keys as possible.

    It returns slots of one term per block, over one partition; None where a block lacks it.
    """
    slots: list[list[Term | None]] = []
    for number, terms in enumerate(blocks):
        free = list(range(len(slots)))
        for slot in slots:
            slot.append(None)
        for term in terms:
            equal_keys: dict[int, int] = {}
            for i in free:
                first = next(other for other in slots[i] if other is not None)
                if _partition(first) == _partition(term):
                    equal_keys[i] = len({(f.axes, f.key) for f in first} & {(f.axes, f.key) for f in term})
            if equal_keys:
                best = max(equal_keys, key=equal_keys.__getitem__)
                slots[best][number] = term
                free.remove(best)
            else:
                slots.append([None] * number + [term])
    return slots


def _concatenate_factors(
    column: Sequence[Factor | None], axis: int, sizes: Sequence[int], frame: Frame
) -> Factor:
    """Factors over the same axes, side by side, on the union of their windows; zeros where there is none."""
    column = [None if factor is None else factor.padded(frame) for factor in column]
    present = [factor for factor in column if factor is not None]
    first, extents = present[0], present[0].sizes(frame)
    window = union([f.window for f in present], extents, [frame.periodic[a] for a in first.axes])
    batch = list(np.broadcast_shapes(*((*f.batch[:axis], 1, *f.batch[axis + 1 :]) for f in present)))
    parts, start, key = list[Array](), 0, 0
    for factor, size in zip(column, sizes, strict=True):
        batch[axis], own = size, np.zeros(())
        if factor is not None:
            own = embed(factor.pairs, factor.window, extents, window)
            salt = digest_key("concatenated", np.asarray([axis, start, size])) | 1
            key = (key + factor.key * salt) % KEY_MODULUS
        parts.append(np.broadcast_to(own, (*lengths(window), *first.offsets, *batch)))
        start += size
    return Factor(first.axes, window, np.concatenate(parts, axis=2 * len(first.axes) + axis), key)
