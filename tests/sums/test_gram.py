"""Grams against their dense matrices."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from xspline.sums import Gram

from .cases import close, frames, random_gram, rngs

BATCHES = st.sampled_from([(), (2,), (3, 2)])


def product(matrix, v, frame):
    """Dense [P, P, b..] times [K.., b..]."""
    flat = v.reshape(len(matrix), *v.shape[len(frame.sizes) :])
    return np.einsum("ij...,j...->i...", matrix, flat).reshape(
        *frame.sizes, *np.broadcast_shapes(matrix.shape[2:], flat.shape[1:])
    )


@given(frames(), rngs, BATCHES)
def test_matvec_is_the_dense_product(frame, rng, batch):
    gram = random_gram(rng, frame, batch=batch)
    v = rng.normal(size=(*frame.sizes, *batch))
    assert gram.matvec(v, frame).shape == v.shape
    assert close(gram.matvec(v, frame), product(gram.to_dense(frame), v, frame))


@given(frames(), rngs)
def test_a_gram_without_batch_axes_acts_on_every_member(frame, rng):
    gram = random_gram(rng, frame)
    v = rng.normal(size=(*frame.sizes, 2, 3))
    expected = np.stack(
        [np.stack([gram.matvec(v[..., i, j], frame) for j in range(3)], -1) for i in range(2)], -2
    )
    assert close(gram.matvec(v, frame), expected)
    assert close(gram.with_batch_axes(2).matvec(v, frame), expected)


@given(frames(), rngs, BATCHES, st.sampled_from([1, 20, 1000]))
def test_quadratic_forms_by_any_slab(frame, rng, batch, slab):
    gram = random_gram(rng, frame, terms=2, batch=batch)
    for extents in (batch, (1,) * len(batch)):
        v = rng.normal(size=(*frame.sizes, *extents))
        expected = np.sum(v * gram.matvec(v, frame), axis=tuple(range(len(frame.sizes))))
        scale = np.abs(v).max() ** 2 * np.abs(gram.to_dense(frame)).sum()
        np.testing.assert_allclose(gram.form(v, frame, slab), expected, rtol=0, atol=1e-14 * scale)


@given(frames(), rngs, BATCHES)
def test_diagonal_and_image(frame, rng, batch):
    gram = random_gram(rng, frame, batch=batch)
    matrix = gram.to_dense(frame)
    expected = np.moveaxis(np.diagonal(matrix), -1, 0).reshape(gram.diagonal(frame).shape)
    assert close(gram.diagonal(frame), expected)
    offset = tuple(int(rng.integers(o)) for o in frame.offsets)
    assert close(gram.at(offset, frame), gram.one_factor(frame).at(offset))
    vectors = [rng.normal(size=k) for k in frame.sizes]
    outer = np.ones(())
    for vector in vectors:
        outer = np.multiply.outer(outer, vector)
    window = tuple((0, k) for k in frame.sizes)
    v = outer.reshape(*frame.sizes, *(1 for _ in batch))
    assert close(gram.image(vectors, window, frame), product(matrix, v, frame))


@given(frames(), rngs, BATCHES)
def test_one_factor_is_everything_multiplied_out(frame, rng, batch):
    gram = random_gram(rng, frame, batch=batch)
    one = gram.one_factor(frame)
    assert one.window == tuple((0, k) for k in frame.sizes)
    assert one.pairs.shape == (*frame.sizes, *frame.offsets, *gram.batch)
    assert close(Gram(((one,),), len(batch)).to_dense(frame), gram.to_dense(frame))


@given(frames(), rngs, BATCHES)
def test_round_trip_through_arrays(frame, rng, batch):
    gram = random_gram(rng, frame, batch=batch)
    arrays, meta = gram.to_arrays()
    again = Gram.from_arrays({**arrays, "other": np.zeros(3)}, meta)
    assert again.equals(gram)
    assert gram.equals(again)
    assert again.nbytes == gram.nbytes == sum(array.nbytes for array in arrays.values())
    assert again.partitions == gram.partitions
