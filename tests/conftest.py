"""Settings and fixtures that every room of the test suite shares."""

from __future__ import annotations

import os

# Bounded thread counts, set before NumPy or numba is imported: the same on a laptop and on 64 cores.
os.environ.setdefault("NUMBA_NUM_THREADS", "2")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "2")

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import dask
import hypothesis
import pytest

from tests.devices import device

if TYPE_CHECKING:
    from distributed import Client, LocalCluster

__all__ = ["device"]

dask.config.set(num_workers=2)

# No deadline: the first example may compile a kernel. "ci" is reproducible and looks further.
_COMMON = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("default", max_examples=25, **_COMMON)
hypothesis.settings.register_profile("ci", max_examples=50, derandomize=True, **_COMMON)
hypothesis.settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "ci" if "CI" in os.environ else "default")
)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Directory of real data; tests that need it are skipped where there is none."""
    value = os.environ.get("XSPLINE_DATA_DIR", "")
    if not value:
        pytest.skip("XSPLINE_DATA_DIR is not set: tests on real data are skipped")
    path = Path(value)
    if not path.is_dir():
        pytest.skip(f"XSPLINE_DATA_DIR={value} is not a directory: tests on real data are skipped")
    return path


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    """Two worker processes of one thread each, started by the first test that asks."""
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", memory_limit="1GiB"
    ) as local:
        yield local


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    """A client of `cluster`, active for one test."""
    from distributed import Client

    with Client(cluster) as connected:
        yield connected
