"""How a block of data is laid out: which dimensions which coordinates span; arrays of any namespace.

Coordinates that share dimensions form a group, and a group is one contraction. A grid is one group per
dimension, scattered observations are one group over one dimension, stations × time is two groups, and a
curvilinear grid is a group over two dimensions beside one over time. Dimensions that no coordinate spans are
batch dimensions.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import array_api_compat
import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = Any
"""An array of any array-API namespace (NumPy, CuPy, array_api_strict), for which there is no static type.

What is on the host always, whatever the namespace of the data, is one of the following.
"""
Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]


SLAB_ENTRIES = 1 << 17  # numbers of a slab, 1 MiB, which caches hold: chosen


def slab_entries(array: Array) -> int:
    """Entries of a slab of this array; on a device, where launches cost more, 256 MiB."""
    return SLAB_ENTRIES if isinstance(array, np.ndarray) else 1 << 25


@dataclass(frozen=True)
class Group:
    """Coordinates that share dimensions."""

    data_axes: tuple[int, ...]  # those of the values that the coordinates span, none for scalar coordinates
    coefficient_axes: tuple[int, ...]  # empty for pooled dimensions, whose entries are repeated observations


@dataclass(frozen=True)
class Layout:
    """Groups and batch axes: every axis of the values belongs to exactly one of them."""

    groups: tuple[Group, ...]
    batch_axes: tuple[int, ...] = ()  # in the order of the batch axes of sums and coefficients

    @property
    def ndim(self) -> int:
        """Number of axes of the values."""
        return sum(len(group.data_axes) for group in self.groups) + len(self.batch_axes)

    @property
    def spans(self) -> tuple[tuple[int, ...], ...]:
        """The data axes of each coefficient axis."""
        axes = {k: group.data_axes for group in self.groups for k in group.coefficient_axes}
        return tuple(axes[k] for k in sorted(axes))


@dataclass(frozen=True, eq=False)
class Block:
    """A piece of data, as stored."""

    values: Array  # NaN is missing, infinity is tallied
    # per coefficient axis, floats, on the host or beside the values; each has the lengths of its group's
    # data axes as its shape. Labels that repeat are fine, NaN is missing.
    coordinates: tuple[Array, ...]
    # relative precisions; their product counts. Zero excludes.
    weights: tuple[tuple[tuple[int, ...], Array], ...] = ()
    # index of the first value in the whole data, for messages. Empty: the origin.
    start: tuple[int, ...] = ()


# Arrays of any namespace


def to_host(array: Array) -> np.ndarray[Any, Any]:
    """A NumPy copy or view of a small array of any namespace and device."""
    if array_api_compat.is_numpy_array(array) or isinstance(array, np.generic):
        return np.asarray(array)
    if array_api_compat.is_cupy_array(array):
        return np.asarray(array.get())
    devices = array_api_compat.array_namespace(array).__array_namespace_info__().devices()
    return np.asarray(array_api_compat.to_device(array, devices[0]))


def to_namespace(array: Array, xp: Any, device: Any) -> Array:
    """A small array on the device of the data."""
    same = not isinstance(array, np.ndarray) or array_api_compat.is_numpy_namespace(xp)
    return array if same else xp.asarray(np.asarray(array, order="C"), device=device)


def native(array: Array, xp: Any, memory: Scratch | None = None) -> Array:
    """A float64 copy of a slab; of NumPy arrays native, contiguous and writable, in `memory` if it is given."""
    if not array_api_compat.is_numpy_namespace(xp):
        return xp.astype(array, xp.float64, copy=True)
    out = np.empty(array.shape) if memory is None else memory.take(array.shape)
    out[...] = array
    return out


def rounded(value: float) -> float:
    """Round to float32, so that differences of float32 data are exact; numbers too large for it stay."""
    with np.errstate(over="ignore"):
        single = float(np.float32(value))
    return single if math.isfinite(single) else value


def first_true(mask: Array, xp: Any) -> tuple[int, ...]:
    """Index of the first true entry in C order; there must be one."""
    flat = int(xp.argmax(xp.astype(xp.reshape(mask, (-1,)), xp.int8)))
    return tuple(int(i) for i in np.unravel_index(flat, tuple(mask.shape)))


def count_true(mask: Array, xp: Any) -> int:
    """Number of true entries."""
    if isinstance(mask, np.ndarray):
        return int(np.count_nonzero(mask))
    return int(xp.sum(xp.astype(mask, xp.int64)))


class Scratch(threading.local):
    """Memory that a thread uses again: new memory is slow on Dask's workers, whose allocator gives it back at once."""

    def __init__(self) -> None:
        self._memory = np.empty(0)

    def take(self, shape: Sequence[int]) -> Floats:
        """Return an array of this shape with any numbers, in the memory of the one that was taken before."""
        size = math.prod(shape)
        if self._memory.size < size:
            self._memory = np.empty(size)
        return self._memory[:size].reshape(shape)
