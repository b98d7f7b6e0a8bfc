"""LAPACK and BLAS without the interpreter's lock, which SciPy's wrappers hold: several factorisations at the same time.

The routines are those that SciPy offers to Cython. Matrices are in Fortran order, and may be blocks of larger ones.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, cython_blas, cython_lapack, lapack

Array = NDArray[np.float64]
_KINDS: dict[str, Any] = {
    "c": ctypes.c_char_p,
    "i": ctypes.POINTER(ctypes.c_int),
    "x": ctypes.POINTER(ctypes.c_double),
    "a": ctypes.c_void_p,
}


def pbtrf(band: Array) -> int:
    """Cholesky factorisation L of the band [P, u + 1] of a lower triangle, contiguous, in place.

    It returns 0, or the number, from 1, of the first pivot that is not positive.
    """
    call = _routine(cython_lapack, "dpbtrf", "ciiaii")
    if call is None:
        return int(lapack.dpbtrf(band.T, lower=1, overwrite_ab=1)[1])
    size, width = band.shape
    return _info(call, b"L", size, width - 1, band, width)


def potrf(matrix: Array) -> int:
    """Cholesky factorisation of the lower triangle of a matrix [n, n], in place; see `pbtrf` for what it returns."""
    call = _routine(cython_lapack, "dpotrf", "ciaii")
    if call is None:
        factor, info = lapack.dpotrf(matrix, lower=1, clean=0)
        matrix[:] = factor
        return int(info)
    return _info(call, b"L", len(matrix), matrix, _leading(matrix))


def divide(matrix: Array, factor: Array, *, transposed: bool) -> None:
    """B becomes B L⁻¹ or, transposed, B L⁻ᵀ, in place: B [m, n], L [n, n]."""
    call = _routine(cython_blas, "dtrsm", "cccciixaiai")
    if call is None:
        matrix[:] = blas.dtrsm(1.0, factor, matrix, side=1, lower=1, trans_a=int(transposed))
        return
    how = (b"R", b"L", b"T" if transposed else b"N", b"N")
    _call(call, *how, *matrix.shape, 1.0, factor, _leading(factor), matrix, _leading(matrix))


def downdate(matrix: Array, columns: Array) -> None:
    """The lower triangle of C becomes that of C − B Bᵀ, in place: C [n, n], B [n, k]."""
    call = _routine(cython_blas, "dsyrk", "cciixaixai")
    if call is None:
        matrix[:] = blas.dsyrk(-1.0, columns, beta=1.0, c=matrix, lower=1)
        return
    size, count = columns.shape
    _call(call, b"L", b"N", size, count, -1.0, columns, _leading(columns), 1.0, matrix, _leading(matrix))


def _leading(matrix: Array) -> int:
    """The distance of its columns, in numbers."""
    return max(matrix.strides[1] // matrix.itemsize, len(matrix), 1)


def _info(call: Callable[..., None], *arguments: Any) -> int:
    info = ctypes.c_int(0)
    _call(call, *arguments, ctypes.byref(info))
    return info.value


def _call(call: Callable[..., None], *arguments: Any) -> None:
    """Call a routine, which takes all numbers by their place."""
    call(*(_passed(argument) for argument in arguments))


def _passed(argument: Any) -> Any:
    if isinstance(argument, int):
        return ctypes.byref(ctypes.c_int(argument))
    if isinstance(argument, float):
        return ctypes.byref(ctypes.c_double(argument))
    return argument.ctypes.data if isinstance(argument, np.ndarray) else argument


@functools.lru_cache(maxsize=16)
def _routine(module: ModuleType, name: str, kinds: str) -> Callable[..., None] | None:
    """A routine that SciPy offers to Cython; None where its integers are not those of C.

    `numba.extending.get_cython_function_address` finds it too, but would import numba for every direct solve. The two
    functions of Python's are objects of our own, because prototypes set on `ctypes.pythonapi` are shared by all.
    """
    capsule = getattr(module, "__pyx_capi__", {}).get(name)
    if capsule is None:
        return None
    name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
    prototype = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    address_of = prototype(("PyCapsule_GetPointer", ctypes.pythonapi))
    signature = name_of(capsule)
    arguments = signature[signature.index(b"(") :].split(b", ")
    if [argument.count(b"int *") for argument in arguments] != [int(kind == "i") for kind in kinds]:
        return None
    function = ctypes.CFUNCTYPE(None, *(_KINDS[kind] for kind in kinds))
    return function(address_of(capsule, signature))
