"""Eight numbers as one, for compiled loops whose sums have to stay in registers: plain loops go through memory.

Functions here are defined by what they do with NumPy's arrays of eight numbers, and so they run where nothing is
compiled. In compiled code each is an instruction of LLVM, which knows how to do it on every processor.

Numba's cache on disk does not notice a change of this file: touch those that use it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import lower_builtin, models, register_model, type_callable

from xspline.kernels.block import Floats

LANES = 8  # numbers: the widest registers of today hold 64 bytes
# Lines of values at a time: their sums, 16 KiB for four functions, and errors stay in a core's cache. Sums of float32
# values take 12 % longer with 256 and as long with 1024 (`benchmarks coverage --parts ar1`).
COLUMNS = 512


def get(array: Floats, place: int) -> float:
    """One number of a contiguous array [n]; `array[place]` would ask first whether the place is negative."""
    return float(array[place])


def put(array: Floats, place: int, x: float) -> None:
    """Write one number in a contiguous array [n]."""
    array[place] = x


def load(array: Floats, place: int) -> Floats:
    """Eight neighbours in a contiguous array [n]."""
    return array[place : place + LANES].copy()


def store(array: Floats, place: int, lanes: Floats) -> None:
    """Write eight neighbours in a contiguous array [n]."""
    array[place : place + LANES] = lanes


def spread(x: float) -> Floats:
    """Eight times the same number."""
    return np.full(LANES, x)


def product(a: Floats, b: Floats) -> Floats:
    """Eight products."""
    return a * b


def add_product(total: Floats, a: Floats, b: Floats) -> Floats:
    """Eight products, added to eight totals."""
    return total + a * b


def lowest_bit(word: int) -> int:
    """Place of the lowest bit that is set; there has to be one."""
    return (int(word) & -int(word)).bit_length() - 1


# The same as instructions

_VECTOR = ir.VectorType(ir.DoubleType(), LANES)
_POINTER = _VECTOR.as_pointer()


class _Lanes(types.Type):
    pass


_LANES = _Lanes("Lanes")


@register_model(_Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _VECTOR)


def _instruction(function: Callable[..., Any], result: Any, write: Callable[..., Any]) -> None:
    """Let `write` emit what compiled code does for a function: a pointer stands for an array and a place."""

    @lower_builtin(function, types.VarArg(types.Any))
    def _(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if isinstance(signature.args[0], types.Array):
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            arguments = builder.gep(array.data, [arguments[1]]), *arguments[2:]
        written = write(builder, *arguments)
        return context.get_dummy_value() if result is types.none else written

    type_callable(function)(lambda context: functools.wraps(function)(lambda *given: result))


def _spread(builder: Any, x: Any) -> Any:
    nothing, first = ir.Constant(_VECTOR, ir.Undefined), ir.Constant(ir.IntType(32), 0)
    everywhere = ir.Constant(ir.VectorType(ir.IntType(32), LANES), None)
    return builder.shuffle_vector(builder.insert_element(nothing, x, first), nothing, everywhere)


_FUSED = ("contract",)
_instruction(get, types.float64, lambda do, place: do.load(place))
_instruction(put, types.none, lambda do, place, x: do.store(x, place))
_instruction(load, _LANES, lambda do, place: do.load(do.bitcast(place, _POINTER), align=8))
_instruction(store, types.none, lambda do, place, x: do.store(x, do.bitcast(place, _POINTER), align=8))
_instruction(spread, _LANES, _spread)
_instruction(product, _LANES, lambda do, a, b: do.fmul(a, b, flags=_FUSED))
_instruction(add_product, _LANES, lambda do, c, a, b: do.fadd(c, do.fmul(a, b, flags=_FUSED), flags=_FUSED))
_instruction(lowest_bit, types.int64, lambda do, word: do.cttz(word, ir.Constant(ir.IntType(1), 1)))
