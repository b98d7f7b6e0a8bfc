"""The part of CuPy that xspline uses, with host memory in the place of a GPU's: runs tests marked `gpu` without a GPU.

PYTHONPATH=tests/cupy_on_numpy python -m pytest -m gpu

NumPy cannot read its arrays, host arrays do not mix with them, and kernels are compiled for the host. It shows that
calls and numbers are right, nothing of the order in time and nothing of speed. Other tests take `ndarray` alone.
"""

from __future__ import annotations

import ctypes
import sys
import types
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import scipy.linalg
from array_api_compat import numpy as compat

from tests import host_kernels

__version__ = "14.0.0"


class ndarray(np.lib.mixins.NDArrayOperatorsMixin):
    """An array "on a GPU", which a host array holds; every implicit conversion to the host is an error."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    shape = property(lambda self: self._array.shape)
    dtype = property(lambda self: self._array.dtype)
    ndim = property(lambda self: self._array.ndim)
    size = property(lambda self: self._array.size)
    nbytes = property(lambda self: self._array.nbytes)
    itemsize = property(lambda self: self._array.itemsize)
    flags = property(lambda self: self._array.flags)
    strides = property(lambda self: self._array.strides)
    data = property(lambda self: _Pointer(self._array))
    T = property(lambda self: _wrap(self._array.T))
    device = property(lambda self: Device())
    __cuda_array_interface__ = property(lambda self: {"shape": self.shape, "typestr": self.dtype.str})

    def __len__(self) -> int:
        return len(self._array)

    def __repr__(self) -> str:
        return f"ndarray({self._array!r})"

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
        return sys.modules[__name__]

    def __getitem__(self, key: Any) -> Any:
        return _wrap(self._array[_unwrapped(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self._array[_unwrapped(key)] = _unwrapped(value)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._array, name)
        if not callable(method):  # as `__array_interface__`, by which NumPy would read the values
            raise AttributeError(name)
        return _of_arrays(method)

    def __reduce__(self) -> Any:
        return ndarray, (self._array,)

    def __bool__(self) -> bool:
        return self._array.__bool__()  # `bool` is NumPy's in this module

    def __int__(self) -> int:
        return int(self._array)

    def __float__(self) -> float:
        return float(self._array)

    def __index__(self) -> int:
        return self._array.__index__()


def _unwrapped(value: Any) -> Any:
    if isinstance(value, ndarray):
        return value._array
    if isinstance(value, np.ndarray) and value.ndim:
        raise TypeError("a host array beside arrays of the GPU: move it there first")
    if isinstance(value, tuple | list):
        return type(value)(_unwrapped(v) for v in value)
    return value


def _wrap(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return ndarray(np.asarray(value))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_wrap, value))
    if isinstance(value, tuple | list):
        return type(value)(_wrap(v) for v in value)
    return value


def _call(function: Any, args: Any, kwargs: Any) -> Any:
    kwargs = {name: _unwrapped(value) for name, value in kwargs.items() if name != "device"}
    return _wrap(function(*_unwrapped(tuple(args)), **kwargs))


def _of_arrays(function: Any) -> Any:
    """A function of NumPy arrays as one of arrays "on a GPU"."""
    return lambda *args, **kwargs: _call(function, args, kwargs)


def array(value: Any, dtype: Any = None, **kwargs: Any) -> ndarray:
    """With `asarray`, the only way to the GPU."""
    host = np.array(value._array if isinstance(value, ndarray) else value, dtype=dtype)
    if not host.dtype.isnative:
        raise ValueError(f"unsupported byte order: {host.dtype}")
    return ndarray(host)


def asarray(value: Any, dtype: Any = None, copy: bool | None = None, **kwargs: Any) -> ndarray:
    same = isinstance(value, ndarray) and dtype in (None, value.dtype) and not copy
    return value if same else array(value, dtype)


def __array_namespace_info__() -> Any:
    return types.SimpleNamespace(devices=lambda: ["cpu", Device()])


def asnumpy(value: Any) -> np.ndarray:
    return value.get() if isinstance(value, ndarray) else np.asarray(value)


class _Pinned(np.ndarray):
    """Memory of the host that a GPU reads by itself."""

    ptr = property(lambda self: self.ctypes.data)


class _Pointer:
    """Where an array lies."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def copy_from_host_async(self, host: int, nbytes: int, stream: Any = None) -> None:
        ctypes.memmove(self._array.ctypes.data, host, nbytes)


class RawModule:
    def __init__(self, code: str, options: tuple[str, ...] = ()) -> None:
        self._code, self._options = code, options

    def get_function(self, name: str) -> Callable[..., None]:
        launch = host_kernels.compiled(self._code, name, self._options)
        return lambda grid, block, arguments: launch(grid, block, [_unwrapped(a) for a in arguments])


class Device:
    """The one GPU, on which everything is done at once."""

    id, mem_info = 0, (60 << 30, 80 << 30)

    def __init__(self, device: Any = None) -> None: ...

    def __int__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device)

    def __hash__(self) -> int:
        return 0

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *error: object) -> None: ...

    def synchronize(self) -> None: ...


class _Generator:
    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def __getattr__(self, name: str) -> Callable[..., ndarray]:
        return _of_arrays(getattr(self._generator, name))


def _module(name: str, source: types.ModuleType | None = None, **own: Any) -> types.ModuleType:
    """A module with the public names of one of NumPy: types as they are, functions of arrays of this kind."""
    module = sys.modules.get(name) or types.ModuleType(name)
    vars(module).update(own)
    for key in dir(source) if source else ():
        value = getattr(source, key)
        if not key.startswith("_") and not isinstance(value, types.ModuleType) and key not in vars(module):
            plain = isinstance(value, type) or not callable(value)
            setattr(module, key, value if plain else _of_arrays(value))
    module.__all__ = [key for key in vars(module) if not key.startswith("_")]
    return module


runtime = _module("cupy.cuda.runtime")
runtime.CUDARuntimeError = type("CUDARuntimeError", (RuntimeError,), {})
runtime.getDeviceCount = lambda: 1
runtime.getDeviceProperties = lambda number: {"name": b"host memory, not a GPU"}
cuda = _module("cupy.cuda", Device=Device, runtime=runtime)
cuda.alloc_pinned_memory = lambda nbytes: np.zeros(nbytes, np.uint8).view(_Pinned)
linalg, fft = _module("cupy.linalg", np.linalg), _module("cupy.fft", np.fft)
random = _module("cupy.random", default_rng=_Generator)
_module(__name__, np if __name__ == "cupy" else compat)  # array_api_compat has an own module of CuPy

if __name__ == "cupy":  # what else is imported by name; NumPy and SciPy raise as they are
    _solve = _module("cupyx.scipy.linalg", solve_triangular=_of_arrays(scipy.linalg.solve_triangular))
    _modules = [runtime, cuda, linalg, fft, random, _solve, _module("cupyx.scipy", linalg=_solve)]
    _modules += [
        _module("cupyx", errstate=lambda **kinds: nullcontext()),
        _module("cupy.cuda.device", Device=Device),
    ]
    sys.modules.update({module.__name__: module for module in _modules})
