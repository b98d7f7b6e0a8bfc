"""Fine times, tiny and huge values, and other small things that came out wrong."""

from __future__ import annotations

from typing import Any

import cftime
import numpy as np
import pytest
import xarray as xr

import xspline as xs

START = np.datetime64("2024-03-05T12:34:56.789", "ns")
#: Functions here are chosen for times, not for what the values do between them.
pytestmark = pytest.mark.filterwarnings("ignore:.*residuals of neighbours")


def wave(step: int, n: int = 2000, start: np.datetime64 = START) -> xr.DataArray:
    """40 radians of a sine, in steps of some nanoseconds."""
    time = start + np.arange(n) * np.timedelta64(step, "ns")
    return xr.DataArray(np.sin(np.linspace(0, 40, n)), {"time": time}, "time", "u")


# --- times finer than float64 seconds since 1970


@pytest.mark.parametrize(("step", "error"), [(10, 1e-9), (1000, 1e-12), (10**6, 1e-12)])
def test_fine_times_are_as_exact_as_numbers(step: int, error: float) -> None:
    """Where times are counted from a whole second before, so that ten nanoseconds are known to 1e-8 of themselves."""
    data = wave(step)
    seconds = (data.time.values - data.time.values[0]).astype(
        np.int64
    ) / 1e9  # which float64 has exactly enough
    elapsed = data.assign_coords(time=seconds)
    field, reference = (d.spline.fit(time=200, penalty=0) for d in (data, elapsed))
    np.testing.assert_allclose(field.predict(), reference.predict().values, atol=error)
    rate, same = field.derivative(time=1), reference.derivative(time=1)
    np.testing.assert_allclose(rate, same.values, atol=1e3 * error * float(abs(same).max()))
    between = data.time.values[5:-5] + np.timedelta64(step // 2, "ns")
    at = (between - data.time.values[0]).astype(np.int64) / 1e9
    np.testing.assert_allclose(field.predict(time=between), reference.predict(time=at).values, atol=error)


@pytest.mark.parametrize(
    "basis", [xs.Fourier(3, "1ms"), xs.BSpline(12, period="1ms")], ids=["Fourier", "spline"]
)
def test_short_periods_are_exact(basis: xs.Basis) -> None:
    data = wave(1000, 4000)
    phase = np.arange(4000) * 1e-3  # in periods of 1 ms
    data[:] = np.sin(2 * np.pi * phase)
    field = data.spline.fit(time=basis, penalty=1e-9)
    assert float(abs(field.predict() - data).max()) < (1e-8 if isinstance(basis, xs.Fourier) else 2e-3)


def test_the_phase_of_a_season_is_that_of_1970_whatever_the_epoch() -> None:
    """cos and sin of one hour, over one hour (seconds from its start) and over many (seconds from 1970)."""
    data = wave(10**9, 3600, np.datetime64("2024-01-01T00", "ns"))
    day = wave(60 * 10**9, 3000, np.datetime64("2024-01-01T00", "ns"))
    hours = [
        d.copy(data=np.cos(2 * np.pi * np.arange(d.size) * s / 3600 + 0.3)) for d, s in ((data, 1), (day, 60))
    ]
    one, two = (d.spline.fit(time=xs.Fourier(1, "1h") + xs.Polynomial(1), penalty=1e-9) for d in hours)
    names = ["cos1", "sin1"]
    a, b = (f.coefficients.sel(time_basis=names).values for f in (one, two))
    np.testing.assert_allclose(a, b, atol=1e-6)


def test_fine_cftime_dates_are_exact() -> None:
    start = cftime.datetime(2024, 2, 30, 12, calendar="360_day")
    times = np.array([start + n * np.timedelta64(1, "us").item() for n in range(1000)])
    values = np.sin(np.linspace(0, 20, 1000))
    field = xr.DataArray(values, {"time": times}, "time").spline.fit(time=100, penalty=0)
    reference = xr.DataArray(values, {"time": np.arange(1000) * 1e-6}, "time").spline.fit(time=100, penalty=0)
    np.testing.assert_allclose(field.predict(), reference.predict().values, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("start", ["12:34:56.9999999", "12:34:56.99999995", "12:34:57.00000012", "12:34:57"])
def test_one_text_gives_one_epoch(start: str) -> None:
    """Wherever the rounded start of the domain falls, workers that read the text count from where the client does."""
    data = wave(1000, start=np.datetime64(f"2024-03-05T{start}", "ns"))
    for basis in (xs.BSpline(50), xs.Fourier(2, "1ms"), xs.Fourier(2, "1ms") + xs.Polynomial(1)):
        space = xs.space(data, time=basis)
        again = xs.Space.from_json(space.to_json())
        assert again.axis("time") == space.axis("time") and again == space
        lazy = data.chunk(time=500).spline.fit(space, penalty=1e-6).predict()
        np.testing.assert_allclose(lazy, data.spline.fit(space, penalty=1e-6).predict(), atol=1e-12)


def test_a_period_too_short_for_its_times_is_refused() -> None:
    space = xs.Space({"time": xs.Fourier(3, "1ms")})
    with pytest.raises(
        ValueError, match=r"time: seconds since 1970.* too coarse for the period of 0\.001 s; give the"
    ):
        wave(1000).spline.fit(space, penalty=0)
    domain = ("2024-03-05T12:34:56", "2024-03-05T12:35:00")
    near = xs.Space({"time": xs.Fourier(3, "1ms", domain=domain)})
    assert wave(1000).spline.fit(near, penalty=1e-6).statistics.count == 2000


def test_ordinary_times_keep_their_floats() -> None:
    time = np.datetime64("2000-01-01", "ns") + np.arange(400) * np.timedelta64(1, "h")
    axis = xr.DataArray(np.zeros(400), {"time": time}, "time").spline.space(time=20).axis("time")
    assert float(axis.to_float(time[:1])[0]) == 946684800.0 and axis.to_dict() == {
        "kind": "time",
        "units": "s",
        "calendar": "standard",
        "role": "time",
    }


def test_equations_see_seconds_since_1970() -> None:
    data = wave(1000)
    field = data.spline.fit(time=xs.BSpline(200, 4), penalty=0)
    first = START.astype(np.int64) / 1e9
    seen: list[Any] = []

    def known(time: np.ndarray) -> np.ndarray:
        seen.append(time)
        return np.ones_like(time)

    field.recover("u_tt = -a * k * u", known={"k": lambda time: known(time)})
    assert abs(float(np.concatenate(seen).min()) - first) < 1


# --- tiny and huge values


@pytest.mark.slow
@pytest.mark.parametrize("method", ["reml", "gcv", "holders"])
@pytest.mark.parametrize("exponent", [-134, -100, 100, 134])
def test_the_choice_of_smoothing_does_not_depend_on_the_scale(method: str, exponent: int) -> None:
    x, rng = np.linspace(0, 1, 200), np.random.default_rng(0)
    data = xr.DataArray(np.sin(7 * x) + 3 + 0.1 * rng.standard_normal(200), {"x": x}, "x")
    holder = xr.DataArray(np.arange(200) % 4, dims="x")
    reference = data.spline.fit(x=20, penalty=method, holder=holder)
    scaled = (data * 10.0**exponent).spline.fit(x=20, penalty=method, holder=holder)
    name = "tau" if method == "reml" else "lambda"
    np.testing.assert_allclose(scaled.summary()[name], reference.summary()[name], rtol=1e-6)
    np.testing.assert_allclose(scaled.predict() / 10.0**exponent, reference.predict(), rtol=1e-9)
    np.testing.assert_allclose(scaled.stderr() / 10.0**exponent, reference.stderr(), rtol=1e-6)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy speaks of the overflow too
@pytest.mark.parametrize(
    ("exponent", "size", "penalty", "compute"),
    [
        (-150, "small", 0, True),
        (-200, "small", "reml", False),
        (150, "large", "reml", True),
        (300, "large", 0, False),
    ],
)
def test_values_whose_squares_leave_float64_are_refused(
    exponent: int, size: str, penalty: Any, compute: bool
) -> None:
    x = np.linspace(0, 1, 50)
    data = xr.DataArray(np.sin(7 * x) * 10.0**exponent, {"x": x}, "x", "u").chunk(x=25)
    with pytest.raises(
        ValueError, match=f"values of u are so {size} .* leave the range of float64; .*scale the data"
    ):
        data.spline.fit(x=10, penalty=penalty, compute=compute).compute()


def test_a_tiny_member_of_a_batch_is_named_and_the_rest_is_fitted() -> None:
    x = np.linspace(0, 1, 50)
    scale = xr.DataArray([1.0, 1e-170, 0.0], dims="level")
    data = xr.DataArray(np.sin(7 * x), {"x": x}, "x", "u") * scale
    with pytest.warns(
        UserWarning, match=r"values of u are so small .* in 1 of 3 fits, whose standard errors"
    ):
        field = data.rename("u").spline.fit(x=20, penalty=1e-9)
    np.testing.assert_allclose(field.predict().isel(level=0), data.isel(level=0), atol=1e-4)


# --- weights and values that are no numbers


@pytest.mark.parametrize("chunks", [None, {"x": 10}])
@pytest.mark.parametrize("dtype", ["M8[ns]", "complex128", "U4"])
def test_weights_have_to_be_real_numbers(dtype: str, chunks: dict[str, int] | None) -> None:
    x = np.linspace(0, 1, 50)
    data = xr.DataArray(np.sin(x), {"x": x}, "x")
    weights = xr.ones_like(data).astype(int).astype(dtype)
    if chunks:
        weights = weights.chunk(chunks)
    with pytest.raises(
        TypeError, match=r"weights have dtype .*, and have to be real numbers, relative precisions"
    ):
        data.spline.fit(x=10, weights=weights)


# --- contradictions


def test_a_second_select_that_contradicts_is_refused() -> None:
    time = np.datetime64("2000-01-01", "ns") + np.arange(1000) * np.timedelta64(1, "D")
    data = xr.DataArray(np.sin(np.arange(1000) / 58) + np.arange(1000.0), {"time": time}, "time")
    field = data.spline.fit(time=xs.Fourier(2, "year") + xs.Polynomial(1), penalty=1e-9)
    trend = field.select(time=xs.Polynomial)
    for chosen in (trend, trend.compute(), field.sample(2).select(time=xs.Polynomial)):
        with pytest.raises(ValueError, match=r"Fourier of 'time' was left out already, by select\(time="):
            chosen.select(time=xs.Fourier)
    np.testing.assert_array_equal(trend.select(time=xs.Polynomial).predict(), trend.predict())


def test_names_that_are_one_as_text_are_refused() -> None:
    x = np.linspace(0, 1, 50)
    data = xr.Dataset({1: ("x", np.sin(x)), "1": ("x", np.cos(x))}, {"x": x})
    with pytest.raises(ValueError, match=r"variables 1 and '1' have one name as text, .* rename one of them"):
        data.spline.fit(x=10, penalty=0)
    assert set(data.drop_vars("1").spline.fit(x=10, penalty=0).variables) == {"1"}
