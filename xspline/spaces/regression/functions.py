"""Values of functions that are straight between corners, and of steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from xspline.spaces.features import Floats, TermFunctions


@dataclass(frozen=True, eq=False)
class Kinked(TermFunctions):
    """Functions with corners or jumps, after a constant if it is `with_constant`."""

    kinked: ClassVar[bool] = True

    labels: tuple[str, ...]  # names of the functions
    corners: tuple[Floats, ...]  # positions of those of each
    record: tuple[float, float]
    with_constant: bool

    @property
    def names(self) -> list[str]:
        return ["const"] * self.with_constant + list(self.labels)

    @property
    def nodes(self) -> int:
        return 2  # exact for a product of two straight lines

    @property
    def domain(self) -> tuple[float, float] | None:
        return self.record

    def panels(self, lo: float, hi: float) -> Floats:
        inner = np.concatenate(self.corners)
        return np.unique(np.concatenate([[lo], inner[(inner > lo) & (inner < hi)], [hi]]))


@dataclass(frozen=True, eq=False)
class Lines(Kinked):
    """Functions that are straight between corners."""

    heights: tuple[Floats, ...]  # values at the corners of each
    continued: bool  # whether the outer lines go on outside the record, where there are else no values

    @property
    def max_order(self) -> int | None:
        return 1

    @property
    def slopes(self) -> tuple[str, ...]:
        return self.labels if self.continued else ()

    def values(self, x: Floats, order: int) -> Floats:
        out = np.full((len(self.names), x.size), float(order == 0))
        for row, t, v in zip(out[int(self.with_constant) :], self.corners, self.heights, strict=True):
            j = np.clip(np.searchsorted(t, x, side="right") - 1, 0, t.size - 2)
            slope = (np.diff(v) / np.diff(t))[j]
            if order < 2:
                row[:] = slope if order else v[j] + slope * (x - t[j])
        return out.T if self.continued else np.where(np.isnan(self.clean(x)), np.nan, out).T


@dataclass(frozen=True, eq=False)
class Jump(Kinked):
    """A function that is 0 before its corner, and 1 from there on."""

    def values(self, x: Floats, order: int) -> Floats:
        out = np.full((len(self.names), x.size), float(order == 0))
        out[-1] *= x >= self.corners[0][0]
        return out.T
