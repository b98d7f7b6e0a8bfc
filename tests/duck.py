"""A duck array that behaves as CuPy's arrays do: NumPy cannot read it, and host arrays do not mix with it."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
from array_api_compat import numpy as compat


class Duck(np.lib.mixins.NDArrayOperatorsMixin):
    """An array "on a GPU", which a host array holds; every implicit conversion to the host is an error."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    shape = property(lambda self: self._array.shape)
    dtype = property(lambda self: self._array.dtype)
    ndim = property(lambda self: self._array.ndim)
    size = property(lambda self: self._array.size)
    nbytes = property(lambda self: self._array.nbytes)
    itemsize = property(lambda self: self._array.itemsize)
    T = property(lambda self: _wrap(self._array.T))
    device = "GPU"
    __cuda_array_interface__: Any = None  # marks arrays of a GPU; nothing reads it

    def __len__(self) -> int:
        return len(self._array)

    def __repr__(self) -> str:
        return f"Duck({self._array!r})"

    def get(self) -> np.ndarray:
        """The only way to the host."""
        return self._array.copy()

    def to_device(self, device: str, stream: Any = None) -> Any:
        return self._array.copy() if device == "cpu" else self

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise TypeError("implicit conversion to a NumPy array is not allowed; use .get()")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return _call(getattr(ufunc, method), inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _call(function, args, kwargs)

    def __array_namespace__(self, api_version: str | None = None) -> types.ModuleType:
        return NAMESPACE

    def __getitem__(self, key: Any) -> Any:
        return _wrap(self._array[unwrapped(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self._array[unwrapped(key)] = unwrapped(value)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._array, name)
        if not callable(method):
            raise AttributeError(name)
        return lambda *args, **kwargs: _call(method, args, kwargs)

    def __bool__(self) -> bool:
        return bool(self._array)

    def __int__(self) -> int:
        return int(self._array)

    def __float__(self) -> float:
        return float(self._array)

    def __index__(self) -> int:
        return self._array.__index__()

    def __reduce__(self) -> Any:
        return Duck, (self._array,)


def unwrapped(value: Any) -> Any:
    if isinstance(value, Duck):
        return value._array
    if isinstance(value, np.ndarray) and value.ndim:
        raise TypeError("a host array beside arrays of the GPU: move it there first")
    if isinstance(value, tuple | list):
        return type(value)(unwrapped(v) for v in value)
    return value


def _wrap(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return KIND(np.asarray(value))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_wrap, value))
    if isinstance(value, tuple | list):
        return type(value)(_wrap(v) for v in value)
    return value


KIND: type[Duck] = Duck  # of results


def of_arrays(function: Any) -> Any:
    """A function of NumPy arrays as one of arrays "on a GPU"."""
    return lambda *args, **kwargs: _call(function, args, kwargs)


def _call(function: Any, args: Any, kwargs: Any) -> Any:
    args, kwargs = unwrapped(tuple(args)), {name: unwrapped(value) for name, value in kwargs.items()}
    return _wrap(function(*args, **kwargs))


class _Namespace(types.ModuleType):
    """The array-API namespace of these arrays."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(compat, name)
        if isinstance(value, type) or not callable(value):
            return value
        return lambda *args, device=None, **kwargs: _call(value, args, kwargs)

    def asarray(self, value: Any, *, device: Any = None, **kwargs: Any) -> Duck:
        """The only way to the GPU."""
        return Duck(compat.asarray(value._array if isinstance(value, Duck) else value, **kwargs))

    def __array_namespace_info__(self) -> Any:
        return types.SimpleNamespace(devices=lambda: ["cpu", "GPU"])


NAMESPACE = _Namespace("duck")
