"""What a plan says of a call is what the call takes: memory at most; of its time see `benchmarks/plan.py`."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import xspline as xs

STATUS = Path("/proc/self/status")


def data(*shape: int, gaps: str = "any") -> xr.DataArray:
    """Waves with noise over coordinates a, b, .. in [0, 1], with gaps that are a product or not."""
    rng, names = np.random.default_rng(0), "abc"[: len(shape)]
    axes = [np.linspace(0, 1, n) for n in shape]
    values = sum(np.sin(5 * x) for x in np.meshgrid(*axes, indexing="ij")) + 0.1 * rng.standard_normal(shape)
    coords = dict(zip(names, axes, strict=True))
    out = xr.DataArray(values, coords, list(names), "u")
    if gaps == "static":
        return out.where(xr.DataArray(rng.random(shape[:2]) > 0.2, dims=["a", "b"]))
    return out.where(rng.random(shape) > 0.1) if gaps == "any" else out


def row(cost: xs.Plan, gaps: str) -> Any:
    return next(row for row in cost.rows if row.mask == gaps)


REML, ROUGH = "reml", xs.Roughness(1e-5)


def test_the_time_is_in_the_plan() -> None:
    cost = xs.plan(data(60, 90), {"a": 20, "b": 30})
    assert cost.seconds == max(row.seconds for row in cost.rows) > 0
    assert cost.to_dict()["rows"][0]["seconds"] == cost.rows[0].seconds
    assert "time" in repr(cost) and " s\n" in repr(cost)


SOLVES = {
    "banded": (data(16, 24, 60), {"a": 8, "b": 12, "c": 30}, REML, None, "any"),
    "given": (data(20, 40, 60), {"a": 9, "b": 20, "c": 40}, ROUGH, None, "any"),
    "dissection": (data(110, 220), {"a": 100, "b": 200}, REML, "dissection", "any"),
    "dense": (data(60, 60), {"a": 40, "b": 40}, REML, "dense", "any"),
    "spectral": (data(300, 300, gaps="none"), {"a": 250, "b": 250}, 1e-3, None, "none"),
    "separable": (data(60, 80, 60, gaps="static"), {"a": 30, "b": 40, "c": 40}, 1e-3, None, "static"),
    "iterative": (data(40, 40, 60), {"a": 20, "b": 20, "c": 40}, ROUGH, "iterative", "any"),
}


@pytest.mark.skipif(not STATUS.exists(), reason="memory is measured on Linux only")
@pytest.mark.parametrize("solve", [pytest.param(name, marks=pytest.mark.slow) for name in SOLVES])
def test_the_memory_of_a_plan_holds(solve: str) -> None:
    values, bases, penalty, solver, gaps = SOLVES[solve]
    names = list(bases)
    small = dict.fromkeys(names, 6)
    # Compiles.
    values[tuple(slice(None, None, 3) for _ in names)].spline.fit(small, penalty=penalty, solver=solver)
    planned = row(xs.plan(values, bases, penalty=penalty, solver=solver), gaps).solver_bytes
    statistics = values.spline.statistics(bases)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = _kib("VmRSS")
    field = statistics.solve(penalty, solver=solver)
    grown = 1024 * (_kib("VmHWM") - before)
    assert np.isfinite(field.coefficients).all()
    assert grown < planned + 2**22, f"{planned / 2**20:.0f} MiB planned, {grown / 2**20:.0f} MiB grown"


def _kib(name: str) -> int:
    lines = STATUS.read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))


# Of fields where there is sea


def ocean(rows: int, seed: int = 0) -> xr.DataArray:
    """Waves with noise on a globe of some rows and twice as many columns, continents left out."""
    rng = np.random.default_rng(seed)
    lat, lon = -90 + 180 * (np.arange(rows) + 0.5) / rows, 360 * (np.arange(2 * rows) + 0.5) / (2 * rows)
    a, b = np.radians(lat)[:, None], np.radians(lon)
    values = (
        np.sin(5 * a) * np.cos(3 * b) + np.cos(11 * a + 7 * b) + 0.3 * rng.standard_normal((rows, 2 * rows))
    )
    coordinates = {
        "lat": ("lat", lat, {"units": "degrees_north"}),
        "lon": ("lon", lon, {"units": "degrees_east"}),
    }
    return xr.DataArray(values, coordinates, ("lat", "lon"), "u").where(
        np.sin(3 * b) + np.cos(2 * b + 4 * a) < 0.8
    )


def bases(rows: int) -> dict[str, Any]:
    return {
        "lat": xs.BSpline(rows, domain=(-90, 90)),
        "lon": xs.BSpline(2 * rows, domain=(0, 360), period=360),
    }


@pytest.mark.parametrize(("rows", "memory"), [(180, 2e9), (360, 8e9)])
def test_the_automatic_fit_of_an_ocean_is_no_band(rows: int, memory: float) -> None:
    """A band over 180 x 360 coefficients takes seconds for each strength that is tried, one over 360 x 720 minutes."""
    plan = xs.plan(ocean(rows), bases(rows))
    planned = row(plan, "any")
    assert planned.solver == "dissection" and planned.solver_bytes < memory


@pytest.mark.parametrize(
    "penalty", [pytest.param(None, marks=pytest.mark.slow), xs.Roughness(1e-5)], ids=repr
)
def test_the_plan_names_the_solver_of_the_fit(penalty: Any) -> None:
    names = []
    for rows in (24, 60):
        values = ocean(rows)
        planned = row(xs.plan(values, bases(rows), penalty=penalty), "any")
        field = xs.fit(values, bases(rows), penalty=penalty)
        names.append(planned.solver)
        assert planned.solver == field.fits["u"].solved.factorisation.choice.name
    assert names == ["banded", "dissection"]
