"""Eight numbers as one, for compiled loops whose sums have to stay in registers: plain loops go through memory.

Functions here are defined by what they do with NumPy's arrays of eight numbers, and so they run where nothing is
compiled. In compiled code each is an instruction of LLVM, which knows how to do it on every processor.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import lower_builtin, models, register_model, type_callable

from xspline.kernels.block import Floats

LANES = 8  # numbers: the widest registers of today hold 64 bytes


def load(array: Floats, place: int) -> Floats:
    """Eight neighbours in a contiguous array [n]."""
    return array[place : place + LANES].copy()


def store(array: Floats, place: int, lanes: Floats) -> None:
    """Write eight neighbours in a contiguous array [n]."""
    array[place : place + LANES] = lanes


def get(array: Floats, place: int) -> float:
    """One number of a contiguous array [n]; `array[place]` would ask first whether the place is negative."""
    return float(array[place])


def put(array: Floats, place: int, x: float) -> None:
    """Write one number in a contiguous array [n]."""
    array[place] = x


def spread(x: float) -> Floats:
    """Eight times the same number."""
    return np.full(LANES, x)


def product(a: Floats, b: Floats) -> Floats:
    """Eight products."""
    return a * b


def add_product(total: Floats, a: Floats, b: Floats) -> Floats:
    """Eight products, added to eight totals."""
    return total + a * b


# The same in LLVM's language

_VECTOR = ir.VectorType(ir.DoubleType(), LANES)


class _Lanes(types.Type):
    pass


_LANES = _Lanes("Lanes")


@register_model(_Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _VECTOR)


def _place(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    return builder.gep(array.data, [arguments[1]])


@lower_builtin(get, types.Array, types.Integer)
def _get(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return builder.load(_place(context, builder, signature, arguments))


@lower_builtin(put, types.Array, types.Integer, types.Float)
def _put(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    builder.store(arguments[2], _place(context, builder, signature, arguments))
    return context.get_dummy_value()


@lower_builtin(load, types.Array, types.Integer)
def _load(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    place = _place(context, builder, signature, arguments)
    return builder.load(builder.bitcast(place, _VECTOR.as_pointer()), align=8)


@lower_builtin(store, types.Array, types.Integer, _Lanes)
def _store(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    place = _place(context, builder, signature, arguments)
    builder.store(arguments[2], builder.bitcast(place, _VECTOR.as_pointer()), align=8)
    return context.get_dummy_value()


@lower_builtin(spread, types.Float)
def _spread(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    nothing, first = ir.Constant(_VECTOR, ir.Undefined), ir.Constant(ir.IntType(32), 0)
    everywhere = ir.Constant(ir.VectorType(ir.IntType(32), LANES), None)
    return builder.shuffle_vector(builder.insert_element(nothing, arguments[0], first), nothing, everywhere)


@lower_builtin(product, _Lanes, _Lanes)
def _product(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return builder.fmul(*arguments)


@lower_builtin(add_product, _Lanes, _Lanes, _Lanes)
def _add_product(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    kind, (total, a, b) = ir.FunctionType(_VECTOR, [_VECTOR] * 3), arguments
    fused = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fmuladd.v{LANES}f64")
    return builder.call(fused, [a, b, total])


type_callable(get)(lambda context: lambda array, place: types.float64)
type_callable(put)(lambda context: lambda array, place, x: types.none)
type_callable(load)(lambda context: lambda array, place: _LANES)
type_callable(store)(lambda context: lambda array, place, lanes: types.none)
type_callable(spread)(lambda context: lambda x: _LANES)
type_callable(product)(lambda context: lambda a, b: _LANES)
type_callable(add_product)(lambda context: lambda total, a, b: _LANES)
