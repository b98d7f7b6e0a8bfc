"""On worker processes: the same bits, whoever computes them and whoever dies on the way."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster
from threadpoolctl import threadpool_limits

from tests.execution.cases import GRID, SHAPE, Array, chunked, grid, limits, positions, space, values
from xspline.execution import Source, WorkerMemoryError, evaluate, lazy_sums, sums

SPACE = space()


@contextmanager
def workers(number: int, processes: bool = True) -> Iterator[Client]:
    with (
        LocalCluster(
            n_workers=number, threads_per_worker=1, processes=processes, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def digests() -> list[str]:
    sources = [grid(chunked(values(), (4, 5, 6))), grid(Array(values(), (4, 5, 6)))]
    return [s.digest() for s in sums(sources, SPACE)]


@pytest.fixture(scope="module")
def expected() -> list[str]:
    with dask.config.set(scheduler="synchronous"), threadpool_limits(2, user_api="blas"):  # workers have one
        return digests()


def test_same_bits_on_one_worker_and_on_two(expected: list[str], client: Client) -> None:
    assert digests() == expected
    with workers(1, processes=False):
        assert digests() == expected


def test_persisted_blocks_are_used_where_they_are(expected: list[str], client: Client) -> None:
    data = chunked(values(), (4, 5, 6)).persist()
    assert sums([grid(data)], SPACE)[0].digest() == expected[0]
    lazy = lazy_sums(grid(data), SPACE).persist()
    assert lazy.compute().digest() == expected[0]


def test_predictions_are_computed_on_the_workers(client: Client) -> None:
    c = np.random.default_rng(0).normal(size=SPACE.shape)
    lazy = evaluate(c, positions(SHAPE), GRID, SPACE, (0, 0, 0), SHAPE, chunks=5)
    here = evaluate(c, positions(SHAPE), GRID, SPACE, (0, 0, 0), SHAPE)
    np.testing.assert_allclose(lazy.compute(), here, rtol=1e-12, atol=1e-12)


class Deadly:
    """A Reader that kills the process that reads row `at`, the first time only."""

    def __init__(self, array: np.ndarray, chunks: tuple[int, ...], directory: Path, at: int) -> None:
        self.array, self.chunks, self.directory, self.at = array, chunks, directory, at
        self.shape, self.dtype = array.shape, array.dtype

    def read(self, slices: tuple[slice, ...]) -> np.ndarray:
        if slices[0].start <= self.at < slices[0].stop and not (self.directory / "died").exists():
            (self.directory / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.array[slices]


def deadly_block(block: np.ndarray, directory: str, block_id: tuple[int, ...] = ()) -> np.ndarray:
    flag = Path(directory) / "died"
    if block_id[0] == 5 and not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.02)
    return block


@pytest.mark.simulation
def test_same_bits_when_workers_are_killed(tmp_path: Path) -> None:
    y = np.repeat(values(), 4, axis=0)
    sizes = limits(40_000)  # several regions of a small array
    for name in ("region", "block"):
        (tmp_path / name).mkdir()
    block = da.map_blocks(deadly_block, chunked(y, (10, 14, 12)), str(tmp_path / "block"), dtype=y.dtype)
    plain = [Source(Array(y, (4, 14, 12)), positions(y.shape), (), GRID)]
    plain += [Source(chunked(y, (10, 14, 12)), positions(y.shape), (), GRID)]
    reader = Deadly(y, (4, 14, 12), tmp_path / "region", 60)
    deadly = [Source(reader, positions(y.shape), (), GRID), Source(block, positions(y.shape), (), GRID)]
    whole = [s.digest() for s in sums(plain, SPACE, limits=sizes)]
    with workers(2) as client:
        before = set(client.run(os.getpid).values())
        assert [s.digest() for s in sums(deadly, SPACE, limits=sizes)] == whole
        client.wait_for_workers(2)
        assert set(client.run(os.getpid).values()) != before
    assert all((tmp_path / name / "died").exists() for name in ("region", "block"))


def always_deadly(block: np.ndarray) -> np.ndarray:
    os.kill(os.getpid(), signal.SIGKILL)
    return block


@pytest.mark.simulation
def test_workers_that_keep_dying_are_explained() -> None:
    data = da.map_blocks(
        always_deadly, chunked(values(), (30, 14, 12)), dtype=float, meta=np.empty((0, 0, 0))
    )
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        workers(1),
        pytest.raises(
            WorkerMemoryError, match=r"(?s)fewer threads, or use smaller chunks.*memory a thread.*clouds"
        ),
    ):
        sums([grid(data)], SPACE)
