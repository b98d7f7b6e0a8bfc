"""What travels between tasks: partial sums are merged where that moves fewest bytes, and the plan says how many."""

from __future__ import annotations

from typing import Any

import pytest
from dask.callbacks import Callback

from tests.execution.cases import GRID, SPACE, Array, chunked, grid, limits, positions, values
from xspline.execution import LIMITS, Limits, Source, lazy_sums, plan
from xspline.kernels import Group, Layout
from xspline.spaces import BSpline, Fourier, Space
from xspline.sums import HolderSums, Sums

FIELD = Layout((Group((0,), (0,)), Group((1,), (1,))))
WIDE = Space({"a": BSpline(66, domain=(0.0, 1.0)), "b": BSpline(42, domain=(0.0, 1.0))})
LONG = (189, 117)  # three values a cell


class Moved(Callback):  # type: ignore[misc]
    """Bytes of the sums that tasks make."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        super().__init__(posttask=self.made)

    def made(self, key: Any, result: Any, *_: Any) -> None:
        if isinstance(result, Sums | HolderSums):
            self.sizes.append(result.nbytes)


def moved(source: Source, where: Space, sizes: Limits = LIMITS) -> tuple[int, Sums]:
    """Return the bytes that tasks hand to other tasks, all but the last one's, and the sums."""
    with Moved() as watch:
        total = lazy_sums(source, where, limits=sizes).compute(scheduler="synchronous")
    return sum(watch.sizes) - total.nbytes, total


@pytest.mark.parametrize(
    "form, chunks",
    [
        ("blocks", (48, 36)),
        ("regions", (18, 117)),
        *(
            pytest.param(form, chunks, marks=pytest.mark.slow)
            for form in ("blocks", "regions")
            for chunks in ((18, 117), (189, 30), (48, 36), (60, 60))
            if (form, chunks) not in [("blocks", (48, 36)), ("regions", (18, 117))]
        ),
    ],
)
def test_along_splines_at_most_twice_the_statistics_are_moved(form: str, chunks: tuple[int, int]) -> None:
    sizes = limits(8 * chunks[0] * chunks[1])
    y = values(LONG)
    source = Source(chunked(y, chunks) if form == "blocks" else Array(y, chunks), positions(LONG), (), FIELD)
    moved_bytes, total = moved(source, WIDE, sizes)
    assert 0 < moved_bytes <= 2 * total.nbytes
    row = plan(source, WIDE, limits=sizes).rows[-1]
    assert moved_bytes <= row.moved_bytes <= 1.1 * moved_bytes


def test_blocks_narrower_than_a_cell_are_merged_with_their_neighbours_first() -> None:
    y = values(LONG)
    source = Source(chunked(y, (1, 117)), positions(LONG), (), FIELD)
    moved_bytes, total = moved(source, WIDE)
    leaves = 189 * (4 / 66) * total.nbytes
    assert moved_bytes <= leaves + 3 * total.nbytes
    assert plan(source, WIDE).fan_in[0] == 16


def test_axes_along_which_windows_overlap_are_merged_first() -> None:
    """Sums of blocks along a Fourier axis have one window, those along a spline hardly share theirs."""
    where = Space({"a": BSpline(63, domain=(0.0, 1.0)), "b": Fourier(2, period=1.0)})
    y = values((180, 40))
    moved_bytes, total = moved(Source(chunked(y, (30, 1)), positions(y.shape), (), FIELD), where)
    assert moved_bytes <= (40 + 5) * 1.3 * total.nbytes


@pytest.mark.parametrize("gaps", ["none", "static", "any"])
def test_the_plan_says_what_is_moved(gaps: str) -> None:
    for source in (grid(chunked(values(gaps=gaps), (5, 7, 6))), grid(Array(values(gaps=gaps), (5, 7, 6)))):
        moved_bytes, _ = moved(source, SPACE)
        row = {r.mask: r for r in plan(source, SPACE).rows}[gaps]
        assert moved_bytes <= row.moved_bytes <= 1.5 * moved_bytes + 4096


def test_in_memory_nothing_is_moved() -> None:
    assert plan(Source(values(), positions(values().shape), (), GRID), SPACE).rows[-1].moved_bytes == 0
