"""Arithmetic on syntax trees: built by hand, evaluated by a walk over nodes that are known, never by Python itself."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

#: Functions that an equation may call, of one argument each.
FUNCTIONS: Mapping[str, Callable[[Any], Any]] = {
    name: getattr(np, name) for name in ("sin", "cos", "tan", "exp", "log", "sqrt", "tanh", "abs")
}
#: What derivatives of these may call too.
FUNCTIONS_AND_SIGN: Mapping[str, Callable[[Any], Any]] = {**FUNCTIONS, "sign": np.sign}

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
    functions: Mapping[str, Callable[[Any], Any]] = FUNCTIONS_AND_SIGN,
    number: Callable[[float], Any] = np.float64,
) -> Any:
    """Return the value of an expression whose names have `values`; these decide what the operators do.

    The node consists of names, numbers, the five operators, signs, and calls of `functions`; `number` makes the value
    of a literal.
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


def names_in(node: ast.AST) -> set[str]:
    """Return all names in an expression, those of functions too."""
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def constant(node: ast.expr) -> float | None:
    """Return the value of an expression of numbers alone; None if it holds a name or overflows."""
    if names_in(node):
        return None
    with np.errstate(all="ignore"):
        value = float(evaluate(node, {}))
    return value if np.isfinite(value) else None


def is_zero(node: ast.expr, zeros: Collection[str]) -> bool:
    """Return whether an expression is zero wherever it is looked at, because of numbers and of names that are zero."""
    match node:
        case ast.Constant(value=value):
            return value == 0
        case ast.Name(id=name):
            return name in zeros
        case ast.UnaryOp(operand=operand):
            return is_zero(operand, zeros)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return is_zero(left, zeros) or is_zero(right, zeros)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
            return is_zero(left, zeros) and is_zero(right, zeros)
        case ast.BinOp(left=left, op=ast.Div()):
            return is_zero(left, zeros)
    return False


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


def differentiate(node: ast.expr, name: str) -> ast.expr | None:
    """Return the derivative of an expression by one of its names; None where it is zero everywhere.

    It may call ``sign``, which an equation may not.
    """
    match node:
        case ast.Name(id=other):
            return ast.Constant(1.0) if other == name else None
        case ast.UnaryOp(op=op, operand=operand):
            inner = differentiate(operand, name)
            return negative(inner) if inner is not None and isinstance(op, ast.USub) else inner
        case ast.BinOp(left=left, op=op, right=right):
            return _of_operator(left, op, right, differentiate(left, name), differentiate(right, name))
        case ast.Call(func=ast.Name(id=function), args=[argument]):
            inner = differentiate(argument, name)
            return None if inner is None else binary(_outer_derivative(function, argument), ast.Mult(), inner)
    return None


def _of_operator(
    left: ast.expr, op: ast.operator, right: ast.expr, by_left: ast.expr | None, by_right: ast.expr | None
) -> ast.expr | None:
    """Return the derivative of ``left op right`` from those of both sides."""
    match op:
        case ast.Add():
            return by_left if by_right is None else _sum(by_left, by_right)
        case ast.Sub():
            return None if by_left is None and by_right is None else difference(by_left, by_right)
        case ast.Mult():
            return _sum(_product(by_left, right), _product(by_right, left))
        case ast.Div():
            over = None if by_left is None else binary(by_left, ast.Div(), right)
            square = ast.BinOp(right, ast.Pow(), ast.Constant(2.0))
            under = (
                None if by_right is None else binary(binary(by_right, ast.Mult(), left), ast.Div(), square)
            )
            return None if over is None and under is None else difference(over, under)
    exponent = binary(right, ast.Sub(), ast.Constant(1.0)) if constant(right) is None else None
    lowered = exponent or ast.Constant((constant(right) or 0.0) - 1.0)
    factor = binary(right, ast.Mult(), binary(left, ast.Pow(), lowered))
    power = ast.BinOp(left, ast.Pow(), right)
    logarithm = ast.Call(ast.Name("log"), [left], [])
    return _sum(_product(by_left, factor), _product(by_right, binary(power, ast.Mult(), logarithm)))


def _outer_derivative(function: str, argument: ast.expr) -> ast.expr:
    """Return the derivative of a function of one argument, at an argument."""

    def of(name: str) -> ast.expr:
        return ast.Call(ast.Name(name), [argument], [])

    def square(node: ast.expr) -> ast.expr:
        return ast.BinOp(node, ast.Pow(), ast.Constant(2.0))

    unity = ast.Constant(1.0)
    match function:
        case "sin":
            return of("cos")
        case "cos":
            return negative(of("sin"))
        case "tan":
            return ast.BinOp(unity, ast.Add(), square(of("tan")))
        case "exp":
            return of("exp")
        case "log":
            return ast.BinOp(unity, ast.Div(), argument)
        case "sqrt":
            return ast.BinOp(ast.Constant(0.5), ast.Div(), of("sqrt"))
        case "tanh":
            return ast.BinOp(unity, ast.Sub(), square(of("tanh")))
        case "abs":
            return of("sign")
    raise TypeError(f"{function} has no derivative here")


def _sum(left: ast.expr | None, right: ast.expr | None) -> ast.expr | None:
    """Return ``left + right``, where None is zero."""
    if left is None or right is None:
        return right if left is None else left
    return ast.BinOp(left, ast.Add(), right)


def _product(left: ast.expr | None, right: ast.expr) -> ast.expr | None:
    """Return ``left * right``, where None is zero."""
    return None if left is None else binary(left, ast.Mult(), right)
