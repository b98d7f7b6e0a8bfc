"""The paper's model on a real product: NOAA ERSST v5 over the tropical Pacific."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import xspline as xs
from tests.products import dense_prediction, worst

MODEL = {"lat": 13, "lon": xs.BSpline(23), "time": xs.Fourier(2, period="365.2425D") + xs.Polynomial(2)}
EXACT = 1e-12


@pytest.fixture(scope="module")
def ersst(data_dir: Path) -> xr.Dataset:
    return xr.open_dataset(data_dir / "ersst_v5_2010_2020.nc")


@pytest.fixture(scope="module")
def pacific(ersst: xr.Dataset) -> xr.DataArray:
    sst = ersst.sst.sel(lat=slice(30, -30), lon=slice(120, 280)).load()
    assert sst.shape == (128, 31, 81) and bool(np.isnan(sst).any())
    return sst


@pytest.fixture(scope="module")
def pooled(pacific: xr.DataArray) -> xs.Field:
    return pacific.spline.fit(MODEL, penalty=0.1)


@pytest.mark.parametrize("step", [64, pytest.param(16, marks=pytest.mark.slow)])
def test_the_papers_model_equals_the_dense_reference(
    pacific: xr.DataArray, pooled: xs.Field, step: int
) -> None:
    """With all of its functions, at a part of the months, of which the dense reference takes half a second each."""
    data = pacific[::step]
    field = data.spline.fit(pooled.space, penalty=0.1)
    assert worst(field.predict(), dense_prediction(data, pooled.space, 0.1), where=data) < EXACT


def test_the_papers_model(pacific: xr.DataArray, pooled: xs.Field) -> None:
    assert pooled.space.size == 2093
    residual = (pacific - pooled.predict()).values
    rmse = float(np.sqrt(np.nanmean(residual**2)))
    print(f"ERSST 2010-2020, tropical Pacific, P = 2093, ridge 0.1: RMSE {rmse:.4f} degC")
    np.testing.assert_allclose(pooled.summary()["rmse"], rmse, rtol=1e-9)
    assert rmse < 0.8


def test_straight_from_the_file(data_dir: Path) -> None:
    with xr.open_dataset(data_dir / "ersst_v5_2010_2020.nc") as dataset:
        lazy = dataset.sst.spline.fit(lat=20, lon=30, time=xs.Fourier(1, "year"), penalty=0.1)
        direct = dataset.sst.load().spline.fit(lat=20, lon=30, time=xs.Fourier(1, "year"), penalty=0.1)
    assert lazy.space.periodic == (False, True, False)
    assert worst(lazy.predict(dataset.sst), direct.predict(), where=dataset.sst) < EXACT


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*the knots limit the fit:xspline.FitWarning")
def test_the_trend_of_nino_34_is_as_sure_as_the_jackknife_over_years_of_the_mean_of_labels(
    ersst: xr.Dataset,
) -> None:
    sst = ersst.sst.sel(lat=slice(20, -20), lon=slice(150, 270)).load()
    t = (sst.time.values - sst.time.values[0]) / np.timedelta64(1, "s") / (10 * 365.2425 * 86_400)
    centred = xr.DataArray(t - t.mean(), {"time": sst.time}, ("time",))
    waves = [wave(20 * np.pi * k * t) for k in (1, 2) for wave in (np.cos, np.sin)]
    design = np.stack([np.ones_like(t), t, *waves], axis=1)
    labels = sst.sel(lat=slice(4, -4), lon=slice(190, 240)).weighted(np.cos(np.deg2rad(sst.lat)))
    mean, years = labels.mean(("lat", "lon")).values, sst.time.dt.year.values
    without = [np.linalg.lstsq(design[years != y], mean[years != y])[0][1] for y in np.unique(years)]
    jackknife = np.sqrt((len(without) - 1) * np.var(without))
    season = xs.Fourier(2, period="year") + xs.Polynomial(1)
    field = sst.spline.fit({"lat": 10, "lon": 20, "time": season}, penalty="reml", holder="time.year")
    slope, box = centred / (centred**2).sum(), {"lat": (-5, 5), "lon": (190, 240)}
    trend = field.select(time=xs.Polynomial).functional(slope, mean=box, stderr=True, method="jackknife")
    error = trend.sst_functional_stderr.item()
    print(
        f"trend {trend.sst_functional.item():.3f} ± {error:.3f}, jackknife of labels {jackknife:.3f} per decade"
    )
    assert 0.7 < error / jackknife < 1.3
