"""One rule for domains: observations outside are left out and counted, and predictions there are NaN."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import xspline as xs

pytestmark = pytest.mark.filterwarnings("ignore:.*residuals of neighbours")  # a trend leaves the season

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


@pytest.mark.slow
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


EXTENDED = {
    "season and trend": xs.Fourier(2, "year") + xs.Polynomial(2),
    "trend": xs.Polynomial(3),
    "splines": xs.BSpline(10),
    "a circle": xs.BSpline(8, period="year"),
    "waves": xs.Fourier(3, "year"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXTENDED)
@pytest.mark.parametrize("mask", ["none", "points"])
def test_the_sums_of_next_months_are_added(name: str, mask: str) -> None:
    """Sums that moved into the longer domain are those of the same data there, with gaps and a second coordinate."""
    lat = np.linspace(-10, 10, 9)
    data = DATA * xr.DataArray(np.cos(lat / 9), {"lat": lat}, "lat") + 1.0
    data = data.rename("u")
    if mask == "points":
        data = data.where(xr.DataArray(np.random.default_rng(0).random(data.shape) < 0.8, dims=data.dims))
    space = data[:36].spline.space(time=EXTENDED[name], lat=6)
    early = data[:36].spline.statistics(space, holder="early").extend(time=data.time[-1], lat=[-12.0])
    assert early.space.digest != space.digest
    late = data[36:].spline.statistics(early.space, holder="late")
    both = early + late
    whole = data.spline.statistics(early.space)
    a, b = both.total("u"), whole.total("u")
    scale = float(np.abs(b.moment).max())
    np.testing.assert_allclose(
        a.full_moment(both.space.frame),
        b.recentred(a.reference, both.space.frame).full_moment(both.space.frame),
        atol=1e-11 * scale,
    )
    c = np.random.default_rng(1).standard_normal(both.space.shape)
    frame = both.space.frame
    expected = b.gram.matvec(c, frame)
    np.testing.assert_allclose(a.gram.matvec(c, frame), expected, atol=1e-11 * float(np.abs(expected).max()))
    fitted, at_once = both.solve(1e-3), whole.solve(1e-3)
    np.testing.assert_allclose(fitted.predict(data), at_once.predict(data), rtol=1e-8)


@pytest.mark.parametrize(
    ("bases", "ranges", "text"),
    [
        ({"time": BASES["season, trend and splines"]}, {"time": "2030-01-01"}, "begin anew"),
        ({"time": xs.BSpline(10)}, {"lat": 3.0}, "lat"),
        ({"time": xs.BSpline(10)}, {"time": np.datetime64("NaT", "ns")}, "missing or infinite"),
    ],
)
def test_what_cannot_be_extended_is_refused(bases: dict, ranges: dict, text: str) -> None:
    space = DATA.spline.space(bases)
    with pytest.raises((ValueError, KeyError), match=text):
        space.extend(**ranges)
