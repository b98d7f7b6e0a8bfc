"""Factors against their definition, entry by entry."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xspline.sums import Factor, digest_key
from xspline.sums.factor import KEY_MODULUS, multiply_factors

from .cases import CIRCLE, GLOBAL, LOCAL, axes, close, dense, frame_of, frames, random_factor, rngs


def all_axes(frame):
    return tuple(range(len(frame.sizes)))


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
    assert close(factor.matvec(v, frame), expected)


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
    total = a.add(b, frame)
    assert close(total.to_dense(frame), a.to_dense(frame) + b.to_dense(frame), 1e-15)
    assert total.key == (a.key + b.key) % KEY_MODULUS == b.add(a, frame).key
    assert total.window == b.add(a, frame).window


@given(axes(), axes(), rngs)
def test_product_is_the_outer_product(first, second, rng):
    frame = frame_of(first, second)
    a, b = (random_factor(rng, frame, (axis,), (2,)) for axis in (0, 1))
    c = Factor((), (), rng.normal(size=2), 5)
    product = multiply_factors((b, c, a))
    expected = np.einsum("ijz,klz,z->ikjlz", a.to_dense(frame), b.to_dense(frame), c.pairs)
    assert close(product.to_dense(frame), expected)
    assert product.key == a.key * b.key * 5 % KEY_MODULUS


def test_a_pair_that_occurs_twice_is_added():
    # On a circle of 3 coefficients {0, 2} would be both (0, 2) and (2, 0): the frame calls such an axis
    # global, and there it has one name. Blocks that hold the same pair add.
    frame = frame_of((GLOBAL, 3, 0))
    pairs = np.ones((3, 3)) * (np.add.outer(range(3), range(3)) < 3)
    factor = Factor((0,), ((0, 3),), pairs, 1)
    np.testing.assert_array_equal(factor.to_dense(frame), np.ones((3, 3)))
    np.testing.assert_array_equal(factor.add(factor, frame).to_dense(frame), np.full((3, 3), 2.0))


def test_pairs_past_the_end_of_the_axis_are_ignored():
    frame = frame_of((LOCAL, 4, 2))
    factor = Factor((0,), ((0, 4),), np.ones((4, 3)), 1)
    v = np.array([1.0, 10.0, 100.0, 1000.0])
    expected = (np.abs(np.subtract.outer(range(4), range(4))) <= 2).astype(float)
    np.testing.assert_array_equal(factor.to_dense(frame), expected)
    np.testing.assert_array_equal(factor.matvec(v, frame), expected @ v)


def test_pairs_go_around_a_circle():
    frame = frame_of((CIRCLE, 5, 1))
    factor = Factor((0,), ((0, 5),), np.arange(10.0).reshape(5, 2), 1)
    matrix = factor.to_dense(frame)
    assert matrix[4, 0] == matrix[0, 4] == 9.0
    np.testing.assert_array_equal(factor.matvec(np.eye(5), frame), matrix)


def test_scaling_keeps_equal_keys_equal():
    frame = frame_of((LOCAL, 4, 2))
    factor = random_factor(np.random.default_rng(0), frame, (0,))
    twice = factor.scaled(2.0)
    np.testing.assert_array_equal(twice.pairs, 2 * factor.pairs)
    assert twice.key == factor.scaled(2).key
    assert len({factor.key, twice.key, factor.scaled(-2.0).key}) == 3
    assert factor.add(factor, frame).scaled(3.0).key == factor.scaled(3.0).add(factor.scaled(3.0), frame).key


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


def test_errors():
    pairs = np.zeros((3, 2))
    with pytest.raises(ValueError, match=r"axes of a factor must ascend, got \(1, 0\)"):
        Factor((1, 0), ((0, 3), (0, 2)), np.zeros((3, 2, 1, 1)), 0)
    with pytest.raises(ValueError, match="needs 2 windows and at least 4 dimensions of pairs, got 1 and 2"):
        Factor((0, 1), ((0, 3),), pairs, 0)
    with pytest.raises(ValueError, match=r"pairs of shape \(3, 2\) do not fit the window \(\(0, 4\),\)"):
        Factor((0,), ((0, 4),), pairs, 0)
    frame = frame_of((LOCAL, 3, 1), (LOCAL, 3, 1))
    a, b = Factor((0,), ((0, 3),), pairs, 0), Factor((1,), ((0, 3),), pairs, 0)
    with pytest.raises(ValueError, match=r"factors over the axes \(0,\) and \(1,\) cannot be added"):
        a.add(b, frame)
    with pytest.raises(ValueError, match="a factor with 1 batch axes cannot get 2"):
        a.with_batch_axes(1).with_batch_axes(2)
    with pytest.raises(ValueError, match="a product needs at least one factor"):
        multiply_factors([])
