"""Blocks side by side along a batch axis."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from xspline.sums import Factor, Gram, digest_key

from .cases import LOCAL, close, frame_of, frames, random_factor, random_gram, rngs

TIME = frame_of((LOCAL, 8, 3))


def expanded(gram, batch, frame):
    matrix = gram.to_dense(frame)
    return np.broadcast_to(matrix, (*matrix.shape[:2], *batch))


@given(frames(), rngs, st.integers(0, 1), st.lists(st.integers(1, 3), min_size=1, max_size=3))
def test_dense_matrices_lie_side_by_side(frame, rng, axis, sizes):
    shapes = [(size, 2) if axis == 0 else (2, size) for size in sizes]
    grams = [random_gram(rng, frame, batch=shape) for shape in shapes]
    joined = Gram.concatenate(grams, axis, sizes, frame)
    expected = np.concatenate(
        [expanded(gram, shape, frame) for gram, shape in zip(grams, shapes, strict=True)], axis=2 + axis
    )
    assert close(np.broadcast_to(joined.to_dense(frame), expected.shape), expected)


def test_a_static_mask_is_concatenated_and_time_stays_shared():
    rng = np.random.default_rng(0)
    time = random_factor(rng, TIME, (0,), (1,))
    masks = [Factor((), (), rng.random(n), digest_key(str(n))) for n in (4, 2)]
    # The last block is full: its multiplicity is left out.
    grams = [Gram(((time, mask),), 1) for mask in masks] + [Gram(((time,),), 1)]
    joined = Gram.concatenate(grams, 0, [4, 2, 3], TIME)
    assert joined.partitions == (((0,), ()),)
    assert joined.terms[0][0] is time
    np.testing.assert_array_equal(joined.terms[0][1].pairs, np.r_[masks[0].pairs, masks[1].pairs, 1, 1, 1])


@given(rngs)
def test_concatenation_and_merge_commute(rng):
    time = [random_factor(rng, TIME, (0,), (1,)) for _ in range(2)]
    blocks = [
        [Gram(((t, Factor((), (), rng.random(3), digest_key(rng.bytes(8)))),), 1) for t in time] for _ in "ab"
    ]
    late = Gram.concatenate([Gram.merge(block, TIME) for block in blocks], 0, [3, 3], TIME)
    early = Gram.merge([Gram.concatenate(step, 0, [3, 3], TIME) for step in zip(*blocks, strict=True)], TIME)
    assert close(late.to_dense(TIME), early.to_dense(TIME))
