"""Independent fits whose masks are nearly the same: each is the fit of its own data."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import xspline as xs

DAYS = 20


def days(rows: int, columns: int, changed: int = 3) -> xr.DataArray:
    """Days with five masks, which differ in one to three places, in runs of four days."""
    rng = np.random.default_rng(0)
    y, x = np.linspace(0, 1, rows), np.linspace(0, 1, columns)
    values = np.sin(5 * y)[:, None] * np.cos(4 * x) + 0.1 * rng.standard_normal((DAYS, rows, columns))
    known = np.repeat((rng.random((rows, columns)) > 0.1)[None], DAYS, axis=0)
    for run in range(5):
        places = rng.choice(np.flatnonzero(known[0]), 1 + run % changed, replace=False)
        known[4 * run : 4 * run + 4].reshape(4, -1)[:, places] = False
    return xr.DataArray(np.where(known, values, np.nan), {"y": y, "x": x}, ("time", "y", "x"), "u")


@pytest.fixture(scope="module")
def data() -> xr.DataArray:
    return days(60, 90)


@pytest.mark.parametrize(
    "chunks", [None, {"time": 7}, {"time": 3, "y": 20, "x": 31}], ids=["in memory", "by time", "across"]
)
def test_each_day_is_the_fit_of_its_own_data(data: xr.DataArray, chunks: dict[str, int] | None) -> None:
    """Coefficients, error bars and degrees of freedom of 20 days at once, and of each day alone."""
    penalty = xs.Roughness(1e-6)
    field = (data if chunks is None else data.chunk(chunks)).spline.fit(y=26, x=40, penalty=penalty)
    at = {"y": np.linspace(0, 1, 7), "x": np.linspace(0, 1, 6)}
    stderr, edf = field.stderr(at), field.summary().edf
    for day in range(0, DAYS, 3):
        alone = data[day].spline.fit(y=26, x=40, penalty=penalty)
        for found, expected in (
            (field.coefficients[..., day], alone.coefficients),
            (stderr.isel(time=day), alone.stderr(at)),
            (edf[day], alone.summary().edf),
        ):
            scale = float(np.abs(expected).max())
            np.testing.assert_allclose(found.values, expected.values, rtol=0, atol=1e-10 * scale)


def test_a_day_without_the_only_place_of_a_coefficient_is_not_determined() -> None:
    """One place decides whether a day has a fit: no correction of another day's says otherwise."""
    rng, n = np.random.default_rng(1), 36
    x = np.linspace(0, 1, n)
    values = rng.standard_normal((4, n, n))
    values[2, 0, 5] = values[1, 20, 20] = np.nan
    data = xr.DataArray(values, {"y": x, "x": x}, ("day", "y", "x"), "u")
    field = data.spline.fit(y=xs.BSpline(n, degree=1), x=xs.BSpline(n, degree=1), penalty=0, solver="banded")
    known = np.isfinite(field.coefficients).all(("y_basis", "x_basis"))
    np.testing.assert_array_equal(known, [True, False, False, True])
    np.testing.assert_allclose(field.predict()[0], values[0], atol=1e-9)
