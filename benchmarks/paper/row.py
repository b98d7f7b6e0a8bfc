"""A figure beside the paper's, with the bound that it has to keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks import measure


@dataclass(frozen=True)
class Row:
    """One figure: what it is, ours, the paper's as printed there, and the most that it may be (None: no bound)."""

    figure: str
    ours: float
    paper: str
    bound: float | None = None
    beside: str = ""

    @property
    def kept(self) -> bool:
        return self.bound is None or self.ours <= self.bound


def print_rows(title: str, rows: Sequence[Row]) -> None:
    """Print a table, or that there is nothing to print."""
    if not rows:
        print(f"\n{title}: skipped, its data are not where XSPLINE_DATA_DIR points to")
        return
    header = ("figure", "ours", "paper", "at most", "kept", "beside it")
    bounds = [("", "") if row.bound is None else (row.bound, "yes" if row.kept else "NO") for row in rows]
    cells = [(r.figure, r.ours, r.paper, *b, r.beside) for r, b in zip(rows, bounds, strict=True)]
    measure.table(title, header, cells)
