"""The compiled twins of `contract.Namespace`: the two inner loops, for NumPy arrays.

This is the only module that imports numba, and it is imported at the first kernel call. Functions that are
called inside a compiled function are in this file: numba's cache does not notice when a callee elsewhere
changes. Arguments are C-contiguous and native, so that each kernel has one specialisation.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np

from .layout import Floats, Integers

F = TypeVar("F", bound=Callable[..., None])

# Not "fast": NaN must stay NaN. No parallel loops: parallelism belongs to the scheduler.
_njit: Any = numba.njit
OPTIONS = {"nogil": True, "fastmath": {"contract", "nsz", "arcp"}}


class _State:
    warned = False


def compiled(function: F) -> F:
    """Compile on first use, with a cache on disk where there is a place for one."""
    try:
        out: F = _njit(cache=True, **OPTIONS)(function)
        return out
    except RuntimeError as error:  # numba: "cannot cache function ...: no locator available"
        if not _State.warned:
            _State.warned = True
            warnings.warn(
                f"numba cannot cache compiled kernels ({error}); each process compiles them again. "
                "Set NUMBA_CACHE_DIR to a directory that can be written",
                RuntimeWarning,
                stacklevel=2,
            )
        plain: F = _njit(**OPTIONS)(function)
        return plain


@compiled
def scatter(array: Floats, start: Integers, places: Integers, values: Floats, out: Floats) -> None:
    """out[p, start[i] + places[q], r] += values[i, q] array[p, i, r]."""
    before, rows, after = array.shape
    width = places.size
    for p in range(before):
        for i in range(rows):
            if after == 1:
                x = array[p, i, 0]
                if x != 0.0:
                    for q in range(width):
                        out[p, start[i] + places[q], 0] += values[i, q] * x
                continue
            q = 0
            while q + 4 <= width:  # four functions for each load of the data
                f0, f1, f2, f3 = values[i, q], values[i, q + 1], values[i, q + 2], values[i, q + 3]
                k0, k1 = start[i] + places[q], start[i] + places[q + 1]
                k2, k3 = start[i] + places[q + 2], start[i] + places[q + 3]
                for r in range(after):
                    x = array[p, i, r]
                    out[p, k0, r] += f0 * x
                    out[p, k1, r] += f1 * x
                    out[p, k2, r] += f2 * x
                    out[p, k3, r] += f3 * x
                q += 4
            while q < width:
                f0, k0 = values[i, q], start[i] + places[q]
                for r in range(after):
                    out[p, k0, r] += f0 * array[p, i, r]
                q += 1


@compiled
def gather(array: Floats, start: Integers, places: Integers, values: Floats, out: Floats) -> None:
    """out[p, i, r] = sum over q of values[i, q] array[p, start[i] + places[q], r]."""
    before, rows, after = out.shape
    width = places.size
    for p in range(before):
        for i in range(rows):
            if after == 1:
                x = 0.0
                for q in range(width):
                    x += values[i, q] * array[p, start[i] + places[q], 0]
                out[p, i, 0] = x
                continue
            q = 0
            while q + 4 <= width:
                f0, f1, f2, f3 = values[i, q], values[i, q + 1], values[i, q + 2], values[i, q + 3]
                k0, k1 = start[i] + places[q], start[i] + places[q + 1]
                k2, k3 = start[i] + places[q + 2], start[i] + places[q + 3]
                for r in range(after):
                    out[p, i, r] += (
                        f0 * array[p, k0, r]
                        + f1 * array[p, k1, r]
                        + f2 * array[p, k2, r]
                        + f3 * array[p, k3, r]
                    )
                q += 4
            while q < width:
                f0, k0 = values[i, q], start[i] + places[q]
                for r in range(after):
                    out[p, i, r] += f0 * array[p, k0, r]
                q += 1


@compiled
def _outer(values: Floats, widths: Integers, row: int, out: Floats) -> None:
    """Products of the values of one row over all axes, first axis outermost; `values`: axes side by side."""
    out[0] = 1.0
    filled, first = 1, 0
    for width in widths:
        for j in range(filled - 1, -1, -1):  # backwards: entry j is read before it is overwritten
            x = out[j]
            for q in range(width - 1, -1, -1):
                out[j * width + q] = x * values[row, first + q]
        filled *= width
        first += width


@compiled
def scatter_products(
    array: Floats, start: Integers, places: Integers, values: Floats, widths: Integers, out: Floats
) -> None:
    """`scatter` for groups of several coefficient axes; `values` [n, sum of widths]."""
    before, rows, after = array.shape
    width = places.size
    f = np.empty(width)
    for i in range(rows):
        _outer(values, widths, i, f)
        for p in range(before):
            if after == 1:
                x = array[p, i, 0]
                if x != 0.0:
                    for q in range(width):
                        out[p, start[i] + places[q], 0] += f[q] * x
                continue
            for q in range(width):
                k, g = start[i] + places[q], f[q]
                for r in range(after):
                    out[p, k, r] += g * array[p, i, r]


@compiled
def gather_products(
    array: Floats, start: Integers, places: Integers, values: Floats, widths: Integers, out: Floats
) -> None:
    """`gather` for groups of several coefficient axes; `values` [n, sum of widths]."""
    before, rows, after = out.shape
    width = places.size
    f = np.empty(width)
    for i in range(rows):
        _outer(values, widths, i, f)
        for p in range(before):
            if after == 1:
                x = 0.0
                for q in range(width):
                    x += f[q] * array[p, start[i] + places[q], 0]
                out[p, i, 0] = x
                continue
            for q in range(width):
                k, g = start[i] + places[q], f[q]
                for r in range(after):
                    out[p, i, r] += g * array[p, k, r]
