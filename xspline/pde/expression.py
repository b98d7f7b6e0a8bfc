"""Arithmetic on syntax trees: built by hand, evaluated by a walk over nodes that are known, never by Python itself."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

#: Functions that an equation may call, of one argument each.
FUNCTIONS: Mapping[str, Callable[[Any], Any]] = {
    name: getattr(np, name) for name in ("sin", "cos", "tan", "exp", "log", "sqrt", "tanh", "abs")
}
OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


def evaluate(
    node: ast.expr,
    values: Mapping[str, Any],
    functions: Mapping[str, Callable[[Any], Any]] = FUNCTIONS,
    number: Callable[[float], Any] = np.float64,
) -> Any:
    """Return the value of an expression whose names have `values`; these decide what the operators do.

    Parameters
    ----------
    node : of names, numbers, the five operators, signs, and calls of `functions`.
    number : what a literal becomes.
    """
    match node:
        case ast.Constant(value=value):
            return number(float(value))  # type: ignore[arg-type]
        case ast.Name(id=name):
            return values[name]
        case ast.UnaryOp(op=op, operand=operand):
            inner = evaluate(operand, values, functions, number)
            return -inner if isinstance(op, ast.USub) else inner
        case ast.BinOp(left=left, op=op, right=right):
            sides = (evaluate(side, values, functions, number) for side in (left, right))
            return OPERATORS[type(op)](*sides)
        case ast.Call(func=ast.Name(id=name), args=[argument]):
            return functions[name](evaluate(argument, values, functions, number))
    raise TypeError(f"{ast.unparse(node)} is no expression of an equation")


def constant(node: ast.expr) -> float | None:
    """Return the value of an expression of numbers alone; None if it holds a name or overflows."""
    if any(isinstance(inner, ast.Name) for inner in ast.walk(node)):
        return None
    with np.errstate(all="ignore"):
        value = float(evaluate(node, {}))
    return value if np.isfinite(value) else None


def binary(left: ast.expr, op: ast.operator, right: ast.expr) -> ast.expr:
    """Return ``left op right``; a factor, divisor or power of one is left out."""
    left_is_one, right_is_one = (isinstance(x, ast.Constant) and x.value == 1 for x in (left, right))
    if right_is_one and isinstance(op, ast.Mult | ast.Div | ast.Pow):
        return left
    if left_is_one and isinstance(op, ast.Mult | ast.Pow):
        return right if isinstance(op, ast.Mult) else left
    return ast.BinOp(left, op, right)


def negative(node: ast.expr) -> ast.expr:
    """Return ``-node``."""
    return ast.UnaryOp(ast.USub(), node)


def difference(left: ast.expr | None, right: ast.expr | None) -> ast.expr | None:
    """Return ``left - right``, where None is zero."""
    if right is None:
        return left
    return negative(right) if left is None else binary(left, ast.Sub(), right)
