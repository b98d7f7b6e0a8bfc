"""Attacks on silent wrongness: data, labels and weights as they should not be. Each is held, refused or told."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import cftime
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import xspline as xs

X = np.linspace(0, 10, 120)
VALUES = np.sin(X) + 0.1 * np.random.default_rng(0).standard_normal(120)
DAYS = pd.date_range("2000-01-01", periods=120)
AT = np.linspace(0.5, 9.5, 50)
LAT, LON = np.linspace(-60, 60, 13), np.arange(0, 360, 15.0)
WAVE = np.cos(np.radians(LAT))[:, None] * np.cos(np.radians(LON))


def curve(values: Any = VALUES, x: Any = X, **attrs: Any) -> xr.DataArray:
    return xr.DataArray(values, {"x": ("x", x)}, "x", "u", attrs)


def dated(time: Any) -> xr.DataArray:
    return xr.DataArray(VALUES, {"time": ("time", time)}, "time", "u")


def weights(values: Any) -> xr.DataArray:
    return xr.DataArray(values, dims="x")


def spoilt(value: float, count: int) -> xr.DataArray:
    values = VALUES.copy()
    values[50 : 50 + count] = value
    return curve(values)


def twice(shift: float) -> tuple[np.ndarray, np.ndarray]:
    """Labels that are there twice but for a rounding error, and their values."""
    x = np.concatenate([X, X[:50] + shift])
    return np.concatenate([VALUES, VALUES[:50]]), x


@pytest.fixture(scope="module")
def expected() -> dict[str, xr.DataArray]:
    return {kind: curve().spline.fit(bases).predict(x=AT) for kind, bases in KINDS.items()}


EMPTY_LAST = da.concatenate([da.from_array(VALUES, 100), da.zeros(0, chunks=1)])
KINDS: dict[str, Any] = {"single": {"x": 20}, "bare": None}
#: What makes no difference: data, scale and offset of their values, and what is allowed in standard errors of noise.
HELD: dict[str, tuple[Callable[[], xr.DataArray], float, float, float]] = {
    "an offset of 1e9": (lambda: curve(VALUES + 1e9), 1.0, 1e9, 1e-4),
    "an offset of 1e12": (lambda: curve(VALUES + 1e12), 1.0, 1e12, 1e-2),
    "an offset in float32": (lambda: curve((VALUES + 1e4).astype("f4")), 1.0, 1e4, 3e-2),
    "float16": (lambda: curve(VALUES.astype("f2")), 1.0, 0.0, 3e-2),
    "long double": (lambda: curve(VALUES.astype(np.longdouble)), 1.0, 0.0, 1e-9),
    "big-endian": (lambda: curve(VALUES.astype(">f8")), 1.0, 0.0, 1e-9),
    "tiny": (lambda: curve(VALUES * 1e-100), 1e-100, 0.0, 1e-4),
    "descending": (lambda: curve()[::-1], 1.0, 0.0, 1e-6),
    "shuffled": (lambda: curve()[np.random.default_rng(1).permutation(120)], 1.0, 0.0, 1e-6),
    "an empty chunk": (lambda: curve(EMPTY_LAST), 1.0, 0.0, 1e-6),
    "a chunk for each value": (lambda: curve().chunk(x=1), 1.0, 0.0, 1e-6),
    "a coordinate beside it": (lambda: curve().assign_coords(n=("x", np.arange(120))), 1.0, 0.0, 1e-9),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", HELD)
def test_what_makes_no_difference(expected: dict[str, xr.DataArray], name: str, kind: str) -> None:
    make, scale, offset, allowed = HELD[name]
    field = make().spline.fit(KINDS[kind])
    np.testing.assert_allclose(
        (field.predict(x=AT) - offset) / scale, expected[kind], rtol=0, atol=0.1 * allowed
    )
    np.testing.assert_allclose(field.summary().sigma / scale, 0.095, rtol=0.1)


def two(a: xr.DataArray, b: xr.DataArray) -> Any:
    space = xs.Space({"x": xs.BSpline(20, domain=(0, 10))})
    return a.spline.statistics(space, holder="a") + b.spline.statistics(space, holder="b")


def geographic(lat: Any, lon: Any) -> xr.DataArray:
    values = WAVE + 0.1 * np.random.default_rng(0).standard_normal(WAVE.shape)
    return xr.DataArray(values, {"lat": lat, "lon": lon}, ("lat", "lon"), "u")


MIXED = [cftime.DatetimeNoLeap(2000, 1, 1), *(cftime.Datetime360Day(2000, 2, 1 + i % 30) for i in range(119))]
#: What is refused, or warned of where it may be meant.
TOLD: dict[str, tuple[Callable[[], Any], type[Exception] | type[Warning], str]] = {
    "integers beyond float64": (
        lambda: curve(np.round(1000 * VALUES).astype("int64") + 2**60).spline.fit(x=20),
        xs.FitWarning,
        "vary by .* about 1.153e\\+18, where float64 tells 2.6e\\+02 apart",
    ),
    "weights that float64 does not add up": (
        lambda: curve().spline.fit(x=20, weights=weights(np.where(X < 5, 1e-300, 1.0))),
        ValueError,
        "weights go from 1e-300 to 1, which float64 does not add up",
    ),
    "one huge weight": (
        lambda: curve().spline.fit(weights=weights(np.where(X == X[9], 1e30, 1.0))),
        ValueError,
        "weights go from 1 to 1e\\+30",
    ),
    "weights of 1e300": (
        lambda: curve().spline.fit(x=20, weights=weights(np.full(120, 1e300))),
        ValueError,
        r"leave the range of float64; scale the data \(or the weights\)",
    ),
    "values of 1e-310": (lambda: curve(VALUES * 1e-310).spline.fit(x=20), ValueError, "so small that"),
    "-8888 for missing values": (
        lambda: spoilt(-8888, 4).spline.fit(x=20),
        xs.FitWarning,
        "of 120 values are up to",
    ),
    "-8888 for missing values, bare": (
        lambda: spoilt(-8888, 4).spline.fit(),
        xs.FitWarning,
        "of 120 values are up to",  # four, and what lies beside them
    ),
    "objects": (
        lambda: curve(VALUES.astype(object)).spline.fit(x=20),
        TypeError,
        r"convert it with .astype\(float\)",
    ),
    "dates that are missing": (
        lambda: dated(np.where(DAYS == DAYS[3], np.datetime64("NaT", "ns"), DAYS)).spline.fit(time=20),
        xs.FitWarning,
        "1 observations were left out because a label is NaN, NaT",
    ),
    "calendars that are mixed": (
        lambda: dated(np.array(MIXED, object)).spline.fit(time=20),
        ValueError,
        "calendar",
    ),
    "another calendar in a target": (
        lambda: dated(DAYS).spline.fit(time=20).predict(time=[cftime.Datetime360Day(2000, 2, 30)]),
        ValueError,
        "a date of the 360_day calendar, the coordinate has the standard calendar",
    ),
    "units that are lost": (
        lambda: two(curve(units="K")[:100], curve()[100:]),
        ValueError,
        "units 'K' in one part",
    ),
    "a circle in radians": (
        lambda: geographic(np.radians(LAT), np.radians(LON)).spline.fit(lat=5, lon=8, penalty=0.1),
        xs.FitWarning,
        "close a circle of 2π, and are taken for degrees",
    ),
    "latitude and longitude exchanged": (
        lambda: geographic(LAT, LON).rename(lat="lon", lon="lat").spline.fit(lat=8, lon=5, penalty=0.1),
        xs.FitWarning,
        "'lat' is taken for a latitude, and its labels go from 0 to 345, beyond the poles",
    ),
    "records twice, rounded to float32": (
        lambda: curve(*twice(1e-7)).spline.fit(),
        xs.FitWarning,
        "50 observations have the coordinates and the value of another one",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TOLD)
def test_what_is_told(name: str) -> None:
    call, kind, text = TOLD[name]
    with pytest.warns(kind, match=text) if issubclass(kind, Warning) else pytest.raises(kind, match=text):  # type: ignore[call-overload]
        call()


def test_members_whose_values_are_all_one_choose_nothing_for_others() -> None:
    """As land does, where it is filled with zeros: with them the strength was off, and the field by three errors."""
    alone = curve().spline.fit(x=20)
    filled = [np.full(120, 3.0), np.zeros(120), np.full(120, np.nan)]
    data = xr.DataArray(np.stack([VALUES, *filled]), {"x": X}, ("k", "x"), "u")
    field = data.spline.fit(x=20)
    np.testing.assert_allclose(field.predict(x=AT)[0], alone.predict(x=AT), rtol=0, atol=1e-12)
    np.testing.assert_allclose(field.predict(x=AT)[1:3], [np.full(50, 3.0), np.zeros(50)], atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("shift", [0.0, 1e-13, 1e-9])
def test_measurements_at_nearly_one_place_are_repeated_ones(shift: float) -> None:
    x = np.repeat(X[::2], 2)
    x[1::2] += shift
    values = np.sin(x) + 0.1 * np.random.default_rng(2).standard_normal(120)
    error = curve(values, x).spline.fit().predict(x=AT) - np.sin(AT)
    assert float(np.sqrt((error**2).mean())) < 0.05


def test_longitudes_of_two_conventions_are_one_field() -> None:
    whole = xr.DataArray(WAVE, {"lat": LAT, "lon": LON}, ("lat", "lon"), "u")
    space = whole.spline.space(lat=5, lon=12)
    west = whole[:, LON >= 180]
    parts = [west.assign_coords(lon=west.lon - 360), whole[:, LON < 180]]
    merged = xs.merge([p.spline.statistics(space, holder=str(i)) for i, p in enumerate(parts)]).solve(1e-9)
    at = {"lat": [-10.0, 20.0], "lon": [-170.0, 190.0, 3.0, 200.0]}
    expected = whole.spline.fit(space, penalty=1e-9).predict(at)
    np.testing.assert_allclose(merged.predict(at), expected, rtol=0, atol=1e-12)


def test_dates_as_text_or_of_python_and_what_is_changed_afterwards() -> None:
    start = datetime.datetime(2000, 1, 1)
    dates = np.array([start + datetime.timedelta(days=i) for i in range(120)], object)
    expected = dated(DAYS).spline.fit(time=20).predict(time="2000-03-05")
    texts = dated(DAYS.strftime("%Y-%m-%d").to_numpy()).spline.fit(time=20)
    np.testing.assert_allclose(texts.predict(time="2000-03-05"), expected, rtol=1e-12)
    data = dated(dates)
    field = data.spline.fit(time=20)
    data[:] = 0.0  # a field keeps nothing of the data that changes with them
    np.testing.assert_allclose(field.predict(time="2000-03-05"), expected, rtol=1e-12)
