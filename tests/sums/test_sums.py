"""Sums against the dense Φ, W and y of the observations that they are sums of."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xspline.spaces import Frame
from xspline.sums import Gram, Sums, Tally

from .cases import CIRCLE, GLOBAL, LOCAL, Observations, close, frame_of, frames, rngs

BATCHES = st.sampled_from([(), (2,), (3, 2)])
FRAME = frame_of((LOCAL, 6, 2), (CIRCLE, 7, 2), (GLOBAL, 3, 0))


def same_contents(a: Sums, b: Sums) -> bool:
    (mine, about), (theirs, about_other) = a.to_arrays(), b.to_arrays()
    return about == about_other and all(np.array_equal(mine[k], theirs[k]) for k in mine)


def check(sums: Sums, data: Observations, rng: np.random.Generator) -> None:
    """Everything that sums say about data, at their reference."""
    frame, r = data.frame, np.ravel(sums.reference)[0]
    p = int(np.prod(frame.sizes))
    matrix = np.einsum("ni,n...,nj->ij...", data.phi, data.w, data.phi)
    assert close(np.broadcast_to(sums.gram.to_dense(frame), matrix.shape), matrix)
    assert close(sums.full_moment(frame), data.moment(r))
    np.testing.assert_array_equal(np.broadcast_to(sums.count, data.y.shape[1:]), count_of(data))
    c = rng.normal(size=(p, *data.y.shape[1:])).reshape(*frame.sizes, *data.y.shape[1:])
    e = np.ones(())
    for vector in frame.constant:
        e = np.multiply.outer(e, vector)
    field = c + r * e.reshape(*frame.sizes, *(1 for _ in data.y.shape[1:]))
    assert close(sums.centred(field, frame), c)
    assert close(sums.rss(c, frame), data.rss(field), 1e-11)


def count_of(data: Observations) -> np.ndarray:
    return np.broadcast_to(np.sum(data.w > 0, axis=0), data.y.shape[1:])


def pooled(parts: list[Observations]) -> Observations:
    one = object.__new__(Observations)
    one.frame = parts[0].frame
    one.designs = [np.concatenate(rows) for rows in zip(*(part.designs for part in parts), strict=True)]
    one.y = np.concatenate([part.y for part in parts])
    one.w = np.concatenate([np.broadcast_to(part.w, part.y.shape) for part in parts])
    return one


@given(frames(), rngs, BATCHES)
def test_the_sums_of_a_block_are_those_of_its_data(frame, rng, batch):
    data = Observations(rng, frame, 6, batch)
    check(data.sums(279.5), data, rng)


@given(frames(), rngs, BATCHES)
def test_moving_the_reference_gives_the_sums_at_the_new_one(frame, rng, batch):
    data = Observations(rng, frame, 6, batch)
    moved, direct = data.sums(279.0).recentred(np.full((1,) * len(batch), 281.5), frame), data.sums(281.5)
    assert close(moved.full_moment(frame), direct.full_moment(frame))
    assert close(moved.power, direct.power)
    assert moved.window == direct.window
    check(moved, data, rng)


@given(rngs)
def test_the_reference_may_differ_between_members(rng):
    data = Observations(rng, FRAME, 8, (3,))
    moved = data.sums(279.0).recentred([278.0, 280.0, 285.0], FRAME)
    for member, r in enumerate([278.0, 280.0, 285.0]):
        direct = data.sums(r)
        assert close(moved.full_moment(FRAME)[..., member], direct.full_moment(FRAME)[..., member])
        assert close(moved.power[member], direct.power[member])


@given(frames(), rngs, BATCHES, st.integers(1, 4))
def test_merge_is_pooled(frame, rng, batch, count):
    parts = [Observations(rng, frame, 5, batch) for _ in range(count)]
    check(Sums.merge([part.sums(270.0 + 3 * i) for i, part in enumerate(parts)], frame), pooled(parts), rng)


@given(frames(), rngs, BATCHES)
def test_merge_is_associative_and_commutative(frame, rng, batch):
    parts = [Observations(rng, frame, 5, batch) for _ in range(3)]
    a, b, c = (part.sums(270.0 + 5 * i) for i, part in enumerate(parts))
    for merged in [
        Sums.merge([Sums.merge([a, b], frame), c], frame),
        Sums.merge([a, Sums.merge([b, c], frame)], frame),
        Sums.merge([c, a, b], frame),
    ]:
        check(merged, pooled(parts), rng)


@given(frames(), rngs, BATCHES)
def test_zero_is_the_identity(frame, rng, batch):
    part, zero = Observations(rng, frame, 5, batch).sums(280.0), Sums.zero(frame, batch)
    for merged in [Sums.merge([zero, part, zero], frame), Sums.merge([part, zero], frame)]:
        assert merged.window == part.window
        assert merged.gram.equals(part.gram)
        assert close(merged.moment, part.moment, 0.0)
        assert np.all(merged.power == part.power)
        assert np.all(merged.reference == (280.0 if part.has_weight else merged.reference))
    nothing = Sums.merge([zero, zero], frame)
    assert same_contents(nothing, zero)
    assert nothing.full_moment(frame).shape == (*frame.sizes, *batch)


def test_a_part_without_weight_does_not_decide_the_reference():
    rng = np.random.default_rng(1)
    data, empty = Observations(rng, FRAME, 9), Observations(rng, FRAME, 4)
    empty.w[:] = 0
    merged = Sums.merge([empty.sums(0.0), data.sums(280.0)], FRAME)
    assert merged.reference == 280.0
    check(merged, data, rng)


def test_centred_sums_keep_the_digits_that_others_lose():
    rng = np.random.default_rng(0)
    parts = [Observations(rng, FRAME, 40, level=1e6) for _ in range(8)]
    data = pooled(parts)
    field = np.full(FRAME.sizes, 0.0)
    field[:, :, 0] = 1e6
    truth = np.sum(data.w * (data.y - 1e6) ** 2)
    centred = Sums.merge([part.sums(float(np.float32(part.y[0]))) for part in parts], FRAME)
    c = np.zeros(FRAME.sizes)
    c[:, :, 0] = 1e6 - centred.reference
    assert abs(centred.rss(c, FRAME) / truth - 1) < 1e-13
    raw = Sums.merge([part.sums(0.0) for part in parts], FRAME)
    assert abs(raw.rss(field, FRAME) / truth - 1) > 1e-9


def test_a_space_without_the_constant_keeps_the_reference_zero():
    frame = Frame(FRAME.sizes, FRAME.offsets, FRAME.periodic, (*FRAME.constant[:2], np.zeros(3)))
    data = Observations(np.random.default_rng(0), frame, 8)
    merged = Sums.merge([data.sums(0.0), data.sums(0.0)], frame)
    assert merged.reference == 0.0
    with pytest.raises(ValueError, match=r"must be 0, not 280\.0; accumulate the data with reference 0"):
        Sums.merge([data.sums(280.0)], frame)
    with pytest.raises(ValueError, match=r"does not contain the constant function.*not 3\.0"):
        data.sums(0.0).recentred(3.0, frame)


@given(frames(), rngs, st.integers(0, 1))
def test_concatenated_blocks_are_the_blocks_of_all_members(frame, rng, axis):
    sizes = [2, 1, 3]
    parts = [Observations(rng, frame, 5, (n, 2) if axis == 0 else (2, n)) for n in sizes]
    blocks = [part.sums(280.0 + i) for i, part in enumerate(parts)]
    joined = Sums.concatenate(blocks, axis, frame)
    assert joined.batch == ((6, 2) if axis == 0 else (2, 6))
    for part, start, size in zip(parts, [0, 2, 3], sizes, strict=True):
        cut = (slice(None),) * axis + (slice(start, start + size),)
        moved = joined.recentred(np.full((1, 1), 275.0), frame)
        expected = np.broadcast_to(part.moment(275.0), (*frame.sizes, *part.y.shape[1:]))
        assert close(
            moved.full_moment(frame)[(..., *cut) if axis else (..., *cut, slice(None))], expected, 1e-11
        )
        assert np.all(joined.count[cut] == count_of(part))


@given(frames(), rngs, BATCHES)
def test_round_trip_and_digest(frame, rng, batch):
    sums = Observations(rng, frame, 5, batch).sums(280.0)
    sums = Sums(**{**vars(sums), "tally": Tally(1, 2, (3, 4), None)})
    arrays, meta = sums.to_arrays()
    again = Sums.from_arrays(arrays, json.loads(json.dumps(meta)))
    assert same_contents(again, sums)
    assert again.tally == sums.tally
    assert again.digest() == sums.digest()
    assert sums.nbytes == sum(array.nbytes for array in arrays.values())
    assert all(array.dtype.kind in "fi" for array in arrays.values())


def test_the_digest_sees_every_field():
    sums = Observations(np.random.default_rng(0), FRAME, 5).sums(280.0)
    fields = vars(sums)
    changed = {
        "gram": Gram(()),
        "moment": np.nextafter(sums.moment, 1e9),
        "power": sums.power + 1,
        "weight": sums.weight + 1,
        "count": sums.count + 1,
        "reference": sums.reference + 1,
        "tally": Tally(missing=1),
    }
    digests = {Sums(**{**fields, name: value}).digest() for name, value in changed.items()}
    assert len(digests | {sums.digest()}) == len(changed) + 1
    assert len(sums.digest()) == 64


def test_merged_tallies_add_counts_and_keep_the_first_places():
    a, b = Tally(1, 2, (0, 5), None), Tally(3, 4, (0, 4), (7, 7))
    assert Tally.merge([a, b]) == Tally.merge([b, a]) == Tally(4, 6, (0, 4), (7, 7))
    assert Tally.merge([]) == Tally()
    nowhere = Tally(3, unlabelled=2)
    assert Tally.merge([a, nowhere]) == Tally(4, 2, (0, 5), None, 2)
    assert Tally.from_dict(nowhere.to_dict()) == nowhere and Tally.from_dict(a.to_dict()) == a
    assert "unlabelled" not in a.to_dict()  # so that digests of files that never counted them hold
    assert Tally.from_dict(json.loads(json.dumps(a.to_dict()))) == a
    parts = [Sums(**{**vars(Sums.zero(FRAME)), "tally": tally}) for tally in (a, b)]
    assert Sums.merge(parts, FRAME).tally == Tally(4, 6, (0, 4), (7, 7))
