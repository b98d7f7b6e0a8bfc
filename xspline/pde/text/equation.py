"""An equation as text, read into a response and terms that are linear in the parameters."""

from __future__ import annotations

import ast
import keyword
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xspline.labels.errors import unknown_name
from xspline.pde.text import expression
from xspline.pde.text.expression import FUNCTIONS, OPERATORS
from xspline.pde.text.symbols import CoordinateSymbol, KnownSymbol, Names, Shape, Symbol, Value, Varying


@dataclass(frozen=True)
class Power:
    """A parameter to a fixed power; without a name it is 1."""

    parameter: str = ""
    exponent: float = 0

    def __str__(self) -> str:
        return self.parameter if self.exponent == 1 else f"{self.parameter}**{self.exponent:g}"

    @property
    def constant(self) -> str:
        """The parameter, or the constant that varies of which it is a coefficient."""
        return self.parameter.partition("[")[0]

    def times(self, other: Power) -> Power:
        """Return the product, of which at most one may have a name, unless both have the same."""
        exponent = self.exponent + other.exponent
        return Power(self.parameter or other.parameter, exponent) if exponent else UNITY

    def to(self, exponent: float) -> Power:
        """Return the power of this power."""
        return Power(self.parameter, self.exponent * exponent) if self.parameter and exponent else UNITY


UNITY = Power()

#: A sum of products: each power of a parameter and the expression, free of parameters, that multiplies it.
Parts = dict[Power, ast.expr]


@dataclass(frozen=True, eq=False)
class Equation:
    """response = Σ power · factor, where everything but the parameters can be evaluated.

    `text` is as it was given, `response` has all terms without a parameter, left minus right, and `symbols` tell what
    each name means. There is one of `terms` for each parameter, in the order of the text: its power, and what
    multiplies it.
    """

    text: str
    response: ast.expr
    terms: Parts
    symbols: Mapping[str, Symbol]

    @property
    def values(self) -> tuple[Value, ...]:
        """The values and derivatives of the field that the equation needs."""
        return tuple(dict.fromkeys(s for s in self.symbols.values() if isinstance(s, Value)))

    @property
    def varying(self) -> dict[str, Varying]:
        """The constants that vary, by name."""
        return {s.varying.name: s.varying for s in self.symbols.values() if isinstance(s, Shape)}


#: A derivative of brackets as it is written, ``(D(x)*u_x)_x``, and as Python reads it, ``(D(x)*u_x)['_x']``.
_WRITTEN = re.compile(r"\)\s*_([A-Za-z]+)")
_READ = re.compile(r"(\b\w+)?\['_(\w+)'\]")


def parse(text: str, names: Names, *, with_parameters: bool = True) -> Equation:
    """Read an equation that uses all that is known or varies; see :func:`parse_all`."""
    return parse_all(text, names, with_parameters=with_parameters)[0]


def parse_all(
    given: str | Sequence[str], names: Names, *, with_parameters: bool = True
) -> tuple[Equation, ...]:
    """Read one or several equations that together use all that is known or varies.

    A text, for example ``"u_t + u*u_x = k*u_xx + S"``, has numbers, ``+ - * / **``, brackets, and functions of what
    is known. A parameter may be to a fixed power, ``c**2 * u_xx``; brackets may have derivatives, ``(D(x)*u_x)_x``.
    `names` are no parameters, of which there has to be one if `with_parameters`. It raises ValueError where a text is
    no equation, uses a name or function that means nothing, does not hold the field, a parameter or a term without one,
    or is not linear in its parameters.
    """
    texts = [given] if isinstance(given, str) or not isinstance(given, Sequence) else given
    if not texts:
        raise ValueError("there is no equation; pass text, such as 'u_t = D * u_xx', or a list of texts")
    equations = tuple(_parsed(text, names, with_parameters=with_parameters) for text in texts)
    where = f"equation {texts[0]!r}" if len(texts) == 1 else f"equations {list(texts)}"
    symbols = [symbol for equation in equations for symbol in equation.symbols.values()]
    used = {symbol.name for symbol in symbols if isinstance(symbol, KnownSymbol)}
    if unused := sorted(names.known - used):
        raise ValueError(f"{', '.join(unused)} in known= does not appear in the {where}")
    if unused := sorted(set(names.vary).difference(*(equation.varying for equation in equations))):
        raise ValueError(f"{', '.join(unused)} in vary= does not appear in the {where}")
    return equations


