"""Candidate terms of an equation: all products of powers and derivatives, or those that a user lists."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from xspline.pde.text.equation import Equation, parse
from xspline.pde.text.expression import FUNCTIONS, names_in
from xspline.pde.text.symbols import Names, Value


def default_terms(response: str, names: Names, order: int | None, power: int | None) -> list[str]:
    """Return u^a ∂ᵏu for a up to `power` and k up to `order`.

    Derivatives go along the coordinates that the response is no derivative along. Along its own coordinate there are
    derivatives of lower order: `u_t` is a candidate where the response is `u_tt`. Of several variables there are all
    products of up to `power` of them, and the derivatives of each, alone and times one variable. It raises ValueError
    where the response is not one derivative, some coordinate has no letter, or a number is not whole.
    """
    order = _whole("order", order)
    power = _whole("power", power)
    stem, _, suffix = response.strip().rpartition("_")
    meaning = names.meaning(response.strip()) if stem in names.stems else None
    if not isinstance(meaning, Value) or len(meaning.orders) != 1:
        raise ValueError(
            f"the response {response!r} is no derivative along one coordinate, such as 'u_t' or 'u_tt', so that there "
            "are no default candidates; pass terms=[...]"
        )
    letters: dict[str, str] = {}
    for letter, name in names.letters.items():
        letters.setdefault(name, letter)
    if missing := [name for name in names.space.names if name not in letters]:
        raise ValueError(
            f"{missing[0]!r} has no letter; pass dims={{letter: {missing[0]!r}}}, or terms=[...]"
        )
    own = names.letters[suffix[0]]
    others = [letters[name] for name in names.space.names if name != own]
    derivatives = [
        "".join(combination)
        for k in range(order + 1)
        for combination in itertools.combinations_with_replacement(others, k)
    ]
    derivatives += [suffix[0] * k for k in range(1, len(suffix))]
    own_name = names.stems[stem]
    besides = [name for name, variable in names.stems.items() if name == variable != own_name]
    stems = [stem, *(name for name in besides if name.isidentifier())]
    beside = power if len(stems) == 1 else min(power, 1)  # powers beside a derivative
    terms = _products(stems, power)
    for derivative in derivatives[1:]:
        for factor in stems:
            terms += ["*".join(filter(None, (p, f"{factor}_{derivative}"))) for p in _products(stems, beside)]
    return [term or "1" for term in terms]


def _products(stems: Sequence[str], power: int) -> list[str]:
    """Return the products of up to `power` variables, from the empty one."""
    products = []
    for total in range(power + 1):
        for drawn in itertools.combinations_with_replacement(stems, total):
            counts = {stem: drawn.count(stem) for stem in dict.fromkeys(drawn)}
            products.append("*".join(s if n == 1 else f"{s}**{n}" for s, n in counts.items()))
    return products


@dataclass(frozen=True, eq=False)
class Candidates:
    """An equation that has all candidate terms, each of them with a constant."""

    response: str
    terms: tuple[str, ...]
    equation: Equation

    def narrowed(self, subset: Sequence[int]) -> Equation:
        """Return the equation of some of the terms, with constants numbered anew and the names that it needs."""
        powers = list(self.equation.terms)
        factors = list(self.equation.terms.values())
        terms = {power: factors[i] for power, i in zip(powers, subset, strict=False)}
        sides = (self.equation.response, *terms.values())
        used = set().union(*map(names_in, sides))
        symbols = {name: symbol for name, symbol in self.equation.symbols.items() if name in used}
        return replace(self.equation, text=self.recovering(subset), terms=terms, symbols=symbols)

    def recovering(self, subset: Sequence[int]) -> str:
        """Return the equation as text, from which ``recover`` finds the constants of some terms."""
        texts = [self.terms[i] for i in subset]
        both = zip(self.equation.terms, texts, strict=False)
        parts = [str(power) if text == "1" else f"{power}*{_factor(text)}" for power, text in both]
        return f"{self.response} = {' + '.join(parts) or '0'}"

    def written(self, subset: Sequence[int], values: Sequence[float]) -> str:
        """Return an equation with its constants as numbers."""
        parts = []
        for i, value in zip(subset, values, strict=True):
            size = f"{abs(value):.5g}"
            term = size if self.terms[i] == "1" else f"{size}*{_factor(self.terms[i])}"
            parts.append(("-" if value < 0 else "+", term))
        text = " ".join(f"{sign} {term}" for sign, term in parts).removeprefix("+ ") or "0"
        return f"{self.response} = {'-' + text[2:] if text.startswith('- ') else text}"


def library(response: str, terms: Sequence[str], names: Names) -> Candidates:
    """Return the equation that has all terms.

    It raises ValueError where a term or the response holds a name without meaning, or there are too few or equal terms.
    """
    if isinstance(terms, str) or not isinstance(terms, Sequence) or not terms:
        raise ValueError(f"terms has to be a list of texts, such as ['u*u_x', 'u_xx'], not {terms!r}")
    plain = [_expression(term, names, "candidate") for term in terms]
    if twice := sorted({term for term in plain if plain.count(term) > 1}):
        raise ValueError(f"the candidate {twice[0]!r} is there twice; give each term once")
    left = _expression(response, names, "response")
    if left in plain:
        raise ValueError(f"the candidate {left!r} is the response itself; leave it out")
    sides = " + ".join(
        f"{name}*({term})" for name, term in zip(constants(len(plain), names), plain, strict=True)
    )
    return Candidates(left, tuple(plain), parse(f"{left} = {sides}", names))


def constants(count: int, names: Names) -> list[str]:
    """Return names of constants that mean nothing else."""
    for letter in ("k", "constant", "coefficient"):
        numbered = [f"{letter}{i + 1}" for i in range(count)]
        if not any(
            name in names.known or name in names.stems or name in names.space.names for name in numbered
        ):
            return numbered
    raise ValueError(
        "k1, constant1 and coefficient1 all have a meaning; rename what is known or the variables"
    )


def _expression(text: str, names: Names, what: str) -> str:
    """Return an expression in one spelling."""
    if not isinstance(text, str):
        raise TypeError(f"a {what} has to be text, such as 'u*u_x', not {type(text).__name__}")
    if "=" in text:
        raise ValueError(f"the {what} {text!r} holds '='; discover looks for that side of the equation")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"cannot read the {what} {text!r}: {getattr(error, 'msg', error)}") from None
    called = {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    used = names_in(tree) - (called & set(FUNCTIONS)) - {"pi"}
    for name in sorted(used):
        if names.meaning(name) is None:
            raise ValueError(
                f"the {what} {text!r} holds {name}, which is no variable, derivative, coordinate or known: terms "
                f"have no constants, discover finds them; pass known={{{name!r}: ...}} if it is one"
            )
    return ast.unparse(tree).replace(" ", "")


def _factor(term: str) -> str:
    """Return a term in brackets where it is a sum."""
    tree = ast.parse(term, mode="eval").body
    is_sum = (isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Add | ast.Sub)) or isinstance(
        tree, ast.UnaryOp
    )
    return f"({term})" if is_sum else term


def _whole(what: str, value: int | None) -> int:
    """Return a whole number; the default of orders and powers where it is not given."""
    if value is None:
        return 3  # KdV needs u_xxx
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{what}={value!r} has to be a whole number, 0 or more")
    return value
