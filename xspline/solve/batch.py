"""Batches of systems: which members have the same matrix, so that it is factorised once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from xspline.solve.costs import COSTS
from xspline.sums import Factor, Gram

FEW = 64  # numbers of a batch member that is factorised sooner than compared with others: a regression on 8 functions


def distinct(gram: Gram) -> tuple[Gram, NDArray[np.int64]]:
    """The different systems of a Gram, along one flat batch axis; members with the same numbers are one system.

    A search for the smoothing asks again for every λ, so the answer is kept as long as the Gram. The systems are a Gram
    with one batch axis, of extent 1 where shared; the other result is the system of each batch position, [b..].
    """
    if gram not in _distinct:
        _distinct[gram] = _different(gram)
    return _distinct[gram]


_distinct: WeakKeyDictionary[Gram, tuple[Gram, NDArray[np.int64]]] = WeakKeyDictionary()


def _different(gram: Gram) -> tuple[Gram, NDArray[np.int64]]:
    batch = gram.batch
    count = math.prod(batch)
    spanning = [f for term in gram.terms for f in term if f.axes and math.prod(f.batch) != 1]
    if spanning and sum(math.prod(f.pairs.shape[: 2 * len(f.axes)]) for f in spanning) <= FEW:
        return taken(gram, slice(None)), np.arange(count).reshape(batch)
    # A hash tells members apart that differ, but for a chance of 2⁻⁶⁴ each pair.
    random, shift = np.random.default_rng(0), np.uint64(32)
    hashes = np.zeros(count, dtype=np.uint64)
    for bits in _rows(gram):
        odd = random.integers(2**64, size=(len(bits), 1), dtype=np.uint64) | np.uint64(1)
        mixed = (bits ^ (bits >> shift)) * odd
        hashes += (mixed ^ (mixed >> shift)).sum(axis=0, dtype=np.uint64)
    _, leader, index = np.unique(hashes, return_index=True, return_inverse=True)
    leaders = leader[index]  # of each member the first one with its hash
    if len(leader) == count or any((bits != bits[:, leaders]).any() for bits in _rows(gram)):
        return taken(gram, slice(None)), np.arange(count).reshape(batch)
    chosen, index = np.unique(leaders, return_inverse=True)
    return taken(gram, chosen), index.reshape(batch)


def _rows(gram: Gram) -> Iterator[NDArray[np.uint64]]:
    """The bits of all numbers that may tell batch members apart, [rows, members], some rows at a time."""
    count = math.prod(gram.batch)
    step = max(COSTS.slab_numbers // count, 1)
    for factor in (factor for term in gram.terms for factor in term if math.prod(factor.batch) != 1):
        flat = np.broadcast_to(factor.pairs, (*factor.pairs.shape[: 2 * len(factor.axes)], *gram.batch))
        flat = flat.reshape(-1, count)
        for first in range(0, len(flat), step):
            yield np.ascontiguousarray(flat[first : first + step], dtype=np.float64).view(np.uint64)


def taken(gram: Gram, chosen: NDArray[np.int64] | slice) -> Gram:
    """Some batch members of a Gram, along one flat batch axis."""
    return Gram(tuple(tuple(_take(f, gram.batch, chosen) for f in term) for term in gram.terms), 1)


def _take(factor: Factor, batch: tuple[int, ...], chosen: NDArray[np.int64] | slice) -> Factor:
    own = factor.pairs.shape[: 2 * len(factor.axes)]
    if math.prod(factor.batch) == 1:
        return replace(factor, pairs=factor.pairs.reshape(*own, 1))
    flat = np.broadcast_to(factor.pairs, own + batch).reshape(*own, -1)
    return replace(factor, pairs=flat[..., chosen])