def _parsed(text: str, names: Names, *, with_parameters: bool) -> Equation:
    if not isinstance(text, str):
        raise TypeError(f"the equation has to be text, such as 'u_t = D * u_xx', not {type(text).__name__}")
    sides = text.split("=")
    if len(sides) != 2:
        count = "no '='" if len(sides) == 1 else f"{len(sides) - 1} signs '='"
        raise ValueError(f"the equation {text!r} has {count}; write for example 'u_t = D * u_xx'")
    for whole, stem, letter in re.findall(r"([d∂](\w+)\s*/\s*[d∂]([A-Za-z])\b)", text):
        if stem in names.stems and letter in names.letters:
            raise ValueError(f"{whole!r} in the equation {text!r} is a derivative, written {stem}_{letter}")
    trees = []
    for side in sides:
        try:
            trees.append(ast.parse(_WRITTEN.sub(r")['_\1']", side.strip()), mode="eval").body)
        except (SyntaxError, ValueError) as error:
            reason = (
                (_spelt(side) or str(getattr(error, "msg", error))) if side.strip() else "one side is empty"
            )
            raise ValueError(f"cannot read {side.strip()!r} in the equation {text!r}: {reason}") from None
    reader = _Reader(names)
    on_left, on_right = (reader.read(tree) for tree in trees)
    # The response goes to the left of the equals sign, the terms to the right: their signs are those of the usual text.
    response = expression.difference(on_left.pop(UNITY, None), on_right.pop(UNITY, None))
    powers = sorted({**on_left, **on_right}, key=lambda power: reader.order.index(power.parameter))
    if with_parameters and not powers:
        raise ValueError(
            f"the equation {text!r} has no parameter: every name in it is the field, a coordinate or known"
        )
    for name in dict.fromkeys(power.parameter for power in powers):
        several = [str(power) for power in powers if power.parameter == name]
        if len(several) > 1:
            raise ValueError(
                f"{name} enters as {' and as '.join(several)}, so {text!r} is not linear in it; use one power"
            )
    if response is None or (powers and expression.is_zero(response, names.zeros)):
        listed = ", ".join(dict.fromkeys(p.constant if "[" in p.parameter else str(p) for p in powers))
        raise ValueError(
            f"every term of {text!r} has a parameter ({listed}), which fixes their ratios alone; pass one in known="
        )
    if not any(isinstance(symbol, Value) for symbol in reader.symbols.values()):
        stems = ", ".join(f"{stem}_…" for stem in names.stems)
        raise ValueError(
            f"the equation {text!r} holds nothing of the field, whose values and derivatives are "
            f"{', '.join(names.stems)}, {stems}"
        )
    differences = {p: expression.difference(on_right.get(p), on_left.get(p)) for p in powers}
    terms = {power: factor for power, factor in differences.items() if factor is not None}
    return Equation(text, response, terms, reader.symbols)


def _spelt(side: str) -> str:
    """Return how something written as on paper is written here; empty where nothing is known."""
    if reserved := next((w for w in re.findall(r"[A-Za-z_]\w*", side) if keyword.iskeyword(w)), ""):
        return f"{reserved!r} is a word of Python; call the parameter something else, such as {reserved[:3]}"
    if braces := re.search(r"(\w*_)\{(\w*)\}", side):
        return f"{braces[0]!r} is written {braces[1]}{braces[2]}"
    if product := re.search(r"([\w.)]+)\s+([^\W_]\w*|\()|\b(\d+\.?\d*)([A-Za-z_(]\w*)", side):
        first, second = product[1] or product[3], product[2] or product[4]
        return f"{product[0]!r} is a product, written {first}*{second}"
    return ""


