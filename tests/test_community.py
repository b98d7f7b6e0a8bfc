"""What others rely on beside the code: versions that agree, a support table that is true, a release that is checked."""

from __future__ import annotations

import re
import tomllib
from datetime import date
from pathlib import Path
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
