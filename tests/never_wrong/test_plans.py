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
