"""Terms of low order that an equation may lack."""

from __future__ import annotations

import ast
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from xspline.pde.text.equation import Equation
from xspline.pde.text.symbols import Names, Value


@dataclass(frozen=True)
class LowTerm:
    """A product of a field and its derivatives.

    `text` is as an equation has it, with its constant: ``k*u*u_x``. `factors` are those of the product, none of a
    constant source; `constant` is the name of its constant, which means nothing else, and `code` the line that asks for
    the equations with this term.
    """

    text: str
    factors: tuple[Value, ...]
    constant: str
    code: str


def low_terms(equations: Sequence[Equation], names: Names, arguments: str) -> list[list[LowTerm]]:
    """Return for each equation what it may lack: 1, u, u², and of each coordinate u_x, u_xx and on, and u u_x.

    The order of a derivative goes to one more than that of the equations, and at least to the second; along time it
    stays below theirs, as one more would say what the equation says already. `arguments` have what is known, varies or
    has letters, as Python, of the line of code.
    """
    words = {word for equation in equations for word in re.findall(r"\w+", equation.text)}
    constants = itertools.chain("k", (f"k{number}" for number in itertools.count(1)))
    constant = next(name for name in constants if name not in words and names.meaning(name) is None)
    out = []
    for i, equation in enumerate(equations):
        there = {ast.unparse(factor).replace(" ", "") for factor in equation.terms.values()}
        own = []
        for text in dict.fromkeys(_products(equation, names)):
            if text in there:
                continue
            try:
                meanings = [names.meaning(name) for name in text.split("*")] if text != "1" else []
            except ValueError:  # the order is above the degree of the basis
                continue
            term = constant if text == "1" else f"{constant}*{text}"
            texts = [e.text + (f" + {term}" if i == j else "") for j, e in enumerate(equations)]
            factors = tuple(m for m in meanings if isinstance(m, Value))
            own.append(LowTerm(term, factors, constant, f"data.spline.{recover_code(texts, arguments)}"))
        out.append(own)
    return out


def recover_code(texts: Sequence[str], arguments: str) -> str:
    """Return the call that asks data or a field for the constants of equations."""
    return (
        f"recover({json.dumps(texts[0] if len(texts) == 1 else list(texts), ensure_ascii=False)}{arguments})"
    )


def _products(equation: Equation, names: Names) -> Iterator[str]:
    """Yield the terms of low order as text."""
    yield "1"
    letters = {coordinate: letter for letter, coordinate in reversed(list(names.letters.items()))}
    values = {name: symbol for name, symbol in equation.symbols.items() if isinstance(symbol, Value)}
    for stem in dict.fromkeys(name if name in names.stems else name.rpartition("_")[0] for name in values):
        yield stem
        yield f"{stem}*{stem}"
        for coordinate, letter in letters.items():
            highest = max(dict(value.orders).get(coordinate, 0) for value in values.values())
            time = letter == "t"
            for order in range(1, highest if time else max(highest + 1, 2) + 1):
                yield f"{stem}_{letter * order}"
            if not time:
                yield f"{stem}*{stem}_{letter}"
