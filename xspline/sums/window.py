"""Windows: the range of coefficients that a block of data touches, axis by axis.

A window is ``((start, length), ...)``, one pair per axis. On a periodic axis it is an arc: its members are
``(start + i) mod size``, its length is at most ``size``, and the whole circle always starts at 0.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Span: TypeAlias = tuple[int, int]
Window: TypeAlias = tuple[Span, ...]  # (start, length) per axis


def whole(sizes: Sequence[int]) -> Window:
    """The window over all coefficients."""
    return tuple((0, size) for size in sizes)


def lengths(window: Window) -> tuple[int, ...]:
    """Number of coefficients along each axis of a window."""
    return tuple(length for _, length in window)


def union(windows: Sequence[Window], sizes: Sequence[int], periodic: Sequence[bool]) -> Window:
    """Smallest window that holds all `windows`; empty ones do not count.

    There are one or more windows over the same axes. `sizes` are the numbers of coefficients of each axis, and
    `periodic` tells whether its indices are taken modulo that number; there the window is the shortest arc, ties go to
    the lower start. If all are empty, it is ``(0, 0)`` on every axis.
    """
    full = [window for window in windows if all(lengths(window))]
    if not full:
        return tuple((0, 0) for _ in sizes)
    spans_by_axis = []
    for spans, size, is_circle in zip(zip(*full, strict=True), sizes, periodic, strict=True):
        if is_circle:
            spans_by_axis.append(_shortest_arc(spans, size))
        else:
            start = min(first for first, _ in spans)
            spans_by_axis.append((start, max(first + length for first, length in spans) - start))
    return tuple(spans_by_axis)


def _shortest_arc(spans: Sequence[Span], size: int) -> Span:
    distinct = set(spans)
    if len(distinct) == 1 and spans[0][1] < size:
        return spans[0]
    touched = np.zeros(size, dtype=bool)
    for start, length in distinct:
        touched[(start + np.arange(length)) % size] = True
    indices = np.flatnonzero(touched)
    # The gap in front of each index; the shortest covering arc starts behind the widest gap, and argmax
    # takes the first of equals.
    gaps = np.diff(indices, prepend=indices[-1] - size)
    widest = int(np.argmax(gaps))
    if gaps[widest] == 1:
        return 0, size
    return int(indices[widest]), size - int(gaps[widest]) + 1


def matching_slices(outer: Span, inner: Span, size: int) -> list[tuple[slice, slice]]:
    """Slices of an array over `outer` and of one over `inner` that address the same coefficients.

    Two pairs of slices when `inner` is an arc that wraps around inside the whole circle, else one.
    """
    at = (inner[0] - outer[0]) % size if size else 0
    length = inner[1]
    if at + length <= outer[1]:
        return [(slice(at, at + length), slice(0, length))]
    if outer[1] != size:
        raise ValueError(f"the window {inner} is not inside {outer}, on an axis with {size} coefficients")
    head = size - at
    return [(slice(at, size), slice(0, head)), (slice(0, length - head), slice(head, length))]


def add_into(out: Array, outer: Window, array: Array, inner: Window, sizes: Sequence[int]) -> None:
    """Add `array`, which lies on the window `inner`, into `out`, which lies on `outer`.

    The axes of the windows are the leading ones of both arrays; the others broadcast.
    """
    if not all(lengths(inner)):
        return
    per_axis = [matching_slices(o, i, size) for o, i, size in zip(outer, inner, sizes, strict=True)]
    for choice in itertools.product(*per_axis):
        out[tuple(there for there, _ in choice)] += array[tuple(here for _, here in choice)]


def take(array: Array, window: Window, sizes: Sequence[int]) -> Array:
    """The part of `array` (all coefficients, leading axes) on `window`; a view unless an arc wraps around."""
    for axis, (span, size) in enumerate(zip(window, sizes, strict=True)):
        parts = [
            array[(slice(None),) * axis + (there,)] for there, _ in matching_slices((0, size), span, size)
        ]
        array = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=axis)
    return array


def embed(array: Array, window: Window, sizes: Sequence[int], outer: Window | None = None) -> Array:
    """`array`, which lies on `window`, zero-filled to `outer` or all coefficients; itself where it lies there."""
    outer = outer or whole(sizes)
    if window == outer:
        return array
    out = np.zeros((*lengths(outer), *array.shape[len(window) :]), dtype=array.dtype)
    add_into(out, outer, array, window, sizes)
    return out
