"""Icechunk: data, statistics, fields and predictions in a store with versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import xspline as xs
from tests.products import sst

BASES = {"lat": 6, "lon": 8, "time": xs.Fourier(1, period="year") + xs.Polynomial(1)}


pytestmark = pytest.mark.slow


@pytest.fixture
def repository() -> Any:
    """Four years of data, committed."""
    import icechunk

    made = icechunk.Repository.create(icechunk.in_memory_storage())
    session = made.writable_session("main")
    sst(months=48).to_zarr(
        session.store, group="data", consolidated=False, encoding={"sst": {"chunks": (12, 17, 20)}}
    )
    session.commit("four years")
    return made


def opened(repository: Any, chunks: Any = None, group: str = "data") -> xr.DataArray:
    store = repository.readonly_session("main").store
    return xr.open_zarr(store, group=group, chunks=chunks, consolidated=False).sst


@pytest.mark.parametrize("chunks", [None, {}], ids=["lazily indexed", "Dask"])
def test_what_is_fitted_predicted_and_kept_is_that_of_the_data(repository: Any, chunks: Any) -> None:
    field = opened(repository, chunks).spline.fit(BASES, penalty=0.1, missing_chunks="raise")
    expected = sst(months=48).spline.fit(BASES, penalty=0.1)
    np.testing.assert_allclose(field.predict(), expected.predict(), rtol=0, atol=1e-10)

    session = repository.writable_session("main")
    field.statistics.to_zarr(session.store, group="statistics/2004")
    field.to_zarr(session.store, group="field")
    field.predict(chunks={"time": 12}).to_zarr(session.store, group="smooth", consolidated=False)
    session.commit("a fit")

    store = repository.readonly_session("main").store
    statistics = xs.open_statistics(store, group="statistics/2004")
    again = xs.open_field(store, group="field")
    np.testing.assert_array_equal(statistics.solve(0.1).coefficients, field.coefficients)
    np.testing.assert_array_equal(again.coefficients, field.coefficients)
    np.testing.assert_array_equal(opened(repository, group="smooth"), field.predict())


def test_a_checkpoint_knows_a_snapshot(repository: Any, tmp_path: Path) -> None:
    """What was committed never changes; what was not, nobody can tell."""
    first = opened(repository).spline.fit(BASES, penalty=0.1, checkpoint=tmp_path)
    kept = sorted(tmp_path.rglob("*"))
    opened(repository).spline.fit(BASES, penalty=0.1, checkpoint=tmp_path)
    assert kept and sorted(tmp_path.rglob("*")) == kept

    session = repository.writable_session("main")
    changed = (sst(months=48) + 1).rename("sst").to_dataset()
    changed.drop_vars(["time", "lat", "lon"]).to_zarr(
        session.store, group="data", mode="r+", consolidated=False
    )
    uncommitted = xr.open_zarr(session.store, group="data", chunks=None, consolidated=False).sst
    with pytest.warns(xs.FitWarning, match="keeps no sums of sst.* IcechunkStore does not tell the versions"):
        uncommitted.spline.fit(BASES, penalty=0.1, checkpoint=tmp_path)
    session.commit("mended")
    second = opened(repository).spline.fit(BASES, penalty=0.1, checkpoint=tmp_path)
    assert sorted(tmp_path.rglob("*")) != kept
    assert not np.array_equal(second.coefficients, first.coefficients)
    expected = (sst(months=48) + 1).spline.fit(BASES, penalty=0.1)
    np.testing.assert_allclose(second.coefficients, expected.coefficients, rtol=0, atol=1e-9)


def test_what_is_not_there_or_may_not_be_written_is_said(repository: Any) -> None:
    statistics = opened(repository).spline.statistics(BASES)
    store = repository.readonly_session("main").store
    with pytest.raises(FileNotFoundError, match=r"group 'nothing' of .*IcechunkStore.* does not exist"):
        xs.open_statistics(store, group="nothing")
    with pytest.raises(ValueError, match="read-only"):
        statistics.to_zarr(store, group="statistics")
    session = repository.writable_session("main")
    statistics.to_zarr(session.store, group="statistics")
    with pytest.raises(FileExistsError, match="already contains data; pass mode='w' to replace it"):
        statistics.to_zarr(session.store, group="statistics")
