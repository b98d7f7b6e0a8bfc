"""The walk from labelled data to a field: merge = pooled = dense, whatever the cuts, layouts and calendars."""

from __future__ import annotations

import cftime
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import xspline as xs
from tests.products import BASES, SEASONS, dense_prediction, sst, worst

EXACT = 1e-12


@pytest.fixture(scope="module")
def pooled(product: xr.DataArray) -> xs.Field:
    return product.spline.fit(BASES, penalty=0.1)


# Of whole fits, which take as long as a hundred small laws, not as many as of these.
FITS = settings(max_examples=min(20, settings.default.max_examples))


def cuts(n: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Draw chunk sizes that add up to n."""
    inner = st.lists(st.integers(1, n - 1), max_size=3, unique=True).map(sorted)
    return inner.map(lambda ends: tuple(np.diff([0, *ends, n]).tolist()))


@FITS
@given(st.data())
def test_any_chunking_gives_the_pooled_field(
    product: xr.DataArray, pooled: xs.Field, data: st.DataObject
) -> None:
    chunks = {dim: data.draw(cuts(n), label=dim) for dim, n in product.sizes.items()}
    order = data.draw(st.permutations(product.dims), label="order")
    field = product.transpose(*order).chunk(chunks).spline.fit(BASES, penalty=0.1)
    assert worst(field.predict().transpose(*product.dims), pooled.predict(), where=product) < EXACT


@given(st.data())
def test_any_holders_merge_to_the_pooled_field(
    product: xr.DataArray, pooled: xs.Field, data: st.DataObject
) -> None:
    dim = data.draw(st.sampled_from(product.dims), label="dim")
    owner = data.draw(
        st.lists(st.integers(0, 6), min_size=product.sizes[dim], max_size=product.sizes[dim]), label="owner"
    )
    parts = [
        product.isel({dim: np.flatnonzero(np.array(owner) == h)}).spline.statistics(
            pooled.space, holder=f"h{h}"
        )
        for h in set(owner)
    ]
    merged = xs.merge(parts).solve(penalty=0.1)
    assert worst(merged.predict(product), pooled.predict(), where=product) < EXACT


@FITS
@given(st.sampled_from(["time", "lat", "lon", "all"]), st.integers(0, 2**31), st.booleans())
def test_weights_are_those_of_the_dense_definition(
    product: xr.DataArray, over: str, seed: int, zeros: bool
) -> None:
    dims = product.dims if over == "all" else (over,)
    rng = np.random.default_rng(seed)
    w = xr.DataArray(
        rng.gamma(2.0, size=[product.sizes[d] for d in dims]), {d: product[d] for d in dims}, dims
    )
    w = w.where(rng.random(w.shape) > 0.2, 0.0) if zeros else w
    field = product.spline.fit(BASES, penalty=0.1, weights=w)
    dense = dense_prediction(product, field.space, 0.1, w)
    assert worst(field.predict(), dense, where=product.where(w > 0)) < EXACT
    seen = (np.isfinite(product) & (w > 0)).sum()
    assert int(field.summary()["count"]) == int(seen)


def test_packed_integers_on_disk(product: xr.DataArray, tmp_path) -> None:
    encoding = {"sst": {"dtype": "int16", "scale_factor": 0.01, "add_offset": 20.0, "_FillValue": -32768}}
    product.to_dataset().to_netcdf(tmp_path / "packed.nc", encoding=encoding)
    with xr.open_dataset(tmp_path / "packed.nc") as stored:
        field = stored.sst.spline.fit(BASES, penalty=0.1)
        dense = dense_prediction(stored.sst.load(), field.space, 0.1)
    assert worst(field.predict().compute(), dense, where=product) < EXACT
    assert field.predict().encoding == {}


def test_summary_counts_and_measures_the_residual(product: xr.DataArray, pooled: xs.Field) -> None:
    summary, residual = pooled.summary(), product - pooled.predict()
    n = int(np.isfinite(product).sum())
    assert int(summary["count"]) == n
    assert int(summary["coefficients"]) == pooled.space.size == 6 * 8 * 4
    np.testing.assert_allclose(summary["rmse"], np.sqrt((residual**2).mean()), rtol=1e-10)
    np.testing.assert_allclose(
        summary["r2"],
        1 - (residual**2).sum() / ((product.astype(float) - product.astype(float).mean()) ** 2).sum(),
        rtol=1e-9,
    )
    np.testing.assert_allclose(
        summary["sigma"], np.sqrt((residual**2).sum() / (n - summary["edf"])), rtol=1e-9
    )
    assert 0 < float(summary["edf"]) <= pooled.space.size
    assert "Ridge(0.1)" in summary.attrs["penalty"]


def test_trend_map_is_one_term_of_the_union() -> None:
    data = sst(months=36)
    field = data.spline.fit(time=SEASONS)
    trend = field.select(time=xs.Polynomial).derivative(data.isel(time=[0, 20]), time=1)
    years = float((data.time[-1] - data.time[0]) / np.timedelta64(1, "s"))
    slope = field.coefficients.sel(time_basis="x1").drop_vars("time_basis") * 2 / years
    np.testing.assert_allclose(trend.isel(time=0), slope, rtol=1e-12)
    np.testing.assert_allclose(trend.isel(time=1), slope, rtol=1e-12)
    assert trend.name == "dsst_dtime" and trend.attrs["units"] == "degC s-1"
    season = field.select(time=xs.Fourier).predict()
    whole = field.select(time=xs.Polynomial).predict() + season
    np.testing.assert_allclose(whole, field.predict(), atol=1e-12)
    assert abs(float(season.sel(lat=0, lon=200, method="nearest").mean())) < 1e-2


def ensemble() -> xr.DataArray:
    members = [sst(months=24, seed=s).expand_dims(member=[s]) for s in (3, 5, 8)]
    return xr.concat(members, "member").transpose("time", "member", "lat", "lon")


@pytest.mark.slow
@pytest.mark.parametrize("chunks", [None, {"member": 2, "time": 7, "lon": 9}])
def test_ensemble_member_as_batch_dimension(chunks: dict[str, int] | None) -> None:
    data = ensemble() if chunks is None else ensemble().chunk(chunks)
    field = data.spline.fit(BASES, penalty=0.1)
    assert field.predict().dims == ("time", "member", "lat", "lon")
    np.testing.assert_array_equal(field.predict().member, [3, 5, 8])
    for s in (3, 5, 8):
        alone = ensemble().sel(member=s).spline.fit(field.space, penalty=0.1)
        assert worst(field.predict().sel(member=s), alone.predict(), where=ensemble().sel(member=s)) < EXACT
    assert field.summary()["rmse"].dims == ("member",)


@pytest.mark.slow
@pytest.mark.parametrize("chunks", [None, {"member": 2, "time": 7}])
def test_ensemble_member_pooled_as_repeated_observations(chunks: dict[str, int] | None) -> None:
    data = ensemble() if chunks is None else ensemble().chunk(chunks)
    field = data.spline.fit({**BASES, "member": None}, penalty=0.1)
    dense = dense_prediction(ensemble(), field.space, 0.1)
    assert field.predict().dims == ("time", "lat", "lon")
    assert worst(field.predict(), dense.isel(member=0), where=ensemble().isel(member=0)) < EXACT


def test_dataset_of_two_variables_with_different_masks() -> None:
    one, two = sst(months=24), sst(months=24, gaps=0.2, seed=4).rename("sal")
    two.attrs.update(units="psu", long_name="salinity")
    extra = xr.DataArray(["a"] * 24, dims="time")
    dataset = xr.Dataset({"sst": one, "sal": two, "flag": extra})
    with pytest.warns(UserWarning, match=r"not fitted.*flag"):
        field = dataset.spline.fit(BASES, penalty=0.1)
    predicted = field.predict()
    assert list(predicted.data_vars) == ["sst", "sal"]
    assert [predicted[v].attrs["units"] for v in predicted] == ["degC", "psu"]
    for data in (one, two):
        alone = data.spline.fit(BASES, penalty=0.1)
        assert worst(predicted[data.name], alone.predict(), where=data) < EXACT
        assert worst(field[data.name].predict(), alone.predict(), where=data) < EXACT
    assert list(field.gradient(dims=["lat"])) == ["dsst_dlat", "dsal_dlat"]
    assert field.summary()["rmse"].dims == ("variable",)
    assert list(field.laplacian(dims=["lat"])) == ["sst_laplacian", "sal_laplacian"]


def test_longitudes_and_latitudes_as_they_come() -> None:
    lon = np.arange(0.0, 360.0, 15.0)
    lat = np.linspace(60.0, -60.0, 13)
    data = sst(months=24, lat=lat, lon=lon)
    shifted = data.assign_coords(lon=(((lon + 180) % 360) - 180)).sortby("lon").sortby("lat")
    shifted.lon.attrs = data.lon.attrs
    shifted.lat.attrs = data.lat.attrs
    bases = {"lat": 7, "lon": 8, "time": SEASONS}
    a, b = (d.spline.fit(bases, penalty=0.1) for d in (data, shifted))
    assert a.space == b.space
    assert a.space.periodic[1], "a circle of longitudes is periodic"
    pa, pb = a.predict(), b.predict()
    assert list(pa.lat) == list(lat) and float(pb.lon.min()) == -180
    aligned = pb.assign_coords(lon=np.mod(pb.lon, 360)).sortby("lon").sortby("lat", ascending=False)
    assert worst(aligned, pa, where=data) < EXACT
    np.testing.assert_allclose(a.predict(lon=-30.0), a.predict(lon=330.0), rtol=1e-13)
    np.testing.assert_allclose(a.predict(lon=0.0), a.predict(lon=360.0), rtol=1e-12)


@pytest.mark.parametrize("calendar", ["noleap", "360_day", "standard"])
def test_calendars(calendar: str) -> None:
    data = sst(months=24)
    time = [cftime.datetime(2000 + m // 12, m % 12 + 1, 15, calendar=calendar) for m in range(24)]
    data = data.assign_coords(time=time)
    field = data.spline.fit(BASES | {"time": xs.Fourier(1, period="year") + xs.Polynomial(1)}, penalty=0.1)
    assert worst(field.predict(), dense_prediction(data, field.space, 0.1), where=data) < EXACT
    assert list(field.predict().time.values) == time
    axis = field.space.axes["time"][0]
    assert axis.calendar == calendar
    one = field.predict(time="2000-03-15", lat=0.0, lon=200.0)
    np.testing.assert_allclose(one, field.predict().sel(time=time[2]).interp(lat=0.0, lon=200.0), atol=0.2)
    assert field.derivative(time=1).attrs["units"] == "degC s-1"


def test_datetime_resolutions_and_standard_cftime_are_one_time() -> None:
    data = sst(months=24)
    spaces = [
        data.assign_coords(time=data.time.values.astype(f"datetime64[{u}]")).spline.space(time=SEASONS)
        for u in ("s", "ms", "us", "ns")
    ]
    as_cftime = xr.DataArray(data.time).to_index()
    stamps = [cftime.DatetimeGregorian(*t.timetuple()[:6]) for t in as_cftime.to_pydatetime()]
    spaces.append(data.assign_coords(time=stamps).spline.space(time=SEASONS))
    assert len({s.digest for s in spaces}) == 1


def test_scalar_coordinate_is_a_group_of_one_value() -> None:
    data = sst(months=24, gaps=0.1)
    space = data.spline.space(BASES)
    one = data.isel(time=7)
    assert one.time.ndim == 0
    part = one.spline.statistics(space, holder="one month")
    rest = data.drop_isel(time=7).spline.statistics(space, holder="the rest")
    merged = xs.merge([part, rest]).solve(penalty=0.1)
    assert worst(merged.predict(data), data.spline.fit(space, penalty=0.1).predict(), where=data) < EXACT


def test_dimension_without_labels_is_counted_by_fit_and_refused_by_statistics() -> None:
    data = xr.DataArray(np.sin(np.arange(20) / 5.0), dims="x")
    with pytest.warns(UserWarning, match=r"'x' has no coordinate.*0\.\.19"):
        field = data.spline.fit(x=8, penalty=0)
    np.testing.assert_allclose(field.predict(), data, atol=1e-3)
    with pytest.raises(ValueError, match=r"'x' has no coordinate.*assign_coords\(x="):
        data.spline.statistics(x=8)
