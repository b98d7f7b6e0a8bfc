"""Cross-validation and the jackknife from parts alone, against fits made again without each of them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import xarray as xr

import xspline as xs
from tests.products import SEASONS
from xspline.labels import uncertainty

BASES = {"lat": 6, "lon": 8, "time": SEASONS}
PLANE = {"x": xs.BSpline(6, domain=(0.0, 1.0)), "y": xs.BSpline(5, domain=(0.0, 1.0))}


def jackknife_replicates(field: xs.Field, name: str) -> np.ndarray:
    return uncertainty.jackknife_replicates(field.fits[name])


def leave_out_fits(field: xs.Field) -> np.ndarray:
    return uncertainty.leave_out_fits(field.fits["sst"])


def scattered(holders: int, n: int = 900, seed: int = 0, clustered: bool = False) -> xr.DataArray:
    """Return observations of some holders along `obs`; clustered ones are in a stripe of their own each."""
    rng = np.random.default_rng(seed)
    owner = rng.permutation(np.arange(n) % holders)
    x = (owner + rng.random(n)) / holders if clustered else rng.random(n)
    y = rng.random(n)
    values = (
        20 + np.sin(6 * x) * np.cos(4 * y) + 0.1 * rng.normal(size=n) + 0.05 * rng.normal(size=holders)[owner]
    )
    return xr.DataArray(values, {"x": ("obs", x), "y": ("obs", y), "owner": ("obs", owner)}, "obs", "sst")


def refits(field: xs.Field) -> list[xs.Field]:
    """Fits made without each part, by taking it out of the statistics."""
    s = field.statistics
    return [(s - replace(s, parts=(part,))).solve(field.penalty) for part in s.parts]


def observed(space: xs.Space, data: xr.DataArray) -> xr.DataArray:
    """Return whether a knot cell that holds a Greville point, or meets it there, holds an observation."""
    seen = np.ones((data.size, 1), dtype=bool)
    kept = []
    for name, f in zip(space.names, space.features, strict=True):
        if f.local:
            labels = data[name].broadcast_like(data).transpose(*data.dims).values.ravel()
            held, points = (in_cells(f, x) for x in (space.to_float(name, labels), f.sample()))
            near = (held.astype(int) @ points.T.astype(int)) > 0
            seen = (seen[:, :, None] & near[:, None, :]).reshape(data.size, -1)
            kept.append((name, f.size))
    shared = seen[np.isfinite(data.values.ravel())].any(axis=0)
    return xr.DataArray(shared.reshape([size for _, size in kept]), dims=[name for name, _ in kept])


def in_cells(f: Any, x: np.ndarray) -> np.ndarray:
    """Return [x, cells]; a place on a knot is in both cells that meet there."""
    inside = (x[:, None] >= f.edges[:-1]) & (x[:, None] <= f.edges[1:])
    if f.periodic:
        inside[:, [0, -1]] |= np.isin(x, f.edges[[0, -1]])[:, None]
    return inside


@pytest.mark.filterwarnings("ignore:u. .* standard deviations away:xspline.FitWarning")
def test_influence_looks_at_the_ends_of_the_domain() -> None:
    """Where leaving a part out changes the field the most."""
    x = np.linspace(0, 1, 60)
    late = xr.DataArray((x > 0.9).astype(int), dims="x")
    data = xr.DataArray(np.where(x > 0.9, 5.0, 0.0), {"x": x}, "x", "u")
    field = data.spline.fit(x=12, penalty=xs.Roughness(1e-6), holder=late)
    influence = field.cross_validate().influence
    ends = [abs(float(field.predict(x=1.0) - refit.predict(x=1.0))) for refit in refits(field)]
    assert float(influence[1]) >= 0.999 * ends[1] > 1


def test_influence_takes_some_places_of_a_large_product() -> None:
    """Four global bases have 23 million; the largest change is found to some percent, at ends exactly."""
    rng = np.random.default_rng(0)
    labels = {n: ("obs", rng.uniform(0, 1, 300)) for n in "abcd"}
    owner = xr.DataArray(np.arange(300) % 4, dims="obs")
    values = labels["a"][1] + rng.normal(0, 0.1, 300) + (owner.values == 1) * labels["d"][1]
    data = xr.DataArray(values, labels, "obs", "u")
    bases = {**{n: xs.Polynomial(1, domain=(0, 1)) for n in "abc"}, "d": xs.Polynomial(4, domain=(0, 1))}
    field = data.spline.fit(bases, penalty=1e-6, holder=owner)
    assert math.prod(f.sample().size for f in field.space.features) > 1e7
    ends = {n: (n, np.linspace(0, 1, 2 if n in "abc" else 201)) for n in "abcd"}
    at = xr.Dataset(coords=ends)
    change = [float(abs(refit.predict(at) - field.predict(at)).max()) for refit in refits(field)]
    influence = field.cross_validate().influence
    np.testing.assert_allclose(influence, change, rtol=0.05)
    assert (influence <= np.multiply(change, 1 + 1e-9)).all()


def assert_refits(
    scores: xr.Dataset, field: xs.Field, data: xr.DataArray, labels: xr.DataArray, w: Any = 1.0
) -> None:
    """Count, rmse and influence are those of predictions of fits made again."""
    (dim,) = labels.dims
    assert scores.sizes == {"holder": len(field.statistics.parts)}
    seen = observed(field.space, data)
    for holder, refit in zip(scores.holder.values, refits(field), strict=True):
        own = data.isel({dim: np.flatnonzero(labels.values.astype(str) == holder)})
        weight = (w * xr.ones_like(own)).where(np.isfinite(own), 0.0)
        error = (own - refit.predict(own)).fillna(0.0)
        score = scores.sel(holder=holder)
        np.testing.assert_allclose(
            score.rmse, np.sqrt((weight * error**2).sum() / weight.sum()), rtol=1e-10, atol=1e-12
        )
        assert score["count"] == (weight > 0).sum()
        points = {n: f.sample() for n, f in zip(field.space.names, field.space.features, strict=True)}
        at = {n: xr.DataArray(field.space.axis(n).to_label(x), dims=n) for n, x in points.items()}
        change = abs(refit.predict(**at) - field.predict(**at)).where(seen)
        np.testing.assert_allclose(score.influence, change.max(), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    "holder, penalty",
    [("time.year", 0.1), pytest.param("lon", xs.Roughness(1e-4) + xs.Ridge(1e-6), marks=pytest.mark.slow)],
)
def test_scores_are_those_of_refits_on_a_grid(product: xr.DataArray, holder: str, penalty: Any) -> None:
    field = product.spline.fit(BASES, penalty=penalty, holder=holder)
    assert_refits(field.cross_validate(), field, product, product[holder])


@pytest.mark.parametrize("holders", [2, 3, pytest.param(30, marks=pytest.mark.slow)])
@pytest.mark.parametrize("clustered", [False, True])
def test_scores_are_those_of_refits_of_scattered_holders(holders: int, clustered: bool) -> None:
    """Clustered holders have a singular G each."""
    data = scattered(holders, clustered=clustered)
    field = data.spline.fit(xs.Space(PLANE), penalty=1e-3, holder="owner")
    if clustered:
        with pytest.raises(xs.SingularSystemError, match="no observations"):
            replace(field.statistics, parts=field.statistics.parts[:1]).solve(0)
    assert_refits(field.cross_validate(), field, data, data.owner)


def test_labels_and_merged_statistics_say_the_same(product: xr.DataArray) -> None:
    field = product.spline.fit(BASES, penalty=0.1, holder="time.year")
    years = [product.sel(time=str(y)) for y in (2002, 2000, 2001)]
    merged = xs.merge(y.spline.statistics(field.space, holder=str(y.time.dt.year[0].item())) for y in years)
    scores, expected = merged.solve(0.1).cross_validate(), field.cross_validate()
    assert list(scores.holder.values) == ["2002", "2000", "2001"]
    xr.testing.assert_allclose(scores.sel(holder=expected.holder), expected, rtol=1e-10)


def test_every_member_of_a_batch_has_scores(product: xr.DataArray) -> None:
    space = {"time": SEASONS}
    field = product.spline.fit(space, penalty=1e-6, holder="time.year")
    scores = field.cross_validate()
    assert scores.rmse.dims == ("holder", "lat", "lon") and scores.rmse.units == "degC"
    assert "time" not in scores.coords and (scores.lat == product.lat).all()
    single = product.isel(lat=8, lon=20)
    alone = single.spline.fit(space, penalty=1e-6, holder="time.year").cross_validate()
    xr.testing.assert_allclose(scores.isel(lat=8, lon=20), alone, rtol=1e-9)
    land = scores.isel(lat=8, lon=0)
    assert (land["count"] == 0).all() and np.isnan(land.rmse).all() and np.isnan(land.influence).all()


# Parts that cannot be spared


def halves() -> xr.DataArray:
    data = scattered(4)
    alone = data.x > 0.6  # beyond it there are observations of one holder only
    return data.where(~alone | (data.owner == 2), drop=True)


def test_a_part_that_cannot_be_spared_has_no_scores() -> None:
    data = halves()
    field = data.spline.fit(xs.Space(PLANE), penalty=0, holder="owner")
    scores = field.cross_validate()
    np.testing.assert_array_equal(np.isnan(scores.rmse), [False, False, True, False])
    np.testing.assert_array_equal(np.isnan(scores.influence), [False, False, True, False])
    coefficients = leave_out_fits(field)
    assert coefficients.shape == (6, 5, 4)
    np.testing.assert_array_equal(np.isnan(coefficients).all(axis=(0, 1)), [False, False, True, False])
    with pytest.raises(
        xs.SingularSystemError, match=r"part '2' \(.*\) of 'sst' cannot be spared.*pass a penalty"
    ):
        jackknife_replicates(field, "sst")


def test_cross_validation_refuses_where_no_part_can_be_left_out() -> None:
    data = scattered(2, clustered=True)
    field = data.spline.fit(xs.Space(PLANE), penalty=0, holder="owner")
    with pytest.raises(
        xs.SingularSystemError, match=r"none of the 2 parts of 'sst' can be spared.*pass a penalty"
    ):
        field.cross_validate()


def test_one_part_has_nothing_to_leave_out(product: xr.DataArray) -> None:
    single = product.spline.fit(BASES, penalty=0.1, holder="west")
    for ask in (xs.Field.cross_validate, leave_out_fits, lambda field: jackknife_replicates(field, "sst")):
        with pytest.raises(
            ValueError, match=r"1 part \('west' .*\); label .*holder=\"time\.year\"\), or merge"
        ):
            ask(single)
    several = product.spline.statistics(product.spline.space(BASES), holder="time.year").collapse("all")
    with pytest.raises(ValueError, match=r"into which others were collapsed\); label"):
        several.solve(0.1).cross_validate()


def test_a_lazy_field_is_computed_first(product: xr.DataArray) -> None:
    lazy = product.chunk(time=12).spline.fit(BASES, penalty=0.1, holder="time.year", compute=False)
    with pytest.raises(ValueError, match=r"still lazy \(compute=False\); call \.compute\(\) first"):
        lazy.cross_validate()
    assert lazy.compute().cross_validate().sizes == {"holder": 3}


# The jackknife


def test_the_jackknife_of_a_mean_is_its_standard_error() -> None:
    """One observation a part: the variance of the mean is s²/n (Efron 1982, section 3.1)."""
    rng = np.random.default_rng(0)
    data = xr.DataArray(rng.normal(size=20), {"x": np.linspace(0, 1, 20), "n": ("x", np.arange(20))}, "x")
    field = data.spline.fit(x=xs.Polynomial(0), penalty=0, holder="n")
    replicates = jackknife_replicates(field, "field")
    assert replicates.shape == (1, 20)
    np.testing.assert_allclose(np.sum(replicates**2), data.values.var(ddof=1) / 20, rtol=1e-10)


@pytest.mark.parametrize("method", ["jackknife", "scores"])
def test_parts_without_observations_are_no_degrees_of_freedom(method: str) -> None:
    data = xr.DataArray(np.random.default_rng(0).normal(size=24), {"x": np.arange(24.0)}, "x")
    data[12:] = np.nan
    field = data.spline.fit(x=xs.Polynomial(0), penalty=0, holder=data.x.copy(data=np.arange(24) // 2))
    error = field.stderr(x=3.0, method=method)
    assert error.degrees_of_freedom == 5 and "between the 6 parts" in error.comment
