"""Fixtures of this room."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from distributed import Client, LocalCluster

from tests.execution.cases import RESET


@pytest.fixture(scope="module")
def worker() -> Iterator[Client]:
    """One worker process of one thread, whose peak memory can be measured."""
    if not RESET.exists():
        pytest.skip("peak memory can be reset on Linux only")
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None, memory_limit="1GB"
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client
