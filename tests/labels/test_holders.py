"""Labels of holders, as in groupby: one part each, in one pass, equal to the statistics of a selection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import xspline as xs
from tests.products import SEASONS, sst

BASES = {"lat": 6, "lon": 8, "time": SEASONS}
STARTS = {"x": xs.BSpline(6, domain=(0.0, 1.0)), "y": xs.BSpline(5, domain=(0.0, 1.0))}


@pytest.fixture(scope="module")
def product() -> xr.DataArray:
    return sst(months=30, gaps=0.1)


def scattered(n: int = 600, seed: int = 0) -> xr.DataArray:
    """Return observations along `obs` of some platforms, in no order."""
    rng = np.random.default_rng(seed)
    platform = rng.choice([12, 7, 103, 9], n)
    coords = {"x": ("obs", rng.random(n)), "y": ("obs", rng.random(n)), "platform": ("obs", platform)}
    return xr.DataArray(rng.normal(size=n) + 15, coords, "obs", "sst")


def assert_parts(statistics: xs.Statistics, data: xr.DataArray, labels: xr.DataArray) -> None:
    """Each part is the statistics of the data that carry its label."""
    frame, (dim,) = statistics.space.frame, labels.dims
    assert statistics.holders == tuple(map(str, np.unique(labels.values)))
    for part, label in zip(statistics.parts, np.unique(labels.values), strict=True):
        own = data.isel({dim: np.flatnonzero(labels.values == label)})
        a, b = part.sums["sst"], own.spline.statistics(statistics.space).total("sst")
        a = a.recentred(b.reference, frame)
        np.testing.assert_array_equal(a.count, b.count)
        for x, y in (
            (a.gram.to_dense(frame), b.gram.to_dense(frame)),
            (a.full_moment(frame), b.full_moment(frame)),
            (a.power, b.power),
        ):
            np.testing.assert_allclose(x, y, rtol=0, atol=1e-13 * max(np.abs(y).max(), 1.0))
        assert part.provenance["sizes"][str(dim)] == own.sizes[dim]


@pytest.fixture(params=["memory", "dask", "stored"])
def form(request: pytest.FixtureRequest, product: xr.DataArray, tmp_path: Path) -> xr.DataArray:
    """The product in memory, in Dask chunks that hold parts of several years, and in a store."""
    if request.param == "memory":
        return product
    if request.param == "dask":
        return product.chunk(time=7, lat=9)
    product.drop_encoding().to_dataset().to_zarr(
        tmp_path / "sst.zarr", encoding={"sst": {"chunks": (7, 9, 25)}}, consolidated=False
    )
    return xr.open_zarr(tmp_path / "sst.zarr", chunks=None, consolidated=False).sst


@pytest.mark.slow
def test_a_component_of_a_coordinate_names_the_holders(form: xr.DataArray, product: xr.DataArray) -> None:
    space = product.spline.space(BASES)
    statistics = form.spline.statistics(space, holder="time.year")
    assert statistics.holders == ("2000", "2001", "2002")
    assert_parts(statistics, product, product.time.dt.year)
    by_season = form.spline.fit(BASES, penalty=0.1, holder="time.season")
    assert by_season.statistics.holders == ("DJF", "JJA", "MAM", "SON")
    expected = product.spline.fit(BASES, penalty=0.1)
    np.testing.assert_allclose(
        by_season.fits["sst"].coefficients, expected.fits["sst"].coefficients, rtol=1e-9, atol=1e-10
    )


@pytest.mark.parametrize("chunks", [None, 100])
def test_a_coordinate_names_the_holders_in_numeric_order(chunks: int | None) -> None:
    data = scattered()
    given = data if chunks is None else data.chunk(obs=chunks)
    statistics = given.spline.statistics(xs.Space(STARTS), holder="platform")
    assert statistics.holders == ("7", "9", "12", "103")
    assert_parts(statistics, data, data.platform)


KINDS: dict[str, tuple[np.ndarray, tuple[str, ...]]] = {
    "text": (np.array(["b", "a", "b"]), ("a", "b")),
    "objects": (np.array(["b", "a", "b"], dtype=object), ("a", "b")),
    "bytes": (np.array([b"b", b"a", b"b"]), ("a", "b")),
    "flags": (np.array([True, False, True]), ("False", "True")),
    "numbers": (np.array([10.5, -2.0, 10.5]), ("-2.0", "10.5")),
    "days": (np.array(["2001-02", "2000-01", "2001-02"], "datetime64[ns]"), ("2000-01-01", "2001-02-01")),
}


@pytest.mark.parametrize("kind", KINDS)
def test_labels_of_any_kind_are_sorted_and_written(kind: str) -> None:
    labels, names = KINDS[kind]
    data = xr.DataArray(np.arange(3.0), {"x": [0.0, 0.5, 1.0]}, "x")
    statistics = data.spline.statistics(x=4, holder=xr.DataArray(labels, dims="x"))
    assert statistics.holders == names
    assert [part.sums["field"].count for part in statistics.parts] == [1, 2]


def test_variables_of_a_dataset_have_the_same_holders(product: xr.DataArray) -> None:
    data = xr.Dataset({"sst": product, "other": product.transpose("lon", "time", "lat") * 2})
    for given in (data, data.chunk(time=7)):
        statistics = given.spline.statistics(given.spline.space(BASES), holder="time.year")
        assert statistics.holders == ("2000", "2001", "2002")
        counts = [part.sums["other"].count for part in statistics.parts]
        assert counts == [product.sel(time=y).count() for y in statistics.holders]


def test_lazy_parts_are_computed_together(product: xr.DataArray) -> None:
    calls: list[int] = []

    def counted(block: np.ndarray) -> np.ndarray:
        calls.append(1)
        return block

    lazy = product.chunk(time=10)
    lazy = lazy.copy(data=lazy.data.map_blocks(counted, dtype=lazy.dtype, meta=np.empty((0, 0, 0), "f4")))
    space = product.spline.space(BASES)
    waiting = lazy.spline.statistics(space, holder="time.year", compute=False)
    assert waiting.is_lazy and waiting.holders == ("2000", "2001", "2002") and not calls
    assert_parts(waiting.compute(), product, product.time.dt.year)
    assert len(calls) == 3
    kept = waiting.persist()
    assert_parts(kept.compute(), product, product.time.dt.year)
    assert len(calls) == 6
    field = lazy.spline.fit(BASES, penalty=0.1, holder="time.year", compute=False).compute()
    assert len(calls) == 9 and field.statistics.holders == waiting.holders


def test_holders_are_picked_and_left_out_by_name(product: xr.DataArray) -> None:
    statistics = product.spline.statistics(product.spline.space(BASES), holder="time.year")
    single = statistics.only("2001")
    assert single.holders == ("2001",)
    assert statistics.without("2001").holders == ("2000", "2002")
    assert statistics.only("2001", "2000").holders == ("2000", "2001")
    assert (statistics - single).total("sst").digest() == statistics.without("2001").total("sst").digest()
    with pytest.raises(ValueError, match=r"no holder '20001'; did you mean '2001'\?"):
        statistics.only("20001")
    with pytest.raises(ValueError, match="collapsed into one part, so the holders"):
        statistics.collapse().without("2001")


def test_infinities_are_named_where_they_are(form: xr.DataArray) -> None:
    bad = form.where((form.time != form.time[17]) | (form.lat != 0.0), np.inf)
    with pytest.raises(ValueError, match=r"sst is infinite at time=2001-06-01, lat=0\.0, lon=150\.0"):
        bad.spline.statistics(form.spline.space(BASES), holder="time.year")


# Errors


def refused(data: Any, holder: Any, match: str, **bases: Any) -> None:
    with pytest.raises(ValueError, match=match):
        data.spline.statistics(bases or BASES, holder=holder)


def test_labels_that_do_not_align_are_refused(product: xr.DataArray) -> None:
    years = product.time.dt.year
    refused(
        product,
        years[:12],
        r"have 12 entries along 'time' and the data 30; select the labels as the data.*labels\.sel",
    )
    shifted = years.assign_coords(time=product.time + np.timedelta64(1, "D"))
    refused(
        product,
        shifted,
        r"are for time=2000-01-02 where the data have time=2000-01-01, at position 0 along 'time'; select",
    )
    refused(product, xr.DataArray(np.zeros(3), dims="depth"), r"run along 'depth', but 'sst' has .*label one")
    refused(
        product.to_dataset(), xr.DataArray(np.zeros(3), dims="depth"), r"run along 'depth', but the data have"
    )
    without = years.drop_vars("time")
    assert product.spline.statistics(BASES, holder=without).holders == ("2000", "2001", "2002")


def test_missing_labels_are_refused(product: xr.DataArray) -> None:
    years = product.time.dt.year
    gaps = years.where(years != 2001)
    refused(
        product,
        gaps,
        r"12 of 30 holder labels along 'time' are missing, the first at time=2001-01-01.*fillna",
    )
    dates = product.time.where(years != 2001).rename("dates")
    refused(product.assign_coords(dates=("time", dates.values)), "dates", "12 of 30 holder labels .*missing")


def test_batch_dimensions_cannot_be_shared_out(product: xr.DataArray) -> None:
    refused(
        product,
        "time.year",
        r"run along 'time', but no fitted coordinate spans it.*fit its coordinate, pool it \(time=None\)",
        lat=6,
        lon=8,
    )
    pooled = product.spline.statistics(holder="time.year", lat=6, lon=8, time=None)
    assert pooled.holders == ("2000", "2001", "2002")


def test_names_that_mean_no_labels_are_refused(product: xr.DataArray) -> None:
    refused(product, "time.jear", r"coordinate 'time' has no component 'jear'.*times have year, month")
    refused(product, "lat.year", r"coordinate 'lat' has no component 'year'.*holder='lat'")
    data = product.to_dataset().assign(ship=("time", np.arange(30) % 3))
    with pytest.warns(UserWarning, match=r"not fitted.*ship"):
        refused(data, "ship", r"'ship' is a data variable; .*set_coords\(\['ship'\]\)")
    assert data.set_coords("ship").spline.statistics(BASES, holder="ship").holders == ("0", "1", "2")
    mixed = xr.DataArray(np.array([1, "a"] * 15, dtype=object), dims="time")
    refused(product, mixed, r"labels along 'time' cannot be sorted.*labels\.astype\(str\)")


@pytest.mark.parametrize(
    "holder", [[1, 2], 5, np.zeros(30), xr.DataArray(np.zeros((30, 17)), dims=["time", "lat"])]
)
def test_holders_that_are_neither_a_name_nor_labels_are_refused(product: xr.DataArray, holder: Any) -> None:
    with pytest.raises(TypeError, match=r"holder has to be a name or 1-D labels as a DataArray.*not "):
        product.spline.statistics(BASES, holder=holder)


def test_a_coordinate_of_two_dimensions_holds_no_labels(product: xr.DataArray) -> None:
    data = product.assign_coords(basin=(("lat", "lon"), np.zeros((17, 25))), depth=5.0)
    for name in ("basin", "depth"):
        with pytest.raises(TypeError, match=r"1-D labels as a DataArray .*not DataArray with the dimensions"):
            data.spline.statistics(BASES, holder=name)
