"""Factors against their definition, entry by entry."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xspline.sums import Factor, digest_key, masked_pairs, outer_pairs
from xspline.sums.factor import KEY_MODULUS, multiply_factors
from xspline.sums.terms import add_products
from xspline.sums.window import embed, take

from .cases import LOCAL, axes, close, dense, frame_of, frames, random_factor, random_gram, rngs


def all_axes(frame):
    return tuple(range(len(frame.sizes)))


def matvec(factor, v, frame):
    """Product with vectors over all coefficients of the factor's axes, which come first."""
    sizes = factor.sizes(frame)
    product = factor.apply(take(v, factor.window, sizes), frame, range(len(sizes)))
    return embed(product, factor.window, sizes)


@given(frames(), rngs, st.sampled_from([(), (2,), (1, 3)]))
def test_dense_is_the_definition(frame, rng, batch):
    factor = random_factor(rng, frame, all_axes(frame), batch)
    assert close(factor.to_dense(frame), dense(factor, frame), 1e-15)


@given(frames(), rngs, st.sampled_from([(), (2,), (1, 3)]), st.sampled_from([(), (4,)]))
def test_matvec_is_the_dense_product(frame, rng, batch, rest):
    factor = random_factor(rng, frame, all_axes(frame), batch)
    v = rng.normal(size=(*frame.sizes, *rest, *(3 if n == 3 else 2 for n in batch)))
    matrix, d = factor.to_dense(frame), len(frame.sizes)
    letters = "abcdefghijklmnop"
    rows, columns, tail = letters[:d], letters[d : 2 * d], "z"[: len(rest)]
    batches = "xy"[: len(batch)]
    expected = np.einsum(
        f"{rows}{columns}{batches},{columns}{tail}{batches}->{rows}{tail}{batches}",
        np.broadcast_to(matrix, (*matrix.shape[: 2 * d], *v.shape[d + len(rest) :])),
        v,
    )
    assert close(matvec(factor, v, frame), expected)


@given(frames(), rngs)
def test_diagonal_and_symmetry(frame, rng):
    factor = random_factor(rng, frame, all_axes(frame)).full(frame)
    size = int(np.prod(frame.sizes))
    matrix = factor.to_dense(frame).reshape(size, size)
    np.testing.assert_array_equal(matrix, matrix.T)
    np.testing.assert_array_equal(np.diag(matrix), factor.diagonal().ravel())


@given(frames(), rngs)
def test_sum_is_the_sum_of_matrices_and_of_keys(frame, rng):
    a, b = (random_factor(rng, frame, all_axes(frame), batch) for batch in [(1,), (2,)])
    total = add_products([(a,), (b,)], frame)
    assert close(total.to_dense(frame), a.to_dense(frame) + b.to_dense(frame), 1e-15)
    assert total.key == (a.key + b.key) % KEY_MODULUS == add_products([(b,), (a,)], frame).key
    assert total.window == add_products([(b,), (a,)], frame).window


@given(axes(), axes(), rngs)
def test_product_is_the_outer_product(first, second, rng):
    frame = frame_of(first, second)
    a, b = (random_factor(rng, frame, (axis,), (2,)) for axis in (0, 1))
    c = Factor((), (), rng.normal(size=2), 5)
    product = multiply_factors((b, c, a))
    expected = np.einsum("ijz,klz,z->ikjlz", a.to_dense(frame), b.to_dense(frame), c.pairs)
    assert close(product.to_dense(frame), expected)
    assert product.key == a.key * b.key * 5 % KEY_MODULUS


def test_scaling_keeps_equal_keys_equal():
    frame = frame_of((LOCAL, 4, 2))
    factor = random_factor(np.random.default_rng(0), frame, (0,))
    twice = factor.scaled(2.0)
    np.testing.assert_array_equal(twice.pairs, 2 * factor.pairs)
    assert twice.key == factor.scaled(2).key
    assert len({factor.key, twice.key, factor.scaled(-2.0).key}) == 3
    assert (
        add_products([(factor,), (factor,)], frame).scaled(3.0).key
        == add_products([(factor.scaled(3.0),), (factor.scaled(3.0),)], frame).key
    )


def test_digest_key_sees_contents_type_and_boundaries():
    x = np.arange(6.0)
    assert digest_key(x) == digest_key(x.copy()) == digest_key(x[::-1][::-1]) == digest_key(x.astype(">f8"))
    keys = [
        digest_key(*parts) for parts in [(x,), (x.reshape(2, 3),), (x.astype("f4"),), ("a", "b"), ("ab",)]
    ]
    keys += [digest_key(b"ab"), digest_key("a", "b", x), digest_key()]
    assert len(set(keys)) == len(keys)
    assert all(0 <= key < KEY_MODULUS for key in keys)
    with pytest.raises(TypeError, match="Python objects; pass numbers, text or bytes"):
        digest_key(np.array([object()]))


# --- pair form: the adjoint of pair arrays


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
