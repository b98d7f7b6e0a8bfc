"""Settings and fixtures that every room of the test suite shares."""

from __future__ import annotations

import os

# Bounded thread counts, set before NumPy or numba is imported: the same on a laptop and on 64 cores. References are
# small dense matrices, on which threads of BLAS wait for each other for half of all processor time; tests of what
# threads do to bits take theirs with `threadpool_limits`.
os.environ.setdefault("NUMBA_NUM_THREADS", "2")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import functools
import gc
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask
import hypothesis
import pytest

from tests.devices import device
from tests.products import sst

if TYPE_CHECKING:
    import xarray as xr
    from distributed import Client, LocalCluster

__all__ = ["device"]

# What is imported and collected stays: the collector would go through it again and again, for 3 of 10 seconds.
gc.disable()

dask.config.set(num_workers=2)

# No deadline: the first example may compile a kernel. "ci" is reproducible and looks further.
_COMMON = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("default", max_examples=6, **_COMMON)
hypothesis.settings.register_profile("ci", max_examples=15, derandomize=True, **_COMMON)
hypothesis.settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "ci" if "CI" in os.environ else "default")
)


# Fixtures that start worker processes; a file that imports LocalCluster starts its own.
CLUSTERS = {"cluster", "client", "worker", "two_workers"}


# Files whose tests take half a minute each and share nothing: the last of them would run beside an idle process.
APART = {"tests/test_defaults_on_real_data.py"}


def starts_clusters(text: str) -> bool:
    """Whether a file of tests starts worker processes, or uses those of a fixture."""
    return re.search(r"\b(LocalCluster|SpecCluster|client: Client|worker: Client)\b", text) is not None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs worker processes, so that `-m "not cluster"` leaves it out."""
    for item in items:
        of_module = vars(getattr(item, "module", None) or object).get("LocalCluster") is not None
        if of_module or CLUSTERS & set(getattr(item, "fixturenames", ())):
            item.add_marker("cluster")


def pytest_collection_finish() -> None:
    """From here on garbage is collected, among what tests make."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two processes for the whole suite (`-n auto`), none for files that are named: starting takes seconds."""
    whole = config.args == config.getini("testpaths") and not config.getoption("collectonly")
    return min(2, os.cpu_count() or 1) if whole else 0


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file runs in one process, which keeps its fixtures; all that start clusters in one, one cluster at a time."""
    if config.getoption("dist") != "loadfile":
        return None  # another distribution was asked for

    from xdist.scheduler import LoadFileScheduling

    @functools.cache
    def group(file: str) -> str:
        text = (config.rootpath / file).read_text(encoding="utf-8")
        if starts_clusters(text):
            return "clusters"
        return "source" if "from tests.source" in text else file  # which parses the package

    class ClustersTogether(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::", 1)[0]
            return nodeid if file in APART else group(file)

    return ClustersTogether(config, log)


@pytest.fixture(scope="module")
def product() -> xr.DataArray:
    """Three years of a sea-surface temperature with land and gaps."""
    return sst(months=36, gaps=0.2)


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
