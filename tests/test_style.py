"""Sizes, words and errors of the source, held by reading it. One test a rule; each lists everything that breaks it."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.source import (
    FILES,
    PACKAGE,
    ROOT,
    functions,
    identifiers,
    name_of,
    nodes_of,
    place,
    room_of,
    text_of,
)

MAX_BODY, MAX_FILES_OF_A_FOLDER = 60, 10
MAX_LINES, MAX_FILES = 39_350, 175  # of the whole package: to grow is a decision

TESTS = sorted((ROOT / "tests").rglob("*.py"))
OTHERS = [*TESTS, *sorted((ROOT / "benchmarks").rglob("*.py")), *sorted((ROOT / "examples").rglob("*.py"))]
THIS = Path(__file__).resolve()

# Names that said too little, or two things: what stands for them now. Of the package, its tests, benchmarks, examples.
RETIRED = {
    "Card": "Gpu",
    "Found": "what is returned: BlockResult, ...",
    "Held": "EmbeddedTask",
    "Left": "RemainingKeys",
    "Line": "AxisLevel",
    "Owners": "one word for holders",
    "Piece": "SlabBox",
    "Share": "one word for holders",
    "Shares": "one word for holders",
    "Swept": "what is returned",
    "_Made": "what is returned",
    "_melted": "_with_predictions",
    "bends": "hessian_traces",
    "card": "gpu",
    "forces": "penalty_times_c",
    "pushed": "apply_penalties",
}

# Names that may be right elsewhere, and say too little in the package (room: all of them if empty).
RETIRED_IN_ROOMS = {
    "SLOWER": (("solve",), "flop_penalty"),
    "PATIENCE": (("solve",), "iterative_handicap_flops"),
    "FARTHEST": (("solve",), "max_fallback_flops"),
    "AWAY": (("solve",), "transfer_flops"),
    "asked": ((), "requested"),
    "every": ((), "the noun that it holds"),
    "found": ((), "the noun that it holds"),
    "one": ((), "the noun that it is"),
    "_counted": (("labels",), "_default_labels"),
    "arrays": (("labels", "pde", "fitting", "accessor"), "coefficient_arrays"),
    "half": (("solve",), "apply_inverse_sqrt"),
    "members": (("solve",), "systems, subdomain_indices, ..."),
    "patch": (("execution", "kernels", "solve"), "the field's term"),
    "reach": (("execution", "kernels", "solve"), "coefficient_range, or the field's term"),
    "site": (("execution", "kernels", "solve"), "component, or the field's term"),
    "slopes": (("solve",), "coefficient_derivatives"),
    "stretch": (("execution", "kernels", "solve"), "coefficient_range, or the field's term"),
    "windows": (("solve",), "subdomains"),
}

PHRASES = re.compile(
    r"words\s+of\s+the\s+(array\s+)?(namespace|standard)"
    r"|(with\s+)?nothing\s+said"
    r"|\bto\s+the\s+bit\b"
    r"|\bA\s+made\b"
    r"|as\s+soon\s+factori[sz]ed"
)


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
    assert lines <= MAX_LINES and len(FILES) <= MAX_FILES, f"{lines:,} lines in {len(FILES)} files"


def test_no_assert_as_validation() -> None:
    assert not [
        place(path, node) for path in FILES for node in nodes_of(path) if isinstance(node, ast.Assert)
    ]


def test_retired_names_are_gone() -> None:
    lines: dict[str, set[int]] = {}
    for path in [*FILES, *OTHERS]:
        for name, line in identifiers(path):
            now = RETIRED.get(name)
            if now is None and name in RETIRED_IN_ROOMS and path.is_relative_to(PACKAGE):
                rooms, now = RETIRED_IN_ROOMS[name]
                now = now if not rooms or room_of(name_of(path)) in rooms else None
            if now is not None:
                lines.setdefault(f"{path.relative_to(ROOT)} {name} (now: {now})", set()).add(line)
    again = [f"{where}, lines {', '.join(map(str, sorted(at)))}" for where, at in sorted(lines.items())]
    assert not again, "\n".join(again)


def test_retired_phrases_are_gone() -> None:
    texts = [*FILES, *PACKAGE.rglob("*.md"), *OTHERS, ROOT / "README.md", ROOT / "CHANGELOG.md"]
    again = [
        f"{place(path, text_of(path).count(chr(10), 0, hit.start()) + 1)} {hit[0]!r}"
        for path in texts
        if path != THIS
        for hit in PHRASES.finditer(text_of(path))
    ]
    assert not again, "\n".join(again)


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


def test_identifiers_are_recognised(tmp_path: Path) -> None:
    path = tmp_path / "example.py"
    path.write_text(
        "import found as one\n"
        "class Line:\n"
        "    def half(self, members, *, site=1):\n"
        "        return self.asked\n"
        "for every in x: pass\n"
    )
    names = {name for name, _ in identifiers(path)}
    assert {"one", "Line", "half", "members", "site", "asked", "every"} <= names
