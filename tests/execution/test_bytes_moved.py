"""What travels between tasks: partial sums are merged where that moves fewest bytes, and the plan says how many."""

from __future__ import annotations

from typing import Any

import pytest
from dask.callbacks import Callback

from tests.execution.cases import SPACE, Array, chunked, grid, values
from xspline.execution import LIMITS, Limits, Source, lazy_sums, plan
from xspline.spaces import Space
from xspline.sums import HolderSums, Sums


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


@pytest.mark.parametrize("gaps", ["none", "static", "any"])
def test_the_plan_says_what_is_moved(gaps: str) -> None:
    for source in (grid(chunked(values(gaps=gaps), (5, 7, 6))), grid(Array(values(gaps=gaps), (5, 7, 6)))):
        moved_bytes, _ = moved(source, SPACE)
        row = {r.mask: r for r in plan(source, SPACE).rows}[gaps]
        assert moved_bytes <= row.moved_bytes <= 1.5 * moved_bytes + 4096
