"""Sums apart by holder: without one of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xspline.sums import Factor, Gram, Sums, digest_key, leave_one_out

from .cases import CIRCLE, GLOBAL, LOCAL, Observations, close, frame_of, frames, random_factor, rngs

BATCHES = st.sampled_from([(), (2,), (3, 2)])
FRAME = frame_of((LOCAL, 6, 2), (CIRCLE, 7, 2), (GLOBAL, 3, 0))


def assert_same_data(found: Sums, expected: Sums, frame, tolerance=1e-13) -> None:
    """Equal in what they mean, about one reference."""
    found = found.recentred(expected.reference, frame)
    np.testing.assert_array_equal(found.count, expected.count)
    pairs = [(found.gram.to_dense(frame), expected.gram.to_dense(frame))]
    pairs += [(found.full_moment(frame), expected.full_moment(frame))]
    pairs += [(found.power, expected.power), (found.weight, expected.weight)]
    for mine, theirs in pairs:
        assert close(np.broadcast_to(mine, theirs.shape), theirs, tolerance)
    assert found.tally == expected.tally


@given(frames(most=2), rngs, BATCHES, st.sampled_from([2, 3, 4, 30]))
@settings(max_examples=15)
def test_each_is_the_merge_of_the_others(frame, rng, batch, count):
    parts = [Observations(rng, frame, 4, batch).sums(280.0 + rng.normal()) for _ in range(count)]
    left = leave_one_out(parts, frame)
    assert len(left) == count
    for i, found in enumerate(left):
        assert_same_data(found, Sums.merge([*parts[:i], *parts[i + 1 :]], frame), frame)


def separable(rng, frame, shared: Factor) -> Sums:
    """Sums whose G is one product: a factor that all parts have and one along the first axis."""
    data = Observations(rng, frame, 5)
    own = random_factor(rng, frame, (0,))
    window = ((0, frame.sizes[0]), *shared.window)
    moment = np.zeros([n for _, n in window])
    sums = data.sums(280.0)
    return Sums(window, Gram(((own, shared),)), moment, sums.power, sums.weight, sums.count, sums.reference)


@pytest.mark.parametrize("count", [2, 3, 30])
def test_products_stay_products(count):
    rng = np.random.default_rng(0)
    shared = Factor((1, 2), ((0, 7), (0, 3)), rng.normal(size=(7, 3, 3, 3)), digest_key("shared"))
    left = leave_one_out([separable(rng, FRAME, shared) for _ in range(count)], FRAME)
    assert {sums.gram.partitions for sums in left} == {(((0,), (1, 2)),)}


@pytest.mark.parametrize("batch", [(), (2,)])
def test_nothing_is_left_of_one_part(batch):
    part = Observations(np.random.default_rng(0), FRAME, 4, batch).sums(280.0)
    (left,) = leave_one_out([part], FRAME)
    assert left.digest() == Sums.zero(FRAME, batch).digest()
