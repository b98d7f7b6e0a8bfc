"""The source of the package as text and syntax trees, for the tests that read it."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "xspline"
FILES = sorted(PACKAGE.rglob("*.py"))


@functools.cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path))


@functools.cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """All of a tree, as `ast.walk` gives it: a dozen rules go through the same files."""
    return tuple(ast.walk(tree_of(path)))


def name_of(path: Path) -> str:
    """The dotted name of the module in a file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in FILES}


def room_of(module: str) -> str:
    """The room of a module: `solve` of `xspline.solve.direct.band`, nothing of the package itself."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def place(path: Path, node: ast.AST | int) -> str:
    """`file:line`, as editors and terminals open it."""
    return f"{path.relative_to(ROOT)}:{node if isinstance(node, int) else node.lineno}"


def absolute(node: ast.ImportFrom, path: Path) -> str:
    """The module that a `from … import` names, relative dots resolved."""
    if not node.level:
        return node.module or ""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    return ".".join([*package[: len(package) - node.level + 1], *filter(None, [node.module])])


def imports(path: Path) -> Iterator[tuple[str, ast.stmt]]:
    """Every import of a file, those inside functions and under TYPE_CHECKING too, as (module.name, node)."""
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = absolute(node, path)
            yield from ((f"{module}.{alias.name}", node) for alias in node.names)


def functions(path: Path) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, int]]:
    """Each function of a file, with the lines of its body without the docstring."""
    for node in nodes_of(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
            yield node, node.end_lineno - body[0].lineno + 1 if body else 0
