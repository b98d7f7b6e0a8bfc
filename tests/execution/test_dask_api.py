"""What this package uses of Dask beyond its documentation is there, and means what it is used for."""

from __future__ import annotations

import sys
from concurrent.futures import CancelledError
from types import SimpleNamespace

import dask
import distributed
import numpy as np
import pytest
from distributed import Client, KilledWorker, LocalCluster
from distributed.client import FutureCancelledError

from tests.execution.cases import SPACE, Array, chunked, grid, limits, values
from xspline.execution import ClusterLostError, WorkerMemoryError, lazy_sums, sums
from xspline.execution.dask_api import active_client, cluster_errors_explained

RELEASES = f"Dask {dask.__version__} and distributed {distributed.__version__} changed it"


def changed(what: str) -> str:
    return f"{what}: {RELEASES}; xspline/execution/dask_api.py has to follow"


# The client


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Running on a single-machine scheduler:UserWarning")  # of old Dask
def test_the_client_is_the_one_that_dask_computes_with(client: Client) -> None:
    assert active_client() is client, changed("the client from get_scheduler")
    for scheduler in ("threads", "synchronous"):
        with dask.config.set(scheduler=scheduler):
            assert active_client() is None
    # A task must not wait for other tasks.
    assert client.submit(lambda: active_client() is None, pure=False).result()


@pytest.mark.filterwarnings("ignore:Running on a single-machine scheduler:UserWarning")  # of old Dask
def test_a_device_is_checked_where_the_sums_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """On threads that is here, even beside a client; on workers it is there."""
    monkeypatch.setitem(sys.modules, "cupy", None)
    source = grid(chunked(values(), 6))
    with LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster, Client(cluster):
        with dask.config.set(scheduler="threads"), pytest.raises(ImportError, match="not installed here"):
            sums([source], SPACE, device="cuda")
        lazy_sums(source, SPACE, device="cuda")


# Errors of a cluster


@pytest.mark.parametrize(
    "error, reason",
    [
        (FutureCancelledError(key="k", reason="scheduler-connection-lost"), "scheduler-connection-lost"),
        (CancelledError(), "its client or its workers closed"),
    ],
)
def test_a_cancelled_future_is_a_lost_cluster(error: Exception, reason: str) -> None:
    with pytest.raises(ClusterLostError, match=rf"{reason}.*nothing was kept"), cluster_errors_explained():
        raise error


def test_a_killed_worker_is_explained_with_the_plan() -> None:
    class Deadly(Array):
        def read(self, slices: tuple[slice, ...]) -> np.ndarray:
            raise KilledWorker("region", SimpleNamespace(address="tcp://here"), 3)

    source = grid(Deadly(values(), (10, 14, 12)))
    with (
        dask.config.set(scheduler="synchronous"),
        pytest.raises(WorkerMemoryError, match=r"(?s)fewer threads, or use smaller chunks.*memory a thread"),
    ):
        sums([source], SPACE, limits=limits(3000))
