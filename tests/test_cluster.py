"""The fit on real worker processes and real stores: killed workers, failing reads, one answer."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr
from distributed import Client, LocalCluster
from threadpoolctl import threadpool_limits

import xspline as xs
from tests.products import SEASONS, sst

BASES = {"lat": 6, "lon": xs.BSpline(8), "time": SEASONS}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "sst.zarr"
    data = sst(months=96, lat=np.linspace(-20, 20, 40), lon=np.linspace(150, 210, 60), gaps=0.1)
    data.chunk(time=2, lat=20, lon=30).to_dataset().to_zarr(path, consolidated=False)
    return path


def open_store(path: object, **kwargs: object) -> xr.DataArray:
    return xr.open_zarr(path, consolidated=False, **kwargs).sst


def bits(field: xs.Field) -> bytes:
    return field.fits["sst"].coefficients.tobytes()


@pytest.fixture(scope="module")
def expected(store: Path) -> bytes:
    with threadpool_limits(2, user_api="blas"):  # workers have one
        return bits(open_store(store).spline.fit(BASES, penalty=0.1))


def test_same_bits_on_threads_and_on_workers(store: Path, expected: bytes, client: Client) -> None:
    assert len(client.scheduler_info()["workers"]) == 2
    assert bits(open_store(store).spline.fit(BASES, penalty=0.1)) == expected


def test_regions_of_a_lazily_indexed_store_agree_with_chunks(store: Path, client: Client) -> None:
    lazy = open_store(store, chunks=None)
    field = lazy.spline.fit(BASES, penalty=0.1)
    again = open_store(store, chunks=None).spline.fit(BASES, penalty=0.1)
    assert bits(field) == bits(again)
    chunked = open_store(store).spline.fit(BASES, penalty=0.1)
    np.testing.assert_allclose(
        field.fits["sst"].coefficients, chunked.fits["sst"].coefficients, rtol=1e-9, atol=1e-9
    )
    assert field.predict().chunks is not None


class SlowStore(zarr.storage.LocalStore):
    """A store on disk whose chunks take a moment, so that a worker can die while it reads."""

    async def get(self, key, prototype, byte_range=None):  # type: ignore[no-untyped-def]
        if "sst/c/" in key:
            time.sleep(0.03)
        return await super().get(key, prototype, byte_range)


@pytest.mark.simulation
def test_same_bits_when_a_worker_is_killed(store: Path, expected: bytes) -> None:
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        pids = client.run(os.getpid)
        victim = next(iter(pids.values()))
        timer = threading.Timer(1.5, os.kill, (victim, signal.SIGKILL))
        timer.start()
        field = open_store(SlowStore(store, read_only=True)).spline.fit(BASES, penalty=0.1)
        timer.join()
        survivors = set(client.run(os.getpid).values())
    assert victim not in survivors, "the worker was not killed"
    assert bits(field) == expected


class FlakyStore(zarr.storage.LocalStore):
    """A store on disk of which one chunk fails twice, counted in files so that processes share the count."""

    async def get(self, key, prototype, byte_range=None):  # type: ignore[no-untyped-def]
        marks = Path(self.root).parent / "failures"
        if key == "sst/c/3/1/1" and len(list(marks.glob("*"))) < 2:
            (marks / str(time.monotonic_ns())).touch()
            raise OSError("the network went away")
        return await super().get(key, prototype, byte_range)


@pytest.mark.parametrize("chunks", ["chunked", "regions"])
@pytest.mark.parametrize("where", ["threads", "workers"])
def test_a_read_that_fails_twice_then_works(
    store: Path, expected: bytes, where: str, chunks: str, request: pytest.FixtureRequest
) -> None:
    marks = store.parent / "failures"
    marks.mkdir(exist_ok=True)
    for mark in marks.glob("*"):
        mark.unlink()
    if where == "workers":
        request.getfixturevalue("client")
    opened = {} if chunks == "chunked" else {"chunks": None}
    field = open_store(FlakyStore(store, read_only=True), **opened).spline.fit(BASES, penalty=0.1)
    assert len(list(marks.glob("*"))) == 2, "the store did not fail, so nothing was tested"
    without = (
        expected
        if chunks == "chunked"
        else bits(open_store(store, chunks=None).spline.fit(BASES, penalty=0.1))
    )
    assert bits(field) == without


def test_lazy_predictions_are_written_from_workers(store: Path, client: Client, tmp_path: Path) -> None:
    data = open_store(store)
    field = data.spline.fit(BASES, penalty=0.1)
    field.predict().to_zarr(tmp_path / "fit.zarr", consolidated=False)
    written = xr.open_zarr(tmp_path / "fit.zarr", consolidated=False).sst
    np.testing.assert_allclose(written, field.predict(data.load()), rtol=1e-13)


def test_lazy_fit_on_workers(store: Path, expected: bytes, client: Client) -> None:
    lazy = open_store(store).spline.fit(BASES, penalty=0.1, compute=False)
    assert bits(lazy.compute()) == expected
    assert bits(lazy.persist().compute()) == expected
