"""Smoothing that nobody asked for: chosen from the statistics, the same however these came together."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import xspline as xs
from tests.products import SEASONS, sst

BASES = {"lat": 8, "lon": xs.BSpline(10), "time": SEASONS}


@pytest.fixture(scope="module")
def product() -> xr.DataArray:
    return sst(months=48, gaps=0.1)


@pytest.fixture(scope="module")
def pooled(product: xr.DataArray) -> xs.Field:
    return product.spline.fit(BASES)


def test_reml_is_the_default_and_says_so(pooled: xs.Field) -> None:
    assert pooled._request.penalty == "reml" and isinstance(pooled.penalty, xs.Sobolev)
    summary = pooled.summary()
    assert list(summary.metric.penalised.values) == ["lat", "lon"]
    np.testing.assert_array_equal(summary.metric, list(pooled.penalty.metric(pooled.space).values()))
    np.testing.assert_array_equal(summary.tau.sel(order=[1, 2]), list(pooled.penalty.orders.values()))
    assert np.isfinite(summary.score) and summary.attrs["smoothing"].startswith("reml, ")
    assert float(summary.edf) < float(summary.coefficients) and 0.25 < float(summary.sigma) < 0.35
    assert "(by 'reml')" in repr(pooled)


def test_the_line_of_code_asks_for_the_same_fit(product: xr.DataArray, pooled: xs.Field) -> None:
    again = eval(f"data.spline.{pooled.code()}", {"xs": xs, "data": product})
    assert again.space == pooled.space and again.penalty == pooled.penalty
    np.testing.assert_array_equal(again.coefficients, pooled.coefficients)


@pytest.mark.parametrize("criterion", ["reml", pytest.param("gcv", marks=pytest.mark.slow)])
def test_merged_parts_choose_what_pooled_data_choose(product: xr.DataArray, criterion: str) -> None:
    whole = product.spline.fit(BASES, penalty=criterion)
    cuts = [slice(0, 7), slice(7, 11), slice(11, 25)]
    parts = [
        product.isel(lon=cut).spline.statistics(whole.space, holder=str(i)) for i, cut in enumerate(cuts)
    ]
    merged = xs.merge(parts).solve(criterion)
    for name in ("tau" if criterion == "reml" else "lambda", "edf", "sigma", "score"):
        np.testing.assert_allclose(merged.summary()[name], whole.summary()[name], rtol=1e-10)
    grid = product.isel(time=slice(0, 2))
    np.testing.assert_allclose(merged.stderr(grid), whole.stderr(grid), rtol=1e-10)
    np.testing.assert_allclose(merged.predict(grid), whole.predict(grid), rtol=1e-10)


def test_chunks_and_holders_do_not_matter(product: xr.DataArray, pooled: xs.Field) -> None:
    chunked = product.chunk(time=10, lat=6).spline.fit(BASES, holder="time.year")
    for name in ("tau", "metric", "edf", "score"):
        np.testing.assert_allclose(chunked.summary()[name], pooled.summary()[name], rtol=1e-10)
    lazy = product.chunk(time=10).spline.fit(BASES, compute=False)
    assert lazy.is_lazy and lazy.penalty == "reml" and "reml" in repr(lazy)
    np.testing.assert_allclose(lazy.predict().compute(), pooled.predict(), rtol=1e-9)
    computed = lazy.compute()
    np.testing.assert_allclose(computed.summary().tau, pooled.summary().tau, rtol=1e-10)


@pytest.mark.slow
def test_every_variable_has_its_own_smoothing(product: xr.DataArray) -> None:
    noisy = product + np.random.default_rng(0).normal(0, 3.0, product.shape)
    data = xr.Dataset({"sst": product, "noisy": noisy.assign_attrs(product.attrs)})
    with pytest.warns(xs.FitWarning, match="noisy: lambda of 'lon' is at its upper bound"):
        both = data.spline.fit(BASES, penalty=xs.Roughness())
    assert set(both.penalty) == {"sst", "noisy"} and both["noisy"].penalty == both.penalty["noisy"]
    assert both.penalty["noisy"].strength["lat"] > 3 * both.penalty["sst"].strength["lat"]
    table = both.summary()["lambda"]
    assert table.dims == ("variable", "penalised")
    alone = product.spline.fit(BASES, penalty=xs.Roughness())
    np.testing.assert_allclose(table.sel(variable="sst"), alone.summary()["lambda"], rtol=1e-10)


def test_weight_on_one_cell_is_an_error(product: xr.DataArray) -> None:
    weights = xr.zeros_like(product, dtype=float)
    weights[:, 8, 8] = 1.0
    with pytest.raises(xs.SingularSystemError, match="lie in too few places to determine them"):
        product.spline.fit(BASES, weights=weights, penalty=xs.Roughness())
