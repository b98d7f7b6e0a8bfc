"""What an outside reader found believed too easily: starts between gaps, constants told together, knowns with holes."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import xspline as xs
from tests import scatter


def decaying() -> xr.DataArray:
    x, t = np.linspace(0, 6, 60), np.linspace(0, 2, 40)
    u = sum(np.exp(-0.1 * k**2 * t)[:, None] * np.sin(k * x + k) / k for k in (1, 2, 3))
    return xr.DataArray(
        u + 0.02 * np.random.default_rng(0).standard_normal((40, 60)), {"t": t, "x": x}, name="u"
    )


BASES = {"x": xs.BSpline(20, degree=5), "t": xs.BSpline(9, degree=5)}


def test_between_gaps_the_penalty_of_the_field_does_not_matter() -> None:
    """From a field that almost interpolates a search ended at a negative diffusivity, with a small error."""
    data = decaying()
    seen = data.where((data.t < 0.3) | (abs(data.x - 3) > 2.8))
    field = xs.fit(seen, BASES, penalty=1e-6, weights=xr.full_like(seen, 2500.0))
    found = field.recover("u_t = D*u_xx")
    assert abs(found.estimate.item() - 0.1) < scatter.FIVE * found.stderr.item() < 0.08


def test_intervals_of_constants_that_data_tell_together_are_withheld_together() -> None:
    """Of one wave only a - b is told; an interval of b that holds whatever a is has no ends."""
    t, x = np.linspace(0, 2, 40), np.linspace(0, 6, 60)
    u = np.exp(-0.3 * t)[:, None] * np.sin(x) + 0.1 * np.random.default_rng(1).standard_normal((40, 60))
    found = xr.DataArray(u, {"t": t, "x": x}, ("t", "x"), "u").spline.recover("u_t = a*u_xx + b*u")
    assert found.lower.isnull().all() and found.upper.isnull().all()
    assert "as are those of b, which the data tell together with it" in found.attrs["checks"]


def test_a_known_without_dimensions_is_a_number() -> None:
    data = decaying()
    by_number, by_array = (
        xs.fit(data, BASES, penalty=xs.Physics("u_t = D*u_xx", 10.0, {"D": d}))
        for d in (0.1, xr.DataArray(0.1))
    )
    np.testing.assert_array_equal(by_number.coefficients, by_array.coefficients)


def test_models_that_know_an_equation_are_not_merged() -> None:
    field = xs.fit(decaying(), BASES, penalty=xs.Physics("u_t = D*u_xx", "hard", {"D": 0.1}))
    with pytest.raises(TypeError, match=r"item 0 knows an equation, .*merge the statistics"):
        xs.merge_models([field])


def test_maps_without_a_value_say_so() -> None:
    labels = {"lat": np.linspace(0, 10, 24), "lon": np.linspace(0, 10, 20), "time": np.arange(20.0)}
    data = xr.DataArray(np.full((24, 20, 20), np.nan), labels, ("lat", "lon", "time"), "u")
    with pytest.raises(ValueError, match="there are no observations: every value is missing"):
        data.spline.fit(seconds=2)
