"""The house rules, held by reading the source: imports, sizes, the tests of errors."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import pkgutil
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "xspline"
FILES = sorted(PACKAGE.rglob("*.py"))

# Imports point from the first room to the last; rooms of one tuple do not know each other.
ORDER = (
    ("accessor",),
    ("fitting",),
    ("pde", "synthetic"),
    ("labels",),
    ("execution",),
    ("solve", "kernels"),
    ("sums",),
    ("spaces",),
)
RANK = {room: rank for rank, rooms in enumerate(ORDER) for room in rooms}

# Third parties that a room may import; cupy also only inside a function, numba only where loops are compiled.
ALLOWED = {
    "accessor": {"numpy", "xarray"},
    "fitting": {"numpy", "xarray"},
    "pde": {"numpy", "xarray", "scipy"},
    "synthetic": {"numpy", "xarray", "scipy"},
    "labels": {"numpy", "xarray", "pandas", "cftime", "zarr", "netCDF4"},
    "execution": {"numpy", "dask", "distributed", "array_api_compat", "cupy", "cupyx"},
    "solve": {"numpy", "scipy", "threadpoolctl", "numba", "array_api_compat"},
    "kernels": {"numpy", "numba", "array_api_compat", "cupy"},
    "sums": {"numpy"},
    "spaces": {"numpy", "cftime", "numba"},
}

COMPILED = {"xspline.spaces.jit", "xspline.solve.multigrid.compiled"}

MAX_MODULE, MAX_BODY, MAX_MEDIAN_BODY = 500, 60, 8


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def absolute(node: ast.ImportFrom, path: Path) -> str:
    """The module that a `from … import` names, relative dots resolved."""
    if not node.level:
        return node.module or ""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    return ".".join([*package[: len(package) - node.level + 1], *filter(None, [node.module])])


def imports(path: Path) -> Iterator[tuple[str, ast.stmt]]:
    """Every import of a file, those inside functions too, as (module or module.name, node)."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = absolute(node, path)
            yield from ((f"{module}.{alias.name}", node) for alias in node.names)


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """(place, lines of body without the docstring) of each function of a file."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
            lines = node.end_lineno - body[0].lineno + 1 if body else 0
            yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", lines


@pytest.fixture(params=FILES, ids=[str(path.relative_to(ROOT)) for path in FILES])
def path(request: pytest.FixtureRequest) -> Path:
    return request.param


def test_there_is_something_to_read() -> None:
    rooms = {room_of(name_of(path)) for path in FILES} - {"", "pde", "synthetic"}
    assert rooms == set(RANK) - {"pde", "synthetic"}


def test_imports_point_one_way(path: Path) -> None:
    here = room_of(name_of(path))
    wrong = []
    for module, node in imports(path):
        if not module.startswith("xspline") or not here or module == "xspline.__version__":
            continue
        there = room_of(module)
        if there not in RANK:
            wrong.append(f"line {node.lineno}: {module} (import from the room that defines it)")
        elif there != here and RANK[there] <= RANK[here]:
            wrong.append(f"line {node.lineno}: {here} imports {module}")
    assert not wrong


def test_third_parties_stay_in_their_rooms(path: Path) -> None:
    name = name_of(path)
    if name == "xspline":
        return
    allowed = set(ALLOWED[room_of(name)])
    if name not in COMPILED:
        allowed.discard("numba")
    top = {(module.split(".")[0], node.lineno) for module, node in imports(path)}
    wrong = {t for t in top if t[0] not in sys.stdlib_module_names | allowed | {"xspline", "__future__"}}
    assert not wrong


def test_no_cupy_at_module_level(path: Path) -> None:
    inside = {
        id(inner)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for inner in ast.walk(node)
    }
    assert not [
        m for m, node in imports(path) if m.split(".")[0] in ("cupy", "cupyx") and id(node) not in inside
    ]


def test_import_is_light() -> None:
    code = "import sys, xspline; print(*sorted({'cupy', 'numba', 'matplotlib'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_no_long_module(path: Path) -> None:
    assert path.read_text(encoding="utf-8").count("\n") <= MAX_MODULE


def test_functions_are_short() -> None:
    sizes = [entry for path in FILES for entry in functions(path)]
    assert not [entry for entry in sizes if entry[1] > MAX_BODY]
    assert statistics.median(lines for _, lines in sizes) <= MAX_MEDIAN_BODY


def test_no_assert_as_validation(path: Path) -> None:
    assert not [node.lineno for node in ast.walk(tree_of(path)) if isinstance(node, ast.Assert)]


@pytest.mark.parametrize(
    "path", [pytest.param(p, id=str(p.relative_to(ROOT))) for p in sorted((ROOT / "tests").rglob("*.py"))]
)
def test_raises_are_matched(path: Path) -> None:
    """An error whose text no test matches drifts away from what the code does."""
    bare = []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"pytest.raises", "pytest.warns"}:
            if "match" not in {keyword.arg for keyword in node.keywords}:
                bare.append(node.lineno)
    assert not bare


# A string that ends in a letter, a line break, and a string that goes on with one.
GLUED = re.compile(r"""[^\s\\(\[{"'][}]?["'][ \t]*\n[ \t]*[rfRF]{0,2}["'][^\s.,;:)\]}"'\\]""")


def test_strings_are_not_glued(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    places = [text.count("\n", 0, hit.start()) + 1 for hit in GLUED.finditer(text)]
    assert not places, f"strings glued without a space at lines {places}"


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
def test_glue_is_found(text: str, glued: bool) -> None:
    assert bool(GLUED.search(text)) is glued


def test_no_submodule_shadows_a_public_name() -> None:
    xspline = importlib.import_module("xspline")
    public = {n: v for n, v in vars(xspline).items() if n[0] != "_" and callable(v)}
    assert public
    for info in pkgutil.walk_packages(xspline.__path__, "xspline."):
        importlib.import_module(info.name)
    for name, value in public.items():
        assert getattr(xspline, name) is value, f"xspline.{name} changed when the submodules were imported"
        assert importlib.util.find_spec(f"xspline.{name}") is None, f"a submodule is called {name}"
