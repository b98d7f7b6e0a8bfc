"""More systems than one slab holds: each is solved as if it were alone."""

from __future__ import annotations

import numpy as np
import pytest

from xspline.solve import Penalty, Ridge, factorise
from xspline.sums import Factor, Gram

from .cases import close, on, space_of

SPACE = space_of("season")
SIZE = SPACE.size
COUNT, EMPTY, SINGULAR = 250, 30, 120
SLABS = on(slab_numbers=100 * SIZE**2)  # three of them


def systems(rng: np.random.Generator) -> np.ndarray:
    """[P, P, members]: positive definite, one without observations, one with too few."""
    rows = rng.normal(size=(2 * SIZE, SIZE, COUNT))
    rows[..., EMPTY] = 0.0
    rows[SIZE - 1 :, :, SINGULAR] = 0.0
    return np.einsum("nkb,nlb->klb", rows, rows)


def gram_of(matrix: np.ndarray) -> Gram:
    pairs = np.zeros((SIZE, SPACE.frame.offsets[0], COUNT))
    for o in range(SIZE):
        k = np.arange(SIZE - o)
        pairs[k, o] = matrix[k, k + o]
    return Gram(((Factor((0,), ((0, SIZE),), pairs, 1),),), 1)


@pytest.mark.parametrize("penalty", [Ridge(0.0), Ridge(0.5)], ids=repr)
def test_every_member_as_if_it_were_alone(penalty: Penalty) -> None:
    rng = np.random.default_rng(0)
    matrix, rhs = systems(rng), rng.normal(size=(SIZE, COUNT))
    gram, own = gram_of(matrix), penalty.gram(SPACE)
    found = factorise(gram, own, SPACE, resources=SLABS)
    penalised = np.moveaxis(matrix, -1, 0) + (own.to_dense(SPACE.frame) if own.terms else 0.0)
    determined = np.arange(COUNT) != EMPTY
    determined &= (np.arange(COUNT) != SINGULAR) | bool(own.terms)
    assert len(found.system.slabs) == 3
    np.testing.assert_array_equal(found.determined, determined)
    inverse = np.linalg.inv(penalised[determined])
    solved = found.solve(rhs)
    assert np.isnan(solved[:, ~determined]).all()
    assert close(solved[:, determined], np.einsum("bkl,lb->kb", inverse, rhs[:, determined]))
    assert close(found.logdet()[determined], np.linalg.slogdet(penalised[determined])[1])
    edf = np.einsum("bkl,lkb->b", inverse, matrix[..., determined])
    assert close(found.edf()[determined], edf)
