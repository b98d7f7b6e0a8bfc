"""The part of CuPy that xspline uses, with host memory in the place of a GPU's: runs tests marked `gpu` without a GPU.

PYTHONPATH=tests/cupy_on_numpy python -m pytest -m gpu

Arrays are those of `tests.duck`, which refuse what CuPy refuses; kernels are compiled for the host. It shows that
calls and numbers are right, nothing of the order in time and nothing of speed.
"""

from __future__ import annotations

import ctypes
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from tests import duck, host_kernels

from . import cuda as cuda

__version__ = "14.0.0"


class Pointer:
    """Where an array lies."""

    def __init__(self, array: np.ndarray, offset: int = 0) -> None:
        self._array, self._offset = array, offset

    def __add__(self, offset: int) -> Pointer:
        return Pointer(self._array, self._offset + offset)

    @property
    def ptr(self) -> int:
        return self._array.ctypes.data + self._offset

    def copy_from_host_async(self, host: int, nbytes: int, stream: Any = None) -> None:
        ctypes.memmove(self.ptr, host, nbytes)


class ndarray(duck.Duck):
    flags = property(lambda self: self._array.flags)
    strides = property(lambda self: self._array.strides)
    data = property(lambda self: Pointer(self._array))
    device = property(lambda self: cuda.Device())
    T = property(lambda self: ndarray(self._array.T))
    __cuda_array_interface__ = property(lambda self: {"shape": self.shape, "typestr": self.dtype.str})

    def __array_namespace__(self, api_version: str | None = None) -> types.ModuleType:
        from array_api_compat import cupy

        return cupy

    def __reduce__(self) -> Any:
        return ndarray, (self._array,)


duck.KIND = ndarray


class RawModule:
    def __init__(self, code: str, options: tuple[str, ...] = ()) -> None:
        self._code, self._options = code, options

    def get_function(self, name: str) -> Callable[..., None]:
        launch = host_kernels.compiled(self._code, name, self._options)
        return lambda grid, block, arguments: launch(grid, block, [duck.unwrapped(a) for a in arguments])


def asarray(value: Any, dtype: Any = None, **kwargs: Any) -> ndarray:
    same = isinstance(value, ndarray) and dtype in (None, value.dtype)
    return value if same else array(value, dtype=dtype)


def array(value: Any, dtype: Any = None, **kwargs: Any) -> ndarray:
    host = np.array(value._array if isinstance(value, ndarray) else value, dtype=dtype)
    if not host.dtype.isnative:
        raise ValueError(f"unsupported byte order: {host.dtype}")
    return ndarray(host)


def asnumpy(value: Any) -> np.ndarray:
    return value.get() if isinstance(value, ndarray) else np.asarray(value)


def _fill(module: types.ModuleType, source: types.ModuleType) -> None:
    """The public names of a module of NumPy: types as they are, functions of arrays of this kind."""
    for name in (n for n in dir(source) if not n.startswith("_")):
        value = getattr(source, name)
        if not isinstance(value, types.ModuleType) and name not in module.__dict__:
            plain = isinstance(value, type) or not callable(value)
            setattr(module, name, value if plain else duck.of_arrays(value))
    module.__all__ = [n for n in module.__dict__ if not n.startswith("_")]


class _Generator:
    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def __getattr__(self, name: str) -> Callable[..., ndarray]:
        return duck.of_arrays(getattr(self._generator, name))


linalg, fft, random = (types.ModuleType(f"cupy.{name}") for name in ("linalg", "fft", "random"))
random.default_rng = _Generator
for _module, _source in ((linalg, np.linalg), (fft, np.fft), (sys.modules[__name__], np)):
    _fill(_module, _source)
    sys.modules[_module.__name__] = _module