class _Reader:
    """Walks a side of an equation, noting what its names mean and in what order parameters appear."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.symbols: dict[str, Symbol] = {}
        self.order: list[str] = []
        self.varying: dict[str, tuple[str, Varying]] = {}

    def read(self, node: ast.expr) -> Parts:
        """Return an expression multiplied out into powers of parameters."""
        match node:
            case ast.Constant(value=int() | float()) if not isinstance(node.value, bool):
                return {UNITY: node}
            case ast.Name(id="pi") if "pi" not in self.names.known:
                return {UNITY: ast.Constant(math.pi)}
            case ast.Name(id=name):
                symbol = self.names.meaning(name)
                if symbol is not None:
                    self.symbols[name] = symbol
                    return {UNITY: ast.Name(name)}
                if name in self.names.vary:
                    raise ValueError(
                        f"{name} in vary= has to be written with its coordinates, such as {name}(x)"
                    )
                self.order.append(name)
                return {Power(name, 1): ast.Constant(1.0)}
            case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
                parts = self.read(operand)
                if isinstance(node.op, ast.UAdd):
                    return parts
                return {power: expression.negative(term) for power, term in parts.items()}
            case ast.BinOp() if type(node.op) in OPERATORS:
                return self._binary(node)
            case ast.Subscript(value=inner, slice=ast.Constant(value=str() as letters)) if letters[:1] == "_":
                return self._derivative(inner, letters[1:], node)
            case ast.Call(func=ast.Name(id=name)) if name in self.names.vary:
                return self._varying(name, node)
            case ast.Call(func=function):
                if not isinstance(function, ast.Name) or function.id not in FUNCTIONS:
                    name = ast.unparse(function)
                    advice = (
                        f"; a constant that varies needs vary={{{name!r}: 6}}, a basis or number of functions"
                    )
                    raise unknown_name(name, "function", FUNCTIONS, advice)
                if len(node.args) != 1 or node.keywords:
                    raise ValueError(f"{ast.unparse(node)!r}: {function.id} takes one argument")
                argument = self.read(node.args[0])
                if inside := _parameters(argument):
                    raise _not_linear(node, f"{inside} inside {function.id}")
                return {UNITY: ast.Call(ast.Name(function.id), [argument[UNITY]], [])}
        is_caret = isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitXor)
        hint = "; powers are written **" if is_caret else ""
        raise ValueError(f"{_shown(node)!r} is no arithmetic that an equation may hold{hint}")

    def _varying(self, name: str, node: ast.Call) -> Parts:
        """Return a constant that varies: a sum of constants times functions of coordinates."""
        letters = tuple(a.id for a in node.args if isinstance(a, ast.Name))
        text = _shown(node)
        before, varying = self.varying.get(name) or (text, self.names.varying(name, letters))
        if varying is None or len(letters) < len(node.args) or node.keywords:
            raise ValueError(f"{text!r}: {name} varies with coordinates alone, such as {name}(x)")
        if text != before:
            raise ValueError(f"{name} is written as {before} and as {text}; use one")
        self.varying[name] = text, varying
        parts: Parts = {}
        for index in varying.indices:
            parameter = varying.parameter(index)
            factor = f"{parameter}({', '.join(letters)})"
            self.symbols[factor] = Shape(varying, index, (0,) * len(letters))
            self.order.append(parameter)
            parts[Power(parameter, 1)] = ast.Name(factor)
        return parts

    def _derivative(self, inner: ast.expr, letters: str, node: ast.expr) -> Parts:
        """Return the derivative of an expression by the rules of products and chains."""
        parts = self.read(inner)
        if strangers := [letter for letter in letters if letter not in self.names.letters]:
            legend = ", ".join(self.names.letters) or "none"
            raise ValueError(
                f"{_shown(node)!r}: a derivative along {strangers[0]!r}, which is no coordinate here; the letters are "
                f"{legend}; pass dims={{letter: coordinate}} for others"
            )
        for letter in letters:
            derived = {power: self._along(factor, letter, node) for power, factor in parts.items()}
            parts = {power: factor for power, factor in derived.items() if factor is not None}
        return parts or {UNITY: ast.Constant(0.0)}

    def _along(self, factor: ast.expr, letter: str, node: ast.expr) -> ast.expr | None:
        """Return the derivative of an expression along a coordinate; None where it is zero."""
        total: ast.expr | None = None
        for name in dict.fromkeys(n.id for n in ast.walk(factor) if isinstance(n, ast.Name)):
            symbol = self.symbols.get(name)
            outer = None if symbol is None else expression.differentiate(factor, name)
            if symbol is None or outer is None:
                continue
            term = outer
            if not isinstance(symbol, CoordinateSymbol):
                try:
                    inner = self.names.derivative(name, symbol, letter)
                except ValueError as error:
                    raise ValueError(f"{_shown(node)} {error}") from None
                if inner is None:
                    continue
                self.symbols[inner[0]] = inner[1]
                term = expression.binary(outer, ast.Mult(), ast.Name(inner[0]))
            elif symbol.name != self.names.letters[letter]:
                continue
            total = term if total is None else ast.BinOp(total, ast.Add(), term)
        return total

    def _binary(self, node: ast.BinOp) -> Parts:
        left, right = self.read(node.left), self.read(node.right)
        match node.op:
            case ast.Add() | ast.Sub():
                return _sum(left, node.op, right)
            case ast.Pow():
                if _parameters(right):
                    raise _not_linear(node, f"{_parameters(right)} in an exponent")
                exponent = expression.constant(right[UNITY])
                if not _parameters(left):
                    power = right[UNITY] if exponent is None else ast.Constant(exponent)
                    return {UNITY: expression.binary(left[UNITY], ast.Pow(), power)}
                if exponent is None:
                    raise _not_linear(node, f"{_parameters(left)} to a power that is not a number")
                return _power(left, exponent, node)
            case ast.Div():
                if len(right) > 1:
                    raise _not_linear(node, f"a sum that holds {_parameters(right)} divides")
                right = {power.to(-1): factor for power, factor in right.items()}
        return _product(left, right, node)


def _sum(left: Parts, op: ast.operator, right: Parts) -> Parts:
    total = dict(left)
    for power, term in right.items():
        if power in total:
            total[power] = expression.binary(total[power], op, term)
        else:
            total[power] = term if isinstance(op, ast.Add) else expression.negative(term)
    return total


def _product(left: Parts, right: Parts, node: ast.BinOp) -> Parts:
    """Return a product or quotient multiplied out; powers of a divisor have their sign turned already."""
    op = node.op if isinstance(node.op, ast.Div) else ast.Mult()
    total: Parts = {}
    for p, e in left.items():
        for q, f in right.items():
            if p.parameter and q.parameter and p.parameter != q.parameter:
                raise _not_linear(node, f"{p.constant} and {q.constant} multiply each other")
            total = _sum(total, ast.Add(), {p.times(q): expression.binary(e, op, f)})
    return total


def _power(base: Parts, exponent: float, node: ast.BinOp) -> Parts:
    """Return a sum to a fixed power: one term to any, several to whole ones unless they hold no parameter."""
    if len(base) == 1:
        ((power, factor),) = base.items()
        return {power.to(exponent): expression.binary(factor, ast.Pow(), ast.Constant(float(exponent)))}
    if exponent < 1 or exponent != int(exponent) or exponent > 8:
        raise _not_linear(node, f"a sum that holds {_parameters(base)} to the power {exponent:g}")
    return base if exponent == 1 else _product(base, _power(base, exponent - 1, node), node)


def _parameters(parts: Parts) -> str:
    """Return the names of the parameters, for messages; empty if there are none."""
    return " and ".join(dict.fromkeys(power.constant for power in parts if power.parameter))


def _shown(node: ast.expr) -> str:
    return _READ.sub(lambda m: f"({m[1]})_{m[2]}" if m[1] else f"_{m[2]}", ast.unparse(node))


def _not_linear(node: ast.expr, why: str) -> ValueError:
    return ValueError(
        f"{_shown(node)!r} is not linear in its parameters: {why}; pass all but one in known=, "
        f"or write the equation with one parameter a term (derivatives are written u_xx)"
    )
