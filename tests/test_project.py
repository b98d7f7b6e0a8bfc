"""What the project says of itself: version, README, type hints, the command line of the benchmarks."""

from __future__ import annotations

import inspect
import runpy
import sys
import tomllib
import typing
from pathlib import Path
from types import FunctionType

import pytest

import xspline as xs

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize(
    "command",
    [
        'python -m pip install ".[examples]" && python examples/sea_surface_temperature.py',
        'python -m pip install ".[test]" && python -m pytest',
    ],
)
def test_readme_names_the_two_commands(command: str) -> None:
    assert command in (ROOT / "README.md").read_text(encoding="utf-8").splitlines()


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
    lines = (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    listed = PROJECT["optional-dependencies"].get(group) or PROJECT[group]
    written = [line for line in lines if any(line.strip().startswith(f'"{dep}"') for dep in listed)]
    assert len(written) == len(listed)
    assert all("# " in line for line in written)


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


def test_every_benchmark_is_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", "list", "--names"])
    runpy.run_module("benchmarks", run_name="__main__")  # as `python -m benchmarks`, which .ci/run calls
    sources = [*(ROOT / "benchmarks").glob("*.py"), *(ROOT / "benchmarks").glob("*/__init__.py")]
    having_run = [path for path in sources if "\ndef run(" in path.read_text(encoding="utf-8")]
    modules = {path.parent.name if path.stem == "__init__" else path.stem for path in having_run}
    assert set(capsys.readouterr().out.split()) == modules
