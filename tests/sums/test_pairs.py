"""The pair form of a matrix is the adjoint of pair arrays."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from xspline.sums import masked_pairs, outer_pairs

from .cases import close, frames, random_gram, rngs


@given(frames(), rngs, st.sampled_from([(), (2,)]), st.integers(1, 3))
def test_the_trace_with_a_gram_is_the_sum_of_products_of_pairs(frame, rng, batch, count):
    vectors = rng.normal(size=(*frame.sizes, count, *batch))
    gram = random_gram(rng, frame)
    flat = vectors.reshape(math.prod(frame.sizes), count, *batch)
    matrix = np.einsum("im...,jm...->ij...", flat, flat)
    expected = np.einsum("ij...,ij->...", matrix, gram.to_dense(frame))
    pairs = outer_pairs(vectors, frame)
    axes = tuple(range(2 * len(frame.sizes)))
    own = gram.one_factor(frame).pairs
    found = np.sum(pairs * own.reshape(own.shape + (1,) * len(batch)), axis=axes)
    assert close(found, expected)


@given(frames(), rngs)
def test_masked_pairs_are_those_of_masked_vectors(frame, rng):
    vectors = rng.normal(size=(*frame.sizes, 2))
    keep = math.prod(np.ix_(*((rng.random(k) < 0.5).astype(float) for k in frame.sizes)), start=np.ones(()))
    expected = outer_pairs(vectors * keep[..., None], frame)
    assert close(masked_pairs(outer_pairs(vectors, frame), keep, frame), expected)
