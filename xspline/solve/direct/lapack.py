"""LAPACK without the interpreter's lock, which SciPy's wrappers hold: several factorisations at the same time."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cython_lapack, lapack

Array = NDArray[np.float64]

_INTEGER = ctypes.POINTER(ctypes.c_int)
_PBTRF = ctypes.CFUNCTYPE(None, ctypes.c_char_p, _INTEGER, _INTEGER, ctypes.c_void_p, _INTEGER, _INTEGER)


def pbtrf(band: Array) -> int:
    """Cholesky factorisation L of the band [P, u + 1] of a lower triangle, contiguous, in place.

    Returns
    -------
    int
        0, or the number, from 1, of the first pivot that is not positive.
    """
    call = _pbtrf()
    if call is None:
        return int(lapack.dpbtrf(band.T, lower=1, overwrite_ab=1)[1])
    size, width = band.shape
    info = ctypes.c_int(0)
    call(b"L", ctypes.c_int(size), ctypes.c_int(width - 1), band.ctypes.data, ctypes.c_int(width), info)
    return info.value


@functools.lru_cache(maxsize=1)
def _pbtrf() -> Callable[..., Any] | None:
    """The routine that SciPy offers to Cython; None where its integers are not those of C."""
    capsule = getattr(cython_lapack, "__pyx_capi__", {}).get("dpbtrf")
    if capsule is None:
        return None
    name, pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    signature = name(capsule)
    arguments = signature[signature.index(b"(") :].split(b", ")
    if [argument.count(b"int *") for argument in arguments] != [0, 1, 1, 0, 1, 1]:
        return None
    return _PBTRF(pointer(capsule, signature))
