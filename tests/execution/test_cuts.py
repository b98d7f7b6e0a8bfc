"""Cuts, regions, reads and trees are arithmetic: they cover everything once and stay within their budgets."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xspline.execution import LIMITS
from xspline.execution.cuts import Cuts, fan_in, grouped, groups, levels, read_shape, regions, step_edges

axes = st.lists(st.tuples(st.integers(1, 400), st.integers(1, 90)), min_size=1, max_size=4)


@given(axes, st.sampled_from([1, 4, 8]), st.data())
def test_regions_are_whole_chunks_and_cover_the_array(sizes, itemsize, data) -> None:  # type: ignore[no-untyped-def]
    shape, chunk = zip(*sizes, strict=True)
    batch = data.draw(st.sets(st.integers(0, len(shape) - 1)))
    cuts = regions(shape, chunk, itemsize, sorted(batch))
    assert math.prod(cuts.blocks) <= LIMITS.leaves_for(math.prod(shape) * itemsize // LIMITS.region_bytes)
    for edges, n, c in zip(cuts.edges, shape, chunk, strict=True):
        assert edges[0] == 0
        assert edges[-1] == n
        assert all(a < b for a, b in itertools.pairwise(edges))
        assert all(e % min(c, n) == 0 for e in edges[:-1])


def test_ten_thousand_chunks_make_some_tens_of_regions() -> None:
    cuts = regions((10_000, 720, 1440), (1, 720, 1440), 4, ())
    assert 24 <= math.prod(cuts.blocks) <= LIMITS.regions
    lengths = cuts.chunks[0]
    assert max(lengths) - min(lengths) <= 1
    assert cuts.blocks[1:] == (1, 1)


def test_a_million_chunks_make_no_more() -> None:
    assert math.prod(regions((10_000, 1000, 1000), (100, 10, 10), 4, ()).blocks) <= LIMITS.regions


def test_a_small_array_is_one_region() -> None:
    assert regions((100, 100), (1, 100), 4, ()).blocks == (1, 1)


def test_batch_axes_are_cut_first() -> None:
    cuts = regions((1000, 960, 960), (100, 60, 60), 4, (1, 2))
    assert cuts.blocks[0] == 1
    assert math.prod(cuts.blocks) > 24


def test_regions_beyond_some_tens_have_a_gigabyte() -> None:
    shape = (100_000, 720, 1440)
    gigabytes = math.prod(shape) * 4 / LIMITS.region_bytes
    assert 0.8 <= math.prod(regions(shape, (1, 720, 1440), 4, ()).blocks) / gigabytes <= 1
    assert 800 < math.prod(regions((10**6, 720, 1440), (10, 720, 1440), 4, ()).blocks) <= LIMITS.leaves


lengths = st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=60), min_size=1, max_size=3)


@given(lengths, st.sampled_from([1, 4, 10**6]))
def test_groups_are_whole_blocks_few_and_large(lengths, itemsize) -> None:  # type: ignore[no-untyped-def]
    blocks = Cuts.of_chunks(lengths)
    joined = grouped(blocks, itemsize, ())
    for edges, whole in zip(blocks.edges, joined.edges, strict=True):
        assert set(whole) <= set(edges)
        assert (whole[0], whole[-1]) == (edges[0], edges[-1])
    nbytes, count = itemsize * math.prod(map(sum, lengths)), math.prod(joined.blocks)
    assert count <= max(LIMITS.regions, -(-nbytes // LIMITS.group_bytes))
    assert joined == blocks or count < math.prod(blocks.blocks)


def test_large_blocks_stay_alone_up_to_a_thousand() -> None:
    large = Cuts.of_chunks([[10] * 1000, [1440 * 720]])
    assert grouped(large, 8, ()) == large
    more = Cuts.of_chunks([[10] * 5000, [1440 * 720]])
    assert 512 < math.prod(grouped(more, 8, ()).blocks) <= LIMITS.leaves


def test_the_block_that_holds_a_place() -> None:
    cuts = Cuts(((0, 3, 7), (0, 2)))
    assert [cuts.containing((i, 1))[0] for i in range(7)] == [0, 0, 0, 1, 1, 1, 1]


def test_regions_without_known_chunks() -> None:
    cuts = regions((10_000, 720, 1440), None, 4, ())
    assert 24 <= math.prod(cuts.blocks) <= LIMITS.regions
    assert cuts.edges[0][-1] == 10_000


@given(axes, st.sampled_from([1, 4, 8]), st.booleans())
def test_reads_are_whole_chunks_within_the_budget(sizes, itemsize, known) -> None:  # type: ignore[no-untyped-def]
    shape, chunk = zip(*sizes, strict=True)
    read = read_shape(shape, chunk if known else None, itemsize)
    chunk_bytes = math.prod(min(c, n) for c, n in sizes) * itemsize if known else itemsize
    assert math.prod(read) * itemsize <= max(chunk_bytes, LIMITS.read_bytes)
    assert all(r == n or not known or r % min(c, n) == 0 for r, (n, c) in zip(read, sizes, strict=True))


def test_small_chunks_are_read_together_inner_axes_first() -> None:
    assert read_shape((1000, 720, 1440), (1, 90, 90), 4) == (2, 720, 1440)
    assert read_shape((1000, 7200, 14400), (1, 900, 900), 4) == (1, 900, 1800)
    assert read_shape((1000, 7200, 14400), (10, 7200, 14400), 4) == (10, 7200, 14400)


def overlapping(blocks: Sequence[int], nbytes: int) -> Callable[[tuple[int, ...]], int]:
    """Bytes of all sums whose windows are all one."""
    return lambda f: nbytes * math.prod(-(-n // k) for n, k in zip(blocks, f, strict=True))


@given(st.lists(st.integers(1, 15), min_size=1, max_size=3), st.integers(1, 10**8), st.data())
def test_a_tree_merges_every_block_once(blocks, nbytes, data) -> None:  # type: ignore[no-untyped-def]
    consumed = sorted(data.draw(st.sets(st.integers(0, len(blocks) - 1))))
    left = {index: {index} for index in itertools.product(*map(range, blocks))}
    for step in levels(blocks, consumed, lambda f: nbytes, overlapping(blocks, nbytes)):
        assert 2 <= math.prod(step) <= max(LIMITS.root_ratio, fan_in(nbytes))
        shape = [1 + max(i) for i in zip(*left, strict=True)]
        merged = {i: set().union(*(left[m] for m in members)) for i, members in groups(shape, step)}
        assert sum(map(len, merged.values())) == sum(map(len, left.values()))
        left = merged
    assert len(left) == math.prod(n for axis, n in enumerate(blocks) if axis not in consumed)


def test_ten_thousand_blocks_make_few_merges() -> None:
    left, total = [100, 10, 10], 0
    for step in levels(left, (0, 1, 2), lambda f: 1000, overlapping(left, 1000)):
        assert math.prod(step) <= LIMITS.fan_in
        left = [-(-n // f) for n, f in zip(left, step, strict=True)]
        total += math.prod(left)
    assert total < 1000


def test_sums_that_hardly_overlap_are_merged_at_the_root() -> None:
    def total(factors: tuple[int, ...]) -> int:  # windows of 10 cells and three more coefficients
        return 8 * math.prod(
            n * (10 * f + 3) for n, f in zip((40 // factors[0], 5), (factors[0], 1), strict=True)
        )

    assert levels((40, 1), (0,), lambda f: 2**20, total) == ((40, 1),)


def test_the_axis_whose_windows_overlap_most_is_merged_first() -> None:
    def total(factors: tuple[int, ...]) -> int:  # along the first axis all windows are chunk_bytes
        along = [-(-n // f) for n, f in zip((16, 16), factors, strict=True)]
        return along[0] * along[1] * (factors[1] + 3)

    assert levels((16, 16), (0, 1), lambda f: 2**20, total) == ((16, 1), (1, 16))


@pytest.mark.parametrize(("nbytes", "expected"), [(0, 16), (2**20, 16), (2**21, 8), (2**30, 2)])
def test_fan_in_follows_a_byte_budget(nbytes: int, expected: int) -> None:
    assert fan_in(nbytes) == expected


def test_bounds_begin_and_end_with_the_range() -> None:
    assert step_edges(3, 3, 10) == (3, 6, 9, 10)
    assert Cuts.of_chunks(((2, 3), (4,))).box((1, 0)) == (slice(2, 5), slice(0, 4))
