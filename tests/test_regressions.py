"""Regression on indices, steps and broken lines: maps of coefficients with errors, of pixels and smooth in space."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import xspline as xs

MONTHS = xr.date_range("1990-01", periods=240, freq="MS")
SEASON = xs.Polynomial(1) + xs.Fourier(1, "year")


def record(seed: int, labels: object = MONTHS, smooth: int = 6) -> xr.DataArray:
    noise = np.random.default_rng(seed).normal(size=len(MONTHS) + smooth - 1)
    values = np.convolve(noise, np.ones(smooth) / smooth, "valid")
    return xr.DataArray(values, {"time": MONTHS}, "time").sel(time=labels)


ENSO, AOD = record(1), record(2) ** 2


def maps(noise: float = 0.1) -> xr.DataArray:
    """Values over time, lat, lon with a known coefficient of each index and a jump."""
    lat = xr.DataArray(np.linspace(-30, 30, 13), dims="lat", attrs={"units": "degrees_north"})
    lon = xr.DataArray(np.linspace(150, 270, 21), dims="lon", attrs={"units": "degrees_east"})
    place = xr.Dataset(coords={"lat": lat, "lon": lon})
    enso, aod = np.cos(np.deg2rad(4 * place.lat)) + 0 * place.lon, -0.5 + 0.01 * place.lat + 0 * place.lon
    jump = xr.DataArray(np.where(MONTHS >= MONTHS[100], 1.0, 0.0), {"time": MONTHS}, "time")
    data = 20 + enso * ENSO + aod * AOD + 0.8 * jump
    rng = np.random.default_rng(3)
    data = (data + rng.normal(0, noise, data.shape)).rename("sst").transpose("time", "lat", "lon")
    return data.assign_attrs(units="degC", long_name="temperature")


BASIS = SEASON + xs.Step(str(MONTHS[100])) + xs.Regressors(enso=ENSO, aod=AOD)
LEFT_OUT = "12 of 240 labels of 'time' lie outside 1990-01-01T00:00:00 to 2008-12-01T00:00:00, which the record of the"


def test_the_enso_map_is_least_squares(data_dir: Path) -> None:
    """At every pixel, in memory and in chunks of time; with the errors of ordinary least squares."""
    sst = xr.open_dataset(data_dir / "ersst_v5_2010_2020.nc").sst
    index = sst.sel(lat=slice(5, -5), lon=slice(190, 240)).mean(("lat", "lon")).astype("f8")
    enso = index.groupby("time.month") - index.groupby("time.month").mean()
    time = xs.Polynomial(1) + xs.Fourier(2, "365.2425D") + xs.Regressors(enso=enso)
    field, chunked = sst.spline.fit(time=time), sst.chunk(time=30, lat=45).spline.fit(time=time)
    days = (sst.time.values - sst.time.values[0]) / np.timedelta64(1, "D")
    phase = 2 * np.pi * ((sst.time.values - np.datetime64("1970-01-01")) / np.timedelta64(31556952, "s"))
    waves = [wave(k * phase) for k in (1, 2) for wave in (np.cos, np.sin)]
    phi = np.stack([np.ones(128), days / days[-1], *waves, enso], 1)
    y = sst.values.reshape(128, -1).astype(float)
    ocean = np.isfinite(y).all(0)
    expected = np.linalg.lstsq(phi, y[:, ocean], rcond=None)[0]
    variance = ((y[:, ocean] - phi @ expected) ** 2).sum(0) / (128 - 7) * np.linalg.inv(phi.T @ phi)[6, 6]
    for own in (field, chunked):
        found = own.coefficient("enso", stderr=True)
        np.testing.assert_allclose(found.sst_enso.values.ravel()[ocean], expected[6], rtol=0, atol=1e-10)
        errors = found.sst_enso_stderr.values.ravel()[ocean]
        np.testing.assert_allclose(errors, np.sqrt(variance), rtol=1e-9, atol=1e-9)
    trend = field.coefficient("x1")
    per_day = expected[1] / float(days[-1])
    np.testing.assert_allclose(trend.values.ravel()[ocean] * 86400, per_day, rtol=0, atol=1e-12)
    assert trend.units == "degC s-1" and "units" not in found.sst_enso.attrs


def test_coefficients_of_each_kind_of_function() -> None:
    data = maps()
    field = data.spline.fit(time=BASIS)
    assert field.space.coefficient_labels("time")[-3:] == ["step", "aod", "enso"]
    enso, jump = field.coefficient("enso"), field.coefficient("step", stderr=True)
    assert enso.dims == ("lat", "lon") and enso.name == "sst_enso"
    assert enso.long_name == "coefficient of enso in temperature, per unit of enso"
    np.testing.assert_allclose(enso, np.cos(np.deg2rad(4 * data.lat)) + 0 * data.lon, atol=0.1)
    assert enso.history.partition(": ")[2].startswith("coefficient('enso')")
    assert ": coefficient('step', stderr=True)" in jump.sst_step_stderr.history
    assert jump.sst_step.units == "degC" and abs(float(jump.sst_step.mean()) - 0.8) < 0.01
    assert 0.8 < float(jump.sst_step.std() / jump.sst_step_stderr.mean()) < 1.25
    explained = field.select(time="enso").predict()
    np.testing.assert_allclose(explained, ENSO * enso, rtol=0, atol=1e-12)
    parts = sum(
        field.select(time=own).predict() for own in (xs.Polynomial, xs.Fourier, xs.Step, xs.Regressors)
    )
    np.testing.assert_allclose(parts, field.predict(), rtol=0, atol=1e-11)
    lines = xs.PiecewiseLinear(["1995", "2002-06"])
    broken = data.spline.fit(time=lines + xs.Fourier(1, "year") + xs.Step(str(MONTHS[100])) + BASIS.terms[-1])
    slope = broken.select(time=xs.PiecewiseLinear).derivative({"time": ["1993", "2000", "2008"]}, time=1)
    for k in range(3):
        np.testing.assert_allclose(broken.coefficient(f"trend{k + 1}"), slope.isel(time=k), rtol=1e-9)
    assert field.coefficient("cos1").dims == ("lat", "lon") and field.coefficient("cos1").units == "degC"


@pytest.mark.slow
def test_smooth_in_space_with_reml() -> None:
    data = maps(noise=0.5)
    field = data.spline.fit({"lat": 9, "lon": 12, "time": BASIS})
    truth = np.cos(np.deg2rad(4 * data.lat)) + 0 * data.lon
    found = field.coefficient("enso", stderr=True)
    pixels = data.spline.fit(time=BASIS).coefficient("enso")
    error = float(np.sqrt(((found.sst_enso - truth) ** 2).mean()))
    assert error < 0.5 * float(np.sqrt(((pixels - truth) ** 2).mean()))
    assert 0.5 < error / float(np.sqrt((found.sst_enso_stderr**2).mean())) < 2
    at = field.coefficient("enso", lat=[0.0, 5.5], lon=200.0)
    np.testing.assert_allclose(at[0], found.sst_enso.sel(lat=0, lon=200, method="nearest"), atol=0.05)
    assert field.coefficient("enso", data).equals(found.sst_enso)  # the labels of time are not asked for
    dense = data.stack(obs=("time", "lat", "lon")).reset_index("obs")[::17]
    points = dense.spline.fit({"lat": 5, "lon": 5, "time": BASIS}, penalty=1e-6)
    design = points.space.features
    x = [points.space.to_float(name, dense[name].values) for name in points.space.names]
    phi = np.einsum("ni,nj,nk->nijk", *(f.design(own) for f, own in zip(design, x, strict=True)))
    phi = phi.reshape(dense.size, -1)
    expected = np.linalg.solve(phi.T @ phi + 1e-6 * np.eye(phi.shape[1]), phi.T @ dense.values)
    np.testing.assert_allclose(points.predict(dense), phi @ expected, atol=1e-7)


def test_outside_the_record_observations_are_left_out_and_counted() -> None:
    data, short = maps(), ENSO[:-12]
    basis = SEASON + xs.Step(str(MONTHS[100])) + xs.Regressors(aod=AOD, enso=short)
    with pytest.warns(xs.FitWarning, match=LEFT_OUT):
        field = data.spline.fit(time=basis)
    assert (field.summary()["count"] == 228).all()
    inside = data[:-12].spline.fit(time=basis)
    np.testing.assert_allclose(field.coefficient("enso"), inside.coefficient("enso"), rtol=1e-9)
    assert np.isnan(field.predict(data[-12:])).all()
    assert np.isnan(field.predict(data[-12:], extrapolate=True)).all()  # nobody knows the index there


@pytest.mark.slow
def test_files_and_holders_carry_the_index(tmp_path: Path) -> None:
    data = maps()
    space = data.spline.space({"lat": 5, "lon": 6, "time": BASIS})
    west, east = (data.sel(lon=part).spline.statistics(space, holder=name) for part, name in (
        (slice(None, 200), "west"), (slice(201, None), "east")
    ))  # fmt: skip
    field = (west + east).solve(penalty=1e-3)
    np.testing.assert_allclose(
        field.coefficients, data.spline.fit(space, penalty=1e-3).coefficients, rtol=0, atol=1e-8
    )
    field.to_zarr(tmp_path / "fit.zarr")
    again = xs.open_field(tmp_path / "fit.zarr")
    at = {"lat": [0.0], "lon": [200.0]}
    xr.testing.assert_identical(
        again.select(time="enso").predict(at, time=MONTHS[:3]).drop_attrs(),
        field.select(time="enso").predict(at, time=MONTHS[:3]).drop_attrs(),
    )
    np.testing.assert_array_equal(again.coefficient("aod", at), field.coefficient("aod", at))
    revised = (
        SEASON
        + xs.Step(str(MONTHS[100]))
        + xs.Regressors(enso=ENSO.where(ENSO.time != MONTHS[7], 0.1), aod=AOD)
    )
    other = data.spline.statistics(data.spline.space({"lat": 5, "lon": 6, "time": revised}), holder="other")
    both = r"Regressors\(aod: 240 values 1990-01-01.*digest \w+; enso: .* and .*Regressors\(aod: 240 values"
    with pytest.raises(ValueError, match=both):
        west + other


def test_records_grow_with_their_index() -> None:
    """Sums of some years move into a space of more, exactly."""
    data, early = maps(), slice(0, 120)
    space = data[early].spline.space(time=BASIS)
    longer = space.extend(time=data.time.values[-1])
    parts = data[early].spline.statistics(space, holder="a").extend(time=data.time.values[-1])
    total = parts + data[120:].spline.statistics(longer, holder="b")
    np.testing.assert_allclose(
        total.solve().coefficient("enso"), data.spline.fit(longer).coefficient("enso"), rtol=0, atol=1e-9
    )


def test_datasets_and_draws_have_coefficients() -> None:
    data = maps().to_dataset().assign(twice=lambda ds: 2 * ds.sst)
    field = data.spline.fit({"lat": 5, "lon": 6, "time": BASIS}, penalty=1e-3)
    found = field.coefficient("enso", stderr=True)
    assert list(found) == ["sst_enso", "twice_enso", "sst_enso_stderr", "twice_enso_stderr"]
    np.testing.assert_allclose(found.twice_enso, 2 * found.sst_enso, rtol=1e-7)
    draws = field["sst"].sample(200, seed=0).coefficient("enso")
    np.testing.assert_allclose(draws.std("sample"), found.sst_enso_stderr, rtol=0.3)


@pytest.mark.slow
def test_events_beside_an_index() -> None:
    """A B-spline of time follows what neither trend nor index explain, and its roughness is chosen."""
    data = maps()[:, 6, 10]
    field = data.spline.fit(time=BASIS + xs.BSpline(spacing="400D"))
    found = field.coefficient("enso", stderr=True)
    assert abs(float(found.sst_enso) - 1) < 3 * float(found.sst_enso_stderr) < 0.3
    assert not field.select(time="enso").derivative(data[:9], time=2).any()
    own = data.spline.fit(time=xs.Regressors(enso=ENSO, aod=AOD) + xs.BSpline(spacing="400D"))
    assert abs(float(own.coefficient("enso")) - 1) < 0.2


def test_means_over_time_are_exact() -> None:
    field = maps()[:, :2, :2].spline.fit(time=BASIS)
    ends = ("1993-02-10", "2003-05-20T00:00:00")
    start, length = np.datetime64(ends[0], "ns"), np.datetime64(ends[1], "ns") - np.datetime64(ends[0], "ns")
    fine = field.predict(time=start + (np.arange(200_000) + 0.5) / 200_000 * length)
    np.testing.assert_allclose(field.mean({"time": ends}), fine.mean("time"), rtol=0, atol=1e-6)


@pytest.mark.parametrize("periods", [("year", "day"), ("365.2425D", "24h"), (80.0, 12.5)])
def test_cycles_are_selected_by_their_periods(periods: tuple[str, str] | tuple[float, float]) -> None:
    x: np.ndarray = np.arange(3000.0)
    if isinstance(periods[0], str):
        x = np.datetime64("2001-01-01", "ns") + np.arange(3000) * np.timedelta64(6, "h")
    data = xr.DataArray(np.random.default_rng(0).standard_normal(3000), {"t": x}, ["t"], name="u")
    field = data.spline.fit(t=xs.Fourier(2, periods[0]) + xs.Fourier(1, periods[1]) + xs.Polynomial(1))
    long, short = field.select(t=periods[0]), field.select(t=periods[1])
    both, trend = field.select(t=xs.Fourier), field.select(t=xs.Polynomial)
    np.testing.assert_allclose(long.predict() + short.predict(), both.predict(), atol=1e-12)
    np.testing.assert_allclose(both.predict() + trend.predict(), field.predict(), atol=1e-12)
    assert f"only {periods[1]} of 't'" in repr(short) and "only" not in repr(field)
    assert np.count_nonzero(short.coefficients) == 2 and np.count_nonzero(long.coefficients) == 4
    xr.testing.assert_identical(both.select(t=periods[1]).coefficients, short.coefficients)
    with pytest.raises(ValueError, match="'t' has no term 50h"):
        field.select(t="50h")


def test_names_that_are_none_are_refused() -> None:
    field = maps()[:, 0].spline.fit(time=BASIS)
    with pytest.raises(
        ValueError, match=r"the name 'nino' is that of no one function: no function .* step, aod, enso"
    ):
        field.coefficient("nino")
    with pytest.raises(ValueError, match=r"'time' has no term nino; .* with the functions const, x1, cos1"):
        field.select(time="nino")
    with pytest.raises(
        TypeError, match="takes the class of a term, the name of a function or a period, and no basis"
    ):
        field.select(time=xs.Polynomial(1))
    with pytest.raises(ValueError, match="enso of 'time' was left out already"):
        field.select(time="aod").coefficient("enso")
    plane = maps()[0].drop_vars("time").spline.fit(lat=xs.Polynomial(1), lon=xs.Polynomial(1))
    with pytest.raises(ValueError, match="'x1' is that of no one function: functions of lat and lon have it"):
        plane.coefficient("x1")
