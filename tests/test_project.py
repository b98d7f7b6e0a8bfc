"""What the project says of itself: version, README, type hints, the command line of the benchmarks."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import typing
from pathlib import Path

import pytest

import xspline as xs

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_one_version() -> None:
    assert xs.__version__ == PROJECT["version"]
    assert f"## {xs.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "command",
    [
        'python -m pip install ".[examples]" && python examples/sea_surface_temperature.py',
        'python -m pip install ".[test]" && python -m pytest',
    ],
)
def test_readme_names_the_two_commands(command: str) -> None:
    assert command in (ROOT / "README.md").read_text(encoding="utf-8").splitlines()


def test_readme_uses_names_that_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    names = {
        part.split("(")[0].split("`")[0].split(".")[0]
        for part in text.replace("(xs.", " xs.").split("xs.")[1:]
    }
    names = {name.strip(" ,)\n") for name in names}
    assert {"BSpline", "Fourier", "Polynomial", "Roughness", "open_statistics"} <= names
    assert not {name for name in names if not hasattr(xs, name)}


@pytest.mark.parametrize("name", sorted(n for n, v in vars(xs).items() if n[0] != "_" and callable(v)))
def test_type_hints_resolve(name: str) -> None:
    """A hint behind a failed or guarded import is silently Any for everybody."""
    value = getattr(xs, name)
    assert isinstance(typing.get_type_hints(value.__init__ if isinstance(value, type) else value), dict)


def test_floors_have_a_reason() -> None:
    """Each dependency of the core says beside it why that version."""
    lines = (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    core = [
        line for line in lines if any(line.strip().startswith(f'"{dep}"') for dep in PROJECT["dependencies"])
    ]
    assert len(core) == len(PROJECT["dependencies"])
    assert all("# " in line for line in core)


def test_minimal_versions_are_the_floors() -> None:
    """ci/minimal.txt pins, for every dependency, the release series of the floor."""
    pins = dict(
        line.split("==")
        for line in (ROOT / "ci/minimal.txt").read_text(encoding="utf-8").split()
        if "==" in line
    )
    for dependency in PROJECT["dependencies"]:
        name, floor = dependency.split(">=")
        assert pins[name.split("[")[0]].startswith(floor)


def test_every_benchmark_is_listed() -> None:
    command = [sys.executable, "-m", "benchmarks", "list", "--names"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    sources = [*(ROOT / "benchmarks").glob("*.py"), *(ROOT / "benchmarks").glob("*/__init__.py")]
    having_run = [path for path in sources if "\ndef run(" in path.read_text(encoding="utf-8")]
    modules = {path.parent.name if path.stem == "__init__" else path.stem for path in having_run}
    assert set(done.stdout.split()) == modules
