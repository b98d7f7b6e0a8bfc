"""The first fit on a machine: how long it takes, what it says, and that no cache can stop it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

SETUP = """
import json, sys, time, warnings
import numpy as np, xarray as xr, xspline as xs
rng = np.random.default_rng(0)
x, y = rng.uniform(0, 10, (2, 4000))
points = xr.DataArray(np.sin(x) + np.cos(y), {"x": ("obs", x), "y": ("obs", y)}, "obs", "v")
t, z = np.linspace(0, 10, 60), np.linspace(0, 10, 70)
grid = xr.DataArray(np.sin(t)[:, None] + np.cos(z), {"x": t, "y": z}, ("x", "y"), "v")
grid[20:30, 10:30] = np.nan
"""
FIT = """
began, spent = time.perf_counter(), time.process_time()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    field = {data}.spline.fit(x=12, y=12, penalty=1e-3)
seconds = time.perf_counter() - began, time.process_time() - spent
print(json.dumps({
    "seconds": seconds,
    "digest": field.coefficients.values.tobytes().hex()[:4000],
    "warnings": [[w.category.__name__, str(w.message), w.filename] for w in caught],
}))
"""


def first_fit(data: str, cache: Path, **environment: str) -> tuple[dict, str]:
    """Fit in a new process; what it printed, and what went to stderr."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
    env = os.environ | dict.fromkeys(names, "1") | {"NUMBA_CACHE_DIR": str(cache)} | environment
    code = SETUP + FIT.format(data=data)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, dict], dict[str, str]]:
    """A cache that a first fit of points and one of a grid have filled, their results, and what they said."""
    cache = tmp_path_factory.mktemp("cache")
    results, said = {}, {}
    for data in ("points", "grid"):
        results[data], said[data] = first_fit(data, cache)
    return cache, results, said


def test_a_first_fit_takes_seconds(filled: tuple[Path, dict[str, dict], dict[str, str]]) -> None:
    """Of the processor: other processes may take it away. The second fit finds what they share compiled."""
    _, results, _ = filled
    assert results["points"]["seconds"][1] <= 10
    assert results["grid"]["seconds"][1] <= 5


def test_what_takes_long_is_said_once(filled: tuple[Path, dict[str, dict], dict[str, str]]) -> None:
    cache, results, said = filled
    assert said["points"].count("xspline compiles its loops at their first use") == 1
    _, again = first_fit("points", cache)
    assert again == ""
    assert not results["points"]["warnings"]


def test_later_processes_compile_nothing(filled: tuple[Path, dict[str, dict], dict[str, str]]) -> None:
    cache, results, _ = filled
    names = {file: file.stat().st_mtime_ns for file in cache.rglob("*.nb?")}
    again, _ = first_fit("points", cache)
    assert again["digest"] == results["points"]["digest"]
    assert {file: file.stat().st_mtime_ns for file in cache.rglob("*.nb?")} == names


@pytest.mark.parametrize("damage", ["truncated index", "truncated code", "empty", "garbage"])
def test_a_damaged_cache_is_a_warning(
    filled: tuple[Path, dict[str, dict], dict[str, str]], tmp_path: Path, damage: str
) -> None:
    cache, results, _ = filled
    for file in cache.rglob("*.nb?"):
        copy = tmp_path / file.relative_to(cache)
        copy.parent.mkdir(exist_ok=True, parents=True)
        data = file.read_bytes()
        hit = file.suffix == ".nbi" if damage == "truncated index" else file.suffix == ".nbc"
        changed = {"empty": b"", "garbage": b"garbage" * 99}.get(damage, data[: len(data) // 2])
        copy.write_bytes(changed if hit and file.name.startswith("cells.locate") else data)
    again, _ = first_fit("points", tmp_path)
    assert again["digest"] == results["points"]["digest"]
    ((category, message, filename),) = again["warnings"]
    assert category == "RuntimeWarning" and filename == "<string>"
    assert "a file of its cache is damaged" in message and "NUMBA_CACHE_DIR" in message
    healed, _ = first_fit("points", tmp_path)
    assert not healed["warnings"]


def test_a_full_disk_is_a_warning(
    filled: tuple[Path, dict[str, dict], dict[str, str]], tmp_path: Path
) -> None:
    _, results, _ = filled
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
    startup = tmp_path / "startup"
    startup.mkdir()
    (startup / "sitecustomize.py").write_text(limit)  # files of more than 2000 bytes fail, as on a full disk
    path = os.pathsep.join([str(startup), str(Path(__file__).parents[2])])
    again, _ = first_fit("points", tmp_path / "cache", PYTHONPATH=path)
    assert again["digest"] == results["points"]["digest"]
    ((category, message, filename),) = again["warnings"]
    assert category == "RuntimeWarning" and filename == "<string>"
    assert "File too large" in message and "Set NUMBA_CACHE_DIR" in message
