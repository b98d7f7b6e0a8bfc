"""Where blocks are processed: names, messages, and a stand-in for CuPy."""

from __future__ import annotations

import pickle
import sys
import types
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, Scheduler, SpecCluster, Worker, get_task_stream

from tests.execution.cases import (
    GRID,
    SHAPE,
    Array,
    Endless,
    Flaky,
    assert_same,
    chunked,
    grid,
    positions,
    space,
    values,
)
from xspline.execution import (
    Card,
    Source,
    card,
    check_device,
    evaluate,
    has_card,
    lazy_sums,
    plan,
    present,
    sums,
    to_device,
)
from xspline.execution.chunked import cuts_of, read_of
from xspline.kernels import Group, Layout

PLANES = Layout((Group((0,), (0,)), Group((1,), (1,))))

SPACE = space()


@pytest.mark.parametrize("device", ["gpu", "cuda:1", "cpu", ""])
def test_unknown_devices_are_refused_everywhere(device: str) -> None:
    calls = [
        lambda: check_device(device),
        lambda: sums([grid()], SPACE, device=device),
        lambda: lazy_sums(grid(), SPACE, device=device),
        lambda: plan(grid(), SPACE, device=device),
        lambda: evaluate(
            np.ones(SPACE.shape), positions(SHAPE), GRID, SPACE, (0, 0, 0), SHAPE, device=device
        ),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"device='.*' is not known; leave it out .* or pass 'cuda'"):
            call()


def test_none_leaves_the_array_alone() -> None:
    x = np.ones(3)
    assert to_device(x, None) is x


def test_without_cupy_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    for call in (lambda: to_device(np.ones(3), "cuda"), lambda: sums([grid()], SPACE, device="cuda")):
        with pytest.raises(ImportError, match=r"xarray-spline\[gpu12\].*xarray-spline\[gpu13\]"):
            call()
    check_device("cuda")  # a graph for workers that have one may be built here
    lazy_sums(grid(chunked(values(), 5)), SPACE, device="cuda")


class _RuntimeError(Exception):
    pass


def fake_cupy(cards: int | None) -> types.ModuleType:
    """A module that counts what is moved to its card, which is the host."""

    def count() -> int:
        if cards is None:
            raise _RuntimeError("cudaErrorNoDevice")
        return cards

    module: Any = types.ModuleType("cupy")
    module.cuda = types.SimpleNamespace(
        runtime=types.SimpleNamespace(getDeviceCount=count, CUDARuntimeError=_RuntimeError)
    )
    module.moved = []
    module.asarray = lambda x: module.moved.append(np.shape(x)) or np.asarray(x)
    return module


@pytest.mark.parametrize("cards", [None, 0])
def test_without_a_card_the_error_says_so(monkeypatch: pytest.MonkeyPatch, cards: int | None) -> None:
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(cards))
    with pytest.raises(RuntimeError, match=r"no card is visible to this process.*CUDA_VISIBLE_DEVICES"):
        check_device("cuda", here=True)


def test_a_client_without_a_card_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert card(None) is None and not has_card()
    with pytest.raises(ImportError, match=r"xarray-spline\[gpu12\]"):
        card("cuda")
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(1))
    assert has_card()


def test_a_process_that_a_card_is_sent_to_takes_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(1))
    sent = pickle.dumps(card("cuda"))
    assert isinstance(pickle.loads(sent), Card) and present("cuda") == "cuda"
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(0))
    assert present("cuda") is None
    with pytest.raises(RuntimeError, match="no card is visible to this process"):
        pickle.loads(sent)


def test_each_block_moves_inside_its_own_task(monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = fake_cupy(1)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    lazy = lazy_sums(grid(chunked(values(), (10, 14, 12))), SPACE, device="cuda")
    assert not cupy.moved
    found = lazy.compute()
    assert cupy.moved == [(10, 14, 12)] * 3
    assert_same(found, sums([grid()], SPACE)[0], SPACE)
    out = evaluate(np.ones(SPACE.shape), positions(SHAPE), GRID, SPACE, (0, 0, 0), SHAPE, device="cuda")
    assert cupy.moved[3:] == [SPACE.shape]
    assert isinstance(out, np.ndarray)


def test_a_card_reads_one_step_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sums are those without a thread that reads, and each step is read once, in turn, before it is asked for."""
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(1))
    monkeypatch.setattr("xspline.execution.cuts.READ", 3000)
    monkeypatch.setattr("xspline.execution.chunked.CARD", 3000)
    sources = [grid(Array(values(), (3, 7, 12))) for _ in range(2)]
    with dask.config.set(scheduler="synchronous"):
        expected, found = (
            sums([s], SPACE, device=d)[0] for s, d in zip(sources, (None, "cuda"), strict=True)
        )
    assert found.digest() == expected.digest()
    reads = [sorted(source.values.reads, key=str) for source in sources]
    assert reads[0] == reads[1]
    assert len(reads[0]) > 10


def test_what_fails_ahead_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(1))
    source = grid(Flaky(values(), tmp_path, 3, PermissionError))
    with pytest.raises(PermissionError, match="failed") as caught:
        sums([source], SPACE, device="cuda")
    assert any("while reading sst[0:30, 0:14, 0:12]" in note for note in caught.value.__notes__)


def test_small_reads_are_joined_further_for_a_card() -> None:
    source = grid(Endless((4000, 100, 120), (1, 100, 120)))
    assert [read_of(source, cuts_of(source), d)[0] for d in (None, "cuda")] == [174, 200]
    blocks = Source(da.ones((40_000, 12_000), chunks=(1, 12_000)), positions((40_000, 12_000)), (), PLANES)
    assert [read_of(blocks, cuts_of(blocks), d)[0] for d in (None, "cuda")] == [21, 699]


@pytest.mark.parametrize("declared", [True, False])
def test_tasks_go_where_a_card_is_declared(monkeypatch: pytest.MonkeyPatch, declared: bool) -> None:
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(1))
    monkeypatch.setattr("xspline.execution.cuts.READ", 5000)
    options = {"nthreads": 1, "dashboard": False}
    workers = {name: {"cls": Worker, "options": {**options, "name": name}} for name in ("plain", "card")}
    if declared:
        workers["card"]["options"]["resources"] = {"GPU": 1}
    scheduler = {"cls": Scheduler, "options": {"protocol": "inproc://", "dashboard": False}}
    for worker in workers.values():
        worker["options"]["protocol"] = "inproc://"
    with SpecCluster(workers=workers, scheduler=scheduler) as cluster, Client(cluster) as client:
        with get_task_stream(client) as stream:
            found = sums([grid(Array(values(), (3, 7, 6)))], SPACE, device="cuda")[0]
        ran = {task["worker"] for task in stream.data}
        assert not declared or ran == {cluster.workers["card"].worker_address}
    assert_same(found, sums([grid()], SPACE)[0], SPACE)
