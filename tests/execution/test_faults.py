"""Worker processes that die, reads that fail, chunks that are damaged.

Each leaves the bits of a run that nothing disturbed, or a clear error and nothing written. What goes wrong is in files
beside the store (`Traps`), so that it happens once, at a known read, in whatever process reads.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dask
import numpy as np
import pytest
import xarray as xr
import zarr
from distributed import Client, LocalCluster

from tests.execution.cases import limits, use_limits
from tests.products import BASES, bits, sst
from xspline.execution import WorkerMemoryError

FIRST, MIDDLE, LAST = "sst/c/0/0/0", "sst/c/5/1/0", "sst/c/11/1/1"
FORMS = {"chunks": {}, "regions": {"chunks": None}}
PATIENCE = 30.0  # seconds that a process takes memory for before a test fails


class Traps:
    """What is to happen when chunks are read: one file a time for each, in a directory that all processes see."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)

    def set(self, key: str, what: str, times: int = 1) -> None:
        for k in range(times):
            (self.directory / f"{key.replace('/', '.')} {what} {k}").touch()

    def spring(self, key: str) -> str:
        """Return what happens now, and forget it."""
        for path in sorted(self.directory.glob(f"{key.replace('/', '.')} *")):
            try:
                path.unlink()
            except FileNotFoundError:  # another process was faster
                continue
            return path.name.split(" ")[1]
        return ""

    @property
    def left(self) -> int:
        return len(list(self.directory.glob("* *")))


class TrappedStore(zarr.storage.LocalStore):
    """A store on disk with traps beside it."""

    async def get(self, key, prototype, byte_range=None):  # type: ignore[no-untyped-def]
        if key.startswith("sst/c/"):
            self._spring(key, Traps(Path(self.root).parent / "traps"))
        return await super().get(key, prototype, byte_range)

    def _spring(self, key: str, traps: Traps) -> None:
        what = traps.spring(key)
        if what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif what == "gorge":
            held, end = [], time.monotonic() + PATIENCE
            while time.monotonic() < end:  # until the nanny ends this process
                if sum(a.nbytes for a in held) < 2e9:
                    held.append(np.ones(4_000_000))
                time.sleep(0.02)
        elif what == "reset":
            raise ConnectionResetError("the network went away")
        elif what == "forbid":
            raise PermissionError("no access to this chunk")


@pytest.fixture(scope="module")
def data() -> xr.DataArray:
    return sst(months=96, lat=np.linspace(-20, 20, 40), lon=np.linspace(150, 210, 60), gaps=0.1)


@pytest.fixture(autouse=True)
def small_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    use_limits(monkeypatch, limits(50_000))  # several regions and reads of a small store


@pytest.fixture
def store(data: xr.DataArray, tmp_path: Path) -> Path:
    """Twelve by two by two chunks."""
    path = tmp_path / "sst.zarr"
    data.chunk(time=8, lat=20, lon=30).to_dataset().to_zarr(path, consolidated=False)
    return path


@pytest.fixture
def traps(store: Path) -> Traps:
    return Traps(store.parent / "traps")


def opened(store: Path, form: str) -> xr.DataArray:
    return xr.open_zarr(TrappedStore(store, read_only=True), consolidated=False, **FORMS[form]).sst


def fitted(store: Path, form: str) -> bytes:
    return bits(opened(store, form).spline.fit(BASES, penalty=0.1))


def undisturbed(store: Path, form: str) -> bytes:
    """Return the bits without workers; no trap is set yet."""
    with dask.config.set(scheduler="threads"):
        return fitted(store, form)


@contextmanager
def cluster(workers: int = 2, **settings: object) -> Iterator[Client]:
    options = {"threads_per_worker": 1, "processes": True, "dashboard_address": None, **settings}
    with LocalCluster(n_workers=workers, **options) as local, Client(local) as client:
        yield client


@pytest.fixture(scope="module", autouse=True)
def patient() -> Iterator[None]:
    """A worker that is slow to start again on a busy machine is not given up."""
    with dask.config.set({"distributed.deploy.lost-worker-timeout": "120s"}):
        yield


