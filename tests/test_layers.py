"""Imports of the package, held by reading its source: one way between rooms, no circles, third parties in their rooms.

One test a rule; each lists everything that breaks it.
"""

import ast
import importlib
import importlib.util
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.source import FILES, MODULES, ROOT, imports, name_of, nodes_of, place, room_of, tree_of

# Imports point from the first room to the last; rooms of one tuple do not know each other.
ORDER = (
    ("accessor",),
    ("fitting",),
    ("pde", "synthetic"),
    ("labels",),
    ("execution",),
    ("solve", "kernels", "kriging", "residuals"),
    ("sums",),
    ("spaces",),
    ("arguments", "notebook", "threads"),
)
RANK = {room: rank for rank, rooms in enumerate(ORDER) for room in rooms}

# Folders and files of `solve` in the same way; those of one tuple may import each other, in no circle.
ORDER_IN_SOLVE = (
    ("smoothing",),
    ("families",),
    ("solution", "select"),
    ("penalties",),
    ("multigrid",),
    ("kronecker",),
    ("direct",),
    ("batch", "costs", "errors", "krylov", "progress", "system"),
)
RANK_IN_SOLVE = {part: rank for rank, parts in enumerate(ORDER_IN_SOLVE) for part in parts}

# Third parties that a room may import; cupy also only inside a function, numba only where loops are compiled.
ALLOWED = {
    "accessor": {"numpy", "xarray"},
    "fitting": {"numpy", "xarray"},
    "pde": {"numpy", "xarray", "scipy"},
    "synthetic": {"numpy", "xarray", "scipy"},
    "labels": {"numpy", "xarray", "pandas", "cftime", "zarr", "numcodecs", "google_crc32c", "netCDF4"},
    "execution": {"numpy", "dask", "distributed", "array_api_compat", "cupy", "cupyx"},
    "solve": {"numpy", "scipy", "numba", "array_api_compat"},
    "kernels": {"numpy", "numba", "llvmlite", "array_api_compat", "cupy"},
    "kriging": {"numpy", "scipy", "numba"},
    "residuals": {"numpy", "scipy"},
    "sums": {"numpy"},
    "spaces": {"numpy", "cftime", "numba"},
    "arguments": set(),
    "threads": {"threadpoolctl"},
    "notebook": set(),
}

# Decorators of compiled functions, instructions, and functions that are only called from compiled ones of their file.
COMPILED = {"xspline.spaces.jit", "xspline.kernels.compiled.lanes", "xspline.kriging.compiled"}

# Imports that close a circle and stay inside a function, one at most: (module, what it imports) and the reason.
LATE = {
    (
        "xspline.labels.statistics",
        "xspline.labels.field",
    ): "statistics.solve() gives a Field, which holds statistics"
}


def late(module: str, imported: str) -> bool:
    """Whether an import is one that the list above allows."""
    return any(module == m and f"{imported}.".startswith(f"{i}.") for m, i in LATE)


def modules_imported(module: str) -> Iterator[str]:
    """The modules of the package that a module imports: the file itself, not the packages around it."""
    for name, _ in imports(MODULES[module]):
        if name.startswith("xspline.") and name != "xspline.__version__":  # a constant of the root
            yield name if name in MODULES else name.rpartition(".")[0]


def test_every_room_has_a_place_in_the_order() -> None:
    rooms = {room_of(name) for name in MODULES} - {""}
    assert rooms == set(RANK)
    assert rooms - set(ALLOWED) == set()


def test_imports_point_one_way() -> None:
    wrong = []
    for path in FILES:
        here, module = room_of(name_of(path)), name_of(path)
        for imported, node in imports(path):
            if not imported.startswith("xspline") or not here or imported == "xspline.__version__":
                continue
            there = room_of(imported)
            if there not in RANK:
                wrong.append(f"{place(path, node)} {imported}: import from the room that defines it")
            elif there != here and RANK[there] <= RANK[here] and not late(module, imported):
                wrong.append(f"{place(path, node)} {here} imports {imported}")
    assert not wrong


def test_imports_in_solve_point_one_way() -> None:
    """Between its folders; imports inside functions and for type checkers count too."""
    parts = {module: module.split(".")[2] for module in MODULES if module.startswith("xspline.solve.")}
    assert set(parts.values()) == set(RANK_IN_SOLVE)
    wrong = []
    for module, here in parts.items():
        for imported in modules_imported(module):
            there = parts.get(imported, here)
            if RANK_IN_SOLVE[there] < RANK_IN_SOLVE[here]:
                wrong.append(f"{module} imports {imported}")
            assert imported != "xspline.solve", f"{module} imports the whole room"
    assert not wrong


def test_no_circle_of_imports() -> None:
    """In a room or between rooms; imports inside functions and for type checkers count too."""
    graph = {
        module: {i for i in modules_imported(module) if i in MODULES and i != module and not late(module, i)}
        for module in MODULES
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_late_imports_are_one_at_most_and_inside_functions() -> None:
    assert len(LATE) <= 1
    for module, imported in LATE:
        assert module in MODULES, f"{module} has moved"
        top = tree_of(MODULES[module]).body
        at_the_top = [name for name, node in imports(MODULES[module]) if late(module, name) and node in top]
        assert not at_the_top, f"{module} imports {imported} when it is imported"


def test_third_parties_stay_in_their_rooms() -> None:
    wrong = []
    for path in FILES:
        name = name_of(path)
        if name == "xspline":
            continue
        allowed = sys.stdlib_module_names | ALLOWED[room_of(name)] | {"xspline", "__future__"}
        allowed -= set() if name in COMPILED else {"numba"}
        wrong += [
            f"{place(path, node)} {module}"
            for module, node in imports(path)
            if module.split(".")[0] not in allowed
        ]
    assert not wrong


def test_no_cupy_at_module_level() -> None:
    wrong = []
    for path in FILES:
        inside = {
            id(inner)
            for node in nodes_of(path)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            for inner in ast.walk(node)
        }
        wrong += [
            place(path, node)
            for module, node in imports(path)
            if module.split(".")[0] in ("cupy", "cupyx") and id(node) not in inside
        ]
    assert not wrong


def test_import_is_light() -> None:
    """What Dask itself imports is not ours: `sparse`, where it is installed, brings numba."""
    code = (
        "import sys, dask.array; theirs = set(sys.modules); import xspline; "
        "print(*sorted({'cupy', 'numba', 'matplotlib'} & (set(sys.modules) - theirs)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_no_submodule_shadows_a_public_name() -> None:
    xspline = importlib.import_module("xspline")
    public = {n: v for n, v in vars(xspline).items() if n[0] != "_" and callable(v)}
    assert public
    for info in pkgutil.walk_packages(xspline.__path__, "xspline."):
        importlib.import_module(info.name)
    for name, value in public.items():
        assert getattr(xspline, name) is value, f"xspline.{name} changed when the submodules were imported"
        assert importlib.util.find_spec(f"xspline.{name}") is None, f"a submodule is called {name}"
