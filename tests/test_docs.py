"""The site's sources, without building it: `make -C docs html` runs every page and checks links and pictures."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import xspline as xs
from tests.source import MODULES, PACKAGE, ROOT, room_of, text_of
from xspline.accessor import SplineAccessor, TreeAccessor

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = sorted(p for p in DOCS.rglob("*.md") if not {"_build", "generated"} & set(p.relative_to(DOCS).parts))
NAMES = [str(page.relative_to(DOCS)) for page in PAGES]
INTERFACE = (DOCS / "api/index.md").read_text(encoding="utf-8")
DESIGN = text_of(PACKAGE / "DESIGN.md")
DECISIONS = text_of(DOCS / "developers/decisions.md")


def cells(text: str) -> list[str]:
    """Return the code that a page runs, without options of cells."""
    found = re.findall(r"```\{code-cell\}[^\n]*\n((?::[^\n]*\n)*)(.*?)```", text, flags=re.DOTALL)
    return [code for _options, code in found]


def results() -> ModuleType:
    spec = importlib.util.spec_from_file_location("results", DOCS / "results.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def listed(module: str) -> set[str]:
    """Return the names that the page of the interface lists for one module."""
    # One directive a block.
    blocks = re.findall(rf"currentmodule:: {module}\n(.*?)```", INTERFACE, flags=re.DOTALL)
    return {line.strip() for block in blocks for line in block.splitlines() if re.match(r" {3}\w", line)}


def test_every_public_name_is_on_the_page_of_the_interface() -> None:
    assert listed("xspline") == set(xs.__all__) - {"synthetic"}
    assert listed("xspline.synthetic") == {
        name for name, value in vars(xs.synthetic).items() if name[0] != "_" and callable(value)
    }


def test_accessor_methods_are_on_the_page_of_the_interface() -> None:
    methods = {name for name in vars(SplineAccessor) if name[0] != "_"}
    expected = {f"{kind}.spline.{name}" for kind in ("DataArray", "Dataset") for name in methods}
    expected |= {f"DataTree.spline.{name}" for name in vars(TreeAccessor) if name[0] != "_"}
    assert listed("xarray") == expected


def test_every_name_has_an_example() -> None:
    """In its own documentation, or on the page of examples."""
    shown = (DOCS / "api/examples.md").read_text(encoding="utf-8")
    documented = {name: getattr(xs, name).__doc__ or "" for name in xs.__all__}
    for kind in (xs.Field, xs.Draws, xs.Statistics):
        methods = (name for name in vars(kind) if name[0] != "_" and callable(getattr(kind, name)))
        documented |= {f"{kind.__name__}.{name}": getattr(kind, name).__doc__ or "" for name in methods}
    undocumented = [name for name, text in documented.items() if ">>>" not in text]
    assert not [n for n in undocumented if not re.search(rf"\b{n.rpartition('.')[2]}\b", shown)]


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=[*NAMES, "README.md"])
def test_pages_use_names_that_exist(page: Path) -> None:
    used = set(re.findall(r"\bxs\.([A-Za-z_]\w*)", page.read_text(encoding="utf-8")))
    assert not {name for name in used if not hasattr(xs, name)}


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_code_of_pages_is_python_and_stays_off_the_network(page: Path) -> None:
    for code in cells(page.read_text(encoding="utf-8")):
        ast.parse(code)
        assert not re.search(r"\b(https?|s3|gs|ftp)://", code)


def test_the_design_is_read_in_ten_minutes() -> None:
    """And a decision at a glance: what takes longer is in the docstring of what it explains."""
    assert len(DESIGN.split()) <= 1_500
    entries = re.findall(r"^- .*(?:\n  .*)*", DESIGN + DECISIONS, flags=re.MULTILINE)
    assert len(entries) > 50
    assert not [entry for entry in entries if entry.count("\n") > 1 or len(entry) > 360]


def test_the_design_names_every_room_and_only_files_that_exist() -> None:
    rooms = {room_of(name) for name in MODULES} - {""}
    assert not {room for room in rooms if f"`{room}/`" not in DESIGN and f"`{room}.py`" not in DESIGN}
    paths = set(re.findall(r"`([\w./-]+(?:/|\.py|\.md))`", DESIGN + DECISIONS))
    assert len(paths) > 20
    around = (ROOT, PACKAGE, *(PACKAGE / room for room in rooms))  # a folder of a room is named within it
    assert not {path for path in paths if not any((folder / path).exists() for folder in around)}


def calls_of_table() -> Iterator[tuple[str, str]]:
    """Yield each page with a call that reads a table of measured figures, loops over constants written out."""
    for page, name in zip(PAGES, NAMES, strict=True):
        for code in cells(page.read_text(encoding="utf-8")):
            for node in ast.walk(ast.parse(code)):
                if isinstance(node, ast.For) and isinstance(node.iter, ast.Tuple):
                    words = [ast.literal_eval(e) for e in node.iter.elts if isinstance(e, ast.Constant)]
                    for call in (n for n in ast.walk(node) if is_table(n)):
                        source = ast.unparse(call)
                        yield from ((name, source.replace("after=words", f"after={w!r}")) for w in words)
                elif is_table(node) and "after=words" not in ast.unparse(node):
                    yield name, ast.unparse(node)


def is_table(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "table"


def test_tables_of_measured_figures_are_there() -> None:
    """Whoever rewrites RESULTS.md learns here, and not from the site, which page reads a table of it."""
    module = results()
    calls = dict.fromkeys(calls_of_table())
    assert len(calls) > 10
    for name, call in calls:
        frame = eval(call, {"table": module.table})
        assert len(frame) and frame.shape[1] > 1, f"{name}: {call}"
    assert {"gpu", "contest", "coverage"} <= set(module.overview().benchmark)


def test_tables_are_read_as_they_are_written() -> None:
    module = results()
    text = "Words.\n\n| a | max \\|G\\| |\n|---|---|\n| x | 1,234 |\n| y | ≤ 1e-11 |\n\nMore.\n\n| b |\n|---|\n| z |\n"
    first, second = module.tables(text)
    assert list(first.columns) == ["a", "max |G|"] and list(first.a) == ["x", "y"]
    assert [module.first_number(cell) for cell in first["max |G|"]] == [1234.0, 1e-11]
    assert list(second.b) == ["z"]
    with pytest.raises(ValueError, match="no number in 'yes'"):
        module.first_number("yes")
    with pytest.raises(KeyError, match=r"no section of RESULTS\.md is headed 'tea'"):
        module.table("tea")
