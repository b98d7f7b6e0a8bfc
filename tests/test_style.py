"""Sizes, words and errors of the source, held by reading it. One test a rule; each lists everything that breaks it."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.source import FILES, ROOT, functions, nodes_of, place, text_of, tree_of

MAX_BODY, MAX_FILES_OF_A_FOLDER = 60, 10
MAX_LINES = 46_805  # of the whole package; a feature that makes it longer is named in the commit
MAX_CONSTANTS = 150  # numbers in capitals at module level, of the whole package: this only falls

# What the value of a constant may be made of.
OPERATIONS = ast.BinOp | ast.UnaryOp | ast.operator | ast.unaryop
ARITHMETIC = OPERATIONS | ast.Constant | ast.Tuple | ast.Attribute | ast.Name | ast.expr_context

TESTS = sorted((ROOT / "tests").rglob("*.py"))
MAX_TEST_LINES = 27_342  # of all tests: a feature whose tests make them longer is named in the commit


def test_functions_are_at_most_sixty_lines() -> None:
    """Without the docstring."""
    long = [
        f"{place(path, node)} {node.name}: {lines}"
        for path in FILES
        for node, lines in functions(path)
        if lines > MAX_BODY
    ]
    assert not long


def test_folders_hold_at_most_ten_files() -> None:
    counts = Counter(str(path.parent.relative_to(ROOT)) for path in FILES)
    assert not {folder: count for folder, count in counts.items() if count > MAX_FILES_OF_A_FOLDER}


def test_the_package_stays_small() -> None:
    lines = sum(text_of(path).count("\n") for path in FILES)
    assert lines <= MAX_LINES, f"{lines:,} lines in {len(FILES)} files"


def test_the_tests_stay_small() -> None:
    lines = sum(path.read_text(encoding="utf-8").count("\n") for path in TESTS)
    assert lines <= MAX_TEST_LINES, f"{lines:,} lines in {len(TESTS)} files of tests"


def _constants(path: Path) -> list[str]:
    """The names of the numbers, and tuples of numbers, that a module assigns in capitals."""
    names: list[str] = []
    for node in tree_of(path).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        parts = list(ast.walk(node.value))
        numbers = [
            part for part in parts if isinstance(part, ast.Constant) and type(part.value) in (int, float)
        ]
        if not numbers or not all(isinstance(part, ARITHMETIC) for part in parts):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        named = [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
        names += [name for name in named if name.strip("_").isupper()]
    return names


def test_constants_become_fewer() -> None:
    """Each number that was chosen is one that somebody has to choose again when the code around it changes."""
    counts = {path: len(_constants(path)) for path in FILES}
    total = sum(counts.values())
    most = sorted(counts.items(), key=lambda item: -item[1])[:5]
    assert total <= MAX_CONSTANTS, f"{total} constants; {[(place(path, 1), n) for path, n in most]}"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("A = 3", ["A"]),
        ("A, B = 1, 2.5", ["A", "B"]),
        ("A: int = 2**20 - 1", ["A"]),
        ("A = (1, 2)", ["A"]),
        ("A = 'text'", []),
        ("A = True", []),
        ("A = {'a': 1}", []),
        ("a = 3", []),
    ],
)
def test_constants_are_recognised(tmp_path: Path, text: str, names: list[str]) -> None:
    path = tmp_path / "example.py"
    path.write_text(text)
    assert _constants(path) == names


def test_no_assert_as_validation() -> None:
    assert not [
        place(path, node) for path in FILES for node in nodes_of(path) if isinstance(node, ast.Assert)
    ]


def test_raises_are_matched() -> None:
    """An error whose text no test matches drifts away from what the code does."""
    bare = [
        place(path, node)
        for path in TESTS
        for node in nodes_of(path)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"raises", "warns"}
        and ast.unparse(node.func.value) == "pytest"
        and "match" not in {keyword.arg for keyword in node.keywords}
    ]
    assert not bare


# A string that ends in a letter, a line break, and a string that goes on with one.
GLUED = re.compile(r"""[^\s\\(\[{"'][}]?["'][ \t]*\n[ \t]*[rfRF]{0,2}["'][^\s.,;:)\]}"'\\]""")


def test_strings_are_not_glued() -> None:
    glued = [
        place(path, text_of(path).count("\n", 0, hit.start()) + 1)
        for path in FILES
        for hit in GLUED.finditer(text_of(path))
    ]
    assert not glued


@pytest.mark.parametrize(
    ("text", "glued"),
    [
        ('raise ValueError("first"\n    "second")', True),
        ('raise ValueError(f"first {x}"\n    f"second")', True),
        ('raise ValueError("first "\n    "second")', False),
        ('raise ValueError("first"\n    ", second")', False),
        ('f("first",\n    "second")', False),
    ],
)
def test_glued_strings_are_recognised(text: str, glued: bool) -> None:
    assert bool(GLUED.search(text)) is glued
