"""One rule for domains: observations outside are left out and counted, and predictions there are NaN."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import xspline as xs

TIME = pd.date_range("2000-01-01", periods=48, freq="MS")
DATA = xr.DataArray(
    10 + np.sin(2 * np.pi * np.arange(48) / 12) + 0.01 * np.arange(48), {"time": TIME}, "time", "u"
)
BASES = {
    "trend": xs.Polynomial(1),
    "season and trend": xs.Fourier(2, "year") + xs.Polynomial(1),
    "splines": xs.BSpline(10),
    "season, trend and splines": xs.Fourier(1, "year") + xs.Polynomial(1) + xs.BSpline(8),
}


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize("chunks", [None, 10])
def test_observations_outside_are_left_out(name: str, chunks: int | None) -> None:
    space = DATA[:36].spline.space(time=BASES[name])
    data = DATA if chunks is None else DATA.chunk(time=chunks)
    with pytest.warns(xs.FitWarning, match="12 of 48 labels of 'time' lie outside its domain"):
        field = data.spline.fit(space, penalty=1e-6)
    inside = DATA[:36].spline.fit(space, penalty=1e-6)
    assert int(field.summary()["count"]) == 36 and field.statistics.outside == 12
    np.testing.assert_allclose(field.coefficients, inside.coefficients, rtol=1e-9, atol=1e-9)
    assert bool(field.predict(DATA[36:]).isnull().all())
    assert any("12 observations outside" in finding.text for finding in field.check().concerns["u"])


@pytest.mark.parametrize("name", BASES)
def test_next_months_are_refused_where_that_is_asked_for(name: str) -> None:
    space = DATA[:36].spline.space(time=BASES[name])
    with pytest.warns(xs.FitWarning, match="outside its domain"):
        late = DATA[36:].spline.statistics(space)
    with pytest.raises(ValueError, match="outside"):
        late.require_inside()


def test_points_beyond_a_trend_are_left_out() -> None:
    """Of coordinates that share a dimension too."""
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0, 1, (2, 200))
    data = xr.DataArray(x + y, {"x": ("obs", x), "y": ("obs", y)}, "obs", "u")
    space = xs.Space({"x": xs.Polynomial(1, domain=(0, 0.5)), "y": xs.BSpline(6, domain=(0, 1))})
    field = data.spline.fit(space, penalty=1e-6)
    assert int(field.summary()["count"]) == int((x <= 0.5).sum())
