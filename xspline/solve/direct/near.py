"""Low-rank differences between the systems of a batch: G_k = G_0 + V diag(±1) Vᵀ with few columns.

An observation adds wφφᵀ: masks that differ in one place differ in a matrix of rank 1, which is zero but for the
features at that place. The systems with the most observations lead, so that it is mostly these that are determined.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from xspline.solve.batch import distinct, systems_between
from xspline.solve.costs import CostModel
from xspline.solve.direct.band import narrowest
from xspline.spaces import Frame
from xspline.sums import Gram
from xspline.sums.factor import orientations

Array = NDArray[np.float64]
ROUNDING = 64 * float(np.finfo(np.float64).eps)  # of an entry of G, relative to its diagonal


@dataclass(frozen=True, eq=False)
class Change:
    """G_k − G_0 = V diag(s) Vᵀ of a system and the one that leads it.

    Parameters
    ----------
    leader : int
        Number of the system that leads.
    rows : ndarray of int, [n]
        Coefficients, in the order of the Space, outside of which V is zero.
    vectors, signs : ndarray, [n, r] and [r]
        V and s.
    """

    leader: int
    rows: NDArray[np.int64]
    vectors: Array
    signs: Array


@dataclass(frozen=True, eq=False)
class Near:
    """The different systems of a batch, and which of them are changes of others; `gram` and `index` are of `distinct`.

    Parameters
    ----------
    gram : Gram
    index : ndarray of int, [b..]
    leaders : tuple of int
        The systems that are to be factorised.
    changes : dict of int to Change
        Of all others.
    """

    gram: Gram
    index: NDArray[np.int64]
    leaders: tuple[int, ...]
    changes: dict[int, Change]


_known: WeakKeyDictionary[Gram, dict[CostModel, Near | None]] = WeakKeyDictionary()


def near(gram: Gram, frame: Frame, costs: CostModel) -> Near | None:
    """The systems of a Gram by their differences; None where none is near another, or factorising all takes no time.

    A search for the smoothing asks again for every λ, so the answer for a Gram is kept as long as it lives.
    """
    kept = _known.setdefault(gram, {})
    if costs not in kept:
        kept[costs] = _near(gram, frame, costs)
    return kept[costs]


def _near(gram: Gram, frame: Frame, costs: CostModel) -> Near | None:
    ordering = narrowest(frame)
    operations = float(ordering.size) * (ordering.bandwidth + 1) ** 2
    systems, index = distinct(gram)
    count = int(index.max(initial=0)) + 1
    small = count >= costs.min_batch and ordering.size * (ordering.bandwidth + 1) <= costs.max_batched_numbers
    if count == 1 or small or operations < costs.min_update_flops or any(frame.everywhere):
        return None  # the last: every row of a change would touch the functions that are active everywhere
    rank, most = (
        min(costs.max_update_rank, (ordering.bandwidth + 1) // 4),
        max(200, int(np.cbrt(operations / 4))),
    )
    room = int(costs.update_bytes // (8 * ordering.size))
    trace = np.broadcast_to(systems.diagonal(frame).reshape(ordering.size, -1).sum(axis=0), count)
    leaders: dict[int, tuple[Array, Array]] = {}  # the last few: pairs, and their rounding errors
    factorised, changes = [], {}
    for system in np.argsort(-trace, kind="stable").tolist():
        pairs = systems_between(systems, system, system + 1).one_factor(frame).pairs[..., 0]
        proposed = (
            change(leader, *own, pairs, frame, min(rank, room), most) for leader, own in leaders.items()
        )
        best = min((x for x in proposed if x is not None), key=lambda x: len(x.signs), default=None)
        if best is not None:
            changes[system] = best
            room -= len(best.signs)
            continue
        factorised.append(system)
        leaders[system] = pairs, rounding(pairs, frame)
        if len(leaders) > costs.compared_systems:
            del leaders[next(iter(leaders))]
    return Near(systems, index, tuple(factorised), changes) if changes else None


def rounding(pairs: Array, frame: Frame) -> Array:
    """How far entries of equal masks may be apart, since blocks were cut or added up differently: [K.., O..]."""
    count = len(frame.sizes)
    root, out = np.sqrt(pairs[(slice(None),) * count + (0,) * count]), np.full(pairs.shape, np.inf)
    axes = tuple(range(count))
    for offset in np.ndindex(*frame.offsets):
        at = (slice(None),) * count + offset
        for flips in orientations(offset):  # |G_ij| ≤ √(G_ii G_jj) of every entry that a pair stands for
            second = [0 if flip else -o for o, flip in zip(offset, flips, strict=True)]
            first = [-o - s for o, s in zip(offset, second, strict=True)]
            out[at] = np.minimum(out[at], np.roll(root, first, axes) * np.roll(root, second, axes))
    return np.asarray(ROUNDING * out)


def change(
    leader: int, before: Array, noise: Array, after: Array, frame: Frame, rank: int, most: int
) -> Change | None:
    """The difference of two pair arrays [K.., O..] beyond noise; None where it has too many columns or rows."""
    places = np.nonzero(np.abs(after - before) > noise)
    count, sizes = len(frame.sizes), frame.sizes
    if len(places[0]) > most * math.prod(frame.offsets):
        return None
    ends = [(k, (k + o) % n) for k, o, n in zip(places[:count], places[count:], sizes, strict=True)]
    rows = np.unique([np.ravel_multi_index(end, sizes) for end in itertools.product(*ends)])
    if len(rows) > most:
        return None
    difference = entries(after - before, rows, frame)
    flat = (slice(None),) * count + (0,) * count
    scale = np.sqrt(np.maximum(before[flat], after[flat]).ravel()[rows])
    scale[scale == 0] = 1.0
    values, vectors = np.linalg.eigh(difference / scale / scale[:, None])
    # Relative to the diagonals: what is less is a rounding error of the sums.
    keep = np.abs(values) > 4 * len(rows) * np.finfo(np.float64).eps
    if np.count_nonzero(keep) > rank:
        return None
    own = scale[:, None] * vectors[:, keep] * np.sqrt(np.abs(values[keep]))
    return Change(leader, rows, own, np.sign(values[keep]))


def entries(pairs: Array, rows: NDArray[np.int64], frame: Frame) -> Array:
    """Rows and columns of the matrix of a pair array [K.., O..]: [n, n]."""
    at = np.unravel_index(rows, frame.sizes)
    out = np.zeros((len(rows), len(rows)))
    for flips in orientations((1,) * len(at)):
        inside, firsts, offsets = np.ones(out.shape, dtype=bool), [], []
        axes = zip(at, flips, frame.sizes, frame.offsets, frame.periodic, strict=True)
        for i, flip, size, count, circle in axes:
            first, second = (i[None, :], i[:, None]) if flip else (i[:, None], i[None, :])
            offset = (second - first) % size if circle else second - first
            inside &= (offset >= flip) & (offset < count)  # a pair of equals is there once
            firsts.append(np.broadcast_to(first, out.shape))
            offsets.append(offset)
        out[inside] += pairs[tuple(x[inside] for x in (*firsts, *offsets))]
    return out
