"""What the project says of itself, and what others rely on beside the code.

README, type hints, the command line of the benchmarks; versions that agree, a support table that is true, a release
that is checked.
"""

from __future__ import annotations

import inspect
import re
import runpy
import sys
import tomllib
import typing
from datetime import date
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

import xspline as xs

yaml = pytest.importorskip("yaml")  # of Dask

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FLOORS = dict(dep.replace("[array]", "").split(">=") for dep in PROJECT["dependencies"])


def text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def recipe() -> dict[str, Any]:
    return yaml.safe_load(text("recipe/recipe.yaml").replace("${{ version }}", xs.__version__))


@pytest.mark.parametrize(
    "command",
    [
        'python -m pip install ".[examples]" && python examples/sea_surface_temperature.py',
        'python -m pip install ".[test]" && python -m pytest',
    ],
)
def test_readme_names_the_two_commands(command: str) -> None:
    assert command in text("README.md").splitlines()


@pytest.mark.parametrize("name", sorted(n for n, v in vars(xs).items() if n[0] != "_" and callable(v)))
def test_type_hints_resolve(name: str) -> None:
    """A hint behind a failed or guarded import is silently Any for everybody, and so is one that is missing."""
    value = getattr(xs, name)
    call = value.__init__ if isinstance(value, type) else value
    if isinstance(call, FunctionType):  # not the constructor of an exception or of a protocol
        hints = typing.get_type_hints(call)
        assert set(inspect.signature(call).parameters) - {"self"} | {"return"} <= set(hints)


@pytest.mark.parametrize("group", ["dependencies", "test", "stores", "docs"])
def test_floors_have_a_reason(group: str) -> None:
    """Each dependency says beside it why that version."""
    lines = text("pyproject.toml").splitlines()
    listed = PROJECT["optional-dependencies"].get(group) or PROJECT[group]
    written = [line for line in lines if any(line.strip().startswith(f'"{dep}"') for dep in listed)]
    assert len(written) == len(listed)
    assert all("# " in line for line in written)


def test_minimal_versions_are_the_floors() -> None:
    """ci/minimal.txt pins, for every dependency, the release series of the floor."""
    pins = dict(line.split("==") for line in text("ci/minimal.txt").split() if "==" in line)
    for dependency in PROJECT["dependencies"]:
        name, floor = dependency.split(">=")
        assert pins[name.split("[")[0]].startswith(floor)


def test_every_benchmark_is_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", "list", "--names"])
    runpy.run_module("benchmarks", run_name="__main__")  # as `python -m benchmarks`, which .ci/run calls
    sources = [*(ROOT / "benchmarks").glob("*.py"), *(ROOT / "benchmarks").glob("*/__init__.py")]
    having_run = [path for path in sources if "\ndef run(" in path.read_text(encoding="utf-8")]
    modules = {path.parent.name if path.stem == "__init__" else path.stem for path in having_run}
    assert set(capsys.readouterr().out.split()) == modules


def test_one_version_everywhere() -> None:
    assert xs.__version__ == PROJECT["version"] and f"## {xs.__version__}" in text("CHANGELOG.md")
    assert recipe()["context"]["version"] == recipe()["package"]["version"] == xs.__version__
    citation = yaml.safe_load(text("CITATION.cff"))
    assert str(citation["version"]) == xs.__version__ and citation["license"] == PROJECT["license"]
    assert [author["name"] for author in citation["authors"]] == [a["name"] for a in PROJECT["authors"]]


def test_the_recipe_needs_what_the_project_needs() -> None:
    """Under the names of conda-forge; `dask-core` is Dask without what it installs beside it."""
    names = {"dask": "dask-core", "netCDF4": "netcdf4"}
    expected = {names.get(name, name): floor for name, floor in FLOORS.items()}
    expected["python"] = PROJECT["requires-python"].removeprefix(">=")
    assert dict(dep.split(" >=") for dep in recipe()["requirements"]["run"]) == expected
    build = tomllib.loads(text("pyproject.toml"))["build-system"]["requires"]
    host = {dep.replace(" ", "") for dep in recipe()["requirements"]["host"]}
    assert set(build) <= host and recipe()["build"]["noarch"] == "python"


def test_the_recipe_builds_from_the_sdist_and_its_test_runs() -> None:
    assert recipe()["source"]["path"] == f"../dist/xarray_spline-{xs.__version__}.tar.gz"
    (script,) = next(t["script"] for t in recipe()["tests"] if "script" in t)
    code = re.fullmatch(r'python -c "(.*)"', script)
    assert code
    exec(code[1], {})


def test_the_support_table_is_true() -> None:
    """SPEC 0: a Python for three years, a package for two; the floors of the project are not younger than that."""
    table = re.findall(
        r"^\| (\S+) \| (\S+) \| (\d{4})-(\d\d) \| (\d{4})-(\d\d) \|$", text("CONTRIBUTING.md"), re.M
    )
    assert {name: floor for name, floor, *_ in table} == FLOORS | {"Python": PROJECT["requires-python"][2:]}
    for name, _, year, month, until, same in table:
        assert int(until) - int(year) == (3 if name == "Python" else 2) and month == same
        assert date(int(year), int(month), 1) < date.today()


def test_a_release_publishes_only_what_was_checked() -> None:
    jobs = yaml.safe_load(text(".github/workflows/release.yml"))["jobs"]
    steps = "\n".join(step.get("run", "") for step in jobs["build"]["steps"])
    assert "python -m build" in steps and "twine check --strict" in steps and "python -m pytest" in steps
    assert jobs["publish"]["needs"] == "build" and jobs["publish"]["permissions"] == {"id-token": "write"}
    assert "tag" in jobs["publish"]["if"], "a run by hand publishes nothing"
