"""Windows of coefficients that overlap: how wide, how far apart, and what their inverses cost.

Over cubic functions of three coordinates windows of 6³ that share 2 along each axis were the best of those between
4³ and 8³: wider ones cost more than the iterations they save, narrower ones need twice as many where gaps are large.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from xspline.solve.multigrid.spaces import Line

LARGEST = 700  # coefficients of a window
NARROWEST = 3  # along a local axis


def spans(sizes: Sequence[int], offsets: Sequence[int], local: Sequence[bool]) -> list[tuple[int, int]]:
    """Width and stride of the windows along each axis.

    Along a local axis p + 3 coefficients, fewer where a window over all axes would be large, of which 2 are shared
    with the next window, or 1 where there are four local axes; a global axis is taken whole.
    """
    axes = list(zip(sizes, offsets, local, strict=True))
    shared = 2 if sum(local) < 4 else 1
    widest = max((o + 2 for _, o, here in axes if here), default=NARROWEST)
    for less in range(max(widest - NARROWEST, 0) + 1):
        widths = [min(max(o + 2 - less, NARROWEST), k) if here else k for k, o, here in axes]
        if math.prod(widths) <= LARGEST:
            break
    return [(w, max(w - shared, 1) if here else w) for w, (_, _, here) in zip(widths, axes, strict=True)]


def members(size: int, width: int, stride: int, periodic: bool) -> NDArray[np.int64]:
    """Windows along an axis, evenly spaced so that no more of them meet than must: [windows, width]."""
    if periodic and width < size:
        count = -(-size // stride)
        first = np.arange(count) * size // count
    else:
        count = -(-(size - width) // stride)
        first = np.arange(count + 1) * (size - width) // max(count, 1)
    return (first[:, None] + np.arange(width)) % size


def inverses(sizes: Sequence[int], offsets: Sequence[int], local: Sequence[bool]) -> tuple[int, float]:
    """How many numbers the inverses of all windows take, and how many operations they are made with."""
    found = spans(sizes, offsets, local)
    count = math.prod(-(-k // stride) for k, (_, stride) in zip(sizes, found, strict=True))
    n = math.prod(width for width, _ in found)
    return count * (n * (n + 1) // 2), count * n**3 / 3.0


def places_of(windows: NDArray[np.int64], line: Line, stride: int, offset_stride: int) -> NDArray[np.int64]:
    """Where the pair of two members lies in the pair array, −1 where there is none: [windows, width, width]."""
    a, b = windows[:, :, None], windows[:, None, :]
    ahead = (b - a) % line.size if line.periodic else b - a
    behind = (a - b) % line.size if line.periodic else a - b
    forward = (ahead >= 0) & (ahead < line.offsets)
    backward = (behind >= 0) & (behind < line.offsets)
    place = np.where(forward, a * stride + ahead * offset_stride, b * stride + behind * offset_stride)
    return np.where(forward | backward, place, -1)
