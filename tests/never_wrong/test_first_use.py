"""The first fit on a machine: what it compiles and says, and that no cache can stop it.

One of few values waits for no compiler: numba is not even imported.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

SETUP = """
import json, sys, warnings
import numpy as np, xarray as xr, xspline as xs
rng = np.random.default_rng(0)
x, y = rng.uniform(0, 10, (2, 300_000))  # fewer are not compiled for
points = xr.DataArray(np.sin(x) + np.cos(y), {"x": ("obs", x), "y": ("obs", y)}, "obs", "v")
t, z = np.linspace(0, 10, 1100), np.linspace(0, 10, 1000)
grid = xr.DataArray(np.sin(t)[:, None] + np.cos(z), {"x": t, "y": z}, ("x", "y"), "v")
grid[20:30, 10:30] = np.nan
"""
FIT = """
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    field = DATA.spline.fit(x=12, y=12, penalty=1e-3)
print(json.dumps({
    "digest": field.coefficients.values.tobytes().hex()[:4000],
    "warnings": [[w.category.__name__, str(w.message), w.filename] for w in caught],
}))
"""

FEW = """
import sys, numpy as np, xarray as xr, xspline
rng = np.random.default_rng(0)
axes = {"time": np.arange(20.0), "lat": np.linspace(-20, 20, 20), "lon": np.linspace(100, 150, 20)}
grid = xr.DataArray(rng.standard_normal((20, 20, 20)), axes, tuple(axes))
grid += 9 * np.sin(grid.lat / 9 + grid.lon / 9 + grid.time / 9)
points = xr.DataArray(rng.standard_normal(2000), {name: ("obs", rng.random(2000)) for name in axes}, ("obs",))
points += 9 * np.sin(6 * points.lat + 6 * points.lon + 6 * points.time)
for data in (grid, points):
    data.spline.fit(lat=8, lon=8, time=8, penalty="reml")
print("numba" in sys.modules)
"""


def first_fit(data: str, cache: Path, **environment: str) -> tuple[dict, str]:
    """Fit in a new process; what it printed, and what went to stderr."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
    env = os.environ | dict.fromkeys(names, "1") | {"NUMBA_CACHE_DIR": str(cache)} | environment
    code = SETUP + FIT.replace("DATA", data)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


class First(NamedTuple):
    """A first fit of points, or of a grid, in an empty cache: the cache, the result and what was said."""

    cache: Path
    result: dict
    said: str


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> First:
    cache = tmp_path_factory.mktemp("points")
    return First(cache, *first_fit("points", cache))


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> First:
    cache = tmp_path_factory.mktemp("grid")
    return First(cache, *first_fit("grid", cache))


@pytest.mark.slow
def test_a_first_fit_compiles_each_function_once(points: First, grid: First) -> None:
    """Compilation is what a first fit waits for: each loop has one specialisation, and few are needed."""
    for first, most in ((points, 8), (grid, 8)):
        functions, specialisations = (len(list(first.cache.rglob(f"*.{end}"))) for end in ("nbi", "nbc"))
        assert 0 < functions == specialisations <= most


@pytest.mark.slow
def test_what_takes_long_is_said_once_and_kept(points: First) -> None:
    assert points.said.count("xspline compiles its loops at their first use") == 1
    files = {file: file.stat().st_mtime_ns for file in points.cache.rglob("*.nb?")}
    again, said = first_fit("points", points.cache)
    assert again["digest"] == points.result["digest"]
    assert said == ""
    assert {file: file.stat().st_mtime_ns for file in points.cache.rglob("*.nb?")} == files
    assert not points.result["warnings"] and not again["warnings"]


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["truncated index", "other code"])
def test_a_damaged_cache_is_a_warning(grid: First, tmp_path: Path, damage: str) -> None:
    for file in grid.cache.rglob("*.nb?"):
        copy = tmp_path / file.relative_to(grid.cache)
        copy.parent.mkdir(exist_ok=True, parents=True)
        data = file.read_bytes()
        hit = file.suffix == ".nbi" if damage == "truncated index" else file.suffix == ".nbc"
        (other,) = grid.cache.rglob("by_cell.series*.nbc")
        changed = other.read_bytes() if damage == "other code" else data[: len(data) // 2]
        copy.write_bytes(changed if hit and file.name.startswith("by_cell.locate") else data)
    again, _ = first_fit("grid", tmp_path)
    assert again["digest"] == grid.result["digest"]
    ((category, message, filename),) = again["warnings"]
    assert category == "RuntimeWarning" and filename == "<string>"
    assert "a file of its cache is damaged" in message and "NUMBA_CACHE_DIR" in message
    healed, _ = first_fit("grid", tmp_path)
    assert not healed["warnings"]


@pytest.mark.slow
def test_a_full_disk_is_a_warning(grid: First, tmp_path: Path) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
    startup = tmp_path / "startup"
    startup.mkdir()
    (startup / "sitecustomize.py").write_text(limit)  # files of more than 2000 bytes fail, as on a full disk
    path = os.pathsep.join([str(startup), str(Path(__file__).parents[2])])
    two = shutil.ignore_patterns("by_cell.locate*", "by_cell.series*")  # neither can be kept: one warning
    shutil.copytree(grid.cache, tmp_path / "cache", ignore=two)
    again, _ = first_fit("grid", tmp_path / "cache", PYTHONPATH=path)
    assert again["digest"] == grid.result["digest"]
    ((category, message, filename),) = again["warnings"]
    assert category == "RuntimeWarning" and filename == "<string>"
    assert "File too large" in message and "Set NUMBA_CACHE_DIR" in message


@pytest.mark.slow
def test_fits_of_few_values_compile_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FEW], check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == ["False"]
