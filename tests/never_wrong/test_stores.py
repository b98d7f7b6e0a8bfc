"""What a store lacks, or cannot give back, is told: chunks never written, damaged chunks, blocks of unknown length."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr

import xspline as xs
from tests.products import land

LAT, LON = np.linspace(-20.0, 20.0, 24), np.linspace(150.0, 210.0, 30)
TIME = np.arange("2000-01", "2006-09", dtype="datetime64[M]").astype("datetime64[ns]")
BASES = {"time": 5, "lat": 6, "lon": 6}


def product(*, gaps: bool = False) -> xr.DataArray:
    rng = np.random.default_rng(0)
    values = 20 + rng.standard_normal((80, 24, 30))
    if gaps:
        values[:, land(LAT, LON)] = np.nan
    coords = {"time": TIME, "lat": LAT, "lon": LON}
    return xr.DataArray(values, coords, ("time", "lat", "lon"), "adt", {"units": "m"})


def written(folder: Path, data: xr.DataArray, **format: Any) -> Path:
    """Write in 20 chunks of one time and place."""
    path = folder / "adt.zarr"
    data.drop_encoding().chunk(time=16, lat=12, lon=15).to_zarr(path, mode="w", consolidated=False, **format)
    return path


@pytest.fixture
def gappy(tmp_path: Path) -> Path:
    """A store of 20 chunks, one of which was never written: 2880 of 57,600 values."""
    path = written(tmp_path, product())
    (path / "adt" / "c" / "2" / "0" / "1").unlink()
    return path


def opened(path: Path, chunks: Any) -> xr.DataArray:
    return xr.open_zarr(path, chunks=chunks, consolidated=False).adt


ONE = r"adt: 1 of 20 chunks were never written, the first of them c/2/0/1 of .*adt\.zarr/adt; they are read as nan"


@pytest.mark.parametrize("chunks", [None, {}, {"time": 32}], ids=["lazy", "chunks", "larger"])
def test_a_chunk_that_was_never_written(gappy: Path, chunks: Any) -> None:
    data = opened(gappy, chunks)
    with pytest.warns(xs.FitWarning, match=ONE):
        field = data.spline.fit(BASES, penalty=0.1)
    assert int(field.summary()["count"]) == 57_600 - 2880
    assert "1 of 20 chunks were never written" in field.summary().attrs["unwritten"]
    for call in (data.spline.fit, data.spline.statistics):
        with pytest.raises(ValueError, match=ONE + r".*missing_chunks='ignore'"):
            call(data.spline.space(BASES), missing_chunks="raise")
    quiet = data.spline.statistics(data.spline.space(BASES), missing_chunks="ignore")
    assert quiet.solve(0.1).summary().attrs == field.summary().attrs
    lazy = data.spline.fit(BASES, penalty=0.1, compute=False, missing_chunks="ignore").compute()
    assert lazy.summary().attrs["unwritten"] == field.summary().attrs["unwritten"]


def test_a_selection_without_it_is_complete(gappy: Path) -> None:
    for chunks in (None, {}):
        data = opened(gappy, chunks)
        for part in (
            data.isel(time=slice(0, 32)),
            data.isel(lat=slice(12, None)),
            data.isel(lon=[0, 3, 7, 9]),
        ):
            part.spline.fit(BASES, penalty=0.1, missing_chunks="raise")
        with pytest.raises(ValueError, match=r"1 of 4 chunks were never written, the first of them c/2/0/1"):
            data.isel(time=slice(34, 40)).spline.fit(lat=6, lon=6, penalty=0.1, missing_chunks="raise")


def test_weights_lack_chunks_too(gappy: Path) -> None:
    data = product().chunk(time=16)
    weights = opened(gappy, {}).fillna(1.0)
    with pytest.raises(ValueError, match=r"the weights of adt: 1 of 20 chunks were never written"):
        data.spline.fit(BASES, penalty=0.1, weights=weights, missing_chunks="raise")


@pytest.mark.slow
@pytest.mark.parametrize("format", [{"zarr_format": 2}, {"encoding": {"adt": {"shards": (32, 12, 15)}}}])
def test_other_formats_of_stores(tmp_path: Path, format: dict[str, Any]) -> None:
    path = tmp_path / "adt.zarr"
    data = product().chunk(time=32, lat=12, lon=15)
    encoding = {"adt": {"chunks": (16, 12, 15), **format.get("encoding", {}).get("adt", {})}}
    data.to_zarr(
        path, consolidated=False, encoding=encoding, **{k: v for k, v in format.items() if k != "encoding"}
    )
    opened(path, None).spline.fit(BASES, penalty=0.1, missing_chunks="raise")
    first = path / "adt" / ("0.0.1" if "zarr_format" in format else "c/0/0/1")
    first.unlink()
    with pytest.raises(
        ValueError, match=r"adt: 1 of (20|12) chunks were never written, the first of them (c/)?0.0.1"
    ):
        opened(path, None).spline.fit(BASES, penalty=0.1, missing_chunks="raise")


@pytest.mark.slow
def test_land_that_is_never_written_is_counted_without_a_warning(tmp_path: Path) -> None:
    data = product()
    data[:, :12, 15:] = np.nan
    path = written(tmp_path, data)
    assert not list((path / "adt/c").glob("*/0/1")), "chunks that hold nothing but gaps are left out"
    field = opened(path, {}).spline.fit(BASES, penalty=0.1)
    assert field.summary().attrs["unwritten"].startswith("5 of 20 chunks were never written")
    (path / "adt/c/3/1/0").unlink()
    with pytest.warns(xs.FitWarning, match="6 of 20 chunks were never written"):
        opened(path, {}).spline.fit(BASES, penalty=0.1)


@pytest.mark.slow
def test_stores_without_gaps_say_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, product(gaps=True))
    for data in (opened(path, None), opened(path, {}), opened(path, {}).load()):
        assert "unwritten" not in data.spline.fit(BASES, penalty=0.1, missing_chunks="raise").summary().attrs


class Unlisted(zarr.storage.LocalStore):
    """A store that gives what it is asked for by name, like most servers."""

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        raise NotImplementedError("no lists here")
        yield ""


def test_a_store_that_cannot_be_listed(gappy: Path) -> None:
    data = xr.open_zarr(Unlisted(gappy, read_only=True), chunks=None, consolidated=False).adt
    assert int(data.spline.fit(BASES, penalty=0.1).summary()["count"]) == 57_600 - 2880
    with pytest.raises(
        ValueError, match=r"adt\.zarr/adt cannot be listed, so it is not known which chunks it lacks"
    ):
        data.spline.fit(BASES, penalty=0.1, missing_chunks="raise")