@pytest.mark.parametrize(
    "form, killed",
    [
        pytest.param("chunks", (LAST,), id="late-chunks", marks=pytest.mark.simulation),
        pytest.param("regions", (LAST,), id="late-regions", marks=pytest.mark.simulation),
        pytest.param("chunks", (FIRST,), id="early-chunks", marks=pytest.mark.simulation),
        pytest.param("regions", (MIDDLE, MIDDLE), id="twice-regions", marks=pytest.mark.simulation),
    ],
)
def test_same_bits_when_workers_are_killed(
    store: Path, traps: Traps, client: Client, form: str, killed: tuple[str, ...]
) -> None:
    """At the first read, at the last, twice at one; a nanny starts each worker again."""
    expected = undisturbed(store, form)
    before = set(client.run(os.getpid).values())
    for key in set(killed):
        traps.set(key, "kill", killed.count(key))
    assert fitted(store, form) == expected
    assert traps.left == 0
    client.wait_for_workers(2)
    assert set(client.run(os.getpid).values()) != before


@pytest.mark.slow
@pytest.mark.parametrize("form", ["regions", "chunks"])
def test_same_bits_when_reads_fail_in_passing(store: Path, traps: Traps, client: Client, form: str) -> None:
    expected = undisturbed(store, form)
    for key in (FIRST, MIDDLE, LAST):
        traps.set(key, "reset", times=2)
    assert fitted(store, form) == expected
    assert traps.left == 0


@pytest.fixture
def where(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run on Dask's threads or on worker processes."""
    if request.param == "workers":
        request.getfixturevalue("client")
        yield
    else:
        with dask.config.set(scheduler="threads"):
            yield


@pytest.mark.usefixtures("where")
@pytest.mark.parametrize(
    "where, form, what, error",
    [
        ("threads", "regions", "reset", ConnectionResetError),
        ("workers", "chunks", "forbid", PermissionError),
        pytest.param("workers", "chunks", "reset", ConnectionResetError, marks=pytest.mark.slow),
    ],
    indirect=["where"],
)
def test_reads_that_fail_for_good_are_named(
    store: Path, traps: Traps, form: str, what: str, error: type
) -> None:
    traps.set("sst/c/6/1/0", what, times=9)
    named = r"(?s)while reading sst\[48:\d+, 20:40, 0:.*that is sst at time=2004-01-01.*….*, lat=0.51.*…20.0"
    with pytest.raises(error, match=named):
        fitted(store, form)
    assert traps.left == (8 if what == "forbid" else 6)


@pytest.mark.usefixtures("where")
@pytest.mark.parametrize(
    "where, form, garbage",
    [
        ("threads", "chunks", b""),
        ("workers", "regions", b"garbage" * 9),
        pytest.param("workers", "chunks", b"garbage" * 9, marks=pytest.mark.slow),
    ],
    indirect=["where"],
)
def test_a_damaged_chunk_is_named_and_nothing_is_written(store: Path, form: str, garbage: bytes) -> None:
    (store / "sst/c/6/1/0").write_bytes(garbage)
    plain = xr.open_zarr(store, consolidated=False, **FORMS[form]).sst
    named = r"(?s)while reading sst\[48:\d+, 20:40, 0:.*that is sst at time=2004-01-01.* of .*sst.zarr"
    with pytest.raises((RuntimeError, ValueError), match=named):
        plain.spline.statistics(plain.spline.space(BASES)).to_zarr(store.parent / "out.zarr")
    assert {path.name for path in store.parent.iterdir()} == {"sst.zarr"}


@pytest.mark.simulation
@pytest.mark.parametrize("times", [1, 9])
def test_a_worker_that_runs_out_of_memory(store: Path, traps: Traps, times: int) -> None:
    """Its nanny ends it: the next one gives the same bits, or the error says what to change."""
    expected = undisturbed(store, "chunks")
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        cluster(workers=1, memory_limit="700MB"),
    ):
        traps.set(MIDDLE, "gorge", times)
        if times == 1:
            assert fitted(store, "chunks") == expected
            assert traps.left == 0
            return
        named = r"(?s)want of memory.*give workers more memory or fewer threads.*Memory: above an idle worker"
        with pytest.raises(WorkerMemoryError, match=named):
            fitted(store, "chunks")
