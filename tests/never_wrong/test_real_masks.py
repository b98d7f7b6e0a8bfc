"""Fields where there is sea: what the automatic smoothing costs there, and that the plan says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr

import xspline as xs


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
    row = next(row for row in plan.rows if row.mask == "any")
    assert row.solver == "dissection" and row.solver_bytes < memory


@pytest.mark.parametrize(
    "penalty", [pytest.param(None, marks=pytest.mark.slow), xs.Roughness(1e-5)], ids=repr
)
def test_the_plan_names_the_solver_of_the_fit(penalty: Any) -> None:
    names = []
    for rows in (24, 110):
        data = ocean(rows)
        planned = next(row for row in xs.plan(data, bases(rows), penalty=penalty).rows if row.mask == "any")
        field = xs.fit(data, bases(rows), penalty=penalty)
        names.append(planned.solver)
        assert planned.solver == field.fits["u"].solved.factorisation.choice.name
    assert names == ["banded", "dissection"]
