"""What a Gram looks like to a solver: one product or many, shared over the batch or not, ridge or not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xspline.sums import Factor, Gram

if TYPE_CHECKING:
    from xspline.spaces import Frame

Array = NDArray[np.float64]
Selection = NDArray[np.int64] | slice


@dataclass(frozen=True, eq=False)
class Product:
    """G_b = v_b F_1 ⊗ F_2 ⊗ …, the factors shared by all members of the batch.

    Parameters
    ----------
    factors : tuple of Factor
        Over the coefficient axes, all coefficients of them, no batch axes.
    multiplicity : ndarray, [b..]
        v.
    """

    factors: tuple[Factor, ...]
    multiplicity: Array


def product_of(gram: Gram, frame: Frame) -> Product | None:
    """The Gram as one product with shared factors; None if it is not one."""
    if len(gram.terms) != 1:
        return None
    spanning = [f for f in gram.terms[0] if f.axes]
    if any(math.prod(f.batch) != 1 for f in spanning):
        return None
    factors = (replace(f, pairs=f.pairs.reshape(f.pairs.shape[: 2 * len(f.axes)])) for f in spanning)
    v = math.prod((f.pairs for f in gram.terms[0] if not f.axes), start=np.ones((1,) * gram.batch_ndim))
    return Product(tuple(f.full(frame) for f in factors), np.asarray(v))


def ridge_of(penalty: Gram) -> float | None:
    """λ if the penalty is λ times the identity, 0 if there is none; else None."""
    total = 0.0
    for term in penalty.terms:
        for factor in term:
            diagonal = factor.diagonal()
            first = float(diagonal.flat[0])
            # Entries beside the diagonal are all 0 when there are no more non-zeros than the diagonal has.
            if (diagonal != first).any() or np.count_nonzero(factor.pairs) > diagonal.size:
                return None
        total += math.prod(float(factor.diagonal().flat[0]) for factor in term)
    return total


def subframe(frame: Frame, axes: Sequence[int]) -> Frame:
    """The frame of some of the coefficient axes."""
    return replace(
        frame,
        sizes=tuple(frame.sizes[j] for j in axes),
        offsets=tuple(frame.offsets[j] for j in axes),
        periodic=tuple(frame.periodic[j] for j in axes),
        constant=tuple(frame.constant[j] for j in axes),
    )


def alone(factor: Factor) -> Gram:
    """A factor without batch axes as a Gram over its own axes."""
    return Gram(((replace(factor, axes=tuple(range(len(factor.axes)))),),))


def distinct(gram: Gram) -> tuple[Gram, NDArray[np.int64]]:
    """The different members of a Gram, along one flat batch axis.

    Members that differ only in multiplicities are the same where these are.

    Returns
    -------
    members : Gram with one batch axis, of extent 1 where shared
    index : ndarray of int, [b..]
        Member of each batch position.
    """
    batch = gram.batch
    spanning = [f for term in gram.terms for f in term if f.axes]
    chosen: Selection
    if any(math.prod(f.batch) != 1 for f in spanning):
        chosen, index = slice(None), np.arange(math.prod(batch))
    else:
        v = [np.broadcast_to(f.pairs, batch).ravel() for term in gram.terms for f in term if not f.axes]
        stacked = np.array([np.ones(math.prod(batch)), *v])
        _, chosen, index = np.unique(stacked, axis=1, return_index=True, return_inverse=True)
    terms = tuple(tuple(_take(f, batch, chosen) for f in term) for term in gram.terms)
    return Gram(terms, 1), index.reshape(batch)


def members(gram: Gram, start: int, stop: int) -> Gram:
    """Members `start` to `stop` of a Gram with one batch axis."""
    return Gram(tuple(tuple(_take(f, f.batch, slice(start, stop)) for f in term) for term in gram.terms), 1)


def _take(factor: Factor, batch: tuple[int, ...], chosen: Selection) -> Factor:
    own = factor.pairs.shape[: 2 * len(factor.axes)]
    if math.prod(factor.batch) == 1:
        return replace(factor, pairs=factor.pairs.reshape(*own, 1))
    flat = np.broadcast_to(factor.pairs, own + batch).reshape(*own, -1)
    return replace(factor, pairs=flat[..., chosen])


def describe(gram: Gram) -> str:
    """The structure of a Gram in words, for errors."""
    if not gram.terms:
        return "they hold no observations"
    if len(gram.terms) > 1:
        return f"they are a sum of {len(gram.terms)} products"
    spanning = [f for f in gram.terms[0] if f.axes]
    widths = ", ".join(str(len(f.axes)) for f in spanning)
    if any(math.prod(f.batch) != 1 for f in spanning):
        return f"they are one product over {widths} coordinates whose weights or gaps differ within the batch"
    if all(len(f.axes) == 1 for f in spanning):
        return "they are one product of a factor for each coordinate"
    return f"they are one product of factors over {widths} coordinates"
