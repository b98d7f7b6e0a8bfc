"""Small helpers on arrays of any namespace."""

from __future__ import annotations

import math
from typing import Any

import array_api_compat
import numpy as np

from .layout import Array


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


def native(array: Array, xp: Any) -> Array:
    """A float64 copy of a slab; of NumPy arrays native, contiguous and writable, masked entries NaN."""
    if isinstance(array, np.ma.MaskedArray):
        return np.array(np.ma.filled(np.ma.asarray(array, dtype=np.float64), np.nan), order="C")
    if array_api_compat.is_numpy_namespace(xp):
        return np.array(array, dtype=np.float64, order="C")
    return xp.astype(array, xp.float64, copy=True)


def rounded(value: float) -> float:
    """To float32, so that differences of float32 data are exact; numbers too large for it stay."""
    with np.errstate(over="ignore"):
        single = float(np.float32(value))
    return single if math.isfinite(single) else value


def clipped(array: Array, low: float, high: float, xp: Any) -> Array:
    """Entries within bounds, NaN as it is; `clip` of array_api_compat takes and puts by mask: devices wait for that."""
    where = array_api_compat.device(array)
    least, most = (xp.asarray(bound, dtype=array.dtype, device=where) for bound in (low, high))
    array = xp.where(array < least, least, array)
    return xp.where(array > most, most, array)


def first_true(mask: Array, xp: Any) -> tuple[int, ...]:
    """Index of the first true entry in C order; there must be one."""
    flat = int(xp.argmax(xp.astype(xp.reshape(mask, (-1,)), xp.int8)))
    return tuple(int(i) for i in np.unravel_index(flat, tuple(mask.shape)))


def all_true(mask: Array) -> bool:
    """Whether every entry is true."""
    if isinstance(mask, np.ndarray):
        return bool(mask.all())
    return bool(array_api_compat.array_namespace(mask).all(mask))


def count_true(mask: Array, xp: Any) -> int:
    """Number of true entries."""
    if isinstance(mask, np.ndarray):
        return int(np.count_nonzero(mask))
    return int(xp.sum(xp.astype(mask, xp.int64)))
