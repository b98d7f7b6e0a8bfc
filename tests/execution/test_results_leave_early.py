"""Fits of many members: each block of results leaves its worker as it is made, whatever happens to the others."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster

from tests.execution.cases import BATCH, LINE, SHAPE, chunked, positions, values
from xspline.execution import ClusterLostError, Source, sums

LAST = (0, 1, 1)  # of 1 x 2 x 2 blocks
PATIENCE = 60.0


def until(done: Callable[[], bool]) -> bool:
    stop = time.monotonic() + PATIENCE
    while not done() and time.monotonic() < stop:
        time.sleep(0.02)
    return done()


def waits(block: np.ndarray, directory: Path, block_id: tuple[int, ...] = ()) -> np.ndarray:
    """The last block says that it is reached, and waits for "go"; on "kill" its process dies once."""
    if block_id == LAST:
        (directory / "reached").touch()
        until(lambda: (directory / "go").exists())
        if (directory / "kill").exists():
            (directory / "kill").unlink()
            os.kill(os.getpid(), signal.SIGKILL)
    return block


def members(directory: Path) -> Source:
    data = chunked(values(), (30, 7, 6)).map_blocks(partial(waits, directory=directory))
    return Source(data, positions(SHAPE)[:1], (), BATCH)


def digest(directory: Path) -> str:
    return sums([members(directory)], LINE)[0].digest()


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("undisturbed")
    (directory / "go").touch()
    with dask.config.set(scheduler="threads"):
        return digest(directory)


@pytest.fixture(autouse=True)
def scheduler_of_the_others() -> Iterator[None]:
    """A client that is closed in the middle of a call of another thread may leave its name in the configuration."""
    before = dask.config.get("scheduler", None)
    yield
    dask.config.set(scheduler=before)


class Run(threading.Thread):
    """A fit beside the test: its digest, or what it raised."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory, self.digest, self.error = directory, "", None
        self.start()
        assert until((directory / "reached").exists)

    def run(self) -> None:
        try:
            self.digest = digest(self.directory)
        except Exception as error:
            self.error = error


def in_memory(client: Client) -> int:
    """Number of results that workers keep."""

    def count(dask_scheduler: object) -> int:
        tasks = dask_scheduler.tasks.values()  # type: ignore[attr-defined]
        return sum(t.state == "memory" and t.group.name.startswith("xspline-block") for t in tasks)

    return int(client.run_on_scheduler(count))


def test_results_leave_while_others_are_made(client: Client, tmp_path: Path, expected: str) -> None:
    run = Run(tmp_path)
    gone = until(lambda: in_memory(client) == 0)
    (tmp_path / "go").touch()
    run.join()
    assert gone
    assert run.digest == expected


@pytest.mark.parametrize(
    "how", ["closed", *(pytest.param(how, marks=pytest.mark.simulation) for how in ("restarted", "stopped"))]
)
def test_a_cluster_that_goes_away_is_an_error(tmp_path: Path, how: str) -> None:
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=how != "closed", dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        run = Run(tmp_path)
        threading.Timer(0.2, (tmp_path / "go").touch).start()
        {"closed": client.close, "restarted": client.restart, "stopped": cluster.close}[how]()
        run.join(PATIENCE)
    assert not run.is_alive()
    with pytest.raises(ClusterLostError, match="nothing was kept or written"):
        raise run.error or AssertionError("no error")


def test_an_error_of_one_block_is_that_of_the_fit(client: Client) -> None:
    def fails(block: np.ndarray, block_id: tuple[int, ...] = ()) -> np.ndarray:
        if block_id == LAST:
            raise PermissionError("no access to this block")
        return block

    data = chunked(values(), (30, 7, 6)).map_blocks(fails, dtype=float)
    with pytest.raises(PermissionError, match="no access to this block") as caught:
        sums([Source(data, positions(SHAPE)[:1], (), BATCH, "sst")], LINE)
    assert any("while reading sst[0:30, 7:14, 6:12]" in note for note in caught.value.__notes__)
