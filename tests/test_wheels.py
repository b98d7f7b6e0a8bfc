"""`ci/wheels.py`: what a folder of wheels must have for a machine without a network, and what is said of the rest."""

from __future__ import annotations

import importlib.util
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("packaging")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def wheels(monkeypatch: pytest.MonkeyPatch) -> Any:
    spec = importlib.util.spec_from_file_location("wheels", ROOT / "ci/wheels.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "wheels", module)
    spec.loader.exec_module(module)
    return module


def wheel(folder: Path, name: str, version: str, *requires: str, tag: str = "py3-none-any") -> Path:
    path, info = folder / f"{name}-{version}-{tag}.whl", f"{name}-{version}.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", f"version = {version!r}\n")
        archive.writestr(
            f"{info}/METADATA", "\n".join([*lines, *(f"Requires-Dist: {r}" for r in requires), ""])
        )
        archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


def test_wheels_fill_what_is_missing_and_no_more(wheels: Any, tmp_path: Path) -> None:
    first = wheel(tmp_path, "xs_first", "1.2", "numpy", "xs-second>=2; extra == 'all'", "pytest>=8")
    wheel(tmp_path, "xs_first", "0.9")
    wheel(tmp_path, "numpy", "99.0")
    second = wheel(tmp_path, "xs_second", "2.0")
    needed = wheels.needs(["xs-first[all]>=1", "numpy>=2"], tmp_path)
    assert (needed.wheels, needed.lacking) == ({"xs-first": first, "xs-second": second}, [])
    assert set(wheels.needs(["xs-first"], tmp_path).wheels) == {"xs-first"}


def test_what_nothing_meets_is_named_with_who_needs_it(wheels: Any, tmp_path: Path) -> None:
    wheel(tmp_path, "xs_first", "1.0", "xs-second>=2", "xs-third; python_version < '3'")
    wheel(tmp_path, "xs_second", "1.0")
    wheel(tmp_path, "xs_fourth", "1.0", tag="cp27-cp27m-win32")
    needed = wheels.needs(["xs-first", "xs-fourth"], tmp_path)
    assert sorted(needed.lacking) == ["xs-fourth (for xspline)", "xs-second>=2 (for xs-first)"]


def test_the_project_itself_lacks_nothing_here(wheels: Any, tmp_path: Path) -> None:
    needed = wheels.needs(wheels.of_project(), tmp_path)
    assert (needed.wheels, needed.lacking) == ({}, [])
