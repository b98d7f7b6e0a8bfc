"""Cuts, regions, reads and trees are arithmetic: they cover everything once and stay within their budgets."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from xspline.execution import LIMITS
from xspline.execution.cuts import Cuts, fan_in, grouped, groups, levels, read_shape, regions

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


@given(axes, st.sampled_from([1, 4, 8]), st.booleans())
def test_reads_are_whole_chunks_within_the_budget(sizes, itemsize, known) -> None:  # type: ignore[no-untyped-def]
    shape, chunk = zip(*sizes, strict=True)
    read = read_shape(shape, chunk if known else None, itemsize)
    chunk_bytes = math.prod(min(c, n) for c, n in sizes) * itemsize if known else itemsize
    assert math.prod(read) * itemsize <= max(chunk_bytes, LIMITS.read_bytes)
    assert all(r == n or not known or r % min(c, n) == 0 for r, (n, c) in zip(read, sizes, strict=True))


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
