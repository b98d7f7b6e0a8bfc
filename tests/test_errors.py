"""Bad input, and what is said about it."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import xspline as xs
from tests.products import SEASONS, sst

BASES = {"lat": 6, "lon": xs.BSpline(8), "time": SEASONS}


@pytest.fixture
def product() -> xr.DataArray:
    return sst(months=24)


@pytest.mark.parametrize("chunks", [None, {"time": 5, "lat": 4}])
def test_an_infinity_is_named_by_its_place(product: xr.DataArray, chunks: dict[str, int] | None) -> None:
    product[7, 3, 20] = np.inf
    product[9, 2, 1] = -np.inf
    data = product if chunks is None else product.chunk(chunks)
    with pytest.raises(
        ValueError, match=r"sst is infinite at time=2000-08-01.*, lat=-12\.5, lon=200\.0; mark missing"
    ):
        data.spline.fit(BASES)


@pytest.mark.parametrize("bad", [-1.0, np.nan])
def test_bad_weights_are_named_by_their_place(product: xr.DataArray, bad: float) -> None:
    weights = xr.ones_like(product.lat)
    weights[3] = bad
    with pytest.raises(
        ValueError,
        match=r"the weight of sst at .*lat=-12\.5.* is negative, infinite or NaN; weights are relative precisions",
    ):
        product.spline.fit(BASES, weights=weights)


def test_weights_that_do_not_match_the_data_are_refused(product: xr.DataArray) -> None:
    with pytest.raises(ValueError, match=r"different labels \(lat: -20\.0 and -19\.99 at position 0\)"):
        product.spline.fit(BASES, weights=xr.ones_like(product.lat).assign_coords(lat=product.lat + 0.01))
    with pytest.raises(ValueError, match=r"weights span \['depth'\], but sst has dimensions"):
        product.spline.fit(BASES, weights=xr.DataArray(np.ones(3), dims="depth"))
    with pytest.raises(
        TypeError, match="weights have to be a DataArray, which says what its dimensions are, not ndarray"
    ):
        product.spline.fit(BASES, weights=np.ones(24))


def test_unknown_names_are_refused_with_the_known_ones(product: xr.DataArray) -> None:
    with pytest.raises(
        ValueError, match=r"no coordinate 'latitude'; did you mean 'lat'\? Known: 'time', 'lat', 'lon'"
    ):
        product.spline.fit(latitude=6)
    with pytest.raises(ValueError, match=r"no dimension 'membr'; did you mean"):
        product.expand_dims(member=2).spline.fit(lat=6, membr=None)
    dataset = product.to_dataset().assign(depth=("time", np.arange(24.0)))
    with pytest.raises(
        ValueError,
        match=r"'depth' is a data variable; make it a coordinate first: ds = ds.set_coords\(\['depth'\]\)",
    ):
        dataset.spline.fit(depth=6)


def test_bases_given_twice_or_as_none_are_refused(product: xr.DataArray) -> None:
    with pytest.raises(
        ValueError, match=r"both as a mapping or Space .* and as keywords \(lon\); use one form"
    ):
        product.spline.fit({"lat": 6}, lon=8)
    with pytest.raises(
        ValueError, match=r"the mapping of bases is empty; leave it out, or name what to fit: fit\(lat"
    ):
        product.spline.fit({})
    with pytest.raises(
        TypeError, match="space has to be a Space or a mapping of coordinate names to bases, not int"
    ):
        product.spline.fit(13)


def test_pooling_a_fitted_dimension_is_refused(product: xr.DataArray) -> None:
    with pytest.raises(ValueError, match="'lat' is spanned by a fitted coordinate, so it cannot be pooled"):
        product.assign_coords(y=("lat", np.arange(17.0))).spline.fit({"y": 6, "lat": None})


def test_data_that_are_not_real_numbers_are_refused(product: xr.DataArray) -> None:
    with pytest.raises(
        TypeError, match=r"sst has dtype complex128, which is not a real number; fit its \.real and \.imag"
    ):
        product.astype(complex).spline.fit(BASES)
    with pytest.raises(TypeError, match="sst has dtype <U1, which is not a real number"):
        xr.full_like(product, "a", dtype="<U1").spline.fit(BASES)
    with pytest.raises(
        TypeError, match="coordinate 'name' has dtype <U1, which is neither a number nor a time"
    ):
        product.assign_coords(name=("lat", list("abcdefghijklmnopq"))).spline.fit(name=6)


def test_a_system_without_information_is_singular(product: xr.DataArray) -> None:
    with pytest.raises(xs.SingularSystemError, match=r"coefficients have no observations.*penalty"):
        product.where(product.lat > 5).spline.fit(BASES, penalty=0)
    with pytest.raises(xs.SingularSystemError, match="no observations"):
        product.where(False).spline.fit(BASES, penalty=0)
    few = product.isel(time=slice(0, 1), lat=slice(0, 3), lon=slice(10, 13))
    with pytest.raises(xs.SingularSystemError, match="penalty"):
        few.spline.fit(product.spline.space(BASES), penalty=0)


def test_a_period_on_time_needs_a_unit(product: xr.DataArray) -> None:
    with pytest.raises(
        TypeError, match=r"time: period=365\.2425 is a bare number.*Fourier\(2, period=.365\.2425D.\)"
    ):
        product.spline.fit(time=xs.Fourier(2, period=365.2425))


def test_a_scalar_coordinate_needs_a_domain(product: xr.DataArray) -> None:
    with pytest.raises(ValueError, match=r"time.*domain=\(lo, hi\)"):
        product.isel(time=0).spline.fit({"lat": 6, "time": 5})


def test_criteria_for_smoothing_that_do_not_apply(product: xr.DataArray) -> None:
    with pytest.raises(
        ValueError, match="penalty='smooth' is no criterion; use one of 'reml', 'gcv', 'holders'"
    ):
        product.spline.fit(BASES, penalty="smooth")
    with pytest.raises(ValueError, match="smooths coordinates with a B-spline, and none of time has one"):
        product.spline.fit(time=xs.Polynomial(1), penalty="reml")
    with pytest.raises(ValueError, match=r"penalty='holders' predicts each part .* needs two or more"):
        product.spline.fit(BASES, penalty="holders")
    few = product.isel(time=[0], lat=[8], lon=[8, 9, 10, 11])
    with pytest.raises(ValueError, match=r"needs more observations than the 4 functions .* there are 3"):
        few.spline.fit(lat=xs.BSpline(5, domain=(-20, 20)), lon=6, penalty=xs.Roughness("reml"))


def test_a_lazy_field_says_compute_first(product: xr.DataArray) -> None:
    lazy = product.chunk(time=6).spline.fit(BASES, penalty=0.1, compute=False)
    assert lazy.is_lazy and "lazy" in repr(lazy)
    with pytest.raises(ValueError, match=r"still lazy.*call \.compute\(\) first"):
        lazy.summary()
    with pytest.raises(ValueError, match=r"still lazy.*call \.compute\(\) first"):
        lazy.statistics.total("sst")
    np.testing.assert_allclose(lazy.predict(), product.spline.fit(BASES, penalty=0.1).predict(), rtol=1e-12)
    assert not lazy.compute().is_lazy and not lazy.persist().compute().is_lazy


def test_a_dimension_given_twice_is_refused() -> None:
    with pytest.warns(UserWarning, match="Duplicate dimension"):
        square = xr.DataArray(np.zeros((5, 5)), dims=("x", "x"))
    with pytest.raises(
        ValueError, match=r"dimensions \('x', 'x'\), of which \['x'\] repeat; give each axis a name"
    ):
        square.spline.fit(x=4)


def test_a_coordinate_given_twice_is_refused(product: xr.DataArray) -> None:
    field = product.spline.fit(BASES, penalty=0.1)
    with pytest.raises(ValueError, match=r"'lat' is given twice, in at= and as lat=\.\.\.; drop it from one"):
        field.predict({"lat": [0.0]}, lat=[1.0])
    with pytest.raises(ValueError, match="'lat' is given twice"):
        field.predict(product, lat=0.0)


def test_positions_among_the_data_variables_are_explained(product: xr.DataArray) -> None:
    reports = xr.Dataset(
        {"sst": ("obs", np.zeros(9)), "lat": ("obs", np.arange(9.0)), "lon": ("obs", np.arange(9.0))}
    )
    with pytest.raises(
        ValueError, match=r"'lat' is a data variable; make it a coordinate first: ds = ds\.set_coords"
    ):
        reports.spline.fit(lat=4, lon=4)
    with pytest.raises(ValueError, match=r"no coordinate 'lat'\. Known: 'obs'.*set_coords\(\['lat'\]\)"):
        reports.sst.spline.fit(lat=4, lon=4)


def test_an_empty_dimension_is_refused(product: xr.DataArray) -> None:
    empty = product.isel(time=slice(0, 0))
    with pytest.raises(ValueError, match=r"'time' has no valid labels, so it has no range; pass domain="):
        empty.spline.fit(BASES)
    with pytest.raises(xs.SingularSystemError, match="no observations"):
        empty.spline.fit(product.spline.space(BASES), penalty=0.1)
