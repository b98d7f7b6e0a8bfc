"""A fit warns of what changes its answer without having been asked for, says so in its text, and of nothing else."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
import xarray as xr

import xspline as xs


def noisy(values: np.ndarray, size: float = 0.1, seed: int = 0) -> np.ndarray:
    return values + size * np.random.default_rng(seed).standard_normal(values.shape)


def wave(n: int = 400, cycles: float = 3.0, noise: float = 0.1) -> xr.DataArray:
    x = np.linspace(0, 1, n)
    return xr.DataArray(
        noisy(np.sin(2 * np.pi * cycles * x), noise), {"x": ("x", x, {"units": "m"})}, "x", "u"
    )


def stations(n: int, seed: int) -> xr.DataArray:
    rng = np.random.default_rng(seed)
    x, y = rng.random((2, n))
    values = np.sin(6 * x) + np.cos(5 * y) + 0.1 * rng.standard_normal(n)
    return xr.DataArray(values, {"x": ("o", x), "y": ("o", y)}, "o", "v")


# ---- λ at a bound


@pytest.mark.slow
def test_a_strength_at_its_upper_bound() -> None:
    x = np.linspace(0, 1, 60)
    data = xr.DataArray(noisy(np.sin(6 * x)[:, None] + x[:8], 0.3), {"x": x, "y": x[:8]}, ("x", "y"), "u")
    with pytest.warns(
        xs.FitWarning, match=r"u: lambda of 'y' is at its upper bound.*fit y=xs\.Polynomial\(1\)"
    ):
        field = data.spline.fit(x=8, y=5, penalty=xs.Roughness())
    assert "lambda of 'y' is at its upper bound" in repr(field)
    data.spline.fit(x=8, y=xs.Polynomial(1))  # as advised: without a warning


@pytest.mark.slow
def test_a_strength_at_its_lower_bound() -> None:
    rng = np.random.default_rng(1020)
    x, y = rng.random((2, 175))
    values = np.sin(9 * x) * np.cos(14 * y) + 0.05 * rng.standard_normal(175)
    data = xr.DataArray(values, {"x": ("o", x), "y": ("o", y)}, "o", "v")
    with pytest.warns(xs.FitWarning, match=r"v: lambda of 'x' is at its lower bound.*take more functions"):
        field = data.spline.fit(x=5, y=10, penalty="gcv")
    assert "lambda of 'x' is at its lower bound" in repr(field)


@pytest.mark.slow
def test_no_warning_where_there_is_no_noise() -> None:
    x = np.linspace(0, 1, 100)
    for values in (np.sin(6 * x), 1 + 2 * x, np.full(100, 288.15), np.zeros(100)):
        xr.DataArray(values, {"x": x}, "x", "u").spline.fit(x=20)


# ---- knots that limit the fit


def test_knots_that_limit_the_fit() -> None:
    with pytest.warns(
        xs.FitWarning, match=r"functions along 'x' are in use, so the knots limit.*xs\.BSpline\(16\)"
    ):
        field = wave().spline.fit(x=8)
    assert "the knots limit the fit" in repr(field)
    wave().spline.fit(x=32)


@pytest.mark.slow
@pytest.mark.parametrize("size", [12, 16, 24, 40])
def test_no_warning_where_more_knots_change_nothing(size: int) -> None:
    """Of few functions all are in use, but the finest hold nothing but noise."""
    wave(cycles=2).spline.fit(x=size)


@pytest.mark.parametrize("size", [5, 8])
def test_no_warning_of_a_curve_that_few_functions_hold(size: int) -> None:
    x = np.linspace(0, 1, 20_000)
    values = noisy(3 * x**2 - x)
    xr.DataArray(values, {"x": x}, "x", "u").spline.fit(x=size)


# ---- a nearly singular system without a penalty


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_stations_that_hardly_determine_the_field(seed: int) -> None:
    data, bases = stations(100, seed), {c: xs.BSpline(8, domain=(0, 1)) for c in "xy"}
    with pytest.warns(xs.FitWarning, match="v: nearly singular: .*pass a penalty"):
        field = data.spline.fit(bases, penalty=0)
    assert "nearly singular" in repr(field)
    away = field.predict(x=np.linspace(0, 1, 30), y=np.linspace(0, 1, 30))
    assert abs(away).max() > 10, "which is why"
    data.spline.fit(bases)


@pytest.mark.parametrize("degree", [1, 3, 5])
def test_no_warning_where_data_are_spread_evenly(degree: int) -> None:
    """The condition of the matrix is 10¹⁹ for quintics, but no direction of the field is worse determined."""
    x = np.linspace(0, 1, 16)
    basis = xs.BSpline(8, degree=degree)
    values = noisy(np.zeros((16, 16, 16)))
    xr.DataArray(values, dict.fromkeys("xyz", x), tuple("xyz"), "u").spline.fit(
        x=basis, y=basis, z=basis, penalty=0
    )


def test_each_of_several_fits_is_looked_at() -> None:
    rng, x = np.random.default_rng(0), np.linspace(0, 1, 100)
    values = rng.standard_normal((100, 3))
    values[5:95, 1] = np.nan
    values[40, 1] = values[60, 1] = 1.0
    data = xr.DataArray(values, {"x": x}, ("x", "b"), "u")
    with pytest.warns(xs.FitWarning, match="u: nearly singular"):
        data.spline.fit(x=8, penalty=0)


# ---- observations that were left out


@pytest.mark.slow
@pytest.mark.parametrize("label", [np.nan, np.inf, -np.inf])
def test_labels_that_are_no_labels(label: float) -> None:
    data = wave()
    x = data.x.values.copy()
    x[[3, 7]] = label
    broken = data.assign_coords(x=x)
    with pytest.warns(
        xs.FitWarning, match="u: 2 observations were left out because a label is NaN, NaT or inf"
    ):
        field = broken.spline.fit(x=xs.BSpline(20, domain=(0, 1)))
    assert "2 observations were left out" in repr(field) and field.statistics.count == 398
    lazy = broken.chunk(x=100).spline.fit(x=xs.BSpline(20, domain=(0, 1)), compute=False)
    with pytest.warns(xs.FitWarning, match="2 observations were left out"):
        lazy.compute()


def test_a_grid_of_dates_with_many_values_each() -> None:
    """One label of a grid is many observations."""
    x = np.linspace(0, 1, 30)
    y = x.copy()
    y[4] = np.inf
    data = xr.DataArray(noisy(np.sin(6 * x)[:, None] + x), {"x": x, "y": y}, ("x", "y"), "u")
    with pytest.warns(xs.FitWarning, match="u: 30 observations were left out because a label"):
        field = data.spline.fit(x=8, y=xs.Polynomial(1))
    assert "30 observations were left out because a label" in repr(field)


def test_no_warning_of_missing_values_even_where_labels_are_missing_too() -> None:
    """Tables are padded with NaN, and curvilinear grids have no places on land."""
    data = wave()
    x = data.x.values.copy()
    x[390:] = np.nan
    padded = data.assign_coords(x=x).where(np.arange(400) < 390)
    field = padded.spline.fit(x=20)
    assert "left out" not in repr(field)


@pytest.mark.parametrize("stored", [{"scale_factor": 0.5, "add_offset": 20.0}, {"_FillValue": -999.0}])
def test_packed_values_that_were_not_decoded_are_told(stored: dict[str, float], tmp_path) -> None:
    data = wave().where(wave().x > 0.1)
    data.to_dataset().to_netcdf(tmp_path / "packed.nc", encoding={"u": {"_FillValue": -999.0} | stored})
    with xr.open_dataset(tmp_path / "packed.nc", mask_and_scale=False) as packed:
        for own in (packed, packed.load()):
            with pytest.warns(xs.FitWarning, match=rf"u has the attributes {next(iter(stored))}=.*decode_cf"):
                own.u.spline.statistics(x=20)
        xr.decode_cf(packed).u.spline.statistics(x=20)  # as advised: without a warning
    data.assign_attrs(_FillValue=-999.0, missing_value=np.nan).spline.statistics(x=20)  # no value is that


@pytest.mark.parametrize("fill", [-9999.0, -32768.0, np.float32(1e20), np.float32(9.96921e36)])
@pytest.mark.parametrize("step", [10, 400])
def test_fill_values_that_nobody_named_are_told(fill: float, step: int) -> None:
    data = wave().astype(np.asarray(fill).dtype)
    filled = data.where(np.arange(400) % step > 0, fill)
    with pytest.warns(
        xs.FitWarning, match=rf"u: {400 // step} of 400 values are .*{re.escape(str(fill))}\)$"
    ):
        filled.spline.statistics(x=20)
    masked = filled.where(filled != fill)  # as advised: without a warning
    for own in (masked, masked.where(data.x > 0, 9.0), data * 9999 / float(data.max())):
        own.spline.statistics(x=20)
    filled.spline.statistics(x=20, weights=xr.where(filled == fill, 0.0, 1.0))


def test_a_domain_that_was_written_down_leaves_out_without_a_warning() -> None:
    field = wave().spline.fit(x=xs.BSpline(20, domain=(0, 0.5)))
    assert "200 observations outside the domain were left out" in repr(field)


# ---- dimensions that became independent fits


def test_a_second_axis_of_the_same_kind_is_not_fitted_in_silence() -> None:
    days = np.arange(12) * np.timedelta64(1, "D")
    time, reference = np.datetime64("2001-01-01", "ns") + days, np.datetime64("2000-12-01", "ns") + days[:5]
    data = xr.DataArray(
        noisy(np.zeros((5, 12))), {"time": time, "reference": reference}, ("reference", "time"), "u"
    )
    with pytest.warns(
        xs.FitWarning, match=r"dimension 'reference' is an axis.* 5 independent fits over it\. Name"
    ):
        data.spline.fit(penalty=0.1)
    field = data.spline.fit(time=4, penalty=0.1)
    assert "5 independent fits over reference" in repr(field)


@pytest.mark.slow
def test_no_warning_where_fits_are_independent_by_request() -> None:
    x = np.linspace(0, 1, 40)
    data = xr.DataArray(
        noisy(np.sin(6 * x)[:, None] + np.zeros(6)), {"x": x, "member": range(6)}, ("x", "member"), "u"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "6 independent fits over member" in repr(data.spline.fit())
        assert "6 independent fits over member" in repr(data.spline.fit(x=8))
