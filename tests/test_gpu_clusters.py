"""Stores on disk, fitted and predicted by workers that have a GPU; on the host, by workers that have a stand-in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from distributed import Client, LocalCluster, Nanny

import xspline as xs
from tests.execution.cases import use_limits
from tests.execution.test_device import Moved, moved
from tests.products import BASES, opened, sst
from xspline.execution import Limits

__all__ = ["moved"]

OPENED: dict[str, dict[str, Any]] = {"Dask chunks": {}, "regions": {"chunks": None}}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """15 MB of float64 in chunks of some kB, with gaps."""
    path = tmp_path_factory.mktemp("store") / "sst.zarr"
    data = sst(months=240, lat=np.linspace(-20, 20, 80), lon=np.linspace(150, 210, 100), gaps=0.1)
    data.chunk(time=24, lat=40, lon=50).to_dataset().to_zarr(path, consolidated=False)
    return path


@pytest.fixture(scope="module")
def expected(store: Path) -> xs.Field:
    return opened(store).spline.fit(BASES, penalty=0.1)


def apart(a: Any, b: Any) -> float:
    return float(np.abs(np.asarray(a) - np.asarray(b)).max() / np.abs(np.asarray(b)).max())


@contextmanager
def client_of(cluster: Any) -> Iterator[Client]:
    with cluster, Client(cluster) as client:
        yield client


def declared() -> Any:
    """Two worker processes that share this machine's GPU, each of which lets one task at a time have it."""
    return LocalCluster(
        n_workers=2, threads_per_worker=2, processes=True, dashboard_address=None, resources={"GPU": 1}
    )


def dask_cuda() -> Any:
    """A worker for each GPU, as dask-cuda starts them."""
    return pytest.importorskip("dask_cuda").LocalCUDACluster(dashboard_address=None)


def spilling() -> Any:
    """The same with CuPy's memory from a pool of RMM's, where that is installed."""
    pytest.importorskip("rmm")
    return pytest.importorskip("dask_cuda").LocalCUDACluster(
        dashboard_address=None, rmm_pool_size="2GB", rmm_allocator_external_lib_list=["cupy"]
    )


@pytest.mark.gpu
@pytest.mark.parametrize("cluster", [declared, dask_cuda, spilling])
@pytest.mark.parametrize("how", OPENED)
def test_workers_with_a_gpu(store: Path, expected: xs.Field, cluster: Callable[[], Any], how: str) -> None:
    with client_of(cluster()):
        field = opened(store, **OPENED[how]).spline.fit(BASES, penalty=0.1, device="cuda")
        assert apart(field.coefficients, expected.coefficients) < 1e-10
        values = field.predict(chunks={"time": 60}, device="cuda").compute()
        assert apart(values, expected.predict().compute()) < 1e-10
        assert apart(field.predict(values, device="cuda"), values) < 1e-10


@pytest.mark.slow
@pytest.mark.parametrize("how", OPENED)
def test_workers_that_declare_a_gpu(
    store: Path, expected: xs.Field, moved: Moved, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums and values by several threads at a time."""
    # A dozen regions of several steps each.
    use_limits(monkeypatch, Limits(read_bytes=2**20, gpu_step_bytes=2**19))
    cluster = LocalCluster(
        n_workers=2, threads_per_worker=2, processes=False, dashboard_address=None, resources={"GPU": 1}
    )
    with client_of(cluster):
        field = opened(store, **OPENED[how]).spline.statistics(BASES, device="cuda").solve(0.1)
        values = field.predict(chunks={"time": 60}, device="cuda").compute()
    assert len(moved) > 16
    assert apart(field.coefficients, expected.coefficients) < 1e-10
    assert apart(values, expected.predict().compute()) < 1e-10


def test_dask_cuda_workers_receive_the_gpu_resource() -> None:
    """Its workers are nannies with options; a resource among them arrives as a worker's resource."""
    cluster = LocalCluster(n_workers=0, processes=True, dashboard_address=None, resources={"GPU": 1})
    with cluster:
        spec = cluster.new_spec
    assert issubclass(spec["cls"], Nanny) and spec["options"]["resources"] == {"GPU": 1}


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Creating a zarr.buffer.gpu")
@pytest.mark.parametrize("device", [None, "cuda"])
def test_a_store_that_is_read_into_the_gpu(store: Path, expected: xs.Field, device: str | None) -> None:
    """Zarr decodes into CuPy arrays, without KvikIO; labels are opened before, as an index is on the host."""
    data = opened(store, chunks=None)
    with zarr.config.enable_gpu():
        field = data.spline.fit(BASES, penalty=0.1, device=device)
        block = data.variable[:3, :4, :5].data
    assert apart(field.coefficients, expected.coefficients) < 1e-10
    assert hasattr(block, "__cuda_array_interface__")
