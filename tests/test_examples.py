"""The examples, run small as a reader runs them: what they print holds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(name: str, *arguments: str | Path) -> str:
    """Run an example in a process of its own, warnings as errors, and return what it printed."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-W", "error", ROOT / "examples" / name, "--quick", *arguments],
        env=os.environ | {"MPLBACKEND": "Agg", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def figure(text: str, pattern: str) -> float:
    """Return the number that stands in the first group of a pattern."""
    number = re.search(pattern, text)
    assert number, f"{pattern!r} is not in:\n{text}"
    return float(number[1].replace(",", ""))


@pytest.mark.slow
def test_moorings(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    printed = run("moorings.py", "--figure", tmp_path / "moorings.png")
    withheld = printed.split("withheld moorings")[1]
    climatology, field = (figure(withheld, rf"{name} +([\d.]+)") for name in ("climatology", "field"))
    assert 0.2 < field < 0.95 * climatology, "an El Niño is not in the season"
    assert (tmp_path / "moorings.png").stat().st_size > 50_000


@pytest.mark.slow
def test_institutions(tmp_path: Path) -> None:
    printed = run("merge_institutions.py", "--out", tmp_path)
    assert figure(printed, r"= ([\d.e+-]+) of max \|prediction\|") < 1e-12
    assert "equal bit for bit to a merge without ships: True" in printed
    assert re.search(r"the same part again:\n  part 'moorings' \(\w+\) is there twice", printed)
    assert re.search(r"not there:\n  part 'ships' \(\w+\) was never added here", printed)
    assert "different spaces: lat: BSpline(9, domain=(-20.0, 20.0)) and BSpline(10," in printed
    for name, noise in (("moorings", 0.1), ("ships", 0.6), ("reanalysis", 0.3)):
        assert figure(printed, rf"RMSE .*{name} ([\d.]+)") == pytest.approx(noise, rel=0.05)
    kept, sent = (figure(printed, rf"reanalysis{rest} ([\d,]+) bytes") for rest in (" .* records,", ".zarr:"))
    assert sent < 0.05 * kept, "a grid with land is a product of small factors"


@pytest.mark.slow
def test_smoothing(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    printed = run("smoothing.py", "--figure", tmp_path / "smoothing.png")
    for of in ("field", "trend"):
        rows = printed.split(f"{of}: median standard error")[1]
        model, years = (figure(rows, rf"hold the truth +{skip}([\d.]+)%") for skip in ("", r"[\d.]+% +"))
        assert model < 50, "neighbours in red noise are not independent"
        assert 85 < years < 99, "years are"
    assert (tmp_path / "smoothing.png").stat().st_size > 50_000


@pytest.mark.slow
def test_update(tmp_path: Path) -> None:
    printed = run("update.py", "--out", tmp_path)
    assert "records.zarr deleted: True" in printed
    assert figure(printed, r"= ([\d.e+-]+) of .*, with equal smoothing") < 1e-12
    assert figure(printed, r"= ([\d.e+-]+) of .*, each with its own smoothing") < 1e-8
    assert "2006 withdrawn" in printed, "the year that was delivered upside down"
    assert "digests equal to those of statistics that never had it: True" in printed
    assert "coefficients equal bit for bit: True" in printed


@pytest.mark.slow
def test_sea_surface_temperature(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    printed = run("sea_surface_temperature.py", "--figure", tmp_path / "sst.png")
    assert figure(printed, r"coefficients +([\d,]+)") == 2093
    assert figure(printed, r"= ([\d.e+-]+) of max \|prediction\|") < 1e-12
    assert (tmp_path / "sst.png").stat().st_size > 50_000
