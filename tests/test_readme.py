"""The README's code, run as it stands, block after block in one namespace, on small data where it opens a product."""

from __future__ import annotations

import re
import runpy
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import xspline as xs
from tests.products import sst, stderr_of
from xspline.synthetic.ocean import bump

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


def product() -> xr.Dataset:
    """Three years of months around the dates and places that the README names, in its names and units."""
    data = sst(months=36, lat=np.linspace(-28, 28, 15), lon=np.linspace(122, 278, 27), gaps=0.05)
    months = (np.datetime64("2008-01") + np.arange(36)).astype("datetime64[ns]")
    return data.assign_coords(time=months).to_dataset()


@pytest.fixture
def namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the README's text takes as given: two files of one product, a grid, halves of two holders, reports."""
    monkeypatch.chdir(tmp_path)
    ds = product()
    ds.to_netcdf("sst.nc")
    ds.chunk(time=12).to_zarr("sst.zarr", consolidated=False)
    west, east = ds.where(ds.lon < 200), ds.where(ds.lon >= 200)
    space = ds.sst.spline.space(lat=13, lon=23)
    east.sst.spline.statistics(space, holder="partner").to_zarr("partner.zarr")
    points = ds.sst.stack(obs=("time", "lat", "lon")).dropna("obs")
    chosen = np.random.default_rng(0).choice(points.size, 2_000, replace=False)
    reports = points[np.sort(chosen)].reset_index("obs").to_dataset()  # some of its values, along obs
    return {"grid": ds.isel(time=slice(0, 2)), "west": west, "reports": reports}


def coverage(names: dict[str, Any], trend: str) -> float:
    """The share of the sea where 1.96 standard errors around a trend hold the truth."""
    at, term = names["ds"].sst.isel(time=180), names[trend]
    truth = 0.18 * (1 + 0.4 * bump(at.lat, 20, 15))  # as xspline/synthetic/ocean.py has it, per decade
    away = abs(names["decade"] * term.derivative(at, time=1) - truth)
    half = 1.96 * names["decade"] * stderr_of(term.derivative(at, time=1, stderr=True))
    return float((away <= half).where(at.notnull()).mean())


@pytest.mark.slow
def test_the_first_block_gives_its_figure_and_its_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As typed, without a file; what it prints stands below it, and its figure above."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    names = runpy.run_path(str(ROOT / "ci/first_look.py"))["main"](tmp_path / "first_look.png")
    pyplot.close("all")
    text = README.read_text(encoding="utf-8")
    covered = [100 * coverage(names, trend) for trend in ("trend", "single")]
    claim = "hold the true trend in {:.0f} % of places, where those of independent errors hold it in {:.0f} %"
    assert claim.format(*covered) in " ".join(text.split())
    assert f"```text\n{capsys.readouterr().out}```" in text
    shown = ROOT / ".github/first_look.png"
    assert f"({shown.relative_to(ROOT).as_posix()})" in text, "ci/first_look.py makes it"
    for path in (shown, tmp_path / "first_look.png"):
        assert path.read_bytes().startswith(b"\x89PNG") and 20_000 < path.stat().st_size < 200_000


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)]+)\)", README.read_text(encoding="utf-8"))
    assert len(links) > 6 and not [link for link in links if not (ROOT / link).exists()]


@pytest.mark.slow  # bare fits of years of maps take their time
def test_the_readme_runs(namespace: dict[str, Any]) -> None:
    pytest.importorskip("matplotlib")
    assert len(BLOCKS) >= 9
    for number, block in enumerate(BLOCKS[1:]):
        first = README.read_text(encoding="utf-8").split(block)[0].count("\n")
        code = compile("\n" * first + block, str(README), "exec")  # errors name the README's lines
        with warnings.catch_warnings():
            # The README opens a store without saying consolidated=False.
            warnings.filterwarnings(
                "ignore", "Failed to open Zarr store with consolidated metadata", RuntimeWarning
            )
            exec(code, namespace)
        if number == 0:
            assert isinstance(namespace["field"], xs.Field)
    assert namespace["field"].statistics.holders == ("2008", "2009", "2010"), "holder='time.year'"
    assert Path("sums").is_dir(), "checkpoint='sums'"
    found = namespace["found"]
    assert found.lower.item() < namespace["truth"].parameters["D"] < found.upper.item()
    assert found.stderr.item() < 0.0006
