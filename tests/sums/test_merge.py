"""Merging Grams: the laws of +, what collapses to one term, and when a list is multiplied out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from xspline.sums import Gram, digest_key
from xspline.sums.factor import KEY_MODULUS
from xspline.sums.window import add_into, embed, take, union

from .cases import (
    CIRCLE,
    GLOBAL,
    LOCAL,
    close,
    dense,
    frame_of,
    frames,
    partitions,
    random_factor,
    random_gram,
    rngs,
)

BATCHES = st.sampled_from([(), (2,), (3, 2)])
FRAME = frame_of((LOCAL, 9, 3), (CIRCLE, 8, 2), (GLOBAL, 3, 0))


def total(grams, frame):
    return sum(gram.to_dense(frame) for gram in grams)


@given(frames(), rngs, BATCHES, st.integers(1, 4))
def test_the_merge_is_the_sum(frame, rng, batch, count):
    grams = [random_gram(rng, frame, batch=batch) for _ in range(count)]
    assert close(Gram.merge(grams, frame).to_dense(frame), total(grams, frame))


@given(frames(), rngs, BATCHES)
def test_associative_commutative_with_zero(frame, rng, batch):
    a, b, c = (random_gram(rng, frame, batch=batch) for _ in range(3))
    zero = Gram((), len(batch))
    expected = Gram.merge([a, b, c], frame).to_dense(frame)
    nested = [
        Gram.merge([Gram.merge([a, b], frame), c], frame),
        Gram.merge([a, Gram.merge([b, c], frame)], frame),
    ]
    for other in [*nested, Gram.merge([c, zero, a, b], frame)]:
        assert close(other.to_dense(frame), expected)
    assert Gram.merge([zero, zero], frame).terms == ()
    alone = Gram.merge([a], frame)
    assert alone.equals(Gram.merge([zero, a], frame))
    assert Gram.merge([alone, zero], frame).equals(alone)


@given(frames(), rngs, BATCHES)
def test_no_list_is_longer_than_the_pair_form(frame, rng, batch):
    assume(min(frame.sizes) > 1)  # factors of one number each are as long as their product
    merged = Gram.merge([random_gram(rng, frame, batch=batch) for _ in range(4)], frame)
    if len(merged.terms) > 1:
        assert merged.nbytes <= merged.one_factor(frame).nbytes


# Complementary blocks of a grid


def blocks_of_a_grid(rng, frame, partition, counts):
    """Each group of axes is cut into pieces; a block is one piece of each group: {multi-index: Gram}."""
    pieces = [
        [random_factor(rng, frame, axes) for _ in range(count)]
        for axes, count in zip(partition, counts, strict=True)
    ]
    return {
        index: Gram((tuple(group[i] for group, i in zip(pieces, index, strict=True)),))
        for index in itertools.product(*(range(n) for n in counts))
    }


def merged_in_rectangles(rng, blocks, frame):
    """Merge a box of blocks by cutting it in two along a random axis, down to single blocks."""
    if len(blocks) == 1:
        return next(iter(blocks.values()))
    sides = [sorted({index[axis] for index in blocks}) for axis in range(len(next(iter(blocks))))]
    axis = int(rng.choice([a for a, side in enumerate(sides) if len(side) > 1]))
    cut = sides[axis][int(rng.integers(1, len(sides[axis])))]
    halves = [{i: g for i, g in blocks.items() if (i[axis] < cut) == low} for low in (True, False)]
    return Gram.merge([merged_in_rectangles(rng, half, frame) for half in halves], frame)


@pytest.mark.parametrize("partition", [[(0,), (1,), (2,)], [(0, 1), (2,)], [(1,), (0, 2)]])
@given(rng=rngs)
def test_complementary_blocks_are_one_term_in_any_order(partition, rng):
    counts = rng.integers(1, 4, size=len(partition))
    blocks = blocks_of_a_grid(rng, FRAME, partition, counts)
    order = [list(blocks.values())[i] for i in rng.permutation(len(blocks))]
    together = Gram.merge(order, FRAME)
    assert partitions(together) == (tuple(sorted(partition)),)
    expected = total(order, FRAME)
    assert close(together.to_dense(FRAME), expected)
    tree = merged_in_rectangles(rng, blocks, FRAME)
    assert [f.key for f in tree.terms[0]] == [f.key for f in together.terms[0]]
    assert len(tree.terms) == 1
    assert close(tree.to_dense(FRAME), expected)


@given(rngs)
def test_a_static_mask_whose_time_differs_between_two_regions_is_two_terms(rng):
    frame = frame_of((LOCAL, 30, 3), (LOCAL, 30, 3), (LOCAL, 40, 3))
    west, east = (random_factor(rng, frame, (0, 1)) for _ in range(2))
    months = [random_factor(rng, frame, (2,)) for _ in range(6)]
    # The east lacks the last month.
    blocks = [Gram(((west, month),)) for month in months] + [Gram(((east, month),)) for month in months[:-1]]
    merged = Gram.merge([blocks[i] for i in rng.permutation(len(blocks))], frame)
    assert partitions(merged) == (((0, 1), (2,)),) * 2


# Multiplying out


def test_a_list_is_multiplied_out_when_that_is_smaller():
    rng, frame = np.random.default_rng(0), frame_of((LOCAL, 12, 3), (LOCAL, 12, 3))
    pair = 8 * 12 * 12 * 16
    grams = [Gram((tuple(whole(rng, frame, (axis,)) for axis in (0, 1)),)) for _ in range(30)]
    each = grams[0].nbytes
    few = pair // each
    assert len(Gram.merge(grams[:few], frame).terms) == few
    more = Gram.merge(grams[: few + 1], frame)
    assert partitions(more) == (((0, 1),),)
    assert more.nbytes == pair
    assert close(more.to_dense(frame), total(grams[: few + 1], frame))


def whole(rng, frame, axes):
    """A random factor over all coefficients."""
    factor = random_factor(rng, frame, axes)
    while factor.window != tuple((0, frame.sizes[a]) for a in axes):
        factor = random_factor(rng, frame, axes)
    return factor


@given(rngs)
def test_the_key_of_a_product_does_not_depend_on_when_it_was_multiplied_out(rng):
    frame = frame_of((LOCAL, 4, 1), (CIRCLE, 5, 1))
    blocks = list(blocks_of_a_grid(rng, frame, [(0,), (1,)], (2, 3)).values())
    first = Gram.merge(blocks, frame).one_factor(frame)
    second = Gram.merge([Gram(((block.one_factor(frame),),)) for block in reversed(blocks)], frame)
    assert first.key == second.terms[0][0].key
    assert close(first.pairs, second.terms[0][0].pairs)


# --- factors against their definition


@given(frames(), rngs, st.sampled_from([(), (2,), (1, 3)]))
def test_dense_is_the_definition(frame, rng, batch):
    factor = random_factor(rng, frame, range(len(frame.sizes)), batch)
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


# --- windows


def members(span: tuple[int, int], size: int) -> set[int]:
    return {(span[0] + i) % size for i in range(span[1])}


@st.composite
def arcs(draw: st.DrawFn, periodic: bool) -> tuple[int, list[tuple[int, int]]]:
    size = draw(st.integers(1, 9))
    spans = []
    for _ in range(draw(st.integers(1, 4))):
        length = draw(st.integers(1, size))
        last = size - 1 if periodic else size - length
        spans.append((0 if length == size else draw(st.integers(0, last)), length))
    return size, spans


@given(arcs(periodic=True))
def test_union_on_a_circle_is_the_shortest_arc_with_the_lowest_start(case):
    size, spans = case
    wanted = set().union(*(members(span, size) for span in spans))
    covering = [
        (length, start)
        for length in range(1, size + 1)
        for start in range(size if length < size else 1)
        if wanted <= members((start, length), size)
    ]
    length, start = min(covering)
    assert union([(span,) for span in spans], [size], [True]) == ((start, length),)


@given(arcs(periodic=False))
def test_union_on_a_line_is_the_hull(case):
    size, spans = case
    wanted = set().union(*(members(span, size) for span in spans))
    expected = (min(wanted), max(wanted) - min(wanted) + 1)
    assert union([(span,) for span in spans], [size], [False]) == (expected,)


@given(arcs(periodic=True))
def test_what_is_embedded_is_taken_back(case):
    size, spans = case
    inner = spans[0]
    array = np.arange(1.0, inner[1] + 1)[:, None] * [1.0, 10.0]
    full = embed(array, (inner,), [size])
    assert set(np.flatnonzero(full[:, 0])) == members(inner, size)
    np.testing.assert_array_equal(take(full, (inner,), [size]), array)
    outer = union([(span,) for span in spans], [size], [True])
    out = np.zeros((outer[0][1], 2))
    add_into(out, outer, array, (inner,), [size])
    np.testing.assert_array_equal(embed(out, outer, [size]), full)
