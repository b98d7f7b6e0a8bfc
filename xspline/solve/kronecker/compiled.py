"""The compiled product with a pair array, in which iterations spend their time."""

from __future__ import annotations

from typing import NamedTuple

from xspline.spaces.features import Floats, Integers
from xspline.spaces.jit import compiled


class Links(NamedTuple):
    """Which rows of vectors the bands of a matrix link.

    Link l of band e, start[e] <= l < start[e + 1], is the row target[l] of the product and the row source[l].
    """

    start: Integers
    target: Integers
    source: Integers


@compiled
def multiply(bands: Floats, links: Links, x: Floats, y: Floats, first: int, last: int) -> None:
    """y[m, target] += T x[m, source] for symmetric bands T [O, w + K] and their links, x with w in front and behind.

    The bands are those from `first` to `last`.
    """
    start, target, source = links
    width, size = bands.shape[1], y.shape[2]
    w = width - 1
    for e in range(first, last):
        for link in range(start[e], start[e + 1]):
            a, b = target[link], source[link]
            for m in range(x.shape[0]):
                if width == 4:
                    for k in range(size):
                        y[m, a, k] += (
                            bands[e, 0, k + 3] * x[m, b, k + 3]
                            + bands[e, 1, k + 3] * x[m, b, k + 4]
                            + bands[e, 2, k + 3] * x[m, b, k + 5]
                            + bands[e, 3, k + 3] * x[m, b, k + 6]
                            + bands[e, 1, k + 2] * x[m, b, k + 2]
                            + bands[e, 2, k + 1] * x[m, b, k + 1]
                            + bands[e, 3, k] * x[m, b, k]
                        )
                    continue
                for k in range(size):
                    y[m, a, k] += bands[e, 0, k + w] * x[m, b, k + w]
                for o in range(1, width):
                    for k in range(size):
                        y[m, a, k] += (
                            bands[e, o, k + w] * x[m, b, k + w + o]
                            + bands[e, o, k + w - o] * x[m, b, k + w - o]
                        )
