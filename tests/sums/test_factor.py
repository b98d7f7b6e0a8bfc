"""Factors against their definition, entry by entry."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xspline.sums import digest_key
from xspline.sums.factor import KEY_MODULUS

from .cases import close, dense, frames, random_factor, rngs


def all_axes(frame):
    return tuple(range(len(frame.sizes)))


@given(frames(), rngs, st.sampled_from([(), (2,), (1, 3)]))
def test_dense_is_the_definition(frame, rng, batch):
    factor = random_factor(rng, frame, all_axes(frame), batch)
    assert close(factor.to_dense(frame), dense(factor, frame), 1e-15)


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
