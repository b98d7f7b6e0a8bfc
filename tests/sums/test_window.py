"""Windows against sets of coefficients."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from xspline.sums.window import add_into, embed, take, union


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
